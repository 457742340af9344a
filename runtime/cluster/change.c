/* change.c - changes the membership table: reads, changes, writes, and repeats after a conflict. */
#include "cluster/rows.h"

#include <stdlib.h>
#include "cluster/membership.h"

/* Pauses after conflicts double, so that hundreds of silos that start at once get through: a pause
 * must be about as long as the changes of all the others take. */
enum {
    CONFLICTS_MAX = 60,
    PAUSE_FIRST_MS = 16,
    PAUSE_MAX_MS = 4096,
    FORGET_MAX = 20 /* tombstones removed by one change */
};

teff_err teffi_membership_change(teff_ctx *ctx, teffi_change_fn *change, const void *arg)
{
    const teffi_platform *platform = ctx->node->platform;
    teffi_rows rows;
    uint32_t pause_ms = PAUSE_FIRST_MS;
    for (int i = 0; i < CONFLICTS_MAX; i++) {
        teff_err err = teffi_membership_read_table(ctx, &rows);
        if (err)
            return err;
        teffi_member_row *changed = teff_alloc(ctx, (rows.n + 1) * sizeof *changed);
        size_t n = change(ctx, &rows, changed, arg);
        if (n == TEFFI_CHANGE_REFUSED)
            return TEFF_E_REFUSED;
        if (n == 0)
            return teffi_membership_adopt_rows(ctx, &rows);
        err = teffi_rows_write(ctx, &rows, changed, n);
        if (!err)
            return teffi_membership_refresh(ctx, rows.version + 1);
        if (err != TEFF_E_CONFLICT && err != TEFF_E_UNKNOWN)
            return err;
        teffi_ctx_sleep(ctx, 1 + (uint32_t)(platform->random(platform->arg) % pause_ms));
        pause_ms = pause_ms < PAUSE_MAX_MS ? 2 * pause_ms : PAUSE_MAX_MS;
    }
    return teff_fail(ctx, TEFF_E_TIMEOUT, "membership: %d conflicts in a row", CONFLICTS_MAX);
}

const teffi_member_row *teffi_rows_find_silo(const teffi_rows *rows, uint32_t silo)
{
    for (size_t i = 0; i < rows->n; i++)
        if (rows->rows[i].member.node.silo == silo)
            return &rows->rows[i];
    return NULL;
}

/* For qsort: the silos that ended first come first. */
static int compare_by_end(const void *a, const void *b)
{
    const teffi_member_row *x = a, *y = b;
    uint32_t i = x->member.node.incarnation, j = y->member.node.incarnation;
    if (x->ended != y->ended)
        return x->ended < y->ended ? -1 : 1;
    return (i > j) - (i < j);
}

/* Copies all tombstones to `changed`, but skips that of silo `skipped_silo`. If there are more than
 * TEFFI_TOMBSTONES_MAX, sorts the copies by age, and marks the oldest ones to be removed: those in
 * excess of that number, but at most FORGET_MAX of them. out: the number of marked rows, which are
 * the first ones in `changed`. The caller writes only these, and ignores the other copies. */
size_t teffi_rows_mark_old_tombstones(const teffi_rows *rows, uint32_t skipped_silo,
                                      teffi_member_row *changed)
{
    size_t n = 0;
    for (size_t i = 0; i < rows->n; i++)
        if (rows->rows[i].dead && rows->rows[i].member.node.silo != skipped_silo)
            changed[n++] = rows->rows[i];
    if (n <= TEFFI_TOMBSTONES_MAX)
        return 0;
    qsort(changed, n, sizeof *changed, compare_by_end);
    n -= TEFFI_TOMBSTONES_MAX;
    n = n < FORGET_MAX ? n : FORGET_MAX;
    for (size_t i = 0; i < n; i++)
        changed[i].forget = true;
    return n;
}
