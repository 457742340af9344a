/* worker.c - M: which worker this thread is, lists of workers, their threads. */
#include "sched/worker.h"

#include <stdio.h>
#include <stdlib.h>
#include "base/bug.h"
#include "base/log.h"
#include "sched/scheduler.h"

TEFFI_LOCAL teffi_worker *teffi_own_worker;

__attribute__((noinline)) teffi_worker *teffi_worker_self(void)
{
    return teffi_own_worker;
}

__attribute__((noinline)) void teffi_worker_set_self(teffi_worker *w)
{
    teffi_own_worker = w;
}

void teffi_abort_for_rule_broken_by_turn(const teffi_worker *w, const char *rule)
{
    char who[TEFFI_DESCRIBE_MAX];
    teffi_running_group_describe(atomic_load_explicit(&w->running, memory_order_relaxed), who);
    teffi_abort_for_broken_rule(who, rule);
}

void teffi_worker_wake(teffi_worker *w)
{
    if (w)
        teffi_parker_wake(&w->parker.parker);
}

/* ---- lists ---- */

void teffi_worker_set_state(teffi_worker *w, teffi_worker_state state)
{
    TAILQ_REMOVE(&w->sched->in_state[w->state], w, link);
    w->state = state;
    TAILQ_INSERT_HEAD(&w->sched->in_state[state], w, link);
}

void teffi_worker_set_processor(teffi_worker *w, teffi_processor *p)
{
    w->processor = p;
    atomic_store_explicit(&w->held, p ? (uint32_t)(p - w->sched->processors) + 1 : 0,
                          memory_order_relaxed);
}

teffi_worker *teffi_worker_latest_in_state(const teffi_sched *sched, teffi_worker_state state)
{
    return TAILQ_FIRST(&sched->in_state[state]);
}

teffi_worker *teffi_worker_longest_in_state(const teffi_sched *sched, teffi_worker_state state)
{
    return TAILQ_LAST(&sched->in_state[state], teffi_worker_list);
}

/* ---- threads ---- */

/* Grow the array of workers if it is full. idle_lock held. out: false: memory is out. */
static bool make_room_for_worker(teffi_sched *sched)
{
    if (sched->n_workers < sched->workers_room)
        return true;
    unsigned room = sched->workers_room ? sched->workers_room * 2 : 16;
    teffi_worker **more = realloc(sched->workers, room * sizeof *more);
    if (!more)
        return false;
    sched->workers = more;
    sched->workers_room = room;
    return true;
}

void teffi_worker_init(teffi_worker *w, teffi_sched *sched, uint32_t number)
{
    w->sched = sched;
    w->number = number;
    atomic_init(&w->using_processor, 1);
    TAILQ_INSERT_HEAD(&sched->in_state[w->state], w, link);
}

/* Make a worker without a thread and add it to sched->workers. Workers are freed with the
 * scheduler, not earlier, since they are read without a lock. out: NULL: memory is out. */
static teffi_worker *worker_new(teffi_sched *sched)
{
    teffi_worker *w = make_room_for_worker(sched) ? calloc(1, sizeof *w) : NULL;
    if (!w)
        return NULL;
    teffi_worker_init(w, sched, sched->n_workers);
    sched->workers[sched->n_workers++] = w;
    return w;
}

/* Record for teffi_log_thread_refusal why no thread was started. Only the first reason is recorded,
 * since only one is logged. out: NULL, which teffi_worker_start returns. */
static teffi_worker *record_first_thread_refusal(teffi_sched *sched, const char *why)
{
    if (!sched->refused_once) /* relaxed: a constant text */
        atomic_store_explicit(&sched->refusal, why, memory_order_relaxed);
    sched->refused_once = true;
    return NULL;
}

teffi_worker *teffi_worker_start(teffi_sched *sched, teffi_processor *p, bool searching)
{
    uint32_t threads = atomic_load_explicit(&sched->n_threads, memory_order_relaxed);
    if (threads == sched->threads_max)
        return record_first_thread_refusal(sched,
                                           "the limit, teff_sched_options.threads_max, is reached");
    teffi_worker *w = teffi_worker_latest_in_state(sched, TEFFI_WORKER_VACANT);
    if (!w && !(w = worker_new(sched)))
        return record_first_thread_refusal(sched, "memory is out");
    char name[32];
    snprintf(name, sizeof name, "teff-w%u", w->number);
    w->searching = searching; /* before the start: the thread reads these fields */
    teffi_worker_set_processor(w, p);
    p->worker = w;
    if (teffi_thread_start(&w->thread, name, sched->worker_main, w)) {
        p->worker = NULL;
        teffi_worker_set_processor(w, NULL);
        teffi_worker_set_state(w, TEFFI_WORKER_VACANT);
        return record_first_thread_refusal(sched, "the system refused to start one");
    }
    teffi_worker_set_state(w, TEFFI_WORKER_RUNNING);
    atomic_store_explicit(&sched->n_threads, threads + 1, memory_order_relaxed);
    return w;
}

void teffi_workers_join_ended(teffi_sched *sched)
{
    pthread_mutex_lock(&sched->idle_lock);
    for (teffi_worker *w; (w = teffi_worker_latest_in_state(sched, TEFFI_WORKER_ENDED));) {
        pthread_mutex_unlock(&sched->idle_lock);
        teffi_thread_join(&w->thread); /* unlocked: the thread may lock idle_lock before it ends */
        pthread_mutex_lock(&sched->idle_lock);
        teffi_worker_set_state(w, TEFFI_WORKER_VACANT);
    }
    pthread_mutex_unlock(&sched->idle_lock);
}

void teffi_workers_join_all(teffi_sched *sched)
{
    /* n_workers does not change any more, since stopping is set. */
    for (unsigned i = 0; i < sched->n_workers; i++) {
        teffi_worker *w = sched->workers[i];
        pthread_mutex_lock(&sched->idle_lock);
        bool has_thread = w->state != TEFFI_WORKER_VACANT;
        pthread_mutex_unlock(&sched->idle_lock);
        if (has_thread)
            teffi_thread_join(&w->thread);
    }
}

void teffi_workers_free(teffi_sched *sched)
{
    for (unsigned i = 0; i < sched->n_workers; i++)
        free(sched->workers[i]);
    free(sched->workers);
}

void teffi_log_thread_refusal(teffi_sched *sched)
{
    const char *why = atomic_load_explicit(&sched->refusal, memory_order_relaxed);
    if (!why)
        return;
    atomic_store_explicit(&sched->refusal, NULL, memory_order_relaxed);
    teffi_logf(&sched->exec.platform->log, TEFF_LOG_ERROR,
               "no thread for work that waits beside blocking calls: %s (%u threads run)", why,
               atomic_load_explicit(&sched->n_threads, memory_order_relaxed));
}
