/* test_seal.c - a sealed node opens with the same key only. The expected bytes were computed by
 * openssl: enc -aes-128-ecb -nopad. */
#include "test.h"
#include <string.h>
#include "message/seal.h"

static const uint8_t key[TEFFI_SEAL_KEY_BYTES] = "0123456789abcdef";
static const teffi_node_id node = {0x81020304, 0x05060708};

static void a_seal_is_one_block_of_aes(void **state)
{
    static const uint8_t expected[TEFFI_SEAL_BYTES] = {0x08, 0xee, 0x1b, 0x8f, 0xdd, 0xc5,
                                                       0xfd, 0xf0, 0x3c, 0xd3, 0x9a, 0x0d,
                                                       0x53, 0x45, 0x9d, 0xfb};
    uint8_t seal[TEFFI_SEAL_BYTES];
    teffi_node_id opened;
    assert_true(teffi_seal_make(key, node, seal));
    assert_memory_equal(seal, expected, sizeof seal);
    assert_true(teffi_seal_open(key, seal, &opened));
    assert_true(teffi_node_equals(opened, node));
}

static void each_bit_counts(void **state)
{
    uint8_t seal[TEFFI_SEAL_BYTES], other[TEFFI_SEAL_KEY_BYTES];
    teffi_node_id opened;
    assert_true(teffi_seal_make(key, node, seal));
    for (int bit = 0; bit < 8 * TEFFI_SEAL_BYTES; bit++) {
        seal[bit / 8] ^= (uint8_t)(1 << bit % 8);
        assert_false(teffi_seal_open(key, seal, &opened));
        seal[bit / 8] ^= (uint8_t)(1 << bit % 8);
        memcpy(other, key, sizeof other);
        other[bit / 8] ^= (uint8_t)(1 << bit % 8);
        assert_false(teffi_seal_open(other, seal, &opened));
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_seal_is_one_block_of_aes),
        cmocka_unit_test(each_bit_counts),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
