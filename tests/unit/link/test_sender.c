/* test_sender.c - what a closed sender has not written. */
#include "link/conn/sender.h"

#include "link/conn/connection.h"
#include "test.h"

static teffi_conn conn;

static int setup(void **state)
{
    return pthread_mutex_init(&conn.lock, NULL);
}

static int teardown(void **state)
{
    return pthread_mutex_destroy(&conn.lock);
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
    s->unopened.count = 1;
    assert_true(teffi_sender_has_unsent(&conn));
    s->unopened.count = 0;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(frames_are_unsent_wherever_they_wait),
    };
    return cmocka_run_group_tests(tests, setup, teardown);
}
