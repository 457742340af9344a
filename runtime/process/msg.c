/* msg.c - messages: made, packed, unpacked, freed.
 * Way:     grains/reference -> [msg] -> groups, wire/frame */
#include "process/msg.h"

#include <string.h>
#include "base/pool.h"
#include "wire/codec.h"
#include "wire/encode.h"

struct block {
    teffi_msg msg;
    _Alignas(16) uint8_t inline_bytes[TEFFI_MSG_INLINE];
};

teffi_msg *teffi_msg_new(uint32_t kind)
{
    struct block *block = teffi_pool_get(sizeof *block);
    if (!block)
        return NULL;
    teffi_msg_init(&block->msg, kind, block->inline_bytes);
    return &block->msg;
}

void teffi_msg_free(teffi_msg *msg)
{
    if (!msg)
        return;
    teffi_arena_drop(&msg->arena);
    teffi_pool_put(msg, sizeof(struct block));
}

bool teffi_msg_own(teffi_msg *msg)
{
    if (!msg->borrows)
        return true;
    size_t len = teffi_msg_packed_len(msg);
    uint8_t *raw = teff_arena_alloc(&msg->arena, len + msg->key_len + 1);
    if (!raw)
        return false;
    teffi_msg_pack(msg, len, raw);
    if (msg->key_len)
        memcpy(raw + len, msg->key, msg->key_len);
    raw[len + msg->key_len] = 0; /* behind a key that is a text */
    msg->key = raw + len;
    msg->raw = raw;
    msg->raw_len = len;
    msg->body = NULL;
    msg->borrows = false;
    return true;
}

size_t teffi_msg_packed_len(const teffi_msg *msg)
{
    return msg->body ? teffi_packed_size(msg->body) : msg->raw_len;
}

void teffi_msg_pack(const teffi_msg *msg, size_t len, uint8_t *out)
{
    if (msg->body)
        teffi_pack(msg->body, len, out);
    else if (msg->raw_len)
        memcpy(out, msg->raw, msg->raw_len);
}

bool teffi_msg_hole(const teffi_msg *msg, size_t min, teffi_hole *hole)
{
    if (msg->body)
        return teffi_pack_hole(msg->body, min, hole);
    *hole = (teffi_hole){.bytes = msg->raw, .len = msg->raw_len};
    return msg->raw_len >= min;
}

size_t teffi_msg_pack_around(const teffi_msg *msg, size_t len, const teffi_hole *hole, uint8_t *out)
{
    return msg->body ? teffi_pack_around(msg->body, len, hole, out) : 0;
}

teff_err teffi_msg_unpack(teffi_msg *msg, const ProtobufCMessageDescriptor *desc)
{
    if (msg->body)
        return TEFF_OK;
    return teffi_unpack_borrow(desc, msg->raw, msg->raw_len, &msg->arena, &msg->body);
}
