/* codec.h - look at packed protobuf bytes before protobuf-c does: it recurses without a limit.
 * Way:     link -> frame -> [codec] -> protobuf_c_message_unpack on a worker's own stack
 * Source:  RELIABILITY section 2, protobuf-c: a 126-byte message kills a 64 KiB stack */
#ifndef TEFFI_WIRE_CODEC_H
#define TEFFI_WIRE_CODEC_H

#include <protobuf-c/protobuf-c.h>
#include <stddef.h>
#include <stdint.h>
#include <teff/error.h>
#include "base/arena.h"

enum { TEFFI_DEPTH_MAX = 32, TEFFI_FIELDS_MAX = 100000 };

/* teffi_prescan - would these bytes unpack within the limits? Walks desc's nested messages.
 * runs: iteratively, with a fixed stack.
 * errs: TEFF_E_MALFORMED (wire format, field number 0, bad UTF-8 or a zero byte in a string field),
 *       TEFF_E_TOO_LARGE (depth > TEFFI_DEPTH_MAX, fields > TEFFI_FIELDS_MAX). */
TEFF_MUST_USE teff_err teffi_prescan(const ProtobufCMessageDescriptor *desc, const uint8_t *data,
                                     size_t len);

/* teffi_unpack - unpack into arena what passes the pre-scan: in one pass of our own (decode.h), or,
 * where something is unusual, by protobuf-c behind it. out: *msg. errs: as above, TEFF_E_NOMEM. */
TEFF_MUST_USE teff_err teffi_unpack(const ProtobufCMessageDescriptor *desc, const uint8_t *data,
                                    size_t len, teff_arena *arena, ProtobufCMessage **msg);

/* teffi_unpack_borrow - as teffi_unpack; fields of bytes may point into data, which lives as long
 * as arena does. */
TEFF_MUST_USE teff_err teffi_unpack_borrow(const ProtobufCMessageDescriptor *desc,
                                           const uint8_t *data, size_t len, teff_arena *arena,
                                           ProtobufCMessage **msg);

#endif
