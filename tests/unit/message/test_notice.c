/* test_notice.c - heads and references as bytes, which other builds must read; and bytes that are
 * neither. */
#include "test.h"
#include <string.h>
#include "message/notice.h"

static const uint8_t head_bytes[56] = {
    1,    2,    3,    4,    5,    6,    7,    8,    9,    10,   11,   12,   13,   14,
    15,   16,   0x28, 0x27, 0x26, 0x25, 0x24, 0x23, 0x22, 0x21, 0x38, 0x37, 0x36, 0x35,
    0x34, 0x33, 0x32, 0x31, 0x44, 0x43, 0x42, 0x41, 0x54, 0x53, 0x52, 0x51, 0x64, 0x63,
    0x62, 0x61, 0,    0,    0,    0,    0x78, 0x77, 0x76, 0x75, 0x74, 0x73, 0x72, 0x71};
static const teffi_notice_head head = {
    .seal = {1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16},
    .observer = 0x2122232425262728,
    .notifier = 0x3132333435363738,
    .slot = 0x41424344,
    .generation = 0x51525354,
    .index = 0x61626364,
    .subscription = 0x7172737475767778,
};

static const uint8_t client_bytes[40] = {
    1,    0,    0,  0,  0x14, 0x13, 0x12, 0x11, 0x28, 0x27, 0x26, 0x25, 0x24, 0x23,
    0x22, 0x01, 1,  2,  3,    4,    5,    6,    7,    8,    9,    10,   11,   12,
    13,   14,   15, 16, 0x38, 0x37, 0x36, 0x35, 0x34, 0x33, 0x32, 0x31};
static const uint8_t grain_bytes[17] = {2,    1,    0,    0, 0x14, 0x13, 0x12, 0x11, 0x24,
                                        0x23, 0x22, 0x21, 0, 0,    0,    0,    'k'};

static void a_notice_has_a_head(void **state)
{
    teffi_notice_head read;
    teffi_msg *msg = teffi_notice_new((teffi_node_id){1, 2}, (teffi_node_id){3, 4}, &head, 5, 6,
                                      (const uint8_t *)"body", 4);
    assert_non_null(msg);
    assert_int_equal(msg->item.kind, TEFFI_MSG_ONEWAY);
    assert_int_equal(msg->to.slot, TEFFI_SLOT_OBSERVER);
    assert_int_equal(msg->to.node.silo, 3);
    assert_int_equal(msg->src.incarnation, 2);
    assert_int_equal(msg->type_id, 5);
    assert_int_equal(msg->method_id, 6);
    assert_int_equal(msg->raw_len, 4);
    assert_memory_equal(msg->raw, "body", 4);
    assert_int_equal(msg->key_len, sizeof head_bytes);
    assert_memory_equal(msg->key, head_bytes, sizeof head_bytes);
    assert_true(teffi_notice_read_head(msg, &read));
    assert_memory_equal(&read, &head, sizeof head);
    msg->key_len--;
    assert_false(teffi_notice_read_head(msg, &read));
    msg->key_len = 0;
    msg->key = NULL;
    assert_false(teffi_notice_read_head(msg, &read));
    teffi_msg_free(msg);
}

static void a_head_has_zeros(void **state)
{
    teffi_notice_head other = head, read;
    other.zero = 1;
    teffi_msg *msg =
        teffi_notice_new((teffi_node_id){1, 2}, (teffi_node_id){3, 4}, &other, 5, 6, NULL, 0);
    assert_non_null(msg);
    assert_null(msg->raw);
    assert_false(teffi_notice_read_head(msg, &read));
    teffi_msg_free(msg);
}

static void references_are_read(void **state)
{
    teffi_client_ref client;
    teffi_grain_ref grain;
    assert_int_equal(teffi_ref_read(client_bytes, sizeof client_bytes, &client, &grain),
                     TEFFI_REF_CLIENT);
    assert_int_equal(client.head.interface, 0x11121314);
    assert_int_equal(client.gateway, 0x0122232425262728);
    assert_memory_equal(client.seal, client_bytes + 16, TEFFI_SEAL_BYTES);
    assert_int_equal(client.observer, 0x3132333435363738);
    assert_int_equal(teffi_ref_read(grain_bytes, sizeof grain_bytes, &client, &grain),
                     TEFFI_REF_GRAIN);
    assert_int_equal(grain.head.interface, 0x11121314);
    assert_int_equal(grain.head.key_kind, 1);
    assert_int_equal(grain.type, 0x21222324);
}

/* Each length but the right one, and each byte that must be zero. A gateway is no client: a
 * reference must not make a silo send to a client whose id somebody knows. */
static void other_bytes_are_refused(void **state)
{
    static const int zeros[2][7] = {{1, 2, 3, -1}, {2, 3, 12, 13, 14, 15, -1}};
    teffi_client_ref client;
    teffi_grain_ref grain;
    uint8_t bytes[64] = {0};
    assert_int_equal(teffi_ref_read(NULL, 0, &client, &grain), 0);
    for (size_t len = 0; len < sizeof bytes; len++) {
        memcpy(bytes, client_bytes, sizeof client_bytes);
        if (len != sizeof client_bytes)
            assert_int_equal(teffi_ref_read(bytes, len, &client, &grain), 0);
        memcpy(bytes, grain_bytes, sizeof grain_bytes);
        if (len < sizeof grain_bytes)
            assert_int_equal(teffi_ref_read(bytes, len, &client, &grain), 0);
    }
    for (int kind = 0; kind < 256; kind++) {
        memcpy(bytes, client_bytes, sizeof client_bytes);
        bytes[0] = (uint8_t)kind;
        if (kind != TEFFI_REF_CLIENT && kind != TEFFI_REF_GRAIN)
            assert_int_equal(teffi_ref_read(bytes, sizeof client_bytes, &client, &grain), 0);
    }
    for (int r = 0; r < 2; r++)
        for (int i = 0; zeros[r][i] >= 0; i++) {
            size_t len = r ? sizeof grain_bytes : sizeof client_bytes;
            memcpy(bytes, r ? grain_bytes : client_bytes, len);
            bytes[zeros[r][i]] = 1;
            assert_int_equal(teffi_ref_read(bytes, len, &client, &grain), 0);
        }
    memcpy(bytes, client_bytes, sizeof client_bytes);
    bytes[15] |= 0x80;
    assert_int_equal(teffi_ref_read(bytes, sizeof client_bytes, &client, &grain), 0);
    memset(bytes + 8, 0, 8); /* the gateway is nobody */
    assert_int_equal(teffi_ref_read(bytes, sizeof client_bytes, &client, &grain), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_notice_has_a_head),
        cmocka_unit_test(a_head_has_zeros),
        cmocka_unit_test(references_are_read),
        cmocka_unit_test(other_bytes_are_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
