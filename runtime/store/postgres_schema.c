/* postgres_schema.c - the SQL that creates or upgrades the schema, and single statements. If you
 * change what the SQL creates, raise SCHEMA, and add a step for the databases of earlier versions
 * to upgrade_schema().
 * 1: the first version. 2: teff.write gives a row that is created again a later etag, see there. */
#include "store/postgres_schema.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "base/error.h"

enum { SCHEMA = 2 };

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

/* marks: 1 any, 2 remove, 4 check. out: the rows' new etags; NULL: a conflict, and nothing is
 * written. The first loop compares etags. It locks rows in key order, so deadlocks are rare;
 * after one, the batch is tried again. A row that must not exist is inserted there, because
 * only existing rows can be locked; the second loop writes or deletes it. INSERT sets etag 0,
 * because after a nextval() it might wait until others have given the row a later etag. */
static const char write_function[] =
    "CREATE OR REPLACE FUNCTION teff.write(tabs text[], keys bytea[], vals bytea[],"
    " etags bigint[], marks int[]) RETURNS bigint[] LANGUAGE plpgsql AS $$ "
    "DECLARE i int; have bigint; created int[] := '{}'; conflict bool := false;"
    " news bigint[] := array_fill(0::bigint, ARRAY[cardinality(tabs)]); "
    "BEGIN "
    "FOR i IN SELECT r.n FROM unnest(tabs, keys) WITH ORDINALITY AS r(t, k, n)"
    "  ORDER BY r.t COLLATE \"C\", r.k LOOP"
    " IF etags[i] = 0 AND marks[i] & 1 = 0 THEN"
    "  INSERT INTO teff.rows VALUES (tabs[i], keys[i], 0, '') ON CONFLICT DO NOTHING;"
    "  IF FOUND THEN created := created || i; ELSE conflict := true; END IF;"
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
    " IF i = ANY (created) AND (conflict OR marks[i] & 4 <> 0)"
    "   OR NOT conflict AND marks[i] & 2 <> 0 THEN"
    "  DELETE FROM teff.rows WHERE tab = tabs[i] AND key = keys[i];"
    " ELSIF NOT conflict AND marks[i] & 4 = 0 THEN"
    "  IF NOT i = ANY (created) THEN"
    "   INSERT INTO teff.rows VALUES (tabs[i], keys[i], 0, vals[i]) ON CONFLICT (tab, key)"
    "    DO UPDATE SET etag = nextval('teff.etags'), value = vals[i] RETURNING etag INTO have;"
    "  END IF;"
    "  IF i = ANY (created) OR have = 0 THEN"
    "   UPDATE teff.rows SET etag = nextval('teff.etags'), value = vals[i]"
    "    WHERE tab = tabs[i] AND key = keys[i] RETURNING etag INTO have;"
    "  END IF;"
    "  news[i] := have;"
    " END IF;"
    "END LOOP;"
    "RETURN CASE WHEN conflict THEN NULL ELSE news END; "
    "END $$";

/* Creates the schema if version is 0, otherwise upgrades it. in: version: the database's, lower
 * than SCHEMA. runs: in a transaction. out: false: an error, with text. */
static bool upgrade_schema(PGconn *conn, int version, char *text)
{
    char set_version[64];
    snprintf(set_version, sizeof set_version, "UPDATE teff.schema SET version = %d", SCHEMA);
    if (version == 0 && !teffi_postgres_run_command(conn, tables, text))
        return false;
    return teffi_postgres_run_command(conn, write_function, text) &&
           teffi_postgres_run_command(conn, set_version, text);
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
