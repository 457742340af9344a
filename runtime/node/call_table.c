/* call_table.c - entries of pending calls: free lists by thread.
 * Way:     get: own list -> own full batch -> shared batches -> the space; put: the other way
 * Threads: a lane is its thread's; the rest under the lock. */
#include "node/call_table.h"

#include <string.h>
#include "node/call.h"

enum { BATCH = TEFFI_CALL_BLOCK };

/* ---- batches, under the lock ---- */

teffi_call *teffi_call_spare(teffi_call_table *table)
{
    teffi_call *batch = table->batches;
    if (!batch)
        return NULL;
    table->batches = batch->next_batch;
    table->n_batches--;
    if (table->n_batches < table->trim.low)
        table->trim.low = table->n_batches;
    return batch;
}

/* out: *n entries, as a list: a batch, or what the space has. */
static teffi_call *take_batch(teffi_call_table *table, uint32_t *n)
{
    *n = BATCH;
    teffi_call *batch = teffi_call_spare(table);
    return batch ? batch : teffi_call_space_take(&table->space, n);
}

static void put_batch(teffi_call_table *table, teffi_call *batch)
{
    batch->next_batch = table->batches;
    table->batches = batch;
    table->n_batches++;
    teffi_call_trim_look(table);
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

static teffi_call *refilled(teffi_call_lane *lane, teffi_call *batch, uint32_t n)
{
    lane->free = batch;
    lane->n = n;
    return pop(lane);
}

/* Its own list is empty. */
static __attribute__((noinline)) teffi_call *refill(teffi_call_table *table, teffi_call_lane *lane)
{
    teffi_call *batch = lane->full;
    uint32_t n = BATCH;
    lane->full = NULL;
    if (!batch) {
        pthread_mutex_lock(&table->lock);
        batch = take_batch(table, &n);
        pthread_mutex_unlock(&table->lock);
    }
    return refilled(lane, batch, n);
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

static __attribute__((noinline)) teffi_call *get_shared(teffi_call_table *table)
{
    pthread_mutex_lock(&table->lock);
    teffi_call *call = pop(&table->shared);
    if (!call) {
        uint32_t n;
        teffi_call *batch = take_batch(table, &n);
        call = refilled(&table->shared, batch, n);
    }
    pthread_mutex_unlock(&table->lock);
    return call;
}

static __attribute__((noinline)) void put_shared(teffi_call_table *table, teffi_call *call)
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
    teffi_call_space_init(&table->space, node);
    teffi_call_trim_init(table);
    pthread_mutex_init(&table->lock, NULL);
}

void teffi_call_table_fini(teffi_call_table *table)
{
    teffi_call_space_fini(&table->space);
    pthread_mutex_destroy(&table->lock);
}
