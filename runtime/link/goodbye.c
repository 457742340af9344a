/* goodbye.c - BYE and BYE_ACK: a peer leaves or is removed, or this link shuts down.
 * The leaving node sends BYE after all messages that it accepted. Its peer accepts no more, sends
 * what is pending, and then BYE_ACK. Then the leaving node closes. So no accepted message is lost
 * on either side. */
#include "link/steps.h"

void teffi_goodbye_say(link_peer *peer)
{
    teffi_conn *conn = peer->out ? peer->out : peer->in;
    if (!conn || conn->ending.bye_sent)
        return;
    conn->ending.bye_sent = true;
    teffi_sender_finish_with_goodbye(conn, TEFFI_FRAME_BYE);
}

void teffi_goodbye_acknowledge(teffi_conn *conn)
{
    if (conn->ending.bye_acked)
        return;
    conn->ending.bye_acked = true;
    teffi_sender_finish_with_goodbye(conn, TEFFI_FRAME_BYE_ACK);
}

/* conns.lock held. Makes the cached routes to the peer stale, so that later sends reach
 * find_or_create_conn() in next_hop.c, which refuses them. */
static void clear_routes_to(link_peer *peer)
{
    teffi_conn_set_routed_node(peer->in, 0);
    teffi_conn_set_routed_node(peer->out, 0);
}

void teffi_goodbye_handle_bye(teffi_conn *conn)
{
    teffi_link *link = teffi_link_of(conn);
    link_peer *peer = conn->peer;
    pthread_mutex_lock(&link->conns.lock);
    peer->bye_heard = true;
    clear_routes_to(peer);
    peer->redial_ns = 0;
    teffi_goodbye_acknowledge(peer->out ? peer->out : conn);
    pthread_mutex_unlock(&link->conns.lock);
}

/* conns.lock held. Kills the peer's incoming and outgoing connection. */
static void kill_connection_pair(const link_peer *peer)
{
    if (peer->in)
        teffi_conn_kill(peer->in);
    if (peer->out)
        teffi_conn_kill(peer->out);
}

void teffi_goodbye_handle_bye_ack(teffi_conn *conn)
{
    teffi_conns *conns = conn->conns;
    pthread_mutex_lock(&conns->lock);
    if (conn->peer->goodbye != GOODBYE_NOT_SAID) {
        conn->peer->goodbye = GOODBYE_ACKNOWLEDGED;
        kill_connection_pair(conn->peer);
    }
    pthread_mutex_unlock(&conns->lock);
}

/* conns.lock held. Sets peer->goodbye to SAID, unless it is ACKNOWLEDGED. Appends BYE to a
 * connection of the peer, if it has one. If that connection breaks before BYE_ACK arrives,
 * detach_and_post_down() appends BYE to the remaining one. */
static void begin_goodbye(link_peer *peer)
{
    if (peer->goodbye == GOODBYE_NOT_SAID)
        peer->goodbye = GOODBYE_SAID;
    teffi_goodbye_say(peer);
}

/* conns.lock held. Lets what the peer's connections have received, and was not reported yet, be
 * dropped, and kills them. A connection that another one has replaced may have such messages, too.
 */
static void bar_and_kill_connections(teffi_link *link, const link_peer *peer)
{
    for (teffi_conn *c = LIST_FIRST(&link->conns.all); c; c = LIST_NEXT(c, link))
        if (c->peer == peer) {
            atomic_store_explicit(&c->barred, true, memory_order_relaxed);
            teffi_conn_kill(c);
        }
}

/* in: clean, as in the op peer_remove. dead: as in the op peer_dead. */
static void remove_peer(teffi_link *link, teffi_node_id id, bool clean, bool dead)
{
    bool gone = false;
    pthread_mutex_lock(&link->conns.lock);
    link_peer *peer = teffi_peer_find(link, id);
    if (peer) {
        if (dead)
            bar_and_kill_connections(link, peer);
        peer->known = false;
        clear_routes_to(peer);
        peer->redial_ns = 0;
        if (clean) {
            begin_goodbye(peer);
        } else {
            if (peer->goodbye == GOODBYE_SAID)
                peer->goodbye = GOODBYE_NOT_SAID; /* no further BYE; a late BYE_ACK is ignored */
            kill_connection_pair(peer);
        }
        gone = teffi_peer_remove_if_unused(peer);
    }
    pthread_mutex_unlock(&link->conns.lock);
    teffi_sender_write_if_thread_coalesced(&link->conns);
    if (gone)
        teffi_peer_unref(peer);
}

void teffi_goodbye_remove_peer(teffi_net *net, teffi_node_id id, bool clean)
{
    remove_peer((teffi_link *)net, id, clean, false);
}

void teffi_goodbye_remove_dead_peer(teffi_net *net, teffi_node_id id)
{
    remove_peer((teffi_link *)net, id, false, true);
}

/* Makes later sends to this peer refuse requests and one-ways for grains. sender.peer_left is set
 * under the connection's lock, so messages keep their order: a request that is still accepted is
 * written before all messages that are sent after this call. */
void teffi_goodbye_mark_peer_left(teffi_net *net, teffi_node_id id)
{
    teffi_link *link = (teffi_link *)net;
    pthread_mutex_lock(&link->conns.lock);
    link_peer *peer = teffi_peer_find(link, id);
    if (peer)
        peer->left = true;
    if (peer && peer->out) {
        pthread_mutex_lock(&peer->out->lock);
        peer->out->sender.peer_left = true;
        pthread_mutex_unlock(&peer->out->lock);
    }
    pthread_mutex_unlock(&link->conns.lock);
}

/* ---- shutdown of the link ---- */

/* Sets `leaving`, and begins the goodbye to every peer that has a connection. Kills the dials that
 * have no peer yet: they cannot succeed any more, because bring_conn_up_and_send_ack() makes no
 * peer while `leaving` is set. */
static void begin_leaving(teffi_link *link)
{
    pthread_mutex_lock(&link->conns.lock);
    link->leaving = true;
    for (teffi_conn *c = LIST_FIRST(&link->conns.all); c; c = LIST_NEXT(c, link)) {
        teffi_conn_set_routed_node(c, 0);
        if (c->peer)
            begin_goodbye(c->peer);
        else if (c->dialled)
            teffi_conn_kill(c);
    }
    pthread_mutex_unlock(&link->conns.lock);
    teffi_sender_write_if_thread_coalesced(&link->conns);
}

/* conns.lock held. Are there still dials, connections to peers, or unreported events? */
static bool is_shutdown_unfinished(const teffi_link *link)
{
    for (const teffi_conn *c = LIST_FIRST(&link->conns.all); c; c = LIST_NEXT(c, link))
        if (c->peer || c->dialled)
            return true;
    for (unsigned i = 0; i < LINK_BUCKETS; i++)
        for (link_peer *peer = link->peers.buckets[i]; peer; peer = peer->bucket_next)
            if (!teffi_peer_has_no_events(peer))
                return true;
    return false;
}

teff_err teffi_goodbye_shutdown(teffi_net *net, uint32_t timeout_ms)
{
    teffi_link *link = (teffi_link *)net;
    teffi_conns *conns = &link->conns;
    uint64_t deadline_ns = teffi_conns_now(conns) + timeout_ms * 1000000ull;
    begin_leaving(link);
    teffi_conns_ask_ticker_to_scan(conns);
    pthread_mutex_lock(&conns->lock);
    bool unfinished = is_shutdown_unfinished(link);
    while (unfinished && teffi_conns_now(conns) < deadline_ns) {
        pthread_cond_wait(&conns->changed, &conns->lock); /* the ticker signals at each scan */
        unfinished = is_shutdown_unfinished(link);
    }
    pthread_mutex_unlock(&conns->lock);
    link->conns.transport->ops->close_listeners(link->conns.transport);
    return unfinished ? TEFF_E_TIMEOUT : TEFF_OK;
}
