/* receiver.c - reads bytes into the buffer and takes frames from it. */
#include "link/conn/receiver.h"

#include "link/conn/connection.h"

enum {
    READS_INLINE = 8,          /* most reads in a row without a callback */
    BYTES_INLINE = 256 * 1024, /* bytes after which no such read follows */
    LOOK_EVERY = 8,            /* hints of large frames per extra read, once one found nothing */
    PARTIAL_STEP = 64 * 1024,  /* bytes of a large frame that count as progress */
    BATCH_MAX = 512,           /* most messages of a batch */
};

void teffi_receiver_fini(teffi_conn *conn)
{
    teffi_read_buffer_fini(&conn->receiver.buffer);
    /* The buffer is freed, so this call sets spare_bytes to 0. */
    teffi_reserve_charge_or_trim_spare(conn);
    teffi_reserve_release(conn);
}

/* ---- reads ---- */

/* out: where the next bytes go; r->offered: how many fit. */
static uint8_t *find_room_for_next_read(conn_receiver *r)
{
    uint8_t *at;
    r->offered = teffi_read_buffer_room(&r->buffer, &at);
    return at;
}

void teffi_receiver_add_bytes(teffi_conn *conn, size_t n)
{
    conn_receiver *r = &conn->receiver;
    r->got = n;
    r->in_row += n;
    r->filled = r->got == r->offered;
    r->buffer.len += r->got;
    teffi_counters_add(&conn->conns->counters, LINK_BYTES_IN, r->got);
}

/* Reads without blocking. out: true: bytes were read. */
static bool read_without_blocking(teffi_conn *conn)
{
    uint8_t *at = find_room_for_next_read(&conn->receiver);
    size_t n = conn->stream->ops->receive_now(conn->stream, at, conn->receiver.offered);
    if (n)
        teffi_receiver_add_bytes(conn, n);
    return n != 0;
}

/* Is an extra read worth a try? An extra read is a read that is tried although the last read did
 * not fill its room. It is worth a try if a large frame has come (r->large), because the next large
 * frame may have come as well. But after an extra read that found nothing, the next one is worth a
 * try only at every LOOK_EVERY-th call that finds r->large set. Clears r->large. */
static bool decide_extra_read_and_clear_large(conn_receiver *r)
{
    bool large = r->large;
    r->large = false;
    return large && (!r->none_followed || ++r->skipped % LOOK_EVERY == 0);
}

bool teffi_receiver_try_read_inline(teffi_conn *conn)
{
    conn_receiver *r = &conn->receiver;
    bool extra = decide_extra_read_and_clear_large(r) && !r->filled;
    if (!conn->stream->tries || r->inlined == READS_INLINE || r->in_row >= BYTES_INLINE ||
        !(r->filled || extra))
        return false;
    r->filled = false;
    bool found = read_without_blocking(conn);
    if (extra)
        r->none_followed = !found;
    r->inlined += found;
    return found;
}

bool teffi_receiver_run_deferred_read(teffi_conn *conn, bool here)
{
    conn->receiver.inlined = conn->receiver.in_row = 0;
    return here && read_without_blocking(conn);
}

bool teffi_receiver_begin_receive(teffi_conn *conn)
{
    conn_receiver *r = &conn->receiver;
    r->inlined = r->in_row = 0;
    r->filled = false;
    conn->liveness.receiving_since_ns = teffi_conns_now(conn->conns);
    uint8_t *at = find_room_for_next_read(r);
    return conn->stream->ops->receive(conn->stream, at, r->offered);
}

/* Defers the next read if the last one has read more than LINK_READ_SHORT bytes. A worker defers it
 * until the worker has no other work; a client's reading thread defers it until a thread of the
 * client awaits a call.
 * out:  false: not deferred. */
static bool defer_read(teffi_conn *conn)
{
    conn_receiver *r = &conn->receiver;
    teffi_exec *exec = conn->conns->exec;
    if (!conn->stream->tries || r->got <= LINK_READ_SHORT || conn->state != CONN_UP)
        return false;
    if (teffi_conns_can_defer(conn->conns))
        return exec->ops->defer(exec, &r->next_read);
    return teffi_client_reader_defer_read(conn);
}

bool teffi_receiver_begin_or_defer_receive(teffi_conn *conn)
{
    return defer_read(conn) || teffi_receiver_begin_receive(conn);
}

/* ---- messages ---- */

bool teffi_receiver_report_violation(teffi_conn *conn, const char *what)
{
    link_counter which = conn->state == CONN_UP ? LINK_MALFORMED : LINK_GARBAGE;
    teffi_counters_add_one_and_log(&conn->conns->counters, which, "%s: %s, closed", conn->target,
                                   what);
    teffi_conn_record_end_cause(conn, TEFF_E_UNREACHABLE, what);
    return false;
}

teffi_admission teffi_admit_client_message(teffi_msg *msg, teffi_node_id client)
{
    msg->src = client;
    msg->flags &= (uint16_t)~TEFFI_MSG_PLACED;
    msg->hops = 0;
    if (msg->item.kind == TEFFI_MSG_RESPONSE || msg->transaction)
        return TEFFI_ADMIT_BROKEN;
    bool cancel = msg->to.slot == TEFFI_SLOT_CANCEL && msg->item.kind == TEFFI_MSG_ONEWAY;
    /* a bounce, or a request for a seal: a notification has a type, and clients send none */
    bool notice = msg->to.slot == TEFFI_SLOT_OBSERVER && !msg->type_id;
    /* method_id 0: a tick of a reminder, or the end of a transaction */
    bool call = msg->to.slot == TEFFI_SLOT_GRAIN && msg->method_id;
    return cancel || notice || call ? TEFFI_ADMITTED : TEFFI_ADMIT_REFUSED;
}

/* out: a response that refuses the request; NULL: no memory. */
static teffi_msg *make_refusal(const teffi_msg *request)
{
    teffi_msg *msg = teffi_msg_new(TEFFI_MSG_RESPONSE);
    if (!msg)
        return NULL;
    msg->err = TEFF_E_REFUSED;
    msg->text = "clients may call grains only";
    msg->to.node = request->src;
    msg->call = request->call;
    return msg;
}

/* Counts and logs a client's message that is not admitted; responds if it is a request. */
static void refuse_message(teffi_conn *conn, const teffi_msg *msg)
{
    teffi_counters_add_one_and_log(&conn->conns->counters, LINK_REFUSED_SYSTEM,
                                   "client %08x: message to slot %u refused",
                                   conn->handshake.remote.node.silo, msg->to.slot);
    if (msg->item.kind != TEFFI_MSG_REQUEST)
        return;
    teffi_msg *response = make_refusal(msg);
    if (response && teffi_sender_send(conn, response))
        teffi_msg_free(response);
}

static teffi_admission admit_message(const teffi_conn *conn, teffi_msg *msg)
{
    const teffi_hello *remote = &conn->handshake.remote;
    if (remote->role == TEFFI_ROLE_SILO)
        return TEFFI_ADMITTED;
    return teffi_admit_client_message(msg, remote->node);
}

/* Adds msg to the batch if it is admitted. in: msg, taken over. out: false: conn is broken. */
static bool add_to_batch_if_admitted(teffi_conn *conn, teffi_msg *msg)
{
    teffi_admission admission = admit_message(conn, msg);
    if (admission == TEFFI_ADMITTED) {
        teffi_queue_push(&conn->receiver.batch, &msg->link);
        return true;
    }
    if (admission == TEFFI_ADMIT_REFUSED)
        refuse_message(conn, msg);
    teffi_msg_free(msg);
    return admission == TEFFI_ADMIT_REFUSED ||
           teffi_receiver_report_violation(
               conn, "a response from a client, or a request within a transaction");
}

/* Decodes the frame to a message, checks it and adds it to the batch. A silo accepts messages only
 * on connections that the peer dialled. out: false: the connection is broken. */
static bool decode_message_into_batch(teffi_conn *conn, const teffi_frame *frame, uint64_t now_ns)
{
    conn_receiver *r = &conn->receiver;
    teffi_msg *msg;
    if (conn->dialled && conn->conns->role == TEFFI_ROLE_SILO)
        return teffi_receiver_report_violation(conn, "a message against the direction");
    teff_err err = teffi_read_buffer_decode_and_remove(&r->buffer, frame, now_ns, &msg);
    if (err)
        return teffi_receiver_report_violation(conn, err == TEFF_E_NOMEM ? "no memory for a message"
                                                                         : "bad message");
    if ((msg->flags & TEFFI_MSG_ROW) && msg->item.kind != TEFFI_MSG_RESPONSE &&
        msg->to.slot != TEFFI_SLOT_STORE) {
        teffi_msg_free(msg);
        return teffi_receiver_report_violation(conn, "a row that is not for the store");
    }
    teffi_msg_charge(msg, conn->conns->budget);
    r->frames++;
    r->large |= msg->raw_len >= LINK_LARGE;
    return add_to_batch_if_admitted(conn, msg);
}

/* ---- frames ---- */

/* Counts, logs and records an invalid frame length. out: false, always. */
static bool report_bad_length(teffi_conn *conn, teff_err err)
{
    bool up = conn->state == CONN_UP;
    if (!up && teffi_read_buffer_is_tls(&conn->receiver.buffer))
        return teffi_receiver_report_violation(
            conn, "the peer speaks TLS, and this side was given no certificate");
    if (err != TEFF_E_TOO_LARGE || !up)
        return teffi_receiver_report_violation(conn, "bad frame length");
    teffi_counters_add_one_and_log(&conn->conns->counters, LINK_OVERSIZE,
                                   "%s: frame over %u bytes, closed", conn->target,
                                   conn->conns->frame_max_bytes);
    teffi_conn_record_end_cause(conn, TEFF_E_UNREACHABLE, "frame over the limit");
    return false;
}

/* As teffi_read_buffer_peek(), with conn's limit for the length of a frame: TEFFI_HELLO_MAX before
 * UP; afterwards frame_max_bytes, or TEFFI_FRAME_ROW_MAX if the peer is a silo and the frame may
 * have a row. */
static teff_err peek_frame(teffi_conn *conn, bool *whole, teffi_frame *frame)
{
    read_buffer *in = &conn->receiver.buffer;
    bool up = conn->state == CONN_UP;
    size_t max = up ? conn->conns->frame_max_bytes : TEFFI_HELLO_MAX;
    teff_err err = teffi_read_buffer_peek(in, max, whole, frame);
    if (err != TEFF_E_TOO_LARGE || !up || max >= TEFFI_FRAME_ROW_MAX ||
        conn->handshake.remote.role != TEFFI_ROLE_SILO || !teffi_read_buffer_may_be_row(in))
        return err;
    return teffi_read_buffer_peek(in, TEFFI_FRAME_ROW_MAX, whole, frame);
}

bool teffi_receiver_has_frame(teffi_conn *conn)
{
    teffi_frame frame;
    bool whole;
    return peek_frame(conn, &whole, &frame) || whole;
}

/* Is the frame a message that may be taken? Messages are taken only while the connection is UP and
 * this side has not sent REFUSE. */
static bool may_take_message(const teffi_conn *conn, const teffi_frame *frame)
{
    return conn->state == CONN_UP && !conn->handshake.refused && frame->kind <= TEFFI_MSG_RESPONSE;
}

/* Moves messages from the buffer to the batch. out: why it stopped. At RECEIVE_FRAME, *frame is the
 * frame that the caller must handle. */
static receive_step move_messages_to_batch(teffi_conn *conn, teffi_frame *frame)
{
    conn_receiver *r = &conn->receiver;
    uint64_t now_ns = teffi_conns_now(conn->conns);
    while (r->batch.count < BATCH_MAX) {
        bool whole;
        teff_err err = peek_frame(conn, &whole, frame);
        if (err)
            return report_bad_length(conn, err), RECEIVE_BROKEN;
        if (!whole)
            return RECEIVE_MORE;
        if (!may_take_message(conn, frame))
            return RECEIVE_FRAME;
        if (!decode_message_into_batch(conn, frame, now_ns))
            return RECEIVE_BROKEN;
        r->taken = true;
    }
    return RECEIVE_BATCH;
}

void teffi_receiver_skip_frame(teffi_conn *conn)
{
    teffi_read_buffer_skip_frame(&conn->receiver.buffer);
    conn->receiver.taken = true;
}

/* A frame is partial while some of its bytes have not arrived. Restarts the time limit of a partial
 * frame if a frame was taken before it, or if PARTIAL_STEP more of its bytes have arrived. Clears
 * the time limit if no bytes are left. A slow peer still cannot hold much memory, because the
 * buffer grows only with the bytes received. */
static void update_partial_frame_time_limit(teffi_conn *conn, bool taken)
{
    conn_receiver *r = &conn->receiver;
    size_t received = teffi_read_buffer_left(&r->buffer);
    if (received == 0) {
        conn->liveness.partial_since_ns = 0;
    } else if (taken || conn->liveness.partial_since_ns == 0 ||
               received - r->partial_bytes >= PARTIAL_STEP) {
        conn->liveness.partial_since_ns = teffi_conns_now(conn->conns);
        r->partial_bytes = received;
    }
}

/* Grows or shrinks the buffer. Then charges its spare bytes to the reserve or, if they do not fit,
 * trims the buffer. out: false: no memory to grow. */
static bool fit_buffer_and_charge_or_trim_spare(teffi_conn *conn)
{
    conn_receiver *r = &conn->receiver;
    bool fits = teffi_read_buffer_fit(&r->buffer, r->got, r->filled);
    teffi_reserve_charge_or_trim_spare(conn);
    return fits;
}

/* Calls move_messages_to_batch(). If it returns RECEIVE_FRAME, does nothing more: the caller
 * handles *frame and calls again. Otherwise counts the messages taken since the last count, updates
 * the time limit of a partial frame, and releases the reservation if its frame was taken. out: as
 * move_messages_to_batch(). */
static receive_step move_and_count_messages(teffi_conn *conn, teffi_frame *frame)
{
    conn_receiver *r = &conn->receiver;
    receive_step step = move_messages_to_batch(conn, frame);
    if (step == RECEIVE_FRAME)
        return step;
    bool taken = r->taken;
    teffi_counters_add(&conn->conns->counters, LINK_FRAMES_IN, r->frames);
    r->frames = 0;
    r->taken = false;
    update_partial_frame_time_limit(conn, taken);
    if (taken) /* a reservation, if any, was for the first frame taken, which is complete */
        teffi_reserve_release(conn);
    return step;
}

/* Moves messages to the batch. If no complete frame is left, prepares the buffer for the next read:
 * reserves memory for a large frame that has begun, and grows or shrinks the buffer. Leaves this to
 * the next call if there are messages or a BYE_ACK in the batch: the caller posts the batch first,
 * and calls again before it reads. */
receive_step teffi_receiver_fill_batch(teffi_conn *conn, teffi_frame *frame)
{
    receive_step step = move_and_count_messages(conn, frame);
    if (step != RECEIVE_MORE || conn->receiver.batch.count || conn->receiver.batch_acks)
        return step;
    if (!teffi_reserve_frame(conn)) {
        teffi_reserve_charge_or_trim_spare(conn);
        return RECEIVE_WAITS;
    }
    if (!fit_buffer_and_charge_or_trim_spare(conn))
        return RECEIVE_BROKEN;
    /* The buffer ends with a part of a frame. If this part is long, the rest of the frame is
     * probably in the socket. */
    conn->receiver.filled |= teffi_read_buffer_left(&conn->receiver.buffer) > LINK_READ_SHORT;
    return step;
}

bool teffi_receiver_resume(teffi_conn *conn)
{
    /* Restart the time limit: the wait for memory does not count against the peer. */
    conn->liveness.partial_since_ns = teffi_conns_now(conn->conns);
    conn->receiver.partial_bytes = teffi_read_buffer_left(&conn->receiver.buffer);
    return fit_buffer_and_charge_or_trim_spare(conn) && teffi_receiver_begin_receive(conn);
}
