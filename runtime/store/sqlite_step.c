/* sqlite_step.c - the SQL statements, running them, and SQLite's error codes. */
#include "store/sqlite_file.h"

#include "base/hash.h"

enum { ETAG_SUM_SEED = 0x65746167 };

/* sum is the checksum of the row's other columns, see sqlite_rows.c. */
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

int64_t teffi_sqlite_etag_sum(uint64_t etag)
{
    return (int64_t)teffi_hash64(&etag, sizeof etag, ETAG_SUM_SEED);
}

int teffi_sqlite_etag(teffi_sqlite_file *file, uint64_t *etag)
{
    sqlite3_stmt *sql = file->sql[TEFFI_SQL_ETAG];
    int rc = sqlite3_step(sql);
    if (rc == SQLITE_ROW) {
        *etag = (uint64_t)sqlite3_column_int64(sql, 0);
        rc = teffi_sqlite_etag_sum(*etag) == sqlite3_column_int64(sql, 1) ? SQLITE_OK
                                                                          : SQLITE_CORRUPT;
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
        rc = sqlite3_bind_int64(sql, 2, teffi_sqlite_etag_sum(etag));
    return rc == SQLITE_OK ? teffi_sqlite_run(file, TEFFI_SQL_ETAG_PUT) : rc;
}
