/* stack.c - memory for fibers: regions of stacks behind guards, reused newest first.
 * Way:     fiber_new -> [cache of this thread -> shared list -> a cold stack -> a new one]
 * Threads: the shared part is locked; the cache is the thread's own.
 *
 * A cold stack holds no memory: it was free for long, and its pages went back to the system, what
 * it knew of itself with them. Its region keeps its number. */
#include "fiber/stack.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>
#include "base/bug.h"
#include "base/local.h"
#include "fiber/sanitize.h"

#ifndef MADV_GUARD_INSTALL
#define MADV_GUARD_INSTALL 102 /* kernel 6.13 */
#endif

enum { STACKS_MAX = 100000 };
enum {
    REGION_FIRST = 16,
    REGION_MAX = 256
};                                        /* stacks mapped at once: doubles from one to the other */
enum { COLOURS = 8, COLOUR_BYTES = 256 }; /* equal offsets would fight for the same cache sets */

/* Each PROT_NONE guard splits a mapping, of which a process may have 65,530. */
enum { MPROTECT_GUARDS_MAX = 16000 };

#ifdef TEFFI_ASAN
enum { STACK_DEFAULT = 256 * 1024 }; /* red zones make frames several times larger */
#else
enum { STACK_DEFAULT = 64 * 1024 };
#endif

enum { KEPT_FREE = 256, TRIM_SLICE = 128 }; /* stacks that stay free and warm; given back at once */
static const uint64_t age_ns = 100000000;   /* what is not needed for so long is given back */

typedef struct region {
    struct region *next;
    char *base;
    size_t bytes;
    struct region *next_cold; /* of those that have cold stacks */
    unsigned n_cold;
    unsigned cold[]; /* their numbers */
} region;

struct teffi_fiber_pool {
    size_t stack_bytes, max; /* immutable */
    pthread_mutex_t lock;    /* guards the rest */
    teffi_fiber *free;
    _Atomic size_t n_free; /* also read without the lock, as a guess: relaxed */
    size_t least, spare;   /* of them since the last look; to be given back */
    uint64_t looked_ns;
    region *cold;
    size_t made;          /* stacks ever handed out */
    region *regions;      /* newest first */
    size_t region_stacks; /* how many the newest holds */
    size_t region_used;
};

TEFFI_LOCAL teffi_stacks teffi_own_stacks;

/* Never inlined: see fiber.c. */
__attribute__((noinline)) static teffi_stacks *own_stacks(void)
{
    return &teffi_own_stacks;
}

/* ---- guards ---- */

static _Atomic int protected_guards; /* of the whole process */

/* A stack without a guard is the last resort: the turn works, only its overflow is not caught. */
static void install_guard(char *at)
{
    if (madvise(at, TEFFI_GUARD_BYTES, MADV_GUARD_INSTALL) == 0)
        return;
    if (atomic_fetch_add_explicit(&protected_guards, 1, memory_order_relaxed) >=
            MPROTECT_GUARDS_MAX ||
        mprotect(at, TEFFI_GUARD_BYTES, PROT_NONE) != 0)
        atomic_fetch_sub_explicit(&protected_guards, 1, memory_order_relaxed);
}

/* ---- pool ---- */

static size_t page_up(size_t n)
{
    size_t page = (size_t)sysconf(_SC_PAGESIZE);
    return (n + page - 1) / page * page;
}

teffi_fiber_pool *teffi_fiber_pool_new(size_t stack_bytes, size_t max)
{
    teffi_fiber_pool *pool = calloc(1, sizeof *pool);
    if (!pool)
        return NULL;
    pool->stack_bytes = page_up(stack_bytes ? stack_bytes : STACK_DEFAULT);
    pool->max = max ? max : STACKS_MAX;
    pthread_mutex_init(&pool->lock, NULL);
    teffi_overflow_install();
    return pool;
}

static size_t stride(const teffi_fiber_pool *pool)
{
    return pool->stack_bytes + TEFFI_GUARD_BYTES;
}

static bool add_region(teffi_fiber_pool *pool)
{
    size_t n = pool->region_stacks ? pool->region_stacks * 2 : REGION_FIRST;
    if (n > REGION_MAX)
        n = REGION_MAX;
    if (n > pool->max - pool->made)
        n = pool->max - pool->made;
    region *r = calloc(1, sizeof *r + n * sizeof r->cold[0]);
    if (!r)
        return false;
    r->bytes = n * stride(pool);
    r->base = mmap(NULL, r->bytes, PROT_READ | PROT_WRITE,
                   MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_STACK, -1, 0);
    if (r->base == MAP_FAILED) {
        free(r);
        return false;
    }
    /* A turn touches a page or two of its stack: a huge page for each would be 2 MiB. */
    (void)madvise(r->base, r->bytes, MADV_NOHUGEPAGE);
    r->next = pool->regions;
    pool->regions = r;
    pool->region_stacks = n;
    pool->region_used = 0;
    return true;
}

static teffi_fiber *fiber_at(const teffi_fiber_pool *pool, const region *r, size_t i)
{
    char *low = r->base + i * stride(pool) + TEFFI_GUARD_BYTES;
    size_t room = (sizeof(teffi_fiber) + 63) / 64 * 64 + i % COLOURS * COLOUR_BYTES;
    return (teffi_fiber *)(void *)(low + pool->stack_bytes - room);
}

static teffi_fiber *stack_at(teffi_fiber_pool *pool, region *r, size_t i)
{
    char *low = r->base + i * stride(pool) + TEFFI_GUARD_BYTES;
    teffi_fiber *fiber = fiber_at(pool, r, i);
    fiber->pool = pool;
    fiber->region_of = r;
    fiber->low = low;
    fiber->high = low + pool->stack_bytes;
    return fiber;
}

/* Lock held, as below. */
static teffi_fiber *new_stack(teffi_fiber_pool *pool)
{
    if (pool->made == pool->max)
        return NULL;
    if (pool->region_used == pool->region_stacks && !add_region(pool))
        return NULL;
    size_t i = pool->region_used;
    install_guard(pool->regions->base + i * stride(pool));
    teffi_fiber *fiber = stack_at(pool, pool->regions, i);
    teffi_san_new(fiber);
    pool->region_used++;
    pool->made++;
    return fiber;
}

static teffi_fiber *cold_stack(teffi_fiber_pool *pool)
{
    region *r = pool->cold;
    unsigned i = r->cold[--r->n_cold];
    if (!r->n_cold)
        pool->cold = r->next_cold;
    return stack_at(pool, r, i);
}

static void free_region(teffi_fiber_pool *pool, region *r, size_t used)
{
    for (size_t i = 0; i < used; i++)
        teffi_san_free(fiber_at(pool, r, i));
    munmap(r->base, r->bytes);
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
        used = pool->regions ? pool->regions->bytes / stride(pool) : 0;
    }
    pthread_mutex_destroy(&pool->lock);
    free(pool);
}

/* ---- take and give ---- */

/* Lock held. */
static void count_free(teffi_fiber_pool *pool, size_t n)
{
    atomic_store_explicit(&pool->n_free, n, memory_order_relaxed);
    pool->least = n < pool->least ? n : pool->least;
}

static size_t free_ones(teffi_fiber_pool *pool)
{
    return atomic_load_explicit(&pool->n_free, memory_order_relaxed);
}

/* Of all threads'. */
teffi_fiber *teffi_stack_take(teffi_fiber_pool *pool)
{
    pthread_mutex_lock(&pool->lock);
    teffi_fiber *fiber = pool->free;
    if (fiber) {
        pool->free = fiber->next;
        count_free(pool, free_ones(pool) - 1);
    } else {
        fiber = pool->cold ? cold_stack(pool) : new_stack(pool);
    }
    pthread_mutex_unlock(&pool->lock);
    return fiber;
}

static void give_shared(teffi_fiber *first, teffi_fiber *last, size_t n)
{
    teffi_fiber_pool *pool = first->pool;
    pthread_mutex_lock(&pool->lock);
    last->next = pool->free;
    pool->free = first;
    count_free(pool, free_ones(pool) + n);
    pthread_mutex_unlock(&pool->lock);
}

/* first and what follows it, n in all, to the others. */
static void give_list(teffi_fiber *first, size_t n)
{
    teffi_fiber *last = first;
    while (last->next)
        last = last->next;
    give_shared(first, last, n);
}

/* The cold half of a full cache goes to the others at once. */
static void give_half(teffi_stacks *c)
{
    teffi_fiber *hot = c->free;
    for (unsigned i = 1; i < TEFFI_STACKS_MAX / 2; i++)
        hot = hot->next;
    teffi_fiber *first = hot->next;
    hot->next = NULL;
    c->count = TEFFI_STACKS_MAX / 2;
    give_list(first, TEFFI_STACKS_MAX / 2);
}

void teffi_stack_give(teffi_fiber *fiber)
{
    teffi_stacks *c = own_stacks();
    if (c->pool == fiber->pool) /* it was full */
        give_half(c);
    if (!teffi_stack_keep(fiber))
        give_shared(fiber, fiber, 1);
}

static void begin(teffi_fiber_pool *pool)
{
    teffi_stacks *c = own_stacks();
    teffi_bug_if(c->pool != NULL);
    c->pool = pool;
}

bool teffi_fiber_thread_visits(teffi_fiber_pool *pool)
{
    begin(pool);
    return teffi_overflow_visits();
}

void teffi_fiber_thread_departs(void)
{
    teffi_stacks *c = own_stacks();
    if (c->free)
        give_list(c->free, c->count);
    *c = (teffi_stacks){.signal_stack = c->signal_stack};
}

void teffi_fiber_thread_enter(teffi_fiber_pool *pool)
{
    begin(pool);
    own_stacks()->signal_stack = teffi_overflow_stack();
}

void teffi_fiber_thread_leave(void)
{
    teffi_fiber_thread_departs();
    teffi_stacks *c = own_stacks();
    teffi_overflow_unstack(c->signal_stack);
    c->signal_stack = NULL;
}

/* ---- after a peak ---- */

/* Lock held. out: up to a slice of what nobody has needed for a while, no longer in the list. */
static teffi_fiber *spare_ones(teffi_fiber_pool *pool, uint64_t now_ns)
{
    teffi_fiber *spare = NULL;
    if (now_ns - pool->looked_ns >= age_ns) {
        pool->spare = pool->least > KEPT_FREE ? pool->least - KEPT_FREE : 0;
        pool->least = free_ones(pool);
        pool->looked_ns = now_ns;
    }
    size_t most = pool->spare < pool->least ? pool->spare : pool->least, n = 0;
    for (; n < TRIM_SLICE && n < most; n++) {
        teffi_fiber *fiber = pool->free;
        pool->free = fiber->next;
        fiber->next = spare;
        spare = fiber;
    }
    pool->spare -= n;
    count_free(pool, free_ones(pool) - n);
    return spare;
}

/* Its memory goes, and with it what it knows: what is left to know is returned. */
static region *chill(teffi_fiber_pool *pool, teffi_fiber *fiber, unsigned *i)
{
    region *r = fiber->region_of;
    char *low = fiber->low;
    *i = (unsigned)((size_t)(low - r->base) / stride(pool));
    teffi_san_free(fiber);
    if (madvise(low, pool->stack_bytes, MADV_DONTNEED) != 0) /* it stays warm: no harm */
        memset(fiber, 0, sizeof *fiber);
    return r;
}

static void note_cold(teffi_fiber_pool *pool, region *r, unsigned i)
{
    pthread_mutex_lock(&pool->lock);
    if (!r->n_cold) {
        r->next_cold = pool->cold;
        pool->cold = r;
    }
    r->cold[r->n_cold++] = i;
    pthread_mutex_unlock(&pool->lock);
}

bool teffi_fiber_pool_trim(teffi_fiber_pool *pool, uint64_t now_ns)
{
    if (free_ones(pool) <= KEPT_FREE)
        return false;
    pthread_mutex_lock(&pool->lock);
    teffi_fiber *spare = spare_ones(pool, now_ns);
    pthread_mutex_unlock(&pool->lock);
    while (spare) {
        teffi_fiber *next = spare->next;
        unsigned i;
        region *r = chill(pool, spare, &i);
        note_cold(pool, r, i);
        spare = next;
    }
    return free_ones(pool) > KEPT_FREE;
}
