/* socket.c - the reactor transport, over sockets: its listeners. */
#include "stream/socket.h"

#include <errno.h>
#include <netinet/in.h>
#include <pthread.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>
#include "base/error.h"
#include "base/queue.h"

enum { BACKLOG = 1024 };

struct socket_transport;

typedef struct socket_door {
    struct socket_transport *transport;
    teffi_door door;
    reactor_source listener; /* fd -1: none */
    reactor_side accepts;
    _Atomic bool closed;          /* set before the socket is shut down */
    teffi_stream_result accepted; /* passes from attempt_accept() to report_accept_result() */
} socket_door;

typedef struct socket_transport {
    teffi_transport transport; /* first */
    teffi_reactor *reactor;
    socket_door doors[TEFFI_DOORS];
    pthread_mutex_t lock; /* held during a callback of accept */
    bool stopped;         /* guarded by lock: no more callbacks */
} socket_transport;

/* ---- accepting ---- */

/* Did accept() fail for one connection only, or because of a signal? in: e, its errno. */
static bool should_accept_again(int e)
{
    return e == ECONNABORTED || e == EPROTO || e == EINTR || e == EPERM;
}

/* Makes a stream of an accepted socket. in: fd, taken over. out: the stream, or a failure. */
static teffi_stream_result adopt_socket(socket_transport *t, int fd)
{
    socket_stream *s = teffi_socket_stream_new(t->reactor, fd, NULL);
    if (!s) {
        close(fd);
        return teffi_socket_make_failure(ENOMEM);
    }
    if (teffi_socket_stream_watch(s))
        return (teffi_stream_result){.stream = &s->stream};
    s->stream.ops->free(&s->stream);
    return teffi_socket_make_failure(ENOMEM);
}

/* Accepts a connection, if one is queued. out: true: the accept has ended, with the result
 * door->accepted. false: it waits for an edge. */
static bool attempt_accept(reactor_side *side)
{
    socket_door *door = teffi_container(side, socket_door, accepts);
    bool closed;
    int fd, e;
    do {
        fd = accept4(door->listener.fd, NULL, NULL, SOCK_NONBLOCK | SOCK_CLOEXEC);
        e = errno;
        /* loaded after accept4(), so that `closed` is true if close_listener() made accept4() fail.
         * seq_cst: pairs with close_listener() */
        closed = atomic_load_explicit(&door->closed, memory_order_seq_cst);
    } while (fd < 0 && !closed && should_accept_again(e));
    if (fd < 0 && !closed && e == EAGAIN)
        return false;
    /* The next accept must be attempted without an edge: more connections may be queued, or the
     * listener is closed and no edge follows. */
    teffi_side_set_ready(side);
    if (fd >= 0)
        door->accepted = adopt_socket(door->transport, fd);
    else if (closed)
        door->accepted = (teffi_stream_result){.end = TEFFI_STREAM_CLOSED, .text = "closed"};
    else
        door->accepted = teffi_socket_make_failure(e);
    return true;
}

/* Reports the result of the accept. If callbacks were stopped, frees the accepted stream instead.
 * Holds the lock during the callback: close_listeners_and_stop_callbacks() must wait for it. */
static void report_accept_result(reactor_side *side)
{
    socket_door *door = teffi_container(side, socket_door, accepts);
    socket_transport *t = door->transport;
    teffi_stream_result result = door->accepted;
    pthread_mutex_lock(&t->lock);
    if (!t->stopped)
        t->transport.accepted(t->transport.door_arg[door->door], &result);
    else if (result.stream)
        result.stream->ops->free(result.stream);
    pthread_mutex_unlock(&t->lock);
}

static void begin_accept(teffi_transport *transport, teffi_door which)
{
    socket_transport *t = (socket_transport *)transport;
    teffi_reactor_begin_wait(t->reactor, &t->doors[which].accepts);
}

/* ---- the listeners ---- */

/* Binds fd to address. If a listener that has ended left its socket file at the address, removes
 * this file first. out: false: see errno. */
static bool bind_socket(int fd, const struct socket_address *address)
{
    const struct sockaddr *to = (const struct sockaddr *)&address->to;
    const char *path = ((const struct sockaddr_un *)to)->sun_path;
    if (to->sa_family == AF_UNIX && teffi_path_is_free(path))
        (void)unlink(path);
    return bind(fd, to, address->len) == 0;
}

/* out: a socket that listens; -1: see errno. */
static int open_listener_socket(const struct socket_address *address)
{
    int on = 1;
    int fd = teffi_socket_open(address->to.ss_family);
    if (fd < 0)
        return -1;
    (void)setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
    if (bind_socket(fd, address) && listen(fd, BACKLOG) == 0)
        return fd;
    int e = errno;
    close(fd);
    errno = e;
    return -1;
}

/* out: the port that the socket is bound to; 0 if it is bound to a path. */
static int get_bound_port(int fd)
{
    struct sockaddr_in6 address = {0};
    socklen_t len = sizeof address;
    (void)getsockname(fd, (struct sockaddr *)&address, &len);
    bool tcp = address.sin6_family != AF_UNIX;
    return tcp ? ntohs(address.sin6_port) : 0; /* the port of sockaddr_in has the same offset */
}

/* Removes the socket file that fd is bound to, if fd is a Unix socket. */
static void remove_socket_file(int fd)
{
    struct sockaddr_un address = {0};
    socklen_t len = sizeof address;
    if (getsockname(fd, (struct sockaddr *)&address, &len) == 0 && address.sun_family == AF_UNIX)
        (void)unlink(address.sun_path);
}

/* If the listener has a socket, closes the socket and removes the socket file. in: listener, which
 * is not in the epoll set. */
static void close_unpolled_listener(reactor_source *listener)
{
    if (listener->fd < 0)
        return;
    remove_socket_file(listener->fd);
    close(listener->fd);
    listener->fd = -1;
}

static teff_err listen_on(teffi_transport *transport, teffi_door which, const char *address,
                          int *port, const char **why)
{
    socket_transport *t = (socket_transport *)transport;
    reactor_source *listener = &t->doors[which].listener;
    socket_addresses found;
    *why = "not an address of the form " TEFFI_ADDRESS_EXPECTED;
    if (!teffi_address_is_valid(address) || !teffi_socket_resolve(address, AI_PASSIVE, &found, why))
        return TEFF_E_INVALID;
    listener->fd = open_listener_socket(&found.at[0]);
    bool ok = listener->fd >= 0 && teffi_reactor_watch(t->reactor, listener, true, false);
    int e = ok ? 0 : errno;
    if (ok) {
        *port = get_bound_port(listener->fd);
    } else {
        *why = teffi_socket_make_failure(e).text;
        close_unpolled_listener(listener);
    }
    return ok ? TEFF_OK : e == EADDRNOTAVAIL ? TEFF_E_INVALID : TEFF_E_IO;
}

/* Closes the door's listener: shuts its socket down and removes the socket file. Reports an edge,
 * so that the accept under way ends. The descriptor stays open until the transport is freed,
 * because the thread that polls may still pass it to accept4(). */
static void close_listener(socket_door *door)
{
    int fd = door->listener.fd;
    if (fd < 0 || atomic_exchange_explicit(&door->closed, true, memory_order_seq_cst))
        return;
    remove_socket_file(fd);
    (void)shutdown(fd, SHUT_RDWR);
    teffi_reactor_report_edge(door->transport->reactor, &door->accepts);
}

static void close_all_listeners(teffi_transport *transport)
{
    socket_transport *t = (socket_transport *)transport;
    for (int i = 0; i < TEFFI_DOORS; i++)
        close_listener(&t->doors[i]);
}

/* Closes the listeners, and prevents further callbacks of accept. Waits for a running callback:
 * report_accept_result() holds the lock during the callback. */
static void close_listeners_and_stop_callbacks(teffi_transport *transport)
{
    socket_transport *t = (socket_transport *)transport;
    close_all_listeners(transport);
    pthread_mutex_lock(&t->lock);
    t->stopped = true;
    pthread_mutex_unlock(&t->lock);
}

/* ---- the transport ---- */

static void free_socket_transport(teffi_transport *transport)
{
    socket_transport *t = (socket_transport *)transport;
    for (int i = 0; i < TEFFI_DOORS; i++)
        if (t->doors[i].listener.fd >= 0)
            close(t->doors[i].listener.fd);
    teffi_reactor_free(t->reactor);
    pthread_mutex_destroy(&t->lock);
    free(t);
}

static const teffi_transport_ops socket_transport_ops = {
    .dial_new = teffi_socket_dial_new,
    .dial_start = teffi_socket_dial_start,
    .dial_cancel = teffi_socket_dial_cancel,
    .dial_free = teffi_socket_dial_free,
    .listen = listen_on,
    .accept = begin_accept,
    .close_listeners = close_all_listeners,
    .stop_listeners = close_listeners_and_stop_callbacks,
    .free = free_socket_transport,
};

teff_err teffi_socket_transport_new(const teffi_platform *platform, teffi_transport **transport,
                                    char *text)
{
    socket_transport *t = calloc(1, sizeof *t);
    *transport = NULL;
    teffi_reactor *reactor = t ? teffi_reactor_new(platform) : NULL;
    if (!reactor) {
        free(t);
        return teffi_fail(text, TEFF_E_IO, "link: no epoll set: out of memory or descriptors");
    }
    pthread_mutex_init(&t->lock, NULL);
    t->transport = (teffi_transport){.ops = &socket_transport_ops, .poller = &reactor->poller};
    t->reactor = reactor;
    for (int i = 0; i < TEFFI_DOORS; i++) {
        socket_door *door = &t->doors[i];
        *door = (socket_door){.transport = t, .door = (teffi_door)i};
        door->accepts = (reactor_side){.attempt = attempt_accept, .ended = report_accept_result};
        door->listener = (reactor_source){.fd = -1, .in = &door->accepts};
    }
    *transport = &t->transport;
    return TEFF_OK;
}
