/* connection.c - memory, references, lists and streams of connections.
 * Threads: a stream must not be freed in its own callback, so dead connections are freed by the
 *          ticker or by the link's free. */
#include "link/conn/connection.h"

#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static void free_conn_memory(teffi_conn *conn)
{
    pthread_mutex_destroy(&conn->lock);
    free(conn);
}

/* conns->lock held. Reuses the memory of an earlier connection, or allocates.
 * out:  a connection, zeroed from the field `conns` on; NULL: no memory. */
static teffi_conn *reuse_or_alloc_conn(teffi_conns *conns)
{
    teffi_conn *conn = conns->kept;
    size_t kept_bytes = offsetof(teffi_conn, conns);
    if (conn) {
        conns->kept = conn->next_kept;
        memset((char *)conn + kept_bytes, 0, sizeof *conn - kept_bytes);
        return conn;
    }
    conn = calloc(1, sizeof *conn);
    if (conn)
        pthread_mutex_init(&conn->lock, NULL);
    return conn;
}

teffi_conn *teffi_conn_new(teffi_conns *conns, bool dialled)
{
    teffi_conn *conn = reuse_or_alloc_conn(conns);
    if (!conn)
        return NULL;
    conns->live++;
    conn->conns = conns;
    conn->dialled = dialled;
    atomic_init(&conn->refs, 1);
    atomic_init(&conn->state, dialled ? CONN_DIALING : CONN_GREETING);
    return conn;
}

void teffi_conn_ref(teffi_conn *conn)
{
    atomic_fetch_add_explicit(&conn->refs, 1, memory_order_relaxed);
}

void teffi_conn_add_to_dead_list(teffi_conn *conn)
{
    teffi_conns *conns = conn->conns;
    conn->next_dead = conns->dead;
    conns->dead = conn;
    conns->live--;
    if (++conns->n_dead >= LINK_DEAD_BATCH)
        teffi_conns_ask_to_run_delayed_work(conns);
    pthread_cond_broadcast(&conns->changed);
}

void teffi_conn_unref(teffi_conn *conn)
{
    teffi_conns *conns = conn->conns;
    /* acq_rel: pairs with the same operation of other threads: their writes precede the free */
    if (atomic_fetch_sub_explicit(&conn->refs, 1, memory_order_acq_rel) != 1)
        return;
    pthread_mutex_lock(&conns->lock);
    teffi_conn_add_to_dead_list(conn);
    pthread_mutex_unlock(&conns->lock);
}

void teffi_conn_register(teffi_conn *conn)
{
    teffi_conns *conns = conn->conns;
    teffi_conn_ref(conn);
    LIST_INSERT_HEAD(&conns->all, conn, link);
    if (!conn->dialled) {
        conns->pending++;
        conns->pending_of_host[conn->host]++;
    }
}

void teffi_conn_leave_host(teffi_conn *conn)
{
    if (conn->host)
        conn->conns->pending_of_host[conn->host]--;
    conn->host = 0;
}

/* Sets the routed node: the node whose messages conn carries. From now on the route cache may refer
 * to conn, so teffi_conn_free() must keep its memory. */
void teffi_conn_set_routed_node(teffi_conn *conn, uint64_t node)
{
    if (!conn || conn->carries == node)
        return;
    pthread_mutex_lock(&conn->lock);
    conn->carries = node;
    conn->keeps_memory = true;
    pthread_mutex_unlock(&conn->lock);
}

unsigned *teffi_conn_state_counter(teffi_conn *conn)
{
    teffi_conns *conns = conn->conns;
    if (conn->state != CONN_UP)
        return &conns->pending;
    return conn->handshake.remote.role == TEFFI_ROLE_SILO ? &conns->silos_up : &conns->clients_up;
}

void teffi_conn_kill(teffi_conn *conn)
{
    pthread_mutex_lock(&conn->lock);
    conn->killed = true;
    conn->sender.closing = SENDER_CLOSED;
    teffi_stream *stream = conn->stream;
    pthread_mutex_unlock(&conn->lock);
    if (stream)
        stream->ops->close(stream);
    else if (conn->dial)
        conn->conns->transport->ops->dial_cancel(conn->dial);
}

void teffi_conn_attach_stream(teffi_conn *conn, teffi_stream *stream)
{
    stream->received = conn->conns->received;
    stream->written = conn->conns->written;
    stream->arg = conn;
    pthread_mutex_lock(&conn->lock);
    conn->stream = stream;
    /* If conn was killed before this call, teffi_conn_kill() found no stream to close. */
    bool killed = conn->killed;
    pthread_mutex_unlock(&conn->lock);
    if (killed)
        stream->ops->close(stream);
}

void teffi_conn_record_end_cause(teffi_conn *conn, teff_err err, const char *text)
{
    conn_ending *ending = &conn->ending;
    if (ending->why)
        return; /* later errors are consequences of the first */
    ending->why = err;
    snprintf(ending->why_text, sizeof ending->why_text, "%s", text);
}

/* If the connection was in the route cache, its memory is kept for another connection, because a
 * thread with a stale entry may still lock conn->lock. Otherwise the memory is freed. */
void teffi_conn_free(teffi_conn *conn)
{
    teffi_conns *conns = conn->conns;
    if (conn->stream)
        conn->stream->ops->free(conn->stream);
    if (conn->dial)
        conns->transport->ops->dial_free(conn->dial);
    pthread_mutex_lock(&conns->lock);
    bool keep = conn->keeps_memory;
    if (keep) {
        conn->next_kept = conns->kept;
        conns->kept = conn;
    }
    pthread_mutex_unlock(&conns->lock);
    if (!keep)
        free_conn_memory(conn);
}

void teffi_conns_ask_ticker_to_scan(teffi_conns *conns)
{
    /* release: pairs with sleep_and_run_delayed_work_until_scan() in link/heartbeat.c */
    atomic_store_explicit(&conns->ticker.asked, true, memory_order_release);
    teffi_parker_wake(&conns->ticker.parker.parker);
}

void teffi_conns_ask_to_run_delayed_work(teffi_conns *conns)
{
    link_ticker *ticker = &conns->ticker;
    /* seq_cst: this load comes after the caller has added its work; pairs with run_delayed_work()
     * in link/heartbeat.c */
    if (atomic_load_explicit(&ticker->asked_soon, memory_order_seq_cst))
        return;
    atomic_store_explicit(&ticker->asked_soon, true, memory_order_seq_cst);
    teffi_parker_wake(&ticker->parker.parker);
}

void teffi_conns_init(teffi_conns *conns)
{
    pthread_mutex_init(&conns->lock, NULL);
    pthread_cond_init(&conns->changed, NULL);
    pthread_mutex_init(&conns->reserve.lock, NULL);
    conns->counters.platform = conns->platform;
}

void teffi_conns_fini(teffi_conns *conns)
{
    for (teffi_conn *conn; (conn = conns->kept);) {
        conns->kept = conn->next_kept;
        free_conn_memory(conn);
    }
    pthread_cond_destroy(&conns->changed);
    pthread_mutex_destroy(&conns->reserve.lock);
    pthread_mutex_destroy(&conns->lock);
}
