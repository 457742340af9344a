/* sim_wire.c - frames under way: encoded by the real codec, in order, late by a drawn time.
 * Way:     sim_net send -> [sim_wire] ... -> sim_conn arrive */
#include <stdlib.h>
#include <string.h>
#include "base/bug.h"
#include "sim_net.h"

enum { FLUSH_BYTES = 16 * 1024 /* as the link's */, OUTCOME_LATE_MS = 60 };

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
    teffi_frame_encode_control(kind == SIM_EOF ? TEFFI_FRAME_BYE : kind, NULL, 0, f->bytes);
    return f;
}

sim_frame *sim_wire_view(uint64_t version)
{
    sim_frame *f = new_frame(TEFFI_FRAME_VIEW, TEFFI_FRAME_HEAD + TEFFI_VIEW_BYTES);
    teffi_frame_encode_view(version, f->bytes);
    return f;
}

uint64_t sim_wire_decode_view(const sim_frame *f)
{
    teffi_frame frame;
    size_t size, len;
    const uint8_t *payload;
    if (teffi_frame_peek(f->bytes, f->len, f->len, &size, &frame) || size != f->len ||
        !teffi_frame_get_control_payload(&frame, &payload, &len))
        return 0;
    return teffi_frame_decode_view(payload, len);
}

static teff_err encode_frame(const sim_net *net, const teffi_msg *msg, sim_frame **frame)
{
    size_t room, body_len, before;
    uint64_t now_ns = sim_node_now(net->node);
    teff_err err = teffi_frame_compute_size_bound(msg, net->frame_max, &room, &body_len);
    if (err)
        return err;
    *frame = new_frame((uint8_t)msg->item.kind, room);
    uint8_t *to = (*frame)->bytes;
    teffi_segment segment;
    if (!teffi_msg_find_segment(msg, 1, &segment)) {
        (*frame)->len = teffi_frame_encode(msg, body_len, now_ns, to);
        return TEFF_OK;
    }
    /* As the link sends large messages: their longest bytes are a segment of their own. */
    size_t copied =
        teffi_frame_encode_without_segment(msg, body_len, &segment, now_ns, to, &before);
    memmove(to + before + segment.len, to + before, copied - before);
    memcpy(to + before, segment.bytes, segment.len);
    (*frame)->len = copied + segment.len;
    return TEFF_OK;
}

/* An even length: read as the link reads large frames, into memory that the message keeps. */
bool sim_wire_decode(const sim_net *net, const sim_frame *f, teffi_msg **msg)
{
    teffi_frame frame;
    size_t size, room;
    uint64_t now_ns = sim_node_now(net->node);
    bool row = teffi_frame_may_be_row(f->bytes, f->len);
    size_t max = row && net->frame_max < TEFFI_FRAME_ROW_MAX ? TEFFI_FRAME_ROW_MAX : net->frame_max;
    if (teffi_frame_peek(f->bytes, f->len, max, &size, &frame) || size != f->len)
        return false;
    if (f->len % 2)
        return teffi_frame_decode(&frame, NULL, now_ns, msg) == TEFF_OK;
    uint8_t *memory = teffi_chunk_new(f->len, &room);
    teffi_bug_if(!memory);
    memcpy(memory, f->bytes, f->len);
    frame.data = memory + TEFFI_FRAME_PREFIX;
    bool ok = teffi_frame_decode(&frame, memory, now_ns, msg) == TEFF_OK;
    if (!ok)
        teffi_chunk_free(memory);
    return ok;
}

/* Mostly a local network, at times a slow one. */
uint64_t sim_wire_delay(sim *s)
{
    if (s->faults.wire_max_ns)
        return sim_draw_between(&s->delay, s->faults.wire_min_ns, s->faults.wire_max_ns);
    if (sim_draw_chance(&s->delay, 20))
        return sim_draw_between(&s->delay, 5 * SIM_MS, 80 * SIM_MS);
    return sim_draw_between(&s->delay, 20000, 2 * SIM_MS);
}

/* ---- frames in order ---- */

void sim_frames_add(sim_frames *frames, sim_frame *frame)
{
    frame->next = NULL;
    *(frames->head ? frames->end : &frames->head) = frame;
    frames->end = &frame->next;
    frames->bytes += frame->len;
}

sim_frame *sim_frames_take(sim_frames *frames)
{
    sim_frame *frame = frames->head;
    if (frame) {
        frames->head = frame->next;
        frames->bytes -= frame->len;
    }
    return frame;
}

void sim_frames_drop(sim_frames *frames)
{
    for (sim_frame *f; (f = sim_frames_take(frames));)
        free(f);
}

/* ---- delivery ---- */

static void frame_arrives(sim *s, void *arg, bool run)
{
    sim_frame *f = arg;
    (void)s;
    if (run && !f->conn->side[f->to].deaf)
        sim_conn_receive(f->conn, f->to, f);
    else
        free(f);
}

static void frame_departs(sim_conn *conn, int to, sim_frame *frame)
{
    sim *s = conn->sim;
    sim_side *side = &conn->side[to];
    sim_net_cut_by_rate(conn);
    /* What one turn sends is one write, and usually one read. */
    bool together = side->sent_ns == s->now_ns && !sim_draw_chance(&s->delay, 100);
    uint64_t due = together ? side->last_due_ns : s->now_ns + sim_wire_delay(s);
    side->sent_ns = s->now_ns;
    if (due < side->last_due_ns)
        due = side->last_due_ns;
    side->last_due_ns = due;
    frame->conn = conn;
    frame->to = to;
    sim_at_node(side->net->node, due - s->now_ns, frame_arrives, frame);
}

void sim_wire_check_age(sim_conn *conn, const sim_frame *frame, const char *what)
{
    for (int i = 0; i < 2; i++) /* the pause of a node is no fault of its frames */
        if (conn->side[i].net && conn->side[i].net->node->paused_until_ns > frame->since_ns)
            return;
    uint64_t age_ns = conn->sim->now_ns - frame->since_ns;
    if (age_ns > conn->sim->late_ns)
        sim_fail(conn->sim, "connection %lu: bytes were %s after %lu ms", (unsigned long)conn->no,
                 what, (unsigned long)(age_ns / SIM_MS));
}

static bool lease_is_over(const sim_net *net)
{
    uint64_t until_ns = net->until_ns ? atomic_load(net->until_ns) : 0;
    return until_ns && sim_node_now(net->node) >= until_ns;
}

/* Instead of writing after the lease. The owner hears of it later, as from the real link. */
static void break_conn(sim_conn *conn, int side)
{
    sim_frames_drop(&conn->side[!side].pending);
    sim_conn_end(conn, side);
}

void sim_wire_write_pending(sim_side *side)
{
    const sim_frame *first = side->pending.head;
    if (first && lease_is_over(first->conn->side[!first->to].net)) {
        break_conn(first->conn, !first->to);
        return;
    }
    if (!first || sim_poll_waits_for_room(first->conn->side[!first->to].net, side))
        return;
    sim_wire_check_age(first->conn, first, "written");
    for (sim_frame *f; (f = sim_frames_take(&side->pending));)
        frame_departs(f->conn, f->to, f);
}

void sim_wire_write(teffi_deferred *work)
{
    sim_side *side = teffi_container(work, sim_side, write);
    side->is_deferred = false;
    sim_wire_write_pending(side);
}

/* out: false: the frame waits until the dialler is up. */
static bool add_pending(sim_conn *conn, int to, sim_frame *frame)
{
    bool up = to == SIM_DIALLER || conn->side[SIM_DIALLER].up;
    frame->conn = conn;
    frame->to = to;
    frame->since_ns = conn->sim->now_ns;
    sim_frames_add(up ? &conn->side[to].pending : &conn->fill, frame);
    return up;
}

void sim_wire_send(sim_conn *conn, int to, sim_frame *frame)
{
    if (add_pending(conn, to, frame))
        sim_wire_write_pending(&conn->side[to]);
}

/* A worker's frames are written together at the end of its pass, as the link's. */
static void send_coalesced(sim_conn *conn, int to, sim_frame *frame)
{
    sim_side *side = &conn->side[to];
    teffi_exec *exec = conn->side[!to].net->exec;
    if (!add_pending(conn, to, frame))
        return;
    if (!side->is_deferred)
        side->is_deferred = exec->ops->defer(exec, &side->write);
    if (!side->is_deferred || side->pending.bytes >= FLUSH_BYTES)
        sim_wire_write_pending(side);
}

void sim_wire_eof(sim_conn *conn, int to)
{
    sim_frames_drop(&conn->side[to].pending);
    frame_departs(conn, to, sim_wire_control(SIM_EOF));
}

/* The connection stands still when it is to carry the outcome of a transaction: the requests of the
 * next attempt may take another way, and arrive before the ABORT of this attempt. */
static void stall_outcome(sim *s, sim_side *to, const teffi_msg *msg)
{
    if (!teffi_msg_ends_transaction(msg) || !sim_draw_chance(&s->ends, s->faults.late_outcomes))
        return;
    uint64_t until_ns = s->now_ns + sim_draw_below(&s->ends, OUTCOME_LATE_MS * SIM_MS);
    if (to->last_due_ns < until_ns && !s->left_out.late_outcomes)
        to->last_due_ns = until_ns;
}

/* As the link: the connection carries the view before the message. */
static void send_view_if_new(sim_conn *conn, int from)
{
    sim_side *side = &conn->side[from];
    if (side->view_sent == side->net->view || side->other.role != TEFFI_ROLE_SILO)
        return;
    side->view_sent = side->net->view;
    send_coalesced(conn, !from, sim_wire_view(side->net->view));
}

teff_err sim_wire_put(sim_conn *conn, int from, teffi_msg *msg)
{
    sim_frame *frame, *again;
    const sim_net *net = conn->side[from].net;
    teff_err err = encode_frame(net, msg, &frame);
    if (err)
        return err;
    sim_views_check_sent(net);
    send_view_if_new(conn, from);
    if (msg->item.kind == TEFFI_MSG_REQUEST)
        net->events.sent(net->arg, conn->side[from].other.node, msg);
    stall_outcome(conn->sim, &conn->side[!from], msg);
    if (conn->sim->plant_twice && conn->sim->plant_twice(conn->sim, msg) &&
        encode_frame(net, msg, &again) == TEFF_OK)
        send_coalesced(conn, !from, again);
    send_coalesced(conn, !from, frame);
    teffi_msg_free(msg);
    return TEFF_OK;
}

teff_err sim_wire_wait(sim_conn *conn, teffi_msg *msg)
{
    size_t room, body_len;
    teff_err err = teffi_frame_compute_size_bound(msg, conn->side[SIM_DIALLER].net->frame_max,
                                                  &room, &body_len);
    if (err)
        return err;
    teffi_bug_if(!teffi_msg_copy_borrowed(msg));
    teffi_queue_push(&conn->unopened, &msg->link);
    return TEFF_OK;
}

/* It may break the connection: then the rest is dropped with that. */
void sim_wire_flush(sim_conn *conn)
{
    const sim_side *dialler = &conn->side[SIM_DIALLER];
    for (teffi_qnode *at; dialler->up && (at = teffi_queue_pop(&conn->unopened));) {
        teffi_msg *msg = teffi_container(at, teffi_msg, link);
        uint64_t now_ns = sim_node_now(dialler->net->node);
        bool late = msg->deadline_ns && now_ns >= msg->deadline_ns;
        if (late)
            teffi_msg_free(msg);
        else
            teffi_bug_if(sim_wire_put(conn, SIM_DIALLER, msg));
    }
    for (sim_frame *f; dialler->up && (f = sim_frames_take(&conn->fill));)
        sim_wire_send(conn, SIM_ACCEPTOR, f);
}

void sim_wire_drop(sim_conn *conn)
{
    for (teffi_qnode *at; (at = teffi_queue_pop(&conn->unopened));)
        teffi_msg_free(teffi_container(at, teffi_msg, link));
    sim_frames_drop(&conn->fill);
    for (int i = 0; i < 2; i++) {
        sim_frames_drop(&conn->side[i].pending);
        sim_frames_drop(&conn->side[i].arrived);
        sim_frames_drop(&conn->side[i].received);
    }
}
