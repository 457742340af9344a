/* load_limit.h - limits how many states are read from the store at once; the other activations
 * wait, in order of arrival. After the loss of a silo its grains are activated in a herd: without
 * the limit, saves of running grains would wait behind all their reads.
 * Way:     state (load) -> [load_limit] -> store
 * Threads: any; its lock is a leaf lock.
 *
 * The limit adapts to the store. While reads take about as long as in the best times, the store is
 * not saturated: the limit rises if a load had to wait. When they take over twice as long (plus
 * slack_ns, load_limit.c), they only wait for each other in the store: the limit falls. */
#pragma once

#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>
#include <sys/queue.h>
#include "call/ctx.h"

enum { TEFFI_LOADS_MIN = 16, TEFFI_LOADS_START = 128, TEFFI_LOADS_MAX = 8192 };

/* A load that waits; lies on its turn's stack. */
typedef struct teffi_load_wait {
    teffi_wait wait;
    TAILQ_ENTRY(teffi_load_wait) in_list;
} teffi_load_wait;

typedef struct teffi_load_limit {
    pthread_mutex_t lock; /* guards the rest */
    TAILQ_HEAD(, teffi_load_wait) waiting;
    uint32_t running, limit;
    uint32_t n_waiting;
    /* of the present window: as many loads as the limit allows at once */
    uint32_t ended;
    bool was_full;     /* a load has waited */
    uint64_t spent_ns; /* total time of the loads counted in `ended` */
    uint64_t best_ns;  /* the shortest mean of a window, rising slowly; 0: none yet */
} teffi_load_limit;

/* teffi_load_limit_init - in zeroed memory. */
void teffi_load_limit_init(teffi_load_limit *limit);

/* teffi_load_limit_enter - wait until one more load may run. The caller must call
 * teffi_load_limit_leave when the load has ended; the turn must not end in between. runs: in a
 * turn. */
void teffi_load_limit_enter(teffi_load_limit *limit, teff_ctx *ctx);

/* teffi_load_limit_leave - a load has ended after ns nanoseconds: let those that wait run, up to
 * the limit. */
void teffi_load_limit_leave(teffi_load_limit *limit, uint64_t ns);
