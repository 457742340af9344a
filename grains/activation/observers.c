/* observers.c - adds observers to an activation's sets, and removes them: on request, at the
 * expiry, or because a notification was not delivered. */
#include "activation/observers.h"

#include <stdlib.h>
#include "base/hash.h"
#include "base/siphash.h"
#include "cluster.pb-c.h"
#include "node/deliver.h"

static teffi_observers *observers_of(const teffi_activation *act)
{
    return act->more ? act->more->observers : NULL;
}

/* ---- references ---- */

bool teffi_observers_read_ref(uint32_t interface, const uint8_t *ref, size_t len,
                              teffi_observer_ref *out)
{
    teffi_grain_ref grain;
    if (len > sizeof grain + TEFFI_KEY_BYTES_MAX)
        return false;
    out->kind = teffi_ref_read(ref, len, &out->client, &grain);
    if (out->kind == TEFFI_REF_CLIENT)
        return out->client.head.interface == interface;
    if (out->kind != TEFFI_REF_GRAIN || grain.head.interface != interface ||
        grain.head.key_kind < TEFF_KEY_STRING || grain.head.key_kind > TEFF_KEY_UUID_STRING)
        return false;
    out->type = grain.type;
    return teffi_key_decode((teff_key_kind)grain.head.key_kind, ref + sizeof grain,
                            (uint32_t)(len - sizeof grain), &out->key);
}

/* Does the type implement the observer interface? It then has all its methods. */
static bool type_implements(const teff_type_info *type, const teff_observer_info *info)
{
    return teffi_method_find(type, info->type.methods[0].id) != NULL;
}

teff_err teff_observer_of_grain(teff_ctx *ctx, const teff_observer_info *info,
                                ProtobufCBinaryData *ref)
{
    const teffi_activation *act = teffi_activation_of_ctx(ctx);
    *ref = (ProtobufCBinaryData){0, NULL};
    if (!act || !type_implements(act->type->info, info))
        return teff_fail(ctx, TEFF_E_INVALID, "only a turn of a grain that observes %s gets this",
                         info->type.name);
    const teffi_grain_ref head = {
        .head = {.kind = TEFFI_REF_GRAIN,
                 .key_kind = (uint8_t)act->type->info->key_kind,
                 .interface = info->type.id},
        .type = act->type->info->id,
    };
    ref->len = sizeof head + act->key_len;
    ref->data = teff_alloc(ctx, ref->len);
    memcpy(ref->data, &head, sizeof head);
    memcpy(ref->data + sizeof head, teffi_activation_key_bytes(act), act->key_len);
    return TEFF_OK;
}

/* ---- the sets ---- */

static uint64_t hash_ref(const teffi_activation *act, ProtobufCBinaryData ref)
{
    return teffi_siphash(&act->grains->secret, ref.data, ref.len);
}

static teffi_subscription *find_subscription(const teffi_activation *act,
                                             const teff_observer_info *info,
                                             ProtobufCBinaryData ref)
{
    const teffi_observers *sets = observers_of(act);
    teffi_tnode *n = sets ? teffi_table_find_first(&sets->by_ref, hash_ref(act, ref)) : NULL;
    for (; n; n = teffi_table_find_next(n)) {
        teffi_subscription *s = teffi_container(n, teffi_subscription, by_ref);
        if (s->interface == info->type.id && s->ref_len == ref.len &&
            memcmp(s->ref, ref.data, ref.len) == 0)
            return s;
    }
    return NULL;
}

/* Frees the sets. in: no observer is left in them. */
static void free_sets(teffi_activation *act)
{
    teffi_observers *sets = observers_of(act);
    teffi_table_fini(&sets->by_ref);
    free(sets->at);
    free(sets);
    act->more->observers = NULL;
}

/* Removes a subscription from its set, and frees it. */
static void remove_subscription(teffi_activation *act, teffi_subscription *s)
{
    teffi_observers *sets = observers_of(act);
    teffi_table_del(&sets->by_ref, &s->by_ref);
    sets->at[s->index] = NULL;
    sets->low = s->index < sets->low ? s->index : sets->low;
    free(s);
    if (--sets->n == 0)
        free_sets(act);
}

/* Finds a free place, and makes places if there is none. out: false: no memory. */
static bool find_free_place(teffi_observers *sets)
{
    while (sets->low < sets->n_at && sets->at[sets->low])
        sets->low++;
    if (sets->low < sets->n_at)
        return true;
    uint32_t n_at = sets->n_at ? 2 * sets->n_at : 4;
    teffi_subscription **at = realloc(sets->at, n_at * sizeof *at);
    if (!at)
        return false;
    memset(at + sets->n_at, 0, (n_at - sets->n_at) * sizeof *at);
    sets->at = at;
    sets->n_at = n_at;
    return true;
}

/* Adds a subscription without expiry. out: NULL: no memory. */
static teffi_subscription *add_subscription(teffi_activation *act, const teff_observer_info *info,
                                            ProtobufCBinaryData ref)
{
    teffi_more *more = teffi_activation_ensure_rare_fields(act);
    if (more && !more->observers)
        more->observers = calloc(1, sizeof *more->observers);
    teffi_observers *sets = more ? more->observers : NULL;
    teffi_subscription *s = calloc(1, sizeof *s + ref.len + 1);
    if (!sets || !s || !find_free_place(sets) ||
        !teffi_table_add(&sets->by_ref, &s->by_ref, hash_ref(act, ref))) {
        free(s);
        if (sets && sets->n == 0)
            free_sets(act);
        return NULL;
    }
    s->index = sets->low;
    s->interface = info->type.id;
    /* relaxed: the number only has to be unique */
    s->number = atomic_fetch_add_explicit(&act->grains->subscriptions, 1, memory_order_relaxed) + 1;
    s->ref_len = (uint32_t)ref.len;
    memcpy(s->ref, ref.data, ref.len);
    sets->at[s->index] = s;
    sets->n++;
    return s;
}

static bool subscription_has_expired(const teffi_activation *act, const teffi_subscription *s)
{
    return teffi_now(act->grains->node->platform) >= s->expires_ns;
}

/* out: the counter of broken connections to the silo. Silos with equal hashes share one: then an
 * observer may be dropped although nothing was lost. */
static _Atomic uint32_t *breaks_of(teffi_grains *grains, uint64_t silo)
{
    return &grains->breaks[teffi_mix64(silo) % TEFFI_BREAKS];
}

/* relaxed: a notification that is lost was sent before its connection broke, and the activation
 * reads the counter again before it sends the next one */
void teffi_observers_record_break(teffi_grains *grains, teffi_node_id silo)
{
    atomic_fetch_add_explicit(breaks_of(grains, teffi_node_to_word(silo)), 1, memory_order_relaxed);
}

/* May notifications have been lost on the way to the gateway? If none was sent yet, begins to count
 * broken connections. */
static bool gateway_was_disconnected(const teffi_activation *act, teffi_subscription *s)
{
    teffi_client_ref client;
    teffi_grain_ref grain;
    if (teffi_ref_read(s->ref, s->ref_len, &client, &grain) != TEFFI_REF_CLIENT)
        return false;
    uint32_t breaks =
        atomic_load_explicit(breaks_of(act->grains, client.gateway), memory_order_relaxed);
    if (!s->sent)
        s->breaks = breaks;
    return s->breaks != breaks;
}

void teffi_observers_mark_disconnected(const teffi_activation *act, teffi_subscription *s)
{
    s->sent = false;
    (void)gateway_was_disconnected(act, s); /* reads the counter */
    s->breaks--;
    s->sent = true;
}

/* out: why the subscription must end now; 0: it goes on. */
static teff_drop_reason find_end_reason(const teffi_activation *act, teffi_subscription *s)
{
    return subscription_has_expired(act, s)   ? TEFF_DROPPED_EXPIRED
           : gateway_was_disconnected(act, s) ? TEFF_DROPPED_DISCONNECTED
                                              : (teff_drop_reason)0;
}

teffi_subscription *teffi_observers_next(teffi_activation *act, uint32_t interface, uint32_t *at)
{
    const teffi_observers *sets;
    while ((sets = observers_of(act)) && *at < sets->n_at) {
        teffi_subscription *s = sets->at[(*at)++];
        if (!s || s->interface != interface)
            continue;
        teff_drop_reason why = find_end_reason(act, s);
        if (!why)
            return s;
        teffi_observers_drop(act, s, why);
    }
    return NULL;
}

/* ---- messages to clients ---- */

static teffi_notice_head make_head(const teffi_activation *act, const teffi_subscription *s,
                                   const teffi_client_ref *ref)
{
    teffi_pid pid = teffi_activation_pid(act);
    teffi_notice_head head = {.observer = ref->observer, .notifier = teffi_node_to_word(pid.node)};
    memcpy(head.seal, ref->seal, sizeof head.seal);
    if (s) {
        head.slot = pid.slot;
        head.generation = pid.generation;
        head.index = s->index;
        head.subscription = s->number;
    }
    return head;
}

/* Sends msg to the gateway. Owns msg, which may be NULL. */
static teff_err send_to_ref_gateway(const teffi_activation *act, const teffi_client_ref *ref,
                                    teffi_msg *msg)
{
    teff_err err = TEFF_E_NOMEM;
    if (msg)
        err = teffi_node_send(act->grains->node, teffi_node_from_word(ref->gateway), msg);
    if (err)
        teffi_msg_free(msg);
    return err;
}

teff_err teffi_observers_send(const teffi_activation *act, teffi_subscription *s,
                              const teffi_client_ref *ref, uint32_t method_id, const uint8_t *raw,
                              size_t len)
{
    const teffi_notice_head head = make_head(act, s, ref);
    if (s)
        s->sent = true;
    return send_to_ref_gateway(act, ref,
                               teffi_notice_new(act->grains->node->id,
                                                teffi_node_from_word(ref->gateway), &head,
                                                ref->head.interface, method_id, raw, len));
}

/* Tells a client that its observer is dropped. The message is a system message, so that there is
 * room for it where there was none for the notification. */
static void tell_dropped(const teffi_activation *act, const teffi_subscription *s,
                         const teffi_client_ref *ref, teff_drop_reason why)
{
    const teffi_notice_head head = make_head(act, s, ref);
    teffi_ident ident = teffi_activation_ident(act);
    Teff__Cluster__Dropped body = TEFF__CLUSTER__DROPPED__INIT;
    body.why = why;
    body.type = (char *)(uintptr_t)act->type->info->name;
    body.key_kind = act->type->info->key_kind;
    body.key = (ProtobufCBinaryData){ident.key_len, (uint8_t *)(uintptr_t)ident.key};
    teffi_msg *msg = teffi_notice_new(act->grains->node->id, teffi_node_from_word(ref->gateway),
                                      &head, s->interface, 0, NULL, 0);
    if (msg && !teffi_node_pack_body(msg, &body.base)) {
        teffi_msg_free(msg);
        return;
    }
    if (msg)
        msg->system = true;
    (void)!send_to_ref_gateway(act, ref, msg);
}

void teffi_observers_drop(teffi_activation *act, teffi_subscription *s, teff_drop_reason why)
{
    teffi_client_ref client;
    teffi_grain_ref grain;
    if (why != TEFF_DROPPED_GONE &&
        teffi_ref_read(s->ref, s->ref_len, &client, &grain) == TEFFI_REF_CLIENT)
        tell_dropped(act, s, &client, why);
    remove_subscription(act, s);
}

void teffi_observers_handle_bounce(teffi_activation *act, teffi_msg *msg)
{
    const teffi_observers *sets = observers_of(act);
    teffi_notice_head head;
    teffi_subscription *s = NULL;
    if (teffi_notice_read_head(msg, &head) && sets && head.generation == act->generation &&
        head.index < sets->n_at)
        s = sets->at[head.index];
    if (s && s->number == head.subscription)
        teffi_observers_drop(
            act, s, msg->method_id == TEFF_DROPPED_SLOW ? TEFF_DROPPED_SLOW : TEFF_DROPPED_GONE);
    teffi_msg_free(msg);
}

/* ---- the end ---- */

/* Removes all observers; tells those of clients if `tell` is true. */
static void remove_all(teffi_activation *act, bool tell)
{
    const teffi_observers *sets;
    for (uint32_t i = 0; (sets = observers_of(act)) && i < sets->n_at; i++)
        if (sets->at[i])
            teffi_observers_drop(act, sets->at[i], tell ? TEFF_DROPPED_ENDED : TEFF_DROPPED_GONE);
}

void teffi_observers_end_all(teffi_activation *act)
{
    remove_all(act, true);
}

void teffi_observers_discard_all(teffi_activation *act)
{
    remove_all(act, false);
}

/* ---- the functions of grains ---- */

/* Drops those of all sets that have expired, or may have missed notifications. */
static void drop_expired(teffi_activation *act)
{
    const teffi_observers *sets;
    for (uint32_t i = 0; (sets = observers_of(act)) && i < sets->n_at; i++) {
        uint32_t at = i;
        if (sets->at[i])
            (void)teffi_observers_next(act, sets->at[i]->interface, &at);
    }
}

/* Does what teff_observers_subscribe() does, but adds no prefix to error texts. */
static teff_err subscribe_observer(teff_ctx *ctx, const teff_observer_info *info,
                                   ProtobufCBinaryData ref, uint32_t expiry_ms)
{
    teffi_activation *act = teffi_activation_of_ctx(ctx);
    teffi_observer_ref read;
    if (!act)
        return teff_fail(ctx, TEFF_E_INVALID, "only a turn of a grain has observers");
    teffi_ctx_check_fiber(ctx);
    if (teffi_type_is_stateless(act->type))
        return teff_fail(ctx, TEFF_E_INVALID, "a stateless worker has no observers");
    if (act->phase == TEFFI_DEACTIVATING)
        return teff_fail(ctx, TEFF_E_CLOSED, "on_deactivate takes no observers");
    const uint8_t *ended = teff_arena_copy(&ctx->arena, ref.data, ref.len); /* adds a zero byte */
    if (!ended)
        return teff_fail(ctx, TEFF_E_NOMEM, "out of memory for an observer");
    if (!teffi_observers_read_ref(info->type.id, ended, ref.len, &read))
        return teff_fail(ctx, TEFF_E_INVALID, "this is no reference to a %s", info->type.name);
    teffi_subscription *s = find_subscription(act, info, ref);
    if (s && gateway_was_disconnected(act, s)) {
        teffi_observers_drop(act, s, TEFF_DROPPED_DISCONNECTED);
        s = NULL;
    }
    const teffi_observers *sets = observers_of(act);
    if (!s && sets && sets->n >= TEFF_OBSERVERS_MAX)
        drop_expired(act);
    sets = observers_of(act);
    if (!s && sets && sets->n >= TEFF_OBSERVERS_MAX)
        return teff_fail(ctx, TEFF_E_OVERLOADED, "a grain has at most %d observers",
                         TEFF_OBSERVERS_MAX);
    s = s ? s : add_subscription(act, info, ref);
    if (!s)
        return teff_fail(ctx, TEFF_E_NOMEM, "out of memory for an observer");
    s->expires_ns = teffi_now(act->grains->node->platform) +
                    (expiry_ms ? expiry_ms : TEFF_OBSERVER_EXPIRY_MS) * 1000000ull;
    return TEFF_OK;
}

teff_err teff_observers_subscribe(teff_ctx *ctx, const teff_observer_info *info,
                                  ProtobufCBinaryData ref, uint32_t expiry_ms)
{
    teff_err err = subscribe_observer(ctx, info, ref, expiry_ms);
    return err && ctx->owner ? teffi_error_add_turn_prefix(ctx, err) : err;
}

bool teff_observers_unsubscribe(teff_ctx *ctx, const teff_observer_info *info,
                                ProtobufCBinaryData ref)
{
    teffi_activation *act = teffi_activation_of_ctx(ctx);
    if (act)
        teffi_ctx_check_fiber(ctx);
    teffi_subscription *s = act ? find_subscription(act, info, ref) : NULL;
    bool live = s && !subscription_has_expired(act, s);
    if (s)
        remove_subscription(act, s);
    return live;
}

size_t teff_observers_count(teff_ctx *ctx, const teff_observer_info *info)
{
    teffi_activation *act = teffi_activation_of_ctx(ctx);
    uint32_t at = 0;
    size_t n = 0;
    if (act)
        teffi_ctx_check_fiber(ctx);
    while (act && teffi_observers_next(act, info->type.id, &at))
        n++;
    return n;
}
