/* load.c - loads the reminders of this silo's partitions: scans their rows.
 * Way:     schedule (a partition is WANTED) -> [load] -> store -> schedule
 * Threads: a task; at most one of a silo. */
#include "reminder/schedule.h"

#include <stdio.h>
#include "cluster/membership.h"
#include "node/ask.h"

/* PAGE_ROWS rows of the largest size fit into one frame of a remote store. */
enum { PAGE_ROWS = 256 };

typedef struct load {
    teffi_reminders *all;
    uint8_t set[TEFFI_PARTITION_SET_BYTES];
    uint8_t from[TEFFI_REMINDER_KEY_MAX]; /* where the next page begins */
    size_t from_len;
    unsigned damaged;
} load;

/* out: the first partition of the set from `partition` on; TEFFI_PARTITIONS: none. */
static unsigned find_partition(const load *l, unsigned partition)
{
    while (partition < TEFFI_PARTITIONS && !teffi_set_has_partition(l->set, partition))
        partition++;
    return partition;
}

/* Notes one row of a page. A row that is damaged, or not ours, stays as it is. errs:
 * TEFF_E_NOMEM. */
static teff_err note_found_row(teff_ctx *ctx, load *l, const teffi_row *row)
{
    teffi_reminder_key key;
    teffi_reminder_value value;
    const char *type;
    bool valid = teffi_reminder_parse_key(ctx->node->cluster, row->key, &key) && row->etag;
    teff_err err =
        valid ? teffi_reminder_unpack(row->value, &ctx->arena, &value, &type) : TEFF_E_MALFORMED;
    if (err == TEFF_E_NOMEM)
        return teff_fail(ctx, err, "out of memory for a row");
    if (err)
        l->damaged++;
    else if (teffi_set_has_partition(l->set, key.partition))
        (void)teffi_reminders_note(l->all, row->key, key.partition, type, row->etag, &value);
    return TEFF_OK;
}

/* Sets where the next page begins: after the last row of this page or, if that row's partition is
 * not in the set, at the next partition that is. out: false: that was the last page. */
static bool find_next_page(const teff_ctx *ctx, load *l, const teffi_store_op *op)
{
    if (op->n_found < op->limit)
        return false;
    teffi_bytes last = op->rows[op->n_found - 1].key;
    unsigned partition = ((const uint8_t *)last.data)[strlen(ctx->node->cluster) + 1];
    if (teffi_set_has_partition(l->set, partition)) {
        l->from_len = teffi_reminder_make_key_after(last, l->from);
        return true;
    }
    partition = find_partition(l, partition + 1);
    l->from_len = teffi_reminder_make_partition_key(ctx->node->cluster, partition, l->from);
    return partition < TEFFI_PARTITIONS;
}

/* Reads one page. out: *more: there are more. */
static teff_err load_page(teff_ctx *ctx, load *l, bool *more)
{
    uint8_t to[TEFFI_REMINDER_KEY_MAX];
    size_t to_len = teffi_reminder_make_partition_key(ctx->node->cluster, TEFFI_PARTITIONS, to);
    teffi_row row = {.table = TEFFI_TABLE_REMINDER, .key = {l->from, l->from_len}};
    teffi_store_op op = {.kind = TEFFI_STORE_SCAN,
                         .rows = &row,
                         .n_rows = 1,
                         .to = {to, to_len},
                         .limit = PAGE_ROWS,
                         .arena = &ctx->arena};
    teff_err err = teffi_ctx_run_store_op(ctx, &op);
    for (size_t i = 0; !err && i < op.n_found; i++)
        err = note_found_row(ctx, l, &op.rows[i]);
    *more = !err && find_next_page(ctx, l, &op);
    return err;
}

/* out: *loaded: the partitions of the set that are below this have been read to their ends. */
static teff_err load_set(teff_ctx *ctx, load *l, unsigned *loaded)
{
    bool more = true;
    teff_err err = TEFF_OK;
    *loaded = find_partition(l, 0);
    l->from_len = teffi_reminder_make_partition_key(ctx->node->cluster, *loaded, l->from);
    while (!err && more && !teffi_reminders_is_closed(l->all)) {
        teff_mark here = teff_ctx_mark(ctx);
        err = load_page(ctx, l, &more);
        teff_ctx_rewind(ctx, here);
        if (!err)
            *loaded = more ? l->from[strlen(ctx->node->cluster) + 1] : TEFFI_PARTITIONS;
    }
    return err;
}

static void log_load_problem(load *l, const char *what)
{
    teffi_exec *exec = l->all->grains->node->home.exec;
    char more[48];
    if (teffi_warn_claim_line_or_skip(exec, &l->all->damaged, more))
        teffi_logf(&exec->platform->log, TEFF_LOG_WARN, "reminders: %s%s", what, more);
}

void teffi_reminders_load(teff_ctx *ctx, void *arg)
{
    load l = {.all = arg};
    char what[TEFF_TEXT_MAX];
    unsigned loaded;
    bool ok = true;
    while (ok && teffi_reminders_begin_load(l.all, l.set)) {
        l.damaged = 0;
        teff_err err = load_set(ctx, &l, &loaded);
        if (err)
            snprintf(what, sizeof what, "they are loaded again after a pause: %s", teff_error(ctx));
        else
            snprintf(what, sizeof what, "%u rows are damaged, and left as they are", l.damaged);
        if (err || l.damaged)
            log_load_problem(&l, what);
        ok = teffi_reminders_end_load(l.all, loaded);
    }
}
