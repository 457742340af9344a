/* test_poll.c - workers and the poller: who waits in it, who looks, and what ends a wait. */
#include <limits.h>
#include <pthread.h>
#include <time.h>
#include "base/hash.h"
#include "held_monitor.h"
#include "jobs.h"
#include "sched/borrow.h"
#include "sched/idle.h"
#include "sched/scheduler.h"

enum { JOBS = 3 };

static struct net { /* a poller whose events the test makes; each pushes all of jobs */
    teffi_poller poller;
    pthread_mutex_t lock;
    pthread_cond_t moved;
    unsigned arrived, kept;
    bool woken;
    job jobs[JOBS];
    unsigned n_jobs;
    _Atomic unsigned waiting, waiting_most; /* threads in wait */
    _Atomic unsigned waits, wakes, handled, asked;
    _Atomic uint64_t timeout_ns; /* of the last wait with one */
    _Atomic uintptr_t ran_on;    /* the thread that handled the last event */
} net = {.lock = PTHREAD_MUTEX_INITIALIZER, .moved = PTHREAD_COND_INITIALIZER};

/* ---- the poller ---- */

static void wait_a_moment(uint64_t timeout_ns)
{
    struct timespec until;
    if (timeout_ns == UINT64_MAX) {
        pthread_cond_wait(&net.moved, &net.lock);
        return;
    }
    clock_gettime(CLOCK_REALTIME, &until);
    uint64_t ns = (uint64_t)until.tv_nsec + timeout_ns % 1000000000u;
    until.tv_sec += (time_t)(timeout_ns / 1000000000u + ns / 1000000000u);
    until.tv_nsec = (long)(ns % 1000000000u);
    pthread_cond_timedwait(&net.moved, &net.lock, &until);
}

static void net_wait(teffi_poller *poller, uint64_t timeout_ns)
{
    if (timeout_ns) {
        atomic_store(&net.timeout_ns, timeout_ns);
        atomic_fetch_add(&net.waits, 1);
    }
    unsigned waiting = atomic_fetch_add(&net.waiting, 1) + 1; /* last: tests look at it first */
    if (waiting > atomic_load(&net.waiting_most))
        atomic_store(&net.waiting_most, waiting);
    pthread_mutex_lock(&net.lock);
    teffi_bug_if(net.kept != 0); /* those of the last wait were handled */
    if (!net.arrived && !net.woken && timeout_ns)
        wait_a_moment(timeout_ns);
    net.kept = net.arrived;
    net.arrived = 0;
    net.woken = false;
    pthread_mutex_unlock(&net.lock);
    atomic_fetch_sub(&net.waiting, 1);
}

static bool net_run(teffi_poller *poller)
{
    unsigned n = net.kept;
    net.kept = 0;
    for (unsigned i = 0; i < n; i++) {
        for (unsigned k = 0; k < net.n_jobs; k++)
            push(&net.jobs[k]);
        atomic_store(&net.ran_on, (uintptr_t)pthread_self());
        atomic_fetch_add(&net.handled, 1);
    }
    return n;
}

static void net_wake(teffi_poller *poller)
{
    atomic_fetch_add(&net.wakes, 1);
    pthread_mutex_lock(&net.lock);
    net.woken = true;
    pthread_cond_broadcast(&net.moved);
    pthread_mutex_unlock(&net.lock);
}

static void net_neglected(teffi_poller *poller)
{
    atomic_fetch_add(&net.asked, 1);
}

static void arrive(void)
{
    pthread_mutex_lock(&net.lock);
    net.arrived++;
    pthread_cond_broadcast(&net.moved);
    pthread_mutex_unlock(&net.lock);
}

static int setup(void **state)
{
    net.poller = (teffi_poller){
        .wait = net_wait, .run = net_run, .wake = net_wake, .neglected = net_neglected};
    net.arrived = net.kept = net.n_jobs = 0;
    net.woken = false;
    net.waiting = net.waiting_most = net.waits = net.wakes = net.handled = net.asked = 0;
    teffi_platform_init_real(&platform, TEFF_LOG_WARN);
    return 0;
}

/* ---- the executor ---- */

static bool monitor_sleeps(teffi_exec *exec)
{
    teffi_sched *sched = teffi_sched_of(exec);
    pthread_mutex_lock(&sched->idle_lock);
    bool sleeps = sched->monitor_asleep;
    pthread_mutex_unlock(&sched->idle_lock);
    return sleeps;
}

static bool one_polls(teffi_exec *exec, unsigned n_parked)
{
    return atomic_load(&net.waiting) == 1 && teffi_sched_of(exec)->polling &&
           parked(exec) == n_parked;
}

/* A worker that was about to wait in the poller may be woken when the executor gets it: what is
 * counted begins after that. */
static teffi_exec *polling_exec(unsigned workers)
{
    teffi_exec *exec = exec_new(workers, NULL);
    exec->ops->poll(exec, &net.poller);
    WAIT_FOR(one_polls(exec, workers));
    atomic_store(&net.wakes, 0);
    atomic_store(&net.waits, 1);
    return exec;
}

static teffi_exec *polling_exec_held(unsigned workers)
{
    monitor_hold(&platform);
    return polling_exec(workers);
}

static void end(teffi_exec *exec)
{
    monitor_release();
    exec->ops->free(exec);
    assert_int_equal(atomic_load(&net.waiting), 0);
    assert_int_equal(atomic_load(&net.waiting_most), 1);
    assert_false(atomic_load(&net.poller.claimed));
}

static uint64_t unparks(teffi_exec *exec)
{
    uint64_t n = 0;
    for (unsigned i = 0; i < exec->workers; i++)
        n += counts_of(exec, i).unparks;
    return n;
}

static void net_jobs(teffi_exec *exec, unsigned n, void (*run)(job *j))
{
    net.n_jobs = n;
    for (unsigned i = 0; i < n; i++)
        job_init(&net.jobs[i], exec, 0, run);
}

static _Atomic unsigned elsewhere; /* turns on another thread than the event */

static void note_thread(job *j)
{
    if (atomic_load(&net.ran_on) != (uintptr_t)pthread_self())
        atomic_fetch_add(&elsewhere, 1);
}

static _Atomic unsigned spinning; /* turns that have begun to */

static void spin(job *j)
{
    atomic_fetch_add(&spinning, 1);
    while (!atomic_load(&j->stop))
        teffi_thread_yield();
}

/* ---- waiting ---- */

static void test_an_idle_worker_waits_in_the_poller(void **state)
{
    teffi_exec *exec = polling_exec(1);
    assert_int_equal(atomic_load(&net.timeout_ns), UINT64_MAX);
    end(exec);
}

static void test_one_worker_at_a_time_waits_in_it(void **state)
{
    teffi_exec *exec = polling_exec(4);
    net_jobs(exec, JOBS, NULL);
    for (unsigned i = 1; i <= 200; i++) {
        arrive();
        WAIT_FOR(atomic_load(&net.jobs[0].runs) == i && atomic_load(&net.jobs[1].runs) == i &&
                 atomic_load(&net.jobs[2].runs) == i);
    }
    WAIT_FOR(one_polls(exec, 4));
    end(exec); /* at most one ever waited */
}

static void test_a_poller_that_is_set_while_all_sleep(void **state)
{
    teffi_exec *exec = exec_new(2, NULL);
    WAIT_FOR(monitor_sleeps(exec));
    exec->ops->poll(exec, &net.poller);
    WAIT_FOR(one_polls(exec, 2));
    end(exec);
}

/* The groups of one event are its worker's local batch: no thread is woken for them. */
static void test_an_event_runs_on_the_worker_that_waited(void **state)
{
    teffi_exec *exec = polling_exec_held(2);
    net_jobs(exec, JOBS, note_thread);
    atomic_store(&elsewhere, 0);
    uint64_t before = unparks(exec);
    arrive();
    for (unsigned i = 0; i < JOBS; i++)
        WAIT_FOR(atomic_load(&net.jobs[i].runs) == 1);
    WAIT_FOR(one_polls(exec, 2));
    assert_int_equal(atomic_load(&elsewhere), 0);
    assert_int_equal(unparks(exec), before);
    assert_int_equal(atomic_load(&net.wakes), 0);
    end(exec);
}

static void test_a_push_ends_the_wait(void **state)
{
    static job j;
    teffi_exec *exec = polling_exec_held(1);
    job_init(&j, exec, 0, NULL);
    push(&j);
    WAIT_FOR(atomic_load(&j.runs) == 1);
    WAIT_FOR(one_polls(exec, 1));
    assert_int_equal(atomic_load(&net.wakes), 1);
    end(exec);
}

static void test_a_push_wakes_another_worker_if_there_is_one(void **state)
{
    static job j;
    teffi_exec *exec = polling_exec_held(2);
    job_init(&j, exec, 0, NULL);
    for (unsigned i = 1; i <= 50; i++) {
        WAIT_FOR(one_polls(exec, 2));
        push(&j);
        WAIT_FOR(atomic_load(&j.runs) == i);
    }
    assert_int_equal(atomic_load(&net.wakes), 0);
    assert_int_equal(atomic_load(&net.waits), 1);
    end(exec);
}

static _Atomic unsigned fired;

static void on_fire(teffi_timer *timer)
{
    atomic_fetch_add(&fired, 1);
}

/* The clock stands. The wheel may want to look at a timer earlier than it is due. */
static void test_a_timer_that_is_set_meanwhile_ends_the_wait_in_time(void **state)
{
    enum { MS = 1000000, IN_MS = 40 };
    static teffi_timer timer = {.fire = on_fire};
    platform.mono_ns = work_clock;
    atomic_store(&fired, 0);
    teffi_exec *exec = polling_exec_held(1);
    uint64_t due_ns = work_clock(NULL) + (uint64_t)IN_MS * MS;
    exec->ops->timer_set(exec, &timer, due_ns);
    WAIT_FOR(atomic_load(&net.timeout_ns) != UINT64_MAX);
    assert_in_range(atomic_load(&net.timeout_ns), 1, (uint64_t)(IN_MS + 2) * MS);
    atomic_fetch_add(&worked_ns, (uint64_t)(IN_MS + 2) * MS);
    WAIT_FOR(atomic_load(&fired) == 1);
    end(exec);
}

static void test_a_stop_ends_the_wait(void **state)
{
    teffi_exec *exec = polling_exec(2);
    exec->ops->stop(exec);
    assert_int_equal(atomic_load(&net.waiting), 0);
    assert_in_range(atomic_load(&net.wakes), 1, UINT_MAX);
    end(exec);
}

/* ---- without its processor ---- */

/* On the processor of the worker that waits. */
static void handle_one_event(void *arg)
{
    arrive();
    while (!atomic_load(&net.handled))
        teffi_thread_yield();
}

static void test_events_of_a_worker_that_lent_its_processor(void **state)
{
    bool borrowed = false;
    teffi_exec *exec = polling_exec(1);
    net_jobs(exec, JOBS, NULL);
    WAIT_FOR(borrowed || (borrowed = teffi_borrow_processor_and_run(exec, handle_one_event, NULL)));
    for (unsigned i = 0; i < JOBS; i++)
        WAIT_FOR(atomic_load(&net.jobs[i].runs) == 1);
    WAIT_FOR(one_polls(exec, 1));
    end(exec);
}

/* Whichever worker polls: the other one does if that one's processor is used no more. */
static void test_its_processor_is_used_no_more(void **state)
{
    teffi_exec *exec = polling_exec(2);
    net_jobs(exec, 1, NULL);
    for (unsigned i = 1; i <= 50; i++) {
        WAIT_FOR(one_polls(exec, 2));
        assert_int_equal(exec->ops->scale(exec, 1), TEFF_OK);
        arrive();
        WAIT_FOR(atomic_load(&net.jobs[0].runs) == i);
        WAIT_FOR(one_polls(exec, 1));
        assert_int_equal(exec->ops->scale(exec, 2), TEFF_OK);
    }
    end(exec);
}

/* ---- while workers are busy ---- */

static void push_peer(job *j)
{
    if (!atomic_load(&j->stop))
        push(j->peer[0]);
}

/* Two groups that push to each other, so that their worker never parks. */
static void test_a_busy_worker_looks(void **state)
{
    static job a, b;
    teffi_exec *exec = polling_exec(1);
    job_init(&a, exec, 0, push_peer);
    job_init(&b, exec, 0, push_peer);
    a.peer[0] = &b;
    b.peer[0] = &a;
    net_jobs(exec, 1, NULL);
    push(&a);
    WAIT_FOR(atomic_load(&b.runs) > 0);
    for (unsigned i = 1; i <= 10; i++) {
        arrive();
        WAIT_FOR(atomic_load(&net.jobs[0].runs) == i);
    }
    atomic_store(&a.stop, true);
    WAIT_FOR(one_polls(exec, 1));
    end(exec);
}

enum { LOOKS = 4 };

static job chain[2];
static _Atomic unsigned n_chained, chained_at[LOOKS];

static void count_and_push_peer(job *j)
{
    atomic_fetch_add(&n_chained, 1);
    push_peer(j);
}

/* The first event starts the chain. There is an event at each look. */
static bool run_and_arrive(teffi_poller *poller)
{
    unsigned n = atomic_load(&net.handled);
    if (!net_run(poller))
        return false;
    if (n == 0)
        push(&chain[0]);
    if (n < LOOKS)
        atomic_store(&chained_at[n], atomic_load(&n_chained));
    arrive();
    return true;
}

/* The coarse clock, which the monitor sets, stands. */
static void test_while_there_are_events_it_looks_every_64_picks(void **state)
{
    atomic_store(&n_chained, 0);
    net.poller.run = run_and_arrive;
    teffi_exec *exec = polling_exec_held(1);
    for (unsigned i = 0; i < 2; i++) {
        job_init(&chain[i], exec, 0, count_and_push_peer);
        chain[i].peer[0] = &chain[1 - i];
    }
    arrive();
    WAIT_FOR(atomic_load(&net.handled) >= LOOKS);
    for (unsigned i = 0; i < 2; i++)
        atomic_store(&chain[i].stop, true);
    end(exec);
    for (unsigned i = 2; i < LOOKS; i++)
        assert_int_equal(atomic_load(&chained_at[i]) - atomic_load(&chained_at[i - 1]), 64);
}

static void chain_goes_on(void)
{
    unsigned n = atomic_load(&n_chained);
    WAIT_FOR(atomic_load(&n_chained) > n + 1000);
}

/* Near zero, so that the monitor does not look for long turns: that would be more readings. */
static uint64_t early_clock(void *arg)
{
    return 1000000u + atomic_load(&worked_ns);
}

/* out: looks since then. */
static unsigned looks_after_ms(unsigned ms, uint32_t since)
{
    atomic_fetch_add(&worked_ns, ms * 1000000u);
    monitor_tick();
    chain_goes_on();
    return atomic_load(&net.poller.claims) - since;
}

/* Nothing arrives, and the clock advances only between two ticks. */
static void test_without_events_it_looks_once_a_millisecond(void **state)
{
    platform.mono_ns = early_clock;
    atomic_store(&worked_ns, 0);
    teffi_exec *exec = polling_exec_held(1);
    for (unsigned i = 0; i < 2; i++) {
        job_init(&chain[i], exec, 0, count_and_push_peer);
        chain[i].peer[0] = &chain[1 - i];
    }
    push(&chain[0]);
    chain_goes_on();
    (void)looks_after_ms(1, 0);
    uint32_t claims = atomic_load(&net.poller.claims);
    assert_int_equal(looks_after_ms(1, claims), 1);
    assert_int_equal(looks_after_ms(0, claims), 1);
    assert_int_equal(looks_after_ms(7, claims), 2);
    for (unsigned i = 0; i < 2; i++)
        atomic_store(&chain[i].stop, true);
    end(exec);
}

static uint64_t searches(teffi_exec *exec, uint64_t *rng)
{
    uint64_t n = 0;
    for (unsigned i = 0; i < exec->workers; i++) {
        const teffi_processor *p = &teffi_sched_of(exec)->processors[i];
        for (; rng[i] != p->rng && n < 1000; n++)
            (void)teffi_random_next(&rng[i]); /* a victim is drawn for each */
    }
    return n;
}

/* Whoever waits for events gets them sooner than by more searches. */
static void test_while_the_other_one_sleeps_it_searches_once(void **state)
{
    uint64_t rng[2] = {0};
    teffi_exec *exec = polling_exec_held(2);
    for (unsigned i = 0; i < 2; i++)
        rng[i] = teffi_sched_of(exec)->processors[i].rng;
    net_jobs(exec, 1, NULL);
    for (unsigned i = 1; i <= 5; i++) {
        arrive();
        WAIT_FOR(atomic_load(&net.jobs[0].runs) == i);
        WAIT_FOR(one_polls(exec, 2));
        assert_int_equal(searches(exec, rng), 1);
    }
    end(exec);
}

/* The one that polled is in a long turn, and the other one slept meanwhile. */
static void test_a_parked_worker_takes_over(void **state)
{
    teffi_exec *exec = polling_exec(2);
    net_jobs(exec, 1, spin);
    arrive();
    WAIT_FOR(atomic_load(&net.handled) == 1);
    WAIT_FOR(one_polls(exec, 1));
    atomic_store(&net.jobs[0].stop, true);
    WAIT_FOR(one_polls(exec, 2));
    end(exec);
}

static void block(job *j)
{
    teff_blocking_begin();
    spin(j);
    teff_blocking_end();
}

static void all_are_busy(void (*run)(job *j))
{
    static job busy[2];
    teffi_exec *exec = polling_exec(2);
    for (unsigned i = 0; i < 2; i++)
        job_init(&busy[i], exec, 0, run);
    push(&busy[0]);
    push(&busy[1]);
    WAIT_FOR(atomic_load(&net.asked) > 1);
    for (unsigned i = 0; i < 2; i++)
        atomic_store(&busy[i].stop, true);
    WAIT_FOR(one_polls(exec, 2));
    end(exec);
}

static void test_nobody_polls_since_all_turns_are_long(void **state)
{
    all_are_busy(spin);
}

static void test_nobody_polls_since_all_turns_block(void **state)
{
    all_are_busy(block);
}

/* One is enough: the other one, when its wait has ended, sleeps beside the poller. The monitor
 * wakes it to poll when the run of the first one is long; when that one parks, it polls itself. */
static void test_under_a_limit_it_leaves_the_poller_to_those_that_run(void **state)
{
    static job busy;
    teffi_exec *exec = polling_exec_held(2);
    teffi_sched *sched = teffi_sched_of(exec);
    sched->monitor.contention =
        (teffi_contention){.n = 2, .limit = 1, .due_ns = UINT64_MAX, .trial_ns = UINT64_MAX};
    atomic_store(&sched->wake_below, 1);
    job_init(&busy, exec, 0, spin);
    atomic_store(&spinning, 0);
    push(&busy);
    WAIT_FOR(atomic_load(&spinning) == 1 && parked(exec) == 1);
    uint64_t before = unparks(exec);
    arrive();
    WAIT_FOR(atomic_load(&net.handled) == 1);
    WAIT_FOR(parked(exec) == 1 && !atomic_load(&net.poller.claimed));
    monitor_tick();
    monitor_tick();
    WAIT_FOR(one_polls(exec, 1)); /* the second tick saw a long run, and that nobody polls */
    assert_int_equal(unparks(exec), before + 1);
    arrive();
    WAIT_FOR(atomic_load(&net.handled) == 2);
    WAIT_FOR(one_polls(exec, 1)); /* wake_below is 2 */
    atomic_store(&sched->wake_below, 1);
    arrive();
    WAIT_FOR(atomic_load(&net.handled) == 3);
    WAIT_FOR(parked(exec) == 1 && !atomic_load(&net.poller.claimed));
    atomic_store(&busy.stop, true);
    WAIT_FOR(one_polls(exec, 2));
    end(exec);
}

static void spin_then_block(job *j)
{
    spin(j);
    atomic_store(&j->stop, false);
    block(j);
}

/* Not after a tick of the monitor, which is held. */
static void test_under_a_limit_who_blocks_wakes_one_to_poll(void **state)
{
    static job busy;
    teffi_exec *exec = polling_exec_held(2);
    atomic_store(&teffi_sched_of(exec)->wake_below, 1);
    job_init(&busy, exec, 0, spin_then_block);
    atomic_store(&spinning, 0);
    push(&busy);
    WAIT_FOR(atomic_load(&spinning) == 1 && parked(exec) == 1);
    arrive();
    WAIT_FOR(atomic_load(&net.handled) == 1);
    WAIT_FOR(parked(exec) == 1 && !atomic_load(&net.poller.claimed));
    atomic_store(&busy.stop, true);
    WAIT_FOR(atomic_load(&spinning) == 2);
    WAIT_FOR(one_polls(exec, 1));
    atomic_store(&busy.stop, true);
    WAIT_FOR(atomic_load(&busy.runs) == 1);
    end(exec);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup(test_an_idle_worker_waits_in_the_poller, setup),
        cmocka_unit_test_setup(test_one_worker_at_a_time_waits_in_it, setup),
        cmocka_unit_test_setup(test_a_poller_that_is_set_while_all_sleep, setup),
        cmocka_unit_test_setup(test_an_event_runs_on_the_worker_that_waited, setup),
        cmocka_unit_test_setup(test_a_push_ends_the_wait, setup),
        cmocka_unit_test_setup(test_a_push_wakes_another_worker_if_there_is_one, setup),
        cmocka_unit_test_setup(test_a_timer_that_is_set_meanwhile_ends_the_wait_in_time, setup),
        cmocka_unit_test_setup(test_a_stop_ends_the_wait, setup),
        cmocka_unit_test_setup(test_events_of_a_worker_that_lent_its_processor, setup),
        cmocka_unit_test_setup(test_its_processor_is_used_no_more, setup),
        cmocka_unit_test_setup(test_a_busy_worker_looks, setup),
        cmocka_unit_test_setup(test_while_there_are_events_it_looks_every_64_picks, setup),
        cmocka_unit_test_setup(test_without_events_it_looks_once_a_millisecond, setup),
        cmocka_unit_test_setup(test_while_the_other_one_sleeps_it_searches_once, setup),
        cmocka_unit_test_setup(test_a_parked_worker_takes_over, setup),
        cmocka_unit_test_setup(test_under_a_limit_it_leaves_the_poller_to_those_that_run, setup),
        cmocka_unit_test_setup(test_under_a_limit_who_blocks_wakes_one_to_poll, setup),
        cmocka_unit_test_setup(test_nobody_polls_since_all_turns_are_long, setup),
        cmocka_unit_test_setup(test_nobody_polls_since_all_turns_block, setup),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
