/* table.h - a hash table of intrusive nodes that grows; the owner's lock guards it.
 * Way:     catalog, directory, locate -> [table]
 * The caller hashes and compares; the table never calls back, so a lookup is a plain loop:
 *     for (n = teffi_table_first(t, h); n; n = teffi_table_next(n, h)) if (same(n)) ... */
#ifndef TEFFI_BASE_TABLE_H
#define TEFFI_BASE_TABLE_H

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

/* teffi_table_add - insert; equal hashes may be there already. errs: false when memory is out. */
bool teffi_table_add(teffi_table *table, teffi_tnode *node, uint64_t hash);

/* teffi_table_del - take out a node that is in. */
void teffi_table_del(teffi_table *table, teffi_tnode *node);

/* teffi_table_first, teffi_table_next - the nodes of one hash, in no order. */
teffi_tnode *teffi_table_first(const teffi_table *table, uint64_t hash);
teffi_tnode *teffi_table_next(const teffi_tnode *node);

/* teffi_table_each - walk all: start with *at = 0 and *next = NULL; ends with NULL. The node
 * returned last may be taken out; nothing may be added on the way. */
teffi_tnode *teffi_table_each(const teffi_table *table, size_t *at, teffi_tnode **next);

/* teffi_table_fini - frees the slots, not the nodes. */
void teffi_table_fini(teffi_table *table);

#endif
