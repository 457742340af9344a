/* outgoing.c - bytes in one buffer, and large parts of messages between them.
 * Way:     link_send -> [outgoing] -> nng stream */
#include "wire/outgoing.h"

#include <stdlib.h>
#include <string.h>

enum { DATA_MIN = 1024, CUTS_MIN = 4, SPARE_MAX = 16 };

static bool reserve_data(teffi_out *out, size_t more)
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

static bool reserve_cut(teffi_out *out)
{
    if (out->n_cuts < out->cuts_cap)
        return true;
    unsigned cap = out->cuts_cap ? out->cuts_cap * 2 : CUTS_MIN;
    teffi_out_cut *cuts = realloc(out->cuts, cap * sizeof *cuts);
    if (!cuts)
        return false;
    out->cuts = cuts;
    out->cuts_cap = cap;
    return true;
}

bool teffi_out_reserve(teffi_out *out, size_t more)
{
    return reserve_data(out, more) && reserve_cut(out);
}

void teffi_out_add(teffi_out *out, size_t more)
{
    out->len += more;
    out->total += more;
}

void teffi_out_cut_in(teffi_out *out, size_t at, const uint8_t *bytes, size_t len, teffi_msg *msg)
{
    out->cuts[out->n_cuts++] = (teffi_out_cut){at, bytes, len, msg};
    out->total += len;
}

static bool own(teffi_out_cut *cut, size_t done)
{
    if (cut->msg)
        return true;
    teffi_msg *msg = teffi_msg_new(TEFFI_MSG_ONEWAY);
    uint8_t *bytes = msg ? teffi_arena_take(&msg->arena, cut->len) : NULL;
    if (!bytes) {
        teffi_msg_free(msg);
        return false;
    }
    memcpy(bytes + done, cut->bytes + done, cut->len - done);
    cut->bytes = bytes;
    cut->msg = msg;
    return true;
}

bool teffi_out_own(teffi_out *out, const teffi_out_at *at)
{
    for (unsigned i = at->cut; i < out->n_cuts; i++)
        if (!own(&out->cuts[i], i == at->cut ? at->cut_done : 0))
            return false;
    return true;
}

bool teffi_out_own_newest(teffi_out *out)
{
    teffi_out_cut *newest = &out->cuts[out->n_cuts - 1];
    if (own(newest, 0))
        return true;
    out->total -= newest->len;
    out->n_cuts--;
    return false;
}

/* The piece at at: of data up to the next cut, or of that cut. */
static teffi_out_piece piece_at(const teffi_out *out, const teffi_out_at *at)
{
    const teffi_out_cut *cut = at->cut < out->n_cuts ? &out->cuts[at->cut] : NULL;
    if (!cut)
        return (teffi_out_piece){out->data + at->data, out->len - at->data};
    if (at->data < cut->at)
        return (teffi_out_piece){out->data + at->data, cut->at - at->data};
    return (teffi_out_piece){cut->bytes + at->cut_done, cut->len - at->cut_done};
}

/* n bytes of the piece at at are done. */
static void step(const teffi_out *out, teffi_out_at *at, size_t n)
{
    bool in_cut = at->cut < out->n_cuts && at->data == out->cuts[at->cut].at;
    at->total += n;
    if (!in_cut) {
        at->data += n;
        return;
    }
    at->cut_done += n;
    if (at->cut_done == out->cuts[at->cut].len) {
        at->cut_done = 0;
        at->cut++;
    }
}

size_t teffi_out_pieces(const teffi_out *out, const teffi_out_at *at, size_t max,
                        teffi_out_piece pieces[TEFFI_OUT_PIECES], unsigned *n)
{
    teffi_out_at to = *at;
    size_t left = max;
    for (*n = 0; *n < TEFFI_OUT_PIECES && left && to.total < out->total; ++*n) {
        teffi_out_piece piece = piece_at(out, &to);
        piece.len = piece.len < left ? piece.len : left;
        pieces[*n] = piece;
        left -= piece.len;
        step(out, &to, piece.len);
    }
    return max - left;
}

void teffi_out_written(teffi_out *out, teffi_out_at *at, size_t n)
{
    while (n) {
        size_t len = piece_at(out, at).len;
        unsigned cut = at->cut;
        len = len < n ? len : n;
        step(out, at, len);
        n -= len;
        if (at->cut == cut)
            continue;
        teffi_msg_free(out->cuts[cut].msg);
        out->cuts[cut].msg = NULL;
    }
}

static void free_messages(teffi_out *out)
{
    for (unsigned i = 0; i < out->n_cuts; i++)
        teffi_msg_free(out->cuts[i].msg);
    out->n_cuts = 0;
}

void teffi_out_empty(teffi_out *out, size_t max)
{
    out->spare = out->len < out->cap / 4 ? out->spare + 1 : 0;
    free_messages(out);
    out->len = out->total = 0;
    if (out->cap > max && out->spare >= SPARE_MAX)
        teffi_out_fini(out);
}

void teffi_out_fini(teffi_out *out)
{
    free_messages(out);
    free(out->data);
    free(out->cuts);
    *out = (teffi_out){0};
}
