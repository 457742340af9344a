/* outgoing.c - see outgoing.h. */
#include "request/outgoing.h"

#include <stdio.h>
#include <string.h>
#include "activation/transaction.h"

/* ---- around the filters ---- */

/* A method with a request whose caller passes none: the filters do not run, and the call fails. */
static const teffi_filters no_filters = {0};

static void prepare_run(teffi_filter_run *run, teff_ctx *ctx, const teff_type_info *type,
                        const teff_key *key, const teff_method *method, const ProtobufCMessage *in)
{
    run->filters = !in && method->in ? &no_filters : ctx->node->outgoing;
    run->begun = 0;
    run->outgoing = true;
    run->call = (teff_filter_call){.ctx = ctx,
                                   .type = type,
                                   .method = method,
                                   .key = key,
                                   .in = in,
                                   .kind = method->flags & TEFF_METHOD_ONE_WAY ? TEFF_CALL_ONE_WAY
                                                                               : TEFF_CALL_REQUEST};
}

/* If the method would join the caller's transaction, the transaction fails with err, with which the
 * call could not begin. out: err. */
static teff_err record_call_begin_error(teff_ctx *ctx, const teff_method *method, teff_err err)
{
    if (ctx->transaction)
        teffi_transaction_record_call_begin_error(ctx, method, err);
    return err;
}

static teff_err begin_filters(teffi_filter_run *run)
{
    teff_ctx *ctx = run->call.ctx;
    ctx->filters = true;
    teff_err err = teffi_filters_begin(run);
    ctx->filters = false;
    return err && run->call.kind == TEFF_CALL_REQUEST
               ? record_call_begin_error(ctx, run->call.method, err)
               : err;
}

/* Ends the filters. After TEFF_OK, there is a response if the method has one and it is awaited.
 * in: empty: room for an empty response; NULL: take ctx's memory. errs: TEFF_E_NOMEM. */
static teff_err end_filters(teffi_filter_run *run, teff_err err, ProtobufCMessage *empty)
{
    teff_ctx *ctx = run->call.ctx;
    const teff_method *method = run->call.method;
    bool before = ctx->filters; /* set if a filter awaits a call of its caller */
    ctx->filters = true;
    err = teffi_filters_end(run, err);
    ctx->filters = before;
    if (err || run->call.out || run->call.kind != TEFF_CALL_REQUEST || !method->out)
        return err;
    run->call.out =
        empty ? empty : teff_arena_alloc(&ctx->arena, method->out->desc->sizeof_message);
    if (!run->call.out)
        return teff_fail(ctx, TEFF_E_NOMEM, "out of memory for the response");
    method->out->desc->message_init(run->call.out);
    return TEFF_OK;
}

/* ---- calls ---- */

teff_err teffi_outgoing_ask(teff_ctx *ctx, const teff_type_info *type, const teff_key *key,
                            const teff_method *method, const ProtobufCMessage *in,
                            ProtobufCMessage **out, teffi_ask_fn *call_plain)
{
    teffi_filter_run run;
    prepare_run(&run, ctx, type, key, method, in);
    teff_err err = begin_filters(&run);
    if (!err && !run.call.answered) {
        ctx->filters = true;
        err = call_plain(ctx, type, key, method, in, method->out ? &run.call.out : NULL);
        ctx->filters = false;
    }
    err = end_filters(&run, err, NULL);
    if (!err && out)
        *out = run.call.out;
    return err;
}

teff_err teffi_outgoing_send(teff_ctx *ctx, const teff_type_info *type, const teff_key *key,
                             const teff_method *method, const ProtobufCMessage *in,
                             teffi_send_fn *call_plain)
{
    teffi_filter_run run;
    prepare_run(&run, ctx, type, key, method, in);
    run.call.kind = TEFF_CALL_ONE_WAY;
    teff_err err = begin_filters(&run);
    if (!err && !run.call.answered) {
        ctx->filters = true;
        err = call_plain(ctx, type, key, method, in);
        ctx->filters = false;
    }
    return end_filters(&run, err, NULL);
}

/* ---- asynchronous calls ---- */

/* Makes the call, with room for its outcome. out: NULL: no memory. */
static teffi_filtered_call *new_filtered_call(teff_ctx *ctx, const teff_key *key,
                                              const teff_method *method)
{
    bool has_text = teffi_key_kind_has_text(key->kind) && key->text;
    size_t text_len = has_text ? strnlen(key->text, TEFF_KEY_MAX + 1) : 0; /* or it is invalid */
    teffi_filtered_call *filtered = teff_arena_alloc(&ctx->arena, sizeof *filtered);
    char *text = has_text ? teff_arena_copy(&ctx->arena, key->text, text_len) : NULL;
    ProtobufCMessage *empty =
        method->out ? teff_arena_alloc(&ctx->arena, method->out->desc->sizeof_message) : NULL;
    if (!filtered || (has_text && !text) || (method->out && !empty))
        return NULL;
    filtered->proxy.call = NULL;
    filtered->ended = false;
    filtered->err = TEFF_OK;
    filtered->key = *key;
    filtered->key.text = text;
    filtered->empty = empty;
    return filtered;
}

/* Runs the `after` functions, and keeps the outcome for later calls of teff_await. */
static void end_filtered_call(teffi_filtered_call *filtered, teff_err err)
{
    filtered->err = end_filters(&filtered->run, err, filtered->empty);
    filtered->ended = true;
    if (filtered->err)
        snprintf(filtered->text, sizeof filtered->text, "%s", teff_error(filtered->run.call.ctx));
}

teff_err teffi_outgoing_ask_async(teff_ctx *ctx, const teff_type_info *type, const teff_key *key,
                                  const teff_method *method, const ProtobufCMessage *in,
                                  const teff_call_options *options, teff_call *call,
                                  teffi_ask_async_fn *call_plain)
{
    teffi_filtered_call *filtered = new_filtered_call(ctx, key, method);
    teff_call own = {NULL};
    if (!filtered)
        return record_call_begin_error(
            ctx, method,
            teff_fail(ctx, TEFF_E_NOMEM, "out of memory for a call of %s", method->name));
    prepare_run(&filtered->run, ctx, type, &filtered->key, method, in);
    teff_err err = begin_filters(&filtered->run);
    if (!err && !filtered->run.call.answered) {
        ctx->filters = true;
        err = call_plain(ctx, type, key, method, in, options, &own);
        ctx->filters = false;
    }
    filtered->run.call.in = NULL; /* the caller may free it */
    if (err)
        end_filtered_call(filtered, err);
    if (filtered->err)
        return filtered->err;
    filtered->proxy.call = own.impl;
    *call = teffi_call_make_proxy_handle(&filtered->proxy);
    return TEFF_OK;
}

teff_err teffi_outgoing_await(teff_ctx *ctx, teffi_filtered_call *filtered, ProtobufCMessage **out,
                              teffi_await_fn *call_plain)
{
    teff_err err = TEFF_OK;
    if (!filtered->ended) {
        const teff_call own = {filtered->proxy.call};
        ProtobufCMessage **response =
            filtered->run.call.method->out ? &filtered->run.call.out : NULL;
        if (own.impl)
            err = call_plain(ctx, own, response);
        (void)end_filtered_call(filtered, err);
    }
    if (filtered->err)
        return teff_fail(ctx, filtered->err, "%s", filtered->text);
    if (out && filtered->run.call.method->out)
        *out = filtered->run.call.out;
    return TEFF_OK;
}
