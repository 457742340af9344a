/* test_faults.c - a node when a request for memory fails: what is not made is undone, and what is
 * sent is whole, says that memory ran out, or is counted as dropped. One node on an executor of the
 * test; a transport that looks at what it is given. */
#include "../faults.h"

#include <stdio.h>
#include <string.h>
#include "call/calls.h"
#include "call/ctx.h"
#include "cluster.pb-c.h"
#include "node/deliver.h"
#include "node/pid.h"
#include "process/process.h"

enum { LONG = 3000 }; /* longer than what a message holds inside */

static const teffi_node_id self = {5, 1}, peer = {77, 1};
static const teff_pid remote = {77, 1, TEFFI_PROCESS_BIT | 3, 4};
static char text[LONG];

static teffi_node node;

/* ---- the transport ---- */

static struct {
    unsigned n;
    uint32_t kind, err;
    const char *expected; /* the end of a body without an error */
} sent;

static bool is_whole(const teffi_msg *msg)
{
    return msg->raw_len >= LONG && memcmp(msg->raw + msg->raw_len - LONG, sent.expected, LONG) == 0;
}

static teff_err on_send(teffi_net *net, teffi_node_id to, teffi_msg *msg)
{
    assert_true(teffi_node_equals(to, peer) && teffi_node_equals(msg->to.node, peer));
    assert_true(teffi_node_equals(msg->src, self));
    if (!msg->err && sent.expected)
        assert_true(is_whole(msg));
    sent.n++;
    sent.kind = msg->item.kind;
    sent.err = msg->err;
    teffi_msg_free(msg);
    return TEFF_OK;
}

/* ---- the node ---- */

static unsigned freed;
static teff_err system_err;

static uint64_t on_clock(void *arg)
{
    return 1000000000;
}

static uint64_t on_random(void *arg)
{
    return 0x9e3779b97f4a7c15u;
}

static void on_timer(teffi_exec *exec, teffi_timer *timer, uint64_t due_ns)
{
}

static bool on_timer_cancel(teffi_exec *exec, teffi_timer *timer)
{
    return true;
}

static teff_err start_system(teffi_exec *exec)
{
    return system_err;
}

static void free_exec(teffi_exec *exec)
{
    freed++;
}

static const teffi_exec_ops exec_ops = {.timer_set = on_timer,
                                        .timer_cancel = on_timer_cancel,
                                        .system = start_system,
                                        .free = free_exec};
static teffi_platform platform;
static teffi_exec exec = {.ops = &exec_ops, .platform = &platform};

static teff_err give_exec(const teffi_platform *on, unsigned workers, const teff_sched_options *opt,
                          teffi_exec **out)
{
    *out = &exec;
    return TEFF_OK;
}

static teff_err open_node(void)
{
    platform = (teffi_platform){.mono_ns = on_clock, .random = on_random, .exec_new = give_exec};
    memset(&sent, 0, sizeof sent);
    return teffi_node_init(&node, &platform, TEFFI_ROLE_SILO, "test", 1, NULL);
}

static int setup(void **state)
{
    static const teffi_net_ops net_ops = {.send = on_send};
    static teffi_net net = {&net_ops};
    memset(text, 'x', sizeof text);
    if (open_node())
        return 1;
    node.id = self;
    node.home.net = &net;
    sent.expected = text;
    return 0;
}

static int teardown(void **state)
{
    teffi_node_fini(&node);
    return 0;
}

static teff_err open_and_close(void)
{
    teff_err err = open_node();
    if (!err)
        teffi_node_fini(&node);
    return err;
}

static void a_node_that_cannot_be_made_is_undone(void **state)
{
    assert_true(fault_sweep(open_and_close, true) > 0);
}

static void a_silo_without_a_system_thread_has_no_executor(void **state)
{
    freed = 0;
    system_err = TEFF_E_NOMEM;
    assert_int_equal(open_node(), TEFF_E_NOMEM);
    system_err = TEFF_OK;
    assert_int_equal(freed, 1);
    assert_null(node.home.exec);
}

/* ---- responses ---- */

/* out: NULL: no memory; the test goes on without. */
static teffi_msg *request_of_peer(void)
{
    teffi_msg *msg = teffi_msg_new(TEFFI_MSG_REQUEST);
    if (!msg)
        return NULL;
    msg->src = peer;
    msg->to = (teffi_pid){.node = self, .slot = TEFFI_SLOT_STORE};
    return msg;
}

static teff_err respond_with_text(void)
{
    unsigned before = sent.n;
    uint64_t dropped = node.dropped;
    teffi_msg *request = request_of_peer();
    if (!request)
        return TEFF_E_NOMEM;
    teffi_node_respond_with_err(&node, request, TEFF_E_CONFLICT, "the text");
    assert_int_equal(sent.n - before + node.dropped - dropped, 1);
    return sent.n == before ? TEFF_E_UNREACHABLE : TEFF_OK;
}

static void an_error_is_sent_or_counted_as_dropped(void **state)
{
    assert_true(fault_sweep(respond_with_text, true) == 2);
    assert_int_equal(node.dropped, 1);
}

static teff_err respond_with_body(void)
{
    Teff__Cluster__StoreResponse body = TEFF__CLUSTER__STORE_RESPONSE__INIT;
    unsigned before = sent.n;
    teffi_msg *request = request_of_peer();
    if (!request)
        return TEFF_E_NOMEM;
    char copy[LONG + 1] = "";
    memcpy(copy, text, LONG);
    body.text = copy;
    teffi_node_respond_with_body(&node, request, &body.base);
    return sent.n == before ? TEFF_E_UNREACHABLE : (teff_err)sent.err;
}

static void a_body_that_cannot_be_packed_becomes_an_error(void **state)
{
    assert_true(fault_sweep(respond_with_body, true) == 3);
    assert_int_equal(sent.n, 3); /* without a fault, with the error, with faults used up */
    assert_int_equal(node.dropped, 1);
}

/* ---- what is for processes ---- */

static teff_err send_to_process(void)
{
    const teff_event event = {.tag = 7, .data = text, .len = LONG};
    teff_ctx *ctx = teffi_ctx_new(&node.home);
    if (!ctx)
        return TEFF_E_NOMEM;
    teff_err err = teff_pid_send(ctx, remote, &event);
    teff_ctx_free(ctx);
    return err;
}

static void an_event_is_sent_whole_or_not_at_all(void **state)
{
    assert_true(fault_sweep(send_to_process, true) >= 3);
    assert_int_equal(sent.kind, TEFFI_MSG_ONEWAY);
    assert_int_equal(sent.n, 2);
}

static teff_err ask_process(void)
{
    teff_call call;
    teff_ctx *ctx = teffi_ctx_new(&node.home);
    if (!ctx)
        return TEFF_E_NOMEM;
    teff_err err = teff_pid_ask_async(ctx, remote, 7, text, LONG, NULL, &call);
    if (!err)
        teff_drop(ctx, &call);
    teff_ctx_free(ctx);
    return err;
}

static void a_request_is_sent_whole_or_not_at_all(void **state)
{
    assert_int_equal(ask_process(), TEFF_OK); /* makes the first block of calls, which stays */
    sent.n = 0;
    assert_true(fault_sweep(ask_process, true) >= 3);
    assert_int_equal(sent.kind, TEFFI_MSG_REQUEST);
    assert_int_equal(sent.n, 2);
}

static teff_process_system routes;

static teff_err respond_as_process(void)
{
    const teff_event request = {.kind = TEFF_EVENT_REQUEST, .from = {77, 1, 12, 34}, .call = 56};
    return routes.route.respond(&node, &request, TEFF_OK, text, LONG);
}

static void a_response_of_a_process_is_sent_whole_or_not_at_all(void **state)
{
    teffi_pid_attach_system(&node, &routes);
    assert_int_equal(fault_sweep(respond_as_process, true), 2);
    assert_int_equal(sent.n, 2);
}

/* ---- relays ---- */

static teff_err relay_error(void)
{
    unsigned before = sent.n;
    teffi_msg *request = request_of_peer();
    if (!request)
        return TEFF_E_NOMEM;
    teff_err err = teffi_node_become_sender(&node, request);
    assert_true(err || teffi_node_equals(request->src, self));
    if (!err)
        teffi_node_send_outcomes_and_free_relays(&node, teffi_calls_cancel_all(&node.home));
    teffi_msg_free(request);
    assert_int_equal(teffi_calls_relay_count(&node.home), 0);
    return err ? err : sent.n == before ? TEFF_E_UNREACHABLE : TEFF_OK;
}

static void a_relay_ends_though_its_origin_cannot_be_told(void **state)
{
    sent.expected = NULL;
    assert_true(fault_sweep(relay_error, true) >= 2);
}

int main(void)
{
#define NODE(f) cmocka_unit_test_setup_teardown(f, setup, teardown)
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_node_that_cannot_be_made_is_undone),
        cmocka_unit_test(a_silo_without_a_system_thread_has_no_executor),
        NODE(an_error_is_sent_or_counted_as_dropped),
        NODE(a_body_that_cannot_be_packed_becomes_an_error),
        NODE(an_event_is_sent_whole_or_not_at_all),
        NODE(a_request_is_sent_whole_or_not_at_all),
        NODE(a_response_of_a_process_is_sent_whole_or_not_at_all),
        NODE(a_relay_ends_though_its_origin_cannot_be_told),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
