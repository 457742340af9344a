/* sim_net.c - the simulated transport's functions: peers, sending, shutdown, faults.
 * Way:     node -> [sim_net] -> sim_conn
 * Source:  runtime/link/net.h; runtime/link/next_hop, peers, goodbye */
#include "sim_net.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "base/bug.h"
#include "base/error.h"

static const size_t frame_max_default = 1024 * 1024 + 4096;

/* ---- peers ---- */

/* All incarnations of a silo are in one. */
sim_peer **sim_peer_bucket(sim_net *net, teffi_node_id id)
{
    return &net->peers[id.silo % SIM_PEER_BUCKETS];
}

sim_peer *sim_peer_find(sim_net *net, teffi_node_id id)
{
    for (sim_peer *p = *sim_peer_bucket(net, id); p; p = p->next)
        if (p->listed && teffi_node_equals(p->id, id))
            return p;
    return NULL;
}

sim_peer *sim_peer_make(sim_net *net, teffi_node_id id)
{
    sim_peer *p = sim_peer_find(net, id);
    if (p)
        return p;
    p = calloc(1, sizeof *p);
    teffi_bug_if(!p);
    *p = (sim_peer){.next = *sim_peer_bucket(net, id), .net = net, .id = id, .listed = true};
    *sim_peer_bucket(net, id) = p;
    return p;
}

void sim_peer_settle(sim_peer *peer)
{
    if (!peer->known && !peer->in && !peer->out)
        peer->listed = false;
}

void sim_peer_bye(sim_peer *peer)
{
    sim_conn *conn = peer->out ? peer->out : peer->in;
    if (!conn)
        return;
    int mine = sim_conn_side(conn, peer->net);
    if (conn->side[mine].bye_sent)
        return;
    conn->side[mine].bye_sent = conn->side[mine].finished = true;
    sim_wire_send(conn, !mine, sim_wire_control(TEFFI_FRAME_BYE));
}

/* ---- the seam ---- */

static teff_err net_listen(teffi_net *base, teffi_door door, const char *address, char *bound,
                           char *text)
{
    sim_net *net = (sim_net *)base;
    (void)door; /* no silo of the simulator has a gateway */
    sim *s = net->node->sim;
    for (sim_net *other = s->nets; other; other = other->next)
        if (other->listening && !other->freed && strcmp(other->self.address, address) == 0)
            return teffi_fail(text, TEFF_E_IO, "listen on '%.100s': in use", address);
    net->listening = true;
    snprintf(net->self.address, sizeof net->self.address, "%s", address);
    snprintf(bound, TEFFI_ADDRESS_MAX + 1, "%s", address);
    return TEFF_OK;
}

static void net_accept(teffi_net *base)
{
    ((sim_net *)base)->accepting = true;
}

static void net_identify(teffi_net *base, teffi_node_id self, const char *address)
{
    sim_net *net = (sim_net *)base;
    net->self.node = self;
    if (address[0])
        snprintf(net->self.address, sizeof net->self.address, "%s", address);
}

static teff_err net_peer_add(teffi_net *base, teffi_node_id id, const char *address)
{
    sim_net *net = (sim_net *)base;
    if (net->leaving)
        return TEFF_E_CLOSED;
    sim_peer *p = sim_peer_make(net, id);
    if (!p->known)
        p->bye_wanted = p->bye_acked = p->bye_heard = p->dial_failed = false;
    p->known = true;
    snprintf(p->address, sizeof p->address, "%s", address);
    return TEFF_OK;
}

static void net_peer_remove(teffi_net *base, teffi_node_id id, bool clean)
{
    sim_peer *p = sim_peer_find((sim_net *)base, id);
    if (!p)
        return;
    p->known = false;
    p->redial = 0;
    p->bye_wanted = clean;
    if (clean) {
        sim_peer_bye(p);
    } else {
        sim_conn *in = p->in, *out = p->out;
        if (in)
            sim_conn_end(in, sim_conn_side(in, p->net));
        if (out)
            sim_conn_end(out, sim_conn_side(out, p->net));
    }
    sim_peer_settle(p);
}

static void net_peer_dead(teffi_net *base, teffi_node_id id)
{
    sim_peer *p = sim_peer_find((sim_net *)base, id);
    if (p)
        sim_conn_bar(p);
    net_peer_remove(base, id, false);
}

static void net_carry_view(teffi_net *base, uint64_t version)
{
    sim_net *net = (sim_net *)base;
    teffi_bug_if(version && version <= net->view); /* 0: no silo has joined yet */
    net->view = version;
}

static void net_peer_left(teffi_net *base, teffi_node_id id)
{
    sim_peer *p = sim_peer_find((sim_net *)base, id);
    if (p)
        p->left = true;
}

static void refuse_dial(sim *s, void *arg, bool run);

typedef struct refused {
    void (*done)(void *arg, teff_err err, const teffi_hello *peer, const char *text);
    void *arg;
} refused;

static void net_dial(teffi_net *base, const char *address,
                     void (*done)(void *arg, teff_err err, const teffi_hello *peer,
                                  const char *text),
                     void *arg)
{
    sim_net *net = (sim_net *)base;
    if (net->leaving) {
        refused *r = malloc(sizeof *r);
        teffi_bug_if(!r);
        *r = (refused){done, arg};
        sim_at_node(net->node, 0, refuse_dial, r);
        return;
    }
    sim_conn *conn = sim_conn_dial(net, NULL, address);
    conn->done = done;
    conn->done_arg = arg;
}

static void refuse_dial(sim *s, void *arg, bool run)
{
    static const teffi_hello nobody;
    refused *r = arg;
    (void)s;
    if (run)
        r->done(r->arg, TEFF_E_UNREACHABLE, &nobody, "closing");
    free(r);
}

/* The connection that carries messages to a node, made when there is none. */
static teff_err way_to(sim_net *net, teffi_node_id to, bool for_grain, sim_conn **conn)
{
    sim_peer *p = sim_peer_find(net, to);
    bool client = to.silo & TEFFI_CLIENT_BIT;
    if (net->leaving || !p || p->bye_heard || p->bye_wanted || (p->left && for_grain))
        return TEFF_E_CLOSED;
    *conn = client ? p->in : p->out;
    if (*conn)
        return client || p->known ? TEFF_OK : TEFF_E_CLOSED;
    if (client || !p->known)
        return TEFF_E_CLOSED;
    if (p->dial_failed)
        return TEFF_E_UNREACHABLE;
    *conn = sim_conn_dial(net, p, p->address);
    return TEFF_OK;
}

static teff_err net_send(teffi_net *base, teffi_node_id to, teffi_msg *msg)
{
    sim_net *net = (sim_net *)base;
    sim_conn *conn;
    teff_err err = way_to(net, to, teffi_msg_is_for_grain(msg), &conn);
    sim_peer *peer = sim_peer_find(net, to);
    if (err && msg->item.kind == TEFFI_MSG_RESPONSE && peer && !peer->bye_wanted &&
        !peer->bye_heard)
        sim_conn_break(peer->in, net);
    if (err)
        return err;
    int mine = sim_conn_side(conn, net);
    if (conn->side[mine].finished)
        return TEFF_E_CLOSED;
    if (mine == SIM_DIALLER && !conn->side[SIM_DIALLER].up)
        return sim_wire_wait(conn, msg);
    return sim_wire_put(conn, mine, msg);
}

/* ---- shutdown ---- */

static bool has_talk(const sim_net *net)
{
    for (const sim_side *side = net->sides; side; side = side->next_of_net)
        if (!side->ended && (side->peer || side == &side->conn->side[SIM_DIALLER]))
            return true;
    return net->telling > 0;
}

static void sim_begin_leaving(sim_net *net)
{
    net->leaving = true;
    for (sim_side *side = net->sides; side; side = side->next_of_net) {
        if (side->ended)
            continue;
        if (!side->peer && side == &side->conn->side[SIM_DIALLER]) {
            sim_conn_end(side->conn, SIM_DIALLER); /* nobody waits for this dial any more */
        } else if (side->peer) {
            side->peer->bye_wanted = true;
            sim_peer_bye(side->peer);
        }
    }
}

static teff_err net_shutdown(teffi_net *base, uint32_t timeout_ms)
{
    sim_net *net = (sim_net *)base;
    sim *s = net->node->sim;
    uint64_t deadline = s->now_ns + timeout_ms * SIM_MS;
    sim_begin_leaving(net);
    while (has_talk(net) && s->now_ns < deadline)
        sim_pump(s, net->node->name);
    net->listening = false;
    return has_talk(net) ? TEFF_E_TIMEOUT : TEFF_OK;
}

static void net_free(teffi_net *base)
{
    sim_net *net = (sim_net *)base;
    net->leaving = true;
    for (sim_side *side = net->sides; side; side = side->next_of_net)
        sim_conn_end(side->conn, sim_conn_side(side->conn, net));
    net->left = sim_views_has_left(net);
    net->freed = true;
    net->listening = false;
    sim_poll_end(net);
    sim_conn_free_messages(net);
}

teff_err sim_net_new(const teffi_platform *platform, const teffi_net_options *opt, teffi_net **out,
                     char *text)
{
    static const teffi_net_ops ops = {
        .listen = net_listen,
        .accept = net_accept,
        .identify = net_identify,
        .peer_add = net_peer_add,
        .carry_view = net_carry_view,
        .peer_remove = net_peer_remove,
        .peer_dead = net_peer_dead,
        .peer_left = net_peer_left,
        .dial = net_dial,
        .send = net_send,
        .shutdown = net_shutdown,
        .free = net_free,
    };
    sim_net *net = calloc(1, sizeof *net);
    (void)text;
    teffi_bug_if(!net);
    net->base.ops = &ops;
    net->node = platform->arg;
    net->self = opt->self;
    net->self.version_min = TEFFI_PROTOCOL_MIN;
    net->self.version_max = TEFFI_PROTOCOL_MAX;
    net->events = *opt->events;
    net->arg = opt->arg;
    net->exec = opt->exec;
    net->until_ns = opt->until_ns;
    net->frame_max = opt->frame_max_bytes ? opt->frame_max_bytes : frame_max_default;
    net->next = net->node->sim->nets;
    net->node->sim->nets = net;
    sim_poll_start(net);
    *out = &net->base;
    return TEFF_OK;
}

/* ---- faults, and the end ---- */

static bool may_cut(const sim_conn *c)
{
    return !c->cut && c->side[SIM_ACCEPTOR].net && !c->side[0].ended && !c->side[1].ended;
}

void sim_net_stall(sim *s, sim_fault *fault)
{
    uint64_t seen = 0;
    sim_conn *chosen = NULL;
    for (sim_conn *c = s->conns; c; c = c->next)
        if (may_cut(c) && c->side[0].up && c->side[1].up && sim_draw_below(&s->stall, ++seen) == 0)
            chosen = c;
    if (!chosen)
        return;
    int to = sim_draw_chance(&s->stall, 500);
    uint64_t length_ns = sim_draw_below(&s->stall, SIM_STALL_MAX_NS);
    uint64_t until = s->now_ns + length_ns;
    if (!sim_fault_happens(s, fault, "%s receives nothing on connection %lu for %.1f s",
                           chosen->side[to].net->node->name, (unsigned long)chosen->no,
                           (double)length_ns / 1e9))
        return;
    sim_trace_add(&s->trace, s->now_ns, chosen->side[to].net->node->name, "stall", chosen->no, 0);
    if (chosen->side[to].last_due_ns < until)
        chosen->side[to].last_due_ns = until;
}

typedef struct noticed {
    sim_conn *conn;
    int side;
} noticed;

static void notice_loss(sim *s, void *arg, bool run)
{
    noticed *n = arg;
    (void)s;
    if (run && !n->conn->side[n->side].net->freed)
        sim_conn_end(n->conn, n->side);
    free(n);
}

/* in: happens; false: the fault is left out, only draw. */
static void cut_or_draw(sim *s, sim_conn *c, bool happens)
{
    if (happens) {
        c->cut = true;
        sim_trace_add(&s->trace, s->now_ns, c->side[0].net->node->name, "cut", c->no, 0);
    }
    for (int i = 0; i < 2; i++) {
        /* what has arrived is still read until the peer notices the end */
        bool deaf = sim_draw_chance(&s->fault, 600);
        /* a reset is noticed at once, a dead line after five heartbeats */
        bool dead = sim_draw_chance(&s->fault, 300);
        uint64_t after_ns = dead ? SIM_SILENT_NS : sim_draw_below(&s->fault, 3 * SIM_MS);
        if (!happens)
            continue;
        noticed *n = malloc(sizeof *n);
        teffi_bug_if(!n);
        *n = (noticed){c, i};
        c->side[i].deaf = deaf;
        sim_at_node(c->side[i].net->node, after_ns, notice_loss, n);
    }
}

static void cut_conn(sim *s, sim_conn *c)
{
    cut_or_draw(s, c, true);
}

void sim_net_cut_by_rate(sim_conn *conn)
{
    sim *s = conn->sim;
    if (sim_draw_chance(&s->fault, s->faults.wire_breaks) && may_cut(conn))
        cut_conn(s, conn);
}

static sim_conn *draw_conn(sim *s)
{
    uint64_t seen = 0;
    sim_conn *chosen = NULL;
    for (sim_conn *c = s->conns; c; c = c->next)
        if (may_cut(c) && sim_draw_below(&s->fault, ++seen) == 0)
            chosen = c;
    return chosen;
}

bool sim_net_cut(sim *s, sim_fault *fault)
{
    sim_conn *chosen = draw_conn(s);
    if (!chosen)
        return false;
    bool happens = sim_fault_happens(s, fault, "cut of connection %lu between %s and %s",
                                     (unsigned long)chosen->no, chosen->side[0].net->node->name,
                                     chosen->side[1].net->node->name);
    cut_or_draw(s, chosen, happens);
    return happens;
}

static void cut_muted(sim *s, void *arg, bool run)
{
    sim_conn *c = arg;
    if (run && may_cut(c))
        cut_conn(s, c);
}

void sim_net_mute(sim *s, sim_fault *fault, sim_draw *draw)
{
    enum { MUTE_MAX_MS = 12000 };
    uint64_t seen = 0, length_ns = sim_draw_below(draw, MUTE_MAX_MS * SIM_MS);
    sim_conn *chosen = NULL;
    for (sim_conn *c = s->conns; c; c = c->next)
        if (may_cut(c) && c->side[0].up && c->side[1].up && sim_draw_below(draw, ++seen) == 0)
            chosen = c;
    if (!chosen)
        return;
    sim_net *a = chosen->side[0].net, *b = chosen->side[1].net;
    int side = sim_draw_chance(draw, 500);
    sim_side *to = &chosen->side[side];
    if (!sim_fault_happens(s, fault, "what %s sends does not reach %s for %.1f s",
                           chosen->side[!side].net->node->name, to->net->node->name,
                           (double)length_ns / 1e9))
        return;
    sim_trace_add(&s->trace, s->now_ns, to->net->node->name, "mute", chosen->no, length_ns);
    if (to->last_due_ns < s->now_ns + length_ns)
        to->last_due_ns = s->now_ns + length_ns;
    a->apart = b;
    b->apart = a;
    a->apart_until_ns = b->apart_until_ns = s->now_ns + length_ns;
    if (length_ns > SIM_SILENT_NS)
        sim_at(s, SIM_SILENT_NS, cut_muted, chosen);
}

static bool are_split(const sim_net *a, const sim_net *b)
{
    bool silos = a->self.role == TEFFI_ROLE_SILO && b->self.role == TEFFI_ROLE_SILO;
    return silos && a->node->part != b->node->part &&
           a->node->sim->now_ns < a->node->sim->split_until_ns;
}

static bool rule_allows(const sim_node *from, const sim_node *to)
{
    const sim *s = from->sim;
    return !s->reaches || s->reaches(s->world, from, to);
}

bool sim_net_reaches(const sim_net *from, const sim_net *to)
{
    return !from->node->dead && !to->node->dead && !are_split(from, to) &&
           !(from->apart == to && from->node->sim->now_ns < from->apart_until_ns) &&
           rule_allows(from->node, to->node);
}

void sim_net_cut_unreachable(sim *s)
{
    for (sim_conn *c = s->conns; c; c = c->next)
        if (may_cut(c) && !sim_net_reaches(c->side[0].net, c->side[1].net))
            cut_conn(s, c);
}

/* Cut what connects two nodes that do not reach each other; to NULL: with anybody. */
static void cut_between(sim *s, const sim_net *from, const sim_net *to, bool happens)
{
    for (sim_conn *c = s->conns; c; c = c->next) {
        const sim_net *a = c->side[0].net, *b = c->side[1].net;
        if (may_cut(c) && ((a == from && (!to || b == to)) || (b == from && (!to || a == to))))
            cut_or_draw(s, c, happens);
    }
}

void sim_net_split(sim *s)
{
    for (sim_conn *c = s->conns; c; c = c->next)
        if (may_cut(c) && are_split(c->side[0].net, c->side[1].net))
            cut_conn(s, c);
}

void sim_net_part(sim *s, sim_fault *fault)
{
    enum { PART_MAX_MS = 8000 };
    sim_conn *chosen = draw_conn(s);
    if (!chosen)
        return;
    sim_net *a = chosen->side[0].net, *b = chosen->side[1].net;
    uint64_t length_ns = sim_draw_below(&s->fault, PART_MAX_MS * SIM_MS);
    bool happens = sim_fault_happens(s, fault, "%s and %s do not reach each other for %.1f s",
                                     a->node->name, b->node->name, (double)length_ns / 1e9);
    if (happens) {
        a->apart = b;
        b->apart = a;
        a->apart_until_ns = b->apart_until_ns = s->now_ns + length_ns;
    }
    cut_between(s, a, b, happens);
}

static void notice_silence(sim *s, void *arg, bool run)
{
    const sim_net *net = arg;
    if (run && !net->freed && sim_is_paused(net->node))
        cut_between(s, net, NULL, true);
}

void sim_net_pause(teffi_net *base)
{
    sim_net *net = (sim_net *)base;
    sim_at(net->node->sim, SIM_SILENT_NS, notice_silence, net);
}

void sim_net_kill(teffi_net *base)
{
    const sim_net *net = (sim_net *)base;
    cut_between(net->node->sim, net, NULL, true);
}

void sim_net_fini(sim *s)
{
    while (s->conns) {
        sim_conn *c = s->conns;
        s->conns = c->next;
        sim_wire_drop(c);
        free(c);
    }
    while (s->nets) {
        sim_net *net = s->nets;
        s->nets = net->next;
        for (int i = 0; i < SIM_PEER_BUCKETS; i++)
            while (net->peers[i]) {
                sim_peer *p = net->peers[i];
                net->peers[i] = p->next;
                free(p);
            }
        free(net);
    }
}
