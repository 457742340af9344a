/* runqueue.h - a shared queue of READY groups: the global one, for all workers of an executor, and
 * that of the system thread.
 * Way:     outside threads, used-up groups -> [run queue] -> a worker, with a batch for its deque
 * Threads: push, pop, count: any; it has a lock. count is read without the lock.
 * Source:  Go's src/runtime/proc.go (global run queue); yatp src/queue */
#pragma once

#include <pthread.h>
#include "group/group.h"

/* An order other than first in, first out (policy/level.h, policy/priority.h). Called with the
 * queue's lock held. */
typedef struct teffi_order {
    void (*push)(struct teffi_order *order, teffi_group *group);
    unsigned (*pop)(struct teffi_order *order, teffi_group **out, unsigned n);
} teffi_order;

typedef struct teffi_runqueue {
    _Atomic uint32_t count; /* written under the lock; any thread reads it without */
    pthread_mutex_t lock;
    teffi_queue fifo;   /* of group.link; guarded by lock; unused if there is an order */
    teffi_order *order; /* immutable once pushed to; NULL: first in, first out */
} teffi_runqueue;

/* teffi_runqueue_init - empty; first in, first out, unless the caller sets order before a push. */
void teffi_runqueue_init(teffi_runqueue *queue);
void teffi_runqueue_fini(teffi_runqueue *queue);

/* teffi_runqueue_push - queue a READY group. It wakes no worker: usually the caller then calls
 * teffi_wake_one. */
void teffi_runqueue_push(teffi_runqueue *queue, teffi_group *group);

/* teffi_runqueue_pop - take up to n groups, in order. out: how many, in out[0..]; an order may
 * give fewer than n though there are more. */
unsigned teffi_runqueue_pop(teffi_runqueue *queue, teffi_group **out, unsigned n);

/* teffi_runqueue_pop_using - do what teffi_runqueue_pop does, but call the given function
 * instead of order->pop. in: pop: the function; NULL: pop from fifo. */
unsigned teffi_runqueue_pop_using(teffi_runqueue *queue, teffi_group **out, unsigned n,
                                  unsigned (*pop)(teffi_order *order, teffi_group **out,
                                                  unsigned n));

/* teffi_runqueue_count - how many groups are queued. seq_cst: ordered against idle_word, see
 * sched/idle.h. */
static inline uint32_t teffi_runqueue_count(teffi_runqueue *queue)
{
    return atomic_load_explicit(&queue->count, memory_order_seq_cst);
}

/* teffi_groups_pop - move up to n groups, which are linked by group.link, from the queue to the
 * array `out`. Return how many were moved. */
static inline unsigned teffi_groups_pop(teffi_queue *queue, teffi_group **out, unsigned n)
{
    unsigned got = 0;
    for (teffi_qnode *node; got < n && (node = teffi_queue_pop(queue)); got++)
        out[got] = teffi_container(node, teffi_group, link);
    return got;
}
