/* main.c - a whole silo program: options, start, wait for a signal, clean leave.
 * Way:     user's main -> [main] -> silo
 * Exit status: 0 stopped cleanly, 1 failed at run time, 2 wrong usage. */
#include <getopt.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "cluster/membership.h"
#include "silo/silo.h"

static const char usage[] =
    "usage: %s [options]\n"
    "  --listen HOST:PORT     where to accept silos and clients (127.0.0.1:0, any free port)\n"
    "  --advertise HOST:PORT  how others reach it (the address it listens on)\n"
    "  --store memory|sqlite:FILE  where rows are kept (memory); silos with the same file\n"
    "                         are one cluster\n"
    "  --seed HOST:PORT       join through this running silo, up to 8 times; its store is used\n"
    "  --cluster NAME         cluster id (dev); silos and clients of another are refused\n"
    "  --workers N            worker threads (one a core)\n"
    "  --tls-cert FILE        PEM: certificate and key; with --tls-ca: mutual TLS\n"
    "  --tls-ca FILE          PEM: who signs the peers' certificates\n"
    "  --insecure             listen beyond this machine without TLS\n"
    "  --quiet                log warnings and errors only\n"
    "  --help\n"
    "Prints 'ready HOST:PORT' when it serves. SIGTERM or SIGINT: leave the cluster and end.\n"
    "SIGUSR1: say on standard error what it does right now.\n";

enum {
    OPT_LISTEN = 1,
    OPT_ADVERTISE,
    OPT_STORE,
    OPT_SEED,
    OPT_CLUSTER,
    OPT_WORKERS,
    OPT_CERT,
    OPT_CA,
    OPT_INSECURE,
    OPT_QUIET,
    OPT_HELP
};

static const struct option options[] = {
    {"listen", required_argument, NULL, OPT_LISTEN},
    {"advertise", required_argument, NULL, OPT_ADVERTISE},
    {"store", required_argument, NULL, OPT_STORE},
    {"seed", required_argument, NULL, OPT_SEED},
    {"cluster", required_argument, NULL, OPT_CLUSTER},
    {"workers", required_argument, NULL, OPT_WORKERS},
    {"tls-cert", required_argument, NULL, OPT_CERT},
    {"tls-ca", required_argument, NULL, OPT_CA},
    {"insecure", no_argument, NULL, OPT_INSECURE},
    {"quiet", no_argument, NULL, OPT_QUIET},
    {"help", no_argument, NULL, OPT_HELP},
    {NULL, 0, NULL, 0},
};

static bool number(const char *text, uint32_t *out)
{
    size_t n = strlen(text);
    if (n < 1 || n > 6 || strspn(text, "0123456789") != n)
        return false;
    *out = (uint32_t)strtoul(text, NULL, 10);
    return true;
}

static bool add_seed(teff_silo_options *opt, const char *seed)
{
    for (int i = 0; i < TEFF_SEEDS_MAX; i++)
        if (!opt->seeds[i]) {
            opt->seeds[i] = seed;
            return true;
        }
    return false;
}

/* false: said what is wrong. */
static bool take(teff_silo_options *opt, int which, const char *value)
{
    switch (which) {
    case OPT_LISTEN:
        opt->listen = value;
        break;
    case OPT_ADVERTISE:
        opt->advertise = value;
        break;
    case OPT_STORE:
        opt->store = value;
        break;
    case OPT_CLUSTER:
        opt->cluster = value;
        break;
    case OPT_CERT:
        opt->tls_cert = value;
        break;
    case OPT_CA:
        opt->tls_ca = value;
        break;
    case OPT_SEED:
        if (!add_seed(opt, value)) {
            fprintf(stderr, "--seed: more than %d of them\n", TEFF_SEEDS_MAX);
            return false;
        }
        break;
    case OPT_WORKERS:
        if (!number(value, &opt->workers)) {
            fprintf(stderr, "--workers: '%.100s'; expected a number of 0 to 1024\n", value);
            return false;
        }
        break;
    case OPT_INSECURE:
        opt->insecure = 1;
        break;
    default:
        opt->silent = 1;
    }
    return true;
}

/* All options but --seed are given once. */
static bool again(uint32_t *seen, int which, const char *name)
{
    bool before = which != OPT_SEED && (*seen & 1u << which);
    *seen |= 1u << which;
    if (before)
        fprintf(stderr, "--%s: given twice\n", name);
    return before;
}

/* out: -1: go on; else an exit status. */
static int parse(int argc, char **argv, teff_silo_options *opt)
{
    int which, index = 0;
    uint32_t seen = 0;
    opterr = 0;
    optind = 1;
    while ((which = getopt_long(argc, argv, ":", options, &index)) != -1) {
        if (which == OPT_HELP) {
            printf(usage, argv[0]);
            return 0;
        }
        if (which == '?' || which == ':') {
            fprintf(stderr, "%s: '%.200s'; --help lists the options\n",
                    which == '?' ? "unknown option" : "a value is missing", argv[optind - 1]);
            return 2;
        }
        if (again(&seen, which, options[index].name) || !take(opt, which, optarg))
            return 2;
    }
    if (optind < argc) {
        fprintf(stderr, "'%.200s' is not an option; --help lists them\n", argv[optind]);
        return 2;
    }
    return -1;
}

static int wait_for_end(teff_silo *silo, const sigset_t *signals)
{
    struct timespec second = {.tv_sec = 1};
    for (;;) {
        int got = sigtimedwait(signals, NULL, &second);
        if (got == SIGUSR1)
            teff_silo_dump(silo, teff_line_print, stderr);
        else if (got > 0)
            return teff_silo_stop(silo, 0) == TEFF_OK ? 0 : 1;
        if (teffi_membership_ousted(silo->node.membership)) {
            fprintf(stderr, "silo %s was declared dead by its cluster\n", teff_silo_address(silo));
            return 1;
        }
    }
}

static int run(teff_silo *silo, char *text, const sigset_t *signals)
{
    if (teff_silo_start(silo, text)) {
        fprintf(stderr, "silo cannot start: %s\n", text);
        return 1;
    }
    printf("ready %s\n", teff_silo_address(silo));
    if (fflush(stdout) != 0)
        fprintf(stderr, "silo %s is ready; standard output is closed\n", teff_silo_address(silo));
    return wait_for_end(silo, signals);
}

/* Owns the types, also those it cannot give to the silo; silo NULL: gives none. */
static bool host_all(teff_silo *silo, teff_grain_type *type, va_list more)
{
    bool ok = true;
    for (; type; type = va_arg(more, teff_grain_type *)) {
        teff_err err = silo && ok ? teff_silo_host(silo, type) : TEFF_E_CANCELLED;
        if (!err)
            continue;
        if (silo && ok)
            fprintf(stderr, "a grain type cannot be hosted: %s\n", teff_err_name(err));
        teff_grain_type_free(type);
        ok = false;
    }
    return ok;
}

/* Before any thread is made, so that all of them leave these signals to wait_for_end(). */
static void block(sigset_t *signals)
{
    sigemptyset(signals);
    sigaddset(signals, SIGTERM);
    sigaddset(signals, SIGINT);
    sigaddset(signals, SIGUSR1);
    pthread_sigmask(SIG_BLOCK, signals, NULL);
    signal(SIGPIPE, SIG_IGN);
}

int teff_silo_main(int argc, char **argv, teff_grain_type *type, ...)
{
    char text[TEFF_TEXT_MAX] = "";
    teff_silo_options opt = {0};
    teff_silo *silo = NULL;
    sigset_t signals;
    va_list more;
    int status = parse(argc, argv, &opt);
    if (status < 0 && teff_silo_new(&opt, &silo, text)) {
        fprintf(stderr, "%s\n", text);
        status = 2;
    }
    va_start(more, type);
    bool hosted = host_all(silo, type, more);
    va_end(more);
    if (!silo)
        return status;
    block(&signals);
    status = hosted ? run(silo, text, &signals) : 1;
    teff_silo_free(silo);
    return status;
}
