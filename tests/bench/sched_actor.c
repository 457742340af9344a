/* sched_actor.c - actors upon groups, their memory pooled by thread.
 * Way:     send -> a pooled message -> group -> receive -> the pool of the thread that ran it
 * Threads: a cache belongs to its thread; full batches move between threads under a lock.
 * Source:  Bonwick and Adams 2001, Magazines and Vmem */
#include "sched_actor.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "base/queue.h"
#include "os/thread.h"

teffi_platform bench_platform;
teffi_exec *bench_exec;

static void *need(void *memory)
{
    if (!memory) {
        fprintf(stderr, "sched: memory is out\n");
        exit(1);
    }
    return memory;
}

/* ---- pools ---- */

enum { BATCH = 256, CHUNK = 1 << 21 };

typedef struct node {
    struct node *next;
    struct node *next_batch; /* of a batch's first node, while it is in the depot */
} node;

typedef struct depot { /* full batches, for all threads */
    pthread_mutex_t lock;
    node *batches;
} depot;

typedef struct cache { /* a thread's own nodes of one size */
    node *free, *full; /* full: NULL or a batch */
    unsigned n_free;
    char *fresh, *fresh_end;
} cache;

enum { OF_MESSAGES, OF_ACTORS, OF_LARGE_ACTORS, POOLS };

static const size_t bytes_of[POOLS] = {sizeof(message), 64, ACTOR_BYTES_MAX};
static depot depots[POOLS] = {{.lock = PTHREAD_MUTEX_INITIALIZER},
                              {.lock = PTHREAD_MUTEX_INITIALIZER},
                              {.lock = PTHREAD_MUTEX_INITIALIZER}};
static _Thread_local cache caches[POOLS];

static void put_batch_in_depot(depot *d, node *batch)
{
    pthread_mutex_lock(&d->lock);
    batch->next_batch = d->batches;
    d->batches = batch;
    pthread_mutex_unlock(&d->lock);
}

static node *get_batch_from_depot(depot *d)
{
    pthread_mutex_lock(&d->lock);
    node *batch = d->batches;
    if (batch)
        d->batches = batch->next_batch;
    pthread_mutex_unlock(&d->lock);
    return batch;
}

static void *fresh(cache *c, size_t bytes)
{
    if ((size_t)(c->fresh_end - c->fresh) < bytes) {
        c->fresh = need(aligned_alloc(64, CHUNK));
        c->fresh_end = c->fresh + CHUNK;
    }
    void *memory = c->fresh;
    c->fresh += bytes;
    return memory;
}

static __attribute__((noinline)) void *refilled(int pool)
{
    cache *c = &caches[pool];
    node *batch = c->full ? c->full : get_batch_from_depot(&depots[pool]);
    c->full = NULL;
    if (!batch)
        return fresh(c, bytes_of[pool]);
    c->free = batch->next;
    c->n_free = BATCH - 1;
    return batch;
}

static void *pool_get(int pool)
{
    cache *c = &caches[pool];
    node *n = c->free;
    if (!n)
        return refilled(pool);
    c->free = n->next;
    c->n_free--;
    return n;
}

static __attribute__((noinline)) void flush(int pool)
{
    cache *c = &caches[pool];
    if (c->full)
        put_batch_in_depot(&depots[pool], c->full);
    c->full = c->free;
    c->free = NULL;
    c->n_free = 0;
}

static void pool_put(int pool, void *memory)
{
    cache *c = &caches[pool];
    if (c->n_free == BATCH)
        flush(pool);
    node *n = memory;
    n->next = c->free;
    c->free = n;
    c->n_free++;
}

/* ---- actors ---- */

static void handle(teffi_group *group, teffi_item *item)
{
    actor *self = teffi_container(group, actor, group);
    message *m = teffi_container(item, message, item);
    self->receive(self, m);
    pool_put(OF_MESSAGES, m);
}

static void ended(teffi_group *group)
{
    pool_put(OF_ACTORS, group);
}

static void ended_large(teffi_group *group)
{
    pool_put(OF_LARGE_ACTORS, group);
}

static const teffi_group_ops small_ops = {.handle = handle, .ended = ended};
static const teffi_group_ops large_ops = {.handle = handle, .ended = ended_large};

void *actor_spawn(size_t bytes, actor_receive *receive)
{
    bool small = bytes <= bytes_of[OF_ACTORS];
    actor *a = pool_get(small ? OF_ACTORS : OF_LARGE_ACTORS);
    teffi_group_init(&a->group, bench_exec, small ? &small_ops : &large_ops);
    a->receive = receive;
    memset(a + 1, 0, bytes - sizeof *a);
    return a;
}

void actor_send(actor *to, actor *from, uint32_t kind, int64_t value)
{
    message *m = pool_get(OF_MESSAGES);
    m->item.kind = kind;
    m->from = from;
    m->value = value;
    if (!teffi_group_push(&to->group, &m->item))
        pool_put(OF_MESSAGES, m);
}

void actor_quit(actor *self)
{
    teffi_group_complete(&self->group);
}

/* ---- a row's end ---- */

static _Atomic int left;
static teffi_parker waiter;

void row_begin(int count)
{
    atomic_store_explicit(&left, count, memory_order_relaxed);
}

void row_done(void)
{
    /* acq_rel: all that the row did, for row_wait */
    if (atomic_fetch_sub_explicit(&left, 1, memory_order_acq_rel) == 1)
        teffi_parker_wake(&waiter);
}

void row_wait(void)
{
    while (atomic_load_explicit(&left, memory_order_acquire) > 0)
        teffi_parker_wait(&waiter, UINT64_MAX);
}
