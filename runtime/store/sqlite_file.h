/* sqlite_file.h - the file of engine `sqlite`: open it, run statements, read and write rows.
 * Way:     store/sqlite -> [sqlite_file -> sqlite_rows] -> SQLite
 * Threads: the opener's thread, then the engine's. */
#pragma once

#include <sqlite3.h>
#include "store/store.h"

/* How long one attempt waits for the lock of another process, and the number of attempts. */
enum { TEFFI_SQLITE_BUSY_MS = 25, TEFFI_SQLITE_BUSY_TRIES = 200 };

typedef enum teffi_sql {
    TEFFI_SQL_BEGIN,
    TEFFI_SQL_COMMIT,
    TEFFI_SQL_ROLLBACK,
    TEFFI_SQL_READ,
    TEFFI_SQL_PUT,
    TEFFI_SQL_REMOVE,
    TEFFI_SQL_SCAN,
    TEFFI_SQL_SCAN_TO,
    TEFFI_SQL_ETAG,
    TEFFI_SQL_ETAG_PUT,
    TEFFI_SQL_COUNT
} teffi_sql;

typedef struct teffi_sqlite_file {
    sqlite3 *db;
    sqlite3_stmt *sql[TEFFI_SQL_COUNT];
    /* The last row whose check matched in this transaction, if it was not written since; else NULL.
     * It saves reads, because a silo's writes of states check the same row, its fence. Points
     * into an op of the transaction; the caller sets it to NULL when a transaction begins. */
    const teffi_row *checked;
} teffi_sqlite_file;

/* Functions here that return int return SQLITE_OK or SQLite's code of an error.
 * teffi_sqlite_prepare - compile the statements; teffi_sqlite_file_close() finalizes them. */
int teffi_sqlite_prepare(teffi_sqlite_file *file);

/* teffi_sqlite_run - run a statement that returns no rows; its parameters are cleared. */
int teffi_sqlite_run(teffi_sqlite_file *file, teffi_sql which);

/* teffi_sqlite_read_last_etag - read the last etag assigned in this file, which is stored with a
 * checksum.
 * out: SQLITE_CORRUPT: the checksum is wrong, or no etag is stored.
 * teffi_sqlite_write_last_etag - write this etag and its checksum.
 * teffi_sqlite_etag_checksum - out: the checksum of an etag. */
int64_t teffi_sqlite_etag_checksum(uint64_t etag);
int teffi_sqlite_read_last_etag(teffi_sqlite_file *file, uint64_t *etag);
int teffi_sqlite_write_last_etag(teffi_sqlite_file *file, uint64_t etag);

/* teffi_sqlite_convert_error - convert SQLite's code of an error to ours.
 * out:  text: what the code means, and the code. */
enum { TEFFI_SQLITE_TEXT = 100 };
teff_err teffi_sqlite_convert_error(int rc, char text[TEFFI_SQLITE_TEXT]);

/* teffi_sqlite_has_primary_code - is kind the primary code of rc? in: rc: any result code, also an
 * extended one, such as SQLITE_BUSY_SNAPSHOT. */
static inline bool teffi_sqlite_has_primary_code(int rc, int kind)
{
    return (rc & 0xff) == kind;
}

/* teffi_sqlite_file_open - open the file, or create it. A database of another application or schema
 * version is not changed.
 * out:  text, TEFF_TEXT_MAX bytes, says why on an error; then file is closed.
 * errs: as teffi_store_open. */
TEFF_MUST_USE teff_err teffi_sqlite_file_open(teffi_sqlite_file *file, const char *path,
                                              char *text);

/* teffi_sqlite_file_close - once for each file that is open. */
void teffi_sqlite_file_close(teffi_sqlite_file *file);

/* teffi_sqlite_read, _scan - run op, outside a transaction, on the committed rows.
 * out:  SQLITE_OK: op has its result (op->err may be MALFORMED or NOMEM); otherwise op is as it was
 *       submitted, but op->arena may have less room. */
int teffi_sqlite_read(teffi_sqlite_file *file, teffi_store_op *op);
int teffi_sqlite_scan(teffi_sqlite_file *file, teffi_store_op *op);

/* teffi_sqlite_write - inside a transaction: check all etags of op, then write all its rows.
 * in:   op->err is OK. *etag, the last etag assigned.
 * out:  *etag, plus one for each row that got a new value; op's rows keep the old etags, since the
 *       transaction is not committed. SQLITE_OK: op->err is OK, or CONFLICT or MALFORMED (op wrote
 *       nothing). Otherwise the caller must roll back. */
int teffi_sqlite_write(teffi_sqlite_file *file, teffi_store_op *op, uint64_t *etag);
