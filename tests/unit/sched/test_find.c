/* test_find.c - where a worker looks for its next group, and how much it takes: its own queue
 * newest first, 16 more of the global one, half of a victim that is drawn at random; 16 searches.
 * The monitor is held and turns stand at a gate, so that queues are what the test made them. */
#include <sched.h>
#include <sys/syscall.h>
#include <unistd.h>
#include "held_monitor.h"
#include "jobs.h"
#include "base/hash.h"
#include "sched/scheduler.h"

static _Atomic unsigned inside, filled;
static _Atomic bool gate;

static int setup(void **state)
{
    forget_notes();
    atomic_store(&inside, 0);
    atomic_store(&filled, 0);
    atomic_store(&gate, false);
    return 0;
}

static teffi_exec *held_exec(unsigned workers)
{
    monitor_hold(&platform);
    return exec_new(workers, NULL);
}

static void end(teffi_exec *exec)
{
    monitor_release();
    exec->ops->free(exec);
}

static teffi_processor *processor_here(teffi_exec *exec)
{
    return &teffi_sched_of(exec)->processors[exec->ops->worker(exec) - 1];
}

static void wait_at_gate(job *j)
{
    atomic_fetch_add(&inside, 1);
    while (!atomic_load(&gate))
        teffi_thread_yield();
}

/* ---- its own queue ---- */

static void push_four(job *j)
{
    for (unsigned i = 0; i < 4; i++)
        push(j->peer[i]);
}

/* The group that a turn wakes last is next, then the others from the last to the first. */
static void test_own_work_newest_first(void **state)
{
    static job a, peer[4];
    teffi_exec *exec = held_exec(1);
    job_init(&a, exec, 'a', push_four);
    for (unsigned i = 0; i < 4; i++) {
        job_init(&peer[i], exec, (char)('1' + i), NULL);
        a.peer[i] = &peer[i];
    }
    push(&a);
    for (unsigned i = 0; i < 4; i++)
        WAIT_FOR(atomic_load(&peer[i].runs) == 1);
    assert_string_equal(notes, "a4321");
    end(exec);
}

/* ---- the global queue ---- */

enum { WAITING = 40 };

static _Atomic unsigned queued_here, queued_globally;

static void count_queues(job *j)
{
    atomic_store(&queued_here, teffi_deque_count(&processor_here(j->exec)->deque));
    atomic_store(&queued_globally, teffi_runqueue_count(&teffi_sched_of(j->exec)->queue));
}

/* They are pushed while the only worker is in a turn; the first of them counts the others. */
static void test_one_of_the_global_queue_and_16_more(void **state)
{
    static job holding, waiting[WAITING];
    teffi_exec *exec = held_exec(1);
    job_init(&holding, exec, 0, wait_at_gate);
    push(&holding);
    WAIT_FOR(atomic_load(&inside) == 1);
    for (unsigned i = 0; i < WAITING; i++) {
        job_init(&waiting[i], exec, 0, i ? NULL : count_queues);
        push(&waiting[i]);
    }
    atomic_store(&gate, true);
    for (unsigned i = 0; i < WAITING; i++)
        WAIT_FOR(atomic_load(&waiting[i].runs) == 1);
    end(exec);
    assert_int_equal(atomic_load(&queued_here), 16);
    assert_int_equal(atomic_load(&queued_globally), WAITING - 1 - 16);
}

/* ---- other workers ---- */

enum { VICTIMS = 3, EACH = 256, HALF_OF = 20 };

typedef struct victim { /* a turn that fills its worker's queue, and stands at the gate */
    job job;
    job fill[EACH];
    unsigned n;
    teffi_processor *processor;
} victim;

static victim victims[VICTIMS];
static job thief;
static unsigned workers; /* each of them is in one of these turns before a queue is filled */

static void meet_all(void)
{
    atomic_fetch_add(&inside, 1);
    while (atomic_load(&inside) < workers)
        teffi_thread_yield();
}

static void fill_own_queue(job *j)
{
    victim *v = teffi_container(j, victim, job);
    v->processor = processor_here(j->exec);
    atomic_fetch_add(&v->processor->items, 1000); /* handled before */
    meet_all();
    for (unsigned i = 0; i < v->n; i++)
        push(&v->fill[i]);
    atomic_fetch_add(&filled, 1);
    while (!atomic_load(&gate))
        teffi_thread_yield();
}

/* Its worker is the only one that looks for work, once the others' queues are full. */
static void leave_when_filled(job *j)
{
    meet_all();
    while (atomic_load(&filled) < workers - 1)
        teffi_thread_yield();
    processor_here(j->exec)->backoff = (teffi_backoff){0}; /* this turn may have been stolen */
}

/* in: each of n victims has `each` groups in its deque, named A, B, C; first: what the first one
 * that is stolen does. Open the gate to end. */
static teffi_exec *start_thief(unsigned n, unsigned each, void (*first)(job *j))
{
    workers = n + 1;
    teffi_exec *exec = held_exec(workers);
    for (unsigned k = 0; k < n; k++) {
        victim *v = &victims[k];
        v->n = each + 1; /* the last one is in the LIFO slot */
        job_init(&v->job, exec, 0, fill_own_queue);
        for (unsigned i = 0; i <= each; i++)
            job_init(&v->fill[i], exec, (char)('A' + k), i ? NULL : first);
        push(&v->job);
    }
    job_init(&thief, exec, 0, leave_when_filled);
    push(&thief);
    return exec;
}

/* All but those in LIFO slots, where no thief looks. */
static void wait_for_stolen(unsigned n, unsigned each)
{
    for (unsigned k = 0; k < n; k++)
        for (unsigned i = 0; i < each; i++)
            WAIT_FOR(atomic_load(&victims[k].fill[i].runs) == 1);
}

static _Atomic unsigned left_there;

static void count_halves(job *j)
{
    count_queues(j);
    atomic_store(&left_there, teffi_deque_count(&victims[0].processor->deque));
}

static void test_half_of_a_victims_queue(void **state)
{
    teffi_exec *exec = start_thief(1, HALF_OF, count_halves);
    wait_for_stolen(1, HALF_OF);
    atomic_store(&gate, true);
    end(exec);
    assert_int_equal(atomic_load(&queued_here), HALF_OF / 2 - 1); /* the first one runs */
    assert_int_equal(atomic_load(&left_there), HALF_OF / 2);
}

/* Steals take from all victims by turns. If the same one was the first to be asked each time, its
 * queue would be empty before another's was touched. */
static void test_victims_are_drawn_at_random(void **state)
{
    teffi_exec *exec = start_thief(VICTIMS, EACH - 1, NULL);
    wait_for_stolen(VICTIMS, EACH - 1);
    char first = notes[0];
    const char *last = strrchr(notes, first);
    unsigned others = 0;
    for (const char *at = notes; at < last; at++)
        others += *at != first;
    atomic_store(&gate, true);
    end(exec);
    assert_true(others > 0);
}

/* ---- does a steal pay? ---- */

static teffi_processor *thiefs;
static _Atomic uint64_t passed_ns;

/* Stands, but for a sleep of the thief, which takes 100 us. */
static uint64_t thiefs_clock(void *arg)
{
    const teffi_worker *w = teffi_worker_self();
    bool slept = w && w->processor && w->processor->backoff.sleep_ns;
    return 1000000000 + atomic_load(&passed_ns) + slept * 100000;
}

static void take_60_us(job *j)
{
    thiefs = processor_here(j->exec);
    atomic_fetch_add(&passed_ns, 60000);
}

static void take_60_us_for_200_items(job *j)
{
    take_60_us(j);
    atomic_fetch_add(&thiefs->items, 200);
}

static bool one_has_parked(teffi_exec *exec)
{
    teffi_sched *sched = teffi_sched_of(exec);
    pthread_mutex_lock(&sched->idle_lock);
    bool parked = teffi_worker_latest_in_state(sched, TEFFI_WORKER_PARKED);
    pthread_mutex_unlock(&sched->idle_lock);
    return parked;
}

/* The victim has handled items before; it handles none while the thief works or sleeps. No time
 * passes after the first group that is stolen, so that only the first steal is measured.
 * out:  what the thief has measured. */
static teffi_backoff measure_steals(void (*first)(job *j))
{
    teffi_platform before = platform;
    platform.mono_ns = thiefs_clock;
    atomic_store(&passed_ns, 0);
    teffi_exec *exec = start_thief(1, HALF_OF, first);
    wait_for_stolen(1, HALF_OF);
    WAIT_FOR(one_has_parked(exec));
    teffi_backoff measured = thiefs->backoff;
    atomic_store(&gate, true);
    end(exec);
    platform = before;
    return measured;
}

static void test_a_thief_of_few_long_turns_does_not_sleep(void **state)
{
    teffi_backoff measured = measure_steals(take_60_us);
    assert_int_equal(measured.since_ns, 1000060000); /* the second steal */
    assert_int_equal(measured.sleep_ns, 0);
    assert_int_equal(measured.alone_at_ns, 0);
}

static void test_a_thief_of_short_turns_sleeps_and_measures_the_victim(void **state)
{
    teffi_backoff measured = measure_steals(take_60_us_for_200_items);
    assert_int_equal(measured.sleep_ns, 100000);
    assert_int_equal(measured.alone_at_ns, 1000160000);
    assert_int_equal(measured.alone_rate, 0);
}

/* ---- before it parks ---- */

static _Atomic unsigned yields;

/* Instead of the C library's: counts those of workers that are in no turn. */
int sched_yield(void)
{
    const teffi_worker *w = teffi_worker_self();
    if (w && !atomic_load(&w->running))
        atomic_fetch_add(&yields, 1);
    return (int)syscall(SYS_sched_yield);
}

static uint64_t fixed(void *arg)
{
    return 0x9e3779b97f4a7c15u;
}

/* out: how many victims were drawn, as each draw advances the generator. */
static unsigned count_draws(const teffi_processor *p)
{
    uint64_t rng = fixed(NULL) | 1;
    unsigned n = 0;
    while (rng != p->rng && n < 1000) {
        (void)teffi_random_next(&rng);
        n++;
    }
    return n;
}

static bool has_parked(teffi_exec *exec)
{
    teffi_sched *sched = teffi_sched_of(exec);
    pthread_mutex_lock(&sched->idle_lock);
    bool parked = sched->workers[0]->state == TEFFI_WORKER_PARKED;
    pthread_mutex_unlock(&sched->idle_lock);
    return parked;
}

/* It looks four times in a tight loop, then twelve times with a yield of the core before each. */
static void test_16_searches_before_it_parks(void **state)
{
    teffi_platform before = platform;
    platform.random = fixed;
    atomic_store(&yields, 0);
    teffi_exec *exec = held_exec(1);
    WAIT_FOR(has_parked(exec));
    unsigned parks = (unsigned)counts_of(exec, 0).parks;
    assert_int_equal(count_draws(&teffi_sched_of(exec)->processors[0]), 16 * parks);
    assert_int_equal(atomic_load(&yields), 12 * parks);
    end(exec);
    platform = before;
}

/* ---- the clock ---- */

static teffi_timer timer;
static _Atomic unsigned fired;

static void on_timer(teffi_timer *t)
{
    atomic_fetch_add(&fired, 1);
}

typedef struct pusher { /* deferred work that makes its group READY */
    teffi_deferred work;
    job job;
} pusher;

static void push_deferred(teffi_deferred *work)
{
    push(&teffi_container(work, pusher, work)->job);
}

/* in: j, a pusher's. At its first run: set a timer that is due at once; the next pass has an odd
 * tick. */
static void defer_again(job *j)
{
    pusher *one = teffi_container(j, pusher, job);
    if (!atomic_load(&j->runs)) {
        j->exec->ops->timer_set(j->exec, &timer, teffi_now(&platform));
        processor_here(j->exec)->tick = 1;
    }
    if (!atomic_load(&fired) && atomic_load(&j->runs) < 1000)
        teffi_bug_if(!j->exec->ops->defer(j->exec, &one->work));
    else
        atomic_store(&j->stop, true);
}

/* Each pass looks for a group twice, before and after the deferred work. The clock is read every
 * 16 passes all the same: the timer fires. */
static void test_the_clock_is_read_while_deferred_work_makes_groups_ready(void **state)
{
    static pusher one = {.work = {.run = push_deferred}};
    teffi_platform before = platform;
    platform.mono_ns = work_clock;
    timer = (teffi_timer){.fire = on_timer};
    atomic_store(&fired, 0);
    teffi_exec *exec = held_exec(1);
    job_init(&one.job, exec, 0, defer_again);
    one.job.cost_ns = 1000000;
    push(&one.job);
    WAIT_FOR(atomic_load(&one.job.stop));
    unsigned in_time = atomic_load(&fired);
    end(exec);
    platform = before;
    assert_int_equal(in_time, 1);
    assert_in_range(atomic_load(&one.job.runs), 2, 20);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup(test_own_work_newest_first, setup),
        cmocka_unit_test_setup(test_one_of_the_global_queue_and_16_more, setup),
        cmocka_unit_test_setup(test_half_of_a_victims_queue, setup),
        cmocka_unit_test_setup(test_victims_are_drawn_at_random, setup),
        cmocka_unit_test_setup(test_a_thief_of_few_long_turns_does_not_sleep, setup),
        cmocka_unit_test_setup(test_a_thief_of_short_turns_sleeps_and_measures_the_victim, setup),
        cmocka_unit_test_setup(test_16_searches_before_it_parks, setup),
        cmocka_unit_test_setup(test_the_clock_is_read_while_deferred_work_makes_groups_ready,
                               setup),
    };
    teffi_platform_init_real(&platform, TEFF_LOG_INFO);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
