/* sqlite.h - the parts of engine `sqlite`: its file (is it ours?), its rows (SQL), its one thread.
 * Way:     sqlite (queue, groups) -> sqlite_rows (statements) -> sqlite_file (connection) -> SQLite
 * Threads: all below belong to the engine's own thread. */
#ifndef TEFFI_STORE_SQLITE_H
#define TEFFI_STORE_SQLITE_H

#include <sqlite3.h>
#include "store/engine.h"

/* How long one attempt waits for another process's lock, and how often the attempt is made. */
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
    TEFFI_SQL_VERSION,
    TEFFI_SQL_COUNT
} teffi_sql;

typedef struct teffi_sqlite_file {
    sqlite3 *db;
    sqlite3_stmt *sql[TEFFI_SQL_COUNT];
} teffi_sqlite_file;

/* teffi_sqlite_file_open - open the file, or make it; what is not ours is not written to.
 * out:  text, TEFF_TEXT_MAX bytes, says why on an error; then file is closed.
 * errs: as teffi_store_open. */
TEFF_MUST_USE teff_err teffi_sqlite_file_open(teffi_sqlite_file *file, const char *path,
                                              char *text);
void teffi_sqlite_file_close(teffi_sqlite_file *file);

/* teffi_sqlite_run - step a statement that gives no rows. out: SQLITE_OK or SQLite's code. */
int teffi_sqlite_run(teffi_sqlite_file *file, teffi_sql which);

/* teffi_sqlite_number - the first column of a statement's first row.
 * out:  SQLITE_OK; SQLITE_CORRUPT when there is no row or the column is no integer. */
int teffi_sqlite_number(sqlite3_stmt *sql, int64_t *number);

/* teffi_sqlite_read, _scan - answer op from what is committed.
 * out:  SQLITE_OK: op is answered (op->err may be MALFORMED, NOMEM); else SQLite's code, op as it
 *       was submitted. */
int teffi_sqlite_read(teffi_sqlite_file *file, teffi_store_op *op);
int teffi_sqlite_scan(teffi_sqlite_file *file, teffi_store_op *op);

/* teffi_sqlite_write - inside a transaction: check all etags of op, then write all its rows.
 * in:   *etag: the last etag given; out: with those that op got, in the order of its rows.
 * out:  SQLITE_OK: op->err says OK, CONFLICT or MALFORMED (nothing written by op); else SQLite's
 *       code: roll back. */
int teffi_sqlite_write(teffi_sqlite_file *file, teffi_store_op *op, uint64_t *etag);

/* teffi_sqlite_etag, _etag_put - the last etag given in this file, kept with a checksum. */
int teffi_sqlite_etag(teffi_sqlite_file *file, uint64_t *etag);
int teffi_sqlite_etag_put(teffi_sqlite_file *file, uint64_t etag);

/* teffi_sqlite_err - SQLite's code as ours. */
teff_err teffi_sqlite_err(int rc);

/* teffi_sqlite_is - is rc, plain or extended, of this kind? */
static inline bool teffi_sqlite_is(int rc, int kind)
{
    return (rc & 0xff) == kind;
}

#endif
