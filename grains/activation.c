/* activation.c - what an activation does with each item, and what it does next.
 * Way:     catalog (push) -> group -> [activation] -> admission -> turn
 * States:  in activation.h
 * Threads: handle() on the group; born() under the shard's lock; end() anywhere. */
#include "activation.h"

#include <assert.h>
#include <stdio.h>
#include <stdlib.h>
#include "base/bug.h"
#include "base/pool.h"
#include "grains.h"
#include "life.h"
#include "route.h"
#include "sched/closure.h"
#include "state.h"
#include "turn.h"

/* Turns started by one item at the most, so that one grain's backlog does not hold its worker. */
enum { STARTS_MAX = 64 };

static const teffi_group_ops ops;

static_assert(sizeof(teffi_activation) == 192,
              "three cache lines; tests/bench idle-activation-bytes");

void teffi_activation_init(teffi_activation *act, teffi_grains *grains)
{
    teffi_group_init(&act->group, grains->node->exec, &ops);
    teffi_group_init_complete(&act->group);
    act->grains = grains;
    act->nudge.kind = TEFFI_ITEM_NUDGE;
}

/* ---- identity ---- */

static bool key_fits(const teffi_activation *act)
{
    return act->key_len < TEFFI_KEY_INLINE;
}

static bool put_key(teffi_activation *act, const teffi_ident *ident)
{
    act->key_len = (uint16_t)ident->key_len;
    uint8_t *key = key_fits(act) ? act->key : malloc(ident->key_len + 1u);
    if (!key)
        return false;
    memcpy(key, ident->key, ident->key_len);
    key[ident->key_len] = 0;
    if (!key_fits(act))
        memcpy(act->key, &key, sizeof key);
    return true;
}

static void drop_key(teffi_activation *act)
{
    if (!key_fits(act))
        free((void *)(uintptr_t)teffi_activation_key_bytes(act));
    act->key_len = 0;
}

teff_err teffi_activation_born(teffi_activation *act, const teff_grain_type *type,
                               const teffi_ident *ident)
{
    teff_key key;
    if (!put_key(act, ident))
        return TEFF_E_NOMEM;
    const uint8_t *bytes = teffi_activation_key_bytes(act);
    if (!teffi_key_decode(type->info->key_kind, bytes, ident->key_len, &key)) {
        drop_key(act);
        return TEFF_E_INVALID;
    }
    act->type = type;
    act->generation++;
    act->registered = false;
    act->phase = TEFFI_BORN;
    act->group.used = 0; /* the last grain's */
    /* relaxed, all of them: their readers want no order, the group's are ordered by reuse */
    atomic_store_explicit(&act->queued, 0, memory_order_relaxed);
    atomic_store_explicit(&act->hash, ident->hash, memory_order_relaxed);
    atomic_store_explicit(&act->group.priority, type->priority, memory_order_relaxed);
    teffi_activation_used(act);
    teffi_group_reuse(&act->group);
    return TEFF_OK;
}

teffi_pid teffi_activation_pid(const teffi_activation *act)
{
    return (teffi_pid){act->grains->node->id, act->slot, act->generation};
}

void teffi_activation_nudge(teffi_activation *act)
{
    /* acq_rel: what is asked for is there when the nudge is handled; pairs with on_nudge() */
    if (!atomic_exchange_explicit(&act->nudged, true, memory_order_acq_rel))
        (void)teffi_group_push(&act->group, &act->nudge);
}

void teffi_activation_end(teffi_activation *act, teff_reason reason)
{
    uint8_t none = 0;
    /* relaxed: the nudge orders it */
    if (atomic_compare_exchange_strong_explicit(&act->end_reason, &none, (uint8_t)reason,
                                                memory_order_relaxed, memory_order_relaxed))
        teffi_activation_nudge(act);
}

teffi_more *teffi_activation_more(teffi_activation *act)
{
    if (!act->more) {
        act->more = teffi_pool_get(sizeof *act->more);
        if (act->more)
            *act->more = (teffi_more){0};
    }
    return act->more;
}

static void drop_more(teffi_activation *act)
{
    if (!act->more)
        return;
    free(act->more->failed_text);
    teffi_pool_put(act->more, sizeof *act->more);
    act->more = NULL;
}

/* ---- requests ---- */

/* A request that starts, or ends otherwise, makes room in the queue. */
static void unqueue(teffi_activation *act)
{
    atomic_fetch_sub_explicit(&act->queued, 1, memory_order_relaxed);
}

static const teff_method *method_of(teffi_activation *act, const teffi_msg *msg)
{
    return teffi_method_find(act->type->info, msg->method_id);
}

static bool expired(teffi_activation *act, const teffi_msg *msg)
{
    return msg->deadline_ns && msg->item.kind == TEFFI_MSG_REQUEST &&
           teffi_now(act->grains->node->platform) >= msg->deadline_ns;
}

static void set_aside(teffi_activation *act, teffi_msg *msg, teffi_class class)
{
    teffi_more *more = teffi_activation_more(act);
    if (!more) {
        unqueue(act);
        teffi_node_answer(act->grains->node, msg, TEFF_E_NOMEM, "out of memory to wait in");
        return;
    }
    teffi_queue_push(&more->pending, &msg->link);
    more->pending_of[class]++;
}

static void start(teffi_activation *act, teffi_msg *msg, const teff_method *method)
{
    unqueue(act);
    teffi_activation_used(act);
    teffi_warn_item(&act->group, &msg->item);
    teffi_turn_start(act, msg, method);
}

/* The memory may have been given to another grain since the sender looked, or was another's all the
 * time, of the same hash. */
static bool misdirected(const teffi_activation *act, const teffi_msg *msg)
{
    return act->type->info->id != msg->type_id || act->key_len != msg->key_len ||
           !teffi_key_same(teffi_activation_key_bytes(act), msg->key, msg->key_len);
}

static void redirect(teffi_activation *act, teffi_msg *msg)
{
    uint64_t hash = teffi_ident_msg(msg).hash;
    if (atomic_load_explicit(&act->hash, memory_order_relaxed) == hash)
        teffi_catalog_twins(act->grains, hash);
    unqueue(act);
    teffi_route_again(act->grains, msg);
}

/* Its life is over, or was never to be: the request shares that, or finds another one. */
static void hand_back(teffi_activation *act, teffi_msg *msg)
{
    teffi_grains *grains = act->grains;
    teffi_ident ident = teffi_ident_msg(msg);
    teffi_node_id winner = act->more ? act->more->winner.node : (teffi_node_id){0};
    unqueue(act);
    if (act->failed)
        teffi_node_answer(grains->node, msg, act->failed,
                          act->more ? act->more->failed_text : NULL);
    else if (!teffi_node_none(winner) && msg->hops < TEFFI_HOPS_MAX)
        teffi_route_to(grains, &ident, msg, winner);
    else
        teffi_route_again(grains, msg);
}

static void admit(teffi_activation *act, teffi_msg *msg)
{
    const teff_method *method = method_of(act, msg);
    if (!method) {
        unqueue(act);
        teffi_node_answer(act->grains->node, msg, TEFF_E_NOT_FOUND,
                          "the grain type has no such method here");
        return;
    }
    teffi_class class = teffi_class_of(act->type->info, method);
    /* A request that could start does not overtake one of its own class. */
    if (teffi_activation_open(act, class) && !teffi_activation_waits(act, class))
        start(act, msg, method);
    else
        set_aside(act, msg, class);
}

static void on_request(teffi_activation *act, teffi_msg *msg)
{
    if (misdirected(act, msg)) {
        redirect(act, msg);
    } else if (act->phase == TEFFI_ENDED) {
        hand_back(act, msg);
    } else {
        admit(act, msg);
    }
}

/* ---- what was set aside ---- */

static bool some_may_start(teffi_activation *act)
{
    for (int c = 0; c < 3; c++)
        if (teffi_activation_waits(act, (teffi_class)c) &&
            teffi_activation_open(act, (teffi_class)c))
            return true;
    return false;
}

/* Off the queue, to its end or its turn. */
static void start_pending(teffi_activation *act, teffi_msg *msg, const teff_method *method)
{
    if (!expired(act, msg)) {
        start(act, msg, method);
        return;
    }
    unqueue(act);
    teffi_node_answer(act->grains->node, msg, TEFF_E_TIMEOUT,
                      "expired while it waited for the grain");
}

/* In order of arrival; what may not start is skipped and keeps its place. */
static void pump(teffi_activation *act)
{
    teffi_more *more = act->more; /* stays until drop_more() below: turns only add to it */
    teffi_queue skipped = {0};
    for (unsigned starts = 0; more && more->pending.count && starts < STARTS_MAX &&
                              some_may_start(act) && !teffi_group_yielded(&act->group);
         starts++) {
        teffi_msg *msg = teffi_container(teffi_queue_pop(&more->pending), teffi_msg, link);
        const teff_method *method = method_of(act, msg);
        teffi_class class = teffi_class_of(act->type->info, method);
        if (!teffi_activation_open(act, class)) {
            teffi_queue_push(&skipped, &msg->link);
            continue;
        }
        more->pending_of[class]--;
        start_pending(act, msg, method);
    }
    if (!more)
        return;
    teffi_queue_move(&skipped, &more->pending);
    more->pending = skipped;
    if (!more->pending.count)
        drop_more(act);
    else if (some_may_start(act))
        teffi_activation_nudge(act);
}

/* ---- in place of the handler ---- */

void teffi_activation_settle_any(teffi_activation *act)
{
    bool ends = act->reason && act->running == 0;
    if (ends || some_may_start(act) || teffi_state_compacts(act))
        teffi_activation_nudge(act);
}

/* ---- the end of a life ---- */

/* Out of the catalog; what was pushed before is still in the group's queue and shares the end of
 * what is pending: a request that began a life which failed is told so, it does not begin another
 * one. What comes from now on is refused, and looks for another. */
static void part(teffi_activation *act)
{
    teffi_qnode *n;
    act->phase = TEFFI_ENDED;
    teffi_catalog_remove(act->grains, act);
    teffi_group_complete(&act->group);
    while (act->more && (n = teffi_queue_pop(&act->more->pending)))
        hand_back(act, teffi_container(n, teffi_msg, link));
}

/* The last item was handled. After keep() the memory may be another grain's. */
static void ended(teffi_group *group)
{
    teffi_activation *act = teffi_container(group, teffi_activation, group);
    teffi_grains *grains = act->grains;
    teffi_state_free(act);
    drop_more(act);
    drop_key(act);
    act->failed = TEFF_OK;
    act->reason = 0;
    act->phase = TEFFI_FREE;
    /* relaxed: nobody asks it for anything any more */
    atomic_store_explicit(&act->end_reason, 0, memory_order_relaxed);
    teffi_catalog_keep(grains, act);
    /* relaxed: a leaving silo polls it */
    atomic_fetch_sub_explicit(&grains->catalog.count, 1, memory_order_relaxed);
}

/* ---- what to do after each item ---- */

static void after_activating(teffi_activation *act)
{
    if (act->failed || (act->more && act->more->winner.slot))
        part(act);
    else
        act->phase = TEFFI_VALID;
}

/* Not inlined: after most turns nothing is left to do. */
__attribute__((noinline)) static void settle_rest(teffi_activation *act)
{
    if (act->busy)
        return;
    if (act->phase == TEFFI_ACTIVATING)
        after_activating(act);
    if (act->phase == TEFFI_VALID && act->running == 0)
        teffi_state_compact(act);
    if (act->phase == TEFFI_VALID && !act->reason)
        pump(act);
    if (act->phase == TEFFI_VALID && act->reason && act->running == 0) {
        act->phase = TEFFI_DEACTIVATING;
        teffi_life_end(act);
    }
    if (act->phase == TEFFI_DEACTIVATING && !act->busy)
        part(act);
}

static inline void settle(teffi_activation *act)
{
    if (act->phase != TEFFI_VALID || act->reason || act->more || act->stored)
        settle_rest(act);
}

static bool idle(teffi_activation *act)
{
    uint64_t now = atomic_load_explicit(&act->grains->coarse_ms, memory_order_relaxed);
    uint32_t idle_ms = act->type->info->idle_ms ? act->type->info->idle_ms : TEFFI_IDLE_DEFAULT_MS;
    uint32_t used = atomic_load_explicit(&act->used_ms, memory_order_relaxed);
    return act->running == 0 && !(act->more && act->more->pending.count) &&
           (int32_t)atomic_load_explicit(&act->queued, memory_order_relaxed) <= 0 &&
           (uint32_t)now - used >= idle_ms;
}

static void on_nudge(teffi_activation *act)
{
    /* acq_rel: what was asked for before the nudge is seen; from here on it may be pushed again */
    (void)atomic_exchange_explicit(&act->nudged, false, memory_order_acq_rel);
    uint8_t why = atomic_exchange_explicit(&act->end_reason, 0, memory_order_relaxed);
    if (!why || (act->phase != TEFFI_VALID && act->phase != TEFFI_ACTIVATING))
        return;
    if (why != TEFF_REASON_IDLE || (act->phase == TEFFI_VALID && idle(act)))
        act->reason = act->reason ? act->reason : why;
}

/* The first item of a life begins it, whatever it is. */
static void begin(teffi_activation *act)
{
    act->phase = TEFFI_ACTIVATING;
    teffi_life_begin(act);
    if (!act->busy)
        after_activating(act);
}

static void handle(teffi_group *group, teffi_item *item)
{
    teffi_activation *act = teffi_container(group, teffi_activation, group);
    teff_ctx *ctx;
    if (act->phase == TEFFI_BORN)
        begin(act);
    switch (item->kind) {
    case TEFFI_MSG_REQUEST:
    case TEFFI_MSG_ONEWAY:
        on_request(act, teffi_container(item, teffi_msg, item));
        break;
    case TEFFI_ITEM_WAIT:
        teffi_turn_resumes(act, item);
        (void)teffi_wait_arrived(item, &ctx);
        break;
    case TEFFI_ITEM_CLOSURE:
        teffi_closure_arrived(item);
        break;
    case TEFFI_ITEM_NUDGE:
        on_nudge(act);
        break;
    default:
        teffi_bug(__FILE__, __LINE__, "an item of an unknown kind");
    }
    if (!teffi_group_yielded(group))
        settle(act);
}

/* A turn that gave way in its middle. */
static void resume(teffi_group *group, teffi_fiber *fiber)
{
    (void)teffi_fiber_resume(fiber);
    if (!teffi_group_yielded(group))
        settle(teffi_container(group, teffi_activation, group));
}

/* More waits on this silo than may, and this grain is the least urgent: what has not begun is
 * refused, what has goes on. */
static bool evict(teffi_group *group, teffi_item *item)
{
    teffi_activation *act = teffi_container(group, teffi_activation, group);
    if (item->kind != TEFFI_MSG_REQUEST && item->kind != TEFFI_MSG_ONEWAY)
        return false;
    teffi_msg *msg = teffi_container(item, teffi_msg, item);
    unqueue(act);
    if (misdirected(act, msg))
        teffi_route_again(act->grains, msg);
    else
        teffi_node_answer(act->grains->node, msg, TEFF_E_OVERLOADED,
                          "evicted: more grains wait on this silo than may");
    return true;
}

static void describe(teffi_group *group, char *text, size_t size)
{
    teffi_activation *act = teffi_container(group, teffi_activation, group);
    const char *doing = atomic_load_explicit(&act->doing, memory_order_relaxed);
    snprintf(text, size, "%s (grain in slot %u)", doing ? doing : "a new grain",
             atomic_load_explicit(&act->slot, memory_order_relaxed));
}

static const teffi_group_ops ops = {.handle = handle,
                                    .ended = ended,
                                    .resume = resume,
                                    .evict = evict,
                                    .describe = describe,
                                    .kind = TEFFI_CONTEXT_ACTIVATION};

static void discard_item(teffi_item *item)
{
    if (item->kind == TEFFI_ITEM_CLOSURE)
        teffi_closure_drop(item);
    if (item->kind == TEFFI_MSG_REQUEST || item->kind == TEFFI_MSG_ONEWAY)
        teffi_msg_free(teffi_container(item, teffi_msg, item));
}

void teffi_activation_discard(teffi_activation *act)
{
    teffi_qnode *n;
    teffi_item *item;
    while (act->more && (n = teffi_queue_pop(&act->more->pending)))
        teffi_msg_free(teffi_container(n, teffi_msg, link));
    while ((item = teffi_group_drain(&act->group)))
        discard_item(item);
    teffi_turns_discard(act);
    teffi_state_free(act);
    drop_more(act);
    drop_key(act);
}
