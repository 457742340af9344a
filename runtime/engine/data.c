/* data.c - instances of data: published by owners, bound by users, freed with the last reference.
 * Threads: under engine.lock. */
#include "engine/engine.h"

#include <stdlib.h>

/* Find an instance of the type that is not retired. in: any: of any scheduler, not only w's; ready:
 * only a published one. out: NULL: there is none. */
static teffi_instance *find_instance(teff_component *w, const teff_data_type *type, bool any,
                                     bool ready)
{
    teffi_instance *i;
    TAILQ_FOREACH (i, &w->engine->instances, link)
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
    /* ready is false: an instance that is not published yet counts, too */
    bool taken = find_instance(w, type, false, false) != NULL;
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
    instance->ready = true;
    teffi_sleepers_poke(engine);
    pthread_mutex_unlock(&engine->lock);
}

teffi_instance *teffi_instance_bind(teff_component *w, size_t at, bool any)
{
    pthread_mutex_lock(&w->engine->lock);
    teffi_instance *i = find_instance(w, w->type->data[at].type, any, true);
    if (i) {
        i->refs++;
        w->bound[at].component = w;
        LIST_INSERT_HEAD(&i->bound, &w->bound[at], link);
    } else {
        teffi_sleepers_add(w);
    }
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
    if (w->bound[i].component)
        LIST_REMOVE(&w->bound[i], link);
    w->bound[i].component = NULL;
    bool last = --instance->refs == 0;
    if (last && instance->listed)
        TAILQ_REMOVE(&engine->instances, instance, link);
    pthread_mutex_unlock(&engine->lock);
    if (last)
        free(instance);
}
