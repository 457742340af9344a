/* test_borrow.c - a thread that is not a worker does a worker's work while one sleeps. */
#include "base/local.h"
#include "sched/borrow.h"
#include "sched/scheduler.h"
#include "jobs.h"

static TEFFI_LOCAL int thread_no; /* the tests' threads: 1 .. */

static __attribute__((noinline)) int this_thread(void)
{
    return thread_no;
}

static _Atomic int ran_on[8];
static _Atomic unsigned n_begun, n_ran;

/* Counts last: tests look at the count first. */
static void remember(job *j)
{
    unsigned n = atomic_fetch_add(&n_begun, 1);
    atomic_store(&ran_on[n % 8], this_thread());
    atomic_fetch_add(&n_ran, 1);
    if (j->peer[0])
        push(j->peer[0]);
}

static void push_it(void *arg)
{
    push(arg);
}

static bool borrow(teffi_exec *exec, job *j)
{
    return teffi_borrow_processor_and_run(exec, push_it, j);
}

/* Once a worker sleeps. */
static void surely_borrow(teffi_exec *exec, job *j)
{
    bool did = false;
    WAIT_FOR(did || (did = borrow(exec, j)));
}

static void forget_runs(void)
{
    atomic_store(&n_begun, 0);
    atomic_store(&n_ran, 0);
    thread_no = 1;
}

static bool all_ran_here(teffi_exec *exec, job *first)
{
    forget_runs();
    surely_borrow(exec, first);
    WAIT_FOR(atomic_load(&n_ran) == 3);
    bool here = true;
    for (int i = 0; i < 3; i++)
        here &= atomic_load(&ran_on[i]) == 1;
    return here;
}

/* Not always: where this thread is put aside for long, others take what it made READY. */
static void chain_runs_here(const teff_sched_options *opt)
{
    static job j[3];
    bool did = false;
    teffi_exec *exec = exec_new(2, opt);
    for (int i = 0; i < 3; i++)
        job_init(&j[i], exec, 0, remember);
    j[0].peer[0] = &j[1];
    j[1].peer[0] = &j[2];
    WAIT_FOR(did || (did = all_ran_here(exec, &j[0])));
    assert_null(teffi_worker_self());
    WAIT_FOR(parked(exec) == 2); /* its processor was given back */
    exec->ops->free(exec);
}

static void test_a_chain_runs_here(void **state)
{
    chain_runs_here(NULL);
}

static void test_a_chain_runs_here_by_every_policy(void **state)
{
    chain_runs_here(&(teff_sched_options){.policy = TEFF_SCHED_MULTILEVEL});
    chain_runs_here(&(teff_sched_options){.policy = TEFF_SCHED_PRIORITY});
}

static void spin(job *j)
{
    while (!atomic_load(&j->stop))
        teffi_thread_yield();
}

static void test_nobody_sleeps(void **state)
{
    static job busy, mine;
    forget_runs();
    teffi_exec *exec = exec_new(1, NULL);
    job_init(&busy, exec, 0, spin);
    job_init(&mine, exec, 0, remember);
    push(&busy);
    teffi_sched *real = teffi_sched_of(exec);
    WAIT_FOR(!parked(exec) && atomic_load(&real->processors[0].runs) > 1);
    assert_false(borrow(exec, &mine));
    assert_int_equal(teffi_group_state_of(&mine.group), TEFFI_GROUP_IDLE); /* fn was not called */
    atomic_store(&busy.stop, true);
    exec->ops->free(exec);
}

static _Atomic int borrowed_inside;

static void borrow_inside(job *j)
{
    atomic_store(&borrowed_inside, borrow(j->exec, j->peer[1]) ? 1 : 0);
}

static void test_not_on_a_worker(void **state)
{
    static job j, inner;
    forget_runs();
    atomic_store(&borrowed_inside, -1);
    teffi_exec *exec = exec_new(2, NULL);
    job_init(&j, exec, 0, borrow_inside);
    job_init(&inner, exec, 0, NULL);
    j.peer[1] = &inner;
    push(&j);
    WAIT_FOR(atomic_load(&borrowed_inside) == 0);
    atomic_store(&borrowed_inside, -1);
    WAIT_FOR(atomic_load(&j.runs) == 1);
    surely_borrow(exec, &j); /* a borrower is a worker as well */
    WAIT_FOR(atomic_load(&borrowed_inside) >= 0);
    assert_int_equal(atomic_load(&borrowed_inside), 0);
    exec->ops->free(exec);
}

static void other_thread(void *arg)
{
    thread_no = 2;
    borrow_inside(arg);
}

static _Atomic int let_on; /* the thread that did */

static void let_another_borrow(job *j)
{
    teffi_thread other;
    atomic_store(&let_on, this_thread());
    assert_int_equal(teffi_thread_start(&other, "other", other_thread, j), TEFF_OK);
    teffi_thread_join(&other);
}

/* out: another one came while this thread borrowed: it was refused. */
static bool another_comes_meanwhile(void)
{
    static job j, inner;
    forget_runs();
    atomic_store(&borrowed_inside, -1);
    teffi_exec *exec = exec_new(2, NULL);
    job_init(&j, exec, 0, let_another_borrow);
    job_init(&inner, exec, 0, NULL);
    j.peer[1] = &inner;
    surely_borrow(exec, &j);
    WAIT_FOR(atomic_load(&j.runs) == 1);
    exec->ops->free(exec);
    if (atomic_load(&let_on) != 1)
        return false;
    assert_int_equal(atomic_load(&borrowed_inside), 0);
    return true;
}

/* Where this thread is put aside for long, a worker takes the turn, and another one may borrow. */
static void test_one_at_a_time(void **state)
{
    bool did = false;
    WAIT_FOR(did || (did = another_comes_meanwhile()));
}

static teffi_timer timer;
static _Atomic unsigned fired;

static void on_timer(teffi_timer *t)
{
    atomic_fetch_add(&fired, 1);
}

static void set_timer(job *j)
{
    timer = (teffi_timer){.fire = on_timer};
    j->exec->ops->timer_set(j->exec, &timer, teffi_now(&platform) + 5000000);
}

/* On the borrower's processor, whose worker sleeps and had no timer to wake up for. */
static void test_a_timer_of_a_borrower(void **state)
{
    static job j;
    forget_runs();
    atomic_store(&fired, 0);
    teffi_exec *exec = exec_new(1, NULL);
    job_init(&j, exec, 0, set_timer);
    surely_borrow(exec, &j);
    WAIT_FOR(atomic_load(&fired) == 1);
    exec->ops->free(exec);
}

static void wait_for_peer(job *j)
{
    push(j->peer[0]);
    while (!atomic_load(&j->peer[0]->runs))
        teffi_thread_yield();
}

static void block_for_peer(job *j)
{
    push(j->peer[0]);
    j->exec->ops->blocking_begin(j->exec);
    while (!atomic_load(&j->peer[0]->runs))
        teffi_thread_yield();
    j->exec->ops->blocking_end(j->exec);
}

/* The turn on a borrowed processor waits for work in that processor's deque: the processor is
 * retaken, and the work runs. */
static void waits_in_a_turn(void (*wait)(job *j))
{
    static job j, peer, after;
    forget_runs();
    teffi_exec *exec = exec_new(1, NULL);
    job_init(&j, exec, 0, wait);
    job_init(&peer, exec, 0, remember);
    job_init(&after, exec, 0, remember);
    j.peer[0] = &peer;
    surely_borrow(exec, &j);
    WAIT_FOR(atomic_load(&j.runs) == 1);
    assert_int_equal(atomic_load(&ran_on[0]), 0); /* a worker's thread */
    WAIT_FOR(parked(exec) == 1);
    push(&after);
    WAIT_FOR(atomic_load(&after.runs) == 1);
    exec->ops->free(exec);
}

static void test_a_turn_that_takes_too_long(void **state)
{
    waits_in_a_turn(wait_for_peer);
}

static void test_a_turn_that_blocks(void **state)
{
    waits_in_a_turn(block_for_peer);
}

static void scale_down(job *j)
{
    assert_int_equal(j->exec->ops->scale(j->exec, 1), TEFF_OK);
    push(j->peer[0]);
    push(j->peer[1]);
}

/* Whichever processor was borrowed: its work is not lost, and all processors are used again. */
static void test_its_processor_is_used_no_more(void **state)
{
    static job j, a, b;
    for (int i = 0; i < 100; i++) {
        forget_runs();
        teffi_exec *exec = exec_new(2, NULL);
        job_init(&j, exec, 0, scale_down);
        job_init(&a, exec, 0, remember);
        job_init(&b, exec, 0, remember);
        j.peer[0] = &a;
        j.peer[1] = &b;
        surely_borrow(exec, &j);
        WAIT_FOR(atomic_load(&n_ran) == 2);
        assert_int_equal(exec->ops->scale(exec, 2), TEFF_OK);
        WAIT_FOR(parked(exec) == 2);
        exec->ops->free(exec);
    }
}

/* ---- the end ---- */

static _Atomic bool inside, ended;

static void stay_inside(job *j)
{
    atomic_store(&inside, true);
    spin(j);
    atomic_store(&ended, true);
}

static void borrower_main(void *arg)
{
    job *j = arg;
    while (!atomic_load(&inside))
        (void)borrow(j->exec, j);
}

static void end_the_turn(void *arg)
{
    job *j = arg;
    teffi_sched *real = (teffi_sched *)(void *)j->exec;
    while (!(atomic_load(&real->attention) & TEFFI_ATTEND_STOP))
        teffi_thread_yield();
    atomic_store(&j->stop, true);
}

static void test_the_end_waits_for_a_borrower(void **state)
{
    static job j;
    teffi_thread borrower, ender;
    atomic_store(&inside, false);
    atomic_store(&ended, false);
    teffi_exec *exec = exec_new(1, NULL);
    job_init(&j, exec, 0, stay_inside);
    assert_int_equal(teffi_thread_start(&borrower, "borrower", borrower_main, &j), TEFF_OK);
    WAIT_FOR(atomic_load(&inside));
    assert_int_equal(teffi_thread_start(&ender, "ender", end_the_turn, &j), TEFF_OK);
    exec->ops->stop(exec);
    assert_true(atomic_load(&ended));
    teffi_thread_join(&borrower);
    teffi_thread_join(&ender);
    assert_false(borrow(exec, &j)); /* nobody does any more */
    exec->ops->free(exec);
}

/* ---- hooks ---- */

static char hooked[16]; /* hooks of this thread, in their order */

static void note_hook(uint32_t thread, char name)
{
    if (thread != TEFF_THREAD_BORROWED)
        return; /* another thread's */
    size_t n = strlen(hooked);
    if (n < sizeof hooked - 1)
        hooked[n] = name;
}

static void on_start(void *arg, uint32_t thread)
{
    note_hook(thread, 's');
}

static void on_before(void *arg, uint32_t thread, const void *group)
{
    note_hook(thread, 'b');
}

static void on_after(void *arg, uint32_t thread, const void *group)
{
    note_hook(thread, 'a');
}

static void on_park(void *arg, uint32_t thread)
{
    note_hook(thread, 'p');
}

static void on_end(void *arg, uint32_t thread)
{
    note_hook(thread, 'e');
}

static void test_hooks_see_each_borrow_as_a_life(void **state)
{
    static job j;
    static const teff_sched_hooks hooks = {
        .start = on_start, .before = on_before, .after = on_after, .park = on_park, .end = on_end};
    static const teff_sched_options watched = {.hooks = &hooks};
    teffi_exec *exec = exec_new(1, &watched);
    job_init(&j, exec, 0, remember);
    do { /* again if this thread was put aside for long, and lost its processor */
        forget_runs();
        memset(hooked, 0, sizeof hooked);
        surely_borrow(exec, &j);
        WAIT_FOR(atomic_load(&n_ran) == 1);
    } while (atomic_load(&ran_on[0]) != 1);
    assert_string_equal(hooked, "sbae");
    exec->ops->free(exec);
}

int main(void)
{
    teffi_platform_init_real(&platform, TEFF_LOG_WARN);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_a_chain_runs_here),
        cmocka_unit_test(test_a_chain_runs_here_by_every_policy),
        cmocka_unit_test(test_nobody_sleeps),
        cmocka_unit_test(test_not_on_a_worker),
        cmocka_unit_test(test_one_at_a_time),
        cmocka_unit_test(test_a_timer_of_a_borrower),
        cmocka_unit_test(test_a_turn_that_takes_too_long),
        cmocka_unit_test(test_a_turn_that_blocks),
        cmocka_unit_test(test_its_processor_is_used_no_more),
        cmocka_unit_test(test_the_end_waits_for_a_borrower),
        cmocka_unit_test(test_hooks_see_each_borrow_as_a_life),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
