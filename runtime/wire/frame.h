/* frame.h - a message as bytes on a connection, and the few frames that carry none.
 * Way:     net send -> [frame] -> link(nng) ===> link -> [frame] -> message event
 * Threads: pure functions.
 * Source:  DESIGN section 3
 *
 *   u32 length of what follows | u8 kind | u8 hops | u16 flags | u16 has | fields | body
 *
 *   little-endian; a field is there when its bit in has is set, in this order, and then not zero:
 *     SRC  u32 silo, u32 incarnation       TYPE   u32
 *     VIA  u32 silo, u32 incarnation       METHOD u32
 *     NODE u32 silo, u32 incarnation (to)  TTL    u32 milliseconds left
 *     PID  u32 slot, u32 generation (to)   ERR    u16
 *     CALL u32 slot, u32 generation        KEY    u16 length, bytes
 *                                          TEXT   u16 length, bytes without zero
 *   The body is what is left. One message has one encoding; any other bytes are malformed. */
#ifndef TEFFI_WIRE_FRAME_H
#define TEFFI_WIRE_FRAME_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <teff/error.h>
#include "process/msg.h"

/* Kinds beside TEFFI_MSG_*. These have no fields: what follows has is their payload. */
enum {
    TEFFI_FRAME_HELLO = 16,
    TEFFI_FRAME_REFUSE = 17,
    TEFFI_FRAME_ACK = 18,
    TEFFI_FRAME_HEARTBEAT = 19,
    TEFFI_FRAME_BYE = 20,
    TEFFI_FRAME_BYE_ACK = 21,
};

enum {
    TEFFI_FRAME_PREFIX = 4, /* the length itself */
    TEFFI_FRAME_HEAD = 10,  /* prefix, kind, hops, flags, has */
    TEFFI_KEY_WIRE_MAX = UINT16_MAX,
};

/* A frame's place in a buffer. */
typedef struct teffi_frame {
    uint8_t kind;
    const uint8_t *data; /* behind the length */
    size_t len;
} teffi_frame;

/* teffi_frame_size - bytes that msg takes as a frame.
 * in:   max_bytes, of a whole frame.
 * out:  *size with the length prefix; *body_len for teffi_frame_encode.
 * errs: TEFF_E_TOO_LARGE (frame, key). */
TEFF_MUST_USE teff_err teffi_frame_size(const teffi_msg *msg, size_t max_bytes, size_t *size,
                                        size_t *body_len);

/* teffi_frame_encode - write msg to out, which has the size that teffi_frame_size said.
 * in:   now_ns turns the deadline into milliseconds left (at least 1). */
void teffi_frame_encode(const teffi_msg *msg, size_t body_len, uint64_t now_ns, uint8_t *out);

/* teffi_frame_encode_around - as teffi_frame_encode, without the hole's bytes (process/msg.h): it
 * writes so many less. out: how many bytes come before them. */
size_t teffi_frame_encode_around(const teffi_msg *msg, size_t body_len, const teffi_hole *hole,
                                 uint64_t now_ns, uint8_t *out);

/* teffi_frame_control - write a frame of another kind.
 * in:   out, of TEFFI_FRAME_HEAD + len bytes; payload may be NULL when len is 0. */
void teffi_frame_control(uint8_t kind, const uint8_t *payload, size_t len, uint8_t *out);

/* teffi_frame_peek - is there a whole frame at the start of data?
 * in:   max_bytes, of a whole frame.
 * out:  *size of it with its prefix, 0 while fewer than 4 bytes are there; when size <= len,
 *       *frame is set.
 * errs: TEFF_E_TOO_LARGE, TEFF_E_MALFORMED (shorter than a head). */
TEFF_MUST_USE teff_err teffi_frame_peek(const uint8_t *data, size_t len, size_t max_bytes,
                                        size_t *size, teffi_frame *frame);

/* teffi_frame_payload - of a control frame. out: false when it has fields or hops. */
TEFF_MUST_USE bool teffi_frame_payload(const teffi_frame *frame, const uint8_t **payload,
                                       size_t *len);

/* teffi_frame_decode - a message of its own from a frame; key, raw and text point into one copy
 * in its arena.
 * errs: TEFF_E_MALFORMED, TEFF_E_NOMEM. */
TEFF_MUST_USE teff_err teffi_frame_decode(const teffi_frame *frame, uint64_t now_ns,
                                          teffi_msg **msg);

/* teffi_frame_decode_within - as teffi_frame_decode, without the copy: key and raw point into the
 * frame. in: memory that the frame lies in, of teffi_chunk_new; on TEFF_OK it is the message's. */
TEFF_MUST_USE teff_err teffi_frame_decode_within(const teffi_frame *frame, uint8_t *memory,
                                                 uint64_t now_ns, teffi_msg **msg);

#endif
