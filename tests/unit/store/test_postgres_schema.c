/* test_postgres_schema.c - the schema of engine `postgres`: created, upgraded, refused; by several
 * sessions at once. */
#include <pthread.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "ask.h"
#include "pg_server.h"
#include "setup.h"

enum { ADDRESS_MAX = 512, VERSION = 3, OPENERS = 10 };
enum { FUNCTION_MD5 = 0x8895e63, COLUMNS_MD5 = 0x4c37dd8 };
/* The first bytes of the SHA-256 of the numbers and texts that teff.checksum() joins. */
enum { CHECKSUM_START = 0x74dee3 };

/* What the first builds have created: the schema 1. A row that was created again while another
 * client wrote it could get an earlier etag. */
static const char first_schema[] =
    "CREATE SCHEMA IF NOT EXISTS teff;"
    "CREATE TABLE teff.schema (version int NOT NULL);"
    "INSERT INTO teff.schema VALUES (1);"
    "CREATE TABLE teff.rows (tab text COLLATE \"C\" NOT NULL, key bytea NOT NULL,"
    " etag bigint NOT NULL, value bytea NOT NULL, PRIMARY KEY (tab, key));"
    "CREATE SEQUENCE teff.etags;"
    "CREATE FUNCTION teff.write(tabs text[], keys bytea[], vals bytea[], etags bigint[],"
    " marks int[]) RETURNS bigint[] LANGUAGE plpgsql AS $$ "
    "DECLARE i int; have bigint; created int[] := '{}'; conflict bool := false;"
    " news bigint[] := array_fill(0::bigint, ARRAY[cardinality(tabs)]); "
    "BEGIN "
    "FOR i IN SELECT r.n FROM unnest(tabs, keys) WITH ORDINALITY AS r(t, k, n)"
    "  ORDER BY r.t COLLATE \"C\", r.k LOOP"
    " IF etags[i] = 0 AND marks[i] & 1 = 0 THEN"
    "  INSERT INTO teff.rows VALUES (tabs[i], keys[i], nextval('teff.etags'), vals[i])"
    "   ON CONFLICT DO NOTHING RETURNING etag INTO have;"
    "  conflict := NOT FOUND; news[i] := have;"
    "  IF NOT conflict THEN created := created || i; END IF;"
    " ELSE"
    "  IF marks[i] & 4 <> 0 THEN"
    "   SELECT etag INTO have FROM teff.rows WHERE tab = tabs[i] AND key = keys[i] FOR SHARE;"
    "  ELSE"
    "   SELECT etag INTO have FROM teff.rows WHERE tab = tabs[i] AND key = keys[i] FOR UPDATE;"
    "  END IF;"
    "  conflict := marks[i] & 1 = 0 AND coalesce(have, 0) <> etags[i];"
    " END IF;"
    " EXIT WHEN conflict;"
    "END LOOP;"
    "FOR i IN 1 .. cardinality(tabs) LOOP"
    " IF i = ANY (created) THEN"
    "  IF conflict OR marks[i] & 6 <> 0 THEN"
    "   DELETE FROM teff.rows WHERE tab = tabs[i] AND key = keys[i]; news[i] := 0;"
    "  END IF;"
    " ELSIF NOT conflict AND marks[i] & 2 <> 0 THEN"
    "  DELETE FROM teff.rows WHERE tab = tabs[i] AND key = keys[i];"
    " ELSIF NOT conflict AND marks[i] & 4 = 0 THEN"
    "  INSERT INTO teff.rows VALUES (tabs[i], keys[i], nextval('teff.etags'), vals[i])"
    "   ON CONFLICT (tab, key) DO UPDATE SET etag = nextval('teff.etags'), value = EXCLUDED.value"
    "   RETURNING etag INTO have;"
    "  news[i] := have;"
    " END IF;"
    "END LOOP;"
    "IF conflict THEN RETURN NULL; END IF;"
    "RETURN news; "
    "END $$";

static const char old_rows[] =
    "SELECT teff.write('{words,words,states}', ARRAY['a', 'b', 'a']::bytea[],"
    " ARRAY['1', '2', '3']::bytea[], '{0,0,0}', '{0,0,0}');"
    "SELECT teff.write('{words}', ARRAY['a']::bytea[], ARRAY['4']::bytea[], '{2}', '{0}')";

/* in: version: 1, or 2, which differs from it in the function only. */
static void make_old_database(char *address, int version)
{
    char sql[100];
    snprintf(sql, sizeof sql, "UPDATE teff.schema SET version = %d", version);
    pg_server_fresh(address);
    (void)pg_server_run(address, first_schema);
    (void)pg_server_run(address, old_rows);
    (void)pg_server_run(address, sql);
    assert_int_equal(pg_server_run(address, "SELECT version FROM teff.schema"), version);
}

static void expect_sums(const char *address, long n)
{
    assert_int_equal(pg_server_run(address, "SELECT count(sum) FROM teff.rows"), n);
    assert_int_equal(pg_server_run(address, "SELECT count(*) FROM teff.rows WHERE length(sum) = 8 "
                                            "AND sum = teff.checksum(tab, key, etag, value)"),
                     n);
}

/* The row's value and etag, through the store. */
static void expect_row(teffi_store *store, const char *table, const char *key, const char *value,
                       uint64_t etag)
{
    teff_arena arena;
    teffi_bytes found;
    uint64_t seen;
    teffi_arena_init(&arena, NULL, 0, 0);
    assert_int_equal(ask_get(store, &arena, table, ask_str(key), &found, &seen), TEFF_OK);
    assert_int_equal(seen, etag);
    assert_int_equal(found.len, strlen(value));
    assert_memory_equal(found.data, value, found.len);
    teffi_arena_fini(&arena);
}

typedef struct opener {
    pthread_t thread;
    const char *address;
    uint64_t etag;
    teff_err open_err, put_err;
    char text[TEFF_TEXT_MAX];
} opener;

/* Opens the store and creates a row that all the others create, too. */
static void *open_and_create(void *arg)
{
    opener *o = arg;
    teffi_store *store;
    o->open_err = teffi_store_open(o->address, &store, o->text);
    if (!o->open_err)
        o->put_err = ask_put(store, "words", ask_str("new"), ask_str("x"), &o->etag);
    teffi_store_close(store);
    return NULL;
}

/* out: the etag of the row that one of the openers has created. */
static uint64_t open_by_ten_at_once(const char *address)
{
    opener openers[OPENERS] = {{0}};
    uint64_t etag = 0;
    for (int i = 0; i < OPENERS; i++) {
        openers[i].address = address;
        pthread_create(&openers[i].thread, NULL, open_and_create, &openers[i]);
    }
    for (int i = 0; i < OPENERS; i++)
        pthread_join(openers[i].thread, NULL);
    for (int i = 0; i < OPENERS; i++) {
        const opener *o = &openers[i];
        if (o->open_err)
            fail_msg("%s", o->text);
        assert_int_equal(o->put_err, etag || o->etag == 0 ? TEFF_E_CONFLICT : TEFF_OK);
        etag = etag ? etag : o->etag;
    }
    assert_int_not_equal(etag, 0);
    assert_int_equal(pg_server_run(address, "SELECT version FROM teff.schema"), VERSION);
    assert_int_equal(pg_server_run(address, "SELECT count(*) FROM teff.schema"), 1);
    return etag;
}

static void ten_create_it_at_once(void **state)
{
    char address[ADDRESS_MAX];
    (void)state;
    pg_server_fresh(address);
    (void)open_by_ten_at_once(address);
}

/* The database's default isolation would show each of them the state before it has the lock. */
static void ten_create_it_at_once_in_a_serializable_database(void **state)
{
    char address[ADDRESS_MAX], sql[200];
    (void)state;
    pg_server_fresh(address);
    snprintf(sql, sizeof sql, "ALTER DATABASE %s SET default_transaction_isolation = serializable",
             strstr(address, "dbname=") + strlen("dbname="));
    (void)pg_server_run(address, sql);
    (void)open_by_ten_at_once(address);
}

static void ten_upgrade_at_once(int version)
{
    char address[ADDRESS_MAX];
    make_old_database(address, version);
    uint64_t created = open_by_ten_at_once(address);
    assert_int_equal(pg_server_run(address,
                                   "SELECT count(*) FROM pg_proc WHERE proname = 'write' AND "
                                   "pronamespace = 'teff'::regnamespace"),
                     1);
    teffi_store *store = ask_open(address);
    expect_row(store, "words", "a", "4", 5);
    expect_row(store, "words", "b", "2", 3);
    expect_row(store, "states", "a", "3", 1);
    expect_row(store, "words", "new", "x", created);
    expect_sums(address, 1);
    uint64_t etag = 5;
    assert_true(created > 5);
    assert_int_equal(ask_put(store, "words", ask_str("a"), ask_str("5"), &etag), TEFF_OK);
    assert_true(etag > created);
    assert_int_equal(ask_remove(store, "words", ask_str("b"), &(uint64_t){3}), TEFF_OK);
    teffi_store_close(store);
    assert_int_equal(pg_server_run(address, "SELECT count(*) FROM teff.rows"), 3);
    expect_sums(address, 2);
}

static void ten_upgrade_an_older_one_at_once(void **state)
{
    (void)state;
    ten_upgrade_at_once(1);
    ten_upgrade_at_once(2);
}

/* A silo of an older build that had connected before the upgrade calls the same function. */
static void older_builds_write_checksums_too(void **state)
{
    char address[ADDRESS_MAX];
    (void)state;
    make_old_database(address, 2);
    teffi_store_close(ask_open(address));
    assert_int_equal(pg_server_run(address, "SELECT cardinality(teff.write('{words}', "
                                            "ARRAY['a']::bytea[], ARRAY['5']::bytea[], '{5}', "
                                            "'{0}'))"),
                     1);
    expect_sums(address, 1);
    teffi_store *store = ask_open(address);
    expect_row(store, "words", "a", "5", 6);
    teffi_store_close(store);
}

/* While the row's creation waits for another client, that one writes the row and removes it. The
 * first version's function took the etag before it waited. */
static void an_upgraded_function_gives_later_etags(void **state)
{
    char address[ADDRESS_MAX];
    (void)state;
    make_old_database(address, 1);
    teffi_store *store = ask_open(address);
    teffi_row row = {.table = "words", .key = ask_str("c"), .value = ask_str("1")};
    ask_op a = {.op = {.kind = TEFFI_STORE_WRITE, .rows = &row, .n_rows = 1}};
    pg_server_begin(address, "INSERT INTO teff.rows VALUES ('words', 'c', 0, '')");
    ask_start(store, &a);
    while (pg_server_run(address, "SELECT count(*) FROM pg_stat_activity WHERE "
                                  "application_name = 'teff' AND wait_event_type = 'Lock'") == 0)
        sched_yield();
    long taken = pg_server_run(address, "SELECT nextval('teff.etags')");
    pg_server_roll_back();
    assert_int_equal(ask_wait(&a), TEFF_OK);
    assert_true((long)row.etag > taken);
    teffi_store_close(store);
}

/* The upgrade is one transaction: after a failure, the old schema is whole. */
static void a_failed_upgrade_changes_nothing(void **state)
{
    static const char refuse[] =
        "CREATE FUNCTION refuse() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN "
        "RAISE 'no upgrade'; END $$;"
        "CREATE TRIGGER refuse BEFORE UPDATE ON teff.schema FOR EACH ROW EXECUTE FUNCTION refuse()";
    static const char old_function[] = "SELECT count(*) FROM pg_proc WHERE proname = 'write' AND "
                                       "prosrc LIKE '%IF conflict THEN RETURN NULL; END IF;%'";
    char address[ADDRESS_MAX];
    (void)state;
    make_old_database(address, 1);
    (void)pg_server_run(address, refuse);
    ask_expect_refused(address, TEFF_E_IO, "postgres: ERROR:  no upgrade");
    assert_int_equal(pg_server_run(address, "SELECT version FROM teff.schema"), 1);
    assert_int_equal(pg_server_run(address, old_function), 1);
    (void)pg_server_run(address, "DROP TRIGGER refuse ON teff.schema");
    teffi_store_close(ask_open(address));
    assert_int_equal(pg_server_run(address, "SELECT version FROM teff.schema"), VERSION);
    assert_int_equal(pg_server_run(address, old_function), 0);
}

/* Opens the store and closes it. */
static void *open_only(void *arg)
{
    opener *o = arg;
    teffi_store *store;
    o->open_err = teffi_store_open(o->address, &store, o->text);
    teffi_store_close(store);
    return NULL;
}

/* The upgrade needs the table for itself. While a backup, or another transaction, has read it, the
 * silos of the older build read and write: those that wait behind the upgrade do not wait long. */
static void an_upgrade_beside_a_backup_fails_soon(void **state)
{
    static const char waits[] = "SELECT count(*) FROM pg_stat_activity WHERE application_name = "
                                "'teff' AND wait_event_type = 'Lock'";
    static const char read[] = "SET statement_timeout = '30s'; SELECT count(*) FROM teff.rows";
    char address[ADDRESS_MAX];
    opener o = {.address = address};
    (void)state;
    make_old_database(address, 2);
    pg_server_begin(address, "SELECT count(*) FROM teff.rows");
    pthread_create(&o.thread, NULL, open_only, &o);
    while (pg_server_run(address, waits) == 0)
        sched_yield();
    assert_int_equal(pg_server_run(address, read), 3);
    pthread_join(o.thread, NULL);
    assert_int_equal(o.open_err, TEFF_E_IO);
    assert_non_null(strstr(o.text, "was not upgraded: for 2 s another transaction"));
    assert_int_equal(pg_server_run(address, "SELECT version FROM teff.schema"), 2);
    pg_server_commit();
    teffi_store_close(ask_open(address));
    assert_int_equal(pg_server_run(address, "SELECT version FROM teff.schema"), VERSION);
}

static void a_newer_one_is_refused(void **state)
{
    char address[ADDRESS_MAX];
    (void)state;
    pg_server_fresh(address);
    teffi_store_close(ask_open(address));
    (void)pg_server_run(address, "UPDATE teff.schema SET version = 9");
    ask_expect_refused(address, TEFF_E_REFUSED,
                       "version 9, from a newer teff; this build knows versions up to 3");
    assert_int_equal(pg_server_run(address, "SELECT version FROM teff.schema"), 9);
}

/* Databases of this version exist, so this is what they have. If you change the schema, raise
 * SCHEMA in postgres_schema.c, and then the three numbers here. */
static void what_version_3_creates(void **state)
{
    char address[ADDRESS_MAX];
    (void)state;
    pg_server_fresh(address);
    teffi_store_close(ask_open(address));
    assert_int_equal(pg_server_run(address, "SELECT version FROM teff.schema"), VERSION);
    assert_int_equal(pg_server_run(address, "SELECT ('x' || left(md5(prosrc), 7))::bit(28)::int "
                                            "FROM pg_proc WHERE proname = 'write'"),
                     FUNCTION_MD5);
    assert_int_equal(
        pg_server_run(address, "SELECT ('x' || encode(substring(teff.checksum('words', 'key', 7, "
                               "'value') FROM 1 FOR 3), 'hex'))::bit(24)::int"),
        CHECKSUM_START);
    assert_int_equal(
        pg_server_run(address, "SELECT ('x' || left(md5(string_agg(concat_ws(' ', table_name, "
                               "column_name, data_type, is_nullable), ', ' ORDER BY table_name, "
                               "column_name)), 7))::bit(28)::int FROM information_schema.columns "
                               "WHERE table_schema = 'teff'"),
        COLUMNS_MD5);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(ten_create_it_at_once),
        cmocka_unit_test(ten_create_it_at_once_in_a_serializable_database),
        cmocka_unit_test(ten_upgrade_an_older_one_at_once),
        cmocka_unit_test(older_builds_write_checksums_too),
        cmocka_unit_test(an_upgraded_function_gives_later_etags),
        cmocka_unit_test(a_failed_upgrade_changes_nothing),
        cmocka_unit_test(an_upgrade_beside_a_backup_fails_soon),
        cmocka_unit_test(a_newer_one_is_refused),
        cmocka_unit_test(what_version_3_creates),
    };
    if (!pg_server_open())
        return 77;
    int failed = cmocka_run_group_tests(tests, NULL, NULL);
    pg_server_close();
    return failed;
}
