/* reference.c - calls by key: from a turn, a thread of the silo's process, or a client.
 * Way:     generated stubs -> [reference] -> route (silo) | gateway (client) ... -> call -> answer
 * Threads: on the context's own turn or thread. */
#include "direct.h"
#include "grains.h"
#include "placement.h"
#include "route.h"
#include "turn.h"

enum { CLIENT_RETRY_MS = 20, FEW = 8 };

static teff_err check(teff_ctx *ctx, const teff_type_info *type, const teff_method *method,
                      const ProtobufCMessage *in)
{
    if (method->in && !in)
        return teffi_ctx_fail(ctx, TEFF_E_INVALID, "%s: the request is NULL", method->name);
    size_t max = type->max_message_bytes;
    if (max && in && protobuf_c_message_get_packed_size(in) > max)
        return teffi_ctx_fail(ctx, TEFF_E_TOO_LARGE, "%s: the request is over %zu bytes",
                              method->name, max);
    return TEFF_OK;
}

static uint64_t deadline_of(teff_ctx *ctx, const teff_method *method)
{
    return teffi_now(ctx->node->platform) + teffi_timeout_ms(ctx, method) * 1000000ull;
}

enum { LENT_FIELDS_MAX = 64 }; /* looked at in each call */

/* Packing it needs no more care than copying it would. */
static bool is_flat(const teffi_ask *ask)
{
    const ProtobufCMessageDescriptor *desc = ask->method->in->desc;
    if (!ask->in || ask->in->descriptor != desc || ask->in->n_unknown_fields ||
        desc->n_fields > LENT_FIELDS_MAX)
        return false;
    for (unsigned i = 0; i < desc->n_fields; i++)
        if (desc->fields[i].type == PROTOBUF_C_TYPE_MESSAGE)
            return false;
    return true;
}

/* Most that leave this process are packed from where they lie, before the caller goes on. */
static bool may_lend(const teffi_ask *ask)
{
    bool leaves = ask->ctx->node->role == TEFFI_ROLE_CLIENT || !teffi_node_none(ask->hint);
    return leaves && (!ask->method->in || is_flat(ask));
}

static void lend(teffi_msg *msg, const teffi_ask *ask)
{
    msg->borrows = true;
    msg->key_len = ask->ident.key_len;
    msg->key = ask->bytes;
    if (ask->method->in)
        msg->body = (ProtobufCMessage *)(uintptr_t)ask->in; /* read only */
}

static teff_err put_key(teffi_msg *msg, const teffi_ask *ask)
{
    msg->key_len = ask->ident.key_len;
    msg->key = teff_arena_copy(&msg->arena, ask->bytes, msg->key_len);
    return msg->key ? TEFF_OK
                    : teffi_ctx_fail(ask->ctx, TEFF_E_NOMEM, "out of memory for a request");
}

static teff_err put_body(teffi_msg *msg, const teffi_ask *ask)
{
    if (!ask->method->in)
        return TEFF_OK;
    msg->body = ask->method->in->copy(&msg->arena, ask->in);
    if (!msg->body)
        return teffi_ctx_fail(ask->ctx, TEFF_E_TOO_LARGE,
                              "%s: the request is too deep or too large to copy",
                              ask->method->name);
    return TEFF_OK;
}

/* A message with everything but the call it belongs to; what it is made of has been checked. */
static teff_err make(const teffi_ask *ask, uint32_t kind, teffi_msg **out)
{
    teffi_msg *msg = teffi_msg_new(kind);
    if (!msg)
        return teffi_ctx_fail(ask->ctx, TEFF_E_NOMEM, "out of memory for a request");
    msg->src = ask->ctx->node->id;
    msg->flags = teffi_placement_flags(ask->type->placement);
    msg->type_id = ask->type->id;
    msg->method_id = ask->method->id;
    msg->hash = ask->ident.hash;
    teff_err err = TEFF_OK;
    if (may_lend(ask))
        lend(msg, ask);
    else if (!(err = put_key(msg, ask)))
        err = put_body(msg, ask);
    if (err)
        teffi_msg_free(msg);
    else
        *out = msg;
    return err;
}

static teff_err to_gateway(teffi_node *node, teffi_msg *msg)
{
    /* relaxed: one that is gone takes no messages, and this one comes again */
    teffi_node_id gateway =
        teffi_node_of_word(atomic_load_explicit(&node->gateway, memory_order_relaxed));
    if (teffi_node_none(gateway))
        return TEFF_E_UNREACHABLE;
    if (msg->item.kind == TEFFI_MSG_REQUEST)
        teffi_call_sent_to(node, msg->call_slot, msg->call_generation, gateway);
    return node->net->ops->send(node->net, gateway, msg);
}

/* A client's message that no gateway took: surely not sent. Owns msg on TEFF_OK. */
static teff_err send_client(teff_ctx *ctx, teffi_msg *msg)
{
    uint64_t deadline = msg->deadline_ns;
    for (;;) {
        teff_err err = to_gateway(ctx->node, msg);
        if (err != TEFF_E_UNREACHABLE && err != TEFF_E_CLOSED)
            return err;
        if (teffi_now(ctx->node->platform) + CLIENT_RETRY_MS * 1000000ull >= deadline)
            return TEFF_E_UNAVAILABLE;
        teffi_ctx_sleep(ctx, CLIENT_RETRY_MS);
    }
}

static teff_err dispatch(const teffi_ask *ask, teffi_msg *msg)
{
    teff_ctx *ctx = ask->ctx;
    if (ctx->node->role == TEFFI_ROLE_CLIENT)
        return send_client(ctx, msg);
    if (ask->elsewhere)
        teffi_route_elsewhere(ctx->node->grains, msg, ask->hint);
    else
        teffi_route(ctx->node->grains, msg);
    return TEFF_OK;
}

static const char *why_not_sent(teff_err err)
{
    return err == TEFF_E_TOO_LARGE     ? "the request is larger than a frame may be"
           : err == TEFF_E_OVERLOADED  ? "the link to the gateway is full"
           : err == TEFF_E_UNAVAILABLE ? "no gateway can be reached; the call did not run"
                                       : "the request could not be sent";
}

static teffi_call *start(const teffi_ask *ask, teffi_msg *msg, uint64_t deadline)
{
    teffi_call *call = teffi_call_new(ask->ctx->node, ask->ctx, deadline);
    if (!call)
        return NULL;
    call->out_desc = ask->method->out ? ask->method->out->desc : NULL;
    msg->call_slot = call->slot;
    msg->call_generation = call->generation;
    msg->deadline_ns = deadline;
    teff_err err = dispatch(ask, msg);
    if (err) {
        teffi_msg_free(msg);
        (void)teffi_call_fail(call, err, why_not_sent(err));
    }
    return call;
}

/* Not inlined, as answer_of, ask_again and send below: most calls end in place. */
__attribute__((noinline)) static teff_err start_call(const teffi_ask *ask, bool awaited,
                                                     teff_call *call)
{
    teffi_msg *msg = NULL;
    call->impl = NULL;
    teff_err err = make(ask, TEFFI_MSG_REQUEST, &msg);
    if (!msg)
        return err;
    msg->awaited = awaited;
    call->impl = start(ask, msg, deadline_of(ask->ctx, ask->method));
    if (call->impl)
        return TEFF_OK;
    teffi_msg_free(msg);
    return teffi_ctx_fail(ask->ctx, TEFF_E_NOMEM, "out of memory for a call");
}

teff_err teff_reply(teff_ctx *ctx, teff_call call, ProtobufCMessage **out)
{
    if (!call.impl)
        return teffi_ctx_fail(ctx, TEFF_E_INVALID, "the call was not started");
    return teffi_ctx_await_call(ctx, call.impl, out);
}

static void forget(teffi_call *call)
{
    if (!call)
        return;
    teffi_ctx_unlist(call);
    teffi_call_release(call);
}

/* What is asked of whom, checked, into memory of the caller's that nobody cleared: it holds a
 * kilobyte for a key. */
static inline teff_err prepare(teffi_ask *ask, teff_ctx *ctx, const teff_type_info *type,
                               const teff_key *key, const teff_method *method,
                               const ProtobufCMessage *in)
{
    const char *why;
    teff_err err = check(ctx, type, method, in);
    if (err)
        return err;
    ask->ctx = ctx;
    ask->type = type;
    ask->method = method;
    ask->in = in;
    ask->elsewhere = false;
    ask->hint = (teffi_node_id){0};
    uint32_t len = teffi_key_encode(type->key_kind, key, ask->bytes, &why);
    ask->ident = (teffi_ident){type->id, len, ask->bytes, 0};
    return len ? TEFF_OK : teffi_ctx_fail(ctx, TEFF_E_INVALID, "%s: %s", type->name, why);
}

__attribute__((noinline)) static teff_err
answer_of(teff_ctx *ctx, teff_call call, const teff_method *method, ProtobufCMessage **out)
{
    teff_err err = teff_reply(ctx, call, out);
    if (!err && !method->out) /* nothing of it is needed any more */
        forget(call.impl);
    return err;
}

/* In place when that may be, else through the queue. */
static inline __attribute__((always_inline)) teff_err
ask_once(teff_ctx *ctx, const teff_type_info *type, const teff_key *key, const teff_method *method,
         const ProtobufCMessage *in, ProtobufCMessage **out)
{
    teffi_ask this __attribute__((uninitialized));
    teff_call call = {NULL};
    teff_err err = prepare(&this, ctx, type, key, method, in);
    if (err)
        return err;
    if (!ctx->owner || !teffi_direct_ask(&this, out, &call.impl, &err))
        err = start_call(&this, true, &call);
    return err || !call.impl ? err : answer_of(ctx, call, method, out);
}

__attribute__((noinline)) static teff_err ask_again(teff_ctx *ctx, const teff_type_info *type,
                                                    const teff_key *key, const teff_method *method,
                                                    const ProtobufCMessage *in,
                                                    ProtobufCMessage **out)
{
    uint64_t deadline = deadline_of(ctx, method);
    for (;;) {
        teff_err err = ask_once(ctx, type, key, method, in, out);
        if (err != TEFF_E_UNREACHABLE || teffi_now(ctx->node->platform) >= deadline)
            return err;
        teffi_ctx_sleep(ctx, CLIENT_RETRY_MS);
    }
}

static inline __attribute__((always_inline)) teff_err
ask(teff_ctx *ctx, const teff_type_info *type, const teff_key *key, const teff_method *method,
    const ProtobufCMessage *in, ProtobufCMessage **out)
{
    return method->flags & TEFF_METHOD_IDEMPOTENT ? ask_again(ctx, type, key, method, in, out)
                                                  : ask_once(ctx, type, key, method, in, out);
}

__attribute__((noinline)) static teff_err send(const teffi_ask *ask)
{
    teffi_msg *msg = NULL;
    teff_err err = make(ask, TEFFI_MSG_ONEWAY, &msg);
    if (!msg)
        return err;
    if (ask->ctx->node->role == TEFFI_ROLE_CLIENT)
        msg->deadline_ns = deadline_of(ask->ctx, ask->method);
    err = dispatch(ask, msg);
    if (err) {
        teffi_msg_free(msg);
        return teffi_ctx_fail(ask->ctx, err, "%s: %s", ask->method->name, why_not_sent(err));
    }
    return TEFF_OK;
}

/* One suspension for all of them. */
static void await_each(teff_ctx *ctx, const teff_call *calls, size_t n)
{
    teffi_wait *few[FEW] = {NULL}, **waits = n <= FEW ? few : teff_alloc(ctx, n * sizeof *waits);
    size_t n_waits = 0;
    for (size_t i = 0; i < n; i++)
        if (calls[i].impl)
            waits[n_waits++] = &calls[i].impl->wait;
    teffi_await(ctx, waits, n_waits);
}

teff_err teff_await_all(teff_ctx *ctx, const teff_call *calls, size_t n)
{
    await_each(ctx, calls, n);
    for (size_t i = 0; i < n; i++) {
        teff_err err = teff_reply(ctx, calls[i], NULL);
        if (err)
            return err;
    }
    return TEFF_OK;
}

/* ---- the public calls: a thread keeps the node from closing while it is inside ---- */

static bool enter(teff_ctx *ctx)
{
    if (ctx->group) {
        (void)teff_reschedule();
        return true;
    }
    return teffi_node_enter(ctx->node);
}

static teff_err leave(teff_ctx *ctx, teff_err err)
{
    if (!ctx->group)
        teffi_node_exit(ctx->node);
    return err;
}

static teff_err closed(teff_ctx *ctx)
{
    return teffi_ctx_fail(ctx, TEFF_E_CLOSED, "the silo or client of this context is closed");
}

/* As ask_once, for who does not wait. */
static inline __attribute__((always_inline)) teff_err
start_any(teff_ctx *ctx, const teff_type_info *type, const teff_key *key, const teff_method *method,
          const ProtobufCMessage *in, teff_call *call)
{
    teffi_ask this __attribute__((uninitialized));
    teff_err err = prepare(&this, ctx, type, key, method, in);
    if (err || (ctx->owner && teffi_direct_start(&this, &call->impl)))
        return err;
    return start_call(&this, false, call);
}

static inline __attribute__((always_inline)) teff_err
send_any(teff_ctx *ctx, const teff_type_info *type, const teff_key *key, const teff_method *method,
         const ProtobufCMessage *in)
{
    teffi_ask this __attribute__((uninitialized));
    teff_err err = prepare(&this, ctx, type, key, method, in);
    if (err || (ctx->owner && teffi_direct_send(&this)))
        return err;
    return send(&this);
}

teff_err teff_start(teff_ctx *ctx, const teff_type_info *type, const teff_key *key,
                    const teff_method *method, const ProtobufCMessage *in, teff_call *call)
{
    call->impl = NULL;
    return enter(ctx) ? leave(ctx, start_any(ctx, type, key, method, in, call)) : closed(ctx);
}

teff_err teff_ask(teff_ctx *ctx, const teff_type_info *type, const teff_key *key,
                  const teff_method *method, const ProtobufCMessage *in, ProtobufCMessage **out)
{
    return enter(ctx) ? leave(ctx, ask(ctx, type, key, method, in, out)) : closed(ctx);
}

teff_err teff_send(teff_ctx *ctx, const teff_type_info *type, const teff_key *key,
                   const teff_method *method, const ProtobufCMessage *in)
{
    return enter(ctx) ? leave(ctx, send_any(ctx, type, key, method, in)) : closed(ctx);
}

void teff_deactivate(teff_ctx *ctx)
{
    teffi_activation *act = teffi_turn_activation(ctx);
    if (act && !act->reason)
        act->reason = TEFF_REASON_REQUESTED;
}
