/* link_greet.c - the handshake of one connection, on both sides, and what makes it UP.
 * Way:     link_dial, link_accept -> [greet] -> link_events (up)
 * Threads: the reader's; the node table under link->lock. */
#include "wire/link.h"

#include <stdio.h>
#include <string.h>

static teffi_greeting own_greeting(teffi_conn *conn)
{
    const teffi_platform *p = conn->owner->platform;
    teffi_greeting g = {0};
    uint64_t random[2] = {p->random(p->arg), p->random(p->arg)};
    memcpy(conn->nonce, random, sizeof conn->nonce);
    memcpy(g.nonce, random, sizeof g.nonce);
    pthread_mutex_lock(&conn->owner->lock);
    g.hello = conn->owner->self;
    pthread_mutex_unlock(&conn->owner->lock);
    g.sequence = conn->dialled ? conn->sequence : 0;
    return g;
}

static void send_greeting(teffi_conn *conn, const teffi_greeting *g)
{
    uint8_t payload[TEFFI_HELLO_MAX];
    teffi_link_send_control(conn, TEFFI_FRAME_HELLO, payload, teffi_hello_pack(g, payload));
}

void teffi_link_greet_first(teffi_conn *conn)
{
    teffi_greeting g = own_greeting(conn);
    send_greeting(conn, &g);
}

static bool garbage(teffi_conn *conn, const char *what)
{
    char remote[64];
    teffi_link_address_remote(conn->stream, remote, sizeof remote);
    teffi_link_note(conn->owner, LINK_GARBAGE, "%s: %s, closed", remote, what);
    teffi_link_conn_why(conn, TEFF_E_UNREACHABLE, what);
    return false;
}

/* Count, log, and tell a dialler why; it closes when it has read that, or we do. */
static bool refuse(teffi_conn *conn, link_fact fact, const char *text)
{
    char remote[64];
    teffi_link_address_remote(conn->stream, remote, sizeof remote);
    teffi_link_note(conn->owner, fact, "%s: refused: %s", remote, text);
    teffi_link_conn_why(conn, TEFF_E_REFUSED, text);
    if (conn->dialled)
        return false;
    uint8_t payload[TEFFI_HELLO_MAX];
    size_t len = teffi_refuse_pack(TEFF_E_REFUSED, text, payload);
    conn->refused = true;
    teffi_link_send_control(conn, TEFFI_FRAME_REFUSE, payload, len);
    teffi_link_send_linger(conn);
    return true;
}

static link_fact fact_of(teffi_misfit why)
{
    switch (why) {
    case TEFFI_MISFIT_CLUSTER:
        return LINK_REFUSED_CLUSTER;
    case TEFFI_MISFIT_VERSION:
        return LINK_REFUSED_VERSION;
    default:
        return LINK_REFUSED_IDENTITY;
    }
}

/* Does the peer fit, as far as one hello can tell? out: false: *result is the caller's. */
static bool fits(teffi_conn *conn, const teffi_greeting *peer, const teffi_hello *self,
                 bool *result)
{
    char text[TEFF_TEXT_MAX];
    teffi_misfit why = teffi_hello_check(self, &peer->hello, &conn->version, text);
    if (why == TEFFI_FITS)
        return true;
    *result = refuse(conn, fact_of(why), text);
    return false;
}

/* Lock held. Does the peer fit to what earlier connections said? out: NULL when it does. */
static const char *clash(teffi_link *link, const teffi_greeting *peer)
{
    teffi_node_id id = peer->hello.node;
    link_node *node = teffi_link_node_find(link, id);
    if (peer->hello.role == TEFFI_ROLE_SILO && !teffi_link_seen_newest(link, id, false))
        return "a newer start of this silo has been here";
    if (node && peer->sequence <= node->in_sequence)
        return "the same node is connected, by a newer connection";
    if (link->leaving && !(node && (node->in || node->out)))
        return "this node is leaving";
    return NULL;
}

static bool ask_owner(teffi_conn *conn, const teffi_hello *peer, char *text)
{
    teffi_link *link = conn->owner;
    text[0] = '\0';
    return link->events.hello(link->arg, peer, text) == TEFF_OK;
}

/* Acceptor: the dialler's hello. */
static bool take_hello(teffi_conn *conn, const teffi_greeting *peer)
{
    teffi_link *link = conn->owner;
    teffi_greeting own = own_greeting(conn);
    char text[TEFF_TEXT_MAX];
    bool result;
    if (!fits(conn, peer, &own.hello, &result))
        return result;
    pthread_mutex_lock(&link->lock);
    const char *what = clash(link, peer);
    pthread_mutex_unlock(&link->lock);
    if (what)
        return refuse(conn, LINK_REFUSED_IDENTITY, what);
    if (!ask_owner(conn, &peer->hello, text))
        return refuse(conn, LINK_REFUSED_PEER, text);
    conn->peer = peer->hello;
    conn->sequence = peer->sequence;
    memcpy(own.echo, peer->nonce, sizeof own.echo);
    pthread_mutex_lock(&link->lock);
    conn->state = CONN_ACKING;
    pthread_mutex_unlock(&link->lock);
    send_greeting(conn, &own);
    return true;
}

/* Lock held. out: the connection that the new one replaces, with a reference. */
static teffi_conn *replace_in(link_node *node, teffi_conn *conn)
{
    teffi_conn *old = node->in;
    node->in = conn;
    node->in_sequence = conn->sequence;
    node->bye_heard = false;
    if (old) {
        old->replaced = true;
        teffi_link_way_shut(old);
        teffi_link_conn_ref(old);
    }
    return old;
}

/* Lock held. It is UP from here on. */
static void come_up(teffi_conn *conn, link_node *node)
{
    if (conn->node != node) {
        teffi_link_node_ref(node);
        conn->node = node;
    }
    conn->state = CONN_UP;
    conn->wrote_ns = teffi_link_now(conn->owner);
    teffi_link_conn_ref(conn);
    teffi_link_event_post(node, &conn->up_event, EVENT_UP, conn);
}

/* Acceptor: the dialler is no recording. All that was checked at its hello is checked again: two
 * connections of one node may have been in their handshake at the same time. */
static bool admit(teffi_conn *conn)
{
    teffi_link *link = conn->owner;
    teffi_greeting peer = {.hello = conn->peer, .sequence = conn->sequence};
    teffi_conn *old = NULL;
    pthread_mutex_lock(&link->lock);
    const char *what = clash(link, &peer);
    link_node *node = what ? NULL : teffi_link_node_make(link, conn->peer.node);
    if (node) {
        if (conn->peer.role == TEFFI_ROLE_SILO)
            teffi_link_seen_newest(link, conn->peer.node, true);
        old = replace_in(node, conn);
        come_up(conn, node);
        link->pending--;
    }
    pthread_mutex_unlock(&link->lock);
    if (!node)
        return refuse(conn, LINK_REFUSED_IDENTITY, what ? what : "out of memory");
    if (old) {
        teffi_link_conn_kill(old);
        teffi_link_conn_unref(old);
    }
    teffi_link_send_open(conn);
    return true;
}

static bool take_ack(teffi_conn *conn, const uint8_t *payload, size_t len)
{
    uint8_t echo[TEFFI_NONCE_BYTES];
    if (teffi_ack_unpack(payload, len, echo))
        return garbage(conn, "bad ack");
    if (memcmp(echo, conn->nonce, sizeof echo) != 0)
        return refuse(conn, LINK_REFUSED_IDENTITY, "the ack is of another connection");
    return admit(conn);
}

static void post_done(teffi_conn *conn, link_node *node)
{
    if (!conn->done)
        return;
    conn->done_posted = true;
    conn->done_err = TEFF_OK;
    teffi_link_conn_ref(conn);
    teffi_link_event_post(node, &conn->done_event, EVENT_DONE, conn);
}

/* Lock held. Dialler: take the node's place for connections that we made.
 * out:  false: it has one that is up, this one is not needed; *old: it had one that is not. */
static bool take_place(teffi_conn *conn, link_node *node, teffi_conn **old)
{
    if (!conn->expects) /* a node that was removed meanwhile stays so */
        teffi_link_node_know(node, node->known ? node->address : conn->peer.address);
    node->dial_failed = false;
    node->backoff_ms = 0;
    if (node->out && node->out != conn) {
        if (node->out->state == CONN_UP)
            return false;
        *old = node->out;
        (*old)->replaced = true;
        teffi_link_conn_ref(*old);
    }
    node->out = conn;
    return true;
}

/* Dialler: the acceptor is who it should be. out: false: the connection ends. */
static bool establish(teffi_conn *conn, const uint8_t nonce[TEFFI_NONCE_BYTES])
{
    teffi_link *link = conn->owner;
    teffi_conn *old = NULL;
    uint8_t payload[64];
    bool up = false;
    pthread_mutex_lock(&link->lock);
    link_node *node = conn->node ? conn->node : teffi_link_node_make(link, conn->peer.node);
    if (node && !link->freeing) {
        up = take_place(conn, node, &old);
        if (up) {
            come_up(conn, node);
        } else {
            teffi_link_node_ref(node);
            conn->node = node;
        }
        post_done(conn, node);
    }
    if (old) /* before anybody finds the new one: what it is sent follows what it takes over */
        teffi_link_send_steal(old, conn);
    pthread_mutex_unlock(&link->lock);
    if (old) {
        teffi_link_conn_kill(old);
        teffi_link_conn_unref(old);
    }
    if (!up)
        return false;
    teffi_link_send_control(conn, TEFFI_FRAME_ACK, payload, teffi_ack_pack(nonce, payload));
    teffi_link_send_open(conn);
    return true;
}

/* Dialler: the acceptor's answer. */
static bool take_answer(teffi_conn *conn, const teffi_greeting *peer)
{
    teffi_hello self;
    bool result;
    pthread_mutex_lock(&conn->owner->lock);
    self = conn->owner->self;
    pthread_mutex_unlock(&conn->owner->lock);
    if (memcmp(peer->echo, conn->nonce, sizeof peer->echo) != 0)
        return garbage(conn, "the answer is of another connection");
    if (!fits(conn, peer, &self, &result))
        return result;
    if (peer->hello.role != TEFFI_ROLE_SILO)
        return refuse(conn, LINK_REFUSED_IDENTITY, "only silos are dialled");
    if (conn->expects && !teffi_node_is(conn->peer.node, peer->hello.node))
        return refuse(conn, LINK_REFUSED_IDENTITY, "another node answers at this address");
    conn->peer = peer->hello;
    return establish(conn, peer->nonce);
}

static bool take_refusal(teffi_conn *conn, const uint8_t *payload, size_t len)
{
    teff_err code;
    char text[TEFF_TEXT_MAX], line[TEFF_TEXT_MAX];
    if (teffi_refuse_unpack(payload, len, &code, text))
        return garbage(conn, "bad refusal");
    snprintf(line, sizeof line, "%.128s: %.300s", conn->target, text);
    teffi_link_conn_why(conn, TEFF_E_REFUSED, line);
    teffi_link_note(conn->owner, LINK_DIAL_FAILURES, "dial %s", line);
    return false;
}

bool teffi_link_greet_frame(teffi_conn *conn, const teffi_frame *frame)
{
    const uint8_t *payload;
    size_t len;
    teffi_greeting peer;
    if (!teffi_frame_payload(frame, &payload, &len))
        return garbage(conn, "bad handshake");
    if (conn->state == CONN_GREETING && frame->kind == TEFFI_FRAME_HELLO) {
        if (teffi_hello_unpack(payload, len, &peer))
            return garbage(conn, "bad hello");
        return conn->dialled ? take_answer(conn, &peer) : take_hello(conn, &peer);
    }
    if (conn->state == CONN_ACKING && frame->kind == TEFFI_FRAME_ACK)
        return take_ack(conn, payload, len);
    if (conn->dialled && frame->kind == TEFFI_FRAME_REFUSE)
        return take_refusal(conn, payload, len);
    return garbage(conn, "no handshake");
}
