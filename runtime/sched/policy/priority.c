/* priority.c - the run queue by priority, with eviction.
 *
 * Workers take a rank's head, eviction takes its tail, and a group has only one link. So the link
 * is the XOR of both neighbours' addresses. */
#include "sched/policy/priority.h"

#include <stddef.h>

/* Given the two neighbours of a node, returns its link. Given a link and one neighbour, returns the
 * other neighbour. */
static teffi_qnode *xor_links(const teffi_qnode *a, const teffi_qnode *b)
{
    return (teffi_qnode *)((uintptr_t)a ^ (uintptr_t)b);
}

/* out: the most urgent rank with groups; TEFFI_RANKS: there are none. */
static unsigned most_urgent_filled_rank(const teffi_priorities *ranks)
{
    for (unsigned word = 0; word < sizeof ranks->filled / sizeof ranks->filled[0]; word++)
        if (ranks->filled[word])
            return word * 64 + (unsigned)__builtin_ctzll(ranks->filled[word]);
    return TEFFI_RANKS;
}

/* Update `filled` and `first` after a group was added to or removed from this rank. */
static void rank_update_filled_and_first(teffi_priorities *ranks, unsigned at)
{
    uint64_t bit = (uint64_t)1 << at % 64;
    if (ranks->rank[at].head)
        ranks->filled[at / 64] |= bit;
    else
        ranks->filled[at / 64] &= ~bit;
    atomic_store_explicit(&ranks->first, most_urgent_filled_rank(ranks), memory_order_relaxed);
}

/* Append the group to a rank. A node's `next` is the XOR of both neighbours' addresses. */
static void rank_append(teffi_priorities *ranks, unsigned at, teffi_group *group)
{
    teffi_rank *rank = &ranks->rank[at];
    teffi_qnode *node = &group->link;
    node->next = xor_links(rank->tail, NULL);
    if (rank->tail)
        rank->tail->next = xor_links(rank->tail->next, node);
    else
        rank->head = node;
    rank->tail = node;
    rank_update_filled_and_first(ranks, at);
}

/* Remove the oldest or the newest group of a rank that is not empty. in: end: &rank->head to remove
 * the oldest, &rank->tail to remove the newest; other: the other one of these two addresses.
 * out: the removed group. */
static teffi_group *rank_remove_oldest_or_newest_group(teffi_priorities *ranks, unsigned at,
                                                       teffi_qnode **end, teffi_qnode **other)
{
    teffi_qnode *node = *end, *next = xor_links(node->next, NULL);
    if (next)
        next->next = xor_links(next->next, node);
    else
        *other = NULL;
    *end = next;
    rank_update_filled_and_first(ranks, at);
    return teffi_container(node, teffi_group, link);
}

/* out: the least urgent rank with groups. The caller knows that there are groups. */
static unsigned least_urgent_filled_rank(const teffi_priorities *ranks)
{
    unsigned word = (TEFFI_RANKS - 1) / 64;
    while (!ranks->filled[word])
        word--;
    return word * 64 + 63 - (unsigned)__builtin_clzll(ranks->filled[word]);
}

/* Evict the newest group of the least urgent rank: mark it as evicted, and move it to rank 0, from
 * which groups are popped first. So the group's items are refused soon. */
static void evict_newest_of_least_urgent_rank(teffi_priorities *ranks)
{
    unsigned at = least_urgent_filled_rank(ranks);
    teffi_rank *rank = &ranks->rank[at];
    teffi_group *group = rank_remove_oldest_or_newest_group(ranks, at, &rank->tail, &rank->head);
    group->evicted = true;
    ranks->waiting--;
    rank_append(ranks, 0, group);
    uint64_t evicted = atomic_load_explicit(&ranks->evicted, memory_order_relaxed);
    atomic_store_explicit(&ranks->evicted, evicted + 1, memory_order_relaxed);
}

/* Append a group to the rank of its priority. If more than waiting_max groups wait now, evict the
 * newest group of the least urgent rank. If waiting_max is 0, there is no limit. */
static void priorities_push(teffi_order *order, teffi_group *group)
{
    teffi_priorities *ranks = (teffi_priorities *)order;
    if (!group->ops->evict) { /* the runtime's own group, which is never evicted */
        rank_append(ranks, 0, group);
        return;
    }
    int priority = atomic_load_explicit(&group->priority, memory_order_relaxed);
    rank_append(ranks, teffi_rank_of_priority(priority), group);
    if (++ranks->waiting > ranks->waiting_max && ranks->waiting_max)
        evict_newest_of_least_urgent_rank(ranks);
}

static unsigned priorities_pop(teffi_order *order, teffi_group **out, unsigned n)
{
    teffi_priorities *ranks = (teffi_priorities *)order;
    unsigned got = 0;
    unsigned at;
    for (; got < n && (at = most_urgent_filled_rank(ranks)) < TEFFI_RANKS; got++) {
        teffi_rank *rank = &ranks->rank[at];
        out[got] = rank_remove_oldest_or_newest_group(ranks, at, &rank->head, &rank->tail);
        ranks->waiting -= at > 0;
    }
    return got;
}

void teffi_priorities_init(teffi_priorities *ranks, uint32_t waiting_max)
{
    *ranks = (teffi_priorities){.order = {.push = priorities_push, .pop = priorities_pop},
                                .waiting_max = waiting_max,
                                .first = TEFFI_RANKS};
}
