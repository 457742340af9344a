/* bench.c - what calls cost: prints one JSON object a line (name, parameters, unit, median, min,
 * max, runs). Never a test: figures depend on the machine and its neighbours.
 * usage: bench [--quick] [--busy] [--operations N] [--transport nng|reactor|both] [PATTERN]
 *   PATTERN: a part of a name, sched[/ROW], peers[/ROW[/PEER]], guard[/OPERATION],
 *            growth[/SERIES], crowd[/TRANSPORT], scale, recovery
 *   --busy: beside two processes of the lowest priority that compute
 *   --transport: of the rows remote-... and client-...; both unless named
 * The timed loops run inside turns of a Driver grain; remote targets live in a second process. */
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include "bench.h"
#include "bench.teff.h"
#include "child.h"
#include "idle.h"
#include "load.h"
#include "loops.h"
#include "resident.h"
#include "transport.h"
#include "wire_rows.h"

enum { LOADS = 2 };

/* ---- the target ---- */

typedef struct notes { /* one-way messages that arrived, in all targets of this process */
    _Atomic uint64_t n;
} notes;

static teff_err echo(bench_target *self, const bench_small *in, bench_small *out)
{
    (void)self;
    out->number = in->number + 1;
    out->name = in->name;
    return TEFF_OK;
}

static teff_err note(bench_target *self, const bench_small *in)
{
    notes *seen = self->user;
    (void)in;
    __atomic_fetch_add((uint64_t *)&seen->n, 1, __ATOMIC_RELAXED);
    return TEFF_OK;
}

static teff_err noted(bench_target *self, bench_small *out)
{
    notes *seen = self->user;
    out->number = __atomic_load_n((uint64_t *)&seen->n, __ATOMIC_RELAXED);
    return TEFF_OK;
}

static teff_err swap(bench_target *self, const bench_blob *in, bench_blob *out)
{
    (void)self;
    out->data = in->data;
    return TEFF_OK;
}

static teff_err take_blob(bench_target *self, const bench_blob *in)
{
    (void)in;
    return note(self, NULL);
}

static teff_err echo_pooled(bench_pooled *self, const bench_small *in, bench_small *out)
{
    (void)self;
    out->number = in->number + 1;
    out->name = in->name;
    return TEFF_OK;
}

static const bench_pooled_methods pooled_methods = {.echo = echo_pooled};
static const bench_target_methods target_methods = {
    .echo = echo, .note = note, .noted = noted, .swap = swap, .take = take_blob};

/* ---- the driver ---- */

static teff_err run(bench_driver *self, const bench_plan *plan, bench_taken *out)
{
    return bench_loop(self->ctx, plan, &out->nanoseconds);
}

static const bench_driver_methods driver_methods = {.run = run};

/* A loop in a turn of the driver. */
static teff_err drive(teff_ctx *ctx, const bench_plan *plan, uint64_t *ns)
{
    bench_taken *taken;
    teff_err err = bench_driver_run(ctx, 1, plan, &taken);
    if (!err)
        *ns = taken->nanoseconds;
    return err;
}

static void density(bench *b)
{
    double values[RUNS_MAX];
    char parameters[60];
    uint64_t n = b->runs > 3 ? 200000 : 50000;
    if (!bench_wanted(b, "idle-activation-bytes"))
        return;
    for (int r = 0; r < b->runs; r++) {
        double before = bench_resident_bytes();
        (void)bench_take(b, "new", n, 0, b->next_key);
        b->next_key += n;
        values[r] = (bench_resident_bytes() - before) / (double)n;
    }
    snprintf(parameters, sizeof parameters, "\"activations\":%llu", (unsigned long long)n);
    bench_print(b, "idle-activation-bytes", parameters, "bytes", values, b->runs);
}

/* ---- processes ---- */

static teff_silo *start_silo(const char *seed, teff_transport transport, bool drives, bool hosts,
                             notes *seen)
{
    teff_silo_options opt = {
        .size = sizeof opt, .silent = 1, .seeds = {seed}, .transport = transport};
    char text[TEFF_TEXT_MAX] = "";
    teff_silo *silo;
    teff_err err = teff_silo_new(&opt, &silo, text);
    if (!err && drives)
        err = teff_silo_host(silo, bench_driver_type(&driver_methods, NULL));
    if (!err && hosts)
        err = teff_silo_host(silo, bench_target_type(&target_methods, seen));
    if (!err && hosts)
        err = teff_silo_host(silo, bench_pooled_type(&pooled_methods, NULL));
    if (!err)
        err = teff_silo_start(silo, text);
    if (err) {
        fprintf(stderr, "bench: a silo cannot start: %s\n", text);
        exit(1);
    }
    return silo;
}

/* The second process: hosts the targets until its standard input ends. in: seed "": none. */
static int be_target(const char *seed, const char *transport_name)
{
    static notes seen;
    teff_transport transport = TEFF_TRANSPORT_DEFAULT;
    (void)bench_transport_of(transport_name, &transport);
    teff_silo *silo = start_silo(*seed ? seed : NULL, transport, false, true, &seen);
    bench_child_ready(teff_silo_address(silo));
    teff_silo_free(silo);
    return 0;
}

static void open_silo(bench *b, bool hosts, notes *seen)
{
    b->silo = start_silo(NULL, b->transport, true, hosts, seen);
    b->ctx = teff_silo_new_ctx(b->silo);
    b->loop = drive;
    b->next_key = 1000000;
    teff_ctx_set_timeout(b->ctx, 600000);
}

static void close_silo(bench *b)
{
    teff_ctx_free(b->ctx);
    b->ctx = NULL;
    teff_silo_free(b->silo);
}

static void local_rows(bench *b)
{
    static notes seen;
    open_silo(b, true, &seen);
    bench_timed(b, "local-call", "call", 0);
    bench_timed(b, "local-one-way", "one-way", 0);
    bench_timed(b, "local-fan-out-1000", "fan-out", 1000);
    bench_timed(b, "stateless-call", "pooled-call", 0);
    bench_timed(b, "stateless-fan-out-1000", "pooled-fan-out", 1000);
    bench_timed(b, "activation", "new", 0);
    density(b);
    close_silo(b);
}

static void remote_rows(bench *b)
{
    bench_child child;
    open_silo(b, false, NULL);
    const char *args[] = {"--target", teff_silo_address(b->silo),
                          bench_transport_name(b->transport), NULL};
    if (!bench_child_start(&child, args))
        bench_fatal(NULL, TEFF_E_IO);
    b->child = &child;
    bench_timed(b, "remote-call-1", "call", 0);
    bench_timed(b, "remote-call-64", "window", 64);
    bench_timed(b, "remote-call-1024", "window", 1024);
    bench_timed(b, "remote-one-way", "one-way", 0);
    bench_timed(b, "remote-64KiB-call", "blob-call", 0);
    bench_timed(b, "remote-64KiB-one-way", "blob-one-way", 0);
    b->child = NULL;
    bench_child_stop(&child);
    close_silo(b);
}

/* Each transport in turn. */
static void wire_rows(bench *b)
{
    for (int t = TEFF_TRANSPORT_NNG; t <= TEFF_TRANSPORT_REACTOR; t++) {
        b->transport = (teff_transport)t;
        if (b->only && b->only != b->transport)
            continue;
        remote_rows(b);
        bench_client(b);
    }
    b->transport = TEFF_TRANSPORT_DEFAULT;
}

/* By the clock, not by operations. */
static void idle_rows(const bench *b)
{
    static const struct {
        const char *name;
        int n;
    } rows[] = {{"idle-silo", 1}, {"idle-silo-of-three", 3}};
    int seconds = b->runs > 3 ? 20 : 4;
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        double values[RUNS_MAX];
        char parameters[60];
        int runs = b->runs > 3 ? 3 : 1;
        if (!bench_wanted(b, rows[i].name))
            continue;
        for (int r = 0; r < runs; r++)
            if (!bench_idle(rows[i].n, seconds, &values[r]))
                bench_fatal(NULL, TEFF_E_IO);
        snprintf(parameters, sizeof parameters, "\"silos\":%d,\"seconds\":%d", rows[i].n, seconds);
        bench_print(b, rows[i].name, parameters, "% of a core", values, runs);
    }
}

static bool is_driver(const char *name, size_t len)
{
    static const char *const names[] = {"sched",   "peers", "guard",   "growth",  "crowd",
                                        "hostile", "scale", "workers", "recovery"};
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++)
        if (strncmp(name, names[i], len) == 0 && !names[i][len])
            return true;
    return false;
}

/* What needs other programs has a driver of its own, NAME.py, asked for as NAME[/MORE]: runs it
 * with the build's folder, MORE, and the other arguments; does not return then. */
static void be_driver(int argc, char **argv)
{
    static char build[4096], driver[sizeof build];
    const char *args[20] = {"python3", "-B", driver, build, ""};
    size_t n = 5;
    for (int i = 1; i < argc; i++) {
        size_t len = strcspn(argv[i], "/");
        if (!is_driver(argv[i], len)) {
            if (n + 1 < sizeof args / sizeof args[0])
                args[n++] = argv[i];
            continue;
        }
        snprintf(driver, sizeof driver, BENCH_FOLDER "/%.*s.py", (int)len, argv[i]);
        args[4] = argv[i] + len + (argv[i][len] == '/');
    }
    if (!*driver)
        return;
    ssize_t got = readlink("/proc/self/exe", build, sizeof build - 1);
    build[got < 0 ? 0 : got] = '\0';
    if (strrchr(build, '/'))
        *strrchr(build, '/') = '\0';
    execvp("python3", (char *const *)args);
    fprintf(stderr, "bench: python3 does not start\n");
    exit(1);
}

static void be_child(int argc, char **argv)
{
    if (argc > 3 && strcmp(argv[1], "--target") == 0)
        exit(be_target(argv[2], argv[3]));
    if (argc > 2 && strcmp(argv[1], "--idle") == 0)
        exit(bench_idle_silo(argv[2]));
    if (argc > 2 && strcmp(argv[1], "--nng") == 0)
        exit(bench_nng_child(argv[2]));
    if (argc > 1 && strcmp(argv[1], "--load") == 0)
        exit(bench_load());
}

static void set_transport(bench *b, const char *name)
{
    if (bench_transport_of(name, &b->only) || strcmp(name, "both") == 0)
        return;
    fprintf(stderr, "bench: --transport %s: expected nng, reactor or both\n", name);
    exit(2);
}

static void read_options(bench *b, int argc, char **argv)
{
    for (int i = 1; i < argc; i++) {
        bool more = i + 1 < argc;
        if (strcmp(argv[i], "--operations") == 0 && more) {
            b->operations = strtoull(argv[++i], NULL, 10);
        } else if (strcmp(argv[i], "--transport") == 0 && more) {
            set_transport(b, argv[++i]);
        } else if (strcmp(argv[i], "--busy") == 0) {
            b->busy = true;
        } else if (strcmp(argv[i], "--quick") == 0) {
            b->runs = 3;
            b->seconds = 0.05;
        } else {
            b->pattern = argv[i];
        }
    }
}

int main(int argc, char **argv)
{
    static const char *const load[] = {"--load", NULL};
    bench_child loads[LOADS];
    bench b = {.runs = 5, .seconds = 0.5};
    be_child(argc, argv);
    read_options(&b, argc, argv);
    be_driver(argc, argv);
    signal(SIGPIPE, SIG_IGN);
    for (int i = 0; i < LOADS && b.busy; i++)
        if (!bench_child_start(&loads[i], load))
            bench_fatal(NULL, TEFF_E_IO);
    local_rows(&b);
    bench_fair(&b);
    wire_rows(&b);
    bench_nng(&b);
    bench_engine(&b);
    bench_store(&b);
    bench_store_servers(&b);
    bench_reminders(&b);
    idle_rows(&b);
    for (int i = 0; i < LOADS && b.busy; i++)
        bench_child_stop(&loads[i]);
    return 0;
}
