/* poll.c - parking, in the poller or by the parker; looks of busy workers; the monitor's part. */
#include "sched/poll.h"

#include "base/bug.h"
#include "sched/idle.h"
#include "sched/submit.h"

/* The longest sleep of a worker that has timers. While the machine is suspended, the timers' clock
 * advances but a thread's timeout does not: afterwards a timer is late by this at most. */
#define SLEEP_MAX_NS 2000000000u
enum { LOOK_EVERY = 64 }; /* passes; a look takes 300 ns, 64 short turns take 2 to 4 us */

static teffi_poller *get_poller(const teffi_sched *sched)
{
    /* acquire: pairs with teffi_poll_set_poller */
    return atomic_load_explicit(&sched->poller, memory_order_acquire);
}

void teffi_poll_set_poller(teffi_exec *exec, teffi_poller *poller)
{
    teffi_sched *sched = teffi_sched_of(exec);
    teffi_bug_if(teffi_sched_has_poller(sched));
    /* release: publishes what poller points to; pairs with get_poller */
    atomic_store_explicit(&sched->poller, poller, memory_order_release);
    /* A worker that parks at this moment may have loaded NULL instead of the poller. So wake a
     * parked worker, which then polls. */
    (void)teffi_wake_parked(sched);
}

/* ---- events ---- */

typedef struct events {
    teffi_poller *poller;
    bool found;
} events;

static void run_poller(void *arg)
{
    events *e = arg;
    e->found = e->poller->run(e->poller);
}

/* Handle the events that poller->wait has found. Groups that become READY are added to the local
 * batch of this thread's worker, if it may use a processor. out: true: there were events. */
static bool handle_events(teffi_sched *sched, teffi_poller *poller)
{
    events e = {.poller = poller};
    teffi_call_adding_to_batch(&sched->exec, run_poller, &e);
    return e.found;
}

/* A look is a poll without waiting. Schedule this processor's next look: it is due when the coarse
 * clock changes. If events were found just now, it is also due when the worker's loop has made
 * LOOK_EVERY more passes. */
static void schedule_next_poller_look(teffi_worker *w, bool found)
{
    teffi_processor *p = w->processor;
    p->looked_ms = teffi_coarse_ms(&w->sched->exec);
    p->look_at = p->tick + (found ? LOOK_EVERY : INT32_MAX);
}

/* ---- parking ---- */

/* Set sleeps_until_ns to the time at which the processor's next timer is due. If no timer is set,
 * call teffi_idle_set_timeout instead. idle_lock held. out: the longest time to sleep, in ns;
 * UINT64_MAX: there is no limit. */
static uint64_t set_park_timeout(teffi_worker *w)
{
    uint64_t due = teffi_wheel_next_due(&w->processor->wheel);
    if (due == UINT64_MAX)
        return teffi_idle_set_timeout(w);
    w->sleeps_until_ns = due;
    uint64_t now = teffi_now(w->sched->exec.platform);
    uint64_t left = due > now ? due - now : 0;
    return left < SLEEP_MAX_NS ? left : SLEEP_MAX_NS;
}

/* Leave PARKED, unless another thread has woken this worker or taken its processor. out: the new
 * state; RUNNING: it has a processor, its own or another one. */
static teffi_worker_state leave_parked_state(teffi_worker *w, bool searching)
{
    pthread_mutex_lock(&w->sched->idle_lock);
    if (w->state == TEFFI_WORKER_PARKED)
        teffi_idle_remove(w, TEFFI_WORKER_RUNNING, searching);
    teffi_worker_state state = w->state;
    pthread_mutex_unlock(&w->sched->idle_lock);
    return state;
}

/* Claim the poller, to wait in it. out: NULL: there is no poller, another thread polls, or enough
 * workers are running (a running worker looks for events itself). */
static teffi_poller *claim_poller(teffi_worker *w)
{
    teffi_sched *sched = w->sched;
    teffi_poller *poller = get_poller(sched);
    if (!poller || teffi_enough_workers_are_running(sched) || !teffi_poller_claim(poller))
        return NULL;
    /* relaxed: if the monitor sees sched->polling late, it only goes to sleep later, because it
     * ticks until a worker polls. sched->waits is only a hint. */
    atomic_store_explicit(&sched->polling, w, memory_order_relaxed);
    atomic_fetch_add_explicit(&sched->waits, 1, memory_order_relaxed);
    return poller;
}

/* Handle the events that the wait has found, then release the poller. Called after
 * leave_parked_state. If has_processor is false, w has lost its processor. If so, the groups that
 * become READY go to the global queue, and w wakes a parked worker, which polls next. Another
 * thread may assign a new processor to w while this function runs, so this function must not access
 * that processor. */
static void handle_events_and_release_poller(teffi_worker *w, teffi_poller *poller,
                                             bool has_processor)
{
    teffi_sched *sched = w->sched;
    w->blocking += !has_processor; /* as in a blocking region, it uses no processor */
    bool found = handle_events(sched, poller);
    w->blocking -= !has_processor;
    atomic_store_explicit(&sched->polling, NULL, memory_order_relaxed);
    teffi_poller_release(poller);
    if (has_processor)
        schedule_next_poller_look(w, found);
    else
        (void)teffi_wake_parked(sched);
}

/* Sleep, in the poller if w can claim it. Then leave PARKED, and handle the events that the poller
 * has found. out: false: w has lost its processor, and had no other one after the sleep. */
static bool sleep_and_handle_poller_events(teffi_worker *w, uint64_t timeout_ns)
{
    teffi_poller *poller = claim_poller(w);
    (void)teffi_parker_wait_in_poller(&w->parker, poller,
                                      timeout_ns); /* w->state tells what has happened */
    bool has_processor = leave_parked_state(w, false) == TEFFI_WORKER_RUNNING;
    if (poller)
        handle_events_and_release_poller(w, poller, has_processor);
    return has_processor;
}

void teffi_park(teffi_worker *w)
{
    teffi_sched *sched = w->sched;
    pthread_mutex_lock(&sched->idle_lock);
    if (sched->stopping || teffi_worker_latest_in_state(sched, TEFFI_WORKER_WAITING) ||
        !teffi_processor_is_active(sched, w->processor)) {
        pthread_mutex_unlock(&sched->idle_lock);
        if (w->searching)
            teffi_search_end(w);
        return; /* run_pass gives the processor to a waiter, leaves the processor, or ends */
    }
    teffi_idle_add(w, TEFFI_WORKER_PARKED);
    teffi_counter_add(&w->processor->counters.parks, 1);
    /* Load the next timer after teffi_idle_add: from then on, a thread that sets an earlier timer
     * wakes w (teffi_processor_wake). */
    uint64_t timeout_ns = set_park_timeout(w);
    pthread_mutex_unlock(&sched->idle_lock);
    bool found = teffi_processors_have_work(sched);
    bool has_processor = found ? leave_parked_state(w, true) == TEFFI_WORKER_RUNNING
                               : sleep_and_handle_poller_events(w, timeout_ns);
    if (has_processor)
        return;
    /* Another worker has the processor now. The work that was found still needs a worker: pushers
     * may have relied on this one. */
    if (found)
        teffi_wake_one(sched);
    teffi_wait_for_processor(w);
}

/* ---- a busy worker ---- */

/* Poll without waiting, and handle the events. out: true: there were events. false: there were
 * none, or another thread polls. */
static bool poll_and_handle_events(teffi_sched *sched, teffi_poller *poller)
{
    if (!teffi_poller_claim(poller))
        return false;
    poller->wait(poller, 0);
    bool found = handle_events(sched, poller);
    teffi_poller_release(poller);
    return found;
}

void teffi_poll_handle_events_if_due(teffi_worker *w)
{
    const teffi_processor *p = w->processor;
    teffi_poller *poller = get_poller(w->sched);
    if (!poller || w->searching)
        return;
    if (teffi_coarse_ms(&w->sched->exec) != p->looked_ms || (int32_t)(p->tick - p->look_at) >= 0)
        schedule_next_poller_look(w, poll_and_handle_events(w->sched, poller));
}

void teffi_poll_wake_if_none_polls(teffi_sched *sched)
{
    /* relaxed: hints; if a value was old, the monitor wakes a worker at one of its next ticks */
    if (atomic_load_explicit(&sched->wake_below, memory_order_relaxed) != UINT32_MAX &&
        teffi_sched_has_poller(sched) &&
        !atomic_load_explicit(&sched->polling, memory_order_relaxed) &&
        !teffi_enough_workers_are_running(sched))
        (void)teffi_wake_parked(sched);
}

/* ---- the monitor ---- */

void teffi_poll_ensure_polling(teffi_sched *sched)
{
    teffi_poller *poller = get_poller(sched);
    if (!poller)
        return;
    /* relaxed: hints; a change that is missed is seen at the next tick */
    uint32_t claims = atomic_load_explicit(&poller->claims, memory_order_relaxed);
    uint32_t waits = atomic_load_explicit(&sched->waits, memory_order_relaxed);
    bool is_free = !atomic_load_explicit(&poller->claimed, memory_order_relaxed);
    bool none_waited = is_free && waits == sched->monitor.seen_waits;
    bool none_looked = none_waited && claims == sched->monitor.seen_claims;
    sched->monitor.seen_claims = claims;
    sched->monitor.seen_waits = waits;
    bool woke = none_waited && !teffi_enough_workers_are_running(sched) && teffi_wake_parked(sched);
    if (none_looked && !woke)
        poller->neglected(poller);
}
