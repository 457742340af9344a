/* remind.c - runs a tick at the grain: is it still the next one of its reminder? Then calls
 * on_reminder.
 * Way:     reminder/tick -> route -> hosting/handler -> turn -> [remind] -> on_reminder
 * Threads: in the turn, on its fiber. */

#include "reminder/reminder_row.h"
#include "activation/turn.h"

/* Reads the row of the tick's reminder. errs: TEFF_E_CONFLICT: it does not expect this tick. */
static teff_err check_row_expects_tick(teff_ctx *ctx, const teffi_activation *act,
                                       const Teff__Cluster__Tick *in)
{
    uint8_t key[TEFFI_REMINDER_KEY_MAX];
    teffi_ident ident = teffi_activation_ident(act);
    size_t len = strlen(in->name);
    teffi_reminder_value value;
    if (!teffi_reminder_name_is_valid((const uint8_t *)in->name, len))
        return teff_fail(ctx, TEFF_E_INVALID, "a tick of a reminder without a valid name");
    teffi_row row = {
        .key = {key, teffi_reminder_make_key(ctx->node->cluster, &ident, in->name, len, key)}};
    teff_err err = teffi_reminder_read_row(ctx, &row, &value, NULL);
    if (err)
        return err;
    return row.etag && value.id == in->id && value.next_ms == in->next_ms
               ? TEFF_OK
               : teff_fail(ctx, TEFF_E_CONFLICT, "the reminder was changed before this tick");
}

static teff_err invoke_tick(const teff_grain *grain, const void *methods,
                            const ProtobufCMessage *in, ProtobufCMessage *out)
{
    const Teff__Cluster__Tick *msg = (const Teff__Cluster__Tick *)in;
    const teffi_activation *act = teffi_activation_of_ctx(grain->ctx);
    const teff_type_info *info = act->type->info;
    (void)out;
    if (!teffi_type_has_hook(act->type, info->on_reminder_at))
        return teff_fail(grain->ctx, TEFF_E_UNIMPLEMENTED, "%s has no on_reminder", info->name);
    teff_err err = check_row_expects_tick(grain->ctx, act, msg);
    if (err)
        return err;
    const teff_tick tick = {
        .name = msg->name, .due_ms = msg->due_ms, .missed = msg->missed, .last = msg->last};
    return info->remind(grain, methods, &tick);
}

/* Its errors: TEFF_E_CONFLICT: the tick is not the next one of the row, or there is no row;
 * TEFF_E_UNIMPLEMENTED: the program did not set the slot; the store's; the slot's. */
static const teff_message_ops tick_ops = {.desc = &teff__cluster__tick__descriptor};

const teff_method teffi_tick_method = {
    .name = "on_reminder", .id = TEFFI_METHOD_TICK, .in = &tick_ops, .invoke = invoke_tick};
