/* test_link.c - two links in one process over real sockets. */
#include "net_test.h"

#include <sched.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>
#include "config.h"
#include "link/conn/connection.h"
#include "link/link.h"
#include "raw_peer.h"

static void a_message_arrives_with_all_it_holds(void **state)
{
    test_node *a = test_node_start((test_options){0}), *b = test_node_start((test_options){0});
    test_know(a, b);
    test_send(a, b, 5, 100);
    test_wait(b, b->messages == 1);
    assert_int_equal(b->last->call.slot, 5);
    assert_int_equal(b->last->method_id, 7);
    assert_int_equal(b->last->raw_len, 100);
    assert_true(teffi_node_equals(b->last->src, a->id));
    teffi_hello peer = test_last_peer(b);
    assert_true(teffi_node_equals(peer.node, a->id));
    assert_string_equal(peer.address, a->address);
    test_wait(a, a->ups == 1);
    test_node_stop(a);
    test_wait(b, b->downs == 1);
    assert_int_equal(b->downs_clean, 0);
    test_node_stop(b);
}

static void many_messages_keep_their_order_both_ways(void **state)
{
    enum { N = 100000 };
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
    test_counts c = test_counters(a->net);
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
    test_node *a = test_node_start((test_options){0}), *b = test_node_start((test_options){0});
    dial(a, b->address);
    assert_int_equal(a->done_err, TEFF_OK);
    assert_int_equal(a->done_after_ups, 1);
    assert_true(teffi_node_equals(a->done_peer.node, b->id));
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
    assert_non_null(strstr(a->done_text, "refused"));
    assert_null(strstr(a->done_text, nobody)); /* the caller names it */
    test_node_stop(a);
}

/* At any step of the dials: they end, and the shutdown waits for no peer that hears no goodbye. */
static void a_shutdown_ends_dials(void **state)
{
    enum { DIALS = 20 };
    test_node *b = test_node_start((test_options){0});
    for (int i = 0; i < 40; i++) {
        test_node *a = test_node_start((test_options){0});
        for (int n = 0; n < DIALS; n++)
            a->net->ops->dial(a->net, b->address, on_done, a);
        for (int step = 0; step < i % 10; step++)
            sched_yield();
        assert_int_equal(a->net->ops->shutdown(a->net, TEST_SHUTDOWN_MS), TEFF_OK);
        test_wait(a, a->dones == DIALS);
        test_node_stop(a);
    }
    test_node_stop(b);
}

static uint32_t live_conns(teffi_conns *conns)
{
    pthread_mutex_lock(&conns->lock);
    uint32_t live = (uint32_t)conns->live;
    pthread_mutex_unlock(&conns->lock);
    return live;
}

static void a_connection_lives_until_its_last_reference_is_dropped(void **state)
{
    test_node *a = test_node_start((test_options){0});
    teffi_conns *conns = &((teffi_link *)a->net)->conns;
    uint32_t before = live_conns(conns);
    pthread_mutex_lock(&conns->lock);
    teffi_conn *conn = teffi_conn_new(conns, true);
    pthread_mutex_unlock(&conns->lock);
    assert_non_null(conn);
    teffi_conn_ref(conn);
    assert_int_equal(live_conns(conns), before + 1);
    teffi_conn_unref(conn);
    assert_int_equal(live_conns(conns), before + 1);
    teffi_conn_unref(conn);
    assert_int_equal(live_conns(conns), before);
    test_node_stop(a);
}

/* Without TLS, too, which only nng has. */
static void the_transport_is_the_one_that_was_built_in(void **state)
{
    static const teffi_net_events events;
    teffi_transport_kind usual =
        TEFFI_DEFAULT_REACTOR ? TEFFI_TRANSPORT_REACTOR : TEFFI_TRANSPORT_NNG;
    test_node *a = test_node_start((test_options){.transport = usual});
    const teffi_net_options opt = {.events = &events};
    teffi_net *net;
    assert_int_equal(teffi_net_link_new(&a->platform, &opt, &net, NULL), TEFF_OK);
    assert_ptr_equal(((teffi_link *)net)->conns.transport->ops,
                     ((teffi_link *)a->net)->conns.transport->ops);
    net->ops->free(net);
    test_node_stop(a);
}

/* What an acceptor of ours says to a dialler of another version: test_silo_port. */
static void an_acceptor_of_another_version_is_refused(void **state)
{
    char address[32];
    test_node *a = test_node_start((test_options){.heartbeat_ms = 60000});
    raw_peer *listener = raw_listen(address);
    teffi_greeting g = raw_greeting(70, 1, 0);
    g.hello.version_min = g.hello.version_max = 1;
    a->net->ops->dial(a->net, address, on_done, a);
    assert_null(raw_accept(listener, &g));
    test_wait(a, a->dones == 1);
    assert_int_equal(a->done_err, TEFF_E_REFUSED);
    assert_non_null(strstr(a->done_text, "versions 2 to 3 expected, the peer speaks 1 to 1"));
    raw_close(listener);
    test_node_stop(a);
}

/* The dialler is up when it has sent its ack, and then it may be refused still. */
static void a_refused_ack_says_why(void **state)
{
    char address[32];
    uint8_t payload[TEFFI_HELLO_MAX];
    test_node *a = test_node_start((test_options){0});
    static const char reason[] = "the acceptor's reason";
    raw_peer *listener = raw_listen(address);
    teffi_greeting g = raw_greeting(70, 1, 0);
    a->net->ops->dial(a->net, address, on_done, a);
    raw_peer *acceptor = raw_accept(listener, &g);
    assert_non_null(acceptor);
    size_t n = teffi_refusal_pack(reason, payload);
    assert_true(raw_send_frame(acceptor, TEFFI_FRAME_REFUSE, payload, n));
    assert_true(raw_ended(acceptor));
    test_wait(a, a->downs == 1);
    test_wait(a, test_logged(a, address, reason));
    assert_int_equal(test_counters(a->net).malformed, 0);
    raw_close(acceptor);
    raw_close(listener);
    test_node_stop(a);
}

static void a_client_gets_responses_on_its_own_connection(void **state)
{
    test_node *silo = test_node_start((test_options){0});
    test_node *client = test_node_start((test_options){.role = TEFFI_ROLE_CLIENT});
    silo->echo = true;
    dial(client, silo->address);
    assert_int_equal(client->done_err, TEFF_OK);
    for (uint32_t i = 1; i <= 1000; i++)
        test_send(client, silo, i, 64);
    test_wait(client, client->messages == 1000);
    assert_int_equal(client->last->item.kind, TEFFI_MSG_RESPONSE);
    assert_int_equal(test_counters(silo->net).dials, 0);
    test_node_stop(client);
    test_node_stop(silo);
}

static void ipv6_addresses_work(void **state)
{
    test_node *a = test_node_start((test_options){.listen = "[::1]:0"});
    test_node *b = test_node_start((test_options){.listen = "[::1]:0"});
    assert_memory_equal(b->address, "[::1]:", 6);
    test_exchange(a, b, 1000);
    test_node_stop(a);
    test_node_stop(b);
}

static void unix_addresses_work(void **state)
{
    char listen_a[64], listen_b[64];
    snprintf(listen_a, sizeof listen_a, "unix:" P_tmpdir "/teff-link-%d-a", (int)getpid());
    snprintf(listen_b, sizeof listen_b, "unix:" P_tmpdir "/teff-link-%d-b", (int)getpid());
    test_node *a = test_node_start((test_options){.listen = listen_a});
    test_node *b = test_node_start((test_options){.listen = listen_b});
    assert_string_equal(b->address, listen_b);
    test_exchange(a, b, 1000);
    test_node_stop(a);
    test_node_stop(b);
}

static void bad_addresses_are_refused(void **state)
{
    static const char *const bad[] = {
        "",      "host",     "host:", ":1",   "host:65536", "host:1x",  "[::1:1", "::1]:1",
        "a/b:1", "user@h:1", "h:1/x", "h:-1", "[fe80::1",   "[g::1]:1", "h :1",   "h:000001"};
    test_node *a = test_node_start((test_options){0});
    test_node *client = test_node_start((test_options){.role = TEFFI_ROLE_CLIENT});
    char bound[TEFFI_ADDRESS_MAX + 1], text[TEFF_TEXT_MAX];
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        teff_err err = a->net->ops->peer_add(a->net, (teffi_node_id){1, 1}, bad[i]);
        assert_int_equal(err, TEFF_E_INVALID);
        assert_int_equal(
            client->net->ops->listen(client->net, TEFFI_DOOR_SILOS, bad[i], bound, text),
            TEFF_E_INVALID);
    }
    assert_int_equal(
        client->net->ops->listen(client->net, TEFFI_DOOR_SILOS, a->address, bound, text),
        TEFF_E_IO);
    assert_non_null(strstr(text, a->address)); /* in use */
    test_node_stop(client);
    test_node_stop(a);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_transport_is_the_one_that_was_built_in),
        cmocka_unit_test(a_connection_lives_until_its_last_reference_is_dropped),
        cmocka_unit_test(a_message_arrives_with_all_it_holds),
        cmocka_unit_test(ipv6_addresses_work),
        cmocka_unit_test(unix_addresses_work),
        cmocka_unit_test(bad_addresses_are_refused),
        cmocka_unit_test(a_dialled_address_becomes_a_known_node),
        cmocka_unit_test(a_dial_says_why_it_failed),
        cmocka_unit_test(a_shutdown_ends_dials),
        cmocka_unit_test(an_acceptor_of_another_version_is_refused),
        cmocka_unit_test(a_refused_ack_says_why),
        cmocka_unit_test(a_client_gets_responses_on_its_own_connection),
        cmocka_unit_test(many_messages_keep_their_order_both_ways),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
