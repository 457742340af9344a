/* test_names.c - names in C, ids, comments. */
#include "codegen.h"
#include "model/map.h"
#include "model/names.h"
#include "model/text.h"

#include <string.h>

#include "test.h"

static teffi_pool pool;

static void snake(void **state)
{
    static const char *const cases[][2] = {
        {"words.Word", "words_word"},
        {"words.v1.HTTPReply", "words_v1_http_reply"},
        {"getURL", "get_url"},
        {"Add2Numbers", "add2_numbers"},
        {"ABC", "abc"},
        {"some_snake_Name", "some_snake_name"},
        {"a__b", "a_b"},
        {"X", "x"},
        {"_Private", "_private"},
        {"Trailing_", "trailing_"},
        {"shopX.A.innerB", "shop_x_a_inner_b"},
    };

    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        assert_string_equal(teffi_to_snake_case(&pool, cases[i][0]), cases[i][1]);
    }
}

static void protobuf_c_names(void **state)
{
    assert_string_equal(teffi_pbc_type_name(&pool, "acme.shopX.v1.HTTPReply.inner_Thing"),
                        "Acme__ShopX__V1__HTTPReply__InnerThing");
    assert_string_equal(teffi_pbc_lowercase_name(&pool, "acme.shopX.v1.HTTPReply.inner_Thing"),
                        "acme__shop_x__v1__httpreply__inner__thing");
    assert_string_equal(teffi_pbc_uppercase_name(&pool, "acme.shopX.HTTPReply"),
                        "ACME__SHOP_X__HTTPREPLY");
    assert_string_equal(teffi_pbc_field_name(&pool, "camelCase"), "camelcase");
    assert_string_equal(teffi_pbc_field_name(&pool, "Default"), "default_");
    assert_string_equal(teffi_pbc_field_name(&pool, "default_"), "default_");
}

static void reserved_names(void **state)
{
    static const char *const keywords[] = {"BUFSIZ",  "EOF",      "NULL",   "alignas", "bool",
                                           "errno",   "linux",    "stdin",  "switch",  "unix",
                                           "xor_eq",  "EIO",      "SIGINT", "alloca",  "st_mtime",
                                           "h_errno", "UINT8_MAX"};
    static const char *const free_names[] = {"add", "E", "ENABLED__X", "SIG__X", "times", "near"};

    for (size_t i = 0; i < sizeof keywords / sizeof *keywords; i++) {
        assert_true(teffi_is_keyword_or_macro(keywords[i]));
    }
    for (size_t i = 0; i < sizeof free_names / sizeof *free_names; i++) {
        assert_false(teffi_is_keyword_or_macro(free_names[i]));
    }
    assert_true(teffi_is_reserved_at_file_scope("DIR"));
    assert_true(teffi_is_reserved_at_file_scope("malloc"));
    assert_true(teffi_is_reserved_at_file_scope("yn"));
    assert_true(
        teffi_is_reserved_at_file_scope("response")); /* generated functions have such variables */
    assert_true(teffi_is_reserved_at_file_scope("n_names"));
    assert_true(teffi_is_reserved_at_file_scope("teff_silo"));
    assert_true(teffi_is_reserved_at_file_scope("_x"));
    assert_false(teffi_is_reserved_at_file_scope("words_word"));
    assert_false(teffi_is_identifier(""));
    assert_false(teffi_is_identifier("9a"));
    assert_false(teffi_is_identifier("a-b"));
    assert_false(teffi_is_identifier(NULL));
    assert_true(teffi_is_identifier("_a9"));
}

static void ids(void **state)
{
    assert_int_equal(teffi_hash_fnv32(""), 0x811c9dc5);
    assert_int_equal(teffi_hash_fnv32("a"), 0xe40c292c);
    assert_int_equal(teffi_hash_fnv32("foobar"), 0xbf9cf968);
}

static void a_map_keeps_the_first(void **state)
{
    teffi_map map = {.pool = &pool};
    static int values[1000];

    assert_null(teffi_map_get(&map, "x"));
    for (int i = 0; i < 1000; i++) {
        assert_null(
            teffi_map_put_if_absent(&map, teffi_pool_printf(&pool, "name%d", i), &values[i]));
    }
    for (int i = 0; i < 1000; i++) {
        const char *name = teffi_pool_printf(&pool, "name%d", i);

        assert_ptr_equal(teffi_map_get(&map, name), &values[i]);
        assert_ptr_equal(teffi_map_put_if_absent(&map, name, &values[0]), &values[i]);
    }
}

static const char *commented(const char *comment)
{
    teffi_text text = {.pool = &pool};

    teffi_text_printf(&text, ">");
    teffi_text_add_comment(&text, "  ", teffi_text_sanitize_comment(&pool, comment));
    return text.data;
}

static void comments(void **state)
{
    assert_string_equal(commented(NULL), ">");
    assert_string_equal(commented(" \n\t\n"), ">");
    assert_string_equal(commented(" One.\n"), ">  /* One. */\n");
    assert_string_equal(commented("\n One.\n\n Two. \n"), ">  /* One.\n   *\n   * Two. */\n");
    assert_string_equal(commented(" a */ b /* c ?\?/\n"), ">  /* a * / b / * c ? ?/ */\n");
    assert_string_equal(commented("no newline\0behind"), ">  /* no newline */\n");
    assert_string_equal(commented(" ends with \\\n"), ">  /* ends with */\n");
    assert_string_equal(commented(" \xff \x01 caf\xc3\xa9 \xe2\x80\xae\n"),
                        ">  /* ? ? caf\xc3\xa9 ? ? ? */\n");
    assert_string_equal(commented(" 5\xe2\x80\x93"
                                  "6 \xe2\x80\x9cx\xe2\x80\x9d \xe2\x80\x8f\n"),
                        ">  /* 5\xe2\x80\x93"
                        "6 \xe2\x80\x9cx\xe2\x80\x9d ? ? ? */\n");
}

/* Also of bytes that were replaced: "??/" at the end would continue the line. */
static void a_comment_has_no_trigraph(void **state)
{
    assert_string_equal(commented(" ?\x01/\n"), ">  /* ? ?/ */\n");
    assert_string_equal(commented(" \x01?/\n"), ">  /* ? ?/ */\n");
    assert_string_equal(commented(" \xff\xff/\n"), ">  /* ? ?/ */\n");
    assert_string_equal(commented(" ?\n?\n"), ">  /* ?\n   * ? */\n");
}

/* Overlong, a surrogate, too high; the first and last of each length are valid. */
static void a_comment_is_valid_utf8(void **state)
{
    static const char *const bad[] = {"\xe0\x9f\xbf", "\xed\xa0\x80"};
    static const char *const worse[] = {"\xf0\x8f\xbf\xbf", "\xf4\x90\x80\x80"};
    static const char *const good[] = {"\xc2\x80",     "\xe0\xa0\x80",     "\xed\x9f\xbf",
                                       "\xee\x80\x80", "\xf0\x90\x80\x80", "\xf4\x8f\xbf\xbf"};
    for (size_t i = 0; i < 2; i++) {
        assert_string_equal(commented(bad[i]), ">  /* ? ? ? */\n");
        assert_string_equal(commented(worse[i]), ">  /* ? ? ? ? */\n");
    }
    for (size_t i = 0; i < sizeof good / sizeof good[0]; i++)
        assert_non_null(strstr(commented(good[i]), good[i]));
}

/* ---- long lines ---- */

static const char *wrapped(const char *line)
{
    teffi_text text = {.pool = &pool};
    teffi_text_printf(&text, "%s\n", line);
    teffi_text_wrap(&text);
    return text.data;
}

static void no_line_with_a_comma_is_longer_than_100_columns(void **state)
{
    char line[400];
    for (size_t word = 1; word < 90; word++) {
        size_t len = 0;
        while (len + word + 2 < sizeof line - 1) {
            memset(line + len, 'x', word);
            memcpy(line + len + word, ", ", 2);
            len += word + 2;
        }
        strcpy(line + len - 2, ";");
        const char *at = wrapped(line);
        for (size_t n; *at; at += n + 1) {
            n = strcspn(at, "\n");
            assert_in_range(n, 1, 100);
        }
    }
}

static int setup(void **state)
{
    teffi_pool_init(&pool);
    return 0;
}

static int teardown(void **state)
{
    teffi_pool_fini(&pool);
    return 0;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(snake),
        cmocka_unit_test(protobuf_c_names),
        cmocka_unit_test(reserved_names),
        cmocka_unit_test(ids),
        cmocka_unit_test(a_map_keeps_the_first),
        cmocka_unit_test(comments),
        cmocka_unit_test(a_comment_has_no_trigraph),
        cmocka_unit_test(a_comment_is_valid_utf8),
        cmocka_unit_test(no_line_with_a_comma_is_longer_than_100_columns),
    };

    return cmocka_run_group_tests(tests, setup, teardown);
}
