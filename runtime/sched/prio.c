/* prio.c - the run queue by priority, with eviction.
 * Way:     run queue -> [push, pop]
 * Threads: the run queue's lock.
 * A rank must give its head to workers and its tail to eviction, and a group has room for one link:
 * it holds the XOR of both neighbours, which tells one to who comes from the other. */
#include "sched/prio.h"

#include <limits.h>
#include <stddef.h>

static teffi_group *xored(const teffi_group *a, const teffi_group *b)
{
    return (teffi_group *)((uintptr_t)a ^ (uintptr_t)b);
}

static void mark(teffi_ranks *ranks, unsigned at)
{
    uint64_t bit = (uint64_t)1 << at % 64;
    if (ranks->rank[at].head)
        ranks->filled[at / 64] |= bit;
    else
        ranks->filled[at / 64] &= ~bit;
}

static void append(teffi_ranks *ranks, unsigned at, teffi_group *group)
{
    teffi_rank *rank = &ranks->rank[at];
    group->next = xored(rank->tail, NULL);
    if (rank->tail)
        rank->tail->next = xored(rank->tail->next, group);
    else
        rank->head = group;
    rank->tail = group;
    mark(ranks, at);
}

/* The group at one end goes; *other is the other end. */
static teffi_group *take(teffi_ranks *ranks, unsigned at, teffi_group **end, teffi_group **other)
{
    teffi_group *group = *end, *next = xored(group->next, NULL);
    if (next)
        next->next = xored(next->next, group);
    else
        *other = NULL;
    *end = next;
    group->next = NULL;
    mark(ranks, at);
    return group;
}

static unsigned first_rank(const teffi_ranks *ranks)
{
    unsigned word = 0;
    while (!ranks->filled[word])
        word++;
    return word * 64 + (unsigned)__builtin_ctzll(ranks->filled[word]);
}

static unsigned last_rank(const teffi_ranks *ranks)
{
    unsigned word = (TEFFI_RANKS - 1) / 64;
    while (!ranks->filled[word])
        word--;
    return word * 64 + 63 - (unsigned)__builtin_clzll(ranks->filled[word]);
}

static void evict_one(teffi_ranks *ranks)
{
    unsigned at = last_rank(ranks);
    teffi_rank *rank = &ranks->rank[at];
    teffi_group *group = take(ranks, at, &rank->tail, &rank->head);
    group->evicted = true;
    ranks->waiting--;
    append(ranks, 0, group);
    uint64_t evicted = atomic_load_explicit(&ranks->evicted, memory_order_relaxed);
    atomic_store_explicit(&ranks->evicted, evicted + 1, memory_order_relaxed);
}

static void push(teffi_order *order, teffi_group *group)
{
    teffi_ranks *ranks = (teffi_ranks *)order;
    if (!group->ops->evict) {
        append(ranks, 0, group);
        return;
    }
    int priority = atomic_load_explicit(&group->priority, memory_order_relaxed);
    append(ranks, (unsigned)(1 + INT8_MAX - priority), group);
    if (++ranks->waiting > ranks->waiting_max && ranks->waiting_max)
        evict_one(ranks);
}

static unsigned pop(teffi_order *order, teffi_group **out, unsigned n)
{
    teffi_ranks *ranks = (teffi_ranks *)order;
    unsigned got = 0;
    for (; got < n && (ranks->waiting || ranks->rank[0].head); got++) {
        unsigned at = first_rank(ranks);
        teffi_rank *rank = &ranks->rank[at];
        out[got] = take(ranks, at, &rank->head, &rank->tail);
        ranks->waiting -= at > 0;
    }
    return got;
}

void teffi_ranks_init(teffi_ranks *ranks, uint32_t waiting_max)
{
    *ranks = (teffi_ranks){.order = {.push = push, .pop = pop}, .waiting_max = waiting_max};
}
