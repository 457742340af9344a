/* retake.h - how the monitor takes a processor, or its LIFO slot, from a worker whose turn is too
 * long; the worker's side: may it use its processor?
 * Way:     a turn -> [use_begin] -> ready, timers, deferral ... -> [use_end] -> the turn
 * States:  RUNNING -> LOST -its turn or blocking region ends-> another processor | SPARE | WAITING
 * Threads: the worker's own; of monitor.c: the monitor. A retake needs neither the turn's
 *          co-operation nor an interrupt.
 * Source:  Go's src/runtime/proc.go (retake); tests/model/retake.pml */
#pragma once

#include "sched/scheduler.h"

/* A worker sets using_processor whenever it may use its processor: in its loop, and in a turn from
 * use_begin to use_end, around each call into the scheduler. use_begin stores using_processor, then
 * loads `retaken`. Under idle_lock the monitor stores `retaken`, runs a barrier on every thread
 * (membarrier), and loads using_processor. So at least one of the two sees the other's store, and
 * the worker needs no fence. Without membarrier, use_begin uses an exchange (9 ns).
 *  - using_processor was clear: the worker's earlier use of the processor is visible, and it loads
 *    `retaken` before the next use. Another worker gets the processor with its queues and timers;
 *    nothing is moved, so nothing can be lost.
 *  - using_processor was set: the monitor clears `retaken` and tries again at its next tick.
 * A worker that reads `retaken` as true in use_begin does not use its processor: groups that it
 * makes READY go to the global queue, its timers to any wheel. That is correct even if `retaken`
 * was cleared meanwhile. At the end of its turn the worker waits for idle_lock, to know the
 * outcome. */

/* teffi_processor_use_begin - set using_processor: if no retake is under way, w may use its
 * processor until use_end. Call get_usable to find out. out: the old value, for use_end. */
static inline uint32_t teffi_processor_use_begin(teffi_worker *w)
{
    uint32_t was = atomic_load_explicit(&w->using_processor, memory_order_relaxed);
    if (__builtin_expect(w->sched->no_membarrier, 0)) {
        /* seq_cst: this store comes before the load of `retaken`; pairs with monitor.c */
        atomic_exchange_explicit(&w->using_processor, 1, memory_order_seq_cst);
        return was;
    }
    atomic_store_explicit(&w->using_processor, 1, memory_order_relaxed);
    /* For the compiler's order only; the monitor's membarrier orders the store and the load. */
    atomic_signal_fence(memory_order_seq_cst);
    return was;
}

/* teffi_processor_use_end - restore using_processor. in: was, from use_begin. */
static inline void teffi_processor_use_end(teffi_worker *w, uint32_t was)
{
    /* release: publishes what w did with the processor; pairs with begin_retake() in monitor.c */
    atomic_store_explicit(&w->using_processor, was, memory_order_release);
}

/* teffi_processor_get_usable - after use_begin: the processor that w may use; NULL: none. */
static inline teffi_processor *teffi_processor_get_usable(teffi_worker *w)
{
    /* seq_cst: this load must come after use_begin's exchange; on ARM an acquire load (ldapr) may
     * come before the exchange's store. seq_cst includes acquire, which pairs with the monitor's
     * release store to `retaken`. */
    return atomic_load_explicit(&w->retaken, memory_order_seq_cst) ? NULL : w->processor;
}

/* teffi_processor_use_begin_await_retake - do what use_begin does. If a retake is under way, wait
 * until it has ended: the monitor holds idle_lock during a retake. After this call, w->processor
 * does not change before use_end. */
static inline uint32_t teffi_processor_use_begin_await_retake(teffi_worker *w)
{
    uint32_t was = teffi_processor_use_begin(w);
    if (!teffi_processor_get_usable(w)) {
        pthread_mutex_lock(&w->sched->idle_lock);
        pthread_mutex_unlock(&w->sched->idle_lock);
    }
    return was;
}

/* ---- monitor.c ---- */

/* The monitor's tick. A run that it sees at slice_ticks ticks in a row, by default five, has taken
 * at least slice_ms, rounded up to ticks, and at most a tick more. If groups or workers wait for a
 * processor, its turn gets a preemption request then, and at the next tick its processor is
 * retaken. */
#define TEFFI_MONITOR_NS 2500000u

/* teffi_monitor_main - what the monitor's thread runs. in: sched, a teffi_sched. */
void teffi_monitor_main(void *sched);

/* teffi_retake_processor - give p to another worker if p's worker is still in run number `run`,
 * unless max(active processors, 2) turns run without a processor, not counting those that block.
 * out:  false: p was not retaken: try again at the next tick. */
bool teffi_retake_processor(teffi_sched *sched, teffi_processor *p, uint64_t run);
