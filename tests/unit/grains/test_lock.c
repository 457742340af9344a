/* test_lock.c - what meets a grain that a transaction has locked, and how the lock ends: walks the
 * table of activation/lock.h; each on one silo, between two, and from a client. */
#include <stdio.h>
#include <string.h>
#include "bank.h"
#include "call/wait.h"

/* Calls a method outside of the transaction at a grain that the transaction has locked. */
static teff_err steps_out(teff_ctx *turn, bank_balance *none, const bank_act *in, bank_number *out)
{
    bank_number *looked;
    teff_err err = call(turn, in->to, adds, in->n, NULL);
    if (err)
        return err;
    assert_int_equal(bank_vault_look(turn, in->to, &looked), TEFF_E_INVALID);
    out->n = strstr(teff_error(turn), "has locked the grain") != NULL;
    return bank_vault_look(turn, "bystander", &looked);
}

static teff_err touches(teff_ctx *turn, bank_balance *none, const bank_act *in, bank_number *out)
{
    return TEFF_OK;
}

static teff_err holds_narrow(teff_ctx *turn, bank_balance *none, const bank_act *in,
                             bank_number *out)
{
    bank_number *got;
    teff_err err = bank_narrow_obey(turn, "n", RUN(touches), &got);
    wait_for_gate(turn);
    return err;
}

static teff_err holds(teff_ctx *turn, bank_balance *state, const bank_act *in, bank_number *out)
{
    wait_for_gate(turn);
    return TEFF_OK;
}

static teff_err uses_a_key(teff_ctx *turn, bank_balance *none, const bank_act *in, bank_number *out)
{
    teff_uuid id = {{1}};
    teff_call_options opt = {.size = sizeof opt, .once = &id};
    teff_call one;
    return bank_vault_obey_async(turn, in->to, ACT(adds, .n = 1), &opt, &one);
}

static teff_err exits(teff_ctx *turn, bank_balance *state, const bank_act *in, bank_number *out)
{
    state->n += in->n;
    (void)!teff_state_save(turn);
    (void)teff_alloc(turn, (size_t)TEFF_TURN_MEMORY_MAX + 1);
    return TEFF_OK;
}

static teff_err moves_and_meets_an_exit(teff_ctx *turn, bank_balance *none, const bank_act *in,
                                        bank_number *out)
{
    char *a, *b;
    split(turn, in->to, &a, &b);
    teff_err err = call(turn, b, adds, in->n, NULL);
    return err ? err : call(turn, a, exits, -in->n, NULL);
}

static teff_err pays_and_exits(teff_ctx *turn, bank_balance *state, const bank_act *in,
                               bank_number *out)
{
    teff_err err = pays(turn, state, in, out);
    return err ? err : exits(turn, state, in, out);
}

static teff_err adds_and_quits(teff_ctx *turn, bank_balance *state, const bank_act *in,
                               bank_number *out)
{
    teff_deactivate(turn);
    return adds(turn, state, in, out);
}

static teff_err moves_and_quits(teff_ctx *turn, bank_balance *none, const bank_act *in,
                                bank_number *out)
{
    char *a, *b;
    split(turn, in->to, &a, &b);
    teff_err err = call(turn, a, adds_and_quits, -in->n, NULL);
    err = err ? err : call(turn, b, quits, 0, NULL);
    err = err ? err : call(turn, a, adds, -in->n, NULL);
    return err ? err : call(turn, b, adds, 2 * in->n, &out->n);
}

/* Reads and changes nothing in many grains, n of them. */
static teff_err visits_many(teff_ctx *turn, bank_balance *none, const bank_act *in,
                            bank_number *out)
{
    for (int64_t i = 0; i < in->n; i++) {
        char key[32];
        snprintf(key, sizeof key, "many %d", (int)i);
        teff_err err = call(turn, key, adds, 1, NULL);
        if (err)
            return err;
    }
    return TEFF_OK;
}

static void test_other_calls_wait(void **state)
{
    teff_call move, look;
    bank_number *out;
    begin_with(10, 5);
    lab_ok(ctx, bank_teller_obey_async(ctx, "teller", ACT(moves_and_waits, .n = 3, .to = "a b"),
                                       NULL, &move));
    lab_until(bank.held == 1);
    lab_ok(ctx, bank_vault_look_async(ctx, "a", NULL, &look));
    for (int i = 0; i < 20; i++)
        balance("bystander");
    assert_false(teff_call_ended(ctx, look));
    bank.gate = true;
    lab_ok(ctx, bank_vault_look_await(ctx, look, &out));
    assert_int_equal(out->n, 7);
    lab_ok(ctx, bank_teller_obey_await(ctx, move, &out));
}

/* The end of a transaction is taken by a grain whose queue is full. */
static void test_a_full_queue_takes_the_end(void **state)
{
    teff_call hold, looks[3];
    bank_number *out;
    lab_ok(ctx, bank_teller_obey_async(ctx, "teller", RUN(holds_narrow), NULL, &hold));
    lab_until(bank.held == 1);
    for (int i = 0; i < 3; i++)
        lab_ok(ctx, bank_narrow_look_async(ctx, "n", NULL, &looks[i]));
    lab_fails(ctx, bank_narrow_look_await(ctx, looks[2], &out), TEFF_E_OVERLOADED);
    bank.gate = true;
    lab_ok(ctx, bank_teller_obey_await(ctx, hold, &out));
    for (int i = 0; i < 2; i++)
        lab_ok(ctx, bank_narrow_look_await(ctx, looks[i], &out));
}

static void test_what_would_wait_for_itself_fails(void **state)
{
    int64_t n;
    begin_with(10, 5);
    lab_ok(ctx, ask_teller(steps_out, 1, "a", &n));
    assert_int_equal(n, 1);
    assert_int_equal(balance("a"), 11);
    lab_fails(ctx, ask_teller(uses_a_key, 1, "a", NULL), TEFF_E_INVALID);
    assert_int_equal(balance("a"), 11);
}

static void test_a_turn_without_memory_changes_nothing(void **state)
{
    begin_with(10, 5);
    lab_fails(ctx, ask_teller(moves_and_meets_an_exit, 3, "a b", NULL), TEFF_E_NOMEM);
    are_stored(10, 5);
}

static void test_an_activation_that_ends_waits_for_the_transaction(void **state)
{
    begin_with(10, 5);
    lab_ok(ctx, ask_teller(moves_and_quits, 3, "a b", NULL));
    are_stored(4, 11);
}

static void test_a_batch_has_a_limit(void **state)
{
    lab_ok(ctx, ask_teller(visits_many, 200, NULL, NULL));
    assert_int_equal(balance("many 199"), 1);
    lab_fails(ctx, ask_teller(visits_many, 257, NULL, NULL), TEFF_E_TOO_LARGE);
    assert_int_equal(balance("many 199"), 1);
    assert_int_equal(balance("many 256"), 0);
}

/* ---- a root that says nothing ---- */

static teff_err move_soon(bank_script *fn, int64_t n)
{
    teff_call_options opt = {.size = sizeof opt, .timeout_ms = 300};
    teff_call one;
    bank_number *out;
    teff_err err = bank_teller_obey_async(ctx, "teller", ACT(fn, .n = n, .to = "a b"), &opt, &one);
    return err ? err : bank_teller_obey_await(ctx, one, &out);
}

/* What the two transactions of a test have done: each waits for the other's steps. Between silos,
 * either may be the older one, and the younger one may begin again. */
static _Atomic int step;

static void reach_step(int n)
{
    int now = step;
    while (now < n && !atomic_compare_exchange_weak(&step, &now, n))
        ;
}

static void wait_for_step(teff_ctx *turn, int n)
{
    while (step < n)
        teffi_ctx_sleep(turn, 1);
}

/* The younger transaction has locked "b". */
static teff_err fails_at_step_4(teff_ctx *turn, bank_balance *state, const bank_act *in,
                                bank_number *out)
{
    reach_step(2);
    wait_for_step(turn, 4);
    return TEFF_E_USER(1);
}

static teff_err asks_a_twice(teff_ctx *turn, bank_balance *none, const bank_act *in,
                             bank_number *out)
{
    teff_call first = {0}, second = {0};
    wait_for_step(turn, 1);
    teff_err err = call(turn, "b", adds, 1, NULL);
    if (!err)
        err = bank_vault_obey_async(turn, "a", RUN(fails_at_step_4), NULL, &first);
    wait_for_step(turn, 3);
    if (!err)
        err = bank_vault_obey_async(turn, "a", ACT(adds, .n = 1), NULL, &second);
    reach_step(4);
    if (!err)
        err = bank_vault_obey_await(turn, first, &out);
    teff_err other = bank_vault_obey_await(turn, second, &out);
    return err ? err : other;
}

static teff_err asks_a_then_b(teff_ctx *turn, bank_balance *none, const bank_act *in,
                              bank_number *out)
{
    teff_call one;
    reach_step(1);
    wait_for_step(turn, 2);
    teff_err err = bank_vault_obey_async(turn, "a", ACT(adds, .n = 2), NULL, &one);
    reach_step(3);
    err = err ? err : bank_vault_obey_await(turn, one, &out);
    return err ? err : call(turn, "b", adds, 2, NULL);
}

/* Two requests of the younger transaction meet "a", and between them one of the older, which waits.
 * The first fails and releases the lock; the older one takes it. Now the other of the younger one
 * must not wait for the older transaction, which will wait for "b". */
static void test_no_younger_request_waits_for_the_next_owner(void **state)
{
    teff_call older, younger;
    bank_number *out;
    teff_call_options opt = {.size = sizeof opt, .timeout_ms = 5000};
    begin_with(10, 5);
    step = 0;
    lab_ok(ctx, bank_teller_obey_async(ctx, "older", RUN(asks_a_then_b), &opt, &older));
    lab_until(step >= 1);
    lab_ok(ctx, bank_teller_obey_async(ctx, "younger", RUN(asks_a_twice), &opt, &younger));
    lab_fails(ctx, bank_teller_obey_await(ctx, younger, &out), TEFF_E_USER(1));
    lab_ok(ctx, bank_teller_obey_await(ctx, older, &out));
    are_stored(12, 7);
}

/* ---- plain calls in a transaction: their methods are not transactional ---- */

static _Atomic teff_err plain_err; /* the first error of the younger transaction's plain call */

/* The older transaction: locks "a" before the younger one looks at it, then calls "b". */
static teff_err locks_a_then_b(teff_ctx *turn, bank_balance *none, const bank_act *in,
                               bank_number *out)
{
    teff_err err = call(turn, "a", adds, 2, NULL);
    reach_step(1);
    wait_for_step(turn, 2);
    return err ? err : call(turn, "b", adds, 2, NULL);
}

/* The older transaction: its request waits at "a" when the younger one looks at it. */
static teff_err waits_for_a_then_b(teff_ctx *turn, bank_balance *none, const bank_act *in,
                                   bank_number *out)
{
    teff_call one;
    teff_err err = bank_vault_obey_async(turn, "a", ACT(adds, .n = 2), NULL, &one);
    reach_step(1);
    err = err ? err : bank_vault_obey_await(turn, one, &out);
    wait_for_step(turn, 2);
    return err ? err : call(turn, "b", adds, 2, NULL);
}

/* The younger transaction, whose root is "b": looks at "a". */
static teff_err looks_at_a(teff_ctx *turn, bank_balance *state, const bank_act *in,
                           bank_number *out)
{
    teff_call look;
    teff_err none = TEFF_OK;
    state->n += 1;
    teff_err err = teff_state_save(turn);
    wait_for_step(turn, 1);
    err = err ? err : bank_vault_look_async(turn, "a", NULL, &look);
    reach_step(2);
    err = err ? err : bank_vault_look_await(turn, look, &out);
    atomic_compare_exchange_strong(&plain_err, &none, err);
    return err;
}

/* Not in a transaction: looks at a vault. n: how long to sleep before. */
static teff_err sleeps_and_looks(teff_ctx *turn, bank_balance *state, const bank_act *in,
                                 bank_number *out)
{
    bank_number *looked;
    if (in->n)
        teffi_ctx_sleep(turn, (uint32_t)in->n);
    return bank_vault_look(turn, in->to, &looked);
}

static _Atomic teff_err own_err;

/* The younger transaction, whose root is "b": lets "c" look at "b" itself, which it has locked, and
 * then at "a". */
static teff_err lets_c_look(teff_ctx *turn, bank_balance *state, const bank_act *in,
                            bank_number *out)
{
    bank_number *looked;
    teff_err none = TEFF_OK;
    state->n += 1;
    teff_err err = teff_state_save(turn);
    wait_for_step(turn, 1);
    own_err = bank_vault_plain(turn, "c", ACT(sleeps_and_looks, .n = in->n, .to = "b"), &looked);
    reach_step(2);
    err = err ? err
              : bank_vault_plain(turn, "c", ACT(sleeps_and_looks, .n = in->n, .to = "a"), &looked);
    atomic_compare_exchange_strong(&plain_err, &none, err);
    return err;
}

static teff_err lets_c_sleep_and_look(teff_ctx *turn, bank_balance *state, const bank_act *in,
                                      bank_number *out)
{
    return lets_c_look(turn, state, bank_act(.n = 1), out);
}

static teff_err ignores_the_error_of_a(teff_ctx *turn, bank_balance *state, const bank_act *in,
                                       bank_number *out)
{
    (void)!looks_at_a(turn, state, in, out);
    return TEFF_OK;
}

/* Runs both transactions. A younger one with a key is called again, and must not count again. On
 * one silo, the first one is the older; between silos, either may be. */
static void run_older_and_younger(bank_script *one, bank_script *other, const teff_uuid *key)
{
    teff_call older, younger;
    bank_number *out;
    teff_call_options opt = {.size = sizeof opt, .timeout_ms = 10000};
    step = 0;
    plain_err = TEFF_OK;
    lab_ok(ctx, bank_teller_obey_async(ctx, "older", RUN(one), &opt, &older));
    lab_until(step >= 1);
    opt.once = key;
    for (int i = 0; i < (key ? 2 : 1); i++) {
        lab_ok(ctx, bank_vault_obey_async(ctx, "b", RUN(other), &opt, &younger));
        lab_until(step >= 2);
        bank.gate = true;
        lab_ok(ctx, bank_vault_obey_await(ctx, younger, &out));
    }
    lab_ok(ctx, bank_teller_obey_await(ctx, older, &out));
    if (l->n == 1)
        assert_int_equal(plain_err, TEFF_E_ABORTED);
}

static void test_a_plain_call_does_not_wait_for_an_older_transaction(void **state)
{
    teff_uuid key = {{9}};
    begin_with(10, 5);
    run_older_and_younger(locks_a_then_b, looks_at_a, NULL);
    are_stored(12, 8);
    run_older_and_younger(locks_a_then_b, ignores_the_error_of_a, NULL);
    are_stored(14, 11);
    run_older_and_younger(locks_a_then_b, looks_at_a, &key);
    are_stored(16, 14);
}

static void test_what_a_plain_call_calls_does_not_wait_for_an_older_transaction(void **state)
{
    begin_with(10, 5);
    assert_int_equal(balance("c"), 0);
    run_older_and_younger(locks_a_then_b, lets_c_look, NULL);
    assert_int_equal(own_err, TEFF_E_INVALID);
    are_stored(12, 8);
    own_err = TEFF_OK;
    run_older_and_younger(locks_a_then_b, lets_c_sleep_and_look, NULL);
    assert_int_equal(own_err, TEFF_E_INVALID);
    are_stored(14, 11);
}

static void test_a_waiting_plain_call_does_not_wait_for_an_older_transaction(void **state)
{
    teff_call first;
    bank_number *out;
    begin_with(10, 5);
    lab_ok(ctx, bank_vault_plain_async(ctx, "a", RUN(holds), NULL, &first));
    lab_until(bank.held == 1);
    run_older_and_younger(waits_for_a_then_b, looks_at_a, NULL);
    lab_ok(ctx, bank_vault_plain_await(ctx, first, &out));
    are_stored(12, 8);
}

static void test_a_silent_root_that_has_written(void **state)
{
    begin_with(10, 5);
    bank.mute = 1;
    lab_ok(ctx, move_soon(moves, 3));
    are_stored(7, 8);
}

static void test_a_silent_root_that_has_not(void **state)
{
    begin_with(10, 5);
    bank.mute = 1;
    lab_fails(ctx, move_soon(moves, 11), TEFF_E_USER(1));
    are_stored(10, 5);
    bank.next_batch = FAILS;
    bank.mute = 1;
    lab_fails(ctx, move_soon(moves, 3), TEFF_E_IO);
    are_stored(10, 5);
}

static teff_err adds_to_b_and_fails(teff_ctx *turn, bank_balance *none, const bank_act *in,
                                    bank_number *out)
{
    teff_err err = call(turn, "b", adds, 1, NULL);
    return err ? err : TEFF_E_USER(1);
}

static teff_err asks_b_at_step_2(teff_ctx *turn, bank_balance *none, const bank_act *in,
                                 bank_number *out)
{
    reach_step(1);
    wait_for_step(turn, 2);
    return call(turn, "b", adds, 2, NULL);
}

/* The younger transaction has failed, and its lock of "b" stays. The older one waits for the lock,
 * but not for 30 s, until the deadline of the younger one: the older one may have locked the grain
 * at which the younger one begins again. */
static void test_an_older_transaction_ends_a_lock_that_was_left(void **state)
{
    teff_call older;
    bank_number *out;
    teff_call_options opt = {.size = sizeof opt, .timeout_ms = 15000};
    begin_with(10, 5);
    step = 0;
    lab_ok(ctx, bank_teller_obey_async(ctx, "older", RUN(asks_b_at_step_2), &opt, &older));
    lab_until(step >= 1);
    bank.mute = 1;
    lab_fails(ctx, ask_teller(adds_to_b_and_fails, 1, NULL, NULL), TEFF_E_USER(1));
    reach_step(2);
    lab_ok(ctx, bank_teller_obey_await(ctx, older, &out));
    are_stored(10, 7);
}

static teff_err pay_soon(bank_script *fn)
{
    teff_call_options opt = {.size = sizeof opt, .timeout_ms = 300};
    teff_call one;
    bank_number *out;
    teff_err err = bank_vault_obey_async(ctx, "a", ACT(fn, .n = 3, .to = "b"), &opt, &one);
    return err ? err : bank_vault_obey_await(ctx, one, &out);
}

static void test_a_root_without_memory(void **state)
{
    begin_with(10, 5);
    lab_fails(ctx, pay_soon(pays_and_exits), TEFF_E_NOMEM);
    are_stored(10, 5);
}

/* ---- two silos ---- */

static void test_a_silo_leaves_in_the_middle(void **state)
{
    teff_call move;
    bank_number *out;
    begin_with(10, 5);
    lab_ok(ctx, bank_teller_obey_async(ctx, "teller", ACT(moves_and_waits, .n = 3, .to = "a b"),
                                       NULL, &move));
    lab_until(bank.held == 1);
    bank.gate = true;
    assert_int_equal(lab_remove(l, 1), TEFF_OK);
    lab_ok(ctx, bank_teller_obey_await(ctx, move, &out));
    are_stored(7, 8);
}

static teff_err tells_silo(teff_ctx *turn, bank_balance *none, const bank_act *in, bank_number *out)
{
    out->n = turn->node->id.silo;
    return TEFF_OK;
}

static void find_narrow_on_silo_0(char key[32])
{
    bank_number *out = NULL;
    for (int i = 0; !out || out->n != l->silos[0]->node.id.silo; i++) {
        snprintf(key, 32, "narrow %d", i);
        lab_ok(ctx, bank_narrow_obey(ctx, key, RUN(tells_silo), &out));
    }
}

static void find_vault_on_silo_0(char key[32])
{
    bank_number *out = NULL;
    for (int i = 0; !out || out->n != l->silos[0]->node.id.silo; i++) {
        snprintf(key, 32, "vault %d", i);
        lab_ok(ctx, bank_vault_plain(ctx, key, RUN(tells_silo), &out));
    }
}

/* Begins again until it runs on silo 1. There it changes a vault, and fails without an ABORT. */
static teff_err moves_to_silo_1_and_fails(teff_ctx *turn, bank_balance *none, const bank_act *in,
                                          bank_number *out)
{
    if (turn->node->id.silo != l->silos[1]->node.id.silo) {
        teff_deactivate(turn);
        return TEFF_E_ABORTED;
    }
    teff_err err = call(turn, in->to, adds, 1, NULL);
    bank.mute = 1;
    return err ? err : TEFF_E_USER(1);
}

/* A lock ends soon after the silo that ran the root has gone, even if the transaction had begun on
 * another one. */
static void test_the_silo_of_a_root_that_has_moved_leaves(void **state)
{
    char root[32], vault[32];
    teff_call look;
    bank_number *out;
    teff_call_options opt = {.size = sizeof opt, .timeout_ms = 15000};
    find_narrow_on_silo_0(root);
    find_vault_on_silo_0(vault);
    lab_fails(ctx, bank_narrow_obey(ctx, root, ACT(moves_to_silo_1_and_fails, .to = vault), &out),
              TEFF_E_USER(1));
    assert_int_equal(bank.mute, 0);
    assert_int_equal(lab_remove(l, 1), TEFF_OK);
    lab_ok(ctx, bank_vault_look_async(ctx, vault, &opt, &look));
    lab_ok(ctx, bank_vault_look_await(ctx, look, &out));
    assert_int_equal(out->n, 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        EACH(test_other_calls_wait),
        EACH(test_no_younger_request_waits_for_the_next_owner),
        EACH(test_a_plain_call_does_not_wait_for_an_older_transaction),
        EACH(test_what_a_plain_call_calls_does_not_wait_for_an_older_transaction),
        EACH(test_a_waiting_plain_call_does_not_wait_for_an_older_transaction),
        EACH(test_a_full_queue_takes_the_end),
        EACH(test_what_would_wait_for_itself_fails),
        EACH(test_a_turn_without_memory_changes_nothing),
        EACH(test_an_activation_that_ends_waits_for_the_transaction),
        EACH(test_a_batch_has_a_limit),
        EACH(test_a_silent_root_that_has_written),
        EACH(test_a_silent_root_that_has_not),
        EACH(test_a_root_without_memory),
        cmocka_unit_test_setup_teardown(test_an_older_transaction_ends_a_lock_that_was_left,
                                        bank_setup_one, bank_teardown),
        cmocka_unit_test_setup_teardown(test_a_silo_leaves_in_the_middle, bank_setup_two,
                                        bank_teardown),
        cmocka_unit_test_setup_teardown(test_the_silo_of_a_root_that_has_moved_leaves,
                                        bank_setup_two, bank_teardown),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
