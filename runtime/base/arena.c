/* arena.c - bump memory with a budget.
 * Way:     messages, turns, states -> [arena] -> heap; large chunks -> block
 * Threads: one user at a time. */
#include "base/arena.h"

#include <stdlib.h>
#include <string.h>
#include "base/block.h"

enum { ALIGN = 16, CHUNK_MIN = 1024, CHUNK_MAX = 64 * 1024 };

struct teffi_chunk {
    teffi_chunk *next;
    size_t size;
};

static inline size_t round_up(size_t n)
{
    return (n + ALIGN - 1) & ~(size_t)(ALIGN - 1);
}

void teffi_arena_init(teff_arena *arena, void *block, size_t n, size_t budget_bytes)
{
    uintptr_t start = ((uintptr_t)block + ALIGN - 1) & ~(uintptr_t)(ALIGN - 1);
    uintptr_t stop = (uintptr_t)block + n;
    bool room = block && start < stop;
    *arena = (teff_arena){.at = room ? (uint8_t *)start : NULL,
                          .end = room ? (uint8_t *)stop : NULL,
                          .budget_bytes = budget_bytes ? budget_bytes : SIZE_MAX};
}

void teffi_arena_fini(teff_arena *arena)
{
    teffi_chunk *chunk = arena->chunks;
    while (chunk) {
        teffi_chunk *next = chunk->next;
        teffi_block_put(chunk, chunk->size);
        chunk = next;
    }
    *arena = (teff_arena){.budget_bytes = SIZE_MAX};
}

static teffi_chunk *new_chunk(size_t size)
{
    size = teffi_block_room(size);
    teffi_chunk *chunk = teffi_block_get(size);
    if (chunk)
        chunk->size = size;
    return chunk;
}

/* Blocks double up to CHUNK_MAX, so that a big message costs few of them. */
static bool grow(teff_arena *arena, size_t need)
{
    size_t size = arena->chunks ? arena->chunks->size * 2 : CHUNK_MIN;
    if (size > CHUNK_MAX)
        size = CHUNK_MAX;
    if (size < need + sizeof(teffi_chunk) + ALIGN)
        size = need + sizeof(teffi_chunk) + ALIGN;
    teffi_chunk *chunk = new_chunk(size);
    if (!chunk)
        return false;
    chunk->next = arena->chunks;
    arena->chunks = chunk;
    arena->at = (uint8_t *)chunk + round_up(sizeof *chunk);
    arena->end = (uint8_t *)chunk + chunk->size;
    return true;
}

static inline void *take(teff_arena *arena, size_t n)
{
    if (n > SIZE_MAX / 2 || n > arena->budget_bytes - arena->used_bytes)
        return NULL;
    size_t need = round_up(n ? n : 1);
    if (need > (size_t)(arena->end - arena->at) && !grow(arena, need))
        return NULL;
    void *p = arena->at;
    arena->at += need;
    arena->used_bytes += n;
    return p;
}

/* Most are small, and what was taken is a multiple of ALIGN. */
static inline void zero(char *p, size_t n)
{
    if (n > 4 * (size_t)ALIGN) {
        memset(p, 0, n);
        return;
    }
    memset(p, 0, ALIGN);
    if (n > ALIGN)
        memset(p + ALIGN, 0, ALIGN);
    if (n > 2 * (size_t)ALIGN)
        memset(p + 2 * (size_t)ALIGN, 0, ALIGN);
    if (n > 3 * (size_t)ALIGN)
        memset(p + 3 * (size_t)ALIGN, 0, ALIGN);
}

void *teff_arena_alloc(teff_arena *arena, size_t n)
{
    void *p = take(arena, n);
    if (p)
        zero(p, n);
    return p;
}

void *teffi_arena_take(teff_arena *arena, size_t n)
{
    return take(arena, n);
}

void *teff_arena_copy(teff_arena *arena, const void *src, size_t n)
{
    if (n == SIZE_MAX)
        return NULL;
    char *p = take(arena, n + 1);
    if (!p)
        return NULL;
    if (n)
        memcpy(p, src, n);
    p[n] = '\0';
    return p;
}

static void *pb_alloc(void *arena, size_t n)
{
    return take(arena, n);
}

static void pb_free(void *arena, void *p)
{
    (void)arena;
    (void)p;
}

ProtobufCAllocator teffi_arena_allocator(teff_arena *arena)
{
    return (ProtobufCAllocator){.alloc = pb_alloc, .free = pb_free, .allocator_data = arena};
}
