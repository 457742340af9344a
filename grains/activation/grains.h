/* grains.h - the data that all parts of one silo's grains share: node, types, clock, pointers to
 * parts.
 * Way:     hosting/install makes it and its parts
 * Threads: immutable after start, but for the atomics.
 * Lock order: a directory shard, the slab; see ARCHITECTURE. */
#pragma once

#include <stdatomic.h>
#include <teff/generated.h>
#include "message/seal.h"
#include "node/node.h"

enum { TEFFI_BREAKS = 256 };

typedef struct teffi_grains {
    teffi_node *node;
    teffi_sipkey secret; /* for teffi_key_hash, and hashes of written states (state.c) */
    uint8_t seal_key[TEFFI_SEAL_KEY_BYTES]; /* hides ids of clients (hosting/notices.c) */
    teff_grain_type **types;                /* sorted by id */
    size_t n_types;
    uint32_t activations_max, memory_percent;    /* of teff_silo_options; set before the start */
    const teffi_group_ops *group_ops;            /* of activations */
    struct teffi_shards *shards;                 /* directory/shard.h */
    struct teffi_location_cache *location_cache; /* directory/location_cache.h */
    struct teffi_activation_cache *activation_cache; /* request/activation_cache.h */
    struct teffi_load_limit *load_limit;             /* load_limit.h */
    struct teffi_waits *waits;                       /* waits.h */
    struct teffi_reminders *reminders;               /* reminder/schedule.h */
    uint64_t reminder_period_min_ms; /* of teff_silo_options; set before the start */
    /* Phases of partitions have changed. May be called by several threads at a time. NULL: none. */
    void (*phases_changed)(struct teffi_grains *grains);
    /* atomic */
    _Atomic uint64_t stamp;         /* highest age of a transaction that is known here (lock.h) */
    _Atomic uint32_t tasks;         /* tasks of transaction.c that have not ended */
    _Atomic uint64_t timer_ids;     /* the last id of a timer's handle (timers.h) */
    _Atomic uint64_t subscriptions; /* the number of the last one (observers.h) */
    /* connections to silos that have broken, by a hash of the silo (observers.h) */
    _Atomic uint32_t breaks[TEFFI_BREAKS];
    teffi_warn_limiter ticks_failed, ticks_put_off; /* of lines about timers */
    teffi_warn_limiter turns_stuck;                 /* of lines of hosting/stuck.c */
    _Atomic bool accepting;                         /* new activations may be made here */
    _Atomic bool closed;        /* no grain is placed any more; waiting look-ups fail */
    _Atomic uint64_t coarse_ms; /* monotonic clock, updated by each slice of the collector */
} teffi_grains;
