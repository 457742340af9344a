/* collector.h - ask activations to end that got no request for their type's idle time.
 * Way:     timer -> [collector] -> shard -> activation (END)
 * Source:  Orleans, "Activation collection" */
#ifndef TEFFI_HOSTING_COLLECTOR_H
#define TEFFI_HOSTING_COLLECTOR_H

#include <pthread.h>
#include "directory/shard.h"

typedef struct teffi_collector {
    teffi_grains *grains;
    teffi_timer timer;
    pthread_mutex_t lock;
    bool stopped; /* guarded by lock */
    uint32_t period_ms;
    uint64_t cursor; /* timer only: where the round continues */
} teffi_collector;

/* teffi_collector_init - in zeroed memory. */
void teffi_collector_init(teffi_collector *collector, teffi_grains *grains);
void teffi_collector_fini(teffi_collector *collector);

/* teffi_collector_start - start a round each quarter of the shortest idle time (10 ms to 1 min). A
 * round visits at most 1,024 activations, or ends 256, each millisecond. */
void teffi_collector_start(teffi_collector *collector);
void teffi_collector_stop(teffi_collector *collector);

#endif
