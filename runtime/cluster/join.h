/* join.h - a silo in its cluster's table: chooses its id {silo, incarnation}, joins, writes its
 * heartbeat, exchanges views, leaves.
 * Way:     silo/lifecycle -> [join -> heartbeat, tell] -> change, follow
 *          the handshake -> [check_peer]
 * Threads: identify, join, begin_leaving, leave: the silo's start and stop, one context at a
 *          time; push_view: also a system task; handle: where system targets run; the rest: any. */
#pragma once

#include "cluster/membership.h"

/* teffi_membership_identify - choose an incarnation above the table's last one for address.
 * in:   node->id: the id used on the connection to a remote store's server, or none.
 * out:  node->id and node->address are set. errs: the store's; TEFF_E_REFUSED: a live silo with
 *       another address has the same id. */
TEFF_MUST_USE teff_err teffi_membership_identify(teff_ctx *ctx, const char *address);

/* teffi_identity_check_peer - may this silo connect? No, if a member of the view has its id, but
 * another address, or as teffi_outsiders_check() says. errs: TEFF_E_REFUSED, text. */
teff_err teffi_identity_check_peer(teffi_node *node, const teffi_hello *peer, char *text);

/* teffi_membership_join - write this silo's row as ACTIVE, adopt the view, start the heartbeat,
 * push the view to the other silos. errs: the store's, TEFF_E_TIMEOUT (too many conflicts). */
TEFF_MUST_USE teff_err teffi_membership_join(teff_ctx *ctx);

/* teffi_membership_begin_leaving - become LEAVING: nothing new is placed here. When it returns,
 * every other silo has adopted that view or could not be reached. */
TEFF_MUST_USE teff_err teffi_membership_begin_leaving(teff_ctx *ctx);

/* teffi_membership_leave - leave the view for good; the others adopt that in the same way. */
TEFF_MUST_USE teff_err teffi_membership_leave(teff_ctx *ctx);

/* teffi_heartbeat_start - begin the heartbeats of a silo that has joined.
 * teffi_heartbeat_stop - start no more heartbeats; one may still be running. */
void teffi_heartbeat_start(teffi_membership *membership);
void teffi_heartbeat_stop(teffi_membership *membership);

/* teffi_membership_push_view - make the other silos adopt this silo's view, and wait for their
 * responses. in: departed_too: also silos that left and may still forward requests. */
void teffi_membership_push_view(teff_ctx *ctx, bool departed_too);

/* teffi_membership_handle - handle a message to the system target of membership. */
void teffi_membership_handle(teffi_node *node, teffi_msg *msg);
