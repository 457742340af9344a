/* sqlite_rows.c - rows in SQL: read, scan, check and write, each row with a checksum.
 * Way:     store/sqlite -> [sqlite_rows] -> SQLite
 * Threads: the engine's own.
 * What comes out of the file is not trusted: types and checksum are looked at before use. */
#include <string.h>
#include "base/hash.h"
#include "store/sqlite.h"

/* Columns of TEFFI_SQL_READ, _SCAN and _SCAN_TO. */
enum { COL_KEY, COL_ETAG, COL_SUM, COL_VALUE };

enum { ETAG_SUM_SEED = 0x65746167 };

teff_err teffi_sqlite_err(int rc)
{
    switch (rc & 0xff) {
    case SQLITE_OK:
        return TEFF_OK;
    case SQLITE_NOMEM:
        return TEFF_E_NOMEM;
    case SQLITE_CORRUPT:
    case SQLITE_NOTADB:
        return TEFF_E_MALFORMED;
    case SQLITE_TOOBIG:
        return TEFF_E_TOO_LARGE;
    default:
        return TEFF_E_IO;
    }
}

int teffi_sqlite_run(teffi_sqlite_file *file, teffi_sql which)
{
    sqlite3_stmt *sql = file->sql[which];
    int rc = sqlite3_step(sql);
    sqlite3_reset(sql);
    sqlite3_clear_bindings(sql);
    return rc == SQLITE_DONE || rc == SQLITE_ROW ? SQLITE_OK : rc;
}

int teffi_sqlite_number(sqlite3_stmt *sql, int64_t *number)
{
    int rc = sqlite3_step(sql);
    if (rc == SQLITE_ROW && sqlite3_column_type(sql, 0) == SQLITE_INTEGER) {
        *number = sqlite3_column_int64(sql, 0);
        rc = SQLITE_OK;
    } else if (rc == SQLITE_ROW || rc == SQLITE_DONE) {
        rc = SQLITE_CORRUPT;
    }
    sqlite3_reset(sql);
    return rc;
}

static int64_t row_sum(const teffi_row *row)
{
    uint64_t sum = teffi_hash64(row->table, strlen(row->table), row->etag);
    sum = teffi_hash64(row->key.data, row->key.len, sum);
    return (int64_t)teffi_hash64(row->value.data, row->value.len, sum);
}

/* An empty blob has no address, and a NULL address would be an SQL NULL. */
static int bind_bytes(sqlite3_stmt *sql, int at, teffi_bytes bytes)
{
    if (bytes.len == 0)
        return sqlite3_bind_zeroblob(sql, at, 0);
    return sqlite3_bind_blob64(sql, at, bytes.data, bytes.len, SQLITE_STATIC);
}

static int bind_row(sqlite3_stmt *sql, const teffi_row *row)
{
    int rc = sqlite3_bind_text(sql, 1, row->table, -1, SQLITE_STATIC);
    return rc == SQLITE_OK ? bind_bytes(sql, 2, row->key) : rc;
}

static teffi_bytes column_bytes(sqlite3_stmt *sql, int column)
{
    const void *data = sqlite3_column_blob(sql, column);
    return (teffi_bytes){data, (size_t)sqlite3_column_bytes(sql, column)};
}

/* Take a row out of the statement's current answer; valid until the next step.
 * out: SQLITE_OK and *good: types and checksum are right; else found has key only. */
static int take_row(sqlite3_stmt *sql, const char *table, teffi_row *found, bool *good)
{
    *good = false;
    *found = (teffi_row){.table = table, .key = column_bytes(sql, COL_KEY)};
    if (found->key.len && !found->key.data)
        return SQLITE_NOMEM;
    if (sqlite3_column_type(sql, COL_KEY) != SQLITE_BLOB ||
        sqlite3_column_type(sql, COL_ETAG) != SQLITE_INTEGER ||
        sqlite3_column_type(sql, COL_SUM) != SQLITE_INTEGER ||
        sqlite3_column_type(sql, COL_VALUE) != SQLITE_BLOB)
        return SQLITE_OK;
    teffi_row row = *found;
    row.value = column_bytes(sql, COL_VALUE);
    row.etag = (uint64_t)sqlite3_column_int64(sql, COL_ETAG);
    if (row.value.len && !row.value.data)
        return SQLITE_NOMEM;
    *good = row.etag != 0 && row_sum(&row) == sqlite3_column_int64(sql, COL_SUM);
    if (*good)
        *found = row;
    return SQLITE_OK;
}

static void fail_damaged(teffi_store_op *op, const teffi_row *row)
{
    teffi_store_fail(op, TEFF_E_MALFORMED, "sqlite: damaged row (checksum) in %s: key of %zu bytes",
                     row->table, row->key.len);
}

/* The row as it stands: SQLITE_ROW with *found and *good, SQLITE_DONE: no such row, or an error.
 * The caller resets the statement when it is through with *found. */
static int look(teffi_sqlite_file *file, const teffi_row *row, teffi_row *found, bool *good)
{
    sqlite3_stmt *sql = file->sql[TEFFI_SQL_READ];
    int rc = bind_row(sql, row);
    *found = (teffi_row){0};
    *good = true;
    if (rc == SQLITE_OK)
        rc = sqlite3_step(sql);
    if (rc != SQLITE_ROW)
        return rc;
    rc = take_row(sql, row->table, found, good);
    return rc == SQLITE_OK ? SQLITE_ROW : rc;
}

static void give_row(teffi_store_op *op, const teffi_row *found)
{
    const void *copy = teff_arena_copy(op->arena, found->value.data, found->value.len);
    if (!copy) {
        teffi_store_fail(op, TEFF_E_NOMEM, "sqlite: a value of %zu bytes", found->value.len);
        return;
    }
    op->rows[0].value = (teffi_bytes){copy, found->value.len};
    op->rows[0].etag = found->etag;
}

int teffi_sqlite_read(teffi_sqlite_file *file, teffi_store_op *op)
{
    teffi_row found;
    bool good;
    int rc = look(file, &op->rows[0], &found, &good);
    if (rc == SQLITE_ROW && good) {
        give_row(op, &found);
    } else if (rc == SQLITE_ROW) {
        fail_damaged(op, &op->rows[0]);
    } else if (rc == SQLITE_DONE) {
        op->rows[0].value = (teffi_bytes){0};
        op->rows[0].etag = 0;
    }
    sqlite3_reset(file->sql[TEFFI_SQL_READ]);
    return rc == SQLITE_ROW || rc == SQLITE_DONE ? SQLITE_OK : rc;
}

/* One row of the answer. out: false ends the scan, op->err or *rc says why. */
static bool scan_row(sqlite3_stmt *sql, const teffi_row *from, teffi_store_op *op, int *rc)
{
    teffi_row found;
    bool good;
    *rc = take_row(sql, from->table, &found, &good);
    if (*rc != SQLITE_OK)
        return false;
    if (!teffi_store_found(op, from, &found)) {
        teffi_store_fail(op, TEFF_E_NOMEM, "sqlite: a scan of over %zu rows", op->n_found);
        return false;
    }
    if (!good) {
        op->n_found--;
        fail_damaged(op, &op->rows[op->n_found]);
    }
    return good;
}

int teffi_sqlite_scan(teffi_sqlite_file *file, teffi_store_op *op)
{
    teffi_row *from = op->rows;
    sqlite3_stmt *sql = file->sql[op->to.len ? TEFFI_SQL_SCAN_TO : TEFFI_SQL_SCAN];
    int rc = bind_row(sql, from);
    if (rc == SQLITE_OK)
        rc = sqlite3_bind_int64(sql, 3, (int64_t)op->limit);
    if (rc == SQLITE_OK && op->to.len)
        rc = bind_bytes(sql, 4, op->to);
    if (rc == SQLITE_OK)
        rc = sqlite3_step(sql);
    while (rc == SQLITE_ROW && scan_row(sql, from, op, &rc))
        rc = sqlite3_step(sql);
    sqlite3_reset(sql);
    rc = rc == SQLITE_DONE || rc == SQLITE_ROW ? SQLITE_OK : rc;
    if (rc != SQLITE_OK || op->err == TEFF_E_NOMEM) {
        op->rows = from;
        op->n_found = 0;
    }
    return rc;
}

/* Damaged rows are removed by who asks for it with `any`, and never overwritten. */
static int check_row(teffi_sqlite_file *file, teffi_store_op *op, const teffi_row *row)
{
    teffi_row found;
    bool good;
    if (row->any && row->remove)
        return SQLITE_OK;
    int rc = look(file, row, &found, &good);
    sqlite3_reset(file->sql[TEFFI_SQL_READ]);
    if (rc != SQLITE_ROW && rc != SQLITE_DONE)
        return rc;
    if (!good)
        fail_damaged(op, row);
    else if (!row->any && found.etag != row->etag)
        op->err = TEFF_E_CONFLICT;
    return SQLITE_OK;
}

static int put_row(teffi_sqlite_file *file, const teffi_row *row, uint64_t etag)
{
    sqlite3_stmt *sql = file->sql[TEFFI_SQL_PUT];
    teffi_row fresh = *row;
    fresh.etag = etag;
    int rc = bind_row(sql, row);
    if (rc == SQLITE_OK)
        rc = sqlite3_bind_int64(sql, 3, (int64_t)etag);
    if (rc == SQLITE_OK)
        rc = sqlite3_bind_int64(sql, 4, row_sum(&fresh));
    if (rc == SQLITE_OK)
        rc = bind_bytes(sql, 5, row->value);
    return rc == SQLITE_OK ? teffi_sqlite_run(file, TEFFI_SQL_PUT) : rc;
}

static int remove_row(teffi_sqlite_file *file, const teffi_row *row)
{
    int rc = bind_row(file->sql[TEFFI_SQL_REMOVE], row);
    return rc == SQLITE_OK ? teffi_sqlite_run(file, TEFFI_SQL_REMOVE) : rc;
}

int teffi_sqlite_write(teffi_sqlite_file *file, teffi_store_op *op, uint64_t *etag)
{
    int rc = SQLITE_OK;
    for (size_t i = 0; i < op->n_rows; i++) {
        rc = check_row(file, op, &op->rows[i]);
        if (rc != SQLITE_OK || op->err != TEFF_OK)
            return rc;
    }
    for (size_t i = 0; rc == SQLITE_OK && i < op->n_rows; i++) {
        const teffi_row *row = &op->rows[i];
        rc = row->remove ? remove_row(file, row) : put_row(file, row, ++*etag);
    }
    return rc;
}

static int64_t etag_sum(uint64_t etag)
{
    return (int64_t)teffi_hash64(&etag, sizeof etag, ETAG_SUM_SEED);
}

int teffi_sqlite_etag(teffi_sqlite_file *file, uint64_t *etag)
{
    sqlite3_stmt *sql = file->sql[TEFFI_SQL_ETAG];
    int rc = sqlite3_step(sql);
    if (rc == SQLITE_ROW) {
        *etag = (uint64_t)sqlite3_column_int64(sql, 0);
        rc = etag_sum(*etag) == sqlite3_column_int64(sql, 1) ? SQLITE_OK : SQLITE_CORRUPT;
    } else if (rc == SQLITE_DONE) {
        rc = SQLITE_CORRUPT;
    }
    sqlite3_reset(sql);
    return rc;
}

int teffi_sqlite_etag_put(teffi_sqlite_file *file, uint64_t etag)
{
    sqlite3_stmt *sql = file->sql[TEFFI_SQL_ETAG_PUT];
    int rc = sqlite3_bind_int64(sql, 1, (int64_t)etag);
    if (rc == SQLITE_OK)
        rc = sqlite3_bind_int64(sql, 2, etag_sum(etag));
    return rc == SQLITE_OK ? teffi_sqlite_run(file, TEFFI_SQL_ETAG_PUT) : rc;
}
