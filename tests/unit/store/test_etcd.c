/* test_etcd.c - engine `etcd` when a request is lost, and when members end. What was acknowledged
 * is there afterwards; reading shows the outcome of a write that is UNKNOWN, and it stays. */
#include <stdatomic.h>
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

enum { SKIPPED = 77, ANSWER_MAX = 4096 };

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

static void post(const char *path, const char *json, char *answer)
{
    if (etcd_server_post(0, path, json, answer, ANSWER_MAX) != 200)
        fail_msg("%s %s: %s", path, json, answer);
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

static void a_cluster_without_space_refuses_writes(void **state)
{
    char address[512], answer[ANSWER_MAX], alarm[200];
    uint64_t etag = 0, seen;
    etcd_server_fresh(address);
    teffi_store *store = ask_open(address);
    assert_int_equal(put(store, "a", "old", &etag), TEFF_OK);
    post("/v3/maintenance/alarm", "{\"action\":\"ACTIVATE\",\"alarm\":\"NOSPACE\"}", answer);
    seen = etag;
    assert_int_equal(put(store, "a", "new", &etag), TEFF_E_IO);
    assert_int_equal(etag, seen);
    assert_int_equal(look(store, "a", "old", &seen), TEFF_OK);
    snprintf(alarm, sizeof alarm, "{\"action\":\"DEACTIVATE\",\"alarm\":\"NOSPACE\"}");
    post("/v3/maintenance/alarm", alarm, answer);
    assert_int_equal(put(store, "a", "new", &etag), TEFF_OK);
    teffi_store_close(store);
}

static void lose_one_write(bool has_run)
{
    char address[512];
    uint64_t etag = 0;
    pending p;
    teffi_store *store = open_through_proxy(address);
    assert_int_equal(put(store, "a", "old", &etag), TEFF_OK);
    proxy_set(has_run ? PROXY_HOLD_REPLIES : PROXY_HOLD_REQUESTS);
    start_put(store, &p, "a", ask_str("new"), etag);
    if (has_run)
        proxy_await_held();
    else
        proxy_await_end("]}"); /* the body comes after the head */
    proxy_cut(PROXY_PASS);
    assert_int_equal(ask_wait(&p.ask), TEFF_E_UNKNOWN);
    assert_int_equal(p.row.etag, etag);
    assert_non_null(strstr(p.ask.op.text, "connection lost"));
    /* the server takes the late request, and answers that it has written nothing */
    assert_int_equal(proxy_deliver() > 0, !has_run);
    uint64_t seen = await_row(store, "a", has_run ? "new" : "old");
    assert_int_equal(seen != etag, has_run);
    assert_int_equal(put(store, "a", "newer", &seen), TEFF_OK);
    teffi_store_close(store);
    proxy_close();
}

static void a_write_that_was_sent_is_unknown(void **state)
{
    lose_one_write(true);
}

static void a_lost_request_writes_nothing_later(void **state)
{
    lose_one_write(false);
}

/* The same while no member can be reached: the fence is raised before the store is used again. */
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

static void what_was_not_sent_is_unavailable(void **state)
{
    char address[512];
    uint64_t etag = 0;
    pending sent, queued;
    teffi_store *store = open_through_proxy(address);
    assert_int_equal(put(store, "a", "1", &etag), TEFF_OK);
    proxy_set(PROXY_HOLD_REPLIES);
    start_put(store, &sent, "a", ask_str("2"), etag);
    proxy_await_held();
    start_put(store, &queued, "b", ask_str("1"), 0);
    proxy_cut(PROXY_REFUSE);
    assert_int_equal(ask_wait(&sent.ask), TEFF_E_UNKNOWN);
    assert_int_equal(ask_wait(&queued.ask), TEFF_E_IO);
    assert_int_equal(look(store, "a", "2", &etag), TEFF_E_IO);
    proxy_await_links(proxy_links() + 4); /* without an operation */
    proxy_set(PROXY_PASS);
    etag = await_row(store, "a", "2");
    assert_int_equal(look(store, "b", "", &etag), TEFF_OK);
    assert_int_equal(etag, 0);
    teffi_store_close(store);
    proxy_close();
}

static void a_server_that_does_not_answer_is_lost(void **state)
{
    char address[512];
    uint64_t etag = 0;
    teffi_store *store = open_through_proxy(address);
    proxy_set(PROXY_HOLD_REQUESTS);
    assert_int_equal(put(store, "a", "1", &etag), TEFF_E_UNKNOWN);
    proxy_set(PROXY_PASS);
    await_row(store, "a", "");
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

enum { WRITERS = 4, ROUNDS = 6, ACKS = 30 };

typedef struct writer {
    pthread_t thread;
    teffi_store *store;
    char key[2];
    uint64_t etag;
    _Atomic uint64_t acked;
    const char *wrong; /* what must not happen */
} writer;

static _Atomic bool writers_stop;

/* in: next: was being written with an unknown outcome. */
static void resolve_by_reading(writer *w, uint64_t next)
{
    uint64_t etag, n = 0;
    teff_arena arena;
    teffi_bytes value;
    teff_err err;
    teffi_arena_init(&arena, NULL, 0, 0);
    while ((err = ask_get(w->store, &arena, "acks", ask_str(w->key), &value, &etag)) == TEFF_E_IO)
        teffi_thread_yield();
    if (err == TEFF_OK && value.len == sizeof n)
        memcpy(&n, value.data, sizeof n);
    teffi_arena_fini(&arena);
    if (err != TEFF_OK || (n != next && n != next - 1) || (n != next && etag != w->etag))
        w->wrong = "the row is neither as before nor as written";
    w->etag = etag;
    w->acked = n;
}

static void *write_always(void *arg)
{
    writer *w = arg;
    while (!writers_stop && !w->wrong) {
        uint64_t next = w->acked + 1;
        teff_err err =
            ask_put(w->store, "acks", ask_str(w->key), (teffi_bytes){&next, sizeof next}, &w->etag);
        if (err == TEFF_OK)
            w->acked = next;
        else if (err == TEFF_E_UNKNOWN)
            resolve_by_reading(w, next);
        else if (err == TEFF_E_IO)
            teffi_thread_yield();
        else
            w->wrong = teff_err_name(err);
    }
    return NULL;
}

static void await_acks(const writer *writers, uint64_t more)
{
    for (size_t i = 0; i < WRITERS; i++) {
        uint64_t enough = writers[i].acked + more;
        while (writers[i].acked < enough && !writers[i].wrong)
            teffi_thread_yield();
    }
}

static void expect_acked(const char *address, const writer *w)
{
    teffi_store *store = ask_open(address);
    teff_arena arena;
    teffi_bytes value;
    uint64_t etag;
    if (w->wrong)
        fail_msg("%s: %s", w->key, w->wrong);
    teffi_arena_init(&arena, NULL, 0, 0);
    assert_int_equal(ask_get(store, &arena, "acks", ask_str(w->key), &value, &etag), TEFF_OK);
    assert_int_equal(value.len, sizeof w->acked);
    assert_memory_equal(value.data, &w->acked, value.len);
    assert_int_equal(etag, w->etag);
    teffi_arena_fini(&arena);
    teffi_store_close(store);
}

/* Kills one member after another while writers write. */
static void kill_members(unsigned n)
{
    char address[512];
    writer writers[WRITERS] = {{0}};
    etcd_server_fresh(address);
    teffi_store *store = ask_open(address);
    writers_stop = false;
    for (size_t i = 0; i < WRITERS; i++) {
        writers[i].store = store;
        writers[i].key[0] = (char)('a' + i);
        assert_int_equal(pthread_create(&writers[i].thread, NULL, write_always, &writers[i]), 0);
    }
    for (unsigned i = 0; i < ROUNDS; i++) {
        await_acks(writers, ACKS);
        etcd_server_kill(i % n);
        if (n > 1)
            await_acks(writers, ACKS); /* the others serve */
        etcd_server_restart(i % n);
    }
    await_acks(writers, ACKS);
    writers_stop = true;
    for (size_t i = 0; i < WRITERS; i++)
        pthread_join(writers[i].thread, NULL);
    teffi_store_close(store);
    for (size_t i = 0; i < WRITERS; i++)
        expect_acked(address, &writers[i]);
}

static void kills_of_the_server_lose_nothing(void **state)
{
    kill_members(1);
}

static void kills_of_members_lose_nothing(void **state)
{
    kill_members(3);
}

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
        cmocka_unit_test(a_cluster_without_space_refuses_writes),
        cmocka_unit_test(a_write_that_was_sent_is_unknown),
        cmocka_unit_test(a_lost_request_writes_nothing_later),
        cmocka_unit_test(a_fence_is_raised_before_the_next_read),
        cmocka_unit_test(what_was_not_sent_is_unavailable),
        cmocka_unit_test(a_server_that_does_not_answer_is_lost),
        cmocka_unit_test(a_lost_read_is_asked_again),
        cmocka_unit_test(a_scan_is_a_snapshot),
        cmocka_unit_test(kills_of_the_server_lose_nothing),
        cmocka_unit_test(an_idle_store_does_not_notice_a_restart),
        cmocka_unit_test(a_new_cluster_in_its_place_is_refused),
    };
    const struct CMUnitTest cluster_tests[] = {
        cmocka_unit_test(kills_of_members_lose_nothing),
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
