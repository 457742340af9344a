/* bank.c - the grains that run scripts in transactions, their silos, and what fails. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "activation/participants.h"
#include "activation/state.h"
#include "activation/turn.h"
#include "bank.h"
#include "call/wait.h"
#include "node/ask.h"

typedef void tell_fn(teffi_grains *grains, const Teff__Transaction__Participants *all,
                     const teffi_transaction *transaction, teffi_step step);

struct bank bank;
const teffi_node_id newcomer = {77, 1};

lab *l;
teff_ctx *ctx;

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
    if (bank.doomed)
        bank.doomed->doomed = TEFF_E_NOMEM;
    end_with(own, TEFF_E_UNKNOWN);
}

static int count_states(const teffi_store_op *op)
{
    int n = 0;
    for (size_t i = 0; op->kind == TEFFI_STORE_BATCH && i < op->n_rows; i++)
        n += strcmp(op->rows[i].table, "state") == 0;
    return n;
}

/* The values are what others would write. */
static void drop_marks(teffi_store_op *op)
{
    enum { MARK_BYTES = 24, ROWS = 8 };
    static teffi_row rows[ROWS];
    assert_true(op->n_rows <= ROWS);
    memcpy(rows, op->rows, op->n_rows * sizeof *rows);
    op->rows = rows;
    for (size_t i = 0; i < op->n_rows; i++)
        if (op->rows[i].value.len >= MARK_BYTES)
            op->rows[i].value.len -= MARK_BYTES;
}

void __wrap_teffi_store_submit(teffi_store *store, teffi_store_op *op)
{
    int n = count_states(op);
    fault now = n > 1 ? atomic_exchange(&bank.next_batch, NONE) : NONE;
    bank.batches += n > 1 && (now == NONE || now == UNKNOWN_WRITTEN || now == DOOMED_WRITTEN);
    if (n > bank.most_rows)
        bank.most_rows = n;
    if (n == 1 && atomic_exchange(&bank.touch_conflicts, false))
        end_with(op, TEFF_E_CONFLICT);
    else if (bank.reads_fail && op->kind == TEFFI_STORE_READ &&
             strcmp(op->rows[0].table, "state") == 0) {
        end_with(op, TEFF_E_IO);
    } else if (now == FAILS || now == UNKNOWN_BEFORE) {
        end_with(op, now == FAILS ? TEFF_E_IO : TEFF_E_UNKNOWN);
    } else if (now != NONE) {
        hidden *h = malloc(sizeof *h);
        *h = (hidden){*op, op};
        h->op.done = hide_outcome;
        if (now == UNKNOWN_OTHER)
            drop_marks(&h->op);
        __real_teffi_store_submit(store, &h->op);
    } else {
        __real_teffi_store_submit(store, op);
    }
}

tell_fn __real_teffi_participants_send_outcome, __wrap_teffi_participants_send_outcome;

void __wrap_teffi_participants_send_outcome(teffi_grains *grains,
                                            const Teff__Transaction__Participants *all,
                                            const teffi_transaction *transaction, teffi_step step)
{
    if (bank.mute > 0)
        bank.mute--;
    else
        __real_teffi_participants_send_outcome(grains, all, transaction, step);
}

/* ---- a silo that the view lacks ---- */

teff_err __real_teffi_node_send(teffi_node *node, teffi_node_id to, teffi_msg *msg);
teff_err __wrap_teffi_node_send(teffi_node *node, teffi_node_id to, teffi_msg *msg);
teff_err __real_teffi_membership_refresh(teff_ctx *refresher, uint64_t version);
teff_err __wrap_teffi_membership_refresh(teff_ctx *refresher, uint64_t version);

teff_err __wrap_teffi_node_send(teffi_node *node, teffi_node_id to, teffi_msg *msg)
{
    if (!teffi_node_equals(to, newcomer))
        return __real_teffi_node_send(node, to, msg);
    if (!bank.refreshed) {
        bank.refused++;
        return TEFF_E_CLOSED;
    }
    assert_true(teffi_msg_ends_transaction(msg));
    teffi_msg_free(msg);
    bank.sent++;
    return TEFF_OK;
}

teff_err __wrap_teffi_membership_refresh(teff_ctx *refresher, uint64_t version)
{
    teff_err err = __real_teffi_membership_refresh(refresher, version);
    bank.refreshed = bank.refused > 0;
    return err;
}

/* ---- grains ---- */

static teff_err vault_obey(bank_vault *self, const bank_act *in, bank_number *out)
{
    return ((bank_script *)(uintptr_t)in->script)(self->ctx, self->state, in, out);
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

static teff_err vault_end(bank_vault *self, teff_reason why)
{
    if (!strcmp(self->key, "a"))
        bank.left_with = self->state->n;
    return TEFF_OK;
}

static teff_err teller_obey(bank_teller *self, const bank_act *in, bank_number *out)
{
    return ((bank_script *)(uintptr_t)in->script)(self->ctx, NULL, in, out);
}

static const bank_vault_methods vault = {.obey = vault_obey,
                                         .nothing = vault_nothing,
                                         .look = vault_look,
                                         .plain = vault_obey,
                                         .tell = vault_nothing,
                                         .on_deactivate = vault_end};

static teff_err narrow_obey(bank_narrow *self, const bank_act *in, bank_number *out)
{
    return ((bank_script *)(uintptr_t)in->script)(self->ctx, NULL, in, out);
}

static teff_err narrow_look(bank_narrow *self, bank_number *out)
{
    return TEFF_OK;
}

static const bank_teller_methods teller = {.obey = teller_obey};
static const bank_narrow_methods narrow = {.obey = narrow_obey, .look = narrow_look};

static void host(teff_silo *silo)
{
    assert_int_equal(teff_silo_host(silo, bank_vault_type(&vault, NULL)), TEFF_OK);
    assert_int_equal(teff_silo_host(silo, bank_teller_type(&teller, NULL)), TEFF_OK);
    assert_int_equal(teff_silo_host(silo, bank_narrow_type(&narrow, NULL)), TEFF_OK);
}

/* ---- scripts ---- */

/* Adds n and saves. */
teff_err adds(teff_ctx *turn, bank_balance *state, const bank_act *in, bank_number *out)
{
    out->n = state->n += in->n;
    return teff_state_save(turn);
}

/* A withdrawal must be covered. */
teff_err adds_if_covered(teff_ctx *turn, bank_balance *state, const bank_act *in, bank_number *out)
{
    teff_err err = adds(turn, state, in, out);
    return err || state->n >= 0 ? err : teff_fail(turn, TEFF_E_USER(1), "not covered");
}

teff_err reads(teff_ctx *turn, bank_balance *state, const bank_act *in, bank_number *out)
{
    out->n = state->n;
    return TEFF_OK;
}

void wait_for_gate(teff_ctx *turn)
{
    bank.held++;
    while (!bank.gate)
        teffi_ctx_sleep(turn, 1);
    bank.held--;
}

teff_err call(teff_ctx *turn, const char *to, bank_script *fn, int64_t n, int64_t *result)
{
    bank_number *out;
    teff_err err = bank_vault_obey(turn, to, ACT(fn, .n = n), &out);
    if (!err && result)
        *result = out->n;
    return err;
}

/* The root of a transfer: takes n from its own balance, gives it to another. */
teff_err pays(teff_ctx *turn, bank_balance *state, const bank_act *in, bank_number *out)
{
    state->n -= in->n;
    teff_err err = teff_state_save(turn);
    err = err ? err : call(turn, in->to, adds, in->n, &out->n);
    return err || state->n >= 0 ? err : teff_fail(turn, TEFF_E_USER(1), "not covered");
}

/* Splits "a b" at its space. */
void split(teff_ctx *turn, const char *both, char **a, char **b)
{
    *a = teff_strdup(turn, both);
    *b = strchr(*a, ' ');
    *(*b)++ = '\0';
}

/* A teller moves n from a to b, whose names are in `to`. */
teff_err moves(teff_ctx *turn, bank_balance *none, const bank_act *in, bank_number *out)
{
    char *a, *b;
    split(turn, in->to, &a, &b);
    teff_err err = call(turn, a, adds_if_covered, -in->n, NULL);
    return err ? err : call(turn, b, adds, in->n, &out->n);
}

teff_err moves_and_waits(teff_ctx *turn, bank_balance *none, const bank_act *in, bank_number *out)
{
    teff_err err = moves(turn, none, in, out);
    wait_for_gate(turn);
    return err;
}

teff_err quits(teff_ctx *turn, bank_balance *state, const bank_act *in, bank_number *out)
{
    teff_deactivate(turn);
    return TEFF_OK;
}

/* ---- the bank ---- */

teff_err ask_teller(bank_script *fn, int64_t n, const char *to, int64_t *result)
{
    bank_number *out;
    teff_err err =
        bank_teller_obey(ctx, "teller", ACT(fn, .n = n, .to = (char *)(uintptr_t)to), &out);
    if (!err && result)
        *result = out->n;
    return err;
}

teff_err ask_vault(const char *key, bank_script *fn, int64_t n, const char *to)
{
    bank_number *out;
    return bank_vault_obey(ctx, key, ACT(fn, .n = n, .to = (char *)(uintptr_t)to), &out);
}

int64_t balance(const char *key)
{
    bank_number *out;
    lab_ok(ctx, bank_vault_look(ctx, key, &out));
    return out->n;
}

void balances_are(int64_t a, int64_t b)
{
    assert_int_equal(balance("a"), a);
    assert_int_equal(balance("b"), b);
}

/* What the next activations find in the store. */
void reload_both(void)
{
    bank_number *out;
    lab_ok(ctx, bank_vault_plain(ctx, "a", RUN(quits), &out));
    lab_ok(ctx, bank_vault_plain(ctx, "b", RUN(quits), &out));
}

void are_stored(int64_t a, int64_t b)
{
    balances_are(a, b);
    reload_both();
    balances_are(a, b);
}

void begin_with(int64_t a, int64_t b)
{
    bank_number *out;
    lab_ok(ctx, bank_vault_plain(ctx, "a", ACT(adds, .n = a), &out));
    lab_ok(ctx, bank_vault_plain(ctx, "b", ACT(adds, .n = b), &out));
}

/* ---- each on one silo, between two, and from a client ---- */

static teff_client *client;

static int open_bank(int silos, bool from_client)
{
    memset(&bank, 0, sizeof bank);
    l = silos > 1 ? lab_open_more(silos, host) : lab_open_more(1, host);
    client = from_client ? lab_client(l, (int[]){0, -1}) : NULL;
    ctx = client ? teff_client_new_ctx(client) : l->ctx[0];
    return 0;
}

int bank_setup_one(void **state)
{
    return open_bank(1, false);
}

int bank_setup_two(void **state)
{
    return open_bank(2, false);
}

int bank_setup_client(void **state)
{
    return open_bank(2, true);
}

int bank_teardown(void **state)
{
    bank.gate = true;
    if (client) {
        teff_ctx_free(ctx);
        teff_client_free(client);
    }
    lab_close(l);
    return 0;
}
