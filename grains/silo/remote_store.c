/* remote_store.c - sends store operations as requests: the server runs in the seed, the client in
 * the silos that joined through it.
 * Way:     store contract -> [client] -> seed's system target -> [server] -> its store
 * Outcomes: a write without a response may have run: it ends as TEFF_E_UNKNOWN (store.h). */
#include "silo/silo.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "cluster.pb-c.h"
#include "call/task.h"
#include "call/wait.h"
#include "cluster/membership.h"
#include "message/frame.h"
#include "node/ask.h"

/* ASK_TIMEOUT_MS is shorter than the default lease, so that one lost response does not cost the
 * lease. For shorter leases see get_op_timeout_ms(). BYTES_PER_MS: slowest transfer of a large row
 * that still ends in time. AGAIN_MS: pause between two reads of await_write_end(), and between two
 * requests of ask_seed(). */
enum { METHOD_OPERATION = 1, BYTES_PER_MS = 512, ASK_TIMEOUT_MS = 4000, AGAIN_MS = 20 };

_Static_assert(TEFFI_FRAME_ROW_MAX >= TEFFI_STORE_VALUE_MAX + TEFFI_STORE_KEY_MAX + 1024,
               "a row fits into a frame");

/* Is op of a kind that can change rows? */
static bool op_writes(const teffi_store_op *op)
{
    return op->kind == TEFFI_STORE_WRITE || op->kind == TEFFI_STORE_BATCH;
}

/* ---- server ---- */

typedef struct served {
    teffi_store_op op;
    size_t n_added; /* rows of op that are not the sender's: 0 or 1, the last one */
    teffi_node *node;
    teffi_msg *msg;
} served;

/* Makes the rows of a protobuf message from n rows of a store operation. The message's rows point
 * to the same tables, keys and values as `rows`, but have no values if the parameter `values` is
 * false. out: NULL if memory is exhausted. */
static Teff__Cluster__StoreRow **make_message_rows(teff_arena *arena, const teffi_row *rows,
                                                   size_t n, bool values)
{
    Teff__Cluster__StoreRow **out = teff_arena_alloc(arena, (n + 1) * sizeof *out);
    Teff__Cluster__StoreRow *all = teff_arena_alloc(arena, (n + 1) * sizeof *all);
    if (!out || !all)
        return NULL;
    for (size_t i = 0; i < n; i++) {
        const teffi_row *row = &rows[i];
        Teff__Cluster__StoreRow *to = out[i] = &all[i];
        teff__cluster__store_row__init(to);
        to->table = (char *)(uintptr_t)row->table;
        to->key = (ProtobufCBinaryData){row->key.len, (uint8_t *)(uintptr_t)row->key.data};
        if (values)
            to->value =
                (ProtobufCBinaryData){row->value.len, (uint8_t *)(uintptr_t)row->value.data};
        to->etag = row->etag;
        to->remove = row->remove;
        to->any = row->any;
        to->check = row->check;
    }
    return out;
}

static teffi_row row_from_message(const Teff__Cluster__StoreRow *row)
{
    return (teffi_row){.table = row->table,
                       .key = {row->key.data, row->key.len},
                       .value = {row->value.data, row->value.len},
                       .etag = row->etag,
                       .remove = row->remove,
                       .any = row->any,
                       .check = row->check};
}

/* The callback `done` of a served operation: responds with the operation's result, and frees the
 * operation. */
static void respond_with_result_and_free(teffi_store_op *op)
{
    served *s = teffi_container(op, served, op);
    Teff__Cluster__StoreResponse response = TEFF__CLUSTER__STORE_RESPONSE__INIT;
    size_t n = op->kind == TEFFI_STORE_SCAN ? op->n_found : op->n_rows - s->n_added;
    response.err = (uint32_t)op->err;
    response.text = op->text;
    if (!op->err) {
        response.rows = make_message_rows(&s->msg->arena, op->rows, n, !op_writes(op));
        response.n_rows = response.rows ? n : 0;
        response.err = response.rows ? TEFF_OK : op_writes(op) ? TEFF_E_UNKNOWN : TEFF_E_NOMEM;
    }
    s->msg->system = op->system;
    teffi_node_respond_with_body(s->node, s->msg, &response.base);
    free(s);
}

/* Responds that the operation does not run, and frees it. Refreshes the view, since the sender may
 * be a member by now: then it asks again, see ask_seed(). in: err: TEFF_E_CONFLICT: it is the
 * result of the operation, as if the store had returned it; otherwise text says why. */
static void respond_with_refusal_and_free(served *s, teff_err err, const char *text)
{
    teffi_membership_refresh_soon(s->node->membership);
    if (err == TEFF_E_CONFLICT) {
        s->op.err = err;
        s->op.system = true; /* it is a change of the membership table */
        respond_with_result_and_free(&s->op);
        return;
    }
    teffi_node_respond_with_err(s->node, s->msg, err, text);
    free(s);
}

static bool rows_have_key(const teffi_row *rows, size_t n, const teffi_row *other)
{
    for (size_t i = 0; i < n; i++)
        if (strcmp(rows[i].table, other->table) == 0 && rows[i].key.len == other->key.len &&
            memcmp(rows[i].key.data, other->key.data, other->key.len) == 0)
            return true;
    return false;
}

/* Adds a check of this silo's fence to a write of users' rows. If this silo ends before the store
 * has run the write, and is started again, the write fails: the new incarnation has another fence.
 * So a read that the new incarnation runs shows whether the write has run, see await_write_end().
 * in: s->op.rows, with room for one more row. out: false: no memory. */
static bool add_own_fence_check(served *s)
{
    teffi_row *check = &s->op.rows[s->op.n_rows];
    if (!teffi_rows_make_check_of_node(s->node, &s->msg->arena, check))
        return false;
    if (rows_have_key(s->op.rows, s->op.n_rows, check)) /* a store refuses two rows with one key */
        return true;
    s->op.kind = TEFFI_STORE_BATCH;
    s->op.n_rows++;
    s->n_added = 1;
    return true;
}

/* Submits a served operation, and records that its sender uses this silo's store. Users' rows are
 * not served before this silo has joined: it has no fence yet. */
static void submit_served_op(served *s)
{
    bool users = s->op.n_rows > 0 && !teffi_store_op_is_system(&s->op);
    if (users && !atomic_load_explicit(&s->node->home.lease.fence, memory_order_relaxed)) {
        respond_with_refusal_and_free(s, TEFF_E_UNAVAILABLE, "this silo has not joined yet");
        return;
    }
    if (users && op_writes(&s->op) && !add_own_fence_check(s)) {
        respond_with_refusal_and_free(s, TEFF_E_NOMEM, "out of memory");
        return;
    }
    if (op_writes(&s->op))
        teffi_borrowers_record_write(s->node, s->msg->src);
    teffi_store_submit(s->node->store, &s->op);
}

/* Handles a request: submits its operation to this silo's store, if the sender may request it. */
static void serve_store_request(teffi_node *node, teffi_msg *msg)
{
    char text[TEFF_TEXT_MAX];
    teff_err err = teffi_msg_unpack(msg, &teff__cluster__store_ask__descriptor);
    const Teff__Cluster__StoreAsk *ask = (const Teff__Cluster__StoreAsk *)msg->body;
    served *s = err ? NULL : calloc(1, sizeof *s);
    teffi_row *rows = s ? teff_arena_alloc(&msg->arena, (ask->n_rows + 1) * sizeof *rows) : NULL;
    if (!rows) {
        free(s);
        teffi_node_respond_with_err(node, msg, err ? err : TEFF_E_NOMEM,
                                    "store: the request does not decode, or memory is out");
        return;
    }
    for (size_t i = 0; i < ask->n_rows; i++)
        rows[i] = row_from_message(ask->rows[i]);
    s->node = node;
    s->msg = msg;
    s->op = (teffi_store_op){.kind = (teffi_store_kind)ask->kind,
                             .rows = rows,
                             .n_rows = ask->n_rows,
                             .to = {ask->to.data, ask->to.len},
                             .limit = ask->limit,
                             .arena = &msg->arena,
                             .done = respond_with_result_and_free};
    err = teffi_outsiders_check_store_op(node, msg->src, &s->op, text);
    if (err)
        respond_with_refusal_and_free(s, err, text);
    else
        submit_served_op(s);
}

void teffi_remote_store_set_handler(teffi_node *node, teffi_borrowers *borrowers)
{
    node->borrowers = borrowers;
    teffi_node_set_target(node, TEFFI_SLOT_STORE, serve_store_request);
}

/* ---- client ---- */

typedef struct remote_store {
    teffi_store store;
    teffi_node *node;
    teffi_seed *seed; /* has the rows */
} remote_store;

/* out: false if memory is exhausted. */
static bool copy_bytes(teff_arena *arena, const void *data, size_t len, teffi_bytes *to)
{
    *to = (teffi_bytes){teff_arena_copy(arena, data, len), len};
    return to->data != NULL;
}

/* Copies into *to one row of the response that op has received: the etag, the value unless op
 * writes, and for a scan also the table and the key. out: false if memory is exhausted. */
static bool copy_response_row(const teffi_store_op *op, const Teff__Cluster__StoreRow *from,
                              teffi_row *to)
{
    teffi_bytes table = {to->table, 0};
    teffi_row row = *to;
    row.etag = from->etag;
    if (op->kind == TEFFI_STORE_SCAN &&
        (!copy_bytes(op->arena, from->table, strlen(from->table), &table) ||
         !copy_bytes(op->arena, from->key.data, from->key.len, &row.key)))
        return false;
    row.table = table.data;
    if (!op_writes(op) && !copy_bytes(op->arena, from->value.data, from->value.len, &row.value))
        return false;
    *to = row;
    return true;
}

/* Copies the result from a response into op: for a scan, the rows that were found; for a read, the
 * etag and the value; for a write, the etags of its rows. After an error, op is unchanged: a scan
 * is copied to new rows, a read has a single row, and a write needs no memory.
 * errs: TEFF_E_MALFORMED, TEFF_E_NOMEM. */
static teff_err copy_response_to_op(teffi_store_op *op,
                                    const Teff__Cluster__StoreResponse *response)
{
    bool scans = op->kind == TEFFI_STORE_SCAN;
    size_t n = response->n_rows;
    teffi_row *rows = scans ? teff_arena_alloc(op->arena, (n + 1) * sizeof *rows) : op->rows;
    if (scans ? n > op->limit : n != op->n_rows)
        return TEFF_E_MALFORMED;
    for (size_t i = 0; i < n; i++)
        if (!rows || !copy_response_row(op, response->rows[i], &rows[i]))
            return TEFF_E_NOMEM;
    op->rows = rows;
    op->n_found = scans ? n : 0;
    return rows ? TEFF_OK : TEFF_E_NOMEM;
}

/* Fills in `ask`, the request for op. The request's tables, keys and values point into op.
 * out: ask->rows is NULL if memory is exhausted. */
static void fill_store_request(teff_ctx *ctx, const teffi_store_op *op,
                               Teff__Cluster__StoreAsk *ask)
{
    ask->kind = (uint32_t)op->kind;
    ask->rows = make_message_rows(&ctx->arena, op->rows, op->n_rows, true);
    ask->n_rows = op->n_rows;
    ask->to = (ProtobufCBinaryData){op->to.len, (uint8_t *)(uintptr_t)op->to.data};
    ask->limit = (uint32_t)op->limit;
}

/* out: the seed whose store the context's silo uses. */
static teffi_seed *get_seed(const teff_ctx *ctx)
{
    return teffi_container(ctx->node->store, remote_store, store)->seed;
}

/* out: ASK_TIMEOUT_MS, and more for writes of large rows. But an operation on the cluster's tables,
 * such as a heartbeat, gets two fifths of the lease if that is less, so that one lost response does
 * not cost the lease. */
static uint32_t get_op_timeout_ms(const teff_ctx *ctx, const teffi_store_op *op)
{
    size_t bytes = 0;
    uint32_t part_ms = ctx->home->lease.length_ms / 5 * 2;
    if (op->system && part_ms < ASK_TIMEOUT_MS)
        return part_ms;
    for (size_t i = 0; i < op->n_rows && op_writes(op); i++)
        bytes += op->rows[i].value.len;
    return ASK_TIMEOUT_MS + (uint32_t)(bytes / BYTES_PER_MS);
}

/* Sends the request for op to the seed once. If the seed could not be reached, starts to dial it
 * again: it may have been started again, with another id. */
static teff_err ask_seed_once(teff_ctx *ctx, const teffi_store_op *op,
                              const Teff__Cluster__StoreResponse **response)
{
    teffi_node_id seed = teffi_node_from_word(ctx->node->seed);
    Teff__Cluster__StoreAsk ask = TEFF__CLUSTER__STORE_ASK__INIT;
    ProtobufCMessage *body = NULL;
    fill_store_request(ctx, op, &ask);
    if (!ask.rows)
        return TEFF_E_NOMEM;
    teff_err err = teffi_ctx_run_rpc(ctx, seed, TEFFI_SLOT_STORE, METHOD_OPERATION, &ask.base,
                                     get_op_timeout_ms(ctx, op),
                                     &teff__cluster__store_response__descriptor, &body);
    *response = (const Teff__Cluster__StoreResponse *)body;
    if (err == TEFF_E_UNAVAILABLE || err == TEFF_E_UNREACHABLE)
        teffi_seed_dial_again(ctx->node, get_seed(ctx));
    return err;
}

/* May the membership table list this silo as a member? */
static bool may_be_member(const teffi_node *node)
{
    const teffi_membership *m = node->membership;
    return m->listed && !m->left;
}

/* Can a request that has failed with err be sent again with success? Yes in two cases:
 * - The seed has not adopted a view with this silo yet, and refuses the request: this silo has just
 *   joined, or the seed was just started again.
 * - The seed could not be reached, or is starting, but may return. In this case the request has not
 *   run, or is a read. */
static bool may_ask_again(const teff_ctx *ctx, const teffi_store_op *op, teff_err err)
{
    bool not_run = err == TEFF_E_UNAVAILABLE || (err == TEFF_E_UNREACHABLE && !op_writes(op));
    return (err == TEFF_E_REFUSED && may_be_member(ctx->node)) ||
           (not_run && teffi_seed_may_return(ctx->node, get_seed(ctx)));
}

/* As ask_seed_once(), but asks again until the time of one request has passed, if that may help. */
static teff_err ask_seed(teff_ctx *ctx, const teffi_store_op *op,
                         const Teff__Cluster__StoreResponse **response)
{
    uint64_t until_ns =
        teffi_now(ctx->node->platform) + get_op_timeout_ms(ctx, op) * UINT64_C(1000000);
    teff_err err = ask_seed_once(ctx, op, response);
    while (may_ask_again(ctx, op, err) && teffi_now(ctx->node->platform) < until_ns) {
        teffi_ctx_sleep(ctx, AGAIN_MS);
        err = ask_seed_once(ctx, op, response);
    }
    return err;
}

/* Sends a read to the seed once, and discards the row. A store runs a read after all earlier writes
 * of the same row, so once the read has run, none of these writes is queued any more. out: true:
 * the seed's store ran the read. false: the request failed, or the store's queue was full
 * (TEFF_E_OVERLOADED); in both cases an earlier write may still be queued. */
static bool try_read_on_seed(teff_ctx *ctx, const teffi_store_op *look)
{
    const Teff__Cluster__StoreResponse *response = NULL;
    teff_err err = ask_seed_once(ctx, look, &response);
    return err == TEFF_OK && response->err != TEFF_E_OVERLOADED;
}

/* Waits until op, a write that got no response, can no longer run. For this, sends a read of op's
 * first row again and again, until the seed's store has run one such read, or ASK_TIMEOUT_MS have
 * passed. The write cannot run after that read: a store runs a read after the earlier writes of the
 * same row; and if the seed was started again meanwhile, the write fails, see
 * add_own_fence_check(). If the write arrives later, on a connection that a newer one has replaced,
 * the seed drops it. Does not wait if the first row has `any`: op writes or removes only a
 * heartbeat, and the silo of that heartbeat soon writes it again. */
static void await_write_end(teff_ctx *ctx, const teffi_store_op *op)
{
    uint64_t until_ns = teffi_now(ctx->node->platform) + ASK_TIMEOUT_MS * 1000000ull;
    teffi_row row = {.table = op->rows[0].table, .key = op->rows[0].key};
    const teffi_store_op look = {
        .kind = TEFFI_STORE_READ, .rows = &row, .n_rows = 1, .system = op->system};
    if (op->rows[0].any)
        return;
    while (!try_read_on_seed(ctx, &look) && teffi_now(ctx->node->platform) < until_ns)
        teffi_ctx_sleep(ctx, AGAIN_MS);
}

/* Runs as the task of op: asks the seed to run op, and completes op with the result. If the request
 * fails and op is a write that may have run, calls await_write_end() before it completes op. */
static void ask_seed_task(teff_ctx *ctx, void *arg)
{
    teffi_store_op *op = arg;
    const Teff__Cluster__StoreResponse *response = NULL;
    teff_err err = ask_seed(ctx, op, &response);
    if (err == TEFF_E_TOO_LARGE) {
        op->err = err;
        snprintf(op->text, sizeof op->text, "rows of over %d bytes, to the seed's store",
                 TEFFI_FRAME_ROW_MAX);
    } else if (err) {
        /* TEFF_E_NOMEM: the seed may have run the write, and had no memory for the response */
        bool unknown = teff_call_may_have_run(err) || err == TEFF_E_NOMEM;
        op->err = unknown && op_writes(op) ? TEFF_E_UNKNOWN : TEFF_E_IO;
        snprintf(op->text, sizeof op->text, "the seed's store: %s", teff_error(ctx));
        if (op->err == TEFF_E_UNKNOWN)
            await_write_end(ctx, op);
    } else {
        op->err = (teff_err)response->err;
        snprintf(op->text, sizeof op->text, "%s", response->text);
        if (!op->err)
            op->err = copy_response_to_op(op, response);
        if (op->err && !response->err && op_writes(op))
            op->err = TEFF_E_UNKNOWN; /* the write has run; the new etags are unknown */
    }
    op->done(op);
}

static void submit_op_to_seed(teffi_store *store, teffi_store_op *op)
{
    teffi_node *node = teffi_container(store, remote_store, store)->node;
    teff_err err =
        teffi_task_start(&node->home, ask_seed_task, op, "ask the seed's store", op->system);
    if (!err)
        return;
    op->err = err;
    snprintf(op->text, sizeof op->text, "out of memory");
    op->done(op);
}

/* Does nothing: each operation is a task of the node, and tasks end before the store closes. */
static void close_remote_store(teffi_store *store)
{
    (void)store;
}

static void free_remote_store(teffi_store *store)
{
    free(teffi_container(store, remote_store, store));
}

teffi_store *teffi_remote_store_new(teffi_node *node, teffi_seed *seed)
{
    static const teffi_store_ops ops = {submit_op_to_seed, close_remote_store, free_remote_store};
    remote_store *remote = calloc(1, sizeof *remote);
    if (!remote)
        return NULL;
    remote->store.ops = &ops;
    remote->node = node;
    remote->seed = seed;
    return &remote->store;
}
