/* join.c - writes the rows of a joining or leaving silo. */
#include "cluster/join.h"

#include <string.h>

enum { BURY_MAX = 200 }; /* stale rows declared dead by one join, within the store's batch */

static size_t change_rows_to_join(teff_ctx *ctx, const teffi_rows *rows, teffi_member_row *changed,
                                  const void *arg)
{
    teffi_node *node = ctx->node;
    teffi_membership *m = node->membership;
    (void)arg;
    const teffi_member_row *before = teffi_rows_find_silo(rows, node->id.silo);
    uint64_t wall_ns = node->platform->wall_ns(node->platform->arg);
    size_t n = 0;
    bool refused = teffi_identity_check_row(ctx, before) != TEFF_OK;
    m->listed = !refused; /* the table may list it from the first write on */
    if (refused)
        return TEFFI_CHANGE_REFUSED;
    memset(&changed[n], 0, sizeof changed[n]);
    changed[n].member.node = node->id;
    changed[n].member.status = TEFFI_ACTIVE;
    memcpy(changed[n].member.address, node->address, sizeof node->address);
    changed[n].member.types = m->types;
    changed[n].member.n_types = m->n_types;
    changed[n].etag = before ? before->etag : 0;
    changed[n].damaged = before && before->damaged;
    changed[n].alive_ms = wall_ns / 1000000u; /* without it this silo would look dead */
    n++;
    for (size_t i = 0; i < rows->n; i++) {
        bool own = before && before == &rows->rows[i];
        if (n == BURY_MAX || own || !teffi_identity_is_stale(ctx, &rows->rows[i]))
            continue;
        changed[n] = rows->rows[i];
        changed[n++].dead = true;
    }
    return n + teffi_rows_forget_oldest(rows, node->id.silo, changed + n);
}

teff_err teffi_membership_join(teff_ctx *ctx)
{
    teffi_node *node = ctx->node;
    teffi_membership *m = node->membership;
    teff_err err = teffi_membership_change(ctx, change_rows_to_join, NULL);
    if (err)
        return err;
    m->joined = true;
    teffi_membership_push_view(ctx, false);
    teffi_heartbeat_start(m);
    return TEFF_OK;
}

/* Changes the status in this silo's row; writes nothing if the table no longer lists it. */
static size_t change_own_row(teff_ctx *ctx, const teffi_rows *rows, teffi_member_row *changed,
                             const void *arg)
{
    const teffi_member_row *mine = teffi_rows_find_silo(rows, ctx->node->id.silo);
    if (!mine || mine->dead || !teffi_node_is(mine->member.node, ctx->node->id))
        return 0;
    changed[0] = *mine;
    changed[0].member.status = TEFFI_LEAVING;
    changed[0].dead = arg != NULL;
    return 1 + (arg ? teffi_rows_forget_oldest(rows, 0, changed + 1) : 0);
}

teff_err teffi_membership_leaving(teff_ctx *ctx)
{
    teff_err err = teffi_membership_change(ctx, change_own_row, NULL);
    if (!err)
        teffi_membership_push_view(ctx, false);
    return err;
}

teff_err teffi_membership_left(teff_ctx *ctx)
{
    teffi_membership *m = ctx->node->membership;
    m->left = true;
    teff_err err = teffi_membership_change(ctx, change_own_row, m);
    if (!err) {
        (void)!teffi_alive_forget(ctx, ctx->node->id);
        teffi_membership_push_view(
            ctx, true); /* silos that left just before may forward requests to us */
    }
    return err;
}
