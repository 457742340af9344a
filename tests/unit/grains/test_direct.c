/* test_direct.c - calls that run inside their caller's turn: what they hand back, and when they
 * take long. */
#include <stdio.h>
#include <string.h>
#include "acts.h"
#include "call/wait.h"

/* ---- what is handed back ---- */

static teff_err asks_many(teff_ctx *turn, int64_t key, const direct_act *in, direct_number *out)
{
    direct_number *got[8];
    char text[20];
    for (int64_t i = 0; i < in->n; i++) {
        snprintf(text, sizeof text, "t%d", (int)i);
        teff_err err = direct_actor_obey(turn, FIRST + i % 3, ACT(responds, .n = i, .text = text),
                                         &got[i % 8]);
        if (err)
            return err;
        out->n += got[i % 8]->n == i + 1 && !strcmp(got[i % 8]->text, text);
    }
    return got[0]->text[0] == 't' ? TEFF_OK : TEFF_E_FAILED; /* an older response is still there */
}

/* Two calls in three find an idle, active grain: they need no queue. */
static void test_responses_come_without_a_queue(void **state)
{
    enum { CALLS = 900 };
    direct_number *out;
    lab_ok(ctx, direct_actor_obey(ctx, 1, ACT(asks_many, .n = 3), &out));
    acts_stop_time(); /* a thread that stands still would send some through the queue */
    uint64_t before = acts_picks();
    int begun = world.begun;
    lab_ok(ctx, direct_actor_obey(ctx, 1, ACT(asks_many, .n = CALLS), &out));
    assert_int_equal(out->n, CALLS);
    assert_int_equal(world.begun - begun, CALLS + 1);
    assert_true(acts_picks() - before < CALLS / 9);
}

static teff_err asks_new(teff_ctx *turn, int64_t key, const direct_act *in, direct_number *out)
{
    direct_number *got;
    for (int64_t i = 0; i < 300; i++) {
        teff_err err = direct_actor_obey(turn, in->n + i, ACT(responds, .n = i), &got);
        if (err)
            return err;
        out->n += got->n == i + 1;
    }
    return TEFF_OK;
}

static void test_a_new_grain_begins_inside_its_callers_turn(void **state)
{
    direct_number *out;
    acts_stop_time();
    uint64_t picks = acts_picks(), activations = acts_activations();
    lab_ok(ctx, direct_actor_obey(ctx, 1, ACT(asks_new, .n = 1000), &out));
    assert_int_equal(out->n, 300);
    assert_int_equal(acts_activations() - activations, 300);
    assert_true(acts_picks() - picks < 50);
}

/* Each of them is begun by one caller, and found by the other. */
static void test_two_callers_begin_a_grain_once(void **state)
{
    direct_number *out;
    teff_call calls[2];
    for (int64_t round = 1; round <= 20; round++) {
        uint64_t activations = acts_activations();
        for (int64_t i = 0; i < 2; i++)
            lab_ok(ctx, direct_actor_obey_async(ctx, i + 1, ACT(asks_new, .n = round * 1000), NULL,
                                                &calls[i]));
        for (int i = 0; i < 2; i++) {
            lab_ok(ctx, direct_actor_obey_await(ctx, calls[i], &out));
            assert_int_equal(out->n, 300);
        }
        assert_int_equal(acts_activations() - activations, round == 1 ? 302 : 300);
    }
}

/* ---- what is due after a turn in place ---- */

static teff_err asks_one_to_end(teff_ctx *turn, int64_t key, const direct_act *in,
                                direct_number *out)
{
    direct_number *got;
    teff_err err = direct_keeper_obey(turn, FIRST, RUN(responds), &got);
    return err ? err : direct_keeper_obey(turn, FIRST, RUN(ends), &got);
}

static void test_a_callee_may_end(void **state)
{
    direct_number *out;
    for (int i = 1; i <= 3; i++) {
        lab_ok(ctx, direct_actor_obey(ctx, 1, RUN(asks_one_to_end), &out));
        lab_until(world.deactivated == i);
    }
}

enum { NOTE = 1000 };

/* out: n: bytes in the arena of the state, with those of older notes. */
static teff_err writes_a_note(teff_ctx *turn, int64_t key, const direct_act *in, direct_number *out)
{
    char *note = teff_state_alloc(turn, NOTE);
    memset(note, 'a', NOTE - 1);
    acts_memo(turn)->note = note;
    out->n = (int64_t)teffi_activation_of_ctx(turn)->stored->arena->used_bytes;
    return TEFF_OK;
}

static teff_err asks_for_notes(teff_ctx *turn, int64_t key, const direct_act *in,
                               direct_number *out)
{
    direct_number *got;
    teff_err err = TEFF_OK;
    for (int i = 0; i < 100 && !err; i++) {
        err = direct_keeper_obey(turn, FIRST, RUN(writes_a_note), &got);
        if (!err && got->n > out->n)
            out->n = got->n;
    }
    return err;
}

static void test_a_callees_state_is_compacted(void **state)
{
    direct_number *out;
    lab_ok(ctx, direct_actor_obey(ctx, 1, RUN(asks_for_notes), &out));
    assert_in_range(out->n, NOTE, 32 * NOTE);
}

/* ---- errors ---- */

static teff_err asks_failing(teff_ctx *turn, int64_t key, const direct_act *in, direct_number *out)
{
    direct_number *got;
    teff_err err = direct_actor_obey(turn, FIRST, RUN(responds), &got);
    if (err)
        return err;
    err = direct_actor_obey(turn, FIRST, ACT(fails, .text = in->text), &got);
    out->n = err;
    out->text = teff_strdup(turn, teff_error(turn));
    return TEFF_OK;
}

static void test_errors_have_code_and_text(void **state)
{
    direct_number *out;
    lab_ok(ctx, direct_actor_obey(ctx, 1, ACT(asks_failing, .text = (char *)"no"), &out));
    assert_int_equal(out->n, TEFF_E_USER + 3);
    assert_string_equal(out->text, "no says grain 100");
}

static teff_err asks_sleeping(teff_ctx *turn, int64_t key, const direct_act *in, direct_number *out)
{
    direct_number *got;
    for (int64_t i = 0; i < in->n; i++) {
        script *fn = i % 2 ? sleeps : responds;
        teff_err err =
            direct_actor_obey(turn, FIRST + i % 3, ACT(fn, .n = i, .text = in->text), &got);
        if (err)
            return err;
        out->n += got->n == i + 1 && !strcmp(got->text, in->text);
    }
    return TEFF_OK;
}

static void test_a_callee_may_wait(void **state)
{
    direct_number *out;
    lab_ok(ctx, direct_actor_obey(ctx, 1, ACT(asks_sleeping, .n = 30, .text = (char *)"x"), &out));
    assert_int_equal(out->n, 30);
}

/* Started together: some end in place, some fail, some wait beside one another. */
static teff_err starts_many(teff_ctx *turn, int64_t key, const direct_act *in, direct_number *out)
{
    enum { MANY = 60 };
    teff_call calls[MANY];
    direct_number *got;
    for (int i = 0; i < MANY; i++) {
        script *fn = i % 3 == 0 ? responds : i % 3 == 1 ? fails : waits;
        teff_err err = direct_actor_obey_async(turn, FIRST + i, ACT(fn, .n = i, .text = in->text),
                                               NULL, &calls[i]);
        if (err)
            return err;
    }
    (void)!teff_await_all(turn, calls, MANY);
    for (int i = MANY; i-- > 0;) {
        teff_err err = direct_actor_obey_await(turn, calls[i], &got);
        if (i % 3 == 1)
            out->n += err == TEFF_E_USER + 3 && strstr(teff_error(turn), in->text);
        else
            out->n += !err && got->n == i + 1 && !strcmp(got->text, in->text);
    }
    return TEFF_OK;
}

static void test_started_calls_do_not_wait_for_each_other(void **state)
{
    teff_call call;
    direct_number *out;
    for (int i = 0; i < 60; i++)
        lab_ok(ctx, direct_actor_obey(ctx, FIRST + i, RUN(responds), &out));
    for (int round = 0; round < 3; round++) {
        world.gate = false;
        lab_ok(ctx, direct_actor_obey_async(ctx, 1, ACT(starts_many, .text = (char *)"many"), NULL,
                                            &call));
        lab_until(world.held == 20);
        world.gate = true;
        lab_ok(ctx, direct_actor_obey_await(ctx, call, &out));
        assert_int_equal(out->n, 60);
    }
}

static teff_err notes(teff_ctx *turn, int64_t key, const direct_act *in, direct_number *out)
{
    if (in->n % 8 == 0)
        teffi_ctx_sleep(turn, 1);
    world.rounds += key;
    return in->n % 3 ? TEFF_OK : TEFF_E_FAILED; /* nobody hears of it */
}

static teff_err tells_many(teff_ctx *turn, int64_t key, const direct_act *in, direct_number *out)
{
    for (int64_t i = 0; i < in->n; i++) {
        teff_err err = direct_actor_tell(turn, FIRST + i % 7, ACT(notes, .n = i));
        if (err)
            return err;
    }
    return TEFF_OK;
}

static void test_each_one_way_message_runs_once(void **state)
{
    direct_number *out;
    int64_t sum = 0;
    for (int i = 0; i < 1400; i++)
        sum += FIRST + i % 7;
    lab_ok(ctx, direct_actor_obey(ctx, 1, ACT(tells_many, .n = 1400), &out));
    lab_until(world.rounds == sum);
    lab_until(world.begun == world.ended);
}

static teff_err checks(teff_ctx *turn, int64_t key, const direct_act *in, direct_number *out)
{
    uint32_t left_ms = 0;
    teff_err err = teff_ctx_check(turn, &left_ms);
    return err || left_ms ? err : TEFF_E_FAILED;
}

/* In place, from the queue, and in on_activate, which has no caller. */
static void test_nobody_has_left_a_call_that_is_awaited(void **state)
{
    direct_number *out;
    lab_ok(ctx, direct_actor_obey(ctx, FIRST + 1, RUN(checks), &out));
    for (int i = 0; i < 20; i++)
        lab_ok(ctx, direct_actor_obey(ctx, 1, ACT(asks_one, .n = (intptr_t)checks), &out));
    world.on_activate = checks;
    lab_ok(ctx, direct_keeper_obey(ctx, FIRST, RUN(responds), &out));
}

static _Atomic teff_err saw; /* TEFF_E_USER: it has not looked yet */

static teff_err waits_and_checks(teff_ctx *turn, int64_t key, const direct_act *in,
                                 direct_number *out)
{
    teff_err err = waits(turn, key, in, out);
    saw = teff_ctx_check(turn, NULL);
    return err;
}

typedef enum leaving { AWAITS, DROPS, ENDS } leaving;

static teff_err starts_and_leaves(teff_ctx *turn, int64_t key, const direct_act *in,
                                  direct_number *out)
{
    teff_call call;
    direct_number *got;
    teff_err err = direct_actor_obey_async(turn, FIRST, RUN(waits_and_checks), NULL, &call);
    if (!err && in->n == DROPS)
        teff_drop(turn, &call);
    return err || in->n != AWAITS ? err : direct_actor_obey_await(turn, call, &got);
}

static void see_caller_leave(leaving how)
{
    teff_call call;
    direct_number *out;
    world.gate = false;
    saw = TEFF_E_USER;
    acts_stop_time(); /* until the callee has begun in place */
    lab_ok(ctx, direct_actor_obey_async(ctx, 1, ACT(starts_and_leaves, .n = how), NULL, &call));
    lab_until(world.held == 1);
    acts_start_time();
    if (how != AWAITS)
        lab_ok(ctx, direct_actor_obey_await(ctx, call, &out));
    world.gate = true;
    lab_until(saw != TEFF_E_USER);
    if (how == AWAITS)
        lab_ok(ctx, direct_actor_obey_await(ctx, call, &out));
    assert_int_equal(saw, how == AWAITS ? TEFF_OK : TEFF_E_CANCELLED);
}

static void test_a_callee_sees_that_its_caller_has_left(void **state)
{
    direct_number *out;
    lab_ok(ctx, direct_actor_obey(ctx, FIRST, RUN(responds), &out));
    see_caller_leave(AWAITS);
    see_caller_leave(DROPS);
    see_caller_leave(ENDS);
}

/* ---- time ---- */

static teff_err asks_quick(teff_ctx *turn, int64_t key, const direct_act *in, direct_number *out)
{
    direct_number *got;
    teff_err err = direct_actor_obey(turn, FIRST, RUN(responds), &got);
    if (err)
        return err;
    out->n = direct_actor_quick(turn, FIRST, RUN((uintptr_t)in->n), &got);
    return TEFF_OK;
}

static void test_a_callee_outlives_its_caller(void **state)
{
    direct_number *out;
    teff_call caller, behind;
    acts_stop_time(); /* until the callee has begun */
    lab_ok(ctx,
           direct_actor_obey_async(ctx, 1, ACT(asks_quick, .n = (intptr_t)waits), NULL, &caller));
    lab_until(world.held == 1);
    acts_start_time();
    lab_ok(ctx, direct_actor_obey_await(ctx, caller, &out));
    assert_int_equal(out->n, TEFF_E_TIMEOUT);
    lab_ok(ctx, direct_actor_obey_async(ctx, FIRST, RUN(responds), NULL, &behind));
    int ended = world.ended;
    world.gate = true;
    lab_until(world.ended == ended + 2);
    lab_ok(ctx, direct_actor_obey_await(ctx, behind, &out));
}

static teff_err stands(teff_ctx *turn, int64_t key, const direct_act *in, direct_number *out)
{
    acts_sleep_ms(60);
    return responds(turn, key, in, out);
}

static void test_a_late_response_is_a_timeout(void **state)
{
    direct_number *out;
    lab_ok(ctx, direct_actor_obey(ctx, 1, ACT(asks_quick, .n = (intptr_t)stands), &out));
    assert_int_equal(out->n, TEFF_E_TIMEOUT);
}

static teff_err is_slow(teff_ctx *turn, int64_t key, const direct_act *in, direct_number *out)
{
    acts_pass_ms(12);
    return responds(turn, key, in, out);
}

static _Atomic uint32_t *slow_word(const char *method)
{
    teffi_grains *grains = l->silos[0]->node.grains;
    for (size_t t = 0; t < grains->n_types; t++)
        for (size_t m = 0; m < grains->types[t]->info->n_methods; m++)
            if (strcmp(grains->types[t]->info->methods[m].name, method) == 0)
                return &grains->types[t]->slow[m];
    fail_msg("no method %s", method);
    return NULL;
}

/* Calls that will go through the queue. */
static uint32_t skips(const char *method)
{
    return *slow_word(method) & UINT16_MAX;
}

static void ask_slow(void)
{
    direct_number *out;
    lab_ok(ctx, direct_actor_obey(ctx, 1, ACT(asks_one, .n = (intptr_t)is_slow), &out));
    assert_int_equal(out->n, 1);
}

/* There its caller can time out. */
static void test_a_slow_method_goes_through_the_queue(void **state)
{
    enum { SKIPS = 256 };
    direct_number *out;
    lab_ok(ctx, direct_actor_obey(ctx, 1, ACT(asks_one, .n = (intptr_t)responds), &out));
    acts_stop_time();
    ask_slow();
    assert_int_equal(skips("direct.Actor.Obey"), 0); /* it may have been the thread */
    ask_slow();
    assert_int_equal(skips("direct.Actor.Obey"), SKIPS);
    lab_ok(ctx, direct_actor_obey(ctx, 1, ACT(asks_many, .n = SKIPS), &out));
    assert_int_equal(out->n, SKIPS);
    assert_int_equal(skips("direct.Actor.Obey"), 0);
    ask_slow();
    assert_int_equal(skips("direct.Actor.Obey"), 2 * SKIPS);
    lab_ok(ctx, direct_actor_obey(ctx, 1, ACT(asks_many, .n = 2 * SKIPS + 1), &out));
    ask_slow(); /* the call before was in place and short: forgiven */
    assert_int_equal(skips("direct.Actor.Obey"), 0);
}

static void test_so_many_calls_of_a_slow_method_are_queued(void **state)
{
    enum { SKIPS = 1000, CALLS = 30 };
    direct_number *out;
    acts_stop_time();
    *slow_word("direct.Actor.Obey") = 2u << 16 | SKIPS;
    lab_ok(ctx, direct_actor_obey(ctx, 1, ACT(asks_many, .n = CALLS), &out));
    assert_int_equal(skips("direct.Actor.Obey"), SKIPS - CALLS);
}

static _Atomic unsigned with_deadline;

static teff_err counts(teff_ctx *turn, int64_t key, const direct_act *in, direct_number *out)
{
    with_deadline += turn->due_ms != 0;
    world.rounds++;
    return TEFF_OK;
}

static teff_err tells_one(teff_ctx *turn, int64_t key, const direct_act *in, direct_number *out)
{
    teff_err err = TEFF_OK;
    for (int64_t i = 0; i < in->n && !err; i++)
        err = direct_actor_tell(turn, FIRST, RUN(counts));
    return err;
}

static void test_one_way_messages_need_no_queue(void **state)
{
    enum { MESSAGES = 200 };
    direct_number *out;
    lab_ok(ctx, direct_actor_obey(ctx, FIRST, RUN(responds), &out));
    acts_stop_time();
    uint64_t before = acts_picks();
    lab_ok(ctx, direct_actor_obey(ctx, 1, ACT(tells_one, .n = MESSAGES), &out));
    assert_true(acts_picks() - before < MESSAGES / 9);
    assert_int_equal(with_deadline, 0); /* nobody waits for them */
}

/* Yields inside its caller's turn, which yields with it. */
static teff_err spins(teff_ctx *turn, int64_t key, const direct_act *in, direct_number *out)
{
    world.held++;
    while (!world.gate)
        if (teff_await_all(turn, NULL, 0))
            return TEFF_E_FAILED;
    world.held--;
    return responds(turn, key, in, out);
}

static teff_err computes(teff_ctx *turn, int64_t key, const direct_act *in, direct_number *out)
{
    volatile uint64_t sum = 0;
    world.held++;
    while (!world.gate) {
        teff_preemptible region = teff_preemptible_begin();
        for (unsigned i = 0; i < 1000000; i++)
            sum += i;
        teff_preemptible_end(region);
        (void)sum;
    }
    world.held--;
    return responds(turn, key, in, out);
}

static void other_grains_run_beside(script *fn)
{
    enum { CALLERS = 4 };
    teff_call calls[CALLERS];
    direct_number *out;
    for (int i = 0; i < CALLERS; i++) /* active, all of them */
        lab_ok(ctx, direct_actor_obey(ctx, i + 1, ACT(asks_one, .n = (intptr_t)responds), &out));
    for (int i = 0; i < CALLERS; i++)
        lab_ok(ctx, direct_actor_obey_async(ctx, i + 1, ACT(asks_one, .n = (intptr_t)fn), NULL,
                                            &calls[i]));
    lab_until(world.held == CALLERS);
    for (int i = 0; i < 20; i++)
        lab_ok(ctx, direct_actor_obey(ctx, 50, RUN(responds), &out));
    world.gate = true;
    for (int i = 0; i < CALLERS; i++) {
        lab_ok(ctx, direct_actor_obey_await(ctx, calls[i], &out));
        assert_int_equal(out->n, 1);
    }
}

static void test_a_callee_yields_at_its_calls(void **state)
{
    other_grains_run_beside(spins);
}

static void test_a_callee_is_preempted_in_a_region(void **state)
{
    other_grains_run_beside(computes);
}

int main(void)
{
#define DIRECT(f) cmocka_unit_test_setup_teardown(f, acts_setup, acts_teardown)
#define ON_ONE_WORKER(f) cmocka_unit_test_setup_teardown(f, acts_setup_one_worker, acts_teardown)
#define MULTILEVEL(f) cmocka_unit_test_setup_teardown(f, acts_setup_multilevel, acts_teardown)
#define PRIORITY(f) cmocka_unit_test_setup_teardown(f, acts_setup_priority, acts_teardown)
#define HOOKED(f) cmocka_unit_test_setup_teardown(f, acts_setup_hooked, acts_teardown)
    const struct CMUnitTest tests[] = {
        DIRECT(test_responses_come_without_a_queue),
        DIRECT(test_a_new_grain_begins_inside_its_callers_turn),
        DIRECT(test_two_callers_begin_a_grain_once),
        DIRECT(test_a_callee_may_end),
        DIRECT(test_a_callees_state_is_compacted),
        DIRECT(test_errors_have_code_and_text),
        DIRECT(test_a_callee_may_wait),
        DIRECT(test_started_calls_do_not_wait_for_each_other),
        DIRECT(test_each_one_way_message_runs_once),
        DIRECT(test_nobody_has_left_a_call_that_is_awaited),
        DIRECT(test_a_callee_sees_that_its_caller_has_left),
        DIRECT(test_a_callee_outlives_its_caller),
        DIRECT(test_a_late_response_is_a_timeout),
        DIRECT(test_a_slow_method_goes_through_the_queue),
        DIRECT(test_so_many_calls_of_a_slow_method_are_queued),
        DIRECT(test_one_way_messages_need_no_queue),
        DIRECT(test_a_callee_yields_at_its_calls),
        ON_ONE_WORKER(test_a_callee_yields_at_its_calls),
        ON_ONE_WORKER(test_a_callee_is_preempted_in_a_region),
        MULTILEVEL(test_responses_come_without_a_queue),
        MULTILEVEL(test_started_calls_do_not_wait_for_each_other),
        MULTILEVEL(test_a_callee_yields_at_its_calls),
        PRIORITY(test_responses_come_without_a_queue),
        PRIORITY(test_started_calls_do_not_wait_for_each_other),
        PRIORITY(test_a_callee_yields_at_its_calls),
        HOOKED(test_responses_come_without_a_queue),
        HOOKED(test_started_calls_do_not_wait_for_each_other),
        HOOKED(test_a_callee_yields_at_its_calls),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
