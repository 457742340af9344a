/* remind.c - runs a tick at the grain: is it still the next one of its reminder? Then calls
 * on_reminder, and writes the row.
 * Way:     reminder/tick -> route -> hosting/handler -> turn -> [remind] -> on_reminder; store
 * Threads: in the turn, on its fiber. */

#include "reminder/reminder_row.h"
#include "activation/turn.h"

/* Checks the request, and makes the row's key. */
static teff_err prepare_row(teff_ctx *ctx, const teffi_activation *act,
                            const Teff__Cluster__Tick *in, uint8_t key[TEFFI_REMINDER_KEY_MAX],
                            teffi_row *row)
{
    teffi_ident ident = teffi_activation_ident(act);
    size_t len = strlen(in->name);
    if (!teffi_reminder_name_is_valid((const uint8_t *)in->name, len))
        return teff_fail(ctx, TEFF_E_INVALID, "a tick of a reminder without a valid name");
    if (!in->last && in->after_ms >= TEFFI_REMINDER_MS_MAX)
        return teff_fail(ctx, TEFF_E_INVALID, "a tick that is followed by none");
    *row = (teffi_row){
        .key = {key, teffi_reminder_make_key(ctx->node->cluster, &ident, in->name, len, key)}};
    return TEFF_OK;
}

/* Does the row that was read expect this tick? */
static bool row_expects_tick(const teffi_row *row, const teffi_reminder_value *value,
                             const Teff__Cluster__Tick *in)
{
    return row->etag && value->id == in->id && value->next_ms == in->next_ms;
}

/* Does another turn of the activation run a tick of the reminder of this name? Only in a type that
 * is `reentrant`: that turn's caller has given up, and the owner tries the tick again. */
static bool tick_is_running(const teffi_activation *act, const teff_ctx *ctx, const char *name)
{
    const teffi_turn *turn;
    LIST_FOREACH (turn, &act->turns, link)
        if (&turn->ctx != ctx && turn->method == &teffi_tick_method &&
            strcmp(((const Teff__Cluster__Tick *)turn->request->body)->name, name) == 0)
            return true;
    return false;
}

/* Writes the row after on_reminder has returned TEFF_OK. In this turn: when the next tick of the
 * grain begins, it finds that this one was delivered, though the caller waits no more. */
static teff_err write_delivered(teff_ctx *ctx, const teff_type_info *info, teffi_row *row,
                                teffi_reminder_value *value, const Teff__Cluster__Tick *in)
{
    value->next_ms = in->after_ms;
    value->ticked = true;
    row->remove = in->last;
    row->value = in->last ? (teffi_bytes){0} : teffi_reminder_pack(ctx, value, info->name);
    return teffi_reminder_write_row(ctx, row);
}

static teff_err invoke_tick(const teff_grain *grain, const void *methods,
                            const ProtobufCMessage *in, ProtobufCMessage *out)
{
    const Teff__Cluster__Tick *msg = (const Teff__Cluster__Tick *)in;
    Teff__Cluster__Ticked *ticked = (Teff__Cluster__Ticked *)out;
    const teffi_activation *act = teffi_activation_of_ctx(grain->ctx);
    const teff_type_info *info = act->type->info;
    uint8_t key[TEFFI_REMINDER_KEY_MAX];
    teffi_row row;
    teffi_reminder_value value;
    if (!teffi_type_has_hook(act->type, info->on_reminder_at))
        return teff_fail(grain->ctx, TEFF_E_UNIMPLEMENTED, "%s has no on_reminder", info->name);
    teff_err err = prepare_row(grain->ctx, act, msg, key, &row);
    if (!err && tick_is_running(act, grain->ctx, msg->name))
        err = teff_fail(grain->ctx, TEFF_E_OVERLOADED, "an earlier try of the tick still runs");
    if (!err)
        err = teffi_reminder_read_row(grain->ctx, &row, &value, NULL);
    if (err || !row_expects_tick(&row, &value, msg))
        return err; /* not delivered */
    const teff_tick tick = {
        .name = msg->name, .due_ms = msg->due_ms, .missed = msg->missed, .last = msg->last};
    err = info->remind(grain, methods, &tick);
    if (err)
        return err;
    err = write_delivered(grain->ctx, info, &row, &value, msg);
    ticked->delivered = !err;
    ticked->etag = row.etag;
    return err == TEFF_E_CONFLICT ? TEFF_OK : err; /* on_reminder may have changed the reminder */
}

/* It has no pointers, except those to unknown fields: invoke_tick() sets none. */
static ProtobufCMessage *copy_ticked(teff_arena *arena, const ProtobufCMessage *src)
{
    return teff_arena_copy(arena, src, sizeof(Teff__Cluster__Ticked));
}

/* Its errors: TEFF_E_UNIMPLEMENTED: the program did not set the slot; the store's; the slot's. */
static const teff_message_ops tick_ops = {.desc = &teff__cluster__tick__descriptor};
static const teff_message_ops ticked_ops = {&teff__cluster__ticked__descriptor, copy_ticked};

const teff_method teffi_tick_method = {.name = "on_reminder",
                                       .id = TEFFI_METHOD_TICK,
                                       .in = &tick_ops,
                                       .out = &ticked_ops,
                                       .invoke = invoke_tick};
