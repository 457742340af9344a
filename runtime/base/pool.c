/* pool.c - free lists by size, a thread's own; full batches are traded through a depot.
 * Way:     get: own list -> own full batch -> depot -> heap; put: the other way
 * Threads: a cache is its thread's; a depot's fields are under its lock, n_batches also read
 *          without. What a thread held when it ends goes to the depots.
 * A stack may go on on another thread: neither get nor put is inlined, so that no caller keeps the
 * address of a cache. */
#include "base/pool.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdlib.h>
#include "base/local.h"
#include "base/poison.h"

enum { STEP = 64, CLASSES = 6, TRIM_EVERY = 64 };

typedef struct node { /* inside what is free */
    struct node *next;
    struct node *next_batch; /* of a batch's first, in the depot */
} node;

typedef struct cache {
    node *free, *full; /* full: a batch, or NULL */
    unsigned room;     /* until free is a batch; 0 also before the first use */
} cache;

typedef struct depot {
    pthread_mutex_t lock;
    node *batches;
    _Atomic unsigned n_batches;
    unsigned least; /* batches that have been here since the last trim */
    unsigned puts;
    unsigned low, spare; /* the same since the last look of teffi_pool_age; to be given back */
} depot;

enum { AGE_KEEPS = 16, AGE_SLICE = 64 }; /* batches of a size: what stays; given back at once */
static const uint64_t age_ns = 100000000;
static _Atomic uint64_t looked_ns;

static const unsigned short bytes_of[CLASSES] = {64, 128, 256, 512, 768, 1024};
static const unsigned short batch_of[CLASSES] = {128, 64, 64, 32, 16, 16};
static const unsigned char class_of[TEFFI_POOL_MAX / STEP + 1] = {0, 0, 1, 2, 2, 3, 3, 3, 3,
                                                                  4, 4, 4, 4, 5, 5, 5, 5};

#define DEPOT                                                                                      \
    {                                                                                              \
        .lock = PTHREAD_MUTEX_INITIALIZER,                                                         \
    }

static depot depots[CLASSES] = {DEPOT, DEPOT, DEPOT, DEPOT, DEPOT, DEPOT};
static TEFFI_LOCAL cache caches[CLASSES];
static TEFFI_LOCAL int leaves; /* this thread's end is seen to */
static pthread_once_t once = PTHREAD_ONCE_INIT;
static pthread_key_t key;

/* The node lies at the beginning: that line is in the cache. Under AddressSanitizer it lies at the
 * end, where users rarely are, and all before it is poisoned: the leak checker does not follow
 * what is. */
static node *node_of(void *memory, unsigned of)
{
#ifdef TEFFI_POISONS
    node *n = (node *)(void *)((char *)memory + bytes_of[of] - sizeof *n);
    ASAN_UNPOISON_MEMORY_REGION(n, sizeof *n);
    ASAN_POISON_MEMORY_REGION(memory, bytes_of[of] - sizeof *n);
    return n;
#else
    (void)of;
    return memory;
#endif
}

static void *memory_of(node *n, unsigned of)
{
#ifdef TEFFI_POISONS
    void *memory = (char *)n - bytes_of[of] + sizeof(node);
    ASAN_UNPOISON_MEMORY_REGION(memory, bytes_of[of]);
    return memory;
#else
    (void)of;
    return n;
#endif
}

static void free_batch(node *batch, unsigned of)
{
    while (batch) {
        node *next = batch->next;
        free(memory_of(batch, of));
        batch = next;
    }
}

/* ---- the depot ---- */

static node *take_batch(depot *d)
{
    node *batch = d->batches;
    if (!batch)
        return NULL;
    d->batches = batch->next_batch;
    /* relaxed here and below: readers without the lock only guess */
    unsigned n = atomic_load_explicit(&d->n_batches, memory_order_relaxed) - 1;
    atomic_store_explicit(&d->n_batches, n, memory_order_relaxed);
    d->least = n < d->least ? n : d->least;
    d->low = n < d->low ? n : d->low;
    return batch;
}

/* The lock is held. out: one that nobody has needed since the last trim, NULL: there is none. */
static node *trim(depot *d)
{
    unsigned spare = d->least;
    node *batch = spare ? take_batch(d) : NULL;
    d->least = atomic_load_explicit(&d->n_batches, memory_order_relaxed);
    return batch;
}

static node *depot_get(unsigned of)
{
    depot *d = &depots[of];
    if (!atomic_load_explicit(&d->n_batches, memory_order_relaxed))
        return NULL;
    pthread_mutex_lock(&d->lock);
    node *batch = take_batch(d);
    pthread_mutex_unlock(&d->lock);
    return batch;
}

static void depot_put(unsigned of, node *batch)
{
    depot *d = &depots[of];
    node *spare = NULL;
    pthread_mutex_lock(&d->lock);
    batch->next_batch = d->batches;
    d->batches = batch;
    atomic_fetch_add_explicit(&d->n_batches, 1, memory_order_relaxed);
    if (++d->puts % TRIM_EVERY == 0)
        spare = trim(d);
    pthread_mutex_unlock(&d->lock);
    free_batch(spare, of);
}

void teffi_pool_idle(void)
{
    for (unsigned of = 0; of < CLASSES; of++) {
        depot *d = &depots[of];
        if (!atomic_load_explicit(&d->n_batches, memory_order_relaxed))
            continue;
        pthread_mutex_lock(&d->lock);
        node *spare = trim(d);
        pthread_mutex_unlock(&d->lock);
        free_batch(spare, of);
    }
}

/* The lock is held. out: batches, linked, of those that nobody needed between two looks. */
static node *aged(depot *d, bool look)
{
    node *spare = NULL;
    unsigned n = atomic_load_explicit(&d->n_batches, memory_order_relaxed);
    if (look) {
        d->spare = d->low > AGE_KEEPS ? d->low - AGE_KEEPS : 0;
        d->low = n;
    }
    unsigned most = d->spare < d->low ? d->spare : d->low;
    for (unsigned i = 0; i < AGE_SLICE && i < most; i++) {
        node *batch = take_batch(d);
        batch->next_batch = spare;
        spare = batch;
        d->spare--;
    }
    return spare;
}

static size_t free_batches(node *batch, unsigned of)
{
    size_t n = 0;
    for (; batch; n++) {
        node *next = batch->next_batch;
        free_batch(batch, of);
        batch = next;
    }
    return n * batch_of[of] * bytes_of[of];
}

bool teffi_pool_age(uint64_t now_ns, size_t *gone_bytes)
{
    /* relaxed: two that look at once do no harm */
    uint64_t last = atomic_load_explicit(&looked_ns, memory_order_relaxed);
    bool look = now_ns - last >= age_ns, more = false;
    if (look)
        atomic_store_explicit(&looked_ns, now_ns, memory_order_relaxed);
    for (unsigned of = 0; of < CLASSES; of++) {
        depot *d = &depots[of];
        if (atomic_load_explicit(&d->n_batches, memory_order_relaxed) <= AGE_KEEPS)
            continue;
        pthread_mutex_lock(&d->lock);
        node *spare = aged(d, look);
        pthread_mutex_unlock(&d->lock);
        *gone_bytes += free_batches(spare, of);
        more |= atomic_load_explicit(&d->n_batches, memory_order_relaxed) > AGE_KEEPS;
    }
    return more;
}

size_t teffi_pool_kept(void)
{
    size_t bytes = 0;
    for (unsigned of = 0; of < CLASSES; of++)
        bytes += (size_t)atomic_load_explicit(&depots[of].n_batches, memory_order_relaxed) *
                 batch_of[of] * bytes_of[of];
    return bytes;
}

/* ---- a thread's lists ---- */

static void leave(void *arg)
{
    cache *own = arg;
    for (unsigned of = 0; of < CLASSES; of++) {
        if (own[of].full)
            depot_put(of, own[of].full);
        free_batch(own[of].free, of);
        own[of] = (cache){0};
    }
    leaves = 0;
}

static void make_key(void)
{
    (void)pthread_key_create(&key, leave);
}

/* Without the key a thread's lists would be lost when it ends: a leak of two batches a size. */
static void see_to_the_end(void)
{
    leaves = 1;
    (void)pthread_once(&once, make_key);
    (void)pthread_setspecific(key, caches);
}

static __attribute__((noinline)) void *refill(cache *c, unsigned of)
{
    node *batch = c->full ? c->full : depot_get(of);
    c->full = NULL;
    if (!batch)
        return malloc(bytes_of[of]);
    if (!leaves)
        see_to_the_end();
    c->free = batch->next;
    c->room = 1;
    return memory_of(batch, of);
}

/* What lies behind the n bytes that were asked for is nobody's. */
static void *just(void *memory, size_t n, unsigned of)
{
#ifdef TEFFI_POISONS
    if (memory)
        ASAN_POISON_MEMORY_REGION((char *)memory + n, bytes_of[of] - n);
#else
    (void)n;
    (void)of;
#endif
    return memory;
}

__attribute__((noinline)) void *teffi_pool_get(size_t n)
{
    if (n > TEFFI_POOL_MAX)
        return malloc(n);
    unsigned of = class_of[(n + STEP - 1) / STEP];
    cache *c = &caches[of];
    node *first = c->free;
    if (!first)
        return just(refill(c, of), n, of);
    c->free = first->next;
    c->room++;
    return just(memory_of(first, of), n, of);
}

static __attribute__((noinline)) void flush(cache *c, unsigned of)
{
    if (!leaves)
        see_to_the_end();
    if (c->full)
        depot_put(of, c->full);
    c->full = c->free;
    c->free = NULL;
    c->room = batch_of[of];
}

__attribute__((noinline)) void teffi_pool_put(void *memory, size_t n)
{
    if (n > TEFFI_POOL_MAX || !memory) {
        free(memory);
        return;
    }
    unsigned of = class_of[(n + STEP - 1) / STEP];
    cache *c = &caches[of];
    if (!c->room)
        flush(c, of);
    node *first = node_of(memory, of);
    first->next = c->free;
    c->free = first;
    c->room--;
}
