/* test_outgoing.c - asynchronous calls, late and cancelled ones, and tries, with filters. Rows of
 * the table of teff/filter.h; the others are in test_filter.c:
 *
 * | what | tests |
 * |---|---|
 * | async | async_calls, async_outcomes |
 * | calls that nobody awaits | dropped_calls |
 * | deadline, cancel, not sent | late_and_cancelled |
 * | idempotent tries, idempotency keys | tries_and_keys | */
#include "taps.h"

static void async_calls(void **state)
{
    filter_number *got;
    teff_call calls[3];
    size_t index;
    for (int i = 0; i < 3; i++)
        lab_ok(ctx, filter_plain_run_async(ctx, i, ACT(i ? holds : NULL, i), NULL, &calls[i]));
    lab_until(held == 2 && teff_call_ended(ctx, calls[0]));
    assert_false(teff_call_ended(ctx, calls[1]));
    lab_ok(ctx, teff_await_any(ctx, calls, 3, &index));
    assert_int_equal(index, 0);
    clear_trace();
    lab_ok(ctx, filter_plain_run_await(ctx, calls[0], &got));
    assert_int_equal(got->n, 0);
    expect_trace("o2) o1) ");
    lab_ok(ctx, filter_plain_run_await(ctx, calls[0], &got)); /* once more */
    assert_int_equal(got->n, 0);
    expect_trace("");
    gate = true;
    lab_ok(ctx, teff_await_all(ctx, calls, 3));
    expect_trace("s) s) o2) o1) o2) o1) ");
    for (int i = 1; i < 3; i++) {
        lab_ok(ctx, filter_plain_run_await(ctx, calls[i], &got));
        assert_int_equal(got->n, i);
    }
    expect_trace("");
}

/* The outcome is known when the call begins. */
static void async_outcomes(void **state)
{
    filter_number *got;
    teff_call call, none = {NULL};
    size_t index;
    taps[OUT2].before = refuses;
    lab_fails(ctx, filter_till_run_async(ctx, "a", ACT(NULL, 1), NULL, &call), TEFF_E_REFUSED);
    assert_string_equal(teff_error(ctx), "not by you");
    assert_null(call.impl);
    expect_trace("o1( o2( o1)REFUSED ");
    taps[OUT2].before = answers_nine;
    lab_ok(ctx, filter_till_run_async(ctx, "a", ACT(NULL, 1), NULL, &call));
    expect_trace("o1( o2( ");
    assert_true(teff_call_ended(ctx, call));
    const teff_call both[] = {none, call};
    lab_ok(ctx, teff_await_any(ctx, both, 2, &index));
    assert_int_equal(index, 1);
    lab_ok(ctx, teff_await_all(ctx, &call, 1));
    lab_ok(ctx, filter_till_run_await(ctx, call, &got));
    assert_int_equal(got->n, 9);
    expect_trace("o2) o1) ");
    teff_drop(ctx, &call);
    taps[OUT2].before = refuses;
    taps[OUT1].after = forgives; /* and the response is empty */
    lab_ok(ctx, filter_till_run_async(ctx, "a", ACT(NULL, 1), NULL, &call));
    lab_ok(ctx, filter_till_run_await(ctx, call, &got));
    assert_int_equal(got->n, 0);
    expect_trace("o1( o2( o1)REFUSED ");
    taps[OUT2].before = NULL;
    taps[SILO].before = refuses;
    lab_ok(ctx, filter_till_run_async(ctx, "a", ACT(NULL, 1), NULL, &call));
    for (int i = 0; i < 2; i++) { /* the outcome stays */
        got = NULL;
        lab_ok(ctx, filter_till_run_await(ctx, call, &got));
        assert_int_equal(got->n, 0);
    }
    expect_trace("o1( o2( s( o2)REFUSED o1)REFUSED ");
}

static teff_err drops_calls(teff_ctx *turn, int64_t n, filter_number *out)
{
    teff_call call;
    filter_number *got;
    teff_mark here = teff_ctx_mark(turn);
    (void)n;
    teff_err err = filter_plain_run_async(turn, 1, ACT(NULL, 1), NULL, &call);
    teff_drop(turn, &call);
    if (!err)
        err = filter_plain_run_async(turn, 1, ACT(NULL, 1), NULL, &call);
    teff_ctx_rewind(turn, here);
    if (!err)
        err = filter_plain_run(turn, 1, ACT(NULL, 4), &got);
    if (!err)
        out->n = got->n;
    return err ? err : filter_plain_run_async(turn, 1, ACT(NULL, 1), NULL, &call);
}

static void dropped_calls(void **state)
{
    filter_number *got;
    lab_ok(ctx, run_at("a", drops_calls, 1, &got));
    assert_int_equal(got->n, 4);
    lab_until(taps[SILO].calls == 5);
    char copy[TRACE_BYTES];
    unsigned ends = 0;
    take_trace(copy, true);
    for (const char *at = copy; (at = strstr(at, "o1) ")); at++)
        ends++;
    assert_int_equal(ends, 2); /* of the two calls that were awaited */
    assert_int_equal(taps[OUT1].calls, 5);
}

static void late_and_cancelled(void **state)
{
    teff_cancel *cancel = teff_cancel_new();
    const teff_call_options soon = {.size = sizeof soon, .timeout_ms = 20},
                            with_cancel = {.size = sizeof with_cancel, .cancel = cancel};
    filter_number *got;
    teff_call call;
    lab_ok(ctx, filter_till_run_async(ctx, "a", ACT(holds, 1), &soon, &call));
    lab_fails(ctx, filter_till_run_await(ctx, call, &got), TEFF_E_TIMEOUT);
    expect_trace("o1( o2( s( t( M o2)TIMEOUT o1)TIMEOUT ");
    /* it waits for the grain: no incoming filter runs */
    lab_ok(ctx, filter_till_run_async(ctx, "a", ACT(holds, 1), &with_cancel, &call));
    teff_cancel_fire(cancel);
    lab_fails(ctx, filter_till_run_await(ctx, call, &got), TEFF_E_CANCELLED);
    expect_trace("o1( o2( o2)CANCELLED o1)CANCELLED ");
    lab_fails(ctx, filter_till_run_async(ctx, "a", ACT(holds, 1), &with_cancel, &call),
              TEFF_E_CANCELLED); /* not begun */
    expect_trace("o1( o2( o2)CANCELLED o1)CANCELLED ");
    gate = true;
    lab_until(trace_is("t) s) ")); /* of the late call */
    teff_cancel_free(cancel);
    clear_trace();
    lab_fails(ctx, run_at("", NULL, 1, &got), TEFF_E_INVALID); /* no key */
    expect_trace("o1( o2( o2)INVALID o1)INVALID ");
}

static teff_err is_unreachable_once(teff_filter_call *call)
{
    return taps[TYPE].calls == 1 ? teff_fail(call->ctx, TEFF_E_UNREACHABLE, "try again") : TEFF_OK;
}

static void tries_and_keys(void **state)
{
    const teff_uuid id = {{7}};
    const teff_call_options once = {.size = sizeof once, .once = &id};
    filter_number *got;
    teff_call call;
    taps[TYPE].before = is_unreachable_once;
    lab_ok(ctx, filter_till_again(ctx, "a", ACT(NULL, 2), &got));
    assert_int_equal(got->n, 2);
    expect_trace("o1( o2( s( t( s)UNREACHABLE s( t( M t) s) o2) o1) ");
    for (int i = 0; i < 2; i++) {
        lab_ok(ctx, filter_till_run_async(ctx, "b", ACT(NULL, 3), &once, &call));
        lab_ok(ctx, filter_till_run_await(ctx, call, &got));
        assert_int_equal(got->n, 3);
        expect_trace(i ? "o1( o2( o2) o1) " : all);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(async_calls),        TEST(async_outcomes), TEST(dropped_calls),
        TEST(late_and_cancelled), TEST(tries_and_keys),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
