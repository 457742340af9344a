/* test_sqlite_faults.c - engine `sqlite` when the disk fails: each write, sync and read of a run in
 * turn, through a shim of SQLite's own file layer (VFS). What was acknowledged must be there when
 * the file is opened again; what was told to have failed must not, unless it was told UNKNOWN. */
#include <sqlite3.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include "ask.h"
#include "scratch.h"
#include "setup.h"
#include "sqlite_shim.h"

enum { WRITES = 6, INDEX_MAX = 2000 };

static int install(void **state)
{
    (void)state;
    return scratch_open() == 0 && sqlite_shim_install() ? 0 : -1;
}

static int remove_shim(void **state)
{
    (void)state;
    sqlite_shim_remove();
    scratch_close();
    return 0;
}

/* One row through a run: each write sets it to the write's number. */
typedef struct history {
    uint64_t acked;     /* the last write acknowledged */
    uint64_t maybe_max; /* the highest one told UNKNOWN after it */
    bool bad;           /* an outcome that no write may have */
    unsigned unknown, failed;
} history;

static void note(history *h, uint64_t n, teff_err err)
{
    if (err == TEFF_OK) {
        h->acked = n;
        h->maybe_max = 0;
    } else if (err == TEFF_E_UNKNOWN) {
        h->maybe_max = n;
        h->unknown++;
    } else if (err == TEFF_E_IO || err == TEFF_E_NOMEM) {
        h->failed++;
    } else {
        h->bad = true;
    }
}

static void write_all(teffi_store *store, history *h)
{
    for (uint64_t n = 1; n <= WRITES; n++) {
        char filler[3000];
        memset(filler, (int)n, sizeof filler);
        memcpy(filler, &n, sizeof n);
        teffi_row row = {
            .table = "words", .key = ask_str("a"), .any = true, .value = {filler, sizeof filler}};
        teffi_store_op op = {.kind = TEFFI_STORE_WRITE, .rows = &row, .n_rows = 1};
        note(h, n, ask(store, &op));
    }
}

static bool holds(teffi_store *store, const history *h)
{
    teff_arena arena;
    teffi_bytes value;
    uint64_t etag, n = 0;
    teffi_arena_init(&arena, NULL, 0, 0);
    teff_err err = ask_get(store, &arena, "words", ask_str("a"), &value, &etag);
    if (err == TEFF_OK && value.len >= sizeof n)
        memcpy(&n, value.data, sizeof n);
    teffi_arena_fini(&arena);
    return err == TEFF_OK && !h->bad && (n == h->acked || (n > h->acked && n <= h->maybe_max));
}

/* What a crash right now would leave: the file and its log, copied to another name. */
static void copy_as_crashed(const char *address, const char *copy)
{
    static const char *const parts[] = {"", "-wal"};
    static char bytes[1024 * 1024];
    char from[600], to[600];
    for (size_t i = 0; i < 2; i++) {
        snprintf(from, sizeof from, "%s%s", address + strlen("sqlite:"), parts[i]);
        snprintf(to, sizeof to, "%s%s", copy + strlen("sqlite:"), parts[i]);
        if (access(from, F_OK) == 0)
            scratch_write(to, bytes, scratch_read(from, bytes, sizeof bytes));
    }
}

static bool opens_and_holds(const char *address, const history *h)
{
    char text[TEFF_TEXT_MAX];
    teffi_store *store;
    if (teffi_store_open(address, &store, text) != TEFF_OK) {
        print_error("does not open again: %s\n", text);
        return false;
    }
    bool good = holds(store, h);
    teffi_store_close(store);
    return good;
}

/* The whole life of a file with the fault at call number `from`, once ended by a close and once by
 * a crash. out: false: a promise broken. */
static bool live_through(shim_fault f, int from, bool all, history *h)
{
    char address[512], copy[512] = "", text[TEFF_TEXT_MAX];
    teffi_store *store;
    *h = (history){0};
    scratch_fresh(address);
    sqlite_shim_arm(f, from, all);
    teff_err opened = teffi_store_open(address, &store, text);
    if (opened == TEFF_OK) {
        write_all(store, h);
        scratch_fresh(copy);
        copy_as_crashed(address, copy);
        teffi_store_close(store);
    } else if (text[0] == '\0') {
        return false;
    }
    sqlite_shim_arm(SHIM_NONE, 0, false);
    return opens_and_holds(address, h) && (!copy[0] || opens_and_holds(copy, h));
}

/* Each index in turn until the run has no such call any more. */
static void sweep(shim_fault f, bool all, history *sum)
{
    int from = 0;
    *sum = (history){0};
    do {
        history h;
        if (!live_through(f, from, all, &h))
            fail_msg("fault %d at call %d (%s)", (int)f, from, all ? "lasting" : "once");
        sum->unknown += h.unknown;
        sum->failed += h.failed;
    } while (sqlite_shim_count_hits() > 0 && ++from < INDEX_MAX);
    assert_in_range(from, 5, INDEX_MAX - 1);
}

static void every_write(void **state)
{
    history sum;
    sweep(SHIM_FAIL_WRITE, false, &sum);
    assert_int_not_equal(sum.unknown, 0);
    sweep(SHIM_FAIL_WRITE, true, &sum);
    assert_int_not_equal(sum.unknown + sum.failed, 0);
}

static void every_sync(void **state)
{
    history sum;
    sweep(SHIM_FAIL_SYNC, false, &sum);
    assert_int_not_equal(sum.unknown, 0);
    sweep(SHIM_FAIL_SYNC, true, &sum);
    assert_int_not_equal(sum.unknown, 0);
}

/* A full disk is no riddle: what does not fit was not written, and there is no UNKNOWN. */
static void every_full(void **state)
{
    history sum;
    sweep(SHIM_FAIL_FULL, true, &sum);
    assert_int_equal(sum.unknown, 0);
    assert_int_not_equal(sum.failed, 0);
}

static void every_read(void **state)
{
    history sum;
    sweep(SHIM_FAIL_READ, false, &sum);
}

/* Many in flight when one sync fails: all of that group are UNKNOWN, those after it are written. */
static void group_outcomes(void **state)
{
    enum { FLIGHT = 32 };
    static ask_op ops[FLIGHT];
    static teffi_row rows[FLIGHT];
    char address[512];
    teffi_store *store;
    teff_arena arena;
    unsigned unknown = 0;
    scratch_fresh(address);
    assert_int_equal(teffi_store_open(address, &store, NULL), TEFF_OK);
    sqlite_shim_arm(SHIM_FAIL_SYNC, 0, false);
    for (unsigned i = 0; i < FLIGHT; i++) {
        rows[i] = (teffi_row){.table = "words", .key = {&rows[i], 8 + i}};
        ops[i].op = (teffi_store_op){.kind = TEFFI_STORE_WRITE, .rows = &rows[i], .n_rows = 1};
        ask_start(store, &ops[i]);
    }
    teffi_arena_init(&arena, NULL, 0, 0);
    for (unsigned i = 0; i < FLIGHT; i++) {
        teff_err err = ask_wait(&ops[i]);
        assert_true(err == TEFF_OK || err == TEFF_E_UNKNOWN);
        assert_int_equal(rows[i].etag != 0, err == TEFF_OK);
        unknown += err == TEFF_E_UNKNOWN;
    }
    assert_int_not_equal(unknown, 0);
    teffi_arena_fini(&arena);
    teffi_store_close(store);
}

static void put_rows(const char *address, unsigned n)
{
    static char value[300 * 1024]; /* all together more than SQLite's cache */
    teffi_store *store;
    assert_int_equal(teffi_store_open(address, &store, NULL), TEFF_OK);
    for (unsigned i = 0; i < n; i++) {
        uint64_t etag = 0;
        teffi_bytes bytes = {value, sizeof value};
        assert_int_equal(ask_put(store, "words", (teffi_bytes){&i, sizeof i}, bytes, &etag),
                         TEFF_OK);
    }
    teffi_store_close(store);
}

/* out: false: no read has failed: the scan has found n rows. */
static bool scan_with_fault(const char *address, int from, unsigned n)
{
    teffi_store *store;
    teff_arena arena;
    teffi_row row = {.table = "words"};
    teffi_store_op op = {.kind = TEFFI_STORE_SCAN, .rows = &row, .n_rows = 1, .limit = n};
    op.arena = &arena;
    teffi_arena_init(&arena, NULL, 0, 0);
    assert_int_equal(teffi_store_open(address, &store, NULL), TEFF_OK);
    sqlite_shim_arm(SHIM_FAIL_READ, from, false);
    teff_err err = ask(store, &op);
    bool failed = sqlite_shim_count_hits() > 0;
    sqlite_shim_arm(SHIM_NONE, 0, false);
    assert_int_equal(err, failed ? TEFF_E_IO : TEFF_OK);
    assert_int_equal(op.n_found, failed ? 0 : n);
    assert_int_equal(op.rows == &row, failed);
    teffi_store_close(store);
    teffi_arena_fini(&arena);
    return failed;
}

/* Also with rows that were found before. */
static void a_scan_that_fails_is_as_it_was_submitted(void **state)
{
    enum { ROWS = 20 };
    char address[512];
    int from = 0;
    scratch_fresh(address);
    put_rows(address, ROWS);
    while (scan_with_fault(address, from, ROWS))
        from += 1 + from / 4;
    assert_true(from > ROWS);
}

/* SQLite has no memory for the second row, after it has written the first. */
static void a_batch_without_memory_writes_nothing(void **state)
{
    enum { MIB = 1024 * 1024, BIG = 12 * MIB };
    char address[512], *value = calloc(1, BIG);
    teffi_store *store;
    teff_arena arena;
    teffi_bytes seen;
    uint64_t etag = 1;
    teffi_row rows[] = {{.table = "words", .key = ask_str("a"), .value = ask_str("1")},
                        {.table = "words", .key = ask_str("b"), .value = {value, BIG}}};
    teffi_store_op op = {.kind = TEFFI_STORE_BATCH, .rows = rows, .n_rows = 2};
    teffi_arena_init(&arena, NULL, 0, 0);
    scratch_fresh(address);
    assert_int_equal(teffi_store_open(address, &store, NULL), TEFF_OK);
    (void)sqlite3_hard_heap_limit64(sqlite3_memory_used() + 4 * MIB);
    teff_err err = ask(store, &op);
    (void)sqlite3_hard_heap_limit64(0);
    assert_int_equal(err, TEFF_E_NOMEM);
    assert_int_equal(rows[0].etag | rows[1].etag, 0);
    assert_int_equal(ask_get(store, &arena, "words", ask_str("a"), &seen, &etag), TEFF_OK);
    assert_int_equal(etag, 0);
    assert_int_equal(ask(store, &op), TEFF_OK);
    teffi_arena_fini(&arena);
    teffi_store_close(store);
    free(value);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_write),
        cmocka_unit_test(every_sync),
        cmocka_unit_test(every_full),
        cmocka_unit_test(every_read),
        cmocka_unit_test(group_outcomes),
        cmocka_unit_test(a_scan_that_fails_is_as_it_was_submitted),
        cmocka_unit_test(a_batch_without_memory_writes_nothing),
    };
    return cmocka_run_group_tests(tests, install, remove_shim);
}
