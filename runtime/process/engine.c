/* engine.c - engines: made of schedulers, given workers, stopped.
 * Way:     a program -> [engine] -> a system of processes for each scheduler
 * Threads: new, stop, free: the owner; the rest from anywhere. */
#include "process/engine.h"

#include <stdlib.h>

enum { SCHEDULERS_MAX = 256, QUEUE_MAX = 10000, STOP_MS = 10000 };

static void scheduler_fini(teffi_scheduler *s)
{
    teff_process_system_free(s->system);
    if (s->system)
        pthread_mutex_destroy(&s->lock);
}

/* From the process: when a worker's PID is not good any more. */
static void ended(void *arg, teff_pid pid, teff_err err)
{
    teffi_scheduler *s = arg;
    (void)err;
    if (s->engine->opt.ended && !teff_pid_is(pid, s->dispatcher))
        s->engine->opt.ended(s->engine->opt.arg, (teff_worker_id){s->index, pid});
}

static teff_err scheduler_init(teffi_scheduler *s, teff_engine *engine, uint32_t index)
{
    teff_process_options opt = {.workers = engine->opt.threads,
                                .sched = engine->opt.sched,
                                .mailbox_max = engine->opt.queue_max,
                                .ended = ended,
                                .arg = s};
    s->engine = engine;
    s->index = index;
    teff_err err = teff_process_system_new(&opt, &s->system);
    if (err)
        return err;
    pthread_mutex_init(&s->lock, NULL);
    return teff_process_spawn(s->system, &teffi_dispatcher_ops, s, NULL, NULL, 0, &s->dispatcher);
}

static void engine_fini(teff_engine *engine)
{
    for (uint32_t i = 0; i < engine->n_schedulers; i++)
        scheduler_fini(&engine->schedulers[i]);
    while (engine->instances) { /* of workers that were forced and had no turn any more */
        teffi_instance *next = engine->instances->next;
        free(engine->instances);
        engine->instances = next;
    }
    pthread_mutex_destroy(&engine->lock);
    pthread_mutex_destroy(&engine->broadcast_lock);
    free(engine->schedulers);
    free(engine);
}

teff_err teff_engine_new(const teff_engine_options *opt, teff_engine **engine)
{
    teff_engine_options filled = opt ? *opt : (teff_engine_options){0};
    filled.schedulers = filled.schedulers ? filled.schedulers : 1;
    filled.threads = filled.threads ? filled.threads : 1;
    filled.queue_max = filled.queue_max ? filled.queue_max : QUEUE_MAX;
    if (filled.schedulers > SCHEDULERS_MAX)
        return TEFF_E_INVALID;
    teff_engine *e = calloc(1, sizeof *e);
    if (!e)
        return TEFF_E_NOMEM;
    e->opt = filled;
    pthread_mutex_init(&e->lock, NULL);
    pthread_mutex_init(&e->broadcast_lock, NULL);
    e->schedulers = calloc(filled.schedulers, sizeof *e->schedulers);
    teff_err err = e->schedulers ? TEFF_OK : TEFF_E_NOMEM;
    while (!err && e->n_schedulers < filled.schedulers) {
        err = scheduler_init(&e->schedulers[e->n_schedulers], e, e->n_schedulers);
        e->n_schedulers++;
    }
    if (err) {
        engine_fini(e);
        return err;
    }
    *engine = e;
    return TEFF_OK;
}

static bool holds_its_thread(const teff_worker_type *type)
{
    return type->run && !(type->flags & TEFF_WORKER_FIBER);
}

/* Scheduler's lock held. Such a worker is its scheduler's only one. */
static bool may_join(const teffi_scheduler *s, const teff_worker_type *type)
{
    return !s->workers || (!holds_its_thread(type) && !holds_its_thread(s->workers->type));
}

static const teff_process_ops *ops_for(const teff_worker_type *type)
{
    if (type->flags & TEFF_WORKER_FIBER)
        return &teffi_worker_fiber_ops;
    return type->run ? &teffi_worker_run_ops : &teffi_worker_step_ops;
}

/* Listed and started under the lock: the worker cannot end, nor a task pass, in between. */
static teff_err start(teff_worker *w, teff_worker_id *id)
{
    teffi_scheduler *s = w->scheduler;
    teff_err err = TEFF_E_INVALID;
    pthread_mutex_lock(&s->lock);
    if (may_join(s, w->type))
        err = teff_process_spawn(s->system, ops_for(w->type), w, NULL, NULL, 0, &w->pid);
    if (!err) {
        w->listed = true;
        w->next = s->workers;
        if (w->next)
            w->next->prev = w;
        s->workers = w;
        if (id)
            *id = teff_worker_id_of(w);
        atomic_fetch_add_explicit(&w->engine->workers, 1, memory_order_relaxed);
    }
    pthread_mutex_unlock(&s->lock);
    return err;
}

teff_err teff_engine_add(teff_engine *engine, uint32_t scheduler, const teff_worker_type *type,
                         void *user, teff_worker_id *id)
{
    if (scheduler >= engine->n_schedulers || (!type->n_tasks && !type->run))
        return TEFF_E_INVALID;
    if (atomic_load_explicit(&engine->stopping, memory_order_relaxed))
        return TEFF_E_CLOSED;
    teff_worker *w = calloc(1, sizeof *w + type->n_data * (sizeof w->data[0] + sizeof *w->bound));
    if (!w)
        return TEFF_E_NOMEM;
    w->engine = engine;
    w->scheduler = &engine->schedulers[scheduler];
    w->type = type;
    w->user = user;
    w->bound = (teffi_bound *)(void *)&w->data[type->n_data];
    teff_err err = start(w, id);
    if (err)
        free(w);
    return err;
}

teff_err teff_engine_remove(teff_engine *engine, teff_worker_id id)
{
    if (id.scheduler >= engine->n_schedulers)
        return TEFF_E_NOT_FOUND;
    return teff_process_cancel(engine->schedulers[id.scheduler].system, id.pid);
}

void teff_engine_stats_get(teff_engine *engine, teff_engine_stats *stats)
{
    *stats = (teff_engine_stats){
        .broadcasts = atomic_load_explicit(&engine->broadcasts, memory_order_relaxed),
        .given = atomic_load_explicit(&engine->given, memory_order_relaxed),
        .dropped = atomic_load_explicit(&engine->dropped, memory_order_relaxed),
        .refused = atomic_load_explicit(&engine->refused, memory_order_relaxed),
        .workers = atomic_load_explicit(&engine->workers, memory_order_relaxed),
    };
}

/* Workers of all schedulers first: one may wait for another elsewhere. */
static uint32_t tell_workers(teff_engine *engine)
{
    uint32_t told = 0;
    for (uint32_t i = 0; i < engine->n_schedulers; i++) {
        teffi_scheduler *s = &engine->schedulers[i];
        pthread_mutex_lock(&s->lock);
        for (teff_worker *w = s->workers; w; w = w->next)
            told += teff_process_cancel(s->system, w->pid) == TEFF_OK;
        pthread_mutex_unlock(&s->lock);
    }
    return told;
}

static void add_report(teff_stop_report *sum, const teff_stop_report *one)
{
    sum->forced += one->forced;
    sum->stuck += one->stuck;
    for (uint32_t i = 0; i < one->n_named && sum->n_named < TEFF_STOP_NAMED; i++)
        sum->named[sum->n_named++] = one->named[i];
}

teff_err teff_engine_stop(teff_engine *engine, uint32_t timeout_ms, teff_stop_report *report)
{
    const teffi_platform *platform = engine->schedulers[0].system->exec->platform;
    uint64_t until = teffi_now(platform) + (timeout_ms ? timeout_ms : STOP_MS) * (uint64_t)1000000;
    teff_stop_report sum = {0};
    atomic_store_explicit(&engine->stopping, true, memory_order_relaxed);
    sum.told = tell_workers(engine);
    for (uint32_t i = 0; i < engine->n_schedulers; i++) {
        teff_stop_report one;
        uint64_t now = teffi_now(platform);
        uint32_t left_ms = now < until ? (uint32_t)((until - now) / 1000000) : 0;
        (void)teff_process_system_stop(engine->schedulers[i].system, left_ms ? left_ms : 1, &one);
        add_report(&sum, &one);
    }
    if (report)
        *report = sum;
    return sum.forced ? TEFF_E_TIMEOUT : TEFF_OK;
}

void teff_engine_free(teff_engine *engine)
{
    if (!engine)
        return;
    if (!atomic_load_explicit(&engine->stopping, memory_order_relaxed))
        (void)teff_engine_stop(engine, 0, NULL);
    engine_fini(engine);
}
