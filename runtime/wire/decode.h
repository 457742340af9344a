/* decode.h - packed bytes to a message, fast, when there is nothing unusual about them.
 * Way:     codec.c -> [decode]
 * Source:  PERF: generic reflection costs 5 to 8 times an encoder of one's own */
#ifndef TEFFI_WIRE_DECODE_H
#define TEFFI_WIRE_DECODE_H

#include <protobuf-c/protobuf-c.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <teff/error.h>
#include "base/arena.h"

/* teffi_decode - the limits, checks and results of teffi_prescan and protobuf_c_message_unpack.
 * in:   borrow: fields of bytes may point into data, which then lives as long as arena.
 * out:  false: protobuf-c must decide, arena may have been used. true: *err, and *msg when that is
 *       TEFF_OK.
 * errs: TEFF_E_MALFORMED, TEFF_E_TOO_LARGE, TEFF_E_NOMEM. */
bool teffi_decode(const ProtobufCMessageDescriptor *desc, const uint8_t *data, size_t len,
                  bool borrow, teff_arena *arena, ProtobufCMessage **msg, teff_err *err);

#endif
