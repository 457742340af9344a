/* sim_conn.c - one simulated connection: dialled, greeted, up, ended; with the real link's rules.
 * Way:     sim_net -> [sim_conn] -> sim_wire; arriving frames -> [sim_conn] -> the owner's events
 * Source:  runtime/link/handshake, ending, goodbye, driver */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "base/bug.h"
#include "sim_net.h"
#include "link/conn/receiver.h"

enum { BACKOFF_MIN_MS = 20, BACKOFF_MAX_MS = 5000, HELLO_TIMEOUT_MS = 10000 };

void sim_conn_give_side(sim_conn *conn, int side_no, sim_net *net)
{
    sim_side *side = &conn->side[side_no];
    side->net = net;
    side->next_of_net = net->sides;
    net->sides = side;
}

int sim_conn_side(const sim_conn *conn, const sim_net *net)
{
    return conn->side[SIM_DIALLER].net == net ? SIM_DIALLER : SIM_ACCEPTOR;
}

/* ---- events of the owner: never from within its own call ---- */

typedef enum tell_kind { TELL_UP, TELL_DOWN, TELL_DONE, TELL_GONE, TELL_MESSAGE } tell_kind;

typedef struct tell {
    LIST_ENTRY(tell) in_net; /* in net->tells */
    tell_kind kind;
    sim_conn *conn;
    sim_side *side;
    sim_peer *peer;
    teff_err err;
    bool was_up;
    teffi_queue unopened; /* down: handed back to the owner */
    teffi_msg *msg;
} tell;

static void give_message(sim_side *side, teffi_msg *msg)
{
    if (side->barred) {
        teffi_msg_free(msg);
        return;
    }
    sim_views_check_given(side);
    sim_cancel_arrives(side->net, side->other.node, msg);
    side->net->events.message(side->net->arg, &side->other, msg);
}

static void tell_down(tell *t)
{
    sim_net *net = t->side->net;
    if (t->was_up)
        t->peer->ups--;
    if (t->was_up && (!t->side->clean || t->peer->ups == 0)) {
        sim_cancel_link_ends(net, t->side->other.node);
        net->events.down(net->arg, &t->side->other, t->side->clean);
    }
    for (teffi_qnode *at; (at = teffi_queue_pop(&t->unopened));) {
        teffi_msg *msg = teffi_container(at, teffi_msg, link);
        if (msg->item.kind == TEFFI_MSG_RESPONSE)
            sim_conn_break(t->peer->in, net);
        net->events.unsent(net->arg, &t->side->other, msg);
    }
}

void sim_conn_bar(const sim_peer *peer)
{
    for (tell *t = LIST_FIRST(&peer->net->tells); t; t = LIST_NEXT(t, in_net))
        if (t->peer == peer)
            t->side->barred = true;
}

static void free_messages(tell *t)
{
    teffi_msg_free(t->msg);
    t->msg = NULL;
    for (teffi_qnode *at; (at = teffi_queue_pop(&t->unopened));)
        teffi_msg_free(teffi_container(at, teffi_msg, link));
}

void sim_conn_free_messages(sim_net *net)
{
    for (tell *t = LIST_FIRST(&net->tells); t; t = LIST_NEXT(t, in_net))
        free_messages(t);
}

static void tell_now(sim *s, void *arg, bool run)
{
    tell *t = arg;
    sim_net *net = t->side->net;
    static const char *const names[] = {"up", "down", "dialled", "gone"};
    if (t->kind == TELL_MESSAGE && run && !net->freed) {
        give_message(t->side, t->msg);
        t->msg = NULL;
    } else if (t->kind != TELL_MESSAGE && run && !net->freed) {
        sim_trace_add(&s->trace, s->now_ns, net->node->name, names[t->kind],
                      t->side->other.node.silo, t->kind == TELL_DOWN ? t->side->clean : t->err);
        if (t->kind == TELL_UP) {
            t->peer->ups++;
            net->events.up(net->arg, &t->side->other);
        } else if (t->kind == TELL_DOWN) {
            tell_down(t);
        } else if (t->kind == TELL_GONE) {
            net->events.gone(net->arg, &t->side->other);
        } else {
            t->conn->done(t->conn->done_arg, t->err, &t->side->other, t->err ? "no answer" : "");
        }
    }
    free_messages(t);
    LIST_REMOVE(t, in_net);
    net->telling--;
    if (t->peer)
        t->peer->telling--;
    free(t);
}

static tell *tell_after(sim_conn *conn, int side, tell_kind kind, teff_err err, bool was_up)
{
    tell *t = malloc(sizeof *t);
    teffi_bug_if(!t);
    *t = (tell){.kind = kind,
                .conn = conn,
                .side = &conn->side[side],
                .peer = conn->side[side].peer,
                .err = err,
                .was_up = was_up};
    t->side->net->telling++;
    LIST_INSERT_HEAD(&t->side->net->tells, t, in_net);
    if (t->peer)
        t->peer->telling++;
    if (t->side->net->reactor)
        sim_poll_tell(t->side->net, tell_now, t);
    else
        sim_at_node(t->side->net->node, 0, tell_now, t);
    return t;
}

static void tell_later(sim_conn *conn, int side, tell_kind kind, teff_err err, bool was_up)
{
    tell *t = tell_after(conn, side, kind, err, was_up);
    if (kind == TELL_DOWN && side == SIM_DIALLER)
        teffi_queue_move(&t->unopened, &conn->unopened);
}

/* In order with the peer's other events, as in the link: its up comes first. */
static void tell_message(sim_conn *conn, int side_no, teffi_msg *msg)
{
    sim_side *side = &conn->side[side_no];
    if (side->peer && side->peer->telling)
        tell_after(conn, side_no, TELL_MESSAGE, TEFF_OK, false)->msg = msg;
    else
        give_message(side, msg);
}

static void tell_done(sim_conn *conn, teff_err err)
{
    if (!conn->done || conn->done_told)
        return;
    conn->done_told = true;
    tell_later(conn, SIM_DIALLER, TELL_DONE, err, false);
}

/* ---- redial ---- */

typedef struct redial {
    sim_peer *peer;
    uint64_t plan;
} redial;

static void redial_due(sim *s, void *arg, bool run)
{
    redial *r = arg;
    sim_peer *peer = r->peer;
    (void)s;
    if (run && peer->listed && peer->redial == r->plan && peer->known && !peer->out &&
        !peer->net->leaving && !peer->net->freed)
        (void)sim_conn_dial(peer->net, peer, peer->address);
    free(r);
}

static void sim_plan_redial(sim_peer *peer, bool failed)
{
    sim *s = peer->net->node->sim;
    redial *r = malloc(sizeof *r);
    teffi_bug_if(!r);
    uint32_t base = failed ? peer->backoff_ms * 2 : 0;
    base = base < BACKOFF_MIN_MS ? BACKOFF_MIN_MS : base;
    peer->backoff_ms = base > BACKOFF_MAX_MS ? BACKOFF_MAX_MS : base;
    uint64_t half = peer->backoff_ms * SIM_MS / 2;
    peer->redial = ++s->order;
    *r = (redial){peer, peer->redial};
    sim_at_node(peer->net->node, half + sim_draw_below(&s->delay, half), redial_due, r);
}

/* ---- the end ---- */

static void side_detach(sim_conn *conn, sim_side *side, sim_peer *peer)
{
    if (peer->in == conn)
        peer->in = NULL;
    if (peer->out != conn)
        return;
    peer->out = NULL;
    peer->dial_failed = !side->up;
    if (peer->known && !peer->bye_wanted && !peer->bye_heard && !side->net->leaving)
        sim_plan_redial(peer, !side->up);
    /* A peer that closed after it had read this side's goodbye reads no other one. */
    if (peer->bye_heard && (!side->up || conn->cut) && peer->in) {
        /* it carried this side's goodbye, which may not have arrived */
        int mine = sim_conn_side(peer->in, side->net);
        peer->in->side[mine].finished = true;
        sim_wire_send(peer->in, !mine, sim_wire_control(TEFFI_FRAME_BYE_ACK));
    }
}

static void end_with_peer(sim_conn *conn, int side_no, sim_peer *peer)
{
    sim_side *side = &conn->side[side_no];
    bool waits = side_no == SIM_DIALLER && conn->unopened.count;
    bool carries = side_no == SIM_DIALLER || side->other.role == TEFFI_ROLE_CLIENT;
    bool unsent = waits || (side_no == SIM_DIALLER && conn->fill.head) ||
                  (carries && conn->side[!side_no].pending.head);
    bool was_up = side->up;
    side->clean = was_up && !side->replaced && (peer->bye_acked || (peer->bye_heard && !unsent));
    side_detach(conn, side, peer);
    if (was_up && !side->clean && !side->replaced && !side->with_other)
        sim_conn_break(peer->in ? peer->in : peer->out, side->net);
    if (peer->bye_wanted && !peer->bye_acked)
        sim_peer_bye(peer);
    if (was_up || waits)
        tell_later(conn, side_no, TELL_DOWN, TEFF_OK, was_up);
}

void sim_conn_end(sim_conn *conn, int side_no)
{
    sim_side *side = &conn->side[side_no];
    sim_peer *peer = side->peer;
    if (side->ended)
        return;
    side->ended = true;
    if (peer)
        end_with_peer(conn, side_no, peer);
    side->up = false;
    if (side_no == SIM_DIALLER) {
        tell_done(conn, TEFF_E_UNREACHABLE);
    } else if (!peer) {
        tell_later(conn, side_no, TELL_GONE, TEFF_OK, false);
    }
    if (conn->side[!side_no].net && !conn->cut)
        sim_wire_eof(conn, !side_no);
    if (peer)
        sim_peer_settle(peer);
}

/* The two connections of a pair of silos break together. */
void sim_conn_break(sim_conn *conn, const sim_net *net)
{
    int mine = conn ? sim_conn_side(conn, net) : SIM_DIALLER;
    if (!conn || !conn->side[mine].up)
        return;
    conn->side[mine].with_other = true;
    sim_conn_end(conn, mine);
}

/* ---- up ---- */

static void come_up(sim_conn *conn, int side_no, sim_peer *peer)
{
    conn->side[side_no].peer = peer;
    conn->side[side_no].up = true;
    tell_later(conn, side_no, TELL_UP, TEFF_OK, true);
}

/* Does this hello agree with those of the dialler's earlier connections? */
static bool dialler_fits(sim_net *net, const sim_conn *conn)
{
    const teffi_hello *who = &conn->side[SIM_ACCEPTOR].other;
    sim_peer *same = sim_peer_find(net, who->node);
    for (sim_peer *p = *sim_peer_bucket(net, who->node); p; p = p->next)
        if (who->role == TEFFI_ROLE_SILO && p->id.silo == who->node.silo &&
            p->id.incarnation > who->node.incarnation && p->in_sequence)
            return false;
    if (same && conn->sequence <= same->in_sequence)
        return false;
    return !net->leaving || (same && (same->in || same->out));
}

/* The acceptor's last step, after the ack. */
static void conn_admit(sim_conn *conn)
{
    sim_side *side = &conn->side[SIM_ACCEPTOR];
    if (side->net->freed || !dialler_fits(side->net, conn)) {
        sim_conn_end(conn, SIM_ACCEPTOR);
        return;
    }
    sim_peer *peer = sim_peer_make(side->net, side->other.node);
    sim_conn *old = peer->in;
    peer->in = conn;
    peer->in_sequence = conn->sequence;
    peer->bye_heard = false;
    if (old) {
        int mine = sim_conn_side(old, side->net);
        old->side[mine].replaced = true;
        sim_conn_end(old, mine);
        sim_conn_break(peer->out, side->net);
    }
    come_up(conn, SIM_ACCEPTOR, peer);
}

static bool take_place(sim_conn *conn, sim_peer *peer)
{
    if (!peer->known)
        snprintf(peer->address, sizeof peer->address, "%s", conn->side[SIM_DIALLER].other.address);
    peer->known = true;
    peer->dial_failed = false;
    peer->backoff_ms = 0;
    if (peer->out && peer->out != conn) {
        if (peer->out->side[SIM_DIALLER].up)
            return false;
        sim_conn *old = peer->out;
        old->side[SIM_DIALLER].replaced = true;
        conn->side[SIM_DIALLER].finished = old->side[SIM_DIALLER].finished;
        for (sim_frame *f; (f = sim_frames_take(&old->fill));)
            sim_frames_add(&conn->fill, f);
        teffi_queue_move(&conn->unopened, &old->unopened);
        peer->out = conn;
        sim_conn_end(old, SIM_DIALLER);
    }
    peer->out = conn;
    return true;
}

/* The dialler's last step, after the acceptor's hello. */
static void conn_establish(sim *s, void *arg, bool run)
{
    sim_conn *conn = arg;
    sim_side *side = &conn->side[SIM_DIALLER];
    (void)s;
    if (!run || side->ended)
        return;
    if (side->net->freed || conn->cut ||
        (conn->expects && !teffi_node_equals(side->peer->id, side->other.node))) {
        sim_conn_end(conn, SIM_DIALLER);
        return;
    }
    sim_peer *peer = side->peer ? side->peer : sim_peer_make(side->net, side->other.node);
    bool place = take_place(conn, peer);
    side->peer = peer;
    if (place)
        come_up(conn, SIM_DIALLER, peer);
    tell_done(conn, TEFF_OK);
    if (!place) {
        sim_conn_end(conn, SIM_DIALLER);
        return;
    }
    sim_wire_send(conn, SIM_ACCEPTOR, sim_wire_control(TEFFI_FRAME_ACK));
    sim_wire_flush(conn);
}

static sim_net *find_listener(sim *s, const char *address)
{
    for (sim_net *net = s->nets; net; net = net->next)
        if (net->listening && !net->freed && strcmp(net->self.address, address) == 0)
            return net;
    return NULL;
}

static void hello_arrives(sim *s, void *arg, bool run);

/* The hello reaches a paused node when that goes on. out: false: the dialler has waited for as long
 * as it does. */
static bool wait_for_pause(sim_conn *conn, const sim_node *node)
{
    sim *s = conn->sim;
    uint64_t left_ns = node->paused_until_ns - s->now_ns;
    if (!conn->hello_until_ns)
        conn->hello_until_ns = s->now_ns + HELLO_TIMEOUT_MS * SIM_MS;
    if (s->now_ns >= conn->hello_until_ns)
        return false;
    if (left_ns > conn->hello_until_ns - s->now_ns)
        left_ns = conn->hello_until_ns - s->now_ns;
    sim_at(s, left_ns, hello_arrives, conn);
    return true;
}

/* The dialler's hello arrives at the address. */
static void hello_arrives(sim *s, void *arg, bool run)
{
    sim_conn *conn = arg;
    char text[TEFF_TEXT_MAX] = "";
    sim_side *dialler = &conn->side[SIM_DIALLER], *acceptor = &conn->side[SIM_ACCEPTOR];
    if (!run || dialler->ended)
        return;
    sim_net *net = dialler->net->freed ? NULL : find_listener(s, conn->target);
    if (net && !net->accepting) { /* the connection waits in the listen queue */
        sim_at(s, SIM_MS, hello_arrives, conn);
        return;
    }
    if (net && sim_is_paused(net->node) && wait_for_pause(conn, net->node))
        return;
    acceptor->other = dialler->net->self;
    if (!net || net == dialler->net || !sim_net_reaches(dialler->net, net) ||
        sim_is_paused(net->node) || !dialler_fits(net, conn) || net->self.node.silo == 0 ||
        strcmp(net->self.cluster, dialler->net->self.cluster) != 0 ||
        net->events.hello(net->arg, &acceptor->other, text) != TEFF_OK) {
        sim_conn_end(conn, SIM_DIALLER);
        return;
    }
    sim_conn_give_side(conn, SIM_ACCEPTOR, net);
    dialler->other = net->self;
    sim_at_node(dialler->net->node, sim_wire_delay(s), conn_establish, conn);
}

static void hand_on(teffi_inbound *batch);
static void batch_release(teffi_inbound *batch);

sim_conn *sim_conn_dial(sim_net *net, sim_peer *peer, const char *address)
{
    sim *s = net->node->sim;
    sim_conn *conn = calloc(1, sizeof *conn);
    teffi_bug_if(!conn);
    conn->sim = s;
    for (int i = 0; i < 2; i++) {
        conn->side[i].write.run = sim_wire_write;
        conn->side[i].batch.run = hand_on;
        conn->side[i].batch.release = batch_release;
        sim_poll_init(conn, &conn->side[i]);
    }
    conn->no = s->conns ? s->conns->no + 1 : 1;
    conn->next = s->conns;
    s->conns = conn;
    conn->sequence = ++net->sequence;
    sim_conn_give_side(conn, SIM_DIALLER, net);
    conn->side[SIM_DIALLER].peer = peer;
    snprintf(conn->target, sizeof conn->target, "%s", address);
    if (peer) {
        conn->expects = true;
        conn->side[SIM_DIALLER].other.node = peer->id;
        conn->side[SIM_DIALLER].other.role = TEFFI_ROLE_SILO;
        peer->out = conn;
        peer->redial = 0;
    }
    sim_trace_add(&s->trace, s->now_ns, net->node->name, "dial", conn->no,
                  peer ? peer->id.silo : 0);
    sim_at(s, sim_wire_delay(s), hello_arrives, conn);
    return conn;
}

/* ---- frames ---- */

static bool admit_client(sim_conn *conn, teffi_msg *msg)
{
    sim_side *side = &conn->side[SIM_ACCEPTOR];
    if (teffi_admit_client_message(msg, side->other.node) == TEFFI_ADMITTED)
        return true;
    sim_fail(conn->sim, "a client sent kind %u to slot %u", msg->item.kind, msg->to.slot);
    teffi_msg_free(msg);
    return false;
}

static void trace_message(const sim_conn *conn, int side_no, const teffi_msg *msg)
{
    sim *s = conn->sim;
    char text[SIM_TRACE_TEXT];
    snprintf(text, sizeof text,
             "from %s call %08x/%u/%u slot %u method %08x err %u hops %u key %.*s",
             conn->side[!side_no].net->node->name,
             msg->item.kind == TEFFI_MSG_RESPONSE ? msg->to.node.silo : msg->src.silo,
             msg->call.slot, msg->call.generation, msg->to.slot, msg->method_id, msg->err,
             msg->hops, (int)msg->key_len, msg->key ? (const char *)msg->key : "");
    sim_trace_text(&s->trace, s->now_ns, conn->side[side_no].net->node->name,
                   msg->item.kind == TEFFI_MSG_RESPONSE ? "response" : "request", text);
}

static void frame_deliver(sim_conn *conn, int side_no, const sim_frame *f)
{
    sim_side *side = &conn->side[side_no];
    sim *s = conn->sim;
    teffi_msg *msg;
    if (side_no == SIM_DIALLER && side->net->self.role == TEFFI_ROLE_SILO) {
        sim_fail(s, "%s: a message against the direction", side->net->node->name);
        return;
    }
    if (!sim_wire_decode(side->net, f, &msg)) {
        sim_fail(s, "a frame of kind %u does not decode", f->kind);
        return;
    }
    trace_message(conn, side_no, msg);
    if (side->other.role == TEFFI_ROLE_CLIENT && !admit_client(conn, msg))
        return;
    if (s->plant_frame && s->plant_frame(conn, side_no, msg)) {
        teffi_msg_free(msg);
        return;
    }
    tell_message(conn, side_no, msg);
}

static void bye_heard(sim_conn *conn, int side_no)
{
    sim_peer *peer = conn->side[side_no].peer;
    sim_conn *acknowledging = peer->out ? peer->out : conn;
    int mine = sim_conn_side(acknowledging, peer->net);
    peer->bye_heard = true;
    peer->redial = 0;
    acknowledging->side[mine].finished = true;
    sim_wire_send(acknowledging, !mine, sim_wire_control(TEFFI_FRAME_BYE_ACK));
}

static void bye_acked(sim_conn *conn, int side_no)
{
    sim_peer *peer = conn->side[side_no].peer;
    sim_conn *in = peer->in, *out = peer->out;
    if (!peer->bye_wanted)
        return;
    peer->bye_acked = true;
    if (in)
        sim_conn_end(in, sim_conn_side(in, peer->net));
    if (out)
        sim_conn_end(out, sim_conn_side(out, peer->net));
}

static void hear_view(sim_side *side, const sim_frame *f)
{
    uint64_t version = sim_wire_decode_view(f);
    if (version <= side->view_heard)
        sim_fail(side->net->node->sim, "a view of a connection does not rise");
    side->view_heard = version;
    side->net->events.view(side->net->arg, &side->other, version);
}

static void sim_handle_received_frame(sim_conn *conn, int side_no, const sim_frame *f)
{
    sim_side *side = &conn->side[side_no];
    if (side->ended || side->net->freed)
        return;
    if (f->kind == SIM_EOF) {
        sim_conn_end(conn, side_no);
    } else if (f->kind == TEFFI_FRAME_ACK) {
        conn_admit(conn);
    } else if (f->kind == TEFFI_FRAME_VIEW) {
        hear_view(side, f);
    } else if (f->kind == TEFFI_FRAME_BYE) {
        bye_heard(conn, side_no);
    } else if (f->kind == TEFFI_FRAME_BYE_ACK) {
        bye_acked(conn, side_no);
    } else {
        frame_deliver(conn, side_no, f);
    }
}

static void hand_on(teffi_inbound *batch)
{
    sim_side *side = teffi_container(batch, sim_side, batch);
    for (sim_frame *f; (f = sim_frames_take(&side->received));) {
        sim_handle_received_frame(f->conn, f->to, f);
        free(f);
    }
    side->is_submitted = false;
}

/* Connections are freed with the simulation. */
static void batch_release(teffi_inbound *batch)
{
    (void)batch;
}

void sim_conn_receive(sim_conn *conn, int side_no, sim_frame *frame)
{
    sim_side *side = &conn->side[side_no];
    if (side->ended || side->net->freed) {
        free(frame);
        return;
    }
    if (side->net->reactor) {
        sim_poll_arrived(side, frame);
        return;
    }
    sim_frames_add(&side->received, frame);
    if (side->is_submitted)
        return;
    side->is_submitted = true;
    side->batch.bytes = side->received.bytes;
    side->net->exec->ops->inbound(side->net->exec, &side->batch);
}
