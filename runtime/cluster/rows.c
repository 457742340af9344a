/* rows.c - membership's rows: keys, checks, batches.
 * Way:     membership -> [rows] -> store */
#include "cluster/rows.h"

#include <stdio.h>
#include <string.h>
#include "cluster.pb-c.h"
#include "wire/codec.h"

static const char members_table[] = "membership";
static const char alive_table[] = "alive";

enum { KEY_MAX = TEFFI_CLUSTER_MAX + 16 };

/* "cluster\0v" is the version row, "cluster\0m01234567" a silo's. */
static teffi_bytes make_key(char *buf, const char *cluster, const char *rest)
{
    int n = snprintf(buf, KEY_MAX, "%s%c%s", cluster, 0, rest);
    return (teffi_bytes){buf, (size_t)n};
}

static teffi_bytes silo_key(char *buf, const char *cluster, uint32_t silo)
{
    char rest[16];
    snprintf(rest, sizeof rest, "m%08x", silo);
    return make_key(buf, cluster, rest);
}

static bool row_of(const Teff__Cluster__Member *from, uint64_t etag, teffi_member_row *row)
{
    if (!from->node || (from->node->silo & TEFFI_CLIENT_BIT) || !from->node->incarnation ||
        strlen(from->address) > TEFFI_ADDRESS_MAX || !strchr(from->address, ':') ||
        from->status < TEFF__CLUSTER__STATUS__ACTIVE || from->status > TEFF__CLUSTER__STATUS__DEAD)
        return false;
    memset(row, 0, sizeof *row);
    row->member.node = (teffi_node_id){from->node->silo, from->node->incarnation};
    row->member.status =
        from->status == TEFF__CLUSTER__STATUS__LEAVING ? TEFFI_LEAVING : TEFFI_ACTIVE;
    snprintf(row->member.address, sizeof row->member.address, "%s", from->address);
    row->member.types = from->types;
    row->member.n_types = from->n_types;
    row->dead = from->status == TEFF__CLUSTER__STATUS__DEAD;
    row->etag = etag;
    return true;
}

/* A row under another silo's key would let it speak for that one. */
static bool key_is_of(const teffi_row *row, size_t prefix, const Teff__Cluster__Member *member)
{
    char expected[16];
    int n = snprintf(expected, sizeof expected, "m%08x", member->node ? member->node->silo : 0);
    return row->key.len == prefix + (size_t)n &&
           memcmp((const char *)row->key.data + prefix, expected, (size_t)n) == 0;
}

static teff_err read_row(teff_ctx *ctx, const teffi_row *row, size_t prefix, teffi_rows *rows)
{
    const char *kind = (const char *)row->key.data + prefix;
    ProtobufCMessage *msg;
    bool version = row->key.len == prefix + 1 && *kind == 'v';
    const ProtobufCMessageDescriptor *desc =
        version ? &teff__cluster__version_row__descriptor : &teff__cluster__member__descriptor;
    teff_err err = teffi_unpack(desc, row->value.data, row->value.len, &ctx->arena, &msg);
    if (!err && version) {
        rows->version = ((Teff__Cluster__VersionRow *)msg)->version;
        rows->version_etag = row->etag;
    } else if (!err && key_is_of(row, prefix, (Teff__Cluster__Member *)msg) &&
               row_of((Teff__Cluster__Member *)msg, row->etag, &rows->rows[rows->n])) {
        rows->n++;
    } else {
        return teffi_ctx_fail(ctx, TEFF_E_MALFORMED,
                              "store: a row of table %s (cluster %s, key %.9s) is not a member's",
                              members_table, ctx->node->cluster, kind);
    }
    return TEFF_OK;
}

teff_err teffi_rows_read(teff_ctx *ctx, teffi_rows *rows)
{
    char from[KEY_MAX], to[KEY_MAX];
    teffi_row first = {.table = members_table, .key = make_key(from, ctx->node->cluster, "")};
    teffi_store_op op = {.kind = TEFFI_STORE_SCAN,
                         .rows = &first,
                         .n_rows = 1,
                         .limit = TEFFI_ROWS_MAX,
                         .arena = &ctx->arena};
    op.to = make_key(to, ctx->node->cluster, "");
    to[op.to.len - 1] = 1;
    size_t prefix = first.key.len;
    memset(rows, 0, sizeof *rows);
    teff_err err = teffi_ctx_store(ctx, &op);
    if (err)
        return err;
    rows->rows = teff_alloc(ctx, (op.n_found + 1) * sizeof *rows->rows);
    for (size_t i = 0; i < op.n_found && !err; i++)
        err = read_row(ctx, &op.rows[i], prefix, rows);
    return err;
}

teff_err teffi_rows_version(teff_ctx *ctx, uint64_t *version)
{
    char key[KEY_MAX];
    ProtobufCMessage *msg;
    teffi_row row = {.table = members_table, .key = make_key(key, ctx->node->cluster, "v")};
    teffi_store_op op = {.kind = TEFFI_STORE_READ, .rows = &row, .n_rows = 1, .arena = &ctx->arena};
    *version = 0;
    teff_err err = teffi_ctx_store(ctx, &op);
    if (err || !row.etag)
        return err;
    err = teffi_unpack(&teff__cluster__version_row__descriptor, row.value.data, row.value.len,
                       &ctx->arena, &msg);
    if (err)
        return teffi_ctx_fail(ctx, err, "store: the version row of cluster %s is damaged",
                              ctx->node->cluster);
    *version = ((Teff__Cluster__VersionRow *)msg)->version;
    return TEFF_OK;
}

static teffi_bytes pack(teff_ctx *ctx, const ProtobufCMessage *msg)
{
    size_t n = protobuf_c_message_get_packed_size(msg);
    uint8_t *data = teff_alloc(ctx, n + 1);
    protobuf_c_message_pack(msg, data);
    return (teffi_bytes){data, n};
}

static teffi_bytes pack_member(teff_ctx *ctx, const teffi_member_row *row)
{
    Teff__Cluster__Node node = TEFF__CLUSTER__NODE__INIT;
    Teff__Cluster__Member msg = TEFF__CLUSTER__MEMBER__INIT;
    node.silo = row->member.node.silo;
    node.incarnation = row->member.node.incarnation;
    msg.node = &node;
    msg.address = teff_strdup(ctx, row->member.address);
    msg.status = row->dead                             ? TEFF__CLUSTER__STATUS__DEAD
                 : row->member.status == TEFFI_LEAVING ? TEFF__CLUSTER__STATUS__LEAVING
                                                       : TEFF__CLUSTER__STATUS__ACTIVE;
    msg.types = row->member.types;
    msg.n_types = row->member.n_types;
    return pack(ctx, &msg.base);
}

teff_err teffi_rows_write(teff_ctx *ctx, const teffi_rows *read, const teffi_member_row *changed,
                          size_t n)
{
    Teff__Cluster__VersionRow version = TEFF__CLUSTER__VERSION_ROW__INIT;
    char version_key[KEY_MAX];
    teffi_row *rows = teff_alloc(ctx, (n + 1) * sizeof *rows);
    version.version = read->version + 1;
    rows[0] = (teffi_row){.table = members_table,
                          .etag = read->version_etag,
                          .key = make_key(version_key, ctx->node->cluster, "v"),
                          .value = pack(ctx, &version.base)};
    for (size_t i = 0; i < n; i++) {
        char *key = teff_alloc(ctx, KEY_MAX);
        rows[i + 1] =
            (teffi_row){.table = members_table,
                        .etag = changed[i].etag,
                        .key = silo_key(key, ctx->node->cluster, changed[i].member.node.silo),
                        .remove = changed[i].forget};
        if (!changed[i].forget)
            rows[i + 1].value = pack_member(ctx, &changed[i]);
    }
    teffi_store_op op = {
        .kind = TEFFI_STORE_BATCH, .rows = rows, .n_rows = n + 1, .arena = &ctx->arena};
    return teffi_ctx_store(ctx, &op);
}

teffi_view *teffi_rows_view(teff_ctx *ctx, const teffi_rows *rows)
{
    teffi_member *members = teff_alloc(ctx, (rows->n + 1) * sizeof *members);
    size_t n = 0;
    for (size_t i = 0; i < rows->n; i++)
        if (!rows->rows[i].dead)
            members[n++] = rows->rows[i].member;
    return teffi_view_new(rows->version, members, n);
}

teff_err teffi_alive_write(teff_ctx *ctx, uint64_t wall_ms)
{
    Teff__Cluster__AliveRow msg = TEFF__CLUSTER__ALIVE_ROW__INIT;
    char key[KEY_MAX];
    msg.wall_ms = wall_ms;
    msg.incarnation = ctx->node->id.incarnation;
    teffi_row row = {.table = alive_table,
                     .any = true,
                     .key = silo_key(key, ctx->node->cluster, ctx->node->id.silo),
                     .value = pack(ctx, &msg.base)};
    teffi_store_op op = {
        .kind = TEFFI_STORE_WRITE, .rows = &row, .n_rows = 1, .arena = &ctx->arena};
    return teffi_ctx_store(ctx, &op);
}

teff_err teffi_alive_read(teff_ctx *ctx, teffi_node_id silo, uint64_t *wall_ms)
{
    char key[KEY_MAX];
    ProtobufCMessage *msg;
    teffi_row row = {.table = alive_table, .key = silo_key(key, ctx->node->cluster, silo.silo)};
    teffi_store_op op = {.kind = TEFFI_STORE_READ, .rows = &row, .n_rows = 1, .arena = &ctx->arena};
    *wall_ms = 0;
    teff_err err = teffi_ctx_store(ctx, &op);
    if (err || !row.etag)
        return err;
    err = teffi_unpack(&teff__cluster__alive_row__descriptor, row.value.data, row.value.len,
                       &ctx->arena, &msg);
    if (!err && ((Teff__Cluster__AliveRow *)msg)->incarnation == silo.incarnation)
        *wall_ms = ((Teff__Cluster__AliveRow *)msg)->wall_ms;
    return err;
}
