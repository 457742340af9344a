/* test_copy.c - the steps of a message's deep copy: all of it lies in the arena, and ends when the
 * arena is full. */
#include <string.h>
#include <teff/copy.h>
#include "memory/arena.h"
/* cmocka comes after these. */
#include "test.h"

enum { ROOM = 4096 };

static _Alignas(16) char block[ROOM];
static teff_arena arena;

static int set_up(void **state)
{
    teffi_arena_init(&arena, block, sizeof block, sizeof block);
    return 0;
}

static int tear_down(void **state)
{
    teffi_arena_fini(&arena);
    return 0;
}

static bool is_copied(const void *p)
{
    return (const char *)p >= block && (const char *)p < block + sizeof block;
}

static void texts_are_copied(void **state)
{
    const char *one = "one", *none = NULL;
    const char *both[] = {"a text that is longer", NULL};
    const char **list = both, **empty = both;
    assert_true(teff_copy_text(&arena, &one) && is_copied(one));
    assert_string_equal(one, "one");
    assert_true(teff_copy_text(&arena, &none));
    assert_string_equal(none, "");
    assert_true(teff_copy_texts(&arena, 2, &list) && is_copied(list));
    assert_string_equal(list[0], both[0]);
    assert_true(is_copied(list[0]));
    assert_string_equal(list[1], "");
    assert_true(teff_copy_texts(&arena, 0, &empty));
    assert_null(empty);
    assert_false(arena.bad_text);
    teff_copy_check_utf8(&arena, "\xff", 1);
    assert_true(arena.bad_text);
}

/* Four to eight bytes are checked as two words, which overlap. */
static void a_byte_that_is_no_utf8_is_found_wherever_it_is(void **state)
{
    enum { LONGEST = 12 };
    for (size_t n = 1; n <= LONGEST; n++)
        for (size_t at = 0; at <= n; at++) {
            char text[LONGEST + 1] = "abcdefghijkl", to[LONGEST + 1], *end = to;
            text[n] = 0;
            if (at < n)
                text[at] = '\xff';
            arena.bad_text = false;
            assert_int_equal(teff_copy_text_size(&arena, text), n + 1);
            assert_int_equal(arena.bad_text, at < n);
            assert_string_equal(teff_copy_text_to(&end, text, n + 1), text);
            assert_ptr_equal(end, to + n + 1);
        }
}

static void bytes_are_copied(void **state)
{
    uint8_t data[] = {1, 0, 3};
    ProtobufCBinaryData both[] = {{3, data}, {0, data}}, *list = both, *empty = both;
    assert_true(teff_copy_bytes_list(&arena, 2, &list) && is_copied(list));
    assert_int_equal(list[0].len, 3);
    assert_true(is_copied(list[0].data));
    assert_memory_equal(list[0].data, data, 3);
    assert_null(list[1].data);
    assert_true(teff_copy_bytes_list(&arena, 0, &empty));
    assert_null(empty);
}

/* in: two fields that the receiver's type does not know. */
static int copy_unknown(uint8_t *data, ProtobufCMessage *copy)
{
    static ProtobufCMessageUnknownField fields[2];
    for (uint32_t i = 0; i < 2; i++)
        fields[i] = (ProtobufCMessageUnknownField){.tag = 90 + i, .len = 3, .data = data};
    *copy = (ProtobufCMessage){.n_unknown_fields = 2, .unknown_fields = fields};
    return teff_copy_unknown(&arena, copy);
}

static void unknown_fields_are_copied(void **state)
{
    uint8_t data[] = {7, 8, 9};
    ProtobufCMessage copy;
    assert_true(copy_unknown(data, &copy));
    assert_true(is_copied(copy.unknown_fields));
    for (uint32_t i = 0; i < 2; i++) {
        assert_int_equal(copy.unknown_fields[i].tag, 90 + i);
        assert_true(is_copied(copy.unknown_fields[i].data));
        assert_memory_equal(copy.unknown_fields[i].data, data, 3);
    }
}

static bool differs(const void *copy, const void *from)
{
    return copy && copy != from;
}

/* out: the copy was made; then it is whole. */
static bool copies_whole(unsigned kind)
{
    uint8_t data[] = {7, 8, 9};
    const char *one = "one", *both[] = {"one", "two"}, **texts = both;
    ProtobufCBinaryData pieces[] = {{3, data}, {3, data}}, *list = pieces;
    ProtobufCMessage copy;
    const ProtobufCMessageUnknownField *unknown;
    switch (kind) {
    case 0:
        return teff_copy_text(&arena, &one);
    case 1:
        if (!teff_copy_texts(&arena, 2, &texts))
            return false;
        assert_true(differs(texts[0], both[0]) && differs(texts[1], both[1]));
        return true;
    case 2:
        if (!teff_copy_bytes_list(&arena, 2, &list))
            return false;
        assert_true(differs(list[0].data, data) && differs(list[1].data, data));
        return true;
    default:
        if (!copy_unknown(data, &copy))
            return false;
        unknown = copy.unknown_fields;
        assert_true(differs(unknown[0].data, data) && differs(unknown[1].data, data));
        return true;
    }
}

/* Each copy fails in the end, wherever in its middle; until then it is whole. */
static void a_full_arena_ends_each_copy(void **state)
{
    for (unsigned kind = 0; kind < 4; kind++)
        for (size_t used = 8; used <= 128; used += 8) {
            bool copied = true;
            (void)tear_down(NULL);
            (void)set_up(NULL);
            assert_non_null(teffi_arena_alloc_unzeroed(&arena, used));
            for (unsigned n = 0; copied && n < ROOM; n++)
                copied = copies_whole(kind);
            assert_false(copied);
        }
}

#define ROW(f) cmocka_unit_test_setup_teardown(f, set_up, tear_down)

int main(void)
{
    const struct CMUnitTest tests[] = {
        ROW(texts_are_copied),
        ROW(a_byte_that_is_no_utf8_is_found_wherever_it_is),
        ROW(bytes_are_copied),
        ROW(unknown_fields_are_copied),
        ROW(a_full_arena_ends_each_copy),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
