/* call_table.c - entries of pending calls: segments that double, free lists by thread.
 * Way:     get: own list -> own full batch -> shared batches -> new entries; put: the other way
 * Threads: a lane is its thread's; batches and growth under the lock. */
#include "node/call_table.h"

#include <stdlib.h>
#include <string.h>
#include "node/call.h"

enum { BATCH = TEFFI_CALL_BLOCK, LINE = 64 };

/* ---- entries by number ---- */

/* Segment s begins at FIRST * (2^s - 1). */
static unsigned segment_of(uint32_t slot)
{
    return 31u - (unsigned)__builtin_clz(slot / TEFFI_CALL_FIRST + 1);
}

static uint32_t begin_of(unsigned segment)
{
    return TEFFI_CALL_FIRST * ((1u << segment) - 1);
}

/* in: slot, below used, which the caller has read with acquire: so relaxed is enough here. */
static teffi_call_segment *segment_at(teffi_call_table *table, unsigned segment)
{
    return atomic_load_explicit(&table->segments[segment], memory_order_relaxed);
}

teffi_call *teffi_call_at(teffi_call_table *table, uint32_t slot)
{
    /* acquire: pairs with add_batch: the entry is there */
    if (slot >= atomic_load_explicit(&table->used, memory_order_acquire))
        return NULL;
    unsigned segment = segment_of(slot);
    return &segment_at(table, segment)->calls[slot - begin_of(segment)];
}

uint32_t teffi_call_blocks(teffi_call_table *table)
{
    /* acquire: as in teffi_call_at */
    return atomic_load_explicit(&table->used, memory_order_acquire) / TEFFI_CALL_BLOCK;
}

teffi_call_block teffi_call_block_at(teffi_call_table *table, uint32_t block)
{
    unsigned segment = segment_of(block * TEFFI_CALL_BLOCK);
    teffi_call_segment *s = segment_at(table, segment);
    uint32_t nth = block - begin_of(segment) / TEFFI_CALL_BLOCK;
    return (teffi_call_block){&s->calls[(size_t)nth * TEFFI_CALL_BLOCK], &s->earliest[nth]};
}

/* ---- growth, under the lock ---- */

/* Zeroed memory of this size holds no pages until it is written. */
static teffi_call_segment *segment_new(unsigned segment)
{
    size_t n = (size_t)TEFFI_CALL_FIRST << segment, n_blocks = n / TEFFI_CALL_BLOCK;
    size_t head = sizeof(teffi_call_segment) + n_blocks * sizeof(uint64_t);
    teffi_call_segment *s = calloc(1, head + LINE + n * sizeof(teffi_call));
    if (!s)
        return NULL;
    uintptr_t at = ((uintptr_t)s + head + LINE - 1) / LINE * LINE;
    s->calls = (teffi_call *)((char *)s + (at - (uintptr_t)s));
    return s;
}

/* out: the segment that holds the entry; NULL: there is no room. */
static teffi_call_segment *grow(teffi_call_table *table, uint32_t slot)
{
    unsigned segment = segment_of(slot);
    if (segment >= TEFFI_CALL_SEGMENTS)
        return NULL;
    teffi_call_segment *s = segment_at(table, segment);
    if (!s && (s = segment_new(segment))) /* relaxed: used publishes it */
        atomic_store_explicit(&table->segments[segment], s, memory_order_relaxed);
    return s;
}

/* out: one block of new entries, as a list. */
static teffi_call *add_batch(teffi_call_table *table)
{
    uint32_t from = atomic_load_explicit(&table->used, memory_order_relaxed);
    if (!grow(table, from))
        return NULL;
    teffi_call_block block = teffi_call_block_at(table, from / TEFFI_CALL_BLOCK);
    for (uint32_t i = 0; i < TEFFI_CALL_BLOCK; i++) {
        block.calls[i].node = table->node;
        block.calls[i].slot = from + i;
        block.calls[i].next = i + 1 < TEFFI_CALL_BLOCK ? &block.calls[i + 1] : NULL;
    }
    atomic_store_explicit(block.earliest, UINT64_MAX, memory_order_relaxed);
    /* release: pairs with teffi_call_at and teffi_call_blocks */
    atomic_store_explicit(&table->used, from + TEFFI_CALL_BLOCK, memory_order_release);
    return block.calls;
}

static teffi_call *take_batch(teffi_call_table *table)
{
    teffi_call *batch = table->batches;
    if (!batch)
        return add_batch(table);
    table->batches = batch->next_batch;
    return batch;
}

static void put_batch(teffi_call_table *table, teffi_call *batch)
{
    batch->next_batch = table->batches;
    table->batches = batch;
}

/* ---- a lane's lists ---- */

static teffi_call *pop(teffi_call_lane *lane)
{
    teffi_call *call = lane->free;
    if (!call)
        return NULL;
    lane->free = call->next;
    lane->n--;
    return call;
}

static void push(teffi_call_lane *lane, teffi_call *call)
{
    call->next = lane->free;
    lane->free = call;
    lane->n++;
}

static teffi_call *refilled(teffi_call_lane *lane, teffi_call *batch)
{
    lane->free = batch;
    lane->n = batch ? BATCH : 0;
    return pop(lane);
}

/* Its own list is empty. */
static __attribute__((noinline)) teffi_call *refill(teffi_call_table *table, teffi_call_lane *lane)
{
    teffi_call *batch = lane->full;
    lane->full = NULL;
    if (!batch) {
        pthread_mutex_lock(&table->lock);
        batch = take_batch(table);
        pthread_mutex_unlock(&table->lock);
    }
    return refilled(lane, batch);
}

/* Its own list is a batch. */
static __attribute__((noinline)) void flush(teffi_call_table *table, teffi_call_lane *lane)
{
    if (lane->full) {
        pthread_mutex_lock(&table->lock);
        put_batch(table, lane->full);
        pthread_mutex_unlock(&table->lock);
    }
    lane->full = lane->free;
    lane->free = NULL;
    lane->n = 0;
}

static teffi_call *get_shared(teffi_call_table *table)
{
    pthread_mutex_lock(&table->lock);
    teffi_call *call = pop(&table->shared);
    if (!call)
        call = refilled(&table->shared, take_batch(table));
    pthread_mutex_unlock(&table->lock);
    return call;
}

static void put_shared(teffi_call_table *table, teffi_call *call)
{
    pthread_mutex_lock(&table->lock);
    if (table->shared.n == BATCH) {
        put_batch(table, table->shared.free);
        table->shared.free = NULL;
        table->shared.n = 0;
    }
    push(&table->shared, call);
    pthread_mutex_unlock(&table->lock);
}

teffi_call *teffi_call_get(teffi_call_table *table)
{
    unsigned n = teffi_lane();
    if (n == TEFFI_LANES)
        return get_shared(table);
    teffi_call *call = pop(&table->lanes[n]);
    return call ? call : refill(table, &table->lanes[n]);
}

void teffi_call_put(teffi_call_table *table, teffi_call *call)
{
    unsigned n = teffi_lane();
    if (n == TEFFI_LANES) {
        put_shared(table, call);
        return;
    }
    if (table->lanes[n].n == BATCH)
        flush(table, &table->lanes[n]);
    push(&table->lanes[n], call);
}

/* ---- */

void teffi_call_table_init(teffi_call_table *table, struct teffi_node *node)
{
    memset(table, 0, sizeof *table);
    table->node = node;
    pthread_mutex_init(&table->lock, NULL);
}

void teffi_call_table_fini(teffi_call_table *table)
{
    for (uint32_t b = 0; b < teffi_call_blocks(table); b++) {
        teffi_call_block block = teffi_call_block_at(table, b);
        for (int i = 0; i < TEFFI_CALL_BLOCK; i++) /* of turns that were dropped */
            teffi_msg_free(block.calls[i].reply);
    }
    for (unsigned s = 0; s < TEFFI_CALL_SEGMENTS; s++)
        free(segment_at(table, s));
    pthread_mutex_destroy(&table->lock);
}
