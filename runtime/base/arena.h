/* arena.h - bump memory with a budget; freed at once. The inside of teff/arena.h.
 * Way:     messages, turns, states -> [arena] -> chunks from the heap
 * Threads: one user at a time; moves with its owner. */
#ifndef TEFFI_BASE_ARENA_H
#define TEFFI_BASE_ARENA_H

#include <protobuf-c/protobuf-c.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <teff/arena.h>

typedef struct teffi_chunk teffi_chunk;

struct teff_arena {
    uint8_t *at, *end;   /* free part of the current block */
    teffi_chunk *chunks; /* heap blocks, newest first; the inline block is not among them */
    size_t used_bytes;   /* handed out */
    size_t budget_bytes; /* allocation fails past it */
};

enum { TEFFI_ARENA_ALIGN = 16 };

/* teffi_arena_init - an arena that starts in the caller's block.
 * in:   block, borrowed for the arena's life, may be NULL with n 0; budget_bytes, 0 = no limit. */
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

/* teffi_arena_fini - frees all; the arena is as after an init without block. Zeroed is allowed. */
void teffi_arena_fini(teff_arena *arena);

/* Those newer than keep, which may be NULL. */
void teffi_arena_free_chunks(teffi_chunk *chunks, const teffi_chunk *keep);

/* teffi_arena_drop - the same of an arena that is not used any more. */
static inline void teffi_arena_drop(teff_arena *arena)
{
    if (arena->chunks)
        teffi_arena_free_chunks(arena->chunks, NULL);
}

/* A place in an arena: what was taken up to it. */
typedef struct teffi_arena_mark {
    uint8_t *at, *end;
    teffi_chunk *chunks;
    size_t used_bytes;
} teffi_arena_mark;

/* teffi_arena_here, _back - back frees what was taken since here; marks taken since are void. */
static inline teffi_arena_mark teffi_arena_here(const teff_arena *arena)
{
    return (teffi_arena_mark){arena->at, arena->end, arena->chunks, arena->used_bytes};
}

static inline void teffi_arena_back(teff_arena *arena, teffi_arena_mark mark)
{
    if (arena->chunks != mark.chunks)
        teffi_arena_free_chunks(arena->chunks, mark.chunks);
    arena->chunks = mark.chunks;
    arena->at = mark.at;
    arena->end = mark.end;
    arena->used_bytes = mark.used_bytes;
}

/* The rest of teffi_arena_take: a new block, or no memory. */
void *teffi_arena_take_more(teff_arena *arena, size_t n);

/* n bytes, not 0, are free in the block that is being filled, and in the budget. */
static inline bool teffi_arena_fits(const teff_arena *arena, size_t n)
{
    return n <= (size_t)(arena->end - arena->at) && n <= arena->budget_bytes - arena->used_bytes;
}

/* What fits. A block's end is a multiple of ALIGN, so it fits rounded up, too. */
static inline void *teffi_arena_bump(teff_arena *arena, size_t n)
{
    void *p = arena->at;
    arena->at += (n + TEFFI_ARENA_ALIGN - 1) & ~(size_t)(TEFFI_ARENA_ALIGN - 1);
    arena->used_bytes += n;
    return p;
}

/* teffi_arena_take - as teff_arena_alloc, not zeroed. */
static inline void *teffi_arena_take(teff_arena *arena, size_t n)
{
    n += n == 0;
    return teffi_arena_fits(arena, n) ? teffi_arena_bump(arena, n)
                                      : teffi_arena_take_more(arena, n);
}

/* teffi_chunk_new - memory of its own that an arena may take over later.
 * out:  n bytes, not zeroed, and *room that there really are; NULL when memory is out. */
uint8_t *teffi_chunk_new(size_t n, size_t *room);

/* teffi_chunk_free - of teffi_chunk_new; may be NULL. */
void teffi_chunk_free(uint8_t *bytes);

/* teffi_arena_adopt - bytes, of teffi_chunk_new, live as long as the arena from now on. */
void teffi_arena_adopt(teff_arena *arena, uint8_t *bytes);

/* teffi_arena_allocator - protobuf-c's view of the arena (free does nothing). */
ProtobufCAllocator teffi_arena_allocator(teff_arena *arena);

#endif
