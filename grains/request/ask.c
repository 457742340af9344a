/* ask.c - put the method and key of a call into its error text. */
#include "request/ask.h"

#include "activation/activation.h"

teff_err teffi_ask_add_error_prefix(const teffi_ask *ask, teff_err err)
{
    return teffi_error_add_call_prefix_from_bytes(ask->ctx, ask->method, ask->type->key_kind,
                                                  ask->bytes, ask->ident.key_len, err);
}

teff_err teffi_ask_fail(const teffi_ask *ask, teff_err err, const char *text)
{
    return teffi_ask_add_error_prefix(ask, teff_fail(ask->ctx, err, "%s", text));
}

void teffi_ask_store_in_call(teffi_call *call, const teffi_ask *ask)
{
    uint32_t len = ask->ident.key_len;
    const teff_message_ops *out = ask->method->out;
    teffi_asked *asked = &call->asked;
    asked->method = ask->method;
    asked->type = ask->type;
    asked->key_len = (uint8_t)(len < TEFFI_CALL_KEY_MAX ? len : TEFFI_CALL_KEY_MAX);
    atomic_store_explicit(&call->sent_to, 0, memory_order_relaxed);
    memcpy(asked->key, ask->bytes, sizeof asked->key); /* a constant size compiles to a few moves */
    teffi_call_expect_body(call, out ? out->desc : NULL, TEFFI_CALL_HAS_ASKED);
}

teff_err teffi_ask_add_error_prefix_from_call(teff_ctx *ctx, const teffi_call *call, teff_err err)
{
    const teffi_asked *asked = teffi_call_get_method_and_key(call);
    return asked ? teffi_error_add_call_prefix_from_bytes(ctx, asked->method, asked->type->key_kind,
                                                          asked->key, asked->key_len, err)
                 : err;
}
