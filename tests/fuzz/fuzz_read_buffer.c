/* fuzz_read_buffer.c - any stream, read in any steps, gives the same messages and the same end as
 * when it is read in one piece, and the buffer stays within its limit. */
#include <stdlib.h>
#include <string.h>
#include "base/bug.h"
#include "link/conn/buffers.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n);

enum { STREAM_MAX = 512 * 1024, FRAME_MAX = 256 * 1024, BODY_STEP = 16, STEPS = 8 };

static const uint64_t now = 1000000000u;

typedef struct source {
    const uint8_t *at, *end;
} source;

static unsigned next(source *s)
{
    return s->at < s->end ? *s->at++ : 0;
}

static unsigned next16(source *s)
{
    unsigned low = next(s);
    return low | next(s) << 8;
}

/* A frame with a body of some length, which the input need not spell out. */
static size_t put_frame(uint8_t *to, size_t room, size_t body, uint8_t fill)
{
    size_t size, body_len;
    teffi_msg *msg = teffi_msg_new(TEFFI_MSG_ONEWAY);
    uint8_t *raw = msg ? teff_arena_alloc(&msg->arena, body + 1) : NULL;
    teffi_bug_if(!raw);
    memset(raw, fill, body);
    msg->method_id = 1u + fill;
    msg->raw = raw;
    msg->raw_len = body;
    teff_err err = teffi_frame_compute_size_bound(msg, room, &size, &body_len);
    if (!err)
        size = teffi_frame_encode(msg, body_len, now, to);
    teffi_msg_free(msg);
    return err ? 0 : size;
}

/* Frames and loose bytes, as the input says. out: length. */
static size_t make_stream(source *s, uint8_t *stream)
{
    size_t len = 0;
    while (s->at < s->end && len < STREAM_MAX) {
        unsigned what = next(s), size = next16(s);
        if (what & 1) {
            len += put_frame(stream + len, STREAM_MAX - len, (size_t)size * BODY_STEP % FRAME_MAX,
                             (uint8_t)what);
            continue;
        }
        size %= 64;
        for (unsigned i = 0; i < size && len < STREAM_MAX; i++)
            stream[len++] = (uint8_t)next(s);
    }
    return len;
}

static bool same(const teffi_msg *a, const teffi_msg *b)
{
    return a->item.kind == b->item.kind && a->method_id == b->method_id && a->hops == b->hops &&
           a->key_len == b->key_len && (!a->key_len || !memcmp(a->key, b->key, a->key_len)) &&
           a->raw_len == b->raw_len && (!a->raw_len || !memcmp(a->raw, b->raw, a->raw_len));
}

/* Messages that wait, as at an owner that is slow: their memory must stay as it is. */
typedef struct kept {
    teffi_msg *got, *flat;
} kept;

static void keep(kept *slot, teffi_msg *got, teffi_msg *flat)
{
    teffi_bug_if(slot->got && !same(slot->got, slot->flat));
    teffi_msg_free(slot->got);
    teffi_msg_free(slot->flat);
    *slot = (kept){got, flat};
}

/* The frame at flat[*at], and what in has there. out: false: the stream ends here. */
static bool take(read_buffer *in, const uint8_t *flat, size_t came, size_t *at, kept *slot)
{
    teffi_frame frame, other;
    teffi_msg *got = NULL, *expected = NULL;
    bool whole;
    size_t size;
    teff_err err = teffi_frame_peek(flat + *at, came - *at, FRAME_MAX, &size, &other);
    teffi_bug_if(teffi_read_buffer_peek(in, FRAME_MAX, &whole, &frame) != err);
    teffi_bug_if(!err && whole != (size && size <= came - *at));
    if (err || !whole)
        return false;
    *at += size;
    if (frame.kind > TEFFI_MSG_RESPONSE) {
        teffi_read_buffer_skip_frame(in);
        return true;
    }
    err = teffi_frame_decode(&other, NULL, now, &expected);
    teffi_bug_if(teffi_read_buffer_decode_and_remove(in, &frame, now, &got) != err);
    if (!err)
        keep(slot, got, expected);
    return !err;
}

static size_t read_some(read_buffer *in, const uint8_t *from, size_t left, size_t step, bool *full)
{
    uint8_t *to;
    size_t room = teffi_read_buffer_room(in, &to), n = left < room ? left : room;
    teffi_bug_if(room == 0);
    n = step && step < n ? step : n;
    memcpy(to, from, n);
    in->len += n;
    *full = n == room;
    return n;
}

static void run(const uint8_t *stream, size_t len, const unsigned *steps)
{
    read_buffer in = {0};
    kept waiting[3] = {{0}};
    size_t came = 0, at = 0;
    bool full = false, ok = teffi_read_buffer_fit(&in, 0, false);
    for (unsigned i = 0; ok && came < len; i++) {
        unsigned n = 0;
        size_t got = read_some(&in, stream + came, len - came, steps[i % STEPS], &full);
        came += got;
        while (take(&in, stream, came, &at, &waiting[n % 3]))
            n++;
        if (teffi_read_buffer_left(&in) != came - at)
            break; /* a bad frame, which stays */
        size_t size;
        teffi_frame frame;
        if (teffi_frame_peek(stream + at, came - at, FRAME_MAX, &size, &frame))
            break;
        ok = teffi_read_buffer_fit(&in, got, full);
        teffi_bug_if(in.cap > came * 11 / 4 + 2 * LINK_READ_BUFFER_MIN);
    }
    for (int i = 0; i < 3; i++)
        keep(&waiting[i], NULL, NULL);
    teffi_read_buffer_fini(&in);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n)
{
    static uint8_t stream[STREAM_MAX + 64];
    source s = {data, data + n};
    unsigned steps[STEPS];
    for (int i = 0; i < STEPS; i++)
        steps[i] = next16(&s); /* 0: all there is room for */
    run(stream, make_stream(&s, stream), steps);
    return 0;
}
