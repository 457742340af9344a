/* test_scale.c - workers are added and removed while they work. */
#include <string.h>
#include <teff/process.h>
#include "sched/scheduler.h"
#include "jobs.h"

static _Atomic unsigned inside;

/* Holds its worker, without a word, until told to go on. */
static void hold_worker(job *j)
{
    atomic_fetch_add(&inside, 1);
    while (!atomic_load(&j->stop))
        teffi_thread_yield();
}

static void test_10000_threads(void **state)
{
    teff_sched_options opt = {.threads_max = 10001};
    assert_non_null(strstr(teffi_sched_options_check(&opt, 1), "threads_max"));
    opt.threads_max = 1;
    assert_non_null(strstr(teffi_sched_options_check(&opt, 1), "threads_max"));
    opt.threads_max = 10000;
    assert_null(teffi_sched_options_check(&opt, 1));
    opt.threads_max = 2;
    assert_null(teffi_sched_options_check(&opt, 1));
    teffi_exec *exec = exec_new(1, NULL);
    assert_int_equal(teffi_sched_of(exec)->threads_max, 10000);
    exec->ops->free(exec);
}

static void test_limits(void **state)
{
    teff_sched_options opt = {.workers_max = 4};
    teff_sched_metrics all;
    teffi_exec *none;
    assert_null(teffi_sched_options_check(&opt, 4));
    assert_non_null(strstr(teffi_sched_options_check(&opt, 5), "workers_max"));
    opt.workers_max = TEFFI_PROCESSORS_MAX + 1;
    assert_non_null(strstr(teffi_sched_options_check(&opt, 1), "workers_max"));
    assert_int_equal(teffi_exec_real_new(&platform, 1, &opt, &none), TEFF_E_INVALID);
    opt = (teff_sched_options){.workers_max = 4, .threads_max = 3};
    assert_non_null(strstr(teffi_sched_options_check(&opt, 2), "threads_max"));
    opt.threads_max = 0;
    teffi_exec *exec = exec_new(2, &opt);
    assert_int_equal(exec->workers, 4);
    assert_int_equal(exec->ops->scale(exec, 0), TEFF_E_INVALID);
    assert_int_equal(exec->ops->scale(exec, 5), TEFF_E_INVALID);
    (void)exec->ops->metrics(exec, &all, NULL, 0);
    assert_int_equal(all.workers, 4);
    assert_int_equal(all.active, 2);
    assert_int_equal(exec->ops->scale(exec, 4), TEFF_OK);
    (void)exec->ops->metrics(exec, &all, NULL, 0);
    assert_int_equal(all.active, 4);
    exec->ops->free(exec);
}

/* Four turns at once need four workers: one is there at the start. */
static void test_up(void **state)
{
    static job j[4];
    const teff_sched_options opt = {.workers_max = 4};
    teffi_exec *exec = exec_new(1, &opt);
    atomic_store(&inside, 0);
    for (unsigned i = 0; i < 4; i++) {
        job_init(&j[i], exec, 0, hold_worker);
        push(&j[i]);
    }
    WAIT_FOR(atomic_load(&inside) >= 1);
    assert_int_equal(exec->ops->scale(exec, 4), TEFF_OK);
    WAIT_FOR(atomic_load(&inside) == 4);
    for (unsigned i = 0; i < 4; i++)
        atomic_store(&j[i].stop, true);
    for (unsigned i = 0; i < 4; i++)
        WAIT_FOR(atomic_load(&j[i].runs) == 1);
    exec->ops->free(exec);
}

static bool vacant(teffi_exec *exec, unsigned from)
{
    teffi_sched *real = teffi_sched_of(exec);
    bool all = true;
    pthread_mutex_lock(&real->idle_lock);
    for (unsigned i = from; i < real->n_processors; i++)
        all &= !real->processors[i].worker && !atomic_load(&real->processors[i].lifo) &&
               !teffi_deque_count(&real->processors[i].deque) &&
               teffi_wheel_next_due(&real->processors[i].wheel) == UINT64_MAX;
    pthread_mutex_unlock(&real->idle_lock);
    return all;
}

/* out: does a spare thread sleep, and not for ever? */
static bool spare_thread_will_end(teffi_exec *exec)
{
    teffi_sched *real = teffi_sched_of(exec);
    pthread_mutex_lock(&real->idle_lock);
    const teffi_worker *w = teffi_worker_latest_in_state(real, TEFFI_WORKER_SPARE);
    bool will = w && w->sleeps_until_ns <= teffi_now(&platform) + 10000000000u;
    pthread_mutex_unlock(&real->idle_lock);
    return will;
}

/* Its worker was parked, with no limit, as there were as many threads as processors. */
static void test_the_worker_of_a_removed_processor_ends(void **state)
{
    teffi_exec *exec = exec_new(2, NULL);
    WAIT_FOR(parked(exec) == 2);
    assert_int_equal(exec->ops->scale(exec, 1), TEFF_OK);
    WAIT_FOR(spare_thread_will_end(exec));
    exec->ops->free(exec);
}

typedef struct alarm {
    teffi_timer timer;
    _Atomic bool fired;
} alarm;

static void on_alarm(teffi_timer *timer)
{
    atomic_store(&teffi_container(timer, alarm, timer)->fired, true);
}

enum { ALARMS = 200 };

static alarm alarms[ALARMS];
static job holders[4];

/* Leaves behind, in its worker's own queue and wheel, what it does not do itself. */
static void fill_then_hold(job *j)
{
    for (unsigned i = 0; i < 4; i++)
        push(j->peer[i]);
    for (unsigned i = (unsigned)(j - holders); i < ALARMS; i += 4)
        j->exec->ops->timer_set(j->exec, &alarms[i].timer,
                                teffi_now(&platform) + i % 50 * 1000000u);
    hold_worker(j);
}

/* Queued work and timers of the workers that go away move on, those that never come to the end of
 * their turn included; no removed worker is seen to work after that. */
static void test_down(void **state)
{
    static job behind[4][4];
    job *j = holders;
    teffi_exec *exec = exec_new(4, NULL);
    memset(alarms, 0, sizeof alarms);
    atomic_store(&inside, 0);
    for (unsigned i = 0; i < ALARMS; i++)
        alarms[i].timer.fire = on_alarm;
    for (unsigned i = 0; i < 4; i++) {
        job_init(&j[i], exec, 0, fill_then_hold);
        for (unsigned k = 0; k < 4; k++) {
            job_init(&behind[i][k], exec, 0, NULL);
            j[i].peer[k] = &behind[i][k];
        }
        push(&j[i]);
    }
    WAIT_FOR(atomic_load(&inside) == 4);
    assert_int_equal(exec->ops->scale(exec, 1), TEFF_OK);
    for (unsigned i = 0; i < ALARMS; i++)
        WAIT_FOR(atomic_load(&alarms[i].fired));
    for (unsigned i = 0; i < 4; i++)
        atomic_store(&j[i].stop, true);
    for (unsigned i = 0; i < 4; i++)
        for (unsigned k = 0; k < 4; k++)
            WAIT_FOR(atomic_load(&behind[i][k].runs) == 1);
    WAIT_FOR(vacant(exec, 1));
    uint64_t runs = counts_of(exec, 1).runs + counts_of(exec, 2).runs + counts_of(exec, 3).runs;
    for (unsigned i = 2; i < 200; i++) {
        push(&behind[0][0]);
        WAIT_FOR(atomic_load(&behind[0][0].runs) == i);
    }
    assert_int_equal(counts_of(exec, 1).runs + counts_of(exec, 2).runs + counts_of(exec, 3).runs,
                     runs);
    exec->ops->free(exec);
}

/* A timer set from outside while its wheel goes out of use, or in a turn on a worker that has. */
static void test_timers_while_scaling(void **state)
{
    teffi_exec *exec = exec_new(3, NULL);
    for (unsigned round = 0; round < 30; round++) {
        memset(alarms, 0, sizeof alarms);
        for (unsigned i = 0; i < ALARMS; i++) {
            alarms[i].timer.fire = on_alarm;
            exec->ops->timer_set(exec, &alarms[i].timer, teffi_now(&platform) + i % 3 * 1000000u);
            if (i % 8 == 0)
                assert_int_equal(exec->ops->scale(exec, 1 + (i / 8 + round) % 3), TEFF_OK);
        }
        unsigned cancelled = 0, fired = 0;
        for (unsigned i = 0; i < ALARMS; i += 7)
            if (exec->ops->timer_cancel(exec, &alarms[i].timer)) {
                assert_false(atomic_load(&alarms[i].fired));
                atomic_store(&alarms[i].fired, true);
                cancelled++;
            }
        for (unsigned i = 0; i < ALARMS; i++) {
            WAIT_FOR(atomic_load(&alarms[i].fired));
            fired++;
        }
        assert_true(fired == ALARMS && cancelled < ALARMS);
    }
    exec->ops->free(exec);
}

/* ---- for users ---- */

static teff_err count_to_ten(void *self, const teff_event *events, size_t n, teff_step *out)
{
    unsigned *steps = self;
    return ++*steps < 10 ? teff_step_continue(out) : teff_step_done(out);
}

static const teff_process_ops ten_ops = {.name = "ten", .step = count_to_ten};

static void test_a_process_system(void **state)
{
    enum { PROCESSES = 500 };
    static unsigned steps[PROCESSES];
    teff_process_system *system;
    teff_process_stats stats;
    teff_sched_metrics all;
    const teff_sched_options sched = {.size = sizeof sched, .workers_max = 3};
    const teff_process_options opt = {.size = sizeof opt, .workers = 1, .sched = &sched};
    assert_int_equal(teff_process_system_new(&opt, &system), TEFF_OK);
    for (unsigned i = 0; i < PROCESSES; i++) {
        assert_int_equal(teff_process_spawn(system, &ten_ops, &steps[i], NULL, NULL, 0, NULL),
                         TEFF_OK);
        if (i % 10 == 0)
            assert_int_equal(teff_process_system_scale(system, 1 + i / 10 % 3), TEFF_OK);
    }
    do {
        teffi_thread_yield();
        teff_process_stats_get(system, &stats);
    } while (stats.ended < PROCESSES);
    for (unsigned i = 0; i < PROCESSES; i++)
        assert_int_equal(steps[i], 10);
    assert_int_equal(teff_process_system_scale(system, 2), TEFF_OK);
    assert_int_equal(teff_process_sched_metrics(system, &all, NULL, 0), 0);
    assert_int_equal(all.active, 2);
    assert_int_equal(teff_process_system_scale(system, 4), TEFF_E_INVALID);
    teff_process_system_free(system);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_10000_threads),
        cmocka_unit_test(test_limits),
        cmocka_unit_test(test_up),
        cmocka_unit_test(test_the_worker_of_a_removed_processor_ends),
        cmocka_unit_test(test_down),
        cmocka_unit_test(test_timers_while_scaling),
        cmocka_unit_test(test_a_process_system),
    };
    teffi_platform_init_real(&platform, TEFF_LOG_INFO);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
