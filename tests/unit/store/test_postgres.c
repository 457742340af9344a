/* test_postgres.c - engine `postgres` when a session is stopped, when the server refuses one of
 * several writes or replies in another form, and beside other clients' transactions.
 * Faults that other engines have, too, are in conformance_faults.c. */
#include <libpq-fe.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>
#include "ask.h"
#include "pg_server.h"
#include "pg_silence.h"
#include "setup.h"

enum { ADDRESS_MAX = 512 };

typedef struct env {
    char address[ADDRESS_MAX];
    teffi_store *store;
} env;

static env own;

static int open_fresh(void **state)
{
    char text[TEFF_TEXT_MAX];
    *state = &own;
    pg_server_fresh(own.address);
    if (teffi_store_open(own.address, &own.store, text) == TEFF_OK)
        return 0;
    print_message("%s\n", text);
    return -1;
}

static int close_store(void **state)
{
    env *e = *state;
    teffi_store_close(e->store);
    return 0;
}

static void end_sessions(env *e)
{
    (void)pg_server_run(e->address, "SELECT count(pg_terminate_backend(pid)) FROM pg_stat_activity "
                                    "WHERE application_name = 'teff'");
}

/* ---- a session that the server still runs, while the store has given it up ---- */

static bool op_is_done(ask_op *a)
{
    pthread_mutex_lock(&a->lock);
    bool done = a->done;
    pthread_mutex_unlock(&a->lock);
    return done;
}

/* Starts an operation and returns when it has been sent, and its session waits for the server. */
static void start_and_await_sent(env *e, ask_op *a)
{
    unsigned before = pg_silence_waits();
    ask_start(e->store, a);
    while (pg_silence_waits() == before)
        usleep(1000);
}

/* Has a new session tried for a second to end the one that the store has given up? */
static bool has_tried_to_end_the_old_one(env *e)
{
    return pg_server_run(e->address, "SELECT count(*) FROM pg_stat_activity WHERE "
                                     "application_name = 'teff' AND datname = current_database() "
                                     "AND query LIKE '%pg_terminate_backend%' "
                                     "AND query_start > backend_start + interval '1 s'") > 0;
}

/* The write is in the stopped process's socket. It may run when that goes on: so it stays in doubt
 * until the process has ended, although another connection is possible. */
static void a_stopped_session(void **state)
{
    env *e = *state;
    teff_arena arena;
    teffi_arena_init(&arena, NULL, 0, 0);
    teffi_row row = {.table = "words", .key = ask_str("a"), .value = ask_str("1")};
    ask_op a = {.op = {.kind = TEFFI_STORE_WRITE, .rows = &row, .n_rows = 1}};
    uint64_t etag = 0, seen;
    teffi_bytes value;
    end_sessions(e); /* so that only the session for states comes back */
    while (ask_put(e->store, "words", ask_str("b"), ask_str("1"), &etag) != TEFF_OK)
        usleep(10 * 1000);
    pid_t session = pg_server_session(e->address);
    kill(session, SIGSTOP);
    start_and_await_sent(e, &a);
    pg_silence_let_pass();
    while (!op_is_done(&a) && !has_tried_to_end_the_old_one(e))
        usleep(10 * 1000);
    assert_false(op_is_done(&a));
    kill(session, SIGCONT);
    assert_int_equal(ask_wait(&a), TEFF_E_UNKNOWN);
    teff_err err;
    while ((err = ask_get(e->store, &arena, "words", ask_str("a"), &value, &seen)) == TEFF_E_IO)
        usleep(10 * 1000);
    assert_int_equal(err, TEFF_OK);
    assert_int_equal(pg_server_run(e->address, "SELECT count(*) FROM teff.rows WHERE key = 'a'"),
                     seen != 0);
    teffi_arena_free_memory(&arena);
}

/* Without a server nobody can end the old session: close does not wait for that. */
static void a_write_in_doubt_when_the_store_closes(void **state)
{
    env *e = *state;
    teffi_row row = {.table = "words", .key = ask_str("a"), .value = ask_str("1")};
    ask_op a = {.op = {.kind = TEFFI_STORE_WRITE, .rows = &row, .n_rows = 1}};
    end_sessions(e); /* so that only the session for states comes back */
    uint64_t etag = 0;
    while (ask_put(e->store, "words", ask_str("b"), ask_str("1"), &etag) != TEFF_OK)
        usleep(10 * 1000);
    kill(pg_server_session(e->address), SIGSTOP);
    start_and_await_sent(e, &a);
    pg_server_kill();
    teffi_store_close(e->store);
    e->store = NULL;
    assert_int_equal(ask_wait(&a), TEFF_E_UNKNOWN);
    pg_server_start();
}

static atomic_bool breaks_when_sent;

int __real_PQconsumeInput(PGconn *conn);
int __wrap_PQconsumeInput(PGconn *conn);

/* libpq sends what is left before it reads. Here the connection breaks between the two. */
int __wrap_PQconsumeInput(PGconn *conn)
{
    struct pollfd fd = {.fd = PQsocket(conn), .events = POLLIN | POLLOUT};
    if (!atomic_exchange(&breaks_when_sent, false))
        return __real_PQconsumeInput(conn);
    while (PQflush(conn) == 1) {
        (void)poll(&fd, 1, 1000);
        assert_int_equal(__real_PQconsumeInput(conn), 1);
    }
    shutdown(fd.fd, SHUT_RD);
    return __real_PQconsumeInput(conn);
}

/* The value is too large for the socket's buffers: a part is left when the session begins to wait.
 */
static void a_connection_that_breaks_when_all_was_sent(void **state)
{
    enum { BYTES = 12 * 1024 * 1024 };
    env *e = *state;
    teffi_bytes large = {calloc(1, BYTES), BYTES};
    teffi_row row = {.table = "words", .key = ask_str("a"), .value = large};
    ask_op a = {.op = {.kind = TEFFI_STORE_WRITE, .rows = &row, .n_rows = 1}};
    atomic_store(&breaks_when_sent, true);
    ask_start(e->store, &a);
    assert_int_equal(ask_wait(&a), TEFF_E_UNKNOWN);
    assert_false(atomic_load(&breaks_when_sent));
    free((void *)large.data);
}

/* ---- refused ---- */

static void set_trigger(env *e, const char *body)
{
    char sql[600];
    snprintf(sql, sizeof sql,
             "CREATE SEQUENCE IF NOT EXISTS calls;"
             "CREATE OR REPLACE FUNCTION refuse() RETURNS trigger LANGUAGE plpgsql AS $$ "
             "BEGIN %s; RETURN NEW; END $$;"
             "CREATE OR REPLACE TRIGGER refuse BEFORE INSERT OR UPDATE ON teff.rows "
             "FOR EACH ROW EXECUTE FUNCTION refuse()",
             body);
    (void)pg_server_run(e->address, sql);
}

/* As with a full disk: the transaction ends, and those beside the refused write are tried again. */
static void only_the_refused_write_fails(void **state)
{
    enum { N = 20 };
    env *e = *state;
    set_trigger(e, "IF NEW.key = '7' THEN RAISE 'no space' USING ERRCODE = '53100'; END IF");
    ask_op ops[N] = {0};
    teffi_row rows[N] = {0};
    char keys[N][12];
    for (int i = 0; i < N; i++) {
        snprintf(keys[i], sizeof keys[i], "%d", i);
        rows[i] = (teffi_row){.table = "words", .key = ask_str(keys[i]), .value = ask_str("x")};
        ops[i].op = (teffi_store_op){.kind = TEFFI_STORE_WRITE, .rows = &rows[i], .n_rows = 1};
        ask_start(e->store, &ops[i]);
    }
    for (int i = 0; i < N; i++)
        assert_int_equal(ask_wait(&ops[i]), i == 7 ? TEFF_E_IO : TEFF_OK);
    assert_string_equal(ops[7].op.text, "postgres: no space");
    assert_int_equal(rows[7].etag, 0);
    assert_int_equal(pg_server_run(e->address, "SELECT count(*) FROM teff.rows"), N - 1);
}

static void a_deadlock_is_tried_again(void **state)
{
    env *e = *state;
    uint64_t etag = 0;
    set_trigger(e, "IF nextval('calls') < 4 THEN RAISE 'x' USING ERRCODE = '40P01'; END IF");
    assert_int_equal(ask_put(e->store, "words", ask_str("a"), ask_str("1"), &etag), TEFF_OK);
    assert_int_equal(pg_server_run(e->address, "SELECT last_value FROM calls"), 5);
}

static void a_deadlock_without_end(void **state)
{
    env *e = *state;
    uint64_t etag = 0;
    set_trigger(e, "RAISE 'x' USING ERRCODE = '40P01'");
    assert_int_equal(ask_put(e->store, "words", ask_str("a"), ask_str("1"), &etag), TEFF_E_IO);
}

/* ---- replies of another form ---- */

/* Gives the store's session for states a new connection, whose statements are prepared again. */
static void renew_session(env *e)
{
    teff_arena arena;
    teffi_bytes value;
    uint64_t etag;
    teffi_arena_init(&arena, NULL, 0, 0);
    (void)pg_server_run(e->address, "SELECT count(pg_terminate_backend(pid, 60000)) FROM "
                                    "pg_stat_activity WHERE application_name = 'teff'");
    while (ask_get(e->store, &arena, "words", ask_str("none"), &value, &etag) == TEFF_E_IO)
        usleep(10 * 1000);
    teffi_arena_fini(&arena);
}

/* The function is another one from now on: an administrator's, or one of another schema. */
static void replace_write_function(env *e, const char *returns, const char *body)
{
    char sql[600];
    snprintf(sql, sizeof sql,
             "DROP FUNCTION teff.write; CREATE FUNCTION teff.write(tabs text[], keys bytea[], "
             "vals bytea[], etags bigint[], marks int[]) RETURNS %s LANGUAGE plpgsql AS "
             "$$ BEGIN %s; END $$",
             returns, body);
    (void)pg_server_run(e->address, sql);
    renew_session(e); /* the type of the result may be another one */
}

/* The function has run and was committed, so the outcome is unknown. */
static void odd_etags_from_a_write(void **state)
{
    static const struct {
        const char *returns, *body;
    } odd[] = {
        {"bigint[]", "RETURN '{}'"},
        {"bigint[]", "RETURN ARRAY[7, 8]"},
        {"bigint[]", "RETURN ARRAY[0]"},
        {"bigint[]", "RETURN ARRAY[NULL::bigint]"},
        {"bigint[]", "RETURN '[0:0]={7}'"},
        {"bigint[]", "RETURN '{{7}}'"},
        {"int[]", "RETURN ARRAY[7]"},
        {"bytea", "RETURN ''"},
        {"SETOF bigint[]", "RETURN"},
        {"SETOF bigint[]", "RETURN NEXT ARRAY[7]; RETURN NEXT ARRAY[7]"},
    };
    env *e = *state;
    for (size_t i = 0; i < sizeof odd / sizeof odd[0]; i++) {
        uint64_t etag = 0;
        replace_write_function(e, odd[i].returns, odd[i].body);
        teff_err err = ask_put(e->store, "words", ask_str("a"), ask_str("1"), &etag);
        if (err != TEFF_E_UNKNOWN || etag != 0)
            fail_msg("%s, %s: %s, etag %lu", odd[i].returns, odd[i].body, teff_err_name(err), etag);
    }
    replace_write_function(e, "bigint[]", "RETURN ARRAY[7]");
    uint64_t etag = 0;
    assert_int_equal(ask_put(e->store, "words", ask_str("a"), ask_str("1"), &etag), TEFF_OK);
    assert_int_equal(etag, 7);
}

/* out: the error of a scan of two rows; TEFF_OK: the first row is damaged, the second is not. */
static teff_err scan_past_a_damaged_row(env *e, teff_arena *arena)
{
    teffi_row start = {.table = "words"};
    teffi_store_op op = {
        .kind = TEFFI_STORE_SCAN, .rows = &start, .n_rows = 1, .limit = 10, .arena = arena};
    if (ask(e->store, &op) != TEFF_OK)
        return op.err;
    assert_int_equal(op.n_found, 2);
    assert_memory_equal(op.rows[0].key.data, "a", 1);
    assert_int_equal(op.rows[0].etag, 0);
    assert_int_equal(op.rows[0].value.len, 0);
    assert_int_not_equal(op.rows[1].etag, 0);
    return TEFF_OK;
}

static void rows_of_another_form(void **state)
{
    env *e = *state;
    uint64_t etag = 0, seen = 0;
    teff_arena arena;
    teffi_bytes value;
    teffi_arena_init(&arena, NULL, 0, 0);
    assert_int_equal(ask_put(e->store, "words", ask_str("a"), ask_str("1"), &etag), TEFF_OK);
    assert_int_equal(ask_put(e->store, "words", ask_str("b"), ask_str("1"), &seen), TEFF_OK);
    static const char *const damages[] = {
        ("ALTER TABLE teff.rows ALTER etag DROP NOT NULL, ALTER value DROP NOT NULL;"
         "UPDATE teff.rows SET etag = NULL WHERE key = 'a'"),
        "UPDATE teff.rows SET etag = 0 WHERE key = 'a'",
        "UPDATE teff.rows SET etag = 1, value = NULL WHERE key = 'a'",
    };
    for (size_t i = 0; i < sizeof damages / sizeof damages[0]; i++) {
        (void)pg_server_run(e->address, damages[i]);
        assert_int_equal(ask_get(e->store, &arena, "words", ask_str("a"), &value, &seen),
                         TEFF_E_MALFORMED);
        assert_int_equal(scan_past_a_damaged_row(e, &arena), TEFF_OK);
    }
    (void)pg_server_run(e->address, "ALTER TABLE teff.rows ALTER etag TYPE int");
    renew_session(e);
    assert_int_equal(scan_past_a_damaged_row(e, &arena), TEFF_E_MALFORMED);
    assert_int_equal(ask_get(e->store, &arena, "words", ask_str("b"), &value, &seen),
                     TEFF_E_MALFORMED);
    teffi_arena_fini(&arena);
}

/* The checksum covers each column. */
static void rows_with_another_cell(void **state)
{
    static const char *const damages[] = {
        "UPDATE teff.rows SET etag = etag - 1 WHERE key = 'a'",
        "UPDATE teff.rows SET value = value || ''::bytea || '\\x00' WHERE key = 'a'",
        "UPDATE teff.rows SET value = '' WHERE key = 'a'",
        "UPDATE teff.rows SET sum = '' WHERE key = 'a'",
        "UPDATE teff.rows SET key = 'a' WHERE key = 'c'",
        "UPDATE teff.rows SET tab = 'words' WHERE tab = 'words2'",
    };
    env *e = *state;
    teff_arena arena;
    teffi_bytes value;
    uint64_t etag = 0;
    teffi_arena_init(&arena, NULL, 0, 0);
    assert_int_equal(ask_put(e->store, "words", ask_str("b"), ask_str("1"), &etag), TEFF_OK);
    for (size_t i = 0; i < sizeof damages / sizeof damages[0]; i++) {
        const char *table = strstr(damages[i], "words2") ? "words2" : "words";
        const char *key = strstr(damages[i], "'c'") ? "c" : "a";
        etag = 0;
        assert_int_equal(ask_put(e->store, table, ask_str(key), ask_str("1"), &etag), TEFF_OK);
        (void)pg_server_run(e->address, damages[i]);
        assert_int_equal(scan_past_a_damaged_row(e, &arena), TEFF_OK);
        assert_int_equal(ask_put(e->store, "words", ask_str("a"), ask_str("2"), &etag),
                         TEFF_E_MALFORMED);
        if (i % 2)
            (void)pg_server_run(e->address, "DELETE FROM teff.rows WHERE key = 'a'");
        else /* accepts the row as it is */
            (void)pg_server_run(e->address, "UPDATE teff.rows SET sum = NULL WHERE key = 'a'");
        assert_int_equal(ask_get(e->store, &arena, "words", ask_str("a"), &value, &etag), TEFF_OK);
        assert_int_equal(etag != 0, i % 2 == 0);
        (void)pg_server_run(e->address, "DELETE FROM teff.rows WHERE key = 'a'");
    }
    teffi_arena_fini(&arena);
}

/* What the server says when it finds a page or an index that is damaged. */
static void damage_that_the_server_finds(void **state)
{
    static const struct {
        const char *state, *detail;
        teff_err err;
        const char *text;
    } errors[] = {
        {"XX001", "", TEFF_E_MALFORMED, "postgres: oops: damaged row in table words: key \"a\""},
        {"XX002", ", DETAIL = 'x'", TEFF_E_MALFORMED, "postgres: oops"},
        {"XX001", ", DETAIL = '2'", TEFF_E_MALFORMED, "postgres: oops: damaged row in table words"},
        {"XX001", ", DETAIL = '1'", TEFF_E_MALFORMED, "damaged row in table words: key \"a\""},
        {"XX003", ", DETAIL = '1'", TEFF_E_IO, "postgres: oops"},
    };
    env *e = *state;
    for (size_t i = 0; i < sizeof errors / sizeof errors[0]; i++) {
        char body[200];
        teffi_row row = {.table = "words", .key = ask_str("a"), .any = true};
        teffi_store_op op = {.kind = TEFFI_STORE_WRITE, .rows = &row, .n_rows = 1};
        snprintf(body, sizeof body, "RAISE EXCEPTION USING ERRCODE = '%s', MESSAGE = 'oops'%s",
                 errors[i].state, errors[i].detail);
        set_trigger(e, body);
        assert_int_equal(ask(e->store, &op), errors[i].err);
        assert_non_null(strstr(op.text, errors[i].text));
    }
}

/* Removes the value of row `a`, which is stored outside of the row, as a damaged disk might. */
static void lose_value_of_row_a(env *e)
{
    (void)pg_server_run(
        e->address,
        "SET allow_system_table_mods = on; DO $$ DECLARE toast oid := (SELECT reltoastrelid FROM "
        "pg_class WHERE oid = 'teff.rows'::regclass); "
        "BEGIN UPDATE pg_class SET relkind = 'r' WHERE oid = toast; "
        "EXECUTE format('DELETE FROM %s', toast::regclass); "
        "UPDATE pg_class SET relkind = 't' WHERE oid = toast; END $$");
    (void)pg_server_run(e->address, "VACUUM teff.rows");
}

/* The server cannot read the value, so it cannot compute the row's checksum. A write or removal
 * with `any` does not need the value. */
static void a_value_that_the_server_cannot_read(void **state)
{
    static char value[100000];
    env *e = *state;
    uint64_t etag = 0;
    teff_arena arena;
    teffi_bytes seen;
    teffi_row row = {.table = "words", .key = ask_str("a"), .any = true};
    teffi_store_op op = {.kind = TEFFI_STORE_WRITE, .rows = &row, .n_rows = 1};
    teffi_arena_init(&arena, NULL, 0, 0);
    for (size_t i = 0; i < sizeof value; i++)
        value[i] = (char)((i * i * 2654435761u) >> 16);
    for (int removes = 0; removes < 2; removes++) {
        row.value = (teffi_bytes){value, sizeof value};
        row.remove = false;
        assert_int_equal(ask(e->store, &op), TEFF_OK);
        etag = row.etag;
        lose_value_of_row_a(e);
        assert_int_equal(ask_get(e->store, &arena, "words", ask_str("a"), &seen, &etag),
                         TEFF_E_MALFORMED);
        etag = row.etag;
        assert_int_equal(ask_put(e->store, "words", ask_str("a"), ask_str("2"), &etag),
                         TEFF_E_MALFORMED);
        row.remove = removes;
        row.value = removes ? (teffi_bytes){0} : ask_str("3");
        assert_int_equal(ask(e->store, &op), TEFF_OK);
        assert_int_equal(ask_get(e->store, &arena, "words", ask_str("a"), &seen, &etag), TEFF_OK);
        assert_int_equal(etag, removes ? 0 : row.etag);
    }
    teffi_arena_fini(&arena);
}

static atomic_bool loses_a_result;

PGresult *__real_PQgetResult(PGconn *conn);
PGresult *__wrap_PQgetResult(PGconn *conn);

/* A statement's result without rows, in place of the first one with rows. */
PGresult *__wrap_PQgetResult(PGconn *conn)
{
    PGresult *result = __real_PQgetResult(conn);
    if (PQresultStatus(result) != PGRES_TUPLES_OK || !atomic_exchange(&loses_a_result, false))
        return result;
    PQclear(result);
    return PQmakeEmptyPGresult(conn, PGRES_COMMAND_OK);
}

/* The server has committed the write, so it is not run again. */
static void a_write_without_a_result_is_unknown(void **state)
{
    env *e = *state;
    uint64_t etag = 0;
    atomic_store(&loses_a_result, true);
    assert_int_equal(ask_put(e->store, "words", ask_str("a"), ask_str("1"), &etag), TEFF_E_UNKNOWN);
    assert_int_equal(pg_server_run(e->address, "SELECT count(*) FROM teff.rows"), 1);
    renew_session(e);
    assert_int_equal(ask_put(e->store, "words", ask_str("b"), ask_str("1"), &etag), TEFF_OK);
}

/* ---- opening ---- */

/* An acknowledged commit is on the disk, whatever the database's default is. */
static void a_server_that_does_not_sync(void **state)
{
    env *e = *state;
    teffi_row row = {.table = "words", .key = ask_str("a"), .value = ask_str("1")};
    teffi_store_op op = {.kind = TEFFI_STORE_WRITE, .rows = &row, .n_rows = 1};
    (void)pg_server_run(e->address, "ALTER ROLE teff SET synchronous_commit = off");
    set_trigger(e, "RAISE '%', current_setting('synchronous_commit')");
    end_sessions(e);
    while (ask(e->store, &op) == TEFF_E_IO && strcmp(op.text, "postgres: on") != 0)
        assert_null(strstr(op.text, "off"));
    (void)pg_server_run(e->address, "ALTER ROLE teff RESET synchronous_commit");
    (void)pg_server_run(e->address, "ALTER SYSTEM SET fsync = off");
    (void)pg_server_run(e->address, "SELECT pg_reload_conf()");
    while (pg_server_run(e->address, "SELECT count(*) FROM pg_settings WHERE name = 'fsync' AND "
                                     "setting = 'on'"))
        usleep(10 * 1000);
    ask_expect_refused(e->address, TEFF_E_REFUSED, "fsync is off");
    (void)pg_server_run(e->address, "ALTER SYSTEM RESET fsync");
    (void)pg_server_run(e->address, "SELECT pg_reload_conf()");
}

static void no_server(void **state)
{
    (void)state;
    ask_expect_refused("postgres:host=/nonexistent user=x dbname=y", TEFF_E_IO, "/nonexistent");
    ask_expect_refused("postgres:bogus=1", TEFF_E_INVALID, "bogus");
    ask_expect_refused("postgres:", TEFF_E_INVALID, "postgres://HOST/NAME");
}

/* ---- beside another client's transaction ---- */

/* Starts the batch while another client's transaction is open; it must wait for its end. */
static void start_beside(env *e, const char *sql, ask_op *a)
{
    pg_server_begin(e->address, sql);
    ask_start(e->store, a);
    while (!op_is_done(a) &&
           pg_server_run(e->address, "SELECT count(*) FROM pg_stat_activity WHERE "
                                     "application_name = 'teff' AND wait_event_type = 'Lock'") == 0)
        usleep(1000);
    assert_false(op_is_done(a));
}

static teff_err run_beside(env *e, const char *sql, teffi_row *rows, size_t n)
{
    ask_op a = {.op = {.kind = TEFFI_STORE_BATCH, .rows = rows, .n_rows = n}};
    start_beside(e, sql, &a);
    pg_server_commit();
    return ask_wait(&a);
}

/* While the row's creation waits, another client takes an etag for the row, and removes it. */
static void a_creation_that_waits_gets_a_later_etag(void **state)
{
    env *e = *state;
    uint64_t etag = 0;
    assert_int_equal(ask_put(e->store, "words", ask_str("a"), ask_str("1"), &etag), TEFF_OK);
    teffi_row row = {.table = "words", .key = ask_str("a"), .value = ask_str("2")};
    ask_op a = {.op = {.kind = TEFFI_STORE_BATCH, .rows = &row, .n_rows = 1}};
    start_beside(e, "DELETE FROM teff.rows", &a);
    long taken = pg_server_run(e->address, "SELECT nextval('teff.etags')");
    pg_server_commit();
    assert_int_equal(ask_wait(&a), TEFF_OK);
    assert_true((long)row.etag > taken);
    assert_int_equal(pg_server_run(e->address, "SELECT etag FROM teff.rows"), row.etag);
    assert_int_equal(pg_server_run(e->address, "SELECT count(*) FROM teff.rows WHERE value = '2'"),
                     1);
}

/* What another client changes before it commits is seen by the rows that are checked, changed,
 * created, or removed where no row may be. */
static void a_change_under_way_is_a_conflict(void **state)
{
    static const char change[] = "UPDATE teff.rows SET etag = nextval('teff.etags'), sum = NULL";
    static const char create[] = "INSERT INTO teff.rows SELECT tab, 'c', 9999, '' FROM teff.rows";
    env *e = *state;
    uint64_t etag = 0;
    assert_int_equal(ask_put(e->store, "words", ask_str("a"), ask_str("1"), &etag), TEFF_OK);
    teffi_row other = {.table = "words", .key = ask_str("b"), .value = ask_str("2")};
    teffi_row checked = {.table = "words", .key = ask_str("a"), .etag = etag, .check = true};
    teffi_row changed = {.table = "words", .key = ask_str("a"), .etag = etag};
    teffi_row created = {.table = "words", .key = ask_str("c")}, absent = created;
    teffi_row none = created;
    absent.check = none.remove = true;
    assert_int_equal(run_beside(e, change, (teffi_row[]){checked, other}, 2), TEFF_E_CONFLICT);
    assert_int_equal(run_beside(e, change, (teffi_row[]){changed, other}, 2), TEFF_E_CONFLICT);
    assert_int_equal(run_beside(e, create, (teffi_row[]){created, other}, 2), TEFF_E_CONFLICT);
    (void)pg_server_run(e->address, "DELETE FROM teff.rows WHERE key = 'c'");
    assert_int_equal(run_beside(e, create, (teffi_row[]){absent, other}, 2), TEFF_E_CONFLICT);
    (void)pg_server_run(e->address, "DELETE FROM teff.rows WHERE key = 'c'");
    assert_int_equal(run_beside(e, create, (teffi_row[]){none, other}, 2), TEFF_E_CONFLICT);
    assert_int_equal(pg_server_run(e->address, "SELECT count(*) FROM teff.rows WHERE key = 'b'"),
                     0);
    (void)pg_server_run(e->address, "DELETE FROM teff.rows WHERE key = 'c'");
    teffi_store_op op = {
        .kind = TEFFI_STORE_BATCH, .rows = (teffi_row[]){absent, other}, .n_rows = 2};
    assert_int_equal(ask(e->store, &op), TEFF_OK);
    assert_int_equal(pg_server_run(e->address, "SELECT count(*) FROM teff.rows WHERE key = 'c'"),
                     0);
}

/* A write that may overwrite waits for another client that creates the row, and gets a later etag;
 * or it creates the row itself, after the other client has given up. */
static void a_forced_write_beside_a_creation(void **state)
{
    static const char create[] = "INSERT INTO teff.rows VALUES ('words', 'a', 9999, 'x')";
    env *e = *state;
    for (int commits = 0; commits < 2; commits++) {
        teffi_row row = {.table = "words", .key = ask_str("a"), .value = ask_str("2"), .any = true};
        ask_op a = {.op = {.kind = TEFFI_STORE_BATCH, .rows = &row, .n_rows = 1}};
        start_beside(e, create, &a);
        long taken = pg_server_run(e->address, "SELECT nextval('teff.etags')");
        if (commits)
            pg_server_commit();
        else
            pg_server_roll_back();
        assert_int_equal(ask_wait(&a), TEFF_OK);
        assert_true((long)row.etag > taken);
        assert_int_equal(pg_server_run(e->address, "SELECT etag FROM teff.rows"), row.etag);
        (void)pg_server_run(e->address, "DELETE FROM teff.rows");
    }
}

typedef struct creator {
    pthread_t thread;
    unsigned created, conflicts;
} creator;

/* Writes of other stores at the same time: rows that do not exist yet, in opposite orders. */
static void *create_rows(void *arg)
{
    teffi_store *store;
    creator *c = arg;
    if (teffi_store_open(own.address, &store, NULL) != TEFF_OK)
        return NULL;
    for (unsigned i = 0; i < 200; i++) {
        char names[2][20];
        teffi_row rows[2] = {{.table = "pairs"}, {.table = "pairs"}};
        for (int k = 0; k < 2; k++) {
            snprintf(names[k], sizeof names[k], "%u-%d", i, k);
            rows[k == (int)(i & 1)].key = ask_str(names[k]);
        }
        teffi_store_op op = {.kind = TEFFI_STORE_BATCH, .rows = rows, .n_rows = 2};
        teff_err err = ask(store, &op);
        c->created += err == TEFF_OK;
        c->conflicts += err == TEFF_E_CONFLICT;
    }
    teffi_store_close(store);
    return NULL;
}

static void two_stores_create_the_same_rows(void **state)
{
    env *e = *state;
    creator c[2] = {0};
    for (int i = 0; i < 2; i++)
        pthread_create(&c[i].thread, NULL, create_rows, &c[i]);
    for (int i = 0; i < 2; i++)
        pthread_join(c[i].thread, NULL);
    assert_int_equal(c[0].created + c[1].created, 200);
    assert_int_equal(c[0].conflicts + c[1].conflicts, 200);
    assert_int_equal(pg_server_run(e->address, "SELECT count(*) FROM teff.rows"), 400);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(a_stopped_session, open_fresh, close_store),
        cmocka_unit_test_setup_teardown(a_write_in_doubt_when_the_store_closes, open_fresh,
                                        close_store),
        cmocka_unit_test_setup_teardown(a_connection_that_breaks_when_all_was_sent, open_fresh,
                                        close_store),
        cmocka_unit_test_setup_teardown(only_the_refused_write_fails, open_fresh, close_store),
        cmocka_unit_test_setup_teardown(a_deadlock_is_tried_again, open_fresh, close_store),
        cmocka_unit_test_setup_teardown(a_deadlock_without_end, open_fresh, close_store),
        cmocka_unit_test_setup_teardown(odd_etags_from_a_write, open_fresh, close_store),
        cmocka_unit_test_setup_teardown(rows_of_another_form, open_fresh, close_store),
        cmocka_unit_test_setup_teardown(rows_with_another_cell, open_fresh, close_store),
        cmocka_unit_test_setup_teardown(damage_that_the_server_finds, open_fresh, close_store),
        cmocka_unit_test_setup_teardown(a_value_that_the_server_cannot_read, open_fresh,
                                        close_store),
        cmocka_unit_test_setup_teardown(a_write_without_a_result_is_unknown, open_fresh,
                                        close_store),
        cmocka_unit_test_setup_teardown(a_creation_that_waits_gets_a_later_etag, open_fresh,
                                        close_store),
        cmocka_unit_test_setup_teardown(a_change_under_way_is_a_conflict, open_fresh, close_store),
        cmocka_unit_test_setup_teardown(a_forced_write_beside_a_creation, open_fresh, close_store),
        cmocka_unit_test_setup_teardown(two_stores_create_the_same_rows, open_fresh, close_store),
        cmocka_unit_test_setup_teardown(a_server_that_does_not_sync, open_fresh, close_store),
        cmocka_unit_test(no_server),
    };
    if (!pg_server_open())
        return 77;
    int failed = cmocka_run_group_tests(tests, NULL, NULL);
    pg_server_close();
    return failed;
}
