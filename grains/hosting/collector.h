/* collector.h - ask idle activations to end.
 * Way:     install -> [collector] -> timer -> the shards' activations -> handler
 * Threads: the timer's function: any worker, one at a time.
 * Source:  Orleans' src/Orleans.Runtime/Catalog/ActivationCollector.cs */
#pragma once

#include <pthread.h>
#include "activation/grains.h"
#include "group/exec.h"

typedef struct teffi_collector {
    teffi_grains *grains; /* immutable */
    uint32_t round_ms;    /* immutable after start: from the end of a round to the next one */
    pthread_mutex_t lock; /* held while the timer is set or cancelled */
    teffi_timer timer;
    uint64_t cursor; /* timer only: where the round continues */
} teffi_collector;

/* teffi_collector_init - in zeroed memory.
 * teffi_collector_fini - after the executor has stopped. */
void teffi_collector_init(teffi_collector *collector, teffi_grains *grains);
void teffi_collector_fini(teffi_collector *collector);

/* teffi_collector_start - update grains->coarse_ms, which only the collector does, and set the
 * timer for the first round. in: the grains' types are known.
 * teffi_collector_stop - set the timer no more. in: grains->closed is set. */
void teffi_collector_start(teffi_collector *collector);
void teffi_collector_stop(teffi_collector *collector);
