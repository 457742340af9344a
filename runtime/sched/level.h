/* level.h - multilevel feedback: what has used much lately runs less often than what has not.
 * Way:     run queue push -> [level by what the group used] -> pop, by odds that follow the share
 * Threads: push and pop under the run queue's lock; used belongs to the group's worker; the rest as
 *          it says.
 * Source:  yatp's multilevel queue: thresholds, share, odds and their steps
 *
 * A group's level is 0 until it has used 5 ms, 1 until 100 ms, then 2. yatp's tasks end and are
 * forgotten; grains stay, so what a group used is halved every 10 s. Level 0 is to have 80 % of the
 * run time. A pick is of level 0 with a chance that begins at 80 % and is moved by 6 points, at
 * least 50 and at most 98, when a second of run time has shown a share more than 5 points off. Of
 * the other picks four in five are of level 1. Where a pick's level has nothing, another has it: no
 * worker idles beside work. Workers' own queues hold level 0 only. */
#ifndef TEFFI_SCHED_LEVEL_H
#define TEFFI_SCHED_LEVEL_H

#include <teff/sched.h>
#include "platform/platform.h"
#include "sched/runqueue.h"

enum { TEFFI_CHANCE_ONE = 1000 }; /* chances and shares count in thousandths */

typedef struct teffi_levels {
    teffi_order order;
    /* immutable after init */
    const teffi_platform *platform;
    uint32_t threshold[TEFF_SCHED_LEVELS - 1]; /* in coins */
    uint32_t target;
    /* atomic, relaxed */
    _Atomic uint32_t chance; /* that a pick is of level 0; written by who is adjusting */
    _Atomic uint32_t longer; /* waiting groups of other levels than 0; run queue's lock to write */
    _Atomic bool adjusting;  /* acquired and released by teffi_levels_adjust */
    _Atomic uint64_t lost_ns[TEFF_SCHED_LEVELS]; /* run time of turns whose slot was retaken */
    /* who is adjusting */
    uint64_t last_level0_ns, last_ns;
    /* run queue's lock */
    uint64_t rng;
    teffi_fifo level[TEFF_SCHED_LEVELS];
} teffi_levels;

/* teffi_levels_init - empty. in: opt, checked; platform, borrowed. */
void teffi_levels_init(teffi_levels *levels, const teffi_platform *platform,
                       const teff_sched_options *opt);

/* teffi_used_add - what a group used: a coin of 8 bits that say when it was minted, in turns of
 * 10 s, and 24 bits that count 64 ns each, no more than 1.07 s. out: with ns more, as of now. */
uint32_t teffi_used_add(uint32_t used, uint64_t now_ns, uint64_t ns);

/* teffi_level_of - 0 .. 2. in: used, of a group that this thread may queue or runs. */
unsigned teffi_level_of(const teffi_levels *levels, uint32_t used);

/* teffi_levels_pop_longer - a pop for teffi_runqueue_pop_by: one group, of level 1 or 2. */
unsigned teffi_levels_pop_longer(teffi_order *order, teffi_group **out, unsigned n);

/* teffi_levels_adjust - look at the share of level 0, if there is a second of run time to see.
 * in:   all run time so far, and what level 0 had of it. Any thread. */
void teffi_levels_adjust(teffi_levels *levels, uint64_t level0_ns, uint64_t all_ns);

#endif
