/* direct.c - when may a turn run another one in place, and who runs meanwhile?
 * Way:     grains/direct -> [direct] -> worker's accounts; group_run's, when the turn gave way
 * Threads: the worker's own. It stays on its thread from enter to leave: what the inner turn gets
 *          back to, when it waits or ends, is this very stack. It may lose its slot meanwhile. */
#include "sched/direct.h"

#include "base/bug.h"
#include "sched/worker.h"

/* The functions of teffi_direct_real are called by their addresses only, so never inlined. */
static teffi_worker *worker_of(teffi_exec *exec)
{
    teffi_worker *w = teffi_own_worker;
    return w && &w->real->exec == exec ? w : NULL;
}

/* relaxed, all of them: a moment later is soon enough */
static bool fits(const teffi_worker *w)
{
    return !w->real->special && !w->blocking && w->directs_deep < TEFFI_DIRECT_DEPTH &&
           !atomic_load_explicit(&w->due, memory_order_relaxed) &&
           !atomic_load_explicit(&w->in_region, memory_order_relaxed) &&
           !atomic_load_explicit(&w->real->attention, memory_order_relaxed);
}

static bool budget_used(teffi_worker *w)
{
    uint64_t run = atomic_load_explicit(&w->run, memory_order_relaxed);
    if (w->directs_in != run) {
        w->directs_in = run;
        w->directs = 0;
        w->directs_from_ms = teffi_warn_now(&w->real->exec.warn);
    }
    return w->directs == TEFFI_DIRECT_MAX;
}

/* Others first. out: the worker that goes on, NULL: not in place. */
__attribute__((noinline)) static teffi_worker *after_others(teffi_worker *w)
{
    if (!teffi_give_way(w, false))
        return NULL;
    w = teffi_worker_self();
    return fits(w) && !budget_used(w) ? w : NULL;
}

static bool may(teffi_exec *exec, bool beside)
{
    teffi_worker *w = worker_of(exec);
    if (!w || !fits(w) || (budget_used(w) && !(w = after_others(w))))
        return false;
    w->directs++;
    return !beside || teffi_warn_now(&exec->warn) - w->directs_from_ms < TEFFI_DIRECT_BESIDE_MS;
}

static teffi_group *enter(teffi_exec *exec, teffi_group *group)
{
    teffi_worker *w = teffi_own_worker;
    (void)exec;
    teffi_group *outer = teffi_run_own(w);
    w->directs_unseen++;
    w->directs_deep++;
    teffi_run_begin(w, group, atomic_load_explicit(&w->run, memory_order_relaxed));
    return outer;
}

static void leave(teffi_exec *exec, teffi_group *outer)
{
    teffi_worker *w = teffi_own_worker;
    (void)exec;
    teffi_bug_if(w->blocking != 0); /* it ended, or waits, between blocking_begin and _end */
    w->directs_deep--;
    teffi_run_begin(w, outer, atomic_load_explicit(&w->run, memory_order_relaxed));
}

static void behind(teffi_worker *w, teffi_group *group)
{
    teffi_group *first = w->first;
    w->first = NULL;
    if (first) { /* fork: to run next, before the turn that gave way for it */
        teffi_offer(w, group);
        teffi_offer(w, first);
        return;
    }
    teffi_runqueue_push(&w->real->queue, group);
    uint32_t was = teffi_enter(w);
    teffi_slot *slot = teffi_slot_kept(w);
    if (slot)
        teffi_count_add(&slot->counts.requeues, 1);
    teffi_leave(w, was);
    teffi_wake_one(w->real);
}

/* Its fiber was left, so that anybody may go on with it. */
static void gave_way(teffi_exec *exec, teffi_group *group)
{
    teffi_worker *w = teffi_worker_self();
    (void)exec;
    void (*after)(void *arg) = w->after;
    w->after = NULL;
    atomic_store_explicit(&w->due, 1, memory_order_relaxed); /* the outer turn is to follow */
    if (teffi_group_left(group))
        behind(w, group);
    if (after)
        after(w->after_arg);
}

const teffi_direct_ops teffi_direct_real = {
    .may = may, .enter = enter, .leave = leave, .gave_way = gave_way};
