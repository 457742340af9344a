/* postgres_sql.h - run SQL statements on a connection, and wait for their results.
 * Way:     postgres, postgres_schema -> [postgres_sql] -> libpq
 * Threads: the connection's. text has TEFF_TEXT_MAX bytes. */
#pragma once

#include <libpq-fe.h>
#include <stdbool.h>
#include "teff/error.h"

/* teffi_postgres_format_error - set text to "postgres: " and the first line of a message. */
void teffi_postgres_format_error(char *text, const char *message);

/* teffi_postgres_run_sql - run one statement with one parameter or, if parameter is NULL, any
 * number of statements. out: the result of the last statement, which the caller clears; NULL: an
 * error, with text.
 * teffi_postgres_query_number - out: the number that a query returns; `otherwise` if it returns no
 * row; -1: an error, with text.
 * teffi_postgres_run_command - run statements whose results are not needed. out: false: an error,
 * with text. */
PGresult *teffi_postgres_run_sql(PGconn *conn, const char *sql, const char *parameter, char *text);
int teffi_postgres_query_number(PGconn *conn, const char *sql, const char *parameter, int otherwise,
                                char *text);
bool teffi_postgres_run_command(PGconn *conn, const char *sql, char *text);
