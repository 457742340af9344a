/* accept.c - the listener and the connections that it accepts. */
#include <stdio.h>
#include <string.h>
#include "base/error.h"
#include "link/steps.h"

enum { PENDING_MAX = 1024 }; /* accepted connections in their handshake */

/* conns.lock held. If PENDING_MAX handshakes are pending, kills the oldest that is not killed yet,
 * which is the last such one in the list. out: true: one was killed. */
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

/* Makes a connection of an accepted stream, and begins to read. in: stream, taken over. */
static void begin_conn(teffi_link *link, teffi_stream *stream)
{
    bool crowded = false;
    pthread_mutex_lock(&link->conns.lock);
    teffi_conn *conn = link->freeing ? NULL : teffi_driver_open(link, false);
    if (conn) {
        crowded = kill_oldest_pending(link);
        teffi_conn_attach(conn, stream);
        stream->ops->remote(stream, conn->target, sizeof conn->target);
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
        stream->ops->free(stream);
}

static void accept_next(teffi_link *link)
{
    link->conns.transport->ops->accept(link->conns.transport);
}

void teffi_accept_done(void *arg, const teffi_stream_result *result)
{
    teffi_link *link = arg;
    if (!result->end)
        begin_conn(link, result->stream);
    pthread_mutex_lock(&link->conns.lock);
    bool again = !link->freeing && result->end != TEFFI_STREAM_CLOSED;
    link->accept_again = again && result->end; /* failed: the ticker calls teffi_accept_retry() */
    pthread_mutex_unlock(&link->conns.lock);
    if (again && !result->end)
        accept_next(link);
}

void teffi_accept_retry(teffi_link *link)
{
    pthread_mutex_lock(&link->conns.lock);
    bool again = link->accept_again && !link->freeing;
    link->accept_again = false;
    pthread_mutex_unlock(&link->conns.lock);
    if (again)
        accept_next(link);
}

teff_err teffi_accept_listen(teffi_net *net, const char *address, char *bound, char *text)
{
    teffi_link *link = (teffi_link *)net;
    teffi_transport *transport = link->conns.transport;
    const char *why = "listening already";
    int port = 0;
    teff_err err = TEFF_E_INVALID;
    if (!link->listens)
        err = transport->ops->listen(transport, address, &port, &why);
    if (err)
        return teffi_fail(text, err, "listen on '%.256s': %s", address, why);
    const char *colon = strrchr(address, ':');
    if (teffi_address_path(address))
        snprintf(bound, TEFFI_ADDRESS_MAX + 1, "%s", address);
    else
        snprintf(bound, TEFFI_ADDRESS_MAX + 1, "%.*s:%d", (int)(colon - address), address, port);
    link->listens = true;
    return TEFF_OK;
}

void teffi_accept_begin(teffi_net *net)
{
    accept_next((teffi_link *)net);
}
