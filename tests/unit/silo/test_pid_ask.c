/* test_pid_ask.c - grains, processes and threads ask processes by PID: here and on another silo,
 * and however the request, the process or its silo ends. */
#include <stdio.h>
#include <stdlib.h>
#include <teff/pid.h>
#include "../process/processes.h"
#include "lab.h"
#include "pids.teff.h"

enum { MANY = 200, LATE_MS = 30, LARGE = 100000 };

enum { ECHO = 1, FAIL, KEEP, RELAY }; /* tags: what the responder does */

#define E_OWN TEFF_E_USER(7)

static struct {
    lab *lab;
    teff_process_system *systems[2];
    latch ended, kept;
    teff_event first_kept;
    teff_pid to; /* for processes that ask */
    _Atomic unsigned well;
} t;

static void respond_to(teff_process_system *system, const teff_event *event)
{
    if (event->tag == FAIL)
        (void)teff_pid_respond(system, event, E_OWN, "out of luck", 11);
    else
        (void)teff_pid_respond(system, event, TEFF_OK, event->data, event->len);
}

/* Responds to each request but those that it keeps. */
static teff_err respond_step(void *self, const teff_event *events, size_t n, teff_step *out)
{
    teff_process_system *system = teff_process_system_of(teff_step_process(out));
    for (size_t i = 0; i < n; i++) {
        if (events[i].kind == TEFF_EVENT_CANCEL)
            return teff_step_done(out);
        if (events[i].kind != TEFF_EVENT_REQUEST) {
            latch_hit(&t.kept);
        } else if (events[i].tag == KEEP) {
            t.first_kept = events[i];
            latch_hit(&t.kept);
        } else {
            respond_to(system, &events[i]);
        }
    }
    return TEFF_OK;
}

static const teff_process_ops responder = {.name = "responder", .step = respond_step};

static void ask_in_turns(teff_ctx *ctx);

/* ---- a grain that keeps a PID, and asks it ---- */

static teff_err keeper_set(pids_keeper *self, const pids_who *in)
{
    self->state->process = teff_process_id_keep(self->ctx, in->process);
    return pids_keeper_save(self);
}

static teff_err keeper_get(pids_keeper *self, pids_who *out)
{
    out->process = self->state->process;
    return TEFF_OK;
}

static teff_err keeper_ask(pids_keeper *self, const pids_number *in, pids_number *out)
{
    teff_pid to = teff_pid_of_message(self->state->process);
    t.well += teff_pid_equals(to, t.to) ? 1 : 0;
    ask_in_turns(self->ctx);
    return TEFF_OK;
}

static void host_keeper(teff_silo *silo)
{
    static const pids_keeper_methods methods = {
        .set = keeper_set, .get = keeper_get, .ask = keeper_ask};
    assert_int_equal(teff_silo_host(silo, pids_keeper_type(&methods, NULL)), TEFF_OK);
}

static void begin(int silos)
{
    memset(&t, 0, sizeof t);
    t.lab = lab_open_more(silos, host_keeper);
    for (int i = 0; i < silos; i++) {
        teff_process_options opt = {
            .size = sizeof opt, .mailbox_max = MANY, .ended = count_end, .arg = &t.ended};
        assert_int_equal(teff_silo_processes(t.lab->silos[i], &opt, &t.systems[i]), TEFF_OK);
    }
}

static int end(void **state)
{
    lab_close(t.lab);
    return 0;
}

static bool echoes(teff_ctx *ctx, teff_pid to, const void *data, size_t len)
{
    teff_event r;
    teff_err err = teff_pid_ask(ctx, to, ECHO, data, len, &r);
    return !err && r.len == len && (!len || !memcmp(r.data, data, len)) && r.tag == ECHO &&
           teff_pid_equals(r.from, to) && (uintptr_t)r.data % 16 == 0;
}

/* ---- the table: who asks, where the process is ---- */

static void ask_in_turns(teff_ctx *ctx)
{
    static uint8_t large[LARGE];
    char text[32];
    for (int i = 0; i < MANY; i++) {
        snprintf(text, sizeof text, "request %d", i);
        t.well += echoes(ctx, t.to, text, i % 4 ? strlen(text) : 0);
    }
    t.well += echoes(ctx, t.to, memset(large, 7, sizeof large), sizeof large);
    teff_err err = teff_pid_ask(ctx, t.to, FAIL, NULL, 0, NULL);
    t.well += err == E_OWN && !strcmp(teff_error(ctx), "out of luck");
}

static teff_err ask_in_process(void *self, teff_process *me)
{
    ask_in_turns(teff_process_ctx(me));
    return TEFF_OK;
}

static const teff_process_ops asker = {
    .name = "asker", .flags = TEFF_PROCESS_FIBER, .run = ask_in_process};

static void ask_as_thread(void)
{
    ask_in_turns(t.lab->ctx[0]);
}

static void ask_as_process(void)
{
    (void)spawn(t.systems[0], &asker, NULL);
    latch_wait(&t.ended, 1);
}

static void ask_as_grain(void)
{
    const teff_pid to = t.to;
    pids_number *out;
    lab_ok(t.lab->ctx[0],
           pids_keeper_set(t.lab->ctx[0], "one",
                           pids_who(.process = teff_process_id(teff_pid_fields(to)))));
    lab_ok(t.lab->ctx[1], pids_keeper_ask(t.lab->ctx[1], "one", pids_number(.n = 1), &out));
}

static void everybody_asks_here_and_elsewhere(void **state)
{
    static void (*const who[])(void) = {ask_as_thread, ask_as_process, ask_as_grain};
    for (int i = 0; i < 3; i++) {
        for (int silo = 0; silo < 2; silo++) {
            begin(2);
            t.to = spawn(t.systems[silo], &responder, NULL);
            who[i]();
            unsigned expected = MANY + 2 + (who[i] == ask_as_grain);
            if (t.well != expected)
                fail_msg("asker %d, silo %d: %u of %u", i, silo, t.well, expected);
            lab_close(t.lab);
        }
    }
    begin(1); /* for the teardown */
}

static void many_at_once(void **state)
{
    static teff_call calls[MANY];
    begin(2);
    for (int silo = 0; silo < 2; silo++) {
        teff_pid to = spawn(t.systems[silo], &responder, NULL);
        for (uint32_t i = 0; i < MANY; i++)
            lab_ok(t.lab->ctx[0],
                   teff_pid_ask_async(t.lab->ctx[0], to, ECHO, &i, sizeof i, NULL, &calls[i]));
        lab_ok(t.lab->ctx[0], teff_await_all(t.lab->ctx[0], calls, MANY));
        for (uint32_t i = 0; i < MANY; i++) {
            teff_event r;
            lab_ok(t.lab->ctx[0], teff_pid_ask_await(t.lab->ctx[0], &calls[i], &r));
            assert_memory_equal(r.data, &i, sizeof i);
            assert_null(calls[i].impl);
        }
    }
}

/* ---- bad ends, here and elsewhere ---- */

static void fails_with(int silo, teff_pid to, uint64_t tag, teff_err expected, const char *text)
{
    teff_ctx *ctx = t.lab->ctx[0];
    teff_err err = teff_pid_ask(ctx, to, tag, NULL, 0, NULL);
    if (err != expected || !strstr(teff_error(ctx), text))
        fail_msg("silo %d: %s: %s", silo, teff_err_name(err), teff_error(ctx));
}

static void errors_say_what_was_wrong(void **state)
{
    begin(2);
    for (int silo = 0; silo < 2; silo++) {
        teff_pid to = spawn(t.systems[silo], &responder, NULL), other = to;
        other.generation += 2;
        fails_with(silo, other, ECHO, TEFF_E_NOT_FOUND, ": there never was such a process");
        other = to;
        other.slot = 1;
        fails_with(silo, other, ECHO, TEFF_E_NOT_FOUND, "belongs to no silo");
        assert_int_equal(teff_process_cancel(t.systems[0], to), TEFF_OK);
        latch_wait(&t.ended, (unsigned)silo + 1);
        fails_with(silo, to, ECHO, TEFF_E_CLOSED, ": it has ended");
        other = to;
        other.incarnation++;
        fails_with(silo, other, ECHO, TEFF_E_UNAVAILABLE, "could not be sent");
    }
    teff_pid zero = {0};
    fails_with(0, zero, ECHO, TEFF_E_NOT_FOUND, "belongs to no silo");
    teff_event message = {.kind = TEFF_EVENT_MESSAGE, .from = zero};
    assert_int_equal(teff_pid_respond(t.systems[0], &message, TEFF_OK, NULL, 0), TEFF_E_INVALID);
}

static void a_late_response_is_dropped(void **state)
{
    begin(2);
    for (int silo = 0; silo < 2; silo++) {
        teff_pid to = spawn(t.systems[silo], &responder, NULL);
        teff_ctx_set_timeout(t.lab->ctx[0], LATE_MS);
        fails_with(silo, to, KEEP, TEFF_E_TIMEOUT, "before the deadline");
        teff_ctx_set_timeout(t.lab->ctx[0], 0);
        latch_wait(&t.kept, (unsigned)silo + 1);
        for (int twice = 0; twice < 2; twice++)
            assert_int_equal(teff_pid_respond(t.systems[silo], &t.first_kept, TEFF_OK, NULL, 0),
                             TEFF_OK);
        assert_true(echoes(t.lab->ctx[0], to, "still", 5));
    }
}

static void a_cancel_ends_it(void **state)
{
    begin(2);
    teff_ctx *ctx = t.lab->ctx[0];
    teff_cancel *cancel = teff_cancel_new();
    teff_call_options opt = {.size = sizeof opt, .cancel = cancel};
    teff_call call, later;
    lab_ok(ctx, teff_pid_ask_async(ctx, spawn(t.systems[1], &responder, NULL), KEEP, NULL, 0, &opt,
                                   &call));
    latch_wait(&t.kept, 1);
    teff_cancel_fire(cancel);
    lab_fails(ctx, teff_pid_ask_await(ctx, &call, NULL), TEFF_E_CANCELLED);
    lab_fails(ctx, teff_pid_ask_async(ctx, t.first_kept.from, ECHO, NULL, 0, &opt, &later),
              TEFF_E_NOT_FOUND); /* a call is no process */
    lab_fails(
        ctx,
        teff_pid_ask_async(ctx, spawn(t.systems[1], &responder, NULL), ECHO, NULL, 0, &opt, &later),
        TEFF_E_CANCELLED);
    teff_cancel_free(cancel);
}

/* Ends with its mailbox full of requests: each caller hears of it at once. */
static teff_err end_when_told(void *self, teff_process *me)
{
    teff_event event;
    while (!teff_process_sleep(me, 60000))
        ;
    return teff_process_receive(me, &event);
}

static const teff_process_ops sleeper = {
    .name = "sleeper", .flags = TEFF_PROCESS_FIBER, .run = end_when_told};

static void an_end_refuses_what_waits(void **state)
{
    static teff_call calls[MANY + 1];
    begin(2);
    teff_ctx *ctx = t.lab->ctx[0];
    for (int silo = 0; silo < 2; silo++) {
        teff_pid to = spawn(t.systems[silo], &sleeper, NULL);
        for (int i = 0; i <= MANY; i++)
            lab_ok(ctx, teff_pid_ask_async(ctx, to, ECHO, NULL, 0, NULL, &calls[i]));
        lab_fails(ctx, teff_pid_ask_await(ctx, &calls[MANY], NULL), TEFF_E_OVERLOADED);
        assert_non_null(strstr(teff_error(ctx), "its mailbox is full"));
        assert_int_equal(teff_process_cancel(t.systems[0], to), TEFF_OK);
        for (int i = 0; i < MANY; i++)
            lab_fails(ctx, teff_pid_ask_await(ctx, &calls[i], NULL), TEFF_E_CLOSED);
    }
}

static void a_silo_that_goes_ends_it(void **state)
{
    begin(2);
    teff_ctx *ctx = t.lab->ctx[0];
    teff_pid to = spawn(t.systems[1], &responder, NULL);
    teff_call call;
    lab_ok(ctx, teff_pid_ask_async(ctx, to, KEEP, NULL, 0, NULL, &call));
    latch_wait(&t.kept, 1);
    (void)lab_remove(t.lab, 1);
    teff_err err = teff_pid_ask_await(ctx, &call, NULL);
    assert_true(err == TEFF_E_UNREACHABLE || err == TEFF_E_CLOSED);
    fails_with(1, to, ECHO, TEFF_E_UNAVAILABLE, "could not be sent");
}

/* ---- a PID in a message ---- */

static void a_pid_travels_in_messages(void **state)
{
    begin(2);
    teff_ctx *ctx = t.lab->ctx[0];
    pids_who *who;
    lab_ok(ctx, pids_keeper_get(ctx, "two", &who));
    assert_true(teff_pid_equals(teff_pid_of_message(who->process), (teff_pid){0}));
    teff_pid to = spawn(t.systems[1], &responder, NULL);
    lab_ok(ctx,
           pids_keeper_set(ctx, "two", pids_who(.process = teff_process_id(teff_pid_fields(to)))));
    lab_ok(t.lab->ctx[1], pids_keeper_get(t.lab->ctx[1], "two", &who));
    assert_true(teff_pid_equals(teff_pid_of_message(who->process), to));
    assert_true(echoes(ctx, teff_pid_of_message(who->process), "x", 1));
}

/* ---- without waiting; who may not ---- */

static void messages_are_sent_from_any_context(void **state)
{
    begin(2);
    teff_ctx *ctx = t.lab->ctx[0];
    for (unsigned silo = 0; silo < 2; silo++) {
        teff_pid to = spawn(t.systems[silo], &responder, NULL);
        lab_ok(ctx, teff_pid_send(ctx, to, &(teff_event){.tag = 1}));
        latch_wait(&t.kept, silo + 1);
    }
    teff_pid none = {.silo = t.lab->silos[0]->node.id.silo,
                     .incarnation = t.lab->silos[0]->node.id.incarnation,
                     .slot = 0x80000000u + 77,
                     .generation = 1};
    lab_fails(ctx, teff_pid_send(ctx, none, &(teff_event){.tag = 1}), TEFF_E_NOT_FOUND);
}

static void clients_and_silos_without_processes(void **state)
{
    begin(2);
    teff_pid to = spawn(t.systems[0], &responder, NULL), other = to;
    teff_client *client = lab_client(t.lab, (const int[]){0, -1});
    teff_ctx *ctx = teff_client_new_ctx(client);
    lab_fails(ctx, teff_pid_ask(ctx, to, ECHO, NULL, 0, NULL), TEFF_E_INVALID);
    lab_fails(ctx, teff_pid_send(ctx, to, &(teff_event){.tag = 1}), TEFF_E_INVALID);
    teff_ctx_free(ctx);
    teff_client_free(client);
    int bare = lab_add(t.lab);
    other.silo = t.lab->silos[bare]->node.id.silo;
    other.incarnation = t.lab->silos[bare]->node.id.incarnation;
    fails_with(bare, other, ECHO, TEFF_E_UNAVAILABLE, "its silo has no processes");
}

#define ROW(f) cmocka_unit_test_teardown(f, end)

int main(void)
{
    const struct CMUnitTest tests[] = {
        ROW(everybody_asks_here_and_elsewhere),
        ROW(many_at_once),
        ROW(errors_say_what_was_wrong),
        ROW(a_late_response_is_dropped),
        ROW(a_cancel_ends_it),
        ROW(an_end_refuses_what_waits),
        ROW(a_silo_that_goes_ends_it),
        ROW(a_pid_travels_in_messages),
        ROW(messages_are_sent_from_any_context),
        ROW(clients_and_silos_without_processes),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
