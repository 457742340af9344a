/* scale.c - how many processors are in use. A deactivated processor is cleared at once, and again
 * when its worker has left it: between two turns, when the worker next reads the clock. */
#include "sched/scale.h"

#include "sched/idle.h"
#include "sched/scheduler.h"

void teffi_scale_move_timers(teffi_sched *sched, teffi_processor *p)
{
    for (;;) {
        size_t at = (size_t)(p - sched->processors);
        uint32_t active = atomic_load_explicit(&sched->n_active, memory_order_relaxed);
        if (at < active)
            return;
        teffi_processor *to = &sched->processors[at % active];
        if (teffi_wheel_move_timers(&p->wheel, &to->wheel))
            teffi_processor_wake(sched, to);
        p = to; /* it may have been deactivated meanwhile */
    }
}

/* Move the deque's groups to the global queue, by stealing, which is safe even if the processor has
 * become active again. Its worker, if any, empties the LIFO slot in teffi_scale_leave_processor; a
 * borrower empties it in return_processor. */
static void move_deque_to_global_queue(teffi_sched *sched, teffi_processor *p)
{
    void *out[TEFFI_STEAL_MAX];
    while (!teffi_processor_is_active(sched, p) && teffi_deque_count(&p->deque)) {
        unsigned n = teffi_deque_steal(&p->deque, out, TEFFI_STEAL_MAX);
        for (unsigned i = 0; i < n; i++)
            teffi_runqueue_push(&sched->queue, out[i]);
    }
}

void teffi_scale_move_work(teffi_sched *sched, teffi_processor *p)
{
    move_deque_to_global_queue(sched, p);
    teffi_scale_move_timers(sched, p);
    if (teffi_processors_have_work(sched))
        teffi_wake_one(sched);
}

void teffi_scale_leave_processor(teffi_worker *w)
{
    teffi_sched *sched = w->sched;
    teffi_processor *p = w->processor;
    if (w->searching)
        teffi_search_end(w);
    pthread_mutex_lock(&sched->idle_lock);
    bool leaves = !sched->stopping && !teffi_processor_is_active(sched, p);
    teffi_group *group = leaves ? teffi_processor_take_lifo(p) : NULL;
    if (leaves)
        (void)teffi_processor_release(w);
    pthread_mutex_unlock(&sched->idle_lock);
    if (group)
        teffi_runqueue_push(&sched->queue, group);
    if (leaves)
        teffi_scale_move_work(sched, p);
}

/* If the processor's worker is parked or in a blocking region, take the processor from it. A
 * running worker gives up its processor itself in teffi_scale_leave_processor(), and a borrower
 * does so in return_processor(). idle_lock held. */
static void vacate_processor(teffi_processor *p)
{
    teffi_worker *w = p->worker;
    if (!w || (w->state != TEFFI_WORKER_PARKED && w->state != TEFFI_WORKER_BLOCKED))
        return;
    (void)teffi_idle_take_processor(w);
    /* w was parked, maybe without a timeout. A SPARE worker needs a timeout, since it ends only if
     * it wakes. Wake w, so that it calls teffi_idle_set_timeout. */
    if (w->state == TEFFI_WORKER_SPARE)
        teffi_worker_wake(w);
}

/* p was deactivated: take it from its worker, and move its groups and timers away, unless another
 * thread has activated p again meanwhile. A running worker keeps p until
 * teffi_scale_leave_processor, but the deque's groups and the timers are moved now. */
static void empty_deactivated_processor(teffi_sched *sched, teffi_processor *p)
{
    pthread_mutex_lock(&sched->idle_lock);
    bool unused = !teffi_processor_is_active(sched, p);
    if (unused)
        vacate_processor(p);
    pthread_mutex_unlock(&sched->idle_lock);
    if (unused)
        teffi_scale_move_work(sched, p);
}

/* Give the processor a worker if it has none. out: false: no thread could be started for it. */
static bool give_worker_to_active_processor(teffi_sched *sched, teffi_processor *p)
{
    teffi_worker *w = NULL;
    pthread_mutex_lock(&sched->idle_lock);
    bool wanted = !sched->stopping && teffi_processor_is_active(sched, p);
    /* p may have been deactivated and activated again before its worker left it. Then that worker
     * stays. */
    if (wanted && !p->worker) {
        teffi_monitor_wake(sched); /* the monitor must not sleep while a worker runs */
        w = teffi_processor_assign_to_spare_or_new(sched, p);
    }
    bool ok = !wanted || p->worker;
    pthread_mutex_unlock(&sched->idle_lock);
    teffi_worker_wake(w);
    return ok;
}

teff_err teffi_scale_active_processors(teffi_exec *exec, unsigned n)
{
    teffi_sched *sched = teffi_sched_of(exec);
    if (n == 0 || n > sched->n_processors)
        return TEFF_E_INVALID;
    pthread_mutex_lock(&sched->idle_lock);
    bool stopping = sched->stopping;
    if (!stopping)
        atomic_store_explicit(&sched->n_active, n, memory_order_relaxed);
    pthread_mutex_unlock(&sched->idle_lock);
    bool ok = true;
    for (unsigned i = 0; !stopping && i < n; i++)
        ok &= give_worker_to_active_processor(sched, &sched->processors[i]);
    for (unsigned i = n; !stopping && i < sched->n_processors; i++)
        empty_deactivated_processor(sched, &sched->processors[i]);
    return stopping ? TEFF_E_CLOSED : ok ? TEFF_OK : TEFF_E_IO;
}
