/* arena.h - bump allocator with a budget; all its memory is freed at once. Internals of
 * teff/arena.h.
 * Way:     messages, turns, states -> [arena] -> chunks from block.c or the heap
 * Threads: one user at a time. */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <teff/arena.h>

typedef struct teffi_chunk teffi_chunk;

struct teff_arena {
    uint8_t *at, *end;   /* free part of the current block */
    teffi_chunk *chunks; /* newest first; without the caller's block */
    size_t used_bytes;   /* allocated so far */
    size_t budget_bytes; /* limit of used_bytes */
    bool bad_text;       /* a copied text was not UTF-8; set by copy.c, cleared by the reader */
};

enum { TEFFI_ARENA_ALIGN = 16 };

/* teffi_arena_init - make an arena that starts in the caller's block.
 * in:   block: n bytes, borrowed for the arena's life; may be NULL if n is 0. budget_bytes: 0 if
 *       there is no limit. */
static inline void teffi_arena_init(teff_arena *arena, void *block, size_t n, size_t budget_bytes)
{
    uintptr_t mask = ~(uintptr_t)(TEFFI_ARENA_ALIGN - 1);
    uintptr_t start = ((uintptr_t)block + TEFFI_ARENA_ALIGN - 1) & mask;
    uintptr_t stop = ((uintptr_t)block + n) & mask;
    bool room = block && start < stop;
    *arena = (teff_arena){.at = room ? (uint8_t *)start : NULL,
                          .end = room ? (uint8_t *)stop : NULL,
                          .budget_bytes = budget_bytes ? budget_bytes : SIZE_MAX};
}

/* teffi_arena_fini - free all memory; the arena is then as after an init without block and limit.
 * Zeroed memory is allowed. */
void teffi_arena_fini(teff_arena *arena);

/* teffi_arena_free_chunks - free the chunks newer than keep; NULL: all. */
void teffi_arena_free_chunks(teffi_chunk *chunks, const teffi_chunk *keep);

/* teffi_arena_free_memory - free all memory of an arena; do not use the arena again. */
static inline void teffi_arena_free_memory(teff_arena *arena)
{
    if (arena->chunks)
        teffi_arena_free_chunks(arena->chunks, NULL);
}

/* A position in an arena. */
typedef struct teffi_arena_mark {
    uint8_t *at, *end;
    teffi_chunk *chunks;
    size_t used_bytes;
} teffi_arena_mark;

/* teffi_arena_get_mark - get the current position, for teffi_arena_rewind(). */
static inline teffi_arena_mark teffi_arena_get_mark(const teff_arena *arena)
{
    return (teffi_arena_mark){arena->at, arena->end, arena->chunks, arena->used_bytes};
}

/* teffi_arena_rewind - go back to a mark: free everything allocated since the mark was taken.
 * Later marks become invalid. */
static inline void teffi_arena_rewind(teff_arena *arena, teffi_arena_mark mark)
{
    if (arena->chunks != mark.chunks)
        teffi_arena_free_chunks(arena->chunks, mark.chunks);
    arena->chunks = mark.chunks;
    arena->at = mark.at;
    arena->end = mark.end;
    arena->used_bytes = mark.used_bytes;
}

/* teffi_arena_alloc_unzeroed_slow - slow path of teffi_arena_alloc_unzeroed(): adds a chunk, if the
 * budget allows n.
 * out:  NULL: as teff_arena_alloc(). */
void *teffi_arena_alloc_unzeroed_slow(teff_arena *arena, size_t n);

/* teffi_arena_fits - are n bytes (not 0) free in the current block and in the budget? */
static inline bool teffi_arena_fits(const teff_arena *arena, size_t n)
{
    return n <= (size_t)(arena->end - arena->at) && n <= arena->budget_bytes - arena->used_bytes;
}

/* teffi_arena_bump - allocate n bytes, for which teffi_arena_fits() returned true. Rounding n
 * up cannot pass the end of the current block, because that end is a multiple of
 * TEFFI_ARENA_ALIGN. */
static inline void *teffi_arena_bump(teff_arena *arena, size_t n)
{
    void *p = arena->at;
    arena->at += (n + TEFFI_ARENA_ALIGN - 1) & ~(size_t)(TEFFI_ARENA_ALIGN - 1);
    arena->used_bytes += n;
    return p;
}

/* teffi_arena_alloc_unzeroed - as teff_arena_alloc(), but the memory is not zeroed. */
static inline void *teffi_arena_alloc_unzeroed(teff_arena *arena, size_t n)
{
    n += n == 0;
    return teffi_arena_fits(arena, n) ? teffi_arena_bump(arena, n)
                                      : teffi_arena_alloc_unzeroed_slow(arena, n);
}

/* teffi_chunks_held_bytes - the bytes of a list of chunks. */
size_t teffi_chunks_held_bytes(const teffi_chunk *chunks);

/* teffi_arena_held_bytes - the bytes of all the arena's chunks. */
static inline size_t teffi_arena_held_bytes(const teff_arena *arena)
{
    return arena->chunks ? teffi_chunks_held_bytes(arena->chunks) : 0;
}

/* teffi_chunk_new - allocate memory that an arena may adopt later.
 * out:  at least n bytes, not zeroed; *room: the actual size. NULL: no memory. */
uint8_t *teffi_chunk_new(size_t n, size_t *room);

/* teffi_chunk_free - in: bytes, from teffi_chunk_new(); may be NULL. */
void teffi_chunk_free(uint8_t *bytes);

/* teffi_arena_adopt_chunk - let the arena own bytes, from teffi_chunk_new(). The whole chunk counts
 * as used, or what is left of the budget if that is less. */
void teffi_arena_adopt_chunk(teff_arena *arena, uint8_t *bytes);
