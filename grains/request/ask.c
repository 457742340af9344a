/* ask.c - the deadline of a call; put method and key into its error text. */
#include "request/ask.h"

#include "activation/activation.h"
#include "node/node.h"

teff_err teffi_ask_name(const teffi_ask *ask, teff_err err)
{
    return teffi_name_bytes(ask->ctx, ask->method, ask->type->key_kind, ask->bytes,
                            ask->ident.key_len, err);
}

teff_err teffi_ask_fail(const teffi_ask *ask, teff_err err, const char *text)
{
    return teffi_ask_name(ask, teffi_ctx_fail(ask->ctx, err, "%s", text));
}

void teffi_ask_keep(teffi_call *call, const teffi_ask *ask)
{
    uint32_t len = ask->ident.key_len;
    const teff_message_ops *out = ask->method->out;
    teffi_asked *asked = &call->asked;
    asked->method = ask->method;
    asked->key_kind = (uint8_t)ask->type->key_kind;
    asked->key_len = (uint8_t)(len < TEFFI_CALL_KEY_MAX ? len : TEFFI_CALL_KEY_MAX);
    memcpy(asked->key, ask->bytes, sizeof asked->key); /* a constant size compiles to a few moves */
    teffi_call_expect(call, out ? out->desc : NULL, TEFFI_CALL_HAS_ASKED);
}

teff_err teffi_ask_name_kept(teff_ctx *ctx, const teffi_call *call, teff_err err)
{
    const teffi_asked *asked = teffi_call_asked(call);
    return asked ? teffi_name_bytes(ctx, asked->method, (teff_key_kind)asked->key_kind, asked->key,
                                    asked->key_len, err)
                 : err;
}

uint64_t teffi_ask_deadline(const teff_ctx *ctx, const teff_method *method)
{
    uint64_t now_ns = teffi_now(ctx->node->platform);
    int64_t ms = teffi_timeout_ms(ctx, method);
    int32_t left_ms = teffi_due_left(ctx->due_ms, (uint32_t)(now_ns / 1000000));
    ms = ms > TEFFI_TIMEOUT_MAX_MS ? TEFFI_TIMEOUT_MAX_MS : ms;
    ms = left_ms < ms ? left_ms : ms;
    return ms > 0 ? now_ns + (uint64_t)ms * 1000000 : 0;
}
