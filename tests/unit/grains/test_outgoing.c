/* test_outgoing.c - asynchronous calls, late and cancelled ones, and tries, with filters. Rows of
 * the table of teff/filter.h; the others are in test_filter.c:
 *
 * | what | tests |
 * |---|---|
 * | async | async_calls, async_outcomes |
 * | calls that nobody awaits | dropped_calls |
 * | deadline, cancel, not sent | late_and_cancelled |
 * | idempotent tries, idempotency keys | tries_and_keys |
 * | transactions: a refused call | refused_in_a_transaction, no_memory_in_a_transaction |
 * | rewound memory | outcomes_stay_after_a_rewind |
 * | bad keys, no request | bad_keys, no_request |
 * | several calls | all_calls_end |
 * | what a filter leaves to its caller | what_filters_leave, no_response_after_an_error |
 * | turns whose calls are answered here | answered_calls_yield | */
#include "taps.h"
#include "sched/worker.h"

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

/* ---- in a transaction ---- */

static teff_err refuses_others(teff_filter_call *call)
{
    return call->key->text && call->key->text[0] == 'o' ? refuses(call) : TEFF_OK;
}

/* Ignores the error. */
static teff_err moves_other(teff_ctx *turn, int64_t n, filter_number *out)
{
    filter_number *got;
    (void)out;
    return filter_till_move(turn, "other", ACT(NULL, n), &got) ? TEFF_OK : TEFF_E_FAILED;
}

static teff_err begins_to_move_other(teff_ctx *turn, int64_t n, filter_number *out)
{
    teff_call call;
    (void)out;
    return filter_till_move_async(turn, "other", ACT(NULL, n), NULL, &call) ? TEFF_OK
                                                                            : TEFF_E_FAILED;
}

/* A one-way message is not part of the transaction. */
static teff_err sends_to_other(teff_ctx *turn, int64_t n, filter_number *out)
{
    (void)out;
    return filter_till_move_send(turn, "other", ACT(NULL, n)) ? TEFF_OK : TEFF_E_FAILED;
}

/* The transaction is rolled back, although its root ignores the error. */
static void refused_in_a_transaction(void **state)
{
    filter_number *got;
    taps[OUT2].before = refuses_others;
    for (int i = 0; i < 2; i++) {
        lab_fails(ctx,
                  filter_till_move(ctx, "a", ACT(i ? begins_to_move_other : moves_other, 2), &got),
                  TEFF_E_REFUSED);
        assert_string_equal(teff_error(ctx),
                            "the transaction was rolled back, as a call in it failed: not by you");
        lab_ok(ctx, run_at("a", reads_state, 0, &got));
        assert_int_equal(got->n, 0);
    }
    lab_ok(ctx, filter_till_move(ctx, "a", ACT(sends_to_other, 2), &got));
    lab_ok(ctx, run_at("a", reads_state, 0, &got));
    assert_int_equal(got->n, 2);
}

static teff_err begins_without_memory(teff_ctx *turn, int64_t n, filter_number *out)
{
    teff_mark here = teff_ctx_mark(turn);
    teff_call call;
    (void)out;
    for (size_t size = 1 << 24; size >= 16; size /= 16)
        while (teff_arena_alloc(&turn->arena, size))
            ;
    teff_err err = filter_till_move_async(turn, "other", ACT(NULL, n), NULL, &call);
    teff_ctx_rewind(turn, here);
    return err == TEFF_E_NOMEM ? TEFF_OK : TEFF_E_FAILED;
}

static void no_memory_in_a_transaction(void **state)
{
    filter_number *got;
    lab_fails(ctx, filter_till_move(ctx, "a", ACT(begins_without_memory, 2), &got), TEFF_E_NOMEM);
    lab_ok(ctx, run_at("a", reads_state, 0, &got));
    assert_int_equal(got->n, 0);
}

/* ---- asynchronous calls and the caller's memory ---- */

static teff_err is_not_found(teff_ctx *turn, int64_t n, filter_number *out)
{
    (void)out;
    return teff_fail(turn, TEFF_E_NOT_FOUND, "nothing at %d", (int)n);
}

static void fill_memory(teff_ctx *with)
{
    for (int i = 0; i < 20; i++)
        memset(teff_alloc(with, 100), 'x', 100);
}

/* The mark is older than the first await, but not than the call. */
static void outcomes_stay_after_a_rewind(void **state)
{
    filter_number *got;
    teff_call call;
    lab_ok(ctx, filter_till_run_async(ctx, "a", ACT(is_not_found, 7), NULL, &call));
    teff_mark here = teff_ctx_mark(ctx);
    for (int i = 0; i < 3; i++) {
        lab_fails(ctx, filter_till_run_await(ctx, call, &got), TEFF_E_NOT_FOUND);
        assert_string_equal(teff_error(ctx), "nothing at 7");
        teff_ctx_rewind(ctx, here);
        fill_memory(ctx);
    }
    taps[OUT1].after = forgives;
    lab_ok(ctx, filter_till_run_async(ctx, "a", ACT(is_not_found, 7), NULL, &call));
    here = teff_ctx_mark(ctx);
    for (int i = 0; i < 3; i++) {
        lab_ok(ctx, filter_till_run_await(ctx, call, &got));
        assert_ptr_equal(got->base.descriptor, &filter__number__descriptor);
        assert_int_equal(got->n, 0);
        assert_string_equal(got->text, "");
        teff_ctx_rewind(ctx, here);
        fill_memory(ctx);
    }
}

/* ---- wrong arguments ---- */

static void bad_keys(void **state)
{
    char text[3 * TEFF_KEY_MAX];
    const teff_key number = {.kind = TEFF_KEY_INT64, .number = 3, .text = (const char *)8},
                   longest = {.kind = TEFF_KEY_STRING, .text = text};
    filter_number *got;
    teff_call call;
    lab_ok(ctx, teff_ask_async(ctx, &filter_plain_info, &number, &filter_plain_info.methods[0],
                               &ACT(NULL, 5)->base, NULL, &call));
    lab_ok(ctx, filter_plain_run_await(ctx, call, &got));
    assert_int_equal(got->n, 5);
    clear_trace();
    memset(text, 'k', sizeof text); /* has no end: at most TEFF_KEY_MAX + 1 bytes are read */
    lab_fails(ctx,
              teff_ask_async(ctx, &filter_till_info, &longest, &filter_till_info.methods[0],
                             &ACT(NULL, 5)->base, NULL, &call),
              TEFF_E_INVALID);
    expect_trace("o1( o2( o2)INVALID o1)INVALID ");
}

/* Filters need not check whether there is a request. */
static void no_request(void **state)
{
    filter_number *got;
    teff_call call;
    lab_fails(ctx, filter_till_run(ctx, "a", NULL, &got), TEFF_E_INVALID);
    lab_fails(ctx, filter_till_run_async(ctx, "a", NULL, NULL, &call), TEFF_E_INVALID);
    assert_null(call.impl);
    lab_fails(ctx, filter_till_note(ctx, "a", NULL), TEFF_E_INVALID);
    expect_trace("");
}

/* ---- several calls ---- */

static void all_calls_end(void **state)
{
    filter_number *got;
    teff_call calls[3];
    lab_ok(ctx, filter_plain_run_async(ctx, 1, ACT(NULL, 1), NULL, &calls[0]));
    lab_ok(ctx, filter_plain_run_async(ctx, 2, ACT(is_not_found, 2), NULL, &calls[1]));
    lab_ok(ctx, filter_plain_run_async(ctx, 3, ACT(is_not_found, 3), NULL, &calls[2]));
    lab_until(teff_call_ended(ctx, calls[0]) && teff_call_ended(ctx, calls[1]) &&
              teff_call_ended(ctx, calls[2]));
    clear_trace();
    lab_fails(ctx, teff_await_all(ctx, calls, 3), TEFF_E_NOT_FOUND);
    assert_string_equal(teff_error(ctx), "nothing at 2"); /* of the first */
    expect_trace("o2) o1) o2)NOT_FOUND o1)NOT_FOUND o2)NOT_FOUND o1)NOT_FOUND ");
    lab_fails(ctx, filter_plain_run_await(ctx, calls[2], &got), TEFF_E_NOT_FOUND);
    assert_string_equal(teff_error(ctx), "nothing at 3");
    expect_trace("");
}

/* ---- what a filter leaves to its caller ---- */

static teff_call of_caller;

static teff_err awaits_call_of_caller(teff_filter_call *call)
{
    filter_number *got;
    teff_ctx_set_timeout(call->ctx, 100);
    teff_err err = filter_plain_run_await(call->ctx, of_caller, &got);
    return err ? err : filter_plain_run(call->ctx, 2, ACT(NULL, 2), &got); /* not filtered */
}

static teff_err sets_timeout(teff_filter_call *call, teff_err err)
{
    teff_ctx_set_timeout(call->ctx, 100);
    return err;
}

static void what_filters_leave(void **state)
{
    filter_number *got;
    lab_ok(ctx, filter_plain_run_async(ctx, 1, ACT(NULL, 1), NULL, &of_caller));
    lab_until(teff_call_ended(ctx, of_caller));
    clear_trace();
    teff_ctx_set_timeout(ctx, 20000);
    taps[OUT2].before = awaits_call_of_caller;
    taps[OUT2].after = sets_timeout;
    lab_ok(ctx, run_at("a", NULL, 1, &got));
    expect_trace("o1( o2( o2) o1) s( M s) s( t( M t) s) o2) o1) ");
    assert_int_equal(ctx->timeout_ms, 20000);
    assert_false(ctx->filters);
}

static teff_err fails_late(teff_filter_call *call, teff_err err)
{
    return err ? err : teff_fail(call->ctx, TEFF_E_FAILED, "after all");
}

static teff_err expects_no_response(teff_filter_call *call, teff_err err)
{
    if (call->out)
        note("a response ");
    return err;
}

static void no_response_after_an_error(void **state)
{
    filter_number *got;
    taps[OUT2].after = fails_late;
    taps[OUT1].after = expects_no_response;
    lab_fails(ctx, run_at("a", NULL, 1, &got), TEFF_E_FAILED);
    expect_trace("o1( o2( s( t( M t) s) o2) o1)FAILED ");
}

static teff_err answers_notes(teff_filter_call *call)
{
    return strcmp(call->method->name, "filter.Till.Nothing") ? TEFF_OK : answers_nothing(call);
}

/* Asks the turn to yield, and makes a call that a filter answers. */
__attribute__((noinline)) static bool asks_and_calls(teff_ctx *turn)
{
    atomic_store(&teffi_worker_self()->preempt, 1);
    return filter_till_nothing(turn, "b") == TEFF_OK;
}

__attribute__((noinline)) static bool is_asked_to_yield(void)
{
    return atomic_load(&teffi_worker_self()->preempt);
}

static teff_err counts_yields(teff_ctx *turn, int64_t n, filter_number *out)
{
    for (; n > 0; n--)
        out->n += asks_and_calls(turn) && !is_asked_to_yield();
    out->n -= 100; /* run_script() has set it to n */
    return TEFF_OK;
}

/* As turns that make real calls do when their slice is over. */
static void answered_calls_yield(void **state)
{
    filter_number *got;
    taps[OUT1].before = answers_notes;
    lab_ok(ctx, run_at("a", counts_yields, 100, &got));
    assert_true(got->n > 50); /* the monitor may ask, too */
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(async_calls),
        TEST(async_outcomes),
        TEST(dropped_calls),
        TEST(late_and_cancelled),
        TEST(tries_and_keys),
        TEST(refused_in_a_transaction),
        TEST(no_memory_in_a_transaction),
        TEST(outcomes_stay_after_a_rewind),
        TEST(bad_keys),
        TEST(no_request),
        TEST(all_calls_end),
        TEST(what_filters_leave),
        TEST(no_response_after_an_error),
        TEST(answered_calls_yield),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
