/* test_call.c - pending calls: answered once, by the right response, or ended by time,
 * loss, cancel. */
#include <pthread.h>
#include <sched.h>
#include <stdio.h>
#include <string.h>
#include "lab.h"
#include "call/call.h"
#include "call/calls.h"
#include "call/ctx.h"
#include "wire.pb-c.h"

static lab *l;
static teffi_node *node;
static teff_ctx *ctx;

static int setup(void **state)
{
    l = lab_open(1);
    node = &l->silos[0]->node;
    ctx = teff_silo_new_ctx(l->silos[0]);
    return 0;
}

static int teardown(void **state)
{
    teff_ctx_free(ctx);
    lab_close(l);
    return 0;
}

static uint64_t in_ms(uint64_t ms)
{
    return teffi_now(node->platform) + ms * 1000000u;
}

static teffi_call *pending(uint64_t ms)
{
    teffi_call *call = teffi_ctx_call_new(ctx, in_ms(ms));
    assert_non_null(call);
    return call;
}

static void respond(uint32_t slot, uint32_t generation, teff_err err)
{
    teffi_msg *msg = teffi_msg_new(TEFFI_MSG_RESPONSE);
    assert_non_null(msg);
    msg->call.slot = slot;
    msg->call.generation = generation;
    msg->err = (uint16_t)err;
    assert_null(teffi_call_end_by_response(&node->home, msg));
}

static teff_err end_of(teffi_call *call)
{
    return teffi_ctx_await_call(ctx, call, NULL);
}

/* Other calls of the silo itself come and go: only ours are counted. */
static void a_response_ends_its_call_once(void **state)
{
    teffi_call *a = pending(60000), *b = pending(60000);
    respond(a->slot, a->generation, TEFF_E_FAILED);
    respond(a->slot, a->generation, TEFF_OK); /* again: dropped */
    lab_fails(ctx, end_of(a), TEFF_E_FAILED);
    respond(b->slot, b->generation, TEFF_OK);
    lab_ok(ctx, end_of(b));
    assert_false(teffi_call_fail(b, TEFF_E_IO, NULL));
}

/* An Ack, whose only field is bytes. */
static void a_response_is_decoded_or_says_that_it_is_not(void **state)
{
    static const uint8_t good[] = {0x0a, 1, 7}, cut[] = {0x0a, 2, 7};
    for (unsigned row = 0; row < 2; row++) {
        teffi_call *call = pending(60000);
        ProtobufCMessage *reply = NULL;
        teffi_call_expect_body(call, &teff__wire__ack__descriptor, 0);
        teffi_msg *msg = teffi_msg_new(TEFFI_MSG_RESPONSE);
        assert_non_null(msg);
        msg->call.slot = call->slot;
        msg->call.generation = call->generation;
        msg->raw = row ? cut : good;
        msg->raw_len = sizeof good;
        assert_null(teffi_call_end_by_response(&node->home, msg));
        teff_err err = teffi_ctx_await_call(ctx, call, &reply);
        if (row) {
            lab_fails(ctx, err, TEFF_E_MALFORMED);
            assert_non_null(strstr(teff_error(ctx), "does not decode; the call ran"));
            assert_true(call->response->flags & TEFFI_MSG_UNNAMED);
        } else {
            lab_ok(ctx, err);
            assert_int_equal(((Teff__Wire__Ack *)(void *)reply)->echo.len, 1);
            assert_false(call->response->flags & TEFFI_MSG_UNNAMED);
        }
    }
}

/* A silo that was paused does not know yet that its lease is over. */
static void without_a_lease_a_thread_gets_no_response(void **state)
{
    teffi_lease *lease = &node->home.lease;
    uint64_t until_ns = teffi_lease_until_ns(lease);
    lab_number *out;
    lab_ok(ctx, lab_account_add(ctx, "a", lab_number(.n = 1), &out));
    teff_call call;
    lab_ok(ctx, lab_account_add_async(ctx, "a", lab_number(.n = 1), NULL, &call));
    lab_until(teff_call_ended(ctx, call));
    atomic_store(&lease->until_ns, teffi_now(node->platform));
    lab_fails(ctx, lab_account_add_await(ctx, call, &out), TEFF_E_UNREACHABLE);
    assert_non_null(strstr(teff_error(ctx), "lab.Account.Add at a: the silo has lost its lease"));
    assert_true(teff_call_may_have_run(TEFF_E_UNREACHABLE));
    atomic_store(&lease->until_ns, until_ns);
    lab_ok(ctx, lab_account_add(ctx, "a", lab_number(.n = 1), &out));
    assert_int_equal(out->n, 3);
}

static void responses_to_nobody_are_dropped(void **state)
{
    teffi_call *a = pending(60000);
    respond(a->slot, a->generation + 1, TEFF_E_FAILED);
    respond(a->slot, a->generation - 1, TEFF_E_FAILED);
    respond(a->slot, 0, TEFF_E_FAILED);
    respond(a->slot + 1, a->generation, TEFF_E_FAILED);
    respond(0xffffffff, 1, TEFF_E_FAILED);
    respond(0, 0, TEFF_E_FAILED);
    assert_true(lab_pending(a));
    respond(a->slot, a->generation, TEFF_OK);
    lab_ok(ctx, end_of(a));
}

/* out: its entry was used again. Else the silo may have it, for a call of its own. */
static bool finds_nobody_after_its_time(void)
{
    teffi_call *a = pending(20);
    uint32_t slot = a->slot, generation = a->generation;
    lab_fails(ctx, end_of(a), TEFF_E_TIMEOUT);
    respond(slot, generation, TEFF_OK);
    assert_int_equal(a->err, TEFF_E_TIMEOUT);
    teff_ctx_reset(ctx); /* the entries are used again, with another generation */
    bool used_again = false;
    for (int i = 0; i < TEFFI_SLAB_BLOCK; i++) {
        teffi_call *b = pending(60000);
        if (b->slot == slot) {
            used_again = true;
            assert_int_not_equal(b->generation, generation);
            respond(slot, generation, TEFF_E_FAILED);
            assert_true(lab_pending(b));
        }
    }
    teff_ctx_reset(ctx);
    return used_again;
}

static void time_ends_a_call_and_a_late_response_finds_nobody(void **state)
{
    for (int tries = 0; !finds_nobody_after_its_time(); tries++)
        assert_true(tries < 100);
}

static void a_deadline_in_the_past_ends_it_at_once(void **state)
{
    teffi_call *a = teffi_ctx_call_new(ctx, 1);
    lab_fails(ctx, end_of(a), TEFF_E_TIMEOUT);
}

static void a_lost_link_ends_what_went_over_it(void **state)
{
    teffi_node_id one = {11, 1}, two = {22, 1}, one_again = {11, 2};
    teffi_call *a = pending(60000), *b = pending(60000), *c = pending(60000), *d = pending(60000);
    teffi_call_set_sent_to(&node->home, a->slot, a->generation, one);
    teffi_call_set_sent_to(&node->home, b->slot, b->generation, two);
    teffi_call_set_sent_to(&node->home, d->slot, d->generation, one_again);
    assert_null(teffi_calls_end_sent_to(&node->home, one));
    lab_fails(ctx, end_of(a), TEFF_E_UNREACHABLE);
    assert_true(lab_pending(b) && lab_pending(c) && lab_pending(d));
    teffi_call_set_sent_to(&node->home, b->slot, b->generation, one); /* forwarded */
    assert_null(teffi_calls_end_sent_to(&node->home, two));
    assert_true(lab_pending(b));
    assert_null(teffi_calls_end_sent_to(&node->home, one));
    lab_fails(ctx, end_of(b), TEFF_E_UNREACHABLE);
}

static void calls_may_be_abandoned(void **state)
{
    uint64_t before = teffi_calls_count_pending(&node->home);
    for (int i = 0; i < 1000; i++)
        pending(60000);
    assert_true(teffi_calls_count_pending(&node->home) >= 1000);
    teff_ctx_reset(ctx);
    lab_until(teffi_calls_count_pending(&node->home) <= before);
}

static void forgetting_drops_what_came_after_the_mark(void **state)
{
    teffi_call *before = pending(60000);
    teff_mark mark = teff_ctx_mark(ctx);
    for (unsigned i = 0; i < 3; i++)
        pending(60000);
    teff_ctx_rewind(ctx, mark);
    assert_true(lab_pending(before));
    assert_ptr_equal(LIST_FIRST(&ctx->calls), before);
}

/* Many enders of one call: exactly one wins. */
enum { RACES = 2000 };

typedef struct racer {
    pthread_t thread;
    _Atomic int *turn;
    teffi_call **calls;
    int won;
} racer;

static void *fail_each(void *arg)
{
    racer *r = arg;
    for (int i = 0; i < RACES; i++) {
        while (*r->turn < i)
            sched_yield();
        r->won += teffi_call_fail(r->calls[i], TEFF_E_FAILED, NULL);
    }
    return NULL;
}

static void one_of_many_enders_wins(void **state)
{
    static teffi_call *calls[RACES];
    _Atomic int turn = -1;
    racer racers[3];
    int answered = 0, won = 0;
    for (int i = 0; i < RACES; i++)
        calls[i] = pending(600000); /* all of them must be done by then */
    for (int i = 0; i < 3; i++) {
        racers[i] = (racer){.turn = &turn, .calls = calls};
        assert_int_equal(pthread_create(&racers[i].thread, NULL, fail_each, &racers[i]), 0);
    }
    for (int i = 0; i < RACES; i++) {
        turn = i;
        respond(calls[i]->slot, calls[i]->generation, TEFF_OK);
        answered += end_of(calls[i]) == TEFF_OK;
    }
    for (int i = 0; i < 3; i++) {
        pthread_join(racers[i].thread, NULL);
        won += racers[i].won;
    }
    assert_int_equal(answered + won, RACES);
}

/* Timers, responses and releases of calls that are used again and again. */
static void *ask_shortly(void *arg)
{
    racer *r = arg;
    teff_ctx *own = teffi_ctx_new(&node->home);
    for (int i = 0; i < 3000; i++) {
        teffi_call *call = teffi_ctx_call_new(own, in_ms((uint64_t)i % 3));
        if (i % 2)
            respond(call->slot, call->generation, TEFF_OK);
        teff_err err = teffi_ctx_await_call(own, call, NULL);
        r->won += err == TEFF_OK || err == TEFF_E_TIMEOUT;
        if (i % 10 == 0)
            teff_ctx_reset(own);
    }
    teff_ctx_free(own);
    return NULL;
}

static void entries_are_used_again_under_load(void **state)
{
    racer racers[4] = {0};
    for (int i = 0; i < 4; i++)
        assert_int_equal(pthread_create(&racers[i].thread, NULL, ask_shortly, &racers[i]), 0);
    for (int i = 0; i < 4; i++) {
        pthread_join(racers[i].thread, NULL);
        assert_int_equal(racers[i].won, 3000);
    }
}

static void closing_cancels(void **state)
{
    lab *own = lab_open(1);
    teff_ctx *c = teff_silo_new_ctx(own->silos[0]);
    teff_call held;
    lab_number *out;
    lab_ok(c, lab_turns_write_async(c, "a", lab_step(.hold = true), NULL, &held));
    lab_until(own->record.held == 1);
    assert_int_equal(teff_silo_stop(own->silos[0], 20), TEFF_E_TIMEOUT);
    teff_err err = lab_turns_write_await(c, held, &out);
    assert_true(err == TEFF_E_CANCELLED || err == TEFF_E_UNREACHABLE); /* the lease has ended */
    lab_fails(c, lab_turns_write(c, "a", lab_step(), &out), TEFF_E_CLOSED);
    teff_ctx_free(c);
    lab_close(own);
}

int main(void)
{
#define CALL(f) cmocka_unit_test_setup_teardown(f, setup, teardown)
    const struct CMUnitTest tests[] = {
        CALL(a_response_ends_its_call_once),
        CALL(a_response_is_decoded_or_says_that_it_is_not),
        CALL(without_a_lease_a_thread_gets_no_response),
        CALL(responses_to_nobody_are_dropped),
        CALL(time_ends_a_call_and_a_late_response_finds_nobody),
        CALL(a_deadline_in_the_past_ends_it_at_once),
        CALL(a_lost_link_ends_what_went_over_it),
        CALL(calls_may_be_abandoned),
        CALL(forgetting_drops_what_came_after_the_mark),
        CALL(one_of_many_enders_wins),
        CALL(entries_are_used_again_under_load),
        CALL(closing_cancels),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
