/* silo.c - a silo whose counters survive a restart: each addition is saved before
 * the response is sent. */
#include "counter.teff.h"

static teff_err add(counter_counter *self, const counter_amount *in, counter_value *out)
{
    self->state->value += in->amount;
    out->value = self->state->value;
    return counter_counter_save(self);
}

static teff_err get(counter_counter *self, counter_value *out)
{
    out->value = self->state->value;
    return TEFF_OK;
}

int main(int argc, char **argv)
{
    static const counter_counter_methods methods = {.add = add, .get = get};
    return teff_silo_main(argc, argv, counter_counter_type(&methods, NULL), NULL);
}
