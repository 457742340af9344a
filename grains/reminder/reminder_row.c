/* reminder_row.c - keys and values of reminders' rows; which tick comes next. */
#include "reminder/reminder_row.h"

#include "base/utf8.h"
#include "cluster/membership.h"
#include "message/codec.h"
#include "node/ask.h"

/* ---- keys ---- */

size_t teffi_reminder_make_partition_key(const char *cluster, unsigned partition,
                                         uint8_t out[TEFFI_REMINDER_KEY_MAX])
{
    size_t n = strlen(cluster) + 1;
    memcpy(out, cluster, n);
    if (partition == TEFFI_PARTITIONS)
        out[n - 1] = 1; /* after the zero byte that ends the cluster's name */
    else
        out[n++] = (uint8_t)partition;
    return n;
}

size_t teffi_reminder_make_key(const char *cluster, const teffi_ident *ident, const char *name,
                               size_t name_len, uint8_t out[TEFFI_REMINDER_KEY_MAX])
{
    size_t n =
        teffi_reminder_make_partition_key(cluster, teffi_partition_of_hash(ident->hash), out);
    for (int shift = 24; shift >= 0; shift -= 8)
        out[n++] = (uint8_t)(ident->type >> shift);
    out[n++] = (uint8_t)(ident->key_len >> 8);
    out[n++] = (uint8_t)ident->key_len;
    memcpy(out + n, ident->key, ident->key_len);
    n += ident->key_len;
    if (name_len)
        memcpy(out + n, name, name_len);
    return n + name_len;
}

void teffi_reminder_raise_prefix(uint8_t *key, size_t *len)
{
    while (key[*len - 1] == 255)
        --*len;
    key[*len - 1]++;
}

size_t teffi_reminder_make_key_after(teffi_bytes key, uint8_t out[TEFFI_REMINDER_KEY_MAX])
{
    size_t len = key.len < TEFFI_REMINDER_KEY_MAX ? key.len : TEFFI_REMINDER_KEY_MAX;
    memcpy(out, key.data, len);
    if (len == key.len && len < TEFFI_REMINDER_KEY_MAX)
        out[len++] = 0;
    else
        teffi_reminder_raise_prefix(out, &len);
    return len;
}

bool teffi_reminder_name_is_valid(const uint8_t *name, size_t len)
{
    return len >= 1 && len <= TEFF_REMINDER_NAME_MAX && !memchr(name, 0, len) &&
           teffi_utf8_valid(name, len);
}

bool teffi_reminder_parse_key(const char *cluster, teffi_bytes bytes, teffi_reminder_key *key)
{
    const uint8_t *at = bytes.data;
    size_t n = strlen(cluster) + 1;
    if (bytes.len < n + TEFFI_REMINDER_FIXED_BYTES || memcmp(at, cluster, n) != 0)
        return false;
    at += n;
    size_t left = bytes.len - n - TEFFI_REMINDER_FIXED_BYTES;
    key->partition = at[0];
    key->type = (uint32_t)at[1] << 24 | (uint32_t)at[2] << 16 | (uint32_t)at[3] << 8 | at[4];
    key->grain_len = (uint32_t)at[5] << 8 | at[6];
    key->grain = at + TEFFI_REMINDER_FIXED_BYTES;
    if (!key->grain_len || key->grain_len > TEFFI_KEY_BYTES_MAX || key->grain_len >= left)
        return false;
    key->name = key->grain + key->grain_len;
    key->name_len = (uint32_t)(left - key->grain_len);
    uint64_t hash = teffi_key_cluster_hash(key->type, key->grain, key->grain_len);
    return teffi_partition_of_hash(hash) == key->partition &&
           teffi_reminder_name_is_valid(key->name, key->name_len);
}

/* ---- values ---- */

bool teffi_reminder_read_value(const Teff__Cluster__Reminder *from, teffi_reminder_value *value)
{
    *value = (teffi_reminder_value){.id = from->id,
                                    .next_ms = from->next_ms,
                                    .period_ms = from->period_ms,
                                    .until_ms = from->until_ms,
                                    .ticked = from->ticked,
                                    .placement = (uint8_t)from->placement};
    return from->next_ms < TEFFI_REMINDER_MS_MAX && from->period_ms < TEFFI_REMINDER_MS_MAX &&
           from->until_ms < 2 * TEFFI_REMINDER_MS_MAX && from->placement <= TEFF_PLACE_HASH;
}

void teffi_reminder_fill_message(const teffi_reminder_value *value, const char *type,
                                 Teff__Cluster__Reminder *to)
{
    teff__cluster__reminder__init(to);
    to->type = (char *)(uintptr_t)type; /* only read */
    to->id = value->id;
    to->next_ms = value->next_ms;
    to->period_ms = value->period_ms;
    to->until_ms = value->until_ms;
    to->ticked = value->ticked;
    to->placement = value->placement;
}

teff_err teffi_reminder_unpack(teffi_bytes bytes, teff_arena *arena, teffi_reminder_value *value,
                               const char **type)
{
    ProtobufCMessage *msg;
    teff_err err =
        teffi_unpack(&teff__cluster__reminder__descriptor, bytes.data, bytes.len, arena, &msg);
    if (err)
        return err == TEFF_E_NOMEM ? err : TEFF_E_MALFORMED;
    if (type)
        *type = ((const Teff__Cluster__Reminder *)msg)->type;
    return teffi_reminder_read_value((const Teff__Cluster__Reminder *)msg, value)
               ? TEFF_OK
               : TEFF_E_MALFORMED;
}

teffi_bytes teffi_reminder_pack(teff_ctx *ctx, const teffi_reminder_value *value, const char *type)
{
    Teff__Cluster__Reminder msg;
    teffi_reminder_fill_message(value, type, &msg);
    size_t len = teffi_packed_size(&msg.base);
    uint8_t *data = teff_alloc(ctx, len + 1);
    teffi_pack(&msg.base, len, data);
    return (teffi_bytes){data, len};
}

/* ---- rows ---- */

teff_err teffi_reminder_read_row(teff_ctx *ctx, teffi_row *row, teffi_reminder_value *value,
                                 const char **type)
{
    teffi_store_op op = {.kind = TEFFI_STORE_READ, .rows = row, .n_rows = 1, .arena = &ctx->arena};
    row->table = TEFFI_TABLE_REMINDER;
    row->etag = 0;
    teff_err err = teffi_ctx_run_store_op(ctx, &op);
    if (err || !row->etag)
        return err;
    err = teffi_reminder_unpack(row->value, &ctx->arena, value, type);
    return err ? teff_fail(ctx, err, "the reminder's row in the store is damaged") : TEFF_OK;
}

teff_err teffi_reminder_write_row(teff_ctx *ctx, teffi_row *row)
{
    teffi_row rows[] = {*row, teffi_rows_make_own_fence_check(ctx)};
    teffi_store_op op = {.kind = TEFFI_STORE_BATCH,
                         .rows = rows,
                         .n_rows = rows[1].etag ? 2 : 1,
                         .arena = &ctx->arena};
    rows[0].table = TEFFI_TABLE_REMINDER;
    if (!teffi_lease_holds(&ctx->home->lease, teffi_now(ctx->node->platform)))
        return teff_fail(ctx, TEFF_E_CLOSED, "store: %s", teffi_lease_over_text);
    teff_err err = teffi_ctx_run_store_op(ctx, &op);
    row->etag = rows[0].etag;
    return err;
}

/* ---- ticks ---- */

/* If the wall clock was set back, next_ms may be far away. It then counts from now_ms, so that the
 * grain does not wait for more than two periods. */
static uint64_t limit_next_ms(uint64_t next_ms, uint64_t period_ms, uint64_t now_ms)
{
    return next_ms > now_ms + 2 * period_ms ? now_ms + period_ms : next_ms;
}

teffi_reminder_step teffi_reminder_plan(const teffi_reminder_value *value, uint64_t now_ms)
{
    uint64_t period_ms = value->period_ms;
    uint64_t end_ms = value->until_ms && value->until_ms < now_ms ? value->until_ms : now_ms;
    teffi_reminder_step step = {.due_ms = value->next_ms, .last = !period_ms};
    if (!period_ms)
        return step;
    if (end_ms > value->next_ms)
        step.missed = (end_ms - value->next_ms) / period_ms;
    step.due_ms += step.missed * period_ms;
    step.next_ms = limit_next_ms(step.due_ms + period_ms, period_ms, now_ms);
    step.last = (value->until_ms && step.next_ms > value->until_ms) ||
                step.next_ms >= TEFFI_REMINDER_MS_MAX;
    return step;
}

uint64_t teffi_reminder_wait_ms(const teffi_reminder_value *value, uint64_t now_ms, bool *limited)
{
    uint64_t ms = value->next_ms > now_ms ? value->next_ms - now_ms : 0;
    bool limits = value->ticked && value->period_ms && ms > 2 * value->period_ms;
    if (limited)
        *limited = limits;
    return limits ? 2 * value->period_ms : ms;
}
