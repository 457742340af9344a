/* call_trim.h - when the memory of pending calls goes back to the system: after a peak of them.
 * Way:     call_table (too many free) -> [call_trim] -> call_space -> the system
 * Threads: begin: under the table's lock. The timer: one worker at a time, in slices.
 *
 * Shared batches that nobody needed from one look to the next are laid back into their blocks;
 * blocks that are whole then are given back, but for a few. Threads keep what lies on their own
 * lists, up to three batches each, of which an entry holds its block in memory. The timer is set
 * when there are more than a few batches, and goes until neither of both is too much. */
#ifndef TEFFI_NODE_CALL_TRIM_H
#define TEFFI_NODE_CALL_TRIM_H

#include <stdbool.h>
#include <stdint.h>
#include "sched/exec.h"

enum {
    TEFFI_CALL_KEEPS = 16, /* batches, or blocks that are whole: they stay as they are */
    TEFFI_CALL_AGE_MS = 100,
    TEFFI_CALL_TRIM_SLICE = 64, /* batches or blocks in one go, */
    TEFFI_CALL_TRIM_US = 500,   /* and how long at most */
};

struct teffi_call_table;

typedef struct teffi_call_trim { /* guarded by the table's lock */
    teffi_timer timer;
    bool set;   /* the timer is, or fires now */
    bool never; /* the node stops, or pages cannot be given back */
    uint64_t looked_ns;
    uint32_t low;   /* the fewest batches since then */
    uint32_t spare; /* to be laid back: as few as there were between two looks */
} teffi_call_trim;

void teffi_call_trim_init(struct teffi_call_table *table);

/* teffi_call_trim_look - a batch was put, the lock is held: the timer is set if need be. */
void teffi_call_trim_look(struct teffi_call_table *table);

/* teffi_call_trim_stop - the timer is not set any more: the executor was stopped. */
void teffi_call_trim_stop(struct teffi_call_table *table);

#endif
