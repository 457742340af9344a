/* index.h - a hash index from hashes to numbers; lock-free readers, one writer at a time.
 * Way:     the catalog (a grain's activation) -> [index] -> a slot
 * States:  a cell: EMPTY -add-> number -del-> TAKEN_OUT or EMPTY; TAKEN_OUT -add-> number;
 *          TAKEN_OUT -next cell gets EMPTY-> EMPTY; a rebuild empties all cells of the old array
 * Threads: functions that take a teffi_probe: any thread, at any time before fini. The others:
 *          under the owner's lock.
 * Model:   tests/model/index.pml */
#pragma once

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

/* Open addressing in one array of 8-byte cells: 32 bits of the hash and the number, so a rebuild
 * accesses only the two arrays. A number found is a hint; the reader checks the slot. Old arrays
 * are kept, emptied (large ones by decommitting them): a slow reader finds nothing in one, and a
 * changed `moves` tells it that the result is not certain. */

enum { TEFFI_INDEX_LEAST = 2 }; /* the smallest valid number; 0 and 1 are states of a cell */

typedef struct teffi_cells {
    uint32_t n;
    bool mapped;               /* allocated by mmap, not from the heap */
    _Atomic uint64_t *cell;    /* hash bits | number; 0: EMPTY; 1: TAKEN_OUT */
    struct teffi_cells *spare; /* the next one in the list of spares */
} teffi_cells;

typedef struct teffi_index {  /* zeroed = empty; written under the owner's lock */
    uint32_t count, filled;   /* numbers; cells that are not EMPTY */
    teffi_cells *spares;      /* old arrays, all cells EMPTY */
    teffi_cells *_Atomic now; /* release: pairs with the reader's acquire */
    _Atomic uint32_t moves;   /* odd during a rebuild */
} teffi_index;

/* The state of a search. */
typedef struct teffi_probe {
    const teffi_index *index;
    const teffi_cells *cells;
    uint32_t bits, at, left, moves;
} teffi_probe;

/* out: 32 bits of the hash, which a cell stores beside the number. They choose the cell where a
 * search begins, and the search compares them. The top 8 bits of the hash are not among them,
 * because they choose the index (grains/directory/shard.c). */
static inline uint32_t teffi_index_hash_bits(uint64_t hash)
{
    return (uint32_t)(hash >> 24);
}

/* The cell at which the search for these bits begins. */
static inline uint32_t teffi_index_home_cell(uint32_t bits, uint32_t n)
{
    return (uint32_t)(((uint64_t)bits * n) >> 32);
}

/* teffi_index_find_next - continue a search. out: the next number whose hash may match; 0: none. */
static inline uint32_t teffi_index_find_next(teffi_probe *probe)
{
    while (probe->left > 0) {
        probe->left--;
        /* acquire: pairs with store_cell(). If the cell holds a number, this thread also sees what
         * the writer stored in the slot of that number before it added the number. If a rebuild has
         * emptied the cell, teffi_index_search_was_complete() will return false. */
        uint64_t cell = atomic_load_explicit(&probe->cells->cell[probe->at], memory_order_acquire);
        probe->at = probe->at + 1 == probe->cells->n ? 0 : probe->at + 1;
        if (cell == 0) /* EMPTY: the search ends */
            probe->left = 0;
        else if ((uint32_t)(cell >> 32) == probe->bits && (uint32_t)cell >= TEFFI_INDEX_LEAST)
            return (uint32_t)cell;
    }
    return 0;
}

/* teffi_index_find_first - begin a search for a hash. out: as teffi_index_find_next(). */
static inline uint32_t teffi_index_find_first(teffi_probe *probe, const teffi_index *index,
                                              uint64_t hash)
{
    /* acquire: loaded before the array, so that teffi_index_search_was_complete() detects a later
     * rebuild */
    probe->moves = atomic_load_explicit(&index->moves, memory_order_acquire);
    /* acquire: the array's content, pairs with rebuild_cells() */
    probe->cells = atomic_load_explicit(&index->now, memory_order_acquire);
    probe->index = index;
    probe->bits = teffi_index_hash_bits(hash);
    probe->left = probe->cells ? probe->cells->n : 0;
    probe->at = probe->cells ? teffi_index_home_cell(probe->bits, probe->cells->n) : 0;
    return teffi_index_find_next(probe);
}

/* teffi_index_search_was_complete - call it after a search has ended with 0. out: true: each match
 * that was in the index during the whole search was returned. false: a rebuild may have hidden a
 * match; search again under the owner's lock. */
static inline bool teffi_index_search_was_complete(const teffi_probe *probe)
{
    /* acquire: pairs with rebuild_cells(). The loads of cells are acquire, too, so this load cannot
     * move before them. */
    return !(probe->moves & 1) &&
           atomic_load_explicit(&probe->index->moves, memory_order_acquire) == probe->moves;
}

/* teffi_index_reserve - make room for the next add. out: false: out of memory. */
bool teffi_index_reserve(teffi_index *index);

/* teffi_index_add - add a pair. in: number, not less than TEFFI_INDEX_LEAST. out: false: out of
 * memory. */
bool teffi_index_add(teffi_index *index, uint64_t hash, uint32_t number);

/* teffi_index_del - remove a pair that is in the index. */
void teffi_index_del(teffi_index *index, uint64_t hash, uint32_t number);

/* teffi_index_next_number - iterate over the numbers. in: *at, 0 at first. out: 0: no more. Numbers
 * may be added and removed between calls: while `moves` is unchanged, each number that stays in the
 * index is returned once. */
uint32_t teffi_index_next_number(const teffi_index *index, uint32_t *at);

/* teffi_index_fini - free all arrays, also the old ones. in: no thread searches any more. */
void teffi_index_fini(teffi_index *index);
