/* op_queue.h - a bounded queue of operations for a thread of a server engine: postgres, redis and
 * etcd have two threads, each with such a queue.
 * Way:     submit -> [op_queue] -> the engine's thread takes a group -> [op_queue] -> done()
 * Threads: submit, close, is_closed: any. take, finish: the engine's thread. done() of a refused
 *          operation runs on the submitter's thread. */
#pragma once

#include <pthread.h>
#include "os/thread.h"
#include "store/engine.h"

enum {
    TEFFI_OP_QUEUE_GROUP_MAX = 1024,                   /* operations of one group */
    TEFFI_OP_QUEUE_GROUP_BYTES_MAX = 16 * 1024 * 1024, /* values of one group; one op always fits */
    TEFFI_OP_QUEUE_GROUP_READS_MAX = 64, /* of one group: all their results are in memory at once */
    TEFFI_OP_QUEUE_OPS_MAX = 64 * 1024,  /* operations submitted and not done */
    TEFFI_OP_QUEUE_BYTES_MAX = 64 * 1024 * 1024 /* values of the writes among them */
};

typedef struct teffi_op_queue {
    const char *engine;   /* its name, for errors */
    teffi_parker wake;    /* of the engine's thread */
    pthread_mutex_t lock; /* a leaf */
    /* guarded by lock */
    teffi_queue waiting; /* not taken yet */
    size_t ops, bytes;   /* submitted and not done */
    bool closed;
} teffi_op_queue;

void teffi_op_queue_init(teffi_op_queue *queue, const char *engine);
void teffi_op_queue_fini(teffi_op_queue *queue);

/* teffi_op_queue_submit - append op, or fail it and call its done() on this thread.
 * errs: in op->err: TEFF_E_CLOSED; TEFF_E_OVERLOADED, except for op->system. While no other write
 *       of values is queued or running, a write is not refused for its size. */
void teffi_op_queue_submit(teffi_op_queue *queue, teffi_store_op *op);

/* teffi_op_queue_take_ops - wait at most timeout_ns for an operation, then take the first ones as
 * a group. A scan ends its group, so it is the last operation there.
 * in:   timeout_ns, UINT64_MAX = none.
 * out:  how many, at most TEFFI_OP_QUEUE_GROUP_MAX; 0: none came (it may have waited less than
 *       timeout_ns), or the queue is closed and empty. Call teffi_op_queue_finish_op() for each
 *       operation taken. */
size_t teffi_op_queue_take_ops(teffi_op_queue *queue,
                               teffi_store_op *group[TEFFI_OP_QUEUE_GROUP_MAX],
                               uint64_t timeout_ns);

/* teffi_op_queue_finish_op - no longer count op in the limits of the queue, then call its done().
 * in:   op, which teffi_op_queue_take_ops() returned, with its result. */
void teffi_op_queue_finish_op(teffi_op_queue *queue, teffi_store_op *op);

/* teffi_op_queue_close - refuse further operations, and wake the engine's thread, which must still
 * take those in the queue. out: false: it was closed before. */
bool teffi_op_queue_close(teffi_op_queue *queue);

/* teffi_op_queue_is_closed - was teffi_op_queue_close() called? */
bool teffi_op_queue_is_closed(teffi_op_queue *queue);
