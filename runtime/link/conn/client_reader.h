/* client_reader.h - while exactly one thread of a client waits for responses, that thread reads
 * them: a transport thread gives it the connection with received bytes. So a response stays in one
 * core's cache and needs one wake-up. While several threads wait, the transport's threads read.
 * Way:     driver (give) -> [client_reader] -> the waiting thread -> driver
 * Threads: any of the client's. At most one reader is `known`; the giver or the reader itself takes
 *          it off. The giver leaves its token last, and the reader waits for that token.
 * Model:   tests/model/reader.pml */
#pragma once

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include "os/thread.h"
#include "group/deferred.h"

typedef struct teffi_conn teffi_conn;
struct teffi_conns;

/* A waiting thread; lives on its stack. */
typedef struct client_reader {
    teffi_parker *parker; /* TEFFI_TOKEN_GIVEN: given is set */
    teffi_conn *given;    /* to be read by this thread, with a reference */
    bool was_known;       /* begin stored it in `known` */
} client_reader;

typedef struct client_readers {
    client_reader *_Atomic known;  /* the reader that may be given a connection */
    _Atomic uint32_t waiting;      /* threads that wait, known or not */
    teffi_deferred *_Atomic reads; /* deferred until a thread waits */
    _Atomic uint32_t reads_put;    /* number of reads ever deferred */
    uint32_t reads_put_before;     /* owner: the ticker; reads_put at its last look */
} client_readers;

/* teffi_client_reader_begin - before this thread sleeps on reader->parker: let other threads give
 * it a connection, and run deferred reads.
 * out:  false: the link is not a client's. true: after the sleep call take, then end. */
bool teffi_client_reader_begin(struct teffi_conns *conns, client_reader *reader);

/* teffi_client_reader_take - after the sleep: withdraw the reader. If another thread is already
 * giving it a connection, wait for that thread's token and take the connection.
 * in:   *tokens: those that woke the thread.
 * out:  the connection to read, with a reference; NULL: none. *tokens: also those that have arrived
 *       since. */
teffi_conn *teffi_client_reader_take(struct teffi_conns *conns, client_reader *reader,
                                     uint32_t *tokens);

/* teffi_client_reader_end - this thread has read what it was given, and waits no more. */
void teffi_client_reader_end(struct teffi_conns *conns);

/* teffi_client_reader_give - let the waiting thread read conn, which has received bytes.
 * in:   a reference, taken over on true. out: false: no thread waits, or several do. */
bool teffi_client_reader_give(teffi_conn *conn);

/* teffi_client_reader_thread_reads - is the calling thread a client's thread that reads while it
 * waits? */
bool teffi_client_reader_thread_reads(void);

/* teffi_client_reader_defer - defer conn's next read until a thread waits.
 * in:   a reference, taken over on true. out: false: the caller is not such a thread, or another
 *       thread waits. */
bool teffi_client_reader_defer(teffi_conn *conn);

/* teffi_client_reader_expire - give deferred reads to the transport's threads, if no read was
 * deferred since the last call. in: all: give them in any case. out: true: call again soon.
 * runs: the ticker; link free. */
bool teffi_client_reader_expire(struct teffi_conns *conns, bool all);
