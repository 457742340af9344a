/* direct.h - a turn of another group, run at once inside the turn that wants its result: no queue,
 * no wake-up, no other worker.
 * Way:     grains/direct -> [direct] -> the callee's fiber, resumed from within the caller's
 * Threads: the worker of the turn that asks, from may to done.
 * Source:  L4's direct process switch; Orleans and Erlang have none: they queue
 *
 *     if (teffi_direct_may(exec) && teffi_group_claim(group)) {
 *         teffi_group *outer = teffi_direct_enter(exec, group);
 *         ... resume a fiber as a turn of group ...
 *         teffi_direct_leave(exec, outer);
 *         ... what the group's handle does after a turn, but for what runs others ...
 *         teffi_direct_done(exec, group);
 *     }
 *
 * The claimed group is the caller's until done: pushes to it only append. For everybody the inner
 * group is what runs meanwhile (current, dumps, warnings, preemption, fork); the time is the outer
 * one's run's. When that slice is over the inner turn gives way at its next call, to the tail of
 * the global queue, and so does the outer one, which then waits for it. What a turn may do so:
 *  - TEFFI_DIRECT_DEPTH turns inside one another, each on a stack of its own; then the queue.
 *  - TEFFI_DIRECT_MAX in one run of a group, as many as items. Then it gives way: groups that wait
 *    on this worker get their turns, and its timers are looked at. Those that it asked for and
 *    could not run count too, so that what they were queued for comes to run.
 *  - none when its slice is over, when a thread waits for a slot, when the end comes, in a blocking
 *    region; and none at all where a policy orders the groups (levels, priorities) or hooks count
 *    their runs: there the order is the queue's. */
#ifndef TEFFI_SCHED_DIRECT_H
#define TEFFI_SCHED_DIRECT_H

#include "sched/exec.h"

enum { TEFFI_DIRECT_DEPTH = 16, TEFFI_DIRECT_MAX = 256, TEFFI_DIRECT_BESIDE_MS = 5 };

typedef struct teffi_direct_ops {
    bool (*may)(teffi_exec *exec, bool beside);
    teffi_group *(*enter)(teffi_exec *exec, teffi_group *group);
    void (*leave)(teffi_exec *exec, teffi_group *outer);
    void (*gave_way)(teffi_exec *exec, teffi_group *group);
} teffi_direct_ops;

/* The real executor's. */
extern const teffi_direct_ops teffi_direct_real;

/* teffi_direct_may - may the turn that runs here run another one now? May let others run first:
 * after it this may be another thread.
 * in:   beside: the outer turn need not wait for it. Then only for TEFFI_DIRECT_BESIDE_MS of a run:
 *       what takes long had better be spread over the workers. */
static inline bool teffi_direct_may(teffi_exec *exec, bool beside)
{
    return exec->ops->direct && exec->ops->direct->may(exec, beside);
}

/* teffi_direct_enter - group, claimed, is what this thread runs. out: for teffi_direct_leave. */
static inline teffi_group *teffi_direct_enter(teffi_exec *exec, teffi_group *group)
{
    return exec->ops->direct->enter(exec, group);
}

static inline void teffi_direct_leave(teffi_exec *exec, teffi_group *outer)
{
    exec->ops->direct->leave(exec, outer);
}

/* teffi_direct_done - the claim is over: what came meanwhile runs soon; a turn that gave way in its
 * middle goes on behind all others. The group may be anybody's when this returns. */
static inline void teffi_direct_done(teffi_exec *exec, teffi_group *group)
{
    if (teffi_group_yielded(group))
        exec->ops->direct->gave_way(exec, group);
    else
        teffi_group_release(group);
}

#endif
