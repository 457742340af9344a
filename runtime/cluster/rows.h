/* rows.h - what membership keeps in the store, read and written.
 * Way:     membership -> [rows] -> store (tables "membership" and "alive")
 * A row a silo and one version row; every change is a batch over the rows changed and the version
 * row, so that all changes are in one order. Store contents are untrusted: each row is checked. */
#ifndef TEFFI_CLUSTER_ROWS_H
#define TEFFI_CLUSTER_ROWS_H

#include "cluster/view.h"
#include "node/ctx.h"

enum { TEFFI_ROWS_MAX = 1000, TEFFI_TOMBSTONES_MAX = 25 };

typedef struct teffi_member_row {
    teffi_member member; /* types in the context's arena */
    bool dead;           /* a tombstone: keeps the incarnation rising */
    bool forget;         /* to be written: remove the row */
    uint64_t etag;
} teffi_member_row;

typedef struct teffi_rows {
    uint64_t version, version_etag; /* 0, 0: no cluster of that name yet */
    teffi_member_row *rows;         /* in the context's arena */
    size_t n;
} teffi_rows;

/* teffi_rows_read - one scan. errs: the store's; TEFF_E_MALFORMED: a row that is not ours. */
TEFF_MUST_USE teff_err teffi_rows_read(teff_ctx *ctx, teffi_rows *rows);

/* teffi_rows_version - the table's, nothing else; 0: no cluster of that name yet.
 * errs: as teffi_rows_read. */
TEFF_MUST_USE teff_err teffi_rows_version(teff_ctx *ctx, uint64_t *version);

/* teffi_rows_write - changed rows (etag as read, 0 = new) and the next version, or nothing.
 * errs: TEFF_E_CONFLICT: somebody was faster, read again; TEFF_E_UNKNOWN likewise; the store's. */
TEFF_MUST_USE teff_err teffi_rows_write(teff_ctx *ctx, const teffi_rows *read,
                                        const teffi_member_row *changed, size_t n);

/* teffi_rows_view - the view that rows describe. out: NULL when memory is out. */
teffi_view *teffi_rows_view(teff_ctx *ctx, const teffi_rows *rows);

/* teffi_alive_write - "I am alive", with a figure that changes each time. */
TEFF_MUST_USE teff_err teffi_alive_write(teff_ctx *ctx, uint64_t wall_ms);

/* teffi_alive_read - a silo's last figure. out: 0 when there is none for this incarnation. */
TEFF_MUST_USE teff_err teffi_alive_read(teff_ctx *ctx, teffi_node_id silo, uint64_t *wall_ms);

#endif
