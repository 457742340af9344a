/* sqlite_rows.c - the SQL statements; reads and writes rows, each with a checksum. The file is not
 * trusted: the types and the checksum of a row are checked before it is used. */
#include "store/sqlite_file.h"

#include <string.h>
#include "base/hash.h"
#include "store/engine.h"

enum { ETAG_SUM_SEED = 0x65746167 };

/* In rows, sum is the checksum of the row's other columns; in etags, it is that of the etag. */
static const char *const statements[TEFFI_SQL_COUNT] = {
    [TEFFI_SQL_BEGIN] = "BEGIN IMMEDIATE",
    [TEFFI_SQL_COMMIT] = "COMMIT",
    [TEFFI_SQL_ROLLBACK] = "ROLLBACK",
    [TEFFI_SQL_READ] = "SELECT key, etag, sum, value FROM rows WHERE tab = ?1 AND key = ?2",
    [TEFFI_SQL_PUT] = "INSERT INTO rows(tab, key, etag, sum, value) VALUES(?1, ?2, ?3, ?4, ?5) "
                      "ON CONFLICT(tab, key) DO UPDATE SET etag = ?3, sum = ?4, value = ?5",
    [TEFFI_SQL_REMOVE] = "DELETE FROM rows WHERE tab = ?1 AND key = ?2",
    [TEFFI_SQL_SCAN] = "SELECT key, etag, sum, value FROM rows "
                       "WHERE tab = ?1 AND key >= ?2 ORDER BY key LIMIT ?3",
    [TEFFI_SQL_SCAN_TO] = "SELECT key, etag, sum, value FROM rows "
                          "WHERE tab = ?1 AND key >= ?2 AND key < ?4 ORDER BY key LIMIT ?3",
    [TEFFI_SQL_ETAG] = "SELECT etag, sum FROM etags WHERE id = 1",
    [TEFFI_SQL_ETAG_PUT] = "INSERT OR REPLACE INTO etags(id, etag, sum) VALUES(1, ?1, ?2)",
};

int teffi_sqlite_prepare(teffi_sqlite_file *file)
{
    int rc = SQLITE_OK;
    for (int i = 0; i < TEFFI_SQL_COUNT && rc == SQLITE_OK; i++)
        rc = sqlite3_prepare_v3(file->db, statements[i], -1, SQLITE_PREPARE_PERSISTENT,
                                &file->sql[i], NULL);
    return rc;
}

int teffi_sqlite_run(teffi_sqlite_file *file, teffi_sql which)
{
    sqlite3_stmt *sql = file->sql[which];
    int rc = sqlite3_step(sql);
    sqlite3_reset(sql);
    sqlite3_clear_bindings(sql);
    return rc == SQLITE_DONE || rc == SQLITE_ROW ? SQLITE_OK : rc;
}

int64_t teffi_sqlite_etag_checksum(uint64_t etag)
{
    return (int64_t)teffi_hash64(&etag, sizeof etag, ETAG_SUM_SEED);
}

int teffi_sqlite_read_last_etag(teffi_sqlite_file *file, uint64_t *etag)
{
    sqlite3_stmt *sql = file->sql[TEFFI_SQL_ETAG];
    int rc = sqlite3_step(sql);
    if (rc == SQLITE_ROW) {
        *etag = (uint64_t)sqlite3_column_int64(sql, 0);
        rc = teffi_sqlite_etag_checksum(*etag) == sqlite3_column_int64(sql, 1) ? SQLITE_OK
                                                                               : SQLITE_CORRUPT;
    } else if (rc == SQLITE_DONE) {
        rc = SQLITE_CORRUPT;
    }
    sqlite3_reset(sql);
    return rc;
}

int teffi_sqlite_write_last_etag(teffi_sqlite_file *file, uint64_t etag)
{
    sqlite3_stmt *sql = file->sql[TEFFI_SQL_ETAG_PUT];
    int rc = sqlite3_bind_int64(sql, 1, (int64_t)etag);
    if (rc == SQLITE_OK)
        rc = sqlite3_bind_int64(sql, 2, teffi_sqlite_etag_checksum(etag));
    return rc == SQLITE_OK ? teffi_sqlite_run(file, TEFFI_SQL_ETAG_PUT) : rc;
}

/* ---- rows ---- */

/* Columns of TEFFI_SQL_READ, _SCAN and _SCAN_TO. */
enum { COL_KEY, COL_ETAG, COL_SUM, COL_VALUE };

static int64_t hash_sqlite_row(const teffi_row *row)
{
    return (int64_t)teffi_store_hash_row(row->table, row->key, row->value, row->etag);
}

/* Binds a blob. Empty bytes are bound as a zeroblob, because their address may be NULL, which
 * SQLite would store as SQL's NULL. */
static int bind_bytes(sqlite3_stmt *sql, int at, teffi_bytes bytes)
{
    if (bytes.len == 0)
        return sqlite3_bind_zeroblob(sql, at, 0);
    return sqlite3_bind_blob64(sql, at, bytes.data, bytes.len, SQLITE_STATIC);
}

/* Binds the row's table and key. */
static int bind_table_and_key(sqlite3_stmt *sql, const teffi_row *row)
{
    int rc = sqlite3_bind_text(sql, 1, row->table, -1, SQLITE_STATIC);
    return rc == SQLITE_OK ? bind_bytes(sql, 2, row->key) : rc;
}

static teffi_bytes get_column_bytes(sqlite3_stmt *sql, int column)
{
    const void *data = sqlite3_column_blob(sql, column);
    return (teffi_bytes){data, (size_t)sqlite3_column_bytes(sql, column)};
}

/* Decodes the statement's current row. out: SQLITE_ROW or SQLITE_NOMEM. *good: true if the row's
 * types, etag and checksum are right. *found: the row, valid until the statement's next step or
 * reset; if *good is false, only its table and key are set. */
static int decode_row(sqlite3_stmt *sql, const char *table, teffi_row *found, bool *good)
{
    *good = false;
    *found = (teffi_row){.table = table, .key = get_column_bytes(sql, COL_KEY)};
    if (found->key.len && !found->key.data)
        return SQLITE_NOMEM;
    if (sqlite3_column_type(sql, COL_KEY) != SQLITE_BLOB ||
        sqlite3_column_type(sql, COL_ETAG) != SQLITE_INTEGER ||
        sqlite3_column_type(sql, COL_SUM) != SQLITE_INTEGER ||
        sqlite3_column_type(sql, COL_VALUE) != SQLITE_BLOB)
        return SQLITE_ROW;
    teffi_row row = *found;
    row.value = get_column_bytes(sql, COL_VALUE);
    row.etag = (uint64_t)sqlite3_column_int64(sql, COL_ETAG);
    if (row.value.len && !row.value.data)
        return SQLITE_NOMEM;
    *good = row.etag != 0 && hash_sqlite_row(&row) == sqlite3_column_int64(sql, COL_SUM);
    if (*good)
        *found = row;
    return SQLITE_ROW;
}

/* Reads a row, including the changes of the current transaction, if there is one. out: SQLITE_ROW:
 * *found and *good are set as by decode_row(). SQLITE_DONE: there is no such row; *found has etag
 * 0, *good is true. Otherwise: SQLite's code of an error. The caller resets TEFFI_SQL_READ after
 * its last use of *found. */
static int find_row(teffi_sqlite_file *file, const teffi_row *row, teffi_row *found, bool *good)
{
    sqlite3_stmt *sql = file->sql[TEFFI_SQL_READ];
    int rc = bind_table_and_key(sql, row);
    *found = (teffi_row){0};
    *good = true;
    if (rc == SQLITE_OK)
        rc = sqlite3_step(sql);
    return rc == SQLITE_ROW ? decode_row(sql, row->table, found, good) : rc;
}

int teffi_sqlite_read(teffi_sqlite_file *file, teffi_store_op *op)
{
    teffi_row found;
    bool good;
    int rc = find_row(file, &op->rows[0], &found, &good);
    if (rc == SQLITE_ROW && !good)
        teffi_store_set_damaged_row_error(op, "sqlite", &op->rows[0]);
    else if (rc == SQLITE_ROW || rc == SQLITE_DONE)
        teffi_store_set_read_result(op, &found);
    sqlite3_reset(file->sql[TEFFI_SQL_READ]);
    return rc == SQLITE_ROW || rc == SQLITE_DONE ? SQLITE_OK : rc;
}

int teffi_sqlite_scan(teffi_sqlite_file *file, teffi_store_op *op)
{
    teffi_row found, *from = op->rows;
    bool good; /* not used: a damaged row is returned with its key and etag 0 */
    sqlite3_stmt *sql = file->sql[op->to.len ? TEFFI_SQL_SCAN_TO : TEFFI_SQL_SCAN];
    int rc = bind_table_and_key(sql, from);
    if (rc == SQLITE_OK)
        rc = sqlite3_bind_int64(sql, 3, (int64_t)op->limit);
    if (rc == SQLITE_OK && op->to.len)
        rc = bind_bytes(sql, 4, op->to);
    if (rc == SQLITE_OK)
        rc = sqlite3_step(sql);
    while (rc == SQLITE_ROW) {
        rc = decode_row(sql, from->table, &found, &good);
        if (rc != SQLITE_ROW || !teffi_store_add_found_row(op, from, &found))
            break;
        rc = sqlite3_step(sql);
    }
    sqlite3_reset(sql);
    if (rc == SQLITE_DONE || rc == SQLITE_ROW)
        return SQLITE_OK;
    op->rows = from;
    op->n_found = 0;
    return rc;
}

/* Compares the row's etag with the stored one. Does nothing in two cases. First: row->any is set;
 * such a write may overwrite or remove any row, also a damaged one. Second: row->check is set, and
 * the same check has already matched in this transaction (see file->checked). out: SQLITE_OK:
 * op->err is OK, CONFLICT or MALFORMED; otherwise SQLite's code of an error. */
static int check_row_etag(teffi_sqlite_file *file, teffi_store_op *op, const teffi_row *row)
{
    teffi_row found;
    bool good;
    if (row->any || (row->check && file->checked && file->checked->etag == row->etag &&
                     teffi_row_cmp(file->checked, row) == 0))
        return SQLITE_OK;
    int rc = find_row(file, row, &found, &good);
    sqlite3_reset(file->sql[TEFFI_SQL_READ]);
    if (rc != SQLITE_ROW && rc != SQLITE_DONE)
        return rc;
    if (!good)
        teffi_store_set_damaged_row_error(op, "sqlite", row);
    else if (found.etag != row->etag)
        op->err = TEFF_E_CONFLICT;
    else if (row->check)
        file->checked = row;
    return SQLITE_OK;
}

static int put_row(teffi_sqlite_file *file, const teffi_row *row, uint64_t etag)
{
    sqlite3_stmt *sql = file->sql[TEFFI_SQL_PUT];
    teffi_row fresh = *row;
    fresh.etag = etag;
    int rc = bind_table_and_key(sql, row);
    if (rc == SQLITE_OK)
        rc = sqlite3_bind_int64(sql, 3, (int64_t)etag);
    if (rc == SQLITE_OK)
        rc = sqlite3_bind_int64(sql, 4, hash_sqlite_row(&fresh));
    if (rc == SQLITE_OK)
        rc = bind_bytes(sql, 5, row->value);
    return rc == SQLITE_OK ? teffi_sqlite_run(file, TEFFI_SQL_PUT) : rc;
}

static int remove_row(teffi_sqlite_file *file, const teffi_row *row)
{
    int rc = bind_table_and_key(file->sql[TEFFI_SQL_REMOVE], row);
    return rc == SQLITE_OK ? teffi_sqlite_run(file, TEFFI_SQL_REMOVE) : rc;
}

int teffi_sqlite_write(teffi_sqlite_file *file, teffi_store_op *op, uint64_t *etag)
{
    int rc = SQLITE_OK;
    for (size_t i = 0; i < op->n_rows; i++) {
        rc = check_row_etag(file, op, &op->rows[i]);
        if (rc != SQLITE_OK || op->err != TEFF_OK)
            return rc;
    }
    for (size_t i = 0; rc == SQLITE_OK && i < op->n_rows; i++) {
        const teffi_row *row = &op->rows[i];
        if (row->check)
            continue;
        rc = row->remove ? remove_row(file, row) : put_row(file, row, ++*etag);
        /* a later check of this row must read it again */
        if (file->checked && teffi_row_cmp(file->checked, row) == 0)
            file->checked = NULL;
    }
    return rc;
}
