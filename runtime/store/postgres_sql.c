/* postgres_sql.c - run SQL statements on a connection, and wait for their results. */
#include "store/postgres_sql.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

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
