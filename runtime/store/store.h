/* store.h - one contract of five calls for everything durable.
 * Way:     grains/state, cluster/membership -> [store] -> memory | sqlite | remote
 * Threads: calls from any thread; an operation's done() runs once, on any thread, maybe before the
 *          call returns; done() must not block (it hands on to a group or wakes a waiter).
 * Source:  DESIGN "Store: one contract"; Orleans IGrainStorage, IMembershipTable */
#ifndef TEFFI_STORE_H
#define TEFFI_STORE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <teff/error.h>
#include "base/arena.h"

/* A row is (table, key) -> (value, etag). table and key are byte strings that may hold zero bytes
 * (key) or not (table: 1..64 of [a-z0-9_]). An etag is a 64-bit number that only rises per row,
 * also over a delete and re-creation; 0 says "no such row". Keys are ordered as memcmp orders
 * them, a prefix before what it begins. An empty value is not a missing row. */

enum {
    TEFFI_STORE_TABLE_MAX = 64,
    TEFFI_STORE_KEY_MAX = 2048,
    TEFFI_STORE_VALUE_MAX = 16 * 1024 * 1024,
    TEFFI_STORE_BATCH_MAX = 256,
    TEFFI_STORE_BATCH_BYTES_MAX = 64 * 1024 * 1024, /* values of one batch together */
    TEFFI_STORE_SCAN_MAX = 1000
};

typedef struct teffi_bytes {
    const void *data;
    size_t len;
} teffi_bytes;

typedef enum teffi_store_kind {
    TEFFI_STORE_READ = 1, /* rows[0].table, key -> value, etag; a missing row: OK with etag 0 */
    TEFFI_STORE_WRITE,    /* as a batch of one */
    TEFFI_STORE_BATCH,    /* all rows' etags match and all are written, or nothing is */
    TEFFI_STORE_SCAN /* rows[0].table, from <= key < to (empty to = to the end), <= limit rows */
} teffi_store_kind;

typedef struct teffi_row {
    const char *table;
    teffi_bytes key;
    teffi_bytes value;
    uint64_t etag; /* write: the etag expected (0 = the row must not exist); after: the new one */
    bool remove;   /* write: delete the row instead (etag must match); after: etag 0 */
    bool any;      /* write: whatever the etag is; with remove, damaged rows too */
} teffi_row;

/* One operation, owned by the caller until done() was called; all inputs are borrowed till then. */
typedef struct teffi_store_op {
    teffi_store_kind kind;
    teffi_row *rows; /* in (read, write, batch); out for scan: set by the engine, in *arena */
    size_t n_rows;
    teffi_bytes to;    /* scan: the end, exclusive; rows[0].key is the start */
    size_t limit;      /* scan: 1..TEFFI_STORE_SCAN_MAX */
    teff_arena *arena; /* where values read are put; the caller's */
    /* out */
    teff_err err;   /* OK, CONFLICT (nothing written), UNKNOWN (read again), IO, TOO_LARGE,
                       INVALID, CLOSED, NOMEM (memory, or the arena's budget), OVERLOADED,
                       MALFORMED: all but UNKNOWN say nothing was written, and rows is as
                       it was */
    char text[160]; /* what failed, when err is neither OK nor CONFLICT */
    size_t n_found; /* scan: rows in rows; when MALFORMED, the good ones before the bad */
    void (*done)(struct teffi_store_op *op);
    struct teffi_store_op *next; /* the engine's */
} teffi_store_op;

/* MALFORMED: a row (or the file around it) is not as it was written. Engines whose contents may be
 * damaged keep a checksum with each row. A damaged row is never given out and never overwritten;
 * other rows are not affected. It goes only when somebody removes it with any set. A scan ends at
 * it: the n_found rows before it are good, and rows[n_found] holds its table and key, so that the
 * caller can name it and scan on behind it. */

typedef struct teffi_store teffi_store;

/* A best-effort hint that the row may have changed, an empty key: any row of the table; re-read.
 * Runs on any thread; must not block and must not call the store: it hands on, as done() does. */
typedef void teffi_store_hint(void *arg, const char *table, teffi_bytes key);

typedef struct teffi_store_ops {
    const char *name;
    void (*submit)(teffi_store *store, teffi_store_op *op);
    /* watch: a table may have several watchers, told apart by arg. NULL hint ends the watch of
     * (table, arg); after that returned, no hint of it runs any more.
     * errs: INVALID (table), NOMEM, OVERLOADED (too many watchers), CLOSED. */
    teff_err (*watch)(teffi_store *store, const char *table, teffi_store_hint *hint, void *arg);
    /* close: completes everything submitted before, fails everything after with CLOSED. Blocks;
     * not from done() or a hint. Twice is allowed. */
    void (*close)(teffi_store *store);
    /* free: after close, when nobody can submit any more. NULL: the memory is the opener's own. */
    void (*free)(teffi_store *store);
} teffi_store_ops;

struct teffi_store {
    const teffi_store_ops *ops;
};

/* teffi_store_submit - check op against the limits above, then run it on the engine.
 * errs: none; everything, TEFF_E_INVALID and TEFF_E_TOO_LARGE too, is told by op->err at done(). */
void teffi_store_submit(teffi_store *store, teffi_store_op *op);

/* teffi_store_watch - ask for hints about a table; as ops->watch. */
TEFF_MUST_USE teff_err teffi_store_watch(teffi_store *store, const char *table,
                                         teffi_store_hint *hint, void *arg);

/* teffi_store_open - by address: "memory" (this process only, empty) or "sqlite:FILE" (made when
 *       it is not there; several processes of one host may open it).
 * out:  *store; close with teffi_store_close. On an error NULL, and text (TEFF_TEXT_MAX bytes, may
 *       be NULL) says why.
 * errs: TEFF_E_INVALID (address, unknown engine), TEFF_E_REFUSED (another application's file,
 *       another schema, a network file system), TEFF_E_MALFORMED (damaged, not a database),
 *       TEFF_E_IO (no such directory, not a file, not writable, locked), TEFF_E_NOMEM. */
TEFF_MUST_USE teff_err teffi_store_open(const char *address, teffi_store **store, char *text);

/* teffi_store_stop - completes everything submitted before; from then on submit answers CLOSED.
 * runs: blocks until all is done; not from done() or a hint. Twice is allowed. */
void teffi_store_stop(teffi_store *store);

/* teffi_store_close - stop, then free. in: may be NULL; nobody may use the store any more. */
void teffi_store_close(teffi_store *store);

#endif
