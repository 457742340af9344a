/* stuck.c - finds the oldest turn of an activation for which requests wait.
 *
 * A hook that has not returned is not replaced by another activation, since then two of them could
 * run. Instead its turn ends where it is suspended, as for teff_alloc; then the activation ends as
 * after an error of the hook, and the next call makes another one. A turn that is not suspended
 * cannot be ended: it computes, or blocks its thread. */
#include "hosting/stuck.h"

#include "activation/ident.h"
#include "call/ctx.h"
#include "group/exec.h"

/* The turn that was suspended first, of those that have not ended; NULL: none. out: *age_ms: since
 * then. */
static teffi_turn *find_oldest_turn(const teffi_activation *act, uint32_t *age_ms)
{
    uint32_t now_ms = teffi_coarse_or_exact_ms(act->group.exec);
    teffi_turn *oldest = NULL, *turn;
    *age_ms = 0;
    LIST_FOREACH (turn, &act->turns, link) {
        int32_t age = turn->ctx.suspended_ms ? (int32_t)(now_ms - turn->ctx.suspended_ms) : 0;
        if (age <= (int32_t)*age_ms)
            continue;
        *age_ms = (uint32_t)age;
        oldest = turn;
    }
    return oldest;
}

/* out: what a turn without a method runs: a hook, or steps of the runtime before or after it. */
static const char *name_life_turn(const teffi_activation *act)
{
    bool hook = act->busy & TEFFI_BUSY_HOOK;
    if (act->phase == TEFFI_ACTIVATING)
        return hook ? "on_activate" : "its activation";
    if (act->phase == TEFFI_DEACTIVATING)
        return hook ? "on_deactivate" : "its deactivation";
    return "the end of a transaction";
}

static void log_old_turn(const teffi_activation *act, const teffi_turn *turn, uint32_t age_ms)
{
    teffi_exec *exec = act->group.exec;
    size_t waiting = act->more ? act->more->pending.count : 0;
    char key[TEFFI_KEY_TEXT_MAX], more[48];
    teff_key k;
    if (!teffi_warn_claim_line_or_skip(exec, &act->grains->turns_stuck, more))
        return;
    teffi_activation_get_key(act, &k);
    teffi_key_format(&k, key);
    teffi_logf(&exec->platform->log, TEFF_LOG_WARN,
               "%s at %s: %s has not ended for %u ms, %zu requests wait for the grain%s",
               act->type->info->name, key, turn->method ? turn->method->name : name_life_turn(act),
               age_ms, waiting, more);
}

/* Logs the turn if it is as old as act->more->next_warn_ms says. */
static void log_turn_if_due(const teffi_activation *act, const teffi_turn *turn, uint32_t age_ms)
{
    uint32_t *next_ms = &act->more->next_warn_ms, first_ms = act->group.exec->warn.delay_warn_ms;
    if (age_ms < first_ms)
        *next_ms = 0; /* another turn is the oldest one now */
    if (age_ms < first_ms || age_ms < *next_ms)
        return;
    log_old_turn(act, turn, age_ms);
    *next_ms = 2 * age_ms;
}

/* Dooms the life turn, and ends the calls that it may wait for. If it waits for something else,
 * such as the store or the end of a sleep, it ends after that. */
static void doom_hook(const teffi_activation *act, teffi_turn *turn)
{
    teff_ctx *ctx = &turn->ctx;
    teffi_call *call;
    if (atomic_load_explicit(&ctx->doomed, memory_order_relaxed))
        return;
    (void)teff_fail(ctx, TEFF_E_UNAVAILABLE, "%s has not returned for %d s and was ended",
                    name_life_turn(act), TEFF_HOOK_MAX_MS / 1000);
    atomic_store_explicit(&ctx->doomed, TEFF_E_UNAVAILABLE, memory_order_relaxed);
    LIST_FOREACH (call, &ctx->calls, in_ctx)
        (void)teffi_call_fail(call, TEFF_E_CANCELLED, NULL);
}

void teffi_stuck_log_turn(const teffi_activation *act)
{
    uint32_t age_ms;
    const teffi_turn *turn = find_oldest_turn(act, &age_ms);
    if (turn && age_ms >= act->group.exec->warn.delay_warn_ms)
        log_old_turn(act, turn, age_ms);
}

void teffi_stuck_check(teffi_activation *act)
{
    uint32_t age_ms;
    if (!act->more || !act->more->pending.count)
        return;
    teffi_turn *turn = find_oldest_turn(act, &age_ms);
    if (!turn)
        return;
    log_turn_if_due(act, turn, age_ms);
    if ((act->busy & TEFFI_BUSY_HOOK) && !turn->method && age_ms >= TEFF_HOOK_MAX_MS)
        doom_hook(act, turn);
}
