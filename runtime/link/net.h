/* net.h - the interface that carries messages between nodes. Two implementations: the link, and the
 * simulator of the tests.
 * Way:     process/node -> [net] -> frame -> link ===> link -> frame -> [net] -> process/node
 * Threads: functions: any. Events: the transport's threads, workers, the monitor, the ticker, a
 *          client's thread in wait, the thread that stops the executor or calls free; one at a time
 *          per peer, unless noted. An event must not block or call free. */
#pragma once

#include <stdbool.h>
#include <stdint.h>
#include <teff/error.h>
#include "os/thread.h"
#include "message/hello.h"
#include "message/msg.h"
#include "stream/stream.h"

/* Hellos and texts are borrowed until the event returns. */
typedef struct teffi_net_events {
    /* A message from a peer; owned by the receiver of the event. from: the hello of the connection;
     * it is not taken from the message. */
    void (*message)(void *arg, const teffi_hello *from, teffi_msg *msg);
    /* May this peer, which dialled us, connect? Called after the net's own checks (cluster,
     * version, listener, id clash), but before the peer has proved that it knows the secret. hello
     * and gone may run concurrently with other events of the same peer.
     * Returns TEFF_OK, or TEFF_E_REFUSED with text (TEFF_TEXT_MAX bytes). */
    teff_err (*hello)(void *arg, const teffi_hello *peer, char *text);
    /* May this silo, which we dialled, have the certificate that it has shown (peer->key)? It has
     * proved that it owns the key. NULL: it may. Returns as hello. */
    teff_err (*dialled)(void *arg, const teffi_hello *peer, char *text);
    /* This silo, whose hello was accepted, knew this version of the view when it sent the frames
     * that follow on the connection. Called when a frame says so, maybe before the up event, and
     * concurrently with other events of the peer. NULL: ignored. */
    void (*view)(void *arg, const teffi_hello *peer, uint64_t version);
    /* This node accepted a connection's hello, but the connection ended before it came up. */
    void (*gone)(void *arg, const teffi_hello *peer);
    /* A connection in either direction came up after its hello; once for each connection. */
    void (*up)(void *arg, const teffi_hello *peer);
    /* A connection with the peer ended. If it is not clean, messages accepted in either direction
     * may be lost, except those that unsent returns: fail the calls that wait for this peer.
     * Another connection may still be up. clean: the peer's last connection that was up closed
     * after a goodbye, and nothing was lost. A clean end of another connection is not reported. */
    void (*down)(void *arg, const teffi_hello *peer, bool clean);
    /* A request now belongs to the bytes to be written to a node, so the down event of that
     * connection comes later. Not called for a request that unsent returns. Called under a lock of
     * the net, from send or after a handshake, concurrently with other events: must not call the
     * net. */
    void (*sent)(void *arg, teffi_node_id to, const teffi_msg *request);
    /* A message that send accepted and that was certainly not sent, because its connection did not
     * come up, or then had no memory for it. Owned by the receiver of the event; the message
     * borrows nothing. A message whose deadline passes before its connection is up is dropped:
     * neither sent nor unsent is called for it. */
    void (*unsent)(void *arg, const teffi_hello *peer, teffi_msg *msg);
} teffi_net_events;

struct teffi_exec;

/* As teff_transport in <teff/silo.h>. */
typedef enum teffi_transport_kind {
    TEFFI_TRANSPORT_DEFAULT,
    TEFFI_TRANSPORT_NNG,
    TEFFI_TRANSPORT_REACTOR
} teffi_transport_kind;

typedef struct teffi_net_options {
    teffi_hello self; /* node, role, cluster, address; the net sets the versions */
    const teffi_net_events *events;
    void *arg;
    teffi_transport_kind transport;
    teffi_tls_files tls; /* all NULL: no TLS. TEFFI_TRANSPORT_REACTOR has none and ignores them */
    /* Files with the secrets that peers must know, borrowed by net_new; NULL: none. */
    const char *secret_file, *client_secret_file;
    uint32_t frame_max_bytes; /* 0 = 1 MiB + 4 KiB */
    /* 0 = 1,000. A connection silent for 5 heartbeats is closed. Must be equal on all nodes. */
    uint32_t heartbeat_ms;
    /* Most bytes queued for one peer; 0 = 64 MiB. Responses may take twice that, system messages
     * four times. */
    uint32_t queue_max_bytes;
    /* Counts received messages and bytes waiting to be written. While it is exceeded, requests and
     * one-ways for grains are refused. Borrowed; NULL: no limit. */
    teffi_budget *budget;
    /* The end of a silo's lease, by the platform's clock. From then on nothing is written:
     * connections break instead. 0: no limit. Borrowed; may be NULL. */
    const _Atomic uint64_t *until_ns;
    uint32_t hello_timeout_ms; /* the dial and the whole handshake; 0 = 10,000 */
    uint32_t clients_max;      /* connected at a time; 0 = 10,000 */
    /* Runs received batches, deferred reads and deferred writes; it stops before free is called.
     * NULL: batches run on the transport's threads, writes are not deferred. */
    struct teffi_exec *exec;
} teffi_net_options;

typedef struct teffi_net teffi_net;

typedef struct teffi_net_ops {
    /* Bind; the OS queues connections until accept. Once for each door, before accept. A net that
     * listens at TEFFI_DOOR_GATEWAY accepts clients only there, and silos only at TEFFI_DOOR_SILOS.
     * in: see teffi_address_is_valid; port 0 = any.
     * text: TEFF_TEXT_MAX bytes or NULL. out: bound, TEFFI_ADDRESS_MAX+1 bytes.
     * errs: TEFF_E_INVALID (the address; listens already), TEFF_E_IO (in use), with text. */
    teff_err (*listen)(teffi_net *net, teffi_door door, const char *address, char *bound,
                       char *text);
    /* After listen, once: accept connections, including those queued since listen. */
    void (*accept)(teffi_net *net);
    /* Set the address and id that later hellos carry. Before the first accept or dial; may be
     * called again: connections that have sent their hello keep the earlier ones. */
    void (*identify)(teffi_net *net, teffi_node_id self, const char *address);
    /* out: TEFFI_KEY_BYTES bytes: this node's own teffi_hello.key; NULL: it has no certificate. The
     * op may be NULL: no TLS. */
    const uint8_t *(*key)(teffi_net *net);
    /* Allow sends to a node; if they are allowed already, change its address for later dials. It is
     * dialled at the first send, and redialled when that connection breaks.
     * errs: TEFF_E_INVALID (not a silo's id, the address), TEFF_E_CLOSED (after shutdown),
     * TEFF_E_NOMEM. */
    teff_err (*peer_add)(teffi_net *net, teffi_node_id node, const char *address);
    /* The node, known by peer_add, has joined the cluster with the certificate that has this key:
     * close its connections with a key that does not fit (teffi_key_fits()), and refuse later ones.
     * The op may be NULL: no TLS. */
    void (*expect_key)(teffi_net *net, teffi_node_id node, const uint8_t *key);
    /* The messages and heartbeats that this silo sends to silos from now on carry this version of
     * the view (TEFFI_FRAME_VIEW). Versions must rise. The op may be NULL. */
    void (*carry_view)(teffi_net *net, uint64_t version);
    /* Remove a peer: close its connections, after a goodbye if clean. Later sends to a silo:
     * CLOSED, until it is added or dialled again. */
    void (*peer_remove)(teffi_net *net, teffi_node_id node, bool clean);
    /* The silo was declared dead: remove it without a goodbye. What its connections have received,
     * and was not reported yet, is dropped. */
    void (*peer_dead)(teffi_net *net, teffi_node_id node);
    /* The peer leaves the cluster: from now on send refuses requests and one-ways for grains with
     * TEFF_E_CLOSED. Other messages are sent as before, until peer_remove. Messages keep their
     * order across this call. */
    void (*peer_left)(teffi_net *net, teffi_node_id node);
    /* Dial an address whose node is not known (a seed, a gateway). done runs once, on a thread that
     * events run on; if the dial cannot start, within dial. peer and text are borrowed until done
     * returns. On success it runs after the up event, with the peer's hello; the peer is then known
     * as if by peer_add. On failure err is TEFF_E_UNREACHABLE or TEFF_E_REFUSED, with a text that
     * does not contain the address; peer is not NULL, but must not be used. */
    void (*dial)(teffi_net *net, const char *address,
                 void (*done)(void *arg, teff_err err, const teffi_hello *peer, const char *text),
                 void *arg);
    /* Send msg to a silo known by peer_add or dial, on the connection that we dialled; or to a
     * client that is connected to us. Messages to one node keep their order.
     * in: msg, moves to the net on TEFF_OK only; on an error it was not sent.
     * errs: TEFF_E_CLOSED (not known, removed, left, said goodbye; after shutdown),
     * TEFF_E_UNREACHABLE (not connected, and the last dial failed; the connection breaks),
     * TEFF_E_OVERLOADED (its queue is full, the budget is exceeded), TEFF_E_TOO_LARGE,
     * TEFF_E_NOMEM. */
    teff_err (*send)(teffi_net *net, teffi_node_id to, teffi_msg *msg);
    /* Called by a thread outside the executor before it waits for a response. Writes the frames
     * kept for coalescing. On a client it then sleeps on parker until there is a token, and this
     * thread may receive messages and report their events meanwhile.
     * out: true: it slept and *tokens is set. false: the caller sleeps. The op may be NULL. */
    bool (*wait)(teffi_net *net, teffi_poll_parker *parker, uint32_t *tokens);
    /* Say goodbye to all peers: they stop sending, messages accepted by either side are delivered
     * (message events continue until then), then connections close. Blocks up to timeout_ms.
     * Afterwards send and peer_add return TEFF_E_CLOSED, and dials fail.
     * out: TEFF_OK, or TEFF_E_TIMEOUT: connections may be left, until free. */
    teff_err (*shutdown)(teffi_net *net, uint32_t timeout_ms);
    /* Close all connections at once, and free the net. No event runs after it has returned. Not
     * from an event. Meanwhile only events may call other ops. in: may be NULL. */
    void (*free)(teffi_net *net);
} teffi_net_ops;

struct teffi_net {
    const teffi_net_ops *ops;
};

/* teffi_net_link_new - create a link. The type matches platform.net_new.
 * in:   platform, borrowed until free. opt, copied, but not the budget, until_ns and exec that it
 *       points to. text, of TEFF_TEXT_MAX bytes, may be NULL.
 * errs: TEFF_E_NOMEM, TEFF_E_INVALID (a file), TEFF_E_IO (no thread, no descriptor; of the reactor
 *       also no memory), with text. */
struct teffi_platform;
teff_err teffi_net_link_new(const struct teffi_platform *platform, const teffi_net_options *opt,
                            teffi_net **net, char *text);
