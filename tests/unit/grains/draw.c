/* draw.c - random messages of any type.
 * Way:     test_rules -> [draw] -> protobuf-c's descriptors */
#include "draw.h"

#include <string.h>
#include <teff/arena.h>
#include "message/fields.h"

enum { DEPTH_USUAL = 4, LIST_MAX = 4 };

uint32_t draw(drawing *d, uint32_t n) /* xorshift64 */
{
    d->rng ^= d->rng << 13;
    d->rng ^= d->rng >> 7;
    d->rng ^= d->rng << 17;
    return (uint32_t)(d->rng >> 32) % n;
}

static bool is_bad(drawing *d)
{
    return d->bad_in && draw(d, d->bad_in) == 0;
}

static const char *draw_text(drawing *d)
{
    static const char *const good[] = {
        "", "a", "some longer text", "\xc3\xa4", "\xf0\x9f\x8c\xbe", "plain, then \xe2\x82\xac"};
    static const char *const bad[] = {"\xff", "\xc3", "cut at its end: \xe2\x82", "\xed\xa0\x80",
                                      "a long text with one bad letter \x80 in it"};
    if (is_bad(d))
        return bad[draw(d, sizeof bad / sizeof bad[0])];
    uint32_t which = draw(d, sizeof good / sizeof good[0] + 1);
    return which < sizeof good / sizeof good[0] ? good[which] : NULL;
}

static ProtobufCBinaryData draw_bytes(drawing *d)
{
    size_t len = draw(d, 12);
    uint8_t *data = draw(d, 8) ? teff_arena_alloc(d->arena, len) : NULL;
    for (size_t i = 0; data && i < len; i++)
        data[i] = (uint8_t)draw(d, 256);
    return (ProtobufCBinaryData){len, data};
}

static void draw_number(drawing *d, ProtobufCType type, uint8_t *slot)
{
    uint64_t v = (uint64_t)draw(d, UINT32_MAX) << 32 | draw(d, UINT32_MAX);
    v = draw(d, 4) ? v >> draw(d, 64) : 0 - (v >> draw(d, 64));
    if (type == PROTOBUF_C_TYPE_BOOL)
        v &= 1;
    if ((type == PROTOBUF_C_TYPE_DOUBLE || type == PROTOBUF_C_TYPE_FLOAT) && draw(d, 4) == 0)
        v = teffi_value_memory_size(type) == 8 ? 1ull << 63 : 1ull << 31; /* -0.0 */
    memcpy(slot, &v, teffi_value_memory_size(type)); /* the build refuses big-endian machines */
}

static void draw_value(drawing *d, teffi_field_desc *field, uint8_t *slot, unsigned depth)
{
    if (field->type == PROTOBUF_C_TYPE_STRING) {
        *(const char **)(void *)slot = draw_text(d);
    } else if (field->type == PROTOBUF_C_TYPE_BYTES) {
        *(ProtobufCBinaryData *)(void *)slot = draw_bytes(d);
    } else if (field->type == PROTOBUF_C_TYPE_MESSAGE) {
        ProtobufCMessage *m = is_bad(d) ? NULL : draw_message(d, field->descriptor, depth);
        if (m && draw(d, 8) == 0)
            m->descriptor = NULL; /* made without init: the field says what it is */
        *(ProtobufCMessage **)(void *)slot = m;
    } else {
        draw_number(d, field->type, slot);
    }
}

static void draw_list(drawing *d, teffi_field_desc *field, uint8_t *m, unsigned depth)
{
    size_t n = draw(d, LIST_MAX), step = teffi_value_memory_size(field->type);
    uint8_t *list = n ? teff_arena_alloc(d->arena, n * step) : NULL;
    for (size_t i = 0; i < n; i++)
        draw_value(d, field, list + i * step, depth);
    *(size_t *)(void *)(m + field->quantifier_offset) = n;
    *(uint8_t **)(void *)(m + field->offset) = list;
}

static void draw_unknown(drawing *d, ProtobufCMessage *m)
{
    static uint8_t bytes[] = {3, 'a', 0, 'c', 1, 2, 3, 4};
    m->n_unknown_fields = 1 + draw(d, 2);
    m->unknown_fields = teff_arena_alloc(d->arena, 2 * sizeof *m->unknown_fields);
    for (unsigned i = 0; i < m->n_unknown_fields; i++)
        m->unknown_fields[i] =
            draw(d, 2)
                ? (ProtobufCMessageUnknownField){3000 + draw(d, 9),
                                                 PROTOBUF_C_WIRE_TYPE_LENGTH_PREFIXED, 4, bytes}
                : (ProtobufCMessageUnknownField){3010, PROTOBUF_C_WIRE_TYPE_64BIT, 8, bytes};
}

ProtobufCMessage *draw_message(drawing *d, const ProtobufCMessageDescriptor *desc, unsigned depth)
{
    ProtobufCMessage *msg = teff_arena_alloc(d->arena, desc->sizeof_message);
    uint8_t *m = (uint8_t *)msg;
    desc->message_init(msg);
    for (unsigned i = 0; i < desc->n_fields; i++) {
        teffi_field_desc *field = &desc->fields[i];
        bool is_message = field->type == PROTOBUF_C_TYPE_MESSAGE;
        bool required = field->label == PROTOBUF_C_LABEL_REQUIRED;
        if (!required && (draw(d, 4) || (is_message && depth > DEPTH_USUAL)))
            continue;
        if (field->label == PROTOBUF_C_LABEL_REPEATED) {
            draw_list(d, field, m, depth + 1);
            continue;
        }
        if (field->flags & PROTOBUF_C_FIELD_FLAG_ONEOF)
            *(uint32_t *)(void *)(m + field->quantifier_offset) = field->id;
        else if (field->quantifier_offset)
            *(protobuf_c_boolean *)(void *)(m + field->quantifier_offset) = 1;
        draw_value(d, field, m + field->offset, depth + 1);
    }
    if (draw(d, 6) == 0)
        draw_unknown(d, msg);
    return msg;
}
