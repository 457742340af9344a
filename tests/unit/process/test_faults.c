/* test_faults.c - processes when a request for memory or for a thread fails: the operation says so,
 * or the process ends with the error, and nothing is lost. */
#include "../faults.h"
#include "processes.h"
#include "memory/pool.h"
#include "process/process.h"
#include "process/send.h"

enum { ECHO = 1, LONG = 3000 }; /* longer than what the pool keeps */

static const char text[LONG] = "text";
static latch ended;
static _Atomic teff_err how; /* of the processes, the first error */

static void note_end(void *arg, teff_pid pid, teff_err err)
{
    teff_err none = TEFF_OK;
    (void)atomic_compare_exchange_strong(&how, &none, err);
    latch_hit(&ended);
}

/* Completes with a copy of the data. */
static void echo(void *arg, const teff_command *command)
{
    (void)teff_command_complete(command->completion, TEFF_OK, command->data, command->len);
}

/* A system with one worker in which `ops` runs, gets a long message, and ends. */
static teff_err run_one(const teff_process_ops *ops)
{
    const teff_process_options opt = {.size = sizeof opt, .workers = 1, .ended = note_end};
    teff_process_system *system = NULL;
    teff_pid pid;
    atomic_store(&ended.count, 0);
    atomic_store(&how, TEFF_OK);
    teff_err err = teff_process_system_new(&opt, &system);
    if (err)
        return err;
    assert_int_equal(teff_process_set_handler(system, ECHO, echo, NULL), TEFF_OK);
    err = teff_process_spawn(system, ops, NULL, "main", text, sizeof text, &pid);
    if (!err) {
        const teff_event message = {.data = text, .len = sizeof text};
        err = teff_process_send(system, pid, &message);
        if (err)
            (void)teff_process_cancel(system, pid);
        latch_wait(&ended, 1);
    }
    teff_process_system_free(system);
    return err ? err : atomic_load(&how);
}

/* ---- steps ---- */

static unsigned given; /* completions, timers and messages of the process */
static const teff_process_ops last_ops;

static bool is_whole(const teff_event *event)
{
    return event->len == sizeof text && memcmp(event->data, text, sizeof text) == 0;
}

static teff_err first_step(teff_step *out)
{
    teff_process *me = teff_step_process(out);
    teff_err err = teff_step_command(out, ECHO, 1, text, sizeof text);
    if (!err)
        err = teff_process_set_timer(me, 1, 0);
    return err ? err : teff_step_idle(out);
}

static teff_err step(void *self, const teff_event *events, size_t n, teff_step *out)
{
    if (!n)
        return first_step(out);
    for (size_t i = 0; i < n; i++) {
        if (events[i].err || events[i].kind == TEFF_EVENT_CANCEL)
            return TEFF_E_CANCELLED;
        if (events[i].kind != TEFF_EVENT_TIMER && !is_whole(&events[i]))
            return TEFF_E_FAILED;
    }
    given += (unsigned)n;
    return given < 3 ? teff_step_idle(out)
                     : teff_step_upgrade(out, &last_ops, NULL, "last", text, sizeof text);
}

static teff_err begin(void *self, teff_process *me, const char *method, const void *input,
                      size_t len)
{
    given = 0;
    return is_whole(&(teff_event){.data = input, .len = len}) ? TEFF_OK : TEFF_E_FAILED;
}

static teff_err last_step(void *self, const teff_event *events, size_t n, teff_step *out)
{
    return teff_step_done(out);
}

static const teff_process_ops step_ops = {.name = "steps", .init = begin, .step = step};
static const teff_process_ops last_ops = {.name = "last", .init = begin, .step = last_step};

static teff_err run_steps(void)
{
    return run_one(&step_ops);
}

/* ---- run functions, on a fiber or without ---- */

static teff_err run(void *self, teff_process *me)
{
    teff_event event;
    teff_err err = teff_process_ask(me, ECHO, text, sizeof text, &event);
    if (!err && !is_whole(&event))
        err = TEFF_E_FAILED;
    if (!err)
        err = teff_process_sleep(me, 1);
    if (!err)
        err = teff_process_command(me, ECHO, 2, text, sizeof text);
    for (int i = 0; !err && i < 2; i++) {
        err = teff_process_receive(me, &event);
        if (!err && !is_whole(&event))
            err = event.kind == TEFF_EVENT_CANCEL ? TEFF_E_CANCELLED : TEFF_E_FAILED;
    }
    return err;
}

static const teff_process_ops run_ops = {.name = "run", .init = begin, .run = run};
static const teff_process_ops fiber_ops = {
    .name = "fiber", .flags = TEFF_PROCESS_FIBER, .init = begin, .run = run};

static teff_err run_run(void)
{
    return run_one(&run_ops);
}

static teff_err run_process_on_fiber(void)
{
    return run_one(&fiber_ops);
}

static void test_a_failed_request_ends_a_process_of_steps(void **state)
{
    assert_true(fault_sweep(run_steps, true) > 10);
}

static void test_a_failed_request_ends_a_run_function(void **state)
{
    assert_true(fault_sweep(run_run, true) > 10);
}

static void test_a_failed_request_ends_a_fiber(void **state)
{
    assert_true(fault_sweep(run_process_on_fiber, true) > 10);
}

/* ---- messages that return ---- */

static teff_err take_any(void *arg, teff_pid to, const teff_event *message)
{
    return TEFF_OK;
}

/* in: from, the sender. out: how many objects stay on the heap. */
static long left_by_return(teff_process_system *system, teff_pid from)
{
    long before = atomic_load(&faults_live);
    teffi_event *event = teffi_pool_get(sizeof *event);
    assert_non_null(event);
    *event = (teffi_event){.event.from = from};
    teffi_process_return_message(system, event, (teff_pid){.slot = 1});
    return atomic_load(&faults_live) - before;
}

static void test_a_message_that_finds_no_sender_is_freed(void **state)
{
    const teff_process_options opt = {.size = sizeof opt, .workers = 1};
    const teff_pid gone = {.slot = TEFFI_PROCESS_BIT, .generation = 77}, away = {.silo = 9};
    teff_process_system *system;
    assert_int_equal(teff_process_system_new(&opt, &system), TEFF_OK);
    assert_int_equal(left_by_return(system, gone), 0);
    assert_int_equal(left_by_return(system, away), 0);
    assert_int_equal(system->dropped, 2);
    system->route.send = take_any;
    assert_int_equal(left_by_return(system, away), 0);
    assert_int_equal(system->dropped, 2);
    teff_process_system_free(system);
}

/* ---- messages that there is no memory for ---- */

static teff_err idle_step(void *self, const teff_event *events, size_t n, teff_step *out)
{
    return n && events[0].kind == TEFF_EVENT_CANCEL ? teff_step_done(out) : teff_step_idle(out);
}

static void test_a_message_without_memory_does_not_fill_the_mailbox(void **state)
{
    static const teff_process_ops idle_ops = {.name = "idle", .step = idle_step};
    teff_process_system *system = system_of((teff_process_options){.workers = 1, .mailbox_max = 1});
    teff_pid pid = spawn(system, &idle_ops, NULL);
    until_state(system, pid, TEFF_PROCESS_IDLE);
    for (int i = 0; i < 3; i++) {
        atomic_store(&faults_left, 1);
        assert_int_equal(send_tag(system, pid, 1), TEFF_E_NOMEM);
    }
    assert_int_equal(send_tag(system, pid, 2), TEFF_OK);
    teff_process_system_free(system);
}

static void test_a_spawn_without_method_and_input_allocates_nothing(void **state)
{
    static const teff_process_ops idle_ops = {.name = "idle", .step = idle_step};
    teff_process_system *system = system_of((teff_process_options){.workers = 1});
    teff_pid pid;
    (void)spawn(system, &idle_ops, NULL); /* takes slots for more of them */
    atomic_store(&faults_left, 1);
    assert_int_equal(teff_process_spawn(system, &idle_ops, NULL, NULL, NULL, 0, &pid), TEFF_OK);
    assert_int_equal(teff_process_spawn(system, &idle_ops, NULL, "", NULL, 0, &pid), TEFF_OK);
    assert_int_equal(teff_process_spawn(system, &idle_ops, NULL, "main", NULL, 0, &pid),
                     TEFF_E_NOMEM);
    teff_process_system_free(system);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_a_failed_request_ends_a_process_of_steps),
        cmocka_unit_test(test_a_failed_request_ends_a_run_function),
        cmocka_unit_test(test_a_failed_request_ends_a_fiber),
        cmocka_unit_test(test_a_message_that_finds_no_sender_is_freed),
        cmocka_unit_test(test_a_message_without_memory_does_not_fill_the_mailbox),
        cmocka_unit_test(test_a_spawn_without_method_and_input_allocates_nothing),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
