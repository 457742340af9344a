/* direct.c - the callee's method inside the caller's turn: claimed, run, let go.
 * Way:     reference -> [direct] -> sched/direct, turn
 * Threads: the caller's turn; what it claimed, too, until it lets go. */
#include "direct.h"

#include "cluster/membership.h"
#include "locate.h"
#include "sched/direct.h"
#include "turn.h"

/* ---- methods that take long go through the queue ---- */

enum { LONG_MS = 5, STRIKES_MAX = 8, SKIPS = 64 };

/* relaxed, here and below: a count that is lost sends a call one way or the other */
static bool is_let(_Atomic uint32_t *slow)
{
    uint32_t word = atomic_load_explicit(slow, memory_order_relaxed);
    if ((uint16_t)word == 0)
        return true;
    atomic_store_explicit(slow, word - 1, memory_order_relaxed);
    return false;
}

static void count_strike(_Atomic uint32_t *slow, bool is_long)
{
    uint32_t word = atomic_load_explicit(slow, memory_order_relaxed);
    uint32_t strikes = is_long ? (word >> 16) + 1 : 0;
    if (strikes > STRIKES_MAX)
        strikes = STRIKES_MAX;
    uint32_t skips = strikes > 1 ? (uint32_t)SKIPS << strikes : 0; /* once: the thread stood */
    atomic_store_explicit(slow, strikes << 16 | skips, memory_order_relaxed);
}

static inline void took(_Atomic uint32_t *slow, uint32_t ms)
{
    if (atomic_load_explicit(slow, memory_order_relaxed) || ms >= LONG_MS)
        count_strike(slow, ms >= LONG_MS);
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

static bool is_late(const stopwatch *watch, uint32_t passed, teffi_exec *exec)
{
    if (watch->from_ns)
        return teffi_now(exec->platform) >= watch->from_ns + watch->timeout_ms * 1000000ull;
    return passed >= watch->timeout_ms + watch->timeout_ms / COARSE_SLACK;
}

static uint64_t deadline_of(const stopwatch *watch, teffi_exec *exec)
{
    if (watch->from_ns)
        return watch->from_ns + watch->timeout_ms * 1000000ull;
    uint32_t passed = passed_ms(watch, exec), slack = watch->timeout_ms / COARSE_SLACK;
    uint32_t left_ms = watch->timeout_ms - (passed > slack ? passed - slack : 0);
    return teffi_now(exec->platform) + (left_ms > watch->timeout_ms ? 0 : left_ms) * 1000000ull;
}

/* What is under way in place. */
typedef struct visit {
    const teffi_ask *ask;
    teffi_in_place place;
    stopwatch watch;
    uint32_t passed_ms;     /* when it was left, by the coarse clock */
    _Atomic uint32_t *slow; /* of the method */
} visit;

/* ---- the target ---- */

/* Not inlined, as claim_found and late below: most calls find their grain where it was. */
__attribute__((noinline)) static bool let_go(teffi_activation *act)
{
    teffi_group_release(&act->group);
    return false;
}

/* out: act, when it was idle and is the one that is meant. */
static inline teffi_activation *claim_it(teffi_activation *act, const teffi_ident *ident)
{
    if (!act || !teffi_group_claim(&act->group))
        return NULL;
    if (teffi_activation_is(act, ident))
        return act;
    (void)let_go(act);
    return NULL;
}

/* Its hash, and what waits for it, are the activation's that is guessed. */
static inline teffi_activation *claim_seen(teffi_grains *grains, const teffi_ident *ident)
{
    teffi_activation *act = teffi_seen_get(&grains->seen, teffi_seen_mark(ident));
    if (!act)
        return NULL;
    uint64_t hash = atomic_load_explicit(&act->hash, memory_order_relaxed);
    if (teffi_locate_may_wait(&grains->locate, hash) || !(act = claim_it(act, ident)))
        return NULL;
    if (atomic_load_explicit(&act->hash, memory_order_relaxed) == hash)
        return act;
    (void)let_go(act); /* it was another's when it was looked at */
    return NULL;
}

__attribute__((noinline)) static teffi_activation *claim_found(teffi_grains *grains, teffi_ask *ask)
{
    teffi_ident *ident = &ask->ident;
    bool certain;
    ident->hash = teffi_key_hash(ident->type, ident->key, ident->key_len);
    if (teffi_locate_may_wait(&grains->locate, ident->hash) && teffi_locate_waits(grains, ident))
        return NULL;
    teffi_activation *act = teffi_catalog_find(grains, ident, &certain);
    act = act ? claim_it(act, ident) : certain ? teffi_catalog_claim_new(grains, ident) : NULL;
    if (act)
        teffi_seen_put(&grains->seen, teffi_seen_mark(ident), act);
    ask->elsewhere = !act && certain;
    if (ask->elsewhere)
        ask->hint = teffi_hint_get(&grains->hints, ident->hash);
    return act;
}

/* Two versions of a type's description may share a silo: then the method is found by its number. */
static const teff_method *own_method(const teff_type_info *info, const teff_method *method)
{
    size_t at = (uintptr_t)method - (uintptr_t)info->methods;
    return at < info->n_methods * sizeof *method ? method : teffi_method_find(info, method->id);
}

/* May the visit's request start at once? As the activation has its method. */
static inline bool admits(const teffi_activation *act, visit *v)
{
    const teff_type_info *info = act->type->info;
    const teff_method *method = own_method(info, v->ask->method);
    if (!method)
        return false;
    teffi_class class = teffi_class_of(info, method);
    int32_t queued = (int32_t)atomic_load_explicit(&act->queued, memory_order_relaxed);
    v->slow = &act->type->slow[method - info->methods];
    v->place.method = method;
    v->place.class = class;
    return queued < (int64_t)teffi_queue_max(info) && teffi_activation_open(act, class) &&
           !teffi_activation_waits(act, class) && is_let(v->slow);
}

/* out: the activation, claimed, that may run the method now. */
static inline teffi_activation *claim(teffi_grains *grains, teffi_ask *ask, visit *v)
{
    if (teffi_membership_ousted(grains->node->membership))
        return NULL;
    teffi_activation *act = claim_seen(grains, &ask->ident);
    if (!act)
        act = claim_found(grains, ask);
    if (act && !admits(act, v)) {
        (void)let_go(act);
        return NULL;
    }
    return act;
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

__attribute__((noinline)) static teff_err late(const visit *v)
{
    return teffi_ctx_fail(v->ask->ctx, TEFF_E_TIMEOUT, "%s", teffi_call_late_text);
}

static inline teff_err ended(const visit *v)
{
    return is_late(&v->watch, v->passed_ms, v->ask->ctx->node->exec) ? late(v) : v->place.err;
}

static inline void leave(visit *v)
{
    teffi_activation *act = v->place.act;
    if (!teffi_group_yielded(&act->group)) /* else after that */
        teffi_activation_settle_later(act);
    teffi_direct_done(v->ask->ctx->node->exec, &act->group);
}

/* out: TEFFI_TURN_NOT_STARTED: the claim is given back. Else the caller leaves. */
static inline teffi_turn_end run(visit *v)
{
    teffi_exec *exec = v->ask->ctx->node->exec;
    teffi_activation *act = v->place.act;
    v->watch = start_watch(v->ask);
    teffi_turn_end how = teffi_turn_in_place(&v->place);
    if (how == TEFFI_TURN_NOT_STARTED) {
        (void)let_go(act);
        return how;
    }
    v->passed_ms = passed_ms(&v->watch, exec);
    took(v->slow, v->passed_ms);
    return how;
}

/* The target, claimed. out: false: through the queue. */
static inline __attribute__((always_inline)) bool begin(visit *v, teffi_ask *ask, uint32_t kind,
                                                        bool beside)
{
    teffi_grains *grains = ask->ctx->node->grains;
    if (!teffi_direct_may(grains->node->exec, beside))
        return false;
    v->ask = ask;
    v->place.caller = ask->ctx;
    v->place.in = ask->in;
    v->place.kind = kind;
    v->place.out = NULL;
    v->place.err = TEFF_OK;
    v->place.act = claim(grains, ask, v);
    return v->place.act != NULL;
}

static teffi_call *goes_on(visit *v)
{
    return make_pending(v->ask, v->place.method, teffi_turn_detach(&v->place), &v->watch);
}

bool teffi_direct_ask(teffi_ask *ask, ProtobufCMessage **out, teffi_call **call, teff_err *err)
{
    visit v __attribute__((uninitialized));
    *call = NULL;
    if (!begin(&v, ask, TEFFI_MSG_REQUEST, false))
        return false;
    v.place.out = out;
    teffi_turn_end how = run(&v);
    if (how == TEFFI_TURN_NOT_STARTED)
        return false;
    if (how == TEFFI_TURN_ENDED)
        *err = ended(&v);
    else if (!(*call = goes_on(&v)))
        *err = teffi_ctx_fail(ask->ctx, TEFF_E_NOMEM, "out of memory for a call");
    leave(&v);
    return true;
}

/* A call that was never pending, in the caller's memory. */
static teffi_call *ended_call(teff_ctx *ctx, teff_err err, ProtobufCMessage *body)
{
    teffi_call *call = teff_alloc(ctx, sizeof *call);
    call->wait.done = true;
    call->err = err;
    call->body = body;
    if (err) {
        call->text = teff_strdup(ctx, teff_error(ctx));
        ctx->text = NULL; /* it is the call's */
    }
    return call;
}

bool teffi_direct_start(teffi_ask *ask, teffi_call **call)
{
    visit v __attribute__((uninitialized));
    ProtobufCMessage *body = NULL;
    if (!begin(&v, ask, TEFFI_MSG_REQUEST, true))
        return false;
    v.place.out = &body;
    teffi_turn_end how = run(&v);
    if (how == TEFFI_TURN_NOT_STARTED)
        return false;
    *call = how == TEFFI_TURN_ENDED ? ended_call(ask->ctx, ended(&v), body) : goes_on(&v);
    if (!*call) {
        (void)teffi_ctx_fail(ask->ctx, TEFF_E_NOMEM, "out of memory for a call");
        *call = ended_call(ask->ctx, TEFF_E_NOMEM, NULL);
    }
    leave(&v);
    return true;
}

bool teffi_direct_send(teffi_ask *ask)
{
    visit v __attribute__((uninitialized));
    if (!begin(&v, ask, TEFFI_MSG_ONEWAY, true))
        return false;
    teffi_turn_end how = run(&v);
    if (how == TEFFI_TURN_NOT_STARTED)
        return false;
    if (how == TEFFI_TURN_WAITS)
        (void)teffi_turn_detach(&v.place);
    leave(&v);
    return true;
}
