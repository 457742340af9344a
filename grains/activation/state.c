/* state.c - load, save, clear and compact a grain's state.
 * Threads: on the activation's group; an activation has one store operation at a time. */
#include "activation/state.h"

#include <stdio.h>
#include <stdlib.h>
#include "activation/answers.h"
#include "activation/lock.h"
#include "activation/load_limit.h"
#include "activation/timers.h"
#include "cluster/membership.h"
#include "memory/pool.h"
#include "message/codec.h"
#include "node/ask.h"

/* A packed field has at least one byte, so that the limit of bytes bounds the fields too. */
enum { FIELDS_MAX = TEFF_STATE_MAX };

_Static_assert(TEFF_STATE_MAX < TEFFI_STORE_VALUE_MAX &&
                   TEFF_STATE_UNPACKED_MAX * 2 <= TEFF_STATE_MEMORY_MAX,
               "a packed state fits in a row; memory holds a state and as much garbage");

/* Limit of the scratch arena of decode_and_replace_state(). Decoding needs several times the
 * state's size: lists grow by doubling, and protobuf-c's own parser allocates 40 bytes for each
 * field. */
static const size_t decoding_budget_bytes = (size_t)8 * TEFF_STATE_UNPACKED_MAX;

enum { COMPACT_MIN_BYTES = 4096, PAUSE_STEP_BYTES = 4 * 1024 * 1024 };

/* A pause, in which no turn starts, is at most this long. When it ends without a compaction,
 * set_pause_bytes() moves the start of the next pause. */
static const uint64_t pause_max_ns = 1000000000;

/* The row's key consists of the cluster's name, a zero byte, the type's name, a zero byte, and the
 * grain's key. */
teffi_bytes teffi_state_make_row_key(teff_ctx *ctx, const teffi_activation *act)
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

/* Reads the row that has this key to *row. The row's value lies in ctx's arena. If the store has no
 * such row, row->etag is 0. */
static teff_err read_row_of_key(teff_ctx *ctx, teffi_bytes key, teffi_row *row)
{
    teffi_store_op op = {.kind = TEFFI_STORE_READ, .rows = row, .n_rows = 1, .arena = &ctx->arena};
    *row = (teffi_row){.table = "state", .key = key};
    return teffi_ctx_run_store_op(ctx, &op);
}

static teff_err read_state_row(teff_ctx *ctx, const teffi_activation *act, teffi_row *row)
{
    return read_row_of_key(ctx, teffi_state_make_row_key(ctx, act), row);
}

/* Waits until the load limit allows one more read, reads the row of the state, and reports the
 * read's duration to the limit. out: as read_row_of_key(). The key is made first, because the turn
 * ends if there is no memory for the key. If the turn ended after teffi_load_limit_enter(), the
 * limit would count this read for ever. */
static teff_err read_state_row_when_allowed(teff_ctx *ctx, const teffi_activation *act,
                                            teffi_row *row)
{
    const teffi_platform *platform = ctx->node->platform;
    teffi_bytes key = teffi_state_make_row_key(ctx, act);
    teffi_load_limit_enter(act->grains->load_limit, ctx);
    uint64_t begun_ns = teffi_now(platform);
    teff_err err = read_row_of_key(ctx, key, row);
    teffi_load_limit_leave(act->grains->load_limit, teffi_now(platform) - begun_ns);
    return err;
}

/* Writes or removes row if the row in the store still has row->etag. If this silo has a fence row,
 * the same batch checks the fence row, so that the store refuses the writes of a silo that was
 * declared dead: other silos may hold that silo's grains. After TEFF_E_CONFLICT, starts a refresh
 * of the membership view, to learn whether this silo was declared dead. out: the new etag in
 * row->etag. errs: the store's; TEFF_E_CLOSED: this silo's lease is over. */
static teff_err write_row_with_fence_check(teff_ctx *ctx, const teffi_activation *act,
                                           teffi_row *row)
{
    teffi_row rows[] = {*row, teffi_rows_make_own_fence_check(ctx)};
    teffi_store_op op = {.kind = TEFFI_STORE_BATCH,
                         .rows = rows,
                         .n_rows = rows[1].etag ? 2 : 1,
                         .arena = &ctx->arena};
    rows[0].table = "state";
    rows[0].key = teffi_state_make_row_key(ctx, act);
    if (!teffi_lease_holds(&ctx->home->lease, teffi_now(ctx->node->platform)))
        return teff_fail(ctx, TEFF_E_CLOSED, "store: %s", teffi_lease_over_text);
    teff_err err = teffi_ctx_run_store_op(ctx, &op);
    if (err == TEFF_E_CONFLICT && ctx->node->membership)
        teffi_membership_refresh_soon(ctx->node->membership);
    row->etag = rows[0].etag;
    return err;
}

static teff_arena *new_arena(void)
{
    teff_arena *arena = malloc(sizeof *arena);
    if (arena)
        teffi_arena_init(arena, NULL, 0, TEFF_STATE_MEMORY_MAX);
    return arena;
}

static void free_arena(teff_arena *arena)
{
    if (arena)
        teffi_arena_fini(arena);
    free(arena);
}

/* Sets pause_bytes. Before the next pause begins, the arena can grow by half of its free budget, or
 * by PAUSE_STEP_BYTES if that is more. */
static void set_pause_bytes(teffi_stored *stored)
{
    size_t used = stored->arena->used_bytes, half = (stored->arena->budget_bytes - used) / 2;
    stored->pause_bytes = used + (half > PAUSE_STEP_BYTES ? half : PAUSE_STEP_BYTES);
}

/* Replaces the activation's state with the message `state`, which lies in `arena`, and frees the
 * old arena. Takes ownership of `arena`. If state is NULL, replaces nothing, frees `arena`, and
 * returns TEFF_E_NOMEM. */
static teff_err replace_state(teffi_activation *act, teff_arena *arena, ProtobufCMessage *state)
{
    if (!state) {
        free_arena(arena);
        return TEFF_E_NOMEM;
    }
    free_arena(act->stored->arena);
    act->stored->arena = arena;
    act->stored->message = state;
    act->stored->compact_bytes = arena->used_bytes;
    act->stored->rooms = NULL;
    act->stored->grown_bytes = 0;
    set_pause_bytes(act->stored);
    return TEFF_OK;
}

static teff_err make_empty_state(teffi_activation *act)
{
    const ProtobufCMessageDescriptor *desc = act->type->info->state->desc;
    teff_arena *arena = new_arena();
    ProtobufCMessage *state = arena ? teff_arena_alloc(arena, desc->sizeof_message) : NULL;
    if (state)
        protobuf_c_message_init(desc, state);
    return replace_state(act, arena, state);
}

typedef struct decoding {
    teffi_activation *act;
    teffi_bytes value;
    teff_err err;
} decoding;

/* Decodes d->value, the value of a row. Then moves the decoded answers to act, and replaces act's
 * state with a copy of the decoded state. Decodes in a scratch arena and frees it at the end, so
 * that the garbage of decoding does not stay in memory. Runs on the worker's stack, because
 * decoding recurses and a fiber's stack is smaller. out: d->err. */
static void decode_and_replace_state(void *arg)
{
    decoding *d = arg;
    const teff_message_ops *ops = d->act->type->info->state;
    teff_arena *scratch = new_arena(), *arena = new_arena();
    ProtobufCMessage *stored = NULL;
    d->err = TEFF_E_NOMEM;
    if (scratch && arena) {
        scratch->budget_bytes = decoding_budget_bytes;
        d->err = teffi_unpack_with_options(ops->desc, d->value.data, d->value.len, FIELDS_MAX,
                                           false, scratch, &stored);
    }
    if (!d->err)
        d->err = teffi_answers_move_from_state(d->act, stored, scratch);
    if (d->err)
        free_arena(arena);
    else
        d->err = replace_state(d->act, arena, ops->copy(arena, stored));
    free_arena(scratch);
}

static teff_err decode_state(teff_ctx *ctx, teffi_activation *act, teffi_bytes value)
{
    decoding d = {act, value, TEFF_OK};
    teffi_ctx_run_off_fiber(ctx, decode_and_replace_state, &d);
    if (!d.err || d.err == TEFF_E_NOMEM)
        return d.err;
    return teff_fail(ctx, TEFF_E_MALFORMED,
                     "the state in the store does not decode as %s; it is left as it is",
                     act->type->info->state->desc->name);
}

/* Allocates act->stored. out: false: out of memory. */
static bool alloc_stored(teffi_activation *act)
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
    if (!alloc_stored(act))
        return teff_fail(ctx, TEFF_E_NOMEM, "out of memory for the state");
    teffi_row row;
    teff_err err = read_state_row_when_allowed(ctx, act, &row);
    if (err)
        return err;
    act->stored->etag = row.etag;
    err = row.etag ? decode_state(ctx, act, row.value) : make_empty_state(act);
    if (err == TEFF_E_NOMEM)
        return teff_fail(ctx, err, "out of memory for the state");
    return err;
}

/* ---- writing ---- */

/* Waits until no other turn of the activation saves or clears the state, or runs a call with an
 * idempotency key. Afterwards sets stored->saving; save_or_clear_state() or
 * teffi_state_end_idempotent_call() resets it. */
static void lock_state(teff_ctx *ctx, teffi_activation *act)
{
    while (act->stored->saving)
        teffi_ctx_sleep(ctx, 1);
    act->stored->saving = true;
}

/* Lets the activation end after its running turns; the next call loads the stored state. */
static void request_deactivation(teffi_activation *act)
{
    if (!act->reason)
        act->reason = TEFF_REASON_REQUESTED;
}

void teffi_state_mark_lost_and_deactivate(teffi_activation *act)
{
    act->stored->lost = true;
    request_deactivation(act);
}

/* Called if another writer has changed the row: makes the activation end, and makes all its later
 * writes fail. out: TEFF_E_CONFLICT, with text, as the result of the present write. */
static teff_err mark_lost_and_fail_write(teff_ctx *ctx, teffi_activation *act)
{
    teffi_state_mark_lost_and_deactivate(act);
    return teff_fail(ctx, TEFF_E_CONFLICT, "another writer has changed the stored state");
}

static uint64_t hash_value(const teffi_activation *act, const teffi_row *row)
{
    return teffi_siphash(&act->grains->secret, row->value.data, row->value.len);
}

/* Is row, which was just read from the store, as the write with the unknown outcome would have left
 * it? If that write was a removal, it would have left no row: row->etag would be 0. */
static bool row_matches_tried_write(const teffi_activation *act, const teffi_row *row)
{
    const teffi_stored *stored = act->stored;
    return stored->tried_remove ? row->etag == 0
                                : row->etag && hash_value(act, row) == stored->tried_hash;
}

/* Reads the row to find out whether the last write, whose outcome is unknown, was done (store.h
 * says why a read is enough). Whether or not it was done, sets stored->etag to the row's etag.
 * errs: the store's; TEFF_E_CONFLICT: the row is neither as before the write nor as the write would
 * have left it, so another writer has changed the row. */
static teff_err read_last_write_outcome(teff_ctx *ctx, teffi_activation *act)
{
    teffi_row row;
    teff_err err = read_state_row(ctx, act, &row);
    if (err)
        return err;
    if (row.etag != act->stored->etag && !row_matches_tried_write(act, &row))
        return mark_lost_and_fail_write(ctx, act);
    act->stored->etag = row.etag;
    act->stored->unsure = false;
    return TEFF_OK;
}

/* Writes or removes row if the row in the store still has stored->etag. If the outcome of the write
 * is unknown, sets the members of `stored` that read_last_write_outcome() compares, and makes the
 * activation end. */
static teff_err write_row_if_unchanged(teff_ctx *ctx, teffi_activation *act, teffi_row *row)
{
    teffi_stored *stored = act->stored;
    row->etag = stored->etag;
    teff_err err = write_row_with_fence_check(ctx, act, row);
    if (err == TEFF_E_CONFLICT)
        return mark_lost_and_fail_write(ctx, act);
    if (err == TEFF_E_UNKNOWN) {
        stored->unsure = true;
        stored->tried_remove = row->remove;
        stored->tried_hash = row->remove ? 0 : hash_value(act, row);
        request_deactivation(act);
    }
    if (!err)
        stored->etag = row->etag;
    if (!err && stored->answers)
        stored->answers->unsaved = false;
    return err;
}

/* Writes or removes the row. If the outcome of the last write is unknown, finds it out first. The
 * removal of a row that is not stored succeeds at once. */
static teff_err write_row(teff_ctx *ctx, teffi_activation *act, teffi_row *row)
{
    teff_err err = TEFF_OK;
    if (act->stored->lost)
        return mark_lost_and_fail_write(ctx, act);
    if (act->stored->unsure)
        err = read_last_write_outcome(ctx, act);
    if (!err && (!row->remove || act->stored->etag))
        err = write_row_if_unchanged(ctx, act, row);
    return err;
}

const teffi_limits teffi_state_limits = {
    .bytes = TEFF_STATE_MAX, .fields = FIELDS_MAX, .memory = TEFF_STATE_UNPACKED_MAX};

/* Packs the message `state`. If with_answers is set, packs act's answers with it: during the
 * packing, the ProtobufCMessage at the start of `state` is replaced by one that lists the answers
 * as unknown fields. Checks the same limits as decode_state(), so that every saved state can be
 * loaded. in: state: act's own state, or an empty state. */
static teff_err pack_state(teff_ctx *ctx, const teffi_activation *act, ProtobufCMessage *state,
                           bool with_answers, teffi_bytes *value)
{
    char text[TEFF_TEXT_MAX];
    size_t len;
    ProtobufCMessage own = *state;
    ProtobufCMessage packed =
        with_answers ? teffi_answers_copy_base_and_add_answers(ctx, act, state) : own;
    *state = packed;
    teff_err err = teffi_check_message(act->type->info->state->desc, state, &teffi_state_limits,
                                       "the state", &len, text);
    *state = own; /* before teff_alloc(), which may end the turn */
    if (err)
        return teff_fail(ctx, err, "%s", text);
    uint8_t *data = teff_alloc(ctx, len + 1);
    *state = packed;
    teffi_pack(state, len, data);
    *state = own;
    *value = (teffi_bytes){data, len};
    return TEFF_OK;
}

teff_err teffi_state_pack(teff_ctx *ctx, const teffi_activation *act, teffi_bytes *value)
{
    return pack_state(ctx, act, act->stored->message, true, value);
}

static teff_err pack_empty_state(teff_ctx *ctx, const teffi_activation *act, bool with_answers,
                                 teffi_bytes *value)
{
    const ProtobufCMessageDescriptor *desc = act->type->info->state->desc;
    ProtobufCMessage *empty = teff_alloc(ctx, desc->sizeof_message);
    protobuf_c_message_init(desc, empty);
    return pack_state(ctx, act, empty, with_answers, value);
}

teffi_activation *teffi_state_owner(teff_ctx *ctx)
{
    teffi_activation *act = teffi_activation_of_ctx(ctx);
    return act && teffi_activation_state(act) ? act : NULL;
}

static void reset_state_message(teffi_activation *act)
{
    protobuf_c_message_init(act->type->info->state->desc, act->stored->message);
}

/* Packs and writes the state or, if clears is set, removes its row. If there are answers to keep,
 * writes an empty state with them instead of removing the row. */
static teff_err write_or_remove_state_row(teff_ctx *ctx, teffi_activation *act, bool clears)
{
    teffi_arena_mark here = teffi_arena_get_mark(&ctx->arena);
    teffi_row row = {.remove = clears && !teffi_activation_has_answers(act)};
    teff_err err = TEFF_OK;
    if (!clears)
        err = pack_state(ctx, act, act->stored->message, true, &row.value);
    else if (!row.remove)
        err = pack_empty_state(ctx, act, true, &row.value);
    if (!err)
        err = write_row(ctx, act, &row);
    teffi_arena_rewind(&ctx->arena, here);
    return err;
}

/* Clears the state if clears is set, and checks the state's limits, but writes nothing. Called in a
 * transaction, or in the turn of a call with an idempotency key: the state is written when the
 * transaction or the turn ends. */
static teff_err prepare_deferred_state_write(teff_ctx *ctx, teffi_activation *act, bool clears)
{
    teffi_arena_mark here = teffi_arena_get_mark(&ctx->arena);
    teffi_bytes unused;
    if (clears)
        reset_state_message(act);
    teff_err err = pack_state(ctx, act, act->stored->message, true, &unused);
    teffi_arena_rewind(&ctx->arena, here);
    return err;
}

/* Saves the state or, if clears is set, removes its row and clears the state. In a transaction or a
 * call with an idempotency key, the row is written later. */
static teff_err save_or_clear_state(teff_ctx *ctx, bool clears)
{
    teffi_activation *act = teffi_state_owner(ctx);
    if (!act)
        return teff_fail(ctx, TEFF_E_INVALID, "no state to %s: not in a turn of such a type",
                         clears ? "clear" : "save");
    teff_err err;
    teffi_lock *lock = ctx->transaction;
    if (lock || (act->stored->answers && act->stored->answers->turn == ctx)) {
        err = prepare_deferred_state_write(ctx, act, clears);
        if (lock) {
            lock->writes = true;
            lock->removes = clears;
        } else if (!err) {
            act->stored->answers->unsaved = true; /* written even if no answer is recorded */
        }
    } else {
        lock_state(ctx, act);
        err = write_or_remove_state_row(ctx, act, clears);
        if (!err && clears)
            reset_state_message(act);
        act->stored->saving = false;
    }
    return err ? teffi_error_add_turn_prefix(ctx, err) : TEFF_OK;
}

teff_err teffi_state_begin_idempotent_call(teff_ctx *ctx, teffi_activation *act)
{
    lock_state(ctx, act); /* until teffi_state_end_idempotent_call() */
    if (teffi_answers_ensure(act)) {
        act->stored->answers->turn = ctx;
        return TEFF_OK;
    }
    act->stored->saving = false;
    return teffi_error_add_turn_prefix(
        ctx, teff_fail(ctx, TEFF_E_NOMEM, "out of memory for the answer"));
}

teff_err teffi_state_end_idempotent_call(teff_ctx *ctx, teffi_activation *act)
{
    teff_err err =
        act->stored->answers->unsaved ? write_or_remove_state_row(ctx, act, false) : TEFF_OK;
    act->stored->answers->turn = NULL;
    act->stored->saving = false;
    if (err)
        request_deactivation(act); /* no later turn sees unsaved changes */
    return err ? teffi_error_add_turn_prefix(ctx, err) : TEFF_OK;
}

/* ---- for transactions ---- */

void teffi_state_restore(teffi_activation *act, teffi_bytes value)
{
    decoding d = {act, value, TEFF_OK};
    teffi_answers_free(act->stored->answers);
    act->stored->answers = NULL;
    decode_and_replace_state(&d);
    if (d.err)
        teffi_state_mark_broken_and_deactivate(act);
}

void teffi_state_set_etag_after_commit(teffi_activation *act, uint64_t etag)
{
    act->stored->etag = etag;
    if (act->stored->answers)
        act->stored->answers->unsaved = false;
}

/* Reads the row and writes it as it is, so that its etag changes. If the etag already differs from
 * act's, returns TEFF_E_CONFLICT and writes nothing. If the row does not exist, creates it with an
 * empty state and no answers, because the state and the answers in memory may come from a
 * transaction that was not written. If the write itself ends with TEFF_E_CONFLICT, reads the row
 * again, so that the caller gets the row as it is now. */
teff_err teffi_state_touch(teff_ctx *ctx, teffi_activation *act, teffi_row *row)
{
    teff_err err = read_state_row(ctx, act, row);
    if (!err && row->etag != act->stored->etag)
        return TEFF_E_CONFLICT;
    if (!err && !row->etag)
        err = pack_empty_state(ctx, act, false, &row->value);
    if (!err)
        err = write_row_with_fence_check(ctx, act, row);
    if (!err)
        act->stored->etag = row->etag;
    if (err != TEFF_E_CONFLICT)
        return err;
    err = read_state_row(ctx, act, row);
    return err ? err : TEFF_E_CONFLICT;
}

teff_err teff_state_save(teff_ctx *ctx)
{
    return save_or_clear_state(ctx, false);
}

teff_err teff_state_clear(teff_ctx *ctx)
{
    return save_or_clear_state(ctx, true);
}

/* ---- memory ---- */

bool teffi_state_must_compact(const teffi_activation *act)
{
    const teffi_stored *stored = act->stored;
    size_t used = stored && stored->arena ? stored->arena->used_bytes : 0;
    if (used < COMPACT_MIN_BYTES)
        return false;
    /* The spare room of lists (grown_bytes) is not garbage, so it is added to the compacted size.
     * No more than compact_bytes of it is added. */
    size_t compact = stored->compact_bytes, grown = stored->grown_bytes;
    return used >= 2 * (compact + (grown < compact ? grown : compact)) ||
           used >= stored->pause_bytes;
}

/* The timer of a pause. When it fires, it pushes the wait to the activation's group, where
 * on_pause_end() frees the pause. */
struct teffi_pause {
    teffi_wait wait;
    teffi_timer timer;
    teffi_activation *act;
};

static void signal_pause_end(teffi_timer *timer)
{
    teffi_wait_notify_waiter(&teffi_container(timer, struct teffi_pause, timer)->wait);
}

/* Ends the pause whose timer has fired, and frees the pause. If the activation was reused for
 * another grain, stored->pause is not this pause. If the group has ended, wait->done is false, and
 * this function may run on another thread, so it does not read act. */
static void on_pause_end(teffi_wait *wait)
{
    struct teffi_pause *pause = teffi_container(wait, struct teffi_pause, wait);
    teffi_stored *stored = wait->done ? pause->act->stored : NULL;
    if (stored && stored->pause == pause) {
        stored->pause = NULL;
        set_pause_bytes(stored);
        pause->act->busy &= (uint8_t)~TEFFI_BUSY_COMPACT;
    }
    free(pause);
}

void teffi_state_pause_turns_if_large(teffi_activation *act)
{
    teffi_exec *exec = act->grains->node->home.exec;
    if (act->stored->arena->used_bytes < act->stored->pause_bytes || act->busy)
        return; /* if act->busy is set, turns do not overlap, so compaction needs no pause */
    struct teffi_pause *pause = calloc(1, sizeof *pause);
    if (!pause)
        return;
    pause->wait.item.kind = TEFFI_ITEM_WAIT;
    pause->wait.group = &act->group;
    pause->wait.orphan = true; /* no turn awaits it */
    pause->wait.arrive = on_pause_end;
    pause->timer.fire = signal_pause_end;
    pause->act = act;
    act->stored->pause = pause;
    act->busy |= TEFFI_BUSY_COMPACT;
    exec->ops->timer_set(exec, &pause->timer, teffi_now(exec->platform) + pause_max_ns);
}

/* Ends the pause and frees it. If the pause's timer has fired already, on_pause_end() frees the
 * pause instead. */
void teffi_state_end_pause(teffi_activation *act)
{
    teffi_exec *exec = act->grains->node->home.exec;
    if (!act->stored)
        return;
    struct teffi_pause *pause = act->stored->pause;
    act->stored->pause = NULL;
    act->busy &= (uint8_t)~TEFFI_BUSY_COMPACT;
    if (pause && exec->ops->timer_cancel(exec, &pause->timer))
        free(pause);
}

void teffi_state_compact_if_due(teffi_activation *act)
{
    if (act->running > 0)
        return;
    teff_arena *arena = teffi_state_must_compact(act) ? new_arena() : NULL;
    if (arena) /* NULL: nothing to compact, or out of memory */
        (void)replace_state(act, arena, act->type->info->state->copy(arena, act->stored->message));
    teffi_state_end_pause(act);
}

void teffi_activation_nudge_if_due_slow(teffi_activation *act)
{
    bool ends = act->reason && act->running == 0;
    bool compacts = act->running == 0 && teffi_state_must_compact(act);
    if (ends || compacts || teffi_activation_any_pending_may_start(act) ||
        teffi_timers_any_tick_may_start(act))
        teffi_activation_nudge(act);
}

void teffi_state_mark_broken_and_deactivate(teffi_activation *act)
{
    act->stored->broken = true;
    request_deactivation(act);
}

void teffi_state_free(teffi_activation *act)
{
    if (!act->stored)
        return;
    teffi_state_end_pause(act);
    teffi_answers_free(act->stored->answers);
    free_arena(act->stored->arena);
    teffi_pool_put(act->stored, sizeof *act->stored);
    act->stored = NULL;
}
