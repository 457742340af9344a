/* collector.h - ask activations to end that are not used: those that were idle for long and, if the
 * silo has too many or is short of memory, the least recently used ones.
 * Way:     install -> [collector] -> timer -> the shards' activations -> handler
 * Threads: the timer's function: any worker, one at a time.
 * Source:  Orleans' src/Orleans.Runtime/Catalog/ActivationCollector.cs; Redis' src/evict.c, which
 *          samples keys, too */
#pragma once

#include <pthread.h>
#include "activation/grains.h"
#include "group/exec.h"

enum { TEFFI_LOOKS_MAX = 1024 /* activations that the collector looks at in one go */ };

typedef struct teffi_collector {
    teffi_grains *grains; /* immutable */
    /* immutable after start: */
    uint32_t round_ms; /* from the end of a round to the next one */
    bool reads_memory;
    pthread_mutex_t lock; /* held while the timer is set or cancelled */
    teffi_timer timer;
    /* timer only: */
    uint64_t due_ns;                /* the time for which the timer was set */
    uint64_t round_ns, shed_ns;     /* when a slice of a round, of a walk of shedding comes next */
    uint64_t cursor, shed_cursor;   /* where it continues */
    bool is_over;                   /* there are too many: shed until the low mark is reached */
    bool is_short;                  /* the same, of memory */
    uint64_t memory_ns;             /* when the use of memory is read next */
    uint32_t memory_share;          /* of MEMORY_SHARES: this part of all shall end, for memory */
    bool has_found;                 /* this walk has found an activation that may end, or ends */
    uint32_t ages[TEFFI_LOOKS_MAX]; /* of the activations in a slice that may end */
} teffi_collector;

/* teffi_collector_init - in zeroed memory.
 * teffi_collector_fini - after the executor has stopped. */
void teffi_collector_init(teffi_collector *collector, teffi_grains *grains);
void teffi_collector_fini(teffi_collector *collector);

/* teffi_collector_start - update grains->coarse_ms, which only the collector does, and set the
 * timer for the first round. in: the grains' types and limits are known.
 * teffi_collector_stop - set the timer no more. in: grains->closed is set. */
void teffi_collector_start(teffi_collector *collector);
void teffi_collector_stop(teffi_collector *collector);
