/* test_direct.c - turns in place that yield: their parts run, and they go on when these have ended.
 * One worker; the monitor is held, so that each turn is on the same processor. */
#include <teff/fork.h>
#include "fiber_jobs.h"
#include "group/direct.h"
#include "held_monitor.h"

enum { FORKS = 3 };

static latch done;
static fjob outer, callee;
static _Atomic unsigned parts, joined; /* how many have ended, at all and when each join ended */

/* Behind the other groups: a turn that goes on too early is seen. */
static void yield_and_count(void *arg)
{
    for (int i = 0; i < 4; i++)
        (void)teff_yield_now();
    atomic_fetch_add(&parts, 1);
}

static void fork_and_join(teff_steal how)
{
    for (int i = 0; i < FORKS; i++) {
        teff_join join = {{0}};
        teff_fork(&join, how, yield_and_count, NULL);
        teff_join_wait(&join);
        atomic_fetch_add(&joined, atomic_load(&parts));
    }
}

static void run_parts_first(job *j)
{
    fork_and_join(TEFF_STEAL_CONTINUATION);
}

static void queue_parts(job *j)
{
    fork_and_join(TEFF_STEAL_CHILD);
}

/* As a caller does that does not wait for the end of the turn in place. */
static void run_callee_in_place(job *j)
{
    if (!teffi_direct_may(j->exec, false) || !teffi_group_claim(&callee.job.group))
        return;
    teffi_group *own = teffi_direct_enter(j->exec, &callee.job.group);
    fjob_handle(&callee.job.group, NULL);
    teffi_direct_leave(j->exec, own);
    teffi_direct_done(j->exec, &callee.job.group);
    (void)teff_yield_now();
    (void)teff_yield_now();
}

static void in_place(void (*run)(job *j))
{
    monitor_hold(&platform);
    teffi_exec *exec = exec_of(1, NULL);
    atomic_store(&done.count, 0);
    atomic_store(&parts, 0);
    atomic_store(&joined, 0);
    fjob_init(&callee, exec, run, &done);
    fjob_init(&outer, exec, run_callee_in_place, &done);
    job_push(&outer.job);
    latch_wait(&done, 2);
    monitor_release();
    exec->ops->free(exec);
    assert_int_equal(atomic_load(&parts), FORKS);
    assert_int_equal(atomic_load(&joined), 1 + 2 + 3);
}

static void test_a_turn_in_place_forks_and_joins(void **state)
{
    in_place(run_parts_first);
    in_place(queue_parts);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_a_turn_in_place_forks_and_joins),
    };
    teffi_platform_real(&platform, TEFF_LOG_WARN);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
