/* notice.c - copies heads and references from and to bytes; received bytes are not trusted. */
#include "message/notice.h"

#include <string.h>

bool teffi_notice_read_head(const teffi_msg *msg, teffi_notice_head *head)
{
    if (msg->key_len != sizeof *head)
        return false;
    memcpy(head, msg->key, sizeof *head);
    return head->zero == 0;
}

teffi_msg *teffi_notice_new(teffi_node_id from, teffi_node_id to, const teffi_notice_head *head,
                            uint32_t type_id, uint32_t method_id, const uint8_t *raw, size_t len)
{
    teffi_msg *msg = teffi_msg_new(TEFFI_MSG_ONEWAY);
    if (!msg)
        return NULL;
    msg->src = from;
    msg->to = (teffi_pid){.node = to, .slot = TEFFI_SLOT_OBSERVER};
    msg->type_id = type_id;
    msg->method_id = method_id;
    msg->key = teff_arena_copy(&msg->arena, head, sizeof *head);
    msg->key_len = sizeof *head;
    msg->raw = len ? teff_arena_copy(&msg->arena, raw, len) : NULL;
    msg->raw_len = len;
    if (msg->key && (msg->raw || !len))
        return msg;
    teffi_msg_free(msg);
    return NULL;
}

int teffi_ref_read(const uint8_t *bytes, size_t len, teffi_client_ref *client,
                   teffi_grain_ref *grain)
{
    teffi_ref_head head;
    if (len < sizeof head)
        return 0;
    memcpy(&head, bytes, sizeof head);
    if (head.zero[0] || head.zero[1])
        return 0;
    if (head.kind == TEFFI_REF_CLIENT && !head.key_kind && len == sizeof *client) {
        memcpy(client, bytes, sizeof *client);
        bool client_bit = teffi_node_from_word(client->gateway).silo & TEFFI_CLIENT_BIT;
        return !client->gateway || client_bit ? 0 : head.kind;
    }
    if (head.kind != TEFFI_REF_GRAIN || len <= sizeof *grain)
        return 0;
    memcpy(grain, bytes, sizeof *grain);
    return grain->zero ? 0 : head.kind;
}
