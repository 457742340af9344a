/* shard.h - one of the 256 partitions of the hash space: this silo's activations in it and, if this
 * silo owns the partition, the holders of its other grains (partition.h).
 * Way:     route, direct -> [shard] -> activation's group
 * Threads: activations are found without a lock; made, removed and listed under the shard's lock.
 *          Functions that push, check, remove, end a duplicate or walk take it. The memory of
 *          activations is type-stable: a late push may reach memory that was reused for another
 *          grain, whose handler routes the request again. */
#pragma once

#include "activation/activation.h"
#include "base/index.h"
#include "base/table.h"
#include "cluster/view.h"

typedef enum teffi_part_phase { TEFFI_NOT_MINE = 0, TEFFI_LOCKED, TEFFI_SERVING } teffi_part_phase;

typedef struct teffi_shard {
    pthread_mutex_t lock; /* guards the rest; index and hash_collision are also read without it */
    teffi_index index;    /* slots of the activations here, by hash */
    /* Two grains had the same hash: since then, find by identity under the lock. */
    _Atomic bool hash_collision;
    /* The directory's partition. A grain that an activation of this silo holds has no entry: that
     * activation has `registered` set. */
    teffi_part_phase phase;
    uint64_t since;      /* if LOCKED: version of the view that locked it */
    teffi_table entries; /* grains that other silos hold; an entry overrides the index */
    teffi_table lookups; /* look-ups of grains under way, request/route.c */
} teffi_shard;

enum { TEFFI_LOOKING = 1024 };

typedef struct teffi_shards {
    teffi_grains *grains; /* immutable */
    teffi_shard at[TEFFI_PARTITIONS];
    /* The memory of activations: found by slot, reused, never unmapped. A FREE activation refuses
     * pushes because its group is COMPLETE; so does decommitted memory, which reads as the image.
     */
    teffi_slab memory;
    _Atomic uint64_t activations; /* number of those that were not reclaimed yet */
    _Atomic uint64_t version;     /* of the last view to which all phases were adapted */
    _Atomic bool recovering;      /* the recovery task runs, or recover_timer is set */
    _Atomic bool catching_up;     /* a task that will adopt the newest view is queued */
    /* Numbers of look-ups under way, by bits of the grain's hash; shards share them. Written under
     * the lock of the grain's shard; release: pairs with teffi_lookup_may_exist(), which loads one
     * without a lock. */
    _Atomic uint32_t looking[TEFFI_LOOKING];
    /* Guards the rest. A request to a LOCKED partition is parked under the shard's lock, too. So it
     * is parked before teffi_partitions_start_serving() delivers, or it finds the partition
     * SERVING. */
    pthread_mutex_t parked_lock;
    teffi_timer recover_timer; /* set if the recovery task could not start: starts it later */
    teffi_queue parked; /* other silos' requests that wait for a partition or a view: partition.h */
    size_t parked_bytes;
} teffi_shards;

/* teffi_shards_init - in zeroed memory. errs: false: out of memory; teffi_shards_fini is allowed.
 * teffi_shards_fini - free the activations and indexes, which no thread uses any more. in: the
 *       look-ups, entries and parked requests were freed (teffi_lookups_fini,
 *       teffi_partitions_fini). */
bool teffi_shards_init(teffi_shards *shards, teffi_grains *grains);
void teffi_shards_fini(teffi_shards *shards);

/* A set of partitions has a bit for each. */
enum { TEFFI_PARTITION_SET_BYTES = TEFFI_PARTITIONS / 8 };

static inline bool teffi_set_has_partition(const uint8_t *set, unsigned partition)
{
    return set[partition / 8] & (1u << partition % 8);
}

static inline teffi_shard *teffi_shard_of(const teffi_grains *grains, uint64_t hash)
{
    return &grains->shards->at[teffi_partition_of_hash(hash)];
}

/* teffi_activation_slab_init - in zeroed memory. An activation that is put into the slab is FREE,
 * and its group COMPLETE. errs: false: out of memory. */
bool teffi_activation_slab_init(teffi_slab *memory, teffi_grains *grains);

/* teffi_activation_at - the activation with this slot. An activation's slot is the number of its
 * entry in the slab, plus TEFFI_SLOT_SYSTEM_END, because system targets have the lower slots. */
static inline teffi_activation *teffi_activation_at(teffi_slab *memory, uint32_t slot)
{
    return teffi_slab_at(memory, slot - TEFFI_SLOT_SYSTEM_END);
}

/* teffi_shards_are_full - are so many activations here that no more are made: a quarter more than
 * activations_max, and one? in: n, the number of activations. */
static inline bool teffi_shards_are_full(const teffi_grains *grains, uint64_t n)
{
    uint64_t max = grains->activations_max;
    return max && n > max + max / 4;
}

/* teffi_shard_push_request - push msg to the grain's activation; if there is none, make one if
 * may_create.
 * out:  TEFF_OK: the activation owns msg; TEFF_E_NOT_FOUND: there is none, and may_create is false,
 *       the type is not hosted or the silo leaves; TEFF_E_OVERLOADED: the queue or the silo's
 *       memory is full, or teffi_shards_are_full(); TEFF_E_NOMEM, TEFF_E_INVALID. msg moves on
 *       TEFF_OK only. */
TEFF_MUST_USE teff_err teffi_shard_push_request(teffi_grains *grains, const teffi_ident *ident,
                                                teffi_msg *msg, bool may_create);

/* teffi_shard_create_activation - make the grain's activation, under the shard's lock.
 * in:   ident, of a grain without an activation here, or of a stateless worker. registered, the
 *       value of act->registered; that of a stateless worker is always false.
 *       claimed, NULL: do not claim the group.
 * out:  *act. *claimed: true: *act is VALID and its group claimed; false: a late push for the
 *       previous grain of this memory came before the claim.
 * errs: TEFF_E_NOT_FOUND: not hosted here, or the silo leaves; TEFF_E_OVERLOADED:
 *       teffi_shards_are_full(); TEFF_E_NOMEM, TEFF_E_INVALID. */
TEFF_MUST_USE teff_err teffi_shard_create_activation(teffi_grains *grains, const teffi_ident *ident,
                                                     bool registered, bool *claimed,
                                                     teffi_activation **act);

/* teffi_shard_find_activation_without_lock - find the grain's activation without a lock. Its memory
 * may have been reused for another grain since: only push to it, or claim its group and then
 * compare the identity.
 * out:  NULL: not found; *certain: true: there is none; false: search again under the lock. Not
 *       NULL: *certain is false. */
teffi_activation *teffi_shard_find_activation_without_lock(teffi_grains *grains,
                                                           const teffi_ident *ident, bool *certain);

/* teffi_shard_find_activation_locked - find the grain's activation, under the shard's lock. out:
 * NULL: none.
 * teffi_shard_find_activation_by_pid - the same, but NULL if the activation is not pid. */
teffi_activation *teffi_shard_find_activation_locked(teffi_grains *grains,
                                                     const teffi_ident *ident);
teffi_activation *teffi_shard_find_activation_by_pid(teffi_grains *grains, const teffi_ident *ident,
                                                     teffi_pid pid);

/* teffi_shard_has_activation - does this silo have an activation of the grain? in: pid, NULL:
 * any. */
bool teffi_shard_has_activation(teffi_grains *grains, const teffi_ident *ident,
                                const teffi_pid *pid);

/* teffi_shard_set_hash_collision - record that two grains have this hash: from now on, the shard's
 * activations are found by identity only. */
void teffi_shard_set_hash_collision(teffi_grains *grains, uint64_t hash);

/* teffi_shard_remove_activation - take act out of the index, so that later pushes make another
 * activation, and clear `registered`. On its group. */
void teffi_shard_remove_activation(teffi_activation *act);

/* teffi_shard_reclaim_activation - return act to the slab. in: act is FREE; its group is COMPLETE
 * and has no items. */
void teffi_shard_reclaim_activation(teffi_activation *act);

/* teffi_shard_ask_duplicate_to_end - clear `registered` of activation pid and ask it to end,
 * because another one holds the grain.
 * out: false: nothing was done: pid has ended, or is not registered (not yet, or no longer). */
bool teffi_shard_ask_duplicate_to_end(teffi_grains *grains, const teffi_ident *ident,
                                      teffi_pid pid);

/* teffi_shards_walk_activations - visit the activations of all shards, each under its shard's lock;
 * visit must be short. May miss an activation that is just being made.
 * in:   set, the partitions to visit (teffi_set_has_partition), NULL: all. *cursor, 0 at first. If
 *       visit returns false the walk stops; the next call continues from *cursor, or from the
 *       shard's start if its index was rebuilt meanwhile.
 * out:  true: the walk has reached the end, *cursor is 0; false: visit returned false. */
bool teffi_shards_walk_activations(teffi_grains *grains, const uint8_t *set, uint64_t *cursor,
                                   bool (*visit)(void *arg, teffi_activation *act), void *arg);
