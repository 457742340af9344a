/* broadcast.c - tasks to every scheduler, and from there to the workers that list them.
 * Way:     teff_engine_broadcast -> each scheduler's dispatcher -> [give] -> workers' mailboxes
 * Threads: broadcast from anywhere, one at a time; each dispatcher on its scheduler. */
#include <stdlib.h>
#include <string.h>
#include "process/engine.h"

static bool lists(const teff_worker_type *type, const teff_task_type *task)
{
    for (size_t i = 0; i < type->n_tasks; i++)
        if (type->tasks[i] == task)
            return true;
    return false;
}

static void count(_Atomic uint64_t *counter)
{
    atomic_fetch_add_explicit(counter, 1, memory_order_relaxed);
}

/* The lock keeps workers in the list from ending completely: each copy is run or thrown away. */
static void give(teffi_scheduler *s, const teff_event *event)
{
    const teffi_task_msg *task = event->data;
    bool listed = false;
    pthread_mutex_lock(&s->lock);
    for (teff_worker *w = s->workers; w; w = w->next) {
        if (!lists(w->type, task->type))
            continue;
        listed = true;
        bool given = teff_process_send(s->system, w->pid, event) == TEFF_OK;
        count(given ? &s->engine->given : &s->engine->refused);
    }
    pthread_mutex_unlock(&s->lock);
    if (!listed)
        count(&s->engine->dropped);
}

static teff_err dispatch(void *self, const teff_event *events, size_t n, teff_step *out)
{
    for (size_t i = 0; i < n; i++) {
        if (events[i].kind == TEFF_EVENT_CANCEL)
            return teff_step_done(out);
        give(self, &events[i]);
    }
    return teff_step_idle(out);
}

const teff_process_ops teffi_dispatcher_ops = {.name = "dispatcher", .step = dispatch};

static bool room_everywhere(teff_engine *engine, size_t len)
{
    for (uint32_t i = 0; i < engine->n_schedulers; i++)
        if (!teffi_process_room(engine->schedulers[i].system, engine->schedulers[i].dispatcher,
                                len))
            return false;
    return true;
}

/* Only broadcasts fill the dispatchers' mailboxes: room that is there stays until the send. */
static teff_err send_all(teff_engine *engine, const teff_event *event)
{
    if (atomic_load_explicit(&engine->stopping, memory_order_relaxed))
        return TEFF_E_CLOSED;
    if (!room_everywhere(engine, event->len))
        return TEFF_E_OVERLOADED;
    teff_err err = TEFF_OK;
    for (uint32_t i = 0; i < engine->n_schedulers && !err; i++)
        err = teff_process_send(engine->schedulers[i].system, engine->schedulers[i].dispatcher,
                                event);
    count(&engine->broadcasts);
    return err;
}

teff_err teff_engine_broadcast(teff_engine *engine, const teff_task_type *type, const void *task)
{
    size_t len = sizeof(teffi_task_msg) + type->size;
    teffi_task_msg *msg = malloc(len);
    if (!msg)
        return TEFF_E_NOMEM;
    memset(msg, 0, sizeof *msg);
    msg->type = type;
    if (type->size)
        memcpy(msg->bytes, task, type->size);
    pthread_mutex_lock(&engine->broadcast_lock);
    teff_err err = send_all(engine, &(teff_event){.data = msg, .len = len});
    pthread_mutex_unlock(&engine->broadcast_lock);
    free(msg);
    return err;
}
