/* test_route.c - the next step of a request, one by one: where it is sent, when it is located
 * again, and how it is refused. */
#include "bare.h"
#include "call/calls.h"

static void responded_and_gone(teff_err err, const char *text)
{
    bare_responded(1, err, text);
    assert_int_equal(bytes_used(node.budget), 0);
    assert_int_equal(teffi_calls_relay_count(&node.home), 0);
    assert_false(teffi_lookups_are_pending(&grains));
}

/* ---- refused ---- */

static void a_request_is_not_begun_late(void **state)
{
    teffi_msg *msg = bare_message(TEFFI_MSG_REQUEST);
    msg->deadline_ns = bare_now_ns;
    msg->hops = 2;
    teffi_route(&grains, msg);
    responded_and_gone(TEFF_E_TIMEOUT, "expired before it could run");
}

static void a_silo_without_its_lease_refuses(void **state)
{
    (void)teffi_lease_end(&node.home.lease);
    teffi_route(&grains, bare_message(TEFFI_MSG_REQUEST));
    responded_and_gone(TEFF_E_UNAVAILABLE, teffi_lease_over_text);
}

/* Its silo may stay in the view for ever, since this silo no longer reads the table. */
static void without_a_lease_no_grain_is_located_again(void **state)
{
    (void)teffi_lease_end(&node.home.lease);
    sent.refuse = TEFF_E_UNREACHABLE;
    teffi_route_elsewhere(&grains, bare_message(TEFFI_MSG_REQUEST), bare_other);
    responded_and_gone(TEFF_E_UNAVAILABLE, teffi_lease_over_text);
}

static void a_request_is_not_forwarded_for_ever(void **state)
{
    teffi_msg *msg = bare_message(TEFFI_MSG_REQUEST);
    msg->hops = TEFFI_HOPS_MAX;
    teffi_route_elsewhere(&grains, msg, bare_other);
    responded_and_gone(TEFF_E_UNAVAILABLE, "the request was forwarded too often");
}

static void a_request_is_not_handed_back_for_ever(void **state)
{
    teffi_msg *msg = bare_message(TEFFI_MSG_REQUEST);
    msg->hops = TEFFI_HOPS_MAX;
    teffi_route_again(&grains, msg);
    responded_and_gone(TEFF_E_UNAVAILABLE, "the grain keeps ending");
}

static void a_silo_that_closes_takes_nothing_back(void **state)
{
    grains.closed = true;
    teffi_reroute_unsent_request(&grains, bare_message(TEFFI_MSG_REQUEST), bare_other);
    responded_and_gone(TEFF_E_UNAVAILABLE, "the silo is closing; the call did not run");
}

static void what_the_network_refuses_for_good_ends(void **state)
{
    static const struct {
        teff_err err;
        const char *text;
    } refusals[] = {
        {TEFF_E_OVERLOADED,
         "too many bytes wait to be sent to the grain's silo: the limit is connection_bytes_max"},
        {TEFF_E_TOO_LARGE, "the request is larger than a frame may be"},
        {TEFF_E_NOMEM, "none"},
    };
    for (unsigned i = 0; i < sizeof refusals / sizeof refusals[0]; i++) {
        sent.n = 0;
        sent.refuse = refusals[i].err;
        teffi_route_elsewhere(&grains, bare_message(TEFFI_MSG_REQUEST), bare_other);
        responded_and_gone(refusals[i].err, refusals[i].text);
    }
}

/* ---- sent ---- */

static void was_sent_to_other(unsigned n, uint8_t hops)
{
    assert_int_equal(sent.n, n);
    assert_int_equal(sent.kind, TEFFI_MSG_REQUEST);
    assert_true(teffi_node_equals(sent.to, bare_other));
    assert_int_equal(sent.hops, hops);
    assert_int_equal(teffi_calls_relay_count(&node.home), n);
}

static void a_request_for_a_grain_elsewhere_is_relayed(void **state)
{
    teffi_msg *msg = bare_message(TEFFI_MSG_REQUEST);
    msg->hops = TEFFI_HOPS_MAX - 1;
    teffi_route_elsewhere(&grains, msg, bare_other);
    was_sent_to_other(1, TEFFI_HOPS_MAX);
}

/* Later requests go there at once. */
static void a_request_that_lost_a_race_follows_the_winner(void **state)
{
    teffi_ident ident = bare_ident();
    bare_view(1, (teffi_node_id[]){bare_self, bare_other}, 2);
    teffi_route_to_current_holder(&grains, bare_message(TEFFI_MSG_REQUEST), bare_other);
    was_sent_to_other(1, 1);
    assert_true(
        teffi_node_equals(teffi_location_get(grains.location_cache, ident.hash), bare_other));
    teffi_route(&grains, bare_message(TEFFI_MSG_REQUEST));
    was_sent_to_other(2, 1);
}

/* ---- located again ---- */

static void is_located_again(const teffi_msg *msg)
{
    teffi_ident ident = bare_ident();
    assert_int_equal(sent.n, 0);
    assert_true(teffi_lookup_exists(&grains, &ident));
    assert_int_equal(msg->hops, 0);
    assert_int_equal(msg->tries, 1);
    assert_int_equal(msg->flags & TEFFI_MSG_PLACED, 0);
    assert_true(teffi_node_is_none(teffi_location_get(grains.location_cache, ident.hash)));
    assert_true(bytes_used(node.budget) > 0);
}

static void what_waits_is_freed_with_the_silo(void)
{
    teffi_lookups_fini(&grains);
    assert_int_equal(bytes_used(node.budget), 0);
}

static void a_request_that_was_not_sent_is_located_again(void **state)
{
    static const teff_err errs[] = {TEFF_E_CLOSED, TEFF_E_UNREACHABLE};
    bare_view(1, (teffi_node_id[]){bare_self, bare_other}, 2);
    for (size_t i = 0; i < 2; i++) {
        teffi_msg *msg = bare_message(TEFFI_MSG_REQUEST);
        teffi_ident ident = bare_ident();
        teffi_location_put(grains.location_cache, ident.hash, bare_other);
        msg->src = bare_self;
        msg->flags = TEFFI_MSG_PLACED;
        sent.refuse = errs[i];
        teffi_route_elsewhere(&grains, msg, bare_other);
        is_located_again(msg);
        what_waits_is_freed_with_the_silo();
    }
}

/* Wherever in the tables they are. */
static void all_look_ups_are_freed_with_the_silo(void **state)
{
    static const uint8_t keys[] = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789";
    bare_view(1, (teffi_node_id[]){bare_self, bare_other}, 2);
    sent.refuse = TEFF_E_UNREACHABLE;
    for (const uint8_t *key = keys; *key; key++) {
        teffi_msg *msg = bare_message(TEFFI_MSG_REQUEST);
        msg->key = key;
        teffi_route_elsewhere(&grains, msg, bare_other);
    }
    assert_true(bytes_used(node.budget) > 0);
    what_waits_is_freed_with_the_silo();
}

/* It was pushed to a new activation, which the silo did not come to. */
static void what_is_queued_is_freed_with_the_silo(void **state)
{
    teffi_msg *msg = bare_message(TEFFI_MSG_REQUEST);
    msg->flags = TEFFI_MSG_PLACED;
    teffi_route(&grains, msg);
    assert_int_equal(sent.n, 0);
    assert_int_equal(grains.shards->activations, 1);
    assert_true(bytes_used(node.budget) > 0); /* see bare_close() */
}

int main(void)
{
#define ROUTE(f) cmocka_unit_test_setup_teardown(f, bare_open, bare_close)
    const struct CMUnitTest tests[] = {
        ROUTE(a_request_is_not_begun_late),
        ROUTE(a_silo_without_its_lease_refuses),
        ROUTE(without_a_lease_no_grain_is_located_again),
        ROUTE(a_request_is_not_forwarded_for_ever),
        ROUTE(a_request_is_not_handed_back_for_ever),
        ROUTE(a_silo_that_closes_takes_nothing_back),
        ROUTE(what_the_network_refuses_for_good_ends),
        ROUTE(a_request_for_a_grain_elsewhere_is_relayed),
        ROUTE(a_request_that_lost_a_race_follows_the_winner),
        ROUTE(a_request_that_was_not_sent_is_located_again),
        ROUTE(all_look_ups_are_freed_with_the_silo),
        ROUTE(what_is_queued_is_freed_with_the_silo),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
