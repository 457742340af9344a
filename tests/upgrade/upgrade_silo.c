/* upgrade_silo.c - a silo of ledgers, built twice: from old/ledger.proto, and with NEW from
 * new/ledger.proto. Both change what they know of a state, and save the whole. */
#include "ledger.teff.h"

enum { LINES = 3 };

static teff_err add(upgrade_ledger *self, const upgrade_amount *in, upgrade_total *out)
{
    static const upgrade_line none = UPGRADE__LINE__INIT;
    upgrade_book *book = self->state;
    if (!book->last)
        book->last = upgrade_line_keep(self->ctx, &none);
    if (book->n_lines < LINES)
        upgrade_book_append_lines(self->ctx, book, &none);
    book->last->n += in->n;
    for (size_t i = 0; i < book->n_lines; i++)
        book->lines[i]->n += in->n;
    out->n = book->sum += in->n;
    return upgrade_ledger_save(self);
}

#ifdef NEW
static teff_err sign(upgrade_ledger *self, const upgrade_name *in, upgrade_total *out)
{
    static const upgrade_amount nothing = UPGRADE__AMOUNT__INIT;
    upgrade_line seal = UPGRADE__LINE__INIT;
    upgrade_book *book = self->state;
    teff_err err = TEFF_OK;
    while (!err && book->n_lines < LINES)
        err = add(self, &nothing, out);
    if (err)
        return err;
    seal.n = book->sum;
    seal.note = in->text;
    book->owner = teff_state_strdup(self->ctx, in->text);
    book->seal = upgrade_line_keep(self->ctx, &seal);
    book->last->note = teff_state_strdup(self->ctx, in->text);
    for (size_t i = 0; i < LINES; i++)
        book->lines[i]->note = teff_state_strdup(self->ctx, in->text);
    out->n = book->sum;
    return upgrade_ledger_save(self);
}

static teff_err read_book(upgrade_ledger *self, upgrade_book *out)
{
    *out = *self->state;
    return TEFF_OK;
}
#endif

int main(int argc, char **argv)
{
    static const upgrade_ledger_methods methods = {
        .add = add,
#ifdef NEW
        .sign = sign,
        .read = read_book,
#endif
    };
    return teff_silo_run(argc, argv, NULL, upgrade_ledger_type(&methods, NULL), NULL);
}
