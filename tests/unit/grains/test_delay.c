/* test_delay.c - how long an activation stays that has delayed its end, and what ends it all the
 * same. The clock is the test's. */
#include "clock.h"

enum { IDLE_MS = 1000, DELAY_MS = 3000, DAYS_MS = 12 * 24 * 60 * 60 * 1000 };

/* A delay ends with the millisecond that has begun when it is set; then comes the idle time. */
enum { STAYS_MS = DELAY_MS + 1 + IDLE_MS };

static teff_err delays(timers_clock *self, const timers_beat *in)
{
    teff_delay_deactivation(self->ctx, in->n);
    return TEFF_OK;
}

static teff_err delays_by_the_rule(timers_clock *self, const timers_beat *in)
{
    teff_delay_deactivation(self->ctx, DELAY_MS);
    return TEFF_OK;
}

/* Asks as the collector does. */
static bool ends_if_idle(void)
{
    if (teffi_activation_age_ms(act, (uint32_t)grains.coarse_ms) < teffi_idle_ms(act->type->info))
        return false;
    teffi_activation_ask_to_end(act, TEFF_REASON_IDLE);
    run_group();
    return world.deactivated;
}

/* The activation ends when this time has passed since the test's begin, and not before. */
static void expect_end(const char *what, uint64_t at_ms)
{
    pass_ms(at_ms - 1 - (now_ms() - begin_ms));
    if (ends_if_idle())
        fail_msg("%s: ended before %llu ms", what, (unsigned long long)at_ms);
    pass_ms(1);
    if (!ends_if_idle())
        fail_msg("%s: has not ended at %llu ms", what, (unsigned long long)at_ms);
    assert_int_equal(world.why, TEFF_REASON_IDLE);
}

/* ---- how long it stays ---- */

static const struct {
    const char *what;
    int64_t delays[3]; /* 0: none */
    uint64_t used_ms;  /* a request that delays nothing; 0: none */
    uint64_t ends_ms;
} stays[] = {
    {"no delay", {0}, 0, IDLE_MS},
    {"a delay", {DELAY_MS}, 0, STAYS_MS},
    {"one that is shorter than the idle time", {100}, 0, 101 + IDLE_MS},
    {"a longer one after it", {100, DELAY_MS}, 0, STAYS_MS},
    {"a shorter one after it", {DELAY_MS, 500}, 0, 501 + IDLE_MS},
    {"a cancelled one", {DELAY_MS, -1}, 0, IDLE_MS},
    {"one that is cancelled and set again", {DELAY_MS, INT64_MIN, DELAY_MS}, 0, STAYS_MS},
    {"a request during it", {DELAY_MS}, 2500, STAYS_MS},
    {"a request after it", {DELAY_MS}, 3500, 3500 + IDLE_MS},
    {"12 days", {DAYS_MS}, 0, DAYS_MS + 1 + IDLE_MS},
    {"more than 12 days", {INT64_MAX}, 0, DAYS_MS + 1 + IDLE_MS},
};

static teff_err nothing(timers_clock *self, const timers_beat *in)
{
    return TEFF_OK;
}

static void test_how_long_it_stays(void **state)
{
    for (size_t i = 0; i < sizeof stays / sizeof stays[0]; i++) {
        assert_int_equal(open_active(state), 0);
        for (int n = 0; n < 3 && stays[i].delays[n]; n++)
            run(delays, stays[i].delays[n]);
        if (stays[i].used_ms) {
            pass_ms(stays[i].used_ms);
            run(nothing, 0);
        }
        expect_end(stays[i].what, stays[i].ends_ms);
        assert_int_equal(close_clock(state), 0);
    }
}

static void test_zero_cancels(void **state)
{
    run(delays, DELAY_MS);
    pass_ms(100);
    run(delays, 0);
    expect_end("cancelled after 100 ms", 100 + IDLE_MS);
}

/* ---- who may delay ---- */

static void delay_in_request(void)
{
    run(delays, DELAY_MS);
}

static void delay_in_reader(void)
{
    request("Get", delays, DELAY_MS);
}

static void delay_in_interleaved_turn(void)
{
    request("Peek", delays, DELAY_MS);
}

static void delay_in_tick(void)
{
    world.in_tick = delays_by_the_rule;
    start(starts, 0, 0);
    pass_ms(0);
    assert_int_equal(world.begun, 1);
}

static void delay_in_on_activate(void)
{
    run(quits, 0);
    world.deactivated = 0;
    world.on_activate = delays_by_the_rule;
    activate();
}

static const struct {
    const char *what;
    void (*delay)(void);
} turns[] = {
    {"an exclusive turn", delay_in_request},
    {"a reader", delay_in_reader},
    {"a turn that interleaves", delay_in_interleaved_turn},
    {"a timer's tick", delay_in_tick},
    {"on_activate", delay_in_on_activate},
};

static void test_each_turn_may_delay(void **state)
{
    for (size_t i = 0; i < sizeof turns / sizeof turns[0]; i++) {
        assert_int_equal(open_active(state), 0);
        turns[i].delay();
        expect_end(turns[i].what, STAYS_MS);
        assert_int_equal(close_clock(state), 0);
    }
}

/* ---- what ends it all the same ---- */

static teff_err delays_and_quits(timers_clock *self, const timers_beat *in)
{
    teff_deactivate(self->ctx);
    return delays(self, in);
}

static void test_other_reasons_end_it(void **state)
{
    static const teff_reason reasons[] = {TEFF_REASON_STOPPING, TEFF_REASON_DUPLICATE};
    for (size_t i = 0; i < sizeof reasons / sizeof reasons[0]; i++) {
        assert_int_equal(open_active(state), 0);
        run(delays, DELAY_MS);
        teffi_activation_ask_to_end(act, reasons[i]);
        run_group();
        assert_int_equal(world.deactivated, 1);
        assert_int_equal(world.why, reasons[i]);
        assert_int_equal(close_clock(state), 0);
    }
}

static void test_teff_deactivate_ends_it(void **state)
{
    run(delays_and_quits, DELAY_MS);
    assert_int_equal(world.deactivated, 1);
    assert_int_equal(world.why, TEFF_REASON_REQUESTED);
}

/* The next activation uses the same memory. */
static void test_the_next_activation_has_no_delay(void **state)
{
    const teffi_activation *first = act;
    run(delays_and_quits, DELAY_MS);
    world.deactivated = 0;
    activate();
    assert_ptr_equal(act, first);
    expect_end("the next activation", IDLE_MS);
}

/* ---- ages ---- */

/* The clock's low bits begin again; a time that seems to be in the far future is long past. */
static void test_ages(void **state)
{
    static const struct {
        uint32_t used, now;
        int64_t age;
    } rows[] = {{5, 5, 0},
                {5, 7, 2},
                {7, 5, -2},
                {UINT32_MAX, 1, 2},
                {1, UINT32_MAX, -2},
                {TEFFI_DELAY_MAX_MS, 0, -TEFFI_DELAY_MAX_MS},
                {TEFFI_DELAY_MAX_MS + 1u, 0, UINT32_MAX - TEFFI_DELAY_MAX_MS}};
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        act->used_ms = rows[i].used;
        assert_int_equal(teffi_activation_age_ms(act, rows[i].now), rows[i].age);
    }
    teff_type_info info = {.idle_ms = UINT32_MAX}; /* longer than any age */
    assert_true(teffi_idle_ms(&info) < UINT32_MAX - TEFFI_DELAY_MAX_MS);
}

int main(void)
{
#define CLOCK(f) cmocka_unit_test_setup_teardown(f, open_active, close_clock)
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_how_long_it_stays),
        CLOCK(test_zero_cancels),
        cmocka_unit_test(test_each_turn_may_delay),
        cmocka_unit_test(test_other_reasons_end_it),
        CLOCK(test_teff_deactivate_ends_it),
        CLOCK(test_the_next_activation_has_no_delay),
        CLOCK(test_ages),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
