/* bench.h - what the rows share: which are wanted, for how long, how they are printed.
 * Way:     bench.c -> [wire_nng.c, fair_calls.c, client_rows.c, engine_rows.c, store_rows.c,
 *          store_servers.c, reminder_rows.c, idle.c] -> timing.c -> JSON */
#pragma once

#include <stdbool.h>
#include <stdint.h>
#include <teff/silo.h>
#include "clock.h"
#include "bench.teff.h"
#include "child.h"

enum { RUNS_MAX = 16, PARAMETERS_MAX = 300, BENCH_BLOB = 64 * 1024 };

typedef struct bench {
    teff_silo *silo;
    teff_ctx *ctx; /* NULL: the loop needs none */
    /* where loops run */
    teff_err (*loop)(teff_ctx *ctx, const bench_plan *plan, uint64_t *ns);
    const bench_child *child; /* the other process of these rows; may be NULL */
    teff_transport transport; /* of these rows' nodes */
    teff_transport only;      /* asked for; DEFAULT: both */
    bool busy;                /* beside a load */
    const char *pattern;
    int runs;
    double seconds;      /* of one run */
    uint64_t operations; /* of one run, instead; 0: as many as fill the time */
    uint64_t next_key;
} bench;

/* bench_wanted - was the row, or everything, asked for? */
bool bench_wanted(const bench *b, const char *name);

/* bench_print - a row's line. in: parameters, the inside of a JSON object; values get sorted. */
void bench_print(const bench *b, const char *name, const char *parameters, const char *unit,
                 double *values, int runs);

/* bench_median - sorts values; the middle one. in: n > 0. */
double bench_median(double *values, int n);

/* bench_timed - a row of a loop (loops.h): finds how many operations fill b->seconds, does them
 * b->runs times by b->loop, prints nanoseconds an operation, and as cpu_ns the processors'.
 * in:  width, so many in flight; 0: one. b->operations is rounded up to a multiple of it. */
void bench_timed(bench *b, const char *name, const char *what, uint64_t width);

/* bench_take - n operations of a loop, first the first key.
 * in:  n, of a loop with a width a multiple of it. out: nanoseconds. */
double bench_take(bench *b, const char *what, uint64_t n, uint64_t width, uint64_t first);

/* bench_fatal - end the program with a word. in: ctx may be NULL. */
void bench_fatal(teff_ctx *ctx, teff_err err);

/* fair_calls.c: what 10,000 grains feel of two that call each other for ever. */
void bench_fair(const bench *b);

/* client_rows.c: a client process calls one silo. */
void bench_client(bench *b);

/* engine_rows.c: tasks of an engine, and its locks. */
void bench_engine(bench *b);

/* store_rows.c: saves per second, and those of a plain loop over SQLite. */
void bench_store(const bench *b);

/* store_servers.c: the same on PostgreSQL, Redis and etcd, if the build has them; and those of
 * plain clients. */
void bench_store_servers(const bench *b);

/* reminder_rows.c: reminders registered per second, and ticks per second of many due at once. */
void bench_reminders(const bench *b);
