/* next_hop.c - sends on the connection in the route cache, or else on the peer's; dials if needed.
 *
 * A route is the connection that last carried messages to a node with this hash. Routes are written
 * under conns.lock and read without it. Connections in the cache are type-stable while the link
 * lives: a stale route points to a valid conn->lock, and `carries`, checked under it, does not
 * match. While `carries` matches, the list holds its reference, so a sender that holds conn->lock
 * may take another one. */
#include "link/steps.h"

#include "base/hash.h"

/* out: the cache entry for a node. A weak hash is enough: nodes whose hashes collide replace each
 * other's route, so sends to them are slower, but still correct. */
static teffi_conn *_Atomic *get_route_cache_entry(teffi_link *link, uint64_t node)
{
    return &link->routes[teffi_mix64(node ^ link->secret.k0) % LINK_ROUTES];
}

/* conns.lock held. Caches conn as the route to the node, if conn is UP. */
static void cache_route_if_up(teffi_link *link, uint64_t node, teffi_conn *conn)
{
    if (conn->state != CONN_UP)
        return;
    teffi_conn_set_routed_node(conn, node);
    /* release: publishes the connection and its lock, pairs with try_send_on_cached_route() */
    atomic_store_explicit(get_route_cache_entry(link, node), conn, memory_order_release);
}

/* conns.lock held. Finds or creates the connection that carries messages to a node.
 * out:  *conn, without a reference for the caller. *dial: true if *conn is new: in that case
 *       the caller must call teffi_dial_start().
 * errs: TEFF_E_CLOSED, TEFF_E_UNREACHABLE, TEFF_E_NOMEM. */
static teff_err find_or_create_conn(teffi_link *link, teffi_node_id to, teffi_conn **conn,
                                    bool *dial)
{
    link_peer *peer = teffi_peer_find(link, to);
    bool client = to.silo & TEFFI_CLIENT_BIT;
    *dial = false;
    if (link->leaving || !peer || peer->bye_heard || peer->goodbye != GOODBYE_NOT_SAID)
        return TEFF_E_CLOSED;
    *conn = client ? peer->in : peer->out;
    if (*conn)
        return client || peer->known ? TEFF_OK : TEFF_E_CLOSED;
    if (client || !peer->known)
        return TEFF_E_CLOSED;
    if (peer->dial_failed)
        return TEFF_E_UNREACHABLE;
    *conn = teffi_dial_make_conn_to_peer(peer);
    *dial = *conn != NULL;
    return *conn ? TEFF_OK : TEFF_E_NOMEM;
}

/* Sends without the route cache: finds or creates the node's connection, caches the connection if
 * it is UP, and dials it if it is new. */
static teff_err send_uncached(teffi_link *link, teffi_node_id to, teffi_msg *msg)
{
    teffi_conn *conn;
    bool dial;
    pthread_mutex_lock(&link->conns.lock);
    teff_err err = find_or_create_conn(link, to, &conn, &dial);
    if (!err) {
        teffi_conn_ref(conn);
        cache_route_if_up(link, teffi_node_to_word(to), conn);
    }
    pthread_mutex_unlock(&link->conns.lock);
    if (err)
        return err;
    err = teffi_sender_send(conn, msg); /* before the dial: a dial that fails at once ends conn */
    if (dial)
        teffi_dial_start(conn);
    teffi_conn_unref(conn);
    return err;
}

/* Sends on the cached route. out: false: nothing was done, because there is no valid route, or the
 * message is too large. true: *err is the result. */
static bool try_send_on_cached_route(teffi_link *link, teffi_node_id to, teffi_msg *msg,
                                     teff_err *err)
{
    size_t room, body_len;
    uint64_t node = teffi_node_to_word(to);
    if (!node)
        return false; /* conn->carries is 0 if there is no route */
    /* acquire: pairs with cache_route_if_up() */
    teffi_conn *conn =
        atomic_load_explicit(get_route_cache_entry(link, node), memory_order_acquire);
    if (!conn)
        return false;
    *err = teffi_frame_compute_size_bound(msg, link->conns.frame_max_bytes, &room, &body_len);
    if (*err)
        return false; /* send_uncached() fails, too, but first checks if the node is known */
    pthread_mutex_lock(&conn->lock);
    if (conn->carries == node) {
        *err = teffi_sender_send_and_unlock(conn, msg, room, body_len);
        return true;
    }
    pthread_mutex_unlock(&conn->lock);
    return false;
}

teff_err teffi_next_hop_send(teffi_net *net, teffi_node_id to, teffi_msg *msg)
{
    teffi_link *link = (teffi_link *)net;
    teff_err err;
    if (!try_send_on_cached_route(link, to, msg, &err))
        err = send_uncached(link, to, msg);
    /* If a response cannot be sent, kill the connection on which the request came, so that the
     * caller's call fails now, not at its timeout. If the queue to a silo is full, the link stays:
     * others depend on it. */
    bool full = err == TEFF_E_OVERLOADED && to.silo & TEFFI_CLIENT_BIT;
    if ((err == TEFF_E_UNREACHABLE || err == TEFF_E_CLOSED || full) &&
        msg->item.kind == TEFFI_MSG_RESPONSE)
        teffi_ending_kill_incoming_conn(link, to);
    return err;
}
