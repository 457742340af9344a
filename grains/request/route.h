/* route.h - send a request to its grain's activation here or to another silo; look up where the
 * grain is if that is not known. The requests for one grain share one look-up.
 * Way:     reference, node (arriving) -> [route] -> shard | net | look-up: directory/client
 * Threads: any; never blocks; a look-up is a task. Each request is handed on, ended with an error
 *          or, if its caller has cancelled it, freed. */
#pragma once

#include "directory/shard.h"

/* teffi_route - route a new or received request. in: msg, owned; it borrows no memory. */
void teffi_route(teffi_grains *grains, teffi_msg *msg);

/* teffi_route_elsewhere - route a new request whose grain is not on this silo.
 * in:   location, the cached silo of the grain, or zero. msg, owned; may borrow memory that is
 *       valid until this returns. */
void teffi_route_elsewhere(teffi_grains *grains, teffi_msg *msg, teffi_node_id location);

/* teffi_reroute_unsent_request - locate the grain again for a request that the transport has
 * returned because the request surely did not reach silo `to`. Owns msg. */
void teffi_reroute_unsent_request(teffi_grains *grains, teffi_msg *msg, teffi_node_id to);

/* teffi_route_to_current_holder - forward a request that waited at an activation here, because
 * another silo's activation holds the grain now. Owns msg. in: winner, that silo. */
void teffi_route_to_current_holder(teffi_grains *grains, teffi_msg *msg, teffi_node_id winner);

/* teffi_route_again - route a request anew after an activation gave it back: the activation has
 * ended, or is one of another grain. Owns msg, and ends it after TEFFI_HOPS_MAX hops. */
void teffi_route_again(teffi_grains *grains, teffi_msg *msg);

/* ---- look-ups ---- */

/* teffi_lookup_counter - the counter of look-ups for this hash; some other hashes share it. */
static inline _Atomic uint32_t *teffi_lookup_counter(const teffi_grains *grains, uint64_t hash)
{
    return &grains->shards->looking[(hash >> 8) % TEFFI_LOOKING];
}

/* teffi_lookup_may_exist - may a look-up for a grain of this hash be under way?
 * out:  false: all requests that waited for such a look-up have been forwarded (acquire: pairs with
 *       change_lookup_count()). If the calling turn has begun a look-up, the result is true until
 *       that look-up ends. If another thread has just begun one, the result may be false. This is
 *       harmless: the order of the two threads' requests is not defined. */
static inline bool teffi_lookup_may_exist(const teffi_grains *grains, uint64_t hash)
{
    return atomic_load_explicit(teffi_lookup_counter(grains, hash), memory_order_acquire) != 0;
}

/* teffi_lookup_exists - is a look-up for this grain under way? Then earlier requests may be waiting
 * for it. Exact; takes the shard's lock: call teffi_lookup_may_exist first. */
bool teffi_lookup_exists(teffi_grains *grains, const teffi_ident *ident);

/* teffi_lookups_are_pending - is any grain being looked up? */
bool teffi_lookups_are_pending(const teffi_grains *grains);

/* teffi_lookups_fini - free the look-ups and the requests that wait for them. Call it after the
 * executor has stopped: no task of a look-up runs any more. */
void teffi_lookups_fini(teffi_grains *grains);
