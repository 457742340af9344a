/* link_events.c - tell the owner what happened, one thing at a time for each peer and never with
 * a lock held. Whoever posts drains, unless another thread is at it, which then does it.
 * Way:     link_recv, link_greet, link_conn -> [events] -> net events
 * Threads: queue and flag under node->lock. */
#include "wire/link.h"

void teffi_link_event_post(link_node *node, link_event *event, event_kind kind, teffi_conn *conn)
{
    event->kind = kind;
    event->conn = conn;
    pthread_mutex_lock(&node->lock);
    teffi_queue_push(&node->events, &event->link);
    pthread_mutex_unlock(&node->lock);
}

static void tell_batch(teffi_conn *conn)
{
    teffi_link *link = conn->owner;
    teffi_queue batch = conn->batch;
    conn->batch = (teffi_queue){0};
    for (teffi_qnode *at; (at = teffi_queue_pop(&batch));)
        link->events.message(link->arg, &conn->peer, teffi_container(at, teffi_msg, link));
    if (conn->batch_ack)
        teffi_link_bye_acked(conn);
    conn->batch_ack = false;
    if (!conn->batch_last) {
        teffi_link_recv_go_on(conn);
        return;
    }
    teffi_link_conn_end(conn);
    teffi_link_conn_unref(conn);
}

static void tell_down(link_node *node, teffi_conn *conn)
{
    teffi_link *link = conn->owner;
    node->ups -= conn->was_up;
    if (!conn->clean || node->ups == 0)
        link->events.down(link->arg, &conn->peer, conn->clean);
    teffi_link_conn_unref(conn);
}

static void tell_done(teffi_conn *conn)
{
    conn->done(conn->done_arg, conn->done_err, &conn->peer, conn->done_err ? conn->why_text : "");
    teffi_link_conn_unref(conn);
}

static void tell(link_node *node, link_event *event)
{
    teffi_conn *conn = event->conn;
    teffi_link *link = conn->owner;
    switch (event->kind) {
    case EVENT_UP:
        node->ups++;
        link->events.up(link->arg, &conn->peer);
        teffi_link_conn_unref(conn);
        break;
    case EVENT_BATCH:
        tell_batch(conn);
        break;
    case EVENT_DOWN:
        tell_down(node, conn);
        break;
    case EVENT_DONE:
        tell_done(conn);
        break;
    }
}

static link_event *next_event(link_node *node)
{
    pthread_mutex_lock(&node->lock);
    teffi_qnode *at = teffi_queue_pop(&node->events);
    node->draining = at != NULL;
    pthread_mutex_unlock(&node->lock);
    return at ? teffi_container(at, link_event, link) : NULL;
}

static bool take_turn(link_node *node)
{
    pthread_mutex_lock(&node->lock);
    bool mine = !node->draining && node->events.count;
    node->draining |= mine;
    pthread_mutex_unlock(&node->lock);
    return mine;
}

static void tell_all(link_node *node)
{
    teffi_link *link = node->owner;
    teffi_link_node_ref(node);
    for (link_event *event; (event = next_event(node));)
        tell(node, event);
    pthread_mutex_lock(&link->lock);
    bool gone = teffi_link_node_settle(node);
    pthread_cond_broadcast(&link->changed);
    pthread_mutex_unlock(&link->lock);
    if (gone)
        teffi_link_node_unref(node); /* the table's */
    teffi_link_node_unref(node);
}

void teffi_link_event_drain(link_node *node)
{
    teffi_link *link = node->owner;
    if (take_turn(node))
        tell_all(node);
    /* What the owner sent meanwhile, or the link answered, on a thread that does not wait. Also
     * without an event: at the link's end no ticker comes after it. */
    teffi_link_burst_end_mine(link);
}
