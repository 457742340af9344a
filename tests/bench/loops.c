/* loops.c - the timed loops: so many calls or messages to Targets.
 * Way:     a Driver's turn, or a client's thread -> [loops] -> generated stubs -> Target
 * Threads: any; what a loop holds is its own. */
#include "loops.h"

#include <string.h>
#include "bench.h"

enum { WIDTH_MAX = 1024 };

static teff_err one_call(teff_ctx *ctx, int64_t key)
{
    bench_small *response;
    return bench_target_echo(ctx, key, bench_small(.number = 1, .name = "small"), &response);
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

/* To a stateless worker. */
static teff_err call_pooled(teff_ctx *ctx, const bench_plan *plan)
{
    bench_small *response;
    teff_err err = TEFF_OK;
    for (uint64_t i = 0; i < plan->n && !err; i++)
        err = bench_pooled_echo(ctx, (int64_t)plan->first,
                                bench_small(.number = 1, .name = "small"), &response);
    return err;
}

/* width calls of one stateless worker under way, awaited together, n in all. */
static teff_err fan_out_pooled(teff_ctx *ctx, const bench_plan *plan)
{
    teff_call calls[WIDTH_MAX];
    teff_err err = TEFF_OK;
    for (uint64_t done = 0; done < plan->n && !err; done += plan->width) {
        for (uint64_t i = 0; i < plan->width && !err; i++)
            err =
                bench_pooled_echo_async(ctx, (int64_t)plan->first,
                                        bench_small(.number = i, .name = "small"), NULL, &calls[i]);
        if (!err)
            err = teff_await_all(ctx, calls, plan->width);
    }
    return err;
}

/* width calls under way, awaited together, n in all. */
static teff_err fan_out(teff_ctx *ctx, const bench_plan *plan)
{
    teff_call calls[WIDTH_MAX];
    teff_err err = TEFF_OK;
    for (uint64_t done = 0; done < plan->n && !err; done += plan->width) {
        for (uint64_t i = 0; i < plan->width && !err; i++)
            err =
                bench_target_echo_async(ctx, (int64_t)(plan->first + i),
                                        bench_small(.number = i, .name = "small"), NULL, &calls[i]);
        if (!err)
            err = teff_await_all(ctx, calls, plan->width);
    }
    return err;
}

/* So many under way all the time: each response that has come makes room for another call. */
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
            err = bench_target_echo_async(ctx, (int64_t)(plan->first + at),
                                          bench_small(.number = i, .name = "small"), NULL,
                                          &calls[at]);
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

static uint8_t blob[BENCH_BLOB];

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
    teff_call caught_up = {NULL}; /* a response that follows all that was sent before it */
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
            err = bench_target_noted_async(ctx, key, NULL, &caught_up);
    }
    return err ? err : wait_noted(ctx, key, before + plan->n);
}

teff_err bench_loop(teff_ctx *ctx, const bench_plan *plan, uint64_t *ns)
{
    static const struct {
        const char *what;
        teff_err (*loop)(teff_ctx *ctx, const bench_plan *plan);
    } loops[] = {{"call", call_one_by_one},
                 {"new", call_new_ones},
                 {"fan-out", fan_out},
                 {"one-way", one_way},
                 {"window", window},
                 {"blob-call", swap_blobs},
                 {"blob-one-way", send_blobs},
                 {"pooled-call", call_pooled},
                 {"pooled-fan-out", fan_out_pooled}};
    for (size_t i = 0; i < sizeof loops / sizeof loops[0]; i++) {
        if (strcmp(plan->what, loops[i].what) != 0)
            continue;
        uint64_t begin = bench_now_ns();
        teff_err err = loops[i].loop(ctx, plan);
        *ns = bench_now_ns() - begin;
        return err;
    }
    return teff_fail(ctx, TEFF_E_INVALID, "no such loop: %s", plan->what);
}
