/* test_postgres_reply.c - replies that no PostgreSQL server sends: of another form, cut at each
 * byte, with each bit of a head changed. No server is needed: libpq makes the results. */
#include "store/postgres_reply.h"

#include <stdlib.h>
#include <string.h>
#include "ask.h"
#include "setup.h"

enum { BYTEA = 17, INT8 = 20, INT8_ARRAY = 1016, TEXT = 25, HEAD = 20 };

/* A result of n columns without rows. */
static PGresult *make_result(const Oid *types, int n, int format)
{
    static char name[] = "column";
    PGresAttDesc columns[3];
    PGresult *result = PQmakeEmptyPGresult(NULL, PGRES_TUPLES_OK);
    for (int i = 0; i < n; i++)
        columns[i] = (PGresAttDesc){.name = name, .format = format, .typid = types[i]};
    assert_true(result && PQsetResultAttrs(result, n, columns));
    return result;
}

static void set_cell(PGresult *result, int row, int column, const void *data, int len)
{
    char copy[64] = "";
    if (len > 0)
        memcpy(copy, data, (size_t)len);
    assert_true(PQsetvalue(result, row, column, copy, len));
}

/* ---- writes ---- */

/* The etags 7, 0 and 0 of a row that is written, one that is removed, and one that is checked. */
static const uint8_t etags[] = {
    0, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0, 20, 0, 0, 0, 3, 0, 0, 0, 1, /* the head */
    0, 0, 0, 8, 0, 0, 0, 0, 0, 0, 0, 7,                          /* */
    0, 0, 0, 8, 0, 0, 0, 0, 0, 0, 0, 0,                          /* */
    0, 0, 0, 8, 0, 0, 0, 0, 0, 0, 0, 0,
};

typedef struct write_op {
    teffi_row rows[3];
    teffi_store_op op;
} write_op;

static void init_write(write_op *w)
{
    *w = (write_op){.rows = {{.table = "t", .etag = 3},
                             {.table = "t", .etag = 4, .remove = true},
                             {.table = "t", .etag = 5, .check = true}}};
    w->op = (teffi_store_op){.kind = TEFFI_STORE_BATCH, .rows = w->rows, .n_rows = 3};
}

/* The array is at the end of allocated memory, so that ASan sees a read after it. */
static void expect_write(const PGresult *result, teff_err err)
{
    write_op w;
    init_write(&w);
    teffi_postgres_set_result(&w.op, result);
    assert_int_equal(w.op.err, err);
    assert_int_equal(w.rows[0].etag, err ? 3 : 7);
    assert_int_equal(w.rows[1].etag, err ? 4 : 0);
    assert_int_equal(w.rows[2].etag, 5);
}

static void expect_etags(const uint8_t *data, int len, teff_err err)
{
    static const Oid types[] = {INT8_ARRAY};
    PGresult *result = make_result(types, 1, 1);
    uint8_t copy[sizeof etags + 16];
    if (len > 0)
        memcpy(copy, data, (size_t)len);
    assert_true(PQsetvalue(result, 0, 0, (char *)copy, len));
    expect_write(result, err);
    PQclear(result);
}

static void etags_of_each_length(void **state)
{
    uint8_t longer[sizeof etags + 1] = {0};
    (void)state;
    memcpy(longer, etags, sizeof etags);
    for (int len = 0; len < (int)sizeof etags; len++)
        expect_etags(etags, len, TEFF_E_UNKNOWN);
    expect_etags(etags, sizeof etags, TEFF_OK);
    expect_etags(longer, sizeof longer, TEFF_E_UNKNOWN);
    expect_etags(NULL, -1, TEFF_E_CONFLICT); /* SQL's NULL */
}

/* Each bit decides, but those of the etag of the row that is written. */
static void etags_with_each_bit_changed(void **state)
{
    (void)state;
    for (size_t bit = 0; bit < 8 * sizeof etags; bit++) {
        uint8_t changed[sizeof etags];
        bool in_etag = bit / 8 >= HEAD + 4 && bit / 8 < HEAD + 12;
        memcpy(changed, etags, sizeof etags);
        changed[bit / 8] ^= (uint8_t)(1u << bit % 8);
        if (!in_etag)
            expect_etags(changed, sizeof changed, TEFF_E_UNKNOWN);
    }
    uint8_t zero[sizeof etags];
    memcpy(zero, etags, sizeof etags);
    zero[HEAD + 11] = 0;
    expect_etags(zero, sizeof zero, TEFF_E_UNKNOWN);
}

static void other_results_of_a_write(void **state)
{
    static const Oid types[] = {INT8_ARRAY, INT8_ARRAY}, wrong[] = {BYTEA};
    static const struct {
        const Oid *types;
        int columns, format, rows;
        teff_err err;
    } cases[] = {
        {types, 1, 1, 1, TEFF_OK},        {types, 1, 1, 0, TEFF_E_UNKNOWN},
        {types, 1, 1, 2, TEFF_E_UNKNOWN}, {types, 1, 0, 1, TEFF_E_UNKNOWN},
        {types, 2, 1, 1, TEFF_E_UNKNOWN}, {types, 0, 1, 0, TEFF_E_UNKNOWN},
        {wrong, 1, 1, 1, TEFF_E_UNKNOWN},
    };
    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        PGresult *result = make_result(cases[i].types, cases[i].columns, cases[i].format);
        for (int row = 0; row < cases[i].rows; row++)
            for (int column = 0; column < cases[i].columns; column++)
                set_cell(result, row, column, etags, sizeof etags);
        expect_write(result, cases[i].err);
        PQclear(result);
    }
}

/* ---- reads ---- */

static const Oid row_types[] = {INT8, BYTEA, BYTEA};

/* Adds a row: an etag, a value, and if columns is 3 the key. in: etag_len: -1: SQL's NULL. */
static void add_row(PGresult *result, int columns, int etag_len, const char *value, const char *key)
{
    static const uint8_t etag[16] = {0, 0, 0, 0, 0, 0, 0, 9};
    int row = PQntuples(result);
    set_cell(result, row, 0, etag, etag_len);
    set_cell(result, row, 1, value, value ? (int)strlen(value) : -1);
    if (columns == 3)
        set_cell(result, row, 2, key, key ? (int)strlen(key) : -1);
}

static void expect_read(PGresult *result, teff_err err, uint64_t etag, const char *value)
{
    teff_arena arena;
    teffi_arena_init(&arena, NULL, 0, 0);
    teffi_row row = {.table = "t", .key = ask_str("k"), .etag = 77};
    teffi_store_op op = {.kind = TEFFI_STORE_READ, .rows = &row, .n_rows = 1, .arena = &arena};
    teffi_postgres_set_result(&op, result);
    assert_int_equal(op.err, err);
    assert_int_equal(row.etag, etag);
    assert_int_equal(row.value.len, strlen(value));
    assert_true(teffi_bytes_cmp(row.value, ask_str(value)) == 0);
    teffi_arena_fini(&arena);
    PQclear(result);
}

static void results_of_a_read(void **state)
{
    static const Oid types[] = {TEXT, BYTEA};
    (void)state;
    expect_read(make_result(row_types, 2, 1), TEFF_OK, 0, "");
    expect_read(make_result(row_types, 2, 0), TEFF_E_MALFORMED, 77, "");
    expect_read(make_result(row_types, 1, 1), TEFF_E_MALFORMED, 77, "");
    expect_read(make_result(row_types, 3, 1), TEFF_E_MALFORMED, 77, "");
    expect_read(make_result(types, 2, 1), TEFF_E_MALFORMED, 77, "");
    for (int len = -1; len <= 16; len++) {
        PGresult *result = make_result(row_types, 2, 1);
        add_row(result, 2, len, "value", NULL);
        if (len == 8)
            expect_read(result, TEFF_OK, 9, "value");
        else
            expect_read(result, TEFF_E_MALFORMED, 77, "");
    }
    PGresult *result = make_result(row_types, 2, 1);
    add_row(result, 2, 8, NULL, NULL);
    expect_read(result, TEFF_E_MALFORMED, 77, "");
    result = make_result(row_types, 2, 1);
    add_row(result, 2, 8, "", NULL);
    add_row(result, 2, 8, "", NULL);
    expect_read(result, TEFF_E_MALFORMED, 77, "");
}

/* in: n: rows found, of which `damaged` is damaged. */
static void expect_scan(PGresult *result, teff_err err, size_t n, size_t damaged)
{
    teff_arena arena;
    teffi_arena_init(&arena, NULL, 0, 0);
    teffi_row row = {.table = "t"};
    teffi_store_op op = {
        .kind = TEFFI_STORE_SCAN, .rows = &row, .n_rows = 1, .limit = 2, .arena = &arena};
    teffi_postgres_set_result(&op, result);
    assert_int_equal(op.err, err);
    assert_int_equal(op.n_found, n);
    assert_true((op.rows == &row) == (n == 0));
    for (size_t i = 0; i < n; i++) {
        assert_int_equal(op.rows[i].etag, i == damaged ? 0 : 9);
        assert_int_equal(op.rows[i].value.len, i == damaged ? 0 : 5);
        assert_int_equal(op.rows[i].key.len, 1);
    }
    teffi_arena_fini(&arena);
    PQclear(result);
}

/* A scan with the row a, and another one. */
static PGresult *make_scan(int etag_len, const char *value, const char *key)
{
    PGresult *result = make_result(row_types, 3, 1);
    add_row(result, 3, 8, "value", "a");
    add_row(result, 3, etag_len, value, key);
    return result;
}

static void results_of_a_scan(void **state)
{
    (void)state;
    expect_scan(make_result(row_types, 3, 1), TEFF_OK, 0, 0);
    expect_scan(make_result(row_types, 3, 0), TEFF_E_MALFORMED, 0, 0);
    expect_scan(make_result(row_types, 2, 1), TEFF_E_MALFORMED, 0, 0);
    expect_scan(make_scan(8, "value", "b"), TEFF_OK, 2, 9);
    expect_scan(make_scan(7, "value", "b"), TEFF_OK, 2, 1);
    expect_scan(make_scan(-1, "value", "b"), TEFF_OK, 2, 1);
    expect_scan(make_scan(8, NULL, "b"), TEFF_OK, 2, 1);
    expect_scan(make_scan(8, "value", NULL), TEFF_E_MALFORMED, 0, 0);
    expect_scan(make_scan(8, "value", "a"), TEFF_E_MALFORMED, 0, 0);
    PGresult *result = make_scan(8, "value", "b");
    add_row(result, 3, 8, "value", "c");
    expect_scan(result, TEFF_E_MALFORMED, 0, 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(etags_of_each_length),     cmocka_unit_test(etags_with_each_bit_changed),
        cmocka_unit_test(other_results_of_a_write), cmocka_unit_test(results_of_a_read),
        cmocka_unit_test(results_of_a_scan),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
