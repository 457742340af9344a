/* test_frame.c - frames: round trips, every truncation, every single changed bit. */
#include "test.h"
#include <stdlib.h>
#include <string.h>
#include <teff/silo.h>
#include "message/frame.h"
#include "cluster.pb-c.h"

static const uint64_t now = 5000000000u;

static uint8_t *encode(const teffi_msg *msg, size_t *size)
{
    size_t room, body_len;
    assert_int_equal(teffi_frame_compute_size_bound(msg, 1 << 20, &room, &body_len), TEFF_OK);
    uint8_t *bytes = malloc(room); /* not more: a sanitizer sees any step beyond */
    assert_non_null(bytes);
    *size = teffi_frame_encode(msg, body_len, now, bytes);
    assert_in_range(*size, room - TEFFI_FRAME_FIXED_MAX, room);
    bytes = realloc(bytes, *size);
    assert_non_null(bytes);
    return bytes;
}

static teff_err decode(const uint8_t *bytes, size_t size, teffi_msg **msg)
{
    static teffi_msg none;
    teffi_frame frame;
    size_t whole;
    *msg = NULL;
    teff_err err = teffi_frame_peek(bytes, size, 1 << 20, &whole, &frame);
    if (err)
        return err;
    assert_int_equal(whole, size);
    *msg = &none;
    err = teffi_frame_decode(&frame, NULL, now, msg);
    assert_ptr_not_equal(*msg, &none);
    assert_int_equal(*msg != NULL, err == TEFF_OK);
    return err;
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
    m->call.slot = 8;
    m->call.generation = 9;
    m->call.cookie = 0x0123456789abcdef;
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
    assert_true(teffi_node_equals(a->src, b->src));
    assert_memory_equal(&a->to, &b->to, sizeof a->to);
    assert_int_equal(a->call.slot, b->call.slot);
    assert_int_equal(a->call.generation, b->call.generation);
    assert_int_equal(a->call.cookie, b->call.cookie);
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
    teffi_msg *request = teffi_msg_new(TEFFI_MSG_REQUEST);
    free(encode(request, &size));
    assert_int_equal(size, TEFFI_FRAME_HEAD);
    teffi_msg_free(request);
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

/* Sets one field and clears the others. */
static void set_field(teffi_msg *m, unsigned field)
{
    static const teffi_pid slot = {{0, 0}, 7, 0}, generation = {{0, 0}, 0, 7};
    m->src.silo = field == 1;
    m->src.incarnation = field == 2;
    m->to = field == 3 ? slot : field == 4 ? generation : (teffi_pid){0};
    m->to.node.silo = field == 5;
    m->to.node.incarnation = field == 6;
    m->type_id = field == 7;
    m->method_id = field == 8;
    m->deadline_ns = field == 9 ? now + 1000000 : 0;
    m->key = field == 10 ? (const uint8_t *)"key" : NULL;
    m->key_len = field == 10 ? 3 : 0;
    m->call.slot = field == 11;
    m->call.generation = field == 12;
    m->call.cookie = field == 13;
    m->err = field == 14;
    m->text = field == 15 ? "text" : NULL;
    m->raw = field == 16 ? (const uint8_t *)"body" : NULL;
    m->raw_len = field == 16 ? 4 : 0;
}

/* Call 0,0,0 stands where a call may stand. */
static void a_call_of_zeros_is_malformed(void **state)
{
    size_t size;
    teffi_msg *m = teffi_msg_new(TEFFI_MSG_REQUEST), *back;
    m->call.slot = 1;
    uint8_t *bytes = encode(m, &size);
    bytes[TEFFI_FRAME_HEAD] = 0;
    assert_int_equal(decode(bytes, size, &back), TEFF_E_MALFORMED);
    free(bytes);
    teffi_msg_free(m);
}

/* An idempotency key travels in requests only, also one of zeros. */
static void a_key_comes_back_in_a_request_only(void **state)
{
    static const uint8_t keys[2][TEFFI_ONCE_BYTES] = {{0}, {1, 2, 3, [15] = 16}};
    for (unsigned row = 0; row < 2; row++) {
        size_t size;
        teffi_msg *m = teffi_msg_new(TEFFI_MSG_REQUEST), *back;
        m->call.slot = 1;
        m->once = keys[row];
        m->raw = (const uint8_t *)"body";
        m->raw_len = 4;
        uint8_t *bytes = encode(m, &size);
        assert_int_equal(size, TEFFI_FRAME_HEAD + 16 + TEFFI_ONCE_BYTES + 4);
        assert_int_equal(decode(bytes, size, &back), TEFF_OK);
        assert_memory_equal(back->once, keys[row], TEFFI_ONCE_BYTES);
        assert_int_equal(back->raw_len, 4);
        teffi_msg_free(back);
        bytes[TEFFI_FRAME_PREFIX] = TEFFI_MSG_RESPONSE;
        assert_int_equal(decode(bytes, size, &back), TEFF_E_MALFORMED);
        bytes[TEFFI_FRAME_PREFIX] = TEFFI_MSG_REQUEST;
        uint32_t rest = TEFFI_FRAME_HEAD + 16 + TEFFI_ONCE_BYTES - 1 - TEFFI_FRAME_PREFIX;
        memcpy(bytes, &rest, 4);
        assert_int_equal(decode(bytes, rest + TEFFI_FRAME_PREFIX, &back), TEFF_E_MALFORMED);
        free(bytes);
        teffi_msg_free(m);
    }
}

static void a_transaction_comes_back(void **state)
{
    static const uint32_t kinds[] = {TEFFI_MSG_REQUEST, TEFFI_MSG_ONEWAY, TEFFI_MSG_RESPONSE};
    static const uint8_t key[TEFFI_ONCE_BYTES] = {1};
    for (unsigned row = 0; row < 3; row++) {
        size_t size;
        teffi_msg *m = teffi_msg_new(kinds[row]), *back;
        bool has_once = kinds[row] == TEFFI_MSG_REQUEST;
        size_t fields = kinds[row] == TEFFI_MSG_ONEWAY ? 0 : sizeof m->call;
        fields += has_once ? TEFFI_ONCE_BYTES : 0;
        m->call.slot = 1;
        if (has_once)
            m->once = key;
        m->transaction = (const uint8_t *)"with whom";
        m->transaction_len = 9;
        m->raw = (const uint8_t *)"body";
        m->raw_len = 4;
        uint8_t *bytes = encode(m, &size);
        assert_int_equal(size, TEFFI_FRAME_HEAD + fields + 4 + 9 + 4);
        assert_int_equal(decode(bytes, size, &back), TEFF_OK);
        assert_int_equal(back->transaction_len, 9);
        assert_memory_equal(back->transaction, "with whom", 9);
        assert_memory_equal(back->raw, "body", 4);
        teffi_msg_free(back);
        uint32_t none = 0, more = 14;
        for (int i = 0; i < 2; i++) {
            memcpy(bytes + TEFFI_FRAME_HEAD + fields, i ? &more : &none, 4);
            assert_int_equal(decode(bytes, size, &back), TEFF_E_MALFORMED);
        }
        free(bytes);
        teffi_msg_free(m);
    }
}

/* Each prefix of the bytes, with a length that says so, but for a shorter body. */
static void assert_prefixes_are_malformed(const uint8_t *bytes, size_t size, size_t body_len)
{
    teffi_msg *back;
    for (size_t n = TEFFI_FRAME_HEAD; n < size - body_len; n++) {
        uint32_t rest = (uint32_t)(n - TEFFI_FRAME_PREFIX);
        uint8_t *cut = malloc(n);
        assert_non_null(cut);
        memcpy(cut, bytes, n);
        memcpy(cut, &rest, 4);
        assert_int_equal(decode(cut, n, &back), TEFF_E_MALFORMED);
        free(cut);
    }
}

static void a_frame_has_the_fields_that_are_set(void **state)
{
    static const size_t len[] = {0, 8, 8, 8, 8, 8, 8, 4, 4, 4, 5, 16, 16, 16, 2, 6, 4};
    static const uint32_t kinds[] = {TEFFI_MSG_ONEWAY, TEFFI_MSG_REQUEST, TEFFI_MSG_RESPONSE};
    for (unsigned row = 0; row < 3 * (sizeof len / sizeof len[0]); row++) {
        size_t size, field = row / 3, last = (size_t[]){10, 13, 16}[row % 3];
        teffi_msg *m = teffi_msg_new(kinds[row % 3]), *back;
        if (field > last && field < 16)
            field = last;
        set_field(m, (unsigned)field);
        bool adds_call = row % 3 != 0 && (field < 11 || field > 13);
        if (adds_call)
            m->call.slot = 7;
        uint8_t *bytes = encode(m, &size);
        assert_int_equal(size, TEFFI_FRAME_HEAD + len[field] + (adds_call ? 16 : 0));
        assert_int_equal(decode(bytes, size, &back), TEFF_OK);
        assert_same(m, back);
        assert_int_equal(m->deadline_ns, back->deadline_ns);
        assert_prefixes_are_malformed(bytes, size, m->raw_len);
        free(bytes);
        teffi_msg_free(back);
        teffi_msg_free(m);
    }
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
        size_t size = 1;
        memcpy(bytes, &rows[i].length, 4);
        teff_err err = teffi_frame_peek(bytes, rows[i].there, 100, &size, &frame);
        assert_int_equal(err, rows[i].err);
        assert_int_equal(size, rows[i].size);
    }
}

static void too_large_is_said_before_anything_is_written(void **state)
{
    enum { BODY = 10, LEAST = BODY + TEFFI_FRAME_FIXED_MAX };
    size_t room, body_len;
    teffi_msg *m = teffi_msg_new(TEFFI_MSG_ONEWAY);
    m->raw = (const uint8_t *)"0123456789";
    m->raw_len = BODY;
    assert_int_equal(teffi_frame_compute_size_bound(m, LEAST, &room, &body_len), TEFF_OK);
    assert_int_equal(room, LEAST);
    assert_int_equal(body_len, BODY);
    assert_int_equal(teffi_frame_compute_size_bound(m, LEAST - 1, &room, &body_len),
                     TEFF_E_TOO_LARGE);
    m->flags = TEFFI_MSG_ROW;
    assert_int_equal(teffi_frame_compute_size_bound(m, LEAST - 1, &room, &body_len), TEFF_OK);
    m->raw_len = TEFFI_FRAME_ROW_MAX - TEFFI_FRAME_FIXED_MAX;
    assert_int_equal(teffi_frame_compute_size_bound(m, LEAST - 1, &room, &body_len), TEFF_OK);
    m->raw_len++;
    assert_int_equal(teffi_frame_compute_size_bound(m, LEAST - 1, &room, &body_len),
                     TEFF_E_TOO_LARGE);
    m->raw_len = 0;
    m->key_len = TEFFI_KEY_WIRE_MAX + 1;
    assert_int_equal(teffi_frame_compute_size_bound(m, 1 << 20, &room, &body_len),
                     TEFF_E_TOO_LARGE);
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

/* A frame that is ready for its text: a response to call 1 with a text of len bytes. */
static teff_err text_verdict(size_t len)
{
    enum { PLACE = TEFFI_FRAME_HEAD + 16 };
    static uint8_t bytes[PLACE + 2 + 2 * TEFF_TEXT_MAX] = {0};
    teffi_msg *m = teffi_msg_new(TEFFI_MSG_RESPONSE), *back;
    m->call.slot = 1;
    m->text = "x";
    teffi_frame_encode(m, 0, now, bytes);
    memset(bytes + PLACE + 2, 'x', len);
    bytes[PLACE] = (uint8_t)len;
    bytes[PLACE + 1] = (uint8_t)(len >> 8);
    uint32_t rest = (uint32_t)(PLACE + 2 + len - TEFFI_FRAME_PREFIX);
    memcpy(bytes, &rest, 4);
    teff_err err = decode(bytes, PLACE + 2 + len, &back);
    teffi_msg_free(back);
    teffi_msg_free(m);
    return err;
}

static void a_text_that_is_too_long_is_malformed(void **state)
{
    assert_int_equal(text_verdict(1), TEFF_OK);
    assert_int_equal(text_verdict(TEFF_TEXT_MAX - 1), TEFF_OK);
    assert_int_equal(text_verdict(TEFF_TEXT_MAX), TEFF_E_MALFORMED);
    assert_int_equal(text_verdict(0), TEFF_E_MALFORMED);
}

static void a_frame_may_be_a_row_until_its_flags_are_there(void **state)
{
    size_t size;
    teffi_msg *m = full_response();
    for (unsigned row = 0; row < 2; row++) {
        m->flags = row ? TEFFI_MSG_ROW : (uint16_t)~TEFFI_MSG_ROW;
        m->hops = row ? 0 : 0xff;
        uint8_t *bytes = encode(m, &size);
        for (size_t n = 0; n <= size; n++)
            assert_int_equal(teffi_frame_may_be_row(bytes, n), row || n < TEFFI_FRAME_HEAD);
        free(bytes);
    }
    teffi_msg_free(m);
}

/* Without the longest field's bytes, which a caller puts back where it is told. */
static void a_frame_around_its_segment_is_the_same(void **state)
{
    static uint8_t key[] = "twelve bytes", whole[128], around[128];
    Teff__Cluster__Moved moved = TEFF__CLUSTER__MOVED__INIT;
    Teff__Cluster__Pid pid = TEFF__CLUSTER__PID__INIT;
    teffi_segment segment;
    teffi_msg *m = teffi_msg_new(TEFFI_MSG_ONEWAY);
    size_t room, body_len, before;
    moved.type = 1;
    moved.key = (ProtobufCBinaryData){sizeof key, key};
    moved.pid = &pid;
    pid.slot = 1;
    m->body = &moved.base;
    m->type_id = 9;
    assert_int_equal(teffi_frame_compute_size_bound(m, sizeof whole, &room, &body_len), TEFF_OK);
    size_t size = teffi_frame_encode(m, body_len, now, whole);
    assert_false(teffi_msg_find_segment(m, sizeof key + 1, &segment));
    assert_true(teffi_msg_find_segment(m, sizeof key, &segment));
    assert_ptr_equal(segment.bytes, key);
    assert_int_equal(segment.len, sizeof key);
    size_t copied = teffi_frame_encode_without_segment(m, body_len, &segment, now, around, &before);
    assert_int_equal(copied, size - sizeof key);
    assert_true(before < copied);
    assert_memory_equal(around, whole, before);
    assert_memory_equal(whole + before, key, sizeof key);
    assert_memory_equal(around + before, whole + before + sizeof key, size - before - sizeof key);
    teffi_msg_free(m);
}

/* In a chunk of its own, which is then the message's. */
static void a_frame_in_a_chunk_is_not_copied(void **state)
{
    size_t size, room;
    teffi_msg *m = full_response(), *back;
    uint8_t *bytes = encode(m, &size), *chunk = teffi_chunk_new(size, &room);
    assert_non_null(chunk);
    memcpy(chunk, bytes, size);
    teffi_frame frame = {TEFFI_MSG_RESPONSE, chunk + TEFFI_FRAME_PREFIX, size - TEFFI_FRAME_PREFIX};
    assert_int_equal(teffi_frame_decode(&frame, chunk, now, &back), TEFF_OK);
    assert_same(m, back);
    assert_ptr_equal(back->raw + back->raw_len, chunk + size);
    assert_true(teffi_arena_held_bytes(&back->arena) >= room);
    teffi_msg_free(back);
    free(bytes);
    teffi_msg_free(m);
}

static void control_frames_have_a_payload_only(void **state)
{
    uint8_t bytes[TEFFI_FRAME_HEAD + 3];
    const uint8_t *payload;
    teffi_frame frame;
    teffi_msg *msg;
    size_t size, len;
    teffi_frame_encode_control(TEFFI_FRAME_ACK, (const uint8_t *)"abc", 3, bytes);
    assert_int_equal(teffi_frame_peek(bytes, sizeof bytes, 4096, &size, &frame), TEFF_OK);
    assert_int_equal(frame.kind, TEFFI_FRAME_ACK);
    assert_true(teffi_frame_get_control_payload(&frame, &payload, &len));
    assert_int_equal(len, 3);
    assert_memory_equal(payload, "abc", 3);
    assert_int_equal(teffi_frame_decode(&frame, NULL, now, &msg), TEFF_E_MALFORMED);
    for (unsigned at = TEFFI_FRAME_PREFIX + 1; at < TEFFI_FRAME_HEAD; at++) {
        bytes[at] = 1; /* hops, flags, has */
        assert_false(teffi_frame_get_control_payload(&frame, &payload, &len));
        bytes[at] = 0;
    }
}

static void a_view_has_eight_bytes(void **state)
{
    uint8_t bytes[TEFFI_FRAME_HEAD + TEFFI_VIEW_BYTES];
    teffi_frame frame;
    size_t size, len;
    const uint8_t *payload;
    teffi_frame_encode_view(0x0102030405060708, bytes);
    assert_int_equal(teffi_frame_peek(bytes, sizeof bytes, 4096, &size, &frame), TEFF_OK);
    assert_int_equal(size, sizeof bytes);
    assert_int_equal(frame.kind, TEFFI_FRAME_VIEW);
    assert_true(teffi_frame_get_control_payload(&frame, &payload, &len));
    assert_int_equal(teffi_frame_decode_view(payload, len), 0x0102030405060708);
    assert_int_equal(payload[0], 8);
    assert_int_equal(teffi_frame_decode_view(payload, len - 1), 0);
    assert_int_equal(teffi_frame_decode_view(payload, len + 1), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_full_message_comes_back),
        cmocka_unit_test(an_empty_message_is_a_head_only),
        cmocka_unit_test(a_frame_has_the_fields_that_are_set),
        cmocka_unit_test(a_call_of_zeros_is_malformed),
        cmocka_unit_test(a_key_comes_back_in_a_request_only),
        cmocka_unit_test(a_transaction_comes_back),
        cmocka_unit_test(a_deadline_in_the_past_leaves_a_millisecond),
        cmocka_unit_test(every_truncation_is_refused_or_a_shorter_body),
        cmocka_unit_test(every_flipped_bit_is_refused_or_another_message),
        cmocka_unit_test(peek_waits_for_the_whole_and_refuses_lengths),
        cmocka_unit_test(too_large_is_said_before_anything_is_written),
        cmocka_unit_test(a_long_text_is_cut),
        cmocka_unit_test(a_text_that_is_too_long_is_malformed),
        cmocka_unit_test(a_frame_may_be_a_row_until_its_flags_are_there),
        cmocka_unit_test(a_frame_around_its_segment_is_the_same),
        cmocka_unit_test(a_frame_in_a_chunk_is_not_copied),
        cmocka_unit_test(control_frames_have_a_payload_only),
        cmocka_unit_test(a_view_has_eight_bytes),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
