/* hello.c - one file, one process: a silo, a grain, and calls of it from main. */
#include <stdio.h>
#include "hello.teff.h"

/* Runs one turn at a time for each key: no locks. */
static teff_err greet(hello_greeter *self, const hello_name *in, hello_greeting *out)
{
    char text[200];
    self->state->visits++;
    snprintf(text, sizeof text, "Hello, %s! This is %s.", in->name, self->key);
    out->text = teff_strdup(self->ctx, text);
    out->visits = self->state->visits;
    return TEFF_OK;
}

static teff_err say_hello(teff_ctx *ctx, const char *place, const char *name)
{
    hello_greeting *response;
    teff_err err = hello_greeter_greet(ctx, place, hello_name(.name = name), &response);
    if (err)
        fprintf(stderr, "%s: %s\n", teff_err_name(err), teff_error(ctx));
    else
        printf("%s (%u)\n", response->text, response->visits);
    return err;
}

static teff_err say_all(teff_silo *silo)
{
    teff_ctx *ctx = teff_silo_new_ctx(silo);
    teff_err err = ctx ? TEFF_OK : TEFF_E_NOMEM;
    if (!err)
        err = say_hello(ctx, "Addis Ababa", "Almaz");
    if (!err)
        err = say_hello(ctx, "Addis Ababa", "Biruk");
    if (!err)
        err = say_hello(ctx, "Lalibela", "Chaltu");
    teff_ctx_free(ctx);
    return err;
}

int main(void)
{
    static const hello_greeter_methods methods = {.greet = greet};
    teff_silo_options options = {.size = sizeof options, .silent = 1};
    char text[TEFF_TEXT_MAX] = "";
    teff_silo *silo;
    teff_err err = teff_silo_new(&options, &silo, text);
    if (!err)
        err = teff_silo_host(silo, hello_greeter_type(&methods, NULL));
    if (!err)
        err = teff_silo_start(silo, text);
    if (!err)
        err = say_all(silo);
    else
        fprintf(stderr, "the silo cannot start: %s\n", text);
    teff_silo_free(silo);
    return err ? 1 : 0;
}
