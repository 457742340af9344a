/* runqueue.c - the global FIFO of READY groups.
 * Way:     exec ready from outside, used-up groups -> [run queue] -> find
 * Threads: any; one lock. */
#include "sched/runqueue.h"

#include <stddef.h>

void teffi_runqueue_init(teffi_runqueue *queue)
{
    atomic_init(&queue->count, 0);
    pthread_mutex_init(&queue->lock, NULL);
    queue->head = queue->tail = NULL;
}

void teffi_runqueue_fini(teffi_runqueue *queue)
{
    pthread_mutex_destroy(&queue->lock);
}

void teffi_runqueue_push(teffi_runqueue *queue, teffi_group *group)
{
    group->next = NULL;
    pthread_mutex_lock(&queue->lock);
    if (queue->tail)
        queue->tail->next = group;
    else
        queue->head = group;
    queue->tail = group;
    /* seq_cst: pairs with teffi_runqueue_count of a parking worker, through the idle word */
    atomic_fetch_add_explicit(&queue->count, 1, memory_order_seq_cst);
    pthread_mutex_unlock(&queue->lock);
}

unsigned teffi_runqueue_pop(teffi_runqueue *queue, teffi_group **out, unsigned n)
{
    unsigned got = 0;
    if (atomic_load_explicit(&queue->count, memory_order_relaxed) == 0)
        return 0;
    pthread_mutex_lock(&queue->lock);
    while (got < n && queue->head) {
        out[got] = queue->head;
        queue->head = queue->head->next;
        out[got++]->next = NULL;
    }
    if (!queue->head)
        queue->tail = NULL;
    atomic_fetch_sub_explicit(&queue->count, got, memory_order_relaxed);
    pthread_mutex_unlock(&queue->lock);
    return got;
}
