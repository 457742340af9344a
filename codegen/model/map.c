/* map.c - a map from names to pointers. */
#include "model/map.h"

#include <string.h>

typedef struct teffi_map_entry {
    struct teffi_map_entry *children[4]; /* index: the hash's next two bits; 0 after all 32 bits */
    const char *name;
    void *value;
} entry;

uint32_t teffi_hash_fnv32(const char *s)
{
    uint32_t h = 2166136261U;
    for (; *s; s++)
        h = (h ^ (unsigned char)*s) * 16777619U;
    return h != 0 ? h : 1;
}

/* Searches the trie below the link. out: the link that points to the name's entry; if there is no
 * such entry, the NULL link where the entry must be added. */
static entry **find_link(entry **link, const char *name)
{
    for (uint32_t hash = teffi_hash_fnv32(name); *link && strcmp((*link)->name, name) != 0;
         hash <<= 2)
        link = &(*link)->children[hash >> 30];
    return link;
}

void *teffi_map_get(const teffi_map *map, const char *name)
{
    entry *root = map->root;
    const entry *found = *find_link(&root, name);
    return found ? found->value : NULL;
}

void *teffi_map_put_if_absent(teffi_map *map, const char *name, void *value)
{
    entry **link = find_link(&map->root, name);
    if (*link)
        return (*link)->value;
    *link = teffi_pool_alloc(map->pool, sizeof **link);
    (*link)->name = name;
    (*link)->value = value;
    return NULL;
}
