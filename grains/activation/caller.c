/* caller.c - does the caller of a turn still wait for its response?
 * Threads: in the turn, and in the parts that it has forked, on any thread. */
#include "activation/activation.h"
#include "node/deliver.h"

/* Does the request belong to a call, which may have ended already? A request that runs on its
 * caller's stack (on_stack) has no call until teffi_turn_set_call() sets one.
 * acquire: pairs with teffi_turn_set_call(). */
static bool request_has_call(const teffi_turn *turn)
{
    return !turn->on_stack || atomic_load_explicit(&turn->has_call, memory_order_acquire);
}

/* Has the caller's call ended, or has the caller cancelled it? May run on any thread: the members
 * of turn and request that this function reads do not change while the method runs and the request
 * has a call (request_has_call()). */
static bool caller_has_left(const teffi_turn *turn)
{
    const teffi_msg *request = turn->request;
    teffi_node *node = turn->ctx.node;
    if (!request || request->item.kind != TEFFI_MSG_REQUEST || !request_has_call(turn))
        return false;
    return teffi_node_equals(request->src, node->id)
               ? !teffi_call_is_pending(&node->home, request->call.slot, request->call.generation)
               : teffi_node_has_cancel(node, request);
}

/* First reads whether the call has ended, then the clock. So if the call ended at its deadline, the
 * result is TEFF_E_TIMEOUT, not TEFF_E_CANCELLED. */
teff_err teff_ctx_check(const teff_ctx *ctx, uint32_t *left_ms)
{
    const teffi_turn *turn = ctx->owner;
    bool has_left = turn && caller_has_left(turn);
    uint32_t now_ms = (uint32_t)(teffi_now(ctx->home->exec->platform) / 1000000);
    int32_t left = teffi_ms_until_due(turn ? turn->due_ms : 0, now_ms);
    /* due_ms is rounded up, now_ms down: a call that ended at its deadline may show 1 ms left */
    bool late = left <= (has_left ? 1 : 0);
    if (left_ms)
        *left_ms = late ? 0 : left == INT32_MAX ? UINT32_MAX : (uint32_t)left;
    if (late)
        return TEFF_E_TIMEOUT;
    bool ends = atomic_load_explicit(&ctx->doomed, memory_order_relaxed);
    return ends || has_left ? TEFF_E_CANCELLED : TEFF_OK;
}
