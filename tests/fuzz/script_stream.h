/* script_stream.h - a transport whose bytes, ends and dials a script moves, one step at a time, on
 * one thread. It replaces teffi_socket_transport_new (the linker's --wrap), so that a whole link
 * runs on it.
 * Way:     fuzz_conn -> [script_stream] -> callbacks of the link
 * Threads: one. A callback runs only inside a script_ function or the poller's run. */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include "message/proof.h"
#include "stream/stream.h"

enum { SCRIPT_STREAMS = 6, SCRIPT_DIALS = 6, SCRIPT_QUEUE = 640 * 1024 };

typedef struct script_queue { /* bytes of one direction; what does not fit is lost */
    uint8_t bytes[SCRIPT_QUEUE];
    size_t len;
} script_queue;

typedef struct script_stream {
    teffi_stream base;
    bool used, dialled; /* dialled: by the link */
    bool closed;        /* by the link */
    bool called;        /* call_written is due */
    void *to;           /* the receive under way */
    size_t to_len;
    struct iovec pieces[TEFFI_STREAM_PIECES]; /* the write under way */
    unsigned n_pieces;
    script_queue sent, written; /* by the peer, to be received; by the link, not looked at yet */
    /* what the link has written so far */
    bool knows_nonce, refused, said_bye;
    uint64_t view;                         /* of the last VIEW frame */
    uint8_t nonce[TEFFI_NONCE_BYTES];      /* of its hello */
    uint8_t own_digest[TEFFI_PROOF_BYTES]; /* of the link's hello */
    /* of the last hello that the peer has sent */
    uint8_t peer_digest[TEFFI_PROOF_BYTES];
    uint32_t peer_silo;
} script_stream;

typedef struct script_dial {
    struct script_transport *transport;
    bool used, started, cancelled;
    teffi_stream_done *done;
    void *arg;
} script_dial;

typedef struct script_transport {
    teffi_transport base;
    teffi_poller poller;
    bool tries;                  /* streams have receive_now and write_now */
    bool tls;                    /* the link reads its certificate; streams do not encrypt */
    bool accepting[TEFFI_DOORS]; /* an accept is under way */
    teffi_door door;             /* of the last accept; with two, they take turns */
    bool no_listener;
    script_stream streams[SCRIPT_STREAMS];
    script_dial dials[SCRIPT_DIALS];
} script_transport;

/* The transport of the link that is made next. It stays the caller's. */
extern script_transport *script_next;

/* script_accept - let the link accept a stream. out: NULL: it accepts none now, or there is no
 * place. */
script_stream *script_accept(script_transport *t);

/* script_dialled - end a dial that was started: with a stream, or as failed.
 * out: NULL: failed, or the link had cancelled it. */
script_stream *script_dialled(script_transport *t, script_dial *dial, bool succeeds);

/* script_send - the peer sends bytes, to be received by script_receive. */
void script_send(script_stream *s, const uint8_t *bytes, size_t n);
/* script_receive - up to n bytes reach the link; none, if it does not receive now.
 * script_write - up to n bytes of the write under way are written.
 * script_break - the peer has closed: what is under way fails. */
void script_receive(script_stream *s, size_t n);
void script_write(script_stream *s, size_t n);
void script_break(script_stream *s);
