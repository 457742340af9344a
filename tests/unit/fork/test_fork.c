/* test_fork.c - fork and join with child stealing and with continuation stealing.
 * Source:  Blumofe and Leiserson 1999, work stealing */
#include <teff/fork.h>
#include <teff/process.h>
#include "../death.h"
#include "../sched/fiber_jobs.h"
#include "../sched/held_monitor.h"
#include "fork/fork.h"

static latch done;

static int setup(void **state)
{
    atomic_store(&done.count, 0);
    return 0;
}

static void run_turn(teffi_exec *exec, void (*run)(job *j))
{
    static fjob f;
    (void)setup(NULL);
    fjob_init(&f, exec, run, &done);
    job_push(&f.job);
    latch_wait(&done, 1);
}

static void in_a_turn(unsigned workers, void (*run)(job *j))
{
    teffi_exec *exec = exec_of(workers, NULL);
    run_turn(exec, run);
    exec->ops->free(exec);
}

/* ---- the order, when nobody steals ---- */

static char order[8];
static _Atomic unsigned n_order;

static void note(char name)
{
    order[atomic_fetch_add(&n_order, 1) % sizeof order] = name;
}

static void f_of(void *arg)
{
    note('f');
}

static void e_f_g(teff_steal how)
{
    teff_join join = {{0}};
    note('e');
    teff_fork(&join, how, f_of, NULL);
    note('g');
    teff_join_wait(&join);
    note('j');
}

static void child(job *j)
{
    e_f_g(TEFF_STEAL_CHILD);
}

static void continuation(job *j)
{
    e_f_g(TEFF_STEAL_CONTINUATION);
}

/* With one worker, and without a monitor that gives its processor to another thread. */
static void order_is(void (*run)(job *j), const char *expected)
{
    memset(order, 0, sizeof order);
    atomic_store(&n_order, 0);
    monitor_hold(&platform);
    teffi_exec *exec = exec_of(1, NULL);
    run_turn(exec, run);
    monitor_release();
    exec->ops->free(exec);
    assert_string_equal(order, expected);
}

/* Child stealing: f goes into the deque, and the turn goes on with g. */
static void test_child_stealing_goes_on_with_the_parent(void **state)
{
    order_is(child, "egfj");
}

/* Continuation stealing: unless the turn is stolen, f runs before g, as in a function call. */
static void test_continuation_stealing_is_like_a_call(void **state)
{
    order_is(continuation, "efgj");
}

/* ---- policies: a part goes where its turn's group would go ---- */

static job urgent, lazy;
static teff_steal how_now;

static bool refuses_nothing(teffi_group *group, teffi_item *item)
{
    return false;
}

/* Groups without ops->evict are the runtime's own and come first, so these have it. */
static const teffi_group_ops ranked_ops = {.handle = job_handle, .evict = refuses_nothing};
static const teffi_group_ops ranked_fiber_ops = {
    .handle = fjob_handle, .resume = fjob_resume, .evict = refuses_nothing};

static void note_urgent(job *j)
{
    note('u');
}

static void note_lazy(job *j)
{
    note('l');
}

static void between_others(job *j)
{
    job_push(&lazy);
    job_push(&urgent);
    e_f_g(how_now);
}

static void ranked(job *j, teffi_exec *exec, void (*run)(job *j), int8_t priority)
{
    job_init(j, exec, run, &done);
    teffi_group_init(&j->group, exec, &ranked_ops);
    atomic_store(&j->group.priority, priority);
}

static void order_by_priority_is(teff_steal how, const char *expected)
{
    static fjob f;
    const teff_sched_options opt = {.size = sizeof opt, .policy = TEFF_SCHED_PRIORITY};
    memset(order, 0, sizeof order);
    atomic_store(&n_order, 0);
    atomic_store(&done.count, 0);
    monitor_hold(&platform);
    teffi_exec *exec = exec_of(1, &opt);
    ranked(&urgent, exec, note_urgent, -20);
    ranked(&lazy, exec, note_lazy, -100);
    how_now = how;
    fjob_init(&f, exec, between_others, &done);
    teffi_group_init(&f.job.group, exec, &ranked_fiber_ops);
    atomic_store(&f.job.group.priority, -50);
    job_push(&f.job);
    latch_wait(&done, 3);
    monitor_release();
    exec->ops->free(exec);
    assert_string_equal(order, expected);
}

static void test_parts_have_the_priority_of_their_turn(void **state)
{
    order_by_priority_is(TEFF_STEAL_CHILD, "egufjl");
    order_by_priority_is(TEFF_STEAL_CONTINUATION, "efugjl");
}

static unsigned ran_parts;

static void count_part(void *arg)
{
    ran_parts++;
}

static void fork_four(job *j)
{
    teff_join join = {{0}};
    for (int i = 0; i < 4; i++)
        teff_fork(&join, TEFF_STEAL_CHILD, count_part, NULL);
    teff_join_wait(&join);
}

/* One group may wait: the other parts are evicted, and run all the same. */
static void test_evicted_parts_run(void **state)
{
    static fjob f;
    teff_sched_metrics all;
    const teff_sched_options opt = {
        .size = sizeof opt, .policy = TEFF_SCHED_PRIORITY, .waiting_max = 1};
    ran_parts = 0;
    monitor_hold(&platform);
    teffi_exec *exec = exec_of(1, &opt);
    fjob_init(&f, exec, fork_four, &done);
    job_push(&f.job);
    latch_wait(&done, 1);
    (void)exec->ops->metrics(exec, &all, NULL, 0);
    monitor_release();
    exec->ops->free(exec);
    assert_int_equal(all.evicted, 3);
    assert_int_equal(ran_parts, 4);
}

static uint64_t (*real_now)(void *arg);
static _Atomic uint64_t passed_ns;

static uint64_t shifted_now(void *arg)
{
    return real_now(arg) + atomic_load(&passed_ns);
}

static void compute_40_ms(void *arg)
{
    atomic_fetch_add(&passed_ns, 40000000);
}

static unsigned level_after, queued_of_level_2;

static void fork_long_parts(job *j)
{
    teff_join join = {{0}};
    teffi_sched *sched = real_of(j->exec);
    for (int i = 0; i < 3; i++)
        teff_fork(&join, TEFF_STEAL_CHILD, compute_40_ms, NULL);
    teff_join_wait(&join);
    level_after = teffi_level_of_used_time(sched->levels, j->group.used);
    teff_fork(&join, TEFF_STEAL_CHILD, f_of, NULL);
    queued_of_level_2 = (unsigned)teffi_runqueue_count(&sched->queue);
    teff_join_wait(&join);
}

/* 120 ms in parts bring the turn's group to level 2; then its parts are of level 2, too. */
static void test_run_time_of_parts_is_their_turns(void **state)
{
    const teff_sched_options opt = {.size = sizeof opt, .policy = TEFF_SCHED_MULTILEVEL};
    monitor_hold(&platform);
    real_now = monitor.mono_ns;
    monitor.mono_ns = shifted_now;
    teffi_exec *exec = exec_of(1, &opt);
    run_turn(exec, fork_long_parts);
    monitor_release();
    exec->ops->free(exec);
    monitor.mono_ns = real_now;
    assert_int_equal(level_after, 2);
    assert_int_equal(queued_of_level_2, 1);
}

/* Outside of a turn, and in one without a stack of its own, a fork is a call. */
static void test_elsewhere_a_fork_is_a_call(void **state)
{
    job j;
    memset(order, 0, sizeof order);
    atomic_store(&n_order, 0);
    e_f_g(TEFF_STEAL_CHILD);
    assert_string_equal(order, "efgj");
    memset(order, 0, sizeof order);
    atomic_store(&n_order, 0);
    teffi_exec *exec = exec_of(1, NULL);
    job_init(&j, exec, child, &done);
    job_push(&j);
    latch_wait(&done, 1);
    exec->ops->free(exec);
    assert_string_equal(order, "efgj");
}

/* ---- results ---- */

typedef struct fib {
    teff_steal how;
    unsigned n;
    uint64_t result;
} fib;

static void fib_run(void *arg)
{
    fib *f = arg;
    if (f->n < 2) {
        f->result = f->n;
        return;
    }
    fib a = {f->how, f->n - 1, 0}, b = {f->how, f->n - 2, 0};
    teff_join join = {{0}};
    teff_fork(&join, f->how, fib_run, &a);
    fib_run(&b);
    teff_join_wait(&join);
    f->result = a.result + b.result;
}

enum { FIB = 18, FIB_RESULT = 2584 };

static uint64_t result;

static void fib_turn(job *j)
{
    fib f = {how_now, FIB, 0};
    fib_run(&f);
    result = f.result;
}

static void test_fib_with_both_strategies(void **state)
{
    for (unsigned workers = 1; workers <= 4; workers++) {
        for (how_now = TEFF_STEAL_CONTINUATION; how_now <= TEFF_STEAL_CHILD; how_now++) {
            result = 0;
            in_a_turn(workers, fib_turn);
            assert_int_equal(result, FIB_RESULT);
        }
    }
}

/* Many parts on one join, which is used again. */
static _Atomic uint64_t sum;

static void add(void *arg)
{
    atomic_fetch_add(&sum, *(uint64_t *)arg);
}

static void sum_turn(job *j)
{
    enum { N = 1000 };
    static uint64_t numbers[N];
    teff_join join = {{0}};
    for (unsigned round = 0; round < 3; round++) {
        for (unsigned i = 0; i < N; i++) {
            numbers[i] = i;
            teff_fork(&join, how_now, add, &numbers[i]);
        }
        teff_join_wait(&join);
        assert_int_equal(atomic_load(&sum), (round + 1) * N * (N - 1) / 2);
    }
    teff_join_wait(&join); /* nothing forked: nothing to wait for */
}

static void test_many_parts_on_one_join(void **state)
{
    for (how_now = TEFF_STEAL_CONTINUATION; how_now <= TEFF_STEAL_CHILD; how_now++) {
        atomic_store(&sum, 0);
        in_a_turn(3, sum_turn);
    }
}

/* Three joins close in another order than they were opened: middle, newest, oldest. */
static bool all_closed;

static void close_in_disorder(job *j)
{
    static uint64_t one = 1;
    teff_join joins[3] = {{{0}}};
    for (int i = 0; i < 3; i++)
        teff_fork(&joins[i], how_now, add, &one);
    teff_join_wait(&joins[1]);
    teff_join_wait(&joins[2]);
    teff_join_wait(&joins[0]);
    all_closed = *teffi_fiber_newest_join_pointer() == NULL;
}

static void test_joins_close_in_any_order(void **state)
{
    for (how_now = TEFF_STEAL_CONTINUATION; how_now <= TEFF_STEAL_CHILD; how_now++) {
        atomic_store(&sum, 0);
        all_closed = false;
        in_a_turn(2, close_in_disorder);
        assert_true(all_closed);
        assert_int_equal(atomic_load(&sum), 3);
    }
}

/* ---- joins that the turn has not waited for ---- */

enum { OPEN = 4 };
static int closed_first; /* which of the joins the turn waits for itself; OPEN: none */

static void leave_joins_open(job *j)
{
    static uint64_t one = 1;
    static const teff_join none;
    teff_join joins[OPEN] = {{{0}}};
    for (int i = 0; i < OPEN; i++)
        teff_fork(&joins[i], how_now, add, &one);
    if (closed_first < OPEN)
        teff_join_wait(&joins[closed_first]);
    teffi_joins_wait();
    all_closed = *teffi_fiber_newest_join_pointer() == NULL;
    for (int i = 0; i < OPEN; i++)
        all_closed &= memcmp(&joins[i], &none, sizeof none) == 0;
}

static void test_joins_that_are_open_at_the_end_are_waited_for(void **state)
{
    teffi_joins_wait(); /* no turn: nothing to wait for */
    for (how_now = TEFF_STEAL_CONTINUATION; how_now <= TEFF_STEAL_CHILD; how_now++)
        for (closed_first = 0; closed_first <= OPEN; closed_first++) {
            atomic_store(&sum, 0);
            all_closed = false;
            in_a_turn(2, leave_joins_open);
            assert_true(all_closed);
            assert_int_equal(atomic_load(&sum), OPEN);
        }
}

/* ---- the part's own stack ---- */

static const char *part_does;

static void note_doing(void *arg)
{
    part_does = teffi_fiber_current() ? teffi_fiber_get_label(teffi_fiber_current()) : "no fiber";
}

static void fork_one(job *j)
{
    teff_join join = {{0}};
    teffi_fiber_set_label(teffi_fiber_current(), "words.Word.Add");
    part_does = NULL;
    teff_fork(&join, TEFF_STEAL_CHILD, note_doing, NULL);
    teff_join_wait(&join);
}

static void test_a_part_is_reported_as_its_turn(void **state)
{
    in_a_turn(1, fork_one);
    assert_string_equal(part_does, "words.Word.Add");
}

static void end_now(void *arg)
{
}

static void fork_without_stacks(job *j)
{
    enum { STACKS = 64 };
    teffi_fiber *taken[STACKS];
    unsigned n = 0;
    while (n < STACKS && (taken[n] = teffi_fiber_new(j->exec->fibers, end_now, NULL)))
        n++;
    fork_one(j);
    while (n > 0)
        (void)teffi_fiber_resume(taken[--n]);
}

static void test_without_a_free_stack_a_part_runs_on_its_workers(void **state)
{
    const teff_sched_options opt = {.size = sizeof opt, .stacks_max = 64};
    teffi_exec *exec = exec_of(1, &opt);
    run_turn(exec, fork_without_stacks);
    exec->ops->free(exec);
    assert_string_equal(part_does, "no fiber");
}

/* ---- joins beside a blocking call ---- */

static latch inside;

static void never_end(void *arg)
{
    latch never = {0};
    latch_hit(&inside);
    latch_wait(&never, 1);
}

static void join_while_blocking(job *j)
{
    teff_join join = {{0}};
    teff_fork(&join, TEFF_STEAL_CHILD, never_end, NULL);
    latch_wait(&inside, 1);
    j->exec->ops->blocking_begin(j->exec);
    teff_join_wait(&join);
}

static void run_join_while_blocking(void)
{
    in_a_turn(2, join_while_blocking);
}

static void test_a_join_that_would_wait_in_a_blocking_call_ends_the_process(void **state)
{
    assert_true(dies_with(run_join_while_blocking, "teff_join_wait between teff_blocking_begin"));
}

static void join_of_ended_part(job *j)
{
    teff_join join = {{0}};
    teff_fork(&join, TEFF_STEAL_CONTINUATION, f_of, NULL);
    j->exec->ops->blocking_begin(j->exec);
    teff_join_wait(&join);
    j->exec->ops->blocking_end(j->exec);
    note('j');
}

/* On one worker the part has ended when the turn goes on. */
static void test_a_join_of_parts_that_have_ended_does_not_wait(void **state)
{
    order_is(join_of_ended_part, "fj");
}

/* ---- stealing: the fork and what comes after it must run at once, or neither ends ---- */

static _Atomic unsigned met;

static void meet(void *arg)
{
    atomic_fetch_add(&met, 1);
    while (atomic_load(&met) < 2)
        ;
}

static void meet_turn(job *j)
{
    teff_join join = {{0}};
    teff_fork(&join, how_now, meet, NULL);
    meet(NULL);
    teff_join_wait(&join);
}

static void test_both_kinds_are_stolen(void **state)
{
    for (unsigned i = 0; i < 20; i++) {
        how_now = i % 2 ? TEFF_STEAL_CHILD : TEFF_STEAL_CONTINUATION;
        atomic_store(&met, 0);
        in_a_turn(2, meet_turn);
        assert_int_equal(atomic_load(&met), 2);
    }
}

/* ---- in a process: while it joins, its mailbox waits ---- */

static _Atomic unsigned seen;

static teff_err step_fork(void *self, const teff_event *events, size_t n, teff_step *out)
{
    fib f = {TEFF_STEAL_CONTINUATION, 12, 0};
    if (n == 0)
        return teff_step_idle(out);
    assert_int_equal(atomic_fetch_add(&seen, 1) % 2, 0);
    fib_run(&f);
    assert_int_equal(f.result, 144);
    assert_int_equal(atomic_fetch_add(&seen, 1) % 2, 1);
    latch_hit(&done);
    return atomic_load(&seen) == 200 ? teff_step_done(out) : teff_step_idle(out);
}

static void test_a_process_forks_and_stays_alone(void **state)
{
    static const teff_process_ops ops = {
        .name = "forker", .flags = TEFF_PROCESS_FIBER, .step_max = 1, .step = step_fork};
    teff_process_options opt = {.size = sizeof opt, .workers = 3};
    teff_process_system *system = NULL;
    teff_pid pid;
    atomic_store(&seen, 0);
    assert_int_equal(teff_process_system_new(&opt, &system), TEFF_OK);
    assert_int_equal(teff_process_spawn(system, &ops, NULL, NULL, NULL, 0, &pid), TEFF_OK);
    for (unsigned i = 0; i < 100; i++)
        assert_int_equal(teff_process_send(system, pid, &(teff_event){.tag = i}), TEFF_OK);
    latch_wait(&done, 100);
    teff_process_system_free(system);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup(test_child_stealing_goes_on_with_the_parent, setup),
        cmocka_unit_test_setup(test_continuation_stealing_is_like_a_call, setup),
        cmocka_unit_test_setup(test_parts_have_the_priority_of_their_turn, setup),
        cmocka_unit_test_setup(test_evicted_parts_run, setup),
        cmocka_unit_test_setup(test_run_time_of_parts_is_their_turns, setup),
        cmocka_unit_test_setup(test_elsewhere_a_fork_is_a_call, setup),
        cmocka_unit_test_setup(test_fib_with_both_strategies, setup),
        cmocka_unit_test_setup(test_many_parts_on_one_join, setup),
        cmocka_unit_test_setup(test_joins_close_in_any_order, setup),
        cmocka_unit_test_setup(test_joins_that_are_open_at_the_end_are_waited_for, setup),
        cmocka_unit_test_setup(test_a_part_is_reported_as_its_turn, setup),
        cmocka_unit_test_setup(test_without_a_free_stack_a_part_runs_on_its_workers, setup),
        cmocka_unit_test_setup(test_a_join_that_would_wait_in_a_blocking_call_ends_the_process,
                               setup),
        cmocka_unit_test_setup(test_a_join_of_parts_that_have_ended_does_not_wait, setup),
        cmocka_unit_test_setup(test_both_kinds_are_stolen, setup),
        cmocka_unit_test_setup(test_a_process_forks_and_stays_alone, setup),
    };
    teffi_platform_init_real(&platform, TEFF_LOG_INFO);
    return cmocka_run_group_tests_name("sched/fork", tests, NULL, NULL);
}
