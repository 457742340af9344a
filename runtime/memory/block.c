/* block.c - lists of free blocks, four sizes for each power of two.
 * Threads: any; shelves, kept and looked_ns are guarded by the lock. */
#include "memory/pool.h"

#include <pthread.h>
#include <stdbool.h>
#include <stdlib.h>
#include "base/poison.h"

enum { QUARTERS = 4, DOUBLINGS = 7, SHELVES = DOUBLINGS * QUARTERS + 1, MIN_SHIFT = 14 };

_Static_assert(TEFFI_BLOCK_MIN == 1 << MIN_SHIFT && TEFFI_BLOCK_MAX == TEFFI_BLOCK_MIN << DOUBLINGS,
               "the first shelf and the last");

static const uint64_t period_ns = 500000000;

typedef struct node { /* at the start of a free block */
    struct node *next;
} node;

typedef struct shelf {
    node *free;
    unsigned n, least; /* free blocks now; the fewest in this period of teffi_block_reclaim() */
} shelf;

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static shelf shelves[SHELVES];
static size_t kept;        /* bytes of all free blocks */
static uint64_t looked_ns; /* begin of the present period of period_ns */

/* in: n, at most TEFFI_BLOCK_MAX. out: the first shelf whose blocks have at least n bytes. There
 * are four shelves for each power of two. */
static unsigned shelf_for(size_t n)
{
    if (n <= TEFFI_BLOCK_MIN)
        return 0;
    unsigned top = 63u - (unsigned)__builtin_clzll(n - 1); /* 2^top < n <= 2^(top + 1) */
    unsigned quarter = (unsigned)((n - 1) >> (top - 2)) & (QUARTERS - 1);
    return (top - MIN_SHIFT) * QUARTERS + quarter + 1;
}

/* out: the size of each block on a shelf. */
static size_t shelf_block_bytes(unsigned no)
{
    return (size_t)(QUARTERS + no % QUARTERS) << (MIN_SHIFT - 2 + no / QUARTERS);
}

/* Is there a shelf for blocks of n bytes? If not, teffi_block_get() always allocates such a block
 * with malloc(), and teffi_block_put() always frees it. */
static bool has_shelf(size_t n)
{
    return n >= TEFFI_BLOCK_MIN && n <= TEFFI_BLOCK_MAX;
}

size_t teffi_block_usable_bytes(size_t n)
{
    return has_shelf(n) ? shelf_block_bytes(shelf_for(n)) : n;
}

/* lock held. Takes a free block from a shelf. out: NULL: there is none. */
static node *take_free_block(unsigned no)
{
    shelf *s = &shelves[no];
    node *block = s->free;
    if (!block)
        return NULL;
    s->free = block->next;
    s->n--;
    s->least = s->n < s->least ? s->n : s->least;
    kept -= shelf_block_bytes(no);
    ASAN_UNPOISON_MEMORY_REGION(block, shelf_block_bytes(no));
    return block;
}

void *teffi_block_get(size_t n)
{
    if (!has_shelf(n))
        return malloc(n);
    unsigned no = shelf_for(n);
    pthread_mutex_lock(&lock);
    node *block = take_free_block(no);
    pthread_mutex_unlock(&lock);
    return block ? block : malloc(shelf_block_bytes(no));
}

/* Puts a free block on a shelf. out: false: TEFFI_BLOCK_KEPT_MAX bytes are kept already; the caller
 * frees the block. */
static bool shelve_block_if_room(node *block, unsigned no)
{
    shelf *s = &shelves[no];
    pthread_mutex_lock(&lock);
    bool room = kept < TEFFI_BLOCK_KEPT_MAX;
    if (room) {
        block->next = s->free;
        s->free = block;
        s->n++;
        kept += shelf_block_bytes(no);
        ASAN_POISON_MEMORY_REGION(block + 1, shelf_block_bytes(no) - sizeof *block);
    }
    pthread_mutex_unlock(&lock);
    return room;
}

void teffi_block_put(void *memory, size_t n)
{
    if (memory && !(has_shelf(n) && shelve_block_if_room(memory, shelf_for(n))))
        free(memory);
}

/* lock held. Runs at the end of a period. Takes from each shelf as many blocks as were free during
 * the whole period, and resets `least` for the next period. out: a list of these blocks. */
static node *take_unneeded_blocks(void)
{
    node *gone = NULL;
    for (unsigned no = 0; no < SHELVES; no++) {
        for (unsigned n = shelves[no].least; n > 0; n--) {
            node *block = take_free_block(no);
            block->next = gone;
            gone = block;
        }
        shelves[no].least = shelves[no].n;
    }
    return gone;
}

size_t teffi_block_reclaim(uint64_t now_ns)
{
    node *gone = NULL;
    pthread_mutex_lock(&lock);
    if (now_ns - looked_ns >= period_ns) {
        looked_ns = now_ns;
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
