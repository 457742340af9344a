/* send.c - send messages and signals (cancel, kill, poke) to a process.
 * A message is pushed without a lock. If meanwhile the process ends and its slot is used again, the
 * new process drops the message, because its generation differs. */
#include "process/send.h"

#include <string.h>
#include "memory/pool.h"

void teffi_process_wake(teff_process *p)
{
    /* seq_cst: this load comes after the caller's push; pairs with sleep_until_item in wait.c */
    if (atomic_load_explicit(&p->sleeping, memory_order_seq_cst))
        teffi_parker_wake(&p->parker);
}

/* ---- the mailbox ---- */

/* `taken` has one writer, the turn, so it needs no atomic addition. It is loaded before `sent`, so
 * that the difference may be too large, but never too small. */

/* in: load: a number of messages and a number of bytes, packed as send.h says. */
static bool is_within_limits(const teff_process_system *system, uint64_t load)
{
    return load >> TEFFI_MAILBOX_SHIFT <= system->opt.mailbox_max &&
           (load & (((uint64_t)1 << TEFFI_MAILBOX_SHIFT) - 1)) <= system->opt.mailbox_bytes;
}

uint64_t teffi_mailbox_get_load(const teff_process *p)
{
    /* `taken` is loaded before `sent`, so that the difference is never too small. acquire: pairs
     * with teffi_mailbox_count_removal */
    uint64_t taken = atomic_load_explicit(&p->taken, memory_order_acquire);
    return atomic_load_explicit(&p->sent, memory_order_relaxed) - taken;
}

/* Subtracts what mailbox_reserve added to `sent`. mailbox_reserve adds the same amount even if it
 * returns false. */
static void mailbox_unreserve(teff_process *p, size_t len)
{
    atomic_fetch_sub_explicit(&p->sent, teffi_mailbox_charge(len), memory_order_relaxed);
}

/* Undoes a mailbox_reserve that exceeded the limits, and counts the refusal. out: the error. */
static __attribute__((noinline)) teff_err refuse_over_limit(teff_process *p, size_t len)
{
    mailbox_unreserve(p, len);
    atomic_fetch_add_explicit(&p->system->refused, 1, memory_order_relaxed);
    return TEFF_E_OVERLOADED;
}

/* Reserves room in the mailbox for a message with len bytes of data: adds its charge to `sent`.
 * Warns if the queue has become long. out: false: the limits are exceeded. The charge is added in
 * this case, too, so the caller must call mailbox_unreserve. */
static inline bool mailbox_reserve(teff_process_system *system, teff_process *p, size_t len)
{
    uint64_t charge = teffi_mailbox_charge(len);
    /* acquire: as in teffi_mailbox_get_load */
    uint64_t taken = atomic_load_explicit(&p->taken, memory_order_acquire);
    uint64_t sent = atomic_fetch_add_explicit(&p->sent, charge, memory_order_relaxed) + charge;
    /* load again before refusing: the turn may have taken messages after `taken` was loaded */
    if (!is_within_limits(system, sent - taken) &&
        !is_within_limits(system, teffi_mailbox_get_load(p)))
        return false;
    if ((sent - taken) >> TEFFI_MAILBOX_SHIFT == system->exec->warn.queue_warn + 1ull)
        teffi_warn_long_queue(&p->group, system->exec->warn.queue_warn + 1);
    return true;
}

/* ---- messages ---- */

/* Copies a message into a new event of the given kind. out: NULL: no memory. Always inlined, since
 * a call costs each send 20 instructions. */
static inline __attribute__((always_inline)) teffi_event *
message_event_new(const teff_event *from, teff_event_kind kind, uint32_t generation)
{
    teffi_event *event = teffi_pool_get(sizeof *event + from->len);
    if (!event)
        return NULL;
    size_t len = from->len;
    event->item.kind = TEFFI_ITEM_MESSAGE;
    event->generation = generation;
    event->event.kind = kind;
    event->event.err = TEFF_OK;
    event->event.tag = from->tag;
    event->event.data = NULL;
    event->event.len = len;
    event->event.from = from->from;
    event->event.call = from->call;
    if (len)
        event->event.data = memcpy(event + 1, from->data, len);
    return event;
}

bool teffi_process_has_room(teff_process_system *system, teff_pid pid, size_t len)
{
    const teff_process *p = teffi_process_find(system, pid);
    return p && len <= system->opt.mailbox_bytes &&
           is_within_limits(system, teffi_mailbox_get_load(p) + teffi_mailbox_charge(len));
}

/* Undoes a send that failed after mailbox_reserve, and frees its event. in: event: the group has
 * refused it, since the group is COMPLETE; NULL: there was no memory for an event. out: the error
 * that the send returns. */
static __attribute__((noinline)) teff_err undo_failed_send(teff_process *p, teffi_event *event,
                                                           size_t len)
{
    mailbox_unreserve(p, len);
    teffi_pool_put(event, sizeof *event + len);
    return event ? TEFF_E_CLOSED : TEFF_E_NOMEM;
}

/* Sends a message to a process of this system, as an event of the given kind. Always inlined, since
 * a call costs each send 12 instructions. */
static inline __attribute__((always_inline)) teff_err
send_here(teff_process_system *system, teff_pid to, const teff_event *message, teff_event_kind kind)
{
    teff_process *p = teffi_process_find(system, to);
    if (!p)
        return teffi_process_missing_err(system, to);
    if (message->len > system->opt.mailbox_bytes)
        return TEFF_E_OVERLOADED;
    if (!mailbox_reserve(system, p, message->len))
        return refuse_over_limit(p, message->len);
    teffi_event *event = message_event_new(message, kind, to.generation);
    if (!event)
        return undo_failed_send(p, NULL, message->len);
    if (!teffi_group_push(&p->group, &event->item))
        return undo_failed_send(p, event, event->event.len);
    teffi_process_wake(p);
    return TEFF_OK;
}

teff_err teffi_process_send_here(teff_process_system *system, teff_pid to,
                                 const teff_event *message)
{
    return send_here(system, to, message, message->kind);
}

static bool is_local_pid(const teff_process_system *system, teff_pid pid)
{
    return pid.silo == system->route.silo && pid.incarnation == system->route.incarnation;
}

/* Sends an event of the given kind (a message, a returned message or a cancel) to a process of
 * another silo. */
static __attribute__((noinline)) teff_err send_to_other_silo(teff_process_system *system,
                                                             teff_pid to, const teff_event *message,
                                                             teff_event_kind kind)
{
    const teffi_pid_route *route = &system->route;
    teff_event event = *message;
    event.kind = kind;
    return route->send ? route->send(route->arg, to, &event) : TEFF_E_UNAVAILABLE;
}

teff_err teff_process_send(teff_process_system *system, teff_pid to, const teff_event *message)
{
    teff_err err = is_local_pid(system, to)
                       ? send_here(system, to, message, TEFF_EVENT_MESSAGE)
                       : send_to_other_silo(system, to, message, TEFF_EVENT_MESSAGE);
    (void)teff_yield_if_due(); /* last, since a fiber switch here has only err to save */
    return err;
}

/* ---- messages that return ---- */

/* Changes a message's event to a returned message. in: to: the process that sent the message. from:
 * the evicted process. */
static void convert_to_returned_message(teffi_event *event, teff_pid to, teff_pid from)
{
    event->item.kind = TEFFI_ITEM_RETURNED;
    event->generation = to.generation;
    event->event.kind = TEFF_EVENT_RETURNED;
    event->event.err = TEFF_E_OVERLOADED;
    event->event.from = from;
}

/* Pushes a returned message to the group of its sender `to`, a process of this silo. The message
 * does not count towards the limits of the sender's mailbox: no more messages return than the
 * sender has sent. On an error, the caller still owns the event. */
static teff_err push_returned_message(teff_process_system *system, teff_pid to, teffi_event *event)
{
    teff_process *p = teffi_process_find(system, to);
    if (!p)
        return teffi_process_missing_err(system, to);
    if (!teffi_group_push(&p->group, &event->item))
        return TEFF_E_CLOSED;
    teffi_process_wake(p);
    return TEFF_OK;
}

/* If the message's sender is in this silo, pushes the event to the sender's group without copying
 * it, so that no memory is needed. If the sender is in another silo, sends a copy there, and frees
 * the event. */
void teffi_process_return_message(teff_process_system *system, teffi_event *event, teff_pid from)
{
    teff_pid to = event->event.from;
    bool here = is_local_pid(system, to);
    convert_to_returned_message(event, to, from);
    teff_err err = here ? push_returned_message(system, to, event)
                        : send_to_other_silo(system, to, &event->event, TEFF_EVENT_RETURNED);
    if (err)
        atomic_fetch_add_explicit(&system->dropped, 1, memory_order_relaxed);
    if (err || !here)
        teffi_pool_put(event, sizeof *event + event->event.len);
}

/* Delivers a message that another silo has returned. in: to: the process that sent the message. */
static teff_err deliver_returned_message(teff_process_system *system, teff_pid to,
                                         const teff_event *message)
{
    teffi_event *event = message_event_new(message, TEFF_EVENT_RETURNED, to.generation);
    if (!event)
        return TEFF_E_NOMEM;
    convert_to_returned_message(event, to, message->from);
    teff_err err = push_returned_message(system, to, event);
    if (err)
        teffi_pool_put(event, sizeof *event + message->len);
    return err;
}

teff_err teffi_process_deliver(teff_process_system *system, teff_pid pid, const teff_event *event)
{
    if (event->kind == TEFF_EVENT_CANCEL)
        return teff_process_cancel(system, pid);
    if (event->kind == TEFF_EVENT_RETURNED)
        return deliver_returned_message(system, pid, event);
    return event->kind == TEFF_EVENT_MESSAGE || event->kind == TEFF_EVENT_REQUEST
               ? teffi_process_send_here(system, pid, event)
               : TEFF_E_INVALID;
}

/* ---- responses ---- */

teff_err teff_pid_respond(teff_process_system *system, const teff_event *request, teff_err err,
                          const void *data, size_t len)
{
    const teffi_pid_route *route = &system->route;
    if (request->kind != TEFF_EVENT_REQUEST || !route->respond)
        return TEFF_E_INVALID;
    (void)teff_yield_if_due();
    return route->respond(route->arg, request, teffi_err_is_in_range(err) ? err : TEFF_E_FAILED,
                          data, len);
}

void teffi_process_refuse_request(teff_process_system *system, const teff_event *event,
                                  teff_err err)
{
    static const char why[] = "the process ended, or was evicted, before it took the request";
    /* If the response cannot be sent, the call ends at its deadline. */
    if (event->kind == TEFF_EVENT_REQUEST)
        (void)system->route.respond(system->route.arg, event, err, why, sizeof why - 1);
}

/* ---- signals ---- */

/* Sets the signals in `bits`, and pushes the signal item unless it is queued. Ignores all cancels
 * after the first one in the process's life. The push cannot fail: the caller has checked the
 * generation and still holds the stripe's lock, so the process has not ended. */
static void push_signal_locked(teff_process *p, uint32_t bits)
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
    teff_process *p = teffi_process_find(system, pid);
    if (!p)
        return teffi_process_missing_err(system, pid);
    pthread_mutex_lock(teffi_stripe_lock_of(p));
    /* acquire: pairs with publish_process() */
    bool alive = atomic_load_explicit(&p->generation, memory_order_acquire) == pid.generation;
    if (alive)
        push_signal_locked(p, bits);
    pthread_mutex_unlock(teffi_stripe_lock_of(p));
    if (!alive)
        return TEFF_E_CLOSED;
    teffi_process_wake(p);
    return TEFF_OK;
}

teff_err teff_process_cancel(teff_process_system *system, teff_pid pid)
{
    const teff_event event = {.kind = TEFF_EVENT_CANCEL};
    return is_local_pid(system, pid) ? teffi_process_signal(system, pid, TEFFI_SIGNAL_CANCEL)
                                     : send_to_other_silo(system, pid, &event, TEFF_EVENT_CANCEL);
}
