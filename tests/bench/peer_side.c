/* peer_side.c - what grains do beside other systems' actors: peers.py runs it in turn with theirs.
 * usage: peer-side ROW WORKERS N       prints RESULT ops=... seconds=... (see peers/README.md)
 * Callers are Driver grains. Each makes its calls in turns of 1,000, so that responses are freed
 * as they are in a program that serves requests; the targets of remote rows live in a process of
 * their own. */
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>
#include "bench.teff.h"
#include "child.h"

enum { TURN_CALLS = 1000, FORGET_EVERY = 4, CALLERS_MAX = 1024, INNER = 1 << 20 };

typedef struct row {
    const char *name, *what;
    uint64_t callers;
    uint64_t width; /* targets: in all, or of one fan-out */
    bool remote;
} row;

static const row rows[] = {
    {"one", "call", 1, 0, false},
    {"ping", "call", 100, 0, false},
    {"random", "random", 64, 100000, false},
    {"random-named", "random", 64, 100000, false},
    {"fan-out", "fan-out", 1, 1000, false},
    {"activate", "new", 1, 0, false},
    {"remote-1", "call", 1, 0, true},
    {"remote-64", "call", 64, 0, true},
    {"remote-1024", "call", 1024, 0, true},
    {"grain-bytes", "new", 1, 0, false},
};

static void fatal(const char *what, teff_err err, const char *text)
{
    fprintf(stderr, "peer-side: %s: %s: %s\n", what, teff_err_name(err), text);
    exit(1);
}

/* ---- grains ---- */

static teff_err echo(bench_target *self, const bench_small *in, bench_small *out)
{
    (void)self;
    out->number = in->number + 1;
    out->name = in->name;
    return TEFF_OK;
}

static const bench_target_methods target_methods = {.echo = echo};

static uint64_t mixed(uint64_t x)
{
    x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9u;
    x = (x ^ (x >> 27)) * 0x94d049bb133111ebu;
    return x ^ (x >> 31);
}

static uint64_t key_of(const bench_plan *plan, uint64_t i)
{
    switch (plan->what[0]) {
    case 'n': /* new */
        return plan->first + i;
    case 'r': /* random; of those that are there */
        return mixed(plan->first << 32 | i) % plan->width;
    default:
        return plan->first;
    }
}

static teff_err one_by_one(teff_ctx *ctx, const bench_plan *plan)
{
    bench_small *response;
    teff_err err = TEFF_OK;
    teff_mark mark = teff_ctx_mark(ctx);
    for (uint64_t i = 0; i < plan->n && !err; i++) {
        err = bench_target_echo(ctx, (int64_t)key_of(plan, plan->done + i),
                                bench_small(.number = i, .name = "small"), &response);
        if (!err && response->number != i + 1)
            err = teff_fail(ctx, TEFF_E_INVALID, "a wrong answer");
        if (i % FORGET_EVERY == 0)
            teff_ctx_forget(ctx, mark);
    }
    return err;
}

static teff_err fan_out(teff_ctx *ctx, const bench_plan *plan)
{
    teff_call calls[TURN_CALLS];
    teff_err err = TEFF_OK;
    for (uint64_t i = 0; i < plan->n && !err; i++)
        err = bench_target_echo_async(ctx, (int64_t)i, bench_small(.number = i, .name = "small"),
                                      NULL, &calls[i]);
    return err ? err : teff_await_all(ctx, calls, plan->n);
}

/* In turns of their own: by another driver. */
static teff_err in_turns(bench_driver *self, const bench_plan *plan)
{
    teff_err err = TEFF_OK;
    for (uint64_t done = 0; done < plan->n && !err; done += TURN_CALLS) {
        bench_plan part = *plan;
        bench_taken *taken;
        part.n = plan->n - done < TURN_CALLS ? plan->n - done : TURN_CALLS;
        part.done = plan->done + done;
        err = bench_driver_run(self->ctx, self->key + INNER, &part, &taken);
    }
    return err;
}

static teff_err drive(bench_driver *self, const bench_plan *plan, bench_taken *out)
{
    (void)out;
    if (self->key < INNER)
        return in_turns(self, plan);
    return (plan->what[0] == 'f' ? fan_out : one_by_one)(self->ctx, plan);
}

static const bench_driver_methods driver_methods = {.run = drive};

/* ---- silos ---- */

static teff_silo *start_silo(const char *seed, unsigned workers, bool drives, bool hosts)
{
    teff_silo_options opt = {.size = sizeof opt, .silent = 1, .seeds = {seed}, .workers = workers};
    char text[TEFF_TEXT_MAX] = "";
    teff_silo *silo;
    teff_err err = teff_silo_new(&opt, &silo, text);
    if (!err && drives)
        err = teff_silo_host(silo, bench_driver_type(&driver_methods, NULL));
    if (!err && hosts)
        err = teff_silo_host(silo, bench_target_type(&target_methods, NULL));
    if (!err)
        err = teff_silo_start(silo, text);
    if (err)
        fatal("a silo cannot start", err, text);
    return silo;
}

/* The second process: hosts the targets until its standard input ends. */
static int be_target(const char *seed, unsigned workers)
{
    teff_silo *silo = start_silo(seed, workers, false, true);
    bench_child_ready("ready");
    teff_silo_free(silo);
    return 0;
}

/* ---- rows ---- */

/* All callers at once, n calls in all; from: how many there were before. */
static uint64_t run(teff_ctx *ctx, const row *r, uint64_t n, uint64_t from)
{
    teff_call calls[CALLERS_MAX];
    teff_err err = TEFF_OK;
    uint64_t each = n / r->callers;
    if (r->what[0] == 'f')
        each = (each + r->width - 1) / r->width * r->width;
    for (uint64_t i = 0; i < r->callers && !err; i++)
        err = bench_driver_run_async(ctx, (int64_t)i,
                                     bench_plan(.what = (char *)r->what, .n = each, .first = i,
                                                .width = r->width, .done = from),
                                     NULL, &calls[i]);
    if (!err)
        err = teff_await_all(ctx, calls, r->callers);
    if (err)
        fatal(r->name, err, teff_error(ctx));
    teff_ctx_reset(ctx);
    return each * r->callers;
}

/* As many grains as the row names are there before. */
static void make(teff_ctx *ctx, uint64_t n)
{
    row r = {"the first calls", "new", 1, 0, false};
    if (n)
        (void)run(ctx, &r, n, 0);
}

static double now_s(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + (double)t.tv_nsec / 1e9;
}

static void timed(teff_ctx *ctx, const row *r, uint64_t n)
{
    make(ctx, r->width);
    uint64_t from = run(ctx, r, n, 0);
    double begin = now_s();
    uint64_t ops = run(ctx, r, n, from);
    printf("RESULT ops=%llu seconds=%.9f\n", (unsigned long long)ops, now_s() - begin);
}

static double resident(void)
{
    unsigned long size, pages = 0;
    FILE *f = fopen("/proc/self/statm", "r");
    if (!f || fscanf(f, "%lu %lu", &size, &pages) != 2)
        fatal("statm", TEFF_E_IO, "");
    fclose(f);
    return (double)pages * (double)sysconf(_SC_PAGESIZE);
}

static void grain_bytes(teff_ctx *ctx, const row *r, uint64_t n)
{
    make(ctx, TURN_CALLS);
    double before = resident();
    (void)run(ctx, r, n, TURN_CALLS);
    printf("RESULT bytes=%f\n", (resident() - before) / (double)n);
}

static int run_row(const row *r, const char *workers, uint64_t n)
{
    teff_silo *silo = start_silo(NULL, (unsigned)atoi(workers), true, !r->remote);
    teff_ctx *ctx = teff_silo_ctx(silo);
    bench_child target;
    const char *const args[] = {"--target", teff_silo_address(silo), workers, NULL};
    if (r->remote && !bench_child_start(&target, args))
        fatal("the second process", TEFF_E_IO, "does not start");
    teff_ctx_timeout(ctx, 600000);
    (strcmp(r->name, "grain-bytes") == 0 ? grain_bytes : timed)(ctx, r, n);
    fflush(stdout);
    if (r->remote)
        bench_child_stop(&target);
    _exit(0); /* grains that are left need not end */
}

int main(int argc, char **argv)
{
    signal(SIGPIPE, SIG_IGN);
    if (argc == 4 && strcmp(argv[1], "--target") == 0)
        return be_target(argv[2], (unsigned)atoi(argv[3]));
    for (size_t i = 0; argc == 4 && i < sizeof rows / sizeof rows[0]; i++)
        if (strcmp(argv[1], rows[i].name) == 0)
            return run_row(&rows[i], argv[2], strtoull(argv[3], NULL, 10));
    fprintf(stderr, "usage: peer-side ROW WORKERS N\n");
    return 2;
}
