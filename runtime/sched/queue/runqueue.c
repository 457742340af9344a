/* runqueue.c - a shared queue of READY groups. */
#include "sched/queue/runqueue.h"

#include <stddef.h>

void teffi_runqueue_init(teffi_runqueue *queue)
{
    atomic_init(&queue->count, 0);
    pthread_mutex_init(&queue->lock, NULL);
    queue->fifo = (teffi_queue){0};
    queue->order = NULL;
}

void teffi_runqueue_fini(teffi_runqueue *queue)
{
    pthread_mutex_destroy(&queue->lock);
}

void teffi_runqueue_push(teffi_runqueue *queue, teffi_group *group)
{
    pthread_mutex_lock(&queue->lock);
    if (queue->order)
        queue->order->push(queue->order, group);
    else
        teffi_queue_push(&queue->fifo, &group->link);
    /* seq_cst: the pusher loads idle_word after this; pairs with teffi_runqueue_count */
    atomic_fetch_add_explicit(&queue->count, 1, memory_order_seq_cst);
    pthread_mutex_unlock(&queue->lock);
}

unsigned teffi_runqueue_pop_using(teffi_runqueue *queue, teffi_group **out, unsigned n,
                                  unsigned (*pop)(teffi_order *order, teffi_group **out,
                                                  unsigned n))
{
    if (atomic_load_explicit(&queue->count, memory_order_relaxed) == 0)
        return 0; /* no lock is needed: before a worker parks, it loads count again (seq_cst) */
    pthread_mutex_lock(&queue->lock);
    unsigned got = pop ? pop(queue->order, out, n) : teffi_groups_pop(&queue->fifo, out, n);
    atomic_fetch_sub_explicit(&queue->count, got, memory_order_relaxed);
    pthread_mutex_unlock(&queue->lock);
    return got;
}

unsigned teffi_runqueue_pop(teffi_runqueue *queue, teffi_group **out, unsigned n)
{
    return teffi_runqueue_pop_using(queue, out, n, queue->order ? queue->order->pop : NULL);
}
