/* socket.h - the parts of the transport over sockets: streams, names, dials. */
#pragma once

#include <netdb.h>
#include <sys/socket.h>
#include "stream/reactor.h"
#include "stream/stream.h"

/* ---- socket_stream.c ---- */

typedef struct socket_stream {
    teffi_stream stream; /* first */
    teffi_reactor *reactor;
    reactor_source source;
    reactor_side in, out;
    _Atomic bool closed; /* by this side */
    /* the operation of each direction, and its result */
    struct iovec room, pieces[TEFFI_STREAM_PIECES];
    unsigned n_pieces; /* 0: call_written */
    teffi_stream_result received, written;
} socket_stream;

/* teffi_socket_stream_new - in: fd, nonblocking, taken over. connects: NULL; or, if the caller adds
 * the source to the reactor, the side that gets its edges until teffi_socket_stream_connected().
 * out:  NULL: no memory, fd is still the caller's. */
socket_stream *teffi_socket_stream_new(teffi_reactor *reactor, int fd, reactor_side *connects);

/* teffi_socket_stream_connected - have edges reported to the stream's own sides from now on.
 * out: false: no memory in the kernel. */
bool teffi_socket_stream_connected(socket_stream *stream);

/* teffi_socket_failure - make the result of an operation that failed with errno e. */
teffi_stream_result teffi_socket_failure(int e);

/* teffi_socket_text - write an address as "host:port", "[v6]:port" or "unix:/path"; just "unix:"
 * for a socket without a path. */
void teffi_socket_text(const struct sockaddr *address, socklen_t len, char *text, size_t n);

/* teffi_socket_open - open a nonblocking socket that sends without delay. out: -1: see errno. */
int teffi_socket_open(int family);

/* ---- resolve.c: the addresses of a name, found on a thread that ends afterwards ---- */

enum { SOCKET_ADDRESSES = 8 };

typedef struct socket_addresses { /* the first ones of a name */
    unsigned n;
    struct socket_address {
        struct sockaddr_storage to;
        socklen_t len;
    } at[SOCKET_ADDRESSES];
} socket_addresses;

typedef struct socket_lookup socket_lookup;

/* teffi_socket_resolve - find the addresses of a host, or of a path. in: address, valid; flags, of
 * getaddrinfo: with AI_NUMERICHOST a name fails, and the call does not block. out: false: none were
 * found, *why: the reason. */
bool teffi_socket_resolve(const char *address, int flags, socket_addresses *found,
                          const char **why);

/* teffi_lookup_start - resolve address on a thread, then report an edge to side.
 * out: NULL: no memory, or no thread. */
socket_lookup *teffi_lookup_start(teffi_reactor *reactor, reactor_side *side, const char *address);

/* teffi_lookup_take - get the result. out: false: the lookup is not over yet. true: *found; if it
 * is empty, *why: the reason. */
bool teffi_lookup_take(socket_lookup *lookup, socket_addresses *found, const char **why);

/* teffi_lookup_end - free the lookup, now or when its thread ends; side gets no edge any more.
 * in: may be NULL. */
void teffi_lookup_end(socket_lookup *lookup);

/* ---- socket_dial.c ---- */

teffi_stream_dial *teffi_socket_dial_new(teffi_transport *transport, const char *address,
                                         teffi_stream_done *done, void *arg);
void teffi_socket_dial_start(teffi_stream_dial *dial);
void teffi_socket_dial_cancel(teffi_stream_dial *dial);
void teffi_socket_dial_free(teffi_stream_dial *dial);
