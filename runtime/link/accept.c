/* accept.c - the listeners and the connections that they accept. */
#include <stdio.h>
#include <string.h>
#include "base/error.h"
#include "link/steps.h"

enum { PENDING_MAX = 1024 }; /* with so many handshakes pending, an accept kills the oldest one */

/* conns.lock held. If PENDING_MAX accepted connections are in their handshake, kills the oldest
 * one not marked given_up yet; conns.all lists the newest first. out: true: one was killed. */
static bool kill_oldest_pending_if_too_many(teffi_link *link)
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

/* Creates a connection for an accepted stream, and begins to read from it. If too many other
 * connections are in their handshake, kills the oldest of them. If there is no memory, or the link
 * is being freed, creates no connection and frees the stream. in: stream, taken over. */
static void create_conn_and_begin_read(const link_door *door, teffi_stream *stream)
{
    teffi_link *link = door->link;
    bool crowded = false;
    pthread_mutex_lock(&link->conns.lock);
    teffi_conn *conn = link->freeing ? NULL : teffi_driver_new_conn(link, false);
    if (conn) {
        conn->at_gateway = door->door == TEFFI_DOOR_GATEWAY;
        crowded = kill_oldest_pending_if_too_many(link);
        teffi_conn_attach_stream(conn, stream);
        stream->ops->remote(stream, conn->target, sizeof conn->target);
        teffi_conn_register(conn);
    }
    pthread_mutex_unlock(&link->conns.lock);
    teffi_counters_add(&link->conns.counters, LINK_ACCEPTED, 1);
    if (crowded)
        teffi_counters_add_one_and_log(&link->conns.counters, LINK_CROWDED,
                                       "%d connections wait for their hello", PENDING_MAX);
    if (conn)
        teffi_driver_handle_frames_and_read(conn);
    else
        stream->ops->free(stream);
}

static void accept_next(const link_door *door)
{
    teffi_transport *transport = door->link->conns.transport;
    transport->ops->accept(transport, door->door);
}

void teffi_accept_handle_result(void *arg, const teffi_stream_result *result)
{
    link_door *door = arg;
    teffi_link *link = door->link;
    if (!result->end)
        create_conn_and_begin_read(door, result->stream);
    pthread_mutex_lock(&link->conns.lock);
    bool open = !link->freeing && result->end != TEFFI_STREAM_CLOSED;
    door->accept_again = open && result->end; /* after a failure, the ticker accepts later */
    pthread_mutex_unlock(&link->conns.lock);
    if (open && !result->end)
        accept_next(door);
}

/* Accepts at the door if the last accept there has failed. */
static void retry_failed_accept(link_door *door)
{
    teffi_link *link = door->link;
    pthread_mutex_lock(&link->conns.lock);
    bool again = door->accept_again && !link->freeing;
    door->accept_again = false;
    pthread_mutex_unlock(&link->conns.lock);
    if (again)
        accept_next(door);
}

void teffi_accept_retry(teffi_link *link)
{
    for (int i = 0; i < TEFFI_DOORS; i++)
        retry_failed_accept(&link->doors[i]);
}

teff_err teffi_accept_listen(teffi_net *net, teffi_door which, const char *address, char *bound,
                             char *text)
{
    teffi_link *link = (teffi_link *)net;
    link_door *door = &link->doors[which];
    teffi_transport *transport = link->conns.transport;
    const char *why = "listening already";
    int port = 0;
    teff_err err = TEFF_E_INVALID;
    if (!door->listens)
        err = transport->ops->listen(transport, which, address, &port, &why);
    if (err)
        return teffi_fail(text, err, "listen on '%.256s': %s", address, why);
    const char *colon = strrchr(address, ':');
    if (teffi_address_path(address))
        snprintf(bound, TEFFI_ADDRESS_MAX + 1, "%s", address);
    else
        snprintf(bound, TEFFI_ADDRESS_MAX + 1, "%.*s:%d", (int)(colon - address), address, port);
    door->listens = true;
    return TEFF_OK;
}

void teffi_accept_begin(teffi_net *net)
{
    teffi_link *link = (teffi_link *)net;
    for (int i = 0; i < TEFFI_DOORS; i++)
        if (link->doors[i].listens)
            accept_next(&link->doors[i]);
}
