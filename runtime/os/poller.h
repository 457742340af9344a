/* poller.h - a set of sockets that an idle thread waits on instead of sleeping. So the thread that
 * arriving bytes wake also runs their turns.
 * Way:     sched (park, find), link (wait, ticker) -> [poller] -> stream/reactor.c
 * Threads: at most one thread polls, the one that has claimed the poller. wake, neglected: any.
 * Source:  Go's src/runtime/netpoll.go; tokio's tokio/src/runtime/io/driver.rs */
#pragma once

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

typedef struct teffi_poller {
    /* Wait for events, for a wake, or for timeout_ns (0: only look; UINT64_MAX: no limit). May
     * return early. The events are kept for run. in: claimed. */
    void (*wait)(struct teffi_poller *poller, uint64_t timeout_ns);
    /* Handle the kept events: read what came, report it. On a worker, groups become READY as its
     * local batch. Does not block. in: claimed. out: true: there was an event. */
    bool (*run)(struct teffi_poller *poller);
    /* End the present wait; if no thread is in wait, the next one. */
    void (*wake)(struct teffi_poller *poller);
    /* Make another thread poll. Called by the monitor if no thread has polled since the monitor's
     * last tick, and the monitor has woken no worker to poll. */
    void (*neglected)(struct teffi_poller *poller);
    void *arg; /* the argument of neglected() */
    _Atomic bool claimed;
    _Atomic uint32_t claims; /* how often it was claimed */
} teffi_poller;

/* teffi_poller_claim - become the thread that polls. out: false: another thread polls. */
static inline bool teffi_poller_claim(teffi_poller *poller)
{
    /* The relaxed load comes first, because an exchange costs more, and another thread often polls.
     * acquire: pairs with teffi_poller_release() */
    if (atomic_load_explicit(&poller->claimed, memory_order_relaxed) ||
        atomic_exchange_explicit(&poller->claimed, true, memory_order_acquire))
        return false;
    atomic_fetch_add_explicit(&poller->claims, 1, memory_order_relaxed);
    return true;
}

/* teffi_poller_release - let another thread poll. Call it after poller->run has handled the events
 * that poller->wait kept. */
static inline void teffi_poller_release(teffi_poller *poller)
{
    /* seq_cst includes release: this store publishes what poller->wait and poller->run wrote; pairs
     * with teffi_poller_claim(). seq_cst also orders this store before the caller's load of
     * asked_soon; pairs with teffi_polling_move_to_ticker_if_idle() */
    atomic_store_explicit(&poller->claimed, false, memory_order_seq_cst);
}

/* teffi_poller_poll_once - look for events and handle them. out: false: another thread polls. */
static inline bool teffi_poller_poll_once(teffi_poller *poller)
{
    if (!teffi_poller_claim(poller))
        return false;
    poller->wait(poller, 0);
    (void)poller->run(poller);
    teffi_poller_release(poller);
    return true;
}
