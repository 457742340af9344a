/* store.h - the contract of all stores: read, write, batch, scan.
 * Way:     activation/state, cluster/rows -> [store] -> an engine of open.c, or silo/remote_store
 * Threads: calls from any thread. done() of an operation runs once, on any thread, perhaps before
 *          submit returns; it must not block, so it pushes to a group or wakes a waiter.
 * Source:  Orleans' src/Orleans.Core/Providers/IGrainStorage.cs */
#pragma once

#include "base/queue.h"
#include "memory/arena.h"

/* A row is (table, key) -> (value, etag). A table's name is 1..64 characters of [a-z0-9_]. A key is
 * any bytes, also zero bytes; keys are in memcmp order, a prefix first. A value may be empty. A
 * row's etag is a 64-bit number that only rises, also if the row is removed and created again;
 * etag 0: there is no such row. */

enum {
    TEFFI_STORE_TABLE_MAX = 64,
    TEFFI_STORE_KEY_MAX = 2048,
    TEFFI_STORE_VALUE_MAX = 16 * 1024 * 1024 + 64, /* a state, and the mark of its transaction */
    TEFFI_STORE_BATCH_MAX = 256,
    TEFFI_STORE_BATCH_BYTES_MAX = 64 * 1024 * 1024, /* all values of one batch */
    TEFFI_STORE_SCAN_MAX = 4096
};

typedef struct teffi_bytes {
    const void *data;
    size_t len;
} teffi_bytes;

typedef enum teffi_store_kind {
    TEFFI_STORE_READ = 1, /* rows[0].table, key -> value, etag; missing row: OK with etag 0 */
    TEFFI_STORE_WRITE,    /* a batch of one row */
    /* writes all rows if all etags match, also those of checked rows; otherwise none. Two rows of a
     * batch with the same table and key: INVALID */
    TEFFI_STORE_BATCH,
    /* reads rows of rows[0].table with rows[0].key <= key < to (empty to: up to the last row), in
     * order of keys */
    TEFFI_STORE_SCAN
} teffi_store_kind;

typedef struct teffi_row {
    const char *table;
    teffi_bytes key;
    teffi_bytes value;
    uint64_t etag; /* write: the expected etag (0: the row must not exist); after OK: the new one */
    bool remove;   /* write: remove the row (etag must match); after OK: etag 0 */
    bool any;      /* write: do not compare etags; also overwrites or removes a damaged row */
    bool check;    /* batch, without remove or any: compare etags only; the row is not written */
} teffi_row;

/* A read sees every write of its row that was submitted to the same store before it, if both have
 * the same op->system. A scan, and a read of a remote store, may miss writes that are not done. A
 * read after UNKNOWN shows the outcome of that write, and later reads through any store show the
 * same. This does not hold if redis, etcd or a remote store cannot reach a server when it reports
 * UNKNOWN, if a remote store's write has `any` in its first row, if postgres is closed before the
 * server has ended its session, or if sqlite's process crashes before its next commit. */

/* The cluster's own tables. Operations whose first row is in `membership` or `alive` do not wait
 * behind other queued ones, and are never refused as OVERLOADED, because a busy silo must not look
 * dead. */
#define TEFFI_TABLE_MEMBERSHIP "membership"
#define TEFFI_TABLE_ALIVE "alive"
#define TEFFI_TABLE_FENCE "fence"

/* One operation. It and its inputs must stay valid until done() is called; the caller does not use
 * arena until then. */
typedef struct teffi_store_op {
    teffi_store_kind kind;
    teffi_row *rows;   /* in; out: a scan that finds rows sets it to them, in *arena */
    size_t n_rows;     /* in: 1; a batch: 1..TEFFI_STORE_BATCH_MAX */
    teffi_bytes to;    /* scan: the end, exclusive; rows[0].key is the start */
    size_t limit;      /* scan: 1..TEFFI_STORE_SCAN_MAX */
    teff_arena *arena; /* read, scan: the caller's; values read and rows found are put there */
    bool system;       /* set by teffi_store_submit: the first row is in membership or alive */
    /* out */
    /* OK, CONFLICT, UNKNOWN (a write that may have run), IO, TOO_LARGE, INVALID, CLOSED, NOMEM
     * (memory or the arena's budget), OVERLOADED, MALFORMED. After every error except UNKNOWN
     * nothing was written, and rows is as it was submitted. */
    teff_err err;
    char text[160]; /* what failed, unless err is OK or CONFLICT */
    size_t n_found; /* scan: number of rows; a row with etag 0 is damaged */
    void (*done)(struct teffi_store_op *op);
    teffi_qnode node; /* used by the engine */
} teffi_store_op;

/* An engine may have lower limits; the text of its TOO_LARGE names them. etcd allows 127 rows and
 * 1.5 MiB in one operation, where each key counts three times. */

/* MALFORMED: a row or the file is damaged, or a server's response is not valid. All engines except
 * memory store a checksum with each row; in postgres, rows that schema 1 or 2 wrote have none until
 * they are written again. The value of a damaged row is never returned, and the text names the row.
 * A write with `any` overwrites or removes the row. In redis and etcd, which compare only etags, a
 * write that expects the row's etag does so, too; but etcd gives a row that was changed by hand
 * another etag. Other rows are not affected. A scan returns a damaged row with etag 0 and no value,
 * and continues with the next row; but in postgres it fails if the server cannot read the row. */

typedef struct teffi_store teffi_store;

typedef struct teffi_store_ops {
    /* submit: run op, which teffi_store_submit() has checked; its err is OK. From any thread. */
    void (*submit)(teffi_store *store, teffi_store_op *op);
    /* close: complete all earlier operations, and fail later ones with CLOSED. Blocks; must not be
     * called from done(). May be called again, but not by two threads at a time. */
    void (*close)(teffi_store *store);
    /* free: called after close, when no thread submits any more. */
    void (*free)(teffi_store *store);
} teffi_store_ops;

struct teffi_store {
    const teffi_store_ops *ops;
};

/* teffi_store_op_is_system - see op->system. in: op may have no rows. */
bool teffi_store_op_is_system(const teffi_store_op *op);

/* teffi_store_submit - check op against the limits above, then pass it to the engine.
 * in:   op: all its inputs are set, also done.
 * errs: none; every error, also TEFF_E_INVALID and TEFF_E_TOO_LARGE, is in op->err at done(). */
void teffi_store_submit(teffi_store *store, teffi_store_op *op);

/* teffi_store_close - ops->close, then free; not from done(). in: may be NULL; no thread uses the
 * store any more. */
void teffi_store_close(teffi_store *store);

/* teffi_store_open - open the store of an address: "memory" (this process only, empty);
 *       "sqlite:FILE" (created if it does not exist; several processes of one host may open it);
 *       "postgres:DATABASE" (a name, or what libpq takes: key=value pairs, or the rest of a URI);
 *       "redis:HOST:PORT" or "redis:HOST:PORT/NAME" (its keys begin with NAME, or "teff", and a
 *       colon); "etcd://HOST:PORT,HOST:PORT/NAME" (members of one cluster, at least one; its keys
 *       begin with NAME, or "teff", and a slash). Several hosts may open the last three. The
 *       addresses of redis and etcd may end in options, see login.h.
 * out:  *store; close it with teffi_store_close(). On an error NULL, and text (TEFF_TEXT_MAX bytes,
 *       may be NULL) says why.
 * errs: TEFF_E_INVALID (address, unknown engine, not in this build, the password file),
 *       TEFF_E_REFUSED (another application's file, another schema, a network file system, a server
 *       that may lose rows; more at each engine, see engine.h), TEFF_E_MALFORMED (damaged, not a
 *       database), TEFF_E_IO (no such directory, not a file, not writable, locked; no connection to
 *       the server, or an error of it), TEFF_E_NOMEM. */
TEFF_MUST_USE teff_err teffi_store_open(const char *address, teffi_store **store, char *text);

/* teffi_store_mask_address - mask an address for an error text or the log: keep only the engine's
 * name if address may contain a password, and only the start of a long address. out: shown. */
enum { TEFFI_STORE_SHOWN_MAX = 208 };
const char *teffi_store_mask_address(const char *address, char shown[TEFFI_STORE_SHOWN_MAX]);

/* teffi_store_check_address - does address name an engine of this build? Checks only the engine's
 * name.
 * in:   may be NULL. out: NULL: it does; otherwise a static text: the addresses that are expected,
 *       or that this build lacks the engine. */
const char *teffi_store_check_address(const char *address);
