/* dial.c - starts dials and handles their success or failure. */
#include <stdio.h>
#include <string.h>
#include "link/steps.h"

static void end_failed_dial(teffi_conn *conn, const teffi_stream_result *result)
{
    bool late = conn->liveness.given_up;
    teffi_conn_record_end_cause(conn, TEFF_E_UNREACHABLE,
                                late ? "no response in time" : result->text);
    /* CLOSED: this side cancelled the dial; do_needed_action() has counted a late dial already */
    if (result->end != TEFFI_STREAM_CLOSED)
        teffi_counters_add_one_and_log(&conn->conns->counters, LINK_DIAL_FAILURES,
                                       "dial %.256s: %s", conn->target, conn->ending.why_text);
    teffi_driver_end_conn(conn);
}

static void on_dialled(void *arg, const teffi_stream_result *result)
{
    teffi_conn *conn = arg;
    if (result->end) {
        end_failed_dial(conn, result);
        return;
    }
    pthread_mutex_lock(&conn->conns->lock);
    conn->state = CONN_GREETING;
    pthread_mutex_unlock(&conn->conns->lock);
    teffi_conn_attach_stream(conn, result->stream);
    teffi_handshake_begin(conn);
    teffi_driver_handle_frames_and_read(conn);
}

/* conns.lock held. Makes a connection with a dial that is not started yet, and registers it.
 * out:  NULL: no memory, or the link is being freed. */
static teffi_conn *new_conn_to_address(teffi_link *link, const char *address)
{
    teffi_transport *transport = link->conns.transport;
    teffi_conn *conn = link->freeing ? NULL : teffi_driver_new_conn(link, true);
    if (!conn)
        return NULL;
    conn->dial = transport->ops->dial_new(transport, address, on_dialled, conn);
    if (!conn->dial) {
        teffi_conn_add_to_dead_list(conn);
        return NULL;
    }
    snprintf(conn->target, sizeof conn->target, "%s", address);
    conn->handshake.sequence =
        atomic_fetch_add_explicit(&link->sequence, 1, memory_order_relaxed) + 1;
    teffi_conn_register(conn);
    return conn;
}

teffi_conn *teffi_dial_make_conn_to_peer(link_peer *peer)
{
    teffi_conn *conn = new_conn_to_address(peer->owner, peer->address);
    if (!conn)
        return NULL;
    teffi_hello *remote = &conn->handshake.remote;
    teffi_peer_set_of_conn(conn, peer);
    remote->node = peer->id;
    remote->role = TEFFI_ROLE_SILO;
    memcpy(remote->address, peer->address, sizeof remote->address);
    peer->out = conn;
    conn->sender.peer_left = peer->left; /* conn->lock is not needed: nothing is sent on conn yet */
    peer->redial_ns = 0;
    return conn;
}

void teffi_dial_start(teffi_conn *conn)
{
    teffi_counters_add(&conn->conns->counters, LINK_DIALS, 1);
    conn->conns->transport->ops->dial_start(conn->dial);
}

void teffi_dial_address(teffi_net *net, const char *address,
                        void (*done)(void *arg, teff_err err, const teffi_hello *remote,
                                     const char *text),
                        void *arg)
{
    teffi_link *link = (teffi_link *)net;
    static const teffi_hello nobody;
    pthread_mutex_lock(&link->conns.lock);
    teffi_conn *conn = link->leaving ? NULL : new_conn_to_address(link, address);
    if (conn) {
        conn->handshake.done = done;
        conn->handshake.done_arg = arg;
        teffi_dial_start(conn);
    }
    pthread_mutex_unlock(&link->conns.lock);
    if (!conn)
        done(arg, TEFF_E_UNREACHABLE, &nobody, "closing, or out of memory");
}
