/* link_send.c - frames into a connection's buffer, and the buffer onto the stream: at once when no
 * write is in flight, else by the end of the one that is. A worker puts that off to the end of its
 * pass, so a busy link writes many frames at a time; a worker with nothing else to do writes at
 * once.
 * Way:     net send -> [fill] -swap-> [fly] -> nng stream; both: outgoing.h
 * Threads: fill under conn->lock; fly belongs to whoever set sending. */
#include "wire/link.h"

static void swap(teffi_out *a, teffi_out *b)
{
    teffi_out t = *a;
    *a = *b;
    *b = t;
}

/* Lock held. out: true: fly holds something and is the caller's to write. */
static bool take_off(teffi_conn *conn)
{
    if (conn->sending || conn->closed || !conn->stream)
        return false;
    if (conn->control.total) {
        swap(&conn->control, &conn->fly);
    } else if (conn->open && conn->fill.total) {
        swap(&conn->fill, &conn->fly);
        conn->urgent = false;
        teffi_link_count(conn->owner, LINK_FRAMES_OUT, conn->fill_frames);
        conn->fill_frames = 0;
    } else {
        return false;
    }
    conn->fly_at = (teffi_out_at){0};
    conn->sending = true;
    return true;
}

/* Lock held. All is written, and that was to be the end. */
static bool is_over(const teffi_conn *conn)
{
    return conn->linger && !conn->sending && !conn->closed;
}

/* Lock held. The end of a flight: what a pass or a burst gathers meanwhile goes at its end, many
 * frames at a time. */
static bool take_off_again(teffi_conn *conn)
{
    bool gathers =
        (conn->put_off || conn->in_burst) && !conn->urgent && !conn->linger && !conn->finished;
    if (gathers && !conn->control.total && conn->fill.total < LINK_FLUSH_BYTES)
        return false;
    return take_off(conn);
}

/* The flight is over, whole or torn. out: true: another one begins, the caller's. Else its
 * reference is gone. */
static bool land(teffi_conn *conn, bool torn)
{
    pthread_mutex_lock(&conn->lock);
    if (!torn)
        teffi_out_empty(&conn->fly, (size_t)2 * LINK_WRITE_MAX);
    conn->sending = conn->torn = torn; /* what flew may have arrived in part */
    conn->sending_since_ns = 0;
    bool next = take_off_again(conn);
    bool over = torn || is_over(conn);
    bool end = conn->ending;
    pthread_mutex_unlock(&conn->lock);
    if (next)
        return true;
    if (over)
        teffi_link_conn_kill(conn);
    if (end)
        teffi_link_conn_end(conn);
    teffi_link_conn_unref(conn);
    return false;
}

/* out: how much. */
static size_t offer(teffi_conn *conn, nng_aio *aio)
{
    teffi_out_piece pieces[TEFFI_OUT_PIECES];
    nng_iov iov[TEFFI_OUT_PIECES];
    unsigned n;
    size_t bytes = teffi_out_pieces(&conn->fly, &conn->fly_at, LINK_WRITE_MAX, pieces, &n);
    for (unsigned i = 0; i < n; i++)
        iov[i] = (nng_iov){(uint8_t *)(uintptr_t)pieces[i].bytes, pieces[i].len};
    nng_aio_set_iov(aio, n, iov);
    return bytes;
}

static void count_written(teffi_conn *conn, size_t n)
{
    teffi_out_written(&conn->fly, &conn->fly_at, n);
    teffi_link_count(conn->owner, LINK_WRITES, 1);
    teffi_link_count(conn->owner, LINK_BYTES_OUT, n);
}

/* Takes over the flight's reference. */
static void write_some(teffi_conn *conn)
{
    conn->sending_since_ns = teffi_link_now(conn->owner);
    (void)offer(conn, conn->send_aio);
    if (!teffi_link_conn_submit(conn, &conn->write_gate, nng_stream_send, conn->send_aio))
        (void)land(conn, true); /* shut: this was the last flight */
}

/* out: false: something is left (or wrong), for write_some. */
static bool write_now(teffi_conn *conn)
{
    nng_aio *aio = conn->now_aio;
    /* Before it: the peer may have it long before this thread is told, and counts from there. */
    uint64_t since_ns = teffi_link_now(conn->owner);
    while (aio && conn->fly_at.total < conn->fly.total) {
        size_t want = offer(conn, aio);
        if (!teffi_link_conn_try(conn, &conn->write_gate, nng_stream_send, aio))
            return false;
        count_written(conn, nng_aio_count(aio));
        if (nng_aio_count(aio) < want)
            return false; /* the socket is full */
    }
    if (aio)
        conn->wrote_ns = since_ns;
    return aio != NULL;
}

/* Takes over the flight's reference. */
static void fly(teffi_conn *conn)
{
    for (unsigned i = 0; i < LINK_WRITES_INLINE && write_now(conn); i++)
        if (!land(conn, false))
            return;
    if (teffi_out_own(&conn->fly, &conn->fly_at)) /* the lender goes on */
        write_some(conn);
    else
        (void)land(conn, true);
}

void teffi_link_send_flush(teffi_conn *conn)
{
    pthread_mutex_lock(&conn->lock);
    bool mine = take_off(conn);
    bool over = is_over(conn);
    pthread_mutex_unlock(&conn->lock);
    if (mine) {
        teffi_link_conn_ref(conn); /* the flight's */
        fly(conn);
    } else if (over) {
        teffi_link_conn_kill(conn);
    }
}

void teffi_link_send_cb(void *arg)
{
    teffi_conn *conn = arg;
    if (nng_aio_result(conn->send_aio) != 0) {
        (void)land(conn, true);
        return;
    }
    conn->wrote_ns = conn->sending_since_ns;
    count_written(conn, nng_aio_count(conn->send_aio));
    if (conn->fly_at.total < conn->fly.total)
        write_some(conn);
    else if (land(conn, false))
        fly(conn);
}

/* What was gathered goes. in: gathers, the flag of later's or burst's, and its reference. */
static void end_gathering(teffi_conn *conn, bool *gathers)
{
    pthread_mutex_lock(&conn->lock);
    *gathers = false;
    bool mine = take_off(conn);
    pthread_mutex_unlock(&conn->lock);
    if (mine)
        fly(conn);
    else
        teffi_link_conn_unref(conn);
}

void teffi_link_send_later(teffi_later *later)
{
    teffi_conn *conn = teffi_container(later, teffi_conn, later);
    end_gathering(conn, &conn->put_off);
}

void teffi_link_send_burst(teffi_later *later)
{
    teffi_conn *conn = teffi_container(later, teffi_conn, burst);
    end_gathering(conn, &conn->in_burst);
}

static void put_control(teffi_conn *conn, teffi_out *out, uint8_t kind, const uint8_t *payload,
                        size_t len)
{
    size_t size = TEFFI_FRAME_HEAD + len;
    if (conn->closed)
        return;
    if (!teffi_out_reserve(out, size)) {
        conn->linger = true; /* without memory for the frame, the connection is of no use */
        return;
    }
    teffi_frame_control(kind, payload, len, out->data + out->len);
    teffi_out_add(out, size);
}

void teffi_link_send_control(teffi_conn *conn, uint8_t kind, const uint8_t *payload, size_t len)
{
    pthread_mutex_lock(&conn->lock);
    put_control(conn, &conn->control, kind, payload, len);
    pthread_mutex_unlock(&conn->lock);
    teffi_link_send_flush(conn);
}

void teffi_link_send_finish(teffi_conn *conn, uint8_t kind)
{
    pthread_mutex_lock(&conn->lock);
    put_control(conn, &conn->fill, kind, NULL, 0);
    conn->finished = true;
    pthread_mutex_unlock(&conn->lock);
}

void teffi_link_send_open(teffi_conn *conn)
{
    pthread_mutex_lock(&conn->lock);
    conn->open = true;
    pthread_mutex_unlock(&conn->lock);
    teffi_link_send_flush(conn);
}

void teffi_link_send_linger(teffi_conn *conn)
{
    pthread_mutex_lock(&conn->lock);
    conn->linger = true;
    pthread_mutex_unlock(&conn->lock);
    teffi_link_send_flush(conn);
}

void teffi_link_send_steal(teffi_conn *from, teffi_conn *to)
{
    pthread_mutex_lock(&from->lock);
    teffi_out fill = from->fill;
    uint64_t frames = from->fill_frames;
    bool finished = from->finished;
    from->fill = (teffi_out){0};
    from->fill_frames = 0;
    from->closed = from->finished = true;
    pthread_mutex_unlock(&from->lock);
    pthread_mutex_lock(&to->lock);
    swap(&fill, &to->fill); /* to is not open: it holds nothing */
    to->fill_frames = frames;
    to->finished = finished;
    pthread_mutex_unlock(&to->lock);
    teffi_out_fini(&fill);
}

/* Lock held. Answers get twice the room: shedding them would waste the work that made them. */
static bool has_room(const teffi_conn *conn, size_t size, bool answer)
{
    size_t waiting = conn->fill.total + conn->fly.total;
    size_t max = conn->owner->queue_max_bytes * (answer ? (size_t)2 : 1);
    return waiting == 0 || (waiting < max && size <= max - waiting);
}

/* Lock held. In one pass, or burst, the clock is read once: time left is told in milliseconds. */
static uint64_t now_for(teffi_conn *conn, const teffi_msg *msg)
{
    if (!msg->deadline_ns)
        return 0;
    if ((!conn->put_off && !conn->in_burst) || !conn->filled_ns)
        conn->filled_ns = teffi_link_now(conn->owner);
    return conn->filled_ns;
}

_Static_assert((int)LINK_LARGE >= (int)LINK_FLUSH_BYTES, "a large frame is written at once");

/* Lock held. Will a large frame be written by this thread, as far as the socket takes it? Then what
 * is only lent until send returns need not be copied before. */
static bool goes_at_once(const teffi_conn *conn)
{
    return conn->now_aio && conn->stream && conn->open && !conn->sending && !conn->control.total;
}

/* Lock held. A large part of it stays where it lies, or gets memory of its own. out: kept: it stays
 * there, and then so does msg. */
static bool put_frame(teffi_conn *conn, teffi_msg *msg, size_t size, size_t body_len, bool *kept)
{
    teffi_out *out = &conn->fill;
    teffi_hole hole;
    bool around = size >= LINK_LARGE && teffi_msg_hole(msg, LINK_LARGE, &hole);
    size_t rest = around ? size - hole.len : size;
    if (!teffi_out_reserve(out, rest))
        return false;
    uint8_t *to = out->data + out->len;
    uint64_t now_ns = now_for(conn, msg);
    if (around) {
        size_t before = teffi_frame_encode_around(msg, body_len, &hole, now_ns, to);
        *kept = !msg->borrows;
        teffi_out_cut_in(out, out->len + before, hole.bytes, hole.len, *kept ? msg : NULL);
        if (msg->borrows && !goes_at_once(conn) && !teffi_out_own_newest(out))
            return false;
    } else {
        teffi_frame_encode(msg, body_len, now_ns, to);
    }
    teffi_out_add(out, rest);
    conn->fill_frames++;
    return true;
}

static teff_err append(teffi_conn *conn, teffi_msg *msg, size_t size, size_t body_len, bool *kept)
{
    if (conn->finished)
        return TEFF_E_CLOSED;
    if (conn->closed)
        return TEFF_E_UNREACHABLE;
    if (!has_room(conn, size, msg->item.kind == TEFFI_MSG_RESPONSE))
        return TEFF_E_OVERLOADED;
    return put_frame(conn, msg, size, body_len, kept) ? TEFF_OK : TEFF_E_NOMEM;
}

typedef enum next_step { LEAVE_IT, PUT_OFF, GATHER, WRITE } next_step;

/* A turn without a slot, or in a blocking region: it has no pass, and does not flush. */
static bool in_turn(const teffi_conn *conn)
{
    teffi_exec *exec = conn->owner->exec;
    return exec && exec->ops->current && exec->ops->current(exec);
}

/* Lock held. A thread outside: right behind another write there may be more. */
static bool more_follow(teffi_conn *conn, const teffi_msg *msg)
{
    if (msg->awaited || in_turn(conn))
        return false;
    if (!msg->deadline_ns) /* else it was just read */
        conn->filled_ns = teffi_link_now(conn->owner);
    return conn->filled_ns < conn->wrote_ns + LINK_BURST_NS;
}

/* Lock held; a frame was appended. */
static next_step next(teffi_conn *conn, const teffi_msg *msg)
{
    if (!conn->open)
        return LEAVE_IT;
    if (conn->fill.total >= LINK_FLUSH_BYTES)
        return take_off(conn) ? WRITE : LEAVE_IT;
    if (conn->put_off)
        return LEAVE_IT;
    if (teffi_link_on_worker(conn->owner)) {
        conn->put_off = true;
        conn->filled_ns = 0;
        return PUT_OFF;
    }
    conn->urgent |= msg->awaited;
    if (conn->sending || (conn->in_burst && !msg->awaited))
        return LEAVE_IT; /* it goes with the next flight */
    if (more_follow(conn, msg)) {
        conn->in_burst = true;
        return GATHER;
    }
    return take_off(conn) ? WRITE : LEAVE_IT;
}

static void put_off(teffi_conn *conn)
{
    teffi_exec *exec = conn->owner->exec;
    if (!exec->ops->put_off(exec, &conn->later))
        teffi_link_send_later(&conn->later);
}

teff_err teffi_link_send_locked(teffi_conn *conn, teffi_msg *msg, size_t size, size_t body_len)
{
    bool kept = false;
    teff_err err = append(conn, msg, size, body_len, &kept);
    next_step step = err ? LEAVE_IT : next(conn, msg);
    if (step != LEAVE_IT)
        teffi_link_conn_ref(conn); /* the flight's, later's, or burst's */
    pthread_mutex_unlock(&conn->lock);
    if (err)
        return err;
    if (step == WRITE)
        fly(conn);
    else if (step == PUT_OFF)
        put_off(conn);
    else if (step == GATHER)
        teffi_link_burst_put(conn);
    if (!kept)
        teffi_msg_free(msg);
    return TEFF_OK;
}

teff_err teffi_link_send_msg(teffi_conn *conn, teffi_msg *msg)
{
    size_t size, body_len;
    teff_err err = teffi_frame_size(msg, conn->owner->frame_max_bytes, &size, &body_len);
    if (err)
        return err;
    pthread_mutex_lock(&conn->lock);
    return teffi_link_send_locked(conn, msg, size, body_len);
}
