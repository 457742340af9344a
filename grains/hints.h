/* hints.h - on which other silo was a grain when it was last sent to? A guess: a wrong one costs a
 * forward and is taken back, never a wrong result.
 * Way:     route, directory (MOVED) -> [hints] -> the silo to send to
 * Threads: any, without a lock: one word an entry, and one a silo. view: one at a time.
 *
 *     63             16 15        0
 *     |  48 bits of hash | silo's   |   one of 8 in the line that 13 other bits of the hash tell,
 *     |                  | number   |   the newest first; number 0: empty
 *
 * Silos have numbers while they are in the view. A hint to one that is not is none. */
#ifndef TEFFI_GRAINS_HINTS_H
#define TEFFI_GRAINS_HINTS_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include "cluster/view.h"

enum { TEFFI_HINT_LINES = 1 << 13, TEFFI_HINT_WAYS = 8, TEFFI_HINT_SILOS = 1024 };

typedef struct teffi_hints {
    _Atomic uint64_t *words; /* lines of ways, in memory; NULL when that was out: no hints */
    void *memory;
    /* by number: silo | incarnation, of the view; 0: nobody. Those over its size get no hints. */
    _Atomic uint64_t silos[TEFFI_HINT_SILOS];
    _Atomic uint32_t n_silos; /* numbers above were never given */
} teffi_hints;

void teffi_hints_init(teffi_hints *hints);
void teffi_hints_fini(teffi_hints *hints);

/* teffi_hints_view - numbers for its members but self; hints to silos that are gone are dropped. */
void teffi_hints_view(teffi_hints *hints, const teffi_view *view, teffi_node_id self);

static inline uint64_t teffi_hint_tag(uint64_t hash)
{
    return hash >> 16 << 16;
}

static inline _Atomic uint64_t *teffi_hint_line(const teffi_hints *hints, uint64_t hash)
{
    return hints->words + hash % TEFFI_HINT_LINES * TEFFI_HINT_WAYS;
}

/* teffi_hint_get - out: a silo of the view, not this one; zero: no hint. */
static inline teffi_node_id teffi_hint_get(const teffi_hints *hints, uint64_t hash)
{
    if (!hints->words)
        return (teffi_node_id){0};
    _Atomic uint64_t *line = teffi_hint_line(hints, hash);
    for (unsigned i = 0; i < TEFFI_HINT_WAYS; i++) {
        /* relaxed, all of these: nothing else is read through them, and any mixture is a guess */
        uint64_t word = atomic_load_explicit(&line[i], memory_order_relaxed);
        if (teffi_hint_tag(word) != teffi_hint_tag(hash) || word == teffi_hint_tag(word))
            continue;
        uint64_t silo =
            atomic_load_explicit(&hints->silos[word % TEFFI_HINT_SILOS], memory_order_relaxed);
        return teffi_node_of_word(silo);
    }
    return (teffi_node_id){0};
}

/* teffi_hint_put - nothing when the silo is not in the view. */
void teffi_hint_put(teffi_hints *hints, uint64_t hash, teffi_node_id silo);

/* teffi_hint_drop - if it says silo. */
void teffi_hint_drop(teffi_hints *hints, uint64_t hash, teffi_node_id silo);

#endif
