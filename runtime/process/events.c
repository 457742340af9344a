/* events.c - what waits for a process: off the group into lists, out of them into steps.
 * Way:     the group -> [take_in: urgent | mail | flags] -> step, receive
 * Threads: the process's turn.
 * A message counts on the mailbox's load until it is freed, so what a turn took off the group and
 * has not handled is still inside the limit. */
#include "base/pool.h"
#include "base/queue.h"
#include "process/process.h"

void teffi_mail_took(teff_process *p, size_t len)
{
    uint64_t taken = atomic_load_explicit(&p->taken, memory_order_relaxed);
    /* one writer; release: pairs with teffi_mail_load */
    atomic_store_explicit(&p->taken, taken + teffi_mail_charge(len), memory_order_release);
}

void teffi_event_free(teff_process *p, teffi_event *event)
{
    size_t len = event->event.len;
    switch (event->item.kind) {
    case TEFFI_ITEM_MESSAGE:
        teffi_mail_took(p, len);
        teffi_pool_put(event, sizeof *event + len);
        break;
    case TEFFI_ITEM_RETURNED:
        teffi_pool_put(event, sizeof *event + len);
        break;
    case TEFFI_ITEM_YIELD:
        teffi_yield_free(teffi_container(event, teffi_yield, e));
        break;
    default:
        teffi_pool_put(event, sizeof(teffi_ticker));
        break;
    }
}

static void take_signals(teff_process *p)
{
    pthread_mutex_lock(teffi_stripe(p));
    uint32_t bits = p->signals;
    p->signals &= TEFFI_SIGNAL_CANCELLED;
    pthread_mutex_unlock(teffi_stripe(p));
    p->cancel |= (bits & TEFFI_SIGNAL_CANCEL) != 0;
    p->forced |= (bits & TEFFI_SIGNAL_KILL) != 0;
    p->poked |= (bits & TEFFI_SIGNAL_POKE) != 0;
}

/* For an earlier life, or none any more: nobody is to see it. */
static bool is_stale(const teff_process *p, const teffi_event *event)
{
    return p->gone ||
           event->generation != atomic_load_explicit(&p->generation, memory_order_relaxed);
}

static void take_event(teff_process *p, teffi_event *event)
{
    if (event->item.kind == TEFFI_ITEM_MESSAGE) {
        teffi_events_push(&p->mail, event);
        return;
    }
    bool muted = false;
    if (event->item.kind == TEFFI_ITEM_YIELD) {
        p->n_yields--;
    } else if (event->item.kind == TEFFI_ITEM_TIMER) {
        teffi_ticker *ticker = teffi_container(event, teffi_ticker, e);
        muted = ticker->muted;
        teffi_ticker_arrived(p, ticker);
    }
    if (muted)
        teffi_event_free(p, event);
    else if (p->wait && p->wait->awaits == event)
        p->wait->answer = event;
    else
        teffi_events_push(&p->urgent, event);
}

void teffi_process_take_in(teff_process *p, teffi_item *item)
{
    if (item->kind == TEFFI_ITEM_AGAIN) {
        p->again_queued = false;
    } else if (item->kind == TEFFI_ITEM_SIGNAL) {
        take_signals(p);
    } else if (is_stale(p, teffi_event_of(item))) {
        atomic_fetch_add_explicit(&p->system->dropped, 1, memory_order_relaxed);
        teffi_event_free(p, teffi_event_of(item));
    } else {
        take_event(p, teffi_event_of(item));
    }
}

teffi_event *teffi_process_take_mail(teff_process *p)
{
    teffi_item *item;
    while (!p->mail.head && (item = teffi_group_drain(&p->group)))
        teffi_process_take_in(p, item);
    return teffi_events_pop(&p->mail);
}

static void drop_list(teff_process *p, teffi_events *list)
{
    teffi_event *event;
    while ((event = teffi_events_pop(list)))
        teffi_event_free(p, event);
}

void teffi_process_forget(teff_process *p)
{
    teffi_tickers_drop(p);
    drop_list(p, &p->urgent);
    drop_list(p, &p->mail);
    pthread_mutex_lock(teffi_stripe(p));
    teffi_yield *yields = p->yields;
    p->yields = NULL;
    /* Odd to even: the end of this life for everybody. release: pairs with teffi_process_find */
    atomic_store_explicit(&p->generation,
                          atomic_load_explicit(&p->generation, memory_order_relaxed) + 1,
                          memory_order_release);
    pthread_mutex_unlock(teffi_stripe(p));
    while (yields) {
        teffi_yield *next = yields->next;
        teffi_event_free(p, &yields->e);
        yields = next;
    }
}

bool teffi_process_wants(const teff_process *p)
{
    if (p->forced)
        return true;
    if (p->cancel && p->status != TEFFI_STATUS_START)
        return true;
    switch ((teffi_next)p->status) {
    case TEFFI_STATUS_START:
    case TEFFI_STATUS_CONTINUE:
        return !p->again_queued;
    case TEFFI_STATUS_BLOCK:
        return p->urgent.head != NULL;
    case TEFFI_STATUS_RETRY:
        return p->poked;
    case TEFFI_STATUS_IDLE:
        break;
    }
    return p->urgent.head || p->mail.head;
}
