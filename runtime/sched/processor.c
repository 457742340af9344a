/* processor.c - P: what it contains, and which worker holds it. */
#include "sched/processor.h"

#include <stdlib.h>
#include <string.h>
#include "sched/scheduler.h"

bool teffi_processors_init(teffi_sched *sched, unsigned n)
{
    const teffi_platform *platform = sched->exec.platform;
    uint64_t now = teffi_now(platform);
    sched->processors = aligned_alloc(_Alignof(teffi_processor), n * sizeof *sched->processors);
    if (!sched->processors)
        return false;
    memset(sched->processors, 0, n * sizeof *sched->processors);
    for (unsigned i = 0; i < n; i++) {
        teffi_processor *p = &sched->processors[i];
        teffi_wheel_init(&p->wheel, i + 1, now);
        sched->n_processors++;
        if (!teffi_deque_init(&p->deque))
            return false;
        atomic_init(&p->runs, 1);
        p->now_ns = now;
        p->rng = platform->random(platform->arg) | 1;
    }
    return true;
}

void teffi_processors_fini(teffi_sched *sched)
{
    for (unsigned i = 0; i < sched->n_processors; i++)
        teffi_deque_fini(&sched->processors[i].deque);
    free(sched->processors);
}

bool teffi_processors_have_work(teffi_sched *sched)
{
    if (teffi_runqueue_count(&sched->queue))
        return true;
    for (unsigned i = 0; i < sched->n_processors; i++)
        if (teffi_deque_count(&sched->processors[i].deque) &&
            !teffi_processor_forbids_stealing(&sched->processors[i]))
            return true;
    return false;
}

void teffi_processor_fire_timers(teffi_processor *p, const teffi_platform *platform)
{
    p->now_ns = teffi_now(platform);
    if (p->now_ns >= teffi_wheel_next_due(&p->wheel))
        teffi_wheel_fire_due_timers(&p->wheel, p->now_ns);
}

void teffi_processor_wake(teffi_sched *sched, teffi_processor *p)
{
    pthread_mutex_lock(&sched->idle_lock);
    teffi_worker *w = p->worker;
    /* seq_cst: the caller has set a timer in p's wheel before this load. Pairs with
     * teffi_back_off, which sets backing_off, then reads when the wheel's next timer is due. */
    if (w && (w->state == TEFFI_WORKER_PARKED ||
              atomic_load_explicit(&w->backing_off, memory_order_seq_cst)))
        teffi_worker_wake(w);
    pthread_mutex_unlock(&sched->idle_lock);
}

void teffi_processor_assign(teffi_processor *p, teffi_worker *w)
{
    teffi_worker_set_state(w, TEFFI_WORKER_RUNNING);
    teffi_worker_set_processor(w, p);
    p->worker = w;
    /* relaxed: idle_lock orders this store. Either w's own thread calls this function, or w's
     * thread locks idle_lock before it uses p. */
    atomic_store_explicit(&w->retaken, 0, memory_order_relaxed);
}

teffi_processor *teffi_processor_release(teffi_worker *w)
{
    teffi_processor *p = w->processor;
    teffi_worker_set_processor(w, NULL);
    p->worker = NULL;
    (void)teffi_processor_allow_stealing(p);
    return p;
}

teffi_worker *teffi_processor_assign_to_waiter(teffi_sched *sched, teffi_processor *p)
{
    teffi_worker *w = teffi_worker_longest_in_state(sched, TEFFI_WORKER_WAITING);
    teffi_processor_assign(p, w);
    if (!teffi_worker_latest_in_state(sched, TEFFI_WORKER_WAITING))
        atomic_fetch_and_explicit(&sched->attention, ~(uint32_t)TEFFI_ATTEND_WAITING,
                                  memory_order_relaxed);
    return w;
}

teffi_worker *teffi_processor_assign_to_spare_or_new(teffi_sched *sched, teffi_processor *p)
{
    teffi_worker *w = teffi_worker_latest_in_state(sched, TEFFI_WORKER_SPARE);
    /* Count the worker as searching before it starts: it begins with a search. */
    atomic_fetch_add_explicit(&sched->idle_word, TEFFI_SEARCHING, memory_order_seq_cst);
    if (w) {
        w->searching = true;
        teffi_processor_assign(p, w);
        return w;
    }
    w = teffi_worker_start(sched, p, true);
    if (!w)
        atomic_fetch_sub_explicit(&sched->idle_word, TEFFI_SEARCHING, memory_order_seq_cst);
    return w;
}

teffi_processor *teffi_processor_find_free(teffi_sched *sched)
{
    uint32_t active = atomic_load_explicit(&sched->n_active, memory_order_relaxed);
    for (uint32_t i = 0; i < active; i++)
        if (!sched->processors[i].worker)
            return &sched->processors[i];
    return NULL;
}
