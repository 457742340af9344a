/* idle.c - idle workers: waking, searching, waiting for a processor. */
#include "sched/idle.h"

#include "sched/scheduler.h"

/* A surplus thread that has slept for so long without a processor ends. */
#define SPARE_NS 10000000000u
#define MS_NS 1000000u

void teffi_monitor_wake(teffi_sched *sched)
{
    if (!sched->monitor_asleep)
        return;
    sched->monitor_asleep = false;
    /* The monitor set the coarse clock to 0 before it slept. */
    teffi_coarse_ms_set(&sched->exec, (uint32_t)(teffi_now(sched->exec.platform) / MS_NS));
    teffi_parker_wake(&sched->monitor.parker);
}

/* ---- idle workers ---- */

void teffi_idle_add(teffi_worker *w, teffi_worker_state state)
{
    teffi_worker_set_state(w, state);
    uint32_t change = TEFFI_IDLE - (w->searching ? TEFFI_SEARCHING : 0u);
    w->searching = false;
    atomic_fetch_add_explicit(&w->sched->idle_word, change, memory_order_seq_cst);
}

void teffi_idle_remove(teffi_worker *w, teffi_worker_state state, bool searching)
{
    teffi_sched *sched = w->sched;
    teffi_worker_set_state(w, state);
    w->searching = searching;
    atomic_fetch_add_explicit(&sched->idle_word, (searching ? TEFFI_SEARCHING : 0u) - TEFFI_IDLE,
                              memory_order_seq_cst);
    teffi_monitor_wake(sched);
}

teffi_worker *teffi_idle_choose_parked(const teffi_sched *sched)
{
    teffi_worker *w = teffi_worker_latest_in_state(sched, TEFFI_WORKER_PARKED);
    bool polls = w && w == atomic_load_explicit(&sched->polling, memory_order_relaxed);
    /* Prefer another worker to the one that polls. */
    return polls && TAILQ_NEXT(w, link) ? TAILQ_NEXT(w, link) : w;
}

teffi_worker *teffi_idle_choose_worker(const teffi_sched *sched)
{
    teffi_worker *w = teffi_idle_choose_parked(sched);
    return w ? w : teffi_worker_longest_in_state(sched, TEFFI_WORKER_BLOCKED);
}

teffi_processor *teffi_idle_take_processor(teffi_worker *w)
{
    bool parked = w->state == TEFFI_WORKER_PARKED;
    teffi_idle_remove(w, parked ? TEFFI_WORKER_SPARE : TEFFI_WORKER_OUT, false);
    return teffi_processor_release(w);
}

/* ---- waking ---- */

/* Is a worker searching already, or is no worker idle? in: word, a value of idle_word. */
static bool none_needs_waking(uint32_t word)
{
    return (word & TEFFI_SEARCHING_MASK) != 0 || word < TEFFI_IDLE;
}

/* Make a parked worker RUNNING; the caller wakes its thread. in: searching: count the worker as
 * searching. idle_lock held. */
static void mark_parked_worker_running(teffi_worker *w, bool searching)
{
    teffi_idle_remove(w, TEFFI_WORKER_RUNNING, searching);
    teffi_counter_add(&w->processor->counters.unparks, 1);
}

/* Wake a parked worker, or hand the processor of a blocked one to another worker. Checks idle_word
 * again, because teffi_wake_one() checked it without the lock. */
static void lock_and_wake_one(teffi_sched *sched)
{
    pthread_mutex_lock(&sched->idle_lock);
    teffi_worker *w = teffi_idle_choose_worker(sched);
    if (sched->stopping ||
        none_needs_waking(atomic_load_explicit(&sched->idle_word, memory_order_seq_cst))) {
        w = NULL;
    } else if (w->state == TEFFI_WORKER_PARKED) {
        mark_parked_worker_running(w, true);
    } else {
        w = teffi_processor_assign_to_spare_or_new(sched, teffi_idle_take_processor(w));
    }
    pthread_mutex_unlock(&sched->idle_lock);
    teffi_worker_wake(w);
}

/* Do so many workers run that no other one should be woken (idle.h)? A worker that sleeps in
 * teffi_back_off counts as running. in: word, a value of idle_word. */
static bool enough_workers_are_running(const teffi_sched *sched, uint32_t word)
{
    /* UINT32_MAX: there is no limit. seq_cst: a pusher has made its push before this load; pairs
     * with update_wake_limit */
    uint32_t below = atomic_load_explicit(&sched->wake_below, memory_order_seq_cst);
    return below != UINT32_MAX && atomic_load_explicit(&sched->n_active, memory_order_relaxed) >=
                                      below + word / TEFFI_IDLE;
}

bool teffi_enough_workers_are_running(const teffi_sched *sched)
{
    /* seq_cst: a worker that parks has called teffi_idle_add before this load. So if two workers
     * park at the same time, the second one counts the first one as idle. */
    return enough_workers_are_running(
        sched, atomic_load_explicit(&sched->idle_word, memory_order_seq_cst));
}

void teffi_wake_one(teffi_sched *sched)
{
    /* seq_cst: after the push that made work visible; pairs with teffi_idle_add and
     * teffi_search_end */
    uint32_t word = atomic_load_explicit(&sched->idle_word, memory_order_seq_cst);
    if (none_needs_waking(word))
        return;
    if (enough_workers_are_running(sched, word))
        teffi_wake_backed_off_workers(
            sched); /* a worker that counts as running may be backing off */
    else
        lock_and_wake_one(sched);
}

bool teffi_wake_parked(teffi_sched *sched)
{
    pthread_mutex_lock(&sched->idle_lock);
    teffi_worker *w = sched->stopping ? NULL : teffi_idle_choose_parked(sched);
    if (w)
        mark_parked_worker_running(w, false);
    pthread_mutex_unlock(&sched->idle_lock);
    teffi_worker_wake(w);
    return w;
}

bool teffi_none_idle_or_searching(teffi_sched *sched)
{
    return !atomic_load_explicit(&sched->idle_word, memory_order_relaxed);
}

bool teffi_others_are_idle(teffi_sched *sched)
{
    return atomic_load_explicit(&sched->idle_word, memory_order_relaxed) / TEFFI_IDLE + 1 >=
           atomic_load_explicit(&sched->n_active, memory_order_relaxed);
}

bool teffi_search_begin(teffi_worker *w)
{
    teffi_sched *sched = w->sched;
    uint32_t word = atomic_load_explicit(&sched->idle_word, memory_order_relaxed);
    uint32_t searchers_max = (atomic_load_explicit(&sched->n_active, memory_order_relaxed) + 1) / 2;
    while (!w->searching && (word & TEFFI_SEARCHING_MASK) < searchers_max)
        w->searching =
            atomic_compare_exchange_weak_explicit(&sched->idle_word, &word, word + TEFFI_SEARCHING,
                                                  memory_order_seq_cst, memory_order_relaxed);
    return w->searching;
}

void teffi_search_end(teffi_worker *w)
{
    teffi_sched *sched = w->sched;
    w->searching = false;
    /* seq_cst: a pusher wakes no worker if idle_word still counts this searcher. In that case the
     * push comes before this subtraction, so the last searcher finds the pushed work below. */
    uint32_t word =
        atomic_fetch_sub_explicit(&sched->idle_word, TEFFI_SEARCHING, memory_order_seq_cst);
    if ((word & TEFFI_SEARCHING_MASK) == 1 && word >= TEFFI_IDLE &&
        teffi_processors_have_work(sched))
        teffi_wake_one(sched);
}

/* ---- without a processor ---- */

/* Are there more threads than active processors? Threads are added while turns block or take
 * long. */
static bool has_surplus_threads(const teffi_sched *sched)
{
    return atomic_load_explicit(&sched->n_threads, memory_order_relaxed) >
           atomic_load_explicit(&sched->n_active, memory_order_relaxed);
}

/* If w has slept for SPARE_NS as a spare worker, and there are surplus threads, let its thread end.
 * idle_lock held. out: true: w is ENDED now. */
static bool retire_spare(teffi_worker *w)
{
    teffi_sched *sched = w->sched;
    if (w->state != TEFFI_WORKER_SPARE || !has_surplus_threads(sched) ||
        teffi_now(sched->exec.platform) < w->sleeps_until_ns)
        return false;
    teffi_worker_set_state(w, TEFFI_WORKER_ENDED);
    atomic_fetch_sub_explicit(&sched->n_threads, 1, memory_order_relaxed);
    teffi_monitor_wake(sched); /* the monitor joins the thread */
    return true;
}

uint64_t teffi_idle_set_timeout(teffi_worker *w)
{
    bool is_limited = has_surplus_threads(w->sched);
    w->sleeps_until_ns = is_limited ? teffi_now(w->sched->exec.platform) + SPARE_NS : UINT64_MAX;
    return is_limited ? SPARE_NS : UINT64_MAX;
}

/* Sleep until w is assigned a processor, the scheduler stops, or retire_spare has made w ENDED.
 * idle_lock is held, except during the sleep. */
static void wait_for_processor_locked(teffi_worker *w)
{
    teffi_sched *sched = w->sched;
    uint64_t timeout_ns = teffi_idle_set_timeout(w);
    while (w->state != TEFFI_WORKER_RUNNING && !sched->stopping) {
        if (w->state == TEFFI_WORKER_PARKED) { /* a borrower has returned a processor to w */
            teffi_idle_remove(w, TEFFI_WORKER_RUNNING, false);
            break;
        }
        pthread_mutex_unlock(&sched->idle_lock);
        teffi_parker_wait(&w->parker.parker, timeout_ns);
        pthread_mutex_lock(&sched->idle_lock);
        if (retire_spare(w))
            break;
        timeout_ns = teffi_idle_set_timeout(w);
    }
}

void teffi_wait_for_processor(teffi_worker *w)
{
    pthread_mutex_lock(&w->sched->idle_lock);
    wait_for_processor_locked(w);
    pthread_mutex_unlock(&w->sched->idle_lock);
}

void teffi_regain_processor(teffi_worker *w)
{
    teffi_sched *sched = w->sched;
    pthread_mutex_lock(&sched->idle_lock);
    bool ends = sched->stopping || w->state == TEFFI_WORKER_ENDED;
    teffi_processor *p = ends ? NULL : teffi_processor_find_free(sched);
    if (p) {
        teffi_processor_assign(p, w);
    } else if (!ends) {
        teffi_worker_set_state(w, TEFFI_WORKER_SPARE);
        wait_for_processor_locked(w);
    }
    pthread_mutex_unlock(&sched->idle_lock);
}

void teffi_yield_processor_to_waiter(teffi_worker *w)
{
    teffi_sched *sched = w->sched;
    if (w->searching)
        teffi_search_end(w);
    pthread_mutex_lock(&sched->idle_lock);
    if (teffi_worker_latest_in_state(sched, TEFFI_WORKER_WAITING) && !sched->stopping) {
        teffi_worker *next = teffi_processor_assign_to_waiter(sched, teffi_processor_release(w));
        teffi_worker_set_state(w, TEFFI_WORKER_SPARE);
        teffi_worker_wake(next);
        wait_for_processor_locked(w);
    }
    pthread_mutex_unlock(&sched->idle_lock);
}

/* ---- back-off ---- */

void teffi_back_off(teffi_worker *w, uint64_t ns, uint64_t now)
{
    teffi_sched *sched = w->sched;
    if (w->searching)
        teffi_search_end(w);
    /* seq_cst: before the load of `attention`; pairs with teffi_wake_backed_off_workers() */
    atomic_fetch_add_explicit(&sched->n_backing_off, 1, memory_order_seq_cst);
    /* seq_cst: before the loads below; pairs with teffi_processor_wake, which loads backing_off
     * after a timer was set */
    atomic_store_explicit(&w->backing_off, true, memory_order_seq_cst);
    uint64_t due = teffi_wheel_next_due(&w->processor->wheel);
    if (due < now + ns)
        ns = due > now ? due - now : 0;
    if (ns && !atomic_load_explicit(&sched->attention, memory_order_seq_cst))
        teffi_parker_wait(&w->parker.parker, ns);
    atomic_store_explicit(&w->backing_off, false, memory_order_relaxed);
    atomic_fetch_sub_explicit(&sched->n_backing_off, 1, memory_order_relaxed);
}

void teffi_wake_backed_off_workers(teffi_sched *sched)
{
    /* seq_cst: the caller has made work visible or set `attention` before this load. Pairs with
     * teffi_back_off(), which increments n_backing_off, then loads `attention`. */
    if (!atomic_load_explicit(&sched->n_backing_off, memory_order_seq_cst))
        return;
    pthread_mutex_lock(&sched->idle_lock);
    for (unsigned i = 0; i < sched->n_processors; i++) {
        teffi_worker *w = sched->processors[i].worker;
        if (w && atomic_load_explicit(&w->backing_off, memory_order_seq_cst))
            teffi_worker_wake(w);
    }
    pthread_mutex_unlock(&sched->idle_lock);
}
