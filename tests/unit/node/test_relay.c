/* test_relay.c - requests that a silo forwards for others: what ends the call that it keeps. */
#include "node/deliver.h"

#include "../call/shares.h"
#include "call/call.h"
#include "call/calls.h"
#include "node/deliver.h"

#include <stdio.h>
#include <string.h>
#include "directory/shard.h"
#include "lab.h"
#include "node/node.h"
#include "silo/client.h"

static const teffi_node_id one_client = {TEFFI_CLIENT_BIT | 5, 1}, peer = {77, 1};
static teffi_node_id other_client; /* has a share of its own */

static lab *l;
static teffi_node *node;

static int setup(void **state)
{
    l = lab_open(1);
    node = &l->silos[0]->node;
    other_client = next_of_other_share(&node->home, one_client);
    return 0;
}

static int teardown(void **state)
{
    lab_close(l);
    return 0;
}

static uint32_t relays(void)
{
    return atomic_load(&node->home.calls.relays);
}

/* out: its message, which a forward would send on. */
static teffi_msg *begin(teffi_node_id from, uint64_t deadline_ns)
{
    teffi_msg *msg = teffi_msg_new(TEFFI_MSG_REQUEST);
    assert_non_null(msg);
    msg->src = from;
    msg->call.slot = 7000000;
    msg->call.generation = 9;
    msg->deadline_ns = deadline_ns;
    assert_int_equal(teffi_node_become_sender(node, msg), TEFF_OK);
    assert_true(teffi_node_equals(msg->src, node->id));
    assert_true(msg->call.slot != 7000000);
    return msg;
}

static void a_lost_link_ends_it(void **state)
{
    uint64_t dropped = node->dropped; /* the client is not there: its response is counted so */
    teffi_msg *msg = begin(one_client, 0);
    teffi_call_set_sent_to(&node->home, msg->call.slot, msg->call.generation, peer);
    teffi_node_send_outcomes_and_free_relays(node,
                                             teffi_calls_end_sent_to(&node->home, one_client));
    assert_int_equal(relays(), 1);
    teffi_node_send_outcomes_and_free_relays(node, teffi_calls_end_sent_to(&node->home, peer));
    assert_int_equal(relays(), 0);
    assert_int_equal(node->dropped, dropped + 1);
    teffi_msg_free(msg);
}

/* A silo that leaves waits for it. */
static void it_counts_until_its_outcome_was_sent_on(void **state)
{
    teffi_msg *msg = begin(one_client, 0);
    teffi_call_set_sent_to(&node->home, msg->call.slot, msg->call.generation, peer);
    teffi_call *ended = teffi_calls_end_sent_to(&node->home, peer);
    assert_non_null(ended);
    assert_int_equal(teffi_calls_relay_count(&node->home), 1);
    teffi_node_send_outcomes_and_free_relays(node, ended);
    assert_int_equal(teffi_calls_relay_count(&node->home), 0);
    teffi_msg_free(msg);
}

static void a_response_ends_it_once(void **state)
{
    uint64_t dropped = node->dropped;
    teffi_msg *msg = begin(one_client, 0);
    for (int i = 0; i < 2; i++) {
        teffi_msg *response = teffi_node_make_response(node, msg);
        assert_non_null(response);
        teffi_node_end_call(node, response);
        assert_int_equal(relays(), 0);
        assert_int_equal(node->dropped, dropped + 1);
    }
    teffi_msg_free(msg);
}

static void a_deadline_ends_it(void **state)
{
    uint64_t dropped = node->dropped;
    teffi_msg_free(begin(one_client, teffi_now(node->platform)));
    lab_until(relays() == 0);
    assert_int_equal(node->dropped, dropped); /* the client has a deadline of its own */
}

static void a_client_that_goes_takes_its_own_along(void **state)
{
    enum { N = 300 };
    for (int i = 0; i < N; i++) {
        teffi_msg_free(begin(one_client, 0));
        teffi_msg_free(begin(other_client, 0));
    }
    teffi_calls_end_relays_of_node(&node->home, one_client);
    assert_int_equal(relays(), N);
    teffi_calls_end_relays_of_node(&node->home, other_client);
    assert_int_equal(relays(), 0);
}

/* What a silo has passed on goes on without it, and is cancelled all the same. */
static void a_silo_that_goes_leaves_its_cancels(void **state)
{
    const teffi_node_id nodes[] = {one_client, {44, 1}};
    const teffi_origin origin = {5, 6, 7};
    for (int is_silo = 0; is_silo < 2; is_silo++) {
        teffi_msg_free(begin(nodes[is_silo], 0));
        teffi_cancel_apply(&node->home, nodes[is_silo], origin, UINT64_MAX);
        teffi_calls_end_relays_of_node(&node->home, nodes[is_silo]);
        assert_int_equal(relays(), 0);
        assert_int_equal(teffi_remove_kept_cancel(&node->home, nodes[is_silo], origin), is_silo);
    }
}

/* The table is not walked for a client that the count says has none under way. */
static void a_client_that_has_none_costs_nothing(void **state)
{
    _Atomic uint32_t *share =
        teffi_relay_entry_count_of_node(&node->home, teffi_node_to_word(one_client));
    teffi_msg_free(begin(one_client, 0));
    assert_int_equal(*share, 1);
    *share = 0; /* a walk would find it all the same */
    teffi_calls_end_relays_of_node(&node->home, one_client);
    assert_int_equal(relays(), 1);
    *share = 1;
    teffi_calls_end_relays_of_node(&node->home, one_client);
    assert_int_equal(relays(), 0);
}

/* out: how many it has until it is refused one. */
static uint32_t fill(teffi_node *gateway, teffi_node_id client)
{
    teffi_msg *msg = teffi_msg_new(TEFFI_MSG_REQUEST);
    teff_err err = TEFF_OK;
    uint32_t n = 0;
    assert_non_null(msg);
    for (; n <= TEFFI_RELAYS_MAX && !err; n += !err) {
        msg->src = client;
        err = teffi_node_become_sender(gateway, msg);
    }
    assert_int_equal(err, TEFF_E_OVERLOADED);
    teffi_msg_free(msg);
    return n;
}

/* As much as it leaves to the others. */
static void each_has_a_share(void **state)
{
    assert_int_equal(fill(node, one_client), TEFFI_RELAYS_MAX / 2);
    assert_int_equal(fill(node, other_client), TEFFI_RELAYS_MAX / 4);
    teffi_calls_end_relays_of_node(&node->home, one_client);
    assert_int_equal(relays(), TEFFI_RELAYS_MAX / 4);
    teffi_calls_end_relays_of_node(&node->home, other_client);
    assert_int_equal(relays(), 0);
    assert_int_equal(fill(node, one_client), TEFFI_RELAYS_MAX / 2);
    teffi_calls_end_relays_of_node(&node->home, one_client);
    assert_int_equal(relays(), 0);
}

/* A client chooses its id, but not the hash: it can take no other client's share on purpose. */
static void clients_with_one_hash_have_one_share(void **state)
{
    teffi_node_id same = other_client;
    while (!have_same_share(&node->home, same, one_client))
        same.silo++;
    assert_int_equal(fill(node, one_client), TEFFI_RELAYS_MAX / 2);
    assert_int_equal(fill(node, same), 0);
    assert_int_equal(fill(node, other_client), TEFFI_RELAYS_MAX / 4);
    teffi_calls_end_relays_of_node(&node->home, one_client);
    teffi_calls_end_relays_of_node(&node->home, other_client);
    assert_int_equal(relays(), 0);
}

static bool is_on(lab *two, int i, const char *key)
{
    lab_number *out;
    uint64_t before = two->silos[i]->node.grains->shards->activations;
    lab_ok(two->ctx[0], lab_turns_write(two->ctx[0], key, lab_step(), &out));
    return two->silos[i]->node.grains->shards->activations > before;
}

/* out: a client of silo 0 with a share of its own. */
static teff_client *connect_beside(lab *two, const teff_client *other)
{
    static const int first_silo[] = {0, -1};
    teff_client *client = lab_client(two, first_silo);
    while (other && have_same_share(&two->silos[0]->node.home, other->node.id, client->node.id)) {
        teff_client_free(client);
        client = lab_client(two, first_silo);
    }
    return client;
}

/* A client that has its share, and asks for more, holds up no other client of its gateway. */
static void one_client_holds_up_no_other(void **state)
{
    lab *two = lab_open(2);
    teffi_node *gateway = &two->silos[0]->node;
    teff_client *greedy = connect_beside(two, NULL), *modest = connect_beside(two, greedy);
    teff_ctx *greedy_ctx = teff_client_new_ctx(greedy), *modest_ctx = teff_client_new_ctx(modest);
    lab_number *out;
    char key[16];
    int n = 0;
    do
        snprintf(key, sizeof key, "key %d", n++);
    while (!is_on(two, 1, key));
    (void)fill(gateway, greedy->node.id);
    lab_ok(modest_ctx, lab_turns_write(modest_ctx, key, lab_step(), &out));
    lab_fails(greedy_ctx, lab_turns_write(greedy_ctx, key, lab_step(), &out), TEFF_E_OVERLOADED);
    assert_non_null(strstr(teff_error(greedy_ctx), "forwarded requests of the caller's node"));
    teffi_calls_end_relays_of_node(&gateway->home, greedy->node.id);
    lab_ok(greedy_ctx, lab_turns_write(greedy_ctx, key, lab_step(), &out));
    teff_ctx_free(greedy_ctx);
    teff_ctx_free(modest_ctx);
    teff_client_free(greedy);
    teff_client_free(modest);
    lab_close(two);
}

static void a_one_way_needs_none(void **state)
{
    teffi_msg *msg = teffi_msg_new(TEFFI_MSG_ONEWAY);
    assert_non_null(msg);
    msg->src = one_client;
    assert_int_equal(teffi_node_become_sender(node, msg), TEFF_OK);
    assert_true(teffi_node_equals(msg->src, node->id));
    assert_int_equal(relays(), 0);
    teffi_msg_free(msg);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_lost_link_ends_it),
        cmocka_unit_test(it_counts_until_its_outcome_was_sent_on),
        cmocka_unit_test(a_response_ends_it_once),
        cmocka_unit_test(a_deadline_ends_it),
        cmocka_unit_test(a_client_that_goes_takes_its_own_along),
        cmocka_unit_test(a_silo_that_goes_leaves_its_cancels),
        cmocka_unit_test(a_client_that_has_none_costs_nothing),
        cmocka_unit_test(each_has_a_share),
        cmocka_unit_test(clients_with_one_hash_have_one_share),
        cmocka_unit_test(one_client_holds_up_no_other),
        cmocka_unit_test(a_one_way_needs_none),
    };
    return cmocka_run_group_tests(tests, setup, teardown);
}
