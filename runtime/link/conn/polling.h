/* polling.h - chooses the thread that polls a transport without threads of its own: an idle worker;
 * on a client, a thread that waits for a response; otherwise the ticker. So a response needs one
 * wake-up, and the thread that waits for it reads it.
 * Way:     driver (wait), heartbeat (sleep), sched (park) -> [polling] -> the transport's poller
 * Threads: teffi_polling_wait: a client's threads; teffi_polling_sleep_or_poll,
 *          teffi_polling_move_to_ticker_if_idle: the ticker; the rest: link new and free. When a
 *          client's thread stops polling, it lets the next waiting thread poll. If no thread waits,
 *          the ticker polls after LINK_SOON_NS in which no thread has polled. */
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
    _Atomic bool neglected; /* no thread has polled for a while: the ticker polls once */
    _Atomic uint32_t waits; /* how often a client's thread has begun to wait */
    uint32_t claims_before; /* owner: the ticker; poller->claims at its last check, and its own */
    pthread_mutex_t lock;   /* guards waiters and their `listed`; a leaf */
    TAILQ_HEAD(, link_waiter) waiters;
} link_polling;

/* teffi_polling_init - in: poller, may be NULL; conns->exec is set.
 * teffi_polling_start - on a silo, if there is a poller, and conns->exec has the op `poll`, let its
 * workers poll until it stops. */
void teffi_polling_init(struct teffi_conns *conns, teffi_poller *poller);
void teffi_polling_start(struct teffi_conns *conns);
void teffi_polling_fini(struct teffi_conns *conns);

/* teffi_polling_wait - wait on a client's thread until parker has TEFFI_TOKEN; meanwhile poll if no
 * other thread does. in: conns has a poller. out: the tokens. */
uint32_t teffi_polling_wait(struct teffi_conns *conns, teffi_poll_parker *parker);

/* teffi_polling_sleep_or_poll - sleep until the ticker's parker has a token, the ticker has handled
 * events, or timeout_ns has passed; may return early. The ticker polls while it sleeps if by_ticker
 * is set; otherwise it polls once after the sleep if no other thread seems to poll. out: true: it
 * has handled events, or has polled after the sleep. runs: the ticker. */
bool teffi_polling_sleep_or_poll(struct teffi_conns *conns, uint64_t timeout_ns);

/* teffi_polling_move_to_ticker_if_idle - if no thread polls, nor has begun to since the last call,
 * let the ticker poll from now on. out: true: call again soon. runs: the ticker; does nothing on a
 * silo. */
bool teffi_polling_move_to_ticker_if_idle(struct teffi_conns *conns);
