/* ctx.c - contexts: memory, error texts, closures, and ending a turn inside its method. */
#include "call/ctx.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include "base/bug.h"
#include "group/closure.h"
#include "fork/fork.h"
#include "sched/exec.h"

void teff_ctx_set_timeout(teff_ctx *ctx, uint32_t ms)
{
    ctx->timeout_ms = ms;
}

const char teffi_lease_over_text[] =
    "the silo has lost its lease: it cannot reach the store, was declared dead, or did not stop in "
    "time";

const char teffi_ctx_late_text[] =
    "the deadline of this turn's caller has passed; the call did not run";

/* The deadline of a call that begins now: now plus the timeout, or the deadline of the turn's own
 * caller (ctx->due_ms) if that is earlier. out: 0: the deadline of the turn's caller has passed. */
uint64_t teffi_ctx_compute_call_deadline(const teff_ctx *ctx, uint32_t timeout_ms)
{
    uint64_t now_ns = teffi_now(ctx->home->exec->platform);
    if (!timeout_ms)
        timeout_ms = ctx->timeout_ms ? ctx->timeout_ms : TEFFI_TIMEOUT_DEFAULT_MS;
    int64_t ms = timeout_ms < TEFFI_TIMEOUT_MAX_MS ? timeout_ms : TEFFI_TIMEOUT_MAX_MS;
    int32_t left_ms = teffi_ms_until_due(ctx->due_ms, (uint32_t)(now_ns / 1000000));
    if (ctx->due_ms && left_ms < ms)
        ms = left_ms;
    return ms > 0 ? now_ns + (uint64_t)ms * 1000000 : 0;
}

const char *teff_error(const teff_ctx *ctx)
{
    return ctx->text ? ctx->text : "";
}

/* The arguments of fmt may point into the previous error text, so ctx->text_buf is overwritten only
 * after the new text was formatted. */
teff_err teff_fail(teff_ctx *ctx, teff_err err, const char *fmt, ...)
{
    char text[TEFF_TEXT_MAX];
    va_list args;
    va_start(args, fmt);
    int len = vsnprintf(text, sizeof text, fmt, args);
    va_end(args);
    size_t n = len < 0 ? 0 : (size_t)len < sizeof text ? (size_t)len : sizeof text - 1;
    memcpy(ctx->text_buf, text, n);
    ctx->text_buf[n] = '\0';
    ctx->text = ctx->text_buf;
    ctx->text_err = err == TEFF_OK ? TEFF_E_FAILED : err; /* TEFF_OK is a bug of the caller */
    return ctx->text_err;
}

/* Prints the label of the context's fiber and the context's error text, and aborts the OS
 * process. */
static _Noreturn void abort_os_process(const teff_ctx *ctx)
{
    const char *doing = ctx->fiber ? teffi_fiber_get_label(ctx->fiber) : "a thread's context";
    teffi_abort_for_broken_rule(doing, teff_error(ctx));
}

void teffi_ctx_abort_in_forked_part(void)
{
    const teffi_fiber *fiber = teffi_fiber_current();
    teffi_abort_for_broken_rule(
        fiber ? teffi_fiber_get_label(fiber) : "a forked part",
        "only the turn itself, not a part that it forked, may call or wait through its "
        "context (teff/fork.h)");
}

void teffi_ctx_exit_turn(teff_ctx *ctx, teff_err err)
{
    if (!ctx->owner || teffi_fiber_current() != ctx->fiber)
        abort_os_process(ctx); /* ctx belongs to no grain's turn, or to a turn on another fiber */
    /* End the blocking regions and wait for the joins that the method has left open: the parts of
     * a join use this stack. */
    teffi_blocking_end_all();
    teffi_joins_wait();
    ctx->home->exit_turn(ctx, err);
    teffi_fiber_exit();
}

/* Ends a grain's turn with TEFF_E_NOMEM, since grain code does not check whether teff_alloc returns
 * NULL. If ctx is not the context of a grain's turn, aborts the OS process. in: n: the number of
 * bytes that could not be allocated. */
__attribute__((noinline)) static _Noreturn void exit_turn_out_of_memory(teff_ctx *ctx, size_t n)
{
    size_t used = ctx->arena.used_bytes, max = ctx->arena.budget_bytes;
    if (n <= max - used)
        (void)teff_fail(ctx, TEFF_E_NOMEM, "the system has no %zu bytes of memory", n);
    else
        (void)teff_fail(ctx, TEFF_E_NOMEM, "%zu bytes more for a turn that took %zu: at most %zu",
                        n, used, max);
    teffi_ctx_exit_turn(ctx, TEFF_E_NOMEM);
}

/* Called when n bytes could not be allocated. If ctx belongs to a grain's turn, ends this turn.
 * Otherwise ctx belongs to a thread, a process or a task of the runtime: tries again up to TRIES
 * times, after pauses of PAUSE_NS, because a silo should not abort when memory is out for a moment.
 * The pauses block the thread, as the caller may not expect to be suspended. If no try succeeds, or
 * if the arena's limit does not allow n more bytes, aborts the OS process. out: n bytes. */
__attribute__((noinline)) static void *alloc_again_or_exit_turn(teff_ctx *ctx, size_t n)
{
    enum { TRIES = 100, PAUSE_NS = 10000000 };
    bool within_limit = n <= ctx->arena.budget_bytes - ctx->arena.used_bytes;
    teffi_parker pause = {0};
    void *p = NULL;
    for (int i = 0; i < TRIES && !p && within_limit && !ctx->owner; i++) {
        (void)teffi_parker_wait(&pause, PAUSE_NS);
        p = teff_arena_alloc(&ctx->arena, n);
    }
    if (!p)
        exit_turn_out_of_memory(ctx, n);
    return p;
}

void *teff_alloc(teff_ctx *ctx, size_t n)
{
    void *p = teff_arena_alloc(&ctx->arena, n);
    return p ? p : alloc_again_or_exit_turn(ctx, n);
}

char *teff_strdup(teff_ctx *ctx, const char *s)
{
    size_t n = strlen(s);
    void *p = teff_arena_copy(&ctx->arena, s, n); /* appends a zero byte */
    return p ? p : memcpy(alloc_again_or_exit_turn(ctx, n + 1), s, n + 1);
}

teff_err teff_post(teff_ctx *ctx, void (*fn)(void *arg), void *arg)
{
    teffi_home *home = ctx->home;
    teff_err err = TEFF_E_CLOSED;
    if (ctx->group) {
        err = teffi_closure_push(ctx->group, fn, arg);
    } else if (teffi_home_enter(home)) { /* a thread has no group */
        err = teffi_closure_push(&home->exec->null_group, fn, arg);
        teffi_home_exit(home);
    }
    if (err == TEFF_E_NOMEM)
        return teff_fail(ctx, err, "out of memory");
    return err ? teff_fail(ctx, err, "the silo or client is closed") : TEFF_OK;
}
