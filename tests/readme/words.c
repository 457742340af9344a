/* words.c - README's first silo program, and a call of its grain. */
#include "words.teff.h"

static teff_err get(words_word *self, words_total *out)
{
    teff_ctx *ctx = self->ctx;
    words_total *total;
    teff_err err = words_word_add(ctx, "teff", words_seen(.times = 1), &total);
    if (!err)
        out->count = total->count;
    return err;
}

static teff_err add(words_word *self, const words_seen *in, words_total *out)
{
    self->state->count += in->times; /* no other call runs in this grain now */
    out->count = self->state->count;
    return TEFF_OK;
}

int main(int argc, char **argv)
{
    static const words_word_methods methods = {.add = add, .get = get};
    return teff_silo_main(argc, argv, words_word_type(&methods, NULL), NULL);
}
