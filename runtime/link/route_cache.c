/* route_cache.c - maps each node to the connection that last carried messages to it. */
#include "link/link.h"

static link_route *node_line(teffi_link *link, uint64_t node)
{
    return link->routes.lines[teffi_siphash_word(&link->secret, node) % LINK_ROUTE_LINES];
}

teffi_conn *teffi_link_route_find(teffi_link *link, uint64_t node)
{
    link_route *line = node_line(link, node);
    for (unsigned i = 0; i < LINK_ROUTES_IN_LINE; i++)
        /* relaxed: the caller checks conn->carries under its lock */
        if (atomic_load_explicit(&line[i].node, memory_order_relaxed) == node)
            /* acquire: pairs with write_route() */
            return atomic_load_explicit(&line[i].conn, memory_order_acquire);
    return NULL;
}

/* conns.lock held. Overwrites the node's earlier entry, or else a stale one, or else any. */
static void write_route(teffi_link *link, uint64_t node, teffi_conn *conn)
{
    link_route *line = node_line(link, node), *place = &line[node % LINK_ROUTES_IN_LINE];
    for (unsigned i = 0; i < LINK_ROUTES_IN_LINE; i++) {
        uint64_t other = atomic_load_explicit(&line[i].node, memory_order_relaxed);
        const teffi_conn *last = atomic_load_explicit(&line[i].conn, memory_order_relaxed);
        if (!last || last->carries != other)
            place = &line[i];
        if (other == node) {
            place = &line[i];
            break;
        }
    }
    /* release: publishes the connection and its lock, pairs with teffi_link_route_find() */
    atomic_store_explicit(&place->conn, conn, memory_order_release);
    atomic_store_explicit(&place->node, node, memory_order_relaxed);
}

/* conns.lock held. `carries` is written under both locks, so it may be read under either. */
static void set_carries(teffi_conn *conn, uint64_t node)
{
    pthread_mutex_lock(&conn->lock);
    conn->carries = node;
    conn->keeps_memory |= node != 0;
    pthread_mutex_unlock(&conn->lock);
}

void teffi_link_route_open(teffi_conn *conn, uint64_t node)
{
    if (conn->state != CONN_UP)
        return;
    set_carries(conn, node);
    write_route(teffi_link_of(conn), node, conn);
}

void teffi_link_route_close(teffi_conn *conn)
{
    if (conn && conn->carries)
        set_carries(conn, 0);
}

void teffi_link_routes_close(link_peer *peer)
{
    teffi_link_route_close(peer->in);
    teffi_link_route_close(peer->out);
}
