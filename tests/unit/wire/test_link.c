/* test_link.c - two links in one process over real sockets. */
#include "net_test.h"

#include <stdio.h>
#include <string.h>

static void a_message_arrives_with_all_it_holds(void **state)
{
    (void)state;
    test_node *a = test_node_start((test_options){0}), *b = test_node_start((test_options){0});
    test_know(a, b);
    test_send(a, b, 5, 100);
    test_wait(b, b->messages == 1);
    assert_int_equal(b->last->call_slot, 5);
    assert_int_equal(b->last->method_id, 7);
    assert_int_equal(b->last->raw_len, 100);
    assert_true(teffi_node_is(b->last->src, a->id));
    assert_true(teffi_node_is(b->last_peer.node, a->id));
    assert_string_equal(b->last_peer.address, a->address);
    test_wait(a, a->ups == 1);
    test_node_stop(a);
    test_wait(b, b->downs == 1);
    assert_int_equal(b->downs_clean, 0);
    test_node_stop(b);
}

static void many_messages_keep_their_order_both_ways(void **state)
{
    enum { N = 100000 };
    (void)state;
    test_node *a = test_node_start((test_options){0}), *b = test_node_start((test_options){0});
    test_know(a, b);
    test_know(b, a);
    test_send(a, b, 1, 20);
    test_wait(b, b->messages == 1);
    test_send(b, a, 1, 20);
    for (uint32_t i = 2; i <= N; i++) {
        test_send(a, b, i, 20);
        test_send(b, a, i, 20);
    }
    test_wait(a, a->messages == N);
    test_wait(b, b->messages == N);
    assert_int_equal(a->disorder, 0);
    assert_int_equal(b->disorder, 0);
    teffi_net_counters c = test_counters(a);
    assert_int_equal(c.frames_out, N);
    assert_int_equal(c.frames_in, N);
    assert_true(c.writes < N / 2);
    test_node_stop(a);
    test_node_stop(b);
}

static void on_done(void *arg, teff_err err, const teffi_hello *peer, const char *text)
{
    test_node *n = arg;
    pthread_mutex_lock(&n->lock);
    n->done_err = err;
    n->done_peer = *peer;
    snprintf(n->done_text, sizeof n->done_text, "%s", text);
    n->dones++;
    n->done_after_ups = n->ups;
    pthread_cond_broadcast(&n->changed);
    pthread_mutex_unlock(&n->lock);
}

static void dial(test_node *n, const char *address)
{
    unsigned before = n->dones;
    n->net->ops->dial(n->net, address, on_done, n);
    test_wait(n, n->dones == before + 1);
}

static void a_dialled_address_becomes_a_known_node(void **state)
{
    (void)state;
    test_node *a = test_node_start((test_options){0}), *b = test_node_start((test_options){0});
    dial(a, b->address);
    assert_int_equal(a->done_err, TEFF_OK);
    assert_int_equal(a->done_after_ups, 1);
    assert_true(teffi_node_is(a->done_peer.node, b->id));
    test_send(a, b, 1, 10);
    test_wait(b, b->messages == 1);
    dial(a, b->address); /* once more: the connection that is there stays */
    assert_int_equal(a->done_err, TEFF_OK);
    test_send(a, b, 2, 10);
    test_wait(b, b->messages == 2);
    assert_int_equal(a->ups, 1);
    assert_int_equal(a->downs, 0);
    assert_int_equal(b->downs, 0);
    test_node_stop(a);
    test_node_stop(b);
}

static void a_dial_says_why_it_failed(void **state)
{
    (void)state;
    test_node *a = test_node_start((test_options){0});
    test_node *b = test_node_start((test_options){.cluster = "other"});
    char nobody[TEFFI_ADDRESS_MAX + 1];
    dial(a, b->address);
    assert_int_equal(a->done_err, TEFF_E_REFUSED);
    assert_non_null(strstr(a->done_text, "cluster 'other' expected"));
    dial(a, "no address");
    assert_int_equal(a->done_err, TEFF_E_UNREACHABLE);
    dial(a, a->address);
    assert_int_equal(a->done_err, TEFF_E_REFUSED);
    strcpy(nobody, b->address);
    test_node_stop(b);
    dial(a, nobody);
    assert_int_equal(a->done_err, TEFF_E_UNREACHABLE);
    assert_non_null(strstr(a->done_text, nobody));
    test_node_stop(a);
}

static void a_client_is_answered_on_its_own_connection(void **state)
{
    (void)state;
    test_node *silo = test_node_start((test_options){0});
    test_node *client = test_node_start((test_options){.role = TEFFI_ROLE_CLIENT});
    silo->echo = true;
    dial(client, silo->address);
    assert_int_equal(client->done_err, TEFF_OK);
    for (uint32_t i = 1; i <= 1000; i++)
        test_send(client, silo, i, 64);
    test_wait(client, client->messages == 1000);
    assert_int_equal(client->last->item.kind, TEFFI_MSG_RESPONSE);
    assert_int_equal(test_counters(silo).dials, 0);
    test_node_stop(client);
    test_node_stop(silo);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_message_arrives_with_all_it_holds),
        cmocka_unit_test(a_dialled_address_becomes_a_known_node),
        cmocka_unit_test(a_dial_says_why_it_failed),
        cmocka_unit_test(a_client_is_answered_on_its_own_connection),
        cmocka_unit_test(many_messages_keep_their_order_both_ways),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
