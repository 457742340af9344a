/* link.h - the inside of the link: nodes, connections, and who may touch what.
 * Way:     net ops -> link_send -> [conn] -> nng stream ===> nng stream -> [conn] -> link_recv ->
 *          link_events -> net events
 * States:  DIALING -stream-> GREETING -hello, ack-> UP -> ENDED; an accepted one starts GREETING
 * Threads: lock order: link->lock, gates, then node->lock or conn->lock (leaves). Callbacks of nng
 *          run on its task threads; a connection has at most one receive and one send in flight.
 *          A connection ends in its reader or its dial callback only, or behind the write that was
 *          in flight then; others kill it, which makes that one come to its end. */
#ifndef TEFFI_WIRE_LINK_H
#define TEFFI_WIRE_LINK_H

#include <nng/nng.h>
#include <nng/supplemental/tls/tls.h>
#include <pthread.h>
#include <stdatomic.h>
#include "base/queue.h"
#include "platform/platform.h"
#include "platform/thread.h"
#include "sched/exec.h"
#include "wire/frame.h"
#include "wire/hello.h"
#include "wire/incoming.h"
#include "wire/net.h"
#include "wire/outgoing.h"

enum {
    LINK_BUCKETS = 1024,
    LINK_WAY_LINES = 512,
    LINK_WAYS = 4,                /* a line */
    LINK_PENDING_MAX = 1024,      /* accepted, not yet through their hello */
    LINK_WRITE_MAX = 256 * 1024,  /* of one write */
    LINK_FLUSH_BYTES = 16 * 1024, /* a pass's frames are written when there are so many */
    LINK_WRITES_INLINE = 4,       /* in a row, for what was appended meanwhile */
    LINK_BURST_NS = 1000000,      /* between two writes of threads that are no workers */
    LINK_BURST_MAX_NS = 1000000,  /* at most, until they are written though nobody waits */
    LINK_READS_INLINE = 8,        /* in a row, when each fills its buffer */
    LINK_GUESS_EVERY = 8,         /* large frames: once more is there another behind it? */
    LINK_LARGE = 16 * 1024,       /* a frame of which a large part is not copied */
    LINK_READERS = 16,            /* groups of connections' reads */
    LINK_READ_HERE = 1024,        /* bytes of a short read: who has it takes it apart */
    LINK_SILENT_HEARTBEATS = 5,
    LINK_HELD_UP_HEARTBEATS = 2, /* between two ticks: this process was held up */
    LINK_BACKOFF_MIN_MS = 20,
    LINK_BACKOFF_MAX_MS = 5000,
    LINK_FRAME_HEARTBEATS = 10, /* for a frame from its first byte to its last */
    LINK_TICK_MIN_MS = 5,
    LINK_TICK_MAX_MS = 250,
    LINK_BATCH_MAX = 512, /* messages handed on before the next receive */
    LINK_SEEN_SETS = 256,
    LINK_SEEN_WAYS = 8,
};

/* Facts that are counted, and logged at most once a second each; in the counters' order. */
typedef enum link_fact {
    LINK_ACCEPTED,
    LINK_REFUSED_CLUSTER,
    LINK_REFUSED_VERSION,
    LINK_REFUSED_IDENTITY,
    LINK_REFUSED_PEER,
    LINK_GARBAGE,
    LINK_OVERSIZE,
    LINK_MALFORMED,
    LINK_HELLO_TIMEOUTS,
    LINK_SILENT,
    LINK_FRAMES_IN,
    LINK_FRAMES_OUT,
    LINK_BYTES_IN,
    LINK_BYTES_OUT,
    LINK_WRITES,
    LINK_DIALS,
    LINK_DIAL_FAILURES,
    LINK_REFUSED_SYSTEM,
    LINK_CROWDED,
    LINK_FACTS
} link_fact;

typedef enum conn_state {
    CONN_DIALING,  /* no stream yet */
    CONN_GREETING, /* the peer's hello is awaited */
    CONN_ACKING,   /* acceptor: the dialler's ack is awaited */
    CONN_UP,
    CONN_ENDED,
} conn_state;

typedef enum event_kind { EVENT_UP, EVENT_BATCH, EVENT_DOWN, EVENT_DONE } event_kind;

typedef struct teffi_conn teffi_conn;
typedef struct teffi_link teffi_link;

/* Something to tell the owner; waits in its node's queue and holds its connection. */
typedef struct link_event {
    teffi_qnode link;
    event_kind kind;
    teffi_conn *conn;
} link_event;

typedef struct link_node {
    teffi_node_id id; /* immutable after init */
    teffi_link *owner;
    _Atomic uint32_t refs; /* release on drop pairs with acquire of the last */
    /* guarded by owner->lock */
    struct link_node *bucket_next;
    char address[TEFFI_ADDRESS_MAX + 1];
    teffi_conn *in, *out; /* in is UP; out is of any state but ENDED */
    uint64_t in_sequence; /* newest seen */
    uint64_t redial_ns;   /* when to dial again, 0 = at the next send */
    uint32_t backoff_ms;
    bool listed;      /* in the table */
    bool known;       /* by peer_add or dial, until peer_remove */
    bool dial_failed; /* the last one */
    bool bye_wanted;  /* we leave it: a BYE goes out on the best connection there is */
    bool bye_acked;   /* and it has answered, all it sent is delivered */
    bool bye_heard;   /* it leaves us: no more sends */
    /* guarded by lock */
    pthread_mutex_t lock;
    teffi_queue events;
    bool draining;
    unsigned ups; /* the drainer's: up events minus ends */
} link_node;

struct teffi_conn {
    /* Stays when the memory is used for another connection: link_way.c. */
    pthread_mutex_t lock;
    uint64_t way;         /* guarded by lock: it carries messages to this node; 0 = to nobody */
    bool was_way;         /* guarded by lock: ever since the memory was allocated */
    teffi_conn *next_old; /* guarded by owner->lock: in link->old */

    /* immutable after init */
    teffi_link *owner; /* the first of those that begin anew */
    bool dialled;
    nng_aio *recv_aio, *send_aio, *dial_aio;
    /* without a callback; NULL: tls, where it cannot be aborted */
    nng_aio *now_aio, *take_aio;
    teffi_group *reader; /* of link->readers */
    nng_stream_dialer *dialer;
    char target[TEFFI_ADDRESS_MAX + 1]; /* dialled address, for texts */
    void (*done)(void *arg, teff_err err, const teffi_hello *peer, const char *text);
    void *done_arg;
    bool expects; /* peer.node was given before the hello */

    _Atomic uint32_t refs;             /* release on drop pairs with acquire of the last */
    _Atomic uint64_t waiting_since_ns; /* a receive is in flight since, 0 = none */
    _Atomic uint64_t partial_since_ns; /* a frame is incomplete since, 0 = none */
    _Atomic uint64_t sending_since_ns; /* a write is in flight since, 0 = none */
    _Atomic uint64_t wrote_ns;         /* the last write's beginning, once it has ended */
    _Atomic bool late;                 /* the ticker killed it: its handshake took too long */

    /* guarded by owner->lock */
    teffi_conn *next, *prev;           /* among all that have not ended */
    teffi_conn *dead_next, *tick_next; /* the ticker's chain */
    bool silent;                       /* the ticker killed it: nothing was heard of its peer */
    _Atomic conn_state state;          /* written under the lock; the reader may look without */
    link_node *node;
    uint64_t deadline_ns; /* of the handshake */
    bool bye_sent;
    bool done_posted;
    teff_err done_err;
    bool replaced; /* a newer connection took its place: what it still brings is dropped */

    /* guarded by lock */
    nng_stream *stream;
    teffi_out control; /* handshake frames: go first, also before UP */
    teffi_out fill;    /* frames that wait; nothing in it is lent when the lock is let go */
    uint64_t fill_frames;
    uint64_t filled_ns; /* the clock at the first of them since they were put off */
    bool put_off;       /* later is with the executor, and holds a reference */
    bool in_burst;      /* burst is with the link, and holds one */
    bool urgent;        /* a thread is about to wait for something in fill */
    bool sending;       /* fly and fly_at are the flight's own meanwhile */
    bool torn;          /* the last flight did not arrive whole; sending stays */
    bool ending;        /* the reader came to its end: the flight ends the connection */
    bool open;          /* fill may be written: the handshake is over */
    bool finished;      /* nothing may follow what is in fill */
    bool closed;        /* nothing is written any more */
    bool linger;        /* close when all is written */

    /* written under both gates, read under either; taken before lock */
    pthread_mutex_t read_gate, write_gate;
    bool shut; /* nothing is given to the stream any more */

    teffi_later later;     /* the executor's while put_off */
    teffi_later burst;     /* the link's while in_burst */
    teffi_later next_read; /* the executor's, or the link's, instead of a receive in flight */

    /* the flight's */
    teffi_out fly;
    teffi_out_at fly_at;

    /* the reader's, then its batch event's */
    teffi_in in;
    size_t offered, got; /* room for the last receive, and what it brought */
    bool filled;         /* all of it: there may be more at once */
    unsigned inlined;    /* receives in a row without a callback */
    bool large;          /* a large frame came since the last receive */
    bool missed;         /* the last time that one was looked for behind it, none was there */
    unsigned passed;     /* large frames since */
    uint64_t frames;     /* not counted yet */
    teffi_item item;     /* in reader's queue: go on there */
    bool refused;        /* told so; what it still says is not read */
    teffi_queue batch;
    bool batch_ack;  /* a BYE_ACK came behind the batch */
    bool batch_last; /* the connection ends behind the batch */
    teffi_hello peer;
    uint32_t version;
    uint64_t sequence;
    uint8_t nonce[TEFFI_NONCE_BYTES];
    teff_err why; /* of the end, with text for done */
    char why_text[TEFF_TEXT_MAX];

    /* the end's, before its event */
    bool was_up, lost, clean;
    link_event up_event, batch_event, down_event, done_event;
};

typedef struct seen_silo {
    teffi_node_id node;
    uint64_t stamp;
} seen_silo;

/* Who carried messages to a node last: link_way.c. */
typedef struct link_way {
    _Atomic uint64_t node; /* 0: none */
    teffi_conn *_Atomic conn;
} link_way;

struct teffi_link {
    teffi_net net; /* first: the net is the link */
    /* immutable after init */
    const teffi_platform *platform;
    teffi_net_events events;
    void *arg;
    uint32_t frame_max_bytes, heartbeat_ms, hello_timeout_ms, queue_max_bytes;
    nng_tls_config *tls_dial, *tls_accept;
    nng_aio *accept_aio;
    teffi_thread ticker;
    bool ticking;

    teffi_exec *exec; /* may be NULL */
    teffi_group readers[LINK_READERS];
    _Atomic uint32_t next_reader;
    _Atomic bool direct; /* the executor has stopped: reads stay on nng's threads */

    teffi_parker tick_parker; /* any thread wakes the ticker */
    _Atomic bool tick_asked;  /* to look at everything, not only at what was put off */

    _Atomic uint64_t facts[LINK_FACTS];
    _Atomic uint64_t logged_s[LINK_FACTS];
    _Atomic uint64_t sequence;  /* of dialled connections */
    _Atomic uint64_t self_node; /* self.node in one word; written under lock */

    link_way ways[LINK_WAY_LINES][LINK_WAYS]; /* written under lock, read without */

    teffi_later *_Atomic bursts; /* link_burst.c */
    _Atomic bool burst_due;      /* the ticker was told of them, or of reads */

    teffi_net_reader *_Atomic reader; /* a thread that waits and reads: link_reader.c */
    _Atomic uint32_t reading;         /* threads that wait so, all of them */
    teffi_later *_Atomic reads;       /* put off until one waits */
    _Atomic uint32_t reads_put;       /* how often one was */
    uint32_t reads_seen;              /* the ticker's: at its last look */

    /* guarded by lock */
    pthread_mutex_t lock;
    pthread_cond_t changed; /* for shutdown and free */
    teffi_hello self;
    nng_stream_listener *listener;
    link_node *buckets[LINK_BUCKETS];
    teffi_conn *conns, *dead;
    teffi_conn *old; /* memory of those that were ways */
    unsigned live;   /* connections not yet freed or dead */
    unsigned nodes;
    unsigned pending; /* accepted ones in their handshake */
    bool leaving;     /* shutdown began: no sends */
    bool freeing;     /* no new connections */
    bool accept_again;
    uint64_t ticked_ns, judge_from_ns; /* the last tick; who is silent is closed from then on */
    bool held_up;                      /* before the last tick */
    seen_silo seen[LINK_SEEN_SETS][LINK_SEEN_WAYS];
    uint64_t seen_clock;
};

/* ---- link.c: facts -------------------------------------------------------------------------- */
static inline uint64_t teffi_link_now(const teffi_link *link)
{
    return teffi_now(link->platform);
}

/* teffi_link_on_worker - this thread is a worker of the executor, with a slot, and has a pass. */
static inline bool teffi_link_on_worker(const teffi_link *link)
{
    teffi_exec *exec = link->exec;
    return exec && exec->ops->put_off && exec->ops->worker && exec->ops->worker(exec);
}

/* teffi_link_count - without a line. teffi_link_note - with one, at most one a second of its
 * kind. */
void teffi_link_count(teffi_link *link, link_fact fact, uint64_t n);
void teffi_link_note(teffi_link *link, link_fact fact, const char *fmt, ...)
    __attribute__((format(printf, 3, 4)));

/* ---- link_address.c ------------------------------------------------------------------------- */
/* teffi_link_address_url - the url of an address for nng. out: false when it is none. */
bool teffi_link_address_url(const teffi_link *link, const char *address, char *url, size_t n);
/* teffi_link_address_remote - who is at the other end, for log lines. */
void teffi_link_address_remote(nng_stream *stream, char *text, size_t n);

/* ---- link_nodes.c: called with link->lock held ---------------------------------------------- */
link_node *teffi_link_node_find(teffi_link *link, teffi_node_id id);
/* teffi_link_node_make - find or add. out: NULL when memory is out. */
link_node *teffi_link_node_make(teffi_link *link, teffi_node_id id);
/* teffi_link_node_know - it may be sent to from now on; an earlier goodbye is over.
 * in:   address, checked. */
void teffi_link_node_know(link_node *node, const char *address);
/* teffi_link_node_settle - take it off the table when nothing speaks for keeping it.
 * out:  true: the caller drops the table's reference, without the lock. */
bool teffi_link_node_settle(link_node *node);
void teffi_link_node_ref(link_node *node);
/* teffi_link_node_unref - without the lock. */
void teffi_link_node_unref(link_node *node);
/* teffi_link_seen_newest - is this incarnation at least as new as all seen of its silo? Notes
 * it. */
bool teffi_link_seen_newest(teffi_link *link, teffi_node_id id, bool note);

/* ---- link_conn.c ---------------------------------------------------------------------------- */
/* teffi_link_conn_new - link->lock held; with one reference, the caller's; not listed yet. */
teffi_conn *teffi_link_conn_new(teffi_link *link, bool dialled);
void teffi_link_conn_ref(teffi_conn *conn);
void teffi_link_conn_unref(teffi_conn *conn);
/* teffi_link_conn_list - lock held; takes a reference of its own. */
void teffi_link_conn_list(teffi_conn *conn);
/* teffi_link_conn_kill - its receive or dial callback will end it. runs: anywhere, also lock
 * held. */
void teffi_link_conn_kill(teffi_conn *conn);
/* teffi_link_conn_submit - give an operation to the stream, unless it is shut: nng's streams keep
 * one that comes after the close for ever, and TLS ones do not even let it be cancelled.
 * out:  false: shut; nothing was submitted, no callback comes. */
bool teffi_link_conn_submit(teffi_conn *conn, pthread_mutex_t *gate,
                            void (*start)(nng_stream *, nng_aio *), nng_aio *aio);
/* teffi_link_conn_try - what the socket does at once, or not at all. Mostly it has room, or bytes:
 * then nng is done when it returns, and without a callback no thread of its has to be woken for
 * that. Where it is not done, nothing has happened yet or it is just happening: the abort and the
 * wait tell which. in: aio, without a callback, on a plain tcp stream.
 * out:  true: nng_aio_count(aio) bytes; false: none, by now or for good. */
bool teffi_link_conn_try(teffi_conn *conn, pthread_mutex_t *gate,
                         void (*start)(nng_stream *, nng_aio *), nng_aio *aio);
/* teffi_link_conn_end - once; posts what follows from it. runs: receive and dial callbacks, no
 * lock. */
void teffi_link_conn_end(teffi_conn *conn);
/* teffi_link_conn_why - the reason of the end to come; the first one stays. runs: its callbacks. */
void teffi_link_conn_why(teffi_conn *conn, teff_err err, const char *text);
/* teffi_link_conn_reap - free the dead. runs: not in a callback of theirs. */
void teffi_link_conn_reap(teffi_link *link);
/* teffi_link_conn_forget - free the memory that was kept for use again. The link's end. */
void teffi_link_conn_forget(teffi_link *link);

/* ---- link_dial.c ---------------------------------------------------------------------------- */
/* teffi_link_dial_node - lock held; sets node->out. out: NULL when that cannot even begin; else the
 * caller must teffi_link_dial_start it without the lock. */
teffi_conn *teffi_link_dial_node(link_node *node);
void teffi_link_dial_start(teffi_conn *conn);
void teffi_link_dial_cb(void *arg);
void teffi_link_dial(teffi_net *net, const char *address,
                     void (*done)(void *arg, teff_err err, const teffi_hello *peer,
                                  const char *text),
                     void *arg);

/* ---- link_accept.c -------------------------------------------------------------------------- */
teff_err teffi_link_listen(teffi_net *net, const char *address, char *bound, char *text);
void teffi_link_accept_cb(void *arg);
void teffi_link_accept_more(teffi_link *link);

/* ---- link_greet.c: the handshake, in the reader --------------------------------------------- */
/* teffi_link_greet_first - the dialler's hello. */
void teffi_link_greet_first(teffi_conn *conn);
/* teffi_link_greet_frame - a frame before UP. out: false: the connection ends. */
bool teffi_link_greet_frame(teffi_conn *conn, const teffi_frame *frame);

/* ---- link_way.c: which connection carries messages to a node -------------------------------- */
teff_err teffi_link_send(teffi_net *net, teffi_node_id to, teffi_msg *msg);
/* teffi_link_way_shut - link->lock held: whoever sends to this connection's node looks it up anew.
 * NULL allowed. */
void teffi_link_way_shut(teffi_conn *conn);
void teffi_link_ways_shut(link_node *node); /* both of its connections */

/* ---- link_send.c ---------------------------------------------------------------------------- */
void teffi_link_send_cb(void *arg);
/* teffi_link_send_later - a conn's later: the frames of a pass. */
void teffi_link_send_later(teffi_later *later);
/* teffi_link_send_burst - a conn's burst: the frames of threads that are no workers. */
void teffi_link_send_burst(teffi_later *later);
/* teffi_link_send_control - queue and flush; handshake frames overtake what waits. */
void teffi_link_send_control(teffi_conn *conn, uint8_t kind, const uint8_t *payload, size_t len);
/* teffi_link_send_open - the handshake is over: what waits may go. */
void teffi_link_send_open(teffi_conn *conn);
/* teffi_link_send_finish - BYE or BYE_ACK behind this connection's queue; flush follows. */
void teffi_link_send_finish(teffi_conn *conn, uint8_t kind);
void teffi_link_send_flush(teffi_conn *conn);
/* teffi_link_send_steal - move what waits from one connection to another, not yet open one. */
void teffi_link_send_steal(teffi_conn *from, teffi_conn *to);
/* teffi_link_send_linger - close it when all is written. */
void teffi_link_send_linger(teffi_conn *conn);
/* teffi_link_send_msg - a message on this very connection; takes msg on TEFF_OK only. */
teff_err teffi_link_send_msg(teffi_conn *conn, teffi_msg *msg);
/* teffi_link_send_locked - the same with conn->lock held, which it lets go.
 * in:   size, body_len, as teffi_frame_size said. */
teff_err teffi_link_send_locked(teffi_conn *conn, teffi_msg *msg, size_t size, size_t body_len);

/* ---- link_burst.c --------------------------------------------------------------------------- */
/* teffi_link_burst_put - conn's burst, with a reference: until a thread waits, or the
 * ticker comes by. */
void teffi_link_burst_put(teffi_conn *conn);
/* teffi_link_burst_end - write what was put. Without a lock. teffi_link_flush - the net's op. */
void teffi_link_burst_end(teffi_link *link);
/* teffi_link_burst_end_mine - if this thread has put something since it did so last. */
void teffi_link_burst_end_mine(teffi_link *link);
void teffi_link_flush(teffi_net *net);
/* teffi_link_tick_bursts - the ticker is to come by in a millisecond: after something was put. */
void teffi_link_tick_bursts(teffi_link *link);
/* teffi_link_burst_due - the ticker's: has something been put? Then soon: _late - write it, and
 * look at the reads that were put off. */
bool teffi_link_burst_due(teffi_link *link);
void teffi_link_burst_late(teffi_link *link);

/* ---- link_reader.c -------------------------------------------------------------------------- */
/* teffi_link_read_begin, _end - the net's ops. */
bool teffi_link_read_begin(teffi_net *net, teffi_net_reader *reader);
uint32_t teffi_link_read_end(teffi_net *net, teffi_net_reader *reader, uint32_t tokens);
/* teffi_link_reader_give - something came: the thread that waits goes on with it.
 * in:   a reference, the reader's then. out: false: none waits so, or several do. */
bool teffi_link_reader_give(teffi_conn *conn);
/* teffi_link_reader_here - is this thread one that waits, and reads? */
bool teffi_link_reader_here(void);
/* teffi_link_reader_later - put conn's next_read off until a thread waits; the ticker comes by.
 * in:   a reference, next_read's then. out: false: not on this thread, or another one waits. */
bool teffi_link_reader_later(teffi_conn *conn);
/* teffi_link_reader_late - the ticker's: what was put off, when nothing was since its last look, is
 * nng's. in: all: in any case. out: look again in a millisecond. */
bool teffi_link_reader_late(teffi_link *link, bool all);

/* ---- link_recv.c ---------------------------------------------------------------------------- */
void teffi_link_recv_cb(void *arg);
/* teffi_link_recv_later - a conn's next_read: at the end of a pass, or as a thread waits. */
void teffi_link_recv_later(teffi_later *later);
/* teffi_link_recv_go_on - what is still buffered, then the next receive. in: takes one reference
 * over. */
void teffi_link_recv_go_on(teffi_conn *conn);

/* teffi_link_recv_init - the groups of reads, when there is an executor. */
void teffi_link_recv_init(teffi_link *link);
/* teffi_link_recv_reclaim - the executor has stopped: go on here with what it still had. */
void teffi_link_recv_reclaim(teffi_link *link);

/* ---- link_events.c -------------------------------------------------------------------------- */
/* teffi_link_event_post - append to the node's queue. in: takes over one reference of conn. */
void teffi_link_event_post(link_node *node, link_event *event, event_kind kind, teffi_conn *conn);
/* teffi_link_event_drain - tell the owner, unless another thread is at it. runs: callbacks, no
 * lock. */
void teffi_link_event_drain(link_node *node);

/* ---- link_bye.c ----------------------------------------------------------------------------- */
/* teffi_link_bye_say - lock held; put BYE on the best connection, if it carries none yet.
 * out:  a connection to flush and unref without the lock; NULL when there is none. */
teffi_conn *teffi_link_bye_say(link_node *node);
/* teffi_link_bye_heard - the peer leaves. teffi_link_bye_acked - it has answered ours. */
void teffi_link_bye_heard(teffi_conn *conn);
void teffi_link_bye_acked(teffi_conn *conn);
void teffi_link_peer_remove(teffi_net *net, teffi_node_id id, bool clean);
teff_err teffi_link_shutdown(teffi_net *net, uint32_t timeout_ms);

/* ---- link_tick.c ---------------------------------------------------------------------------- */
/* teffi_link_tick_start - the ticker's thread; last of all. errs: TEFF_E_IO. */
TEFF_MUST_USE teff_err teffi_link_tick_start(teffi_link *link);
/* teffi_link_tick_soon - there is something to do earlier than the ticker knows. Any thread. */
void teffi_link_tick_soon(teffi_link *link);
/* teffi_link_tick_stop - freeing is set: no tick runs any more. */
void teffi_link_tick_stop(teffi_link *link);

#endif
