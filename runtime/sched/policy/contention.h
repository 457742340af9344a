/* contention.h - do other threads of the machine take the cores of the workers? Then fewer workers
 * may do more: the limit, up to which running workers are woken.
 * Way:     monitor (samples) -> [contention] -> idle (wake_one)
 * Threads: the monitor's.
 * Source:  trials: .NET's PortableThreadPool.HillClimbing.cs */
#pragma once

#include <stdbool.h>
#include <stdint.h>

/* A worker that is woken while no core is free takes the core of another thread, often of the
 * process that sends the requests, and the grains' cache lines move between cores for nothing. So,
 * every 50 ms, compare for how long workers ran with how long they were ready to run and had no
 * core. If the delay is a quarter of the run time or more, try half as many workers: eight windows
 * of 20 ms, with the one limit and the other in turn. The lower one stays if with it an item costs
 * the process a sixteenth less processor time. (The number of items would not tell: of two
 * processes on the same cores, each handles more as long as it takes more of their time.) The next
 * trial, of a neighbour of the limit, follows after 1 s; after 2, 4, 8 s while trials change
 * nothing. */
typedef struct teffi_contention {
    uint32_t n;         /* active processors; the highest limit */
    uint32_t limit;     /* the present one */
    uint32_t low;       /* the limits under trial */
    uint32_t high;      /*   */
    unsigned window;    /* of the trial, from 1; odd: with low. 0: there is no trial */
    bool went_down;     /* the last trial was one of half the limit */
    uint64_t items[2];  /* handled in the trial's windows with high, with low */
    uint64_t cpu_ns[2]; /* the process's processor time in them */
    uint64_t items_seen, cpu_seen_ns;
    uint64_t due_ns;             /* when the next sample is due; 0: at once */
    uint64_t trial_ns, pause_ns; /* no trial before; the pause that led there */
} teffi_contention;

typedef struct teffi_contention_sample {
    uint64_t now_ns;
    uint64_t items;              /* handled by all workers so far */
    uint64_t cpu_ns;             /* the process's processor time so far */
    uint64_t ran_ns, delayed_ns; /* of some workers since the last sample */
} teffi_contention_sample;

/* teffi_contention_reset - no limit below n, and no trial. */
void teffi_contention_reset(teffi_contention *c, uint32_t n);

/* teffi_contention_is_due - is it time for a sample? *usage: it needs ran_ns and delayed_ns. */
bool teffi_contention_is_due(const teffi_contention *c, uint64_t now_ns, bool *usage);

/* teffi_contention_update - take a sample that is due into account: c->limit may change. */
void teffi_contention_update(teffi_contention *c, const teffi_contention_sample *sample);
