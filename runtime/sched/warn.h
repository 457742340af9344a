/* warn.h - warnings about what a scheduler does: turns that take long, items that wait long,
 * queues that grow long.
 * Way:     group.c (an item's wait, a batch's length), monitor.c (what runs) -> [warn] -> the log
 * Threads: as each field says. On the way of an item there is one read of the coarse clock when it
 *          is pushed, and one when it is handled; all else happens when there is something to say.
 * Source:  Orleans' SchedulingOptions: TurnWarningLengthThreshold, DelayWarningThreshold,
 *          MaxPendingWorkItemsSoftLimit */
#ifndef TEFFI_SCHED_WARN_H
#define TEFFI_SCHED_WARN_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <teff/sched.h>

struct teffi_exec;
struct teffi_group;
struct teffi_item;
struct teffi_real;
struct teffi_worker;

enum { TEFFI_TURN_WARN_MS = 1000, TEFFI_DELAY_WARN_MS = 10000, TEFFI_WARN_MS_MAX = 86400000 };
enum { TEFFI_DESCRIBE_MAX = 160 }; /* bytes of a group's description */

/* One kind of warning: at most one line a second, the others are counted. atomic, relaxed: who
 * wins may write a line, nothing is ordered by it. */
typedef struct teffi_tell {
    _Atomic uint64_t again_ns; /* not before */
    _Atomic uint32_t untold;
} teffi_tell;

typedef struct teffi_warn {
    /* Of the platform's clock, good to a tick of the monitor; written by the monitor. 0: not known,
     * as while everybody sleeps. relaxed: a time that may be read late. */
    _Atomic uint32_t coarse_ms;
    /* immutable after init */
    uint32_t turn_warn_ms, delay_warn_ms;
    uint32_t queue_warn; /* items; UINT32_MAX, and 0 without init, = off */
    uint64_t looked_ns;  /* the monitor's: when it looked at what runs */
    teffi_tell turn, delay, queue;
} teffi_warn;

/* teffi_warn_init - nothing seen. in: opt, in range. */
void teffi_warn_init(teffi_warn *warn, const teff_sched_options *opt);

/* teffi_warn_tick - by the monitor, each time it looks around; by who wakes it, under idle_lock.
 * teffi_warn_sleep - the clock stands from now on: all workers are parked. idle_lock held. */
void teffi_warn_tick(struct teffi_real *real, uint64_t now_ns);
void teffi_warn_sleep(struct teffi_real *real);

/* teffi_warn_turns - by the monitor, without locks: has some turn taken too long? */
void teffi_warn_turns(struct teffi_real *real, uint64_t now_ns);

/* teffi_warn_ended - a turn that was told of has ended; by its worker. */
void teffi_warn_ended(struct teffi_worker *worker);

/* teffi_warn_late, _long - say it, in a turn of the group or while its memory cannot go. */
void teffi_warn_late(struct teffi_group *group, uint32_t waited_ms);
void teffi_warn_long(struct teffi_group *group, uint32_t items);

/* teffi_warn_describe - what a group is, in words: in its own turn, or while its memory cannot go.
 * teffi_warn_running - of worker.running, from any thread. in: text of TEFFI_DESCRIBE_MAX bytes. */
void teffi_warn_describe(struct teffi_group *group, char *text);
void teffi_warn_running(uintptr_t running, char *text);

static inline uint32_t teffi_warn_now(teffi_warn *warn)
{
    return atomic_load_explicit(&warn->coarse_ms, memory_order_relaxed);
}

#endif
