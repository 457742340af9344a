/* data.c - which data is there, and who is to be told when that changes?
 * Way:     life.c (owners publish, users bind) -> [data] -> pokes
 * Threads: everything under engine.lock. An instance's memory stays while somebody is bound to it,
 *          its content only until its owner has taken it down. */
#include <stdlib.h>
#include <string.h>
#include "process/engine.h"

void teffi_poke(teff_worker *w)
{
    (void)teffi_process_signal(w->scheduler->system, w->pid, TEFFI_SIGNAL_POKE);
}

static teffi_instance *find(teff_engine *engine, const teff_data_type *type, uint32_t scheduler,
                            bool any)
{
    for (teffi_instance *i = engine->instances; i; i = i->next)
        if (i->type == type && !i->gone && (any || i->scheduler == scheduler))
            return i;
    return NULL;
}

teffi_instance *teffi_instance_new(teff_worker *w, const teff_data_type *type, bool owned)
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
    bool taken = find(engine, type, instance->scheduler, false) != NULL;
    if (!taken) { /* behind the others: the oldest is found first */
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

static void poke_sleepers(teff_engine *engine)
{
    for (teff_worker *w = engine->sleepers; w; w = w->next_asleep)
        teffi_poke(w);
}

void teffi_instance_publish(teff_engine *engine, teffi_instance *instance)
{
    pthread_mutex_lock(&engine->lock);
    instance->ready = true;
    poke_sleepers(engine);
    pthread_mutex_unlock(&engine->lock);
}

static void sleep_locked(teff_worker *w)
{
    if (w->asleep)
        return;
    w->asleep = true;
    w->prev_asleep = NULL;
    w->next_asleep = w->engine->sleepers;
    if (w->next_asleep)
        w->next_asleep->prev_asleep = w;
    w->engine->sleepers = w;
}

/* engine.lock held. */
static void add_bound(teffi_instance *instance, teff_worker *w, size_t i)
{
    teffi_bound *b = &w->bound[i];
    instance->refs++;
    b->worker = w;
    b->prev = NULL;
    b->next = instance->bound;
    if (b->next)
        b->next->prev = b;
    instance->bound = b;
}

static void del_bound(teffi_instance *instance, teffi_bound *b)
{
    if (!b->worker)
        return;
    *(b->prev ? &b->prev->next : &instance->bound) = b->next;
    if (b->next)
        b->next->prev = b->prev;
    b->worker = NULL;
}

teffi_instance *teffi_instance_bind(teff_worker *w, size_t at, bool any)
{
    const teff_data_type *type = w->type->data[at].type;
    pthread_mutex_lock(&w->engine->lock);
    teffi_instance *i = w->engine->instances;
    while (i && (i->type != type || i->gone || !i->ready ||
                 (!any && i->scheduler != w->scheduler->index)))
        i = i->next;
    if (i)
        add_bound(i, w, at);
    else
        sleep_locked(w);
    pthread_mutex_unlock(&w->engine->lock);
    return i;
}

bool teffi_instance_gone(teff_engine *engine, teffi_instance *instance)
{
    pthread_mutex_lock(&engine->lock);
    bool unheld = instance->held == NULL;
    instance->gone = true;
    teffi_claim_gone(engine, instance);
    for (teffi_bound *b = instance->bound; b; b = b->next)
        (void)teff_process_cancel(b->worker->scheduler->system, b->worker->pid);
    poke_sleepers(engine);
    pthread_mutex_unlock(&engine->lock);
    return unheld;
}

void teffi_instance_drop(teff_worker *w, size_t i)
{
    teff_engine *engine = w->engine;
    teffi_instance *instance = w->data[i];
    w->data[i] = NULL;
    pthread_mutex_lock(&engine->lock);
    del_bound(instance, &w->bound[i]);
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

void teffi_sleep(teff_worker *w)
{
    pthread_mutex_lock(&w->engine->lock);
    sleep_locked(w);
    pthread_mutex_unlock(&w->engine->lock);
}

void teffi_unsleep(teff_worker *w)
{
    teff_engine *engine = w->engine;
    pthread_mutex_lock(&engine->lock);
    if (w->asleep) {
        *(w->prev_asleep ? &w->prev_asleep->next_asleep : &engine->sleepers) = w->next_asleep;
        if (w->next_asleep)
            w->next_asleep->prev_asleep = w->prev_asleep;
        w->asleep = false;
    }
    pthread_mutex_unlock(&engine->lock);
}

void teff_engine_notify(teff_engine *engine)
{
    /* Under the lock: a sleeper is listed before it looks at its condition, so either it is found
     * here, or it looks after what happened before this call. */
    pthread_mutex_lock(&engine->lock);
    poke_sleepers(engine);
    pthread_mutex_unlock(&engine->lock);
}
