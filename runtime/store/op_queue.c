/* op_queue.c - a bounded queue of operations for the thread of a server engine. */
#include "store/op_queue.h"

void teffi_op_queue_init(teffi_op_queue *queue, const char *engine)
{
    *queue = (teffi_op_queue){.engine = engine};
    pthread_mutex_init(&queue->lock, NULL);
}

void teffi_op_queue_fini(teffi_op_queue *queue)
{
    pthread_mutex_destroy(&queue->lock);
}

/* Is the queue too full for a new operation? The limit of bytes applies only while another write of
 * values is queued or running, so an idle queue accepts a write of any size. in: bytes: the size of
 * all values that the new operation writes. runs: with the lock held. */
static bool is_op_queue_full(const teffi_op_queue *queue, size_t bytes)
{
    return queue->ops >= TEFFI_OP_QUEUE_OPS_MAX ||
           (queue->bytes && bytes && queue->bytes + bytes > TEFFI_OP_QUEUE_BYTES_MAX);
}

void teffi_op_queue_submit(teffi_op_queue *queue, teffi_store_op *op)
{
    size_t bytes = teffi_store_op_sum_value_bytes(op);
    pthread_mutex_lock(&queue->lock);
    bool closed = queue->closed, full = !op->system && is_op_queue_full(queue, bytes);
    bool first = !queue->waiting.head;
    if (!closed && !full) {
        teffi_queue_push(&queue->waiting, &op->node);
        queue->ops++;
        queue->bytes += bytes;
    }
    pthread_mutex_unlock(&queue->lock);
    if (!closed && !full) {
        if (first)
            teffi_parker_wake(&queue->wake);
        return;
    }
    if (closed)
        teffi_store_op_set_error(op, TEFF_E_CLOSED, "%s: the store is closed", queue->engine);
    else
        teffi_store_op_set_error(op, TEFF_E_OVERLOADED, "%s: %d operations, or %d bytes, wait",
                                 queue->engine, TEFFI_OP_QUEUE_OPS_MAX, TEFFI_OP_QUEUE_BYTES_MAX);
    op->done(op);
}

/* Is an operation queued, or is the queue closed? */
static bool op_queue_has_op_or_is_closed(teffi_op_queue *queue)
{
    pthread_mutex_lock(&queue->lock);
    bool ready = queue->waiting.head || queue->closed;
    pthread_mutex_unlock(&queue->lock);
    return ready;
}

/* Must the group end after its newest operation, `last`? A scan always ends its group. in: n: the
 * number of operations in the group. reads: how many of them are reads or scans. */
static bool group_must_end(const teffi_store_op *last, size_t n, size_t reads)
{
    return n == TEFFI_OP_QUEUE_GROUP_MAX || reads == TEFFI_OP_QUEUE_GROUP_READS_MAX ||
           last->kind == TEFFI_STORE_SCAN;
}

size_t teffi_op_queue_take_ops(teffi_op_queue *queue,
                               teffi_store_op *group[TEFFI_OP_QUEUE_GROUP_MAX], uint64_t timeout_ns)
{
    size_t n = 0, bytes = 0, reads = 0;
    /* a loop, because the wake-up may be for an operation that an earlier call has taken */
    while (!op_queue_has_op_or_is_closed(queue) && teffi_parker_wait(&queue->wake, timeout_ns))
        ;
    pthread_mutex_lock(&queue->lock);
    while (queue->waiting.head && !(n > 0 && group_must_end(group[n - 1], n, reads))) {
        teffi_store_op *op = teffi_container(queue->waiting.head, teffi_store_op, node);
        bytes += teffi_store_op_sum_value_bytes(op);
        if (n > 0 && bytes > TEFFI_OP_QUEUE_GROUP_BYTES_MAX)
            break;
        (void)teffi_queue_pop(&queue->waiting);
        reads += teffi_store_op_is_read(op);
        group[n++] = op;
    }
    pthread_mutex_unlock(&queue->lock);
    return n;
}

void teffi_op_queue_finish_op(teffi_op_queue *queue, teffi_store_op *op)
{
    size_t bytes = teffi_store_op_sum_value_bytes(op);
    pthread_mutex_lock(&queue->lock);
    queue->ops--;
    queue->bytes -= bytes;
    pthread_mutex_unlock(&queue->lock);
    op->done(op);
}

bool teffi_op_queue_close(teffi_op_queue *queue)
{
    pthread_mutex_lock(&queue->lock);
    bool first = !queue->closed;
    queue->closed = true;
    pthread_mutex_unlock(&queue->lock);
    teffi_parker_wake(&queue->wake);
    return first;
}

bool teffi_op_queue_is_closed(teffi_op_queue *queue)
{
    pthread_mutex_lock(&queue->lock);
    bool closed = queue->closed;
    pthread_mutex_unlock(&queue->lock);
    return closed;
}
