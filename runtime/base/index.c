/* index.c - changes of the index: add, remove, rebuild into an array of another size. */
#include "base/index.h"

#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include "base/bug.h"

enum { EMPTY = 0, TAKEN_OUT = 1 };
enum { CELLS_MIN = 16, MAPPED_MIN_BYTES = 4096 };

static uint64_t make_cell(uint64_t hash, uint32_t number)
{
    return (uint64_t)teffi_index_hash_bits(hash) << 32 | number;
}

/* relaxed: called under the owner's lock only, which orders the writes */
static uint64_t load_cell(const teffi_cells *cells, uint32_t at)
{
    return atomic_load_explicit(&cells->cell[at], memory_order_relaxed);
}

/* release: pairs with teffi_index_find_next() */
static void store_cell(const teffi_cells *cells, uint32_t at, uint64_t cell)
{
    atomic_store_explicit(&cells->cell[at], cell, memory_order_release);
}

static uint32_t cell_after(const teffi_cells *cells, uint32_t at)
{
    return at + 1 == cells->n ? 0 : at + 1;
}

/* ---- arrays ---- */

static size_t cells_bytes(uint32_t n)
{
    return n * sizeof(_Atomic uint64_t);
}

/* Allocates the cells of an array, all EMPTY. Large arrays are mapped, so that retire_cells() can
 * decommit them. out: false: out of memory. */
static bool alloc_cells(teffi_cells *cells)
{
    size_t bytes = cells_bytes(cells->n);
    cells->mapped = bytes >= MAPPED_MIN_BYTES;
    if (!cells->mapped) {
        cells->cell = calloc(cells->n, sizeof *cells->cell);
        return cells->cell != NULL;
    }
    void *at = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    cells->cell = at == MAP_FAILED ? NULL : at;
    return cells->cell != NULL;
}

/* Removes an array of n cells from the spares. out: the array, all EMPTY; NULL: there is none. */
static teffi_cells *take_spare_cells(teffi_index *index, uint32_t n)
{
    for (teffi_cells **at = &index->spares; *at; at = &(*at)->spare)
        if ((*at)->n == n) {
            teffi_cells *cells = *at;
            *at = cells->spare;
            return cells;
        }
    return NULL;
}

/* out: n cells, all EMPTY; NULL: out of memory. */
static teffi_cells *cells_new(teffi_index *index, uint32_t n)
{
    teffi_cells *cells = take_spare_cells(index, n);
    if (cells)
        return cells;
    cells = malloc(sizeof *cells);
    if (!cells)
        return NULL;
    *cells = (teffi_cells){.n = n};
    if (alloc_cells(cells))
        return cells;
    free(cells);
    return NULL;
}

static void cells_free(teffi_cells *cells)
{
    if (cells && cells->mapped)
        munmap((void *)cells->cell, cells_bytes(cells->n));
    else if (cells)
        free((void *)cells->cell);
    free(cells);
}

/* Empties an old array and adds it to the spares. It is not freed, because readers may still search
 * it. MADV_DONTNEED zeroes its cells, and EMPTY is 0. */
static void retire_cells(teffi_index *index, teffi_cells *cells)
{
    if (!cells->mapped || madvise((void *)cells->cell, cells_bytes(cells->n), MADV_DONTNEED) != 0)
        for (uint32_t i = 0; i < cells->n; i++)
            store_cell(cells, i, EMPTY);
    cells->spare = index->spares;
    index->spares = cells;
}

/* ---- rebuilds: grow, shrink, remove TAKEN_OUT cells ---- */

static void insert_cell(const teffi_cells *cells, uint64_t cell)
{
    uint32_t at = teffi_index_home_cell((uint32_t)(cell >> 32), cells->n);
    while (load_cell(cells, at) >= TEFFI_INDEX_LEAST)
        at = cell_after(cells, at);
    store_cell(cells, at, cell);
}

/* out: the size of an array that is to hold `count` numbers. Sizes grow by a factor of 1.5, so
 * about a third to a half of a new array is in use (less in the smallest one, CELLS_MIN). */
static uint32_t choose_array_size(uint32_t count)
{
    uint32_t n = CELLS_MIN;
    while (n / 2 < count)
        n = (n + n / 2 + 7) & ~7u;
    return n;
}

/* Moves all numbers to another array, sized for `count` numbers. out: false: out of memory.
 * `moves` becomes odd before the old array is emptied, and gets a new even value afterwards. So a
 * reader that loads the same even value before and after its search has searched a whole array. */
static bool rebuild_cells(teffi_index *index, uint32_t count)
{
    teffi_cells *old = atomic_load_explicit(&index->now, memory_order_relaxed);
    teffi_cells *cells = cells_new(index, choose_array_size(count));
    if (!cells)
        return false;
    for (uint32_t i = 0; old && i < old->n; i++)
        if (load_cell(old, i) >= TEFFI_INDEX_LEAST)
            insert_cell(cells, load_cell(old, i));
    index->filled = index->count;
    uint32_t moves = atomic_load_explicit(&index->moves, memory_order_relaxed);
    /* release: pairs with teffi_index_find_first() and teffi_index_search_was_complete() */
    atomic_store_explicit(&index->moves, moves + 1, memory_order_release);
    /* release: publishes the array's content and the odd `moves`, pairs with
     * teffi_index_find_first() */
    atomic_store_explicit(&index->now, cells, memory_order_release);
    if (old)
        retire_cells(index, old);
    /* release: publishes the new array to readers that load this value, pairs with
     * teffi_index_find_first() */
    atomic_store_explicit(&index->moves, moves + 2, memory_order_release);
    return true;
}

bool teffi_index_reserve(teffi_index *index)
{
    teffi_cells *cells = atomic_load_explicit(&index->now, memory_order_relaxed);
    uint32_t n = cells ? cells->n : 0;
    if (index->filled + 1 <= n - n / 4)
        return true;
    /* If the rebuild fails, the caller may still add a number to the old array if that leaves at
     * least one cell EMPTY, because a search ends at an EMPTY cell. The next call tries the rebuild
     * again. */
    return rebuild_cells(index, index->count + 1) || index->filled + 1 < n;
}

bool teffi_index_add(teffi_index *index, uint64_t hash, uint32_t number)
{
    teffi_bug_if(number < TEFFI_INDEX_LEAST);
    if (!teffi_index_reserve(index))
        return false;
    teffi_cells *cells = atomic_load_explicit(&index->now, memory_order_relaxed);
    uint32_t at = teffi_index_home_cell(teffi_index_hash_bits(hash), cells->n);
    while (load_cell(cells, at) >= TEFFI_INDEX_LEAST)
        at = cell_after(cells, at);
    index->filled += load_cell(cells, at) == EMPTY;
    index->count++;
    store_cell(cells, at, make_cell(hash, number));
    return true;
}

/* Marks a cell as TAKEN_OUT, so that searches go on to the next cells. But if searches end
 * at the next cell anyway, because it is EMPTY, this cell and the TAKEN_OUT cells right before it
 * become EMPTY, too. */
static void clear_cell(teffi_index *index, const teffi_cells *cells, uint32_t at)
{
    store_cell(cells, at, TAKEN_OUT);
    while (load_cell(cells, cell_after(cells, at)) == EMPTY && load_cell(cells, at) == TAKEN_OUT) {
        store_cell(cells, at, EMPTY);
        index->filled--;
        at = at == 0 ? cells->n - 1 : at - 1;
    }
}

void teffi_index_del(teffi_index *index, uint64_t hash, uint32_t number)
{
    teffi_cells *cells = atomic_load_explicit(&index->now, memory_order_relaxed);
    uint32_t at = teffi_index_home_cell(teffi_index_hash_bits(hash), cells->n);
    while (load_cell(cells, at) != make_cell(hash, number))
        at = cell_after(cells, at);
    clear_cell(index, cells, at);
    index->count--;
    if (cells->n > 4 * CELLS_MIN && index->count < cells->n / 8)
        (void)rebuild_cells(index, index->count); /* if it fails, the array stays large */
}

uint32_t teffi_index_next_number(const teffi_index *index, uint32_t *at)
{
    teffi_cells *cells = atomic_load_explicit(&index->now, memory_order_relaxed);
    while (cells && *at < cells->n) {
        uint64_t cell = load_cell(cells, (*at)++);
        if (cell >= TEFFI_INDEX_LEAST)
            return (uint32_t)cell;
    }
    return 0;
}

void teffi_index_fini(teffi_index *index)
{
    while (index->spares) {
        teffi_cells *cells = index->spares;
        index->spares = cells->spare;
        cells_free(cells);
    }
    cells_free(atomic_load_explicit(&index->now, memory_order_relaxed));
    memset(index, 0, sizeof *index);
}
