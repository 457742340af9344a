/* main.c - an outside project: a silo, one grain, one call, in one process. */
#include <stdio.h>
#include <teff/teff.h>

#include "greet.teff.h"

static teff_err greet(greet_greeter *self, const greet_name *in, greet_greeting *out)
{
    char *text = teff_alloc(self->ctx, 100);

    snprintf(text, 100, "%s greets %s", self->key, in->text);
    out->text = text;
    return TEFF_OK;
}

static teff_err say(teff_silo *silo)
{
    teff_ctx *ctx = teff_silo_new_ctx(silo);
    greet_greeting *response = NULL;
    teff_err err = ctx != NULL ? TEFF_OK : TEFF_E_NOMEM;

    if (err == TEFF_OK) {
        err = greet_greeter_greet(ctx, "teff", greet_name(.text = "you"), &response);
    }
    if (err == TEFF_OK) {
        puts(response->text);
    }
    teff_ctx_free(ctx);
    return err;
}

int main(void)
{
    static const greet_greeter_methods methods = {.greet = greet};
    const teff_silo_options options = {.size = sizeof options, .silent = 1};
    char text[TEFF_TEXT_MAX] = "";
    teff_silo *silo = NULL;
    teff_err err = teff_silo_new(&options, &silo, text);

    if (err == TEFF_OK) {
        err = teff_silo_host(silo, greet_greeter_type(&methods, NULL));
    }
    if (err == TEFF_OK) {
        err = teff_silo_start(silo, text);
    }
    if (err == TEFF_OK) {
        err = say(silo);
    }
    if (err != TEFF_OK) {
        fprintf(stderr, "%s %s\n", teff_err_name(err), text);
    }
    teff_silo_free(silo);
    return err != TEFF_OK;
}
