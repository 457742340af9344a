/* fuzz_outsider_rows.c - any operation of a silo that is no member on the store: what is allowed
 * reads the members of this cluster only, and changes no row but the sender's own, the version row
 * and rows of silos that are gone.
 *
 * The input is a script: the sender, the kind of operation, and its rows. Each row's table, key and
 * value are made of fields, or are any bytes.
 * Way:     [fuzz_outsider_rows] -> cluster/outsider_rows -> store -> [fuzz_outsider_rows] */
#include <stdio.h>
#include <string.h>
#include "base/bug.h"
#include "cluster/membership.h"
#include "cluster.pb-c.h"
#include "input.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n);

enum { VERSION = 3, ROWS_MAX = 12, TABLES = 6, SENDERS = 5, KEPT_MAX = 16 };

static const teffi_node_id member = {7, 5}, left = {8, 5}, dead = {9, 5};
static const teffi_node_id senders[SENDERS] = {{10, 5}, {8, 5}, {9, 5}, {7, 4}, {7, 5}};
static const char *const tables[TABLES] = {
    TEFFI_TABLE_MEMBERSHIP, TEFFI_TABLE_ALIVE, TEFFI_TABLE_FENCE, "words", "member", ""};

static fuzz_input in;
static teffi_node node;
static teffi_store *store;
static teff_arena arena;

/* ---- the store, which has a row that no outsider may change in each table ---- */

typedef struct kept_row {
    const char *table;
    char key[32];
    size_t len;
    uint64_t etag;
} kept_row;

static kept_row kept[KEPT_MAX];
static unsigned n_kept;

static void end_op(teffi_store_op *op)
{
    (void)op; /* the store in memory ends an operation before submit returns */
}

static void run_on_store(teffi_store_op *op)
{
    op->done = end_op;
    op->arena = &arena;
    teffi_store_submit(store, op);
}

static uint64_t write_any_row(const char *table, const void *key, size_t len, const char *value)
{
    teffi_row row = {
        .table = table, .key = {key, len}, .value = {value, strlen(value)}, .any = true};
    teffi_store_op op = {.kind = TEFFI_STORE_WRITE, .rows = &row, .n_rows = 1};
    run_on_store(&op);
    teffi_bug_if(op.err);
    return row.etag;
}

static void keep_row(const char *table, const char *cluster, const char *rest)
{
    kept_row *k = &kept[n_kept++];
    int n = snprintf(k->key, sizeof k->key, "%s%c%s", cluster, 0, rest);
    *k = (kept_row){.table = table, .len = (size_t)n};
    snprintf(k->key, sizeof k->key, "%s%c%s", cluster, 0, rest);
    k->etag = write_any_row(table, k->key, k->len, "kept");
}

static void fill_store(void)
{
    n_kept = 0;
    for (unsigned i = 0; i < 3; i++) {
        keep_row(tables[i], "dev", "m00000007");
        keep_row(tables[i], "dew", "m00000007");
        keep_row(tables[i], "dew", "m0000000a");
        write_any_row(tables[i], "dev\0m00000008", 13, "left");
        write_any_row(tables[i], "dev\0m00000009", 13, "dead");
    }
    keep_row("words", "dev", "m0000000a");
    keep_row(TEFFI_TABLE_MEMBERSHIP, "dew", "v");
}

static void check_kept_rows(void)
{
    for (const kept_row *k = kept; k < kept + n_kept; k++) {
        teffi_row row = {.table = k->table, .key = {k->key, k->len}};
        teffi_store_op op = {.kind = TEFFI_STORE_READ, .rows = &row, .n_rows = 1};
        run_on_store(&op);
        teffi_bug_if(op.err || row.etag != k->etag);
    }
}

/* in: etag, of the version row. */
static void set_view(uint64_t etag)
{
    const teffi_member members[] = {{.node = member, .status = TEFFI_ACTIVE},
                                    {.node = left, .status = TEFFI_LEFT},
                                    {.node = dead, .status = TEFFI_DEAD}};
    teffi_view *view = teffi_view_new(VERSION, members, 3);
    teffi_bug_if(!view);
    view->table_etag = etag;
    node.view = view;
}

/* ---- the operation ---- */

static void *arena_bytes(const void *from, size_t n)
{
    void *to = teff_arena_copy(&arena, from, n);
    teffi_bug_if(!to);
    return to;
}

static teffi_bytes take_any_bytes(void)
{
    size_t n = input_take_byte(&in);
    const uint8_t *from = input_take_bytes(&in, &n);
    return (teffi_bytes){arena_bytes(n ? from : (const uint8_t *)"", n), n};
}

static teffi_bytes take_key(void)
{
    static const char *const clusters[] = {"dev", "dew", "de", "devi"};
    unsigned what = input_take_byte(&in);
    char key[64];
    int n;
    if ((what & 7) == 7)
        return take_any_bytes();
    const char *cluster = clusters[what >> 4 & 3 & (what >> 6)];
    unsigned silo = 6 + input_take_byte(&in) % 6;
    if ((what & 7) == 0)
        n = snprintf(key, sizeof key, "%s%cv", cluster, 0);
    else if ((what & 7) == 1)
        n = snprintf(key, sizeof key, "%s%c", cluster, what >> 3 & 1);
    else
        n = snprintf(key, sizeof key, what & 8 ? "%s%cm%08X" : "%s%cm%08x", cluster, 0, silo);
    return (teffi_bytes){arena_bytes(key, (size_t)n), (size_t)n};
}

static teffi_bytes pack_to_arena(const ProtobufCMessage *msg)
{
    uint8_t packed[64];
    size_t n = protobuf_c_message_pack(msg, packed);
    return (teffi_bytes){arena_bytes(packed, n), n};
}

static teffi_bytes take_value(void)
{
    Teff__Cluster__VersionRow version = TEFF__CLUSTER__VERSION_ROW__INIT;
    Teff__Cluster__Member row = TEFF__CLUSTER__MEMBER__INIT;
    Teff__Cluster__Node id = TEFF__CLUSTER__NODE__INIT;
    unsigned what = input_take_byte(&in);
    if (what % 3 == 0)
        return take_any_bytes();
    if (what % 3 == 1) {
        version.version = what / 3;
        return pack_to_arena(&version.base);
    }
    id.silo = 6 + input_take_byte(&in) % 6;
    id.incarnation = what / 3 % 8;
    row.node = &id;
    return pack_to_arena(&row.base);
}

static void take_row(teffi_row *row, uint64_t version_etag)
{
    unsigned what = input_take_byte(&in), etag = input_take_byte(&in);
    *row = (teffi_row){.table = tables[what % 8 % TABLES],
                       .key = take_key(),
                       .etag = etag == 255 ? version_etag : etag,
                       .remove = what & 16,
                       .any = what & 32,
                       .check = what & 64};
    if (!(what & 128))
        row->value = take_value();
}

/* ---- the checks ---- */

static bool bytes_begin_with(teffi_bytes bytes, const char *prefix, size_t n)
{
    return bytes.len >= n && memcmp(bytes.data, prefix, n) == 0;
}

static void check_found_rows(const teffi_store_op *op)
{
    size_t n = op->kind == TEFFI_STORE_SCAN ? op->n_found : op->n_rows;
    bool members = strcmp(op->rows[0].table, TEFFI_TABLE_MEMBERSHIP) == 0;
    bool alive = strcmp(op->rows[0].table, TEFFI_TABLE_ALIVE) == 0;
    teffi_bug_if(!members && !(alive && op->kind == TEFFI_STORE_READ));
    for (size_t i = 0; i < n; i++)
        teffi_bug_if(!bytes_begin_with(op->rows[i].key, "dev", 4));
}

static uint64_t read_version_of_table(uint64_t *etag)
{
    teffi_row row = {.table = TEFFI_TABLE_MEMBERSHIP, .key = {"dev\0v", 5}};
    teffi_store_op op = {.kind = TEFFI_STORE_READ, .rows = &row, .n_rows = 1};
    run_on_store(&op);
    teffi_bug_if(op.err);
    ProtobufCMessage *msg = protobuf_c_message_unpack(&teff__cluster__version_row__descriptor, NULL,
                                                      row.value.len, row.value.data);
    uint64_t version = msg ? ((Teff__Cluster__VersionRow *)msg)->version : 0;
    if (msg)
        protobuf_c_message_free_unpacked(msg, NULL);
    *etag = row.etag;
    return version;
}

/* Runs an allowed operation of an outsider. in: version_etag, before it. */
static void run_allowed_op(teffi_store_op *op, uint64_t version_etag)
{
    uint64_t etag;
    bool reads = op->kind == TEFFI_STORE_READ || op->kind == TEFFI_STORE_SCAN;
    teffi_bug_if(!reads && op->kind != TEFFI_STORE_BATCH);
    run_on_store(op);
    if (reads && !op->err)
        check_found_rows(op);
    uint64_t version = read_version_of_table(&etag);
    bool written = !reads && !op->err;
    teffi_bug_if((etag != version_etag) != written);
    teffi_bug_if(written && version != VERSION + 1);
    check_kept_rows();
}

static void check_one_op(void)
{
    Teff__Cluster__VersionRow version = TEFF__CLUSTER__VERSION_ROW__INIT;
    teffi_row rows[ROWS_MAX];
    char packed[16] = "", text[TEFF_TEXT_MAX] = "";
    version.version = VERSION;
    teff__cluster__version_row__pack(&version, (uint8_t *)packed);
    uint64_t etag = write_any_row(TEFFI_TABLE_MEMBERSHIP, "dev\0v", 5, packed);
    unsigned what = input_take_byte(&in);
    teffi_node_id from = senders[(what >> 4) % SENDERS];
    set_view(what & 8 ? etag - 1 : etag);
    teffi_store_op op = {.kind = (teffi_store_kind)(what & 7), .rows = rows, .arena = &arena};
    op.limit = 100;
    if (op.kind == TEFFI_STORE_SCAN)
        op.to = take_key();
    while (in.at < in.end && op.n_rows < ROWS_MAX)
        take_row(&rows[op.n_rows++], etag);
    teff_err err = teffi_outsiders_check_store_op(&node, from, &op, text);
    teffi_bug_if(err && err != TEFF_E_REFUSED && err != TEFF_E_CONFLICT);
    teffi_bug_if((err == TEFF_E_REFUSED) != (text[0] != 0));
    bool is_member = teffi_node_equals(from, member);
    bool is_dead = teffi_node_equals(from, dead) || (from.silo == 7 && !is_member);
    teffi_bug_if((is_member && err) || (is_dead && err != TEFF_E_REFUSED));
    if (!err && !is_member)
        run_allowed_op(&op, etag);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n)
{
    in = (fuzz_input){data, data + n};
    pthread_mutex_init(&node.lock, NULL);
    strcpy(node.cluster, "dev");
    teffi_arena_init(&arena, NULL, 0, 0);
    teffi_bug_if(teffi_store_open("memory", &store, NULL));
    fill_store();
    check_one_op();
    teffi_view_unref(node.view);
    node.view = NULL;
    teffi_store_close(store);
    teffi_arena_fini(&arena);
    pthread_mutex_destroy(&node.lock);
    return 0;
}
