/* buffers.h - the bytes of one connection: those that were read, and those to be written.
 * Way:     stream -> [read_buffer] -> receiver; sender -> [write_buffer] -> stream
 * Threads: the connection's reader; the sender, see sender.h. */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include "message/frame.h"
#include "stream/stream.h"

/* ---- read_buffer.c: received bytes, and the frames in them. The message of a large frame takes
 * over the buffer, which avoids a copy; the bytes after it move to a new buffer. The capacity grows
 * only as bytes arrive, or to fit the last large frame, so a peer cannot take memory by only
 * announcing a long frame ---- */

enum {
    LINK_READ_BUFFER_MIN = 4 * 1024, /* capacity at first; also the room after a large frame */
    /* a read that fills its room grows the buffer only below this capacity */
    LINK_READ_BUFFER_MAX = 256 * 1024,
    /* frames of this size and more are not copied, if they fill half of the buffer */
    LINK_READ_LARGE = 16 * 1024,
};

/* Zeroed: empty. */
typedef struct read_buffer {
    uint8_t *data;   /* from teffi_chunk_new() */
    size_t len, cap; /* received bytes; capacity */
    size_t at;       /* offset of the first byte not taken */
    size_t frame;    /* length of the frame at `at`, with its prefix; 0: not known yet */
    size_t large;    /* length of the last large frame; 0: none, see CALM_MAX */
    /* if large is set: calls of _fit since the last large frame; otherwise: reads in a row that
     * used less than 1/8 of the capacity */
    unsigned calm;
} read_buffer;

/* teffi_read_buffer_fit - grow or shrink the buffer, after all whole frames were taken.
 * in:   got, bytes of the last read; full: that read filled its room, or left a frame unfinished.
 * out:  false: no memory. */
bool teffi_read_buffer_fit(read_buffer *in, size_t got, bool full);

/* teffi_read_buffer_trim - make the capacity the bytes not taken plus LINK_READ_BUFFER_MIN, and
 * expect no large frame. Without memory, the capacity stays. */
void teffi_read_buffer_trim(read_buffer *in);

/* teffi_read_buffer_room - find the room for the next bytes, which the caller then adds to len.
 * out:  the room's size, not 0 after _fit has returned true; *at: its first byte.
 * teffi_read_buffer_left - received bytes not taken yet. */
size_t teffi_read_buffer_room(const read_buffer *in, uint8_t **at);
size_t teffi_read_buffer_left(const read_buffer *in);

/* teffi_read_buffer_peek, _may_be_row - as teffi_frame_peek() and teffi_frame_may_be_row(), at the
 * first byte not taken. out: *whole: the frame is complete, *frame is set. */
TEFF_MUST_USE teff_err teffi_read_buffer_peek(read_buffer *in, size_t max_bytes, bool *whole,
                                              teffi_frame *frame);
bool teffi_read_buffer_may_be_row(const read_buffer *in);

/* teffi_read_buffer_is_tls - do the bytes not taken begin as a TLS handshake or alert? */
bool teffi_read_buffer_is_tls(const read_buffer *in);

/* teffi_read_buffer_skip_frame - remove the complete frame that was peeked at.
 * teffi_read_buffer_decode_and_remove - decode that frame to a message and remove it. out: *msg,
 * owned by the caller. errs: as teffi_frame_decode(); the frame then stays. */
void teffi_read_buffer_skip_frame(read_buffer *in);
TEFF_MUST_USE teff_err teffi_read_buffer_decode_and_remove(read_buffer *in,
                                                           const teffi_frame *frame,
                                                           uint64_t now_ns, teffi_msg **msg);

void teffi_read_buffer_fini(read_buffer *in);

/* ---- write_buffer.c: one buffer and, between its bytes, zero-copy segments, which are large parts
 * of messages written from where they lie:
 *
 *     data      |head key .. prefix|suffix, small frames ..|head .. prefix|suffix|
 *     segments                     ^ bytes of a message                   ^ of another
 * ---- */

typedef struct write_segment {
    size_t at; /* offset in data: the segment is written before this byte */
    const uint8_t *bytes;
    size_t len;
    teffi_msg *msg; /* owns the bytes, freed when they are written; NULL: borrowed, or written */
} write_segment;

typedef struct write_buffer {
    uint8_t *data;
    size_t len, cap; /* of data */
    write_segment *segments;
    unsigned n_segments, segments_cap;
    size_t total;   /* bytes in data and segments */
    unsigned spare; /* writes in a row that used less than a quarter of data */
} write_buffer;

/* How much is written. Zeroed: nothing. */
typedef struct write_position {
    size_t total;        /* bytes of data and segments */
    size_t data;         /* bytes of data */
    unsigned segment;    /* segments; also the index of the next one */
    size_t segment_done; /* bytes of that next one */
} write_position;

/* teffi_write_buffer_reserve - make room for `more` bytes of data and one segment. out: false: no
 * memory.
 * teffi_write_buffer_commit_data - add `more` bytes, which the caller has stored at data + len. in:
 * room was reserved. */
bool teffi_write_buffer_reserve(write_buffer *out, size_t more);
void teffi_write_buffer_commit_data(write_buffer *out, size_t more);

/* teffi_write_buffer_add_segment - add a zero-copy segment before data[at], within the newest
 * frame; room was reserved. in: msg, owns the bytes, taken over; NULL: they are borrowed. */
void teffi_write_buffer_add_segment(write_buffer *out, size_t at, const uint8_t *bytes, size_t len,
                                    teffi_msg *msg);

/* teffi_write_buffer_copy_borrowed - copy the borrowed bytes that are not written yet, so that
 * their owner may change them. out: false: no memory; some may still be borrowed.
 * teffi_write_buffer_copy_or_drop_newest - copy the newest segment. out: false: no memory; the
 * segment was removed. */
bool teffi_write_buffer_copy_borrowed(write_buffer *out, const write_position *at);
bool teffi_write_buffer_copy_or_drop_newest(write_buffer *out);

/* teffi_write_buffer_list_pieces - list the next bytes to be written, at most max.
 * out:  the number of bytes; pieces and their number *n. */
size_t teffi_write_buffer_list_pieces(const write_buffer *out, const write_position *at, size_t max,
                                      struct iovec pieces[TEFFI_STREAM_PIECES], unsigned *n);

/* teffi_write_buffer_mark_written - move *at by n bytes, which were written; free the messages of
 * the segments that are finished. */
void teffi_write_buffer_mark_written(write_buffer *out, write_position *at, size_t n);

/* teffi_write_buffer_reset - make the buffer empty, after everything was written. The memory is
 * freed only if it is over max bytes and 16 writes in a row have used little of it, because fresh
 * pages cost more than the write.
 * teffi_write_buffer_fini - free the buffer and the messages in it. */
void teffi_write_buffer_reset(write_buffer *out, size_t max);
void teffi_write_buffer_fini(write_buffer *out);
