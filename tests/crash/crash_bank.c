/* crash_bank.c - see crash_bank.h. */
#include "crash_bank.h"

#include <stdio.h>
#include <string.h>

/* 1: an account does not save most changes, so that the transaction's batch lacks its row. */
#ifndef PLANT_UNWRITTEN
#define PLANT_UNWRITTEN 0
#endif

enum { SAVED_EVERY = 3, MOVE_EVERY = 8 };

/* ---- what a transfer changes ---- */

/* out: the amount that the teller's transfer n adds to the account; 0: the transfer does not change
 * the account. The amounts of all accounts add up to 0. */
static int64_t compute_share(unsigned teller, int64_t n, unsigned account)
{
    unsigned first = (unsigned)((teller * 3 + (uint64_t)n * 5) % BANK_ACCOUNTS);
    unsigned place = (account + BANK_ACCOUNTS - first) % BANK_ACCOUNTS;
    int64_t amount = 1 + n % 7;
    return place == 0 ? -2 * amount : place == 1 || place == 3 ? amount : 0;
}

/* Key a0 is teller 0, b0 is teller BANK_TELLERS / 2. */
static unsigned teller_of_key(const char *key)
{
    return (unsigned)(key[0] - 'a') * (BANK_TELLERS / 2) + (unsigned)(key[1] - '0');
}

static const char *make_teller_key(unsigned teller, char key[3])
{
    key[0] = (char)('a' + teller / (BANK_TELLERS / 2));
    key[1] = (char)('0' + teller % (BANK_TELLERS / 2));
    key[2] = '\0';
    return key;
}

/* So that tellers and accounts move between the silos. */
static void end_activation_now_and_then(teff_ctx *ctx, int64_t n)
{
    if (n % MOVE_EVERY == 0)
        teff_deactivate(ctx);
}

/* ---- tellers ---- */

/* Every second transfer changes its accounts in the reverse order. The callers of tellers with odd
 * numbers use idempotency keys, so no call of theirs meets its own number. Another caller's call
 * may: that caller was killed, and its call has still run after the new one was made. */
static teff_err transfer(crash_teller *self, const crash_number *in, crash_number *out)
{
    unsigned teller = teller_of_key(self->key);
    if (self->state->n == in->n && teller % 2 == 0)
        return teff_fail(self->ctx, TEFF_E_FAILED, "an earlier call has made this transfer");
    if (self->state->n + 1 != in->n)
        return teff_fail(self->ctx, TEFF_E_FAILED, "damaged: it runs when %lld is there",
                         (long long)self->state->n);
    self->state->n = out->n = in->n;
    end_activation_now_and_then(self->ctx, in->n);
    teff_err err = crash_teller_save(self);
    for (unsigned i = 0; i < BANK_ACCOUNTS && !err; i++) {
        unsigned account = in->n % 2 ? i : BANK_ACCOUNTS - 1 - i;
        int64_t amount = compute_share(teller, in->n, account);
        if (amount)
            err = crash_account_change(self->ctx, account,
                                       crash_move(.teller = teller, .n = in->n, .amount = amount));
    }
    return err;
}

static teff_err get_number(crash_teller *self, crash_number *out)
{
    out->n = self->state->n;
    return TEFF_OK;
}

/* ---- accounts ---- */

static teff_err make_lists(crash_account *self)
{
    for (size_t i = self->state->n_last; i < BANK_TELLERS; i++) {
        crash_balance_append_last(self->ctx, self->state, 0);
        crash_balance_append_count(self->ctx, self->state, 0);
    }
    return TEFF_OK;
}

static teff_err change_account(crash_account *self, const crash_move *in)
{
    crash_balance *balance = self->state;
    if (balance->last[in->teller] >= in->n)
        return teff_fail(self->ctx, TEFF_E_FAILED, "damaged: transfer %lld comes after %lld",
                         (long long)in->n, (long long)balance->last[in->teller]);
    balance->amount += in->amount;
    balance->last[in->teller] = in->n;
    balance->count[in->teller]++;
    end_activation_now_and_then(self->ctx, in->n);
    return PLANT_UNWRITTEN && in->n % SAVED_EVERY != 0 ? TEFF_OK : crash_account_save(self);
}

static int64_t *copy_list(teff_ctx *ctx, const int64_t *list)
{
    int64_t *copy = teff_alloc(ctx, BANK_TELLERS * sizeof *copy);
    memcpy(copy, list, BANK_TELLERS * sizeof *copy);
    return copy;
}

static teff_err look_at_account(crash_account *self, crash_balance *out)
{
    out->amount = self->state->amount;
    out->n_last = out->n_count = BANK_TELLERS;
    out->last = copy_list(self->ctx, self->state->last);
    out->count = copy_list(self->ctx, self->state->count);
    return TEFF_OK;
}

/* ---- the auditor ---- */

/* Begins all calls before it awaits the first one. */
static teff_err read_books(crash_auditor *self, crash_books *out)
{
    teff_call tellers[BANK_TELLERS], accounts[BANK_ACCOUNTS];
    crash_number *number;
    teff_err err = TEFF_OK;
    char key[3];
    out->n_tellers = BANK_TELLERS;
    out->tellers = teff_alloc(self->ctx, BANK_TELLERS * sizeof *out->tellers);
    out->n_accounts = BANK_ACCOUNTS;
    out->accounts = teff_alloc(self->ctx, BANK_ACCOUNTS * sizeof(crash_balance *));
    for (unsigned i = 0; i < BANK_TELLERS && !err; i++)
        err = crash_teller_look_async(self->ctx, make_teller_key(i, key), NULL, &tellers[i]);
    for (unsigned i = 0; i < BANK_ACCOUNTS && !err; i++)
        err = crash_account_look_async(self->ctx, i, NULL, &accounts[i]);
    for (unsigned i = 0; i < BANK_TELLERS && !err; i++) {
        err = crash_teller_look_await(self->ctx, tellers[i], &number);
        out->tellers[i] = err ? 0 : number->n;
    }
    for (unsigned i = 0; i < BANK_ACCOUNTS && !err; i++)
        err = crash_account_look_await(self->ctx, accounts[i], &out->accounts[i]);
    return err;
}

/* Does the account contain each transfer up to the tellers' numbers once, and no other one?
 * out: false: text says what is wrong. */
static bool account_is_right(const crash_books *books, unsigned account, char *text)
{
    const crash_balance *balance = books->accounts[account];
    int64_t sum = 0;
    for (unsigned t = 0; t < BANK_TELLERS; t++) {
        int64_t last = 0, count = 0;
        for (int64_t n = 1; n <= books->tellers[t]; n++) {
            int64_t amount = compute_share(t, n, account);
            sum += amount;
            last = amount ? n : last;
            count += amount != 0;
        }
        if (balance->last[t] == last && balance->count[t] == count)
            continue;
        snprintf(
            text, TEFF_TEXT_MAX,
            "damaged: teller %u has made %lld transfers, so %lld in account %u, the last %lld; "
            "the account has %lld, the last %lld",
            t, (long long)books->tellers[t], (long long)count, account, (long long)last,
            (long long)balance->count[t], (long long)balance->last[t]);
        return false;
    }
    if (balance->amount != sum)
        snprintf(text, TEFF_TEXT_MAX, "damaged: account %u has the amount %lld, expected %lld",
                 account, (long long)balance->amount, (long long)sum);
    return balance->amount == sum;
}

teff_err bank_audit(teff_ctx *ctx, const char *key, crash_books **books, char *text)
{
    int64_t sum = 0;
    teff_err err = crash_auditor_read(ctx, key, books);
    if (err) {
        snprintf(text, TEFF_TEXT_MAX, "%s", teff_error(ctx));
        return err;
    }
    for (unsigned i = 0; i < BANK_ACCOUNTS; i++) {
        if (!account_is_right(*books, i, text))
            return TEFF_E_FAILED;
        sum += (*books)->accounts[i]->amount;
    }
    snprintf(text, TEFF_TEXT_MAX, "damaged: the sum of all accounts is %lld", (long long)sum);
    return sum ? TEFF_E_FAILED : TEFF_OK;
}

/* ---- types ---- */

teff_grain_type *bank_teller_type(void)
{
    static const crash_teller_methods methods = {
        .transfer = transfer, .look = get_number, .get = get_number};
    return crash_teller_type(&methods, NULL);
}

teff_grain_type *bank_account_type(void)
{
    static const crash_account_methods methods = {
        .change = change_account, .look = look_at_account, .on_activate = make_lists};
    return crash_account_type(&methods, NULL);
}

teff_grain_type *bank_auditor_type(void)
{
    static const crash_auditor_methods methods = {.read = read_books};
    return crash_auditor_type(&methods, NULL);
}
