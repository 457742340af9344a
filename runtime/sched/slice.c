/* slice.c - when must a turn give way in its middle, and how does it?
 * Way:     monitor (the slice is over) -> [slice, at a call of teff's] -> group_run -> global queue
 * Threads: the turn's own, on its fiber; it may go on in another thread.
 * Source:  Go's co-operative preemption: a flag that sysmon sets and that every call looks at
 *
 * The turn's fiber is suspended in the middle of its group's handle, which returns at once. The
 * group handles nothing else until the fiber has gone on: for everybody the turn is still running,
 * it only gets no time. So a grain that gives way lets no other request in. */
#include "sched/worker.h"

bool teffi_may_give_way(const teffi_worker *w)
{
    const teffi_fiber *fiber = teffi_fiber_current();
    /* NULL: help looks for a turn, on the waiting one's fiber. */
    const teffi_group *group = teffi_run_own((teffi_worker *)(uintptr_t)w);
    return fiber && fiber != w->under && group && group->ops->resume && !w->blocking;
}

/* Not inlined: teff_reschedule is called in each call of a turn's, and does this in few. */
__attribute__((noinline)) bool teffi_give_way(teffi_worker *w, bool stays)
{
    if (!teffi_may_give_way(w))
        return false;
    teffi_fiber *fiber = teffi_fiber_current();
    teffi_gave_way gave = {.fiber = fiber, .stays = stays};
    teffi_group_yield(teffi_run_own(w), &gave);
    teffi_fiber_suspend(fiber);
    return true;
}

__attribute__((noinline)) bool teff_reschedule(void)
{
    teffi_worker *w = teffi_own_worker;
    /* relaxed: a moment later is soon enough */
    if (!w || !atomic_load_explicit(&w->due, memory_order_relaxed))
        return false;
    return teffi_give_way(w, false);
}
