/* borrow.c - received batches, and processors that the transport's threads borrow.
 *
 * Waking a thread costs some microseconds, most of the cost of a single message, and the thread
 * that received the message is awake. The worker that lends its processor becomes SPARE. When the
 * borrower returns the processor, a spare worker becomes PARKED with it, without being woken. */
#include "sched/borrow.h"

#include "sched/idle.h"
#include "sched/preempt.h"
#include "sched/retake.h"
#include "sched/run.h"
#include "sched/scale.h"
#include "sched/submit.h"

/* One thread of the process may borrow at a time. Apart from that, a borrower is a worker: its
 * processor may be retaken, handed over in a blocking region, or deactivated. When it has no
 * processor, it returns to its caller. */
static _Atomic bool process_has_borrower;

static void run_inbound_here(teffi_exec *exec, teffi_inbound *batch); /* for the inbound queue */

void teffi_borrow_init(teffi_sched *sched)
{
    teffi_worker_init(&sched->borrow.worker, sched, TEFF_THREAD_BORROWED);
    teffi_worker_set_state(&sched->borrow.worker, TEFFI_WORKER_OUT);
    teffi_inbound_queue_init(&sched->inbound, &sched->exec, run_inbound_here);
}

/* ---- the processor ---- */

/* Assign the processor of a parked worker to w, the borrower. out: false: no worker is parked,
 * another thread borrows, or the scheduler stops. */
static bool borrow_processor(teffi_worker *w)
{
    teffi_sched *sched = w->sched;
    pthread_mutex_lock(&sched->idle_lock);
    teffi_worker *lender = teffi_idle_choose_parked(sched);
    bool may = !sched->stopping && !sched->borrow.active && lender;
    if (may) {
        sched->borrow.active = true;
        w->thread.id = pthread_self();
        teffi_processor_assign(teffi_idle_take_processor(lender), w);
    }
    pthread_mutex_unlock(&sched->idle_lock);
    return may;
}

/* Give processor p to a waiting worker, else to a spare worker, else to a new worker. If p has no
 * group and no deferred work, the spare worker becomes PARKED, and is woken only if a timer of p is
 * due soon. idle_lock held.
 * out: the worker that the caller must wake, or NULL. *parked: set to true if a worker became
 *      PARKED; if so, the caller must look at the queues. */
static teffi_worker *hand_processor_to_worker(teffi_sched *sched, teffi_processor *p, bool *parked)
{
    teffi_worker *w = teffi_worker_latest_in_state(sched, TEFFI_WORKER_SPARE);
    if (teffi_worker_latest_in_state(sched, TEFFI_WORKER_WAITING))
        return teffi_processor_assign_to_waiter(sched, p);
    if (!w) /* the lender has another processor now, or its thread has ended */
        return teffi_processor_assign_to_spare_or_new(sched, p);
    teffi_processor_assign(p, w);
    if (teffi_processor_has_local_group(p) || teffi_deferral_has_work(&p->deferral))
        return w;
    *parked = true;
    teffi_idle_add(w, TEFFI_WORKER_PARKED);
    /* Wake w if a timer is due before w's sleep ends. The wheel is read after teffi_idle_add, since
     * only a timer that is set after teffi_idle_add pokes the parked worker. */
    return teffi_wheel_next_due(&p->wheel) < w->sleeps_until_ns ? w : NULL;
}

/* End borrowing. Give the processor to a worker (see hand_processor_to_worker). If the processor
 * was deactivated, move its groups and timers elsewhere instead. */
static void return_processor(teffi_worker *w)
{
    teffi_sched *sched = w->sched;
    teffi_worker *next = NULL;
    bool parked = false;
    pthread_mutex_lock(&sched->idle_lock);
    teffi_processor *p = w->processor ? teffi_processor_release(w) : NULL;
    teffi_worker_set_state(w, TEFFI_WORKER_OUT);
    sched->borrow.active = false;
    bool active = p && teffi_processor_is_active(sched, p);
    teffi_group *group = p && !active ? teffi_processor_take_lifo(p) : NULL;
    if (active && !sched->stopping)
        next = hand_processor_to_worker(sched, p, &parked);
    /* Look at the queues if a worker became PARKED: idle.h requires this after teffi_idle_add. Look
     * also if no worker got the processor: teffi_processor_release lets thieves steal its groups,
     * so a worker must be woken for them. */
    bool look = parked || (active && !p->worker && !sched->stopping);
    if (sched->stopping)
        teffi_parker_wake(&sched->borrow.left); /* teffi_borrow_wait_for_end waits for this */
    pthread_mutex_unlock(&sched->idle_lock);
    teffi_worker_wake(next);
    if (group)
        teffi_runqueue_push(&sched->queue, group);
    if (p && !active)
        teffi_scale_move_work(sched, p);
    if (look && teffi_processors_have_work(sched))
        teffi_wake_one(sched);
}

/* ---- running on the borrowed processor ---- */

/* May w run another group? sched->attention is not 0 if a worker waits for a processor or the
 * scheduler stops. In both cases w should return its processor. */
static bool borrower_may_run(const teffi_worker *w)
{
    return w->processor && teffi_processor_is_active(w->sched, w->processor) &&
           !atomic_load_explicit(&w->sched->attention, memory_order_relaxed);
}

/* Run groups until teffi_find_group_nearby finds none and no work is deferred, or until
 * borrower_may_run() is false. After that, if w still has a processor, run the work that is still
 * deferred. */
static void run_ready_groups(teffi_worker *w)
{
    while (borrower_may_run(w)) {
        (void)teffi_run_due_work_periodically(w);
        teffi_group *group = teffi_find_group_nearby(w);
        if (group)
            teffi_run_groups(w, group);
        else if (!w->processor || !teffi_deferral_has_work(&w->processor->deferral))
            return;
    }
    if (w->processor)
        teffi_run_deferred_and_refuse_new(w);
}

/* Act as worker w, which holds a borrowed processor: call fn(arg) and run_ready_groups, and return
 * the processor. */
static void run_as_worker(teffi_worker *w, void (*fn)(void *arg), void *arg)
{
    if (teffi_fiber_thread_enter_pool(w->sched->exec.fibers))
        teffi_preempt_unblock_signal();
    teffi_worker_set_self(w);
    teffi_hooks_call(w, w->sched->hooks.start);
    teffi_processor_fire_timers(w->processor, w->sched->exec.platform);
    teffi_processor_use_end(w, 0); /* fn is like a turn: the processor may be retaken from it */
    fn(arg);
    (void)teffi_processor_use_begin_await_retake(w);
    run_ready_groups(w);
    teffi_hooks_call(w, w->sched->hooks.end);
    /* Leave the pool before return_processor: after that call, the fibers may be freed. */
    teffi_fiber_thread_leave_pool();
    teffi_worker_set_self(NULL);
    return_processor(w);
}

bool teffi_borrow_processor_and_run(teffi_exec *exec, void (*fn)(void *arg), void *arg)
{
    teffi_sched *sched = teffi_sched_of(exec);
    /* Call teffi_none_idle_or_searching first: it is cheap, and under load it is usually true. */
    if (teffi_none_idle_or_searching(sched) || teffi_enough_workers_are_running(sched) ||
        teffi_worker_self())
        return false;
    /* acquire: pairs with the release below, so that this thread sees what the last borrower wrote
     * to sched->borrow */
    if (atomic_exchange_explicit(&process_has_borrower, true, memory_order_acquire))
        return false;
    bool may = borrow_processor(&sched->borrow.worker);
    if (may)
        run_as_worker(&sched->borrow.worker, fn, arg);
    atomic_store_explicit(&process_has_borrower, false, memory_order_release);
    return may;
}

void teffi_borrow_wait_for_end(teffi_sched *sched)
{
    pthread_mutex_lock(&sched->idle_lock);
    while (sched->borrow.active) {
        pthread_mutex_unlock(&sched->idle_lock);
        teffi_parker_wait(&sched->borrow.left, UINT64_MAX);
        pthread_mutex_lock(&sched->idle_lock);
    }
    pthread_mutex_unlock(&sched->idle_lock);
}

/* ---- batches ---- */

static void run_inbound_batch(void *arg)
{
    teffi_inbound *batch = arg;
    batch->run(batch);
}

/* Run the received batch on this thread. If the thread is a worker, the groups that become READY
 * meanwhile are kept from thieves: they form the worker's local batch. */
static void run_inbound_here(teffi_exec *exec, teffi_inbound *batch)
{
    teffi_call_adding_to_batch(exec, run_inbound_batch, batch);
}

static void run_inbound_as_borrower(void *arg)
{
    run_inbound_here(&teffi_worker_self()->sched->exec, arg);
}

void teffi_borrow_run_or_queue_inbound(teffi_exec *exec, teffi_inbound *batch)
{
    teffi_sched *sched = teffi_sched_of(exec);
    const teffi_worker *w = teffi_worker_self();
    if (w && w->sched == sched) {
        run_inbound_here(exec, batch);
    } else if (!teffi_borrow_processor_and_run(exec, run_inbound_as_borrower, batch)) {
        if (teffi_inbound_queue_put(&sched->inbound, batch))
            return; /* the queue releases it */
        batch->run(batch);
    }
    batch->release(batch);
}
