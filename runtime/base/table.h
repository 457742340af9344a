/* table.h - a hash table of intrusive nodes that grows; the owner's lock guards it.
 * Way:     directory/shard (entries of a partition, look-ups) -> [table]
 * The caller hashes and compares; the table never calls back, so a lookup is a plain loop:
 *     for (n = teffi_table_find_first(t, h); n; n = teffi_table_find_next(n)) if (same(n)) ... */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

typedef struct teffi_tnode {
    struct teffi_tnode *next;
    uint64_t hash;
} teffi_tnode;

typedef struct teffi_table { /* zeroed = empty */
    teffi_tnode **slots;
    size_t n_slots, count;
} teffi_table;

/* teffi_table_add - insert; several nodes may have equal hashes. out: false: out of memory. */
bool teffi_table_add(teffi_table *table, teffi_tnode *node, uint64_t hash);

/* teffi_table_del - remove a node that is in the table. */
void teffi_table_del(teffi_table *table, teffi_tnode *node);

/* teffi_table_find_first, teffi_table_find_next - the nodes of one hash, in no order; NULL: no
 * more. */
teffi_tnode *teffi_table_find_first(const teffi_table *table, uint64_t hash);
teffi_tnode *teffi_table_find_next(const teffi_tnode *node);

/* teffi_table_next_node - iterate over all nodes. in: *at = 0 and *next = NULL at first. out: NULL:
 * no more. The last node returned may be removed; nothing may be added during the iteration. */
teffi_tnode *teffi_table_next_node(const teffi_table *table, size_t *at, teffi_tnode **next);

/* teffi_table_fini - frees the slots, not the nodes. */
void teffi_table_fini(teffi_table *table);
