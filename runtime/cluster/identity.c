/* identity.c - derives ids from addresses: 31 bits of a hash, so two addresses may collide. */
#include "cluster/join.h"

#include <stdio.h>
#include <string.h>
#include "base/hash.h"

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

teff_err teffi_identity_check_row(teff_ctx *ctx, const teffi_member_row *before)
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
    node->id.incarnation = now_s > second_2022 ? (uint32_t)(now_s - second_2022) : 1;
    memcpy(node->address, address, strlen(address) + 1);
}

bool teffi_identity_is_stale(teff_ctx *ctx, const teffi_member_row *row)
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
    if (before && teffi_identity_is_stale(ctx, before)) /* joining overwrites its heartbeat */
        node->membership->stale = before->member.node;
    err = teffi_identity_check_row(ctx, before);
    if (err)
        return err;
    uint32_t last = before ? before->member.node.incarnation : 0;
    last = last < rows.forgotten ? rows.forgotten : last;
    if (last >= node->id.incarnation)
        node->id.incarnation = last + 1;
    return TEFF_OK;
}
