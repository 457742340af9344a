/* preempt.c - a turn yields in its middle.
 * Threads: the turn's own; the signal handler runs on its fiber and may return on another
 *          thread. */
#include "sched/preempt.h"

#include "fiber/sanitize.h"
#include "os/thread.h"
#include "sched/scheduler.h"

#ifdef TEFFI_TSAN
/* ThreadSanitizer delivers a signal at the next call it knows of. A loop has none, and TSan's own
 * bookkeeping would be interrupted. The processor is retaken instead. */
enum { HAS_SIGNALS = 0 };
#else
enum { HAS_SIGNALS = 1 };
#endif

bool teffi_turn_may_yield(const teffi_worker *w)
{
    const teffi_fiber *fiber = teffi_fiber_current();
    /* While a turn waits, its worker may run turns of other groups. If such a turn has no fiber
     * of its own, it runs on the waiting turn's fiber, w->nested_on. While the worker searches for
     * such a group, teffi_worker_running_group returns NULL. */
    const teffi_group *group = teffi_worker_running_group(w);
    return fiber && fiber != w->nested_on && group && group->ops->resume && !w->blocking;
}

/* Not inlined, to keep teff_yield_if_due short: a turn runs teff_yield_if_due whenever it calls
 * teff, but rarely yields. */
__attribute__((noinline)) bool teffi_turn_yield(teffi_worker *w, bool stays)
{
    teffi_may_suspend();
    if (!teffi_turn_may_yield(w))
        return false;
    teffi_fiber *fiber = teffi_fiber_current();
    teffi_yielded_turn yielded = {.fiber = fiber, .stays = stays};
    teffi_group_prepend_yielded_turn(teffi_worker_running_group(w), &yielded);
    teffi_fiber_suspend(fiber);
    return true;
}

__attribute__((noinline)) bool teff_yield_if_due(void)
{
    teffi_may_suspend();
    teffi_worker *w = teffi_own_worker;
    /* relaxed: a preemption request that is seen late only delays the yield */
    if (!w || !atomic_load_explicit(&w->preempt, memory_order_relaxed))
        return false;
    return teffi_turn_yield(w, false);
}

bool teff_yield(void)
{
    teffi_may_suspend();
    teffi_worker *w = teffi_worker_self();
    return w && teffi_turn_yield(w, false);
}

/* ---- by a signal ----
 *
 * Go can stop a turn at almost any instruction, since its compiler knows where that is safe. C code
 * may hold a lock or be inside malloc, so it declares regions that only compute. The handler
 * suspends the fiber with the signal's frame on it, which holds all registers; when the fiber
 * resumes, the handler returns and the kernel restores them. The worker's in_region is a hint that
 * a signal is worth sending; the handler checks the fiber's flag, which moves with the fiber. */

/* Called by the signal handler. If the turn on this stack is in a preemptible region and was asked
 * to yield, suspend it here. If the turn resumes on another thread, this function returns on that
 * thread: teffi_interrupt_rebind_to_this_thread lets that thread keep its own signal mask and
 * signal stack.
 * in: context, which the signal handler received. */
static void preempt_turn_on_interrupt(void *context)
{
    teffi_worker *w = teffi_worker_self();
    teffi_fiber *fiber = w ? teffi_fiber_current() : NULL;
    if (!fiber || !teffi_fiber_may_be_preempted(fiber, __builtin_frame_address(0)) ||
        !atomic_load_explicit(&w->preempt, memory_order_relaxed))
        return;
    /* The fiber leaves its region, so that another signal does not interrupt the yield. */
    teffi_fiber_set_preemptible(fiber, false);
    atomic_store_explicit(&w->in_region, 0, memory_order_relaxed);
    teffi_interrupt_allow();
    (void)teffi_turn_yield(w, false);
    teffi_interrupt_rebind_to_this_thread(context);
    atomic_store_explicit(&teffi_worker_self()->in_region, 1, memory_order_relaxed);
    teffi_fiber_set_preemptible(fiber, true);
}

void teffi_preempt_install_handler(void)
{
    if (HAS_SIGNALS)
        teffi_interrupt_install(preempt_turn_on_interrupt);
}

void teffi_preempt_unblock_signal(void)
{
    if (HAS_SIGNALS)
        teffi_interrupt_allow();
}

/* Interrupt the worker's thread if its turn is in a preemptible region. idle_lock held. */
static void interrupt_if_preemptible(teffi_worker *w)
{
    if (atomic_load_explicit(&w->in_region, memory_order_relaxed))
        teffi_interrupt_thread(&w->thread);
}

bool teffi_preempt_request(teffi_sched *sched, teffi_processor *p)
{
    pthread_mutex_lock(&sched->idle_lock);
    teffi_worker *w = p->worker;
    bool runs = w && w->state == TEFFI_WORKER_RUNNING;
    if (runs) {
        atomic_store_explicit(&w->preempt, 1, memory_order_relaxed);
        interrupt_if_preemptible(w);
    }
    pthread_mutex_unlock(&sched->idle_lock);
    return runs;
}

void teffi_preempt_interrupt_lost_workers(teffi_sched *sched)
{
    teffi_worker *w;
    pthread_mutex_lock(&sched->idle_lock);
    TAILQ_FOREACH (w, &sched->in_state[TEFFI_WORKER_LOST], link)
        if (!sched->stopping)
            interrupt_if_preemptible(w);
    pthread_mutex_unlock(&sched->idle_lock);
}

teff_preemptible teff_preemptible_begin(void)
{
    teffi_worker *w = teffi_worker_self();
    if (!HAS_SIGNALS || !w || !teffi_turn_may_yield(w))
        return (teff_preemptible){NULL};
    teffi_fiber *fiber = teffi_fiber_current();
    atomic_store_explicit(&w->in_region, 1, memory_order_relaxed);
    teffi_fiber_set_preemptible(fiber, true);
    return (teff_preemptible){fiber};
}

/* Uses the fiber that the argument holds, and does not look up the current one: until the region
 * has ended, a signal may move the turn to another thread at any instruction, even between the
 * read of a thread-local and its use. Afterwards teffi_worker_self() is safe. */
void teff_preemptible_end(teff_preemptible region)
{
    if (region.turn) {
        teffi_fiber_set_preemptible(region.turn, false);
        atomic_store_explicit(&teffi_worker_self()->in_region, 0, memory_order_relaxed);
    }
    (void)teff_yield_if_due();
}
