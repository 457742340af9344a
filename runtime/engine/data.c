/* data.c - instances of data: published by owners, bound by users, freed with the last reference.
 * Threads: under engine.lock. */
#include "engine/engine.h"

#include <stdlib.h>

/* in: any: of any scheduler, not only w's; ready: only published ones. */
static teffi_instance *find_instance(teff_component *w, const teff_data_type *type, bool any,
                                     bool ready)
{
    for (teffi_instance *i = w->engine->instances; i; i = i->next)
        if (i->type == type && !i->gone && (i->ready || !ready) &&
            (any || i->scheduler == w->scheduler->index))
            return i;
    return NULL;
}

teffi_instance *teffi_instance_new(teff_component *w, const teff_data_type *type, bool owned)
{
    teff_engine *engine = w->engine;
    teffi_instance *instance = calloc(1, sizeof *instance + type->size);
    if (!instance)
        return NULL;
    instance->type = type;
    instance->scheduler = w->scheduler->index;
    instance->refs = 1;
    if (!owned)
        return instance;
    pthread_mutex_lock(&engine->lock);
    bool taken = find_instance(w, type, false, false) != NULL;
    if (!taken) { /* append, so that the oldest is found first */
        teffi_instance **at = &engine->instances;
        while (*at)
            at = &(*at)->next;
        *at = instance;
    }
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
    instance->ready = true;
    teffi_sleepers_poke(engine);
    pthread_mutex_unlock(&engine->lock);
}

/* engine.lock held. */
static void bound_add(teffi_instance *instance, teff_component *w, size_t i)
{
    teffi_bound *b = &w->bound[i];
    instance->refs++;
    b->component = w;
    LIST_INSERT_HEAD(&instance->bound, b, link);
}

static void bound_remove(teffi_bound *b)
{
    if (b->component)
        LIST_REMOVE(b, link);
    b->component = NULL;
}

teffi_instance *teffi_instance_bind(teff_component *w, size_t at, bool any)
{
    pthread_mutex_lock(&w->engine->lock);
    teffi_instance *i = find_instance(w, w->type->data[at].type, any, true);
    if (i)
        bound_add(i, w, at);
    else
        teffi_sleepers_add(w);
    pthread_mutex_unlock(&w->engine->lock);
    return i;
}

bool teffi_instance_retire(teff_engine *engine, teffi_instance *instance)
{
    pthread_mutex_lock(&engine->lock);
    bool unheld = LIST_EMPTY(&instance->held);
    instance->gone = true;
    teffi_claims_close(engine, instance);
    teffi_bound *b;
    LIST_FOREACH (b, &instance->bound, link)
        (void)teff_process_cancel(b->component->scheduler->system, b->component->pid);
    teffi_sleepers_poke(engine);
    pthread_mutex_unlock(&engine->lock);
    return unheld;
}

void teffi_instance_drop(teff_component *w, size_t i)
{
    teff_engine *engine = w->engine;
    teffi_instance *instance = w->data[i];
    w->data[i] = NULL;
    pthread_mutex_lock(&engine->lock);
    bound_remove(&w->bound[i]);
    bool last = --instance->refs == 0;
    for (teffi_instance **at = &engine->instances; last && *at; at = &(*at)->next)
        if (*at == instance) {
            *at = instance->next;
            break;
        }
    pthread_mutex_unlock(&engine->lock);
    if (last)
        free(instance);
}
