/* gateways.h - the nodes that a client sends its calls to, and which of them a grain's calls take.
 * Way:     deliver -> [gateways]; silo/gateways fills the places
 * Threads: places are stored under node.lock; any thread loads them. */
#pragma once

#include <stdatomic.h>
#include "message/msg.h"

enum { TEFFI_GATEWAYS_MAX = 8 };

/* One place for each address of the client's options. relaxed: no other data depends on a place; if
 * its node is gone, the link refuses the message. */
typedef struct teffi_gateways {
    _Atomic uint64_t places[TEFFI_GATEWAYS_MAX]; /* teffi_node_to_word; 0: not connected */
} teffi_gateways;

/* out: a zero id if the place's address is not connected. */
static inline teffi_node_id teffi_gateways_get(const teffi_gateways *g, unsigned place)
{
    return teffi_node_from_word(atomic_load_explicit(&g->places[place], memory_order_relaxed));
}

/* runs: under node.lock. in: id: zero if the place's address is not connected. */
static inline void teffi_gateways_set(teffi_gateways *g, unsigned place, teffi_node_id id)
{
    atomic_store_explicit(&g->places[place], teffi_node_to_word(id), memory_order_relaxed);
}

/* teffi_gateways_choose - the gateway for calls of one grain. While the same nodes are connected,
 * it is the same one for all clients, so each gateway's location cache has its own share of the
 * grains. If a node comes or goes, only calls through that node change.
 * in:   hash, of the grain. out: zero: no gateway is connected.
 * from: Thaler and Ravishankar, "Using name-based mappings to increase hit rates", 1998 */
teffi_node_id teffi_gateways_choose(const teffi_gateways *g, uint64_t hash);
