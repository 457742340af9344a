/* cluster.c - an outside project's test: two silos on virtual time, one call. */
#include <stdio.h>
#include <teff/testing.h>

#include "greet.teff.h"

static teff_err greet(greet_greeter *self, const greet_name *in, greet_greeting *out)
{
    char *text = teff_alloc(self->ctx, 100);

    snprintf(text, 100, "%s greets %s", self->key, in->text);
    out->text = text;
    return TEFF_OK;
}

static teff_err host(void *arg, teff_silo *silo, unsigned no)
{
    static const greet_greeter_methods methods = {.greet = greet};

    (void)arg;
    (void)no;
    return teff_silo_host(silo, greet_greeter_type(&methods, NULL));
}

int main(void)
{
    const teff_testing_options options = {.size = sizeof options, .silos = 2, .host = host};
    char text[TEFF_TEXT_MAX] = "";
    teff_testing *cluster = NULL;
    greet_greeting *response = NULL;
    teff_err err = teff_testing_new(&options, &cluster, text);

    if (err == TEFF_OK) {
        err = greet_greeter_greet(teff_testing_ctx(cluster), "teff", greet_name(.text = "you"),
                                  &response);
    }
    if (err == TEFF_OK) {
        puts(response->text);
    } else {
        fprintf(stderr, "%s %s\n", teff_err_name(err), text);
    }
    teff_testing_free(cluster);
    return err != TEFF_OK;
}
