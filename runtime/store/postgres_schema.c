/* postgres_schema.c - the SQL that creates or upgrades the schema, and single statements. If you
 * change what the SQL creates, raise SCHEMA, and add a step for the databases of earlier versions
 * to upgrade_schema().
 * 1: the first version. 2: teff.write gives a row that is created again a later etag, see there.
 * 3: rows have a checksum; those that older versions wrote have none until they are written. */
#include "store/postgres_schema.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "base/error.h"

enum { SCHEMA = 3 };

/* ---- single statements ---- */

void teffi_postgres_format_error(char *text, const char *message)
{
    snprintf(text, TEFF_TEXT_MAX, "postgres: %.*s", (int)strcspn(message, "\n"), message);
}

PGresult *teffi_postgres_run_sql(PGconn *conn, const char *sql, const char *parameter, char *text)
{
    PGresult *result =
        parameter ? PQexecParams(conn, sql, 1, NULL, &parameter, NULL, NULL, 0) : PQexec(conn, sql);
    ExecStatusType status = PQresultStatus(result);
    if (status == PGRES_TUPLES_OK || status == PGRES_COMMAND_OK)
        return result;
    teffi_postgres_format_error(text, PQerrorMessage(conn));
    PQclear(result);
    return NULL;
}

int teffi_postgres_query_number(PGconn *conn, const char *sql, const char *parameter, int otherwise,
                                char *text)
{
    PGresult *result = teffi_postgres_run_sql(conn, sql, parameter, text);
    const char *value = result && PQntuples(result) > 0 ? PQgetvalue(result, 0, 0) : NULL;
    int number = !result ? -1 : value ? (int)strtol(value, NULL, 10) : otherwise;
    PQclear(result);
    return number;
}

bool teffi_postgres_run_command(PGconn *conn, const char *sql, char *text)
{
    PGresult *result = teffi_postgres_run_sql(conn, sql, NULL, text);
    PQclear(result);
    return result != NULL;
}

/* ---- the schema ---- */

static const char tables[] =
    "CREATE SCHEMA IF NOT EXISTS teff;"
    "CREATE TABLE teff.schema (version int NOT NULL);"
    "INSERT INTO teff.schema VALUES (0);"
    "CREATE TABLE teff.rows (tab text COLLATE \"C\" NOT NULL, key bytea NOT NULL,"
    " etag bigint NOT NULL, value bytea NOT NULL, PRIMARY KEY (tab, key));"
    "CREATE SEQUENCE teff.etags;";

/* Also the first version's table gets the column; NULL: no checksum. The server computes and
 * compares checksums, so those of older builds that use a newer schema are right, too. All that
 * the function calls is immutable, so that the server inlines it; otherwise a save takes three
 * times as long. Names of tables have no backslash, so tab::bytea is their characters. */
static const char checksums[] =
    "ALTER TABLE teff.rows ADD COLUMN sum bytea;"
    "CREATE FUNCTION teff.checksum(tab text, key bytea, etag bigint, value bytea) RETURNS bytea"
    " LANGUAGE sql IMMUTABLE PARALLEL SAFE AS $$ SELECT substring(sha256(int8send(etag) ||"
    " int4send(octet_length(tab)) || tab::bytea || int4send(octet_length(key)) || key || value)"
    " FROM 1 FOR 8) $$;";

/* marks: 1 any, 2 remove, 4 check. out: the rows' new etags; NULL: a conflict, and nothing is
 * written. If a row that is not marked `any` is damaged, raises SQLSTATE XX001 with the row's
 * number as detail. The value of a row that is marked `any` is not read, because a read of a
 * damaged value may fail. The first loop compares etags. It locks rows in key order, so deadlocks
 * are rare; after one, the batch is tried again. A row that must not exist is inserted there,
 * because only existing rows can be locked; so is a missing row with `any`, unless another session
 * creates it at the same time. The second loop writes or deletes the locked rows. INSERT sets etag
 * 0, because after a nextval() it might wait until others have given the row a later etag. */
static const char write_function[] =
    "CREATE OR REPLACE FUNCTION teff.write(tabs text[], keys bytea[], vals bytea[],"
    " etags bigint[], marks int[]) RETURNS bigint[] LANGUAGE plpgsql AS $$ "
    "DECLARE i int; have bigint; damaged bool; created int[] := '{}'; conflict bool := false;"
    " news bigint[] := array_fill(0::bigint, ARRAY[cardinality(tabs)]); "
    "BEGIN "
    "FOR i IN SELECT r.n FROM unnest(tabs, keys) WITH ORDINALITY AS r(t, k, n)"
    "  ORDER BY r.t COLLATE \"C\", r.k LOOP"
    " IF etags[i] = 0 AND marks[i] & 1 = 0 THEN"
    "  INSERT INTO teff.rows VALUES (tabs[i], keys[i], 0, '') ON CONFLICT DO NOTHING;"
    "  IF FOUND THEN created := created || i; ELSE conflict := true; END IF;"
    " ELSE"
    "  LOOP"
    "   IF marks[i] & 4 <> 0 THEN"
    "    SELECT etag, sum <> teff.checksum(tab, key, etag, value) INTO have, damaged"
    "     FROM teff.rows WHERE tab = tabs[i] AND key = keys[i] FOR SHARE;"
    "   ELSE"
    "    SELECT etag, CASE WHEN marks[i] & 1 = 0"
    "     THEN sum <> teff.checksum(tab, key, etag, value) END INTO have, damaged"
    "     FROM teff.rows WHERE tab = tabs[i] AND key = keys[i] FOR UPDATE;"
    "   END IF;"
    "   EXIT WHEN FOUND OR marks[i] & 3 <> 1;"
    "   INSERT INTO teff.rows VALUES (tabs[i], keys[i], 0, '') ON CONFLICT DO NOTHING;"
    "   IF FOUND THEN created := created || i; EXIT; END IF;"
    "  END LOOP;"
    "  IF damaged THEN"
    "   RAISE EXCEPTION USING ERRCODE = 'XX001', MESSAGE = 'damaged row', DETAIL = i;"
    "  END IF;"
    "  conflict := marks[i] & 1 = 0 AND coalesce(have, 0) <> etags[i];"
    " END IF;"
    " EXIT WHEN conflict;"
    "END LOOP;"
    "FOR i IN 1 .. cardinality(tabs) LOOP"
    " IF i = ANY (created) AND (conflict OR marks[i] & 4 <> 0)"
    "   OR NOT conflict AND marks[i] & 2 <> 0 THEN"
    "  DELETE FROM teff.rows WHERE tab = tabs[i] AND key = keys[i];"
    " ELSIF NOT conflict AND marks[i] & 4 = 0 THEN"
    "  have := nextval('teff.etags');"
    "  UPDATE teff.rows SET etag = have, value = vals[i],"
    "   sum = teff.checksum(tabs[i], keys[i], have, vals[i])"
    "   WHERE tab = tabs[i] AND key = keys[i];"
    "  news[i] := have;"
    " END IF;"
    "END LOOP;"
    "RETURN CASE WHEN conflict THEN NULL ELSE news END; "
    "END $$";

/* The upgrade waits for all transactions that have used teff.rows, such as backups. Reads and
 * writes of other silos wait behind it, so it fails after a wait that is shorter than most leases.
 * The limit is longer than the server's deadlock_timeout (1 s), after which the server cancels an
 * autovacuum of the table. */
static const char limit_lock_waits[] = "SET LOCAL lock_timeout = '2s'";

/* Runs one command of the creation or upgrade. out: false: an error, with text. */
static bool run_schema_command(PGconn *conn, const char *sql, char *text)
{
    PGresult *result = PQexec(conn, sql);
    const char *state = PQresultErrorField(result, PG_DIAG_SQLSTATE);
    bool good = PQresultStatus(result) == PGRES_COMMAND_OK;
    if (state && strcmp(state, "55P03") == 0)
        (void)teffi_fail(text, TEFF_E_IO,
                         "postgres: the schema teff was not upgraded: for 2 s another transaction, "
                         "for example of a backup, has used its table rows; try again after the "
                         "end of that transaction");
    else if (!good)
        teffi_postgres_format_error(text, PQerrorMessage(conn));
    PQclear(result);
    return good;
}

/* Creates the schema if version is 0, otherwise upgrades it. in: version: the database's, lower
 * than SCHEMA. runs: in a transaction. out: false: an error, with text. */
static bool upgrade_schema(PGconn *conn, int version, char *text)
{
    char set_version[64];
    snprintf(set_version, sizeof set_version, "UPDATE teff.schema SET version = %d", SCHEMA);
    return run_schema_command(conn, limit_lock_waits, text) &&
           (version > 0 || run_schema_command(conn, tables, text)) &&
           (version >= 3 || run_schema_command(conn, checksums, text)) &&
           run_schema_command(conn, write_function, text) &&
           run_schema_command(conn, set_version, text);
}

/* The transaction reads what others have committed before it got the advisory lock, whatever the
 * database's default isolation is. */
teff_err teffi_postgres_ensure_schema(PGconn *conn, char *text)
{
    static const char begin[] =
        "BEGIN ISOLATION LEVEL READ COMMITTED; SELECT pg_advisory_xact_lock(7306646)";
    int version = -1;
    if (teffi_postgres_run_command(conn, begin, text))
        version = teffi_postgres_query_number(conn, "SELECT count(to_regclass('teff.schema'))",
                                              NULL, 0, text);
    if (version > 0)
        version =
            teffi_postgres_query_number(conn, "SELECT version FROM teff.schema", NULL, 0, text);
    if (version > SCHEMA)
        return teffi_fail(text, TEFF_E_REFUSED,
                          "postgres: the schema teff has version %d, from a newer teff; this build "
                          "knows versions up to %d",
                          version, SCHEMA);
    if (version < 0 || (version < SCHEMA && !upgrade_schema(conn, version, text)) ||
        !teffi_postgres_run_command(conn, "COMMIT", text))
        return TEFF_E_IO;
    return TEFF_OK;
}
