/* codec.h - protobuf messages to packed bytes and back, by protobuf-c's descriptors, with limits
 * that protobuf-c lacks.
 * Way:     msg, node, hello, cluster/rows, grains -> [check, encode, decode]
 * Threads: pure. The recursion depth is that of nested messages: at most TEFF_DEPTH_MAX in check
 *          and decode; encode does not limit it. */
#pragma once

#include <protobuf-c/protobuf-c.h>
#include <teff/limits.h>
#include "message/msg.h"

/* ---- check.c ---- */

/* Limits of a message, besides TEFF_DEPTH_MAX. A packed list counts as one field; every other
 * value, also an unknown one, counts as a field. */
typedef struct teffi_limits {
    size_t bytes;  /* packed */
    size_t fields; /* including those of nested messages */
    size_t memory; /* bytes of structs, texts, lists and unknown fields */
} teffi_limits;

/* teffi_check_message - check that a message keeps the limits, that its strings are UTF-8, and that
 * no required message and no message in a list is NULL.
 * in:   desc, of msg. what: how the text names the message, "the request". text, of TEFF_TEXT_MAX
 *       bytes, may be NULL.
 * out:  *packed: the packed size, on TEFF_OK only. On an error text is set: what, with the value
 *       and the limit, or with the field that is wrong.
 * errs: TEFF_E_TOO_LARGE, TEFF_E_MALFORMED. */
TEFF_MUST_USE teff_err teffi_check_message(const ProtobufCMessageDescriptor *desc,
                                           const ProtobufCMessage *msg, const teffi_limits *limits,
                                           const char *what, size_t *packed, char *text);

/* ---- encode.c: the same bytes as protobuf-c in less time. Two exceptions: -0.0 is written, and
 * so is a NULL string in a oneof, as an empty one, so that decoding yields a copy ---- */

/* teffi_packed_size - as protobuf_c_message_get_packed_size(). */
size_t teffi_packed_size(const ProtobufCMessage *msg);

/* teffi_pack - as protobuf_c_message_pack(). in: size, from teffi_packed_size(). */
void teffi_pack(const ProtobufCMessage *msg, size_t size, uint8_t *out);

/* teffi_find_segment - find the longest bytes or string field of msg itself (not repeated, not of
 * nested messages) of at least min bytes. out: false: there is none. */
bool teffi_find_segment(const ProtobufCMessage *msg, size_t min, teffi_segment *segment);

/* teffi_pack_without_segment - as teffi_pack(), but leaves out the segment's bytes: writes size -
 * segment->len bytes. out: how many of the written bytes precede the segment. */
size_t teffi_pack_without_segment(const ProtobufCMessage *msg, size_t size,
                                  const teffi_segment *segment, uint8_t *out);

/* ---- decode.c ---- */

/* teffi_unpack - decode packed bytes into arena. Unknown fields are kept.
 * in:   data, may be NULL if len is 0. Each occurrence of a field counts, also in nested messages;
 *       a packed list is one field. Limit: TEFF_FIELDS_MAX.
 * out:  *msg, NULL on an error; the arena may have been used even then.
 * runs: on a thread's or worker's own stack; on a fiber's only with a desc that cannot nest deeply,
 *       as cluster/rows.c does.
 * errs: TEFF_E_MALFORMED (wire format, field number 0, a required field that is missing, bad UTF-8
 *       or a zero byte in a string), TEFF_E_TOO_LARGE (depth over TEFF_DEPTH_MAX, fields),
 *       TEFF_E_NOMEM. */
TEFF_MUST_USE teff_err teffi_unpack(const ProtobufCMessageDescriptor *desc, const uint8_t *data,
                                    size_t len, teff_arena *arena, ProtobufCMessage **msg);

/* teffi_unpack_with_options - as teffi_unpack(), with fields_max instead of TEFF_FIELDS_MAX.
 * in:   borrows: fields of type bytes may point into data, which must live as long as arena. */
TEFF_MUST_USE teff_err teffi_unpack_with_options(const ProtobufCMessageDescriptor *desc,
                                                 const uint8_t *data, size_t len, size_t fields_max,
                                                 bool borrows, teff_arena *arena,
                                                 ProtobufCMessage **msg);
