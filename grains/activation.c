/* activation.c - what an activation does with each item, and what it does next.
 * Way:     catalog (push) -> group -> [activation] -> admission -> turn
 * States:  in activation.h
 * Threads: handle() on the group; born() under the shard's lock; end() anywhere. */
#include "activation.h"

#include <stdio.h>
#include <stdlib.h>
#include "base/bug.h"
#include "grains.h"
#include "life.h"
#include "route.h"
#include "sched/closure.h"
#include "state.h"
#include "turn.h"

/* Turns started by one item at the most, so that one grain's backlog does not hold its worker. */
enum { STARTS_MAX = 64 };

static const teffi_group_ops ops;

void teffi_activation_init(teffi_activation *act, teffi_grains *grains, uint32_t slot)
{
    teffi_group_init(&act->group, grains->node->exec, &ops);
    act->grains = grains;
    act->slot = slot;
    act->start_item.kind = TEFFI_ITEM_START;
    act->end_item.kind = TEFFI_ITEM_END;
    act->pump_item.kind = TEFFI_ITEM_PUMP;
    act->last_item.kind = TEFFI_ITEM_LAST;
}

static uint8_t *key_room(teffi_activation *act, uint32_t len)
{
    act->long_key = len < TEFFI_KEY_INLINE ? NULL : malloc(len + 1u);
    return len < TEFFI_KEY_INLINE ? act->key : act->long_key;
}

teff_err teffi_activation_born(teffi_activation *act, const teff_grain_type *type,
                               const teffi_ident *ident)
{
    uint8_t *key = key_room(act, ident->key_len);
    if (!key)
        return TEFF_E_NOMEM;
    memcpy(key, ident->key, ident->key_len);
    key[ident->key_len] = 0;
    if (!teffi_key_decode(type->info->key_kind, key, ident->key_len, &act->user_key)) {
        free(act->long_key);
        act->long_key = NULL;
        return TEFF_E_INVALID;
    }
    act->type = type;
    act->ident = *ident;
    act->ident.key = key;
    act->generation++;
    act->registered = false;
    atomic_store_explicit(&act->hash, ident->hash, memory_order_relaxed);
    atomic_store_explicit(&act->group.priority, type->priority, memory_order_relaxed);
    (void)teffi_group_push(&act->group, &act->start_item);
    return TEFF_OK;
}

teffi_pid teffi_activation_pid(const teffi_activation *act)
{
    return (teffi_pid){act->grains->node->id, act->slot, act->generation};
}

void teffi_activation_end(teffi_activation *act, teff_reason reason)
{
    uint32_t none = 0;
    /* acq_rel: the winner pushes END once; pairs with the exchange in on_end() */
    if (atomic_compare_exchange_strong_explicit(&act->end_reason, &none, (uint32_t)reason,
                                                memory_order_acq_rel, memory_order_relaxed))
        (void)teffi_group_push(&act->group, &act->end_item);
}

/* ---- requests ---- */

static void set_aside(teffi_activation *act, teffi_msg *msg, teffi_class class)
{
    teffi_queue_push(&act->pending, &msg->link);
    act->pending_of[class]++;
}

/* A request that starts, or ends otherwise, makes room in the queue. */
static void unqueue(teffi_activation *act)
{
    atomic_fetch_sub_explicit(&act->queued, 1, memory_order_relaxed);
}

static const teff_method *method_of(teffi_activation *act, const teffi_msg *msg)
{
    return teffi_method_find(act->type->info, msg->method_id);
}

static bool open_for(teffi_activation *act, teffi_class class)
{
    return act->phase == TEFFI_VALID && !act->reason && !act->busy &&
           teffi_may_start(act->running_of, class);
}

static bool expired(teffi_activation *act, const teffi_msg *msg)
{
    return msg->deadline_ns && msg->item.kind == TEFFI_MSG_REQUEST &&
           teffi_now(act->grains->node->platform) >= msg->deadline_ns;
}

static void start(teffi_activation *act, teffi_msg *msg, const teff_method *method)
{
    unqueue(act);
    atomic_store_explicit(&act->used_ms,
                          atomic_load_explicit(&act->grains->coarse_ms, memory_order_relaxed),
                          memory_order_relaxed); /* the collector's guess, no order needed */
    teffi_warn_item(&act->group, &msg->item);
    teffi_turn_start(act, msg, method);
}

/* The memory may have been given to another grain since the sender looked, or was another's all the
 * time, of the same hash. */
static bool misdirected(teffi_activation *act, const teffi_msg *msg)
{
    teffi_ident ident = teffi_ident_msg(msg);
    if (act->phase != TEFFI_FREE && teffi_ident_is(&ident, &act->ident))
        return false;
    if (act->phase != TEFFI_FREE && act->ident.hash == ident.hash)
        teffi_catalog_twins(act->grains, ident.hash);
    return true;
}

static void on_request(teffi_activation *act, teffi_msg *msg)
{
    if (misdirected(act, msg)) {
        unqueue(act);
        teffi_route_again(act->grains, msg);
        return;
    }
    const teff_method *method = method_of(act, msg);
    if (!method) {
        unqueue(act);
        teffi_node_answer(act->grains->node, msg, TEFF_E_NOT_FOUND,
                          "the grain type has no such method here");
        return;
    }
    teffi_class class = teffi_class_of(act->type->info, method);
    /* A request that could start does not overtake one of its own class. */
    if (open_for(act, class) && act->pending_of[class] == 0)
        start(act, msg, method);
    else
        set_aside(act, msg, class);
}

/* ---- what was set aside ---- */

static bool some_may_start(teffi_activation *act)
{
    for (int c = 0; c < 3; c++)
        if (act->pending_of[c] && open_for(act, (teffi_class)c))
            return true;
    return false;
}

static void pump_later(teffi_activation *act)
{
    if (act->pump_queued)
        return;
    act->pump_queued = true;
    (void)teffi_group_push(&act->group, &act->pump_item);
}

/* In order of arrival; what may not start is skipped and keeps its place. */
static void pump(teffi_activation *act)
{
    teffi_queue skipped = {0};
    unsigned starts = 0;
    while (act->pending.count && starts < STARTS_MAX && some_may_start(act) &&
           !teffi_group_yielded(&act->group)) {
        teffi_msg *msg = teffi_container(teffi_queue_pop(&act->pending), teffi_msg, link);
        const teff_method *method = method_of(act, msg);
        teffi_class class = teffi_class_of(act->type->info, method);
        if (!open_for(act, class)) {
            teffi_queue_push(&skipped, &msg->link);
            continue;
        }
        act->pending_of[class]--;
        if (expired(act, msg)) {
            unqueue(act);
            teffi_node_answer(act->grains->node, msg, TEFF_E_TIMEOUT,
                              "expired while it waited for the grain");
            continue;
        }
        start(act, msg, method);
        starts++;
    }
    teffi_queue_move(&skipped, &act->pending);
    act->pending = skipped;
    if (some_may_start(act))
        pump_later(act);
}

/* ---- the end of a life ---- */

static void hand_back(teffi_grains *grains, teffi_queue *pending, teff_err failed, const char *text,
                      teffi_node_id winner)
{
    teffi_qnode *n;
    while ((n = teffi_queue_pop(pending))) {
        teffi_msg *msg = teffi_container(n, teffi_msg, link);
        teffi_ident ident = teffi_ident_msg(msg);
        if (failed)
            teffi_node_answer(grains->node, msg, failed, text);
        else if (!teffi_node_none(winner) && msg->hops < TEFFI_HOPS_MAX)
            teffi_route_to(grains, &ident, msg, winner);
        else
            teffi_route_again(grains, msg);
    }
}

/* Out of the catalog; what was pushed before is still in the group's queue and shares the end of
 * what is pending: a request that began a life which failed is told so, it does not begin another
 * one. */
static void part(teffi_activation *act)
{
    act->phase = TEFFI_ENDED;
    teffi_catalog_remove(act->grains, act);
    (void)teffi_group_push(&act->group, &act->last_item);
}

/* After keep() the memory may be another grain's: everything needed after it is taken
 * out before. */
static void bury(teffi_activation *act)
{
    teffi_grains *grains = act->grains;
    teffi_queue pending = act->pending;
    teff_err failed = act->failed;
    char *text = act->failed_text;
    teffi_node_id winner = act->winner.node;
    uint8_t *long_key = act->long_key;

    teffi_state_free(act);
    atomic_fetch_sub_explicit(&act->queued, (uint32_t)pending.count, memory_order_relaxed);
    act->pending = (teffi_queue){0};
    memset(act->pending_of, 0, sizeof act->pending_of);
    act->failed = TEFF_OK;
    act->failed_text = NULL;
    act->winner = (teffi_pid){0};
    act->reason = (teff_reason)0;
    act->etag = 0;
    act->phase = TEFFI_FREE;
    act->long_key = NULL;
    teffi_catalog_keep(grains, act);

    hand_back(grains, &pending, failed, text, winner);
    /* relaxed: a leaving silo polls it */
    atomic_fetch_sub_explicit(&grains->catalog.count, 1, memory_order_relaxed);
    free(text);
    free(long_key);
}

/* ---- what to do after each item ---- */

static void after_activating(teffi_activation *act)
{
    if (act->failed || act->winner.slot)
        part(act);
    else
        act->phase = TEFFI_VALID;
}

static void settle(teffi_activation *act)
{
    if (act->phase == TEFFI_FREE || act->busy)
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

static bool idle(teffi_activation *act)
{
    uint64_t now = atomic_load_explicit(&act->grains->coarse_ms, memory_order_relaxed);
    uint32_t idle_ms = act->type->info->idle_ms ? act->type->info->idle_ms : TEFFI_IDLE_DEFAULT_MS;
    return act->running == 0 && act->pending.count == 0 &&
           atomic_load_explicit(&act->queued, memory_order_relaxed) == 0 &&
           now - atomic_load_explicit(&act->used_ms, memory_order_relaxed) >= idle_ms;
}

static void on_end(teffi_activation *act)
{
    /* acq_rel: pairs with end(); from here on END may be pushed again */
    teff_reason why =
        (teff_reason)atomic_exchange_explicit(&act->end_reason, 0, memory_order_acq_rel);
    if (act->phase != TEFFI_VALID && act->phase != TEFFI_ACTIVATING)
        return;
    if (why != TEFF_REASON_IDLE || (act->phase == TEFFI_VALID && idle(act)))
        act->reason = act->reason ? act->reason : why;
}

static void on_start(teffi_activation *act)
{
    teffi_bug_if(act->phase != TEFFI_FREE);
    act->phase = TEFFI_ACTIVATING;
    act->group.used = 0; /* the last grain's */
    atomic_store_explicit(&act->used_ms,
                          atomic_load_explicit(&act->grains->coarse_ms, memory_order_relaxed),
                          memory_order_relaxed);
    teffi_life_begin(act);
}

static void handle(teffi_group *group, teffi_item *item)
{
    teffi_activation *act = teffi_container(group, teffi_activation, group);
    teff_ctx *ctx;
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
    case TEFFI_ITEM_START:
        on_start(act);
        break;
    case TEFFI_ITEM_END:
        on_end(act);
        break;
    case TEFFI_ITEM_PUMP:
        act->pump_queued = false;
        break;
    case TEFFI_ITEM_LAST:
        bury(act);
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
    snprintf(text, size, "%s (grain in slot %u)", doing ? doing : "a new grain", act->slot);
}

static const teffi_group_ops ops = {.handle = handle,
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
    while ((n = teffi_queue_pop(&act->pending)))
        teffi_msg_free(teffi_container(n, teffi_msg, link));
    while ((item = teffi_group_drain(&act->group)))
        discard_item(item);
    teffi_turns_discard(act);
    teffi_state_free(act);
    free(act->failed_text);
    free(act->long_key);
}
