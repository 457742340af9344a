/* store.h - the contract of all stores: read, write, batch, scan.
 * Way:     grains/state, cluster/membership -> [store] -> an engine of open.c
 * Threads: calls from any thread. done() of an operation runs once, on any thread, perhaps before
 *          submit returns; it must not block, so it pushes to a group or wakes a waiter.
 * Source:  Orleans' src/Orleans.Core/Providers/IGrainStorage.cs */
#pragma once

#include "base/queue.h"
#include "memory/arena.h"

/* A row is (table, key) -> (value, etag). A table is 1..64 of [a-z0-9_]; a key is any bytes, also
 * zero bytes. A row's etag is a 64-bit number that only rises, also if the row is removed and
 * created again; 0: there is no such row. Keys are in memcmp order, a prefix first. A value may be
 * empty. */

enum {
    TEFFI_STORE_TABLE_MAX = 64,
    TEFFI_STORE_KEY_MAX = 2048,
    TEFFI_STORE_VALUE_MAX = 16 * 1024 * 1024 + 64, /* a state, and the mark of its transaction */
    TEFFI_STORE_BATCH_MAX = 256,
    TEFFI_STORE_BATCH_BYTES_MAX = 64 * 1024 * 1024, /* values of one batch together */
    TEFFI_STORE_SCAN_MAX = 1000
};

typedef struct teffi_bytes {
    const void *data;
    size_t len;
} teffi_bytes;

typedef enum teffi_store_kind {
    TEFFI_STORE_READ = 1, /* rows[0].table, key -> value, etag; missing row: OK with etag 0 */
    TEFFI_STORE_WRITE,    /* a batch of one row */
    TEFFI_STORE_BATCH,    /* writes all rows if all etags match, checked ones too; else none */
    TEFFI_STORE_SCAN /* rows[0].table, from <= key < to (empty to = to the end), <= limit rows */
} teffi_store_kind;

typedef struct teffi_row {
    const char *table;
    teffi_bytes key;
    teffi_bytes value;
    uint64_t etag; /* write: the expected etag (0 = the row must not exist); after: the new one */
    bool remove;   /* write: remove the row (etag must match); after: etag 0 */
    bool any;      /* write: do not compare etags; also overwrites a damaged row */
    bool check;    /* batch: compare etags only; the row stays as it is, value is not used */
} teffi_row;

/* A read sees every write of its row submitted to the same store before it, done or not; a scan may
 * miss writes that are not done. A read after UNKNOWN shows the outcome of that write; all later
 * reads, through any store of the same rows, show the same. */

/* The cluster's own tables. Operations whose first row is in one of the first two run first and are
 * never refused as OVERLOADED, because a busy silo must not look dead. */
#define TEFFI_TABLE_MEMBERSHIP "membership"
#define TEFFI_TABLE_ALIVE "alive"
#define TEFFI_TABLE_FENCE "fence"

/* One operation. It and its inputs must stay valid until done() is called. */
typedef struct teffi_store_op {
    teffi_store_kind kind;
    teffi_row *rows; /* in (read, write, batch); out for scan: set by the engine, in *arena */
    size_t n_rows;
    teffi_bytes to;    /* scan: the end, exclusive; rows[0].key is the start */
    size_t limit;      /* scan: 1..TEFFI_STORE_SCAN_MAX */
    teff_arena *arena; /* the caller's; values read are put there */
    bool system;       /* set by teffi_store_submit: the first row is in membership or alive */
    /* out */
    /* OK, CONFLICT, UNKNOWN (it has ended; a read shows the outcome), IO, TOO_LARGE, INVALID,
     * CLOSED, NOMEM (memory or the arena's budget), OVERLOADED, MALFORMED. After every error except
     * UNKNOWN nothing was written, and rows is as it was submitted. */
    teff_err err;
    char text[160]; /* what failed, unless err is OK or CONFLICT */
    size_t n_found; /* scan: number of rows; a row with etag 0 is damaged */
    void (*done)(struct teffi_store_op *op);
    teffi_qnode node; /* used by the engine */
} teffi_store_op;

/* An engine may have lower limits, which the text of its TOO_LARGE names: etcd has 127 rows and
 * 1.5 MiB in one operation, keys counted three times. */

/* MALFORMED: a row or the file is damaged. Engines with a file store a checksum with each row. A
 * damaged row's value is never returned, and only a write with `any` overwrites or removes the row.
 * Other rows are not affected. A scan returns a damaged row with etag 0 and no value, and continues
 * with the next row. */

typedef struct teffi_store teffi_store;

typedef struct teffi_store_ops {
    void (*submit)(teffi_store *store, teffi_store_op *op);
    /* close: complete all earlier operations, fail later ones with CLOSED. Blocks; not from done().
     * May be called twice. */
    void (*close)(teffi_store *store);
    /* free: after close, when no thread submits any more. */
    void (*free)(teffi_store *store);
} teffi_store_ops;

struct teffi_store {
    const teffi_store_ops *ops;
};

/* teffi_store_submit - check op against the limits above, then pass it to the engine.
 * errs: none; every error, also TEFF_E_INVALID and TEFF_E_TOO_LARGE, is in op->err at done(). */
void teffi_store_submit(teffi_store *store, teffi_store_op *op);

/* teffi_store_close - ops->close, then free. in: may be NULL; no thread uses the store any more. */
void teffi_store_close(teffi_store *store);

/* teffi_store_open - open the store of an address: "memory" (this process only, empty);
 *       "sqlite:FILE" (created if it does not exist; several processes of one host may open it);
 *       "postgres:DATABASE" (a name, or what libpq takes: key=value pairs, or the rest of a URI);
 *       "redis:HOST:PORT" or "redis:HOST:PORT/NAME" (its keys begin with NAME, or "teff", and a
 *       colon); "etcd://HOST:PORT,HOST:PORT/NAME" (members of one cluster, at least one; its keys
 *       begin with NAME, or "teff", and a slash). Several hosts may open the last three.
 * out:  *store; close it with teffi_store_close(). On an error NULL, and text (TEFF_TEXT_MAX bytes,
 *       may be NULL) says why.
 * errs: TEFF_E_INVALID (address, unknown engine, not in this build), TEFF_E_REFUSED (another
 *       application's file, another schema, a network file system, a server that may lose rows),
 *       TEFF_E_MALFORMED (damaged, not a database), TEFF_E_IO (no such directory, not a file, not
 *       writable, locked; no connection to the server), TEFF_E_NOMEM. */
TEFF_MUST_USE teff_err teffi_store_open(const char *address, teffi_store **store, char *text);

/* teffi_store_check - out: NULL: the address is valid; otherwise a text that lists valid ones. */
const char *teffi_store_check(const char *address);
