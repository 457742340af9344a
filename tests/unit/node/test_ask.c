/* test_ask.c - the runtime's own requests and store operations: what they carry, and what their
 * context gets. The transport and the store are the test's; both answer before they return. */
#include "test.h"

#include <stdio.h>
#include <string.h>
#include "call/calls.h"
#include "call/ctx.h"
#include "cluster.pb-c.h"
#include "node/ask.h"
#include "node/deliver.h"

enum { MS = 1000000, METHOD = 17, TIMEOUT_MS = 250, IN_FLIGHT_MAX = 4 };

static const teffi_node_id self = {5, 1}, peer = {77, 1};
static const uint64_t now_ns = (uint64_t)1000 * MS;

static teffi_node node;
static teff_ctx *ctx;

/* ---- the transport: it keeps requests until the test answers ---- */

static struct {
    teff_err err; /* of the next send */
    bool at_once; /* answer OK in send */
    unsigned n;
    teffi_msg *request[IN_FLIGHT_MAX];
} sent;

/* With a body whose etag is `number`; err instead, if it is set. */
static void answer(unsigned i, teff_err err, uint32_t number)
{
    teffi_msg *request = sent.request[i];
    Teff__Cluster__StoreResponse body = TEFF__CLUSTER__STORE_RESPONSE__INIT;
    teffi_msg *response = teffi_node_make_response(&node, request);
    assert_non_null(response);
    body.err = number;
    response->err = (uint16_t)err;
    response->text = "as the silo said";
    assert_true(err || teffi_node_pack_body(response, &body.base));
    sent.request[i] = NULL;
    teffi_msg_free(request);
    teffi_node_deliver(&node, response);
}

static teff_err on_send(teffi_net *net, teffi_node_id to, teffi_msg *msg)
{
    if (sent.err)
        return sent.err;
    assert_true(sent.n < IN_FLIGHT_MAX);
    assert_true(teffi_node_equals(to, peer));
    sent.request[sent.n++] = msg;
    if (sent.at_once)
        answer(sent.n - 1, TEFF_OK, 7);
    return TEFF_OK;
}

/* ---- the store ---- */

static teff_err stored;

static void on_submit(teffi_store *store, teffi_store_op *op)
{
    op->err = stored;
    op->n_found = 5;
    op->rows[0].etag = 99;
    snprintf(op->text, sizeof op->text, "the disk is full");
    op->done(op);
}

/* ---- the node ---- */

static uint64_t on_clock(void *arg)
{
    return now_ns;
}

static uint64_t on_random(void *arg)
{
    return 0x9e3779b97f4a7c15u;
}

static unsigned pushed;

static void on_ready(teffi_exec *exec, teffi_group *group)
{
    pushed++;
}

static void on_timer(teffi_exec *exec, teffi_timer *timer, uint64_t due_ns)
{
}

static bool on_timer_cancel(teffi_exec *exec, teffi_timer *timer)
{
    return true;
}

static const teffi_exec_ops exec_ops = {
    .ready = on_ready, .timer_set = on_timer, .timer_cancel = on_timer_cancel};
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
    static const teffi_net_ops net_ops = {.send = on_send};
    static const teffi_store_ops store_ops = {.submit = on_submit};
    static teffi_net net = {&net_ops};
    static teffi_store store = {&store_ops};
    platform = (teffi_platform){.mono_ns = on_clock, .random = on_random, .exec_new = give_exec};
    memset(&sent, 0, sizeof sent);
    stored = TEFF_OK;
    if (teffi_node_init(&node, &platform, TEFFI_ROLE_SILO, "test", 1, NULL))
        return 1;
    node.id = self;
    node.home.net = &net;
    node.store = &store;
    ctx = teffi_ctx_new(&node.home);
    return ctx == NULL;
}

static int teardown(void **state)
{
    teff_ctx_free(ctx);
    for (unsigned i = 0; i < sent.n; i++)
        teffi_msg_free(sent.request[i]);
    teffi_node_fini(&node);
    return 0;
}

static teffi_call *start(unsigned slot)
{
    const Teff__Cluster__StoreAsk ask = TEFF__CLUSTER__STORE_ASK__INIT;
    teffi_call *call = teffi_ctx_start_rpc(ctx, peer, slot, METHOD, &ask.base, TIMEOUT_MS,
                                           &teff__cluster__store_response__descriptor);
    assert_non_null(call);
    return call;
}

static teff_err ask(ProtobufCMessage **reply)
{
    const Teff__Cluster__StoreAsk body = TEFF__CLUSTER__STORE_ASK__INIT;
    return teffi_ctx_run_rpc(ctx, peer, TEFFI_SLOT_DIRECTORY, METHOD, &body.base, TIMEOUT_MS,
                             &teff__cluster__store_response__descriptor, reply);
}

static uint32_t number_of(const ProtobufCMessage *reply)
{
    return ((const Teff__Cluster__StoreResponse *)reply)->err;
}

/* ---- requests ---- */

static void a_request_names_its_target_its_call_and_its_deadline(void **state)
{
    Teff__Cluster__StoreAsk body = TEFF__CLUSTER__STORE_ASK__INIT;
    teffi_msg expected = {0};
    body.kind = 3;
    teffi_call *call =
        teffi_ctx_start_rpc(ctx, peer, TEFFI_SLOT_DIRECTORY, METHOD, &body.base, TIMEOUT_MS, NULL);
    const teffi_msg *msg = sent.request[0];
    assert_non_null(msg);
    assert_int_equal(msg->item.kind, TEFFI_MSG_REQUEST);
    assert_true(teffi_node_equals(msg->src, self) && teffi_node_equals(msg->to.node, peer));
    assert_int_equal(msg->to.slot, TEFFI_SLOT_DIRECTORY);
    assert_int_equal(msg->method_id, METHOD);
    assert_int_equal(msg->deadline_ns, now_ns + (uint64_t)TIMEOUT_MS * MS);
    assert_int_equal(call->deadline_ns, msg->deadline_ns);
    assert_int_equal(msg->call.slot, call->slot);
    assert_int_equal(msg->call.generation, call->generation);
    expected.call.slot = call->slot;
    expected.call.generation = call->generation;
    teffi_call_sign_request(&node.home, &expected);
    assert_int_equal(msg->call.cookie, expected.call.cookie);
    assert_int_equal(msg->raw_len, protobuf_c_message_get_packed_size(&body.base));
}

static void the_response_is_unpacked_for_the_caller(void **state)
{
    ProtobufCMessage *reply = NULL;
    sent.at_once = true;
    assert_int_equal(ask(&reply), TEFF_OK);
    assert_int_equal(number_of(reply), 7);
}

static void requests_in_flight_end_in_any_order(void **state)
{
    ProtobufCMessage *reply;
    teffi_call *calls[3];
    for (unsigned i = 0; i < 3; i++)
        calls[i] = start(TEFFI_SLOT_DIRECTORY);
    assert_int_equal(sent.n, 3);
    answer(2, TEFF_OK, 102);
    answer(0, TEFF_E_CONFLICT, 0);
    answer(1, TEFF_OK, 101);
    assert_int_equal(teffi_ctx_await_call(ctx, calls[0], &reply), TEFF_E_CONFLICT);
    assert_string_equal(teff_error(ctx), "as the silo said");
    for (unsigned i = 1; i < 3; i++) {
        assert_int_equal(teffi_ctx_await_call(ctx, calls[i], &reply), TEFF_OK);
        assert_int_equal(number_of(reply), 100 + i);
    }
}

static void a_request_that_was_not_sent_has_ended_when_it_returns(void **state)
{
    sent.err = TEFF_E_CLOSED;
    assert_int_equal(ask(NULL), TEFF_E_CLOSED);
    assert_string_equal(teff_error(ctx), "the silo cannot be reached");
}

/* The sender of a write to a store must know that it has not run. */
static void a_request_to_a_store_says_that_it_was_not_sent(void **state)
{
    static const teff_err sends[] = {TEFF_E_CLOSED, TEFF_E_UNREACHABLE, TEFF_E_OVERLOADED};
    static const teff_err ends[] = {TEFF_E_UNAVAILABLE, TEFF_E_UNAVAILABLE, TEFF_E_OVERLOADED};
    for (int i = 0; i < 3; i++) {
        sent.err = sends[i];
        assert_int_equal(teffi_ctx_await_call(ctx, start(TEFFI_SLOT_STORE), NULL), ends[i]);
        assert_string_equal(teff_error(ctx), "the silo cannot be reached");
    }
    sent.err = TEFF_E_UNREACHABLE;
    assert_int_equal(ask(NULL), TEFF_E_UNREACHABLE);
}

/* ---- which come first on a connection ---- */

static void requests_are_the_clusters_but_users_rows_are_not(void **state)
{
    (void)start(TEFFI_SLOT_DIRECTORY);
    assert_true(sent.request[0]->system);
    assert_int_equal(sent.request[0]->flags, 0);
    (void)start(TEFFI_SLOT_STORE);
    assert_false(sent.request[1]->system);
    assert_int_equal(sent.request[1]->flags, TEFFI_MSG_ROW);
}

static void a_system_tasks_rows_are_the_clusters(void **state)
{
    static const teffi_group_ops ops = {0};
    teffi_group groups[2];
    for (int i = 0; i < 2; i++) {
        teffi_group_init(&groups[i], &exec, &ops);
        if (i)
            teffi_group_set_system(&groups[i]);
        ctx->group = &groups[i]; /* as a turn of it has */
        (void)start(TEFFI_SLOT_STORE);
        assert_int_equal(sent.request[i]->system, i == 1);
    }
    while (!LIST_EMPTY(&ctx->calls)) { /* no turn drops them */
        teffi_call *call = LIST_FIRST(&ctx->calls);
        LIST_REMOVE(call, in_ctx);
        assert_true(teffi_call_abandon(call));
        teffi_call_release(call);
    }
    ctx->group = NULL;
}

/* ---- the store ---- */

static teff_err store(teffi_store_op *op)
{
    static uint8_t key = 'k';
    static teffi_row row;
    row = (teffi_row){.table = "t", .key = {&key, 1}};
    *op =
        (teffi_store_op){.kind = TEFFI_STORE_READ, .rows = &row, .n_rows = 1, .arena = &ctx->arena};
    return teffi_ctx_run_store_op(ctx, op);
}

static void what_the_store_found_is_in_the_callers_operation(void **state)
{
    teffi_store_op op;
    assert_int_equal(store(&op), TEFF_OK);
    assert_int_equal(op.n_found, 5);
    assert_int_equal(op.rows[0].etag, 99);
}

static void an_error_of_the_store_has_its_text(void **state)
{
    teffi_store_op op;
    stored = TEFF_E_IO;
    assert_int_equal(store(&op), TEFF_E_IO);
    assert_int_equal(op.err, TEFF_E_IO);
    assert_string_equal(teff_error(ctx), "store: the disk is full");
}

/* The caller reads the row again. */
static void a_conflict_is_no_failure_and_leaves_no_text(void **state)
{
    teffi_store_op op;
    stored = TEFF_E_CONFLICT;
    assert_int_equal(store(&op), TEFF_E_CONFLICT);
    assert_null(ctx->text);
}

int main(void)
{
#define NODE(f) cmocka_unit_test_setup_teardown(f, setup, teardown)
    const struct CMUnitTest tests[] = {
        NODE(a_request_names_its_target_its_call_and_its_deadline),
        NODE(the_response_is_unpacked_for_the_caller),
        NODE(requests_in_flight_end_in_any_order),
        NODE(a_request_that_was_not_sent_has_ended_when_it_returns),
        NODE(a_request_to_a_store_says_that_it_was_not_sent),
        NODE(requests_are_the_clusters_but_users_rows_are_not),
        NODE(a_system_tasks_rows_are_the_clusters),
        NODE(what_the_store_found_is_in_the_callers_operation),
        NODE(an_error_of_the_store_has_its_text),
        NODE(a_conflict_is_no_failure_and_leaves_no_text),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
