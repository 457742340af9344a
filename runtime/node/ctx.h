/* ctx.h - who is calling: a turn (fiber on a group) or a thread; its memory, calls and last error.
 * Way:     grains/turn, task, user threads -> [ctx] -> call, wait
 * Threads: one turn or thread at a time; signals end a thread's waits from any thread. */
#ifndef TEFFI_NODE_CTX_H
#define TEFFI_NODE_CTX_H

#include <stddef.h>
#include "base/arena.h"
#include "base/zero.h"
#include "fiber/fiber.h"
#include "node/call.h"
#include "node/node.h"
#include "node/wait.h"
#include "platform/thread.h"

struct teff_ctx {
    teffi_node *node;
    teffi_fiber *fiber; /* NULL: a thread's context */
    teffi_group *group; /* the turn's */
    void *owner;        /* grains: the turn */
    teff_arena arena;
    teffi_call *calls;           /* started, not released; newest first */
    uint32_t n_calls;            /* that there ever were in it; it goes round */
    uint32_t waiting;            /* turn: awaited waits that are not done */
    _Atomic uint32_t asleep_for; /* thread: waits that it sleeps for, not done */
    teffi_parker parker;         /* thread: who ends the last of them wakes it */
    bool suspended;              /* turn: the fiber sleeps in teffi_await */
    bool fatal;                  /* turn: memory ran out, end it */
    uint32_t timeout_ms;         /* teff_ctx_timeout */
    const char *text;            /* last error; NULL = none */
    teffi_exec *runs;            /* thread: runs the others as it waits; NULL: it sleeps */
    char text_buf[TEFF_TEXT_MAX];
};

/* teffi_ctx_init - for a turn: fiber is set when it starts. */
static inline void teffi_ctx_init(teff_ctx *ctx, teffi_node *node, teffi_group *group)
{
    teffi_zero(ctx, offsetof(teff_ctx, text_buf)); /* the rest is half a KiB, and not read before */
    ctx->node = node;
    ctx->group = group;
    teffi_arena_init(&ctx->arena, NULL, 0, 0);
}

/* teffi_ctx_fini - releases calls and memory, after which it is as new; calls still under way are
 * abandoned. */
void teffi_ctx_fini(teff_ctx *ctx);

/* teffi_ctx_end - the same of a turn's, which is not used any more. */
static inline void teffi_ctx_end(teff_ctx *ctx)
{
    if (ctx->calls || ctx->arena.chunks)
        teffi_ctx_fini(ctx);
}

/* teffi_ctx_new - a thread's context on the heap; teff_ctx_free ends it. */
teff_ctx *teffi_ctx_new(teffi_node *node);

/* teffi_ctx_list, _unlist - a call is ctx's, newest first; is not any more. */
static inline void teffi_ctx_list(teff_ctx *ctx, teffi_call *call)
{
    call->number = ++ctx->n_calls;
    call->next = ctx->calls;
    call->back = &ctx->calls;
    if (call->next)
        call->next->back = &call->next;
    ctx->calls = call;
}

static inline void teffi_ctx_unlist(teffi_call *call)
{
    *call->back = call->next;
    if (call->next)
        call->next->back = call->back;
}

/* teffi_ctx_fail - record an error's text where it began. out: err. */
teff_err teffi_ctx_fail(teff_ctx *ctx, teff_err err, const char *fmt, ...)
    __attribute__((format(printf, 3, 4)));

/* teffi_ctx_sleep - let ms pass. */
void teffi_ctx_sleep(teff_ctx *ctx, uint32_t ms);

/* teffi_ctx_on_worker - run fn(arg) on the worker's own stack (a thread's context: on the
 * thread's): for what needs more stack than a fiber has, such as unpacking bytes that came from
 * outside. */
void teffi_ctx_on_worker(teff_ctx *ctx, void (*fn)(void *arg), void *arg);

/* teffi_ctx_store - run a store operation and wait for it. out: op->err, text in ctx. */
TEFF_MUST_USE teff_err teffi_ctx_store(teff_ctx *ctx, teffi_store_op *op);

/* teffi_ctx_rpc - ask a system target of a silo (this one too).
 * in:   body, borrowed, packed. out: *reply, of type desc, in ctx's arena; may be NULL with desc
 *       NULL.
 * errs: what the target answered, TEFF_E_TIMEOUT, TEFF_E_UNREACHABLE, TEFF_E_CLOSED. */
TEFF_MUST_USE teff_err teffi_ctx_rpc(teff_ctx *ctx, teffi_node_id to, unsigned slot,
                                     uint32_t method, const ProtobufCMessage *body,
                                     uint32_t timeout_ms, const ProtobufCMessageDescriptor *desc,
                                     ProtobufCMessage **reply);

/* teffi_ctx_rpc_start - the same without waiting; wait with teffi_ctx_await_call.
 * out:  NULL when memory is out, else a call, maybe ended already. */
teffi_call *teffi_ctx_rpc_start(teff_ctx *ctx, teffi_node_id to, unsigned slot, uint32_t method,
                                const ProtobufCMessage *body, uint32_t timeout_ms,
                                const ProtobufCMessageDescriptor *desc);

/* teffi_ctx_await_call - wait for one call's end, unpack its reply. out: its error, text in ctx. */
TEFF_MUST_USE teff_err teffi_ctx_await_call(teff_ctx *ctx, teffi_call *call,
                                            ProtobufCMessage **reply);

#endif
