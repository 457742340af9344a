/* prio.h - the run queue by priority: what is more urgent first; when too much waits, the least
 * urgent is evicted and told.
 * Way:     run queue push -> [rank] -> pop; over the limit: rank 0, marked -> turn.c -> ops->evict
 * Threads: all under the run queue's lock.
 * Source:  yatp's priority queue and its try_evict_lowest; TiKV's read pool
 *
 * Within a priority groups come in order of arrival. Groups without ops->evict are the runtime's
 * own: they come first, do not count and are never evicted. Over the limit the newest group of the
 * lowest priority goes, which may be the one that comes: what has waited longer was promised more.
 * It is not dropped: it comes next, so that its items are answered at once instead of late. */
#ifndef TEFFI_SCHED_PRIO_H
#define TEFFI_SCHED_PRIO_H

#include "sched/runqueue.h"

enum { TEFFI_RANKS = 1 + 256 }; /* the runtime's own and the evicted; priorities 127 .. -128 */

typedef struct teffi_rank { /* doubly linked through one pointer, see prio.c */
    teffi_group *head, *tail;
} teffi_rank;

typedef struct teffi_ranks {
    teffi_order order;
    uint32_t waiting_max; /* immutable; 0 = no limit */
    uint32_t waiting;     /* in ranks from 1 on */
    uint64_t filled[(TEFFI_RANKS + 63) / 64];
    teffi_rank rank[TEFFI_RANKS];
    _Atomic uint64_t evicted; /* written under the lock; relaxed */
} teffi_ranks;

/* teffi_ranks_init - empty. in: waiting_max, groups that may wait; 0 = no limit. */
void teffi_ranks_init(teffi_ranks *ranks, uint32_t waiting_max);

#endif
