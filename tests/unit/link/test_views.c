/* test_views.c - frames carry their sender's view of the membership; what a dead peer has sent is
 * not reported. */
#include <string.h>
#include "message/frame.h"
#include "net_test.h"
#include "raw_peer.h"

/* The view that each message carried. */
static uint64_t view_at[8];

static void note_view(test_node *node, const teffi_msg *msg)
{
    view_at[msg->call.slot] = node->view;
}

static void each_message_carries_its_senders_view(void **state)
{
    static const uint64_t views[] = {0, 3, 3, 4, 9};
    test_node *a = test_node_start((test_options){0}), *b = test_node_start((test_options){0});
    b->look = note_view;
    test_know(a, b);
    for (uint32_t i = 0; i < 5; i++) {
        if (i && views[i] > views[i - 1])
            a->net->ops->carry_view(a->net, views[i]);
        test_send(a, b, i + 1, 10);
        test_wait(b, b->messages == i + 1);
    }
    for (uint32_t i = 0; i < 5; i++)
        assert_int_equal(view_at[i + 1], views[i]);
    assert_int_equal(b->views, 3); /* once each */
    assert_true(teffi_node_equals(b->view_of, a->id));
    test_node_stop(a);
    test_node_stop(b);
}

/* Messages that wait for the handshake, and those that are sent from where they lie. */
static void the_first_and_large_messages_carry_it_too(void **state)
{
    test_node *a = test_node_start((test_options){0}), *b = test_node_start((test_options){0});
    b->look = note_view;
    b->checks = true;
    a->net->ops->carry_view(a->net, 5);
    test_know(a, b);
    test_send(a, b, 1, 100000);
    test_wait(b, b->messages == 1);
    a->net->ops->carry_view(a->net, 6);
    test_send(a, b, 2, 100000);
    test_wait(b, b->messages == 2);
    assert_int_equal(view_at[1], 5);
    assert_int_equal(view_at[2], 6);
    assert_int_equal(b->wrong, 0);
    test_node_stop(a);
    test_node_stop(b);
}

/* In both directions of a connection. */
static void heartbeats_carry_it(void **state)
{
    test_options opt = {.heartbeat_ms = 20};
    test_node *a = test_node_start(opt), *b = test_node_start(opt);
    test_know(a, b);
    test_send(a, b, 1, 10);
    test_wait(b, b->messages == 1);
    a->net->ops->carry_view(a->net, 7);
    b->net->ops->carry_view(b->net, 8);
    test_wait(b, b->view == 7);
    test_wait(a, a->view == 8);
    assert_int_equal(a->messages, 0);
    test_node_stop(a);
    test_node_stop(b);
}

static void clients_get_none(void **state)
{
    test_node *a = test_node_start((test_options){0});
    test_node *client = test_node_start((test_options){.role = TEFFI_ROLE_CLIENT});
    a->echo = true;
    a->net->ops->carry_view(a->net, 7);
    test_know(client, a);
    test_send(client, a, 1, 10);
    test_wait(client, client->messages == 1);
    assert_int_equal(client->views + client->downs + a->downs, 0);
    test_node_stop(client);
    test_node_stop(a);
}

/* out: the kind of the first frame that a peer with this protocol version gets. */
static uint8_t first_frame_for(uint32_t version, uint64_t *view)
{
    char address[32];
    test_node *a = test_node_start((test_options){0});
    teffi_greeting g = raw_greeting(971, 1, 1);
    raw_peer *listener = raw_listen(address);
    g.hello.version_max = version;
    a->net->ops->carry_view(a->net, 258);
    assert_int_equal(a->net->ops->peer_add(a->net, g.hello.node, address), TEFF_OK);
    assert_int_equal(a->net->ops->send(a->net, g.hello.node, test_message(TEFFI_MSG_REQUEST, 1, 5)),
                     TEFF_OK);
    raw_peer *out = raw_accept(listener, &g);
    assert_non_null(out);
    uint8_t kind = raw_read(out);
    *view = kind == TEFFI_FRAME_VIEW
                ? teffi_frame_decode_view(out->frame + TEFFI_FRAME_HEAD - TEFFI_FRAME_PREFIX,
                                          TEFFI_VIEW_BYTES)
                : 0;
    assert_int_equal(kind == TEFFI_FRAME_VIEW ? raw_read(out) : kind, TEFFI_MSG_REQUEST);
    raw_close(out);
    raw_close(listener);
    test_node_stop(a);
    return kind;
}

/* It closes a connection with a kind of frame that it does not know. */
static void a_peer_of_an_earlier_version_gets_none(void **state)
{
    uint64_t view;
    assert_int_equal(first_frame_for(TEFFI_PROTOCOL_VIEW, &view), TEFFI_FRAME_VIEW);
    assert_int_equal(view, 258);
    assert_int_equal(first_frame_for(TEFFI_PROTOCOL_VIEW - 1, &view), TEFFI_MSG_REQUEST);
}

static void a_malformed_view_ends_its_connection(void **state)
{
    static const struct {
        uint32_t role;
        uint8_t first;
        size_t n;
    } rows[] = {{TEFFI_ROLE_SILO, 1, TEFFI_VIEW_BYTES - 1},
                {TEFFI_ROLE_SILO, 1, TEFFI_VIEW_BYTES + 1},
                {TEFFI_ROLE_SILO, 1, 0},
                {TEFFI_ROLE_SILO, 0, TEFFI_VIEW_BYTES},
                {TEFFI_ROLE_CLIENT, 1, TEFFI_VIEW_BYTES}};
    test_node *a = test_node_start((test_options){0});
    for (uint32_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        raw_peer *raw = raw_connect(a->address);
        uint8_t payload[TEFFI_VIEW_BYTES + 1] = {rows[i].first};
        bool client = rows[i].role == TEFFI_ROLE_CLIENT;
        teffi_greeting g = raw_greeting((90 + i) | (client ? TEFFI_CLIENT_BIT : 0), 1, 1);
        g.hello.role = rows[i].role;
        if (client)
            g.hello.address[0] = '\0';
        assert_true(raw_join(raw, &g));
        assert_true(raw_send_frame(raw, TEFFI_FRAME_VIEW, payload, rows[i].n));
        assert_true(raw_ended(raw));
        assert_int_equal(test_counters(a->net).malformed, i + 1);
        raw_close(raw);
    }
    assert_int_equal(a->views, 0);
    test_node_stop(a);
}

/* Joins with the silo's n-th connection. */
static raw_peer *join_as_silo(const test_node *to, uint32_t silo, uint64_t n)
{
    raw_peer *raw = raw_connect(to->address);
    teffi_greeting g = raw_greeting(silo, 1, n);
    assert_true(raw_join(raw, &g));
    return raw;
}

/* Sends messages to the slots first .. first + n - 1, all in one write. */
static void send_at_once(raw_peer *raw, const test_node *to, uint32_t first, uint32_t n)
{
    uint8_t bytes[1024];
    size_t len = 0;
    for (uint32_t i = first; i < first + n; i++) {
        size_t room, body;
        teffi_msg *msg = test_message(TEFFI_MSG_ONEWAY, i, 5);
        msg->to.node = to->id;
        assert_int_equal(teffi_frame_compute_size_bound(msg, sizeof bytes - len, &room, &body), 0);
        len += teffi_frame_encode(msg, body, 0, bytes + len);
        teffi_msg_free(msg);
    }
    assert_true(raw_send(raw, bytes, len));
}

/* What its connection had received before, but the owner has not seen. */
static void messages_of_a_dead_peer_are_dropped(void **state)
{
    enum { SILO = 960 };
    test_node *a = test_node_start((test_options){0});
    raw_peer *raw = join_as_silo(a, SILO, 1);
    pthread_mutex_lock(&a->lock);
    a->hold = true;
    pthread_mutex_unlock(&a->lock);
    send_at_once(raw, a, 1, 5); /* they are one batch */
    test_wait(a, test_counters(a->net).frames_in == 5);
    a->net->ops->peer_dead(a->net, (teffi_node_id){SILO, 1});
    pthread_mutex_lock(&a->lock);
    a->hold = false;
    pthread_cond_broadcast(&a->changed);
    pthread_mutex_unlock(&a->lock);
    test_wait(a, a->downs == 1);
    assert_int_equal(a->messages, 1); /* it was being reported */
    raw_close(raw);
    raw = join_as_silo(a, SILO, 2);
    send_at_once(raw, a, 6, 1);
    test_wait(a, a->messages == 2);
    raw_close(raw);
    test_node_stop(a);
}

/* As a silo that left the cluster: what it has passed on counts. */
static void messages_of_a_removed_peer_are_reported(void **state)
{
    enum { SILO = 961 };
    test_node *a = test_node_start((test_options){0});
    raw_peer *raw = join_as_silo(a, SILO, 1);
    pthread_mutex_lock(&a->lock);
    a->hold = true;
    pthread_mutex_unlock(&a->lock);
    send_at_once(raw, a, 1, 5);
    test_wait(a, test_counters(a->net).frames_in == 5);
    a->net->ops->peer_remove(a->net, (teffi_node_id){SILO, 1}, false);
    pthread_mutex_lock(&a->lock);
    a->hold = false;
    pthread_cond_broadcast(&a->changed);
    pthread_mutex_unlock(&a->lock);
    test_wait(a, a->downs == 1);
    assert_int_equal(a->messages, 5);
    raw_close(raw);
    test_node_stop(a);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(each_message_carries_its_senders_view),
        cmocka_unit_test(the_first_and_large_messages_carry_it_too),
        cmocka_unit_test(heartbeats_carry_it),
        cmocka_unit_test(clients_get_none),
        cmocka_unit_test(a_peer_of_an_earlier_version_gets_none),
        cmocka_unit_test(a_malformed_view_ends_its_connection),
        cmocka_unit_test(messages_of_a_dead_peer_are_dropped),
        cmocka_unit_test(messages_of_a_removed_peer_are_reported),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
