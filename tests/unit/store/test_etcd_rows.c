/* test_etcd_rows.c - rows as etcd's requests and answers: limits, groups, damaged rows, on a real
 * server; and answers that no server sends. */
#include "store/etcd_rows.h"

#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "ask.h"
#include "etcd_server.h"
#include "scratch.h"
#include "setup.h"
#include "os/thread.h"

enum { SKIPPED = 77, BIG = 1200 * 1024, ANSWER_MAX = 4096 };

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

static void post(const char *path, const char *json, char *answer)
{
    if (etcd_server_post(0, path, json, answer, ANSWER_MAX) != 200)
        fail_msg("%s %s: %s", path, json, answer);
}

/* ---- limits ---- */

/* Submits all from done() of one operation: the engine's thread, which runs it, then finds them. */
enum { CROWD = 40 };

typedef struct crowd {
    teffi_store_op first;
    teffi_store *store;
    teffi_row nothing;
    teff_arena arena;
    ask_op ops[CROWD];
    teffi_row rows[CROWD];
    char keys[CROWD][24];
    _Atomic bool submitted;
} crowd;

static void submit_crowd(teffi_store_op *op)
{
    crowd *c = (crowd *)op;
    for (size_t i = 0; i < CROWD; i++)
        ask_start(c->store, &c->ops[i]);
    c->submitted = true;
}

static void init_crowd(crowd *c, teffi_store *store, teffi_store_kind kind)
{
    *c = (crowd){.store = store, .nothing = {.table = "words", .key = ask_str("nothing")}};
    teffi_arena_init(&c->arena, NULL, 0, 0);
    c->first = (teffi_store_op){.kind = TEFFI_STORE_READ,
                                .rows = &c->nothing,
                                .n_rows = 1,
                                .arena = &c->arena,
                                .done = submit_crowd};
    for (size_t i = 0; i < CROWD; i++) {
        snprintf(c->keys[i], sizeof c->keys[i], "c%02zu", i);
        c->rows[i] = (teffi_row){.table = "words", .key = ask_str(c->keys[i])};
        c->ops[i].op = (teffi_store_op){
            .kind = kind, .rows = &c->rows[i], .n_rows = 1, .limit = 100, .arena = &c->arena};
    }
}

static void run_crowd(crowd *c)
{
    teffi_store_submit(c->store, &c->first);
    while (!c->submitted)
        teffi_thread_yield();
    for (size_t i = 0; i < CROWD; i++)
        ask_wait(&c->ops[i]);
}

/* All rows of a transaction have one etag. Two writes of one row are never in one. */
static void waiting_writes_are_committed_together(void **state)
{
    static crowd c;
    char address[512];
    etcd_server_fresh(address);
    init_crowd(&c, ask_open(address), TEFFI_STORE_WRITE);
    run_crowd(&c);
    for (size_t i = 0; i < CROWD; i++) {
        assert_int_equal(c.ops[i].op.err, TEFF_OK);
        assert_int_equal(c.rows[i].etag, c.rows[0].etag);
    }
    teffi_arena_fini(&c.arena);
    init_crowd(&c, c.store, TEFFI_STORE_WRITE);
    for (size_t i = 0; i < CROWD; i++) {
        c.rows[i].key = ask_str(c.keys[i % 4]);
        c.rows[i].any = true;
    }
    run_crowd(&c);
    for (size_t i = 0; i < CROWD; i++) {
        assert_int_equal(c.ops[i].op.err, TEFF_OK);
        assert_true(i < 4 ? c.rows[i].etag == c.rows[0].etag : c.rows[i].etag > c.rows[i - 4].etag);
    }
    teffi_arena_fini(&c.arena);
    teffi_store_close(c.store);
}

/* Over 127 rows, and rows that several operations check. */
static void a_request_has_at_most_127_rows(void **state)
{
    static crowd c;
    static teffi_row rows[CROWD][5];
    static char keys[CROWD][4][48];
    char address[512];
    uint64_t guard = 0, first;
    unsigned requests = 1;
    etcd_server_fresh(address);
    teffi_store *store = ask_open(address);
    assert_int_equal(put(store, "guard", "g", &guard), TEFF_OK);
    init_crowd(&c, store, TEFFI_STORE_BATCH);
    for (size_t i = 0; i < CROWD; i++) {
        for (size_t k = 0; k < 4; k++) {
            snprintf(keys[i][k], sizeof keys[i][k], "%zu-%zu", i, k);
            rows[i][k] = (teffi_row){.table = "words", .key = ask_str(keys[i][k])};
        }
        rows[i][4] =
            (teffi_row){.table = "words", .key = ask_str("guard"), .etag = guard, .check = true};
        c.ops[i].op.rows = rows[i];
        c.ops[i].op.n_rows = 5;
    }
    run_crowd(&c);
    first = rows[0][0].etag;
    for (size_t i = 0; i < CROWD; i++) {
        assert_int_equal(c.ops[i].op.err, TEFF_OK);
        requests += rows[i][0].etag != first;
        first = rows[i][0].etag;
    }
    assert_int_equal(requests, 2); /* 25 batches of five rows, then 15 */
    teffi_arena_fini(&c.arena);
    teffi_store_close(store);
}

/* The largest that teffi_etcd_op_bytes() lets pass is not too large for the server. */
static void the_largest_write_fits(void **state)
{
    char address[512], *big = calloc(1, TEFFI_ETCD_BYTES_MAX);
    uint64_t etag = 0;
    etcd_server_fresh(address);
    teffi_store *store = ask_open(address);
    teffi_row row = {.table = "words", .key = ask_str("a"), .value = {big, 0}};
    teffi_store_op op = {.kind = TEFFI_STORE_WRITE, .rows = &row, .n_rows = 1};
    char prefix[64];
    snprintf(prefix, sizeof prefix, "%s/", strrchr(address, '/') + 1);
    row.value.len = TEFFI_ETCD_BYTES_MAX - teffi_etcd_op_bytes(prefix, &op);
    assert_int_equal(ask(store, &op), TEFF_OK);
    row.value.len++;
    assert_int_equal(ask(store, &op), TEFF_E_TOO_LARGE);
    assert_non_null(strstr(op.text, "max-request-bytes"));
    teffi_row rows[128] = {{0}};
    char keys[128][24];
    for (size_t i = 0; i < 128; i++) {
        snprintf(keys[i], sizeof keys[i], "%zu", i);
        rows[i] = (teffi_row){.table = "words", .key = ask_str(keys[i])};
    }
    op = (teffi_store_op){.kind = TEFFI_STORE_BATCH, .rows = rows, .n_rows = 128};
    assert_int_equal(ask(store, &op), TEFF_E_TOO_LARGE);
    assert_non_null(strstr(op.text, "max-txn-ops"));
    assert_int_equal(look(store, "0", "", &etag), TEFF_OK);
    assert_int_equal(etag, 0);
    free(big);
    teffi_store_close(store);
}

/* A write that the server refuses does not fail those that were sent with it. */
static void a_refused_write_fails_alone(void **state)
{
    static crowd c;
    static char large[8192];
    char address[512];
    etcd_server_stop();
    setenv("ETCD_MAX_REQUEST_BYTES", "6000", 1);
    assert_true(etcd_server_start(1));
    etcd_server_fresh(address);
    init_crowd(&c, ask_open(address), TEFFI_STORE_WRITE);
    c.rows[7].value = (teffi_bytes){large, sizeof large};
    run_crowd(&c);
    for (size_t i = 0; i < CROWD; i++)
        assert_int_equal(c.ops[i].op.err, i == 7 ? TEFF_E_TOO_LARGE : TEFF_OK);
    assert_non_null(strstr(c.ops[7].op.text, "too large"));
    teffi_arena_fini(&c.arena);
    teffi_store_close(c.store);
    etcd_server_stop();
    unsetenv("ETCD_MAX_REQUEST_BYTES");
    assert_true(etcd_server_start(1));
}

/* Responses of over TEFFI_ETCD_RESPONSE_MAX bytes are requested in parts. */
static void large_rows_are_read_in_parts(void **state)
{
    static crowd c;
    char address[512], *big = malloc(BIG);
    etcd_server_fresh(address);
    teffi_store *store = ask_open(address);
    memset(big, 'b', BIG);
    init_crowd(&c, store, TEFFI_STORE_WRITE);
    for (size_t i = 0; i < CROWD; i++)
        c.rows[i].value = (teffi_bytes){big, i % 2 ? 1 : BIG};
    run_crowd(&c);
    teffi_arena_fini(&c.arena);
    init_crowd(&c, store, TEFFI_STORE_READ);
    run_crowd(&c);
    for (size_t i = 0; i < CROWD; i++) {
        assert_int_equal(c.ops[i].op.err, TEFF_OK);
        assert_int_equal(c.rows[i].value.len, i % 2 ? 1 : BIG);
        assert_memory_equal(c.rows[i].value.data, big, c.rows[i].value.len);
    }
    teffi_row start = {.table = "words"};
    teffi_store_op op = {.kind = TEFFI_STORE_SCAN,
                         .rows = &start,
                         .n_rows = 1,
                         .limit = CROWD - 1,
                         .arena = &c.arena};
    assert_int_equal(ask(store, &op), TEFF_OK);
    assert_int_equal(op.n_found, CROWD - 1);
    for (size_t i = 0; i < op.n_found; i++) {
        assert_memory_equal(op.rows[i].key.data, c.keys[i], 3);
        assert_int_equal(op.rows[i].value.len, i % 2 ? 1 : BIG);
        assert_int_equal(op.rows[i].etag, c.rows[i].etag);
    }
    teffi_arena_fini(&c.arena);
    teffi_store_close(store);
    free(big);
}

/* ---- damaged rows ---- */

/* The key of row `a` of the table words. */
static void encode_row_key(char *text, const char *address)
{
    char key[200];
    int len = snprintf(key, sizeof key, "%s/words/a", strrchr(address, '/') + 1);
    etcd_server_encode(text, key, (size_t)len);
}

static void overwrite(const char *address, const char *bytes, size_t len)
{
    char json[1024] = "{\"key\":\"", answer[ANSWER_MAX];
    encode_row_key(json, address);
    strcat(json, "\",\"value\":\"");
    etcd_server_encode(json, bytes, len);
    strcat(json, "\"}");
    post("/v3/kv/put", json, answer);
}

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
    assert_int_equal(put(store, "a", "new", &etag), TEFF_E_CONFLICT);
    seen = 0;
    assert_int_equal(put(store, "a", "new", &seen), TEFF_E_CONFLICT);
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
    static const struct {
        const char *bytes;
        size_t len;
    } damages[] = {
        {"", 0},
        {"x", 1},
        {"\1short", 6},
        {"\1\0\0\0\0\0\0\0\0", 9},
        {"\1--sum---good", 13},
        {"\2--sum---good", 13},
    };
    char address[512];
    uint64_t b = 0, etag;
    etcd_server_fresh(address);
    teffi_store *store = ask_open(address);
    assert_int_equal(put(store, "b", "other", &b), TEFF_OK);
    for (size_t i = 0; i < sizeof damages / sizeof damages[0]; i++) {
        etag = repair(store);
        overwrite(address, damages[i].bytes, damages[i].len);
        expect_damaged(store, etag);
    }
    repair(store);
    teffi_store_close(store);
}

/* The checksum covers the key, so a row in another's place is damaged. */
static void a_row_at_another_key_is_damaged(void **state)
{
    char address[512], json[1024] = "{\"key\":\"", answer[ANSWER_MAX];
    uint64_t etag = 0;
    etcd_server_fresh(address);
    teffi_store *store = ask_open(address);
    assert_int_equal(put(store, "a", "good", &etag), TEFF_OK);
    encode_row_key(json, address);
    strcat(json, "\"}");
    post("/v3/kv/range", json, answer);
    json_t *found = json_loads(answer, 0, NULL), *kv;
    assert_int_equal(json_unpack(found, "{s:[o]}", "kvs", &kv), 0);
    char key[200], name[200] = "";
    int len = snprintf(key, sizeof key, "%s/words/c", strrchr(address, '/') + 1);
    etcd_server_encode(name, key, (size_t)len);
    snprintf(json, sizeof json, "{\"key\":\"%s\",\"value\":\"%s\"}", name,
             json_string_value(json_object_get(kv, "value")));
    post("/v3/kv/put", json, answer);
    json_decref(found);
    assert_int_equal(look(store, "c", "good", &etag), TEFF_E_MALFORMED);
    teffi_store_close(store);
}

/* ---- the version of the format ---- */

/* Starts a request about the key NAME/-format. */
static void encode_mark_key(char *json, const char *address)
{
    char key[200];
    int len = snprintf(key, sizeof key, "%s/-format", strrchr(address, '/') + 1);
    strcpy(json, "{\"key\":\"");
    etcd_server_encode(json, key, (size_t)len);
    strcat(json, "\"");
}

static void set_mark(const char *address, const char *version)
{
    char json[1024], answer[ANSWER_MAX];
    encode_mark_key(json, address);
    strcat(json, version ? ",\"value\":\"" : "");
    etcd_server_encode(json, version ? version : "", version ? strlen(version) : 0);
    strcat(json, version ? "\"}" : "}");
    post(version ? "/v3/kv/put" : "/v3/kv/deleterange", json, answer);
}

/* in: version: in base64; NULL: no mark. */
static void expect_mark(const char *address, const char *version)
{
    char json[1024], answer[ANSWER_MAX];
    encode_mark_key(json, address);
    strcat(json, "}");
    post("/v3/kv/range", json, answer);
    snprintf(json, sizeof json, "\"value\":\"%s\"", version ? version : "");
    assert_true((strstr(answer, version ? json : "\"kvs\"") != NULL) == (version != NULL));
}

/* A store without the mark is of the first version, perhaps with rows. */
static void a_store_is_marked_with_its_format(void **state)
{
    char address[512], answer[ANSWER_MAX];
    uint64_t etag = 0, seen;
    etcd_server_fresh(address);
    teffi_store *store = ask_open(address);
    expect_mark(address, "MQ==");
    assert_int_equal(put(store, "a", "1", &etag), TEFF_OK);
    teffi_store_close(store);
    set_mark(address, NULL);
    post("/v3/maintenance/alarm", "{\"action\":\"ACTIVATE\",\"alarm\":\"NOSPACE\"}", answer);
    store = ask_open(address); /* the mark cannot be written */
    assert_int_equal(look(store, "a", "1", &seen), TEFF_OK);
    assert_int_equal(seen, etag);
    teffi_store_close(store);
    expect_mark(address, NULL);
    post("/v3/maintenance/alarm", "{\"action\":\"DEACTIVATE\",\"alarm\":\"NOSPACE\"}", answer);
    store = ask_open(address);
    expect_mark(address, "MQ==");
    assert_int_equal(look(store, "a", "1", &seen), TEFF_OK);
    teffi_store_close(store);
}

static void another_format_is_refused(void **state)
{
    static const char *const wrong[] = {"", "0", "01", "1x", "-1", "9999999999"};
    char address[512];
    etcd_server_fresh(address);
    set_mark(address, "2");
    ask_expect_refused(address, TEFF_E_REFUSED,
                       "format 2 is of a newer teff; this build knows formats up to 1");
    for (size_t i = 0; i < sizeof wrong / sizeof wrong[0]; i++) {
        set_mark(address, wrong[i]);
        ask_expect_refused(address, TEFF_E_REFUSED, "no format of a teff");
    }
    set_mark(address, "1");
    teffi_store_close(ask_open(address));
}

/* ---- answers that no server sends ---- */

static json_t *parse(const char *text)
{
    json_t *json = json_loads(text, JSON_DECODE_ANY, NULL);
    assert_non_null(json);
    return json;
}

/* A refusal, although no row is there and the other one is at revision 5, as expected. */
static const char refusal_without_reason[] =
    "{\"header\":{\"revision\":\"7\"},\"responses\":[{\"response_range\":{}},"
    "{\"response_range\":{\"kvs\":[{\"mod_revision\":\"5\"}]}}]}";

static void odd_answers_to_writes_set_nothing(void **state)
{
    static const char *const odd[] = {
        "[]",
        "{}",
        "{\"succeeded\":true}",
        "{\"succeeded\":true,\"header\":{\"revision\":\"0\"}}",
        "{\"succeeded\":true,\"header\":{\"revision\":\"7x\"}}",
        "{\"succeeded\":true,\"header\":{\"revision\":\"-7\"}}",
        "{\"succeeded\":true,\"header\":{\"revision\":\"99999999999999999999\"}}",
        "{\"header\":{\"revision\":\"7\"}}",
        "{\"header\":{\"revision\":\"7\"},\"responses\":[{\"response_range\":{}}]}",
        "{\"header\":{\"revision\":\"7\"},\"responses\":[{},{},{}]}",
        "{\"header\":{\"revision\":\"7\"},\"responses\":[{\"response_range\":{}},"
        "{\"response_range\":7}]}",
        "{\"header\":{\"revision\":\"7\"},\"responses\":[{\"response_range\":{}},"
        "{\"response_range\":{\"kvs\":{}}}]}",
        refusal_without_reason,
    };
    teffi_row rows[] = {{.table = "t", .etag = 0}, {.table = "u", .etag = 5}};
    teffi_store_op first = {.kind = TEFFI_STORE_WRITE, .rows = &rows[0], .n_rows = 1};
    teffi_store_op second = {.kind = TEFFI_STORE_WRITE, .rows = &rows[1], .n_rows = 1};
    teffi_store_op *ops[] = {&first, &second};
    for (size_t i = 0; i < sizeof odd / sizeof odd[0]; i++) {
        json_t *answer = parse(odd[i]);
        assert_int_equal(teffi_etcd_set_write_results(answer, ops, 2), 0);
        assert_int_equal(first.err | second.err, TEFF_OK);
        assert_int_equal(rows[0].etag, 0);
        json_decref(answer);
    }
    json_t *answer =
        parse("{\"header\":{\"revision\":\"7\"},\"responses\":[{\"response_range\":{}},"
              "{\"response_range\":{\"kvs\":[{\"mod_revision\":\"6\"}]}}]}");
    assert_int_equal(teffi_etcd_set_write_results(answer, ops, 2), 1);
    assert_ptr_equal(ops[0], &second);
    assert_int_equal(second.err, TEFF_E_CONFLICT);
    assert_int_equal(first.err, TEFF_OK);
    json_decref(answer);
    answer = parse("{\"succeeded\":true,\"header\":{\"revision\":7}}");
    assert_int_equal(teffi_etcd_set_write_results(answer, ops, 2), 2);
    assert_int_equal(rows[0].etag, 7);
    json_decref(answer);
}

static void odd_answers_to_reads_set_nothing(void **state)
{
    static const char *const odd[] = {
        "{}",
        "{\"responses\":{}}",
        "{\"responses\":[]}",
        "{\"responses\":[{}]}",
        "{\"responses\":[{\"response_range\":{}},{\"response_range\":{}}]}",
        "{\"responses\":[{\"response_range\":\"kvs\"}]}",
        "{\"header\":{\"revision\":\"7\"},\"kvs\":{},"
        "\"responses\":[{\"response_range\":{\"kvs\":{}}}]}",
        "{\"header\":{\"revision\":\"7\"},\"kvs\":\"AA==\","
        "\"responses\":[{\"response_range\":{\"kvs\":[7]}}]}",
        "{\"responses\":[{\"response_range\":{\"kvs\":[{},{}]}}]}",
    };
    static const char *const damaged[] = {"AA=", "=AAA", "A=AA", "AA=A", "A AA", "____", "AQ=="};
    teff_arena arena;
    teffi_etcd_text room = {0};
    teffi_arena_init(&arena, NULL, 0, 0);
    teffi_row row = {.table = "t", .etag = 3}, start = {.table = "t"};
    teffi_store_op op = {.kind = TEFFI_STORE_READ, .rows = &row, .n_rows = 1, .arena = &arena};
    teffi_store_op scan = {
        .kind = TEFFI_STORE_SCAN, .rows = &start, .n_rows = 1, .limit = 1, .arena = &arena};
    teffi_store_op *ops[] = {&op};
    char text[300];
    bool more;
    for (size_t i = 0; i < sizeof odd / sizeof odd[0]; i++) {
        json_t *answer = parse(odd[i]);
        assert_false(teffi_etcd_set_read_results(answer, ops, 1, &room));
        assert_int_equal(row.etag, 3);
        assert_false(teffi_etcd_append_scan_page(answer, "p/", &scan, &start, &room, &more));
        assert_int_equal(scan.err, TEFF_E_MALFORMED);
        scan.err = TEFF_OK;
        json_decref(answer);
    }
    for (size_t i = 0; i < sizeof damaged / sizeof damaged[0]; i++) {
        snprintf(text, sizeof text,
                 "{\"header\":{\"revision\":\"7\"},\"kvs\":[{\"key\":\"%s\"}],\"responses\":"
                 "[{\"response_range\":{\"kvs\":[{\"mod_revision\":\"3\",\"value\":\"%s\"}]}}]}",
                 damaged[i], damaged[i]);
        json_t *answer = parse(text);
        assert_true(teffi_etcd_set_read_results(answer, ops, 1, &room));
        assert_int_equal(op.err, TEFF_E_MALFORMED);
        assert_false(teffi_etcd_append_scan_page(answer, "p/", &scan, &start, &room, &more));
        assert_int_equal(scan.err, TEFF_E_MALFORMED);
        assert_ptr_equal(scan.rows, &start);
        scan.err = op.err = TEFF_OK;
        json_decref(answer);
    }
    teffi_etcd_text_fini(&room);
    teffi_arena_fini(&arena);
}

int main(void)
{
    const struct CMUnitTest answers[] = {
        cmocka_unit_test(odd_answers_to_writes_set_nothing),
        cmocka_unit_test(odd_answers_to_reads_set_nothing),
    };
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(waiting_writes_are_committed_together),
        cmocka_unit_test(a_request_has_at_most_127_rows),
        cmocka_unit_test(the_largest_write_fits),
        cmocka_unit_test(large_rows_are_read_in_parts),
        cmocka_unit_test(a_damaged_row_is_only_overwritten_by_force),
        cmocka_unit_test(a_row_at_another_key_is_damaged),
        cmocka_unit_test(a_store_is_marked_with_its_format),
        cmocka_unit_test(another_format_is_refused),
        cmocka_unit_test(a_refused_write_fails_alone),
    };
    int failed = cmocka_run_group_tests(answers, NULL, NULL);
    if (failed || scratch_open() != 0)
        return 1;
    if (!etcd_server_start(1)) {
        print_message("skipped: there is no etcd (package etcd-server)\n");
        scratch_close();
        return SKIPPED;
    }
    failed = cmocka_run_group_tests(tests, NULL, NULL);
    etcd_server_stop();
    scratch_close();
    return failed;
}
