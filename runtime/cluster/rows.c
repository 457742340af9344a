/* rows.c - rows of the membership table: keys, checks, batches. */
#include "cluster/rows.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "cluster.pb-c.h"
#include "message/codec.h"
#include "node/ask.h"

static const char members_table[] = TEFFI_TABLE_MEMBERSHIP;
static const char alive_table[] = TEFFI_TABLE_ALIVE;
static const char fence_table[] = TEFFI_TABLE_FENCE;

/* A page is one operation, so its rows are of one version. The table of hundreds of silos must be
 * one page: while they start, it hardly ever stays the same between two operations. A page fits
 * into one frame of a remote store, also if each silo hosts the most types. */
enum { KEY_MAX = TEFFI_CLUSTER_MAX + 16, READ_TRIES = 20 };

/* SEED_PAGE_ROWS: seeds of earlier builds return no more rows at once. */
enum { PAGE_ROWS = TEFFI_STORE_SCAN_MAX, SEED_PAGE_ROWS = 1000 };

/* Makes a key: "cluster\0v" of the version row, "cluster\0m01234567" of the row of a silo, or
 * "cluster\1", which is greater than all keys of the cluster.
 * in: mark: the byte after the cluster's name, 0 or 1. */
static teffi_bytes make_row_key(teff_ctx *ctx, char mark, const char *rest)
{
    char *key = teff_alloc(ctx, KEY_MAX);
    int n = snprintf(key, KEY_MAX, "%s%c%s", ctx->node->cluster, mark, rest);
    return (teffi_bytes){key, (size_t)n};
}

static teffi_bytes make_silo_key(teff_ctx *ctx, uint32_t silo)
{
    char rest[16];
    snprintf(rest, sizeof rest, "m%08x", silo);
    return make_row_key(ctx, 0, rest);
}

static teff_err run_store_op(teff_ctx *ctx, teffi_store_kind kind, teffi_row *rows, size_t n)
{
    teffi_store_op op = {.kind = kind, .rows = rows, .n_rows = n, .arena = &ctx->arena};
    return teffi_ctx_run_store_op(ctx, &op);
}

/* Converts a member from its stored form. out: false if the member is not valid. */
static bool convert_member(const Teff__Cluster__Member *from, uint64_t etag, teffi_member_row *row)
{
    if (!from->node || (from->node->silo & TEFFI_CLIENT_BIT) || !from->node->incarnation ||
        strlen(from->address) > TEFFI_ADDRESS_MAX || !strchr(from->address, ':') ||
        from->status < TEFF__CLUSTER__STATUS__ACTIVE ||
        from->status > TEFF__CLUSTER__STATUS__DEAD ||
        (from->key.len && from->key.len != TEFFI_KEY_BYTES))
        return false;
    memset(row, 0, sizeof *row);
    row->member.node = (teffi_node_id){from->node->silo, from->node->incarnation};
    bool good = from->lease_ms >= TEFFI_LEASE_MIN_MS && from->lease_ms <= TEFFI_LEASE_MAX_MS;
    row->member.lease_ms = good ? from->lease_ms : TEFFI_LEASE_MS;
    row->member.outage_ms =
        from->outage_ms < TEFFI_LEASE_MAX_MS ? from->outage_ms : TEFFI_LEASE_MAX_MS;
    row->member.status =
        from->status == TEFF__CLUSTER__STATUS__LEAVING ? TEFFI_LEAVING : TEFFI_ACTIVE;
    snprintf(row->member.address, sizeof row->member.address, "%s", from->address);
    row->member.types = from->types;
    row->member.n_types = from->n_types;
    row->member.versions = from->versions;
    row->member.n_versions = from->n_versions;
    if (from->key.len)
        memcpy(row->member.key, from->key.data, sizeof row->member.key);
    row->dead = from->status == TEFF__CLUSTER__STATUS__DEAD;
    row->left = row->dead && from->left;
    row->ended = row->dead ? from->ended : 0;
    row->etag = etag;
    return true;
}

uint32_t teffi_rows_parse_silo_key(const teffi_row *row, size_t prefix)
{
    char rest[10] = "", expected[16];
    if (row->key.len != prefix + 9)
        return 0;
    memcpy(rest, (const char *)row->key.data + prefix, 9);
    uint32_t silo = (uint32_t)strtoul(rest + 1, NULL, 16);
    snprintf(expected, sizeof expected, "m%08x", silo);
    return memcmp(rest, expected, 9) == 0 ? silo : 0;
}

/* Unpacks a silo's row. The content must name the same silo as the key; otherwise the row would
 * count as the row of another silo. in: silo: the silo that the key names.
 * errs: TEFF_E_MALFORMED: the row is unreadable; TEFF_E_NOMEM. */
static teff_err unpack_member_row(teff_ctx *ctx, const teffi_row *row, uint32_t silo,
                                  teffi_member_row *out)
{
    ProtobufCMessage *msg;
    teff_err err = !silo || !row->etag
                       ? TEFF_E_MALFORMED
                       : teffi_unpack(&teff__cluster__member__descriptor, row->value.data,
                                      row->value.len, &ctx->arena, &msg);
    if (err)
        return err == TEFF_E_NOMEM ? err : TEFF_E_MALFORMED;
    const Teff__Cluster__Member *member = (Teff__Cluster__Member *)msg;
    return member->node && member->node->silo == silo && convert_member(member, row->etag, out)
               ? TEFF_OK
               : TEFF_E_MALFORMED;
}

/* Sets the error of a read for which memory has run out. The whole read fails, because a readable
 * row must not count as an unreadable one. */
static teff_err fail_read_out_of_memory(teff_ctx *ctx)
{
    return teff_fail(ctx, TEFF_E_NOMEM, "store: out of memory to read table %s", members_table);
}

/* Unpacks the version row. errs: TEFF_E_MALFORMED, TEFF_E_TOO_LARGE: it is damaged;
 * TEFF_E_NOMEM. */
static teff_err unpack_version_row(teff_ctx *ctx, const teffi_row *row, teffi_rows *rows)
{
    ProtobufCMessage *msg;
    teff_err err = !row->etag ? TEFF_E_MALFORMED
                              : teffi_unpack(&teff__cluster__version_row__descriptor,
                                             row->value.data, row->value.len, &ctx->arena, &msg);
    if (err == TEFF_E_NOMEM)
        return fail_read_out_of_memory(ctx);
    if (err)
        return teff_fail(
            ctx, err,
            "store: the version row of cluster %s is damaged: the row in table \"%s\" at key "
            "\"%s\\0v\" %s. Without it no silo can join. Stop all silos of the cluster, remove the "
            "rows whose keys begin with \"%s\\0\" from the tables \"%s\" and \"alive\", and start "
            "the silos again. States of grains are in another table, and stay",
            ctx->node->cluster, members_table, ctx->node->cluster,
            row->etag ? "is no teff.cluster.VersionRow" : "has a wrong checksum",
            ctx->node->cluster, members_table);
    rows->version = ((Teff__Cluster__VersionRow *)msg)->version;
    rows->forgotten = ((Teff__Cluster__VersionRow *)msg)->forgotten;
    rows->version_etag = row->etag;
    return TEFF_OK;
}

/* Unpacks one row of the table into *rows. in: rows->rows has room for one more row. prefix: the
 * length of "cluster\0". errs: as unpack_version_row(); an unreadable row of a silo is no error. */
static teff_err unpack_and_add_row(teff_ctx *ctx, const teffi_row *row, size_t prefix,
                                   teffi_rows *rows)
{
    uint32_t silo = teffi_rows_parse_silo_key(row, prefix);
    if (row->key.len == prefix + 1 && ((const char *)row->key.data)[prefix] == 'v')
        return unpack_version_row(ctx, row, rows);
    teffi_member_row *out = &rows->rows[rows->n];
    teff_err err = unpack_member_row(ctx, row, silo, out);
    if (err == TEFF_E_NOMEM)
        return fail_read_out_of_memory(ctx);
    if (!err) {
        rows->n++;
        return TEFF_OK;
    }
    /* An unreadable row counts as the row of a dead silo, so a joining silo with this id may
     * replace it. A row whose key names no silo is only counted. */
    rows->junk++;
    if (silo) {
        *out = (teffi_member_row){
            .member.node.silo = silo, .dead = true, .damaged = !row->etag, .etag = row->etag};
        rows->n++;
    }
    return TEFF_OK;
}

/* Makes room for n more rows in rows->rows. in, out: *max: how many rows fit into rows->rows. */
static void reserve_rows(teff_ctx *ctx, teffi_rows *rows, size_t n, size_t *max)
{
    if (rows->n + n <= *max)
        return;
    *max = *max * 2 + n;
    teffi_member_row *more = teff_alloc(ctx, *max * sizeof *more);
    if (rows->n)
        memcpy(more, rows->rows, rows->n * sizeof *more);
    rows->rows = more;
}

/* out: the smallest key that is greater than the row's key: the row's key plus a zero byte. */
static teffi_bytes make_next_key(teff_ctx *ctx, const teffi_row *row)
{
    char *key = teff_alloc(ctx, row->key.len + 1);
    memcpy(key, row->key.data, row->key.len);
    key[row->key.len] = 0;
    return (teffi_bytes){key, row->key.len + 1};
}

/* Reads all rows of the cluster, page by page. out: *paged: true if more than one operation was
 * needed, so that the rows may be of different versions. */
static teff_err scan_table(teff_ctx *ctx, teffi_rows *rows, bool *paged)
{
    /* relaxed: set before the store of the seed is used */
    bool borrows = atomic_load_explicit(&ctx->node->seed, memory_order_relaxed) != 0;
    size_t max = 0, page_rows = borrows ? SEED_PAGE_ROWS : PAGE_ROWS, found = page_rows;
    teffi_row first = {.table = members_table, .key = make_row_key(ctx, 0, "")};
    size_t prefix = first.key.len;
    teff_err err = TEFF_OK;
    memset(rows, 0, sizeof *rows);
    for (unsigned pages = 0; found == page_rows && !err; pages++) {
        teffi_row at = first;
        teffi_store_op op = {.kind = TEFFI_STORE_SCAN,
                             .rows = &at,
                             .n_rows = 1,
                             .to = make_row_key(ctx, 1, ""),
                             .limit = page_rows,
                             .arena = &ctx->arena};
        err = teffi_ctx_run_store_op(ctx, &op);
        if (err)
            return err;
        reserve_rows(ctx, rows, op.n_found, &max);
        for (size_t i = 0; i < op.n_found && !err; i++)
            err = unpack_and_add_row(ctx, &op.rows[i], prefix, rows);
        found = op.n_found;
        if (found == page_rows)
            first.key = make_next_key(ctx, &op.rows[found - 1]);
        *paged = pages > 0;
    }
    return err;
}

/* A scan of several operations may find rows of different versions, as the table may change between
 * two operations. After such a scan, the version is read, and the table is scanned again. The scan
 * reads the version row last, since that row has the greatest key. If the scan finds the version
 * that was read before it, all rows are of this version. Otherwise the version is read and the
 * table is scanned once more. */
teff_err teffi_rows_read(teff_ctx *ctx, teffi_rows *rows)
{
    bool paged = false;
    for (int i = 0; i < READ_TRIES; i++) {
        uint64_t before = 0;
        bool compared = paged;
        teff_err err = compared ? teffi_rows_read_version(ctx, &before) : TEFF_OK;
        if (!err)
            err = scan_table(ctx, rows, &paged);
        if (err || !paged || (compared && rows->version == before))
            return err;
    }
    return teff_fail(ctx, TEFF_E_TIMEOUT, "store: table %s changed in each of %d readings",
                     members_table, READ_TRIES);
}

teff_err teffi_rows_read_version(teff_ctx *ctx, uint64_t *version)
{
    teffi_rows rows = {0};
    teffi_row row = {.table = members_table, .key = make_row_key(ctx, 0, "v")};
    teff_err err = run_store_op(ctx, TEFFI_STORE_READ, &row, 1);
    if (!err && row.etag)
        err = unpack_version_row(ctx, &row, &rows);
    *version = rows.version;
    return err;
}

static teffi_bytes pack_message(teff_ctx *ctx, const ProtobufCMessage *msg)
{
    size_t n = protobuf_c_message_get_packed_size(msg);
    uint8_t *data = teff_alloc(ctx, n + 1);
    protobuf_c_message_pack(msg, data);
    return (teffi_bytes){data, n};
}

/* in: version: the new version of the table, which is written in the same batch as the row. */
static teffi_bytes pack_member(teff_ctx *ctx, const teffi_member_row *row, uint64_t version)
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
    msg.lease_ms = row->member.lease_ms;
    msg.outage_ms = row->member.outage_ms;
    msg.left = row->left || row->leaves;
    msg.ended = row->leaves || row->dies ? version : row->ended;
    msg.types = row->member.types;
    msg.n_types = row->member.n_types;
    msg.versions = row->member.versions;
    msg.n_versions = row->member.n_versions;
    if (!teffi_key_is_none(row->member.key))
        msg.key = (ProtobufCBinaryData){TEFFI_KEY_BYTES, (uint8_t *)(uintptr_t)row->member.key};
    return pack_message(ctx, &msg.base);
}

/* Makes the row that writes or removes a member. A damaged row has no etag to compare; it is
 * protected by the etag of the version row in the same batch. */
static teffi_row make_member_row(teff_ctx *ctx, const teffi_member_row *changed, uint64_t version)
{
    teffi_row row = {.table = members_table,
                     .etag = changed->etag,
                     .any = changed->damaged,
                     .key = make_silo_key(ctx, changed->member.node.silo),
                     .remove = changed->forget};
    if (!changed->forget)
        row.value = pack_member(ctx, changed, version);
    return row;
}

/* Makes the row of a silo's heartbeat or fence. It needs no value: its etag changes with each
 * write. The caller may add the value of a heartbeat, see pack_heartbeat(). When the row is
 * written, it replaces any row of the silo in this table, also the row of an earlier incarnation of
 * the silo. */
static teffi_row make_heartbeat_or_fence_row(teff_ctx *ctx, const char *table, uint32_t silo)
{
    return (teffi_row){.table = table, .key = make_silo_key(ctx, silo), .any = true};
}

static teffi_row make_removal_row(teff_ctx *ctx, const char *table, uint32_t silo)
{
    teffi_row row = make_heartbeat_or_fence_row(ctx, table, silo);
    row.remove = true;
    return row;
}

/* Makes the rows to write for one changed member. The last one is its fence if the silo joins,
 * leaves or dies. out: how many rows: 1 or 3. */
static size_t make_rows_of_changed_member(teff_ctx *ctx, const teffi_member_row *changed,
                                          uint64_t version, teffi_row *rows)
{
    uint32_t silo = changed->member.node.silo;
    rows[0] = make_member_row(ctx, changed, version);
    if (changed->joins) {
        rows[1] = make_heartbeat_or_fence_row(ctx, alive_table, silo);
        rows[2] = make_heartbeat_or_fence_row(ctx, fence_table, silo);
    } else if (changed->leaves || changed->dies) {
        rows[1] = make_removal_row(ctx, alive_table, silo);
        rows[1].any = changed->leaves; /* if the silo dies, the etag must match */
        rows[1].etag = changed->alive_etag;
        rows[2] = make_removal_row(ctx, fence_table, silo);
    }
    return changed->joins || changed->leaves || changed->dies ? 3 : 1;
}

/* Sets the lease's fence etag, and begins the lease of this silo, which has joined. in: fence: the
 * silo's row of the table "fence", with the etag that the store has set. since_ns: a time before
 * the row was sent to the store. */
static void set_fence_and_begin_lease(teff_ctx *ctx, const teffi_row *fence, uint64_t since_ns)
{
    teffi_lease *lease = &ctx->home->lease;
    atomic_store_explicit(&lease->fence, fence->etag, memory_order_relaxed);
    teffi_lease_begin(lease, since_ns);
}

teff_err teffi_rows_write(teff_ctx *ctx, const teffi_rows *read, const teffi_member_row *changed,
                          size_t n)
{
    Teff__Cluster__VersionRow version = TEFF__CLUSTER__VERSION_ROW__INIT;
    size_t n_rows = 1, fence = 0; /* fence: the index of the fence of a silo that joins */
    uint64_t since_ns = teffi_now(ctx->node->platform);
    teffi_row *rows = teff_alloc(ctx, (3 * n + 1) * sizeof *rows);
    version.version = read->version + 1;
    version.forgotten = read->forgotten;
    for (size_t i = 0; i < n; i++)
        if (changed[i].forget && changed[i].member.node.incarnation > version.forgotten)
            version.forgotten = changed[i].member.node.incarnation;
    rows[0] = (teffi_row){.table = members_table,
                          .etag = read->version_etag,
                          .key = make_row_key(ctx, 0, "v"),
                          .value = pack_message(ctx, &version.base)};
    for (size_t i = 0; i < n; i++) {
        n_rows += make_rows_of_changed_member(ctx, &changed[i], version.version, rows + n_rows);
        fence = changed[i].joins ? n_rows - 1 : fence;
    }
    teff_err err = run_store_op(ctx, TEFFI_STORE_BATCH, rows, n_rows);
    if (!err && fence)
        set_fence_and_begin_lease(ctx, &rows[fence], since_ns);
    return err;
}

teffi_view *teffi_rows_make_view(teff_ctx *ctx, const teffi_rows *rows)
{
    teffi_member *members = teff_alloc(ctx, (rows->n + 1) * sizeof *members);
    size_t n = 0;
    for (size_t i = 0; i < rows->n; i++) {
        const teffi_member_row *row = &rows->rows[i];
        members[n] = row->member;
        if (row->dead)
            members[n].status = row->left ? TEFFI_LEFT : TEFFI_DEAD;
        n += row->member.node.incarnation != 0; /* 0: the row was unreadable */
    }
    teffi_view *view = teffi_view_new(rows->version, members, n);
    if (view)
        view->table_etag = rows->version_etag;
    return view;
}

teffi_row teffi_rows_make_fence_check(teff_ctx *ctx, uint32_t silo, uint64_t etag)
{
    return (teffi_row){
        .table = fence_table, .key = make_silo_key(ctx, silo), .etag = etag, .check = true};
}

teffi_row teffi_rows_make_own_fence_check(teff_ctx *ctx)
{
    uint64_t etag = atomic_load_explicit(&ctx->home->lease.fence, memory_order_relaxed);
    return teffi_rows_make_fence_check(ctx, ctx->node->id.silo, etag);
}

bool teffi_rows_make_check_of_node(teffi_node *node, teff_arena *arena, teffi_row *row)
{
    char key[sizeof node->cluster + sizeof "m01234567"];
    int n = snprintf(key, sizeof key, "%s%cm%08x", node->cluster, '\0', node->id.silo);
    *row = (teffi_row){.table = fence_table, .check = true};
    row->etag = atomic_load_explicit(&node->home.lease.fence, memory_order_relaxed);
    row->key = (teffi_bytes){teff_arena_copy(arena, key, (size_t)n), (size_t)n};
    return row->key.data != NULL;
}

/* Keeps those silos that have a fence. out: rows: a removal of each fence; *n, silos: as for
 * teffi_rows_remove_fences(). */
static teff_err make_fence_removals(teff_ctx *ctx, teffi_node_id *silos, size_t *n, teffi_row *rows)
{
    size_t kept = 0;
    for (size_t i = 0; i < *n; i++) {
        rows[kept] = make_heartbeat_or_fence_row(ctx, fence_table, silos[i].silo);
        teff_err err = run_store_op(ctx, TEFFI_STORE_READ, &rows[kept], 1);
        if (err)
            return err;
        if (!rows[kept].etag)
            continue;
        rows[kept].any = false;
        rows[kept].remove = true;
        silos[kept++] = silos[i];
    }
    *n = kept;
    return TEFF_OK;
}

teff_err teffi_rows_remove_fences(teff_ctx *ctx, uint64_t version, teffi_node_id *silos, size_t *n)
{
    teffi_row *rows = teff_alloc(ctx, (*n + 2) * sizeof *rows);
    teffi_rows read;
    teff_err err = teffi_rows_read(ctx, &read);
    if (!err)
        err = make_fence_removals(ctx, silos, n, rows + 2);
    if (err || !*n)
        return err;
    if (read.version != version)
        return TEFF_E_CONFLICT;
    rows[0] = (teffi_row){.table = members_table,
                          .etag = read.version_etag,
                          .key = make_row_key(ctx, 0, "v"),
                          .check = true};
    rows[1] = teffi_rows_make_own_fence_check(ctx);
    return run_store_op(ctx, TEFFI_STORE_BATCH, rows, *n + 2);
}

/* Makes messages of the node ids. out: an array of n pointers to them. */
static Teff__Cluster__Node **make_nodes(teff_ctx *ctx, const teffi_node_id *ids, size_t n)
{
    Teff__Cluster__Node *nodes = teff_alloc(ctx, (n + 1) * sizeof *nodes);
    Teff__Cluster__Node **list = teff_alloc(ctx, (n + 1) * sizeof *list);
    for (size_t i = 0; i < n; i++) {
        teff__cluster__node__init(&nodes[i]);
        nodes[i].silo = ids[i].silo;
        nodes[i].incarnation = ids[i].incarnation;
        list[i] = &nodes[i];
    }
    return list;
}

/* Packs the value of this silo's heartbeat. It is empty if this silo never extends its lease by
 * promises, and lists no silo as unreached. */
static teffi_bytes pack_heartbeat(teff_ctx *ctx, const teffi_own_beat *beat,
                                  const teffi_node_id *unreached, size_t n_unreached)
{
    Teff__Cluster__Heartbeat msg = TEFF__CLUSTER__HEARTBEAT__INIT;
    if (ctx->home->lease.outage_ms) {
        msg.beat = beat->number;
        msg.view = beat->view;
    }
    msg.unreached = make_nodes(ctx, unreached, n_unreached);
    msg.n_unreached = n_unreached;
    return msg.beat || msg.n_unreached ? pack_message(ctx, &msg.base) : (teffi_bytes){NULL, 0};
}

teff_err teffi_heartbeat_write_and_renew_lease(teff_ctx *ctx, const teffi_own_beat *beat,
                                               const teffi_node_id *unreached, size_t n_unreached)
{
    teffi_row rows[] = {make_heartbeat_or_fence_row(ctx, alive_table, ctx->node->id.silo),
                        teffi_rows_make_own_fence_check(ctx)};
    rows[0].value = pack_heartbeat(ctx, beat, unreached, n_unreached);
    teff_err err = run_store_op(ctx, TEFFI_STORE_BATCH, rows, 2);
    if (!err)
        teffi_lease_renew(&ctx->home->lease, beat->sent_ns);
    return err;
}

/* Sets alive's fields from the row's value; only alive->plain if the row exists, but has no value.
 * Sets none of them if the value cannot be unpacked. */
static void unpack_heartbeat(teff_ctx *ctx, const teffi_row *row, teffi_alive *alive)
{
    ProtobufCMessage *msg;
    alive->plain = row->etag && !row->value.len;
    if (!row->value.len || teffi_unpack(&teff__cluster__heartbeat__descriptor, row->value.data,
                                        row->value.len, &ctx->arena, &msg))
        return;
    const Teff__Cluster__Heartbeat *told = (const Teff__Cluster__Heartbeat *)msg;
    alive->beat = told->beat;
    alive->view = told->view;
    alive->plain = !told->beat;
    alive->unreached = teff_alloc(ctx, TEFFI_WATCHED_MAX * sizeof *alive->unreached);
    for (size_t i = 0; i < told->n_unreached && i < TEFFI_WATCHED_MAX; i++)
        alive->unreached[alive->n_unreached++] =
            (teffi_node_id){told->unreached[i]->silo, told->unreached[i]->incarnation};
}

teff_err teffi_heartbeat_read(teff_ctx *ctx, teffi_node_id silo, teffi_alive *alive)
{
    teffi_row row = {.table = alive_table, .key = make_silo_key(ctx, silo.silo)};
    *alive = (teffi_alive){0};
    teff_err err = run_store_op(ctx, TEFFI_STORE_READ, &row, 1);
    if (err == TEFF_E_MALFORMED) { /* remove the damaged row; a live silo writes it again */
        row = make_removal_row(ctx, alive_table, silo.silo);
        return run_store_op(ctx, TEFFI_STORE_WRITE, &row, 1);
    }
    if (!err) {
        alive->etag = row.etag;
        unpack_heartbeat(ctx, &row, alive);
    }
    return err;
}
