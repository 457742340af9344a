/* etcd_rows.h - convert operations to etcd's requests, and its responses to results: JSON, base64.
 * Way:     etcd -> [etcd_rows] -> jansson
 * Threads: any; the functions use only their arguments.
 * Source:  etcd's api/etcdserverpb/rpc.proto, by way of its gateway */
#pragma once

#include <jansson.h>
#include "store/engine.h"
#include "store/etcd_http.h"

/* For etcd's default limits: --max-txn-ops 128 and --max-request-bytes 1.5 MiB. A transaction has
 * one comparison for each row's etag, and one for the fence. */
enum {
    TEFFI_ETCD_ROWS_MAX = 127,
    TEFFI_ETCD_BYTES_MAX = 3 * 512 * 1024, /* as teffi_etcd_op_bytes() counts them */
    TEFFI_ETCD_NAME_MAX = 64               /* of NAME in the store's address */
};

/* teffi_etcd_op_bytes - out: an upper bound of the bytes of etcd's request for the write op. etcd
 * counts the bytes of its own encoding (protobuf), not those of JSON and base64. */
size_t teffi_etcd_op_bytes(const char *prefix, const teffi_store_op *op);

/* teffi_etcd_count_fitting_writes - out: how many of the n > 0 writes, from the first on, fit into
 * one request; at least 1. The request must be within the limits, and a row may be in two
 * operations only if both check it: etcd compares all etags before it writes, and refuses to write
 * a key twice. */
size_t teffi_etcd_count_fitting_writes(const char *prefix, teffi_store_op *const *ops, size_t n);

/* Functions that make a request. out: text: its JSON; text->failed if there is no memory.
 * teffi_etcd_make_write_request, _reads - n operations, for /v3/kv/txn.
 * in:   prefix: of all keys; at most TEFFI_ETCD_NAME_MAX + 1 bytes. fence: a key; if it exists,
 *       etcd writes nothing.
 * teffi_etcd_make_scan_request - one page of a scan, for /v3/kv/range.
 * in:   from: table and first key of the page. limit: rows. revision: 0: the newest.
 * teffi_etcd_make_put_request - write a key with an empty value and a lease, for /v3/kv/put. */
void teffi_etcd_make_write_request(teffi_etcd_text *text, const char *prefix, const char *fence,
                                   teffi_store_op *const *ops, size_t n);
void teffi_etcd_make_read_request(teffi_etcd_text *text, const char *prefix,
                                  teffi_store_op *const *ops, size_t n);
void teffi_etcd_make_scan_request(teffi_etcd_text *text, const char *prefix,
                                  const teffi_store_op *op, const teffi_row *from, size_t limit,
                                  uint64_t revision);
void teffi_etcd_make_put_request(teffi_etcd_text *text, const char *key, uint64_t lease);

/* Requests about one key that is not a row. out: text, as above.
 * teffi_etcd_make_get_request - read it, for /v3/kv/range.
 * teffi_etcd_make_create_request - write it unless it exists, for /v3/kv/txn.
 * in:   value: at most 1000 bytes. */
void teffi_etcd_make_get_request(teffi_etcd_text *text, const char *key);
void teffi_etcd_make_create_request(teffi_etcd_text *text, const char *key, const char *value);

/* teffi_etcd_decode_value - decode the response to teffi_etcd_make_get_request().
 * out:  false: the key does not exist, or the response is not valid. value: valid while room is not
 *       changed; empty also if it is not base64, or memory is out. */
bool teffi_etcd_decode_value(const json_t *response, teffi_etcd_text *room, teffi_bytes *value);

/* teffi_etcd_set_write_results - set the results of n writes. If an etag differed, etcd has written
 * nothing: the operations with a wrong etag get CONFLICT, and the others must be sent again.
 * out:  how many operations have a result; they are moved to the front of ops. 0: the response is
 *       not valid, or etcd has written nothing although no etag differs (the fence exists).
 * teffi_etcd_set_read_results - set the results of n reads; a damaged row fails only its own read.
 * in:   room: a buffer for decoding; its content is lost.
 * out:  false: the response is not valid, and no operation has a result. */
size_t teffi_etcd_set_write_results(const json_t *response, teffi_store_op **ops, size_t n);
bool teffi_etcd_set_read_results(const json_t *response, teffi_store_op *const *ops, size_t n,
                                 teffi_etcd_text *room);

/* teffi_etcd_append_scan_page - append a page's rows to op's result. in: from: op->rows as
 * submitted.
 * out: false: op has failed, and op->rows is as submitted. *more: are there rows after the page? */
bool teffi_etcd_append_scan_page(const json_t *response, const char *prefix, teffi_store_op *op,
                                 teffi_row *from, teffi_etcd_text *room, bool *more);

/* teffi_etcd_get_number - out: the value of the JSON member `name`, if it is a positive integer or
 * a string of digits; otherwise 0. */
uint64_t teffi_etcd_get_number(const json_t *object, const char *name);
