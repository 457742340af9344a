/* location_cache.c - lines of 8 entries, the newest first; a table of silos by number.
 * Threads: any. If puts and drops race in a line, an entry may be lost, or may be there twice. */
#include "directory/location_cache.h"

/* All loads and stores of this file are relaxed: no other data depends on the words of the cache,
 * and a stale word is only a wrong hint. */
static uint64_t load_cache_word(const _Atomic uint64_t *word)
{
    return atomic_load_explicit(word, memory_order_relaxed);
}

static void store_cache_word(_Atomic uint64_t *word, uint64_t value)
{
    atomic_store_explicit(word, value, memory_order_relaxed);
}

/* ---- numbers of silos ---- */

/* out: the number that stands for the silo in the cache's entries; 0: it has none. */
static uint32_t find_silo_number(const teffi_location_cache *cache, uint64_t silo)
{
    uint32_t n = atomic_load_explicit(&cache->n_silos, memory_order_relaxed);
    for (uint32_t i = 1; i <= n; i++)
        if (load_cache_word(&cache->silos[i]) == silo)
            return i;
    return 0;
}

/* Gives silo the lowest free number. If all are in use, silo gets none and is not cached. */
static void assign_silo_number(teffi_location_cache *cache, uint64_t silo)
{
    uint32_t n = atomic_load_explicit(&cache->n_silos, memory_order_relaxed), i = 1;
    while (i <= n && load_cache_word(&cache->silos[i]))
        i++;
    if (i == TEFFI_LOCATION_SILOS)
        return;
    store_cache_word(&cache->silos[i], silo);
    if (i > n)
        atomic_store_explicit(&cache->n_silos, i, memory_order_relaxed);
}

/* Drops all entries that have this silo number, so that the next silo that gets the number does not
 * inherit them. An entry that is put at the same time may stay. */
static void drop_entries_of_silo_number(teffi_location_cache *cache, uint32_t number)
{
    for (size_t i = 0; i < TEFFI_LOCATION_LINES * TEFFI_LOCATION_WAYS; i++)
        if ((uint16_t)load_cache_word(&cache->words[i]) == number)
            store_cache_word(&cache->words[i], 0);
}

void teffi_locations_adopt_view(teffi_location_cache *cache, const teffi_view *view,
                                teffi_node_id self)
{
    uint32_t n = atomic_load_explicit(&cache->n_silos, memory_order_relaxed);
    for (uint32_t i = 1; i <= n; i++) {
        uint64_t silo = load_cache_word(&cache->silos[i]);
        if (!silo || teffi_view_find_member(view, teffi_node_from_word(silo)))
            continue;
        store_cache_word(&cache->silos[i], 0);
        drop_entries_of_silo_number(cache, i);
    }
    for (size_t i = 0; i < view->n_members; i++) {
        teffi_node_id node = view->members[i].node;
        if (!teffi_node_equals(node, self) && !find_silo_number(cache, teffi_node_to_word(node)))
            assign_silo_number(cache, teffi_node_to_word(node));
    }
}

/* ---- entries ---- */

/* Chooses which entry of the line to give up for a new entry of the grain: the grain's older entry
 * if there is one, else the first empty entry, else the last entry. out: the index of that entry.
 * The caller moves the entries before this index by one, and puts the new entry first. */
static unsigned choose_entry_to_replace(_Atomic uint64_t *line, uint64_t hash)
{
    unsigned empty = TEFFI_LOCATION_WAYS - 1;
    for (unsigned i = TEFFI_LOCATION_WAYS; i-- > 0;) {
        uint64_t word = load_cache_word(&line[i]);
        if ((uint16_t)word == 0)
            empty = i;
        else if (teffi_location_tag(word) == teffi_location_tag(hash))
            return i;
    }
    return empty;
}

void teffi_location_put(teffi_location_cache *cache, uint64_t hash, teffi_node_id silo)
{
    uint32_t number = find_silo_number(cache, teffi_node_to_word(silo));
    if (!number)
        return;
    _Atomic uint64_t *line = &cache->words[teffi_location_line(hash)];
    for (unsigned i = choose_entry_to_replace(line, hash); i > 0; i--)
        store_cache_word(&line[i], load_cache_word(&line[i - 1]));
    store_cache_word(&line[0], teffi_location_tag(hash) | number);
}

void teffi_location_drop(teffi_location_cache *cache, uint64_t hash, teffi_node_id silo)
{
    uint32_t number = find_silo_number(cache, teffi_node_to_word(silo));
    if (!number)
        return;
    _Atomic uint64_t *line = &cache->words[teffi_location_line(hash)];
    for (unsigned i = 0; i < TEFFI_LOCATION_WAYS; i++)
        if (load_cache_word(&line[i]) == (teffi_location_tag(hash) | number))
            store_cache_word(&line[i], 0);
}
