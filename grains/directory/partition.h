/* partition.h - which activation holds a grain, for the partitions that this silo owns. Strongly
 * consistent: a new owner serves only when it knows all confirmed activations (recover.c).
 * Way:     route, direct, client (here), server (other silos) -> [partition] -> shard
 * States:  NOT_MINE --a view gives it to this silo--> LOCKED --all responded--> SERVING
 *              ^--------------a view gives it to another silo--------------------'
 * Threads: under the shard's lock.
 * Source:  Orleans' src/Orleans.Runtime/GrainDirectory/GrainDirectoryPartition.cs */
#pragma once

#include "directory/shard.h"

/* methods of TEFFI_SLOT_DIRECTORY */
enum {
    TEFFI_METHOD_REGISTER = 1,
    TEFFI_METHOD_LOOKUP = 2,
    TEFFI_METHOD_UNREGISTER = 3,
    TEFFI_METHOD_RECOVER = 4,
    TEFFI_METHOD_MOVED = 5,
    TEFFI_METHOD_DEACTIVATE = 6
};

/* limits of the requests that are parked in a silo's directory: number and memory */
enum { TEFFI_PARKED_MAX = 10000, TEFFI_PARKED_BYTES_MAX = 16 * 1024 * 1024 };

/* teffi_partition_apply - do a REGISTER, LOOKUP or UNREGISTER. No lock held; does not block.
 * in:   msg, the request of another silo, or NULL.
 * out:  TEFF_OK: *holder holds the grain. TEFF_E_NOT_FOUND: no activation holds it.
 *       TEFF_E_UNAVAILABLE: this silo does not serve the partition, use client.h. TEFF_E_NOMEM.
 *       If msg is not NULL and the partition is LOCKED: TEFF_E_CLOSED: msg was parked;
 *       TEFF_E_OVERLOADED: too many requests are parked. */
TEFF_MUST_USE teff_err teffi_partition_apply(teffi_grains *grains, uint32_t method,
                                             const teffi_ident *ident, teffi_pid pid,
                                             teffi_pid *holder, teffi_msg *msg);

/* teffi_partition_set_registered - set act->registered: the partition's owner has confirmed the
 * activation, or no longer does. out: the previous value. */
bool teffi_partition_set_registered(teffi_activation *act, bool registered);

/* teffi_partition_begin - fast path of a grain's first request: if this silo serves the partition
 * and no activation holds the grain, place the grain; if it is placed here, make its activation,
 * registered, and push msg.
 * out:  as teffi_shard_push; TEFF_E_NOT_FOUND: send msg to silo *placed (zero: no silo hosts the
 *       type), which activates the grain; TEFF_E_UNAVAILABLE: take the slow path, a look-up. */
TEFF_MUST_USE teff_err teffi_partition_begin(teffi_grains *grains, const teffi_ident *ident,
                                             teffi_msg *msg, teffi_node_id *placed);

/* teffi_partition_claim_new - the same for a bare type and a caller that runs the request itself.
 * out:  the new activation: registered, VALID, its group claimed. NULL: take the slow path. */
teffi_activation *teffi_partition_claim_new(teffi_grains *grains, const teffi_ident *ident);

/* teffi_partitions_view - change the phases for a new view. Called for one view at a time.
 * out:  true: some partitions are LOCKED and need recovery. */
bool teffi_partitions_view(teffi_grains *grains, const teffi_view *now);

/* ---- recovery ---- */

/* teffi_partitions_list_locked - begin a round of recovery: fill set with the LOCKED partitions,
 * and drop their entries of earlier rounds. in: set, NULL: only ask. out: false: none is LOCKED. */
bool teffi_partitions_list_locked(teffi_grains *grains, uint8_t *set);

/* teffi_partition_merge - put an activation of another silo, found by recovery in view version,
 * into its LOCKED partition.
 * out:  TEFF_OK; TEFF_E_EXISTS: two activations hold the grain; *loser, the one with the higher
 *       PID, must be deactivated before the partition serves.
 * errs: TEFF_E_CLOSED: not LOCKED, or locked by a newer view; TEFF_E_NOMEM. */
TEFF_MUST_USE teff_err teffi_partition_merge(teffi_grains *grains, const teffi_ident *ident,
                                             teffi_pid pid, uint64_t version, teffi_pid *loser);

/* teffi_partitions_unlock - make those partitions of set SERVING that were locked by view version
 * or an older view, and deliver the parked requests. */
void teffi_partitions_unlock(teffi_grains *grains, const uint8_t *set, uint64_t version);

/* ---- requests of other silos that wait until a view is adopted or partitions are served ---- */

/* teffi_partitions_park - park msg. out: false: too many requests are parked; the caller owns msg.
 * teffi_partitions_deliver - deliver all parked requests to this node; each may be parked again. */
bool teffi_partitions_park(teffi_shards *shards, teffi_msg *msg);
void teffi_partitions_deliver(teffi_grains *grains);

/* teffi_partitions_fini - free the entries and the parked requests. */
void teffi_partitions_fini(teffi_shards *shards);
