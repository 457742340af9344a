/* test_budget.c - bytes counted by several threads: nothing is lost, the limit holds. */
#include "base/budget.h"

#include <pthread.h>
/* cmocka comes after these. */
#include "test.h"
#include "used.h"

static teffi_budget budget;

static void over_when_more_is_in_use(void **state)
{
    teffi_budget_init(&budget, 100000);
    assert_false(teffi_budget_is_exceeded(&budget));
    teffi_budget_add(&budget, 100000);
    assert_false(teffi_budget_is_exceeded(&budget));
    teffi_budget_add(&budget, TEFFI_BUDGET_STEP);
    assert_true(teffi_budget_is_exceeded(&budget));
    teffi_budget_add(&budget, -100000);
    assert_false(teffi_budget_is_exceeded(&budget));
    assert_int_equal(bytes_used(&budget), TEFFI_BUDGET_STEP);
}

static void small_steps_come_to_count(void **state)
{
    teffi_budget_init(&budget, 100000);
    for (int i = 0; i < 100000 + TEFFI_BUDGET_STEP; i++)
        teffi_budget_add(&budget, 1);
    assert_true(teffi_budget_is_exceeded(&budget));
}

/* The total is shared by all threads. */
static void small_changes_stay_with_the_thread(void **state)
{
    teffi_budget_init(&budget, 100000);
    teffi_budget_add(&budget, TEFFI_BUDGET_STEP - 1);
    teffi_budget_add(&budget, 2 - TEFFI_BUDGET_STEP);
    assert_int_equal(budget.total, 0);
    assert_int_equal(bytes_used(&budget), 1);
    assert_int_equal(budget.cells[teffi_thread_index()].bytes, 1);
}

static void nothing_is_no_budget(void **state)
{
    teffi_budget_add(NULL, 5);
    assert_false(teffi_budget_is_exceeded(NULL));
}

enum { ROUNDS = 100000 };

static void *add_and_take(void *arg)
{
    for (int i = 0; i < ROUNDS; i++) {
        teffi_budget_add(&budget, 700);
        teffi_budget_add(&budget, -699);
    }
    return arg;
}

/* What one thread adds another may take. */
static void threads_lose_nothing(void **state)
{
    pthread_t threads[4];
    teffi_budget_init(&budget, 1);
    for (int i = 0; i < 4; i++)
        assert_int_equal(pthread_create(&threads[i], NULL, add_and_take, NULL), 0);
    for (int i = 0; i < 4; i++)
        pthread_join(threads[i], NULL);
    assert_int_equal(bytes_used(&budget), 4 * ROUNDS);
    teffi_budget_add(&budget, -4 * ROUNDS);
    assert_int_equal(bytes_used(&budget), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(over_when_more_is_in_use),
        cmocka_unit_test(small_steps_come_to_count),
        cmocka_unit_test(small_changes_stay_with_the_thread),
        cmocka_unit_test(nothing_is_no_budget),
        cmocka_unit_test(threads_lose_nothing),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
