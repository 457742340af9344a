/* decode.c - packed bytes to a message in an arena, in one pass that also keeps the pre-scan's
 * limits. It walks protobuf-c's descriptors; what protobuf-c does in a way of its own (unknown
 * fields, required ones, a message or oneof that comes twice) is left to protobuf-c.
 * Way:     msg_unpack -> codec.c -> [decode] -> a message in the envelope's arena
 * Threads: pure. Recursion is as deep as messages are nested, TEFFI_DEPTH_MAX. */
#include "wire/decode.h"

#include <string.h>
#include "base/utf8.h"
#include "wire/codec.h"

enum { VARINT = 0, FIXED64 = 1, BYTES = 2, FIXED32 = 5 };
enum { SHORT_MAX = 5 /* bytes of a tag or length */, SHIFT_MAX = 63, LIST_MIN = 4 };

typedef const ProtobufCMessageDescriptor message_desc;
typedef const ProtobufCFieldDescriptor field_desc;

/* by ProtobufCType */
static const uint8_t wire_of[] = {
    VARINT,  VARINT,  FIXED32, VARINT, VARINT, FIXED64, VARINT, FIXED32, VARINT,
    FIXED64, FIXED32, FIXED64, VARINT, VARINT, BYTES,   BYTES,  BYTES,
};
static const uint8_t size_of[] = {
    4,
    4,
    4,
    8,
    8,
    8,
    4,
    4,
    8,
    8,
    4,
    8,
    sizeof(protobuf_c_boolean),
    sizeof(int),
    sizeof(char *),
    sizeof(ProtobufCBinaryData),
    sizeof(void *),
};
_Static_assert(PROTOBUF_C_TYPE_INT32 == 0 && PROTOBUF_C_TYPE_DOUBLE == 11 &&
                   PROTOBUF_C_TYPE_MESSAGE == 16 && sizeof wire_of == 17 && sizeof size_of == 17,
               "the tables are in protobuf-c's order");

typedef struct decoder {
    const uint8_t *at;
    ProtobufCAllocator memory;
    teff_arena *arena;
    size_t fields; /* so far */
    bool borrows;  /* bytes stay where they are */
    bool other;    /* protobuf-c must do it */
} decoder;

static void *take(decoder *d, size_t n)
{
    return d->memory.alloc(d->memory.allocator_data, n);
}

static bool varint(decoder *d, const uint8_t *end, uint64_t *out)
{
    const uint8_t *at = d->at;
    uint64_t v = 0;
    for (unsigned shift = 0; at < end && shift <= SHIFT_MAX; shift += 7) {
        uint8_t byte = *at++;
        v |= (uint64_t)(byte & 0x7f) << shift;
        if (byte & 0x80)
            continue;
        d->other |= shift == SHIFT_MAX && byte > 1; /* beyond 64 bits */
        d->at = at;
        *out = v;
        return true;
    }
    return false;
}

/* A tag or a length. */
static bool short_varint(decoder *d, const uint8_t *end, uint32_t *out)
{
    const uint8_t *begin = d->at;
    uint64_t v;
    if (begin < end && *begin < 0x80) {
        d->at++;
        *out = *begin;
        return true;
    }
    if (!varint(d, end, &v) || d->at - begin > SHORT_MAX || v > UINT32_MAX)
        return false;
    *out = (uint32_t)v;
    return true;
}

static bool length(decoder *d, const uint8_t *end, uint32_t *len)
{
    return short_varint(d, end, len) && *len <= (size_t)(end - d->at);
}

static uint64_t unzigzag(uint64_t v)
{
    return v >> 1 ^ (0 - (v & 1));
}

static void store32(void *slot, uint32_t v)
{
    memcpy(slot, &v, sizeof v);
}

static void store64(void *slot, uint64_t v)
{
    memcpy(slot, &v, sizeof v);
}

static void store_varint(ProtobufCType type, uint64_t v, void *slot)
{
    switch (type) {
    case PROTOBUF_C_TYPE_SINT32:
        store32(slot, (uint32_t)unzigzag((uint32_t)v));
        break;
    case PROTOBUF_C_TYPE_SINT64:
        store64(slot, unzigzag(v));
        break;
    case PROTOBUF_C_TYPE_INT64:
    case PROTOBUF_C_TYPE_UINT64:
        store64(slot, v);
        break;
    case PROTOBUF_C_TYPE_BOOL:
        *(protobuf_c_boolean *)slot = v != 0;
        break;
    default:
        store32(slot, (uint32_t)v);
        break;
    }
}

static teff_err scalar(decoder *d, const uint8_t *end, ProtobufCType type, void *slot)
{
    uint64_t v;
    size_t n = size_of[type];
    if (wire_of[type] == VARINT) {
        if (!varint(d, end, &v))
            return TEFF_E_MALFORMED;
        store_varint(type, v, slot);
        return TEFF_OK;
    }
    if (n > (size_t)(end - d->at))
        return TEFF_E_MALFORMED;
    memcpy(slot, d->at, n); /* the build refuses big-endian machines */
    d->at += n;
    return TEFF_OK;
}

/* Letters of one byte, eight at a time, and no zero: most texts are nothing else. */
static bool is_text(const uint8_t *p, size_t len)
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

static teff_err message(decoder *d, const uint8_t *end, message_desc *desc, unsigned depth,
                        ProtobufCMessage **out);

static teff_err delimited(decoder *d, const uint8_t *end, field_desc *field, void *slot,
                          unsigned depth)
{
    uint32_t len;
    if (!length(d, end, &len))
        return TEFF_E_MALFORMED;
    const uint8_t *p = d->at;
    if (field->type == PROTOBUF_C_TYPE_MESSAGE)
        return message(d, p + len, field->descriptor, depth + 1, slot);
    d->at += len;
    if (field->type == PROTOBUF_C_TYPE_STRING) {
        if (!is_text(p, len))
            return TEFF_E_MALFORMED;
        return (*(char **)slot = teff_arena_copy(d->arena, p, len)) ? TEFF_OK : TEFF_E_NOMEM;
    }
    ProtobufCBinaryData bytes = {len, (uint8_t *)(uintptr_t)p};
    if (!len || !d->borrows)
        bytes.data = len ? teff_arena_copy(d->arena, p, len) : NULL;
    *(ProtobufCBinaryData *)slot = bytes;
    return len && !bytes.data ? TEFF_E_NOMEM : TEFF_OK;
}

/* ---- repeated fields ---- */

/* Lists have room for the next power of two. */
static size_t room_for(size_t n)
{
    return n <= LIST_MIN ? LIST_MIN : (size_t)1 << (64 - __builtin_clzll(n - 1));
}

/* out: the place of the first of more elements; NULL: no memory. */
static uint8_t *extend(decoder *d, uint8_t *m, field_desc *field, size_t more)
{
    size_t *count = (size_t *)(void *)(m + field->quantifier_offset);
    void **list = (void **)(void *)(m + field->offset);
    size_t size = size_of[field->type], n = *count;
    if (!n || room_for(n) < n + more) {
        uint8_t *longer = take(d, room_for(n + more) * size);
        if (!longer)
            return NULL;
        if (n)
            memcpy(longer, *list, n * size);
        *list = longer;
    }
    return (uint8_t *)*list + n * size;
}

static size_t varints_in(const uint8_t *at, const uint8_t *end)
{
    size_t n = 0;
    for (; at < end; at++)
        n += *at < 0x80;
    return n;
}

static teff_err packed(decoder *d, const uint8_t *end, field_desc *field, uint8_t *m)
{
    size_t *count = (size_t *)(void *)(m + field->quantifier_offset);
    size_t size = size_of[field->type];
    uint32_t len;
    if (!length(d, end, &len))
        return TEFF_E_MALFORMED;
    end = d->at + len;
    bool varints = wire_of[field->type] == VARINT;
    size_t n = varints ? varints_in(d->at, end) : len / size;
    if (!varints && len % size)
        return TEFF_E_MALFORMED;
    if (n > TEFFI_FIELDS_MAX - d->fields) {
        d->other = true; /* one of them may be malformed before there are too many */
        return TEFF_OK;
    }
    d->fields += n;
    if (!len)
        return TEFF_OK;
    uint8_t *slot = n ? extend(d, m, field, n) : NULL;
    if (n && !slot)
        return TEFF_E_NOMEM;
    for (size_t i = 0; i < n; i++, slot += size)
        if (scalar(d, end, field->type, slot))
            return TEFF_E_MALFORMED;
    *count += n;
    return d->at == end ? TEFF_OK : TEFF_E_MALFORMED;
}

static teff_err repeated(decoder *d, const uint8_t *end, field_desc *field, unsigned wire,
                         uint8_t *m, unsigned depth)
{
    size_t *count = (size_t *)(void *)(m + field->quantifier_offset);
    unsigned own = wire_of[field->type];
    if (wire == BYTES && own != BYTES)
        return packed(d, end, field, m);
    if (wire != own)
        return TEFF_E_MALFORMED;
    uint8_t *slot = extend(d, m, field, 1);
    if (!slot)
        return TEFF_E_NOMEM;
    teff_err err =
        own == BYTES ? delimited(d, end, field, slot, depth) : scalar(d, end, field->type, slot);
    *count += !err;
    return err;
}

/* ---- messages ---- */

static teff_err one(decoder *d, const uint8_t *end, field_desc *field, unsigned wire, uint8_t *m,
                    unsigned depth)
{
    void *slot = m + field->offset;
    if (wire != wire_of[field->type])
        return TEFF_E_MALFORMED;
    if (field->flags & PROTOBUF_C_FIELD_FLAG_ONEOF) {
        uint32_t *which = (uint32_t *)(void *)(m + field->quantifier_offset);
        d->other |= *which != 0;
        *which = field->id;
    } else if (field->quantifier_offset) {
        *(protobuf_c_boolean *)(void *)(m + field->quantifier_offset) = true;
    }
    if (wire != BYTES)
        return scalar(d, end, field->type, slot);
    if (field->type == PROTOBUF_C_TYPE_MESSAGE && !(field->flags & PROTOBUF_C_FIELD_FLAG_ONEOF))
        d->other |= *(void **)slot != NULL;
    return d->other ? TEFF_OK : delimited(d, end, field, slot, depth);
}

/* Mostly fields come in the order of their numbers. */
static field_desc *find(message_desc *desc, uint32_t id, unsigned *hint)
{
    for (unsigned i = *hint; i < desc->n_fields && i < *hint + 2; i++)
        if (desc->fields[i].id == id) {
            *hint = i;
            return &desc->fields[i];
        }
    field_desc *field = protobuf_c_message_descriptor_get_field(desc, id);
    if (field)
        *hint = (unsigned)(field - desc->fields);
    return field;
}

static bool is_usual(message_desc *desc)
{
    bool usual = desc->message_init != NULL;
    for (unsigned i = 0; i < desc->n_fields; i++)
        usual &= desc->fields[i].label != PROTOBUF_C_LABEL_REQUIRED;
    return usual;
}

static teff_err fields(decoder *d, const uint8_t *end, message_desc *desc, uint8_t *m,
                       unsigned depth)
{
    teff_err err = TEFF_OK;
    unsigned hint = 0;
    while (d->at < end && !err && !d->other) {
        uint32_t tag;
        if (!short_varint(d, end, &tag) || tag >> 3 == 0)
            return TEFF_E_MALFORMED;
        if (++d->fields > TEFFI_FIELDS_MAX)
            return TEFF_E_TOO_LARGE;
        field_desc *field = find(desc, tag >> 3, &hint);
        if (!field)
            d->other = true;
        else if (field->label == PROTOBUF_C_LABEL_REPEATED)
            err = repeated(d, end, field, tag & 7, m, depth);
        else
            err = one(d, end, field, tag & 7, m, depth);
    }
    return err;
}

static teff_err message(decoder *d, const uint8_t *end, message_desc *desc, unsigned depth,
                        ProtobufCMessage **out)
{
    if (depth > TEFFI_DEPTH_MAX)
        return TEFF_E_TOO_LARGE;
    if (!is_usual(desc)) {
        d->other = true;
        return TEFF_OK;
    }
    ProtobufCMessage *m = take(d, desc->sizeof_message);
    if (!m)
        return TEFF_E_NOMEM;
    desc->message_init(m);
    *out = m;
    return fields(d, end, desc, (uint8_t *)m, depth);
}

bool teffi_decode(const ProtobufCMessageDescriptor *desc, const uint8_t *data, size_t len,
                  bool borrow, teff_arena *arena, ProtobufCMessage **msg, teff_err *err)
{
    decoder d = {
        .at = data, .memory = teffi_arena_allocator(arena), .arena = arena, .borrows = borrow};
    *err = message(&d, data + len, desc, 1, msg);
    if (*err || d.other)
        *msg = NULL;
    return !d.other;
}
