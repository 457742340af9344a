/* accept.c - the listeners and the connections that they accept. */
#include <stdio.h>
#include <string.h>
#include "base/error.h"
#include "link/steps.h"

enum { PENDING_MAX = 1024 }; /* with so many handshakes pending, an accept kills one */

/* Sets the number of conn's host: a hash of its address without the port. The key is secret, so
 * that no host can choose whose number it shares. */
static void set_host(const teffi_link *link, teffi_conn *conn)
{
    const char *colon = strrchr(conn->target, ':');
    size_t len = colon ? (size_t)(colon - conn->target) : strlen(conn->target);
    conn->host = 1 + (unsigned)(teffi_siphash(&link->secret, conn->target, len) % LINK_HOSTS);
}

/* conns.lock held. out: the number of the host with the most handshakes. */
static unsigned find_crowded_host(const teffi_conns *conns)
{
    unsigned most = 1;
    for (unsigned i = 2; i <= LINK_HOSTS; i++)
        if (conns->pending_of_host[i] > conns->pending_of_host[most])
            most = i;
    return most;
}

/* conns.lock held. If PENDING_MAX accepted connections are in their handshake, kills the oldest one
 * of the host that has the most, so that a host that opens many does not displace others. conns.all
 * lists the newest first; the walk ends at that host's oldest one. out: true: one was killed. */
static bool kill_oldest_pending_if_too_many(teffi_conns *conns)
{
    teffi_conn *oldest = NULL;
    if (conns->pending < PENDING_MAX)
        return false;
    unsigned host = find_crowded_host(conns), left = conns->pending_of_host[host];
    for (teffi_conn *c = LIST_FIRST(&conns->all); left; c = LIST_NEXT(c, link))
        if (c->host == host) {
            oldest = c;
            left--;
        }
    if (oldest) {
        oldest->liveness.given_up = true;
        teffi_conn_leave_host(oldest);
        teffi_conn_kill(oldest);
    }
    return oldest;
}

/* Creates a connection for an accepted stream, and begins to read from it. If too many other
 * connections are in their handshake, kills one of them. If there is no memory, or the link is
 * being freed, creates no connection and frees the stream. in: stream, taken over. */
static void create_conn_and_begin_read(const link_door *door, teffi_stream *stream)
{
    teffi_link *link = door->link;
    bool crowded = false;
    pthread_mutex_lock(&link->conns.lock);
    teffi_conn *conn = link->freeing ? NULL : teffi_driver_new_conn(link, false);
    if (conn) {
        conn->at_gateway = door->door == TEFFI_DOOR_GATEWAY;
        crowded = kill_oldest_pending_if_too_many(&link->conns);
        teffi_conn_attach_stream(conn, stream);
        stream->ops->remote(stream, conn->target, sizeof conn->target);
        set_host(link, conn);
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
