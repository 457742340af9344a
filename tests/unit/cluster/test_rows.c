/* test_rows.c - membership's rows: written and read, and a store whose contents are not as
 * expected. */
#include <pthread.h>
#include <sqlite3.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "call/task.h"
#include "cluster.pb-c.h"
#include "cluster/join.h"
#include "cluster/membership.h"
#include "cluster/rows.h"
#include "node/ask.h"
#include "lab.h"

teff_err __real_teffi_unpack(const ProtobufCMessageDescriptor *desc, const uint8_t *data,
                             size_t len, teff_arena *arena, ProtobufCMessage **msg);
teff_err __wrap_teffi_unpack(const ProtobufCMessageDescriptor *desc, const uint8_t *data,
                             size_t len, teff_arena *arena, ProtobufCMessage **msg);

/* The arena that lacks memory for such messages; atomic as the silo's threads unpack, too. */
static teff_arena *_Atomic scarce;
static const ProtobufCMessageDescriptor *lacking;

teff_err __wrap_teffi_unpack(const ProtobufCMessageDescriptor *desc, const uint8_t *data,
                             size_t len, teff_arena *arena, ProtobufCMessage **msg)
{
    return arena == atomic_load(&scarce) && desc == lacking
               ? TEFF_E_NOMEM
               : __real_teffi_unpack(desc, data, len, arena, msg);
}

/* A running silo gives a node with a store; the rows of cluster "dev" are its own. */
static lab *l;
static teff_ctx *ctx;

static _Atomic unsigned told_of_skipped; /* lines in the silo's log */

static void count_skipped(void *arg, teff_log_level level, const char *line)
{
    if (strstr(line, "are no member's and are skipped"))
        atomic_fetch_add(&told_of_skipped, 1);
}

static void log_to_test(teff_silo *silo)
{
    silo->platform.log.write = count_skipped;
}

static int setup(void **state)
{
    atomic_store(&told_of_skipped, 0);
    l = lab_open_more(1, log_to_test);
    ctx = l->ctx[0];
    return 0;
}

static int teardown(void **state)
{
    lab_close(l);
    return 0;
}

static teffi_bytes key(const char *rest)
{
    char *bytes = teff_alloc(ctx, 100);
    int n = snprintf(bytes, 100, "dev%c%s", 0, rest);
    return (teffi_bytes){bytes, (size_t)n};
}

static void put_in(const char *table, const char *rest, const void *data, size_t len)
{
    teffi_row row = {.table = table, .key = key(rest), .value = {data, len}, .any = true};
    teffi_store_op op = {
        .kind = TEFFI_STORE_WRITE, .rows = &row, .n_rows = 1, .arena = &ctx->arena};
    lab_ok(ctx, teffi_ctx_run_store_op(ctx, &op));
}

static void put(const char *rest, const void *data, size_t len)
{
    put_in("membership", rest, data, len);
}

static void take_out(const char *rest)
{
    teffi_row row = {.table = "membership", .key = key(rest), .any = true, .remove = true};
    teffi_store_op op = {
        .kind = TEFFI_STORE_WRITE, .rows = &row, .n_rows = 1, .arena = &ctx->arena};
    lab_ok(ctx, teffi_ctx_run_store_op(ctx, &op));
}

static void put_member(const char *rest, uint32_t silo, uint32_t incarnation, const char *address,
                       int status)
{
    Teff__Cluster__Member m = TEFF__CLUSTER__MEMBER__INIT;
    Teff__Cluster__Node node = TEFF__CLUSTER__NODE__INIT;
    uint8_t data[2000];
    node.silo = silo;
    node.incarnation = incarnation;
    m.node = &node;
    m.address = (char *)(uintptr_t)address;
    m.status = (Teff__Cluster__Status)status;
    put(rest, data, protobuf_c_message_pack(&m.base, data));
}

static void what_was_written_is_read(void **state)
{
    static uint32_t types[] = {4, 9}, versions[] = {0, 63};
    teffi_rows rows, again;
    lab_ok(ctx, teffi_rows_read(ctx, &rows));
    assert_int_equal(rows.n, 1);
    assert_true(teffi_node_equals(rows.rows[0].member.node, l->silos[0]->node.id));
    teffi_member_row more[2] = {
        {.member = {{1, 5}, TEFFI_LEAVING, "h:1", types, 2, versions, 2, TEFFI_LEASE_MS, 0, {7}}},
        {.member = {{2, 6}, TEFFI_ACTIVE, "[::1]:2", NULL, 0, NULL, 0, TEFFI_LEASE_MS, 0, {0}},
         .dead = true},
    };
    lab_ok(ctx, teffi_rows_write(ctx, &rows, more, 2));
    lab_ok(ctx, teffi_rows_read(ctx, &again));
    assert_int_equal(again.version, rows.version + 1);
    assert_int_equal(again.n, 3);
    assert_int_equal(again.rows[0].member.node.silo, 1);
    assert_int_equal(again.rows[0].member.status, TEFFI_LEAVING);
    assert_string_equal(again.rows[0].member.address, "h:1");
    assert_int_equal(again.rows[0].member.n_types, 2);
    assert_int_equal(again.rows[0].member.types[1], 9);
    assert_int_equal(teffi_member_type_version(&again.rows[0].member, 4), 0);
    assert_int_equal(teffi_member_type_version(&again.rows[0].member, 9), 63);
    assert_memory_equal(again.rows[0].member.key, more[0].member.key, TEFFI_KEY_BYTES);
    assert_memory_equal(again.rows[1].member.key, more[1].member.key, TEFFI_KEY_BYTES);
    assert_int_equal(again.rows[1].member.n_versions, 0);
    assert_true(again.rows[1].dead);
    teffi_view *view = teffi_rows_make_view(ctx, &again);
    assert_int_equal(view->n_members, 2); /* a tombstone is not a member */
    teffi_view_unref(view);
}

/* Two writers that read the same version: one of them must read again. */
static void changes_are_in_one_order(void **state)
{
    teffi_rows a, b;
    lab_ok(ctx, teffi_rows_read(ctx, &a));
    lab_ok(ctx, teffi_rows_read(ctx, &b));
    teffi_member_row one = {
        .member = {{1, 5}, TEFFI_ACTIVE, "h:1", NULL, 0, NULL, 0, TEFFI_LEASE_MS, 0, {0}}};
    teffi_member_row two = {
        .member = {{2, 5}, TEFFI_ACTIVE, "h:2", NULL, 0, NULL, 0, TEFFI_LEASE_MS, 0, {0}}};
    lab_ok(ctx, teffi_rows_write(ctx, &a, &one, 1));
    lab_fails(ctx, teffi_rows_write(ctx, &b, &two, 1), TEFF_E_CONFLICT);
    lab_ok(ctx, teffi_rows_read(ctx, &b));
    assert_int_equal(b.n, 2);
    lab_ok(ctx, teffi_rows_write(ctx, &b, &two, 1));
}

/* With its next heartbeat a silo adopts a change that nobody told it. */
static void a_change_is_found_without_being_told(void **state)
{
    teffi_rows rows;
    lab_ok(ctx, teffi_rows_read(ctx, &rows));
    teffi_member_row other = {
        .member = {{1, 5}, TEFFI_ACTIVE, "h:1", NULL, 0, NULL, 0, TEFFI_LEASE_MS, 0, {0}}};
    lab_ok(ctx, teffi_rows_write(ctx, &rows, &other, 1));
    lab_until(teffi_membership_version(&l->silos[0]->node) > rows.version);
    assert_int_equal(teff_silo_members(l->silos[0]), 2);
}

/* Without heartbeats. A look waits until the one before is some time ago. */
static void a_look_finds_a_change(void **state)
{
    enum { LOOKS = 3, APART_MS = 100 };
    teffi_membership *m = l->silos[0]->node.membership;
    teffi_membership_stop_timers(m);
    for (uint32_t i = 1; i <= LOOKS; i++) {
        teffi_rows rows;
        uint64_t before_ns = m->follow.looked_ns;
        lab_ok(ctx, teffi_rows_read(ctx, &rows));
        teffi_member_row other = {
            .member = {{i, 5}, TEFFI_ACTIVE, "h:1", NULL, 0, NULL, 0, TEFFI_LEASE_MS, 0, {0}}};
        lab_ok(ctx, teffi_rows_write(ctx, &rows, &other, 1));
        teffi_membership_refresh_soon(m);
        lab_until(teffi_membership_version(&l->silos[0]->node) > rows.version);
        assert_true(m->follow.looked_ns >= before_ns + APART_MS * 1000000u);
    }
}

/* Also one that has found nothing: who waited for it looks on. */
static void a_read_of_the_table_is_a_change(void **state)
{
    teffi_membership *m = l->silos[0]->node.membership;
    teffi_membership_stop_timers(m);
    lab_until(teffi_tasks_count_running(&l->silos[0]->node.home) == 0);
    uint64_t version = teffi_membership_version(&l->silos[0]->node), seen = m->follow.changes.count;
    lab_fails(ctx, teffi_membership_refresh(ctx, version + 1), TEFF_E_TIMEOUT);
    assert_true(m->follow.changes.count > seen);
}

/* One row beside the silo's own, which is no member's: it counts as a dead silo's. */
static void skipped(void)
{
    teffi_rows rows;
    lab_ok(ctx, teffi_rows_read(ctx, &rows));
    assert_int_equal(rows.junk, 1);
    for (size_t i = 0; i < rows.n; i++)
        assert_true(rows.rows[i].dead !=
                    teffi_node_equals(rows.rows[i].member.node, l->silos[0]->node.id));
    teffi_view *view = teffi_rows_make_view(ctx, &rows);
    assert_int_equal(view->n_members, 1);
    teffi_view_unref(view);
}

/* A member without an id. */
static void put_nobody(const char *rest)
{
    Teff__Cluster__Member m = TEFF__CLUSTER__MEMBER__INIT;
    uint8_t data[100];
    m.address = (char *)(uintptr_t) "h:1";
    m.status = TEFF__CLUSTER__STATUS__ACTIVE;
    put(rest, data, protobuf_c_message_pack(&m.base, data));
}

static void rows_that_are_no_members_are_skipped(void **state)
{
    static const uint8_t junk[] = {0xff, 0xff, 0xff, 0x01};
    char long_address[300];
    teffi_rows rows;
    memset(long_address, 'a', sizeof long_address);
    memcpy(long_address + 290, ":1", 3);
    put("m00000001", junk, sizeof junk);
    skipped();
    put("m00000001", "", 0);
    skipped();
    take_out("m00000001");
    put_member("m80000001", 0x80000001u, 1, "h:1", TEFF__CLUSTER__STATUS__ACTIVE); /* a client */
    skipped();
    take_out("m80000001");
    put_nobody("m00000001");
    skipped();
    put_member("m00000001", 1, 0, "h:1", TEFF__CLUSTER__STATUS__ACTIVE);
    skipped();
    put_member("m00000001", 1, 1, "no port", TEFF__CLUSTER__STATUS__ACTIVE);
    skipped();
    put_member("m00000001", 1, 1, "", TEFF__CLUSTER__STATUS__ACTIVE);
    skipped();
    put_member("m00000001", 1, 1, long_address, TEFF__CLUSTER__STATUS__ACTIVE);
    skipped();
    put_member("m00000001", 1, 1, "h:1", TEFF__CLUSTER__STATUS__NONE);
    skipped();
    put_member("m00000001", 1, 1, "h:1", 99);
    skipped();
    put_member("m00000001", 1, 1, "h:1", TEFF__CLUSTER__STATUS__ACTIVE);
    lab_ok(ctx, teffi_rows_read(ctx, &rows));
    assert_int_equal(rows.n, 2);
    assert_int_equal(rows.junk, 0);
}

/* A row under another silo's key would let one silo speak for another. */
static void expect_rows(size_t n, size_t junk)
{
    teffi_rows rows;
    lab_ok(ctx, teffi_rows_read(ctx, &rows));
    assert_int_equal(rows.n, n);
    assert_int_equal(rows.junk, junk);
}

static void expect_no_memory_for(const ProtobufCMessageDescriptor *desc)
{
    teffi_rows rows;
    lacking = desc;
    atomic_store(&scarce, &ctx->arena);
    teff_err err = teffi_rows_read(ctx, &rows);
    atomic_store(&scarce, NULL);
    assert_int_equal(err, TEFF_E_NOMEM);
    assert_string_equal(teff_error(ctx), "store: out of memory to read table membership");
}

/* Or the reader would take a live silo for a dead one, and perhaps itself. */
static void a_row_without_memory_to_read_it_is_not_skipped(void **state)
{
    expect_no_memory_for(&teff__cluster__member__descriptor);
    expect_no_memory_for(&teff__cluster__version_row__descriptor);
    expect_rows(1, 0);
}

static void a_row_under_a_foreign_key_is_skipped(void **state)
{
    static const char *const keys[] = {"m00000002", "x", "", "m0000001", "m0000000g"};
    for (size_t i = 0; i < sizeof keys / sizeof keys[0]; i++) {
        put_member(keys[i], 1, 1, "h:1", TEFF__CLUSTER__STATUS__ACTIVE);
        skipped();
        take_out(keys[i]);
    }
}

/* Without the table's version views have no order: this one is not passed over. */
static void a_damaged_version_row_is_told(void **state)
{
    static const uint8_t junk[] = {0xff};
    teffi_rows rows;
    uint64_t version;
    put("v", junk, sizeof junk);
    lab_fails(ctx, teffi_rows_read(ctx, &rows), TEFF_E_MALFORMED);
    assert_non_null(strstr(teff_error(ctx), "version row of cluster dev"));
    lab_fails(ctx, teffi_rows_read_version(ctx, &version), TEFF_E_MALFORMED);
    put("v", "", 0);
}

static void read_thrice(void)
{
    teffi_rows rows;
    for (int i = 0; i < 3; i++)
        lab_ok(ctx, teffi_membership_read_table(ctx, &rows));
}

/* The silo reads its table by itself too: the log has one line for all that read. */
static void rows_that_are_skipped_are_logged_once(void **state)
{
    static const uint8_t junk[] = {0xff};
    read_thrice();
    assert_int_equal(atomic_load(&told_of_skipped), 0);
    put("m00000001", junk, sizeof junk);
    read_thrice();
    assert_int_equal(atomic_load(&told_of_skipped), 1);
    put("m00000002", junk, sizeof junk);
    read_thrice();
    assert_int_equal(atomic_load(&told_of_skipped), 2);
}

static teff_silo *start_with(const teff_silo_options *opt)
{
    char text[TEFF_TEXT_MAX] = "";
    teff_silo *silo;
    assert_int_equal(teff_silo_new(opt, &silo, text), TEFF_OK);
    if (teff_silo_start(silo, text))
        fail_msg("%s", text);
    return silo;
}

static teff_silo *start_at(const char *store, const char *address)
{
    teff_silo_options opt = {.size = sizeof opt, .silent = 1, .store = store, .listen = address};
    return start_with(&opt);
}

static void does_not_start(const char *store, const char *says)
{
    char text[TEFF_TEXT_MAX] = "";
    teff_silo *silo;
    teff_silo_options opt = {.size = sizeof opt, .silent = 1, .store = store};
    assert_int_equal(teff_silo_new(&opt, &silo, text), TEFF_OK);
    assert_int_equal(teff_silo_start(silo, text), TEFF_E_MALFORMED);
    if (!strstr(text, store) || !strstr(text, says))
        fail_msg("\"%s\" does not name %s, or say %s", text, store, says);
    teff_silo_free(silo);
}

/* As an operator does it. */
static void remove_members(const char *store)
{
    sqlite3 *db;
    assert_int_equal(sqlite3_open(store + strlen("sqlite:"), &db), SQLITE_OK);
    assert_int_equal(sqlite3_exec(db,
                                  "DELETE FROM rows WHERE tab IN ('membership', 'alive') AND "
                                  "hex(substr(key, 1, 4)) = '64657600'", /* dev\0 */
                                  NULL, NULL, NULL),
                     SQLITE_OK);
    assert_true(sqlite3_changes(db) >= 2);
    assert_int_equal(sqlite3_close(db), SQLITE_OK);
}

/* What the text tells to do helps. */
static void a_silo_starts_when_a_damaged_version_row_is_removed(void **state)
{
    static const uint8_t junk[] = {0xff};
    char store[512];
    lab_fresh_store(store);
    teff_silo *silo = start_at(store, "127.0.0.1:0");
    ctx = teff_silo_new_ctx(silo);
    put("v", junk, sizeof junk);
    does_not_start(store, "from the tables \"membership\" and \"alive\"");
    teff_ctx_free(ctx);
    ctx = l->ctx[0];
    (void)teff_silo_stop(silo, 1);
    teff_silo_free(silo);
    does_not_start(store, "from the tables \"membership\" and \"alive\"");
    remove_members(store);
    silo = start_at(store, "127.0.0.1:0");
    assert_int_equal(teff_silo_members(silo), 1);
    assert_int_equal(teff_silo_stop(silo, 0), TEFF_OK);
    teff_silo_free(silo);
    lab_drop_store(store);
}

/* Others' rows and its own, in both tables. */
static void a_silo_starts_whatever_rows_hold(void **state)
{
    static const uint8_t junk[] = {0xff};
    char own[20], address[TEFFI_ADDRESS_MAX + 1];
    lab_number *out;
    lab *two = lab_open(2);
    ctx = two->ctx[0];
    int added = lab_add(two); /* for an address */
    uint32_t id = two->silos[added]->node.id.silo;
    snprintf(address, sizeof address, "%s", teff_silo_address(two->silos[added]));
    snprintf(own, sizeof own, "m%08x", id);
    assert_int_equal(lab_remove(two, added), TEFF_OK);
    put("m00000001", junk, sizeof junk);
    put("nonsense", junk, sizeof junk);
    put(own, junk, sizeof junk);
    put_in("alive", own, junk, sizeof junk);
    put_in("alive", "m00000001", junk, sizeof junk);
    teff_silo *silo = start_at(two->store, address);
    assert_int_equal(silo->node.id.silo, id);
    lab_until(teff_silo_members(two->silos[0]) == 3);
    assert_int_equal(teff_silo_members(silo), 3);
    lab_ok(ctx, lab_account_add(ctx, "a", lab_number(.n = 1), &out));
    assert_int_equal(teff_silo_stop(silo, 0), TEFF_OK);
    teff_silo_free(silo);
    lab_close(two);
    ctx = l->ctx[0];
}

/* ---- many rows ---- */

enum { MANY = 4234, CHANGES = 60, ONE_SCAN = 1234 };

static teffi_store counting_store, *counted_store;
static pthread_t reader; /* whose scans count: the silo reads the table, too */
static unsigned scans;

static void count_scan(teffi_store *store, teffi_store_op *op)
{
    (void)store;
    if (pthread_equal(pthread_self(), reader))
        scans += op->kind == TEFFI_STORE_SCAN;
    counted_store->ops->submit(counted_store, op);
}

/* out: how many scans one reading of the table takes. */
static unsigned count_scans_of_a_reading(teffi_rows *rows)
{
    static const teffi_store_ops ops = {.submit = count_scan};
    teffi_node *node = &l->silos[0]->node;
    counting_store.ops = &ops;
    counted_store = node->store;
    scans = 0;
    reader = pthread_self();
    node->store = &counting_store;
    lab_ok(ctx, teffi_rows_read(ctx, rows));
    node->store = counted_store;
    return scans;
}

static void change_first_and_last(teff_ctx *mine, uint32_t incarnation)
{
    teffi_rows rows;
    teff_err err = TEFF_E_CONFLICT;
    teffi_member_row changed[2];
    while (err == TEFF_E_CONFLICT) {
        lab_ok(mine, teffi_rows_read(mine, &rows));
        changed[0] = rows.rows[0];
        changed[1] = rows.rows[MANY - 1];
        changed[0].member.node.incarnation = changed[1].member.node.incarnation = incarnation;
        err = teffi_rows_write(mine, &rows, changed, 2);
    }
    lab_ok(mine, err);
}

static void *change_often(void *arg)
{
    for (uint32_t i = 0; i < CHANGES; i++) {
        change_first_and_last(arg, i + 2);
        teff_ctx_reset(arg);
    }
    return NULL;
}

/* A table of some thousand silos is read in one operation, so that it has one version, also while
 * many silos join. More rows are read in pieces, which are of one version, too. */
static void a_table_of_many_rows_is_read_whole(void **state)
{
    pthread_t thread;
    teffi_rows rows;
    char rest[20];
    for (uint32_t i = 1; i <= MANY; i++) {
        snprintf(rest, sizeof rest, "m%08x", i);
        put_member(rest, i, 1, "h:1", TEFF__CLUSTER__STATUS__DEAD);
        if (i == ONE_SCAN)
            assert_int_equal(count_scans_of_a_reading(&rows), 1);
    }
    assert_true(count_scans_of_a_reading(&rows) > 1);
    assert_int_equal(rows.n, MANY + 1);
    assert_int_equal(rows.junk, 0);
    uint64_t last = rows.version + CHANGES;
    teff_ctx *other = teff_silo_new_ctx(l->silos[0]);
    assert_int_equal(pthread_create(&thread, NULL, change_often, other), 0);
    while (rows.version < last) {
        teff_ctx_reset(ctx);
        teff_err err = teffi_rows_read(ctx, &rows);
        if (err != TEFF_E_TIMEOUT) { /* it changed too often for us */
            lab_ok(ctx, err);
            assert_int_equal(rows.n, MANY + 1);
            assert_int_equal(rows.rows[0].member.node.incarnation,
                             rows.rows[MANY - 1].member.node.incarnation);
        }
    }
    pthread_join(thread, NULL);
    teff_ctx_free(other);
}

/* ---- silos that are gone ---- */

static size_t alive_rows(void)
{
    teffi_row row = {.table = "alive", .key = key("")};
    teffi_store_op op = {.kind = TEFFI_STORE_SCAN,
                         .rows = &row,
                         .n_rows = 1,
                         .to = key("n"),
                         .limit = 500,
                         .arena = &ctx->arena};
    lab_ok(ctx, teffi_ctx_run_store_op(ctx, &op));
    return op.n_found;
}

/* Silos on any free port leave a tombstone each: only the newest are kept, and of silos that left
 * no heartbeat. Their incarnations are not used again. */
static void old_tombstones_are_forgotten(void **state)
{
    enum { DEAD = 60, KEPT_MAX = TEFFI_TOMBSTONES_MAX + 1, LATE = 0x70000000 };
    teffi_rows rows;
    char rest[20];
    size_t dead = 0;
    lab *two = lab_open(2);
    ctx = two->ctx[0];
    for (uint32_t i = 1; i <= DEAD; i++) {
        snprintf(rest, sizeof rest, "m%08x", i);
        put_member(rest, i, LATE + i, "h:1", TEFF__CLUSTER__STATUS__DEAD);
    }
    for (int i = 0; i < 3; i++) {
        int added = lab_add(two);
        assert_int_equal(lab_remove(two, added), TEFF_OK);
    }
    lab_ok(ctx, teffi_rows_read(ctx, &rows));
    for (size_t i = 0; i < rows.n; i++)
        dead += rows.rows[i].dead;
    assert_in_range(dead, 1, KEPT_MAX);
    assert_int_equal(alive_rows(), 2);
    assert_true(rows.forgotten > LATE);
    int added = lab_add(two);
    assert_true(two->silos[added]->node.id.incarnation > rows.forgotten);
    lab_close(two);
    ctx = l->ctx[0];
}

/* Declared dead, and the row is deleted before it looks: it is in no view any more. */
static void a_silo_whose_row_is_deleted_learns_that_it_is_dead(void **state)
{
    teffi_rows rows;
    lab *two = lab_open(2);
    teffi_node *node = &two->silos[1]->node;
    lab_ok(two->ctx[0], teffi_rows_read(two->ctx[0], &rows));
    for (size_t i = 0; i < rows.n; i++)
        if (teffi_node_equals(rows.rows[i].member.node, node->id)) {
            teffi_member_row gone = rows.rows[i];
            gone.dead = gone.forget = true;
            lab_ok(two->ctx[0], teffi_rows_write(two->ctx[0], &rows, &gone, 1));
        }
    assert_false(teffi_lease_is_over(&node->home.lease));
    lab_ok(two->ctx[1], teffi_membership_refresh(two->ctx[1], 0));
    assert_true(teffi_lease_is_over(&node->home.lease));
    lab_close(two);
}

static void each_heartbeat_has_another_etag(void **state)
{
    uint64_t first, second;
    teffi_node_id id = l->silos[0]->node.id;
    lab_ok(ctx, lab_beat(ctx));
    lab_ok(ctx, lab_read_alive(ctx, id, &first));
    lab_ok(ctx, lab_beat(ctx));
    lab_ok(ctx, lab_read_alive(ctx, id, &second));
    assert_true(second > first && first > 0);
    id.silo++;
    lab_ok(ctx, lab_read_alive(ctx, id, &first));
    assert_int_equal(first, 0);
}

/* ---- rows whose stored bytes are not those that were written ---- */

/* out: of how many rows. */
static int damage(const char *store, const char *where)
{
    sqlite3 *db;
    char sql[200];
    snprintf(sql, sizeof sql, "UPDATE rows SET sum = sum + 1 WHERE %s", where);
    assert_int_equal(sqlite3_open(store + strlen("sqlite:"), &db), SQLITE_OK);
    assert_int_equal(sqlite3_busy_timeout(db, 10000), SQLITE_OK);
    assert_int_equal(sqlite3_exec(db, sql, NULL, NULL, NULL), SQLITE_OK);
    int n = sqlite3_changes(db);
    assert_int_equal(sqlite3_close(db), SQLITE_OK);
    return n;
}

static int damage_rest(const char *store, const char *rest)
{
    char where[100];
    snprintf(where, sizeof where, "hex(substr(key, 5)) = hex('%s')", rest);
    return damage(store, where);
}

/* How a second silo gets at the rows: from the first, or from the file. */
static teff_silo *start_second(teff_silo *first, const char *store, const char *address, bool lent)
{
    teff_silo_options opt = {.size = sizeof opt, .silent = 1, .listen = address};
    if (lent)
        opt.seeds[0] = teff_silo_address(first);
    else
        opt.store = store;
    return start_with(&opt);
}

/* Others' rows and its own, in both tables. */
static void starts_among_damaged_rows(bool lent)
{
    char store[512], own[20], address[TEFFI_ADDRESS_MAX + 1];
    lab_fresh_store(store);
    teff_silo *first = start_at(store, "127.0.0.1:0");
    teff_silo *second = start_second(first, store, "127.0.0.1:0", lent);
    uint32_t id = second->node.id.silo;
    snprintf(address, sizeof address, "%s", teff_silo_address(second));
    snprintf(own, sizeof own, "m%08x", id);
    assert_int_equal(teff_silo_stop(second, 0), TEFF_OK);
    teff_silo_free(second);
    ctx = teff_silo_new_ctx(first);
    put_member("m00000001", 1, 1, "h:1", TEFF__CLUSTER__STATUS__ACTIVE);
    put_in("alive", "m00000001", "", 0);
    put_member("mffffffff", 1, 1, "h:1", TEFF__CLUSTER__STATUS__ACTIVE); /* behind all silos' */
    put_in("alive", own, "", 0);
    assert_int_equal(damage_rest(store, "m00000001"), 2);
    assert_int_equal(damage_rest(store, "mffffffff"), 1);
    assert_int_equal(damage_rest(store, own), 2);
    expect_rows(4, 3);
    second = start_second(first, store, address, lent);
    assert_int_equal(second->node.id.silo, id);
    assert_int_equal(teff_silo_members(second), 2);
    lab_until(teff_silo_members(first) == 2);
    expect_rows(4, 2);
    assert_int_equal(teff_silo_stop(second, 0), TEFF_OK);
    teff_silo_free(second);
    teff_ctx_free(ctx);
    assert_int_equal(teff_silo_stop(first, 0), TEFF_OK);
    teff_silo_free(first);
    lab_drop_store(store);
    ctx = l->ctx[0];
}

static void a_silo_starts_among_damaged_rows(void **state)
{
    starts_among_damaged_rows(false);
}

static void a_borrower_starts_among_damaged_rows(void **state)
{
    starts_among_damaged_rows(true);
}

/* They count among those of dead silos. */
static void damaged_rows_are_forgotten(void **state)
{
    enum { DAMAGED = 60, KEPT_MAX = TEFFI_TOMBSTONES_MAX + 1 };
    teffi_rows rows;
    char rest[20];
    lab *two = lab_open(2);
    ctx = two->ctx[0];
    for (uint32_t i = 1; i <= DAMAGED; i++) {
        snprintf(rest, sizeof rest, "m%08x", i);
        put_member(rest, i, 1, "h:1", TEFF__CLUSTER__STATUS__DEAD);
    }
    assert_int_equal(damage(two->store, "hex(substr(key, 5, 7)) = hex('m000000')"), DAMAGED);
    for (int i = 0; i < 3; i++) {
        int added = lab_add(two);
        assert_int_equal(lab_remove(two, added), TEFF_OK);
    }
    lab_ok(ctx, teffi_rows_read(ctx, &rows));
    assert_in_range(rows.n, 2, KEPT_MAX + 2);
    assert_int_equal(alive_rows(), 2);
    lab_close(two);
    ctx = l->ctx[0];
}

/* A silo is not silent for it. */
static void a_damaged_figure_is_written_anew(void **state)
{
    uint64_t figure;
    lab *two = lab_open(2);
    ctx = two->ctx[0];
    lab_ok(ctx, lab_beat(ctx));
    assert_int_equal(damage(two->store, "tab = 'alive'"), 2);
    lab_ok(ctx, lab_beat(ctx));
    lab_ok(ctx, lab_read_alive(ctx, two->silos[0]->node.id, &figure));
    assert_int_not_equal(figure, 0);
    lab_close(two);
    ctx = l->ctx[0];
}

/* The text is as for one that does not decode. */
static void a_version_row_with_a_bad_checksum_is_told(void **state)
{
    char store[512];
    lab_fresh_store(store);
    teff_silo *silo = start_at(store, "127.0.0.1:0");
    assert_int_equal(teff_silo_stop(silo, 0), TEFF_OK);
    teff_silo_free(silo);
    assert_int_equal(damage_rest(store, "v"), 1);
    does_not_start(store, "from the tables \"membership\" and \"alive\"");
    lab_drop_store(store);
}

int main(void)
{
#define ROWS(f) cmocka_unit_test_setup_teardown(f, setup, teardown)
    const struct CMUnitTest tests[] = {
        ROWS(what_was_written_is_read),
        ROWS(changes_are_in_one_order),
        ROWS(a_change_is_found_without_being_told),
        ROWS(a_look_finds_a_change),
        ROWS(a_read_of_the_table_is_a_change),
        ROWS(rows_that_are_no_members_are_skipped),
        ROWS(a_row_without_memory_to_read_it_is_not_skipped),
        ROWS(a_row_under_a_foreign_key_is_skipped),
        ROWS(rows_that_are_skipped_are_logged_once),
        ROWS(a_damaged_version_row_is_told),
        ROWS(a_silo_starts_when_a_damaged_version_row_is_removed),
        ROWS(a_silo_starts_whatever_rows_hold),
        ROWS(a_table_of_many_rows_is_read_whole),
        ROWS(old_tombstones_are_forgotten),
        ROWS(a_silo_whose_row_is_deleted_learns_that_it_is_dead),
        ROWS(each_heartbeat_has_another_etag),
        ROWS(a_silo_starts_among_damaged_rows),
        ROWS(a_borrower_starts_among_damaged_rows),
        ROWS(damaged_rows_are_forgotten),
        ROWS(a_damaged_figure_is_written_anew),
        ROWS(a_version_row_with_a_bad_checksum_is_told),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
