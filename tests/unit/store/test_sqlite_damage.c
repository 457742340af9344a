/* test_sqlite_damage.c - what engine `sqlite` does with bytes that are not those it wrote: every
 * row is given out as it was written, or not at all. */
#include <sqlite3.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "ask.h"
#include "scratch.h"
#include "setup.h"

enum { ROWS = 40, FILE_MAX = 128 * 1024, FLIPS = 1500 };

static char address[512], path[sizeof address], text[TEFF_TEXT_MAX];
static unsigned char whole[FILE_MAX], damaged[FILE_MAX];
static size_t whole_bytes;

static teffi_bytes row_key(unsigned i)
{
    static char key[16];
    snprintf(key, sizeof key, "key-%02u", i);
    return ask_str(key);
}

static teffi_bytes row_value(unsigned i)
{
    static char value[600];
    memset(value, (int)('a' + i % 26), sizeof value);
    return (teffi_bytes){value, i * 15};
}

/* A new file with ROWS rows; its bytes in whole. */
static int setup(void **state)
{
    teffi_store *store;
    scratch_fresh(address);
    snprintf(path, sizeof path, "%s", address + strlen("sqlite:"));
    if (teffi_store_open(address, &store, text) != TEFF_OK)
        return -1;
    for (unsigned i = 0; i < ROWS; i++) {
        uint64_t etag = 0;
        if (ask_put(store, "words", row_key(i), row_value(i), &etag) != TEFF_OK)
            return -1;
    }
    teffi_store_close(store);
    whole_bytes = scratch_read(path, whole, sizeof whole);
    return whole_bytes > 0 && whole_bytes < sizeof whole ? 0 : -1;
}

static void run_sql(const char *sql)
{
    sqlite3 *db;
    assert_int_equal(sqlite3_open(path, &db), SQLITE_OK);
    assert_int_equal(sqlite3_exec(db, sql, NULL, NULL, NULL), SQLITE_OK);
    assert_int_equal(sqlite3_close(db), SQLITE_OK);
}

static teff_err get(teffi_store *store, unsigned i, bool *right)
{
    teff_arena arena;
    teffi_bytes value;
    uint64_t etag;
    teffi_arena_init(&arena, NULL, 0, 0);
    teff_err err = ask_get(store, &arena, "words", row_key(i), &value, &etag);
    *right = err == TEFF_OK && etag == i + 1 && value.len == row_value(i).len &&
             memcmp(value.data, row_value(i).data, value.len) == 0;
    teffi_arena_fini(&arena);
    return err;
}

static void expect_only_damaged(teffi_store *store, unsigned damaged_row)
{
    for (unsigned i = 0; i < ROWS; i++) {
        bool right;
        teff_err err = get(store, i, &right);
        assert_int_equal(err, i == damaged_row ? TEFF_E_MALFORMED : TEFF_OK);
        assert_int_equal(right, i != damaged_row);
    }
}

static teff_err write_row(teffi_store *store, unsigned i, bool any, bool gone)
{
    teffi_row rows[] = {
        {.table = "words", .key = ask_str("new"), .any = true},
        {.table = "words", .key = row_key(i), .etag = i + 1, .any = any, .remove = gone}};
    teffi_store_op op = {.kind = TEFFI_STORE_BATCH, .rows = rows, .n_rows = 2};
    return ask(store, &op);
}

/* A damaged row is not given, and is overwritten or removed only on purpose. */
static void expect_quarantine(unsigned i)
{
    teffi_store *store = ask_open(address);
    bool right;
    expect_only_damaged(store, i);
    assert_int_equal(write_row(store, i, false, false), TEFF_E_MALFORMED);
    assert_int_equal(write_row(store, i, false, true), TEFF_E_MALFORMED);
    expect_only_damaged(store, i);
    assert_int_equal(write_row(store, i, true, true), TEFF_OK);
    assert_int_equal(get(store, i, &right), TEFF_OK);
    teffi_store_close(store);
}

static void changed_columns(void **state)
{
    static const char *const changes[] = {
        "UPDATE rows SET value = x'00' WHERE key = CAST('key-07' AS BLOB)",
        "UPDATE rows SET value = x'' WHERE key = CAST('key-07' AS BLOB)",
        "UPDATE rows SET value = 'text' WHERE key = CAST('key-07' AS BLOB)",
        "UPDATE rows SET value = 5 WHERE key = CAST('key-07' AS BLOB)",
        "UPDATE rows SET etag = etag - 1 WHERE key = CAST('key-07' AS BLOB)",
        "UPDATE rows SET etag = 'x' WHERE key = CAST('key-07' AS BLOB)",
        "UPDATE rows SET etag = 0 WHERE key = CAST('key-07' AS BLOB)",
        "UPDATE rows SET sum = sum + 1 WHERE key = CAST('key-07' AS BLOB)",
        "UPDATE rows SET sum = 1.5 WHERE key = CAST('key-07' AS BLOB)",
        "UPDATE rows SET value = (SELECT value FROM rows WHERE key = CAST('key-08' AS BLOB)), "
        "sum = (SELECT sum FROM rows WHERE key = CAST('key-08' AS BLOB)), etag = 9 "
        "WHERE key = CAST('key-07' AS BLOB)",
    };
    for (size_t i = 0; i < sizeof changes / sizeof changes[0]; i++) {
        scratch_write(path, whole, whole_bytes);
        run_sql(changes[i]);
        expect_quarantine(7);
    }
}

static void any_overwrites(void **state)
{
    teffi_bytes value;
    uint64_t etag;
    teff_arena arena;
    run_sql("UPDATE rows SET value = x'00' WHERE key = CAST('key-16' AS BLOB)");
    teffi_store *store = ask_open(address);
    expect_only_damaged(store, 16);
    assert_int_equal(write_row(store, 16, true, false), TEFF_OK);
    teffi_arena_init(&arena, NULL, 0, 0);
    assert_int_equal(ask_get(store, &arena, "words", row_key(16), &value, &etag), TEFF_OK);
    assert_int_equal(value.len, 0);
    assert_true(etag > ROWS);
    teffi_arena_fini(&arena);
    teffi_store_close(store);
}

static void scan_names_the_bad_row(void **state)
{
    teff_arena arena;
    teffi_row from = {.table = "words"};
    run_sql("UPDATE rows SET value = x'00' WHERE key = CAST('key-16' AS BLOB)");
    teffi_store *store = ask_open(address);
    teffi_arena_init(&arena, NULL, 0, 0);
    teffi_store_op op = {
        .kind = TEFFI_STORE_SCAN, .rows = &from, .n_rows = 1, .limit = 100, .arena = &arena};
    assert_int_equal(ask(store, &op), TEFF_OK);
    assert_int_equal(op.n_found, ROWS);
    assert_string_equal(op.rows[15].key.data, "key-15");
    assert_string_equal(op.rows[16].key.data, "key-16");
    assert_int_equal(op.rows[16].value.len, 0);
    assert_int_equal(op.rows[16].etag, 0);
    assert_string_equal(op.rows[17].key.data, "key-17");
    assert_int_equal(op.rows[17].value.len, row_value(17).len);
    assert_int_equal(op.rows[17].etag, 18);
    teffi_arena_fini(&arena);
    teffi_store_close(store);
}

/* Etags that could go back: nothing is written, all can be read. */
static void changed_counter(void **state)
{
    static const char *const changes[] = {
        "UPDATE etags SET etag = 1",
        "UPDATE etags SET etag = 'x', sum = 0",
        "DELETE FROM etags",
    };
    for (size_t i = 0; i < sizeof changes / sizeof changes[0]; i++) {
        bool right;
        scratch_write(path, whole, whole_bytes);
        run_sql(changes[i]);
        teffi_store *store = ask_open(address);
        assert_int_equal(write_row(store, 3, false, false), TEFF_E_MALFORMED);
        assert_int_equal(get(store, 3, &right), TEFF_OK);
        assert_true(right);
        teffi_store_close(store);
    }
}

/* All rows of a damaged file, if it opens at all. out: was a wrong answer given? */
static bool lies(void)
{
    teffi_store *store;
    bool lie = false;
    teff_err opened = teffi_store_open(address, &store, text);
    if (opened != TEFF_OK)
        return text[0] == '\0';
    for (unsigned i = 0; i < ROWS; i++) {
        bool right;
        teff_err err = get(store, i, &right);
        lie |= err == TEFF_OK && !right;
    }
    teffi_store_close(store);
    return lie;
}

static void flipped_bits(void **state)
{
    unsigned step = (unsigned)(whole_bytes * 8 / FLIPS) | 1;
    for (size_t bit = 0; bit < whole_bytes * 8; bit += step) {
        memcpy(damaged, whole, whole_bytes);
        damaged[bit / 8] ^= (unsigned char)(1u << bit % 8);
        scratch_write(path, damaged, whole_bytes);
        if (lies())
            fail_msg("bit %zu: a wrong answer (%s)", bit, text);
    }
}

/* A file that lost its end; inside its last page that may cost rows only. */
static void cut_files(void **state)
{
    enum { PAGE = 4096 };
    for (size_t n = 1; n < whole_bytes; n += 509) {
        teffi_store *store;
        scratch_write(path, whole, n);
        if (lies())
            fail_msg("%zu bytes: a wrong answer (%s)", n, text);
        if (n > whole_bytes - PAGE)
            continue;
        assert_int_equal(teffi_store_open(address, &store, text), TEFF_E_MALFORMED);
        assert_non_null(strstr(text, path));
    }
}

/* A file too big to be looked through when it is opened, with its first pages overwritten. */
static void damaged_big_file(void **state)
{
    static char big[9 * 1024 * 1024];
    unsigned failed = 0;
    teffi_store *store = ask_open(address);
    for (unsigned i = 0; i < 2; i++) {
        uint64_t etag = 0;
        assert_int_equal(ask_put(store, "big", row_key(i), (teffi_bytes){big, sizeof big}, &etag),
                         TEFF_OK);
    }
    teffi_store_close(store);
    scratch_patch(path, 4096, 0xa5, whole_bytes - 4096);
    store = ask_open(address);
    for (unsigned i = 0; i < ROWS; i++) {
        bool right;
        failed += get(store, i, &right) == TEFF_E_MALFORMED;
    }
    assert_int_equal(failed, ROWS);
    assert_int_equal(write_row(store, 3, true, false), TEFF_E_MALFORMED);
    teffi_store_close(store);
}

static int start(void **state)
{
    return scratch_open();
}

static int end(void **state)
{
    scratch_close();
    return 0;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup(changed_columns, setup),
        cmocka_unit_test_setup(any_overwrites, setup),
        cmocka_unit_test_setup(scan_names_the_bad_row, setup),
        cmocka_unit_test_setup(changed_counter, setup),
        cmocka_unit_test_setup(flipped_bits, setup),
        cmocka_unit_test_setup(cut_files, setup),
        cmocka_unit_test_setup(damaged_big_file, setup),
    };
    return cmocka_run_group_tests(tests, start, end);
}
