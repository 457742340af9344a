/* poll.h - where a worker that has found nothing waits: in the poller, one at a time, or by its
 * parker; and when busy workers look at the poller.
 * Way:     run (park) -> [poll] -> poller->wait, run -> READY groups: the worker's local batch
 *          run (busy) -> [poll], without waiting; monitor -> [poll] -> a parked worker wakes
 * Threads: as each function says. The system thread and borrowers never poll.
 * Source:  Go's src/runtime/proc.go (findRunnable, sysmon); tests/model/poller.pml */
#pragma once

#include "sched/scheduler.h"

/* Whenever no worker runs, one parked worker waits in the poller or is about to, or the monitor is
 * awake and wakes one within two ticks:
 *  - A worker that parks claims the poller after it was announced as PARKED. If the claim fails,
 *    another thread has claimed the poller. While enough workers are running (idle.h), a worker
 *    parks without a claim; the last running one claims the poller when it parks, or wakes a
 *    parked worker when it blocks.
 *  - A worker that leaves the poller with its processor is RUNNING, and claims the poller again
 *    when it parks. One that lost its processor while it slept releases the poller, then wakes a
 *    parked worker.
 *  - The monitor sleeps only while all processors' workers are parked and a worker polls, which may
 *    be one that has lost its processor. Each change of a worker from PARKED to another state is
 *    made under idle_lock, and wakes the monitor.
 *  - While workers run or block, and none has waited in the poller for a tick, the monitor wakes a
 *    parked worker, unless enough are running. If the monitor wakes none, and no busy worker has
 *    looked at the poller either, it calls poller->neglected. */

/* teffi_poll_set_poller - set the poller in which parked workers wait; it is the exec op poll, and
 * called once. Wakes a parked worker, which then polls. Any thread. */
void teffi_poll_set_poller(teffi_exec *exec, teffi_poller *poller);

/* teffi_sched_has_poller - is there a poller? Any thread. A worker that is about to park may miss a
 * poller that has just been set; that is why teffi_poll_set_poller wakes a worker afterwards. */
static inline bool teffi_sched_has_poller(const teffi_sched *sched)
{
    /* acquire: pairs with teffi_poll_set_poller */
    return atomic_load_explicit(&sched->poller, memory_order_acquire);
}

/* teffi_park - sleep until there may be work, an event was handled, a timer is due, or the
 * scheduler stops. A worker that loses its processor meanwhile waits for another one. Returns at
 * once if a worker waits for a processor, or w's processor is not active.
 * runs: between turns, using the processor. Afterwards w->processor may be NULL. */
void teffi_park(teffi_worker *w);

/* teffi_poll_handle_events_if_due - on a busy worker: if a poll is due, poll without waiting and
 * handle the events. A poll is a system call, so it is due only when the coarse clock has changed
 * since the last one, or 64 passes after one that found events. Does nothing while this worker
 * searches, or another thread polls. runs: every 16 passes, using the processor. */
void teffi_poll_handle_events_if_due(teffi_worker *w);

/* teffi_poll_wake_if_none_polls - called after a worker has blocked. If cores are contended, no
 * worker polls and not enough workers are running, wake a parked worker, which then polls. */
void teffi_poll_wake_if_none_polls(teffi_sched *sched);

/* teffi_poll_ensure_polling - if no worker has waited in the poller since the last tick, wake a
 * parked worker, which then polls. If none was woken, and no busy worker has polled either, call
 * poller->neglected, which makes another thread poll. runs: the monitor, each tick. */
void teffi_poll_ensure_polling(teffi_sched *sched);
