/* test_etcd.c - engine `etcd`: addresses, the fence of a lost request, lost reads, snapshots, a
 * minority. Faults that other engines have, too, are in conformance_faults.c. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "ask.h"
#include "etcd_server.h"
#include "scratch.h"
#include "setup.h"
#include "store/etcd_rows.h"
#include "tcp_proxy.h"
#include "os/thread.h"

enum { SKIPPED = 77 };

static teffi_store *open_through_proxy(char *address)
{
    char direct[512];
    etcd_server_fresh(direct);
    snprintf(address, 512, "etcd://127.0.0.1:%u%s", proxy_open(etcd_server_port(0)),
             strrchr(direct, '/'));
    return ask_open(address);
}

static teff_err put(teffi_store *store, const char *key, const char *value, uint64_t *etag)
{
    return ask_put(store, "words", ask_str(key), ask_str(value), etag);
}

/* out: the error; TEFF_OK: the row's etag, and its value is this one. */
static teff_err look(teffi_store *store, const char *key, const char *value, uint64_t *etag)
{
    teff_arena arena;
    teffi_bytes found;
    teffi_arena_init(&arena, NULL, 0, 0);
    teff_err err = ask_get(store, &arena, "words", ask_str(key), &found, etag);
    if (err == TEFF_OK) {
        assert_int_equal(found.len, strlen(value));
        assert_memory_equal(found.data, value, found.len);
    }
    teffi_arena_fini(&arena);
    return err;
}

/* Waits until the store has its server again. */
static uint64_t await_row(teffi_store *store, const char *key, const char *value)
{
    uint64_t etag = 0;
    teff_err err;
    while ((err = look(store, key, value, &etag)) == TEFF_E_IO)
        teffi_thread_yield();
    assert_int_equal(err, TEFF_OK);
    return etag;
}

typedef struct pending {
    ask_op ask;
    teffi_row row;
} pending;

static void start_put(teffi_store *store, pending *p, const char *key, teffi_bytes value,
                      uint64_t etag)
{
    p->row = (teffi_row){.table = "words", .key = ask_str(key), .value = value, .etag = etag};
    p->ask.op = (teffi_store_op){.kind = TEFFI_STORE_WRITE, .rows = &p->row, .n_rows = 1};
    ask_start(store, &p->ask);
}

/* ---- addresses ---- */

static void wrong_addresses_are_refused(void **state)
{
    static const char *const bad[] = {
        "etcd:",          "etcd:h:1",        "etcd://",
        "etcd://h",       "etcd://:1",       "etcd://h:",
        "etcd://h:0",     "etcd://h:65536",  "etcd://h:1x",
        "etcd://h:1,",    "etcd://h:1,,h:2", "etcd://h:1/",
        "etcd://h:1/a/b", "etcd://h:1/a b",  "etcd://u@h:1",
        "etcd://h:1/?",   "etcd://h:+1",     "etcd://h:1,h:2,h:3,h:4,h:5,h:6,h:7,h:8,h:9,h:10",
    };
    char name[128] = "etcd://h:1/";
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++)
        ask_expect_refused(bad[i], TEFF_E_INVALID,
                           strchr(bad[i], '?') ? "option" : "etcd://HOST:PORT");
    ask_expect_refused("etcd://h:1/a b?ca-file=x", TEFF_E_INVALID, "etcd://HOST:PORT");
    ask_expect_refused("etcd://h:1?password-file=x", TEFF_E_INVALID, "user expected, too");
    memset(name + strlen(name), 'n', TEFFI_ETCD_NAME_MAX + 1);
    ask_expect_refused(name, TEFF_E_INVALID, "etcd://HOST:PORT");
}

static void servers_that_are_no_etcd_are_refused(void **state)
{
    char address[512];
    snprintf(address, sizeof address, "etcd://127.0.0.1:%u", etcd_server_peer_port(0));
    ask_expect_refused(address, TEFF_E_REFUSED, "not an etcd of 3.4");
    etcd_server_fresh(address);
    etcd_server_kill(0);
    ask_expect_refused(address, TEFF_E_IO, "127.0.0.1");
    etcd_server_restart(0);
    teffi_store_close(ask_open(address));
}

static void names_are_stores(void **state)
{
    char address[512], other[520];
    uint64_t etag = 0, seen = 7;
    etcd_server_fresh(address);
    snprintf(other, sizeof other, "%s.b", address);
    teffi_store *a = ask_open(address), *b = ask_open(other);
    assert_int_equal(put(a, "k", "1", &etag), TEFF_OK);
    assert_int_equal(look(b, "k", "", &seen), TEFF_OK);
    assert_int_equal(seen, 0);
    teffi_store_close(a);
    teffi_store_close(b);
    *strrchr(other, '/') = '\0';
    a = ask_open(other);
    snprintf(other + strlen(other), 10, "/teff");
    b = ask_open(other);
    etag = 0;
    assert_int_equal(put(a, "k", "1", &etag), TEFF_OK);
    assert_int_equal(look(b, "k", "1", &seen), TEFF_OK);
    assert_int_equal(ask_remove(b, "words", ask_str("k"), &seen), TEFF_OK);
    teffi_store_close(a);
    teffi_store_close(b);
}

static void a_new_cluster_in_its_place_is_refused(void **state)
{
    char address[512];
    uint64_t etag = 0;
    etcd_server_fresh(address);
    teffi_store *store = ask_open(address);
    assert_int_equal(put(store, "a", "1", &etag), TEFF_OK);
    etcd_server_stop();
    assert_true(etcd_server_start(1));
    pending p;
    for (int i = 0; i < 2; i++) {
        start_put(store, &p, "b", ask_str("1"), 0);
        assert_int_equal(ask_wait(&p.ask), TEFF_E_IO);
        assert_non_null(strstr(p.ask.op.text, "another cluster"));
        assert_int_equal(look(store, "a", "1", &etag), TEFF_E_IO);
    }
    teffi_store_close(store);
}

/* ---- the connection ---- */

/* A request is lost while no member can be reached. */
static void a_fence_is_raised_before_the_next_read(void **state)
{
    char address[512];
    uint64_t etag = 0, seen;
    pending p;
    teffi_store *store = open_through_proxy(address);
    assert_int_equal(put(store, "a", "old", &etag), TEFF_OK);
    proxy_set(PROXY_HOLD_REQUESTS);
    start_put(store, &p, "a", ask_str("new"), etag);
    proxy_await_end("]}");
    proxy_cut(PROXY_REFUSE);
    assert_int_equal(ask_wait(&p.ask), TEFF_E_UNKNOWN);
    assert_int_equal(look(store, "a", "old", &seen), TEFF_E_IO);
    proxy_set(PROXY_PASS);
    assert_int_equal(await_row(store, "a", "old"), etag);
    assert_true(proxy_deliver() > 0);
    assert_int_equal(await_row(store, "a", "old"), etag);
    teffi_store_close(store);
    proxy_close();
}

/* A read that finds its connection lost is asked again. */
static void a_lost_read_is_asked_again(void **state)
{
    char address[512];
    uint64_t etag = 0;
    teff_arena arena;
    teffi_store *store = open_through_proxy(address);
    assert_int_equal(put(store, "a", "1", &etag), TEFF_OK);
    teffi_arena_init(&arena, NULL, 0, 0);
    teffi_row row = {.table = "words", .key = ask_str("a")};
    ask_op read = {.op = {.kind = TEFFI_STORE_READ, .rows = &row, .n_rows = 1, .arena = &arena}};
    proxy_set(PROXY_HOLD_REPLIES);
    ask_start(store, &read);
    proxy_await_held();
    proxy_cut(PROXY_PASS);
    assert_int_equal(ask_wait(&read), TEFF_OK);
    assert_int_equal(row.etag, etag);
    teffi_arena_fini(&arena);
    teffi_store_close(store);
    proxy_close();
}

/* The pages of a scan are of one revision. */
static void a_scan_is_a_snapshot(void **state)
{
    enum { ROWS = 100 };
    char address[512], keys[ROWS][24];
    teffi_row rows[ROWS], start = {.table = "words"};
    uint64_t etag;
    teff_arena arena;
    teffi_store *store = open_through_proxy(address), *other;
    snprintf(strchr(address, ':'), 400, "://127.0.0.1:%u%s", etcd_server_port(0),
             strdupa(strrchr(address, '/')));
    other = ask_open(address);
    for (size_t i = 0; i < ROWS; i++) {
        snprintf(keys[i], sizeof keys[i], "%03zu", i);
        rows[i] = (teffi_row){.table = "words", .key = ask_str(keys[i])};
    }
    teffi_store_op batch = {.kind = TEFFI_STORE_BATCH, .rows = rows, .n_rows = ROWS};
    assert_int_equal(ask(store, &batch), TEFF_OK);
    teffi_arena_init(&arena, NULL, 0, 0);
    ask_op scan = {
        .op = {
            .kind = TEFFI_STORE_SCAN, .rows = &start, .n_rows = 1, .limit = ROWS, .arena = &arena}};
    proxy_set(PROXY_HOLD_REPLIES);
    ask_start(store, &scan);
    proxy_await_held();
    etag = rows[90].etag;
    assert_int_equal(put(other, keys[90], "new", &etag), TEFF_OK);
    etag = rows[95].etag;
    assert_int_equal(ask_remove(other, "words", ask_str(keys[95]), &etag), TEFF_OK);
    proxy_set(PROXY_PASS);
    assert_int_equal(ask_wait(&scan), TEFF_OK);
    assert_int_equal(scan.op.n_found, ROWS);
    for (size_t i = 0; i < ROWS; i++)
        assert_int_equal(scan.op.rows[i].etag, rows[i].etag);
    teffi_arena_fini(&arena);
    teffi_store_close(store);
    teffi_store_close(other);
    proxy_close();
}

/* ---- members end ---- */

static void a_minority_serves_nothing(void **state)
{
    char address[512];
    uint64_t etag = 0, seen;
    etcd_server_fresh(address);
    teffi_store *store = ask_open(address);
    assert_int_equal(put(store, "a", "1", &etag), TEFF_OK);
    etcd_server_kill(1);
    etcd_server_kill(2);
    teff_err err = put(store, "a", "2", &etag);
    assert_true(err == TEFF_E_UNKNOWN || err == TEFF_E_IO);
    assert_int_equal(look(store, "a", "1", &seen), TEFF_E_IO);
    etcd_server_restart(1);
    while ((err = put(store, "b", "1", &(uint64_t){0})) != TEFF_OK && err != TEFF_E_CONFLICT)
        assert_true(err == TEFF_E_IO || err == TEFF_E_UNKNOWN);
    teff_arena arena;
    teffi_bytes value;
    teffi_arena_init(&arena, NULL, 0, 0);
    assert_int_equal(ask_get(store, &arena, "words", ask_str("a"), &value, &seen), TEFF_OK);
    assert_int_equal(seen != etag, *(const char *)value.data == '2');
    teffi_arena_fini(&arena);
    etcd_server_restart(2);
    teffi_store_close(store);
}

static void an_idle_store_does_not_notice_a_restart(void **state)
{
    char address[512];
    uint64_t etag = 0;
    etcd_server_fresh(address);
    teffi_store *store = ask_open(address);
    assert_int_equal(put(store, "a", "1", &etag), TEFF_OK);
    etcd_server_kill(0);
    etcd_server_restart(0);
    assert_int_equal(put(store, "a", "2", &etag), TEFF_OK);
    etcd_server_kill(0);
    assert_int_equal(put(store, "a", "3", &etag), TEFF_E_IO);
    pending p;
    start_put(store, &p, "a", ask_str("3"), etag);
    store->ops->close(store);
    assert_int_equal(ask_wait(&p.ask), TEFF_E_IO);
    store->ops->free(store);
    etcd_server_restart(0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(wrong_addresses_are_refused),
        cmocka_unit_test(servers_that_are_no_etcd_are_refused),
        cmocka_unit_test(names_are_stores),
        cmocka_unit_test(a_fence_is_raised_before_the_next_read),
        cmocka_unit_test(a_lost_read_is_asked_again),
        cmocka_unit_test(a_scan_is_a_snapshot),
        cmocka_unit_test(an_idle_store_does_not_notice_a_restart),
        cmocka_unit_test(a_new_cluster_in_its_place_is_refused),
    };
    const struct CMUnitTest cluster_tests[] = {
        cmocka_unit_test(a_minority_serves_nothing),
    };
    if (scratch_open() != 0)
        return 1;
    if (!etcd_server_start(1)) {
        print_message("skipped: there is no etcd (package etcd-server)\n");
        scratch_close();
        return SKIPPED;
    }
    int failed = cmocka_run_group_tests(tests, NULL, NULL);
    etcd_server_stop();
    assert_true(etcd_server_start(3));
    failed += cmocka_run_group_tests(cluster_tests, NULL, NULL);
    etcd_server_stop();
    scratch_close();
    return failed;
}
