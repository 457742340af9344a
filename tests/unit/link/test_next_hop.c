/* test_next_hop.c - the connection that carries messages to a node is found without the link's
 * lock: what changes it is seen by the next message, and none goes astray. */
#include "net_test.h"

#include "base/hash.h"
#include "raw_peer.h"
#include "link/link.h"

static teff_err try_send(test_node *from, test_node *to, uint32_t slot)
{
    teffi_msg *msg = test_message(TEFFI_MSG_REQUEST, slot, 20);
    msg->src = from->id;
    msg->to.node = to->id;
    teff_err err = from->net->ops->send(from->net, to->id, msg);
    if (err)
        teffi_msg_free(msg);
    return err;
}

/* The next message goes the way of the one before. */
static void warm_up(test_node *from, test_node *to)
{
    unsigned before = to->messages;
    test_send(from, to, 1, 20);
    test_wait(to, to->messages == before + 1);
    test_send(from, to, 2, 20);
    test_wait(to, to->messages == before + 2);
}

/* Over the limit of the sender's frames. */
static teff_err try_send_too_large(test_node *from, test_node *to)
{
    teffi_msg *msg = test_message(TEFFI_MSG_REQUEST, 5, 100000);
    msg->to.node = to->id;
    teff_err err = from->net->ops->send(from->net, to->id, msg);
    assert_int_not_equal(err, TEFF_OK);
    teffi_msg_free(msg);
    return err;
}

static void a_removed_peer_is_closed_to_messages_of_any_size(void **state)
{
    test_node *a = test_node_start((test_options){.frame_max_bytes = 65536});
    test_node *b = test_node_start((test_options){0});
    test_know(a, b);
    warm_up(a, b);
    assert_int_equal(try_send_too_large(a, b), TEFF_E_TOO_LARGE);
    a->net->ops->peer_remove(a->net, b->id, false);
    assert_int_equal(try_send_too_large(a, b), TEFF_E_CLOSED);
    test_node_stop(a);
    test_node_stop(b);
}

static void a_removed_peer_is_closed_at_once(void **state)
{
    test_node *a = test_node_start((test_options){0});
    test_node *b = test_node_start((test_options){0});
    for (int i = 0; i < 40; i++) {
        test_know(a, b);
        warm_up(a, b);
        unsigned downs = a->downs;
        a->net->ops->peer_remove(a->net, b->id, i % 2);
        assert_int_equal(try_send(a, b, 3), TEFF_E_CLOSED);
        test_wait(a, a->downs > downs);
        assert_int_equal(try_send(a, b, 4), TEFF_E_CLOSED);
    }
    assert_int_equal(b->messages, 80);
    test_node_stop(a);
    test_node_stop(b);
}

static void a_peer_that_says_goodbye_is_closed(void **state)
{
    test_node *a = test_node_start((test_options){0});
    test_node *b = test_node_start((test_options){0});
    pthread_t thread;
    void *failed;
    test_know(a, b);
    warm_up(a, b);
    assert_int_equal(pthread_create(&thread, NULL, test_shutdown, b), 0);
    pthread_join(thread, &failed);
    assert_null(failed);
    assert_int_equal(try_send(a, b, 3), TEFF_E_CLOSED);
    assert_int_equal(b->messages, 2);
    test_node_stop(b);
    test_node_stop(a);
}

static void a_leaving_silo_sends_no_more(void **state)
{
    test_node *a = test_node_start((test_options){0});
    test_node *b = test_node_start((test_options){0});
    test_know(a, b);
    warm_up(a, b);
    assert_null(test_shutdown(a));
    assert_int_equal(try_send(a, b, 3), TEFF_E_CLOSED);
    assert_int_equal(b->messages, 2);
    test_node_stop(a);
    test_node_stop(b);
}

static teff_err send_to(test_node *from, teffi_node_id to)
{
    teffi_msg *msg = test_message(TEFFI_MSG_REQUEST, 1, 20);
    teff_err err = from->net->ops->send(from->net, to, msg);
    if (err)
        teffi_msg_free(msg);
    return err;
}

enum { COMES_BACK = 20 };

/* The older connection is still there for a moment. */
static void a_client_is_sent_to_on_its_newest_connection(void **state)
{
    test_node *silo = test_node_start((test_options){0});
    raw_peer *client[COMES_BACK];
    for (unsigned i = 0; i < COMES_BACK; i++) {
        teffi_greeting greeting = raw_greeting(TEFFI_CLIENT_BIT | 77, 1, i + 1);
        greeting.hello.role = TEFFI_ROLE_CLIENT;
        greeting.hello.address[0] = '\0';
        client[i] = raw_connect(silo->address);
        assert_true(raw_join(client[i], &greeting));
        test_wait(silo, silo->ups == i + 1);
        for (int n = 0; n < 3; n++) {
            assert_int_equal(send_to(silo, greeting.hello.node), TEFF_OK);
            assert_int_equal(raw_read(client[i]), TEFFI_MSG_REQUEST);
        }
    }
    for (unsigned i = 0; i < COMES_BACK - 1; i++)
        assert_true(raw_ended(client[i]));
    for (unsigned i = 0; i < COMES_BACK; i++)
        raw_close(client[i]);
    test_wait(silo, silo->downs == COMES_BACK);
    assert_int_equal(send_to(silo, (teffi_node_id){TEFFI_CLIENT_BIT | 77, 1}), TEFF_E_CLOSED);
    test_node_stop(silo);
}

/* Sends an ack with this payload and a request, with one write. */
static bool ack_and_ask(raw_peer *raw, const uint8_t *ack, size_t len, uint32_t slot)
{
    uint8_t bytes[512];
    size_t size, body;
    teffi_msg *msg = test_message(TEFFI_MSG_REQUEST, slot, 20);
    teffi_frame_encode_control(TEFFI_FRAME_ACK, ack, len, bytes);
    size_t at = TEFFI_FRAME_HEAD + len;
    assert_int_equal(teffi_frame_compute_size_bound(msg, sizeof bytes - at, &size, &body), TEFF_OK);
    size = teffi_frame_encode(msg, body, 0, bytes + at);
    teffi_msg_free(msg);
    return raw_send(raw, bytes, at + size);
}

/* Joins and asks at once. */
static raw_peer *join_and_ask(test_node *silo, const teffi_greeting *greeting, uint32_t slot)
{
    uint8_t ack[64];
    teffi_greeting answer;
    raw_peer *raw = raw_connect(silo->address);
    assert_true(raw_send_greeting(raw, greeting) && raw_read_hello(raw, &answer));
    assert_true(ack_and_ask(raw, ack, raw_ack(&answer, ack), slot));
    return raw;
}

/* It comes back before the silo's connection to it, which has sent BYE_ACK, has ended. */
static void a_peer_that_comes_back_after_its_goodbye_gets_responses(void **state)
{
    test_node *silo = test_node_start((test_options){0});
    char address[32];
    raw_peer *listener = raw_listen(address);
    raw_peer *in[COMES_BACK], *out[COMES_BACK];
    teffi_greeting greeting = raw_greeting(60, 1, 1);
    silo->echo = true;
    assert_int_equal(silo->net->ops->peer_add(silo->net, greeting.hello.node, address), TEFF_OK);
    for (uint32_t i = 0; i < COMES_BACK; i++) {
        greeting.sequence = i + 1;
        in[i] = join_and_ask(silo, &greeting, i + 1);
        out[i] = raw_accept(listener, &greeting);
        assert_non_null(out[i]);
        assert_int_equal(raw_read(out[i]), TEFFI_MSG_RESPONSE);
        assert_true(raw_send_frame(in[i], TEFFI_FRAME_BYE, NULL, 0));
        assert_int_equal(raw_read(out[i]), TEFFI_FRAME_BYE_ACK);
    }
    for (unsigned i = 0; i < COMES_BACK; i++) {
        raw_close(in[i]);
        raw_close(out[i]);
    }
    raw_close(listener);
    test_node_stop(silo);
}

/* ---- threads beside breaks ---- */

enum { SENDERS = 3, PEERS = 3, BREAKS = 60, LEAST = 20000 };

typedef struct world {
    test_node *from, *to[PEERS];
    _Atomic bool over;
    _Atomic uint64_t taken;
    uint32_t newest[PEERS][SENDERS]; /* guarded by to[]->lock */
    _Atomic unsigned astray, disorder;
} world;

static world w;

/* A message is its receiver's, and newer than all of its sender before. method_id: who sent it. */
static void look(test_node *node, const teffi_msg *msg)
{
    for (int i = 0; i < PEERS; i++) {
        if (w.to[i] != node)
            continue;
        uint32_t *newest = &w.newest[i][msg->method_id];
        w.astray += !teffi_node_equals(msg->to.node, node->id);
        w.disorder += msg->call.slot <= *newest;
        *newest = msg->call.slot;
    }
}

static void *send_on(void *arg)
{
    uint32_t who = (uint32_t)(uintptr_t)arg;
    for (uint32_t n = 1; !w.over; n++) {
        test_node *to = w.to[n % PEERS];
        teffi_msg *msg = test_message(TEFFI_MSG_REQUEST, n, 20);
        msg->method_id = who;
        msg->to.node = to->id;
        if (w.from->net->ops->send(w.from->net, to->id, msg) == TEFF_OK)
            w.taken++;
        else
            teffi_msg_free(msg);
    }
    return NULL;
}

/* in: its connection is up. */
static void break_some(uint32_t n)
{
    test_node *to = w.to[n % PEERS];
    uint64_t taken = w.taken;
    unsigned ups = to->ups, downs = to->downs;
    w.from->net->ops->peer_remove(w.from->net, to->id, n % 2);
    assert_int_equal(try_send(w.from, to, 1), TEFF_E_CLOSED);
    test_wait(to, to->downs > downs);
    unsigned messages = to->messages;
    test_know(w.from, to);
    test_wait(to, to->ups > ups && to->messages > messages + 10);
    test_wait(w.from, w.taken > taken + LEAST / BREAKS);
}

static void threads_send_beside_breaks(void **state)
{
    pthread_t threads[SENDERS];
    w.from = test_node_start((test_options){.queue_max_bytes = 1024 * 1024});
    for (int i = 0; i < PEERS; i++) {
        w.to[i] = test_node_start((test_options){0});
        w.to[i]->look = look;
        test_know(w.from, w.to[i]);
    }
    for (uintptr_t i = 0; i < SENDERS; i++)
        assert_int_equal(pthread_create(&threads[i], NULL, send_on, (void *)i), 0);
    for (int i = 0; i < PEERS; i++)
        test_wait(w.to[i], w.to[i]->ups == 1);
    for (uint32_t n = 0; n < BREAKS; n++)
        break_some(n);
    w.over = true;
    for (int i = 0; i < SENDERS; i++)
        pthread_join(threads[i], NULL);
    assert_int_equal(w.astray, 0);
    assert_int_equal(w.disorder, 0);
    assert_true(w.taken > LEAST);
    test_node_stop(w.from);
    for (int i = 0; i < PEERS; i++)
        test_node_stop(w.to[i]);
}

/* Nodes of the table's longest list. */
static unsigned longest_list(test_node *node)
{
    teffi_link *link = (teffi_link *)node->net;
    unsigned longest = 0;
    pthread_mutex_lock(&link->conns.lock);
    for (unsigned i = 0; i < LINK_BUCKETS; i++) {
        unsigned n = 0;
        for (const link_peer *at = link->peers.buckets[i]; at; at = at->bucket_next)
            n++;
        longest = n > longest ? n : longest;
    }
    pthread_mutex_unlock(&link->conns.lock);
    return longest;
}

/* Clients choose their ids. With a hash that they know all of these are in one list; else 20 of 100
 * in one of 1,024 lists have a chance below 10^-36. */
static void clients_cannot_choose_a_list(void **state)
{
    enum { N = 100 };
    raw_peer *clients[N];
    test_node *a = test_node_start((test_options){0});
    teffi_node_id id = {77 | TEFFI_CLIENT_BIT, 0};
    for (unsigned i = 0; i < N; i++) {
        do
            id.incarnation++;
        while (teffi_mix64(teffi_node_to_word(id)) % LINK_BUCKETS != 5);
        teffi_greeting g = raw_greeting(id.silo, id.incarnation, 1);
        g.hello.role = TEFFI_ROLE_CLIENT;
        g.hello.address[0] = '\0';
        clients[i] = raw_connect(a->address);
        assert_true(raw_join(clients[i], &g));
    }
    test_wait(a, a->ups == N);
    assert_true(longest_list(a) < 20);
    for (unsigned i = 0; i < N; i++)
        raw_close(clients[i]);
    test_node_stop(a);
}

static void each_link_has_a_secret_of_its_own(void **state)
{
    test_node *node[2] = {test_node_start((test_options){0}), test_node_start((test_options){0})};
    const teffi_sipkey *one = &((teffi_link *)node[0]->net)->secret;
    const teffi_sipkey *other = &((teffi_link *)node[1]->net)->secret;
    assert_int_not_equal(one->k0, other->k0);
    assert_int_not_equal(one->k1, other->k1);
    for (int i = 0; i < 2; i++)
        test_node_stop(node[i]);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_removed_peer_is_closed_at_once),
        cmocka_unit_test(a_removed_peer_is_closed_to_messages_of_any_size),
        cmocka_unit_test(a_peer_that_says_goodbye_is_closed),
        cmocka_unit_test(a_leaving_silo_sends_no_more),
        cmocka_unit_test(a_client_is_sent_to_on_its_newest_connection),
        cmocka_unit_test(a_peer_that_comes_back_after_its_goodbye_gets_responses),
        cmocka_unit_test(threads_send_beside_breaks),
        cmocka_unit_test(clients_cannot_choose_a_list),
        cmocka_unit_test(each_link_has_a_secret_of_its_own),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
