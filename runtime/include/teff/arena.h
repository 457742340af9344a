/* arena.h - memory that is freed all at once: one arena per message, turn and state.
 * Way:     generated copies and protobuf-c's unpack -> [arena] -> freed with its owner
 * Threads: one user at a time; an arena moves between threads with the message that owns it. */
#pragma once

#include <stddef.h>
#include <teff/error.h>

TEFF_BEGIN_C

typedef struct teff_arena teff_arena;

/* teff_arena_alloc - n bytes, aligned to 16, zeroed.
 * in:   arena, borrowed. n, bytes; 0: as 1.
 * out:  valid until the arena is freed; NULL: out of memory, or over the arena's budget.
 * runs: anywhere the arena's owner runs. */
TEFF_API void *teff_arena_alloc(teff_arena *arena, size_t n);

/* teff_arena_take - the same, not zeroed: for memory that the caller overwrites at once.
 * in, out, runs: as teff_arena_alloc. */
TEFF_API void *teff_arena_take(teff_arena *arena, size_t n);

/* teff_arena_copy - a copy of n bytes of src, followed by a zero byte (so strings stay strings).
 * in:   src, borrowed, may be NULL when n is 0.
 * out:  NULL: as teff_arena_alloc.
 * runs: as teff_arena_alloc. */
TEFF_API void *teff_arena_copy(teff_arena *arena, const void *src, size_t n);

TEFF_END_C
