/* link_conn.c - the life of a connection: made, counted, killed, ended, freed.
 * Way:     link_dial, link_accept -> [conn] -> link_tick frees it
 * Threads: any thread kills; the connection's own receive or dial callback ends; the ticker and
 *          free reap, because an aio must not be freed in its own callback. */
#include "wire/link.h"

#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static bool alloc_aios(teffi_conn *conn)
{
    bool tls = conn->owner->tls_dial != NULL;
    return nng_aio_alloc(&conn->recv_aio, teffi_link_recv_cb, conn) == 0 &&
           nng_aio_alloc(&conn->send_aio, teffi_link_send_cb, conn) == 0 &&
           (tls || (nng_aio_alloc(&conn->now_aio, NULL, NULL) == 0 &&
                    nng_aio_alloc(&conn->take_aio, NULL, NULL) == 0)) &&
           (!conn->dialled || nng_aio_alloc(&conn->dial_aio, teffi_link_dial_cb, conn) == 0);
}

/* All that it has but itself. */
static void scrap(teffi_conn *conn)
{
    nng_aio_free(conn->recv_aio);
    nng_aio_free(conn->send_aio);
    nng_aio_free(conn->now_aio);
    nng_aio_free(conn->take_aio);
    nng_aio_free(conn->dial_aio);
    if (conn->stream)
        nng_stream_free(conn->stream);
    if (conn->dialer)
        nng_stream_dialer_free(conn->dialer);
    teffi_out_fini(&conn->control);
    teffi_out_fini(&conn->fill);
    teffi_out_fini(&conn->fly);
    teffi_in_fini(&conn->in);
    pthread_mutex_destroy(&conn->write_gate);
    pthread_mutex_destroy(&conn->read_gate);
}

static void free_memory(teffi_conn *conn)
{
    pthread_mutex_destroy(&conn->lock);
    free(conn);
}

/* link->lock held. Somebody may still come to it: link_way.c. */
static void keep_memory(teffi_link *link, teffi_conn *conn)
{
    conn->next_old = link->old;
    link->old = conn;
}

/* link->lock held. out: all zero behind what stays. */
static teffi_conn *take_memory(teffi_link *link)
{
    teffi_conn *conn = link->old;
    size_t stays = offsetof(teffi_conn, owner);
    if (conn) {
        link->old = conn->next_old;
        memset((char *)conn + stays, 0, sizeof *conn - stays);
        return conn;
    }
    conn = calloc(1, sizeof *conn);
    if (conn)
        pthread_mutex_init(&conn->lock, NULL);
    return conn;
}

teffi_conn *teffi_link_conn_new(teffi_link *link, bool dialled)
{
    teffi_conn *conn = take_memory(link);
    if (!conn)
        return NULL;
    conn->owner = link;
    conn->dialled = dialled;
    atomic_init(&conn->refs, 1);
    atomic_init(&conn->state, dialled ? CONN_DIALING : CONN_GREETING);
    pthread_mutex_init(&conn->read_gate, NULL);
    pthread_mutex_init(&conn->write_gate, NULL);
    conn->later.run = teffi_link_send_later;
    conn->burst.run = teffi_link_send_burst;
    conn->next_read.run = teffi_link_recv_later;
    /* relaxed: any of them will do */
    uint32_t n = atomic_fetch_add_explicit(&link->next_reader, 1, memory_order_relaxed);
    conn->reader = &link->readers[n % LINK_READERS];
    conn->deadline_ns = teffi_link_now(link) + link->hello_timeout_ms * 1000000ull;
    if (!alloc_aios(conn)) {
        scrap(conn);
        keep_memory(link, conn);
        return NULL;
    }
    return conn;
}

void teffi_link_conn_ref(teffi_conn *conn)
{
    atomic_fetch_add_explicit(&conn->refs, 1, memory_order_relaxed);
}

void teffi_link_conn_unref(teffi_conn *conn)
{
    teffi_link *link = conn->owner;
    /* acq_rel: pairs with the other holders' drops, before the connection is reaped. */
    if (atomic_fetch_sub_explicit(&conn->refs, 1, memory_order_acq_rel) != 1)
        return;
    if (conn->node)
        teffi_link_node_unref(conn->node);
    conn->node = NULL;
    pthread_mutex_lock(&link->lock);
    conn->dead_next = link->dead;
    link->dead = conn;
    link->live--;
    pthread_cond_broadcast(&link->changed);
    pthread_mutex_unlock(&link->lock);
}

void teffi_link_conn_list(teffi_conn *conn)
{
    teffi_link *link = conn->owner;
    teffi_link_conn_ref(conn);
    conn->next = link->conns;
    conn->prev = NULL;
    if (conn->next)
        conn->next->prev = conn;
    link->conns = conn;
    link->live++;
    if (!conn->dialled)
        link->pending++;
}

static void unlist(teffi_conn *conn)
{
    if (conn->prev)
        conn->prev->next = conn->next;
    else
        conn->owner->conns = conn->next;
    if (conn->next)
        conn->next->prev = conn->prev;
}

/* Both gates, so that every operation is either submitted before the close, which then finishes
 * it, or not at all. */
static bool shut(teffi_conn *conn)
{
    pthread_mutex_lock(&conn->read_gate);
    pthread_mutex_lock(&conn->write_gate);
    bool first = !conn->shut;
    conn->shut = true;
    pthread_mutex_unlock(&conn->write_gate);
    pthread_mutex_unlock(&conn->read_gate);
    return first;
}

void teffi_link_conn_kill(teffi_conn *conn)
{
    bool first = shut(conn);
    pthread_mutex_lock(&conn->lock);
    conn->closed = true;
    nng_stream *stream = conn->stream;
    pthread_mutex_unlock(&conn->lock);
    if (first && stream)
        nng_stream_close(stream);
    else if (first && conn->dialer)
        nng_stream_dialer_close(conn->dialer);
}

bool teffi_link_conn_submit(teffi_conn *conn, pthread_mutex_t *gate,
                            void (*start)(nng_stream *, nng_aio *), nng_aio *aio)
{
    pthread_mutex_lock(gate);
    bool open = !conn->shut;
    if (open)
        start(conn->stream, aio);
    pthread_mutex_unlock(gate);
    return open;
}

bool teffi_link_conn_try(teffi_conn *conn, pthread_mutex_t *gate,
                         void (*start)(nng_stream *, nng_aio *), nng_aio *aio)
{
    if (!teffi_link_conn_submit(conn, gate, start, aio))
        return false;
    if (nng_aio_result(aio) == 0 && nng_aio_count(aio) == 0)
        nng_aio_abort(aio, NNG_ECANCELED);
    nng_aio_wait(aio);
    return nng_aio_result(aio) == 0;
}

void teffi_link_conn_why(teffi_conn *conn, teff_err err, const char *text)
{
    if (conn->why)
        return; /* the first reason is the true one */
    conn->why = err;
    snprintf(conn->why_text, sizeof conn->why_text, "%s", text);
}

/* Wait longer after each failure, and not all at the same time. */
static void plan_redial(link_node *node, bool failed)
{
    const teffi_platform *p = node->owner->platform;
    uint32_t base = failed ? node->backoff_ms * 2 : 0;
    if (base < LINK_BACKOFF_MIN_MS)
        base = LINK_BACKOFF_MIN_MS;
    if (base > LINK_BACKOFF_MAX_MS)
        base = LINK_BACKOFF_MAX_MS;
    node->backoff_ms = base;
    uint64_t half_ns = base * 500000ull;
    node->redial_ns = teffi_link_now(node->owner) + half_ns + p->random(p->arg) % half_ns;
    teffi_link_tick_soon(node->owner);
}

/* The node's view of the end; lock held. out: a connection to flush. */
static teffi_conn *detach(teffi_conn *conn, link_node *node)
{
    teffi_link_way_shut(conn);
    if (node->in == conn)
        node->in = NULL;
    if (node->out != conn)
        return NULL;
    node->out = NULL;
    node->dial_failed = !conn->was_up;
    if (node->known && !node->bye_wanted && !node->bye_heard && !node->owner->leaving)
        plan_redial(node, !conn->was_up);
    if (node->bye_heard && !conn->was_up && node->in) {
        /* Our answer to the peer's goodbye waited in a queue that found no way. */
        teffi_link_send_finish(node->in, TEFFI_FRAME_BYE_ACK);
        teffi_link_conn_ref(node->in);
        return node->in;
    }
    return NULL;
}

static bool has_unsent(teffi_conn *conn)
{
    pthread_mutex_lock(&conn->lock);
    conn->closed = true;
    bool unsent = conn->fill.total || conn->sending;
    pthread_mutex_unlock(&conn->lock);
    return unsent;
}

/* Lock held. out: a connection to flush. */
static teffi_conn *end_with_node(teffi_conn *conn, link_node *node)
{
    bool unsent = has_unsent(conn);
    conn->clean =
        conn->was_up && !conn->replaced && (node->bye_acked || (node->bye_heard && !unsent));
    bool lost = unsent && conn->expects && !conn->replaced;
    teffi_conn *flush = detach(conn, node);
    if (!flush && node->bye_wanted && !node->bye_acked)
        flush = teffi_link_bye_say(node);
    if (conn->was_up || lost) {
        teffi_link_conn_ref(conn);
        teffi_link_event_post(node, &conn->down_event, EVENT_DOWN, conn);
    }
    if (conn->done && !conn->done_posted) {
        conn->done_err = conn->why ? conn->why : TEFF_E_UNREACHABLE;
        teffi_link_conn_ref(conn);
        teffi_link_event_post(node, &conn->done_event, EVENT_DONE, conn);
    }
    return flush;
}

/* A write in flight may be out already, its callback late: whether all was sent is known after it.
 * The kill makes it come. out: true: the flight ends the connection. */
static bool left_to_flight(teffi_conn *conn)
{
    pthread_mutex_lock(&conn->lock);
    conn->closed = true;
    conn->ending = conn->sending && !conn->torn;
    bool left = conn->ending;
    pthread_mutex_unlock(&conn->lock);
    if (left)
        teffi_link_conn_kill(conn);
    return left;
}

void teffi_link_conn_end(teffi_conn *conn)
{
    teffi_link *link = conn->owner;
    teffi_conn *flush = NULL;
    if (left_to_flight(conn))
        return;
    pthread_mutex_lock(&link->lock);
    conn->was_up = conn->state == CONN_UP;
    if (!conn->dialled && !conn->was_up)
        link->pending--;
    conn->state = CONN_ENDED;
    unlist(conn);
    link_node *node = conn->node;
    if (node)
        flush = end_with_node(conn, node);
    pthread_cond_broadcast(&link->changed);
    pthread_mutex_unlock(&link->lock);
    teffi_link_conn_kill(conn);
    if (flush) {
        teffi_link_send_flush(flush);
        teffi_link_conn_unref(flush);
    }
    if (conn->done && !node)
        conn->done(conn->done_arg, conn->why ? conn->why : TEFF_E_UNREACHABLE, &conn->peer,
                   conn->why_text);
    if (node)
        teffi_link_event_drain(node);
    teffi_link_conn_unref(conn); /* the list's */
}

/* Not of all: who connects and never gets a message costs no memory that stays. */
static void bury(teffi_link *link, teffi_conn *conn)
{
    scrap(conn);
    pthread_mutex_lock(&link->lock);
    bool keep = conn->was_way;
    if (keep)
        keep_memory(link, conn);
    pthread_mutex_unlock(&link->lock);
    if (!keep)
        free_memory(conn);
}

void teffi_link_conn_reap(teffi_link *link)
{
    pthread_mutex_lock(&link->lock);
    teffi_conn *conn = link->dead;
    link->dead = NULL;
    pthread_mutex_unlock(&link->lock);
    while (conn) {
        teffi_conn *next = conn->dead_next;
        bury(link, conn);
        conn = next;
    }
}

void teffi_link_conn_forget(teffi_link *link)
{
    while (link->old) {
        teffi_conn *conn = link->old;
        link->old = conn->next_old;
        free_memory(conn);
    }
}
