/* args.c - the table of options; parse and store their values; print --help.
 * Way:     main -> [args] -> getopt_long
 * Threads: main's. */
#include "silo/args.h"

#include <getopt.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "base/options.h"
#include "silo/silo.h"

enum { MIB = 1024 * 1024, MIB_MAX = TEFFI_QUEUE_BYTES_MAX / MIB, KIB = 1024, DIGITS_MAX = 9 };

/* What an option does with its value. */
typedef enum take { TEXT, SEED, NUMBER, MIBS, MIBS_LONG, KIBS, CHOICE, FLAG, HELP } take;

/* One of teff's options. The type of its member of teffi_silo_args: TEXT: const char *; NUMBER:
 * uint32_t; MIBS: uint32_t, in bytes; MIBS_LONG: uint64_t, in bytes; KIBS: size_t, in bytes;
 * CHOICE: an enum; `value` lists its names, the first of which has the number min; FLAG: int. */
typedef struct silo_option {
    const char *name, *value, *help; /* as in teff_silo_option */
    take take;
    size_t at; /* offset of the member in teffi_silo_args */
    uint32_t min, max;
} silo_option;

#define AT(member) offsetof(teffi_silo_args, member)

static const silo_option options[] = {
    {"listen", "HOST:PORT", "where to accept silos and clients, or unix:/PATH (127.0.0.1:0)", TEXT,
     AT(silo.listen), 0, 0},
    {"advertise", "HOST:PORT", "how others reach it (the address it listens on)", TEXT,
     AT(silo.advertise), 0, 0},
    {"store", "memory|sqlite:FILE|postgres:DATABASE|redis:HOST:PORT|etcd://HOST:PORT",
     "where rows are kept (memory); silos with the same file or\n"
     "                         database are one cluster",
     TEXT, AT(silo.store), 0, 0},
    {"seed", "HOST:PORT", "join through this running silo, up to 8 times; its store is used", SEED,
     AT(silo.seeds), 0, 0},
    {"cluster", "NAME", "cluster id (dev); silos and clients of another are refused", TEXT,
     AT(silo.cluster), 0, 0},
    {"lease-ms", "N",
     "how long it serves after its last heartbeat (10000); the others\n"
     "                         declare it dead after 1.5 times N (1.05 if its connection broke)",
     NUMBER, AT(silo.lease_ms), TEFFI_LEASE_MIN_MS, TEFFI_LEASE_MAX_MS},
    {"outage-ms", "N",
     "how much longer the silo may serve while a majority of the silos\n"
     "                         cannot reach the store (0); all silos must have the same N",
     NUMBER, AT(silo.outage_ms), 0, TEFFI_LEASE_MAX_MS},
    {"stuck-ms", "N",
     "how long no worker may take work, because turns do not end, until\n"
     "                         the silo gives up and its process ends (3600000)",
     NUMBER, AT(silo.stuck_ms), TEFFI_LEASE_MIN_MS, 2000000000},
    {"stop-ms", "N",
     "how long a stop waits, after its other steps, for turns that do\n"
     "                         not end, until the process ends with status 1 (30000)",
     NUMBER, AT(silo.stop_ms), 1, 2000000000},
    {"reminder-period-min-ms", "N", "shortest period that a grain may give to a reminder (60000)",
     NUMBER, AT(silo.reminder_period_min_ms), 1, TEFFI_REMINDER_PERIOD_MIN_MAX_MS},
    {"workers", "N", "worker threads (one per core that affinity and CPU quota allow)", NUMBER,
     AT(silo.workers), 0, 1024},
    {"stacks", "N", "most turns that run or wait; above it calls are refused (32768)", NUMBER,
     AT(sched.stacks_max), 64, 1000000},
    {"policy", "single|multilevel|priority", "scheduling policy (single)", CHOICE, AT(sched.policy),
     TEFF_SCHED_SINGLE, 0},
    {"level1-us", "N", "multilevel: run time from which a group is in level 1 (5000)", NUMBER,
     AT(sched.level_us[0]), 1, 1000000},
    {"level2-us", "N", "the same for level 2 (100000)", NUMBER, AT(sched.level_us[1]), 1, 1000000},
    {"level0-percent", "N", "multilevel: share of run time of level 0 (80)", NUMBER,
     AT(sched.level0_percent), 50, 98},
    {"waiting-max", "N", "priority: groups that wait; over it one is evicted (0, no limit)", NUMBER,
     AT(sched.waiting_max), 0, 999999999},
    {"workers-max", "N", "most worker threads that a change may set (as at the start)", NUMBER,
     AT(sched.workers_max), 1, 1024},
    {"threads-max", "N", "most threads, also those in blocking calls (10000)", NUMBER,
     AT(sched.threads_max), 2, 10000},
    {"stack-kib", "N", "size of each stack (64)", KIBS, AT(sched.stack_bytes), 64, 8192},
    {"slice-ms", "N", "run time after which a turn yields (10)", NUMBER, AT(sched.slice_ms), 1,
     1000},
    {"repolls-max", "N", "runs of a group in a row, before other groups run (5)", NUMBER,
     AT(sched.repolls_max), 1, 1000},
    {"turn-warn-ms", "N", "warn of turns that run this long without suspending (1000)", NUMBER,
     AT(sched.turn_warn_ms), 1, 86400000},
    {"delay-warn-ms", "N", "warn of work items queued longer (10000)", NUMBER,
     AT(sched.delay_warn_ms), 1, 86400000},
    {"queue-warn", "N", "warn of groups with more work items queued (0, never)", NUMBER,
     AT(sched.queue_warn), 0, 999999999},
    {"message-mib", "N", "memory of all messages here; over it calls are refused (256)", MIBS_LONG,
     AT(silo.message_bytes_max), 1, 999999},
    {"grain-mib", "N", "memory of requests that wait at one grain (16)", MIBS,
     AT(silo.grain_bytes_max), 1, MIB_MAX},
    {"connection-mib", "N", "memory of what one peer has not read yet (64)", MIBS,
     AT(silo.connection_bytes_max), 1, MIB_MAX},
    {"activations-max", "N",
     "most active grains; above it idle ones end, least recently used\n"
     "                         first (0, no limit)",
     NUMBER, AT(silo.activations_max), 0, 999999999},
    {"memory-percent", "N",
     "use of the cgroup's memory from which on idle grains end, least\n"
     "                         recently used first (0, never)",
     NUMBER, AT(silo.memory_percent), 0, 100},
    {"tls-cert", "FILE", "PEM: certificate and key; with --tls-ca: mutual TLS", TEXT,
     AT(silo.tls_cert), 0, 0},
    {"tls-ca", "FILE", "PEM: the CA that signs the peers' certificates", TEXT, AT(silo.tls_ca), 0,
     0},
    {"gateway", "HOST:PORT", "an address for clients only; --listen is then for silos only (none)",
     TEXT, AT(silo.gateway), 0, 0},
    {"tls-client-ca", "FILE", "PEM: the CA that signs clients' certificates, for --gateway", TEXT,
     AT(silo.tls_client_ca), 0, 0},
    {"secret-file", "FILE", "only peers that know its secret are accepted (none)", TEXT,
     AT(silo.secret_file), 0, 0},
    {"client-secret-file", "FILE", "another secret for clients, beside --secret-file", TEXT,
     AT(silo.client_secret_file), 0, 0},
    {"transport", "nng|reactor",
     "which threads wait on sockets: those of nng, or idle workers (nng)", CHOICE,
     AT(silo.transport), TEFF_TRANSPORT_NNG, 0},
    {"insecure", NULL, "listen beyond this machine without TLS", FLAG, AT(silo.insecure), 0, 0},
    {"quiet", NULL, "log warnings and errors only", FLAG, AT(silo.silent), 0, 0},
    {"help", NULL, "list the options", HELP, 0, 0, 0},
};

/* FIRST: getopt_long() returns this for options[0]. It is above all characters: '?' and ':' report
 * errors. */
enum { N_OPTIONS = sizeof options / sizeof options[0], FIRST = 256 };

/* out: *n; false: value is no number within the option's limits; the error was printed. */
static bool parse_number(const silo_option *option, const char *value, uint32_t *n)
{
    size_t digits = strspn(value, "0123456789");
    bool ok = digits > 0 && digits <= DIGITS_MAX && !value[digits];
    *n = ok ? (uint32_t)strtoul(value, NULL, 10) : 0;
    ok = ok && *n >= option->min && *n <= option->max;
    if (!ok)
        fprintf(stderr, "--%s: '%.100s'; expected a number of %u to %u\n", option->name, value,
                option->min, option->max);
    return ok;
}

/* Stores value in member, in the unit and type that option->take says. out: false: invalid; the
 * error was printed. */
static bool store_number(const silo_option *option, void *member, const char *value)
{
    uint32_t n;
    if (!parse_number(option, value, &n))
        return false;
    if (option->take == MIBS_LONG)
        *(uint64_t *)member = (uint64_t)n * MIB;
    else if (option->take == KIBS)
        *(size_t *)member = (size_t)n * KIB;
    else
        *(uint32_t *)member = option->take == MIBS ? n * MIB : n;
    return true;
}

/* Finds value in option->value, a list of names such as "single|multilevel|priority", and stores
 * the number of the name in member; the first name has the number option->min. out: false: value is
 * not in the list; the error was printed. */
static bool store_choice(const silo_option *option, void *member, const char *value)
{
    unsigned chosen = option->min;
    size_t n = strlen(value);
    for (const char *name = option->value; name; name = strchr(name, '|'), chosen++) {
        name += *name == '|';
        if (strcspn(name, "|") == n && strncmp(name, value, n) == 0) {
            memcpy(member, &chosen, sizeof chosen);
            return true;
        }
    }
    fprintf(stderr, "--%s: '%.100s'; expected %s\n", option->name, value, option->value);
    return false;
}

/* Adds seed to the list. out: false: the list is full; the error was printed. */
static bool add_seed(const char **seeds, const char *seed)
{
    for (int i = 0; i < TEFF_SEEDS_MAX; i++)
        if (!seeds[i]) {
            seeds[i] = seed;
            return true;
        }
    fprintf(stderr, "--seed: more than %d of them\n", TEFF_SEEDS_MAX);
    return false;
}

/* Stores value in the option's member of args. out: false: value is invalid; the error was
 * printed. */
static bool store_option(teffi_silo_args *args, const silo_option *option, const char *value)
{
    void *member = (char *)args + option->at;
    if (option->take == SEED)
        return add_seed(member, value);
    if (option->take == FLAG)
        *(int *)member = 1;
    else if (option->take == TEXT)
        *(const char **)member = value;
    else if (option->take == CHOICE)
        return store_choice(option, member, value);
    else
        return store_number(option, member, value);
    return true;
}

_Static_assert(N_OPTIONS <= 64, "mark_option_and_refuse_if_repeated");

/* Marks option `which` as seen in *seen. Of teff's options, only --seed may be given several times;
 * the first --seed removes the program's seeds. out: true: refused; the error was printed. */
static bool mark_option_and_refuse_if_repeated(teffi_silo_args *args, uint64_t *seen, int which)
{
    bool before = *seen & 1ull << which, is_seed = options[which].take == SEED;
    *seen |= 1ull << which;
    if (is_seed && !before)
        memset(args->silo.seeds, 0, sizeof args->silo.seeds);
    if (before && !is_seed)
        fprintf(stderr, "--%s: given twice\n", options[which].name);
    return before && !is_seed;
}

static size_t count_program_options(const teff_silo_program *program)
{
    size_t n = 0;
    while (program->options && program->options[n].name)
        n++;
    return n;
}

static struct option make_option(const char *name, const char *value, size_t at)
{
    return (struct option){name, value ? required_argument : no_argument, NULL, FIRST + (int)at};
}

/* out: an array of teff's options, then the program's; the caller frees it. NULL: out of memory. */
static struct option *merge_options(const teff_silo_program *program)
{
    size_t n = count_program_options(program);
    struct option *all = calloc(N_OPTIONS + n + 1, sizeof *all);
    if (!all)
        return NULL;
    for (size_t i = 0; i < N_OPTIONS; i++)
        all[i] = make_option(options[i].name, options[i].value, i);
    for (size_t i = 0; i < n; i++)
        all[N_OPTIONS + i] =
            make_option(program->options[i].name, program->options[i].value, N_OPTIONS + i);
    return all;
}

/* out: false: an option of the program has the name of one of teff's; the error was printed. */
static bool check_program_option_names(const teff_silo_program *program)
{
    for (size_t i = 0; i < count_program_options(program); i++)
        for (int k = 0; k < N_OPTIONS; k++)
            if (strcmp(program->options[i].name, options[k].name) == 0) {
                fprintf(stderr, "--%s: an option of teff's and of the program's\n",
                        options[k].name);
                return false;
            }
    return true;
}

static void print_option(const char *name, const char *value, const char *help)
{
    int used = printf("  --%s%s%s", name, value ? " " : "", value ? value : "");
    printf("%*s%s\n", used < 24 ? 25 - used : 2, "", help ? help : "");
}

static void print_usage(const char *name, const teff_silo_program *program)
{
    printf("usage: %s [options]\n", name);
    for (size_t i = 0; i < N_OPTIONS; i++)
        print_option(options[i].name, options[i].value, options[i].help);
    for (size_t i = 0; i < count_program_options(program); i++)
        print_option(program->options[i].name, program->options[i].value, program->options[i].help);
    puts("Prints 'ready HOST:PORT' when it serves. SIGTERM or SIGINT: leave the cluster and end.\n"
         "SIGUSR1: write its current state to standard error.");
}

/* Passes value to the function that the program has set for the option. out: false: value is
 * invalid; the error was printed. */
static bool parse_program_option(const teff_silo_program *program, const teff_silo_option *option,
                                 const char *value)
{
    char text[TEFF_TEXT_MAX] = "";
    teff_err err = option->take(program->arg, value, text);
    if (err)
        fprintf(stderr, "--%s: %s\n", option->name, *text ? text : teff_err_name(err));
    return !err;
}

/* out: -1: start the silo; else an exit status. */
static int parse_options(int argc, char **argv, const teff_silo_program *program,
                         const struct option *all, teffi_silo_args *args)
{
    int which;
    uint64_t seen = 0;
    opterr = 0;
    optind = 1;
    while ((which = getopt_long(argc, argv, ":", all, NULL)) != -1) {
        if (which < FIRST) {
            const char letter[] = {'-', (char)optopt, 0}; /* of "-x"; optopt 0: a long option */
            bool is_letter = which == '?' && optopt > 0 && optopt < FIRST;
            fprintf(stderr, "%s: '%.200s'; --help lists the options\n",
                    which == '?' ? "unknown option" : "a value is missing",
                    is_letter ? letter : argv[optind - 1]);
            return 2;
        }
        which -= FIRST;
        if (which < N_OPTIONS && options[which].take == HELP) {
            print_usage(argv[0], program);
            return 0;
        }
        if (which >= N_OPTIONS
                ? !parse_program_option(program, &program->options[which - N_OPTIONS], optarg)
                : mark_option_and_refuse_if_repeated(args, &seen, which) ||
                      !store_option(args, &options[which], optarg))
            return 2;
    }
    if (optind < argc) {
        fprintf(stderr, "'%.200s' is not an option; --help lists them\n", argv[optind]);
        return 2;
    }
    return -1;
}

/* Copies to args the silo and scheduler options that the program has set; the command line can
 * override them. out: false: they cannot be used; the error was printed. */
static bool copy_program_defaults(const teff_silo_program *program, teffi_silo_args *args)
{
    char text[TEFF_TEXT_MAX];
    bool taken = teffi_options_check_and_copy(&args->silo, sizeof args->silo, program->silo,
                                              "teff_silo_options", text) &&
                 teffi_options_check_and_copy(&args->sched, sizeof args->sched, args->silo.sched,
                                              "teff_sched_options", text);
    args->silo.sched = &args->sched;
    if (!taken)
        fprintf(stderr, "%s\n", text);
    return taken;
}

int teffi_args_parse(int argc, char **argv, const teff_silo_program *program, teffi_silo_args *args)
{
    if (!copy_program_defaults(program, args) || !check_program_option_names(program))
        return 2;
    struct option *all = merge_options(program);
    if (!all) {
        fprintf(stderr, "out of memory\n");
        return 1;
    }
    int status = parse_options(argc, argv, program, all, args);
    free(all);
    return status;
}
