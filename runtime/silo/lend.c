/* lend.c - the store contract as requests: served here, or asked of a seed.
 * Way:     store contract -> [lend] -> seed's target -> its store
 * Outcomes: a request that may have run but was not answered is UNKNOWN, as the contract has it. */
#include "silo/lend.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "base/bug.h"
#include "cluster.pb-c.h"
#include "node/task.h"

/* A lost answer must not keep a silo from saying that it lives until it counts as silent (15 s). */
enum { METHOD_OPERATION = 1, ASK_TIMEOUT_MS = 4000 };

/* ---- lending ---- */

typedef struct lent {
    teffi_store_op op;
    teffi_node *node;
    teffi_msg *msg;
} lent;

static Teff__Cluster__StoreRow *pack_row(teff_arena *arena, const teffi_row *row)
{
    Teff__Cluster__StoreRow *out = teff_arena_alloc(arena, sizeof *out);
    if (!out)
        return NULL;
    teff__cluster__store_row__init(out);
    out->table = (char *)(uintptr_t)row->table;
    out->key = (ProtobufCBinaryData){row->key.len, (uint8_t *)(uintptr_t)row->key.data};
    out->value = (ProtobufCBinaryData){row->value.len, (uint8_t *)(uintptr_t)row->value.data};
    out->etag = row->etag;
    out->remove = row->remove;
    out->any = row->any;
    return out;
}

static Teff__Cluster__StoreRow **pack_rows(teff_arena *arena, const teffi_row *rows, size_t n)
{
    Teff__Cluster__StoreRow **out = teff_arena_alloc(arena, (n + 1) * sizeof *out);
    for (size_t i = 0; out && i < n; i++)
        if (!(out[i] = pack_row(arena, &rows[i])))
            return NULL;
    return out;
}

static teffi_row unpack_row(const Teff__Cluster__StoreRow *row)
{
    return (teffi_row){.table = row->table,
                       .key = {row->key.data, row->key.len},
                       .value = {row->value.data, row->value.len},
                       .etag = row->etag,
                       .remove = row->remove,
                       .any = row->any};
}

static void operated(teffi_store_op *op)
{
    lent *l = teffi_container(op, lent, op);
    Teff__Cluster__StoreAnswer answer = TEFF__CLUSTER__STORE_ANSWER__INIT;
    size_t n = op->kind == TEFFI_STORE_SCAN ? op->n_found : op->n_rows;
    answer.err = (uint32_t)op->err;
    answer.text = op->text;
    if (!op->err) {
        answer.rows = pack_rows(&l->msg->arena, op->rows, n);
        answer.n_rows = answer.rows ? n : 0;
        answer.err = answer.rows ? TEFF_OK : TEFF_E_NOMEM;
        /* The asker has what it wrote. */
        for (size_t i = 0;
             op->kind != TEFFI_STORE_READ && op->kind != TEFFI_STORE_SCAN && i < answer.n_rows; i++)
            answer.rows[i]->value.len = 0;
    }
    teffi_node_answer_with(l->node, l->msg, &answer.base);
    free(l);
}

static void serve(teffi_node *node, teffi_msg *msg)
{
    teff_err err = teffi_msg_unpack(msg, &teff__cluster__store_ask__descriptor);
    const Teff__Cluster__StoreAsk *ask = (const Teff__Cluster__StoreAsk *)msg->body;
    lent *l = err ? NULL : calloc(1, sizeof *l);
    teffi_row *rows = l ? teff_arena_alloc(&msg->arena, (ask->n_rows + 1) * sizeof *rows) : NULL;
    if (!rows) {
        free(l);
        teffi_node_answer(node, msg, err ? err : TEFF_E_NOMEM, "store: the request was not taken");
        return;
    }
    for (size_t i = 0; i < ask->n_rows; i++)
        rows[i] = unpack_row(ask->rows[i]);
    l->node = node;
    l->msg = msg;
    l->op = (teffi_store_op){.kind = (teffi_store_kind)ask->kind,
                             .rows = rows,
                             .n_rows = ask->n_rows,
                             .to = {ask->to.data, ask->to.len},
                             .limit = ask->limit,
                             .arena = &msg->arena,
                             .done = operated};
    teffi_store_submit(node->store, &l->op);
}

void teffi_lend(teffi_node *node)
{
    teffi_node_target(node, TEFFI_SLOT_STORE, serve);
}

/* ---- borrowing ---- */

typedef struct borrowed {
    teffi_store store;
    teffi_node *node;
    teffi_node_id seed;
} borrowed;

typedef struct asking {
    borrowed *b;
    teffi_store_op *op;
} asking;

static teffi_bytes keep(teff_arena *arena, ProtobufCBinaryData from)
{
    return (teffi_bytes){teff_arena_copy(arena, from.data, from.len), from.len};
}

static teff_err take_rows(teffi_store_op *op, const Teff__Cluster__StoreAnswer *answer)
{
    if (op->kind == TEFFI_STORE_SCAN) {
        op->rows = teff_arena_alloc(op->arena, (answer->n_rows + 1) * sizeof *op->rows);
        op->n_found = op->rows ? answer->n_rows : 0;
    } else if (answer->n_rows != op->n_rows) {
        return TEFF_E_MALFORMED;
    }
    for (size_t i = 0; i < answer->n_rows; i++) {
        const Teff__Cluster__StoreRow *from = answer->rows[i];
        if (!op->rows)
            return TEFF_E_NOMEM;
        op->rows[i].etag = from->etag;
        if (op->kind == TEFFI_STORE_SCAN) {
            op->rows[i].table = teff_arena_copy(op->arena, from->table, strlen(from->table));
            op->rows[i].key = keep(op->arena, from->key);
        }
        if (op->kind == TEFFI_STORE_SCAN || op->kind == TEFFI_STORE_READ)
            op->rows[i].value = keep(op->arena, from->value);
    }
    return TEFF_OK;
}

static void fill_ask(teff_ctx *ctx, const teffi_store_op *op, Teff__Cluster__StoreAsk *ask)
{
    ask->kind = (uint32_t)op->kind;
    ask->rows = pack_rows(&ctx->arena, op->rows, op->n_rows);
    ask->n_rows = op->n_rows;
    ask->to = (ProtobufCBinaryData){op->to.len, (uint8_t *)(uintptr_t)op->to.data};
    ask->limit = (uint32_t)op->limit;
}

static bool writes(const teffi_store_op *op)
{
    return op->kind == TEFFI_STORE_WRITE || op->kind == TEFFI_STORE_BATCH;
}

static void ask_seed(teff_ctx *ctx, void *arg)
{
    asking a = *(asking *)arg;
    Teff__Cluster__StoreAsk ask = TEFF__CLUSTER__STORE_ASK__INIT;
    ProtobufCMessage *reply = NULL;
    free(arg);
    fill_ask(ctx, a.op, &ask);
    teff_err err =
        ask.rows ? teffi_ctx_rpc(ctx, a.b->seed, TEFFI_SLOT_STORE, METHOD_OPERATION, &ask.base,
                                 ASK_TIMEOUT_MS, &teff__cluster__store_answer__descriptor, &reply)
                 : TEFF_E_NOMEM;
    const Teff__Cluster__StoreAnswer *answer = (const Teff__Cluster__StoreAnswer *)reply;
    if (err) {
        a.op->err = teff_err_unknown(err) && writes(a.op) ? TEFF_E_UNKNOWN : TEFF_E_IO;
        snprintf(a.op->text, sizeof a.op->text, "the seed's store: %s", teff_error(ctx));
    } else {
        a.op->err = (teff_err)answer->err;
        snprintf(a.op->text, sizeof a.op->text, "%s", answer->text);
        if (!a.op->err)
            a.op->err = take_rows(a.op, answer);
    }
    a.op->done(a.op);
}

static void submit(teffi_store *store, teffi_store_op *op)
{
    borrowed *b = teffi_container(store, borrowed, store);
    asking *a = malloc(sizeof *a);
    teff_err err = TEFF_E_NOMEM;
    if (a) {
        *a = (asking){b, op};
        err = teffi_task_start(b->node, ask_seed, a, "ask the seed's store");
    }
    if (!err)
        return;
    free(a);
    op->err = err;
    snprintf(op->text, sizeof op->text, "out of memory");
    op->done(op);
}

static teff_err watch(teffi_store *store, const char *table, teffi_store_hint *hint, void *arg)
{
    (void)store;
    (void)table;
    (void)hint;
    (void)arg;
    return TEFF_OK; /* hints are best effort: here there are none */
}

/* Each operation is a task of the node, and those are waited for before the store is closed. */
static void close_borrowed(teffi_store *store)
{
    (void)store;
}

static void free_borrowed(teffi_store *store)
{
    free(teffi_container(store, borrowed, store));
}

teffi_store *teffi_borrow_new(teffi_node *node, teffi_node_id seed)
{
    static const teffi_store_ops ops = {"seed", submit, watch, close_borrowed, free_borrowed};
    borrowed *b = calloc(1, sizeof *b);
    if (!b)
        return NULL;
    b->store.ops = &ops;
    b->node = node;
    b->seed = seed;
    return &b->store;
}
