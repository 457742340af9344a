/* find.c - where a worker looks for its next group.
 * Way:     next slot (bounded run) -> own deque -> global queue (one, and a batch) -> steal half
 * Threads: the worker that holds the slot.
 * Source:  the scheduler seeds' order; every 61st pick looks elsewhere first, so nothing starves
 *          behind newest-first work */
#include <stddef.h>
#include "sched/worker.h"

/* Hand-offs in a row: a chatty pair may have as much as one group's items in one go. Then the
 * oldest of the deque or the global queue gets its turn. */
enum { HANDOFFS_MAX = 256 };
enum { FAIR_EVERY = 61 }; /* other picks; a prime, so that it does not fall into step with them */
enum { ROUNDS_TIGHT = 4, ROUNDS = 16 };

static teffi_group *newest(teffi_slot *slot)
{
    teffi_group *group = teffi_deque_pop(&slot->deque);
    if (group)
        teffi_count_add(&slot->counts.local, 1);
    return group;
}

static teffi_group *oldest(teffi_slot *slot)
{
    void *group;
    if (!teffi_deque_steal(&slot->deque, &group, 1))
        return NULL;
    teffi_count_add(&slot->counts.local, 1);
    return group;
}

static teffi_group *global_one(teffi_worker *w)
{
    teffi_group *group;
    if (!teffi_runqueue_pop(&w->real->queue, &group, 1))
        return NULL;
    teffi_count_add(&w->slot->counts.global, 1);
    return group;
}

/* batch[1..n) into the deque so that batch[1] is popped first. What has no room goes back. */
static void keep_rest(teffi_real *real, teffi_slot *slot, teffi_group **batch, unsigned n)
{
    for (unsigned i = n; i-- > 1;)
        if (!teffi_deque_push(&slot->deque, batch[i]))
            teffi_runqueue_push(&real->queue, batch[i]);
    (void)teffi_keeps_not(slot);
    if (n > 1)
        teffi_wake_one(real);
}

/* One to run, and a fair share of the rest. */
static teffi_group *global_batch(teffi_worker *w)
{
    teffi_real *real = w->real;
    unsigned share = teffi_runqueue_count(&real->queue) /
                     atomic_load_explicit(&real->n_active, memory_order_relaxed);
    if (share > real->take_max)
        share = real->take_max;
    unsigned n = teffi_runqueue_pop(&real->queue, w->batch, 1 + share);
    if (!n)
        return NULL;
    teffi_count_add(&w->slot->counts.global, 1);
    keep_rest(real, w->slot, w->batch, n);
    return w->batch[0];
}

/* What newest-first work would starve: by turns the global queue and the deque's old end. */
static teffi_group *fair(teffi_worker *w)
{
    bool global_first = w->slot->fairs++ % 2;
    teffi_group *group = global_first ? global_one(w) : oldest(w->slot);
    if (group)
        return group;
    return global_first ? oldest(w->slot) : global_one(w);
}

static teffi_group *local(teffi_worker *w)
{
    teffi_slot *slot = w->slot;
    teffi_group *group;
    slot->tick++;
    if (slot->alone.brought)
        teffi_help_look(w);
    /* Two that hand over to each other, each with many turns in place, are no more entitled. */
    slot->handoffs += w->directs_unseen;
    w->directs_unseen = 0;
    if (slot->handoffs++ < HANDOFFS_MAX && (group = teffi_slot_take_next(slot)))
        return group;
    bool used_up = slot->handoffs > HANDOFFS_MAX;
    slot->handoffs = 0;
    if ((used_up || ++slot->picks % FAIR_EVERY == 0) && (group = fair(w)))
        return group;
    return (group = teffi_slot_take_next(slot)) ? group : newest(slot);
}

/* ---- other workers' work ---- */

static void count_stolen(teffi_slot *slot, unsigned n)
{
    teffi_count_add(&slot->counts.stolen, 1);
    teffi_count_add(&slot->counts.steals, n);
}

static teffi_group *steal_from(teffi_worker *w, teffi_slot *victim)
{
    void *out[TEFFI_STEAL_MAX] __attribute__((uninitialized));
    unsigned n = teffi_deque_steal(&victim->deque, out, TEFFI_STEAL_MAX);
    if (!n)
        return NULL;
    for (unsigned i = 0; i < n; i++)
        w->batch[i] = out[i];
    count_stolen(w->slot, n);
    teffi_nap_stole(w, victim);
    keep_rest(w->real, w->slot, w->batch, n);
    return w->batch[0];
}

static uint64_t draw(teffi_slot *slot) /* xorshift64 */
{
    slot->rng ^= slot->rng << 13;
    slot->rng ^= slot->rng >> 7;
    slot->rng ^= slot->rng << 17;
    return slot->rng;
}

static teffi_group *steal(teffi_worker *w)
{
    teffi_real *real = w->real;
    unsigned at = (unsigned)(draw(w->slot) % real->n_slots);
    for (unsigned i = 0; i < real->n_slots; i++, at++) {
        teffi_slot *victim = &real->slots[at % real->n_slots];
        /* The deque's line first: it is there from the last round, unless something came. */
        bool open = victim != w->slot && teffi_deque_count(&victim->deque) && !teffi_keeps(victim);
        teffi_group *group = open ? steal_from(w, victim) : NULL;
        if (group)
            return group;
    }
    return NULL;
}

static teffi_group *search(teffi_worker *w)
{
    for (unsigned round = 0; round < ROUNDS; round++) {
        teffi_group *group = global_batch(w);
        if (group || (group = steal(w)))
            return group;
        if (atomic_load_explicit(&w->real->attention, memory_order_relaxed))
            return NULL;
        if (round < ROUNDS_TIGHT)
            teffi_cpu_relax();
        else
            teffi_thread_yield();
    }
    return NULL;
}

/* Multilevel: the odds that a pick is not of level 0. */
static teffi_group *longer(teffi_worker *w)
{
    teffi_group *group;
    teffi_levels *levels = w->real->levels;
    if (!levels || !atomic_load_explicit(&levels->longer, memory_order_relaxed) ||
        draw(w->slot) % TEFFI_CHANCE_ONE <
            atomic_load_explicit(&levels->chance, memory_order_relaxed) ||
        !teffi_runqueue_pop_by(&w->real->queue, &group, 1, teffi_levels_pop_longer))
        return NULL;
    w->slot->tick++;
    teffi_count_add(&w->slot->counts.global, 1);
    return group;
}

teffi_group *teffi_find_near(teffi_worker *w)
{
    teffi_laters_due(w); /* a few turns of others' may take long */
    teffi_group *group = local(w);
    if (!group) {
        teffi_help_over(w->slot);
        group = global_batch(w);
    }
    /* While others have work, what was put off can wait, and more may come to it. */
    if (!group && teffi_laters_any(w->slot))
        group = steal(w);
    if (!group && teffi_laters_run(w->slot))
        group = local(w);
    return group;
}

teffi_group *teffi_find(teffi_worker *w, bool patient)
{
    teffi_group *group = w->real->special ? longer(w) : NULL;
    if (!group)
        group = teffi_find_near(w);
    if (!group && teffi_laters_any(w->slot))
        return NULL; /* put off anew */
    if (!group && patient)
        teffi_nap(w);
    if (!group && teffi_search_begin(w))
        group = search(w);
    if (group && w->searching)
        teffi_search_end(w);
    return group;
}

bool teffi_any_work(teffi_real *real)
{
    if (teffi_runqueue_count(&real->queue))
        return true;
    for (unsigned i = 0; i < real->n_slots; i++)
        if (teffi_deque_count(&real->slots[i].deque) && !teffi_keeps(&real->slots[i]))
            return true;
    return false;
}
