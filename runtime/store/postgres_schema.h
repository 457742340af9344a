/* postgres_schema.h - the schema `teff` in a PostgreSQL database: its tables, and a function that
 * writes. The schema has a version, so that a later teff can upgrade it.
 * Way:     postgres -> [postgres_schema] -> postgres_sql
 * Threads: any; an advisory lock in the database admits one session at a time. */
#pragma once

#include <libpq-fe.h>
#include "teff/error.h"

/* teffi_postgres_ensure_schema - create the schema, or upgrade one of a lower version; one
 * transaction does all, and keeps the rows.
 * in:   conn: without a transaction; close it on an error. text: TEFF_TEXT_MAX bytes.
 * errs: with text: TEFF_E_REFUSED (a newer teff has upgraded it), TEFF_E_IO. */
TEFF_MUST_USE teff_err teffi_postgres_ensure_schema(PGconn *conn, char *text);
