/* route.h - send a request to its grain's activation here, to another silo (forward.c), or to a
 * look-up.
 * Way:     reference, node (arriving) -> [route] -> shard | forward -> net | locate -> forward
 * Threads: any; never blocks. Each request is handed on or ended with an error. */
#ifndef TEFFI_REQUEST_ROUTE_H
#define TEFFI_REQUEST_ROUTE_H

#include "activation/grains.h"
#include "activation/ident.h"

/* teffi_route - route a new or received request. Owns msg. */
void teffi_route(teffi_grains *grains, teffi_msg *msg);

/* teffi_route_elsewhere - route a new request whose grain is not on this silo.
 * in:   location, the cached silo of the grain, or zero. msg, owned; may borrow memory that is
 *       valid until this returns. */
void teffi_route_elsewhere(teffi_grains *grains, teffi_msg *msg, teffi_node_id location);

/* teffi_route_unsent - locate again a request that the transport returned: it surely did not reach
 * silo to. Owns msg. */
void teffi_route_unsent(teffi_grains *grains, teffi_msg *msg, teffi_node_id to);

/* teffi_route_to_winner - route a request of an activation that lost its grain to winner. Owns
 * msg. */
void teffi_route_to_winner(teffi_grains *grains, teffi_msg *msg, teffi_node_id winner);

/* teffi_route_again - route a request again whose activation has ended. Owns msg. */
void teffi_route_again(teffi_grains *grains, teffi_msg *msg);

/* ---- forward.c, for route.c and locate.c ---- */

/* out:  true: msg was handed on, or ended with an error; owns msg.
 *       false: msg could not be forwarded and must be located again; the caller still owns it.
 *
 * teffi_forward_here - to the activation here; with create, make one if there is none. false: there
 *       is none, or the type is not hosted here.
 * teffi_forward_to_silo - to another silo, which holds or may hold the grain.
 * teffi_forward_to_holder - to the silo that holds the grain, which may be this one.
 * teffi_forward_to_place - to the silo *placed, which activates the grain; chosen if zero. */
TEFF_MUST_USE bool teffi_forward_here(teffi_grains *grains, const teffi_ident *ident,
                                      teffi_msg *msg, bool create);
TEFF_MUST_USE bool teffi_forward_to_silo(teffi_grains *grains, const teffi_ident *ident,
                                         teffi_msg *msg, teffi_node_id to);
TEFF_MUST_USE bool teffi_forward_to_holder(teffi_grains *grains, const teffi_ident *ident,
                                           teffi_msg *msg, teffi_node_id holder);
TEFF_MUST_USE bool teffi_forward_to_place(teffi_grains *grains, const teffi_ident *ident,
                                          teffi_msg *msg, teffi_node_id *placed);

/* teffi_forward_take_back - undo teffi_forward_to_silo: msg surely did not reach to. out: as
 * above. */
TEFF_MUST_USE bool teffi_forward_take_back(teffi_grains *grains, const teffi_ident *ident,
                                           teffi_msg *msg, teffi_node_id to);

/* teffi_forward_own - copy what msg borrows, as it outlives its caller. out: false: no memory, msg
 * was ended with an error. */
TEFF_MUST_USE bool teffi_forward_own(teffi_grains *grains, teffi_msg *msg);

/* teffi_forward_refuse - end msg with an error of a queue or of the transport. */
void teffi_forward_refuse(teffi_grains *grains, teffi_msg *msg, teff_err err);

/* teffi_forward_expired - has msg's deadline passed? Then it must not run. */
bool teffi_forward_expired(const teffi_grains *grains, const teffi_msg *msg);

#endif
