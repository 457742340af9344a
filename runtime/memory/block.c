/* block.c - lists of free blocks, four sizes to each power of two.
 * Threads: any; shelves, kept and aged_ns are guarded by the lock. */
#include "memory/pool.h"

#include <pthread.h>
#include <stdbool.h>
#include <stdlib.h>
#include "base/poison.h"

enum { QUARTERS = 4, DOUBLINGS = 7, SHELVES = DOUBLINGS * QUARTERS + 1, MIN_SHIFT = 14 };

_Static_assert(TEFFI_BLOCK_MIN == 1 << MIN_SHIFT && TEFFI_BLOCK_MAX == TEFFI_BLOCK_MIN << DOUBLINGS,
               "the first shelf and the last");

static const uint64_t age_ns = 500000000;

typedef struct node { /* at the start of a free block */
    struct node *next;
} node;

typedef struct shelf {
    node *free;
    unsigned n, least; /* free blocks; the fewest since the last teffi_block_age() */
} shelf;

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static shelf shelves[SHELVES];
static size_t kept;
static uint64_t aged_ns;

/* out: the first shelf whose blocks have at least n bytes. in: n, at most TEFFI_BLOCK_MAX. */
static unsigned shelf_for(size_t n)
{
    if (n <= TEFFI_BLOCK_MIN)
        return 0;
    unsigned top = 63u - (unsigned)__builtin_clzll(n - 1); /* 2^top < n <= 2^(top + 1) */
    unsigned quarter = (unsigned)((n - 1) >> (top - 2)) & (QUARTERS - 1);
    return (top - MIN_SHIFT) * QUARTERS + quarter + 1;
}

/* out: the size of each block on a shelf. */
static size_t bytes_on(unsigned of)
{
    return (size_t)(QUARTERS + of % QUARTERS) << (MIN_SHIFT - 2 + of / QUARTERS);
}

/* Blocks without a shelf are malloc's and are freed at once. */
static bool has_shelf(size_t n)
{
    return n >= TEFFI_BLOCK_MIN && n <= TEFFI_BLOCK_MAX;
}

size_t teffi_block_room(size_t n)
{
    return has_shelf(n) ? bytes_on(shelf_for(n)) : n;
}

/* lock held. out: NULL: none is free. */
static node *take_free_block(unsigned of)
{
    shelf *s = &shelves[of];
    node *block = s->free;
    if (!block)
        return NULL;
    s->free = block->next;
    s->n--;
    s->least = s->n < s->least ? s->n : s->least;
    kept -= bytes_on(of);
    ASAN_UNPOISON_MEMORY_REGION(block, bytes_on(of));
    return block;
}

void *teffi_block_get(size_t n)
{
    if (!has_shelf(n))
        return malloc(n);
    unsigned of = shelf_for(n);
    pthread_mutex_lock(&lock);
    node *block = take_free_block(of);
    pthread_mutex_unlock(&lock);
    return block ? block : malloc(bytes_on(of));
}

/* out: false: TEFFI_BLOCK_KEPT_MAX bytes are kept already; the caller frees the block. */
static bool keep_block(node *block, unsigned of)
{
    shelf *s = &shelves[of];
    pthread_mutex_lock(&lock);
    bool room = kept < TEFFI_BLOCK_KEPT_MAX;
    if (room) {
        block->next = s->free;
        s->free = block;
        s->n++;
        kept += bytes_on(of);
        ASAN_POISON_MEMORY_REGION(block + 1, bytes_on(of) - sizeof *block);
    }
    pthread_mutex_unlock(&lock);
    return room;
}

void teffi_block_put(void *memory, size_t n)
{
    if (memory && !(has_shelf(n) && keep_block(memory, shelf_for(n))))
        free(memory);
}

/* lock held. out: a list of the blocks that stayed unused since the last call. */
static node *take_unneeded_blocks(void)
{
    node *gone = NULL;
    for (unsigned of = 0; of < SHELVES; of++) {
        for (unsigned n = shelves[of].least; n > 0; n--) {
            node *block = take_free_block(of);
            block->next = gone;
            gone = block;
        }
        shelves[of].least = shelves[of].n;
    }
    return gone;
}

size_t teffi_block_age(uint64_t now_ns)
{
    node *gone = NULL;
    pthread_mutex_lock(&lock);
    if (now_ns - aged_ns >= age_ns) {
        aged_ns = now_ns;
        gone = take_unneeded_blocks();
    }
    size_t bytes = kept;
    pthread_mutex_unlock(&lock);
    for (node *next; gone; gone = next) {
        next = gone->next;
        free(gone);
    }
    return bytes;
}
