/* client_reader.c - chooses the thread of a client that reads; runs deferred reads.
 * Model:   tests/model/reader.pml
 *
 * After a large read, a reading thread defers the next read until a thread waits. A deferring
 * thread stores `reads`, then loads `waiting`; a waiting thread stores `waiting`, then loads
 * `reads` (all seq_cst), so one of them runs the read. The ticker runs leftover reads. */
#include "link/conn/client_reader.h"

#include "link/conn/connection.h"

static _Thread_local bool thread_reads; /* a client's thread that reads while it waits */

bool teffi_client_reader_is_this_thread(void)
{
    return thread_reads;
}

/* Runs the deferred reads. in: here: true: this thread reads the bytes. false: this thread only
 * begins asynchronous receives, and the transport's threads run their callbacks. */
static void run_deferred_reads(client_readers *r, bool here)
{
    /* seq_cst: teffi_client_reader_begin() and teffi_client_reader_defer_read() access `waiting`
     * before this load; see the file header */
    if (!atomic_load_explicit(&r->reads, memory_order_seq_cst))
        return;
    bool was_here = thread_reads;
    thread_reads = here;
    teffi_deferred_run_all(&r->reads);
    thread_reads = was_here;
}

bool teffi_client_reader_defer_read(teffi_conn *conn)
{
    client_readers *r = &conn->conns->readers;
    /* relaxed: a hint, loaded again below */
    if (!thread_reads || atomic_load_explicit(&r->waiting, memory_order_relaxed) > 1)
        return false;
    (void)teffi_deferred_push(&r->reads, &conn->receiver.next_read);
    atomic_fetch_add_explicit(&r->reads_deferred, 1, memory_order_relaxed);
    /* seq_cst: this load comes after the push; pairs with teffi_client_reader_begin(). If several
     * threads wait, the transport's threads do all reads, so this call hands the deferred reads
     * back to them. */
    if (atomic_load_explicit(&r->waiting, memory_order_seq_cst) > 1)
        run_deferred_reads(r, false);
    else
        teffi_conns_ask_to_run_delayed_work(
            conn->conns); /* the ticker runs the read if no thread waits soon */
    return true;
}

bool teffi_client_reader_run_overdue_reads(teffi_conns *conns, bool all)
{
    client_readers *r = &conns->readers;
    /* relaxed: if the value is stale, reads run early, or the ticker calls once more */
    uint32_t deferred = atomic_load_explicit(&r->reads_deferred, memory_order_relaxed);
    bool none_new = deferred == r->reads_deferred_before;
    r->reads_deferred_before = deferred;
    if (none_new || all) /* none_new: all deferred reads are older than the previous call */
        run_deferred_reads(r, false);
    return !none_new;
}

bool teffi_client_reader_begin(teffi_conns *conns, client_reader *reader)
{
    client_readers *r = &conns->readers;
    client_reader *none = NULL;
    if (conns->role != TEFFI_ROLE_CLIENT)
        return false;
    /* seq_cst: comes before the load of `reads`; pairs with teffi_client_reader_defer_read() */
    atomic_fetch_add_explicit(&r->waiting, 1, memory_order_seq_cst);
    /* release: publishes *reader, pairs with teffi_client_reader_try_give_conn() */
    reader->was_known = atomic_compare_exchange_strong_explicit(
        &r->known, &none, reader, memory_order_release, memory_order_relaxed);
    /* A deferred read that runs here may defer another read. While this thread sleeps, only the
     * ticker, or another thread that begins to wait, would run that one. So repeat until no read is
     * left, or until there is a token, which prevents the sleep. */
    do
        run_deferred_reads(r, true);
    while (atomic_load_explicit(&r->reads, memory_order_relaxed) &&
           !teffi_parker_has_token(reader->parker, TEFFI_TOKEN | TEFFI_TOKEN_GIVEN));
    return true;
}

bool teffi_client_reader_try_give_conn(teffi_conn *conn)
{
    client_readers *r = &conn->conns->readers;
    /* Give conn only if one thread waits: the received message is then usually the response for
     * that thread. If several threads wait, the message is often for another thread than the
     * reader. The reader would then wake up only to wake that other thread. relaxed: hints. */
    if (!atomic_load_explicit(&r->known, memory_order_relaxed) ||
        atomic_load_explicit(&r->waiting, memory_order_relaxed) != 1)
        return false;
    /* acquire: pairs with teffi_client_reader_begin() */
    client_reader *reader = atomic_exchange_explicit(&r->known, NULL, memory_order_acquire);
    if (!reader)
        return false;
    reader->given = conn;
    teffi_parker_wake_with_token(reader->parker, TEFFI_TOKEN_GIVEN);
    return true;
}

/* Removes the reader from `known`, if it is there. out: false if another thread has removed it in
 * teffi_client_reader_try_give_conn(). That thread wakes the reader's parker with the token
 * TEFFI_TOKEN_GIVEN, or has done so. */
static bool withdraw_reader(client_readers *r, client_reader *reader)
{
    return !reader->was_known ||
           atomic_compare_exchange_strong_explicit(&r->known, &reader, NULL, memory_order_relaxed,
                                                   memory_order_relaxed);
}

teffi_conn *teffi_client_reader_withdraw_or_take_conn(teffi_conns *conns, client_reader *reader,
                                                      uint32_t *tokens)
{
    if (withdraw_reader(&conns->readers, reader))
        return NULL;
    while (!(*tokens & TEFFI_TOKEN_GIVEN))
        *tokens |= teffi_parker_wait_for_tokens(reader->parker, UINT64_MAX);
    thread_reads = true; /* until teffi_client_reader_end() */
    return reader->given;
}

void teffi_client_reader_end(teffi_conns *conns)
{
    thread_reads = false;
    /* relaxed: other threads that load the old value only miss a chance to defer a read, or to give
     * a connection to a reader */
    atomic_fetch_sub_explicit(&conns->readers.waiting, 1, memory_order_relaxed);
}
