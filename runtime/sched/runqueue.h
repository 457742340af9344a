/* runqueue.h - the global FIFO of READY groups, shared by all workers of an executor.
 * Way:     outside threads, used-up groups -> [run queue] -> a worker, with a batch for its deque
 * Threads: any thread; a lock inside. The length may be read without it.
 * Source:  Orleans' global RunQueue; Go's global queue */
#ifndef TEFFI_SCHED_RUNQUEUE_H
#define TEFFI_SCHED_RUNQUEUE_H

#include <pthread.h>
#include "sched/group.h"

typedef struct teffi_runqueue {
    _Atomic uint32_t count; /* written under the lock; read by parking workers and wakers */
    pthread_mutex_t lock;
    teffi_group *head, *tail; /* guarded by lock */
} teffi_runqueue;

void teffi_runqueue_init(teffi_runqueue *queue);
void teffi_runqueue_fini(teffi_runqueue *queue);

/* teffi_runqueue_push - append a READY group. */
void teffi_runqueue_push(teffi_runqueue *queue, teffi_group *group);

/* teffi_runqueue_pop - take up to n from the head.
 * out:  out[0..], oldest first; how many. */
unsigned teffi_runqueue_pop(teffi_runqueue *queue, teffi_group **out, unsigned n);

/* seq_cst: ordered against the idle word in idle.c (push, then look; announce, then look). */
static inline uint32_t teffi_runqueue_count(teffi_runqueue *queue)
{
    return atomic_load_explicit(&queue->count, memory_order_seq_cst);
}

#endif
