/* pool.c - per-thread free lists by size; threads exchange full batches through depots.
 * Way:     get: own list -> own full batch -> depot -> heap
 *          put: own list -> own full batch -> depot; reclaim: depot -> heap
 * Threads: a cache is owned by its thread; a depot's fields are guarded by its lock, n_batches is
 *          also read without it. An ending thread puts its full batches into the depots.
 * A fiber may continue on another thread, so get and put are not inlined: no caller may keep the
 * address of a cache. */
#include "memory/pool.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdlib.h>
#include "base/local.h"
#include "base/poison.h"

enum { STEP = 32, CLASSES = 7 };

typedef struct node { /* inside a free object */
    struct node *next;
    struct node *next_batch; /* in the first node of a batch in the depot */
} node;

typedef struct cache {
    node *free, *full; /* full: a complete batch, or NULL */
    unsigned room;     /* puts until `free` is a complete batch; 0 also before the first use */
} cache;

typedef struct depot {
    pthread_mutex_t lock;
    node *batches;
    _Atomic unsigned n_batches;
    unsigned low;   /* fewest batches in this period of teffi_pool_reclaim() */
    unsigned spare; /* batches that teffi_pool_reclaim() may free */
} depot;

/* Batches of each size that stay in the depot; most that one teffi_pool_reclaim() frees. */
enum { AGE_KEEPS = 16, AGE_SLICE = 64 };
static const uint64_t age_ns = 100000000;
static _Atomic uint64_t looked_ns; /* begin of the present period of age_ns */

static const unsigned short bytes_of[CLASSES] = {64, 96, 128, 256, 512, 768, 1024};
static const unsigned short batch_of[CLASSES] = {128, 64, 64, 64, 32, 16, 16};
static const unsigned char class_of[TEFFI_POOL_MAX / STEP + 1] = {0, 0, 0, 1, 2, 3, 3, 3, 3, 4, 4,
                                                                  4, 4, 4, 4, 4, 4, 5, 5, 5, 5, 5,
                                                                  5, 5, 5, 6, 6, 6, 6, 6, 6, 6, 6};

#define DEPOT                                                                                      \
    {                                                                                              \
        .lock = PTHREAD_MUTEX_INITIALIZER,                                                         \
    }

static depot depots[CLASSES] = {DEPOT, DEPOT, DEPOT, DEPOT, DEPOT, DEPOT, DEPOT};
static TEFFI_LOCAL cache caches[CLASSES];
static TEFFI_LOCAL int destructor_is_set; /* for this thread */
static pthread_once_t once = PTHREAD_ONCE_INIT;
static pthread_key_t key;
static bool has_key;

/* out: the offset of the node in a free object. The node is at the beginning, whose cache line is
 * warm. In builds with AddressSanitizer the node is at the end, and the bytes before it are
 * poisoned. The node itself is not poisoned, because the leak checker does not follow pointers in
 * poisoned memory. */
static size_t node_offset(unsigned class)
{
    return TEFFI_POISONING ? bytes_of[class] - sizeof(node) : 0;
}

/* Turns a free object into a node, and poisons the rest of the object. */
static node *node_from_object(void *memory, unsigned class)
{
    node *n = (node *)(void *)((char *)memory + node_offset(class));
    ASAN_POISON_MEMORY_REGION(memory, bytes_of[class]);
    ASAN_UNPOISON_MEMORY_REGION(n, sizeof *n);
    return n;
}

/* Turns a node into an object that may be used. */
static void *object_from_node(node *n, unsigned class)
{
    void *memory = (char *)n - node_offset(class);
    ASAN_UNPOISON_MEMORY_REGION(memory, bytes_of[class]);
    return memory;
}

static void free_pool_batch(node *batch, unsigned class)
{
    while (batch) {
        node *next = batch->next;
        free(object_from_node(batch, class));
        batch = next;
    }
}

/* ---- the depot ---- */

/* lock held. Takes the newest batch. out: NULL: the depot is empty. */
static node *take_depot_batch(depot *d)
{
    node *batch = d->batches;
    if (!batch)
        return NULL;
    d->batches = batch->next_batch;
    /* relaxed here and below: readers without the lock use n_batches as a hint */
    unsigned n = atomic_load_explicit(&d->n_batches, memory_order_relaxed) - 1;
    atomic_store_explicit(&d->n_batches, n, memory_order_relaxed);
    d->low = n < d->low ? n : d->low;
    return batch;
}

static node *get_batch_from_depot(unsigned class)
{
    depot *d = &depots[class];
    if (!atomic_load_explicit(&d->n_batches, memory_order_relaxed))
        return NULL;
    pthread_mutex_lock(&d->lock);
    node *batch = take_depot_batch(d);
    pthread_mutex_unlock(&d->lock);
    return batch;
}

static void put_batch_in_depot(unsigned class, node *batch)
{
    depot *d = &depots[class];
    pthread_mutex_lock(&d->lock);
    batch->next_batch = d->batches;
    d->batches = batch;
    atomic_fetch_add_explicit(&d->n_batches, 1, memory_order_relaxed);
    pthread_mutex_unlock(&d->lock);
}

/* ---- aging ---- */

/* Called at the end of each period (age_ns). The batches that stayed in the depot during the whole
 * period become spare, except AGE_KEEPS of them. */
static void update_spare_batch_count(depot *d)
{
    pthread_mutex_lock(&d->lock);
    d->spare = d->low > AGE_KEEPS ? d->low - AGE_KEEPS : 0;
    d->low = atomic_load_explicit(&d->n_batches, memory_order_relaxed);
    pthread_mutex_unlock(&d->lock);
}

/* Takes a batch that may be freed. out: NULL: no batch is spare, or only AGE_KEEPS are left. */
static node *take_spare_batch(depot *d)
{
    node *batch = NULL;
    pthread_mutex_lock(&d->lock);
    if (d->spare && atomic_load_explicit(&d->n_batches, memory_order_relaxed) > AGE_KEEPS) {
        batch = take_depot_batch(d);
        d->spare--;
    }
    pthread_mutex_unlock(&d->lock);
    return batch;
}

bool teffi_pool_reclaim(uint64_t now_ns, size_t *gone_bytes)
{
    /* relaxed: it does no harm if two threads end a period at the same time */
    uint64_t last = atomic_load_explicit(&looked_ns, memory_order_relaxed);
    bool period_over = now_ns - last >= age_ns, more = false;
    if (period_over)
        atomic_store_explicit(&looked_ns, now_ns, memory_order_relaxed);
    for (unsigned class = 0; class < CLASSES; class ++) {
        depot *d = &depots[class];
        if (atomic_load_explicit(&d->n_batches, memory_order_relaxed) <= AGE_KEEPS)
            continue;
        if (period_over)
            update_spare_batch_count(d);
        node *batch;
        for (int i = 0; i < AGE_SLICE && (batch = take_spare_batch(d)); i++) {
            free_pool_batch(batch, class);
            *gone_bytes += (size_t)batch_of[class] * bytes_of[class];
        }
        more |= atomic_load_explicit(&d->n_batches, memory_order_relaxed) > AGE_KEEPS;
    }
    return more;
}

/* ---- a thread's lists ---- */

/* The destructor of `key`, called when a thread ends. Puts the thread's full batches into the
 * depots, and frees the other objects in its caches. */
static void empty_thread_caches(void *arg)
{
    cache *own = arg;
    for (unsigned class = 0; class < CLASSES; class ++) {
        if (own[class].full)
            put_batch_in_depot(class, own[class].full);
        free_pool_batch(own[class].free, class);
        own[class] = (cache){0};
    }
    destructor_is_set = 0;
}

static void make_caches_key(void)
{
    has_key = !pthread_key_create(&key, empty_thread_caches);
}

/* Makes empty_thread_caches() run when this thread ends. If that is not possible, the thread leaks
 * its lists, up to two batches of each size. */
static void set_thread_destructor(void)
{
    destructor_is_set = 1;
    (void)pthread_once(&once, make_caches_key);
    if (has_key)
        (void)pthread_setspecific(key, caches);
}

/* Called when c->free is empty. Gets a full batch, takes one object from it, and stores the
 * rest in c->free. If there is no batch, allocates an object from the heap.
 * out: NULL: no memory. */
static __attribute__((noinline)) void *refill_and_take(cache *c, unsigned class)
{
    node *batch = c->full ? c->full : get_batch_from_depot(class);
    c->full = NULL;
    if (!batch)
        return malloc(bytes_of[class]);
    if (!destructor_is_set)
        set_thread_destructor();
    c->free = batch->next;
    c->room = 1;
    return object_from_node(batch, class);
}

/* Poisons the memory after the n requested bytes. in: memory, may be NULL. out: memory. */
static void *poison_unrequested_bytes(void *memory, size_t n, unsigned class)
{
    if (memory)
        ASAN_POISON_MEMORY_REGION((char *)memory + n, bytes_of[class] - n);
    return memory;
}

__attribute__((noinline)) void *teffi_pool_get(size_t n)
{
    if (n > TEFFI_POOL_MAX)
        return malloc(n);
    unsigned class = class_of[(n + STEP - 1) / STEP];
    cache *c = &caches[class];
    node *first = c->free;
    if (!first)
        return poison_unrequested_bytes(refill_and_take(c, class), n, class);
    c->free = first->next;
    c->room++;
    return poison_unrequested_bytes(object_from_node(first, class), n, class);
}

static void push_to_cache(cache *c, void *memory, unsigned class)
{
    node *first = node_from_object(memory, class);
    first->next = c->free;
    c->free = first;
    c->room--;
}

/* Called when c->room is 0: c->free is a full batch, or the cache is still unused. Moves the batch
 * in c->full, if there is one, to the depot. Next moves the list in c->free to c->full. Last pushes
 * the object to c->free, which is empty now. */
static __attribute__((noinline)) void flush_and_push(cache *c, void *memory, unsigned class)
{
    if (!destructor_is_set)
        set_thread_destructor();
    if (c->full)
        put_batch_in_depot(class, c->full);
    c->full = c->free;
    c->free = NULL;
    c->room = batch_of[class];
    push_to_cache(c, memory, class);
}

__attribute__((noinline)) void teffi_pool_put(void *memory, size_t n)
{
    if (n > TEFFI_POOL_MAX || !memory) {
        free(memory);
        return;
    }
    unsigned class = class_of[(n + STEP - 1) / STEP];
    cache *c = &caches[class];
    if (c->room)
        push_to_cache(c, memory, class);
    else
        flush_and_push(c, memory, class);
}
