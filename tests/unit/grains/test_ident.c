/* test_ident.c - keys to bytes and back, of all kinds, and what is refused. */
#include <stdlib.h>
#include "base/index.h"
#include "cluster/view.h"
#include "activation/ident.h"
#include "lab.h"

static uint8_t bytes[TEFFI_KEY_BYTES_MAX + 1];

static uint32_t encode(teff_key key)
{
    const char *why = NULL;
    uint32_t n = teffi_key_encode(key.kind, &key, bytes, &why);
    if (n == 0)
        assert_non_null(why);
    bytes[n] = 0;
    return n;
}

static void same_after_a_round_trip(teff_key key, uint32_t len)
{
    teff_key back;
    assert_int_equal(encode(key), len);
    assert_true(teffi_key_decode(key.kind, bytes, len, &back));
    assert_int_equal(back.kind, key.kind);
    assert_int_equal(back.number, key.number);
    assert_memory_equal(back.uuid.bytes, key.uuid.bytes, 16);
    if (key.text)
        assert_string_equal(back.text, key.text);
    else
        assert_null(back.text);
}

static const teff_uuid some = {{1, 2, 3, 0, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 255}};

static void all_kinds_come_back(void **state)
{
    same_after_a_round_trip((teff_key){.kind = TEFF_KEY_STRING, .text = "k"}, 1);
    same_after_a_round_trip((teff_key){.kind = TEFF_KEY_STRING, .text = "\xe1\x8a\xa0 z"}, 5);
    same_after_a_round_trip((teff_key){.kind = TEFF_KEY_INT64, .number = 0}, 8);
    same_after_a_round_trip((teff_key){.kind = TEFF_KEY_INT64, .number = -1}, 8);
    same_after_a_round_trip((teff_key){.kind = TEFF_KEY_INT64, .number = INT64_MIN}, 8);
    same_after_a_round_trip((teff_key){.kind = TEFF_KEY_INT64, .number = INT64_MAX}, 8);
    same_after_a_round_trip((teff_key){.kind = TEFF_KEY_UUID, .uuid = some}, 16);
    same_after_a_round_trip(
        (teff_key){.kind = TEFF_KEY_INT64_STRING, .number = -7, .text = "seven"}, 13);
    same_after_a_round_trip((teff_key){.kind = TEFF_KEY_UUID_STRING, .uuid = some, .text = "x"},
                            17);
}

/* Little-endian, whatever the machine: the bytes are part of the protocol and of stored rows. */
static void the_bytes_are_told(void **state)
{
    static const uint8_t expected[] = {0x08, 7, 6, 5, 4, 3, 2, 1, 'a'};
    assert_int_equal(encode((teff_key){
                         .kind = TEFF_KEY_INT64_STRING, .number = 0x0102030405060708, .text = "a"}),
                     sizeof expected);
    assert_memory_equal(bytes, expected, sizeof expected);
}

static void texts_at_the_limit(void **state)
{
    static char text[TEFF_KEY_MAX + 2];
    memset(text, 'k', TEFF_KEY_MAX);
    same_after_a_round_trip((teff_key){.kind = TEFF_KEY_STRING, .text = text}, TEFF_KEY_MAX);
    same_after_a_round_trip((teff_key){.kind = TEFF_KEY_UUID_STRING, .text = text},
                            TEFF_KEY_MAX + 16);
    text[TEFF_KEY_MAX] = 'k';
    assert_int_equal(encode((teff_key){.kind = TEFF_KEY_STRING, .text = text}), 0);
    assert_int_equal(encode((teff_key){.kind = TEFF_KEY_INT64_STRING, .text = text}), 0);
}

static void bad_texts_are_refused(void **state)
{
    static const char *const bad[] = {NULL, "", "\xff", "ok\xc3", "\xc0\xaf", "\xed\xa0\x80"};
    static const teff_key_kind kinds[] = {TEFF_KEY_STRING, TEFF_KEY_INT64_STRING,
                                          TEFF_KEY_UUID_STRING};
    for (size_t k = 0; k < sizeof kinds / sizeof kinds[0]; k++)
        for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++)
            assert_int_equal(encode((teff_key){.kind = kinds[k], .text = bad[i]}), 0);
}

static void a_key_of_another_kind_is_refused(void **state)
{
    teff_key key = {.kind = TEFF_KEY_INT64, .number = 4, .text = "four"};
    const char *why;
    assert_int_equal(teffi_key_encode(TEFF_KEY_STRING, &key, bytes, &why), 0);
    assert_non_null(strstr(why, "kind"));
    key.kind = (teff_key_kind)0;
    assert_int_equal(teffi_key_encode(TEFF_KEY_STRING, &key, bytes, &why), 0);
}

static bool decodes(teff_key_kind kind, const char *data, uint32_t len)
{
    teff_key key;
    memcpy(bytes, data, len);
    bytes[len] = 0;
    return teffi_key_decode(kind, bytes, len, &key);
}

/* From the wire: any bytes may come. */
static void bad_bytes_are_refused(void **state)
{
    assert_false(decodes(TEFF_KEY_STRING, "", 0));
    assert_false(decodes(TEFF_KEY_STRING, "a\0b", 3));
    assert_false(decodes(TEFF_KEY_STRING, "\xff\xfe", 2));
    assert_false(decodes(TEFF_KEY_INT64, "1234567", 7));
    assert_false(decodes(TEFF_KEY_INT64, "123456789", 9));
    assert_false(decodes(TEFF_KEY_UUID, "123456789012345", 15));
    assert_false(decodes(TEFF_KEY_INT64_STRING, "12345678", 8));
    assert_false(decodes(TEFF_KEY_UUID_STRING, "1234567890123456", 16));
    assert_true(decodes(TEFF_KEY_INT64_STRING, "12345678a", 9));
}

static const teffi_sipkey secret = {17, 4};

static void identities_differ_by_type_and_key(void **state)
{
    teffi_ident a = teffi_ident_of(&secret, 1, (const uint8_t *)"abc", 3);
    teffi_ident b = teffi_ident_of(&secret, 2, (const uint8_t *)"abc", 3);
    teffi_ident c = teffi_ident_of(&secret, 1, (const uint8_t *)"abd", 3);
    teffi_ident same = teffi_ident_of(&secret, 1, (const uint8_t *)"abc", 3);
    assert_true(teffi_ident_equals(&a, &same));
    assert_false(teffi_ident_equals(&a, &b));
    assert_false(teffi_ident_equals(&a, &c));
    assert_int_not_equal(a.hash, b.hash);
}

/* What teffi_key_cluster_hash holds after the first eight of sixteen bytes. */
static uint64_t place_half_way(uint64_t first)
{
    return teffi_hash_add_word(teffi_hash_begin(16, 1), first);
}

/* Keys of one place are easily computed; they must not meet in a silo's tables as well. */
static void keys_chosen_to_collide_are_spread(void **state)
{
    enum { N = 1000 };
    uint64_t keys[N][2] = {{1, 2}};
    for (uint64_t i = 0; i < N; i++) {
        keys[i][0] = i + 1;
        keys[i][1] = 2 ^ place_half_way(1) ^ place_half_way(i + 1);
        teffi_ident ident = teffi_ident_of(&secret, 1, (const uint8_t *)keys[i], 16);
        assert_int_equal(teffi_key_cluster_hash(1, ident.key, 16),
                         teffi_key_cluster_hash(1, (const uint8_t *)keys[0], 16));
        for (uint64_t k = 0; k < i; k++) {
            teffi_ident other = teffi_ident_of(&secret, 1, (const uint8_t *)keys[k], 16);
            assert_int_not_equal(teffi_index_hash_bits(ident.hash),
                                 teffi_index_hash_bits(other.hash));
        }
    }
}

static void silos_agree_on_the_partition_only(void **state)
{
    const teffi_sipkey other = {17, 5};
    teffi_ident a = teffi_ident_of(&secret, 1, (const uint8_t *)"abc", 3);
    teffi_ident b = teffi_ident_of(&other, 1, (const uint8_t *)"abc", 3);
    assert_int_equal(teffi_partition_of_hash(a.hash), teffi_partition_of_hash(b.hash));
    assert_int_equal(teffi_partition_of_hash(a.hash),
                     teffi_partition_of_hash(teffi_key_cluster_hash(1, (const uint8_t *)"abc", 3)));
    assert_int_not_equal(a.hash << 8, b.hash << 8);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(all_kinds_come_back),
        cmocka_unit_test(the_bytes_are_told),
        cmocka_unit_test(texts_at_the_limit),
        cmocka_unit_test(bad_texts_are_refused),
        cmocka_unit_test(a_key_of_another_kind_is_refused),
        cmocka_unit_test(bad_bytes_are_refused),
        cmocka_unit_test(identities_differ_by_type_and_key),
        cmocka_unit_test(keys_chosen_to_collide_are_spread),
        cmocka_unit_test(silos_agree_on_the_partition_only),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
