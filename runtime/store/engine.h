/* engine.h - what the engines of the store share: how they are opened, fail and answer.
 * Way:     store/store -> [engine] -> memory | sqlite | remote
 * Threads: an operation belongs to the engine from submit to done(). */
#ifndef TEFFI_STORE_ENGINE_H
#define TEFFI_STORE_ENGINE_H

#include "store/store.h"

/* teffi_memory_open - an empty store in this process's memory. errs: TEFF_E_NOMEM. */
TEFF_MUST_USE teff_err teffi_memory_open(teffi_store **store);

/* teffi_sqlite_open - a store in one file; as teffi_store_open. text is not NULL. */
TEFF_MUST_USE teff_err teffi_sqlite_open(const char *path, teffi_store **store, char *text);

/* teffi_store_fail - note why op failed; does not call done(). */
void teffi_store_fail(teffi_store_op *op, teff_err err, const char *fmt, ...)
    __attribute__((format(printf, 3, 4)));

/* teffi_store_found - append one row to the answer of a scan; all is copied into op->arena.
 * in:   from: the scan's own first row as it was submitted (its table names that of all rows);
 *       found: key, value and etag.
 * out:  false when memory is out; op->rows is the answer so far. */
bool teffi_store_found(teffi_store_op *op, const teffi_row *from, const teffi_row *found);

/* teffi_bytes_cmp - the order of keys: memcmp, a prefix first. */
int teffi_bytes_cmp(teffi_bytes a, teffi_bytes b);

/* teffi_table_valid - is it 1..64 of [a-z0-9_]? in: may be NULL. */
bool teffi_table_valid(const char *table);

#endif
