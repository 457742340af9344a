/* find.c - where a worker looks for its next group. Every 61st pick that is not from the LIFO slot,
 * one after 256 from it in a row, and one every 10 ms, is a fair pick: it begins with the oldest
 * work, so that newest-first order starves nothing.
 * Way:     LIFO slot (a bounded run) -> own deque -> global queue (one, and a batch) -> steal half
 * Source:  Go's src/runtime/proc.go (findRunnable); tokio's
 *          runtime/scheduler/multi_thread/worker.rs (next_task) */
#include "sched/run.h"

#include "base/hash.h"
#include "sched/idle.h"
#include "sched/poll.h"

/* After so many picks from the LIFO slot in a row, a fair pick follows. One run of a group may
 * handle as many items. */
enum { LIFO_PICKS_MAX = 256 };
enum { FAIR_EVERY = 61 }; /* picks, without those from the LIFO slot; a prime, as in Go */
enum { FAIR_MS = 10 };    /* coarse clock; for turns so long that 61 picks take too much time */
enum {
    ROUNDS_TIGHT = 4,
    ROUNDS = 16
}; /* of a search; the first ones without a yield of the core */

/* ---- own and global queues ---- */

/* Count a pick from the own deque. in: group, NULL if nothing was picked. out: group. */
static teffi_group *count_local_pick(teffi_processor *p, teffi_group *group)
{
    if (group)
        teffi_counter_add(&p->counters.local, 1);
    return group;
}

/* Take the oldest group from the own deque, at the end where thieves steal. out: NULL: the deque is
 * empty, or a thief was faster. */
static teffi_group *pop_oldest(teffi_processor *p)
{
    void *group;
    return teffi_deque_steal(&p->deque, &group, 1) ? count_local_pick(p, group) : NULL;
}

static teffi_group *pop_global(teffi_worker *w)
{
    teffi_group *group;
    if (!teffi_runqueue_pop(&w->sched->queue, &group, 1))
        return NULL;
    teffi_counter_add(&w->processor->counters.global, 1);
    return group;
}

/* Push w->batch[1] to w->batch[n - 1] to the deque in reverse order, so that w->batch[1] is popped
 * first. If memory is out, push them to the global queue instead. Let thieves steal from the deque,
 * and wake a worker if a group was pushed. out: w->batch[0]. */
static teffi_group *queue_rest_locally(teffi_worker *w, unsigned n)
{
    teffi_processor *p = w->processor;
    for (unsigned i = n; i-- > 1;)
        if (!teffi_deque_push(&p->deque, w->batch[i]))
            teffi_runqueue_push(&w->sched->queue, w->batch[i]);
    (void)teffi_processor_allow_stealing(p);
    if (n > 1)
        teffi_wake_one(w->sched);
    return w->batch[0];
}

/* Pop groups from the global queue: one to run, and this processor's share of the others, which go
 * to its deque. out: the group to run; NULL: the queue is empty. */
static teffi_group *pop_global_batch(teffi_worker *w)
{
    teffi_sched *sched = w->sched;
    unsigned share = teffi_runqueue_count(&sched->queue) /
                     atomic_load_explicit(&sched->n_active, memory_order_relaxed);
    if (share > sched->take_max)
        share = sched->take_max;
    unsigned n = teffi_runqueue_pop(&sched->queue, w->batch, 1 + share);
    if (!n)
        return NULL;
    teffi_counter_add(&w->processor->counters.global, 1);
    return queue_rest_locally(w, n);
}

/* Pick the oldest group of the global queue or of the deque. Every second call tries the global
 * queue first; the other calls try the deque first. out: NULL: none. */
static teffi_group *pick_fair(teffi_worker *w)
{
    teffi_processor *p = w->processor;
    p->fair_ms = teffi_coarse_ms(&w->sched->exec);
    bool global_first = p->fair_picks++ % 2;
    teffi_group *group = global_first ? pop_global(w) : pop_oldest(p);
    if (group)
        return group;
    return global_first ? pop_oldest(p) : pop_global(w);
}

/* Take a sample of the local batch (policy/local_batch.h) if one is due. If the sample says that
 * the batch is to be shared, open the deque to thieves. At each sample, wake a worker if the deque
 * is open and not empty. */
static void sample_and_share_local_batch(teffi_worker *w)
{
    teffi_processor *p = w->processor;
    teffi_batch_verdict verdict =
        teffi_local_batch_sample_if_due(&p->batch, w->sched->exec.platform, &w->preemptions);
    if (verdict == TEFFI_BATCH_NOT_SAMPLED)
        return;
    if (verdict == TEFFI_BATCH_SHARED)
        (void)teffi_processor_allow_stealing(p);
    if (teffi_deque_count(&p->deque) && !teffi_processor_forbids_stealing(p))
        teffi_wake_one(w->sched);
}

/* Take the group in the LIFO slot, unless a fair pick is due. out: NULL: a fair pick is due, or the
 * slot is empty; in both cases the caller calls pick_fair_or_newest with *fair. *fair: true if a
 * fair pick is due. */
static inline teffi_group *pick_lifo(teffi_worker *w, bool *fair)
{
    teffi_processor *p = w->processor;
    uint32_t now_ms = teffi_coarse_ms(&w->sched->exec);
    /* w->direct.unseen is the number of turns that ran in place (direct.c) since the last pick.
     * They count as picks, because they, too, delay the groups in the other queues. */
    uint32_t lifo_picks = p->lifo_picks + w->direct.unseen;
    w->direct.unseen = 0;
    *fair = now_ms - p->fair_ms >= FAIR_MS || lifo_picks >= LIFO_PICKS_MAX;
    teffi_group *group = *fair ? NULL : teffi_processor_take_lifo(p);
    if (group)
        p->lifo_picks = lifo_picks + 1;
    return group;
}

/* Pick a group after pick_lifo has picked none. Try in this order, until a group is found:
 *  1. Call pick_fair: always if fair is true; in one call out of 61 if fair is false.
 *  2. Take the group in the LIFO slot (if fair is true, pick_lifo has skipped the slot).
 *  3. Take the newest group of the deque.
 * out: NULL: none. */
static teffi_group *pick_fair_or_newest(teffi_worker *w, bool fair)
{
    teffi_processor *p = w->processor;
    teffi_group *group;
    p->lifo_picks = 0;
    if ((fair || ++p->picks % FAIR_EVERY == 0) && (group = pick_fair(w)))
        return group;
    group = teffi_processor_take_lifo(p);
    return group ? group : count_local_pick(p, teffi_deque_pop(&p->deque));
}

/* Pick a group from this processor's own queues. If a fair pick is due, the group may also come
 * from the global queue. out: NULL: none. */
static teffi_group *pick_local(teffi_worker *w)
{
    bool fair;
    if (w->processor->batch.exists)
        sample_and_share_local_batch(w);
    teffi_group *group = pick_lifo(w, &fair);
    return group ? group : pick_fair_or_newest(w, fair);
}

/* ---- stealing ---- */

/* Steal half of the victim's deque, and move all but one of the stolen groups to this processor's
 * deque. out: the group to run; NULL: the victim's deque is empty, or another thread was faster. */
static teffi_group *steal_from(teffi_worker *w, teffi_processor *victim)
{
    void *out[TEFFI_STEAL_MAX] __attribute__((uninitialized));
    teffi_processor *p = w->processor;
    unsigned n = teffi_deque_steal(&victim->deque, out, TEFFI_STEAL_MAX);
    if (!n)
        return NULL;
    for (unsigned i = 0; i < n; i++)
        w->batch[i] = out[i];
    teffi_counter_add(&p->counters.stolen, 1);
    teffi_counter_add(&p->counters.steals, n);
    if (!p->backoff.since_ns) /* no measurement is under way (policy/backoff.h) */
        teffi_backoff_begin_measurement(&p->backoff, victim,
                                        teffi_processor_count_handled_items(p) +
                                            teffi_processor_count_handled_items(victim),
                                        teffi_now(w->sched->exec.platform));
    return queue_rest_locally(w, n);
}

static teffi_group *steal_from_any(teffi_worker *w)
{
    teffi_sched *sched = w->sched;
    unsigned at = (unsigned)(teffi_random_next(&w->processor->rng) % sched->n_processors);
    for (unsigned i = 0; i < sched->n_processors; i++, at++) {
        teffi_processor *victim = &sched->processors[at % sched->n_processors];
        /* Load the count first: unless it changed, its cache line is still in this core's cache. */
        bool open = victim != w->processor && teffi_deque_count(&victim->deque) &&
                    !teffi_processor_forbids_stealing(victim);
        teffi_group *group = open ? steal_from(w, victim) : NULL;
        if (group)
            return group;
    }
    return NULL;
}

/* How many rounds to search? If all other workers are idle and there is a poller, new work can
 * come only from the poller and from threads that are not workers. In that case the number is 1, so
 * that this worker soon waits in the poller. */
static unsigned choose_search_rounds(teffi_sched *sched)
{
    return teffi_sched_has_poller(sched) && teffi_others_are_idle(sched) ? 1 : ROUNDS;
}

/* Search the global queue and all deques, round after round. out: NULL: no group was found, or
 * sched->attention is set: the worker is needed for something else. */
static teffi_group *search_all(teffi_worker *w)
{
    unsigned rounds = choose_search_rounds(w->sched);
    for (unsigned round = 0; round < rounds; round++) {
        teffi_group *group = pop_global_batch(w);
        if (group || (group = steal_from_any(w)))
            return group;
        if (atomic_load_explicit(&w->sched->attention, memory_order_relaxed))
            return NULL;
        if (round < ROUNDS_TIGHT)
            teffi_cpu_relax();
        else
            teffi_thread_yield();
    }
    return NULL;
}

/* Sleep if the measurement that began with a steal shows that stealing does not pay. After the
 * sleep, record at which rate the victim handled items alone (policy/backoff.h). */
__attribute__((noinline)) static void back_off_if_stealing_does_not_pay(teffi_worker *w)
{
    const teffi_platform *platform = w->sched->exec.platform;
    teffi_backoff *b = &w->processor->backoff;
    if (!b->since_ns)
        return;
    uint64_t from = teffi_now(platform), before = teffi_processor_count_handled_items(b->victim);
    uint64_t ns = teffi_backoff_decide_sleep_ns(
        b, teffi_processor_count_handled_items(w->processor) + before, from);
    if (!ns)
        return;
    teffi_back_off(w, ns, from);
    teffi_backoff_record_alone_rate(b, teffi_processor_count_handled_items(b->victim) - before,
                                    from, teffi_now(platform));
}

/* ---- all together ---- */

/* Policy multilevel: with probability 1 - levels->chance / TEFFI_CHANCE_ONE, pick a group of level
 * 1 or 2. out: NULL: none. */
__attribute__((noinline)) static teffi_group *pick_above_level_0_by_chance(teffi_worker *w)
{
    teffi_group *group;
    teffi_levels *levels = w->sched->levels;
    if (!atomic_load_explicit(&levels->n_above_0, memory_order_relaxed) ||
        teffi_random_next(&w->processor->rng) % TEFFI_CHANCE_ONE <
            atomic_load_explicit(&levels->chance, memory_order_relaxed) ||
        !teffi_runqueue_pop_using(&w->sched->queue, &group, 1, teffi_levels_pop_above_0))
        return NULL;
    teffi_counter_add(&w->processor->counters.global, 1);
    return group;
}

/* End the local batch, if there is one, and allow thieves to steal from the deque. The caller has
 * found the deque empty. So there is nothing to steal yet, and no worker is woken. */
static void end_local_batch(teffi_processor *p)
{
    if (!p->batch.exists)
        return;
    p->batch.exists = false;
    (void)teffi_processor_allow_stealing(p);
}

/* Find a group when this processor's own queues are empty. Look in the global queue. If it is empty
 * and work is deferred, try once to steal. If that fails, too, run the deferred work, and pick one
 * of the groups that it has made READY. out: NULL: none. */
static teffi_group *find_elsewhere(teffi_worker *w)
{
    teffi_processor *p = w->processor;
    end_local_batch(p);
    teffi_group *group = pop_global_batch(w);
    /* Steal before running deferred work: the later it runs, the more requests it serves. */
    if (!group && teffi_deferral_has_work(&p->deferral))
        group = steal_from_any(w);
    if (!group && teffi_deferral_run(&p->deferral))
        group = pick_local(w);
    return group;
}

/* The slow path of teffi_find_group_nearby. It is taken if the policy is multilevel, or if there is
 * a local batch or deferred work. This function and find_beyond_lifo are noinline, so that
 * teffi_find_group_nearby need not save registers for a plain pick from the LIFO slot. */
static __attribute__((noinline)) teffi_group *find_nearby_slow_path(teffi_worker *w)
{
    teffi_processor *p = w->processor;
    teffi_group *group = w->sched->levels ? pick_above_level_0_by_chance(w) : NULL;
    if (group)
        return group;
    if (teffi_deferral_has_work(&p->deferral)) /* run old work first: the next turn may take long */
        teffi_deferral_run_if_ticked(&p->deferral, teffi_coarse_ms(&w->sched->exec));
    group = pick_local(w);
    return group ? group : find_elsewhere(w);
}

/* The second part of teffi_find_group_nearby: find a group after pick_lifo has picked none.
 * in: fair: the value to which pick_lifo has set *fair. */
static __attribute__((noinline)) teffi_group *find_beyond_lifo(teffi_worker *w, bool fair)
{
    teffi_group *group = pick_fair_or_newest(w, fair);
    return group ? group : find_elsewhere(w);
}

teffi_group *teffi_find_group_nearby(teffi_worker *w)
{
    const teffi_processor *p = w->processor;
    bool fair;
    if (w->sched->levels || p->batch.exists || teffi_deferral_has_work(&p->deferral))
        return find_nearby_slow_path(w);
    teffi_group *group = pick_lifo(w, &fair);
    return group ? group : find_beyond_lifo(w, fair);
}

teffi_group *teffi_find_group_by_search(teffi_worker *w, bool patient)
{
    if (teffi_deferral_has_work(&w->processor->deferral))
        return NULL; /* work was deferred again: the caller runs it first, as a search takes long */
    if (patient)
        back_off_if_stealing_does_not_pay(w);
    return teffi_search_begin(w) ? search_all(w) : NULL;
}
