/* map.h - a map from names to pointers.
 * Way:     model, places, check -> [map] -> model, places, codegen
 * Source:  Wellons, "An easy-to-implement, arena-friendly hash map", 2023: a trie of hash bits */
#pragma once

#include "model/pool.h"

typedef struct teffi_map { /* empty: all zero except pool */
    teffi_pool *pool;
    struct teffi_map_entry *root;
} teffi_map;

/* teffi_map_get - the value stored under name; NULL: there is none. */
void *teffi_map_get(const teffi_map *map, const char *name);

/* teffi_map_put_if_absent - store a value under a name, if the name has none yet.
 * in:   name and value, borrowed for the map's life; value, not NULL.
 * out:  NULL: stored. Otherwise the earlier value of that name; the map is unchanged. */
void *teffi_map_put_if_absent(teffi_map *map, const char *name, void *value);

/* teffi_hash_fnv32 - hash a string with 32-bit FNV-1a; a hash of 0 becomes 1. Hashes of full names
 * are the ids of grain types and the default ids of methods. */
uint32_t teffi_hash_fnv32(const char *s);
