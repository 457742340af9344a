/* polling.h - who polls a transport that has no threads of its own: the workers that are idle; on a
 * client, a thread that waits for a response; else the ticker. So a response needs one wake-up, and
 * its thread reads it.
 * Way:     driver (wait), heartbeat (sleep), sched (park) -> [polling] -> the transport's poller
 * Threads: any. A client's thread that leaves lets the next one poll; if there is none, the ticker
 *          polls once no thread has polled for LINK_SOON_NS. */
#pragma once

#include <pthread.h>
#include <sys/queue.h>
#include "os/thread.h"

struct teffi_conns;

/* A client's thread that waits while another one polls; lives on its stack. */
typedef struct link_waiter {
    TAILQ_ENTRY(link_waiter) link;
    teffi_poll_parker *parker;
    bool listed;
} link_waiter;

typedef struct link_polling {
    teffi_poller *poller; /* immutable; NULL: the transport has threads of its own */
    _Atomic bool by_ticker;
    _Atomic bool neglected; /* the ticker shall look once */
    _Atomic uint32_t waits; /* of clients' threads, so far */
    uint32_t claims_before; /* owner: the ticker; at its last look */
    pthread_mutex_t lock;   /* guards waiters; a leaf */
    TAILQ_HEAD(, link_waiter) waiters;
} link_polling;

/* teffi_polling_init - in: poller, may be NULL. If conns->exec can, its workers poll. */
void teffi_polling_init(struct teffi_conns *conns, teffi_poller *poller);
void teffi_polling_fini(struct teffi_conns *conns);

/* teffi_polling_wait - a client's thread sleeps until parker has a token, polls meanwhile if no
 * other thread does. out: the tokens. */
uint32_t teffi_polling_wait(struct teffi_conns *conns, teffi_poll_parker *parker);

/* teffi_polling_sleep - the ticker sleeps until its parker has a token, something came, or
 * timeout_ns. out: something came. */
bool teffi_polling_sleep(struct teffi_conns *conns, uint64_t timeout_ns);

/* teffi_polling_check - if no thread has polled since the last call, the ticker does from now on.
 * out: true: call again soon. runs: the ticker of a client. */
bool teffi_polling_check(struct teffi_conns *conns);
