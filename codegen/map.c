/* map.c - from names to things: a hash table with chains that doubles when it is full.
 * Way:     model -> [map] -> model, check */
#include "map.h"

#include <string.h>

typedef struct teffi_map_entry {
    struct teffi_map_entry *next;
    const char *name;
    void *value;
    uint32_t hash;
} entry;

uint32_t teffi_fnv32(const char *s)
{
    uint32_t h = 2166136261U;

    for (; *s != '\0'; s++) {
        h = (h ^ (unsigned char)*s) * 16777619U;
    }
    return h != 0 ? h : 1;
}

static entry *find(const teffi_map *map, const char *name, uint32_t hash)
{
    entry *e = map->n_buckets != 0 ? map->buckets[hash & (map->n_buckets - 1)] : NULL;

    while (e != NULL && (e->hash != hash || strcmp(e->name, name) != 0)) {
        e = e->next;
    }
    return e;
}

static void grow(teffi_map *map)
{
    size_t n = map->n_buckets != 0 ? map->n_buckets * 2 : 64;
    entry **buckets = teffi_pool_alloc(map->pool, n * sizeof *buckets);
    entry *next;

    for (size_t i = 0; i < map->n_buckets; i++) {
        for (entry *e = map->buckets[i]; e != NULL; e = next) {
            next = e->next;
            e->next = buckets[e->hash & (n - 1)];
            buckets[e->hash & (n - 1)] = e;
        }
    }
    map->buckets = buckets;
    map->n_buckets = n;
}

void *teffi_map_get(const teffi_map *map, const char *name)
{
    entry *e = find(map, name, teffi_fnv32(name));

    return e != NULL ? e->value : NULL;
}

void *teffi_map_put(teffi_map *map, const char *name, void *value)
{
    uint32_t hash = teffi_fnv32(name);
    entry *e = find(map, name, hash);

    if (e != NULL) {
        return e->value;
    }
    if (map->n >= map->n_buckets) {
        grow(map);
    }
    e = teffi_pool_alloc(map->pool, sizeof *e);
    *e = (entry){map->buckets[hash & (map->n_buckets - 1)], name, value, hash};
    map->buckets[hash & (map->n_buckets - 1)] = e;
    map->n++;
    return NULL;
}
