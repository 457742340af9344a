/* ending.c - the end of a connection: redial, goodbyes, and the events to the owner. */
#include "link/steps.h"

enum { BACKOFF_MIN_MS = 20, BACKOFF_MAX_MS = 5000 };

/* conns.lock held. Sets the time at which the ticker dials the peer again. The back-off doubles
 * after each failure; the jitter keeps peers from redialling at the same time. */
static void plan_redial(link_peer *peer, bool failed)
{
    teffi_conns *conns = &peer->owner->conns;
    const teffi_platform *p = conns->platform;
    uint32_t base = failed ? peer->backoff_ms * 2 : 0;
    if (base < BACKOFF_MIN_MS)
        base = BACKOFF_MIN_MS;
    if (base > BACKOFF_MAX_MS)
        base = BACKOFF_MAX_MS;
    peer->backoff_ms = base;
    uint64_t half_ns = base * 500000ull;
    peer->redial_ns = teffi_conns_now(conns) + half_ns + p->random(p->arg) % half_ns;
    teffi_conns_ask_ticker_to_scan(conns);
}

/* conns.lock held. Removes conn from its peer. If conn was the peer's outgoing connection:
 * - Plans a redial, if the peer is known, neither side has said BYE, and the link is not leaving.
 * - If the peer has said BYE and there is an incoming connection, appends our BYE_ACK to that one,
 *   unless it was appended before.
 * out:  true: conn was the outgoing connection, and our BYE_ACK is appended to the incoming one. */
static bool detach_conn(teffi_conn *conn, link_peer *peer)
{
    bool was_up = conn->ending.was_up;
    teffi_conn_set_routed_node(conn, 0);
    if (peer->in == conn)
        peer->in = NULL;
    if (peer->out != conn)
        return false;
    peer->out = NULL;
    peer->dial_failed = !was_up;
    if (peer->known && peer->goodbye == GOODBYE_NOT_SAID && !peer->bye_heard &&
        !peer->owner->leaving)
        plan_redial(peer, !was_up);
    if (!peer->bye_heard || !peer->in)
        return false;
    /* our BYE_ACK may be lost with this connection: append it to the other one, too */
    teffi_goodbye_acknowledge(peer->in);
    return true;
}

/* Does conn have unsent frames or messages? Messages to a silo use the connection that we dialled.
 * On the one that the silo dialled, only control frames can be unsent, and they do not count. */
static bool has_unsent(teffi_conn *conn)
{
    bool carries = conn->dialled || conn->handshake.remote.role == TEFFI_ROLE_CLIENT;
    return teffi_sender_has_unsent(conn) && carries;
}

/* Kills conn because its pair is broken: the other connection of the pair has ended, or a response
 * to a request that came on conn could not be sent. A pair is the two connections between two
 * silos: if a request comes on one of them, its response goes on the other. If conn stayed UP, the
 * callers would not learn that their responses are lost. */
void teffi_ending_kill_for_broken_pair(teffi_conn *conn)
{
    if (!conn || conn->state != CONN_UP)
        return;
    if (conn->ending.cause == CONN_OWN_CAUSE)
        conn->ending.cause = CONN_WITH_OTHER;
    teffi_conn_kill(conn);
}

/* conns.lock held. Posts the down event, at most once per connection. Posts none if conn was never
 * UP and has neither unopened messages nor a done function. */
static void post_down(teffi_conn *conn, link_peer *peer)
{
    conn_ending *ending = &conn->ending;
    bool reports = ending->was_up || conn->sender.unopened.count || conn->handshake.done;
    if (ending->down_posted || !reports)
        return;
    ending->down_posted = true;
    teffi_conn_ref(conn);
    teffi_peer_post_event(peer, &conn->down_event, EVENT_DOWN, conn);
}

void teffi_ending_clear_bye_and_kill_outgoing(link_peer *peer)
{
    teffi_conn *conn = peer->out;
    peer->bye_heard = false;
    if (!conn)
        return;
    conn->ending.cause = CONN_REPLACED;
    conn->ending.was_up = conn->state == CONN_UP;
    conn->ending.clean = conn->ending.was_up && !has_unsent(conn);
    teffi_conn_set_routed_node(conn, 0);
    peer->out = NULL;
    if (peer->known)
        plan_redial(peer, false);
    teffi_conn_kill(conn);
}

void teffi_ending_kill_replaced(teffi_conn *conn)
{
    conn->ending.cause = CONN_REPLACED;
    conn->ending.was_up = conn->state == CONN_UP;
    post_down(conn, conn->peer);
    teffi_conn_kill(conn);
}

void teffi_ending_kill_incoming_conn(teffi_link *link, teffi_node_id id)
{
    pthread_mutex_lock(&link->conns.lock);
    link_peer *peer = teffi_peer_find(link, id);
    if (peer && peer->goodbye == GOODBYE_NOT_SAID && !peer->bye_heard)
        teffi_ending_kill_for_broken_pair(peer->in);
    pthread_mutex_unlock(&link->conns.lock);
}

/* conns.lock held. Decides whether the end is clean, detaches conn from its peer, and posts the
 * down event. If conn was UP and broke by itself, the other connection of its pair ends, too. If
 * the peer has not acknowledged our BYE yet, appends BYE to the remaining connection, unless our
 * BYE_ACK was appended to that one: the peer closes a connection when it gets BYE_ACK. */
static void detach_and_post_down(teffi_conn *conn, link_peer *peer)
{
    conn_ending *ending = &conn->ending;
    bool unsent = has_unsent(conn);
    if (ending->cause != CONN_REPLACED)
        ending->clean = ending->was_up &&
                        (peer->goodbye == GOODBYE_ACKNOWLEDGED || (peer->bye_heard && !unsent));
    bool bye_ack_appended = detach_conn(conn, peer);
    if (ending->was_up && !ending->clean && ending->cause == CONN_OWN_CAUSE)
        teffi_ending_kill_for_broken_pair(peer->in ? peer->in : peer->out);
    if (!bye_ack_appended && peer->goodbye == GOODBYE_SAID)
        teffi_goodbye_say(peer);
    post_down(conn, peer);
}

/* conns.lock held. Removes conn from the list of all connections, and sets its state to CONN_ENDED.
 * If conn was accepted, decrements the counter that counts it: pending, silos_up or clients_up. If
 * conn has a peer, detaches it from the peer and posts its down event.
 * out:  true: the peer was removed from the table; the caller drops the table's reference. */
static bool end_conn_locked(teffi_conn *conn)
{
    if (conn->ending.cause != CONN_REPLACED) /* a replaced conn keeps its was_up */
        conn->ending.was_up = conn->state == CONN_UP;
    if (!conn->dialled)
        (*teffi_conn_state_counter(conn))--;
    teffi_conn_leave_host(conn);
    conn->state = CONN_ENDED;
    LIST_REMOVE(conn, link);
    pthread_cond_broadcast(&conn->conns->changed);
    if (!conn->peer)
        return false;
    conn->peer->n_conns--;
    detach_and_post_down(conn, conn->peer);
    return teffi_peer_remove_if_unused(conn->peer);
}

void teffi_ending_report_dial_result(const teffi_conn *conn)
{
    const conn_handshake *h = &conn->handshake;
    const conn_ending *ending = &conn->ending;
    teff_err err = ending->why ? ending->why : TEFF_E_UNREACHABLE;
    if (h->done) /* not_needed: another connection to the peer is UP, so the dial has succeeded */
        h->done(h->done_arg, h->not_needed ? TEFF_OK : err, &h->remote, ending->why_text);
}

bool teffi_ending_try_end(teffi_conn *conn)
{
    teffi_link *link = teffi_link_of(conn);
    if (teffi_sender_close(conn)) {
        teffi_conn_kill(conn); /* ends the write soon; its callback calls this function again */
        return false;
    }
    pthread_mutex_lock(&link->conns.lock);
    bool hello_taken = conn->state == CONN_ACKING; /* the owner got a hello event, no up event */
    bool peer_gone = end_conn_locked(conn);
    pthread_mutex_unlock(&link->conns.lock);
    teffi_conn_kill(conn);
    teffi_identity_free_key(conn->handshake.dialler_key);
    conn->handshake.dialler_key = NULL;
    if (peer_gone)
        teffi_peer_unref(conn->peer);
    if (!conn->peer)
        teffi_ending_report_dial_result(conn);
    if (hello_taken)
        link->events.gone(link->arg, &conn->handshake.remote);
    return true;
}
