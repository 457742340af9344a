/* test_deliver.c - where a message goes, and which response its sender gets. One node on an
 * executor of the test; a transport that records what it is given. */
#include "test.h"

#include <stdio.h>
#include <string.h>
#include "call/calls.h"
#include "call/ctx.h"
#include "cluster.pb-c.h"
#include "node/deliver.h"
#include "node/pid.h"
#include "process/process.h"

static const teffi_node_id self = {5, 1}, peer = {77, 1}, one_client = {TEFFI_CLIENT_BIT | 5, 1};

static teffi_node node;

/* ---- the transport: what was sent last ---- */

static struct {
    unsigned tries, n; /* calls of send; those that took the message */
    teff_err next[4];  /* results of the next sends */
    teffi_node_id to;
    uint32_t kind, slot, generation, err;
    uint64_t cookie;
    uint16_t flags;
    bool system;
    teffi_node_id src, dst;
    size_t raw_len, transaction_len;
    char text[2 * TEFF_TEXT_MAX];
} sent;

static teff_err on_send(teffi_net *net, teffi_node_id to, teffi_msg *msg)
{
    teff_err err = sent.next[sent.tries++];
    sent.to = to;
    sent.err = msg->err;
    if (err)
        return err;
    sent.n++;
    sent.kind = msg->item.kind;
    sent.slot = msg->call.slot;
    sent.generation = msg->call.generation;
    sent.cookie = msg->call.cookie;
    sent.flags = msg->flags;
    sent.system = msg->system;
    sent.src = msg->src;
    sent.dst = msg->to.node;
    sent.raw_len = msg->raw_len;
    sent.transaction_len = msg->transaction_len;
    snprintf(sent.text, sizeof sent.text, "%s", msg->text ? msg->text : "none");
    teffi_msg_free(msg);
    return TEFF_OK;
}

static const teffi_net_ops net_ops = {.send = on_send};
static teffi_net net = {&net_ops};

/* ---- the node ---- */

static unsigned ready;

static uint64_t on_clock(void *arg)
{
    return 1000000000;
}

static uint64_t on_random(void *arg)
{
    return 0x9e3779b97f4a7c15u;
}

static void on_ready(teffi_exec *on, teffi_group *group)
{
    ready++;
}

static const teffi_exec_ops exec_ops = {.ready = on_ready};
static teffi_platform platform;
static teffi_exec exec = {.ops = &exec_ops, .platform = &platform};

static teff_err give_exec(const teffi_platform *on, unsigned workers, const teff_sched_options *opt,
                          teffi_exec **out)
{
    *out = &exec;
    return TEFF_OK;
}

static int setup(void **state)
{
    platform = (teffi_platform){.mono_ns = on_clock, .random = on_random, .exec_new = give_exec};
    memset(&sent, 0, sizeof sent);
    ready = 0;
    if (teffi_node_init(&node, &platform, TEFFI_ROLE_SILO, "test", 1, NULL))
        return 1;
    node.id = self;
    node.home.net = &net;
    return 0;
}

static int teardown(void **state)
{
    teffi_node_fini(&node);
    return 0;
}

/* A message from the peer to a slot of this node. */
static teffi_msg *message(uint32_t kind, uint32_t slot)
{
    teffi_msg *msg = teffi_msg_new(kind);
    assert_non_null(msg);
    msg->src = peer;
    msg->to = (teffi_pid){.node = self, .slot = slot};
    msg->call.slot = 12;
    msg->call.generation = 34;
    msg->call.cookie = 56;
    return msg;
}

static void dropped(uint64_t n)
{
    assert_int_equal(node.dropped, n);
}

/* One response to message() was sent, since the test began. */
static void responded(teff_err err, const char *text)
{
    assert_int_equal(sent.n, 1);
    assert_true(teffi_node_equals(sent.to, peer) && teffi_node_equals(sent.dst, peer));
    assert_true(teffi_node_equals(sent.src, self));
    assert_int_equal(sent.kind, TEFFI_MSG_RESPONSE);
    assert_int_equal(sent.slot, 12);
    assert_int_equal(sent.generation, 34);
    assert_int_equal(sent.cookie, 56);
    assert_int_equal(sent.err, err);
    assert_string_equal(sent.text, text);
}

/* ---- where it goes ---- */

static teffi_msg *handled;

static void on_handle(teffi_node *at, teffi_msg *msg)
{
    assert_ptr_equal(at, &node);
    handled = msg;
}

static void a_message_to_a_system_slot_is_an_item_of_its_target(void **state)
{
    teffi_msg *msg = message(TEFFI_MSG_REQUEST, TEFFI_SLOT_DIRECTORY);
    teffi_node_set_target(&node, TEFFI_SLOT_DIRECTORY, on_handle);
    handled = NULL;
    teffi_node_deliver(&node, msg);
    assert_null(handled);
    assert_int_equal(ready, 1);
    (void)teffi_group_run(&node.targets[TEFFI_SLOT_DIRECTORY].group, 10, 0);
    assert_ptr_equal(handled, msg);
    assert_true(msg->system);
    teffi_msg_free(msg);
}

static void a_target_says_what_it_is(void **state)
{
    teffi_group *group = &node.targets[TEFFI_SLOT_STORE].group;
    char text[100] = "";
    teffi_node_set_target(&node, TEFFI_SLOT_STORE, on_handle);
    group->ops->describe(group, text, sizeof text);
    assert_string_equal(text, "system target store");
}

/* The store decides by the row which of its requests come first. */
static void all_but_the_stores_are_system_messages(void **state)
{
    for (unsigned slot = TEFFI_SLOT_DIRECTORY; slot <= TEFFI_SLOT_STORE; slot++) {
        teffi_msg *msg = message(TEFFI_MSG_ONEWAY, slot);
        msg->system = slot == TEFFI_SLOT_STORE;
        teffi_node_set_target(&node, slot, on_handle);
        teffi_node_deliver(&node, msg);
        (void)teffi_group_run(&node.targets[slot].group, 10, 0);
        assert_int_equal(msg->system, slot != TEFFI_SLOT_STORE);
        teffi_msg_free(msg);
    }
}

static void a_slot_without_a_target_is_not_found(void **state)
{
    teffi_node_deliver(&node, message(TEFFI_MSG_REQUEST, TEFFI_SLOT_SYSTEM_END - 1));
    responded(TEFF_E_NOT_FOUND, "no such system target");
    assert_true(sent.flags & TEFFI_MSG_UNNAMED);
}

static void on_grain(teffi_node *at, teffi_msg *msg)
{
    handled = msg;
}

static void the_first_slot_and_those_behind_the_system_are_grains(void **state)
{
    const uint32_t slots[] = {TEFFI_SLOT_GRAIN, TEFFI_SLOT_SYSTEM_END, TEFFI_PROCESS_BIT - 1};
    node.upcalls.request = on_grain;
    for (int i = 0; i < 3; i++) {
        teffi_msg *msg = message(TEFFI_MSG_REQUEST, slots[i]);
        handled = NULL;
        teffi_node_deliver(&node, msg);
        assert_ptr_equal(handled, msg);
        teffi_msg_free(msg);
    }
}

static void a_node_without_grains_says_so(void **state)
{
    teffi_node_deliver(&node, message(TEFFI_MSG_REQUEST, TEFFI_SLOT_GRAIN));
    responded(TEFF_E_UNAVAILABLE, "this node hosts no grains");
}

static void a_process_is_refused_to_clients_and_found_on_its_own_silo_only(void **state)
{
    teffi_msg *msg = message(TEFFI_MSG_REQUEST, TEFFI_PROCESS_BIT | 3);
    msg->src = one_client;
    teffi_node_deliver(&node, msg);
    assert_int_equal(sent.err, TEFF_E_REFUSED);
    assert_string_equal(sent.text, "only silos may send to it");
    msg = message(TEFFI_MSG_REQUEST, TEFFI_PROCESS_BIT | 3);
    msg->to.node.incarnation++;
    teffi_node_deliver(&node, msg);
    assert_int_equal(sent.err, TEFF_E_REFUSED);
    assert_string_equal(sent.text, "it is in another node");
    teffi_node_deliver(&node, message(TEFFI_MSG_REQUEST, TEFFI_PROCESS_BIT | 3));
    assert_int_equal(sent.err, TEFF_E_UNAVAILABLE);
    assert_string_equal(sent.text, "its silo has no processes");
    assert_int_equal(sent.n, 3);
}

static void a_response_ends_its_call_and_a_second_one_is_dropped(void **state)
{
    teff_ctx *ctx = teffi_ctx_new(&node.home);
    teffi_call *call = teffi_ctx_call_new(ctx, UINT64_MAX);
    for (int i = 0; i < 2; i++) {
        teffi_msg *response = message(TEFFI_MSG_RESPONSE, TEFFI_SLOT_DIRECTORY);
        response->call.slot = call->slot;
        response->call.generation = call->generation;
        response->err = i ? TEFF_OK : TEFF_E_FAILED;
        response->text = "no luck";
        teffi_node_deliver(&node, response);
    }
    assert_int_equal(teffi_ctx_await_call(ctx, call, NULL), TEFF_E_FAILED);
    assert_string_equal(teff_error(ctx), "no luck");
    assert_int_equal(sent.tries, 0);
    teff_ctx_free(ctx);
}

/* ---- sending ---- */

static void what_is_for_this_node_does_not_use_the_transport(void **state)
{
    teffi_msg *msg = message(TEFFI_MSG_REQUEST, TEFFI_SLOT_GRAIN);
    node.upcalls.request = on_grain;
    assert_int_equal(teffi_node_send(&node, self, msg), TEFF_OK);
    assert_ptr_equal(handled, msg);
    assert_int_equal(sent.tries, 0);
    assert_int_equal(teffi_node_send(&node, peer, msg), TEFF_OK);
    assert_true(teffi_node_equals(sent.to, peer));
}

static void a_message_that_was_not_sent_stays_the_callers(void **state)
{
    teffi_msg *msg = message(TEFFI_MSG_REQUEST, TEFFI_SLOT_GRAIN);
    sent.next[0] = TEFF_E_OVERLOADED;
    assert_int_equal(teffi_node_send(&node, peer, msg), TEFF_E_OVERLOADED);
    assert_int_equal(msg->call.cookie, 56);
    dropped(0);
    teffi_msg_free(msg);
}

static void without_a_gateway_nothing_is_sent_to_one(void **state)
{
    teffi_msg *msg = message(TEFFI_MSG_REQUEST, TEFFI_SLOT_GRAIN);
    assert_int_equal(teffi_node_send_to_gateway(&node, msg), TEFF_E_UNREACHABLE);
    assert_int_equal(sent.tries, 0);
    assert_int_equal(msg->call.cookie, 56);
    teffi_msg_free(msg);
}

static void what_a_gateway_gets_is_signed_if_it_awaits_a_response(void **state)
{
    teffi_msg *request = message(TEFFI_MSG_REQUEST, TEFFI_SLOT_GRAIN);
    uint64_t unsigned_cookie = request->call.cookie;
    teffi_gateways_set(&node.gateways, 0, peer);
    assert_int_equal(teffi_node_send_to_gateway(&node, request), TEFF_OK);
    assert_true(teffi_node_equals(sent.to, peer));
    assert_true(sent.cookie != unsigned_cookie);
    assert_int_equal(teffi_node_send_to_gateway(&node, message(TEFFI_MSG_ONEWAY, TEFFI_SLOT_GRAIN)),
                     TEFF_OK);
    assert_int_equal(sent.cookie, unsigned_cookie);
}

/* ---- responding ---- */

static void a_response_names_the_call_and_copies_the_text(void **state)
{
    char text[] = "the text";
    teffi_msg *msg = message(TEFFI_MSG_REQUEST, TEFFI_SLOT_STORE);
    msg->flags = TEFFI_MSG_ROW | TEFFI_MSG_PLACED;
    msg->system = true;
    teffi_node_respond_with_err(&node, msg, TEFF_E_CONFLICT, text);
    responded(TEFF_E_CONFLICT, "the text");
    assert_int_equal(sent.flags, TEFFI_MSG_ROW | TEFFI_MSG_UNNAMED);
    assert_true(sent.system);
}

static void the_text_of_a_process_is_cut(void **state)
{
    static teff_process_system system;
    const teff_event request = {.kind = TEFF_EVENT_REQUEST, .from = {77, 1, 12, 34}, .call = 56};
    char text[TEFF_TEXT_MAX + 1], cut[TEFF_TEXT_MAX] = "";
    memset(text, 'x', sizeof text);
    memset(cut, 'x', sizeof cut - 1);
    teffi_pid_attach_system(&node, &system);
    assert_int_equal(system.route.respond(&node, &request, TEFF_E_CONFLICT, text, sizeof text),
                     TEFF_OK);
    responded(TEFF_E_CONFLICT, cut);
}

static void a_text_that_names_the_call_is_marked_as_such(void **state)
{
    teffi_node_respond_with_named_err(&node, message(TEFFI_MSG_REQUEST, TEFFI_SLOT_GRAIN),
                                      TEFF_E_FAILED, NULL);
    responded(TEFF_E_FAILED, "none");
    assert_int_equal(sent.flags, 0);
}

static void a_body_is_packed_into_the_response(void **state)
{
    Teff__Cluster__StoreResponse body = TEFF__CLUSTER__STORE_RESPONSE__INIT;
    body.err = 7;
    teffi_node_respond_with_body(&node, message(TEFFI_MSG_REQUEST, TEFFI_SLOT_STORE), &body.base);
    responded(TEFF_OK, "none");
    assert_int_equal(sent.raw_len, protobuf_c_message_get_packed_size(&body.base));
    teffi_node_respond_with_body(&node, message(TEFFI_MSG_ONEWAY, TEFFI_SLOT_STORE), &body.base);
    assert_int_equal(sent.n, 1);
}

/* Nobody learns of the error but the counter. */
static void a_oneway_gets_no_response_and_its_error_counts_as_dropped(void **state)
{
    teffi_node_respond_with_err(&node, message(TEFFI_MSG_ONEWAY, TEFFI_SLOT_GRAIN), TEFF_OK, NULL);
    dropped(0);
    teffi_node_respond_with_err(&node, message(TEFFI_MSG_ONEWAY, TEFFI_SLOT_GRAIN), TEFF_E_CLOSED,
                                "x");
    dropped(1);
    teffi_node_drop_message(&node, message(TEFFI_MSG_ONEWAY, TEFFI_SLOT_GRAIN));
    dropped(2);
    assert_int_equal(sent.tries, 0);
}

static void a_response_that_cannot_be_sent_is_counted(void **state)
{
    sent.next[0] = TEFF_E_UNREACHABLE;
    teffi_node_respond_with_err(&node, message(TEFFI_MSG_REQUEST, TEFFI_SLOT_GRAIN), TEFF_OK, NULL);
    assert_int_equal(sent.tries, 1);
    dropped(1);
}

static teffi_msg *large_response(teff_err err)
{
    teffi_msg *request = message(TEFFI_MSG_REQUEST, TEFFI_SLOT_GRAIN);
    teffi_msg *response = teffi_node_make_response(&node, request);
    assert_non_null(response);
    response->err = (uint16_t)err;
    response->raw = (const uint8_t *)"body";
    response->raw_len = 4;
    teffi_msg_free(request);
    return response;
}

static void a_response_larger_than_a_frame_becomes_an_error(void **state)
{
    sent.next[0] = TEFF_E_TOO_LARGE;
    teffi_node_send_response(&node, peer, large_response(TEFF_OK));
    assert_int_equal(sent.tries, 2);
    responded(TEFF_E_TOO_LARGE, "the response is larger than a frame may be; the call ran");
    assert_int_equal(sent.raw_len, 0);
    assert_true(sent.flags & TEFFI_MSG_UNNAMED);
    dropped(1);
}

/* The list of a transaction's participants does not fit: the error goes without it. */
static void an_error_larger_than_a_frame_is_sent_without_its_list(void **state)
{
    teffi_msg *response = large_response(TEFF_E_ABORTED);
    sent.next[0] = TEFF_E_TOO_LARGE;
    response->text = "why";
    response->transaction = (const uint8_t *)"list";
    response->transaction_len = 4;
    teffi_node_send_response(&node, peer, response);
    assert_int_equal(sent.tries, 2);
    responded(TEFF_E_ABORTED, "why");
    assert_int_equal(sent.raw_len + sent.transaction_len, 0);
    assert_false(sent.flags & TEFFI_MSG_UNNAMED);
    dropped(1);
}

static void an_error_that_is_still_too_large_is_dropped(void **state)
{
    sent.next[0] = sent.next[1] = TEFF_E_TOO_LARGE;
    teffi_node_send_response(&node, peer, large_response(TEFF_OK));
    assert_int_equal(sent.tries, 2);
    dropped(1); /* one response, although it was sent twice */
}

static void only_a_request_has_a_response(void **state)
{
    teffi_msg *msg = message(TEFFI_MSG_ONEWAY, TEFFI_SLOT_GRAIN);
    assert_null(teffi_node_make_response(&node, msg));
    teffi_msg_free(msg);
}

static void a_request_can_become_its_own_response(void **state)
{
    teffi_msg *msg = message(TEFFI_MSG_REQUEST, TEFFI_SLOT_GRAIN);
    msg->flags = TEFFI_MSG_PLACED;
    msg->hops = 3;
    msg->type_id = msg->method_id = 9;
    msg->deadline_ns = 99;
    msg->key = msg->raw = (const uint8_t *)"x";
    msg->key_len = msg->packed_len = 1;
    msg->raw_len = 1;
    assert_true(teffi_node_equals(teffi_node_convert_request_to_response(&node, msg), peer));
    assert_int_equal(msg->item.kind, TEFFI_MSG_RESPONSE);
    assert_true(teffi_node_equals(msg->to.node, peer) && teffi_node_equals(msg->src, self));
    assert_int_equal(msg->to.slot + msg->flags + msg->hops + msg->type_id + msg->method_id, 0);
    assert_int_equal(msg->deadline_ns + msg->key_len + msg->raw_len + msg->packed_len, 0);
    assert_true(!msg->key && !msg->raw && !msg->body);
    assert_int_equal(msg->call.slot, 12);
    assert_int_equal(msg->call.generation, 34);
    assert_int_equal(msg->call.cookie, 56);
    teffi_msg_free(msg);
}

/* ---- relays ---- */

static void what_begins_here_needs_no_relay(void **state)
{
    teffi_msg *msg = message(TEFFI_MSG_REQUEST, TEFFI_SLOT_GRAIN);
    msg->src = self;
    assert_int_equal(teffi_node_become_sender(&node, msg), TEFF_OK);
    assert_int_equal(msg->call.slot, 12);
    assert_int_equal(teffi_calls_relay_count(&node.home), 0);
    teffi_msg_free(msg);
}

static void a_forwarded_oneway_is_this_nodes_from_then_on(void **state)
{
    teffi_msg *msg = message(TEFFI_MSG_ONEWAY, TEFFI_SLOT_GRAIN);
    assert_int_equal(teffi_node_become_sender(&node, msg), TEFF_OK);
    assert_true(teffi_node_equals(msg->src, self));
    assert_int_equal(teffi_calls_relay_count(&node.home), 0);
    teffi_msg_free(msg);
}

static void the_response_to_a_relay_is_sent_on_with_the_origins_call(void **state)
{
    teffi_msg *msg = message(TEFFI_MSG_REQUEST, TEFFI_SLOT_GRAIN);
    assert_int_equal(teffi_node_become_sender(&node, msg), TEFF_OK);
    assert_int_equal(teffi_calls_relay_count(&node.home), 1);
    teffi_msg *response = message(TEFFI_MSG_RESPONSE, TEFFI_SLOT_GRAIN);
    response->src = one_client;
    response->call.slot = msg->call.slot;
    response->call.generation = msg->call.generation;
    response->err = TEFF_E_FAILED;
    response->text = "as the silo said";
    teffi_node_deliver(&node, response);
    responded(TEFF_E_FAILED, "as the silo said");
    assert_int_equal(teffi_calls_relay_count(&node.home), 0);
    teffi_msg_free(msg);
}

int main(void)
{
#define NODE(f) cmocka_unit_test_setup_teardown(f, setup, teardown)
    const struct CMUnitTest tests[] = {
        NODE(a_message_to_a_system_slot_is_an_item_of_its_target),
        NODE(a_target_says_what_it_is),
        NODE(all_but_the_stores_are_system_messages),
        NODE(a_slot_without_a_target_is_not_found),
        NODE(the_first_slot_and_those_behind_the_system_are_grains),
        NODE(a_node_without_grains_says_so),
        NODE(a_process_is_refused_to_clients_and_found_on_its_own_silo_only),
        NODE(a_response_ends_its_call_and_a_second_one_is_dropped),
        NODE(what_is_for_this_node_does_not_use_the_transport),
        NODE(a_message_that_was_not_sent_stays_the_callers),
        NODE(without_a_gateway_nothing_is_sent_to_one),
        NODE(what_a_gateway_gets_is_signed_if_it_awaits_a_response),
        NODE(a_response_names_the_call_and_copies_the_text),
        NODE(the_text_of_a_process_is_cut),
        NODE(a_text_that_names_the_call_is_marked_as_such),
        NODE(a_body_is_packed_into_the_response),
        NODE(a_oneway_gets_no_response_and_its_error_counts_as_dropped),
        NODE(a_response_that_cannot_be_sent_is_counted),
        NODE(a_response_larger_than_a_frame_becomes_an_error),
        NODE(an_error_larger_than_a_frame_is_sent_without_its_list),
        NODE(an_error_that_is_still_too_large_is_dropped),
        NODE(only_a_request_has_a_response),
        NODE(a_request_can_become_its_own_response),
        NODE(what_begins_here_needs_no_relay),
        NODE(a_forwarded_oneway_is_this_nodes_from_then_on),
        NODE(the_response_to_a_relay_is_sent_on_with_the_origins_call),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
