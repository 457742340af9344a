/* join.h - a silo in its cluster's table: chooses its id {silo, incarnation}, joins, writes its
 * heartbeat, exchanges views, leaves.
 * Way:     silo/lifecycle -> [join -> heartbeat, tell] -> change, follow
 *          the handshake -> [check_peer]
 * Threads: choosing the id, join, begin_leaving, leave: the silo's start and stop, one context at a
 *          time; push_view: also a system task; handle: where system targets run; the rest: any. */
#pragma once

#include "cluster/membership.h"

/* teffi_membership_choose_silo_id - set the node's address and silo id, and choose an incarnation
 * above that of the table's row with this id, and above those of all removed rows.
 * in:   node->id: the id used on the connection to a remote store's server, or none.
 * out:  node->id and node->address are set. errs: as teffi_rows_read(); TEFF_E_REFUSED: a silo of
 *       the table that is not dead has the same id, but another address. */
TEFF_MUST_USE teff_err teffi_membership_choose_silo_id(teff_ctx *ctx, const char *address);

/* teffi_membership_check_peer - may this silo connect? No, if a member of the view has its id, but
 * another address; as teffi_membership_check_key() says; or as teffi_outsiders_check_may_connect()
 * says. errs: TEFF_E_REFUSED, text.
 * teffi_membership_check_key - may this silo have the certificate that it has shown (peer->key)?
 * No, if the row of a member with its silo id, in any incarnation, has the key of another
 * certificate. If so, also lets the view be refreshed soon, because the silo may have joined again
 * with a new certificate. errs: the same. */
teff_err teffi_membership_check_peer(teffi_node *node, const teffi_hello *peer, char *text);
teff_err teffi_membership_check_key(teffi_node *node, const teffi_hello *peer, char *text);

/* teffi_membership_join - write this silo's row as ACTIVE, adopt the view, start the heartbeat,
 * push the view to the other silos. errs: as teffi_membership_change(), TEFF_E_REFUSED as for
 * teffi_membership_choose_silo_id(). */
TEFF_MUST_USE teff_err teffi_membership_join(teff_ctx *ctx);

/* teffi_membership_begin_leaving - become LEAVING: nothing new is placed here. When it returns
 * TEFF_OK, every other member has adopted that view, or has not confirmed it within 5 s.
 * errs: as teffi_membership_change(). */
TEFF_MUST_USE teff_err teffi_membership_begin_leaving(teff_ctx *ctx);

/* teffi_membership_leave - leave the view for good, and release the lease; the others, also silos
 * that left before, adopt that in the same way. in: teffi_membership_stop_timers() was called.
 * errs: as teffi_membership_change(). */
TEFF_MUST_USE teff_err teffi_membership_leave(teff_ctx *ctx);

/* teffi_membership_start_timers - set the timers of a silo that has joined: of its heartbeats, of
 *       its looks at the other silos, of its rounds of promises, and of the end of its lease.
 * teffi_membership_stop_timers - cancel these timers; they are not set again. A heartbeat, a look
 *       and a round may still be running. */
void teffi_membership_start_timers(teffi_membership *membership);
void teffi_membership_stop_timers(teffi_membership *membership);

/* teffi_membership_push_view - make the other silos adopt this silo's view, and wait for their
 * responses, 5 s at most. in: departed_too: also silos that left and may still forward requests;
 * this silo has adopted a view. */
void teffi_membership_push_view(teff_ctx *ctx, bool departed_too);

/* teffi_membership_handle_request - handle a message to the system target of membership. Owns
 * msg. */
void teffi_membership_handle_request(teffi_node *node, teffi_msg *msg);
