/* conformance_faults.c - the suite's faults: what the contract says of each, on every engine that
 * can have it. What was acknowledged is there afterwards, and what failed is not. Reading shows the
 * outcome of a write that is UNKNOWN, and it stays. */
#include "conformance.h"

#include <stdatomic.h>
#include <string.h>
#include "os/thread.h"

static const char *const fault_names[CONF_FAULTS] = {
    [CONF_CONFLICT] = "conflict while a write is on its way",
    [CONF_UNKNOWN_BEFORE] = "unknown, before the commit",
    [CONF_UNKNOWN_AFTER] = "unknown, after the commit",
    [CONF_SLOW] = "slow server",
    [CONF_SILENT] = "silent server",
    [CONF_LOST] = "lost connection",
    [CONF_RESTARTED] = "restarted server",
    [CONF_FULL] = "full disk",
    [CONF_REPLICA] = "read-only replica",
    [CONF_DAMAGED] = "damaged row",
};

typedef struct fault_env {
    const conf_faults *faults;
    char address[CONF_ADDRESS_MAX], via[CONF_ADDRESS_MAX];
    teffi_store *store; /* meets the faults */
} fault_env;

static fault_env env;

static int setup(void **state)
{
    const conf_engine *engine = *state;
    env.faults = engine->faults;
    engine->fresh(env.address);
    memcpy(env.via, env.address, sizeof env.via);
    if (env.faults->open)
        env.faults->open(env.address, env.via);
    env.store = ask_open(env.via);
    return 0;
}

static int teardown(void **state)
{
    (void)state;
    teffi_store_close(env.store);
    if (env.faults->close)
        env.faults->close();
    return 0;
}

static void begin(conf_fault f)
{
    env.faults->begin(f, env.address);
}

static void end(conf_fault f)
{
    env.faults->end(f, env.address);
}

/* ---- one row ---- */

static teff_err put(const char *key, const char *value, uint64_t *etag)
{
    return ask_put(env.store, "words", ask_str(key), ask_str(value), etag);
}

/* out: the error; TEFF_OK: the row's etag and, if there is such a row, its value is this one. */
static teff_err look(const char *key, const char *value, uint64_t *etag)
{
    teff_arena arena;
    teffi_bytes found;
    teffi_arena_init(&arena, NULL, 0, 0);
    teff_err err = ask_get(env.store, &arena, "words", ask_str(key), &found, etag);
    if (err == TEFF_OK && *etag != 0) {
        assert_int_equal(found.len, strlen(value));
        assert_memory_equal(found.data, value, found.len);
    }
    teffi_arena_fini(&arena);
    return err;
}

/* Waits until the store has its server again. out: the row's etag, 0: there is no such row. */
static uint64_t await_row(const char *key, const char *value)
{
    uint64_t etag = 0;
    teff_err err;
    while ((err = look(key, value, &etag)) == TEFF_E_IO)
        teffi_thread_yield();
    assert_int_equal(err, TEFF_OK);
    return etag;
}

typedef struct pending {
    ask_op ask;
    teffi_row row;
} pending;

static void start_put(pending *p, const char *key, const char *value, uint64_t etag)
{
    p->row =
        (teffi_row){.table = "words", .key = ask_str(key), .value = ask_str(value), .etag = etag};
    p->ask.op = (teffi_store_op){.kind = TEFFI_STORE_WRITE, .rows = &p->row, .n_rows = 1};
    ask_start(env.store, &p->ask);
}

static void expect_unknown(pending *p, uint64_t etag)
{
    assert_int_equal(ask_wait(&p->ask), TEFF_E_UNKNOWN);
    assert_int_equal(p->row.etag, etag);
    assert_true(p->ask.op.text[0]);
}

/* ---- the faults ---- */

static void a_row_that_changes_under_way_is_a_conflict(void **state)
{
    (void)state;
    pending p;
    uint64_t etag = 0, seen;
    teffi_store *other = ask_open(env.address);
    assert_int_equal(put("a", "old", &etag), TEFF_OK);
    begin(CONF_CONFLICT);
    start_put(&p, "a", "late", etag);
    env.faults->await(CONF_CONFLICT);
    seen = etag;
    assert_int_equal(ask_put(other, "words", ask_str("a"), ask_str("other"), &seen), TEFF_OK);
    end(CONF_CONFLICT);
    assert_int_equal(ask_wait(&p.ask), TEFF_E_CONFLICT);
    assert_int_equal(p.row.etag, etag);
    assert_int_equal(await_row("a", "other"), seen);
    teffi_store_close(other);
}

/* in: has_run: the write has run, although nobody says so. */
static void lose_the_outcome(conf_fault f, bool has_run)
{
    pending p;
    uint64_t etag = 0;
    assert_int_equal(put("a", "old", &etag), TEFF_OK);
    begin(f);
    start_put(&p, "a", "new", etag);
    env.faults->await(f);
    end(f);
    expect_unknown(&p, etag);
    uint64_t seen = await_row("a", has_run ? "new" : "old");
    assert_int_equal(seen != etag, has_run);
    if (!has_run && env.faults->late)
        env.faults->late();
    assert_int_equal(await_row("a", has_run ? "new" : "old"), seen);
    assert_int_equal(put("a", "newer", &seen), TEFF_OK);
}

static void a_lost_write_does_not_run_later(void **state)
{
    (void)state;
    lose_the_outcome(CONF_UNKNOWN_BEFORE, false);
}

static void a_write_that_has_run_stays(void **state)
{
    (void)state;
    lose_the_outcome(CONF_UNKNOWN_AFTER, true);
}

static void late_results_are_results(void **state)
{
    enum { N = 8 };
    static const char *const keys[N] = {"a", "b", "c", "d", "e", "f", "g", "h"};
    static pending writes[N];
    (void)state;
    begin(CONF_SLOW);
    for (size_t i = 0; i < N; i++)
        start_put(&writes[i], keys[i], keys[i], 0);
    env.faults->await(CONF_SLOW);
    end(CONF_SLOW);
    for (size_t i = 0; i < N; i++) {
        assert_int_equal(ask_wait(&writes[i].ask), TEFF_OK);
        assert_int_equal(await_row(keys[i], keys[i]), writes[i].row.etag);
    }
}

/* The write has perhaps run. */
static void a_silent_server_is_lost(void **state)
{
    (void)state;
    pending p;
    uint64_t etag = 0;
    assert_int_equal(put("b", "1", &etag), TEFF_OK);
    begin(CONF_SILENT);
    start_put(&p, "a", "1", 0);
    env.faults->await(CONF_SILENT);
    if (env.faults->doubt_waits)
        end(CONF_SILENT);
    expect_unknown(&p, 0);
    if (!env.faults->doubt_waits)
        end(CONF_SILENT);
    uint64_t seen = await_row("a", "1");
    assert_int_equal(await_row("a", "1"), seen);
    assert_int_equal(put("b", "2", &etag), TEFF_OK);
}

/* Of two writes, one was sent and has run, and one was not sent. */
static void what_was_not_sent_is_unavailable(void **state)
{
    (void)state;
    pending sent, queued;
    uint64_t etag = 0, seen;
    assert_int_equal(put("a", "1", &etag), TEFF_OK);
    begin(CONF_UNKNOWN_AFTER);
    start_put(&sent, "a", "2", etag);
    env.faults->await(CONF_UNKNOWN_AFTER);
    start_put(&queued, "b", "1", 0);
    begin(CONF_LOST);
    if (!env.faults->doubt_waits)
        expect_unknown(&sent, etag);
    assert_int_equal(ask_wait(&queued.ask), TEFF_E_IO);
    assert_int_equal(look("a", "", &seen), TEFF_E_IO);
    env.faults->await(CONF_LOST); /* without an operation */
    end(CONF_LOST);
    if (env.faults->doubt_waits)
        expect_unknown(&sent, etag);
    assert_int_not_equal(await_row("a", "2"), etag);
    assert_int_equal(await_row("b", ""), 0);
}

/* Each write fails, also of several at once, and reads go on. */
static void a_full_disk_refuses_writes(void **state)
{
    enum { N = 4 };
    static const char *const keys[N] = {"b", "c", "d", "e"};
    static pending writes[N];
    (void)state;
    uint64_t etag = 0, seen;
    assert_int_equal(put("a", "old", &etag), TEFF_OK);
    begin(CONF_FULL);
    seen = etag;
    assert_int_equal(put("a", "new", &seen), TEFF_E_IO);
    assert_int_equal(seen, etag);
    for (size_t i = 0; i < N; i++)
        start_put(&writes[i], keys[i], "new", 0);
    for (size_t i = 0; i < N; i++) {
        assert_int_equal(ask_wait(&writes[i].ask), TEFF_E_IO);
        assert_int_equal(writes[i].row.etag, 0);
    }
    assert_int_equal(look("a", "old", &seen), TEFF_OK);
    assert_int_equal(seen, etag);
    end(CONF_FULL);
    assert_int_equal(put("a", "new", &etag), TEFF_OK);
    for (size_t i = 0; i < N; i++)
        assert_int_equal(await_row(keys[i], ""), 0);
}

static teff_err read_from(const char *table)
{
    teff_arena arena;
    teffi_bytes value;
    uint64_t etag;
    teffi_arena_init(&arena, NULL, 0, 0);
    teff_err err = ask_get(env.store, &arena, table, ask_str("a"), &value, &etag);
    teffi_arena_fini(&arena);
    return err;
}

/* A replica's rows may be old, so it is not read either, once a write has shown that it is one. */
static void leave_a_replica(const char *table)
{
    uint64_t etag = 0, before;
    teff_err err;
    assert_int_equal(ask_put(env.store, table, ask_str("a"), ask_str("1"), &etag), TEFF_OK);
    begin(CONF_REPLICA);
    do { /* a session may take a while to notice */
        before = etag;
        err = ask_put(env.store, table, ask_str("a"), ask_str("2"), &etag);
    } while (err == TEFF_OK);
    assert_int_equal(err, TEFF_E_IO);
    assert_int_equal(etag, before);
    assert_int_equal(read_from(table), TEFF_E_IO);
    end(CONF_REPLICA);
    while ((err = ask_put(env.store, table, ask_str("a"), ask_str("3"), &etag)) == TEFF_E_IO)
        teffi_thread_yield();
    assert_int_equal(err, TEFF_OK);
    assert_true(etag > before);
}

static void a_read_only_replica_is_left(void **state)
{
    (void)state;
    leave_a_replica("words");
    leave_a_replica(TEFFI_TABLE_MEMBERSHIP);
}

/* ---- a damaged row ---- */

/* in: n: rows of the batch: `a`, whose expected etag is this one, and `c`, which is created. */
static teff_err write_beside(teffi_row *row, size_t n)
{
    teffi_row rows[2] = {*row, {.table = "words", .key = ask_str("c"), .value = ask_str("new")}};
    teffi_store_op op = {.kind = TEFFI_STORE_BATCH, .rows = rows, .n_rows = n};
    row->table = "words";
    row->key = ask_str("a");
    rows[0] = *row;
    teff_err err = ask(env.store, &op);
    row->etag = rows[0].etag;
    return err;
}

/* Row `a` is damaged: its value is not returned, and the error names it. Row `b` is not. */
static void expect_damaged_a(void)
{
    uint64_t etag;
    teff_arena arena;
    teffi_row row = {.table = "words", .key = ask_str("a")};
    teffi_arena_init(&arena, NULL, 0, 0);
    teffi_store_op op = {
        .kind = TEFFI_STORE_READ, .rows = &row, .n_rows = 1, .arena = &arena, .limit = 10};
    assert_int_equal(ask(env.store, &op), TEFF_E_MALFORMED);
    assert_non_null(strstr(op.text, "damaged row in table words: key \"a\""));
    assert_int_equal(row.value.len, 0);
    op.kind = TEFFI_STORE_SCAN;
    row.key.len = 0;
    assert_int_equal(ask(env.store, &op), TEFF_OK);
    assert_int_equal(op.n_found, 2);
    assert_memory_equal(op.rows[0].key.data, "a", 1);
    assert_int_equal(op.rows[0].etag, 0);
    assert_int_equal(op.rows[0].value.len, 0);
    teffi_arena_fini(&arena);
    assert_int_equal(look("b", "other", &etag), TEFF_OK);
    assert_int_not_equal(etag, 0);
}

/* Writes that do not expect the etag of row `a`, or do not write it, fail and write nothing. */
static void damage_row_a(uint64_t *etag)
{
    teffi_row create = {.value = ask_str("new")};
    begin(CONF_DAMAGED);
    expect_damaged_a();
    assert_int_not_equal(write_beside(&create, 2), TEFF_OK);
    create.etag = *etag + 1000;
    assert_int_not_equal(write_beside(&create, 2), TEFF_OK);
    expect_damaged_a();
}

/* Writes `a` with the etag that it had, then checks or removes it. */
static void use_etag_of_damaged_row(uint64_t *etag)
{
    teffi_row put = {.value = ask_str("new"), .etag = *etag};
    teffi_row check = {.etag = *etag, .check = true}, gone = {.etag = *etag, .remove = true};
    teff_err err = env.faults->damaged_err;
    if (err == TEFF_OK) {
        assert_int_equal(write_beside(&put, 1), TEFF_OK);
        assert_int_equal(await_row("a", "new"), put.etag);
        *etag = put.etag;
        damage_row_a(etag);
        return;
    }
    assert_int_equal(write_beside(&put, 2), err);
    assert_int_equal(put.etag, *etag);
    assert_int_equal(write_beside(&check, 2), err);
    assert_int_equal(write_beside(&gone, 2), err);
    expect_damaged_a();
}

static void a_damaged_row_is_never_good(void **state)
{
    (void)state;
    uint64_t etag = 0, other = 0;
    teffi_row repair = {.value = ask_str("good"), .any = true}, gone = {.remove = true};
    assert_int_equal(put("a", "old", &etag), TEFF_OK);
    assert_int_equal(put("b", "other", &other), TEFF_OK);
    damage_row_a(&etag);
    use_etag_of_damaged_row(&etag);
    assert_int_equal(write_beside(&repair, 1), TEFF_OK);
    assert_true(repair.etag > etag);
    assert_int_equal(await_row("a", "good"), repair.etag);
    damage_row_a(&repair.etag);
    gone.any = true;
    assert_int_equal(write_beside(&gone, 1), TEFF_OK);
    assert_int_equal(await_row("a", ""), 0);
    assert_int_equal(await_row("c", ""), 0);
    etag = 0;
    assert_int_equal(put("a", "new", &etag), TEFF_OK);
}

/* ---- writers that go on through faults ---- */

enum { WRITERS = 4, ROUNDS = 6, ACKS = 30 };

typedef struct writer {
    pthread_t thread;
    char key[2];
    uint64_t etag;
    _Atomic uint64_t acked; /* its row has this number */
    const char *wrong;      /* what must not happen */
} writer;

static writer writers[WRITERS];
static atomic_bool writers_stop;

/* Reads the row after an error. in: next: what was being written. */
static void resolve_by_reading(writer *w, teff_err failed, uint64_t next)
{
    uint64_t etag, n = 0;
    teff_arena arena;
    teffi_bytes value;
    teff_err err;
    teffi_arena_init(&arena, NULL, 0, 0);
    while ((err = ask_get(env.store, &arena, "acks", ask_str(w->key), &value, &etag)) == TEFF_E_IO)
        teffi_thread_yield();
    if (err == TEFF_OK && value.len == sizeof n)
        memcpy(&n, value.data, sizeof n);
    teffi_arena_fini(&arena);
    bool is_old = n == next - 1 && etag == w->etag;
    if (err != TEFF_OK || (!is_old && (n != next || failed != TEFF_E_UNKNOWN)))
        w->wrong = "the row is neither as before nor, after UNKNOWN, as written";
    w->etag = etag;
    w->acked = n;
}

static void *write_always(void *arg)
{
    writer *w = arg;
    while (!writers_stop && !w->wrong) {
        uint64_t next = w->acked + 1;
        teff_err err = ask_put(env.store, "acks", ask_str(w->key),
                               (teffi_bytes){&next, sizeof next}, &w->etag);
        if (err == TEFF_OK)
            w->acked = next;
        else if (err == TEFF_E_UNKNOWN || err == TEFF_E_IO)
            resolve_by_reading(w, err, next);
        else
            w->wrong = teff_err_name(err);
    }
    return NULL;
}

static void await_acks(void)
{
    for (size_t i = 0; i < WRITERS; i++) {
        uint64_t enough = writers[i].acked + ACKS;
        while (writers[i].acked < enough && !writers[i].wrong)
            teffi_thread_yield();
    }
}

static void expect_acked(teffi_store *store, const writer *w)
{
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
}

static void write_through(conf_fault f)
{
    memset(writers, 0, sizeof writers);
    writers_stop = false;
    for (size_t i = 0; i < WRITERS; i++) {
        writers[i].key[0] = (char)('a' + i);
        assert_int_equal(pthread_create(&writers[i].thread, NULL, write_always, &writers[i]), 0);
    }
    for (int i = 0; i < ROUNDS; i++) {
        await_acks();
        begin(f);
        if (env.faults->serves_on)
            await_acks();
        end(f);
    }
    await_acks();
    writers_stop = true;
    for (size_t i = 0; i < WRITERS; i++)
        pthread_join(writers[i].thread, NULL);
    teffi_store *other = ask_open(env.address);
    for (size_t i = 0; i < WRITERS; i++)
        expect_acked(other, &writers[i]);
    teffi_store_close(other);
}

static void restarts_lose_nothing(void **state)
{
    (void)state;
    write_through(CONF_RESTARTED);
}

static void lost_connections_lose_nothing(void **state)
{
    (void)state;
    write_through(CONF_LOST);
}

/* ---- the table ---- */

int conf_run_faults(const conf_engine *engine)
{
#define CASE(f) cmocka_unit_test_prestate_setup_teardown(f, setup, teardown, (void *)engine)
    const struct {
        conf_fault fault;
        struct CMUnitTest test;
    } all[] = {
        {CONF_RESTARTED, CASE(restarts_lose_nothing)},
        {CONF_CONFLICT, CASE(a_row_that_changes_under_way_is_a_conflict)},
        {CONF_UNKNOWN_BEFORE, CASE(a_lost_write_does_not_run_later)},
        {CONF_UNKNOWN_AFTER, CASE(a_write_that_has_run_stays)},
        {CONF_SLOW, CASE(late_results_are_results)},
        {CONF_SILENT, CASE(a_silent_server_is_lost)},
        {CONF_LOST, CASE(what_was_not_sent_is_unavailable)},
        {CONF_LOST, CASE(lost_connections_lose_nothing)},
        {CONF_FULL, CASE(a_full_disk_refuses_writes)},
        {CONF_REPLICA, CASE(a_read_only_replica_is_left)},
        {CONF_DAMAGED, CASE(a_damaged_row_is_never_good)},
    };
#undef CASE
    struct CMUnitTest tests[sizeof all / sizeof all[0]];
    size_t n = 0;
    for (size_t i = 0; i < sizeof all / sizeof all[0]; i++) {
        const char *lacks = engine->faults->lacks[all[i].fault];
        if (!lacks)
            tests[n++] = all[i].test;
        else if (i == 0 || all[i].fault != all[i - 1].fault)
            print_message("%s, %s: none: %s\n", engine->name, fault_names[all[i].fault], lacks);
    }
    return n ? _cmocka_run_group_tests(engine->name, tests, n, NULL, NULL) : 0;
}
