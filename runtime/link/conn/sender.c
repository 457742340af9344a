/* sender.c - appends frames to the pending buffer and writes it: at once, in a deferred or
 * coalesced write, or after the write in flight. So a busy link writes many frames at a time. */
#include "link/conn/sender.h"

#include "link/conn/connection.h"

enum { WRITES_INLINE = 4 }; /* most flights in a row on one thread */

/* This thread has scheduled a coalesced write, and has written no coalesced frames since. */
static _Thread_local bool thread_has_coalesced;

/* conn->lock held. Counts the bytes that wait in conn (pending, in flight, and unopened), and adds
 * to the budget the change of this number since the last call. */
static void update_budget(teffi_conn *conn)
{
    conn_sender *s = &conn->sender;
    size_t now = s->pending.total + s->in_flight.total + s->unopened_bytes;
    teffi_budget_add(conn->conns->budget, (int64_t)now - (int64_t)s->counted_bytes);
    s->counted_bytes = now;
}

/* conn->lock held. Begins a flight: swaps all pending frames into in_flight, to be written. Does
 * nothing if a write is in flight, nothing is pending, there is no stream, or the sender is closed.
 * out:  true: the caller owns in_flight and writes it. The caller keeps a reference to conn, called
 *       the flight's reference, until end_flight_and_begin_next(). */
static bool begin_flight(teffi_conn *conn)
{
    conn_sender *s = &conn->sender;
    if (s->writing || s->closing == SENDER_CLOSED || !conn->stream || !s->pending.total)
        return false;
    write_buffer empty = s->in_flight;
    s->in_flight = s->pending;
    s->pending = empty;
    s->urgent = false;
    teffi_counters_add(&conn->conns->counters, LINK_FRAMES_OUT, s->pending_frames);
    s->pending_frames = 0;
    s->written = (write_position){0};
    s->writing = true;
    return true;
}

/* conn->lock held. Does the connection linger, and is everything written? in: begin_flight() was
 * just called, so if no write is in flight, nothing is pending. */
static bool has_finished_lingering(const conn_sender *s)
{
    return s->closing == SENDER_LINGERS && !s->writing;
}

/* conn->lock held. Calls begin_flight(), unless a deferred or coalesced write is scheduled: that
 * write will write the pending frames. Calls it in any case if a pending frame is urgent, if the
 * sender is finished or lingers, or if LINK_FLUSH_BYTES or more are pending. */
static bool begin_flight_unless_scheduled(teffi_conn *conn)
{
    const conn_sender *s = &conn->sender;
    bool kept =
        (s->deferred || s->coalesced) && !s->urgent && !s->finished && s->closing == SENDER_STAYS;
    if (kept && s->pending.total < LINK_FLUSH_BYTES)
        return false;
    return begin_flight(conn);
}

/* Ends the flight, and calls begin_flight_unless_scheduled() for the next one. Kills conn if the
 * flight failed, or if conn lingers and everything is written.
 * in:   failed: the flight was not written completely.
 * out:  true: the caller writes the next flight. false: there is no next one, and the flight's
 *       reference was dropped, or passed to the callback that ends the connection. */
static bool end_flight_and_begin_next(teffi_conn *conn, bool failed)
{
    conn_sender *s = &conn->sender;
    pthread_mutex_lock(&conn->lock);
    if (failed)
        s->closing = SENDER_CLOSED;
    else
        teffi_write_buffer_reset(&s->in_flight, (size_t)2 * LINK_WRITE_MAX);
    update_budget(conn);
    s->writing = false;
    conn->liveness.writing_since_ns = 0;
    bool next = begin_flight_unless_scheduled(conn);
    bool kill = failed || has_finished_lingering(s);
    bool ends = s->ends_conn;
    pthread_mutex_unlock(&conn->lock);
    if (next)
        return true;
    if (kill)
        teffi_conn_kill(conn);
    if (ends)
        conn->stream->ops->call_written(conn->stream); /* the callback ends the connection */
    else
        teffi_conn_unref(conn);
    return false;
}

/* Lists the next pieces to write and their number *n. out: the total length of the pieces. */
static size_t list_pieces(const conn_sender *s, struct iovec *pieces, unsigned *n)
{
    return teffi_write_buffer_list_pieces(&s->in_flight, &s->written, LINK_WRITE_MAX, pieces, n);
}

/* Adds a write of n bytes of in_flight to the counters, and moves the position `written` by n. */
static void record_written_bytes(teffi_conn *conn, size_t n)
{
    teffi_write_buffer_mark_written(&conn->sender.in_flight, &conn->sender.written, n);
    teffi_counters_add(&conn->conns->counters, LINK_WRITES, 1);
    teffi_counters_add(&conn->conns->counters, LINK_BYTES_OUT, n);
}

/* May this node write at now_ns? After its lease has ended, a silo must not write, because its
 * messages may be wrong. */
static bool may_write_at(const teffi_conn *conn, uint64_t now_ns)
{
    const _Atomic uint64_t *until_ns = conn->conns->until_ns;
    uint64_t end_ns = until_ns ? atomic_load_explicit(until_ns, memory_order_relaxed) : 0;
    return !end_ns || now_ns < end_ns;
}

/* Begins a write that ends in the stream's callback. in: the flight's reference, taken over. */
static void write_in_background(teffi_conn *conn)
{
    struct iovec pieces[TEFFI_STREAM_PIECES];
    unsigned n;
    uint64_t now_ns = teffi_conns_now(conn->conns);
    conn->liveness.writing_since_ns = now_ns;
    (void)list_pieces(&conn->sender, pieces, &n);
    if (!may_write_at(conn, now_ns) || !conn->stream->ops->write(conn->stream, pieces, n))
        (void)end_flight_and_begin_next(conn, true);
}

static bool is_flight_written(const conn_sender *s)
{
    return s->written.total == s->in_flight.total;
}

/* Writes without blocking. out: false if bytes of the flight are left, which the caller must write
 * in the background. */
static bool write_now(teffi_conn *conn)
{
    conn_sender *s = &conn->sender;
    teffi_stream *stream = conn->stream;
    struct iovec pieces[TEFFI_STREAM_PIECES];
    unsigned n;
    /* The clock is read before the write, because the peer may receive the bytes, and begin to
     * measure how long we are silent, before the write returns. */
    uint64_t since_ns = teffi_conns_now(conn->conns);
    if (!may_write_at(conn, since_ns))
        return false;
    while (stream->tries && !is_flight_written(s)) {
        size_t want = list_pieces(s, pieces, &n);
        size_t bytes = stream->ops->write_now(stream, pieces, n);
        if (!bytes)
            return false;
        record_written_bytes(conn, bytes);
        if (bytes < want)
            return false; /* the socket is full */
    }
    if (stream->tries)
        conn->liveness.wrote_ns = since_ns;
    return stream->tries;
}

/* Writes this flight and the next ones on this thread, until WRITES_INLINE flights are written or
 * the socket is full; begins a background write if bytes are left. in: the flight's reference,
 * taken over. */
static void write_flight(teffi_conn *conn)
{
    conn_sender *s = &conn->sender;
    for (unsigned i = 0; i < WRITES_INLINE && write_now(conn); i++)
        if (!end_flight_and_begin_next(conn, false))
            return;
    /* When send returns, its caller may change the bytes that the frame borrows: copy those
     * not written yet. */
    if (teffi_write_buffer_copy_borrowed(&s->in_flight, &s->written))
        write_in_background(conn);
    else
        (void)end_flight_and_begin_next(conn, true);
}

/* Releases conn->lock, then writes the frames that were pending, unless a write is in flight. If
 * conn lingers and everything is written already, kills it.
 * in:   conn->lock is held; a reference to conn, taken over. */
static void unlock_and_write_pending(teffi_conn *conn)
{
    bool mine = begin_flight(conn);
    bool drained = has_finished_lingering(&conn->sender);
    pthread_mutex_unlock(&conn->lock);
    if (mine) {
        write_flight(conn);
        return;
    }
    if (drained)
        teffi_conn_kill(conn);
    teffi_conn_unref(conn);
}

bool teffi_sender_complete_write(teffi_conn *conn, const teffi_stream_result *result)
{
    conn_sender *s = &conn->sender;
    if (!s->writing) /* the stream's op call_written caused this callback; no write was under way */
        return true;
    if (result->end) {
        (void)end_flight_and_begin_next(conn, true);
        return false;
    }
    conn->liveness.wrote_ns = conn->liveness.writing_since_ns;
    record_written_bytes(conn, result->bytes);
    if (!is_flight_written(s))
        write_in_background(conn);
    else if (end_flight_and_begin_next(conn, false))
        write_flight(conn);
    return false;
}

/* Runs a deferred or coalesced write: writes the pending frames. in: the reference to conn that
 * this write holds, taken over; scheduled: sender.deferred or sender.coalesced. */
static void run_scheduled_write(teffi_conn *conn, bool *scheduled)
{
    pthread_mutex_lock(&conn->lock);
    *scheduled = false;
    unlock_and_write_pending(conn);
}

static void write_deferred(teffi_deferred *work)
{
    teffi_conn *conn = teffi_container(work, teffi_conn, sender.write_deferred);
    run_scheduled_write(conn, &conn->sender.deferred);
}

static void write_coalesced(teffi_deferred *work)
{
    teffi_conn *conn = teffi_container(work, teffi_conn, sender.write_coalesced);
    run_scheduled_write(conn, &conn->sender.coalesced);
}

/* ---- coalescing ---- */

/* Adds conn to the list of connections with coalesced frames. A thread that waits, or the ticker,
 * writes them. in: a reference, taken over by write_coalesced. */
static void schedule_coalesced_write(teffi_conn *conn)
{
    (void)teffi_deferred_push(&conn->conns->coalesced, &conn->sender.write_coalesced);
    thread_has_coalesced = true;
    teffi_conns_ask_to_run_delayed_work(conn->conns);
}

void teffi_sender_write_coalesced(teffi_conns *conns)
{
    thread_has_coalesced = false;
    /* seq_cst: in run_delayed_work(), the ticker clears asked_soon before this load. A thread in
     * schedule_coalesced_write() pushes before it loads asked_soon. So either this load finds the
     * pushed work, or that thread finds asked_soon cleared and requests another run. */
    if (atomic_load_explicit(&conns->coalesced, memory_order_seq_cst))
        teffi_deferred_run_all(&conns->coalesced);
}

void teffi_sender_write_if_thread_coalesced(teffi_conns *conns)
{
    if (thread_has_coalesced)
        teffi_sender_write_coalesced(conns);
}

void teffi_sender_init(teffi_conn *conn)
{
    conn->sender.write_deferred.run = write_deferred;
    conn->sender.write_coalesced.run = write_coalesced;
}

void teffi_sender_fini(teffi_conn *conn)
{
    conn_sender *s = &conn->sender;
    teffi_write_buffer_fini(&s->pending);
    teffi_write_buffer_fini(&s->in_flight);
    for (teffi_qnode *q; (q = teffi_queue_pop(&s->unopened));)
        teffi_msg_free(teffi_container(q, teffi_msg, link));
    s->unopened_bytes = 0;
    update_budget(conn);
}

/* ---- control frames ---- */

/* conn->lock held. Appends a control frame, unless the sender is closed. */
static void append_control(conn_sender *s, uint8_t kind, const uint8_t *payload, size_t len)
{
    write_buffer *to = &s->pending;
    size_t size = TEFFI_FRAME_HEAD + len;
    if (s->closing == SENDER_CLOSED)
        return;
    if (!teffi_write_buffer_reserve(to, size)) {
        s->closing = SENDER_LINGERS; /* without this frame the connection is useless */
        return;
    }
    teffi_frame_encode_control(kind, payload, len, to->data + to->len);
    teffi_write_buffer_commit_data(to, size);
}

/* Does the peer accept VIEW frames? Builds with protocol version 2 close a connection on an unknown
 * kind of frame. */
static bool peer_takes_views(const teffi_conn *conn)
{
    const teffi_hello *remote = &conn->handshake.remote;
    return remote->role == TEFFI_ROLE_SILO && remote->version_max >= TEFFI_PROTOCOL_VIEW;
}

/* conn->lock held; the sender is open. Appends a VIEW frame if the connection does not carry this
 * node's view yet. The frames of a connection keep their order, so each later frame carries the
 * view as if it were a field of it, but a message costs only this comparison.
 * relaxed: a thread that learned of the view after carry_view() sees it.
 * in: room, of the frame that follows. out: false: no memory for both. */
static inline bool append_view_if_new(teffi_conn *conn, size_t room)
{
    conn_sender *s = &conn->sender;
    uint64_t view = atomic_load_explicit(&conn->conns->view, memory_order_relaxed);
    if (s->view == view)
        return true;
    size_t size = TEFFI_FRAME_HEAD + TEFFI_VIEW_BYTES;
    if (peer_takes_views(conn)) {
        if (!teffi_write_buffer_reserve(&s->pending, size + room))
            return false;
        teffi_frame_encode_view(view, s->pending.data + s->pending.len);
        teffi_write_buffer_commit_data(&s->pending, size);
    }
    s->view = view;
    return true;
}

void teffi_sender_send_control(teffi_conn *conn, uint8_t kind, const uint8_t *payload, size_t len)
{
    pthread_mutex_lock(&conn->lock);
    if (conn->sender.open && conn->sender.closing != SENDER_CLOSED)
        (void)append_view_if_new(conn, 0); /* without memory, append_control() fails, too */
    append_control(&conn->sender, kind, payload, len);
    update_budget(conn);
    teffi_conn_ref(conn);
    unlock_and_write_pending(conn);
}

void teffi_sender_finish_with_goodbye(teffi_conn *conn, uint8_t kind)
{
    conn_sender *s = &conn->sender;
    pthread_mutex_lock(&conn->lock);
    if (s->open)
        append_control(s, kind, NULL, 0);
    else
        s->goodbyes |= 1u << kind;
    update_budget(conn);
    s->finished = true;
    bool schedule = !s->coalesced;
    s->coalesced = true;
    pthread_mutex_unlock(&conn->lock);
    if (schedule) {
        teffi_conn_ref(conn); /* held by write_coalesced */
        schedule_coalesced_write(conn);
    }
}

void teffi_sender_linger(teffi_conn *conn)
{
    pthread_mutex_lock(&conn->lock);
    if (conn->sender.closing == SENDER_STAYS)
        conn->sender.closing = SENDER_LINGERS;
    teffi_conn_ref(conn);
    unlock_and_write_pending(conn);
}

bool teffi_sender_close(teffi_conn *conn)
{
    conn_sender *s = &conn->sender;
    pthread_mutex_lock(&conn->lock);
    s->closing = SENDER_CLOSED;
    s->ends_conn = s->writing;
    bool ends = s->ends_conn;
    pthread_mutex_unlock(&conn->lock);
    return ends;
}

bool teffi_sender_has_unsent(teffi_conn *conn)
{
    conn_sender *s = &conn->sender;
    pthread_mutex_lock(&conn->lock);
    bool unsent = s->pending.total || s->in_flight.total || s->unopened.count;
    pthread_mutex_unlock(&conn->lock);
    return unsent;
}

/* ---- messages ---- */

/* conn->lock held. Is there room for msg, which takes `more` bytes? An empty queue takes a message
 * of any size. Responses may use twice the queue limit: refusing one wastes a finished call. System
 * messages may use four times the limit: they are few, and the cluster depends on them. While the
 * budget is over its limit, requests and one-ways to grains are refused. */
static bool has_room(const teffi_conn *conn, size_t more, const teffi_msg *msg)
{
    const conn_sender *s = &conn->sender;
    size_t share = msg->system ? 4 : msg->item.kind == TEFFI_MSG_RESPONSE ? 2 : 1;
    if (teffi_msg_is_for_grain(msg) && teffi_budget_is_exceeded(conn->conns->budget))
        return false;
    size_t waiting = s->pending.total + s->in_flight.total + s->unopened_bytes;
    size_t max = conn->conns->queue_max_bytes * share;
    return waiting == 0 || (waiting < max && more <= max - waiting);
}

/* conn->lock held. out: the present time, for encoding msg's deadline; 0 if msg has no deadline.
 * While a write is deferred or coalesced, further frames use the time in pending_ns: that is
 * precise enough, because the time left is encoded in milliseconds. */
static uint64_t read_clock_for_deadline(teffi_conn *conn, const teffi_msg *msg)
{
    conn_sender *s = &conn->sender;
    if (!msg->deadline_ns)
        return 0;
    if ((!s->deferred && !s->coalesced) || !s->pending_ns)
        s->pending_ns = teffi_conns_now(conn->conns);
    return s->pending_ns;
}

_Static_assert((int)LINK_LARGE >= (int)LINK_FLUSH_BYTES, "a large frame is written at once");

/* conn->lock held. Will this thread write a large frame before send returns? If so, the frame's
 * borrowed bytes are not copied now; write_flight() copies those that the socket does not take. */
static bool will_write_before_send_returns(const teffi_conn *conn)
{
    return conn->stream && conn->stream->tries && !conn->sender.writing;
}

/* conn->lock held. Encodes msg to the pending frames. The largest part of a large frame becomes a
 * zero-copy segment, if that part has at least LINK_LARGE bytes.
 * out:  false: no memory. *kept: set to true if the segment owns msg. */
static bool append_frame(teffi_conn *conn, teffi_msg *msg, size_t room, size_t body_len, bool *kept)
{
    conn_sender *s = &conn->sender;
    write_buffer *to = &s->pending;
    teffi_segment segment;
    bool large = room >= LINK_LARGE && teffi_msg_find_segment(msg, LINK_LARGE, &segment);
    size_t copied, before;
    size_t copied_max = large ? room - segment.len : room;
    if (!append_view_if_new(conn, copied_max) || !teffi_write_buffer_reserve(to, copied_max))
        return false;
    uint8_t *at = to->data + to->len;
    uint64_t now_ns = read_clock_for_deadline(conn, msg);
    if (large) {
        copied = teffi_frame_encode_without_segment(msg, body_len, &segment, now_ns, at, &before);
        *kept = !msg->borrows;
        teffi_write_buffer_add_segment(to, to->len + before, segment.bytes, segment.len,
                                       *kept ? msg : NULL);
        /* borrowed bytes that will be written after send has returned are copied now */
        if (msg->borrows && !will_write_before_send_returns(conn) &&
            !teffi_write_buffer_copy_or_drop_newest(to))
            return false;
    } else {
        copied = teffi_frame_encode(msg, body_len, now_ns, at);
    }
    teffi_write_buffer_commit_data(to, copied);
    s->pending_frames++;
    if (msg->item.kind == TEFFI_MSG_REQUEST)
        conn->conns->sent(conn->conns->sent_arg, conn->handshake.remote.node, msg);
    return true;
}

/* conn->lock held. Queues a message until the handshake is over; if the handshake fails, the link's
 * owner gets the message back as unsent. */
static teff_err queue_until_open(conn_sender *s, teffi_msg *msg, size_t room)
{
    if (!teffi_msg_copy_borrowed(msg))
        return TEFF_E_NOMEM;
    teffi_queue_push(&s->unopened, &msg->link);
    s->unopened_bytes += room;
    return TEFF_OK;
}

/* conn->lock held. Appends msg to the pending frames, or to the unopened messages if the sender is
 * not open yet.
 * in:   room, body_len, from teffi_frame_compute_size_bound(). *kept is false.
 * out:  *kept: set to true if the connection owns msg. */
static teff_err append_message(teffi_conn *conn, teffi_msg *msg, size_t room, size_t body_len,
                               bool *kept)
{
    conn_sender *s = &conn->sender;
    if (s->finished || (s->peer_left && teffi_msg_is_for_grain(msg)))
        return TEFF_E_CLOSED;
    if (s->closing == SENDER_CLOSED)
        return TEFF_E_UNREACHABLE;
    if (!has_room(conn, room, msg))
        return TEFF_E_OVERLOADED;
    if (s->open)
        return append_frame(conn, msg, room, body_len, kept) ? TEFF_OK : TEFF_E_NOMEM;
    teff_err err = queue_until_open(s, msg, room);
    *kept = err == TEFF_OK;
    return err;
}

/* What send does after it has released the lock. */
typedef enum next_step {
    LEAVE_PENDING, /* nothing: the next flight, a scheduled write or open will write the frames */
    DEFER,
    COALESCE,
    WRITE
} next_step;

/* Is this thread in a turn? If the turn has no processor, or is in a blocking region, its writes
 * cannot be deferred. They must not be coalesced either, because a turn never calls the net's op
 * `wait`, which would write the coalesced frames. */
static bool is_in_turn(const teffi_conns *conns)
{
    teffi_exec *exec = conns->exec;
    return exec && exec->ops->current && exec->ops->current(exec);
}

/* conn->lock held. Is it worth keeping this frame for coalescing? A frame shortly after a write
 * suggests that more follow. May set pending_ns to the present time.
 * in:   teffi_conns_can_defer() has returned false. */
static bool should_coalesce_frame(teffi_conn *conn, const teffi_msg *msg)
{
    conn_sender *s = &conn->sender;
    if (msg->awaited || is_in_turn(conn->conns))
        return false;
    if (!msg->deadline_ns) /* otherwise read_clock_for_deadline() has just read the clock */
        s->pending_ns = teffi_conns_now(conn->conns);
    return s->pending_ns < conn->liveness.wrote_ns + LINK_COALESCE_NS;
}

/* conn->lock held. Chooses when the pending frames are written, after msg was appended. If that
 * takes a new write, prepares it: begins its flight, or sets `deferred` or `coalesced`.
 * out:  what the caller does after it has released the lock. */
static next_step choose_step_and_prepare_write(teffi_conn *conn, const teffi_msg *msg)
{
    conn_sender *s = &conn->sender;
    if (!s->open)
        return LEAVE_PENDING;
    if (s->pending.total >= LINK_FLUSH_BYTES)
        return begin_flight(conn) ? WRITE : LEAVE_PENDING;
    if (s->deferred)
        return LEAVE_PENDING;
    if (teffi_conns_can_defer(conn->conns)) {
        s->deferred = true;
        s->pending_ns = 0; /* it may be the time of an earlier write */
        return DEFER;
    }
    s->urgent |= msg->awaited;
    if (s->writing || (s->coalesced && !msg->awaited))
        return LEAVE_PENDING; /* written with the next flight */
    if (should_coalesce_frame(conn, msg)) {
        s->coalesced = true;
        return COALESCE;
    }
    return begin_flight(conn) ? WRITE : LEAVE_PENDING;
}

/* Defers the write to the executor; writes now if the executor refuses it. */
static void defer_write(teffi_conn *conn)
{
    teffi_exec *exec = conn->conns->exec;
    if (!exec->ops->defer(exec, &conn->sender.write_deferred))
        write_deferred(&conn->sender.write_deferred);
}

teff_err teffi_sender_send_and_unlock(teffi_conn *conn, teffi_msg *msg, size_t room,
                                      size_t body_len)
{
    bool kept = false;
    teff_err err = append_message(conn, msg, room, body_len, &kept);
    update_budget(conn);
    next_step step = err ? LEAVE_PENDING : choose_step_and_prepare_write(conn, msg);
    if (step != LEAVE_PENDING)
        teffi_conn_ref(conn); /* held by the write, now or later */
    pthread_mutex_unlock(&conn->lock);
    if (err)
        return err;
    if (step == WRITE)
        write_flight(conn);
    else if (step == DEFER)
        defer_write(conn);
    else if (step == COALESCE)
        schedule_coalesced_write(conn);
    if (!kept)
        teffi_msg_free(msg);
    return TEFF_OK;
}

teff_err teffi_sender_send(teffi_conn *conn, teffi_msg *msg)
{
    size_t room, body_len;
    teff_err err =
        teffi_frame_compute_size_bound(msg, conn->conns->frame_max_bytes, &room, &body_len);
    if (err)
        return err;
    pthread_mutex_lock(&conn->lock);
    return teffi_sender_send_and_unlock(conn, msg, room, body_len);
}

/* ---- the end of the handshake ---- */

/* conn->lock held. Moves the oldest unopened message to the pending frames. Drops it instead if its
 * deadline has passed (its call has timed out), or if its size is over the limit.
 * out:  false: no memory; the message stays in s->unopened. */
static bool append_or_drop_oldest_unopened(teffi_conn *conn)
{
    conn_sender *s = &conn->sender;
    bool kept = false;
    size_t room = 0, body_len;
    teffi_msg *msg = teffi_container(s->unopened.head, teffi_msg, link);
    bool late = msg->deadline_ns && teffi_conns_now(conn->conns) >= msg->deadline_ns;
    teff_err err =
        teffi_frame_compute_size_bound(msg, conn->conns->frame_max_bytes, &room, &body_len);
    if (!late && !err && !append_frame(conn, msg, room, body_len, &kept))
        return false;
    (void)teffi_queue_pop(&s->unopened);
    s->unopened_bytes -= room;
    if (!kept)
        teffi_msg_free(msg);
    return true;
}

/* conn->lock held. Appends the unopened messages, and after the last one the goodbyes. If memory
 * runs out, the other messages stay unopened, and the connection closes after its pending frames
 * are written. */
static void append_unopened_and_goodbyes(teffi_conn *conn)
{
    conn_sender *s = &conn->sender;
    while (s->unopened.count && append_or_drop_oldest_unopened(conn))
        ;
    for (uint8_t kind = TEFFI_FRAME_BYE; kind <= TEFFI_FRAME_BYE_ACK && !s->unopened.count; kind++)
        if (s->goodbyes & 1u << kind)
            append_control(s, kind, NULL, 0);
    if (s->unopened.count && s->closing == SENDER_STAYS)
        s->closing = SENDER_LINGERS; /* without these messages the connection is useless */
}

void teffi_sender_open(teffi_conn *conn)
{
    pthread_mutex_lock(&conn->lock);
    append_unopened_and_goodbyes(conn);
    conn->sender.open = true;
    update_budget(conn);
    teffi_conn_ref(conn);
    unlock_and_write_pending(conn);
}

teffi_queue teffi_sender_close_and_take_unopened(teffi_conn *conn)
{
    conn_sender *s = &conn->sender;
    pthread_mutex_lock(&conn->lock);
    teffi_queue unopened = s->unopened;
    s->unopened = (teffi_queue){0};
    s->unopened_bytes = 0;
    s->closing = SENDER_CLOSED;
    update_budget(conn);
    pthread_mutex_unlock(&conn->lock);
    return unopened;
}

void teffi_sender_close_and_move_unopened(teffi_conn *from, teffi_conn *to)
{
    conn_sender *f = &from->sender, *t = &to->sender;
    pthread_mutex_lock(&from->lock);
    teffi_queue unopened = f->unopened;
    size_t bytes = f->unopened_bytes;
    bool finished = f->finished;
    uint32_t goodbyes = f->goodbyes;
    f->unopened = (teffi_queue){0};
    f->unopened_bytes = 0;
    f->closing = SENDER_CLOSED;
    f->finished = true;
    update_budget(from);
    pthread_mutex_unlock(&from->lock);
    pthread_mutex_lock(&to->lock);
    t->unopened = unopened;
    t->unopened_bytes = bytes;
    t->finished = finished;
    t->goodbyes |= goodbyes;
    update_budget(to);
    pthread_mutex_unlock(&to->lock);
}
