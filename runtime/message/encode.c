/* encode.c - encodes a message by protobuf-c's descriptors, from the last byte to the first: so a
 * nested message is written before its length, which is known by then. */
#include "message/codec.h"

#include <string.h>
#include "message/fields.h"

/* ---- numbers ---- */

/* Writes v in the bytes before `end`. All put functions of this file write backwards: they take the
 * address after the last byte to write, and return the address of the first byte written. */
static inline uint8_t *put_varint(uint8_t *end, uint64_t v)
{
    if (v < 0x80) {
        *--end = (uint8_t)v;
        return end;
    }
    uint8_t *at = end - teffi_varint_size(v);
    uint8_t *p = at;
    for (; v >= 0x80; v >>= 7)
        *p++ = (uint8_t)(v | 0x80);
    *p = (uint8_t)v;
    return at;
}

static inline uint8_t *put_tag(uint8_t *end, uint32_t id, unsigned wire)
{
    return put_varint(end, (uint64_t)id << 3 | wire);
}

/* ---- sizes ---- */

static size_t message_size(teffi_message_desc *desc, const ProtobufCMessage *msg);

/* out: the packed size of one value without its tag. The length before a string, bytes or message
 * is included. The size of a nested message is computed with field->descriptor, not with the
 * message's own descriptor, because put_delimited() writes it with field->descriptor. */
static size_t value_size(teffi_field_desc *field, const void *slot)
{
    if (teffi_wire_type_of(field->type) != TEFFI_BYTES)
        return teffi_number_size(field->type, slot);
    size_t n;
    if (field->type == PROTOBUF_C_TYPE_MESSAGE) {
        const ProtobufCMessage *m = *(ProtobufCMessage *const *)slot;
        n = m ? message_size(field->descriptor, m) : 0;
    } else {
        n = teffi_bytes_of(field->type, slot).len;
    }
    return teffi_varint_size(n) + n;
}

/* out: the packed size of a list with its tags; 0 if the list is empty, because an empty
 * list is not written. */
static size_t list_size(teffi_field_desc *field, const uint8_t *m)
{
    size_t n = teffi_list_len(field, m);
    size_t size = 0, step = teffi_value_memory_size(field->type);
    if (!n)
        return 0;
    const uint8_t *at = teffi_list_first(field, m);
    for (size_t i = 0; i < n; i++, at += step)
        size += value_size(field, at);
    if (field->flags & PROTOBUF_C_FIELD_FLAG_PACKED)
        return teffi_tag_size(field->id) + teffi_varint_size(size) + size;
    return size + n * teffi_tag_size(field->id);
}

/* out: the packed size, without tag and length. */
static size_t message_size(teffi_message_desc *desc, const ProtobufCMessage *msg)
{
    const uint8_t *m = (const uint8_t *)msg;
    size_t size = 0;
    for (unsigned i = 0; i < desc->n_fields; i++) {
        teffi_field_desc *field = &desc->fields[i];
        if (teffi_field_is_plain(field) && field->type != PROTOBUF_C_TYPE_MESSAGE)
            size += teffi_plain_field_size(field, m + field->offset);
        else if (field->label == PROTOBUF_C_LABEL_REPEATED)
            size += list_size(field, m);
        else if (teffi_field_is_present(field, m))
            size += teffi_tag_size(field->id) + value_size(field, m + field->offset);
    }
    for (unsigned i = 0; i < msg->n_unknown_fields; i++)
        size += teffi_tag_size(msg->unknown_fields[i].tag) + msg->unknown_fields[i].len;
    return size;
}

size_t teffi_packed_size(const ProtobufCMessage *msg)
{
    return message_size(msg->descriptor, msg);
}

/* ---- one value, without its tag ---- */

static uint8_t *put_message(uint8_t *end, teffi_message_desc *desc, const ProtobufCMessage *msg);

static inline uint8_t *put_bytes_with_length(uint8_t *end, ProtobufCBinaryData bytes)
{
    end -= bytes.len;
    if (bytes.len)
        memcpy(end, bytes.data, bytes.len);
    return put_varint(end, bytes.len);
}

/* Writes the value of a string, bytes or message field with its length. A NULL pointer is written
 * as an empty value. */
static uint8_t *put_delimited(uint8_t *end, teffi_field_desc *field, const void *slot)
{
    if (field->type == PROTOBUF_C_TYPE_MESSAGE) {
        const ProtobufCMessage *m = *(ProtobufCMessage *const *)slot;
        uint8_t *at = m ? put_message(end, field->descriptor, m) : end;
        return put_varint(at, (size_t)(end - at));
    }
    return put_bytes_with_length(end, teffi_bytes_of(field->type, slot));
}

static uint8_t *put_value(uint8_t *end, teffi_field_desc *field, const void *slot)
{
    switch (teffi_wire_type_of(field->type)) {
    case TEFFI_FIXED32:
        return memcpy(end - 4, slot, 4); /* the build refuses big-endian machines */
    case TEFFI_FIXED64:
        return memcpy(end - 8, slot, 8);
    case TEFFI_VARINT:
        return put_varint(end, teffi_varint_value(field->type, slot));
    default:
        return put_delimited(end, field, slot);
    }
}

/* ---- fields ---- */

/* Writes all elements with their tags, or the packed list with its one tag. Writes nothing if the
 * list is empty. */
static uint8_t *put_list(uint8_t *end, teffi_field_desc *field, const uint8_t *m)
{
    size_t n = teffi_list_len(field, m), step = teffi_value_memory_size(field->type);
    bool packed = field->flags & PROTOBUF_C_FIELD_FLAG_PACKED;
    uint8_t *at = end;
    for (size_t i = n; i-- > 0;) {
        at = put_value(at, field, teffi_list_first(field, m) + i * step);
        if (!packed)
            at = put_tag(at, field->id, teffi_wire_type_of(field->type));
    }
    if (n && packed)
        at = put_tag(put_varint(at, (size_t)(end - at)), field->id, TEFFI_BYTES);
    return at;
}

/* Writes a plain field with its tag, unless its value is 0 or empty. The cases before `default`
 * only make the usual types faster. */
static inline __attribute__((always_inline)) uint8_t *
put_plain_field(uint8_t *end, teffi_field_desc *field, const void *slot)
{
    uint64_t v;
    ProtobufCBinaryData text;
    switch (field->type) {
    case PROTOBUF_C_TYPE_UINT64:
    case PROTOBUF_C_TYPE_INT64:
        v = teffi_load64(slot);
        return v ? put_tag(put_varint(end, v), field->id, TEFFI_VARINT) : end;
    case PROTOBUF_C_TYPE_UINT32:
        v = teffi_load32(slot);
        return v ? put_tag(put_varint(end, v), field->id, TEFFI_VARINT) : end;
    case PROTOBUF_C_TYPE_STRING:
        text = teffi_bytes_of(PROTOBUF_C_TYPE_STRING, slot);
        return text.len ? put_tag(put_bytes_with_length(end, text), field->id, TEFFI_BYTES) : end;
    default:
        if (teffi_value_is_zero_or_empty(field->type, slot))
            return end;
        return put_tag(put_value(end, field, slot), field->id, teffi_wire_type_of(field->type));
    }
}

/* Writes the unknown fields as they were received. */
static uint8_t *put_unknown_fields(uint8_t *end, const ProtobufCMessage *msg)
{
    for (unsigned i = msg->n_unknown_fields; i-- > 0;) {
        const ProtobufCMessageUnknownField *field = &msg->unknown_fields[i];
        end -= field->len;
        memcpy(end, field->data, field->len);
        end = put_tag(end, field->tag, (unsigned)field->wire_type);
    }
    return end;
}

/* Writes the fields with indexes first .. last - 1. Inlined, because put_message() is hot. */
static inline __attribute__((always_inline)) uint8_t *put_fields(uint8_t *end,
                                                                 teffi_message_desc *desc,
                                                                 const ProtobufCMessage *msg,
                                                                 unsigned first, unsigned last)
{
    const uint8_t *m = (const uint8_t *)msg;
    for (unsigned i = last; i-- > first;) {
        teffi_field_desc *field = &desc->fields[i];
        if (teffi_field_is_plain(field))
            end = put_plain_field(end, field, m + field->offset);
        else if (field->label == PROTOBUF_C_LABEL_REPEATED)
            end = put_list(end, field, m);
        else if (teffi_field_is_present(field, m))
            end = put_tag(put_value(end, field, m + field->offset), field->id,
                          teffi_wire_type_of(field->type));
    }
    return end;
}

static uint8_t *put_message(uint8_t *end, teffi_message_desc *desc, const ProtobufCMessage *msg)
{
    return put_fields(put_unknown_fields(end, msg), desc, msg, 0, desc->n_fields);
}

void teffi_pack(const ProtobufCMessage *msg, size_t size, uint8_t *out)
{
    (void)put_message(out + size, msg->descriptor, msg);
}

/* ---- around a zero-copy segment ---- */

/* put_fields() as a function that is not inlined, so that teffi_pack_without_segment() stays
 * small. */
static __attribute__((noinline)) uint8_t *
put_fields_noinline(uint8_t *end, const ProtobufCMessage *msg, unsigned first, unsigned last)
{
    return put_fields(end, msg->descriptor, msg, first, last);
}

/* May this field be the zero-copy segment? It must be a string or bytes field that is not repeated,
 * and is present. */
static bool may_be_segment(teffi_field_desc *field, const uint8_t *m)
{
    bool fits = field->type == PROTOBUF_C_TYPE_BYTES || field->type == PROTOBUF_C_TYPE_STRING;
    return fits && field->label != PROTOBUF_C_LABEL_REPEATED && teffi_field_is_present(field, m);
}

bool teffi_find_segment(const ProtobufCMessage *msg, size_t min, teffi_segment *segment)
{
    const ProtobufCMessageDescriptor *desc = msg->descriptor;
    const uint8_t *m = (const uint8_t *)msg;
    *segment = (teffi_segment){0};
    for (unsigned i = 0; i < desc->n_fields; i++) {
        teffi_field_desc *field = &desc->fields[i];
        if (!may_be_segment(field, m))
            continue;
        ProtobufCBinaryData bytes = teffi_bytes_of(field->type, m + field->offset);
        if (bytes.len >= min && bytes.len > segment->len)
            *segment = (teffi_segment){bytes.data, bytes.len, i};
    }
    return segment->len > 0;
}

size_t teffi_pack_without_segment(const ProtobufCMessage *msg, size_t size,
                                  const teffi_segment *segment, uint8_t *out)
{
    const ProtobufCMessageDescriptor *desc = msg->descriptor;
    /* Writes backwards: first the fields after the segment, next the segment's length and tag, last
     * the fields before the segment. `at` is where the segment's bytes belong. */
    uint8_t *end = put_unknown_fields(out + size - segment->len, msg);
    uint8_t *at = put_fields_noinline(end, msg, segment->field + 1, desc->n_fields);
    end = put_tag(put_varint(at, segment->len), desc->fields[segment->field].id, TEFFI_BYTES);
    (void)put_fields_noinline(end, msg, 0, segment->field);
    return (size_t)(at - out);
}
