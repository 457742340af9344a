/* msg.c - creates, packs, unpacks and frees messages. */
#include "message/msg.h"

#include <string.h>
#include "memory/pool.h"
#include "message/codec.h"

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
    if (msg->budget)
        teffi_budget_add(msg->budget, -(int64_t)msg->charged);
    teffi_arena_free_memory(&msg->arena);
    teffi_pool_put(msg, sizeof(struct block));
}

/* Counts the message's present memory in its budget, in place of the bytes counted before. */
static void update_charge(teffi_msg *msg)
{
    size_t bytes = sizeof(struct block) + teffi_arena_held_bytes(&msg->arena);
    uint32_t charged = bytes < UINT32_MAX ? (uint32_t)bytes : UINT32_MAX;
    teffi_budget_add(msg->budget, (int64_t)charged - msg->charged);
    msg->charged = charged;
}

void teffi_msg_charge(teffi_msg *msg, teffi_budget *budget)
{
    if (msg->charged)
        return;
    msg->budget = budget;
    update_charge(msg);
}

bool teffi_msg_copy_borrowed(teffi_msg *msg)
{
    if (!msg->borrows)
        return true;
    size_t len = teffi_msg_packed_len(msg);
    bool has_text = msg->item.kind == TEFFI_MSG_RESPONSE && msg->text;
    /* part: the packed list of a transaction's participants, which a response may carry */
    bool has_part = msg->item.kind == TEFFI_MSG_RESPONSE && msg->transaction;
    uint8_t *raw = teff_arena_alloc(&msg->arena, len + msg->key_len + 1);
    char *text =
        raw && has_text ? teff_arena_copy(&msg->arena, msg->text, strlen(msg->text)) : NULL;
    uint8_t *part = raw && has_part
                        ? teff_arena_copy(&msg->arena, msg->transaction, msg->transaction_len)
                        : NULL;
    if (!raw || (has_text && !text) || (has_part && !part))
        return false;
    teffi_msg_pack(msg, len, raw);
    if (msg->key_len)
        memcpy(raw + len, msg->key, msg->key_len);
    raw[len + msg->key_len] = 0; /* ends a key that is a string */
    msg->key = raw + len;
    msg->raw = raw;
    msg->raw_len = len;
    msg->body = NULL;
    if (has_text)
        msg->text = text;
    if (has_part)
        msg->transaction = part;
    msg->borrows = false;
    return true;
}

size_t teffi_msg_packed_len(const teffi_msg *msg)
{
    if (!msg->body)
        return msg->raw_len;
    return msg->packed_len ? msg->packed_len : teffi_packed_size(msg->body);
}

void teffi_msg_pack(const teffi_msg *msg, size_t len, uint8_t *out)
{
    if (msg->body)
        teffi_pack(msg->body, len, out);
    else if (msg->raw_len)
        memcpy(out, msg->raw, msg->raw_len);
}

bool teffi_msg_find_segment(const teffi_msg *msg, size_t min, teffi_segment *segment)
{
    if (msg->body)
        return teffi_find_segment(msg->body, min, segment);
    *segment = (teffi_segment){.bytes = msg->raw, .len = msg->raw_len};
    return msg->raw_len >= min;
}

size_t teffi_msg_pack_without_segment(const teffi_msg *msg, size_t len,
                                      const teffi_segment *segment, uint8_t *out)
{
    /* if there is no body, the segment is all of raw, so no bytes precede it */
    return msg->body ? teffi_pack_without_segment(msg->body, len, segment, out) : 0;
}

teff_err teffi_msg_unpack(teffi_msg *msg, const ProtobufCMessageDescriptor *desc)
{
    if (msg->body)
        return TEFF_OK;
    /* borrows: true, because raw lives as long as the arena */
    teff_err err = teffi_unpack_with_options(desc, msg->raw, msg->raw_len, TEFF_FIELDS_MAX, true,
                                             &msg->arena, &msg->body);
    if (msg->charged && msg->arena.chunks)
        update_charge(msg);
    return err;
}
