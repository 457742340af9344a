/* run.c - a run of a group: run number, quantum, hooks, levels, eviction; and the worker's loop.
 * Source:  Orleans' WorkItemGroup.cs (the quantum); yatp src/pool/runner.rs */
#include "sched/run.h"

#include "base/queue.h"
#include "fiber/exceptions.h"
#include "sched/idle.h"
#include "sched/poll.h"
#include "sched/preempt.h"
#include "sched/retake.h"
#include "sched/scale.h"
#include "sched/submit.h"

enum { ITEMS_MAX = 256 }; /* of one group in a run */
enum { NESTED_MAX = 32 }; /* runs on one stack: each may need some KiB */
#define MS_NS 1000000u
#define QUANTUM_NS 100000000u /* Orleans' activation quantum, 100 ms */
#define ADJUST_EVERY_NS                                                                            \
    100000000u /* of a worker's run time, between calls of adjust_level0_chance */

/* ---- run time by level ---- */

typedef struct teffi_timed_run {
    teffi_meter meter;
    teffi_worker *worker;
    struct teffi_timed_run *outer; /* the run in whose turn this one is nested; NULL: none */
    uint64_t from_ns;              /* when charge_run was last called, or the run began */
    uint64_t nested_ns;            /* of runs nested in this one since from_ns */
    uint64_t all_ns;               /* charged by charge_run so far */
} teffi_timed_run;

/* Charge the group for the time since from_ns, and begin to measure anew. The time of nested runs
 * is charged to their own groups. */
static void charge_run(teffi_meter *meter, teffi_group *group)
{
    teffi_timed_run *t = teffi_container(meter, teffi_timed_run, meter);
    uint64_t now = teffi_now(t->worker->sched->exec.platform);
    uint64_t passed = now - t->from_ns;
    uint64_t own = passed > t->nested_ns ? passed - t->nested_ns : 0;
    teffi_levels_charge_group(t->worker->sched->levels, group, now, own);
    t->from_ns = now;
    t->nested_ns = 0;
    t->all_ns += own;
}

/* Sum up the run time of each level so far. Use the sums to adjust the probability that a worker
 * picks a group of level 0 (policy/level.h). */
static void adjust_level0_chance(teffi_sched *sched)
{
    uint64_t ns[TEFF_SCHED_LEVELS];
    for (unsigned l = 0; l < TEFF_SCHED_LEVELS; l++) {
        ns[l] = atomic_load_explicit(&sched->levels->lost_ns[l], memory_order_relaxed);
        for (unsigned i = 0; i < sched->n_processors; i++)
            ns[l] += atomic_load_explicit(&sched->processors[i].counters.level_ns[l],
                                          memory_order_relaxed);
    }
    teffi_levels_adjust_chance_if_due(sched->levels, ns[0], ns[0] + ns[1] + ns[2]);
}

/* Add the time of a run to the counter of the level that the group had before the run, or to
 * lost_ns if the worker has lost its processor. Call adjust_level0_chance after each
 * ADJUST_EVERY_NS of this worker's run time. */
static void count_level_time(teffi_worker *w, unsigned level, uint64_t ns)
{
    teffi_sched *sched = w->sched;
    uint32_t was = teffi_processor_use_begin(w);
    teffi_processor *p = teffi_processor_get_usable(w);
    if (p)
        teffi_counter_add(&p->counters.level_ns[level], ns);
    teffi_processor_use_end(w, was);
    if (!p)
        atomic_fetch_add_explicit(&sched->levels->lost_ns[level], ns, memory_order_relaxed);
    w->timed_ns += ns;
    if (w->timed_ns < ADJUST_EVERY_NS)
        return;
    w->timed_ns = 0;
    adjust_level0_chance(sched);
}

/* Run the group and charge the run time to the group and its level. out: as
 * teffi_group_run_and_count. */
static unsigned run_and_charge_time(teffi_worker *w, teffi_group *group, uint64_t until_ns)
{
    unsigned level = teffi_level_of_group(w->sched->levels, group);
    teffi_timed_run t = {.meter = {.charge = charge_run}, .worker = w, .outer = w->timed};
    uint64_t begun_ns = t.from_ns = teffi_now(w->sched->exec.platform);
    w->timed = &t;
    unsigned ran = teffi_group_run_with_meter(group, ITEMS_MAX, until_ns, &t.meter, false);
    w->timed = t.outer;
    if (t.outer) /* from_ns is when charge_run was last called: at the end of the run */
        t.outer->nested_ns += t.from_ns - begun_ns;
    count_level_time(w, level, t.all_ns);
    return ran;
}

/* ---- a run ---- */

/* Run the group. If the policy is multilevel, measure the run time. If the policy is priority and
 * the group is evicted, offer its items to ops->evict. out: as teffi_group_run_and_count. */
static unsigned run_by_policy(teffi_worker *w, teffi_group *group, uint64_t until_ns)
{
    if (w->sched->levels)
        return run_and_charge_time(w, group, until_ns);
    bool evicted = group->evicted;
    group->evicted = false; /* before the run: afterwards the group may have another owner */
    return teffi_group_run_with_meter(group, ITEMS_MAX, until_ns, NULL, evicted);
}

/* Run the group as the scheduler's policy demands. Call the scheduler's hooks before and after the
 * run. out: as teffi_group_run_and_count. */
static __attribute__((noinline)) unsigned
run_with_hooks_and_policy(teffi_worker *w, teffi_group *group, uint64_t until_ns)
{
    teffi_hooks_call_before(w, group);
    unsigned ran = run_by_policy(w, group, until_ns);
    teffi_hooks_call_after(w, group);
    return ran;
}

/* requeue_group pushed a group to the global queue, and woke no worker, since this worker was about
 * to take that group back itself. Now this worker runs or resumes a turn. If the global queue is
 * not empty, wake another worker, which takes a group from it. */
static __attribute__((noinline)) void wake_worker_for_requeued_group(teffi_worker *w)
{
    w->processor->unannounced = false;
    if (teffi_runqueue_count(&w->sched->queue))
        teffi_wake_one(w->sched);
}

/* Read the clock into now_ns if the coarse clock is later than now_ns, or is not known (0). Without
 * this function, a busy worker would update now_ns only every 16 passes of its loop. After long
 * runs, now_ns would be so old that the quantum of the next run, which is counted from now_ns,
 * would be over at once. */
static void update_now_if_stale(teffi_processor *p, const teffi_exec *exec)
{
    uint32_t read_ms = (uint32_t)(p->now_ns / MS_NS), coarse_ms = teffi_coarse_ms(exec);
    if (!coarse_ms || (int32_t)(coarse_ms - read_ms) > 0)
        p->now_ns = teffi_now(exec->platform);
}

/* Append the group, which is still READY after its run, to the global queue. Wake another worker,
 * unless this worker has no other group to run, and so takes this group back at once. */
static void requeue_group(teffi_worker *w, teffi_group *group)
{
    teffi_processor *p = w->processor; /* NULL: it was lost during the run */
    teffi_runqueue_push(&w->sched->queue, group);
    if (p) {
        update_now_if_stale(p, &w->sched->exec);
        teffi_counter_add(&p->counters.requeues, 1);
    }
    if (p && !teffi_processor_has_local_group(p) && teffi_runqueue_count(&w->sched->queue) == 1)
        p->unannounced = true;
    else
        teffi_wake_one(w->sched);
}

/* Call requeue_group for a group that is still READY. If its turn has forked with continuation
 * stealing, call teffi_submit_stealable instead, so that thieves can take the group.
 * out: the forked part, which the caller runs next. NULL: there is none, or it was submitted as
 * well. */
static teffi_group *requeue_and_take_forked_part(teffi_worker *w, teffi_group *group)
{
    teffi_group *first = w->run_first;
    if (!first) {
        requeue_group(w, group);
        return NULL;
    }
    w->run_first = NULL;
    teffi_submit_stealable(w, group);
    if (w->processor)
        return first;
    /* The worker has lost its processor during the turn, so it must not run another group. */
    teffi_submit_stealable(w, first);
    return NULL;
}

/* A result of teffi_group_run_and_count: one item was handled, and the group is not READY. */
enum { ONE_ITEM = 1 << 1 };

/* Count the items of a run, and requeue the group if it is still READY. Not called after the most
 * frequent result, ONE_ITEM, which needs neither. in: ran, from teffi_group_run_and_count: twice
 * the number of items, plus 1 if the group is READY. out: the group to run next; NULL: none. */
static __attribute__((noinline)) teffi_group *
count_items_and_requeue(teffi_worker *w, teffi_group *group, unsigned ran)
{
    if (ran / 2 > 1 && w->processor) /* the first item of each run is counted by `runs` */
        teffi_counter_add(&w->processor->items, ran / 2 - 1);
    return ran & 1 ? requeue_and_take_forked_part(w, group) : NULL;
}

/* Call the function that the turn set before it yielded. The turn's fiber is suspended now. */
static __attribute__((noinline)) void call_after_yield(teffi_worker *w)
{
    void (*after)(void *arg) = w->after_yield;
    w->after_yield = NULL;
    after(w->after_yield_arg);
}

/* This is one long function because it is the hottest path: if it is split up, each run takes 17
 * instructions more. Only the steps that few runs need are functions of their own. These are not
 * inlined, so that the other runs save fewer registers. */
void teffi_run_groups(teffi_worker *w, teffi_group *group)
{
    while (group) {
        if (w->processor->unannounced)
            wake_worker_for_requeued_group(w);
        teffi_processor *p = w->processor;
        /* relaxed: only the owner writes; the monitor and thieves compare values */
        uint64_t run = atomic_load_explicit(&p->runs, memory_order_relaxed) + 1;
        atomic_store_explicit(&p->runs, run, memory_order_relaxed);
        uint64_t until_ns = p->now_ns + QUANTUM_NS;
        teffi_worker_set_running_group(w, group, run);
        atomic_store_explicit(&w->preempt, 0, memory_order_relaxed);
        teffi_processor_use_end(w, 0);
        unsigned ran = w->sched->runs_extended
                           ? run_with_hooks_and_policy(w, group, until_ns)
                           : teffi_group_run_and_count(group, ITEMS_MAX, until_ns);
        (void)teffi_processor_use_begin_await_retake(w);
        teffi_turn_abort_if_blocking(w);
        teffi_worker_clear_running_group(w);
        if (w->after_yield)
            call_after_yield(w);
        group = ran == ONE_ITEM ? NULL : count_items_and_requeue(w, group, ran);
    }
}

/* ---- nested runs ---- */

/* Run a nested group with an exception state of its own: its turns must not see what the waiting
 * turn has caught, and their exceptions must not reach the waiting turn's catch blocks. */
__attribute__((noinline)) static void run_with_own_exceptions(teffi_worker *w, teffi_group *group)
{
    teffi_exceptions none = {0}, before;
    TEFFI_UNWINDING_ENDS;
    teffi_exceptions *own = teffi_exceptions_swap_in(&none, &before);
    teffi_run_groups(w, group);
    if (own)
        teffi_exceptions_swap_out(own, &before, &none);
}

/* Find and run one group, nested in the turn that waits on this stack. The worker does not back
 * off, which would delay that turn. out: false: there is no group. */
static bool find_and_run_nested_group(teffi_worker *w)
{
    teffi_processor_fire_timers(w->processor, w->sched->exec.platform);
    teffi_group *group = teffi_find_group(w, false);
    if (!group) {
        if (w->searching)
            teffi_search_end(w);
        return false;
    }
    teffi_fiber *outer_on = w->nested_on;
    w->nested_on = teffi_fiber_current();
    w->nested++;
    run_with_own_exceptions(w, group);
    w->nested--;
    w->nested_on = outer_on;
    if (w->processor && w->processor->unannounced)
        wake_worker_for_requeued_group(w);
    return true;
}

bool teffi_run_nested_group(teffi_exec *exec)
{
    teffi_worker *w = teffi_own_worker;
    teffi_may_suspend(); /* this turn does not go on before the nested run has ended */
    if (!w || &w->sched->exec != exec || w->blocking || w->nested == NESTED_MAX)
        return false;
    /* If a worker waits for a processor or the scheduler stops, this worker should sleep. */
    if (atomic_load_explicit(&w->sched->attention, memory_order_relaxed))
        return false;
    uint32_t was = teffi_processor_use_begin(w);
    bool ran = false;
    if (teffi_processor_get_usable(w)) {
        /* The search, and timers that fire in it, do not belong to the waiting turn. */
        uintptr_t outer = atomic_exchange_explicit(&w->running, 0, memory_order_relaxed);
        uint64_t run = atomic_load_explicit(&w->run, memory_order_relaxed);
        bool adds_to_batch = w->adds_to_batch;
        w->adds_to_batch = false;
        ran = find_and_run_nested_group(w);
        w->adds_to_batch = adds_to_batch;
        atomic_store_explicit(&w->run, run, memory_order_relaxed);
        /* release: pairs with load_run() in report.c */
        atomic_store_explicit(&w->running, outer, memory_order_release);
    }
    teffi_processor_use_end(w, was);
    return ran;
}

/* ---- the loop of a worker's thread ---- */

/* Call hooks.park, then fn, which may sleep, then hooks.unpark. */
static void call_between_park_hooks(teffi_worker *w, void (*fn)(teffi_worker *w))
{
    teffi_hooks_call(w, w->sched->hooks.park);
    fn(w);
    teffi_hooks_call(w, w->sched->hooks.unpark);
}

/* Park, or leave a processor that was deactivated. */
static void park_or_leave_processor(teffi_worker *w)
{
    if (teffi_processor_is_active(w->sched, w->processor))
        teffi_park(w);
    else
        teffi_scale_leave_processor(w);
}

/* One pass of a worker's loop. out: false: the thread ends. */
static bool run_pass(teffi_worker *w)
{
    if (!w->processor)
        call_between_park_hooks(w, teffi_regain_processor);
    uint32_t attention = atomic_load_explicit(&w->sched->attention, memory_order_relaxed);
    if (!w->processor || attention & TEFFI_ATTEND_STOP)
        return false;
    if (attention) {
        call_between_park_hooks(w, teffi_yield_processor_to_waiter);
        return true;
    }
    if (teffi_run_due_work_periodically(w)) {
        if (!teffi_processor_is_active(w->sched, w->processor)) {
            teffi_run_deferred_and_refuse_new(w);
            call_between_park_hooks(w, teffi_scale_leave_processor);
            return true;
        }
        teffi_poll_handle_events_if_due(w);
    }
    teffi_group *group = teffi_find_group(w, true);
    if (group) {
        teffi_run_groups(w, group);
        return true;
    }
    /* Deferred work was deferred again: do not park. The next pass that finds no group in the
     * queues runs this work. */
    if (w->processor && teffi_deferral_has_work(&w->processor->deferral))
        return true;
    call_between_park_hooks(w, park_or_leave_processor);
    if (w->processor)
        teffi_processor_fire_timers(w->processor, w->sched->exec.platform);
    return true;
}

void teffi_worker_main(void *worker)
{
    teffi_worker *w = worker;
    teffi_worker_set_self(w);
    (void)teffi_fiber_thread_enter_pool(w->sched->exec.fibers);
    teffi_preempt_unblock_signal();
    teffi_hooks_call(w, w->sched->hooks.start);
    while (run_pass(w))
        ;
    teffi_hooks_call(w, w->sched->hooks.end);
    teffi_fiber_thread_leave_pool();
    teffi_worker_set_self(NULL);
}
