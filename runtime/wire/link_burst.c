/* link_burst.c - a thread that is no worker has no pass. When it sends much in a row, what goes to
 * a peer is put off until that thread waits for something, or enough has come together for a write.
 * Way:     link_send (put) -> [burst] -> node/wait, who is about to wait (net op flush)
 * Threads: any. Whoever flushes does so for all of them. The ticker does it for who sends and then
 *          does not wait: within a millisecond or two, for which it wakes up while there are
 *          bursts. */
#include "wire/link.h"

static _Thread_local bool put_here; /* and not flushed since, by this thread */

void teffi_link_burst_put(teffi_conn *conn)
{
    teffi_link *link = conn->owner;
    (void)teffi_later_put(&link->bursts, &conn->burst);
    put_here = true;
    teffi_link_tick_bursts(link);
}

void teffi_link_tick_bursts(teffi_link *link)
{
    if (atomic_load_explicit(&link->burst_due, memory_order_seq_cst))
        return;
    atomic_store_explicit(&link->burst_due, true, memory_order_seq_cst);
    teffi_parker_wake(&link->tick_parker);
}

void teffi_link_burst_end(teffi_link *link)
{
    put_here = false;
    if (!atomic_load_explicit(&link->bursts, memory_order_seq_cst)) /* behind _late's store */
        return;
    teffi_later_do_all(&link->bursts);
}

void teffi_link_burst_end_mine(teffi_link *link)
{
    if (put_here)
        teffi_link_burst_end(link);
}

void teffi_link_flush(teffi_net *net)
{
    teffi_link_burst_end((teffi_link *)net);
}

bool teffi_link_burst_due(teffi_link *link)
{
    return atomic_load_explicit(&link->burst_due, memory_order_relaxed);
}

void teffi_link_burst_late(teffi_link *link)
{
    /* seq_cst: what is put after this finds none due, and says so; what was put before is found
     * below */
    atomic_store_explicit(&link->burst_due, false, memory_order_seq_cst);
    teffi_link_burst_end(link);
    if (teffi_link_reader_late(link, false))
        atomic_store_explicit(&link->burst_due, true, memory_order_seq_cst);
}
