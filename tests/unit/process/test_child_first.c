/* test_child_first.c - a process that spawns goes on before its child, as in an ordinary call of a
 * function that queues; with teff_yield after it the child runs first, as a started goroutine
 * does. On one worker whose monitor stands, as does the clock: all stay in level 0. */
#include "../sched/held_monitor.h"
#include "../sched/jobs.h"
#include "process/process.h"

static teff_process_system *processes;
static bool yields;

static void say(char name)
{
    notes[atomic_load(&n_notes)] = name;
    atomic_fetch_add(&n_notes, 1);
}

static teff_err run_child(void *self, teff_process *me)
{
    say('c');
    return TEFF_OK;
}

static teff_err run_parent(void *self, teff_process *me)
{
    static const teff_process_ops child = {
        .name = "child", .flags = TEFF_PROCESS_FIBER, .run = run_child};
    say('p');
    teff_err err = teff_process_spawn(processes, &child, NULL, NULL, NULL, 0, NULL);
    if (yields)
        (void)teff_yield();
    say('q');
    return err;
}

static void order_is(teff_sched_policy policy, bool with_yield, const char *order)
{
    static const teff_process_ops parent = {
        .name = "parent", .flags = TEFF_PROCESS_FIBER, .run = run_parent};
    const teff_sched_options opt = {.policy = policy};
    const teff_process_options own = {.size = sizeof own};
    monitor_hold(&platform);
    teffi_exec *exec = exec_new(1, &opt);
    forget_notes();
    yields = with_yield;
    assert_int_equal(teffi_process_system_new_on(exec, &own, &processes), TEFF_OK);
    assert_int_equal(teff_process_spawn(processes, &parent, NULL, NULL, NULL, 0, NULL), TEFF_OK);
    WAIT_FOR(atomic_load(&n_notes) == 3);
    assert_string_equal(notes, order);
    (void)teff_process_system_stop(processes, 0, NULL);
    monitor_release();
    exec->ops->free(exec);
    teffi_process_system_free_memory(processes);
}

static void the_spawner_goes_on(void **state)
{
    for (int policy = TEFF_SCHED_SINGLE; policy <= TEFF_SCHED_PRIORITY; policy++)
        order_is((teff_sched_policy)policy, false, "pqc");
}

static void a_spawner_that_yields_comes_second(void **state)
{
    for (int policy = TEFF_SCHED_SINGLE; policy <= TEFF_SCHED_PRIORITY; policy++)
        order_is((teff_sched_policy)policy, true, "pcq");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_spawner_goes_on),
        cmocka_unit_test(a_spawner_that_yields_comes_second),
    };
    teffi_platform_init_real(&platform, TEFF_LOG_WARN);
    platform.mono_ns = work_clock;
    return cmocka_run_group_tests(tests, NULL, NULL);
}
