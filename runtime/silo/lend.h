/* lend.h - a silo that joined through a seed keeps its rows in the seed's store.
 * Way:     store contract here -> [lend] -> the seed's system target -> its store
 * Nothing is kept on this side; every operation is one request. The seed must outlive its
 * borrowers. */
#ifndef TEFFI_SILO_LEND_H
#define TEFFI_SILO_LEND_H

#include "node/node.h"

/* teffi_lend - serve TEFFI_SLOT_STORE from node->store. */
void teffi_lend(teffi_node *node);

/* teffi_borrow_new - an engine that asks seed. out: NULL when memory is out. */
teffi_store *teffi_borrow_new(teffi_node *node, teffi_node_id seed);

#endif
