/* catalog.h - which activations live on this silo? Found by identity, made on demand, kept for use
 * again: an activation's memory is never freed while the silo lives, so that a pusher who was slow
 * finds memory (and a re-route) instead of a crash.
 * Way:     route -> [catalog] -> activation's group
 * Threads: found without a lock; made, removed and listed under one per shard; a shard is one
 *          partition of the directory (256), so that a silo can list what it holds of a partition.
 *
 * Without the lock a grain is found by its hash, all 64 bits of it, and the activation looks at who
 * it is when it handles the request. Should two grains of one hash live here at once, their shard
 * has twins from then on, and is searched by identity, under its lock. */
#ifndef TEFFI_GRAINS_CATALOG_H
#define TEFFI_GRAINS_CATALOG_H

#include "activation.h"
#include "base/index.h"
#include "cluster/view.h"
#include "slab.h"

struct teffi_grains;

typedef struct teffi_catalog_shard {
    pthread_mutex_t lock; /* also of the directory's partition of this number */
    teffi_index index;    /* of slots; written under the lock */
    _Atomic bool twins;   /* two grains of one hash were seen here */
} teffi_catalog_shard;

typedef struct teffi_catalog {
    teffi_catalog_shard shards[TEFFI_PARTITIONS];
    teffi_slab slab;
    _Atomic uint64_t count; /* activations that have not ended yet */
} teffi_catalog;

/* teffi_catalog_init - errs: false: memory is out. */
bool teffi_catalog_init(teffi_catalog *catalog, struct teffi_grains *grains);
void teffi_catalog_fini(teffi_catalog *catalog);

/* teffi_catalog_push - give msg to the grain's activation; with create, make one when there is
 * none.
 * out:  TEFF_OK: msg is the activation's; TEFF_E_NOT_FOUND: none here (and not create);
 *       TEFF_E_OVERLOADED: its queue is full; TEFF_E_NOMEM. msg moves on TEFF_OK only. */
TEFF_MUST_USE teff_err teffi_catalog_push(struct teffi_grains *grains, const teffi_ident *ident,
                                          teffi_msg *msg, bool create);

/* teffi_catalog_begin - the short way of most first requests: when this silo keeps the grain's part
 * of the directory and nobody holds the grain, place it, and if that is here make it, registered.
 * out:  as push; TEFF_E_NOT_FOUND: nobody holds it, and *placed is where it is to be;
 *       TEFF_E_UNAVAILABLE: the long way. */
TEFF_MUST_USE teff_err teffi_catalog_begin(struct teffi_grains *grains, const teffi_ident *ident,
                                           teffi_msg *msg, teffi_node_id *placed);

/* teffi_catalog_claim_new - as begin, for a bare type (life.h) and a caller that runs the request
 * itself: made, registered, valid, and its group claimed. NULL: the long way. */
teffi_activation *teffi_catalog_claim_new(struct teffi_grains *grains, const teffi_ident *ident);

/* teffi_catalog_find - the activation that was the grain's at some moment of the call; no lock. Its
 * memory stays, but it may be another's by now: push to it or claim its group, and look then.
 * out:  NULL: there is none, or it is not known without the lock (*certain: there is none). */
teffi_activation *teffi_catalog_find(struct teffi_grains *grains, const teffi_ident *ident,
                                     bool *certain);

/* teffi_catalog_find_locked - by identity, under its shard's lock. NULL: there is none. */
teffi_activation *teffi_catalog_find_locked(struct teffi_grains *grains, const teffi_ident *ident);

/* teffi_catalog_twins - an activation was found by a grain's hash that is another's of the same
 * hash. */
void teffi_catalog_twins(struct teffi_grains *grains, uint64_t hash);

/* teffi_catalog_has - is there an activation of the grain here? */
bool teffi_catalog_has(struct teffi_grains *grains, const teffi_ident *ident);

/* teffi_catalog_remove - out of the table; later pushes make or find another. By the activation. */
void teffi_catalog_remove(struct teffi_grains *grains, teffi_activation *act);

/* teffi_catalog_keep - back to the slab; its group is COMPLETE and has handled its last item. */
void teffi_catalog_keep(struct teffi_grains *grains, teffi_activation *act);

/* teffi_catalog_registered - the directory has confirmed (or lost) it; seen by who lists
 * the shard. */
void teffi_catalog_registered(struct teffi_grains *grains, teffi_activation *act, bool yes);

/* teffi_catalog_each - visit a shard's activations under its lock; visit must be short.
 * in:   *at, 0 at first; the walk stops when visit returns false and can go on from *at (an index
 *       that was rebuilt meanwhile is walked from its start again). out: true: the whole shard was
 *       visited. */
bool teffi_catalog_each(struct teffi_grains *grains, unsigned shard, uint64_t *at,
                        bool (*visit)(void *arg, teffi_activation *act), void *arg);

#endif
