/* test_current.c - exec's current(): the group that this thread runs, NULL outside of turns; the
 * null group for closures of no other. Raw groups here; grains in test_continuations.c. */
#include "hand_clock.h"

static teffi_platform platform;

typedef struct job {
    teffi_group group;
    teffi_item item;
    void (*run)(struct job *job);
    struct job *peer;
    teffi_exec *exec, *other;
    _Atomic unsigned runs, wrong;
    _Atomic bool queued, stop;
    teffi_timer timer;
    teffi_parker parker;
} job;

static void on_item(teffi_group *group, teffi_item *item)
{
    job *j = teffi_container(group, job, group);
    atomic_store(&j->queued, false);
    j->run(j);
    atomic_fetch_add(&j->runs, 1);
}

static const teffi_group_ops ops = {.handle = on_item};

static void job_init(job *j, teffi_exec *exec, void (*run)(job *job))
{
    memset(j, 0, sizeof *j);
    j->run = run;
    j->exec = exec;
    teffi_group_init(&j->group, exec, &ops);
}

static void push(job *j)
{
    if (!atomic_exchange(&j->queued, true))
        (void)teffi_group_push(&j->group, &j->item);
}

/* This thread runs that group, for that executor. */
static void expect(job *j, const teffi_group *group)
{
    if (j->exec->ops->current(j->exec) != group)
        atomic_fetch_add(&j->wrong, 1);
}

static void is_itself(job *j)
{
    expect(j, &j->group);
}

static void outside_of_turns_it_is_null(void **state)
{
    job j;
    teffi_exec *exec = exec_of(&platform, 1, (teff_sched_options){0});
    job_init(&j, exec, is_itself);
    expect(&j, NULL);
    push(&j);
    until(atomic_load(&j.runs) == 1);
    expect(&j, NULL);
    assert_int_equal(atomic_load(&j.wrong), 0);
    exec->ops->free(exec);
}

static void on_null(void *arg)
{
    job *j = arg;
    expect(j, &j->exec->null_group);
    atomic_fetch_add(&j->runs, 1);
}

static void work_without_a_context_runs_in_null(void **state)
{
    job j;
    teffi_exec *exec = exec_of(&platform, 2, (teff_sched_options){0});
    job_init(&j, exec, is_itself);
    for (unsigned i = 1; i <= 1000; i++)
        assert_int_equal(teffi_closure_push(&exec->null_group, on_null, &j), TEFF_OK);
    until(atomic_load(&j.runs) == 1000);
    assert_int_equal(atomic_load(&j.wrong), 0);
    exec->ops->free(exec);
}

/* ---- beside turns, inside turns, and of another executor ---- */

static void on_timer(teffi_timer *timer)
{
    job *j = teffi_container(timer, job, timer);
    expect(j, NULL);
    atomic_fetch_add(&j->runs, 1);
}

static void timers_fire_in_null(void **state)
{
    enum { N = 300 };
    static job j[N];
    teffi_exec *exec = exec_of(&platform, 2, (teff_sched_options){0});
    for (unsigned i = 0; i < N; i++) {
        job_init(&j[i], exec, is_itself);
        j[i].timer.fire = on_timer;
        exec->ops->timer_set(exec, &j[i].timer, teffi_now(&platform) + i * 30000u);
        push(&j[i]);
    }
    for (unsigned i = 0; i < N; i++) {
        until(atomic_load(&j[i].runs) == 2);
        assert_int_equal(atomic_load(&j[i].wrong), 0);
    }
    exec->ops->free(exec);
}

/* Waits without a fiber: others run nested here, timers of this worker fire here. */
static void help_others(job *j)
{
    expect(j, &j->group);
    push(j->peer);
    j->exec->ops->timer_set(j->exec, &j->timer, 0);
    time_t since = 0;
    while (!atomic_load(&j->stop) && pause_a_little(&since)) {
        (void)j->exec->ops->run_nested(j->exec);
        expect(j, &j->group);
    }
}

static void sees_itself_and_ends_the_wait(job *j)
{
    expect(j, &j->group);
    atomic_store(&j->peer->stop, true);
}

static void nested_turns_see_their_own(void **state)
{
    job outer, inner;
    for (unsigned i = 0; i < 50; i++) {
        teffi_exec *exec = exec_of(&platform, 1, (teff_sched_options){0});
        job_init(&outer, exec, help_others);
        job_init(&inner, exec, sees_itself_and_ends_the_wait);
        outer.peer = &inner;
        outer.timer.fire = on_timer;
        inner.peer = &outer;
        push(&outer);
        until(atomic_load(&outer.runs) == 2 && atomic_load(&inner.runs) == 1);
        assert_int_equal(atomic_load(&outer.wrong) + atomic_load(&inner.wrong), 0);
        exec->ops->free(exec);
    }
}

static void other_is_null(job *j)
{
    expect(j, &j->group);
    if (j->other->ops->current(j->other))
        atomic_fetch_add(&j->wrong, 1);
}

static void a_turn_of_another_executor_is_null(void **state)
{
    job j;
    teffi_exec *one = exec_of(&platform, 1, (teff_sched_options){0});
    teffi_exec *two = exec_of(&platform, 1, (teff_sched_options){0});
    job_init(&j, one, other_is_null);
    j.other = two;
    push(&j);
    until(atomic_load(&j.runs) == 1);
    assert_int_equal(atomic_load(&j.wrong), 0);
    one->ops->free(one);
    two->ops->free(two);
}

static void blocks(job *j)
{
    j->exec->ops->blocking_begin(j->exec);
    expect(j, &j->group);
    push(j->peer);
    while (!atomic_load(&j->peer->runs)) /* its worker's processor goes to another thread */
        teffi_thread_yield();
    expect(j, &j->group);
    j->exec->ops->blocking_end(j->exec);
    expect(j, &j->group);
}

static void a_blocking_region_keeps_it(void **state)
{
    job a, b;
    teffi_exec *exec = exec_of(&platform, 1, (teff_sched_options){0});
    job_init(&a, exec, blocks);
    job_init(&b, exec, is_itself);
    a.peer = &b;
    push(&a);
    until(atomic_load(&a.runs) == 1);
    assert_int_equal(atomic_load(&a.wrong) + atomic_load(&b.wrong), 0);
    exec->ops->free(exec);
}

/* ---- under load: workers steal, turns nest ---- */

enum { RUNS = 4000 };

static void checks_and_goes_on(job *j)
{
    expect(j, &j->group);
    unsigned runs = atomic_load(&j->runs);
    if (runs % 7 == 0)
        (void)j->exec->ops->run_nested(j->exec);
    expect(j, &j->group);
    push(j->peer);
    if (runs + 1 < RUNS)
        push(j);
}

static void it_is_right_wherever_a_group_runs(void **state)
{
    enum { N = 16 };
    static job j[N];
    teffi_exec *exec = exec_of(&platform, 4, (teff_sched_options){0});
    for (unsigned i = 0; i < N; i++) {
        job_init(&j[i], exec, checks_and_goes_on);
        j[i].peer = &j[(i * 7 + 3) % N];
    }
    for (unsigned i = 0; i < N; i++)
        push(&j[i]);
    for (unsigned i = 0; i < N; i++)
        until(atomic_load(&j[i].runs) >= RUNS);
    exec->ops->free(exec);
    for (unsigned i = 0; i < N; i++)
        assert_int_equal(atomic_load(&j[i].wrong), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(outside_of_turns_it_is_null),
        cmocka_unit_test(work_without_a_context_runs_in_null),
        cmocka_unit_test(timers_fire_in_null),
        cmocka_unit_test(nested_turns_see_their_own),
        cmocka_unit_test(a_turn_of_another_executor_is_null),
        cmocka_unit_test(a_blocking_region_keeps_it),
        cmocka_unit_test(it_is_right_wherever_a_group_runs),
    };
    teffi_platform_init_real(&platform, TEFF_LOG_WARN);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
