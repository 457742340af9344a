/* task.c - run a task: claim its data, call it, release; functions for a component's own use. */
#include "engine/engine.h"

#include <stdlib.h>
#include "process/turn.h"

/* out: w's instance of the type, and in *kind how w uses the type; NULL: w does not use it. */
static teffi_instance *find_data(teff_component *w, const teff_data_type *type,
                                 teff_data_kind *kind)
{
    for (size_t i = 0; i < w->type->n_data; i++)
        if (w->type->data[i].type == type) {
            *kind = w->type->data[i].kind;
            return w->data[i];
        }
    return NULL;
}

void *teff_component_data(teff_component *w, const teff_data_type *type)
{
    teff_data_kind kind;
    teffi_instance *instance = find_data(w, type, &kind);
    return instance ? instance->bytes : NULL;
}

/* Has the component been ended or cancelled? Takes queued items first. */
static bool component_is_ending(teff_component *w)
{
    (void)teffi_process_take_items(w->me); /* a cancel may be queued */
    w->ending |= w->me->cancel;
    return w->ending;
}

/* Add the data of each need to the claim, unless it is local. out: false: there are too many needs,
 * or the component does not use one of the types. */
static bool add_needs(teff_component *w, teffi_claim *claim, const teff_need *needs, size_t n)
{
    if (n > TEFF_NEEDS_MAX)
        return false;
    for (size_t i = 0; i < n; i++) {
        teff_data_kind kind;
        teffi_instance *instance = find_data(w, needs[i].type, &kind);
        if (!instance)
            return false;
        if (kind != TEFF_DATA_LOCAL)
            teffi_claim_add(claim, instance, needs[i].access);
    }
    return true;
}

static void unlock_newest(teff_component *w)
{
    teffi_lock *lock = w->locks;
    w->locks = lock->older;
    teffi_claim_end(&lock->claim);
    free(lock);
}

/* Run a task whose data is held. Locks that the task has taken and not released end with it. */
static void run_task(teff_component *w, const teff_task_type *type, void *task)
{
    void *data[TEFF_NEEDS_MAX];
    teffi_lock *outer = w->outer;
    for (uint32_t i = 0; i < type->n_needs; i++)
        data[i] = teff_component_data(w, type->needs[i].type);
    w->outer = w->locks;
    type->run(w, task, data);
    while (w->locks != w->outer)
        unlock_newest(w);
    w->outer = outer;
}

void teffi_task_over(teff_engine *engine, teffi_task_msg *task, int ran)
{
    if (task->type->over)
        task->type->over(task->bytes, ran);
    teff_engine_notify(engine);
}

bool teffi_task_run_queued(teff_component *w, teffi_task_msg *task)
{
    teffi_claim *claim = &w->claim;
    if (!claim->component && !add_needs(w, claim, task->type->needs, task->type->n_needs)) {
        *claim = (teffi_claim){0}; /* the component does not use the task's data */
        teffi_task_over(w->engine, task, 0);
        return true;
    }
    teffi_claim_state state = teffi_claim_start(claim, w);
    if (state == TEFFI_CLAIM_WAITING)
        return false;
    bool granted = state == TEFFI_CLAIM_GRANTED;
    if (granted)
        run_task(w, task->type, task->bytes);
    w->ending |= state == TEFFI_CLAIM_CLOSED;
    teffi_claim_end(claim);
    teffi_task_over(w->engine, task, granted);
    return true;
}

/* ---- waiting inside a task or a run function ---- */

/* Was the process poked, or does its wait end for another reason? in: waiting->arg: the component,
 * if its end also ends the wait; else NULL. */
static bool was_poked(teff_process *p, teffi_waiting *waiting)
{
    return p->poked || (waiting->arg && (p->cancel || ((teff_component *)waiting->arg)->ending));
}

bool teffi_component_wait_for_poke(teff_component *w, bool or_end)
{
    teffi_waiting waiting = {.ready = was_poked, .arg = or_end ? w : NULL, .blocked = true};
    teff_err err = teffi_process_wait(w->me, &waiting);
    w->me->poked = false;
    return !err && !(or_end && component_is_ending(w));
}

/* Is each need of the task covered: local data, data held already, or one of the n needs in
 * lock? */
static bool needs_are_covered(teff_component *w, const teff_task_type *type, const teff_need *lock,
                              size_t n)
{
    for (uint32_t i = 0; i < type->n_needs; i++) {
        teff_data_kind kind;
        teffi_instance *instance = find_data(w, type->needs[i].type, &kind);
        bool ok = instance && (kind == TEFF_DATA_LOCAL ||
                               teffi_claim_is_held(w, instance, type->needs[i].access));
        for (size_t k = 0; instance && k < n && !ok; k++)
            ok = lock[k].type == type->needs[i].type && lock[k].access >= type->needs[i].access;
        if (!ok)
            return false;
    }
    return true;
}

/* Start the claim and wait until it is granted. The caller ends the claim, also on an error.
 * errs: TEFF_E_DEADLOCK; TEFF_E_CANCELLED: the component ended while it waited; TEFF_E_CLOSED: the
 * owner of some of the data has ended, and the component ends, too. */
static teff_err claim_and_wait(teff_component *w, teffi_claim *claim)
{
    teffi_claim_state state;
    while ((state = teffi_claim_start(claim, w)) == TEFFI_CLAIM_WAITING)
        if (!teffi_component_wait_for_poke(w, true))
            break;
    if (state == TEFFI_CLAIM_GRANTED)
        return TEFF_OK;
    w->ending |= state == TEFFI_CLAIM_CLOSED;
    return state == TEFFI_CLAIM_CLOSED     ? TEFF_E_CLOSED
           : state == TEFFI_CLAIM_DEADLOCK ? TEFF_E_DEADLOCK
                                           : TEFF_E_CANCELLED;
}

teff_err teff_component_run(teff_component *w, const teff_task_type *type, void *task,
                            const teff_need *lock, size_t n)
{
    teffi_claim claim = {0};
    if (!lock && n) { /* SIZE_MAX: lock all */
        lock = type->needs;
        n = type->n_needs;
    }
    if (!add_needs(w, &claim, lock, n) || !needs_are_covered(w, type, lock, n))
        return TEFF_E_INVALID;
    teff_err err = claim_and_wait(w, &claim);
    if (!err)
        run_task(w, type, task);
    teffi_claim_end(&claim);
    if (!err)
        teff_engine_notify(w->engine);
    return err;
}

teff_err teff_component_lock(teff_component *w, const teff_need *needs, size_t n)
{
    teffi_lock *lock = calloc(1, sizeof *lock);
    if (!lock)
        return TEFF_E_NOMEM;
    teff_err err =
        add_needs(w, &lock->claim, needs, n) ? claim_and_wait(w, &lock->claim) : TEFF_E_INVALID;
    if (err) {
        teffi_claim_end(&lock->claim);
        free(lock);
        return err;
    }
    lock->older = w->locks;
    w->locks = lock;
    return TEFF_OK;
}

teff_err teff_component_unlock(teff_component *w)
{
    if (w->locks == w->outer)
        return TEFF_E_NOT_FOUND;
    unlock_newest(w);
    return TEFF_OK;
}

void teffi_component_unlock_all(teff_component *w)
{
    while (w->locks)
        unlock_newest(w);
}

typedef struct condition {
    teffi_waiting waiting;
    teff_component *component;
    int (*is_true)(void *arg);
    void *arg;
    teffi_timer_event *timer; /* NULL: checked on teff_engine_notify only */
} condition;

/* Set the timer for the next check of the condition. Without poll_ms, or memory for a timer, the
 * condition is checked on notifications only. */
static void set_poll_timer(condition *c)
{
    uint32_t ms = c->component->engine->opt.poll_ms;
    c->timer = ms ? teffi_timer_event_set(c->component->me, ms * 1000000ull, 0) : NULL;
    c->waiting.awaits = c->timer ? &c->timer->e : NULL;
}

/* Check the condition, after each item of the process. If the item was the poll timer's event, set
 * the timer again. out: true: the wait ends: the condition is true, or the component is ending. */
static bool check_condition(teff_process *p, teffi_waiting *waiting)
{
    condition *c = (condition *)waiting; /* its first member */
    if (waiting->arrived) {
        teffi_event_free(p, waiting->arrived);
        waiting->arrived = NULL;
        set_poll_timer(c);
    }
    return p->cancel || c->component->ending || c->is_true(c->arg);
}

teff_err teff_component_wait(teff_component *w, int (*is_true)(void *arg), void *arg)
{
    condition c = {.waiting = {.ready = check_condition, .blocked = true},
                   .component = w,
                   .is_true = is_true,
                   .arg = arg};
    pthread_mutex_lock(&w->engine->lock);
    teffi_sleepers_add(w);
    pthread_mutex_unlock(&w->engine->lock);
    set_poll_timer(&c);
    teff_err err = teffi_process_wait(w->me, &c.waiting);
    if (c.waiting.arrived)
        teffi_event_free(w->me, c.waiting.arrived);
    else if (c.timer)
        teffi_timer_event_cancel(w->me, c.timer);
    teffi_sleepers_remove(w);
    return err || component_is_ending(w) ? TEFF_E_CANCELLED : TEFF_OK;
}

static void run_until(teff_component *w, void *task, void *const *data)
{
    teff_until *u = task;
    (void)data;
    if (teff_component_wait(w, u->is_true, u->arg))
        w->ending = true; /* the only reason for the wait to fail */
}

const teff_task_type teff_task_until = {
    .name = "until", .size = sizeof(teff_until), .run = run_until};

teff_err teff_component_yield(teff_component *w)
{
    teff_err err = teff_process_yield(w->me);
    return err || component_is_ending(w) ? TEFF_E_CANCELLED : TEFF_OK;
}

/* Wait for the data of one queued task, then run it; discard the task if the component ends
 * first. */
static void run_task_event(teff_component *w, const teff_event *event)
{
    teffi_task_msg *task = (teffi_task_msg *)(uintptr_t)event->data; /* the mailbox's own copy */
    while (!teffi_task_run_queued(w, task))
        if (!teffi_component_wait_for_poke(w, true)) {
            teffi_claim_end(&w->claim);
            teffi_task_over(w->engine, task, 0);
            return;
        }
}

teff_err teff_component_drain(teff_component *w, int wait)
{
    teff_event event;
    if (wait && !component_is_ending(w)) {
        teff_err err = teff_process_receive(w->me, &event);
        if (err || event.kind == TEFF_EVENT_CANCEL)
            w->ending = true;
        else
            run_task_event(w, &event);
    }
    while (!component_is_ending(w)) {
        teffi_event *next = teffi_process_take_mail(w->me);
        if (!next)
            return TEFF_OK;
        run_task_event(w, &next->event);
        teffi_event_free(w->me, next);
    }
    return TEFF_E_CANCELLED;
}

void teff_component_end(teff_component *w)
{
    w->ending = true;
}

void *teff_component_user(teff_component *w)
{
    return w->user;
}

teff_engine *teff_component_engine(teff_component *w)
{
    return w->engine;
}

teff_component_id teff_component_id_of(teff_component *w)
{
    return (teff_component_id){w->scheduler->index, w->pid};
}
