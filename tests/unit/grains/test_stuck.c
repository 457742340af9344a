/* test_stuck.c - turns that do not end while requests wait: what is logged and when; on_activate
 * and on_deactivate are ended. The clock is the test's. */
#include "clock.h"

#include "hosting/stuck.h"

enum { WARN_MS = 10000, LONG_MS = 200000 };

static int open_warned(void **state)
{
    bare_exec.warn.delay_warn_ms = WARN_MS;
    return open_clock(state);
}

static int close_warned(void **state)
{
    int failed = close_clock(state);
    bare_exec.warn.delay_warn_ms = 0;
    return failed;
}

static teff_err nothing(timers_clock *self, const timers_beat *in)
{
    return TEFF_OK;
}

static bool line_has(const char *text)
{
    return strstr(machine.line, text) != NULL;
}

/* ---- the log ---- */

/* Logged after ten seconds, and when it is twice as old, and again; the age is exact to the time
 * between two visits. */
static void test_a_turn_that_does_not_end_is_logged(void **state)
{
    activate();
    request("Ask", sleeps, 75000);
    request("Get", nothing, 0);
    request("Ask", nothing, 0);
    pass_ms(WARN_MS - 100);
    assert_int_equal(machine.lines, 0);
    pass_ms(200);
    assert_int_equal(machine.lines, 1);
    assert_true(line_has("timers.Clock at a: timers.Clock.Ask has not ended for 100"));
    assert_true(line_has("2 requests wait for the grain"));
    pass_ms(9500);
    assert_int_equal(machine.lines, 1);
    pass_ms(1000);
    assert_int_equal(machine.lines, 2);
    pass_ms(75000);
    assert_int_equal(machine.lines, 3); /* after 10, 20, 40 s */
    assert_int_equal(world.asked, 3);
    request("Ask", sleeps, WARN_MS + 1000); /* the next turn, anew */
    request("Ask", nothing, 0);
    pass_ms(WARN_MS + 1000);
    assert_int_equal(machine.lines, 4);
}

/* A turn that interleaves begins again and again; the one that blocks the requests is logged. */
static void test_the_oldest_turn_counts(void **state)
{
    activate();
    request("Ask", sleeps, 30000);
    request("Ask", nothing, 0);
    for (int i = 0; i < 12; i++) {
        request("Peek", sleeps, 500);
        pass_ms(1000);
    }
    assert_int_equal(machine.lines, 1);
    assert_true(line_has("timers.Clock.Ask has not ended"));
    pass_ms(30000);
}

static const struct {
    const char *what;
    uint32_t sleep_ms;
    bool waits; /* another request */
} quiet[] = {
    {"no request waits", LONG_MS, false},
    {"the turn ends in time", WARN_MS - 100, true},
};

static void test_what_is_not_logged(void **state)
{
    for (size_t i = 0; i < sizeof quiet / sizeof quiet[0]; i++) {
        assert_int_equal(open_warned(state), 0);
        activate();
        request("Ask", sleeps, quiet[i].sleep_ms);
        if (quiet[i].waits)
            request("Ask", nothing, 0);
        pass_ms(LONG_MS);
        if (machine.lines)
            fail_msg("%s: %s", quiet[i].what, machine.line);
        assert_int_equal(close_warned(state), 0);
    }
}

/* Nobody waits, but the collector wants to end it. */
static void test_a_turn_that_keeps_an_idle_grain_is_logged(void **state)
{
    activate();
    request("Ask", sleeps, 20000);
    pass_ms(WARN_MS - 1);
    teffi_activation_ask_to_end(act, TEFF_REASON_IDLE);
    run_group();
    assert_int_equal(machine.lines, 0);
    pass_ms(2000);
    teffi_activation_ask_to_end(act, TEFF_REASON_IDLE);
    run_group();
    assert_int_equal(machine.lines, 1);
    assert_true(line_has("timers.Clock.Ask has not ended for 11"));
    assert_true(line_has("0 requests wait"));
    pass_ms(20000);
}

/* ---- hooks ---- */

static teff_err sleeps_for_ever(timers_clock *self, const timers_beat *in)
{
    while (world.activated)
        teff_sleep(self->ctx, 1000);
    return TEFF_OK;
}

static teff_err sleeps_long(timers_clock *self, const timers_beat *in)
{
    teff_sleep(self->ctx, TEFF_HOOK_MAX_MS - 1000);
    return TEFF_OK;
}

/* Ask of the grain, as bare_message()s come from a peer; on the activation that is made for it. */
static void begin_with_request(void)
{
    teffi_ident ident = clock_ident();
    assert_int_equal(teffi_shard_create_activation(&grains, &ident, true, NULL, &act), TEFF_OK);
    request("Ask", nothing, 0);
}

static void test_on_activate_that_does_not_return_is_ended(void **state)
{
    world.on_activate = sleeps_for_ever;
    begin_with_request();
    pass_ms(TEFF_HOOK_MAX_MS - 1000);
    assert_true(line_has("timers.Clock at a: on_activate has not ended for 40"));
    assert_int_equal(sent.n, 0);
    assert_int_equal(grains.shards->activations, 1);
    pass_ms(3000);
    assert_int_equal(sent.n, 1);
    assert_int_equal(sent.err, TEFF_E_UNAVAILABLE);
    assert_string_equal(sent.text,
                        "timers.Clock at a: on_activate has not returned for 60 s and was ended");
    assert_int_equal(grains.shards->activations, 0);
    assert_int_equal(world.deactivated, 0);
    assert_int_equal(world.asked, 0);
    world.on_activate = NULL; /* the next call makes another activation */
    begin_with_request();
    assert_int_equal(world.activated, 2);
    assert_int_equal(world.asked, 1);
}

static void test_on_activate_may_take_its_time(void **state)
{
    world.on_activate = sleeps_long;
    begin_with_request();
    pass_ms(TEFF_HOOK_MAX_MS);
    assert_int_equal(world.asked, 1);
    assert_int_equal(act->phase, TEFFI_VALID);
    assert_int_equal(act->busy, 0);
}

/* Here as if the state were loaded, which has limits of its own. */
static void test_only_hooks_are_ended(void **state)
{
    world.on_activate = sleeps_long;
    begin_with_request();
    act->busy &= (uint8_t)~TEFFI_BUSY_HOOK;
    pass_ms(1000);
    LIST_FIRST(&act->turns)->ctx.suspended_ms -= TEFF_HOOK_MAX_MS;
    pass_ms(1000);
    assert_true(line_has("timers.Clock at a: its activation has not ended for 61"));
    pass_ms(TEFF_HOOK_MAX_MS);
    assert_int_equal(world.asked, 1);
}

/* A request that waits for the end is routed again: here to no silo, as the view's silos host
 * another type. */
static void expect_routed_again(void)
{
    assert_int_equal(grains.shards->activations, 0);
    assert_int_equal(sent.err, TEFF_E_NOT_FOUND);
    assert_string_equal(sent.text, "no silo of the cluster hosts this grain type");
}

static void test_on_deactivate_that_does_not_return_is_ended(void **state)
{
    activate();
    world.on_deactivate = sleeps_for_ever;
    run(quits, 0);
    assert_int_equal(world.deactivated, 1);
    request("Ask", nothing, 0);
    pass_ms(TEFF_HOOK_MAX_MS - 1000);
    assert_true(line_has("timers.Clock at a: on_deactivate has not ended for 40"));
    assert_int_equal(grains.shards->activations, 1);
    pass_ms(3000);
    assert_true(line_has("on_deactivate of a timers.Clock failed: TEFF_E_UNAVAILABLE"));
    expect_routed_again();
}

/* If no request waits, nobody looks at it; the first one counts from the hook's begin. */
static void test_a_hook_is_looked_at_when_a_request_waits(void **state)
{
    activate();
    world.on_deactivate = sleeps_for_ever;
    run(quits, 0);
    pass_ms(2 * TEFF_HOOK_MAX_MS);
    assert_int_equal(act->phase, TEFFI_DEACTIVATING);
    assert_int_equal(machine.lines, 0);
    request("Ask", nothing, 0);
    pass_ms(2000);
    expect_routed_again();
}

int main(void)
{
#define WARNED(f) cmocka_unit_test_setup_teardown(f, open_warned, close_warned)
    const struct CMUnitTest tests[] = {
        WARNED(test_a_turn_that_does_not_end_is_logged),
        WARNED(test_the_oldest_turn_counts),
        cmocka_unit_test(test_what_is_not_logged),
        WARNED(test_a_turn_that_keeps_an_idle_grain_is_logged),
        WARNED(test_on_activate_that_does_not_return_is_ended),
        WARNED(test_on_activate_may_take_its_time),
        WARNED(test_only_hooks_are_ended),
        WARNED(test_on_deactivate_that_does_not_return_is_ended),
        WARNED(test_a_hook_is_looked_at_when_a_request_waits),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
