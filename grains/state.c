/* state.c - load, save, clear and compact a grain's state.
 * Way:     activation, generated save -> [state] -> store
 * Threads: on the activation's group; one store operation of an activation at a time. */
#include "state.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "base/bug.h"
#include "base/pool.h"
#include "grains.h"
#include "turn.h"
#include "wire/codec.h"

static const char state_table[] = "state";

enum { COMPACT_MIN_BYTES = 4096 };

static const size_t state_budget_bytes = 64u * 1024 * 1024;

/* "cluster \0 type \0 key bytes" */
static teffi_bytes row_key(teff_ctx *ctx, const teffi_activation *act)
{
    const char *cluster = ctx->node->cluster, *type = act->type->info->name;
    teffi_ident ident = teffi_activation_ident(act);
    size_t c = strlen(cluster) + 1, t = strlen(type) + 1;
    char *key = teff_alloc(ctx, c + t + ident.key_len);
    memcpy(key, cluster, c);
    memcpy(key + c, type, t);
    memcpy(key + c + t, ident.key, ident.key_len);
    return (teffi_bytes){key, c + t + ident.key_len};
}

static teff_arena *new_arena(void)
{
    teff_arena *arena = malloc(sizeof *arena);
    if (arena)
        teffi_arena_init(arena, NULL, 0, state_budget_bytes);
    return arena;
}

static void free_arena(teff_arena *arena)
{
    if (arena)
        teffi_arena_fini(arena);
    free(arena);
}

/* A state is small: its arena's blocks begin with the message itself. */
static teff_err adopt(teffi_activation *act, teff_arena *arena, ProtobufCMessage *state)
{
    if (!state) {
        free_arena(arena);
        return TEFF_E_NOMEM;
    }
    free_arena(act->stored->arena);
    act->stored->arena = arena;
    act->stored->message = state;
    act->stored->compact_bytes = arena->used_bytes;
    return TEFF_OK;
}

static teff_err make_empty(teffi_activation *act)
{
    const ProtobufCMessageDescriptor *desc = act->type->info->state->desc;
    teff_arena *arena = new_arena();
    ProtobufCMessage *state = arena ? teff_arena_alloc(arena, desc->sizeof_message) : NULL;
    if (state)
        protobuf_c_message_init(desc, state);
    return adopt(act, arena, state);
}

typedef struct decoding {
    teffi_activation *act;
    teffi_bytes value;
    teff_err err;
} decoding;

/* On the worker's stack: the bytes come from outside, and unpacking them recurses. */
static void decode_there(void *arg)
{
    decoding *d = arg;
    const teff_message_ops *ops = d->act->type->info->state;
    teff_arena *scratch = new_arena(), *arena = new_arena();
    ProtobufCMessage *stored = NULL;
    d->err = TEFF_E_NOMEM;
    if (scratch && arena)
        d->err = teffi_unpack(ops->desc, d->value.data, d->value.len, scratch, &stored);
    if (d->err)
        free_arena(arena);
    else
        d->err = adopt(d->act, arena, ops->copy(arena, stored));
    free_arena(scratch);
}

static teff_err decode(teff_ctx *ctx, teffi_activation *act, teffi_bytes value)
{
    decoding d = {act, value, TEFF_OK};
    teffi_ctx_on_worker(ctx, decode_there, &d);
    if (!d.err || d.err == TEFF_E_NOMEM)
        return d.err;
    return teffi_ctx_fail(ctx, TEFF_E_MALFORMED,
                          "state of a %s in the store does not decode as %s; it is left as it is",
                          act->type->info->name, act->type->info->state->desc->name);
}

static bool make_stored(teffi_activation *act)
{
    act->stored = teffi_pool_get(sizeof *act->stored);
    if (act->stored)
        *act->stored = (teffi_stored){0};
    return act->stored != NULL;
}

teff_err teffi_state_load(teff_ctx *ctx, teffi_activation *act)
{
    if (!act->type->info->state)
        return TEFF_OK;
    if (!make_stored(act))
        return teffi_ctx_fail(ctx, TEFF_E_NOMEM, "out of memory for the state of a %s",
                              act->type->info->name);
    teffi_row row = {.table = state_table, .key = row_key(ctx, act)};
    teffi_store_op op = {.kind = TEFFI_STORE_READ, .rows = &row, .n_rows = 1, .arena = &ctx->arena};
    teff_err err = teffi_ctx_store(ctx, &op);
    if (err)
        return err;
    act->stored->etag = row.etag;
    err = row.etag ? decode(ctx, act, row.value) : make_empty(act);
    if (err == TEFF_E_NOMEM)
        return teffi_ctx_fail(ctx, err, "out of memory for the state of a %s",
                              act->type->info->name);
    return err;
}

/* ---- writing ---- */

static void lock_state(teff_ctx *ctx, teffi_activation *act)
{
    while (act->stored->saving)
        teffi_ctx_sleep(ctx, 1);
    act->stored->saving = true;
}

/* After a lost race or an unknown outcome memory may differ from the store: the next call loads. */
static teff_err written(teff_ctx *ctx, teffi_activation *act, teff_err err, uint64_t etag)
{
    act->stored->saving = false;
    if (!err)
        act->stored->etag = etag;
    else if (!act->reason)
        act->reason = TEFF_REASON_REQUESTED;
    if (err == TEFF_E_CONFLICT)
        return teffi_ctx_fail(ctx, err, "state of a %s was written by somebody else meanwhile",
                              act->type->info->name);
    return err;
}

static teff_err write_row(teff_ctx *ctx, teffi_activation *act, teffi_row *row)
{
    teffi_store_op op = {.kind = TEFFI_STORE_WRITE, .rows = row, .n_rows = 1, .arena = &ctx->arena};
    row->table = state_table;
    row->key = row_key(ctx, act);
    row->etag = act->stored->etag;
    return teffi_ctx_store(ctx, &op);
}

static teffi_activation *with_state(teff_ctx *ctx)
{
    teffi_activation *act = teffi_turn_activation(ctx);
    return act && teffi_activation_state(act) ? act : NULL;
}

teff_err teff_state_save(teff_ctx *ctx)
{
    teffi_activation *act = with_state(ctx);
    if (!act)
        return teffi_ctx_fail(ctx, TEFF_E_INVALID,
                              "no state to save: not in a turn of such a type");
    lock_state(ctx, act);
    size_t len = protobuf_c_message_get_packed_size(act->stored->message);
    if (len > TEFFI_STORE_VALUE_MAX) {
        act->stored->saving = false;
        return teffi_ctx_fail(ctx, TEFF_E_TOO_LARGE, "state of %zu bytes; at most %d are stored",
                              len, TEFFI_STORE_VALUE_MAX);
    }
    uint8_t *data = teff_alloc(ctx, len + 1);
    protobuf_c_message_pack(act->stored->message, data);
    teffi_row row = {.value = {data, len}};
    teff_err err = write_row(ctx, act, &row);
    return written(ctx, act, err, row.etag);
}

teff_err teff_state_clear(teff_ctx *ctx)
{
    teffi_activation *act = with_state(ctx);
    if (!act)
        return teffi_ctx_fail(ctx, TEFF_E_INVALID,
                              "no state to clear: not in a turn of such a type");
    lock_state(ctx, act);
    teffi_row row = {.remove = true};
    teff_err err = act->stored->etag ? write_row(ctx, act, &row) : TEFF_OK;
    err = written(ctx, act, err, 0);
    if (!err)
        protobuf_c_message_init(act->type->info->state->desc, act->stored->message);
    return err;
}

void *teff_state_alloc(teff_ctx *ctx, size_t n)
{
    teffi_activation *act = with_state(ctx);
    void *p = act ? teff_arena_alloc(act->stored->arena, n) : NULL;
    teffi_bug_if(!p);
    return p;
}

char *teff_state_strdup(teff_ctx *ctx, const char *s)
{
    teffi_activation *act = with_state(ctx);
    void *p = act ? teff_arena_copy(act->stored->arena, s, strlen(s)) : NULL;
    teffi_bug_if(!p);
    return p;
}

bool teffi_state_compacts(const teffi_activation *act)
{
    const teffi_stored *stored = act->stored;
    return stored && stored->arena && stored->arena->used_bytes >= COMPACT_MIN_BYTES &&
           stored->arena->used_bytes >= 2 * stored->compact_bytes;
}

void teffi_state_compact(teffi_activation *act)
{
    if (!teffi_state_compacts(act))
        return;
    teff_arena *arena = new_arena();
    if (arena) /* when memory is out the state stays where it is */
        (void)adopt(act, arena, act->type->info->state->copy(arena, act->stored->message));
}

void teffi_state_free(teffi_activation *act)
{
    if (!act->stored)
        return;
    free_arena(act->stored->arena);
    teffi_pool_put(act->stored, sizeof *act->stored);
    act->stored = NULL;
}
