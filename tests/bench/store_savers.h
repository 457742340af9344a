/* store_savers.h - grains that save at once, on any store, as rows of the bench.
 * Way:     store_rows, store_servers -> [store_savers] -> Saver turns -> store */
#pragma once

#include "bench.h"

enum { SAVERS_MAX = 1024 };

typedef struct savers {
    teff_silo *silo;
    teff_ctx *ctx;
} savers;

/* savers_open - a silo with the grains. in: the address of its store. */
savers savers_open(const char *store);
void savers_close(savers *s);

/* savers_run - n saves in all by so many grains, each saving again and again, at once.
 * out: seconds. */
double savers_run(const savers *s, uint64_t n, uint64_t together);

/* savers_fitting - how many saves take about as long as a run should. */
uint64_t savers_fitting(const bench *b, const savers *s, uint64_t together);

/* savers_print - a row's line: saves a second, and the ratios to something else, called `to`.
 * in:   n, saves of a run; ratios: of each run, or NULL. Both get sorted. */
void savers_print(const bench *b, const char *name, uint64_t together, uint64_t n, double *values,
                  const char *to, double *ratios);
