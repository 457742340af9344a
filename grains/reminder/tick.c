/* tick.c - sends the ticks of reminders that are due, and writes their rows.
 * Way:     schedule -> [tick] -> route -> reminder/remind; then the row -> store, schedule
 * Threads: tasks, each with one tick at a time. */
#include <stdio.h>
#include "call/calls.h"
#include "directory/placement.h"
#include "message/codec.h"
#include "node/deliver.h"
#include "reminder/schedule.h"
#include "request/route.h"

enum { TICK_TIMEOUT_MS = 30000 };

typedef struct tick { /* one tick, on its task's stack */
    teffi_reminders *all;
    teffi_reminder *r;
    uint64_t etag; /* of the row that value is from */
    teffi_reminder_value value;
    teffi_reminder_key key; /* parsed from the row's key */
} tick;

static const char *get_type_name(const tick *t)
{
    return (const char *)t->r->key + t->r->key_len;
}

static teffi_bytes get_row_key(const tick *t)
{
    return (teffi_bytes){t->r->key, t->r->key_len};
}

static uint64_t read_wall_clock_ms(const teff_ctx *ctx)
{
    const teffi_platform *platform = ctx->node->platform;
    return platform->wall_ns(platform->arg) / 1000000;
}

/* Reads the row, which may have changed. errs: TEFF_E_NOT_FOUND: it is gone or damaged. */
static teff_err read_tick_row_again(teff_ctx *ctx, tick *t)
{
    teffi_row row = {.key = get_row_key(t)};
    teffi_reminder_value value;
    teff_err err = teffi_reminder_read_row(ctx, &row, &value, NULL);
    if (err == TEFF_E_MALFORMED || (!err && !row.etag))
        return TEFF_E_NOT_FOUND;
    if (err)
        return err;
    t->etag = row.etag;
    t->value = value;
    return TEFF_OK;
}

/* Makes the request. out: NULL: no memory. */
static teffi_msg *new_tick_msg(teff_ctx *ctx, const tick *t, const teffi_reminder_step *step)
{
    const teffi_grains *grains = t->all->grains;
    Teff__Cluster__Tick body = TEFF__CLUSTER__TICK__INIT;
    char name[TEFF_REMINDER_NAME_MAX + 1];
    teffi_msg *msg = teffi_msg_new(TEFFI_MSG_REQUEST);
    if (!msg)
        return NULL;
    memcpy(name, t->key.name, t->key.name_len);
    name[t->key.name_len] = '\0';
    body.name = name;
    body.id = t->value.id;
    body.next_ms = t->value.next_ms;
    body.due_ms = step->due_ms;
    body.missed = step->missed;
    body.last = step->last;
    msg->src = ctx->node->id;
    msg->flags = teffi_placement_flags_of_strategy((teff_placement)t->value.placement);
    msg->type_id = t->key.type;
    msg->method_id = TEFFI_METHOD_TICK;
    msg->key_len = t->key.grain_len;
    msg->key = teff_arena_copy(&msg->arena, t->key.grain, t->key.grain_len);
    msg->hash = teffi_key_hash(&grains->secret, t->key.type, t->key.grain, t->key.grain_len);
    if (msg->key && teffi_node_pack_body(msg, &body.base))
        return msg;
    teffi_msg_free(msg);
    return NULL;
}

static teff_err fail_without_memory(teff_ctx *ctx)
{
    return teff_fail(ctx, TEFF_E_NOMEM, "out of memory for a tick");
}

/* Sends the tick and waits for the response. */
static teff_err send_tick_and_await(teff_ctx *ctx, const tick *t, const teffi_reminder_step *step)
{
    uint64_t deadline = teffi_now(ctx->node->platform) + TICK_TIMEOUT_MS * 1000000ull;
    teff_err err = teffi_cancel_reserve_room(t->all->cancel);
    if (err)
        return err == TEFF_E_NOMEM ? fail_without_memory(ctx) : err;
    teffi_msg *msg = new_tick_msg(ctx, t, step);
    teffi_call *call = msg ? teffi_ctx_call_new(ctx, deadline) : NULL;
    if (!call) {
        teffi_msg_free(msg);
        teffi_cancel_add_call(t->all->cancel, NULL);
        return fail_without_memory(ctx);
    }
    teffi_call_expect_body(call, NULL, TEFFI_CALL_TARGETS_NO_GRAIN);
    msg->call = (teffi_origin){call->slot, call->generation, 0};
    msg->deadline_ns = deadline;
    teffi_route(t->all->grains, msg);
    teffi_cancel_add_call(t->all->cancel, call);
    return teffi_ctx_await_call(ctx, call, NULL);
}

/* Writes the row after a tick was delivered. out: TEFF_OK: t->etag and t->value are the row's.
 * errs: TEFF_E_NOT_FOUND: that was the last tick, and the row is removed; as
 *       teffi_reminder_write_row. */
static teff_err write_row_after_tick(teff_ctx *ctx, tick *t, const teffi_reminder_step *step)
{
    teffi_row row = {.key = get_row_key(t), .etag = t->etag, .remove = step->last};
    teffi_reminder_value value = t->value;
    value.next_ms = step->next_ms;
    value.ticked = true;
    if (!step->last)
        row.value = teffi_reminder_pack(ctx, &value, get_type_name(t));
    teff_err err = teffi_reminder_write_row(ctx, &row);
    if (err)
        return err;
    t->etag = row.etag;
    t->value = value;
    return step->last ? TEFF_E_NOT_FOUND : TEFF_OK;
}

/* Is it time for the tick? It is not if the row has changed, or the reminder was armed anew when
 * its timer had fired. A wall clock that is a little behind the timer does not count. */
static bool tick_is_due(const teff_ctx *ctx, const tick *t)
{
    enum { EARLY_MS = 1000 };
    return teffi_reminder_wait_ms(&t->value, read_wall_clock_ms(ctx)) <= EARLY_MS ||
           teffi_now(ctx->node->platform) >= t->r->due_ns;
}

static teff_err run_tick_once(teff_ctx *ctx, tick *t, bool rereads)
{
    if (!teffi_lease_holds(&ctx->home->lease, teffi_now(ctx->node->platform)))
        return TEFF_E_CLOSED;
    uint64_t etag = t->etag;
    teff_err err = rereads ? read_tick_row_again(ctx, t) : TEFF_OK;
    if (err || (t->etag != etag && teffi_reminder_wait_ms(&t->value, read_wall_clock_ms(ctx))))
        return err; /* another row: it is armed by that */
    if (!tick_is_due(ctx, t))
        return TEFF_OK;
    teffi_reminder_step step = teffi_reminder_plan(&t->value, read_wall_clock_ms(ctx));
    err = send_tick_and_await(ctx, t, &step);
    return err ? err : write_row_after_tick(ctx, t, &step);
}

static void log_failed_tick(const teff_ctx *ctx, const tick *t, teff_err err)
{
    teffi_exec *exec = ctx->home->exec;
    const teff_grain_type *type = teffi_type_find(t->all->grains, t->key.type);
    char more[48], key_text[TEFFI_KEY_TEXT_MAX] = "a grain";
    uint8_t copy[TEFFI_KEY_BYTES_MAX + 1];
    teff_key key;
    memcpy(copy, t->key.grain, t->key.grain_len);
    copy[t->key.grain_len] = 0;
    if (type && teffi_key_decode(type->info->key_kind, copy, t->key.grain_len, &key))
        teffi_key_format(&key, key_text);
    if (teffi_warn_claim_line_or_skip(exec, &t->all->failed, more))
        teffi_logf(&exec->platform->log, TEFF_LOG_WARN,
                   "reminder %.*s of %s at %s: %s: %s: it is tried again%s", (int)t->key.name_len,
                   (const char *)t->key.name, get_type_name(t), key_text, teff_err_name(err),
                   teff_error(ctx), more);
}

static void run_and_end_tick(teff_ctx *ctx, tick *t, bool rereads)
{
    uint64_t began = t->etag;
    bool valid = teffi_reminder_parse_key(ctx->node->cluster, get_row_key(t), &t->key);
    teff_err err = valid ? run_tick_once(ctx, t, rereads) : TEFF_E_NOT_FOUND;
    /* CANCELLED, CLOSED: this silo ends. CONFLICT: the reminder was changed. */
    bool logs = err && err != TEFF_E_NOT_FOUND && err != TEFF_E_CANCELLED &&
                err != TEFF_E_CONFLICT && err != TEFF_E_CLOSED;
    if (logs)
        log_failed_tick(ctx, t, err);
    teffi_reminders_end_tick(t->r, err, began, t->etag, &t->value);
}

void teffi_reminders_run_ticks(teff_ctx *ctx, void *arg)
{
    tick t = {.all = arg};
    bool rereads;
    while ((t.r = teffi_reminders_take_due(t.all, &t.etag, &t.value, &rereads))) {
        teff_mark here = teff_ctx_mark(ctx);
        run_and_end_tick(ctx, &t, rereads);
        teff_ctx_rewind(ctx, here);
    }
}
