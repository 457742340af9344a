/* ask.h - one call: its method, grain, request, context. Runs a call to an idle grain of this silo
 * in place: on a fiber, inside the caller's turn.
 * Way:     reference -> [ask] -> direct, or a message for route
 * Threads: the caller's. */
#pragma once

#include "activation/ident.h"
#include "call/call.h"
#include "call/ctx.h"

typedef struct teffi_ask { /* checked arguments of teff_ask, teff_ask_async or teff_send */
    teff_ctx *ctx;
    const teff_type_info *type;
    const teff_method *method;
    const ProtobufCMessage *in;
    teffi_ident ident; /* its key is in bytes; hash is 0 until computed */
    /* set by direct.c: the grain was not on this silo, and no request waited to locate it */
    bool elsewhere;
    teffi_node_id location; /* if elsewhere: its cached silo; zero: not cached */
    uint8_t bytes[TEFFI_KEY_BYTES_MAX];
} teffi_ask;

/* teffi_ask_add_error_prefix - prefix ctx's error text with the call's method and key. out: err.
 * teffi_ask_fail - the same, after setting ctx's error to text. */
teff_err teffi_ask_add_error_prefix(const teffi_ask *ask, teff_err err);
teff_err teffi_ask_fail(const teffi_ask *ask, teff_err err, const char *text);

/* teffi_unsent_request_error_text - the error text for a client's request that could not be sent.
 * in: err: why it was not sent; TEFF_E_UNAVAILABLE: no gateway can be reached. */
const char *teffi_unsent_request_error_text(const teffi_node *node, teff_err err);

/* teffi_ask_store_in_call - store method, key and response type in a pending call, for its error
 * texts. Call it before the request is sent or, after a call in place, before the callee is
 * released. */
void teffi_ask_store_in_call(teffi_call *call, const teffi_ask *ask);

/* teffi_ask_add_error_prefix_from_call - as teffi_ask_add_error_prefix, with the method and key
 * that teffi_ask_store_in_call stored in call, if any. */
teff_err teffi_ask_add_error_prefix_from_call(teff_ctx *ctx, const teffi_call *call, teff_err err);

/* teffi_ask_timeout_ms - the timeout of a call of method from ctx. The deadline of the turn's own
 * caller may come first: see teffi_ask_deadline. */
static inline uint32_t teffi_ask_timeout_ms(const teff_ctx *ctx, const teff_method *method)
{
    return ctx->timeout_ms      ? ctx->timeout_ms
           : method->timeout_ms ? method->timeout_ms
                                : TEFFI_TIMEOUT_DEFAULT_MS;
}

/* teffi_ask_deadline - the deadline of a call of method from ctx, in ns of the monotonic clock (see
 * teffi_ctx_compute_call_deadline). out: 0: the deadline of the turn's own caller has passed
 * already. */
static inline uint64_t teffi_ask_deadline(const teff_ctx *ctx, const teff_method *method)
{
    return teffi_ctx_compute_call_deadline(ctx, teffi_ask_timeout_ms(ctx, method));
}

/* teffi_direct_ask - run a call in place if possible; the argument out is that of teff_ask, and the
 * response is copied into the caller's memory.
 * in:   ask->ctx, of a turn.
 * out:  false: the method did not run: send a message; ask->elsewhere and location may be set.
 *       true: if *call is NULL the call has ended with *err, the text in ctx; else the method waits
 *       or has yielded: await *call.
 * teffi_direct_ask_async - the same for an asynchronous call; *call may have ended already.
 * teffi_direct_try_send - the same for a one-way message. out: true: the method has returned, waits
 * or has yielded; nobody awaits it. */
bool teffi_direct_ask(teffi_ask *ask, ProtobufCMessage **out, teffi_call **call, teff_err *err);
bool teffi_direct_ask_async(teffi_ask *ask, teffi_call **call);
bool teffi_direct_try_send(teffi_ask *ask);
