/* gateways.c - which gateway a grain's calls take. */
#include "node/gateways.h"

#include "base/hash.h"

/* Rendezvous hashing: chooses the connected node for which a hash of the grain and the node is
 * highest. */
teffi_node_id teffi_gateways_choose(const teffi_gateways *g, uint64_t hash)
{
    uint64_t chosen = 0, highest = 0;
    for (unsigned i = 0; i < TEFFI_GATEWAYS_MAX; i++) {
        uint64_t word = atomic_load_explicit(&g->places[i], memory_order_relaxed);
        uint64_t weight = word ? teffi_mix64(hash ^ word) : 0;
        if (word && (!chosen || weight > highest)) {
            chosen = word;
            highest = weight;
        }
    }
    return teffi_node_from_word(chosen);
}
