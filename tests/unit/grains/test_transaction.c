/* test_transaction.c - transactions: all states are written or none, whatever fails; each on one
 * silo, between two, and from a client. */
#include <stdio.h>
#include <string.h>
#include "activation/activation.h"
#include "activation/participants.h"
#include "bank.h"
#include "call/call.h"
#include "node/ask.h"

static teff_err adds_without_saving(teff_ctx *turn, bank_balance *state, const bank_act *in,
                                    bank_number *out)
{
    out->n = state->n += in->n;
    return TEFF_OK;
}

static teff_err clears(teff_ctx *turn, bank_balance *state, const bank_act *in, bank_number *out)
{
    return teff_state_clear(turn);
}

/* Makes the state as large as it may be. */
static teff_err grows(teff_ctx *turn, bank_balance *state, const bank_act *in, bank_number *out)
{
    enum { PAD = TEFF_STATE_MAX - 5 }; /* without its tag and its length */
    state->n = 0;
    state->pad = (ProtobufCBinaryData){PAD, teff_state_alloc(turn, PAD)};
    return teff_state_save(turn);
}

/* The same, with both calls at once, and without awaiting them. */
static teff_err moves_at_once(teff_ctx *turn, bank_balance *none, const bank_act *in,
                              bank_number *out)
{
    teff_call one, two;
    char *a, *b;
    split(turn, in->to, &a, &b);
    teff_err err = bank_vault_obey_async(turn, a, ACT(adds, .n = -in->n), NULL, &one);
    return err ? err : bank_vault_nothing_async(turn, b, ACT(adds, .n = in->n), NULL, &two);
}

static teff_err moves_and_drops(teff_ctx *turn, bank_balance *none, const bank_act *in,
                                bank_number *out)
{
    teff_call one;
    char *a, *b;
    split(turn, in->to, &a, &b);
    teff_err err = bank_vault_obey_async(turn, b, ACT(adds, .n = in->n), NULL, &one);
    teff_drop(turn, &one);
    teff_mark mark = teff_ctx_mark(turn);
    for (int i = 0; i < 2 && !err; i++) {
        err = bank_vault_obey_async(turn, i ? a : b, ACT(adds, .n = i ? -2 * in->n : in->n), NULL,
                                    &one);
        teff_ctx_rewind(turn, mark);
    }
    return err;
}

/* Gives both n each, in two calls at once to the first, and returns the sum. */
static teff_err gives_twice(teff_ctx *turn, bank_balance *none, const bank_act *in,
                            bank_number *out)
{
    teff_call calls[2];
    for (int i = 0; i < 2; i++) {
        teff_err err = bank_vault_obey_async(turn, in->to, ACT(adds, .n = in->n), NULL, &calls[i]);
        if (err)
            return err;
    }
    return teff_await_all(turn, calls, 2);
}

/* The one-way comes to a grain that the transaction has locked. */
static teff_err tells(teff_ctx *turn, bank_balance *none, const bank_act *in, bank_number *out)
{
    teff_err err = call(turn, in->to, adds, in->n, &out->n);
    return err ? err : bank_vault_tell(turn, in->to, ACT(adds, .n = 100));
}

static teff_err sums(teff_ctx *turn, bank_balance *none, const bank_act *in, bank_number *out)
{
    char *a, *b;
    int64_t one = 0, two = 0;
    split(turn, in->to, &a, &b);
    teff_err err = call(turn, a, reads, 0, &one);
    err = err ? err : call(turn, b, reads, 0, &two);
    out->n = one + two;
    return err;
}

/* The transfer's second half is a transfer of a teller's. */
static teff_err passes_on(teff_ctx *turn, bank_balance *none, const bank_act *in, bank_number *out)
{
    bank_number *moved;
    teff_err err = bank_teller_obey(turn, "other", ACT(moves, .n = in->n, .to = in->to), &moved);
    out->n = err ? 0 : moved->n;
    return err;
}

/* A root that saves nothing of its own. */
static teff_err delegates(teff_ctx *turn, bank_balance *state, const bank_act *in, bank_number *out)
{
    return call(turn, in->to, adds, in->n, &out->n);
}

/* Two calls at once to the same grain, of which the first fails. */
static teff_err overdraws_beside(teff_ctx *turn, bank_balance *none, const bank_act *in,
                                 bank_number *out)
{
    teff_call calls[2];
    teff_err err =
        bank_vault_obey_async(turn, in->to, ACT(adds_if_covered, .n = -in->n), NULL, &calls[0]);
    err = err ? err : bank_vault_obey_async(turn, in->to, ACT(adds, .n = 1), NULL, &calls[1]);
    bank_number *got;
    return err ? err : bank_vault_obey_await(turn, calls[1], &got);
}

/* Ignores that a call failed. */
static teff_err shrugs(teff_ctx *turn, bank_balance *none, const bank_act *in, bank_number *out)
{
    char *a, *b;
    split(turn, in->to, &a, &b);
    teff_err err = call(turn, b, adds, in->n, NULL);
    (void)!call(turn, a, adds_if_covered, -in->n, NULL);
    return err;
}

static teff_err waits(teff_ctx *turn, bank_balance *state, const bank_act *in, bank_number *out)
{
    wait_for_gate(turn);
    return TEFF_OK;
}

/* A call ends without a response, and is dropped before it was awaited. */
static teff_err drops_a_cancelled_call(teff_ctx *turn, bank_balance *none, const bank_act *in,
                                       bank_number *out)
{
    teff_cancel *cancel = teff_cancel_new();
    teff_call_options opt = {.size = sizeof opt, .cancel = cancel};
    teff_call one;
    teff_err err = bank_vault_obey_async(turn, "a", RUN(waits), &opt, &one);
    teff_cancel_fire(cancel);
    while (!err && !teff_call_ended(turn, one))
        teff_sleep(turn, 1);
    teff_drop(turn, &one);
    teff_cancel_free(cancel);
    return err;
}

/* Calls vault a in the transaction, and at once outside of it, before the first has locked it. */
static teff_err calls_plainly(teff_ctx *turn, bank_balance *none, const bank_act *in,
                              bank_number *out)
{
    teff_call joins, plain;
    bank_number *got;
    teff_err err = bank_vault_obey_async(turn, "a", ACT(adds, .n = 1), NULL, &joins);
    err = err ? err : bank_vault_plain_async(turn, "a", ACT(adds, .n = 1), NULL, &plain);
    wait_for_gate(turn);
    err = err ? err : bank_vault_plain_await(turn, plain, &got);
    out->n = err;
    return err == TEFF_E_INVALID ? TEFF_OK : err;
}

/* Ends in its middle, as it takes more memory than a turn may. */
static teff_err exhausts(teff_ctx *turn, bank_balance *none, const bank_act *in, bank_number *out)
{
    teff_err err = call(turn, "a", adds, 1, NULL);
    (void)teff_alloc(turn, TEFF_TURN_MEMORY_MAX + 1);
    return err;
}

/* Its turn ends when its batch was written (DOOMED_WRITTEN). */
static teff_err moves_and_is_doomed(teff_ctx *turn, bank_balance *none, const bank_act *in,
                                    bank_number *out)
{
    bank.doomed = turn;
    return moves(turn, none, in, out);
}

/* out: the row of vault a; etag 0: there is none. */
static teffi_row find_row_of_a(void)
{
    teff_ctx *side = l->ctx[0];
    teffi_row from = {.table = "state"};
    teffi_store_op scan = {
        .kind = TEFFI_STORE_SCAN, .rows = &from, .n_rows = 1, .limit = 100, .arena = &side->arena};
    lab_ok(side, teffi_ctx_run_store_op(side, &scan));
    for (size_t i = 0; i < scan.n_found; i++)
        if (((const char *)scan.rows[i].key.data)[scan.rows[i].key.len - 1] == 'a')
            return scan.rows[i];
    return (teffi_row){0};
}

/* Another writer changes the row of a, as another activation would. */
static void write_row_of_a(int64_t n)
{
    teff_ctx *side = l->ctx[0];
    bank_balance b = BANK__BALANCE__INIT;
    uint8_t packed[32];
    teffi_row row = find_row_of_a();
    b.n = n;
    row.value = (teffi_bytes){packed, protobuf_c_message_pack(&b.base, packed)};
    teffi_store_op write = {
        .kind = TEFFI_STORE_WRITE, .rows = &row, .n_rows = 1, .arena = &side->arena};
    lab_ok(side, teffi_ctx_run_store_op(side, &write));
}

static void test_all_states_are_written_in_one_batch(void **state)
{
    int64_t n;
    begin_with(10, 5);
    lab_ok(ctx, ask_teller(moves, 3, "a b", &n));
    assert_int_equal(n, 8);
    assert_int_equal(bank.batches, 1);
    assert_int_equal(bank.most_rows, 2);
    are_stored(7, 8);
    lab_ok(ctx, ask_vault("b", pays, 2, "a"));
    assert_int_equal(bank.batches, 2);
    are_stored(9, 6);
}

/* How long the vault counts as used from now on. */
static teff_err reads_delay(teff_ctx *turn, bank_balance *state, const bank_act *in,
                            bank_number *out)
{
    const teffi_activation *act = teffi_activation_of_ctx(turn);
    out->n = -teffi_activation_age_ms(act, (uint32_t)act->grains->coarse_ms);
    return TEFF_OK;
}

static teff_err delays_and_fails(teff_ctx *turn, bank_balance *state, const bank_act *in,
                                 bank_number *out)
{
    teff_delay_deactivation(turn, in->n);
    return TEFF_E_USER(1);
}

/* Only states are. */
static void test_a_delay_is_not_rolled_back(void **state)
{
    enum { HOUR_MS = 3600000 };
    bank_number *out;
    lab_ok(ctx, bank_vault_plain(ctx, "a", RUN(reads_delay), &out));
    assert_true(out->n <= 0);
    lab_fails(ctx, ask_vault("a", delays_and_fails, HOUR_MS, NULL), TEFF_E_USER(1));
    lab_ok(ctx, bank_vault_plain(ctx, "a", RUN(reads_delay), &out));
    assert_in_range(out->n, HOUR_MS / 2, 2 * HOUR_MS); /* the coarse clock is late */
}

static void test_an_error_rolls_all_back(void **state)
{
    begin_with(10, 5);
    lab_fails(ctx, ask_teller(moves, 11, "a b", NULL), TEFF_E_USER(1));
    assert_string_equal(teff_error(ctx), "not covered");
    lab_fails(ctx, ask_vault("a", pays, 11, "b"), TEFF_E_USER(1));
    are_stored(10, 5);
    assert_int_equal(bank.batches, 0);
    lab_fails(ctx, ask_teller(overdraws_beside, 11, "a", NULL), TEFF_E_USER(1));
    lab_fails(ctx, ask_teller(shrugs, 11, "a b", NULL), TEFF_E_USER(1));
    assert_non_null(strstr(teff_error(ctx), "as a call in it failed: not covered"));
    are_stored(10, 5);
}

static void test_the_error_of_a_dropped_call_is_the_root_s(void **state)
{
    begin_with(10, 5);
    lab_fails(ctx, ask_teller(drops_a_cancelled_call, 0, NULL, NULL), TEFF_E_CANCELLED);
    assert_non_null(strstr(teff_error(ctx), "as a call in it failed: cancelled by"));
    bank.gate = true;
}

static void test_calls_of_all_kinds_take_part(void **state)
{
    int64_t n;
    begin_with(10, 5);
    lab_ok(ctx, ask_teller(moves_at_once, 1, "a b", NULL));
    balances_are(9, 6);
    lab_ok(ctx, ask_teller(passes_on, 1, "a b", &n));
    assert_int_equal(n, 7);
    lab_ok(ctx, ask_teller(gives_twice, 4, "a", NULL));
    are_stored(16, 7);
    lab_ok(ctx, ask_teller(sums, 0, "a b", &n));
    assert_int_equal(n, 23);
    lab_ok(ctx, ask_teller(moves_and_drops, 1, "a b", NULL));
    are_stored(14, 9);
}

static void test_a_one_way_runs_when_the_transaction_has_ended(void **state)
{
    begin_with(10, 5);
    lab_ok(ctx, ask_teller(tells, 1, "a", NULL));
    lab_until(balance("a") == 111);
    are_stored(111, 5);
}

static void test_a_plain_call_does_not_wait_for_its_own_transaction(void **state)
{
    teff_call first, root;
    bank_number *out;
    begin_with(10, 5);
    lab_ok(ctx, bank_vault_plain_async(ctx, "a", RUN(waits), NULL, &first));
    lab_until(bank.held == 1);
    lab_ok(ctx, bank_teller_obey_async(ctx, "teller", RUN(calls_plainly), NULL, &root));
    lab_until(bank.held == 2);
    bank.gate = true;
    lab_ok(ctx, bank_vault_plain_await(ctx, first, &out));
    lab_ok(ctx, bank_teller_obey_await(ctx, root, &out));
    assert_true(out->n == TEFF_E_INVALID || out->n == TEFF_OK); /* OK: it came first */
    int64_t n = out->n == TEFF_OK ? 12 : 11;
    are_stored(n, 5);
}

/* The caller gets the error, and nothing of the participants. Those roll back at once: they are
 * called here before the root's deadline. */
static void test_a_root_that_ends_in_its_middle(void **state)
{
    teff_call root;
    bank_number *out;
    begin_with(10, 5);
    lab_ok(ctx, bank_teller_obey_async(ctx, "teller", RUN(exhausts), NULL, &root));
    lab_fails(ctx, bank_teller_obey_await(ctx, root, &out), TEFF_E_NOMEM);
    const teffi_call *call = (const teffi_call *)root.impl;
    assert_non_null(call->response);
    assert_null(call->response->transaction);
    are_stored(10, 5);
}

/* The root's turn ends after the batch was submitted: the participants must not roll back. */
static void test_a_root_that_ends_while_the_batch_is_written(void **state)
{
    begin_with(10, 5);
    bank.next_batch = DOOMED_WRITTEN;
    lab_fails(ctx, ask_teller(moves_and_is_doomed, 3, "a b", NULL), TEFF_E_UNKNOWN);
    bank.doomed = NULL;
    are_stored(7, 8);
}

static void test_a_state_may_be_cleared(void **state)
{
    begin_with(10, 5);
    lab_ok(ctx, ask_vault("a", clears, 0, NULL));
    assert_int_equal(find_row_of_a().etag, 0);
    are_stored(0, 5);
    lab_ok(ctx, ask_vault("a", clears, 0, NULL));
    lab_ok(ctx, ask_vault("a", pays, 0, "b"));
    are_stored(0, 5);
}

static void test_the_largest_state_is_written(void **state)
{
    lab_ok(ctx, ask_vault("a", grows, 0, NULL));
    assert_int_equal(find_row_of_a().value.len, TEFF_STATE_MAX + 24);
    are_stored(0, 0);
}

static void test_only_what_was_saved_is_written(void **state)
{
    begin_with(10, 5);
    lab_ok(ctx, ask_vault("a", adds_without_saving, 3, NULL));
    assert_int_equal(balance("a"), 13);
    lab_fails(ctx, ask_vault("a", adds_if_covered, -20, NULL), TEFF_E_USER(1));
    assert_int_equal(balance("a"), 13);
    assert_int_equal(balance("b"), 5);
}

static void test_opposite_transfers_end(void **state)
{
    enum { CALLS = 40 };
    teff_call calls[CALLS];
    int64_t sum;
    begin_with(1000, 1000);
    for (int i = 0; i < CALLS; i++) {
        const char *from = i % 2 ? "a" : "b", *to = i % 2 ? "b" : "a";
        if (i % 4 == 3)
            lab_ok(ctx, bank_teller_obey_async(ctx, i % 8 == 3 ? "one" : "two",
                                               ACT(sums, .to = "a b"), NULL, &calls[i]));
        else
            lab_ok(ctx, bank_vault_obey_async(ctx, from,
                                              ACT(pays, .n = 1 + i, .to = (char *)(uintptr_t)to),
                                              NULL, &calls[i]));
    }
    for (int i = 0; i < CALLS; i++) {
        bank_number *out;
        lab_ok(ctx, i % 4 == 3 ? bank_teller_obey_await(ctx, calls[i], &out)
                               : bank_vault_obey_await(ctx, calls[i], &out));
        if (i % 4 == 3)
            assert_int_equal(out->n, 2000);
    }
    lab_ok(ctx, ask_teller(sums, 0, "a b", &sum));
    assert_int_equal(sum, 2000);
    sum = balance("a");
    are_stored(sum, 2000 - sum);
}

static void test_a_batch_that_fails_changes_nothing(void **state)
{
    begin_with(10, 5);
    bank.next_batch = FAILS;
    lab_fails(ctx, ask_teller(moves, 3, "a b", NULL), TEFF_E_IO);
    are_stored(10, 5);
    bank.next_batch = UNKNOWN_BEFORE;
    lab_fails(ctx, ask_teller(moves, 3, "a b", NULL), TEFF_E_IO);
    are_stored(10, 5);
    bank.next_batch = FAILS;
    lab_fails(ctx, ask_vault("a", pays, 3, "b"), TEFF_E_IO);
    are_stored(10, 5);
    bank.next_batch = UNKNOWN_WRITTEN;
    lab_ok(ctx, ask_teller(moves, 3, "a b", NULL));
    are_stored(7, 8);
    bank.next_batch = UNKNOWN_WRITTEN;
    lab_ok(ctx, ask_vault("a", pays, 3, "b"));
    are_stored(4, 11);
}

/* Others have written what the transaction would have: it is not taken for its own batch. */
static void test_the_same_of_another_is_not_its_own(void **state)
{
    begin_with(10, 5);
    bank.next_batch = UNKNOWN_OTHER;
    lab_fails(ctx, ask_teller(moves, 3, "a b", NULL), TEFF_E_UNKNOWN);
    balances_are(7, 8);
    assert_int_equal(find_row_of_a().value.len, 2);
    lab_ok(ctx, ask_teller(moves, 3, "a b", NULL));
    assert_int_equal(find_row_of_a().value.len, 2 + 24);
    are_stored(4, 11);
    bank_number *out;
    lab_ok(ctx, bank_vault_plain(ctx, "a", ACT(adds, .n = 1), &out));
    assert_int_equal(find_row_of_a().value.len, 2);
}

static void test_a_row_that_has_changed_is_read_again(void **state)
{
    int64_t n;
    begin_with(10, 5);
    write_row_of_a(100);
    lab_ok(ctx, ask_teller(moves, 3, "a b", NULL));
    are_stored(97, 8);
    write_row_of_a(200);
    lab_ok(ctx, ask_teller(sums, 0, "a b", &n)); /* reads are compared, too */
    assert_int_equal(n, 208);
    write_row_of_a(300);
    lab_ok(ctx, ask_vault("a", pays, 1, "b"));
    are_stored(299, 9);
    write_row_of_a(400);
    bank.next_batch = UNKNOWN_BEFORE; /* nothing shows that the reads were compared */
    lab_ok(ctx, ask_teller(sums, 0, "a b", &n));
    assert_int_equal(n, 409);
}

/* Only the first attempt ends the activation; the second writes. */
static void test_a_grain_that_is_read_again_ends_without_the_changes(void **state)
{
    begin_with(10, 5);
    write_row_of_a(100);
    lab_ok(ctx, ask_teller(moves, 3, "a b", NULL));
    assert_int_equal(bank.left_with, 10);
    write_row_of_a(200);
    lab_ok(ctx, ask_vault("a", pays, 1, "b"));
    assert_int_equal(bank.left_with, 97);
}

/* The root's batch is not written, and the participants do not hear of it. Then vault a reads its
 * row: another writer has changed it, or a conflict says that it may have been changed. In both
 * cases, on_deactivate sees what the store has. */
static void test_a_grain_of_unknown_outcome_ends_with_the_stored_state(void **state)
{
    teff_call_options opt = {.size = sizeof opt, .timeout_ms = 300};
    teff_call one;
    bank_number *out;
    begin_with(10, 5);
    for (int i = 0; i < 2; i++) {
        if (i == 0)
            write_row_of_a(100);
        bank.touch_conflicts = i == 1;
        bank.next_batch = FAILS;
        bank.mute = 1;
        lab_ok(ctx, bank_vault_obey_async(ctx, "b", ACT(pays, .n = 3, .to = "a"), &opt, &one));
        lab_fails(ctx, bank_vault_obey_await(ctx, one, &out), TEFF_E_IO);
        balances_are(100, 5);
        assert_int_equal(bank.left_with, 100);
        are_stored(100, 5);
    }
}

/* A participant may be on a silo that has just joined: the silo of its caller knows it, and the
 * root's silo does not. */
static void test_a_silo_that_is_not_in_the_view_yet_is_told(void **state)
{
    Teff__Transaction__Participant one = TEFF__TRANSACTION__PARTICIPANT__INIT, *list[] = {&one};
    Teff__Transaction__Participants all = TEFF__TRANSACTION__PARTICIPANTS__INIT;
    const teffi_transaction transaction = {.age = 1, .root = l->silos[0]->node.id, .attempt = 1};
    one.silo = newcomer.silo;
    one.incarnation = newcomer.incarnation;
    one.key = (ProtobufCBinaryData){1, (uint8_t[]){'a'}};
    all.n_list = 1;
    all.list = list;
    teffi_participants_send_outcome(l->silos[0]->node.grains, &all, &transaction, TEFFI_STEP_ABORT);
    lab_until(bank.sent == 1);
    assert_int_equal(bank.refused, 1);
}

static void test_a_key_counts_once(void **state)
{
    teff_uuid id = {{7}}, other = {{8}};
    teff_call_options opt = {.size = sizeof opt, .once = &id};
    teff_call one;
    bank_number *out;
    begin_with(10, 5);
    for (int i = 0; i < 4; i++) {
        lab_ok(ctx, bank_vault_obey_async(ctx, "a", ACT(pays, .n = 3, .to = "b"), &opt, &one));
        lab_ok(ctx, bank_vault_obey_await(ctx, one, &out));
        assert_int_equal(out->n, 8);
        if (i == 1)
            reload_both();
    }
    balances_are(7, 8);
    opt.once = &other;
    for (int i = 0; i < 4; i++) {
        lab_ok(ctx, bank_vault_obey_async(ctx, "a", ACT(pays, .n = 8, .to = "b"), &opt, &one));
        lab_fails(ctx, bank_vault_obey_await(ctx, one, &out), TEFF_E_USER(1));
        assert_string_equal(teff_error(ctx), "not covered");
        if (i == 1) {
            reload_both();
            lab_ok(ctx, ask_vault("b", pays, 8, "a")); /* it would be covered now */
        }
    }
    balances_are(15, 0);
    bank.next_batch = FAILS;
    id = (teff_uuid){{9}};
    opt.once = &id;
    lab_ok(ctx, bank_vault_obey_async(ctx, "a", ACT(pays, .n = 5, .to = "b"), &opt, &one));
    lab_fails(ctx, bank_vault_obey_await(ctx, one, &out), TEFF_E_IO);
    for (int i = 0; i < 2; i++) {
        lab_ok(ctx, bank_vault_obey_async(ctx, "a", ACT(pays, .n = 5, .to = "b"), &opt, &one));
        lab_ok(ctx, bank_vault_obey_await(ctx, one, &out));
        are_stored(10, 5);
    }
    id = (teff_uuid){{10}};
    for (int i = 0; i < 2; i++) {
        lab_ok(ctx, bank_vault_obey_async(ctx, "a", ACT(delegates, .n = 1, .to = "b"), &opt, &one));
        lab_ok(ctx, bank_vault_obey_await(ctx, one, &out));
        assert_int_equal(out->n, 6);
    }
    are_stored(10, 6);
    lab_ok(ctx, bank_vault_obey_async(ctx, "a", ACT(delegates, .n = 1, .to = "b"), &opt, &one));
    lab_ok(ctx, bank_vault_obey_await(ctx, one, &out));
    are_stored(10, 6);
    lab_ok(ctx, bank_teller_obey_async(ctx, "t", ACT(moves, .n = 5, .to = "a b"), &opt, &one));
    lab_fails(ctx, bank_teller_obey_await(ctx, one, &out), TEFF_E_INVALID);
}

static teff_err spoils_its_roll_back(teff_ctx *turn, bank_balance *state, const bank_act *in,
                                     bank_number *out)
{
    teffi_lock *lock = teffi_lock_of(teffi_activation_of_ctx(turn));
    memset(lock->before, 0xff, lock->before_len); /* as if there were no memory to unpack it */
    state->n += in->n;
    teff_err err = teff_state_save(turn);
    return err ? err : teff_fail(turn, TEFF_E_USER(1), "no");
}

static void test_a_state_that_cannot_be_rolled_back_is_not_written(void **state)
{
    teff_uuid id = {{7}};
    teff_call_options opt = {.size = sizeof opt, .once = &id};
    teff_call one;
    bank_number *out;
    begin_with(10, 5);
    lab_ok(ctx, bank_vault_obey_async(ctx, "a", ACT(spoils_its_roll_back, .n = 100), &opt, &one));
    lab_fails(ctx, bank_vault_obey_await(ctx, one, &out), TEFF_E_NOMEM);
    are_stored(10, 5);
    lab_ok(ctx, bank_vault_obey_async(ctx, "a", ACT(pays, .n = 1, .to = "b"), &opt, &one));
    lab_ok(ctx, bank_vault_obey_await(ctx, one, &out)); /* no answer was kept */
    are_stored(9, 6);
}

/* The root's grain has no row yet. Its transaction is not written, and the answer to its key was
 * only in memory. */
static void test_what_was_not_written_has_no_answer(void **state)
{
    teff_uuid id = {{7}};
    teff_call_options opt = {.size = sizeof opt, .once = &id};
    teff_call one;
    bank_number *out;
    begin_with(10, 5);
    assert_int_equal(balance("new"), 0);
    bank.next_batch = UNKNOWN_BEFORE;
    bank.reads_fail = true;
    lab_ok(ctx, bank_vault_obey_async(ctx, "new", ACT(pays, .n = -3, .to = "b"), &opt, &one));
    lab_fails(ctx, bank_vault_obey_await(ctx, one, &out), TEFF_E_UNKNOWN);
    bank.reads_fail = false;
    lab_ok(ctx, bank_vault_plain(ctx, "new", RUN(quits), &out)); /* the next one reads the row */
    lab_ok(ctx, bank_vault_obey_async(ctx, "new", ACT(pays, .n = -3, .to = "b"), &opt, &one));
    lab_ok(ctx, bank_vault_obey_await(ctx, one, &out));
    assert_int_equal(balance("new"), 3);
    assert_int_equal(balance("b"), 2);
}

/* One grain was locked before its silo started again, the other one afterwards. The first one may
 * be active elsewhere by now, with the row as it is before the batch. */
static void test_a_silo_that_was_started_again_ends_the_attempt(void **state)
{
    enum { SILO = 77 };
    Teff__Transaction__Participant own = TEFF__TRANSACTION__PARTICIPANT__INIT, two[] = {own, own};
    Teff__Transaction__Participant *list[] = {&two[0], &two[1]};
    Teff__Transaction__Participants all = TEFF__TRANSACTION__PARTICIPANTS__INIT;
    const teffi_transaction transaction = {.age = 1, .root = ctx->node->id, .attempt = 1};
    teffi_lock lock = {.act = NULL};
    uint8_t keys[] = {'a', 'b'};
    if (!ctx->node->store) /* a client's */
        skip();
    for (uint32_t i = 0; i < 2; i++) {
        two[i].silo = SILO;
        two[i].incarnation = 1 + i;
        two[i].fence = 100 + i;
        two[i].row = (ProtobufCBinaryData){1, &keys[i]};
    }
    all.list = list;
    all.n_list = 2;
    ctx->transaction = &lock;
    lab_fails(ctx, teffi_participants_write_rows(ctx, &transaction, &own, &all), TEFF_E_ABORTED);
    assert_non_null(strstr(teff_error(ctx), "was started again"));
    assert_false(lock.submitted);
    two[1].fence = two[0].fence;
    lab_fails(ctx, teffi_participants_write_rows(ctx, &transaction, &own, &all), TEFF_E_ABORTED);
    assert_true(lock.submitted); /* the store has compared the fence */
    ctx->transaction = NULL;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        EACH(test_all_states_are_written_in_one_batch),
        EACH(test_an_error_rolls_all_back),
        EACH(test_a_delay_is_not_rolled_back),
        EACH(test_the_error_of_a_dropped_call_is_the_root_s),
        EACH(test_calls_of_all_kinds_take_part),
        EACH(test_a_one_way_runs_when_the_transaction_has_ended),
        EACH(test_a_plain_call_does_not_wait_for_its_own_transaction),
        EACH(test_a_root_that_ends_in_its_middle),
        EACH(test_a_root_that_ends_while_the_batch_is_written),
        EACH(test_a_state_may_be_cleared),
        EACH(test_the_largest_state_is_written),
        EACH(test_only_what_was_saved_is_written),
        EACH(test_opposite_transfers_end),
        EACH(test_a_batch_that_fails_changes_nothing),
        EACH(test_the_same_of_another_is_not_its_own),
        EACH(test_a_row_that_has_changed_is_read_again),
        EACH(test_a_grain_that_is_read_again_ends_without_the_changes),
        EACH(test_a_grain_of_unknown_outcome_ends_with_the_stored_state),
        EACH(test_a_silo_that_is_not_in_the_view_yet_is_told),
        EACH(test_a_key_counts_once),
        EACH(test_what_was_not_written_has_no_answer),
        EACH(test_a_state_that_cannot_be_rolled_back_is_not_written),
        EACH(test_a_silo_that_was_started_again_ends_the_attempt),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
