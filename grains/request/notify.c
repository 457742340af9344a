/* notify.c - sends a notification to the observers of a grain: to clients through their gateways,
 * to grains as a one-way message.
 * Way:     generated _notify function -> [notify] -> activation/observers -> gateway
 *                                                 -> reference (grains)
 * Threads: on the turn of the grain that notifies. */
#include "activation/observers.h"
#include "call/ctx.h"
#include "message/codec.h"

/* A notification, packed in the turn's memory. */
typedef struct notification {
    const teff_observer_info *info;
    const teff_method *method;
    const ProtobufCMessage *in;
    uint8_t *raw;
    size_t len;
} notification;

/* Checks the turn and the message, and packs the message. out: *act: the activation of the turn. */
static teff_err prepare_notification(teff_ctx *ctx, notification *n, teffi_activation **act)
{
    *act = teffi_activation_of_ctx(ctx);
    if (!*act)
        return teff_fail(ctx, TEFF_E_INVALID, "%s: only a turn of a grain notifies",
                         n->method->name);
    teffi_ctx_check_fiber(ctx);
    if (!n->method->in)
        return TEFF_OK;
    if (!n->in)
        return teff_fail(ctx, TEFF_E_INVALID, "%s: the notification is NULL", n->method->name);
    teff_err err =
        teffi_message_check(ctx, &n->info->type, n->method->in, n->in, "notification", &n->len);
    if (err)
        return err;
    n->raw = teff_alloc(ctx, n->len);
    teffi_pack(n->in, n->len, n->raw);
    return TEFF_OK;
}

/* Has the type this method of an observer? A client may make a reference to any type, and the ids
 * of its other methods may be chosen to equal ids of notifications. */
static bool type_observes(const teff_type_info *type, const teff_method *method)
{
    const teff_method *own = teffi_method_find(type, method->id);
    return own && strcmp(own->name, method->name) == 0;
}

/* Sends the notification to a grain. If this silo hosts the grain's type, the type's own options
 * are used, such as its placement. errs: as teff_send; TEFF_E_INVALID: the type is no observer. */
static teff_err notify_grain(teff_ctx *ctx, const notification *n, const teffi_observer_ref *ref)
{
    const teff_grain_type *hosted = teffi_type_find(ctx->node->grains, ref->type);
    if (hosted && !type_observes(hosted->info, n->method))
        return teff_fail(ctx, TEFF_E_INVALID, "%s is no observer with the method %s",
                         hosted->info->name, n->method->name);
    const teff_type_info unknown = {
        .name = n->info->type.name, .id = ref->type, .key_kind = ref->key.kind};
    bool before = ctx->filters;
    ctx->filters = true; /* notifications are not filtered */
    teff_err err = teff_send(ctx, hosted ? hosted->info : &unknown, &ref->key, n->method, n->in);
    ctx->filters = before;
    return err;
}

/* Sends the notification to an observer of the activation's set. An observer that is a grain stays
 * in the set, whatever happens to the message. */
static void notify_subscription(teff_ctx *ctx, teffi_activation *act, const notification *n,
                                teffi_subscription *s)
{
    teffi_observer_ref ref;
    uint8_t copy[sizeof(teffi_grain_ref) + TEFFI_KEY_BYTES_MAX + 1];
    memcpy(copy, s->ref, s->ref_len + 1); /* the method of a grain may end the subscription */
    if (!teffi_observers_read_ref(s->interface, copy, s->ref_len, &ref))
        return;
    if (ref.kind == TEFFI_REF_GRAIN) {
        (void)!notify_grain(ctx, n, &ref);
        return;
    }
    teff_err err = teffi_observers_send(act, s, &ref.client, n->method->id, n->raw, n->len);
    if (err == TEFF_E_UNREACHABLE) /* for the moment, perhaps */
        teffi_observers_mark_disconnected(act, s);
    else if (err)
        teffi_observers_drop(act, s, err == TEFF_E_CLOSED ? TEFF_DROPPED_GONE : TEFF_DROPPED_SLOW);
}

teff_err teff_notify(teff_ctx *ctx, const teff_observer_info *info, const teff_method *method,
                     const ProtobufCMessage *in)
{
    notification n = {.info = info, .method = method, .in = in};
    teff_mark mark = teff_ctx_mark(ctx);
    teffi_activation *act;
    teffi_subscription *s;
    uint32_t at = 0;
    teff_err err = prepare_notification(ctx, &n, &act);
    if (err)
        return err;
    while ((s = teffi_observers_next(act, info->type.id, &at)))
        notify_subscription(ctx, act, &n, s);
    teff_ctx_rewind(ctx, mark);
    return TEFF_OK;
}

/* Sends the notification to an observer that is in no set. */
static teff_err notify_ref(teff_ctx *ctx, const teffi_activation *act, const notification *n,
                           ProtobufCBinaryData bytes)
{
    teffi_observer_ref ref;
    const uint8_t *ended = teff_arena_copy(&ctx->arena, bytes.data, bytes.len); /* and a zero */
    if (!ended)
        return teff_fail(ctx, TEFF_E_NOMEM, "out of memory for a notification");
    if (!teffi_observers_read_ref(n->info->type.id, ended, bytes.len, &ref))
        return teff_fail(ctx, TEFF_E_INVALID, "this is no reference to a %s", n->info->type.name);
    if (ref.kind == TEFFI_REF_GRAIN)
        return notify_grain(ctx, n, &ref);
    teff_err err = teffi_observers_send(act, NULL, &ref.client, n->method->id, n->raw, n->len);
    return err ? teff_fail(ctx, err, "%s: the observer's gateway was not reached", n->method->name)
               : TEFF_OK;
}

teff_err teff_notify_one(teff_ctx *ctx, const teff_observer_info *info, const teff_method *method,
                         ProtobufCBinaryData ref, const ProtobufCMessage *in)
{
    notification n = {.info = info, .method = method, .in = in};
    teff_mark mark = teff_ctx_mark(ctx);
    teffi_activation *act;
    teff_err err = prepare_notification(ctx, &n, &act);
    if (!err)
        err = notify_ref(ctx, act, &n, ref);
    teff_ctx_rewind(ctx, mark);
    return err;
}
