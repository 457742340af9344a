/* rows.h - reads, writes and changes the membership table: one row per silo and a version row.
 * Way:     join, heartbeat -> [change -> rows] -> store (tables "membership", "alive", "fence")
 * Threads: any context of a silo: tasks, and users' turns, which use fences and refresh the view.
 * Every change is one batch over the changed rows and the version row, so all changes are totally
 * ordered. The store is not trusted: each row is checked. An unreadable row counts as a dead
 * silo's; that silo may replace it when it starts.
 * A silo has a row in "alive", its heartbeat, and one in "fence" from when it joins until it leaves
 * or is declared dead. Its heartbeats and its writes of states check that its fence is there, so
 * the store refuses them once it is dead. It is declared dead only if its heartbeat is still the
 * one that was seen to stand still. */
#pragma once

#include "cluster/view.h"
#include "call/ctx.h"
#include "node/deliver.h"

/* How many rows of dead silos are kept. */
enum { TEFFI_TOMBSTONES_MAX = 25 };
/* How many silos one silo can watch, or list as unreached. */
enum { TEFFI_WATCHED_MAX = 512 };

typedef struct teffi_member_row {
    teffi_member member; /* types and versions borrowed; as read, in the context's arena */
    bool dead;           /* a tombstone: keeps the last incarnation (0: the row was unreadable) */
    bool left;           /* dead because it left by itself */
    uint64_t ended;      /* dead since this version of the table; 0: unknown */
    bool damaged;        /* damaged in the store: no etag; written without comparing etags */
    bool forget;         /* write: remove the row */
    bool joins;          /* write: also write its heartbeat and its fence */
    bool leaves;         /* write: also remove both */
    bool dies;           /* write: the same, if its heartbeat's etag still is alive_etag */
    uint64_t alive_etag; /* of dies; 0: there is no heartbeat */
    uint64_t etag;
} teffi_member_row;

typedef struct teffi_rows {
    uint64_t version, version_etag; /* 0, 0: the cluster does not exist yet */
    uint32_t forgotten;             /* the highest incarnation among removed rows */
    teffi_member_row *rows;         /* in the context's arena */
    size_t n;
    size_t junk; /* number of unreadable or damaged rows */
} teffi_rows;

/* teffi_rows_read - read all rows of one version.
 * errs: the store's; TEFF_E_MALFORMED, TEFF_E_TOO_LARGE: the version row is damaged; TEFF_E_NOMEM;
 *       TEFF_E_TIMEOUT: the table kept changing while it was read. */
TEFF_MUST_USE teff_err teffi_rows_read(teff_ctx *ctx, teffi_rows *rows);

/* teffi_rows_read_version - read only the table's version; 0: the cluster does not exist yet.
 * errs: as teffi_rows_read(). */
TEFF_MUST_USE teff_err teffi_rows_read_version(teff_ctx *ctx, uint64_t *version);

/* teffi_rows_write - write changed rows (etag as read, 0 = new) and the next version, or nothing.
 * If one of them joins, this silo's lease begins.
 * errs: TEFF_E_CONFLICT: another silo changed the table, read it again; TEFF_E_UNKNOWN: perhaps
 *       written, read it again; the store's. */
TEFF_MUST_USE teff_err teffi_rows_write(teff_ctx *ctx, const teffi_rows *read,
                                        const teffi_member_row *changed, size_t n);

/* teffi_rows_make_view - make the view that rows describe, from copies of its members. out: with
 * one reference, the caller's; NULL: no memory. */
teffi_view *teffi_rows_make_view(teff_ctx *ctx, const teffi_rows *rows);

/* teffi_rows_parse_silo_key - parse the key of a silo's row, in any of the three tables.
 * in: prefix, the length of "cluster\0". out: the silo that the key names; 0: it names none. */
uint32_t teffi_rows_parse_silo_key(const teffi_row *row, size_t prefix);

typedef struct teffi_own_beat { /* a heartbeat of this silo */
    uint64_t number, view;      /* from 1; the version of the adopted view */
    uint64_t sent_ns;           /* platform clock, before it was sent */
} teffi_own_beat;

/* teffi_heartbeat_write_and_renew_lease - write this silo's heartbeat, and renew its lease.
 * in:   unreached, the silos that it lists as unreached (reach.h).
 * errs: the store's; TEFF_E_CONFLICT: its fence is gone or replaced: it was declared dead, or has
 *       been started again elsewhere. */
TEFF_MUST_USE teff_err teffi_heartbeat_write_and_renew_lease(teff_ctx *ctx,
                                                             const teffi_own_beat *beat,
                                                             const teffi_node_id *unreached,
                                                             size_t n_unreached);

/* teffi_rows_make_own_fence_check - make a checked row for a batch that must not be written once
 * this silo is dead. out: etag 0: it has not joined, and has no fence: do not add the row. */
teffi_row teffi_rows_make_own_fence_check(teff_ctx *ctx);

/* teffi_rows_make_check_of_node - as teffi_rows_make_own_fence_check, without a context: for a
 * batch that a silo writes for another one. out: false: no memory in the arena. */
TEFF_MUST_USE bool teffi_rows_make_check_of_node(struct teffi_node *node, teff_arena *arena,
                                                 teffi_row *row);

/* teffi_rows_make_fence_check - make a checked row for a batch that must be written only while the
 * fence of `silo` has the etag `etag`. */
teffi_row teffi_rows_make_fence_check(teff_ctx *ctx, uint32_t silo, uint64_t etag);

typedef struct teffi_alive {  /* a silo's heartbeat, as read */
    uint64_t etag;            /* changes with each heartbeat; 0: there is none */
    uint64_t beat, view;      /* its number, and the silo's view when it was sent; 0: not told */
    bool plain;               /* it tells neither: no promise has extended the silo's lease since */
    teffi_node_id *unreached; /* silos that it lists as unreached, the first TEFFI_WATCHED_MAX */
    size_t n_unreached;
} teffi_alive;

/* teffi_heartbeat_read - read a silo's heartbeat. A damaged row is removed; a live silo writes it
 * again. errs: the store's. */
TEFF_MUST_USE teff_err teffi_heartbeat_read(teff_ctx *ctx, teffi_node_id silo, teffi_alive *alive);

/* teffi_rows_remove_fences - remove the fence rows of these members, so that their next heartbeats
 * fail; unless the table has another version than this one, or this silo has no fence itself.
 * in:   silos, at most TEFFI_SILENT_MAX, at least one.
 * out:  *n: how many had a fence; these are the first ones of silos.
 * errs: TEFF_E_CONFLICT: nothing was removed; as teffi_rows_read(). */
TEFF_MUST_USE teff_err teffi_rows_remove_fences(teff_ctx *ctx, uint64_t version,
                                                teffi_node_id *silos, size_t *n);

/* Computes the rows that a change writes. in: changed, with room for rows->n + 1. out: how many
 * rows; 0: the table needs no change; TEFFI_CHANGE_REFUSED, with the error's text set. */
typedef size_t teffi_change_fn(teff_ctx *ctx, const teffi_rows *rows, teffi_member_row *changed,
                               const void *arg);
enum { TEFFI_CHANGE_REFUSED = UINT32_MAX >> 1 };

/* teffi_membership_change - read the table, call change, write the rows, adopt the result. Repeats
 * all that after TEFF_E_CONFLICT and TEFF_E_UNKNOWN. On an error the rows may have been written.
 * errs: as teffi_membership_refresh(); the store's; TEFF_E_REFUSED: by change; TEFF_E_TIMEOUT also
 *       after too many conflicts. */
TEFF_MUST_USE teff_err teffi_membership_change(teff_ctx *ctx, teffi_change_fn *change,
                                               const void *arg);

/* teffi_rows_find_silo - find the row of a silo id. out: NULL: none. */
const teffi_member_row *teffi_rows_find_silo(const teffi_rows *rows, uint32_t silo);

/* teffi_rows_mark_old_tombstones - if there are more than TEFFI_TOMBSTONES_MAX tombstones, mark the
 * oldest ones to be removed, since silos on ephemeral ports never reuse their rows. This is safe:
 * new incarnations are above all removed ones, and a silo declared dead is not in the view.
 * in:   skipped_silo, which keeps its row, 0: none; changed, with room for all tombstones, which
 *       are sorted there. out: how many rows of changed are to be written; at most 20. */
size_t teffi_rows_mark_old_tombstones(const teffi_rows *rows, uint32_t skipped_silo,
                                      teffi_member_row *changed);
