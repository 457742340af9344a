/* link_dial.c - connections that we make: to nodes with something to send, to addresses whose
 * node is to be found out.
 * Way:     link_send, link_tick, net dial -> [dial] -> nng dialer -> link_greet */
#include "wire/link.h"

#include <stdio.h>
#include <string.h>

/* Lock held. */
static teffi_conn *new_dial(teffi_link *link, const char *address)
{
    char url[TEFFI_ADDRESS_MAX + 32];
    teffi_conn *conn = link->freeing ? NULL : teffi_link_conn_new(link, true);
    if (!conn)
        return NULL;
    snprintf(conn->target, sizeof conn->target, "%s", address);
    conn->sequence = atomic_fetch_add_explicit(&link->sequence, 1, memory_order_relaxed) + 1;
    if (!teffi_link_address_url(link, address, url, sizeof url))
        teffi_link_conn_why(conn, TEFF_E_UNREACHABLE, "not an address of the form host:port");
    else if (nng_stream_dialer_alloc(&conn->dialer, url) != 0)
        teffi_link_conn_why(conn, TEFF_E_UNREACHABLE, "the address was not understood");
    if (conn->dialer)
        nng_stream_dialer_set_bool(conn->dialer, NNG_OPT_TCP_NODELAY, true);
    if (conn->dialer && link->tls_dial)
        nng_stream_dialer_set_ptr(conn->dialer, NNG_OPT_TLS_CONFIG, link->tls_dial);
    teffi_link_conn_list(conn);
    return conn;
}

teffi_conn *teffi_link_dial_node(link_node *node)
{
    teffi_conn *conn = new_dial(node->owner, node->address);
    if (!conn)
        return NULL;
    teffi_link_node_ref(node);
    conn->node = node;
    conn->expects = true;
    conn->peer.node = node->id;
    conn->peer.role = TEFFI_ROLE_SILO;
    memcpy(conn->peer.address, node->address, sizeof conn->peer.address);
    node->out = conn;
    node->redial_ns = 0;
    return conn;
}

void teffi_link_dial_start(teffi_conn *conn)
{
    teffi_link_count(conn->owner, LINK_DIALS, 1);
    teffi_link_conn_ref(conn); /* the dial's */
    if (conn->dialer)
        nng_stream_dialer_dial(conn->dialer, conn->dial_aio);
    else
        nng_sleep_aio(0, conn->dial_aio); /* failures come from the callback, too */
    teffi_link_conn_unref(conn);
}

static void dial_failed(teffi_conn *conn, int rv)
{
    char text[TEFF_TEXT_MAX];
    snprintf(text, sizeof text, "%.256s: %s", conn->target,
             conn->late ? "no answer in time" : nng_strerror(rv));
    teffi_link_conn_why(conn, TEFF_E_UNREACHABLE, text);
    teffi_link_note(conn->owner, LINK_DIAL_FAILURES, "dial %s", conn->why_text);
    teffi_link_conn_end(conn);
    teffi_link_conn_unref(conn);
}

void teffi_link_dial_cb(void *arg)
{
    teffi_conn *conn = arg;
    teffi_link *link = conn->owner;
    int rv = nng_aio_result(conn->dial_aio);
    if (rv != 0 || !conn->dialer) {
        dial_failed(conn, rv);
        return;
    }
    nng_stream *stream = nng_aio_get_output(conn->dial_aio, 0);
    pthread_mutex_lock(&link->lock);
    conn->state = CONN_GREETING;
    pthread_mutex_unlock(&link->lock);
    pthread_mutex_lock(&conn->lock);
    conn->stream = stream;
    pthread_mutex_unlock(&conn->lock);
    teffi_link_greet_first(conn);
    teffi_link_recv_go_on(conn);
}

void teffi_link_dial(teffi_net *net, const char *address,
                     void (*done)(void *arg, teff_err err, const teffi_hello *peer,
                                  const char *text),
                     void *arg)
{
    teffi_link *link = (teffi_link *)net;
    static const teffi_hello nobody;
    pthread_mutex_lock(&link->lock);
    teffi_conn *conn = link->leaving ? NULL : new_dial(link, address);
    if (conn) {
        conn->done = done;
        conn->done_arg = arg;
    }
    pthread_mutex_unlock(&link->lock);
    if (conn)
        teffi_link_dial_start(conn);
    else
        done(arg, TEFF_E_UNREACHABLE, &nobody, "closing, or out of memory");
}
