/* test_seed_go_slices.c - section 4.1 of the seed document: co-operative preemption. A turn whose
 * slice is over gives way at a call of teff's: what is READY runs, on the same worker. */
#include <teff/process.h>
#include "test_seed_go.h"

static latch inside, done, small_done;
static _Atomic bool stop;
static _Atomic unsigned gave_way;

static int setup(void **state)
{
    (void)state;
    atomic_store(&inside.count, 0);
    atomic_store(&done.count, 0);
    atomic_store(&small_done.count, 0);
    atomic_store(&stop, false);
    atomic_store(&gave_way, 0);
    return 0;
}

static void test_outside_of_a_turn_it_does_nothing(void **state)
{
    (void)state;
    assert_false(teff_reschedule());
}

/* "solution 3: runtime.Gosched()" */
static void spin_and_reschedule(job *j)
{
    (void)j;
    latch_hit(&inside);
    while (!atomic_load(&stop))
        atomic_fetch_add(&gave_way, teff_reschedule());
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

static void test_a_loop_gives_way(void **state)
{
    enum { N = 3 };
    static fjob hog[N];
    (void)state;
    teffi_exec *exec = exec_of(1, NULL);
    for (unsigned i = 0; i < N; i++) {
        fjob_init(&hog[i], exec, spin_and_reschedule, &done);
        job_push(&hog[i].job);
    }
    latch_wait(&inside, N); /* the first gave way, else the others had not begun ... */
    small_ones_run(exec, 20);
    while (atomic_load(&gave_way) < 20) /* ... and so on, by turns */
        teffi_thread_yield();
    assert_int_equal(atomic_load(&done.count), 0);
    atomic_store(&stop, true);
    latch_wait(&done, N);
    exec->ops->free(exec);
}

static void reschedule_once(job *j)
{
    (void)j;
    atomic_fetch_add(&gave_way, teff_reschedule());
}

/* out: how many of a hundred gave way. */
static unsigned short_turns_that_gave_way(void)
{
    static fjob f;
    (void)setup(NULL);
    teffi_exec *exec = exec_of(1, NULL);
    fjob_init(&f, exec, reschedule_once, &done);
    for (unsigned i = 1; i <= 100; i++) {
        job_push(&f.job);
        latch_wait(&done, i);
    }
    exec->ops->free(exec);
    return atomic_load(&gave_way);
}

/* A slice that is not over is not cut short, while nothing waits beside it. A monitor that the
 * machine made stand still may mean the turn before, which came late to a worker that slept. */
static void test_a_short_turn_does_not_give_way(void **state)
{
    (void)state;
    for (unsigned i = 0; i < 100; i++)
        if (short_turns_that_gave_way() == 0)
            return;
    fail_msg("100 times some gave way");
}

/* Without a stack of its own a turn cannot give way; the others run on another thread. */
static void test_a_turn_without_a_fiber_says_no(void **state)
{
    static job hog;
    (void)state;
    teffi_exec *exec = exec_of(1, NULL);
    job_init(&hog, exec, spin_and_reschedule, &done);
    job_push(&hog);
    latch_wait(&inside, 1);
    small_ones_run(exec, 20);
    assert_int_equal(atomic_load(&gave_way), 0);
    atomic_store(&stop, true);
    latch_wait(&done, 1);
    exec->ops->free(exec);
}

static _Atomic unsigned mine;

static void spin_and_count(job *j)
{
    (void)j;
    latch_hit(&inside);
    while (!atomic_load(&stop))
        atomic_fetch_add(&mine, teff_reschedule());
}

/* While a turn has given way its group handles nothing else. */
static void test_nothing_enters_a_group_that_gave_way(void **state)
{
    enum { N = 3 };
    static fjob f, others[N];
    static teffi_item more;
    (void)state;
    teffi_exec *exec = exec_of(2, NULL);
    atomic_store(&mine, 0);
    fjob_init(&f, exec, spin_and_count, &done);
    job_push(&f.job);
    for (unsigned i = 0; i < N; i++) {
        fjob_init(&others[i], exec, spin_and_reschedule, &done);
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
    (void)j;
    latch_hit(&inside);
    teff_blocking_begin();
    while (!atomic_load(&stop))
        teffi_thread_yield();
    teff_blocking_end();
    assert_true(had_slot(j->exec));
}

/* "if there is an idle P the M goes on with it, else G goes to the global queue": more regions end
 * at once than there are slots, all of which are in use. */
static void test_after_a_region_to_a_slot_or_the_global_queue(void **state)
{
    enum { N = 10 };
    static fjob f[N];
    (void)state;
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
    (void)self;
    for (size_t i = 0; i < n; i++) {
        if (events[i].kind == TEFF_EVENT_CANCEL)
            return teff_step_done(out);
        latch_hit(&small_done);
    }
    return teff_step_idle(out);
}

static teff_err send_for_ever(void *self, teff_process *me)
{
    (void)self;
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
        if (teff_pid_is(infos[i].pid, pid))
            return infos[i].turns;
    return 0;
}

static void test_a_process_gives_way_when_it_sends(void **state)
{
    static const teff_process_ops sink_ops = {.name = "sink", .step = sink_step};
    static const teff_process_ops hog_ops = {
        .name = "sender", .flags = TEFF_PROCESS_FIBER, .run = send_for_ever};
    teff_process_options opt = {.workers = 1};
    teff_process_system *system = NULL;
    teff_pid hog[2];
    (void)state;
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
        cmocka_unit_test_setup(test_a_loop_gives_way, setup),
        cmocka_unit_test_setup(test_a_short_turn_does_not_give_way, setup),
        cmocka_unit_test_setup(test_a_turn_without_a_fiber_says_no, setup),
        cmocka_unit_test_setup(test_nothing_enters_a_group_that_gave_way, setup),
        cmocka_unit_test_setup(test_after_a_region_to_a_slot_or_the_global_queue, setup),
        cmocka_unit_test_setup(test_a_process_gives_way_when_it_sends, setup),
    };
    teffi_platform_real(&platform, TEFFI_INFO);
    return cmocka_run_group_tests_name("sched/seed go slices", tests, NULL, NULL);
}
