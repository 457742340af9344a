/* life.c - a worker of an engine from its set-up to its end.
 * Way:     add -> [owner, local, group, share, set-up -> run -> share, group, local, owner] -> gone
 * States:  teffi_phase, in the order of the seed document
 * Threads: the worker's turn. A phase that has to wait says so and is called again when the worker
 *          is poked: on its fiber, nested, or (without fiber and run) by the next step. */
#include <stdlib.h>
#include "process/engine.h"

typedef void hook(teff_worker *w, void *data);

static const teff_data_use *use_at(const teff_worker *w, size_t i)
{
    return &w->type->data[i];
}

static void call(teff_worker *w, hook *fn, teffi_instance *instance)
{
    if (fn)
        fn(w, instance->bytes);
}

static void next_phase(teff_worker *w)
{
    w->phase++;
    w->at = 0;
}

/* ---- set-up ---- */

/* Made and initialised, all of a kind. Another owner of the type in the scheduler ends this one. */
static void make(teff_worker *w, teff_data_kind kind)
{
    for (size_t i = 0; i < w->type->n_data && !w->ending; i++) {
        if (use_at(w, i)->kind != kind)
            continue;
        w->data[i] = teffi_instance_new(w, use_at(w, i)->type, kind == TEFF_DATA_OWNER);
        if (w->data[i])
            call(w, use_at(w, i)->type->init, w->data[i]);
        else
            w->ending = true;
    }
}

static void set_up_owned(teff_worker *w)
{
    make(w, TEFF_DATA_OWNER);
    for (size_t i = 0; i < w->type->n_data && !w->ending; i++)
        if (use_at(w, i)->kind == TEFF_DATA_OWNER)
            call(w, use_at(w, i)->type->setup_owner, w->data[i]);
    for (size_t i = 0; i < w->type->n_data && !w->ending; i++)
        if (use_at(w, i)->kind == TEFF_DATA_OWNER)
            teffi_instance_publish(w->engine, w->data[i]);
}

/* false: an owner is not there yet. */
static bool bind_all(teff_worker *w, teff_data_kind kind)
{
    for (; w->at < w->type->n_data; w->at++) {
        const teff_data_use *use = use_at(w, w->at);
        if (use->kind != kind)
            continue;
        w->data[w->at] = teffi_instance_bind(w, w->at, kind == TEFF_DATA_SHARE);
        if (!w->data[w->at])
            return false;
        call(w, use->type->bind, w->data[w->at]);
    }
    teffi_unsleep(w);
    return true;
}

/* Hold one instance to write, then call. false: somebody else holds it. */
static bool holding(teff_worker *w, hook *fn, teffi_instance *instance)
{
    teffi_claim_state state;
    if (w->claim.worker) {
        state = teffi_claim_look(&w->claim);
    } else {
        teffi_claim_add(&w->claim, instance, TEFF_WRITE);
        state = teffi_claim_start(&w->claim, w);
    }
    if (state == TEFFI_CLAIM_WAITING)
        return false;
    if (state == TEFFI_CLAIM_GRANTED)
        call(w, fn, instance);
    else
        w->ending = true;
    return true;
}

static bool set_up_all(teff_worker *w)
{
    for (; w->at < w->type->n_data && !w->ending; w->at++) {
        const teff_data_use *use = use_at(w, w->at);
        if (use->kind == TEFF_DATA_LOCAL)
            call(w, use->type->setup, w->data[w->at]);
        else if (use->type->setup && !holding(w, use->type->setup, w->data[w->at]))
            return false;
        teffi_claim_end(&w->claim);
    }
    return true;
}

/* false: call again when poked. */
static bool set_up(teff_worker *w)
{
    while (w->phase < TEFFI_PHASE_RUN && !w->ending) {
        bool done = true;
        switch (w->phase) {
        case TEFFI_PHASE_OWNER:
            set_up_owned(w);
            break;
        case TEFFI_PHASE_LOCAL:
            make(w, TEFF_DATA_LOCAL);
            break;
        case TEFFI_PHASE_GROUP:
            done = bind_all(w, TEFF_DATA_GROUP);
            break;
        case TEFFI_PHASE_SHARE:
            done = bind_all(w, TEFF_DATA_SHARE);
            break;
        default:
            done = set_up_all(w);
        }
        if (!done)
            return false;
        next_phase(w);
    }
    return true;
}

/* ---- take-down ---- */

static void unbind_all(teff_worker *w, teff_data_kind kind)
{
    for (size_t i = w->type->n_data; i-- > 0;)
        if (w->data[i] && use_at(w, i)->kind == kind) {
            call(w, use_at(w, i)->type->unbind, w->data[i]);
            teffi_instance_drop(w, i);
        }
}

static void fini_local(teff_worker *w)
{
    for (size_t i = w->type->n_data; i-- > 0;)
        if (w->data[i] && use_at(w, i)->kind == TEFF_DATA_LOCAL) {
            call(w, use_at(w, i)->type->fini, w->data[i]);
            teffi_instance_drop(w, i);
        }
}

/* Held to write: nobody works on it. Gone before it is let go: nobody gets it after. */
static bool fini_owned(teff_worker *w)
{
    for (size_t i = w->type->n_data; i-- > 0;) {
        if (!w->data[i] || use_at(w, i)->kind != TEFF_DATA_OWNER)
            continue;
        if (!holding(w, use_at(w, i)->type->fini, w->data[i]))
            return false;
        (void)teffi_instance_gone(w->engine, w->data[i]);
        teffi_claim_end(&w->claim);
        teffi_instance_drop(w, i);
    }
    return true;
}

static void unlist(teff_worker *w)
{
    teffi_scheduler *s = w->scheduler;
    pthread_mutex_lock(&s->lock);
    if (w->listed) {
        *(w->prev ? &w->prev->next : &s->workers) = w->next;
        if (w->next)
            w->next->prev = w->prev;
        w->listed = false;
    }
    pthread_mutex_unlock(&s->lock);
}

/* Out of the list first: then nothing more comes. Without data and without running: who waits for
 * one of these tasks is released by its over. */
static void clear_queue(teff_worker *w)
{
    teffi_event *event;
    unlist(w);
    while ((event = teffi_process_take_mail(w->me))) {
        teffi_task_give_up(w, (teffi_task_msg *)(uintptr_t)event->event.data);
        teffi_event_free(w->me, event);
    }
}

/* false: call again when poked. */
static bool take_down(teff_worker *w)
{
    if (w->phase <= TEFFI_PHASE_RUN) {
        teffi_unsleep(w);
        teffi_claim_end(&w->claim);
        w->phase = TEFFI_PHASE_UNBIND_SHARE;
    }
    for (; w->phase != TEFFI_PHASE_GONE; next_phase(w)) {
        if (w->phase == TEFFI_PHASE_UNBIND_SHARE)
            unbind_all(w, TEFF_DATA_SHARE);
        else if (w->phase == TEFFI_PHASE_UNBIND_GROUP)
            unbind_all(w, TEFF_DATA_GROUP);
        else if (w->phase == TEFFI_PHASE_FINI_LOCAL)
            fini_local(w);
        else if (w->phase == TEFFI_PHASE_FINI_OWNER && !fini_owned(w))
            return false;
        else if (w->phase == TEFFI_PHASE_CLEAR)
            clear_queue(w);
    }
    return true;
}

/* Forced to end somewhere in the middle: nothing is waited for. What others hold right now is left
 * as it is, without fini; its memory goes with the last of them. */
static void abandon(teff_worker *w)
{
    teffi_unsleep(w);
    teffi_claim_end(&w->claim);
    unbind_all(w, TEFF_DATA_SHARE);
    unbind_all(w, TEFF_DATA_GROUP);
    fini_local(w);
    for (size_t i = w->type->n_data; i-- > 0;) {
        if (!w->data[i])
            continue;
        if (teffi_instance_gone(w->engine, w->data[i]))
            call(w, use_at(w, i)->type->fini, w->data[i]);
        teffi_instance_drop(w, i);
    }
    clear_queue(w);
}

/* ---- as a process ---- */

static teff_err init(void *self, teff_process *me, const char *method, const void *input,
                     size_t len)
{
    teff_worker *w = self;
    (void)method;
    (void)input;
    (void)len;
    w->me = me;
    return TEFF_OK;
}

/* Without fiber and run. What has to wait is given again: the same task, or none in set-up and
 * take-down. step_max is 1. */
static teff_err step(void *self, const teff_event *events, size_t n, teff_step *out)
{
    teff_worker *w = self;
    teffi_task_msg *task = NULL;
    if (n && events[0].kind == TEFF_EVENT_CANCEL)
        w->ending = true;
    else if (n)
        task = (teffi_task_msg *)(uintptr_t)events[0].data;
    if (!w->ending && !set_up(w))
        return teffi_step_retry(out);
    if (!w->ending && task) {
        if (!teffi_task_queued(w, task))
            return teffi_step_retry(out);
        return w->ending ? teff_step_continue(out) : teff_step_idle(out);
    }
    if (!w->ending)
        return teff_step_idle(out);
    if (!take_down(w))
        return teffi_step_retry(out);
    if (task)
        teffi_task_give_up(w, task);
    return teff_step_done(out);
}

static void default_run(teff_worker *w)
{
    while (teff_worker_drain(w, 1) == TEFF_OK)
        ;
}

static teff_err run(void *self, teff_process *me)
{
    teff_worker *w = self;
    (void)me;
    while (!w->ending && !set_up(w))
        if (!teffi_worker_until_poked(w, true))
            w->ending = true;
    if (!w->ending && w->type->run)
        w->type->run(w);
    else if (!w->ending)
        default_run(w);
    w->ending = true;
    while (!take_down(w))
        if (!teffi_worker_until_poked(w, false))
            return TEFF_E_CANCELLED; /* forced: close does the rest */
    return TEFF_OK;
}

static void close_worker(void *self)
{
    teff_worker *w = self;
    teff_engine *engine = w->engine;
    if (w->me && w->phase != TEFFI_PHASE_GONE)
        abandon(w);
    unlist(w);
    atomic_fetch_sub_explicit(&engine->workers, 1, memory_order_relaxed);
    free(w);
}

const teff_process_ops teffi_worker_step_ops = {
    .name = "worker", .step_max = 1, .init = init, .step = step, .close = close_worker};
const teff_process_ops teffi_worker_run_ops = {
    .name = "worker", .init = init, .run = run, .close = close_worker};
const teff_process_ops teffi_worker_fiber_ops = {
    .name = "worker", .flags = TEFF_PROCESS_FIBER, .init = init, .run = run, .close = close_worker};
