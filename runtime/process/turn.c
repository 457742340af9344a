/* turn.c - turns of a process: init, steps or run function, close.
 * Way:     group -> [handle_item -> run_turn] -> step | fiber -> ... -> end_process
 * States:  the group's, see group.h; BLOCKED while messages do not resume it
 * Threads: the process's turn, on the worker's own stack; units may run on the process's fiber.
 *          A turn first takes up to TEFFI_STEP_MAX items off the group, so that one step gets many
 *          events. If a step leaves work, the again item is pushed, behind the other items. */
#include "process/turn.h"

#include <stdio.h>
#include "base/bug.h"
#include "memory/pool.h"
#include "process/count.h"
#include "process/send.h"

static teff_process *process_of(teffi_group *group)
{
    return teffi_container(group, teff_process, group);
}

static const teff_process_ops *ops_of(const teff_process *p)
{
    return atomic_load_explicit(&p->ops, memory_order_relaxed);
}

/* Marks the process to end with err after this turn. */
static void set_process_over(teff_process *p, teff_err err)
{
    p->over = true;
    p->err = (uint16_t)(teffi_err_is_in_range(err) ? err : TEFF_E_FAILED);
}

/* Calls ops->init with the arguments of spawn or upgrade. The status must be START. */
static void run_init(teff_process *p)
{
    const teff_process_ops *ops = ops_of(p);
    teffi_start *start = p->held;
    p->held = NULL;
    p->started = true;
    p->status = TEFFI_STATUS_CONTINUE;
    teff_err err = TEFF_OK;
    if (ops->init)
        err = start ? ops->init(p->self, p, start->bytes, start->input, start->len)
                    : ops->init(p->self, p, "", NULL, 0);
    teffi_start_args_free(start);
    if (err)
        set_process_over(p, err);
}

/* Runs a unit of work: the run function if ops has one, otherwise one step. If the status is START,
 * runs init before that. If the process is forced to end, only marks it as over. */
static void run_unit(teff_process *p)
{
    if (p->forced) {
        set_process_over(p, TEFF_E_CANCELLED);
        return;
    }
    if (p->status == TEFFI_STATUS_START && !p->over)
        run_init(p);
    if (p->over)
        return;
    if (ops_of(p)->run)
        set_process_over(p, ops_of(p)->run(p->self, p));
    else
        teffi_process_run_step(p);
}

/* The main function of a process's fiber. The fiber ends with the process, or after an upgrade to
 * ops without TEFF_PROCESS_FIBER. */
static void run_process_on_fiber(void *arg)
{
    teff_process *p = arg;
    run_unit(p);
    while (!p->over && ops_of(p)->flags & TEFF_PROCESS_FIBER) {
        teffi_fiber_suspend(p->fiber);
        run_unit(p);
    }
    struct teff_ctx *ctx = *teffi_fiber_local(p->fiber);
    if (ctx)
        p->system->calls.free_ctx(ctx);
}

/* Runs the next unit on the process's fiber, or continues the unit that is suspended there. If
 * there is no fiber, makes one; if that fails, marks the process as over. If the process is
 * forced to end, makes no fiber, since run_unit then runs none of the process's functions. */
static void start_or_resume_fiber(teff_process *p)
{
    if (!p->fiber && !p->forced) {
        p->fiber = teffi_fiber_new(p->system->exec->fibers, run_process_on_fiber, p);
        if (p->fiber)
            teffi_fiber_set_label(p->fiber, ops_of(p)->name);
        else
            set_process_over(p, TEFF_E_NOMEM);
    }
    if (!p->fiber)
        run_unit(p);
    else if (teffi_fiber_resume(p->fiber))
        p->fiber = NULL;
}

/* Runs a turn, which is a whole unit or the next part of a suspended unit. Counts the turn. */
static void run_turn(teff_process *p)
{
    const teffi_platform *platform = p->system->exec->platform;
    bool measure = p->system->opt.measure;
    uint64_t from = measure ? teffi_now(platform) : 0;
    if (p->fiber || ops_of(p)->flags & TEFF_PROCESS_FIBER)
        start_or_resume_fiber(p);
    else
        run_unit(p);
    teffi_process_add_counts(p, 1, p->n_uncounted, measure ? teffi_now(platform) - from : 0);
    p->n_uncounted = 0;
}

/* Does the process wait for something other than a message? If so, its group rests as BLOCKED,
 * otherwise as IDLE. */
static bool is_blocked(const teff_process *p)
{
    return p->wait ? p->wait->blocked
                   : p->status == TEFFI_STATUS_BLOCK || p->status == TEFFI_STATUS_RETRY;
}

/* Frees what `held` points to: before init a teffi_start, later an event. */
static void free_held(teff_process *p)
{
    if (p->held && p->status == TEFFI_STATUS_START)
        teffi_start_args_free(p->held);
    else if (p->held)
        teffi_event_free(p, p->held);
    p->held = NULL;
}

/* Ends the process: calls close, frees the events and timers, and calls the system's option
 * `ended`. Makes the group COMPLETE last. */
static void end_process(teff_process *p)
{
    teff_process_system *system = p->system;
    teff_pid pid = teff_process_pid(p);
    teff_err err = p->err;
    teffi_bug_if(p->fiber != NULL);
    free_held(p);
    p->forced = true; /* close must not wait */
    if (ops_of(p)->close)
        ops_of(p)->close(p->self);
    teffi_process_end_life(p);
    p->gone = true;
    if (system->opt.ended)
        system->opt.ended(system->opt.arg, pid, err);
    teffi_group_complete(&p->group);
}

/* After a turn: ends the process if it is over. Otherwise, if it does not wait and has more work,
 * pushes the again item, which makes the group run again. */
static __attribute__((noinline)) void end_or_requeue_process(teff_process *p)
{
    if (teffi_group_has_yielded_turn(&p->group)) /* the turn goes on in resume_yielded_turn */
        return;
    p->group.blocked = is_blocked(p);
    if (p->over)
        end_process(p);
    else if (!p->wait && teffi_process_has_work(p))
        teffi_process_requeue(p);
}

/* Runs a turn if the process can continue: its wait is over, or there is work for a step. */
static __attribute__((noinline)) void run_if_ready(teff_process *p)
{
    p->gathered = 0;
    if (p->wait ? !p->forced && !p->wait->ready(p, p->wait) : !teffi_process_has_work(p))
        return;
    run_turn(p);
    end_or_requeue_process(p);
}

/* ops->resume: continues a turn that has yielded. in: fiber is the same as p->fiber. */
static void resume_yielded_turn(teffi_group *group, teffi_fiber *fiber)
{
    teff_process *p = process_of(group);
    (void)fiber;
    run_turn(p);
    end_or_requeue_process(p);
}

/* May run_one_message handle this item? It must be a message, and no other item that was taken off
 * the group may be left (group.head is NULL); the process must be idle, have no fiber, and not be
 * measured. */
static bool can_run_one_message(const teff_process *p, const teffi_item *item)
{
    return !p->group.head && item->kind == TEFFI_ITEM_MESSAGE &&
           teffi_process_awaits_any_event(p) &&
           teffi_process_accepts_event(p, (const teffi_event *)(const void *)item) && !p->fiber &&
           !p->system->opt.measure;
}

/* Fast path, for most turns: runs a step with one message, without copying it into a batch. */
static __attribute__((noinline)) void run_one_message(teff_process *p, teffi_event *message)
{
    teff_step out = {.process = p};
    p->poked = false;
    teff_err err = ops_of(p)->step(p->self, &message->event, 1, &out);
    if (err || out.decided || out.first) {
        teffi_step_end(p, (teffi_events){message, message}, &out, err);
    } else { /* the process stays idle */
        teffi_mailbox_count_removal(p, message->event.len);
        teffi_pool_put(message, sizeof *message + message->event.len);
    }
    teffi_process_add_counts(p, 1, 1, 0);
    if (!teffi_process_awaits_any_event(p) || p->urgent.head || p->mail.head)
        end_or_requeue_process(p);
}

/* Puts an item into the process's lists and flags. Then calls run_if_ready if this was the last
 * item that was taken off the group (group.head is NULL), or after TEFFI_STEP_MAX items. */
static __attribute__((noinline)) void gather_item_and_run_if_ready(teff_process *p,
                                                                   teffi_item *item)
{
    if (item->kind == TEFFI_ITEM_MESSAGE && teffi_process_accepts_event(p, teffi_event_of(item)))
        teffi_events_push(&p->mail, teffi_event_of(item));
    else
        teffi_process_dispatch_item(p, item);
    if (p->gone || (p->group.head && ++p->gathered < TEFFI_STEP_MAX))
        return;
    run_if_ready(p);
}

/* ops->handle: handles one item of the group. */
static void handle_item(teffi_group *group, teffi_item *item)
{
    teff_process *p = process_of(group);
    if (can_run_one_message(p, item))
        run_one_message(p, teffi_event_of(item));
    else
        gather_item_and_run_if_ready(p, item);
}

/* ---- eviction from a full run queue (sched/policy/priority) ---- */

/* Refuses a message that was queued for an evicted process: if it is a request, responds with
 * TEFF_E_OVERLOADED; returns any other message to its sender. */
static void evict_message(teff_process *p, teffi_event *event)
{
    teff_process_system *system = p->system;
    atomic_fetch_add_explicit(&system->evicted, 1, memory_order_relaxed);
    if (event->event.kind == TEFF_EVENT_REQUEST) {
        teffi_process_refuse_request(system, &event->event, TEFF_E_OVERLOADED);
        teffi_event_free(p, event);
        return;
    }
    teffi_mailbox_count_removal(p, event->event.len);
    teffi_process_return_message(system, event, teffi_process_pid_of(p, event->generation));
}

/* If item is a message that p accepts, evicts it. If item is the again item and p has not ended,
 * evicts all messages in p->mail. Exception: if the status is RETRY, keeps the messages in p->mail,
 * since the next step gets the first of them again.
 * out: true: item was a message and was evicted. */
static bool evict_message_or_mail(teff_process *p, teffi_item *item)
{
    teffi_event *event;
    if (p->gone)
        return false;
    if (item->kind == TEFFI_ITEM_MESSAGE && teffi_process_accepts_event(p, teffi_event_of(item))) {
        evict_message(p, teffi_event_of(item));
        return true;
    }
    bool all = item->kind == TEFFI_ITEM_AGAIN && p->status != TEFFI_STATUS_RETRY;
    while (all && (event = teffi_events_pop(&p->mail)))
        evict_message(p, event);
    return false;
}

/* Ends an evicted process that has not started: init is not called, close is. */
static void end_unstarted_process(teff_process *p)
{
    p->again_queued = false;
    atomic_fetch_add_explicit(&p->system->evicted, 1, memory_order_relaxed);
    set_process_over(p, TEFF_E_OVERLOADED);
    end_process(p);
}

/* ops->evict: handles an item of a process whose group was evicted from the run queue. Calls
 * evict_message_or_mail(). If the item's kind is TEFFI_ITEM_AGAIN and no init of the process has
 * run, ends the process.
 * out: true: the item needs no handling; false: the caller passes it to handle_item. */
static bool evict_item(teffi_group *group, teffi_item *item)
{
    teff_process *p = process_of(group);
    bool starts = item->kind == TEFFI_ITEM_AGAIN && !p->gone && !p->started && !p->forced;
    bool evicted = evict_message_or_mail(p, item);
    if (starts)
        end_unstarted_process(p);
    else if (evicted && !group->head)
        run_if_ready(p); /* as gather_item_and_run_if_ready does after the last item */
    return evicted || starts;
}

/* ---- the group's operations ---- */

/* ops->ended: frees the slot and counts the end. The group stays COMPLETE, and refuses late items,
 * until the slot is used again. */
static void free_process_slot(teffi_group *group)
{
    teff_process *p = process_of(group);
    teff_process_system *system = p->system;
    teffi_slab_put(&system->slab, p);
    /* Counted last, so that the slot is free when teff_process_system_stop loads this count.
     * seq_cst: either that function loads the new count, or this thread loads stopping == true and
     * wakes it. */
    atomic_fetch_add_explicit(&system->cells[teffi_own_cell_index(system)].ended, 1,
                              memory_order_seq_cst);
    if (atomic_load_explicit(&system->stopping, memory_order_seq_cst))
        teffi_stoppers_wake(system);
}

static void describe_process(teffi_group *group, char *text, size_t size)
{
    teff_process *p = process_of(group);
    const teff_process_ops *ops = ops_of(p);
    uint32_t generation = atomic_load_explicit(&p->generation, memory_order_relaxed);
    snprintf(text, size, "%s %s (%u.%u)", p->system->words->one,
             ops && ops->name ? ops->name : "without a name", p->slot & ~TEFFI_PROCESS_BIT,
             generation);
}

const teffi_group_ops teffi_process_group_ops = {
    .handle = handle_item,
    .ended = free_process_slot,
    .resume = resume_yielded_turn,
    .evict = evict_item,
    .describe = describe_process,
};
const teffi_group_ops teffi_process_kept_group_ops = {
    .handle = handle_item,
    .ended = free_process_slot,
    .resume = resume_yielded_turn,
    .describe = describe_process,
};
