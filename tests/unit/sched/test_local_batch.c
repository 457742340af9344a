/* test_local_batch.c - groups of a local batch stay with the worker that took the batch apart while
 * their turns are short; none of them waits for a worker that does not run. The clock advances only
 * by what a turn costs, so that only the turns decide. */
#include "base/local.h"
#include "sched/submit.h"
#include "sched/scheduler.h"
#include "held_monitor.h"
#include "jobs.h"

enum { N = 16 };

static job reader, some[N], plain[2], outside;
static teffi_processor *its_processor; /* the reader's */
static _Atomic unsigned n_begun, n_ran, ran_elsewhere;
static _Atomic bool held, go, flag;
static _Atomic bool one_was_woken, kept;
static _Atomic uint64_t wakes; /* of workers, as the turn saw them */

static teffi_sched *real_of(teffi_exec *exec)
{
    return teffi_sched_of(exec);
}

/* NULL: the monitor has retaken it, or is about to. */
static teffi_processor *processor_here(teffi_exec *exec)
{
    unsigned n = exec->ops->worker(exec);
    return n ? &real_of(exec)->processors[n - 1] : NULL;
}

/* Nobody looks for work, so that whoever takes something was let in. */
static void all_sleep(teffi_exec *exec)
{
    WAIT_FOR(parked(exec) == exec->workers);
}

static void push_some(void *arg)
{
    for (unsigned i = 0; i < N; i++)
        push(&some[i]);
}

static void bring_some(job *j)
{
    its_processor = processor_here(j->exec);
    teffi_call_adding_to_batch(j->exec, push_some, NULL);
}

static bool all_rest(void)
{
    bool all = teffi_group_state_of(&reader.group) == TEFFI_GROUP_IDLE &&
               teffi_group_state_of(&outside.group) == TEFFI_GROUP_IDLE;
    for (unsigned i = 0; i < 2; i++)
        all &= teffi_group_state_of(&plain[i].group) == TEFFI_GROUP_IDLE;
    for (unsigned i = 0; i < N; i++)
        all &= teffi_group_state_of(&some[i].group) == TEFFI_GROUP_IDLE;
    return all;
}

static void set_up(teffi_exec *exec, void (*read)(job *j), void (*run)(job *j))
{
    WAIT_FOR(all_rest()); /* of an earlier round: without its processor a turn may go on */
    all_sleep(exec);
    its_processor = NULL;
    n_begun = n_ran = ran_elsewhere = 0;
    held = go = flag = one_was_woken = kept = false;
    job_init(&reader, exec, 0, read);
    job_init(&outside, exec, 0, NULL);
    for (unsigned i = 0; i < 2; i++)
        job_init(&plain[i], exec, 0, NULL);
    for (unsigned i = 0; i < N; i++)
        job_init(&some[i], exec, 0, run);
}

static void ran_here(job *j)
{
    if (processor_here(j->exec) != its_processor)
        atomic_fetch_add(&ran_elsewhere, 1);
    atomic_fetch_add(&n_ran, 1);
}

/* On workers' threads too. */
static uint64_t wakes_of(teffi_exec *exec)
{
    teffi_sched *real = real_of(exec);
    uint64_t n = 0;
    for (unsigned i = 0; i < real->n_processors; i++)
        n += atomic_load(&real->processors[i].counters.unparks);
    return n;
}

static uint64_t taken_by_others(teffi_exec *exec)
{
    uint64_t n = 0;
    for (unsigned i = 0; i < exec->workers; i++)
        n += counts_of(exec, i).stolen;
    return n;
}

/* ---- short turns ---- */

static void first_holds(job *j)
{
    if (!atomic_exchange(&held, true))
        while (!atomic_load(&go))
            teffi_thread_yield();
    ran_here(j);
}

/* A worker that comes by, to run something else, takes none. out: all were run here. */
static bool all_run_here(teffi_exec *exec)
{
    set_up(exec, bring_some, first_holds);
    push(&reader);
    WAIT_FOR(atomic_load(&held));
    push(&outside);
    WAIT_FOR(!teffi_processor_forbids_stealing(its_processor) ||
             (atomic_load(&outside.runs) == 1 && parked(exec) == 1));
    unsigned took = atomic_load(&n_ran);
    if (teffi_processor_forbids_stealing(its_processor))
        assert_int_equal(took, 0);
    atomic_store(&go, true);
    WAIT_FOR(atomic_load(&n_ran) == N);
    return atomic_load(&ran_elsewhere) == 0 && taken_by_others(exec) == 0;
}

/* Not always: where the first turn is put aside for long, the monitor lets others in. */
static void test_short_turns_stay(void **state)
{
    bool did = false;
    for (uint64_t end_ns = real_now() + LIMIT_NS; !did && real_now() < end_ns;) {
        teffi_exec *exec = exec_new(2, NULL);
        did = all_run_here(exec);
        exec->ops->free(exec);
    }
    assert_true(did);
}

/* The monitor may let others in at any time: then it is not kept all the while. */
static void look_around(job *j)
{
    bool before = teffi_processor_forbids_stealing(its_processor);
    atomic_store(&one_was_woken, parked(j->exec) == 0);
    atomic_store(&wakes, wakes_of(j->exec));
    atomic_store(&kept, before && teffi_processor_forbids_stealing(its_processor));
}

static void bring_and_look(job *j)
{
    bring_some(j);
    look_around(j);
}

/* Nor is the other one woken, if not by the monitor. */
static void test_nobody_is_woken(void **state)
{
    monitor_hold(&platform);
    teffi_exec *exec = exec_new(2, NULL);
    for (unsigned round = 0; round < 20; round++) {
        set_up(exec, bring_and_look, ran_here);
        uint64_t before = wakes_of(exec);
        push(&reader); /* wakes one, or is found by one that looked once more before it slept */
        WAIT_FOR(atomic_load(&n_ran) == N);
        assert_true(atomic_load(&kept));
        assert_true(atomic_load(&wakes) <= before + 1);
    }
    monitor_release();
    exec->ops->free(exec);
}

/* ---- run dry ---- */

static pthread_t the_test;
static _Atomic unsigned ticks; /* the monitor looks at the clock at each */

static uint64_t ticking_clock(void *arg)
{
    if (!teffi_worker_self() && !pthread_equal(pthread_self(), the_test))
        atomic_fetch_add(&ticks, 1);
    return work_clock(arg);
}

/* It sleeps for good when all have been parked for more ticks than that. */
static bool ticked(teffi_exec *exec, unsigned since)
{
    teffi_sched *real = real_of(exec);
    pthread_mutex_lock(&real->idle_lock);
    bool asleep = real->monitor_asleep;
    pthread_mutex_unlock(&real->idle_lock);
    return asleep || atomic_load(&ticks) - since > 3;
}

/* out: false: the monitor came by in a turn. */
static bool one_wake_in_all(teffi_exec *exec)
{
    set_up(exec, bring_and_look, ran_here);
    uint64_t before = wakes_of(exec);
    push(&reader);
    WAIT_FOR(atomic_load(&n_ran) == N);
    all_sleep(exec);
    unsigned since = atomic_load(&ticks);
    assert_false(teffi_processor_forbids_stealing(its_processor));
    WAIT_FOR(ticked(exec, since));
    assert_false(teffi_processor_forbids_stealing(its_processor));
    return atomic_load(&kept) && wakes_of(exec) == before + 1;
}

/* Nor does the monitor wake one for what has run. */
static void test_who_has_run_dry_keeps_nothing(void **state)
{
    bool did = false;
    teffi_exec *exec = exec_new(2, NULL);
    WAIT_FOR(did || (did = one_wake_in_all(exec)));
    exec->ops->free(exec);
}

/* ---- long turns ---- */

/* Behind the second it is known that they take long; then another worker must come. */
static void third_waits_for_another(job *j)
{
    bool here = processor_here(j->exec) == its_processor;
    if (here && atomic_fetch_add(&n_begun, 1) == 2) {
        look_around(j);
        atomic_store(&go, true);
        while (!atomic_load(&ran_elsewhere))
            teffi_thread_yield();
    }
    while (!here && !atomic_load(&go))
        teffi_thread_yield();
    ran_here(j);
}

static void test_others_share_long_turns(void **state)
{
    teffi_exec *exec = exec_new(2, NULL);
    set_up(exec, bring_some, third_waits_for_another);
    for (unsigned i = 0; i < N; i++)
        some[i].cost_ns = 3000000;
    push(&reader);
    WAIT_FOR(atomic_load(&n_ran) == N);
    assert_false(atomic_load(&kept));
    assert_true(atomic_load(&one_was_woken));
    assert_true(atomic_load(&ran_elsewhere) > 0);
    exec->ops->free(exec);
}

/* ---- turns that do not end ---- */

static void first_waits_for_a_later_one(job *j)
{
    if (atomic_fetch_add(&n_begun, 1) == 0)
        while (!atomic_load(&flag))
            teffi_thread_yield();
    else
        atomic_store(&flag, true);
    ran_here(j);
}

/* There is no third thread that could inherit the processor. */
static void test_a_turn_that_does_not_end(void **state)
{
    static const teff_sched_options two = {.threads_max = 2};
    teffi_exec *exec = exec_new(2, &two);
    for (unsigned round = 0; round < 20; round++) {
        set_up(exec, bring_some, first_waits_for_a_later_one);
        push(&reader);
        WAIT_FOR(atomic_load(&n_ran) == N);
    }
    exec->ops->free(exec);
}

static void first_blocks(job *j)
{
    if (atomic_fetch_add(&n_begun, 1) == 0) {
        j->exec->ops->blocking_begin(j->exec);
        atomic_store(&one_was_woken, parked(j->exec) == 0);
        atomic_store(&go, true);
        while (atomic_load(&n_ran) < N - 1)
            teffi_thread_yield();
        j->exec->ops->blocking_end(j->exec);
    }
    while (!atomic_load(&go))
        teffi_thread_yield();
    atomic_fetch_add(&n_ran, 1);
}

static void what_a_blocked_turn_kept(unsigned workers)
{
    teffi_exec *exec = exec_new(workers, NULL);
    for (unsigned round = 0; round < 20; round++) {
        set_up(exec, bring_some, first_blocks);
        push(&reader);
        WAIT_FOR(atomic_load(&n_ran) == N);
        assert_true(atomic_load(&one_was_woken));
    }
    exec->ops->free(exec);
}

static void test_a_turn_that_blocks(void **state)
{
    what_a_blocked_turn_kept(2);
    what_a_blocked_turn_kept(1);
}

/* ---- what was not brought ---- */

static void run_held(job *j)
{
    while (!atomic_load(&go))
        teffi_thread_yield();
    ran_here(j);
}

/* The first of them lies in the deque, the other one is next here. */
static void wait_for_plain(job *j)
{
    look_around(j);
    atomic_store(&go, true);
    while (!atomic_load(&plain[0].runs))
        teffi_thread_yield();
}

static void push_plain(void)
{
    push(&plain[0]);
    push(&plain[1]);
}

static void bring_then_push(job *j)
{
    bring_some(j);
    push_plain();
    wait_for_plain(j);
}

/* Unless the other one has taken the first by now: then all that is there may be kept. */
static void push_then_bring(job *j)
{
    push_plain();
    bring_some(j);
    bool all_there = its_processor && teffi_deque_count(&its_processor->deque) == N + 1;
    atomic_store(&flag, all_there && teffi_processor_forbids_stealing(its_processor));
    wait_for_plain(j);
}

static void others_may_take(void (*read)(job *j))
{
    static const teff_sched_options two = {.threads_max = 2};
    teffi_exec *exec = exec_new(2, &two);
    for (unsigned round = 0; round < 20; round++) {
        set_up(exec, read, run_held);
        for (unsigned i = 0; i < 2; i++)
            plain[i].run = run_held;
        push(&reader);
        WAIT_FOR(atomic_load(&n_ran) == N + 2);
        assert_false(read == bring_then_push ? atomic_load(&kept) : atomic_load(&flag));
        assert_true(atomic_load(&one_was_woken));
    }
    exec->ops->free(exec);
}

static void test_a_push_ends_it(void **state)
{
    others_may_take(bring_then_push);
}

/* What lies there for others already is not hidden from them. */
static void test_a_push_before(void **state)
{
    others_may_take(push_then_bring);
}

/* ---- who brings ---- */

static void test_on_another_thread(void **state)
{
    teffi_exec *exec = exec_new(2, NULL);
    set_up(exec, NULL, ran_here);
    teffi_call_adding_to_batch(exec, push_some, NULL);
    WAIT_FOR(atomic_load(&n_ran) == N);
    assert_false(teffi_processor_forbids_stealing(&real_of(exec)->processors[0]));
    assert_false(teffi_processor_forbids_stealing(&real_of(exec)->processors[1]));
    exec->ops->free(exec);
}

/* On workers' threads, which no assertion may leave. */
static void is_brought_here(bool should)
{
    if (teffi_worker_self()->adds_to_batch != should)
        atomic_store(&flag, true);
}

static void push_none(void *arg)
{
    is_brought_here(true);
}

static void bring_within(void *arg)
{
    teffi_exec *exec = arg;
    push(&some[0]);
    teffi_call_adding_to_batch(exec, push_none, NULL);
    is_brought_here(true); /* the outer one goes on */
    for (unsigned i = 1; i < N; i++)
        push(&some[i]);
}

static void bring_nested(job *j)
{
    teffi_call_adding_to_batch(j->exec, bring_within, j->exec);
    is_brought_here(false);
}

static void test_nested(void **state)
{
    teffi_exec *exec = exec_new(2, NULL);
    set_up(exec, bring_nested, ran_here);
    push(&reader);
    WAIT_FOR(atomic_load(&n_ran) == N);
    assert_false(atomic_load(&flag));
    exec->ops->free(exec);
}

static void push_not_brought(void *arg)
{
    is_brought_here(false);
    push_some(arg);
}

static void bring_elsewhere(job *j)
{
    teffi_exec *other = some[0].exec;
    teffi_call_adding_to_batch(other, push_not_brought, NULL);
}

static void test_another_executors_worker(void **state)
{
    teffi_exec *exec = exec_new(2, NULL), *other = exec_new(2, NULL);
    set_up(other, NULL, ran_here);
    job_init(&reader, exec, 0, bring_elsewhere);
    push(&reader);
    WAIT_FOR(atomic_load(&n_ran) == N);
    assert_false(atomic_load(&flag));
    exec->ops->free(exec);
    other->ops->free(other);
}

/* ---- turns run inside of fn are others' ---- */

static void turn_in_fn(job *j)
{
    is_brought_here(false);
}

static void help_in_fn(void *arg)
{
    teffi_exec *exec = arg;
    push(&plain[0]);
    while (!atomic_load(&plain[0].runs))
        (void)exec->ops->run_nested(exec);
    is_brought_here(true);
}

static void bring_with_help(job *j)
{
    plain[0].run = turn_in_fn;
    teffi_call_adding_to_batch(j->exec, help_in_fn, j->exec);
}

static void test_a_turn_inside(void **state)
{
    teffi_exec *exec = exec_new(1, NULL);
    set_up(exec, bring_with_help, NULL);
    push(&reader);
    WAIT_FOR(atomic_load(&reader.runs) == 1);
    assert_false(atomic_load(&flag));
    exec->ops->free(exec);
}

/* ---- batches without end ---- */

enum { CHAIN = 4000 };

static job chain[CHAIN], leaf[CHAIN];
static _Atomic bool let_in;

/* One that waits, one that is next. */
static void push_links(void *arg)
{
    job *j = arg;
    push(j->peer[0]);
    push(j->peer[1]);
}

static void bring_links(job *j)
{
    if (j->peer[0])
        teffi_call_adding_to_batch(j->exec, push_links, j);
    if (j >= &chain[CHAIN / 2] &&
        !teffi_processor_forbids_stealing(&real_of(j->exec)->processors[0]))
        atomic_store(&let_in, true);
}

/* Each turn brings as much as it does, and none takes long; in the middle that has gone on for
 * 6 ms. If the thread loses its core, another batch may begin then, so later turns count, too. */
static void test_a_worker_that_never_runs_dry(void **state)
{
    teffi_exec *exec = exec_new(1, NULL);
    atomic_store(&let_in, false);
    for (unsigned i = 0; i < CHAIN; i++) {
        job_init(&leaf[i], exec, 0, NULL);
        job_init(&chain[i], exec, 0, bring_links);
        chain[i].cost_ns = 3000;
        if (i) {
            chain[i - 1].peer[0] = &leaf[i];
            chain[i - 1].peer[1] = &chain[i];
        }
    }
    push(&chain[0]);
    WAIT_FOR(atomic_load(&chain[CHAIN - 1].runs) == 1);
    for (unsigned i = 1; i < CHAIN; i++)
        WAIT_FOR(atomic_load(&leaf[i].runs) == 1);
    assert_true(atomic_load(&let_in));
    exec->ops->free(exec);
}

/* ---- several who bring ---- */

enum { BRINGERS = 3, EACH = 24, ROUNDS = 200 };

typedef struct bringer {
    teffi_thread thread;
    job reader, job[EACH];
    unsigned round;
    _Atomic unsigned ran;
    _Atomic bool late; /* something did not run in time; told behind the join */
} bringer;

static bringer bringers[BRINGERS];

static void push_part(void *arg)
{
    bringer *b = arg;
    for (unsigned i = 0; i < EACH / 2; i++)
        push(&b->job[i]);
}

static void push_rest(void *arg)
{
    bringer *b = arg;
    for (unsigned i = EACH / 2; i < EACH; i++)
        push(&b->job[i]);
}

static void push_all(void *arg)
{
    bringer *b = arg;
    teffi_call_adding_to_batch(b->reader.exec, push_part, b);
    push_rest(b);
}

static void block_a_moment(teffi_exec *exec)
{
    exec->ops->blocking_begin(exec);
    teffi_thread_yield();
    exec->ops->blocking_end(exec);
}

static void read_batch(job *j)
{
    bringer *b = teffi_container(j, bringer, reader);
    switch (b->round % 4) {
    case 0:
        teffi_call_adding_to_batch(j->exec, push_all, b);
        break;
    case 1:
        push_part(b);
        teffi_call_adding_to_batch(j->exec, push_rest, b);
        break;
    case 2:
        teffi_call_adding_to_batch(j->exec, push_part, b);
        push_rest(b);
        break;
    default:
        teffi_call_adding_to_batch(j->exec, push_part, b);
        block_a_moment(j->exec);
        teffi_call_adding_to_batch(j->exec, push_rest, b);
    }
}

static void take_part(job *j)
{
    bringer *b = teffi_container(j->peer[0], bringer, reader);
    unsigned i = (unsigned)(j - b->job);
    if (b->round % 5 == 0 && i % 8 == 3)
        block_a_moment(j->exec);
    if (b->round % 7 == 0 && i % 8 == 5)
        (void)j->exec->ops->run_nested(j->exec);
    if (b->round % 11 == 0)
        atomic_fetch_add(&worked_ns, 100000);
    atomic_fetch_add(&b->ran, 1);
}

static void until_run(bringer *b, job *j)
{
    uint64_t end_ns = real_now() + LIMIT_NS;
    while (atomic_load(&j->runs) != b->round + 1 && real_now() < end_ns)
        teffi_thread_yield();
    if (atomic_load(&j->runs) != b->round + 1)
        atomic_store(&b->late, true);
}

/* The next round once all have ended: an item is in one queue at a time. */
static void bring_rounds(void *arg)
{
    bringer *b = arg;
    for (b->round = 0; b->round < ROUNDS && !atomic_load(&b->late); b->round++) {
        push(&b->reader);
        until_run(b, &b->reader);
        for (unsigned i = 0; i < EACH && !atomic_load(&b->late); i++)
            until_run(b, &b->job[i]);
    }
}

static void several_bring(unsigned workers)
{
    teffi_exec *exec = exec_new(workers, NULL);
    for (unsigned k = 0; k < BRINGERS; k++) {
        bringer *b = &bringers[k];
        atomic_store(&b->ran, 0);
        atomic_store(&b->late, false);
        job_init(&b->reader, exec, 0, read_batch);
        for (unsigned i = 0; i < EACH; i++) {
            job_init(&b->job[i], exec, 0, take_part);
            b->job[i].peer[0] = &b->reader;
        }
        assert_int_equal(teffi_thread_start(&b->thread, "bringer", bring_rounds, b), TEFF_OK);
    }
    for (unsigned k = 0; k < BRINGERS; k++)
        teffi_thread_join(&bringers[k].thread);
    for (unsigned k = 0; k < BRINGERS; k++)
        assert_false(atomic_load(&bringers[k].late));
    exec->ops->free(exec);
    for (unsigned k = 0; k < BRINGERS; k++)
        assert_int_equal(atomic_load(&bringers[k].ran), EACH * ROUNDS);
}

static void test_several_bring(void **state)
{
    for (unsigned workers = 1; workers <= 4; workers++)
        several_bring(workers);
}

int main(void)
{
    teffi_platform_init_real(&platform, TEFF_LOG_WARN);
    platform.mono_ns = ticking_clock;
    the_test = pthread_self();
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_short_turns_stay),
        cmocka_unit_test(test_nobody_is_woken),
        cmocka_unit_test(test_who_has_run_dry_keeps_nothing),
        cmocka_unit_test(test_others_share_long_turns),
        cmocka_unit_test(test_a_turn_that_does_not_end),
        cmocka_unit_test(test_a_turn_that_blocks),
        cmocka_unit_test(test_a_push_ends_it),
        cmocka_unit_test(test_a_push_before),
        cmocka_unit_test(test_on_another_thread),
        cmocka_unit_test(test_nested),
        cmocka_unit_test(test_another_executors_worker),
        cmocka_unit_test(test_a_turn_inside),
        cmocka_unit_test(test_a_worker_that_never_runs_dry),
        cmocka_unit_test(test_several_bring),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
