/* wait.h - one thing a context waits for: an answer, a store operation, a moment.
 * Way:     call, store op, timer -> [wait] -> the turn's group, or the blocked thread
 * Threads: signal once, from any thread; everything else on the context's own side.
 * Model:   tests/model/wait.pml, a thread's side */
#ifndef TEFFI_NODE_WAIT_H
#define TEFFI_NODE_WAIT_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include "sched/group.h"

enum { TEFFI_ITEM_WAIT = 100 }; /* item.kind: hand it to teffi_wait_arrived */

typedef struct teffi_wait {
    teffi_item item;
    struct teff_ctx *ctx;
    teffi_group *group;    /* of ctx, kept here: an orphan's context is gone */
    _Atomic uint32_t word; /* thread: does it sleep for this one, is it done? */
    bool done;             /* turn: set on its group */
    bool orphan;           /* the context ended before the signal came */
    bool awaited;          /* turn: it sleeps until this one is done */
    /* on a worker's own stack, before a turn goes on; orphan: frees it, on any thread when its
     * group takes nothing any more. May be NULL. */
    void (*arrive)(struct teffi_wait *wait);
} teffi_wait;

void teffi_wait_init(teffi_wait *wait, struct teff_ctx *ctx, void (*arrive)(teffi_wait *wait));

/* teffi_wait_signal - it is done. The wait may be gone when this returns. */
void teffi_wait_signal(teffi_wait *wait);

/* teffi_wait_done - has it been signalled, as far as its own side knows? */
bool teffi_wait_done(const teffi_wait *wait);

/* teffi_wait_arrived - from a group's handler: the item of a wait was popped. Resumes the turn's
 * fiber when that was the last it waits for.
 * out:  true when that resume ended the fiber: *ctx then is the context whose turn is over. */
bool teffi_wait_arrived(teffi_item *item, struct teff_ctx **ctx);

/* teffi_await - until all n are done. Suspends a turn, blocks a thread. */
void teffi_await(struct teff_ctx *ctx, teffi_wait *const *waits, size_t n);

#endif
