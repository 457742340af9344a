/* test_account.c - processes of one account go down the levels together.
 * Source:  yatp src/queue/extras.rs */
#include <teff/fork.h>
#include "../sched/held_monitor.h"
#include "../sched/jobs.h"
#include "process/process.h"

#define MS UINT64_C(1000000)

static teffi_exec *exec;
static teff_process_system *processes;
static _Atomic unsigned done;

static void work(void *ms)
{
    atomic_fetch_add(&worked_ns, *(const uint64_t *)ms * MS);
}

/* A message's tag: for how long to compute; a forked part computes as long. */
static teff_err compute(void *self, const teff_event *events, size_t n, teff_step *out)
{
    for (size_t i = 0; i < n; i++) {
        if (events[i].kind == TEFF_EVENT_CANCEL)
            return teff_step_done(out);
        uint64_t ms = events[i].tag;
        teff_join join = {{0}};
        if (self)
            teff_fork(&join, TEFF_STEAL_CHILD, work, &ms);
        else
            work(&ms);
        teff_join_wait(&join);
        atomic_fetch_add(&done, 1);
    }
    return teff_step_idle(out);
}

static const teff_process_ops ops = {.name = "computer", .step = compute},
                              forks = {
                                  .name = "forker", .flags = TEFF_PROCESS_FIBER, .step = compute};

static teff_pid spawn_on(const teff_process_ops *as, uint64_t account)
{
    teff_pid pid;
    void *self = as == &forks ? &done : NULL;
    assert_int_equal(
        teff_process_spawn_on_account(processes, as, self, NULL, NULL, 0, account, &pid), TEFF_OK);
    return pid;
}

static teff_pid spawn_without(void)
{
    teff_pid pid;
    assert_int_equal(teff_process_spawn(processes, &ops, NULL, NULL, NULL, 0, &pid), TEFF_OK);
    return pid;
}

/* out: the level on which the run was booked, which is the one before it. */
static int level_of_run(teff_pid pid, uint64_t ms)
{
    unsigned before = atomic_load(&done);
    teff_sched_worker was = counts_of(exec, 0), is;
    uint64_t passed = 0;
    assert_int_equal(teff_process_send(processes, pid, &(teff_event){.tag = ms}), TEFF_OK);
    WAIT_FOR(atomic_load(&done) > before);
    while (passed < ms * MS) {
        passed = 0;
        is = counts_of(exec, 0);
        for (int l = 0; l < TEFF_SCHED_LEVELS; l++)
            passed += is.level_ns[l] - was.level_ns[l];
    }
    for (int l = 0; l < TEFF_SCHED_LEVELS; l++)
        if (is.level_ns[l] - was.level_ns[l] == ms * MS)
            return l;
    return -1;
}

static int setup(void **state)
{
    const teff_sched_options opt = {.policy = TEFF_SCHED_MULTILEVEL};
    const teff_process_options own = {.size = sizeof own};
    atomic_store(&worked_ns, 0);
    monitor_hold(&platform);
    exec = exec_new(1, &opt);
    return (int)teffi_process_system_new_on(exec, &own, &processes);
}

static int teardown(void **state)
{
    (void)teff_process_system_stop(processes, 0, NULL);
    monitor_release();
    exec->ops->free(exec);
    teffi_process_system_free_memory(processes);
    return 0;
}

static void two_of_an_account_go_down_together(void **state)
{
    teff_pid a = spawn_on(&ops, 7), b = spawn_on(&ops, 7);
    assert_int_equal(level_of_run(a, 3), 0);
    assert_int_equal(level_of_run(b, 3), 0);
    assert_int_equal(level_of_run(a, 1), 1); /* 6 ms together */
    assert_int_equal(level_of_run(b, 1), 1);
    assert_int_equal(level_of_run(a, 100), 1);
    assert_int_equal(level_of_run(b, 1), 2);
    teff_pid late = spawn_on(&ops, 7);
    assert_int_equal(level_of_run(late, 1), 2);
    atomic_fetch_add(&worked_ns, 60000 * MS); /* 110 ms, halved six times */
    assert_int_equal(level_of_run(b, 1), 0);
}

static void others_keep_their_own_run_time(void **state)
{
    teff_pid a = spawn_on(&ops, 7), other = spawn_on(&ops, 8), alone = spawn_without(),
             also_alone = spawn_without();
    assert_int_equal(level_of_run(a, 6), 0);
    assert_int_equal(level_of_run(a, 1), 1);
    assert_int_equal(level_of_run(other, 6), 0);
    assert_int_equal(level_of_run(alone, 6), 0);
    assert_int_equal(level_of_run(alone, 1), 1);
    assert_int_equal(level_of_run(also_alone, 1), 0);
}

static void forked_parts_are_charged_to_the_account(void **state)
{
    teff_pid forker = spawn_on(&forks, 7), b = spawn_on(&ops, 7);
    assert_int_equal(level_of_run(forker, 6), 0);
    assert_int_equal(level_of_run(b, 1), 1);
    assert_int_equal(level_of_run(forker, 1), 1);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(two_of_an_account_go_down_together, setup, teardown),
        cmocka_unit_test_setup_teardown(others_keep_their_own_run_time, setup, teardown),
        cmocka_unit_test_setup_teardown(forked_parts_are_charged_to_the_account, setup, teardown),
    };
    teffi_platform_init_real(&platform, TEFF_LOG_WARN);
    platform.mono_ns = work_clock;
    return cmocka_run_group_tests(tests, NULL, NULL);
}
