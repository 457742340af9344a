/* priority.h - the run queue by priority: the most urgent group first; over a limit the least
 * urgent is evicted.
 * Way:     run queue push -> [rank] -> pop; over the limit: rank 0, marked -> run -> ops->evict
 * Threads: under the run queue's lock.
 * Source:  yatp src/queue/priority.rs; TiKV's src/read_pool.rs */
#pragma once

#include "sched/queue/runqueue.h"

/* Rank 0: groups without ops->evict, which are the runtime's own, and evicted ones; the limit is
 * for the other ranks. Ranks 1 to 256: priorities 127 .. -128. In a rank, groups are in order of
 * arrival. Over the limit the newest group of the lowest priority is evicted, maybe the one just
 * pushed. It is not dropped but moved to rank 0, so that its items are refused at once instead of
 * late. */
enum { TEFFI_RANKS = 1 + 256 };

typedef struct teffi_rank { /* doubly linked by one pointer a group, see priority.c */
    teffi_qnode *head, *tail;
} teffi_rank;

typedef struct teffi_priorities {
    teffi_order order;    /* must be first: its functions cast it */
    uint32_t waiting_max; /* immutable; 0 = no limit */
    uint32_t waiting;     /* groups in ranks from 1 on */
    uint64_t filled[(TEFFI_RANKS + 63) / 64];
    teffi_rank rank[TEFFI_RANKS];
    /* written under the lock, read without it; relaxed */
    _Atomic uint32_t first; /* the most urgent rank with groups; TEFFI_RANKS: none */
    _Atomic uint64_t evicted;
} teffi_priorities;

/* teffi_rank_of_priority - the rank of groups of this priority. */
static inline unsigned teffi_rank_of_priority(int priority)
{
    return (unsigned)(1 + INT8_MAX - priority);
}

/* teffi_priorities_has_more_urgent - is a group queued that is more urgent than groups of this
 * priority? The result is a hint, because this function takes no lock. Any thread. */
static inline bool teffi_priorities_has_more_urgent(const teffi_priorities *ranks, int priority)
{
    return atomic_load_explicit(&ranks->first, memory_order_relaxed) <
           teffi_rank_of_priority(priority);
}

/* teffi_priorities_init - empty. in: waiting_max, groups that may wait in ranks from 1 on;
 * 0 = no limit. */
void teffi_priorities_init(teffi_priorities *ranks, uint32_t waiting_max);
