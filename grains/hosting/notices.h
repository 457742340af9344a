/* notices.h - messages about observers at a silo: the gateway passes notifications on to its
 * clients; notifications that were not delivered go back to the activations that sent them.
 * Way:     activation/observers, client -> node/deliver -> [notices] -> client, activation's group
 * Threads: any. */
#pragma once

#include "node/node.h"

/* teffi_notices_handle - the node's upcall `notice` (node.h).
 * What a client may send: a request for a seal of its own id; a bounce of a notification that this
 * gateway has sent to this client. Other messages of clients, and messages of silos that are not in
 * the view, are dropped. */
void teffi_notices_handle(teffi_node *node, teffi_msg *msg, bool unsent);
