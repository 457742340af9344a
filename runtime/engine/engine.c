/* engine.c - engines: create schedulers, broadcast tasks, add and remove components, stop.
 * Way:     a program -> [engine] -> a system of processes for each scheduler
 *          broadcast -> each scheduler's dispatcher -> the mailboxes of components
 * Threads: new, stop, free: the owner; the others: any. broadcast_lock orders broadcasts. */
#include "engine/engine.h"

#include <stdlib.h>
#include <string.h>
#include "base/options.h"
#include "process/send.h"

enum { SCHEDULERS_MAX = 256, QUEUE_MAX = 10000, STOP_MS = 10000 };

/* ---- broadcast: copies of a task for each scheduler and each component that lists it ---- */

static bool type_lists_task(const teff_component_type *type, const teff_task_type *task)
{
    for (size_t i = 0; i < type->n_tasks; i++)
        if (type->tasks[i] == task)
            return true;
    return false;
}

static void increment_counter(_Atomic uint64_t *counter)
{
    atomic_fetch_add_explicit(counter, 1, memory_order_relaxed);
}

/* teffi_pid_route.respond: finishes a copy of a task that will not run. Copies are sent as
 * requests, since the process system calls respond only for requests. in: err: TEFF_E_CLOSED: the
 * component that got the copy has ended; TEFF_E_OVERLOADED: it was evicted from the run queue. */
static teff_err finish_unrun_copy(void *arg, const teff_event *copy, teff_err err, const void *text,
                                  size_t len)
{
    teff_engine *engine = ((teffi_scheduler *)arg)->engine;
    (void)text;
    (void)len;
    if (err == TEFF_E_OVERLOADED)
        increment_counter(&engine->evicted);
    teffi_task_finish_and_notify(engine, (teffi_task_msg *)(uintptr_t)copy->data, 0);
    return TEFF_OK;
}

/* Send a copy of the task to each component that lists the task's type, and count the copy as given
 * or refused. If no component lists the type, count the task as dropped. */
static void send_to_components(teffi_scheduler *s, const teff_event *event)
{
    const teffi_task_msg *task = event->data;
    const teff_event copy = {.kind = TEFF_EVENT_REQUEST, .data = task, .len = event->len};
    bool listed = false;
    teff_component *component;
    pthread_mutex_lock(&s->lock);
    LIST_FOREACH (component, &s->components, link) {
        if (!type_lists_task(component->type, task->type))
            continue;
        listed = true;
        bool given = teffi_process_send_here(s->system, component->pid, &copy) == TEFF_OK;
        increment_counter(given ? &s->engine->given : &s->engine->refused);
    }
    pthread_mutex_unlock(&s->lock);
    if (!listed)
        increment_counter(&s->engine->dropped);
}

/* The dispatcher's step: sends tasks to components. A cancel overtakes the queued tasks, so the
 * dispatcher continues after a cancel until its queue is empty, that is, until a step has no
 * event. */
static teff_err dispatch_tasks(void *self, const teff_event *events, size_t n, teff_step *out)
{
    teffi_scheduler *s = self;
    for (size_t i = 0; i < n; i++)
        if (events[i].kind == TEFF_EVENT_CANCEL)
            s->ending = true;
        else
            send_to_components(s, &events[i]);
    if (!s->ending)
        return teff_step_idle(out);
    return n ? teff_step_continue(out) : teff_step_done(out);
}

static const teff_process_ops dispatcher_ops = {
    .name = "dispatcher", .flags = TEFFI_PROCESS_KEPT, .step = dispatch_tasks};

typedef struct target { /* the schedulers to which a task is sent: one, or all */
    teffi_scheduler *first, *end;
} target;

static bool all_have_room(const target *to, size_t len)
{
    for (teffi_scheduler *s = to->first; s < to->end; s++)
        if (!teffi_process_has_room(s->system, s->dispatcher, len))
            return false;
    return true;
}

/* Send a task to all schedulers of the target if each has room for it. broadcast_lock must be held:
 * dispatchers get tasks only from this function, so no other thread can use up the room after the
 * check. errs: TEFF_E_CLOSED, TEFF_E_OVERLOADED: no scheduler got the task; TEFF_E_NOMEM: some
 * schedulers may have got it. */
static teff_err send_task_if_all_have_room(teff_engine *engine, const target *to,
                                           const teff_event *event)
{
    if (teff_engine_is_ending(engine))
        return TEFF_E_CLOSED;
    if (!all_have_room(to, event->len))
        return TEFF_E_OVERLOADED;
    teff_err err = TEFF_OK;
    for (teffi_scheduler *s = to->first; s < to->end && !err; s++)
        err = teffi_process_send_here(s->system, s->dispatcher, event);
    increment_counter(&engine->broadcasts);
    return err;
}

static teff_err send_task(teff_engine *engine, const target *to, const teff_task_type *type,
                          const void *task)
{
    size_t len = sizeof(teffi_task_msg) + type->size;
    (void)teff_yield_if_due(); /* here, since a turn must not yield under broadcast_lock */
    teffi_task_msg *msg = malloc(len);
    if (!msg)
        return TEFF_E_NOMEM;
    memset(msg, 0, sizeof *msg);
    msg->type = type;
    if (type->size)
        memcpy(msg->bytes, task, type->size);
    pthread_mutex_lock(&engine->broadcast_lock);
    const teff_event event = {.kind = TEFF_EVENT_MESSAGE, .data = msg, .len = len};
    teff_err err = send_task_if_all_have_room(engine, to, &event);
    pthread_mutex_unlock(&engine->broadcast_lock);
    free(msg);
    return err;
}

teff_err teff_engine_broadcast(teff_engine *engine, const teff_task_type *type, const void *task)
{
    const target all = {engine->schedulers, engine->schedulers + engine->n_schedulers};
    return send_task(engine, &all, type, task);
}

teff_err teff_engine_send(teff_engine *engine, uint32_t scheduler, const teff_task_type *type,
                          const void *task)
{
    if (scheduler >= engine->n_schedulers)
        return TEFF_E_INVALID;
    const target one = {&engine->schedulers[scheduler], &engine->schedulers[scheduler + 1]};
    return send_task(engine, &one, type, task);
}

/* ---- schedulers ---- */

/* Tell the engine's user that a component has ended. Called by the process system, also for the
 * dispatcher, which is no component. */
static void report_component_end(void *arg, teff_pid pid, teff_err err)
{
    teffi_scheduler *s = arg;
    (void)err;
    if (s->engine->opt.ended && !teff_pid_equals(pid, s->dispatcher))
        s->engine->opt.ended(s->engine->opt.arg, (teff_component_id){s->index, pid});
}

static const teffi_process_words component_words = {"component", "components and dispatcher", true};

/* out: on an error s->system may be set; teffi_engine_free_stopped() frees it. */
static teff_err scheduler_init(teffi_scheduler *s, teff_engine *engine, uint32_t index)
{
    teff_process_options opt = {.size = sizeof opt,
                                .workers = engine->opt.threads,
                                .sched = engine->opt.sched,
                                .mailbox_max = engine->opt.queue_max,
                                .ended = report_component_end,
                                .arg = s};
    s->engine = engine;
    s->index = index;
    teff_err err = engine->exec ? teffi_process_system_new_on(engine->exec, &opt, &s->system)
                                : teff_process_system_new(&opt, &s->system);
    if (err)
        return err;
    s->system->calls = engine->calls;
    s->system->words = &component_words;
    s->system->route = (teffi_pid_route){.respond = finish_unrun_copy, .arg = s};
    pthread_mutex_init(&s->lock, NULL);
    return teff_process_spawn(s->system, &dispatcher_ops, s, NULL, NULL, 0, &s->dispatcher);
}

void teffi_engine_free_stopped(teff_engine *engine)
{
    for (uint32_t i = 0; i < engine->n_schedulers; i++) {
        teffi_scheduler *s = &engine->schedulers[i];
        if (engine->exec) /* the executor is the caller's, and the caller has freed it already */
            teffi_process_system_free_memory(s->system);
        else
            teff_process_system_free(s->system);
        pthread_mutex_destroy(&s->lock);
    }
    for (teffi_instance *i; (i = TAILQ_FIRST(&engine->instances));) {
        TAILQ_REMOVE(&engine->instances, i, link);
        free(i); /* left by a component that was stuck when the engine stopped */
    }
    while (engine->ops) {
        teffi_component_ops *next = engine->ops->next;
        free(engine->ops);
        engine->ops = next;
    }
    pthread_mutex_destroy(&engine->lock);
    pthread_mutex_destroy(&engine->broadcast_lock);
    free(engine->schedulers);
    free(engine);
}

/* Copy the options, checking their size. errs: TEFF_E_INVALID: the log says why. */
static teff_err check_and_copy_engine_options(teff_engine_options *to,
                                              const teff_engine_options *from)
{
    char text[TEFF_TEXT_MAX];
    teffi_platform platform;
    if (teffi_options_check_and_copy(to, sizeof *to, from, "teff_engine_options", text))
        return TEFF_OK;
    teffi_platform_init_real(&platform, TEFF_LOG_WARN);
    teffi_logf(&platform.log, TEFF_LOG_ERROR, "%s", text);
    return TEFF_E_INVALID;
}

teff_err teffi_engine_new_on(teffi_exec *exec, const teffi_process_calls *calls,
                             const teff_engine_options *opt, teff_engine **engine)
{
    teff_engine_options filled;
    *engine = NULL;
    if (check_and_copy_engine_options(&filled, opt))
        return TEFF_E_INVALID;
    filled.schedulers = teffi_or_default(filled.schedulers, 1);
    filled.threads = teffi_or_default(filled.threads, 1);
    filled.queue_max = teffi_or_default(filled.queue_max, QUEUE_MAX);
    if (filled.schedulers > SCHEDULERS_MAX)
        return TEFF_E_INVALID;
    teff_engine *e = calloc(1, sizeof *e);
    if (!e)
        return TEFF_E_NOMEM;
    e->opt = filled;
    TAILQ_INIT(&e->waiters);
    TAILQ_INIT(&e->instances);
    e->exec = exec;
    e->calls = *calls;
    pthread_mutex_init(&e->lock, NULL);
    pthread_mutex_init(&e->broadcast_lock, NULL);
    e->schedulers = calloc(filled.schedulers, sizeof *e->schedulers);
    teff_err err = e->schedulers ? TEFF_OK : TEFF_E_NOMEM;
    while (!err && e->n_schedulers < filled.schedulers) {
        teffi_scheduler *s = &e->schedulers[e->n_schedulers];
        err = scheduler_init(s, e, e->n_schedulers);
        e->n_schedulers += s->system != NULL;
    }
    if (err && !e->n_schedulers) { /* no scheduler yet; otherwise the caller stops and frees e */
        teffi_engine_free_stopped(e);
        return err;
    }
    e->opt.sched = NULL; /* the schedulers have copies; the original is the caller's */
    *engine = e;
    return err;
}

teff_err teff_engine_new(const teff_engine_options *opt, teff_engine **engine)
{
    const teffi_process_calls none = {0};
    teff_err err = teffi_engine_new_on(NULL, &none, opt, engine);
    if (err && *engine) {
        teffi_engine_free_stopped(*engine);
        *engine = NULL;
    }
    return err;
}

/* ---- components ---- */

/* Does a component of this type hold its thread until it ends? */
static bool holds_its_thread(const teff_component_type *type)
{
    return type->run && !(type->flags & TEFF_COMPONENT_FIBER);
}

/* scheduler.lock held. A component that holds its thread must be its scheduler's only component. */
static bool may_join_scheduler(const teffi_scheduler *s, const teff_component_type *type)
{
    const teff_component *first = LIST_FIRST(&s->components);
    return !first || (!holds_its_thread(type) && !holds_its_thread(first->type));
}

/* Find the process operations of a component type; make them at the type's first use.
 * out: NULL: no memory. */
static const teff_process_ops *get_or_make_ops(teff_engine *engine, const teff_component_type *type)
{
    pthread_mutex_lock(&engine->lock);
    teffi_component_ops *found = engine->ops;
    while (found && found->type != type)
        found = found->next;
    if (!found && (found = malloc(sizeof *found))) {
        *found = (teffi_component_ops){.next = engine->ops, .type = type};
        found->ops = type->flags & TEFF_COMPONENT_FIBER ? teffi_component_fiber_ops
                     : type->run                        ? teffi_component_run_ops
                                                        : teffi_component_step_ops;
        found->ops.name = type->name;
        engine->ops = found;
    }
    pthread_mutex_unlock(&engine->lock);
    return found ? &found->ops : NULL;
}

/* Start the component's process and list the component, both under the scheduler's lock, so that it
 * does not end or miss a task in between. errs: TEFF_E_INVALID: see may_join_scheduler; else as
 * teff_process_spawn. */
static teff_err start_component(teff_component *component, const teff_process_ops *ops,
                                teff_component_id *id)
{
    teffi_scheduler *s = component->scheduler;
    teff_err err = TEFF_E_INVALID;
    pthread_mutex_lock(&s->lock);
    /* under the lock: cancel_components() takes it after the engine was marked as ending */
    if (teff_engine_is_ending(s->engine))
        err = TEFF_E_CLOSED;
    else if (may_join_scheduler(s, component->type))
        err = teff_process_spawn(s->system, ops, component, NULL, NULL, 0, &component->pid);
    if (!err) {
        component->listed = true;
        LIST_INSERT_HEAD(&s->components, component, link);
        if (id)
            *id = teff_component_id_of(component);
        atomic_fetch_add_explicit(&component->engine->components, 1, memory_order_relaxed);
    }
    pthread_mutex_unlock(&s->lock);
    return err;
}

teff_err teff_engine_add(teff_engine *engine, uint32_t scheduler, const teff_component_type *type,
                         void *user, teff_component_id *id)
{
    if (scheduler >= engine->n_schedulers || (!type->n_tasks && !type->run))
        return TEFF_E_INVALID;
    const teff_process_ops *ops = get_or_make_ops(engine, type);
    teff_component *component =
        ops ? calloc(1, sizeof *component +
                            type->n_data * (sizeof component->data[0] + sizeof *component->bound))
            : NULL;
    if (!component)
        return TEFF_E_NOMEM;
    component->engine = engine;
    component->scheduler = &engine->schedulers[scheduler];
    component->type = type;
    component->user = user;
    component->bound = (teffi_bound *)(void *)&component->data[type->n_data];
    teff_err err = start_component(component, ops, id);
    if (err)
        free(component);
    return err;
}

teff_err teff_engine_remove(teff_engine *engine, teff_component_id id)
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
        .evicted = atomic_load_explicit(&engine->evicted, memory_order_relaxed),
        .components = atomic_load_explicit(&engine->components, memory_order_relaxed),
    };
}

void teffi_engine_print(teff_engine *engine, const teffi_lines *to)
{
    teff_engine_stats stats;
    teff_engine_stats_get(engine, &stats);
    teffi_lines_write_line(
        to,
        "engine: %u schedulers, %u components, %llu broadcasts, %llu copies given, %llu "
        "dropped, %llu refused, %llu evicted",
        engine->n_schedulers, stats.components, (unsigned long long)stats.broadcasts,
        (unsigned long long)stats.given, (unsigned long long)stats.dropped,
        (unsigned long long)stats.refused, (unsigned long long)stats.evicted);
    for (uint32_t i = 0; i < engine->n_schedulers; i++)
        teffi_processes_print(engine->schedulers[i].system, to);
}

/* Cancel the listed components of all schedulers. Called before the first scheduler is stopped,
 * since a component may wait for a component of another scheduler. out: how many were cancelled. */
static uint32_t cancel_components(teff_engine *engine)
{
    uint32_t n = 0;
    teff_component *component;
    for (uint32_t i = 0; i < engine->n_schedulers; i++) {
        teffi_scheduler *s = &engine->schedulers[i];
        pthread_mutex_lock(&s->lock);
        LIST_FOREACH (component, &s->components, link)
            n += teff_process_cancel(s->system, component->pid) == TEFF_OK;
        pthread_mutex_unlock(&s->lock);
    }
    return n;
}

/* Refuse new tasks and components from now on. The lock makes sure that each task is either refused
 * or sent before teff_engine_stop() cancels the dispatchers. */
static void set_engine_ending(teff_engine *engine)
{
    pthread_mutex_lock(&engine->broadcast_lock);
    atomic_store_explicit(&engine->ending, true, memory_order_relaxed);
    pthread_mutex_unlock(&engine->broadcast_lock);
}

void teff_engine_end(teff_engine *engine)
{
    set_engine_ending(engine);
    (void)cancel_components(engine);
}

bool teff_engine_is_ending(teff_engine *engine)
{
    return atomic_load_explicit(&engine->ending, memory_order_relaxed);
}

static void add_report_to_sum(teff_stop_report *sum, const teff_stop_report *one)
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
    set_engine_ending(engine);
    sum.cancelled = cancel_components(engine);
    for (uint32_t i = 0; i < engine->n_schedulers; i++) {
        teff_stop_report one;
        uint64_t now = teffi_now(platform);
        uint32_t left_ms = now < until ? (uint32_t)((until - now) / 1000000) : 0;
        /* at least 1, since 0 stands for the default */
        (void)teff_process_system_stop(engine->schedulers[i].system, left_ms ? left_ms : 1, &one);
        add_report_to_sum(&sum, &one);
    }
    atomic_store_explicit(&engine->stopped, true, memory_order_relaxed);
    if (report)
        *report = sum;
    return sum.forced ? TEFF_E_TIMEOUT : TEFF_OK;
}

void teff_engine_free(teff_engine *engine)
{
    if (!engine)
        return;
    if (!atomic_load_explicit(&engine->stopped, memory_order_relaxed))
        (void)teff_engine_stop(engine, 0, NULL);
    teffi_engine_free_stopped(engine);
}
