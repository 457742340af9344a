/* data.c - instances of data: published by owners, bound by users, freed with the last reference.
 * Threads: find_instance runs under engine.lock; the others take it. */
#include "engine/engine.h"

#include <stdlib.h>

/* Find an instance of the type that is not retired.
 * in:   any_scheduler: also look at other schedulers than the component's. published: skip an
 *       instance that is not published yet.
 * out:  NULL: there is none. */
static teffi_instance *find_instance(teff_component *component, const teff_data_type *type,
                                     bool any_scheduler, bool published)
{
    teffi_instance *instance;
    TAILQ_FOREACH (instance, &component->engine->instances, link)
        if (instance->type == type && !instance->retired && (instance->published || !published) &&
            (any_scheduler || instance->scheduler == component->scheduler->index))
            return instance;
    return NULL;
}

teffi_instance *teffi_instance_new(teff_component *component, const teff_data_type *type,
                                   bool owned)
{
    teff_engine *engine = component->engine;
    teffi_instance *instance = calloc(1, sizeof *instance + type->size);
    if (!instance)
        return NULL;
    instance->type = type;
    instance->scheduler = component->scheduler->index;
    instance->refs = 1;
    if (!owned)
        return instance;
    pthread_mutex_lock(&engine->lock);
    /* the last argument is false: an instance that is not published yet counts, too */
    bool taken = find_instance(component, type, false, false) != NULL;
    instance->listed = !taken;
    if (!taken)
        TAILQ_INSERT_TAIL(&engine->instances, instance, link);
    pthread_mutex_unlock(&engine->lock);
    if (taken) {
        free(instance);
        return NULL;
    }
    return instance;
}

void teffi_instance_publish(teff_engine *engine, teffi_instance *instance)
{
    pthread_mutex_lock(&engine->lock);
    instance->published = true;
    teffi_sleepers_poke(engine);
    pthread_mutex_unlock(&engine->lock);
}

teffi_instance *teffi_instance_bind(teff_component *component, size_t i, bool any_scheduler)
{
    pthread_mutex_lock(&component->engine->lock);
    teffi_instance *instance =
        find_instance(component, component->type->data[i].type, any_scheduler, true);
    if (instance) {
        instance->refs++;
        component->bound[i].component = component;
        LIST_INSERT_HEAD(&instance->bound, &component->bound[i], link);
    } else {
        teffi_sleepers_add(component);
    }
    pthread_mutex_unlock(&component->engine->lock);
    return instance;
}

bool teffi_instance_retire(teff_engine *engine, teffi_instance *instance)
{
    pthread_mutex_lock(&engine->lock);
    bool unheld = LIST_EMPTY(&instance->held);
    instance->retired = true;
    teffi_instance_close_waiting_claims(engine, instance);
    teffi_bound *b;
    LIST_FOREACH (b, &instance->bound, link)
        (void)teff_process_cancel(b->component->scheduler->system, b->component->pid);
    teffi_sleepers_poke(engine);
    pthread_mutex_unlock(&engine->lock);
    return unheld;
}

void teffi_instance_drop_reference(teff_component *component, size_t i)
{
    teff_engine *engine = component->engine;
    teffi_instance *instance = component->data[i];
    component->data[i] = NULL;
    pthread_mutex_lock(&engine->lock);
    if (component->bound[i].component)
        LIST_REMOVE(&component->bound[i], link);
    component->bound[i].component = NULL;
    bool last = --instance->refs == 0;
    if (last && instance->listed)
        TAILQ_REMOVE(&engine->instances, instance, link);
    pthread_mutex_unlock(&engine->lock);
    if (last)
        free(instance);
}
