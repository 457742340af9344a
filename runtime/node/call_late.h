/* call_late.h - deadlines of pending calls: one timer a node looks at those that may be due.
 * Way:     call (new) -> [call_late] -> timer -> blocks that may hold one that is due -> call (end)
 * Threads: watch: any. The sweep: one worker at a time, half a millisecond in one go.
 * Model:   tests/model/call.pml
 *
 * A block's *earliest* is at or before the deadline of each of its pending calls; the timer is due
 * at or before the earliest of all, or 3 ms after the sweep before. A call that ends leaves both as
 * they are: an answer costs no timer, and a sweep that comes for nothing makes them exact. So
 * when nothing is pending the timer fires once more, and is not set again.
 *
 * A new call and a sweep may miss each other. Each first writes and then reads what the other
 * writes, all of it seq_cst, so that one of them sees the other:
 *   new:    the word (pending)        earliest: is it early enough?
 *   sweep:  earliest = never          the words: which are pending?
 * and, with who has moved an earliest forward,
 *   new:    earliest = deadline       timer_ns: is it early enough?
 *   sweep:  timer_ns = never          every earliest: which blocks are due, and which comes next?
 */
#ifndef TEFFI_NODE_CALL_LATE_H
#define TEFFI_NODE_CALL_LATE_H

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include "node/call_space.h"
#include "sched/exec.h"

/* A call ends at its deadline or at most 4 ms later: the gap, and a tick of the wheel. */
enum { TEFFI_CALL_GAP_MS = 3, TEFFI_CALL_SLICE_US = 500 };

typedef struct teffi_call_late {
    teffi_call_space *space;   /* immutable */
    _Atomic uint64_t timer_ns; /* due then; UINT64_MAX: not set, or a sweep is under way */
    pthread_mutex_t lock;      /* guards the rest, and writing timer_ns */
    teffi_timer timer;
    bool sweeping;
    uint32_t at;            /* the block that the sweep goes on with */
    uint64_t least_ns;      /* the earliest deadline that it has left behind */
    uint64_t asked_ns;      /* or that somebody came with meanwhile */
    uint64_t not_before_ns; /* the next one */
} teffi_call_late;

void teffi_call_late_init(teffi_call_late *late, teffi_call_space *space);
void teffi_call_late_fini(teffi_call_late *late);

/* teffi_call_late_watch - a call has become pending. in: deadline_ns, UINT64_MAX: none. */
void teffi_call_late_watch(teffi_call_late *late, uint32_t slot, uint64_t deadline_ns);

#endif
