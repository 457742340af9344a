/* direct.c - the callee's method inside the caller's turn: claimed, run, let go.
 * Way:     reference -> [direct] -> sched/direct, turn
 * Threads: the caller's turn; what it claimed, too, until it lets go. */
#include "direct.h"

#include "cluster/membership.h"
#include "locate.h"
#include "placement.h"
#include "sched/direct.h"
#include "turn.h"

/* ---- methods that take long go through the queue ---- */

enum { LONG_MS = 5, STRIKES_MAX = 8, SKIPS = 64 };

/* relaxed, here and below: a count that is lost sends a call one way or the other */
static bool is_let(const teff_grain_type *type, size_t method)
{
    uint32_t word = atomic_load_explicit(&type->slow[method], memory_order_relaxed);
    if ((uint16_t)word == 0)
        return true;
    atomic_store_explicit(&type->slow[method], word - 1, memory_order_relaxed);
    return false;
}

static void took(const teff_grain_type *type, size_t method, bool is_long)
{
    uint32_t word = atomic_load_explicit(&type->slow[method], memory_order_relaxed);
    if (!word && !is_long)
        return;
    uint32_t strikes = is_long ? (word >> 16) + 1 : 0;
    if (strikes > STRIKES_MAX)
        strikes = STRIKES_MAX;
    uint32_t skips = strikes > 1 ? (uint32_t)SKIPS << strikes : 0; /* once: the thread stood */
    atomic_store_explicit(&type->slow[method], strikes << 16 | skips, memory_order_relaxed);
}

/* ---- the target ---- */

static teffi_activation *claim_guess(teffi_grains *grains, uint64_t hash)
{
    teffi_activation *act = teffi_seen_get(&grains->seen, hash);
    return act && teffi_group_claim(&act->group) ? act : NULL;
}

static teffi_activation *claim_found(teffi_grains *grains, const teffi_ident *ident)
{
    bool certain;
    teffi_activation *act = teffi_catalog_find(grains, ident, &certain);
    if (!act)
        return NULL;
    teffi_seen_put(&grains->seen, ident->hash, act);
    return teffi_group_claim(&act->group) ? act : NULL;
}

static bool let_go(teffi_activation *act)
{
    teffi_group_release(&act->group);
    return false;
}

/* out: the activation, claimed, that may run the method now; *method as its type has it. */
static teffi_activation *claim(teffi_grains *grains, const teffi_ident *ident,
                               const teff_method **method)
{
    const teff_method *asked = *method;
    if (teffi_membership_ousted(grains->node->membership) || teffi_locate_waits(grains, ident))
        return NULL;
    teffi_activation *act = claim_guess(grains, ident->hash);
    if (act && !teffi_activation_is(act, ident) && !let_go(act))
        act = NULL;
    if (!act && !(act = claim_found(grains, ident)))
        return NULL;
    *method = teffi_activation_admits(act, ident, asked);
    if (*method && is_let(act->type, (size_t)(*method - act->type->info->methods)))
        return act;
    (void)let_go(act);
    return NULL;
}

static teffi_msg *request_of(const teffi_ask *ask, const teffi_activation *act,
                             const teff_method *method)
{
    teffi_msg *msg = teffi_msg_new(TEFFI_MSG_REQUEST);
    if (!msg)
        return NULL;
    msg->src = ask->ctx->node->id;
    msg->flags = teffi_placement_flags(ask->type->placement);
    msg->type_id = ask->type->id;
    msg->method_id = method->id;
    msg->key = teffi_activation_ident(act).key; /* stays as long as its turn */
    msg->key_len = act->key_len;
    if (!method->in || (msg->body = method->in->copy(&msg->arena, ask->in)))
        return msg;
    teffi_msg_free(msg);
    return NULL;
}

/* ---- time ---- */

/* Short timeouts are measured with the clock (25 ns), long ones with the executor's coarse one: an
 * answer that is late by less than an eighth may still count as in time. */
enum { EXACT_BELOW_MS = 1000, COARSE_SLACK = 8 };

typedef struct stopwatch {
    uint64_t from_ns; /* 0: coarse */
    uint32_t from_ms, timeout_ms;
} stopwatch;

static stopwatch start_watch(const teffi_ask *ask)
{
    teffi_exec *exec = ask->ctx->node->exec;
    stopwatch watch = {.from_ms = teffi_warn_now(&exec->warn),
                       .timeout_ms = teffi_timeout_ms(ask->ctx, ask->method)};
    if (watch.timeout_ms < EXACT_BELOW_MS || !watch.from_ms)
        watch.from_ns = teffi_now(exec->platform);
    return watch;
}

/* By the coarse clock; 0 where that stands. */
static uint32_t passed_ms(const stopwatch *watch, teffi_exec *exec)
{
    uint32_t now_ms = teffi_warn_now(&exec->warn);
    return watch->from_ms && now_ms ? now_ms - watch->from_ms : 0;
}

static bool is_late(const stopwatch *watch, teffi_exec *exec)
{
    if (watch->from_ns)
        return teffi_now(exec->platform) >= watch->from_ns + watch->timeout_ms * 1000000ull;
    return passed_ms(watch, exec) >= watch->timeout_ms + watch->timeout_ms / COARSE_SLACK;
}

static uint64_t deadline_of(const stopwatch *watch, teffi_exec *exec)
{
    if (watch->from_ns)
        return watch->from_ns + watch->timeout_ms * 1000000ull;
    uint32_t passed = passed_ms(watch, exec), slack = watch->timeout_ms / COARSE_SLACK;
    uint32_t left_ms = watch->timeout_ms - (passed > slack ? passed - slack : 0);
    return teffi_now(exec->platform) + (left_ms > watch->timeout_ms ? 0 : left_ms) * 1000000ull;
}

/* ---- the call ---- */

/* It goes on elsewhere; from here on it is a call like any other. */
static teffi_call *make_pending(const teffi_ask *ask, const teff_method *method, teffi_msg *request,
                                const stopwatch *watch)
{
    uint64_t deadline = deadline_of(watch, ask->ctx->node->exec);
    teffi_call *call = teffi_call_new(ask->ctx->node, ask->ctx, deadline);
    if (!call)
        return NULL;
    call->out_desc = method->out ? method->out->desc : NULL;
    request->call_slot = call->slot;
    request->call_generation = call->generation;
    request->deadline_ns = deadline;
    return call;
}

static teff_err end(const teffi_ask *ask, const teffi_in_place *place, const stopwatch *watch)
{
    if (is_late(watch, ask->ctx->node->exec))
        return teffi_ctx_fail(ask->ctx, TEFF_E_TIMEOUT, "%s", teffi_call_late_text);
    return place->err;
}

static bool run(const teffi_ask *ask, teffi_activation *act, const teff_method *method,
                teffi_msg *request, teffi_call **call, teff_err *err)
{
    teffi_exec *exec = ask->ctx->node->exec;
    teffi_in_place place = {.caller = ask->ctx, .out = ask->out};
    const teff_grain_type *type = act->type;
    stopwatch watch = start_watch(ask);
    *call = NULL;
    teffi_turn_end how = teffi_turn_in_place(act, request, method, &place);
    if (how == TEFFI_TURN_NOT_STARTED) {
        teffi_msg_free(request);
        return let_go(act);
    }
    took(type, (size_t)(method - type->info->methods), passed_ms(&watch, exec) >= LONG_MS);
    if (how == TEFFI_TURN_ENDED) {
        *err = end(ask, &place, &watch);
    } else {
        *call = make_pending(ask, method, request, &watch);
        if (!*call)
            *err = teffi_ctx_fail(ask->ctx, TEFF_E_NOMEM, "out of memory for a call");
        teffi_turn_detach(&place);
    }
    teffi_activation_settle_later(act);
    teffi_direct_done(exec, &act->group);
    return true;
}

bool teffi_direct_ask(const teffi_ask *ask, teffi_call **call, teff_err *err)
{
    teffi_grains *grains = ask->ctx->node->grains;
    uint8_t key[TEFFI_KEY_BYTES_MAX] __attribute__((uninitialized));
    const teff_method *method = ask->method;
    const char *why;
    if (!teffi_direct_may(grains->node->exec))
        return false;
    uint32_t len = teffi_key_encode(ask->type->key_kind, ask->key, key, &why);
    if (!len)
        return false; /* the queue's way has the error's text */
    teffi_ident ident = teffi_ident_of(ask->type->id, key, len);
    teffi_activation *act = claim(grains, &ident, &method);
    if (!act)
        return false;
    teffi_msg *request = request_of(ask, act, method);
    if (!request)
        return let_go(act);
    return run(ask, act, method, request, call, err);
}
