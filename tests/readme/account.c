/* account.c - README's bank: a transfer changes two grains or none. */
#include "account.teff.h"

#define NO_FUNDS TEFF_E_USER(1)

static teff_err deposit(bank_account *self, const bank_amount *in)
{
    self->state->cents += in->cents;
    return bank_account_save(self);
}

static teff_err transfer(bank_account *self, const bank_order *in)
{
    if (self->state->cents < in->cents)
        return teff_fail(self->ctx, NO_FUNDS, "%s has only %ld", self->key, self->state->cents);
    self->state->cents -= in->cents;
    teff_err err = bank_account_save(self);
    return err ? err : bank_account_deposit(self->ctx, in->to, bank_amount(.cents = in->cents));
}

int main(int argc, char **argv)
{
    static const bank_account_methods methods = {.deposit = deposit, .transfer = transfer};
    return teff_silo_main(argc, argv, bank_account_type(&methods, NULL), NULL);
}
