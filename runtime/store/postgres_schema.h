/* postgres_schema.h - the schema `teff` in a PostgreSQL database: its tables, and a function that
 * writes. The schema has a version, so that a later teff can upgrade it.
 * Way:     postgres -> [postgres_schema] -> libpq
 * Threads: any; an advisory lock in the database admits one session at a time. */
#pragma once

#include <libpq-fe.h>
#include <stdbool.h>
#include "teff/error.h"

/* teffi_postgres_ensure_schema - create the schema, or upgrade one of a lower version; one
 * transaction does all, and keeps the rows.
 * in:   conn: without a transaction; close it on an error. text: TEFF_TEXT_MAX bytes.
 * errs: with text: TEFF_E_REFUSED (a newer teff has upgraded it), TEFF_E_IO. */
TEFF_MUST_USE teff_err teffi_postgres_ensure_schema(PGconn *conn, char *text);

/* Statements that are run one by one, before a connection has pipelines. text: as above. */

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
