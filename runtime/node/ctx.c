/* ctx.c - contexts of turns and threads: memory, errors, calls and waits.
 * Way:     grains/turn, task, user threads -> [ctx] -> call, wait */
#include "node/ctx.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "base/bug.h"
#include "sched/closure.h"
#include "wire/encode.h"

/* A turn's call whose end is on the way is freed when it arrives; a thread waits for it. */
static void drop_call(teff_ctx *ctx, teffi_call *call)
{
    if (teffi_call_abandon(call)) {
        teffi_call_release(call);
    } else if (ctx->group) {
        call->wait.orphan = true;
        call->wait.ctx = NULL;
    } else {
        teffi_wait *wait = &call->wait;
        teffi_await(ctx, &wait, 1);
        teffi_call_release(call);
    }
}

static void drop_newest(teff_ctx *ctx)
{
    teffi_call *call = ctx->calls;
    teffi_ctx_unlist(call);
    drop_call(ctx, call);
}

/* Those that came after the call of that number. */
static void drop_calls(teff_ctx *ctx, uint32_t last)
{
    while (ctx->calls && (int32_t)(ctx->calls->number - last) > 0)
        drop_newest(ctx);
}

void teffi_ctx_fini(teff_ctx *ctx)
{
    while (ctx->calls)
        drop_newest(ctx);
    teffi_arena_fini(&ctx->arena);
    ctx->text = NULL;
}

teff_ctx *teffi_ctx_new(teffi_node *node)
{
    teff_ctx *ctx = malloc(sizeof *ctx);
    if (!ctx)
        return NULL;
    teffi_ctx_init(ctx, node, NULL);
    if (teffi_node_enter(node)) {
        ctx->runs = node->exec->ops->park ? node->exec : NULL;
        teffi_node_exit(node);
    }
    return ctx;
}

void teff_ctx_free(teff_ctx *ctx)
{
    if (!ctx)
        return;
    teffi_bug_if(ctx->group != NULL);
    teffi_ctx_fini(ctx);
    free(ctx);
}

void teff_ctx_reset(teff_ctx *ctx)
{
    if (!ctx->group)
        teffi_ctx_fini(ctx);
}

teff_mark teff_ctx_mark(teff_ctx *ctx)
{
    teffi_arena_mark here = teffi_arena_here(&ctx->arena);
    return (teff_mark){{here.at, here.end, here.chunks}, here.used_bytes, ctx->n_calls};
}

void teff_ctx_forget(teff_ctx *ctx, teff_mark mark)
{
    drop_calls(ctx, mark.n_calls);
    teffi_arena_back(&ctx->arena,
                     (teffi_arena_mark){mark.at[0], mark.at[1], mark.at[2], mark.used});
}

void teff_drop(teff_ctx *ctx, teff_call *call)
{
    teffi_call *impl = call->impl;
    call->impl = NULL;
    if (!impl || !impl->back)
        return; /* it lies in the context's memory */
    teffi_ctx_unlist(impl);
    drop_call(ctx, impl);
}

void teff_ctx_timeout(teff_ctx *ctx, uint32_t ms)
{
    ctx->timeout_ms = ms;
}

const char *teff_error(const teff_ctx *ctx)
{
    return ctx->text ? ctx->text : "";
}

static void set_text(teff_ctx *ctx, const char *fmt, va_list args)
{
    vsnprintf(ctx->text_buf, sizeof ctx->text_buf, fmt, args);
    ctx->text = ctx->text_buf;
}

teff_err teffi_ctx_fail(teff_ctx *ctx, teff_err err, const char *fmt, ...)
{
    va_list args;
    va_start(args, fmt);
    set_text(ctx, fmt, args);
    va_end(args);
    return err;
}

teff_err teff_fail(teff_ctx *ctx, teff_err err, const char *fmt, ...)
{
    va_list args;
    va_start(args, fmt);
    set_text(ctx, fmt, args);
    va_end(args);
    return err == TEFF_OK ? TEFF_E_FAILED : err;
}

/* Grain code is promised that memory does not fail; a process without any left cannot go on. */
void *teff_alloc(teff_ctx *ctx, size_t n)
{
    void *p = teff_arena_alloc(&ctx->arena, n);
    teffi_bug_if(!p);
    return p;
}

char *teff_strdup(teff_ctx *ctx, const char *s)
{
    void *p = teff_arena_copy(&ctx->arena, s, strlen(s));
    teffi_bug_if(!p);
    return p;
}

typedef struct sleeper {
    teffi_wait wait;
    teffi_timer timer;
} sleeper;

static void slept(teffi_timer *timer)
{
    teffi_wait_signal(&teffi_container(timer, sleeper, timer)->wait);
}

void teffi_ctx_sleep(teff_ctx *ctx, uint32_t ms)
{
    sleeper s = {.timer = {.fire = slept}};
    teffi_wait *wait = &s.wait;
    teffi_exec *exec = ctx->node->exec;
    teffi_wait_init(wait, ctx, NULL);
    exec->ops->timer_set(exec, &s.timer, teffi_now(ctx->node->platform) + ms * 1000000ull);
    teffi_await(ctx, &wait, 1);
}

typedef struct errand {
    teffi_wait wait;
    void (*fn)(void *arg);
    void *arg;
} errand;

static void run_errand(teffi_wait *wait)
{
    errand *e = teffi_container(wait, errand, wait);
    e->fn(e->arg);
}

void teffi_ctx_on_worker(teff_ctx *ctx, void (*fn)(void *arg), void *arg)
{
    errand e = {.fn = fn, .arg = arg};
    teffi_wait *wait = &e.wait;
    teffi_wait_init(wait, ctx, run_errand);
    teffi_wait_signal(wait);
    teffi_await(ctx, &wait, 1);
}

teff_err teff_post(teff_ctx *ctx, void (*fn)(void *arg), void *arg)
{
    teffi_node *node = ctx->node;
    teffi_closure *closure = teffi_closure_new(fn, arg);
    if (!closure)
        return teffi_ctx_fail(ctx, TEFF_E_NOMEM, "out of memory");
    if (ctx->group) {
        (void)teffi_closure_push(ctx->group, closure);
        return TEFF_OK;
    }
    if (!teffi_node_enter(node)) {
        teffi_closure_drop(&closure->item);
        return teffi_ctx_fail(ctx, TEFF_E_CLOSED, "the silo or client is closed");
    }
    (void)teffi_closure_push(&node->exec->null, closure);
    teffi_node_exit(node);
    return TEFF_OK;
}

typedef struct store_wait {
    teffi_store_op op;
    teffi_wait wait;
} store_wait;

static void stored(teffi_store_op *op)
{
    teffi_wait_signal(&teffi_container(op, store_wait, op)->wait);
}

teff_err teffi_ctx_store(teff_ctx *ctx, teffi_store_op *op)
{
    store_wait s = {.op = *op};
    teffi_wait *wait = &s.wait;
    s.op.done = stored;
    teffi_wait_init(wait, ctx, NULL);
    teffi_store_submit(ctx->node->store, &s.op);
    teffi_await(ctx, &wait, 1);
    *op = s.op;
    if (op->err && op->err != TEFF_E_CONFLICT)
        return teffi_ctx_fail(ctx, op->err, "store: %s", op->text);
    return op->err;
}

/* Not inlined: most that were started have ended when they are awaited, one by one or together. */
__attribute__((noinline)) static void await_call(teff_ctx *ctx, teffi_call *call)
{
    teffi_wait *wait = &call->wait;
    teffi_await(ctx, &wait, 1);
}

teff_err teffi_ctx_await_call(teff_ctx *ctx, teffi_call *call, ProtobufCMessage **reply)
{
    if (ctx->group && call->wait.done)
        (void)teff_reschedule();
    else
        await_call(ctx, call);
    if (call->err)
        return teffi_ctx_fail(ctx, call->err, "%s", call->text ? call->text : "");
    if (reply)
        *reply = call->reply ? call->reply->body : call->body;
    return TEFF_OK;
}

static teffi_msg *rpc_msg(teffi_node *node, teffi_node_id to, unsigned slot, uint32_t method,
                          const ProtobufCMessage *body)
{
    teffi_msg *msg = teffi_msg_new(TEFFI_MSG_REQUEST);
    if (!msg)
        return NULL;
    msg->src = node->id;
    msg->to = (teffi_pid){.node = to, .slot = slot};
    msg->method_id = method;
    msg->raw_len = teffi_packed_size(body);
    uint8_t *raw = teff_arena_alloc(&msg->arena, msg->raw_len);
    if (!raw) {
        teffi_msg_free(msg);
        return NULL;
    }
    teffi_pack(body, msg->raw_len, raw);
    msg->raw = raw;
    return msg;
}

teffi_call *teffi_ctx_rpc_start(teff_ctx *ctx, teffi_node_id to, unsigned slot, uint32_t method,
                                const ProtobufCMessage *body, uint32_t timeout_ms,
                                const ProtobufCMessageDescriptor *desc)
{
    teffi_node *node = ctx->node;
    uint64_t deadline = teffi_now(node->platform) + timeout_ms * 1000000ull;
    teffi_msg *msg = rpc_msg(node, to, slot, method, body);
    teffi_call *call = msg ? teffi_call_new(node, ctx, deadline) : NULL;
    if (!call) {
        teffi_msg_free(msg);
        return NULL;
    }
    call->out_desc = desc;
    msg->call_slot = call->slot;
    msg->call_generation = call->generation;
    msg->deadline_ns = deadline;
    teffi_call_asks(call, to);
    teff_err err = teffi_node_send(node, to, msg);
    if (err) {
        teffi_msg_free(msg);
        (void)teffi_call_fail(call, err, "the silo cannot be reached");
    }
    return call;
}

teff_err teffi_ctx_rpc(teff_ctx *ctx, teffi_node_id to, unsigned slot, uint32_t method,
                       const ProtobufCMessage *body, uint32_t timeout_ms,
                       const ProtobufCMessageDescriptor *desc, ProtobufCMessage **reply)
{
    teffi_call *call = teffi_ctx_rpc_start(ctx, to, slot, method, body, timeout_ms, desc);
    if (!call)
        return teffi_ctx_fail(ctx, TEFF_E_NOMEM, "out of memory for a call");
    return teffi_ctx_await_call(ctx, call, reply);
}
