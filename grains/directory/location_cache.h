/* location_cache.h - to which other silo was the last request for a grain sent? A hint: a wrong one
 * costs one hop and is then dropped.
 * Way:     route, directory (MOVED) -> [location_cache] -> the silo to send to
 * Threads: any, without a lock: an entry is one word. teffi_locations_adopt_view: one thread at a
 *          time.
 *
 *     63             16 15        0
 *     |  48 bits of hash | silo's   |   13 other bits of the hash select a line of 8 entries,
 *     |                  | number   |   the newest first; number 0: empty */
#pragma once

#include <stdatomic.h>
#include <stdint.h>
#include "cluster/view.h"

enum { TEFFI_LOCATION_LINES = 1 << 13, TEFFI_LOCATION_WAYS = 8, TEFFI_LOCATION_SILOS = 1024 };

typedef struct teffi_location_cache {
    _Atomic uint64_t words[TEFFI_LOCATION_LINES * TEFFI_LOCATION_WAYS];
    /* by number: teffi_node_to_word of a silo in the view; 0: no silo. Silos without a number are
     * not cached. */
    _Atomic uint64_t silos[TEFFI_LOCATION_SILOS];
    _Atomic uint32_t n_silos; /* the highest number that was ever used */
} teffi_location_cache; /* zeroed memory is an empty cache; its untouched pages cost nothing */

/* teffi_locations_adopt_view - give numbers to the members of the view, except self; drop the
 * entries of silos that have left the view. */
void teffi_locations_adopt_view(teffi_location_cache *cache, const teffi_view *view,
                                teffi_node_id self);

/* teffi_location_tag - the 48 bits of a hash, or of an entry's word, that identify a grain. */
static inline uint64_t teffi_location_tag(uint64_t hash)
{
    return hash >> 16 << 16;
}

/* teffi_location_line - the index in cache->words where the line of a hash begins. */
static inline size_t teffi_location_line(uint64_t hash)
{
    return hash % TEFFI_LOCATION_LINES * TEFFI_LOCATION_WAYS;
}

/* teffi_location_get - find the cached silo of a grain by the grain's hash. out: a member of the
 * view that was adopted last; zero: no silo is cached. */
static inline teffi_node_id teffi_location_get(const teffi_location_cache *cache, uint64_t hash)
{
    const _Atomic uint64_t *line = &cache->words[teffi_location_line(hash)];
    for (unsigned i = 0; i < TEFFI_LOCATION_WAYS; i++) {
        /* relaxed: see location_cache.c */
        uint64_t word = atomic_load_explicit(&line[i], memory_order_relaxed);
        if (teffi_location_tag(word) != teffi_location_tag(hash) ||
            word == teffi_location_tag(word)) /* number 0: empty */
            continue;
        uint64_t silo =
            atomic_load_explicit(&cache->silos[word % TEFFI_LOCATION_SILOS], memory_order_relaxed);
        return teffi_node_from_word(silo);
    }
    return (teffi_node_id){0};
}

/* teffi_location_put - cache the silo of a grain, by the grain's hash, if the silo has a number. */
void teffi_location_put(teffi_location_cache *cache, uint64_t hash, teffi_node_id silo);

/* teffi_location_drop - drop the entry of a grain if it names silo. */
void teffi_location_drop(teffi_location_cache *cache, uint64_t hash, teffi_node_id silo);
