/* test_direct.c - turns in place that yield go on when the parts that they forked have ended, and
 * how they count. One worker; the monitor is held, so that each turn is on the same processor. */
#include <teff/fork.h>
#include "fiber_jobs.h"
#include "group/direct.h"
#include "held_monitor.h"

enum { FORKS = 3 };

static latch done;
static fjob outer, callee;
static _Atomic unsigned parts, joined; /* how many have ended, at all and when each join ended */

/* Behind the other groups: a turn that goes on too early is seen. */
static void yield_and_count(void *arg)
{
    for (int i = 0; i < 4; i++)
        (void)teff_yield();
    atomic_fetch_add(&parts, 1);
}

static void fork_and_join(teff_steal how)
{
    for (int i = 0; i < FORKS; i++) {
        teff_join join = {{0}};
        teff_fork(&join, how, yield_and_count, NULL);
        teff_join_wait(&join);
        atomic_fetch_add(&joined, atomic_load(&parts));
    }
}

static void run_parts_first(job *j)
{
    fork_and_join(TEFF_STEAL_CONTINUATION);
}

static void queue_parts(job *j)
{
    fork_and_join(TEFF_STEAL_CHILD);
}

/* As a caller does that does not wait for the end of the turn in place. */
static void run_callee_in_place(job *j)
{
    if (!teffi_direct_may_run_in_place(j->exec, false) || !teffi_group_claim(&callee.job.group))
        return;
    teffi_group *own = teffi_direct_enter(j->exec, &callee.job.group);
    fjob_handle(&callee.job.group, NULL);
    teffi_direct_leave(j->exec, own);
    teffi_direct_end_claim(j->exec, &callee.job.group);
    (void)teff_yield();
    (void)teff_yield();
}

static void in_place(void (*run)(job *j))
{
    monitor_hold(&platform);
    teffi_exec *exec = exec_of(1, NULL);
    atomic_store(&done.count, 0);
    atomic_store(&parts, 0);
    atomic_store(&joined, 0);
    fjob_init(&callee, exec, run, &done);
    fjob_init(&outer, exec, run_callee_in_place, &done);
    job_push(&outer.job);
    latch_wait(&done, 2);
    monitor_release();
    exec->ops->free(exec);
    assert_int_equal(atomic_load(&parts), FORKS);
    assert_int_equal(atomic_load(&joined), 1 + 2 + 3);
}

static void test_a_turn_in_place_forks_and_joins(void **state)
{
    in_place(run_parts_first);
    in_place(queue_parts);
}

/* ---- what turns in place cost the next picks ---- */

enum { IN_PLACE = 250, HAND_OFFS = 100 };

static job one, other, inner, waiting[2];
static _Atomic bool all_queued;
static unsigned handed, ran, before[2]; /* hand-offs: so far, and before each of the waiting ran */

static void hand_over(job *j)
{
    if (++handed < HAND_OFFS)
        job_push(j->peer);
    else
        latch_hit(&done);
}

static void note_handed(job *j)
{
    before[ran++] = handed;
    latch_hit(&done);
}

static void run_many_in_place(job *j)
{
    while (!atomic_load(&all_queued))
        teffi_thread_yield();
    for (int i = 0; i < IN_PLACE; i++) {
        if (!teffi_direct_may_run_in_place(j->exec, false) || !teffi_group_claim(&inner.group))
            return;
        teffi_group *own = teffi_direct_enter(j->exec, &inner.group);
        teffi_direct_leave(j->exec, own);
        teffi_direct_end_claim(j->exec, &inner.group);
    }
    job_push(&one);
}

/* They count as hand-offs once: a waiting group comes soon after them, and the next one does not
 * before there were as many hand-offs again. */
static void test_turns_in_place_count_once(void **state)
{
    static job runs_many;
    monitor_hold(&platform);
    teffi_exec *exec = exec_of(1, NULL);
    atomic_store(&done.count, 0);
    handed = ran = 0;
    job_init(&inner, exec, job_nothing, NULL);
    job_init(&one, exec, hand_over, NULL);
    job_init(&other, exec, hand_over, NULL);
    one.peer = &other;
    other.peer = &one;
    job_init(&runs_many, exec, run_many_in_place, NULL);
    job_push(&runs_many);
    for (int i = 0; i < 2; i++) {
        job_init(&waiting[i], exec, note_handed, NULL);
        job_push(&waiting[i]);
    }
    atomic_store(&all_queued, true);
    latch_wait(&done, 3);
    monitor_release();
    exec->ops->free(exec);
    assert_in_range(before[0], 1, HAND_OFFS / 2);
    assert_int_equal(before[1], HAND_OFFS);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_a_turn_in_place_forks_and_joins),
        cmocka_unit_test(test_turns_in_place_count_once),
    };
    teffi_platform_init_real(&platform, TEFF_LOG_WARN);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
