/* test_reference.c - calls of a client: which requests are sent from the caller's memory, and when
 * one that was not taken, or got no response, is sent again. A sleep moves the clock. */
#include "bare.h"

#include "call/calls.h"

enum { TIMEOUT_MS = 100, RETRY_MS = 20, TRIES = TIMEOUT_MS / RETRY_MS };

static uint64_t now_ns;

static uint64_t moved_clock(void *arg)
{
    return now_ns;
}

/* No call ends by its deadline. */
static void sleep_at_once(teffi_exec *exec, teffi_timer *timer, uint64_t due_ns)
{
    if (timer == &node.home.calls.deadlines.timer)
        return;
    now_ns = due_ns;
    timer->fire(timer);
}

/* ---- the gateway ---- */

static struct {
    unsigned n, refusals, losses; /* requests seen; the first ones are refused, then lost */
    teff_err refuse;
    bool borrowed;
    uint64_t deadline_ns;
} gate;

static void respond_to(teffi_msg *request)
{
    teffi_msg *response = teffi_node_make_response(&node, request);
    assert_true(response && teffi_node_pack_body(response, &lab_number(.n = 0)->base));
    teffi_msg_free(request);
    teffi_node_deliver(&node, response);
}

static teff_err take(teffi_net *net, teffi_node_id to, teffi_msg *msg)
{
    gate.n++;
    gate.borrowed = msg->borrows;
    assert_true(gate.n == 1 || msg->deadline_ns == gate.deadline_ns);
    gate.deadline_ns = msg->deadline_ns;
    if (gate.n <= gate.refusals)
        return gate.refuse;
    if (gate.n > gate.refusals + gate.losses) {
        respond_to(msg);
        return TEFF_OK;
    }
    teffi_call_set_sent_to(&node.home, msg->call.slot, msg->call.generation, to);
    teffi_msg_free(msg);
    teffi_node_send_outcomes_and_free_relays(&node, teffi_calls_end_sent_to(&node.home, to));
    return TEFF_OK;
}

/* ---- the client ---- */

static const teffi_exec_ops *usual_ops;
static teff_ctx *ctx;

static int open_client(void **state)
{
    static const teffi_net_ops net_ops = {.send = take};
    static const teffi_exec_ops ops = {.ready = bare_ready, .timer_set = sleep_at_once};
    static teffi_net net = {&net_ops};
    int failed = bare_open(state);
    usual_ops = bare_exec.ops;
    bare_exec.ops = &ops;
    bare_platform.mono_ns = moved_clock;
    node.home.net = &net;
    node.role = TEFFI_ROLE_CLIENT;
    teffi_gateways_set(&node.gateways, 0, bare_peer);
    ctx = teffi_ctx_new(&node.home);
    teff_ctx_set_timeout(ctx, TIMEOUT_MS);
    return failed || !ctx;
}

static int close_client(void **state)
{
    teff_ctx_free(ctx);
    bare_exec.ops = usual_ops;
    bare_platform.mono_ns = bare_clock;
    return bare_close(state);
}

static void open_gate(unsigned refusals, teff_err refuse, unsigned losses)
{
    memset(&gate, 0, sizeof gate);
    gate.refusals = refusals;
    gate.refuse = refuse;
    gate.losses = losses;
    now_ns = bare_now_ns;
}

/* after_ms: how long the call took. */
static void tried(unsigned tries, uint32_t after_ms)
{
    assert_int_equal(gate.n, tries);
    assert_int_equal(now_ns - bare_now_ns, after_ms * 1000000ull);
    assert_int_equal(gate.deadline_ns, bare_now_ns + TIMEOUT_MS * 1000000ull);
}

static teff_err write_once(void)
{
    lab_number *out;
    return lab_turns_write(ctx, "a", lab_step(.seq = 1), &out);
}

static teff_err write_again(void)
{
    lab_number *out;
    return lab_turns_again(ctx, "a", lab_step(.seq = 1), &out);
}

static void a_request_is_sent_until_a_gateway_takes_it(void **state)
{
    static const teff_err ends[] = {TEFF_E_UNREACHABLE, TEFF_E_CLOSED};
    for (unsigned i = 0; i < 2; i++) {
        open_gate(2, ends[i], 0);
        lab_ok(ctx, write_once());
        tried(3, 2 * RETRY_MS);
        open_gate(1000, ends[i], 0);
        lab_fails(ctx, write_once(), TEFF_E_UNAVAILABLE);
        tried(TRIES, TIMEOUT_MS - RETRY_MS);
    }
}

static void what_a_gateway_refuses_is_not_sent_again(void **state)
{
    open_gate(1, TEFF_E_OVERLOADED, 0);
    lab_fails(ctx, write_once(), TEFF_E_OVERLOADED);
    tried(1, 0);
}

static void only_idempotent_calls_that_were_lost_are_made_again(void **state)
{
    open_gate(0, TEFF_OK, 2);
    lab_fails(ctx, write_once(), TEFF_E_UNREACHABLE);
    tried(1, 0);
    open_gate(0, TEFF_OK, 2);
    lab_ok(ctx, write_again());
    tried(3, 2 * RETRY_MS);
    open_gate(0, TEFF_OK, 1000);
    lab_fails(ctx, write_again(), TEFF_E_UNREACHABLE);
    tried(TRIES, TIMEOUT_MS - RETRY_MS);
    assert_int_equal(ctx->due_ms, 0);
}

/* ---- the caller's memory ---- */

/* A copy would be needed to look into what is unknown. */
static void a_small_request_is_packed_from_where_it_lies(void **state)
{
    ProtobufCMessageUnknownField unknown = {
        .tag = 900, .wire_type = PROTOBUF_C_WIRE_TYPE_VARINT, .len = 1, .data = (uint8_t[]){1}};
    lab_step step = *lab_step(.seq = 1);
    lab_number *out;
    open_gate(0, TEFF_OK, 0);
    lab_ok(ctx, lab_turns_write(ctx, "a", &step, &out));
    assert_true(gate.borrowed);
    lab_ok(ctx, lab_turns_nothing(ctx, "a"));
    assert_true(gate.borrowed);
    step.base.n_unknown_fields = 1;
    step.base.unknown_fields = &unknown;
    lab_ok(ctx, lab_turns_write(ctx, "a", &step, &out));
    assert_false(gate.borrowed);
    assert_int_equal(gate.n, 3);
}

int main(void)
{
#define CLIENT(f) cmocka_unit_test_setup_teardown(f, open_client, close_client)
    const struct CMUnitTest tests[] = {
        CLIENT(a_request_is_sent_until_a_gateway_takes_it),
        CLIENT(what_a_gateway_refuses_is_not_sent_again),
        CLIENT(only_idempotent_calls_that_were_lost_are_made_again),
        CLIENT(a_small_request_is_packed_from_where_it_lies),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
