/* command.c - commands, from a process to its host's handlers, and their completions.
 * Threads: the stripe's lock guards the list of commands in flight; a life ends under it, too. So a
 *          completion reaches the life that sent the command, at most once, and no other. Its event
 *          is allocated with the command, so that completing cannot fail. */
#include "process/events.h"

#include <stdlib.h>
#include <string.h>
#include "memory/pool.h"
#include "process/send.h"

teff_err teff_process_set_handler(teff_process_system *system, uint32_t command,
                                  teff_command_fn *fn, void *arg)
{
    if (command >= TEFF_COMMANDS_MAX || !fn)
        return TEFF_E_INVALID;
    if (system->handlers[command].fn)
        return TEFF_E_EXISTS;
    system->handlers[command].fn = fn;
    system->handlers[command].arg = arg;
    return TEFF_OK;
}

teffi_command *teffi_command_new(teff_process *p, uint32_t kind, uint64_t tag, const void *data,
                                 size_t len, teff_err *err)
{
    bool room = p->n_commands < p->system->opt.commands_max;
    teffi_command *c = room ? teffi_pool_get(sizeof *c + len) : NULL;
    *err = c ? TEFF_OK : room ? TEFF_E_NOMEM : TEFF_E_OVERLOADED;
    if (!c)
        return NULL;
    memset(c, 0, sizeof *c);
    c->e.item.kind = TEFFI_ITEM_COMMAND;
    c->e.generation = atomic_load_explicit(&p->generation, memory_order_relaxed);
    c->e.event = (teff_event){.kind = TEFF_EVENT_COMPLETE, .tag = tag, .len = len};
    c->serial = ++p->serial;
    c->kind = kind;
    c->data_len = len;
    if (len)
        memcpy(c->data, data, len);
    p->n_commands++;
    return c;
}

void teffi_command_free(teffi_command *c)
{
    free(c->result);
    teffi_pool_put(c, sizeof *c + c->data_len);
}

void teffi_command_dispatch(teff_process *p, teffi_command *c)
{
    uint32_t kind = c->kind, generation = c->e.generation;
    teff_command command = {
        .command = kind,
        .tag = c->e.event.tag,
        .data = c->e.event.len ? c->data : NULL,
        .len = c->e.event.len,
        .from = teffi_process_pid_of(p, generation),
        .completion = {p->system, p->slot, generation, c->serial},
    };
    pthread_mutex_lock(teffi_stripe_lock_of(p));
    c->next = p->commands;
    p->commands = c;
    pthread_mutex_unlock(teffi_stripe_lock_of(p));
    /* From here on, any thread may complete the command. But the command is freed only by a turn of
     * this process, or after the process has ended. This turn continues only after fn has returned,
     * so the command's data is valid while fn runs. */
    teff_command_fn *fn = kind < TEFF_COMMANDS_MAX ? p->system->handlers[kind].fn : NULL;
    if (fn)
        fn(p->system->handlers[kind].arg, &command);
    else
        (void)teff_command_complete(command.completion, TEFF_E_UNIMPLEMENTED, NULL, 0);
}

/* Removes a command from its process's list of commands in flight. out: the command; NULL: it was
 * completed before (*err: TEFF_E_NOT_FOUND), or the process has ended (*err: TEFF_E_CLOSED). */
static teffi_command *remove_command_in_flight(teff_process *p, teff_completion name, teff_err *err)
{
    teffi_command *found = NULL;
    pthread_mutex_lock(teffi_stripe_lock_of(p));
    /* acquire: pairs with publish_process() */
    bool alive = atomic_load_explicit(&p->generation, memory_order_acquire) == name.generation;
    for (teffi_command **at = &p->commands; alive && *at; at = &(*at)->next) {
        if ((*at)->serial != name.serial)
            continue;
        found = *at;
        *at = found->next;
        break;
    }
    pthread_mutex_unlock(teffi_stripe_lock_of(p));
    *err = found ? TEFF_OK : alive ? TEFF_E_NOT_FOUND : TEFF_E_CLOSED;
    return found;
}

/* Sets the result of a command: err and a copy of data. If there is no memory for the copy, the
 * result is TEFF_E_NOMEM without data. */
static void set_command_result(teffi_command *c, teff_err err, const void *data, size_t len)
{
    teff_event *event = &c->e.event;
    event->err = err;
    event->len = 0;
    if (!len)
        return;
    c->result = malloc(len);
    if (!c->result) {
        event->err = TEFF_E_NOMEM;
        return;
    }
    memcpy(c->result, data, len);
    event->data = c->result;
    event->len = len;
}

teff_err teff_command_complete(teff_completion name, teff_err err, const void *data, size_t len)
{
    teff_process *p = teffi_process_at(name.system, name.slot);
    teff_err found = TEFF_E_NOT_FOUND;
    teffi_command *c = p ? remove_command_in_flight(p, name, &found) : NULL;
    if (!c) {
        atomic_fetch_add_explicit(&name.system->dropped, 1, memory_order_relaxed);
        return found;
    }
    set_command_result(c, err, data, len);
    if (teffi_group_push(&p->group, &c->e.item)) {
        teffi_process_wake(p);
        return TEFF_OK;
    }
    teffi_command_free(c);
    return TEFF_E_CLOSED;
}
