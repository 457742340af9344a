/* monitor.c - a thread that serves processors whose worker is in a long turn: their LIFO slots and
 * timers; it preempts such turns, retakes processors by the protocol of retake.h, reclaims memory.
 * Way:     every 2.5 ms while a worker runs -> [monitor] -> wake_one, wheel_fire, preempt, retake
 * Threads: its own. When all workers have been parked for a while and nothing is left to reclaim,
 *          it sleeps until a thread calls teffi_monitor_wake.
 * Source:  Go's src/runtime/proc.go (sysmon) */

#include "memory/pool.h"
#include "os/pages.h"
#include "sched/idle.h"
#include "sched/poll.h"
#include "sched/preempt.h"
#include "sched/report.h"
#include "sched/retake.h"

#define OVERDUE_NS 1500000u /* of a timer; workers fire theirs within about a tick of the wheel */
#define MS_NS 1000000u

enum { LOST_MIN = 2 }; /* max(active processors, LOST_MIN) turns may run without a processor */

enum { USAGE_MAX = 64 }; /* workers whose usage a sample reads: three system calls each */

enum { QUIET_TICKS = 4 }; /* then it sleeps without a timeout; waking it costs the waker 5 us */
enum { HEAP_BYTES = 4 * 1024 * 1024 }; /* after so many freed bytes the heap is trimmed */

/* ---- retake a processor, or its LIFO slot, from a turn that takes too long ---- */

/* idle_lock held. Has the number of lost workers (workers that run a turn without a processor)
 * reached its limit? If so, no other processor may be retaken. A worker in a blocking region needs
 * no core and is not counted. */
static bool too_many_workers_are_lost(teffi_sched *sched)
{
    uint32_t n = 0, max = atomic_load_explicit(&sched->n_active, memory_order_relaxed);
    const teffi_worker *w;
    TAILQ_FOREACH (w, &sched->in_state[TEFFI_WORKER_LOST], link)
        n += !atomic_load_explicit(&w->blocked, memory_order_relaxed);
    return n >= (max > LOST_MIN ? max : LOST_MIN);
}

/* Set w->retaken. The caller clears it, unless the processor goes to another worker. idle_lock
 * held.
 * out:  true: w is still in run number `run`, and does not use its processor until retaken is
 *       cleared. */
static bool begin_retake(teffi_worker *w, uint64_t run)
{
    /* seq_cst: the load of using_processor below must come after this store (retake.h) */
    atomic_store_explicit(&w->retaken, 1, memory_order_seq_cst);
    if (!w->sched->no_membarrier)
        teffi_barrier_run_on_all_threads();
    /* seq_cst: pairs with use_begin's exchange. As an acquire, this load pairs with use_end. */
    return !atomic_load_explicit(&w->using_processor, memory_order_seq_cst) &&
           atomic_load_explicit(&w->processor->runs, memory_order_relaxed) == run;
}

/* out: p's worker. NULL: p has no worker, or its worker is not RUNNING, or the scheduler stops.
 * idle_lock held. */
static teffi_worker *running_worker(teffi_sched *sched, const teffi_processor *p)
{
    teffi_worker *w = p->worker;
    return w && w->state == TEFFI_WORKER_RUNNING && !sched->stopping ? w : NULL;
}

bool teffi_retake_processor(teffi_sched *sched, teffi_processor *p, uint64_t run)
{
    teffi_worker *next = NULL;
    pthread_mutex_lock(&sched->idle_lock);
    teffi_worker *w = running_worker(sched, p);
    if (w && !too_many_workers_are_lost(sched)) {
        if (begin_retake(w, run)) {
            /* Let others steal from p: the next worker may run a long turn as well. */
            (void)teffi_processor_allow_stealing(p);
            next = teffi_worker_latest_in_state(sched, TEFFI_WORKER_WAITING)
                       ? teffi_processor_assign_to_waiter(sched, p)
                       : teffi_processor_assign_to_spare_or_new(sched, p);
        }
        if (next) {
            teffi_worker_set_processor(w, NULL);
            atomic_store_explicit(&w->preempt, 1, memory_order_relaxed);
            teffi_worker_set_state(w, TEFFI_WORKER_LOST);
        } else {
            p->worker = w; /* teffi_processor_assign_to_spare_or_new may have cleared it */
            /* release: pairs with teffi_processor_get_usable */
            atomic_store_explicit(&w->retaken, 0, memory_order_release);
        }
    }
    pthread_mutex_unlock(&sched->idle_lock);
    teffi_worker_wake(next);
    return next != NULL;
}

/* If p's worker is still in run number `run`, move the group in p's LIFO slot to the global queue.
 * out: true: a group was moved; the caller calls teffi_wake_one. */
static bool move_lifo_group_to_global_queue(teffi_sched *sched, teffi_processor *p, uint64_t run)
{
    teffi_group *group = NULL;
    pthread_mutex_lock(&sched->idle_lock);
    teffi_worker *w = running_worker(sched, p);
    if (w) {
        if (begin_retake(w, run))
            group = teffi_processor_take_lifo(p);
        /* release: makes the emptied slot visible; pairs with teffi_processor_get_usable */
        atomic_store_explicit(&w->retaken, 0, memory_order_release);
    }
    pthread_mutex_unlock(&sched->idle_lock);
    if (group)
        teffi_runqueue_push(&sched->queue, group);
    return group != NULL;
}

/* ---- the tick ---- */

/* Count the ticks since p's latest run began, whether or not that run has ended. From the second
 * tick on, let other workers take the group in p's LIFO slot and steal p's local batch.
 * out: true: another worker may now find a group that it could not take before; the caller calls
 * teffi_wake_one. */
static bool count_run_ticks_and_allow_stealing(teffi_sched *sched, teffi_processor *p)
{
    uint64_t run = atomic_load_explicit(&p->runs, memory_order_relaxed);
    if (run != p->seen_run) {
        p->seen_run = run;
        p->seen_ticks = 1;
        p->yield_requested = false;
        return false;
    }
    p->seen_ticks += p->seen_ticks < sched->slice_ticks; /* slice_ticks at most */
    bool allowed = teffi_processor_allow_stealing(p);
    /* relaxed: a hint; move_lifo_group_to_global_queue checks */
    bool lifo = atomic_load_explicit(&p->lifo, memory_order_relaxed);
    return (lifo && move_lifo_group_to_global_queue(sched, p, run)) || allowed;
}

/* Check whether there are too few processors. If there is work and no worker waits for a processor,
 * also wake a worker. out: true: a worker waits for a processor, or there is work and no worker is
 * idle or searching. */
static bool check_processor_shortage_and_wake(teffi_sched *sched)
{
    if (atomic_load_explicit(&sched->attention, memory_order_relaxed) & TEFFI_ATTEND_WAITING)
        return true;
    if (!teffi_processors_have_work(sched))
        return false;
    /* Usually a worker was woken when the work was pushed; waking a second one is harmless. */
    teffi_wake_one(sched);
    return teffi_none_idle_or_searching(sched);
}

/* If there are too few processors: request preemption of turns that have used their slice, and one
 * tick later retake their processors. */
static void preempt_turns_over_slice(teffi_sched *sched)
{
    bool looked = false;
    for (unsigned i = 0; i < sched->n_processors; i++) {
        teffi_processor *p = &sched->processors[i];
        if (p->seen_ticks < sched->slice_ticks || !teffi_processor_is_active(sched, p))
            continue;
        if (!looked && !check_processor_shortage_and_wake(sched))
            return;
        looked = true;
        if (!p->yield_requested)
            p->yield_requested = teffi_preempt_request(sched, p);
        else if (teffi_retake_processor(sched, p, p->seen_run))
            p->seen_ticks = 0, p->yield_requested = false;
    }
}

/* Reclaim a part of what was not used for a while: decommit stacks, free pooled objects.
 * out: true: there is more. */
static bool reclaim_memory(teffi_sched *sched, uint64_t now)
{
    bool stacks = teffi_fiber_pool_reclaim(sched->exec.fibers, now);
    if (teffi_sched_has_system_thread(sched))
        stacks |= teffi_fiber_pool_reclaim(sched->exec.system_fibers, now);
    bool objects = teffi_pool_reclaim(now, &sched->monitor.reclaimed_bytes);
    if (!objects && sched->monitor.reclaimed_bytes >= HEAP_BYTES) {
        sched->monitor.reclaimed_bytes = 0;
        teffi_pages_trim_heap();
    }
    return stacks || objects;
}

/* ---- contention for cores ---- */

/* For at most USAGE_MAX workers that have a processor: add to *sample how long they ran since the
 * last sample, and how long they waited for a core. */
static void add_worker_usage_to_sample(teffi_sched *sched, teffi_contention_sample *sample)
{
    teffi_worker *some[USAGE_MAX]; /* used after unlock: workers live as long as sched */
    unsigned n = 0;
    pthread_mutex_lock(&sched->idle_lock);
    for (unsigned i = 0; i < sched->n_processors && n < USAGE_MAX; i++)
        if (sched->processors[i].worker)
            some[n++] = sched->processors[i].worker;
    pthread_mutex_unlock(&sched->idle_lock);
    for (unsigned i = 0; i < n; i++) {
        uint64_t ran_ns, delayed_ns;
        if (!teffi_thread_read_run_times(&some[i]->thread, &ran_ns, &delayed_ns))
            continue;
        /* Both numbers only rise, but begin at 0 if the worker has got a new thread. */
        if (ran_ns >= some[i]->ran_ns && delayed_ns >= some[i]->delayed_ns) {
            sample->ran_ns += ran_ns - some[i]->ran_ns;
            sample->delayed_ns += delayed_ns - some[i]->delayed_ns;
        }
        some[i]->ran_ns = ran_ns;
        some[i]->delayed_ns = delayed_ns;
    }
}

/* If a sample is due, take it, and compute the limit of running workers from it. */
static void sample_contention_if_due(teffi_sched *sched, uint64_t now)
{
    teffi_contention *c = &sched->monitor.contention;
    teffi_contention_sample sample = {.now_ns = now};
    uint32_t active = atomic_load_explicit(&sched->n_active, memory_order_relaxed);
    if (c->n != active)
        teffi_contention_reset(c, active);
    if (active == 1 || !teffi_contention_sample_is_due(c, now))
        return;
    for (unsigned i = 0; i < sched->n_processors; i++)
        sample.items += teffi_processor_count_handled_items(&sched->processors[i]);
    sample.cpu_ns = teffi_os_process_cpu_ns();
    add_worker_usage_to_sample(sched, &sample);
    teffi_contention_update(c, &sample);
}

/* out: the number of processors that will not soon take a group from the queues: their worker was
 * in the same run at two ticks, or they are active but no thread could be started for them. */
static uint32_t count_unavailable_processors(teffi_sched *sched)
{
    uint32_t n = 0;
    pthread_mutex_lock(&sched->idle_lock);
    for (unsigned i = 0; i < sched->n_processors; i++) {
        const teffi_processor *p = &sched->processors[i];
        n += p->worker ? p->seen_ticks > 1 && running_worker(sched, p)
                       : teffi_processor_is_active(sched, p);
    }
    pthread_mutex_unlock(&sched->idle_lock);
    return n;
}

/* Set wake_below. While at least wake_below workers run, no other worker is woken (UINT32_MAX: no
 * limit). The value is the limit of policy/contention.h, plus the number of processors that will
 * not soon take a group from the queues.
 * out: true: wake_below has risen, and there is work; the caller wakes a worker. */
static bool update_wake_limit(teffi_sched *sched)
{
    const teffi_contention *c = &sched->monitor.contention;
    uint32_t below = c->limit < c->n ? c->limit + count_unavailable_processors(sched) : UINT32_MAX;
    uint32_t before = atomic_load_explicit(&sched->wake_below, memory_order_relaxed);
    if (below == before)
        return false;
    /* seq_cst: the look at the queues must come after this store; pairs with
     * enough_workers_are_running, whose load comes after a push */
    atomic_store_explicit(&sched->wake_below, below, memory_order_seq_cst);
    return below > before && teffi_processors_have_work(sched);
}

static void run_tick(teffi_sched *sched)
{
    uint64_t now = teffi_now(sched->exec.platform);
    bool wakes = false; /* stealing was allowed, or the limit of running workers has risen */
    teffi_coarse_ms_set(&sched->exec, (uint32_t)(now / MS_NS));
    for (unsigned i = 0; i < sched->n_processors; i++) {
        teffi_processor *p = &sched->processors[i];
        wakes |= count_run_ticks_and_allow_stealing(sched, p);
        if (p->seen_ticks > 1)
            (void)teffi_deferral_run(&p->deferral); /* its worker may be in a long turn */
        uint64_t due = teffi_wheel_next_due(&p->wheel);
        if (due < now && now - due > OVERDUE_NS)
            teffi_wheel_fire_due_timers(&p->wheel, now);
    }
    sample_contention_if_due(sched, now);
    wakes |= update_wake_limit(sched);
    if (wakes) {
        teffi_wake_one(sched);
        teffi_wake_backed_off_workers(sched);
    }
    preempt_turns_over_slice(sched);
    teffi_poll_ensure_polling(sched);
    teffi_preempt_interrupt_lost_workers(sched);
    teffi_log_long_turns(sched, now);
    teffi_log_thread_refusal(sched);
    teffi_workers_join_ended(sched);
    sched->monitor.reclaims = reclaim_memory(sched, now);
}

/* out: true: each worker that has a processor is parked, and each active processor has a worker.
 * idle_lock held. */
static bool all_workers_are_parked(const teffi_sched *sched)
{
    for (unsigned i = 0; i < sched->n_processors; i++) {
        const teffi_processor *p = &sched->processors[i];
        if (p->worker ? p->worker->state != TEFFI_WORKER_PARKED
                      : teffi_processor_is_active(sched, p))
            return false;
    }
    return true;
}

/* May the monitor sleep? True if all workers are parked, nothing is left to reclaim and, if there
 * is a poller, a worker waits in it. idle_lock held. */
static bool monitor_may_sleep(const teffi_sched *sched)
{
    return all_workers_are_parked(sched) && !sched->monitor.reclaims &&
           (!teffi_sched_has_poller(sched) ||
            atomic_load_explicit(&sched->polling, memory_order_relaxed));
}

/* Check monitor_may_sleep, and count in *quiet at how many calls in a row it was true. If there
 * were more than QUIET_TICKS such calls, and the scheduler does not stop, announce that the monitor
 * sleeps without a timeout: set monitor_asleep, and set the coarse clock to 0. Otherwise clear
 * monitor_asleep.
 * out: true: the monitor must sleep until a thread calls teffi_monitor_wake. */
static bool announce_monitor_sleep_if_allowed(teffi_sched *sched, unsigned *quiet)
{
    pthread_mutex_lock(&sched->idle_lock);
    *quiet = monitor_may_sleep(sched) ? *quiet + 1 : 0;
    bool asleep = *quiet > QUIET_TICKS && !sched->stopping;
    sched->monitor_asleep = asleep;
    if (asleep)
        teffi_coarse_ms_set(&sched->exec, 0); /* 0: the time is not known */
    pthread_mutex_unlock(&sched->idle_lock);
    return asleep;
}

void teffi_monitor_main(void *arg)
{
    teffi_sched *sched = arg;
    unsigned quiet = 0;
    while (!teffi_sched_is_stopping(sched)) {
        bool asleep = announce_monitor_sleep_if_allowed(sched, &quiet);
        if (asleep)
            quiet = 0;
        teffi_parker_wait(&sched->monitor.parker, asleep ? UINT64_MAX : TEFFI_MONITOR_NS);
        run_tick(sched);
    }
}
