/* fork.c - parts of a turn that other workers may run.
 * Way:     teff_fork -> [fork] -> this worker's deque -> itself (newest first) | a thief -> join
 * Threads: any thread counts a join down; the rest belongs to the turn or part that runs.
 * Source:  Frigo, Leiserson and Randall 1998, Cilk-5: continuation stealing */
#include <teff/fork.h>

#include <stdlib.h>
#include "base/queue.h"
#include "fork/fork.h"
#include "sched/preempt.h"
#include "sched/scheduler.h"
#include "sched/submit.h"

/* count: one for each part that has not ended, plus one for the turn while it does not wait. To
 * wait, the turn yields; then its worker, no longer on the turn's stack, subtracts the turn's one.
 * So the thread that brings the count to zero finds the turn's fiber suspended. */
typedef struct join {
    _Atomic uint32_t count;  /* see above; 0 before the first fork */
    uint32_t forked;         /* the turn's: not 0 after the first fork */
    teffi_group *turn;       /* set by the turn before it yields */
    struct join *outer;      /* the turn's: the open join before this one */
    _Atomic uint64_t ran_ns; /* policy multilevel: run time of the parts that have ended */
} join;

_Static_assert(sizeof(join) <= sizeof(teff_join), "public room for it");

/* A part is a group with one item, on a fiber of its own. With continuation stealing the turn
 * yields, its group goes into the deque, and its worker runs the part next. */
typedef struct part {
    teffi_group group;
    teffi_item item;
    void (*fn)(void *arg);
    void *arg;
    join *join;
    const char *doing; /* the turn's, for reports */
    uint32_t used;     /* group.used of the turn at the fork; the part's began with it */
} part;

static join *join_of(teff_join *j)
{
    return (join *)(void *)j;
}

/* Subtract one from the count. out: true: the count is zero now. acq_rel: the thread that brings
 * the count to zero sees the stores of all parts. */
static bool count_down(join *j)
{
    return atomic_fetch_sub_explicit(&j->count, 1, memory_order_acq_rel) == 1;
}

static void run_part(void *arg)
{
    part *p = arg;
    p->fn(p->arg);
}

/* Start or resume the part's fiber; complete the group if the part has ended. */
static void resume_part(teffi_group *group, teffi_fiber *fiber)
{
    if (teffi_fiber_resume(fiber))
        teffi_group_complete(group);
}

/* Start the part on a fiber of its own. If no fiber is free, run the part to its end on this
 * stack. */
static void start_part(teffi_group *group, teffi_item *item)
{
    part *p = teffi_container(group, part, group);
    teffi_fiber *fiber = teffi_fiber_new(group->exec->fibers, run_part, p);
    (void)item;
    if (fiber) {
        teffi_fiber_set_label(fiber, p->doing);
        resume_part(group, fiber);
        return;
    }
    run_part(p); /* no fiber is free; on this stack the part cannot yield */
    teffi_group_complete(group);
}

/* ops->ended of parts: add the part's run time to j->ran_ns, free the part, and subtract the part
 * from the join's count. A count of zero shows that the turn's own one was subtracted, too. So the
 * turn is suspended in teff_join_wait, and j is valid until teffi_group_make_ready. If count_down
 * returns false, j must not be used afterwards: the turn may end the join at any time. group.c has
 * already charged the part's last run to group->used. relaxed: count_down makes the added run time
 * visible to the turn. */
static void finish_part(teffi_group *group)
{
    part *p = teffi_container(group, part, group);
    join *j = p->join;
    if (group->used != p->used)
        atomic_fetch_add_explicit(&j->ran_ns, teffi_used_time_between(p->used, group->used),
                                  memory_order_relaxed);
    free(p);
    if (count_down(j))
        teffi_group_make_ready(j->turn);
}

/* ops->evict of parts: drop no item. An evicted part still runs, since the turn that forked it has
 * begun. */
static bool keep_evicted_part(teffi_group *group, teffi_item *item)
{
    (void)group;
    (void)item;
    return false;
}

static const teffi_group_ops part_ops = {
    .handle = start_part,
    .ended = finish_part,
    .resume = resume_part,
    .evict = keep_evicted_part, /* not NULL, so that parts have a priority: see policy/priority.h */
};

/* Open the join j at its first fork: make j the turn's newest open join. */
static void open_join(join *j)
{
    void **open = teffi_fiber_newest_join_pointer();
    atomic_store_explicit(&j->count, 1, memory_order_relaxed); /* no other thread knows it yet */
    j->forked = 1;
    j->outer = *open;
    *open = j;
}

/* Remove j from the turn's open joins; usually it is the newest. */
static void close_join(join *j)
{
    join *above = *teffi_fiber_newest_join_pointer();
    if (above == j) {
        *teffi_fiber_newest_join_pointer() = j->outer;
        return;
    }
    while (above && above->outer != j)
        above = above->outer;
    if (above)
        above->outer = j->outer;
}

/* Make a part of the turn that runs now, and count it in j; the first part opens j.
 * out:  NULL: memory is out. */
static part *part_new(teffi_worker *w, join *j, void (*fn)(void *arg), void *arg)
{
    part *p = malloc(sizeof *p);
    if (!p)
        return NULL;
    teffi_group *turn = teffi_worker_running_group(w);
    *p = (part){.fn = fn, .arg = arg, .join = j, .used = turn->used};
    p->doing = teffi_fiber_get_label(teffi_fiber_current());
    teffi_group_init(&p->group, &w->sched->exec, &part_ops);
    p->group.used = turn->used;
    /* If group.shares is set, group.used is the number of an account, and the part's runs are
     * charged to that account. */
    p->group.shares = turn->shares;
    atomic_init(&p->group.priority, atomic_load_explicit(&turn->priority, memory_order_relaxed));
    if (!j->forked)
        open_join(j);
    atomic_fetch_add_explicit(&j->count, 1, memory_order_relaxed);
    return p;
}

void teff_fork(teff_join *public, teff_steal how, void (*fn)(void *arg), void *arg)
{
    teffi_worker *w = teffi_worker_self();
    bool can = w && teffi_turn_may_yield(w);
    part *p = can ? part_new(w, join_of(public), fn, arg) : NULL;
    if (!p) { /* this is no turn that may yield, or memory is out: just call fn */
        fn(arg);
        return;
    }
    teffi_group_set_ready_with_item(&p->group, &p->item);
    if (how == TEFF_STEAL_CHILD) {
        teffi_submit_stealable(w, &p->group);
        return;
    }
    w->run_first = &p->group;         /* the worker runs it when this turn has yielded */
    (void)teffi_turn_yield(w, false); /* does yield, since teffi_turn_may_yield was true */
}

/* worker.after_yield of a turn that waits for a join; called when the turn's fiber is suspended.
 * The turn counts as one in the join's count: subtract that one. If all parts have ended, make the
 * turn's group READY. */
static void subtract_suspended_turn_from_join(void *arg)
{
    join *j = arg;
    if (count_down(j))
        teffi_group_make_ready(j->turn);
}

/* Charge the turn for the run time of its parts, which have ended. */
static void charge_turn_for_parts(join *j)
{
    uint64_t ns = atomic_load_explicit(&j->ran_ns, memory_order_relaxed);
    if (!ns)
        return;
    teffi_worker *w = teffi_worker_self();
    teffi_group *turn = teffi_worker_running_group(w);
    turn->used = teffi_used_time_add(turn->used, teffi_now(w->sched->exec.platform), ns);
}

void teff_join_wait(teff_join *public)
{
    join *j = join_of(public);
    if (!j->forked)
        return;
    /* Is a part left? The turn itself counts as one. acquire: pairs with count_down of each part */
    if (atomic_load_explicit(&j->count, memory_order_acquire) > 1) {
        teffi_worker *w = teffi_worker_self();
        if (!teffi_turn_may_yield(w))
            teffi_abort_for_rule_broken_by_turn(
                w, "teff_join_wait between teff_blocking_begin and _end");
        j->turn = teffi_worker_running_group(w);
        w->after_yield = subtract_suspended_turn_from_join;
        w->after_yield_arg = j;
        (void)teffi_turn_yield(w,
                               true); /* until the last count_down calls teffi_group_make_ready */
    }
    charge_turn_for_parts(j);
    close_join(j);
    *public = (teff_join){{0}};
}

void teffi_joins_wait(void)
{
    for (void *j; teffi_fiber_current() && (j = *teffi_fiber_newest_join_pointer());)
        teff_join_wait(j);
}
