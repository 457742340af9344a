/* process.c - the life of a process on its group: start, turns, end.
 * Way:     group -> [handle: take in, go on] -> step | fiber -> ... -> finish -> ended
 * States:  the group word's, see group.h; BLOCKED while only a yield or timer can wake it
 * Threads: everything here is the process's turn, on the worker's own stack.
 * A turn first takes in what the group's batch holds (up to a step's worth), so that one step gets
 * many events; what a step leaves over is pushed as one more item, behind what came meanwhile. */
#include "process/process.h"

#include <stdio.h>
#include "base/bug.h"
#include "base/queue.h"

static teff_process *process_of(teffi_group *group)
{
    return teffi_container(group, teff_process, group);
}

static const teff_process_ops *ops_of(const teff_process *p)
{
    return atomic_load_explicit(&p->ops, memory_order_relaxed);
}

static void end_with(teff_process *p, teff_err err)
{
    p->over = true;
    p->err = (uint16_t)err;
}

/* START: init with its arguments. */
static void begin(teff_process *p)
{
    const teff_process_ops *ops = ops_of(p);
    teffi_start *start = p->held;
    p->held = NULL;
    p->status = TEFFI_STATUS_CONTINUE;
    teff_err err = TEFF_OK;
    if (ops->init)
        err = ops->init(p->self, p, start->bytes, start->input, start->len);
    teffi_start_free(start);
    if (err)
        end_with(p, err);
}

/* As much as runs before the process rests: a step, or its run function to its end. */
static void unit(teff_process *p)
{
    if (p->forced) {
        end_with(p, TEFF_E_CANCELLED);
        return;
    }
    if (p->status == TEFFI_STATUS_START)
        begin(p);
    if (p->over)
        return;
    if (ops_of(p)->run)
        end_with(p, ops_of(p)->run(p->self, p));
    else
        teffi_process_step(p);
}

/* The loop of a process with a fiber; an upgrade to one without leaves it. */
static void body(void *arg)
{
    teff_process *p = arg;
    for (;;) {
        unit(p);
        if (p->over || !(ops_of(p)->flags & TEFF_PROCESS_FIBER))
            return;
        teffi_fiber_suspend(p->fiber);
    }
}

static void resume(teff_process *p)
{
    if (!p->fiber && !p->forced) {
        p->fiber = teffi_fiber_new(p->system->exec->fibers, body, p);
        if (p->fiber)
            teffi_fiber_label(p->fiber, ops_of(p)->name);
        else
            end_with(p, TEFF_E_NOMEM);
    }
    if (!p->fiber)
        unit(p);
    else if (teffi_fiber_resume(p->fiber))
        p->fiber = NULL;
}

static void turn(teff_process *p)
{
    const teffi_platform *platform = p->system->exec->platform;
    bool measure = p->system->opt.measure;
    uint64_t from = measure ? teffi_now(platform) : 0;
    if (p->fiber || ops_of(p)->flags & TEFF_PROCESS_FIBER)
        resume(p);
    else
        unit(p);
    teffi_process_count(p, 1, p->given, measure ? teffi_now(platform) - from : 0);
    p->given = 0;
}

static void drop_held(teff_process *p)
{
    if (p->held && p->status == TEFFI_STATUS_START)
        teffi_start_free(p->held);
    else if (p->held)
        teffi_event_free(p, p->held);
    p->held = NULL;
}

static void finish(teff_process *p)
{
    teff_process_system *system = p->system;
    teff_pid pid = teff_process_pid(p);
    teff_err err = p->err;
    teffi_bug_if(p->fiber != NULL);
    drop_held(p);
    p->forced = true; /* close must not wait */
    if (ops_of(p)->close)
        ops_of(p)->close(p->self);
    teffi_process_forget(p);
    p->gone = true;
    if (system->opt.ended)
        system->opt.ended(system->opt.arg, pid, err);
    teffi_group_complete(&p->group);
}

/* After a turn, unless it gave way in its middle. */
static void settle(teff_process *p)
{
    if (teffi_group_yielded(&p->group))
        return;
    if (p->over)
        finish(p);
    else if (!p->wait && teffi_process_wants(p))
        teffi_process_again(p);
}

static void go_on(teff_process *p)
{
    p->gathered = 0;
    if (p->wait ? !p->forced && !p->wait->ready(p, p->wait) : !teffi_process_wants(p))
        return;
    turn(p);
    settle(p);
}

/* Its turn gave way; p->fiber is that fiber. */
static void go_on_in_the_middle(teffi_group *group, teffi_fiber *fiber)
{
    teff_process *p = process_of(group);
    (void)fiber;
    turn(p);
    settle(p);
}

static void handle(teffi_group *group, teffi_item *item)
{
    teff_process *p = process_of(group);
    teffi_process_take_in(p, item);
    if (p->gone || (group->head && ++p->gathered < TEFFI_STEP_MAX))
        return;
    go_on(p);
}

/* Its init has not run: as if it had not been spawned, but for its close. */
static void refuse_to_start(teff_process *p)
{
    p->again_queued = false;
    atomic_fetch_add_explicit(&p->system->evicted, 1, memory_order_relaxed);
    end_with(p, TEFF_E_OVERLOADED);
    finish(p);
}

static bool evict(teffi_group *group, teffi_item *item)
{
    teff_process *p = process_of(group);
    bool starts =
        item->kind == TEFFI_ITEM_AGAIN && !p->gone && p->status == TEFFI_STATUS_START && !p->forced;
    bool went = teffi_process_give_back(p, item);
    if (starts)
        refuse_to_start(p);
    else if (went && !group->head)
        go_on(p); /* with what else came in this batch */
    return went || starts;
}

static bool blocked(teffi_group *group)
{
    const teff_process *p = process_of(group);
    return p->wait ? p->wait->blocked
                   : p->status == TEFFI_STATUS_BLOCK || p->status == TEFFI_STATUS_RETRY;
}

/* The group stays COMPLETE until the slot is used again: what comes late is refused. */
static void ended(teffi_group *group)
{
    teff_process *p = process_of(group);
    teff_process_system *system = p->system;
    teffi_slot_give(system, p);
    /* seq_cst: after it nothing of this life goes on; either it is counted or stopping is seen */
    atomic_fetch_add_explicit(&teffi_own_cell(system)->ended, 1, memory_order_seq_cst);
    if (atomic_load_explicit(&system->stopping, memory_order_seq_cst))
        teffi_parker_wake(&system->stopper);
}

static void describe(teffi_group *group, char *text, size_t size)
{
    teff_process *p = process_of(group);
    const teff_process_ops *ops = ops_of(p);
    uint32_t generation = atomic_load_explicit(&p->generation, memory_order_relaxed);
    snprintf(text, size, "process %s (%u.%u)", ops && ops->name ? ops->name : "without a name",
             p->slot & ~TEFFI_PROCESS_BIT, generation);
}

const teffi_group_ops teffi_process_group_ops = {
    .handle = handle,
    .ended = ended,
    .blocked = blocked,
    .resume = go_on_in_the_middle,
    .evict = evict,
    .describe = describe,
    .kind = TEFFI_CONTEXT_PROCESS,
};

teff_pid teff_process_pid(const teff_process *me)
{
    return teffi_process_pid_of(me, atomic_load_explicit(&me->generation, memory_order_relaxed));
}

teff_process_system *teff_process_system_of(const teff_process *me)
{
    return me->system;
}
