/* driver.c - callbacks of a connection, and the events reported to the owner. */
#include "link/steps.h"

static void drain_events_and_write_coalesced(link_peer *peer);

/* ---- the end ---- */

void teffi_driver_end_conn(teffi_conn *conn)
{
    if (teffi_ending_try_end(conn)) {
        if (conn->peer)
            drain_events_and_write_coalesced(conn->peer);
        teffi_conn_unref(conn); /* the list's reference */
    }
    teffi_conn_unref(conn); /* the caller's */
}

void teffi_driver_resume_waiting_conns(teffi_link *link)
{
    teffi_queue ready = {0};
    teffi_reserve_dequeue_ready(&link->conns, &ready);
    for (teffi_qnode *q; (q = teffi_queue_pop(&ready));) {
        teffi_conn *conn = teffi_container(q, teffi_conn, receiver.waiting);
        if (!teffi_receiver_resume(conn))
            teffi_driver_end_conn(conn);
    }
}

static void free_conn(teffi_conn *conn)
{
    link_peer *peer = conn->peer;
    teffi_sender_fini(conn);
    teffi_receiver_fini(conn);
    teffi_conn_free(conn);
    if (peer)
        teffi_peer_unref(peer);
}

void teffi_driver_free_dead_conns(teffi_link *link)
{
    pthread_mutex_lock(&link->conns.lock);
    teffi_conn *dead = link->conns.dead;
    link->conns.dead = NULL;
    link->conns.n_dead = 0;
    pthread_mutex_unlock(&link->conns.lock);
    for (teffi_conn *next; dead; dead = next) {
        next = dead->next_dead;
        free_conn(dead);
    }
}

/* ---- reading ---- */

/* Handles a BYE. A second one on a connection is a violation. out: false: conn is broken. */
static bool check_and_handle_bye(teffi_conn *conn)
{
    if (conn->receiver.bye_came)
        return teffi_receiver_report_violation(conn, "a second goodbye");
    conn->receiver.bye_came = true;
    teffi_goodbye_handle_bye(conn);
    return true;
}

/* Reports the view that the peer's later frames carry. out: false: the frame is malformed, or one
 * of the two nodes is a client: conn is broken. */
static bool check_and_report_view(teffi_conn *conn, const uint8_t *payload, size_t len)
{
    const teffi_link *link = teffi_link_of(conn);
    const teffi_hello *remote = &conn->handshake.remote;
    uint64_t version = teffi_frame_decode_view(payload, len);
    if (!version || remote->role != TEFFI_ROLE_SILO || link->conns.role != TEFFI_ROLE_SILO)
        return teffi_receiver_report_violation(conn, "bad view");
    if (link->events.view)
        link->events.view(link->arg, remote, version);
    return true;
}

/* Handles a control frame of a connection that is UP. out: false: the connection is broken. */
static bool handle_control_frame(teffi_conn *conn, const teffi_frame *frame)
{
    const uint8_t *payload;
    size_t len;
    bool well_formed = teffi_frame_get_control_payload(frame, &payload, &len);
    if (well_formed && frame->kind == TEFFI_FRAME_VIEW)
        return check_and_report_view(conn, payload, len);
    if (!well_formed || len)
        return teffi_receiver_report_violation(conn, "bad control frame");
    switch (frame->kind) {
    case TEFFI_FRAME_HEARTBEAT:
        return true;
    case TEFFI_FRAME_BYE:
        return check_and_handle_bye(conn);
    case TEFFI_FRAME_BYE_ACK:
        conn->receiver.batch_acks = true; /* handled after the messages of the batch */
        return true;
    default:
        return teffi_receiver_report_violation(conn, "unknown frame kind");
    }
}

/* Handles a frame for which teffi_receiver_fill_batch() has returned RECEIVE_FRAME. The acceptor
 * may refuse the ACK when the dialler is already UP, so a dialler accepts REFUSE in UP.
 * out:  false: the connection is broken. */
static bool handle_received_frame(teffi_conn *conn, const teffi_frame *frame)
{
    bool refusal = conn->dialled && frame->kind == TEFFI_FRAME_REFUSE;
    /* this side has sent REFUSE: later frames are ignored */
    if (conn->handshake.refused)
        return true;
    if (conn->state == CONN_UP && !refusal)
        return handle_control_frame(conn, frame);
    return teffi_handshake_handle_frame(conn, frame);
}

/* Moves messages to the batch, and handles other frames. out: why it stopped; never
 * RECEIVE_FRAME, because those frames were handled. */
static receive_step handle_buffered_frames(teffi_conn *conn)
{
    teffi_frame frame;
    receive_step step;
    while ((step = teffi_receiver_fill_batch(conn, &frame)) == RECEIVE_FRAME) {
        bool goes_on = handle_received_frame(conn, &frame);
        teffi_receiver_skip_frame(conn);
        if (!goes_on)
            return RECEIVE_BROKEN;
    }
    return step;
}

/* Posts the batch to the peer's event queue, or frees it if a newer connection has replaced this
 * one. Takes conns.lock, so that the newer connection cannot post its up event between the check of
 * `cause` and the post. out: false: replaced, and the batch was freed. */
static bool post_or_free_batch(teffi_conn *conn)
{
    teffi_conns *conns = conn->conns;
    pthread_mutex_lock(&conns->lock);
    bool post = conn->ending.cause != CONN_REPLACED;
    if (post)
        teffi_peer_post_event(conn->peer, &conn->batch_event, EVENT_BATCH, conn);
    pthread_mutex_unlock(&conns->lock);
    if (post)
        return true;
    for (teffi_qnode *q; (q = teffi_queue_pop(&conn->receiver.batch));)
        teffi_msg_free(teffi_container(q, teffi_msg, link));
    return false;
}

/* Continues after handle_buffered_frames() has returned `step`: posts the batch if there is one,
 * waits for memory, reads more, or ends the connection. in: the reader's reference, taken over. */
static void continue_reading(teffi_conn *conn, receive_step step)
{
    conn_receiver *r = &conn->receiver;
    for (;; step = handle_buffered_frames(conn)) {
        if (r->batch.count || r->batch_acks) {
            r->batch_is_last = step == RECEIVE_BROKEN;
            if (post_or_free_batch(conn))
                return; /* report_batch_and_read_on() continues */
            /* conn was replaced, and the batch freed */
            step = RECEIVE_BROKEN;
        }
        if (step == RECEIVE_WAITS) {
            if (teffi_reserve_or_enqueue(conn))
                return; /* teffi_driver_resume_waiting_conns() continues */
        } else if (step == RECEIVE_BROKEN || !teffi_receiver_try_read_inline(conn)) {
            break;
        }
    }
    if (step == RECEIVE_BROKEN || !teffi_receiver_begin_or_defer_receive(conn))
        teffi_driver_end_conn(conn);
}

void teffi_driver_handle_frames_and_read(teffi_conn *conn)
{
    receive_step step = handle_buffered_frames(conn);
    link_peer *peer = conn->peer; /* continue_reading() gives up the reference to conn */
    if (peer)
        teffi_peer_ref(peer);
    continue_reading(conn, step);
    if (!peer)
        return;
    drain_events_and_write_coalesced(peer);
    teffi_peer_unref(peer);
}

static void handle_inbound_bytes(teffi_inbound *batch)
{
    teffi_driver_handle_frames_and_read(teffi_container(batch, teffi_conn, receiver.inbound));
}

static void drop_inbound_reference(teffi_inbound *batch)
{
    teffi_conn_unref(teffi_container(batch, teffi_conn, receiver.inbound));
}

/* Lets the executor choose the thread that handles the received bytes. If there is no executor, or
 * this thread must not run turns, this thread handles them. The executor may run turns on this
 * thread, within the callback of the stream, and freeing an nng stream waits for its callback. So
 * the executor holds a reference until those turns have ended: otherwise the ticker, which frees
 * connections, would wait for them. */
static void submit_or_handle_received_bytes(teffi_conn *conn)
{
    teffi_exec *exec = conn->conns->exec;
    /* A polling thread that is no worker must not run turns. So it handles the bytes itself: the
     * executor would let it borrow a processor and run turns. */
    bool here = conn->conns->polling.poller && !teffi_conns_can_defer(conn->conns);
    if (!exec || !exec->ops->inbound || here) {
        teffi_driver_handle_frames_and_read(conn);
        return;
    }
    teffi_conn_ref(
        conn); /* held by receiver.inbound; the executor drops it by drop_inbound_reference() */
    conn->receiver.inbound.bytes = conn->receiver.got;
    exec->ops->inbound(exec, &conn->receiver.inbound);
}

/* Runs a deferred read. A worker or a waiting client thread reads at once, and may run the turns
 * for the messages that it reads. Other threads (for example the ticker or the monitor) must
 * not run turns: they only begin an asynchronous receive. A thread that finds no bytes to read does
 * the same. */
static void run_deferred_read(teffi_deferred *work)
{
    teffi_conn *conn = teffi_container(work, teffi_conn, receiver.next_read);
    bool client = teffi_client_reader_is_this_thread();
    bool here = client || teffi_conns_can_defer(conn->conns);
    if (!teffi_receiver_run_deferred_read(conn, here)) {
        if (!teffi_receiver_begin_receive(conn))
            teffi_driver_end_conn(conn);
    } else if (client) {
        teffi_driver_handle_frames_and_read(conn);
    } else {
        submit_or_handle_received_bytes(conn);
    }
}

/* ---- callbacks of the stream ---- */

static void on_received(void *arg, const teffi_stream_result *result)
{
    teffi_conn *conn = arg;
    conn->liveness.receiving_since_ns = 0;
    if (result->end) {
        if (conn->state != CONN_UP)
            teffi_handshake_report_failure(conn, result);
        teffi_conn_record_end_cause(conn, TEFF_E_UNREACHABLE, result->text);
        teffi_driver_end_conn(conn);
        return;
    }
    teffi_receiver_add_bytes(conn, result->bytes);
    if (conn->state != CONN_UP || !teffi_receiver_has_frame(conn))
        teffi_driver_handle_frames_and_read(conn); /* no message, so no need to choose a thread */
    else if (!teffi_client_reader_try_give_conn(conn))
        submit_or_handle_received_bytes(conn);
}

static void on_written(void *arg, const teffi_stream_result *result)
{
    if (teffi_sender_complete_write(arg, result))
        teffi_driver_end_conn(arg);
}

void teffi_driver_init(teffi_link *link)
{
    link->conns.received = on_received;
    link->conns.written = on_written;
}

teffi_conn *teffi_driver_new_conn(teffi_link *link, bool dialled)
{
    teffi_conn *conn = teffi_conn_new(&link->conns, dialled);
    if (!conn)
        return NULL;
    conn->handshake.deadline_ns =
        teffi_conns_now(&link->conns) + link->hello_timeout_ms * 1000000ull;
    conn->receiver.next_read.run = run_deferred_read;
    conn->receiver.inbound.run = handle_inbound_bytes;
    conn->receiver.inbound.release = drop_inbound_reference;
    teffi_sender_init(conn);
    return conn;
}

/* ---- waiting client threads ---- */

bool teffi_driver_wait(teffi_net *net, teffi_poll_parker *parker, uint32_t *tokens)
{
    teffi_link *link = (teffi_link *)net;
    client_reader reader = {.parker = &parker->parker};
    teffi_sender_write_coalesced(&link->conns);
    if (link->conns.polling.poller && link->conns.role == TEFFI_ROLE_CLIENT) {
        *tokens = teffi_polling_wait(&link->conns, parker);
        return true;
    }
    if (!teffi_client_reader_begin(&link->conns, &reader))
        return false;
    do
        *tokens = teffi_parker_wait_for_tokens(&parker->parker, UINT64_MAX);
    while (!*tokens); /* 0: it returned early, without a token */
    teffi_conn *given = teffi_client_reader_withdraw_or_take_conn(&link->conns, &reader, tokens);
    if (given)
        teffi_driver_handle_frames_and_read(given);
    teffi_client_reader_end(&link->conns);
    return true;
}

/* ---- events to the owner ---- */

/* Reports a message, unless its sender was declared dead meanwhile: then drops it. relaxed: a
 * thread that was told of the death sees `barred`. */
static void report_or_drop_message(const teffi_link *link, const teffi_conn *conn, teffi_msg *msg)
{
    if (atomic_load_explicit(&conn->barred, memory_order_relaxed))
        teffi_msg_free(msg);
    else
        link->events.message(link->arg, &conn->handshake.remote, msg);
}

/* Reports the messages of a batch, and handles a BYE_ACK after them; then reads more, or ends the
 * connection. in: the reader's reference, taken over. */
static void report_batch_and_read_on(teffi_conn *conn)
{
    const teffi_link *link = teffi_link_of(conn);
    conn_receiver *r = &conn->receiver;
    teffi_queue batch = r->batch;
    r->batch = (teffi_queue){0};
    for (teffi_qnode *at; (at = teffi_queue_pop(&batch));)
        report_or_drop_message(link, conn, teffi_container(at, teffi_msg, link));
    if (r->batch_acks)
        teffi_goodbye_handle_bye_ack(conn);
    r->batch_acks = false;
    if (r->batch_is_last)
        teffi_driver_end_conn(conn);
    else
        teffi_driver_handle_frames_and_read(conn);
}

/* Reports the end of a connection: by the done function of its dial if it was never UP, otherwise
 * by a down event. A clean end is not reported while another connection of the peer is UP. After
 * the report, passes to the link's owner, by unsent events, the messages that waited for the
 * handshake to end. If such a message is a response, kills the connection that brought its request,
 * so that the caller's call fails. */
static void report_down_and_unsent(link_peer *peer, teffi_conn *conn)
{
    teffi_link *link = peer->owner;
    const conn_ending *ending = &conn->ending;
    const teffi_hello *remote = &conn->handshake.remote;
    peer->ups -= ending->was_up;
    if (!ending->was_up)
        teffi_ending_report_dial_result(conn);
    if (ending->was_up && (!ending->clean || peer->ups == 0))
        link->events.down(link->arg, remote, ending->clean);
    teffi_queue unopened = teffi_sender_close_and_take_unopened(conn);
    for (teffi_qnode *at; (at = teffi_queue_pop(&unopened));) {
        teffi_msg *msg = teffi_container(at, teffi_msg, link);
        if (msg->item.kind == TEFFI_MSG_RESPONSE)
            teffi_ending_kill_incoming_conn(link, peer->id);
        link->events.unsent(link->arg, remote, msg);
    }
}

static void report_up(link_peer *peer, const teffi_conn *conn)
{
    const teffi_link *link = peer->owner;
    const conn_handshake *h = &conn->handshake;
    peer->ups++;
    link->events.up(link->arg, &h->remote);
    if (h->done)
        h->done(h->done_arg, TEFF_OK, &h->remote, "");
}

static void report_event(link_peer *peer, const link_event *event)
{
    teffi_conn *conn = event->conn;
    switch (event->kind) {
    case EVENT_BATCH:
        report_batch_and_read_on(conn); /* the event's reference becomes the reader's */
        return;
    case EVENT_UP:
        report_up(peer, conn);
        break;
    case EVENT_DOWN:
        report_down_and_unsent(peer, conn);
        break;
    }
    teffi_conn_unref(conn);
}

/* Reports all events, then removes the peer from the table if nothing needs it. in:
 * teffi_peer_try_begin_event_drain() has returned true. */
static void report_events_and_remove_unused(link_peer *peer)
{
    teffi_conns *conns = &peer->owner->conns;
    teffi_peer_ref(peer);
    for (link_event *event; (event = teffi_peer_pop_event_or_end_drain(peer));)
        report_event(peer, event);
    pthread_mutex_lock(&conns->lock);
    bool gone = teffi_peer_remove_if_unused(peer);
    pthread_cond_broadcast(&conns->changed);
    pthread_mutex_unlock(&conns->lock);
    if (gone)
        teffi_peer_unref(peer); /* the table's reference */
    teffi_peer_unref(peer);
}

/* Drains the peer's event queue, unless another thread drains it: reports the events, and removes
 * the peer if nothing needs it. Then writes all coalesced frames, if any is from this thread. */
static void drain_events_and_write_coalesced(link_peer *peer)
{
    teffi_conns *conns = &peer->owner->conns; /* lives longer than the peer */
    if (teffi_peer_try_begin_event_drain(peer))
        report_events_and_remove_unused(peer);
    /* Write the frames that this thread has coalesced, even if it reported no event: it may never
     * call wait, and while the link is freed no ticker writes them later. */
    teffi_sender_write_if_thread_coalesced(conns);
}
