/* frame.h - encodes messages and control frames to bytes on a connection, and decodes them.
 * Way:     net send -> [frame] -> link ===> link -> [frame] -> message event
 * Threads: pure functions.
 *
 *   u32 length of the rest | u8 kind | u8 hops | u16 flags | u16 has | fields | body
 *
 *   little-endian; a field is present if its bit in `has` is set; it is then not zero. The order:
 *     SRC  u32 silo, u32 incarnation       TYPE   u32
 *     NODE u32 silo, u32 incarnation (to)  METHOD u32
 *     PID  u32 slot, u32 generation (to)   TTL    u32 milliseconds left
 *     CALL u32 slot, u32 generation,       ERR    u16
 *          u64 cookie                      KEY    u16 length, bytes
 *                                          TEXT   u16 length, bytes without zero
 *                                          ONCE   16 bytes, which may be zeros
 *                                          TRANSACTION  u32 length, bytes
 *   The body takes the remaining bytes. A message has one encoding; all other bytes are
 *   malformed. */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <teff/error.h>
#include "message/msg.h"

/* Kinds besides TEFFI_MSG_*: control frames. They have no fields; the payload follows `has`. */
enum {
    TEFFI_FRAME_HELLO = 16,
    TEFFI_FRAME_REFUSE = 17,
    TEFFI_FRAME_ACK = 18,
    TEFFI_FRAME_HEARTBEAT = 19,
    TEFFI_FRAME_BYE = 20,
    TEFFI_FRAME_BYE_ACK = 21,
    TEFFI_FRAME_VIEW = 22, /* between silos; the payload is the version of a view, u64, not 0 */
};

enum { TEFFI_VIEW_BYTES = 8 }; /* payload of TEFFI_FRAME_VIEW */

enum {
    TEFFI_FRAME_PREFIX = 4, /* the length itself */
    TEFFI_FRAME_HEAD = 10,  /* prefix, kind, hops, flags, has */
    /* with all fields, without once and without the bytes of key, text and transaction */
    TEFFI_FRAME_FIXED_MAX = TEFFI_FRAME_HEAD + 5 * 8 + 4 * 4 + 3 * 2,
    TEFFI_KEY_WIRE_MAX = UINT16_MAX,
};

/* A frame's place in a buffer. */
typedef struct teffi_frame {
    uint8_t kind;
    const uint8_t *data; /* first byte after the length prefix */
    size_t len;
} teffi_frame;

/* Longest frame with TEFFI_MSG_ROW: between silos, with a row of a store of up to 16 MiB. */
enum { TEFFI_FRAME_ROW_MAX = 16 * 1024 * 1024 + 64 * 1024 };

/* teffi_frame_max_bytes_for_msg - out: how many bytes msg's frame may have: max_bytes; or, if msg
 * has the flag TEFFI_MSG_ROW, the larger of max_bytes and TEFFI_FRAME_ROW_MAX. */
static inline size_t teffi_frame_max_bytes_for_msg(const teffi_msg *msg, size_t max_bytes)
{
    bool row = (msg->flags & TEFFI_MSG_ROW) && max_bytes < TEFFI_FRAME_ROW_MAX;
    return row ? TEFFI_FRAME_ROW_MAX : max_bytes;
}

/* teffi_frame_may_be_row - does the frame that begins at data have TEFFI_MSG_ROW? out: true also if
 * its head is incomplete, because the flag may be in the rest. */
bool teffi_frame_may_be_row(const uint8_t *data, size_t len);

/* teffi_frame_compute_size_bound - compute how many bytes are enough for msg's frame.
 * in:   max_bytes, the limit of frames without ROW, see teffi_frame_max_bytes_for_msg().
 * out:  *room: the frame's size with its prefix, if it had all fields; *body_len for
 *       teffi_frame_encode().
 * errs: TEFF_E_TOO_LARGE (room, key). */
TEFF_MUST_USE teff_err teffi_frame_compute_size_bound(const teffi_msg *msg, size_t max_bytes,
                                                      size_t *room, size_t *body_len);

/* teffi_frame_encode - write msg's frame to out, which has the room of
 * teffi_frame_compute_size_bound().
 * in:   now_ns: the deadline is encoded as milliseconds left (at least 1).
 * out:  the frame's size. */
size_t teffi_frame_encode(const teffi_msg *msg, size_t body_len, uint64_t now_ns, uint8_t *out);

/* teffi_frame_encode_without_segment - as teffi_frame_encode(), but leaves out the bytes of the
 * zero-copy segment (message/msg.h). out: how many bytes were written; *before: how many of them
 * precede the segment. */
size_t teffi_frame_encode_without_segment(const teffi_msg *msg, size_t body_len,
                                          const teffi_segment *segment, uint64_t now_ns,
                                          uint8_t *out, size_t *before);

/* teffi_frame_encode_control - write a control frame.
 * in:   out, of TEFFI_FRAME_HEAD + len bytes; payload may be NULL when len is 0. */
void teffi_frame_encode_control(uint8_t kind, const uint8_t *payload, size_t len, uint8_t *out);

/* teffi_frame_peek - find the frame at the start of data.
 * in:   max_bytes, limit of a frame.
 * out:  *size with the prefix; 0 if len < 4. If 0 < *size <= len, the frame is complete, and *frame
 *       is set.
 * errs: TEFF_E_TOO_LARGE, TEFF_E_MALFORMED (shorter than a head). */
TEFF_MUST_USE teff_err teffi_frame_peek(const uint8_t *data, size_t len, size_t max_bytes,
                                        size_t *size, teffi_frame *frame);

/* teffi_frame_get_control_payload - get the payload of a control frame. out: false: malformed: the
 * frame has fields, flags or hops. */
TEFF_MUST_USE bool teffi_frame_get_control_payload(const teffi_frame *frame,
                                                   const uint8_t **payload, size_t *len);

/* teffi_frame_encode_view - write a TEFFI_FRAME_VIEW frame. in: out, of TEFFI_FRAME_HEAD +
 * TEFFI_VIEW_BYTES bytes.
 * teffi_frame_decode_view - read its payload. out: the version; 0: malformed. */
void teffi_frame_encode_view(uint64_t version, uint8_t *out);
uint64_t teffi_frame_decode_view(const uint8_t *payload, size_t len);

/* teffi_frame_decode - decode a frame to a new message.
 * in:   memory: NULL: all bytes are copied into the message's arena. Otherwise key, once,
 *       transaction and raw point into the frame, only the text is copied, and memory, from
 *       teffi_chunk_new(), contains the frame; the message owns it on TEFF_OK.
 * errs: TEFF_E_MALFORMED, TEFF_E_NOMEM. */
TEFF_MUST_USE teff_err teffi_frame_decode(const teffi_frame *frame, uint8_t *memory,
                                          uint64_t now_ns, teffi_msg **msg);
