/* yield.c - commands that a process yields: to a handler, and back as completions.
 * Way:     step, ask -> [dispatch -> handler ... complete] -> the process's group
 * Threads: complete from anywhere. What is under way is listed under the stripe's lock together
 *          with the generation: so a completion finds the life that asked, once, or nobody.
 * The event of the completion is made before the handler is called: completing cannot fail. */
#include <stdlib.h>
#include <string.h>
#include "base/pool.h"
#include "process/process.h"

teff_err teff_process_handler(teff_process_system *system, uint32_t command, teff_command_fn *fn,
                              void *arg)
{
    if (command >= TEFF_COMMANDS_MAX || !fn)
        return TEFF_E_INVALID;
    if (system->handlers[command].fn)
        return TEFF_E_EXISTS;
    system->handlers[command].fn = fn;
    system->handlers[command].arg = arg;
    return TEFF_OK;
}

teffi_yield *teffi_yield_new(teff_process *p, uint32_t command, uint64_t tag, const void *data,
                             size_t len, teff_err *err)
{
    bool room = p->n_yields < p->system->opt.yields_max;
    teffi_yield *yield = room ? teffi_pool_get(sizeof *yield + len) : NULL;
    *err = yield ? TEFF_OK : room ? TEFF_E_NOMEM : TEFF_E_OVERLOADED;
    if (!yield)
        return NULL;
    memset(yield, 0, sizeof *yield);
    yield->e.item.kind = TEFFI_ITEM_YIELD;
    yield->e.generation = atomic_load_explicit(&p->generation, memory_order_relaxed);
    yield->e.event = (teff_event){.kind = TEFF_EVENT_COMPLETE, .tag = tag, .len = len};
    yield->serial = ++p->serial;
    yield->command = command;
    yield->data_len = len;
    if (len)
        memcpy(yield->data, data, len);
    p->n_yields++;
    return yield;
}

void teffi_yield_free(teffi_yield *yield)
{
    free(yield->reply);
    teffi_pool_put(yield, sizeof *yield + yield->data_len);
}

void teffi_yield_drop(teff_process *p, teffi_yield *yield)
{
    p->n_yields--;
    teffi_event_free(p, &yield->e);
}

void teffi_yield_dispatch(teff_process *p, teffi_yield *yield)
{
    uint32_t kind = yield->command, generation = yield->e.generation;
    teff_command command = {
        .command = kind,
        .tag = yield->e.event.tag,
        .data = yield->e.event.len ? yield->data : NULL,
        .len = yield->e.event.len,
        .from = teffi_process_pid_of(p, generation),
        .yield = {p->system, p->slot, generation, yield->serial},
    };
    pthread_mutex_lock(teffi_stripe(p));
    yield->next = p->yields;
    p->yields = yield;
    pthread_mutex_unlock(teffi_stripe(p));
    /* From here on it may be completed; it is not freed before this turn's group goes on. */
    teff_command_fn *fn = kind < TEFF_COMMANDS_MAX ? p->system->handlers[kind].fn : NULL;
    if (fn)
        fn(p->system->handlers[kind].arg, &command);
    else
        (void)teff_yield_complete(command.yield, TEFF_E_UNIMPLEMENTED, NULL, 0);
}

/* Out of the list of the life that asked. */
static teffi_yield *claim(teff_process *p, teff_yield name, teff_err *err)
{
    teffi_yield *found = NULL;
    pthread_mutex_lock(teffi_stripe(p));
    /* acquire, as in teffi_process_find */
    bool alive = atomic_load_explicit(&p->generation, memory_order_acquire) == name.generation;
    for (teffi_yield **at = &p->yields; alive && *at; at = &(*at)->next) {
        if ((*at)->serial != name.serial)
            continue;
        found = *at;
        *at = found->next;
        break;
    }
    pthread_mutex_unlock(teffi_stripe(p));
    *err = found ? TEFF_OK : alive ? TEFF_E_NOT_FOUND : TEFF_E_CLOSED;
    return found;
}

static void fill(teffi_yield *yield, teff_err err, const void *data, size_t len)
{
    teff_event *event = &yield->e.event;
    event->err = err;
    event->len = 0;
    if (!len)
        return;
    yield->reply = malloc(len);
    if (!yield->reply) {
        event->err = TEFF_E_NOMEM;
        return;
    }
    memcpy(yield->reply, data, len);
    event->data = yield->reply;
    event->len = len;
}

teff_err teff_yield_complete(teff_yield name, teff_err err, const void *data, size_t len)
{
    teff_process *p = teffi_process_at(name.system, name.slot);
    teff_err found = TEFF_E_NOT_FOUND;
    teffi_yield *yield = p ? claim(p, name, &found) : NULL;
    if (!yield) {
        atomic_fetch_add_explicit(&name.system->dropped, 1, memory_order_relaxed);
        return found;
    }
    fill(yield, err, data, len);
    if (teffi_group_push(&p->group, &yield->e.item)) {
        teffi_process_woken(p);
        return TEFF_OK;
    }
    teffi_yield_free(yield);
    return TEFF_E_CLOSED;
}
