/* route.h - a request for a grain: to the activation here, to another silo, or to be located.
 * Way:     reference, node (arriving) -> [route] -> catalog | net | locate
 * Threads: anywhere; never blocks. Each request ends: handed on, or answered with an error. */
#ifndef TEFFI_GRAINS_ROUTE_H
#define TEFFI_GRAINS_ROUTE_H

#include "ident.h"

struct teffi_grains;

/* teffi_route - owns msg. */
void teffi_route(struct teffi_grains *grains, teffi_msg *msg);

/* teffi_route_elsewhere - of a request just made, for a grain that was not here then.
 * in:   hint, where it was seen last, or none. msg, owned; may borrow what stays until this
 *       returns. */
void teffi_route_elsewhere(struct teffi_grains *grains, teffi_msg *msg, teffi_node_id hint);

/* teffi_route_to - the grain is held by a silo (this one too). Owns msg. */
void teffi_route_to(struct teffi_grains *grains, const teffi_ident *ident, teffi_msg *msg,
                    teffi_node_id node);

/* teffi_route_place - the grain is nowhere: have it activated. *placed: where, chosen when zero. */
void teffi_route_place(struct teffi_grains *grains, const teffi_ident *ident, teffi_msg *msg,
                       teffi_node_id *placed);

/* teffi_route_again - the activation it was for has ended. Owns msg. */
void teffi_route_again(struct teffi_grains *grains, teffi_msg *msg);

#endif
