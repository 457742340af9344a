/* packed.h - requests and responses as bytes.
 * Way:     codegen -> [packed: unpack] -> model; codegen -> [strip] -> protoc-gen-c
 *          codegen -> [packed: pack] -> protoc */
#ifndef TEFFI_CODEGEN_PACKED_H
#define TEFFI_CODEGEN_PACKED_H

#include "model/model.h"

/* teffi_unpack - protobuf-c's unpacking, which by itself recurses without a limit.
 * in:   desc, the message type of the bytes.
 * out:  the message, in the pool; NULL: the bytes are none, or nest deeper than 100 levels. */
void *teffi_unpack(teffi_pool *pool, const ProtobufCMessageDescriptor *desc, teffi_bytes bytes);

/* teffi_pack - out: the bytes, in the pool. */
teffi_bytes teffi_pack(teffi_pool *pool, const ProtobufCMessage *message);

/* teffi_strip - pack the request without teff's options file, its imports, grains and parameter.
 * Strings of the files to generate become const char *.
 * in:   request is changed; model was made from it and must not be used afterwards.
 * out:  the bytes, in the pool. */
teffi_bytes teffi_strip(const teffi_model *model, Protoc__Request *request);

#endif
