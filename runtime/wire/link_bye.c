/* link_bye.c - goodbye: who leaves sends BYE behind all it accepted; the other stops accepting,
 * sends what it has, and answers BYE-ACK behind it; then who leaves closes. So nothing that either
 * side accepted is lost.
 * Way:     net shutdown, peer_remove -> [bye] -> link_send; link_recv -> [bye]
 * Threads: node flags under link->lock. */
#include "wire/link.h"

#include <stdlib.h>

teffi_conn *teffi_link_bye_say(link_node *node)
{
    teffi_conn *conn = node->out ? node->out : node->in;
    if (!conn || conn->bye_sent)
        return NULL;
    conn->bye_sent = true;
    teffi_link_send_finish(conn, TEFFI_FRAME_BYE);
    teffi_link_conn_ref(conn);
    return conn;
}

void teffi_link_bye_heard(teffi_conn *conn)
{
    teffi_link *link = conn->owner;
    link_node *node = conn->node;
    pthread_mutex_lock(&link->lock);
    teffi_conn *answer = node->out ? node->out : conn;
    node->bye_heard = true;
    teffi_link_ways_shut(node);
    node->redial_ns = 0;
    teffi_link_send_finish(answer, TEFFI_FRAME_BYE_ACK);
    teffi_link_conn_ref(answer);
    pthread_mutex_unlock(&link->lock);
    teffi_link_send_flush(answer);
    teffi_link_conn_unref(answer);
}

static void kill_both(teffi_conn *in, teffi_conn *out)
{
    if (in) {
        teffi_link_conn_kill(in);
        teffi_link_conn_unref(in);
    }
    if (out) {
        teffi_link_conn_kill(out);
        teffi_link_conn_unref(out);
    }
}

/* Lock held; for kill_both without it. */
static void hold_both(link_node *node, teffi_conn **in, teffi_conn **out)
{
    *in = node->in;
    *out = node->out;
    if (*in)
        teffi_link_conn_ref(*in);
    if (*out)
        teffi_link_conn_ref(*out);
}

void teffi_link_bye_acked(teffi_conn *conn)
{
    teffi_link *link = conn->owner;
    teffi_conn *in = NULL, *out = NULL;
    pthread_mutex_lock(&link->lock);
    if (conn->node->bye_wanted) {
        conn->node->bye_acked = true;
        hold_both(conn->node, &in, &out);
    }
    pthread_mutex_unlock(&link->lock);
    kill_both(in, out);
}

void teffi_link_peer_remove(teffi_net *net, teffi_node_id id, bool clean)
{
    teffi_link *link = (teffi_link *)net;
    teffi_conn *in = NULL, *out = NULL, *flush = NULL;
    bool gone = false;
    pthread_mutex_lock(&link->lock);
    link_node *node = teffi_link_node_find(link, id);
    if (node) {
        node->known = false;
        teffi_link_ways_shut(node);
        node->redial_ns = 0;
        node->bye_wanted = clean;
        if (clean)
            flush = teffi_link_bye_say(node);
        else
            hold_both(node, &in, &out);
        gone = teffi_link_node_settle(node);
    }
    pthread_mutex_unlock(&link->lock);
    if (flush) {
        teffi_link_send_flush(flush);
        teffi_link_conn_unref(flush);
    }
    kill_both(in, out);
    if (gone)
        teffi_link_node_unref(node);
}

/* Lock held. A chain of what must be flushed or closed; dials without a node are of no use now. */
static unsigned say_all(teffi_link *link, teffi_conn **found)
{
    unsigned n = 0;
    for (teffi_conn *c = link->conns; c; c = c->next) {
        bool way = c->node && (c == c->node->out || (c == c->node->in && !c->node->out));
        if (c->node)
            c->node->bye_wanted = true;
        if ((way && teffi_link_bye_say(c->node)) || (!c->node && c->dialled)) {
            if (!way)
                teffi_link_conn_ref(c);
            found[n++] = c;
        }
    }
    return n;
}

static void begin_leaving(teffi_link *link)
{
    pthread_mutex_lock(&link->lock);
    link->leaving = true;
    for (teffi_conn *c = link->conns; c; c = c->next)
        teffi_link_way_shut(c);
    teffi_conn **found = calloc((size_t)link->live + 1, sizeof(teffi_conn *));
    unsigned n = found ? say_all(link, found) : 0;
    pthread_mutex_unlock(&link->lock);
    for (unsigned i = 0; i < n; i++) {
        if (found[i]->node)
            teffi_link_send_flush(found[i]);
        else
            teffi_link_conn_kill(found[i]);
        teffi_link_conn_unref(found[i]);
    }
    free(found);
}

/* Lock held. */
static bool has_talk(const teffi_link *link)
{
    for (const teffi_conn *c = link->conns; c; c = c->next)
        if (c->node || c->dialled)
            return true;
    for (unsigned i = 0; i < LINK_BUCKETS; i++)
        for (link_node *node = link->buckets[i]; node; node = node->bucket_next) {
            pthread_mutex_lock(&node->lock);
            bool busy = node->draining || node->events.count;
            pthread_mutex_unlock(&node->lock);
            if (busy)
                return true;
        }
    return false;
}

teff_err teffi_link_shutdown(teffi_net *net, uint32_t timeout_ms)
{
    teffi_link *link = (teffi_link *)net;
    uint64_t deadline_ns = teffi_link_now(link) + timeout_ms * 1000000ull;
    begin_leaving(link);
    teffi_link_tick_soon(link);
    pthread_mutex_lock(&link->lock);
    bool talk = has_talk(link);
    while (talk && teffi_link_now(link) < deadline_ns) {
        pthread_cond_wait(&link->changed, &link->lock); /* the ticker wakes it, too */
        talk = has_talk(link);
    }
    pthread_mutex_unlock(&link->lock);
    if (link->listener)
        nng_stream_listener_close(link->listener);
    return talk ? TEFF_E_TIMEOUT : TEFF_OK;
}
