/* step.c - gather events -> ops->step -> apply its decision -> dispatch its commands. */
#include "process/turn.h"

#include <string.h>
#include "memory/pool.h"
#include "process/count.h"

/* ---- the arguments of init, copied by spawn and upgrade ---- */

/* Copies the arguments of init into one block. out: *out: the block; NULL if there is neither a
 * method nor an input. */
teff_err teffi_start_args_new(const char *method, const void *input, size_t len, teffi_start **out)
{
    size_t name = method ? strlen(method) : 0;
    *out = NULL;
    if (!name && !len)
        return TEFF_OK;
    size_t at = (name + 1 + 15) / 16 * 16; /* offset of the input, aligned to 16 bytes */
    size_t bytes_len = at + len;
    teffi_start *start = teffi_pool_get(sizeof *start + bytes_len);
    if (!start)
        return TEFF_E_NOMEM;
    start->bytes_len = bytes_len;
    if (name)
        memcpy(start->bytes, method, name);
    start->bytes[name] = 0;
    if (len)
        memcpy(start->bytes + at, input, len);
    start->input = len ? start->bytes + at : NULL;
    start->len = len;
    *out = start;
    return TEFF_OK;
}

void teffi_start_args_free(teffi_start *start)
{
    if (start)
        teffi_pool_put(start, sizeof *start + start->bytes_len);
}

/* ---- decisions ---- */

static teff_err set_decision(teff_step *out, teffi_process_status status)
{
    out->status = status;
    out->decided = true;
    out->done = false;
    return TEFF_OK;
}

/* teff_step_done, _continue, _block, _idle, _upgrade and teffi_step_set_retry record the step's
 * decision. apply_decision() applies it after the step has returned. */
teff_err teff_step_done(teff_step *out)
{
    (void)set_decision(out, TEFFI_STATUS_IDLE);
    out->done = true;
    return TEFF_OK;
}

teff_err teff_step_continue(teff_step *out)
{
    return set_decision(out, TEFFI_STATUS_CONTINUE);
}

teff_err teff_step_block(teff_step *out)
{
    return set_decision(out, TEFFI_STATUS_BLOCK);
}

teff_err teff_step_idle(teff_step *out)
{
    return set_decision(out, TEFFI_STATUS_IDLE);
}

teff_err teffi_step_set_retry(teff_step *out)
{
    return set_decision(out, TEFFI_STATUS_RETRY);
}

teff_err teff_step_upgrade(teff_step *out, const teff_process_ops *ops, void *self,
                           const char *method, const void *input, size_t len)
{
    if (!ops->step && !ops->run)
        return TEFF_E_INVALID;
    teffi_start *start;
    teff_err err = teffi_start_args_new(method, input, len, &start);
    if (err)
        return err;
    teffi_start_args_free(out->upgrade_start);
    out->upgrade = ops;
    out->upgrade_self = self;
    out->upgrade_start = start;
    return set_decision(out, TEFFI_STATUS_START);
}

teff_err teff_step_command(teff_step *out, uint32_t kind, uint64_t tag, const void *data,
                           size_t len)
{
    teff_err err;
    (void)teff_yield_if_due();
    teffi_command *command = teffi_command_new(out->process, kind, tag, data, len, &err);
    if (!command)
        return err;
    if (out->last)
        out->last->next = command;
    else
        out->first = command;
    out->last = command;
    return TEFF_OK;
}

teff_process *teff_step_process(teff_step *out)
{
    return out->process;
}

/* ---- around the step ---- */

/* The events of a step. */
typedef struct batch {
    teffi_events given; /* the nodes of events; a cancel has none */
    uint32_t n;
    teff_event events[TEFFI_STEP_MAX];
} batch;

/* Copies event->event to the array that the step gets, and appends the teffi_event, which owns the
 * event's data, to b->given. */
static void batch_append(batch *b, teffi_event *event)
{
    b->events[b->n++] = event->event;
    teffi_events_push(&b->given, event);
}

/* Takes the events of the next step, in this order: a cancel, the other urgent events, messages. If
 * the status is BLOCK, takes no messages. A retried step gets the same event again, or a cancel
 * alone. */
static void gather_events(teff_process *p, const teff_process_ops *ops, batch *b)
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
        batch_append(b, event);
    while (b->n < max && p->status != TEFFI_STATUS_BLOCK && (event = teffi_events_pop(&p->mail)))
        batch_append(b, event);
}

/* Before a step is retried: puts the step's event back at the front of the list from which it was
 * taken. There is at most one event: a step can be retried only if the ops have step_max 1. */
static void put_event_back(teff_process *p, teffi_events *given)
{
    teffi_event *event = teffi_events_pop(given);
    p->retry_n = event != NULL;
    if (!event)
        return;
    teffi_events *list = event->item.kind == TEFFI_ITEM_MESSAGE ? &p->mail : &p->urgent;
    event->item.next = list->head ? &list->head->item : NULL;
    list->head = event;
    list->tail = list->tail ? list->tail : event;
}

/* Dispatches the step's commands. in: drop: true: the step has failed, so its commands are freed
 * instead. */
static void dispatch_or_free_commands(teff_process *p, teff_step *out, bool drop)
{
    teffi_command *command = out->first;
    while (command) {
        teffi_command *next = command->next;
        p->n_commands -= drop;
        if (drop)
            teffi_command_free(command);
        else
            teffi_command_dispatch(p, command);
        command = next;
    }
}

/* Closes the old self, then replaces p->ops and p->self. The PID, the mailbox, timers and commands
 * in flight stay. */
static void upgrade_process(teff_process *p, const teff_step *out)
{
    const teff_process_ops *old = atomic_load_explicit(&p->ops, memory_order_relaxed);
    if (old->close)
        old->close(p->self);
    if (p->held) /* an event that the step got from receive or ask */
        teffi_event_free(p, p->held);
    p->self = out->upgrade_self;
    p->held = out->upgrade_start;
    atomic_store_explicit(&p->ops, out->upgrade, memory_order_relaxed);
    atomic_store_explicit(&p->group.priority, out->upgrade->priority, memory_order_relaxed);
}

/* Applies the decision of a step, then dispatches the step's commands. A process that would wait
 * for completions and timers, but has none in progress, becomes idle instead of hanging. */
static void apply_decision(teff_process *p, teff_step *out, teff_err err)
{
    p->over = err || out->done;
    p->err = (uint16_t)(teffi_err_is_in_range(err) ? err : TEFF_E_FAILED);
    if (!out->decided)
        out->status = out->first ? TEFFI_STATUS_BLOCK : TEFFI_STATUS_IDLE;
    bool waits_for_none =
        out->status == TEFFI_STATUS_BLOCK && !p->n_commands && LIST_EMPTY(&p->timers);
    if (waits_for_none || p->over) /* an upgrade is not applied if the process is over */
        out->status = TEFFI_STATUS_IDLE;
    p->status = out->status;
    if (out->status == TEFFI_STATUS_START)
        upgrade_process(p, out);
    else
        teffi_start_args_free(out->upgrade_start);
    dispatch_or_free_commands(p, out, err != TEFF_OK);
}

/* Adds a step's n events to n_uncounted, which run_turn later adds to the counters. If n_uncounted
 * has reached TEFFI_STEP_MAX, adds it to the counters at once, since it has only 8 bits. */
static void count_events(teff_process *p, unsigned n)
{
    p->n_uncounted = (uint8_t)(p->n_uncounted + n);
    if (p->n_uncounted < TEFFI_STEP_MAX)
        return;
    teffi_process_add_counts(p, 0, p->n_uncounted, 0);
    p->n_uncounted = 0;
}

/* Runs after ops->step has returned: frees the step's events (or puts the event back for a retry),
 * and applies the step's decision. in: given: the step's events. err: what ops->step returned. */
void teffi_step_end(teff_process *p, teffi_events given, teff_step *out, teff_err err)
{
    if (!err && out->status == TEFFI_STATUS_RETRY)
        put_event_back(p, &given);
    else
        teffi_events_free(p, &given);
    apply_decision(p, out, err);
}

void teffi_process_run_step(teff_process *p)
{
    const teff_process_ops *ops = atomic_load_explicit(&p->ops, memory_order_relaxed);
    batch b __attribute__((uninitialized)); /* 3.5 KiB that need no zeroes */
    b.n = 0;
    b.given = (teffi_events){0};
    gather_events(p, ops, &b);
    p->poked = false;
    teff_step out = {.process = p};
    teff_err err = ops->step(p->self, b.events, b.n, &out);
    count_events(p, b.n);
    teffi_step_end(p, b.given, &out, err);
}
