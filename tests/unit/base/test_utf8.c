/* test_utf8.c - what is UTF-8: every code point, and each way of being wrong. */
#include "base/utf8.h"

#include <string.h>
/* cmocka comes after these. */
#include "test.h"

enum { LAST = 0x10ffff };

static bool valid(const char *text)
{
    return teffi_utf8_valid((const uint8_t *)text, strlen(text));
}

static size_t encode(uint32_t c, size_t len, uint8_t *out)
{
    static const uint8_t lead[] = {0, 0, 0xc0, 0xe0, 0xf0};
    for (size_t i = len - 1; i > 0; i--, c >>= 6)
        out[i] = (uint8_t)(0x80 | (c & 0x3f));
    out[0] = (uint8_t)(lead[len] | c);
    return len;
}

static size_t shortest(uint32_t c)
{
    return c < 0x80 ? 1 : c < 0x800 ? 2 : c < 0x10000 ? 3 : 4;
}

static void every_code_point(void **state)
{
    uint8_t text[4];
    for (uint32_t c = 0; c <= LAST; c++) {
        bool surrogate = c >= 0xd800 && c <= 0xdfff;
        if (teffi_utf8_valid(text, encode(c, shortest(c), text)) == surrogate)
            fail_msg("U+%04x", c);
    }
}

static void longer_forms(void **state)
{
    uint8_t text[4];
    for (uint32_t c = 0; c < 0x10000; c++)
        for (size_t len = shortest(c) + 1; len <= 4; len++)
            if (teffi_utf8_valid(text, encode(c, len, text)))
                fail_msg("U+%04x in %zu bytes", c, len);
}

static void past_the_end_of_unicode(void **state)
{
    assert_true(valid("\xf4\x8f\xbf\xbf"));
    assert_false(valid("\xf4\x90\x80\x80"));
    for (int lead = 0xf5; lead <= 0xff; lead++) {
        uint8_t text[] = {(uint8_t)lead, 0x80, 0x80, 0x80, 0x80, 0x80};
        for (size_t n = 1; n <= sizeof text; n++)
            assert_false(teffi_utf8_valid(text, n));
    }
}

static void cut_and_stray(void **state)
{
    static const char *const whole[] = {"\xc3\xa4", "\xe2\x82\xac", "\xf0\x9f\x8c\xbe"};
    for (size_t i = 0; i < 3; i++) {
        const uint8_t *text = (const uint8_t *)whole[i];
        size_t len = strlen(whole[i]);
        for (size_t n = 1; n < len; n++) {
            assert_false(teffi_utf8_valid(text, n));
            assert_false(teffi_utf8_valid(text + n, len - n));
        }
        assert_true(teffi_utf8_valid(text, len));
    }
    assert_false(valid("a\xc3"
                       "b"));
    assert_false(valid("\xe2\x82"
                       "a"));
    assert_false(valid("a\x80"));
}

/* Texts of every length in words, with one wrong byte at each place. */
static void each_byte_is_looked_at(void **state)
{
    uint8_t text[60];
    for (size_t n = 1; n <= 40; n++)
        for (size_t at = 0; at < n; at++) {
            uint8_t *from = text + 10;
            memset(text, 'a', sizeof text);
            assert_true(teffi_utf8_valid(from, n));
            from[at] = 0xff;
            assert_false(teffi_utf8_valid(from, n));
        }
}

/* What lies behind the text is not looked at. */
static void cut_behind_plain_text(void **state)
{
    const uint8_t *text = (const uint8_t *)"0123456789\xe2\x82\xac";
    for (size_t at = 0; at < 10; at++) {
        assert_false(teffi_utf8_valid(text + at, 12 - at));
        assert_true(teffi_utf8_valid(text + at, 13 - at));
    }
}

static void plain_text(void **state)
{
    assert_true(teffi_utf8_valid(NULL, 0));
    assert_true(valid("teff \xe1\x8c\xa4\xe1\x8d\x8d"));
    assert_true(teffi_utf8_valid((const uint8_t *)"a\0b", 3));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_code_point),
        cmocka_unit_test(longer_forms),
        cmocka_unit_test(past_the_end_of_unicode),
        cmocka_unit_test(cut_and_stray),
        cmocka_unit_test(each_byte_is_looked_at),
        cmocka_unit_test(cut_behind_plain_text),
        cmocka_unit_test(plain_text),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
