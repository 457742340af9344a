/* test_exec.c - what all executors share: functions that one may lack, calls that turns may not
 * make. */
#include "../death.h"
#include <teff/sched.h>
#include "group/exec.h"
#include "group/group.h"

static teffi_group *current;

static void describe(teffi_group *group, char *text, size_t size)
{
    snprintf(text, size, "words.Word.Add");
}

static teffi_group *get_current(teffi_exec *exec)
{
    return current;
}

static teff_err scale(teffi_exec *exec, uint32_t n)
{
    return n == 3 ? TEFF_OK : TEFF_E_OVERLOADED;
}

static size_t metrics(teffi_exec *exec, teff_sched_metrics *all, teff_sched_worker *workers,
                      size_t max)
{
    return max;
}

static const teffi_group_ops group_ops = {.describe = describe};
static const teffi_exec_ops all_ops = {.current = get_current, .scale = scale, .metrics = metrics};
static const teffi_exec_ops no_ops;
static teffi_exec whole = {.ops = &all_ops}, bare = {.ops = &no_ops};

static void stop_all(void)
{
    teffi_exec_abort_if_in_turn(&whole, "teff_silo_stop");
}

static void test_a_turn_may_not_wait_for_the_end_of_all_turns(void **state)
{
    teffi_group group;
    teffi_group_init(&group, &whole, &group_ops);
    current = NULL;
    stop_all(); /* returns */
    teffi_exec_abort_if_in_turn(&bare, "teff_silo_stop");
    current = &group;
    assert_true(dies_with(stop_all, "words.Word.Add: teff_silo_stop waits for the end of all"));
}

static void test_an_executor_may_lack_scale_and_metrics(void **state)
{
    teff_sched_metrics all;
    memset(&all, 1, sizeof all);
    assert_int_equal(teffi_exec_scale(&whole, 3), TEFF_OK);
    assert_int_equal(teffi_exec_scale(&whole, 4), TEFF_E_OVERLOADED);
    assert_int_equal(teffi_exec_scale(&bare, 3), TEFF_E_INVALID);
    assert_int_equal(teffi_exec_metrics(&whole, &all, NULL, 5), 5);
    assert_int_equal(teffi_exec_metrics(&bare, NULL, NULL, 5), 0);
    assert_int_equal(teffi_exec_metrics(&bare, &all, NULL, 5), 0);
    assert_memory_equal(&all, &(teff_sched_metrics){0}, sizeof all);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_a_turn_may_not_wait_for_the_end_of_all_turns),
        cmocka_unit_test(test_an_executor_may_lack_scale_and_metrics),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
