/* wait.c - waiting in the middle of a process's own function.
 * With a fiber, turn.c resumes it when ready() is true. Without one, the turn takes the process's
 * events off the group, runs other groups nested while there are any, then hands its processor over
 * and sleeps until an item is pushed. */
#include "process/turn.h"

#include "process/count.h"

/* Pushes the again item, which makes the group run the process again. It carries no event. */
void teffi_process_requeue(teff_process *p)
{
    if (p->again_queued)
        return;
    p->again_queued = true;
    (void)teffi_group_push(&p->group, &p->again);
}

/* out: true also if the process is being forced to end. */
static bool wait_is_over(teff_process *p, teffi_waiting *w)
{
    return p->forced || w->ready(p, w);
}

/* Sleeps until an item is pushed, unless there is one already. Other threads use the worker's
 * processor meanwhile. */
static void sleep_until_item(teff_process *p)
{
    teffi_exec *exec = p->system->exec;
    /* seq_cst: orders this store before the check for items; pairs with teffi_process_wake(), which
     * pushes an item and then loads `sleeping` */
    atomic_store_explicit(&p->sleeping, true, memory_order_seq_cst);
    if (!teffi_process_dispatch_items(p)) {
        exec->ops->blocking_begin(exec);
        teffi_parker_wait(&p->parker, UINT64_MAX);
        exec->ops->blocking_end(exec);
    }
    atomic_store_explicit(&p->sleeping, false, memory_order_relaxed);
}

/* Waits without a fiber: runs other groups on top of this stack, or sleeps if there are none. */
static void wait_without_fiber(teff_process *p, teffi_waiting *w)
{
    teffi_exec *exec = p->system->exec;
    for (;;) {
        (void)teffi_process_dispatch_items(p);
        if (wait_is_over(p, w))
            return;
        if (exec->ops->run_nested && exec->ops->run_nested(exec))
            continue;
        if (exec->ops->park) /* only a simulated executor has park; it runs work in this thread */
            exec->ops->park(exec);
        else
            sleep_until_item(p);
    }
}

teff_err teffi_process_wait(teff_process *p, teffi_waiting *w)
{
    teffi_may_suspend();
    p->wait = w;
    if (p->fiber) {
        while (!wait_is_over(p, w))
            teffi_fiber_suspend(p->fiber);
    } else {
        wait_without_fiber(p, w);
    }
    bool ready = w->ready(p, w);
    p->wait = NULL;
    return ready ? TEFF_OK : TEFF_E_CLOSED;
}

/* ---- conditions of run functions ---- */

static bool has_event(teff_process *p, teffi_waiting *w)
{
    (void)w;
    return p->cancel || p->urgent.head || p->mail.head;
}

static bool has_awaited_event(teff_process *p, teffi_waiting *w)
{
    (void)p;
    return w->arrived != NULL;
}

static bool has_awaited_event_or_cancel(teff_process *p, teffi_waiting *w)
{
    return w->arrived || p->cancel;
}

/* teff_process_yield has pushed the `again` item. out: true: it was taken off the group. */
static bool again_item_was_taken(teff_process *p, teffi_waiting *w)
{
    (void)w;
    return !p->again_queued;
}

/* Frees the event in p->held, which the process got from its last receive or ask, and stores event
 * there. event may be NULL. */
static void hold_event(teff_process *p, teffi_event *event)
{
    if (p->held)
        teffi_event_free(p, p->held);
    p->held = event;
}

teff_err teff_process_receive(teff_process *me, teff_event *event)
{
    teffi_waiting w = {.ready = has_event};
    (void)teff_yield_if_due();
    hold_event(me, NULL);
    teff_err err = teffi_process_wait(me, &w);
    if (err)
        return err;
    teffi_process_add_counts(me, 0, 1, 0);
    if (me->cancel) {
        me->cancel = false;
        *event = (teff_event){.kind = TEFF_EVENT_CANCEL};
        return TEFF_OK;
    }
    hold_event(me, teffi_events_pop(me->urgent.head ? &me->urgent : &me->mail));
    *event = ((teffi_event *)me->held)->event;
    return TEFF_OK;
}

teff_err teff_process_command(teff_process *me, uint32_t command, uint64_t tag, const void *data,
                              size_t len)
{
    teff_err err;
    (void)teff_yield_if_due();
    teffi_command *c = teffi_command_new(me, command, tag, data, len, &err);
    if (c)
        teffi_command_dispatch(me, c);
    return err;
}

teff_err teff_process_ask(teff_process *me, uint32_t command, const void *data, size_t len,
                          teff_event *completion)
{
    teff_err err;
    teffi_command *c = teffi_command_new(me, command, 0, data, len, &err);
    if (!c)
        return err;
    hold_event(me, NULL);
    teffi_waiting w = {.ready = has_awaited_event, .blocked = true, .awaits = &c->e};
    teffi_command_dispatch(me, c);
    err = teffi_process_wait(me, &w);
    if (err)
        return err;
    hold_event(me, w.arrived);
    teffi_process_add_counts(me, 0, 1, 0);
    if (completion)
        *completion = w.arrived->event;
    return w.arrived->event.err;
}

teff_err teff_process_sleep(teff_process *me, uint32_t ms)
{
    teffi_timer_event *timer = teffi_timer_event_set(me, ms * 1000000ull, 0);
    if (!timer)
        return TEFF_E_NOMEM;
    teffi_waiting w = {.ready = has_awaited_event_or_cancel, .blocked = true, .awaits = &timer->e};
    teff_err err = teffi_process_wait(me, &w);
    if (w.arrived) {
        teffi_event_free(me, w.arrived);
        return TEFF_OK;
    }
    teffi_timer_event_cancel(me, timer);
    return err ? err : TEFF_E_CANCELLED;
}

teff_err teff_process_yield(teff_process *me)
{
    teffi_exec *exec = me->system->exec;
    teffi_waiting w = {.ready = again_item_was_taken};
    if (!me->fiber && exec->ops->run_nested) /* without a fiber, one other group runs nested */
        (void)exec->ops->run_nested(exec);
    teffi_process_requeue(me);
    return teffi_process_wait(me, &w);
}
