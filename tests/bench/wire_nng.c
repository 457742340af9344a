/* wire_nng.c - nng's own streams beside the link, in two processes over TCP loopback: a blocking
 * round trip, and 64 KiB at a time one way. No frames, no queues, one thread a side.
 * Way:     bench.c -> [wire_nng] -> nng stream ===> a child process */
#include "wire_rows.h"

#include <nng/nng.h>
#include <stdio.h>
#include <stdlib.h>
#include "child.h"

enum { SMALL = 64 };

/* What the child is to do: n times take size bytes, and respond to each with reply bytes; then one
 * byte. */
typedef struct order {
    uint64_t n, size, reply;
} order;

typedef struct wire {
    nng_stream *stream;
    nng_aio *aio;
    uint8_t *bytes;
} wire;

static void check(int rv, const char *what)
{
    if (rv == 0)
        return;
    fprintf(stderr, "bench: nng, %s: %s\n", what, nng_strerror(rv));
    exit(1);
}

static void move(wire *w, void *bytes, size_t n, void (*start)(nng_stream *, nng_aio *))
{
    for (size_t done = 0; done < n;) {
        nng_iov iov = {(uint8_t *)bytes + done, n - done};
        nng_aio_set_iov(w->aio, 1, &iov);
        start(w->stream, w->aio);
        nng_aio_wait(w->aio);
        check(nng_aio_result(w->aio), "a stream");
        done += nng_aio_count(w->aio);
    }
}

static void open_wire(wire *w, nng_stream *stream)
{
    *w = (wire){.stream = stream, .bytes = calloc(1, BENCH_BLOB)};
    check(nng_aio_alloc(&w->aio, NULL, NULL), "memory");
}

static void close_wire(wire *w)
{
    nng_stream_close(w->stream);
    nng_aio_free(w->aio);
    nng_stream_free(w->stream);
    free(w->bytes);
}

int bench_nng_child(const char *url)
{
    nng_stream_dialer *dialer;
    nng_aio *aio;
    order what;
    wire w;
    check(nng_stream_dialer_alloc(&dialer, url), "a dialer");
    nng_stream_dialer_set_bool(dialer, NNG_OPT_TCP_NODELAY, true);
    check(nng_aio_alloc(&aio, NULL, NULL), "memory");
    printf("ready\n");
    fflush(stdout);
    nng_stream_dialer_dial(dialer, aio);
    nng_aio_wait(aio);
    check(nng_aio_result(aio), "dial");
    open_wire(&w, nng_aio_get_output(aio, 0));
    for (move(&w, &what, sizeof what, nng_stream_recv); what.n;
         move(&w, &what, sizeof what, nng_stream_recv)) {
        for (uint64_t i = 0; i < what.n; i++) {
            move(&w, w.bytes, what.size, nng_stream_recv);
            move(&w, w.bytes, what.reply, nng_stream_send);
        }
        move(&w, w.bytes, 1, nng_stream_send);
    }
    close_wire(&w);
    nng_aio_free(aio);
    nng_stream_dialer_free(dialer);
    return 0;
}

static double take(wire *w, order what)
{
    uint64_t begin = bench_now_ns();
    move(w, &what, sizeof what, nng_stream_send);
    for (uint64_t i = 0; i < what.n; i++) {
        move(w, w->bytes, what.size, nng_stream_send);
        move(w, w->bytes, what.reply, nng_stream_recv);
    }
    move(w, w->bytes, 1, nng_stream_recv);
    return (double)(bench_now_ns() - begin) / (double)what.n;
}

static void row(const bench *b, wire *w, const char *name, order what)
{
    double values[RUNS_MAX];
    char parameters[100];
    if (!bench_wanted(b, name))
        return;
    while (what.n < UINT32_MAX && take(w, what) * (double)what.n < b->seconds * 1e9 / 4)
        what.n *= 4;
    for (int r = 0; r < b->runs; r++)
        values[r] = take(w, what);
    snprintf(parameters, sizeof parameters, "\"bytes\":%llu,\"operations\":%llu",
             (unsigned long long)what.size, (unsigned long long)what.n);
    bench_print(b, name, parameters, "ns/operation", values, b->runs);
}

static nng_stream *accept_child(bench_child *child)
{
    nng_stream_listener *listener;
    nng_aio *aio;
    char url[64];
    const char *args[] = {"--nng", url, NULL};
    int port = 0;
    check(nng_stream_listener_alloc(&listener, "tcp://127.0.0.1:0"), "a listener");
    nng_stream_listener_set_bool(listener, NNG_OPT_TCP_NODELAY, true);
    check(nng_stream_listener_listen(listener), "listen");
    check(nng_stream_listener_get_int(listener, NNG_OPT_TCP_BOUND_PORT, &port), "the port");
    snprintf(url, sizeof url, "tcp://127.0.0.1:%d", port);
    check(nng_aio_alloc(&aio, NULL, NULL), "memory");
    nng_stream_listener_accept(listener, aio);
    if (!bench_child_start(child, args))
        bench_fatal(NULL, TEFF_E_IO);
    nng_aio_wait(aio);
    check(nng_aio_result(aio), "accept");
    nng_stream *stream = nng_aio_get_output(aio, 0);
    nng_aio_free(aio);
    nng_stream_listener_free(listener);
    return stream;
}

void bench_nng(const bench *b)
{
    static const char *const names[] = {"nng-round-trip", "nng-64KiB-call", "nng-64KiB-one-way"};
    const order orders[] = {{64, SMALL, SMALL}, {64, BENCH_BLOB, BENCH_BLOB}, {64, BENCH_BLOB, 0}};
    bool any = false;
    for (int i = 0; i < 3; i++)
        any |= bench_wanted(b, names[i]);
    if (!any)
        return;
    wire w;
    bench_child child;
    open_wire(&w, accept_child(&child));
    for (int i = 0; i < 3; i++)
        row(b, &w, names[i], orders[i]);
    move(&w, &(order){0}, sizeof(order), nng_stream_send);
    bench_child_stop(&child);
    close_wire(&w);
}
