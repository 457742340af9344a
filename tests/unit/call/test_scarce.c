/* test_scarce.c - contexts that have nobody to return an error to, when memory is out for a moment
 * and when it stays so: those of threads, which join and leave the cluster, and of tasks. */
#include "../faults.h"

#include "../death.h"
#include "call/ctx.h"
#include "call/task.h"
#include "lone_node.h"

enum { BYTES = 100000, LARGE = 3000000 }; /* no block of LARGE bytes is kept for reuse */

static teffi_node *node;

static int open_node(void **state)
{
    node = lone_node_open();
    return 0;
}

static int close_node(void **state)
{
    lone_node_close(node);
    return 0;
}

static bool is_zeroed(const uint8_t *bytes)
{
    for (size_t i = 0; i < BYTES; i++)
        if (bytes[i])
            return false;
    return true;
}

static void a_thread_tries_again(void **state)
{
    static char text[BYTES];
    memset(text, 'x', sizeof text - 1);
    teff_ctx *ctx = teffi_ctx_new(&node->home);
    atomic_store(&faults_left, 1);
    assert_true(is_zeroed(teff_alloc(ctx, BYTES)));
    atomic_store(&faults_left, 1);
    assert_string_equal(teff_strdup(ctx, text), text);
    assert_true(atomic_load(&faults_left) <= 0);
    teff_ctx_free(ctx);
}

static _Atomic bool task_went_on;

static void alloc_in_task(teff_ctx *ctx, void *arg)
{
    atomic_store(&faults_left, 1);
    task_went_on = is_zeroed(teff_alloc(ctx, BYTES));
}

static void a_task_tries_again(void **state)
{
    assert_int_equal(teffi_task_start(&node->home, alloc_in_task, NULL, "test", false), TEFF_OK);
    until(task_went_on && teffi_tasks_count_running(&node->home) == 0);
}

static void alloc_without_memory(void)
{
    teff_ctx ctx;
    teffi_ctx_init(&ctx, &node->home, NULL);
    atomic_store(&faults_last, true);
    (void)teff_alloc(&ctx, LARGE);
}

static void alloc_over_limit(void)
{
    teff_ctx ctx;
    teffi_ctx_init(&ctx, &node->home, NULL);
    teffi_arena_init(&ctx.arena, NULL, 0, BYTES);
    (void)teff_alloc(&ctx, LARGE);
}

static void without_memory_for_long_or_over_the_limit_the_process_aborts(void **state)
{
    assert_true(dies_with(alloc_without_memory,
                          "a thread's context: the system has no 3000000 bytes of memory"));
    assert_true(dies_with(alloc_over_limit, "3000000 bytes more for a turn that took 0: at most"));
}

int main(void)
{
#define CASE(f) cmocka_unit_test_setup_teardown(f, open_node, close_node)
    const struct CMUnitTest tests[] = {
        CASE(a_thread_tries_again),
        CASE(a_task_tries_again),
        CASE(without_memory_for_long_or_over_the_limit_the_process_aborts),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
