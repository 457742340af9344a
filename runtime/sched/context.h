/* context.h - what runs on this thread: an activation, a system target, a task, a process, or null.
 * Way:     a turn's own code, closure.c -> [context] -> the executor's worker
 * Threads: any; the answer is this thread's. It is asked of one executor: a turn of another silo in
 *          the same program is null here.
 * Source:  Orleans' scheduling context (ActivationData, SystemTarget, or null)
 *
 * A context is its group, one to one. It follows a turn over awaits to whatever thread goes on with
 * it, since every step of a turn is an item of its group; nested turns (exec's help) each see their
 * own. Timers fire, and threads outside run, in the null context. */
#ifndef TEFFI_SCHED_CONTEXT_H
#define TEFFI_SCHED_CONTEXT_H

#include "sched/exec.h"

typedef struct teffi_context {
    teffi_context_kind kind;
    teffi_group *group; /* NULL: nothing runs here. With TEFFI_CONTEXT_NULL: exec's null group */
} teffi_context;

static inline teffi_context teffi_context_current(teffi_exec *exec)
{
    teffi_group *group = exec->ops->current ? exec->ops->current(exec) : NULL;
    if (!group || group == &exec->null)
        return (teffi_context){TEFFI_CONTEXT_NULL, group};
    return (teffi_context){group->ops->kind ? group->ops->kind : TEFFI_CONTEXT_GROUP, group};
}

static inline bool teffi_context_is(teffi_context a, teffi_context b)
{
    return a.group == b.group;
}

#endif
