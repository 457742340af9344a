/* client_reader.h - while exactly one thread of a client waits for responses, that thread reads
 * them: a transport thread gives it the connection with received bytes. So a response stays in one
 * core's cache and needs one wake-up. While several threads wait, the transport's threads read.
 * Way:     driver (give) -> [client_reader] -> the waiting thread -> driver
 * Threads: any of the client's. `known` points to at most one reader; a giver or the reader itself
 *          clears it. A giver sets `given`, then leaves the token that the reader waits for.
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
    bool was_known;       /* _begin stored this reader in `known` */
} client_reader;

typedef struct client_readers {
    client_reader *_Atomic known;    /* the reader that may be given a connection */
    _Atomic uint32_t waiting;        /* number of threads between _begin and _end, known or not */
    teffi_deferred *_Atomic reads;   /* deferred until a thread waits */
    _Atomic uint32_t reads_deferred; /* number of reads ever deferred */
    uint32_t reads_deferred_before;  /* owner: the ticker; reads_deferred at its last look */
} client_readers;

/* teffi_client_reader_begin - before this thread sleeps on reader->parker: let other threads give
 * it a connection, and run deferred reads.
 * out:  false: the link is not a client's. true: after the sleep the caller calls
 *       teffi_client_reader_withdraw_or_take_conn(), reads the connection if it returns one, and
 *       calls teffi_client_reader_end(). */
bool teffi_client_reader_begin(struct teffi_conns *conns, client_reader *reader);

/* teffi_client_reader_withdraw_or_take_conn - after the sleep: withdraw the reader. If another
 * thread is already giving it a connection, wait for that thread's token and take the connection.
 * in:   *tokens: the tokens that woke the thread.
 * out:  the connection to read, with a reference; NULL: none. *tokens: with the tokens that have
 *       arrived since. */
teffi_conn *teffi_client_reader_withdraw_or_take_conn(struct teffi_conns *conns,
                                                      client_reader *reader, uint32_t *tokens);

/* teffi_client_reader_end - this thread no longer waits. in: it has read the given connection, if
 * there was one. */
void teffi_client_reader_end(struct teffi_conns *conns);

/* teffi_client_reader_try_give_conn - let the waiting thread read conn, which has received bytes.
 * in:   the reader's reference, taken over on true.
 * out:  false: no thread waits, several do, or the one that waits was given a connection before. */
bool teffi_client_reader_try_give_conn(teffi_conn *conn);

/* teffi_client_reader_is_this_thread - is the calling thread a client's thread that reads while it
 * waits? */
bool teffi_client_reader_is_this_thread(void);

/* teffi_client_reader_defer_read - defer conn's next read until a thread waits.
 * in:   the reader's reference, taken over on true.
 * out:  false: the calling thread does not read while it waits, or another thread waits. */
bool teffi_client_reader_defer_read(teffi_conn *conn);

/* teffi_client_reader_run_overdue_reads - let the transport's threads run the deferred reads, if no
 * read was deferred since the last call. in: all: run them in any case. out: true: call again soon.
 * runs: the ticker; link free. */
bool teffi_client_reader_run_overdue_reads(struct teffi_conns *conns, bool all);
