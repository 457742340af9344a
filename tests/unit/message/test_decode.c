/* test_decode.c - what is refused, and why; what is merged; the rest is as protobuf-c has it. */
#include "test.h"
#include <stdlib.h>
#include <string.h>
#include <stdio.h>
#include "codec_same.h"
#include "older.pb-c.h"
#include "tree.pb-c.h"
#include "message/codec.h"

/* out: the verdict; no message with an error. */
static teff_err verdict_on(const ProtobufCMessageDescriptor *desc, const void *bytes, size_t n)
{
    static Teff__Test__Tree other;
    teff_arena arena;
    ProtobufCMessage *msg = &other.base;
    uint8_t *exact = malloc(n ? n : 1); /* of the exact size: a sanitizer sees any step beyond */
    assert_non_null(exact);
    memcpy(exact, bytes, n);
    teffi_arena_init(&arena, NULL, 0, 0);
    teff_err err = teffi_unpack(desc, exact, n, &arena, &msg);
    assert_int_equal(msg != NULL, err == TEFF_OK);
    assert_ptr_not_equal(msg, &other);
    teffi_arena_fini(&arena);
    free(exact);
    return err;
}

static teff_err tree_verdict(const void *bytes, size_t n)
{
    return verdict_on(&teff__test__tree__descriptor, bytes, n);
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
    ROW("length of 1 with a bit over 32", "\x0a\x81\x80\x80\x80\x10x", TEFF_E_MALFORMED),
    ROW("length of 1 in six bytes", "\x0a\x81\x80\x80\x80\x80\x00x", TEFF_E_MALFORMED),
    ROW("length of 1 in five bytes", "\x0a\x81\x80\x80\x80\x00x", TEFF_OK),
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
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        teff_err err = tree_verdict(rows[i].bytes, rows[i].n);
        if (err != rows[i].err)
            fail_msg("%s: %s", rows[i].what, teff_err_name(err));
    }
}

/* Two texts of 20 bytes 'a', but for what is at each place of the second. */
static void every_byte_of_a_text_is_looked_at(void **state)
{
    static const struct {
        const char *what;
        size_t n;
        teff_err err;
    } letters[] = {
        {"\xff", 1, TEFF_E_MALFORMED},
        {"\x80", 1, TEFF_E_MALFORMED},
        {"\0", 1, TEFF_E_MALFORMED},
        {"\x01", 1, TEFF_OK},
        {"\x7f", 1, TEFF_OK},
        {"\xc3\xa4", 2, TEFF_OK},
        {"\xc3\xa4\xff", 3, TEFF_E_MALFORMED},
        {"\xc3\xa4\0", 3, TEFF_E_MALFORMED},
    };
    enum { LEN = 20 };
    for (size_t i = 0; i < sizeof letters / sizeof letters[0]; i++) {
        for (size_t at = 0; at + letters[i].n <= LEN; at++) {
            uint8_t bytes[2 * (2 + LEN)];
            memset(bytes, 'a', sizeof bytes);
            bytes[0] = bytes[2 + LEN] = 0x0a;
            bytes[1] = bytes[3 + LEN] = LEN;
            memcpy(bytes + 4 + LEN + at, letters[i].what, letters[i].n);
            if (tree_verdict(bytes, sizeof bytes) != letters[i].err)
                fail_msg("row %zu at %zu", i, at);
        }
    }
}

static void required_fields_must_come(void **state)
{
    static const row strict[] = {
        ROW("there", "\x42\x02\x08\x05", TEFF_OK),
        ROW("missing", "\x42\x00", TEFF_E_MALFORMED),
        ROW("another one is there", "\x42\x02\x12\x00", TEFF_E_MALFORMED),
        ROW("missing in the second part", "\x42\x02\x08\x05\x42\x00", TEFF_E_MALFORMED),
        ROW("no message, no field", "", TEFF_OK),
    };
    for (size_t i = 0; i < sizeof strict / sizeof strict[0]; i++)
        if (verdict_on(&teff__test__older__descriptor, strict[i].bytes, strict[i].n) !=
            strict[i].err)
            fail_msg("%s", strict[i].what);
}

/* out: bytes of what data unpacks to. */
static size_t pack_again(const uint8_t *data, size_t n, uint8_t *out)
{
    teff_arena arena;
    ProtobufCMessage *msg;
    teffi_arena_init(&arena, NULL, 0, 0);
    assert_int_equal(teffi_unpack(&teff__test__tree__descriptor, data, n, &arena, &msg), TEFF_OK);
    size_t len = teffi_packed_size(msg);
    teffi_pack(msg, len, out);
    teffi_arena_fini(&arena);
    return len;
}

/* What is unpacked, packed again. */
static void what_comes_again_replaces_or_is_merged(void **state)
{
    static const struct {
        const char *what, *bytes, *again;
        uint8_t n, n_again;
    } pairs[] = {
        {"a number", "\x38\x02\x38\x04", "\x38\x04", 4, 2},
        {"a member of a oneof", "\xaa\x01\x02\x40\x01\xaa\x01\x02\x68\x01",
         "\xaa\x01\x04\x40\x01\x68\x01", 10, 7},
        {"another member", "\xb0\x01\x07\xaa\x01\x02\x68\x01", "\xaa\x01\x02\x68\x01", 8, 5},
        {"the first of two members", "\xaa\x01\x02\x68\x01\xb0\x01\x07", "\xb0\x01\x07", 8, 3},
    };
    for (size_t i = 0; i < sizeof pairs / sizeof pairs[0]; i++) {
        uint8_t again[16];
        size_t len = pack_again((const uint8_t *)pairs[i].bytes, pairs[i].n, again);
        if (len != pairs[i].n_again || memcmp(again, pairs[i].again, len) != 0)
            fail_msg("%s", pairs[i].what);
    }
}

static int flag_of(const uint8_t *bytes, size_t n)
{
    teff_arena arena;
    ProtobufCMessage *msg;
    teffi_arena_init(&arena, NULL, 0, 0);
    assert_int_equal(teffi_unpack(&teff__test__tree__descriptor, bytes, n, &arena, &msg), TEFF_OK);
    int flag = ((Teff__Test__Tree *)(void *)msg)->flag;
    teffi_arena_fini(&arena);
    return flag;
}

static void a_bool_is_0_or_1(void **state)
{
    static const uint8_t two[] = {0x40, 2}, wide[] = {0x40, 0x80, 0x80, 0x80, 0x80, 0x10};
    assert_int_equal(flag_of(two, sizeof two), 1);
    assert_int_equal(flag_of(wide, sizeof wide), 1);
}

static void unknown_fields_come_back(void **state)
{
    uint8_t bytes[20 * 3], again[sizeof bytes];
    for (uint8_t i = 0; i < 20; i++) {
        bytes[3 * i] = (uint8_t)((40 + i % 7) << 3 & 0x7f) | 0x80;
        bytes[3 * i + 1] = (uint8_t)((40 + i % 7) << 3 >> 7);
        bytes[3 * i + 2] = i;
    }
    assert_int_equal(pack_again(bytes, sizeof bytes, again), sizeof bytes);
    assert_memory_equal(bytes, again, sizeof bytes);
}

/* Field 4, bytes: they stay where they are, if the caller says so. */
static void bytes_are_borrowed_or_copied(void **state)
{
    static const uint8_t data[] = {0x22, 3, 1, 2, 3}, empty[] = {0x22, 0};
    for (int borrows = 0; borrows < 2; borrows++) {
        teff_arena arena;
        ProtobufCMessage *msg;
        teffi_arena_init(&arena, NULL, 0, 0);
        assert_int_equal(teffi_unpack_with_options(&teff__test__tree__descriptor, data, sizeof data,
                                                   9, borrows, &arena, &msg),
                         TEFF_OK);
        const ProtobufCBinaryData *blob = &((Teff__Test__Tree *)(void *)msg)->blob;
        assert_int_equal(blob->len, 3);
        assert_memory_equal(blob->data, data + 2, 3);
        assert_int_equal(blob->data == data + 2, borrows);
        assert_int_equal(teffi_unpack_with_options(&teff__test__tree__descriptor, empty,
                                                   sizeof empty, 9, borrows, &arena, &msg),
                         TEFF_OK);
        blob = &((Teff__Test__Tree *)(void *)msg)->blob;
        assert_int_equal(blob->len, 0);
        assert_null(blob->data);
        teffi_arena_fini(&arena);
    }
}

/* protobuf's rule: two messages of one field are as one message of the bytes of both. */
static void a_message_that_comes_twice_is_merged(void **state)
{
    static const struct {
        const char *what, *first, *second;
        uint8_t n_first, n_second;
    } pairs[] = {
        {"numbers", "\x38\x02", "\x38\x04", 2, 2},
        {"a zero that is written", "\x38\x02", "\x38\x00", 2, 2},
        {"other fields", "\x38\x02", "\x40\x01", 2, 2},
        {"texts", "\x0a\x01x", "\x0a\x00", 3, 2},
        {"lists", "\x1a\x05\x01\x02\x03\x04\x05", "\x18\x06", 7, 2},
        {"messages", "\x62\x02\x40\x01", "\x62\x02\x68\x01", 4, 4},
        {"one member of a oneof", "\xaa\x01\x02\x40\x01", "\xaa\x01\x02\x68\x01", 5, 5},
        {"two members of a oneof", "\xb0\x01\x07", "\xaa\x01\x02\x68\x01", 3, 5},
        {"unknown fields", "\xa0\x06\x05", "\xa2\x06\x01z", 3, 4},
    };
    for (size_t i = 0; i < sizeof pairs / sizeof pairs[0]; i++) {
        uint8_t n1 = pairs[i].n_first, n2 = pairs[i].n_second;
        uint8_t twice[32] = {0x62, n1}, once[32] = {0x62, (uint8_t)(n1 + n2)}, a[32], b[32];
        memcpy(twice + 2, pairs[i].first, n1);
        memcpy(once + 2, pairs[i].first, n1);
        twice[2 + n1] = 0x62;
        twice[3 + n1] = n2;
        memcpy(twice + 4 + n1, pairs[i].second, n2);
        memcpy(once + 2 + n1, pairs[i].second, n2);
        size_t len = pack_again(twice, 4u + n1 + n2, a);
        if (pack_again(once, 2u + n1 + n2, b) != len || memcmp(a, b, len) != 0)
            fail_msg("%s: not merged", pairs[i].what);
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
    static uint8_t bytes[32768];
    assert_int_equal(tree_verdict(bytes, nest(bytes, TEFF_DEPTH_MAX - 1)), TEFF_OK);
    assert_int_equal(tree_verdict(bytes, nest(bytes, TEFF_DEPTH_MAX)), TEFF_E_TOO_LARGE);
    assert_int_equal(tree_verdict(bytes, nest(bytes, 5000)), TEFF_E_TOO_LARGE);
}

static void fields_end_at_the_limit(void **state)
{
    size_t n = 2 * TEFF_FIELDS_MAX;
    uint8_t *bytes = malloc(n + 2);
    for (size_t i = 0; i < n + 2; i += 2) {
        bytes[i] = 0x12; /* an empty child, the worst there is in memory */
        bytes[i + 1] = 0;
    }
    assert_int_equal(tree_verdict(bytes, n), TEFF_OK);
    assert_int_equal(tree_verdict(bytes, n + 2), TEFF_E_TOO_LARGE);
    for (size_t i = 0; i < n + 2; i += 2)
        bytes[i] = 0x40; /* flag, over and over */
    assert_int_equal(tree_verdict(bytes, n + 2), TEFF_E_TOO_LARGE);
    free(bytes);
}

/* More of them than there may be fields. */
static void packed_numbers_count_by_their_bytes(void **state)
{
    size_t n = TEFF_FIELDS_MAX + 1;
    uint8_t *bytes = calloc(1, n + 4);
    assert_non_null(bytes);
    bytes[0] = 0x1a;
    bytes[1] = (uint8_t)(n & 0x7f) | 0x80;
    bytes[2] = (uint8_t)((n >> 7) & 0x7f) | 0x80;
    bytes[3] = (uint8_t)(n >> 14);
    teff_arena arena;
    ProtobufCMessage *msg;
    teffi_arena_init(&arena, NULL, 0, 0);
    assert_int_equal(tree_verdict(bytes, n + 4), TEFF_OK);
    assert_int_equal(teffi_unpack(&teff__test__tree__descriptor, bytes, n + 4, &arena, &msg),
                     TEFF_OK);
    assert_int_equal(((Teff__Test__Tree *)(void *)msg)->n_numbers, n);
    assert_null(codec_same(&teff__test__tree__descriptor, bytes, n + 4));
    teffi_arena_fini(&arena);
    free(bytes);
}

static void memory_runs_out_as_nomem(void **state)
{
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

/* ---- beside protobuf-c ---- */

typedef struct writer {
    uint64_t rng;
    uint8_t bytes[4096];
    size_t len;
} writer;

static uint32_t draw(writer *w, uint32_t n) /* xorshift64 */
{
    w->rng ^= w->rng << 13;
    w->rng ^= w->rng >> 7;
    w->rng ^= w->rng << 17;
    return (uint32_t)(w->rng >> 32) % n;
}

static void put(writer *w, uint32_t byte)
{
    if (w->len < sizeof w->bytes)
        w->bytes[w->len++] = (uint8_t)byte;
}

static void put_number(writer *w, uint64_t v)
{
    for (; v >= 0x80; v >>= 7)
        put(w, (uint32_t)v | 0x80);
    put(w, (uint32_t)v);
}

static uint64_t any_number(writer *w)
{
    uint64_t wide = (uint64_t)draw(w, UINT32_MAX) << 32 | draw(w, UINT32_MAX);
    return wide >> draw(w, 64);
}

static void put_message(writer *w, const ProtobufCMessageDescriptor *desc, unsigned depth);

/* A value that the field may have; now and then of another kind. */
static void put_value(writer *w, const ProtobufCFieldDescriptor *field, unsigned wire,
                      unsigned depth)
{
    static const char *const texts[] = {"", "a", "some longer text", "\xc3\xa4", "\xff"};
    if (wire == 0) {
        put_number(w, any_number(w));
    } else if (wire == 1 || wire == 5) {
        for (unsigned i = wire == 1 ? 8 : 4; i > 0; i--)
            put(w, draw(w, 4) ? draw(w, 256) : 0);
    } else {
        size_t at = w->len;
        put(w, 0);
        if (field && field->type == PROTOBUF_C_TYPE_MESSAGE)
            put_message(w, field->descriptor, depth + 1);
        else if (field && field->type != PROTOBUF_C_TYPE_STRING &&
                 field->type != PROTOBUF_C_TYPE_BYTES)
            for (unsigned n = draw(w, 9); n > 0; n--)
                put_number(w, any_number(w));
        else
            for (const char *p = texts[draw(w, draw(w, 8) ? 4 : 5)]; *p; p++)
                put(w, (uint8_t)*p);
        size_t len = w->len - at - 1;
        if (len < 0x80)
            w->bytes[at] = (uint8_t)len;
        else
            w->len = at + 1; /* too long for its byte: empty */
    }
}

static unsigned wire_for(writer *w, const ProtobufCFieldDescriptor *field)
{
    static const unsigned wires[] = {0, 0, 5, 0, 0, 1, 0, 5, 0, 1, 5, 1, 0, 0, 2, 2, 2};
    if (draw(w, 200) == 0)
        return draw(w, 8);
    if (field->label == PROTOBUF_C_LABEL_REPEATED && draw(w, 2))
        return 2;
    return wires[field->type];
}

static void put_message(writer *w, const ProtobufCMessageDescriptor *desc, unsigned depth)
{
    unsigned from = 0;
    for (unsigned n = draw(w, depth > 4 ? 2 : 7); n > 0; n--) {
        if (draw(w, 60) == 0) {
            put_number(w, (uint64_t)draw(w, 70) << 3); /* perhaps unknown, perhaps field 0 */
            put_number(w, any_number(w));
            continue;
        }
        from = draw(w, 3) ? from + draw(w, 4) : draw(w, desc->n_fields);
        const ProtobufCFieldDescriptor *field = &desc->fields[from % desc->n_fields];
        unsigned wire = wire_for(w, field);
        put_number(w, (uint64_t)field->id << 3 | wire);
        put_value(w, field, wire, depth);
    }
}

static void messages_are_as_protobuf_c_has_them(const ProtobufCMessageDescriptor *desc)
{
    unsigned passed = 0;
    for (uint64_t seed = 1; seed <= 40000; seed++) {
        writer w = {.rng = seed * 0x9e3779b97f4a7c15u};
        put_message(&w, desc, 0);
        if (w.len && draw(&w, 20) == 0)
            w.bytes[draw(&w, (uint32_t)w.len)] ^= (uint8_t)(1u << draw(&w, 8));
        uint8_t *exact = malloc(w.len ? w.len : 1);
        assert_non_null(exact);
        memcpy(exact, w.bytes, w.len);
        const char *what = codec_same(desc, exact, w.len);
        if (what)
            fail_msg("%s, seed %llu: %s", desc->name, (unsigned long long)seed, what);
        passed += verdict_on(desc, exact, w.len) == TEFF_OK;
        free(exact);
    }
    assert_true(passed > 15000); /* else this compares nothing */
}

static void trees_are_as_protobuf_c_has_them(void **state)
{
    messages_are_as_protobuf_c_has_them(&teff__test__tree__descriptor);
}

static void older_messages_are_as_protobuf_c_has_them(void **state)
{
    messages_are_as_protobuf_c_has_them(&teff__test__older__descriptor);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(each_row_has_its_verdict),
        cmocka_unit_test(every_byte_of_a_text_is_looked_at),
        cmocka_unit_test(required_fields_must_come),
        cmocka_unit_test(what_comes_again_replaces_or_is_merged),
        cmocka_unit_test(a_bool_is_0_or_1),
        cmocka_unit_test(unknown_fields_come_back),
        cmocka_unit_test(bytes_are_borrowed_or_copied),
        cmocka_unit_test(a_message_that_comes_twice_is_merged),
        cmocka_unit_test(depth_ends_at_the_limit),
        cmocka_unit_test(fields_end_at_the_limit),
        cmocka_unit_test(packed_numbers_count_by_their_bytes),
        cmocka_unit_test(memory_runs_out_as_nomem),
        cmocka_unit_test(trees_are_as_protobuf_c_has_them),
        cmocka_unit_test(older_messages_are_as_protobuf_c_has_them),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
