/* link.h - one link: the connections of a node over one transport, and its ops.
 * Way:     next_hop, dial, accept -> conn/ ===> conn/ -> driver -> net events
 * Threads: lock order: conns.lock, then one of these leaves: a peer's lock, a connection's lock,
 *          the gates of a stream (stream/nng_stream.c). */
#pragma once

#include "base/siphash.h"
#include "link/conn/connection.h"
#include "link/identity.h"
#include "link/net.h"
#include "link/peers.h"
#include "link/secrets.h"

enum { LINK_ROUTES = 4096 };

/* A listener of the link. Which roles may connect to it: check_role_for_listener() in
 * handshake.c. */
typedef struct link_door {
    struct teffi_link *link; /* immutable after init */
    teffi_door door;         /* the same */
    bool listens;            /* written before accept, by the thread that calls listen */
    bool accept_again;       /* an accept failed: the ticker tries again; guarded by conns.lock */
} link_door;

typedef struct teffi_link {
    teffi_net net; /* first: the net is the link */
    teffi_conns conns;
    link_peers peers;                        /* guarded by conns.lock */
    teffi_conn *_Atomic routes[LINK_ROUTES]; /* next_hop.c */
    /* immutable after init */
    teffi_net_events events;
    void *arg;
    teffi_sipkey secret; /* key of the hashes of node ids, because clients choose their ids */
    uint32_t heartbeat_ms, hello_timeout_ms, clients_max;
    link_secrets secrets;
    link_identity *identity; /* NULL: no TLS */
    teffi_thread ticker;     /* set by its start */

    _Atomic uint64_t sequence; /* number of the newest dialled connection */

    /* guarded by conns.lock */
    teffi_hello self;
    bool leaving; /* shutdown or free was called */
    bool freeing; /* free was called */

    link_door doors[TEFFI_DOORS]; /* as each member says */

    /* owner: the ticker */
    uint64_t scanned_ns;    /* time of the last scan */
    uint64_t judge_from_ns; /* earliest time to kill late and silent connections */
    bool held_up;           /* the last scan was late: this process was held up */
} teffi_link;

/* teffi_link_of - the link of a connection. */
static inline teffi_link *teffi_link_of(const teffi_conn *conn)
{
    return teffi_container(conn->conns, teffi_link, conns);
}

/* The ops of teffi_net, documented in net.h. The prefix names the file; net.c has the rest. */
teff_err teffi_accept_listen(teffi_net *net, teffi_door door, const char *address, char *bound,
                             char *text);
void teffi_accept_begin(teffi_net *net);
void teffi_dial_address(teffi_net *net, const char *address,
                        void (*done)(void *arg, teff_err err, const teffi_hello *remote,
                                     const char *text),
                        void *arg);
teff_err teffi_next_hop_send(teffi_net *net, teffi_node_id to, teffi_msg *msg);
bool teffi_driver_wait(teffi_net *net, teffi_poll_parker *parker, uint32_t *tokens);
void teffi_goodbye_remove_peer(teffi_net *net, teffi_node_id id, bool clean);
void teffi_goodbye_remove_dead_peer(teffi_net *net, teffi_node_id id);
void teffi_goodbye_mark_peer_left(teffi_net *net, teffi_node_id id);
teff_err teffi_goodbye_shutdown(teffi_net *net, uint32_t timeout_ms);

/* teffi_accept_handle_result - callback of the transport: take the accepted stream, and accept the
 * next; after a failure, teffi_accept_retry() accepts later. in: arg, a link_door.
 * teffi_link_heartbeat_start - start the ticker thread, which uses the link at once. in: link, all
 * of it initialized; teffi_polling_start() may follow.
 * errs: TEFF_E_IO.
 * teffi_link_heartbeat_stop - end that thread, and wait for it. in: link->freeing is set. */
void teffi_accept_handle_result(void *arg, const teffi_stream_result *result);
TEFF_MUST_USE teff_err teffi_link_heartbeat_start(teffi_link *link);
void teffi_link_heartbeat_stop(teffi_link *link);
