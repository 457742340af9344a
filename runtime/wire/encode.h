/* encode.h - a message to packed bytes: what protobuf-c writes, to the byte, in less time.
 * Way:     frame, node -> [encode] -> a buffer
 * Threads: pure. */
#ifndef TEFFI_WIRE_ENCODE_H
#define TEFFI_WIRE_ENCODE_H

#include <protobuf-c/protobuf-c.h>
#include <stddef.h>
#include <stdint.h>
#include "process/msg.h"

/* teffi_packed_size - as protobuf_c_message_get_packed_size. */
size_t teffi_packed_size(const ProtobufCMessage *msg);

/* teffi_pack - as protobuf_c_message_pack. in: size, what teffi_packed_size said of msg. */
void teffi_pack(const ProtobufCMessage *msg, size_t size, uint8_t *out);

/* teffi_pack_hole - the longest bytes or string of msg itself, not of what is nested, if it has at
 * least min bytes. out: false: there is none. */
bool teffi_pack_hole(const ProtobufCMessage *msg, size_t min, teffi_hole *hole);

/* teffi_pack_around - as teffi_pack, without the hole's bytes: writes size less those.
 * out:  how many bytes come before them. */
size_t teffi_pack_around(const ProtobufCMessage *msg, size_t size, const teffi_hole *hole,
                         uint8_t *out);

#endif
