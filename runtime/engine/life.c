/* life.c - the process of a component: set-up, run, take-down.
 * States:  teffi_component_phase: own data, group, share, set-up -> run -> take-down -> gone
 * Threads: the component's turn. A phase that has to wait returns false and is called again after a
 *          poke: by run_component(), or by the next call of step_component(). */
#include "engine/engine.h"

#include <stdlib.h>
#include "process/turn.h"

typedef void hook(teff_component *component, void *data);

static const teff_data_use *get_data_use(const teff_component *component, size_t i)
{
    return &component->type->data[i];
}

static void call_hook(teff_component *component, hook *fn, teffi_instance *instance)
{
    if (fn)
        fn(component, instance->bytes);
}

/* ---- set-up ---- */

/* Make all of the component's data of a kind, and call the init hook of each. Set component->ending
 * if there is no memory, or if the scheduler already has an owner of data of the same type. */
static void make_data(teff_component *component, teff_data_kind kind)
{
    for (size_t i = 0; i < component->type->n_data && !component->ending; i++) {
        if (get_data_use(component, i)->kind != kind)
            continue;
        component->data[i] = teffi_instance_new(component, get_data_use(component, i)->type,
                                                kind == TEFF_DATA_OWNER);
        if (component->data[i])
            call_hook(component, get_data_use(component, i)->type->init, component->data[i]);
        else
            component->ending = true;
    }
}

/* Make the component's owned data, call its hooks, and publish it. All hooks run before any data
 * is published, because other components may bind data as soon as it is published. */
static void set_up_owned_data(teff_component *component)
{
    make_data(component, TEFF_DATA_OWNER);
    for (size_t i = 0; i < component->type->n_data && !component->ending; i++)
        if (get_data_use(component, i)->kind == TEFF_DATA_OWNER)
            call_hook(component, get_data_use(component, i)->type->setup_owner, component->data[i]);
    for (size_t i = 0; i < component->type->n_data && !component->ending; i++)
        if (get_data_use(component, i)->kind == TEFF_DATA_OWNER)
            teffi_instance_publish(component->engine, component->data[i]);
}

/* Bind all data of a kind, beginning at index component->at. out: false: an instance is not
 * published yet; call again after a poke. */
static bool bind_data_of_kind(teff_component *component, teff_data_kind kind)
{
    for (; component->at < component->type->n_data; component->at++) {
        const teff_data_use *use = get_data_use(component, component->at);
        if (use->kind != kind)
            continue;
        component->data[component->at] =
            teffi_instance_bind(component, component->at, kind == TEFF_DATA_SHARE);
        if (!component->data[component->at])
            return false;
        call_hook(component, use->type->bind, component->data[component->at]);
    }
    teffi_sleepers_remove(component);
    return true;
}

/* Claim one instance for writing, then call fn; the caller ends the claim. If the claim fails, set
 * component->ending and do not call fn. out: false: the claim waits; call again after a poke. */
static bool claim_and_call_hook(teff_component *component, hook *fn, teffi_instance *instance)
{
    if (!component->claim.component) /* no earlier call has started the claim */
        teffi_claim_add_instance(&component->claim, instance, TEFF_WRITE);
    teffi_claim_state state = teffi_claim_start(&component->claim, component);
    if (state == TEFFI_CLAIM_WAITING)
        return false;
    if (state == TEFFI_CLAIM_GRANTED)
        call_hook(component, fn, instance);
    else
        component->ending = true;
    return true;
}

/* Call the setup hook of all the component's data, beginning at index component->at. Data that is
 * not local is claimed before the call. out: false: a claim waits; call again after a poke. */
static bool call_setup_hooks(teff_component *component)
{
    for (; component->at < component->type->n_data && !component->ending; component->at++) {
        const teff_data_use *use = get_data_use(component, component->at);
        if (use->kind == TEFF_DATA_LOCAL)
            call_hook(component, use->type->setup, component->data[component->at]);
        else if (use->type->setup &&
                 !claim_and_call_hook(component, use->type->setup, component->data[component->at]))
            return false;
        teffi_claim_end(&component->claim);
    }
    return true;
}

/* Do the component's current phase of set-up. out: false: it waits; call again after a poke. */
static bool run_set_up_phase(teff_component *component)
{
    if (component->phase == TEFFI_PHASE_GROUP)
        return bind_data_of_kind(component, TEFF_DATA_GROUP);
    if (component->phase == TEFFI_PHASE_SHARE)
        return bind_data_of_kind(component, TEFF_DATA_SHARE);
    if (component->phase == TEFFI_PHASE_SETUP)
        return call_setup_hooks(component);
    set_up_owned_data(component); /* TEFFI_PHASE_OWN */
    make_data(component, TEFF_DATA_LOCAL);
    return true;
}

/* Do all phases of set-up that are left. out: true: done, or the component is ending; false: call
 * again after a poke. */
static bool set_up_component(teff_component *component)
{
    for (; component->phase < TEFFI_PHASE_RUN && !component->ending;
         component->phase++, component->at = 0)
        if (!run_set_up_phase(component))
            return false;
    return true;
}

/* ---- take-down ---- */

/* For all data of a kind: call the hook fini (local data) or unbind (other data), then drop the
 * component's reference. */
static void call_hooks_and_drop_data(teff_component *component, teff_data_kind kind)
{
    for (size_t i = component->type->n_data; i-- > 0;)
        if (component->data[i] && get_data_use(component, i)->kind == kind) {
            const teff_data_type *type = get_data_use(component, i)->type;
            call_hook(component, kind == TEFF_DATA_LOCAL ? type->fini : type->unbind,
                      component->data[i]);
            teffi_instance_drop_reference(component, i);
        }
}

/* End the component's waits, claims and locks, and drop all its data except owned data. */
static void release_all_but_owned_data(teff_component *component)
{
    teffi_sleepers_remove(component);
    teffi_claim_end(&component->claim);
    teffi_component_unlock_all_data(component);
    call_hooks_and_drop_data(component, TEFF_DATA_SHARE);
    call_hooks_and_drop_data(component, TEFF_DATA_GROUP);
    call_hooks_and_drop_data(component, TEFF_DATA_LOCAL);
}

/* For all owned data: call the hook fini, then retire the data and drop it. The data is claimed for
 * writing, so that no task uses it, and retired before the claim ends, so that no task gets it
 * afterwards. out: false: a claim waits; call again after a poke. */
static bool fini_owned_data(teff_component *component)
{
    for (size_t i = component->type->n_data; i-- > 0;) {
        if (!component->data[i] || get_data_use(component, i)->kind != TEFF_DATA_OWNER)
            continue;
        if (!claim_and_call_hook(component, get_data_use(component, i)->type->fini,
                                 component->data[i]))
            return false;
        (void)teffi_instance_retire(component->engine, component->data[i]);
        teffi_claim_end(&component->claim);
        teffi_instance_drop_reference(component, i);
    }
    return true;
}

static void unlist_component(teff_component *component)
{
    teffi_scheduler *s = component->scheduler;
    pthread_mutex_lock(&s->lock);
    if (component->listed)
        LIST_REMOVE(component, link);
    component->listed = false;
    pthread_mutex_unlock(&s->lock);
}

/* Unlist the component first, so that no more tasks arrive, then discard its queued tasks. */
static void unlist_and_discard_tasks(teff_component *component)
{
    teffi_event *event;
    unlist_component(component);
    while ((event = teffi_process_take_message(component->me))) {
        teffi_task_finish_and_notify(component->engine,
                                     (teffi_task_msg *)(uintptr_t)event->event.data, 0);
        teffi_event_free(component->me, event);
    }
}

/* Drop the component's data and discard its tasks. out: false: call again after a poke. */
static bool take_down_component(teff_component *component)
{
    if (component->phase <= TEFFI_PHASE_RUN)
        release_all_but_owned_data(component);
    component->phase = TEFFI_PHASE_TAKE_DOWN;
    if (!fini_owned_data(component))
        return false;
    unlist_and_discard_tasks(component);
    component->phase = TEFFI_PHASE_GONE;
    return true;
}

/* Without waiting, take down a component that is forced to end. The fini hook is not called for
 * owned data that other components hold; the data is freed with its last reference. The process
 * system discards the queued tasks when it ends the process (teffi_pid_route.respond). */
static void take_down_by_force(teff_component *component)
{
    release_all_but_owned_data(component);
    for (size_t i = component->type->n_data; i-- > 0;) {
        if (!component->data[i])
            continue;
        if (teffi_instance_retire(component->engine, component->data[i]))
            call_hook(component, get_data_use(component, i)->type->fini, component->data[i]);
        teffi_instance_drop_reference(component, i);
    }
}

/* ---- the operations of its process ---- */

static teff_err init_component(void *self, teff_process *me, const char *method, const void *input,
                               size_t len)
{
    teff_component *component = self;
    (void)method;
    (void)input;
    (void)len;
    component->me = me;
    return TEFF_OK;
}

/* The step of a component that has neither a run function nor a fiber. step_max is 1, so n is 0 or
 * 1. After teffi_step_set_retry, the next step waits for a poke or a cancel. After a poke it gets
 * the same events again; after a cancel it gets only the cancel. */
static teff_err step_component(void *self, const teff_event *events, size_t n, teff_step *out)
{
    teff_component *component = self;
    teffi_task_msg *task = NULL;
    if (n && events[0].kind == TEFF_EVENT_CANCEL)
        component->ending = true;
    else if (n)
        task = (teffi_task_msg *)(uintptr_t)events[0].data;
    if (!component->ending && !set_up_component(component))
        return teffi_step_set_retry(out);
    if (!component->ending && task) {
        if (!teffi_task_claim_data_and_run(component, task))
            return teffi_step_set_retry(out);
        return component->ending ? teff_step_continue(out) : teff_step_idle(out);
    }
    if (!component->ending)
        return teff_step_idle(out);
    if (!take_down_component(component))
        return teffi_step_set_retry(out);
    if (task)
        teffi_task_finish_and_notify(component->engine, task, 0);
    return teff_step_done(out);
}

/* Runs a component that has a run function or a fiber, from its set-up to its end.
 * out: TEFF_E_CANCELLED: the component was forced to end. */
static teff_err run_component(void *self, teff_process *me)
{
    teff_component *component = self;
    (void)me;
    while (!component->ending && !set_up_component(component))
        if (!teffi_component_wait_for_poke(component, true))
            component->ending = true;
    if (!component->ending && component->type->run)
        component->type->run(component);
    while (!component->ending && !component->type->run &&
           teff_component_drain(component, 1) == TEFF_OK)
        ;
    component->ending = true;
    while (!take_down_component(component))
        if (!teffi_component_wait_for_poke(component, false))
            return TEFF_E_CANCELLED; /* forced: close_component does the rest */
    return TEFF_OK;
}

/* Free the component. If it was forced to end and is not taken down yet, take it down first. This
 * is the last call for each component, also if its process never began (me is NULL). */
static void close_component(void *self)
{
    teff_component *component = self;
    teff_engine *engine = component->engine;
    if (component->me && component->phase != TEFFI_PHASE_GONE)
        take_down_by_force(component);
    unlist_component(component);
    atomic_fetch_sub_explicit(&engine->components, 1, memory_order_relaxed);
    free(component);
}

teff_ctx *teff_component_ctx(teff_component *component)
{
    return teff_process_ctx(component->me);
}

const teff_process_ops teffi_component_step_ops = {
    .step_max = 1, .init = init_component, .step = step_component, .close = close_component};
const teff_process_ops teffi_component_run_ops = {
    .init = init_component, .run = run_component, .close = close_component};
const teff_process_ops teffi_component_fiber_ops = {.flags = TEFF_PROCESS_FIBER,
                                                    .init = init_component,
                                                    .run = run_component,
                                                    .close = close_component};
