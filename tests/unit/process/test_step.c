/* test_step.c - init, step and close of a process; events with tags; commands and their
 * completions; the states Ready, Running, Blocked, Idle and Complete. */
#include "processes.h"
#include "process/send.h"
#include "process/turn.h"

enum { LATER = 7, NOW = 8, NOBODY = 200 };

static struct {
    latch ended, stepped, asked;
    teff_err err; /* how the last process ended */
    char method[16];
    char input[16];
    size_t input_len;
    unsigned inits, closes, steps, empty_steps;
    unsigned n_seen;
    teff_event seen[64];
    char seen_data[64][16];
    teff_completion yields[8]; /* of commands not completed yet */
    uint64_t command_tags[8];
    char command_data[8][16];
    unsigned script;  /* what step is to do: the test's number */
    uint64_t mailbox; /* its load when a step decided */
    teff_process_state state_while_running;
    teff_process_system *system;
} t;

static void on_end(void *arg, teff_pid pid, teff_err err)
{
    t.err = err;
    latch_hit(&t.ended);
}

static void later(void *arg, const teff_command *command)
{
    unsigned i = atomic_load(&t.asked.count);
    t.yields[i] = command->completion;
    t.command_tags[i] = command->tag;
    if (command->len)
        memcpy(t.command_data[i], command->data, command->len);
    latch_hit(&t.asked);
}

static void now(void *arg, const teff_command *command)
{
    assert_int_equal(teff_command_complete(command->completion, TEFF_OK, "inline", 7), TEFF_OK);
}

static int setup(void **state)
{
    memset(&t, 0, sizeof t);
    t.system = system_of((teff_process_options){.workers = 2, .ended = on_end});
    assert_int_equal(teff_process_set_handler(t.system, LATER, later, NULL), TEFF_OK);
    assert_int_equal(teff_process_set_handler(t.system, NOW, now, NULL), TEFF_OK);
    *state = t.system;
    return 0;
}

static int teardown(void **state)
{
    teff_process_system_free(*state);
    return 0;
}

static void note(const teff_event *events, size_t n)
{
    t.steps++;
    t.empty_steps += n == 0;
    for (size_t i = 0; i < n && t.n_seen < 64; i++) {
        t.seen[t.n_seen] = events[i];
        if (events[i].len && events[i].len <= 16)
            memcpy(t.seen_data[t.n_seen], events[i].data, events[i].len);
        t.n_seen++;
    }
}

static teff_err init(void *self, teff_process *me, const char *method, const void *input,
                     size_t len)
{
    assert_non_null(me);
    t.inits++;
    strncpy(t.method, method, sizeof t.method - 1);
    t.input_len = len;
    if (len)
        memcpy(t.input, input, len);
    return strcmp(method, "unknown") == 0 ? TEFF_E_NOT_FOUND : TEFF_OK;
}

static void close_it(void *self)
{
    t.closes++;
}

static bool has(const teff_event *events, size_t n, teff_event_kind kind)
{
    for (size_t i = 0; i < n; i++)
        if (events[i].kind == kind)
            return true;
    return false;
}

/* ---- "Init: Prozess mit Entry-Methodenname und Eingabeargumenten vorbereiten" ---- */

static teff_err step_done(void *self, const teff_event *events, size_t n, teff_step *out)
{
    note(events, n);
    return teff_step_done(out);
}

static const teff_process_ops once = {
    .name = "once", .init = init, .step = step_done, .close = close_it};

static void test_init_gets_method_and_input_then_step_then_close(void **state)
{
    teff_pid pid;
    assert_int_equal(teff_process_spawn(*state, &once, NULL, "main", "abc", 4, &pid), TEFF_OK);
    latch_wait(&t.ended, 1);
    assert_string_equal(t.method, "main");
    assert_string_equal(t.input, "abc");
    assert_int_equal(t.inits, 1);
    assert_int_equal(t.steps, 1);
    assert_int_equal(t.closes, 1);
    assert_int_equal(t.err, TEFF_OK);
}

static void test_init_without_method_and_input_gets_empty_ones(void **state)
{
    strcpy(t.method, "none");
    t.input_len = 1;
    assert_int_equal(teff_process_spawn(*state, &once, NULL, NULL, NULL, 0, NULL), TEFF_OK);
    latch_wait(&t.ended, 1);
    assert_string_equal(t.method, "");
    assert_int_equal(t.input_len, 0);
    assert_int_equal(t.inits, 1);
    assert_int_equal(t.err, TEFF_OK);
}

/* A process whose init refuses its method never runs. */
static void test_init_that_refuses_its_method_ends_the_process_unstepped(void **state)
{
    assert_int_equal(teff_process_spawn(*state, &once, NULL, "unknown", NULL, 0, NULL), TEFF_OK);
    latch_wait(&t.ended, 1);
    assert_int_equal(t.err, TEFF_E_NOT_FOUND);
    assert_int_equal(t.steps, 0);
    assert_int_equal(t.closes, 1);
}

static teff_err step_fails(void *self, const teff_event *events, size_t n, teff_step *out)
{
    note(events, n);
    return TEFF_E_USER + 5;
}

static void test_an_error_of_step_ends_the_process_and_close_runs_once(void **state)
{
    static const teff_process_ops ops = {.name = "fails", .step = step_fails, .close = close_it};
    (void)spawn(*state, &ops, NULL);
    latch_wait(&t.ended, 1);
    assert_int_equal(t.err, TEFF_E_USER + 5);
    assert_int_equal(t.closes, 1);
}

static teff_err step_fails_out_of_range(void *self, const teff_event *events, size_t n,
                                        teff_step *out)
{
    note(events, n);
    return (teff_err)(TEFF_E_MAX + 1);
}

/* 65536, cut to 16 bits, was TEFF_OK. */
static void test_an_error_out_of_range_is_a_failure(void **state)
{
    static const teff_process_ops ops = {
        .name = "fails", .step = step_fails_out_of_range, .close = close_it};
    (void)spawn(*state, &ops, NULL);
    latch_wait(&t.ended, 1);
    assert_int_equal(t.err, TEFF_E_FAILED);
}

/* ---- "uebergibt Events (Yield-Completions, Nachrichten) und sammelt Yields" ---- */

static teff_err step_two_yields(void *self, const teff_event *events, size_t n, teff_step *out)
{
    note(events, n);
    latch_hit(&t.stepped);
    if (n == 0) {
        assert_int_equal(teff_step_command(out, LATER, 11, "eleven", 7), TEFF_OK);
        return teff_step_command(out, LATER, 22, "twenty", 7);
    }
    return t.n_seen == 2 ? teff_step_done(out) : teff_step_block(out);
}

static void test_completions_carry_tag_data_and_error_in_any_order(void **state)
{
    static const teff_process_ops ops = {.name = "two", .step = step_two_yields};
    teff_pid pid = spawn(*state, &ops, NULL);
    latch_wait(&t.asked, 2);
    assert_string_equal(t.command_data[0], "eleven");
    assert_int_equal(t.command_tags[1], 22);
    until_state(*state, pid, TEFF_PROCESS_BLOCKED); /* it gave a command */
    assert_int_equal(teff_command_complete(t.yields[1], TEFF_E_IO, NULL, 0), TEFF_OK);
    latch_wait(&t.stepped, 2);
    assert_int_equal(teff_command_complete(t.yields[0], TEFF_OK, "answer", 7), TEFF_OK);
    latch_wait(&t.ended, 1);
    assert_int_equal(t.seen[0].kind, TEFF_EVENT_COMPLETE);
    assert_int_equal(t.seen[0].tag, 22);
    assert_int_equal(t.seen[0].err, TEFF_E_IO);
    assert_int_equal(t.seen[1].tag, 11);
    assert_string_equal(t.seen_data[1], "answer");
    assert_int_equal(t.empty_steps, 1); /* none but the first */
}

static void test_a_yield_is_completed_once(void **state)
{
    static const teff_process_ops ops = {.name = "two", .step = step_two_yields};
    (void)spawn(*state, &ops, NULL);
    latch_wait(&t.asked, 2);
    assert_int_equal(teff_command_complete(t.yields[0], TEFF_OK, NULL, 0), TEFF_OK);
    assert_int_equal(teff_command_complete(t.yields[0], TEFF_OK, NULL, 0), TEFF_E_NOT_FOUND);
    assert_int_equal(teff_command_complete(t.yields[1], TEFF_OK, NULL, 0), TEFF_OK);
    latch_wait(&t.ended, 1);
    assert_int_equal(t.n_seen, 2);
    assert_int_equal(teff_command_complete(t.yields[1], TEFF_OK, NULL, 0), TEFF_E_CLOSED);
}

/* A handler may complete its command while the worker still runs the process: the process is then
 * queued again after that step. */
static teff_err step_inline(void *self, const teff_event *events, size_t n, teff_step *out)
{
    note(events, n);
    if (t.n_seen == 1000 || (n && events[0].tag == 1000))
        return teff_step_done(out);
    return teff_step_command(out, NOW, (n ? events[0].tag : 0) + 1, NULL, 0);
}

static void test_a_completion_inside_its_handler_wakes_the_process(void **state)
{
    static const teff_process_ops ops = {.name = "inline", .step = step_inline};
    (void)spawn(*state, &ops, NULL);
    latch_wait(&t.ended, 1);
    assert_int_equal(t.steps, 1001);
    assert_int_equal(t.empty_steps, 1);
    assert_string_equal(t.seen_data[0], "inline");
}

static teff_err step_unknown(void *self, const teff_event *events, size_t n, teff_step *out)
{
    note(events, n);
    if (n)
        return teff_step_done(out);
    return teff_step_command(out, NOBODY, 5, NULL, 0);
}

static void test_a_command_without_handler_completes_as_unimplemented(void **state)
{
    static const teff_process_ops ops = {.name = "unknown", .step = step_unknown};
    (void)spawn(*state, &ops, NULL);
    latch_wait(&t.ended, 1);
    assert_int_equal(t.seen[0].err, TEFF_E_UNIMPLEMENTED);
    assert_int_equal(t.seen[0].tag, 5);
}

/* ---- states ---- */

/* An idle process waits for messages; one makes it READY. */
static teff_err step_idle(void *self, const teff_event *events, size_t n, teff_step *out)
{
    note(events, n);
    latch_hit(&t.stepped);
    if (has(events, n, TEFF_EVENT_CANCEL) || (n && events[0].tag == 99))
        return teff_step_done(out);
    return teff_step_idle(out);
}

static const teff_process_ops idler = {
    .name = "idler", .init = init, .step = step_idle, .close = close_it};

static void test_a_message_wakes_an_idle_process(void **state)
{
    teff_pid pid = spawn(*state, &idler, NULL);
    until_state(*state, pid, TEFF_PROCESS_IDLE);
    teff_pid me = {.slot = 3, .generation = 4};
    teff_event message = {.tag = 42, .data = "hello", .len = 6, .from = me};
    assert_int_equal(teff_process_send(*state, pid, &message), TEFF_OK);
    latch_wait(&t.stepped, 2);
    until_state(*state, pid, TEFF_PROCESS_IDLE);
    assert_int_equal(t.seen[0].kind, TEFF_EVENT_MESSAGE);
    assert_int_equal(t.seen[0].tag, 42);
    assert_string_equal(t.seen_data[0], "hello");
    assert_true(teff_pid_equals(t.seen[0].from, me));
    assert_int_equal(send_tag(*state, pid, 99), TEFF_OK);
    latch_wait(&t.ended, 1);
    assert_int_equal(send_tag(*state, pid, 1), TEFF_E_CLOSED); /* Complete is final */
}

/* A blocked process waits for a completion; messages do not wake it, and come afterwards. */
static teff_err step_blocked(void *self, const teff_event *events, size_t n, teff_step *out)
{
    note(events, n);
    latch_hit(&t.stepped);
    if (n == 0)
        return teff_step_command(out, LATER, 1, NULL, 0);
    return t.n_seen == 4 ? teff_step_done(out) : teff_step_idle(out);
}

static void test_a_blocked_process_keeps_its_messages_for_later(void **state)
{
    static const teff_process_ops ops = {.name = "blocked", .step = step_blocked};
    teff_pid pid = spawn(*state, &ops, NULL);
    latch_wait(&t.asked, 1);
    for (unsigned i = 0; i < 3; i++)
        assert_int_equal(send_tag(*state, pid, 10 + i), TEFF_OK);
    until_state(*state, pid, TEFF_PROCESS_BLOCKED);
    assert_int_equal(atomic_load(&t.stepped.count), 1);
    assert_int_equal(teff_command_complete(t.yields[0], TEFF_OK, NULL, 0), TEFF_OK);
    latch_wait(&t.ended, 1);
    assert_int_equal(t.seen[0].kind, TEFF_EVENT_COMPLETE);
    for (unsigned i = 0; i < 3; i++)
        assert_int_equal(t.seen[1 + i].tag, 10 + i);
    assert_int_equal(t.empty_steps, 1);
}

/* Waits for one completion, then takes what came meanwhile. */
static teff_err step_after_one(void *self, const teff_event *events, size_t n, teff_step *out)
{
    note(events, n);
    return n ? teff_step_idle(out) : teff_step_command(out, LATER, 1, NULL, 0);
}

static void test_turns_and_events_are_counted_once(void **state)
{
    enum { MESSAGES = 200 }; /* more than a step takes */
    static const teff_process_ops ops = {.name = "counted", .step = step_after_one};
    teff_process_info info;
    teff_pid pid = spawn(*state, &ops, NULL);
    latch_wait(&t.asked, 1);
    for (unsigned i = 0; i < MESSAGES; i++)
        assert_int_equal(send_tag(*state, pid, i), TEFF_OK);
    until_state(*state, pid, TEFF_PROCESS_BLOCKED);
    assert_int_equal(teff_command_complete(t.yields[0], TEFF_OK, NULL, 0), TEFF_OK);
    do {
        teffi_thread_yield();
        assert_int_equal(teff_process_list(*state, &info, 1), 1);
    } while (info.events < MESSAGES + 1);
    until_state(*state, pid, TEFF_PROCESS_IDLE);
    assert_int_equal(teff_process_list(*state, &info, 1), 1);
    assert_int_equal(info.events, MESSAGES + 1);
    assert_in_range(info.turns, 2, t.steps);
}

static teff_err step_look(void *self, const teff_event *events, size_t n, teff_step *out)
{
    note(events, n);
    teff_process_info info;
    assert_int_equal(teff_process_list(t.system, &info, 1), 1);
    t.state_while_running = info.state;
    return teff_step_done(out);
}

static void test_a_stepped_process_is_running(void **state)
{
    static const teff_process_ops ops = {.name = "look", .step = step_look};
    (void)spawn(*state, &ops, NULL);
    latch_wait(&t.ended, 1);
    assert_int_equal(t.state_while_running, TEFF_PROCESS_RUNNING);
}

/* ---- continue, timers, upgrade ---- */

static teff_err step_count(void *self, const teff_event *events, size_t n, teff_step *out)
{
    unsigned *count = self;
    note(events, n);
    return ++*count == 1000 ? teff_step_done(out) : teff_step_continue(out);
}

static void test_continue_steps_again_without_events(void **state)
{
    static const teff_process_ops ops = {.name = "count", .step = step_count};
    unsigned count = 0;
    (void)spawn(*state, &ops, &count);
    latch_wait(&t.ended, 1);
    assert_int_equal(count, 1000);
    assert_int_equal(t.n_seen, 0);
}

static teff_err step_timer(void *self, const teff_event *events, size_t n, teff_step *out)
{
    note(events, n);
    if (n == 0) {
        assert_int_equal(teff_process_set_timer(teff_step_process(out), 1, 33), TEFF_OK);
        assert_int_equal(teff_process_set_timer(teff_step_process(out), 100000, 34), TEFF_OK);
        return teff_step_block(out);
    }
    return teff_step_done(out);
}

static void test_a_timer_is_an_event_and_those_left_end_with_the_process(void **state)
{
    static const teff_process_ops ops = {.name = "timer", .step = step_timer};
    (void)spawn(*state, &ops, NULL);
    latch_wait(&t.ended, 1);
    assert_int_equal(t.n_seen, 1);
    assert_int_equal(t.seen[0].kind, TEFF_EVENT_TIMER);
    assert_int_equal(t.seen[0].tag, 33);
}

static teff_err step_becomes(void *self, const teff_event *events, size_t n, teff_step *out)
{
    latch_hit(&t.stepped);
    if (n == 0)
        return teff_step_command(out, LATER, 77, NULL, 0);
    note(events, n);
    return teff_step_upgrade(out, &idler, NULL, "second", "in", 3);
}

/* The PID, the mailbox and what is under way stay; the new one gets the old one's completion. */
static void test_upgrade_in_place(void **state)
{
    static const teff_process_ops ops = {.name = "old", .step = step_becomes, .close = close_it};
    teff_pid pid = spawn(*state, &ops, NULL);
    latch_wait(&t.asked, 1);
    assert_int_equal(teff_process_cancel(*state, pid), TEFF_OK); /* wakes it: it upgrades */
    latch_wait(&t.stepped, 3);
    assert_string_equal(t.method, "second");
    assert_string_equal(t.input, "in");
    assert_int_equal(teff_command_complete(t.yields[0], TEFF_OK, "late", 5), TEFF_OK);
    latch_wait(&t.stepped, 4);
    assert_int_equal(send_tag(*state, pid, 99), TEFF_OK);
    latch_wait(&t.ended, 1);
    assert_int_equal(t.seen[0].kind, TEFF_EVENT_CANCEL);
    assert_int_equal(t.seen[1].tag, 77);
    assert_string_equal(t.seen_data[1], "late");
    assert_int_equal(t.seen[2].tag, 99);
    assert_int_equal(t.closes, 2);
    assert_int_equal(atomic_load(&t.ended.count), 1);
}

/* It receives an event itself, which it holds when it becomes another, or fails instead. */
static teff_err step_holds(void *self, const teff_event *events, size_t n, teff_step *out)
{
    teff_event event;
    latch_hit(&t.stepped);
    if (n == 0)
        return teff_step_idle(out);
    teff_err err = teff_process_receive(teff_step_process(out), &event);
    if (!err)
        err = teff_step_upgrade(out, &idler, NULL, "second", "in", 3);
    if (!err && event.tag == 2)
        t.mailbox = teffi_mailbox_get_load(teff_step_process(out));
    return !err && event.tag == 3 ? TEFF_E_USER(1) : err;
}

static const teff_process_ops holder = {.name = "holder", .step = step_holds, .close = close_it};

static void test_upgrade_with_an_event_that_was_received(void **state)
{
    teff_pid pid = spawn(*state, &holder, NULL);
    latch_wait(&t.stepped, 1);
    assert_int_equal(send_tag(*state, pid, 1), TEFF_OK);
    latch_wait(&t.stepped, 2);
    assert_int_equal(send_tag(*state, pid, 2), TEFF_OK);
    latch_wait(&t.stepped, 3); /* of the new one */
    assert_string_equal(t.method, "second");
    assert_true(t.mailbox > 0);
    assert_int_equal(teffi_mailbox_get_load(teffi_process_find(*state, pid)), 0);
    assert_int_equal(send_tag(*state, pid, 99), TEFF_OK);
    latch_wait(&t.ended, 1);
    assert_int_equal(t.err, TEFF_OK);
}

static void test_an_upgrade_that_fails_with_an_event_that_was_received(void **state)
{
    teff_pid pid = spawn(*state, &holder, NULL);
    latch_wait(&t.stepped, 1);
    assert_int_equal(send_tag(*state, pid, 1), TEFF_OK);
    latch_wait(&t.stepped, 2);
    assert_int_equal(send_tag(*state, pid, 3), TEFF_OK);
    latch_wait(&t.ended, 1);
    assert_int_equal(t.err, TEFF_E_USER(1));
    assert_int_equal(t.inits, 0);
    assert_int_equal(t.closes, 1);
}

/* ---- a step that is tried again ---- */

static struct {
    uint64_t tags[4];
    unsigned n, empty; /* steps with a message, and without */
    _Atomic bool goes_on;
} tries;

static teff_err try_step(void *self, const teff_event *events, size_t n, teff_step *out)
{
    tries.empty += n == 0;
    if (!n)
        return teff_step_idle(out);
    if (!atomic_load(&tries.goes_on))
        return teffi_step_set_retry(out);
    tries.tags[tries.n++] = events[0].tag;
    return tries.n < 3 ? teff_step_idle(out) : teff_step_done(out);
}

/* The first message becomes the first of the mailbox again, and later ones come behind it. */
static void test_a_message_of_a_retried_step_stays_before_later_ones(void **state)
{
    static const teff_process_ops try_ops = {.name = "tries", .step_max = 1, .step = try_step};
    memset(&tries, 0, sizeof tries);
    teff_pid pid = spawn(t.system, &try_ops, NULL);
    until_state(t.system, pid, TEFF_PROCESS_IDLE);
    assert_int_equal(send_tag(t.system, pid, 1), TEFF_OK);
    until_state(t.system, pid, TEFF_PROCESS_BLOCKED);
    assert_int_equal(send_tag(t.system, pid, 2), TEFF_OK);
    assert_int_equal(send_tag(t.system, pid, 3), TEFF_OK);
    atomic_store(&tries.goes_on, true);
    assert_int_equal(teffi_process_signal(t.system, pid, TEFFI_SIGNAL_POKE), TEFF_OK);
    latch_wait(&t.ended, 1);
    for (unsigned i = 0; i < 3; i++)
        assert_int_equal(tries.tags[i], i + 1);
    assert_int_equal(tries.empty, 1); /* the first */
}

static void test_a_handler_has_a_number_in_range_and_a_function(void **state)
{
    assert_int_equal(teff_process_set_handler(*state, TEFF_COMMANDS_MAX, now, NULL),
                     TEFF_E_INVALID);
    assert_int_equal(teff_process_set_handler(*state, NOBODY, NULL, NULL), TEFF_E_INVALID);
    assert_int_equal(teff_process_set_handler(*state, NOW, later, NULL), TEFF_E_EXISTS);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
#define T(name) cmocka_unit_test_setup_teardown(name, setup, teardown)
        T(test_init_gets_method_and_input_then_step_then_close),
        T(test_init_without_method_and_input_gets_empty_ones),
        T(test_init_that_refuses_its_method_ends_the_process_unstepped),
        T(test_an_error_of_step_ends_the_process_and_close_runs_once),
        T(test_an_error_out_of_range_is_a_failure),
        T(test_completions_carry_tag_data_and_error_in_any_order),
        T(test_a_yield_is_completed_once),
        T(test_a_completion_inside_its_handler_wakes_the_process),
        T(test_a_command_without_handler_completes_as_unimplemented),
        T(test_a_message_wakes_an_idle_process),
        T(test_a_blocked_process_keeps_its_messages_for_later),
        T(test_turns_and_events_are_counted_once),
        T(test_a_stepped_process_is_running),
        T(test_continue_steps_again_without_events),
        T(test_a_timer_is_an_event_and_those_left_end_with_the_process),
        T(test_upgrade_in_place),
        T(test_upgrade_with_an_event_that_was_received),
        T(test_an_upgrade_that_fails_with_an_event_that_was_received),
        T(test_a_message_of_a_retried_step_stays_before_later_ones),
        T(test_a_handler_has_a_number_in_range_and_a_function),
    };
    return cmocka_run_group_tests_name("process/step", tests, NULL, NULL);
}
