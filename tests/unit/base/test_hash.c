/* test_hash.c - the hash is part of the wire protocol and of stored rows: its values never change.
 */
#include "base/hash.h"

#include <string.h>
/* cmocka comes after these. */
#include "test.h"

static void fixed_values(void **state)
{
    assert_int_equal(teffi_hash64("", 0, 0), 0xf52a15e9a9b5e89bu);
    assert_int_equal(teffi_hash64("a", 1, 0), 0x62247e5c0ecf73bu);
    assert_int_equal(teffi_hash64("words/teff", 10, 7), 0xc254b691dba78759u);
    assert_int_equal(teffi_hash64("0123456789abcdef0123456789", 26, 1), 0x7142419212777c14u);
}

static void a_word_is_its_bytes(void **state)
{
    for (uint64_t word = 1, seed = 0; seed < 64; word *= 0x9e3779b97f4a7c15u, seed++)
        assert_true(teffi_hash64_word(word, seed) == teffi_hash64(&word, sizeof word, seed));
}

static void nothing_has_no_address(void **state)
{
    assert_int_equal(teffi_hash64(NULL, 0, 5), teffi_hash64("x", 0, 5));
}

static void every_bit_counts(void **state)
{
    unsigned char data[40] = {0};
    for (size_t n = 1; n <= sizeof data; n++) {
        uint64_t plain = teffi_hash64(data, n, 3);
        assert_int_not_equal(plain, teffi_hash64(data, n - 1, 3));
        assert_int_not_equal(plain, teffi_hash64(data, n, 4));
        for (size_t bit = 0; bit < n * 8; bit++) {
            data[bit / 8] ^= (unsigned char)(1u << bit % 8);
            int changed = __builtin_popcountll(plain ^ teffi_hash64(data, n, 3));
            data[bit / 8] ^= (unsigned char)(1u << bit % 8);
            assert_in_range(changed, 8, 56);
        }
    }
}

static void where_it_lies_does_not_matter(void **state)
{
    char data[64];
    for (size_t at = 0; at < 16; at++) {
        memcpy(data + at, "0123456789abcdef0123456789", 26);
        assert_int_equal(teffi_hash64(data + at, 26, 1), 0x7142419212777c14u);
    }
}

/* Near numbers, as keys often are, fall evenly into buckets. */
static void spread(void **state)
{
    enum { BUCKETS = 64, N = 64 * 1000 };
    unsigned count[BUCKETS] = {0};
    for (uint64_t i = 0; i < N; i++)
        count[teffi_hash64(&i, sizeof i, 0) >> 58]++;
    for (size_t i = 0; i < BUCKETS; i++)
        assert_in_range(count[i], 850, 1150);
}

static void mix_is_a_bijection_on_samples(void **state)
{
    assert_int_equal(teffi_mix64(0), 0);
    for (uint64_t i = 1; i < 5000; i++)
        assert_true(teffi_mix64(i) != teffi_mix64(i - 1) && teffi_mix64(i) != 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(fixed_values),
        cmocka_unit_test(a_word_is_its_bytes),
        cmocka_unit_test(nothing_has_no_address),
        cmocka_unit_test(every_bit_counts),
        cmocka_unit_test(where_it_lies_does_not_matter),
        cmocka_unit_test(spread),
        cmocka_unit_test(mix_is_a_bijection_on_samples),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
