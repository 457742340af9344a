/* arena.c - bump allocator with a budget; its large chunks are blocks (pool.h). */
#include "memory/arena.h"

#include <string.h>
#include "memory/pool.h"

enum { ALIGN = TEFFI_ARENA_ALIGN, CHUNK_MIN = 1024, CHUNK_MAX = 64 * 1024 };

struct teffi_chunk {
    teffi_chunk *next;
    size_t size;
};

static inline size_t round_up(size_t n)
{
    return (n + ALIGN - 1) & ~(size_t)(ALIGN - 1);
}

void teffi_arena_free_chunks(teffi_chunk *chunks, const teffi_chunk *keep)
{
    while (chunks != keep) {
        teffi_chunk *next = chunks->next;
        teffi_block_put(chunks, chunks->size);
        chunks = next;
    }
}

void teffi_arena_fini(teff_arena *arena)
{
    teffi_arena_free_chunks(arena->chunks, NULL);
    *arena = (teff_arena){.budget_bytes = SIZE_MAX};
}

/* Allocates a chunk of teffi_block_usable_bytes(size) bytes, head included. out: NULL: no
 * memory. */
static teffi_chunk *new_chunk(size_t size)
{
    size = teffi_block_usable_bytes(size);
    teffi_chunk *chunk = teffi_block_get(size);
    if (chunk)
        chunk->size = size;
    return chunk;
}

static uint8_t *chunk_data(teffi_chunk *chunk)
{
    return (uint8_t *)chunk + round_up(sizeof *chunk);
}

static teffi_chunk *chunk_of_data(uint8_t *bytes)
{
    return (teffi_chunk *)(void *)(bytes - round_up(sizeof(teffi_chunk)));
}

/* Does the arena allocate from its newest chunk? If not, it allocates from an older chunk, or from
 * the block that the caller of teffi_arena_init() gave. */
static bool uses_newest_chunk(const teff_arena *arena)
{
    return arena->chunks && arena->end == (uint8_t *)arena->chunks + arena->chunks->size;
}

/* Adds a chunk that has room for `need` bytes and makes it current. Sizes double up to CHUNK_MAX,
 * so that a large message needs few chunks. If the newest chunk was adopted
 * (teffi_arena_adopt_chunk(), alloc_in_own_chunk()), the sizes start at CHUNK_MIN again. out:
 * false: no memory. */
static bool add_chunk(teff_arena *arena, size_t need)
{
    size_t size = uses_newest_chunk(arena) ? arena->chunks->size * 2 : CHUNK_MIN;
    if (size > CHUNK_MAX)
        size = CHUNK_MAX;
    if (size < need + sizeof(teffi_chunk) + ALIGN)
        size = round_up(need + sizeof(teffi_chunk) + ALIGN);
    teffi_chunk *chunk = new_chunk(size);
    if (!chunk)
        return false;
    chunk->next = arena->chunks;
    arena->chunks = chunk;
    arena->at = chunk_data(chunk);
    arena->end = (uint8_t *)chunk + chunk->size;
    return true;
}

size_t teffi_chunks_held_bytes(const teffi_chunk *chunks)
{
    size_t held = 0;
    for (const teffi_chunk *chunk = chunks; chunk; chunk = chunk->next)
        held += chunk->size;
    return held;
}

uint8_t *teffi_chunk_new(size_t n, size_t *room)
{
    size_t head = round_up(sizeof(teffi_chunk));
    teffi_chunk *chunk = n < SIZE_MAX / 2 ? new_chunk(head + n) : NULL;
    if (!chunk)
        return NULL;
    *room = chunk->size - head;
    return chunk_data(chunk);
}

void teffi_chunk_free(uint8_t *bytes)
{
    if (bytes)
        teffi_block_put(chunk_of_data(bytes), chunk_of_data(bytes)->size);
}

void teffi_arena_adopt_chunk(teff_arena *arena, uint8_t *bytes)
{
    teffi_chunk *chunk = chunk_of_data(bytes);
    size_t left = arena->budget_bytes - arena->used_bytes;
    chunk->next = arena->chunks;
    arena->chunks = chunk;
    arena->used_bytes += chunk->size < left ? chunk->size : left;
}

/* Allocates n bytes in a new chunk of their own; the current chunk stays current.
 * teffi_arena_adopt_chunk() adds the whole chunk to used_bytes, but only n bytes count as used
 * here. */
static void *alloc_in_own_chunk(teff_arena *arena, size_t n)
{
    size_t room;
    uint8_t *bytes = teffi_chunk_new(n, &room);
    if (!bytes)
        return NULL;
    size_t used = arena->used_bytes;
    teffi_arena_adopt_chunk(arena, bytes);
    arena->used_bytes = used + n;
    return bytes;
}

/* Slow path of teffi_arena_alloc_unzeroed(). Not inlined, because it is rarely called: most
 * allocations fit in the current block. */
__attribute__((noinline)) void *teffi_arena_alloc_unzeroed_slow(teff_arena *arena, size_t n)
{
    if (n > SIZE_MAX / 2 || n > arena->budget_bytes - arena->used_bytes)
        return NULL;
    size_t need = round_up(n);
    if (need > (size_t)(arena->end - arena->at)) {
        if (need >= TEFFI_BLOCK_MIN)
            return alloc_in_own_chunk(arena, n);
        if (!add_chunk(arena, need))
            return NULL;
    }
    void *p = arena->at;
    arena->at += need;
    arena->used_bytes += n;
    return p;
}

void *teff_arena_take(teff_arena *arena, size_t n)
{
    return teffi_arena_alloc_unzeroed(arena, n);
}

/* Zeroes n allocated bytes. If n is at most 4 * ALIGN, zeroes whole units of ALIGN bytes, because
 * the compiler turns a memset() of constant size into plain stores. This stays within the
 * allocation, which also consists of whole units. out: p. */
static inline void *zero_allocated_bytes(char *p, size_t n)
{
    if (n > 4 * (size_t)ALIGN)
        return memset(p, 0, n);
    memset(p, 0, ALIGN);
    if (n > ALIGN)
        memset(p + ALIGN, 0, ALIGN);
    if (n > 2 * (size_t)ALIGN)
        memset(p + 2 * (size_t)ALIGN, 0, ALIGN);
    if (n > 3 * (size_t)ALIGN)
        memset(p + 3 * (size_t)ALIGN, 0, ALIGN);
    return p;
}

/* Slow path of teff_arena_alloc(). */
__attribute__((noinline)) static void *alloc_slow(teff_arena *arena, size_t n)
{
    void *p = teffi_arena_alloc_unzeroed_slow(arena, n);
    return p ? memset(p, 0, n) : NULL;
}

void *teff_arena_alloc(teff_arena *arena, size_t n)
{
    n += n == 0;
    return teffi_arena_fits(arena, n) ? zero_allocated_bytes(teffi_arena_bump(arena, n), n)
                                      : alloc_slow(arena, n);
}

/* Copies n bytes, at most 16. If n is at least 4, copies the first and the last 4 or 8 bytes, which
 * may overlap: the compiler turns a memcpy() of constant size into plain loads and stores. */
static inline void copy_short(char *p, const char *src, size_t n)
{
    if (n >= 8) {
        uint64_t first, last;
        memcpy(&first, src, 8);
        memcpy(&last, src + n - 8, 8);
        memcpy(p, &first, 8);
        memcpy(p + n - 8, &last, 8);
    } else if (n >= 4) {
        uint32_t first, last;
        memcpy(&first, src, 4);
        memcpy(&last, src + n - 4, 4);
        memcpy(p, &first, 4);
        memcpy(p + n - 4, &last, 4);
    } else {
        for (size_t i = 0; i < n; i++)
            p[i] = src[i];
    }
}

/* Slow path of teff_arena_copy(), for any n. */
__attribute__((noinline)) static void *copy_slow(teff_arena *arena, const void *src, size_t n)
{
    char *p = n < SIZE_MAX ? teffi_arena_alloc_unzeroed(arena, n + 1) : NULL;
    if (!p)
        return NULL;
    if (n)
        memcpy(p, src, n);
    p[n] = '\0';
    return p;
}

enum { SHORT_MAX = 16 };

void *teff_arena_copy(teff_arena *arena, const void *src, size_t n)
{
    if (n > SHORT_MAX || !teffi_arena_fits(arena, n + 1))
        return copy_slow(arena, src, n);
    char *p = teffi_arena_bump(arena, n + 1);
    copy_short(p, src, n);
    p[n] = '\0';
    return p;
}
