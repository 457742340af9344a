/* name.c - prefix an error's text with method and key. */
#include "activation/name.h"

#include "activation/activation.h"

enum { KEY_BYTES_SHOWN = 80 };

static teff_err put_name(teff_ctx *ctx, const char *what, const teff_key *key, teff_err err)
{
    char key_text[TEFFI_KEY_TEXT_MAX];
    const char *text = teff_error(ctx);
    teffi_key_text(key, key_text);
    return teffi_ctx_fail(ctx, err, "%s at %s: %s", what, key_text,
                          text[0] ? text : teff_err_name(err));
}

teff_err teffi_name_key(teff_ctx *ctx, const teff_method *method, const teff_key *key, teff_err err)
{
    return put_name(ctx, method->name, key, err);
}

teff_err teffi_name_bytes(teff_ctx *ctx, const teff_method *method, teff_key_kind kind,
                          const uint8_t *bytes, uint32_t len, teff_err err)
{
    uint8_t ended[KEY_BYTES_SHOWN + 1] = {0};
    teff_key key;
    memcpy(ended, bytes, len < KEY_BYTES_SHOWN ? len : KEY_BYTES_SHOWN);
    teffi_key_view(&key, kind, ended);
    return put_name(ctx, method->name, &key, err);
}

teff_err teffi_name_turn(teff_ctx *ctx, teff_err err)
{
    const teffi_turn *turn = ctx->owner;
    teff_key key;
    teffi_activation_key(turn->act, &key);
    return put_name(ctx, turn->method ? turn->method->name : turn->act->type->info->name, &key,
                    err);
}
