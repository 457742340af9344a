/* driver.h - entry points of a connection: completed reads and writes, deferred reads, and the
 * events reported to the owner.
 * Way:     nng, executor, ticker -> [driver] -> receiver, handshake, goodbye, ending -> net events
 * Threads: a connection has at most one reader, which holds a reference: the receive callback, the
 *          thread that the executor chooses, a waiting client thread, or the thread that reports
 *          its batch. A connection that waits for memory has none. One thread at a time reports a
 *          peer's events, without a lock. */
#ifndef TEFFI_LINK_DRIVER_H
#define TEFFI_LINK_DRIVER_H

#include "link/link.h"

/* teffi_driver_open - conns.lock held; make a connection, not listed yet. out: NULL: no memory. */
teffi_conn *teffi_driver_open(teffi_link *link, bool dialled);

/* teffi_driver_read - handle the buffered frames, then receive more.
 * in:   the reader's reference, taken over. */
void teffi_driver_read(teffi_conn *conn);

/* teffi_driver_end - end the connection and report its end. in: a reference, dropped. */
void teffi_driver_end(teffi_conn *conn);

/* teffi_driver_sweep - go on with the connections that need not wait for memory any longer.
 * teffi_driver_reap - free the connections without references. runs: the ticker; link free. */
void teffi_driver_sweep(teffi_link *link);
void teffi_driver_reap(teffi_link *link);

#endif
