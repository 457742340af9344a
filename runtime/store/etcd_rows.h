/* etcd_rows.h - operations as etcd's requests, and its answers as their results: JSON, base64.
 * Way:     etcd -> [etcd_rows] -> jansson
 * Threads: none of its own; it uses only what it is given.
 * Source:  etcd's api/etcdserverpb/rpc.proto, by way of its gateway */
#pragma once

#include <jansson.h>
#include "store/engine.h"
#include "store/etcd_http.h"

/* etcd's usual limits: --max-txn-ops 128 and --max-request-bytes 1.5 MiB. A transaction compares
 * the etag of each row, and that there is no fence. */
enum {
    TEFFI_ETCD_ROWS_MAX = 127,
    TEFFI_ETCD_BYTES_MAX = 3 * 512 * 1024, /* as teffi_etcd_op_bytes() counts */
    TEFFI_ETCD_NAME_MAX = 64               /* of the address */
};

/* teffi_etcd_op_bytes - out: an upper bound of the bytes of etcd's request for the write op. */
size_t teffi_etcd_op_bytes(const char *prefix, const teffi_store_op *op);

/* teffi_etcd_count_writes - out: how many of the first of n > 0 writes one request may hold: those
 * within the limits whose rows are different, but for rows that are only checked. etcd compares all
 * etags of a request before it writes, and writes a key once. */
size_t teffi_etcd_count_writes(const char *prefix, teffi_store_op *const *ops, size_t n);

/* teffi_etcd_print_writes, _reads - the request of n operations for /v3/kv/txn.
 * in:   prefix: of all keys; at most TEFFI_ETCD_NAME_MAX + 1 bytes. fence: a key; if it exists, all
 *       writes fail.
 * teffi_etcd_print_scan - one page of a scan for /v3/kv/range. in: from: the first key; revision:
 * 0: the newest. teffi_etcd_print_put - a put of an empty value with a lease, for /v3/kv/put.
 * out:  text; it has failed if there is no memory. */
void teffi_etcd_print_writes(teffi_etcd_text *text, const char *prefix, const char *fence,
                             teffi_store_op *const *ops, size_t n);
void teffi_etcd_print_reads(teffi_etcd_text *text, const char *prefix, teffi_store_op *const *ops,
                            size_t n);
void teffi_etcd_print_scan(teffi_etcd_text *text, const char *prefix, const teffi_store_op *op,
                           const teffi_row *from, size_t limit, uint64_t revision);
void teffi_etcd_print_put(teffi_etcd_text *text, const char *key, uint64_t lease);

/* teffi_etcd_take_writes - set the results of writes: of all if no etag differed; otherwise those
 * with another etag fail, nothing was written, and the others must be sent again.
 * out:  how many have ended; ops is reordered so that they are the first. 0: not an answer to them.
 * teffi_etcd_take_reads - set the results of n reads; a damaged row fails its read only.
 * in:   room: for bytes that are decoded; what it held is lost.
 * out:  false: not an answer to them. */
size_t teffi_etcd_take_writes(const json_t *answer, teffi_store_op **ops, size_t n);
bool teffi_etcd_take_reads(const json_t *answer, teffi_store_op *const *ops, size_t n,
                           teffi_etcd_text *room);

/* teffi_etcd_take_scan - append a page's rows to op's result. in: from: op->rows as submitted.
 * out: false: op has failed, its rows are as submitted. *more: there are rows after the last. */
bool teffi_etcd_take_scan(const json_t *answer, const char *prefix, teffi_store_op *op,
                          teffi_row *from, teffi_etcd_text *room, bool *more);

/* teffi_etcd_get_number - out: a member that is a positive number, or its text; otherwise 0. */
uint64_t teffi_etcd_get_number(const json_t *object, const char *name);
