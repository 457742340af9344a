/* write_buffer.c - one buffer of bytes, and zero-copy segments between them. */
#include "link/conn/buffers.h"

#include <stdlib.h>
#include <string.h>

enum { DATA_MIN = 1024, SEGMENTS_MIN = 4 };
enum { SPARE_MAX = 16 }; /* of write_buffer.spare, before the memory is freed */

static bool reserve_data(write_buffer *out, size_t more)
{
    size_t need = out->len + more;
    size_t cap = out->cap ? out->cap : DATA_MIN;
    if (need <= out->cap)
        return true;
    while (cap < need)
        cap *= 2;
    uint8_t *data = realloc(out->data, cap);
    if (!data)
        return false;
    out->data = data;
    out->cap = cap;
    return true;
}

static bool reserve_segment(write_buffer *out)
{
    if (out->n_segments < out->segments_cap)
        return true;
    unsigned cap = out->segments_cap ? out->segments_cap * 2 : SEGMENTS_MIN;
    write_segment *segments = realloc(out->segments, cap * sizeof *segments);
    if (!segments)
        return false;
    out->segments = segments;
    out->segments_cap = cap;
    return true;
}

bool teffi_write_buffer_reserve(write_buffer *out, size_t more)
{
    return reserve_data(out, more) && reserve_segment(out);
}

void teffi_write_buffer_commit_data(write_buffer *out, size_t more)
{
    out->len += more;
    out->total += more;
}

void teffi_write_buffer_add_segment(write_buffer *out, size_t at, const uint8_t *bytes, size_t len,
                                    teffi_msg *msg)
{
    out->segments[out->n_segments++] = (write_segment){at, bytes, len, msg};
    out->total += len;
}

/* Copies the bytes of a borrowed segment into a new message, which then owns them. Does not copy
 * the first `done` bytes, because they are already written. Does nothing if the segment is not
 * borrowed.
 * out:  false: no memory. */
static bool copy_borrowed_segment(write_segment *segment, size_t done)
{
    if (segment->msg)
        return true;
    teffi_msg *msg = teffi_msg_new(TEFFI_MSG_ONEWAY);
    uint8_t *bytes = msg ? teffi_arena_alloc_unzeroed(&msg->arena, segment->len) : NULL;
    if (!bytes) {
        teffi_msg_free(msg);
        return false;
    }
    memcpy(bytes + done, segment->bytes + done, segment->len - done);
    segment->bytes = bytes;
    segment->msg = msg;
    return true;
}

bool teffi_write_buffer_copy_borrowed(write_buffer *out, const write_position *at)
{
    for (unsigned i = at->segment; i < out->n_segments; i++)
        if (!copy_borrowed_segment(&out->segments[i], i == at->segment ? at->segment_done : 0))
            return false;
    return true;
}

bool teffi_write_buffer_copy_or_drop_newest(write_buffer *out)
{
    write_segment *newest = &out->segments[out->n_segments - 1];
    if (copy_borrowed_segment(newest, 0))
        return true;
    out->total -= newest->len;
    out->n_segments--;
    return false;
}

/* Finds the piece at position *at. If *at is in a segment, the piece is the rest of that segment.
 * Otherwise the piece is the bytes of out->data from *at to the next segment, or to the end of
 * out->data if no segment follows. */
static struct iovec find_piece_at(const write_buffer *out, const write_position *at)
{
    const write_segment *segment =
        at->segment < out->n_segments ? &out->segments[at->segment] : NULL;
    if (!segment)
        return (struct iovec){out->data + at->data, out->len - at->data};
    if (at->data < segment->at)
        return (struct iovec){out->data + at->data, segment->at - at->data};
    uint8_t *bytes = (uint8_t *)(uintptr_t)segment->bytes + at->segment_done;
    return (struct iovec){bytes, segment->len - at->segment_done};
}

/* Moves *at forward by n bytes. If this reaches the end of a segment, *at is then the position
 * after the segment. in: n: not more bytes than find_piece_at() returns for *at. */
static void advance_position(const write_buffer *out, write_position *at, size_t n)
{
    bool in_segment = at->segment < out->n_segments && at->data == out->segments[at->segment].at;
    at->total += n;
    if (!in_segment) {
        at->data += n;
        return;
    }
    at->segment_done += n;
    if (at->segment_done == out->segments[at->segment].len) {
        at->segment_done = 0;
        at->segment++;
    }
}

size_t teffi_write_buffer_list_pieces(const write_buffer *out, const write_position *at, size_t max,
                                      struct iovec pieces[TEFFI_STREAM_PIECES], unsigned *n)
{
    write_position to = *at;
    size_t left = max;
    for (*n = 0; *n < TEFFI_STREAM_PIECES && left && to.total < out->total; ++*n) {
        struct iovec piece = find_piece_at(out, &to);
        piece.iov_len = piece.iov_len < left ? piece.iov_len : left;
        pieces[*n] = piece;
        left -= piece.iov_len;
        advance_position(out, &to, piece.iov_len);
    }
    return max - left;
}

void teffi_write_buffer_mark_written(write_buffer *out, write_position *at, size_t n)
{
    while (n) {
        size_t len = find_piece_at(out, at).iov_len;
        unsigned segment = at->segment;
        len = len < n ? len : n;
        advance_position(out, at, len);
        n -= len;
        if (at->segment == segment)
            continue;
        teffi_msg_free(out->segments[segment].msg);
        out->segments[segment].msg = NULL;
    }
}

static void clear_segments(write_buffer *out)
{
    for (unsigned i = 0; i < out->n_segments; i++)
        teffi_msg_free(out->segments[i].msg);
    out->n_segments = 0;
}

void teffi_write_buffer_reset(write_buffer *out, size_t max)
{
    out->spare = out->len < out->cap / 4 ? out->spare + 1 : 0;
    clear_segments(out);
    out->len = out->total = 0;
    if (out->cap > max && out->spare >= SPARE_MAX)
        teffi_write_buffer_fini(out);
}

void teffi_write_buffer_fini(write_buffer *out)
{
    clear_segments(out);
    free(out->data);
    free(out->segments);
    *out = (write_buffer){0};
}
