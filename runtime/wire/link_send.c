/* link_send.c - frames into a connection's buffer, and the buffer onto the stream: at once when no
 * write is in flight, else by the end of the one that is. So a busy link writes many frames at a
 * time and an idle one does not wait.
 * Way:     net send -> [fill] -swap-> [fly] -> nng stream
 * Threads: fill under conn->lock; fly belongs to whoever set sending. */
#include "wire/link.h"

#include <stdlib.h>
#include <string.h>

static bool reserve(out_buffer *buffer, size_t more)
{
    size_t need = buffer->len + more;
    size_t cap = buffer->cap ? buffer->cap : 1024;
    if (need <= buffer->cap)
        return true;
    while (cap < need)
        cap *= 2;
    uint8_t *data = realloc(buffer->data, cap);
    if (!data)
        return false;
    buffer->data = data;
    buffer->cap = cap;
    return true;
}

/* Give back what one burst needed. */
static void shrink(out_buffer *buffer)
{
    buffer->len = 0;
    if (buffer->cap <= 2 * LINK_WRITE_MAX)
        return;
    free(buffer->data);
    *buffer = (out_buffer){0};
}

static void swap(out_buffer *a, out_buffer *b)
{
    out_buffer t = *a;
    *a = *b;
    *b = t;
}

/* The flight is over, whole or torn. Takes over its reference. */
static void land(teffi_conn *conn, bool torn)
{
    pthread_mutex_lock(&conn->lock);
    if (!torn)
        shrink(&conn->fly);
    conn->sending = conn->torn = torn; /* what flew may have arrived in part */
    conn->sending_since_ns = 0;
    bool end = conn->ending;
    pthread_mutex_unlock(&conn->lock);
    if (torn)
        teffi_link_conn_kill(conn);
    else
        teffi_link_send_flush(conn);
    if (end)
        teffi_link_conn_end(conn);
    teffi_link_conn_unref(conn);
}

/* Takes over the flight's reference. */
static void write_some(teffi_conn *conn)
{
    size_t n = conn->fly.len - conn->fly_at;
    nng_iov iov = {conn->fly.data + conn->fly_at, n < LINK_WRITE_MAX ? n : LINK_WRITE_MAX};
    conn->sending_since_ns = teffi_link_now(conn->owner);
    nng_aio_set_iov(conn->send_aio, 1, &iov);
    if (!teffi_link_conn_submit(conn, &conn->write_gate, nng_stream_send, conn->send_aio))
        land(conn, true); /* shut: this was the last flight */
}

/* Lock held. out: true: fly holds something and is the caller's to write. */
static bool take_off(teffi_conn *conn)
{
    if (conn->sending || conn->closed || !conn->stream)
        return false;
    if (conn->control.len)
        swap(&conn->control, &conn->fly);
    else if (conn->open && conn->fill.len)
        swap(&conn->fill, &conn->fly);
    else
        return false;
    conn->fly_at = 0;
    conn->sending = true;
    return true;
}

void teffi_link_send_flush(teffi_conn *conn)
{
    pthread_mutex_lock(&conn->lock);
    bool fly = take_off(conn);
    bool over = conn->linger && !conn->sending && !conn->closed;
    pthread_mutex_unlock(&conn->lock);
    if (fly) {
        teffi_link_conn_ref(conn); /* the flight's */
        write_some(conn);
    } else if (over) {
        teffi_link_conn_kill(conn);
    }
}

void teffi_link_send_cb(void *arg)
{
    teffi_conn *conn = arg;
    if (nng_aio_result(conn->send_aio) != 0) {
        land(conn, true);
        return;
    }
    size_t n = nng_aio_count(conn->send_aio);
    conn->fly_at += n;
    conn->wrote_ns = conn->sending_since_ns;
    teffi_link_count(conn->owner, LINK_WRITES, 1);
    teffi_link_count(conn->owner, LINK_BYTES_OUT, n);
    if (conn->fly_at < conn->fly.len) {
        write_some(conn);
        return;
    }
    land(conn, false);
}

static void put_control(teffi_conn *conn, out_buffer *buffer, uint8_t kind, const uint8_t *payload,
                        size_t len)
{
    size_t size = TEFFI_FRAME_HEAD + len;
    if (conn->closed)
        return;
    if (!reserve(buffer, size)) {
        conn->linger = true; /* without memory for the frame, the connection is of no use */
        return;
    }
    teffi_frame_control(kind, payload, len, buffer->data + buffer->len);
    buffer->len += size;
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
    out_buffer fill;
    pthread_mutex_lock(&from->lock);
    fill = from->fill;
    bool finished = from->finished;
    from->fill = (out_buffer){0};
    from->closed = from->finished = true;
    pthread_mutex_unlock(&from->lock);
    pthread_mutex_lock(&to->lock);
    swap(&fill, &to->fill); /* to is not open: it holds nothing */
    to->finished = finished;
    pthread_mutex_unlock(&to->lock);
    free(fill.data);
}

/* Lock held. Answers get twice the room: shedding them would waste the work that made them. */
static bool has_room(const teffi_conn *conn, size_t size, bool answer)
{
    size_t waiting = conn->fill.len + conn->fly.len;
    size_t max = conn->owner->queue_max_bytes * (answer ? (size_t)2 : 1);
    return waiting == 0 || (waiting < max && size <= max - waiting);
}

static teff_err append(teffi_conn *conn, const teffi_msg *msg, size_t size, size_t body_len,
                       uint64_t now_ns)
{
    if (conn->finished)
        return TEFF_E_CLOSED;
    if (conn->closed)
        return TEFF_E_UNREACHABLE;
    if (!has_room(conn, size, msg->item.kind == TEFFI_MSG_RESPONSE))
        return TEFF_E_OVERLOADED;
    if (!reserve(&conn->fill, size))
        return TEFF_E_NOMEM;
    teffi_frame_encode(msg, body_len, now_ns, conn->fill.data + conn->fill.len);
    conn->fill.len += size;
    return TEFF_OK;
}

teff_err teffi_link_send_msg(teffi_conn *conn, teffi_msg *msg)
{
    teffi_link *link = conn->owner;
    size_t size, body_len;
    teff_err err = teffi_frame_size(msg, link->frame_max_bytes, &size, &body_len);
    if (err)
        return err;
    uint64_t now_ns = msg->deadline_ns ? teffi_link_now(link) : 0;
    pthread_mutex_lock(&conn->lock);
    err = append(conn, msg, size, body_len, now_ns);
    pthread_mutex_unlock(&conn->lock);
    if (err)
        return err;
    teffi_link_count(link, LINK_FRAMES_OUT, 1);
    teffi_link_send_flush(conn);
    teffi_msg_free(msg);
    return TEFF_OK;
}

/* Lock held. The connection that carries messages to a node, made when there is none. */
static teff_err way_to(teffi_link *link, teffi_node_id to, teffi_conn **conn, bool *dial)
{
    link_node *node = teffi_link_node_find(link, to);
    bool client = to.silo & TEFFI_CLIENT_BIT;
    *dial = false;
    if (link->leaving || !node || node->bye_heard || node->bye_wanted)
        return TEFF_E_CLOSED;
    *conn = client ? node->in : node->out;
    if (*conn)
        return client || node->known ? TEFF_OK : TEFF_E_CLOSED;
    if (client || !node->known)
        return TEFF_E_CLOSED;
    if (node->dial_failed)
        return TEFF_E_UNREACHABLE;
    *conn = teffi_link_dial_node(node);
    *dial = *conn != NULL;
    return *conn ? TEFF_OK : TEFF_E_NOMEM;
}

teff_err teffi_link_send(teffi_net *net, teffi_node_id to, teffi_msg *msg)
{
    teffi_link *link = (teffi_link *)net;
    teffi_conn *conn;
    bool dial;
    pthread_mutex_lock(&link->lock);
    teff_err err = way_to(link, to, &conn, &dial);
    if (!err)
        teffi_link_conn_ref(conn);
    pthread_mutex_unlock(&link->lock);
    if (err)
        return err;
    err = teffi_link_send_msg(conn, msg);
    if (dial)
        teffi_link_dial_start(conn);
    teffi_link_conn_unref(conn);
    return err;
}
