/* test_receiver.c - what a client may send, and what of it is believed;
 * when the next read begins. */
#include "link/conn/receiver.h"

#include "group/exec.h"
#include "link/conn/connection.h"
#include "test.h"

static const struct {
    const char *what;
    uint32_t kind, slot;
    teffi_admission admission;
    uint32_t type_id;
    uint32_t method_id;
} rows[] = {
    {"a request to a grain", TEFFI_MSG_REQUEST, TEFFI_SLOT_GRAIN, TEFFI_ADMITTED, 0, 3},
    {"a one-way to a grain", TEFFI_MSG_ONEWAY, TEFFI_SLOT_GRAIN, TEFFI_ADMITTED, 0, 3},
    {"a tick of a reminder", TEFFI_MSG_REQUEST, TEFFI_SLOT_GRAIN, TEFFI_ADMIT_REFUSED, 7, 0},
    {"a cancel", TEFFI_MSG_ONEWAY, TEFFI_SLOT_CANCEL, TEFFI_ADMITTED, 0, 0},
    {"a probe for deadlocks", TEFFI_MSG_ONEWAY, TEFFI_SLOT_DEADLOCK, TEFFI_ADMIT_REFUSED, 0, 0},
    {"a cancel with a response", TEFFI_MSG_REQUEST, TEFFI_SLOT_CANCEL, TEFFI_ADMIT_REFUSED, 0, 0},
    {"a request to the store", TEFFI_MSG_REQUEST, TEFFI_SLOT_STORE, TEFFI_ADMIT_REFUSED, 0, 0},
    {"a one-way to a process", TEFFI_MSG_ONEWAY, TEFFI_PROCESS_BIT, TEFFI_ADMIT_REFUSED, 0, 0},
    {"a response", TEFFI_MSG_RESPONSE, TEFFI_SLOT_GRAIN, TEFFI_ADMIT_BROKEN, 0, 0},
    {"a request for a seal", TEFFI_MSG_REQUEST, TEFFI_SLOT_OBSERVER, TEFFI_ADMITTED, 0, 0},
    {"a bounce", TEFFI_MSG_ONEWAY, TEFFI_SLOT_OBSERVER, TEFFI_ADMITTED, 0, 0},
    {"a notification", TEFFI_MSG_ONEWAY, TEFFI_SLOT_OBSERVER, TEFFI_ADMIT_REFUSED, 7, 0},
    {"a typed request", TEFFI_MSG_REQUEST, TEFFI_SLOT_OBSERVER, TEFFI_ADMIT_REFUSED, 7, 0},
};

static void a_client_is_what_its_connection_says(void **state)
{
    const teffi_node_id client = {7 | TEFFI_CLIENT_BIT, 1};
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        teffi_msg msg = {.item.kind = rows[i].kind,
                         .to.slot = rows[i].slot,
                         .type_id = rows[i].type_id,
                         .method_id = rows[i].method_id};
        msg.src = (teffi_node_id){8, 2};
        msg.flags = 0xffff;
        msg.hops = 5;
        if (teffi_admit_client_message(&msg, client) != rows[i].admission)
            fail_msg("%s", rows[i].what);
        msg.transaction = (const uint8_t *)"of silos only";
        assert_int_equal(teffi_admit_client_message(&msg, client), TEFFI_ADMIT_BROKEN);
        assert_true(teffi_node_equals(msg.src, client));
        assert_int_equal(msg.flags, 0xffff & ~TEFFI_MSG_PLACED);
        assert_int_equal(msg.hops, 0);
    }
}

/* ---- when the next read begins ---- */

static unsigned deferred, received;

static uint64_t some_time(void *arg)
{
    return 1;
}

static bool count_deferred(teffi_exec *exec, struct teffi_deferred *work)
{
    deferred++;
    return true;
}

static unsigned worker_1(teffi_exec *exec)
{
    return 1;
}

static bool count_received(teffi_stream *stream, void *to, size_t n)
{
    received++;
    return true;
}

static void a_worker_defers_the_read_after_a_large_one(void **state)
{
    static const teffi_exec_ops exec_ops = {.defer = count_deferred, .worker = worker_1};
    static const teffi_stream_ops stream_ops = {.receive = count_received};
    static const teffi_platform platform = {.mono_ns = some_time};
    static const struct {
        bool tries;
        size_t got;
        unsigned conn_state;
        bool defers;
    } reads[] = {
        {true, LINK_READ_SHORT + 1, CONN_UP, true},
        {false, LINK_READ_SHORT + 1, CONN_UP, false},
        {true, LINK_READ_SHORT, CONN_UP, false},
        {true, LINK_READ_SHORT + 1, CONN_GREETING, false},
    };
    for (size_t i = 0; i < sizeof reads / sizeof reads[0]; i++) {
        teffi_exec exec = {.ops = &exec_ops};
        teffi_stream stream = {.ops = &stream_ops, .tries = reads[i].tries};
        teffi_conns conns = {.exec = &exec, .platform = &platform};
        teffi_conn conn = {.conns = &conns, .stream = &stream, .receiver.got = reads[i].got};
        conn.state = reads[i].conn_state;
        deferred = received = 0;
        assert_true(teffi_receiver_begin_or_defer_receive(&conn));
        assert_int_equal(deferred, reads[i].defers);
        assert_int_equal(received, !reads[i].defers);
        teffi_read_buffer_fini(&conn.receiver.buffer);
    }
}

/* ---- how much is read in a row ---- */

static size_t read_now(teffi_stream *stream, void *to, size_t n)
{
    received++;
    return n; /* the peer floods */
}

/* Reads as the driver does, and takes all bytes. in: waits: the first read is one that waits, else
 * one that was deferred. out: the bytes of all reads in a row. */
static size_t read_in_a_row(teffi_conn *conn, bool waits)
{
    size_t bytes = 0;
    received = 0;
    if (waits) {
        assert_true(teffi_receiver_begin_receive(conn));
        teffi_receiver_add_bytes(conn, conn->receiver.offered);
    } else {
        assert_true(teffi_receiver_run_deferred_read(conn, true));
    }
    do {
        bytes += conn->receiver.got;
        conn->receiver.buffer.len = 0;
    } while (teffi_receiver_try_read_inline(conn));
    return bytes;
}

static void who_floods_is_read_only_so_far_in_a_row(void **state)
{
    static const teffi_stream_ops stream_ops = {.receive = count_received, .receive_now = read_now};
    static const teffi_platform platform = {.mono_ns = some_time};
    static const struct {
        size_t room;
        unsigned reads;
    } floods[] = {{LINK_READ_BUFFER_MIN, 9},
                  {LINK_READ_BUFFER_MAX / 4, 4},
                  {LINK_READ_BUFFER_MAX, 1},
                  {LINK_READ_BUFFER_MAX - 1, 2}};
    uint8_t bytes[1];
    for (size_t i = 0; i < sizeof floods / sizeof floods[0]; i++) {
        teffi_stream stream = {.ops = &stream_ops, .tries = true};
        teffi_conns conns = {.platform = &platform};
        teffi_conn conn = {.conns = &conns, .stream = &stream, .state = CONN_UP};
        conn.receiver.buffer = (read_buffer){.data = bytes, .cap = floods[i].room};
        for (unsigned again = 0; again < 4; again++) {
            assert_int_equal(read_in_a_row(&conn, again % 2), floods[i].reads * floods[i].room);
            assert_int_equal(received, floods[i].reads);
        }
    }
}

/* ---- the buffer ---- */

/* A request of this size on the wire, or less. */
static teffi_msg *request_of(size_t n)
{
    static const uint8_t body[2 * LINK_READ_BUFFER_MIN];
    teffi_msg *msg = teffi_msg_new(TEFFI_MSG_REQUEST);
    assert_non_null(msg);
    msg->call.slot = 1;
    msg->raw = body;
    msg->raw_len = n - TEFFI_FRAME_FIXED_MAX;
    return msg;
}

static void read_request(teffi_conn *conn, size_t n)
{
    uint8_t *at;
    size_t room, body_len;
    teffi_msg *msg = request_of(n);
    conn->receiver.offered = teffi_read_buffer_room(&conn->receiver.buffer, &at);
    assert_int_equal(teffi_frame_compute_size_bound(msg, n, &room, &body_len), TEFF_OK);
    size_t size = teffi_frame_encode(msg, body_len, 0, at);
    conn->receiver.offered = size; /* it fills its room */
    teffi_receiver_add_bytes(conn, size);
    teffi_msg_free(msg);
}

/* The messages are reported in between, as the driver does. */
static void a_read_doubles_the_buffer_once(void **state)
{
    static const teffi_platform platform = {.mono_ns = some_time};
    teffi_frame frame;
    teffi_conns conns = {.platform = &platform, .frame_max_bytes = 1024 * 1024};
    teffi_conn conn = {.conns = &conns, .state = CONN_UP};
    read_buffer *in = &conn.receiver.buffer;
    conn.handshake.remote.role = TEFFI_ROLE_SILO;
    assert_true(teffi_read_buffer_fit(in, 0, false));
    for (size_t cap = LINK_READ_BUFFER_MIN; cap < 4 * LINK_READ_BUFFER_MIN; cap *= 2) {
        assert_in_range(in->cap, cap, cap + cap / 2);
        read_request(&conn, LINK_READ_BUFFER_MIN);
        assert_int_equal(teffi_receiver_fill_batch(&conn, &frame), RECEIVE_MORE);
        teffi_msg_free(teffi_container(teffi_queue_pop(&conn.receiver.batch), teffi_msg, link));
        assert_int_equal(teffi_receiver_fill_batch(&conn, &frame), RECEIVE_MORE);
    }
    teffi_read_buffer_fini(in);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_client_is_what_its_connection_says),
        cmocka_unit_test(a_worker_defers_the_read_after_a_large_one),
        cmocka_unit_test(who_floods_is_read_only_so_far_in_a_row),
        cmocka_unit_test(a_read_doubles_the_buffer_once),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
