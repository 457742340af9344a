/* encode.h - a message to packed bytes: what protobuf-c writes, to the byte, in less time.
 * Way:     frame, node -> [encode] -> a buffer
 * Threads: pure. */
#ifndef TEFFI_WIRE_ENCODE_H
#define TEFFI_WIRE_ENCODE_H

#include <protobuf-c/protobuf-c.h>
#include <stddef.h>
#include <stdint.h>

/* teffi_packed_size - as protobuf_c_message_get_packed_size. */
size_t teffi_packed_size(const ProtobufCMessage *msg);

/* teffi_pack - as protobuf_c_message_pack. in: size, what teffi_packed_size said of msg. */
void teffi_pack(const ProtobufCMessage *msg, size_t size, uint8_t *out);

#endif
