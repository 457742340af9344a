/* connection.h - one connection, and the data that all connections of a link share.
 * Way:     dial, accept -> [connection]; sender, receiver -> [connection] -> stream
 * States:  DIALING -stream-> GREETING -hello-> (acceptor: ACKING -ack->) UP -> ENDED. Accepted ones
 *          begin in GREETING; every state may go to ENDED.
 * Threads: lock order: conns->lock, then a peer's or conn's lock. At most one receive and one write
 *          are in flight. Any thread may kill a connection; then its reader, or the callback of its
 *          dial or write, ends it. */
#pragma once

#include <pthread.h>
#include <sys/queue.h>
#include "base/queue.h"
#include "message/hello.h"
#include "group/exec.h"
#include "link/conn/client_reader.h"
#include "link/conn/counters.h"
#include "link/conn/polling.h"
#include "link/conn/receiver.h"
#include "link/conn/sender.h"
#include "stream/stream.h"

typedef enum conn_state {
    CONN_DIALING,  /* no stream yet */
    CONN_GREETING, /* waits for the peer's hello */
    CONN_ACKING,   /* acceptor: waits for the dialler's ack */
    CONN_UP,
    CONN_ENDED,
} conn_state;

typedef enum conn_cause {
    CONN_OWN_CAUSE,
    CONN_WITH_OTHER, /* killed by teffi_ending_kill_for_broken_pair(), because the pair is broken */
    /* a newer connection replaced it, or its peer has connected again after a goodbye: messages
     * that it still receives are dropped */
    CONN_REPLACED,
} conn_cause;

typedef enum link_event_kind { EVENT_UP, EVENT_BATCH, EVENT_DOWN } link_event_kind;

/* An event for the owner, in its peer's queue; holds a reference to its connection. */
typedef struct link_event {
    teffi_qnode link;
    link_event_kind kind;
    teffi_conn *conn;
} link_event;

struct link_peer;

/* Requests to the link's own thread (link/heartbeat.c). */
typedef struct link_ticker {
    teffi_poll_parker parker;
    _Atomic bool asked;      /* a scan now is requested */
    _Atomic bool asked_soon; /* a run of delayed work is requested */
} link_ticker;

enum { LINK_SOON_NS = 1000000 }; /* the ticker's delay before such a run */

/* As soon as so many connections are dead, the ticker frees them within about LINK_SOON_NS, and not
 * only at its next scan. Otherwise the reactor's poller would close the sockets of 250 ms at once,
 * and messages would wait meanwhile: with 1,000 connections per second, that took 0.8 ms of
 * processor time; now it takes 0.08 ms, more often (tests/bench/RESULTS.md). */
enum { LINK_DEAD_BATCH = 16 };

/* Handshakes are counted for each host. A host's number, 1 to LINK_HOSTS, is a hash of its address;
 * few hosts share one. */
enum { LINK_HOSTS = 256 };

/* Shared by the connections of a link. */
typedef struct teffi_conns {
    /* immutable after init */
    const teffi_platform *platform;
    teffi_exec *exec;     /* may be NULL */
    teffi_budget *budget; /* of received messages and of bytes to be written; may be NULL */
    const _Atomic uint64_t *until_ns; /* see net.h; may be NULL */
    uint32_t role, frame_max_bytes, queue_max_bytes;
    _Atomic uint64_t view; /* not immutable: that frames to silos carry; 0: none; see sender.c */
    teffi_transport *transport;
    teffi_stream_done *received, *written; /* callbacks of streams; arg is the connection */
    /* net event; called with a connection's lock held */
    void (*sent)(void *arg, teffi_node_id to, const teffi_msg *request);
    void *sent_arg;

    link_counters counters;
    link_ticker ticker;
    conn_reserve reserve;
    client_readers readers;
    link_polling polling;
    teffi_deferred *_Atomic coalesced; /* write_coalesced of connections, see sender.h */

    /* guarded by lock, which also guards fields of connections, peers and the link */
    pthread_mutex_t lock;
    pthread_cond_t changed;        /* shutdown and free wait on it */
    LIST_HEAD(, teffi_conn) all;   /* connections that have not ended */
    teffi_conn *dead;              /* connections without references, to be freed */
    unsigned n_dead;               /* so many are in `dead` */
    teffi_conn *kept;              /* type-stable memory for reuse, see keeps_memory */
    unsigned live;                 /* connections in memory that are not dead */
    unsigned pending;              /* accepted ones in their handshake */
    unsigned silos_up, clients_up; /* accepted */
    /* the pending ones of each host, without those that an accept has killed */
    unsigned pending_of_host[LINK_HOSTS + 1];
} teffi_conns;

/* Written before the first read, then only by the reader. Other threads read some fields. */
typedef struct conn_handshake {
    teffi_hello remote; /* the peer's hello; a dial for a peer sets node, role, address before */
    bool refused;       /* REFUSE was sent; frames that still arrive are skipped */
    uint64_t sequence;  /* the dialler numbers its connections; a newer one has a larger number */
    uint64_t deadline_ns;
    uint8_t nonce[TEFFI_NONCE_BYTES]; /* of this side's hello; the peer echoes it */
    /* of the two hellos, if there is a secret or a certificate */
    uint8_t dialler_digest[TEFFI_PROOF_BYTES], acceptor_digest[TEFFI_PROOF_BYTES];
    uint8_t expected[TEFFI_PROOF_BYTES]; /* acceptor, with a secret: what the ack must contain */
    /* of the certificate that the dialler has shown; NULL: none, or it has proved to own the key */
    struct link_public_key *dialler_key;
    /* only of a dial to an address; called after the up event, or else when the connection ends */
    void (*done)(void *arg, teff_err err, const teffi_hello *remote, const char *text);
    void *done_arg;
    bool not_needed; /* ends because its peer has an outgoing connection that is UP */
} conn_handshake;

/* Times, 0 = none. The reader and the sender store them, the ticker loads them. */
typedef struct conn_liveness {
    _Atomic uint64_t receiving_since_ns; /* when the receive in flight began */
    _Atomic uint64_t partial_since_ns; /* when the incomplete frame began, or last made progress */
    _Atomic uint64_t writing_since_ns; /* when the background write in flight, or its rest, began */
    _Atomic uint64_t wrote_ns;         /* when the last completed write began; at first: when UP */
    /* killed because its handshake was late, its peer silent, or too many handshakes pending */
    _Atomic bool given_up;
} conn_liveness;

typedef struct conn_ending { /* guarded by conns->lock, unless noted */
    conn_cause cause;
    bool bye_sent, bye_acked; /* on this connection */
    bool was_up, clean, down_posted;
    teff_err why; /* owner: the reader; reported to done */
    char why_text[TEFF_TEXT_MAX];
} conn_ending;

struct teffi_conn {
    /* Not reset when the memory is reused for another connection (type-stable: next_hop.c). */
    pthread_mutex_t lock;
    /* The node whose messages it carries, 0 = none. Written under both locks: lock, conns->lock. */
    uint64_t carries;
    bool keeps_memory;     /* guarded like carries: it was in the route cache */
    teffi_conn *next_kept; /* guarded by conns->lock */

    /* immutable after init */
    teffi_conns *conns; /* reuse_or_alloc_conn() zeroes the struct from here on */
    bool dialled;
    bool at_gateway; /* accepted at the gateway's address, where only clients connect */
    teffi_stream_dial *dial;
    /* the address dialled, or the peer's: for log texts, and for a client's redials */
    char target[TEFFI_ADDRESS_MAX + 1];

    _Atomic uint32_t refs; /* each drop's release pairs with the last drop's acquire */
    teffi_stream *stream;  /* written under lock, by teffi_conn_attach_stream(); NULL before */
    LIST_ENTRY(teffi_conn) link; /* guarded by conns->lock: list `all` */
    teffi_conn *next_dead;       /* guarded by conns->lock: list `dead` */
    teffi_conn *next_due;        /* owner: the ticker, which collects connections in a list */
    _Atomic conn_state state;    /* written under conns->lock; loaded also without it */
    struct link_peer *peer;      /* written under conns->lock; holds a reference */
    _Atomic bool barred;         /* its peer is dead: its messages are not reported; set under
                                  * conns->lock */

    bool killed; /* guarded by lock */
    /* guarded by conns->lock: its host, while it counts in pending_of_host; 0: it does not */
    unsigned host;

    conn_handshake handshake;
    conn_liveness liveness;
    conn_sender sender;
    conn_receiver receiver;
    conn_ending ending;
    link_event up_event, batch_event, down_event;
};

static inline uint64_t teffi_conns_now(const teffi_conns *conns)
{
    return teffi_now(conns->platform);
}

/* teffi_conns_ask_ticker_to_scan - let the ticker scan now.
 * teffi_conns_ask_to_run_delayed_work - let the ticker run delayed writes and reads, free the list
 * `dead`, and call teffi_polling_move_to_ticker_if_idle(), within about LINK_SOON_NS. in: the
 * caller has added the delayed work, or released the poller. */
void teffi_conns_ask_ticker_to_scan(teffi_conns *conns);
void teffi_conns_ask_to_run_delayed_work(teffi_conns *conns);

/* teffi_conns_can_defer - can this thread defer work: does it hold a processor of an executor that
 * supports deferred work? */
static inline bool teffi_conns_can_defer(const teffi_conns *conns)
{
    teffi_exec *exec = conns->exec;
    return exec && exec->ops->defer && exec->ops->worker && exec->ops->worker(exec);
}

/* teffi_conn_new - conns->lock held. out: a connection with one reference, not listed; NULL: no
 * memory.
 * teffi_conn_unref - drop a reference; the last one moves conn to the list `dead`. in: neither
 * conns->lock, which it takes then, nor a connection's lock is held. */
teffi_conn *teffi_conn_new(teffi_conns *conns, bool dialled);
void teffi_conn_ref(teffi_conn *conn);
void teffi_conn_unref(teffi_conn *conn);

/* teffi_conn_register - conns->lock held; add conn to the list conns->all, with a reference that
 * belongs to the list. An accepted connection is also counted as pending, and for its host. Whoever
 * removes conn from the list drops the list's reference.
 * teffi_conn_leave_host - conns->lock held; count conn no more for its host: its handshake is over,
 * or an accept kills it. Does nothing if it does not count. */
void teffi_conn_register(teffi_conn *conn);
void teffi_conn_leave_host(teffi_conn *conn);

/* teffi_conn_set_routed_node - conns->lock held; set the node whose messages conn carries from now
 * on. Also sets keeps_memory, because conn may now be in the route cache.
 * in:   conn, may be NULL. node, 0: none. */
void teffi_conn_set_routed_node(teffi_conn *conn, uint64_t node);

/* teffi_conn_state_counter - conns->lock held. in: an accepted connection. out: the counter that
 * counts it in its present state: pending, silos_up or clients_up. */
unsigned *teffi_conn_state_counter(teffi_conn *conn);

/* teffi_conn_kill - close the sender, and the stream or the dial. Then the reader, or the callback
 * of the dial or of a write, ends the connection. in: conn->lock is not held.
 * runs: anywhere, also with conns->lock held. */
void teffi_conn_kill(teffi_conn *conn);

/* teffi_conn_attach_stream - give conn its stream. When a read or write of the stream has ended,
 * conns->received or conns->written is called. If conn was killed already, closes the stream.
 * runs: the callback of its dial or accept. */
void teffi_conn_attach_stream(teffi_conn *conn, teffi_stream *stream);

/* teffi_conn_record_end_cause - record why the connection will end; the first reason stays.
 * runs: the reader, or the connection's callbacks. */
void teffi_conn_record_end_cause(teffi_conn *conn, teff_err err, const char *text);

/* teffi_conn_free - free a connection that was taken off the list `dead`. in: teffi_sender_fini()
 * and teffi_receiver_fini() were called; conns->lock is not held.
 * runs: not in a callback of its stream or dial. */
void teffi_conn_free(teffi_conn *conn);

/* teffi_conn_add_to_dead_list - conns->lock held; move the connection to the list `dead`, to be
 * freed.
 * in:   its last reference was dropped, or it is new and was never listed. */
void teffi_conn_add_to_dead_list(teffi_conn *conn);

/* teffi_conns_init - in: platform is set.
 * teffi_conns_fini - free the kept memory. in: all connections were freed. */
void teffi_conns_init(teffi_conns *conns);
void teffi_conns_fini(teffi_conns *conns);
