/* lane.h - a small number of a thread's own, so that it may have a cell of a table to itself.
 * Way:     node/call_table -> [lane]
 * Threads: any. No two living threads have the same number; one that had it has ended, and what it
 *          did is seen. */
#ifndef TEFFI_BASE_LANE_H
#define TEFFI_BASE_LANE_H

enum { TEFFI_LANES = 128 };

/* teffi_lane - of this thread, the same one while it lives.
 * out:  0 .. TEFFI_LANES - 1; TEFFI_LANES: none was left, use what all share.
 * A stack may go on on another thread: ask again after everything that may suspend. */
unsigned teffi_lane(void);

#endif
