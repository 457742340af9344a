/* direct.c - claim an idle callee, run its method inside the caller's turn, release it.
 * Threads: the caller's turn, which owns the callee's group between claim and release. */
#include "request/ask.h"

#include "activation/state.h"
#include "activation/turn.h"
#include "call/call.h"
#include "call/ctx.h"
#include "cluster/membership.h"
#include "directory/location_cache.h"
#include "directory/partition.h"
#include "directory/stateless.h"
#include "request/activation_cache.h"
#include "request/route.h"
#include "group/direct.h"

/* ---- methods with long calls are queued ---- */

/* During a call in place, the caller's turn cannot time out and no other turn of its grain starts.
 * So after two consecutive calls of LONG_MS or more, the next 256 calls of the method are queued;
 * the number doubles up to 16,384. One short call resets it. */

enum { LONG_MS = 5, STRIKES_MAX = 8, SKIPS = 64 };

/* May this call run in place? The low 16 bits of *slow are the number of calls of the method that
 * are still to be queued. If this number is 0, the call may run. If not, this function decrements
 * the number, and the caller queues the call. relaxed, here and below: a lost update only changes
 * how many calls are queued. */
static bool may_run_or_count_down(_Atomic uint32_t *slow)
{
    uint32_t word = atomic_load_explicit(slow, memory_order_relaxed);
    if ((uint16_t)word == 0)
        return true;
    atomic_store_explicit(slow, word - 1, memory_order_relaxed);
    return false;
}

/* A long call adds a strike, a short call removes all strikes. From the second strike on, the next
 * calls are queued. *slow: strikes << 16 | number of calls to queue. */
static void update_strikes(_Atomic uint32_t *slow, bool is_long)
{
    uint32_t word = atomic_load_explicit(slow, memory_order_relaxed);
    uint32_t strikes = is_long ? (word >> 16) + 1 : 0;
    if (strikes > STRIKES_MAX)
        strikes = STRIKES_MAX;
    /* a single long call may be due to a preemption by the OS: it queues no calls */
    uint32_t skips = strikes > 1 ? (uint32_t)SKIPS << strikes : 0;
    atomic_store_explicit(slow, strikes << 16 | skips, memory_order_relaxed);
}

/* Updates *slow after a call that took ms. Stores nothing in the common case: a short call, and no
 * strikes. */
static inline void update_strikes_if_needed(_Atomic uint32_t *slow, uint32_t ms)
{
    if (atomic_load_explicit(slow, memory_order_relaxed) || ms >= LONG_MS)
        update_strikes(slow, ms >= LONG_MS);
}

/* ---- time ---- */

/* Short timeouts are measured with the clock (25 ns a reading), long ones with the executor's
 * coarse clock: then a response late by less than an eighth of the timeout, plus a tick of the
 * coarse clock, may count as in time. */
enum { COARSE_SLACK = 8 };

typedef struct stopwatch {
    uint64_t due_ns;     /* the deadline by the clock; 0: the coarse clock is used */
    uint32_t from_ms;    /* start by the coarse clock; 0: that is not running */
    uint32_t timeout_ms; /* by the coarse clock */
} stopwatch;

/* Starts watch with the exact clock instead of the coarse one. out: *due_ms: the call's deadline.
 * false: the caller's deadline has passed. */
__attribute__((noinline)) static bool start_exact_stopwatch(stopwatch *watch, const teffi_ask *ask,
                                                            uint32_t *due_ms)
{
    watch->due_ns = teffi_ask_deadline(ask->ctx, ask->method);
    *due_ms = teffi_due_ms_of(watch->due_ns);
    return watch->due_ns != 0;
}

/* Starts watch. The time that the call may take is its timeout or the time left until the caller's
 * deadline, whichever is shorter. out: *due_ms: the call's deadline. false: the caller's deadline
 * has passed. */
static inline bool start_stopwatch(stopwatch *watch, const teffi_ask *ask, uint32_t *due_ms)
{
    uint32_t now_ms = teffi_coarse_ms(ask->ctx->node->home.exec);
    int32_t ms = (int32_t)teffi_ask_timeout_ms(ask->ctx, ask->method);
    int32_t left_ms = teffi_ms_until_due(ask->ctx->due_ms, now_ms);
    ms = left_ms < ms ? left_ms : ms;
    watch->from_ms = now_ms;
    if (ms < TEFFI_EXACT_BELOW_MS || !now_ms)
        return start_exact_stopwatch(watch, ask, due_ms);
    watch->due_ns = 0;
    watch->timeout_ms = (uint32_t)ms;
    *due_ms = now_ms + watch->timeout_ms;
    return true;
}

/* out: ms since start_stopwatch() by the coarse clock; 0 if that clock is not running. */
static uint32_t get_passed_ms(const stopwatch *watch, teffi_exec *exec)
{
    uint32_t now_ms = teffi_coarse_ms(exec);
    return watch->from_ms && now_ms ? now_ms - watch->from_ms : 0;
}

/* out: the deadline for a call that becomes pending. If the coarse clock is used, the first eighth
 * of the timeout does not count as passed, as in get_result(). */
static uint64_t get_pending_call_deadline(const stopwatch *watch, teffi_exec *exec)
{
    if (watch->due_ns)
        return watch->due_ns;
    uint32_t passed = get_passed_ms(watch, exec), slack = watch->timeout_ms / COARSE_SLACK;
    uint32_t left_ms = watch->timeout_ms - (passed > slack ? passed - slack : 0);
    /* left_ms over timeout_ms: the subtraction wrapped, because no time is left */
    return teffi_now(exec->platform) + (left_ms > watch->timeout_ms ? 0 : left_ms) * 1000000ull;
}

/* One call in place. */
typedef struct in_place_call {
    const teffi_ask *ask;
    teffi_in_place place;
    stopwatch watch;
    uint32_t passed_ms;     /* duration by the coarse clock */
    _Atomic uint32_t *slow; /* the method's counter in teff_grain_type.slow */
    bool async;             /* not awaited at once: a pending call stores its method and key */
} in_place_call;

/* ---- the callee ---- */

/* Releases a claimed callee whose method has not run. After a run, nudge_and_release_callee()
 * releases it. Not inlined, since it is rare. */
__attribute__((noinline)) static void release_callee(teffi_activation *act)
{
    teffi_group_release_claim(&act->group);
}

/* out: act, claimed, if it was idle and has this identity; else NULL. */
static inline teffi_activation *claim_if_same_grain(teffi_activation *act, const teffi_ident *ident)
{
    if (!act || !teffi_group_claim(&act->group))
        return NULL;
    if (teffi_activation_is_valid_for(act, ident))
        return act;
    release_callee(act);
    return NULL;
}

/* out: the grain's activation in the cache, claimed. NULL: there is none, it is not idle, or
 * requests may wait for a look-up of the grain. The test for a look-up uses the hash stored in the
 * cached activation, because computing the grain's hash is slower. Whether the activation belongs
 * to this grain is checked after the claim. */
static inline teffi_activation *claim_cached_activation(teffi_grains *grains,
                                                        const teffi_ident *ident)
{
    teffi_activation *act =
        teffi_activation_cache_get(grains->activation_cache, teffi_activation_cache_hash(ident));
    if (!act)
        return NULL;
    uint64_t hash = atomic_load_explicit(&act->hash, memory_order_relaxed);
    if (teffi_lookup_may_exist(grains, hash) || !(act = claim_if_same_grain(act, ident)))
        return NULL;
    if (atomic_load_explicit(&act->hash, memory_order_relaxed) == hash)
        return act;
    /* act was reused for this grain after the load: the look-up test used another grain's hash */
    release_callee(act);
    return NULL;
}

/* Claims the grain's activation in the shard, or a new one if this silo may make it at once. Not
 * inlined, since most calls hit the cache. out: NULL: queue the call. If it is also certain that
 * this silo has no activation of the grain, ask->elsewhere and ask->location are set. */
__attribute__((noinline)) static teffi_activation *claim_or_create_in_shard(teffi_grains *grains,
                                                                            teffi_ask *ask)
{
    teffi_ident *ident = &ask->ident;
    bool certain = false;
    teffi_activation *act;
    ident->hash = teffi_key_hash(&grains->secret, ident->type, ident->key, ident->key_len);
    if (ask->type->placement == TEFF_PLACE_STATELESS) {
        act = teffi_stateless_claim_activation(grains, ident, ask->type->version);
    } else {
        if (teffi_lookup_may_exist(grains, ident->hash) && teffi_lookup_exists(grains, ident))
            return NULL;
        act = teffi_shard_find_activation_without_lock(grains, ident, &certain);
        act = act       ? claim_if_same_grain(act, ident)
              : certain ? teffi_partition_create_claimed_activation(grains, ident)
                        : NULL;
    }
    if (act)
        teffi_activation_cache_put(grains->activation_cache, teffi_activation_cache_hash(ident),
                                   act);
    ask->elsewhere = !act && certain;
    if (ask->elsewhere)
        ask->location = teffi_location_get(grains->location_cache, ident->hash);
    return act;
}

/* out: info's method with this id. NULL: there is none, or it is transactional in the callee's
 * version; such a method never runs in place. */
static const teff_method *find_nontransactional_method(const teff_type_info *info, uint32_t id)
{
    const teff_method *method = teffi_method_find(info, id);
    return method && !(method->flags & TEFF_METHOD_TRANSACTIONAL) ? method : NULL;
}

/* Finds the callee's definition of the method. It is the same object as the caller's definition,
 * unless caller and callee have different versions of the generated type. In that case, finds it by
 * the method's id. out: NULL: the callee's version is older than the caller's, or it has no method
 * of this id that may run in place. */
static const teff_method *find_callee_method(const teff_type_info *info, const teffi_ask *ask)
{
    const teff_method *method = ask->method;
    size_t at = (uintptr_t)method - (uintptr_t)info->methods;
    return at < info->n_methods * sizeof *method ? method
           : ask->type->version > info->version  ? NULL
                                                 : find_nontransactional_method(info, method->id);
}

/* Finds the method in act's version of the type. Stores in v the method, its class and its `slow`
 * counter. out: true: the method may start in place now. false: queue the call. If only earlier
 * long calls of the method prevent the start, may_run_or_count_down() counts this queued call. */
static inline bool find_method_and_check_may_start(const teffi_activation *act, in_place_call *v)
{
    const teff_type_info *info = act->type->info;
    const teff_method *method = find_callee_method(info, v->ask);
    if (!method)
        return false;
    teffi_class class = teffi_class_of_method(info, method);
    int32_t queued = (int32_t)atomic_load_explicit(&act->queued, memory_order_relaxed);
    v->slow = &act->type->slow[method - info->methods];
    v->place.method = method;
    v->place.class = class;
    return queued < (int64_t)teffi_queue_max(info) && teffi_activation_admits(act, class) &&
           !teffi_activation_has_pending(act, class) && may_run_or_count_down(v->slow);
}

/* out: the callee, claimed, if it may run the method now; NULL: queue the call. Keeps messages in
 * order: a claim succeeds only on an idle group with an empty queue, and the callee is not used if
 * requests of the same class wait in more->pending, or requests wait for a look-up of the grain. */
static inline teffi_activation *claim_callee(teffi_grains *grains, teffi_ask *ask, in_place_call *v)
{
    if (teffi_lease_is_over(&grains->node->home.lease))
        return NULL;
    teffi_activation *act = claim_cached_activation(grains, &ask->ident);
    if (act && act->running && ask->type->placement == TEFF_PLACE_STATELESS) {
        release_callee(act); /* its turn is suspended: the pool may have an idle one */
        act = NULL;
    }
    if (!act)
        act = claim_or_create_in_shard(grains, ask);
    if (act && !find_method_and_check_may_start(act, v)) {
        release_callee(act);
        return NULL;
    }
    return act;
}

/* ---- the call ---- */

/* Makes a pending call for a method that waits or has yielded. Must precede
 * nudge_and_release_callee(), which releases the group: otherwise a response could arrive before
 * the call exists. out: NULL if no call can be made (see teffi_call_new()). */
static teffi_call *make_pending_call(in_place_call *v)
{
    const teffi_ask *ask = v->ask;
    uint64_t deadline = get_pending_call_deadline(&v->watch, ask->ctx->node->home.exec);
    teffi_call *call = teffi_ctx_call_new(ask->ctx, deadline);
    if (!call)
        return NULL;
    if (v->async)
        teffi_ask_store_in_call(call, ask);
    else
        teffi_call_expect_body(call, v->place.method->out ? v->place.method->out->desc : NULL, 0);
    teffi_turn_set_call(&v->place, call, deadline);
    return call;
}

/* out: the result of a method that has ended; TEFF_E_TIMEOUT, with text, if it ended too late. */
static inline teff_err get_result(const in_place_call *v)
{
    const stopwatch *watch = &v->watch;
    bool late = watch->due_ns
                    ? teffi_now(v->ask->ctx->node->platform) >= watch->due_ns
                    : v->passed_ms >= watch->timeout_ms + watch->timeout_ms / COARSE_SLACK;
    return late ? teffi_ask_fail(v->ask, TEFF_E_TIMEOUT, teffi_call_late_text) : v->place.err;
}

/* Nudges the activation if its group's handler has work to do, then releases the group. */
static inline void nudge_and_release_callee(in_place_call *v)
{
    teffi_activation *act = v->place.act;
    if (!teffi_group_has_yielded_turn(
            &act->group)) /* after a yield, resume_turn() looks for work */
        teffi_activation_nudge_if_due(act);
    teffi_direct_end_claim(v->ask->ctx->node->home.exec, &act->group);
}

/* Runs the method and updates its strikes. out: how the turn ended. If that is
 * TEFFI_TURN_NOT_STARTED, this function has released the callee; otherwise the caller must call
 * nudge_and_release_callee(). */
static inline teffi_turn_end run_method_in_place(in_place_call *v)
{
    teffi_exec *exec = v->ask->ctx->node->home.exec;
    teffi_activation *act = v->place.act;
    teffi_turn_end how = teffi_turn_run_in_place(&v->place);
    if (how == TEFFI_TURN_NOT_STARTED) {
        release_callee(act);
        return how;
    }
    v->passed_ms = get_passed_ms(&v->watch, exec);
    update_strikes_if_needed(v->slow, v->passed_ms);
    return how;
}

/* Fills v in, starts its watch and claims the callee. in: async: the caller does not await the call
 * at once. out: false: queue the call. */
static inline __attribute__((always_inline)) bool
prepare_in_place_call(in_place_call *v, teffi_ask *ask, uint32_t kind, bool async)
{
    teffi_grains *grains = ask->ctx->node->grains;
    if (!teffi_direct_may_run_in_place(grains->node->home.exec, async))
        return false;
    v->ask = ask;
    v->async = async;
    v->place.caller = ask->ctx;
    v->place.in = ask->in;
    v->place.kind = kind;
    /* false: the caller's deadline has passed. Then start_call() fails with TEFF_E_TIMEOUT, but
     * send_one_way() sends its message, because a one-way message of a silo has no deadline. */
    if (!start_stopwatch(&v->watch, ask, &v->place.due_ms))
        return false;
    if (kind == TEFFI_MSG_ONEWAY)
        v->place.due_ms = 0;
    v->place.err = TEFF_OK;
    v->place.act = claim_callee(grains, ask, v);
    return v->place.act != NULL;
}

/* Runs a call in place if possible. in: kind: TEFFI_MSG_REQUEST or TEFFI_MSG_ONEWAY. async: the
 * caller does not await the call at once. out: false: queue the call. true: *call is pending, or
 * *call is NULL and the call has ended with *err. After a one-way, *call is NULL and *err is not
 * set. */
static inline __attribute__((always_inline)) bool
call_in_place_if_possible(teffi_ask *ask, uint32_t kind, bool async, ProtobufCMessage **out,
                          teffi_call **call, teff_err *err)
{
    in_place_call v __attribute__((uninitialized));
    *call = NULL;
    if (!prepare_in_place_call(&v, ask, kind, async))
        return false;
    v.place.out = out;
    teffi_turn_end how = run_method_in_place(&v);
    if (how == TEFFI_TURN_NOT_STARTED)
        return false;
    if (how == TEFFI_TURN_WAITS) {
        teffi_turn_detach(&v.place);
        if (kind == TEFFI_MSG_REQUEST && !(*call = make_pending_call(&v)))
            *err = teffi_ask_fail(ask, TEFF_E_NOMEM, "out of memory for a call; it may have run");
    } else if (kind == TEFFI_MSG_REQUEST) {
        *err = get_result(&v);
    }
    nudge_and_release_callee(&v);
    return true;
}

bool teffi_direct_ask(teffi_ask *ask, ProtobufCMessage **out, teffi_call **call, teff_err *err)
{
    return call_in_place_if_possible(ask, TEFFI_MSG_REQUEST, false, out, call, err);
}

/* Allocates, in ctx's memory, a teffi_call that has ended already. Omits `asked` and the members
 * after it, which only pending calls use. */
static teffi_call *new_ended_call(teff_ctx *ctx, teff_err err, ProtobufCMessage *body)
{
    teffi_call *call = teff_alloc(ctx, offsetof(teffi_call, asked));
    call->wait.group = ctx->group;
    call->wait.done = true;
    call->err = err;
    call->body = body;
    if (err) {
        call->text = teff_strdup(ctx, teff_error(ctx));
        ctx->text = NULL; /* now in call->text */
    }
    return call;
}

bool teffi_direct_ask_async(teffi_ask *ask, teffi_call **call)
{
    ProtobufCMessage *body = NULL;
    teff_err err = TEFF_OK;
    if (!call_in_place_if_possible(ask, TEFFI_MSG_REQUEST, true, &body, call, &err))
        return false;
    /* If this allocation fails, this turn ends at once. So the callee must be released before:
     * otherwise it would stay claimed for ever. */
    if (!*call)
        *call = new_ended_call(ask->ctx, err, body);
    return true;
}

bool teffi_direct_try_send(teffi_ask *ask)
{
    teffi_call *none;
    teff_err err;
    return call_in_place_if_possible(ask, TEFFI_MSG_ONEWAY, true, NULL, &none, &err);
}
