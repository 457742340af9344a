/* outgoing.h - the calls of silos and clients that have outgoing filters.
 * Way:     reference (teff_ask and the others) -> [outgoing] -> filters; reference again
 * Threads: the caller's. */
#pragma once

#include "activation/filter.h"
#include "call/ctx.h"
#include "node/node.h"

/* An asynchronous call with filters; in the memory of its context. teff_call.impl points to it, see
 * teffi_call_of_handle (call/ctx.h). The outcome lies in memory that is as old as the call, since
 * the caller may free newer memory (teff_ctx_rewind). */
typedef struct teffi_filtered_call {
    teffi_call_proxy
        proxy;  /* its call is NULL if none was begun: it has an outcome from the start */
    bool ended; /* the `after` functions have run: err, text and run.call.out are set */
    teff_err err;
    char text[TEFF_TEXT_MAX];
    teff_key key;            /* a copy, as is its text: the caller's may not outlive the call */
    ProtobufCMessage *empty; /* room for an empty response; NULL: the method has none */
    teffi_filter_run run;
} teffi_filtered_call;

/* teffi_outgoing_run - must a call of ctx run filters? */
static inline bool teffi_outgoing_run(const teff_ctx *ctx)
{
    return ctx->node->outgoing && !ctx->filters;
}

/* The functions of reference.c, which this file does not call by name: it is called from there. */
typedef teff_err teffi_ask_fn(teff_ctx *ctx, const teff_type_info *type, const teff_key *key,
                              const teff_method *method, const ProtobufCMessage *in,
                              ProtobufCMessage **out);
typedef teff_err teffi_ask_async_fn(teff_ctx *ctx, const teff_type_info *type, const teff_key *key,
                                    const teff_method *method, const ProtobufCMessage *in,
                                    const teff_call_options *options, teff_call *call);
typedef teff_err teffi_send_fn(teff_ctx *ctx, const teff_type_info *type, const teff_key *key,
                               const teff_method *method, const ProtobufCMessage *in);
typedef teff_err teffi_await_fn(teff_ctx *ctx, teff_call call, ProtobufCMessage **out);

/* teffi_outgoing_ask, _ask_async, _send, _await - as teff_ask, teff_ask_async, teff_send and
 * teff_await, with filters.
 * in: teffi_outgoing_run(ctx); all but _await: after teffi_ctx_enter(ctx). call_plain: that
 *     function itself; it finds ctx->filters set, and runs no filters. */
teff_err teffi_outgoing_ask(teff_ctx *ctx, const teff_type_info *type, const teff_key *key,
                            const teff_method *method, const ProtobufCMessage *in,
                            ProtobufCMessage **out, teffi_ask_fn *call_plain);
teff_err teffi_outgoing_ask_async(teff_ctx *ctx, const teff_type_info *type, const teff_key *key,
                                  const teff_method *method, const ProtobufCMessage *in,
                                  const teff_call_options *options, teff_call *call,
                                  teffi_ask_async_fn *call_plain);
teff_err teffi_outgoing_send(teff_ctx *ctx, const teff_type_info *type, const teff_key *key,
                             const teff_method *method, const ProtobufCMessage *in,
                             teffi_send_fn *call_plain);
teff_err teffi_outgoing_await(teff_ctx *ctx, teffi_filtered_call *filtered, ProtobufCMessage **out,
                              teffi_await_fn *call_plain);
