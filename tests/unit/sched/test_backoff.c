/* test_backoff.c - when a thief sleeps before it steals again: the measurement of 50 us, the rate
 * of a victim alone, sleeps that double. */
#include "sched/policy/backoff.h"

#include <string.h>
/* cmocka comes after these. */
#include "test.h"

enum { US = 1000, MS = 1000000, START = 7 * MS };

static uint64_t now_ns, handled;
static teffi_backoff b;

static int setup(void **state)
{
    memset(&b, 0, sizeof b);
    now_ns = START;
    handled = 1000000;
    return 0;
}

/* out: for how long to sleep, after so many items in so long. */
static uint64_t judge_after(uint64_t items, uint64_t ns)
{
    teffi_backoff_begin_measurement(&b, NULL, handled, now_ns);
    handled += items;
    now_ns += ns;
    return teffi_backoff_decide_sleep_ns(&b, handled, now_ns);
}

static void sleep_while(uint64_t items, uint64_t ns)
{
    now_ns += ns;
    teffi_backoff_record_alone_rate(&b, items, now_ns - ns, now_ns);
}

static void a_measurement_takes_50_us(void **state)
{
    assert_int_equal(judge_after(1000, 50 * US - 1), 0);
    assert_int_equal(b.since_ns, START);
    assert_int_equal(teffi_backoff_decide_sleep_ns(&b, handled, START + 50 * US), 100 * US);
    assert_int_equal(b.since_ns, 0);
}

static void items_over_500_ns_are_worth_a_steal(void **state)
{
    assert_int_equal(judge_after(100, 50 * US + 1), 0);
    assert_int_equal(judge_after(100, 50 * US), 100 * US);
    assert_int_equal(judge_after(100, 50 * US + 1), 0);
    assert_int_equal(b.sleep_ns, 0);
}

static void the_rate_of_the_victim_alone(void **state)
{
    sleep_while(1000, 50 * US - 1);
    assert_int_equal(b.alone_at_ns, 0);
    sleep_while(800, 100 * US);
    assert_int_equal(b.alone_at_ns, now_ns);
    assert_int_equal(b.alone_rate, (800 << 20) / (100 * US | 1));
}

static void sleeps_double_up_to_3200_us_while_the_thief_does_not_help(void **state)
{
    static const uint64_t sleeps_us[] = {100, 200, 400, 800, 1600, 3200, 3200};
    for (unsigned i = 0; i < sizeof sleeps_us / sizeof sleeps_us[0]; i++) {
        assert_int_equal(judge_after(895, 100 * US), sleeps_us[i] * US);
        sleep_while(8 * sleeps_us[i], sleeps_us[i] * US);
    }
}

/* 800 items in 100 us alone: an eighth more are 900. */
static void an_eighth_more_items_pays(void **state)
{
    assert_int_equal(judge_after(895, 100 * US), 100 * US);
    sleep_while(800, 100 * US);
    assert_int_equal(judge_after(895, 100 * US), 200 * US);
    assert_int_equal(judge_after(910, 100 * US), 0);
}

static void a_rate_is_used_for_10_ms(void **state)
{
    assert_int_equal(judge_after(895, 100 * US), 100 * US);
    sleep_while(800, 100 * US);
    now_ns += 10 * MS - 100 * US - 1;
    assert_int_equal(judge_after(910, 100 * US), 0);        /* known: it paid */
    assert_int_equal(judge_after(910, 100 * US), 100 * US); /* no longer */
    sleep_while(8000, MS);
    now_ns += 10 * MS;
    assert_int_equal(judge_after(895, 100 * US), 100 * US); /* not doubled */
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup(a_measurement_takes_50_us, setup),
        cmocka_unit_test_setup(items_over_500_ns_are_worth_a_steal, setup),
        cmocka_unit_test_setup(the_rate_of_the_victim_alone, setup),
        cmocka_unit_test_setup(sleeps_double_up_to_3200_us_while_the_thief_does_not_help, setup),
        cmocka_unit_test_setup(an_eighth_more_items_pays, setup),
        cmocka_unit_test_setup(a_rate_is_used_for_10_ms, setup),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
