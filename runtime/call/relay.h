/* relay.h - entries for calls of other nodes: relays, and kept cancels.
 * Way:     teff_cancel_fire -> [relay] ===> node/deliver -> [relay] ===> the next node
 *          route, an activation's start, teff_ctx_check -> [relay]: is the request cancelled?
 * Threads: any.
 * Model:   tests/model/cancel.pml: a request that is being sent meets its cancel */

/* A relay is the pending call of a request that this node forwards: it serves a client whose
 * gateway this node is, or a silo with an outdated location cache. It ends with the response, the
 * link to the next node, its deadline, its origin, or its origin's cancel.
 *
 * A cancel ends the call at its caller. If the request was sent, or is about to be, the cancel
 * follows it: a one-way message to TEFFI_SLOT_CANCEL of that node, with a teffi_origin as its body
 * and the call's time left as its TTL. A node that does not know the slot drops it. The receiver
 * ends the relay of that origin and sends its cancel to the next node; without a relay it keeps the
 * cancel until the deadline. A request whose cancel is kept is neither started nor relayed; a
 * running turn sees it. The caller's own node keeps it, too, while the request may be queued there.
 * The sender of both messages is the connected node, and the cookies are compared: nobody cancels
 * another node's call. A cancel that finds no request expires. */
#pragma once

#include "call/call.h"

/* 192 bytes each. Both are divided among origin nodes: a node may have as many as are free, so that
 * a single one gets half of them, two a third each, and so on (source: Choudhury and Hahne,
 * "Dynamic queue length thresholds", 1998). */
enum { TEFFI_RELAYS_MAX = 256 * 1024, TEFFI_CANCELS_MAX = 64 * 1024 };

/* teffi_relay_entry_count_of_node - the count of relays and kept cancels of a node; nodes with the
 * same hash share one count. */
_Atomic uint32_t *teffi_relay_entry_count_of_node(teffi_home *home, uint64_t origin_node);

/* teffi_relay_new - begin a relay for the call origin of origin_node.
 * in:   deadline_ns, as for teffi_call_new.
 * out:  *relay, valid on TEFF_OK: its slot and generation. It is pending: any thread may end it,
 *       and its entry may be reused.
 * errs: TEFF_E_OVERLOADED: the origin node has used its share, or memory is out. TEFF_E_CANCELLED:
 *       the origin's cancel was kept here; this call has removed it. */
TEFF_MUST_USE teff_err teffi_relay_new(teffi_home *home, teffi_node_id origin_node,
                                       teffi_origin origin, uint64_t deadline_ns,
                                       teffi_slab_use *relay);

/* teffi_cancel_call - end the call {slot, generation} as TEFF_E_CANCELLED, if it is pending; if it
 * is a relay, without an outcome. The cancel follows the request, but not to a process.
 * runs: without a lock. */
void teffi_cancel_call(teffi_home *home, uint32_t slot, uint32_t generation);

/* teffi_call_sign_and_check_cancel - like teffi_call_sign_request, for a request to a grain, just
 * before it is sent to a node: a later cancel is sent there, too. out: false: it was cancelled:
 * free it, do not send it. */
TEFF_MUST_USE bool teffi_call_sign_and_check_cancel(teffi_home *home, teffi_msg *request,
                                                    teffi_node_id to);

/* from, below: the node that sent the request; none: this node, and the origin's cookie is 0.
 *
 * teffi_cancel_apply - a node has cancelled its call: cancel the relay of the call or, if there is
 *       none, keep the cancel. It is lost over the node's share, or without memory.
 * teffi_remove_kept_cancel - remove the cancel of the call that is kept here. out: false: none is
 * kept.
 * teffi_cancel_is_kept - is a cancel of the call kept here? */
void teffi_cancel_apply(teffi_home *home, teffi_node_id from, teffi_origin origin,
                        uint64_t deadline_ns);
bool teffi_remove_kept_cancel(teffi_home *home, teffi_node_id from, teffi_origin origin);
bool teffi_cancel_is_kept(teffi_home *home, teffi_node_id from, teffi_origin origin);

/* teffi_cancel_is_any_kept - is any cancel kept? If not, teffi_remove_kept_cancel and
 * teffi_cancel_is_kept need not be called. relaxed: a cancel that arrives at the same moment may be
 * missed, as if it came too late. */
static inline bool teffi_cancel_is_any_kept(const teffi_home *home)
{
    return atomic_load_explicit(&home->calls.cancels, memory_order_relaxed) != 0;
}
