/* fair_calls.c - row fair-calls: how long calls to 10,000 grains take, alone and beside a pair of
 * grains that call each other for ever.
 * Way:     bench.c -> [fair_calls] -> Prober turns -> Called, beside Pair
 * Threads: turns on any worker; a prober writes its own slot of the times. */
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include "bench.h"
#include "rows.teff.h"

enum { GRAINS = 10000, PROBERS = 50, CALLS = 4000, CALLS_QUICK = 1000 };

typedef struct game {
    _Atomic bool over;         /* relaxed: seen some time */
    _Atomic uint32_t playing;  /* relaxed: looked at again and again */
    _Atomic uint64_t hits;     /* relaxed: a figure */
    float us[PROBERS * CALLS]; /* each prober its own part */
    uint64_t calls;            /* of each prober; constant while they run */
} game;

static game the_game;

static void must(teff_ctx *ctx, teff_err err)
{
    if (err)
        bench_fatal(ctx, err);
}

/* ---- the pair ---- */

enum { HITS_A_TURN = 100 };

static teff_err hit(rows_pair *self, const rows_small *in, rows_small *out)
{
    (void)self;
    out->number = in->number + 1;
    atomic_fetch_add_explicit(&the_game.hits, 1, memory_order_relaxed);
    return TEFF_OK;
}

/* Each plays, and hits the other: both are callers and called at once. */
static teff_err play(rows_pair *self)
{
    rows_small *response;
    teff_err err = TEFF_OK;
    for (int i = 0; i < HITS_A_TURN && !err; i++)
        err = rows_pair_hit(self->ctx, 1 - self->key, rows_small(.number = 1), &response);
    if (!err && !atomic_load_explicit(&the_game.over, memory_order_relaxed))
        err = rows_pair_play(self->ctx, self->key);
    else
        atomic_fetch_sub_explicit(&the_game.playing, 1, memory_order_relaxed);
    must(self->ctx, err);
    return err;
}

static void begin_game(teff_ctx *ctx)
{
    atomic_store_explicit(&the_game.over, false, memory_order_relaxed);
    atomic_store_explicit(&the_game.playing, 2, memory_order_relaxed);
    must(ctx, rows_pair_play(ctx, 0));
    must(ctx, rows_pair_play(ctx, 1));
}

static void end_game(teff_ctx *ctx)
{
    rows_small *response;
    atomic_store_explicit(&the_game.over, true, memory_order_relaxed);
    while (atomic_load_explicit(&the_game.playing, memory_order_relaxed) > 0)
        must(ctx, rows_pair_hit(ctx, 0, rows_small(.number = 1), &response));
}

/* ---- the others ---- */

static teff_err add(rows_called *self, const rows_small *in, rows_small *out)
{
    (void)self;
    out->number = in->number + 1;
    out->name = in->name;
    return TEFF_OK;
}

static teff_err probe(rows_prober *self, const rows_probing *in)
{
    teff_err err = TEFF_OK;
    for (uint64_t i = 0; i < in->n && !err; i++) {
        int64_t key = in->first + (int64_t)i % in->grains;
        rows_small *response;
        uint64_t begin = bench_now_ns();
        err = rows_called_add(self->ctx, key, rows_small(.number = i, .name = "small"), &response);
        the_game.us[in->slot * in->n + i] = (float)(bench_now_ns() - begin) / 1000;
    }
    return err;
}

static int by_time(const void *a, const void *b)
{
    float x = *(const float *)a, y = *(const float *)b;
    return (x > y) - (x < y);
}

typedef struct times {
    double p50, p99, p999; /* in us */
} times;

/* Each prober has grains of its own; all call at once. */
static times probe_all(teff_ctx *ctx)
{
    teff_call calls[PROBERS];
    enum { EACH = GRAINS / PROBERS };
    for (int i = 0; i < PROBERS; i++)
        must(ctx, rows_prober_probe_async(ctx, i,
                                          rows_probing(.slot = (uint64_t)i, .n = the_game.calls,
                                                       .first = i * EACH, .grains = EACH),
                                          NULL, &calls[i]));
    must(ctx, teff_await_all(ctx, calls, PROBERS));
    teff_ctx_reset(ctx);
    size_t n = PROBERS * the_game.calls;
    qsort(the_game.us, n, sizeof *the_game.us, by_time);
    return (times){the_game.us[n / 2], the_game.us[n * 99 / 100], the_game.us[n * 999 / 1000]};
}

/* ---- the row ---- */

static teff_silo *start_silo(unsigned workers)
{
    static const rows_pair_methods pairs = {.play = play, .hit = hit};
    static const rows_called_methods called = {.add = add};
    static const rows_prober_methods probers = {.probe = probe};
    teff_silo_options opt = {.size = sizeof opt, .silent = 1, .workers = workers};
    teff_silo *silo;
    must(NULL, teff_silo_new(&opt, &silo, NULL));
    must(NULL, teff_silo_host(silo, rows_pair_type(&pairs, NULL)));
    must(NULL, teff_silo_host(silo, rows_called_type(&called, NULL)));
    must(NULL, teff_silo_host(silo, rows_prober_type(&probers, NULL)));
    must(NULL, teff_silo_start(silo, NULL));
    return silo;
}

static void row(const bench *b, unsigned workers)
{
    double ratios[RUNS_MAX] = {0}, tails[RUNS_MAX] = {0};
    double alone_us[RUNS_MAX] = {0}, beside_us[RUNS_MAX] = {0};
    char parameters[PARAMETERS_MAX];
    uint64_t hits = 0;
    teff_silo *silo = start_silo(workers);
    teff_ctx *ctx = teff_silo_new_ctx(silo);
    the_game.calls = b->runs > 3 ? CALLS : CALLS_QUICK;
    (void)probe_all(ctx); /* all are active */
    for (int r = 0; r < b->runs; r++) {
        times alone = probe_all(ctx);
        begin_game(ctx);
        uint64_t before = atomic_load_explicit(&the_game.hits, memory_order_relaxed);
        times beside = probe_all(ctx);
        hits += atomic_load_explicit(&the_game.hits, memory_order_relaxed) - before;
        end_game(ctx);
        ratios[r] = beside.p99 / alone.p99;
        tails[r] = beside.p999 / alone.p999;
        alone_us[r] = alone.p99;
        beside_us[r] = beside.p99;
    }
    snprintf(parameters, sizeof parameters,
             "\"workers\":%u,\"grains\":%d,\"callers\":%d,\"alone_p99_us\":%.4g,"
             "\"beside_p99_us\":%.4g,\"ratio_p999\":%.4g,\"calls_of_the_pair\":%llu",
             workers, GRAINS, PROBERS, bench_median(alone_us, b->runs),
             bench_median(beside_us, b->runs), bench_median(tails, b->runs),
             (unsigned long long)hits);
    bench_print(b, "fair-calls", parameters, "p99 beside / p99 alone", ratios, b->runs);
    teff_ctx_free(ctx);
    teff_silo_free(silo);
}

void bench_fair(const bench *b)
{
    if (!bench_wanted(b, "fair-calls"))
        return;
    row(b, 1);
    row(b, 2);
}
