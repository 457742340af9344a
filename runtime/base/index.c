/* index.c - cells that are read while they change; arrays that grow and shrink by half.
 * Way:     catalog -> [index]
 * Threads: writers under the owner's lock; each store of a cell is seen by readers. */
#include "base/index.h"

#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include "base/bug.h"

enum { EMPTY = 0, TAKEN_OUT = 1 };
enum { CELLS_MIN = 16, MAPPED_MIN_BYTES = 4096 };

static uint64_t cell_of(uint64_t hash, uint32_t number)
{
    return (uint64_t)teffi_index_bits(hash) << 32 | number;
}

/* relaxed: read by the writer, who wrote it */
static uint64_t get(const teffi_cells *cells, uint32_t at)
{
    return atomic_load_explicit(&cells->cell[at], memory_order_relaxed);
}

/* release: pairs with the acquire of teffi_index_next */
static void put(const teffi_cells *cells, uint32_t at, uint64_t cell)
{
    atomic_store_explicit(&cells->cell[at], cell, memory_order_release);
}

static uint32_t after(const teffi_cells *cells, uint32_t at)
{
    return at + 1 == cells->n ? 0 : at + 1;
}

/* ---- arrays ---- */

static size_t bytes_of(uint32_t n)
{
    return n * sizeof(_Atomic uint64_t);
}

static bool alloc_cells(teffi_cells *cells)
{
    size_t bytes = bytes_of(cells->n);
    cells->mapped = bytes >= MAPPED_MIN_BYTES;
    if (!cells->mapped) {
        cells->cell = calloc(cells->n, sizeof *cells->cell);
        return cells->cell != NULL;
    }
    void *at = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    cells->cell = at == MAP_FAILED ? NULL : at;
    return cells->cell != NULL;
}

static teffi_cells *take_spare(teffi_index *index, uint32_t n)
{
    for (teffi_cells **at = &index->spares; *at; at = &(*at)->spare)
        if ((*at)->n == n) {
            teffi_cells *cells = *at;
            *at = cells->spare;
            return cells;
        }
    return NULL;
}

static teffi_cells *cells_new(teffi_index *index, uint32_t n)
{
    teffi_cells *cells = take_spare(index, n);
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
        munmap((void *)cells->cell, bytes_of(cells->n));
    else if (cells)
        free((void *)cells->cell);
    free(cells);
}

/* Readers may be in it still: they find it empty. */
static void leave(teffi_index *index, teffi_cells *cells)
{
    if (!cells->mapped || madvise((void *)cells->cell, bytes_of(cells->n), MADV_DONTNEED) != 0)
        for (uint32_t i = 0; i < cells->n; i++)
            put(cells, i, EMPTY);
    cells->spare = index->spares;
    index->spares = cells;
}

/* ---- growing, shrinking, and getting rid of TAKEN_OUT ---- */

static void insert(const teffi_cells *cells, uint64_t cell)
{
    uint32_t at = teffi_index_home((uint32_t)(cell >> 32), cells->n);
    while (get(cells, at) >= TEFFI_INDEX_LEAST)
        at = after(cells, at);
    put(cells, at, cell);
}

/* In steps of a half: a third to a half of an array is in use just after it was made. */
static uint32_t size_for(uint32_t count)
{
    uint32_t n = CELLS_MIN;
    while (n / 2 < count)
        n = (n + n / 2 + 7) & ~7u;
    return n;
}

/* The order matters: moves is odd before the old array is emptied, and even again, and another,
 * after. So who searched the old one and finds moves as it was has searched it while it was whole
 * and the only one. */
static bool rebuild(teffi_index *index, uint32_t count)
{
    teffi_cells *old = atomic_load_explicit(&index->now, memory_order_relaxed);
    teffi_cells *cells = cells_new(index, size_for(count));
    if (!cells)
        return false;
    for (uint32_t i = 0; old && i < old->n; i++)
        if (get(old, i) >= TEFFI_INDEX_LEAST)
            insert(cells, get(old, i));
    index->filled = index->count;
    uint32_t moves = atomic_load_explicit(&index->moves, memory_order_relaxed);
    /* release: before the new array and the emptying of the old, pairs with first() and next() */
    atomic_store_explicit(&index->moves, moves + 1, memory_order_release);
    /* release: the array's content and the odd moves, pairs with first() */
    atomic_store_explicit(&index->now, cells, memory_order_release);
    if (old)
        leave(index, old);
    /* release: the new array, for who begins with these moves */
    atomic_store_explicit(&index->moves, moves + 2, memory_order_release);
    return true;
}

bool teffi_index_reserve(teffi_index *index)
{
    teffi_cells *cells = atomic_load_explicit(&index->now, memory_order_relaxed);
    uint32_t n = cells ? cells->n : 0;
    if (index->filled + 1 <= n - n / 4)
        return true;
    /* A rebuild that fails is tried again; one cell must stay EMPTY. */
    return rebuild(index, index->count + 1) || index->filled + 1 < n;
}

bool teffi_index_add(teffi_index *index, uint64_t hash, uint32_t number)
{
    teffi_bug_if(number < TEFFI_INDEX_LEAST);
    if (!teffi_index_reserve(index))
        return false;
    teffi_cells *cells = atomic_load_explicit(&index->now, memory_order_relaxed);
    uint32_t at = teffi_index_home(teffi_index_bits(hash), cells->n);
    while (get(cells, at) >= TEFFI_INDEX_LEAST)
        at = after(cells, at);
    index->filled += get(cells, at) == EMPTY;
    index->count++;
    put(cells, at, cell_of(hash, number));
    return true;
}

/* In front of an EMPTY cell no search goes on: what was taken out there is EMPTY too. */
static void clear(teffi_index *index, const teffi_cells *cells, uint32_t at)
{
    put(cells, at, TAKEN_OUT);
    while (get(cells, after(cells, at)) == EMPTY && get(cells, at) == TAKEN_OUT) {
        put(cells, at, EMPTY);
        index->filled--;
        at = at == 0 ? cells->n - 1 : at - 1;
    }
}

void teffi_index_del(teffi_index *index, uint64_t hash, uint32_t number)
{
    teffi_cells *cells = atomic_load_explicit(&index->now, memory_order_relaxed);
    uint32_t at = teffi_index_home(teffi_index_bits(hash), cells->n);
    while (get(cells, at) != cell_of(hash, number))
        at = after(cells, at);
    clear(index, cells, at);
    index->count--;
    if (cells->n > 4 * CELLS_MIN && index->count < cells->n / 8)
        (void)rebuild(index, index->count); /* it stays large when memory is out */
}

uint32_t teffi_index_each(const teffi_index *index, uint32_t *at)
{
    teffi_cells *cells = atomic_load_explicit(&index->now, memory_order_relaxed);
    while (cells && *at < cells->n) {
        uint64_t cell = get(cells, (*at)++);
        if (cell >= TEFFI_INDEX_LEAST)
            return (uint32_t)cell;
    }
    return 0;
}

size_t teffi_index_bytes(const teffi_index *index)
{
    teffi_cells *cells = atomic_load_explicit(&index->now, memory_order_relaxed);
    return cells ? bytes_of(cells->n) : 0;
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
