/* link_accept.c - connections that others make to us.
 * Way:     nng listener -> [accept] -> link_recv -> link_greet */
#include "wire/link.h"

#include <stdio.h>
#include <string.h>

/* Lock held. Too many wait for their hello: the one that waits for longest goes. */
static teffi_conn *crowded_out(teffi_link *link)
{
    teffi_conn *oldest = NULL;
    if (link->pending < LINK_PENDING_MAX)
        return NULL;
    for (teffi_conn *c = link->conns; c; c = c->next)
        if (!c->dialled && c->state != CONN_UP && !c->late)
            oldest = c;
    if (oldest) {
        oldest->late = true;
        teffi_link_conn_ref(oldest);
    }
    return oldest;
}

static void begin(teffi_link *link, nng_stream *stream)
{
    teffi_conn *out = NULL;
    pthread_mutex_lock(&link->lock);
    teffi_conn *conn = link->freeing ? NULL : teffi_link_conn_new(link, false);
    if (conn) {
        out = crowded_out(link);
        conn->stream = stream;
        teffi_link_conn_list(conn);
    }
    pthread_mutex_unlock(&link->lock);
    teffi_link_count(link, LINK_ACCEPTED, 1);
    if (out) {
        teffi_link_note(link, LINK_CROWDED, "%d connections wait for their hello",
                        LINK_PENDING_MAX);
        teffi_link_conn_kill(out);
        teffi_link_conn_unref(out);
    }
    if (conn)
        teffi_link_recv_go_on(conn);
    else
        nng_stream_free(stream);
}

void teffi_link_accept_cb(void *arg)
{
    teffi_link *link = arg;
    int rv = nng_aio_result(link->accept_aio);
    if (rv == 0)
        begin(link, nng_aio_get_output(link->accept_aio, 0));
    pthread_mutex_lock(&link->lock);
    bool again = !link->freeing && rv != NNG_ECLOSED;
    link->accept_again = again && rv != 0; /* out of files or memory: at the next tick */
    pthread_mutex_unlock(&link->lock);
    if (again && rv == 0)
        nng_stream_listener_accept(link->listener, link->accept_aio);
}

void teffi_link_accept_more(teffi_link *link)
{
    pthread_mutex_lock(&link->lock);
    bool again = link->accept_again && !link->freeing;
    link->accept_again = false;
    pthread_mutex_unlock(&link->lock);
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
    if (teffi_link_address_url(link, address, url, sizeof url))
        rv = nng_stream_listener_alloc(&listener, url);
    if (rv == 0) {
        nng_stream_listener_set_bool(listener, NNG_OPT_TCP_NODELAY, true);
        if (link->tls_accept)
            nng_stream_listener_set_ptr(listener, NNG_OPT_TLS_CONFIG, link->tls_accept);
        rv = nng_stream_listener_listen(listener);
        if (rv)
            nng_stream_listener_free(listener);
    }
    if (rv) {
        snprintf(text, TEFF_TEXT_MAX, "listen on '%.256s': %s", address, nng_strerror(rv));
        return rv == NNG_EADDRINVAL || rv == NNG_EINVAL ? TEFF_E_INVALID : TEFF_E_IO;
    }
    *out = listener;
    return TEFF_OK;
}

teff_err teffi_link_listen(teffi_net *net, const char *address, char *bound, char *text)
{
    teffi_link *link = (teffi_link *)net;
    nng_stream_listener *listener;
    if (link->listener) {
        snprintf(text, TEFF_TEXT_MAX, "listen on '%.256s': listening already", address);
        return TEFF_E_INVALID;
    }
    teff_err err = open_listener(link, address, &listener, text);
    if (err)
        return err;
    write_bound(listener, address, bound);
    pthread_mutex_lock(&link->lock);
    link->listener = listener;
    pthread_mutex_unlock(&link->lock);
    nng_stream_listener_accept(listener, link->accept_aio);
    return TEFF_OK;
}
