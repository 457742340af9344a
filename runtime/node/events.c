/* events.c - handles the transport's events: messages, and peers that connect or disconnect.
 * Way:     link/net -> [events] -> deliver, calls; net_up, net_down, check_silo
 * Threads: those of the net's events (link/net.h). */
#include "node/node.h"

#include "base/error.h"
#include "call/calls.h"
#include "node/deliver.h"

static const char still_starting[] = "this silo is starting";

static bool node_is_open(const teffi_node *node)
{
    /* acquire: pairs with the release store of open, which follows the node's initialization */
    return atomic_load_explicit(&node->open, memory_order_acquire);
}

/* Lets membership hold a message of a silo that the view does not know (membership.h); system
 * messages are never held, but those of observers are. out: true: membership owns msg now. */
static bool hold_stranger_message(teffi_node *node, const teffi_hello *from, teffi_msg *msg)
{
    bool any = atomic_load_explicit(&node->strangers, memory_order_relaxed) != 0;
    bool system = msg->to.slot > TEFFI_SLOT_GRAIN && msg->to.slot < TEFFI_SLOT_SYSTEM_END &&
                  msg->to.slot != TEFFI_SLOT_OBSERVER;
    return any && !system && from->role == TEFFI_ROLE_SILO && node->hold(node, msg);
}

/* Refuses a client's call that the silo's program does not allow. Other messages of a client pass:
 * they are cancels of its own calls, or about its own observers, since the link refuses all else.
 * in: node->authorize is set. out: true: the call was refused, and msg is freed. */
static bool refuse_unauthorized_call(teffi_node *node, const teffi_hello *from, teffi_msg *msg)
{
    if (from->role != TEFFI_ROLE_CLIENT || !teffi_msg_is_for_grain(msg) ||
        node->authorize(node, from, msg))
        return false;
    teffi_node_respond_with_err(node, msg, TEFF_E_REFUSED,
                                "the silo does not allow this call to this client");
    return true;
}

/* Delivers a message of a peer. Sets msg->src to that peer, also if the peer only forwards a
 * request of another node: the response must go back to the peer's relay (call/relay.h). */
static void on_message(void *arg, const teffi_hello *from, teffi_msg *msg)
{
    teffi_node *node = arg;
    msg->src = from->node;
    if (msg->item.kind == TEFFI_MSG_RESPONSE) {
        if (teffi_call_is_valid_response(&node->home, msg, from->node))
            teffi_node_end_call(node, msg);
        else
            teffi_node_drop_message(node, msg);
    } else if (!node_is_open(node)) {
        teffi_node_respond_with_err(node, msg, TEFF_E_UNAVAILABLE, still_starting);
    } else if (!(node->authorize && refuse_unauthorized_call(node, from, msg)) &&
               !hold_stranger_message(node, from, msg)) {
        teffi_node_deliver(node, msg);
    }
}

/* Called when a peer's handshake has ended, in whatever way: if the peer is a client, it is no
 * longer counted in node->greeting. */
static void decrement_greeting_if_client(teffi_node *node, const teffi_hello *peer)
{
    if (peer->role == TEFFI_ROLE_CLIENT)
        atomic_fetch_sub(&node->greeting, 1);
}

/* While this node is starting, refuses all peers except its seed; while it is leaving, refuses
 * clients. A silo that is not refused must also pass check_silo(). The transport has checked
 * cluster, version, role and identity before. A client is counted in node->greeting before
 * node->leaving is read; when this node leaves, it sets node->leaving before it reads
 * node->greeting. So either the client is refused, or this node waits for it. */
static teff_err on_hello(void *arg, const teffi_hello *peer, char *text)
{
    teffi_node *node = arg;
    if (peer->role == TEFFI_ROLE_CLIENT)
        atomic_fetch_add(&node->greeting, 1);
    bool seed = teffi_node_to_word(peer->node) == node->seed; /* this node uses the seed's store */
    bool early = !node_is_open(node) && !seed;
    bool late = peer->role == TEFFI_ROLE_CLIENT && node->leaving;
    if (!early && !late)
        return node->check_silo && peer->role == TEFFI_ROLE_SILO
                   ? node->check_silo(node, peer, text)
                   : TEFF_OK;
    decrement_greeting_if_client(node, peer);
    return teffi_fail(text, TEFF_E_REFUSED, "%s",
                      early ? still_starting : "this silo is leaving the cluster");
}

static teff_err on_silo_dialled(void *arg, const teffi_hello *peer, char *text)
{
    teffi_node *node = arg;
    return node->check_key ? node->check_key(node, peer, text) : TEFF_OK;
}

/* Before the node is open, it has no view: it reads the table later, and finds this one or a newer
 * one. */
static void on_view(void *arg, const teffi_hello *peer, uint64_t version)
{
    teffi_node *node = arg;
    (void)peer;
    if (node_is_open(node) && node->hear_view)
        node->hear_view(node, version);
}

/* The net's event `gone`: this node accepted a connection's hello, but the connection ended before
 * it came up. */
static void on_gone(void *arg, const teffi_hello *peer)
{
    decrement_greeting_if_client(arg, peer);
}

static void on_up(void *arg, const teffi_hello *peer)
{
    teffi_node *node = arg;
    if (node->net_up)
        node->net_up(node, peer);
    /* node->greeting counts the client until net_up has added it to the silo's list. So
     * silo_is_quiet() always finds the client in one of the two. */
    decrement_greeting_if_client(node, peer);
}

/* Ends the peer's relays and, if the peer is a silo, the calls sent to it. No calls are sent to a
 * client. A call holds only a hash of the node that it was sent to, and a client chooses its own
 * id. If calls were also ended for clients, a client could choose an id with the same hash as a
 * silo's, disconnect, and so end the calls sent to that silo. */
static void on_peer_down(void *arg, const teffi_hello *peer, bool clean)
{
    teffi_node *node = arg;
    if (peer->role != TEFFI_ROLE_CLIENT)
        teffi_node_send_outcomes_and_free_relays(node,
                                                 teffi_calls_end_sent_to(&node->home, peer->node));
    teffi_calls_end_relays_of_node(&node->home, peer->node);
    if (node->net_down)
        node->net_down(node, peer, clean);
}

/* Records in a request's call to which node the request was sent. To record it before the send
 * would be wrong: if the link broke in between, the down event would end the call, although the
 * request was not sent and could still be sent to another node. */
static void on_request_sent(void *arg, teffi_node_id to, const teffi_msg *request)
{
    teffi_node *node = arg;
    teffi_call_set_sent_to(&node->home, request->call.slot, request->call.generation, to);
}

/* Handles a message that was not sent to the peer. Only a message to a grain is routed again. A
 * request to a process or a store ends with TEFF_E_UNAVAILABLE, which says that it has not run. A
 * response is dropped: its call ends when the caller's node notices that the link broke. */
static void on_msg_unsent(void *arg, const teffi_hello *peer, teffi_msg *msg)
{
    teffi_node *node = arg;
    if (msg->item.kind == TEFFI_MSG_RESPONSE) {
        teffi_node_drop_message(node, msg);
    } else if (msg->to.slot == TEFFI_SLOT_GRAIN && node->upcalls.unsent) {
        node->upcalls.unsent(node, peer->node, msg);
    } else if (msg->to.slot == TEFFI_SLOT_OBSERVER && msg->item.kind == TEFFI_MSG_ONEWAY &&
               node->upcalls.notice) {
        node->upcalls.notice(node, msg, true);
    } else {
        bool says_unsent = msg->to.slot & TEFFI_PROCESS_BIT || msg->to.slot == TEFFI_SLOT_STORE;
        teffi_node_respond_with_err(node, msg,
                                    says_unsent ? TEFF_E_UNAVAILABLE : TEFF_E_UNREACHABLE,
                                    "the silo cannot be reached");
    }
}

const teffi_net_events teffi_node_net_events = {.message = on_message,
                                                .hello = on_hello,
                                                .dialled = on_silo_dialled,
                                                .view = on_view,
                                                .gone = on_gone,
                                                .up = on_up,
                                                .down = on_peer_down,
                                                .sent = on_request_sent,
                                                .unsent = on_msg_unsent};
