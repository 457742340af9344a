/* test_exec.c - the real executor: nothing ready waits for one busy or blocked worker, nothing
 * starves, timers fire, processors are handed over. Threads wait for each other, never for time. */
#include "test.h"
#include <dirent.h>
#include <stdio.h>
#include <string.h>
#include "base/queue.h"
#include "os/cpus.h"
#include "os/thread.h"
#include "group/direct.h"
#include "sched/exec.h"
#include "sched/scheduler.h"

static teffi_platform platform;

typedef struct job { /* a group with one item and something to do */
    teffi_group group;
    teffi_item item;
    void (*run)(struct job *job);
    struct job *peer, *peer2;
    teffi_parker *wait, *wake;
    _Atomic unsigned runs;
    _Atomic bool stop;
    _Atomic bool queued; /* the item is in the queue: it may be there once only */
    teffi_exec *exec;
} job;

static void on_item(teffi_group *group, teffi_item *item)
{
    job *j = teffi_container(group, job, group);
    atomic_store(&j->queued, false);
    j->run(j);
}

static const teffi_group_ops ops = {.handle = on_item};

static void job_init(job *j, teffi_exec *exec, void (*run)(job *job))
{
    *j = (job){.run = run, .exec = exec};
    teffi_group_init(&j->group, exec, &ops);
}

static void push(job *j)
{
    if (!atomic_exchange(&j->queued, true))
        (void)teffi_group_push(&j->group, &j->item);
}

static teffi_exec *exec_new(unsigned workers)
{
    teffi_exec *exec;
    assert_int_equal(teffi_exec_real_new(&platform, workers, NULL, &exec), TEFF_OK);
    return exec;
}

/* A parker may return early: until the flag that its waker set. */
static void wait_for(teffi_parker *parker, _Atomic unsigned *count, unsigned n)
{
    while (atomic_load(count) < n)
        teffi_parker_wait(parker, UINT64_MAX);
}

static void count_and_wake(job *j)
{
    teffi_parker *wake = j->wake;
    atomic_fetch_add(&j->runs, 1);
    if (wake)
        teffi_parker_wake(wake);
}

static void end_at_once(void *arg)
{
}

static void fill_most_of_a_large_stack(void *arg)
{
    volatile char bytes[512 * 1024];
    memset((char *)(uintptr_t)bytes, 1, sizeof bytes);
    *(bool *)arg = bytes[sizeof bytes / 2] == 1;
}

static void test_stacks_have_the_size_of_the_option(void **state)
{
    static const teff_sched_options opt = {.stack_bytes = 1024 * 1024},
                                    wrong[] = {{.stack_bytes = 65535}, {.stack_bytes = 8388609}};
    teffi_exec *exec;
    bool filled = false;
    assert_int_equal(teffi_exec_real_new(&platform, 1, &opt, &exec), TEFF_OK);
    teffi_fiber *fiber = teffi_fiber_new(exec->fibers, fill_most_of_a_large_stack, &filled);
    assert_non_null(fiber);
    assert_true(teffi_fiber_resume(fiber));
    assert_true(filled);
    exec->ops->free(exec);
    for (int i = 0; i < 2; i++)
        assert_non_null(strstr(teffi_sched_options_check(&wrong[i], 1), "stack_bytes"));
}

static void test_stacks_are_limited(void **state)
{
    enum { STACKS = 64 };
    static const teff_sched_options opt = {.stacks_max = STACKS};
    teffi_exec *exec;
    teffi_fiber *fiber[STACKS];
    assert_int_equal(teffi_exec_real_new(&platform, 1, &opt, &exec), TEFF_OK);
    for (int i = 0; i < STACKS; i++)
        assert_non_null(fiber[i] = teffi_fiber_new(exec->fibers, end_at_once, NULL));
    assert_null(teffi_fiber_new(exec->fibers, end_at_once, NULL));
    for (int i = 0; i < STACKS; i++)
        assert_true(teffi_fiber_resume(fiber[i]));
    exec->ops->stop(exec);
    exec->ops->free(exec);
}

static void test_start_stop(void **state)
{
    for (unsigned i = 0; i < 1000; i++) {
        teffi_exec *exec = exec_new(1 + i % 5);
        exec->ops->free(exec);
    }
}

static void test_runs_what_is_pushed_from_outside(void **state)
{
    teffi_exec *exec = exec_new(3);
    teffi_parker done = {0};
    job j;
    job_init(&j, exec, count_and_wake);
    j.wake = &done;
    for (unsigned i = 1; i <= 2000; i++) {
        push(&j);
        wait_for(&done, &j.runs, i);
    }
    exec->ops->free(exec);
}

static void push_peer(job *j)
{
    atomic_fetch_add(&j->runs, 1);
    if (!atomic_load(&j->stop))
        push(j->peer);
}

/* Two groups that hand over to each other for ever must not keep a third from its only worker. */
static void test_no_starvation_behind_a_pair(void **state)
{
    teffi_exec *exec = exec_new(1);
    teffi_parker done = {0};
    job a, b, c;
    job_init(&a, exec, push_peer);
    job_init(&b, exec, push_peer);
    job_init(&c, exec, count_and_wake);
    a.peer = &b;
    b.peer = &a;
    c.wake = &done;
    push(&a);
    for (unsigned i = 1; i <= 100; i++) {
        push(&c);
        wait_for(&done, &c.runs, i);
    }
    exec->ops->free(exec);
}

static void push_self(job *j)
{
    atomic_fetch_add(&j->runs, 1);
    push(j);
}

/* A group that always has more to do is requeued behind the others. */
static void test_no_starvation_behind_a_loop(void **state)
{
    teffi_exec *exec = exec_new(1);
    teffi_parker done = {0};
    job loop, c;
    job_init(&loop, exec, push_self);
    job_init(&c, exec, count_and_wake);
    c.wake = &done;
    push(&loop);
    for (unsigned i = 1; i <= 100; i++) {
        push(&c);
        wait_for(&done, &c.runs, i);
    }
    exec->ops->free(exec);
}

/* Two turns that spawn for ever, newest first: the oldest in the deque gets its turn. */
static void push_both(job *j)
{
    atomic_fetch_add(&j->runs, 1);
    push(j->peer);
    push(j->peer2);
}

static void test_no_starvation_in_the_deque(void **state)
{
    teffi_exec *exec = exec_new(1);
    teffi_parker done = {0};
    job a, b, c, d;
    job_init(&a, exec, push_both);
    job_init(&b, exec, push_both);
    job_init(&c, exec, push_both);
    job_init(&d, exec, count_and_wake);
    a.peer = &b;
    a.peer2 = &c;
    b.peer = &c;
    b.peer2 = &a;
    c.peer = &a;
    c.peer2 = &b;
    d.wake = &done;
    push(&a);
    for (unsigned i = 1; i <= 50; i++) {
        push(&d);
        wait_for(&done, &d.runs, i);
    }
    exec->ops->free(exec);
}

/* Pushes two and does not end before both have run: elsewhere, one from the deque and one from the
 * LIFO slot. */
static void push_two_and_wait(job *j)
{
    push(j->peer);
    push(j->peer2);
    wait_for(j->wait, &j->peer->runs, 1);
    wait_for(j->wait, &j->peer2->runs, 1);
    count_and_wake(j);
}

static void test_ready_work_leaves_a_busy_worker(void **state)
{
    for (unsigned i = 0; i < 20; i++) {
        teffi_exec *exec = exec_new(2);
        teffi_parker between = {0}, done = {0};
        job a, b, c;
        job_init(&a, exec, push_two_and_wait);
        job_init(&b, exec, count_and_wake);
        job_init(&c, exec, count_and_wake);
        a.peer = &b;
        a.peer2 = &c;
        a.wait = b.wake = c.wake = &between;
        a.wake = &done;
        push(&a);
        wait_for(&done, &a.runs, 1);
        exec->ops->free(exec);
    }
}

/* The same on one worker, in a declared blocking region: its processor goes to another thread. */
static void push_two_and_block(job *j)
{
    push(j->peer);
    j->exec->ops->blocking_begin(j->exec);
    push(j->peer2);
    j->exec->ops->blocking_begin(j->exec); /* they nest */
    wait_for(j->wait, &j->peer->runs, 1);
    j->exec->ops->blocking_end(j->exec);
    wait_for(j->wait, &j->peer2->runs, 1);
    j->exec->ops->blocking_end(j->exec);
    count_and_wake(j);
}

static void test_blocking_hands_the_processor_over(void **state)
{
    for (unsigned i = 0; i < 200; i++) {
        teffi_exec *exec = exec_new(1);
        teffi_parker between = {0}, done = {0};
        job a, b, c;
        job_init(&a, exec, push_two_and_block);
        job_init(&b, exec, count_and_wake);
        job_init(&c, exec, count_and_wake);
        a.peer = &b;
        a.peer2 = &c;
        a.wait = b.wake = c.wake = &between;
        a.wake = &done;
        push(&a);
        wait_for(&done, &a.runs, 1);
        exec->ops->free(exec);
    }
}

enum { BLOCKERS = 40 };

static _Atomic unsigned inside;
static teffi_parker all_inside, gate[BLOCKERS];

static void block_at_gate(job *j)
{
    j->exec->ops->blocking_begin(j->exec);
    atomic_fetch_add(&inside, 1);
    teffi_parker_wake(&all_inside);
    while (!atomic_load(&j->stop))
        teffi_parker_wait(j->wait, UINT64_MAX);
    j->exec->ops->blocking_end(j->exec);
    count_and_wake(j);
}

/* Far more turns block at once than there are processors; all want a processor back at once. */
static void test_many_block_at_once(void **state)
{
    static job j[BLOCKERS];
    teffi_parker done = {0};
    teffi_exec *exec = exec_new(2);
    atomic_store(&inside, 0);
    for (unsigned i = 0; i < BLOCKERS; i++) {
        job_init(&j[i], exec, block_at_gate);
        j[i].wait = &gate[i];
        j[i].wake = &done;
        push(&j[i]);
    }
    wait_for(&all_inside, &inside, BLOCKERS);
    for (unsigned i = 0; i < BLOCKERS; i++) {
        atomic_store(&j[i].stop, true);
        teffi_parker_wake(&gate[i]);
    }
    for (unsigned i = 0; i < BLOCKERS; i++)
        wait_for(&done, &j[i].runs, 1);
    exec->ops->free(exec);
}

typedef struct alarm {
    teffi_timer timer;
    teffi_parker *wake;
    _Atomic unsigned fired;
    _Atomic uint64_t at_ns;
    unsigned again;
    teffi_exec *exec;
} alarm;

static void on_alarm(teffi_timer *timer)
{
    alarm *a = teffi_container(timer, alarm, timer);
    atomic_store(&a->at_ns, teffi_now(&platform));
    if (a->again) {
        a->again--;
        a->exec->ops->timer_set(a->exec, timer, teffi_now(&platform) + 1000000);
    }
    teffi_parker *wake = a->wake;
    atomic_fetch_add(&a->fired, 1);
    teffi_parker_wake(wake);
}

static void test_timers_fire_and_not_early(void **state)
{
    enum { N = 200 };
    static alarm a[N];
    teffi_parker done = {0};
    teffi_exec *exec = exec_new(2);
    for (unsigned i = 0; i < N; i++) {
        a[i] = (alarm){.timer.fire = on_alarm, .wake = &done, .exec = exec, .again = i % 3};
        exec->ops->timer_set(exec, &a[i].timer, teffi_now(&platform) + i % 20 * 1000000u);
    }
    for (unsigned i = 0; i < N; i++)
        wait_for(&done, &a[i].fired, i % 3 + 1);
    for (unsigned i = 0; i < N; i++)
        assert_true(atomic_load(&a[i].at_ns) >= a[i].timer.due_ns);
    exec->ops->free(exec);
}

static void test_timer_cancel(void **state)
{
    teffi_exec *exec = exec_new(1);
    teffi_parker done = {0};
    alarm a = {.timer.fire = on_alarm, .wake = &done, .exec = exec};
    assert_false(exec->ops->timer_cancel(exec, &a.timer));
    exec->ops->timer_set(exec, &a.timer, teffi_now(&platform) + 3600000000000u);
    assert_true(exec->ops->timer_cancel(exec, &a.timer));
    assert_false(exec->ops->timer_cancel(exec, &a.timer));
    exec->ops->timer_set(exec, &a.timer, 0);
    wait_for(&done, &a.fired, 1);
    assert_false(exec->ops->timer_cancel(exec, &a.timer));
    exec->ops->free(exec);
}

static alarm stuck_alarm;

/* The only worker sits in a turn that ends when a timer of its own processor has fired. */
static void set_and_wait(job *j)
{
    j->exec->ops->timer_set(j->exec, &stuck_alarm.timer, teffi_now(&platform) + 1000000);
    wait_for(j->wait, &stuck_alarm.fired, 1);
    count_and_wake(j);
}

static void test_timer_fires_beside_a_stuck_worker(void **state)
{
    teffi_exec *exec = exec_new(1);
    teffi_parker between = {0}, done = {0};
    job j;
    stuck_alarm = (alarm){.timer.fire = on_alarm, .wake = &between, .exec = exec};
    job_init(&j, exec, set_and_wait);
    j.wait = &between;
    j.wake = &done;
    push(&j);
    wait_for(&done, &j.runs, 1);
    exec->ops->free(exec);
}

static void test_two_executors_keep_apart(void **state)
{
    teffi_exec *one = exec_new(1), *two = exec_new(1);
    teffi_parker between = {0}, done = {0};
    job a, b, c;
    job_init(&a, one, push_two_and_wait);
    job_init(&b, two, count_and_wake); /* pushed in a turn of the other */
    job_init(&c, two, count_and_wake);
    a.peer = &b;
    a.peer2 = &c;
    a.wait = b.wake = c.wake = &between;
    a.wake = &done;
    push(&a);
    wait_for(&done, &a.runs, 1);
    one->ops->free(one);
    two->ops->free(two);
}

/* ---- turns in place count as hand-offs ---- */

enum { IN_PLACE = 100, ROUNDS_OF_ANOTHER = 50, WAIT_MAX = 2000 };

/* On one worker. All is atomic: a thread that the OS stops for long loses its processor, and goes
 * on beside the next thread. */
static struct pair_game {
    job one, other, callee, waiting;
    _Atomic unsigned in_place, since, longest, rounds;
    _Atomic unsigned done;
    teffi_parker finished;
} game;

static void note_wait(job *j)
{
    unsigned waited = game.in_place - game.since;
    if (waited > game.longest)
        game.longest = waited;
    if (++game.rounds == ROUNDS_OF_ANOTHER) {
        atomic_store(&game.done, 1);
        teffi_parker_wake(&game.finished);
    }
}

static void do_in_place(teffi_exec *exec, job *callee)
{
    if (!teffi_direct_may_run_in_place(exec, false) || !teffi_group_claim(&callee->group))
        return;
    teffi_group *outer = teffi_direct_enter(exec, &callee->group);
    game.in_place++;
    teffi_direct_leave(exec, outer);
    teffi_direct_end_claim(exec, &callee->group);
}

/* Another one becomes ready; then turns in place; then the peer is to run next. */
static void play(job *j)
{
    if (atomic_load(&game.done))
        return;
    if (!atomic_load(&game.waiting.queued)) {
        game.since = game.in_place;
        push(&game.waiting);
    }
    for (int i = 0; i < IN_PLACE; i++)
        do_in_place(j->exec, &game.callee);
    push(j->peer);
}

static void test_a_pair_with_turns_in_place_starves_nobody(void **state)
{
    teffi_exec *exec = exec_new(1);
    memset(&game, 0, sizeof game);
    job_init(&game.one, exec, play);
    job_init(&game.other, exec, play);
    job_init(&game.callee, exec, NULL);
    job_init(&game.waiting, exec, note_wait);
    game.one.peer = &game.other;
    game.other.peer = &game.one;
    push(&game.one);
    wait_for(&game.finished, &game.done, 1);
    exec->ops->free(exec);
    assert_true(game.in_place > ROUNDS_OF_ANOTHER);
    assert_in_range(game.longest, 0, WAIT_MAX);
}

/* ---- work deferred while others have work ---- */

enum { OTHERS = 60 };

typedef struct late { /* a turn that defers work, beside a worker's queue full of long turns */
    teffi_deferred later;
    job defers, fills, others[OTHERS];
    _Atomic bool filled, done;
    pthread_t thread; /* that has deferred it */
    bool kept;        /* that thread had its processor */
    _Atomic bool deferred;
    _Atomic unsigned before; /* long turns of that thread until it was done */
} late;

static late lates;

static void note_done(teffi_deferred *work)
{
    atomic_store(&lates.done, true);
}

/* Until the monitor has looked at the clock once more. */
static void long_turn(job *j)
{
    uint32_t from = teffi_coarse_ms(j->exec);
    if (atomic_load(&lates.deferred) && !atomic_load(&lates.done) &&
        pthread_equal(pthread_self(), lates.thread))
        atomic_fetch_add(&lates.before, 1);
    while (teffi_coarse_ms(j->exec) == from)
        teffi_thread_yield();
    atomic_fetch_add(&j->runs, 1);
}

static void fill_own_queue(job *j)
{
    for (unsigned i = 0; i < OTHERS; i++)
        push(&lates.others[i]);
    atomic_store(&lates.filled, true);
    while (!atomic_load(&lates.deferred))
        teffi_thread_yield();
}

static void defer_in_a_turn(job *j)
{
    while (!atomic_load(&lates.filled))
        teffi_thread_yield();
    lates.thread = pthread_self();
    lates.kept = j->exec->ops->defer(j->exec, &lates.later);
    atomic_store(&lates.deferred, true);
}

/* out: false: while the thread stood still, the monitor has retaken its processor. */
static bool defer_beside_others_work(void)
{
    teffi_exec *exec = exec_new(2);
    memset(&lates, 0, sizeof lates);
    lates.later.run = note_done;
    for (unsigned i = 0; i < OTHERS; i++)
        job_init(&lates.others[i], exec, long_turn);
    job_init(&lates.fills, exec, fill_own_queue);
    job_init(&lates.defers, exec, defer_in_a_turn);
    push(&lates.fills);
    push(&lates.defers);
    for (unsigned i = 0; i < OTHERS; i++)
        while (!atomic_load(&lates.others[i].runs))
            teffi_thread_yield();
    if (lates.kept) {
        assert_true(atomic_load(&lates.done));
        assert_in_range(atomic_load(&lates.before), 0, 1);
    }
    exec->ops->free(exec);
    return lates.kept;
}

/* Other turns may run before deferred work, but not many if they are long. */
static void test_deferred_beside_others_work(void **state)
{
    while (!defer_beside_others_work())
        ;
}

static void defer_at_the_stop(job *j)
{
    atomic_store(&lates.filled, true);
    while (!teffi_sched_is_stopping(teffi_sched_of(j->exec)))
        teffi_thread_yield();
    assert_true(j->exec->ops->defer(j->exec, &lates.later));
}

/* A worker that stops in a turn leaves deferred work to the executor's end. */
static void test_deferred_while_the_executor_stops(void **state)
{
    teffi_exec *exec = exec_new(1);
    memset(&lates, 0, sizeof lates);
    lates.later.run = note_done;
    job_init(&lates.defers, exec, defer_at_the_stop);
    push(&lates.defers);
    while (!atomic_load(&lates.filled))
        teffi_thread_yield();
    exec->ops->free(exec);
    assert_true(atomic_load(&lates.done));
}

/* ---- long turns that hand over to each other ---- */

static struct {
    job one, other, waiting;
    _Atomic unsigned turns, before; /* of the pair: so far; when the waiting one ran */
    _Atomic bool stop;
    teffi_parker ran;
    bool ready;
} slow_pair;

static void slow_turn(job *j)
{
    uint32_t from = teffi_coarse_ms(j->exec);
    if (!slow_pair.ready) { /* both lie on this worker now */
        slow_pair.ready = true;
        push(&slow_pair.waiting);
    }
    while (teffi_coarse_ms(j->exec) == from && !atomic_load(&slow_pair.stop))
        teffi_thread_yield();
    atomic_fetch_add(&slow_pair.turns, 1);
    if (!atomic_load(&slow_pair.stop))
        push(j->peer);
}

static void note_turns(job *j)
{
    atomic_store(&slow_pair.before, atomic_load(&slow_pair.turns));
    atomic_store(&slow_pair.stop, true);
    atomic_fetch_add(&j->runs, 1);
    teffi_parker_wake(&slow_pair.ran);
}

/* Hand-offs in a row are limited by time, too: each of these turns takes a tick of the monitor, or
 * loses its processor to the one that waits. */
static void test_a_pair_with_long_turns_starves_nobody(void **state)
{
    enum { TURNS_MAX = 16 };
    memset(&slow_pair, 0, sizeof slow_pair);
    teffi_exec *exec = exec_new(1);
    job_init(&slow_pair.one, exec, slow_turn);
    job_init(&slow_pair.other, exec, slow_turn);
    job_init(&slow_pair.waiting, exec, note_turns);
    slow_pair.one.peer = &slow_pair.other;
    slow_pair.other.peer = &slow_pair.one;
    push(&slow_pair.one);
    wait_for(&slow_pair.ran, &slow_pair.waiting.runs, 1);
    exec->ops->free(exec);
    assert_in_range(atomic_load(&slow_pair.before), 0, TURNS_MAX);
}

/* ---- a machine that was suspended ---- */

static _Atomic uint64_t suspended_ns;

static uint64_t clock_that_goes_on(void *arg)
{
    return platform.mono_ns(platform.arg) + atomic_load(&suspended_ns);
}

static struct {
    teffi_timer timer;
    _Atomic unsigned fired;
    teffi_parker done;
} alarm_clock;

static void on_late_alarm(teffi_timer *timer)
{
    atomic_fetch_add(&alarm_clock.fired, 1);
    teffi_parker_wake(&alarm_clock.done);
}

/* The clock has gone on by two hours, what the worker sleeps for has not. */
static void test_a_timer_comes_soon_after_a_suspend(void **state)
{
    teffi_platform clock = platform;
    teffi_exec *exec;
    memset(&alarm_clock, 0, sizeof alarm_clock);
    clock.mono_ns = clock_that_goes_on;
    assert_int_equal(teffi_exec_real_new(&clock, 1, NULL, &exec), TEFF_OK);
    teffi_sched *real = teffi_sched_of(exec);
    alarm_clock.timer.fire = on_late_alarm;
    exec->ops->timer_set(exec, &alarm_clock.timer, teffi_now(&clock) + 3600000000000u);
    for (bool asleep = false; !asleep; teffi_thread_yield()) {
        pthread_mutex_lock(&real->idle_lock);
        asleep = real->monitor_asleep;
        pthread_mutex_unlock(&real->idle_lock);
    }
    atomic_store(&suspended_ns, 7200000000000u);
    wait_for(&alarm_clock.done, &alarm_clock.fired, 1);
    exec->ops->free(exec);
    atomic_store(&suspended_ns, 0);
}

/* ---- work pushed for all workers ends back-off ---- */

static struct {
    _Atomic unsigned runs;
    _Atomic bool go_on;
} busy;

static void be_busy(job *j)
{
    atomic_fetch_add(&busy.runs, 1);
    while (!atomic_load(&busy.go_on))
        teffi_thread_yield();
}

static void nothing(job *j)
{
}

/* The only worker backs off, as far as others see: it is in a turn, so that it leaves its token. */
static void check_push_ends_back_off(teff_sched_policy policy, uint32_t used)
{
    teff_sched_options opt = {.policy = policy};
    teffi_exec *exec;
    job turn, small;
    memset(&busy, 0, sizeof busy);
    assert_int_equal(teffi_exec_real_new(&platform, 1, &opt, &exec), TEFF_OK);
    teffi_worker *w = teffi_sched_of(exec)->workers[0];
    job_init(&turn, exec, be_busy);
    job_init(&small, exec, nothing);
    small.group.used = used;
    push(&turn);
    while (!atomic_load(&busy.runs))
        teffi_thread_yield();
    (void)teffi_parker_wait_for_tokens(&w->parker.parker, 0);
    atomic_store(&w->backing_off, true);
    atomic_store(&w->sched->n_backing_off, 1);
    push(&small);
    bool woken = teffi_parker_has_token(&w->parker.parker, TEFFI_TOKEN);
    atomic_store(&w->backing_off, false);
    atomic_store(&w->sched->n_backing_off, 0);
    atomic_store(&busy.go_on, true);
    exec->ops->free(exec);
    assert_true(woken);
}

static void test_a_push_for_all_ends_back_off(void **state)
{
    check_push_ends_back_off(TEFF_SCHED_SINGLE, 0);
    check_push_ends_back_off(TEFF_SCHED_MULTILEVEL,
                             teffi_used_time_add(0, teffi_now(&platform), 1000000000u));
    check_push_ends_back_off(TEFF_SCHED_PRIORITY, 0);
}

/* As `top -H` shows them. */
static bool has_thread_named(const char *name)
{
    char path[300], comm[32] = "";
    DIR *tasks = opendir("/proc/self/task");
    bool found = false;
    for (struct dirent *d; tasks && !found && (d = readdir(tasks));) {
        snprintf(path, sizeof path, "/proc/self/task/%s/comm", d->d_name);
        FILE *f = fopen(path, "r");
        found = f && fgets(comm, sizeof comm, f) && strncmp(comm, name, strlen(name)) == 0 &&
                comm[strlen(name)] == '\n';
        if (f)
            fclose(f);
    }
    if (tasks)
        closedir(tasks);
    return found;
}

static void test_a_worker_for_each_core(void **state)
{
    teffi_exec *exec = NULL;
    assert_int_equal(teffi_exec_real_new(&platform, 0, NULL, &exec), TEFF_OK);
    assert_int_equal(exec->workers, teffi_cpu_count());
    for (unsigned i = 0; i < exec->workers; i++) {
        char name[32];
        snprintf(name, sizeof name, "teff-w%u", i);
        while (!has_thread_named(name)) /* each names itself when it begins */
            teffi_thread_yield();
    }
    exec->ops->free(exec);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_a_worker_for_each_core),
        cmocka_unit_test(test_stacks_are_limited),
        cmocka_unit_test(test_stacks_have_the_size_of_the_option),
        cmocka_unit_test(test_start_stop),
        cmocka_unit_test(test_runs_what_is_pushed_from_outside),
        cmocka_unit_test(test_no_starvation_behind_a_pair),
        cmocka_unit_test(test_no_starvation_behind_a_loop),
        cmocka_unit_test(test_no_starvation_in_the_deque),
        cmocka_unit_test(test_ready_work_leaves_a_busy_worker),
        cmocka_unit_test(test_blocking_hands_the_processor_over),
        cmocka_unit_test(test_many_block_at_once),
        cmocka_unit_test(test_timers_fire_and_not_early),
        cmocka_unit_test(test_timer_cancel),
        cmocka_unit_test(test_timer_fires_beside_a_stuck_worker),
        cmocka_unit_test(test_two_executors_keep_apart),
        cmocka_unit_test(test_deferred_beside_others_work),
        cmocka_unit_test(test_deferred_while_the_executor_stops),
        cmocka_unit_test(test_a_pair_with_turns_in_place_starves_nobody),
        cmocka_unit_test(test_a_pair_with_long_turns_starves_nobody),

        cmocka_unit_test(test_a_timer_comes_soon_after_a_suspend),
        cmocka_unit_test(test_a_push_for_all_ends_back_off),
    };
    teffi_platform_init_real(&platform, TEFF_LOG_INFO);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
