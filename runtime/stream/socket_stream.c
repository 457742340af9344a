/* socket_stream.c - a stream over a socket. Its texts for a stream that this process or the peer
 * has closed are those of nng. */
#include "stream/socket.h"

#include <errno.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>
#include "base/bug.h"
#include "base/queue.h"

teffi_stream_result teffi_socket_make_failure(int e)
{
    const char *text = e == ESHUTDOWN ? "Connection shutdown" : strerrordesc_np(e);
    return (teffi_stream_result){.end = TEFFI_STREAM_FAILED, .text = text};
}

void teffi_socket_format_address(const struct sockaddr *address, socklen_t len, char *text,
                                 size_t n)
{
    char host[NI_MAXHOST], port[NI_MAXSERV];
    const int numbers = NI_NUMERICHOST | NI_NUMERICSERV;
    if (address->sa_family == AF_UNIX)
        snprintf(text, n, "unix:%s", ((const struct sockaddr_un *)address)->sun_path);
    else if (getnameinfo(address, len, host, sizeof host, port, sizeof port, numbers) != 0)
        snprintf(text, n, "peer");
    else
        snprintf(text, n, address->sa_family == AF_INET6 ? "[%s]:%s" : "%s:%s", host, port);
}

int teffi_socket_open(int family)
{
    int on = 1;
    int fd = socket(family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
    if (fd >= 0)
        (void)setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
    return fd;
}

/* ---- attempts ---- */

static const teffi_stream_result closed_here = {.end = TEFFI_STREAM_CLOSED,
                                                .text = "Object closed"};

/* Has this process closed the stream? */
static bool is_closed_here(const socket_stream *s)
{
    /* seq_cst: pairs with close_socket_stream(), which sets s->closed before it reports edges */
    return atomic_load_explicit(&s->closed, memory_order_seq_cst);
}

/* Receives up to n bytes. In these cases it makes the side READY again, and the next receive does
 * not wait for an edge:
 * - It received all n bytes.
 * - It failed with an error other than EAGAIN, or found the end of the peer's bytes.
 * - It received some bytes, but the peer has hung up: perhaps no further edge comes.
 * out: as recv(); but at the end of the peer's bytes, -1 with errno ESHUTDOWN. */
static ssize_t receive_bytes(socket_stream *s, void *to, size_t n)
{
    ssize_t got;
    do
        got = recv(s->source.fd, to, n, 0);
    while (got < 0 && errno == EINTR);
    if (got > 0) /* relaxed: only a hint for the next wait */
        atomic_fetch_add_explicit(&s->reactor->received, (size_t)got, memory_order_relaxed);
    else if (got == 0)
        errno = ESHUTDOWN;
    bool hung_up = atomic_load_explicit(&s->source.hung_up, memory_order_relaxed);
    if (got > 0 ? (size_t)got == n || hung_up : errno != EAGAIN)
        teffi_side_set_ready(&s->in);
    return got ? got : -1;
}

static size_t bytes_of(const struct iovec *pieces, unsigned n)
{
    size_t bytes = 0;
    while (n--)
        bytes += pieces[n].iov_len;
    return bytes;
}

/* Writes pieces. If it wrote all bytes, or failed with an error other than EAGAIN, makes the side
 * READY again, and the next write does not wait for an edge. out: as sendmsg(). */
static ssize_t write_bytes(socket_stream *s, const struct iovec *pieces, unsigned n)
{
    struct msghdr msg = {.msg_iov = (struct iovec *)(uintptr_t)pieces, .msg_iovlen = n};
    ssize_t sent;
    do
        sent = sendmsg(s->source.fd, &msg, MSG_NOSIGNAL);
    while (sent < 0 && errno == EINTR);
    if (sent < 0 ? errno != EAGAIN : (size_t)sent == bytes_of(pieces, n))
        teffi_side_set_ready(&s->out);
    return sent;
}

/* Sets *result to the outcome of the operation's system call. in: bytes: what the system call
 * returned; if this is negative, errno is its error. out: false: *result is not set, because the
 * operation must wait for an edge. */
static bool set_result_if_over(const socket_stream *s, teffi_stream_result *result, ssize_t bytes)
{
    if (bytes < 0 && errno == EAGAIN)
        return false;
    if (bytes >= 0)
        *result = (teffi_stream_result){.bytes = (size_t)bytes};
    else
        *result = is_closed_here(s) ? closed_here : teffi_socket_make_failure(errno);
    return true;
}

/* If this process has closed the stream, sets *result to CLOSED, and makes the side READY again, so
 * that later operations end, too. out: true: the stream is closed. */
static bool set_result_if_closed(const socket_stream *s, reactor_side *side,
                                 teffi_stream_result *result)
{
    if (!is_closed_here(s))
        return false;
    *result = closed_here;
    teffi_side_set_ready(side);
    return true;
}

static bool attempt_receive(reactor_side *side)
{
    socket_stream *s = teffi_container(side, socket_stream, in);
    return set_result_if_closed(s, side, &s->received) ||
           set_result_if_over(s, &s->received, receive_bytes(s, s->room.iov_base, s->room.iov_len));
}

static bool attempt_write(reactor_side *side)
{
    socket_stream *s = teffi_container(side, socket_stream, out);
    s->written = (teffi_stream_result){0};
    if (s->n_pieces == 0) {
        /* a write of no pieces, from begin_empty_write(), used no buffer space: the next write
         * need not wait for an edge */
        teffi_side_set_ready(side);
        return true;
    }
    return set_result_if_closed(s, side, &s->written) ||
           set_result_if_over(s, &s->written, write_bytes(s, s->pieces, s->n_pieces));
}

static void report_receive_result(reactor_side *side)
{
    socket_stream *s = teffi_container(side, socket_stream, in);
    teffi_stream_result result = s->received;
    s->stream.received(s->stream.arg, &result);
}

static void report_write_result(reactor_side *side)
{
    socket_stream *s = teffi_container(side, socket_stream, out);
    teffi_stream_result result = s->written;
    s->stream.written(s->stream.arg, &result);
}

/* ---- operations ---- */

static bool begin_receive(teffi_stream *stream, void *to, size_t n)
{
    socket_stream *s = (socket_stream *)stream;
    s->room = (struct iovec){to, n};
    teffi_reactor_begin_wait(s->reactor, &s->in);
    return true;
}

static bool begin_write(teffi_stream *stream, const struct iovec *pieces, unsigned n)
{
    socket_stream *s = (socket_stream *)stream;
    memcpy(s->pieces, pieces, n * sizeof *pieces);
    s->n_pieces = n;
    teffi_reactor_begin_wait(s->reactor, &s->out);
    return true;
}

static size_t receive_without_waiting(teffi_stream *stream, void *to, size_t n)
{
    socket_stream *s = (socket_stream *)stream;
    teffi_side_clear_ready(&s->in);
    ssize_t got = receive_bytes(s, to, n);
    return got > 0 ? (size_t)got : 0;
}

static size_t write_without_waiting(teffi_stream *stream, const struct iovec *pieces, unsigned n)
{
    socket_stream *s = (socket_stream *)stream;
    teffi_side_clear_ready(&s->out);
    ssize_t sent = write_bytes(s, pieces, n);
    return sent > 0 ? (size_t)sent : 0;
}

/* Begins a write of no pieces and makes its side READY, so attempt_write() ends it at once. Begins
 * the wait last, because from then on the callback may run and another thread may free the
 * stream. */
static void begin_empty_write(teffi_stream *stream)
{
    socket_stream *s = (socket_stream *)stream;
    s->n_pieces = 0;
    teffi_reactor_report_edge(s->reactor, &s->out);
    teffi_reactor_begin_wait(s->reactor, &s->out);
}

static void format_peer_address(teffi_stream *stream, char *text, size_t n)
{
    struct sockaddr_storage address = {0};
    socklen_t len = sizeof address;
    (void)getpeername(((socket_stream *)stream)->source.fd, (struct sockaddr *)&address, &len);
    teffi_socket_format_address((struct sockaddr *)&address, len, text, n);
}

/* Shuts the socket down, and reports edges, so that the operations under way end. The descriptor
 * stays open until the stream is freed, because other threads may still use its number. */
static void close_socket_stream(teffi_stream *stream)
{
    socket_stream *s = (socket_stream *)stream;
    if (atomic_exchange_explicit(&s->closed, true, memory_order_seq_cst))
        return;
    (void)shutdown(s->source.fd, SHUT_RDWR);
    teffi_reactor_report_edge(s->reactor, &s->in);
    teffi_reactor_report_edge(s->reactor, &s->out);
}

/* Closes the stream. The reactor frees it later, because the thread that polls may still have
 * events for it. */
static void close_and_free_stream_later(teffi_stream *stream)
{
    socket_stream *s = (socket_stream *)stream;
    teffi_bug_if((s->in.word | s->out.word) & SIDE_WAITS);
    close_socket_stream(stream);
    teffi_reactor_free_source_later(s->reactor, &s->source);
}

static void free_socket_memory(reactor_source *source)
{
    free(teffi_container(source, socket_stream, source));
}

static const teffi_stream_ops socket_stream_ops = {
    .receive = begin_receive,
    .write = begin_write,
    .receive_now = receive_without_waiting,
    .write_now = write_without_waiting,
    .call_written = begin_empty_write,
    .remote = format_peer_address,
    .close = close_socket_stream,
    .free = close_and_free_stream_later,
};

socket_stream *teffi_socket_stream_new(teffi_reactor *reactor, int fd, reactor_side *connects)
{
    socket_stream *s = calloc(1, sizeof *s);
    if (!s)
        return NULL;
    s->stream = (teffi_stream){.ops = &socket_stream_ops, .tries = true};
    s->reactor = reactor;
    s->in = (reactor_side){.attempt = attempt_receive, .ended = report_receive_result};
    s->out = (reactor_side){.attempt = attempt_write, .ended = report_write_result};
    s->source = (reactor_source){.fd = fd, .out = connects, .free = free_socket_memory};
    return s;
}

bool teffi_socket_stream_watch(socket_stream *s)
{
    bool again = s->source.out != NULL; /* true: the source was added when the dial began */
    s->source.in = &s->in;
    s->source.out = &s->out;
    return teffi_reactor_watch(s->reactor, &s->source, true, again);
}
