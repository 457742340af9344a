/* life.c - the process of a component: set-up, run, take-down.
 * States:  teffi_component_phase: own data, group, share, set-up -> run -> take-down -> gone
 * Threads: the component's turn. A phase that has to wait returns false and is called again after a
 *          poke: by run_component(), or by the next call of step_component(). */
#include "engine/engine.h"

#include <stdlib.h>
#include "process/turn.h"

typedef void hook(teff_component *w, void *data);

static const teff_data_use *use_at(const teff_component *w, size_t i)
{
    return &w->type->data[i];
}

static void call_hook(teff_component *w, hook *fn, teffi_instance *instance)
{
    if (fn)
        fn(w, instance->bytes);
}

/* ---- set-up ---- */

/* Create and initialise all data of a kind. If the scheduler has another owner of a type, or memory
 * is out, the component is ending. */
static void make_data(teff_component *w, teff_data_kind kind)
{
    for (size_t i = 0; i < w->type->n_data && !w->ending; i++) {
        if (use_at(w, i)->kind != kind)
            continue;
        w->data[i] = teffi_instance_new(w, use_at(w, i)->type, kind == TEFF_DATA_OWNER);
        if (w->data[i])
            call_hook(w, use_at(w, i)->type->init, w->data[i]);
        else
            w->ending = true;
    }
}

/* Create and publish the component's owned data. It is published only after all hooks, because
 * other components may bind it from then on. */
static void set_up_owned(teff_component *w)
{
    make_data(w, TEFF_DATA_OWNER);
    for (size_t i = 0; i < w->type->n_data && !w->ending; i++)
        if (use_at(w, i)->kind == TEFF_DATA_OWNER)
            call_hook(w, use_at(w, i)->type->setup_owner, w->data[i]);
    for (size_t i = 0; i < w->type->n_data && !w->ending; i++)
        if (use_at(w, i)->kind == TEFF_DATA_OWNER)
            teffi_instance_publish(w->engine, w->data[i]);
}

/* Bind all data of a kind, from w->at on. out: false: an instance is not published yet; call again
 * after a poke. */
static bool bind_all(teff_component *w, teff_data_kind kind)
{
    for (; w->at < w->type->n_data; w->at++) {
        const teff_data_use *use = use_at(w, w->at);
        if (use->kind != kind)
            continue;
        w->data[w->at] = teffi_instance_bind(w, w->at, kind == TEFF_DATA_SHARE);
        if (!w->data[w->at])
            return false;
        call_hook(w, use->type->bind, w->data[w->at]);
    }
    teffi_sleepers_remove(w);
    return true;
}

/* Claim one instance for writing, then call fn; the caller ends the claim. If the claim fails, the
 * component is ending. out: false: the claim waits; call again after a poke. */
static bool call_while_holding(teff_component *w, hook *fn, teffi_instance *instance)
{
    if (!w->claim.component)
        teffi_claim_add(&w->claim, instance, TEFF_WRITE);
    teffi_claim_state state = teffi_claim_start(&w->claim, w);
    if (state == TEFFI_CLAIM_WAITING)
        return false;
    if (state == TEFFI_CLAIM_GRANTED)
        call_hook(w, fn, instance);
    else
        w->ending = true;
    return true;
}

/* Call the hook setup for the component's data, from w->at on. Unless it is local, claim it.
 * out:  false: a claim waits; call again after a poke. */
static bool set_up_data(teff_component *w)
{
    for (; w->at < w->type->n_data && !w->ending; w->at++) {
        const teff_data_use *use = use_at(w, w->at);
        if (use->kind == TEFF_DATA_LOCAL)
            call_hook(w, use->type->setup, w->data[w->at]);
        else if (use->type->setup && !call_while_holding(w, use->type->setup, w->data[w->at]))
            return false;
        teffi_claim_end(&w->claim);
    }
    return true;
}

/* Do the component's present phase of set-up. out: false: call again after a poke. */
static bool run_set_up_phase(teff_component *w)
{
    if (w->phase == TEFFI_PHASE_GROUP)
        return bind_all(w, TEFF_DATA_GROUP);
    if (w->phase == TEFFI_PHASE_SHARE)
        return bind_all(w, TEFF_DATA_SHARE);
    if (w->phase == TEFFI_PHASE_SETUP)
        return set_up_data(w);
    set_up_owned(w);
    make_data(w, TEFF_DATA_LOCAL);
    return true;
}

/* Do all phases of set-up that are left. out: true: done, or the component is ending; false: call
 * again after a poke. */
static bool set_up_component(teff_component *w)
{
    for (; w->phase < TEFFI_PHASE_RUN && !w->ending; w->phase++, w->at = 0)
        if (!run_set_up_phase(w))
            return false;
    return true;
}

/* ---- take-down ---- */

/* For all data of a kind: call fini if it is local, else unbind, and drop the reference. */
static void drop_all(teff_component *w, teff_data_kind kind)
{
    for (size_t i = w->type->n_data; i-- > 0;)
        if (w->data[i] && use_at(w, i)->kind == kind) {
            const teff_data_type *type = use_at(w, i)->type;
            call_hook(w, kind == TEFF_DATA_LOCAL ? type->fini : type->unbind, w->data[i]);
            teffi_instance_drop(w, i);
        }
}

/* End the component's waits, claims and locks, and drop all its data except owned data. */
static void release_all_but_owned(teff_component *w)
{
    teffi_sleepers_remove(w);
    teffi_claim_end(&w->claim);
    teffi_component_unlock_all(w);
    drop_all(w, TEFF_DATA_SHARE);
    drop_all(w, TEFF_DATA_GROUP);
    drop_all(w, TEFF_DATA_LOCAL);
}

/* Call fini of owned data, retire and drop it. The data is claimed for writing, so that no task
 * uses it, and retired before the claim ends, so that no task gets it afterwards. out: false: a
 * claim waits; call again after a poke. */
static bool fini_owned(teff_component *w)
{
    for (size_t i = w->type->n_data; i-- > 0;) {
        if (!w->data[i] || use_at(w, i)->kind != TEFF_DATA_OWNER)
            continue;
        if (!call_while_holding(w, use_at(w, i)->type->fini, w->data[i]))
            return false;
        (void)teffi_instance_retire(w->engine, w->data[i]);
        teffi_claim_end(&w->claim);
        teffi_instance_drop(w, i);
    }
    return true;
}

static void unlist_component(teff_component *w)
{
    teffi_scheduler *s = w->scheduler;
    pthread_mutex_lock(&s->lock);
    if (w->listed)
        LIST_REMOVE(w, link);
    w->listed = false;
    pthread_mutex_unlock(&s->lock);
}

/* Unlist the component first, so that no more tasks arrive, then discard its queued tasks. */
static void clear_queue(teff_component *w)
{
    teffi_event *event;
    unlist_component(w);
    while ((event = teffi_process_take_mail(w->me))) {
        teffi_task_over(w->engine, (teffi_task_msg *)(uintptr_t)event->event.data, 0);
        teffi_event_free(w->me, event);
    }
}

/* Drop the component's data and discard its tasks. out: false: call again after a poke. */
static bool take_down_component(teff_component *w)
{
    if (w->phase <= TEFFI_PHASE_RUN)
        release_all_but_owned(w);
    w->phase = TEFFI_PHASE_TAKE_DOWN;
    if (!fini_owned(w))
        return false;
    clear_queue(w);
    w->phase = TEFFI_PHASE_GONE;
    return true;
}

/* Take down a component that is forced to end, without waiting. Owned data that other components
 * hold gets no fini; the last reference frees it. Queued tasks end with the process (end_copy). */
static void abandon_data(teff_component *w)
{
    release_all_but_owned(w);
    for (size_t i = w->type->n_data; i-- > 0;) {
        if (!w->data[i])
            continue;
        if (teffi_instance_retire(w->engine, w->data[i]))
            call_hook(w, use_at(w, i)->type->fini, w->data[i]);
        teffi_instance_drop(w, i);
    }
}

/* ---- the operations of its process ---- */

static teff_err init_component(void *self, teff_process *me, const char *method, const void *input,
                               size_t len)
{
    teff_component *w = self;
    (void)method;
    (void)input;
    (void)len;
    w->me = me;
    return TEFF_OK;
}

/* The step of a component without a run function and a fiber. step_max is 1. A step that returns
 * teffi_step_retry waits: the next step comes after a poke, with the same event, if any, or with a
 * cancel. */
static teff_err step_component(void *self, const teff_event *events, size_t n, teff_step *out)
{
    teff_component *w = self;
    teffi_task_msg *task = NULL;
    if (n && events[0].kind == TEFF_EVENT_CANCEL)
        w->ending = true;
    else if (n)
        task = (teffi_task_msg *)(uintptr_t)events[0].data;
    if (!w->ending && !set_up_component(w))
        return teffi_step_retry(out);
    if (!w->ending && task) {
        if (!teffi_task_run_queued(w, task))
            return teffi_step_retry(out);
        return w->ending ? teff_step_continue(out) : teff_step_idle(out);
    }
    if (!w->ending)
        return teff_step_idle(out);
    if (!take_down_component(w))
        return teffi_step_retry(out);
    if (task)
        teffi_task_over(w->engine, task, 0);
    return teff_step_done(out);
}

/* The whole life of a component with a run function or a fiber. out: TEFF_E_CANCELLED: it was
 * forced to end. */
static teff_err run_component(void *self, teff_process *me)
{
    teff_component *w = self;
    (void)me;
    while (!w->ending && !set_up_component(w))
        if (!teffi_component_wait_for_poke(w, true))
            w->ending = true;
    if (!w->ending && w->type->run)
        w->type->run(w);
    while (!w->ending && !w->type->run && teff_component_drain(w, 1) == TEFF_OK)
        ;
    w->ending = true;
    while (!take_down_component(w))
        if (!teffi_component_wait_for_poke(w, false))
            return TEFF_E_CANCELLED; /* forced: close_component does the rest */
    return TEFF_OK;
}

/* Free the component, taking it down first if that was not done: it was forced to end. The last
 * call for each component, also for one whose process never began (me is NULL). */
static void close_component(void *self)
{
    teff_component *w = self;
    teff_engine *engine = w->engine;
    if (w->me && w->phase != TEFFI_PHASE_GONE)
        abandon_data(w);
    unlist_component(w);
    atomic_fetch_sub_explicit(&engine->components, 1, memory_order_relaxed);
    free(w);
}

teff_ctx *teff_component_ctx(teff_component *w)
{
    return teff_process_ctx(w->me);
}

const teff_process_ops teffi_component_step_ops = {
    .step_max = 1, .init = init_component, .step = step_component, .close = close_component};
const teff_process_ops teffi_component_run_ops = {
    .init = init_component, .run = run_component, .close = close_component};
const teff_process_ops teffi_component_fiber_ops = {.flags = TEFF_PROCESS_FIBER,
                                                    .init = init_component,
                                                    .run = run_component,
                                                    .close = close_component};
