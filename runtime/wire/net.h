/* net.h - the transport seam: carries messages between nodes. The link over nng is the real one.
 * Way:     process/node -> [net] -> frame -> link(nng) ===> link -> frame -> [net] -> process/node
 * Threads: functions from any thread; events on the transport's threads, on workers, or on
 *          a client's thread in read_begin and read_end; one at a time per peer;
 *          an event must not block and must not call free.
 * Source:  DESIGN section 3 and 8; DEPS section 2 */
#ifndef TEFFI_WIRE_NET_H
#define TEFFI_WIRE_NET_H

#include <stdbool.h>
#include <stdint.h>
#include <teff/error.h>
#include "platform/thread.h"
#include "process/msg.h"

enum { TEFFI_ADDRESS_MAX = 256, TEFFI_CLUSTER_MAX = 64 };
enum { TEFFI_ROLE_SILO = 1, TEFFI_ROLE_CLIENT = 2 };
enum { TEFFI_PROTOCOL_MIN = 1, TEFFI_PROTOCOL_MAX = 1 };

/* What one side says of itself in the hello. */
typedef struct teffi_hello {
    teffi_node_id node;
    uint32_t role;
    uint32_t version_min, version_max;
    char cluster[TEFFI_CLUSTER_MAX + 1];
    char address[TEFFI_ADDRESS_MAX + 1]; /* advertised "host:port", "" for clients */
} teffi_hello;

typedef struct teffi_net_events {
    /* A message from a peer; owned by the receiver of the event. from is the peer of the
     * connection, proven by its hello (not what the message claims). */
    void (*message)(void *arg, const teffi_hello *from, teffi_msg *msg);
    /* May this peer, which dialled us, connect? Asked after the transport's own checks (cluster,
     * version, id clash); the one event that may run beside others of the same peer.
     * TEFF_OK, or TEFF_E_REFUSED with text (TEFF_TEXT_MAX bytes). */
    teff_err (*hello)(void *arg, const teffi_hello *peer, char *text);
    /* A connection in either direction came up after its hello; once for each connection. */
    void (*up)(void *arg, const teffi_hello *peer);
    /* A connection with the peer broke, or could not be made while messages waited for it: what
     * was accepted in either direction may be lost, fail the calls that wait for it; another
     * connection may still be up. clean: the last one closed after a goodbye, nothing was lost. */
    void (*down)(void *arg, const teffi_hello *peer, bool clean);
} teffi_net_events;

struct teffi_exec;

typedef struct teffi_net_options {
    teffi_hello self; /* node, role, cluster, address; versions are the transport's */
    const teffi_net_events *events;
    void *arg;
    const char *tls_cert, *tls_ca; /* PEM files; NULL = plain tcp */
    uint32_t frame_max_bytes;      /* 0 = 1 MiB + 4 KiB */
    uint32_t heartbeat_ms;         /* 0 = 1,000; a peer silent for 5 of them is gone: the same
                                    * on all nodes */
    /* waiting for one peer; 0 = 64 MiB; responses may take twice that */
    uint32_t queue_max_bytes;
    uint32_t hello_timeout_ms; /* the whole handshake; 0 = 10,000 */
    /* Whose workers take long reads apart and put writes off to the end of their pass; it stops
     * before free is called. NULL: neither is done. */
    struct teffi_exec *exec;
} teffi_net_options;

typedef struct teffi_net_counters {
    uint64_t accepted, refused_cluster, refused_version, refused_identity, refused_peer, garbage,
        oversize, malformed, hello_timeouts, silent, frames_in, frames_out, bytes_in, bytes_out,
        writes, dials, dial_failures, refused_system, /* a client's messages to system targets */
        crowded; /* connections closed before their hello, because too many waited */
} teffi_net_counters;

typedef struct teffi_net teffi_net;

/* A client's thread that sleeps until answers come, and reads them itself. */
typedef struct teffi_net_reader {
    teffi_parker *parker; /* it sleeps there; TEFFI_TOKEN_GIVEN: given is set */
    void *given;          /* the net's: what it is to read */
    bool known;           /* the net's: it may be given something */
} teffi_net_reader;

typedef struct teffi_net_ops {
    /* Bind and accept. in: "host:port", "[v6]:port", port 0 = any. out: bound, TEFFI_ADDRESS_MAX+1
     * bytes. errs: TEFF_E_INVALID (the address), TEFF_E_IO (in use); text says which. */
    teff_err (*listen)(teffi_net *net, const char *address, char *bound, char *text);
    /* After listen, before the first message: the address and id that hellos carry. */
    void (*identify)(teffi_net *net, teffi_node_id self, const char *address);
    /* A node that may be sent to: dialled at the first send, redialled when it broke. */
    teff_err (*peer_add)(teffi_net *net, teffi_node_id node, const char *address);
    /* Forget a peer: finish what is queued for it if clean, then close. Later sends: CLOSED. */
    void (*peer_remove)(teffi_net *net, teffi_node_id node, bool clean);
    /* Dial an address whose node is not known (a seed, a gateway). out: the up event, with the
     * hello; on failure done with TEFF_E_UNREACHABLE or TEFF_E_REFUSED and text. done runs once, on
     * a thread that events run on, after the up event. peer holds who answered when err is TEFF_OK;
     * the node is then known as if by peer_add. */
    void (*dial)(teffi_net *net, const char *address,
                 void (*done)(void *arg, teff_err err, const teffi_hello *peer, const char *text),
                 void *arg);
    /* Send msg to a node: known by peer_add or dial (its own dialled connection is used), or, for
     * a client, connected to us. in: msg, moves to the net on TEFF_OK only.
     * errs: TEFF_E_CLOSED (not known, removed, said goodbye: surely not sent),
     * TEFF_E_UNREACHABLE (known
     * but not connected and the last dial failed: surely not sent), TEFF_E_OVERLOADED (its queue is
     * full), TEFF_E_TOO_LARGE, TEFF_E_NOMEM. Messages to one node keep their order. */
    teff_err (*send)(teffi_net *net, teffi_node_id to, teffi_msg *msg);
    /* A thread that is no worker of the executor has sent and is about to wait: what was put off
     * for it to be written together goes now, else within a millisecond or two. May be NULL. */
    void (*flush)(teffi_net *net);
    /* A client's thread is about to sleep on reader->parker: what comes while it is the only one
     * may be given to it, instead of to a thread that would only wake it. Messages that are there
     * are told on this thread. out: false: not by this net; else read_end must follow the sleep,
     * before free. May be NULL. */
    bool (*read_begin)(teffi_net *net, teffi_net_reader *reader);
    /* The sleep is over: what was given is told on this thread. Behind much of it what comes
     * next may be left until a thread of the client's waits again, or for three milliseconds.
     * in:   tokens, that it woke with. out: the same, with those that came meanwhile. */
    uint32_t (*read_end)(teffi_net *net, teffi_net_reader *reader, uint32_t tokens);
    void (*counters)(teffi_net *net, teffi_net_counters *out);
    /* Say goodbye to all: peers stop sending, what both sides accepted before is delivered (message
     * events go on until then), then connections close. Blocks up to timeout_ms.
     * out: TEFF_OK or TEFF_E_TIMEOUT. Only flush and free may follow. */
    teff_err (*shutdown)(teffi_net *net, uint32_t timeout_ms);
    /* Close all at once; no event runs after it returned. Not from an event. */
    void (*free)(teffi_net *net);
} teffi_net_ops;

struct teffi_net {
    const teffi_net_ops *ops;
};

/* teffi_net_nng_new - the link: nng streams over tcp or tls+tcp. Matches platform.net_new. */
struct teffi_platform;
teff_err teffi_net_nng_new(const struct teffi_platform *platform, const teffi_net_options *opt,
                           teffi_net **net, char *text);

#endif
