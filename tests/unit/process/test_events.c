/* test_events.c - what becomes of each item of a process's group: which list it goes to, what it
 * counts, who frees it. One process on an executor of the test, which runs nothing by itself. */
#include "processes.h"

#include <string.h>
#include "memory/pool.h"
#include "process/send.h"
#include "process/turn.h"

static teff_process_system *system_here;
static teff_process *p;
static teff_pid pid;

/* ---- the executor ---- */

static uint64_t on_clock(void *arg)
{
    return 1000000000;
}

static void on_ready(teffi_exec *exec, teffi_group *group)
{
}

static teffi_timer *set;
static bool firing; /* a cancel comes too late */

static void on_timer(teffi_exec *exec, teffi_timer *timer, uint64_t due_ns)
{
    set = timer;
}

static bool on_timer_cancel(teffi_exec *exec, teffi_timer *timer)
{
    return !firing;
}

static const teffi_platform platform = {.mono_ns = on_clock};
static const teffi_exec_ops exec_ops = {
    .ready = on_ready, .timer_set = on_timer, .timer_cancel = on_timer_cancel};
static teffi_exec exec = {
    .ops = &exec_ops, .platform = &platform, .warn = {.queue_warn = UINT32_MAX}};

/* ---- the system ---- */

static struct {
    unsigned n;
    teff_err err;
    uint64_t tag;
} responded; /* to requests */

static teff_err on_respond(void *arg, const teff_event *request, teff_err err, const void *data,
                           size_t len)
{
    responded.n++;
    responded.err = err;
    responded.tag = request->tag;
    return TEFF_OK;
}

static unsigned taken_by_calls;

static void on_call_item(teffi_item *item)
{
    taken_by_calls++;
}

static teff_err step(void *self, const teff_event *events, size_t n, teff_step *out)
{
    return teff_step_idle(out);
}

static teff_completion completion; /* of the newest command */

static void on_command(void *arg, const teff_command *command)
{
    completion = command->completion;
}

static const teff_process_ops ops = {.name = "listed", .step = step};

static int setup(void **state)
{
    teff_process_options opt = {.size = sizeof opt};
    memset(&responded, 0, sizeof responded);
    taken_by_calls = 0;
    firing = false;
    if (teffi_process_system_new_on(&exec, &opt, &system_here))
        return 1;
    system_here->route.respond = on_respond;
    system_here->calls.take_item = on_call_item;
    assert_int_equal(teff_process_set_handler(system_here, 1, on_command, NULL), TEFF_OK);
    pid = spawn(system_here, &ops, NULL);
    p = teffi_process_at(system_here, pid.slot);
    assert_true(teffi_process_dispatch_items(p)); /* the item that starts it */
    return 0;
}

static int teardown(void **state)
{
    teffi_start_args_free(p->held);
    teffi_process_system_free_memory(system_here);
    return 0;
}

static void send(uint64_t tag)
{
    assert_int_equal(send_tag(system_here, pid, tag), TEFF_OK);
}

static void send_request(uint64_t tag)
{
    const teff_event request = {.kind = TEFF_EVENT_REQUEST, .tag = tag};
    assert_int_equal(teffi_process_deliver(system_here, pid, &request), TEFF_OK);
}

static uint64_t waiting(void)
{
    return teffi_mailbox_get_load(p) >> TEFFI_MAILBOX_SHIFT;
}

static void mail_is(uint64_t tag)
{
    teffi_event *event = teffi_process_take_message(p);
    assert_non_null(event);
    assert_int_equal(event->event.tag, tag);
    teffi_event_free(p, event);
}

static void no_mail(void)
{
    assert_null(teffi_process_take_message(p));
}

/* The first event of the other list has this kind and tag; it is freed. */
static void urgent_is(teff_event_kind kind, uint64_t tag)
{
    teffi_event *event = teffi_events_pop(&p->urgent);
    assert_non_null(event);
    assert_int_equal(event->event.kind, kind);
    assert_int_equal(event->event.tag, tag);
    teffi_event_free(p, event);
}

static void take(void)
{
    (void)teffi_process_dispatch_items(p);
}

/* A command in flight; complete() ends it. */
static teffi_command *begin_command(uint64_t tag)
{
    teff_err err;
    teffi_command *command = teffi_command_new(p, 1, tag, NULL, 0, &err);
    assert_non_null(command);
    teffi_command_dispatch(p, command);
    return command;
}

static void complete(void)
{
    assert_int_equal(teff_command_complete(completion, TEFF_OK, "x", 1), TEFF_OK);
}

/* ---- lists ---- */

static void a_list_is_first_in_first_out(void **state)
{
    teffi_event events[3] = {0};
    teffi_events list = {0};
    for (int round = 0; round < 2; round++) {
        assert_null(teffi_events_pop(&list));
        for (int i = 0; i < 3; i++)
            teffi_events_push(&list, &events[i]);
        for (int i = 0; i < 3; i++)
            assert_ptr_equal(teffi_events_pop(&list), &events[i]);
    }
    assert_null(teffi_events_pop(&list));
}

static void messages_are_mail_in_the_order_sent(void **state)
{
    assert_false(teffi_process_dispatch_items(p));
    send(1);
    send(2);
    assert_true(teffi_process_dispatch_items(p));
    send(3);
    for (uint64_t tag = 1; tag <= 3; tag++)
        mail_is(tag);
    no_mail();
    assert_null(teffi_events_pop(&p->urgent));
}

/* A turn takes one message without taking all: those behind it stay in the group. */
static void taking_mail_takes_no_more_than_it_needs(void **state)
{
    send(1);
    send(2);
    (void)begin_command(7);
    complete();
    mail_is(1);
    assert_null(p->mail.head);
    mail_is(2);
    assert_null(p->urgent.head);
    no_mail(); /* on its way it took the command */
    urgent_is(TEFF_EVENT_COMPLETE, 7);
}

static void a_message_counts_until_it_is_freed(void **state)
{
    static char data[100];
    assert_int_equal(
        teff_process_send(system_here, pid, &(teff_event){.data = data, .len = sizeof data}),
        TEFF_OK);
    send(2);
    take();
    assert_int_equal(waiting(), 2);
    teffi_event *event = teffi_process_take_message(p);
    assert_int_equal(waiting(), 2);
    teffi_event_free(p, event);
    assert_int_equal(waiting(), 1);
    assert_int_equal(teffi_mailbox_get_load(p), teffi_mailbox_charge(0));
    teffi_events_free(p, &p->mail);
    assert_int_equal(teffi_mailbox_get_load(p), 0);
}

static void a_returned_message_is_urgent_and_does_not_count(void **state)
{
    const teff_event returned = {.kind = TEFF_EVENT_RETURNED, .tag = 5};
    assert_int_equal(teffi_process_deliver(system_here, pid, &returned), TEFF_OK);
    take();
    assert_int_equal(waiting(), 0);
    urgent_is(TEFF_EVENT_RETURNED, 5);
    assert_int_equal(teffi_mailbox_get_load(p), 0);
    no_mail();
}

static void a_completed_command_makes_room_for_another(void **state)
{
    uint32_t before = p->n_commands;
    (void)begin_command(8);
    assert_int_equal(p->n_commands, before + 1);
    complete();
    assert_int_equal(p->n_commands, before + 1);
    take();
    assert_int_equal(p->n_commands, before);
    urgent_is(TEFF_EVENT_COMPLETE, 8);
}

static void items_of_calls_are_not_events(void **state)
{
    teffi_item item = {.kind = TEFFI_ITEM_RETURNED + 1};
    assert_true(teffi_group_push(&p->group, &item));
    take();
    assert_int_equal(taken_by_calls, 1);
    no_mail();
}

/* ---- timers ---- */

static void a_timer_that_fired_is_not_the_processs_any_more(void **state)
{
    assert_non_null(teffi_timer_event_set(p, 1000, 9));
    set->fire(set);
    assert_false(LIST_EMPTY(&p->timers));
    take();
    assert_true(LIST_EMPTY(&p->timers));
    urgent_is(TEFF_EVENT_TIMER, 9);
}

static void a_timer_that_was_cancelled_while_it_fired_is_not_an_event(void **state)
{
    teffi_timer_event *timer = teffi_timer_event_set(p, 1000, 9);
    set->fire(set);
    firing = true;
    teffi_timer_event_cancel(p, timer);
    take();
    assert_true(LIST_EMPTY(&p->timers));
    assert_null(p->urgent.head);
}

/* ---- what is awaited ---- */

static void an_awaited_event_is_in_no_list(void **state)
{
    teffi_command *command = begin_command(1);
    teff_completion first = completion;
    teffi_waiting wait = {.awaits = &command->e};
    p->wait = &wait;
    (void)begin_command(2);
    complete();
    completion = first;
    complete();
    take();
    p->wait = NULL;
    assert_ptr_equal(wait.arrived, &command->e);
    urgent_is(TEFF_EVENT_COMPLETE, 2);
    assert_null(p->urgent.head);
    teffi_event_free(p, wait.arrived);
}

/* ---- signals ---- */

static void signals_are_taken_once_and_only_the_first_cancel_counts(void **state)
{
    assert_int_equal(teffi_process_signal(system_here, pid, TEFFI_SIGNAL_POKE), TEFF_OK);
    take();
    assert_true(p->poked && !p->cancel && !p->forced);
    p->poked = false;
    assert_int_equal(teffi_process_signal(system_here, pid, TEFFI_SIGNAL_CANCEL), TEFF_OK);
    take();
    assert_true(!p->poked && p->cancel && !p->forced);
    p->cancel = false;
    assert_int_equal(teffi_process_signal(system_here, pid, TEFFI_SIGNAL_CANCEL), TEFF_OK);
    assert_int_equal(teffi_process_signal(system_here, pid, TEFFI_SIGNAL_KILL), TEFF_OK);
    take();
    assert_true(!p->poked && !p->cancel && p->forced);
}

static void the_again_item_can_be_queued_again_once_it_was_taken(void **state)
{
    assert_false(p->again_queued);
    teffi_process_requeue(p);
    assert_true(p->again_queued);
    take();
    assert_false(p->again_queued);
}

/* ---- lives ---- */

static void refuses_what_is_queued(void)
{
    uint64_t dropped = system_here->dropped;
    take();
    assert_int_equal(system_here->dropped, dropped + 2);
    assert_int_equal(responded.n, 1);
    assert_int_equal(responded.err, TEFF_E_CLOSED);
    assert_int_equal(responded.tag, 22);
    assert_int_equal(waiting(), 0);
    assert_null(p->mail.head);
}

static void events_of_an_earlier_life_are_dropped_and_requests_refused(void **state)
{
    send(21);
    send_request(22);
    atomic_fetch_add(&p->generation, 2);
    refuses_what_is_queued();
}

static void so_are_those_that_come_after_the_end_of_its_turns(void **state)
{
    send(21);
    send_request(22);
    p->gone = true;
    refuses_what_is_queued();
}

static void the_end_of_a_life_frees_all_and_refuses_the_requests_in_the_mail(void **state)
{
    uint32_t generation = p->generation;
    send(1);
    send_request(2);
    send(3);
    take();
    assert_non_null(teffi_timer_event_set(p, 1000, 9));
    (void)begin_command(4);
    complete();
    take();
    (void)begin_command(5); /* in flight */
    teffi_process_end_life(p);
    assert_int_equal(p->generation, generation + 1);
    assert_int_equal(responded.n, 1);
    assert_int_equal(responded.err, TEFF_E_CLOSED);
    assert_int_equal(responded.tag, 2);
    assert_int_equal(waiting(), 0);
    assert_true(!p->mail.head && !p->urgent.head && LIST_EMPTY(&p->timers) && !p->commands);
    assert_int_equal(teff_command_complete(completion, TEFF_OK, NULL, 0), TEFF_E_CLOSED);
    assert_int_equal(send_tag(system_here, pid, 6), TEFF_E_CLOSED);
}

/* ---- is there work? ---- */

enum { NOTHING, MAIL, URGENT, POKE, CANCEL, KILL, AGAIN, REASONS };

static void has_work_as_in(const char *row, teffi_process_status status)
{
    p->status = status;
    for (int reason = NOTHING; reason < REASONS; reason++) {
        if (reason == MAIL)
            send(1);
        if (reason == URGENT) {
            (void)begin_command(2);
            complete();
        }
        take();
        p->poked = reason == POKE;
        p->cancel = reason == CANCEL;
        p->forced = reason == KILL;
        p->again_queued = reason == AGAIN;
        if (teffi_process_has_work(p) != (row[reason] == '1'))
            fail_msg("status %d, reason %d: expected %c", status, reason, row[reason]);
        teffi_events_free(p, &p->mail);
        teffi_events_free(p, &p->urgent);
    }
    p->poked = p->cancel = p->forced = p->again_queued = false;
}

static void whether_there_is_work_depends_on_what_it_waits_for(void **state)
{
    /* NOTHING, MAIL, URGENT, POKE, CANCEL, KILL, AGAIN */
    has_work_as_in("1111110", TEFFI_STATUS_START);
    has_work_as_in("1111110", TEFFI_STATUS_CONTINUE);
    has_work_as_in("0110110", TEFFI_STATUS_IDLE);
    has_work_as_in("0010110", TEFFI_STATUS_BLOCK);
    has_work_as_in("0001110", TEFFI_STATUS_RETRY);
}

/* Its first function runs before a cancel counts. */
static void a_cancel_does_not_start_it(void **state)
{
    p->status = TEFFI_STATUS_START;
    p->cancel = p->again_queued = true;
    assert_false(teffi_process_has_work(p));
    p->status = TEFFI_STATUS_CONTINUE;
    assert_true(teffi_process_has_work(p));
    p->cancel = p->again_queued = false;
}

int main(void)
{
#define PROCESS(f) cmocka_unit_test_setup_teardown(f, setup, teardown)
    const struct CMUnitTest tests[] = {
        PROCESS(a_list_is_first_in_first_out),
        PROCESS(messages_are_mail_in_the_order_sent),
        PROCESS(taking_mail_takes_no_more_than_it_needs),
        PROCESS(a_message_counts_until_it_is_freed),
        PROCESS(a_returned_message_is_urgent_and_does_not_count),
        PROCESS(a_completed_command_makes_room_for_another),
        PROCESS(items_of_calls_are_not_events),
        PROCESS(a_timer_that_fired_is_not_the_processs_any_more),
        PROCESS(a_timer_that_was_cancelled_while_it_fired_is_not_an_event),
        PROCESS(an_awaited_event_is_in_no_list),
        PROCESS(signals_are_taken_once_and_only_the_first_cancel_counts),
        PROCESS(the_again_item_can_be_queued_again_once_it_was_taken),
        PROCESS(events_of_an_earlier_life_are_dropped_and_requests_refused),
        PROCESS(so_are_those_that_come_after_the_end_of_its_turns),
        PROCESS(the_end_of_a_life_frees_all_and_refuses_the_requests_in_the_mail),
        PROCESS(whether_there_is_work_depends_on_what_it_waits_for),
        PROCESS(a_cancel_does_not_start_it),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
