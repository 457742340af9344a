/* timer.c - timers of processes. A timer that fires is pushed to the group as an event. The life
 * that takes it off the group frees it; if the group is COMPLETE, it is freed here. */
#include "process/events.h"

#include <string.h>
#include "memory/pool.h"
#include "process/send.h"

/* The timer's callback: pushes the timer's event to the process's group. */
static void push_timer_event(teffi_timer *timer)
{
    teffi_timer_event *t = teffi_container(timer, teffi_timer_event, timer);
    teff_process *p = t->process;
    if (teffi_group_push(&p->group, &t->e.item)) {
        teffi_process_wake(p);
        return;
    }
    /* The process has ended. Its last turn may have used the timer. The acquire load in
     * teffi_group_state_of orders that use before the free below. */
    (void)teffi_group_state_of(&p->group);
    teffi_pool_put(t, sizeof *t);
}

teffi_timer_event *teffi_timer_event_set(teff_process *p, uint64_t delay_ns, uint64_t tag)
{
    teffi_timer_event *t = teffi_pool_get(sizeof *t);
    if (!t)
        return NULL;
    memset(t, 0, sizeof *t);
    teffi_exec *exec = p->system->exec;
    t->e.item.kind = TEFFI_ITEM_TIMER;
    t->e.generation = atomic_load_explicit(&p->generation, memory_order_relaxed);
    t->e.event = (teff_event){.kind = TEFF_EVENT_TIMER, .tag = tag};
    t->timer.fire = push_timer_event;
    t->process = p;
    LIST_INSERT_HEAD(&p->timers, t, link);
    exec->ops->timer_set(exec, &t->timer, teffi_now(exec->platform) + delay_ns);
    return t;
}

void teffi_timer_event_cancel(teff_process *p, teffi_timer_event *t)
{
    teffi_exec *exec = p->system->exec;
    if (exec->ops->timer_cancel(exec, &t->timer)) {
        LIST_REMOVE(t, link);
        teffi_pool_put(t, sizeof *t);
    } else {
        t->muted = true; /* the timer is firing or has fired: t is freed once its event is taken */
    }
}

void teffi_timer_events_cancel_all(teff_process *p)
{
    teffi_exec *exec = p->system->exec;
    teffi_timer_event *t = LIST_FIRST(&p->timers);
    LIST_INIT(&p->timers);
    while (t) {
        teffi_timer_event *next = LIST_NEXT(t, link);
        /* A timer that is firing, or has fired, is freed later, with its event. */
        if (exec->ops->timer_cancel(exec, &t->timer))
            teffi_pool_put(t, sizeof *t);
        t = next;
    }
}

teff_err teff_process_set_timer(teff_process *me, uint32_t ms, uint64_t tag)
{
    return teffi_timer_event_set(me, ms * 1000000ull, tag) ? TEFF_OK : TEFF_E_NOMEM;
}
