/* test_list.c - what a system says about its processes: the fullest mailboxes, in their order. */
#include <stdio.h>
#include <stdlib.h>
#include "processes.h"
#include "process/process.h"

enum { NEVER = 1, LISTED = 16, LINES = 32, LINE_BYTES = 200 };

static struct {
    unsigned n;
    char text[LINES][LINE_BYTES];
} lines;

static void take_line(void *arg, const char *line)
{
    assert_true(lines.n < LINES);
    snprintf(lines.text[lines.n++], LINE_BYTES, "%s", line);
}

static void print(teff_process_system *system)
{
    const teffi_lines to = {take_line, NULL};
    lines.n = 0;
    teffi_processes_print(system, &to);
}

static void ignore_command(void *arg, const teff_command *command)
{
}

/* Waits for a completion that does not come, so that its messages stay in the mailbox. */
static teff_err block_step(void *self, const teff_event *events, size_t n, teff_step *out)
{
    if (n)
        return teff_step_done(out);
    teff_err err = teff_step_command(out, NEVER, 0, NULL, 0);
    return err ? err : teff_step_block(out);
}

static teff_err idle_step(void *self, const teff_event *events, size_t n, teff_step *out)
{
    return n ? teff_step_done(out) : teff_step_idle(out);
}

static const teff_process_ops blocked = {.name = "blocked", .step = block_step};
static const teff_process_ops idle = {.name = "idle", .step = idle_step};

static int setup(void **state)
{
    teff_process_system *system = system_of((teff_process_options){.workers = 1});
    assert_int_equal(teff_process_set_handler(system, NEVER, ignore_command, NULL), TEFF_OK);
    *state = system;
    return 0;
}

static int teardown(void **state)
{
    teff_process_system_free(*state);
    return 0;
}

static void spawn_with_messages(teff_process_system *system, unsigned n)
{
    teff_pid pid = spawn(system, &blocked, NULL);
    until_state(system, pid, TEFF_PROCESS_BLOCKED);
    for (unsigned i = 0; i < n; i++)
        assert_int_equal(send_tag(system, pid, i), TEFF_OK);
    until_state(system, pid, TEFF_PROCESS_BLOCKED); /* each message makes it READY for a while */
}

/* Line i + 1 is of a process with so many messages. */
static void line_has(unsigned i, unsigned messages)
{
    char text[64];
    snprintf(text, sizeof text, ": BLOCKED, %u messages wait", messages);
    assert_int_equal(strncmp(lines.text[i + 1], "process blocked (", 17), 0);
    assert_non_null(strstr(lines.text[i + 1], text));
}

static void test_the_fullest_come_first_and_idle_ones_are_counted_only(void **state)
{
    static const unsigned messages[] = {1, 3, 0, 2};
    teff_pid pid = spawn(*state, &idle, NULL);
    until_state(*state, pid, TEFF_PROCESS_IDLE);
    for (unsigned i = 0; i < 4; i++)
        spawn_with_messages(*state, messages[i]);
    print(*state);
    assert_int_equal(lines.n, 1 + 4);
    assert_non_null(strstr(lines.text[0], "5 alive: 1 idle, 4 blocked, 0 ready, 0 running; "
                                          "6 messages wait; 5 spawned, 0 ended"));
    for (unsigned i = 0; i < 4; i++)
        line_has(i, 3 - i);
}

static void test_of_many_the_fullest_are_listed(void **state)
{
    for (unsigned i = 0; i < 2 * LISTED; i++)
        spawn_with_messages(*state, i % 2 ? i : 2 * LISTED - i);
    print(*state);
    assert_int_equal(lines.n, 1 + LISTED);
    for (unsigned i = 0; i < LISTED; i++) /* 32, 31, 30 .. 17 */
        line_has(i, 2 * LISTED - i);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_the_fullest_come_first_and_idle_ones_are_counted_only,
                                        setup, teardown),
        cmocka_unit_test_setup_teardown(test_of_many_the_fullest_are_listed, setup, teardown),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
