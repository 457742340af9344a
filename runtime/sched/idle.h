/* idle.h - which workers sleep, which search for work, and how they are woken.
 * Way:     ready -> wake_one -> a parked worker; find (nothing) -> poll (park)
 * Threads: any; lists and states are guarded by idle_lock.
 * Source:  Go's src/runtime/proc.go (worker thread parking); tests/model/park.pml */
#pragma once

#include "sched/worker.h"

/* No wake-up is lost, since both sides store, then load (all seq_cst):
 *  - A pusher makes work visible, then loads idle_word.
 *  - A worker changes idle_word (searching - 1, idle + 1 in one step), then looks at each queue.
 * A pusher that sees a searching worker wakes none; one that sees enough running workers wakes only
 * those that back off. When the last searcher has found work, or has given up, it looks at each
 * queue again and wakes another worker if there is more. A deque with no_steal set does not count
 * as a queue here; clearing no_steal counts as a push. */

/* teffi_enough_workers_are_running - while cores are contended (policy/contention.h): do so many
 * workers run that no other one should be woken? Each of them looks at all queues before it parks,
 * or, as a borrower, after it has returned its processor. */
bool teffi_enough_workers_are_running(const teffi_sched *sched);

/* teffi_wake_one - after making work visible: wake a worker, unless one is searching. If enough are
 * running, wake those that back off instead. May take idle_lock. */
void teffi_wake_one(teffi_sched *sched);

/* teffi_wake_parked - wake a parked worker without work for it, so that it polls.
 * out:  false: none is parked, or the scheduler stops. */
bool teffi_wake_parked(teffi_sched *sched);

/* teffi_none_idle_or_searching - does no worker count as idle or searching? A hint: relaxed. */
bool teffi_none_idle_or_searching(teffi_sched *sched);

/* teffi_others_are_idle - is every active processor but one idle? A hint: relaxed. */
bool teffi_others_are_idle(teffi_sched *sched);

/* teffi_search_begin - count this worker as searching, unless half of the active processors'
 * workers search already. out: true: it counts as searching.
 * teffi_search_end - after it has found work, or given up: count it no more. If it was the last
 * searcher and there is more work, wake another worker. in: w, which counts as searching. */
bool teffi_search_begin(teffi_worker *w);
void teffi_search_end(teffi_worker *w);

/* teffi_wait_for_processor - sleep, without a processor, until one is assigned, the scheduler
 * stops, or the thread shall end because it was spare for long. */
void teffi_wait_for_processor(teffi_worker *w);

/* teffi_yield_processor_to_waiter - if a worker waits for a processor, give it this one, then wait
 * for another as teffi_wait_for_processor does. */
void teffi_yield_processor_to_waiter(teffi_worker *w);

/* teffi_regain_processor - for a worker that has no processor, between two turns: take a free one,
 * or wait as teffi_wait_for_processor does. */
void teffi_regain_processor(teffi_worker *w);

/* teffi_back_off - sleep for up to ns, because stealing did not pay. in: now, a new reading of the
 * clock. The worker counts neither as searching nor as idle, and looks at each queue before it
 * parks: so no wake-up is lost, only delayed.
 * teffi_wake_backed_off_workers - wake the workers that back off: there is work that no busy worker
 * will take soon, or a worker waits for a processor. Any thread; may take idle_lock. */
void teffi_back_off(teffi_worker *w, uint64_t ns, uint64_t now);
void teffi_wake_backed_off_workers(teffi_sched *sched);

/* ---- idle_lock held ---- */

/* teffi_idle_add - w is PARKED or BLOCKED from now on; it stops searching. The caller must look for
 * work afterwards. */
void teffi_idle_add(teffi_worker *w, teffi_worker_state state);

/* teffi_idle_remove - w is idle no more. in: its new state; searching: count it as such. */
void teffi_idle_remove(teffi_worker *w, teffi_worker_state state, bool searching);

/* teffi_idle_choose_parked - a PARKED worker, the one that polls only if there is no other; NULL:
 * there is none. */
teffi_worker *teffi_idle_choose_parked(const teffi_sched *sched);

/* teffi_idle_choose_worker - an idle worker; PARKED if there is one, since a hand-over costs more.
 * out:  NULL: none is idle. */
teffi_worker *teffi_idle_choose_worker(const teffi_sched *sched);

/* teffi_idle_set_timeout - before w sleeps without a timer: set sleeps_until_ns. If there are
 * surplus threads, also a parked worker sleeps for 10 s at most: it may become SPARE meanwhile, and
 * a SPARE worker ends only if it wakes. out: the longest time to sleep, in ns. */
uint64_t teffi_idle_set_timeout(teffi_worker *w);

/* teffi_idle_take_processor - take the processor of an idle worker, which becomes SPARE or OUT. */
teffi_processor *teffi_idle_take_processor(teffi_worker *w);

/* teffi_monitor_wake - wake the monitor if it sleeps without a timeout. */
void teffi_monitor_wake(teffi_sched *sched);
