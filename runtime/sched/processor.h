/* processor.h - P: the right to use a core, with a queue of READY groups and a timer wheel.
 * Way:     ready, find -> [processor] -> the worker that holds it | a thief
 * Threads: see the headings in the struct. idle_lock guards which worker holds which processor;
 *          functions that assign or release one are called with it held.
 * Source:  Go's P (src/runtime/proc.go) */
#pragma once

#include <teff/sched.h>
#include "group/exec.h"
#include "sched/policy/backoff.h"
#include "sched/policy/deferral.h"
#include "sched/policy/local_batch.h"
#include "sched/queue/deque.h"
#include "sched/queue/timer.h"

enum { TEFFI_PROCESSORS_MAX = 1024 };

typedef struct teffi_processor teffi_processor;
typedef struct teffi_sched teffi_sched;
typedef struct teffi_worker teffi_worker;

/* Counters of a processor; public as teff_sched_worker. Written by the owner, except unparks. */
typedef struct teffi_counters {
    _Atomic uint64_t local, global, stolen, steals, parks, requeues;
    _Atomic uint64_t unparks; /* written under idle_lock */
    _Atomic uint64_t level_ns[TEFF_SCHED_LEVELS];
} teffi_counters;

struct teffi_processor {
    /* LIFO slot. The owner uses plain loads and stores; the monitor empties it by the protocol of
     * retake.h. Other threads only test whether it is NULL. */
    _Alignas(64) teffi_group *_Atomic lifo;
    _Atomic uint64_t runs;  /* of groups, plus 1; read by thieves and the monitor */
    _Atomic uint64_t items; /* handled beyond one a run */
    _Atomic bool no_steal;  /* thieves and parking workers ignore deque; set by the owner only */
    teffi_deque deque;
    teffi_wheel wheel;
    teffi_deferral deferral;
    /* the owner's */
    uint64_t now_ns; /* a recent reading of the clock */
    uint64_t rng;
    uint32_t tick;       /* passes; a pass picks once, or twice if work is deferred */
    uint32_t lifo_picks; /* picks from lifo in a row, and turns in place meanwhile */
    uint32_t picks;      /* calls of pick_fair_or_newest without fair */
    uint32_t fair_picks; /* picks of the oldest work */
    uint32_t fair_ms;    /* coarse clock at the last fair pick */
    uint32_t looked_ms;  /* coarse clock at the last look at the poller */
    uint32_t look_at;    /* tick at which the next look is due */
    bool unannounced;    /* a requeued group is in the global queue, and no worker was woken */
    teffi_local_batch batch;
    teffi_backoff backoff;
    teffi_counters counters;
    /* guarded by idle_lock */
    teffi_worker *worker; /* that holds it; NULL: it is free, and only thieves take its groups */
    /* the monitor's */
    uint64_t seen_run;    /* runs at the last tick */
    unsigned seen_ticks;  /* in a row with that value */
    bool yield_requested; /* in that run */
};

/* teffi_counter_add - add n to a counter. A counter has one writer at a time, so a load and a store
 * replace an atomic addition. */
static inline void teffi_counter_add(_Atomic uint64_t *counter, uint64_t n)
{
    uint64_t now = atomic_load_explicit(counter, memory_order_relaxed);
    atomic_store_explicit(counter, now + n, memory_order_relaxed);
}

/* teffi_processor_count_handled_items - how many items p's workers have handled, plus 1, because
 * p->runs begins at 1. p->runs counts the first item of each run; p->items counts the other items.
 * Turns in place are not counted. The result is a hint, because the loads are relaxed. */
static inline uint64_t teffi_processor_count_handled_items(const teffi_processor *p)
{
    return atomic_load_explicit(&p->runs, memory_order_relaxed) +
           atomic_load_explicit(&p->items, memory_order_relaxed);
}

/* teffi_processor_take_lifo - empty the LIFO slot. out: the group; NULL: the slot was empty.
 * runs: the owner, using the processor; the monitor, when it has retaken the processor; a thread
 *       that has just released the processor, before it unlocks idle_lock. */
static inline teffi_group *teffi_processor_take_lifo(teffi_processor *p)
{
    /* relaxed: assignment or retake of the processor orders this load */
    teffi_group *group = atomic_load_explicit(&p->lifo, memory_order_relaxed);
    if (group)
        atomic_store_explicit(&p->lifo, NULL, memory_order_relaxed);
    return group;
}

/* teffi_processor_has_local_group - is a group in the LIFO slot or the deque? */
static inline bool teffi_processor_has_local_group(teffi_processor *p)
{
    return atomic_load_explicit(&p->lifo, memory_order_relaxed) || teffi_deque_count(&p->deque);
}

/* teffi_processor_forbids_stealing - must thieves ignore the deque? Any thread. */
static inline bool teffi_processor_forbids_stealing(const teffi_processor *p)
{
    /* seq_cst: a parking worker changes idle_word before this load; pairs with
     * teffi_processor_allow_stealing */
    return atomic_load_explicit(&p->no_steal, memory_order_seq_cst);
}

/* teffi_processor_allow_stealing - clear no_steal. If the deque has groups, the caller calls
 * teffi_wake_one.
 * out:  false: it was clear already.
 * runs: the owner, using the processor; any thread with idle_lock; the monitor. */
static inline bool teffi_processor_allow_stealing(teffi_processor *p)
{
    /* relaxed: only the owner changes no_steal to true */
    bool forbidden = atomic_load_explicit(&p->no_steal, memory_order_relaxed);
    if (forbidden) /* seq_cst: the waker loads idle_word after this store */
        atomic_store_explicit(&p->no_steal, false, memory_order_seq_cst);
    return forbidden;
}

/* teffi_processors_init - make n processors, empty and without workers. out: false: memory is out;
 * the caller calls fini. */
bool teffi_processors_init(teffi_sched *sched, unsigned n);
void teffi_processors_fini(teffi_sched *sched);

/* teffi_processors_have_work - could a searching worker take a group? seq_cst: after the caller's
 * change of idle_word. */
bool teffi_processors_have_work(teffi_sched *sched);

/* teffi_processor_fire_timers - read the clock and fire due timers. runs: the owner, using it. */
void teffi_processor_fire_timers(teffi_processor *p, const teffi_platform *platform);

/* teffi_processor_wake - wake p's worker if it is parked or backs off, since p's wheel has a new
 * earliest timer. Takes idle_lock. */
void teffi_processor_wake(teffi_sched *sched, teffi_processor *p);

/* teffi_processor_assign - give p to w, which is RUNNING from now on.
 * teffi_processor_release - take w's processor from it and let thieves use its deque. out: the
 * processor. The caller sets w's state; in teffi_scale_leave_processor w stays RUNNING. */
void teffi_processor_assign(teffi_processor *p, teffi_worker *w);
teffi_processor *teffi_processor_release(teffi_worker *w);

/* teffi_processor_assign_to_waiter - give p to the worker that has waited longest; there is one.
 * out:  that worker; the caller wakes it. */
teffi_worker *teffi_processor_assign_to_waiter(teffi_sched *sched, teffi_processor *p);

/* teffi_processor_assign_to_spare_or_new - give p to a spare or new worker, which begins with a
 * search.
 * out:  the worker; the caller wakes it. NULL: no thread could be started, and p->worker may be
 *       NULL now. */
teffi_worker *teffi_processor_assign_to_spare_or_new(teffi_sched *sched, teffi_processor *p);

/* teffi_processor_find_free - an active processor that no worker holds, because no thread could be
 * started for it, or teffi_scale_active_processors has not staffed it yet; NULL: there is none. */
teffi_processor *teffi_processor_find_free(teffi_sched *sched);
