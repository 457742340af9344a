/* reference.c - teff_ask and the other calls by key, from turns and from threads of silos or
 * clients.
 * Way:     generated stubs -> [reference] -> route (silo) | gateway (client) -> call -> response
 * Threads: on the context's own turn or thread. */
#include <stdio.h>
#include "activation/transaction.h"
#include "base/options.h"
#include "call/call.h"
#include "call/calls.h"
#include "call/ctx.h"
#include "call/wait.h"
#include "directory/placement.h"
#include "node/deliver.h"
#include "request/ask.h"
#include "request/outgoing.h"
#include "request/route.h"

enum { RETRY_MS = 20, FEW = 8 };

enum { BORROWED_FIELDS_MAX = 64 }; /* request_is_flat() reads them in each call */

/* Is the request of the method's type, with few fields, and without unknown fields and nested
 * messages? Such a request can be packed from the caller's memory; others are copied first. */
static bool request_is_flat(const teffi_ask *ask)
{
    const ProtobufCMessageDescriptor *desc = ask->method->in->desc;
    if (!ask->in || ask->in->descriptor != desc || ask->in->n_unknown_fields ||
        desc->n_fields > BORROWED_FIELDS_MAX)
        return false;
    for (unsigned i = 0; i < desc->n_fields; i++)
        if (desc->fields[i].type == PROTOBUF_C_TYPE_MESSAGE)
            return false;
    return true;
}

/* May the message point to the caller's request, instead of a copy? A flat request to another node
 * is not copied, because it is packed before the caller continues. */
static bool may_borrow_request(const teffi_ask *ask)
{
    bool leaves = ask->ctx->node->role == TEFFI_ROLE_CLIENT || !teffi_node_is_none(ask->location);
    return leaves && (!ask->method->in || request_is_flat(ask));
}

/* Checks the request, and lets msg point to it and to the key. */
__attribute__((noinline)) static teff_err borrow_request(teffi_msg *msg, const teffi_ask *ask)
{
    const teff_method *method = ask->method;
    size_t packed;
    msg->borrows = true;
    msg->key_len = ask->ident.key_len;
    msg->key = ask->bytes;
    if (!method->in)
        return TEFF_OK;
    teff_err err =
        teffi_message_check(ask->ctx, ask->type, method->in, ask->in, "request", &packed);
    if (err)
        return teffi_ask_add_error_prefix(ask, err);
    msg->body = (ProtobufCMessage *)(uintptr_t)ask->in; /* read only */
    msg->packed_len = (uint32_t)packed;
    return TEFF_OK;
}

/* Copies key and request into msg's arena. Fails if there is no memory, or if the request is too
 * large or malformed. */
static teff_err copy_request(teffi_msg *msg, const teffi_ask *ask)
{
    const teff_method *method = ask->method;
    msg->key_len = ask->ident.key_len;
    msg->key = teff_arena_copy(&msg->arena, ask->bytes, msg->key_len);
    if (!msg->key)
        return teffi_ask_fail(ask, TEFF_E_NOMEM, "out of memory for the request");
    if (!method->in)
        return TEFF_OK;
    msg->body = teffi_message_copy_and_check(
        ask->type, teffi_message_unchecked_bytes_max(ask->type), method->in, &msg->arena, ask->in);
    if (msg->body)
        return TEFF_OK;
    return teffi_ask_add_error_prefix(
        ask,
        teffi_message_explain_failed_copy(ask->ctx, ask->type, method->in, ask->in, "request"));
}

/* Makes a request or a one-way message. Does not set msg->call and msg->deadline_ns. out:
 * *out: the message; unchanged on an error. */
static teff_err make_request(const teffi_ask *ask, uint32_t kind, teffi_msg **out)
{
    teffi_msg *msg = teffi_msg_new(kind);
    if (!msg)
        return teffi_ask_fail(ask, TEFF_E_NOMEM, "out of memory for the request");
    msg->src = ask->ctx->node->id;
    msg->flags = teffi_placement_flags(ask->type);
    msg->type_id = ask->type->id;
    msg->method_id = ask->method->id;
    msg->hash = ask->ident.hash;
    teff_err err = may_borrow_request(ask) ? borrow_request(msg, ask) : copy_request(msg, ask);
    if (!err && kind == TEFFI_MSG_REQUEST && teffi_transaction_may_be_found_for_turn(ask->ctx) &&
        !teffi_transaction_attach_to_request(ask->ctx, ask->method, msg))
        err = teffi_ask_fail(ask, TEFF_E_NOMEM, "out of memory for the request");
    if (err)
        teffi_msg_free(msg);
    else
        *out = msg;
    return err;
}

/* Sends msg to a gateway. While none can be reached, sleeps and tries again, until msg's deadline.
 * Owns msg on TEFF_OK. */
static teff_err send_to_gateway(teff_ctx *ctx, teffi_msg *msg)
{
    uint64_t deadline = msg->deadline_ns;
    for (;;) {
        teff_err err = teffi_node_send_to_gateway(ctx->node, msg);
        if (err != TEFF_E_UNREACHABLE && err != TEFF_E_CLOSED)
            return err;
        if (teffi_now(ctx->node->platform) + RETRY_MS * 1000000ull >= deadline)
            return TEFF_E_UNAVAILABLE;
        teffi_ctx_sleep(ctx, RETRY_MS);
    }
}

/* On a client, sends msg to a gateway; on a silo, passes msg to route.c. Owns msg on TEFF_OK. On a
 * silo, the result is always TEFF_OK. */
static teff_err dispatch_request(const teffi_ask *ask, teffi_msg *msg)
{
    teff_ctx *ctx = ask->ctx;
    if (ctx->node->role == TEFFI_ROLE_CLIENT)
        return send_to_gateway(ctx, msg);
    if (ask->elsewhere)
        teffi_route_elsewhere(ctx->node->grains, msg, ask->location);
    else
        teffi_route(ctx->node->grains, msg);
    return TEFF_OK;
}

const char *teffi_unsent_request_error_text(const teffi_node *node, teff_err err)
{
    if (err == TEFF_E_OVERLOADED && teffi_budget_is_exceeded(node->budget))
        return "the messages here take more memory than message_bytes_max allows";
    return err == TEFF_E_TOO_LARGE ? "the request is larger than a frame may be"
           : err == TEFF_E_OVERLOADED
               ? "too many bytes wait to be sent to the gateway: the limit is connection_bytes_max"
           : err == TEFF_E_UNAVAILABLE ? "no gateway can be reached; the call did not run"
                                       : "the request could not be sent";
}

/* Makes a pending call and sends msg. If msg cannot be sent, ends the call with the error. A call
 * that is not awaited at once stores its method and key, for error texts. out: the call; msg is
 * taken over. NULL if no call can be made (see teffi_call_new()); the caller still owns msg. */
static teffi_call *start_pending_call(const teffi_ask *ask, teffi_msg *msg, uint64_t deadline)
{
    teffi_call *call = teffi_ctx_call_new(ask->ctx, deadline);
    if (!call)
        return NULL;
    if (msg->awaited)
        teffi_call_expect_body(call, ask->method->out ? ask->method->out->desc : NULL, 0);
    else
        teffi_ask_store_in_call(call, ask);
    msg->call = (teffi_origin){call->slot, call->generation, 0};
    msg->deadline_ns = deadline;
    teff_err err = dispatch_request(ask, msg);
    if (err) {
        teffi_msg_free(msg);
        (void)teffi_call_fail(call, err, teffi_unsent_request_error_text(ask->ctx->node, err));
    }
    return call;
}

/* If a call could not start (err is not TEFF_OK) and its method is transactional, makes the
 * caller's transaction fail with err. out: err. */
__attribute__((noinline)) static teff_err
fail_transaction_on_start_error(teff_ctx *ctx, const teff_method *method, teff_err err)
{
    if (err && ctx->transaction)
        teffi_transaction_record_call_begin_error(ctx, method, err);
    return err;
}

/* Starts a call by sending a message. Not inlined, like the slow paths below, because most calls
 * run in place. in: awaited: true if the caller awaits the call at once; `once`: an idempotency key
 * or NULL. out: call->impl: NULL on an error. */
__attribute__((noinline)) static teff_err start_call(const teffi_ask *ask, bool awaited,
                                                     const teff_uuid *once, teff_call *call)
{
    teffi_msg *msg = NULL;
    uint64_t deadline = teffi_ask_deadline(ask->ctx, ask->method);
    call->impl = NULL;
    if (!deadline)
        return teffi_ask_fail(ask, TEFF_E_TIMEOUT, teffi_ctx_late_text);
    teff_err err = make_request(ask, TEFFI_MSG_REQUEST, &msg);
    if (!msg)
        return err;
    msg->awaited = awaited;
    if (once)
        msg->once = teff_arena_copy(&msg->arena, once->bytes, TEFFI_ONCE_BYTES);
    if (!once || msg->once)
        call->impl = start_pending_call(ask, msg, deadline);
    if (call->impl)
        return TEFF_OK;
    teffi_msg_free(msg);
    return teffi_ask_fail(ask, TEFF_E_NOMEM, "out of memory for a call");
}

teff_err teff_await(teff_ctx *ctx, teff_call call, ProtobufCMessage **out)
{
    if (!call.impl)
        return teff_fail(ctx, TEFF_E_INVALID, "the call was not started");
    teffi_call_proxy *proxy = teffi_call_proxy_of_handle(call);
    if (proxy)
        return teffi_outgoing_await(ctx, teffi_container(proxy, teffi_filtered_call, proxy), out,
                                    teff_await);
    teff_err err = teffi_ctx_await_call(ctx, call.impl, out);
    if (ctx->transaction && teffi_call_get_method_and_key(call.impl))
        teffi_transaction_collect_call_result(ctx, teffi_call_get_method_and_key(call.impl)->method,
                                              call.impl);
    return err && teffi_call_text_lacks_method(call.impl)
               ? teffi_ask_add_error_prefix_from_call(ctx, call.impl, err)
               : err;
}

/* Sets ctx's error to err, and its text to method, key and the text `why`. out: err. */
__attribute__((noinline)) static teff_err fail_with_method_and_key(teff_ctx *ctx,
                                                                   const teff_method *method,
                                                                   const teff_key *key,
                                                                   teff_err err, const char *why)
{
    (void)teff_fail(ctx, err, "%s", why);
    return teffi_error_add_call_prefix(ctx, method, key, err);
}

/* Clears ask->elsewhere and ask->location. direct.c may set them at the next try. */
static inline void clear_location(teffi_ask *ask)
{
    ask->elsewhere = false;
    ask->location = (teffi_node_id){0};
}

/* Checks the arguments and fills ask. Sets each member by itself, because an initializer of the
 * whole struct would also clear the 1 KiB of ask->bytes, which is slow. */
static inline teff_err prepare_ask(teffi_ask *ask, teff_ctx *ctx, const teff_type_info *type,
                                   const teff_key *key, const teff_method *method,
                                   const ProtobufCMessage *in)
{
    const char *why;
    ask->ctx = ctx;
    ask->type = type;
    ask->method = method;
    ask->in = in;
    clear_location(ask);
    uint32_t len = teffi_key_encode(type->key_kind, key, ask->bytes, &why);
    ask->ident = (teffi_ident){type->id, len, ask->bytes, 0};
    if (!len)
        return fail_with_method_and_key(ctx, method, key, TEFF_E_INVALID, why);
    return in || !method->in ? TEFF_OK : teffi_ask_fail(ask, TEFF_E_INVALID, "the request is NULL");
}

/* Awaits the response of a call, and adds the call's participants or its error to the caller's
 * transaction, if there is one. If the call succeeded and its method returns no message, releases
 * the call at once; ctx releases other calls later. */
__attribute__((noinline)) static teff_err await_response(const teffi_ask *ask, teffi_call *call,
                                                         ProtobufCMessage **out)
{
    ask->ctx->asking = ask; /* deadlock.c reads it while the turn is suspended */
    teff_err err = teffi_ctx_await_call(ask->ctx, call, out);
    if (ask->ctx->transaction)
        teffi_transaction_collect_call_result(ask->ctx, ask->method, call);
    if (err && teffi_call_text_lacks_method(call))
        return teffi_ask_add_error_prefix(ask, err);
    if (!err && !ask->method->out) {
        LIST_REMOVE(call, in_ctx);
        teffi_call_release(call);
    }
    return err;
}

/* In a turn (ctx->owner is set), runs the call in place if possible. Otherwise sends a message and
 * awaits the response. */
static inline __attribute__((always_inline)) teff_err ask_once(teffi_ask *ask,
                                                               ProtobufCMessage **out)
{
    teff_call call = {NULL};
    teff_err err = TEFF_OK;
    if (!ask->ctx->owner || !teffi_direct_ask(ask, out, &call.impl, &err))
        err = start_call(ask, true, NULL, &call);
    return err || !call.impl ? err : await_response(ask, call.impl, out);
}

/* Calls an idempotent method, and repeats the call while it ends with TEFF_E_UNREACHABLE. All tries
 * share one deadline. If the deadline has passed already, `deadline` is 0, and ask_once() fails
 * with TEFF_E_TIMEOUT. */
__attribute__((noinline)) static teff_err ask_with_retries(teffi_ask *ask, ProtobufCMessage **out)
{
    const uint64_t pause_ns = RETRY_MS * 1000000ull;
    teff_ctx *ctx = ask->ctx;
    uint64_t deadline = teffi_ask_deadline(ctx, ask->method);
    uint32_t due_ms = ctx->due_ms;
    if (deadline)
        ctx->due_ms = teffi_due_ms_of(deadline);
    teff_err err = ask_once(ask, out);
    while (err == TEFF_E_UNREACHABLE && teffi_now(ctx->node->platform) + pause_ns < deadline) {
        teffi_ctx_sleep(ctx, RETRY_MS);
        clear_location(ask);
        err = ask_once(ask, out);
    }
    ctx->due_ms = due_ms;
    return err;
}

/* Asks a method that is idempotent or transactional. A call of a transactional method never runs in
 * place, because its turn waits for the store. */
__attribute__((noinline)) static teff_err ask_idempotent_or_transactional(teffi_ask *ask,
                                                                          ProtobufCMessage **out)
{
    teff_call call;
    if (ask->method->flags & TEFF_METHOD_IDEMPOTENT)
        return ask_with_retries(ask, out);
    teff_err err = start_call(ask, true, NULL, &call);
    return call.impl ? await_response(ask, call.impl, out)
                     : fail_transaction_on_start_error(ask->ctx, ask->method, err);
}

static inline __attribute__((always_inline)) teff_err
ask_grain(teff_ctx *ctx, const teff_type_info *type, const teff_key *key, const teff_method *method,
          const ProtobufCMessage *in, ProtobufCMessage **out)
{
    teffi_ask this __attribute__((uninitialized));
    teff_err err = prepare_ask(&this, ctx, type, key, method, in);
    if (err)
        return fail_transaction_on_start_error(ctx, method, err);
    const uint32_t special = TEFF_METHOD_IDEMPOTENT | TEFF_METHOD_TRANSACTIONAL;
    return method->flags & special ? ask_idempotent_or_transactional(&this, out)
                                   : ask_once(&this, out);
}

/* Sends a one-way message, which has no call. */
__attribute__((noinline)) static teff_err send_one_way(const teffi_ask *ask)
{
    teffi_msg *msg = NULL;
    teff_err err = make_request(ask, TEFFI_MSG_ONEWAY, &msg);
    if (!msg)
        return err;
    if (ask->ctx->node->role == TEFFI_ROLE_CLIENT) /* deadline of send_to_gateway()'s retries */
        msg->deadline_ns = teffi_ask_deadline(ask->ctx, ask->method);
    err = dispatch_request(ask, msg);
    if (err) {
        teffi_msg_free(msg);
        return teffi_ask_fail(ask, err, teffi_unsent_request_error_text(ask->ctx->node, err));
    }
    return TEFF_OK;
}

/* Lists the waits of those calls that were started. in: *n: the number of calls; `few`: an array
 * of FEW elements. out: the list, stored in `few` if there are at most FEW calls, otherwise in
 * ctx's memory; *n: the length of the list. */
static teffi_wait **list_waits(teff_ctx *ctx, const teff_call *calls, size_t *n, teffi_wait **few)
{
    teffi_wait **waits = *n <= FEW ? few : teff_alloc(ctx, *n * sizeof *waits);
    size_t n_waits = 0;
    for (size_t i = 0; i < *n; i++)
        if (teffi_call_of_handle(calls[i]))
            waits[n_waits++] = &teffi_call_of_handle(calls[i])->wait;
    *n = n_waits;
    return waits;
}

teff_err teff_await_all(teff_ctx *ctx, const teff_call *calls, size_t n)
{
    teffi_wait *few[FEW] = {NULL};
    size_t n_waits = n;
    teffi_wait **waits = list_waits(ctx, calls, &n_waits, few);
    /* One suspension. teff_await() below suspends only if an `after` of an outgoing filter does. */
    teffi_await(ctx, waits, n_waits);
    teff_err first = TEFF_OK;
    char text[TEFF_TEXT_MAX];
    for (size_t i = 0; i < n; i++) {
        teff_err err = teff_await(ctx, calls[i], NULL);
        if (!err || first)
            continue;
        first = err;
        snprintf(text, sizeof text, "%s", teff_error(ctx));
    }
    return first ? teff_fail(ctx, first, "%s", text) : TEFF_OK;
}

/* Has one of the calls an outcome from its filters, though no call was begun? */
static bool any_has_outcome(const teff_call *calls, size_t n)
{
    for (size_t i = 0; i < n; i++)
        if (calls[i].impl && !teffi_call_of_handle(calls[i]))
            return true;
    return false;
}

teff_err teff_await_any(teff_ctx *ctx, const teff_call *calls, size_t n, size_t *index)
{
    teffi_wait *few[FEW] = {NULL};
    size_t n_waits = n;
    teffi_wait **waits = list_waits(ctx, calls, &n_waits, few);
    if (!n_waits && !any_has_outcome(calls, n))
        return teff_fail(ctx, TEFF_E_INVALID, "none of the calls was begun");
    if (!any_has_outcome(calls, n))
        teffi_await_any(ctx, waits, n_waits);
    for (*index = 0; !calls[*index].impl || !teff_call_ended(ctx, calls[*index]);)
        ++*index;
    return TEFF_OK;
}

/* ---- the public calls ---- */

static teff_err fail_on_closed_context(teff_ctx *ctx, const teff_key *key,
                                       const teff_method *method)
{
    teff_err err = fail_with_method_and_key(ctx, method, key, TEFF_E_CLOSED,
                                            "the silo or client of this context is closed");
    return fail_transaction_on_start_error(ctx, method, err);
}

/* Starts a call that must not run in place. Such a call has a teff_cancel, an idempotency key or a
 * transactional method. With a teff_cancel, the call must be pending from the start, so that it can
 * be cancelled. In the other cases, the callee needs a message that holds the key or transaction.
 * in: cancel: may be NULL; `once`: an idempotency key or NULL. */
static teff_err start_call_not_in_place(const teffi_ask *ask, teff_cancel *cancel,
                                        const teff_uuid *once, teff_call *call)
{
    if (once && ask->ctx->transaction && (ask->method->flags & TEFF_METHOD_TRANSACTIONAL))
        return teffi_ask_fail(ask, TEFF_E_INVALID,
                              "a call in a transaction takes no idempotency "
                              "key: give one to the call that begins it");
    teff_err err = cancel ? teffi_cancel_reserve_room(cancel) : TEFF_OK;
    if (err == TEFF_E_CANCELLED)
        return teffi_ask_fail(ask, err, "cancelled before it began; the call did not run");
    if (err)
        return teffi_ask_fail(ask, err, "out of memory for a call that can be cancelled");
    err = start_call(ask, false, once, call);
    if (cancel)
        teffi_cancel_add_call(cancel, err ? NULL : call->impl);
    return err;
}

/* As ask_grain(), but does not await the call, and does not try again. in: cancel and once may be
 * NULL. */
static inline __attribute__((always_inline)) teff_err
start_grain_call(teff_ctx *ctx, const teff_type_info *type, const teff_key *key,
                 const teff_method *method, const ProtobufCMessage *in, teff_cancel *cancel,
                 const teff_uuid *once, teff_call *call)
{
    teffi_ask this __attribute__((uninitialized));
    teff_err err = prepare_ask(&this, ctx, type, key, method, in);
    if (!err && (cancel || once || (method->flags & TEFF_METHOD_TRANSACTIONAL)))
        err = start_call_not_in_place(&this, cancel, once, call);
    else if (!err)
        return ctx->owner && teffi_direct_ask_async(&this, &call->impl)
                   ? TEFF_OK
                   : start_call(&this, false, NULL, call);
    return fail_transaction_on_start_error(ctx, method, err);
}

static inline __attribute__((always_inline)) teff_err
send_to_grain(teff_ctx *ctx, const teff_type_info *type, const teff_key *key,
              const teff_method *method, const ProtobufCMessage *in)
{
    teffi_ask this __attribute__((uninitialized));
    teff_err err = prepare_ask(&this, ctx, type, key, method, in);
    if (err || (ctx->owner && teffi_direct_try_send(&this)))
        return err;
    return send_one_way(&this);
}

/* As start_grain_call(), with options. Passes the call's timeout in ctx->timeout_ms, and restores
 * ctx->timeout_ms afterwards. */
static teff_err start_call_with_options(teff_ctx *ctx, const teff_type_info *type,
                                        const teff_key *key, const teff_method *method,
                                        const ProtobufCMessage *in,
                                        const teff_call_options *options, teff_call *call)
{
    char text[TEFF_TEXT_MAX];
    teff_call_options opt;
    if (!teffi_options_check_and_copy(&opt, sizeof opt, options, "teff_call_options", text))
        return teff_fail(ctx, TEFF_E_INVALID, "%s", text);
    uint32_t timeout_ms = ctx->timeout_ms;
    ctx->timeout_ms = opt.timeout_ms ? opt.timeout_ms : timeout_ms;
    teff_err err = start_grain_call(ctx, type, key, method, in, opt.cancel, opt.once, call);
    ctx->timeout_ms = timeout_ms;
    return err;
}

teff_err teff_ask_async(teff_ctx *ctx, const teff_type_info *type, const teff_key *key,
                        const teff_method *method, const ProtobufCMessage *in,
                        const teff_call_options *options, teff_call *call)
{
    call->impl = NULL;
    if (!teffi_ctx_enter(ctx))
        return fail_on_closed_context(ctx, key, method);
    if (teffi_outgoing_run(ctx))
        return teffi_ctx_leave(ctx, teffi_outgoing_ask_async(ctx, type, key, method, in, options,
                                                             call, teff_ask_async));
    return teffi_ctx_leave(
        ctx, options ? start_call_with_options(ctx, type, key, method, in, options, call)
                     : start_grain_call(ctx, type, key, method, in, NULL, NULL, call));
}

teff_err teff_ask(teff_ctx *ctx, const teff_type_info *type, const teff_key *key,
                  const teff_method *method, const ProtobufCMessage *in, ProtobufCMessage **out)
{
    if (!teffi_ctx_enter(ctx))
        return fail_on_closed_context(ctx, key, method);
    return teffi_ctx_leave(ctx, teffi_outgoing_run(ctx)
                                    ? teffi_outgoing_ask(ctx, type, key, method, in, out, teff_ask)
                                    : ask_grain(ctx, type, key, method, in, out));
}

teff_err teff_send(teff_ctx *ctx, const teff_type_info *type, const teff_key *key,
                   const teff_method *method, const ProtobufCMessage *in)
{
    if (!teffi_ctx_enter(ctx))
        return fail_on_closed_context(ctx, key, method);
    return teffi_ctx_leave(ctx, teffi_outgoing_run(ctx)
                                    ? teffi_outgoing_send(ctx, type, key, method, in, teff_send)
                                    : send_to_grain(ctx, type, key, method, in));
}

void teff_deactivate(teff_ctx *ctx)
{
    teffi_activation *act = teffi_activation_of_ctx(ctx);
    if (act && !act->reason)
        act->reason = TEFF_REASON_REQUESTED;
}

void teff_delay_deactivation(teff_ctx *ctx, int64_t ms)
{
    teffi_activation *act = teffi_activation_of_ctx(ctx);
    if (act)
        teffi_activation_delay_end(act, ms);
}
