/* deliver.h - gives each message to its target, and sends responses to the requests' senders.
 * Way:     link/net, route -> [deliver] -> pending call | system target | process | grains
 * Threads: any; no function here blocks. */
#pragma once

#include "call/relay.h"
#include "node/node.h"

/* teffi_node_pack_body - pack body into a message. out: false: no memory. */
bool teffi_node_pack_body(teffi_msg *msg, const ProtobufCMessage *body);

/* teffi_node_drop_message - free an undeliverable message and count it in node->dropped. Owns
 * msg. */
void teffi_node_drop_message(teffi_node *node, teffi_msg *msg);

/* teffi_node_deliver - give a message for this node to its pending call, system target, process or
 * grain. Owns msg. */
void teffi_node_deliver(teffi_node *node, teffi_msg *msg);

/* teffi_node_end_call - end the call of a response, which comes from this node or has passed
 * teffi_call_is_valid_response. Owns response. */
void teffi_node_end_call(teffi_node *node, teffi_msg *response);

/* teffi_node_send_outcomes_and_free_relays - send the outcome of ended relays to their origin
 *       nodes, and free the relays.
 * in:   relays, a list as of teffi_call_end_if_matching, owned; NULL: none. */
void teffi_node_send_outcomes_and_free_relays(teffi_node *node, teffi_call *relays);

/* teffi_node_send - send a message to a node; if it is this node: teffi_node_deliver.
 * in:   msg, owned by the callee on TEFF_OK only. errs: as net.h's send; msg was not sent. */
TEFF_MUST_USE teff_err teffi_node_send(teffi_node *node, teffi_node_id to, teffi_msg *msg);

/* teffi_node_send_to_gateway - send a client's message to the gateway for its grain.
 * in:   as teffi_node_send; msg->hash is set.
 * errs: as teffi_node_send; TEFF_E_UNREACHABLE: no gateway is connected; TEFF_E_CANCELLED: the
 *       call of the request was cancelled. */
TEFF_MUST_USE teff_err teffi_node_send_to_gateway(teffi_node *node, teffi_msg *msg);

/* teffi_node_respond_with_err - respond to a request with an error, or with TEFF_OK and no body.
 * The caller's node puts the call's name before text.
 * in:   request, owned; a one-way is only freed, and with an error counted as dropped. text,
 *       copied, may be NULL. */
void teffi_node_respond_with_err(teffi_node *node, teffi_msg *request, teff_err err,
                                 const char *text);

/* teffi_node_respond_with_named_err - as teffi_node_respond_with_err with an error, but text
 * already names type, method and key: the caller does not put them before it. */
void teffi_node_respond_with_named_err(teffi_node *node, teffi_msg *request, teff_err err,
                                       const char *text);

/* teffi_node_respond_with_body - respond to a request with a body, borrowed, packed. Owns
 * request. */
void teffi_node_respond_with_body(teffi_node *node, teffi_msg *request,
                                  const ProtobufCMessage *body);

/* teffi_node_make_response - make an empty response to request. out: NULL: out of memory, or
 *       request is a one-way.
 * teffi_node_convert_request_to_response - change request into its own, empty response, with its
 * arena.
 *       out: the node to send it to.
 * teffi_node_send_response - send a response to a node; if it is too large, an error in its place.
 *       One that cannot be sent is freed. In both cases, counts one dropped message. Owns
 *       response. */
teffi_msg *teffi_node_make_response(const teffi_node *node, const teffi_msg *request);
teffi_node_id teffi_node_convert_request_to_response(const teffi_node *node, teffi_msg *request);
void teffi_node_send_response(teffi_node *node, teffi_node_id to, teffi_msg *response);

/* teffi_node_become_sender - make this node the sender of a message that it forwards. A request
 * gets a relay, too (call/relay.h); the relay's slot and generation replace those of the origin.
 * in:   msg, a request or one-way, borrowed; one that begins at this node is left unchanged.
 * errs: as teffi_relay_new. */
TEFF_MUST_USE teff_err teffi_node_become_sender(teffi_node *node, teffi_msg *msg);

/* teffi_node_has_cancel - is a cancel of this request, which is on this node, kept here?
 * teffi_node_remove_cancel - remove the cancel that is kept for this request; called when the
 *       request has ended or will not start. out: true: there was one. */
bool teffi_node_has_cancel(teffi_node *node, const teffi_msg *request);
bool teffi_node_remove_cancel(teffi_node *node, const teffi_msg *request);
