/* codec_same.h - encoder and decoder beside protobuf-c: the same verdict, message and bytes.
 * Way:     test_decode, fuzz_decode -> [codec_same] -> message/{decode,encode}, protobuf-c */
#pragma once

#include <stdlib.h>
#include <string.h>
#include "memory/arena.h"
#include "message/codec.h"

static inline void drop_minus_zeros(ProtobufCMessage *m);

/* The elements of a field that has n of them at slot. */
static inline void drop_in(const ProtobufCFieldDescriptor *field, uint8_t *slot, size_t n)
{
    uint64_t v = 0;
    size_t size = field->type == PROTOBUF_C_TYPE_FLOAT ? 4 : 8;
    for (size_t i = 0; i < n; i++, slot += size) {
        if (field->type == PROTOBUF_C_TYPE_MESSAGE && *(void **)(void *)slot)
            drop_minus_zeros(*(ProtobufCMessage **)(void *)slot);
        else if (field->type == PROTOBUF_C_TYPE_FLOAT || field->type == PROTOBUF_C_TYPE_DOUBLE)
            if (memcpy(&v, slot, size) && v == 1ull << (size * 8 - 1))
                memset(slot, 0, size);
    }
}

/* protobuf-c does not write -0.0, which other protobufs and we do. */
static inline void drop_minus_zeros(ProtobufCMessage *m)
{
    for (unsigned i = 0; i < m->descriptor->n_fields; i++) {
        const ProtobufCFieldDescriptor *field = &m->descriptor->fields[i];
        uint8_t *slot = (uint8_t *)m + field->offset, *count = (uint8_t *)m;
        count += field->quantifier_offset;
        if (field->label == PROTOBUF_C_LABEL_REPEATED)
            drop_in(field, *(uint8_t **)(void *)slot, *(size_t *)(void *)count);
        else if (!(field->flags & PROTOBUF_C_FIELD_FLAG_ONEOF) ||
                 *(uint32_t *)(void *)count == field->id)
            drop_in(field, slot, 1);
    }
}

/* Packed around its longest bytes or text, whatever their length, m is the same. */
static inline bool packs_around(const ProtobufCMessage *m, const uint8_t *expected, size_t n)
{
    teffi_segment segment;
    if (!teffi_find_segment(m, 1, &segment))
        return true;
    uint8_t *rest = malloc(n - segment.len + 1);
    bool same = rest != NULL;
    if (same) {
        size_t before = teffi_pack_without_segment(m, n, &segment, rest);
        same =
            before <= n - segment.len && memcmp(rest, expected, before) == 0 &&
            memcmp(segment.bytes, expected + before, segment.len) == 0 &&
            memcmp(rest + before, expected + before + segment.len, n - segment.len - before) == 0;
    }
    free(rest);
    return same;
}

/* If m is valid, it has n bytes. */
static inline bool checks_as(const ProtobufCMessage *m, size_t n)
{
    static const teffi_limits unlimited = {SIZE_MAX, SIZE_MAX, SIZE_MAX};
    char text[TEFF_TEXT_MAX];
    size_t size;
    return teffi_check_message(m->descriptor, m, &unlimited, "it", &size, text) || size == n;
}

/* All ways of packing m give the n bytes of expected. */
static inline bool packs_as(const ProtobufCMessage *m, const uint8_t *expected, size_t n)
{
    if (protobuf_c_message_get_packed_size(m) != n || teffi_packed_size(m) != n || !checks_as(m, n))
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

static inline uint64_t walk_varint(const uint8_t **at)
{
    uint64_t v = 0;
    for (unsigned shift = 0;; shift += 7) {
        v |= (uint64_t)(**at & 0x7f) << shift;
        if (!(*(*at)++ & 0x80))
            return v;
    }
}

/* Does a singular message come twice, or a field with a number that no field may have? protobuf-c
 * merges the first in a way of its own, and keeps the second. in: bytes that unpack. */
static inline bool is_special(const ProtobufCMessageDescriptor *desc, const uint8_t *at,
                              const uint8_t *end)
{
    uint64_t seen = 0; /* fields, by their place in desc */
    bool found = false;
    while (at < end && !found) {
        uint64_t tag = walk_varint(&at), wire = tag & 7;
        uint64_t n = wire == 1 ? 8 : wire == 5 ? 4 : walk_varint(&at);
        const ProtobufCFieldDescriptor *field =
            protobuf_c_message_descriptor_get_field(desc, (unsigned)(tag >> 3));
        found = tag >> 3 == 0 || tag >> 32 != 0;
        if (!found && field && field->type == PROTOBUF_C_TYPE_MESSAGE) {
            uint64_t bit = 1ull << (field - desc->fields);
            found = (seen & bit && field->label != PROTOBUF_C_LABEL_REPEATED) ||
                    is_special(field->descriptor, at, at + n);
            seen |= bit;
        }
        at += wire == 0 ? 0 : n;
    }
    return found;
}

/* A bool whose only bits are those over 64 is true for protobuf-c, and false for others and us. */
static inline bool has_wide_varint(const uint8_t *data, size_t n)
{
    unsigned run = 0; /* bytes that go on */
    for (size_t i = 0; i < n; i++) {
        if (run >= 9 && data[i] > 1 && data[i] < 0x80)
            return true;
        run = data[i] & 0x80 ? run + 1 : 0;
    }
    return false;
}

/* We refused what protobuf-c took. Packed again, without what only its bytes had, we take it if
 * teffi_check_message does. */
static inline const char *refused_for_a_reason(const ProtobufCMessage *theirs,
                                               const uint8_t *packed, size_t n)
{
    teffi_limits limits = {SIZE_MAX, TEFF_FIELDS_MAX, SIZE_MAX};
    char text[TEFF_TEXT_MAX];
    size_t size;
    teff_arena arena;
    ProtobufCMessage *ours;
    teffi_arena_init(&arena, NULL, 0, 256u * 1024 * 1024);
    bool good = teffi_unpack(theirs->descriptor, packed, n, &arena, &ours) == TEFF_OK;
    teffi_arena_fini(&arena);
    return is_special(theirs->descriptor, packed, packed + n) ||
                   good ==
                       !teffi_check_message(theirs->descriptor, theirs, &limits, "it", &size, text)
               ? NULL
               : "decoder and check disagree";
}

static inline const char *compare_messages(ProtobufCMessage *ours, ProtobufCMessage *theirs)
{
    if (theirs)
        drop_minus_zeros(theirs);
    if (ours)
        drop_minus_zeros(ours);
    const ProtobufCMessage *model = theirs ? theirs : ours;
    size_t size = protobuf_c_message_get_packed_size(model);
    uint8_t *expected = malloc(size + 1);
    const char *what = NULL;
    if (expected)
        protobuf_c_message_pack(model, expected);
    if (!expected || (theirs && !packs_as(theirs, expected, size)))
        what = "protobuf-c's message packs in another way";
    else if (!ours)
        what = refused_for_a_reason(theirs, expected, size);
    else if (!packs_as(ours, expected, size))
        what = "our message packs in another way";
    free(expected);
    return what;
}

/* codec_same - out: NULL: it is; else what is not. */
static inline const char *codec_same(const ProtobufCMessageDescriptor *desc, const uint8_t *data,
                                     size_t n)
{
    teff_arena arena;
    ProtobufCMessage *ours;
    teffi_arena_init(&arena, NULL, 0, 256u * 1024 * 1024);
    teff_err err =
        teffi_unpack_with_options(desc, data, n, TEFF_FIELDS_MAX, n % 2 != 0, &arena, &ours);
    bool special = !err && n && (is_special(desc, data, data + n) || has_wide_varint(data, n));
    ProtobufCMessage *theirs = special ? NULL : protobuf_c_message_unpack(desc, NULL, n, data);
    const char *what = NULL;
    if (!theirs && !err && !special)
        what = "protobuf-c refuses it";
    else if (theirs || ours)
        what = compare_messages(ours, theirs);
    if (theirs)
        protobuf_c_message_free_unpacked(theirs, NULL);
    teffi_arena_fini(&arena);
    return what;
}
