/* test_check.c - sizes, fields and memory are counted; what breaks a rule is named. */
#include "test.h"
#include <stdio.h>
#include <string.h>
#include "older.pb-c.h"
#include "tree.pb-c.h"
#include "message/codec.h"

typedef Teff__Test__Tree tree;
typedef Teff__Test__Older older;
typedef Teff__Test__Strict strict;

#define TREE(...)                                                                                  \
    {                                                                                              \
        .base = PROTOBUF_C_MESSAGE_INIT(&teff__test__tree__descriptor), __VA_ARGS__                \
    }

static const teffi_limits unlimited = {SIZE_MAX, SIZE_MAX, SIZE_MAX};

static uint32_t three_numbers[] = {1, 300, 70000};
static uint64_t two_eights[] = {1, 2};
static int32_t two_unpacked[] = {1, -1};
static char hi[] = "hi", yes[] = "yes";
static char *two_names[] = {hi, yes};
static uint8_t four_bytes[] = {1, 2, 3, 4};
static tree leaf = TREE(.flag = 1);
static tree *two_leaves[] = {&leaf, &leaf};
static ProtobufCMessageUnknownField two_unknown[] = {{100, 0, 1, four_bytes},
                                                     {101, 2, 3, four_bytes + 1}};

/* A string and bytes take a byte more than they have, even if they are empty. */
enum { EMPTY_TREE = sizeof(tree) + 2 };

/* What each kind of field counts for. */
static const struct {
    const char *what;
    tree tree;
    size_t packed, fields, memory; /* memory besides EMPTY_TREE */
} rows[] = {
    {"nothing", TREE(.four = 0), 0, 0, 0},
    {"a number", TREE(.kind = 1), 2, 1, 0},
    {"a negative number", TREE(.small = -1), 11, 1, 0},
    {"a string", TREE(.name = hi), 4, 1, 2},
    {"bytes", TREE(.blob = {4, four_bytes}), 6, 1, 4},
    {"a packed list", TREE(.n_numbers = 3, .numbers = three_numbers), 8, 1, 12},
    {"a packed list of eights", TREE(.n_eights = 2, .eights = two_eights), 18, 1, 16},
    {"a list", TREE(.n_unpacked = 2, .unpacked = two_unpacked), 15, 2, 8},
    {"strings", TREE(.n_names = 2, .names = two_names), 9, 2, 2 * sizeof(char *) + 7},
    {"a message", TREE(.left = &leaf), 4, 2, EMPTY_TREE},
    {"messages", TREE(.n_children = 2, .children = two_leaves), 8, 4,
     2 * EMPTY_TREE + 2 * sizeof(tree *)},
    {"a member of a oneof that is 0", TREE(.which_case = 22), 3, 1, 0},
    {"a message of a oneof", TREE(.which_case = 21, .tree = &leaf), 5, 2, EMPTY_TREE},
    {"unknown fields",
     {.base = {&teff__test__tree__descriptor, 2, two_unknown}},
     8,
     2,
     2 * sizeof two_unknown[0] + 4},
};

static teff_err check(const tree *t, const teffi_limits *limits, size_t *packed, char *text)
{
    return teffi_check_message(&teff__test__tree__descriptor, &t->base, limits, "it", packed, text);
}

/* At most value of what *limit limits is accepted, one less is not. */
static void assert_limited(const tree *t, const teffi_limits *limits, size_t *limit, size_t value,
                           const char *unit)
{
    char text[TEFF_TEXT_MAX], expected[TEFF_TEXT_MAX];
    size_t packed;
    *limit = value;
    assert_int_equal(check(t, limits, &packed, text), TEFF_OK);
    *limit = value - 1;
    if (value) {
        assert_int_equal(check(t, limits, &packed, text), TEFF_E_TOO_LARGE);
        snprintf(expected, sizeof expected, "it takes %zu bytes %s; at most %zu", value, unit,
                 value - 1);
        assert_string_equal(text, expected);
    }
    *limit = SIZE_MAX;
}

static void each_kind_of_field_counts(void **state)
{
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        const tree *t = &rows[i].tree;
        teffi_limits limits = unlimited;
        char text[TEFF_TEXT_MAX];
        size_t packed;
        assert_int_equal(check(t, &limits, &packed, text), TEFF_OK);
        if (packed != rows[i].packed || teffi_packed_size(&t->base) != packed)
            fail_msg("%s: %zu bytes", rows[i].what, packed);
        assert_limited(t, &limits, &limits.bytes, packed, "packed");
        assert_limited(t, &limits, &limits.memory, EMPTY_TREE + rows[i].memory, "unpacked");
    }
}

/* As many as the decoder counts in its bytes. */
static void fields_count_as_they_are_decoded(void **state)
{
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        const tree *t = &rows[i].tree;
        uint8_t bytes[64];
        for (size_t fields = 0; fields <= 5; fields++) {
            teffi_limits limits = {SIZE_MAX, fields, SIZE_MAX};
            teff_err expected = fields < rows[i].fields ? TEFF_E_TOO_LARGE : TEFF_OK;
            char text[TEFF_TEXT_MAX];
            teff_arena arena;
            ProtobufCMessage *back;
            size_t packed;
            teff_err err = check(t, &limits, &packed, text);
            teffi_arena_init(&arena, NULL, 0, 0);
            teffi_pack(&t->base, rows[i].packed, bytes);
            teff_err decoded = teffi_unpack_with_options(t->base.descriptor, bytes, rows[i].packed,
                                                         fields, false, &arena, &back);
            teffi_arena_fini(&arena);
            if (err != expected || decoded != expected)
                fail_msg("%s, %zu fields: %s, %s", rows[i].what, fields, teff_err_name(err),
                         teff_err_name(decoded));
        }
    }
}

static void too_many_fields_are_counted_in_the_text(void **state)
{
    teffi_limits limits = {SIZE_MAX, 1, SIZE_MAX};
    tree t = TREE(.flag = 1, .small = 1);
    char text[TEFF_TEXT_MAX];
    size_t packed;
    assert_int_equal(check(&t, &limits, &packed, text), TEFF_E_TOO_LARGE);
    assert_string_equal(text, "it has 2 fields; at most 1");
}

/* Twenty trees, each with the next one 16 times: more than can be counted. */
static void the_walk_of_a_huge_message_ends(void **state)
{
    enum { TREES = 20, EACH = 16 };
    tree trees[TREES], *children[TREES][EACH];
    teffi_limits limits = {SIZE_MAX, 1000, SIZE_MAX};
    char text[TEFF_TEXT_MAX];
    size_t packed;
    for (unsigned i = TREES; i-- > 0;) {
        teff__test__tree__init(&trees[i]);
        trees[i].n_children = i < TREES - 1 ? EACH : 0;
        trees[i].children = children[i];
        for (unsigned child = 0; child < trees[i].n_children; child++)
            children[i][child] = &trees[i + 1];
    }
    assert_int_equal(check(&trees[0], &limits, &packed, text), TEFF_E_TOO_LARGE);
    assert_string_equal(text, "it has over 8000 fields; at most 1000");
}

static void assert_refused(const ProtobufCMessage *msg, teff_err err, const char *expected)
{
    char text[TEFF_TEXT_MAX] = "";
    size_t packed;
    assert_int_equal(teffi_check_message(msg->descriptor, msg, &unlimited, "it", &packed, text),
                     err);
    assert_string_equal(text, expected);
}

static void the_first_broken_rule_is_named_with_its_field(void **state)
{
    static char bad[] = "\xff";
    tree *with_null[] = {&leaf, NULL}, nulls = TREE(.n_children = 2, .children = with_null);
    older bad_text = TEFF__TEST__OLDER__INIT;
    strict around = TEFF__TEST__STRICT__INIT;
    char *bad_names[] = {bad};
    tree bad_twice = TREE(.name = bad, .n_names = 1, .names = bad_names);
    bad_text.text = bad;
    around.up = &bad_text;
    assert_refused(&nulls.base, TEFF_E_MALFORMED, "it: teff.test.Tree.children is NULL");
    assert_refused(&around.base, TEFF_E_MALFORMED, "it: teff.test.Older.text is not UTF-8");
    assert_refused(&bad_twice.base, TEFF_E_MALFORMED, "it: teff.test.Tree.name is not UTF-8");
}

static void depth_ends_at_the_limit(void **state)
{
    tree trees[TEFF_DEPTH_MAX + 1];
    char text[TEFF_TEXT_MAX];
    size_t packed;
    for (unsigned i = 0; i <= TEFF_DEPTH_MAX; i++) {
        teff__test__tree__init(&trees[i]);
        trees[i].left = i < TEFF_DEPTH_MAX ? &trees[i + 1] : NULL;
    }
    assert_int_equal(check(&trees[1], &unlimited, &packed, text), TEFF_OK);
    snprintf(text, sizeof text,
             "it nests over %d messages deep, at teff.test.Tree.left; at most %d", TEFF_DEPTH_MAX,
             TEFF_DEPTH_MAX);
    assert_refused(&trees[0].base, TEFF_E_TOO_LARGE, text);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(each_kind_of_field_counts),
        cmocka_unit_test(fields_count_as_they_are_decoded),
        cmocka_unit_test(too_many_fields_are_counted_in_the_text),
        cmocka_unit_test(the_walk_of_a_huge_message_ends),
        cmocka_unit_test(the_first_broken_rule_is_named_with_its_field),
        cmocka_unit_test(depth_ends_at_the_limit),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
