/* test_submit.c - where a group, a timer and deferred work go, by who submits them. One worker;
 * the monitor is held, so that no processor is retaken. */
#include "held_monitor.h"
#include "jobs.h"
#include "group/deferred.h"
#include "sched/retake.h"
#include "sched/submit.h"

static teffi_exec *held_exec(const teff_sched_options *opt)
{
    monitor_hold(&platform);
    return exec_new(1, opt);
}

static void end(teffi_exec *exec)
{
    monitor_release();
    exec->ops->free(exec);
}

/* With a job of its own, since the turn of the one before may still be ending. */
static void run_on(teffi_exec *exec, void (*run)(job *j))
{
    static job jobs[8];
    static unsigned used;
    assert_in_range(used, 0, 7);
    job *j = &jobs[used++];
    job_init(j, exec, 0, run);
    push(j);
    WAIT_FOR(atomic_load(&j->runs) == 1);
}

static void test_other_threads_run_nothing_nested(void **state)
{
    teffi_exec *exec = held_exec(NULL);
    assert_false(exec->ops->run_nested(exec));
    end(exec);
}

/* ---- deferred work ---- */

static _Atomic unsigned ran; /* times that work was run */
static _Atomic unsigned ran_before;
static bool taken, taken_again;
static unsigned ticks; /* of the monitor, until the work was run */
static teffi_deferred work, more;
static teffi_exec *deferring; /* whose work it is */

static void count_run(teffi_deferred *deferred)
{
    atomic_fetch_add(&ran, 1);
}

static void defer_more(teffi_deferred *deferred)
{
    taken_again = deferring->ops->defer(deferring, &more);
    count_run(deferred);
}

static void defer_it(job *j)
{
    taken = deferring->ops->defer(deferring, &work);
}

static void defer_in_a_blocking_call(job *j)
{
    j->exec->ops->blocking_begin(j->exec);
    defer_it(j);
    j->exec->ops->blocking_end(j->exec);
}

static void defer_before_a_blocking_call(job *j)
{
    defer_it(j);
    j->exec->ops->blocking_begin(j->exec);
    atomic_store(&ran_before, atomic_load(&ran));
    j->exec->ops->blocking_end(j->exec);
}

static void defer_and_end_the_pass(job *j)
{
    teffi_worker *w = teffi_worker_self();
    defer_it(j);
    uint32_t was = teffi_processor_use_begin(w);
    teffi_run_deferred_and_refuse_new(w);
    teffi_processor_use_end(w, was);
    atomic_store(&ran_before, atomic_load(&ran));
}

static void defer_and_stay_in_the_turn(job *j)
{
    defer_it(j);
    for (ticks = 0; !atomic_load(&ran) && ticks < 9; ticks++)
        monitor_tick();
}

/* out: was it deferred? */
static bool defers(teffi_exec *exec, void (*run)(job *j))
{
    taken = false;
    run_on(exec, run);
    return taken;
}

static teffi_exec *deferring_exec(void (*run)(teffi_deferred *deferred))
{
    work.run = run;
    more.run = count_run;
    atomic_store(&ran, 0);
    atomic_store(&ran_before, 0);
    return deferring = held_exec(NULL);
}

static void test_only_its_worker_defers_and_only_with_a_processor(void **state)
{
    teffi_exec *exec = deferring_exec(count_run), *other = exec_new(1, NULL);
    assert_false(exec->ops->defer(exec, &work));
    assert_false(defers(other, defer_it));
    assert_false(defers(exec, defer_in_a_blocking_call));
    assert_int_equal(atomic_load(&ran), 0);
    assert_true(defers(exec, defer_it));
    WAIT_FOR(atomic_load(&ran) == 1);
    end(exec);
    other->ops->free(other);
    assert_int_equal(atomic_load(&ran), 1);
}

static void test_deferred_work_runs_before_a_blocking_call(void **state)
{
    teffi_exec *exec = deferring_exec(count_run);
    assert_true(defers(exec, defer_before_a_blocking_call));
    assert_int_equal(atomic_load(&ran_before), 1);
    end(exec);
}

/* Whoever wants to defer more then does it at once. */
static void test_an_ending_pass_runs_the_work_and_takes_no_more(void **state)
{
    teffi_exec *exec = deferring_exec(defer_more);
    taken_again = true;
    assert_true(defers(exec, defer_and_end_the_pass));
    assert_int_equal(atomic_load(&ran_before), 1);
    assert_false(taken_again);
    assert_true(defers(exec, defer_it)); /* later passes do */
    WAIT_FOR(atomic_load(&ran) == 3);    /* and what is deferred meanwhile runs in the next one */
    end(exec);
    assert_true(taken_again);
}

/* At the first tick, the monitor sees that the turn has begun; at the second, that it goes on. */
static void test_the_monitor_runs_what_a_stuck_worker_has_deferred(void **state)
{
    teffi_exec *exec = deferring_exec(count_run);
    assert_true(defers(exec, defer_and_stay_in_the_turn));
    assert_int_equal(ticks, 2);
    assert_int_equal(atomic_load(&ran), 1);
    end(exec);
}

/* ---- groups ---- */

static void push_peer(job *j)
{
    push(j->peer[0]);
}

/* A turn pushes a group that has hardly run yet: it is next, whether or not others are ordered. */
static void test_a_group_of_level_0_goes_to_the_lifo_slot(void **state)
{
    static job a, b;
    teffi_exec *exec = held_exec(&(teff_sched_options){.policy = TEFF_SCHED_MULTILEVEL});
    job_init(&a, exec, 'a', push_peer);
    job_init(&b, exec, 'b', NULL);
    a.peer[0] = &b;
    push(&a);
    WAIT_FOR(atomic_load(&b.runs) == 1);
    WAIT_FOR(counts_of(exec, 0).runs == 2);
    assert_int_equal(counts_of(exec, 0).lifo, 1);
    end(exec);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_other_threads_run_nothing_nested),
        cmocka_unit_test(test_only_its_worker_defers_and_only_with_a_processor),
        cmocka_unit_test(test_deferred_work_runs_before_a_blocking_call),
        cmocka_unit_test(test_an_ending_pass_runs_the_work_and_takes_no_more),
        cmocka_unit_test(test_the_monitor_runs_what_a_stuck_worker_has_deferred),
        cmocka_unit_test(test_a_group_of_level_0_goes_to_the_lifo_slot),
    };
    teffi_platform_init_real(&platform, TEFF_LOG_WARN);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
