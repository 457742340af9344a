/* test_outsider_rows.c - which operations on its store a silo allows: members all of them,
 * strangers and silos that left reads of the members, the batch by which they join, and their
 * heartbeats, dead silos none. */
#include "cluster/membership.h"

#include <stdio.h>
#include <string.h>
#include "cluster.pb-c.h"
#include "message/codec.h"
#include "test.h"

enum { VERSION = 3, ETAG = 11, ROWS_MAX = 4 };

static const teffi_node_id member = {7, 5}, left = {8, 5}, dead = {9, 5}, stranger = {10, 5};

static teffi_node node;
static teff_arena arena;
static char text[TEFF_TEXT_MAX];

static void view_table(uint64_t table_etag)
{
    const teffi_member members[] = {{.node = member, .status = TEFFI_ACTIVE},
                                    {.node = left, .status = TEFFI_LEFT},
                                    {.node = dead, .status = TEFFI_DEAD}};
    const teffi_view *old = node.view;
    teffi_view *view = teffi_view_new(VERSION, members, 3);
    assert_non_null(view);
    view->table_etag = table_etag;
    node.view = view;
    teffi_view_unref(old);
}

static int setup(void **state)
{
    memset(&node, 0, sizeof node);
    pthread_mutex_init(&node.lock, NULL);
    snprintf(node.cluster, sizeof node.cluster, "dev");
    teffi_arena_init(&arena, NULL, 0, SIZE_MAX);
    view_table(ETAG);
    return 0;
}

static int teardown(void **state)
{
    teffi_view_unref(node.view);
    node.view = NULL;
    pthread_mutex_destroy(&node.lock);
    teffi_arena_free_memory(&arena);
    return 0;
}

/* ---- rows ---- */

static teffi_bytes key_in(const char *cluster, char mark, const char *rest)
{
    char *bytes = teff_arena_alloc(&arena, 100);
    assert_non_null(bytes);
    int n = snprintf(bytes, 100, "%s%c%s", cluster, mark, rest);
    return (teffi_bytes){bytes, (size_t)n};
}

static teffi_bytes key_of(teffi_node_id silo)
{
    char rest[16];
    snprintf(rest, sizeof rest, "m%08x", silo.silo);
    return key_in("dev", 0, rest);
}

static teffi_bytes packed(const ProtobufCMessage *msg)
{
    size_t n = teffi_packed_size(msg);
    uint8_t *data = teff_arena_alloc(&arena, n + 1);
    assert_non_null(data);
    teffi_pack(msg, n, data);
    return (teffi_bytes){data, n};
}

static teffi_row version_row(uint64_t version)
{
    Teff__Cluster__VersionRow value = TEFF__CLUSTER__VERSION_ROW__INIT;
    value.version = version;
    return (teffi_row){.table = "membership",
                       .key = key_in("dev", 0, "v"),
                       .etag = ETAG,
                       .value = packed(&value.base)};
}

/* The row with the key of one silo, and the content of another. */
static teffi_row member_row(teffi_node_id key, teffi_node_id content)
{
    Teff__Cluster__Member value = TEFF__CLUSTER__MEMBER__INIT;
    Teff__Cluster__Node id = TEFF__CLUSTER__NODE__INIT;
    id.silo = content.silo;
    id.incarnation = content.incarnation;
    value.node = &id;
    return (teffi_row){.table = "membership", .key = key_of(key), .value = packed(&value.base)};
}

static teffi_row row_of(const char *table, teffi_node_id silo, bool removes)
{
    return (teffi_row){.table = table, .key = key_of(silo), .any = true, .remove = removes};
}

static teff_err check(teffi_node_id from, teffi_store_op op)
{
    op.arena = &arena;
    text[0] = 0;
    teff_err err = teffi_outsiders_check_store_op(&node, from, &op, text);
    assert_int_equal(err == TEFF_E_REFUSED, text[0] != 0);
    return err;
}

static teff_err check_row(teffi_node_id from, teffi_store_kind kind, teffi_row row)
{
    return check(from, (teffi_store_op){.kind = kind, .rows = &row, .n_rows = 1});
}

static teff_err check_scan(teffi_node_id from, const char *table, teffi_bytes first, teffi_bytes to)
{
    teffi_row row = {.table = table, .key = first};
    return check(from,
                 (teffi_store_op){.kind = TEFFI_STORE_SCAN, .rows = &row, .n_rows = 1, .to = to});
}

/* ---- reads ---- */

static void a_member_may_request_all(void **state)
{
    teffi_row row = {.table = "state", .key = {"k", 1}};
    for (teffi_store_kind kind = TEFFI_STORE_READ; kind <= TEFFI_STORE_SCAN; kind++)
        assert_int_equal(check_row(member, kind, row), TEFF_OK);
}

static void others_may_not_use_other_tables(void **state)
{
    static const char *const tables[] = {"state", "alive", "fence", "membership2"};
    const teffi_node_id others[] = {left, dead, stranger};
    for (size_t i = 0; i < 3; i++)
        for (size_t t = 0; t < 4; t++) {
            teffi_row row = {.table = tables[t], .key = key_of(others[i])};
            for (teffi_store_kind kind = TEFFI_STORE_READ; kind <= TEFFI_STORE_BATCH; kind++) {
                bool allowed = kind == TEFFI_STORE_READ && strcmp(tables[t], "alive") == 0 &&
                               !teffi_node_equals(others[i], dead);
                assert_int_equal(check_row(others[i], kind, row),
                                 allowed ? TEFF_OK : TEFF_E_REFUSED);
            }
            assert_int_equal(
                check_scan(others[i], tables[t], key_in("dev", 0, ""), key_in("dev", 1, "")),
                TEFF_E_REFUSED);
        }
}

static void check_reads_of_members(teffi_node_id from, teff_err expected)
{
    teffi_bytes first = key_in("dev", 0, ""), end = key_in("dev", 1, "");
    assert_int_equal(check_row(from, TEFFI_STORE_READ, row_of("membership", member, false)),
                     expected);
    assert_int_equal(check_row(from, TEFFI_STORE_READ, version_row(0)), expected);
    assert_int_equal(check_scan(from, "membership", first, end), expected);
    assert_int_equal(check_scan(from, "membership", key_of(member), end), expected);
}

static void others_may_read_the_members(void **state)
{
    const teffi_row alive = {.table = "alive", .key = key_of(member)};
    const teffi_row elsewhere = {.table = "alive", .key = key_in("other", 0, "m00000001")};
    assert_int_equal(check_row(stranger, TEFFI_STORE_READ, alive), TEFF_OK);
    assert_int_equal(check_row(stranger, TEFFI_STORE_READ, elsewhere), TEFF_E_REFUSED);

    check_reads_of_members(stranger, TEFF_OK);
    check_reads_of_members(left, TEFF_OK);
    check_reads_of_members(dead, TEFF_E_REFUSED);
}

static void others_may_not_read_other_clusters(void **state)
{
    teffi_bytes first = key_in("dev", 0, ""), end = key_in("dev", 1, "");
    const teffi_bytes firsts[] = {
        key_in("de", 0, ""), key_in("dev2", 0, ""), {"dev", 3}, {NULL, 0}, end};
    const teffi_bytes ends[] = {
        {NULL, 0}, key_in("dev", 2, ""), key_in("dev", 1, "x"), key_in("dex", 1, "")};
    for (size_t i = 0; i < 5; i++) {
        teffi_row row = {.table = "membership", .key = firsts[i]};
        assert_int_equal(check_row(stranger, TEFFI_STORE_READ, row), TEFF_E_REFUSED);
        assert_int_equal(check_scan(stranger, "membership", firsts[i], end), TEFF_E_REFUSED);
    }
    for (size_t i = 0; i < 4; i++)
        assert_int_equal(check_scan(stranger, "membership", first, ends[i]), TEFF_E_REFUSED);
}

static void an_operation_that_is_none_is_refused(void **state)
{
    teffi_row rows[2] = {version_row(0), version_row(0)};
    teffi_store_op op = {.kind = TEFFI_STORE_READ, .rows = rows, .n_rows = 0};
    assert_int_equal(check(stranger, op), TEFF_E_REFUSED);
    op.n_rows = 2;
    assert_int_equal(check(stranger, op), TEFF_E_REFUSED);
    op.kind = (teffi_store_kind)9;
    assert_int_equal(check(stranger, op), TEFF_E_REFUSED);
    op.kind = TEFFI_STORE_BATCH;
    op.n_rows = 0;
    assert_int_equal(check(stranger, op), TEFF_E_REFUSED);
}

static void an_error_says_who_and_what(void **state)
{
    teffi_row row = {.table = "state", .key = {"k", 1}};
    assert_int_equal(check_row(stranger, TEFFI_STORE_WRITE, row), TEFF_E_REFUSED);
    assert_string_equal(text, "store: silo 0000000a requests a write of table \"state\", but may "
                              "only read the members or join: it is not in its seed's view");
    assert_int_equal(check_row(dead, TEFFI_STORE_READ, row), TEFF_E_REFUSED);
    assert_string_equal(text, "store: silo 00000009 requests a read of table \"state\", but may "
                              "request nothing: it is dead, or was started again");
}

/* ---- the batch of a join ---- */

/* A batch with the stranger's own rows, and one more. in: more, NULL: none. */
static teff_err join_with(teffi_node_id from, const teffi_row *more)
{
    teffi_row rows[] = {version_row(VERSION + 1), member_row(from, from),
                        row_of("alive", from, false), row_of("fence", from, false),
                        more ? *more : (teffi_row){0}};
    return check(from,
                 (teffi_store_op){.kind = TEFFI_STORE_BATCH, .rows = rows, .n_rows = more ? 5 : 4});
}

static void a_stranger_may_join(void **state)
{
    teffi_node_id later = {member.silo, member.incarnation + 1};
    assert_int_equal(join_with(stranger, NULL), TEFF_OK);
    assert_int_equal(join_with(later, NULL), TEFF_OK); /* the member was started again */
    assert_int_equal(join_with(left, NULL), TEFF_OK);  /* its row was damaged since */
    assert_int_equal(join_with(dead, NULL), TEFF_E_REFUSED);
}

/* Before this silo has read a table, no cluster exists. */
static void the_first_silo_of_a_table_may_join(void **state)
{
    teffi_row rows[] = {version_row(1), member_row(stranger, stranger)};
    const teffi_store_op op = {.kind = TEFFI_STORE_BATCH, .rows = rows, .n_rows = 2};
    teffi_view_unref(node.view);
    node.view = NULL;
    assert_int_equal(check(stranger, op), TEFF_E_CONFLICT);
    rows[0].etag = 0;
    assert_int_equal(check(stranger, op), TEFF_OK);
}

/* Its join has failed after the write. */
static void a_stranger_may_leave_again(void **state)
{
    teffi_row rows[] = {version_row(VERSION + 1), member_row(stranger, stranger),
                        row_of("alive", stranger, true), row_of("fence", stranger, true)};
    assert_int_equal(
        check(stranger, (teffi_store_op){.kind = TEFFI_STORE_BATCH, .rows = rows, .n_rows = 4}),
        TEFF_OK);
}

static void a_stranger_may_remove_only_tombstones(void **state)
{
    static const teffi_node_id unreadable = {33, 1};
    const teffi_node_id gone[] = {left, dead, unreadable};
    for (size_t i = 0; i < 3; i++) {
        teffi_row row = row_of("membership", gone[i], true);
        assert_int_equal(join_with(stranger, &row), TEFF_OK);
        row.remove = false;
        assert_int_equal(join_with(stranger, &row), TEFF_E_REFUSED);
    }
    const teffi_row own = row_of("membership", stranger, true),
                    others = row_of("membership", member, true);
    assert_int_equal(join_with(stranger, &own), TEFF_E_REFUSED);
    assert_int_equal(join_with(stranger, &others), TEFF_E_REFUSED);
}

static void a_stranger_may_not_write_other_rows(void **state)
{
    const teffi_row more[] = {
        row_of("alive", member, true),
        row_of("fence", member, true),
        row_of("fence", member, false),
        row_of("alive", dead, true),
        member_row(member, member),
        member_row(dead, stranger),
        {.table = "state", .key = key_of(stranger)},
        {.table = "membership", .key = key_in("dev2", 0, "m00000009"), .remove = true},
        {.table = "membership", .key = key_in("dev", 0, "x"), .remove = true},
        {.table = "fence", .key = key_in("dev2", 0, "m0000000a")},
        {.table = "fence", .key = key_of(stranger), .check = true},
        version_row(VERSION + 1),
    };
    for (size_t i = 0; i < sizeof more / sizeof more[0]; i++)
        if (join_with(stranger, &more[i]) != TEFF_E_REFUSED)
            fail_msg("row %zu is allowed", i);
}

/* Checks a batch with this version row and member row. */
static teff_err check_two_rows(teffi_row version, teffi_row own)
{
    teffi_row rows[] = {own, version};
    return check(stranger, (teffi_store_op){.kind = TEFFI_STORE_BATCH, .rows = rows, .n_rows = 2});
}

static void a_batch_must_write_the_next_version(void **state)
{
    teffi_row own = member_row(stranger, stranger), version = version_row(VERSION + 1);
    assert_int_equal(check_two_rows(version, own), TEFF_OK);
    assert_int_equal(check_two_rows(version_row(VERSION), own), TEFF_E_REFUSED);
    assert_int_equal(check_two_rows(version_row(VERSION + 2), own), TEFF_E_REFUSED);
    version.any = true;
    assert_int_equal(check_two_rows(version, own), TEFF_E_REFUSED);
    version.any = false;
    version.check = true;
    assert_int_equal(check_two_rows(version, own), TEFF_E_REFUSED);
    version.check = false;
    version.remove = true;
    assert_int_equal(check_two_rows(version, own), TEFF_E_REFUSED);
    version.remove = false;
    version.value = (teffi_bytes){"\xff", 1};
    assert_int_equal(check_two_rows(version, own), TEFF_E_REFUSED);
}

/* So that who changes the table is listed in it. */
static void a_batch_must_write_the_senders_row(void **state)
{
    teffi_node_id later = {stranger.silo, stranger.incarnation + 1};
    teffi_row own = member_row(stranger, stranger), version = version_row(VERSION + 1);
    own.any = true; /* its own row was damaged */
    assert_int_equal(check_two_rows(version, own), TEFF_OK);
    assert_int_equal(check_two_rows(version, row_of("fence", stranger, false)), TEFF_E_REFUSED);
    assert_int_equal(check_two_rows(version, row_of("membership", dead, true)), TEFF_E_REFUSED);
    assert_int_equal(check_two_rows(version, member_row(stranger, later)), TEFF_E_REFUSED);
    assert_int_equal(check_two_rows(version, member_row(stranger, member)), TEFF_E_REFUSED);
    own.value = (teffi_bytes){NULL, 0};
    assert_int_equal(check_two_rows(version, own), TEFF_E_REFUSED);
    own.value = (teffi_bytes){"\xff", 1};
    assert_int_equal(check_two_rows(version, own), TEFF_E_REFUSED);
    own = member_row(stranger, stranger);
    own.check = true;
    assert_int_equal(check_two_rows(version, own), TEFF_E_REFUSED);
}

/* A view of another version does not say which rows are those of members. */
static void a_batch_for_another_version_conflicts(void **state)
{
    const teffi_row removal = row_of("membership", member, true);
    view_table(ETAG + 1);
    assert_int_equal(join_with(stranger, NULL), TEFF_E_CONFLICT);
    assert_int_equal(join_with(stranger, &removal), TEFF_E_CONFLICT);
    assert_int_equal(join_with(member, &removal), TEFF_OK);
}

/* ---- heartbeats ---- */

static teff_err check_heartbeat(teffi_node_id from, const teffi_row *alive, const teffi_row *fence)
{
    teffi_row rows[] = {*alive, *fence};
    return check(from, (teffi_store_op){.kind = TEFFI_STORE_BATCH, .rows = rows, .n_rows = 2});
}

/* The store compares the etag of the fence, so a silo without one writes nothing. */
static void a_stranger_may_write_its_heartbeat_if_it_has_a_fence(void **state)
{
    teffi_row alive = row_of("alive", stranger, false);
    teffi_row fence = {.table = "fence", .key = key_of(stranger), .etag = ETAG, .check = true};
    assert_int_equal(check_heartbeat(stranger, &alive, &fence), TEFF_OK);
    assert_int_equal(check_heartbeat(member, &alive, &fence), TEFF_OK);
    assert_int_equal(check_heartbeat(left, &alive, &fence), TEFF_E_REFUSED);
    assert_int_equal(check_heartbeat(dead, &alive, &fence), TEFF_E_REFUSED);
}

/* Each differs from a heartbeat in one respect. */
static void a_stranger_may_write_nothing_like_a_heartbeat(void **state)
{
    const teffi_row alive = row_of("alive", stranger, false);
    const teffi_row fence = {
        .table = "fence", .key = key_of(stranger), .etag = ETAG, .check = true};
    teffi_row bad[12] = {alive, alive, alive, alive, alive, fence,
                         fence, fence, fence, fence, fence, fence};
    bad[0].table = "state";
    bad[1].key = key_of(member);
    bad[2].any = false;
    bad[3].remove = true;
    bad[4].check = true;
    bad[5].table = "membership";
    bad[6].key = key_of(member);
    bad[7].check = false;
    bad[8].etag = 0;
    bad[9].any = true;
    bad[10].remove = true;
    bad[11].key = key_in("other", 0, "m0000000a");
    for (int i = 0; i < 12; i++)
        assert_int_equal(
            check_heartbeat(stranger, i < 5 ? &bad[i] : &alive, i < 5 ? &fence : &bad[i]),
            TEFF_E_REFUSED);
    teffi_row three[] = {alive, fence, fence};
    teffi_store_op op = {.kind = TEFFI_STORE_BATCH, .rows = three, .n_rows = 3};
    assert_int_equal(check(stranger, op), TEFF_E_REFUSED);
    op.n_rows = 2;
    op.kind = TEFFI_STORE_SCAN;
    assert_int_equal(check(stranger, op), TEFF_E_REFUSED);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(a_member_may_request_all, setup, teardown),
        cmocka_unit_test_setup_teardown(others_may_not_use_other_tables, setup, teardown),
        cmocka_unit_test_setup_teardown(others_may_read_the_members, setup, teardown),
        cmocka_unit_test_setup_teardown(others_may_not_read_other_clusters, setup, teardown),
        cmocka_unit_test_setup_teardown(an_operation_that_is_none_is_refused, setup, teardown),
        cmocka_unit_test_setup_teardown(an_error_says_who_and_what, setup, teardown),
        cmocka_unit_test_setup_teardown(a_stranger_may_join, setup, teardown),
        cmocka_unit_test_setup_teardown(the_first_silo_of_a_table_may_join, setup, teardown),
        cmocka_unit_test_setup_teardown(a_stranger_may_leave_again, setup, teardown),
        cmocka_unit_test_setup_teardown(a_stranger_may_remove_only_tombstones, setup, teardown),
        cmocka_unit_test_setup_teardown(a_stranger_may_not_write_other_rows, setup, teardown),
        cmocka_unit_test_setup_teardown(a_batch_must_write_the_next_version, setup, teardown),
        cmocka_unit_test_setup_teardown(a_batch_must_write_the_senders_row, setup, teardown),
        cmocka_unit_test_setup_teardown(a_batch_for_another_version_conflicts, setup, teardown),
        cmocka_unit_test_setup_teardown(a_stranger_may_write_its_heartbeat_if_it_has_a_fence, setup,
                                        teardown),
        cmocka_unit_test_setup_teardown(a_stranger_may_write_nothing_like_a_heartbeat, setup,
                                        teardown),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
