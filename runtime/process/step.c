/* step.c - one step: which events it gets, what it decided, what happens with its commands.
 * Way:     process.c -> [gather -> ops->step -> decided] -> yield dispatch | the next status
 * Threads: the process's turn, on the worker's stack or the process's fiber. */
#include "process/process.h"

static teff_err decide(teff_step *out, teffi_next status)
{
    out->status = status;
    out->decided = true;
    out->done = false;
    return TEFF_OK;
}

teff_err teff_step_done(teff_step *out)
{
    (void)decide(out, TEFFI_STATUS_IDLE);
    out->done = true;
    return TEFF_OK;
}

teff_err teff_step_continue(teff_step *out)
{
    return decide(out, TEFFI_STATUS_CONTINUE);
}

teff_err teff_step_block(teff_step *out)
{
    return decide(out, TEFFI_STATUS_BLOCK);
}

teff_err teff_step_idle(teff_step *out)
{
    return decide(out, TEFFI_STATUS_IDLE);
}

teff_err teffi_step_retry(teff_step *out)
{
    return decide(out, TEFFI_STATUS_RETRY);
}

teff_err teff_step_upgrade(teff_step *out, const teff_process_ops *ops, void *self,
                           const char *method, const void *input, size_t len)
{
    if (!ops->step && !ops->run)
        return TEFF_E_INVALID;
    teffi_start *start = teffi_start_new(method, input, len);
    if (!start)
        return TEFF_E_NOMEM;
    teffi_start_free(out->upgrade_start);
    out->upgrade = ops;
    out->upgrade_self = self;
    out->upgrade_start = start;
    return decide(out, TEFFI_STATUS_START);
}

teff_err teff_step_yield(teff_step *out, uint32_t command, uint64_t tag, const void *data,
                         size_t len)
{
    teff_err err;
    (void)teff_reschedule();
    teffi_yield *yield = teffi_yield_new(out->process, command, tag, data, len, &err);
    if (!yield)
        return err;
    *out->last = yield;
    out->last = &yield->next;
    return TEFF_OK;
}

teff_process *teff_step_process(teff_step *out)
{
    return out->process;
}

/* ---- around the step ---- */

typedef struct batch {
    teffi_events given; /* the nodes behind events, where they have any */
    uint32_t n;
    teff_event events[TEFFI_STEP_MAX];
} batch;

static void give(batch *b, teffi_event *event)
{
    b->events[b->n++] = event->event;
    teffi_events_push(&b->given, event);
}

/* Cancel, completions and timers before messages; a step that is repeated gets what it had. */
static void gather(teff_process *p, const teff_process_ops *ops, batch *b)
{
    teffi_event *event;
    uint32_t max = ops->step_max && ops->step_max < TEFFI_STEP_MAX ? ops->step_max : TEFFI_STEP_MAX;
    if (p->status == TEFFI_STATUS_RETRY)
        max = p->retry_n;
    if (p->cancel) {
        b->events[b->n++] = (teff_event){.kind = TEFF_EVENT_CANCEL};
        p->cancel = false;
        max = p->status == TEFFI_STATUS_RETRY ? 1 : max;
    }
    while (b->n < max && (event = teffi_events_pop(&p->urgent)))
        give(b, event);
    while (b->n < max && p->status != TEFFI_STATUS_BLOCK && (event = teffi_events_pop(&p->mail)))
        give(b, event);
}

static void give_back(teff_process *p, batch *b)
{
    p->retry_n = 0;
    while (b->given.head) {
        teffi_event *event = teffi_events_pop(&b->given);
        teffi_events *list = event->item.kind == TEFFI_ITEM_MESSAGE ? &p->mail : &p->urgent;
        teffi_events rest = *list;
        *list = (teffi_events){0};
        teffi_events_push(list, event);
        list->head->item.next = rest.head ? &rest.head->item : NULL;
        list->tail = rest.head ? rest.tail : list->tail;
        p->retry_n++;
    }
}

static void used(teff_process *p, batch *b)
{
    teffi_event *event;
    while ((event = teffi_events_pop(&b->given)))
        teffi_event_free(p, event);
}

static void send_commands(teff_process *p, teff_step *out, bool drop)
{
    teffi_yield *yield = out->first;
    *out->last = NULL;
    while (yield) {
        teffi_yield *next = yield->next;
        if (drop)
            teffi_yield_drop(p, yield);
        else
            teffi_yield_dispatch(p, yield);
        yield = next;
    }
}

/* The PID, the mailbox, timers and yields under way are the process's and stay. */
static void upgrade(teff_process *p, const teff_step *out)
{
    const teff_process_ops *old = atomic_load_explicit(&p->ops, memory_order_relaxed);
    if (old->close)
        old->close(p->self);
    p->self = out->upgrade_self;
    p->held = out->upgrade_start;
    atomic_store_explicit(&p->ops, out->upgrade, memory_order_relaxed);
    atomic_store_explicit(&p->group.priority, out->upgrade->priority, memory_order_relaxed);
}

static void settle(teff_process *p, teff_step *out, teff_err err)
{
    p->over = err || out->done;
    p->err = (uint16_t)err;
    if (!out->decided)
        out->status = out->first ? TEFFI_STATUS_BLOCK : TEFFI_STATUS_IDLE;
    if (out->status == TEFFI_STATUS_BLOCK && !p->n_yields && !p->timers)
        out->status = TEFFI_STATUS_IDLE;
    p->status = (uint8_t)out->status;
    if (!p->over && out->status == TEFFI_STATUS_START)
        upgrade(p, out);
    else
        teffi_start_free(out->upgrade_start);
    send_commands(p, out, err != TEFF_OK);
}

void teffi_process_step(teff_process *p)
{
    const teff_process_ops *ops = atomic_load_explicit(&p->ops, memory_order_relaxed);
    batch b __attribute__((uninitialized)); /* 3 KiB that need no zeroes */
    b.n = 0;
    b.given = (teffi_events){0};
    gather(p, ops, &b);
    p->poked = false;
    teff_step out = {.process = p, .last = &out.first};
    teff_err err = ops->step(p->self, b.events, b.n, &out);
    teffi_process_given(p, b.n);
    if (!err && out.status == TEFFI_STATUS_RETRY)
        give_back(p, &b);
    else
        used(p, &b);
    settle(p, &out, err);
}
