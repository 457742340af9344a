/* link_recv.c - bytes from the stream to frames to batches of messages. One reader a connection:
 * it receives, takes apart what came, hands a batch on, and receives again only then. So a slow
 * owner slows the peer down through the socket.
 * Way:     nng stream -> [recv] -> frame -> link_events
 * Threads: the reader is the receive callback, as a visiting worker if one sleeps; or a client's
 *          thread that waits (link_reader.c); or a worker, if much has come; then whoever tells the
 *          batch. */
#include "wire/link.h"

#include <stdio.h>

typedef enum progress { NEED_MORE, BATCH_FULL, BROKEN } progress;

static void offer(teffi_conn *conn, nng_aio *aio)
{
    uint8_t *at;
    conn->offered = teffi_in_room(&conn->in, &at);
    nng_iov iov = {at, conn->offered};
    nng_aio_set_iov(aio, 1, &iov);
}

static void count_read(teffi_conn *conn, nng_aio *aio)
{
    conn->got = nng_aio_count(aio);
    conn->filled = conn->got == conn->offered;
    teffi_in_came(&conn->in, conn->got);
    teffi_link_count(conn->owner, LINK_BYTES_IN, conn->got);
}

/* Behind a large frame another one may be there, though the read ended with the first: mostly, if
 * it was so the last time. */
static bool may_follow(teffi_conn *conn)
{
    bool large = conn->large;
    conn->large = false;
    return large && (!conn->missed || ++conn->passed % LINK_GUESS_EVERY == 0);
}

/* out: something was there. */
static bool take(teffi_conn *conn)
{
    offer(conn, conn->take_aio);
    if (!teffi_link_conn_try(conn, &conn->read_gate, nng_stream_recv, conn->take_aio))
        return false;
    count_read(conn, conn->take_aio);
    return true;
}

static bool receive_now(teffi_conn *conn)
{
    bool guess = may_follow(conn) && !conn->filled;
    if (!conn->take_aio || conn->inlined == LINK_READS_INLINE || !(conn->filled || guess))
        return false;
    conn->filled = false;
    bool there = take(conn);
    if (guess)
        conn->missed = !there;
    conn->inlined += there;
    return there;
}

/* out: false: the connection is shut, and no callback comes. */
static bool receive(teffi_conn *conn)
{
    conn->inlined = 0;
    conn->filled = false;
    conn->waiting_since_ns = teffi_link_now(conn->owner);
    offer(conn, conn->recv_aio);
    return teffi_link_conn_submit(conn, &conn->read_gate, nng_stream_recv, conn->recv_aio);
}

/* Much came, so more is on its way: when what came is done with, a worker looks for it at the end
 * of its pass, a client's thread as it waits next, and finds it there mostly. in: a reference,
 * which is later's then. out: false: not so, or another thread. */
static bool receive_later(teffi_conn *conn)
{
    teffi_exec *exec = conn->owner->exec;
    if (!conn->take_aio || conn->got <= LINK_READ_HERE || conn->state != CONN_UP)
        return false;
    if (teffi_link_on_worker(conn->owner))
        return exec->ops->put_off(exec, &conn->next_read);
    return teffi_link_reader_later(conn);
}

static bool malformed(teffi_conn *conn, const char *what)
{
    char remote[64];
    teffi_link_address_remote(conn->stream, remote, sizeof remote);
    teffi_link_note(conn->owner, conn->state == CONN_UP ? LINK_MALFORMED : LINK_GARBAGE,
                    "%s: %s, closed", remote, what);
    teffi_link_conn_why(conn, TEFF_E_UNREACHABLE, what);
    return false;
}

static void answer_refused(teffi_conn *conn, const teffi_msg *call)
{
    teffi_msg *msg = teffi_msg_new(TEFFI_MSG_RESPONSE);
    if (!msg)
        return;
    msg->err = TEFF_E_REFUSED;
    msg->text = "clients may not call system targets";
    msg->src = call->via;
    msg->to.node = call->src;
    msg->call_slot = call->call_slot;
    msg->call_generation = call->call_generation;
    if (teffi_link_send_msg(conn, msg))
        teffi_msg_free(msg);
}

/* What a client says of itself is not believed. out: false: the message was dropped. */
static bool admit_client(teffi_conn *conn, teffi_msg *msg)
{
    msg->src = conn->peer.node;
    msg->flags &= (uint16_t)~TEFFI_MSG_PLACED;
    /* relaxed: it stands before the first message */
    uint64_t self = atomic_load_explicit(&conn->owner->self_node, memory_order_relaxed);
    msg->via = teffi_node_of_word(self);
    if (msg->to.slot == TEFFI_SLOT_GRAIN || msg->to.slot >= TEFFI_SLOT_SYSTEM_END)
        return true;
    teffi_link_note(conn->owner, LINK_REFUSED_SYSTEM,
                    "client %08x: message to system slot %u refused", conn->peer.node.silo,
                    msg->to.slot);
    if (msg->item.kind == TEFFI_MSG_REQUEST)
        answer_refused(conn, msg);
    teffi_msg_free(msg);
    return false;
}

static bool take_message(teffi_conn *conn, const teffi_frame *frame, uint64_t now_ns)
{
    teffi_msg *msg;
    if (conn->dialled && conn->owner->self.role == TEFFI_ROLE_SILO)
        return malformed(conn, "a message against the direction");
    teff_err err = teffi_in_take(&conn->in, frame, now_ns, &msg);
    if (err)
        return malformed(conn, err == TEFF_E_NOMEM ? "no memory for a message" : "bad message");
    conn->frames++;
    conn->large |= msg->raw_len >= LINK_LARGE;
    if (conn->peer.role == TEFFI_ROLE_SILO || admit_client(conn, msg))
        teffi_queue_push(&conn->batch, &msg->link);
    return true;
}

static bool take_control(teffi_conn *conn, const teffi_frame *frame)
{
    const uint8_t *payload;
    size_t len;
    if (!teffi_frame_payload(frame, &payload, &len) || len)
        return malformed(conn, "bad control frame");
    switch (frame->kind) {
    case TEFFI_FRAME_HEARTBEAT:
        return true;
    case TEFFI_FRAME_BYE:
        teffi_link_bye_heard(conn);
        return true;
    case TEFFI_FRAME_BYE_ACK:
        conn->batch_ack = true;
        return true;
    default:
        return malformed(conn, "unknown frame kind");
    }
}

static bool take_frame(teffi_conn *conn, const teffi_frame *frame, uint64_t now_ns)
{
    bool up = conn->state == CONN_UP && !conn->refused, go_on = true;
    if (up && frame->kind <= TEFFI_MSG_RESPONSE)
        return take_message(conn, frame, now_ns);
    if (up)
        go_on = take_control(conn, frame);
    else if (!conn->refused)
        go_on = teffi_link_greet_frame(conn, frame);
    teffi_in_skip(&conn->in);
    return go_on;
}

static bool bad_length(teffi_conn *conn, teff_err err)
{
    char remote[64];
    if (err != TEFF_E_TOO_LARGE || conn->state != CONN_UP)
        return malformed(conn, "bad frame length");
    teffi_link_address_remote(conn->stream, remote, sizeof remote);
    teffi_link_note(conn->owner, LINK_OVERSIZE, "%s: frame over %u bytes, closed", remote,
                    conn->owner->frame_max_bytes);
    teffi_link_conn_why(conn, TEFF_E_UNREACHABLE, "frame over the limit");
    return false;
}

/* out: taken: a frame was, at least. */
static progress take_frames(teffi_conn *conn, bool *taken)
{
    uint64_t now_ns = teffi_link_now(conn->owner);
    while (conn->batch.count < LINK_BATCH_MAX) {
        teffi_frame frame;
        bool whole;
        size_t max = conn->state == CONN_UP ? conn->owner->frame_max_bytes : TEFFI_HELLO_MAX;
        teff_err err = teffi_in_peek(&conn->in, max, &whole, &frame);
        if (err)
            return bad_length(conn, err), BROKEN;
        if (!whole)
            return NEED_MORE;
        if (!take_frame(conn, &frame, now_ns))
            return BROKEN;
        *taken = true;
    }
    return BATCH_FULL;
}

static progress parse(teffi_conn *conn)
{
    bool taken = false;
    progress p = take_frames(conn, &taken);
    teffi_link_count(conn->owner, LINK_FRAMES_IN, conn->frames);
    conn->frames = 0;
    if (teffi_in_left(&conn->in) == 0)
        conn->partial_since_ns = 0;
    else if (taken || conn->partial_since_ns == 0)
        conn->partial_since_ns = teffi_link_now(conn->owner);
    return p;
}

/* Hand the batch to the node's queue, in one step with the look at replaced: a newer connection's
 * up event must not come between. out: false: dropped. */
static bool post_batch(teffi_conn *conn)
{
    teffi_link *link = conn->owner;
    pthread_mutex_lock(&link->lock);
    bool post = !conn->replaced;
    if (post)
        teffi_link_event_post(conn->node, &conn->batch_event, EVENT_BATCH, conn);
    pthread_mutex_unlock(&link->lock);
    if (post)
        return true;
    for (teffi_qnode *q; (q = teffi_queue_pop(&conn->batch));)
        teffi_msg_free(teffi_container(q, teffi_msg, link));
    return false;
}

static progress digest(teffi_conn *conn)
{
    progress p = parse(conn);
    if (p == NEED_MORE && !teffi_in_fit(&conn->in, conn->got, conn->filled))
        return BROKEN;
    /* its rest is on the way */
    conn->filled |= p == NEED_MORE && teffi_in_left(&conn->in) > LINK_READ_HERE;
    return p;
}

/* Consumes one reference of conn: it becomes the batch's or the next receive's. */
static void dispose(teffi_conn *conn, progress p)
{
    for (;; p = digest(conn)) {
        if (conn->batch.count || conn->batch_ack) {
            conn->batch_last = p == BROKEN;
            if (post_batch(conn))
                return;
            p = BROKEN;
        }
        if (p == BROKEN || !receive_now(conn))
            break;
    }
    if (p != BROKEN && (receive_later(conn) || receive(conn)))
        return;
    teffi_link_conn_end(conn);
    teffi_link_conn_unref(conn);
}

/* The owner hears on this thread of what was posted; inside a drain, that goes on with it. */
static void go_on_here(void *arg)
{
    teffi_conn *conn = arg;
    progress p = digest(conn);
    link_node *node = conn->node; /* once disposed of, the next reader may set it */
    if (node)
        teffi_link_node_ref(node);
    dispose(conn, p);
    if (!node)
        return;
    teffi_link_event_drain(node);
    teffi_link_node_unref(node);
}

static void go_on(teffi_conn *conn)
{
    teffi_exec *exec = conn->owner->exec;
    if (exec && exec->ops->bring)
        exec->ops->bring(exec, go_on_here, conn);
    else
        go_on_here(conn);
}

void teffi_link_recv_go_on(teffi_conn *conn)
{
    go_on(conn);
}

void teffi_link_recv_later(teffi_later *later)
{
    teffi_conn *conn = teffi_container(later, teffi_conn, next_read);
    conn->inlined = 0;
    /* Not on the monitor's thread, which does this when its worker is busy for long, nor on the
     * ticker's. */
    if ((teffi_link_reader_here() || teffi_link_on_worker(conn->owner)) && take(conn)) {
        go_on(conn);
    } else if (!receive(conn)) {
        teffi_link_conn_end(conn);
        teffi_link_conn_unref(conn);
    }
}

/* ---- on a worker ---- */

static void read_item(teffi_group *group, teffi_item *item)
{
    teffi_conn *conn = teffi_container(item, teffi_conn, item);
    (void)group;
    go_on(conn);
}

static void describe(teffi_group *group, char *text, size_t size)
{
    (void)group;
    snprintf(text, size, "a reader of the link");
}

void teffi_link_recv_init(teffi_link *link)
{
    static const teffi_group_ops ops = {
        .handle = read_item, .describe = describe, .kind = TEFFI_CONTEXT_GROUP};
    for (unsigned i = 0; link->exec && i < LINK_READERS; i++)
        teffi_group_init(&link->readers[i], link->exec, &ops);
}

/* The rest of a large frame is still to come: nothing to be done yet. */
static bool has_frame(teffi_conn *conn)
{
    teffi_frame frame;
    bool whole;
    return teffi_in_peek(&conn->in, conn->owner->frame_max_bytes, &whole, &frame) || whole;
}

/* Much was read: workers take it apart, and what it makes READY is near the one that does. Under
 * the connection's lock, so that reclaim finds all that was handed over. out: false: go on here. */
static bool hand_over(teffi_conn *conn)
{
    teffi_link *link = conn->owner;
    if (!link->exec || conn->got <= LINK_READ_HERE)
        return false;
    pthread_mutex_lock(&conn->lock);
    bool over = !atomic_load_explicit(&link->direct, memory_order_relaxed);
    if (over)
        (void)teffi_group_push(conn->reader, &conn->item);
    pthread_mutex_unlock(&conn->lock);
    return over;
}

static void read_here(void *arg)
{
    go_on(arg);
}

/* While a worker sleeps this thread does its work: it takes apart what came, and runs what that
 * makes READY. By then the next read has begun, for another thread. out: false: go on here. */
static bool visit(teffi_conn *conn)
{
    teffi_exec *exec = conn->owner->exec;
    return exec && exec->ops->visit && exec->ops->visit(exec, read_here, conn);
}

void teffi_link_recv_reclaim(teffi_link *link)
{
    pthread_mutex_lock(&link->lock);
    /* relaxed: read under a lock that is taken here afterwards, or by a connection that is listed
     * later */
    atomic_store_explicit(&link->direct, true, memory_order_relaxed);
    for (teffi_conn *c = link->conns; c; c = c->next) {
        pthread_mutex_lock(&c->lock);
        pthread_mutex_unlock(&c->lock);
    }
    pthread_mutex_unlock(&link->lock);
    for (unsigned i = 0; link->exec && i < LINK_READERS; i++)
        for (teffi_item *item; (item = teffi_group_drain(&link->readers[i]));)
            read_item(&link->readers[i], item);
}

void teffi_link_recv_cb(void *arg)
{
    teffi_conn *conn = arg;
    int rv = nng_aio_result(conn->recv_aio);
    conn->waiting_since_ns = 0;
    if (rv != 0) {
        char text[TEFF_TEXT_MAX];
        snprintf(text, sizeof text, "%.256s: %s", conn->target,
                 conn->late ? "no answer in time" : nng_strerror(rv));
        teffi_link_conn_why(conn, TEFF_E_UNREACHABLE, text);
        teffi_link_conn_end(conn);
        teffi_link_conn_unref(conn);
        return;
    }
    count_read(conn, conn->recv_aio);
    /* Held until the callback is about to return: whoever frees the connection waits for that, and
     * must not wait for the turns that a visit runs. */
    teffi_link_conn_ref(conn);
    bool here = conn->state != CONN_UP || !has_frame(conn);
    if (here || !(teffi_link_reader_give(conn) || visit(conn) || hand_over(conn)))
        go_on(conn);
    teffi_link_conn_unref(conn);
}
