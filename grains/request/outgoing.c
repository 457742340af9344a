/* outgoing.c - see outgoing.h. */
#include "request/outgoing.h"

#include <string.h>

/* ---- around the filters ---- */

static void prepare_run(teffi_filter_run *run, teff_ctx *ctx, const teff_type_info *type,
                        const teff_key *key, const teff_method *method, const ProtobufCMessage *in)
{
    if (ctx->group)
        teffi_ctx_check_fiber(ctx);
    run->filters = ctx->node->outgoing;
    run->begun = 0;
    run->call = (teff_filter_call){.ctx = ctx,
                                   .type = type,
                                   .method = method,
                                   .key = key,
                                   .in = in,
                                   .kind = method->flags & TEFF_METHOD_ONE_WAY ? TEFF_CALL_ONE_WAY
                                                                               : TEFF_CALL_REQUEST};
}

static teff_err begin_filters(teffi_filter_run *run)
{
    run->call.ctx->filters = true;
    teff_err err = teffi_filters_begin(run);
    run->call.ctx->filters = false;
    return err;
}

/* out: an empty response in ctx's memory. errs: TEFF_E_NOMEM. */
static teff_err make_empty_response(teffi_filter_run *run)
{
    const ProtobufCMessageDescriptor *desc = run->call.method->out->desc;
    run->call.out = teff_arena_alloc(&run->call.ctx->arena, desc->sizeof_message);
    if (!run->call.out)
        return teff_fail(run->call.ctx, TEFF_E_NOMEM, "out of memory for the response");
    desc->message_init(run->call.out);
    return TEFF_OK;
}

/* Ends the filters. After TEFF_OK, there is a response if the method has one and it is awaited. */
static teff_err end_filters(teffi_filter_run *run, teff_err err)
{
    if (err)
        run->call.out = NULL;
    run->call.ctx->filters = true;
    err = teffi_filters_end(run, err);
    run->call.ctx->filters = false;
    bool lacks_response =
        run->call.kind == TEFF_CALL_REQUEST && run->call.method->out && !run->call.out;
    return !err && lacks_response ? make_empty_response(run) : err;
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
    err = end_filters(&run, err);
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
    return end_filters(&run, err);
}

/* ---- asynchronous calls ---- */

/* Makes the call, with a copy of the key, which the caller's may not outlive. out: NULL: no
 * memory. */
static teffi_filtered_call *new_filtered_call(teff_ctx *ctx, const teff_key *key)
{
    size_t text_len = key->text ? strlen(key->text) : 0;
    struct {
        teffi_filtered_call filtered;
        teff_key key;
        char text[];
    } *memory = teff_arena_alloc(&ctx->arena, sizeof *memory + text_len + 1);
    if (!memory)
        return NULL;
    memory->key = *key;
    if (key->text) {
        memcpy(memory->text, key->text, text_len + 1);
        memory->key.text = memory->text;
    }
    memory->filtered = (teffi_filtered_call){.run.call.key = &memory->key};
    return &memory->filtered;
}

/* Runs the `after` functions, and keeps the outcome for later calls of teff_await. */
static void end_filtered_call(teffi_filtered_call *filtered, teff_err err)
{
    teff_ctx *ctx = filtered->run.call.ctx;
    filtered->err = end_filters(&filtered->run, err);
    filtered->ended = true;
    if (filtered->err)
        filtered->text = teff_arena_copy(&ctx->arena, teff_error(ctx), strlen(teff_error(ctx)));
}

teff_err teffi_outgoing_ask_async(teff_ctx *ctx, const teff_type_info *type, const teff_key *key,
                                  const teff_method *method, const ProtobufCMessage *in,
                                  const teff_call_options *options, teff_call *call,
                                  teffi_ask_async_fn *call_plain)
{
    teffi_filtered_call *filtered = new_filtered_call(ctx, key);
    teff_call own = {NULL};
    if (!filtered)
        return teff_fail(ctx, TEFF_E_NOMEM, "out of memory for a call of %s", method->name);
    prepare_run(&filtered->run, ctx, type, filtered->run.call.key, method, in);
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
        return teff_fail(ctx, filtered->err, "%s", filtered->text ? filtered->text : "");
    if (out && filtered->run.call.method->out)
        *out = filtered->run.call.out;
    return TEFF_OK;
}
