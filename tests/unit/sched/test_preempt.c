/* test_preempt.c - a program whose loops call nothing ends, by each way to yield and by none of
 * them; preemption by a signal in regions that declare it.
 * Source:  Go src/runtime/preempt.go */
#include <teff/process.h>
#include "fiber/sanitize.h"
#include "fiber_jobs.h"

static latch inside, done;
static _Atomic bool stop;

static int setup(void **state)
{
    atomic_store(&inside.count, 0);
    atomic_store(&done.count, 0);
    atomic_store(&stop, false);
    return 0;
}

static bool stopped(void)
{
    return atomic_load_explicit(&stop, memory_order_relaxed);
}

/* ---- the program: for i < threads { go func() { for { x++ } }() }; sleep; print x ---- */

enum { THREADS = 2 };

static _Atomic uint64_t x;
static char printed[64];

static void count_up(void)
{
    atomic_store_explicit(&x, atomic_load_explicit(&x, memory_order_relaxed) + 1,
                          memory_order_relaxed);
}

static teff_err loop_calls_nothing(void *self, teff_process *me)
{
    latch_hit(&inside);
    while (!stopped())
        count_up();
    return TEFF_OK;
}

static teff_err loop_in_a_region(void *self, teff_process *me)
{
    latch_hit(&inside);
    teff_preemptible region = teff_preemptible_begin();
    while (!stopped())
        count_up();
    teff_preemptible_end(region);
    return TEFF_OK;
}

static teff_err loop_with_gosched(void *self, teff_process *me)
{
    latch_hit(&inside);
    while (!stopped()) {
        count_up();
        (void)teff_yield_if_due();
    }
    return TEFF_OK;
}

static teff_err loop_with_sleep_0(void *self, teff_process *me)
{
    latch_hit(&inside);
    while (!stopped()) {
        count_up();
        if (teff_process_yield(me) != TEFF_OK)
            break;
    }
    return TEFF_OK;
}

static teff_err main_prints_x(void *self, teff_process *me)
{
    teff_err err = teff_process_sleep(me, 100);
    snprintf(printed, sizeof printed, "x = %llu", (unsigned long long)atomic_load(&x));
    latch_hit(&done);
    return err;
}

static void the_program(uint32_t flags, teff_err (*loop)(void *self, teff_process *me))
{
    const teff_process_ops loop_ops = {.name = "loop", .flags = flags, .run = loop};
    const teff_process_ops main_ops = {
        .name = "main", .flags = TEFF_PROCESS_FIBER, .run = main_prints_x};
    teff_process_options opt = {.size = sizeof opt, .workers = THREADS};
    teff_process_system *system = NULL;
    (void)setup(NULL);
    memset(printed, 0, sizeof printed);
    atomic_store(&x, 0);
    assert_int_equal(teff_process_system_new(&opt, &system), TEFF_OK);
    for (unsigned i = 0; i < THREADS; i++)
        assert_int_equal(teff_process_spawn(system, &loop_ops, NULL, NULL, NULL, 0, NULL), TEFF_OK);
    latch_wait(&inside, THREADS); /* a loop on each worker before main begins */
    while (!atomic_load(&x))      /* and they count */
        teffi_thread_yield();
    assert_int_equal(teff_process_spawn(system, &main_ops, NULL, NULL, NULL, 0, NULL), TEFF_OK);
    latch_wait(&done, 1);
    assert_int_equal(strncmp(printed, "x = ", 4), 0);
    assert_string_not_equal(printed, "x = 0");
    atomic_store(&stop, true);
    teff_process_system_free(system);
}

static void test_the_program_ends_although_its_loops_call_nothing(void **state)
{
    the_program(TEFF_PROCESS_FIBER, loop_calls_nothing);
    the_program(0, loop_calls_nothing);
}

static void test_the_program_with_preemptible_loops(void **state)
{
    the_program(TEFF_PROCESS_FIBER, loop_in_a_region);
    the_program(0, loop_in_a_region);
}

static void test_the_program_with_each_of_its_solutions(void **state)
{
    the_program(TEFF_PROCESS_FIBER, loop_with_gosched);
    the_program(0, loop_with_gosched);
    the_program(TEFF_PROCESS_FIBER, loop_with_sleep_0);
}

/* ---- stopped for real ---- */

/* What a turn that is stopped anywhere must find again: integer and vector registers. */
typedef struct numbers {
    uint64_t a, b, c, d;
    double f[8];
} numbers;

static void compute(numbers *n, unsigned rounds)
{
    for (unsigned i = 0; i < rounds; i++) {
        n->a = n->a * 6364136223846793005u + 1442695040888963407u;
        n->b ^= n->a >> 17;
        n->c += n->b ^ n->a << 5;
        n->d = (n->d << 7 | n->d >> 57) + n->c;
        for (unsigned k = 0; k < 8; k++)
            n->f[k] = n->f[k] * 0.99 + (double)(n->a >> (40 + k)) * 1e-6;
    }
}

enum { ROUNDS = 4000000, LOOPS = 4 };

static numbers expected, got[LOOPS];
static _Atomic unsigned began;
static _Atomic unsigned moved;

static void compute_in_a_region(job *j)
{
    numbers n = {.a = 1, .f = {1, 2, 3, 4, 5, 6, 7, 8}};
    unsigned i = atomic_fetch_add(&began, 1) % LOOPS;
    teffi_worker *thread = teffi_worker_self(); /* pthread_self() would be cached */
    latch_hit(&inside);
    teff_preemptible region = teff_preemptible_begin();
    compute(&n, ROUNDS);
    teff_preemptible_end(region);
    got[i] = n;
    atomic_fetch_add(&moved, thread != teffi_worker_self());
}

static uint64_t requeues(teffi_exec *exec)
{
    teff_sched_worker workers[8];
    uint64_t sum = 0;
    size_t n = teffi_exec_metrics(exec, NULL, workers, 8);
    for (size_t i = 0; i < n; i++)
        sum += workers[i].requeues;
    return sum;
}

/* More computations than workers, which call nothing: they are stopped and go on, some of them in
 * another thread, until all have the right result. */
static void test_a_signal_stops_a_region_anywhere(void **state)
{
    static fjob f[LOOPS];
    expected = (numbers){.a = 1, .f = {1, 2, 3, 4, 5, 6, 7, 8}};
    compute(&expected, ROUNDS);
    teffi_exec *exec = exec_of(2, NULL);
    atomic_store(&moved, 0);
    for (unsigned i = 0; i < LOOPS; i++)
        fjob_init(&f[i], exec, compute_in_a_region, &done);
    unsigned rounds = 0;
    do {
        memset(got, 0, sizeof got);
        atomic_store(&began, 0);
        for (unsigned i = 0; i < LOOPS; i++)
            job_push(&f[i].job);
        latch_wait(&done, ++rounds * LOOPS);
        for (unsigned i = 0; i < LOOPS; i++)
            assert_memory_equal(&got[i], &expected, sizeof expected);
#ifdef TEFFI_TSAN
    } while (rounds < 2); /* nothing is stopped there, see preempt.c */
#else
    } while (requeues(exec) < 20 || !atomic_load(&moved));
#endif
    exec->ops->free(exec);
}

/* Endless ones, on one worker: all begin, so each was stopped; and others run. */
static void loop_until_stopped(job *j)
{
    latch_hit(&inside);
    teff_preemptible region = teff_preemptible_begin();
    while (!stopped())
        ;
    teff_preemptible_end(region);
}

#ifdef TEFFI_TSAN
enum {
    ENDLESS = 2
}; /* there they lose their processor instead, and few may: see sched/monitor.c */
#else
enum { ENDLESS = LOOPS };
#endif

static void test_endless_regions_take_turns(void **state)
{
    static fjob f[ENDLESS];
    latch small_done = {0};
    job small;
    teffi_exec *exec = exec_of(1, NULL);
    for (unsigned i = 0; i < ENDLESS; i++) {
        fjob_init(&f[i], exec, loop_until_stopped, &done);
        job_push(&f[i].job);
    }
    latch_wait(&inside, ENDLESS);
    job_init(&small, exec, job_nothing, &small_done);
    for (unsigned i = 1; i <= 10; i++) {
        job_push(&small);
        latch_wait(&small_done, i);
    }
#ifndef TEFFI_TSAN
    while (requeues(exec) < 20)
        teffi_thread_yield();
#endif
    assert_int_equal(atomic_load(&done.count), 0);
    atomic_store(&stop, true);
    latch_wait(&done, ENDLESS);
    exec->ops->free(exec);
}

/* Regions that begin and end all the time, as the signal comes. */
static void short_regions(job *j)
{
    latch_hit(&inside);
    while (!stopped()) {
        teff_preemptible region = teff_preemptible_begin();
        for (unsigned i = 0; i < 50 && !stopped(); i++)
            ;
        teff_preemptible_end(region);
    }
}

static void test_regions_that_begin_and_end_meanwhile(void **state)
{
    static fjob f[LOOPS];
    teffi_exec *exec = exec_of(2, NULL);
    for (unsigned i = 0; i < LOOPS; i++) {
        fjob_init(&f[i], exec, short_regions, &done);
        job_push(&f[i].job);
    }
    latch_wait(&inside, LOOPS);
    while (requeues(exec) < 30)
        teffi_thread_yield();
    atomic_store(&stop, true);
    latch_wait(&done, LOOPS);
    exec->ops->free(exec);
}

/* Outside of turns, and in turns without a stack of their own, a region is nothing. */
static void region_in_a_plain_turn(job *j)
{
    teff_preemptible region = teff_preemptible_begin();
    assert_null(region.turn);
    teff_preemptible_end(region);
}

static void test_regions_elsewhere_do_nothing(void **state)
{
    job j;
    region_in_a_plain_turn(NULL);
    teffi_exec *exec = exec_of(1, NULL);
    job_init(&j, exec, region_in_a_plain_turn, &done);
    job_push(&j);
    latch_wait(&done, 1);
    exec->ops->free(exec);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup(test_the_program_ends_although_its_loops_call_nothing, setup),
        cmocka_unit_test_setup(test_the_program_with_preemptible_loops, setup),
        cmocka_unit_test_setup(test_the_program_with_each_of_its_solutions, setup),
        cmocka_unit_test_setup(test_a_signal_stops_a_region_anywhere, setup),
        cmocka_unit_test_setup(test_endless_regions_take_turns, setup),
        cmocka_unit_test_setup(test_regions_that_begin_and_end_meanwhile, setup),
        cmocka_unit_test_setup(test_regions_elsewhere_do_nothing, setup),
    };
    teffi_platform_init_real(&platform, TEFF_LOG_INFO);
    return cmocka_run_group_tests_name("sched/preempt", tests, NULL, NULL);
}
