/* task.c - run a task: claim its data, call it, release; functions for a component's own use. */
#include "engine/engine.h"

#include <stdlib.h>
#include "process/turn.h"

/* Find the component's instance of a data type. out: NULL: the component does not use the type, or
 * has not made or bound the instance. *kind: how it uses the type; not set if it does not. */
static teffi_instance *find_data_instance(teff_component *component, const teff_data_type *type,
                                          teff_data_kind *kind)
{
    for (size_t i = 0; i < component->type->n_data; i++)
        if (component->type->data[i].type == type) {
            *kind = component->type->data[i].kind;
            return component->data[i];
        }
    return NULL;
}

void *teff_component_data(teff_component *component, const teff_data_type *type)
{
    teff_data_kind kind;
    teffi_instance *instance = find_data_instance(component, type, &kind);
    return instance ? instance->bytes : NULL;
}

/* Dispatches the queued items of the component's process, since a cancel may be among them. Sets
 * component->ending if the process was cancelled. out: is the component ending? */
static bool dispatch_items_and_update_ending(teff_component *component)
{
    (void)teffi_process_dispatch_items(component->me);
    component->ending |= component->me->cancel;
    return component->ending;
}

/* Add the data of each need to the claim, unless the data is local. out: false: there are too many
 * needs, or find_data_instance() finds no instance for one of them. */
static bool add_needs_to_claim(teff_component *component, teffi_claim *claim,
                               const teff_need *needs, size_t n)
{
    if (n > TEFF_NEEDS_MAX)
        return false;
    for (size_t i = 0; i < n; i++) {
        teff_data_kind kind;
        teffi_instance *instance = find_data_instance(component, needs[i].type, &kind);
        if (!instance)
            return false;
        if (kind != TEFF_DATA_LOCAL)
            teffi_claim_add_instance(claim, instance, needs[i].access);
    }
    return true;
}

static void unlock_newest(teff_component *component)
{
    teffi_lock *lock = component->locks;
    component->locks = lock->older;
    teffi_claim_end(&lock->claim);
    free(lock);
}

/* Run a task whose data is held. Afterwards release the locks that the task took and did not
 * release. */
static void run_task(teff_component *component, const teff_task_type *type, void *task)
{
    void *data[TEFF_NEEDS_MAX];
    teffi_lock *outer = component->outer;
    for (uint32_t i = 0; i < type->n_needs; i++)
        data[i] = teff_component_data(component, type->needs[i].type);
    component->outer = component->locks;
    type->run(component, task, data);
    while (component->locks != component->outer)
        unlock_newest(component);
    component->outer = outer;
}

void teffi_task_finish_and_notify(teff_engine *engine, teffi_task_msg *task, int ran)
{
    if (task->type->over)
        task->type->over(task->bytes, ran);
    teff_engine_notify(engine);
}

bool teffi_task_claim_data_and_run(teff_component *component, teffi_task_msg *task)
{
    teffi_claim *claim = &component->claim;
    if (!claim->component &&
        !add_needs_to_claim(component, claim, task->type->needs, task->type->n_needs)) {
        *claim = (teffi_claim){0}; /* the component does not use the task's data */
        teffi_task_finish_and_notify(component->engine, task, 0);
        return true;
    }
    teffi_claim_state state = teffi_claim_start(claim, component);
    if (state == TEFFI_CLAIM_WAITING)
        return false;
    bool granted = state == TEFFI_CLAIM_GRANTED;
    if (granted)
        run_task(component, task->type, task->bytes);
    component->ending |= state == TEFFI_CLAIM_CLOSED; /* an owner of the task's data has ended */
    teffi_claim_end(claim);
    teffi_task_finish_and_notify(component->engine, task, granted);
    return true;
}

/* ---- waiting inside a task or a run function ---- */

/* teffi_waiting.ready of a wait for a poke: is the wait over? in: waiting->arg: NULL if only a poke
 * ends the wait; otherwise the component, whose cancel or end also ends the wait. */
static bool is_poked_or_ending(teff_process *p, teffi_waiting *waiting)
{
    return p->poked || (waiting->arg && (p->cancel || ((teff_component *)waiting->arg)->ending));
}

/* in: or_end: if true, the wait also ends when the component is ending. out: false: the component
 * is ending (only if or_end is true), or is forced to end. */
bool teffi_component_wait_for_poke(teff_component *component, bool or_end)
{
    teffi_waiting waiting = {
        .ready = is_poked_or_ending, .arg = or_end ? component : NULL, .blocked = true};
    teff_err err = teffi_process_wait(component->me, &waiting);
    component->me->poked = false;
    return !err && !(or_end && dispatch_items_and_update_ending(component));
}

/* out: true: each of the task's needs is for local data, or for data that the component already
 * holds, or is covered by one of the n needs in `lock`. */
static bool needs_are_covered(teff_component *component, const teff_task_type *type,
                              const teff_need *lock, size_t n)
{
    for (uint32_t i = 0; i < type->n_needs; i++) {
        teff_data_kind kind;
        teffi_instance *instance = find_data_instance(component, type->needs[i].type, &kind);
        bool ok =
            instance && (kind == TEFF_DATA_LOCAL ||
                         teffi_instance_is_held_by(instance, component, type->needs[i].access));
        for (size_t k = 0; instance && k < n && !ok; k++)
            ok = lock[k].type == type->needs[i].type && lock[k].access >= type->needs[i].access;
        if (!ok)
            return false;
    }
    return true;
}

/* Start the claim and wait until it is granted. The caller ends the claim, also on an error.
 * errs: TEFF_E_DEADLOCK; TEFF_E_CANCELLED: the claim had to wait, and the component is ending;
 * TEFF_E_CLOSED: the owner of some of the data has ended, and the component ends, too. */
static teff_err claim_and_wait(teff_component *component, teffi_claim *claim)
{
    teffi_claim_state state;
    while ((state = teffi_claim_start(claim, component)) == TEFFI_CLAIM_WAITING)
        if (!teffi_component_wait_for_poke(component, true))
            break;
    if (state == TEFFI_CLAIM_GRANTED)
        return TEFF_OK;
    component->ending |= state == TEFFI_CLAIM_CLOSED;
    return state == TEFFI_CLAIM_CLOSED     ? TEFF_E_CLOSED
           : state == TEFFI_CLAIM_DEADLOCK ? TEFF_E_DEADLOCK
                                           : TEFF_E_CANCELLED;
}

teff_err teff_component_run_task(teff_component *component, const teff_task_type *type, void *task,
                                 const teff_need *lock, size_t n)
{
    teffi_claim claim = {0};
    if (!lock && n) { /* the caller passed NULL, SIZE_MAX: lock all data that the task needs */
        lock = type->needs;
        n = type->n_needs;
    }
    if (!add_needs_to_claim(component, &claim, lock, n) ||
        !needs_are_covered(component, type, lock, n))
        return TEFF_E_INVALID;
    teff_err err = claim_and_wait(component, &claim);
    if (!err)
        run_task(component, type, task);
    teffi_claim_end(&claim);
    if (!err)
        teff_engine_notify(component->engine);
    return err;
}

teff_err teff_component_lock(teff_component *component, const teff_need *needs, size_t n)
{
    teffi_lock *lock = calloc(1, sizeof *lock);
    if (!lock)
        return TEFF_E_NOMEM;
    teff_err err = add_needs_to_claim(component, &lock->claim, needs, n)
                       ? claim_and_wait(component, &lock->claim)
                       : TEFF_E_INVALID;
    if (err) {
        teffi_claim_end(&lock->claim);
        free(lock);
        return err;
    }
    lock->older = component->locks;
    component->locks = lock;
    return TEFF_OK;
}

teff_err teff_component_unlock(teff_component *component)
{
    if (component->locks == component->outer) /* older locks belong to the callers of this task */
        return TEFF_E_NOT_FOUND;
    unlock_newest(component);
    return TEFF_OK;
}

void teffi_component_unlock_all_data(teff_component *component)
{
    while (component->locks)
        unlock_newest(component);
}

typedef struct condition {
    teffi_waiting waiting;
    teff_component *component;
    int (*is_true)(void *arg);
    void *arg;
    teffi_timer_event *timer; /* NULL: checked on teff_engine_notify only */
} condition;

/* Set the timer for the next check of the condition. If poll_ms is 0, or if there is no memory for
 * a timer, the condition is checked on notifications only. */
static void set_poll_timer(condition *c)
{
    uint32_t ms = c->component->engine->opt.poll_ms;
    c->timer = ms ? teffi_timer_event_set(c->component->me, ms * 1000000ull, 0) : NULL;
    c->waiting.awaits = c->timer ? &c->timer->e : NULL;
}

/* teffi_waiting.ready of a wait for a condition: check the condition. If the poll timer's event has
 * arrived, free it and set the timer again. out: true: the condition is true, or the component is
 * ending. */
static bool check_condition(teff_process *p, teffi_waiting *waiting)
{
    condition *c = (condition *)waiting; /* waiting is its first member */
    if (waiting->arrived) {
        teffi_event_free(p, waiting->arrived);
        waiting->arrived = NULL;
        set_poll_timer(c);
    }
    return p->cancel || c->component->ending || c->is_true(c->arg);
}

teff_err teff_component_wait(teff_component *component, int (*is_true)(void *arg), void *arg)
{
    condition c = {.waiting = {.ready = check_condition, .blocked = true},
                   .component = component,
                   .is_true = is_true,
                   .arg = arg};
    pthread_mutex_lock(&component->engine->lock);
    teffi_sleepers_add(component);
    pthread_mutex_unlock(&component->engine->lock);
    set_poll_timer(&c);
    teff_err err = teffi_process_wait(component->me, &c.waiting);
    if (c.waiting.arrived)
        teffi_event_free(component->me, c.waiting.arrived);
    else if (c.timer)
        teffi_timer_event_cancel(component->me, c.timer);
    teffi_sleepers_remove(component);
    return err || dispatch_items_and_update_ending(component) ? TEFF_E_CANCELLED : TEFF_OK;
}

/* The run function of teff_task_until: waits until the condition is true. */
static void wait_until_condition(teff_component *component, void *task, void *const *data)
{
    teff_until *u = task;
    (void)data;
    if (teff_component_wait(component, u->is_true, u->arg))
        component->ending = true; /* the wait fails only if the component is ending */
}

const teff_task_type teff_task_until = {
    .name = "until", .size = sizeof(teff_until), .run = wait_until_condition};

teff_err teff_component_yield(teff_component *component)
{
    teff_err err = teff_process_yield(component->me);
    return err || dispatch_items_and_update_ending(component) ? TEFF_E_CANCELLED : TEFF_OK;
}

/* Waits until the component can claim the shared data that a queued task names, then runs the task.
 * If the component ends first, finishes the task without running it. */
static void run_task_event(teff_component *component, const teff_event *event)
{
    teffi_task_msg *task = (teffi_task_msg *)(uintptr_t)event->data; /* the mailbox's own copy */
    while (!teffi_task_claim_data_and_run(component, task))
        if (!teffi_component_wait_for_poke(component, true)) {
            teffi_claim_end(&component->claim);
            teffi_task_finish_and_notify(component->engine, task, 0);
            return;
        }
}

/* Runs the tasks in the queue. in: wait: if not 0, first waits until a task is queued. errs:
 * TEFF_E_CANCELLED: the component is ending. */
teff_err teff_component_drain(teff_component *component, int wait)
{
    teff_event event;
    if (wait && !dispatch_items_and_update_ending(component)) {
        teff_err err = teff_process_receive(component->me, &event);
        if (err || event.kind == TEFF_EVENT_CANCEL)
            component->ending = true;
        else
            run_task_event(component, &event);
    }
    while (!dispatch_items_and_update_ending(component)) {
        teffi_event *next = teffi_process_take_message(component->me);
        if (!next)
            return TEFF_OK;
        run_task_event(component, &next->event);
        teffi_event_free(component->me, next);
    }
    return TEFF_E_CANCELLED;
}

void teff_component_end(teff_component *component)
{
    component->ending = true;
}

void *teff_component_user(teff_component *component)
{
    return component->user;
}

teff_engine *teff_component_engine(teff_component *component)
{
    return component->engine;
}

teff_component_id teff_component_id_of(teff_component *component)
{
    return (teff_component_id){component->scheduler->index, component->pid};
}
