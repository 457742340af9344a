/* deferral.h - deferred work of one processor: run when its worker finds no group, or when the work
 * is old.
 * Way:     submit (defer) -> [deferral] -> find, when the queues are empty -> work->run
 * Threads: filled by the owner; run by the owner while it uses its processor, by the monitor during
 *          a long turn, or when no worker runs any more. run may make groups READY, and may defer
 *          the work again. */
#pragma once

#include <stdint.h>
#include "group/deferred.h"

typedef struct teffi_deferral {
    teffi_deferred *_Atomic list;
    /* the owner's */
    uint32_t from_ms; /* coarse clock when the oldest work was added */
    uint64_t from_ns; /* when run_if_old saw work after it had seen none; 0: it saw none */
} teffi_deferral;

/* teffi_deferral_has_work - is there deferred work? In any thread but the owner's, the result is
 * only a hint. */
static inline bool teffi_deferral_has_work(const teffi_deferral *d)
{
    /* relaxed: only the owner adds work; other threads may miss the latest work */
    return atomic_load_explicit(&d->list, memory_order_relaxed) != NULL;
}

/* teffi_deferral_run - run all deferred work. out: false: there was none.
 * runs: the owner, while it holds its processor; the monitor; any thread when no worker runs any
 * more. */
static inline bool teffi_deferral_run(teffi_deferral *d)
{
    bool exists = teffi_deferral_has_work(d);
    if (exists)
        teffi_deferred_run_all(&d->list);
    return exists;
}

/* teffi_deferral_run_if_ticked - run the deferred work if the coarse clock has changed since the
 * oldest work was added. in: now_ms, the coarse clock. runs: the owner. */
static inline void teffi_deferral_run_if_ticked(teffi_deferral *d, uint32_t now_ms)
{
    if (d->from_ms != now_ms)
        teffi_deferred_run_all(&d->list);
}

/* teffi_deferral_run_if_old - run the deferred work if it is older than 50 us. Its age counts from
 * the first call of this function that finds work. A call that finds none, or that runs the work,
 * resets the age. So the work does not wait for long while the worker finds a group at each pick.
 * runs: the owner, whenever it has read the clock. */
static inline void teffi_deferral_run_if_old(teffi_deferral *d, uint64_t now_ns)
{
    enum { AGE_MAX_NS = 50000 };
    if (!teffi_deferral_has_work(d)) {
        d->from_ns = 0;
    } else if (!d->from_ns) {
        d->from_ns = now_ns;
    } else if (now_ns - d->from_ns > AGE_MAX_NS) {
        d->from_ns = 0;
        teffi_deferred_run_all(&d->list);
    }
}

/* teffi_deferral_add - defer work. in: now_ms, the coarse clock. runs: the owner, using its
 * processor. */
static inline void teffi_deferral_add(teffi_deferral *d, teffi_deferred *work, uint32_t now_ms)
{
    if (teffi_deferred_push(&d->list, work))
        d->from_ms = now_ms;
}
