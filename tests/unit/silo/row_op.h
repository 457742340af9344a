/* row_op.h - one operation on the row "k" of the table "words", as a thread of the program runs it.
 * Way:     test_remote_store, test_seed -> [row_op] -> a silo's store */
#pragma once

#include <stdatomic.h>
#include "node/ask.h"

typedef struct row_op {
    teff_ctx *ctx; /* the thread's */
    teffi_row row;
    teffi_store_op op;
    _Atomic bool done;
} row_op;

static inline row_op row_op_new(teff_ctx *ctx, teffi_store_kind kind)
{
    return (row_op){.ctx = ctx,
                    .row = {.table = "words", .key = {"k", 1}, .value = {"v", 1}},
                    .op = {.kind = kind}};
}

/* row_op_run - run it, and wait for it. in: arg, a row_op. For pthread_create. */
static inline void *row_op_run(void *arg)
{
    row_op *o = arg;
    o->op.rows = &o->row;
    o->op.n_rows = 1;
    o->op.arena = &o->ctx->arena;
    (void)!teffi_ctx_run_store_op(o->ctx, &o->op);
    o->done = true;
    return NULL;
}
