/* join.c - a silo's id, and the rows of a joining or leaving silo. An id is 31 bits of a hash of
 * the address, so two addresses may collide. */
#include "cluster/join.h"

#include <stdio.h>
#include <string.h>
#include "base/hash.h"

enum { BURY_MAX = 200 };   /* stale rows declared dead by one join, within the store's batch */
enum { STALE_MS = 60000 }; /* wall clock; older rows are of a cluster that was killed long ago */

static const uint64_t second_2022 = 1640995200u;

static void format_collision(char *text, const char *one, const char *other, uint32_t silo)
{
    snprintf(text, TEFF_TEXT_MAX,
             "the addresses %.200s and %.200s have the same silo id %08x; another port or address "
             "must be advertised",
             one, other, silo);
}

teff_err teffi_identity_check_peer(teffi_node *node, const teffi_hello *peer, char *text)
{
    const teffi_view *view = teffi_view_get(node);
    teff_err err = TEFF_OK;
    for (size_t i = 0; view && i < view->n_members && !err; i++) {
        const teffi_member *m = &view->members[i];
        if (m->node.silo != peer->node.silo || strcmp(m->address, peer->address) == 0)
            continue;
        format_collision(text, peer->address, m->address, m->node.silo);
        err = TEFF_E_REFUSED;
    }
    teffi_view_unref(view);
    return err;
}

/* May this silo replace the row with its id? A dead silo's row: always. */
static teff_err check_own_row(teff_ctx *ctx, const teffi_member_row *before)
{
    char text[TEFF_TEXT_MAX];
    const char *address = ctx->node->address;
    if (!before || before->dead || strcmp(before->member.address, address) == 0 ||
        teffi_node_is(before->member.node, ctx->node->membership->stale))
        return TEFF_OK;
    format_collision(text, address, before->member.address, before->member.node.silo);
    return teffi_ctx_fail(ctx, TEFF_E_REFUSED, "%s", text);
}

/* The incarnation is derived from the clock; the table may raise it. */
static void set_first_id(teff_ctx *ctx, const char *address)
{
    teffi_node *node = ctx->node;
    uint64_t now_s = node->platform->wall_ns(node->platform->arg) / 1000000000u;
    node->id.silo = (uint32_t)teffi_hash64(address, strlen(address), 0) & ~TEFFI_CLIENT_BIT;
    node->id.silo += node->id.silo == 0;
    if (now_s > second_2022)
        node->id.incarnation = (uint32_t)(now_s - second_2022);
    memcpy(node->address, address, strlen(address) + 1);
}

/* Is the last heartbeat of the row's silo long ago? */
static bool row_is_stale(teff_ctx *ctx, const teffi_member_row *row)
{
    uint64_t figure = 0;
    uint64_t now_ms = ctx->node->platform->wall_ns(ctx->node->platform->arg) / 1000000u;
    if (row->dead || teffi_alive_read(ctx, row->member.node, &figure))
        return false;
    return now_ms > figure + STALE_MS;
}

teff_err teffi_membership_identify(teff_ctx *ctx, const char *address)
{
    teffi_node *node = ctx->node;
    teffi_rows rows;
    teff_err err = teffi_membership_read(ctx, &rows);
    if (err)
        return err;
    set_first_id(ctx, address);
    const teffi_member_row *before = teffi_rows_find_silo(&rows, node->id.silo);
    if (before && row_is_stale(ctx, before)) /* joining overwrites its heartbeat */
        node->membership->stale = before->member.node;
    err = check_own_row(ctx, before);
    if (err)
        return err;
    uint32_t last = before ? before->member.node.incarnation : 0;
    last = last < rows.forgotten ? rows.forgotten : last;
    if (last >= node->id.incarnation)
        node->id.incarnation = last + 1;
    return TEFF_OK;
}

/* ---- rows ---- */

static size_t change_rows_to_join(teff_ctx *ctx, const teffi_rows *rows, teffi_member_row *changed,
                                  const void *arg)
{
    teffi_node *node = ctx->node;
    teffi_membership *m = node->membership;
    (void)arg;
    const teffi_member_row *before = teffi_rows_find_silo(rows, node->id.silo);
    uint64_t wall_ns = node->platform->wall_ns(node->platform->arg);
    size_t n = 0;
    bool refused = check_own_row(ctx, before) != TEFF_OK;
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
        if (n == BURY_MAX || own || !row_is_stale(ctx, &rows->rows[i]))
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
