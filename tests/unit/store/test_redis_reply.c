/* test_redis_reply.c - replies that the script never returns, and errors. No server is needed:
 * hiredis' reader makes the replies from their bytes. */
#include "store/redis_reply.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include "ask.h"
#include "setup.h"

static redisReply *parse(const char *bytes)
{
    void *reply = NULL;
    redisReader *reader = redisReaderCreate();
    assert_int_equal(redisReaderFeed(reader, bytes, strlen(bytes)), REDIS_OK);
    assert_int_equal(redisReaderGetReply(reader, &reply), REDIS_OK);
    assert_non_null(reply);
    redisReaderFree(reader);
    return reply;
}

static teff_err set_result(teffi_store_op *op, const char *bytes)
{
    redisReply *reply = parse(bytes);
    teffi_redis_set_result(op, reply);
    freeReplyObject(reply);
    if (op->err && op->err != TEFF_E_CONFLICT)
        assert_true(op->text[0]);
    return op->err;
}

/* ---- writes: two rows are put, one is removed, one is checked ---- */

static teff_err write_with(const char *bytes, teffi_row rows[4])
{
    const teffi_row submitted[4] = {{.table = "t", .etag = 3},
                                    {.table = "t", .etag = 4, .remove = true},
                                    {.table = "t", .etag = 5, .check = true},
                                    {.table = "t"}};
    memcpy(rows, submitted, sizeof submitted);
    teffi_store_op op = {.kind = TEFFI_STORE_BATCH, .rows = rows, .n_rows = 4};
    teff_err err = set_result(&op, bytes);
    if (err)
        assert_memory_equal(rows, submitted, sizeof submitted);
    return err;
}

static void the_last_etag_is_the_last_rows(void **state)
{
    (void)state;
    teffi_row rows[4];
    assert_int_equal(write_with("$2\r\n10\r\n", rows), TEFF_OK);
    assert_int_equal(rows[0].etag, 9);
    assert_int_equal(rows[1].etag, 0);
    assert_int_equal(rows[2].etag, 5);
    assert_int_equal(rows[3].etag, 10);
}

/* The script has perhaps run. */
static void other_replies_to_a_write_are_unknown(void **state)
{
    static const char *const odd[] = {
        "$1\r\n1\r\n",
        "$1\r\n0\r\n",
        "$0\r\n\r\n",
        "$2\r\n07\r\n",
        "$2\r\n7x\r\n",
        "$2\r\n-7\r\n",
        ":7\r\n",
        "+7\r\n",
        "+conflict\r\n",
        "$-1\r\n",
        "*1\r\n$1\r\n7\r\n",
        "*0\r\n",
        "$20\r\n18446744073709551616\r\n",
    };
    (void)state;
    teffi_row rows[4];
    for (size_t i = 0; i < sizeof odd / sizeof odd[0]; i++)
        if (write_with(odd[i], rows) != TEFF_E_UNKNOWN)
            fail_msg("%s", odd[i]);
}

static void a_refused_write_has_a_reason(void **state)
{
    (void)state;
    teffi_row rows[4];
    assert_int_equal(write_with("$8\r\nconflict\r\n", rows), TEFF_E_CONFLICT);
    assert_int_equal(write_with("$7\r\ndamaged\r\n", rows), TEFF_E_MALFORMED);
    assert_int_equal(write_with("-WRONGTYPE of a key\r\n", rows), TEFF_E_MALFORMED);
    assert_int_equal(write_with("-READONLY replica\r\n", rows), TEFF_E_IO);
    assert_int_equal(write_with("-OOM\r\n", rows), TEFF_E_IO);
}

/* ---- reads and scans ---- */

/* The three fields of a row of table t with this key, and with the right sum. */
static void print_fields(char *to, size_t max, const char *key, const char *value)
{
    char sum[24];
    teffi_row row = {.key = ask_str(key), .value = ask_str(value)};
    snprintf(sum, sizeof sum, "%" PRIu64, teffi_store_hash_row("t", row.key, row.value, 0));
    snprintf(to, max, "$1\r\n9\r\n$%zu\r\n%s\r\n$%zu\r\n%s\r\n", strlen(sum), sum, strlen(value),
             value);
}

static teff_err read_with(const char *bytes, teffi_row *row)
{
    teff_arena arena;
    *row = (teffi_row){.table = "t", .key = ask_str("a"), .etag = 77};
    teffi_store_op op = {.kind = TEFFI_STORE_READ, .rows = row, .n_rows = 1, .arena = &arena};
    teffi_arena_init(&arena, NULL, 0, 0);
    teff_err err = set_result(&op, bytes);
    if (err)
        assert_int_equal(row->etag, 77);
    else if (row->etag)
        assert_memory_equal(row->value.data, "value", 5);
    teffi_arena_fini(&arena);
    return err;
}

static void a_read_is_checked(void **state)
{
    static const char *const odd[] = {
        "*0\r\n",
        "*3\r\n$1\r\n9\r\n$1\r\n1\r\n$5\r\nvalue\r\n",
        "*3\r\n$1\r\n0\r\n$1\r\n1\r\n$5\r\nvalue\r\n",
        "*3\r\n:9\r\n$1\r\n1\r\n$5\r\nvalue\r\n",
        "*3\r\n$1\r\n9\r\n$1\r\n1\r\n$-1\r\n",
        "*3\r\n$-1\r\n$1\r\n1\r\n$5\r\nvalue\r\n",
        "*3\r\n*0\r\n*0\r\n*0\r\n",
        "$1\r\n9\r\n",
    };
    (void)state;
    teffi_row row;
    char fields[200], bytes[300];
    print_fields(fields, sizeof fields, "a", "value");
    snprintf(bytes, sizeof bytes, "*3\r\n%s", fields);
    assert_int_equal(read_with(bytes, &row), TEFF_OK);
    assert_int_equal(row.etag, 9);
    assert_int_equal(read_with("*3\r\n$-1\r\n$-1\r\n$-1\r\n", &row), TEFF_OK);
    assert_int_equal(row.etag, 0);
    snprintf(bytes, sizeof bytes, "*4\r\n%s$-1\r\n", fields);
    assert_int_equal(read_with(bytes, &row), TEFF_E_MALFORMED);
    for (size_t i = 0; i < sizeof odd / sizeof odd[0]; i++)
        if (read_with(odd[i], &row) != TEFF_E_MALFORMED)
            fail_msg("%s", odd[i]);
    assert_int_equal(read_with("-MASTERDOWN\r\n", &row), TEFF_E_IO);
}

/* out: the error; TEFF_OK: a row's etag is 0 if the row is damaged. */
static teff_err scan_with(const char *bytes, size_t *n, uint64_t etags[2])
{
    teff_arena arena;
    teffi_row start = {.table = "t", .key = ask_str("a")};
    teffi_store_op op = {.kind = TEFFI_STORE_SCAN,
                         .rows = &start,
                         .n_rows = 1,
                         .to = ask_str("x"),
                         .limit = 2,
                         .arena = &arena};
    teffi_arena_init(&arena, NULL, 0, 0);
    teff_err err = set_result(&op, bytes);
    *n = op.n_found;
    for (size_t i = 0; i < op.n_found; i++)
        etags[i] = op.rows[i].etag;
    if (err)
        assert_ptr_equal(op.rows, &start);
    teffi_arena_fini(&arena);
    return err;
}

static void a_scan_is_checked(void **state)
{
    (void)state;
    static const char *const keys[] = {"a", "b", "c", "x", "A"};
    char rows[5][300], fields[200], bytes[1000];
    uint64_t etags[2];
    size_t n;
    for (size_t i = 0; i < 5; i++) {
        print_fields(fields, sizeof fields, keys[i], "value");
        snprintf(rows[i], sizeof rows[i], "$1\r\n%s\r\n%s", keys[i], fields);
    }
    snprintf(bytes, sizeof bytes, "*8\r\n%s$1\r\nb\r\n$1\r\n9\r\n$1\r\n1\r\n$1\r\nv\r\n", rows[0]);
    assert_int_equal(scan_with(bytes, &n, etags), TEFF_OK);
    assert_int_equal(n, 2);
    assert_int_equal(etags[0], 9);
    assert_int_equal(etags[1], 0);
    static const int orders[][3] = {{1, 0, -1}, {0, 0, -1}, {0, 3, -1}, {0, 4, -1}, {0, 1, 2}};
    for (size_t i = 0; i < sizeof orders / sizeof orders[0]; i++) {
        bool has_three = orders[i][2] >= 0; /* more than the limit */
        snprintf(bytes, sizeof bytes, "*%d\r\n%s%s%s", has_three ? 12 : 8, rows[orders[i][0]],
                 rows[orders[i][1]], has_three ? rows[orders[i][2]] : "");
        assert_int_equal(scan_with(bytes, &n, etags), TEFF_E_MALFORMED);
        assert_int_equal(n, 0);
    }
    assert_int_equal(scan_with("*1\r\n$1\r\na\r\n", &n, etags), TEFF_E_MALFORMED);
    assert_int_equal(scan_with("*4\r\n:1\r\n:1\r\n:1\r\n:1\r\n", &n, etags), TEFF_E_MALFORMED);
    assert_int_equal(scan_with("-TOOBIG the rows\r\n", &n, etags), TEFF_E_NOMEM);
    assert_int_equal(scan_with("*0\r\n", &n, etags), TEFF_OK);
    assert_int_equal(n, 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_last_etag_is_the_last_rows),
        cmocka_unit_test(other_replies_to_a_write_are_unknown),
        cmocka_unit_test(a_refused_write_has_a_reason),
        cmocka_unit_test(a_read_is_checked),
        cmocka_unit_test(a_scan_is_checked),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
