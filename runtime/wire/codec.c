/* codec.c - look at packed bytes before protobuf-c recurses into them.
 * Way:     link -> frame -> [codec] -> protobuf_c_message_unpack on a worker's own stack
 * Source:  RELIABILITY section 2, protobuf-c */
#include "wire/codec.h"

#include <stdbool.h>
#include <string.h>
#include "wire/decode.h"

enum { WIRE_VARINT = 0, WIRE_FIXED64 = 1, WIRE_BYTES = 2, WIRE_FIXED32 = 5 };
enum { VARINT_MAX = 10, TAG_MAX = 5 };

typedef struct level {
    const ProtobufCMessageDescriptor *desc;
    const uint8_t *end;
} level;

typedef struct scan {
    const uint8_t *at;
    size_t fields;
    unsigned depth; /* levels in use */
    level levels[TEFFI_DEPTH_MAX];
} scan;

/* Bytes of the varint at the cursor, 0 when it does not end in time. */
static size_t varint_len(const uint8_t *at, const uint8_t *end, size_t max)
{
    for (size_t i = 0; i < max && at + i < end; i++)
        if (!(at[i] & 0x80))
            return i + 1;
    return 0;
}

static bool read_u32(scan *s, const uint8_t *end, uint32_t *out)
{
    size_t n = varint_len(s->at, end, TAG_MAX);
    uint64_t v = 0;
    for (size_t i = 0; i < n; i++)
        v |= (uint64_t)(s->at[i] & 0x7f) << (7 * i);
    *out = (uint32_t)v;
    s->at += n;
    return n && v <= UINT32_MAX;
}

/* Bytes of the UTF-8 character at p, 0 when it is none, or is zero. */
static size_t utf8_char(const uint8_t *p, size_t left)
{
    static const uint32_t least[] = {0, 1, 0x80, 0x800, 0x10000};
    size_t n = p[0] < 0x80 ? 1 : p[0] >> 5 == 6 ? 2 : p[0] >> 4 == 14 ? 3 : p[0] >> 3 == 30 ? 4 : 0;
    if (!n || n > left)
        return 0;
    uint32_t c = n == 1 ? p[0] : p[0] & (0x7fu >> n);
    for (size_t i = 1; i < n; i++) {
        if (p[i] >> 6 != 2)
            return 0;
        c = c << 6 | (p[i] & 0x3fu);
    }
    return c < least[n] || c > 0x10ffff || (c >= 0xd800 && c < 0xe000) ? 0 : n;
}

static bool utf8_ok(const uint8_t *p, size_t len)
{
    while (len) {
        size_t n = utf8_char(p, len);
        if (!n)
            return false;
        p += n;
        len -= n;
    }
    return true;
}

static unsigned wire_type_of(ProtobufCType type)
{
    switch (type) {
    case PROTOBUF_C_TYPE_SFIXED32:
    case PROTOBUF_C_TYPE_FIXED32:
    case PROTOBUF_C_TYPE_FLOAT:
        return WIRE_FIXED32;
    case PROTOBUF_C_TYPE_SFIXED64:
    case PROTOBUF_C_TYPE_FIXED64:
    case PROTOBUF_C_TYPE_DOUBLE:
        return WIRE_FIXED64;
    case PROTOBUF_C_TYPE_STRING:
    case PROTOBUF_C_TYPE_BYTES:
    case PROTOBUF_C_TYPE_MESSAGE:
        return WIRE_BYTES;
    default:
        return WIRE_VARINT;
    }
}

static teff_err add_fields(scan *s, size_t n)
{
    s->fields += n;
    return s->fields > TEFFI_FIELDS_MAX ? TEFF_E_TOO_LARGE : TEFF_OK;
}

static teff_err scan_packed_varints(scan *s, const uint8_t *end)
{
    while (s->at < end) {
        size_t n = varint_len(s->at, end, VARINT_MAX);
        if (!n)
            return TEFF_E_MALFORMED;
        s->at += n;
        if (add_fields(s, 1))
            return TEFF_E_TOO_LARGE;
    }
    return TEFF_OK;
}

static teff_err scan_packed(scan *s, const ProtobufCFieldDescriptor *field, size_t len)
{
    unsigned wire = wire_type_of(field->type);
    if (wire == WIRE_VARINT)
        return scan_packed_varints(s, s->at + len);
    size_t size = wire == WIRE_FIXED32 ? 4 : 8;
    if (len % size)
        return TEFF_E_MALFORMED;
    s->at += len;
    return add_fields(s, len / size);
}

static teff_err descend(scan *s, const ProtobufCFieldDescriptor *field, size_t len)
{
    if (s->depth == TEFFI_DEPTH_MAX)
        return TEFF_E_TOO_LARGE;
    s->levels[s->depth++] = (level){field->descriptor, s->at + len};
    return TEFF_OK;
}

/* A length-delimited value; the cursor stands at its length. */
static teff_err scan_bytes(scan *s, const ProtobufCFieldDescriptor *field, const uint8_t *end)
{
    uint32_t len;
    if (!read_u32(s, end, &len) || len > (size_t)(end - s->at))
        return TEFF_E_MALFORMED;
    if (field && field->type == PROTOBUF_C_TYPE_MESSAGE)
        return descend(s, field, len);
    if (field && wire_type_of(field->type) != WIRE_BYTES)
        return field->label == PROTOBUF_C_LABEL_REPEATED ? scan_packed(s, field, len)
                                                         : TEFF_E_MALFORMED;
    if (field && field->type == PROTOBUF_C_TYPE_STRING && !utf8_ok(s->at, len))
        return TEFF_E_MALFORMED;
    s->at += len;
    return TEFF_OK;
}

static teff_err scan_scalar(scan *s, unsigned wire, const ProtobufCFieldDescriptor *field,
                            const uint8_t *end)
{
    size_t n;
    if (field && wire_type_of(field->type) != wire)
        return TEFF_E_MALFORMED;
    if (wire == WIRE_VARINT)
        n = varint_len(s->at, end, VARINT_MAX);
    else
        n = wire == WIRE_FIXED32 ? 4 : 8;
    if (!n || n > (size_t)(end - s->at))
        return TEFF_E_MALFORMED;
    s->at += n;
    return TEFF_OK;
}

static teff_err scan_field(scan *s, const level *top)
{
    uint32_t tag;
    if (!read_u32(s, top->end, &tag) || tag >> 3 == 0)
        return TEFF_E_MALFORMED;
    if (add_fields(s, 1))
        return TEFF_E_TOO_LARGE;
    const ProtobufCFieldDescriptor *field =
        protobuf_c_message_descriptor_get_field(top->desc, tag >> 3);
    const uint8_t *end = top->end;
    switch (tag & 7) {
    case WIRE_BYTES:
        return scan_bytes(s, field, end);
    case WIRE_VARINT:
    case WIRE_FIXED32:
    case WIRE_FIXED64:
        return scan_scalar(s, tag & 7, field, end);
    default: /* groups, and numbers that mean nothing */
        return TEFF_E_MALFORMED;
    }
}

teff_err teffi_prescan(const ProtobufCMessageDescriptor *desc, const uint8_t *data, size_t len)
{
    scan s = {.at = data, .depth = 1};
    s.levels[0] = (level){desc, data + len};
    while (s.depth) {
        const level *top = &s.levels[s.depth - 1];
        if (s.at == top->end) {
            s.depth--;
            continue;
        }
        teff_err err = scan_field(&s, top);
        if (err)
            return err;
    }
    return TEFF_OK;
}

/* protobuf-c says NULL for every failure; the allocator knows whether memory was the reason. */
typedef struct watched {
    teff_arena *arena;
    bool failed;
} watched;

static void *watched_alloc(void *data, size_t n)
{
    watched *w = data;
    ProtobufCAllocator inner = teffi_arena_allocator(w->arena);
    void *p = inner.alloc(inner.allocator_data, n);
    w->failed |= !p;
    return p;
}

static void watched_free(void *data, void *p)
{
    (void)data;
    (void)p;
}

static teff_err unpack_slowly(const ProtobufCMessageDescriptor *desc, const uint8_t *data,
                              size_t len, teff_arena *arena, ProtobufCMessage **msg)
{
    watched w = {arena, false};
    ProtobufCAllocator allocator = {watched_alloc, watched_free, &w};
    teff_err err = teffi_prescan(desc, data, len);
    if (err)
        return err;
    *msg = protobuf_c_message_unpack(desc, &allocator, len, data);
    if (*msg)
        return TEFF_OK;
    return w.failed ? TEFF_E_NOMEM : TEFF_E_MALFORMED;
}

static teff_err unpack(const ProtobufCMessageDescriptor *desc, const uint8_t *data, size_t len,
                       bool borrow, teff_arena *arena, ProtobufCMessage **msg)
{
    static const uint8_t nothing[1];
    teff_err err;
    *msg = NULL;
    data = data ? data : nothing;
    return teffi_decode(desc, data, len, borrow, arena, msg, &err)
               ? err
               : unpack_slowly(desc, data, len, arena, msg);
}

teff_err teffi_unpack(const ProtobufCMessageDescriptor *desc, const uint8_t *data, size_t len,
                      teff_arena *arena, ProtobufCMessage **msg)
{
    return unpack(desc, data, len, false, arena, msg);
}

teff_err teffi_unpack_borrow(const ProtobufCMessageDescriptor *desc, const uint8_t *data,
                             size_t len, teff_arena *arena, ProtobufCMessage **msg)
{
    return unpack(desc, data, len, true, arena, msg);
}
