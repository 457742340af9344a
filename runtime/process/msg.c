/* msg.c - messages: made, packed, unpacked, freed.
 * Way:     grains/reference -> [msg] -> groups, wire/frame */
#include "process/msg.h"

#include <string.h>
#include "base/pool.h"
#include "wire/codec.h"
#include "wire/encode.h"

/* What a body may take in memory: a packed megabyte can become sixty (RELIABILITY section 2). */
static const size_t body_budget_bytes = 64u * 1024 * 1024;

struct block {
    teffi_msg msg;
    _Alignas(16) uint8_t inline_bytes[TEFFI_MSG_INLINE];
};

teffi_msg *teffi_msg_new(uint32_t kind)
{
    struct block *block = teffi_pool_get(sizeof *block);
    if (!block)
        return NULL;
    teffi_msg *msg = &block->msg;
    memset(msg, 0, sizeof *msg);
    msg->item.kind = kind;
    teffi_arena_init(&msg->arena, block->inline_bytes, sizeof block->inline_bytes,
                     body_budget_bytes);
    return msg;
}

void teffi_msg_free(teffi_msg *msg)
{
    if (!msg)
        return;
    teffi_arena_fini(&msg->arena);
    teffi_pool_put(msg, sizeof(struct block));
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

teff_err teffi_msg_unpack(teffi_msg *msg, const ProtobufCMessageDescriptor *desc)
{
    if (msg->body)
        return TEFF_OK;
    return teffi_unpack_borrow(desc, msg->raw, msg->raw_len, &msg->arena, &msg->body);
}
