/* queue.h - a plain FIFO of intrusive nodes; the owner's lock or thread guards it. */
#pragma once

#include <stddef.h>

typedef struct teffi_qnode {
    struct teffi_qnode *next;
} teffi_qnode;

typedef struct teffi_queue {
    teffi_qnode *head, *tail;
    size_t count;
} teffi_queue;

static inline void teffi_queue_push(teffi_queue *q, teffi_qnode *node)
{
    node->next = NULL;
    if (q->tail)
        q->tail->next = node;
    else
        q->head = node;
    q->tail = node;
    q->count++;
}

/* teffi_queue_after - out: the node after prev, or the oldest one if prev is NULL; NULL: none. */
static inline teffi_qnode *teffi_queue_after(const teffi_queue *q, const teffi_qnode *prev)
{
    return prev ? prev->next : q->head;
}

/* teffi_queue_remove_after - remove the node that teffi_queue_after() returns for prev.
 * in: there must be such a node. */
static inline void teffi_queue_remove_after(teffi_queue *q, teffi_qnode *prev)
{
    teffi_qnode **link = prev ? &prev->next : &q->head, *node = *link;
    *link = node->next;
    if (q->tail == node)
        q->tail = prev;
    node->next = NULL;
    q->count--;
}

/* teffi_queue_pop - remove and return the oldest node. out: NULL: the queue is empty. */
static inline teffi_qnode *teffi_queue_pop(teffi_queue *q)
{
    teffi_qnode *node = q->head;
    if (node)
        teffi_queue_remove_after(q, NULL);
    return node;
}

/* teffi_queue_move - append all of src to dst; src is empty afterwards. */
static inline void teffi_queue_move(teffi_queue *dst, teffi_queue *src)
{
    if (!src->head)
        return;
    if (dst->tail)
        dst->tail->next = src->head;
    else
        dst->head = src->head;
    dst->tail = src->tail;
    dst->count += src->count;
    *src = (teffi_queue){0};
}

/* The struct that holds a member, from the member's address. */
#define teffi_container(ptr, type, member) ((type *)(void *)((char *)(ptr)-offsetof(type, member)))
