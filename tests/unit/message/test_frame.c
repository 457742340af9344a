/* test_frame.c - frames: round trips, every truncation, every single changed bit. */
#include "test.h"
#include <stdlib.h>
#include <string.h>
#include <teff/silo.h>
#include "message/frame.h"

static const uint64_t now = 5000000000u;

static uint8_t *encode(const teffi_msg *msg, size_t *size)
{
    size_t body_len;
    assert_int_equal(teffi_frame_size(msg, 1 << 20, size, &body_len), TEFF_OK);
    uint8_t *bytes = malloc(*size); /* of the exact size: a sanitizer sees any step beyond */
    assert_non_null(bytes);
    teffi_frame_encode(msg, body_len, now, bytes);
    return bytes;
}

static teff_err decode(const uint8_t *bytes, size_t size, teffi_msg **msg)
{
    teffi_frame frame;
    size_t whole;
    *msg = NULL;
    teff_err err = teffi_frame_peek(bytes, size, 1 << 20, &whole, &frame);
    if (err)
        return err;
    assert_int_equal(whole, size);
    return teffi_frame_decode(&frame, NULL, now, msg);
}

static teffi_msg *full_response(void)
{
    teffi_msg *m = teffi_msg_new(TEFFI_MSG_RESPONSE);
    assert_non_null(m);
    m->flags = 0x8001;
    m->hops = 3;
    m->err = TEFF_E_FAILED;
    m->src = (teffi_node_id){1, 2};
    m->to = (teffi_pid){{5, 0}, 0, 7};
    m->call_slot = 8;
    m->call_generation = 9;
    m->call_cookie = 0x0123456789abcdef;
    m->type_id = 10;
    m->method_id = UINT32_MAX;
    m->deadline_ns = now + 1500000; /* 1.5 ms is sent as 2 */
    m->key = (const uint8_t *)"k\0y";
    m->key_len = 3;
    m->text = "no funds";
    m->raw = (const uint8_t *)"body";
    m->raw_len = 4;
    return m;
}

static void assert_same(const teffi_msg *a, const teffi_msg *b)
{
    assert_int_equal(a->item.kind, b->item.kind);
    assert_int_equal(a->flags, b->flags);
    assert_int_equal(a->hops, b->hops);
    assert_int_equal(a->err, b->err);
    assert_true(teffi_node_is(a->src, b->src));
    assert_memory_equal(&a->to, &b->to, sizeof a->to);
    assert_int_equal(a->call_slot, b->call_slot);
    assert_int_equal(a->call_generation, b->call_generation);
    assert_int_equal(a->call_cookie, b->call_cookie);
    assert_int_equal(a->type_id, b->type_id);
    assert_int_equal(a->method_id, b->method_id);
    assert_int_equal(a->key_len, b->key_len);
    assert_int_equal(a->raw_len, b->raw_len);
    assert_int_equal(!a->text, !b->text);
    if (a->key_len)
        assert_memory_equal(a->key, b->key, a->key_len);
    if (a->raw_len)
        assert_memory_equal(a->raw, b->raw, a->raw_len);
    if (a->text)
        assert_string_equal(a->text, b->text);
}

static void a_full_message_comes_back(void **state)
{
    size_t size;
    teffi_msg *m = full_response(), *back;
    uint8_t *bytes = encode(m, &size);
    assert_int_equal(decode(bytes, size, &back), TEFF_OK);
    assert_same(m, back);
    assert_int_equal(back->deadline_ns, now + 2000000);
    free(bytes);
    teffi_msg_free(back);
    teffi_msg_free(m);
}

static void an_empty_message_is_a_head_only(void **state)
{
    size_t size;
    teffi_msg *m = teffi_msg_new(TEFFI_MSG_ONEWAY), *back;
    uint8_t *bytes = encode(m, &size);
    assert_int_equal(size, TEFFI_FRAME_HEAD);
    assert_int_equal(decode(bytes, size, &back), TEFF_OK);
    assert_same(m, back);
    assert_int_equal(back->deadline_ns, 0);
    free(bytes);
    teffi_msg_free(back);
    teffi_msg_free(m);
}

static void a_deadline_in_the_past_leaves_a_millisecond(void **state)
{
    static const struct {
        uint64_t deadline_ns, arrives_ns;
    } rows[] = {{1, now + 1000000},
                {now, now + 1000000},
                {now + 1, now + 1000000},
                {now + 1000000, now + 1000000},
                {now + 1000001, now + 2000000},
                {UINT64_MAX, now + UINT32_MAX * 1000000ull}};
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        size_t size;
        teffi_msg *m = teffi_msg_new(TEFFI_MSG_ONEWAY), *back;
        m->deadline_ns = rows[i].deadline_ns;
        uint8_t *bytes = encode(m, &size);
        assert_int_equal(decode(bytes, size, &back), TEFF_OK);
        assert_int_equal(back->deadline_ns, rows[i].arrives_ns);
        free(bytes);
        teffi_msg_free(back);
        teffi_msg_free(m);
    }
}

/* A shorter frame whose length field says so: either a shorter body or malformed. */
static void every_truncation_is_refused_or_a_shorter_body(void **state)
{
    size_t size;
    teffi_msg *m = full_response(), *back;
    uint8_t *bytes = encode(m, &size);
    for (size_t n = TEFFI_FRAME_PREFIX; n < size; n++) {
        uint32_t rest = (uint32_t)(n - TEFFI_FRAME_PREFIX);
        uint8_t *cut = malloc(n);
        memcpy(cut, bytes, n);
        memcpy(cut, &rest, 4);
        teff_err err = decode(cut, n, &back);
        bool only_body_cut = n >= size - m->raw_len;
        assert_int_equal(err, only_body_cut ? TEFF_OK : TEFF_E_MALFORMED);
        teffi_msg_free(back);
        free(cut);
    }
    free(bytes);
    teffi_msg_free(m);
}

/* Whatever decodes encodes to the same bytes again: there is one encoding. */
static void every_flipped_bit_is_refused_or_another_message(void **state)
{
    size_t size, again_size, same = 0;
    teffi_msg *m = full_response(), *back;
    uint8_t *bytes = encode(m, &size);
    for (size_t bit = 8 * TEFFI_FRAME_PREFIX; bit < 8 * size; bit++) {
        bytes[bit / 8] ^= (uint8_t)(1u << bit % 8);
        teff_err err = decode(bytes, size, &back);
        if (!err) {
            uint8_t *again = encode(back, &again_size);
            assert_int_equal(again_size, size);
            assert_memory_equal(again, bytes, size);
            free(again);
            same++;
        } else {
            assert_int_equal(err, TEFF_E_MALFORMED);
        }
        teffi_msg_free(back);
        bytes[bit / 8] ^= (uint8_t)(1u << bit % 8);
    }
    assert_true(same > 0);
    free(bytes);
    teffi_msg_free(m);
}

static void peek_waits_for_the_whole_and_refuses_lengths(void **state)
{
    static const struct {
        uint32_t length;
        size_t there;
        teff_err err;
        size_t size;
    } rows[] = {{6, 0, TEFF_OK, 0},           {6, 3, TEFF_OK, 0},
                {6, 4, TEFF_OK, 10},          {6, 9, TEFF_OK, 10},
                {6, 10, TEFF_OK, 10},         {5, 10, TEFF_E_MALFORMED, 0},
                {0, 4, TEFF_E_MALFORMED, 0},  {96, 4, TEFF_OK, 100},
                {97, 4, TEFF_E_TOO_LARGE, 0}, {UINT32_MAX, 4, TEFF_E_TOO_LARGE, 0}};
    uint8_t bytes[16] = {0};
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        teffi_frame frame;
        size_t size;
        memcpy(bytes, &rows[i].length, 4);
        teff_err err = teffi_frame_peek(bytes, rows[i].there, 100, &size, &frame);
        assert_int_equal(err, rows[i].err);
        assert_int_equal(size, rows[i].size);
    }
}

static void too_large_is_said_before_anything_is_written(void **state)
{
    size_t size, body_len;
    teffi_msg *m = teffi_msg_new(TEFFI_MSG_ONEWAY);
    m->raw = (const uint8_t *)"0123456789";
    m->raw_len = 10;
    assert_int_equal(teffi_frame_size(m, 20, &size, &body_len), TEFF_OK);
    assert_int_equal(size, 20);
    assert_int_equal(teffi_frame_size(m, 19, &size, &body_len), TEFF_E_TOO_LARGE);
    m->key_len = TEFFI_KEY_WIRE_MAX + 1;
    assert_int_equal(teffi_frame_size(m, 1 << 20, &size, &body_len), TEFF_E_TOO_LARGE);
    teffi_msg_free(m);
}

static void a_long_text_is_cut(void **state)
{
    char text[TEFF_TEXT_MAX * 2];
    size_t size;
    memset(text, 'x', sizeof text - 1);
    text[sizeof text - 1] = '\0';
    teffi_msg *m = full_response(), *back;
    m->text = text;
    uint8_t *bytes = encode(m, &size);
    assert_int_equal(decode(bytes, size, &back), TEFF_OK);
    assert_int_equal(strlen(back->text), TEFF_TEXT_MAX - 1);
    free(bytes);
    teffi_msg_free(back);
    teffi_msg_free(m);
}

static void control_frames_have_a_payload_only(void **state)
{
    uint8_t bytes[TEFFI_FRAME_HEAD + 3];
    const uint8_t *payload;
    teffi_frame frame;
    teffi_msg *msg;
    size_t size, len;
    teffi_frame_control(TEFFI_FRAME_ACK, (const uint8_t *)"abc", 3, bytes);
    assert_int_equal(teffi_frame_peek(bytes, sizeof bytes, 4096, &size, &frame), TEFF_OK);
    assert_int_equal(frame.kind, TEFFI_FRAME_ACK);
    assert_true(teffi_frame_payload(&frame, &payload, &len));
    assert_int_equal(len, 3);
    assert_memory_equal(payload, "abc", 3);
    assert_int_equal(teffi_frame_decode(&frame, NULL, now, &msg), TEFF_E_MALFORMED);
    bytes[8] = 1;
    assert_false(teffi_frame_payload(&frame, &payload, &len));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_full_message_comes_back),
        cmocka_unit_test(an_empty_message_is_a_head_only),
        cmocka_unit_test(a_deadline_in_the_past_leaves_a_millisecond),
        cmocka_unit_test(every_truncation_is_refused_or_a_shorter_body),
        cmocka_unit_test(every_flipped_bit_is_refused_or_another_message),
        cmocka_unit_test(peek_waits_for_the_whole_and_refuses_lengths),
        cmocka_unit_test(too_large_is_said_before_anything_is_written),
        cmocka_unit_test(a_long_text_is_cut),
        cmocka_unit_test(control_frames_have_a_payload_only),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
