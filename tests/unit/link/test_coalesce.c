/* test_coalesce.c - threads that are no workers: what one sends in a row goes together, at the
 * latest when it waits; whoever sends and does not wait is not left with it; and what a thread is
 * about to wait for goes at once. */
#include "net_test.h"

enum { N = 2000 };

static void connect(test_node **a, test_node **b)
{
    *a = test_node_start((test_options){0});
    *b = test_node_start((test_options){0});
    test_know(*a, *b);
    test_send(*a, *b, 1, 1);
    test_node *nb = *b;
    test_wait(nb, nb->messages == 1);
}

static void disconnect(test_node *a, test_node *b)
{
    test_node_stop(a);
    test_node_stop(b);
}

/* Each millisecond in which this thread goes on may see a write, and each time it was held up. */
static void many_messages_are_few_writes(void **state)
{
    test_node *a, *b;
    connect(&a, &b);
    uint64_t before = test_counters(a->net).writes;
    for (uint32_t i = 2; i < 2 + N; i++)
        test_send(a, b, i, 4);
    test_flush(a);
    test_wait(b, b->messages == 1 + N);
    assert_int_equal(b->disorder, 0);
    assert_in_range(test_counters(a->net).writes - before, 1, N / 8);
    disconnect(a, b);
}

static void messages_of_a_thread_that_never_waits_are_sent(void **state)
{
    test_node *a, *b;
    connect(&a, &b);
    uint32_t slot = 1;
    for (uint32_t i = 0; i < 200; i++) {
        unsigned sent = b->messages + i % 3;
        for (uint32_t k = 0; k < i % 3; k++)
            test_send(a, b, ++slot, 4);
        test_wait(b, b->messages == sent);
    }
    assert_int_equal(b->disorder, 0);
    disconnect(a, b);
}

/* On this thread, before send returns, and with it deferred writes: mostly, since the
 * ticker may be writing that just then. */
static void what_is_waited_for_goes_at_once(void **state)
{
    test_node *a, *b;
    connect(&a, &b);
    unsigned at_once = 0;
    for (uint32_t i = 0; i < 100; i++) {
        uint64_t before = test_counters(a->net).bytes_out;
        test_send(a, b, 2 + 2 * i, 4);
        teffi_msg *msg = test_message(TEFFI_MSG_REQUEST, 3 + 2 * i, 4);
        msg->src = a->id;
        msg->awaited = true;
        assert_int_equal(a->net->ops->send(a->net, b->id, msg), TEFF_OK);
        at_once += test_counters(a->net).bytes_out > before;
        test_wait(b, b->messages == 3 + 2 * i);
    }
    assert_in_range(at_once, 60, 100);
    assert_int_equal(b->disorder, 0);
    disconnect(a, b);
}

static void *send_many(void *arg)
{
    test_node **ab = arg;
    for (uint32_t i = 0; i < N; i++) {
        test_send(ab[0], ab[1], 1, 4);
        if (i % 64 == 63)
            test_flush(ab[0]);
    }
    return NULL;
}

static void threads_together_lose_nothing(void **state)
{
    test_node *ab[2];
    pthread_t threads[4];
    connect(&ab[0], &ab[1]);
    for (int i = 0; i < 4; i++)
        assert_int_equal(pthread_create(&threads[i], NULL, send_many, ab), 0);
    for (int i = 0; i < 4; i++)
        assert_int_equal(pthread_join(threads[i], NULL), 0);
    test_wait(ab[1], ab[1]->messages == 1 + 4 * N);
    disconnect(ab[0], ab[1]);
}

/* A link is freed beside a write that was deferred a moment ago. */
static void a_link_ends_among_many_messages(void **state)
{
    for (uint32_t round = 0; round < 20; round++) {
        test_node *a, *b;
        connect(&a, &b);
        for (uint32_t i = 2; i < 6; i++)
            test_send(a, b, i, 4);
        disconnect(b, a);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(many_messages_are_few_writes),
        cmocka_unit_test(messages_of_a_thread_that_never_waits_are_sent),
        cmocka_unit_test(what_is_waited_for_goes_at_once),
        cmocka_unit_test(threads_together_lose_nothing),
        cmocka_unit_test(a_link_ends_among_many_messages),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
