/* find.h - where a worker looks for its next group.
 * Way:     LIFO slot (a bounded run) -> own deque -> global queue (one, and a batch) -> steal half
 * Threads: the worker's own, while it uses its processor.
 * Source:  Go's findRunnable (proc.go), tokio's next_task */
#ifndef TEFFI_SCHED_FIND_H
#define TEFFI_SCHED_FIND_H

#include "sched/scheduler.h"

/* teffi_find - the next group for this worker. A searching worker that finds one stops searching.
 * in:   patient: the worker may back off before it searches.
 * out:  NULL: none; the worker parks, unless work was deferred again. */
teffi_group *teffi_find(teffi_worker *w, bool patient);

/* teffi_find_near - as teffi_find, without back-off and search. If the queues are empty and work is
 * deferred, try to steal once, then run the deferred work. */
teffi_group *teffi_find_near(teffi_worker *w);

/* teffi_find_check_clock - before a pick: every 16 picks, fire timers and run old deferred work.
 * out:  true: the clock was read. */
static inline bool teffi_find_check_clock(teffi_worker *w)
{
    enum { CLOCK_EVERY = 16 }; /* picks */
    if (w->processor->tick % CLOCK_EVERY != 0)
        return false;
    teffi_processor_fire_timers(w->processor, w->sched->exec.platform);
    teffi_deferral_run_if_old(&w->processor->deferral, w->processor->now_ns);
    return true;
}

#endif
