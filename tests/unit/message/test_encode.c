/* test_encode.c - what messages that were unpacked do not have, and the zero-copy segment. The rest
 * is compared with protobuf-c in test_decode. */
#include "test.h"
#include <string.h>
#include "tree.pb-c.h"
#include "message/codec.h"

typedef Teff__Test__Tree tree;

static void assert_packs_as(const tree *t, const char *expected, size_t n)
{
    uint8_t bytes[32];
    assert_int_equal(teffi_packed_size(&t->base), n);
    teffi_pack(&t->base, n, bytes);
    assert_memory_equal(bytes, expected, n);
}

static void null_in_a_list_of_messages_is_an_empty_one(void **state)
{
    tree t = TEFF__TEST__TREE__INIT, flagged = TEFF__TEST__TREE__INIT;
    tree *children[] = {NULL, &flagged, NULL};
    flagged.flag = true;
    t.n_children = 3;
    t.children = children;
    assert_packs_as(&t, "\x12\0\x12\x02\x40\x01\x12\0", 8);
}

static void wide_numbers_have_all_their_bits(void **state)
{
    tree t = TEFF__TEST__TREE__INIT;
    t.wide = 1ull << 35;
    t.count = 1u << 28;
    assert_packs_as(&t,
                    "\xc8\x01\x80\x80\x80\x80\x80\x01"
                    "\xd0\x01\x80\x80\x80\x80\x01",
                    15);
}

/* The field of the segment of at least min bytes; 0: there is none. */
static unsigned segment_field(const tree *t, size_t min, size_t len)
{
    teffi_segment segment = {.len = 7};
    if (!teffi_find_segment(&t->base, min, &segment)) {
        assert_int_equal(segment.len, 0);
        return 0;
    }
    assert_int_equal(segment.len, len);
    return t->base.descriptor->fields[segment.field].id;
}

static void the_segment_is_the_longest_text_or_bytes(void **state)
{
    enum { NAME = 1, BLOB = 4, TEXT = 20, RAW = 23 };
    static char one[] = "a", five[] = "aaaaa";
    static uint8_t bytes[9];
    tree t = TEFF__TEST__TREE__INIT;
    assert_int_equal(segment_field(&t, 0, 0), 0);
    t.name = one;
    assert_int_equal(segment_field(&t, 1, 1), NAME);
    assert_int_equal(segment_field(&t, 2, 0), 0);
    t.blob = (ProtobufCBinaryData){5, bytes};
    assert_int_equal(segment_field(&t, 1, 5), BLOB);
    assert_int_equal(segment_field(&t, 6, 0), 0);
    t.which_case = TEFF__TEST__TREE__WHICH_RAW;
    t.raw = (ProtobufCBinaryData){9, bytes};
    assert_int_equal(segment_field(&t, 1, 9), RAW);
    t.which_case = TEFF__TEST__TREE__WHICH_TEXT;
    t.text = five;
    assert_int_equal(segment_field(&t, 5, 5), BLOB); /* the first of two that are as long */
    t.blob.len = 4;
    assert_int_equal(segment_field(&t, 1, 5), TEXT);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(null_in_a_list_of_messages_is_an_empty_one),
        cmocka_unit_test(wide_numbers_have_all_their_bits),
        cmocka_unit_test(the_segment_is_the_longest_text_or_bytes),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
