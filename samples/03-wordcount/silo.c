/* silo.c - a silo that hosts the words. Start as many as you like on one store. */
#include "words.teff.h"

static teff_err add(words_word *self, const words_seen *in, words_total *out)
{
    self->state->count += in->times;
    out->count = self->state->count;
    return TEFF_OK;
}

static teff_err get(words_word *self, words_total *out)
{
    out->count = self->state->count;
    return TEFF_OK;
}

/* A word that moves to another silo, or was not used for long, takes its count along. */
static teff_err on_deactivate(words_word *self, teff_reason why)
{
    (void)why;
    return words_word_save(self);
}

int main(int argc, char **argv)
{
    static const words_word_methods methods = {
        .add = add, .get = get, .on_deactivate = on_deactivate};
    return teff_silo_main(argc, argv, words_word_type(&methods, NULL), NULL);
}
