/* preempt.h - a turn yields in its middle: at a call into teff after a preemption request, or by a
 * signal in a region that only computes.
 * Way:     monitor (request) -> [preempt, on the turn's fiber] -> group_run -> global queue
 * Threads: the turn's own, but for requests; it may resume on another worker.
 * Source:  Go's src/runtime/preempt.go */
#pragma once

#include "sched/worker.h"

/* teffi_turn_yield - suspend the turn that this worker runs. Its group's handle returns at once,
 * and the group handles no other item until the turn has resumed.
 * in:   stays: the turn resumes after teffi_group_make_ready; else its group is queued behind all
 *       others, or in the deque if w->run_first is set.
 * out:  false: the turn may not yield. true: it has resumed, maybe on another thread. */
bool teffi_turn_yield(teffi_worker *w, bool stays);

/* teffi_turn_may_yield - may the turn that this worker runs yield? out: false: no turn runs, it has
 * no fiber of its own, its group cannot resume it, or it is in a blocking region. */
bool teffi_turn_may_yield(const teffi_worker *w);

/* teffi_preempt_install_handler - install the signal handler; a second call does no harm.
 * teffi_preempt_unblock_signal - unblock the signal on this worker's thread. */
void teffi_preempt_install_handler(void);
void teffi_preempt_unblock_signal(void);

/* teffi_preempt_request - ask the turn of this processor's worker to yield; interrupt it if it is
 * in a preemptible region. out: false: its worker is not RUNNING, or it has none. */
bool teffi_preempt_request(teffi_sched *sched, teffi_processor *p);

/* teffi_preempt_interrupt_lost_workers - interrupt each LOST worker (its processor was retaken
 * during a long turn) if its turn is in a preemptible region. Takes idle_lock. */
void teffi_preempt_interrupt_lost_workers(teffi_sched *sched);
