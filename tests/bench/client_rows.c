/* client_rows.c - rows client-call: a client's thread calls grains of one silo, in a process of its
 * own, with 1, 64 and 1,024 calls under way.
 * Way:     bench.c -> [client_rows] -> generated stubs -> client ===> the child's silo */
#include <stdio.h>
#include "bench.h"
#include "bench.teff.h"
#include "child.h"

enum { WIDTH_MAX = 1024 };

static void must(teff_ctx *ctx, teff_err err)
{
    if (err)
        bench_fatal(ctx, err);
}

/* So many under way all the time: each answer that has come makes room for another call. */
static void window(teff_ctx *ctx, uint64_t n, uint64_t width)
{
    static teff_call calls[WIDTH_MAX];
    for (uint64_t i = 0; i < n + width; i++) {
        uint64_t at = i % width;
        if (i >= width) {
            must(ctx, teff_await_all(ctx, &calls[at], 1));
            teff_drop(ctx, &calls[at]);
        }
        if (i < n)
            must(ctx, bench_target_echo_start(
                          ctx, (int64_t)at, bench_small(.number = i, .name = "small"), &calls[at]));
    }
}

static void one_by_one(teff_ctx *ctx, uint64_t n)
{
    bench_small *answer;
    for (uint64_t i = 0; i < n; i++) {
        must(ctx, bench_target_echo(ctx, 1, bench_small(.number = 1, .name = "small"), &answer));
        teff_ctx_reset(ctx);
    }
}

/* out: nanoseconds of n calls. */
static double run(teff_ctx *ctx, uint64_t n, uint64_t width)
{
    uint64_t begin = bench_now_ns();
    if (width == 1)
        one_by_one(ctx, n);
    else
        window(ctx, n, width);
    teff_ctx_reset(ctx);
    return (double)(bench_now_ns() - begin);
}

static void row(const bench *b, teff_ctx *ctx, uint64_t width)
{
    double values[RUNS_MAX];
    char name[40], parameters[PARAMETERS_MAX];
    uint64_t n = width > 64 ? width : 64;
    snprintf(name, sizeof name, "client-call-%d", (int)width);
    if (!bench_wanted(b, name))
        return;
    while (run(ctx, n, width) < b->seconds * 1e9 / 4)
        n *= 4;
    for (int r = 0; r < b->runs; r++)
        values[r] = run(ctx, n, width) / (double)n;
    snprintf(parameters, sizeof parameters, "\"in_flight\":%llu,\"operations\":%llu",
             (unsigned long long)width, (unsigned long long)n);
    bench_print(name, parameters, "ns/operation", values, b->runs);
}

void bench_client(const bench *b)
{
    static const char *const args[] = {"--target", "", NULL};
    static const uint64_t widths[] = {1, 64, WIDTH_MAX};
    char text[TEFF_TEXT_MAX] = "";
    bench_child silo;
    teff_client *client;
    if (!bench_wanted(b, "client-call-1024") && !bench_wanted(b, "client-call-64"))
        return;
    if (!bench_child_start(&silo, args))
        bench_fatal(NULL, TEFF_E_IO);
    must(NULL, teff_client_connect(&(teff_client_options){.gateways = {silo.said}}, &client, text));
    teff_ctx *ctx = teff_client_ctx(client);
    for (size_t i = 0; i < sizeof widths / sizeof widths[0]; i++)
        row(b, ctx, widths[i]);
    teff_ctx_free(ctx);
    teff_client_free(client);
    bench_child_stop(&silo);
}
