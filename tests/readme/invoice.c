/* invoice.c - README's example of reminders. */
#include <stdio.h>
#include "invoice.teff.h"

enum { DAY_MS = 24 * 60 * 60 * 1000 };

static teff_err ask_for_payment(const char *invoice)
{
    return printf("please pay %s\n", invoice) > 0 ? TEFF_OK : TEFF_E_IO;
}

static teff_err on_reminder(shop_invoice *self, const teff_tick *tick)
{
    if (self->state->paid)
        return teff_reminder_unregister(self->ctx, tick->name);
    return ask_for_payment(self->key);
}

static teff_err send_invoice(shop_invoice *self)
{
    const teff_reminder_options options = {
        .size = sizeof options, .due_ms = DAY_MS, .period_ms = DAY_MS, .ttl_ms = 30ull * DAY_MS};
    return teff_reminder_register(self->ctx, "payment", &options);
}

int main(int argc, char **argv)
{
    static const shop_invoice_methods methods = {.send = send_invoice, .on_reminder = on_reminder};
    return teff_silo_main(argc, argv, shop_invoice_type(&methods, NULL), NULL);
}
