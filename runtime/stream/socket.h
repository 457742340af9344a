/* socket.h - the parts of the reactor transport, over sockets: streams, names, dials. */
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
    _Atomic bool closed; /* by this process */
    /* the operation of each direction, and its result */
    struct iovec room; /* where to receive */
    struct iovec pieces[TEFFI_STREAM_PIECES];
    unsigned n_pieces; /* 0: no write, but call_written */
    teffi_stream_result received, written;
} socket_stream;

/* teffi_socket_stream_new - make a stream of a socket; no edges are reported to it yet.
 * in:   fd, nonblocking, taken over. connects, NULL: fd is connected; else the side that gets the
 *       edges while fd connects: the caller adds the source to the reactor.
 * out:  NULL: no memory, fd is still the caller's. */
socket_stream *teffi_socket_stream_new(teffi_reactor *reactor, int fd, reactor_side *connects);

/* teffi_socket_stream_watch - have edges reported to the stream's own sides from now on.
 * in: stream, whose socket is connected. out: false: the kernel has no memory, or its limit of
 * watches is reached; the caller frees stream. */
bool teffi_socket_stream_watch(socket_stream *stream);

/* teffi_socket_make_failure - make the result of an operation that failed. in: e, its errno. */
teffi_stream_result teffi_socket_make_failure(int e);

/* teffi_socket_format_address - write an address as "host:port", "[v6]:port" or "unix:/path"; as
 * "unix:" if the socket has no path; as "peer" if it cannot be read. */
void teffi_socket_format_address(const struct sockaddr *address, socklen_t len, char *text,
                                 size_t n);

/* teffi_socket_open - open a nonblocking socket, with TCP_NODELAY. out: -1: see errno. */
int teffi_socket_open(int family);

/* ---- resolve.c: the addresses of a name, found on a thread that ends afterwards ---- */

enum { SOCKET_ADDRESSES = 8 };

typedef struct socket_addresses { /* the first addresses of a name */
    unsigned n;
    struct socket_address {
        struct sockaddr_storage to;
        socklen_t len;
    } at[SOCKET_ADDRESSES];
} socket_addresses;

typedef struct socket_lookup socket_lookup;

/* teffi_socket_resolve - find the addresses of a host, or of a path; may block.
 * in:   address, valid. flags, for getaddrinfo(): with AI_NUMERICHOST the call does not block, and
 *       fails for a name.
 * out:  false: found->n is 0, *why the reason. */
bool teffi_socket_resolve(const char *address, int flags, socket_addresses *found,
                          const char **why);

/* teffi_lookup_start - resolve address on another thread, which then reports an edge to side.
 * out: NULL: no memory, or no thread. */
socket_lookup *teffi_lookup_start(teffi_reactor *reactor, reactor_side *side, const char *address);

/* teffi_lookup_get_result - get the result. out: false: the lookup is not over yet. true: *found;
 * if it has no address, *why is the reason. */
bool teffi_lookup_get_result(socket_lookup *lookup, socket_addresses *found, const char **why);

/* teffi_lookup_free_when_over - free the lookup: now, or when its thread ends. Its side gets no
 * edge any more. in: lookup, may be NULL. */
void teffi_lookup_free_when_over(socket_lookup *lookup);

/* ---- socket_dial.c ---- */

teffi_stream_dial *teffi_socket_dial_new(teffi_transport *transport, const char *address,
                                         teffi_stream_done *done, void *arg);
void teffi_socket_dial_start(teffi_stream_dial *dial);
void teffi_socket_dial_cancel(teffi_stream_dial *dial);
void teffi_socket_dial_free(teffi_stream_dial *dial);
