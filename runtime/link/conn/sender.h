/* sender.h - sends on one connection: encodes messages to frames, queues and writes them.
 *
 *     unopened --handshake over--> pending --swap--> in flight --written--> completed
 *
 * Way:     next_hop, handshake, goodbye -> [sender] -> stream
 * Threads: guarded by conn->lock, unless noted. A worker's frames are written when it is otherwise
 *          idle (deferred). Other threads write at once; shortly after a write they keep their
 *          frames until they wait, at most for about a millisecond (coalesced). */
#pragma once

#include <teff/error.h>
#include "base/queue.h"
#include "message/frame.h"
#include "group/deferred.h"
#include "link/conn/buffers.h"
#include "stream/stream.h"

typedef struct teffi_conn teffi_conn;
struct teffi_conns;

enum {
    LINK_WRITE_MAX = 256 * 1024,  /* most bytes of one write */
    LINK_FLUSH_BYTES = 16 * 1024, /* with this many pending bytes a write is not delayed */
    LINK_LARGE = 16 * 1024,       /* least size of a large frame, and of a zero-copy segment */
    LINK_COALESCE_NS = 1000000,   /* a frame sent this soon after a write is kept for coalescing */
};

typedef enum sender_closing {
    SENDER_STAYS,
    SENDER_LINGERS, /* the connection is closed once everything is written */
    SENDER_CLOSED,  /* no more writes start: killed, ended, replaced, or a write has failed */
} sender_closing;

typedef struct conn_sender {
    write_buffer pending;    /* frames; before open only those of the handshake */
    uint64_t pending_frames; /* messages in `pending`, not added to the counters yet */
    teffi_queue unopened;    /* messages accepted before open; no part of them was sent */
    size_t unopened_bytes;
    size_t counted_bytes; /* bytes of both buffers and `unopened`, as counted in the budget */
    uint64_t view;        /* the last one that was appended as a VIEW frame, or needs none */
    uint64_t pending_ns;  /* time for the pending frames, see read_clock_for_deadline(); 0: none */
    bool open;            /* the handshake is over: messages go to `pending`, not to `unopened` */
    bool finished;        /* a goodbye was appended, or is in `goodbyes`, or `unopened` was moved
                           * to another connection: no message may follow */
    uint32_t goodbyes;    /* 1 << kind: BYE, BYE_ACK, to be appended after `unopened`, at open */
    bool peer_left;       /* the peer left the cluster: no message for a grain may follow */
    bool deferred;        /* the executor has write_deferred, which holds a reference */
    bool coalesced;       /* conns->coalesced has write_coalesced, which holds a reference */
    bool urgent;          /* a thread is about to wait for the response to a pending frame */
    bool ends_conn;       /* the reader has stopped: end the connection after the write in flight */
    bool writing;         /* a write is in flight */
    sender_closing closing;
    teffi_deferred write_deferred, write_coalesced;

    /* Owned by the thread that has set `writing`, then by the stream's callback. in_flight.total
     * does not change meanwhile, so other threads may read it with the lock. */
    write_buffer in_flight; /* empty, unless a write is in flight or has failed */
    write_position written; /* how much of in_flight is written */
} conn_sender;

void teffi_sender_init(teffi_conn *conn);
void teffi_sender_fini(teffi_conn *conn);

/* teffi_sender_send - send a message on this connection.
 * in:   msg, taken over on TEFF_OK only; neither conns->lock nor conn->lock is held.
 * errs: TEFF_E_CLOSED (finished, or peer_left and msg is for a grain), TEFF_E_UNREACHABLE (the
 *       sender is closed), TEFF_E_OVERLOADED, TEFF_E_TOO_LARGE, TEFF_E_NOMEM. */
teff_err teffi_sender_send(teffi_conn *conn, teffi_msg *msg);

/* teffi_sender_send_and_unlock - the same, called with conn->lock held, which it always releases.
 * in:   room, body_len, from teffi_frame_compute_size_bound(). */
teff_err teffi_sender_send_and_unlock(teffi_conn *conn, teffi_msg *msg, size_t room,
                                      size_t body_len);

/* teffi_sender_send_control - append a control frame, and write all pending frames now. A VIEW
 * frame precedes it if the sender is open and the connection does not carry this node's view yet.
 * If a write is in flight, the frames are written after it, maybe by a deferred or coalesced write.
 * If the sender is closed, nothing is appended; if there is no memory, conn lingers. runs: no lock
 * held. */
void teffi_sender_send_control(teffi_conn *conn, uint8_t kind, const uint8_t *payload, size_t len);

/* teffi_sender_open - the handshake is over: encode the unopened messages and write them. If the
 * memory is not enough for all, the rest stays unopened, and conn lingers. runs: no lock held. */
void teffi_sender_open(teffi_conn *conn);

/* teffi_sender_finish_with_goodbye - append BYE or BYE_ACK after all accepted messages, and accept
 * no more. A coalesced write sends the frames later: the caller calls
 * teffi_sender_write_if_thread_coalesced() once it holds no lock, otherwise the ticker writes
 * them. runs: also with conns->lock held. */
void teffi_sender_finish_with_goodbye(teffi_conn *conn, uint8_t kind);

/* Coalescing: a thread outside the executor cannot defer a write. So its frames that follow shortly
 * after a write are kept until the thread waits, or LINK_FLUSH_BYTES are pending, or the ticker
 * writes them within about LINK_SOON_NS.
 * teffi_sender_write_coalesced - write the kept frames of all threads. runs: no lock held.
 * teffi_sender_write_if_thread_coalesced - the same, if this thread has kept frames since its last
 * such write. */
void teffi_sender_write_coalesced(struct teffi_conns *conns);
void teffi_sender_write_if_thread_coalesced(struct teffi_conns *conns);

/* teffi_sender_close_and_move_unopened - move unopened messages and goodbyes to another connection,
 * which is not open yet and has no messages; close the sender of `from`. */
void teffi_sender_close_and_move_unopened(teffi_conn *from, teffi_conn *to);

/* teffi_sender_close_and_take_unopened - close the sender, and take the messages of which no part
 * was or will be sent. The handshake may still run on another thread. out: the messages
 * (teffi_msg.link), owned by the caller. */
teffi_queue teffi_sender_close_and_take_unopened(teffi_conn *conn);

/* teffi_sender_linger - write the pending frames, then kill the connection. Does nothing if the
 * sender is closed. runs: no lock held. */
void teffi_sender_linger(teffi_conn *conn);

/* teffi_sender_close - start no more writes. out: true: a write is in flight; its callback ends the
 * connection, because only that callback knows what was written. */
bool teffi_sender_close(teffi_conn *conn);

/* teffi_sender_has_unsent - is a frame or message not written? in: the sender is closed or
 * finished, so no message is added. */
bool teffi_sender_has_unsent(teffi_conn *conn);

/* teffi_sender_complete_write - take the result of a write: write the rest, or the next frames.
 * runs: the callback of the stream.
 * out:  true: the reader has stopped, so the caller ends the connection; it owns the write's
 *       reference. */
bool teffi_sender_complete_write(teffi_conn *conn, const teffi_stream_result *result);
