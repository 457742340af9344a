/* ctx_calls.c - the calls of a context: begun, awaited, dropped. */
#include "call/ctx.h"

#include <stdlib.h>
#include "base/bug.h"

teffi_call *teffi_ctx_call_new(teff_ctx *ctx, uint64_t deadline_ns)
{
    teffi_call *call = teffi_call_new(ctx->home, ctx, deadline_ns);
    if (!call)
        return NULL;
    call->number = ++ctx->n_calls;
    LIST_INSERT_HEAD(&ctx->calls, call, in_ctx);
    return call;
}

/* Waits until the call has ended. Not inlined, since most awaited calls have ended already. */
__attribute__((noinline)) static void await_call(teff_ctx *ctx, teffi_call *call)
{
    teffi_wait *wait = &call->wait;
    teffi_await(ctx, &wait, 1);
}

/* Makes the call a failed one if the silo's lease has run out before a thread of the program gets
 * the response: another silo may serve the grain already. In a turn, the lease is checked when the
 * turn resumes, sends or saves. */
static void fail_if_lease_has_run_out(const teff_ctx *ctx, teffi_call *call)
{
    uint64_t until_ns = teffi_lease_until_ns(&ctx->home->lease);
    if (!until_ns || call->err || teffi_now(ctx->home->exec->platform) < until_ns)
        return;
    call->err = TEFF_E_UNREACHABLE;
    call->text = teffi_lease_over_text;
    if (call->response)
        call->response->flags |= TEFFI_MSG_UNNAMED;
}

teff_err teffi_ctx_await_call(teff_ctx *ctx, teffi_call *call, ProtobufCMessage **response)
{
    if (ctx->group && call->wait.done) /* in a turn, and the call has ended: no wait is needed */
        (void)teff_yield_if_due();
    else
        await_call(ctx, call);
    if (!ctx->group)
        fail_if_lease_has_run_out(ctx, call);
    if (call->err)
        return teff_fail(ctx, call->err, "%s", call->text ? call->text : "");
    if (response) /* a call that ran directly was never pending: it has a body but no response */
        *response = call->response ? call->response->body : call->body;
    return TEFF_OK;
}

/* ---- drop ---- */

/* Abandons and releases a call that is in no list. If another thread has taken the call, the call
 * is released only after that thread's signal. In a turn, the call is made an orphan, which is
 * released when the signal arrives. On a thread, this function waits for the signal. */
static void drop_call(teff_ctx *ctx, teffi_call *call)
{
    if (teffi_call_abandon(call)) {
        teffi_call_release(call);
    } else if (ctx->group) {
        call->wait.orphan = true;
        call->wait.ctx = NULL;
    } else {
        await_call(ctx, call);
        teffi_call_release(call);
    }
}

/* Drops the newest call of the context's list, which must not be empty. */
static void drop_newest_call(teff_ctx *ctx)
{
    teffi_call *call = LIST_FIRST(&ctx->calls);
    LIST_REMOVE(call, in_ctx);
    drop_call(ctx, call);
}

void teffi_ctx_fini(teff_ctx *ctx)
{
    while (!LIST_EMPTY(&ctx->calls))
        drop_newest_call(ctx);
    teffi_arena_fini(&ctx->arena);
    ctx->text = NULL;
}

teff_ctx *teffi_ctx_new(teffi_home *home)
{
    teff_ctx *ctx = malloc(sizeof *ctx);
    if (!ctx)
        return NULL;
    teffi_ctx_init(ctx, home, NULL);
    if (teffi_home_enter(home)) {
        /* only the simulator's executor has park(), which runs work while this thread waits */
        ctx->runs = home->exec->ops->park ? home->exec : NULL;
        teffi_home_exit(home);
    }
    return ctx;
}

void teff_ctx_free(teff_ctx *ctx)
{
    if (!ctx)
        return;
    teffi_bug_if(ctx->group != NULL);
    teffi_ctx_fini(ctx);
    teffi_notifier_unref(ctx->notifier);
    free(ctx);
}

int teff_ctx_fd(teff_ctx *ctx)
{
    if (ctx->group)
        return -1;
    /* relaxed: only this thread stores it */
    teffi_notifier *notifier = atomic_load_explicit(&ctx->notifier, memory_order_relaxed);
    if (!notifier) {
        notifier = teffi_notifier_new();
        /* release: pairs with teffi_wait_notify_waiter */
        atomic_store_explicit(&ctx->notifier, notifier, memory_order_release);
    }
    return notifier ? notifier->fd : -1;
}

bool teff_call_ended(const teff_ctx *ctx, teff_call call)
{
    const teffi_call *impl = teffi_call_of_handle(call);
    (void)ctx;
    return !impl || teffi_wait_is_done(&impl->wait);
}

void teff_ctx_reset(teff_ctx *ctx)
{
    /* A thread's context has no group; a process's context has suspend(). The context of a turn or
     * a task is not reset here, but when the turn or the task ends. */
    if (!ctx->group || ctx->suspend)
        teffi_ctx_fini(ctx);
}

teff_mark teff_ctx_mark(teff_ctx *ctx)
{
    teffi_arena_mark here = teffi_arena_get_mark(&ctx->arena);
    return (teff_mark){
        .at = {here.at, here.end, here.chunks}, .used = here.used_bytes, .n_calls = ctx->n_calls};
}

/* Must the call be kept until the turn ends? A call that is part of ctx's transaction must be kept,
 * unless it has succeeded and the participants listed in its response have been collected. At the
 * end of the turn, the kept calls are awaited, and their participants and errors are collected. A
 * failed call is kept even if its error was collected already. This costs little memory: after the
 * first failed call the transaction cannot succeed, so a turn rarely has many failed calls. */
static bool must_keep_call(const teff_ctx *ctx, const teffi_call *call)
{
    const teffi_asked *asked = ctx->transaction ? teffi_call_get_method_and_key(call) : NULL;
    return asked && (asked->method->flags & TEFF_METHOD_TRANSACTIONAL) &&
           (!call->wait.done || call->err || (call->response && call->response->transaction));
}

/* Drops the calls that were begun since the mark was taken, except those that must be kept, and
 * frees what was allocated since then. */
void teff_ctx_rewind(teff_ctx *ctx, teff_mark mark)
{
    teffi_call *next, *call = LIST_FIRST(&ctx->calls);
    for (; call && (int32_t)(call->number - mark.n_calls) > 0; call = next) { /* numbers wrap */
        next = LIST_NEXT(call, in_ctx);
        if (must_keep_call(ctx, call))
            continue;
        LIST_REMOVE(call, in_ctx);
        drop_call(ctx, call);
    }
    teffi_arena_rewind(&ctx->arena, (teffi_arena_mark){.at = mark.at[0],
                                                       .end = mark.at[1],
                                                       .chunks = mark.at[2],
                                                       .used_bytes = mark.used});
}

void teff_drop(teff_ctx *ctx, teff_call *call)
{
    teffi_call *impl = teffi_call_of_handle(*call);
    call->impl = NULL;
    if (!impl || !impl->in_ctx.le_prev || must_keep_call(ctx, impl))
        return; /* there is no call; or it is in no list (it was never pending); or it is kept */
    LIST_REMOVE(impl, in_ctx);
    drop_call(ctx, impl);
}
