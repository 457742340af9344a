/* test_repoll.c - a group that becomes READY while it runs: it runs again in place, five times at
 * most. Which queue a group goes to, and a long scan that yields.
 * Source:  yatp src/task/future.rs */
#include <teff/process.h>
#include "sched/queue/runqueue.h"
#include "held_monitor.h"
#include "jobs.h"

/* ---- an executor by hand: what is READY waits in the global queue until the test runs it ---- */

static teffi_runqueue queue;
static unsigned queued;

static void to_queue(teffi_exec *exec, teffi_group *group)
{
    queued++;
    teffi_runqueue_push(&queue, group);
}

static const teffi_exec_ops by_hand_ops = {.ready = to_queue};
static teffi_exec by_hand = {
    .ops = &by_hand_ops, .platform = &platform, .warn.queue_warn = UINT32_MAX};

static void run_all(void)
{
    teffi_group *group;
    while (teffi_runqueue_pop(&queue, &group, 1))
        if (teffi_group_run(group, 1000, 0))
            teffi_runqueue_push(&queue, group);
}

static int open_queue(void **state)
{
    queued = 0;
    forget_notes();
    teffi_runqueue_init(&queue);
    return 0;
}

static int close_queue(void **state)
{
    teffi_runqueue_fini(&queue);
    return 0;
}

/* ---- statuses ---- */

typedef enum status { NOTIFIED = 1, IDLE, POLLING, COMPLETED } status; /* yatp's numbers */

/* The group's word says it all: an item in it while the group runs notes that it was woken. */
static status status_of(teffi_group *group)
{
    uintptr_t word = atomic_load(&group->word);
    switch (teffi_group_state_of(group)) {
    case TEFFI_GROUP_READY:
        return NOTIFIED;
    case TEFFI_GROUP_RUNNING:
        return word > TEFFI_GROUP_RUNNING ? NOTIFIED : POLLING;
    case TEFFI_GROUP_COMPLETE:
        return COMPLETED;
    default:
        return IDLE;
    }
}

static void wake_itself_once(job *j)
{
    if (atomic_load(&j->runs) > 0)
        return;
    assert_int_equal(status_of(&j->group), POLLING);
    push(j);
    assert_int_equal(status_of(&j->group), NOTIFIED);
}

static void complete(job *j)
{
    assert_int_equal(status_of(&j->group), POLLING);
    teffi_group_complete(&j->group);
}

static void test_statuses(void **state)
{
    static job j;
    job_init(&j, &by_hand, 0, wake_itself_once);
    assert_int_equal(status_of(&j.group), IDLE);
    push(&j);
    assert_int_equal(status_of(&j.group), NOTIFIED);
    run_all();
    assert_int_equal(atomic_load(&j.runs), 2); /* NOTIFIED at the end of a poll: polled again */
    assert_int_equal(queued, 1);               /* in place, without a queue */
    assert_int_equal(status_of(&j.group), IDLE);
    j.run = complete;
    push(&j);
    run_all();
    assert_int_equal(status_of(&j.group), COMPLETED);
    assert_false(teffi_group_push(&j.group, &j.item)); /* woken too late: nobody is queued */
    assert_int_equal(queued, 2);
}

/* ---- polling again ---- */

enum { POLLS = 18, AT_ONCE = 6 /* one and five again */ };

static void wake_itself(job *j)
{
    if (atomic_load(&j->runs) == 0)
        push(j->peer[0]);
    if (atomic_load(&j->runs) + 1 < POLLS)
        push(j);
}

/* Who wakes itself in its own turn is polled five times more in place, then goes behind others. */
static void test_repoll_limit(void **state)
{
    static job a, b;
    job_init(&a, &by_hand, 'a', wake_itself);
    job_init(&b, &by_hand, 'b', NULL);
    a.peer[0] = &b;
    push(&a);
    run_all();
    assert_string_equal(notes, "aaaaaa"
                               "b"
                               "aaaaaa"
                               "aaaaaa");
    assert_int_equal(queued, 2); /* that it goes on is no wake-up */
}

static void test_repoll_limit_is_an_option(void **state)
{
    static job a, b;
    by_hand.repolls_max = 2;
    job_init(&a, &by_hand, 'a', wake_itself);
    job_init(&b, &by_hand, 'b', NULL);
    a.peer[0] = &b;
    push(&a);
    run_all();
    by_hand.repolls_max = 0;
    assert_string_equal(notes, "aaa"
                               "b"
                               "aaaaaaaaaaaaaaa");
    const teff_sched_options opt = {.size = sizeof opt, .repolls_max = 7};
    teffi_exec *exec = NULL;
    assert_int_equal(teffi_exec_real_new(&platform, 1, &opt, &exec), TEFF_OK);
    assert_int_equal(exec->repolls_max, 7);
    exec->ops->free(exec);
}

/* ---- which queue ---- */

static void wake_peers(job *j)
{
    for (unsigned i = 0; i < 4 && j->peer[i]; i++)
        push(j->peer[i]);
}

static void check_counts(teffi_exec *exec, uint64_t global, uint64_t next, uint64_t local)
{
    teff_sched_worker did = counts_of(exec, 0);
    assert_int_equal(did.global, global);
    assert_int_equal(did.lifo, next);
    assert_int_equal(did.local, local);
    assert_int_equal(did.runs, global + next + local);
}

/* A group that becomes READY in a turn stays with the worker: the last one in its LIFO slot, those
 * before in its deque. One that becomes READY outside goes through the queue of all workers. */
static void test_wakes_inside_stay_local(void **state)
{
    static job a, peer[3];
    monitor_hold(&platform);
    teffi_exec *exec = exec_new(1, NULL);
    job_init(&a, exec, 0, wake_peers);
    for (unsigned i = 0; i < 3; i++) {
        job_init(&peer[i], exec, 0, NULL);
        a.peer[i] = &peer[i];
    }
    push(&a);
    for (unsigned i = 0; i < 3; i++)
        WAIT_FOR(atomic_load(&peer[i].runs) == 1);
    check_counts(exec, 1, 1, 2);
    WAIT_FOR(teffi_group_state_of(&peer[0].group) == TEFFI_GROUP_IDLE);
    push(&peer[0]);
    WAIT_FOR(atomic_load(&peer[0].runs) == 2);
    check_counts(exec, 2, 1, 2);
    monitor_release();
    exec->ops->free(exec);
}

/* ---- a long scan that yields ---- */

static _Atomic unsigned yielded, short_ran, rows;

/* After each thousand rows it asks whether its slice is over and others wait; most often not, which
 * costs a look at a flag. */
static teff_err scan(void *self, teff_process *me)
{
    uint64_t end_ns = real_now() + LIMIT_NS;
    while ((!atomic_load(&yielded) || !atomic_load(&short_ran)) && real_now() < end_ns) {
        for (unsigned i = 0; i < 1000; i++)
            atomic_fetch_add_explicit(&rows, 1, memory_order_relaxed);
        if (teff_yield_if_due())
            atomic_fetch_add(&yielded, 1);
    }
    return TEFF_OK;
}

static teff_err short_step(void *self, const teff_event *events, size_t n, teff_step *out)
{
    atomic_store(&short_ran, 1);
    return teff_step_done(out);
}

static const teff_process_ops scan_ops = {.name = "scan", .flags = TEFF_PROCESS_FIBER, .run = scan};
static const teff_process_ops short_ops = {.name = "short", .step = short_step};

static void test_a_long_scan_yields(void **state)
{
    const teff_process_options opt = {.size = sizeof opt, .workers = 1};
    teff_process_system *system;
    teff_process_stats stats;
    assert_int_equal(teff_process_system_new(&opt, &system), TEFF_OK);
    assert_int_equal(teff_process_spawn(system, &scan_ops, NULL, NULL, NULL, 0, NULL), TEFF_OK);
    WAIT_FOR(atomic_load(&rows) > 0);
    assert_int_equal(teff_process_spawn(system, &short_ops, NULL, NULL, NULL, 0, NULL), TEFF_OK);
    do {
        teffi_thread_yield();
        teff_process_stats_get(system, &stats);
    } while (stats.ended < 2);
    assert_true(atomic_load(&yielded) >= 1);
    assert_true(atomic_load(&short_ran));
    teff_process_system_free(system);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_statuses, open_queue, close_queue),
        cmocka_unit_test_setup_teardown(test_repoll_limit, open_queue, close_queue),
        cmocka_unit_test_setup_teardown(test_repoll_limit_is_an_option, open_queue, close_queue),
        cmocka_unit_test(test_wakes_inside_stay_local),
        cmocka_unit_test(test_a_long_scan_yields),
    };
    teffi_platform_init_real(&platform, TEFF_LOG_INFO);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
