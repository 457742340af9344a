/* task.c - running a task: name its data, hold all of it, run, let go.
 * Way:     a worker's queue | another task -> [claim -> run -> over] -> whoever waits for it
 * Threads: the worker's turn. */
#include "process/engine.h"

teffi_instance *teffi_worker_find(teff_worker *w, const teff_data_type *type, teff_data_kind *kind)
{
    for (size_t i = 0; i < w->type->n_data; i++)
        if (w->type->data[i].type == type) {
            *kind = w->type->data[i].kind;
            return w->data[i];
        }
    return NULL;
}

void *teff_worker_data(teff_worker *w, const teff_data_type *type)
{
    teff_data_kind kind;
    teffi_instance *instance = teffi_worker_find(w, type, &kind);
    return instance ? instance->bytes : NULL;
}

bool teffi_worker_told(teff_worker *w)
{
    (void)teffi_process_take_items(w->me); /* a cancel may be among what is queued */
    if (w->me->cancel) {
        w->me->cancel = false;
        w->ending = true;
    }
    return w->ending;
}

/* What local data needs nobody else can want. false: the worker does not use it. */
static bool add_need(teff_worker *w, teffi_claim *claim, const teff_need *need)
{
    teff_data_kind kind;
    teffi_instance *instance = teffi_worker_find(w, need->type, &kind);
    if (!instance)
        return false;
    if (kind != TEFF_DATA_LOCAL)
        teffi_claim_add(claim, instance, need->access);
    return true;
}

static bool add_needs(teff_worker *w, teffi_claim *claim, const teff_need *needs, size_t n)
{
    if (n > TEFF_NEEDS_MAX)
        return false;
    for (size_t i = 0; i < n; i++)
        if (!add_need(w, claim, &needs[i]))
            return false;
    return true;
}

static void run(teff_worker *w, const teff_task_type *type, void *task)
{
    void *data[TEFF_NEEDS_MAX];
    for (uint32_t i = 0; i < type->n_needs; i++)
        data[i] = teff_worker_data(w, type->needs[i].type);
    type->run(w, task, data);
}

static void is_over(teff_worker *w, teffi_task_msg *task, int ran)
{
    if (task->type->over)
        task->type->over(task->bytes, ran);
    teff_engine_notify(w->engine);
}

void teffi_task_give_up(teff_worker *w, teffi_task_msg *task)
{
    teffi_claim_end(&w->claim);
    is_over(w, task, 0);
}

bool teffi_task_queued(teff_worker *w, teffi_task_msg *task)
{
    teffi_claim *claim = &w->claim;
    teffi_claim_state state;
    if (claim->worker) {
        state = teffi_claim_look(claim);
    } else if (add_needs(w, claim, task->type->needs, task->type->n_needs)) {
        state = teffi_claim_start(claim, w);
    } else { /* lists a task whose data it does not use: it cannot run here */
        *claim = (teffi_claim){0};
        is_over(w, task, 0);
        return true;
    }
    if (state == TEFFI_CLAIM_WAITING)
        return false;
    bool granted = state == TEFFI_CLAIM_GRANTED;
    if (granted)
        run(w, task->type, task->bytes);
    else
        w->ending = true; /* the owner of what it works on is gone */
    teffi_claim_end(claim);
    is_over(w, task, granted);
    return true;
}

/* ---- waiting inside a task or a run function ---- */

static bool was_poked(teff_process *p, teffi_waiting *waiting)
{
    return p->poked || (waiting->arg && (p->cancel || ((teff_worker *)waiting->arg)->ending));
}

bool teffi_worker_until_poked(teff_worker *w, bool told)
{
    teffi_waiting waiting = {.ready = was_poked, .arg = told ? w : NULL, .blocked = true};
    teff_err err = teffi_process_wait(w->me, &waiting);
    w->me->poked = false;
    return !err && !(told && teffi_worker_told(w));
}

/* Every need is among those to lock, held already, or local. */
static bool covered(teff_worker *w, const teff_task_type *type, const teff_need *lock, size_t n)
{
    for (uint32_t i = 0; i < type->n_needs; i++) {
        teff_data_kind kind;
        teffi_instance *instance = teffi_worker_find(w, type->needs[i].type, &kind);
        bool ok = instance &&
                  (kind == TEFF_DATA_LOCAL || teffi_claim_held(w, instance, type->needs[i].access));
        for (size_t k = 0; instance && k < n && !ok; k++)
            ok = lock[k].type == type->needs[i].type && lock[k].access >= type->needs[i].access;
        if (!ok)
            return false;
    }
    return true;
}

static teff_err hold_all(teff_worker *w, teffi_claim *claim)
{
    teffi_claim_state state = teffi_claim_start(claim, w);
    while (state == TEFFI_CLAIM_WAITING && teffi_worker_until_poked(w, true))
        state = teffi_claim_look(claim);
    if (state == TEFFI_CLAIM_GRANTED)
        return TEFF_OK;
    w->ending |= state == TEFFI_CLAIM_CLOSED;
    return state == TEFFI_CLAIM_CLOSED     ? TEFF_E_CLOSED
           : state == TEFFI_CLAIM_DEADLOCK ? TEFF_E_DEADLOCK
                                           : TEFF_E_CANCELLED;
}

teff_err teff_worker_run(teff_worker *w, const teff_task_type *type, void *task,
                         const teff_need *lock, size_t n)
{
    teffi_claim claim = {0};
    if (!lock && n) {
        lock = type->needs;
        n = type->n_needs;
    }
    if (!add_needs(w, &claim, lock, n) || !covered(w, type, lock, n))
        return TEFF_E_INVALID;
    teff_err err = hold_all(w, &claim);
    if (!err)
        run(w, type, task);
    teffi_claim_end(&claim);
    if (!err)
        teff_engine_notify(w->engine);
    return err;
}

typedef struct condition {
    teffi_waiting waiting;
    teff_worker *worker;
    int (*is_true)(void *arg);
    void *arg;
    teffi_ticker *ticker; /* NULL: only on notice */
} condition;

static void set_ticker(condition *c)
{
    uint32_t ms = c->worker->engine->opt.poll_ms;
    c->ticker = ms ? teffi_ticker_set(c->worker->me, ms * 1000000ull, 0) : NULL;
    c->waiting.awaits = c->ticker ? &c->ticker->e : NULL;
}

static bool came_true(teff_process *p, teffi_waiting *waiting)
{
    condition *c = (condition *)waiting; /* its first member */
    if (waiting->answer) {
        teffi_event_free(p, waiting->answer);
        waiting->answer = NULL;
        set_ticker(c);
    }
    return p->cancel || c->worker->ending || c->is_true(c->arg);
}

teff_err teff_worker_wait(teff_worker *w, int (*is_true)(void *arg), void *arg)
{
    condition c = {.waiting = {.ready = came_true, .blocked = true},
                   .worker = w,
                   .is_true = is_true,
                   .arg = arg};
    teffi_sleep(w);
    set_ticker(&c);
    teff_err err = teffi_process_wait(w->me, &c.waiting);
    if (c.waiting.answer)
        teffi_event_free(w->me, c.waiting.answer);
    else if (c.ticker)
        teffi_ticker_cancel(w->me, c.ticker);
    teffi_unsleep(w);
    return err || teffi_worker_told(w) ? TEFF_E_CANCELLED : TEFF_OK;
}

static void until(teff_worker *w, void *task, void *const *data)
{
    teff_until *u = task;
    (void)data;
    if (teff_worker_wait(w, u->is_true, u->arg))
        w->ending = true; /* it was told to: nothing else ends the wait */
}

const teff_task_type teff_task_until = {.name = "until", .size = sizeof(teff_until), .run = until};

teff_err teff_worker_yield(teff_worker *w)
{
    if (teff_process_pause(w->me))
        return TEFF_E_CANCELLED;
    return teffi_worker_told(w) ? TEFF_E_CANCELLED : TEFF_OK;
}

/* One task that came off the queue; until it has run or never will. */
static void run_event(teff_worker *w, const teff_event *event)
{
    teffi_task_msg *task = (teffi_task_msg *)(uintptr_t)event->data; /* our own copy */
    while (!teffi_task_queued(w, task))
        if (!teffi_worker_until_poked(w, true)) {
            teffi_task_give_up(w, task);
            return;
        }
}

teff_err teff_worker_drain(teff_worker *w, int wait)
{
    teff_event event;
    if (wait && !teffi_worker_told(w)) {
        teff_err err = teff_process_receive(w->me, &event);
        if (err || event.kind == TEFF_EVENT_CANCEL)
            w->ending = true;
        else
            run_event(w, &event);
    }
    while (!teffi_worker_told(w)) {
        teffi_event *next = teffi_process_take_mail(w->me);
        if (!next)
            return TEFF_OK;
        run_event(w, &next->event);
        teffi_event_free(w->me, next);
    }
    return TEFF_E_CANCELLED;
}

void teff_worker_end(teff_worker *w)
{
    w->ending = true;
}

void *teff_worker_user(teff_worker *w)
{
    return w->user;
}

teff_engine *teff_worker_engine(teff_worker *w)
{
    return w->engine;
}

teff_worker_id teff_worker_id_of(teff_worker *w)
{
    return (teff_worker_id){w->scheduler->index, w->pid};
}
