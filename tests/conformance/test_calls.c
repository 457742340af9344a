/* test_calls.c - calls that are cancelled, one-way messages, errors that pass through grains. */
#include "conform.h"

/* ---- cancellation ---- */

static teff_err runs_once(turn *t)
{
    atomic_fetch_add(&world.n, 1);
    return nothing(t);
}

static teff_call begin_with(conform *c, teff_cancel *cancel, script *fn)
{
    teff_call call;
    teff_call_options options = {.size = sizeof options, .cancel = cancel};
    conform_ok(c->ctx, actors_plain_run_async(c->ctx, "a", STEP(fn), &options, &call));
    return call;
}

static void cancelled_before_the_call(conform *c)
{
    teff_call call;
    teff_cancel *cancel = teff_cancel_new();
    teff_call_options options = {.size = sizeof options, .cancel = cancel};
    teff_cancel_fire(cancel);
    conform_fails(c, TEFF_E_CANCELLED,
                  actors_plain_run_async(c->ctx, "a", STEP(runs_once), &options, &call));
    (void)RUN(c, plain, "a", nothing);
    assert_int_equal(world.n, 0);
    teff_cancel_free(cancel);
}

/* What this caller sent to the grain before has arrived: messages stay in order, and this call does
 * not wait for turns. */
static void await_arrival(conform *c)
{
    actors_result *out;
    conform_ok(c->ctx, actors_plain_peek(c->ctx, "a", STEP(nothing), &out));
}

static void cancelled_while_queued(conform *c)
{
    actors_result *out;
    teff_cancel *cancel = teff_cancel_new();
    teff_call held = BEGIN(c, plain, "a", holds);
    UNTIL(c, world.inside == 1);
    teff_call queued = begin_with(c, cancel, runs_once);
    await_arrival(c);
    teff_cancel_fire(cancel);
    conform_fails(c, TEFF_E_CANCELLED, actors_plain_run_await(c->ctx, queued, &out));
    await_arrival(c);
    world.gate = true;
    conform_await_all(c, &held, 1);
    (void)RUN(c, plain, "a", nothing);
    assert_int_equal(world.n, 0);
    teff_cancel_free(cancel);
}

static teff_err watches_its_caller(turn *t)
{
    world_enter();
    for (int ms = 0; ms < 20000 && teff_ctx_check(t->ctx, NULL) == TEFF_OK; ms++)
        teff_sleep(t->ctx, 1);
    if (teff_ctx_check(t->ctx, NULL) == TEFF_E_CANCELLED)
        atomic_fetch_add(&world.n, 1);
    world_leave();
    return TEFF_OK;
}

static void cancelled_while_it_runs(conform *c)
{
    actors_result *out;
    teff_cancel *cancel = teff_cancel_new();
    teff_call call = begin_with(c, cancel, watches_its_caller);
    UNTIL(c, world.inside == 1);
    teff_cancel_fire(cancel);
    conform_fails(c, TEFF_E_CANCELLED, actors_plain_run_await(c->ctx, call, &out));
    UNTIL(c, world.ended == 1);
    assert_int_equal(world.n, 1);
    teff_cancel_free(cancel);
}

static void cancelling_one_call_leaves_others(conform *c)
{
    actors_result *out;
    teff_cancel *cancel = teff_cancel_new();
    teff_call held = BEGIN(c, plain, "a", holds);
    UNTIL(c, world.inside == 1);
    teff_call first = begin_with(c, cancel, runs_once);
    teff_call second = begin_with(c, NULL, runs_once);
    teff_cancel_fire(cancel);
    await_arrival(c);
    world.gate = true;
    conform_await_all(c, (teff_call[]){held, second}, 2);
    conform_fails(c, TEFF_E_CANCELLED, actors_plain_run_await(c->ctx, first, &out));
    assert_int_equal(world.n, 1);
    teff_cancel_free(cancel);
}

/* ---- one-way ---- */

static void tell(conform *c, const char *key, script *fn)
{
    conform_ok(c->ctx, actors_plain_tell(c->ctx, key, STEP(fn)));
}

static void one_way_returns_at_once(conform *c)
{
    tell(c, "a", holds);
    UNTIL(c, world.inside == 1);
    assert_int_equal(world.ended, 0);
    world.gate = true;
    UNTIL(c, world.ended == 1);
}

static teff_err fails_as_7(turn *t)
{
    atomic_fetch_add(&world.n, 1);
    return teff_fail(t->ctx, TEFF_E_USER(7), "%s says no", t->key);
}

static void one_way_tells_no_error(conform *c)
{
    tell(c, "a", fails_as_7);
    UNTIL(c, world.n == 1);
    tell(c, "a", runs_once);
    UNTIL(c, world.n == 2);
}

/* What the caller's side remembers of where the grain is, is wrong after that. */
static void one_way_after_deactivation(conform *c)
{
    tell(c, "a", quits);
    UNTIL(c, world.deactivated == 1);
    tell(c, "a", runs_once);
    UNTIL(c, world.n == 1);
    assert_int_equal(world.activated, 2);
}

static void one_way_after_its_silo_has_left(conform *c)
{
    char key[16];
    unsigned home = conform_key_away(c, key);
    tell(c, key, runs_once);
    UNTIL(c, world.n == 1);
    conform_stop(c, home);
    tell(c, key, runs_once);
    UNTIL(c, world.n == 2);
    assert_int_not_equal(RUN(c, plain, key, where), home);
}

/* ---- errors ---- */

static teff_err asks_another(turn *t)
{
    actors_result *out;
    teff_err err = actors_plain_run(t->ctx, "far", STEP(fails_as_7), &out);
    return teff_fail(t->ctx, err, "%s: %s", t->key, teff_error(t->ctx));
}

static void code_and_text_pass_through(conform *c)
{
    actors_result *out;
    conform_fails(c, TEFF_E_USER(7), actors_plain_run(c->ctx, "far", STEP(fails_as_7), &out));
    assert_string_equal(teff_error(c->ctx), "far says no");
    conform_fails(c, TEFF_E_USER(7), actors_plain_run(c->ctx, "near", STEP(asks_another), &out));
    assert_string_equal(teff_error(c->ctx), "near: far says no");
}

/* The first failed one in the order of the array, after all have ended. */
static void await_all_has_the_first_error(conform *c)
{
    teff_call calls[] = {BEGIN(c, plain, "a", runs_once), BEGIN(c, plain, "b", fails_as_7),
                         BEGIN(c, plain, "c", runs_once), BEGIN(c, plain, "d", asks_another)};
    conform_fails(c, TEFF_E_USER(7), teff_await_all(c->ctx, calls, 4));
    assert_non_null(strstr(teff_error(c->ctx), "b says no"));
    for (int i = 0; i < 4; i++)
        assert_true(teff_call_ended(c->ctx, calls[i]));
    assert_int_equal(world.n, 4);
}

int main(void)
{
    enum { THREE = SIMULATED | ON_THREADS | THREE_SILOS };
    static const conform_row rows[] = {
        {"CancellationTokenTests.PreCancelledTokenPassing", cancelled_before_the_call, EVERYWHERE},
        {"CancellationTokenTests.cancelled while queued", cancelled_while_queued, EVERYWHERE},
        {"CancellationTokenTests.GrainTaskCancellation", cancelled_while_it_runs, EVERYWHERE},
        {"CancellationTokenTests.CancellationTokenPassing_MultipleConcurrentCalls",
         cancelling_one_call_leaves_others, EVERYWHERE},
        {"OneWayCallTests.OneWayMethodsReturnSynchronously", one_way_returns_at_once, EVERYWHERE},
        {"OneWayCallTests.no error is returned", one_way_tells_no_error, EVERYWHERE},
        {"OneWayDeactivationTests.OneWay_Deactivation", one_way_after_deactivation, EVERYWHERE},
        {"OneWayDeactivationTests.its silo has left", one_way_after_its_silo_has_left, THREE},
        {"ExceptionPropagationTests.ExceptionPropagationMessageBodyDoesNotChange",
         code_and_text_pass_through, EVERYWHERE},
        {"ExceptionPropagationTests.aggregates", await_all_has_the_first_error, EVERYWHERE},
    };
    return conform_run(rows, sizeof rows / sizeof rows[0]);
}
