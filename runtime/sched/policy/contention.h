/* contention.h - do other threads of the machine take the cores of the workers? Then fewer workers
 * may do more: this sets a limit; while so many workers run, no other one is woken.
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
 * process that sends the requests, and the grains' cache lines move between cores for nothing. So,
 * every 50 ms, compare for how long workers ran with how long they were ready to run and had no
 * core. If the delay is a sixth of the run time or more, and both together a tenth of the time,
 * try half as many workers: eight windows of 20 ms, with the one limit and the other in turn. (A
 * worker that finds work runs on, so the lower one takes effect as workers run dry.) The limit is
 * lowered if cores were contended with the higher one, and an item cost the process 1/32 less
 * processor time with the lower one, on average of the last trials of these two limits; the lower
 * one then stays as long as an item costs less. The
 * number of items would not tell: of two processes on the same cores, each handles more as long as
 * it takes more of their time. The next trial, of half the limit or of a higher one, follows after
 * 1 s; after 2 and then 4 s while trials change nothing. */
typedef struct teffi_contention {
    uint32_t n;                     /* active processors; the highest limit */
    uint32_t limit;                 /* the present one */
    uint32_t low, high;             /* the limits under trial */
    unsigned window;                /* of the trial, from 1; odd: with low. 0: there is no trial */
    bool went_down;                 /* the present or last trial is one of half the limit */
    teffi_contention_sums sums[2];  /* of the trial's windows with high, with low */
    teffi_contention_gain gains[2]; /* of the last two pairs of limits */
    uint64_t items_seen, cpu_seen_ns; /* in the last sample */
    uint64_t due_ns;                  /* when the next sample is due; 0: at once */
    uint64_t trial_ns, pause_ns;      /* when the next trial may begin; the pause before it */
} teffi_contention;

typedef struct teffi_contention_sample {
    uint64_t now_ns;
    uint64_t items;              /* that all workers have handled so far, without turns in place */
    uint64_t cpu_ns;             /* the process's processor time so far */
    uint64_t ran_ns, delayed_ns; /* of workers with a processor, since the last sample */
} teffi_contention_sample;

/* teffi_contention_reset - no limit below n, and no trial; a sample is due. */
void teffi_contention_reset(teffi_contention *c, uint32_t n);

/* teffi_contention_sample_is_due - is it time for a sample? */
bool teffi_contention_sample_is_due(const teffi_contention *c, uint64_t now_ns);

/* teffi_contention_update - use a sample that is due to update the trial and c->limit. It calls
 * teffi_contention_reset first if the sample is more than 100 ms late. */
void teffi_contention_update(teffi_contention *c, const teffi_contention_sample *sample);
