/* async.c - README's calls under way: the first of several, in time, or cancelled; one that counts
 * once. */
#include <string.h>
#include "words.teff.h"

teff_err first_total(teff_ctx *ctx, teff_cancel *cancel, words_total **total);

teff_err first_total(teff_ctx *ctx, teff_cancel *cancel, words_total **total)
{
    const teff_call_options options = {.size = sizeof options, .timeout_ms = 200, .cancel = cancel};
    static const char *const words[] = {"teff", "grain"};
    teff_call calls[2] = {{NULL}, {NULL}};
    size_t index;
    for (size_t i = 0; i < 2; i++) {
        teff_err err = words_word_get_async(ctx, words[i], &options, &calls[i]);
        if (err)
            return err;
    }
    teff_err err = teff_await_any(ctx, calls, 2, &index);
    return err ? err : words_word_get_await(ctx, calls[index], total);
}

teff_err add_once(teff_ctx *ctx, const teff_uuid *order_id, words_total **total);

teff_err add_once(teff_ctx *ctx, const teff_uuid *order_id, words_total **total)
{
    int tries = 10;
    const teff_call_options options = {.size = sizeof options, .once = order_id};
    teff_err err;
    do {
        teff_call call;
        err = words_word_add_async(ctx, "teff", words_seen(.times = 1), &options, &call);
        if (!err)
            err = words_word_add_await(ctx, call, total);
    } while (teff_call_may_have_run(err) && --tries);
    return err;
}
