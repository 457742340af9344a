/* nng_stream.c - a stream over nng's. nng never completes an operation that is submitted after the
 * close, and with TLS such an operation cannot be cancelled either. So each direction has a lock,
 * `gate`: an operation is submitted under it, unless `shut` is set; the close takes both gates to
 * set `shut`. */
#include "stream/nng.h"

#include <arpa/inet.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>

/* One direction. */
typedef struct nng_side {
    pthread_mutex_t gate;
    nng_aio *aio;     /* of receive or write; has a callback */
    nng_aio *now_aio; /* of receive_now or write_now; no callback; NULL with TLS */
} nng_side;

typedef struct nng_bytes {
    teffi_stream stream; /* first */
    nng_stream *nng;
    nng_side in, out;
    bool shut; /* written under both gates, read under either */
} nng_bytes;

teffi_stream_result teffi_nng_make_result(nng_aio *aio)
{
    int rv = nng_aio_result(aio);
    teffi_stream_end end = TEFFI_STREAM_FAILED;
    if (rv == 0)
        return (teffi_stream_result){.end = TEFFI_STREAM_OK, .bytes = nng_aio_count(aio)};
    if (rv == NNG_ECLOSED || rv == NNG_ECANCELED)
        end = TEFFI_STREAM_CLOSED;
    else if (rv == NNG_EPEERAUTH)
        end = TEFFI_STREAM_NO_CERTIFICATE;
    else if (rv == NNG_ECRYPTO)
        end = TEFFI_STREAM_NO_TLS;
    return (teffi_stream_result){.end = end, .text = nng_strerror(rv)};
}

static void on_nng_received(void *arg)
{
    nng_bytes *b = arg;
    teffi_stream_result result = teffi_nng_make_result(b->in.aio);
    b->stream.received(b->stream.arg, &result);
}

static void on_nng_written(void *arg)
{
    nng_bytes *b = arg;
    teffi_stream_result result = teffi_nng_make_result(b->out.aio);
    b->stream.written(b->stream.arg, &result);
}

/* ---- operations ---- */

/* Submits an operation, unless the stream is closed. out: false if it is closed: the operation was
 * not submitted, and no callback will run. */
static bool submit_to_nng(nng_bytes *b, nng_side *side, void (*start)(nng_stream *, nng_aio *),
                          nng_aio *aio)
{
    pthread_mutex_lock(&side->gate);
    bool open = !b->shut;
    if (open)
        start(b->nng, aio);
    pthread_mutex_unlock(&side->gate);
    return open;
}

/* Transfers as many bytes as the socket can send or receive now. nng transfers them inside start(),
 * and wakes no thread. If the result and the count are both 0 after start(), the operation is
 * pending, and this function aborts it. nng_aio_wait() then waits only until nng has ended the
 * operation, not for the socket. The operation may complete before the abort, so its final result
 * is used.
 * out: number of bytes transferred; 0 also after an error. */
static size_t transfer_bytes_nonblocking(nng_bytes *b, nng_side *side,
                                         void (*start)(nng_stream *, nng_aio *))
{
    nng_aio *aio = side->now_aio;
    if (!submit_to_nng(b, side, start, aio))
        return 0;
    if (nng_aio_result(aio) == 0 && nng_aio_count(aio) == 0)
        nng_aio_abort(aio, NNG_ECANCELED);
    nng_aio_wait(aio);
    return nng_aio_result(aio) == 0 ? nng_aio_count(aio) : 0;
}

/* Sets the memory that the next operation of aio writes from or receives into. */
static void set_aio_pieces(nng_aio *aio, const struct iovec *pieces, unsigned n)
{
    nng_iov iov[TEFFI_STREAM_PIECES];
    for (unsigned i = 0; i < n; i++)
        iov[i] = (nng_iov){pieces[i].iov_base, pieces[i].iov_len};
    nng_aio_set_iov(aio, n, iov);
}

static bool start_nng_receive(teffi_stream *stream, void *to, size_t n)
{
    nng_bytes *b = (nng_bytes *)stream;
    set_aio_pieces(b->in.aio, &(struct iovec){to, n}, 1);
    return submit_to_nng(b, &b->in, nng_stream_recv, b->in.aio);
}

static bool start_nng_write(teffi_stream *stream, const struct iovec *pieces, unsigned n)
{
    nng_bytes *b = (nng_bytes *)stream;
    set_aio_pieces(b->out.aio, pieces, n);
    return submit_to_nng(b, &b->out, nng_stream_send, b->out.aio);
}

static size_t receive_now_by_nng(teffi_stream *stream, void *to, size_t n)
{
    nng_bytes *b = (nng_bytes *)stream;
    set_aio_pieces(b->in.now_aio, &(struct iovec){to, n}, 1);
    return transfer_bytes_nonblocking(b, &b->in, nng_stream_recv);
}

static size_t write_now_by_nng(teffi_stream *stream, const struct iovec *pieces, unsigned n)
{
    nng_bytes *b = (nng_bytes *)stream;
    set_aio_pieces(b->out.now_aio, pieces, n);
    return transfer_bytes_nonblocking(b, &b->out, nng_stream_send);
}

/* Starts a sleep of 0 ms on the write aio. When the sleep ends, nng calls on_nng_written(), which
 * calls the stream's `written`. */
static void schedule_written_callback(teffi_stream *stream)
{
    nng_sleep_aio(0, ((nng_bytes *)stream)->out.aio);
}

static void format_nng_peer_address(teffi_stream *stream, char *text, size_t n)
{
    nng_sockaddr sa;
    char host[INET6_ADDRSTRLEN] = "?";
    if (nng_stream_get_addr(((nng_bytes *)stream)->nng, NNG_OPT_REMADDR, &sa) != 0)
        sa.s_family = NNG_AF_UNSPEC;
    if (sa.s_family == NNG_AF_INET) {
        inet_ntop(AF_INET, &sa.s_in.sa_addr, host, sizeof host);
        snprintf(text, n, "%s:%u", host, ntohs(sa.s_in.sa_port));
    } else if (sa.s_family == NNG_AF_INET6) {
        inet_ntop(AF_INET6, sa.s_in6.sa_addr, host, sizeof host);
        snprintf(text, n, "[%s]:%u", host, ntohs(sa.s_in6.sa_port));
    } else if (sa.s_family == NNG_AF_IPC) {
        snprintf(text, n, "unix:%s", sa.s_ipc.sa_path);
    } else {
        snprintf(text, n, "peer");
    }
}

/* ---- the end ---- */

/* Closes the stream, which ends the operations under way. No operation is submitted after
 * nng_stream_close(): submit_to_nng() reads `shut` under one gate, and this function first sets
 * `shut` under both gates. */
static void close_nng_stream(teffi_stream *stream)
{
    nng_bytes *b = (nng_bytes *)stream;
    pthread_mutex_lock(&b->in.gate);
    pthread_mutex_lock(&b->out.gate);
    bool first = !b->shut;
    b->shut = true;
    pthread_mutex_unlock(&b->out.gate);
    pthread_mutex_unlock(&b->in.gate);
    if (first)
        nng_stream_close(b->nng);
}

static void fini_nng_side(nng_side *side)
{
    nng_aio_free(side->aio);
    nng_aio_free(side->now_aio);
    pthread_mutex_destroy(&side->gate);
}

static void free_nng_stream(teffi_stream *stream)
{
    nng_bytes *b = (nng_bytes *)stream;
    fini_nng_side(&b->in);
    fini_nng_side(&b->out);
    if (b->nng)
        nng_stream_free(b->nng);
    free(b);
}

static const teffi_stream_ops stream_ops = {
    .receive = start_nng_receive,
    .write = start_nng_write,
    .receive_now = receive_now_by_nng,
    .write_now = write_now_by_nng,
    .call_written = schedule_written_callback,
    .remote = format_nng_peer_address,
    .close = close_nng_stream,
    .free = free_nng_stream,
};

static bool init_nng_side(nng_side *side, void (*done)(void *arg), nng_bytes *b)
{
    pthread_mutex_init(&side->gate, NULL);
    return nng_aio_alloc(&side->aio, done, b) == 0 &&
           (!b->stream.tries || nng_aio_alloc(&side->now_aio, NULL, NULL) == 0);
}

teffi_stream *teffi_nng_stream_new(nng_stream *stream, bool plain)
{
    nng_bytes *b = calloc(1, sizeof *b);
    if (!b)
        return NULL;
    b->stream.ops = &stream_ops;
    b->stream.tries = plain;
    /* init_nng_side() is called for both sides, even if it fails for the first: free_nng_stream()
     * calls fini_nng_side() for both */
    bool in = init_nng_side(&b->in, on_nng_received, b);
    if (!init_nng_side(&b->out, on_nng_written, b) || !in) {
        free_nng_stream(&b->stream);
        return NULL;
    }
    b->nng = stream;
    return &b->stream;
}
