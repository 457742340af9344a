/* lane.c - a bounded queue of operations for the thread of a server engine. */
#include "store/lane.h"

void teffi_lane_init(teffi_lane *lane, const char *engine)
{
    *lane = (teffi_lane){.engine = engine};
    pthread_mutex_init(&lane->lock, NULL);
}

void teffi_lane_fini(teffi_lane *lane)
{
    pthread_mutex_destroy(&lane->lock);
}

/* Lock held. Must a new operation be refused? A write of any size is accepted while no other write
 * of values is queued or running. in: bytes: of the values that the new operation writes. */
static bool is_lane_full(const teffi_lane *lane, size_t bytes)
{
    return lane->ops >= TEFFI_LANE_OPS_MAX ||
           (lane->bytes && bytes && lane->bytes + bytes > TEFFI_LANE_BYTES_MAX);
}

void teffi_lane_submit(teffi_lane *lane, teffi_store_op *op)
{
    size_t bytes = teffi_store_value_bytes(op);
    pthread_mutex_lock(&lane->lock);
    bool closed = lane->closed, full = !op->system && is_lane_full(lane, bytes);
    bool first = !lane->queue.head;
    if (!closed && !full) {
        teffi_queue_push(&lane->queue, &op->node);
        lane->ops++;
        lane->bytes += bytes;
    }
    pthread_mutex_unlock(&lane->lock);
    if (!closed && !full) {
        if (first)
            teffi_parker_wake(&lane->wake);
        return;
    }
    if (closed)
        teffi_store_fail(op, TEFF_E_CLOSED, "%s: the store is closed", lane->engine);
    else
        teffi_store_fail(op, TEFF_E_OVERLOADED, "%s: %d operations, or %d bytes, wait",
                         lane->engine, TEFFI_LANE_OPS_MAX, TEFFI_LANE_BYTES_MAX);
    op->done(op);
}

/* Is an operation queued, or is the lane closed? */
static bool lane_is_ready(teffi_lane *lane)
{
    pthread_mutex_lock(&lane->lock);
    bool ready = lane->queue.head || lane->closed;
    pthread_mutex_unlock(&lane->lock);
    return ready;
}

/* Must the group end behind `last`, its newest operation? in: n, its operations; reads, how many of
 * these are reads or scans. A scan always ends its group. */
static bool group_is_full(const teffi_store_op *last, size_t n, size_t reads)
{
    return n == TEFFI_LANE_GROUP_MAX || reads == TEFFI_LANE_GROUP_READS_MAX ||
           last->kind == TEFFI_STORE_SCAN;
}

size_t teffi_lane_take(teffi_lane *lane, teffi_store_op *group[TEFFI_LANE_GROUP_MAX],
                       uint64_t timeout_ns)
{
    size_t n = 0, bytes = 0, reads = 0;
    /* a token may be of an operation that was taken already: then waits again */
    while (!lane_is_ready(lane) && teffi_parker_wait(&lane->wake, timeout_ns))
        ;
    pthread_mutex_lock(&lane->lock);
    while (lane->queue.head && !(n > 0 && group_is_full(group[n - 1], n, reads))) {
        teffi_store_op *op = teffi_container(lane->queue.head, teffi_store_op, node);
        bytes += teffi_store_value_bytes(op);
        if (n > 0 && bytes > TEFFI_LANE_GROUP_BYTES_MAX)
            break;
        (void)teffi_queue_pop(&lane->queue);
        reads += teffi_store_is_read(op);
        group[n++] = op;
    }
    pthread_mutex_unlock(&lane->lock);
    return n;
}

void teffi_lane_finish(teffi_lane *lane, teffi_store_op *op)
{
    size_t bytes = teffi_store_value_bytes(op);
    pthread_mutex_lock(&lane->lock);
    lane->ops--;
    lane->bytes -= bytes;
    pthread_mutex_unlock(&lane->lock);
    op->done(op);
}

bool teffi_lane_close(teffi_lane *lane)
{
    pthread_mutex_lock(&lane->lock);
    bool first = !lane->closed;
    lane->closed = true;
    pthread_mutex_unlock(&lane->lock);
    teffi_parker_wake(&lane->wake);
    return first;
}

bool teffi_lane_is_closed(teffi_lane *lane)
{
    pthread_mutex_lock(&lane->lock);
    bool closed = lane->closed;
    pthread_mutex_unlock(&lane->lock);
    return closed;
}
