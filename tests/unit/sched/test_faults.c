/* test_faults.c - the executor when a request for memory or for a thread fails: it does not start,
 * or it goes on without, and nothing is lost. */
#include "../faults.h"
#include "fiber_jobs.h"
#include "group/closure.h"

static teff_sched_options options;
static latch done;

static void note_done(void *arg)
{
    latch_hit(&done);
}

static teff_err start_and_run(void)
{
    teffi_exec *exec;
    atomic_store(&done.count, 0);
    teff_err err = teffi_exec_real_new(&platform, 2, &options, &exec);
    if (err)
        return err;
    err = exec->ops->system(exec);
    assert_int_equal(err != TEFF_OK, exec->system_fibers == NULL);
    if (!err)
        err = teffi_closure_push(&exec->null_group, note_done, NULL);
    if (!err)
        latch_wait(&done, 1);
    exec->ops->free(exec);
    return err;
}

static void test_with_each_policy_it_starts_whole_or_not_at_all(void **state)
{
    for (int policy = TEFF_SCHED_SINGLE; policy <= TEFF_SCHED_PRIORITY; policy++) {
        options = (teff_sched_options){.size = sizeof options, .policy = (teff_sched_policy)policy};
        assert_true(fault_sweep(start_and_run, true) > 10);
    }
}

/* ---- threads beside blocking calls ---- */

static latch inside, gate;

static void block(job *j)
{
    j->exec->ops->blocking_begin(j->exec);
    latch_hit(&inside);
    latch_wait(&gate, 1);
    j->exec->ops->blocking_end(j->exec);
}

/* The second job needs another thread, or the end of the first one's blocking call. */
static teff_err block_and_run(void)
{
    static job blocked, other;
    teffi_exec *exec;
    atomic_store(&done.count, 0);
    atomic_store(&inside.count, 0);
    atomic_store(&gate.count, 0);
    teff_err err = teffi_exec_real_new(&platform, 1, &options, &exec);
    if (err)
        return err;
    job_init(&blocked, exec, block, &done);
    job_init(&other, exec, job_nothing, &done);
    job_push(&blocked);
    latch_wait(&inside, 1);
    job_push(&other);
    latch_hit(&gate);
    latch_wait(&done, 2);
    exec->ops->free(exec);
    return TEFF_OK;
}

static void test_without_a_spare_thread_work_waits_for_the_blocking_call(void **state)
{
    options = (teff_sched_options){.size = sizeof options};
    assert_true(fault_sweep(block_and_run, false) > 5);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_with_each_policy_it_starts_whole_or_not_at_all),
        cmocka_unit_test(test_without_a_spare_thread_work_waits_for_the_blocking_call),
    };
    teffi_platform_init_real(&platform, (teff_log_level)0); /* nothing is logged */
    return cmocka_run_group_tests(tests, NULL, NULL);
}
