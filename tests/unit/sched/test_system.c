/* test_system.c - a system group runs whatever users' turns do with processors, threads, queues and
 * stacks. Threads wait for each other, not for time; a wait fails after a minute. */
#include "test.h"
#include <teff/sched.h>
#include "base/queue.h"
#include "fiber/fiber.h"
#include "os/pages.h"
#include "sched/exec.h"
#include "sched/scheduler.h"

#define LIMIT_NS 60000000000u

static teffi_platform platform;

typedef struct job { /* a group with one item and something to do */
    teffi_group group;
    teffi_item item;
    void (*run)(struct job *job);
    _Atomic unsigned runs;
    teffi_fiber *fiber;
    teffi_timer timer;
} job;

static _Atomic bool gate;
static _Atomic unsigned inside; /* users' turns that wait for the gate */
static pthread_t ran_on;

static void on_item(teffi_group *group, teffi_item *item)
{
    job *j = teffi_container(group, job, group);
    j->run(j);
}

static const teffi_group_ops ops = {.handle = on_item};

static void job_init(job *j, teffi_exec *exec, void (*run)(job *job))
{
    *j = (job){.run = run};
    teffi_group_init(&j->group, exec, &ops);
}

static void system_init(job *j, teffi_exec *exec, void (*run)(job *job))
{
    job_init(j, exec, run);
    teffi_group_set_system(&j->group);
}

static void push(job *j)
{
    assert_true(teffi_group_push(&j->group, &j->item));
}

static bool has_come(const _Atomic unsigned *count, unsigned n)
{
    uint64_t end_ns = teffi_now(&platform) + LIMIT_NS;
    while (atomic_load(count) < n && teffi_now(&platform) < end_ns)
        teffi_thread_yield();
    return atomic_load(count) >= n;
}

static teffi_exec *exec_new(unsigned workers, const teff_sched_options *opt)
{
    teffi_exec *exec;
    assert_int_equal(teffi_exec_real_new(&platform, workers, opt, &exec), TEFF_OK);
    if (exec->ops->system)
        assert_int_equal(exec->ops->system(exec), TEFF_OK);
    gate = false;
    inside = 0;
    return exec;
}

static void exec_end(teffi_exec *exec)
{
    gate = true;
    exec->ops->free(exec);
}

static void run_system(job *j)
{
    ran_on = pthread_self();
    j->runs++;
}

/* Calls nothing of teff's, and ends when the gate opens. */
static void compute(job *j)
{
    inside++;
    while (!gate)
        teffi_thread_yield();
    j->runs++;
}

static void block(job *j)
{
    teff_blocking_begin();
    compute(j);
    teff_blocking_end();
}

/* More turns compute than processors may be retaken for. */
static void test_all_processors_compute(void **state)
{
    enum { USERS = 12, MORE = 64 };
    static job users[USERS + MORE], system;
    teffi_exec *exec = exec_new(2, NULL);
    for (unsigned i = 0; i < USERS + MORE; i++) {
        job_init(&users[i], exec, compute);
        push(&users[i]);
    }
    assert_true(has_come(&inside, 4)); /* two have a processor, two more lost theirs */
    system_init(&system, exec, run_system);
    for (unsigned i = 1; i <= 3; i++) {
        push(&system);
        assert_true(has_come(&system.runs, i));
    }
    gate = true;
    for (unsigned i = 0; i < USERS + MORE; i++)
        assert_true(has_come(&users[i].runs, 1));
    exec_end(exec);
}

/* Every thread that there may be sits in a blocking call. */
static void test_all_threads_block(void **state)
{
    enum { THREADS = 5 };
    static const teff_sched_options opt = {.threads_max = THREADS};
    static job users[THREADS + 3], system;
    teffi_exec *exec = exec_new(2, &opt);
    for (unsigned i = 0; i < THREADS + 3; i++) {
        job_init(&users[i], exec, block);
        push(&users[i]);
    }
    assert_true(has_come(&inside, THREADS));
    system_init(&system, exec, run_system);
    push(&system);
    assert_true(has_come(&system.runs, 1));
    exec_end(exec);
}

enum { QUEUE = 20000 };

static job behind; /* all of the queue */

/* From the middle of the queue on nobody gets by before the system group has run. */
static void take_place(job *j)
{
    unsigned before = inside++;
    while (before >= QUEUE / 2 && !behind.runs)
        teffi_thread_yield();
    j->runs++;
}

static void test_a_long_queue(void **state)
{
    static job users[QUEUE];
    teffi_exec *exec = exec_new(1, NULL);
    system_init(&behind, exec, run_system);
    for (unsigned i = 0; i < QUEUE; i++) {
        job_init(&users[i], exec, take_place);
        push(&users[i]);
    }
    push(&behind);
    assert_true(has_come(&behind.runs, 1));
    for (unsigned i = 0; i < QUEUE; i++)
        assert_true(has_come(&users[i].runs, 1));
    exec_end(exec);
}

static void again(job *j)
{
    j->runs++;
    if (!gate)
        push(j);
}

/* Users' groups are READY all the time; whatever the order is that they wait in. */
static void test_queues_never_empty(void **state)
{
    static const teff_sched_options policies[] = {{.policy = TEFF_SCHED_SINGLE},
                                                  {.policy = TEFF_SCHED_MULTILEVEL},
                                                  {.policy = TEFF_SCHED_PRIORITY}};
    enum { USERS = 100 };
    static job users[USERS], system;
    for (unsigned p = 0; p < 3; p++) {
        teffi_exec *exec = exec_new(1, &policies[p]);
        for (unsigned i = 0; i < USERS; i++) {
            job_init(&users[i], exec, again);
            users[i].group.priority = 100;
            push(&users[i]);
        }
        assert_true(has_come(&users[0].runs, 1));
        system_init(&system, exec, run_system);
        for (unsigned i = 1; i <= 100; i++) {
            push(&system);
            assert_true(has_come(&system.runs, i));
        }
        exec_end(exec);
    }
}

static void on_timer(teffi_timer *timer)
{
    push(teffi_container(timer, job, timer));
}

static void sleep_and_run(job *j)
{
    teffi_exec *exec = j->group.exec;
    if (++j->runs < 5)
        exec->ops->timer_set(exec, &j->timer, teffi_now(&platform) + 1000000);
}

/* A timer of a system turn's fires though every worker computes. */
static void test_timers(void **state)
{
    enum { USERS = 12 };
    static job users[USERS], system;
    teffi_exec *exec = exec_new(2, NULL);
    for (unsigned i = 0; i < USERS; i++) {
        job_init(&users[i], exec, compute);
        push(&users[i]);
    }
    assert_true(has_come(&inside, 4));
    system_init(&system, exec, sleep_and_run);
    system.timer.fire = on_timer;
    push(&system);
    assert_true(has_come(&system.runs, 5));
    exec_end(exec);
}

/* System turns run on one thread, in the order in which they came, and users' on others. */
static void test_one_thread_in_order(void **state)
{
    enum { N = 2000 };
    static job jobs[N];
    static job user;
    pthread_t first;
    teffi_exec *exec = exec_new(2, NULL);
    for (unsigned i = 0; i < N; i++) {
        system_init(&jobs[i], exec, run_system);
        push(&jobs[i]);
        assert_true(has_come(&jobs[i].runs, 1));
        if (i == 0)
            first = ran_on;
        assert_true(pthread_equal(first, ran_on));
    }
    job_init(&user, exec, run_system);
    push(&user);
    assert_true(has_come(&user.runs, 1));
    assert_false(pthread_equal(first, ran_on));
    exec_end(exec);
}

/* A system group that never rests lets the others run, and users' turns too. */
static void test_system_shares_its_thread(void **state)
{
    static job busy, other, user;
    teffi_exec *exec = exec_new(1, NULL);
    system_init(&busy, exec, again);
    system_init(&other, exec, run_system);
    job_init(&user, exec, run_system);
    push(&busy);
    assert_true(has_come(&busy.runs, 1000));
    for (unsigned i = 1; i <= 100; i++) {
        push(&other);
        assert_true(has_come(&other.runs, i));
        push(&user);
        assert_true(has_come(&user.runs, i));
    }
    exec_end(exec);
}

static void on_fiber(void *arg)
{
    job *j = arg;
    teffi_fiber_suspend(j->fiber);
}

/* Stacks: users have used up theirs, on kernels old and new; the system has some. */
static void test_own_stacks(void **state)
{
    enum { GUARDS = 30, SYSTEM = 20 };
    static job jobs[GUARDS + SYSTEM];
    teffi_guards_simulated = GUARDS;
    teffi_exec *exec = exec_new(1, NULL);
    teffi_fiber_pool *pools[] = {exec->fibers,
                                 exec->system_fibers ? exec->system_fibers : exec->fibers};
    for (unsigned i = 0; i < GUARDS + SYSTEM; i++) {
        jobs[i].fiber = teffi_fiber_new(pools[i >= GUARDS], on_fiber, &jobs[i]);
        assert_non_null(jobs[i].fiber);
        assert_false(teffi_fiber_resume(jobs[i].fiber));
    }
    assert_null(teffi_fiber_new(pools[0], on_fiber, NULL));
    for (unsigned i = 0; i < GUARDS + SYSTEM; i++)
        assert_true(teffi_fiber_resume(jobs[i].fiber));
    exec_end(exec);
    teffi_guards_simulated = 0;
}

/* Then system groups run as all others do, whatever the policy. */
static void test_without_its_thread(void **state)
{
    static job system;
    for (int policy = TEFF_SCHED_SINGLE; policy <= TEFF_SCHED_PRIORITY; policy++) {
        const teff_sched_options opt = {.size = sizeof opt, .policy = (teff_sched_policy)policy};
        teffi_exec *exec;
        assert_int_equal(teffi_exec_real_new(&platform, 1, &opt, &exec), TEFF_OK);
        system_init(&system, exec, run_system);
        push(&system);
        assert_true(has_come(&system.runs, 1));
        exec_end(exec);
    }
}

/* Stopped with system work in its queue, and with none. */
static void test_start_stop(void **state)
{
    static job busy;
    for (unsigned i = 0; i < 200; i++) {
        teffi_exec *exec = exec_new(1 + i % 3, NULL);
        system_init(&busy, exec, again);
        if (i % 2)
            push(&busy);
        exec->ops->stop(exec);
        exec_end(exec);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_all_processors_compute),
        cmocka_unit_test(test_all_threads_block),
        cmocka_unit_test(test_a_long_queue),
        cmocka_unit_test(test_queues_never_empty),
        cmocka_unit_test(test_timers),
        cmocka_unit_test(test_one_thread_in_order),
        cmocka_unit_test(test_system_shares_its_thread),
        cmocka_unit_test(test_own_stacks),
        cmocka_unit_test(test_without_its_thread),
        cmocka_unit_test(test_start_stop),
    };
    teffi_platform_init_real(&platform, TEFF_LOG_WARN);
    return cmocka_run_group_tests_name("sched/system", tests, NULL, NULL);
}
