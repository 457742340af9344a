/* cart.c - a cart that is stored, is emptied half an hour after its last item, and is paid by the
 * bank. */
#include "cart.h"

enum { ABANDONED_MS = 30 * 60 * 1000 };

static int64_t sum(const shop_contents *cart)
{
    int64_t cents = 0;
    for (size_t i = 0; i < cart->n_items; i++)
        cents += cart->items[i]->cents;
    return cents;
}

static teff_err add(shop_cart *self, const shop_item *in, shop_total *out)
{
    teff_reminder_options in_half_an_hour = {.size = sizeof in_half_an_hour,
                                             .due_ms = ABANDONED_MS};
    shop_contents_append_items(self->ctx, self->state, in);
    teff_err err = shop_cart_save(self);
    if (!err)
        err = teff_reminder_register(self->ctx, "abandoned", &in_half_an_hour);
    out->cents = sum(self->state);
    return err;
}

static teff_err get(shop_cart *self, shop_total *out)
{
    out->cents = sum(self->state);
    return TEFF_OK;
}

static teff_err empty_cart(shop_cart *self)
{
    self->state->n_items = 0;
    return shop_cart_save(self);
}

/* If the bank refuses, the cart stays as it was. */
static teff_err buy(shop_cart *self, shop_total *out)
{
    out->cents = sum(self->state);
    teff_err err = shop_bank_charge(self->ctx, self->key, shop_total(.cents = out->cents));
    return err ? teff_fail(self->ctx, err, "not paid: %s", teff_error(self->ctx))
               : empty_cart(self);
}

static teff_err on_reminder(shop_cart *self, const teff_tick *tick)
{
    (void)tick;
    return empty_cart(self);
}

teff_grain_type *cart_type(void)
{
    static const shop_cart_methods methods = {
        .add = add, .get = get, .buy = buy, .on_reminder = on_reminder};
    return shop_cart_type(&methods, NULL);
}
