/* deadline.h - the deadlines of all pending calls with one timer per node.
 * Way:     call (new) -> [deadline] -> timer -> calls (sweep) -> call (end)
 * Threads: watch: any. The sweep: one worker at a time.
 * Model:   tests/model/call.pml */

/* Invariants. Each slab block has a mark, *earliest*, at or before the deadline of each of its
 * pending calls. The timer is due at or before every block's earliest, or 3 ms after the last sweep
 * began. A call that ends changes neither, so a response costs no timer operation; the next sweep
 * makes both exact again.
 *
 * A new call and a sweep may run concurrently. Each stores first and then loads what the other
 * stores, all seq_cst, so at least one of them sees the other:
 *            stores                  then loads
 *   new:     word = pending          earliest: is it at or before the deadline?
 *   sweep:   earliest = never        every word: which calls are pending?
 *   new:     earliest = deadline     timer_ns: is it at or before the deadline?
 *   sweep:   timer_ns = never        every earliest: which blocks are due, which one is next? */
#pragma once

#include "memory/slab.h"
#include "group/exec.h"

struct teffi_home;

/* Least time from the beginning of a sweep to the next one. With one tick of the timer wheel (1 ms)
 * it makes 4 ms: the longest time by which a call ends after its deadline, unless the sweep takes
 * more than one slice or no worker is free. */
enum { TEFFI_CALL_GAP_MS = 3 };

typedef struct teffi_deadlines {
    struct teffi_home *home;   /* immutable */
    _Atomic uint64_t timer_ns; /* when the timer fires; UINT64_MAX: not set, or a sweep runs */
    pthread_mutex_t lock;      /* guards the rest but at and least_ns, and writes of timer_ns */
    teffi_timer timer;
    bool sweeping;
    /* during a sweep used without the lock, by the worker that sweeps */
    uint32_t at;       /* the sweep's next block */
    uint64_t least_ns; /* earliest deadline left pending by the sweep so far */
    /* guarded by lock */
    uint64_t asked_ns;      /* earliest deadline passed to watch during the sweep */
    uint64_t not_before_ns; /* the next sweep does not begin before */
} teffi_deadlines;

/* teffi_deadlines_init - in: sweep, the timer's callback: deadlines may have passed. */
void teffi_deadlines_init(teffi_deadlines *deadlines, struct teffi_home *home,
                          void (*sweep)(teffi_timer *timer));

/* teffi_deadline_watch - call it after a call has become pending: lowers its block's earliest and,
 * if needed, the timer. in: deadline_ns, UINT64_MAX: none. */
void teffi_deadline_watch(teffi_deadlines *deadlines, uint32_t slot, uint64_t deadline_ns);

/* teffi_deadline_lower - make *earliest at most to_ns. out: true: it was later and was changed. */
bool teffi_deadline_lower(_Atomic uint64_t *earliest, uint64_t to_ns);

/* teffi_deadline_sweep_begin - the timer fired: begin a sweep, unless one is in progress.
 * teffi_deadline_sweep_end_slice - a slice has ended: set the timer for the next slice or sweep.
 * in:   over: the sweep has visited all blocks. */
void teffi_deadline_sweep_begin(teffi_deadlines *deadlines);
void teffi_deadline_sweep_end_slice(teffi_deadlines *deadlines, bool over);
