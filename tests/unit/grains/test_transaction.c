/* test_transaction.c - transactions: all states are written or none, nobody sees the middle, none
 * waits for ever. Walks the table of activation/lock.h on one silo, between two, from a client.
 * Way:     calls -> turns -> [__wrap_teffi_store_submit, __wrap_teffi_participants_tell] */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "activation/participants.h"
#include "activation/state.h"
#include "activation/turn.h"
#include "bank.teff.h"
#include "call/wait.h"
#include "lab.h"
#include "node/ask.h"

typedef void tell_fn(teffi_grains *grains, const Teff__Transaction__Participants *all,
                     const teffi_transaction *transaction, teffi_step step);
typedef teff_err script(teff_ctx *turn, bank_balance *state, const bank_act *in, bank_number *out);

#define RUN(fn) bank_act(.script = (uintptr_t)(fn))
#define ACT(fn, ...) bank_act(.script = (uintptr_t)(fn), __VA_ARGS__)

typedef enum fault {
    NONE,
    FAILS,           /* nothing is written */
    UNKNOWN_BEFORE,  /* nothing is written, and that is not known */
    UNKNOWN_WRITTEN, /* it is written, and that is not known */
} fault;

static _Atomic fault next_batch;       /* of a transaction: more than one state */
static _Atomic int batches, most_rows; /* of transactions that reached the store */
static _Atomic int mute;               /* so many ends of transactions are not told */
static _Atomic int held;
static _Atomic bool gate;

static lab *l;
static teff_ctx *ctx; /* the caller's: a silo's or a client's */

/* ---- the store's door, and the root's mouth ---- */

typedef struct hidden {
    teffi_store_op op, *own;
} hidden;

void __real_teffi_store_submit(teffi_store *store, teffi_store_op *op);
void __wrap_teffi_store_submit(teffi_store *store, teffi_store_op *op);

static void end_with(teffi_store_op *op, teff_err err)
{
    op->err = err;
    strcpy(op->text, "as the test says");
    op->done(op);
}

static void hide_outcome(teffi_store_op *op)
{
    hidden *h = (hidden *)(void *)op;
    teffi_store_op *own = h->own;
    free(h);
    end_with(own, TEFF_E_UNKNOWN);
}

static int count_states(const teffi_store_op *op)
{
    int n = 0;
    for (size_t i = 0; op->kind == TEFFI_STORE_BATCH && i < op->n_rows; i++)
        n += strcmp(op->rows[i].table, "state") == 0;
    return n;
}

void __wrap_teffi_store_submit(teffi_store *store, teffi_store_op *op)
{
    int n = count_states(op);
    fault now = n > 1 ? atomic_exchange(&next_batch, NONE) : NONE;
    batches += n > 1 && (now == NONE || now == UNKNOWN_WRITTEN);
    if (n > most_rows)
        most_rows = n;
    if (now == FAILS || now == UNKNOWN_BEFORE) {
        end_with(op, now == FAILS ? TEFF_E_IO : TEFF_E_UNKNOWN);
    } else if (now == UNKNOWN_WRITTEN) {
        hidden *h = malloc(sizeof *h);
        *h = (hidden){*op, op};
        h->op.done = hide_outcome;
        __real_teffi_store_submit(store, &h->op);
    } else {
        __real_teffi_store_submit(store, op);
    }
}

tell_fn __real_teffi_participants_tell, __wrap_teffi_participants_tell;

void __wrap_teffi_participants_tell(teffi_grains *grains,
                                    const Teff__Transaction__Participants *all,
                                    const teffi_transaction *transaction, teffi_step step)
{
    if (mute > 0)
        mute--;
    else
        __real_teffi_participants_tell(grains, all, transaction, step);
}

/* ---- grains ---- */

static teff_err vault_obey(bank_vault *self, const bank_act *in, bank_number *out)
{
    return ((script *)(uintptr_t)in->script)(self->ctx, self->state, in, out);
}

static teff_err vault_nothing(bank_vault *self, const bank_act *in)
{
    bank_number out = BANK__NUMBER__INIT;
    return vault_obey(self, in, &out);
}

static teff_err vault_look(bank_vault *self, bank_number *out)
{
    out->n = self->state->n;
    return TEFF_OK;
}

static teff_err teller_obey(bank_teller *self, const bank_act *in, bank_number *out)
{
    return ((script *)(uintptr_t)in->script)(self->ctx, NULL, in, out);
}

static const bank_vault_methods vault = {
    .obey = vault_obey, .nothing = vault_nothing, .look = vault_look, .plain = vault_obey};
static const bank_teller_methods teller = {.obey = teller_obey};

static void host(teff_silo *silo)
{
    assert_int_equal(teff_silo_host(silo, bank_vault_type(&vault, NULL)), TEFF_OK);
    assert_int_equal(teff_silo_host(silo, bank_teller_type(&teller, NULL)), TEFF_OK);
}

/* ---- scripts ---- */

/* Adds n and saves. */
static teff_err adds(teff_ctx *turn, bank_balance *state, const bank_act *in, bank_number *out)
{
    out->n = state->n += in->n;
    return teff_state_save(turn);
}

static teff_err adds_without_saving(teff_ctx *turn, bank_balance *state, const bank_act *in,
                                    bank_number *out)
{
    out->n = state->n += in->n;
    return TEFF_OK;
}

/* A withdrawal must be covered. */
static teff_err adds_if_covered(teff_ctx *turn, bank_balance *state, const bank_act *in,
                                bank_number *out)
{
    teff_err err = adds(turn, state, in, out);
    return err || state->n >= 0 ? err : teff_fail(turn, TEFF_E_USER(1), "not covered");
}

static teff_err reads(teff_ctx *turn, bank_balance *state, const bank_act *in, bank_number *out)
{
    out->n = state->n;
    return TEFF_OK;
}

static teff_err clears(teff_ctx *turn, bank_balance *state, const bank_act *in, bank_number *out)
{
    return teff_state_clear(turn);
}

static void wait_for_gate(teff_ctx *turn)
{
    held++;
    while (!gate)
        teffi_ctx_sleep(turn, 1);
    held--;
}

static teff_err call(teff_ctx *turn, const char *to, script *fn, int64_t n, int64_t *result)
{
    bank_number *out;
    teff_err err = bank_vault_obey(turn, to, ACT(fn, .n = n), &out);
    if (!err && result)
        *result = out->n;
    return err;
}

/* The root of a transfer: takes n from its own balance, gives it to another. */
static teff_err pays(teff_ctx *turn, bank_balance *state, const bank_act *in, bank_number *out)
{
    state->n -= in->n;
    teff_err err = teff_state_save(turn);
    err = err ? err : call(turn, in->to, adds, in->n, &out->n);
    return err || state->n >= 0 ? err : teff_fail(turn, TEFF_E_USER(1), "not covered");
}

/* Splits "a b" at its space. */
static void split(teff_ctx *turn, const char *both, char **a, char **b)
{
    *a = teff_strdup(turn, both);
    *b = strchr(*a, ' ');
    *(*b)++ = '\0';
}

/* A teller moves n from a to b, whose names are in `to`. */
static teff_err moves(teff_ctx *turn, bank_balance *none, const bank_act *in, bank_number *out)
{
    char *a, *b;
    split(turn, in->to, &a, &b);
    teff_err err = call(turn, a, adds_if_covered, -in->n, NULL);
    return err ? err : call(turn, b, adds, in->n, &out->n);
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
        teff_ctx_forget(turn, mark);
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

/* Ignores that a call failed. */
static teff_err shrugs(teff_ctx *turn, bank_balance *none, const bank_act *in, bank_number *out)
{
    char *a, *b;
    split(turn, in->to, &a, &b);
    teff_err err = call(turn, b, adds, in->n, NULL);
    (void)!call(turn, a, adds_if_covered, -in->n, NULL);
    return err;
}

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

static teff_err uses_a_key(teff_ctx *turn, bank_balance *none, const bank_act *in, bank_number *out)
{
    teff_uuid id = {{1}};
    teff_call_options opt = {.size = sizeof opt, .once = &id};
    teff_call one;
    return bank_vault_obey_async(turn, in->to, ACT(adds, .n = 1), &opt, &one);
}

static teff_err moves_and_waits(teff_ctx *turn, bank_balance *none, const bank_act *in,
                                bank_number *out)
{
    teff_err err = moves(turn, none, in, out);
    wait_for_gate(turn);
    return err;
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

static teff_err quits(teff_ctx *turn, bank_balance *state, const bank_act *in, bank_number *out)
{
    teff_deactivate(turn);
    return TEFF_OK;
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

/* ---- the bank ---- */

static teff_err ask_teller(script *fn, int64_t n, const char *to, int64_t *result)
{
    bank_number *out;
    teff_err err =
        bank_teller_obey(ctx, "teller", ACT(fn, .n = n, .to = (char *)(uintptr_t)to), &out);
    if (!err && result)
        *result = out->n;
    return err;
}

static teff_err ask_vault(const char *key, script *fn, int64_t n, const char *to)
{
    bank_number *out;
    return bank_vault_obey(ctx, key, ACT(fn, .n = n, .to = (char *)(uintptr_t)to), &out);
}

static int64_t balance(const char *key)
{
    bank_number *out;
    lab_ok(ctx, bank_vault_look(ctx, key, &out));
    return out->n;
}

static void balances_are(int64_t a, int64_t b)
{
    assert_int_equal(balance("a"), a);
    assert_int_equal(balance("b"), b);
}

/* What the next activations find in the store. */
static void reload_both(void)
{
    bank_number *out;
    lab_ok(ctx, bank_vault_plain(ctx, "a", RUN(quits), &out));
    lab_ok(ctx, bank_vault_plain(ctx, "b", RUN(quits), &out));
}

static void are_stored(int64_t a, int64_t b)
{
    balances_are(a, b);
    reload_both();
    balances_are(a, b);
}

static void begin_with(int64_t a, int64_t b)
{
    bank_number *out;
    lab_ok(ctx, bank_vault_plain(ctx, "a", ACT(adds, .n = a), &out));
    lab_ok(ctx, bank_vault_plain(ctx, "b", ACT(adds, .n = b), &out));
}

/* ---- each on one silo, between two, and from a client ---- */

static teff_client *client;

static int open_bank(int silos, bool from_client)
{
    next_batch = NONE;
    batches = most_rows = mute = held = 0;
    gate = false;
    l = silos > 1 ? lab_open_more(silos, host) : lab_open_more(1, host);
    client = from_client ? lab_client(l, (int[]){0, -1}) : NULL;
    ctx = client ? teff_client_ctx(client) : l->ctx[0];
    return 0;
}

static int setup_one(void **state)
{
    return open_bank(1, false);
}

static int setup_two(void **state)
{
    return open_bank(2, false);
}

static int setup_client(void **state)
{
    return open_bank(2, true);
}

static int teardown(void **state)
{
    gate = true;
    if (client) {
        teff_ctx_free(ctx);
        teff_client_free(client);
    }
    lab_close(l);
    return 0;
}

static void test_all_states_are_written_in_one_batch(void **state)
{
    int64_t n;
    begin_with(10, 5);
    lab_ok(ctx, ask_teller(moves, 3, "a b", &n));
    assert_int_equal(n, 8);
    assert_int_equal(batches, 1);
    assert_int_equal(most_rows, 2);
    are_stored(7, 8);
    lab_ok(ctx, ask_vault("b", pays, 2, "a"));
    assert_int_equal(batches, 2);
    are_stored(9, 6);
}

static void test_an_error_rolls_all_back(void **state)
{
    begin_with(10, 5);
    lab_fails(ctx, ask_teller(moves, 11, "a b", NULL), TEFF_E_USER(1));
    assert_string_equal(teff_error(ctx), "not covered");
    lab_fails(ctx, ask_vault("a", pays, 11, "b"), TEFF_E_USER(1));
    are_stored(10, 5);
    assert_int_equal(batches, 0);
    lab_fails(ctx, ask_teller(shrugs, 11, "a b", NULL), TEFF_E_USER(1));
    assert_non_null(strstr(teff_error(ctx), "as a call in it failed: not covered"));
    are_stored(10, 5);
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

static void test_a_state_may_be_cleared(void **state)
{
    begin_with(10, 5);
    lab_ok(ctx, ask_vault("a", clears, 0, NULL));
    are_stored(0, 5);
    lab_ok(ctx, ask_vault("a", clears, 0, NULL));
    lab_ok(ctx, ask_vault("a", pays, 0, "b"));
    are_stored(0, 5);
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

static void test_other_calls_wait(void **state)
{
    teff_call move, look;
    bank_number *out;
    begin_with(10, 5);
    lab_ok(ctx, bank_teller_obey_async(ctx, "teller", ACT(moves_and_waits, .n = 3, .to = "a b"),
                                       NULL, &move));
    lab_until(held == 1);
    lab_ok(ctx, bank_vault_look_async(ctx, "a", NULL, &look));
    for (int i = 0; i < 20; i++)
        balance("bystander");
    assert_false(teff_call_ended(ctx, look));
    gate = true;
    lab_ok(ctx, bank_vault_look_await(ctx, look, &out));
    assert_int_equal(out->n, 7);
    lab_ok(ctx, bank_teller_obey_await(ctx, move, &out));
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
    next_batch = FAILS;
    lab_fails(ctx, ask_teller(moves, 3, "a b", NULL), TEFF_E_IO);
    are_stored(10, 5);
    next_batch = UNKNOWN_BEFORE;
    lab_fails(ctx, ask_teller(moves, 3, "a b", NULL), TEFF_E_IO);
    are_stored(10, 5);
    next_batch = FAILS;
    lab_fails(ctx, ask_vault("a", pays, 3, "b"), TEFF_E_IO);
    are_stored(10, 5);
    next_batch = UNKNOWN_WRITTEN;
    lab_ok(ctx, ask_teller(moves, 3, "a b", NULL));
    are_stored(7, 8);
    next_batch = UNKNOWN_WRITTEN;
    lab_ok(ctx, ask_vault("a", pays, 3, "b"));
    are_stored(4, 11);
}

/* Another writer changes the row of a, as another activation would. */
static void write_row_of_a(int64_t n)
{
    teff_ctx *side = l->ctx[0];
    bank_balance b = BANK__BALANCE__INIT;
    uint8_t packed[32];
    b.n = n;
    teffi_row from = {.table = "state"};
    teffi_store_op scan = {
        .kind = TEFFI_STORE_SCAN, .rows = &from, .n_rows = 1, .limit = 100, .arena = &side->arena};
    lab_ok(side, teffi_ctx_store(side, &scan));
    for (size_t i = 0; i < scan.n_found; i++) {
        teffi_row *row = &scan.rows[i];
        if (row->key.len < 1 || ((const char *)row->key.data)[row->key.len - 1] != 'a')
            continue;
        row->value = (teffi_bytes){packed, protobuf_c_message_pack(&b.base, packed)};
        teffi_store_op write = {
            .kind = TEFFI_STORE_WRITE, .rows = row, .n_rows = 1, .arena = &side->arena};
        lab_ok(side, teffi_ctx_store(side, &write));
    }
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
    next_batch = FAILS;
    id = (teff_uuid){{9}};
    opt.once = &id;
    lab_ok(ctx, bank_vault_obey_async(ctx, "a", ACT(pays, .n = 5, .to = "b"), &opt, &one));
    lab_fails(ctx, bank_vault_obey_await(ctx, one, &out), TEFF_E_IO);
    for (int i = 0; i < 2; i++) {
        lab_ok(ctx, bank_vault_obey_async(ctx, "a", ACT(pays, .n = 5, .to = "b"), &opt, &one));
        lab_ok(ctx, bank_vault_obey_await(ctx, one, &out));
        are_stored(10, 5);
    }
    lab_ok(ctx, bank_teller_obey_async(ctx, "t", ACT(moves, .n = 5, .to = "a b"), &opt, &one));
    lab_fails(ctx, bank_teller_obey_await(ctx, one, &out), TEFF_E_INVALID);
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

static teff_err move_soon(script *fn, int64_t n)
{
    teff_call_options opt = {.size = sizeof opt, .timeout_ms = 300};
    teff_call one;
    bank_number *out;
    teff_err err = bank_teller_obey_async(ctx, "teller", ACT(fn, .n = n, .to = "a b"), &opt, &one);
    return err ? err : bank_teller_obey_await(ctx, one, &out);
}

static void test_a_silent_root_that_has_written(void **state)
{
    begin_with(10, 5);
    mute = 1;
    lab_ok(ctx, move_soon(moves, 3));
    are_stored(7, 8);
}

static void test_a_silent_root_that_has_not(void **state)
{
    begin_with(10, 5);
    mute = 1;
    lab_fails(ctx, move_soon(moves, 11), TEFF_E_USER(1));
    are_stored(10, 5);
    next_batch = FAILS;
    mute = 1;
    lab_fails(ctx, move_soon(moves, 3), TEFF_E_IO);
    are_stored(10, 5);
}

static teff_err pay_soon(script *fn)
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
    lab_until(held == 1);
    gate = true;
    assert_int_equal(lab_remove(l, 1), TEFF_OK);
    lab_ok(ctx, bank_teller_obey_await(ctx, move, &out));
    are_stored(7, 8);
}

#define EACH(fn)                                                                                   \
    cmocka_unit_test_setup_teardown(fn, setup_one, teardown),                                      \
        cmocka_unit_test_setup_teardown(fn, setup_two, teardown),                                  \
        cmocka_unit_test_setup_teardown(fn, setup_client, teardown)

int main(void)
{
    const struct CMUnitTest tests[] = {
        EACH(test_all_states_are_written_in_one_batch),
        EACH(test_an_error_rolls_all_back),
        EACH(test_calls_of_all_kinds_take_part),
        EACH(test_a_state_may_be_cleared),
        EACH(test_only_what_was_saved_is_written),
        EACH(test_other_calls_wait),
        EACH(test_what_would_wait_for_itself_fails),
        EACH(test_opposite_transfers_end),
        EACH(test_a_batch_that_fails_changes_nothing),
        EACH(test_a_row_that_has_changed_is_read_again),
        EACH(test_a_key_counts_once),
        EACH(test_a_turn_without_memory_changes_nothing),
        EACH(test_an_activation_that_ends_waits_for_the_transaction),
        EACH(test_a_batch_has_a_limit),
        EACH(test_a_silent_root_that_has_written),
        EACH(test_a_silent_root_that_has_not),
        EACH(test_a_root_without_memory),
        cmocka_unit_test_setup_teardown(test_a_silo_leaves_in_the_middle, setup_two, teardown),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
