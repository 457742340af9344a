/* timer.c - timers of processes: a node that is timer and event at once.
 * Way:     teff_process_timer -> exec's wheel -> [fire] -> the process's group
 * Threads: set, arrived, drop: the process's turn; fire on some worker.
 * Once cancel says that a timer fires or has fired it is the event's: freed by whoever takes it off
 * the group, in this life or a later one, or by fire itself when the group takes no more. */
#include <string.h>
#include "base/pool.h"
#include "base/queue.h"
#include "process/process.h"

static void fire(teffi_timer *timer)
{
    teffi_ticker *ticker = teffi_container(timer, teffi_ticker, timer);
    teff_process *p = ticker->process;
    if (teffi_group_push(&p->group, &ticker->e.item)) {
        teffi_process_woken(p);
        return;
    }
    /* acquire: the ended turn's last look at the ticker is over */
    (void)teffi_group_state_of(&p->group);
    teffi_pool_put(ticker, sizeof *ticker);
}

teffi_ticker *teffi_ticker_set(teff_process *p, uint64_t delay_ns, uint64_t tag)
{
    teffi_ticker *ticker = teffi_pool_get(sizeof *ticker);
    if (!ticker)
        return NULL;
    memset(ticker, 0, sizeof *ticker);
    teffi_exec *exec = p->system->exec;
    ticker->e.item.kind = TEFFI_ITEM_TIMER;
    ticker->e.generation = atomic_load_explicit(&p->generation, memory_order_relaxed);
    ticker->e.event = (teff_event){.kind = TEFF_EVENT_TIMER, .tag = tag};
    ticker->timer.fire = fire;
    ticker->process = p;
    ticker->next = p->timers;
    if (p->timers)
        p->timers->prev = ticker;
    p->timers = ticker;
    exec->ops->timer_set(exec, &ticker->timer, teffi_now(exec->platform) + delay_ns);
    return ticker;
}

void teffi_ticker_arrived(teff_process *p, teffi_ticker *ticker)
{
    *(ticker->prev ? &ticker->prev->next : &p->timers) = ticker->next;
    if (ticker->next)
        ticker->next->prev = ticker->prev;
}

void teffi_ticker_cancel(teff_process *p, teffi_ticker *ticker)
{
    teffi_exec *exec = p->system->exec;
    if (exec->ops->timer_cancel(exec, &ticker->timer)) {
        teffi_ticker_arrived(p, ticker);
        teffi_pool_put(ticker, sizeof *ticker);
    } else {
        ticker->muted = true; /* its event is on the way, or in the list already */
    }
}

void teffi_tickers_drop(teff_process *p)
{
    teffi_exec *exec = p->system->exec;
    teffi_ticker *ticker = p->timers;
    p->timers = NULL;
    while (ticker) {
        teffi_ticker *next = ticker->next;
        if (exec->ops->timer_cancel(exec, &ticker->timer))
            teffi_pool_put(ticker, sizeof *ticker);
        ticker = next;
    }
}

teff_err teff_process_timer(teff_process *me, uint32_t ms, uint64_t tag)
{
    return teffi_ticker_set(me, ms * 1000000ull, tag) ? TEFF_OK : TEFF_E_NOMEM;
}
