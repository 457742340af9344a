/* incoming.c - bytes to frames, in a buffer that grows and shrinks, or becomes a message's.
 * Way:     nng stream -> [incoming] -> link_recv */
#include "wire/incoming.h"

#include <string.h>

enum { CALM_MAX = 32 };

static bool resize(teffi_in *in, size_t cap)
{
    size_t left = teffi_in_left(in);
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

size_t teffi_in_left(const teffi_in *in)
{
    return in->len - in->at;
}

/* The large frame that is under way, or that is likely to come next; 0: none. */
static size_t expected(const teffi_in *in)
{
    return in->frame >= TEFFI_IN_LARGE ? in->frame : in->large;
}

static void to_the_front(teffi_in *in)
{
    size_t left = teffi_in_left(in);
    if (in->at && left)
        memmove(in->data, in->data + in->at, left);
    in->len = left;
    in->at = 0;
}

/* A full buffer grows; one of which little was used for long shrinks. */
static bool fit_small(teffi_in *in, size_t got, bool full)
{
    if (in->len == in->cap || (full && in->cap < TEFFI_IN_MAX))
        return resize(in, in->cap * 2);
    in->calm = got < in->cap / 8 ? in->calm + 1 : 0;
    if (in->calm <= CALM_MAX || in->len || in->cap < 2 * TEFFI_IN_MIN)
        return true;
    in->calm = 0;
    (void)resize(in, in->cap / 2); /* a failed shrink does no harm */
    return true;
}

/* Room for the frame and a little behind it. */
static bool fit_large(teffi_in *in, size_t frame)
{
    size_t need = frame + TEFFI_IN_MIN;
    bool earned = frame <= in->large || in->len >= frame / 2;
    if (in->frame < TEFFI_IN_LARGE && ++in->calm > CALM_MAX)
        in->large = in->calm = 0;
    if (in->cap > 2 * need)
        (void)resize(in, need);
    else if (in->cap < need && earned)
        return resize(in, need);
    return in->len < in->cap || resize(in, in->cap * 2);
}

bool teffi_in_fit(teffi_in *in, size_t got, bool full)
{
    size_t frame = expected(in);
    if (!in->cap)
        return resize(in, TEFFI_IN_MIN);
    to_the_front(in);
    return frame ? fit_large(in, frame) : fit_small(in, got, full);
}

size_t teffi_in_room(const teffi_in *in, uint8_t **at)
{
    size_t frame = expected(in), room = in->cap - in->len;
    size_t most = frame + TEFFI_IN_MIN > in->len ? frame + TEFFI_IN_MIN - in->len : TEFFI_IN_MIN;
    *at = in->data + in->len;
    return frame && room > most ? most : room;
}

void teffi_in_came(teffi_in *in, size_t n)
{
    in->len += n;
}

teff_err teffi_in_peek(teffi_in *in, size_t max_bytes, bool *whole, teffi_frame *frame)
{
    static const uint8_t nothing[1];
    const uint8_t *data = in->data ? in->data + in->at : nothing;
    teff_err err = teffi_frame_peek(data, teffi_in_left(in), max_bytes, &in->frame, frame);
    *whole = !err && in->frame && in->frame <= teffi_in_left(in);
    return err;
}

void teffi_in_skip(teffi_in *in)
{
    in->at += in->frame;
    in->frame = 0;
}

/* The frame's message takes the buffer. */
static teff_err give_away(teffi_in *in, const teffi_frame *frame, uint64_t now_ns, teffi_msg **msg)
{
    size_t left = teffi_in_left(in) - in->frame, cap;
    size_t most = in->frame > left ? in->frame : left;
    uint8_t *data = teffi_chunk_new(most + TEFFI_IN_MIN, &cap);
    if (!data)
        return TEFF_E_NOMEM;
    const uint8_t *behind = in->data + in->at + in->frame;
    teff_err err = teffi_frame_decode_within(frame, in->data, now_ns, msg);
    if (err) {
        teffi_chunk_free(data);
        return err;
    }
    memcpy(data, behind, left);
    in->data = data;
    in->cap = cap;
    in->len = left;
    in->at = in->frame = 0;
    return TEFF_OK;
}

teff_err teffi_in_take(teffi_in *in, const teffi_frame *frame, uint64_t now_ns, teffi_msg **msg)
{
    if (in->frame >= TEFFI_IN_LARGE) {
        in->large = in->frame;
        in->calm = 0;
    }
    /* A message does not keep more than twice its frame. */
    if (in->frame >= TEFFI_IN_LARGE && in->frame >= in->cap / 2)
        return give_away(in, frame, now_ns, msg);
    teff_err err = teffi_frame_decode(frame, now_ns, msg);
    if (!err)
        teffi_in_skip(in);
    return err;
}

void teffi_in_fini(teffi_in *in)
{
    teffi_chunk_free(in->data);
    *in = (teffi_in){0};
}
