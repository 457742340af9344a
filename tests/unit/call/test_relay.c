/* test_relay.c - cancels on one node: kept, taken, expired, lost, hostile. */
#include "call/relay.h"

#include <stdlib.h>
#include <string.h>
#include "call/calls.h"
#include "call/ctx.h"
#include "lone_node.h"
#include "node/deliver.h"
#include "shares.h"

static const teffi_node_id one_client = {TEFFI_CLIENT_BIT | 5, 1},
                           other_client = {TEFFI_CLIENT_BIT | 6, 1}, here = {0, 0}, silo = {77, 1};
static const teffi_origin origin = {7, 9, 1234};

static teffi_node *node;
static teff_ctx *ctx;

static int setup(void **state)
{
    node = lone_node_open();
    ctx = teffi_ctx_new(&node->home);
    return ctx == NULL;
}

static int teardown(void **state)
{
    teff_ctx_free(ctx);
    lone_node_close(node);
    return 0;
}

static uint32_t kept(void)
{
    return node->home.calls.cancels;
}

static uint64_t in_ms(uint64_t ms)
{
    return teffi_now(node->platform) + ms * 1000000;
}

static teffi_msg *request_of(teffi_node_id from)
{
    teffi_msg *msg = teffi_msg_new(TEFFI_MSG_REQUEST);
    assert_non_null(msg);
    msg->src = from;
    msg->call.slot = origin.slot;
    msg->call.generation = origin.generation;
    msg->call.cookie = origin.cookie;
    return msg;
}

/* As it comes from the node's connection. */
static void send_cancel(teffi_node_id from, const void *body, size_t len, uint64_t deadline_ns)
{
    teffi_msg *msg = teffi_msg_new(TEFFI_MSG_ONEWAY);
    assert_non_null(msg);
    msg->src = from;
    msg->to.slot = TEFFI_SLOT_CANCEL;
    msg->deadline_ns = deadline_ns;
    msg->raw = teff_arena_copy(&msg->arena, body, len);
    msg->raw_len = len;
    teffi_node_deliver(node, msg);
}

static void come(teffi_node_id from, teffi_origin o)
{
    send_cancel(from, &o, sizeof o, 0);
}

/* ---- kept ---- */

static void it_is_kept_for_its_request_alone(void **state)
{
    teffi_msg *msg = request_of(one_client);
    assert_false(teffi_node_has_cancel(node, msg));
    come(one_client, origin);
    assert_true(teffi_node_has_cancel(node, msg));
    msg->src = other_client;
    assert_false(teffi_node_has_cancel(node, msg));
    msg->src = node->id;
    assert_false(teffi_node_has_cancel(node, msg));
    msg->src = one_client;
    msg->call.cookie++;
    assert_false(teffi_node_has_cancel(node, msg));
    msg->call.cookie--;
    msg->call.generation++;
    assert_false(teffi_node_has_cancel(node, msg));
    msg->call.generation--;
    assert_true(teffi_node_remove_cancel(node, msg));
    assert_false(teffi_node_remove_cancel(node, msg));
    assert_int_equal(kept(), 0);
    teffi_msg_free(msg);
}

static void it_is_kept_once(void **state)
{
    for (int i = 0; i < 100; i++)
        come(one_client, origin);
    assert_int_equal(kept(), 1);
    assert_true(teffi_remove_kept_cancel(&node->home, one_client, origin));
    assert_int_equal(kept(), 0);
}

static void it_is_no_call_under_way(void **state)
{
    uint64_t pending = teffi_calls_count_pending(&node->home);
    come(one_client, origin);
    assert_int_equal(teffi_calls_relay_count(&node->home), 0);
    assert_true(teffi_calls_count_pending(&node->home) <= pending);
}

static void it_expires_with_the_call(void **state)
{
    send_cancel(one_client, &origin, sizeof origin, in_ms(1));
    until(kept() == 0);
}

static void it_goes_with_the_node(void **state)
{
    come(one_client, origin);
    come(other_client, origin);
    teffi_calls_end_relays_of_node(&node->home, one_client);
    assert_int_equal(kept(), 1);
    teffi_calls_end_relays_of_node(&node->home, other_client);
    assert_int_equal(kept(), 0);
}

static void one_that_is_malformed_is_ignored(void **state)
{
    const uint8_t bytes[sizeof origin + 1] = {1};
    for (size_t len = 0; len <= sizeof bytes; len++)
        if (len != sizeof origin)
            send_cancel(one_client, bytes, len, 0);
    assert_int_equal(kept(), 0);
}

static teffi_origin differ(unsigned part, uint32_t by)
{
    teffi_origin o = origin;
    o.slot += part == 0 ? by : 0;
    o.generation += part == 1 ? by : 0;
    o.cookie += part == 2 ? by : 0;
    return o;
}

/* Half of the ids that differ in one part have a cancel; they share lists of the table. */
static void each_part_of_an_id_counts(void **state)
{
    enum { PARTS = 3, IDS = 8192 };
    for (unsigned part = 0; part < PARTS; part++) {
        for (uint32_t i = 0; i < IDS; i += 2)
            come(one_client, differ(part, i));
        assert_int_equal(kept(), IDS / 2);
        for (uint32_t i = 0; i < IDS; i++)
            if (teffi_cancel_is_kept(&node->home, one_client, differ(part, i)) != (i % 2 == 0))
                fail_msg("part %u, id %u", part, i);
        assert_false(teffi_cancel_is_kept(&node->home, other_client, origin));
        teffi_calls_end_relays_of_node(&node->home, one_client);
        assert_int_equal(kept(), 0);
    }
}

/* Cancels of calls that may come, or never: no more than a share, and others have theirs. */
static void a_flood_takes_one_share(void **state)
{
    for (uint32_t i = 0; i < 2 * TEFFI_CANCELS_MAX; i++)
        come(one_client, (teffi_origin){i, 1, i});
    assert_int_equal(kept(), TEFFI_CANCELS_MAX / 2);
    teffi_node_id other = next_of_other_share(&node->home, one_client);
    come(other, origin);
    assert_true(teffi_cancel_is_kept(&node->home, other, origin));
    teffi_calls_end_relays_of_node(&node->home, one_client);
    assert_int_equal(kept(), 1);
    for (uint32_t i = 0; i < TEFFI_CANCELS_MAX; i++) /* the share is free again */
        come(one_client, (teffi_origin){i, 1, i});
    assert_int_equal(kept(), TEFFI_CANCELS_MAX / 2 + 1);
}

/* ---- relays ---- */

static teff_err relay(teffi_msg *msg)
{
    return teffi_node_become_sender(node, msg);
}

static void it_ends_the_relay_of_its_call_alone(void **state)
{
    uint64_t dropped = node->dropped;
    teffi_msg *msg = request_of(one_client);
    assert_int_equal(relay(msg), TEFF_OK);
    come(other_client, origin);
    come(one_client, (teffi_origin){origin.slot, origin.generation, 1});
    come(one_client, (teffi_origin){origin.slot, origin.generation + 1, origin.cookie});
    assert_int_equal(teffi_calls_relay_count(&node->home), 1);
    uint32_t before = kept();
    come(one_client, origin);
    assert_int_equal(teffi_calls_relay_count(&node->home), 0);
    assert_int_equal(node->dropped, dropped); /* no response was sent on */
    assert_int_equal(kept(), before + 1);     /* the relay's own: its request was not sent */
    assert_false(teffi_call_sign_and_check_cancel(&node->home, msg, silo));
    assert_int_equal(kept(), before);
    teffi_msg_free(msg);
}

static void a_cancel_that_cannot_be_kept_ends_its_relay(void **state)
{
    teffi_msg *msg = request_of(one_client);
    assert_int_equal(relay(msg), TEFF_OK);
    for (uint32_t i = 0; i < TEFFI_CANCELS_MAX; i++)
        come(one_client, (teffi_origin){origin.slot + 1 + i, 1, i});
    assert_int_equal(teffi_calls_relay_count(&node->home), 1);
    come(one_client, origin);
    assert_int_equal(teffi_calls_relay_count(&node->home), 0);
    teffi_calls_end_relays_of_node(&node->home, one_client);
    teffi_msg_free(msg);
}

static void a_request_is_not_relayed_after_its_cancel(void **state)
{
    teffi_msg *msg = request_of(one_client);
    come(one_client, origin);
    assert_int_equal(relay(msg), TEFF_E_CANCELLED);
    assert_int_equal(kept() + teffi_calls_relay_count(&node->home), 0);
    assert_true(teffi_node_equals(msg->src, one_client));
    assert_int_equal(relay(msg), TEFF_OK);
    teffi_calls_end_relays_of_node(&node->home, one_client);
    teffi_msg_free(msg);
}

/* Whoever repeats an id harms itself only: a cancel ends one of them. */
static void calls_with_one_id_are_cancelled_one_by_one(void **state)
{
    for (int i = 0; i < 3; i++) {
        teffi_msg *msg = request_of(one_client);
        assert_int_equal(relay(msg), TEFF_OK);
        teffi_msg_free(msg);
    }
    for (uint32_t left = 3; left-- > 0;) {
        come(one_client, origin);
        assert_int_equal(teffi_calls_relay_count(&node->home), left);
    }
}

/* ---- relays that end at once ---- */

enum { RELAYS = 20000 };

typedef struct relayer {
    teffi_thread thread;
    teffi_node_id origin_node, forgotten;
    teffi_slab_use *begun; /* RELAYS: {slot, generation} that its requests were sent with */
} relayer;

/* Ends the relays of the other thread, whose entries its own relays use next. */
static void relay_and_forget(void *arg)
{
    relayer *r = arg;
    for (unsigned i = 0; i < RELAYS; i++) {
        teffi_msg *msg = request_of(r->origin_node);
        assert_int_equal(relay(msg), TEFF_OK);
        r->begun[i] = (teffi_slab_use){msg->call.slot, msg->call.generation};
        teffi_msg_free(msg);
        teffi_calls_end_relays_of_node(&node->home, r->forgotten);
    }
}

static int compare_uses(const void *a, const void *b)
{
    return memcmp(a, b, sizeof(teffi_slab_use));
}

static void no_request_gets_the_relay_of_another(void **state)
{
    teffi_slab_use *begun = calloc(2 * RELAYS, sizeof *begun);
    assert_non_null(begun);
    relayer one = {.origin_node = one_client, .forgotten = other_client, .begun = begun};
    relayer other = {.origin_node = other_client, .forgotten = one_client, .begun = begun + RELAYS};
    assert_int_equal(teffi_thread_start(&other.thread, "other", relay_and_forget, &other), TEFF_OK);
    relay_and_forget(&one);
    teffi_thread_join(&other.thread);
    qsort(begun, 2 * RELAYS, sizeof *begun, compare_uses);
    for (unsigned i = 1; i < 2 * RELAYS; i++)
        if (!compare_uses(&begun[i - 1], &begun[i]))
            fail_msg("two requests with slot %u, generation %u", begun[i].slot,
                     begun[i].generation);
    teffi_calls_end_relays_of_node(&node->home, one_client);
    teffi_calls_end_relays_of_node(&node->home, other_client);
    free(begun);
}

/* ---- the caller's node ---- */

static teffi_call *call_a_grain(teffi_msg **request)
{
    teffi_call *call = teffi_ctx_call_new(ctx, in_ms(600000));
    assert_non_null(call);
    teffi_call_expect_body(call, NULL, TEFFI_CALL_HAS_ASKED);
    call->sent_to = 0;
    *request = request_of(node->id);
    (*request)->call.slot = call->slot;
    (*request)->call.generation = call->generation;
    return call;
}

static void fire(const teffi_call *call)
{
    teffi_cancel_call(&node->home, call->slot, call->generation);
    assert_int_equal(call->err, TEFF_E_CANCELLED);
}

static void a_request_that_waits_here_is_not_sent(void **state)
{
    teffi_msg *msg;
    fire(call_a_grain(&msg));
    assert_int_equal(kept(), 1);
    assert_true(teffi_node_has_cancel(node, msg));
    assert_false(teffi_call_sign_and_check_cancel(&node->home, msg, silo));
    assert_int_equal(kept(), 0);
    teffi_msg_free(msg);
}

static void of_a_request_that_was_sent_nothing_is_kept(void **state)
{
    teffi_msg *msg;
    teffi_call *call = call_a_grain(&msg);
    assert_true(teffi_call_sign_and_check_cancel(&node->home, msg, silo));
    assert_true(msg->call.cookie == teffi_call_cookie(&node->home, call->slot, call->generation));
    teffi_call_set_sent_to(&node->home, call->slot, call->generation, silo);
    fire(call);
    assert_int_equal(kept(), 0);
    teffi_msg_free(msg);
}

static void a_call_that_was_dropped_is_still_sent(void **state)
{
    teffi_msg *msg;
    teff_call call = {call_a_grain(&msg)};
    teff_drop(ctx, &call);
    assert_true(teffi_call_sign_and_check_cancel(&node->home, msg, silo));
    come(one_client, origin);
    assert_true(teffi_call_sign_and_check_cancel(&node->home, msg, silo));
    teffi_msg_free(msg);
}

static void a_call_that_ended_is_not_cancelled(void **state)
{
    teffi_msg *msg;
    teffi_call *call = call_a_grain(&msg);
    uint32_t generation = call->generation;
    assert_true(teffi_call_fail(call, TEFF_E_FAILED, NULL));
    teffi_cancel_call(&node->home, call->slot, generation);
    teffi_cancel_call(&node->home, call->slot, generation + 1);
    teffi_cancel_call(&node->home, UINT32_MAX, 1);
    assert_int_equal(call->err, TEFF_E_FAILED);
    assert_int_equal(kept(), 0);
    assert_false(teffi_remove_kept_cancel(&node->home, here, origin));
    teffi_msg_free(msg);
}

int main(void)
{
#define ROW(f) cmocka_unit_test_setup_teardown(f, setup, teardown)
    const struct CMUnitTest tests[] = {
        ROW(it_is_kept_for_its_request_alone),
        ROW(it_is_kept_once),
        ROW(it_is_no_call_under_way),
        ROW(it_expires_with_the_call),
        ROW(it_goes_with_the_node),
        ROW(one_that_is_malformed_is_ignored),
        ROW(each_part_of_an_id_counts),
        ROW(a_flood_takes_one_share),
        ROW(it_ends_the_relay_of_its_call_alone),
        ROW(a_cancel_that_cannot_be_kept_ends_its_relay),
        ROW(a_request_is_not_relayed_after_its_cancel),
        ROW(calls_with_one_id_are_cancelled_one_by_one),
        ROW(no_request_gets_the_relay_of_another),
        ROW(a_request_that_waits_here_is_not_sent),
        ROW(of_a_request_that_was_sent_nothing_is_kept),
        ROW(a_call_that_was_dropped_is_still_sent),
        ROW(a_call_that_ended_is_not_cancelled),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
