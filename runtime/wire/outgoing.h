/* outgoing.h - what a connection has yet to write: bytes in one buffer and, between them, large
 * parts of messages, which stay where they lie until they are written.
 *
 *     data  |head key .. prefix|suffix, small frames ..|head .. prefix|suffix|
 *     cuts                     ^ bytes of a message                   ^ of another
 *
 * Way:     link_send -> [outgoing] -> nng stream
 * Threads: none of its own; link.h says who holds which. */
#ifndef TEFFI_WIRE_OUTGOING_H
#define TEFFI_WIRE_OUTGOING_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include "process/msg.h"

/* nng takes no more (1.5.2). */
enum { TEFFI_OUT_PIECES = 8 };

typedef struct teffi_out_piece {
    const uint8_t *bytes;
    size_t len;
} teffi_out_piece;

typedef struct teffi_out_cut {
    size_t at; /* in data: before its byte there */
    const uint8_t *bytes;
    size_t len;
    teffi_msg *msg; /* holds the bytes, freed when they are written; NULL: lent, see borrow */
} teffi_out_cut;

typedef struct teffi_out {
    uint8_t *data;
    size_t len, cap; /* of data */
    teffi_out_cut *cuts;
    unsigned n_cuts, cuts_cap;
    size_t total;   /* bytes in data and cuts */
    unsigned spare; /* times in a row that little of a large buffer was needed */
} teffi_out;

/* How far it is written. Zeroed: nothing. */
typedef struct teffi_out_at {
    size_t total, data, cut_done;
    unsigned cut;
} teffi_out_at;

/* teffi_out_reserve - room for so many more bytes and one cut. out: false: no memory. */
bool teffi_out_reserve(teffi_out *out, size_t more);

/* teffi_out_add - what was written behind data's end. in: more, reserved. */
void teffi_out_add(teffi_out *out, size_t more);

/* teffi_out_cut_in - len bytes that lie elsewhere go before data[at]; room was reserved, and
 * nothing lies behind but this very frame.
 * in:   msg, holds them and is taken over; NULL: teffi_out_own before they go away. */
void teffi_out_cut_in(teffi_out *out, size_t at, const uint8_t *bytes, size_t len, teffi_msg *msg);

/* teffi_out_own - copies what is lent and not written yet. out: false: no memory. */
bool teffi_out_own(teffi_out *out, const teffi_out_at *at);

/* teffi_out_own_newest - the same of the newest cut, all of it. out: false: no memory, and the cut
 * is gone. */
bool teffi_out_own_newest(teffi_out *out);

/* teffi_out_pieces - the next bytes to be written, max at most. out: their number. */
size_t teffi_out_pieces(const teffi_out *out, const teffi_out_at *at, size_t max,
                        teffi_out_piece pieces[TEFFI_OUT_PIECES], unsigned *n);

/* teffi_out_written - n bytes more are; messages are freed with their last. */
void teffi_out_written(teffi_out *out, teffi_out_at *at, size_t n);

/* teffi_out_empty - all is written. Memory is kept, but for what one burst of over max bytes
 * needed; and that not at once: fresh pages cost more than what is written. */
void teffi_out_empty(teffi_out *out, size_t max);

/* teffi_out_fini - with the messages it holds. */
void teffi_out_fini(teffi_out *out);

#endif
