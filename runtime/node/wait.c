/* wait.c - waiting on both sides: a turn suspends its fiber, a thread sleeps on its condition.
 * Way:     call, store op, timer -> [wait] -> the turn's group, or the blocked thread
 * Threads: signal anywhere; arrived on the group; await on the context. */
#include "node/wait.h"

#include <string.h>
#include "base/bug.h"
#include "node/ctx.h"

enum { WAIT_NEW, WAIT_AWAITED, WAIT_DONE };

void teffi_wait_init(teffi_wait *wait, teff_ctx *ctx, void (*arrive)(teffi_wait *wait))
{
    memset(wait, 0, sizeof *wait);
    wait->item.kind = TEFFI_ITEM_WAIT;
    wait->ctx = ctx;
    wait->group = ctx->group;
    wait->arrive = arrive;
}

/* The activation has ended meanwhile: only an orphan is left behind so. The look at the group's
 * state is an acquire: it sees what the turn did before it ended. */
static void too_late(teffi_wait *wait)
{
    (void)teffi_group_state_of(wait->group);
    teffi_bug_if(!wait->orphan || !wait->arrive);
    wait->arrive(wait);
}

void teffi_wait_signal(teffi_wait *wait)
{
    if (wait->group) {
        if (!teffi_group_push(wait->group, &wait->item))
            too_late(wait);
        return;
    }
    teff_ctx *ctx = wait->ctx;
    /* release: what it ended with, for who finds it done and may free it from here on; acquire:
     * who sleeps has said so before */
    if (atomic_exchange_explicit(&wait->word, WAIT_DONE, memory_order_acq_rel) != WAIT_AWAITED)
        return;
    pthread_mutex_lock(&ctx->lock);
    if (--ctx->waiting == 0) /* one wake-up for all that it waits for */
        pthread_cond_signal(&ctx->cond);
    pthread_mutex_unlock(&ctx->lock);
}

bool teffi_wait_arrived(teffi_item *item, teff_ctx **ctx_out)
{
    teffi_wait *wait = teffi_container(item, teffi_wait, item);
    bool orphan = wait->orphan;
    wait->done = true;
    if (wait->arrive)
        wait->arrive(wait);
    if (orphan || !wait->awaited)
        return false;
    teff_ctx *ctx = wait->ctx;
    wait->awaited = false;
    if (--ctx->waiting > 0)
        return false;
    *ctx_out = ctx;
    return teffi_fiber_resume(ctx->fiber);
}

static void await_turn(teff_ctx *ctx, teffi_wait *const *waits, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        if (waits[i]->done || waits[i]->awaited)
            continue;
        waits[i]->awaited = true;
        ctx->waiting++;
    }
    if (ctx->waiting)
        teffi_fiber_suspend(ctx->fiber);
    else
        (void)teff_reschedule();
}

/* Lock held, on both sides of it. */
static void block(teff_ctx *ctx)
{
    teffi_exec *exec = ctx->node->exec;
    if (!exec->ops->park) {
        pthread_cond_wait(&ctx->cond, &ctx->lock);
        return;
    }
    pthread_mutex_unlock(&ctx->lock);
    exec->ops->park(exec);
    pthread_mutex_lock(&ctx->lock);
}

bool teffi_wait_done(const teffi_wait *wait)
{
    /* acquire: pairs with signal */
    return wait->group ? wait->done
                       : atomic_load_explicit(&wait->word, memory_order_acquire) == WAIT_DONE;
}

static bool all_done(teffi_wait *const *waits, size_t n)
{
    for (size_t i = 0; i < n; i++)
        if (!teffi_wait_done(waits[i]))
            return false;
    return true;
}

static void sleep_for(teff_ctx *ctx, teffi_wait *const *waits, size_t n)
{
    pthread_mutex_lock(&ctx->lock);
    for (size_t i = 0; i < n; i++) {
        uint32_t word = WAIT_NEW;
        /* acquire: it was done meanwhile, or release, for the signal that finds it so */
        ctx->waiting += atomic_compare_exchange_strong_explicit(
            &waits[i]->word, &word, WAIT_AWAITED, memory_order_acq_rel, memory_order_acquire);
    }
    while (ctx->waiting)
        block(ctx);
    pthread_mutex_unlock(&ctx->lock);
}

static void await_thread(teff_ctx *ctx, teffi_wait *const *waits, size_t n)
{
    if (!all_done(waits, n)) {
        teffi_net *net = ctx->node->net;
        if (net && net->ops->flush)
            net->ops->flush(net); /* what this thread has sent may have been put off until now */
        sleep_for(ctx, waits, n);
    }
    for (size_t i = 0; i < n; i++) {
        if (waits[i]->arrive)
            waits[i]->arrive(waits[i]);
        waits[i]->arrive = NULL;
    }
}

void teffi_await(teff_ctx *ctx, teffi_wait *const *waits, size_t n)
{
    if (ctx->group)
        await_turn(ctx, waits, n);
    else
        await_thread(ctx, waits, n);
}
