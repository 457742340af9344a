/* direct.h - turns in place: a turn of another group runs at once inside the turn that wants its
 * result, without queue, wake-up or other worker.
 * Way:     grains/request/direct -> [direct] -> the callee's fiber, resumed on the caller's
 * Threads: the worker of the calling turn, from teffi_direct_may_run_in_place to
 * teffi_direct_end_claim.
 * Source:  Liedtke 1993, Improving IPC by kernel design: direct process switch */
#pragma once

#include "group/exec.h"

/* Use:
 *
 *     if (teffi_direct_may_run_in_place(exec, false) && teffi_group_claim(group)) {
 *         teffi_group *outer = teffi_direct_enter(exec, group);
 *         ... resume a fiber as a turn of group ...
 *         teffi_direct_leave(exec, outer);
 *         ... what the group's handle does after a turn, without running other items ...
 *         teffi_direct_end_claim(exec, group);
 *     }
 *
 * The caller owns the claimed group until teffi_direct_end_claim: pushes to it only append.
 * Meanwhile the inner group is the current one (dumps, warnings, preemption, fork), between its own
 * hooks before and after.
 * The caller pays: by policy multilevel the time is charged to the outer group, and by policy
 * priority the inner turn runs at the outer group's priority.
 * When the slice is over, the inner turn yields at its next call, to the tail of the global queue.
 * Then the outer turn yields as well, and waits for the inner one. Limits:
 *  - TEFFI_DIRECT_DEPTH nested turns, each on a stack of its own.
 *  - TEFFI_DIRECT_MAX turns in one run of a group, as many as items. Then the turn yields, so that
 *    groups queued on this worker run and its timers are checked. Failed attempts count too, since
 *    each queues a request.
 *  - No turn in place when the slice is over, a worker waits for a processor, or the scheduler
 *    stops; nor in a blocking or preemptible region; nor, by policy priority, while a group waits
 *    that is more urgent than the outer one. */
enum { TEFFI_DIRECT_DEPTH = 16, TEFFI_DIRECT_MAX = 256, TEFFI_DIRECT_ASYNC_MS = 5 };

/* Called by the functions below, which say what may, enter and leave do. yielded ends the claim of
 * a group whose turn in place has yielded, and queues the group as teffi_direct_end_claim says. */
typedef struct teffi_direct_ops {
    bool (*may)(teffi_exec *exec, bool async);
    teffi_group *(*enter)(teffi_exec *exec, teffi_group *group);
    void (*leave)(teffi_exec *exec, teffi_group *outer);
    void (*yielded)(teffi_exec *exec, teffi_group *group);
} teffi_direct_ops;

/* teffi_direct_may_run_in_place - may the turn that runs on this thread run another turn in place?
 * If the limits above allow it, this call counts as one of the run's TEFFI_DIRECT_MAX turns. If
 * these are used up, the turn yields first, and may resume on another thread.
 * in:   async: true: the turn does not await the other turn's result at once.
 * out:  false also if async is true and TEFFI_DIRECT_ASYNC_MS have passed since this function was
 *       first called in this run of the group, so that long work is spread over the workers. */
static inline bool teffi_direct_may_run_in_place(teffi_exec *exec, bool async)
{
    return exec->ops->direct && exec->ops->direct->may(exec, async);
}

/* teffi_direct_enter - begin a turn of group, which the caller has claimed. out: the outer group,
 * for teffi_direct_leave. */
static inline teffi_group *teffi_direct_enter(teffi_exec *exec, teffi_group *group)
{
    return exec->ops->direct->enter(exec, group);
}

/* teffi_direct_leave - make outer the current group again, after the inner turn has suspended,
 * yielded or ended. */
static inline void teffi_direct_leave(teffi_exec *exec, teffi_group *outer)
{
    exec->ops->direct->leave(exec, outer);
}

/* teffi_direct_end_claim - end the claim. What happens to the group depends on its turn:
 *  - If the turn has not yielded, the group is queued if items were pushed meanwhile.
 *  - If the turn yielded in teff_join_wait, the group stays RUNNING until teffi_group_make_ready.
 *  - If the turn yielded in teff_fork, the group is queued in this worker's deque.
 *  - If the turn yielded elsewhere, the group is queued behind all other groups.
 * When this function returns, another worker may own the group, or, if the group was COMPLETE, its
 * memory may be freed. */
static inline void teffi_direct_end_claim(teffi_exec *exec, teffi_group *group)
{
    if (teffi_group_has_yielded_turn(group))
        exec->ops->direct->yielded(exec, group);
    else
        teffi_group_release_claim(group);
}
