/* retake.h - how the monitor takes a processor, or its LIFO slot, from a worker whose turn is too
 * long; the worker's side: may it use its processor?
 * Way:     a turn -> [enter] -> ready, timers, deferral ... -> [leave] -> the turn
 * States:  RUNNING -> LOST -its turn ends or blocks-> another processor | SPARE | WAITING
 * Threads: the worker's own. The turn neither co-operates with the monitor nor is interrupted.
 * Source:  Go's retake (proc.go); tests/model/retake.pml */
#ifndef TEFFI_SCHED_RETAKE_H
#define TEFFI_SCHED_RETAKE_H

#include "sched/scheduler.h"

/* A worker sets its flag inside whenever it may use its processor: in its loop, and in a turn from
 * enter to leave, around each call into the scheduler. enter stores inside, then loads retaken.
 * Under idle_lock the monitor stores retaken, runs a barrier on every thread (membarrier), and
 * loads inside. So at least one of the two sees the other's store, and the worker needs no fence.
 * Without membarrier, enter uses an exchange (9 ns).
 *  - inside was clear: the worker's earlier use of the processor is visible, and it loads retaken
 *    before the next use. Another worker gets the processor with its queues and timers; nothing is
 *    moved, so nothing can be lost.
 *  - inside was set: the monitor clears retaken and tries again at its next tick.
 * A worker that enters and sees retaken does not use its processor: groups that it makes READY go
 * to the global queue, its timers to any wheel. That is correct even if retaken was cleared
 * meanwhile. At the end of its turn the worker waits for idle_lock, to know the outcome. */

/* teffi_enter - set inside. out: the old value, for teffi_leave. */
static inline uint32_t teffi_enter(teffi_worker *w)
{
    uint32_t was = atomic_load_explicit(&w->inside, memory_order_relaxed);
    if (__builtin_expect(w->sched->enter_exchanges, 0)) {
        /* seq_cst: before the load of retaken; pairs with monitor.c */
        atomic_exchange_explicit(&w->inside, 1, memory_order_seq_cst);
        return was;
    }
    atomic_store_explicit(&w->inside, 1, memory_order_relaxed);
    /* For the compiler's order only; the monitor's membarrier orders the store and the load. */
    atomic_signal_fence(memory_order_seq_cst);
    return was;
}

/* teffi_leave - the turn goes on. in: was, from teffi_enter. */
static inline void teffi_leave(teffi_worker *w, uint32_t was)
{
    /* release: what was done with the processor; pairs with monitor.c */
    atomic_store_explicit(&w->inside, was, memory_order_release);
}

/* teffi_kept - after teffi_enter: the processor that this worker may use; NULL: none. */
static inline teffi_processor *teffi_kept(teffi_worker *w)
{
    /* acquire: pairs with a retake that was cancelled. seq_cst: after teffi_enter's exchange; on
     * ARM an acquire load (ldapr) may come before the exchange's store. */
    return atomic_load_explicit(&w->retaken, memory_order_seq_cst) ? NULL : w->processor;
}

/* teffi_enter_settled - as teffi_enter; then wait for the end of a retake under way, which the
 * monitor decides under idle_lock. Afterwards w->processor does not change any more. */
static inline uint32_t teffi_enter_settled(teffi_worker *w)
{
    uint32_t was = teffi_enter(w);
    if (!teffi_kept(w)) {
        pthread_mutex_lock(&w->sched->idle_lock);
        pthread_mutex_unlock(&w->sched->idle_lock);
    }
    return was;
}

#endif
