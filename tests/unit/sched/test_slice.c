/* test_slice.c - co-operative preemption: a turn whose slice is over yields at its next call of
 * teff's, and what is READY runs on the same worker.
 * Source:  Go src/runtime/proc.go: preemptone */
#include <teff/process.h>
#include "fiber_jobs.h"
#include "held_monitor.h"

static latch inside, done, small_done;
static _Atomic bool stop;
static _Atomic unsigned yields;

static int setup(void **state)
{
    atomic_store(&inside.count, 0);
    atomic_store(&done.count, 0);
    atomic_store(&small_done.count, 0);
    atomic_store(&stop, false);
    atomic_store(&yields, 0);
    return 0;
}

static void test_outside_of_a_turn_it_does_nothing(void **state)
{
    assert_false(teff_yield_if_due());
}

static void spin_and_yield(job *j)
{
    latch_hit(&inside);
    while (!atomic_load(&stop))
        atomic_fetch_add(&yields, teff_yield_if_due());
}

static void small_ones_run(teffi_exec *exec, unsigned n)
{
    job small;
    job_init(&small, exec, job_nothing, &small_done);
    for (unsigned i = 1; i <= n; i++) {
        job_push(&small);
        latch_wait(&small_done, i);
    }
    /* Its memory goes: until its group rests. */
    while (teffi_group_state_of(&small.group) != TEFFI_GROUP_IDLE)
        teffi_thread_yield();
}

static void test_a_loop_yields(void **state)
{
    enum { N = 3 };
    static fjob hog[N];
    teffi_exec *exec = exec_of(1, NULL);
    for (unsigned i = 0; i < N; i++) {
        fjob_init(&hog[i], exec, spin_and_yield, &done);
        job_push(&hog[i].job);
    }
    latch_wait(&inside, N); /* the first yielded, else the others had not begun ... */
    small_ones_run(exec, 20);
    while (atomic_load(&yields) < 20) /* ... and so on, by turns */
        teffi_thread_yield();
    assert_int_equal(atomic_load(&done.count), 0);
    atomic_store(&stop, true);
    latch_wait(&done, N);
    exec->ops->free(exec);
}

static unsigned ticks_before_yield;

static void yield_when_due(job *j)
{
    if (j->peer)
        job_push(j->peer);
    for (ticks_before_yield = 0; ticks_before_yield < 20; ticks_before_yield++) {
        if (teff_yield_if_due())
            return;
        monitor_tick();
    }
}

/* Near zero, so that the monitor does not look for long turns: that would be more readings. */
static uint64_t standing_clock(void *arg)
{
    return 1000000;
}

/* out: ticks of the monitor until the turn yielded; 20: it did not. */
static unsigned ticks_of_a_slice(job *waits, uint32_t slice_ms)
{
    static fjob f;
    const teff_sched_options opt = {.size = sizeof opt, .slice_ms = slice_ms};
    teffi_platform before = platform;
    atomic_store(&done.count, 0);
    platform.mono_ns = standing_clock;
    monitor_hold(&platform);
    teffi_exec *exec = exec_of(1, &opt);
    if (waits)
        job_init(waits, exec, job_nothing, &small_done);
    fjob_init(&f, exec, yield_when_due, &done);
    f.job.peer = waits;
    job_push(&f.job);
    latch_wait(&done, 1);
    monitor_release();
    exec->ops->free(exec);
    platform = before;
    return ticks_before_yield;
}

/* A slice lasts 10 ms, which are at least five ticks of 2.5 ms: the turn may begin between two. */
static void test_a_slice_ends_while_others_wait(void **state)
{
    static job waits;
    assert_int_equal(ticks_of_a_slice(&waits, 0), 5);
    assert_int_equal(atomic_load(&waits.runs), 1);
    assert_int_equal(ticks_of_a_slice(&waits, 1), 2);
    assert_int_equal(ticks_of_a_slice(&waits, 25), 11);
}

static void test_a_slice_does_not_end_while_nobody_waits(void **state)
{
    assert_int_equal(ticks_of_a_slice(NULL, 0), 20);
}

static bool one_sleeps(teffi_exec *exec)
{
    teffi_sched *sched = teffi_sched_of(exec);
    pthread_mutex_lock(&sched->idle_lock);
    bool sleeps = teffi_worker_latest_in_state(sched, TEFFI_WORKER_PARKED);
    pthread_mutex_unlock(&sched->idle_lock);
    return sleeps;
}

static void push_and_spin(job *j)
{
    job_push(j->peer);
    latch_hit(&inside);
    while (!atomic_load(&stop))
        teffi_thread_yield();
}

/* The first tick sees the turn; at the second one it is long, and the worker that sleeps gets what
 * it has pushed. */
static void test_the_lifo_slot_of_a_long_turn(void **state)
{
    static job hog, next;
    teffi_platform before = platform;
    platform.mono_ns = standing_clock;
    monitor_hold(&platform);
    teffi_exec *exec = exec_of(2, NULL);
    job_init(&next, exec, job_nothing, &small_done);
    job_init(&hog, exec, push_and_spin, &done);
    hog.peer = &next;
    job_push(&hog);
    latch_wait(&inside, 1);
    while (!one_sleeps(exec))
        teffi_thread_yield();
    monitor_tick();
    monitor_tick();
    latch_wait(&small_done, 1);
    atomic_store(&stop, true);
    latch_wait(&done, 1);
    monitor_release();
    exec->ops->free(exec);
    platform = before;
}

static job behind;

static void yield_at_once(job *j)
{
    atomic_fetch_add(&yields, teff_yield());
    job_push(&behind);
    assert_int_equal(atomic_load(&behind.runs), 0);
    atomic_fetch_add(&yields, teff_yield());
    assert_int_equal(atomic_load(&behind.runs), 1);
}

/* Nobody asks for it: the monitor is held. */
static void test_a_turn_may_yield_before_its_slice_is_over(void **state)
{
    static fjob f;
    assert_false(teff_yield());
    monitor_hold(&platform);
    teffi_exec *exec = exec_of(1, NULL);
    job_init(&behind, exec, job_nothing, &small_done);
    fjob_init(&f, exec, yield_at_once, &done);
    job_push(&f.job);
    latch_wait(&done, 1);
    monitor_release();
    exec->ops->free(exec);
    assert_int_equal(atomic_load(&yields), 2);
}

/* Without a stack of its own a turn cannot yield; the others run on another thread. */
static void test_a_turn_without_a_fiber_says_no(void **state)
{
    static job hog;
    teffi_exec *exec = exec_of(1, NULL);
    job_init(&hog, exec, spin_and_yield, &done);
    job_push(&hog);
    latch_wait(&inside, 1);
    small_ones_run(exec, 20);
    assert_int_equal(atomic_load(&yields), 0);
    atomic_store(&stop, true);
    latch_wait(&done, 1);
    exec->ops->free(exec);
}

static _Atomic unsigned mine;

static void spin_and_count(job *j)
{
    latch_hit(&inside);
    while (!atomic_load(&stop))
        atomic_fetch_add(&mine, teff_yield_if_due());
}

/* While a turn that has yielded waits to go on, its group handles nothing else. */
static void test_nothing_enters_a_group_that_yielded(void **state)
{
    enum { N = 3 };
    static fjob f, others[N];
    static teffi_item more;
    teffi_exec *exec = exec_of(2, NULL);
    atomic_store(&mine, 0);
    fjob_init(&f, exec, spin_and_count, &done);
    job_push(&f.job);
    for (unsigned i = 0; i < N; i++) {
        fjob_init(&others[i], exec, spin_and_yield, &done);
        job_push(&others[i].job);
    }
    latch_wait(&inside, 1 + N);
    assert_true(teffi_group_push(&f.job.group, &more));
    while (atomic_load(&mine) < 5)
        teffi_thread_yield();
    assert_int_equal(atomic_load(&inside.count), 1 + N);
    assert_int_equal(atomic_load(&f.job.runs), 0);
    atomic_store(&stop, true);
    latch_wait(&done, 2 + N);
    assert_int_equal(atomic_load(&f.job.runs), 2);
    exec->ops->free(exec);
}

static void end_a_region(job *j)
{
    latch_hit(&inside);
    teff_blocking_begin();
    while (!atomic_load(&stop))
        teffi_thread_yield();
    teff_blocking_end();
    assert_true(had_processor(j->exec));
}

/* A turn whose blocking region ends goes on with an idle processor, else through the global queue.
 * Here more regions end at once than there are processors, all of which are in use. */
static void test_after_a_region_to_a_processor_or_the_global_queue(void **state)
{
    enum { N = 10 };
    static fjob f[N];
    teffi_exec *exec = exec_of(1, NULL);
    for (unsigned i = 0; i < N; i++) {
        fjob_init(&f[i], exec, end_a_region, &done);
        job_push(&f[i].job);
    }
    latch_wait(&inside, N);
    atomic_store(&stop, true);
    latch_wait(&done, N);
    small_ones_run(exec, 20);
    exec->ops->free(exec);
}

/* ---- processes: every call looks ---- */

static teff_pid sink;

static teff_err sink_step(void *self, const teff_event *events, size_t n, teff_step *out)
{
    for (size_t i = 0; i < n; i++) {
        if (events[i].kind == TEFF_EVENT_CANCEL)
            return teff_step_done(out);
        latch_hit(&small_done);
    }
    return teff_step_idle(out);
}

static teff_err send_for_ever(void *self, teff_process *me)
{
    teff_process_system *system = teff_process_system_of(me);
    latch_hit(&inside);
    while (!atomic_load(&stop))
        if (teff_process_send(system, sink, &(teff_event){.tag = 1}) == TEFF_E_NOT_FOUND)
            return TEFF_E_FAILED;
    return TEFF_OK;
}

static uint64_t turns_of(teff_process_system *system, teff_pid pid)
{
    teff_process_info infos[8];
    size_t n = teff_process_list(system, infos, 8);
    for (size_t i = 0; i < n; i++)
        if (teff_pid_equals(infos[i].pid, pid))
            return infos[i].turns;
    return 0;
}

static void test_a_process_yields_when_it_sends(void **state)
{
    static const teff_process_ops sink_ops = {.name = "sink", .step = sink_step};
    static const teff_process_ops hog_ops = {
        .name = "sender", .flags = TEFF_PROCESS_FIBER, .run = send_for_ever};
    teff_process_options opt = {.size = sizeof opt, .workers = 1};
    teff_process_system *system = NULL;
    teff_pid hog[2];
    assert_int_equal(teff_process_system_new(&opt, &system), TEFF_OK);
    assert_int_equal(teff_process_spawn(system, &sink_ops, NULL, NULL, NULL, 0, &sink), TEFF_OK);
    for (int i = 0; i < 2; i++)
        assert_int_equal(teff_process_spawn(system, &hog_ops, NULL, NULL, NULL, 0, &hog[i]),
                         TEFF_OK);
    latch_wait(&inside, 2);
    latch_wait(&small_done, 100);
    while (turns_of(system, hog[0]) < 5 || turns_of(system, hog[1]) < 5)
        teffi_thread_yield();
    atomic_store(&stop, true);
    teff_process_system_free(system);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup(test_outside_of_a_turn_it_does_nothing, setup),
        cmocka_unit_test_setup(test_a_loop_yields, setup),
        cmocka_unit_test_setup(test_a_slice_ends_while_others_wait, setup),
        cmocka_unit_test_setup(test_a_slice_does_not_end_while_nobody_waits, setup),
        cmocka_unit_test_setup(test_the_lifo_slot_of_a_long_turn, setup),
        cmocka_unit_test_setup(test_a_turn_may_yield_before_its_slice_is_over, setup),
        cmocka_unit_test_setup(test_a_turn_without_a_fiber_says_no, setup),
        cmocka_unit_test_setup(test_nothing_enters_a_group_that_yielded, setup),
        cmocka_unit_test_setup(test_after_a_region_to_a_processor_or_the_global_queue, setup),
        cmocka_unit_test_setup(test_a_process_yields_when_it_sends, setup),
    };
    teffi_platform_init_real(&platform, TEFF_LOG_INFO);
    return cmocka_run_group_tests_name("sched/slice", tests, NULL, NULL);
}
