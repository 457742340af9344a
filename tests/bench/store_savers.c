/* store_savers.c - grains that save at once, on any store. */
#include "store_savers.h"

#include <stdio.h>
#include "rows.teff.h"

static void must(teff_ctx *ctx, teff_err err)
{
    if (err)
        bench_fatal(ctx, err);
}

static teff_err keep(rows_saver *self, const rows_saving *in)
{
    teff_err err = TEFF_OK;
    for (uint64_t i = 0; i < in->n && !err; i++) {
        self->state->number++;
        err = rows_saver_save(self);
    }
    return err;
}

savers savers_open(const char *store)
{
    static const rows_saver_methods methods = {.keep = keep};
    savers s;
    teff_silo_options opt = {.size = sizeof opt, .silent = 1, .store = store};
    must(NULL, teff_silo_new(&opt, &s.silo, NULL));
    must(NULL, teff_silo_host(s.silo, rows_saver_type(&methods, NULL)));
    must(NULL, teff_silo_start(s.silo, NULL));
    s.ctx = teff_silo_new_ctx(s.silo);
    return s;
}

void savers_close(savers *s)
{
    teff_ctx_free(s->ctx);
    teff_silo_free(s->silo);
}

double savers_run(const savers *s, uint64_t n, uint64_t together)
{
    static teff_call calls[SAVERS_MAX];
    uint64_t begin = bench_now_ns();
    for (uint64_t i = 0; i < together; i++)
        must(s->ctx, rows_saver_keep_async(s->ctx, (int64_t)i, rows_saving(.n = n / together), NULL,
                                           &calls[i]));
    must(s->ctx, teff_await_all(s->ctx, calls, together));
    teff_ctx_reset(s->ctx);
    return (double)(bench_now_ns() - begin) / 1e9;
}

void savers_print(const bench *b, const char *name, uint64_t together, uint64_t n, double *values,
                  const char *to, double *ratios)
{
    char parameters[PARAMETERS_MAX];
    double ratio = ratios ? bench_median(ratios, b->runs) : 0;
    int len = snprintf(parameters, sizeof parameters, "\"at_once\":%llu,\"saves\":%llu",
                       (unsigned long long)together, (unsigned long long)n);
    if (ratios)
        snprintf(parameters + len, sizeof parameters - (size_t)len,
                 ",\"%s\":%.4g,\"%s_min\":%.4g,\"%s_max\":%.4g", to, ratio, to, ratios[0], to,
                 ratios[b->runs - 1]);
    bench_print(b, name, parameters, "saves/s", values, b->runs);
}

uint64_t savers_fitting(const bench *b, const savers *s, uint64_t together)
{
    uint64_t n = 2 * together;
    double seconds = savers_run(s, n, together);
    while (seconds < b->seconds / 4) {
        n *= 2;
        seconds = savers_run(s, n, together);
    }
    return (uint64_t)((double)n * b->seconds / seconds / (double)together + 1) * together;
}
