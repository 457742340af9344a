/* test_stream.c - the contract of streams, on each transport. */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <sys/wait.h>
#include <unistd.h>
#include "os/thread.h"
#include "stream_lab.h"

static void a_receive_gets_what_came_before(void **state)
{
    lab_end a, b;
    char got[8];
    lab_pair(*state, &a, &b);
    lab_send(&a, "abc", 3);
    lab_drain(&b, 2);
    teffi_stream_result result = lab_receive(&b, got, sizeof got);
    assert_int_equal(result.end, TEFFI_STREAM_OK);
    assert_int_equal(result.bytes, 1);
    assert_int_equal(got[0], 'c');
    lab_pair_free(&a, &b);
}

static void pieces_arrive_in_order(void **state)
{
    lab_end a, b;
    char got[2 * TEFFI_STREAM_PIECES + 1] = "";
    struct iovec pieces[TEFFI_STREAM_PIECES];
    static char text[] = "0123456789abcdef";
    for (size_t i = 0; i < TEFFI_STREAM_PIECES; i++)
        pieces[i] = (struct iovec){text + 2 * i, 2};
    lab_pair(*state, &a, &b);
    assert_int_equal(lab_write(&a, pieces, TEFFI_STREAM_PIECES).bytes, 2 * TEFFI_STREAM_PIECES);
    for (size_t at = 0; at < sizeof text - 1;)
        at += lab_receive(&b, got + at, sizeof text - 1 - at).bytes;
    assert_string_equal(got, text);
    lab_pair_free(&a, &b);
}

static void data_before_the_peers_close_arrive(void **state)
{
    lab_end a, b;
    char got[8];
    lab_pair(*state, &a, &b);
    lab_send(&a, "last", 4);
    a.stream->ops->close(a.stream);
    teffi_stream_result result = lab_receive(&b, got, sizeof got);
    assert_int_equal(result.end, TEFFI_STREAM_OK);
    assert_memory_equal(got, "last", 4);
    for (unsigned i = 0; i < 3; i++) {
        result = lab_receive(&b, got, sizeof got);
        assert_int_equal(result.end, TEFFI_STREAM_FAILED);
        assert_non_null(result.text);
    }
    assert_int_equal(b.stream->ops->receive_now(b.stream, got, sizeof got), 0);
    assert_int_equal(lab_receive(&b, got, sizeof got).end, TEFFI_STREAM_FAILED);
    lab_pair_free(&a, &b);
}

static void close_ends_each_operation_once(void **state)
{
    lab_end a, b;
    char got[8];
    struct iovec piece = {got, sizeof got};
    lab_pair(*state, &a, &b);
    (void)lab_fill(&a);
    assert_true(a.stream->ops->receive(a.stream, got, sizeof got));
    while (a.stream->ops->write(a.stream, &piece, 1) && a.out.calls)
        lab_await(&a.out, a.out.calls);
    a.stream->ops->close(a.stream);
    a.stream->ops->close(a.stream);
    assert_int_equal(lab_await(&a.in, 1).end, TEFFI_STREAM_CLOSED);
    (void)lab_await(&a.out, 1); /* the peer's kernel may have made room meanwhile */
    lab_settle(*state);
    assert_int_equal(a.in.calls, 1);
    assert_int_equal(a.out.calls, 1);
    lab_pair_free(&a, &b);
}

static void operations_end_after_close(void **state)
{
    lab_end a, b;
    char got[8];
    struct iovec piece = {got, sizeof got};
    lab_pair(*state, &a, &b);
    assert_true(a.stream->ops->receive(a.stream, got, sizeof got));
    a.stream->ops->close(a.stream);
    assert_int_equal(lab_await(&a.in, 1).end, TEFFI_STREAM_CLOSED);
    lab_settle(*state); /* what the kernel reports of the close has come */
    for (unsigned i = 0; i < 3; i++) {
        assert_int_equal(lab_receive(&a, got, sizeof got).end, TEFFI_STREAM_CLOSED);
        assert_int_equal(lab_write(&a, &piece, 1).end, TEFFI_STREAM_CLOSED);
    }
    assert_int_equal(a.stream->ops->receive_now(a.stream, got, sizeof got), 0);
    assert_int_equal(a.stream->ops->write_now(a.stream, &piece, 1), 0);
    assert_int_equal(lab_receive(&a, got, sizeof got).end, TEFFI_STREAM_CLOSED);
    assert_int_equal(lab_write(&a, &piece, 1).end, TEFFI_STREAM_CLOSED);
    lab_pair_free(&a, &b);
}

static void a_full_stream_goes_on_when_the_peer_reads(void **state)
{
    lab_end a, b;
    lab_pair(*state, &a, &b);
    for (unsigned i = 0; i < 3; i++) {
        char byte = 'x';
        struct iovec piece = {&byte, 1};
        unsigned calls = a.out.calls;
        size_t sent = lab_fill(&a);
        assert_true(sent > 0 || i);
        assert_true(a.stream->ops->write(a.stream, &piece, 1));
        lab_drain(&b, sent);
        assert_int_equal(lab_await(&a.out, calls + 1).bytes, 1);
        lab_drain(&b, 1);
    }
    lab_pair_free(&a, &b);
}

static void an_empty_stream_goes_on_when_bytes_come(void **state)
{
    lab_end a, b;
    char byte;
    lab_pair(*state, &a, &b);
    for (unsigned i = 0; i < 100; i++) {
        assert_int_equal(b.stream->ops->receive_now(b.stream, &byte, 1), 0);
        assert_true(b.stream->ops->receive(b.stream, &byte, 1));
        lab_send(&a, &(char){(char)i}, 1);
        assert_int_equal(lab_await(&b.in, i + 1).bytes, 1);
        assert_int_equal(byte, i);
    }
    lab_pair_free(&a, &b);
}

static void written_is_called_on_request(void **state)
{
    lab_end a, b;
    lab_pair(*state, &a, &b);
    (void)lab_fill(&a);
    for (unsigned i = 1; i <= 3; i++) {
        a.stream->ops->call_written(a.stream);
        teffi_stream_result result = lab_await(&a.out, i);
        assert_int_equal(result.end, TEFFI_STREAM_OK);
        assert_int_equal(result.bytes, 0);
    }
    a.stream->ops->close(a.stream);
    a.stream->ops->call_written(a.stream);
    (void)lab_await(&a.out, 4);
    lab_pair_free(&a, &b);
}

/* Not what was written before. */
static void a_call_on_request_writes_nothing(void **state)
{
    lab_end a, b;
    char got[3] = "";
    lab_pair(*state, &a, &b);
    lab_send(&a, "x", 1);
    unsigned calls = a.out.calls;
    a.stream->ops->call_written(a.stream);
    (void)lab_await(&a.out, calls + 1);
    lab_send(&a, "y", 1);
    for (unsigned i = 0; i < 2; i++)
        assert_int_equal(lab_receive(&b, got + i, 1).bytes, 1);
    assert_string_equal(got, "xy");
    lab_pair_free(&a, &b);
}

/* Bytes that came together, behind a receive that had to wait. */
static void bytes_are_received_one_by_one(void **state)
{
    lab_end a, b;
    char got[5] = "";
    lab_pair(*state, &a, &b);
    assert_true(b.stream->ops->receive(b.stream, got, 1));
    lab_settle(*state);
    lab_send(&a, "abcd", 4);
    assert_int_equal(lab_await(&b.in, 1).bytes, 1);
    for (unsigned i = 1; i < 4; i++)
        assert_int_equal(lab_receive(&b, got + i, 1).bytes, 1);
    assert_string_equal(got, "abcd");
    lab_pair_free(&a, &b);
}

static void remote_of_ipv6_is_in_brackets(void **state)
{
    lab other;
    lab_end a, b;
    const char *why;
    char text[64];
    lab_start(&other, lab_is_reactor(*state));
    assert_int_equal(other.transport->ops->listen(other.transport, TEFFI_DOOR_SILOS, "[::1]:0",
                                                  &other.port, &why),
                     TEFF_OK);
    snprintf(other.address, sizeof other.address, "[::1]:%d", other.port);
    lab_pair(&other, &a, &b);
    a.stream->ops->remote(a.stream, text, sizeof text);
    assert_string_equal(text, other.address);
    lab_pair_free(&a, &b);
    other.transport->ops->stop_listeners(other.transport);
    lab_stop(&other);
}

static void remote_is_the_peers_address(void **state)
{
    lab *l = *state;
    lab_end a, b;
    char text[64], short_text[4];
    lab_pair(l, &a, &b);
    a.stream->ops->remote(a.stream, text, sizeof text);
    assert_string_equal(text, l->address);
    b.stream->ops->remote(b.stream, text, sizeof text);
    assert_memory_equal(text, l->port ? "127.0.0.1:" : "unix:", l->port ? 10 : 5);
    b.stream->ops->remote(b.stream, short_text, sizeof short_text);
    assert_string_equal(short_text, l->port ? "127" : "uni");
    lab_pair_free(&a, &b);
}

/* ---- both directions at once ---- */

enum { PATTERN = 65521, TRANSFER_MAX = 200000 };

static const size_t bytes_each = 50u << 20;
static char pattern[PATTERN + TRANSFER_MAX];
static _Atomic unsigned wrong; /* found by threads that may not assert */

/* One direction of one stream. */
typedef struct flow {
    lab_end *end;
    uint64_t random;
    bool writes;
    pthread_t id;
    char got[TRANSFER_MAX];
} flow;

static uint64_t draw(flow *f, uint64_t n)
{
    f->random = f->random * 6364136223846793005u + 1442695040888963407u;
    return (f->random >> 33) % n;
}

/* out: bytes passed; 0: none at once. */
static size_t write_some(flow *f, size_t at, size_t n)
{
    struct iovec pieces[TEFFI_STREAM_PIECES];
    const teffi_stream_ops *ops = f->end->stream->ops;
    unsigned count = 1 + (unsigned)draw(f, TEFFI_STREAM_PIECES);
    char *from = pattern + at % PATTERN;
    for (unsigned i = 0; i < count; i++)
        pieces[i] = (struct iovec){from + n * i / count, n * (i + 1) / count - n * i / count};
    if (draw(f, 2))
        return ops->write_now(f->end->stream, pieces, count);
    unsigned calls = f->end->out.calls;
    if (!ops->write(f->end->stream, pieces, count))
        return ++wrong;
    teffi_stream_result result = lab_await(&f->end->out, calls + 1);
    wrong += result.end != TEFFI_STREAM_OK || !result.bytes;
    return result.bytes;
}

static size_t receive_some(flow *f, size_t at, size_t n)
{
    const teffi_stream_ops *ops = f->end->stream->ops;
    size_t got;
    if (draw(f, 2)) {
        got = ops->receive_now(f->end->stream, f->got, n);
    } else {
        unsigned calls = f->end->in.calls;
        if (!ops->receive(f->end->stream, f->got, n))
            return ++wrong;
        teffi_stream_result result = lab_await(&f->end->in, calls + 1);
        wrong += result.end != TEFFI_STREAM_OK || !result.bytes;
        got = result.bytes;
    }
    wrong += memcmp(f->got, pattern + at % PATTERN, got) != 0;
    return got;
}

static void *run_flow(void *arg)
{
    flow *f = arg;
    for (size_t at = 0; at < bytes_each && !wrong;) {
        size_t n = 1 + draw(f, draw(f, 4) ? TRANSFER_MAX : 100);
        n = n < bytes_each - at ? n : bytes_each - at;
        at += f->writes ? write_some(f, at, n) : receive_some(f, at, n);
        for (uint64_t pause = draw(f, 8) ? 0 : draw(f, 20); pause; pause--)
            teffi_thread_yield();
    }
    return NULL;
}

static uint64_t seed_of_run(void)
{
    uint64_t seed = 0;
    const char *set = getenv("TEFF_SEED");
    if (set)
        seed = strtoull(set, NULL, 10);
    else
        assert_int_equal(getrandom(&seed, sizeof seed, 0), sizeof seed);
    print_message("TEFF_SEED=%" PRIu64 "\n", seed);
    return seed;
}

static void bytes_pass_whole_in_both_directions(void **state)
{
    lab_end ends[2];
    static flow flows[4];
    uint64_t seed = seed_of_run();
    for (size_t i = 0; i < sizeof pattern; i++)
        pattern[i] = (char)(i % PATTERN * 2654435761u >> 13);
    lab_pair(*state, &ends[0], &ends[1]);
    wrong = 0;
    for (unsigned i = 0; i < 4; i++) {
        flows[i].end = &ends[i / 2];
        flows[i].random = seed + i;
        flows[i].writes = i % 2;
        assert_int_equal(pthread_create(&flows[i].id, NULL, run_flow, &flows[i]), 0);
    }
    for (unsigned i = 0; i < 4; i++)
        pthread_join(flows[i].id, NULL);
    assert_int_equal(wrong, 0);
    lab_pair_free(&ends[0], &ends[1]);
}

/* ---- the end ---- */

static void a_stream_is_freed_while_its_callback_returns(void **state)
{
    char got[8];
    for (unsigned i = 0; i < 200; i++) {
        lab_end a, b;
        lab_pair(*state, &a, &b);
        assert_true(b.stream->ops->receive(b.stream, got, sizeof got));
        lab_send(&a, "x", 1);
        (void)lab_await(&b.in, 1);
        lab_pair_free(&b, &a);
    }
}

static void a_thousand_connections_leave_no_descriptor(void **state)
{
    lab *l = *state;
    lab_end a, b;
    lab_pair(l, &a, &b);
    lab_pair_free(&a, &b);
    lab_settle(l);
    unsigned before = lab_descriptors();
    for (unsigned i = 0; i < 1000; i++) {
        lab_pair(l, &a, &b);
        if (i % 2)
            lab_send(&a, "unread", 6);
        lab_pair_free(&a, &b);
    }
    lab_settle(l);
    assert_true(lab_descriptors_fall_to(before));
}

/* A forked process has the descriptors until it executes another program, so that the kernel goes
 * on reporting a socket that this process has closed. */
static void nothing_is_reported_of_a_freed_stream(void **state)
{
    lab *l = *state;
    lab_end a, b;
    int hold[2];
    char byte;
    assert_int_equal(pipe(hold), 0);
    for (unsigned i = 0; i < 20; i++) {
        lab_pair(l, &a, &b);
        pid_t child = fork();
        if (child == 0) {
            close(hold[1]);
            _exit(read(hold[0], &byte, 1) == 1 ? 0 : 1);
        }
        a.stream->ops->free(a.stream);
        lab_settle(l);
        b.stream->ops->free(b.stream);
        lab_settle(l);
        assert_int_equal(write(hold[1], "x", 1), 1);
        assert_int_equal(waitpid(child, NULL, 0), child);
    }
    close(hold[0]);
    close(hold[1]);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        LAB_ALL(a_receive_gets_what_came_before),
        LAB_ALL(pieces_arrive_in_order),
        LAB_ALL(data_before_the_peers_close_arrive),
        LAB_ALL(close_ends_each_operation_once),
        LAB_ALL(operations_end_after_close),
        LAB_ALL(a_full_stream_goes_on_when_the_peer_reads),
        LAB_ALL(an_empty_stream_goes_on_when_bytes_come),
        LAB_ALL(written_is_called_on_request),
        LAB_ALL(a_call_on_request_writes_nothing),
        LAB_ALL(bytes_are_received_one_by_one),
        LAB_BOTH(remote_of_ipv6_is_in_brackets),
        LAB_ALL(remote_is_the_peers_address),
        LAB_ALL(bytes_pass_whole_in_both_directions),
        LAB_ALL(a_stream_is_freed_while_its_callback_returns),
        LAB_ALL(a_thousand_connections_leave_no_descriptor),
        LAB_ON("reactor", nothing_is_reported_of_a_freed_stream),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
