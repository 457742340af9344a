/* test_cancel.c - a cancel ends the calls that were given to it, and refuses those that are given
 * later. Without memory a call is refused before it begins. */
#include "../faults.h"

#include "call/calls.h"
#include "call/ctx.h"
#include "lone_node.h"

enum { CALLS = 100 };

static teffi_node *node;
static teff_ctx *ctx;
static teff_cancel *cancel;

static int setup(void **state)
{
    node = lone_node_open();
    ctx = teffi_ctx_new(&node->home);
    cancel = teff_cancel_new();
    return !ctx || !cancel;
}

static int teardown(void **state)
{
    teff_cancel_free(cancel);
    teff_ctx_free(ctx);
    lone_node_close(node);
    return 0;
}

static teffi_call *watched_call(void)
{
    assert_int_equal(teffi_cancel_reserve_room(cancel), TEFF_OK);
    uint64_t now_ns = teffi_now(node->platform);
    teffi_call *call = teffi_ctx_call_new(ctx, now_ns + 600 * 1000000000ull);
    assert_non_null(call);
    teffi_cancel_add_call(cancel, call);
    return call;
}

static void assert_cancelled(teffi_call *call)
{
    assert_false(is_pending(call));
    assert_int_equal(teffi_ctx_await_call(ctx, call, NULL), TEFF_E_CANCELLED);
}

static void all_calls_end(void **state)
{
    teffi_call *calls[CALLS];
    for (unsigned i = 0; i < CALLS; i++)
        calls[i] = watched_call();
    for (unsigned i = 0; i < CALLS; i++)
        assert_true(is_pending(calls[i]));
    teff_cancel_fire(cancel);
    for (unsigned i = 0; i < CALLS; i++)
        assert_cancelled(calls[i]);
}

static void a_call_after_it_does_not_begin(void **state)
{
    teff_cancel_fire(cancel);
    assert_int_equal(teffi_cancel_reserve_room(cancel), TEFF_E_CANCELLED);
    teff_cancel_fire(cancel); /* again: nothing is left */
}

static void a_call_that_began_meanwhile_ends_at_once(void **state)
{
    assert_int_equal(teffi_cancel_reserve_room(cancel), TEFF_OK);
    teff_cancel_fire(cancel);
    teffi_call *call = teffi_ctx_call_new(ctx, teffi_now(node->platform) + 600 * 1000000000ull);
    teffi_cancel_add_call(cancel, call);
    assert_cancelled(call);
}

/* No call of these fails once it was sent: each has its place. */
static void without_memory_a_call_is_refused_before_it_begins(void **state)
{
    for (unsigned i = 0; i < CALLS; i++) {
        atomic_store(&faults_left, 1);
        teff_err err = teffi_cancel_reserve_room(cancel);
        atomic_store(&faults_left, 0);
        assert_true(err == TEFF_OK || err == TEFF_E_NOMEM);
        assert_true(i > 0 || err == TEFF_E_NOMEM);
        if (err)
            assert_int_equal(teffi_cancel_reserve_room(cancel), TEFF_OK);
    }
    for (unsigned i = 0; i < CALLS; i++)
        teffi_cancel_add_call(cancel, NULL);
    teffi_call *call = watched_call();
    teff_cancel_fire(cancel);
    assert_cancelled(call);
}

/* Calls come and end, beside some that stay. */
static void calls_that_ended_make_room(void **state)
{
    teffi_call *stay[3];
    for (unsigned i = 0; i < CALLS; i++) {
        teffi_call *call = watched_call();
        if (i % (CALLS / 3) == 0 && i / (CALLS / 3) < 3)
            stay[i / (CALLS / 3)] = call;
        else
            assert_true(teffi_call_fail(call, TEFF_E_FAILED, NULL));
    }
    teff_cancel_fire(cancel);
    for (unsigned i = 0; i < 3; i++)
        assert_cancelled(stay[i]);
}

int main(void)
{
#define ROW(f) cmocka_unit_test_setup_teardown(f, setup, teardown)
    const struct CMUnitTest tests[] = {
        ROW(all_calls_end),
        ROW(a_call_after_it_does_not_begin),
        ROW(a_call_that_began_meanwhile_ends_at_once),
        ROW(without_memory_a_call_is_refused_before_it_begins),
        ROW(calls_that_ended_make_room),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
