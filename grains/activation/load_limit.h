/* load_limit.h - limits how many states are read from the store at once; the other activations
 * wait, in order of arrival. After the loss of a silo its grains are activated in a herd: without
 * the limit, saves of running grains would wait behind all their reads.
 * Way:     state (load) -> [load_limit] -> store
 * Threads: any; its lock is a leaf lock.
 *
 * The limit adapts to the store. While a read takes about as long as in the best times, reads are
 * not what the store waits for, and more are allowed. When reads take twice as long, they only wait
 * for each other, and fewer are allowed. */
#pragma once

#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>
#include <sys/queue.h>
#include "call/ctx.h"

enum { TEFFI_LOADS_MIN = 16, TEFFI_LOADS_START = 128, TEFFI_LOADS_MAX = 8192 };

/* One that waits; lies on its turn's stack. */
typedef struct teffi_load_wait {
    teffi_wait wait;
    TAILQ_ENTRY(teffi_load_wait) in_list;
} teffi_load_wait;

typedef struct teffi_load_limit {
    pthread_mutex_t lock;
    TAILQ_HEAD(, teffi_load_wait) waiting;
    uint32_t running, limit;
    uint32_t n_waiting;
    /* of the present window: as many loads as the limit allows at once */
    uint32_t ended;
    bool was_full;     /* a load has waited */
    uint64_t spent_ns; /* by those that have ended */
    uint64_t best_ns;  /* the shortest mean of a window, rising slowly; 0: none yet */
} teffi_load_limit;

void teffi_load_limit_init(teffi_load_limit *limit);

/* teffi_load_limit_enter - wait until one more load may run. runs: in a turn. */
void teffi_load_limit_enter(teffi_load_limit *limit, teff_ctx *ctx);

/* teffi_load_limit_leave - a load has ended after ns nanoseconds: let the next one run. */
void teffi_load_limit_leave(teffi_load_limit *limit, uint64_t ns);
