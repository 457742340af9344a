/* lane.h - a bounded queue of operations for a thread of a server engine: postgres, redis and etcd
 * have two threads, with a lane each.
 * Way:     submit -> [lane] -> the engine's thread takes a group -> [lane] -> done()
 * Threads: submit, close, is_closed: any. take, finish: the engine's thread. done() of a refused
 *          operation runs on the submitter's thread. */
#pragma once

#include <pthread.h>
#include "os/thread.h"
#include "store/engine.h"

enum {
    TEFFI_LANE_GROUP_MAX = 1024,                   /* operations of one group */
    TEFFI_LANE_GROUP_BYTES_MAX = 16 * 1024 * 1024, /* values of one group; one op always fits */
    TEFFI_LANE_GROUP_READS_MAX = 64, /* of one group: all their results are in memory at once */
    TEFFI_LANE_OPS_MAX = 64 * 1024,  /* operations submitted and not done */
    TEFFI_LANE_BYTES_MAX = 64 * 1024 * 1024 /* values of the writes among them */
};

typedef struct teffi_lane {
    const char *engine;   /* its name, for errors */
    teffi_parker wake;    /* of the engine's thread */
    pthread_mutex_t lock; /* a leaf */
    /* guarded by lock */
    teffi_queue queue;
    size_t ops, bytes; /* submitted and not done */
    bool closed;
} teffi_lane;

void teffi_lane_init(teffi_lane *lane, const char *engine);
void teffi_lane_fini(teffi_lane *lane);

/* teffi_lane_submit - append op, or fail it and call its done() on this thread.
 * errs: in op->err: TEFF_E_CLOSED; TEFF_E_OVERLOADED, except for op->system. While no other write
 *       of values is queued or running, a write of any size is accepted. */
void teffi_lane_submit(teffi_lane *lane, teffi_store_op *op);

/* teffi_lane_take - wait at most timeout_ns for an operation, then take the first ones as a group.
 * A scan ends its group, so it is the last operation there.
 * in:   timeout_ns, UINT64_MAX = none.
 * out:  how many, at most TEFFI_LANE_GROUP_MAX; 0: none came (it may have waited less than
 *       timeout_ns), or the lane is closed and empty. Call teffi_lane_finish() for each of them. */
size_t teffi_lane_take(teffi_lane *lane, teffi_store_op *group[TEFFI_LANE_GROUP_MAX],
                       uint64_t timeout_ns);

/* teffi_lane_finish - count an operation that was taken as done, then call its done(). in: op, with
 * its result. */
void teffi_lane_finish(teffi_lane *lane, teffi_store_op *op);

/* teffi_lane_close - refuse further operations, and wake the engine's thread, which must still take
 * those in the queue. out: false: it was closed before. */
bool teffi_lane_close(teffi_lane *lane);

/* teffi_lane_is_closed - was teffi_lane_close() called? */
bool teffi_lane_is_closed(teffi_lane *lane);
