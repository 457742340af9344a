/* tick.c - sends the ticks of reminders that are due to their grains.
 * Way:     schedule -> [tick] -> route -> reminder/remind, which writes the row; then schedule
 * Threads: tasks, each with one tick at a time. */
#include <stdio.h>
#include "call/calls.h"
#include "directory/placement.h"
#include "message/codec.h"
#include "node/deliver.h"
#include "reminder/schedule.h"
#include "request/route.h"

typedef struct tick { /* one tick, on its task's stack */
    teffi_reminders *all;
    teffi_reminder *r;
    uint64_t etag; /* of the row that value is from */
    teffi_reminder_value value;
    teffi_reminder_key key; /* parsed from the row's key */
    teff_err err;           /* if it has failed; the text is in the context */
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

/* Reads the row, which may have changed. out: GONE: so it is, or it is damaged. FAILED: it could
 * not be read; t->err. */
static teffi_tick_end read_tick_row_again(teff_ctx *ctx, tick *t)
{
    teffi_row row = {.key = get_row_key(t)};
    teffi_reminder_value value;
    t->err = teffi_reminder_read_row(ctx, &row, &value, NULL);
    if (t->err == TEFF_E_MALFORMED || (!t->err && !row.etag))
        return TEFFI_TICK_GONE;
    if (t->err)
        return TEFFI_TICK_FAILED;
    t->etag = row.etag;
    t->value = value;
    return TEFFI_TICK_KEPT;
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
    body.after_ms = step->next_ms;
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
static teff_err send_tick_and_await(teff_ctx *ctx, const tick *t, const teffi_reminder_step *step,
                                    Teff__Cluster__Ticked *ticked)
{
    ProtobufCMessage *body = NULL;
    uint64_t deadline = teffi_now(ctx->node->platform) + t->all->tick_timeout_ms * 1000000;
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
    teffi_call_expect_body(call, &teff__cluster__ticked__descriptor, TEFFI_CALL_TARGETS_NO_GRAIN);
    msg->call = (teffi_origin){call->slot, call->generation, 0};
    msg->deadline_ns = deadline;
    teffi_route(t->all->grains, msg);
    teffi_cancel_add_call(t->all->cancel, call);
    err = teffi_ctx_await_call(ctx, call, &body);
    if (!err)
        *ticked = *(const Teff__Cluster__Ticked *)body;
    return err;
}

/* Is it time for the tick? It is not if the row has changed, or the reminder was armed anew when
 * its timer had fired. A wall clock that is a little behind the timer does not count. */
static bool tick_is_due(const teff_ctx *ctx, const tick *t)
{
    enum { EARLY_MS = 1000 };
    return teffi_reminder_wait_ms(&t->value, read_wall_clock_ms(ctx), NULL) <= EARLY_MS ||
           teffi_now(ctx->node->platform) >= t->r->due_ns;
}

static teffi_tick_end fail_tick(teff_ctx *ctx, tick *t, teff_err err, const char *text)
{
    t->err = teff_fail(ctx, err, "%s", text);
    return TEFFI_TICK_FAILED;
}

/* The grain's silo did not write the row: reads it, since it has changed. If it has not, that silo
 * may not write any more: it was declared dead. */
static teffi_tick_end read_row_after_refusal(teff_ctx *ctx, tick *t)
{
    uint64_t etag = t->etag;
    teffi_tick_end end = read_tick_row_again(ctx, t);
    return end == TEFFI_TICK_KEPT && t->etag == etag
               ? fail_tick(ctx, t, TEFF_E_CONFLICT, "the grain's silo could not write the row")
               : end;
}

static teffi_tick_end send_tick(teff_ctx *ctx, tick *t)
{
    Teff__Cluster__Ticked ticked = TEFF__CLUSTER__TICKED__INIT;
    teffi_reminder_step step = teffi_reminder_plan(&t->value, read_wall_clock_ms(ctx));
    t->err = send_tick_and_await(ctx, t, &step, &ticked);
    if (t->err)
        return TEFFI_TICK_FAILED;
    if (!ticked.delivered)
        return read_row_after_refusal(ctx, t);
    t->etag = ticked.etag;
    t->value.next_ms = step.next_ms;
    t->value.ticked = true;
    return step.last ? TEFFI_TICK_GONE : TEFFI_TICK_KEPT;
}

/* A type that no silo hosts is found out here, since a try would read the row: after a type was
 * renamed, there may be many such reminders. */
static teffi_tick_end run_tick_once(teff_ctx *ctx, tick *t, bool rereads)
{
    uint64_t etag = t->etag;
    if (!teffi_lease_holds(&ctx->home->lease, teffi_now(ctx->node->platform)))
        return fail_tick(ctx, t, TEFF_E_CLOSED, teffi_lease_over_text);
    if (teffi_find_newest_type_version(t->all->grains, t->key.type) < 0)
        return fail_tick(ctx, t, TEFF_E_NOT_FOUND, "no silo of the cluster hosts this grain type");
    teffi_tick_end end = rereads ? read_tick_row_again(ctx, t) : TEFFI_TICK_KEPT;
    bool is_another = t->etag != etag;
    if (end != TEFFI_TICK_KEPT ||
        (is_another && teffi_reminder_wait_ms(&t->value, read_wall_clock_ms(ctx), NULL)) ||
        !tick_is_due(ctx, t))
        return end;
    return send_tick(ctx, t);
}

static void log_failed_tick(const teff_ctx *ctx, const tick *t)
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
                   (const char *)t->key.name, get_type_name(t), key_text, teff_err_name(t->err),
                   teff_error(ctx), more);
}

static void run_and_end_tick(teff_ctx *ctx, tick *t, bool rereads)
{
    uint64_t began = t->etag;
    bool valid = teffi_reminder_parse_key(ctx->node->cluster, get_row_key(t), &t->key);
    teffi_tick_end end = valid ? run_tick_once(ctx, t, rereads) : TEFFI_TICK_GONE;
    bool silo_ends = teffi_reminders_is_closed(t->all) ||
                     !teffi_lease_holds(&ctx->home->lease, teffi_now(ctx->node->platform));
    if (end == TEFFI_TICK_FAILED && !silo_ends)
        log_failed_tick(ctx, t);
    teffi_reminders_end_tick(t->r, end, began, t->etag, &t->value);
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
