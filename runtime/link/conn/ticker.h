/* ticker.h - a link's own thread. It calls look() periodically, and look_soon() within a
 * millisecond of a request.
 * Way:     link start -> [ticker] -> look, look_soon
 * Threads: any thread requests; look and look_soon run on the ticker. It sleeps on a parker,
 *          because nng's timers use up to a millisecond of CPU time at each expiry. */
#ifndef TEFFI_LINK_CONN_TICKER_H
#define TEFFI_LINK_CONN_TICKER_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <teff/error.h>
#include "os/platform.h"
#include "os/thread.h"

enum { LINK_SOON_NS = 1000000 };

typedef struct link_ticker {
    /* immutable after start */
    const teffi_platform *platform;
    uint64_t (*look)(void *arg);  /* out: ns until the next look; 0: the thread ends */
    bool (*look_soon)(void *arg); /* out: true: call it again after LINK_SOON_NS */
    void *arg;
    teffi_thread thread;
    bool started;

    teffi_parker parker;
    _Atomic bool asked;      /* look was requested */
    _Atomic bool asked_soon; /* look_soon was requested */
} link_ticker;

/* teffi_link_ticker_start - in: the immutable fields are set. errs: TEFF_E_IO. */
TEFF_MUST_USE teff_err teffi_link_ticker_start(link_ticker *ticker);

/* teffi_link_ticker_ask - request look() now.
 * teffi_link_ticker_ask_soon - request look_soon() within LINK_SOON_NS, after the caller has added
 * work for it. */
void teffi_link_ticker_ask(link_ticker *ticker);
void teffi_link_ticker_ask_soon(link_ticker *ticker);

/* teffi_link_ticker_stop - wait until the thread has ended. in: look returns 0 from now on. */
void teffi_link_ticker_stop(link_ticker *ticker);

#endif
