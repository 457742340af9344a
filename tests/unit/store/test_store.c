/* test_store.c - the limits that each operation is checked against. */
#include <stdio.h>
#include <string.h>
#include "ask.h"
#include "setup.h"
#include "store/engine.h"

#define CHECKSUM UINT64_C(0x82a3c977fbb68fd1)

static char text[TEFF_TEXT_MAX];
static char block[TEFFI_STORE_VALUE_MAX + 1];

static int setup(void **state)
{
    return teffi_store_open("memory", (teffi_store **)state, text) == TEFF_OK ? 0 : -1;
}

static int teardown(void **state)
{
    teffi_store_close(*state);
    return 0;
}

static teff_err run(teffi_store *store, teffi_store_op op)
{
    teff_arena arena;
    teffi_arena_init(&arena, NULL, 0, 0);
    op.arena = &arena;
    teff_err err = ask(store, &op);
    if (err != TEFF_OK && err != TEFF_E_CONFLICT)
        assert_int_not_equal(strlen(op.text), 0);
    teffi_arena_fini(&arena);
    return err;
}

static teff_err run_row(teffi_store *store, teffi_store_kind kind, teffi_row row)
{
    return run(store, (teffi_store_op){.kind = kind, .rows = &row, .n_rows = 1, .limit = 1});
}

static void table_names(void **state)
{
    static const char *const bad[] = {NULL, "", "A", "a b", "a-b", "\xc3\xa4", "a.b", "a\n"};
    char name[TEFFI_STORE_TABLE_MAX + 2];
    for (int kind = TEFFI_STORE_READ; kind <= TEFFI_STORE_SCAN; kind++) {
        for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++)
            assert_int_equal(run_row(*state, (teffi_store_kind)kind, (teffi_row){.table = bad[i]}),
                             TEFF_E_INVALID);
        memset(name, 'a', sizeof name);
        name[TEFFI_STORE_TABLE_MAX + 1] = '\0';
        assert_int_equal(run_row(*state, (teffi_store_kind)kind, (teffi_row){.table = name}),
                         TEFF_E_INVALID);
        name[TEFFI_STORE_TABLE_MAX] = '\0';
        assert_int_equal(
            run_row(*state, (teffi_store_kind)kind, (teffi_row){.table = name, .any = true}),
            TEFF_OK);
    }
}

static void a_refused_operation_has_found_nothing(void **state)
{
    teffi_row row = {.table = "t"};
    teffi_store_op op = {.kind = TEFFI_STORE_SCAN, .rows = &row, .n_rows = 1, .n_found = 5};
    assert_int_equal(ask(*state, &op), TEFF_E_INVALID); /* without an arena */
    assert_int_equal(op.n_found, 0);
}

static void keys_and_values(void **state)
{
    teffi_row row = {.table = "t", .key = {block, TEFFI_STORE_KEY_MAX + 1}};
    assert_int_equal(run_row(*state, TEFFI_STORE_READ, row), TEFF_E_TOO_LARGE);
    assert_int_equal(run_row(*state, TEFFI_STORE_WRITE, row), TEFF_E_TOO_LARGE);
    assert_int_equal(run_row(*state, TEFFI_STORE_SCAN, row), TEFF_E_TOO_LARGE);
    row.key = (teffi_bytes){NULL, 1};
    assert_int_equal(run_row(*state, TEFFI_STORE_READ, row), TEFF_E_INVALID);
    row.key = (teffi_bytes){"k", 1};
    row.value = (teffi_bytes){NULL, 1};
    assert_int_equal(run_row(*state, TEFFI_STORE_WRITE, row), TEFF_E_INVALID);
    row.value = (teffi_bytes){block, TEFFI_STORE_VALUE_MAX + 1};
    assert_int_equal(run_row(*state, TEFFI_STORE_WRITE, row), TEFF_E_TOO_LARGE);
    row.remove = true;
    assert_int_equal(run_row(*state, TEFFI_STORE_WRITE, row), TEFF_OK);
}

static void counts(void **state)
{
    static teffi_row rows[TEFFI_STORE_BATCH_MAX + 1];
    for (size_t i = 0; i <= TEFFI_STORE_BATCH_MAX; i++)
        rows[i] = (teffi_row){.table = "t", .key = {block, i + 1}};
    teffi_store_op op = {.kind = TEFFI_STORE_BATCH, .rows = rows, .n_rows = 0};
    assert_int_equal(run(*state, op), TEFF_E_INVALID);
    op.n_rows = TEFFI_STORE_BATCH_MAX + 1;
    assert_int_equal(run(*state, op), TEFF_E_TOO_LARGE);
    op.n_rows = TEFFI_STORE_BATCH_MAX;
    assert_int_equal(run(*state, op), TEFF_OK);
    op.kind = TEFFI_STORE_WRITE;
    op.n_rows = 2;
    assert_int_equal(run(*state, op), TEFF_E_TOO_LARGE);
    op.kind = (teffi_store_kind)0;
    assert_int_equal(run(*state, op), TEFF_E_INVALID);
    op.kind = (teffi_store_kind)5;
    assert_int_equal(run(*state, op), TEFF_E_INVALID);
}

static void bytes_of_a_batch(void **state)
{
    teffi_row rows[5];
    for (size_t i = 0; i < 5; i++)
        rows[i] =
            (teffi_row){.table = "t", .key = {block, i}, .value = {block, TEFFI_STORE_VALUE_MAX}};
    teffi_store_op op = {.kind = TEFFI_STORE_BATCH, .rows = rows, .n_rows = 5};
    assert_int_equal(run(*state, op), TEFF_E_TOO_LARGE);
}

static void scans(void **state)
{
    teffi_row row = {.table = "t"};
    teffi_store_op op = {.kind = TEFFI_STORE_SCAN, .rows = &row, .n_rows = 1};
    assert_int_equal(run(*state, op), TEFF_E_INVALID);
    op.limit = TEFFI_STORE_SCAN_MAX + 1;
    assert_int_equal(run(*state, op), TEFF_E_TOO_LARGE);
    op.limit = TEFFI_STORE_SCAN_MAX;
    op.to = (teffi_bytes){block, TEFFI_STORE_KEY_MAX + 1};
    assert_int_equal(run(*state, op), TEFF_E_TOO_LARGE);
    op.to = (teffi_bytes){0};
    assert_int_equal(run(*state, op), TEFF_OK);
    assert_int_equal(ask(*state, &op), TEFF_E_INVALID); /* without an arena */
}

/* The key of the row n of a scan: two letters, in order. */
static teffi_bytes key_of(size_t n, char key[2])
{
    key[0] = (char)('A' + n / 50);
    key[1] = (char)('A' + n % 50);
    return (teffi_bytes){key, 2};
}

/* Whatever the memory lacks for, op is as it was submitted, and says so. */
static void a_scan_without_memory(void **state)
{
    enum { ROWS = 20, STEP = 16 };
    char key[2];
    teffi_row from = {.table = "t"}, found = {.value = {block, 100}, .etag = 7};
    size_t n = 0;
    for (size_t bytes = STEP; n < ROWS; bytes += STEP) {
        teff_arena arena;
        teffi_arena_init(&arena, NULL, 0, bytes);
        teffi_store_op op = {.rows = &from, .n_rows = 1, .limit = ROWS, .arena = &arena};
        found.key = key_of(0, key);
        for (n = 0; n < ROWS && teffi_store_add_found_row(&op, &from, &found); n++)
            found.key = key_of(n + 1, key);
        assert_int_equal(op.err, n < ROWS ? TEFF_E_NOMEM : TEFF_OK);
        assert_int_equal(op.n_found, n < ROWS ? 0 : ROWS);
        assert_true((op.rows == &from) == (n < ROWS));
        teffi_arena_fini(&arena);
    }
}

static void a_long_scan_takes_memory_for_its_rows(void **state)
{
    enum { ROWS = 1000, PER_ROW = 3 * sizeof(teffi_row) + 64 }; /* the array may double */
    char key[2];
    teffi_row from = {.table = "t"}, found = {.value = {"value", 5}};
    teff_arena arena;
    teffi_arena_init(&arena, NULL, 0, ROWS * PER_ROW);
    teffi_store_op op = {.rows = &from, .n_rows = 1, .limit = ROWS, .arena = &arena};
    for (size_t n = 0; n < ROWS; n++) {
        found.key = key_of(n, key);
        assert_true(teffi_store_add_found_row(&op, &from, &found));
    }
    assert_int_equal(op.n_found, ROWS);
    teffi_arena_fini(&arena);
}

/* A server may return what was not asked for. Callers rely on the limit and the range. */
static void rows_that_a_scan_did_not_ask_for(void **state)
{
    static const struct {
        const char *first, *second;
    } wrong[] = {{"a", NULL}, {"b", "b"}, {"c", "b"}, {"b", "d"}, {"d", NULL}};
    teff_arena arena;
    teffi_arena_init(&arena, NULL, 0, 0);
    for (size_t i = 0; i <= sizeof wrong / sizeof wrong[0]; i++) {
        teffi_row from = {.table = "t", .key = ask_str("b")};
        teffi_store_op op = {
            .rows = &from, .n_rows = 1, .to = ask_str("d"), .limit = 2, .arena = &arena};
        const char *first = i ? wrong[i - 1].first : "b", *second = i ? wrong[i - 1].second : "c";
        teffi_row found = {.key = ask_str(first), .etag = 1};
        bool added = teffi_store_add_found_row(&op, &from, &found);
        assert_true(added == (i == 0 || second != NULL));
        found.key = ask_str(second ? second : "c");
        added = added && teffi_store_add_found_row(&op, &from, &found);
        assert_true(added == (i == 0));
        found.key = ask_str("cc"); /* the third of at most two */
        assert_false(added && teffi_store_add_found_row(&op, &from, &found));
        assert_int_equal(op.err, TEFF_E_MALFORMED);
        assert_ptr_equal(op.rows, &from);
        assert_int_equal(op.n_found, 0);
    }
    teffi_row from = {.table = "t"}, found = {.key = {block, TEFFI_STORE_KEY_MAX + 1}};
    teffi_store_op op = {.rows = &from, .n_rows = 1, .limit = 2, .arena = &arena};
    assert_false(teffi_store_add_found_row(&op, &from, &found));
    found.key.len--;
    assert_true(teffi_store_add_found_row(&op, &from, &found));
    teffi_arena_fini(&arena);
}

static void formats(void **state)
{
    static const struct {
        teffi_bytes found;
        teff_err err;
        const char *text;
    } cases[] = {
        {{"1", 1}, TEFF_OK, ""},
        {{"3", 1}, TEFF_OK, ""},
        {{"4", 1}, TEFF_E_REFUSED, "format 4 is of a newer teff; this build knows formats up to 3"},
        {{"999999999", 9}, TEFF_E_REFUSED, "format 999999999 is of a newer teff"},
        {{"1000000000", 10}, TEFF_E_REFUSED, "'1000000000' is no format of a teff"},
        {{"0", 1}, TEFF_E_REFUSED, "'0' is no format"},
        {{"", 0}, TEFF_E_REFUSED, "'' is no format"},
        {{NULL, 0}, TEFF_E_REFUSED, "'' is no format"},
        {{"02", 2}, TEFF_E_REFUSED, "no format"},
        {{"1 ", 2}, TEFF_E_REFUSED, "no format"},
        {{"1\0", 2}, TEFF_E_REFUSED, "no format"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        text[0] = '\0';
        assert_int_equal(teffi_store_check_format(cases[i].found, 3, text), cases[i].err);
        if (!strstr(text, cases[i].text))
            fail_msg("'%s' lacks '%s'", text, cases[i].text);
    }
}

static void damaged_rows_are_named(void **state)
{
    static const struct {
        teffi_bytes key;
        const char *shown;
    } cases[] = {
        {{NULL, 0}, "key \"\""},
        {{"Account/7", 9}, "key \"Account/7\""},
        {{"a\0b\n\xc3\xa9\"\\ ~\x7f", 11}, "key \"a\\x00b\\x0a\\xc3\\xa9\\x22\\x5c ~\\x7f\""},
        {{"abcdefghijklmnopqrstuvwxyzabcdefghijklmnopqrstuvwxyzabcdefghijkl", 64},
         "key \"abcdefghijklmnopqrstuvwxyzabcdefghijklmnopqrstuvwxyzabcdefghijkl\""},
        {{"abcdefghijklmnopqrstuvwxyzabcdefghijklmnopqrstuvwxyzabcdefghijk\n", 64},
         "key \"abcdefghijklmnopqrstuvwxyzabcdefghijklmnopqrstuvwxyzabcdefghijk...\""},
    };
    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        char shown[160];
        teffi_row row = {.table = "words", .key = cases[i].key};
        teffi_store_op op = {.rows = &row, .n_rows = 1};
        teffi_store_set_damaged_row_error(&op, "etcd", &row);
        snprintf(shown, sizeof shown, "etcd: damaged row in table words: %s", cases[i].shown);
        assert_int_equal(op.err, TEFF_E_MALFORMED);
        assert_string_equal(op.text, shown);
    }
}

/* The engines' rows have these checksums, so they must stay. */
static void checksums_of_rows(void **state)
{
    teffi_bytes a = ask_str("a"), b = ask_str("b");
    (void)state;
    uint64_t sum = teffi_store_hash_row("words", a, b, 0);
    assert_int_equal(sum, CHECKSUM);
    assert_int_not_equal(sum, teffi_store_hash_row("words", a, b, 1));
    assert_int_not_equal(sum, teffi_store_hash_row("word", a, b, 0));
    assert_int_not_equal(sum, teffi_store_hash_row("words", b, b, 0));
    assert_int_not_equal(sum, teffi_store_hash_row("words", a, a, 0));
    assert_int_not_equal(sum, teffi_store_hash_row("words", ask_str("ab"), (teffi_bytes){0}, 0));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(table_names, setup, teardown),
        cmocka_unit_test_setup_teardown(a_refused_operation_has_found_nothing, setup, teardown),
        cmocka_unit_test_setup_teardown(keys_and_values, setup, teardown),
        cmocka_unit_test_setup_teardown(counts, setup, teardown),
        cmocka_unit_test_setup_teardown(bytes_of_a_batch, setup, teardown),
        cmocka_unit_test_setup_teardown(scans, setup, teardown),
        cmocka_unit_test(a_scan_without_memory),
        cmocka_unit_test(a_long_scan_takes_memory_for_its_rows),
        cmocka_unit_test(formats),
        cmocka_unit_test(damaged_rows_are_named),
        cmocka_unit_test(checksums_of_rows),
        cmocka_unit_test(rows_that_a_scan_did_not_ask_for),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
