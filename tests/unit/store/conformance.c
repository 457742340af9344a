/* conformance.c - the suite's rows: what one caller at a time can see. */
#include "conformance.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

int conf_setup(void **state)
{
    char text[TEFF_TEXT_MAX];
    conf_env *env = calloc(1, sizeof *env);
    if (!env)
        return -1;
    env->engine = *state;
    env->engine->fresh(env->address);
    teffi_arena_init(&env->arena, NULL, 0, 0);
    *state = env;
    if (teffi_store_open(env->address, &env->store, text) == TEFF_OK)
        return 0;
    print_error("%s: %s\n", env->address, text);
    return -1;
}

int conf_teardown(void **state)
{
    conf_env *env = *state;
    teffi_store_close(env->store);
    teffi_arena_fini(&env->arena);
    free(env);
    return 0;
}

teffi_store *conf_store(conf_env *env)
{
    char text[TEFF_TEXT_MAX];
    if (!env->engine->reopens)
        return env->store;
    teffi_store_close(env->store);
    if (teffi_store_open(env->address, &env->store, text) != TEFF_OK)
        fail_msg("reopen: %s", text);
    return env->store;
}

static teff_err put(conf_env *env, const char *key, const char *value, uint64_t *etag)
{
    return ask_put(conf_store(env), "words", ask_str(key), ask_str(value), etag);
}

static uint64_t put_new(conf_env *env, const char *key, const char *value)
{
    uint64_t etag = 0;
    assert_int_equal(put(env, key, value, &etag), TEFF_OK);
    assert_int_not_equal(etag, 0);
    return etag;
}

static uint64_t get(conf_env *env, const char *table, teffi_bytes key, teffi_bytes *value)
{
    uint64_t etag = 77;
    assert_int_equal(ask_get(conf_store(env), &env->arena, table, key, value, &etag), TEFF_OK);
    return etag;
}

static void expect(conf_env *env, const char *key, const char *value)
{
    teffi_bytes found;
    uint64_t etag = get(env, "words", ask_str(key), &found);
    if (!value) {
        assert_int_equal(etag, 0);
        return;
    }
    assert_int_not_equal(etag, 0);
    assert_int_equal(found.len, strlen(value));
    assert_memory_equal(found.data, value, found.len);
}

static teff_err run(conf_env *env, teffi_store_kind kind, teffi_row *rows, size_t n)
{
    teffi_store_op op = {.kind = kind, .rows = rows, .n_rows = n, .arena = &env->arena};
    return ask(conf_store(env), &op);
}

static teffi_row row_of(const char *table, const char *key, const char *value, uint64_t etag)
{
    return (teffi_row){.table = table, .key = ask_str(key), .value = ask_str(value), .etag = etag};
}

static void read_missing(void **state)
{
    teffi_bytes value;
    assert_int_equal(get(*state, "words", ask_str("none"), &value), 0);
    assert_int_equal(value.len, 0);
}

static void create_and_update(void **state)
{
    uint64_t first = put_new(*state, "a", "one"), etag = first;
    expect(*state, "a", "one");
    assert_int_equal(put(*state, "a", "two", &etag), TEFF_OK);
    assert_true(etag > first);
    expect(*state, "a", "two");
}

static void create_twice_conflicts(void **state)
{
    uint64_t etag = 0;
    put_new(*state, "a", "one");
    assert_int_equal(put(*state, "a", "two", &etag), TEFF_E_CONFLICT);
    assert_int_equal(etag, 0);
    expect(*state, "a", "one");
}

static void stale_etag_conflicts(void **state)
{
    uint64_t old = put_new(*state, "a", "one"), etag = old, future = old + 1000;
    assert_int_equal(put(*state, "a", "two", &etag), TEFF_OK);
    assert_int_equal(put(*state, "a", "three", &old), TEFF_E_CONFLICT);
    assert_int_equal(put(*state, "a", "three", &future), TEFF_E_CONFLICT);
    assert_int_equal(ask_remove(conf_store(*state), "words", ask_str("a"), &old), TEFF_E_CONFLICT);
    expect(*state, "a", "two");
}

static void update_missing_conflicts(void **state)
{
    uint64_t etag = 1;
    assert_int_equal(put(*state, "a", "one", &etag), TEFF_E_CONFLICT);
    expect(*state, "a", NULL);
}

static void recreate_raises_etag(void **state)
{
    uint64_t etag = put_new(*state, "a", "one"), old;
    for (int i = 0; i < 5; i++) {
        old = etag;
        assert_int_equal(ask_remove(conf_store(*state), "words", ask_str("a"), &etag), TEFF_OK);
        assert_int_equal(etag, 0);
        expect(*state, "a", NULL);
        assert_int_equal(put(*state, "a", "again", &etag), TEFF_OK);
        assert_true(etag > old);
        assert_int_equal(put(*state, "a", "late", &old), TEFF_E_CONFLICT);
    }
}

static void remove_nothing(void **state)
{
    uint64_t etag = 0;
    assert_int_equal(ask_remove(conf_store(*state), "words", ask_str("a"), &etag), TEFF_OK);
    assert_int_equal(etag, 0);
}

static void any_etag(void **state)
{
    teffi_row row = row_of("words", "a", "one", 12345);
    row.any = true;
    assert_int_equal(run(*state, TEFFI_STORE_WRITE, &row, 1), TEFF_OK);
    uint64_t first = row.etag;
    assert_int_not_equal(first, 0);
    row.value = ask_str("two");
    row.etag = 0;
    assert_int_equal(run(*state, TEFFI_STORE_WRITE, &row, 1), TEFF_OK);
    assert_true(row.etag > first);
    expect(*state, "a", "two");
    for (int i = 0; i < 2; i++) {
        row.remove = true;
        assert_int_equal(run(*state, TEFFI_STORE_WRITE, &row, 1), TEFF_OK);
        assert_int_equal(row.etag, 0);
        expect(*state, "a", NULL);
    }
}

static void batch_over_tables(void **state)
{
    teffi_row rows[] = {row_of("words", "a", "1", 0), row_of("other_2", "a", "2", 0),
                        row_of("words", "b", "3", 0)};
    teffi_bytes value;
    assert_int_equal(run(*state, TEFFI_STORE_BATCH, rows, 3), TEFF_OK);
    for (size_t i = 0; i < 3; i++) {
        assert_int_equal(get(*state, rows[i].table, rows[i].key, &value), rows[i].etag);
        assert_memory_equal(value.data, rows[i].value.data, 1);
    }
    rows[1].remove = true;
    rows[2].value = ask_str("4");
    assert_int_equal(run(*state, TEFFI_STORE_BATCH, rows, 3), TEFF_OK);
    assert_int_equal(get(*state, "other_2", ask_str("a"), &value), 0);
    expect(*state, "a", "1");
    expect(*state, "b", "4");
}

static void batch_all_or_nothing(void **state)
{
    uint64_t etag = put_new(*state, "b", "old");
    for (size_t bad = 0; bad < 3; bad++) {
        teffi_bytes value;
        teffi_row rows[] = {row_of("words", "a", "new", 0), row_of("words", "b", "new", etag),
                            row_of("other", "c", "new", 0)};
        rows[bad].etag += 5;
        assert_int_equal(run(*state, TEFFI_STORE_BATCH, rows, 3), TEFF_E_CONFLICT);
        assert_int_equal(rows[0].etag, bad == 0 ? 5 : 0);
        assert_int_equal(rows[1].etag, bad == 1 ? etag + 5 : etag);
        expect(*state, "a", NULL);
        expect(*state, "b", "old");
        assert_int_equal(get(*state, "other", ask_str("c"), &value), 0);
    }
}

static void batch_checks_rows(void **state)
{
    uint64_t guard = put_new(*state, "guard", "g"), etag = 0;
    teffi_row rows[] = {row_of("words", "a", "1", 0), row_of("words", "guard", "", guard)};
    teffi_bytes value;
    rows[1].check = true;
    assert_int_equal(run(*state, TEFFI_STORE_BATCH, rows, 2), TEFF_OK);
    assert_int_equal(get(*state, "words", ask_str("a"), &value), rows[0].etag);
    assert_int_equal(rows[1].etag, guard);
    assert_int_equal(get(*state, "words", ask_str("guard"), &value), guard);
    expect(*state, "guard", "g");
    rows[1].etag = guard - 1;
    assert_int_equal(run(*state, TEFFI_STORE_BATCH, rows, 2), TEFF_E_CONFLICT);
    rows[1].etag = guard;
    assert_int_equal(run(*state, TEFFI_STORE_BATCH, rows, 2), TEFF_OK);
    etag = guard;
    assert_int_equal(put(*state, "guard", "h", &etag), TEFF_OK);
    assert_int_equal(run(*state, TEFFI_STORE_BATCH, rows, 2), TEFF_E_CONFLICT);
    assert_int_equal(ask_remove(conf_store(*state), "words", ask_str("guard"), &etag), TEFF_OK);
    rows[1].etag = 0; /* it must not exist */
    assert_int_equal(run(*state, TEFFI_STORE_BATCH, rows, 2), TEFF_OK);
    assert_int_equal(rows[1].etag, 0);
    expect(*state, "guard", NULL);
}

static void checks_of_no_batch(void **state)
{
    teffi_row row = row_of("words", "a", "1", 0);
    row.check = true;
    assert_int_equal(run(*state, TEFFI_STORE_WRITE, &row, 1), TEFF_E_INVALID);
    row.any = true;
    assert_int_equal(run(*state, TEFFI_STORE_BATCH, &row, 1), TEFF_E_INVALID);
    row.any = false;
    row.remove = true;
    assert_int_equal(run(*state, TEFFI_STORE_BATCH, &row, 1), TEFF_E_INVALID);
    expect(*state, "a", NULL);
}

static void batch_same_row_twice(void **state)
{
    teffi_row rows[] = {row_of("words", "a", "1", 0), row_of("words", "b", "2", 0),
                        row_of("words", "a", "3", 0)};
    assert_int_equal(run(*state, TEFFI_STORE_BATCH, rows, 3), TEFF_E_INVALID);
    expect(*state, "a", NULL);
    expect(*state, "b", NULL);
    rows[2].table = "other";
    assert_int_equal(run(*state, TEFFI_STORE_BATCH, rows, 3), TEFF_OK);
}

static void zero_bytes_and_empty(void **state)
{
    static const char keys[][3] = {{0, 0, 0}, {'a', 0, 0}, {'a', 0, 'b'}, {'a', 'b', 0}};
    teffi_bytes value, key = {keys[0], 0};
    uint64_t etag;
    for (size_t i = 0; i < 4; i++)
        for (key.len = i ? 3 : 0, key.data = keys[i]; key.len <= 3; key.len++) {
            etag = 0;
            assert_int_equal(ask_put(conf_store(*state), "words", key, key, &etag), TEFF_OK);
            assert_int_equal(get(*state, "words", key, &value), etag);
            assert_int_equal(value.len, key.len);
            assert_memory_equal(value.data, keys[i], key.len);
        }
    etag = 0;
    assert_int_equal(put(*state, "empty", "", &etag), TEFF_OK);
    assert_int_equal(get(*state, "words", ask_str("empty"), &value), etag);
    assert_int_equal(value.len, 0);
    assert_non_null(value.data);
}

static teff_err scan(conf_env *env, teffi_bytes from, teffi_bytes to, size_t limit,
                     teffi_store_op *op)
{
    static teffi_row start;
    start = (teffi_row){.table = "words", .key = from};
    *op = (teffi_store_op){.kind = TEFFI_STORE_SCAN,
                           .rows = &start,
                           .n_rows = 1,
                           .to = to,
                           .limit = limit,
                           .arena = &env->arena};
    return ask(conf_store(env), op);
}

static void expect_scan(conf_env *env, const char *from, const char *to, size_t limit,
                        const char *keys)
{
    teffi_store_op op;
    char found[64] = "";
    assert_int_equal(scan(env, ask_str(from), ask_str(to), limit, &op), TEFF_OK);
    for (size_t i = 0; i < op.n_found; i++) {
        assert_string_equal(op.rows[i].table, "words");
        assert_int_not_equal(op.rows[i].etag, 0);
        assert_memory_equal(op.rows[i].value.data, op.rows[i].key.data, op.rows[i].key.len);
        strcat(strcat(found, i ? " " : ""), op.rows[i].key.data);
    }
    assert_string_equal(found, keys);
}

static void scan_bounds(void **state)
{
    static const char *const keys[] = {"b", "abc", "a", "\xff", "ab", "c", "B"};
    uint64_t etag = 0;
    for (size_t i = 0; i < 7; i++)
        put_new(*state, keys[i], keys[i]);
    assert_int_equal(ask_put(conf_store(*state), "wordz", ask_str("a"), ask_str("a"), &etag), 0);
    etag = 0;
    assert_int_equal(ask_put(conf_store(*state), "word", ask_str("z"), ask_str("z"), &etag), 0);
    expect_scan(*state, "", "", 100, "B a ab abc b c \xff");
    expect_scan(*state, "ab", "", 100, "ab abc b c \xff");
    expect_scan(*state, "aa", "c", 100, "ab abc b");
    expect_scan(*state, "", "", 3, "B a ab");
    expect_scan(*state, "c", "a", 3, "");
    expect_scan(*state, "c", "c", 3, "");
    expect_scan(*state, "c", "ca", 3, "c");
    expect_scan(*state, "\xff\xff", "", 3, "");
}

static void scan_empty_table(void **state)
{
    teffi_store_op op;
    assert_int_equal(scan(*state, ask_str(""), ask_str(""), 10, &op), TEFF_OK);
    assert_int_equal(op.n_found, 0);
}

static size_t get_batch_max(const conf_env *env)
{
    return env->engine->batch_max ? env->engine->batch_max : TEFFI_STORE_BATCH_MAX;
}

/* More rows than one response may hold, paged through in order. */
static void scan_pages(void **state)
{
    enum { N = TEFFI_STORE_SCAN_MAX + 200, STEP = 7 };
    unsigned batch = (unsigned)get_batch_max(*state);
    char keys[TEFFI_STORE_BATCH_MAX][8];
    teffi_row rows[TEFFI_STORE_BATCH_MAX];
    teffi_store_op op;
    for (unsigned i = 0; i < N; i += batch) {
        unsigned n = N - i < batch ? N - i : batch;
        for (unsigned k = 0; k < n; k++) {
            snprintf(keys[k], sizeof keys[k], "%06u", (i + k) * STEP % N);
            rows[k] = row_of("words", keys[k], keys[k], 0);
            rows[k].any = true;
        }
        assert_int_equal(run(*state, TEFFI_STORE_BATCH, rows, n), TEFF_OK);
    }
    assert_int_equal(scan(*state, ask_str(""), ask_str(""), TEFFI_STORE_SCAN_MAX, &op), TEFF_OK);
    assert_int_equal(op.n_found, TEFFI_STORE_SCAN_MAX);
    for (size_t i = 1; i < op.n_found; i++)
        assert_true(strcmp(op.rows[i - 1].key.data, op.rows[i].key.data) < 0);
    teffi_bytes last = op.rows[op.n_found - 1].key;
    assert_int_equal(scan(*state, last, ask_str(""), TEFFI_STORE_SCAN_MAX, &op), TEFF_OK);
    assert_int_equal(op.n_found, N - TEFFI_STORE_SCAN_MAX + 1);
    assert_string_equal(op.rows[0].key.data, last.data);
}

static void arena_budget(void **state)
{
    conf_env *env = *state;
    teff_arena small;
    teffi_bytes value;
    uint64_t etag = 0;
    char text[4000];
    memset(text, 'x', sizeof text);
    assert_int_equal(
        ask_put(conf_store(env), "words", ask_str("a"), (teffi_bytes){text, sizeof text}, &etag),
        TEFF_OK);
    teffi_arena_init(&small, NULL, 0, 2000);
    assert_int_equal(ask_get(conf_store(env), &small, "words", ask_str("a"), &value, &etag),
                     TEFF_E_NOMEM);
    teffi_row start = {.table = "words"};
    teffi_store_op op = {
        .kind = TEFFI_STORE_SCAN, .rows = &start, .n_rows = 1, .limit = 10, .arena = &small};
    assert_int_equal(ask(conf_store(env), &op), TEFF_E_NOMEM);
    assert_ptr_equal(op.rows, &start);
    assert_int_equal(op.n_found, 0);
    teffi_arena_fini(&small);
}

static void largest_row(void **state)
{
    conf_env *env = *state;
    char key[TEFFI_STORE_KEY_MAX], table[TEFFI_STORE_TABLE_MAX + 1];
    size_t max = env->engine->value_max ? env->engine->value_max : TEFFI_STORE_VALUE_MAX;
    char *big = malloc(max);
    teffi_bytes value;
    uint64_t etag = 0;
    assert_non_null(big);
    for (size_t i = 0; i < max; i++)
        big[i] = (char)(i * 31 % 251);
    memset(key, 'k', sizeof key);
    memset(table, 't', TEFFI_STORE_TABLE_MAX);
    table[TEFFI_STORE_TABLE_MAX] = '\0';
    assert_int_equal(ask_put(conf_store(env), table, (teffi_bytes){key, sizeof key},
                             (teffi_bytes){big, max}, &etag),
                     TEFF_OK);
    assert_int_equal(get(env, table, (teffi_bytes){key, sizeof key}, &value), etag);
    assert_int_equal(value.len, max);
    assert_int_equal(memcmp(value.data, big, value.len), 0);
    free(big);
}

static teff_err put_batch(conf_env *env, teffi_bytes value, size_t n)
{
    char keys[TEFFI_STORE_BATCH_MAX + 1][8];
    teffi_row rows[TEFFI_STORE_BATCH_MAX + 1];
    for (unsigned i = 0; i < n; i++) {
        snprintf(keys[i], sizeof keys[i], "%u", i % 1000);
        rows[i] = row_of("words", keys[i], "", 0);
        rows[i].value = value;
    }
    teffi_store_op op = {.kind = TEFFI_STORE_BATCH, .rows = rows, .n_rows = n};
    teff_err err = ask(conf_store(env), &op);
    assert_true(err == TEFF_OK || op.text[0]);
    return err;
}

/* Over a limit nothing is written, and the error is always the same. */
static void limits(void **state)
{
    conf_env *env = *state;
    size_t value_max = env->engine->value_max ? env->engine->value_max : TEFFI_STORE_VALUE_MAX;
    size_t over = value_max + 10000, batch_max = get_batch_max(env);
    char *big = calloc(1, over);
    assert_non_null(big);
    assert_int_equal(put_batch(env, (teffi_bytes){big, over}, 1), TEFF_E_TOO_LARGE);
    assert_int_equal(put_batch(env, (teffi_bytes){big, 1}, batch_max + 1), TEFF_E_TOO_LARGE);
    expect(env, "0", NULL);
    assert_int_equal(put_batch(env, (teffi_bytes){big, 1}, batch_max), TEFF_OK);
    free(big);
}

int conf_run(const conf_engine *engine)
{
#define CASE(f)                                                                                    \
    cmocka_unit_test_prestate_setup_teardown(f, conf_setup, conf_teardown, (void *)engine)
    const struct CMUnitTest tests[] = {
        CASE(read_missing),
        CASE(create_and_update),
        CASE(create_twice_conflicts),
        CASE(stale_etag_conflicts),
        CASE(update_missing_conflicts),
        CASE(recreate_raises_etag),
        CASE(remove_nothing),
        CASE(any_etag),
        CASE(batch_over_tables),
        CASE(batch_all_or_nothing),
        CASE(batch_checks_rows),
        CASE(checks_of_no_batch),
        CASE(batch_same_row_twice),
        CASE(zero_bytes_and_empty),
        CASE(scan_bounds),
        CASE(scan_empty_table),
        CASE(scan_pages),
        CASE(arena_budget),
        CASE(largest_row),
        CASE(limits),
    };
#undef CASE
    print_message("engine %s\n", engine->name);
    /* first, because a server with many databases of other tests takes long to start again */
    int failed = engine->reopens ? 0 : conf_run_faults(engine);
    failed += cmocka_run_group_tests_name(engine->name, tests, NULL, NULL);
    failed += conf_run_model(engine) + conf_run_threads(engine);
    return engine->shared ? failed + conf_run_processes(engine) : failed;
}
