/* process_ctx.c - contexts of processes. A context begins with the first teff_process_ctx and ends
 * with its process. The process's fiber has the pointer to it. */
#include "call/process_ctx.h"

#include <stdlib.h>
#include "call/ctx.h"
#include "group/closure.h"
#include "process/turn.h"

typedef struct process_ctx {
    teff_ctx ctx;
    teff_process *process;
} process_ctx;

/* teffi_waiting.ready of a process that awaits calls: has the process received all the signals that
 * it waits for? In teffi_await_any(), it waits for only one signal. */
static bool is_done_waiting(teff_process *p, teffi_waiting *w)
{
    const teff_ctx *ctx = w->arg;
    (void)p;
    return ctx->waiting == 0;
}

/* Ends the context's pending calls as TEFF_E_CANCELLED. The signal of each of these calls arrives
 * later, as an item of the process's group. */
static void cancel_pending_calls(teff_ctx *ctx)
{
    for (teffi_call *call = LIST_FIRST(&ctx->calls); call; call = LIST_NEXT(call, in_ctx))
        if (!call->wait.done)
            (void)teffi_call_fail(call, TEFF_E_CANCELLED,
                                  "its process was ended by force; the call may have run");
}

/* teff_ctx.suspend of a process: suspends the process until ctx->waiting is 0. A process that is
 * being forced to end is resumed earlier, after each item of its group. It then ends its calls, and
 * is suspended again until the signals of these calls have arrived. */
static void suspend_process(teff_ctx *ctx)
{
    teff_process *p = teffi_container(ctx, process_ctx, ctx)->process;
    teffi_waiting w = {.ready = is_done_waiting, .arg = ctx, .blocked = true};
    p->wait = &w;
    while (ctx->waiting > 0) {
        if (p->forced)
            cancel_pending_calls(ctx);
        teffi_fiber_suspend(p->fiber);
    }
    p->wait = NULL;
}

teff_ctx *teff_process_ctx(teff_process *me)
{
    teffi_home *home = me->system->calls.home;
    if (!home || !me->fiber)
        return NULL;
    void **local = teffi_fiber_local(me->fiber);
    if (*local)
        return *local;
    process_ctx *c = malloc(sizeof *c);
    if (!c)
        return NULL;
    teffi_ctx_init(&c->ctx, home, &me->group);
    c->ctx.fiber = me->fiber;
    c->ctx.suspend = suspend_process;
    c->process = me;
    return *local = &c->ctx;
}

/* teffi_process_calls.free_ctx: drops the calls of a process's context, and frees the context. */
static void free_ctx(teff_ctx *ctx)
{
    teffi_ctx_fini(ctx);
    free(teffi_container(ctx, process_ctx, ctx));
}

/* teffi_process_calls.take_item: handles an item of a process's group that is no event: a closure,
 * or a wait's signal. */
static void run_closure_or_handle_signal(teffi_item *item)
{
    teff_ctx *ctx;
    if (item->kind == TEFFI_ITEM_CLOSURE)
        teffi_closure_run(item);
    else
        /* returns false for a process: the process's own turn resumes the context */
        (void)teffi_wait_mark_done_and_resume(item, &ctx);
}

teffi_process_calls teffi_make_process_call_functions(teffi_home *home)
{
    return (teffi_process_calls){
        .take_item = run_closure_or_handle_signal, .free_ctx = free_ctx, .home = home};
}
