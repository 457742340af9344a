/* stack.c - memory for fibers: regions of stacks with guards, reused last in, first out.
 * Way:     fiber_new -> [cache of this thread -> shared list -> a decommitted stack -> a new one]
 * Threads: the shared part is guarded by the pool's lock; each thread has its own cache.
 *
 * A decommitted stack holds no memory, and so no teffi_fiber: its address alone is recorded, in the
 * pool's decommitted[]. */
#include "fiber/stack.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>
#include "base/bug.h"
#include "fiber/sanitize.h"
#include "os/pages.h"

/* A turn that waits for a call takes 11 KB (measured by tests/bench, growth callers). So 32,768 of
 * them take 360 MB, which fits a container of 1 GiB together with 256 MiB of messages. */
enum { STACKS_MAX = 32768 };
enum { REGION_FIRST = 16, REGION_MAX = 256 }; /* stacks of a region; each next has twice */
enum { COLOURS = 8, COLOUR_BYTES = 256 }; /* cache colouring: stack tops map to different sets */

#ifdef TEFFI_POISONS
enum { STACK_DEFAULT = 256 * 1024 }; /* red zones make frames several times larger */
#else
enum { STACK_DEFAULT = 64 * 1024 };
#endif

enum { KEPT_FREE = 256, RECLAIM_SLICE = 128 }; /* free stacks that stay committed; per slice */
static const uint64_t age_ns = 100000000;      /* stacks unneeded for this long are decommitted */

typedef struct region {
    struct region *next;
    char *base;
    size_t bytes;
    unsigned mapped_guards; /* guards that are mappings of their own, unmapped with the region */
} region;

struct teffi_fiber_pool {
    size_t stack_bytes, max; /* immutable */
    bool reserved;           /* immutable once a stack is made: may use the reserved guards */
    uint64_t control;        /* immutable */
    pthread_mutex_t lock;    /* guards the rest */
    teffi_fiber *free;
    _Atomic size_t n_free; /* relaxed: a hint to readers without the lock */
    size_t least, spare;   /* minimum of n_free since looked_ns; how many to decommit */
    uint64_t looked_ns;    /* when spare was computed last */
    char **decommitted;    /* low of each decommitted stack; with room for all that are made */
    size_t n_decommitted;
    size_t made;          /* stacks ever made */
    region *regions;      /* newest first */
    size_t region_stacks; /* capacity of the newest region */
    size_t region_used;   /* stacks made in the newest region */
};

TEFFI_LOCAL teffi_stacks teffi_own_stacks;

/* Never inlined: a fiber may change threads, and compilers may cache the address of a thread-local
 * variable. */
__attribute__((noinline)) static teffi_stacks *own_stack_cache(void)
{
    return &teffi_own_stacks;
}

/* ---- pool ---- */

teffi_fiber_pool *teffi_fiber_pool_new(size_t stack_bytes, size_t max)
{
    teffi_fiber_pool *pool = calloc(1, sizeof *pool);
    if (!pool)
        return NULL;
    size_t page = (size_t)sysconf(_SC_PAGESIZE);
    stack_bytes = stack_bytes ? stack_bytes : STACK_DEFAULT;
    pool->stack_bytes = (stack_bytes + page - 1) / page * page;
    pool->max = max ? max : STACKS_MAX;
    teffi_switch_control(&pool->control);
    pthread_mutex_init(&pool->lock, NULL);
    return pool;
}

/* Lets the pool also use the TEFFI_GUARDS_RESERVED guards that other pools cannot use. */
void teffi_fiber_pool_allow_reserved_guards(teffi_fiber_pool *pool)
{
    pool->reserved = true;
}

static size_t stack_stride(const teffi_fiber_pool *pool)
{
    return pool->stack_bytes + TEFFI_GUARD_BYTES;
}

/* lock held. Maps the next region. Also makes room in decommitted[] for its stacks, so that no
 * memory is needed to decommit one. out: false: out of memory. */
static bool add_region(teffi_fiber_pool *pool)
{
    size_t n = pool->region_stacks ? pool->region_stacks * 2 : REGION_FIRST;
    if (n > REGION_MAX)
        n = REGION_MAX;
    if (n > pool->max - pool->made)
        n = pool->max - pool->made;
    char **decommitted = realloc(pool->decommitted, (pool->made + n) * sizeof *decommitted);
    if (!decommitted)
        return false;
    pool->decommitted = decommitted;
    region *r = calloc(1, sizeof *r);
    if (!r)
        return false;
    r->bytes = n * stack_stride(pool);
    r->base = mmap(NULL, r->bytes, PROT_READ | PROT_WRITE,
                   MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_STACK, -1, 0);
    if (r->base == MAP_FAILED) {
        free(r);
        return false;
    }
    /* A turn touches only a page or two of its stack: huge pages of 2 MiB would waste memory. */
    (void)madvise(r->base, r->bytes, MADV_NOHUGEPAGE);
    r->next = pool->regions;
    pool->regions = r;
    pool->region_stacks = n;
    pool->region_used = 0;
    return true;
}

/* out: the lowest byte of the region's stack i, above its guard. */
static char *lowest_byte_of_stack(const teffi_fiber_pool *pool, const region *r, size_t i)
{
    return r->base + i * stack_stride(pool) + TEFFI_GUARD_BYTES;
}

/* in: low: the lowest byte of a stack. out: the place of the teffi_fiber near the stack's top. The
 * place depends on the stack (its colour), so that the fibers do not all use the same sets of the
 * CPU's cache. */
static teffi_fiber *fiber_at(const teffi_fiber_pool *pool, char *low)
{
    size_t colour = (uintptr_t)low / stack_stride(pool) % COLOURS;
    size_t room = (sizeof(teffi_fiber) + 63) / 64 * 64 + colour * COLOUR_BYTES;
    return (teffi_fiber *)(void *)(low + pool->stack_bytes - room);
}

_Static_assert(offsetof(teffi_fiber, control) == 0, "teffi_switch_first reads it at offset 0");

/* Writes the immutable fields of the fiber on a stack that is new or was decommitted. out: the
 * fiber. */
static teffi_fiber *init_fiber_at(teffi_fiber_pool *pool, char *low)
{
    teffi_fiber *fiber = fiber_at(pool, low);
    fiber->control = pool->control;
    fiber->pool = pool;
    fiber->low = low;
    fiber->high = low + pool->stack_bytes;
    return fiber;
}

/* lock held. Makes a stack in the newest region, or in a new region if the newest is full. out:
 * NULL: memory or guards are used up, or the pool has its maximum number of stacks. */
static teffi_fiber *new_stack(teffi_fiber_pool *pool)
{
    if (pool->made == pool->max)
        return NULL;
    if (pool->region_used == pool->region_stacks && !add_region(pool))
        return NULL;
    region *r = pool->regions;
    char *low = lowest_byte_of_stack(pool, r, pool->region_used);
    if (!teffi_guard_install(low - TEFFI_GUARD_BYTES, TEFFI_GUARD_BYTES, pool->reserved,
                             &r->mapped_guards))
        return NULL; /* without a guard an overflow would write into the stack below */
    teffi_fiber *fiber = init_fiber_at(pool, low);
    teffi_san_register_stack(fiber);
    pool->region_used++;
    pool->made++;
    return fiber;
}

/* in: used: how many stacks were made in the region. */
static void free_region(teffi_fiber_pool *pool, region *r, size_t used)
{
    for (size_t i = 0; i < used; i++)
        teffi_san_drop_stack_state(fiber_at(pool, lowest_byte_of_stack(pool, r, i)));
    munmap(r->base, r->bytes);
    teffi_guards_lower_count(r->mapped_guards);
    free(r);
}

void teffi_fiber_pool_free(teffi_fiber_pool *pool)
{
    if (!pool)
        return;
    size_t used = pool->region_used;
    while (pool->regions) {
        region *r = pool->regions;
        pool->regions = r->next;
        free_region(pool, r, used);
        /* older regions are full */
        used = pool->regions ? pool->regions->bytes / stack_stride(pool) : 0;
    }
    pthread_mutex_destroy(&pool->lock);
    free(pool->decommitted);
    free(pool);
}

/* ---- take and give ---- */

/* lock held. Sets pool->n_free to n, and lowers pool->least to n if least is greater. */
static void set_free_count(teffi_fiber_pool *pool, size_t n)
{
    atomic_store_explicit(&pool->n_free, n, memory_order_relaxed);
    pool->least = n < pool->least ? n : pool->least;
}

static size_t count_of_free(teffi_fiber_pool *pool)
{
    return atomic_load_explicit(&pool->n_free, memory_order_relaxed);
}

teffi_fiber *teffi_stack_take(teffi_fiber_pool *pool)
{
    pthread_mutex_lock(&pool->lock);
    teffi_fiber *fiber = pool->free;
    if (fiber) {
        pool->free = fiber->next;
        set_free_count(pool, count_of_free(pool) - 1);
    } else {
        fiber = pool->n_decommitted ? init_fiber_at(pool, pool->decommitted[--pool->n_decommitted])
                                    : new_stack(pool);
    }
    pthread_mutex_unlock(&pool->lock);
    return fiber;
}

/* Gives a list of n stacks to their pool. */
static void give_stacks_to_pool(teffi_fiber *first, size_t n)
{
    teffi_fiber_pool *pool = first->pool;
    teffi_fiber *last = first;
    while (last->next)
        last = last->next;
    pthread_mutex_lock(&pool->lock);
    last->next = pool->free;
    pool->free = first;
    set_free_count(pool, count_of_free(pool) + n);
    pthread_mutex_unlock(&pool->lock);
}

/* Gives the older half of a full cache to the pool, and keeps the half that was used last. */
static void give_half_of_cache_to_pool(teffi_stacks *c)
{
    teffi_fiber *hot = c->free;
    for (unsigned i = 1; i < TEFFI_STACKS_MAX / 2; i++)
        hot = hot->next;
    teffi_fiber *first = hot->next;
    hot->next = NULL;
    c->count = TEFFI_STACKS_MAX / 2;
    give_stacks_to_pool(first, TEFFI_STACKS_MAX / 2);
}

void teffi_stack_give_to_pool_or_cache(teffi_fiber *fiber)
{
    teffi_stacks *c = own_stack_cache();
    if (c->pool == fiber->pool) /* the caller's teffi_stack_try_cache() failed: the cache is full */
        give_half_of_cache_to_pool(c);
    if (teffi_stack_try_cache(fiber))
        return;
    fiber->next = NULL;
    give_stacks_to_pool(fiber, 1);
}

void teffi_stacks_begin_cache(teffi_fiber_pool *pool)
{
    teffi_stacks *c = own_stack_cache();
    teffi_bug_if(c->pool != NULL);
    c->pool = pool;
}

void teffi_stacks_end_cache(void)
{
    teffi_stacks *c = own_stack_cache();
    if (c->free)
        give_stacks_to_pool(c->free, c->count);
    *c = (teffi_stacks){0};
}

/* ---- reclaiming after a peak ---- */

/* lock held. Removes free stacks that the pool did not need in the last period of age_ns
 * nanoseconds. At the end of each period, pool->spare is set to the lowest number of free stacks in
 * the period, minus KEPT_FREE. out: a list of at most RECLAIM_SLICE stacks; later calls remove the
 * rest. */
static teffi_fiber *take_unneeded_stacks(teffi_fiber_pool *pool, uint64_t now_ns)
{
    teffi_fiber *taken = NULL;
    if (now_ns - pool->looked_ns >= age_ns) {
        pool->spare = pool->least > KEPT_FREE ? pool->least - KEPT_FREE : 0;
        pool->least = count_of_free(pool);
        pool->looked_ns = now_ns;
    }
    size_t most = pool->spare < pool->least ? pool->spare : pool->least, n = 0;
    for (; n < RECLAIM_SLICE && n < most; n++) {
        teffi_fiber *fiber = pool->free;
        pool->free = fiber->next;
        fiber->next = taken;
        taken = fiber;
    }
    pool->spare -= n;
    set_free_count(pool, count_of_free(pool) - n);
    return taken;
}

/* Frees the memory of a stack, its teffi_fiber included, and records the stack's address in
 * decommitted[]. */
static void decommit_stack(teffi_fiber_pool *pool, teffi_fiber *fiber)
{
    char *low = fiber->low;
    teffi_san_drop_stack_state(fiber);
    if (madvise(low, pool->stack_bytes, MADV_DONTNEED) != 0) /* failed: zero the fiber here */
        memset(fiber, 0, sizeof *fiber);
    pthread_mutex_lock(&pool->lock);
    pool->decommitted[pool->n_decommitted++] = low;
    pthread_mutex_unlock(&pool->lock);
}

bool teffi_fiber_pool_reclaim(teffi_fiber_pool *pool, uint64_t now_ns)
{
    if (count_of_free(pool) <= KEPT_FREE)
        return false;
    pthread_mutex_lock(&pool->lock);
    teffi_fiber *spare = take_unneeded_stacks(pool, now_ns);
    pthread_mutex_unlock(&pool->lock);
    while (spare) {
        teffi_fiber *next = spare->next;
        decommit_stack(pool, spare);
        spare = next;
    }
    return count_of_free(pool) > KEPT_FREE;
}
