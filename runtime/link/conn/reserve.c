/* reserve.c - memory of clients' unfinished large frames, and the connections that wait for it.
 * Threads: lock order: reserve.lock, then conn->lock (sender_is_closed() takes it). */
#include "link/conn/connection.h"

/* Is the peer a client, and the connection UP? */
static bool is_client_conn_up(const teffi_conn *conn)
{
    return conn->state == CONN_UP && !conn->dialled &&
           conn->handshake.remote.role == TEFFI_ROLE_CLIENT;
}

/* out: the limit of frames_bytes; the limit of spare_bytes is the same. */
static size_t max_reserve_bytes(const teffi_conns *conns)
{
    return conns->budget ? (size_t)conns->budget->max_bytes / LINK_RESERVE_SHARE : SIZE_MAX;
}

/* out: the bytes to reserve for the frame that conn receives. 0 if the frame is small, not from a
 *      client, or of unknown length. Otherwise the largest size of a buffer for the frame: the
 *      buffer has room for LINK_READ_BUFFER_MIN bytes after the frame, and its block may be a
 *      quarter larger than needed. */
static size_t bytes_for_frame(const teffi_conn *conn)
{
    size_t frame = conn->receiver.buffer.frame;
    bool counts = is_client_conn_up(conn) && frame >= LINK_LARGE;
    return counts ? frame + frame / 4 + (size_t)2 * LINK_READ_BUFFER_MIN : 0;
}

/* Is the sender closed? teffi_conn_kill() closes it. */
static bool sender_is_closed(teffi_conn *conn)
{
    pthread_mutex_lock(&conn->lock);
    bool closed = conn->sender.closing == SENDER_CLOSED;
    pthread_mutex_unlock(&conn->lock);
    return closed;
}

/* Reserves memory for conn's frame; the caller holds reserve.lock. Ignores the limit in two cases.
 * First, no other frame has a reservation: this frame alone may be larger than the limit. Second,
 * conn was killed: it must not wait, because free_link() may already have emptied the queue of
 * waiting connections for the last time, so nothing would resume conn.
 * out:  false: no room. */
static bool reserve_frame_locked(teffi_conn *conn)
{
    conn_reserve *r = &conn->conns->reserve;
    size_t need = bytes_for_frame(conn), max = max_reserve_bytes(conn->conns);
    if (r->frames_bytes && (need > max || r->frames_bytes > max - need) && !sender_is_closed(conn))
        return false;
    r->frames_bytes += need;
    conn->receiver.frame_bytes = need;
    return true;
}

bool teffi_reserve_frame(teffi_conn *conn)
{
    conn_reserve *r = &conn->conns->reserve;
    if (conn->receiver.frame_bytes || !bytes_for_frame(conn))
        return true;
    pthread_mutex_lock(&r->lock);
    bool reserved = !r->waiting.head && reserve_frame_locked(conn);
    pthread_mutex_unlock(&r->lock);
    return reserved;
}

bool teffi_reserve_or_enqueue(teffi_conn *conn)
{
    teffi_conns *conns = conn->conns;
    conn_reserve *r = &conns->reserve;
    uint32_t client = conn->handshake.remote.node.silo;
    size_t frame = conn->receiver.buffer.frame;
    conn->liveness.partial_since_ns = 0; /* the wait does not count against the peer */
    pthread_mutex_lock(&r->lock);
    /* connections wait in order of arrival; a killed one does not wait */
    bool waits = (r->waiting.head && !sender_is_closed(conn)) || !reserve_frame_locked(conn);
    if (waits)
        teffi_queue_push(&r->waiting, &conn->receiver.waiting);
    size_t reserved = r->frames_bytes;
    pthread_mutex_unlock(&r->lock);
    if (waits) /* conn is not used here: another thread may have resumed and freed it */
        teffi_counters_add_one_and_log(
            &conns->counters, LINK_FRAMES_WAITED,
            "client %08x: a frame of %zu bytes waits, clients' unfinished frames "
            "take %zu bytes",
            client, frame, reserved);
    return waits;
}

void teffi_reserve_charge_or_trim_spare(teffi_conn *conn)
{
    conn_reserve *r = &conn->conns->reserve;
    conn_receiver *receiver = &conn->receiver;
    size_t small = LINK_LARGE + LINK_READ_BUFFER_MIN, cap = receiver->buffer.cap;
    size_t covered = receiver->frame_bytes > small ? receiver->frame_bytes : small;
    size_t spare = is_client_conn_up(conn) && cap > covered ? cap - covered : 0;
    if (spare == receiver->spare_bytes)
        return;
    pthread_mutex_lock(&r->lock);
    r->spare_bytes -= receiver->spare_bytes;
    bool fits = spare <= max_reserve_bytes(conn->conns) - r->spare_bytes;
    receiver->spare_bytes = fits ? spare : 0;
    r->spare_bytes += receiver->spare_bytes;
    pthread_mutex_unlock(&r->lock);
    if (!fits)
        teffi_read_buffer_trim(&receiver->buffer);
}

void teffi_reserve_release(teffi_conn *conn)
{
    conn_reserve *r = &conn->conns->reserve;
    if (!conn->receiver.frame_bytes)
        return;
    pthread_mutex_lock(&r->lock);
    r->frames_bytes -= conn->receiver.frame_bytes;
    conn->receiver.frame_bytes = 0;
    bool others_wait = r->waiting.head;
    pthread_mutex_unlock(&r->lock);
    if (others_wait)
        teffi_conns_ask_ticker_to_scan(conn->conns);
}

/* First takes the killed connections off the queue, wherever they are in it: they have no receive
 * in flight, so they end only when they are resumed. Then takes connections from the front of the
 * queue, as long as their frames can be reserved. */
void teffi_reserve_dequeue_ready(teffi_conns *conns, teffi_queue *ready)
{
    conn_reserve *r = &conns->reserve;
    teffi_queue all = {0};
    pthread_mutex_lock(&r->lock);
    teffi_queue_move(&all, &r->waiting);
    for (teffi_qnode *q; (q = teffi_queue_pop(&all));) {
        bool closed = sender_is_closed(teffi_container(q, teffi_conn, receiver.waiting));
        teffi_queue_push(closed ? ready : &r->waiting, q);
    }
    while (r->waiting.head &&
           reserve_frame_locked(teffi_container(r->waiting.head, teffi_conn, receiver.waiting)))
        teffi_queue_push(ready, teffi_queue_pop(&r->waiting));
    pthread_mutex_unlock(&r->lock);
}
