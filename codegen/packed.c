/* packed.c - unpacks messages whose nesting has a limit, and packs them. */
#include "packed.h"

enum { DEPTH_MAX = 100 };
enum { WIRE_VARINT = 0, WIRE_64 = 1, WIRE_BYTES = 2, WIRE_32 = 5 };

static bool scan_varint(teffi_bytes *in, uint64_t *value)
{
    *value = 0;
    for (unsigned shift = 0; shift < 64 && in->n > 0; shift += 7) {
        uint8_t byte = *in->data++;
        in->n--;
        *value |= (uint64_t)(byte & 0x7f) << shift;
        if (byte < 0x80)
            return true;
    }
    return false;
}

static bool skip_bytes(teffi_bytes *in, uint64_t n)
{
    if (n > in->n)
        return false;
    in->data += n;
    in->n -= n;
    return true;
}

static bool scan_message(const ProtobufCMessageDescriptor *desc, teffi_bytes in, unsigned depth);

static bool scan_bytes(const ProtobufCMessageDescriptor *desc, unsigned number, teffi_bytes *in,
                       unsigned depth)
{
    const ProtobufCFieldDescriptor *field = protobuf_c_message_descriptor_get_field(desc, number);
    uint64_t n;
    if (!scan_varint(in, &n))
        return false;
    teffi_bytes part = {in->data, (size_t)n};
    if (!skip_bytes(in, n))
        return false;
    return !field || field->type != PROTOBUF_C_TYPE_MESSAGE ||
           scan_message(field->descriptor, part, depth + 1);
}

static bool scan_field(const ProtobufCMessageDescriptor *desc, uint64_t tag, teffi_bytes *in,
                       unsigned depth)
{
    uint64_t value;
    switch (tag & 7) {
    case WIRE_VARINT:
        return scan_varint(in, &value);
    case WIRE_64:
        return skip_bytes(in, 8);
    case WIRE_BYTES:
        return scan_bytes(desc, (unsigned)(tag >> 3), in, depth);
    case WIRE_32:
        return skip_bytes(in, 4);
    default:
        return false;
    }
}

static bool scan_message(const ProtobufCMessageDescriptor *desc, teffi_bytes in, unsigned depth)
{
    uint64_t tag;
    bool ok = depth <= DEPTH_MAX;
    while (ok && in.n > 0) {
        ok = scan_varint(&in, &tag) && tag >> 3 != 0 && tag >> 32 == 0 &&
             scan_field(desc, tag, &in, depth);
    }
    return ok;
}

void *teffi_unpack(teffi_pool *pool, const ProtobufCMessageDescriptor *desc, teffi_bytes bytes)
{
    if (!scan_message(desc, bytes, 0))
        return NULL;
    return protobuf_c_message_unpack(desc, &pool->allocator, bytes.n, bytes.data);
}

teffi_bytes teffi_pack(teffi_pool *pool, const ProtobufCMessage *message)
{
    uint8_t *data = teffi_pool_alloc(pool, protobuf_c_message_get_packed_size(message) + 1);
    return (teffi_bytes){data, protobuf_c_message_pack(message, data)};
}
