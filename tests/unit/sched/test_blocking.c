/* test_blocking.c - processors and threads: a blocking region hands its processor over, the monitor
 * retakes it from a turn that takes too long, and the number of threads has a limit.
 * Source:  Go src/runtime/proc.go: handoffp, retake, sysmon */
#include "sched/retake.h"
#include "fiber_jobs.h"

static latch inside, done, gate_open;

static void until_released(void)
{
    while (!atomic_load(&gate_open.count))
        teffi_thread_yield();
}

static int setup(void **state)
{
    atomic_store(&inside.count, 0);
    atomic_store(&done.count, 0);
    atomic_store(&gate_open.count, 0);
    return 0;
}

/* ---- P and M ---- */

static void block_until_released(job *j)
{
    assert_true(had_processor(j->exec));
    teff_blocking_begin();
    assert_false(holds_processor(j->exec));
    latch_hit(&inside);
    until_released();
    teff_blocking_end();
    assert_true(had_processor(j->exec));
}

static void end_unbegun(job *j)
{
    teff_blocking_end();
    assert_true(had_processor(j->exec)); /* it may be retaken while this thread has no core */
    teff_blocking_begin();
    assert_false(holds_processor(j->exec));
    teff_blocking_end();
    assert_true(had_processor(j->exec));
}

/* Until the other has its processor again, which is this one's. */
static void compute_until_done(job *j)
{
    latch_hit(&gate_open);
    while (!atomic_load(&done.count))
        teffi_thread_yield();
}

/* Nothing else is queued: one worker waits for a processor, and the only one is in a long turn. */
static void test_a_worker_that_waits_gets_the_processor_of_a_long_turn(void **state)
{
    job blocks, computes;
    latch computed = {0};
    teffi_exec *exec = exec_of(1, NULL);
    job_init(&blocks, exec, block_until_released, &done);
    job_init(&computes, exec, compute_until_done, &computed);
    job_push(&blocks);
    latch_wait(&inside, 1);
    job_push(&computes);
    latch_wait(&done, 1);
    latch_wait(&computed, 1);
    exec->ops->free(exec);
}

/* There may be many more threads than processors: a thread in a blocking region has none. */
static void test_processors_are_apart_from_threads(void **state)
{
    enum { N = 12, PROCESSORS = 2 };
    static job jobs[N];
    teffi_exec *exec = exec_of(PROCESSORS, NULL);
    for (unsigned i = 0; i < N; i++) {
        job_init(&jobs[i], exec, block_until_released, &done);
        job_push(&jobs[i]);
    }
    latch_wait(&inside, N);
    assert_int_equal(real_of(exec)->n_processors, PROCESSORS);
    pthread_mutex_lock(&real_of(exec)->idle_lock);
    assert_true(real_of(exec)->n_workers >= N);
    pthread_mutex_unlock(&real_of(exec)->idle_lock);
    latch_hit(&gate_open);
    latch_wait(&done, N);
    exec->ops->free(exec);
}

/* Regions of a thread that is no worker, and ends without a begin, are of no effect. */
static void test_regions_of_other_threads_and_unbegun_ones(void **state)
{
    static job one;
    teffi_exec *exec = exec_of(1, NULL);
    exec->ops->blocking_begin(exec);
    exec->ops->blocking_end(exec);
    job_init(&one, exec, end_unbegun, &done);
    job_push(&one);
    latch_wait(&done, 1);
    exec->ops->free(exec);
}

static void wait_for_peer_in_region(job *j)
{
    job_push(j->peer);
    teff_blocking_begin();
    teff_blocking_begin(); /* they nest */
    while (!atomic_load(&j->peer->runs))
        teffi_thread_yield();
    teff_blocking_end();
    teff_blocking_end();
    assert_true(had_processor(j->exec));
}

/* The thread that takes a processor over goes on with the groups in its deque. */
static void test_a_blocking_region_hands_the_processor_over(void **state)
{
    teff_blocking_begin(); /* outside of any turn: nothing */
    teff_blocking_end();
    for (unsigned i = 1; i <= 100; i++) {
        teffi_exec *exec = exec_of(1, NULL);
        job a, b;
        job_init(&a, exec, wait_for_peer_in_region, &done);
        job_init(&b, exec, job_nothing, NULL);
        a.peer = &b;
        job_push(&a);
        latch_wait(&done, i);
        exec->ops->free(exec);
    }
}

/* ---- sysmon retakes ---- */

static void spin_until_released(job *j)
{
    latch_hit(&inside);
    while (!atomic_load(&gate_open.count))
        ;
}

static void others_go_on(unsigned workers, unsigned hogs, void (*hog)(job *j))
{
    static job h[8];
    latch small_done = {0};
    teffi_exec *exec = exec_of(workers, NULL);
    job small;
    job_init(&small, exec, job_nothing, &small_done);
    for (unsigned i = 0; i < hogs; i++) {
        job_init(&h[i], exec, hog, &done);
        job_push(&h[i]);
    }
    latch_wait(&inside, hogs);
    for (unsigned i = 1; i <= 20; i++) {
        job_push(&small);
        latch_wait(&small_done, i);
    }
    assert_int_equal(atomic_load(&done.count), 0);
    latch_hit(&gate_open);
    latch_wait(&done, hogs);
    exec->ops->free(exec);
}

static void test_one_hog_on_the_only_worker(void **state)
{
    others_go_on(1, 1, spin_until_released);
}

/* As many endless loops as there are processors, and more. */
static void test_a_hog_on_each_worker_and_more(void **state)
{
    others_go_on(2, 3, spin_until_released);
}

/* ---- how many threads ---- */

static _Atomic bool computed_enough;

static void compute(job *j)
{
    while (!atomic_load(&computed_enough))
        ;
}

static uint32_t threads_of(teffi_exec *exec)
{
    teff_sched_metrics all;
    (void)teffi_exec_metrics(exec, &all, NULL, 0);
    return all.threads;
}

/* Turns that only compute gain nothing from more threads than about twice the processors. */
static void test_computing_turns_are_few_threads(void **state)
{
    enum { PROCESSORS = 2, TURNS = 30, TICKS = 100 };
    static job jobs[TURNS];
    teffi_exec *exec = exec_of(PROCESSORS, NULL);
    atomic_store(&computed_enough, false);
    for (unsigned i = 0; i < TURNS; i++) {
        job_init(&jobs[i], exec, compute, &done);
        job_push(&jobs[i]);
    }
    /* As long as the monitor would need to make a thread of each. */
    for (unsigned i = 0; i < TICKS; i++) {
        uint32_t from = teffi_coarse_ms(exec);
        while (teffi_coarse_ms(exec) == from)
            teffi_thread_yield();
    }
    assert_in_range(threads_of(exec), PROCESSORS, 2 * PROCESSORS);
    atomic_store(&computed_enough, true);
    latch_wait(&done, TURNS);
    exec->ops->free(exec);
}

static _Atomic uint64_t skipped_ns; /* of the clock */

static uint64_t skipping_clock(void *arg)
{
    static teffi_platform clock;
    if (!clock.mono_ns)
        teffi_platform_init_real(&clock, TEFF_LOG_ERROR);
    return clock.mono_ns(clock.arg) + atomic_load(&skipped_ns);
}

/* Those whose sleep would be over by the clock. */
static void wake_spares(teffi_sched *real)
{
    teffi_worker *w;
    pthread_mutex_lock(&real->idle_lock);
    TAILQ_FOREACH (w, &real->in_state[TEFFI_WORKER_SPARE], link)
        if (w->sleeps_until_ns <= skipping_clock(NULL))
            teffi_parker_wake(&w->parker.parker);
    pthread_mutex_unlock(&real->idle_lock);
}

/* All workers but those of the processors: their threads have ended and were joined. */
static bool all_spare_are_gone(teffi_sched *real)
{
    unsigned vacant = 0;
    teffi_worker *w;
    pthread_mutex_lock(&real->idle_lock);
    TAILQ_FOREACH (w, &real->in_state[TEFFI_WORKER_VACANT], link)
        vacant++;
    bool gone = vacant == real->n_workers - real->n_processors;
    pthread_mutex_unlock(&real->idle_lock);
    return gone;
}

/* jobs: not those of an earlier call, whose last turns may still be ending. */
static void block_many(teffi_exec *exec, job *jobs, unsigned n)
{
    (void)setup(NULL);
    for (unsigned i = 0; i < n; i++) {
        job_init(&jobs[i], exec, block_until_released, &done);
        job_push(&jobs[i]);
    }
    latch_wait(&inside, n);
    assert_true(threads_of(exec) >= n);
    latch_hit(&gate_open);
    latch_wait(&done, n);
}

/* Threads that nobody has needed for long end; when they are needed again, new ones start. */
static void test_spare_threads_end(void **state)
{
    enum { PROCESSORS = 2, N = 12, ROUNDS = 3 };
    static job jobs[ROUNDS][N];
    teffi_platform before = platform;
    platform.mono_ns = skipping_clock;
    teffi_exec *exec = exec_of(PROCESSORS, NULL);
    for (unsigned round = 0; round < ROUNDS; round++) {
        block_many(exec, jobs[round], N);
        while (!all_spare_are_gone(real_of(exec))) {
            atomic_fetch_add(&skipped_ns, 20000000000u);
            wake_spares(real_of(exec));
            teffi_thread_yield();
        }
        assert_int_equal(threads_of(exec), PROCESSORS);
        assert_in_range(real_of(exec)->n_workers, N, N + PROCESSORS); /* the same ones again */
    }
    exec->ops->free(exec);
    platform = before;
}

static teffi_worker *first_in(teffi_sched *real, teffi_worker_state state)
{
    pthread_mutex_lock(&real->idle_lock);
    teffi_worker *w = teffi_worker_latest_in_state(real, state);
    pthread_mutex_unlock(&real->idle_lock);
    return w;
}

/* A turn that has blocked takes the only processor back, from a worker that is parked and sleeps
 * on: that thread ends, too. */
static void test_a_thread_that_loses_its_processor_while_parked_ends(void **state)
{
    job blocks, small;
    latch small_done = {0};
    teffi_platform before = platform;
    platform.mono_ns = skipping_clock;
    teffi_exec *exec = exec_of(1, NULL);
    teffi_sched *real = real_of(exec);
    job_init(&blocks, exec, block_until_released, &done);
    job_init(&small, exec, job_nothing, &small_done);
    job_push(&blocks);
    latch_wait(&inside, 1);
    job_push(&small);
    latch_wait(&small_done, 1);
    while (!first_in(real, TEFFI_WORKER_PARKED))
        teffi_thread_yield();
    latch_hit(&gate_open);
    latch_wait(&done, 1);
    const teffi_worker *spare = first_in(real, TEFFI_WORKER_SPARE);
    assert_non_null(spare);
    assert_true(spare->sleeps_until_ns <= skipping_clock(NULL) + 10000000000u);
    while (!all_spare_are_gone(real)) {
        atomic_fetch_add(&skipped_ns, 20000000000u);
        wake_spares(real);
        teffi_thread_yield();
    }
    exec->ops->free(exec);
    platform = before;
}

static teffi_parker nobody_wakes;

static void sleep_undeclared(job *j)
{
    latch_hit(&inside);
    while (!atomic_load(&gate_open.count))
        teffi_parker_wait(&nobody_wakes, 20000000);
}

/* A processor is retaken from a thread in a long system call, declared or not. */
static void test_a_system_call_that_was_not_declared(void **state)
{
    others_go_on(1, 1, sleep_undeclared);
}

static teffi_timer late;
static latch fired;

static void on_late(teffi_timer *timer)
{
    latch_hit(&fired);
}

/* Loses its processor, then does all a turn may do, which must not touch what is another's now. */
static void act_without_processor(job *j)
{
    latch_hit(&inside);
    do {
        while (holds_processor(j->exec))
            ;
    } while (!lost_processor(j->exec));
    job_push(j->peer);
    late = (teffi_timer){.fire = on_late};
    j->exec->ops->timer_set(j->exec, &late, 0);
    if (j->exec->ops->run_nested)
        assert_false(j->exec->ops->run_nested(j->exec));
    while (!atomic_load(&j->peer->runs) || !atomic_load(&fired.count))
        teffi_thread_yield();
    if (atomic_load(&j->runs) % 2)
        return;
    /* A region entered without a processor is left with one. */
    teff_blocking_begin();
    teff_blocking_end();
    assert_true(had_processor(j->exec));
}

static void test_a_turn_goes_on_without_its_processor(void **state)
{
    latch filler_done = {0};
    teffi_exec *exec = exec_of(1, NULL);
    job a, b, filler;
    job_init(&a, exec, act_without_processor, &done);
    job_init(&b, exec, job_nothing, NULL);
    job_init(&filler, exec, job_nothing, &filler_done);
    a.peer = &b;
    for (unsigned i = 1; i <= 6; i++) {
        atomic_store(&b.runs, 0);
        atomic_store(&fired.count, 0);
        job_push(&a);
        latch_wait(&inside, i);
        job_push(&filler); /* what the monitor retakes the processor for */
        latch_wait(&done, i);
        latch_wait(&filler_done, i);
    }
    exec->ops->free(exec);
}

/* ---- no work and no processor is lost, whenever processors are retaken ---- */

enum { RUNNERS = 24, HOPS = 5000, RETAKES = 100 };

static job runners[RUNNERS];
static _Atomic unsigned hops;
static _Atomic bool enough;

static void hop(job *j)
{
    unsigned n = atomic_fetch_add(&hops, 1);
    for (unsigned i = 0; i < n % 5000; i++)
        (void)atomic_load(&enough);
    if (!atomic_load(&enough))
        job_push(j->peer);
    if (n % 7 == 0) {
        teff_blocking_begin();
        teff_blocking_end();
    }
    if (n % 11 == 0)
        teffi_thread_yield();
}

static void retake_all(teffi_sched *real, unsigned *taken)
{
    for (unsigned i = 0; i < real->n_processors; i++) {
        uint64_t run = atomic_load(&real->processors[i].runs);
        *taken += teffi_retake_processor(real, &real->processors[i], run);
    }
}

static void test_processors_retaken_all_the_time(void **state)
{
    unsigned taken = 0;
    teffi_exec *exec = exec_of(3, NULL);
    atomic_store(&hops, 0);
    atomic_store(&enough, false);
    for (unsigned i = 0; i < RUNNERS; i++) {
        job_init(&runners[i], exec, hop, NULL);
        runners[i].peer = &runners[(i + 1) % RUNNERS];
    }
    /* Two runners may meet in one: fill up from outside. */
    while (atomic_load(&hops) < HOPS || taken < RETAKES) {
        for (unsigned i = 0; i < RUNNERS; i += 4)
            job_push(&runners[i]);
        retake_all(real_of(exec), &taken);
    }
    atomic_store(&enough, true);
    /* Each processor is held by one thread, or free; and work still gets done. */
    job last;
    job_init(&last, exec, job_nothing, &done);
    for (unsigned i = 1; i <= 1000; i++) {
        job_push(&last);
        latch_wait(&done, i);
    }
    teffi_sched *real = real_of(exec);
    pthread_mutex_lock(&real->idle_lock);
    unsigned held = 0;
    for (unsigned i = 0; i < real->n_workers; i++)
        held += real->workers[i]->processor != NULL;
    for (unsigned i = 0; i < real->n_processors; i++)
        held += !real->processors[i].worker;
    assert_int_equal(held, real->n_processors);
    pthread_mutex_unlock(&real->idle_lock);
    exec->ops->free(exec);
}

/* ---- SetMaxThreads ---- */

static char logged[512];
static latch refused;

static void note_line(void *arg, teff_log_level level, const char *line)
{
    if (level != TEFF_LOG_ERROR)
        return;
    snprintf(logged, sizeof logged, "%s", line);
    latch_hit(&refused);
}

/* Two threads at most, a hog on each: the third turn waits, the log says why, and it goes on when
 * one of the two comes back. */
static void test_the_limit_on_threads(void **state)
{
    teff_sched_options opt = {.threads_max = 2};
    teffi_log before = platform.log;
    job hog[2], small;
    latch small_done = {0};
    platform.log = (teffi_log){.write = note_line, .level = TEFF_LOG_ERROR};
    atomic_store(&refused.count, 0);
    teffi_exec *exec = exec_of(1, &opt);
    for (unsigned i = 0; i < 2; i++) {
        job_init(&hog[i], exec, spin_until_released, &done);
        job_push(&hog[i]);
    }
    latch_wait(&inside, 2);
    job_init(&small, exec, job_nothing, &small_done);
    job_push(&small);
    latch_wait(&refused, 1);
    assert_non_null(strstr(logged, "threads_max"));
    assert_non_null(strstr(logged, "2 threads"));
    assert_int_equal(atomic_load(&small_done.count), 0);
    latch_hit(&gate_open);
    latch_wait(&small_done, 1);
    latch_wait(&done, 2);
    for (unsigned i = 2; i <= 100; i++) {
        job_push(&small);
        latch_wait(&small_done, i);
    }
    assert_int_equal(atomic_load(&refused.count), 1); /* said once */
    assert_int_equal(real_of(exec)->n_workers, 2);
    exec->ops->free(exec);
    platform.log = before;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup(test_processors_are_apart_from_threads, setup),
        cmocka_unit_test_setup(test_regions_of_other_threads_and_unbegun_ones, setup),
        cmocka_unit_test_setup(test_a_blocking_region_hands_the_processor_over, setup),
        cmocka_unit_test_setup(test_a_worker_that_waits_gets_the_processor_of_a_long_turn, setup),
        cmocka_unit_test_setup(test_one_hog_on_the_only_worker, setup),
        cmocka_unit_test_setup(test_a_hog_on_each_worker_and_more, setup),
        cmocka_unit_test_setup(test_computing_turns_are_few_threads, setup),
        cmocka_unit_test_setup(test_a_thread_that_loses_its_processor_while_parked_ends, setup),
        cmocka_unit_test_setup(test_spare_threads_end, setup),
        cmocka_unit_test_setup(test_a_system_call_that_was_not_declared, setup),
        cmocka_unit_test_setup(test_a_turn_goes_on_without_its_processor, setup),
        cmocka_unit_test_setup(test_processors_retaken_all_the_time, setup),
        cmocka_unit_test_setup(test_the_limit_on_threads, setup),
    };
    teffi_platform_init_real(&platform, TEFF_LOG_INFO);
    return cmocka_run_group_tests_name("sched/blocking", tests, NULL, NULL);
}
