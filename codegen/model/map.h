/* map.h - a map from names to pointers.
 * Way:     model -> [map] -> model, check
 * Source:  Wellons, "An easy-to-implement, arena-friendly hash map", 2023: a trie of hash bits */
#pragma once

#include "model/pool.h"

typedef struct teffi_map { /* zeroed = empty, after pool is set */
    teffi_pool *pool;
    struct teffi_map_entry *root;
} teffi_map;

/* teffi_map_get - the value put under name; NULL when there is none. */
void *teffi_map_get(const teffi_map *map, const char *name);

/* teffi_map_put - put a value under a name that is still free.
 * in:   name and value, borrowed for the map's life.
 * out:  NULL: done. Otherwise the value under that name; the map is unchanged. */
void *teffi_map_put(teffi_map *map, const char *name, void *value);

/* teffi_fnv32 - FNV-1a with 32 bits, 0 mapped to 1: the ids of types and methods. */
uint32_t teffi_fnv32(const char *s);
