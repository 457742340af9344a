/* filter.c - see filter.h. */
#include "activation/filter.h"

#include <stdio.h>
#include <stdlib.h>
#include "activation/turn.h"
#include "base/error.h"

/* What a type has if its methods run filters. */
struct teffi_incoming {
    teffi_filters filters;
    const teff_type_info *plain; /* of the generated code */
    teff_type_info info;         /* a copy, with the table below */
    teff_method methods[];
};

static bool filter_is_last(const teff_filter *filter)
{
    return !filter->before && !filter->after;
}

bool teffi_filters_add(teffi_filters *filters, const teff_filter *list)
{
    for (; list && !filter_is_last(list); list++) {
        if (filters->n == TEFF_FILTERS_MAX)
            return false;
        filters->of[filters->n++] = list;
    }
    return true;
}

/* ---- one call ---- */

/* An error of a filter: makes it a valid one, with a text. */
static teff_err make_valid_filter_error(const teff_filter_call *call, teff_err err)
{
    teff_ctx *ctx = call->ctx;
    bool has_text = ctx->text && ctx->text[0];
    if (!err || (teffi_err_is_in_range(err) && has_text && ctx->text_err == err))
        return err;
    if (!teffi_err_is_in_range(err))
        return teff_fail(ctx, TEFF_E_FAILED, "a filter of %s returned %d, which is not in 1 .. %d",
                         call->method->name, (int)err, TEFF_E_MAX);
    return teff_fail(ctx, err, "a filter of %s returned %s", call->method->name,
                     teff_err_name(err));
}

teff_err teffi_filters_begin(teffi_filter_run *run)
{
    while (run->begun < run->filters->n && !run->call.answered) {
        const teff_filter *filter = run->filters->of[run->begun];
        uint32_t timeout_ms = run->call.ctx->timeout_ms;
        run->call.state = NULL;
        teff_err err = filter->before ? filter->before(filter->arg, &run->call) : TEFF_OK;
        run->call.ctx->timeout_ms = timeout_ms;
        if (err)
            return make_valid_filter_error(&run->call, err);
        run->states[run->begun++] = run->call.state;
    }
    return TEFF_OK;
}

/* If the function returns the outcome so far, its text stays, though calls of the filter itself may
 * have failed. */
static teff_err call_after(const teff_filter *filter, teff_filter_call *call, teff_err err)
{
    char text[TEFF_TEXT_MAX];
    uint32_t timeout_ms = call->ctx->timeout_ms;
    snprintf(text, sizeof text, "%s", err ? teff_error(call->ctx) : "");
    teff_err outcome = filter->after(filter->arg, call, err);
    call->ctx->timeout_ms = timeout_ms;
    return err && outcome == err && call->ctx->text_err != err
               ? teff_fail(call->ctx, err, "%s", text)
               : make_valid_filter_error(call, outcome);
}

teff_err teffi_filters_end(teffi_filter_run *run, teff_err err)
{
    while (run->begun > 0) {
        const teff_filter *filter = run->filters->of[--run->begun];
        run->call.state = run->states[run->begun];
        if (err && run->outgoing)
            run->call.out = NULL;
        if (filter->after)
            err = call_after(filter, &run->call, err);
    }
    return err;
}

/* ---- methods ---- */

static void fill_incoming_call(teffi_filter_run *run, const teff_grain *grain,
                               const ProtobufCMessage *in, ProtobufCMessage *out)
{
    const teffi_turn *turn = grain->ctx->owner;
    const teffi_incoming *incoming = turn->act->type->incoming;
    const teffi_msg *request = turn->request;
    run->filters = &incoming->filters;
    run->call =
        (teff_filter_call){.ctx = grain->ctx,
                           .type = incoming->plain,
                           .method = &incoming->plain->methods[turn->method - incoming->methods],
                           .key = &grain->key,
                           .in = in,
                           .out = out,
                           .kind = request->item.kind == TEFFI_ITEM_TICK    ? TEFF_CALL_TICK
                                   : request->item.kind == TEFFI_MSG_ONEWAY ? TEFF_CALL_ONE_WAY
                                                                            : TEFF_CALL_REQUEST,
                           .from = teffi_node_to_word(request->src),
                           .from_client = (request->src.silo & TEFFI_CLIENT_BIT) != 0};
}

/* Has the caller left while the filters waited? Then the method does not begin.
 * errs: TEFF_E_CANCELLED, TEFF_E_TIMEOUT. */
static teff_err check_caller_waits(teff_ctx *ctx)
{
    teff_err err = teff_ctx_check(ctx, NULL);
    if (!err)
        return TEFF_OK;
    (void)teff_fail(ctx, err, "the caller has left before the method began");
    return teffi_error_add_turn_prefix(ctx, err);
}

/* The `invoke` of each method of a type with filters. */
static teff_err invoke_through_filters(const teff_grain *grain, const void *methods,
                                       const ProtobufCMessage *in, ProtobufCMessage *out)
{
    teffi_filter_run run = {.begun = 0};
    fill_incoming_call(&run, grain, in, out);
    const teff_method *method = run.call.method;
    teffi_turn *turn = grain->ctx->owner;
    teff_err err = teffi_filters_begin(&run);
    if (!err && !run.call.answered)
        err = check_caller_waits(grain->ctx);
    turn->not_run = err != TEFF_OK; /* an answer to an idempotency key is stored if it ran */
    if (!err && !run.call.answered) {
        err = method->invoke(grain, methods, in, out);
        if (err)
            err = teffi_turn_make_valid_error(grain->ctx, turn->act, method->name, err);
        if (err && out)
            method->out->desc->message_init(out);
    }
    return teffi_filters_end(&run, err);
}

teff_err teffi_type_add_filters(teff_grain_type *type, const teff_filter *silo)
{
    const teff_type_info *plain = type->info;
    teffi_filters filters = {0};
    if (!teffi_filters_add(&filters, silo) || !teffi_filters_add(&filters, type->filters))
        return TEFF_E_INVALID;
    if (!filters.n)
        return TEFF_OK;
    teffi_incoming *incoming =
        malloc(sizeof *incoming + plain->n_methods * sizeof *incoming->methods);
    if (!incoming)
        return TEFF_E_NOMEM;
    incoming->filters = filters;
    incoming->plain = plain;
    incoming->info = *plain;
    incoming->info.methods = incoming->methods;
    for (size_t i = 0; i < plain->n_methods; i++) {
        incoming->methods[i] = plain->methods[i];
        incoming->methods[i].invoke = invoke_through_filters;
    }
    type->incoming = incoming;
    type->info = &incoming->info;
    return TEFF_OK;
}

void teff_grain_type_filter(teff_grain_type *type, const teff_filter *filters)
{
    if (type->info) /* otherwise memory was out when it was made */
        type->filters = filters;
}
