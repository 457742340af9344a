/* read_buffer.c - splits received bytes into frames. The buffer grows and shrinks, or is handed to
 * the message of a large frame. */
#include "link/conn/buffers.h"

#include <string.h>

enum { CALM_MAX = 32 }; /* of read_buffer.calm, before the memory shrinks */

/* Replaces the buffer by a new one of at least cap bytes, and copies the bytes that were not taken
 * yet. out: false: no memory; nothing has changed. */
static bool resize_buffer(read_buffer *in, size_t cap)
{
    size_t left = teffi_read_buffer_left(in);
    uint8_t *data = teffi_chunk_new(cap, &cap);
    if (!data)
        return false;
    if (left)
        memcpy(data, in->data + in->at, left);
    teffi_chunk_free(in->data);
    in->data = data;
    in->cap = cap;
    in->len = left;
    in->at = 0;
    return true;
}

size_t teffi_read_buffer_left(const read_buffer *in)
{
    return in->len - in->at;
}

/* out: length of the large frame that has begun, or that is likely to come next; 0: none. */
static size_t expected_large_frame_len(const read_buffer *in)
{
    return in->frame >= LINK_READ_LARGE ? in->frame : in->large;
}

static void move_to_front(read_buffer *in)
{
    size_t left = teffi_read_buffer_left(in);
    if (in->at && left)
        memmove(in->data, in->data + in->at, left);
    in->len = left;
    in->at = 0;
}

/* Doubles the buffer if no room is left, or if the last read filled the room it was given (`full`)
 * and the capacity is below LINK_READ_BUFFER_MAX. A read is small if it has less than 1/8 of the
 * capacity. After more than CALM_MAX small reads in a row, halves the buffer if it is empty and has
 * at least twice LINK_READ_BUFFER_MIN. in: got, bytes of the last read. out: false: no memory to
 * grow. */
static bool resize_for_small_frames(read_buffer *in, size_t got, bool full)
{
    if (in->len == in->cap || (full && in->cap < LINK_READ_BUFFER_MAX))
        return resize_buffer(in, in->cap * 2);
    in->calm = got < in->cap / 8 ? in->calm + 1 : 0;
    if (in->calm <= CALM_MAX || in->len || in->cap < 2 * LINK_READ_BUFFER_MIN)
        return true;
    in->calm = 0;
    (void)resize_buffer(in, in->cap / 2); /* a failed shrink does no harm */
    return true;
}

/* Fits the capacity to a large frame. `need` is the frame's length plus LINK_READ_BUFFER_MIN. A
 * capacity over 2 * need is shrunk to need. A capacity below need is grown to need, but only if the
 * last large frame was at least as long as this one, or half of this frame has arrived: a peer must
 * not take memory by only announcing a long frame. In all other cases, the capacity is doubled if
 * the buffer is full.
 * in:   frame, the length of the frame. out: false: no memory. */
static bool resize_for_large_frame(read_buffer *in, size_t frame)
{
    size_t need = frame + LINK_READ_BUFFER_MIN;
    bool may_grow = frame <= in->large || in->len >= frame / 2;
    /* after more than CALM_MAX calls without a large frame, none is expected any more */
    if (in->frame < LINK_READ_LARGE && ++in->calm > CALM_MAX)
        in->large = in->calm = 0;
    if (in->cap > 2 * need)
        (void)resize_buffer(in, need);
    else if (in->cap < need && may_grow)
        return resize_buffer(in, need);
    return in->len < in->cap || resize_buffer(in, in->cap * 2);
}

bool teffi_read_buffer_fit(read_buffer *in, size_t got, bool full)
{
    size_t frame = expected_large_frame_len(in);
    if (!in->cap)
        return resize_buffer(in, LINK_READ_BUFFER_MIN);
    move_to_front(in);
    return frame ? resize_for_large_frame(in, frame) : resize_for_small_frames(in, got, full);
}

void teffi_read_buffer_trim(read_buffer *in)
{
    in->large = in->calm = 0;
    /* a failed trim does no harm */
    (void)resize_buffer(in, teffi_read_buffer_left(in) + LINK_READ_BUFFER_MIN);
}

/* If a large frame is expected, at most LINK_READ_BUFFER_MIN bytes of the room lie after the end of
 * that frame, because decode_and_hand_over_buffer() copies the bytes after the frame. */
size_t teffi_read_buffer_room(const read_buffer *in, uint8_t **at)
{
    size_t frame = expected_large_frame_len(in), room = in->cap - in->len;
    size_t most = frame + LINK_READ_BUFFER_MIN > in->len ? frame + LINK_READ_BUFFER_MIN - in->len
                                                         : LINK_READ_BUFFER_MIN;
    *at = in->data + in->len;
    return frame && room > most ? most : room;
}

teff_err teffi_read_buffer_peek(read_buffer *in, size_t max_bytes, bool *whole, teffi_frame *frame)
{
    static const uint8_t nothing[1];
    const uint8_t *data = in->data ? in->data + in->at : nothing;
    teff_err err = teffi_frame_peek(data, teffi_read_buffer_left(in), max_bytes, &in->frame, frame);
    *whole = !err && in->frame && in->frame <= teffi_read_buffer_left(in);
    return err;
}

bool teffi_read_buffer_may_be_row(const read_buffer *in)
{
    size_t left = teffi_read_buffer_left(in);
    return !left || teffi_frame_may_be_row(in->data + in->at, left);
}

bool teffi_read_buffer_is_tls(const read_buffer *in)
{
    enum { ALERT = 0x15, HANDSHAKE = 0x16, VERSION_MAJOR = 3 };
    const uint8_t *at = in->data + in->at;
    return teffi_read_buffer_left(in) >= 2 && (at[0] == ALERT || at[0] == HANDSHAKE) &&
           at[1] == VERSION_MAJOR;
}

void teffi_read_buffer_skip_frame(read_buffer *in)
{
    in->at += in->frame;
    in->frame = 0;
}

/* Decodes the frame in place: its message takes over the buffer. The bytes after the frame move to
 * a new buffer, whose capacity fits another frame of this size. */
static teff_err decode_and_hand_over_buffer(read_buffer *in, const teffi_frame *frame,
                                            uint64_t now_ns, teffi_msg **msg)
{
    size_t left = teffi_read_buffer_left(in) - in->frame, cap;
    size_t most = in->frame > left ? in->frame : left;
    uint8_t *data = teffi_chunk_new(most + LINK_READ_BUFFER_MIN, &cap);
    if (!data)
        return TEFF_E_NOMEM;
    const uint8_t *rest = in->data + in->at + in->frame;
    teff_err err = teffi_frame_decode(frame, in->data, now_ns, msg);
    if (err) {
        teffi_chunk_free(data);
        return err;
    }
    memcpy(data, rest, left);
    in->data = data;
    in->cap = cap;
    in->len = left;
    in->at = in->frame = 0;
    return TEFF_OK;
}

teff_err teffi_read_buffer_decode_and_remove(read_buffer *in, const teffi_frame *frame,
                                             uint64_t now_ns, teffi_msg **msg)
{
    if (in->frame >= LINK_READ_LARGE) {
        in->large = in->frame;
        in->calm = 0;
    }
    /* The message may take over the buffer only if the buffer is at most twice as long as the
     * frame. */
    if (in->frame >= LINK_READ_LARGE && in->frame >= in->cap / 2)
        return decode_and_hand_over_buffer(in, frame, now_ns, msg);
    teff_err err = teffi_frame_decode(frame, NULL, now_ns, msg);
    if (!err)
        teffi_read_buffer_skip_frame(in);
    return err;
}

void teffi_read_buffer_fini(read_buffer *in)
{
    teffi_chunk_free(in->data);
    *in = (read_buffer){0};
}
