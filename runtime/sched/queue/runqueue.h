/* runqueue.h - the global queue of READY groups, shared by all workers of an executor.
 * Way:     outside threads, used-up groups -> [run queue] -> a worker, with a batch for its deque
 * Threads: any; it has a lock. count is read without the lock.
 * Source:  Go's global run queue; yatp src/queue */
#pragma once

#include <pthread.h>
#include "group/group.h"

/* An order other than first in, first out (policy/level.h, policy/priority.h). Called with the
 * queue's lock held. */
typedef struct teffi_order {
    void (*push)(struct teffi_order *order, teffi_group *group);
    unsigned (*pop)(struct teffi_order *order, teffi_group **out, unsigned n);
} teffi_order;

typedef struct teffi_fifo {
    teffi_group *head, *tail; /* linked by group.next */
} teffi_fifo;

typedef struct teffi_runqueue {
    _Atomic uint32_t count; /* written under the lock; read by parking workers and wakers */
    pthread_mutex_t lock;
    teffi_fifo fifo;    /* guarded by lock; unused if there is an order */
    teffi_order *order; /* immutable after init; NULL: first in, first out */
} teffi_runqueue;

void teffi_runqueue_init(teffi_runqueue *queue);
void teffi_runqueue_fini(teffi_runqueue *queue);

/* teffi_runqueue_push - queue a READY group. */
void teffi_runqueue_push(teffi_runqueue *queue, teffi_group *group);

/* teffi_runqueue_pop - take up to n groups, in order. out: how many, in out[0..]. */
unsigned teffi_runqueue_pop(teffi_runqueue *queue, teffi_group **out, unsigned n);

/* teffi_runqueue_pop_by - as teffi_runqueue_pop, with pop in place of order->pop. */
unsigned teffi_runqueue_pop_by(teffi_runqueue *queue, teffi_group **out, unsigned n,
                               unsigned (*pop)(teffi_order *order, teffi_group **out, unsigned n));

/* seq_cst: ordered against idle_word, see sched/idle.h. */
static inline uint32_t teffi_runqueue_count(teffi_runqueue *queue)
{
    return atomic_load_explicit(&queue->count, memory_order_seq_cst);
}

static inline void teffi_fifo_push(teffi_fifo *fifo, teffi_group *group)
{
    group->next = NULL;
    *(fifo->tail ? &fifo->tail->next : &fifo->head) = group;
    fifo->tail = group;
}

/* teffi_fifo_pop - NULL: empty. */
static inline teffi_group *teffi_fifo_pop(teffi_fifo *fifo)
{
    teffi_group *group = fifo->head;
    if (!group)
        return NULL;
    fifo->head = group->next;
    if (!fifo->head)
        fifo->tail = NULL;
    group->next = NULL;
    return group;
}

/* teffi_fifo_pop_many - up to n groups. out: how many, in out[0..]. */
static inline unsigned teffi_fifo_pop_many(teffi_fifo *fifo, teffi_group **out, unsigned n)
{
    unsigned got = 0;
    while (got < n && (out[got] = teffi_fifo_pop(fifo)))
        got++;
    return got;
}
