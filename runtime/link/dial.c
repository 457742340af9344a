/* dial.c - starts dials and handles their success or failure. */
#include <stdio.h>
#include <string.h>
#include "link/steps.h"

static void end_failed_dial(teffi_conn *conn, int rv)
{
    bool late = conn->liveness.given_up;
    teffi_conn_because(conn, TEFF_E_UNREACHABLE, late ? "no answer in time" : nng_strerror(rv));
    if (rv != NNG_ECLOSED) /* NNG_ECLOSED: closed by this side, not a failure */
        teffi_counters_note(&conn->conns->counters, LINK_DIAL_FAILURES, "dial %.256s: %s",
                            conn->target, conn->ending.why_text);
    teffi_driver_end(conn);
}

static void on_dialled(void *arg)
{
    teffi_conn *conn = arg;
    int rv = nng_aio_result(conn->dial_aio);
    if (rv != 0 || !conn->dialer) {
        end_failed_dial(conn, rv);
        return;
    }
    nng_stream *stream = nng_aio_get_output(conn->dial_aio, 0);
    pthread_mutex_lock(&conn->conns->lock);
    conn->state = CONN_GREETING;
    pthread_mutex_unlock(&conn->conns->lock);
    pthread_mutex_lock(&conn->lock);
    conn->sender.stream = stream;
    pthread_mutex_unlock(&conn->lock);
    teffi_handshake_begin(conn);
    teffi_driver_read(conn);
}

/* conns.lock held. On failure conn->dialer stays NULL and the reason is recorded. */
static void make_dialer(teffi_link *link, teffi_conn *conn, const char *address)
{
    char url[TEFFI_ADDRESS_MAX + 32];
    if (!teffi_link_address_url(address, link->conns.tls, url, sizeof url))
        teffi_conn_because(conn, TEFF_E_UNREACHABLE, "not an address of the form host:port");
    else if (nng_stream_dialer_alloc(&conn->dialer, url) != 0)
        teffi_conn_because(conn, TEFF_E_UNREACHABLE, "the address was not understood");
    if (!conn->dialer)
        return;
    nng_stream_dialer_set_bool(conn->dialer, NNG_OPT_TCP_NODELAY, true);
    if (link->tls_dial)
        nng_stream_dialer_set_ptr(conn->dialer, NNG_OPT_TLS_CONFIG, link->tls_dial);
}

/* conns.lock held. out: NULL: no memory, or the link is being freed. */
static teffi_conn *new_dial(teffi_link *link, const char *address)
{
    teffi_conn *conn = link->freeing ? NULL : teffi_driver_open(link, true);
    if (!conn)
        return NULL;
    if (nng_aio_alloc(&conn->dial_aio, on_dialled, conn) != 0) {
        teffi_conn_discard(conn);
        return NULL;
    }
    snprintf(conn->target, sizeof conn->target, "%s", address);
    conn->handshake.sequence =
        atomic_fetch_add_explicit(&link->sequence, 1, memory_order_relaxed) + 1;
    make_dialer(link, conn, address);
    teffi_conn_list(conn);
    return conn;
}

teffi_conn *teffi_dial_peer(link_peer *peer)
{
    teffi_conn *conn = new_dial(peer->owner, peer->address);
    if (!conn)
        return NULL;
    teffi_hello *remote = &conn->handshake.remote;
    teffi_peer_ref(peer);
    conn->peer = peer;
    remote->node = peer->id;
    remote->role = TEFFI_ROLE_SILO;
    memcpy(remote->address, peer->address, sizeof remote->address);
    peer->out = conn;
    conn->sender.peer_left = peer->left; /* no lock: no other thread has this connection yet */
    peer->redial_ns = 0;
    return conn;
}

void teffi_dial_start(teffi_conn *conn)
{
    teffi_counters_add(&conn->conns->counters, LINK_DIALS, 1);
    if (conn->dialer)
        nng_stream_dialer_dial(conn->dialer, conn->dial_aio);
    else
        nng_sleep_aio(0, conn->dial_aio); /* report the failure from the callback, too */
}

void teffi_dial_address(teffi_net *net, const char *address,
                        void (*done)(void *arg, teff_err err, const teffi_hello *remote,
                                     const char *text),
                        void *arg)
{
    teffi_link *link = (teffi_link *)net;
    static const teffi_hello nobody;
    pthread_mutex_lock(&link->conns.lock);
    teffi_conn *conn = link->leaving ? NULL : new_dial(link, address);
    if (conn) {
        conn->handshake.done = done;
        conn->handshake.done_arg = arg;
        teffi_dial_start(conn);
    }
    pthread_mutex_unlock(&link->conns.lock);
    if (!conn)
        done(arg, TEFF_E_UNREACHABLE, &nobody, "closing, or out of memory");
}
