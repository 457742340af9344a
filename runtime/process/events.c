/* events.c - lists of events that a process has not handled yet. A message counts in the mailbox
 * until it is freed or returned, also after a turn has taken it off the group. */
#include "process/events.h"

#include "memory/pool.h"
#include "process/send.h"
#include "process/turn.h"

void teffi_event_free(teff_process *p, teffi_event *event)
{
    uint32_t kind = event->item.kind;
    if (kind == TEFFI_ITEM_MESSAGE)
        teffi_mailbox_count_removal(p, event->event.len);
    if (kind == TEFFI_ITEM_COMMAND)
        teffi_command_free(teffi_container(event, teffi_command, e));
    else if (kind == TEFFI_ITEM_TIMER)
        teffi_pool_put(event, sizeof(teffi_timer_event));
    else
        teffi_pool_put(event, sizeof *event + event->event.len);
}

/* Moves the bits of p->signals to the flags cancel, forced and poked, which the turn reads.
 * TEFFI_SIGNAL_CANCELLED stays set, so that push_signal_locked ignores further cancels. */
static void move_signals_to_flags(teff_process *p)
{
    pthread_mutex_lock(teffi_stripe_lock_of(p));
    uint32_t bits = p->signals;
    p->signals &= TEFFI_SIGNAL_CANCELLED;
    pthread_mutex_unlock(teffi_stripe_lock_of(p));
    p->cancel |= (bits & TEFFI_SIGNAL_CANCEL) != 0;
    p->forced |= (bits & TEFFI_SIGNAL_KILL) != 0;
    p->poked |= (bits & TEFFI_SIGNAL_POKE) != 0;
}

/* Frees an event that will not be handled. If it is a request, responds with an error. */
static void refuse_event(teff_process *p, teffi_event *event)
{
    if (event->item.kind == TEFFI_ITEM_MESSAGE)
        teffi_process_refuse_request(p->system, &event->event, TEFF_E_CLOSED);
    teffi_event_free(p, event);
}

/* Puts an event into p->mail (messages) or p->urgent. But an event of a cancelled (muted) timer is
 * freed, and the event that the process awaits is stored in wait->arrived. */
static void append_or_free_event(teff_process *p, teffi_event *event)
{
    if (event->item.kind == TEFFI_ITEM_MESSAGE) {
        teffi_events_push(&p->mail, event);
        return;
    }
    bool muted = false;
    if (event->item.kind == TEFFI_ITEM_COMMAND) {
        p->n_commands--;
    } else if (event->item.kind == TEFFI_ITEM_TIMER) {
        teffi_timer_event *timer = teffi_container(event, teffi_timer_event, e);
        muted = timer->muted;
        LIST_REMOVE(timer, link);
    }
    if (muted)
        teffi_event_free(p, event);
    else if (p->wait && p->wait->awaits == event)
        p->wait->arrived = event;
    else
        teffi_events_push(&p->urgent, event);
}

void teffi_process_dispatch_item(teff_process *p, teffi_item *item)
{
    if (item->kind == TEFFI_ITEM_AGAIN) {
        p->again_queued = false;
    } else if (item->kind == TEFFI_ITEM_SIGNAL) {
        move_signals_to_flags(p);
    } else if (item->kind > TEFFI_ITEM_RETURNED) { /* TEFFI_ITEM_CLOSURE or TEFFI_ITEM_WAIT */
        p->system->calls.take_item(item);
    } else if (!teffi_process_accepts_event(p, teffi_event_of(item))) {
        atomic_fetch_add_explicit(&p->system->dropped, 1, memory_order_relaxed);
        refuse_event(p, teffi_event_of(item));
    } else {
        append_or_free_event(p, teffi_event_of(item));
    }
}

bool teffi_process_dispatch_items(teff_process *p)
{
    teffi_item *item = teffi_group_take_item(&p->group);
    bool any = item != NULL;
    for (; item; item = teffi_group_take_item(&p->group))
        teffi_process_dispatch_item(p, item);
    return any;
}

teffi_event *teffi_process_take_message(teff_process *p)
{
    teffi_item *item;
    while (!p->mail.head && (item = teffi_group_take_item(&p->group)))
        teffi_process_dispatch_item(p, item);
    return teffi_events_pop(&p->mail);
}

void teffi_events_free(teff_process *p, teffi_events *list)
{
    teffi_event *event;
    while ((event = teffi_events_pop(list)))
        teffi_event_free(p, event);
}

/* Ends the process's life: frees its timers, events and commands, refuses the requests in p->mail,
 * and makes the generation even. Empties the list of commands and changes the generation under one
 * lock. So each command either was completed before, or is freed here. */
void teffi_process_end_life(teff_process *p)
{
    teffi_event *event;
    teffi_timer_events_cancel_all(p);
    teffi_events_free(p, &p->urgent);
    while ((event = teffi_events_pop(&p->mail)))
        refuse_event(p, event);
    pthread_mutex_lock(teffi_stripe_lock_of(p));
    teffi_command *commands = p->commands;
    p->commands = NULL;
    /* odd to even: the end of this life. release: pairs with teffi_process_find */
    atomic_store_explicit(&p->generation,
                          atomic_load_explicit(&p->generation, memory_order_relaxed) + 1,
                          memory_order_release);
    pthread_mutex_unlock(teffi_stripe_lock_of(p));
    while (commands) {
        teffi_command *next = commands->next;
        teffi_event_free(p, &commands->e);
        commands = next;
    }
}

/* The slow path of teffi_process_has_work, for every status: is there a reason to run the
 * process? */
bool teffi_process_has_work_slow(const teff_process *p)
{
    if (p->forced)
        return true;
    if (p->cancel && p->status != TEFFI_STATUS_START) /* a cancel waits until init has run */
        return true;
    switch (p->status) {
    case TEFFI_STATUS_START:
    case TEFFI_STATUS_CONTINUE:
        return !p->again_queued; /* if queued: the process runs when the group handles p->again */
    case TEFFI_STATUS_BLOCK:
        return p->urgent.head != NULL;
    case TEFFI_STATUS_RETRY:
        return p->poked;
    case TEFFI_STATUS_IDLE:
        break;
    }
    return p->urgent.head || p->mail.head;
}
