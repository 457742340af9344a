/* closure.h - a work item that is a function: for a group, or for nobody (the null context).
 * Way:     teff_post, the runtime -> [closure] -> a group's queue -> run
 * Threads: push from anywhere; run in the group's turns, on a worker's stack. It must not wait.
 * Source:  Orleans' ClosureWorkItem; TryExecuteTaskInline for teffi_closure_do */
#ifndef TEFFI_SCHED_CLOSURE_H
#define TEFFI_SCHED_CLOSURE_H

#include "sched/exec.h"

enum { TEFFI_ITEM_CLOSURE = 101 }; /* item.kind: hand it to teffi_closure_arrived */

typedef struct teffi_closure { /* zeroed but for run and drop; the owner's memory */
    teffi_item item;
    void (*run)(struct teffi_closure *closure); /* the closure may be freed in it */
    /* In the place of run, when the executor ended first. May be NULL. */
    void (*drop)(struct teffi_closure *closure);
    _Atomic bool queued; /* acq_rel: a pusher that finds it false owns the closure */
} teffi_closure;

typedef enum teffi_done {
    TEFFI_RAN,    /* in place: it is over */
    TEFFI_QUEUED, /* it will run, or be dropped */
    TEFFI_REFUSED /* neither: it waits in a queue already, or the group is COMPLETE */
} teffi_done;

/* teffi_closure_push - queue it behind what the group has.
 * in:   group, whose handler takes TEFFI_ITEM_CLOSURE: activations, system targets, tasks, an
 *       executor's null. The group's memory lives until the push has returned.
 * out:  TEFFI_QUEUED, TEFFI_REFUSED. */
teffi_done teffi_closure_push(teffi_group *group, teffi_closure *closure);

/* teffi_closure_do - run it in place when that is safe, else push it.
 * in:   as for push.
 * out:  TEFFI_RAN when all of this holds, else as push:
 *       - this thread runs a turn of this very group: no other turn of it can run meanwhile, and
 *         what the closure starts finds the same context. Work never runs on another's behalf;
 *       - the closure is at hand: what waits in a queue stays there and keeps its place;
 *       - fewer than TEFFI_INLINE_MAX closures run inside one another here.
 * It overtakes what is queued: who needs the order pushes. */
enum { TEFFI_INLINE_MAX = 8 };
teffi_done teffi_closure_do(teffi_group *group, teffi_closure *closure);

/* teffi_closure_arrived - from a group's handler: run it. _drop: it was drained when nothing runs
 * any more. */
void teffi_closure_arrived(teffi_item *item);
void teffi_closure_drop(teffi_item *item);

/* teffi_closure_new - on the heap, frees itself when it has run or was dropped.
 * out:  NULL when memory is out. */
teffi_closure *teffi_closure_new(void (*fn)(void *arg), void *arg);

/* teffi_null_init - exec's own group for items without a context: they run one after another, in
 * the order in which they were pushed. teffi_null_fini - drops what is queued; exec has stopped. */
void teffi_null_init(teffi_exec *exec);
void teffi_null_fini(teffi_exec *exec);

#endif
