/* link_way.c - which connection carries messages to a node? A table that is read without
 * link->lock leads to the one that did last; under its own lock it says whether it still does.
 * Way:     net send -> [way] -> link_send
 * Threads: any. Ways are opened and shut under link->lock, each under its connection's, too. The
 *          memory of a connection that was a way stays one's while the link lives: who comes late
 *          finds another connection in it, and that it is no way, or another node's.
 *
 * While a connection is a way it is its node's, UP, and not ended: so its list's reference is
 * there, and with its lock held another may be taken. */
#include "base/hash.h"
#include "wire/link.h"

static link_way *line_of(teffi_link *link, uint64_t id)
{
    return link->ways[teffi_mix64(id) % LINK_WAY_LINES];
}

/* out: NULL: none is known. */
static teffi_conn *find(teffi_link *link, uint64_t id)
{
    link_way *line = line_of(link, id);
    for (unsigned i = 0; i < LINK_WAYS; i++)
        /* relaxed: conn->way has the last word */
        if (atomic_load_explicit(&line[i].node, memory_order_relaxed) == id)
            /* acquire: pairs with note() */
            return atomic_load_explicit(&line[i].conn, memory_order_acquire);
    return NULL;
}

/* link->lock held. Over the node's last one, or one that is a way no more, or any. */
static void note(teffi_link *link, uint64_t id, teffi_conn *conn)
{
    link_way *line = line_of(link, id), *place = &line[id % LINK_WAYS];
    for (unsigned i = 0; i < LINK_WAYS; i++) {
        uint64_t node = atomic_load_explicit(&line[i].node, memory_order_relaxed);
        const teffi_conn *last = atomic_load_explicit(&line[i].conn, memory_order_relaxed);
        if (!last || last->way != node)
            place = &line[i];
        if (node == id) {
            place = &line[i];
            break;
        }
    }
    /* release: the connection and its lock were made before, pairs with find() */
    atomic_store_explicit(&place->conn, conn, memory_order_release);
    atomic_store_explicit(&place->node, id, memory_order_relaxed);
}

/* Both locks are needed for a change, so either is enough to look. */
static void set(teffi_conn *conn, uint64_t id)
{
    pthread_mutex_lock(&conn->lock);
    conn->way = id;
    conn->was_way |= id != 0;
    pthread_mutex_unlock(&conn->lock);
}

void teffi_link_way_shut(teffi_conn *conn)
{
    if (conn && conn->way)
        set(conn, 0);
}

void teffi_link_ways_shut(link_node *node)
{
    teffi_link_way_shut(node->in);
    teffi_link_way_shut(node->out);
}

/* link->lock held. */
static void open_way(teffi_conn *conn, uint64_t id)
{
    if (conn->state != CONN_UP)
        return;
    set(conn, id);
    note(conn->owner, id, conn);
}

/* Lock held. The connection that carries messages to a node, made when there is none. */
static teff_err way_to(teffi_link *link, teffi_node_id to, teffi_conn **conn, bool *dial)
{
    link_node *node = teffi_link_node_find(link, to);
    bool client = to.silo & TEFFI_CLIENT_BIT;
    *dial = false;
    if (link->leaving || !node || node->bye_heard || node->bye_wanted)
        return TEFF_E_CLOSED;
    *conn = client ? node->in : node->out;
    if (*conn)
        return client || node->known ? TEFF_OK : TEFF_E_CLOSED;
    if (client || !node->known)
        return TEFF_E_CLOSED;
    if (node->dial_failed)
        return TEFF_E_UNREACHABLE;
    *conn = teffi_link_dial_node(node);
    *dial = *conn != NULL;
    return *conn ? TEFF_OK : TEFF_E_NOMEM;
}

static teff_err send_anew(teffi_link *link, teffi_node_id to, teffi_msg *msg)
{
    teffi_conn *conn;
    bool dial;
    pthread_mutex_lock(&link->lock);
    teff_err err = way_to(link, to, &conn, &dial);
    if (!err) {
        teffi_link_conn_ref(conn);
        open_way(conn, teffi_node_word(to));
    }
    pthread_mutex_unlock(&link->lock);
    if (err)
        return err;
    err = teffi_link_send_msg(conn, msg);
    if (dial)
        teffi_link_dial_start(conn);
    teffi_link_conn_unref(conn);
    return err;
}

/* out: false: no way is known; nothing was done. */
static bool send_known(teffi_link *link, teffi_node_id to, teffi_msg *msg, teff_err *err)
{
    size_t size, body_len;
    uint64_t id = teffi_node_word(to);
    teffi_conn *conn = find(link, id);
    if (!conn)
        return false;
    *err = teffi_frame_size(msg, link->frame_max_bytes, &size, &body_len);
    if (*err)
        return false; /* it may be told something else first */
    pthread_mutex_lock(&conn->lock);
    if (conn->way == id) {
        *err = teffi_link_send_locked(conn, msg, size, body_len);
        return true;
    }
    pthread_mutex_unlock(&conn->lock);
    return false;
}

teff_err teffi_link_send(teffi_net *net, teffi_node_id to, teffi_msg *msg)
{
    teffi_link *link = (teffi_link *)net;
    teff_err err;
    return send_known(link, to, msg, &err) ? err : send_anew(link, to, msg);
}
