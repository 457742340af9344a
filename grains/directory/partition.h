/* partition.h - which activation holds a grain? For the partitions that this silo owns. Strongly
 * consistent: a new owner serves only when it knows all registered activations (recover.c).
 * Way:     route, direct, client (here), server (other silos) -> [partition] -> shard
 * States:  NOT_MINE --a view makes this silo the owner--> LOCKED --all responded--> SERVING
 *              ^------------a view makes another silo the owner------------------------'
 * Threads: partitions are used under the shard's lock. Call these functions without it: they take
 *          it if they need it. Only park may be called under it.
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

/* limits of the parked requests of a silo: their number and their memory */
enum { TEFFI_PARKED_MAX = 10000, TEFFI_PARKED_BYTES_MAX = 16 * 1024 * 1024 };

/* teffi_partition_execute_directory_method - do a REGISTER, LOOKUP or UNREGISTER, if this silo
 * serves the partition.
 * in:   pid, the activation to register or unregister. msg, the request of another silo, or NULL.
 * out:  TEFF_OK: *holder holds the grain. TEFF_E_NOT_FOUND: no activation holds it.
 *       TEFF_E_UNAVAILABLE: this silo does not serve the partition, use client.h. TEFF_E_NOMEM.
 *       If msg is not NULL and the partition is LOCKED: TEFF_E_CLOSED: msg was parked;
 *       TEFF_E_OVERLOADED: too many requests are parked.
 * runs: without the shard's lock; does not block. */
TEFF_MUST_USE teff_err teffi_partition_execute_directory_method(teffi_grains *grains,
                                                                uint32_t method,
                                                                const teffi_ident *ident,
                                                                teffi_pid pid, teffi_pid *holder,
                                                                teffi_msg *msg);

/* teffi_activation_is_registered, _set_registered - take the shard's lock and read or set
 * act->registered. in: registered: the partition's owner has confirmed that act holds the grain.
 * out: _set_registered: the previous value. */
bool teffi_activation_is_registered(const teffi_activation *act);
bool teffi_activation_set_registered(teffi_activation *act, bool registered);

/* teffi_partition_push_or_choose_silo - push a grain's first request without a look-up. If this
 * silo serves the partition and no activation holds the grain, chooses a silo for it. If that is
 * this silo, makes the activation, registered. Pushes msg to the activation of this silo.
 * out:  as teffi_shard_push_request; TEFF_E_UNAVAILABLE: a look-up is needed; TEFF_E_NOT_FOUND:
 *       send msg to silo *placed, which activates the grain (zero: no silo can host it; this silo:
 *       it is leaving). */
TEFF_MUST_USE teff_err teffi_partition_push_or_choose_silo(teffi_grains *grains,
                                                           const teffi_ident *ident, teffi_msg *msg,
                                                           teffi_node_id *placed);

/* teffi_partition_create_claimed_activation - make a grain's activation if
 * teffi_partition_push_or_choose_silo() would make one and the type is bare; for a caller that runs
 * the request itself.
 * out:  the new activation: registered, VALID, its group claimed: the caller releases the group.
 *       NULL: queue the request. */
teffi_activation *teffi_partition_create_claimed_activation(teffi_grains *grains,
                                                            const teffi_ident *ident);

/* teffi_partitions_adopt_view - change the phases for a new view, and deliver the parked requests.
 * in:   now, the new view; the call for the previous view has returned.
 * out:  true: some partitions are LOCKED and need recovery. */
bool teffi_partitions_adopt_view(teffi_grains *grains, const teffi_view *now);

/* ---- recovery ---- */

/* teffi_partitions_begin_recovery_round - find the LOCKED partitions. If set is not NULL, list
 * them in set, and clear them: free the entries that earlier rounds of recovery have added.
 * out: is any partition LOCKED? */
bool teffi_partitions_begin_recovery_round(teffi_grains *grains, uint8_t *set);

/* teffi_partition_merge_activation - make an activation of another silo, pid, the holder of its
 * grain, unless the present holder has a lower PID. Part of recovery: changes only a LOCKED
 * partition.
 * in:   version, of the view for which recovery found pid.
 * out:  TEFF_OK; TEFF_E_EXISTS: two activations hold the grain; *loser, the one with the higher
 *       PID, must be deactivated before the partition serves.
 * errs: TEFF_E_CLOSED: not LOCKED, or locked by a newer view; TEFF_E_NOMEM. */
TEFF_MUST_USE teff_err teffi_partition_merge_activation(teffi_grains *grains,
                                                        const teffi_ident *ident, teffi_pid pid,
                                                        uint64_t version, teffi_pid *loser);

/* teffi_partitions_start_serving - make the LOCKED partitions of set SERVING, except those that a
 * view newer than version has locked. Then deliver the parked requests, and wake the callers of
 * teffi_membership_await_change(). Calls grains->phases_changed, as teffi_partitions_adopt_view. */
void teffi_partitions_start_serving(teffi_grains *grains, const uint8_t *set, uint64_t version);

/* ---- requests of other silos that wait until a view is adopted or partitions are served ---- */

/* teffi_partitions_park_request - park msg. out: false: too many requests, or too many of their
 *       bytes, are parked; the caller owns msg.
 * teffi_partitions_deliver_parked_requests - deliver all parked requests to this node, where each
 *       is handled anew and may be parked again. */
bool teffi_partitions_park_request(teffi_shards *shards, teffi_msg *msg);
void teffi_partitions_deliver_parked_requests(teffi_grains *grains);

/* teffi_partitions_fini - free the entries and the parked requests. in: no thread uses them now. */
void teffi_partitions_fini(teffi_shards *shards);
