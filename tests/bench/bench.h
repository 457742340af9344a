/* bench.h - what the rows share: which are wanted, for how long, how they are printed.
 * Way:     bench.c -> [wire_nng.c, fair_calls.c, client_rows.c, store_rows.c, idle.c] -> JSON */
#ifndef BENCH_H
#define BENCH_H

#include <stdbool.h>
#include <stdint.h>
#include <teff/silo.h>

enum { RUNS_MAX = 16, PARAMETERS_MAX = 300 };

typedef struct bench {
    teff_silo *silo;
    teff_ctx *ctx;
    const char *pattern;
    int runs;
    double seconds;      /* of one run */
    uint64_t operations; /* of one run, instead; 0: as many as fill the time */
    uint64_t next_key;
} bench;

/* bench_wanted - was the row, or everything, asked for? */
bool bench_wanted(const bench *b, const char *name);

/* bench_print - a row's line. in: parameters, the inside of a JSON object; values get sorted. */
void bench_print(const char *name, const char *parameters, const char *unit, double *values,
                 int runs);

/* bench_median - sorts values; the middle one. in: n > 0. */
double bench_median(double *values, int n);

/* bench_fatal - end the program with a word. in: ctx may be NULL. */
void bench_fatal(teff_ctx *ctx, teff_err err);

uint64_t bench_now_ns(void);

/* fair_calls.c: what 10,000 grains feel of two that call each other for ever. */
void bench_fair(const bench *b);

/* client_rows.c: a client process calls one silo. */
void bench_client(const bench *b);

/* store_rows.c: saves per second, and those of a plain loop over SQLite. */
void bench_store(const bench *b);

#endif
