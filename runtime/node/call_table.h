/* call_table.h - where pending calls live: found by slot without a lock; which entries are free.
 * Way:     call -> [call_table] -> base/lane
 * Threads: any. Entries are never freed while the node lives. A thread takes and gives back from a
 *          list of its own, in full batches from and to what all share, under the lock. */
#ifndef TEFFI_NODE_CALL_TABLE_H
#define TEFFI_NODE_CALL_TABLE_H

#include <pthread.h>
#include <stdatomic.h>
#include <stdint.h>
#include "base/lane.h"

struct teffi_node;
typedef struct teffi_call teffi_call;

/* Segments double: 1024 entries, 2048 ...; 14 of them hold 16.7 million. */
enum { TEFFI_CALL_BLOCK = 64, TEFFI_CALL_FIRST = 1024, TEFFI_CALL_SEGMENTS = 14 };

/* 64 entries in a row: a batch when they are new, and looked at together when one is due. */
typedef struct teffi_call_block {
    teffi_call *calls;          /* the first of TEFFI_CALL_BLOCK */
    _Atomic uint64_t *earliest; /* none of them is due before; see call_late.h */
} teffi_call_block;

typedef struct teffi_call_segment {
    teffi_call *calls;
    _Atomic uint64_t earliest[]; /* by block; set when its entries are first handed out */
} teffi_call_segment;

/* A thread's free entries. The space keeps two threads' fields from sharing a cache line. */
typedef struct teffi_call_lane {
    teffi_call *free, *full; /* full: a batch, or NULL */
    uint32_t n;              /* in free */
    char space[96 - 2 * sizeof(void *) - sizeof(uint32_t)];
} teffi_call_lane;

typedef struct teffi_call_table {
    struct teffi_node *node; /* immutable: its entries say so */
    teffi_call_segment *_Atomic segments[TEFFI_CALL_SEGMENTS];
    /* Entries that have been handed out so far; release under the lock: pairs with whoever reads it
     * and then looks at them. */
    _Atomic uint32_t used;
    pthread_mutex_t lock; /* guards the next two, and growth */
    teffi_call *batches;
    teffi_call_lane shared; /* of threads that have no lane */
    teffi_call_lane lanes[TEFFI_LANES];
} teffi_call_table;

void teffi_call_table_init(teffi_call_table *table, struct teffi_node *node);
void teffi_call_table_fini(teffi_call_table *table);

/* teffi_call_get - an entry that nobody uses, as it was left. out: NULL: 16.7 M are in use, or
 * memory is out. */
teffi_call *teffi_call_get(teffi_call_table *table);

/* teffi_call_put - nobody uses it any more. */
void teffi_call_put(teffi_call_table *table, teffi_call *call);

/* teffi_call_at - in: slot, any number. out: its entry; NULL when there never was one. */
teffi_call *teffi_call_at(teffi_call_table *table, uint32_t slot);

/* teffi_call_blocks - blocks that have been handed out; teffi_call_block_at: one of them. */
uint32_t teffi_call_blocks(teffi_call_table *table);
teffi_call_block teffi_call_block_at(teffi_call_table *table, uint32_t block);

#endif
