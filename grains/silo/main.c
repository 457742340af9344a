/* main.c - teff_silo_main: parse options, start a silo, wait for a signal, leave.
 * Way:     user's main -> [main] -> silo
 * Exit status: 0 stopped cleanly, 1 failed at run time, 2 wrong usage. */
#include <getopt.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "base/options.h"
#include "cluster/membership.h"
#include "silo/silo.h"

enum { MIB = 1024 * 1024, MIB_MAX = TEFFI_QUEUE_BYTES_MAX / MIB, DIGITS_MAX = 7 };

/* What the command line says; silo.sched is sched. */
typedef struct silo_args {
    teff_silo_options silo;
    teff_sched_options sched;
} silo_args;

/* What an option does with its value. */
typedef enum take { TEXT, SEED, NUMBER, MIBS, MIBS_LONG, FLAG, HELP } take;

/* teff's options. Their members of silo_args: TEXT: const char *; NUMBER and MIBS:
 * uint32_t, MIBS in bytes; MIBS_LONG: the same as uint64_t; FLAG: int. */
typedef struct silo_option {
    const char *name, *value, *help; /* as in teff_silo_option */
    take take;
    size_t at; /* offset of the member */
    uint32_t min, max;
} silo_option;

#define AT(member) offsetof(silo_args, member)

static const silo_option options[] = {
    {"listen", "HOST:PORT", "where to accept silos and clients (127.0.0.1:0, any free port)", TEXT,
     AT(silo.listen), 0, 0},
    {"advertise", "HOST:PORT", "how others reach it (the address it listens on)", TEXT,
     AT(silo.advertise), 0, 0},
    {"store", "memory|sqlite:FILE",
     "where rows are kept (memory); silos with the same file\n"
     "                         are one cluster",
     TEXT, AT(silo.store), 0, 0},
    {"seed", "HOST:PORT", "join through this running silo, up to 8 times; its store is used", SEED,
     AT(silo.seeds), 0, 0},
    {"cluster", "NAME", "cluster id (dev); silos and clients of another are refused", TEXT,
     AT(silo.cluster), 0, 0},
    {"workers", "N", "worker threads (one a core that affinity and CPU quota leave)", NUMBER,
     AT(silo.workers), 0, 1024},
    {"stacks", "N", "of turns that run or wait; over it calls are refused (32768)", NUMBER,
     AT(sched.stacks_max), 64, 1000000},
    {"message-mib", "N", "memory of all messages here; over it calls are refused (256)", MIBS_LONG,
     AT(silo.message_bytes_max), 1, 999999},
    {"grain-mib", "N", "memory of requests that wait at one grain (16)", MIBS,
     AT(silo.grain_bytes_max), 1, MIB_MAX},
    {"connection-mib", "N", "memory of what one peer has not read yet (64)", MIBS,
     AT(silo.connection_bytes_max), 1, MIB_MAX},
    {"tls-cert", "FILE", "PEM: certificate and key; with --tls-ca: mutual TLS", TEXT,
     AT(silo.tls_cert), 0, 0},
    {"tls-ca", "FILE", "PEM: the CA that signs the peers' certificates", TEXT, AT(silo.tls_ca), 0,
     0},
    {"insecure", NULL, "listen beyond this machine without TLS", FLAG, AT(silo.insecure), 0, 0},
    {"quiet", NULL, "log warnings and errors only", FLAG, AT(silo.silent), 0, 0},
    {"help", NULL, "list the options", HELP, 0, 0, 0},
};

/* FIRST: getopt's value for the first option, above its own '?' and ':'. */
enum { N_OPTIONS = sizeof options / sizeof options[0], FIRST = 256 };

/* teff_silo_new() checks the limits of a NUMBER. out: false: invalid; the error was printed. */
static bool take_number(const silo_option *option, void *member, const char *value)
{
    size_t digits = strspn(value, "0123456789");
    bool ok = digits > 0 && digits <= DIGITS_MAX && !value[digits];
    uint32_t n = ok ? (uint32_t)strtoul(value, NULL, 10) : 0;
    ok = ok && (option->take == NUMBER || (n >= option->min && n <= option->max));
    if (!ok)
        fprintf(stderr, "--%s: '%.100s'; expected a number of %u to %u\n", option->name, value,
                option->min, option->max);
    else if (option->take == MIBS_LONG)
        *(uint64_t *)member = (uint64_t)n * MIB;
    else
        *(uint32_t *)member = option->take == MIBS ? n * MIB : n;
    return ok;
}

static bool take_seed(const char **seeds, const char *seed)
{
    for (int i = 0; i < TEFF_SEEDS_MAX; i++)
        if (!seeds[i]) {
            seeds[i] = seed;
            return true;
        }
    fprintf(stderr, "--seed: more than %d of them\n", TEFF_SEEDS_MAX);
    return false;
}

/* out: false: invalid; the error was printed. */
static bool take_option(silo_args *args, const silo_option *option, const char *value)
{
    void *member = (char *)args + option->at;
    if (option->take == SEED)
        return take_seed(member, value);
    if (option->take == FLAG)
        *(int *)member = 1;
    else if (option->take == TEXT)
        *(const char **)member = value;
    else
        return take_number(option, member, value);
    return true;
}

/* Each of teff's options but --seed may be given once. */
static bool option_is_repeated(uint32_t *seen, int which)
{
    bool before = options[which].take != SEED && (*seen & 1u << which);
    *seen |= 1u << which;
    if (before)
        fprintf(stderr, "--%s: given twice\n", options[which].name);
    return before;
}

static size_t count_own_options(const teff_silo_program *program)
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

/* out: teff's options, then the program's, by index; the caller frees it. NULL: out of memory. */
static struct option *merge_options(const teff_silo_program *program)
{
    size_t n = count_own_options(program);
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
static bool own_names_differ(const teff_silo_program *program)
{
    for (size_t i = 0; i < count_own_options(program); i++)
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
    for (size_t i = 0; i < count_own_options(program); i++)
        print_option(program->options[i].name, program->options[i].value, program->options[i].help);
    puts("Prints 'ready HOST:PORT' when it serves. SIGTERM or SIGINT: leave the cluster and end.\n"
         "SIGUSR1: write its current state to standard error.");
}

/* out: false: invalid; the error was printed. */
static bool parse_own_option(const teff_silo_program *program, const teff_silo_option *own,
                             const char *value)
{
    char text[TEFF_TEXT_MAX] = "";
    teff_err err = own->take(program->arg, value, text);
    if (err)
        fprintf(stderr, "--%s: %s\n", own->name, *text ? text : teff_err_name(err));
    return !err;
}

/* out: -1: start the silo; else an exit status. */
static int parse_options(int argc, char **argv, const teff_silo_program *program,
                         const struct option *all, silo_args *args)
{
    int which;
    uint32_t seen = 0;
    opterr = 0;
    optind = 1;
    while ((which = getopt_long(argc, argv, ":", all, NULL)) != -1) {
        if (which < FIRST) {
            fprintf(stderr, "%s: '%.200s'; --help lists the options\n",
                    which == '?' ? "unknown option" : "a value is missing", argv[optind - 1]);
            return 2;
        }
        which -= FIRST;
        if (which < N_OPTIONS && options[which].take == HELP) {
            print_usage(argv[0], program);
            return 0;
        }
        if (which >= N_OPTIONS
                ? !parse_own_option(program, &program->options[which - N_OPTIONS], optarg)
                : option_is_repeated(&seen, which) || !take_option(args, &options[which], optarg))
            return 2;
    }
    if (optind < argc) {
        fprintf(stderr, "'%.200s' is not an option; --help lists them\n", argv[optind]);
        return 2;
    }
    return -1;
}

/* out: true: SIGTERM or SIGINT; false: the cluster has declared the silo dead. */
static bool wait_for_signal(teff_silo *silo, const sigset_t *signals)
{
    struct timespec second = {.tv_sec = 1};
    for (;;) {
        int got = sigtimedwait(signals, NULL, &second);
        if (got == SIGUSR1)
            teff_silo_dump(silo, teff_line_print, stderr);
        else if (got > 0)
            return true;
        if (silo->node.membership->ousted) {
            fprintf(stderr, "silo %s was declared dead by its cluster\n", teff_silo_address(silo));
            return false;
        }
    }
}

static bool start_program(teff_silo *silo, const teff_silo_program *program, char *text)
{
    if (teff_silo_start(silo, text)) {
        fprintf(stderr, "silo cannot start: %s\n", text);
        return false;
    }
    *text = '\0';
    teff_err err = program->start ? program->start(program->arg, silo, text) : TEFF_OK;
    if (err)
        fprintf(stderr, "silo %s leaves, its program cannot start: %s\n", teff_silo_address(silo),
                *text ? text : teff_err_name(err));
    return !err;
}

static int serve_until_signal(teff_silo *silo, const teff_silo_program *program, char *text,
                              const sigset_t *signals)
{
    if (!start_program(silo, program, text))
        return 1;
    printf("ready %s\n", teff_silo_address(silo));
    if (fflush(stdout) != 0)
        fprintf(stderr, "silo %s is ready; standard output is closed\n", teff_silo_address(silo));
    bool asked = wait_for_signal(silo, signals);
    if (program->stop)
        program->stop(program->arg, silo);
    return asked && teff_silo_stop(silo, 0) == TEFF_OK ? 0 : 1;
}

/* Give all types to the silo. Owns them: frees those that the silo refuses, all if silo is NULL. */
static bool host_types(teff_silo *silo, teff_grain_type *type, va_list more)
{
    bool ok = type != NULL;
    if (silo && !ok)
        fprintf(stderr, "there is no grain type to host\n");
    for (; type; type = va_arg(more, teff_grain_type *)) {
        char text[TEFF_TEXT_MAX];
        teff_err err = silo && ok ? teffi_silo_host(silo, type, text) : TEFF_E_CANCELLED;
        if (!err)
            continue;
        if (silo && ok)
            fprintf(stderr, "%s: %s\n", teff_err_name(err), text);
        teff_grain_type_free(type);
        ok = false;
    }
    return ok;
}

/* Called before any thread is made: all threads inherit the mask; wait_for_signal() gets them. */
static void block_signals(sigset_t *signals)
{
    sigemptyset(signals);
    sigaddset(signals, SIGTERM);
    sigaddset(signals, SIGINT);
    sigaddset(signals, SIGUSR1);
    pthread_sigmask(SIG_BLOCK, signals, NULL);
    signal(SIGPIPE, SIG_IGN);
}

/* out: as parse_options(). */
static int read_options(int argc, char **argv, const teff_silo_program *program, silo_args *args)
{
    struct option *all;
    if (!own_names_differ(program))
        return 2;
    all = merge_options(program);
    if (!all) {
        fprintf(stderr, "out of memory\n");
        return 1;
    }
    int status = parse_options(argc, argv, program, all, args);
    free(all);
    return status;
}

static int run_silo(int argc, char **argv, const teff_silo_program *given, teff_grain_type *type,
                    va_list more)
{
    char text[TEFF_TEXT_MAX] = "";
    teff_silo_program program;
    silo_args args = {.silo = {.size = sizeof args.silo, .sched = &args.sched},
                      .sched = {.size = sizeof args.sched}};
    teff_silo *silo = NULL;
    sigset_t signals;
    bool taken = teffi_options_take(&program, sizeof program, given, "teff_silo_program", text);
    int status = taken ? read_options(argc, argv, &program, &args) : 2;
    if (!taken || (status < 0 && teff_silo_new(&args.silo, &silo, text))) {
        fprintf(stderr, "%s\n", text);
        status = 2;
    }
    bool hosted = host_types(silo, type, more);
    if (!silo)
        return status;
    block_signals(&signals);
    status = hosted ? serve_until_signal(silo, &program, text, &signals) : 1;
    teff_silo_free(silo);
    return status;
}

int teff_silo_run(int argc, char **argv, const teff_silo_program *program, teff_grain_type *type,
                  ...)
{
    va_list more;
    va_start(more, type);
    int status = run_silo(argc, argv, program, type, more);
    va_end(more);
    return status;
}

int teff_silo_main(int argc, char **argv, teff_grain_type *type, ...)
{
    va_list more;
    va_start(more, type);
    int status = run_silo(argc, argv, NULL, type, more);
    va_end(more);
    return status;
}
