/* wait.c - waiting in the middle of a process's own function: on its fiber, or nested.
 * Way:     receive, ask, sleep, pause -> [wait] -> suspend | run others here | sleep
 * Threads: the process's turn. A fiber is resumed by process.c when what it waits for is there.
 * Without a fiber the turn goes on: it takes its own events off the group, runs other groups nested
 * while there are any, then sleeps outside its worker's slot until something is pushed. */
#include "process/process.h"

#include <stdlib.h>
#include "base/bug.h"

void teffi_process_again(teff_process *p)
{
    if (p->again_queued)
        return;
    p->again_queued = true;
    (void)teffi_group_push(&p->group, &p->again);
}

static bool is_over(teff_process *p, teffi_waiting *w)
{
    return p->forced || w->ready(p, w);
}

bool teffi_process_take_items(teff_process *p)
{
    teffi_item *item = teffi_group_drain(&p->group);
    bool any = item != NULL;
    for (; item; item = teffi_group_drain(&p->group))
        teffi_process_take_in(p, item);
    return any;
}

static void sleep_until_item(teff_process *p)
{
    teffi_exec *exec = p->system->exec;
    /* seq_cst: announced before the last look; pairs with teffi_process_woken after a push */
    atomic_store_explicit(&p->sleeping, true, memory_order_seq_cst);
    if (!teffi_process_take_items(p)) {
        exec->ops->blocking_begin(exec);
        teffi_parker_wait(&p->parker, UINT64_MAX);
        exec->ops->blocking_end(exec);
    }
    atomic_store_explicit(&p->sleeping, false, memory_order_relaxed);
}

static void wait_nested(teff_process *p, teffi_waiting *w)
{
    teffi_exec *exec = p->system->exec;
    for (;;) {
        (void)teffi_process_take_items(p);
        if (is_over(p, w))
            return;
        if (exec->ops->help && exec->ops->help(exec))
            continue;
        if (exec->ops->park)
            exec->ops->park(exec);
        else
            sleep_until_item(p);
    }
}

teff_err teffi_process_wait(teff_process *p, teffi_waiting *w)
{
    p->wait = w;
    if (p->fiber) {
        while (!is_over(p, w))
            teffi_fiber_suspend(p->fiber);
    } else {
        wait_nested(p, w);
    }
    bool ready = w->ready(p, w);
    p->wait = NULL;
    return ready ? TEFF_OK : TEFF_E_CLOSED;
}

/* ---- what run functions wait for ---- */

static bool has_event(teff_process *p, teffi_waiting *w)
{
    (void)w;
    return p->cancel || p->urgent.head || p->mail.head;
}

static bool has_answer(teff_process *p, teffi_waiting *w)
{
    (void)p;
    return w->answer != NULL;
}

static bool has_answer_or_cancel(teff_process *p, teffi_waiting *w)
{
    return w->answer || p->cancel;
}

static bool was_again(teff_process *p, teffi_waiting *w)
{
    (void)w;
    return !p->again_queued;
}

static void hold(teff_process *p, teffi_event *event)
{
    if (p->held)
        teffi_event_free(p, p->held);
    p->held = event;
}

teff_err teff_process_receive(teff_process *me, teff_event *event)
{
    teffi_waiting w = {.ready = has_event};
    (void)teff_reschedule();
    hold(me, NULL);
    teff_err err = teffi_process_wait(me, &w);
    if (err)
        return err;
    teffi_process_count(me, 0, 1, 0);
    if (me->cancel) {
        me->cancel = false;
        *event = (teff_event){.kind = TEFF_EVENT_CANCEL};
        return TEFF_OK;
    }
    hold(me, teffi_events_pop(me->urgent.head ? &me->urgent : &me->mail));
    *event = ((teffi_event *)me->held)->event;
    return TEFF_OK;
}

teff_err teff_process_start(teff_process *me, uint32_t command, uint64_t tag, const void *data,
                            size_t len)
{
    teff_err err;
    (void)teff_reschedule();
    teffi_yield *yield = teffi_yield_new(me, command, tag, data, len, &err);
    if (yield)
        teffi_yield_dispatch(me, yield);
    return err;
}

teff_err teff_process_ask(teff_process *me, uint32_t command, const void *data, size_t len,
                          teff_event *reply)
{
    teff_err err;
    teffi_yield *yield = teffi_yield_new(me, command, 0, data, len, &err);
    if (!yield)
        return err;
    hold(me, NULL);
    teffi_waiting w = {.ready = has_answer, .blocked = true, .awaits = &yield->e};
    teffi_yield_dispatch(me, yield);
    err = teffi_process_wait(me, &w);
    if (err)
        return err;
    hold(me, w.answer);
    teffi_process_count(me, 0, 1, 0);
    if (reply)
        *reply = w.answer->event;
    return w.answer->event.err;
}

teff_err teff_process_sleep(teff_process *me, uint32_t ms)
{
    teffi_ticker *ticker = teffi_ticker_set(me, ms * 1000000ull, 0);
    if (!ticker)
        return TEFF_E_NOMEM;
    teffi_waiting w = {.ready = has_answer_or_cancel, .blocked = true, .awaits = &ticker->e};
    teff_err err = teffi_process_wait(me, &w);
    if (w.answer) {
        teffi_event_free(me, w.answer);
        return TEFF_OK;
    }
    teffi_ticker_cancel(me, ticker);
    return err ? err : TEFF_E_CANCELLED;
}

teff_err teff_process_pause(teff_process *me)
{
    teffi_exec *exec = me->system->exec;
    teffi_waiting w = {.ready = was_again};
    if (!me->fiber && exec->ops->help)
        (void)exec->ops->help(exec);
    teffi_process_again(me);
    return teffi_process_wait(me, &w);
}
