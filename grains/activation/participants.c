/* participants.c - lists of participants, the batch of a transaction, the messages of its outcome.
 * Threads: in a turn, on its fiber. */
#include "activation/participants.h"

#include <stdlib.h>
#include <string.h>
#include "activation/answers.h"
#include "activation/state.h"
#include "call/task.h"
#include "cluster/membership.h"
#include "message/codec.h"
#include "node/ask.h"
#include "node/deliver.h"

typedef Teff__Transaction__Participant participant;
typedef Teff__Transaction__Participants participants;

/* ---- a list ---- */

static ProtobufCBinaryData make_binary_data(const void *data, size_t len)
{
    return (ProtobufCBinaryData){len, (uint8_t *)(uintptr_t)data};
}

/* Sets those members of *own that describe act's row: among others the row's key and etag, and
 * whether to write, remove or only check the row. If the state was cleared, but act has answers
 * (answers.h) to keep, the row is not removed: an empty state and the answers are written to it. */
static teff_err set_row_members(teff_ctx *ctx, teffi_activation *act, participant *own)
{
    const teffi_lock *lock = teffi_lock_of(act);
    teffi_bytes key = teffi_state_make_row_key(ctx, act), value = {NULL, 0};
    own->row = make_binary_data(key.data, key.len);
    own->etag = act->stored->etag;
    own->fence = teffi_rows_make_own_fence_check(ctx).etag;
    bool removes = lock->removes && !teffi_activation_has_answers(act);
    own->removes = removes && own->etag;
    own->writes = lock->writes && (!removes || own->etag);
    if (!own->writes || own->removes)
        return TEFF_OK;
    teff_err err = teffi_state_pack(ctx, act, &value);
    own->value = make_binary_data(value.data, value.len);
    return err;
}

teff_err teffi_participant_make_entry(teff_ctx *ctx, teffi_activation *act, bool with_state,
                                      participant *own)
{
    teffi_ident ident = teffi_activation_ident(act);
    teff__transaction__participant__init(own);
    own->type = ident.type;
    own->key = make_binary_data(ident.key, ident.key_len);
    own->silo = ctx->node->id.silo;
    own->incarnation = ctx->node->id.incarnation;
    own->turn = teffi_lock_of(act)->turns;
    own->stamp = atomic_load_explicit(&act->grains->stamp, memory_order_relaxed);
    return with_state && act->stored ? set_row_members(ctx, act, own) : TEFF_OK;
}

bool teffi_participants_append_packed(teffi_lock *lock, const uint8_t *packed, size_t len)
{
    size_t need = lock->list_len + len;
    if (need > lock->list_room) {
        uint8_t *more = realloc(lock->list, 2 * need);
        if (!more)
            return false;
        lock->list = more;
        lock->list_room = 2 * need;
    }
    memcpy(lock->list + lock->list_len, packed, len);
    lock->list_len = need;
    return true;
}

bool teffi_participants_pack_and_append(teff_ctx *ctx, teffi_lock *lock, participant *one)
{
    participants list = TEFF__TRANSACTION__PARTICIPANTS__INIT;
    teffi_arena_mark here = teffi_arena_get_mark(&ctx->arena);
    list.n_list = 1;
    list.list = &one;
    size_t len = teffi_packed_size(&list.base);
    uint8_t *packed = teff_alloc(ctx, len + 1);
    teffi_pack(&list.base, len, packed);
    bool added = teffi_participants_append_packed(lock, packed, len);
    teffi_arena_rewind(&ctx->arena, here);
    return added;
}

typedef struct reading {
    teff_ctx *ctx;
    teffi_bytes packed;
    ProtobufCMessage *list;
    teff_err err;
} reading;

/* Unpacks r->packed to r->list. Runs on the worker's stack, because unpacking recurses and a
 * fiber's stack is smaller. */
static void unpack_list_on_worker(void *arg)
{
    reading *r = arg;
    r->err =
        teffi_unpack_with_options(&teff__transaction__participants__descriptor, r->packed.data,
                                  r->packed.len, r->packed.len, false, &r->ctx->arena, &r->list);
}

static bool same_bytes(ProtobufCBinaryData a, ProtobufCBinaryData b)
{
    return a.len == b.len && (!a.len || memcmp(a.data, b.data, a.len) == 0);
}

static bool same_grain(const participant *a, const participant *b)
{
    return a->type == b->type && same_bytes(a->key, b->key);
}

static bool same_silo(const participant *a, const participant *b)
{
    return a->silo == b->silo && a->incarnation == b->incarnation;
}

/* Is b newer than a? Both are entries of one grain on one silo. They may come from two activations,
 * and each activation counts its turns from 1. An activation that writes its row does not end
 * before its lock is released. So if there are two activations, the first one, which has ended, has
 * not written. Therefore an entry that writes is newer than an entry that does not. */
static bool second_entry_is_newer(const participant *a, const participant *b)
{
    return a->writes != b->writes ? b->writes : b->turn > a->turn;
}

/* Makes this silo's next stamps higher than all stamps of the entries. Of several entries of one
 * grain on the same silo, keeps only the newest. out: false if the etags of such entries differ:
 * the row was read in two versions. */
static bool raise_stamps_and_keep_newest_entries(teffi_grains *grains, participants *all)
{
    size_t n = 0;
    bool fits = true;
    for (size_t i = 0; i < all->n_list; i++) {
        size_t k = 0;
        teffi_transaction_raise_stamp(grains, all->list[i]->stamp);
        while (k < n &&
               !(same_grain(all->list[k], all->list[i]) && same_silo(all->list[k], all->list[i])))
            k++;
        if (k < n)
            fits &= all->list[k]->etag == all->list[i]->etag;
        if (k == n)
            all->list[n++] = all->list[i];
        else if (second_entry_is_newer(all->list[k], all->list[i]))
            all->list[k] = all->list[i];
    }
    all->n_list = n;
    return fits;
}

/* If a grain has entries on two silos, removes the row from one of the two entries. Both entries
 * stay in the list, as both silos must get the outcome. out: false if the etags of two such entries
 * differ, or if both entries write. If both entries write, one of the silos was lost, and neither
 * entry's state contains all changes of the transaction. */
static bool keep_one_row_per_grain(const participants *all)
{
    for (size_t i = 0; i < all->n_list; i++)
        for (size_t k = i + 1; k < all->n_list; k++) {
            participant *a = all->list[i], *b = all->list[k];
            if (!same_grain(a, b))
                continue;
            if (a->etag != b->etag || (a->writes && b->writes))
                return false;
            (a->writes ? b : a)->row.len = 0;
        }
    return true;
}

teff_err teffi_participants_unpack_and_merge(teff_ctx *ctx, teffi_bytes packed, participants **all)
{
    reading r = {.ctx = ctx, .packed = packed};
    teffi_ctx_run_off_fiber(ctx, unpack_list_on_worker, &r);
    *all = (participants *)r.list;
    if (r.err)
        return r.err;
    return raise_stamps_and_keep_newest_entries(ctx->node->grains, *all) &&
                   keep_one_row_per_grain(*all)
               ? TEFF_OK
               : TEFF_E_ABORTED;
}

/* ---- the batch ---- */

/* Each value that a transaction writes ends with a mark: the field TEFFI_MARK_FIELD, with the age,
 * root and attempt of the transaction. So read_batch_outcome() does not take an equal value of
 * another transaction for its own. Loading a row drops the mark. */
enum { MARK_HEAD = 4, MARK_BYTES = MARK_HEAD + 20 };

/* out: a copy of value in ctx's memory, with a mark at its end: a field that identifies the
 * transaction and its attempt. */
static ProtobufCBinaryData copy_value_with_mark(teff_ctx *ctx, ProtobufCBinaryData value,
                                                const teffi_transaction *transaction)
{
    static const uint8_t head[MARK_HEAD] = {0xfa, 0xd9, 0x09, MARK_BYTES - MARK_HEAD};
    uint8_t *all = teff_alloc(ctx, value.len + MARK_BYTES), *mark = all + value.len;
    if (value.len)
        memcpy(all, value.data, value.len);
    memcpy(mark, head, MARK_HEAD);
    memcpy(mark + MARK_HEAD, transaction, MARK_BYTES - MARK_HEAD); /* age, root, attempt */
    return (ProtobufCBinaryData){value.len + MARK_BYTES, all};
}

_Static_assert(TEFFI_MARK_FIELD == ((0x09 << 14 | 0x59 << 7 | 0x7a) >> 3) &&
                   offsetof(teffi_transaction, step) == MARK_BYTES - MARK_HEAD &&
                   TEFF_STATE_MAX + MARK_BYTES <= TEFFI_STORE_VALUE_MAX,
               "the field's tag, for a field with a length; what the mark holds; it fits in a row");

typedef struct batch {
    teffi_row rows[TEFFI_STORE_BATCH_MAX];
    participant *of[TEFFI_STORE_BATCH_MAX]; /* whose row it is; NULL: a fence */
    size_t n, n_writes;
    bool too_large;
    bool silo_has_changed; /* two entries have different fences of one silo */
} batch;

static void add_row(batch *b, participant *of, teffi_row row)
{
    b->too_large |= b->n == TEFFI_STORE_BATCH_MAX;
    if (b->too_large)
        return;
    b->of[b->n] = of;
    b->rows[b->n++] = row;
}

/* Adds the row of the participant `one` to the batch. If a value is to be written, appends
 * transaction's mark to it. Adds nothing if `one` has no row: its grain has no state, or another
 * silo's entry has the row (keep_one_row_per_grain()). */
static void add_participant_row(teff_ctx *ctx, batch *b, participant *one,
                                const teffi_transaction *transaction)
{
    if (!one->row.len)
        return;
    b->n_writes += one->writes ? 1 : 0;
    if (one->writes && !one->removes)
        one->value = copy_value_with_mark(ctx, one->value, transaction);
    add_row(b, one,
            (teffi_row){.table = "state",
                        .key = {one->row.data, one->row.len},
                        .value = {one->value.data, one->value.len},
                        .etag = one->etag,
                        .remove = one->removes,
                        .check = !one->writes});
}

/* Adds a check of silo's fence row to the batch, unless the batch has this check already, or the
 * silo has no fence (fence is 0). If the batch has a check of another fence of the same silo, the
 * silo was started again meanwhile: what it knew of a grain before may be outdated. in: n_states:
 * the number of rows before the fence rows. */
static void add_fence_check(teff_ctx *ctx, batch *b, size_t n_states, uint32_t silo, uint64_t fence)
{
    teffi_row row = teffi_rows_make_fence_check(ctx, silo, fence);
    bool found = false;
    for (size_t i = n_states; i < b->n; i++)
        if (b->rows[i].key.len == row.key.len &&
            memcmp(b->rows[i].key.data, row.key.data, row.key.len) == 0) {
            found = true;
            b->silo_has_changed |= fence && b->rows[i].etag != fence;
        }
    if (fence && !found)
        add_row(b, NULL, row);
}

/* First adds state rows to the batch: that of the root (*own), and those of the entries in
 * all->list. An entry may have no state row. After these rows, adds fence checks: a check of this
 * silo's fence row and, for each entry that has a state row, a check of its silo's fence row. */
static void fill_batch(teff_ctx *ctx, batch *b, const teffi_transaction *transaction,
                       participant *own, participants *all)
{
    add_participant_row(ctx, b, own, transaction);
    for (size_t i = 0; i < all->n_list; i++)
        add_participant_row(ctx, b, all->list[i], transaction);
    size_t n_states = b->n;
    add_fence_check(ctx, b, n_states, ctx->node->id.silo,
                    teffi_rows_make_own_fence_check(ctx).etag);
    for (size_t i = 0; i < all->n_list; i++)
        if (all->list[i]->row.len)
            add_fence_check(ctx, b, n_states, all->list[i]->silo, all->list[i]->fence);
}

typedef enum found {
    FOUND_OLD,     /* the row is as before the batch */
    FOUND_WRITTEN, /* as the batch would have left it */
    FOUND_OTHER    /* neither: another writer has changed it */
} found;

/* Finds out whether the batch has written a row. in: tried: the row as submitted in the batch.
 * one: the row's participant, with the etag that the row had before the batch. now: the row as it
 * is in the store now. */
static found compare_row(const teffi_row *tried, const participant *one, const teffi_row *now)
{
    if (now->etag == one->etag)
        return FOUND_OLD;
    if (tried->remove)
        return now->etag ? FOUND_OTHER : FOUND_WRITTEN;
    return now->etag && now->value.len == tried->value.len &&
                   memcmp(now->value.data, tried->value.data, now->value.len) == 0
               ? FOUND_WRITTEN
               : FOUND_OTHER;
}

/* Reads the rows to find out whether a batch of unknown outcome was written. A batch is written as
 * a whole or not at all, so one unchanged row shows that the batch was not written.
 * On TEFF_OK the rows have their new etags.
 * errs: TEFF_E_IO: the batch was not written. TEFF_E_UNKNOWN: another writer has changed a row
 *       since, or a row cannot be read. TEFF_E_ABORTED: the batch only checks rows, so reading them
 *       cannot show its outcome. */
static teff_err read_batch_outcome(teff_ctx *ctx, batch *b)
{
    bool all_written = true;
    if (!b->n_writes)
        return teff_fail(ctx, TEFF_E_ABORTED, "the store did not say whether a grain has changed");
    for (size_t i = 0; i < b->n; i++) {
        if (!b->of[i] || b->rows[i].check)
            continue;
        teffi_row now = {.table = "state", .key = b->rows[i].key};
        teffi_store_op op = {
            .kind = TEFFI_STORE_READ, .rows = &now, .n_rows = 1, .arena = &ctx->arena};
        if (teffi_ctx_run_store_op(ctx, &op))
            return TEFF_E_UNKNOWN;
        found outcome = compare_row(&b->rows[i], b->of[i], &now);
        if (outcome == FOUND_OLD)
            return teff_fail(ctx, TEFF_E_IO, "the store did not write the transaction");
        all_written &= outcome == FOUND_WRITTEN;
        b->rows[i].etag = now.etag;
    }
    return all_written ? TEFF_OK : TEFF_E_UNKNOWN;
}

/* Submits the batch to the store, unless this silo's lease is over. If the store cannot say whether
 * it has written the batch, reads the rows to find out. On TEFF_OK the rows have their new etags.
 * After a conflict, starts a refresh of the membership view, as a fence may have changed. errs: as
 * teffi_participants_write_rows. */
static teff_err submit_batch(teff_ctx *ctx, batch *b)
{
    teffi_store_op op = {
        .kind = TEFFI_STORE_BATCH, .rows = b->rows, .n_rows = b->n, .arena = &ctx->arena};
    if (!teffi_lease_holds(&ctx->home->lease, teffi_now(ctx->node->platform)))
        return teff_fail(ctx, TEFF_E_CLOSED, "store: %s", teffi_lease_over_text);
    teffi_lock *lock = ctx->transaction;
    lock->submitted = true; /* before the wait, in which the turn may end */
    teff_err err = teffi_ctx_run_store_op(ctx, &op);
    if (err == TEFF_E_UNKNOWN)
        err = read_batch_outcome(ctx, b);
    if (err != TEFF_E_CONFLICT)
        return err;
    if (ctx->node->membership)
        teffi_membership_refresh_soon(ctx->node->membership);
    return teff_fail(ctx, TEFF_E_ABORTED, "a grain, or its silo, has changed meanwhile");
}

/* If the root is the only participant and writes nothing, no batch is needed to check its row: the
 * root still holds the lock under which the row was read. */
teff_err teffi_participants_write_rows(teff_ctx *ctx, const teffi_transaction *transaction,
                                       participant *own, participants *all)
{
    batch *b = teff_alloc(ctx, sizeof *b);
    memset(b, 0, sizeof *b);
    fill_batch(ctx, b, transaction, own, all);
    if (b->too_large)
        return teff_fail(ctx, TEFF_E_TOO_LARGE,
                         "a transaction may have at most %d rows: one of each grain with state, "
                         "and one of each silo",
                         TEFFI_STORE_BATCH_MAX);
    if (b->silo_has_changed)
        return teff_fail(ctx, TEFF_E_ABORTED,
                         "a silo of the transaction was started again meanwhile");
    if (!b->n_writes && all->n_list == 0)
        return TEFF_OK;
    teff_err err = b->n ? submit_batch(ctx, b) : TEFF_OK;
    for (size_t i = 0; i < b->n && !err; i++)
        if (b->of[i] && !b->rows[i].check)
            b->of[i]->etag = b->rows[i].etag;
    return err;
}

/* ---- the outcome ---- */

/* Is the silo `other` neither in this silo's view nor known as gone? Such a silo may have joined
 * after this silo's view was made. Even so, it may host a participant: a third silo, whose view is
 * newer, may have called a grain on it. */
static bool silo_is_stranger(teffi_node *node, teffi_node_id other)
{
    const teffi_view *view = teffi_view_ref_current(node);
    bool is_stranger = view && teffi_view_standing(view, other) == TEFFI_STANDING_STRANGER;
    teffi_view_unref(view);
    return is_stranger;
}

/* Sends one participant a message that carries *transaction, whose step is the outcome. If this
 * silo does not know the participant's silo yet, adds the message to unsent instead. Ignores
 * errors: if the message is not sent, the watch of the participant's lock resolves that lock. */
static void send_outcome(teffi_grains *grains, const participant *one,
                         const teffi_transaction *transaction, teffi_queue *unsent)
{
    teffi_node *node = grains->node;
    teffi_node_id to = {one->silo, one->incarnation};
    teffi_msg *msg = teffi_msg_new(TEFFI_MSG_ONEWAY);
    if (!msg)
        return;
    msg->src = node->id;
    msg->to.node = to;
    msg->type_id = one->type;
    msg->key = teff_arena_copy(&msg->arena, one->key.data, one->key.len);
    msg->key_len = (uint32_t)one->key.len;
    bool complete = msg->key && teffi_transaction_write_to_msg(msg, transaction);
    if (complete && !teffi_node_send(node, to, msg))
        return;
    if (complete && silo_is_stranger(node, to))
        teffi_queue_push(unsent, &msg->link);
    else
        teffi_msg_free(msg);
}

/* Sends messages with outcomes, or frees those that cannot be sent. */
static void send_or_free_outcomes(teffi_node *node, teffi_queue *unsent)
{
    for (teffi_qnode *n; (n = teffi_queue_pop(unsent));) {
        teffi_msg *msg = teffi_container(n, teffi_msg, link);
        if (teffi_node_send(node, msg->to.node, msg))
            teffi_msg_free(msg);
    }
}

/* A task: refreshes the membership view, so that this silo knows the silos to which the messages
 * go. Then sends the messages. in: arg: a teffi_queue on the heap, which this function frees. */
static void refresh_view_and_send_outcomes(teff_ctx *ctx, void *arg)
{
    (void)!teffi_membership_refresh(ctx, 0);
    send_or_free_outcomes(ctx->node, arg);
    free(arg);
}

/* Starts the task that refreshes the view and then sends the messages. If there is no memory for
 * the task, sends at once those that can be sent, and frees the others. */
static void start_task_to_refresh_and_send(teffi_node *node, teffi_queue *unsent)
{
    teffi_queue *moved = malloc(sizeof *moved);
    if (moved) {
        *moved = *unsent;
        if (!teffi_task_start(&node->home, refresh_view_and_send_outcomes, moved,
                              "tell new silos how a transaction has ended", false))
            return;
        free(moved);
    }
    send_or_free_outcomes(node, unsent);
}

void teffi_participants_send_outcome(teffi_grains *grains, const participants *all,
                                     const teffi_transaction *transaction, teffi_step step)
{
    teffi_transaction end = *transaction;
    teffi_queue unsent = {0};
    end.step = step;
    for (size_t i = 0; i < all->n_list; i++) {
        end.etag = step == TEFFI_STEP_COMMIT ? all->list[i]->etag : 0;
        send_outcome(grains, all->list[i], &end, &unsent);
    }
    if (unsent.count)
        start_task_to_refresh_and_send(grains->node, &unsent);
}
