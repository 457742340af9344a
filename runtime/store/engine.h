/* engine.h - functions that open the engines, and helpers that all engines share.
 * Way:     open -> [engine] <- memory, sqlite, postgres, redis, etcd, a remote store
 * Threads: an operation belongs to the engine from submit to done(). */
#pragma once

#include "store/store.h"

/* teffi_store_op_set_error - set err and text of op; does not call done(). */
void teffi_store_op_set_error(teffi_store_op *op, teff_err err, const char *fmt, ...)
    __attribute__((format(printf, 3, 4)));

/* teffi_store_set_damaged_row_error - fail op with MALFORMED; its text names the row.
 * in:   engine: its name. row: a row of op. */
void teffi_store_set_damaged_row_error(teffi_store_op *op, const char *engine,
                                       const teffi_row *row);

/* teffi_store_hash_row - out: the checksum of a row. in: seed: sqlite: the row's etag; engines
 * whose server assigns the etag after the hash was sent: 0. */
uint64_t teffi_store_hash_row(const char *table, teffi_bytes key, teffi_bytes value, uint64_t seed);

/* teffi_store_set_read_result - set the result of a read; fail op with NOMEM if op->arena is full.
 * in:   found: etag (0: there is no such row) and value, which is copied into op->arena. */
void teffi_store_set_read_result(teffi_store_op *op, const teffi_row *found);

/* teffi_store_add_found_row - append one row to the result of a scan, copied into op->arena.
 * in:   from: op->rows as it was submitted, with the table and the first key; found: key, value and
 *       etag.
 * out:  false: op has failed, op->rows is as it was submitted, and op->n_found is 0.
 * errs: in op->err: TEFF_E_NOMEM; TEFF_E_MALFORMED (op has its limit of rows already, or the key is
 *       too long, outside the scan's range, or not after the key before it). */
bool teffi_store_add_found_row(teffi_store_op *op, teffi_row *from, const teffi_row *found);

/* teffi_store_check_format - check the version of the format in which a server has a store's rows.
 * in:   found: the version's digits, as stored. known: the newest version that this build knows.
 *       text: TEFF_TEXT_MAX bytes.
 * errs: TEFF_E_REFUSED: with text: a newer version, or not a version. */
TEFF_MUST_USE teff_err teffi_store_check_format(teffi_bytes found, unsigned known, char *text);

/* teffi_store_op_is_read - is op a read or a scan?
 * teffi_store_op_sum_value_bytes - out: the bytes of all values that op writes. */
bool teffi_store_op_is_read(const teffi_store_op *op);
size_t teffi_store_op_sum_value_bytes(const teffi_store_op *op);

/* teffi_bytes_cmp - compare two keys: memcmp order, a prefix is less.
 * teffi_row_cmp - compare the tables and keys of two rows. */
int teffi_bytes_cmp(teffi_bytes a, teffi_bytes b);
int teffi_row_cmp(const teffi_row *a, const teffi_row *b);

/* teffi_memory_open - make an empty store.
 * in:   rest, not used. text is not NULL. errs: TEFF_E_NOMEM, with text. */
TEFF_MUST_USE teff_err teffi_memory_open(const char *rest, teffi_store **store, char *text);

/* teffi_sqlite_open - in: path of the file, copied. text is not NULL. errs: as teffi_store_open. */
TEFF_MUST_USE teff_err teffi_sqlite_open(const char *path, teffi_store **store, char *text);

/* teffi_postgres_open - in: target, a database's name, or options or a URI as libpq takes them (the
 * URI's `postgres:` may be left out), copied. text is not NULL. errs: TEFF_E_INVALID, TEFF_E_IO (no
 * connection, or an error of the server), TEFF_E_REFUSED (a newer schema, fsync is off),
 * TEFF_E_NOMEM. Only in a build with libpq. */
TEFF_MUST_USE teff_err teffi_postgres_open(const char *target, teffi_store **store, char *text);

/* teffi_redis_open - in: address, HOST:PORT or HOST:PORT/NAME, with options as in login.h, copied.
 * text is not NULL. errs: TEFF_E_INVALID, TEFF_E_IO (no connection, or an error of the server, for
 * example without a password file that it needs), TEFF_E_REFUSED (a replica, a server that may lose
 * rows, a wrong password, a newer format), TEFF_E_NOMEM. Only in a build with hiredis. */
TEFF_MUST_USE teff_err teffi_redis_open(const char *address, teffi_store **store, char *text);

/* teffi_etcd_open - in: address, //HOST:PORT[,HOST:PORT ..][/NAME], with options as in login.h,
 * copied. text is not NULL. errs: TEFF_E_INVALID, TEFF_E_IO (no member serves), TEFF_E_REFUSED (not
 * an etcd of 3.4 or later, a wrong password, a newer format), TEFF_E_NOMEM. Only in a build with
 * libcurl and jansson. */
TEFF_MUST_USE teff_err teffi_etcd_open(const char *address, teffi_store **store, char *text);
