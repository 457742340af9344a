/* incoming.h - the buffer that a connection is read into, as frames. A large frame's message takes
 * the buffer over, so that what was received is not copied; the reader goes on with another one,
 * into which goes the little that was read behind the frame.
 *
 * The buffer grows with what has come: to at most twice that, or at once to what the connection's
 * last large frame took. So who only announces much gets no memory for it.
 *
 * Way:     nng stream -> [incoming] -> link_recv
 * Threads: the connection's reader. */
#ifndef TEFFI_WIRE_INCOMING_H
#define TEFFI_WIRE_INCOMING_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include "wire/frame.h"

enum {
    TEFFI_IN_MIN = 4 * 1024,    /* an idle connection's buffer; read behind a large frame */
    TEFFI_IN_MAX = 256 * 1024,  /* a busy one's, unless a frame is larger */
    TEFFI_IN_LARGE = 16 * 1024, /* a frame that is not copied */
};

/* Zeroed: empty. */
typedef struct teffi_in {
    uint8_t *data;   /* of teffi_chunk_new */
    size_t len, cap; /* what has come; room */
    size_t at;       /* of that, what has been taken */
    size_t frame;    /* length of the frame at at, with its prefix, 0: not known yet */
    size_t large;    /* of the last large frame, 0: none for a while */
    unsigned calm;   /* fits in a row without a large frame, or with little of the buffer used */
} teffi_in;

/* teffi_in_fit - after all whole frames were taken: there is room again, more of it or less.
 * in:   got, by the last read; full: it took all that was offered.
 * out:  false: no memory. */
bool teffi_in_fit(teffi_in *in, size_t got, bool full);

/* teffi_in_room - where the next bytes go. out: how many may; not 0 behind a fit. */
size_t teffi_in_room(const teffi_in *in, uint8_t **at);

/* teffi_in_came - so many did. */
void teffi_in_came(teffi_in *in, size_t n);

/* teffi_in_peek - as teffi_frame_peek, at the first byte that was not taken.
 * out:  *whole: frame is set. */
TEFF_MUST_USE teff_err teffi_in_peek(teffi_in *in, size_t max_bytes, bool *whole,
                                     teffi_frame *frame);

/* teffi_in_skip - the frame that was peeked at, which is whole, is done with. */
void teffi_in_skip(teffi_in *in);

/* teffi_in_take - a message from the frame that was peeked at, which is whole and done with then.
 * errs: as teffi_frame_decode; the frame stays. */
TEFF_MUST_USE teff_err teffi_in_take(teffi_in *in, const teffi_frame *frame, uint64_t now_ns,
                                     teffi_msg **msg);

/* teffi_in_left - bytes that came and were not taken. */
size_t teffi_in_left(const teffi_in *in);

void teffi_in_fini(teffi_in *in);

#endif
