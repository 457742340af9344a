/* deliver.c - gives each message to its target, and sends responses to the requests' senders. */
#include "node/deliver.h"

#include <string.h>
#include "message/codec.h"
#include "node/pid.h"

/* relaxed: a statistics counter */
static void count_dropped_message(teffi_node *node)
{
    atomic_fetch_add_explicit(&node->dropped, 1, memory_order_relaxed);
}

void teffi_node_drop_message(teffi_node *node, teffi_msg *msg)
{
    count_dropped_message(node);
    teffi_msg_free(msg);
}

/* ---- cancels ---- */

/* Applies the cancel in msg, a one-way to TEFFI_SLOT_CANCEL; ignores a cancel of a wrong length.
 * Frees msg. */
static void deliver_cancel(teffi_node *node, teffi_msg *msg)
{
    teffi_origin origin;
    if (msg->raw_len == sizeof origin) {
        memcpy(&origin, msg->raw, sizeof origin);
        teffi_cancel_apply(&node->home, msg->src, origin,
                           msg->deadline_ns ? msg->deadline_ns : UINT64_MAX);
    }
    teffi_msg_free(msg);
}

/* Calls look_up, which is teffi_cancel_is_kept or teffi_remove_kept_cancel, for the cancel of a
 * request. Cancels of this node's own requests are kept with node 0 and cookie 0. out: true if a
 * kept cancel was found. */
static bool find_or_remove_cancel(teffi_node *node, const teffi_msg *request,
                                  bool (*look_up)(teffi_home *home, teffi_node_id from,
                                                  teffi_origin origin))
{
    if (!teffi_cancel_is_any_kept(&node->home))
        return false;
    bool own = teffi_node_equals(request->src, node->id);
    teffi_origin origin = request->call;
    origin.cookie = own ? 0 : origin.cookie;
    return look_up(&node->home, own ? (teffi_node_id){0} : request->src, origin);
}

bool teffi_node_has_cancel(teffi_node *node, const teffi_msg *request)
{
    return find_or_remove_cancel(node, request, teffi_cancel_is_kept);
}

bool teffi_node_remove_cancel(teffi_node *node, const teffi_msg *request)
{
    return find_or_remove_cancel(node, request, teffi_remove_kept_cancel);
}

/* ---- deliver ---- */

static void deliver_to_target(teffi_node *node, teffi_msg *msg)
{
    teffi_target *target = &node->targets[msg->to.slot];
    /* for TEFFI_SLOT_STORE, the target's handler sets msg->system, depending on the row */
    msg->system = msg->to.slot != TEFFI_SLOT_STORE;
    if (target->handle) /* the push cannot fail: a target's group never ends */
        (void)teffi_group_push(&target->group, &msg->item);
    else
        teffi_node_respond_with_err(node, msg, TEFF_E_NOT_FOUND, "no such system target");
}

static const char *get_process_error_text(teff_err err)
{
    return err == TEFF_E_NOT_FOUND     ? "there never was such a process"
           : err == TEFF_E_CLOSED      ? "it has ended"
           : err == TEFF_E_OVERLOADED  ? "its mailbox is full"
           : err == TEFF_E_UNAVAILABLE ? "its silo has no processes"
           : err == TEFF_E_REFUSED     ? "only silos may send to it"
                                       : "it could not be delivered";
}

/* Gives msg to its process; refuses a client's message and a message to another node's process. */
static void deliver_to_process(teffi_node *node, teffi_msg *msg)
{
    bool is_here = teffi_node_equals(msg->to.node, node->id);
    teff_err err = TEFF_E_REFUSED;
    if (!(msg->src.silo & TEFFI_CLIENT_BIT) && is_here)
        err = teffi_pid_deliver_event(node, msg);
    if (err)
        teffi_node_respond_with_err(
            node, msg, err, is_here ? get_process_error_text(err) : "it is in another node");
    else
        teffi_msg_free(msg); /* if msg is a request, the process responds */
}

void teffi_node_end_call(teffi_node *node, teffi_msg *response)
{
    teffi_node_send_outcomes_and_free_relays(node,
                                             teffi_call_end_by_response(&node->home, response));
}

void teffi_node_deliver(teffi_node *node, teffi_msg *msg)
{
    if (msg->item.kind == TEFFI_MSG_RESPONSE) {
        teffi_node_end_call(node, msg);
        return;
    }
    if (msg->to.slot == TEFFI_SLOT_CANCEL && msg->item.kind == TEFFI_MSG_ONEWAY)
        deliver_cancel(node, msg);
    else if (msg->to.slot == TEFFI_SLOT_OBSERVER && node->upcalls.notice)
        node->upcalls.notice(node, msg, false);
    else if (msg->to.slot > TEFFI_SLOT_GRAIN && msg->to.slot < TEFFI_SLOT_SYSTEM_END)
        deliver_to_target(node, msg);
    else if (msg->to.slot & TEFFI_PROCESS_BIT)
        deliver_to_process(node, msg);
    else if (node->upcalls.request)
        node->upcalls.request(node, msg);
    else
        teffi_node_respond_with_err(node, msg, TEFF_E_UNAVAILABLE, "this node hosts no grains");
}

teff_err teffi_node_send(teffi_node *node, teffi_node_id to, teffi_msg *msg)
{
    if (!teffi_node_equals(to, node->id))
        return node->home.net->ops->send(node->home.net, to, msg);
    teffi_node_deliver(node, msg);
    return TEFF_OK;
}

teff_err teffi_node_send_to_gateway(teffi_node *node, teffi_msg *msg)
{
    teffi_node_id gateway = teffi_gateways_choose(&node->gateways, msg->hash);
    if (teffi_node_is_none(gateway))
        return TEFF_E_UNREACHABLE;
    if (msg->item.kind == TEFFI_MSG_REQUEST &&
        !teffi_call_sign_and_check_cancel(&node->home, msg, gateway))
        return TEFF_E_CANCELLED;
    return node->home.net->ops->send(node->home.net, gateway, msg);
}

/* ---- respond ---- */

bool teffi_node_pack_body(teffi_msg *msg, const ProtobufCMessage *body)
{
    size_t n = teffi_packed_size(body);
    uint8_t *raw = teff_arena_alloc(&msg->arena, n);
    if (!raw)
        return false;
    teffi_pack(body, n, raw);
    msg->raw = raw;
    msg->raw_len = n;
    return true;
}

teffi_msg *teffi_node_make_response(const teffi_node *node, const teffi_msg *request)
{
    bool awaits = request->item.kind == TEFFI_MSG_REQUEST;
    teffi_msg *response = awaits ? teffi_msg_new(TEFFI_MSG_RESPONSE) : NULL;
    if (!response)
        return NULL;
    response->src = node->id;
    response->to.node = request->src;
    response->flags = request->flags & TEFFI_MSG_ROW;
    response->system = request->system;
    response->call = request->call;
    return response;
}

teffi_node_id teffi_node_convert_request_to_response(const teffi_node *node, teffi_msg *request)
{
    teffi_node_id to = request->src;
    request->item.kind = TEFFI_MSG_RESPONSE;
    request->flags = 0;
    request->hops = 0;
    request->to = (teffi_pid){.node = to};
    request->src = node->id;
    request->type_id = 0;
    request->method_id = 0;
    request->deadline_ns = 0;
    request->key = NULL;
    request->key_len = 0;
    request->raw = NULL;
    request->raw_len = 0;
    request->body = NULL;
    request->packed_len = 0;
    request->text = NULL; /* a union with `once`, a request's idempotency key */
    request->transaction = NULL;
    request->transaction_len = 0;
    return to;
}

/* Removes the body and the transaction data from a response that is too large, and makes the
 * response an error. If it is an error already, its err and text stay. */
static void shrink_to_error(teffi_msg *response)
{
    if (!response->err) {
        response->err = TEFF_E_TOO_LARGE;
        response->text = "the response is larger than a frame may be; the call ran";
        response->flags |= TEFFI_MSG_UNNAMED;
    }
    response->body = NULL;
    response->raw = NULL;
    response->raw_len = 0;
    response->transaction = NULL;
    response->transaction_len = 0;
}

void teffi_node_send_response(teffi_node *node, teffi_node_id to, teffi_msg *response)
{
    teff_err err = teffi_node_send(node, to, response);
    if (!err)
        return;
    count_dropped_message(node);
    if (err == TEFF_E_TOO_LARGE) {
        shrink_to_error(response);
        err = teffi_node_send(node, to, response);
    }
    if (err)
        teffi_msg_free(response);
}

/* Sends the response, if there is one, and frees `request`, which is a request or a one-way. Counts
 * one dropped message if a request gets no response (memory is out), or if `request` is a one-way
 * and `lost` is true. */
static void send_response_and_free_request(teffi_node *node, teffi_msg *request,
                                           teffi_msg *response, bool lost)
{
    if (response)
        teffi_node_send_response(node, request->src, response);
    else if (lost || request->item.kind == TEFFI_MSG_REQUEST)
        count_dropped_message(node);
    teffi_msg_free(request);
}

static void respond_with_err_and_text(teffi_node *node, teffi_msg *request, teff_err err,
                                      const char *text, uint16_t flags)
{
    teffi_msg *response = teffi_node_make_response(node, request);
    if (response) {
        response->err = (uint16_t)err;
        response->flags |= flags;
        response->text = text ? teff_arena_copy(&response->arena, text, strlen(text)) : NULL;
    }
    send_response_and_free_request(node, request, response, err != TEFF_OK);
}

/* Sends a response without a body. TEFFI_MSG_UNNAMED: text does not name the method and the key, so
 * the caller's node puts them before it. */
void teffi_node_respond_with_err(teffi_node *node, teffi_msg *request, teff_err err,
                                 const char *text)
{
    respond_with_err_and_text(node, request, err, text, TEFFI_MSG_UNNAMED);
}

/* As teffi_node_respond_with_err, but text already names the method and key. */
void teffi_node_respond_with_named_err(teffi_node *node, teffi_msg *request, teff_err err,
                                       const char *text)
{
    respond_with_err_and_text(node, request, err, text, 0);
}

void teffi_node_respond_with_body(teffi_node *node, teffi_msg *request,
                                  const ProtobufCMessage *body)
{
    teffi_msg *response = teffi_node_make_response(node, request);
    if (response && !teffi_node_pack_body(response, body))
        response->err = TEFF_E_NOMEM;
    send_response_and_free_request(node, request, response, false);
}

/* ---- relays ---- */

/* Makes this node the sender of a message that it forwards. A request also gets a relay, since this
 * node must forward the response to the node that sent the request. */
teff_err teffi_node_become_sender(teffi_node *node, teffi_msg *msg)
{
    if (teffi_node_equals(msg->src, node->id))
        return TEFF_OK;
    if (msg->item.kind == TEFFI_MSG_REQUEST) {
        uint64_t deadline_ns = msg->deadline_ns ? msg->deadline_ns : UINT64_MAX;
        teffi_slab_use relay;
        teff_err err = teffi_relay_new(&node->home, msg->src, msg->call, deadline_ns, &relay);
        if (err)
            return err;
        msg->call.slot = relay.slot; /* teffi_call_sign_and_check_cancel replaces the cookie */
        msg->call.generation = relay.generation;
    }
    msg->src = node->id;
    return TEFF_OK;
}

/* Sends the relay's outcome to its origin node: the response or, if there is none, a new response
 * with the relay's err and text. */
static void send_relay_outcome(teffi_node *node, teffi_call *relay)
{
    teffi_node_id to =
        teffi_node_from_word(atomic_load_explicit(&relay->out, memory_order_relaxed));
    teffi_msg *response = relay->response;
    if (!response) {
        response = teffi_msg_new(TEFFI_MSG_RESPONSE);
        if (!response)
            return; /* the origin's call will end at its deadline */
        response->err = (uint16_t)relay->err;
        response->text = relay->text;
        response->flags = TEFFI_MSG_UNNAMED;
    }
    relay->response = NULL;
    response->src = node->id;
    response->to = (teffi_pid){.node = to};
    response->call = relay->origin;
    teffi_node_send_response(node, to, response);
}

void teffi_node_send_outcomes_and_free_relays(teffi_node *node, teffi_call *relays)
{
    while (relays) {
        teffi_call *relay = relays;
        teffi_item *next = relay->wait.item.next;
        relays = next ? teffi_container(next, teffi_call, wait.item) : NULL;
        send_relay_outcome(node, relay);
        teffi_call_remove_and_free_relay(relay);
    }
}
