/* codec_same.h - the codec beside protobuf-c: the same verdict, the same message, the same bytes.
 * Way:     test_codec, fuzz_prescan -> [codec_same] -> wire/decode, wire/encode, protobuf-c */
#ifndef TEST_CODEC_SAME_H
#define TEST_CODEC_SAME_H

#include <stdlib.h>
#include <string.h>
#include "base/arena.h"
#include "wire/codec.h"
#include "wire/decode.h"
#include "wire/encode.h"

/* Packed around its longest bytes or text, whatever their length, m is the same. */
static inline bool packs_around(const ProtobufCMessage *m, const uint8_t *expected, size_t n)
{
    teffi_hole hole;
    if (!teffi_pack_hole(m, 1, &hole))
        return true;
    uint8_t *rest = malloc(n - hole.len + 1);
    bool same = rest != NULL;
    if (same) {
        size_t before = teffi_pack_around(m, n, &hole, rest);
        same = before <= n - hole.len && memcmp(rest, expected, before) == 0 &&
               memcmp(hole.bytes, expected + before, hole.len) == 0 &&
               memcmp(rest + before, expected + before + hole.len, n - hole.len - before) == 0;
    }
    free(rest);
    return same;
}

/* All ways of packing m give the n bytes of expected. */
static inline bool packs_as(const ProtobufCMessage *m, const uint8_t *expected, size_t n)
{
    if (protobuf_c_message_get_packed_size(m) != n || teffi_packed_size(m) != n)
        return false;
    uint8_t *theirs = malloc(n + 1), *ours = malloc(n + 1);
    bool same = theirs && ours && protobuf_c_message_pack(m, theirs) == n;
    if (same)
        teffi_pack(m, n, ours);
    same = same && memcmp(theirs, expected, n) == 0 && memcmp(ours, expected, n) == 0;
    free(theirs);
    free(ours);
    return same && packs_around(m, expected, n);
}

/* codec_same - out: NULL: it is; else what is not. */
static inline const char *codec_same(const ProtobufCMessageDescriptor *desc, const uint8_t *data,
                                     size_t n)
{
    teff_arena arena;
    ProtobufCMessage *ours;
    teff_err err, scan = teffi_prescan(desc, data, n);
    teffi_arena_init(&arena, NULL, 0, 256u * 1024 * 1024);
    bool decided = teffi_decode(desc, data, n, n % 2, &arena, &ours, &err);
    const char *what = decided && err != scan ? "another verdict than the pre-scan's" : NULL;
    ProtobufCMessage *theirs = scan ? NULL : protobuf_c_message_unpack(desc, NULL, n, data);
    if (theirs) {
        size_t size = protobuf_c_message_get_packed_size(theirs);
        uint8_t *expected = malloc(size + 1);
        if (expected)
            protobuf_c_message_pack(theirs, expected);
        if (!what && (!expected || !packs_as(theirs, expected, size)))
            what = "protobuf-c's message packs in another way";
        if (!what && decided && !packs_as(ours, expected, size))
            what = "our message packs in another way";
        free(expected);
        protobuf_c_message_free_unpacked(theirs, NULL);
    } else if (!what && decided && !err) {
        what = "protobuf-c refuses it";
    }
    teffi_arena_fini(&arena);
    return what;
}

#endif
