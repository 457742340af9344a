/* test_parts.c - forked parts of a turn see its deadline, and that its caller has left; on one
 * silo, in place, from a client and from another silo. */
#include <stdlib.h>
#include <string.h>
#include <teff/fork.h>
#include "acts.h"
#include "call/wait.h"

enum { PARTS = 2, SOON_MS = 200, NEVER_MS = 600000, ROUNDED_MS = 2 };

/* What the parts of the newest turn saw. */
static struct seen {
    _Atomic int begun, ended;
    _Atomic teff_err first[PARTS], last[PARTS];
    _Atomic uint32_t left_ms;
} seen;

static teff_cancel *cancel;
static teff_call_options given;

static int setup(void **state)
{
    cancel = teff_cancel_new();
    given = (teff_call_options){.size = sizeof given, .timeout_ms = NEVER_MS, .cancel = cancel};
    memset(&seen, 0, sizeof seen);
    return cancel ? acts_setup(state) : -1;
}

static int teardown(void **state)
{
    int failed = acts_teardown(state);
    teff_cancel_free(cancel);
    return failed;
}

typedef struct part {
    const teff_ctx *turn;
    int number;
} part;

/* Computes until its caller has left or the gate is open. */
static void compute(void *arg)
{
    const part *p = arg;
    uint32_t left_ms;
    teff_err err = teff_ctx_check(p->turn, &left_ms);
    seen.first[p->number] = err;
    seen.left_ms = left_ms;
    seen.begun++;
    while (!err && !world.gate) {
        (void)teff_yield_if_due();
        err = teff_ctx_check(p->turn, NULL);
    }
    seen.last[p->number] = err;
    seen.ended++;
}

static void fork_parts(teff_ctx *turn, teff_join *join, part *parts)
{
    for (int i = 0; i < PARTS; i++) {
        parts[i] = (part){turn, i};
        teff_fork(join, i ? TEFF_STEAL_CONTINUATION : TEFF_STEAL_CHILD, compute, &parts[i]);
    }
}

static teff_err forks(teff_ctx *turn, int64_t key, const direct_act *in, direct_number *out)
{
    teff_join join = {{0}};
    part parts[PARTS];
    fork_parts(turn, &join, parts);
    teff_join_wait(&join);
    if (out)
        out->n = teff_ctx_check(turn, NULL);
    return TEFF_OK;
}

static void all_saw(teff_err first, teff_err last)
{
    lab_until(seen.ended == PARTS);
    for (int i = 0; i < PARTS; i++) {
        assert_int_equal(seen.first[i], first);
        assert_int_equal(seen.last[i], last);
    }
}

/* ---- cancelled ---- */

static void cancel_while_parts_run(teff_ctx *from)
{
    teff_call call;
    direct_number *got;
    lab_ok(from, direct_actor_obey_async(from, FIRST, RUN(forks), &given, &call));
    lab_until(seen.begun > 0);
    assert_true(seen.left_ms > 0 && seen.left_ms <= NEVER_MS + ROUNDED_MS);
    assert_int_equal(seen.first[0] | seen.first[1], TEFF_OK);
    teff_cancel_fire(cancel);
    lab_fails(from, direct_actor_obey_await(from, call, &got), TEFF_E_CANCELLED);
    lab_until(seen.ended == PARTS);
    assert_int_equal(seen.last[0], TEFF_E_CANCELLED);
    assert_int_equal(seen.last[1], TEFF_E_CANCELLED);
}

static void parts_see_that_a_threads_call_is_cancelled(void **state)
{
    cancel_while_parts_run(ctx);
}

static teff_err cancels(teff_ctx *turn, int64_t key, const direct_act *in, direct_number *out)
{
    cancel_while_parts_run(turn);
    return TEFF_OK;
}

static void parts_see_that_a_turns_call_is_cancelled(void **state)
{
    direct_number *got;
    lab_ok(ctx, direct_actor_obey(ctx, 1, RUN(cancels), &got));
}

static void parts_see_that_their_caller_has_dropped_its_call(void **state)
{
    teff_call call;
    lab_ok(ctx, direct_actor_obey_async(ctx, FIRST, RUN(forks), &given, &call));
    lab_until(seen.begun > 0);
    teff_drop(ctx, &call);
    lab_until(seen.ended == PARTS);
    assert_int_equal(seen.last[0], TEFF_E_CANCELLED);
}

static void a_cancel_after_the_end_changes_nothing(void **state)
{
    teff_call call;
    direct_number *got;
    world.gate = true;
    lab_ok(ctx, direct_actor_obey_async(ctx, FIRST, RUN(forks), &given, &call));
    lab_ok(ctx, direct_actor_obey_await(ctx, call, &got));
    teff_cancel_fire(cancel);
    assert_int_equal(got->n, TEFF_OK);
    all_saw(TEFF_OK, TEFF_OK);
}

/* ---- deadlines ---- */

/* Parts that return at the deadline may still respond before the call ends. */
static void late(teff_ctx *from)
{
    direct_number *got;
    teff_ctx_set_timeout(from, SOON_MS);
    teff_err err = direct_actor_obey(from, FIRST, RUN(forks), &got);
    assert_true(err == TEFF_E_TIMEOUT || err == TEFF_OK);
    lab_until(seen.ended == PARTS);
    assert_true(seen.left_ms <= SOON_MS + ROUNDED_MS);
    assert_int_equal(seen.last[0], TEFF_E_TIMEOUT);
    assert_int_equal(seen.last[1], TEFF_E_TIMEOUT);
}

static void parts_see_the_deadline_of_a_thread(void **state)
{
    late(ctx);
}

/* The callee runs in place, and suspends its caller's turn when it joins. */
static teff_err is_late(teff_ctx *turn, int64_t key, const direct_act *in, direct_number *out)
{
    late(turn);
    return TEFF_OK;
}

static void parts_see_the_deadline_of_a_turn(void **state)
{
    direct_number *got;
    lab_ok(ctx, direct_actor_obey(ctx, FIRST, RUN(responds), &got));
    lab_ok(ctx, direct_actor_obey(ctx, 1, RUN(is_late), &got));
}

static void a_one_way_message_has_no_deadline(void **state)
{
    lab_ok(ctx, direct_actor_tell(ctx, FIRST, RUN(forks)));
    lab_until(seen.begun > 0);
    assert_int_equal(seen.left_ms, UINT32_MAX);
    world.gate = true;
    all_saw(TEFF_OK, TEFF_OK);
}

static void a_threads_context_has_no_caller(void **state)
{
    uint32_t left_ms = 0;
    assert_int_equal(teff_ctx_check(ctx, &left_ms), TEFF_OK);
    assert_int_equal(left_ms, UINT32_MAX);
}

/* ---- callers elsewhere ---- */

static void deadline_and_cancel(teff_ctx *from)
{
    late(from);
    memset(&seen, 0, sizeof seen);
    cancel_while_parts_run(from);
}

static void a_clients_deadline_and_cancel_are_seen(void **state)
{
    teff_client *client = lab_client(l, (int[]){0, -1});
    teff_ctx *own = teff_client_new_ctx(client);
    deadline_and_cancel(own);
    teff_ctx_free(own);
    teff_client_free(client);
}

static void host_actor(teff_silo *silo)
{
    assert_int_equal(teff_silo_host(silo, direct_actor_type(&acts_actor, NULL)), TEFF_OK);
}

static void another_silos_deadline_and_cancel_are_seen(void **state)
{
    direct_number *got;
    lab *two = lab_open_more(2, host_actor);
    lab_ok(two->ctx[1], direct_actor_obey(two->ctx[1], FIRST, RUN(responds), &got));
    deadline_and_cancel(two->ctx[0]);
    lab_close(two);
}

/* ---- the turn ends with its grain ---- */

static teff_err forks_and_waits(teff_ctx *turn, int64_t key, const direct_act *in,
                                direct_number *out)
{
    teff_join join = {{0}};
    part parts[PARTS];
    fork_parts(turn, &join, parts);
    world.held++;
    while (!world.gate)
        teffi_ctx_sleep(turn, 1);
    return TEFF_E_FAILED;
}

static teff_err takes_too_much(teff_ctx *turn, int64_t key, const direct_act *in,
                               direct_number *out)
{
    out->n = ((const char *)teff_alloc(turn, (size_t)1 << 40))[0];
    return TEFF_OK;
}

static void parts_see_that_their_turn_ends_with_its_grain(void **state)
{
    teff_call call;
    direct_number *got;
    lab_ok(ctx, direct_crowd_obey_async(ctx, FIRST, RUN(forks_and_waits), NULL, &call));
    lab_until(world.held == 1);
    lab_fails(ctx, direct_crowd_obey(ctx, FIRST, RUN(takes_too_much), &got), TEFF_E_NOMEM);
    lab_fails(ctx, direct_crowd_obey_await(ctx, call, &got), TEFF_E_NOMEM);
    lab_until(seen.ended == PARTS);
    assert_int_equal(seen.last[0], TEFF_E_CANCELLED);
}

int main(void)
{
#define HERE(f) cmocka_unit_test_setup_teardown(f, setup, teardown)
    const struct CMUnitTest tests[] = {
        HERE(parts_see_that_a_threads_call_is_cancelled),
        HERE(parts_see_that_a_turns_call_is_cancelled),
        HERE(parts_see_that_their_caller_has_dropped_its_call),
        HERE(a_cancel_after_the_end_changes_nothing),
        HERE(parts_see_the_deadline_of_a_thread),
        HERE(parts_see_the_deadline_of_a_turn),
        HERE(a_one_way_message_has_no_deadline),
        HERE(a_threads_context_has_no_caller),
        HERE(a_clients_deadline_and_cancel_are_seen),
        HERE(another_silos_deadline_and_cancel_are_seen),
        HERE(parts_see_that_their_turn_ends_with_its_grain),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
