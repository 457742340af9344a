/* grains.h - the virtual-actor layer of one silo: its parts in one place.
 * Way:     node->upcalls.request, reference -> route -> catalog -> activation -> turn
 * Threads: as each part says; options are immutable after start.
 * Lock order: locate shard, catalog shard (also the directory partition's), slab; the rest is in
 *          ARCHITECTURE. */
#ifndef TEFFI_GRAINS_H
#define TEFFI_GRAINS_H

#include <pthread.h>
#include <stdatomic.h>
#include <teff/grain.h>
#include "activation.h"
#include "base/line.h"
#include "base/table.h"
#include "catalog.h"
#include "directory.h"
#include "hints.h"
#include "locate.h"
#include "node/node.h"
#include "seen.h"

typedef struct teffi_grains {
    teffi_node *node;
    /* immutable after start: sorted by id */
    teff_grain_type **types;
    size_t n_types;
    teffi_catalog catalog;
    teffi_directory directory;
    teffi_hints hints;
    teffi_locate locate;
    teffi_seen seen;
    /* atomic */
    _Atomic bool accepting;     /* new activations may be made here */
    _Atomic bool closed;        /* nobody is placed any more: who waits for that is told so */
    _Atomic uint64_t coarse_ms; /* the collector's clock: mono, good to its period */
    /* collector */
    teffi_timer collect_timer;
    pthread_mutex_t collect_lock;
    bool collect_stopped; /* guarded by collect_lock */
    uint32_t collect_period_ms;
    unsigned collect_part; /* the timer's: where the round goes on */
    uint64_t collect_at;
} teffi_grains;

enum {
    TEFFI_IDLE_DEFAULT_MS = 15 * 60 * 1000,
    TEFFI_TIMEOUT_DEFAULT_MS = 30000,
    TEFFI_QUEUE_DEFAULT = 10000
};

/* teffi_grains_dump - lines about activations, the busiest first. As layer.h says; dump.c. */
void teffi_grains_dump(teffi_node *node, const teffi_lines *to);

/* teffi_type_find - a hosted type by id; NULL: not hosted here. */
const teff_grain_type *teffi_type_find(const teffi_grains *grains, uint32_t id);

/* teffi_queue_max - requests that may wait at one activation. */
static inline uint32_t teffi_queue_max(const teff_type_info *info)
{
    return info->queue_max ? info->queue_max : TEFFI_QUEUE_DEFAULT;
}

/* teffi_activation_used - a request begins: not idle now. relaxed: the collector's guess. */
static inline void teffi_activation_used(teffi_activation *act)
{
    uint64_t now = atomic_load_explicit(&act->grains->coarse_ms, memory_order_relaxed);
    atomic_store_explicit(&act->used_ms, (uint32_t)now, memory_order_relaxed);
}

/* teffi_method_find - by id; NULL: no such method. */
const teff_method *teffi_method_find(const teff_type_info *info, uint32_t id);

#endif
