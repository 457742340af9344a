/* test_contention.c - while other threads want the cores: when fewer workers are tried, and which
 * limit stays; under a limit nobody is woken beside enough running workers, unless their runs are
 * long. Samples are made up; the monitor is held. */
#include "sched/policy/contention.h"

#include "held_monitor.h"
#include "jobs.h"
#include "sched/borrow.h"
#include "sched/idle.h"
#include "sched/scheduler.h"

enum { MS = 1000000, TRIAL_WINDOWS = 8 };

static teffi_contention c;
static teffi_contention_sample at; /* the last one */

static void begin(uint32_t n)
{
    teffi_contention_reset(&c, n);
    at = (teffi_contention_sample){.now_ns = 5 * MS, .items = 1000, .cpu_ns = 70000};
    teffi_contention_update(&c, &at);
}

/* The next sample, when it is due: n items at so much each, and usage. */
static void sample(uint64_t items, uint64_t each_ns, uint64_t ran_ns, uint64_t delayed_ns)
{
    at.now_ns = c.due_ns;
    at.items += items;
    at.cpu_ns += items * each_ns;
    at.ran_ns = ran_ns;
    at.delayed_ns = delayed_ns;
    teffi_contention_update(&c, &at);
}

/* Samples without a trial, until that time at least. */
static void wait_until(uint64_t ns)
{
    while (c.due_ns < ns)
        sample(10, 100, 100, 0);
}

/* A trial that has begun, to its end. In the windows of the higher limit workers are delayed for so
 * long, and run for four times as long. */
static void run_trial_delayed(uint64_t low_ns, uint64_t high_ns, uint64_t delayed_ns)
{
    assert_int_equal(c.window, 1);
    for (unsigned i = 0; i < TRIAL_WINDOWS; i++) {
        assert_int_equal(c.window, i + 1);
        assert_int_equal(c.limit, i % 2 ? c.high : c.low);
        if (i % 2)
            sample(1000, high_ns, 4 * delayed_ns, delayed_ns);
        else
            sample(1000, low_ns, 0, 0);
    }
    assert_int_equal(c.window, 0);
}

static void run_trial(uint64_t low_ns, uint64_t high_ns)
{
    run_trial_delayed(low_ns, high_ns, 5 * MS);
}

/* ---- samples ---- */

static void a_sample_is_due_each_50_ms_and_each_20_in_a_trial(void **state)
{
    begin(2);
    assert_int_equal(c.due_ns, 55 * MS);
    assert_false(teffi_contention_sample_is_due(&c, 55 * MS - 1));
    assert_true(teffi_contention_sample_is_due(&c, 55 * MS));
    sample(1, 1, 10 * MS, 10 * MS);
    assert_int_equal(c.due_ns, 75 * MS);
    assert_true(teffi_contention_sample_is_due(&c, 75 * MS));
}

static void a_trial_needs_a_sixth_of_delay(void **state)
{
    begin(2);
    sample(1, 1, 0, 0);
    sample(1, 1, 151 * MS, 25 * MS);
    assert_int_equal(c.window, 0);
    assert_int_equal(c.limit, 2);
    sample(1, 1, 150 * MS, 25 * MS);
    assert_int_equal(c.window, 1);
    assert_int_equal(c.limit, 1);
}

static void a_trial_needs_work_for_a_tenth_of_the_time(void **state)
{
    begin(2);
    sample(1, 1, 4 * MS - 1, MS);
    assert_int_equal(c.window, 0);
    sample(1, 1, 4 * MS, MS);
    assert_int_equal(c.window, 1);
}

/* Its usage is that of all the time before. */
static void the_first_sample_begins_none(void **state)
{
    teffi_contention_reset(&c, 2);
    at = (teffi_contention_sample){.now_ns = 5 * MS, .ran_ns = MS, .delayed_ns = 1000 * MS};
    teffi_contention_update(&c, &at);
    assert_int_equal(c.window, 0);
}

static void one_worker_is_the_least(void **state)
{
    begin(1);
    sample(1, 1, 0, 1000 * MS);
    assert_int_equal(c.window, 0);
    assert_int_equal(c.limit, 1);
}

/* The monitor has slept, since all workers were parked. */
static void a_late_sample_ends_limit_and_trial(void **state)
{
    begin(2);
    sample(1, 1, 0, 1000 * MS);
    c.due_ns -= 100 * MS; /* so late is not too late */
    at.now_ns = c.due_ns + 100 * MS;
    teffi_contention_update(&c, &at);
    assert_int_equal(c.window, 2);
    at.now_ns = c.due_ns + 100 * MS + 1;
    at.delayed_ns = 1000 * MS;
    teffi_contention_update(&c, &at);
    assert_int_equal(c.window, 0);
    assert_int_equal(c.limit, 2);
    assert_int_equal(c.n, 2);
    assert_int_equal(c.items_seen, at.items);
}

/* ---- trials ---- */

static void begin_trial_of_two(void)
{
    begin(2);
    sample(1, 1, 0, 1000 * MS);
}

static void the_limit_is_lowered_if_items_are_a_32nd_cheaper(void **state)
{
    begin_trial_of_two();
    run_trial(1550, 1600);
    assert_int_equal(c.limit, 2);
    begin_trial_of_two();
    run_trial(1549, 1600);
    assert_int_equal(c.limit, 1);
}

static void expect_pause(uint64_t ms, bool by_contention);

/* Else two limits that differ little would follow each other by chance. */
static void a_lower_limit_is_kept_while_items_are_cheaper(void **state)
{
    begin_trial_of_two();
    run_trial(1540, 1600); /* a gain of 3.75 % */
    assert_int_equal(c.limit, 1);
    expect_pause(1000, true);
    run_trial(1650, 1600); /* a loss of 3.125 % */
    assert_int_equal(c.limit, 1);
    expect_pause(2000, true);
    run_trial(1600, 1600); /* the mean is a gain still */
    assert_int_equal(c.limit, 1);
    expect_pause(4000, true);
    run_trial(1604, 1600);
    assert_int_equal(c.limit, 2);
}

/* An item of the second workload costs more, at both limits alike. */
static void another_workload_is_no_gain(void **state)
{
    begin_trial_of_two();
    run_trial(1000, 1000);
    assert_int_equal(c.limit, 2);
    expect_pause(1000, true);
    for (unsigned i = 0; i < TRIAL_WINDOWS; i++)
        sample(i % 2 ? 300 : 250, 10000, 20 * MS, 5 * MS);
    assert_int_equal(c.limit, 2);
}

static void the_mean_is_forgotten_after_12_s(void **state)
{
    begin_trial_of_two();
    run_trial(1000, 1000);
    wait_until(at.now_ns + 12000ull * MS - 160 * MS);
    assert_int_equal(c.window, 0);
    sample(1, 1, 0, 1000 * MS);
    run_trial(1540, 1600); /* alone enough, not in the mean */
    assert_int_equal(c.limit, 1);
    begin_trial_of_two();
    run_trial(1000, 1000);
    wait_until(at.now_ns + 12000ull * MS - 260 * MS);
    sample(1, 1, 0, 1000 * MS);
    run_trial(1540, 1600);
    assert_int_equal(c.limit, 2);
}

/* Between the least and the highest limit, trials of two pairs of limits alternate. */
static void each_pair_of_limits_has_its_own_mean(void **state)
{
    begin(4);
    sample(1, 1, 0, 1000 * MS);
    run_trial(900, 1000);
    assert_int_equal(c.limit, 2);
    expect_pause(1000, true);
    assert_int_equal(c.high, 4);
    run_trial(1050, 1000); /* half as much a loss as the last trial was a gain */
    assert_int_equal(c.limit, 2);
    expect_pause(2000, true);
    assert_int_equal(c.low, 1);
    run_trial(1100, 1000);
    assert_int_equal(c.limit, 2);
    expect_pause(4000, true);
    assert_int_equal(c.high, 4);
    run_trial(1010, 1000); /* the mean of the three is a gain */
    assert_int_equal(c.limit, 2);
}

static void it_does_not_if_cores_are_free_with_the_higher_one(void **state)
{
    begin_trial_of_two();
    run_trial_delayed(500, 1600, 8 * MS / 5 / 4 - 1); /* 1/10 of the time of four windows */
    assert_int_equal(c.limit, 2);
    begin_trial_of_two();
    run_trial_delayed(500, 1600, 8 * MS / 5 / 4);
    assert_int_equal(c.limit, 1);
}

static void it_does_not_if_there_were_few_items(void **state)
{
    for (unsigned few = 0; few < 3; few++) {
        begin_trial_of_two();
        for (unsigned i = 0; i < TRIAL_WINDOWS; i++)
            sample(i > 1      ? 63
                   : i == few ? 255 - 189
                              : 256 - 189,
                   i % 2 ? 1600 : 500, 20 * MS, 5 * MS);
        assert_int_equal(c.window, 0);
        assert_int_equal(c.limit, few == 2 ? 1 : 2);
    }
}

/* No trial begins before, and one does with the first sample afterwards. */
static void expect_pause(uint64_t ms, bool by_contention)
{
    uint64_t from = at.now_ns;
    wait_until(from + ms * MS);
    assert_int_equal(c.window, 0);
    assert_int_equal(c.trial_ns, from + ms * MS);
    sample(1, 1, 0, by_contention ? 1000 * MS : 0);
    assert_int_equal(c.window, 1);
}

static void pauses_double_to_4_s_while_nothing_changes(void **state)
{
    static const uint64_t pauses[] = {1000, 2000, 4000, 4000};
    begin_trial_of_two();
    for (unsigned i = 0; i < 4; i++) {
        run_trial(1000, 1000);
        expect_pause(pauses[i], true);
    }
    run_trial(500, 1000); /* a change */
    assert_int_equal(c.limit, 1);
    expect_pause(1000, false); /* upwards, without contention */
    assert_int_equal(c.low, 1);
    assert_int_equal(c.high, 2);
    run_trial(500, 1000);
    assert_int_equal(c.limit, 1);
    expect_pause(2000, false);
    run_trial(2000, 1000);
    assert_int_equal(c.limit, 2);
    assert_int_equal(c.pause_ns, 1000ull * MS);
}

static void limits_are_halved_and_doubled_in_turn(void **state)
{
    begin(5);
    sample(1, 1, 0, 1000 * MS);
    assert_int_equal(c.low, 2);
    assert_int_equal(c.high, 5);
    run_trial(500, 1000);
    assert_int_equal(c.limit, 2);
    expect_pause(1000, true);
    assert_int_equal(c.low, 2);
    assert_int_equal(c.high, 4);
    run_trial(500, 1000);
    assert_int_equal(c.limit, 2);
    expect_pause(2000, true);
    assert_int_equal(c.low, 1);
    assert_int_equal(c.high, 2);
    run_trial(1000, 1000);
    expect_pause(4000, true);
    run_trial(2000, 1000); /* the mean with the last one of these limits is 0 */
    assert_int_equal(c.limit, 4);
    expect_pause(1000, true); /* down: 2 and 4 */
    assert_int_equal(c.low, 2);
    run_trial(1000, 1000);
    expect_pause(2000, true);
    assert_int_equal(c.low, 4);
    assert_int_equal(c.high, 5);
}

/* Without contention all may be woken again. */
static void without_contention_the_highest_limit_is_tried(void **state)
{
    begin(5);
    sample(1, 1, 0, 1000 * MS);
    run_trial(500, 1000);
    assert_int_equal(c.limit, 2);
    expect_pause(1000, false);
    assert_int_equal(c.low, 2);
    assert_int_equal(c.high, 5);
}

/* ---- the scheduler under a limit ---- */

static job holding, other;
static _Atomic bool inside, gate;

static void wait_at_gate(job *j)
{
    atomic_store(&inside, true);
    while (!atomic_load(&gate))
        teffi_thread_yield();
}

static teffi_sched *limited_sched(teffi_exec **exec)
{
    atomic_store(&inside, false);
    atomic_store(&gate, false);
    monitor_hold(&platform);
    *exec = exec_new(2, NULL);
    teffi_sched *sched = teffi_sched_of(*exec);
    job_init(&holding, *exec, 0, wait_at_gate);
    job_init(&other, *exec, 0, NULL);
    WAIT_FOR(parked(*exec) == 2);
    /* the monitor is held: it waits at the begin of a tick, or asleep */
    sched->monitor.contention =
        (teffi_contention){.n = 2, .limit = 1, .due_ns = UINT64_MAX, .trial_ns = UINT64_MAX};
    atomic_store(&sched->wake_below, 1);
    return sched;
}

static void end(teffi_exec *exec)
{
    atomic_store(&gate, true);
    monitor_release();
    exec->ops->free(exec);
}

static void a_second_worker_is_woken_when_the_run_is_long(void **state)
{
    teffi_exec *exec;
    teffi_sched *sched = limited_sched(&exec);
    push(&holding); /* none runs: one is woken */
    WAIT_FOR(atomic_load(&inside) && parked(exec) == 1);
    assert_false(teffi_none_idle_or_searching(sched));
    assert_true(teffi_enough_workers_are_running(sched));
    push(&other);
    assert_int_equal(parked(exec), 1);
    monitor_tick();
    assert_int_equal(parked(exec), 1);
    monitor_tick(); /* sees the same run again */
    WAIT_FOR(atomic_load(&other.runs) == 1);
    assert_int_equal(atomic_load(&sched->wake_below), 2);
    atomic_store(&gate, true);
    WAIT_FOR(atomic_load(&holding.runs) == 1);
    end(exec);
}

static void push_other(void *arg)
{
    (void)arg;
    push(&other);
}

static void no_processor_is_borrowed_beside_enough_workers(void **state)
{
    teffi_exec *exec;
    teffi_sched *sched = limited_sched(&exec);
    push(&holding);
    WAIT_FOR(atomic_load(&inside) && parked(exec) == 1);
    assert_false(teffi_none_idle_or_searching(sched));
    assert_false(teffi_borrow_processor_and_run(exec, push_other, NULL));
    assert_int_equal(atomic_load(&other.runs), 0);
    atomic_store(&sched->wake_below, UINT32_MAX);
    bool did = false;
    WAIT_FOR(did || (did = teffi_borrow_processor_and_run(exec, push_other, NULL)));
    assert_int_equal(atomic_load(&other.runs), 1);
    end(exec);
}

/* Its worker was taken away, and no thread could be started for it. */
static void a_processor_without_a_worker_does_not_count(void **state)
{
    teffi_exec *exec;
    teffi_sched *sched = limited_sched(&exec);
    pthread_mutex_lock(&sched->idle_lock);
    teffi_processor *p = teffi_idle_take_processor(teffi_idle_choose_parked(sched));
    pthread_mutex_unlock(&sched->idle_lock);
    assert_null(p->worker);
    push(&other);
    assert_int_equal(parked(exec), 1);
    monitor_tick();
    WAIT_FOR(atomic_load(&other.runs) == 1);
    end(exec);
}

static _Atomic bool told;

static void look_for_limit(void *arg, const char *line)
{
    if (!strcmp(line, "cores were contended: no worker is woken while 1 run"))
        atomic_store(&told, true);
}

static void a_dump_tells_of_the_limit(void **state)
{
    teffi_exec *exec;
    teffi_sched *sched = limited_sched(&exec);
    atomic_store(&told, false);
    exec->ops->dump(exec, look_for_limit, NULL);
    assert_true(atomic_load(&told));
    atomic_store(&told, false);
    atomic_store(&sched->wake_below, UINT32_MAX);
    exec->ops->dump(exec, look_for_limit, NULL);
    assert_false(atomic_load(&told));
    end(exec);
}

static void a_limit_that_is_lifted_wakes_a_worker(void **state)
{
    teffi_exec *exec;
    teffi_sched *sched = limited_sched(&exec);
    push(&holding);
    WAIT_FOR(atomic_load(&inside) && parked(exec) == 1);
    push(&other);
    sched->monitor.contention.limit = 2;
    monitor_tick();
    WAIT_FOR(atomic_load(&other.runs) == 1);
    assert_int_equal(atomic_load(&sched->wake_below), UINT32_MAX);
    assert_false(teffi_enough_workers_are_running(sched));
    end(exec);
}

static void another_number_of_workers_ends_the_limit(void **state)
{
    teffi_exec *exec;
    teffi_sched *sched = limited_sched(&exec);
    sched->monitor.contention.n = 3;
    push(&holding);
    WAIT_FOR(atomic_load(&inside) && parked(exec) == 1);
    monitor_tick();
    assert_int_equal(sched->monitor.contention.n, 2);
    assert_int_equal(sched->monitor.contention.limit, 2);
    assert_int_equal(atomic_load(&sched->wake_below), UINT32_MAX);
    end(exec);
}

/* A sample has what the workers have handled, the processor time, and the running worker's usage
 * (if the kernel tells). */
static void a_tick_samples_what_was_done(void **state)
{
    teffi_exec *exec;
    teffi_sched *sched = limited_sched(&exec);
    uint64_t ran_ns, delayed_ns, cpu_ns = teffi_os_process_cpu_ns();
    sched->monitor.contention.due_ns = 1;
    push(&holding);
    WAIT_FOR(atomic_load(&inside) && parked(exec) == 1);
    monitor_tick();
    const teffi_contention *seen = &sched->monitor.contention;
    uint64_t items = 0;
    for (unsigned i = 0; i < 2; i++)
        items += teffi_processor_count_handled_items(&sched->processors[i]);
    assert_int_equal(seen->items_seen, items);
    assert_in_range(seen->cpu_seen_ns, cpu_ns, teffi_os_process_cpu_ns());
    assert_in_range(seen->due_ns, 50 * MS, UINT64_MAX - 1);
    for (unsigned i = 0; i < 2; i++)
        if (teffi_thread_read_run_times(&sched->workers[i]->thread, &ran_ns, &delayed_ns))
            assert_in_range(sched->workers[i]->ran_ns, 1, ran_ns);
    end(exec);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_sample_is_due_each_50_ms_and_each_20_in_a_trial),
        cmocka_unit_test(a_trial_needs_a_sixth_of_delay),
        cmocka_unit_test(a_trial_needs_work_for_a_tenth_of_the_time),
        cmocka_unit_test(the_first_sample_begins_none),
        cmocka_unit_test(one_worker_is_the_least),
        cmocka_unit_test(a_late_sample_ends_limit_and_trial),
        cmocka_unit_test(the_limit_is_lowered_if_items_are_a_32nd_cheaper),
        cmocka_unit_test(a_lower_limit_is_kept_while_items_are_cheaper),
        cmocka_unit_test(another_workload_is_no_gain),
        cmocka_unit_test(the_mean_is_forgotten_after_12_s),
        cmocka_unit_test(each_pair_of_limits_has_its_own_mean),
        cmocka_unit_test(it_does_not_if_cores_are_free_with_the_higher_one),
        cmocka_unit_test(it_does_not_if_there_were_few_items),
        cmocka_unit_test(pauses_double_to_4_s_while_nothing_changes),
        cmocka_unit_test(limits_are_halved_and_doubled_in_turn),
        cmocka_unit_test(without_contention_the_highest_limit_is_tried),
        cmocka_unit_test(a_second_worker_is_woken_when_the_run_is_long),
        cmocka_unit_test(no_processor_is_borrowed_beside_enough_workers),
        cmocka_unit_test(a_processor_without_a_worker_does_not_count),
        cmocka_unit_test(a_dump_tells_of_the_limit),
        cmocka_unit_test(a_limit_that_is_lifted_wakes_a_worker),
        cmocka_unit_test(another_number_of_workers_ends_the_limit),
        cmocka_unit_test(a_tick_samples_what_was_done),
    };
    teffi_platform_init_real(&platform, TEFF_LOG_INFO);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
