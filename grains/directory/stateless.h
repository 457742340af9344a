/* stateless.h - the activations of a stateless worker's grain on this silo: its pool.
 * Way:     route, direct -> [stateless] -> shard -> activation's group
 * Threads: any. Idle activations are claimed without a lock; the pool is counted, and grows, under
 *          the shard's lock.
 * Source:  Orleans' src/Orleans.Runtime/Catalog/StatelessWorkerGrainContext.cs
 *
 * The type's option stateless_worker gives a grain activations on every silo that hosts the type.
 * A pool has no object of its own: it is the activations in the index that have the same identity.
 * None of them is registered in the directory, so a view, a recovery or another silo's crash does
 * not concern them. A call is never looked up: it runs on the silo of its caller or gateway, if
 * that silo hosts the type in the caller's version, else on a silo that does, chosen at random.
 *
 * Which activation gets a request? The first idle one in the order of the index: no turn runs or is
 * suspended, and no request is queued. If none is idle, a new one, if there are fewer than
 * teffi_pool_max(). Else the one with the fewest queued requests; of several such, a random one;
 * one that was asked to end, only if there is no other. A request stays in that queue, also if
 * another activation becomes idle.
 *
 * The pool shrinks as other grains end: an activation that was not used for the type's idle time
 * ends, also if others are in use. Because the order of the index is fixed, calls that are made one
 * after the other use few activations, and the rest become idle.
 *
 * What a stateless worker meets:
 *  - A call inside the caller's turn: as for other grains, if an activation is idle, or new and
 *    without on_activate. The cache of activations has one of the pool; if that one is not idle,
 *    also because its turn is suspended, the pool is searched.
 *  - A silo that leaves makes no new ones: requests go to another silo. If there is none yet, they
 *    wait for a change of the view, as requests that could not be sent (request/route.c).
 *  - activations_max, or no memory: if the pool has an activation, requests queue there.
 *  - Limits of the queue, deadlines, cancels, the lease, timers, teff_deactivate: as for other
 *    grains, each activation by itself.
 *  - Order: two calls of one caller may run at the same time, or the later one first.
 *  - Deadlocks: a probe goes from one activation of the pool to the next, until it finds the
 *    request that it was sent to (request/deadlock.c).
 *  - Observers: an activation has no set of observers, since other calls would not find it.
 *  - Reminders: the grain has none.
 *  - Idempotency keys are refused, as for each type without a state.
 *  - A caller whose type is not a stateless worker (of an older version): the request goes to the
 *    first activation on its silo, or on one that is chosen as the caller's type says. The
 *    directory does not know that one, so other such callers may reach other activations.
 *  - A type that is a stateless worker for the caller only: the request is handled as one for a
 *    grain with placement RANDOM.
 *
 * What it costs: a search looks at all activations of the pool if none is idle, without a lock if
 * the pool is full. All of them have the same hash, so they are a run of cells in the shard's
 * index, up to TEFFI_POOL_MAX long, which searches for some other grains must pass, too: with many
 * large pools in a shard, such a search takes 79 cells on average (40 pools of 64, load 0.63). */
#pragma once

#include "directory/shard.h"

/* So many activations of a grain at most. Each request may look at all of them. */
enum { TEFFI_POOL_MAX = 64 };

/* teffi_pool_max - how many activations a grain of this stateless worker may have on this silo. */
unsigned teffi_pool_max(const teffi_grains *grains, const teff_type_info *info);

/* teffi_stateless_push_request - push msg to an activation of the grain.
 * in:   ident, of a stateless worker that is hosted here.
 * out:  TEFF_OK: the activation owns msg. TEFF_E_NOT_FOUND: the silo leaves.
 * errs: as teffi_shard_push_request. */
TEFF_MUST_USE teff_err teffi_stateless_push_request(teffi_grains *grains, const teffi_ident *ident,
                                                    teffi_msg *msg);

/* teffi_stateless_claim_activation - claim an idle activation of the grain, or a new one, for a
 * caller that runs the request itself.
 * in:   ident, of any grain; version, of the caller's type.
 * out:  VALID, its group claimed; NULL: queue the request. */
teffi_activation *teffi_stateless_claim_activation(teffi_grains *grains, const teffi_ident *ident,
                                                   uint32_t version);

/* teffi_stateless_push_to_next - push item to the activation that follows act in its pool.
 * out:  false: act is the last one, or is no stateless worker; the caller still owns item.
 * runs: on act's group. */
TEFF_MUST_USE bool teffi_stateless_push_to_next(teffi_activation *act, teffi_item *item);
