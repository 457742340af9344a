/* fork.c - parts of a turn that other workers may take.
 * Way:     teff_fork -> [fork] -> this worker's deque -> itself (newest first) | a thief -> join
 * Threads: a join's count is anybody's; the rest belongs to the turn or part that runs.
 * Source:  Cilk: child stealing and continuation stealing
 *
 * A part is a group with one item, on a fiber of its own. With continuation stealing it is the
 * turn itself that goes into the deque: it gives way, READY, and its worker runs the part next.
 *
 * A join counts the parts that are out, and one for the turn while it does not sleep. A turn that
 * has to wait gives way, to be left alone; only then, on the worker's own stack, is its one taken
 * off. So whoever brings the count to zero finds a fiber that has been left, and only one does. */
#include <teff/fork.h>

#include <stdlib.h>
#include "base/bug.h"
#include "base/queue.h"
#include "sched/worker.h"

typedef struct join {
    _Atomic uint32_t out; /* parts, and one once a part was forked: the turn's own */
    uint32_t forked;      /* the turn's: something is out, or was */
    teffi_group *turn;    /* set by the turn before it sleeps */
} join;

_Static_assert(sizeof(join) <= sizeof(teff_join), "public room for it");

typedef struct part {
    teffi_group group;
    teffi_item item;
    void (*fn)(void *arg);
    void *arg;
    join *join;
} part;

static join *join_of(teff_join *j)
{
    return (join *)(void *)j;
}

/* out: it was the last. acq_rel: what the part did is seen by the turn, through the last one. */
static bool count_down(join *j)
{
    return atomic_fetch_sub_explicit(&j->out, 1, memory_order_acq_rel) == 1;
}

static void part_main(void *arg)
{
    part *p = arg;
    p->fn(p->arg);
}

static void part_resume(teffi_group *group, teffi_fiber *fiber)
{
    if (teffi_fiber_resume(fiber))
        teffi_group_complete(group);
}

static void part_handle(teffi_group *group, teffi_item *item)
{
    part *p = teffi_container(group, part, group);
    teffi_fiber *fiber = teffi_fiber_new(group->exec->fibers, part_main, p);
    (void)item;
    if (fiber) {
        teffi_fiber_label(fiber, "a forked part");
        part_resume(group, fiber);
        return;
    }
    part_main(p); /* without a stack: it cannot give way */
    teffi_group_complete(group);
}

static void part_ended(teffi_group *group)
{
    part *p = teffi_container(group, part, group);
    join *j = p->join;
    free(p);
    if (count_down(j))
        teffi_group_go_on(j->turn);
}

static const teffi_group_ops part_ops = {
    .handle = part_handle,
    .ended = part_ended,
    .resume = part_resume,
};

static part *part_new(teffi_worker *w, join *j, void (*fn)(void *arg), void *arg)
{
    part *p = malloc(sizeof *p);
    if (!p)
        return NULL;
    *p = (part){.fn = fn, .arg = arg, .join = j};
    teffi_group_init(&p->group, &w->real->exec, &part_ops);
    if (!j->forked)
        atomic_store_explicit(&j->out, 1, memory_order_relaxed); /* nobody else knows it yet */
    j->forked = 1;
    atomic_fetch_add_explicit(&j->out, 1, memory_order_relaxed);
    return p;
}

void teff_fork(teff_join *public, teff_steal how, void (*fn)(void *arg), void *arg)
{
    teffi_worker *w = teffi_worker_self();
    bool can = w && teffi_may_give_way(w);
    part *p = can ? part_new(w, join_of(public), fn, arg) : NULL;
    if (!p) {
        fn(arg);
        return;
    }
    teffi_group_init_ready(&p->group, &p->item);
    if (how == TEFF_STEAL_CHILD) {
        teffi_offer(w, &p->group);
        return;
    }
    w->first = &p->group;
    (void)teffi_give_way(w, false);
}

/* After the turn's fiber was left, on its worker's own stack. */
static void asleep(void *arg)
{
    join *j = arg;
    if (count_down(j))
        teffi_group_go_on(j->turn);
}

void teff_join_wait(teff_join *public)
{
    join *j = join_of(public);
    if (!j->forked)
        return;
    /* acquire: pairs with count_down of each part */
    if (atomic_load_explicit(&j->out, memory_order_acquire) > 1) {
        teffi_worker *w = teffi_worker_self();
        teffi_bug_if(!teffi_may_give_way(w)); /* in a blocking region */
        j->turn = teffi_run_own(w);
        w->after = asleep;
        w->after_arg = j;
        (void)teffi_give_way(w, true);
    }
    *public = (teff_join){{0}};
}
