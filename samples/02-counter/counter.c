/* counter.c - asks a counter of a running silo.
 * usage: counter GATEWAY NAME [AMOUNT]      adds AMOUNT first when it is given */
#include <stdio.h>
#include <stdlib.h>
#include "counter.teff.h"

static teff_err ask(teff_ctx *ctx, const char *name, const char *amount)
{
    counter_value *value;
    teff_err err;
    if (amount)
        err = counter_counter_add(ctx, name, counter_amount(.amount = strtoll(amount, NULL, 10)),
                                  &value);
    else
        err = counter_counter_get(ctx, name, &value);
    if (err)
        fprintf(stderr, "%s: %s\n", teff_err_name(err), teff_error(ctx));
    else
        printf("%s is %lld\n", name, (long long)value->value);
    return err;
}

int main(int argc, char **argv)
{
    char text[TEFF_TEXT_MAX] = "";
    teff_client_options options = {.size = sizeof options};
    teff_client *client;
    if (argc < 3) {
        fprintf(stderr, "usage: %s GATEWAY NAME [AMOUNT]\n", argv[0]);
        return 2;
    }
    options.gateways[0] = argv[1];
    if (teff_client_connect(&options, &client, text)) {
        fprintf(stderr, "no gateway: %s\n", text);
        return 1;
    }
    teff_ctx *ctx = teff_client_new_ctx(client);
    teff_err err = ctx ? ask(ctx, argv[2], argc > 3 ? argv[3] : NULL) : TEFF_E_NOMEM;
    teff_ctx_free(ctx);
    teff_client_free(client);
    return err ? 1 : 0;
}
