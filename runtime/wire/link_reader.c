/* link_reader.c - a client's thread that alone waits for answers reads them itself: the transport's
 * thread gives it the connection that has brought something, and it takes apart what came. So an
 * answer is made, read and freed by one thread, in one core's cache, and nobody is woken only to
 * wake another. Where several wait, the transport's threads read.
 * Way:     link_recv (give) -> [reader] -> node/wait's sleep ends -> [reader] -> link_recv (go on)
 * Threads: any of the client's. One at a time is known here and may be given something; who takes
 *          it off link->reader, itself or a giver, alone decides which. A giver leaves the token
 *          last, and the reader waits for that.
 * Model:   tests/model/reader.pml
 *
 * Who has read much reads on at its next wait: what is put off in link->reads. No thread waits for
 * what is put off: who puts it looks for others that wait behind it, and who begins to wait says so
 * before it looks for what was put off (seq_cst both), until it finds none. What nobody comes back
 * for, since the thread does something else, the ticker gives to nng. */
#include "wire/link.h"

static _Thread_local bool reads_here;

bool teffi_link_reader_here(void)
{
    return reads_here;
}

/* What was put off: read here, or given to nng. */
static void go_on_with(teffi_link *link, bool here)
{
    if (!atomic_load_explicit(&link->reads, memory_order_seq_cst)) /* behind the look at reading */
        return;
    bool was_here = reads_here;
    reads_here = here;
    teffi_later_do_all(&link->reads);
    reads_here = was_here;
}

bool teffi_link_reader_later(teffi_conn *conn)
{
    teffi_link *link = conn->owner;
    /* relaxed: a guess, and looked at again below */
    if (!reads_here || atomic_load_explicit(&link->reading, memory_order_relaxed) > 1)
        return false;
    (void)teffi_later_put(&link->reads, &conn->next_read);
    atomic_fetch_add_explicit(&link->reads_put, 1, memory_order_relaxed);
    if (atomic_load_explicit(&link->reading, memory_order_seq_cst) > 1)
        go_on_with(link, false);
    else
        teffi_link_tick_bursts(link);
    return true;
}

bool teffi_link_reader_late(teffi_link *link, bool all)
{
    /* relaxed: when it is seen late, a millisecond more */
    uint32_t put = atomic_load_explicit(&link->reads_put, memory_order_relaxed);
    bool old = put == link->reads_seen;
    link->reads_seen = put;
    if (old || all)
        go_on_with(link, false);
    return !old;
}

bool teffi_link_read_begin(teffi_net *net, teffi_net_reader *reader)
{
    teffi_link *link = (teffi_link *)net;
    teffi_net_reader *none = NULL;
    if (link->self.role != TEFFI_ROLE_CLIENT)
        return false;
    /* seq_cst: before the look at reads, pairs with later */
    atomic_fetch_add_explicit(&link->reading, 1, memory_order_seq_cst);
    /* release: what reader holds, pairs with give */
    reader->known = atomic_compare_exchange_strong_explicit(
        &link->reader, &none, reader, memory_order_release, memory_order_relaxed);
    /* What that puts off anew nobody else may come for while this thread sleeps: so not before
     * there is none, or a token is there, and it does not sleep. */
    do
        go_on_with(link, true);
    while (atomic_load_explicit(&link->reads, memory_order_relaxed) &&
           !teffi_parker_has(reader->parker, TEFFI_TOKEN | TEFFI_TOKEN_GIVEN));
    return true;
}

bool teffi_link_reader_give(teffi_conn *conn)
{
    teffi_link *link = conn->owner;
    /* relaxed: guesses. What comes is this thread's mostly, when no other waits; else it would be
     * woken to wake others. */
    if (!atomic_load_explicit(&link->reader, memory_order_relaxed) ||
        atomic_load_explicit(&link->reading, memory_order_relaxed) != 1)
        return false;
    /* acquire: pairs with read_begin */
    teffi_net_reader *reader = atomic_exchange_explicit(&link->reader, NULL, memory_order_acquire);
    if (!reader)
        return false;
    reader->given = conn;
    teffi_parker_leave(reader->parker, TEFFI_TOKEN_GIVEN);
    return true;
}

/* out: false: a giver has taken it, and gives or has given. */
static bool withdraw(teffi_link *link, teffi_net_reader *reader)
{
    return !reader->known ||
           atomic_compare_exchange_strong_explicit(&link->reader, &reader, NULL,
                                                   memory_order_relaxed, memory_order_relaxed);
}

uint32_t teffi_link_read_end(teffi_net *net, teffi_net_reader *reader, uint32_t tokens)
{
    teffi_link *link = (teffi_link *)net;
    if (!withdraw(link, reader)) {
        while (!(tokens & TEFFI_TOKEN_GIVEN))
            tokens |= teffi_parker_take(reader->parker, UINT64_MAX);
        reads_here = true;
        teffi_link_recv_go_on(reader->given);
        reads_here = false;
    }
    /* relaxed: it only keeps others from putting something off */
    atomic_fetch_sub_explicit(&link->reading, 1, memory_order_relaxed);
    return tokens;
}
