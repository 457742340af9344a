/* block.c - lists of free blocks, four sizes to each power of two.
 * Way:     arena -> [block] -> heap
 * Threads: a shelf's fields are under its lock; kept and aged_ns are atomic. */
#include "base/block.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdlib.h>
#include "base/poison.h"

enum { QUARTERS = 4, DOUBLINGS = 7, SHELVES = DOUBLINGS * QUARTERS + 1, MIN_SHIFT = 14 };

_Static_assert(TEFFI_BLOCK_MIN == 1 << MIN_SHIFT && TEFFI_BLOCK_MAX == TEFFI_BLOCK_MIN << DOUBLINGS,
               "the first shelf and the last");

static const uint64_t age_ns = 500000000;

typedef struct node { /* inside what is free */
    struct node *next;
} node;

typedef struct shelf {
    pthread_mutex_t lock;
    node *free;
    unsigned n, least; /* least: that have been here since the last look */
} shelf;

static shelf shelves[SHELVES];
static pthread_once_t once = PTHREAD_ONCE_INIT;
static _Atomic size_t kept;
static _Atomic uint64_t aged_ns;

static void init(void)
{
    for (int i = 0; i < SHELVES; i++)
        pthread_mutex_init(&shelves[i].lock, NULL);
}

static shelf *get_shelf(unsigned of)
{
    (void)pthread_once(&once, init);
    return &shelves[of];
}

/* The first shelf whose blocks have n bytes; n is at most the largest. */
static unsigned shelf_for(size_t n)
{
    if (n <= TEFFI_BLOCK_MIN)
        return 0;
    unsigned top = 63u - (unsigned)__builtin_clzll(n - 1); /* 2^top < n <= 2^(top + 1) */
    unsigned quarter = (unsigned)((n - 1) >> (top - 2)) & (QUARTERS - 1);
    return (top - MIN_SHIFT) * QUARTERS + quarter + 1;
}

static size_t bytes_on(unsigned of)
{
    return (size_t)(QUARTERS + of % QUARTERS) << (MIN_SHIFT - 2 + of / QUARTERS);
}

static bool is_ours(size_t n)
{
    return n >= TEFFI_BLOCK_MIN && n <= TEFFI_BLOCK_MAX;
}

size_t teffi_block_room(size_t n)
{
    return is_ours(n) ? bytes_on(shelf_for(n)) : n;
}

static void hide(node *block, size_t bytes)
{
#ifdef TEFFI_POISONS
    ASAN_POISON_MEMORY_REGION(block + 1, bytes - sizeof *block);
#else
    (void)block;
    (void)bytes;
#endif
}

static void show(node *block, size_t bytes)
{
#ifdef TEFFI_POISONS
    ASAN_UNPOISON_MEMORY_REGION(block, bytes);
#else
    (void)block;
    (void)bytes;
#endif
}

static void count(size_t more)
{
    /* relaxed: a limit, not an order */
    atomic_fetch_add_explicit(&kept, more, memory_order_relaxed);
}

void *teffi_block_get(size_t n)
{
    if (!is_ours(n))
        return malloc(n);
    unsigned of = shelf_for(n);
    shelf *s = get_shelf(of);
    pthread_mutex_lock(&s->lock);
    node *block = s->free;
    if (block) {
        s->free = block->next;
        s->n--;
        s->least = s->n < s->least ? s->n : s->least;
    }
    pthread_mutex_unlock(&s->lock);
    if (!block)
        return malloc(bytes_on(of));
    count(0 - bytes_on(of));
    show(block, bytes_on(of));
    return block;
}

void teffi_block_put(void *memory, size_t n)
{
    node *block = memory;
    if (!memory)
        return;
    if (!is_ours(n) || teffi_block_kept() >= TEFFI_BLOCK_KEPT_MAX) {
        free(memory);
        return;
    }
    unsigned of = shelf_for(n);
    shelf *s = get_shelf(of);
    count(bytes_on(of));
    hide(block, bytes_on(of));
    pthread_mutex_lock(&s->lock);
    block->next = s->free;
    s->free = block;
    s->n++;
    pthread_mutex_unlock(&s->lock);
}

/* out: those that nobody has needed since the last look. */
static node *spare(shelf *s, unsigned *n)
{
    pthread_mutex_lock(&s->lock);
    node *first = s->least ? s->free : NULL;
    *n = s->least;
    for (unsigned i = 0; i < *n; i++) {
        node *last = s->free;
        s->free = last->next;
        if (i + 1 == *n)
            last->next = NULL;
    }
    s->n -= *n;
    s->least = s->n;
    pthread_mutex_unlock(&s->lock);
    return first;
}

void teffi_block_age(uint64_t now_ns)
{
    /* relaxed: two that look at once do no harm */
    uint64_t last = atomic_load_explicit(&aged_ns, memory_order_relaxed);
    if (now_ns - last < age_ns)
        return;
    atomic_store_explicit(&aged_ns, now_ns, memory_order_relaxed);
    for (unsigned of = 0; of < SHELVES && teffi_block_kept(); of++) {
        unsigned n;
        node *block = spare(get_shelf(of), &n);
        count(0 - n * bytes_on(of));
        while (block) {
            node *next = block->next;
            show(block, bytes_on(of));
            free(block);
            block = next;
        }
    }
}

size_t teffi_block_kept(void)
{
    return atomic_load_explicit(&kept, memory_order_relaxed);
}
