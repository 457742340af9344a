/* submit.c - what goes into the scheduler. */
#include "sched/submit.h"

#include "sched/idle.h"
#include "sched/retake.h"
#include "sched/scale.h"

/* out: this thread's worker, if it belongs to sched and is not in a blocking region; else NULL.
 * Only exec ops call this function, directly or through other functions of this file. Exec ops are
 * called through pointers, so they are never inlined into a turn; and they do not suspend. So they
 * stay on one thread, and may read the thread-local teffi_own_worker (see worker.h). */
static teffi_worker *own_unblocked_worker(teffi_sched *sched)
{
    teffi_worker *w = teffi_own_worker;
    return w && w->sched == sched && !w->blocking ? w : NULL;
}

/* ---- groups ---- */

/* A newer group has displaced `group` from the LIFO slot: push `group` to the deque, or to the
 * global queue if memory is out.
 *  - If `group` belongs to no local batch: clear no_steal, then wake a worker.
 *  - If `group` belongs to a local batch that thieves may take from: wake a worker.
 *  - If `group` belongs to any other local batch: set no_steal, and wake no worker. */
static void push_displaced_group(teffi_worker *w, teffi_processor *p, teffi_group *group)
{
    bool pushed = teffi_deque_push(&p->deque, group);
    if (pushed && w->adds_to_batch) {
        /* relaxed: only the owner sets no_steal */
        bool shared = !atomic_load_explicit(&p->no_steal, memory_order_relaxed) &&
                      teffi_deque_count(&p->deque) > 1; /* other groups besides this one */
        if (teffi_local_batch_record_push(&p->batch, shared)) {
            /* relaxed: a thief that still reads false may steal, which is harmless */
            atomic_store_explicit(&p->no_steal, true, memory_order_relaxed);
            return;
        }
    } else {
        if (!pushed)
            teffi_runqueue_push(&w->sched->queue, group);
        (void)teffi_processor_allow_stealing(p);
    }
    teffi_wake_one(w->sched);
}

/* Push the displaced group, and end the use of the processor. This function, submit_to_global_queue
 * and submit_to_system_thread are not inlined, so that a push to an empty LIFO slot need not save
 * registers. */
static __attribute__((noinline)) void push_displaced_group_and_end_use(teffi_worker *w,
                                                                       teffi_processor *p,
                                                                       teffi_group *older,
                                                                       uint32_t was)
{
    push_displaced_group(w, p, older);
    teffi_processor_use_end(w, was);
}

/* Push to the global queue. Wake a worker if one is needed, and all workers that back off. */
static __attribute__((noinline)) void submit_to_global_queue(teffi_sched *sched, teffi_group *group)
{
    teffi_runqueue_push(&sched->queue, group);
    teffi_wake_one(sched);
    teffi_wake_backed_off_workers(sched);
}

/* Put the group into the LIFO slot of w's processor; a group that was there goes to the deque. If w
 * has no processor that it may use, the group goes to the global queue. */
static void submit_to_own_processor(teffi_worker *w, teffi_group *group)
{
    uint32_t was = teffi_processor_use_begin(w);
    teffi_processor *p = teffi_processor_get_usable(w);
    /* relaxed: only this thread and, by the protocol of retake.h, the monitor use the slot */
    teffi_group *older = p ? atomic_load_explicit(&p->lifo, memory_order_relaxed) : NULL;
    if (p)
        atomic_store_explicit(&p->lifo, group, memory_order_relaxed);
    if (older) {
        push_displaced_group_and_end_use(w, p, older, was);
        return;
    }
    teffi_processor_use_end(w, was);
    if (!p)
        submit_to_global_queue(w->sched, group);
}

static inline void submit_to_workers(teffi_sched *sched, teffi_group *group)
{
    teffi_worker *w = own_unblocked_worker(sched);
    if (w)
        submit_to_own_processor(w, group);
    else
        submit_to_global_queue(sched, group);
}

static __attribute__((noinline)) void submit_to_system_thread(teffi_sched *sched,
                                                              teffi_group *group)
{
    if (!teffi_system_submit(sched, group))
        submit_to_workers(sched, group);
}

void teffi_submit_ready(teffi_exec *exec, teffi_group *group)
{
    if (__builtin_expect(group->system, 0))
        submit_to_system_thread(teffi_sched_of(exec), group);
    else
        submit_to_workers(teffi_sched_of(exec), group);
}

/* Does the policy order the group? If so, the group must go to the global queue. */
static bool is_ordered_by_policy(const teffi_sched *sched, const teffi_group *group)
{
    return sched->priorities || (sched->levels && teffi_level_of_group(sched->levels, group) > 0);
}

/* Policy multilevel: groups of levels 1 and 2 go to the global queue, which orders them by level.
 * Other groups are submitted as without a policy. */
void teffi_submit_ready_by_level(teffi_exec *exec, teffi_group *group)
{
    teffi_sched *sched = teffi_sched_of(exec);
    if (group->system || !is_ordered_by_policy(sched, group))
        teffi_submit_ready(exec, group);
    else
        submit_to_global_queue(sched, group);
}

/* All groups but those of the system thread go to the global queue, so that the most urgent one is
 * found first. */
void teffi_submit_ready_by_priority(teffi_exec *exec, teffi_group *group)
{
    teffi_sched *sched = teffi_sched_of(exec);
    if (!group->system || !teffi_system_submit(sched, group))
        submit_to_global_queue(sched, group);
}

void teffi_submit_stealable(teffi_worker *w, teffi_group *group)
{
    if (is_ordered_by_policy(w->sched, group)) {
        submit_to_global_queue(w->sched, group);
        return;
    }
    uint32_t was = teffi_processor_use_begin(w);
    teffi_processor *p = teffi_processor_get_usable(w);
    if (!p || !teffi_deque_push(&p->deque, group))
        teffi_runqueue_push(&w->sched->queue, group);
    if (p)
        (void)teffi_processor_allow_stealing(p);
    teffi_processor_use_end(w, was);
    teffi_wake_one(w->sched);
}

void teffi_submit_yielded_group(teffi_worker *w, teffi_group *group)
{
    teffi_runqueue_push(&w->sched->queue, group);
    uint32_t was = teffi_processor_use_begin(w);
    teffi_processor *p = teffi_processor_get_usable(w);
    if (p)
        teffi_counter_add(&p->counters.requeues, 1);
    teffi_processor_use_end(w, was);
    teffi_wake_one(w->sched);
}

void teffi_call_adding_to_batch(teffi_exec *exec, void (*fn)(void *arg), void *arg)
{
    teffi_worker *w = teffi_worker_self();
    bool adds = w && &w->sched->exec == exec && !w->adds_to_batch;
    if (adds)
        w->adds_to_batch = true;
    fn(arg);
    if (adds)
        w->adds_to_batch = false;
}

/* ---- timers ---- */

/* Set a timer on w's processor. w need not be woken: it looks at the wheel before it sleeps. out:
 * the processor; NULL: the timer was not set, since w has no processor that it may use. */
static teffi_processor *set_timer_on_own_processor(teffi_worker *w, teffi_timer *timer,
                                                   uint64_t due_ns)
{
    uint32_t was = teffi_processor_use_begin(w);
    teffi_processor *p = teffi_processor_get_usable(w);
    if (p)
        (void)teffi_wheel_set_timer(&p->wheel, timer, due_ns);
    teffi_processor_use_end(w, was);
    return p;
}

/* Set the timer on one of the active processors, chosen round robin. out: that processor. */
static teffi_processor *set_timer_on_active_processor(teffi_sched *sched, teffi_timer *timer,
                                                      uint64_t due_ns)
{
    uint32_t i = atomic_fetch_add_explicit(&sched->next_wheel, 1, memory_order_relaxed);
    teffi_processor *p =
        &sched->processors[i % atomic_load_explicit(&sched->n_active, memory_order_relaxed)];
    if (teffi_wheel_set_timer(&p->wheel, timer, due_ns))
        teffi_processor_wake(sched, p);
    return p;
}

void teffi_submit_timer(teffi_exec *exec, teffi_timer *timer, uint64_t due_ns)
{
    teffi_sched *sched = teffi_sched_of(exec);
    teffi_worker *w = own_unblocked_worker(sched);
    teffi_processor *p = w ? set_timer_on_own_processor(w, timer, due_ns) : NULL;
    if (!p)
        p = set_timer_on_active_processor(sched, timer, due_ns);
    if (!teffi_processor_is_active(sched, p)) /* it was deactivated */
        teffi_scale_move_timers(sched, p);
}

/* ---- deferred work ---- */

bool teffi_submit_deferred_work(teffi_exec *exec, teffi_deferred *work)
{
    teffi_worker *w = own_unblocked_worker(teffi_sched_of(exec));
    if (!w || w->refuses_deferred)
        return false;
    uint32_t was = teffi_processor_use_begin(w);
    teffi_processor *p = teffi_processor_get_usable(w);
    if (p)
        teffi_deferral_add(&p->deferral, work, teffi_coarse_ms(exec));
    teffi_processor_use_end(w, was);
    return p != NULL;
}

void teffi_run_deferred_and_refuse_new(teffi_worker *w)
{
    w->refuses_deferred = true;
    (void)teffi_deferral_run(&w->processor->deferral);
    w->refuses_deferred = false;
}
