/* test_sender.c - what a sender takes before its connection is up, what it hands on, and what a
 * closed one has not written. */
#include "link/conn/sender.h"

#include "link/conn/connection.h"
#include "test.h"
#include "used.h"

enum { QUEUE_MAX = 1000, BODY = 28, SIZE = TEFFI_FRAME_FIXED_MAX + BODY };

static teffi_conns conns;
static teffi_conn conn, other;
static teffi_budget budget;

static int setup(void **state)
{
    conns = (teffi_conns){.queue_max_bytes = QUEUE_MAX, .frame_max_bytes = 10 * QUEUE_MAX};
    teffi_budget_init(&budget, 100 * QUEUE_MAX);
    conns.budget = &budget;
    conn = (teffi_conn){.conns = &conns};
    other = (teffi_conn){.conns = &conns};
    return pthread_mutex_init(&conn.lock, NULL) | pthread_mutex_init(&other.lock, NULL);
}

static void free_unopened(teffi_conn *c)
{
    for (teffi_qnode *q; (q = teffi_queue_pop(&c->sender.unopened));)
        teffi_msg_free(teffi_container(q, teffi_msg, link));
}

static int teardown(void **state)
{
    teffi_write_buffer_fini(&conn.sender.pending);
    free_unopened(&conn);
    free_unopened(&other);
    return pthread_mutex_destroy(&conn.lock) | pthread_mutex_destroy(&other.lock);
}

/* A message that needs room for SIZE bytes. */
static teff_err send_one(uint32_t kind, bool system)
{
    static uint8_t body[BODY];
    teffi_msg *msg = teffi_msg_new(kind);
    assert_non_null(msg);
    msg->raw = body;
    msg->raw_len = BODY;
    msg->call.slot = kind == TEFFI_MSG_RESPONSE;
    msg->system = system;
    teff_err err = teffi_sender_send(&conn, msg);
    if (err)
        teffi_msg_free(msg);
    return err;
}

/* out: how many the sender took. */
static unsigned send_until_full(uint32_t kind, bool system)
{
    unsigned taken = 0;
    teff_err err;
    while (!(err = send_one(kind, system)))
        taken++;
    assert_int_equal(err, TEFF_E_OVERLOADED);
    return taken;
}

/* Responses may take twice as much as requests, and what the cluster says four times. */
static void each_kind_has_its_share_of_the_queue(void **state)
{
    enum { SHARE = QUEUE_MAX / SIZE };
    assert_int_equal(send_until_full(TEFFI_MSG_ONEWAY, false), SHARE);
    assert_int_equal(send_until_full(TEFFI_MSG_RESPONSE, false), SHARE);
    assert_int_equal(send_until_full(TEFFI_MSG_ONEWAY, false), 0);
    assert_int_equal(send_until_full(TEFFI_MSG_ONEWAY, true), 2 * SHARE);
    assert_int_equal(send_until_full(TEFFI_MSG_RESPONSE, true), 0);
    assert_int_equal(conn.sender.unopened_bytes, 4 * QUEUE_MAX);
    assert_int_equal(bytes_used(&budget), 4 * QUEUE_MAX);
}

static void a_message_over_the_limit_goes_into_an_empty_queue(void **state)
{
    conns.queue_max_bytes = SIZE - 1;
    assert_int_equal(send_one(TEFFI_MSG_ONEWAY, false), TEFF_OK);
    assert_int_equal(send_one(TEFFI_MSG_ONEWAY, false), TEFF_E_OVERLOADED);
}

static void requests_for_grains_are_refused_over_the_budget(void **state)
{
    teffi_budget_add(&budget, 100 * QUEUE_MAX + 1);
    assert_int_equal(send_one(TEFFI_MSG_ONEWAY, false), TEFF_E_OVERLOADED);
    assert_int_equal(send_one(TEFFI_MSG_RESPONSE, false), TEFF_OK);
}

static void a_stolen_sender_is_closed(void **state)
{
    const uint32_t bye = 1u << TEFFI_FRAME_BYE, bye_ack = 1u << TEFFI_FRAME_BYE_ACK;
    assert_int_equal(send_one(TEFFI_MSG_ONEWAY, false), TEFF_OK);
    assert_int_equal(send_one(TEFFI_MSG_RESPONSE, false), TEFF_OK);
    conn.sender.goodbyes = bye;
    other.sender.goodbyes = bye_ack;
    teffi_sender_close_and_move_unopened(&conn, &other);
    assert_int_equal(other.sender.unopened.count, 2);
    assert_int_equal(other.sender.unopened_bytes, 2 * SIZE);
    assert_int_equal(other.sender.goodbyes, bye | bye_ack);
    assert_false(other.sender.finished);
    assert_int_equal(other.sender.closing, SENDER_STAYS);
    assert_int_equal(bytes_used(&budget), 2 * SIZE);
    assert_int_equal(conn.sender.unopened.count, 0);
    assert_int_equal(conn.sender.unopened_bytes, 0);
    assert_false(teffi_sender_has_unsent(&conn));
    assert_int_equal(send_one(TEFFI_MSG_ONEWAY, false), TEFF_E_CLOSED);
    teffi_sender_close_and_move_unopened(&other, &conn);
    assert_false(conn.sender.finished); /* as the other was */
}

/* The owner gets back what no open will send, even if the handshake ends later. */
static void unopened_messages_are_taken_once(void **state)
{
    assert_int_equal(send_one(TEFFI_MSG_ONEWAY, false), TEFF_OK);
    assert_int_equal(send_one(TEFFI_MSG_RESPONSE, false), TEFF_OK);
    teffi_queue taken = teffi_sender_close_and_take_unopened(&conn);
    assert_int_equal(taken.count, 2);
    assert_int_equal(bytes_used(&budget), 0);
    assert_int_equal(send_one(TEFFI_MSG_RESPONSE, false), TEFF_E_UNREACHABLE);
    assert_false(teffi_sender_has_unsent(&conn));
    assert_int_equal(teffi_sender_close_and_take_unopened(&conn).count, 0);
    other.sender.unopened = taken;
}

static void a_finished_or_closed_sender_takes_nothing(void **state)
{
    conn.sender.peer_left = true;
    assert_int_equal(send_one(TEFFI_MSG_ONEWAY, false), TEFF_E_CLOSED);
    assert_int_equal(send_one(TEFFI_MSG_RESPONSE, false), TEFF_OK);
    assert_false(teffi_sender_close(&conn));
    assert_int_equal(send_one(TEFFI_MSG_RESPONSE, false), TEFF_E_UNREACHABLE);
    conn.sender.finished = true;
    assert_int_equal(send_one(TEFFI_MSG_RESPONSE, false), TEFF_E_CLOSED);
    conns.frame_max_bytes = SIZE - 1;
    assert_int_equal(send_one(TEFFI_MSG_RESPONSE, false), TEFF_E_TOO_LARGE);
}

/* ---- no memory at open ---- */

static int reserves_left = -1; /* until one fails; -1: none does */

bool __real_teffi_write_buffer_reserve(write_buffer *out, size_t more);
bool __wrap_teffi_write_buffer_reserve(write_buffer *out, size_t more);

bool __wrap_teffi_write_buffer_reserve(write_buffer *out, size_t more)
{
    return reserves_left-- != 0 && __real_teffi_write_buffer_reserve(out, more);
}

/* The budget counts each message once: as a pending frame, or as unopened. */
static void messages_that_stay_unopened_are_counted(void **state)
{
    enum { SENT = 3, OPENED = 2 };
    conn.refs = 1;
    for (int i = 0; i < SENT; i++)
        assert_int_equal(send_one(TEFFI_MSG_ONEWAY, false), TEFF_OK);
    reserves_left = OPENED;
    teffi_sender_open(&conn);
    assert_int_equal(conn.sender.pending_frames, OPENED);
    assert_int_equal(conn.sender.unopened.count, SENT - OPENED);
    assert_int_equal(conn.sender.unopened_bytes, (SENT - OPENED) * SIZE);
    assert_int_equal(bytes_used(&budget), conn.sender.pending.total + (SENT - OPENED) * SIZE);
    reserves_left = -1;
}

static void opened_messages_are_no_longer_counted_as_unopened(void **state)
{
    conn.refs = 1;
    assert_int_equal(send_one(TEFFI_MSG_ONEWAY, false), TEFF_OK);
    assert_int_equal(send_one(TEFFI_MSG_RESPONSE, false), TEFF_OK);
    teffi_sender_open(&conn);
    assert_int_equal(conn.sender.unopened_bytes, 0);
    assert_int_equal(bytes_used(&budget), conn.sender.pending.total);
}

static void frames_are_unsent_wherever_they_wait(void **state)
{
    conn_sender *s = &conn.sender;
    assert_false(teffi_sender_has_unsent(&conn));
    s->pending.total = 10;
    assert_true(teffi_sender_has_unsent(&conn));
    s->pending.total = 0;
    s->in_flight.total = 10;
    assert_true(teffi_sender_has_unsent(&conn));
    s->in_flight.total = 0;
    assert_int_equal(send_one(TEFFI_MSG_ONEWAY, false), TEFF_OK);
    assert_true(teffi_sender_has_unsent(&conn));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(each_kind_has_its_share_of_the_queue, setup, teardown),
        cmocka_unit_test_setup_teardown(a_message_over_the_limit_goes_into_an_empty_queue, setup,
                                        teardown),
        cmocka_unit_test_setup_teardown(requests_for_grains_are_refused_over_the_budget, setup,
                                        teardown),
        cmocka_unit_test_setup_teardown(a_stolen_sender_is_closed, setup, teardown),
        cmocka_unit_test_setup_teardown(unopened_messages_are_taken_once, setup, teardown),
        cmocka_unit_test_setup_teardown(a_finished_or_closed_sender_takes_nothing, setup, teardown),
        cmocka_unit_test_setup_teardown(messages_that_stay_unopened_are_counted, setup, teardown),
        cmocka_unit_test_setup_teardown(opened_messages_are_no_longer_counted_as_unopened, setup,
                                        teardown),
        cmocka_unit_test_setup_teardown(frames_are_unsent_wherever_they_wait, setup, teardown),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
