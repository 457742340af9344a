/* send.c - events on their way to a process: messages, cancels, pokes.
 * Way:     a sender -> [send] -> pid -> the process's group | the route to another silo
 * Threads: any. A message is pushed without a lock: should the process end and its slot be used
 *          again meanwhile, the generation in the message makes the next one drop it unseen. */
#include <string.h>
#include "base/pool.h"
#include "process/process.h"

void teffi_process_woken(teff_process *p)
{
    /* seq_cst: after the push; pairs with sleep_until_item in wait.c */
    if (atomic_load_explicit(&p->sleeping, memory_order_seq_cst))
        teffi_parker_wake(&p->parker);
}

static teffi_event *message_new(const teff_event *from, uint32_t generation)
{
    teffi_event *event = teffi_pool_get(sizeof *event + from->len);
    if (!event)
        return NULL;
    event->item.kind = TEFFI_ITEM_MESSAGE;
    event->generation = generation;
    event->event = *from;
    event->event.kind = TEFF_EVENT_MESSAGE;
    event->event.err = TEFF_OK;
    event->event.data = from->len ? event + 1 : NULL;
    if (from->len)
        memcpy(event + 1, from->data, from->len);
    return event;
}

static bool within(const teff_process_system *system, uint64_t load)
{
    return load >> TEFFI_MAIL_SHIFT <= system->opt.mailbox_max &&
           (load & (((uint64_t)1 << TEFFI_MAIL_SHIFT) - 1)) <= system->opt.mailbox_bytes;
}

/* acquire and the order of the two looks: taken is never ahead of the sent beside it. */
uint64_t teffi_mail_load(teff_process *p)
{
    uint64_t taken = atomic_load_explicit(&p->taken, memory_order_acquire);
    return atomic_load_explicit(&p->sent, memory_order_relaxed) - taken;
}

static bool reserve(teff_process *p, uint64_t charge)
{
    uint64_t taken = atomic_load_explicit(&p->taken, memory_order_acquire);
    uint64_t sent = atomic_fetch_add_explicit(&p->sent, charge, memory_order_relaxed) + charge;
    if ((sent - taken) >> TEFFI_MAIL_SHIFT == p->system->exec->warn.queue_warn + 1ull)
        teffi_warn_long(&p->group, p->system->exec->warn.queue_warn + 1);
    /* looked at once more: much may have been taken between the two steps */
    if (within(p->system, sent - taken) || within(p->system, teffi_mail_load(p)))
        return true;
    atomic_fetch_sub_explicit(&p->sent, charge, memory_order_relaxed);
    atomic_fetch_add_explicit(&p->system->refused, 1, memory_order_relaxed);
    return false;
}

bool teffi_process_room(teff_process_system *system, teff_pid pid, size_t len)
{
    teff_process *p;
    return teffi_process_find(system, pid, &p) == TEFF_OK && len <= system->opt.mailbox_bytes &&
           within(system, teffi_mail_load(p) + teffi_mail_charge(len));
}

static teff_err send_here(teff_process_system *system, teff_pid to, const teff_event *message)
{
    teff_process *p;
    teff_err err = teffi_process_find(system, to, &p);
    if (err)
        return err;
    if (message->len > system->opt.mailbox_bytes)
        return TEFF_E_OVERLOADED;
    uint64_t charge = teffi_mail_charge(message->len);
    if (!reserve(p, charge))
        return TEFF_E_OVERLOADED;
    teffi_event *event = message_new(message, to.generation);
    if (event && teffi_group_push(&p->group, &event->item)) {
        teffi_process_woken(p);
        return TEFF_OK;
    }
    atomic_fetch_sub_explicit(&p->sent, charge, memory_order_relaxed);
    err = event ? TEFF_E_CLOSED : TEFF_E_NOMEM;
    teffi_pool_put(event, sizeof *event + message->len);
    return err;
}

static bool is_here(const teff_process_system *system, teff_pid pid)
{
    return pid.silo == system->route.silo && pid.incarnation == system->route.incarnation;
}

teff_err teff_process_send(teff_process_system *system, teff_pid to, const teff_event *message)
{
    const teffi_pid_route *route = &system->route;
    (void)teff_reschedule();
    if (is_here(system, to))
        return send_here(system, to, message);
    if (!route->send)
        return TEFF_E_UNAVAILABLE;
    teff_event event = *message;
    event.kind = TEFF_EVENT_MESSAGE;
    return route->send(route->arg, to, &event);
}

teff_err teffi_process_deliver(teff_process_system *system, teff_pid pid, const teff_event *event)
{
    if (event->kind == TEFF_EVENT_CANCEL)
        return teff_process_cancel(system, pid);
    return event->kind == TEFF_EVENT_MESSAGE ? send_here(system, pid, event) : TEFF_E_INVALID;
}

/* The stripe's lock keeps the life from ending between the look and the push. */
static void signal_locked(teff_process *p, uint32_t bits)
{
    const uint32_t queued = TEFFI_SIGNAL_CANCEL | TEFFI_SIGNAL_KILL | TEFFI_SIGNAL_POKE;
    if (bits & TEFFI_SIGNAL_CANCEL && p->signals & TEFFI_SIGNAL_CANCELLED)
        bits &= ~(uint32_t)TEFFI_SIGNAL_CANCEL;
    if (bits & TEFFI_SIGNAL_CANCEL)
        bits |= TEFFI_SIGNAL_CANCELLED;
    bool push = bits & queued && !(p->signals & queued);
    p->signals |= (uint16_t)bits;
    if (push)
        (void)teffi_group_push(&p->group, &p->signal);
}

teff_err teffi_process_signal(teff_process_system *system, teff_pid pid, uint32_t bits)
{
    teff_process *p;
    teff_err err = teffi_process_find(system, pid, &p);
    if (err)
        return err;
    pthread_mutex_lock(teffi_stripe(p));
    /* acquire, as in teffi_process_find */
    bool alive = atomic_load_explicit(&p->generation, memory_order_acquire) == pid.generation;
    if (alive)
        signal_locked(p, bits);
    pthread_mutex_unlock(teffi_stripe(p));
    if (!alive)
        return TEFF_E_CLOSED;
    teffi_process_woken(p);
    return TEFF_OK;
}

teff_err teff_process_cancel(teff_process_system *system, teff_pid pid)
{
    const teffi_pid_route *route = &system->route;
    if (is_here(system, pid))
        return teffi_process_signal(system, pid, TEFFI_SIGNAL_CANCEL);
    teff_event event = {.kind = TEFF_EVENT_CANCEL};
    return route->send ? route->send(route->arg, pid, &event) : TEFF_E_UNAVAILABLE;
}
