/* run.h - a worker's thread: find a group (find.c), run it (quantum, hooks, policy, requeue), park.
 * Way:     worker (start), borrow -> [run] -> teffi_group_run -> the group's handle
 * Threads: the worker's own, with a processor. */
#pragma once

#include "group/direct.h"
#include "sched/idle.h"
#include "sched/scheduler.h"

/* teffi_worker_main - what a worker's thread runs. in: worker, a teffi_worker. */
void teffi_worker_main(void *worker);

/* teffi_run_groups - run a group, then the part that its turn forked, if any.
 * runs: using the processor. Afterwards w->processor may be NULL, or another one. */
void teffi_run_groups(teffi_worker *w, teffi_group *group);

/* teffi_run_nested_group - exec op: from a turn that waits on its worker's own stack, find and run
 * one other group. out: false: none was run. */
bool teffi_run_nested_group(teffi_exec *exec);

/* teffi_direct_by_worker - exec op: turns in place, on the scheduler's workers (direct.c). */
extern const teffi_direct_ops teffi_direct_by_worker;

/* teffi_direct_hooked - the same, with the hooks before and after around each. */
extern const teffi_direct_ops teffi_direct_hooked;

/* teffi_hooks_call_before, teffi_hooks_call_after - call hooks->before or hooks->after, if it is
 * set. runs: before and after each run of a group, and before and after each turn in place
 * (group/direct.h). */
static inline void teffi_hooks_call_before(const teffi_worker *w, const teffi_group *group)
{
    const teff_sched_hooks *hooks = &w->sched->hooks;
    if (hooks->before)
        hooks->before(hooks->arg, w->number, group);
}

static inline void teffi_hooks_call_after(const teffi_worker *w, const teffi_group *group)
{
    const teff_sched_hooks *hooks = &w->sched->hooks;
    if (hooks->after)
        hooks->after(hooks->arg, w->number, group);
}

/* teffi_hooks_call - call hook, unless it is NULL. in: hook: hooks.start, end, park or unpark. */
static inline void teffi_hooks_call(const teffi_worker *w, void (*hook)(void *arg, uint32_t thread))
{
    if (hook)
        hook(w->sched->hooks.arg, w->number);
}

/* teffi_find_group_nearby - the next group for this worker, from its own queues or the global one.
 * If they are empty and work is deferred, try to steal once, then run the deferred work.
 * out:  NULL: none. */
teffi_group *teffi_find_group_nearby(teffi_worker *w);

/* teffi_find_group_by_search - after teffi_find_group_nearby has found no group: look for a while
 * in the global queue and in the deques of other processors.
 * in:   patient: the worker may back off before it searches.
 * out:  NULL: none, work was deferred again, or attention is not 0; the worker may still count as
 *       searching. */
teffi_group *teffi_find_group_by_search(teffi_worker *w, bool patient);

/* teffi_find_group - find the next group for this worker. If there is one, the worker does not
 * count as searching any more.
 * in:   patient: the worker may back off before it searches.
 * out:  NULL: there is none. The worker may still count as searching: if the caller does not park,
 *       it must call teffi_search_end. */
static inline teffi_group *teffi_find_group(teffi_worker *w, bool patient)
{
    teffi_group *group = teffi_find_group_nearby(w);
    if (!group)
        group = teffi_find_group_by_search(w, patient);
    if (group && w->searching)
        teffi_search_end(w);
    return group;
}

/* teffi_run_due_work_periodically - called once in each pass, before the worker picks a group.
 * Every 16th call reads the clock, fires due timers and runs old deferred work; the others do
 * nothing.
 * out:  true: this was a 16th call, and the clock was read. */
static inline bool teffi_run_due_work_periodically(teffi_worker *w)
{
    enum { CLOCK_EVERY = 16 }; /* passes */
    if (w->processor->tick++ % CLOCK_EVERY != 0)
        return false;
    teffi_processor_fire_timers(w->processor, w->sched->exec.platform);
    teffi_deferral_run_if_old(&w->processor->deferral, w->processor->now_ns);
    return true;
}
