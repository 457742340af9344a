/* polling.c - chooses the thread that polls. A waiting thread lists itself, then checks whether the
 * poller is claimed; a client's thread that stops polling releases the poller, then takes the first
 * waiting thread off the list. So one of the two finds the other. The ticker does the same, unless
 * it goes on polling. A worker does not look at the list: if no worker polls any more, the monitor
 * wakes one, or makes the ticker poll. */
#include "link/conn/polling.h"

#include "link/conn/connection.h"

/* Makes the ticker poll once. runs: the monitor, if no thread has polled since the monitor's last
 * tick, and the monitor has woken no worker to poll. */
static void ask_ticker_to_poll(teffi_poller *poller)
{
    teffi_conns *conns = poller->arg;
    atomic_store_explicit(&conns->polling.neglected, true, memory_order_relaxed);
    teffi_parker_wake(&conns->ticker.parker.parker);
}

/* Do workers poll? Not on a client: its worker would be idle, and poll, whenever a thread waits for
 * a response; it would then have to wake that thread for each response. */
static bool workers_poll(const teffi_conns *conns)
{
    return conns->role == TEFFI_ROLE_SILO && conns->exec && conns->exec->ops->poll;
}

void teffi_polling_init(teffi_conns *conns, teffi_poller *poller)
{
    link_polling *p = &conns->polling;
    p->poller = poller;
    pthread_mutex_init(&p->lock, NULL);
    TAILQ_INIT(&p->waiters);
    if (!poller)
        return;
    atomic_init(&p->by_ticker, !workers_poll(conns));
    poller->neglected = ask_ticker_to_poll;
    poller->arg = conns;
}

void teffi_polling_start(teffi_conns *conns)
{
    if (conns->polling.poller && workers_poll(conns))
        conns->exec->ops->poll(conns->exec, conns->polling.poller);
}

void teffi_polling_fini(teffi_conns *conns)
{
    pthread_mutex_destroy(&conns->polling.lock);
}

/* ---- the list ---- */

static void add_waiter_to_list(link_polling *p, link_waiter *waiter)
{
    pthread_mutex_lock(&p->lock);
    TAILQ_INSERT_TAIL(&p->waiters, waiter, link);
    waiter->listed = true;
    pthread_mutex_unlock(&p->lock);
}

/* p->lock held. */
static void unlist_locked(link_polling *p, link_waiter *waiter)
{
    TAILQ_REMOVE(&p->waiters, waiter, link);
    waiter->listed = false;
}

/* Takes waiter off the list. out: false if another thread did so. That thread has woken the
 * waiter's parker with TEFFI_TOKEN_GIVEN. */
static bool unlist_waiter(link_polling *p, link_waiter *waiter)
{
    pthread_mutex_lock(&p->lock);
    bool listed = waiter->listed;
    if (listed)
        unlist_locked(p, waiter);
    pthread_mutex_unlock(&p->lock);
    return listed;
}

/* Takes the first waiting thread off the list and wakes it to poll. out: false: no thread waits. */
static bool wake_waiter(link_polling *p)
{
    pthread_mutex_lock(&p->lock);
    link_waiter *first = TAILQ_FIRST(&p->waiters);
    if (first) {
        unlist_locked(p, first);
        teffi_parker_wake_with_token(&first->parker->parker, TEFFI_TOKEN_GIVEN);
    }
    pthread_mutex_unlock(&p->lock);
    return first;
}

/* Lets the first waiting thread poll. If no thread waits, requests a run of the ticker's delayed
 * work. That work includes teffi_polling_move_to_ticker_if_idle(): if no thread polls, the ticker
 * does. */
static void hand_over_polling(teffi_conns *conns)
{
    if (!wake_waiter(&conns->polling))
        teffi_conns_ask_to_run_delayed_work(conns);
}

/* ---- a client's thread ---- */

/* Polls until this thread's parker has TEFFI_TOKEN, then lets another thread poll. in: the poller,
 * claimed; it is released here. out: the tokens. */
static uint32_t poll_until_token_and_hand_over(teffi_conns *conns, teffi_poll_parker *parker)
{
    teffi_poller *poller = conns->polling.poller;
    uint32_t tokens;
    do {
        tokens = teffi_parker_wait_in_poller(parker, poller, UINT64_MAX);
        (void)poller->run(poller);
    } while (!(tokens & TEFFI_TOKEN));
    teffi_poller_release(poller);
    hand_over_polling(conns);
    return tokens;
}

/* Waits in the list while another thread polls. out: the tokens; if TEFFI_TOKEN is not among them,
 * the caller tries again to claim the poller. */
static uint32_t sleep_in_waiter_list(teffi_conns *conns, link_waiter *waiter)
{
    link_polling *p = &conns->polling;
    uint32_t tokens = 0;
    add_waiter_to_list(p, waiter);
    /* seq_cst: this load comes after the insertion. poll_until_token_and_hand_over() releases the
     * poller before it looks at the list under p->lock. So either it finds this waiter, or this
     * load finds the poller unclaimed. */
    if (!atomic_load_explicit(&p->poller->claimed, memory_order_seq_cst))
        tokens = TEFFI_TOKEN_GIVEN;
    else
        tokens = teffi_parker_wait_for_tokens(&waiter->parker->parker, UINT64_MAX);
    if (!unlist_waiter(p, waiter))
        tokens |= TEFFI_TOKEN_GIVEN | teffi_parker_wait_for_tokens(&waiter->parker->parker, 0);
    /* If both tokens have come, this thread was chosen to poll, but its wait is over: another
     * thread must poll. */
    if (tokens & TEFFI_TOKEN && tokens & TEFFI_TOKEN_GIVEN)
        hand_over_polling(conns);
    return tokens;
}

uint32_t teffi_polling_wait(teffi_conns *conns, teffi_poll_parker *parker)
{
    link_polling *p = &conns->polling;
    link_waiter waiter = {.parker = parker};
    uint32_t tokens = 0;
    atomic_fetch_add_explicit(&p->waits, 1, memory_order_relaxed);
    while (!(tokens & TEFFI_TOKEN))
        tokens = teffi_poller_claim(p->poller) ? poll_until_token_and_hand_over(conns, parker)
                                               : sleep_in_waiter_list(conns, &waiter);
    return tokens;
}

/* ---- the ticker ---- */

/* out: how often a thread has claimed the poller; 0: there is no poller. */
static uint32_t get_claim_count(const link_polling *p)
{
    return p->poller ? atomic_load_explicit(&p->poller->claims, memory_order_relaxed) : 0;
}

/* Polls once, for at most timeout_ns, and releases the poller. If threads of a client have begun to
 * wait meanwhile, they poll from now on. in: the poller, claimed. out: true: there was an event. */
static bool poll_once_and_release(teffi_conns *conns, uint64_t timeout_ns)
{
    link_polling *p = &conns->polling;
    uint32_t waits = atomic_load_explicit(&p->waits, memory_order_relaxed);
    p->claims_before++;
    (void)teffi_parker_wait_in_poller(&conns->ticker.parker, p->poller, timeout_ns);
    bool came = p->poller->run(p->poller);
    teffi_poller_release(p->poller);
    if (atomic_load_explicit(&p->waits, memory_order_relaxed) != waits) {
        atomic_store_explicit(&p->by_ticker, false, memory_order_relaxed);
        hand_over_polling(conns);
    }
    return came;
}

bool teffi_polling_sleep_or_poll(teffi_conns *conns, uint64_t timeout_ns)
{
    link_polling *p = &conns->polling;
    uint32_t claims = get_claim_count(p);
    if (atomic_load_explicit(&p->by_ticker, memory_order_relaxed) && teffi_poller_claim(p->poller))
        return poll_once_and_release(conns, timeout_ns);
    uint32_t tokens = teffi_parker_wait_for_tokens(&conns->ticker.parker.parker, timeout_ns);
    /* unclaimed: no token ended the sleep, and no thread has claimed the poller during it. If a
     * thread still has an earlier claim, teffi_poller_poll_once() does nothing. Otherwise no thread
     * polls, for example because the executor has stopped, or its monitor was held up. */
    bool unclaimed = p->poller && !tokens && get_claim_count(p) == claims;
    if (!atomic_exchange_explicit(&p->neglected, false, memory_order_relaxed) && !unclaimed)
        return false;
    bool polled = teffi_poller_poll_once(p->poller);
    if (polled && conns->role == TEFFI_ROLE_CLIENT) {
        p->claims_before++;
        hand_over_polling(conns); /* a thread may have failed to claim the poller meanwhile */
    }
    return polled;
}

bool teffi_polling_move_to_ticker_if_idle(teffi_conns *conns)
{
    link_polling *p = &conns->polling;
    if (!p->poller || conns->role != TEFFI_ROLE_CLIENT)
        return false;
    uint32_t claims = atomic_load_explicit(&p->poller->claims, memory_order_relaxed);
    bool changed = claims != p->claims_before;
    p->claims_before = claims;
    /* seq_cst: run_delayed_work() has cleared asked_soon before this load. A thread that stops
     * polling releases its claim (seq_cst) before it loads asked_soon in
     * teffi_conns_ask_to_run_delayed_work(). So either this load finds the claim released, or that
     * thread finds asked_soon cleared and sets it. */
    if (atomic_load_explicit(&p->poller->claimed, memory_order_seq_cst))
        return false;
    if (!changed) /* no thread polls, nor has begun to since the last call */
        atomic_store_explicit(&p->by_ticker, true, memory_order_relaxed);
    return changed;
}
