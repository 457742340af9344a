/* test_client.c - options of a client, requests that reach no gateway, and limits. */
#include "silo/client.h"
#include "call/call.h"
#include "call/ctx.h"

#include <pthread.h>
#include <string.h>
#include "../link/net_test.h"
#include "lab.h"
#include "used.h"

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
        teffi_silo_init_platform(&platform, TEFF_LOG_ERROR);
        platform.random = rows[i].random;
        assert_int_equal(teffi_client_new_unconnected(&platform, &opt, &client, text), TEFF_OK);
        assert_true(teffi_node_equals(client->node.id, rows[i].id));
        teff_client_free(client);
    }
}

static const teffi_node_id gateway_id = {1, 1};

/* A request that came back unsent has so much time left; its call ends with err. in: ops, NULL:
 * the client's own. */
static void ends_unsent(uint64_t left_ns, const teffi_net_ops *ops, teff_err err, const char *says)
{
    teff_client_options opt = {.size = sizeof opt, .gateways = {"127.0.0.1:1"}};
    teffi_platform platform;
    teff_client *client;
    char text[TEFF_TEXT_MAX];
    teffi_silo_init_platform(&platform, TEFF_LOG_ERROR);
    assert_int_equal(teffi_client_new_unconnected(&platform, &opt, &client, text), TEFF_OK);
    teffi_net *net = client->node.home.net;
    const teffi_net_ops *own = net->ops;
    teff_ctx *ctx = teff_client_new_ctx(client);
    teffi_call *call = teffi_ctx_call_new(ctx, teffi_now(&platform) + 60000000000ull);
    teffi_msg *msg = test_message(TEFFI_MSG_REQUEST, call->slot, 1);
    msg->call.generation = call->generation;
    msg->src = client->node.id;
    msg->deadline_ns = teffi_now(&platform) + left_ns;
    net->ops = ops ? ops : own;
    if (ops)
        teffi_gateways_set(&client->node.gateways, 0, gateway_id);
    client->node.upcalls.unsent(&client->node, gateway_id, msg);
    assert_int_equal(teffi_ctx_await_call(ctx, call, NULL), err);
    assert_non_null(strstr(teff_error(ctx), says));
    net->ops = own;
    teff_ctx_free(ctx);
    teff_client_free(client);
}

static void a_request_without_a_gateway_is_answered(void **state)
{
    ends_unsent(0, NULL, TEFF_E_UNAVAILABLE, "no gateway can be reached");
}

static teff_err refuse_large(teffi_net *net, teffi_node_id to, teffi_msg *msg)
{
    return TEFF_E_TOO_LARGE;
}

static teff_err refuse_more(teffi_net *net, teffi_node_id to, teffi_msg *msg)
{
    return TEFF_E_OVERLOADED;
}

static void a_request_that_is_refused_keeps_the_error(void **state)
{
    static const teffi_net_ops large = {.send = refuse_large}, full = {.send = refuse_more};
    ends_unsent(60000000000ull, &large, TEFF_E_TOO_LARGE, "larger than a frame may be");
    ends_unsent(60000000000ull, &full, TEFF_E_OVERLOADED, "connection_bytes_max");
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
    teff_ctx *ctx = teff_client_new_ctx(client);
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
        cmocka_unit_test(an_id_is_a_clients),
        cmocka_unit_test(a_request_without_a_gateway_is_answered),
        cmocka_unit_test(a_request_that_is_refused_keeps_the_error),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
