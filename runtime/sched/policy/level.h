/* level.h - multilevel feedback: groups that used much run time lately are picked less often.
 * Way:     run queue push -> [level by the group's run time] -> pop, from a level drawn at random
 * Threads: push and pop: under the run queue's lock; the rest: see the headings.
 * Source:  yatp src/queue/multilevel.rs */
#pragma once

#include <teff/sched.h>
#include "os/platform.h"
#include "sched/queue/runqueue.h"

enum { TEFFI_CHANCE_ONE = 1000 }; /* chances and shares count in thousandths */
enum { TEFFI_ACCOUNTS = 1021 };   /* a prime, so that also aligned addresses use all accounts */

/* By default a group is of level 0 until it has used 5 ms of run time, of level 1 until 100 ms,
 * then of level 2. Unlike yatp's tasks, groups live long, so the run time decays: it is halved
 * every 10 s. Level 0 is to get 80 % of all run time, by default. A pick is of level 0 with a
 * chance of 80 % at first.
 * After each second of run time in which the share was off by more than 5 points, the chance moves
 * by 6 points, between 50 and 98. Of the other picks four in five are of level 1. If a pick's level
 * is empty, another level is picked. Processors' own queues hold groups that were of level 0 when
 * they were pushed, and system groups if there is no system thread. */
typedef struct teffi_levels {
    teffi_order order; /* must be first: its functions cast it */
    /* immutable after init */
    const teffi_platform *platform;
    uint32_t threshold[TEFF_SCHED_LEVELS - 1]; /* in units of decayed run time */
    uint32_t target;
    /* atomic; relaxed, except adjusting */
    _Atomic uint32_t chance;    /* that a pick is of level 0; written in adjust */
    _Atomic uint32_t n_above_0; /* queued groups of levels 1, 2; written under the queue's lock */
    _Atomic bool adjusting; /* a try-lock for teffi_levels_adjust_chance_if_due; acquire, release */
    _Atomic uint64_t lost_ns[TEFF_SCHED_LEVELS]; /* run time of runs that lost their processor */
    _Atomic uint32_t account[TEFFI_ACCOUNTS];    /* decayed run time of the groups that share it */
    /* owned by the thread that has set `adjusting` */
    uint64_t last_level0_ns, last_ns;
    /* run queue's lock */
    uint64_t rng;
    teffi_queue level[TEFF_SCHED_LEVELS];
} teffi_levels;

/* teffi_level_threshold_us - the run time, in us, from which a group is of this level. in: level, 1
 * or 2. */
uint32_t teffi_level_threshold_us(const teff_sched_options *opt, unsigned level);

/* teffi_levels_init - empty. in: opt, checked; platform, borrowed. */
void teffi_levels_init(teffi_levels *levels, const teffi_platform *platform,
                       const teff_sched_options *opt);

/* teffi_used_time_add - add ns to a decayed run time. It is packed: 8 bits of epoch (units of
 * 10 s), 24 bits of time (units of 64 ns), saturating at 1.07 s. The epoch repeats after 43 min: if
 * nothing was added for so long, the old time counts in full again.
 * out:  used, decayed to now, plus ns. */
uint32_t teffi_used_time_add(uint32_t used, uint64_t now_ns, uint64_t ns);

/* teffi_used_time_between - the run time that was added between two values of a decayed run time.
 * in:   from, the earlier value; to, the result of calls of teffi_used_time_add that began with it.
 * out:  the nanoseconds that these calls have added, decayed to the epoch of to; less if to is
 *       saturated. */
uint64_t teffi_used_time_between(uint32_t from, uint32_t to);

/* teffi_level_of_used_time - the level, 0 to 2, of a run time. in: used, as packed by
 * teffi_used_time_add().
 * teffi_level_of_group - the level of a group that the caller owns, or of its account.
 * teffi_levels_charge_group - add ns to the run time of a group that the caller owns, or of its
 * account; with an account, any thread may charge at the same time. */
unsigned teffi_level_of_used_time(const teffi_levels *levels, uint32_t used);
unsigned teffi_level_of_group(const teffi_levels *levels, const teffi_group *group);
void teffi_levels_charge_group(teffi_levels *levels, teffi_group *group, uint64_t now_ns,
                               uint64_t ns);

/* teffi_levels_pop_above_0 - a pop for teffi_runqueue_pop_using: one group, of level 1 or
 * 2. */
unsigned teffi_levels_pop_above_0(teffi_order *order, teffi_group **out, unsigned n);

/* teffi_levels_adjust_chance_if_due - adjust the chance if a second of run time has passed since it
 * was last adjusted. Any thread. in: run time so far, of level 0 and of all levels. */
void teffi_levels_adjust_chance_if_due(teffi_levels *levels, uint64_t level0_ns, uint64_t all_ns);
