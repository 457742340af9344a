/* test_deferral.c - when the deferred work of a processor runs: all of it at once; when the coarse
 * clock has advanced since the oldest was added; when 50 us have passed since it was first seen. */
#include "sched/policy/deferral.h"

#include <string.h>
/* cmocka comes after these. */
#include "test.h"

enum { US = 1000, NOW = 1000000 };

static teffi_deferral d;
static teffi_deferred work[2];
static unsigned runs;
static bool again; /* work that runs is deferred again */

static void count_run(teffi_deferred *one)
{
    runs++;
    if (again)
        teffi_deferral_add(&d, one, 9);
}

static int setup(void **state)
{
    memset(&d, 0, sizeof d);
    work[0].run = work[1].run = count_run;
    runs = 0;
    again = false;
    return 0;
}

static void all_of_it_runs_once(void **state)
{
    assert_false(teffi_deferral_has_work(&d));
    assert_false(teffi_deferral_run(&d));
    teffi_deferral_add(&d, &work[0], 1);
    teffi_deferral_add(&d, &work[1], 2);
    assert_true(teffi_deferral_has_work(&d));
    assert_true(teffi_deferral_run(&d));
    assert_int_equal(runs, 2);
    assert_false(teffi_deferral_run(&d));
    assert_int_equal(runs, 2);
}

static void work_that_is_deferred_again_waits(void **state)
{
    again = true;
    teffi_deferral_add(&d, &work[0], 1);
    assert_true(teffi_deferral_run(&d));
    assert_int_equal(runs, 1);
    assert_true(teffi_deferral_has_work(&d));
}

static void it_runs_when_the_coarse_clock_has_advanced(void **state)
{
    teffi_deferral_add(&d, &work[0], 5);
    teffi_deferral_add(&d, &work[1], 6); /* the oldest counts */
    teffi_deferral_run_if_ticked(&d, 5);
    assert_int_equal(runs, 0);
    teffi_deferral_run_if_ticked(&d, 6);
    assert_int_equal(runs, 2);
}

static void it_runs_when_it_is_old(void **state)
{
    teffi_deferral_add(&d, &work[0], 1);
    teffi_deferral_run_if_old(&d, NOW); /* seen first */
    teffi_deferral_run_if_old(&d, NOW + 50 * US);
    assert_int_equal(runs, 0);
    teffi_deferral_run_if_old(&d, NOW + 50 * US + 1);
    assert_int_equal(runs, 1);
    teffi_deferral_add(&d, &work[0], 1); /* its age begins anew */
    teffi_deferral_run_if_old(&d, NOW + 60 * US);
    teffi_deferral_run_if_old(&d, NOW + 110 * US);
    assert_int_equal(runs, 1);
    teffi_deferral_run_if_old(&d, NOW + 111 * US);
    assert_int_equal(runs, 2);
}

static void work_that_ran_meanwhile_has_no_age(void **state)
{
    teffi_deferral_add(&d, &work[0], 1);
    teffi_deferral_run_if_old(&d, NOW);
    (void)teffi_deferral_run(&d);
    teffi_deferral_run_if_old(&d, NOW + 10 * US); /* none */
    teffi_deferral_add(&d, &work[0], 1);
    teffi_deferral_run_if_old(&d, NOW + 60 * US);
    assert_int_equal(runs, 1);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup(all_of_it_runs_once, setup),
        cmocka_unit_test_setup(work_that_is_deferred_again_waits, setup),
        cmocka_unit_test_setup(it_runs_when_the_coarse_clock_has_advanced, setup),
        cmocka_unit_test_setup(it_runs_when_it_is_old, setup),
        cmocka_unit_test_setup(work_that_ran_meanwhile_has_no_age, setup),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
