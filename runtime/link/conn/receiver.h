/* receiver.h - receives on one connection: splits bytes into frames, collects messages in a batch.
 * The next receive starts only after the batch was handed on, so a slow owner slows the peer down
 * through the socket.
 * Way:     stream -> [receiver] -> driver
 * Threads: the connection's reader, one at a time, see steps.h; conn_reserve has its own lock. */
#pragma once

#include <pthread.h>
#include "base/queue.h"
#include "message/frame.h"
#include "group/deferred.h"
#include "group/inbound.h"
#include "link/conn/buffers.h"

typedef struct teffi_conn teffi_conn;
struct teffi_conns;

enum { LINK_READ_SHORT = 1024 }; /* bytes: after a read this short, no more is expected at once */

enum { LINK_RESERVE_SHARE = 8 }; /* 1/8 of the budget for frames, and 1/8 for spare bytes */

/* Shared by the connections of a link; guarded by lock. */
typedef struct conn_reserve {
    pthread_mutex_t lock;
    size_t frames_bytes; /* memory reserved for incomplete large frames, see bytes_for_frame() */
    size_t spare_bytes; /* clients' buffers beyond that, see teffi_reserve_charge_or_trim_spare() */
    teffi_queue waiting; /* connections that are not read until their frame is reserved */
} conn_reserve;

typedef enum receive_step {
    RECEIVE_MORE,  /* no complete frame is left */
    RECEIVE_FRAME, /* not a message; or before UP or after REFUSE: handle it, then skip it */
    RECEIVE_BATCH, /* the batch is full */
    RECEIVE_WAITS, /* no memory for the next frame: the caller calls teffi_reserve_or_enqueue() */
    RECEIVE_BROKEN /* the caller ends the connection */
} receive_step;

typedef struct conn_receiver {
    read_buffer buffer;
    size_t offered, got; /* of the last read: room offered, bytes received */
    bool filled;         /* the last read filled its room, or left a frame unfinished: read on */
    size_t inlined;      /* reads in a row without a callback */
    size_t in_row;       /* bytes of these reads, and of the one before */
    bool large;         /* a message with a large body came since the last extra read was decided */
    bool none_followed; /* the last extra read after a large frame found nothing */
    unsigned skipped;   /* counts large frames while none_followed */
    bool taken;         /* a frame was taken since the last update_partial_frame_time_limit() */
    size_t partial_bytes;            /* bytes of the partial frame at liveness.partial_since_ns */
    uint64_t frames;                 /* messages taken, not yet added to the counters */
    size_t frame_bytes, spare_bytes; /* counted in the reserve; written under its lock */
    teffi_qnode waiting;             /* in the reserve's queue, with the reader's reference */
    teffi_inbound inbound;           /* while submitted: owned by the executor, holds a reference */
    teffi_deferred next_read;        /* while deferred: holds the reader's reference */
    teffi_queue batch;               /* messages; owned by the batch event once that is posted */
    bool batch_acks;                 /* a BYE_ACK arrived after the batch's messages */
    bool batch_is_last;              /* the connection ends after the batch */
    bool bye_came;                   /* a BYE arrived; a second one is a protocol violation */
} conn_receiver;

void teffi_receiver_fini(teffi_conn *conn);

/* teffi_receiver_add_bytes - n bytes were read into the room that was offered: add them to the
 * buffer, count them, and note whether they filled the room. */
void teffi_receiver_add_bytes(teffi_conn *conn, size_t n);

/* teffi_receiver_has_frame - is there a complete frame, or an invalid one? */
bool teffi_receiver_has_frame(teffi_conn *conn);

/* teffi_receiver_fill_batch - move messages from the buffer to the batch, until the caller must
 * act. out: why it stopped; for RECEIVE_FRAME, *frame, valid until teffi_receiver_skip_frame(). */
receive_step teffi_receiver_fill_batch(teffi_conn *conn, teffi_frame *frame);

/* teffi_receiver_skip_frame - remove the frame of RECEIVE_FRAME. */
void teffi_receiver_skip_frame(teffi_conn *conn);

/* teffi_receiver_report_violation - count, log and record a protocol violation.
 * out:  false, always. */
bool teffi_receiver_report_violation(teffi_conn *conn, const char *what);

/* teffi_receiver_try_read_inline - read without blocking, if more bytes have probably arrived, and
 * the reads in a row were at most 8 and have brought less than 256 KiB. So whatever one peer sends,
 * in one pass over the connections it gets less than 512 KiB read, or 256 KiB and a large frame.
 * out:  true: bytes were read. */
bool teffi_receiver_try_read_inline(teffi_conn *conn);

/* teffi_receiver_run_deferred_read - run the deferred read: read without blocking.
 * in:   here: this thread may handle the bytes; false: do not read. out: true: bytes were read. */
bool teffi_receiver_run_deferred_read(teffi_conn *conn, bool here);

/* teffi_receiver_begin_receive - begin a receive, which ends in the callback of the stream.
 * teffi_receiver_begin_or_defer_receive - the same, but if the last read has read more than
 * LINK_READ_SHORT bytes, and this thread can defer a read, defer the next read (see defer_read()):
 * more bytes have usually arrived by then.
 * in:   the reader's reference, taken over on true. out: false: the stream is closed. */
bool teffi_receiver_begin_receive(teffi_conn *conn);
bool teffi_receiver_begin_or_defer_receive(teffi_conn *conn);

/* teffi_receiver_resume - continue to read a connection that waited for memory. in, out: as
 * teffi_receiver_begin_receive(); false also if there is no memory. */
bool teffi_receiver_resume(teffi_conn *conn);

/* ---- reserve.c: limits the memory of clients' unfinished large frames. The rest of a large frame
 * is read only after its whole length is reserved, in order of arrival, so every frame that was
 * begun can be finished. Until then its connection is not read: the socket fills up ---- */

/* teffi_reserve_frame - reserve memory for a client's incomplete large frame, unless conn already
 * has a reservation. Small frames and frames of silos need no reservation. runs: the reader.
 * out:  false: no room, or other connections wait. The caller reads nothing more, and calls
 *       teffi_reserve_or_enqueue(). */
bool teffi_reserve_frame(teffi_conn *conn);

/* teffi_reserve_or_enqueue - queue conn until its frame is reserved. in: the reader's reference,
 * taken over on true. out: false: reserved now. true: teffi_reserve_dequeue_ready() takes conn off
 * the queue. */
bool teffi_reserve_or_enqueue(teffi_conn *conn);

/* teffi_reserve_charge_or_trim_spare - count the spare bytes of a client's buffer. They are the
 * capacity beyond the reservation, or beyond a buffer for small frames if that is larger. If the
 * link then has too many spare bytes, trim the buffer instead. runs: the reader, after the buffer
 * has changed; the free of the connection. */
void teffi_reserve_charge_or_trim_spare(teffi_conn *conn);

/* teffi_reserve_release - release the reservation: the frame is complete, or will never be.
 * runs: as teffi_reserve_charge_or_trim_spare(). */
void teffi_reserve_release(teffi_conn *conn);

/* teffi_reserve_dequeue_ready - take connections off the queue: killed ones, and those whose frame
 * can be reserved now. out: ready: those connections (receiver.waiting), to be resumed, each with
 * its reference. */
void teffi_reserve_dequeue_ready(struct teffi_conns *conns, teffi_queue *ready);

/* ---- messages from clients: only requests and one-ways to grains, and cancels of their own calls,
 * are admitted, and none of them within a transaction ---- */

typedef enum teffi_admission {
    TEFFI_ADMITTED,
    TEFFI_ADMIT_REFUSED, /* a request or one-way that is not to a grain and is no cancel */
    TEFFI_ADMIT_BROKEN,  /* a response, or within a transaction: clients send neither */
} teffi_admission;

/* teffi_admit_client_message - check a message from a client; set its sender to client, its hop
 * count to 0, and clear its PLACED flag. in: client, the node of its hello. */
teffi_admission teffi_admit_client_message(teffi_msg *msg, teffi_node_id client);
