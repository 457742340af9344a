/* test_read_buffer.c - the buffer of a reader: how it grows, what it hands over, what it copies. */
#include "test.h"

#include <string.h>
#include "link/conn/buffers.h"

enum { KIB = 1024, MAX = 2 * 1024 * KIB, HEAD = TEFFI_FRAME_HEAD + 16 };

static uint8_t stream[3 * MAX];

/* A frame with n bytes of body. out: its length. */
static size_t put(uint8_t *to, uint32_t slot, size_t n)
{
    size_t size, body_len;
    teffi_msg *msg = teffi_msg_new(TEFFI_MSG_REQUEST);
    assert_non_null(msg);
    uint8_t *body = teff_arena_alloc(&msg->arena, n + 1);
    assert_non_null(body);
    memset(body, (int)slot, n);
    msg->call.slot = slot;
    msg->raw = body;
    msg->raw_len = n;
    assert_int_equal(teffi_frame_compute_size_bound(msg, MAX, &size, &body_len), TEFF_OK);
    size = teffi_frame_encode(msg, body_len, 0, to);
    assert_int_equal(size, HEAD + n);
    teffi_msg_free(msg);
    return size;
}

/* One read of what is left of n bytes. out: how many it took. */
static size_t read_once(read_buffer *in, const uint8_t *bytes, size_t n)
{
    uint8_t *at;
    size_t room = teffi_read_buffer_room(in, &at), got = n < room ? n : room;
    assert_true(room > 0);
    memcpy(at, bytes, got);
    in->len += got;
    return got;
}

/* All whole messages, which must be of n bytes. out: how many. */
static unsigned take_all(read_buffer *in, size_t n, teffi_msg **last)
{
    unsigned taken = 0;
    for (;;) {
        teffi_frame frame;
        bool whole;
        assert_int_equal(teffi_read_buffer_peek(in, MAX, &whole, &frame), TEFF_OK);
        if (!whole)
            return taken;
        teffi_msg_free(*last);
        assert_int_equal(teffi_read_buffer_decode_and_remove(in, &frame, 1, last), TEFF_OK);
        assert_int_equal((*last)->raw_len, n);
        for (size_t i = 0; i < n; i++)
            if ((*last)->raw[i] != (uint8_t)(*last)->call.slot)
                fail();
        taken++;
    }
}

/* A stream of n bytes, read in as few steps as it offers. out: reads. */
static unsigned feed(read_buffer *in, size_t n, size_t body, unsigned *messages, teffi_msg **last)
{
    unsigned reads = 0;
    for (size_t at = 0; at < n; reads++) {
        uint8_t *to;
        size_t room = teffi_read_buffer_room(in, &to), got = read_once(in, stream + at, n - at);
        at += got;
        *messages += take_all(in, body, last);
        assert_true(teffi_read_buffer_fit(in, got, got == room));
    }
    return reads;
}

static size_t put_many(unsigned n, size_t body)
{
    size_t len = 0;
    for (unsigned i = 0; i < n; i++)
        len += put(stream + len, i + 1, body);
    return len;
}

/* Once the first has come, each is read by one call into what its message keeps. */
static void large_frames_take_one_read_and_no_copy(void **state)
{
    enum { N = 20, BODY = 64 * KIB };
    read_buffer in = {0};
    teffi_msg *last = NULL;
    unsigned messages = 0;
    size_t len = put_many(N, BODY);
    assert_true(teffi_read_buffer_fit(&in, 0, false));
    unsigned reads = feed(&in, len, BODY, &messages, &last);
    assert_int_equal(messages, N);
    assert_in_range(reads, N, N + 6);
    for (int i = 0; i < 3; i++) {
        const uint8_t *buffer = in.data;
        len = put(stream, 7, BODY);
        assert_int_equal(feed(&in, len, BODY, &messages, &last), 1);
        assert_true(last->raw > buffer && last->raw < buffer + HEAD + 1); /* not copied */
        assert_ptr_not_equal(in.data, buffer);
        assert_in_range(in.cap, BODY, 2 * BODY);
    }
    teffi_msg_free(last);
    teffi_read_buffer_fini(&in);
}

/* A message does not keep a buffer that is much larger than its frame. */
static void a_frame_in_a_much_larger_buffer_is_copied(void **state)
{
    enum { SMALL = 1000, BODY = 40 * KIB };
    read_buffer in = {0};
    teffi_msg *last = NULL;
    unsigned messages = 0;
    assert_true(teffi_read_buffer_fit(&in, 0, false));
    (void)feed(&in, put_many(2000, SMALL), SMALL, &messages, &last); /* always full: it grows */
    assert_int_equal(messages, 2000);
    assert_true(in.cap >= LINK_READ_BUFFER_MAX);
    const uint8_t *buffer = in.data;
    size_t cap = in.cap;
    (void)read_once(&in, stream, put(stream, 5, BODY));
    assert_int_equal(take_all(&in, BODY, &last), 1);
    assert_ptr_equal(in.data, buffer);
    assert_true(last->raw < buffer || last->raw >= buffer + cap);
    assert_true(teffi_read_buffer_fit(&in, BODY, false));
    assert_in_range(in.cap, BODY, 2 * BODY); /* and it has what the next will take */
    teffi_msg_free(last);
    teffi_read_buffer_fini(&in);
}

/* A peer announces a megabyte: the buffer has room for what was received, and as much again. */
static void a_large_announced_length_gets_little_memory(void **state)
{
    enum { BODY = 1024 * KIB };
    read_buffer in = {0};
    teffi_msg *last = NULL;
    size_t len = put(stream, 9, BODY);
    assert_true(teffi_read_buffer_fit(&in, 0, false));
    for (size_t at = 0; at < len;) {
        uint8_t *to;
        size_t n = len - at < 100 ? len - at : 100, room = teffi_read_buffer_room(&in, &to);
        size_t got = read_once(&in, stream + at, n < room ? n : room);
        at += got;
        assert_int_equal(take_all(&in, BODY, &last), at == len);
        assert_true(teffi_read_buffer_fit(&in, got, got == room));
        if (at < len)
            assert_true(in.cap <= 2 * LINK_READ_BUFFER_MIN + at * 5 / 2 + at / 4);
    }
    assert_int_equal(last->raw_len, BODY);
    teffi_msg_free(last);
    teffi_read_buffer_fini(&in);
}

/* After a while of small frames the memory of large ones is given back. */
static void calm_gives_memory_back(void **state)
{
    enum { BODY = 500 * KIB };
    read_buffer in = {0};
    teffi_msg *last = NULL;
    unsigned messages = 0;
    assert_true(teffi_read_buffer_fit(&in, 0, false));
    (void)feed(&in, put_many(3, BODY), BODY, &messages, &last);
    assert_true(in.cap >= BODY);
    for (int i = 0; i < 2000; i++)
        (void)feed(&in, put(stream, 3, 20), 20, &messages, &last);
    assert_int_equal(messages, 2003);
    assert_true(in.cap < 2 * LINK_READ_BUFFER_MIN);
    teffi_msg_free(last);
    teffi_read_buffer_fini(&in);
}

static void a_bad_frame_changes_nothing(void **state)
{
    read_buffer in = {0};
    teffi_frame frame;
    teffi_msg *msg;
    bool whole;
    size_t len = put(stream, 1, 30 * KIB);
    stream[9] = 0xff; /* fields that there are not */
    assert_true(teffi_read_buffer_fit(&in, 0, false));
    for (size_t at = 0; at < len;) {
        at += read_once(&in, stream + at, len - at);
        assert_int_equal(teffi_read_buffer_peek(&in, MAX, &whole, &frame), TEFF_OK);
        if (!whole)
            assert_true(teffi_read_buffer_fit(&in, 1, true));
    }
    assert_true(whole);
    assert_int_equal(teffi_read_buffer_decode_and_remove(&in, &frame, 1, &msg), TEFF_E_MALFORMED);
    assert_int_equal(teffi_read_buffer_left(&in), len);
    assert_int_equal(teffi_read_buffer_peek(&in, len - 1, &whole, &frame), TEFF_E_TOO_LARGE);
    assert_false(whole);
    teffi_read_buffer_fini(&in);
}

/* A record's type and the first byte of its version. */
static void tls_is_told_by_its_first_two_bytes(void **state)
{
    static const struct {
        uint8_t bytes[2];
        size_t len;
        bool tls;
    } rows[] = {{{0x15, 3}, 2, true},  {{0x16, 3}, 2, true},  {{0x17, 3}, 2, false},
                {{0x16, 2}, 2, false}, {{0x16, 3}, 1, false}, {{0x15, 3}, 0, false}};
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        uint8_t data[3] = {0, rows[i].bytes[0], rows[i].bytes[1]};
        read_buffer in = {.data = data, .at = 1, .len = 1 + rows[i].len, .cap = sizeof data};
        assert_int_equal(teffi_read_buffer_is_tls(&in), rows[i].tls);
    }
}

/* Of a large frame that has begun: up to LINK_READ_BUFFER_MIN behind it. */
static void a_read_ends_soon_behind_a_large_frame(void **state)
{
    enum { LARGE = 2 * LINK_READ_LARGE, MIN = LINK_READ_BUFFER_MIN, CAP = 3 * LARGE };
    static const struct {
        size_t frame, large, len, room;
    } rows[] = {
        {0, 0, 100, CAP - 100},
        {LINK_READ_LARGE - 1, 0, 100, CAP - 100},
        {LARGE, 0, 100, LARGE + MIN - 100},
        {0, LARGE, 100, LARGE + MIN - 100},
        {100, LARGE, 0, LARGE + MIN},
        {LARGE, 0, LARGE + MIN + 1, MIN},
        {LARGE, 0, CAP - 1, 1},
    };
    static uint8_t data[CAP];
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        uint8_t *at;
        read_buffer in = {.data = data, .len = rows[i].len, .cap = CAP};
        in.frame = rows[i].frame;
        in.large = rows[i].large;
        assert_int_equal(teffi_read_buffer_room(&in, &at), rows[i].room);
        assert_ptr_equal(at, data + rows[i].len);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(large_frames_take_one_read_and_no_copy),
        cmocka_unit_test(a_frame_in_a_much_larger_buffer_is_copied),
        cmocka_unit_test(a_large_announced_length_gets_little_memory),
        cmocka_unit_test(calm_gives_memory_back),
        cmocka_unit_test(a_bad_frame_changes_nothing),
        cmocka_unit_test(tls_is_told_by_its_first_two_bytes),
        cmocka_unit_test(a_read_ends_soon_behind_a_large_frame),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
