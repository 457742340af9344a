/* test_gateways.c - a client is connected to all its gateways. It loses only the calls through a
 * gateway that breaks, and none through one that leaves; then it connects again. */
#include <pthread.h>
#include <string.h>
#include "call/call.h"
#include "call/calls.h"
#include "call/ctx.h"
#include "call/task.h"
#include "cluster.pb-c.h"
#include "cluster/membership.h"
#include "node/ask.h"
#include "silo/client.h"
#include "../link/net_test.h"
#include "lab.h"

enum { MANY = 1000, GATEWAYS = 3, CALLS = 60 };

/* ---- the first connection ---- */

static void a_dial_leaves_no_memory(void **state)
{
    teff_client_options opt = {.size = sizeof opt,
                               .gateways = {"127.0.0.1:1", "127.0.0.1:1", "127.0.0.1:1"}};
    teffi_platform platform;
    teff_client *client;
    char text[TEFF_TEXT_MAX];
    teffi_silo_init_platform(&platform, TEFF_LOG_ERROR);
    assert_int_equal(teffi_client_new_unconnected(&platform, &opt, &client, text), TEFF_OK);
    teff_ctx *ctx = teff_client_new_ctx(client);
    size_t before = teffi_arena_get_mark(&ctx->arena).used_bytes;
    for (int i = 0; i < 10; i++)
        assert_int_equal(teffi_gateways_connect(ctx, client), TEFF_E_UNREACHABLE);
    assert_int_equal(teffi_arena_get_mark(&ctx->arena).used_bytes, before);
    teff_ctx_free(ctx);
    teff_client_free(client);
}

static bool has_in_place(const teff_client *client, unsigned place, const test_node *gateway)
{
    return teffi_node_equals(teffi_gateways_get(&client->node.gateways, place), gateway->id);
}

static uint64_t chosen;

static uint64_t choose(void *arg)
{
    return chosen;
}

/* Two of three are there: the first one is found in order, from the one on that was drawn. */
static void the_next_gateway_that_is_there_is_taken_first(void **state)
{
    static const unsigned taken[] = {0, 1, 0};
    test_node *there[2] = {test_node_start((test_options){.silo = 61}),
                           test_node_start((test_options){.silo = 62})};
    for (chosen = 0; chosen < 3; chosen++) {
        teff_client_options opt = {
            .size = sizeof opt,
            .cluster = "test",
            .gateways = {there[0]->address, there[1]->address, "127.0.0.1:1"}};
        teffi_platform platform;
        teff_client *client;
        char text[TEFF_TEXT_MAX];
        teffi_silo_init_platform(&platform, TEFF_LOG_ERROR);
        platform.random = choose;
        assert_int_equal(teffi_client_new_unconnected(&platform, &opt, &client, text), TEFF_OK);
        teff_ctx *ctx = teff_client_new_ctx(client);
        lab_ok(ctx, teffi_gateways_connect(ctx, client));
        assert_true(has_in_place(client, taken[chosen], there[taken[chosen]]));
        lab_until(has_in_place(client, 1 - taken[chosen], there[1 - taken[chosen]]));
        assert_true(teffi_node_is_none(teffi_gateways_get(&client->node.gateways, 2)));
        teff_ctx_free(ctx);
        teff_client_free(client);
    }
    for (int i = 0; i < 2; i++)
        test_node_stop(there[i]);
}

/* ---- one gateway ---- */

static teff_client *connected(test_node *gateway)
{
    teff_client_options opt = {
        .size = sizeof opt, .cluster = "test", .gateways = {gateway->address}};
    teff_client *client;
    char text[TEFF_TEXT_MAX] = "";
    if (teff_client_connect(&opt, &client, text))
        fail_msg("%s", text);
    test_wait(gateway, gateway->ups == 1);
    return client;
}

static void tell_go_away(test_node *gateway, const teff_client *client)
{
    teffi_msg *msg = teffi_msg_new(TEFFI_MSG_ONEWAY);
    assert_non_null(msg);
    msg->src = gateway->id;
    msg->to = (teffi_pid){.node = client->node.id, .slot = TEFFI_SLOT_MEMBERSHIP};
    msg->method_id = TEFFI_METHOD_GO_AWAY;
    assert_int_equal(gateway->net->ops->send(gateway->net, client->node.id, msg), TEFF_OK);
}

static uint64_t frames_in(const teff_client *client)
{
    return test_counters(client->node.home.net).frames_in;
}

static void a_gateway_is_left_by_one_task(void **state)
{
    test_node *gateway = test_node_start((test_options){.heartbeat_ms = 1000});
    teff_client *client = connected(gateway);
    teff_ctx *ctx = teff_client_new_ctx(client);
    teffi_node *node = &client->node;
    Teff__Cluster__ViewAtLeast ask = TEFF__CLUSTER__VIEW_AT_LEAST__INIT;
    uint64_t before = frames_in(client);
    /* While it waits for a response of the gateway's it does not leave. */
    teffi_call *call = teffi_ctx_call_new(ctx, teffi_now(node->platform) + 60000000000ull);
    teffi_call_set_sent_to(&node->home, call->slot, call->generation, gateway->id);
    for (int i = 0; i < MANY; i++)
        tell_go_away(gateway, client);
    lab_until(frames_in(client) >= before + MANY);
    lab_ok(ctx, teffi_ctx_run_rpc(ctx, node->id, TEFFI_SLOT_MEMBERSHIP, 0, &ask.base, 60000, NULL,
                                  NULL)); /* behind them in the target's queue */
    assert_in_range(teffi_tasks_count_running(&node->home), 1,
                    2); /* one more looks for another gateway */
    assert_true(teffi_call_fail(call, TEFF_E_CANCELLED, NULL));
    assert_int_equal(teffi_ctx_await_call(ctx, call, NULL), TEFF_E_CANCELLED);
    teff_ctx_free(ctx);
    teff_client_free(client);
    test_node_stop(gateway);
}

static bool goes_to(const teff_client *client, teffi_node_id gateway)
{
    return teffi_node_equals(teffi_gateways_choose(&client->node.gateways, 0), gateway);
}

static bool has_any(const teff_client *client, teffi_node_id id)
{
    bool any = false;
    for (unsigned i = 0; i < client->n_places; i++)
        any |= teffi_node_equals(teffi_gateways_get(&client->node.gateways, i), id);
    return any;
}

static bool takes_requests(teff_client *client, const test_node *gateway)
{
    teffi_net *net = client->node.home.net;
    teffi_msg *msg = test_message(TEFFI_MSG_ONEWAY, 1, 1);
    teff_err err = net->ops->send(net, gateway->id, msg);
    if (!err)
        return true;
    teffi_msg_free(msg);
    assert_int_equal(err, TEFF_E_CLOSED);
    return false;
}

/* A thread that chose the old gateway just before sends it nothing behind the last look at the
 * calls: its request would be on its way together with the goodbye, and get no response. */
static void a_gateway_that_is_left_gets_no_more_requests(void **state)
{
    test_node *both[2] = {test_node_start((test_options){.silo = 61, .heartbeat_ms = 1000}),
                          test_node_start((test_options){.silo = 62, .heartbeat_ms = 1000})};
    teff_client_options opt = {
        .size = sizeof opt, .cluster = "test", .gateways = {both[0]->address, both[1]->address}};
    teff_client *client;
    assert_int_equal(teff_client_connect(&opt, &client, NULL), TEFF_OK);
    test_node *old = both[!goes_to(client, both[0]->id)];
    teff_ctx *ctx = teff_client_new_ctx(client);
    teffi_node *node = &client->node;
    teffi_call *call = teffi_ctx_call_new(ctx, teffi_now(node->platform) + 60000000000ull);
    teffi_call_set_sent_to(&node->home, call->slot, call->generation, old->id);
    assert_true(takes_requests(client, old));
    test_wait(old, old->ups == 1);
    tell_go_away(old, client);
    lab_until(!takes_requests(client, old));
    assert_int_equal(old->downs, 0); /* it waits for the call */
    assert_true(teffi_call_fail(call, TEFF_E_CANCELLED, NULL));
    assert_int_equal(teffi_ctx_await_call(ctx, call, NULL), TEFF_E_CANCELLED);
    test_wait(old, old->downs == 1);
    teff_ctx_free(ctx);
    teff_client_free(client);
    for (int i = 0; i < 2; i++)
        test_node_stop(both[i]);
}

static void a_gateway_that_is_gone_is_forgotten(void **state)
{
    char address[TEFFI_ADDRESS_MAX + 1];
    test_node *old = test_node_start((test_options){.silo = 60, .heartbeat_ms = 1000});
    teffi_node_id id = old->id;
    memcpy(address, old->address, sizeof address);
    teff_client *client = connected(old);
    test_node_stop(old);
    test_node *next = test_node_start(
        (test_options){.silo = 60, .incarnation = 2, .heartbeat_ms = 1000, .listen = address});
    lab_until(goes_to(client, next->id));
    teffi_msg *msg = teffi_msg_new(TEFFI_MSG_ONEWAY);
    assert_int_equal(client->node.home.net->ops->send(client->node.home.net, id, msg),
                     TEFF_E_CLOSED);
    teffi_msg_free(msg);
    teff_client_free(client);
    test_node_stop(next);
}

/* ---- several gateways ---- */

static test_node *nodes[GATEWAYS];

/* Gateways that answer nothing, and a client that is connected to all of them. */
static teff_client *connect_to_all(void)
{
    teff_client_options opt = {.size = sizeof opt, .cluster = "test"};
    teff_client *client;
    for (unsigned i = 0; i < GATEWAYS; i++) {
        nodes[i] = test_node_start((test_options){.silo = 61 + i, .heartbeat_ms = 1000});
        opt.gateways[i] = nodes[i]->address;
    }
    assert_int_equal(teff_client_connect(&opt, &client, NULL), TEFF_OK);
    for (unsigned i = 0; i < GATEWAYS; i++) {
        lab_until(has_in_place(client, i, nodes[i]));
        test_wait(nodes[i], nodes[i]->ups == 1);
    }
    return client;
}

/* The index of the gateway that a key's calls take. */
static unsigned find_gateway(const teff_client *client, uint64_t hash)
{
    teffi_node_id id = teffi_gateways_choose(&client->node.gateways, hash);
    for (unsigned i = 0; i < GATEWAYS; i++)
        if (nodes[i] && teffi_node_equals(nodes[i]->id, id))
            return i;
    fail_msg("no gateway");
    return 0;
}

static void start_calls(teff_client *client, teff_ctx *ctx, teffi_call *calls[CALLS],
                        unsigned through[CALLS])
{
    for (unsigned i = 0; i < CALLS; i++) {
        teffi_msg *msg = test_message(TEFFI_MSG_REQUEST, 0, 1);
        calls[i] = teffi_ctx_call_new(ctx, teffi_now(&client->platform) + 60000000000ull);
        msg->src = client->node.id;
        msg->hash = i * UINT64_C(0x9e3779b97f4a7c15);
        msg->call = (teffi_origin){calls[i]->slot, calls[i]->generation, 0};
        msg->deadline_ns = teffi_now(&client->platform) + 60000000000ull;
        through[i] = find_gateway(client, msg->hash);
        assert_int_equal(teffi_node_send_to_gateway(&client->node, msg), TEFF_OK);
    }
}

/* Its calls end at once with an error that says that they may have run. All others are still
 * pending, and the next calls of all grains find a gateway. */
static void a_lost_gateway_costs_only_its_calls(void **state)
{
    teff_client *client = connect_to_all();
    teff_ctx *ctx = teff_client_new_ctx(client);
    teffi_call *calls[CALLS];
    unsigned through[CALLS], lost = 0;
    start_calls(client, ctx, calls, through);
    for (unsigned i = 0; i < GATEWAYS; i++)
        test_wait(nodes[i], nodes[i]->messages > CALLS / 10);
    teffi_node_id gone = nodes[1]->id;
    test_node_stop(nodes[1]);
    nodes[1] = NULL;
    lab_until(!has_any(client, gone));
    for (unsigned i = 0; i < CALLS; i++) {
        lost += through[i] == 1;
        if (through[i] == 1)
            assert_int_equal(teffi_ctx_await_call(ctx, calls[i], NULL), TEFF_E_UNREACHABLE);
        else
            assert_true(lab_pending(calls[i]));
        (void)find_gateway(client, i * UINT64_C(0x9e3779b97f4a7c15));
    }
    assert_in_range(lost, CALLS / 10, CALLS - CALLS / 10);
    for (unsigned i = 0; i < CALLS; i++)
        if (through[i] != 1)
            assert_true(teffi_call_fail(calls[i], TEFF_E_CANCELLED, NULL));
    teff_ctx_free(ctx);
    teff_client_free(client);
    test_node_stop(nodes[0]);
    test_node_stop(nodes[2]);
}

/* From the message on that the gateway leaves, others are chosen. */
static void calls_avoid_a_gateway_that_leaves(void **state)
{
    teff_client *client = connect_to_all();
    teffi_node_id leaving = nodes[0]->id;
    tell_go_away(nodes[0], client);
    lab_until(!has_any(client, leaving));
    test_wait(nodes[0], nodes[0]->downs == 1);
    for (unsigned i = 1; i < GATEWAYS; i++)
        assert_true(has_in_place(client, i, nodes[i]));
    teff_client_free(client);
    for (unsigned i = 0; i < GATEWAYS; i++)
        test_node_stop(nodes[i]);
}

/* A silo leaves only when its clients have, also if it is the last one. */
static void all_gateways_may_leave(void **state)
{
    teff_client *client = connect_to_all();
    for (unsigned i = 0; i < GATEWAYS; i++) {
        tell_go_away(nodes[i], client);
        test_wait(nodes[i], nodes[i]->downs == 1);
    }
    char address[TEFFI_ADDRESS_MAX + 1];
    memcpy(address, nodes[0]->address, sizeof address);
    test_node_stop(nodes[0]);
    nodes[0] = test_node_start(
        (test_options){.silo = 61, .incarnation = 2, .heartbeat_ms = 1000, .listen = address});
    lab_until(goes_to(client, nodes[0]->id));
    teff_client_free(client);
    for (unsigned i = 0; i < GATEWAYS; i++)
        test_node_stop(nodes[i]);
}

/* ---- a connection that breaks before its gateway is in place ---- */

static unsigned breaks; /* so many dials */

teff_err __real_teffi_dial(teff_ctx *ctx, const char *address, teffi_hello *peer);
teff_err __wrap_teffi_dial(teff_ctx *ctx, const char *address, teffi_hello *peer);

/* The event comes between the dial and what its caller does with it. */
teff_err __wrap_teffi_dial(teff_ctx *ctx, const char *address, teffi_hello *peer)
{
    teff_err err = __real_teffi_dial(ctx, address, peer);
    if (!err && breaks > 0) {
        breaks--;
        ctx->node->net_down(ctx->node, peer, false);
    }
    return err;
}

/* Otherwise the place would have a node that is gone, of which no event would come any more. */
static void a_gateway_that_breaks_at_once_is_dialled_again(void **state)
{
    enum { BREAKS = 3, TRIES_MAX = 1000 };
    unsigned tries = 1;
    test_node *gateway = test_node_start((test_options){.silo = 61, .heartbeat_ms = 1000});
    teff_client_options opt = {
        .size = sizeof opt, .cluster = "test", .gateways = {gateway->address}};
    teffi_platform platform;
    teff_client *client;
    char text[TEFF_TEXT_MAX];
    teffi_silo_init_platform(&platform, TEFF_LOG_ERROR);
    assert_int_equal(teffi_client_new_unconnected(&platform, &opt, &client, text), TEFF_OK);
    teff_ctx *ctx = teff_client_new_ctx(client);
    for (breaks = BREAKS; teffi_gateways_connect(ctx, client) && tries < TRIES_MAX; tries++)
        assert_false(has_any(client, gateway->id));
    assert_in_range(tries, BREAKS + 1, TRIES_MAX - 1); /* the real events may cost more */
    assert_true(goes_to(client, gateway->id));
    teff_ctx_free(ctx);
    teff_client_free(client);
    test_node_stop(gateway);
}

/* ---- no memory for the task that connects ---- */

static _Atomic int starts_refused; /* so many starts of a task that connects still fail */

teff_err __real_teffi_task_start(teffi_home *home, void (*fn)(teff_ctx *ctx, void *arg), void *arg,
                                 const char *label, bool system);
teff_err __wrap_teffi_task_start(teffi_home *home, void (*fn)(teff_ctx *ctx, void *arg), void *arg,
                                 const char *label, bool system);

teff_err __wrap_teffi_task_start(teffi_home *home, void (*fn)(teff_ctx *ctx, void *arg), void *arg,
                                 const char *label, bool system)
{
    if (starts_refused > 0 && strcmp(label, "client: connect to a gateway") == 0) {
        starts_refused--;
        return TEFF_E_NOMEM;
    }
    return __real_teffi_task_start(home, fn, arg, label, system);
}

/* No other gateway breaks meanwhile, so no event would start the task. */
static void a_task_that_cannot_start_is_started_later(void **state)
{
    enum { REFUSED = 3 };
    char address[TEFFI_ADDRESS_MAX + 1];
    test_node *old = test_node_start((test_options){.silo = 60, .heartbeat_ms = 1000});
    memcpy(address, old->address, sizeof address);
    teff_client *client = connected(old);
    starts_refused = REFUSED;
    test_node_stop(old);
    test_node *next = test_node_start(
        (test_options){.silo = 60, .incarnation = 2, .heartbeat_ms = 1000, .listen = address});
    lab_until(goes_to(client, next->id));
    assert_int_equal(starts_refused, 0);
    teff_client_free(client);
    test_node_stop(next);
}

static void a_client_closes_while_a_task_cannot_start(void **state)
{
    enum { FOR_EVER = 1000000 };
    test_node *gateway = test_node_start((test_options){.silo = 60, .heartbeat_ms = 1000});
    teff_client *client = connected(gateway);
    starts_refused = FOR_EVER;
    test_node_stop(gateway);
    lab_until(starts_refused < FOR_EVER);
    teff_client_free(client);
    starts_refused = 0;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_dial_leaves_no_memory),
        cmocka_unit_test(the_next_gateway_that_is_there_is_taken_first),
        cmocka_unit_test(a_gateway_is_left_by_one_task),
        cmocka_unit_test(a_gateway_that_is_left_gets_no_more_requests),
        cmocka_unit_test(a_gateway_that_is_gone_is_forgotten),
        cmocka_unit_test(a_lost_gateway_costs_only_its_calls),
        cmocka_unit_test(calls_avoid_a_gateway_that_leaves),
        cmocka_unit_test(all_gateways_may_leave),
        cmocka_unit_test(a_gateway_that_breaks_at_once_is_dialled_again),
        cmocka_unit_test(a_task_that_cannot_start_is_started_later),
        cmocka_unit_test(a_client_closes_while_a_task_cannot_start),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
