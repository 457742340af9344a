/* reminder.c - the functions of grains: writes and reads the rows of reminders; tells the owner of
 * the grain's partition.
 * Way:     a turn -> [reminder] -> store; then schedule here, or server at the owner
 * Threads: in the turn, on its fiber. */
#include <teff/reminder.h>
#include <teff/generated.h>

#include "activation/activation.h"
#include "base/options.h"
#include "cluster/membership.h"
#include "node/ask.h"
#include "reminder/schedule.h"

enum { WRITE_TRIES = 8, TELL_TRIES = 3, TELL_TIMEOUT_MS = 2000, LIST_PAGE_ROWS = 256 };

typedef struct target { /* a reminder of the running grain */
    teffi_activation *act;
    unsigned partition;
    uint8_t key[TEFFI_REMINDER_KEY_MAX];
    size_t key_len;
    uint64_t etag; /* of the row when it was read or written last; 0: none */
    teffi_reminder_value value;
} target;

/* ---- checks ---- */

static teff_err check_is_turn(teff_ctx *ctx, target *t)
{
    t->act = teffi_activation_of_ctx(ctx);
    if (!t->act)
        return teff_fail(ctx, TEFF_E_INVALID, "reminders: only a turn of the grain uses them");
    teffi_ctx_check_fiber(ctx);
    return TEFF_OK;
}

/* Checks the turn and the name, and makes the row's key. */
static teff_err prepare_target(teff_ctx *ctx, const char *name, target *t)
{
    teff_err err = check_is_turn(ctx, t);
    if (err)
        return err;
    size_t len = name ? strnlen(name, TEFF_REMINDER_NAME_MAX + 1) : 0;
    if (!teffi_reminder_name_is_valid((const uint8_t *)name, len))
        return teff_fail(ctx, TEFF_E_INVALID, "a reminder's name: 1 to %d bytes of UTF-8 expected",
                         TEFF_REMINDER_NAME_MAX);
    teffi_ident ident = teffi_activation_ident(t->act);
    t->partition = teffi_partition_of_hash(ident.hash);
    t->key_len = teffi_reminder_make_key(ctx->node->cluster, &ident, name, len, t->key);
    return TEFF_OK;
}

/* Checks the options, and makes the value of the new row. */
static teff_err prepare_value(teff_ctx *ctx, const teff_reminder_options *options, target *t)
{
    const teffi_platform *platform = ctx->node->platform;
    const teff_type_info *info = t->act->type->info;
    uint64_t min_ms = t->act->grains->reminder_period_min_ms;
    uint64_t now_ms = platform->wall_ns(platform->arg) / 1000000;
    char text[TEFF_TEXT_MAX];
    teff_reminder_options opt;
    if (!teffi_options_check_and_copy(&opt, sizeof opt, options, "teff_reminder_options", text))
        return teff_fail(ctx, TEFF_E_INVALID, "%s", text);
    if (teffi_type_is_stateless(t->act->type))
        return teff_fail(ctx, TEFF_E_INVALID, "a stateless worker has no reminders");
    if (!info->remind || !teffi_type_has_hook(t->act->type, info->on_reminder_at))
        return teff_fail(ctx, TEFF_E_INVALID, "%s has no on_reminder", info->name);
    if (opt.period_ms && opt.period_ms < min_ms)
        return teff_fail(ctx, TEFF_E_INVALID, "period_ms: at least %llu expected",
                         (unsigned long long)min_ms);
    if (opt.ttl_ms && opt.ttl_ms < opt.due_ms)
        return teff_fail(ctx, TEFF_E_INVALID, "ttl_ms: at least due_ms expected");
    if (opt.due_ms >= TEFFI_REMINDER_MS_MAX - now_ms || opt.period_ms >= TEFFI_REMINDER_MS_MAX ||
        opt.ttl_ms >= TEFFI_REMINDER_MS_MAX)
        return teff_fail(ctx, TEFF_E_INVALID, "due_ms, period_ms or ttl_ms is too long");
    t->value = (teffi_reminder_value){.id = platform->random(platform->arg),
                                      .next_ms = now_ms + opt.due_ms,
                                      .period_ms = opt.period_ms,
                                      .until_ms = opt.ttl_ms ? now_ms + opt.ttl_ms : 0,
                                      .placement = (uint8_t)info->placement};
    return TEFF_OK;
}

/* ---- telling the owner ---- */

/* Tells the partition's owner in this silo's view. out: false: it did not respond, or does not own
 * the partition; the view was refreshed then, or is refreshed soon. */
static bool tell_owner_once(teff_ctx *ctx, const target *t, const char *type)
{
    Teff__Cluster__ReminderChanged msg = TEFF__CLUSTER__REMINDER_CHANGED__INIT;
    Teff__Cluster__Reminder reminder;
    teffi_reminders *all = t->act->grains->reminders;
    const teffi_view *view = teffi_view_ref_current(ctx->node);
    teffi_node_id owner = view ? teffi_view_owner(view, t->partition) : (teffi_node_id){0};
    teffi_view_unref(view);
    teffi_bytes key = {t->key, t->key_len};
    if (teffi_node_equals(owner, ctx->node->id))
        return type ? teffi_reminders_note(all, key, t->partition, type, t->etag, &t->value)
                    : teffi_reminders_forget(all, key, t->partition, t->etag);
    if (teffi_node_is_none(owner))
        return false;
    if (type)
        teffi_reminder_fill_message(&t->value, type, &reminder);
    msg.key = (ProtobufCBinaryData){t->key_len, (uint8_t *)(uintptr_t)t->key};
    msg.etag = t->etag;
    msg.reminder = type ? &reminder : NULL;
    ProtobufCMessage *body;
    teff_err err = teffi_ctx_run_rpc(ctx, owner, TEFFI_SLOT_REMINDER, 1, &msg.base, TELL_TIMEOUT_MS,
                                     &teff__cluster__reminder_noted__descriptor, &body);
    const Teff__Cluster__ReminderNoted *noted = (const Teff__Cluster__ReminderNoted *)body;
    if (!err && noted->owner)
        return true;
    if (!err)
        (void)!teffi_membership_refresh(ctx, noted->view);
    else
        teffi_membership_refresh_soon(ctx->node->membership);
    return false;
}

/* Tells the partition's owner that the row was written or (type NULL) removed. If no owner can be
 * reached, gives up: the owner finds the row when it loads the partition again, and a tick of a
 * removed row does not run. */
static void tell_owner(teff_ctx *ctx, const target *t, const char *type)
{
    for (unsigned tries = 0; tries < TELL_TRIES; tries++) {
        uint64_t seen = ctx->node->membership->follow.changes.count;
        if (tell_owner_once(ctx, t, type) || tries + 1 == TELL_TRIES)
            return;
        teffi_membership_await_change(ctx, seen, tries + 2);
    }
}

/* ---- writing ---- */

/* Reads the target's row to t->etag and *found. errs: the store's; TEFF_E_MALFORMED. */
static teff_err read_target_row(teff_ctx *ctx, target *t, teffi_reminder_value *found)
{
    teffi_row row = {.key = {t->key, t->key_len}};
    teff_err err = teffi_reminder_read_row(ctx, &row, found, NULL);
    t->etag = row.etag;
    return err;
}

/* After a write with an unknown outcome: has the row the new value or, if type is NULL, is it gone?
 * errs: TEFF_E_UNKNOWN: it cannot be read, or has another value. */
static teff_err read_write_outcome(teff_ctx *ctx, target *t, const char *type)
{
    teffi_reminder_value found;
    uint64_t etag = t->etag;
    teff_err err = read_target_row(ctx, t, &found);
    if (!err && (type ? t->etag && found.id == t->value.id : !t->etag)) {
        if (type)
            t->value = found; /* it may have ticked since */
        else
            t->etag = etag;
        return TEFF_OK;
    }
    return teff_fail(ctx, TEFF_E_UNKNOWN, "the reminder may have been %s",
                     type ? "registered" : "unregistered");
}

/* Writes or (type NULL) removes the row. out: t->etag: the new one, or the one it had.
 * errs: TEFF_E_CONFLICT: the row has changed. */
static teff_err write_target_row(teff_ctx *ctx, target *t, const char *type)
{
    teffi_row row = {.key = {t->key, t->key_len}, .etag = t->etag, .remove = !type};
    if (type)
        row.value = teffi_reminder_pack(ctx, &t->value, type);
    teff_err err = teffi_reminder_write_row(ctx, &row);
    if (err == TEFF_E_UNKNOWN)
        return read_write_outcome(ctx, t, type);
    if (!err && type)
        t->etag = row.etag;
    return err;
}

/* Reads the row and writes or removes it, again if another silo has changed it in between. A
 * conflict may also mean that this silo was declared dead: then the refreshed view says so. */
static teff_err change_row(teff_ctx *ctx, target *t, const char *type)
{
    teff_err err = TEFF_E_CONFLICT;
    for (unsigned tries = 0; tries < WRITE_TRIES && err == TEFF_E_CONFLICT; tries++) {
        teffi_reminder_value found;
        err = read_target_row(ctx, t, &found);
        if (err)
            return err;
        if (!type && !t->etag)
            return teff_fail(ctx, TEFF_E_NOT_FOUND, "the grain has no such reminder");
        err = write_target_row(ctx, t, type);
        if (err == TEFF_E_CONFLICT)
            teffi_membership_refresh_soon(ctx->node->membership);
    }
    return err == TEFF_E_CONFLICT ? teff_fail(ctx, err, "the reminder's row kept changing") : err;
}

/* Changes the row and tells the owner. Frees what that has used. in: type, NULL: remove. */
static teff_err change_row_and_tell(teff_ctx *ctx, target *t, const char *type)
{
    teff_mark here = teff_ctx_mark(ctx);
    teff_err err = change_row(ctx, t, type);
    if (!err)
        tell_owner(ctx, t, type);
    teff_ctx_rewind(ctx, here);
    return err;
}

/* ---- the functions of grains ---- */

static teff_err end_with_prefix(teff_ctx *ctx, teff_err err)
{
    return err && ctx->owner ? teffi_error_add_turn_prefix(ctx, err) : err;
}

teff_err teff_reminder_register(teff_ctx *ctx, const char *name,
                                const teff_reminder_options *options)
{
    target t;
    teff_err err = prepare_target(ctx, name, &t);
    if (!err)
        err = prepare_value(ctx, options, &t);
    if (!err)
        err = change_row_and_tell(ctx, &t, t.act->type->info->name);
    return end_with_prefix(ctx, err);
}

teff_err teff_reminder_unregister(teff_ctx *ctx, const char *name)
{
    target t;
    teff_err err = prepare_target(ctx, name, &t);
    if (!err)
        err = change_row_and_tell(ctx, &t, NULL);
    return end_with_prefix(ctx, err);
}

static void fill_reminder(const teffi_reminder_value *value, const char *name,
                          teff_reminder *reminder)
{
    *reminder = (teff_reminder){.name = name,
                                .next_ms = value->next_ms,
                                .period_ms = value->period_ms,
                                .until_ms = value->until_ms};
}

static char *copy_name(teff_ctx *ctx, const void *name, size_t len)
{
    char *copy = teff_alloc(ctx, len + 1);
    memcpy(copy, name, len);
    copy[len] = '\0';
    return copy;
}

teff_err teff_reminder_get(teff_ctx *ctx, const char *name, teff_reminder *reminder)
{
    target t;
    teffi_reminder_value found;
    *reminder = (teff_reminder){0};
    teff_err err = prepare_target(ctx, name, &t);
    if (!err)
        err = read_target_row(ctx, &t, &found);
    if (!err && !t.etag)
        err = teff_fail(ctx, TEFF_E_NOT_FOUND, "the grain has no such reminder");
    if (!err)
        fill_reminder(&found, copy_name(ctx, name, strlen(name)), reminder);
    return end_with_prefix(ctx, err);
}

typedef struct listing { /* of the reminders of a grain */
    uint8_t from[TEFFI_REMINDER_KEY_MAX], to[TEFFI_REMINDER_KEY_MAX];
    size_t from_len, to_len;
    teff_reminder *list;
    size_t n, room;
} listing;

static void add_to_list(teff_ctx *ctx, listing *l, const teffi_row *row)
{
    teffi_reminder_key key;
    teffi_reminder_value value;
    if (!teffi_reminder_parse_key(ctx->node->cluster, row->key, &key) || !row->etag ||
        teffi_reminder_unpack(row->value, &ctx->arena, &value, NULL))
        return;
    if (l->n == l->room) {
        l->room = l->room ? 2 * l->room : 16;
        teff_reminder *more = teff_alloc(ctx, l->room * sizeof *more);
        if (l->n)
            memcpy(more, l->list, l->n * sizeof *more);
        l->list = more;
    }
    fill_reminder(&value, copy_name(ctx, key.name, key.name_len), &l->list[l->n++]);
}

/* Reads a page of the grain's rows. out: *more: there are more. */
static teff_err list_page(teff_ctx *ctx, listing *l, bool *more)
{
    teffi_row row = {.table = TEFFI_TABLE_REMINDER, .key = {l->from, l->from_len}};
    teffi_store_op op = {.kind = TEFFI_STORE_SCAN,
                         .rows = &row,
                         .n_rows = 1,
                         .to = {l->to, l->to_len},
                         .limit = LIST_PAGE_ROWS,
                         .arena = &ctx->arena};
    teff_err err = teffi_ctx_run_store_op(ctx, &op);
    *more = false;
    if (err)
        return err;
    for (size_t i = 0; i < op.n_found; i++)
        add_to_list(ctx, l, &op.rows[i]);
    *more = op.n_found == op.limit;
    if (*more)
        l->from_len = teffi_reminder_make_key_after(op.rows[op.n_found - 1].key, l->from);
    return TEFF_OK;
}

teff_err teff_reminder_list(teff_ctx *ctx, teff_reminder **list, size_t *n)
{
    target t;
    listing l = {.n = 0};
    bool more = true;
    *list = NULL;
    *n = 0;
    teff_err err = check_is_turn(ctx, &t);
    if (err)
        return err;
    teffi_ident ident = teffi_activation_ident(t.act);
    l.from_len = teffi_reminder_make_key(ctx->node->cluster, &ident, NULL, 0, l.from);
    memcpy(l.to, l.from, l.from_len);
    l.to_len = l.from_len;
    teffi_reminder_raise_prefix(l.to, &l.to_len);
    while (!err && more)
        err = list_page(ctx, &l, &more);
    if (err)
        return end_with_prefix(ctx, err);
    *list = l.list;
    *n = l.n;
    return TEFF_OK;
}
