/* join.c - a silo's id, and the rows of a joining or leaving silo. An id is 31 bits of a hash of
 * the address, so two addresses may collide. */
#include "cluster/join.h"

#include <stdio.h>
#include <string.h>
#include "base/error.h"
#include "base/hash.h"
#include "cluster/reach.h"

static const uint64_t second_2022 = 1640995200u;

static void format_collision(char *text, const char *one, const char *other, uint32_t silo)
{
    snprintf(text, TEFF_TEXT_MAX,
             "the addresses %.200s and %.200s have the same silo id %08x; another port or address "
             "must be advertised",
             one, other, silo);
}

teff_err teffi_membership_check_key(teffi_node *node, const teffi_hello *peer, char *text)
{
    const teffi_view *view = teffi_view_ref_current(node);
    teff_err err = TEFF_OK;
    for (size_t i = 0; view && i < view->n_members && !err; i++)
        if (view->members[i].node.silo == peer->node.silo &&
            !teffi_key_fits(view->members[i].key, peer->key))
            err = teffi_fail(text, TEFF_E_REFUSED,
                             "%.200s has not shown the certificate with which the silo %08x has "
                             "joined the cluster",
                             peer->address, peer->node.silo);
    teffi_view_unref(view);
    if (err)
        teffi_membership_refresh_soon(node->membership);
    return err;
}

teff_err teffi_membership_check_peer(teffi_node *node, const teffi_hello *peer, char *text)
{
    const teffi_view *view = teffi_view_ref_current(node);
    teff_err err = TEFF_OK;
    for (size_t i = 0; view && i < view->n_members && !err; i++) {
        const teffi_member *m = &view->members[i];
        if (m->node.silo != peer->node.silo || strcmp(m->address, peer->address) == 0)
            continue;
        format_collision(text, peer->address, m->address, m->node.silo);
        err = TEFF_E_REFUSED;
    }
    teffi_view_unref(view);
    if (!err)
        err = teffi_membership_check_key(node, peer, text);
    const char *why = err ? NULL : teffi_outsiders_check_may_connect(node->membership, peer->node);
    return why ? teffi_fail(text, TEFF_E_REFUSED, "%s", why) : err;
}

/* May this silo replace `before`, the row with its silo id? Yes if there is no such row (NULL), if
 * the row is that of a dead silo, or if it has this silo's address.
 * errs: TEFF_E_REFUSED, with text. */
static teff_err check_may_replace_row(teff_ctx *ctx, const teffi_member_row *before)
{
    char text[TEFF_TEXT_MAX];
    const char *address = ctx->node->address;
    if (!before || before->dead || strcmp(before->member.address, address) == 0)
        return TEFF_OK;
    format_collision(text, address, before->member.address, before->member.node.silo);
    return teff_fail(ctx, TEFF_E_REFUSED, "%s", text);
}

/* Sets the node's address, its silo id (a hash of the address) and its incarnation (the seconds
 * since 2022). If the clock shows a time before 2022, the incarnation stays unchanged. Afterwards
 * the caller raises the incarnation, if needed, above those that the table has recorded.
 * in: address, of at most TEFFI_ADDRESS_MAX bytes. */
static void set_address_and_id(teff_ctx *ctx, const char *address)
{
    teffi_node *node = ctx->node;
    uint64_t now_s = node->platform->wall_ns(node->platform->arg) / 1000000000u;
    node->id.silo = (uint32_t)teffi_hash64(address, strlen(address), 0) & ~TEFFI_CLIENT_BIT;
    node->id.silo += node->id.silo == 0;
    if (now_s > second_2022)
        node->id.incarnation = (uint32_t)(now_s - second_2022);
    memcpy(node->address, address, strlen(address) + 1);
}

teff_err teffi_membership_choose_silo_id(teff_ctx *ctx, const char *address)
{
    teffi_node *node = ctx->node;
    teffi_rows rows;
    teff_err err = teffi_membership_read_table(ctx, &rows);
    if (err)
        return err;
    set_address_and_id(ctx, address);
    const teffi_member_row *before = teffi_rows_find_silo(&rows, node->id.silo);
    err = check_may_replace_row(ctx, before);
    if (err)
        return err;
    uint32_t last = before ? before->member.node.incarnation : 0;
    last = last < rows.forgotten ? rows.forgotten : last;
    if (last >= node->id.incarnation)
        node->id.incarnation = last + 1;
    return TEFF_OK;
}

/* ---- rows ---- */

/* A teffi_change_fn: makes this silo's row, with status ACTIVE, and marks the oldest tombstones to
 * be removed. Refuses if the row of another silo must not be replaced. Sets membership->listed.
 * in: arg, not used. */
static size_t change_rows_to_join(teff_ctx *ctx, const teffi_rows *rows, teffi_member_row *changed,
                                  const void *arg)
{
    teffi_node *node = ctx->node;
    teffi_membership *m = node->membership;
    (void)arg;
    const teffi_member_row *before = teffi_rows_find_silo(rows, node->id.silo);
    bool refused = check_may_replace_row(ctx, before) != TEFF_OK;
    m->listed = !refused; /* the table may list this silo from the first write on */
    if (refused)
        return TEFFI_CHANGE_REFUSED;
    memset(changed, 0, sizeof *changed);
    changed->member.node = node->id;
    changed->member.status = TEFFI_ACTIVE;
    changed->member.lease_ms = node->home.lease.length_ms;
    changed->member.outage_ms = node->home.lease.outage_ms;
    memcpy(changed->member.address, node->address, sizeof node->address);
    const teffi_net_ops *net = node->home.net ? node->home.net->ops : NULL;
    const uint8_t *key = net && net->key ? net->key(node->home.net) : NULL;
    if (key)
        memcpy(changed->member.key, key, sizeof changed->member.key);
    changed->member.types = m->types;
    changed->member.n_types = m->n_types;
    changed->member.versions = m->types + m->n_types;
    changed->member.n_versions = m->n_versions;
    changed->etag = before ? before->etag : 0;
    changed->damaged = before && before->damaged;
    changed->joins = true;
    return 1 + teffi_rows_mark_old_tombstones(rows, node->id.silo, changed + 1);
}

teff_err teffi_membership_join(teff_ctx *ctx)
{
    teffi_node *node = ctx->node;
    teffi_membership *m = node->membership;
    teff_err err = teffi_reach_check_before_join(ctx);
    if (!err)
        err = teffi_membership_change(ctx, change_rows_to_join, NULL);
    if (err)
        return err;
    m->joined = true;
    teffi_membership_start_timers(m); /* first: the push may take longer than a short lease */
    teffi_membership_push_view(ctx, false);
    return TEFF_OK;
}

/* A teffi_change_fn: changes this silo's row, unless the table no longer lists the silo as alive.
 * in: arg: NULL: the silo begins to leave, and its status becomes LEAVING; not NULL: the silo has
 * left, and its row becomes that of a dead silo. */
static size_t change_rows_to_leave(teff_ctx *ctx, const teffi_rows *rows, teffi_member_row *changed,
                                   const void *arg)
{
    const teffi_member_row *mine = teffi_rows_find_silo(rows, ctx->node->id.silo);
    if (!mine || mine->dead || !teffi_node_equals(mine->member.node, ctx->node->id))
        return 0;
    changed[0] = *mine;
    changed[0].member.status = TEFFI_LEAVING;
    changed[0].dead = changed[0].leaves = arg != NULL;
    return 1 + (arg ? teffi_rows_mark_old_tombstones(rows, 0, changed + 1) : 0);
}

teff_err teffi_membership_begin_leaving(teff_ctx *ctx)
{
    teff_err err = teffi_membership_change(ctx, change_rows_to_leave, NULL);
    if (!err)
        teffi_membership_push_view(ctx, false);
    return err;
}

teff_err teffi_membership_leave(teff_ctx *ctx)
{
    teffi_membership *m = ctx->node->membership;
    m->left = true; /* first, so that a view without this silo does not count as a lost lease */
    teff_err err =
        teffi_membership_change(ctx, change_rows_to_leave, m); /* not NULL: it has left */
    if (err)
        return err;
    teffi_lease_release(&ctx->home->lease);
    /* true: push it also to silos that left just before; they may forward requests to this silo */
    teffi_membership_push_view(ctx, true);
    return TEFF_OK;
}
