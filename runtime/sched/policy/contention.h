/* contention.h - do other threads of the machine take the cores of the workers? Then fewer workers
 * may do more. This sets a limit: while that many workers run, no further one is woken.
 * Way:     monitor (samples) -> [contention] -> idle (wake_one)
 * Threads: the monitor's.
 * Source:  trials: .NET's PortableThreadPool.HillClimbing.cs */
#pragma once

#include <stdbool.h>
#include <stdint.h>

typedef struct teffi_contention_sums {
    uint64_t items, cpu_ns, ran_ns, delayed_ns; /* as in samples */
} teffi_contention_sums;

/* What trials of two limits have shown. */
typedef struct teffi_contention_gain {
    uint32_t low, high; /* the limits; 0: none yet */
    int32_t gain;       /* how much less an item cost with low; a mean, newer trials count more */
    uint64_t ended_ns;  /* when the last such trial ended */
} teffi_contention_gain;

/* A worker that is woken while no core is free takes the core of another thread, often of the
 * process that sends the requests, and the grains' cache lines move between cores for nothing.
 *  - Every 50 ms, two times are compared: how long the workers ran, and their delay: how long they
 *    were ready to run, but had no core. The cores count as contended if the delay is at least a
 *    sixth of the run time, and both together are at least a tenth of the elapsed time.
 *  - If the cores are contended, a trial of half as many workers begins: eight windows of 20 ms,
 *    with the lower and the higher limit in turn. (A worker that finds work runs on, so the lower
 *    limit takes effect as workers run dry.)
 *  - The limit is lowered if the cores were contended with the higher limit, and an item then costs
 *    the process over 1/32 less processor time. This gain is a mean over the last trials of these
 *    two limits. Once lowered, the limit stays as long as an item costs any less with it.
 *  - The next trial, of half the limit or of a higher one, follows after 1 s; after 2 and then 4 s
 *    while trials change nothing.
 * The number of handled items is no measure: of two processes on the same cores, each handles more
 * items if it takes core time from the other, so neither would lower its limit. */
typedef struct teffi_contention {
    uint32_t n;                     /* active processors; the highest limit */
    uint32_t limit;                 /* the present one */
    uint32_t low, high;             /* the limits under trial */
    unsigned window;                /* the trial's present one, from 1; odd ones run with low, even
                                     * ones with high. 0: there is no trial */
    bool went_down;                 /* the present or last trial is one of half the limit */
    teffi_contention_sums sums[2];  /* of the trial's windows with high, with low */
    teffi_contention_gain gains[2]; /* of the last two pairs of limits */
    uint64_t items_seen, cpu_seen_ns; /* in the last sample */
    uint64_t due_ns;                  /* when the next sample is due; 0: at once */
    uint64_t trial_ns, pause_ns;      /* when the next trial may begin; the pause before it */
} teffi_contention;

typedef struct teffi_contention_sample {
    uint64_t now_ns;
    uint64_t items;              /* handled by all workers so far; turns in place do not count */
    uint64_t cpu_ns;             /* the process's processor time so far */
    uint64_t ran_ns, delayed_ns; /* of workers with a processor, since the last sample */
} teffi_contention_sample;

/* teffi_contention_reset - set the limit to n, and end the trial; a sample is due at once. */
void teffi_contention_reset(teffi_contention *c, uint32_t n);

/* teffi_contention_sample_is_due - is it time for a sample? */
bool teffi_contention_sample_is_due(const teffi_contention *c, uint64_t now_ns);

/* teffi_contention_update - update the trial and c->limit from a sample. Call it only if a sample
 * is due. If the sample is more than 100 ms late, first calls teffi_contention_reset. */
void teffi_contention_update(teffi_contention *c, const teffi_contention_sample *sample);
