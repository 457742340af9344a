/* scan.c - how deep do these bytes nest? Asked before protobuf-c unpacks them.
 * Way:     codegen -> [scan] -> protobuf_c_message_unpack */
#include "codegen.h"

enum { DEPTH_MAX = 100 };

enum { WIRE_VARINT = 0, WIRE_64 = 1, WIRE_BYTES = 2, WIRE_32 = 5 };

static bool read_varint(teffi_bytes *in, uint64_t *value)
{
    *value = 0;
    for (unsigned shift = 0; shift < 64 && in->n > 0; shift += 7) {
        uint8_t byte = *in->data++;

        in->n--;
        *value |= (uint64_t)(byte & 0x7f) << shift;
        if (byte < 0x80) {
            return true;
        }
    }
    return false;
}

static bool skip(teffi_bytes *in, uint64_t n)
{
    if (n > in->n) {
        return false;
    }
    in->data += n;
    in->n -= n;
    return true;
}

static bool scan_at(const ProtobufCMessageDescriptor *desc, teffi_bytes in, unsigned depth);

static bool scan_bytes(const ProtobufCMessageDescriptor *desc, unsigned number, teffi_bytes *in,
                       unsigned depth)
{
    const ProtobufCFieldDescriptor *field = protobuf_c_message_descriptor_get_field(desc, number);
    teffi_bytes part;
    uint64_t n;

    if (!read_varint(in, &n)) {
        return false;
    }
    part = (teffi_bytes){in->data, (size_t)n};
    if (!skip(in, n)) {
        return false;
    }
    return field == NULL || field->type != PROTOBUF_C_TYPE_MESSAGE ||
           scan_at(field->descriptor, part, depth + 1);
}

static bool scan_at(const ProtobufCMessageDescriptor *desc, teffi_bytes in, unsigned depth)
{
    uint64_t tag;
    uint64_t value;
    bool ok = depth <= DEPTH_MAX;

    while (ok && in.n > 0) {
        if (!read_varint(&in, &tag) || tag >> 3 == 0 || tag >> 32 != 0) {
            return false;
        }
        switch (tag & 7) {
        case WIRE_VARINT:
            ok = read_varint(&in, &value);
            break;
        case WIRE_64:
            ok = skip(&in, 8);
            break;
        case WIRE_BYTES:
            ok = scan_bytes(desc, (unsigned)(tag >> 3), &in, depth);
            break;
        case WIRE_32:
            ok = skip(&in, 4);
            break;
        default:
            return false;
        }
    }
    return ok;
}

bool teffi_scan(const ProtobufCMessageDescriptor *desc, teffi_bytes bytes)
{
    return scan_at(desc, bytes, 0);
}
