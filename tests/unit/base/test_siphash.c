/* test_siphash.c - the published values of SipHash-1-3, and that the key decides. */
#include "base/siphash.h"

/* cmocka comes after these. */
#include "test.h"

/* Of the reference implementation: key 00 01 .. 0f, message 00 01 .. of i bytes. */
static const uint64_t vectors[] = {
    0xabac0158050fc4dcu, 0xc9f49bf37d57ca93u, 0x82cb9b024dc7d44du, 0x8bf80ab8e7ddf7fbu,
    0xcf75576088d38328u, 0xdef9d52f49533b67u, 0xc50d2b50c59f22a7u, 0xd3927d989bb11140u,
    0x369095118d299a8eu, 0x25a48eb36c063de4u, 0x79de85ee92ff097fu, 0x70c118c1f94dc352u,
    0x78a384b157b4d9a2u, 0x306f760c1229ffa7u, 0x605aa111c0f95d34u, 0xd320d86d2a519956u,
    0xcc4fdd1a7d908b66u,
};

static void published_values(void **state)
{
    const teffi_sipkey key = {0x0706050403020100u, 0x0f0e0d0c0b0a0908u};
    uint8_t data[16];
    for (uint8_t i = 0; i < sizeof data; i++)
        data[i] = i;
    for (size_t n = 0; n < sizeof vectors / sizeof vectors[0]; n++)
        assert_int_equal(teffi_siphash(&key, data, n), vectors[n]);
}

static void a_word_is_its_bytes(void **state)
{
    const teffi_sipkey key = {1, 2};
    for (uint64_t word = 1, i = 0; i < 64; word *= 0x9e3779b97f4a7c15u, i++)
        assert_true(teffi_siphash_word(&key, word) == teffi_siphash(&key, &word, sizeof word));
}

static void each_half_of_the_key_counts(void **state)
{
    const teffi_sipkey keys[] = {{1, 2}, {1, 3}, {2, 2}};
    uint64_t first = teffi_siphash(&keys[0], "teff", 4);
    assert_true(first != teffi_siphash(&keys[1], "teff", 4));
    assert_true(first != teffi_siphash(&keys[2], "teff", 4));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(published_values),
        cmocka_unit_test(a_word_is_its_bytes),
        cmocka_unit_test(each_half_of_the_key_counts),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
