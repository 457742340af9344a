/* test_ways.c - four ways to run a process: with or without a fiber, with a run function or with
 * step. All are on one worker thread, so a process that waits must let the others run. */
#include "processes.h"
#include "sched/worker.h"

enum { ANSWER = 1, LATER = 2 };

static struct {
    latch ended, waiting;
    teff_process_system *system;
    teff_completion completion;
    _Atomic unsigned ran_meanwhile; /* the only worker's thread may be two for a while */
    char answer[16];
    unsigned events;
    teff_err err;
    teff_pid waiter;
} t;

static void answer(void *arg, const teff_command *command)
{
    assert_int_equal(
        teff_command_complete(command->completion, TEFF_OK, command->data, command->len), TEFF_OK);
}

static void later(void *arg, const teff_command *command)
{
    t.completion = command->completion;
    latch_hit(&t.waiting);
}

static int setup(void **state)
{
    memset(&t, 0, sizeof t);
    t.system = system_of((teff_process_options){.workers = 1, .ended = count_end, .arg = &t.ended});
    assert_int_equal(teff_process_set_handler(t.system, ANSWER, answer, NULL), TEFF_OK);
    assert_int_equal(teff_process_set_handler(t.system, LATER, later, NULL), TEFF_OK);
    *state = t.system;
    return 0;
}

static int teardown(void **state)
{
    teff_process_system_free(*state);
    return 0;
}

/* While the first waits, others run on the only worker; one of them completes what it waits for. */
static teff_err step_other(void *self, const teff_event *events, size_t n, teff_step *out)
{
    if (++t.ran_meanwhile == 3)
        assert_int_equal(teff_command_complete(t.completion, TEFF_OK, "by another", 11), TEFF_OK);
    return teff_step_done(out);
}

static const teff_process_ops other = {.name = "other", .step = step_other};

static teff_err ask_and_note(teff_process *me)
{
    teff_event response;
    teff_err err = teff_process_ask(me, ANSWER, "quick", 6, &response);
    assert_int_equal(err, TEFF_OK);
    assert_string_equal(response.data, "quick");
    assert_int_equal(response.tag, 0);
    err = teff_process_ask(me, LATER, NULL, 0, &response);
    if (!err)
        memcpy(t.answer, response.data, response.len);
    return err;
}

static void others_complete_it(unsigned ends)
{
    latch_wait(&t.waiting, 1);
    assert_int_equal(t.ran_meanwhile, 0);
    for (unsigned i = 0; i < 3; i++)
        (void)spawn(t.system, &other, NULL);
    latch_wait(&t.ended, ends);
    assert_int_equal(t.ran_meanwhile, 3);
    assert_string_equal(t.answer, "by another");
}

static uint64_t count_events(teff_process_system *system)
{
    teff_process_count counts[4];
    size_t n = teff_process_worker_counts(system, counts, 4);
    uint64_t events = 0;
    for (size_t i = 0; i < n; i++)
        events += counts[i].events;
    return events;
}

/* A fiber and a run function: run is called on a fiber of its own. */
static teff_err run_ask(void *self, teff_process *me)
{
    return ask_and_note(me);
}

static void test_fiber_with_run(void **state)
{
    static const teff_process_ops ops = {
        .name = "fiber run", .flags = TEFF_PROCESS_FIBER, .run = run_ask};
    teff_pid pid = spawn(*state, &ops, NULL);
    latch_wait(&t.waiting, 1);
    until_state(*state, pid, TEFF_PROCESS_BLOCKED);
    others_complete_it(4);
    assert_int_equal(count_events(*state), 2); /* the responses */
}

/* A fiber and step: step is called on a fiber, and may wait there; its events are queued. */
static teff_err step_ask(void *self, const teff_event *events, size_t n, teff_step *out)
{
    t.events += (unsigned)n;
    if (n && events[n - 1].tag == 9)
        return teff_step_done(out);
    if (n == 0) {
        teff_err err = ask_and_note(teff_step_process(out));
        return err ? err : teff_step_idle(out);
    }
    return teff_step_idle(out);
}

static void test_fiber_without_run(void **state)
{
    static const teff_process_ops ops = {
        .name = "fiber step", .flags = TEFF_PROCESS_FIBER, .step = step_ask};
    teff_pid pid = spawn(*state, &ops, NULL);
    latch_wait(&t.waiting, 1);
    for (unsigned i = 0; i < 10; i++)
        assert_int_equal(send_tag(*state, pid, i), TEFF_OK);
    others_complete_it(4);
    assert_int_equal(t.events, 10);
}

/* A run function without a fiber: while it waits, other processes run nested on its stack. */
static void test_run_without_fiber(void **state)
{
    static const teff_process_ops ops = {.name = "run", .run = run_ask};
    (void)spawn(*state, &ops, NULL);
    others_complete_it(4);
}

/* Step without a fiber: while it waits, other processes run nested on its stack. */
static void test_step_without_fiber(void **state)
{
    static const teff_process_ops ops = {.name = "step", .step = step_ask};
    teff_pid pid = spawn(*state, &ops, NULL);
    latch_wait(&t.waiting, 1);
    for (unsigned i = 0; i < 10; i++)
        assert_int_equal(send_tag(*state, pid, i), TEFF_OK);
    others_complete_it(4);
    assert_int_equal(t.events, 10);
}

/* Completed from a thread outside while nothing else is ready: the one that waits sleeps and is
 * woken, in each of the ways. */
static void test_a_sleeping_waiter_is_woken_from_outside(void **state)
{
    static const teff_process_ops ways[] = {
        {.name = "fiber run", .flags = TEFF_PROCESS_FIBER, .run = run_ask},
        {.name = "run", .run = run_ask},
    };
    for (unsigned i = 0; i < 500; i++) {
        (void)spawn(*state, &ways[i % 2], NULL);
        latch_wait(&t.waiting, i + 1);
        assert_int_equal(teff_command_complete(t.completion, TEFF_OK, "x", 2), TEFF_OK);
        latch_wait(&t.ended, i + 1);
    }
}

/* ---- what a run function can do ---- */

static teff_err run_echo(void *self, teff_process *me)
{
    teff_event event;
    for (;;) {
        teff_err err = teff_process_receive(me, &event);
        if (err || event.kind == TEFF_EVENT_CANCEL)
            return err;
        teff_event reply = {
            .tag = event.tag, .data = event.data, .len = event.len, .from = teff_process_pid(me)};
        err = teff_process_send(teff_process_system_of(me), event.from, &reply);
        if (err)
            return err;
    }
}

static teff_err run_caller(void *self, teff_process *me)
{
    teff_pid *echo = self;
    teff_event event;
    for (uint64_t i = 0; i < 1000; i++) {
        teff_event ask = {.tag = i, .data = &i, .len = sizeof i, .from = teff_process_pid(me)};
        assert_int_equal(teff_process_send(teff_process_system_of(me), *echo, &ask), TEFF_OK);
        assert_int_equal(teff_process_receive(me, &event), TEFF_OK);
        assert_int_equal(event.tag, i);
        assert_memory_equal(event.data, &i, sizeof i);
        assert_true(teff_pid_equals(event.from, *echo));
        t.events++;
    }
    return TEFF_OK;
}

static void test_receive_and_send_between_run_functions(void **state)
{
    static const teff_process_ops echo[] = {
        {.name = "echo", .flags = TEFF_PROCESS_FIBER, .run = run_echo},
        {.name = "echo", .run = run_echo}};
    static const teff_process_ops caller[] = {
        {.name = "caller", .flags = TEFF_PROCESS_FIBER, .run = run_caller},
        {.name = "caller", .run = run_caller}};
    /* Each way calls each way, but for two without fibers: the one below could not go on. */
    for (unsigned i = 0; i < 3; i++) {
        teff_pid pid = spawn(*state, &echo[i / 2], NULL);
        (void)spawn(*state, &caller[i % 2], &pid);
        latch_wait(&t.ended, 2 * i + 1);
        assert_int_equal(teff_process_cancel(*state, pid), TEFF_OK);
        latch_wait(&t.ended, 2 * i + 2);
        assert_int_equal(t.events, 1000 * (i + 1));
    }
}

static teff_err run_sleep(void *self, teff_process *me)
{
    assert_int_equal(teff_process_sleep(me, 1), TEFF_OK);
    assert_int_equal(teff_process_yield(me), TEFF_OK);
    t.waiter = teff_process_pid(me);
    latch_hit(&t.waiting);
    t.err = teff_process_sleep(me, 1000000);
    teff_event event;
    assert_int_equal(teff_process_receive(me, &event), TEFF_OK);
    assert_int_equal(event.kind, TEFF_EVENT_CANCEL);
    return TEFF_OK;
}

static void test_a_cancel_ends_a_sleep(void **state)
{
    static const teff_process_ops ways[] = {
        {.name = "fiber", .flags = TEFF_PROCESS_FIBER, .run = run_sleep},
        {.name = "run", .run = run_sleep}};
    for (unsigned i = 0; i < 2; i++) {
        (void)spawn(*state, &ways[i], NULL);
        latch_wait(&t.waiting, i + 1);
        assert_int_equal(teff_process_cancel(*state, t.waiter), TEFF_OK);
        latch_wait(&t.ended, i + 1);
        assert_int_equal(t.err, TEFF_E_CANCELLED);
    }
}

static teff_err run_to_step(void *self, teff_process *me)
{
    t.events++;
    return TEFF_OK;
}

static teff_err step_to_run(void *self, const teff_event *events, size_t n, teff_step *out)
{
    static const teff_process_ops run = {
        .name = "became run", .flags = TEFF_PROCESS_FIBER, .run = run_to_step};
    return teff_step_upgrade(out, &run, NULL, NULL, NULL, 0);
}

static teff_err step_to_plain(void *self, const teff_event *events, size_t n, teff_step *out)
{
    static const teff_process_ops plain = {.name = "became plain", .step = step_to_run};
    return teff_step_upgrade(out, &plain, NULL, NULL, NULL, 0);
}

/* An upgrade may change the way too: fiber -> none -> fiber with run. */
static void test_upgrade_changes_the_way(void **state)
{
    static const teff_process_ops ops = {
        .name = "fiber step", .flags = TEFF_PROCESS_FIBER, .step = step_to_plain};
    (void)spawn(*state, &ops, NULL);
    latch_wait(&t.ended, 1);
    assert_int_equal(t.events, 1);
}

/* ---- on which stack others run while one yields ---- */

static _Atomic unsigned nested;

static teff_err count_nested(void *self, const teff_event *events, size_t n, teff_step *out)
{
    atomic_fetch_add(&nested, teffi_worker_self()->nested);
    return teff_step_done(out);
}

static teff_err yield_to_one(void *self, teff_process *me)
{
    static const teff_process_ops ops = {.name = "counts", .step = count_nested};
    (void)spawn(t.system, &ops, NULL);
    return teff_process_yield(me);
}

static void test_others_run_on_the_stack_of_one_that_yields_without_a_fiber(void **state)
{
    static const teff_process_ops ways[] = {
        {.name = "fiber", .flags = TEFF_PROCESS_FIBER, .run = yield_to_one},
        {.name = "plain", .run = yield_to_one}};
    for (unsigned i = 0; i < 2; i++) {
        (void)spawn(*state, &ways[i], NULL);
        latch_wait(&t.ended, 2 * (i + 1));
        assert_int_equal(atomic_load(&nested), i);
    }
}

/* ---- no stack for a fiber ---- */

static teff_err count_init(void *self, teff_process *me, const char *method, const void *input,
                           size_t len)
{
    t.events++;
    return TEFF_E_USER(1);
}

static teff_err wait_for_event(void *self, teff_process *me)
{
    teff_event event;
    latch_hit(&t.waiting);
    return teff_process_receive(me, &event);
}

static void note_first_error(void *arg, teff_pid pid, teff_err err)
{
    t.err = t.err ? t.err : err;
    latch_hit(&t.ended);
}

/* It ends with NOMEM, and init is not called. */
static void test_a_process_without_a_stack(void **state)
{
    enum { STACKS = 64 };
    static const teff_process_ops waits = {
        .name = "waits", .flags = TEFF_PROCESS_FIBER, .run = wait_for_event};
    static const teff_process_ops fails = {
        .name = "fails", .flags = TEFF_PROCESS_FIBER, .init = count_init, .run = wait_for_event};
    const teff_sched_options sched = {.size = sizeof sched, .stacks_max = STACKS};
    teff_process_system *system =
        system_of((teff_process_options){.workers = 1, .sched = &sched, .ended = note_first_error});
    for (unsigned i = 0; i < STACKS; i++)
        (void)spawn(system, &waits, NULL);
    latch_wait(&t.waiting, STACKS);
    (void)spawn(system, &fails, NULL);
    latch_wait(&t.ended, 1);
    assert_int_equal(t.err, TEFF_E_NOMEM);
    assert_int_equal(t.events, 0);
    teff_process_system_free(system);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
#define T(name) cmocka_unit_test_setup_teardown(name, setup, teardown)
        T(test_fiber_with_run),
        T(test_fiber_without_run),
        T(test_run_without_fiber),
        T(test_step_without_fiber),
        T(test_a_sleeping_waiter_is_woken_from_outside),
        T(test_receive_and_send_between_run_functions),
        T(test_a_cancel_ends_a_sleep),
        T(test_upgrade_changes_the_way),
        T(test_others_run_on_the_stack_of_one_that_yields_without_a_fiber),
        T(test_a_process_without_a_stack),
    };
    return cmocka_run_group_tests_name("process/ways", tests, NULL, NULL);
}
