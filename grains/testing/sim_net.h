/* sim_net.h - the inside of the simulated transport: nodes, their peers, and connections.
 * Way:     sim_net (the seam's functions) -> sim_conn (connections) -> sim_wire (frames under way)
 *          sim_wire -> sim_poll, if its node polls -> sim_conn
 * Rules of the real link: between silos one connection for each direction, for a client one;
 * messages of one direction keep their order; what was accepted before a goodbye arrives. */
#pragma once

#include <sys/queue.h>
#include "sim.h"
#include "message/frame.h"
#include "link/net.h"
#include "stream/reactor.h"

typedef struct sim_net sim_net;
typedef struct sim_conn sim_conn;
typedef struct sim_side sim_side;

enum { SIM_PEER_BUCKETS = 256 };

typedef struct sim_peer {  /* a node as one net knows it */
    struct sim_peer *next; /* in its bucket, by its silo */
    sim_net *net;
    teffi_node_id id;
    char address[TEFFI_ADDRESS_MAX + 1];
    sim_conn *in, *out;
    uint64_t in_sequence, redial; /* redial: the plan that counts, 0 = none */
    uint32_t backoff_ms;
    unsigned ups, telling; /* telling: its events on their way to the owner */
    bool listed, known, dial_failed, bye_wanted, bye_acked, bye_heard, left;
} sim_peer;

/* One direction of a polled stream. */
typedef struct sim_edge {
    reactor_side side;
    struct sim_edge *next; /* in came or found */
    bool has_come;         /* in came */
} sim_edge;

typedef struct sim_edges { /* in order; NULL end: empty */
    sim_edge *head, **end;
} sim_edges;

/* An event of a polled net's owner, for the next poll. */
typedef struct sim_told {
    struct sim_told *next;
    sim_fn *fn;
    void *arg;
} sim_told;

struct sim_net {
    teffi_net base;
    sim_net *next; /* of the simulation; kept to its end */
    sim_node *node;
    teffi_hello self;
    teffi_net_events events;
    void *arg;
    size_t frame_max;
    teffi_exec *exec; /* gone when the net is freed */
    sim_peer *peers[SIM_PEER_BUCKETS];
    sim_side *sides; /* of its connections, newest first; also ended ones */
    uint64_t sequence;
    unsigned telling;                 /* events on their way to the owner */
    LIST_HEAD(sim_tells, tell) tells; /* these events */
    bool listening, accepting, leaving, freed;
    bool left; /* freed, and its silo had left the cluster */
    /* sim_poll.c */
    teffi_reactor *reactor;                  /* NULL: not polled, or freed */
    bool (*run_sides)(teffi_poller *poller); /* the reactor's own run */
    sim_edges came, found;                   /* found: by the last wait, for run */
    sim_edge has_told;
    sim_told *told, **told_end;       /* in order */
    bool ticker_looks;                /* soon */
    uint32_t claims_seen;             /* by the ticker, at its last look */
    const _Atomic uint64_t *until_ns; /* nothing is written from then on; NULL, or 0: no limit */
    uint64_t view;                    /* that its frames carry; 0: none */
    sim_net *apart; /* it does not reach this one before apart_until_ns; NULL: it does */
    uint64_t apart_until_ns;
};

enum { SIM_DIALLER = 0, SIM_ACCEPTOR = 1 };

typedef struct sim_frame { /* bytes as the real frame codec wrote them */
    struct sim_frame *next;
    sim_conn *conn;
    uint64_t since_ns; /* when it became pending, then when it arrived */
    int to;            /* side */
    uint8_t kind;      /* SIM_EOF, or a frame's */
    size_t len;
    uint8_t bytes[];
} sim_frame;

enum { SIM_EOF = 255 };

typedef struct sim_frames { /* in order; NULL end: empty */
    sim_frame *head, **end;
    size_t bytes;
} sim_frames;

struct sim_side {
    sim_net *net;
    sim_side *next_of_net;
    sim_peer *peer;
    teffi_hello other; /* what the other side says of itself */
    bool up, ended, finished, bye_sent, replaced;
    bool with_other;      /* ended since the other connection of its pair broke */
    bool deaf;            /* cut: frames in flight to it are lost */
    bool barred;          /* its peer was removed: what has arrived is not given to its owner */
    uint64_t view_sent;   /* by it, in its last VIEW frame */
    uint64_t view_heard;  /* by it, the same */
    bool clean;           /* of the end */
    uint64_t last_due_ns; /* towards this side */
    uint64_t sent_ns;     /* the newest frame towards it */
    sim_frames pending;   /* towards it, and not written yet */
    teffi_deferred write; /* of pending, with the other side's executor while is_deferred */
    bool is_deferred;
    sim_frames received; /* by it, and not handed on yet */
    teffi_inbound batch; /* of received, with its executor while is_submitted */
    bool is_submitted;
    sim_conn *conn;
    /* sim_poll.c, if its net is polled */
    sim_frames arrived; /* and not read yet */
    sim_edge in;
    teffi_deferred next_read; /* instead of a receive; with its executor */
    bool receives;            /* its first receive was begun */
    /* sim_poll.c, if the other side's net is polled */
    sim_edge out; /* there is room for what is pending towards this side */
    bool waits_for_room;
};

struct sim_conn {
    sim_conn *next; /* of the simulation; kept to its end */
    sim *sim;
    uint64_t no, sequence;
    sim_side side[2];
    sim_frames fill;      /* the dialler's, until it is up: a goodbye */
    teffi_queue unopened; /* and messages before it */
    char target[TEFFI_ADDRESS_MAX + 1];
    uint64_t hello_until_ns; /* till then it waits for a paused listener; 0: it does not */
    void (*done)(void *arg, teff_err err, const teffi_hello *peer, const char *text);
    void *done_arg;
    bool done_told, expects, cut;
};

/* ---- sim_net.c ---- */
/* sim_net_reaches - neither is dead, and they are not apart. */
bool sim_net_reaches(const sim_net *from, const sim_net *to);
sim_peer **sim_peer_bucket(sim_net *net, teffi_node_id id);
sim_peer *sim_peer_find(sim_net *net, teffi_node_id id);
sim_peer *sim_peer_make(sim_net *net, teffi_node_id id);
/* sim_peer_settle - unlist a peer that is neither added nor connected. */
void sim_peer_settle(sim_peer *peer);
/* sim_peer_bye - BYE on the best connection, if it carries none yet. */
void sim_peer_bye(sim_peer *peer);

/* sim_net_cut_by_rate - does the connection break with this frame? (sim_faults.wire_breaks) */
void sim_net_cut_by_rate(sim_conn *conn);

/* ---- sim_conn.c ---- */
/* sim_conn_dial - to a peer, or (peer NULL) to an address. */
sim_conn *sim_conn_dial(sim_net *net, sim_peer *peer, const char *address);
/* sim_conn_receive - a frame has come to one side, whose executor chooses who hands it on. in:
 * frame, taken over. */
void sim_conn_receive(sim_conn *conn, int side, sim_frame *frame);
/* sim_conn_end - one side closes; the other learns of it. out of the owner: an event later. */
void sim_conn_end(sim_conn *conn, int side);
/* sim_conn_free_messages - free the messages in net's events that are on their way: the owner of
 * their budget ends now. */
void sim_conn_free_messages(sim_net *net);
/* sim_conn_break - one side closes because the other connection of the pair broke. NULL allowed. */
void sim_conn_break(sim_conn *conn, const sim_net *net);
/* sim_conn_bar - the peer's connections end: give no messages to the owner that have arrived. */
void sim_conn_bar(const sim_peer *peer);
/* sim_conn_give_side - a side is net's from now on. */
void sim_conn_give_side(sim_conn *conn, int side, sim_net *net);
/* sim_conn_side - the side that is net's. */
int sim_conn_side(const sim_conn *conn, const sim_net *net);

/* ---- sim_poll.c ---- */
/* sim_poll_start - let the net's executor poll, if its node is polled. sim_poll_end - it has
 * stopped. */
void sim_poll_start(sim_net *net);
void sim_poll_end(sim_net *net);
/* sim_poll_tell - a poll runs fn(arg), in order with others. in: a polled net that is not freed. */
void sim_poll_tell(sim_net *net, sim_fn *fn, void *arg);
/* sim_poll_init - a side of a new connection. */
void sim_poll_init(sim_conn *conn, sim_side *side);
/* sim_poll_arrived - a frame can be read by a side of a polled net. in: frame, taken over. */
void sim_poll_arrived(sim_side *side, sim_frame *frame);
/* sim_poll_waits_for_room - out: true: net writes what is pending towards a side later. */
bool sim_poll_waits_for_room(sim_net *net, sim_side *to);

/* ---- sim_wire.c ---- */
/* sim_wire_check_age - a violation: it was pending, or had arrived, too long ago. */
void sim_wire_check_age(sim_conn *conn, const sim_frame *frame, const char *what);
/* sim_wire_control - a control frame of a kind. sim_wire_send - a frame on its way to a side, with
 * what is pending; the dialler's wait until it is up. */
void sim_wire_send(sim_conn *conn, int to, sim_frame *frame);
sim_frame *sim_wire_control(uint8_t kind);
/* sim_wire_view - a VIEW frame. sim_wire_decode_view - out: its version; 0: it does not decode. */
sim_frame *sim_wire_view(uint64_t version);
uint64_t sim_wire_decode_view(const sim_frame *frame);
/* sim_wire_put - a message as a frame from a side. sim_wire_wait - until the dialler is up.
 * Both take msg on TEFF_OK only. */
teff_err sim_wire_put(sim_conn *conn, int from, teffi_msg *msg);
teff_err sim_wire_wait(sim_conn *conn, teffi_msg *msg);
/* sim_wire_decode - out: false: it does not. */
bool sim_wire_decode(const sim_net *net, const sim_frame *frame, teffi_msg **msg);
/* sim_wire_eof - the end of the stream, behind all that was written to that side; what is pending
 * is lost. */
void sim_wire_eof(sim_conn *conn, int to);
/* sim_wire_flush - the dialler is up: what waited goes. */
void sim_wire_flush(sim_conn *conn);
/* sim_frames_add, sim_frames_take (the oldest; NULL: none), sim_frames_drop. */
void sim_frames_add(sim_frames *frames, sim_frame *frame);
sim_frame *sim_frames_take(sim_frames *frames);
void sim_frames_drop(sim_frames *frames);
/* sim_wire_drop - what waits for the dialler, is pending, or was received. */
void sim_wire_drop(sim_conn *conn);
/* sim_wire_write_pending - what is pending towards a side goes. sim_wire_write - as deferred. */
void sim_wire_write_pending(sim_side *side);
void sim_wire_write(teffi_deferred *work);
uint64_t sim_wire_delay(sim *s);

/* ---- sim_views.c: what frames say of views ---- */
/* sim_views_check_sent - a violation: a message carries an older view than its sender's.
 * sim_views_check_given - a violation: a message of a silo that the receiver's view calls dead is
 * about to be given to the receiver, the side's owner. Silos that left may still be heard.
 * sim_views_has_left - has the net's silo left the cluster? */
void sim_views_check_sent(const sim_net *from);
void sim_views_check_given(const sim_side *to);
bool sim_views_has_left(const sim_net *net);

/* ---- sim_cancel.c ---- */
/* sim_cancel_arrives - a message is about to be given to its node: note it if it is a cancel.
 * sim_cancel_link_ends - the node forgets the cancels of a peer.
 * sim_cancel_check - a request begins at a node: it is a violation if its cancel came before. */
void sim_cancel_arrives(sim_net *net, teffi_node_id from, teffi_msg *msg);
void sim_cancel_link_ends(sim_net *net, teffi_node_id from);
void sim_cancel_check(sim *s, teffi_node_id at, const teffi_msg *request);
