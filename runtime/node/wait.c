/* wait.c - waiting on both sides: a turn suspends its fiber, a thread parks.
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
    /* one wake-up for all that it sleeps for. acq_rel: who brings it to zero hands on what the
     * others did */
    if (atomic_fetch_sub_explicit(&ctx->asleep_for, 1, memory_order_acq_rel) == 1)
        teffi_parker_leave(&ctx->parker, TEFFI_TOKEN);
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

/* Whether the node's net gives this thread something to read or not: it sleeps once. out: the
 * tokens that it woke with. */
static uint32_t sleep_once(teff_ctx *ctx)
{
    teffi_net_reader reader = {.parker = &ctx->parker};
    bool inside = teffi_node_enter(ctx->node);
    teffi_net *net = inside ? ctx->node->net : NULL;
    bool reads = net && net->ops->read_begin && net->ops->read_begin(net, &reader);
    if (inside && !reads)
        teffi_node_exit(ctx->node); /* the signals may be those of its end, which waits for us */
    uint32_t tokens = teffi_parker_take(&ctx->parker, UINT64_MAX);
    if (reads) {
        tokens = net->ops->read_end(net, &reader, tokens);
        teffi_node_exit(ctx->node);
    }
    return tokens;
}

/* Until the token is there that the last signal leaves. No look at the count instead: whoever
 * brought it to zero has yet to leave the token, and the context must be there for that. */
static void block(teff_ctx *ctx)
{
    uint32_t tokens = 0;
    while (!(tokens & TEFFI_TOKEN)) {
        if (!ctx->runs)
            tokens = sleep_once(ctx);
        else
            ctx->runs->ops->park(ctx->runs);
        tokens |= teffi_parker_take(&ctx->parker, 0);
    }
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
    uint32_t done = 0;
    teffi_bug_if(n > UINT32_MAX);
    /* relaxed: published by the words below */
    atomic_store_explicit(&ctx->asleep_for, (uint32_t)n, memory_order_relaxed);
    for (size_t i = 0; i < n; i++) {
        uint32_t word = WAIT_NEW;
        /* acquire: it was done meanwhile, or release, for the signal that finds it so */
        done += !atomic_compare_exchange_strong_explicit(
            &waits[i]->word, &word, WAIT_AWAITED, memory_order_acq_rel, memory_order_acquire);
    }
    /* acquire: what the signals hand on. No token comes when this thread brings it to zero. */
    if (!done || atomic_fetch_sub_explicit(&ctx->asleep_for, done, memory_order_acquire) > done)
        block(ctx);
}

/* What this thread has sent may have been put off until now. */
static void flush(teffi_node *node)
{
    if (!teffi_node_enter(node)) /* it closes: its link ends, with what was sent, or writes it */
        return;
    if (node->net && node->net->ops->flush)
        node->net->ops->flush(node->net);
    teffi_node_exit(node);
}

static void await_thread(teff_ctx *ctx, teffi_wait *const *waits, size_t n)
{
    if (!all_done(waits, n)) {
        flush(ctx->node);
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
