/* test_task.c - tasks yield, wait, end, and are used again; each kind has its own. */
#include "call/task.h"

#include <string.h>
#include "call/ctx.h"
#include "lone_node.h"

enum { TASKS = 50 };

static teffi_node *node;
static teffi_home *home;
static _Atomic unsigned runs, yields;
static _Atomic bool goes_on;
static teff_ctx *_Atomic newest;
static char named[TASKS];

static int setup(void **state)
{
    node = lone_node_open();
    home = &node->home;
    runs = yields = 0;
    goes_on = false;
    return 0;
}

static int teardown(void **state)
{
    lone_node_close(node);
    return 0;
}

static void run_once(teff_ctx *ctx, void *arg)
{
    newest = ctx;
    ctx->group->ops->describe(ctx->group, named, sizeof named);
    (void)teff_alloc(ctx, 100);
    runs++;
}

static void yield_until(teff_ctx *ctx, void *arg)
{
    while (!goes_on) {
        yields++;
        (void)teff_yield();
    }
    runs++;
}

static void start(void (*fn)(teff_ctx *ctx, void *arg), const char *label, bool system)
{
    assert_int_equal(teffi_task_start(home, fn, NULL, label, system), TEFF_OK);
}

static void a_task_yields_and_goes_on(void **state)
{
    start(yield_until, "that yields", false);
    until(yields > 3);
    assert_int_equal(runs, 0);
    assert_true(teffi_tasks_count_running(home) >= 1);
    goes_on = true;
    until(runs == 1);
    until(teffi_tasks_count_running(home) == 0);
}

/* The memory of a task that ended is the next one's, of its kind. */
static void tasks_are_used_again(void **state)
{
    for (int system = 0; system < 2; system++) {
        const teff_ctx *last = NULL;
        unsigned again = 0;
        for (unsigned i = 0; i < TASKS; i++) {
            unsigned before = runs;
            until(teffi_tasks_count_running(home) == 0);
            start(run_once, system ? "system" : "user", system);
            until(runs == before + 1);
            again += newest == last;
            last = newest;
            assert_int_equal(last->group->system, system);
            assert_string_equal(named, system ? "task system" : "task user");
        }
        assert_int_equal(again, TASKS - 1);
    }
    start(run_once, NULL, false);
    until(runs == 2 * TASKS + 1);
    assert_string_equal(named, "task without a name");
}

int main(void)
{
#define ROW(f) cmocka_unit_test_setup_teardown(f, setup, teardown)
    const struct CMUnitTest tests[] = {
        ROW(a_task_yields_and_goes_on),
        ROW(tasks_are_used_again),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
