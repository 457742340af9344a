/* reclaim.h - a timer that reclaims a slab's memory after a peak, a slice at a time.
 * Way:     teffi_slab_put -> [reclaim] -> timer -> memory/slab
 * Threads: soon and stop: any. The slices: one worker at a time. */
#ifndef TEFFI_CALL_RECLAIM_H
#define TEFFI_CALL_RECLAIM_H

#include "memory/slab.h"
#include "group/exec.h"

typedef struct teffi_reclaim {
    teffi_slab *slab;     /* immutable */
    pthread_mutex_t lock; /* guards the rest */
    teffi_exec *exec;     /* runs the timer */
    bool stopped;
    teffi_timer timer;
} teffi_reclaim;

void teffi_reclaim_init(teffi_reclaim *reclaim, teffi_slab *slab);
void teffi_reclaim_fini(teffi_reclaim *reclaim);

/* teffi_reclaim_soon - set the timer. Call it when teffi_slab_put has returned true. */
void teffi_reclaim_soon(teffi_reclaim *reclaim, teffi_exec *exec);

/* teffi_reclaim_stop - the executor was stopped: set no timer from now on. */
void teffi_reclaim_stop(teffi_reclaim *reclaim);

#endif
