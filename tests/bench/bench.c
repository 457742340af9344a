/* bench.c - what calls cost: prints one JSON object a line (name, parameters, unit, median, min,
 * max, runs). Never a test: figures depend on the machine and its neighbours.
 * usage: bench [--quick] [--operations N] [PATTERN]
 *   PATTERN: a part of a name, sched[/ROW], peers[/ROW[/PEER]], guard[/OPERATION], growth[/SERIES]
 * The timed loops run inside turns of a Driver grain; remote targets live in a second process. */
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>
#include "bench.h"
#include "bench.teff.h"
#include "child.h"
#include "idle.h"
#include "resident.h"
#include "wire_rows.h"

enum { WIDTH_MAX = 1024 };

uint64_t bench_now_ns(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
}

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

static const bench_target_methods target_methods = {
    .echo = echo, .note = note, .noted = noted, .swap = swap, .take = take_blob};

/* ---- the driver's loops; each gives the nanoseconds of n operations ---- */

static teff_err one_call(teff_ctx *ctx, int64_t key)
{
    bench_small *answer;
    return bench_target_echo(ctx, key, bench_small(.number = 1, .name = "small"), &answer);
}

static teff_err call_one_by_one(teff_ctx *ctx, const bench_plan *plan)
{
    teff_err err = TEFF_OK;
    for (uint64_t i = 0; i < plan->n && !err; i++)
        err = one_call(ctx, (int64_t)plan->first);
    return err;
}

static teff_err call_new_ones(teff_ctx *ctx, const bench_plan *plan)
{
    teff_err err = TEFF_OK;
    for (uint64_t i = 0; i < plan->n && !err; i++)
        err = one_call(ctx, (int64_t)(plan->first + i));
    return err;
}

/* width calls under way, awaited together, n in all. */
static teff_err fan_out(teff_ctx *ctx, const bench_plan *plan)
{
    teff_call calls[WIDTH_MAX];
    teff_err err = TEFF_OK;
    for (uint64_t done = 0; done < plan->n && !err; done += plan->width) {
        for (uint64_t i = 0; i < plan->width && !err; i++)
            err = bench_target_echo_start(ctx, (int64_t)(plan->first + i),
                                          bench_small(.number = i, .name = "small"), &calls[i]);
        if (!err)
            err = teff_await_all(ctx, calls, plan->width);
    }
    return err;
}

/* So many under way all the time: each answer that has come makes room for another call. */
static teff_err window(teff_ctx *ctx, const bench_plan *plan)
{
    teff_call calls[WIDTH_MAX];
    teff_err err = TEFF_OK;
    for (uint64_t i = 0; i < plan->n + plan->width && !err; i++) {
        uint64_t at = i % plan->width;
        if (i >= plan->width) {
            err = teff_await_all(ctx, &calls[at], 1);
            teff_drop(ctx, &calls[at]);
        }
        if (!err && i < plan->n)
            err = bench_target_echo_start(ctx, (int64_t)(plan->first + at),
                                          bench_small(.number = i, .name = "small"), &calls[at]);
    }
    return err;
}

static teff_err wait_noted(teff_ctx *ctx, int64_t key, uint64_t until)
{
    bench_small *seen;
    teff_err err;
    do
        err = bench_target_noted(ctx, key, &seen);
    while (!err && seen->number < until);
    return err;
}

static teff_err one_way(teff_ctx *ctx, const bench_plan *plan)
{
    int64_t key = (int64_t)plan->first;
    bench_small *seen;
    teff_err err = bench_target_noted(ctx, key, &seen);
    uint64_t until = err ? 0 : seen->number + plan->n;
    for (uint64_t i = 0; i < plan->n && !err; i++) {
        err = bench_target_note(ctx, key, bench_small(.number = i, .name = "small"));
        if (!err && i % 100000 == 99999)
            err = wait_noted(ctx, key, until - plan->n + i / 2);
    }
    return err ? err : wait_noted(ctx, key, until);
}

static uint8_t blob[WIRE_BLOB];

static teff_err swap_blobs(teff_ctx *ctx, const bench_plan *plan)
{
    bench_blob in = *bench_blob(.data = {sizeof blob, blob}), *out;
    teff_err err = TEFF_OK;
    for (uint64_t i = 0; i < plan->n && !err; i++)
        err = bench_target_swap(ctx, (int64_t)plan->first, &in, &out);
    return err;
}

/* At most 256 on their way: the link's queue has a limit. */
static teff_err send_blobs(teff_ctx *ctx, const bench_plan *plan)
{
    int64_t key = (int64_t)plan->first;
    bench_blob in = *bench_blob(.data = {sizeof blob, blob});
    bench_small *seen;
    teff_call caught_up = {NULL}; /* an answer that follows all that was sent before it */
    teff_err err = bench_target_noted(ctx, key, &seen);
    uint64_t before = err ? 0 : seen->number;
    for (uint64_t i = 1; i <= plan->n && !err; i++) {
        err = bench_target_take(ctx, key, &in);
        if (err || i % 128)
            continue;
        if (i > 128)
            err = teff_await_all(ctx, &caught_up, 1);
        teff_drop(ctx, &caught_up);
        if (!err)
            err = bench_target_noted_start(ctx, key, &caught_up);
    }
    return err ? err : wait_noted(ctx, key, before + plan->n);
}

static teff_err run(bench_driver *self, const bench_plan *plan, bench_taken *out)
{
    static const struct {
        const char *what;
        teff_err (*loop)(teff_ctx *ctx, const bench_plan *plan);
    } loops[] = {{"call", call_one_by_one},   {"new", call_new_ones}, {"fan-out", fan_out},
                 {"one-way", one_way},        {"window", window},     {"blob-call", swap_blobs},
                 {"blob-one-way", send_blobs}};
    for (size_t i = 0; i < sizeof loops / sizeof loops[0]; i++) {
        if (strcmp(plan->what, loops[i].what) != 0)
            continue;
        uint64_t begin = bench_now_ns();
        teff_err err = loops[i].loop(self->ctx, plan);
        out->nanoseconds = bench_now_ns() - begin;
        return err;
    }
    return teff_fail(self->ctx, TEFF_E_INVALID, "no such loop: %s", plan->what);
}

static const bench_driver_methods driver_methods = {.run = run};

/* ---- measuring ---- */

void bench_fatal(teff_ctx *ctx, teff_err err)
{
    fprintf(stderr, "bench: %s: %s\n", teff_err_name(err), ctx ? teff_error(ctx) : "");
    exit(1);
}

static double take_turn(bench *b, const char *what, uint64_t n, uint64_t width, uint64_t first)
{
    bench_taken *taken;
    bench_plan plan = *bench_plan(.what = what, .n = n, .width = width, .first = first);
    teff_err err = bench_driver_run(b->ctx, 1, &plan, &taken);
    if (err)
        bench_fatal(b->ctx, err);
    double ns = (double)taken->nanoseconds;
    teff_ctx_reset(b->ctx);
    return ns;
}

/* A turn keeps all answers until it ends, so that one of a million calls would measure fresh pages:
 * at most so many in one. A turn of one-ways ends by waiting for them, so there it is one. */
enum { CALLS_A_TURN = 4096, BLOBS_A_TURN = 256 };

static double take(bench *b, const char *what, uint64_t n, uint64_t width, uint64_t first)
{
    uint64_t most = strcmp(what, "blob-call") == 0 ? BLOBS_A_TURN : CALLS_A_TURN, done = 0;
    if (strstr(what, "one-way") || strcmp(what, "window") == 0)
        most = n;
    double ns = 0;
    if (width)
        most -= most % width;
    for (; done < n; done += most) {
        uint64_t from = strcmp(what, "new") == 0 ? first + done : first;
        ns += take_turn(b, what, n - done < most ? n - done : most, width, from);
    }
    return ns;
}

static int by_value(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

double bench_median(double *values, int n)
{
    qsort(values, (size_t)n, sizeof *values, by_value);
    return values[n / 2];
}

void bench_print(const char *name, const char *parameters, const char *unit, double *values,
                 int runs)
{
    double median = bench_median(values, runs);
    printf("{\"name\":\"%s\",\"parameters\":{%s},\"unit\":\"%s\",\"median\":%.4g,\"min\":%.4g,"
           "\"max\":%.4g,\"runs\":%d}\n",
           name, parameters, unit, median, values[0], values[runs - 1], runs);
    fflush(stdout);
}

/* A pattern is a part of a name, or with a $ behind it a name's end. */
bool bench_wanted(const bench *b, const char *name)
{
    size_t len = b->pattern ? strlen(b->pattern) : 0, n = strlen(name);
    if (len == 0 || b->pattern[len - 1] != '$')
        return len == 0 || strstr(name, b->pattern);
    return n >= len - 1 && strncmp(name + n - (len - 1), b->pattern, len - 1) == 0;
}

/* The count of operations is raised until a run takes long enough; then the runs. */
static void timed(bench *b, const char *name, const char *what, uint64_t width)
{
    double values[RUNS_MAX];
    char parameters[100];
    bool fresh = strcmp(what, "new") == 0;
    uint64_t n = width ? width : 64, first = 1;
    if (!bench_wanted(b, name))
        return;
    if (b->operations)
        n = b->operations;
    while (!b->operations) {
        first = fresh ? b->next_key : 1;
        b->next_key += n;
        double ns = take(b, what, n, width, first);
        if (ns >= b->seconds * 1e9 / 4 || n > 20000000)
            break;
        n *= 4;
    }
    for (int r = 0; r < b->runs; r++) {
        first = fresh ? b->next_key : 1;
        b->next_key += n;
        values[r] = take(b, what, n, width, first) / (double)n;
    }
    snprintf(parameters, sizeof parameters, "\"in_flight\":%llu,\"operations\":%llu",
             (unsigned long long)(width ? width : 1), (unsigned long long)n);
    bench_print(name, parameters, "ns/operation", values, b->runs);
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
        (void)take(b, "new", n, 0, b->next_key);
        b->next_key += n;
        values[r] = (bench_resident_bytes() - before) / (double)n;
    }
    snprintf(parameters, sizeof parameters, "\"activations\":%llu", (unsigned long long)n);
    bench_print("idle-activation-bytes", parameters, "bytes", values, b->runs);
}

/* ---- processes ---- */

static teff_silo *start_silo(const char *seed, bool drives, bool hosts, notes *seen)
{
    teff_silo_options opt = {.silent = 1, .seeds = {seed}};
    char text[TEFF_TEXT_MAX] = "";
    teff_silo *silo;
    teff_err err = teff_silo_new(&opt, &silo, text);
    if (!err && drives)
        err = teff_silo_host(silo, bench_driver_type(&driver_methods, NULL));
    if (!err && hosts)
        err = teff_silo_host(silo, bench_target_type(&target_methods, seen));
    if (!err)
        err = teff_silo_start(silo, text);
    if (err) {
        fprintf(stderr, "bench: a silo cannot start: %s\n", text);
        exit(1);
    }
    return silo;
}

/* The second process: hosts the targets until its standard input ends. in: seed "": none. */
static int be_target(const char *seed)
{
    static notes seen;
    teff_silo *silo = start_silo(*seed ? seed : NULL, false, true, &seen);
    bench_child_ready(teff_silo_address(silo));
    teff_silo_free(silo);
    return 0;
}

static void open_silo(bench *b, bool hosts, notes *seen)
{
    b->silo = start_silo(NULL, true, hosts, seen);
    b->ctx = teff_silo_ctx(b->silo);
    b->next_key = 1000000;
    teff_ctx_timeout(b->ctx, 600000);
}

static void close_silo(bench *b)
{
    teff_ctx_free(b->ctx);
    teff_silo_free(b->silo);
}

static void local_rows(bench *b)
{
    static notes seen;
    open_silo(b, true, &seen);
    timed(b, "local-call", "call", 0);
    timed(b, "local-one-way", "one-way", 0);
    timed(b, "local-fan-out-1000", "fan-out", 1000);
    timed(b, "activation", "new", 0);
    density(b);
    close_silo(b);
}

static void remote_rows(bench *b)
{
    bench_child child;
    open_silo(b, false, NULL);
    const char *args[] = {"--target", teff_silo_address(b->silo), NULL};
    if (!bench_child_start(&child, args))
        bench_fatal(NULL, TEFF_E_IO);
    timed(b, "remote-call-1", "call", 0);
    timed(b, "remote-call-64", "window", 64);
    timed(b, "remote-call-1024", "window", 1024);
    timed(b, "remote-one-way", "one-way", 0);
    timed(b, "remote-64KiB-call", "blob-call", 0);
    timed(b, "remote-64KiB-one-way", "blob-one-way", 0);
    bench_child_stop(&child);
    close_silo(b);
}

/* By the clock, not by operations. */
static void idle_rows(bench *b)
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
        bench_print(rows[i].name, parameters, "% of a core", values, runs);
    }
}

static bool is_driver(const char *name, size_t len)
{
    static const char *const names[] = {"sched", "peers", "guard", "growth"};
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++)
        if (strncmp(name, names[i], len) == 0 && !names[i][len])
            return true;
    return false;
}

/* What needs other programs has a driver of its own, NAME.py, asked for as NAME[/MORE]: runs it
 * with the build's folder, MORE, and the options; does not return then. */
static void be_driver(int argc, char **argv)
{
    static char build[4096], driver[sizeof build];
    const char *args[20] = {"python3", "-B", driver, build, ""};
    size_t n = 5;
    for (int i = 1; i < argc; i++) {
        size_t len = strcspn(argv[i], "/");
        if (argv[i][0] == '-' && n + 1 < sizeof args / sizeof args[0])
            args[n++] = argv[i];
        if (!is_driver(argv[i], len))
            continue;
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

int main(int argc, char **argv)
{
    bench b = {.runs = 5, .seconds = 0.5};
    if (argc > 2 && strcmp(argv[1], "--target") == 0)
        return be_target(argv[2]);
    if (argc > 2 && strcmp(argv[1], "--idle") == 0)
        return bench_idle_silo(argv[2]);
    if (argc > 2 && strcmp(argv[1], "--nng") == 0)
        return bench_nng_child(argv[2]);
    for (int i = 1; i < argc; i++) {
        if (strcmp(argv[i], "--operations") == 0 && i + 1 < argc) {
            b.operations = strtoull(argv[++i], NULL, 10);
        } else if (strcmp(argv[i], "--quick") == 0) {
            b.runs = 3;
            b.seconds = 0.05;
        } else {
            b.pattern = argv[i];
        }
    }
    be_driver(argc, argv);
    signal(SIGPIPE, SIG_IGN);
    local_rows(&b);
    bench_fair(&b);
    remote_rows(&b);
    bench_client(&b);
    bench_nng(&b);
    bench_store(&b);
    idle_rows(&b);
    return 0;
}
