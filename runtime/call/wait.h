/* wait.h - one event that a context waits for: a response, a store operation's end, a timer.
 * Way:     call, store op, timer -> [wait] -> the turn's group, or the blocked thread
 * Threads: any thread signals it, once; the rest is called by the turn's group or the thread.
 * Model:   tests/model/wait.pml, for a thread's context */
#pragma once

#include "group/group.h"

enum {
    TEFFI_ITEM_WAIT = 100
}; /* item.kind: the group passes the item to teffi_wait_mark_done_and_resume */

typedef struct teffi_wait {
    teffi_item item;
    struct teff_ctx *ctx;
    teffi_group *group;    /* ctx->group, copied: an orphan's context is gone */
    _Atomic uint32_t word; /* thread: WAIT_NEW, WAIT_AWAITED or WAIT_DONE */
    bool done;             /* turn: set by teffi_wait_mark_done_and_resume */
    bool orphan;           /* turn: the context ended before the signal */
    bool awaited;          /* its context is suspended, or sleeps in teffi_await_any, for this wait,
                            * maybe among others */
    /* Called after the signal, before the context continues, on the worker's or thread's own stack.
     * For an orphan it frees the wait; if the group has ended, on the signalling thread. NULL only
     * if the wait cannot become an orphan. A thread's is set to NULL after the call. */
    void (*arrive)(struct teffi_wait *wait);
} teffi_wait;

/* teffi_wait_init - initialize a wait of ctx; before another thread can signal it. in: arrive, see
 * teffi_wait. */
void teffi_wait_init(teffi_wait *wait, struct teff_ctx *ctx, void (*arrive)(teffi_wait *wait));

/* teffi_wait_notify_waiter - the event has happened. The wait may be gone when this returns. */
void teffi_wait_notify_waiter(teffi_wait *wait);

/* teffi_wait_is_done - has the signal arrived? For the context that the wait belongs to. */
bool teffi_wait_is_done(const teffi_wait *wait);

/* teffi_wait_mark_done_and_resume - mark the wait of a TEFFI_ITEM_WAIT item as done, call arrive(),
 * and resume the turn's fiber if no other awaited wait is left. A group's handler calls it.
 * out:  true: the fiber was resumed and has ended; *ctx is its context. */
bool teffi_wait_mark_done_and_resume(teffi_item *item, struct teff_ctx **ctx);

/* teffi_await - wait until all n are done. teffi_await_any - wait until at least one is; n >= 1.
 * in:   waits, all of ctx; one may be listed twice.
 * runs: in a turn: suspends it; on a thread: blocks it. A grain's turn that was suspended does not
 *       return, but ends here, if it is doomed or the silo has no lease any more. */
void teffi_await(struct teff_ctx *ctx, teffi_wait *const *waits, size_t n);
void teffi_await_any(struct teff_ctx *ctx, teffi_wait *const *waits, size_t n);

/* teffi_ctx_sleep - wait for ms milliseconds. */
void teffi_ctx_sleep(struct teff_ctx *ctx, uint32_t ms);

/* teffi_ctx_run_off_fiber - run fn(arg) on the worker's own stack, not on the fiber's, and return
 * when it has ended: for functions that need more stack than a fiber has, such as unpacking. If
 * the context is a thread's, fn runs on the thread's stack. */
void teffi_ctx_run_off_fiber(struct teff_ctx *ctx, void (*fn)(void *arg), void *arg);
