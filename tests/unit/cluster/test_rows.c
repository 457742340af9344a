/* test_rows.c - membership's rows: written and read, and a store whose contents are not as
 * expected. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "cluster.pb-c.h"
#include "cluster/rows.h"
#include "lab.h"

/* A running silo gives a node with a store; the rows of cluster "dev" are its own. */
static lab *l;
static teff_ctx *ctx;

static int setup(void **state)
{
    (void)state;
    l = lab_open(1);
    ctx = l->ctx[0];
    return 0;
}

static int teardown(void **state)
{
    (void)state;
    lab_close(l);
    return 0;
}

static teffi_bytes key(const char *rest)
{
    char *bytes = teff_alloc(ctx, 100);
    int n = snprintf(bytes, 100, "dev%c%s", 0, rest);
    return (teffi_bytes){bytes, (size_t)n};
}

static void put(const char *rest, const void *data, size_t len)
{
    teffi_row row = {.table = "membership", .key = key(rest), .value = {data, len}, .any = true};
    teffi_store_op op = {
        .kind = TEFFI_STORE_WRITE, .rows = &row, .n_rows = 1, .arena = &ctx->arena};
    lab_ok(ctx, teffi_ctx_store(ctx, &op));
}

static void take_out(const char *rest)
{
    teffi_row row = {.table = "membership", .key = key(rest), .any = true, .remove = true};
    teffi_store_op op = {
        .kind = TEFFI_STORE_WRITE, .rows = &row, .n_rows = 1, .arena = &ctx->arena};
    lab_ok(ctx, teffi_ctx_store(ctx, &op));
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
    static uint32_t types[] = {4, 9};
    teffi_rows rows, again;
    (void)state;
    lab_ok(ctx, teffi_rows_read(ctx, &rows));
    assert_int_equal(rows.n, 1);
    assert_true(teffi_node_is(rows.rows[0].member.node, l->silos[0]->node.id));
    teffi_member_row more[2] = {
        {.member = {{1, 5}, TEFFI_LEAVING, "h:1", types, 2}},
        {.member = {{2, 6}, TEFFI_ACTIVE, "[::1]:2", NULL, 0}, .dead = true},
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
    assert_true(again.rows[1].dead);
    teffi_view *view = teffi_rows_view(ctx, &again);
    assert_int_equal(view->n_members, 2); /* a tombstone is not a member */
    teffi_view_unref(view);
}

/* Two writers that read the same version: one of them must read again. */
static void changes_are_in_one_order(void **state)
{
    teffi_rows a, b;
    (void)state;
    lab_ok(ctx, teffi_rows_read(ctx, &a));
    lab_ok(ctx, teffi_rows_read(ctx, &b));
    teffi_member_row one = {.member = {{1, 5}, TEFFI_ACTIVE, "h:1", NULL, 0}};
    teffi_member_row two = {.member = {{2, 5}, TEFFI_ACTIVE, "h:2", NULL, 0}};
    lab_ok(ctx, teffi_rows_write(ctx, &a, &one, 1));
    lab_fails(ctx, teffi_rows_write(ctx, &b, &two, 1), TEFF_E_CONFLICT);
    lab_ok(ctx, teffi_rows_read(ctx, &b));
    assert_int_equal(b.n, 2);
    lab_ok(ctx, teffi_rows_write(ctx, &b, &two, 1));
}

static void malformed(void)
{
    teffi_rows rows;
    lab_fails(ctx, teffi_rows_read(ctx, &rows), TEFF_E_MALFORMED);
    assert_non_null(strstr(teff_error(ctx), "membership"));
    assert_non_null(strstr(teff_error(ctx), "dev"));
}

static void rows_that_are_no_members_are_told(void **state)
{
    static const uint8_t junk[] = {0xff, 0xff, 0xff, 0x01};
    char long_address[300];
    teffi_rows rows;
    (void)state;
    memset(long_address, 'a', sizeof long_address);
    memcpy(long_address + 290, ":1", 3);
    put("m00000001", junk, sizeof junk);
    malformed();
    put("m00000001", "", 0);
    malformed();
    put_member("m00000001", 0x80000001u, 1, "h:1", TEFF__CLUSTER__STATUS__ACTIVE); /* a client */
    malformed();
    put_member("m00000001", 1, 0, "h:1", TEFF__CLUSTER__STATUS__ACTIVE);
    malformed();
    put_member("m00000001", 1, 1, "no port", TEFF__CLUSTER__STATUS__ACTIVE);
    malformed();
    put_member("m00000001", 1, 1, "", TEFF__CLUSTER__STATUS__ACTIVE);
    malformed();
    put_member("m00000001", 1, 1, long_address, TEFF__CLUSTER__STATUS__ACTIVE);
    malformed();
    put_member("m00000001", 1, 1, "h:1", TEFF__CLUSTER__STATUS__NONE);
    malformed();
    put_member("m00000001", 1, 1, "h:1", 99);
    malformed();
    put_member("m00000001", 1, 1, "h:1", TEFF__CLUSTER__STATUS__ACTIVE);
    lab_ok(ctx, teffi_rows_read(ctx, &rows));
    assert_int_equal(rows.n, 2);
}

/* A row under another silo's key would let one silo speak for another. */
static void a_row_under_a_foreign_key_is_told(void **state)
{
    (void)state;
    put_member("m00000002", 1, 1, "h:1", TEFF__CLUSTER__STATUS__ACTIVE);
    malformed();
    take_out("m00000002");
    put_member("x", 1, 1, "h:1", TEFF__CLUSTER__STATUS__ACTIVE);
    malformed();
    take_out("x");
}

/* Damage does not take a running silo down: it goes on with the view it has, and heals. */
static void a_running_silo_survives_damage(void **state)
{
    static const uint8_t junk[] = {0xff};
    lab_number *out;
    teff_silo *silo;
    char text[TEFF_TEXT_MAX] = "";
    (void)state;
    lab *two = lab_open(2);
    lab *before = l;
    l = two;
    ctx = two->ctx[0];
    put("m00000001", junk, sizeof junk);
    malformed();
    teff_silo_options opt = {.silent = 1, .store = two->store};
    assert_int_equal(teff_silo_new(&opt, &silo, text), TEFF_OK);
    assert_int_equal(teff_silo_start(silo, text), TEFF_E_MALFORMED);
    assert_non_null(strstr(text, "membership"));
    teff_silo_free(silo);
    lab_ok(ctx, lab_account_add(ctx, "a", lab_number(.n = 1), &out));
    take_out("m00000001");
    lab_add(two);
    lab_until(teff_silo_members(two->silos[0]) == 3);
    ctx = before->ctx[0];
    l = before;
    lab_close(two);
}

/* Silos on any free port leave a tombstone each: only the newest are kept. */
static void old_tombstones_are_forgotten(void **state)
{
    enum { DEAD = 60, KEPT_MAX = TEFFI_TOMBSTONES_MAX + 1 };
    teffi_rows rows;
    char rest[20];
    size_t dead = 0;
    (void)state;
    lab *two = lab_open(2);
    ctx = two->ctx[0];
    for (uint32_t i = 1; i <= DEAD; i++) {
        snprintf(rest, sizeof rest, "m%08x", i);
        put_member(rest, i, 1000 + i, "h:1", TEFF__CLUSTER__STATUS__DEAD);
    }
    for (int i = 0; i < 3; i++)
        assert_int_equal(lab_remove(two, lab_add(two)), TEFF_OK);
    lab_ok(ctx, teffi_rows_read(ctx, &rows));
    for (size_t i = 0; i < rows.n; i++) {
        dead += rows.rows[i].dead;
        if (rows.rows[i].member.node.silo <= DEAD)
            assert_true(rows.rows[i].member.node.incarnation > 1000 + DEAD - KEPT_MAX);
    }
    assert_in_range(dead, 1, KEPT_MAX);
    lab_close(two);
    ctx = l->ctx[0];
}

static void alive_figures_are_of_one_incarnation(void **state)
{
    uint64_t figure;
    teffi_node_id id = l->silos[0]->node.id;
    (void)state;
    lab_ok(ctx, teffi_alive_write(ctx, 12345));
    lab_ok(ctx, teffi_alive_read(ctx, id, &figure));
    assert_true(figure >= 12345);
    id.incarnation++;
    lab_ok(ctx, teffi_alive_read(ctx, id, &figure));
    assert_int_equal(figure, 0);
    id.silo++;
    lab_ok(ctx, teffi_alive_read(ctx, id, &figure));
    assert_int_equal(figure, 0);
}

int main(void)
{
#define ROWS(f) cmocka_unit_test_setup_teardown(f, setup, teardown)
    const struct CMUnitTest tests[] = {
        ROWS(what_was_written_is_read),
        ROWS(changes_are_in_one_order),
        ROWS(rows_that_are_no_members_are_told),
        ROWS(a_row_under_a_foreign_key_is_told),
        ROWS(a_running_silo_survives_damage),
        ROWS(old_tombstones_are_forgotten),
        ROWS(alive_figures_are_of_one_incarnation),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
