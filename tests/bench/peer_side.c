/* peer_side.c - what grains do beside other systems' actors: peers.py runs it in turn with theirs.
 * usage: peer-side ROW WORKERS N [--transport nng|reactor]
 *        prints RESULT ops=... seconds=... (see peers/README.md)
 *        peer-side --load       computes at the lowest priority until its input ends
 *        peer-side --version    names the compiler
 * Callers are Driver grains. Each makes its calls in turns of 1,000, so that responses are freed
 * as they are in a program that serves requests; the targets of remote rows live in a process of
 * their own, and so do those of a client, which is one thread with so many calls under way. */
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include "bench.h"
#include "bench.teff.h"
#include "child.h"
#include "load.h"
#include "loops.h"
#include "resident.h"
#include "transport.h"

enum {
    TURN_CALLS = 1000,
    FORGET_EVERY = 4,
    CALLERS_MAX = 1024,
    INNER = 1 << 20,
    BLOB_MAX = TEFF_MESSAGE_MAX - 16 /* fits when packed */
};

#ifdef __clang__
#define COMPILER __VERSION__
#else
#define COMPILER "gcc " __VERSION__
#endif

enum where { HERE, REMOTE, CLIENT };

typedef struct row {
    const char *name, *what;
    uint64_t callers;
    uint64_t width; /* targets: in all, or of one fan-out; swap: bytes */
    enum where where;
} row;

static const row rows[] = {
    {"one", "call", 1, 0, HERE},
    {"ping", "call", 100, 0, HERE},
    {"random", "random", 64, 100000, HERE},
    {"random-named", "random", 64, 100000, HERE},
    {"fan-out", "fan-out", 1, 1000, HERE},
    {"activate", "new", 1, 0, HERE},
    {"remote-1", "call", 1, 0, REMOTE},
    {"remote-64", "call", 64, 0, REMOTE},
    {"remote-1024", "call", 1024, 0, REMOTE},
    {"remote-64KiB", "swap", 4, 64 * 1024, REMOTE},
    {"remote-1MiB", "swap", 4, BLOB_MAX, REMOTE},
    {"client-1", "call", 1, 0, CLIENT},
    {"client-64", "window", 64, 0, CLIENT},
    {"client-1024", "window", 1024, 0, CLIENT},
    {"grain-bytes", "new", 1, 0, HERE},
};

/* What the command line says of this process's node, and of the other's. */
typedef struct setting {
    const char *workers;
    teff_transport transport;
} setting;

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

static teff_err swap(bench_target *self, const bench_blob *in, bench_blob *out)
{
    (void)self;
    out->data = in->data;
    return TEFF_OK;
}

static const bench_target_methods target_methods = {.echo = echo, .swap = swap};

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

static teff_err ask(teff_ctx *ctx, int64_t key, uint64_t number)
{
    bench_small *response;
    teff_err err =
        bench_target_echo(ctx, key, bench_small(.number = number, .name = "small"), &response);
    if (!err && response->number != number + 1)
        err = teff_fail(ctx, TEFF_E_INVALID, "a wrong answer");
    return err;
}

static teff_err swap_blob(teff_ctx *ctx, int64_t key, uint64_t bytes)
{
    static uint8_t data[BLOB_MAX];
    bench_blob *response;
    teff_err err = bench_target_swap(ctx, key, bench_blob(.data = {bytes, data}), &response);
    if (!err && response->data.len != bytes)
        err = teff_fail(ctx, TEFF_E_INVALID, "a wrong answer");
    return err;
}

static teff_err one_by_one(teff_ctx *ctx, const bench_plan *plan)
{
    teff_err err = TEFF_OK;
    teff_mark mark = teff_ctx_mark(ctx);
    for (uint64_t i = 0; i < plan->n && !err; i++) {
        int64_t key = (int64_t)key_of(plan, plan->done + i);
        err = plan->what[0] == 's' ? swap_blob(ctx, key, plan->width) : ask(ctx, key, i);
        if (i % FORGET_EVERY == 0)
            teff_ctx_rewind(ctx, mark);
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

/* in: seed "": none. */
static teff_silo *start_silo(const char *seed, const setting *set, bool drives, bool hosts)
{
    teff_silo_options opt = {.size = sizeof opt,
                             .silent = 1,
                             .seeds = {*seed ? seed : NULL},
                             .workers = (unsigned)atoi(set->workers),
                             .transport = set->transport};
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
static int be_target(const char *seed, const setting *set)
{
    teff_silo *silo = start_silo(seed, set, false, true);
    bench_child_ready(teff_silo_address(silo));
    _exit(0);
}

static bench_child start_target(const char *seed, const setting *set)
{
    const char *transport = bench_transport_name(set->transport);
    const char *const args[] = {"--target", set->workers, seed, transport ? "--transport" : NULL,
                                transport,  NULL};
    bench_child target;
    if (!bench_child_start(&target, args))
        fatal("the second process", TEFF_E_IO, "does not start");
    return target;
}

static teff_ctx *connect_to(const char *gateway, const setting *set)
{
    teff_client_options opt = {
        .size = sizeof opt, .gateways = {gateway}, .transport = set->transport};
    char text[TEFF_TEXT_MAX] = "";
    teff_client *client;
    teff_err err = teff_client_connect(&opt, &client, text);
    if (err)
        fatal("a client cannot connect", err, text);
    return teff_client_new_ctx(client);
}

/* ---- rows ---- */

/* A client's thread with so many calls under way. */
static uint64_t run_client(teff_ctx *ctx, const row *r, uint64_t n)
{
    bench b = {.ctx = ctx, .loop = bench_loop};
    n -= n % r->callers;
    (void)bench_take(&b, r->what, n, r->callers, 1);
    return n;
}

/* All callers at once, n calls in all; from: how many there were before. */
static uint64_t run_drivers(teff_ctx *ctx, const row *r, uint64_t n, uint64_t from)
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

static uint64_t run(teff_ctx *ctx, const row *r, uint64_t n, uint64_t from)
{
    return r->where == CLIENT ? run_client(ctx, r, n) : run_drivers(ctx, r, n, from);
}

/* As many grains as the row names are there before. */
static void make(teff_ctx *ctx, uint64_t n)
{
    row r = {"the first calls", "new", 1, 0, HERE};
    if (n)
        (void)run(ctx, &r, n, 0);
}

static void timed(teff_ctx *ctx, const row *r, uint64_t n)
{
    make(ctx, r->where == HERE ? r->width : 0);
    uint64_t from = run(ctx, r, n, 0);
    uint64_t begin = bench_now_ns();
    uint64_t ops = run(ctx, r, n, from);
    printf("RESULT ops=%llu seconds=%.9f\n", (unsigned long long)ops,
           (double)(bench_now_ns() - begin) / 1e9);
}

static void grain_bytes(teff_ctx *ctx, const row *r, uint64_t n)
{
    make(ctx, TURN_CALLS);
    double before = bench_resident_bytes();
    (void)run(ctx, r, n, TURN_CALLS);
    printf("RESULT bytes=%f\n", (bench_resident_bytes() - before) / (double)n);
}

/* The context whose calls the row counts; the second process, if the row has one. */
static teff_ctx *open_row(const row *r, const setting *set, bench_child *target)
{
    if (r->where == CLIENT) {
        *target = start_target("", set);
        return connect_to(target->said, set);
    }
    teff_silo *silo = start_silo("", set, true, r->where == HERE);
    if (r->where == REMOTE)
        *target = start_target(teff_silo_address(silo), set);
    return teff_silo_new_ctx(silo);
}

static int run_row(const row *r, const setting *set, uint64_t n)
{
    bench_child target;
    teff_ctx *ctx = open_row(r, set, &target);
    teff_ctx_set_timeout(ctx, 600000);
    (strcmp(r->name, "grain-bytes") == 0 ? grain_bytes : timed)(ctx, r, n);
    fflush(stdout);
    if (r->where != HERE)
        bench_child_stop(&target);
    _exit(0); /* grains that are left need not end */
}

static int usage(void)
{
    fprintf(stderr, "usage: peer-side ROW WORKERS N [--transport nng|reactor]\n");
    return 2;
}

int main(int argc, char **argv)
{
    signal(SIGPIPE, SIG_IGN);
    if (argc == 2 && strcmp(argv[1], "--load") == 0)
        return bench_load();
    if (argc == 2 && strcmp(argv[1], "--version") == 0)
        return puts(COMPILER) < 0;
    if (argc < 4)
        return usage();
    setting set = {.workers = argv[2]};
    bool named = argc == 6 && strcmp(argv[4], "--transport") == 0;
    if (argc != 4 && (!named || !bench_transport_of(argv[5], &set.transport)))
        return usage();
    if (strcmp(argv[1], "--target") == 0)
        return be_target(argv[3], &set);
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++)
        if (strcmp(argv[1], rows[i].name) == 0)
            return run_row(&rows[i], &set, strtoull(argv[3], NULL, 10));
    return usage();
}
