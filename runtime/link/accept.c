/* accept.c - the listener and the connections that it accepts. */
#include <stdio.h>
#include <string.h>
#include "base/error.h"
#include "link/steps.h"

enum { PENDING_MAX = 1024 }; /* accepted connections in their handshake */

/* conns.lock held. If PENDING_MAX handshakes are pending, kill the oldest. out: true: it was. */
static bool kill_oldest_pending(teffi_link *link)
{
    teffi_conn *oldest = NULL;
    if (link->conns.pending < PENDING_MAX)
        return false;
    for (teffi_conn *c = LIST_FIRST(&link->conns.all); c; c = LIST_NEXT(c, link))
        if (!c->dialled && c->state != CONN_UP && !c->liveness.given_up)
            oldest = c;
    if (oldest) {
        oldest->liveness.given_up = true;
        teffi_conn_kill(oldest);
    }
    return oldest;
}

static void begin_conn(teffi_link *link, nng_stream *stream)
{
    bool crowded = false;
    pthread_mutex_lock(&link->conns.lock);
    teffi_conn *conn = link->freeing ? NULL : teffi_driver_open(link, false);
    if (conn) {
        crowded = kill_oldest_pending(link);
        conn->sender.stream = stream;
        teffi_link_address_remote(stream, conn->target, sizeof conn->target);
        teffi_conn_list(conn);
    }
    pthread_mutex_unlock(&link->conns.lock);
    teffi_counters_add(&link->conns.counters, LINK_ACCEPTED, 1);
    if (crowded)
        teffi_counters_note(&link->conns.counters, LINK_CROWDED,
                            "%d connections wait for their hello", PENDING_MAX);
    if (conn)
        teffi_driver_read(conn);
    else
        nng_stream_free(stream);
}

void teffi_accept_cb(void *arg)
{
    teffi_link *link = arg;
    int rv = nng_aio_result(link->accept_aio);
    if (rv == 0)
        begin_conn(link, nng_aio_get_output(link->accept_aio, 0));
    pthread_mutex_lock(&link->conns.lock);
    bool again = !link->freeing && rv != NNG_ECLOSED;
    link->accept_again = again && rv != 0; /* no file descriptor or memory: the ticker retries */
    pthread_mutex_unlock(&link->conns.lock);
    if (again && rv == 0)
        nng_stream_listener_accept(link->listener, link->accept_aio);
}

void teffi_accept_retry(teffi_link *link)
{
    pthread_mutex_lock(&link->conns.lock);
    bool again = link->accept_again && !link->freeing;
    link->accept_again = false;
    pthread_mutex_unlock(&link->conns.lock);
    if (again)
        nng_stream_listener_accept(link->listener, link->accept_aio);
}

static void write_bound(nng_stream_listener *listener, const char *address, char *bound)
{
    int port = 0;
    const char *colon = strrchr(address, ':');
    nng_stream_listener_get_int(listener, NNG_OPT_TCP_BOUND_PORT, &port);
    snprintf(bound, TEFFI_ADDRESS_MAX + 1, "%.*s:%d", (int)(colon - address), address, port);
}

static teff_err open_listener(teffi_link *link, const char *address, nng_stream_listener **out,
                              char *text)
{
    char url[TEFFI_ADDRESS_MAX + 32];
    nng_stream_listener *listener;
    int rv = NNG_EADDRINVAL;
    if (teffi_link_address_url(address, link->conns.tls, url, sizeof url))
        rv = nng_stream_listener_alloc(&listener, url);
    if (rv == 0) {
        nng_stream_listener_set_bool(listener, NNG_OPT_TCP_NODELAY, true);
        if (link->tls_accept)
            nng_stream_listener_set_ptr(listener, NNG_OPT_TLS_CONFIG, link->tls_accept);
        rv = nng_stream_listener_listen(listener);
        if (rv)
            nng_stream_listener_free(listener);
    }
    if (rv)
        return teffi_fail(text,
                          rv == NNG_EADDRINVAL || rv == NNG_EINVAL ? TEFF_E_INVALID : TEFF_E_IO,
                          "listen on '%.256s': %s", address, nng_strerror(rv));
    *out = listener;
    return TEFF_OK;
}

teff_err teffi_accept_listen(teffi_net *net, const char *address, char *bound, char *text)
{
    teffi_link *link = (teffi_link *)net;
    nng_stream_listener *listener = NULL;
    if (link->listener)
        return teffi_fail(text, TEFF_E_INVALID, "listen on '%.256s': listening already", address);
    teff_err err = open_listener(link, address, &listener, text);
    if (err)
        return err;
    write_bound(listener, address, bound);
    pthread_mutex_lock(&link->conns.lock);
    link->listener = listener;
    pthread_mutex_unlock(&link->conns.lock);
    return TEFF_OK;
}

void teffi_accept_begin(teffi_net *net)
{
    teffi_link *link = (teffi_link *)net;
    nng_stream_listener_accept(link->listener, link->accept_aio);
}
