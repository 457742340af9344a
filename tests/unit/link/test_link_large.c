/* test_link_large.c - large frames: written from where they lie, read into what becomes their
 * message; among small ones, in pieces, torn, refused. */
#include "net_test.h"

#include <stdlib.h>
#include <string.h>
#include "raw_peer.h"
#include "tree.pb-c.h"
#include "message/frame.h"

enum { KIB = 1024, MIB = 1024 * 1024 };

static test_node *checking(test_options opt)
{
    test_node *n = test_node_start(opt);
    n->checks = true;
    return n;
}

static void stop(test_node *a, test_node *b)
{
    assert_int_equal(a->wrong + b->wrong, 0);
    assert_int_equal(a->disorder + b->disorder, 0);
    test_node_stop(a);
    test_node_stop(b);
}

/* Around all that the way of a frame depends on: when it is large, how buffers grow, the limit. */
static const size_t sizes[] = {
    0,         100,          4000,      4096,      8 * KIB,      16 * KIB - 40, 16 * KIB - 1,
    16 * KIB,  16 * KIB + 1, 20 * KIB,  64 * KIB,  64 * KIB + 1, 100000,        128 * KIB,
    255 * KIB, 256 * KIB,    300 * KIB, 512 * KIB, MIB - 1,      MIB,
};
enum { SIZES = sizeof sizes / sizeof sizes[0] };

/* Each size behind each other, answered: so both ways. */
static void all_sizes_follow_each_other(unsigned workers)
{
    test_node *a = checking((test_options){.workers = workers});
    test_node *b = checking((test_options){.workers = workers});
    uint32_t slot = 0;
    b->echo = true;
    test_know(a, b);
    test_know(b, a);
    for (size_t i = 0; i < SIZES; i++)
        for (size_t j = 0; j < SIZES; j++) {
            test_send(a, b, ++slot, sizes[i]);
            test_send(a, b, ++slot, sizes[j]);
            if (slot % 16 == 0)
                test_wait(a, a->messages == slot);
        }
    test_wait(a, a->messages == slot);
    assert_int_equal(a->last->raw_len, MIB);
    assert_int_equal(b->last_slot, slot);
    stop(a, b);
}

static void sizes_on_transport_threads(void **state)
{
    all_sizes_follow_each_other(0);
}

static void sizes_on_workers(void **state)
{
    all_sizes_follow_each_other(2);
}

/* The receiver does nothing for a while, so that many wait and sockets are full. */
static void a_backlog_keeps_its_order(void **state)
{
    enum { N = 400 };
    test_node *a = checking((test_options){0}), *b = checking((test_options){0});
    test_know(a, b);
    test_send(a, b, 1, 10);
    test_wait(b, b->messages == 1);
    b->hold = true;
    for (uint32_t i = 2; i <= N; i++)
        test_send(a, b, i, sizes[i * 7 % (SIZES - 2)]);
    pthread_mutex_lock(&b->lock);
    b->hold = false;
    pthread_cond_broadcast(&b->changed);
    pthread_mutex_unlock(&b->lock);
    test_wait(b, b->messages == N);
    assert_int_equal(test_counters(a->net).frames_out, N);
    assert_int_equal(test_counters(b->net).frames_in, N);
    assert_int_equal(test_counters(b->net).bytes_in, test_counters(a->net).bytes_out);
    stop(a, b);
}

/* A large part of a message counts like what is copied. */
static void a_full_queue_refuses(void **state)
{
    enum { ROOM = 2 * MIB, BODY = 60 * KIB, SOCKETS = 64 * MIB };
    test_node *a = checking((test_options){.queue_max_bytes = ROOM});
    test_node *b = checking((test_options){0});
    teff_err err = TEFF_OK;
    uint32_t n = 1;
    test_know(a, b);
    test_send(a, b, 1, 10);
    test_wait(b, b->messages == 1);
    b->hold = true;
    while (!err && n < (ROOM + SOCKETS) / BODY) {
        teffi_msg *msg = test_message(TEFFI_MSG_REQUEST, n + 1, BODY);
        err = a->net->ops->send(a->net, b->id, msg);
        if (err)
            teffi_msg_free(msg);
        else
            n++;
    }
    assert_int_equal(err, TEFF_E_OVERLOADED);
    pthread_mutex_lock(&b->lock);
    b->hold = false;
    pthread_cond_broadcast(&b->changed);
    pthread_mutex_unlock(&b->lock);
    test_wait(b, b->messages == n);
    test_send(a, b, n + 1, BODY); /* there is room again */
    test_wait(b, b->messages == n + 1);
    stop(a, b);
}

/* ---- bytes borrowed until send returns ---- */

static teffi_msg *lent_tree(test_node *from, test_node *to, Teff__Test__Tree *tree)
{
    teffi_msg *msg = teffi_msg_new(TEFFI_MSG_RESPONSE);
    assert_non_null(msg);
    msg->src = from->id;
    msg->to.node = to->id;
    msg->call.slot = 1;
    msg->body = &tree->base;
    msg->borrows = true;
    return msg;
}

static bool is_tree(test_node *n, uint8_t byte, size_t len)
{
    Teff__Test__Tree *got = teff__test__tree__unpack(NULL, n->last->raw_len, n->last->raw);
    bool same = got && got->blob.len == len && strcmp(got->name, "before") == 0 && got->flag;
    for (size_t i = 0; same && i < len; i++)
        same = got->blob.data[i] == byte;
    teff__test__tree__free_unpacked(got, NULL);
    return same;
}

/* The lender uses its memory again as soon as send has returned, whether the socket took all of it
 * or a part, or another write was in flight. */
static void what_is_lent_may_change_afterwards(void **state)
{
    enum { LEN = 500 * KIB, N = 60 };
    static uint8_t blob[LEN];
    test_node *a = test_node_start((test_options){0}), *b = test_node_start((test_options){0});
    test_know(a, b);
    for (unsigned i = 1; i <= N; i++) {
        Teff__Test__Tree tree = TEFF__TEST__TREE__INIT;
        tree.name = (char *)(uintptr_t) "before";
        tree.flag = 1;
        tree.blob = (ProtobufCBinaryData){LEN, blob};
        memset(blob, (int)i, sizeof blob);
        if (i == N / 2)
            b->hold = true; /* from here on sockets get full */
        assert_int_equal(a->net->ops->send(a->net, b->id, lent_tree(a, b, &tree)), TEFF_OK);
        memset(blob, 0xee, sizeof blob);
        if (i >= N / 2)
            continue;
        test_wait(b, b->messages == i);
        assert_true(is_tree(b, (uint8_t)i, LEN));
    }
    pthread_mutex_lock(&b->lock);
    b->hold = false;
    pthread_cond_broadcast(&b->changed);
    pthread_mutex_unlock(&b->lock);
    test_wait(b, b->messages == N);
    assert_true(is_tree(b, N, LEN));
    test_node_stop(a);
    test_node_stop(b);
}

/* ---- a peer that says byte by byte what it likes ---- */

typedef struct port {
    test_node *silo;
    raw_peer *peer;
} port;

static port open_port(uint32_t frame_max_bytes)
{
    port p = {.silo = checking((test_options){.frame_max_bytes = frame_max_bytes})};
    teffi_greeting greeting = raw_greeting(77, 1, 1);
    p.peer = raw_connect(p.silo->address);
    assert_true(raw_join(p.peer, &greeting));
    test_node *silo = p.silo;
    test_wait(silo, silo->ups == 1);
    return p;
}

static void close_port(port *p)
{
    assert_int_equal(p->silo->wrong + p->silo->disorder, 0);
    raw_close(p->peer);
    test_node_stop(p->silo);
}

/* Frames of these bodies, one behind the other. out: malloc'ed. */
static uint8_t *frames(uint32_t *slot, const size_t *bodies, size_t n, size_t *len)
{
    uint8_t *bytes = NULL;
    *len = 0;
    for (size_t i = 0; i < n; i++) {
        size_t size, body_len;
        teffi_msg *msg = test_message(TEFFI_MSG_REQUEST, ++*slot, bodies[i]);
        msg->src = (teffi_node_id){77, 1};
        assert_int_equal(teffi_frame_compute_size_bound(msg, 2 * MIB, &size, &body_len), TEFF_OK);
        bytes = realloc(bytes, *len + size);
        assert_non_null(bytes);
        *len += teffi_frame_encode(msg, body_len, 0, bytes + *len);
        teffi_msg_free(msg);
    }
    return bytes;
}

/* The first part is read before the second is sent. */
static void frames_may_be_split_anywhere(void **state)
{
    static const size_t bodies[] = {30000, 10, 20000};
    static const size_t splits[] = {1,     4,     5,     9,     10,    11,    29,    30,    31,
                                    4095,  4096,  4097,  15000, 16383, 16384, 16385, 30029, 30030,
                                    30031, 30034, 30040, 30069, 30070, 30071, 30099, 50000};
    port p = open_port(0);
    uint32_t slot = 0;
    test_node *silo = p.silo;
    for (size_t i = 0; i < sizeof splits / sizeof splits[0]; i++) {
        size_t len;
        uint64_t before = test_counters(silo->net).bytes_in;
        uint8_t *bytes = frames(&slot, bodies, 3, &len);
        assert_true(raw_send(p.peer, bytes, splits[i]));
        test_wait(silo, test_counters(silo->net).bytes_in == before + splits[i]);
        assert_true(raw_send(p.peer, bytes + splits[i], len - splits[i]));
        test_wait(silo, silo->messages == slot);
        assert_int_equal(silo->last->raw_len, 20000);
        free(bytes);
    }
    close_port(&p);
}

static void many_in_one_write_and_bytes_one_by_one(void **state)
{
    static const size_t bodies[] = {70000, 17000, 0, 64 * KIB, 20000, 20000, 5, 16 * KIB};
    port p = open_port(0);
    test_node *silo = p.silo;
    uint32_t slot = 0;
    for (size_t step = 0; step < 3; step++) {
        size_t len, part = step == 0 ? SIZE_MAX : step == 1 ? 7 : 5003;
        uint8_t *bytes = frames(&slot, bodies, 8, &len);
        for (size_t at = 0; at < len; at += part) {
            part = part < len - at ? part : len - at;
            assert_true(raw_send(p.peer, bytes + at, part));
        }
        test_wait(silo, silo->messages == slot);
        free(bytes);
    }
    close_port(&p);
}

static void over_the_limit_is_closed(void **state)
{
    size_t len, fits = 100 * KIB - 60, over = 100 * KIB;
    port p = open_port(100 * KIB);
    test_node *silo = p.silo;
    uint32_t slot = 0;
    uint8_t *bytes = frames(&slot, &fits, 1, &len);
    assert_true(raw_send(p.peer, bytes, len));
    test_wait(silo, silo->messages == 1);
    free(bytes);
    bytes = frames(&slot, &over, 1, &len);
    (void)raw_send(p.peer, bytes, 20); /* its head is enough */
    assert_true(raw_ended(p.peer));
    test_wait(silo, silo->downs == 1);
    assert_int_equal(silo->messages, 1);
    assert_int_equal(test_counters(silo->net).oversize, 1);
    free(bytes);
    close_port(&p);
}

/* No message, no leak, wherever it ends. */
static void half_a_frame_is_no_message(void **state)
{
    static const size_t ends[] = {1, 4, 10, 45, 5000, 16400, 60000, 70029};
    size_t body = 70000;
    for (int whole_before = 0; whole_before < 2; whole_before++)
        for (size_t i = 0; i < sizeof ends / sizeof ends[0]; i++) {
            port p = open_port(0);
            test_node *silo = p.silo;
            uint32_t slot = 0;
            size_t len;
            for (int whole = whole_before; whole >= 0; whole--) {
                uint64_t before = test_counters(silo->net).bytes_in;
                uint8_t *bytes = frames(&slot, &body, 1, &len);
                assert_true(raw_send(p.peer, bytes, whole ? len : ends[i]));
                test_wait(silo,
                          test_counters(silo->net).bytes_in == before + (whole ? len : ends[i]));
                free(bytes);
            }
            raw_close(p.peer);
            test_wait(silo, silo->downs == 1);
            assert_int_equal(silo->messages, whole_before);
            test_node_stop(silo);
        }
}

/* ---- torn writes ---- */

/* b is gone while much is under way: the rest is neither sent to who comes after it, nor twice. */
static void what_was_torn_is_not_sent_again(void **state)
{
    enum { N = 150, BODY = 200 * KIB };
    test_node *a = checking((test_options){0});
    test_node *b = checking((test_options){.silo = 5000, .incarnation = 1});
    char address[TEFFI_ADDRESS_MAX + 1];
    strcpy(address, b->address);
    test_know(a, b);
    test_send(a, b, 1, 10);
    test_wait(b, b->messages == 1);
    b->hold = true;
    for (uint32_t i = 2; i <= N; i++) {
        teffi_msg *msg = test_message(TEFFI_MSG_REQUEST, i, BODY);
        msg->src = a->id;
        if (a->net->ops->send(a->net, b->id, msg))
            teffi_msg_free(msg);
    }
    assert_int_equal(b->wrong + b->disorder, 0);
    test_node_stop(b);
    test_wait(a, a->downs == 1);
    test_node *next = checking((test_options){.silo = 5000, .incarnation = 2, .listen = address});
    test_know(a, next);
    for (uint32_t i = 1; i <= 20; i++)
        test_send(a, next, 1000 + i, sizes[i - 1]);
    test_wait(next, next->messages == 20);
    assert_int_equal(next->last_slot, 1020);
    stop(a, next);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(sizes_on_transport_threads),
        cmocka_unit_test(sizes_on_workers),
        cmocka_unit_test(a_backlog_keeps_its_order),
        cmocka_unit_test(a_full_queue_refuses),
        cmocka_unit_test(what_is_lent_may_change_afterwards),
        cmocka_unit_test(frames_may_be_split_anywhere),
        cmocka_unit_test(many_in_one_write_and_bytes_one_by_one),
        cmocka_unit_test(over_the_limit_is_closed),
        cmocka_unit_test(half_a_frame_is_no_message),
        cmocka_unit_test(what_was_torn_is_not_sent_again),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
