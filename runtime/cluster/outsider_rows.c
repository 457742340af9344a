/* outsider_rows.c - which operations on this silo's store may another silo request? A silo without
 * a store of its own uses that of its seed. It reads and writes rows there before it is a member.
 * A join is checked by the present view, so the table must not have changed since: the etag of the
 * version row must be the view's, and the store compares it again when it writes the batch.
 * Way:     silo/remote_store -> [outsider_rows] -> silo/remote_store -> store */
#include "cluster/membership.h"

#include <string.h>
#include "base/error.h"
#include "cluster.pb-c.h"
#include "message/codec.h"

typedef struct store_request {
    const char *cluster;
    size_t prefix;          /* length of "cluster\0" */
    const teffi_view *view; /* NULL: none */
    teffi_node_id from;
    const teffi_store_op *op;
} store_request;

static bool row_is_in_table(const teffi_row *row, const char *table)
{
    return strcmp(row->table, table) == 0;
}

static bool key_is_of_cluster(const store_request *r, teffi_bytes key)
{
    return key.len >= r->prefix && memcmp(key.data, r->cluster, r->prefix) == 0;
}

/* Is it the key "cluster\1", which is greater than all keys of the cluster? */
static bool key_ends_cluster(const store_request *r, teffi_bytes key)
{
    return key.len == r->prefix && memcmp(key.data, r->cluster, r->prefix - 1) == 0 &&
           ((const char *)key.data)[r->prefix - 1] == 1;
}

/* ---- reads ---- */

/* Does the operation read the membership table or a heartbeat, and only rows of this cluster? */
static bool op_reads_own_members(const store_request *r)
{
    const teffi_store_op *op = r->op;
    const teffi_row *row = op->rows;
    bool reads = op->kind == TEFFI_STORE_READ, scans = op->kind == TEFFI_STORE_SCAN;
    if (op->n_rows != 1)
        return false;
    bool members = row_is_in_table(row, TEFFI_TABLE_MEMBERSHIP) &&
                   (reads || (scans && key_ends_cluster(r, op->to)));
    bool heartbeat = reads && row_is_in_table(row, TEFFI_TABLE_ALIVE);
    return (members || heartbeat) && key_is_of_cluster(r, row->key);
}

/* ---- the batch of a join ---- */

static bool is_version_row(const store_request *r, const teffi_row *row)
{
    return row_is_in_table(row, TEFFI_TABLE_MEMBERSHIP) && key_is_of_cluster(r, row->key) &&
           row->key.len == r->prefix + 1 && ((const char *)row->key.data)[r->prefix] == 'v';
}

/* out: the version row of a batch; NULL: the operation is no batch, or has no such row. */
static const teffi_row *find_version_row(const store_request *r)
{
    for (size_t i = 0; r->op->kind == TEFFI_STORE_BATCH && i < r->op->n_rows; i++)
        if (is_version_row(r, &r->op->rows[i]))
            return &r->op->rows[i];
    return NULL;
}

/* Does the row write the version that follows the view's version, if the etag matches? */
static bool row_writes_next_version(const store_request *r, const teffi_row *row)
{
    ProtobufCMessage *msg;
    return !row->remove && !row->any && !row->check &&
           !teffi_unpack(&teff__cluster__version_row__descriptor, row->value.data, row->value.len,
                         r->op->arena, &msg) &&
           ((const Teff__Cluster__VersionRow *)msg)->version ==
               (r->view ? r->view->version : 0) + 1;
}

/* Does the value describe the sender itself, as a member or as a silo that has left? */
static bool value_describes_sender(const store_request *r, teffi_bytes value)
{
    ProtobufCMessage *msg;
    if (teffi_unpack(&teff__cluster__member__descriptor, value.data, value.len, r->op->arena, &msg))
        return false;
    const Teff__Cluster__Node *node = ((const Teff__Cluster__Member *)msg)->node;
    return node && node->silo == r->from.silo && node->incarnation == r->from.incarnation;
}

/* out: the silo that the row's key names; 0: the row is not a silo's row in this cluster. */
static uint32_t find_silo_of_row(const store_request *r, const teffi_row *row)
{
    return key_is_of_cluster(r, row->key) ? teffi_rows_parse_silo_key(row, r->prefix) : 0;
}

static bool row_writes_own_member(const store_request *r, const teffi_row *row)
{
    return row_is_in_table(row, TEFFI_TABLE_MEMBERSHIP) &&
           find_silo_of_row(r, row) == r->from.silo && !row->remove && !row->check &&
           value_describes_sender(r, row->value);
}

static bool row_changes_own_heartbeat_or_fence(const store_request *r, const teffi_row *row)
{
    return (row_is_in_table(row, TEFFI_TABLE_ALIVE) || row_is_in_table(row, TEFFI_TABLE_FENCE)) &&
           find_silo_of_row(r, row) == r->from.silo && !row->check;
}

static bool view_has_silo(const teffi_view *view, uint32_t silo)
{
    for (size_t i = 0; view && i < view->n_members; i++)
        if (view->members[i].node.silo == silo)
            return true;
    return false;
}

/* Does the row remove the row of a silo that is dead, or has left? An unreadable or damaged row
 * counts as that of a dead silo: the view does not list it. */
static bool row_removes_tombstone(const store_request *r, const teffi_row *row)
{
    uint32_t silo = find_silo_of_row(r, row);
    return row_is_in_table(row, TEFFI_TABLE_MEMBERSHIP) && row->remove && silo &&
           silo != r->from.silo && !view_has_silo(r->view, silo);
}

/* Checks the rows of a batch that has this version row. The batch may contain only what
 * change_rows_to_join() and change_rows_to_leave() write (join.c), and the sender's own row must be
 * among them. So a silo that changes the table has a row in it.
 * in: the version row's etag is the one of the view: the view is what the batch will change. */
static bool batch_joins(const store_request *r, const teffi_row *version)
{
    bool joins = false;
    for (size_t i = 0; i < r->op->n_rows; i++) {
        const teffi_row *row = &r->op->rows[i];
        bool own = row != version && row_writes_own_member(r, row);
        bool allowed = row == version ? row_writes_next_version(r, row)
                                      : own || row_changes_own_heartbeat_or_fence(r, row) ||
                                            row_removes_tombstone(r, row);
        if (!allowed)
            return false;
        joins |= own;
    }
    return joins;
}

/* ---- heartbeats ---- */

/* Does the batch write the sender's heartbeat, if the sender has a fence? A silo that was started
 * again does not know the members before it has read the table. If the table has no such fence, the
 * store reports a conflict, and the sender learns that it is no member any more. */
static bool op_writes_own_heartbeat(const store_request *r)
{
    const teffi_row *row = r->op->rows;
    return r->op->kind == TEFFI_STORE_BATCH && r->op->n_rows == 2 &&
           row_is_in_table(&row[0], TEFFI_TABLE_ALIVE) &&
           find_silo_of_row(r, &row[0]) == r->from.silo && row[0].any && !row[0].remove &&
           !row[0].check && row_is_in_table(&row[1], TEFFI_TABLE_FENCE) &&
           find_silo_of_row(r, &row[1]) == r->from.silo && row[1].check && row[1].etag &&
           !row[1].any && !row[1].remove;
}

/* ---- the check ---- */

static const char *describe_op(teffi_store_kind kind)
{
    return kind == TEFFI_STORE_READ    ? "a read"
           : kind == TEFFI_STORE_WRITE ? "a write"
           : kind == TEFFI_STORE_BATCH ? "a batch of writes"
           : kind == TEFFI_STORE_SCAN  ? "a scan"
                                       : "an unknown operation";
}

static teff_err refuse_store_op(const store_request *r, teffi_standing standing, char *text)
{
    bool dead = standing == TEFFI_STANDING_DEAD;
    return teffi_fail(text, TEFF_E_REFUSED,
                      "store: silo %08x requests %s of table \"%.64s\", but %s", r->from.silo,
                      describe_op(r->op->kind), r->op->n_rows ? r->op->rows[0].table : "",
                      dead ? "may request nothing: it is dead, or was started again"
                           : "may only read the members or join: it is not in its seed's view");
}

/* A silo that has left has the same rights as a stranger: it reads the table until it has stopped.
 * It may also join again under its old id, if its row in the table was damaged and so its last
 * incarnation is not known. */
static teff_err check_request_of_outsider(const store_request *r, teffi_standing standing,
                                          char *text)
{
    const teffi_row *version = find_version_row(r);
    if (standing == TEFFI_STANDING_DEAD)
        return refuse_store_op(r, standing, text);
    if (op_reads_own_members(r) || op_writes_own_heartbeat(r))
        return TEFF_OK;
    if (version && version->etag != (r->view ? r->view->table_etag : 0))
        return TEFF_E_CONFLICT;
    return version && batch_joins(r, version) ? TEFF_OK : refuse_store_op(r, standing, text);
}

teff_err teffi_outsiders_check_store_op(teffi_node *node, teffi_node_id from,
                                        const teffi_store_op *op, char *text)
{
    const teffi_view *view = teffi_view_ref_current(node);
    teffi_standing standing = teffi_view_standing(view, from);
    const store_request r = {.cluster = node->cluster,
                             .prefix = strlen(node->cluster) + 1,
                             .view = view,
                             .from = from,
                             .op = op};
    teff_err err =
        standing == TEFFI_STANDING_MEMBER ? TEFF_OK : check_request_of_outsider(&r, standing, text);
    teffi_view_unref(view);
    return err;
}
