/* activation.c - an activation's identity, the queue of its requests, its name in error texts. */
#include "activation/activation.h"

#include <assert.h>
#include <stdlib.h>
#include "memory/pool.h"

static_assert(sizeof(teffi_activation) == 192,
              "three cache lines; tests/bench idle-activation-bytes");

void teffi_activation_init(teffi_activation *act, teffi_grains *grains)
{
    teffi_group_init(&act->group, grains->node->home.exec, grains->group_ops);
    teffi_group_set_initially_complete(&act->group);
    act->grains = grains;
    act->nudge.kind = TEFFI_ITEM_NUDGE;
}

/* ---- identity ---- */

static bool key_is_inline(const teffi_activation *act)
{
    return act->key_len < TEFFI_KEY_INLINE;
}

/* Copies the key and a zero byte to act->key. If they do not fit there, copies them to the heap and
 * stores their address in act->key. out: false if out of memory. */
static bool store_activation_key(teffi_activation *act, const teffi_ident *ident)
{
    act->key_len = (uint16_t)ident->key_len;
    uint8_t *key = key_is_inline(act) ? act->key : malloc(ident->key_len + 1u);
    if (!key)
        return false;
    memcpy(key, ident->key, ident->key_len);
    key[ident->key_len] = 0;
    if (!key_is_inline(act))
        memcpy(act->key, &key, sizeof key);
    return true;
}

static void drop_activation_key(teffi_activation *act)
{
    if (!key_is_inline(act))
        free((void *)(uintptr_t)teffi_activation_key_bytes(act));
    act->key_len = 0;
}

teff_err teffi_activation_give_identity(teffi_activation *act, const teff_grain_type *type,
                                        const teffi_ident *ident)
{
    teff_key key;
    if (!store_activation_key(act, ident))
        return TEFF_E_NOMEM;
    const uint8_t *bytes = teffi_activation_key_bytes(act);
    if (!teffi_key_decode(type->info->key_kind, bytes, ident->key_len, &key)) {
        drop_activation_key(act);
        return TEFF_E_INVALID;
    }
    act->type = type;
    act->generation++;
    act->registered = false;
    act->phase = TEFFI_BORN;
    act->group.used = 0; /* forget the previous grain's run time (sched/policy/level.h) */
    /* relaxed: lock-free readers need no order; for turns of the group, teffi_group_reuse() orders
     * these stores */
    atomic_store_explicit(&act->queued, 0, memory_order_relaxed);
    atomic_store_explicit(&act->queued_bytes, 0, memory_order_relaxed);
    atomic_store_explicit(&act->hash, ident->hash, memory_order_relaxed);
    atomic_store_explicit(&act->group.priority, type->priority, memory_order_relaxed);
    teffi_activation_delay_end(act, 0); /* forget the previous grain's delay */
    teffi_group_reuse(&act->group);
    return TEFF_OK;
}

teffi_pid teffi_activation_pid(const teffi_activation *act)
{
    return (teffi_pid){act->grains->node->id, act->slot, act->generation};
}

void teffi_activation_delay_end(teffi_activation *act, int64_t ms)
{
    enum { MAX_MS = 12 * 24 * 60 * 60 * 1000 };
    uint64_t until = atomic_load_explicit(&act->grains->coarse_ms, memory_order_relaxed);
    if (ms > 0) /* the coarse clock is late; + 1: the part of a millisecond that has passed */
        until = teffi_now(act->grains->node->platform) / 1000000u + 1 +
                (uint64_t)(ms < MAX_MS ? ms : MAX_MS);
    atomic_store_explicit(&act->used_ms, (uint32_t)until, memory_order_relaxed);
}

void teffi_activation_nudge(teffi_activation *act)
{
    /* acq_rel: pairs with the fetch_and in clear_nudge_and_adopt_end_reason(): what this thread
     * stored before is visible there, even if the nudge item was already queued */
    if (!(atomic_fetch_or_explicit(&act->marks, TEFFI_NUDGED, memory_order_acq_rel) & TEFFI_NUDGED))
        (void)teffi_group_push(&act->group, &act->nudge);
}

void teffi_activation_ask_to_end(teffi_activation *act, teff_reason reason)
{
    uint8_t was = 0;
    /* relaxed: teffi_activation_nudge() orders this store */
    while (!atomic_compare_exchange_weak_explicit(&act->end_reason, &was, (uint8_t)reason,
                                                  memory_order_relaxed, memory_order_relaxed))
        if (was &&
            (!teffi_reason_is_for_unused(was) || teffi_reason_is_for_unused((uint8_t)reason)))
            return;
    teffi_activation_nudge(act);
}

teffi_more *teffi_activation_ensure_rare_fields(teffi_activation *act)
{
    if (!act->more) {
        act->more = teffi_pool_get(sizeof *act->more);
        if (act->more)
            *act->more = (teffi_more){0};
    }
    return act->more;
}

void teffi_activation_free_rare_fields(teffi_activation *act)
{
    if (!act->more)
        return;
    free(act->more->failed_text);
    teffi_pool_put(act->more, sizeof *act->more);
    act->more = NULL;
}

void teffi_activation_clear(teffi_activation *act)
{
    teffi_activation_free_rare_fields(act);
    drop_activation_key(act);
    act->failed = TEFF_OK;
    act->was_valid = false;
    atomic_store_explicit(&act->watched, 0, memory_order_relaxed);
    act->reason = 0;
    act->busy = 0;
    act->phase = TEFFI_FREE;
    /* relaxed: no other thread stores an end_reason, because act is no longer in the shard */
    atomic_store_explicit(&act->end_reason, 0, memory_order_relaxed);
}

/* ---- the queue of requests ---- */

/* out: the bytes of msg that count in act->queued_bytes. 0 if msg is small: small requests are
 * limited only by their number. */
static uint32_t get_bytes_if_large(const teffi_msg *msg)
{
    return msg->charged > 2 * TEFFI_MSG_INLINE ? msg->charged : 0;
}

void teffi_activation_uncount_queued(teffi_activation *act, const teffi_msg *msg)
{
    uint32_t bytes = get_bytes_if_large(msg);
    atomic_fetch_sub_explicit(&act->queued, 1, memory_order_relaxed);
    if (bytes)
        atomic_fetch_sub_explicit(&act->queued_bytes, bytes, memory_order_relaxed);
}

/* Adds msg to the counters act->queued and act->queued_bytes. If a counter now exceeds its limit,
 * subtracts msg again. The limit of bytes does not apply while no other large request is queued. No
 * limit applies to a request that ends a transaction, because it unlocks the grain.
 * relaxed: the limits need no order. The counters may be below 0: see teffi_activation.queued.
 * out: true: msg is counted. *before: the number of requests that were queued before msg. */
static bool count_if_fits(teffi_activation *act, const teff_grain_type *type, const teffi_msg *msg,
                          uint32_t *before)
{
    uint32_t max = type ? teffi_queue_max(type->info) : TEFFI_QUEUE_DEFAULT;
    uint32_t bytes = get_bytes_if_large(msg), had = 0;
    *before = atomic_fetch_add_explicit(&act->queued, 1, memory_order_relaxed);
    if (bytes)
        had = atomic_fetch_add_explicit(&act->queued_bytes, bytes, memory_order_relaxed);
    bool fits = (int32_t)had <= 0 || (int64_t)had + bytes <= act->grains->node->grain_bytes_max;
    if (((int32_t)*before < (int32_t)max && fits) || teffi_msg_ends_transaction(msg))
        return true;
    teffi_activation_uncount_queued(act, msg);
    return false;
}

teff_err teffi_activation_push(teffi_activation *act, const teff_grain_type *type, teffi_msg *msg,
                               uint32_t *deep)
{
    const teffi_node *node = act->grains->node;
    uint32_t before;
    *deep = 0;
    teffi_msg_charge(msg, node->budget);
    if (teffi_budget_is_exceeded(node->budget) && !teffi_msg_ends_transaction(msg))
        return TEFF_E_OVERLOADED;
    if (!count_if_fits(act, type, msg, &before))
        return TEFF_E_OVERLOADED;
    if (!teffi_group_push(&act->group, &msg->item)) {
        teffi_activation_uncount_queued(act, msg);
        return TEFF_E_CLOSED;
    }
    if (before == node->home.exec->warn.queue_warn)
        *deep = before + 1;
    return TEFF_OK;
}

bool teffi_activation_any_pending_may_start(const teffi_activation *act)
{
    const teffi_more *more = act->more;
    if (!more)
        return false;
    for (int c = 0; c < 3; c++)
        if (more->pending_of[c] > 0 && teffi_activation_admits(act, (teffi_class)c))
            return true;
    /* a lock was taken while requests were pending: some of them may have to end */
    if (more->judge_all)
        return true;
    /* while act is locked, only requests of the lock's transaction may start, one at a time */
    return act->busy == TEFFI_BUSY_LOCKED && more->pending_of_owner && act->running == 0 &&
           act->phase == TEFFI_VALID;
}

/* ---- names in error texts ---- */

enum { KEY_BYTES_SHOWN = 80 }; /* teffi_key_format() shows at most 16 + 60 */

/* Prefixes ctx's error text, or err's name if there is no text, with "<what> at <key>: ".
 * out: err. */
static teff_err prefix_error_text(teff_ctx *ctx, const char *what, const teff_key *key,
                                  teff_err err)
{
    char key_text[TEFFI_KEY_TEXT_MAX];
    const char *text = teff_error(ctx);
    teffi_key_format(key, key_text);
    return teff_fail(ctx, err, "%s at %s: %s", what, key_text, text[0] ? text : teff_err_name(err));
}

teff_err teffi_error_add_call_prefix(teff_ctx *ctx, const teff_method *method, const teff_key *key,
                                     teff_err err)
{
    return prefix_error_text(ctx, method->name, key, err);
}

teff_err teffi_error_add_call_prefix_from_bytes(teff_ctx *ctx, const teff_method *method,
                                                teff_key_kind kind, const uint8_t *bytes,
                                                uint32_t len, teff_err err)
{
    uint8_t ended[KEY_BYTES_SHOWN + 1] = {0};
    teff_key key;
    memcpy(ended, bytes, len < KEY_BYTES_SHOWN ? len : KEY_BYTES_SHOWN);
    teffi_key_decode_unchecked(&key, kind, ended);
    return prefix_error_text(ctx, method->name, &key, err);
}

teff_err teffi_error_add_turn_prefix(teff_ctx *ctx, teff_err err)
{
    const teffi_turn *turn = ctx->owner;
    teff_key key;
    teffi_activation_get_key(turn->act, &key);
    return prefix_error_text(ctx, turn->method ? turn->method->name : turn->act->type->info->name,
                             &key, err);
}
