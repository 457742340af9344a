/* fuzz_rows.c - any rows in the membership tables: each is read as a valid member, or counts as
 * unreadable; what is read can be written, and is then read as the same.
 *
 * The input is a script; each step puts a row into a store in memory, or makes a row a damaged
 * one. Some steps give all bytes of a row, others make a row of fields.
 * Way:     [fuzz_rows] -> store -> cluster/rows, view, change -> [fuzz_rows] */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "base/bug.h"
#include "cluster/membership.h"
#include "cluster.pb-c.h"
#include "input.h"
#include "node/ask.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n);

enum {
    STEPS_MAX = 64,
    VALUE_MAX = 2048,
    OWN_SILO = 7,
    MADE_MAX = 450 /* two pages and a half */,
    FORGOTTEN_MAX = 20
};

static fuzz_input in;
static teffi_node node;
static teff_ctx ctx;

/* ---- the store: rows in memory, some of them damaged ---- */

static teffi_store *inner;
static unsigned damage;    /* a damaged row: one in so many; 0: none */
static unsigned n_made;    /* rows of members */
static bool alive_damaged; /* each row of the table "alive" */
static void (*outer_done)(teffi_store_op *op);

static void damage_found_rows(teffi_store_op *op)
{
    op->done = outer_done;
    if (op->kind == TEFFI_STORE_SCAN && damage && !op->err)
        for (size_t i = 0; i < op->n_found; i++)
            if (i % damage == damage - 1) {
                op->rows[i].etag = 0;
                op->rows[i].value.len = 0;
            }
    op->done(op);
}

static void submit_to_inner(teffi_store *store, teffi_store_op *op)
{
    (void)store;
    if (op->kind == TEFFI_STORE_READ && alive_damaged &&
        strcmp(op->rows[0].table, TEFFI_TABLE_ALIVE) == 0) {
        op->err = TEFF_E_MALFORMED;
        op->done(op);
        return;
    }
    outer_done = op->done;
    op->done = damage_found_rows;
    teffi_store_submit(inner, op);
}

static void put_any_value(const char *table, const char *key, size_t key_len, const void *value,
                          size_t len)
{
    teffi_row row = {.table = table, .key = {key, key_len}, .value = {value, len}, .any = true};
    teffi_store_op op = {.kind = TEFFI_STORE_WRITE, .rows = &row, .n_rows = 1, .arena = &ctx.arena};
    teffi_bug_if(teffi_ctx_run_store_op(&ctx, &op));
}

static void put_value_of_silo(const char *table, unsigned silo, const void *value, size_t len)
{
    char key[32];
    int n = snprintf(key, sizeof key, "%s%cm%08x", node.cluster, 0, silo);
    put_any_value(table, key, (size_t)n, value, len);
}

/* ---- the script ---- */

static void put_version_row(void)
{
    Teff__Cluster__VersionRow row = TEFF__CLUSTER__VERSION_ROW__INIT;
    uint8_t packed[64];
    size_t len = input_take_byte(&in);
    const uint8_t *value = input_take_bytes(&in, &len);
    if (len < 2) {
        row.version = input_take_word(&in);
        row.forgotten = input_take_byte(&in);
        len = teff__cluster__version_row__pack(&row, packed);
        value = packed;
    }
    put_any_value(TEFFI_TABLE_MEMBERSHIP, "dev\0v", 5, value, len);
}

static void put_any_row(const char *table)
{
    unsigned silo = input_take_word(&in);
    size_t len = input_take_word(&in) % VALUE_MAX;
    const uint8_t *value = input_take_bytes(&in, &len);
    put_value_of_silo(table, silo, value, len);
}

/* A row of the cluster whose key is any bytes. */
static void put_row_with_any_key(void)
{
    char key[4 + 16] = "dev";
    size_t len = input_take_byte(&in) % 16, value_len = input_take_byte(&in);
    if (len)
        memcpy(key + 4, input_take_bytes(&in, &len), len);
    const uint8_t *value = input_take_bytes(&in, &value_len);
    put_any_value(TEFFI_TABLE_MEMBERSHIP, key, 4 + len, value, value_len);
}

static char *make_address(unsigned what)
{
    static char address[TEFFI_ADDRESS_MAX + 8];
    size_t len = what & 2 ? TEFFI_ADDRESS_MAX + (what >> 2) % 4 : 1 + what % 64;
    memset(address, 'h', sizeof address);
    address[what & 1 ? len / 2 : 0] = what & 128 ? '.' : ':';
    address[len] = '\0';
    return address;
}

/* Members of consecutive ids, which differ in their incarnation and in when they have ended. */
static void put_made_members(void)
{
    Teff__Cluster__Node id = TEFF__CLUSTER__NODE__INIT;
    Teff__Cluster__Member member = TEFF__CLUSTER__MEMBER__INIT;
    uint32_t types[16] = {0}, versions[16] = {0};
    uint8_t key[64] = {1}, packed[1024];
    unsigned silo = input_take_word(&in), count = input_take_byte(&in), what = input_take_byte(&in);
    id.incarnation = input_take_byte(&in);
    member.node = what & 128 ? NULL : &id;
    member.status = (Teff__Cluster__Status)(what % 8);
    member.left = what & 8;
    member.address = make_address(input_take_byte(&in));
    member.lease_ms = input_take_word(&in) * 16;
    member.outage_ms = input_take_word(&in) * 16;
    member.ended = input_take_byte(&in);
    unsigned lists = input_take_byte(&in);
    member.types = types;
    member.n_types = lists % 16;
    member.versions = versions;
    member.n_versions = lists / 16;
    member.key = (ProtobufCBinaryData){what & 16 ? 32 + (what >> 5 & 3) / 3 : 0, key};
    for (unsigned i = 0; i < 16; i++)
        types[i] = versions[i] = i * (what | 1);
    for (unsigned i = 0; i <= count && n_made < MADE_MAX; i++, n_made++) {
        id.silo = what & 64 && i % 8 == 7 ? silo : silo + i; /* sometimes not that of the key */
        size_t len = teff__cluster__member__pack(&member, packed);
        put_value_of_silo(TEFFI_TABLE_MEMBERSHIP, silo + i, packed, len);
        id.incarnation = id.incarnation * 5 % 251;
        member.ended = member.ended * 3 % 257;
    }
}

static void run_row_step(void)
{
    switch (input_take_byte(&in) % 7) {
    case 0:
        put_version_row();
        break;
    case 1:
        put_any_row(TEFFI_TABLE_MEMBERSHIP);
        break;
    case 2:
        put_made_members();
        break;
    case 3:
        put_row_with_any_key();
        break;
    case 4:
        put_any_row(TEFFI_TABLE_ALIVE);
        break;
    case 5:
        damage = input_take_byte(&in);
        break;
    default:
        alive_damaged = input_take_byte(&in) & 1;
    }
}

/* ---- the checks ---- */

static void check_member_row(const teffi_member_row *row)
{
    const teffi_member *m = &row->member;
    bool readable = m->node.incarnation != 0;
    teffi_bug_if(m->node.silo == 0 || (row->left && !row->dead));
    teffi_bug_if(row->damaged != (row->etag == 0) || (!readable && !row->dead));
    if (!readable)
        return;
    teffi_bug_if(m->node.silo & TEFFI_CLIENT_BIT);
    teffi_bug_if(!memchr(m->address, 0, sizeof m->address) || !strchr(m->address, ':'));
    teffi_bug_if(m->lease_ms < TEFFI_LEASE_MIN_MS || m->lease_ms > TEFFI_LEASE_MAX_MS);
    teffi_bug_if(m->outage_ms > TEFFI_LEASE_MAX_MS || (!row->dead && row->ended));
    teffi_bug_if(m->status != TEFFI_ACTIVE && m->status != TEFFI_LEAVING);
}

static void check_rows(const teffi_rows *rows)
{
    for (size_t i = 0; i < rows->n; i++) {
        check_member_row(&rows->rows[i]);
        /* in the order of their ids, as the store's keys, each once */
        teffi_bug_if(i && rows->rows[i - 1].member.node.silo >= rows->rows[i].member.node.silo);
    }
    teffi_bug_if(rows->version_etag == 0 && rows->version != 0);
}

static void check_view(const teffi_rows *rows)
{
    teffi_view *view = teffi_rows_make_view(&ctx, rows);
    size_t readable = 0, dead = 0;
    teffi_bug_if(!view);
    for (size_t i = 0; i < rows->n; i++) {
        const teffi_member_row *row = &rows->rows[i];
        readable += row->member.node.incarnation != 0;
        dead += row->member.node.incarnation && row->dead;
        bool listed = teffi_view_find_member(view, row->member.node) != NULL;
        teffi_bug_if(row->member.node.incarnation && listed == row->dead);
        (void)teffi_member_type_version(&row->member, 1);
    }
    teffi_bug_if(view->n_members != readable - dead || view->n_active > view->n_members);
    for (unsigned p = 0; p < TEFFI_PARTITIONS; p++)
        teffi_bug_if((view->owner[p] >= 0) != (view->n_active > 0) ||
                     view->owner[p] >= (int)view->n_members);
    teffi_view_unref(view);
}

static void check_tombstones(const teffi_rows *rows)
{
    teffi_member_row *changed = teff_alloc(&ctx, (rows->n + 1) * sizeof *changed);
    uint32_t skipped = rows->n ? rows->rows[rows->n / 2].member.node.silo : 0;
    size_t n = teffi_rows_mark_old_tombstones(rows, skipped, changed);
    teffi_bug_if(n > FORGOTTEN_MAX);
    for (size_t i = 0; i < n; i++)
        teffi_bug_if(!changed[i].dead || !changed[i].forget ||
                     changed[i].member.node.silo == skipped);
}

static bool members_are_same(const teffi_member *a, const teffi_member *b)
{
    return teffi_node_equals(a->node, b->node) && a->status == b->status &&
           strcmp(a->address, b->address) == 0 && a->lease_ms == b->lease_ms &&
           a->outage_ms == b->outage_ms && a->n_types == b->n_types &&
           a->n_versions == b->n_versions && memcmp(a->key, b->key, sizeof a->key) == 0 &&
           (!a->n_types || memcmp(a->types, b->types, a->n_types * sizeof *a->types) == 0) &&
           (!a->n_versions ||
            memcmp(a->versions, b->versions, a->n_versions * sizeof *a->versions) == 0);
}

/* Writes all rows that were read, as unchanged ones, and reads them again. */
static void check_written_rows(const teffi_rows *rows)
{
    teffi_rows again;
    size_t n = rows->n < 80 ? rows->n : 80;
    teff_err err = teffi_rows_write(&ctx, rows, rows->rows, n);
    teffi_bug_if(err && !(err == TEFF_E_CONFLICT && damage));
    if (err)
        return;
    err = teffi_rows_read(&ctx, &again); /* a version row that is new may be a damaged one */
    teffi_bug_if(err && !damage);
    if (err)
        return;
    teffi_bug_if(again.version != rows->version + 1 || again.n != rows->n);
    for (size_t i = 0; i < n; i++) {
        const teffi_member_row *was = &rows->rows[i], *is = &again.rows[i];
        bool readable = was->member.node.incarnation && is->member.node.incarnation;
        teffi_bug_if(was->member.node.silo != is->member.node.silo);
        teffi_bug_if(readable && (!members_are_same(&was->member, &is->member) ||
                                  was->dead != is->dead || was->left != is->left));
        teffi_bug_if(!readable && was->member.node.incarnation && !is->damaged);
    }
}

static void check_read_heartbeats(void)
{
    for (uint32_t silo = 0; silo < 8; silo++) {
        teffi_alive alive;
        teff_err err = teffi_heartbeat_read(&ctx, (teffi_node_id){silo, 1}, &alive);
        teffi_bug_if(err || (!alive.etag && (alive.beat || alive.plain || alive.n_unreached)));
    }
}

static void read_and_check_table(void)
{
    teffi_rows rows;
    uint64_t version;
    teff_err err = teffi_rows_read(&ctx, &rows);
    teff_err version_err = teffi_rows_read_version(&ctx, &version);
    teffi_bug_if(err && err != TEFF_E_MALFORMED && err != TEFF_E_TOO_LARGE);
    teffi_bug_if(err && !teff_error(&ctx)[0]);
    teffi_bug_if(!err && (version_err || version != rows.version));
    if (err)
        return;
    check_rows(&rows);
    check_view(&rows);
    check_tombstones(&rows);
    check_written_rows(&rows);
}

/* ---- one input ---- */

static uint64_t read_still_clock(void *arg)
{
    (void)arg;
    return 1000000000;
}

static const teffi_store_ops store_ops = {.submit = submit_to_inner};
static teffi_store outer = {&store_ops};
static const teffi_platform platform = {.mono_ns = read_still_clock};

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n)
{
    in = (fuzz_input){data, data + n};
    node.platform = &platform;
    node.store = &outer;
    node.id = (teffi_node_id){OWN_SILO, 1};
    node.home.node = &node;
    strcpy(node.cluster, "dev");
    teffi_ctx_init(&ctx, &node.home, NULL);
    teffi_bug_if(teffi_store_open("memory", &inner, NULL));
    damage = n_made = 0;
    alive_damaged = false;
    for (int i = 0; i < STEPS_MAX && in.at < in.end; i++)
        run_row_step();
    check_read_heartbeats();
    read_and_check_table();
    teffi_store_close(inner);
    teffi_arena_fini(&ctx.arena);
    return 0;
}
