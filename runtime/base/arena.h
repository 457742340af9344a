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

/* teffi_arena_init - an arena that starts in the caller's block.
 * in:   block, borrowed for the arena's life, may be NULL with n 0; budget_bytes, 0 = no limit. */
void teffi_arena_init(teff_arena *arena, void *block, size_t n, size_t budget_bytes);

/* teffi_arena_fini - frees all; the arena is as after an init without block. Zeroed is allowed. */
void teffi_arena_fini(teff_arena *arena);

/* teffi_arena_take - as teff_arena_alloc, not zeroed. */
void *teffi_arena_take(teff_arena *arena, size_t n);

/* teffi_arena_allocator - protobuf-c's view of the arena (free does nothing). */
ProtobufCAllocator teffi_arena_allocator(teff_arena *arena);

#endif
