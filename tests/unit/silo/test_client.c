/* test_client.c - a client without gateways, and with gateways that go: nothing grows. */
#include "call/task.h"
#include "silo/client.h"
#include "call/call.h"
#include "call/ctx.h"

#include <pthread.h>
#include <string.h>
#include "../link/net_test.h"
#include "cluster.pb-c.h"
#include "cluster/membership.h"
#include "node/ask.h"
#include "lab.h"
#include "used.h"

enum { MANY = 1000 };

static void a_dial_leaves_no_memory(void **state)
{
    teff_client_options opt = {.size = sizeof opt,
                               .gateways = {"127.0.0.1:1", "127.0.0.1:1", "127.0.0.1:1"}};
    teffi_platform platform;
    teff_client *client;
    char text[TEFF_TEXT_MAX];
    teffi_silo_platform(&platform, TEFF_LOG_ERROR);
    assert_int_equal(teffi_client_open(&platform, &opt, &client, text), TEFF_OK);
    teff_ctx *ctx = teff_client_ctx(client);
    size_t before = teffi_arena_here(&ctx->arena).used_bytes;
    for (int i = 0; i < 10; i++)
        assert_int_equal(teffi_client_join(ctx, client), TEFF_E_UNREACHABLE);
    assert_int_equal(teffi_arena_here(&ctx->arena).used_bytes, before);
    teff_ctx_free(ctx);
    teff_client_free(client);
}

static uint64_t chosen;

static uint64_t choose(void *arg)
{
    return chosen;
}

/* Two of three are there: from the first one on that was drawn, in order. */
static void the_next_gateway_that_is_there_is_taken(void **state)
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
        teffi_silo_platform(&platform, TEFF_LOG_ERROR);
        platform.random = choose;
        assert_int_equal(teffi_client_open(&platform, &opt, &client, text), TEFF_OK);
        teff_ctx *ctx = teff_client_ctx(client);
        lab_ok(ctx, teffi_client_join(ctx, client));
        assert_int_equal(client->node.gateway, teffi_node_word(there[taken[chosen]]->id));
        teff_ctx_free(ctx);
        teff_client_free(client);
    }
    for (int i = 0; i < 2; i++)
        test_node_stop(there[i]);
}

static uint64_t lowest(void *arg)
{
    return 0;
}

static uint64_t highest(void *arg)
{
    return UINT64_MAX;
}

/* Drawn, but never 0, which is no node's. */
static void an_id_is_a_clients(void **state)
{
    static const struct {
        uint64_t (*random)(void *arg);
        teffi_node_id id;
    } rows[] = {{lowest, {TEFFI_CLIENT_BIT, 1}}, {highest, {UINT32_MAX, 0x80000000}}};
    for (unsigned i = 0; i < 2; i++) {
        teff_client_options opt = {.size = sizeof opt, .gateways = {"127.0.0.1:1"}};
        teffi_platform platform;
        teff_client *client;
        char text[TEFF_TEXT_MAX];
        teffi_silo_platform(&platform, TEFF_LOG_ERROR);
        platform.random = rows[i].random;
        assert_int_equal(teffi_client_open(&platform, &opt, &client, text), TEFF_OK);
        assert_true(teffi_node_is(client->node.id, rows[i].id));
        teff_client_free(client);
    }
}

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
    teff_ctx *ctx = teff_client_ctx(client);
    teffi_node *node = &client->node;
    Teff__Cluster__ViewAtLeast ask = TEFF__CLUSTER__VIEW_AT_LEAST__INIT;
    uint64_t before = frames_in(client);
    /* While it waits for a response of the gateway's it does not leave. */
    teffi_call *call = teffi_ctx_call(ctx, teffi_now(node->platform) + 60000000000ull);
    teffi_call_sent_to(&node->home, call->slot, call->generation, gateway->id);
    for (int i = 0; i < MANY; i++)
        tell_go_away(gateway, client);
    lab_until(frames_in(client) >= before + MANY);
    lab_ok(ctx, teffi_ctx_rpc(ctx, node->id, TEFFI_SLOT_MEMBERSHIP, 0, &ask.base, 60000, NULL,
                              NULL)); /* behind them in the target's queue */
    assert_in_range(teffi_tasks_running(&node->home), 1,
                    2); /* one more looks for another gateway */
    assert_true(teffi_call_fail(call, TEFF_E_CANCELLED, NULL));
    assert_int_equal(teffi_ctx_await_call(ctx, call, NULL), TEFF_E_CANCELLED);
    teff_ctx_free(ctx);
    teff_client_free(client);
    test_node_stop(gateway);
}

static bool goes_to(const teff_client *client, teffi_node_id gateway)
{
    return client->node.gateway == teffi_node_word(gateway);
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
    teff_ctx *ctx = teff_client_ctx(client);
    teffi_node *node = &client->node;
    teffi_call *call = teffi_ctx_call(ctx, teffi_now(node->platform) + 60000000000ull);
    teffi_call_sent_to(&node->home, call->slot, call->generation, old->id);
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

/* A request that came back unsent, until its deadline. */
static void a_request_without_a_gateway_is_answered(void **state)
{
    teff_client_options opt = {.size = sizeof opt, .gateways = {"127.0.0.1:1"}};
    teffi_platform platform;
    teff_client *client;
    char text[TEFF_TEXT_MAX];
    teffi_silo_platform(&platform, TEFF_LOG_ERROR);
    assert_int_equal(teffi_client_open(&platform, &opt, &client, text), TEFF_OK);
    teff_ctx *ctx = teff_client_ctx(client);
    teffi_call *call = teffi_ctx_call(ctx, teffi_now(&platform) + 60000000000ull);
    teffi_msg *msg = test_message(TEFFI_MSG_REQUEST, call->slot, 1);
    msg->call.generation = call->generation;
    msg->src = client->node.id;
    msg->deadline_ns = teffi_now(&platform);
    client->node.upcalls.unsent(&client->node, (teffi_node_id){1, 1}, msg);
    assert_int_equal(teffi_ctx_await_call(ctx, call, NULL), TEFF_E_UNAVAILABLE);
    assert_non_null(strstr(teff_error(ctx), "no gateway can be reached"));
    teff_ctx_free(ctx);
    teff_client_free(client);
}

static void refused(teff_client_options opt, const char *option, const char *value)
{
    char text[TEFF_TEXT_MAX] = "";
    teff_client *client = (teff_client *)&opt;
    opt.size = sizeof opt;
    teff_err err = teff_client_connect(&opt, &client, text);
    if (err != TEFF_E_INVALID || client)
        fail_msg("%s was taken: %s", option, teff_err_name(err));
    if (!strstr(text, option) || !strstr(text, value) || !strstr(text, "expected"))
        fail_msg("'%s' does not name %s and '%s'", text, option, value);
}

static void each_bad_option_names_itself(void **state)
{
    refused((teff_client_options){.cluster = "a b", .gateways = {"127.0.0.1:1"}}, "cluster", "a b");
    refused((teff_client_options){0}, "gateways", "none");
    refused((teff_client_options){.gateways = {"x"}}, "gateway", "x");
    refused((teff_client_options){.gateways = {"127.0.0.1:1"}, .tls_cert = "c.pem"}, "tls",
            "c.pem");
    refused((teff_client_options){.gateways = {"127.0.0.1:1"}, .tls_ca = "a.pem"}, "tls", "a.pem");
    refused((teff_client_options){.gateways = {"127.0.0.1:1"}, .connection_bytes_max = UINT32_MAX},
            "connection_bytes_max", "2047 MiB");
}

/* The gateway reads nothing while it is held. Calls are started until one is refused while at least
 * so many bytes wait: sockets take some meanwhile. out: the bytes that wait. */
static int64_t fill(teff_client_options opt, const char *says, int64_t least)
{
    enum { PAD = 100 * 1024, CALLS = 2000 };
    static uint8_t pad[PAD];
    static teff_call calls[CALLS];
    char text[TEFF_TEXT_MAX] = "";
    teff_client *client;
    lab_number *out;
    test_node *gateway = test_node_start((test_options){0});
    gateway->hold = true;
    opt.size = sizeof opt;
    opt.cluster = "test";
    opt.gateways[0] = gateway->address;
    if (teff_client_connect(&opt, &client, text))
        fail_msg("%s", text);
    teff_ctx *ctx = teff_client_ctx(client);
    teff_err err = TEFF_OK;
    int64_t used = 0;
    for (int i = 0; i < CALLS && (err != TEFF_E_OVERLOADED || used < least); i++) {
        lab_ok(ctx,
               lab_turns_write_async(ctx, "key", lab_step(.pad = {PAD, pad}), NULL, &calls[i]));
        used = bytes_used(client->node.budget);
        err = lab_pending(calls[i].impl) ? TEFF_OK : lab_turns_write_await(ctx, calls[i], &out);
    }
    assert_int_equal(err, TEFF_E_OVERLOADED);
    if (!strstr(teff_error(ctx), says))
        fail_msg("\"%s\" does not say %s", teff_error(ctx), says);
    teff_ctx_free(ctx);
    test_node_stop(gateway);
    teff_client_free(client);
    return used;
}

/* Beyond what the sockets take: 100 KiB a call. */
static void what_waits_is_limited_in_bytes(void **state)
{
    enum { MIB = 1024 * 1024 };
    assert_in_range(
        fill((teff_client_options){.connection_bytes_max = 2 * MIB}, "connection_bytes_max", MIB),
        MIB, 4 * MIB);
    assert_in_range(
        fill((teff_client_options){.message_bytes_max = 2 * MIB}, "message_bytes_max", 2 * MIB),
        2 * MIB, 4 * MIB);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(each_bad_option_names_itself),
        cmocka_unit_test(what_waits_is_limited_in_bytes),
        cmocka_unit_test(a_dial_leaves_no_memory),
        cmocka_unit_test(the_next_gateway_that_is_there_is_taken),
        cmocka_unit_test(an_id_is_a_clients),
        cmocka_unit_test(a_gateway_is_left_by_one_task),
        cmocka_unit_test(a_gateway_that_is_left_gets_no_more_requests),
        cmocka_unit_test(a_gateway_that_is_gone_is_forgotten),
        cmocka_unit_test(a_request_without_a_gateway_is_answered),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
