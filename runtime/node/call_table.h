/* call_table.h - which entries of pending calls are free, by thread.
 * Way:     call -> [call_table] -> call_space, base/lane
 * Threads: any. A thread takes and gives back from a list of its own, in full batches from and to
 *          what all share, under the lock. What nobody needs there for a while goes back to the
 *          space it came from, and from there to the system (call_trim.h). */
#ifndef TEFFI_NODE_CALL_TABLE_H
#define TEFFI_NODE_CALL_TABLE_H

#include <pthread.h>
#include <stdint.h>
#include "base/lane.h"
#include "node/call_space.h"
#include "node/call_trim.h"

/* A thread's free entries. The space keeps two threads' fields from sharing a cache line. */
typedef struct teffi_call_lane {
    teffi_call *free, *full; /* full: a batch of TEFFI_CALL_BLOCK, or NULL */
    uint32_t n;              /* in free */
    char space[96 - 2 * sizeof(void *) - sizeof(uint32_t)];
} teffi_call_lane;

typedef struct teffi_call_table {
    teffi_call_space space;
    pthread_mutex_t lock; /* guards the next ones, and what call_space.h says */
    teffi_call *batches;
    uint32_t n_batches;
    teffi_call_trim trim;
    teffi_call_lane shared; /* of threads that have no lane */
    teffi_call_lane lanes[TEFFI_LANES];
} teffi_call_table;

void teffi_call_table_init(teffi_call_table *table, struct teffi_node *node);
void teffi_call_table_fini(teffi_call_table *table);

/* teffi_call_get - an entry that nobody uses, as it was left, or zeroed but for its generation.
 * out: NULL: 16.7 M are in use, or memory is out. */
teffi_call *teffi_call_get(teffi_call_table *table);

/* teffi_call_put - nobody uses it any more. */
void teffi_call_put(teffi_call_table *table, teffi_call *call);

/* teffi_call_spare - one of the shared batches, for call_trim. The lock is held.
 * out: NULL: there is none. */
teffi_call *teffi_call_spare(teffi_call_table *table);

#endif
