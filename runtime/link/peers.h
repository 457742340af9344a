/* peers.h - the nodes that a link knows: their connections and unreported events. A node has one
 * record, from its first connection or peer_add until nothing needs it.
 * Way:     next_hop, handshake, ending -> [peers] -> driver
 * Threads: guarded by conns.lock, except references; events by the peer's own lock.
 * States:  our goodbye: NOT_SAID -> SAID -> ACKNOWLEDGED. Back to NOT_SAID from SAID by peer_remove
 *          without a goodbye, and from both when a peer that was not known becomes known. */
#pragma once

#include <pthread.h>
#include "link/conn/connection.h"

enum { LINK_BUCKETS = 1024, LINK_SEEN_SETS = 256, LINK_SEEN_IN_SET = 8 };

struct teffi_link;

typedef enum link_goodbye {
    GOODBYE_NOT_SAID,
    GOODBYE_SAID,         /* if there is a connection, BYE was appended, or is once it is open */
    GOODBYE_ACKNOWLEDGED, /* BYE_ACK arrived: all messages of the peer were delivered */
} link_goodbye;

typedef struct link_peer {
    teffi_node_id id; /* immutable after init */
    struct teffi_link *owner;
    _Atomic uint32_t refs; /* release on drop pairs with acquire of the last */
    /* guarded by conns.lock */
    struct link_peer *bucket_next;
    char address[TEFFI_ADDRESS_MAX + 1];
    teffi_conn *in;       /* accepted, and UP; NULL: none */
    teffi_conn *out;      /* dialled, in any state but ENDED; NULL: none */
    unsigned n_conns;     /* connections of this peer that have not ended, in and out or not */
    uint64_t in_sequence; /* newest sequence of an accepted connection */
    uint8_t key[TEFFI_KEY_BYTES]; /* its connections must have it: teffi_key_fits() */
    uint64_t redial_ns;           /* when the ticker dials again; 0: only a send dials */
    uint32_t backoff_ms;
    link_goodbye goodbye;
    bool listed;      /* in the table */
    bool known;       /* by peer_add or dial, until peer_remove */
    bool dial_failed; /* the last dial failed: the ticker dials again, a send does not */
    bool bye_heard;   /* it sent BYE: send refuses messages, until it connects or is known again */
    bool left;        /* it left the cluster: no more requests and one-ways for grains */
    /* guarded by lock */
    pthread_mutex_t lock;
    teffi_queue events;
    bool draining; /* a thread reports the events */
    /* owner: the thread that drains */
    unsigned ups; /* connections whose up event was reported, and whose end was not */
} link_peer;

typedef struct link_seen_silo {
    teffi_node_id node; /* the newest incarnation that was accepted */
    uint64_t stamp;     /* seen_clock when it was noted; 0: the entry is empty */
} link_seen_silo;

typedef struct link_peers {
    link_peer *buckets[LINK_BUCKETS];
    unsigned n; /* peers in memory, in the table or not */
    link_seen_silo seen[LINK_SEEN_SETS][LINK_SEEN_IN_SET];
    uint64_t seen_clock;
} link_peers;

/* teffi_peer_find - conns.lock held. out: NULL: no such peer.
 * teffi_peer_find_or_add - the same, but add the peer if there is none. out: NULL: no memory. */
link_peer *teffi_peer_find(struct teffi_link *link, teffi_node_id id);
link_peer *teffi_peer_find_or_add(struct teffi_link *link, teffi_node_id id);

/* teffi_peer_set_known - conns.lock held; allow sends to the peer, and set its address. If the
 * peer was not known, reset both goodbyes and dial_failed.
 * in:   address, at most TEFFI_ADDRESS_MAX bytes; may be peer->address. */
void teffi_peer_set_known(link_peer *peer, const char *address);

/* teffi_peer_set_of_conn - conns.lock held; let conn be a connection of the peer, from now until it
 * has ended. conn gets a reference to the peer. */
void teffi_peer_set_of_conn(teffi_conn *conn, link_peer *peer);

/* teffi_peer_remove_if_unused - conns.lock held; remove the peer from the table if it is not known,
 * has no connection that has not ended, and has no events (teffi_peer_has_no_events()).
 * out:  true: removed; the caller releases the lock, then drops the table's reference. */
bool teffi_peer_remove_if_unused(link_peer *peer);

/* teffi_peers_fini - empty the table, and wait until no thread holds a peer. in: the link is
 * being freed. */
void teffi_peers_fini(struct teffi_link *link);

void teffi_peer_ref(link_peer *peer);
void teffi_peer_unref(link_peer *peer); /* conns.lock not held */

/* teffi_peer_check_and_record_incarnation - conns.lock held; is the incarnation in id at least as
 * new as the one that was recorded for its silo? out: true also if none was recorded.
 * in:   record: true: also record the incarnation in id, unless it is older. */
bool teffi_peer_check_and_record_incarnation(struct teffi_link *link, teffi_node_id id,
                                             bool record);

/* teffi_peer_post_event - append an event to the peer's queue. After it has released its locks,
 * this thread calls drain_events_and_write_coalesced() (driver.c).
 * in:   event, of conn, not queued. conn, with a reference that the event takes over. */
void teffi_peer_post_event(link_peer *peer, link_event *event, link_event_kind kind,
                           teffi_conn *conn);

/* teffi_peer_try_begin_event_drain - out: true: the caller reports events until
 * teffi_peer_pop_event_or_end_drain() returns NULL. false: there are no events, or another thread
 * reports them.
 * teffi_peer_pop_event_or_end_drain - remove the oldest event. out: NULL: there is none, and the
 *       drain ends: another thread may begin one.
 * teffi_peer_has_no_events - is no event queued, and does no thread report any? */
bool teffi_peer_try_begin_event_drain(link_peer *peer);
link_event *teffi_peer_pop_event_or_end_drain(link_peer *peer);
bool teffi_peer_has_no_events(link_peer *peer);
