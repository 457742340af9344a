/* index.h - from a hash to a number, read without a lock beside one writer.
 * Way:     catalog (which activation is this grain's?) -> [index] -> a slot
 * States:  a cell: EMPTY -add-> number -del-> TAKEN_OUT -add-> number ... -rebuild-> EMPTY
 * Threads: add, del, each: under the owner's lock. first, next, certain: any thread, at any time.
 * Model:   tests/model/index.pml
 *
 * Open addressing in one array of cells of 8 bytes: 32 bits of the hash beside the number, so that
 * a rebuild touches no more than the two arrays, in order. A number that is found is a hint: who
 * uses it looks at what it stands for. Arrays that were left are kept, empty, their pages given
 * back: a reader that was slow finds nothing there, and moves tells it that this proves nothing. */
#ifndef TEFFI_BASE_INDEX_H
#define TEFFI_BASE_INDEX_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum { TEFFI_INDEX_LEAST = 2 }; /* the smallest number that may be kept */

typedef struct teffi_cells {
    uint32_t n;
    bool mapped;            /* pages of its own */
    _Atomic uint64_t *cell; /* hash bits | number; 0: EMPTY; 1: TAKEN_OUT */
    struct teffi_cells *spare;
} teffi_cells;

typedef struct teffi_index {  /* zeroed = empty */
    uint32_t count, filled;   /* numbers; cells that are not EMPTY */
    teffi_cells *spares;      /* left, all EMPTY */
    teffi_cells *_Atomic now; /* release: pairs with the reader's acquire */
    _Atomic uint32_t moves;   /* odd while a rebuild is under way */
} teffi_index;

/* A search, for first and next. */
typedef struct teffi_probe {
    const teffi_index *index;
    const teffi_cells *cells;
    uint32_t bits, at, left, moves;
} teffi_probe;

/* The top 8 bits choose among indexes; these choose and tell apart within one. */
static inline uint32_t teffi_index_bits(uint64_t hash)
{
    return (uint32_t)(hash >> 24);
}

static inline uint32_t teffi_index_home(uint32_t bits, uint32_t n)
{
    return (uint32_t)(((uint64_t)bits * n) >> 32);
}

/* teffi_index_next - one more number whose hash may be this one; 0: no more. */
static inline uint32_t teffi_index_next(teffi_probe *probe)
{
    while (probe->left > 0) {
        probe->left--;
        /* acquire: what the number stands for was set up before it came, pairs with add; and the
         * look at moves comes after it, pairs with a rebuild's emptying */
        uint64_t cell = atomic_load_explicit(&probe->cells->cell[probe->at], memory_order_acquire);
        probe->at = probe->at + 1 == probe->cells->n ? 0 : probe->at + 1;
        if (cell == 0)
            probe->left = 0;
        else if ((uint32_t)(cell >> 32) == probe->bits && (uint32_t)cell >= TEFFI_INDEX_LEAST)
            return (uint32_t)cell;
    }
    return 0;
}

/* teffi_index_first - begin a search. out: as next. */
static inline uint32_t teffi_index_first(teffi_probe *probe, const teffi_index *index,
                                         uint64_t hash)
{
    /* acquire: moves before the array, so that certain() sees each rebuild since */
    probe->moves = atomic_load_explicit(&index->moves, memory_order_acquire);
    /* acquire: the array's content, pairs with rebuild() */
    probe->cells = atomic_load_explicit(&index->now, memory_order_acquire);
    probe->index = index;
    probe->bits = teffi_index_bits(hash);
    probe->left = probe->cells ? probe->cells->n : 0;
    probe->at = probe->cells ? teffi_index_home(probe->bits, probe->cells->n) : 0;
    return teffi_index_next(probe);
}

/* teffi_index_certain - after 0: at some moment of the search there was no other such number.
 * false: nobody knows; search again under the owner's lock. */
static inline bool teffi_index_certain(const teffi_probe *probe)
{
    /* acquire: only for its order behind the cells' loads, which are acquire themselves */
    return !(probe->moves & 1) &&
           atomic_load_explicit(&probe->index->moves, memory_order_acquire) == probe->moves;
}

/* teffi_index_reserve - see to it that the next add finds room. out: false: memory is out. */
bool teffi_index_reserve(teffi_index *index);

/* teffi_index_add - in: number, not less than TEFFI_INDEX_LEAST. out: false: memory is out. */
bool teffi_index_add(teffi_index *index, uint64_t hash, uint32_t number);

/* teffi_index_del - take out a pair that is in. */
void teffi_index_del(teffi_index *index, uint64_t hash, uint32_t number);

/* teffi_index_each - the numbers one by one: *at is 0 at first; 0: no more. Between two calls
 * others may be added and taken out: each that stays is seen once, as long as moves stays. */
uint32_t teffi_index_each(const teffi_index *index, uint32_t *at);

/* teffi_index_bytes - what it holds of memory, by its own count. */
size_t teffi_index_bytes(const teffi_index *index);

void teffi_index_fini(teffi_index *index);

#endif
