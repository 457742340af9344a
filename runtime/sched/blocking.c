/* blocking.c - while a worker's thread blocks in a call, another worker may use its processor.
 * Way:     a turn -> [blocking] -> a waiting worker | the idle list, from which wake_one takes it
 * States:  RUNNING -begin-> BLOCKED (keeps its processor until another worker needs it) -> OUT
 *          -end-> RUNNING with a free or an idle worker's processor; else the turn yields, or if it
 *          cannot, the worker is WAITING
 * Threads: the turn's own.
 * Source:  Go's src/runtime/proc.go (entersyscall, exitsyscall, handoffp) */
#include "sched/exec.h"

#include <teff/sched.h>
#include "sched/idle.h"
#include "sched/poll.h"
#include "sched/preempt.h"
#include "sched/retake.h"

static teffi_worker *find_own_worker(teffi_exec *exec)
{
    teffi_worker *w = teffi_worker_self();
    return w && &w->sched->exec == exec ? w : NULL;
}

/* Before a blocking region: run the deferred work of w's processor, let thieves steal its groups,
 * and offer the processor to other workers. If a worker waits for a processor, it gets this one.
 * Else w becomes BLOCKED and keeps its processor until another worker needs it.
 * runs: between teffi_processor_use_begin and _use_end. */
static void offer_processor(teffi_worker *w)
{
    teffi_sched *sched = w->sched;
    (void)teffi_deferral_run(&w->processor->deferral);
    teffi_group *group = teffi_processor_take_lifo(w->processor);
    if (group) /* thieves do not look at the LIFO slot */
        teffi_runqueue_push(&sched->queue, group);
    (void)teffi_processor_allow_stealing(w->processor);
    pthread_mutex_lock(&sched->idle_lock);
    /* Once stopping is set, waiting workers go on without a processor: assign none. */
    if (sched->stopping || !teffi_worker_latest_in_state(sched, TEFFI_WORKER_WAITING)) {
        teffi_idle_add(w, TEFFI_WORKER_BLOCKED);
    } else {
        teffi_worker *next = teffi_processor_assign_to_waiter(sched, teffi_processor_release(w));
        teffi_worker_set_state(w, TEFFI_WORKER_OUT);
        teffi_worker_wake(next);
    }
    pthread_mutex_unlock(&sched->idle_lock);
    if (teffi_processors_have_work(sched))
        teffi_wake_one(sched);
    teffi_poll_wake_if_none_polls(sched);
}

void teffi_blocking_begin(teffi_exec *exec)
{
    teffi_worker *w = find_own_worker(exec);
    teffi_may_suspend(); /* teffi_blocking_end may suspend the turn */
    if (!w || w->blocking++)
        return;
    /* relaxed: the monitor may see it late */
    atomic_store_explicit(&w->blocked, true, memory_order_relaxed);
    uint32_t was = teffi_processor_use_begin_await_retake(w);
    if (w->processor)
        offer_processor(w);
    teffi_processor_use_end(w, was);
}

/* Assign w a free processor, or if there is none, that of an idle worker. idle_lock held.
 * out: false: no worker is idle either. */
static bool assign_free_or_idle_processor(teffi_worker *w)
{
    teffi_processor *p = teffi_processor_find_free(w->sched);
    teffi_worker *idle = p ? NULL : teffi_idle_choose_worker(w->sched);
    if (idle)
        p = teffi_idle_take_processor(idle);
    if (p)
        teffi_processor_assign(p, w);
    return p;
}

/* After a blocking region: get a processor for w. w keeps its own if nobody has taken it; else it
 * gets a free one or that of an idle worker. If there is none and the turn cannot yield, w waits.
 * out: false: w has no processor, and the caller must yield the turn. true: w has a processor, or
 *      needs none: it is the system thread, or the scheduler stops. */
static bool regain_processor(teffi_worker *w)
{
    teffi_sched *sched = w->sched;
    bool waits = false, yields = false;
    pthread_mutex_lock(&sched->idle_lock);
    if (w->state == TEFFI_WORKER_BLOCKED) {
        teffi_idle_remove(w, TEFFI_WORKER_RUNNING, false);
    } else if ((w->state == TEFFI_WORKER_OUT || w->state == TEFFI_WORKER_LOST) &&
               !sched->stopping && !assign_free_or_idle_processor(w)) {
        yields = teffi_turn_may_yield(w);
        waits = !yields;
    }
    if (waits) {
        teffi_worker_set_state(w, TEFFI_WORKER_WAITING);
        /* seq_cst: stored before teffi_wake_backed_off_workers loads n_backing_off; pairs with
         * teffi_back_off(), which loads `attention` */
        atomic_fetch_or_explicit(&sched->attention, TEFFI_ATTEND_WAITING, memory_order_seq_cst);
    }
    pthread_mutex_unlock(&sched->idle_lock);
    if (waits) {
        teffi_wake_backed_off_workers(sched);
        teffi_wait_for_processor(w);
    }
    return !yields;
}

void teffi_blocking_end(teffi_exec *exec)
{
    teffi_worker *w = find_own_worker(exec);
    teffi_may_suspend();
    if (!w || !w->blocking || --w->blocking)
        return;
    /* Set using_processor first: if w waits for a processor and gets one, that processor must not
     * be retaken before w wakes. */
    uint32_t was = teffi_processor_use_begin(w);
    bool has_processor = regain_processor(w);
    atomic_store_explicit(&w->blocked, false, memory_order_relaxed);
    teffi_processor_use_end(w, was); /* before the yield: the turn may resume on another worker */
    if (!has_processor)
        (void)teffi_turn_yield(w, false); /* queues the group globally; this thread becomes spare */
}

void teff_blocking_begin(void)
{
    teffi_worker *w = teffi_worker_self();
    if (w)
        teffi_blocking_begin(&w->sched->exec);
}

void teff_blocking_end(void)
{
    teffi_worker *w = teffi_worker_self();
    if (w)
        teffi_blocking_end(&w->sched->exec);
}

void teffi_blocking_end_all(void)
{
    /* Look up the worker each time: teffi_blocking_end may move the turn to another worker. */
    for (teffi_worker *w; (w = teffi_worker_self()) && w->blocking;)
        teffi_blocking_end(&w->sched->exec);
}
