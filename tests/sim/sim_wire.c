/* sim_wire.c - frames under way: encoded by the real codec, in order, late by a drawn time.
 * Way:     sim_net send -> [sim_wire] ... -> sim_conn arrive */
#include <stdlib.h>
#include <string.h>
#include "base/bug.h"
#include "sim_net.h"

static sim_frame *new_frame(uint8_t kind, size_t len)
{
    sim_frame *f = malloc(sizeof *f + len);
    teffi_bug_if(!f);
    *f = (sim_frame){.kind = kind, .len = len};
    return f;
}

sim_frame *sim_wire_control(uint8_t kind)
{
    sim_frame *f = new_frame(kind, TEFFI_FRAME_HEAD);
    teffi_frame_control(kind == SIM_EOF ? TEFFI_FRAME_BYE : kind, NULL, 0, f->bytes);
    return f;
}

teff_err sim_wire_encode(const sim_net *net, const teffi_msg *msg, sim_frame **frame)
{
    size_t size, body_len;
    teff_err err = teffi_frame_size(msg, net->frame_max, &size, &body_len);
    if (err)
        return err;
    *frame = new_frame((uint8_t)msg->item.kind, size);
    uint8_t *to = (*frame)->bytes;
    teffi_hole hole;
    if (!teffi_msg_hole(msg, 1, &hole)) {
        teffi_frame_encode(msg, body_len, net->node->sim->now_ns, to);
        return TEFF_OK;
    }
    /* As the link writes large ones: around their longest bytes. */
    size_t before = teffi_frame_encode_around(msg, body_len, &hole, net->node->sim->now_ns, to);
    memmove(to + before + hole.len, to + before, size - hole.len - before);
    memcpy(to + before, hole.bytes, hole.len);
    return TEFF_OK;
}

/* Of an even length: as the link reads large ones, into memory that the message takes over. */
bool sim_wire_decode(const sim_net *net, const sim_frame *f, teffi_msg **msg)
{
    teffi_frame frame;
    size_t size, room;
    uint64_t now_ns = net->node->sim->now_ns;
    if (teffi_frame_peek(f->bytes, f->len, net->frame_max, &size, &frame) || size != f->len)
        return false;
    if (f->len % 2)
        return teffi_frame_decode(&frame, now_ns, msg) == TEFF_OK;
    uint8_t *memory = teffi_chunk_new(f->len, &room);
    teffi_bug_if(!memory);
    memcpy(memory, f->bytes, f->len);
    frame.data = memory + TEFFI_FRAME_PREFIX;
    bool ok = teffi_frame_decode_within(&frame, memory, now_ns, msg) == TEFF_OK;
    if (!ok)
        teffi_chunk_free(memory);
    return ok;
}

/* Mostly a local network, at times a slow one. */
uint64_t sim_wire_delay(sim *s)
{
    if (sim_draw_chance(&s->delay, 20))
        return sim_draw_between(&s->delay, 5 * SIM_MS, 80 * SIM_MS);
    return sim_draw_between(&s->delay, 20000, 2 * SIM_MS);
}

static void arrive(sim *s, void *arg, bool run)
{
    sim_frame *f = arg;
    (void)s;
    if (run && !f->conn->cut)
        sim_conn_arrive(f->conn, f->to, f);
    free(f);
}

static void depart(sim_conn *conn, int to, sim_frame *frame)
{
    sim *s = conn->sim;
    sim_side *side = &conn->side[to];
    /* What one turn sends is one write, and mostly one read. */
    bool together = side->sent_ns == s->now_ns && !sim_draw_chance(&s->delay, 100);
    uint64_t due = together ? side->last_due_ns : s->now_ns + sim_wire_delay(s);
    side->sent_ns = s->now_ns;
    if (due < side->last_due_ns)
        due = side->last_due_ns;
    side->last_due_ns = due;
    frame->conn = conn;
    frame->to = to;
    sim_at(s, due - s->now_ns, arrive, frame);
}

void sim_wire_send(sim_conn *conn, int to, sim_frame *frame)
{
    if (to == SIM_DIALLER || conn->side[SIM_DIALLER].up) {
        depart(conn, to, frame);
        return;
    }
    frame->next = NULL;
    *conn->fill_end = frame;
    conn->fill_end = &frame->next;
}

void sim_wire_eof(sim_conn *conn, int to)
{
    depart(conn, to, sim_wire_control(SIM_EOF));
}

void sim_wire_flush(sim_conn *conn)
{
    sim_frame *f = conn->fill;
    conn->fill = NULL;
    conn->fill_end = &conn->fill;
    while (f) {
        sim_frame *next = f->next;
        depart(conn, SIM_ACCEPTOR, f);
        f = next;
    }
}

void sim_wire_drop(sim_frame *list)
{
    while (list) {
        sim_frame *next = list->next;
        free(list);
        list = next;
    }
}
