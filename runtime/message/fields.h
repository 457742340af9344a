/* fields.h - which fields of a message are present, and their packed size, by descriptor.
 * Way:     encode, decode, check -> [fields]
 * Threads: pure. */
#pragma once

#include <protobuf-c/protobuf-c.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include "base/load.h"

typedef const ProtobufCMessageDescriptor teffi_message_desc;
typedef const ProtobufCFieldDescriptor teffi_field_desc;

enum { TEFFI_VARINT = 0, TEFFI_FIXED64 = 1, TEFFI_BYTES = 2, TEFFI_FIXED32 = 5 };

/* ---- numbers ---- */

static inline size_t teffi_varint_size(uint64_t v)
{
    return v < 0x80 ? 1 : (size_t)(70 - __builtin_clzll(v)) / 7;
}

static inline size_t teffi_tag_size(uint32_t id)
{
    return teffi_varint_size((uint64_t)id << 3);
}

/* out: the value of a number field as a varint encodes it: int32 and enum values are sign-extended
 * to 64 bits, sint32 and sint64 values are zigzag-encoded. */
static inline uint64_t teffi_varint_value(ProtobufCType type, const void *slot)
{
    switch (type) {
    case PROTOBUF_C_TYPE_INT32:
    case PROTOBUF_C_TYPE_ENUM:
        return (uint64_t)(int64_t)(int32_t)teffi_load32(slot);
    case PROTOBUF_C_TYPE_SINT32:
        return teffi_load32(slot) << 1 ^ (0 - (teffi_load32(slot) >> 31));
    case PROTOBUF_C_TYPE_UINT32:
        return teffi_load32(slot);
    case PROTOBUF_C_TYPE_SINT64:
        return teffi_load64(slot) << 1 ^ (0 - (teffi_load64(slot) >> 63));
    case PROTOBUF_C_TYPE_BOOL:
        return *(const protobuf_c_boolean *)slot != 0;
    default:
        return teffi_load64(slot);
    }
}

/* Wire type of each ProtobufCType, and its size in memory. */
static const struct {
    uint8_t wire, size;
} teffi_types[] = {
    [PROTOBUF_C_TYPE_INT32] = {TEFFI_VARINT, 4},
    [PROTOBUF_C_TYPE_SINT32] = {TEFFI_VARINT, 4},
    [PROTOBUF_C_TYPE_SFIXED32] = {TEFFI_FIXED32, 4},
    [PROTOBUF_C_TYPE_INT64] = {TEFFI_VARINT, 8},
    [PROTOBUF_C_TYPE_SINT64] = {TEFFI_VARINT, 8},
    [PROTOBUF_C_TYPE_SFIXED64] = {TEFFI_FIXED64, 8},
    [PROTOBUF_C_TYPE_UINT32] = {TEFFI_VARINT, 4},
    [PROTOBUF_C_TYPE_FIXED32] = {TEFFI_FIXED32, 4},
    [PROTOBUF_C_TYPE_UINT64] = {TEFFI_VARINT, 8},
    [PROTOBUF_C_TYPE_FIXED64] = {TEFFI_FIXED64, 8},
    [PROTOBUF_C_TYPE_FLOAT] = {TEFFI_FIXED32, 4},
    [PROTOBUF_C_TYPE_DOUBLE] = {TEFFI_FIXED64, 8},
    [PROTOBUF_C_TYPE_BOOL] = {TEFFI_VARINT, sizeof(protobuf_c_boolean)},
    [PROTOBUF_C_TYPE_ENUM] = {TEFFI_VARINT, sizeof(int)},
    [PROTOBUF_C_TYPE_STRING] = {TEFFI_BYTES, sizeof(char *)},
    [PROTOBUF_C_TYPE_BYTES] = {TEFFI_BYTES, sizeof(ProtobufCBinaryData)},
    [PROTOBUF_C_TYPE_MESSAGE] = {TEFFI_BYTES, sizeof(void *)},
};

/* out: the wire type of a single value of this type. A packed list of such values has another wire
 * type, TEFFI_BYTES. */
static inline unsigned teffi_wire_type_of(ProtobufCType type)
{
    return teffi_types[type].wire;
}

/* out: the bytes that a value of this type takes in memory, alone or as an element of a list. */
static inline size_t teffi_value_memory_size(ProtobufCType type)
{
    return teffi_types[type].size;
}

/* out: packed size of a number, without its tag. */
static inline size_t teffi_number_size(ProtobufCType type, const void *slot)
{
    unsigned wire = teffi_wire_type_of(type);
    return wire == TEFFI_FIXED32   ? 4
           : wire == TEFFI_FIXED64 ? 8
                                   : teffi_varint_size(teffi_varint_value(type, slot));
}

/* ---- strings and bytes ---- */

/* out: the content of a string or bytes field; NULL counts as empty. */
static inline ProtobufCBinaryData teffi_bytes_of(ProtobufCType type, const void *slot)
{
    if (type == PROTOBUF_C_TYPE_BYTES) {
        const ProtobufCBinaryData *bytes = slot;
        return (ProtobufCBinaryData){bytes->data ? bytes->len : 0, bytes->data};
    }
    const char *text = *(char *const *)slot;
    return (ProtobufCBinaryData){text ? strlen(text) : 0, (uint8_t *)(uintptr_t)text};
}

/* ---- presence ---- */

/* Is the value zero or empty? Numbers are compared by their bits, so -0.0 is not zero. Not inlined,
 * because the usual types are tested without this function. */
__attribute__((noinline, unused)) static bool teffi_value_is_zero_or_empty(ProtobufCType type,
                                                                           const void *slot)
{
    switch (type) {
    case PROTOBUF_C_TYPE_STRING: {
        const char *text = *(char *const *)slot;
        return !text || !text[0];
    }
    case PROTOBUF_C_TYPE_BYTES: {
        const ProtobufCBinaryData *bytes = slot;
        return !bytes->len || !bytes->data;
    }
    case PROTOBUF_C_TYPE_MESSAGE:
        return !*(void *const *)slot;
    case PROTOBUF_C_TYPE_BOOL:
        return !*(const protobuf_c_boolean *)slot;
    default:
        return teffi_value_memory_size(type) == 4 ? !teffi_load32(slot) : !teffi_load64(slot);
    }
}

/* Is the field present in the message m? Only present fields are written. Each kind of field
 * records its presence in its own way; a plain field (teffi_field_is_plain()) is present if it is
 * not zero or empty.
 * in: field, not repeated. */
__attribute__((noinline, unused)) static bool teffi_field_is_present(teffi_field_desc *field,
                                                                     const uint8_t *m)
{
    const void *slot = m + field->offset;
    const void *quantifier = m + field->quantifier_offset;
    bool is_message = field->type == PROTOBUF_C_TYPE_MESSAGE;
    if (field->label == PROTOBUF_C_LABEL_REQUIRED)
        return true;
    if (field->flags & PROTOBUF_C_FIELD_FLAG_ONEOF)
        return *(const uint32_t *)quantifier == field->id && !(is_message && !*(void *const *)slot);
    if (field->label == PROTOBUF_C_LABEL_NONE)
        return !teffi_value_is_zero_or_empty(field->type, slot);
    if (!is_message && field->type != PROTOBUF_C_TYPE_STRING)
        return *(const protobuf_c_boolean *)quantifier != 0;
    const void *pointer = *(void *const *)slot;
    return pointer && pointer != field->default_value;
}

/* ---- plain fields, which most messages consist of ---- */

/* Is it a proto3 field that is not optional, not repeated, and not in a oneof? */
static inline bool teffi_field_is_plain(teffi_field_desc *field)
{
    return field->label == PROTOBUF_C_LABEL_NONE && !(field->flags & PROTOBUF_C_FIELD_FLAG_ONEOF);
}

/* out: the packed size of a plain field with its tag; 0 if its value is zero or empty, because such
 * a field is not written. in: field, not a message. */
static inline size_t teffi_plain_field_size(teffi_field_desc *field, const void *slot)
{
    uint64_t v;
    size_t n;
    switch (field->type) {
    case PROTOBUF_C_TYPE_UINT64:
    case PROTOBUF_C_TYPE_INT64:
        v = teffi_load64(slot);
        return v ? teffi_tag_size(field->id) + teffi_varint_size(v) : 0;
    case PROTOBUF_C_TYPE_UINT32:
        v = teffi_load32(slot);
        return v ? teffi_tag_size(field->id) + teffi_varint_size(v) : 0;
    case PROTOBUF_C_TYPE_STRING:
        n = teffi_bytes_of(PROTOBUF_C_TYPE_STRING, slot).len;
        return n ? teffi_tag_size(field->id) + teffi_varint_size(n) + n : 0;
    case PROTOBUF_C_TYPE_BYTES:
        n = teffi_bytes_of(PROTOBUF_C_TYPE_BYTES, slot).len;
        return n ? teffi_tag_size(field->id) + teffi_varint_size(n) + n : 0;
    default:
        if (teffi_value_is_zero_or_empty(field->type, slot))
            return 0;
        return teffi_tag_size(field->id) + teffi_number_size(field->type, slot);
    }
}

/* ---- lists ---- */

static inline size_t teffi_list_len(teffi_field_desc *field, const uint8_t *m)
{
    return *(const size_t *)(const void *)(m + field->quantifier_offset);
}

/* out: the first element. in: a list that is not empty. */
static inline const uint8_t *teffi_list_first(teffi_field_desc *field, const uint8_t *m)
{
    return *(uint8_t *const *)(const void *)(m + field->offset);
}
