// words.cpp - README's call from C++.
#include "words.teff.h"

teff_err add_one(teff_ctx *ctx, words_total *total_out);

teff_err add_one(teff_ctx *ctx, words_total *total_out)
{
    words_total *total;
    teff_err err = words_word_add(ctx, "teff", words_seen_with().times(1), &total);
    if (!err)
        total_out->count = total->count;
    return err;
}
