/* visit.c - a thread that is not ours does a worker's work while a worker sleeps.
 * Way:     the transport's thread -> exec op -> [visit] -> find, run ... -> the transport's thread
 * Threads: one visitor at a time in an executor, and in a process: its thread comes from a small
 *          pool of somebody else's. It has a slot, from a worker that sleeps on without it.
 * Why:     what a lonely message costs is mostly the waking of threads, one after another, each
 *          some microseconds. The thread that has the message in its hands is awake already.
 *
 * The worker that lends its slot becomes a spare one, and gets the slot back as if it had never
 * been woken: PARKED, announced as idle by the visitor, who then looks at every queue as whoever
 * parks does. Everything else is as with other workers: a visitor's slot can be retaken, handed
 * over in a blocking region, or be taken out of use. A visitor without a slot goes. */
#include <stddef.h>
#include "sched/worker.h"

static _Atomic bool somebody_visits; /* in this process */

void teffi_visit_init(teffi_real *real)
{
    teffi_worker *w = &real->visitor;
    w->real = real;
    w->number = UINT32_MAX;
    w->state = TEFFI_WORKER_SPARE;
    atomic_init(&w->inside, 1);
}

/* Hooks are promised for each thread from its beginning to its end. */
static bool has_hooks(const teffi_real *real)
{
    const teff_sched_hooks *h = &real->hooks;
    return h->start || h->end || h->pause || h->resume;
}

static bool may_stay(const teffi_worker *w)
{
    const teffi_real *real = w->real;
    return w->slot && teffi_slot_in_use(real, w->slot) &&
           !atomic_load_explicit(&real->attention, memory_order_relaxed);
}

static void stay(teffi_worker *w)
{
    while (may_stay(w)) {
        (void)teffi_worker_looks(w);
        teffi_group *group = teffi_find_near(w);
        if (group)
            teffi_worker_run(w, group);
        else if (!w->slot || !teffi_laters_any(w->slot))
            return;
    }
    if (w->slot)
        teffi_laters_end(w);
}

static void visit(teffi_worker *w, void (*fn)(void *arg), void *arg)
{
    if (teffi_fiber_thread_visits(w->real->exec.fibers))
        teffi_preempt_allow();
    teffi_worker_become(w);
    teffi_worker_timers(w);
    teffi_leave(w, 0);
    fn(arg);
    teffi_worker_enters(w);
    stay(w);
    teffi_fiber_thread_departs(); /* before whoever stops the executor may free them */
    teffi_worker_become(NULL);
    teffi_slot_return(w);
}

bool teffi_visit(teffi_exec *exec, void (*fn)(void *arg), void *arg)
{
    teffi_real *real = (teffi_real *)(void *)exec;
    /* A guess to begin with: nobody is idle, most often. */
    if (teffi_none_idle(real) || real->special || has_hooks(real) || teffi_worker_self())
        return false;
    /* acquire, release: of nothing but the turn to visit */
    if (atomic_exchange_explicit(&somebody_visits, true, memory_order_acquire))
        return false;
    bool may = teffi_slot_borrow(&real->visitor);
    if (may)
        visit(&real->visitor, fn, arg);
    atomic_store_explicit(&somebody_visits, false, memory_order_release);
    return may;
}

void teffi_visit_stop(teffi_real *real)
{
    pthread_mutex_lock(&real->idle_lock);
    while (real->visited) {
        pthread_mutex_unlock(&real->idle_lock);
        teffi_parker_wait(&real->departed, UINT64_MAX);
        pthread_mutex_lock(&real->idle_lock);
    }
    pthread_mutex_unlock(&real->idle_lock);
}
