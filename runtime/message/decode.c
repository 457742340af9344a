/* decode.c - decodes packed bytes by protobuf-c's descriptors, in one pass. As protobuf's encoding
 * guide says, a singular message that occurs twice is merged field by field; of other singular
 * fields the last occurrence counts. */
#include "message/codec.h"

#include <string.h>
#include "base/utf8.h"
#include "message/fields.h"

enum { TAG_MAX = 5 /* bytes of a tag or length */, SHIFT_MAX = 63, LIST_MIN = 4 };

typedef struct decoder {
    const uint8_t *at;
    teff_arena *arena;
    size_t fields, fields_max; /* decoded so far; the limit */
    bool borrows;              /* fields of type bytes point into the packed bytes */
} decoder;

/* Reads a varint, and moves d->at past it. out: false: truncated, or longer than 10 bytes; d->at
 * stays. Bits beyond 64 are dropped. */
static bool read_varint(decoder *d, const uint8_t *end, uint64_t *out)
{
    const uint8_t *at = d->at;
    uint64_t v = 0;
    for (unsigned shift = 0; at < end && shift <= SHIFT_MAX; shift += 7) {
        uint8_t byte = *at++;
        v |= (uint64_t)(byte & 0x7f) << shift;
        if (byte & 0x80)
            continue;
        d->at = at;
        *out = v;
        return true;
    }
    return false;
}

/* Reads a tag or a length. out: false: truncated, longer than TAG_MAX bytes, or over 32 bits. */
static bool read_short_varint(decoder *d, const uint8_t *end, uint32_t *out)
{
    const uint8_t *begin = d->at;
    uint64_t v;
    if (begin < end && *begin < 0x80) {
        d->at++;
        *out = *begin;
        return true;
    }
    if (!read_varint(d, end, &v) || d->at - begin > TAG_MAX || v > UINT32_MAX)
        return false;
    *out = (uint32_t)v;
    return true;
}

/* Reads the length of a delimited value. out: false if the length is malformed, or is greater than
 * the number of bytes left. */
static bool read_length(decoder *d, const uint8_t *end, uint32_t *len)
{
    return read_short_varint(d, end, len) && *len <= (size_t)(end - d->at);
}

static uint64_t undo_zigzag(uint64_t v)
{
    return v >> 1 ^ (0 - (v & 1));
}

/* Converts v to the type, and stores its low 4 or 8 bytes. This needs a little-endian machine; the
 * build refuses others. */
static void store_varint(ProtobufCType type, uint64_t v, void *slot)
{
    if (type == PROTOBUF_C_TYPE_SINT32)
        v = undo_zigzag((uint32_t)v);
    else if (type == PROTOBUF_C_TYPE_SINT64)
        v = undo_zigzag(v);
    else if (type == PROTOBUF_C_TYPE_BOOL)
        v = v != 0;
    if (teffi_value_memory_size(type) == 8)
        memcpy(slot, &v, 8);
    else
        memcpy(slot, &v, 4);
}

/* Decodes a number and stores it in slot. A number is packed as a varint, or in 4 or 8 bytes. */
static teff_err decode_number(decoder *d, const uint8_t *end, ProtobufCType type, void *slot)
{
    uint64_t v;
    size_t n = teffi_value_memory_size(type);
    if (teffi_wire_type_of(type) == TEFFI_VARINT) {
        if (!read_varint(d, end, &v))
            return TEFF_E_MALFORMED;
        store_varint(type, v, slot);
        return TEFF_OK;
    }
    if (n > (size_t)(end - d->at))
        return TEFF_E_MALFORMED;
    memcpy(slot, d->at, n);
    d->at += n;
    return TEFF_OK;
}

/* Is the text UTF-8 without a zero byte? Most texts are ASCII, so the first loop tests eight bytes
 * at a time, and ends if one of them is 0 or has its top bit set. */
static bool text_is_valid(const uint8_t *p, size_t len)
{
    static const uint64_t ones = 0x0101010101010101u, tops = 0x8080808080808080u;
    size_t at = 0;
    for (uint64_t word; at + sizeof word <= len; at += sizeof word) {
        memcpy(&word, p + at, sizeof word);
        if ((word | (word - ones)) & tops)
            break;
    }
    while (at < len && p[at] - 1u < 0x7fu)
        at++;
    return at == len || (teffi_utf8_valid(p + at, len - at) && !memchr(p + at, 0, len - at));
}

static teff_err decode_message(decoder *d, const uint8_t *end, teffi_message_desc *desc,
                               unsigned depth, ProtobufCMessage **msg);

/* Decodes a string, bytes or a message, and stores it in slot. in: depth: of the message that has
 * the field. If the field is a message, *slot is the message to merge into, or NULL to make one. */
static teff_err decode_delimited(decoder *d, const uint8_t *end, teffi_field_desc *field,
                                 void *slot, unsigned depth)
{
    uint32_t len;
    if (!read_length(d, end, &len))
        return TEFF_E_MALFORMED;
    const uint8_t *p = d->at;
    if (field->type == PROTOBUF_C_TYPE_MESSAGE)
        return decode_message(d, p + len, field->descriptor, depth + 1, slot);
    d->at += len;
    if (field->type == PROTOBUF_C_TYPE_STRING) {
        if (!text_is_valid(p, len))
            return TEFF_E_MALFORMED;
        return (*(char **)slot = teff_arena_copy(d->arena, p, len)) ? TEFF_OK : TEFF_E_NOMEM;
    }
    ProtobufCBinaryData bytes = {len, (uint8_t *)(uintptr_t)p};
    if (!len || !d->borrows)
        bytes.data = len ? teff_arena_copy(d->arena, p, len) : NULL;
    *(ProtobufCBinaryData *)slot = bytes;
    return len && !bytes.data ? TEFF_E_NOMEM : TEFF_OK;
}

/* ---- lists ---- */

/* out: the capacity of a list of n elements: the smallest power of two that is at least n and at
 * least LIST_MIN. It is computed each time, because protobuf-c's messages have no field for it. */
static size_t list_capacity(size_t n)
{
    return n <= LIST_MIN ? LIST_MIN : (size_t)1 << (64 - __builtin_clzll(n - 1));
}

/* Makes room for `more` elements at the end of a list that has n elements. in: list: the address of
 * the list's pointer, which may be changed. size: of one element. out: where the first new element
 * goes; NULL if out of memory. */
static void *extend_list(decoder *d, void *list, size_t n, size_t more, size_t size)
{
    uint8_t *elements = *(void **)list;
    if (!n || list_capacity(n) < n + more) {
        uint8_t *longer = teffi_arena_alloc_unzeroed(d->arena, list_capacity(n + more) * size);
        if (!longer)
            return NULL;
        if (n)
            memcpy(longer, elements, n * size);
        *(void **)list = elements = longer;
    }
    return elements + n * size;
}

/* Counts varints by counting their last bytes: only these do not have the top bit set. */
static size_t count_varints(const uint8_t *at, const uint8_t *end)
{
    size_t n = 0;
    for (; at < end; at++)
        n += *at < 0x80;
    return n;
}

/* Decodes a packed list, which has one tag and one length for all its elements, and appends the
 * elements to the field's list. */
static teff_err decode_packed_list(decoder *d, const uint8_t *end, teffi_field_desc *field,
                                   uint8_t *m)
{
    size_t *count = (size_t *)(void *)(m + field->quantifier_offset);
    size_t size = teffi_value_memory_size(field->type);
    uint32_t len;
    if (!read_length(d, end, &len))
        return TEFF_E_MALFORMED;
    end = d->at + len;
    bool varints = teffi_wire_type_of(field->type) == TEFFI_VARINT;
    size_t n = varints ? count_varints(d->at, end) : len / size;
    if (!varints && len % size)
        return TEFF_E_MALFORMED;
    if (!len)
        return TEFF_OK;
    uint8_t *slot = n ? extend_list(d, m + field->offset, *count, n, size) : NULL;
    if (n && !slot)
        return TEFF_E_NOMEM;
    for (size_t i = 0; i < n; i++, slot += size)
        if (decode_number(d, end, field->type, slot))
            return TEFF_E_MALFORMED;
    *count += n;
    return d->at == end ? TEFF_OK : TEFF_E_MALFORMED;
}

/* Decodes one occurrence of a repeated field: one element, or a packed list of numbers. As protobuf
 * requires, the packed form is accepted also for a field that is declared unpacked. */
static teff_err decode_repeated(decoder *d, const uint8_t *end, teffi_field_desc *field,
                                unsigned wire, uint8_t *m, unsigned depth)
{
    size_t *count = (size_t *)(void *)(m + field->quantifier_offset);
    unsigned own = teffi_wire_type_of(field->type);
    if (wire == TEFFI_BYTES && own != TEFFI_BYTES)
        return decode_packed_list(d, end, field, m);
    if (wire != own)
        return TEFF_E_MALFORMED;
    void *slot = extend_list(d, m + field->offset, *count, 1, teffi_value_memory_size(field->type));
    if (!slot)
        return TEFF_E_NOMEM;
    if (field->type == PROTOBUF_C_TYPE_MESSAGE)
        *(void **)slot = NULL;
    teff_err err = own == TEFFI_BYTES ? decode_delimited(d, end, field, slot, depth)
                                      : decode_number(d, end, field->type, slot);
    *count += !err;
    return err;
}

/* ---- messages ---- */

/* Marks the field as present, and decodes its value. */
static teff_err decode_singular(decoder *d, const uint8_t *end, teffi_field_desc *field,
                                unsigned wire, uint8_t *m, unsigned depth)
{
    void *slot = m + field->offset;
    if (wire != teffi_wire_type_of(field->type))
        return TEFF_E_MALFORMED;
    if (field->flags & PROTOBUF_C_FIELD_FLAG_ONEOF) {
        uint32_t *which = (uint32_t *)(void *)(m + field->quantifier_offset);
        if (*which != field->id && field->type == PROTOBUF_C_TYPE_MESSAGE)
            *(void **)slot = NULL; /* the oneof was empty or had another member: no merge */
        *which = field->id;
    } else if (field->quantifier_offset) {
        *(protobuf_c_boolean *)(void *)(m + field->quantifier_offset) = true;
    }
    return wire == TEFFI_BYTES ? decode_delimited(d, end, field, slot, depth)
                               : decode_number(d, end, field->type, slot);
}

/* Moves d->at past a value of this wire type. out: false: malformed. */
static bool skip_value(decoder *d, const uint8_t *end, unsigned wire)
{
    uint64_t v;
    uint32_t len = wire == TEFFI_FIXED32 ? 4 : 8;
    if (wire == TEFFI_VARINT)
        return read_varint(d, end, &v);
    if (wire == TEFFI_BYTES ? !read_length(d, end, &len)
                            : wire != TEFFI_FIXED32 && wire != TEFFI_FIXED64)
        return false; /* a malformed length, a group, or an invalid wire type */
    if (len > (size_t)(end - d->at))
        return false;
    d->at += len;
    return true;
}

/* Copies a field that is not in the descriptor, and appends the copy to the message's unknown
 * fields. */
static teff_err keep_unknown_field(decoder *d, const uint8_t *end, uint32_t tag,
                                   ProtobufCMessage *msg)
{
    const uint8_t *begin = d->at;
    if (!skip_value(d, end, tag & 7))
        return TEFF_E_MALFORMED;
    size_t len = (size_t)(d->at - begin);
    ProtobufCMessageUnknownField *field =
        extend_list(d, &msg->unknown_fields, msg->n_unknown_fields, 1, sizeof *field);
    uint8_t *copy = field ? teff_arena_copy(d->arena, begin, len) : NULL;
    if (!copy)
        return TEFF_E_NOMEM;
    *field = (ProtobufCMessageUnknownField){tag >> 3, (ProtobufCWireType)(tag & 7), len, copy};
    msg->n_unknown_fields++;
    return TEFF_OK;
}

/* Finds a field by number. Tries the indexes *hint and *hint + 1 first, since most messages have
 * their fields in the order of the numbers. out: the field; NULL if there is none.
 * *hint: the field's index. */
static teffi_field_desc *find_field(teffi_message_desc *desc, uint32_t id, unsigned *hint)
{
    for (unsigned i = *hint; i < desc->n_fields && i < *hint + 2; i++)
        if (desc->fields[i].id == id) {
            *hint = i;
            return &desc->fields[i];
        }
    teffi_field_desc *field = protobuf_c_message_descriptor_get_field(desc, id);
    if (field)
        *hint = (unsigned)(field - desc->fields);
    return field;
}

/* Finds the first required field whose index is at least `from`. out: its index; n_fields if there
 * is none. */
static unsigned find_next_required_field(teffi_message_desc *desc, unsigned from)
{
    while (from < desc->n_fields && desc->fields[from].label != PROTOBUF_C_LABEL_REQUIRED)
        from++;
    return from;
}

/* Decodes fields until `end`. in: seen, one byte per field of the descriptor, set to 1 when the
 * field occurs; NULL: the message has no required fields, so nothing is recorded. */
static teff_err decode_fields(decoder *d, const uint8_t *end, ProtobufCMessage *msg, uint8_t *seen,
                              unsigned depth)
{
    teffi_message_desc *desc = msg->descriptor;
    teff_err err = TEFF_OK;
    unsigned hint = 0;
    while (d->at < end && !err) {
        uint32_t tag;
        if (!read_short_varint(d, end, &tag) || tag >> 3 == 0)
            return TEFF_E_MALFORMED;
        if (++d->fields > d->fields_max)
            return TEFF_E_TOO_LARGE;
        teffi_field_desc *field = find_field(desc, tag >> 3, &hint);
        if (!field)
            err = keep_unknown_field(d, end, tag, msg);
        else if (field->label == PROTOBUF_C_LABEL_REPEATED)
            err = decode_repeated(d, end, field, tag & 7, (uint8_t *)msg, depth);
        else
            err = decode_singular(d, end, field, tag & 7, (uint8_t *)msg, depth);
        if (field && seen)
            seen[field - desc->fields] = 1;
    }
    return err;
}

/* Decodes a message that has required fields, and checks that each of them occurs. */
static teff_err decode_and_check_required(decoder *d, const uint8_t *end, ProtobufCMessage *msg,
                                          unsigned depth)
{
    teffi_message_desc *desc = msg->descriptor;
    uint8_t *seen = teff_arena_alloc(d->arena, desc->n_fields);
    if (!seen)
        return TEFF_E_NOMEM;
    teff_err err = decode_fields(d, end, msg, seen, depth);
    for (unsigned i = 0; !err && (i = find_next_required_field(desc, i)) < desc->n_fields; i++)
        if (!seen[i])
            return TEFF_E_MALFORMED;
    return err;
}

/* Decodes a message whose bytes end at `end`. in: depth: 1 for the outermost message. *msg: the
 * message to merge into, or NULL to make a message. */
static teff_err decode_message(decoder *d, const uint8_t *end, teffi_message_desc *desc,
                               unsigned depth, ProtobufCMessage **msg)
{
    if (depth > TEFF_DEPTH_MAX)
        return TEFF_E_TOO_LARGE;
    if (!*msg) {
        *msg = teffi_arena_alloc_unzeroed(d->arena, desc->sizeof_message);
        if (!*msg)
            return TEFF_E_NOMEM;
        desc->message_init(*msg);
    }
    return find_next_required_field(desc, 0) < desc->n_fields
               ? decode_and_check_required(d, end, *msg, depth)
               : decode_fields(d, end, *msg, NULL, depth);
}

teff_err teffi_unpack_with_options(const ProtobufCMessageDescriptor *desc, const uint8_t *data,
                                   size_t len, size_t fields_max, bool borrows, teff_arena *arena,
                                   ProtobufCMessage **msg)
{
    static const uint8_t nothing[1]; /* since NULL + len is undefined */
    data = data ? data : nothing;
    decoder d = {.at = data, .arena = arena, .fields_max = fields_max, .borrows = borrows};
    *msg = NULL;
    teff_err err = decode_message(&d, data + len, desc, 1, msg);
    if (err)
        *msg = NULL;
    return err;
}

teff_err teffi_unpack(const ProtobufCMessageDescriptor *desc, const uint8_t *data, size_t len,
                      teff_arena *arena, ProtobufCMessage **msg)
{
    return teffi_unpack_with_options(desc, data, len, TEFF_FIELDS_MAX, false, arena, msg);
}
