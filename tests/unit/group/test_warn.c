/* test_warn.c - which items and queues are reported, how often, and in which words. */
#include "test.h"
#include <string.h>
#include "group/exec.h"
#include "group/group.h"

enum { LIMIT = 3, LATE_MS = 10 };

static uint64_t now_ns;
static unsigned lines;
static char last[1100];

static uint64_t on_clock(void *arg)
{
    return now_ns;
}

static void on_line(void *arg, teff_log_level level, const char *line)
{
    assert_int_equal(level, TEFF_LOG_WARN);
    strncpy(last, line, sizeof last - 1);
    lines++;
}

static void on_ready(teffi_exec *exec, teffi_group *group)
{
}

static void on_item(teffi_group *group, teffi_item *item)
{
}

static void describe(teffi_group *group, char *text, size_t size)
{
    strncpy(text, "words.Word", size);
}

static const teffi_platform platform = {.mono_ns = on_clock,
                                        .log = {.write = on_line, .level = TEFF_LOG_WARN}};
static const teffi_exec_ops exec_ops = {.ready = on_ready};
static const teffi_group_ops ops = {.handle = on_item, .describe = describe};
static const teffi_group_ops part_ops = {.handle = on_item};
static teffi_exec exec = {.ops = &exec_ops, .platform = &platform};
static teffi_group group;

static int setup(void **state)
{
    const teff_sched_options opt = {.queue_warn = LIMIT, .delay_warn_ms = LATE_MS};
    memset(&exec.warn, 0xff, sizeof exec.warn);
    teffi_warn_init(&exec.warn, &opt);
    teffi_group_init(&group, &exec, &ops);
    teffi_coarse_ms_set(&exec, 5);
    now_ns += 1000000000;
    lines = 0;
    return 0;
}

/* The first of n items is not in the queue any more when the rest is counted. */
static void queue(unsigned n)
{
    static teffi_item item[100];
    for (unsigned i = 0; i < n; i++)
        assert_true(teffi_group_push(&group, &item[i]));
    assert_false(teffi_group_run(&group, 100, 0));
}

static void test_a_queue_over_its_limit_is_reported(void **state)
{
    queue(1 + LIMIT);
    assert_int_equal(lines, 0);
    queue(1 + LIMIT + 1);
    assert_int_equal(lines, 1);
    assert_string_equal(last, "scheduler: 4 work items wait at words.Word (limit 3)");
}

static void test_without_a_limit_no_queue_is_reported(void **state)
{
    exec.warn.queue_warn = 0;
    queue(100);
    teffi_warn_init(&exec.warn, &(teff_sched_options){0});
    queue(100);
    assert_int_equal(lines, 0);
}

/* in: the coarse clock when an item is pushed, and when it is handled. */
static void wait_from_to(uint32_t from_ms, uint32_t to_ms)
{
    static teffi_item item;
    teffi_coarse_ms_set(&exec, from_ms);
    assert_true(teffi_group_push(&group, &item));
    teffi_coarse_ms_set(&exec, to_ms);
    assert_false(teffi_group_run(&group, 100, 0));
}

static void wait_ms(uint32_t ms)
{
    wait_from_to(5, 5 + ms);
}

static void test_an_item_that_waits_too_long_is_reported(void **state)
{
    wait_ms(LATE_MS);
    assert_int_equal(lines, 0);
    wait_ms(LATE_MS + 2);
    assert_int_equal(lines, 1);
    assert_string_equal(
        last, "scheduler: a work item of words.Word waited 12 ms in its queue (limit 10)");
}

enum { DAY_MS = 86400000 };

/* 30 days after the start, and once more as the clock of 32 bits begins anew. */
static void test_a_clock_that_is_not_known_reports_nothing(void **state)
{
    wait_from_to(1, 0);
    wait_from_to(30u * DAY_MS, 0);
    wait_from_to(0, 30u * DAY_MS);
    wait_from_to(30u * DAY_MS, 30u * DAY_MS - 5); /* the clock is late */
    wait_from_to(UINT32_MAX - 5, 3);
    assert_int_equal(lines, 0);
    wait_from_to(UINT32_MAX - 5, LATE_MS);
    assert_int_equal(lines, 1);
}

static void test_one_line_a_second_with_the_number_of_others(void **state)
{
    for (unsigned i = 0; i < 4; i++)
        wait_ms(LATE_MS + 2);
    assert_int_equal(lines, 1);
    now_ns += 999999999;
    wait_ms(LATE_MS + 2);
    assert_int_equal(lines, 1);
    now_ns += 1;
    wait_ms(LATE_MS + 2);
    assert_int_equal(lines, 2);
    assert_non_null(strstr(last, "(limit 10); 4 more like it before"));
}

static void test_descriptions(void **state)
{
    char text[TEFFI_DESCRIBE_MAX];
    teffi_group part;
    teffi_group_init(&part, &exec, &part_ops);
    teffi_group_describe(&group, text);
    assert_string_equal(text, "words.Word");
    teffi_running_group_describe(teffi_running_group_pack(&group), text);
    assert_string_equal(text, "words.Word");
    teffi_group_describe(&part, text);
    assert_string_equal(text, "a forked part");
    text[0] = 0;
    teffi_running_group_describe(teffi_running_group_pack(&part), text);
    assert_string_equal(text, "a forked part");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup(test_a_queue_over_its_limit_is_reported, setup),
        cmocka_unit_test_setup(test_without_a_limit_no_queue_is_reported, setup),
        cmocka_unit_test_setup(test_an_item_that_waits_too_long_is_reported, setup),
        cmocka_unit_test_setup(test_a_clock_that_is_not_known_reports_nothing, setup),
        cmocka_unit_test_setup(test_one_line_a_second_with_the_number_of_others, setup),
        cmocka_unit_test_setup(test_descriptions, setup),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
