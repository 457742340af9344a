/* encode.c - a message to packed bytes, from its last byte to its first: so the length of what is
 * nested is known when it is to be written. It walks protobuf-c's descriptors.
 * Way:     frame, node -> [encode] -> a buffer */
#include "wire/encode.h"

#include <stdbool.h>
#include <string.h>

typedef const ProtobufCFieldDescriptor field_desc;

enum { VARINT = 0, FIXED64 = 1, BYTES = 2, FIXED32 = 5 };

/* ---- numbers ---- */

static inline size_t varint_size(uint64_t v)
{
    return v < 0x80 ? 1 : (size_t)(70 - __builtin_clzll(v)) / 7;
}

static inline uint8_t *put_varint(uint8_t *end, uint64_t v)
{
    if (v < 0x80) {
        *--end = (uint8_t)v;
        return end;
    }
    uint8_t *at = end - varint_size(v);
    uint8_t *p = at;
    for (; v >= 0x80; v >>= 7)
        *p++ = (uint8_t)(v | 0x80);
    *p = (uint8_t)v;
    return at;
}

static inline size_t tag_size(uint32_t id)
{
    return varint_size((uint64_t)id << 3);
}

static inline uint8_t *put_tag(uint8_t *end, uint32_t id, unsigned wire)
{
    return put_varint(end, (uint64_t)id << 3 | wire);
}

static uint32_t load32(const void *slot)
{
    uint32_t v;
    memcpy(&v, slot, sizeof v);
    return v;
}

static uint64_t load64(const void *slot)
{
    uint64_t v;
    memcpy(&v, slot, sizeof v);
    return v;
}

/* A number that is written as a varint. */
static uint64_t number_of(ProtobufCType type, const void *slot)
{
    switch (type) {
    case PROTOBUF_C_TYPE_INT32:
    case PROTOBUF_C_TYPE_ENUM:
        return (uint64_t)(int64_t)(int32_t)load32(slot);
    case PROTOBUF_C_TYPE_SINT32:
        return load32(slot) << 1 ^ (0 - (load32(slot) >> 31));
    case PROTOBUF_C_TYPE_UINT32:
        return load32(slot);
    case PROTOBUF_C_TYPE_SINT64:
        return load64(slot) << 1 ^ (0 - (load64(slot) >> 63));
    case PROTOBUF_C_TYPE_BOOL:
        return *(const protobuf_c_boolean *)slot != 0;
    default:
        return load64(slot);
    }
}

static unsigned wire_of(ProtobufCType type)
{
    switch (type) {
    case PROTOBUF_C_TYPE_SFIXED32:
    case PROTOBUF_C_TYPE_FIXED32:
    case PROTOBUF_C_TYPE_FLOAT:
        return FIXED32;
    case PROTOBUF_C_TYPE_SFIXED64:
    case PROTOBUF_C_TYPE_FIXED64:
    case PROTOBUF_C_TYPE_DOUBLE:
        return FIXED64;
    case PROTOBUF_C_TYPE_STRING:
    case PROTOBUF_C_TYPE_BYTES:
    case PROTOBUF_C_TYPE_MESSAGE:
        return BYTES;
    default:
        return VARINT;
    }
}

static size_t element_size(ProtobufCType type)
{
    switch (type) {
    case PROTOBUF_C_TYPE_STRING:
    case PROTOBUF_C_TYPE_MESSAGE:
        return sizeof(void *);
    case PROTOBUF_C_TYPE_BYTES:
        return sizeof(ProtobufCBinaryData);
    case PROTOBUF_C_TYPE_BOOL:
        return sizeof(protobuf_c_boolean);
    case PROTOBUF_C_TYPE_INT64:
    case PROTOBUF_C_TYPE_UINT64:
    case PROTOBUF_C_TYPE_SINT64:
        return 8;
    default:
        return wire_of(type) == FIXED64 ? 8 : 4;
    }
}

/* ---- one value, without its tag ---- */

static ProtobufCBinaryData bytes_of(ProtobufCType type, const void *slot)
{
    if (type == PROTOBUF_C_TYPE_BYTES)
        return *(const ProtobufCBinaryData *)slot;
    const char *text = *(char *const *)slot;
    return (ProtobufCBinaryData){text ? strlen(text) : 0, (uint8_t *)(uintptr_t)text};
}

static size_t value_size(ProtobufCType type, const void *slot)
{
    switch (wire_of(type)) {
    case FIXED32:
        return 4;
    case FIXED64:
        return 8;
    case VARINT:
        return varint_size(number_of(type, slot));
    default:
        break;
    }
    size_t n;
    if (type == PROTOBUF_C_TYPE_MESSAGE) {
        const ProtobufCMessage *m = *(ProtobufCMessage *const *)slot;
        n = m ? teffi_packed_size(m) : 0;
    } else {
        n = bytes_of(type, slot).len;
    }
    return varint_size(n) + n;
}

static uint8_t *put_message(uint8_t *end, const ProtobufCMessage *msg);

static inline uint8_t *put_bytes(uint8_t *end, ProtobufCBinaryData bytes)
{
    end -= bytes.len;
    if (bytes.len)
        memcpy(end, bytes.data, bytes.len);
    return put_varint(end, bytes.len);
}

static uint8_t *put_delimited(uint8_t *end, ProtobufCType type, const void *slot)
{
    if (type == PROTOBUF_C_TYPE_MESSAGE) {
        const ProtobufCMessage *m = *(ProtobufCMessage *const *)slot;
        uint8_t *at = m ? put_message(end, m) : end;
        return put_varint(at, (size_t)(end - at));
    }
    return put_bytes(end, bytes_of(type, slot));
}

static uint8_t *put_value(uint8_t *end, ProtobufCType type, const void *slot)
{
    switch (wire_of(type)) {
    case FIXED32:
        return memcpy(end - 4, slot, 4); /* the build refuses big-endian machines */
    case FIXED64:
        return memcpy(end - 8, slot, 8);
    case VARINT:
        return put_varint(end, number_of(type, slot));
    default:
        return put_delimited(end, type, slot);
    }
}

/* ---- fields ---- */

static bool is_zero(ProtobufCType type, const void *slot)
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
    case PROTOBUF_C_TYPE_FLOAT:
        return *(const float *)slot == 0;
    case PROTOBUF_C_TYPE_DOUBLE:
        return *(const double *)slot == 0;
    case PROTOBUF_C_TYPE_BOOL:
        return !*(const protobuf_c_boolean *)slot;
    default:
        return element_size(type) == 4 ? !load32(slot) : !load64(slot);
    }
}

static bool is_default(field_desc *field, const void *slot)
{
    const void *pointer = *(void *const *)slot;
    return !pointer || pointer == field->default_value;
}

/* Is a field that is not repeated written at all? */
static bool is_there(field_desc *field, const uint8_t *m)
{
    const void *slot = m + field->offset;
    const void *quantifier = m + field->quantifier_offset;
    bool points = field->type == PROTOBUF_C_TYPE_STRING || field->type == PROTOBUF_C_TYPE_MESSAGE;
    if (field->label == PROTOBUF_C_LABEL_REQUIRED)
        return true;
    if (field->flags & PROTOBUF_C_FIELD_FLAG_ONEOF)
        return *(const uint32_t *)quantifier == field->id && !(points && is_default(field, slot));
    if (field->label == PROTOBUF_C_LABEL_NONE)
        return !is_zero(field->type, slot);
    return points ? !is_default(field, slot) : *(const protobuf_c_boolean *)quantifier != 0;
}

static size_t list_size(field_desc *field, const uint8_t *m)
{
    size_t n = *(const size_t *)(const void *)(m + field->quantifier_offset);
    const uint8_t *at = n ? *(uint8_t *const *)(const void *)(m + field->offset) : NULL;
    size_t size = 0, step = element_size(field->type);
    if (!n)
        return 0;
    for (size_t i = 0; i < n; i++, at += step)
        size += value_size(field->type, at);
    if (field->flags & PROTOBUF_C_FIELD_FLAG_PACKED)
        return tag_size(field->id) + varint_size(size) + size;
    return size + n * tag_size(field->id);
}

static uint8_t *put_list(uint8_t *end, field_desc *field, const uint8_t *m)
{
    size_t n = *(const size_t *)(const void *)(m + field->quantifier_offset);
    size_t step = element_size(field->type);
    const uint8_t *first = n ? *(uint8_t *const *)(const void *)(m + field->offset) : NULL;
    bool packed = field->flags & PROTOBUF_C_FIELD_FLAG_PACKED;
    uint8_t *at = end;
    for (size_t i = n; i-- > 0;) {
        at = put_value(at, field->type, first + i * step);
        if (!packed)
            at = put_tag(at, field->id, wire_of(field->type));
    }
    if (n && packed)
        at = put_tag(put_varint(at, (size_t)(end - at)), field->id, BYTES);
    return at;
}

/* ---- what most messages are made of: plain numbers and texts, looked at once ---- */

static inline bool is_plain(field_desc *field)
{
    return field->label == PROTOBUF_C_LABEL_NONE && !(field->flags & PROTOBUF_C_FIELD_FLAG_ONEOF);
}

static inline size_t plain_size(field_desc *field, const void *slot)
{
    uint64_t v;
    size_t n;
    switch (field->type) {
    case PROTOBUF_C_TYPE_UINT64:
    case PROTOBUF_C_TYPE_INT64:
        v = load64(slot);
        return v ? tag_size(field->id) + varint_size(v) : 0;
    case PROTOBUF_C_TYPE_UINT32:
        v = load32(slot);
        return v ? tag_size(field->id) + varint_size(v) : 0;
    case PROTOBUF_C_TYPE_STRING:
        n = bytes_of(PROTOBUF_C_TYPE_STRING, slot).len;
        return n ? tag_size(field->id) + varint_size(n) + n : 0;
    default:
        if (is_zero(field->type, slot))
            return 0;
        return tag_size(field->id) + value_size(field->type, slot);
    }
}

static inline uint8_t *put_plain(uint8_t *end, field_desc *field, const void *slot)
{
    uint64_t v;
    ProtobufCBinaryData text;
    switch (field->type) {
    case PROTOBUF_C_TYPE_UINT64:
    case PROTOBUF_C_TYPE_INT64:
        v = load64(slot);
        return v ? put_tag(put_varint(end, v), field->id, VARINT) : end;
    case PROTOBUF_C_TYPE_UINT32:
        v = load32(slot);
        return v ? put_tag(put_varint(end, v), field->id, VARINT) : end;
    case PROTOBUF_C_TYPE_STRING:
        text = bytes_of(PROTOBUF_C_TYPE_STRING, slot);
        return text.len ? put_tag(put_bytes(end, text), field->id, BYTES) : end;
    default:
        if (is_zero(field->type, slot))
            return end;
        return put_tag(put_value(end, field->type, slot), field->id, wire_of(field->type));
    }
}

size_t teffi_packed_size(const ProtobufCMessage *msg)
{
    const ProtobufCMessageDescriptor *desc = msg->descriptor;
    const uint8_t *m = (const uint8_t *)msg;
    size_t size = 0;
    for (unsigned i = 0; i < desc->n_fields; i++) {
        field_desc *field = &desc->fields[i];
        if (is_plain(field))
            size += plain_size(field, m + field->offset);
        else if (field->label == PROTOBUF_C_LABEL_REPEATED)
            size += list_size(field, m);
        else if (is_there(field, m))
            size += tag_size(field->id) + value_size(field->type, m + field->offset);
    }
    for (unsigned i = 0; i < msg->n_unknown_fields; i++)
        size += tag_size(msg->unknown_fields[i].tag) + msg->unknown_fields[i].len;
    return size;
}

static uint8_t *put_unknown(uint8_t *end, const ProtobufCMessage *msg)
{
    for (unsigned i = msg->n_unknown_fields; i-- > 0;) {
        const ProtobufCMessageUnknownField *field = &msg->unknown_fields[i];
        end -= field->len;
        memcpy(end, field->data, field->len);
        end = put_tag(end, field->tag, (unsigned)field->wire_type);
    }
    return end;
}

/* The fields from first on, those before last. Inlined, for put_message's sake. */
static inline __attribute__((always_inline)) uint8_t *
put_fields(uint8_t *end, const ProtobufCMessage *msg, unsigned first, unsigned last)
{
    const ProtobufCMessageDescriptor *desc = msg->descriptor;
    const uint8_t *m = (const uint8_t *)msg;
    for (unsigned i = last; i-- > first;) {
        field_desc *field = &desc->fields[i];
        if (is_plain(field))
            end = put_plain(end, field, m + field->offset);
        else if (field->label == PROTOBUF_C_LABEL_REPEATED)
            end = put_list(end, field, m);
        else if (is_there(field, m))
            end = put_tag(put_value(end, field->type, m + field->offset), field->id,
                          wire_of(field->type));
    }
    return end;
}

static uint8_t *put_message(uint8_t *end, const ProtobufCMessage *msg)
{
    return put_fields(put_unknown(end, msg), msg, 0, msg->descriptor->n_fields);
}

void teffi_pack(const ProtobufCMessage *msg, size_t size, uint8_t *out)
{
    (void)put_message(out + size, msg);
}

/* ---- around a hole ---- */

static __attribute__((noinline)) uint8_t *put_some(uint8_t *end, const ProtobufCMessage *msg,
                                                   unsigned first, unsigned last)
{
    return put_fields(end, msg, first, last);
}

static bool may_be_hole(field_desc *field, const uint8_t *m)
{
    bool fits = field->type == PROTOBUF_C_TYPE_BYTES || field->type == PROTOBUF_C_TYPE_STRING;
    return fits && field->label != PROTOBUF_C_LABEL_REPEATED && is_there(field, m);
}

bool teffi_pack_hole(const ProtobufCMessage *msg, size_t min, teffi_hole *hole)
{
    const ProtobufCMessageDescriptor *desc = msg->descriptor;
    const uint8_t *m = (const uint8_t *)msg;
    *hole = (teffi_hole){0};
    for (unsigned i = 0; i < desc->n_fields; i++) {
        field_desc *field = &desc->fields[i];
        if (!may_be_hole(field, m))
            continue;
        ProtobufCBinaryData bytes = bytes_of(field->type, m + field->offset);
        if (bytes.len >= min && bytes.len > hole->len)
            *hole = (teffi_hole){bytes.data, bytes.len, i};
    }
    return hole->len > 0;
}

size_t teffi_pack_around(const ProtobufCMessage *msg, size_t size, const teffi_hole *hole,
                         uint8_t *out)
{
    const ProtobufCMessageDescriptor *desc = msg->descriptor;
    uint8_t *end = put_unknown(out + size - hole->len, msg);
    uint8_t *at = put_some(end, msg, hole->field + 1, desc->n_fields);
    end = put_tag(put_varint(at, hole->len), desc->fields[hole->field].id, BYTES);
    (void)put_some(end, msg, 0, hole->field);
    return (size_t)(at - out);
}
