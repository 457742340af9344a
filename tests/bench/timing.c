/* timing.c - a row: is it wanted, how many operations fill its time, how is it printed.
 * Way:     bench.c, client_rows.c -> [timing] -> b->loop -> loops.c; -> JSON */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "bench.h"
#include "bench.teff.h"
#include "transport.h"

void bench_fatal(teff_ctx *ctx, teff_err err)
{
    fprintf(stderr, "bench: %s: %s\n", teff_err_name(err), ctx ? teff_error(ctx) : "");
    exit(1);
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

void bench_print(const bench *b, const char *name, const char *parameters, const char *unit,
                 double *values, int runs)
{
    double median = bench_median(values, runs);
    printf("{\"name\":\"%s\",\"parameters\":{%s},\"unit\":\"%s\",\"median\":%.4g,\"min\":%.4g,"
           "\"max\":%.4g,\"runs\":%d%s}\n",
           name, parameters, unit, median, values[0], values[runs - 1], runs,
           b->busy ? ",\"busy\":true" : "");
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

static double one_loop(bench *b, const char *what, uint64_t n, uint64_t width, uint64_t first)
{
    uint64_t ns = 0;
    bench_plan plan = *bench_plan(.what = what, .n = n, .width = width, .first = first);
    teff_err err = b->loop(b->ctx, &plan, &ns);
    if (err)
        bench_fatal(b->ctx, err);
    if (b->ctx)
        teff_ctx_reset(b->ctx);
    return (double)ns;
}

/* A loop keeps all responses until it ends: at most so many calls in one, else one of a million
 * calls would measure fresh pages. A loop of one-ways ends by waiting for them, so there it is
 * one. */
enum { CALLS_A_LOOP = 4096, BLOBS_A_LOOP = 256 };

double bench_take(bench *b, const char *what, uint64_t n, uint64_t width, uint64_t first)
{
    uint64_t most = strcmp(what, "blob-call") == 0 ? BLOBS_A_LOOP : CALLS_A_LOOP, done = 0;
    if (strstr(what, "one-way") || strcmp(what, "window") == 0)
        most = n;
    double ns = 0;
    if (width)
        most -= most % width;
    for (; done < n; done += most) {
        uint64_t from = strcmp(what, "new") == 0 ? first + done : first;
        ns += one_loop(b, what, n - done < most ? n - done : most, width, from);
    }
    return ns;
}

/* Processor time so far, of this process and the rows' other one. */
static double cpu_ns(const bench *b)
{
    struct timespec t;
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &t);
    double ns = (double)t.tv_sec * 1e9 + (double)t.tv_nsec;
    return b->child ? ns + bench_child_seconds(b->child) * 1e9 : ns;
}

void bench_timed(bench *b, const char *name, const char *what, uint64_t width)
{
    double values[RUNS_MAX], cpu[RUNS_MAX];
    char parameters[PARAMETERS_MAX];
    bool fresh = strcmp(what, "new") == 0;
    uint64_t n_least = width ? width : 1, n = width ? width : 64, first = 1;
    if (!bench_wanted(b, name))
        return;
    if (b->operations) /* whole widths, since loops do those */
        n = (b->operations + n_least - 1) / n_least * n_least;
    while (!b->operations) { /* until a run takes long enough */
        first = fresh ? b->next_key : 1;
        b->next_key += n;
        double ns = bench_take(b, what, n, width, first);
        if (ns >= b->seconds * 1e9 / 4 || n > 20000000)
            break;
        n *= 4;
    }
    for (int r = 0; r < b->runs; r++) {
        first = fresh ? b->next_key : 1;
        b->next_key += n;
        double cpu_before = cpu_ns(b);
        values[r] = bench_take(b, what, n, width, first) / (double)n;
        cpu[r] = (cpu_ns(b) - cpu_before) / (double)n;
    }
    int len = snprintf(
        parameters, sizeof parameters, "\"in_flight\":%llu,\"operations\":%llu,\"cpu_ns\":%.4g",
        (unsigned long long)(width ? width : 1), (unsigned long long)n, bench_median(cpu, b->runs));
    if (b->transport)
        snprintf(parameters + len, sizeof parameters - (size_t)len, ",\"transport\":\"%s\"",
                 bench_transport_name(b->transport));
    bench_print(b, name, parameters, "ns/operation", values, b->runs);
}
