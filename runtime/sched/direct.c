/* direct.c - may a turn run another one in place, and which group runs meanwhile?
 * Threads: the worker's own. The turn stays on its thread from enter to leave, since the inner turn
 *          returns to this stack when it waits or ends. The worker may lose its processor
 *          meanwhile. */
#include "sched/preempt.h"
#include "sched/run.h"
#include "sched/scheduler.h"
#include "sched/submit.h"

/* For the policy `priority`: is a group queued that has a higher priority than this turn's group?
 * If so, the turn may run no other turn in place, but must queue its call, so that the queued group
 * runs first. */
__attribute__((noinline)) static bool more_urgent_group_waits(const teffi_worker *w)
{
    const teffi_group *turn = teffi_worker_running_group(w);
    return teffi_priorities_has_more_urgent(
        w->sched->priorities, atomic_load_explicit(&turn->priority, memory_order_relaxed));
}

/* May this worker run a turn in place? The budget is not checked here. relaxed: if a flag is
 * seen late, the worker only yields later. */
static bool may_run_in_place(const teffi_worker *w)
{
    return !w->blocking && w->direct.depth < TEFFI_DIRECT_DEPTH &&
           !atomic_load_explicit(&w->preempt, memory_order_relaxed) &&
           !atomic_load_explicit(&w->in_region, memory_order_relaxed) &&
           !atomic_load_explicit(&w->sched->attention, memory_order_relaxed) &&
           !(w->sched->priorities && more_urgent_group_waits(w));
}

/* Has this run of the group used all its attempts to run a turn in place? The first call of this
 * function in a run resets the budget. */
static bool budget_is_used_up(teffi_worker *w)
{
    teffi_direct_budget *budget = &w->direct;
    uint64_t run = atomic_load_explicit(&w->run, memory_order_relaxed);
    if (budget->run != run) {
        budget->run = run;
        budget->count = 0;
        budget->from_ms = teffi_coarse_ms(&w->sched->exec);
    }
    return budget->count == TEFFI_DIRECT_MAX;
}

/* Yield the turn, and queue its group behind all others, so that they run. When the turn resumes, a
 * new run with a new budget has begun. out: the worker on which the turn has resumed; NULL: the
 * turn may not run another one in place. */
__attribute__((noinline)) static teffi_worker *yield_to_others(teffi_worker *w)
{
    if (!teffi_turn_yield(w, false))
        return NULL;
    w = teffi_worker_self();
    return may_run_in_place(w) && !budget_is_used_up(w) ? w : NULL;
}

/* The operation `may`: may the turn on this thread run another turn in place now? If the budget is
 * used up, the turn yields first. If the limits allow a turn in place, it is counted against the
 * budget. A turn for an asynchronous call (async) is counted as well, but it is refused if the
 * budget began at least TEFFI_DIRECT_ASYNC_MS ago. out: false: refused.
 * Turns call this function and those below only through the pointers in teffi_direct_ops, so these
 * functions are never inlined into a turn. Therefore they may read the thread-local
 * teffi_own_worker: see worker.h. */
static bool direct_permit_and_count(teffi_exec *exec, bool async)
{
    teffi_worker *w = teffi_own_worker;
    teffi_may_suspend();
    if (!w || &w->sched->exec != exec || !may_run_in_place(w) ||
        (budget_is_used_up(w) && !(w = yield_to_others(w))))
        return false;
    w->direct.count++;
    return !async || teffi_coarse_ms(exec) - w->direct.from_ms < TEFFI_DIRECT_ASYNC_MS;
}

/* Record that this worker now runs group, within the same run. out: the group that it ran before,
 * for direct_leave. */
static teffi_group *direct_enter(teffi_exec *exec, teffi_group *group)
{
    teffi_worker *w = teffi_own_worker;
    (void)exec;
    teffi_group *outer = teffi_worker_running_group(w);
    w->direct.unseen++;
    w->direct.depth++;
    teffi_worker_set_running_group(w, group, atomic_load_explicit(&w->run, memory_order_relaxed));
    return outer;
}

/* Record that this worker runs outer again. Abort if the inner turn is in a blocking region. */
static void direct_leave(teffi_exec *exec, teffi_group *outer)
{
    teffi_worker *w = teffi_own_worker;
    (void)exec;
    teffi_turn_abort_if_blocking(w);
    w->direct.depth--;
    teffi_worker_set_running_group(w, outer, atomic_load_explicit(&w->run, memory_order_relaxed));
}

static teffi_group *direct_enter_with_hook(teffi_exec *exec, teffi_group *group)
{
    teffi_group *outer = direct_enter(exec, group);
    teffi_hooks_call_before(teffi_own_worker, group);
    return outer;
}

static void direct_leave_with_hook(teffi_exec *exec, teffi_group *outer)
{
    teffi_hooks_call_after(teffi_own_worker, teffi_worker_running_group(teffi_own_worker));
    direct_leave(exec, outer);
}

/* The operation `yielded`. The inner turn, a turn of group, ran in place and has yielded. End the
 * claim of group, and make the outer turn yield next. If the inner turn waits for a join, the group
 * stays RUNNING and is not queued. Otherwise queue the group. If the inner turn has forked, queue
 * the forked part, too. At the end, call after_yield, if it is set. */
static void direct_queue_after_yield(teffi_exec *exec, teffi_group *group)
{
    teffi_worker *w = teffi_worker_self();
    (void)exec;
    void (*after)(void *arg) = w->after_yield;
    w->after_yield = NULL;
    atomic_store_explicit(&w->preempt, 1, memory_order_relaxed); /* the outer turn yields next */
    if (teffi_group_release_yielded_claim(group)) {
        teffi_group *first = w->run_first;
        w->run_first = NULL;
        if (first) {
            teffi_submit_stealable(w, group);
            teffi_submit_stealable(w, first);
        } else {
            teffi_submit_yielded_group(w, group);
        }
    }
    if (after)
        after(w->after_yield_arg);
}

const teffi_direct_ops teffi_direct_by_worker = {.may = direct_permit_and_count,
                                                 .enter = direct_enter,
                                                 .leave = direct_leave,
                                                 .yielded = direct_queue_after_yield};
const teffi_direct_ops teffi_direct_hooked = {.may = direct_permit_and_count,
                                              .enter = direct_enter_with_hook,
                                              .leave = direct_leave_with_hook,
                                              .yielded = direct_queue_after_yield};
