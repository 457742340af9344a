/* test_codec.c - the pre-scan: what is refused, and why; what passes unpacks. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
#include <stdlib.h>
#include <string.h>
#include "tree.pb-c.h"
#include "wire/codec.h"

static teff_err scan(const void *bytes, size_t n)
{
    uint8_t *exact = malloc(n ? n : 1); /* of the exact size: a sanitizer sees any step beyond */
    assert_non_null(exact);
    memcpy(exact, bytes, n);
    teff_err err = teffi_prescan(&teff__test__tree__descriptor, exact, n);
    free(exact);
    return err;
}

typedef struct row {
    const char *what, *bytes;
    size_t n;
    teff_err err;
} row;

#define ROW(what, bytes, err)                                                                      \
    {                                                                                              \
        what, bytes, sizeof bytes - 1, err                                                         \
    }

static const row rows[] = {
    ROW("nothing", "", TEFF_OK),
    ROW("string", "\x0a\x02hi", TEFF_OK),
    ROW("string of two-byte letters", "\x0a\x02\xc3\xa4", TEFF_OK),
    ROW("string with the last letter there is", "\x0a\x04\xf4\x8f\xbf\xbf", TEFF_OK),
    ROW("letter beyond the last", "\x0a\x04\xf4\x90\x80\x80", TEFF_E_MALFORMED),
    ROW("overlong letter", "\x0a\x02\xc0\xaf", TEFF_E_MALFORMED),
    ROW("overlong zero", "\x0a\x02\xc0\x80", TEFF_E_MALFORMED),
    ROW("surrogate", "\x0a\x03\xed\xa0\x80", TEFF_E_MALFORMED),
    ROW("cut letter", "\x0a\x01\xc3", TEFF_E_MALFORMED),
    ROW("lone continuation", "\x0a\x01\x80", TEFF_E_MALFORMED),
    ROW("zero byte in a string",
        "\x0a\x03"
        "a\0b",
        TEFF_E_MALFORMED),
    ROW("zero byte in bytes",
        "\x22\x03"
        "a\0b",
        TEFF_OK),
    ROW("bad letter in bytes", "\x22\x01\xff", TEFF_OK),
    ROW("bad letter in a repeated string", "\x5a\x01\xff", TEFF_E_MALFORMED),
    ROW("bad letter in a map's key", "\x4a\x03\x0a\x01\xff", TEFF_E_MALFORMED),
    ROW("map entry", "\x4a\x05\x0a\x01k\x10\x07", TEFF_OK),
    ROW("string beyond the end", "\x0a\x03hi", TEFF_E_MALFORMED),
    ROW("length without end", "\x0a\x80", TEFF_E_MALFORMED),
    ROW("length over 32 bits", "\x0a\xff\xff\xff\xff\x1f", TEFF_E_MALFORMED),
    ROW("length of 4 GiB", "\x0a\xff\xff\xff\xff\x0f", TEFF_E_MALFORMED),
    ROW("tag only", "\x0a", TEFF_E_MALFORMED),
    ROW("tag without end", "\x8a", TEFF_E_MALFORMED),
    ROW("tag over 32 bits", "\x88\x80\x80\x80\x80\x01\x01", TEFF_E_MALFORMED),
    ROW("field number 0", "\x00\x01", TEFF_E_MALFORMED),
    ROW("group start", "\x0b", TEFF_E_MALFORMED),
    ROW("group end", "\x0c", TEFF_E_MALFORMED),
    ROW("wire type 6", "\x0e", TEFF_E_MALFORMED),
    ROW("wire type 7", "\x0f", TEFF_E_MALFORMED),
    ROW("string as varint", "\x08\x01", TEFF_E_MALFORMED),
    ROW("varint as string", "\x42\x01\x01", TEFF_E_MALFORMED),
    ROW("fixed32 as fixed64", "\x29\x01\x02\x03\x04\x05\x06\x07\x08", TEFF_E_MALFORMED),
    ROW("fixed32", "\x2d\x01\x02\x03\x04", TEFF_OK),
    ROW("cut fixed32", "\x2d\x01\x02\x03", TEFF_E_MALFORMED),
    ROW("double", "\x51\x01\x02\x03\x04\x05\x06\x07\x08", TEFF_OK),
    ROW("cut double", "\x51\x01\x02\x03\x04\x05\x06\x07", TEFF_E_MALFORMED),
    ROW("varint of ten bytes", "\x38\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01", TEFF_OK),
    ROW("varint of eleven bytes", "\x38\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01",
        TEFF_E_MALFORMED),
    ROW("packed numbers", "\x1a\x03\x01\x80\x01", TEFF_OK),
    ROW("packed numbers, last cut", "\x1a\x02\x01\x80", TEFF_E_MALFORMED),
    ROW("one number unpacked", "\x18\x05", TEFF_OK),
    ROW("packed eights", "\x32\x08\x01\x02\x03\x04\x05\x06\x07\x08", TEFF_OK),
    ROW("packed eights of seven", "\x32\x07\x01\x02\x03\x04\x05\x06\x07", TEFF_E_MALFORMED),
    ROW("unknown field, any bytes", "\xa2\x06\x02\xff\x00", TEFF_OK),
    ROW("unknown field beyond the end", "\xa2\x06\x03\xff\x00", TEFF_E_MALFORMED),
    ROW("unknown varint", "\xa0\x06\x05", TEFF_OK),
    ROW("nested", "\x12\x04\x0a\x02hi", TEFF_OK),
    ROW("nested, its field beyond its end", "\x12\x03\x0a\x02hi", TEFF_E_MALFORMED),
    ROW("bad letter in a nested string", "\x62\x03\x0a\x01\xff", TEFF_E_MALFORMED),
};

static void each_row_has_its_verdict(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        teff_err err = scan(rows[i].bytes, rows[i].n);
        if (err != rows[i].err)
            fail_msg("%s: %s", rows[i].what, teff_err_name(err));
    }
}

/* What the pre-scan lets through, protobuf-c takes too; no other reason for NULL is left. */
static void what_passes_unpacks(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        teff_arena arena;
        ProtobufCMessage *msg;
        teffi_arena_init(&arena, NULL, 0, 0);
        teff_err err = teffi_unpack(&teff__test__tree__descriptor, (const uint8_t *)rows[i].bytes,
                                    rows[i].n, &arena, &msg);
        assert_int_equal(err, rows[i].err);
        assert_int_equal(msg != NULL, err == TEFF_OK);
        teffi_arena_fini(&arena);
    }
}

/* n nested messages around nothing, in field 12 (left); lengths of up to 2 bytes. */
static size_t nest(uint8_t *out, unsigned n)
{
    size_t len = 0;
    for (unsigned i = 0; i < n; i++) {
        size_t head = len < 128 ? 2 : 3;
        memmove(out + head, out, len);
        out[0] = 0x62;
        out[1] = (uint8_t)(len < 128 ? len : (len & 0x7f) | 0x80);
        if (head == 3)
            out[2] = (uint8_t)(len >> 7);
        len += head;
    }
    return len;
}

static void depth_ends_at_the_limit(void **state)
{
    (void)state;
    static uint8_t bytes[32768];
    assert_int_equal(scan(bytes, nest(bytes, TEFFI_DEPTH_MAX - 1)), TEFF_OK);
    assert_int_equal(scan(bytes, nest(bytes, TEFFI_DEPTH_MAX)), TEFF_E_TOO_LARGE);
    assert_int_equal(scan(bytes, nest(bytes, 5000)), TEFF_E_TOO_LARGE);
}

static void fields_end_at_the_limit(void **state)
{
    (void)state;
    size_t n = 2 * TEFFI_FIELDS_MAX;
    uint8_t *bytes = malloc(n + 2);
    for (size_t i = 0; i < n + 2; i += 2) {
        bytes[i] = 0x12; /* an empty child, the worst there is in memory */
        bytes[i + 1] = 0;
    }
    assert_int_equal(scan(bytes, n), TEFF_OK);
    assert_int_equal(scan(bytes, n + 2), TEFF_E_TOO_LARGE);
    for (size_t i = 0; i < n + 2; i += 2)
        bytes[i] = 0x40; /* flag, over and over */
    assert_int_equal(scan(bytes, n + 2), TEFF_E_TOO_LARGE);
    free(bytes);
}

static void packed_numbers_count_as_fields(void **state)
{
    (void)state;
    size_t n = TEFFI_FIELDS_MAX;
    uint8_t *bytes = calloc(1, n + 8);
    bytes[0] = 0x1a;
    bytes[1] = (uint8_t)((n - 1) & 0x7f) | 0x80;
    bytes[2] = (uint8_t)(((n - 1) >> 7) & 0x7f) | 0x80;
    bytes[3] = (uint8_t)((n - 1) >> 14);
    assert_int_equal(scan(bytes, n - 1 + 4), TEFF_OK);
    bytes[1]++;
    assert_int_equal(scan(bytes, n + 4), TEFF_E_TOO_LARGE);
    free(bytes);
}

static void memory_runs_out_as_nomem(void **state)
{
    (void)state;
    teff_arena arena;
    ProtobufCMessage *msg;
    uint8_t bytes[200];
    for (size_t i = 0; i < sizeof bytes; i += 2) {
        bytes[i] = 0x12;
        bytes[i + 1] = 0;
    }
    teffi_arena_init(&arena, NULL, 0, 4096);
    teff_err err = teffi_unpack(&teff__test__tree__descriptor, bytes, sizeof bytes, &arena, &msg);
    assert_int_equal(err, TEFF_E_NOMEM);
    assert_null(msg);
    teffi_arena_fini(&arena);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(each_row_has_its_verdict),
        cmocka_unit_test(what_passes_unpacks),
        cmocka_unit_test(depth_ends_at_the_limit),
        cmocka_unit_test(fields_end_at_the_limit),
        cmocka_unit_test(packed_numbers_count_as_fields),
        cmocka_unit_test(memory_runs_out_as_nomem),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
