/* evict.c - a process's group was evicted from a full run queue: what becomes of its events?
 * Way:     sched/prio -> turn -> process.c (evict) -> [give back] -> the sender's group
 * Threads: the process's turn.
 * A message goes back in its own memory, so that this cannot fail for want of any. It counts on no
 * mailbox then: there are no more of them than the sender has sent. */
#include "base/pool.h"
#include "process/process.h"

static void drop(teff_process_system *system, teffi_event *event)
{
    atomic_fetch_add_explicit(&system->dropped, 1, memory_order_relaxed);
    teffi_pool_put(event, sizeof *event + event->event.len);
}

/* Nobody, one that has ended, or one on another silo, where there is no way for events like this:
 * dropped, and counted so. */
static void return_to_sender(teff_process *p, teffi_event *event)
{
    teff_process_system *system = p->system;
    teff_pid to = event->event.from, own = teff_process_pid(p);
    teff_process *sender = NULL;
    atomic_fetch_add_explicit(&system->evicted, 1, memory_order_relaxed);
    teffi_mail_took(p, event->event.len);
    event->item.kind = TEFFI_ITEM_RETURNED;
    event->generation = to.generation;
    event->event.kind = TEFF_EVENT_RETURNED;
    event->event.err = TEFF_E_OVERLOADED;
    event->event.from = own;
    if (to.silo == own.silo && to.incarnation == own.incarnation &&
        teffi_process_find(system, to, &sender) == TEFF_OK &&
        teffi_group_push(&sender->group, &event->item))
        teffi_process_woken(sender);
    else
        drop(system, event);
}

static bool is_mine(const teff_process *p, const teffi_event *event)
{
    return event->generation == atomic_load_explicit(&p->generation, memory_order_relaxed);
}

bool teffi_process_give_back(teff_process *p, teffi_item *item)
{
    teffi_event *event;
    if (p->gone)
        return false;
    if (item->kind == TEFFI_ITEM_MESSAGE && is_mine(p, teffi_event_of(item))) {
        return_to_sender(p, teffi_event_of(item));
        return true;
    }
    while (item->kind == TEFFI_ITEM_AGAIN && (event = teffi_events_pop(&p->mail)))
        return_to_sender(p, event);
    return false;
}
