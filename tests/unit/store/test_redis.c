/* test_redis.c - engine `redis`: logins, servers that are refused or left, damaged rows, formats.
 * Faults that other engines have, too, are in conformance_faults.c. */
#include <fcntl.h>
#include <hiredis/hiredis.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>
#include "ask.h"
#include "tcp_proxy.h"
#include "redis_server.h"
#include "scratch.h"
#include "setup.h"
#include "os/thread.h"

enum { SKIPPED = 77, MIB = 1024 * 1024 };

/* A command of the test's own, not through the store; %s: the prefix of its keys. */
static void command(const char *format, const char *address)
{
    const char *name = strrchr(address, '/') + 1;
    redisContext *c = redisConnect("127.0.0.1", (int)redis_server_port());
    redisReply *reply = redisCommand(c, format, name);
    assert_non_null(reply);
    if (reply->type == REDIS_REPLY_ERROR)
        fail_msg("%s: %s", format, reply->str);
    freeReplyObject(reply);
    redisFree(c);
}

static teffi_store *open_through_proxy(char *address)
{
    char direct[512];
    redis_server_fresh(direct);
    snprintf(address, 512, "redis:127.0.0.1:%u%s", proxy_open(redis_server_port()),
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

/* ---- what is refused ---- */

static void other_addresses_are_refused(void **state)
{
    static const char *const wrong[] = {
        "redis:",        "redis:host",    "redis:6379",    "redis::6379",
        "redis:host:",   "redis:host:x",  "redis:host:0",  "redis:host:65536",
        "redis:host:1x", "redis:host:1/", "redis:host/db", "redis:host:1/a b",
    };
    for (size_t i = 0; i < sizeof wrong / sizeof wrong[0]; i++)
        ask_expect_refused(wrong[i], TEFF_E_INVALID,
                           "redis:HOST:PORT or redis:HOST:PORT/NAME expected");
    ask_expect_refused("redis:host:1?ca-file=x", TEFF_E_INVALID, "option 'ca-file' of the store");
}

static void write_password(const char *path, const char *password)
{
    scratch_write(path, password, strlen(password));
    assert_int_equal(chmod(path, 0600), 0);
}

/* The user may do what README says that it needs, and nothing else. */
static void a_user_logs_in_with_the_password_of_a_file(void **state)
{
    char address[512], as_user[1024], path[SCRATCH_PATH_MAX];
    redis_server_fresh(address);
    scratch_path(path, "password");
    snprintf(as_user, sizeof as_user, "%s?user=words&password-file=%s", address, path);
    command("ACL SETUSER words on >one ~%s:* +info +config|get +evalsha +script|load +client|id "
            "+client|kill "
            "+del +exists +hget +hmget +hset +incrby +zadd +zcard +zrangebylex +zrem",
            address);
    ask_expect_refused(as_user, TEFF_E_INVALID, "/password': No such file");
    write_password(path, "two\n");
    ask_expect_refused(as_user, TEFF_E_REFUSED, "WRONGPASS");
    write_password(path, "one\n");
    teffi_store *store = ask_open(as_user);
    uint64_t etag = 0;
    assert_int_equal(put(store, "a", "first", &etag), TEFF_OK);
    write_password(path, "three"); /* it is read again for each connection */
    command("ACL SETUSER words resetpass >three", address);
    command("CLIENT KILL USER words", address);
    etag = await_row(store, "a", "first");
    assert_int_equal(put(store, "a", "second", &etag), TEFF_OK);
    teffi_store_close(store);
    command("ACL DELUSER words", address);
}

static void a_server_with_one_password_wants_it(void **state)
{
    char address[512], with[1024], path[SCRATCH_PATH_MAX];
    redis_server_fresh(address);
    scratch_path(path, "password");
    snprintf(with, sizeof with, "%s?password-file=%s", address, path);
    write_password(path, "one\n");
    command("CONFIG SET requirepass one", address);
    ask_expect_refused(address, TEFF_E_IO, "NOAUTH");
    teffi_store_close(ask_open(with));
    redisContext *c = redisConnect("127.0.0.1", (int)redis_server_port());
    freeReplyObject(redisCommand(c, "AUTH one"));
    freeReplyObject(redisCommand(c, "CONFIG SET requirepass %s", ""));
    redisFree(c);
    teffi_store_close(ask_open(address));
}

static void servers_that_lose_rows_are_refused(void **state)
{
    char address[512];
    redis_server_fresh(address);
    command("CONFIG SET maxmemory 100mb", address);
    command("CONFIG SET maxmemory-policy allkeys-lru", address);
    ask_expect_refused(address, TEFF_E_REFUSED, "maxmemory-policy noeviction");
    command("CONFIG SET maxmemory 0", address);
    teffi_store_close(ask_open(address));
    command("CONFIG SET maxmemory-policy noeviction", address);
    command("REPLICAOF 127.0.0.1 1", address);
    ask_expect_refused(address, TEFF_E_REFUSED, "replica");
    command("REPLICAOF NO ONE", address);
    redis_server_kill();
    ask_expect_refused(address, TEFF_E_IO, "Connection refused");
    assert_true(redis_server_start("no"));
    ask_expect_refused(address, TEFF_E_REFUSED, "appendonly yes");
    redis_server_kill();
    assert_true(redis_server_start("yes"));
    teffi_store_close(ask_open(address));
}

/* out: how often `what` is in the lines that opening the store, and a new connection after that,
 * log to stderr. */
static int count_warnings(const char *address, const char *what)
{
    char path[SCRATCH_PATH_MAX], lines[4096];
    uint64_t etag = 0;
    int n = 0, real = dup(STDERR_FILENO);
    scratch_path(path, "stderr");
    int file = open(path, O_WRONLY | O_CREAT | O_TRUNC, 0600);
    assert_int_equal(dup2(file, STDERR_FILENO), STDERR_FILENO);
    close(file);
    teffi_store *store = ask_open(address);
    command("CLIENT KILL TYPE normal", address);
    teff_err err;
    while ((err = put(store, "a", "1", &etag)) == TEFF_E_IO)
        teffi_thread_yield();
    teffi_store_close(store);
    dup2(real, STDERR_FILENO);
    close(real);
    assert_int_equal(err, TEFF_OK);
    lines[scratch_read(path, lines, sizeof lines - 1)] = '\0';
    for (const char *at = lines; (at = strstr(at, what)); at++)
        n++;
    return n;
}

static void a_server_that_syncs_late_is_reported_once(void **state)
{
    char address[512], as_user[1024], path[SCRATCH_PATH_MAX];
    redis_server_fresh(address);
    assert_int_equal(count_warnings(address, "appendfsync"), 0);
    redis_server_fresh(address);
    command("CONFIG SET appendfsync everysec", address);
    assert_int_equal(count_warnings(address, "appendfsync is everysec"), 1);
    command("CONFIG SET appendfsync always", address);
    scratch_path(path, "password");
    write_password(path, "one\n");
    redis_server_fresh(address);
    snprintf(as_user, sizeof as_user, "%s?user=words&password-file=%s", address, path);
    command("ACL SETUSER words on >one ~%s:* +@all -config", address);
    assert_int_equal(count_warnings(as_user, "appendfsync is not known"), 1);
    command("ACL DELUSER words", address);
}

/* ---- the connection ---- */

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

/* ---- a pipeline that is sent in part ---- */

enum { LARGE = 12 };

static pending small, large[LARGE];
static teffi_store *pipeline_store;
static char large_value[MIB];
static _Atomic bool pipeline_submitted;

/* On the engine's thread, which then finds all of them. */
static void stall_and_submit(teffi_store_op *op)
{
    proxy_set(PROXY_STALL);
    start_put(pipeline_store, &small, "small", ask_str("x"), 0);
    for (size_t i = 0; i < LARGE; i++) {
        static char keys[LARGE][8];
        snprintf(keys[i], sizeof keys[i], "k%zu", i);
        start_put(pipeline_store, &large[i], keys[i], (teffi_bytes){large_value, MIB}, 0);
    }
    pipeline_submitted = true;
}

static void only_what_the_system_has_taken_is_unknown(void **state)
{
    char address[512];
    uint64_t etag;
    teff_arena arena;
    pipeline_store = open_through_proxy(address);
    teffi_arena_init(&arena, NULL, 0, 0);
    teffi_row row = {.table = "words", .key = ask_str("none")};
    teffi_store_op first = {.kind = TEFFI_STORE_READ,
                            .rows = &row,
                            .n_rows = 1,
                            .arena = &arena,
                            .done = stall_and_submit};
    pipeline_submitted = false;
    teffi_store_submit(pipeline_store, &first);
    while (!pipeline_submitted)
        teffi_thread_yield();
    assert_int_equal(first.err, TEFF_OK);
    proxy_await_stalled();
    proxy_cut(PROXY_PASS);
    assert_int_equal(ask_wait(&small.ask), TEFF_E_UNKNOWN);
    teff_err last = TEFF_E_UNKNOWN;
    for (size_t i = 0; i < LARGE; i++) {
        teff_err err = ask_wait(&large[i].ask);
        assert_true(err == TEFF_E_IO || (err == TEFF_E_UNKNOWN && last == err));
        last = err;
    }
    assert_int_equal(last, TEFF_E_IO);
    assert_int_equal(look(pipeline_store, "small", "", &etag), TEFF_OK);
    assert_int_equal(etag, 0);
    teffi_store_close(pipeline_store);
    teffi_arena_fini(&arena);
    proxy_close();
}

static void an_idle_store_does_not_notice_a_restart(void **state)
{
    char address[512];
    uint64_t etag = 0;
    redis_server_fresh(address);
    teffi_store *store = ask_open(address);
    assert_int_equal(put(store, "a", "1", &etag), TEFF_OK);
    redis_server_kill();
    assert_true(redis_server_start("yes"));
    assert_int_equal(put(store, "a", "2", &etag), TEFF_OK);
    redis_server_kill();
    assert_int_equal(put(store, "a", "3", &etag), TEFF_E_IO);
    pending p;
    start_put(store, &p, "a", ask_str("3"), etag);
    store->ops->close(store);
    assert_int_equal(ask_wait(&p.ask), TEFF_E_IO);
    store->ops->free(store);
    assert_true(redis_server_start("yes"));
}

/* The store ends its lost connection by number. A new server has other clients of such numbers. */
static void a_new_server_keeps_its_clients(void **state)
{
    enum { CLIENTS = 32 }; /* more than the first server has had when the store connects */
    char address[512];
    uint64_t etag = 0;
    redisContext *clients[CLIENTS];
    redis_server_kill();
    assert_true(redis_server_start("yes"));
    redis_server_fresh(address);
    teffi_store *store = ask_open(address);
    assert_int_equal(put(store, "a", "1", &etag), TEFF_OK);
    redis_server_kill();
    assert_true(redis_server_start("yes"));
    for (size_t i = 0; i < CLIENTS; i++)
        clients[i] = redisConnect("127.0.0.1", (int)redis_server_port());
    assert_int_equal(put(store, "a", "2", &etag), TEFF_OK);
    for (size_t i = 0; i < CLIENTS; i++) {
        redisReply *reply = redisCommand(clients[i], "PING");
        assert_non_null(reply);
        freeReplyObject(reply);
        redisFree(clients[i]);
    }
    teffi_store_close(store);
}

static void a_forgotten_script_is_loaded_again(void **state)
{
    char address[512];
    uint64_t etag = 0;
    redis_server_fresh(address);
    teffi_store *store = ask_open(address);
    command("SCRIPT FLUSH", address);
    assert_int_equal(put(store, "a", "1", &etag), TEFF_E_IO);
    assert_int_equal(put(store, "a", "1", &etag), TEFF_OK);
    teffi_store_close(store);
}

/* ---- the server becomes a replica, with its connections left open ---- */

/* A read through the session for the cluster's own tables, or through the one for states. */
static teff_err read_from(teffi_store *store, const char *table, char text[160])
{
    teff_arena arena;
    teffi_arena_init(&arena, NULL, 0, 0);
    teffi_row row = {.table = table, .key = ask_str("a")};
    teffi_store_op op = {.kind = TEFFI_STORE_READ, .rows = &row, .n_rows = 1, .arena = &arena};
    teff_err err = ask(store, &op);
    snprintf(text, 160, "%s", op.text);
    teffi_arena_fini(&arena);
    return err;
}

static void expect_left(teffi_store *store, const char *table)
{
    char text[160];
    assert_int_equal(read_from(store, table, text), TEFF_E_IO);
    if (!strstr(text, "the server is a replica"))
        fail_msg("%s: %s", table, text);
}

/* A write through one session shows both that the server is a replica. */
static void a_demoted_server_is_left(void **state)
{
    static const char *const tables[] = {"words", TEFFI_TABLE_MEMBERSHIP};
    char address[512], text[160];
    redis_server_fresh(address);
    teffi_store *store = ask_open(address);
    for (size_t i = 0; i < 2; i++) {
        uint64_t etag = 0;
        command("REPLICAOF 127.0.0.1 1", address);
        assert_int_equal(ask_put(store, tables[i], ask_str("a"), ask_str("1"), &etag), TEFF_E_IO);
        expect_left(store, tables[0]);
        expect_left(store, tables[1]);
        command("REPLICAOF NO ONE", address);
        for (size_t k = 0; k < 2; k++)
            while (read_from(store, tables[k], text) == TEFF_E_IO)
                teffi_thread_yield();
    }
    teffi_store_close(store);
}

static void a_replica_without_its_primary_is_left(void **state)
{
    char address[512], text[160];
    redis_server_fresh(address);
    teffi_store *store = ask_open(address);
    command("CONFIG SET replica-serve-stale-data no", address);
    command("REPLICAOF 127.0.0.1 1", address);
    assert_int_equal(read_from(store, "words", text), TEFF_E_IO);
    assert_non_null(strstr(text, "MASTERDOWN"));
    expect_left(store, "words");
    expect_left(store, TEFFI_TABLE_MEMBERSHIP);
    command("REPLICAOF NO ONE", address);
    command("CONFIG SET replica-serve-stale-data yes", address);
    await_row(store, "a", "");
    teffi_store_close(store);
}

/* ---- the version of the format ---- */

static void expect_mark(const char *address, const char *version)
{
    redisContext *c = redisConnect("127.0.0.1", (int)redis_server_port());
    redisReply *reply = redisCommand(c, "HGET %s:format version", strrchr(address, '/') + 1);
    assert_non_null(reply);
    if (version)
        assert_string_equal(reply->type == REDIS_REPLY_STRING ? reply->str : "none", version);
    else
        assert_int_equal(reply->type, REDIS_REPLY_NIL);
    freeReplyObject(reply);
    redisFree(c);
}

/* A store without the mark is of the first version, perhaps with rows. */
static void a_store_is_marked_with_its_format(void **state)
{
    char address[512];
    uint64_t etag = 0, seen;
    redis_server_fresh(address);
    teffi_store *store = ask_open(address);
    expect_mark(address, "1");
    assert_int_equal(put(store, "a", "1", &etag), TEFF_OK);
    teffi_store_close(store);
    command("DEL %s:format", address);
    command("CONFIG SET maxmemory 1", address); /* the mark cannot be written */
    store = ask_open(address);
    assert_int_equal(look(store, "a", "1", &seen), TEFF_OK);
    assert_int_equal(seen, etag);
    teffi_store_close(store);
    expect_mark(address, NULL);
    command("CONFIG SET maxmemory 0", address);
    store = ask_open(address);
    expect_mark(address, "1");
    assert_int_equal(look(store, "a", "1", &seen), TEFF_OK);
    teffi_store_close(store);
}

static void another_format_is_refused(void **state)
{
    static const struct {
        const char *command, *why;
    } others[] = {
        {"HSET %s:format version 2", "format 2 is of a newer teff; this build knows formats up to"},
        {"HSET %s:format version 0", "no format of a teff"},
        {"HSET %s:format version 01", "no format of a teff"},
        {"HSET %s:format version 1x", "no format of a teff"},
        {"HSET %s:format version 9999999999", "no format of a teff"},
    };
    char address[512], text[160];
    redis_server_fresh(address);
    teffi_store_close(ask_open(address));
    for (size_t i = 0; i < sizeof others / sizeof others[0]; i++) {
        command(others[i].command, address);
        ask_expect_refused(address, TEFF_E_REFUSED, others[i].why);
    }
    command("HSET %s:format version 1", address);
    teffi_store *store = ask_open(address);
    command("HSET %s:format version 2", address);
    command("CLIENT KILL TYPE normal", address);
    while (read_from(store, "words", text) == TEFF_OK)
        teffi_thread_yield();
    for (int i = 0; i < 10 && !strstr(text, "of a newer teff"); i++)
        assert_int_equal(read_from(store, "words", text), TEFF_E_IO);
    assert_non_null(strstr(text, "of a newer teff"));
    command("HSET %s:format version 1", address);
    await_row(store, "a", "");
    teffi_store_close(store);
}

/* ---- damaged rows ---- */

/* The row a is damaged, the row b is not. */
static void expect_damaged(teffi_store *store, uint64_t etag)
{
    teff_arena arena;
    uint64_t seen;
    teffi_row start = {.table = "words"};
    teffi_arena_init(&arena, NULL, 0, 0);
    teffi_store_op op = {
        .kind = TEFFI_STORE_SCAN, .rows = &start, .n_rows = 1, .limit = 10, .arena = &arena};
    assert_int_equal(look(store, "a", "", &seen), TEFF_E_MALFORMED);
    assert_int_equal(ask(store, &op), TEFF_OK);
    assert_int_equal(op.n_found, 2);
    assert_memory_equal(op.rows[0].key.data, "a", 1);
    assert_int_equal(op.rows[0].etag, 0);
    assert_int_equal(op.rows[0].value.len, 0);
    assert_int_not_equal(op.rows[1].etag, 0);
    teffi_arena_fini(&arena);
    if (etag == 0)
        return;
    seen = etag;
    assert_int_equal(put(store, "a", "new", &seen), TEFF_E_MALFORMED);
    seen = 0;
    assert_int_equal(put(store, "a", "new", &seen), TEFF_E_MALFORMED);
}

static uint64_t repair(teffi_store *store)
{
    teffi_row row = {.table = "words", .key = ask_str("a"), .value = ask_str("good"), .any = true};
    teffi_store_op op = {.kind = TEFFI_STORE_WRITE, .rows = &row, .n_rows = 1};
    uint64_t etag;
    assert_int_equal(ask(store, &op), TEFF_OK);
    assert_int_equal(look(store, "a", "good", &etag), TEFF_OK);
    assert_int_equal(etag, row.etag);
    return etag;
}

static void a_damaged_row_is_only_overwritten_by_force(void **state)
{
    static const char *const damages[] = {
        "HDEL %s:row:words:a etag",    "HSET %s:row:words:a etag x1", "HSET %s:row:words:a etag 0",
        "HSET %s:row:words:a etag -1", "HSET %s:row:words:a etag 01",
    };
    char address[512];
    uint64_t b = 0, etag;
    redis_server_fresh(address);
    teffi_store *store = ask_open(address);
    assert_int_equal(put(store, "b", "other", &b), TEFF_OK);
    for (size_t i = 0; i < sizeof damages / sizeof damages[0]; i++) {
        etag = repair(store);
        command(damages[i], address);
        expect_damaged(store, etag);
    }
    etag = repair(store);
    command("SET %s:row:words:a text", address);
    expect_damaged(store, etag);
    repair(store);
    command("HSET %s:row:words:a value bad", address);
    expect_damaged(store, 0);
    command("HSET %s:row:words:a sum 1x", address);
    expect_damaged(store, 0);
    command("HDEL %s:row:words:a value", address);
    expect_damaged(store, 0);
    repair(store);
    teffi_store_close(store);
}

static void damage_beside_the_rows_is_noticed(void **state)
{
    char address[512];
    uint64_t etag = 0, seen, other = 0;
    redis_server_fresh(address);
    teffi_store *store = ask_open(address);
    for (int i = 0; i < 3; i++)
        assert_int_equal(put(store, "a", "1", &etag), TEFF_OK);
    command("DEL %s:etag", address); /* etags would go back */
    seen = etag;
    assert_int_equal(put(store, "a", "2", &seen), TEFF_E_MALFORMED);
    command("SET %s:etag 100", address);
    assert_int_equal(put(store, "a", "2", &etag), TEFF_OK);
    assert_int_equal(etag, 101);
    command("SET %s:keys:words text", address);
    assert_int_equal(put(store, "a", "3", &etag), TEFF_OK); /* needs no key */
    assert_int_equal(put(store, "b", "3", &other), TEFF_E_MALFORMED);
    assert_int_equal(look(store, "a", "3", &seen), TEFF_OK);
    assert_int_equal(look(store, "b", "", &seen), TEFF_OK);
    assert_int_equal(seen, 0);
    teffi_store_close(store);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(other_addresses_are_refused),
        cmocka_unit_test(a_user_logs_in_with_the_password_of_a_file),
        cmocka_unit_test(a_server_with_one_password_wants_it),
        cmocka_unit_test(servers_that_lose_rows_are_refused),
        cmocka_unit_test(a_server_that_syncs_late_is_reported_once),
        cmocka_unit_test(only_what_the_system_has_taken_is_unknown),
        cmocka_unit_test(an_idle_store_does_not_notice_a_restart),
        cmocka_unit_test(a_new_server_keeps_its_clients),
        cmocka_unit_test(a_forgotten_script_is_loaded_again),
        cmocka_unit_test(a_demoted_server_is_left),
        cmocka_unit_test(a_replica_without_its_primary_is_left),
        cmocka_unit_test(a_store_is_marked_with_its_format),
        cmocka_unit_test(another_format_is_refused),
        cmocka_unit_test(a_damaged_row_is_only_overwritten_by_force),
        cmocka_unit_test(damage_beside_the_rows_is_noticed),
    };
    if (scratch_open() != 0)
        return 1;
    if (!redis_server_start("yes")) {
        print_message("skipped: there is no redis-server\n");
        scratch_close();
        return SKIPPED;
    }
    int failed = cmocka_run_group_tests(tests, NULL, NULL);
    redis_server_stop();
    scratch_close();
    return failed;
}
