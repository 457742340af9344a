/* table.c - chained hash table of intrusive nodes, doubled when it has a node for each slot. */
#include "base/table.h"

#include <stdlib.h>
#include <string.h>

enum { SLOTS_MIN = 8 };

/* Doubles the number of slots. If out of memory, the table stays as it is. */
static void grow_table(teffi_table *table)
{
    size_t n = table->n_slots ? table->n_slots * 2 : SLOTS_MIN;
    teffi_tnode **slots = calloc(n, sizeof *slots);
    if (!slots)
        return;
    for (size_t i = 0; i < table->n_slots; i++) {
        for (teffi_tnode *node = table->slots[i], *next; node; node = next) {
            next = node->next;
            node->next = slots[node->hash & (n - 1)];
            slots[node->hash & (n - 1)] = node;
        }
    }
    free(table->slots);
    table->slots = slots;
    table->n_slots = n;
}

bool teffi_table_add(teffi_table *table, teffi_tnode *node, uint64_t hash)
{
    /* If a doubling fails, the chains only get longer. If the first allocation fails, there are no
     * slots. */
    if (table->count >= table->n_slots)
        grow_table(table);
    if (!table->n_slots)
        return false;
    teffi_tnode **slot = &table->slots[hash & (table->n_slots - 1)];
    node->hash = hash;
    node->next = *slot;
    *slot = node;
    table->count++;
    return true;
}

void teffi_table_del(teffi_table *table, teffi_tnode *node)
{
    teffi_tnode **at = &table->slots[node->hash & (table->n_slots - 1)];
    while (*at != node)
        at = &(*at)->next;
    *at = node->next;
    node->next = NULL;
    table->count--;
}

/* out: the first node with this hash in the chain that begins at `node`; NULL: there is none. */
static teffi_tnode *skip_to_hash(teffi_tnode *node, uint64_t hash)
{
    while (node && node->hash != hash)
        node = node->next;
    return node;
}

teffi_tnode *teffi_table_find_first(const teffi_table *table, uint64_t hash)
{
    return table->n_slots ? skip_to_hash(table->slots[hash & (table->n_slots - 1)], hash) : NULL;
}

teffi_tnode *teffi_table_find_next(const teffi_tnode *node)
{
    return skip_to_hash(node->next, node->hash);
}

teffi_tnode *teffi_table_next_node(const teffi_table *table, size_t *at, teffi_tnode **next)
{
    teffi_tnode *node = *next;
    while (!node && *at < table->n_slots)
        node = table->slots[(*at)++];
    *next = node ? node->next : NULL;
    return node;
}

void teffi_table_fini(teffi_table *table)
{
    free(table->slots);
    memset(table, 0, sizeof *table);
}
