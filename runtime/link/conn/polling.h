/* polling.h - chooses the thread that polls a transport without threads of its own: an idle worker;
 * on a client, a thread that waits for a response; otherwise the ticker. So a response needs one
 * wake-up, and the thread that waits for it reads it.
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
    teffi_poller *poller;   /* immutable; NULL: the transport has threads of its own */
    _Atomic bool by_ticker; /* the ticker polls while it sleeps */
    _Atomic bool neglected; /* the ticker shall poll once */
    _Atomic uint32_t waits; /* of clients' threads, so far */
    uint32_t claims_before; /* owner: the ticker; claims at its last check */
    pthread_mutex_t lock;   /* guards waiters; a leaf */
    TAILQ_HEAD(, link_waiter) waiters;
} link_polling;

/* teffi_polling_init - in: poller, may be NULL.
 * teffi_polling_start - if conns->exec has the op, its workers poll from now on until it stops. */
void teffi_polling_init(struct teffi_conns *conns, teffi_poller *poller);
void teffi_polling_start(struct teffi_conns *conns);
void teffi_polling_fini(struct teffi_conns *conns);

/* teffi_polling_wait - let a client's thread sleep until parker has TEFFI_TOKEN; it polls meanwhile
 * if no other thread does. out: the tokens. */
uint32_t teffi_polling_wait(struct teffi_conns *conns, teffi_poll_parker *parker);

/* teffi_polling_sleep - let the ticker sleep until its parker has a token, events come, or
 * timeout_ns has passed. out: true: it has polled, and events may have ended its sleep early. */
bool teffi_polling_sleep(struct teffi_conns *conns, uint64_t timeout_ns);

/* teffi_polling_check - if no thread has polled since the last call, let the ticker poll from now
 * on. out: true: call again soon. runs: the ticker of a client. */
bool teffi_polling_check(struct teffi_conns *conns);
