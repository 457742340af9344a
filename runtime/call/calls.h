/* calls.h - operations on many pending calls: expire, lose, cancel, count those of a node; end the
 * ones that a teff_cancel lists.
 * Way:     node, lifecycle, grains/reference -> [calls, cancel] -> call; deadline's timer ->
 *          [calls] -> call
 * Threads: any; a teff_cancel's lock is not held while calls are ended. The deadline sweep: one
 *          worker at a time, in slices of 0.5 ms. */
#pragma once

#include "call/call.h"

/* teffi_calls_init - home->exec may be set later, before the first call. */
void teffi_calls_init(teffi_home *home);
void teffi_calls_fini(teffi_home *home);

/* teffi_calls_count_pending - the number of pending calls and relays, without kept cancels. Visits
 * every entry: for reports, and for a silo that leaves. */
uint64_t teffi_calls_count_pending(teffi_home *home);

/* teffi_calls_relay_count - the number of relays, pending or not, whose outcome was not sent on
 * yet. */
uint32_t teffi_calls_relay_count(teffi_home *home);

/* teffi_calls_any_sent_to - is there a pending call whose request was sent to that node? */
bool teffi_calls_any_sent_to(teffi_home *home, teffi_node_id to);

/* teffi_calls_end_sent_to - the link to peer ended, cleanly or not: end the calls whose request was
 * sent to peer, with TEFF_E_UNREACHABLE. out: relays, as teffi_call_end_if_matching's *relays. */
TEFF_MUST_USE teffi_call *teffi_calls_end_sent_to(teffi_home *home, teffi_node_id peer);

/* teffi_calls_end_relays_of_node - end the relays of a node that is gone; nothing is sent on. A
 * client's kept cancels end, too. A silo's stay: the requests that it has forwarded may be queued
 * or running here. */
void teffi_calls_end_relays_of_node(teffi_home *home, teffi_node_id origin_node);

/* teffi_calls_cancel_all - the node closes: end every pending call as TEFF_E_CANCELLED.
 * out:  relays, as teffi_call_end_if_matching's *relays. */
TEFF_MUST_USE teffi_call *teffi_calls_cancel_all(teffi_home *home);

/* teffi_cancel_reserve_room - reserve room in cancel for a call that is about to begin, so that it
 * cannot fail once it was sent. After TEFF_OK, teffi_cancel_add_call must follow.
 * errs: TEFF_E_CANCELLED: teff_cancel_fire was called; TEFF_E_NOMEM. */
TEFF_MUST_USE teff_err teffi_cancel_reserve_room(teff_cancel *cancel);

/* teffi_cancel_add_call - register a call that teff_cancel_fire will end, in the reserved room.
 * Calls that have ended are removed when the array is full.
 * in:   call, just begun; it ends as TEFF_E_CANCELLED if cancel has fired meanwhile. NULL if it
 *       could not begin; in that case only the reserved room is given back. */
void teffi_cancel_add_call(teff_cancel *cancel, teffi_call *call);
