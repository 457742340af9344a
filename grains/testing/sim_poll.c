/* sim_poll.c - the transport of a polled node: whoever polls finds that bytes, or room, have come.
 * Way:     sim_conn (bytes, an event), sim_wire (no room) -> [sim_poll] edge ... wait, run ->
 *          sim_conn (the batch, the event), sim_wire (the write)
 * States:  which side waits, and which is ready: the product's reactor. Here is what epoll does.
 * Source:  runtime/stream/socket_stream; runtime/link/driver, conn/receiver, conn/polling */
#include <stdlib.h>
#include "base/bug.h"
#include "sim_net.h"

enum {
    EDGES_MAX = 6, /* found by a wait */
    READ_MAX = 3,  /* frames, of a short read */
    SHORT_READ_OF_1000 = 100,
    DEFERRED_READ_OF_1000 = 150,
    NO_ROOM_OF_1000 = 20,
    ROOM_MAX_MS = 5,
    TICK_MAX_MS = 15
};

static sim_net *net_of(const teffi_poller *poller)
{
    return poller->arg;
}

static sim_draw *draw_of(const sim_net *net)
{
    return &net->node->sim->poll;
}

/* ---- who polls: a worker that waits, a busy one that looks, else the ticker ---- */

static bool is_due(const sim_net *net)
{
    /* relaxed: one thread */
    return net->came.head || atomic_load_explicit(&net->reactor->due, memory_order_relaxed);
}

bool sim_poll_is_due(const teffi_poller *poller)
{
    return is_due(net_of(poller));
}

static void call_ticker(sim_net *net);

/* Polls if nobody has done so for a tick. */
static void sim_run_ticker(sim *s, void *arg, bool run)
{
    sim_net *net = arg;
    (void)s;
    net->ticker_looks = false;
    if (!run || net->freed || !is_due(net))
        return;
    if (net->reactor->poller.claims == net->claims_seen)
        (void)teffi_poller_poll_once(&net->reactor->poller);
    if (is_due(net))
        call_ticker(net);
}

static void call_ticker(sim_net *net)
{
    if (net->ticker_looks)
        return;
    net->ticker_looks = true;
    net->claims_seen = net->reactor->poller.claims;
    sim_at_node(net->node, sim_draw_below(draw_of(net), TICK_MAX_MS * SIM_MS), sim_run_ticker, net);
}

static void end_wait_or_tick(sim_net *net)
{
    if (is_due(net) && !sim_exec_end_wait(net->exec))
        call_ticker(net);
}

/* ---- operations, and the set of their edges in the place of epoll's ---- */

static void add_edge(sim_edges *edges, sim_edge *edge)
{
    edge->next = NULL;
    *(edges->head ? edges->end : &edges->head) = edge;
    edges->end = &edge->next;
}

static sim_edge *take_edge(sim_edges *edges)
{
    sim_edge *edge = edges->head;
    if (edge)
        edges->head = edge->next;
    return edge;
}

static void edge_comes(sim_net *net, sim_edge *edge)
{
    if (!edge->has_come)
        add_edge(&net->came, edge);
    edge->has_come = true;
    end_wait_or_tick(net);
}

static void begin_operation(sim_net *net, sim_edge *edge)
{
    teffi_reactor_begin_wait(net->reactor, &edge->side);
    end_wait_or_tick(net);
}

/* What an earlier wait has found and run has not handled is overwritten, as in the reactor. */
static void find_edges(teffi_poller *poller, uint64_t timeout_ns)
{
    sim_net *net = net_of(poller);
    uint64_t n = sim_draw_between(draw_of(net), 1, EDGES_MAX);
    teffi_bug_if(timeout_ns > 0); /* a worker's wait is a state of its executor */
    net->found.head = NULL;
    for (sim_edge *edge; n && (edge = take_edge(&net->came)); n--) {
        edge->has_come = false;
        add_edge(&net->found, edge);
    }
}

static bool run_edges(teffi_poller *poller)
{
    sim_net *net = net_of(poller);
    for (sim_edge *edge; (edge = take_edge(&net->found));)
        teffi_reactor_report_edge(net->reactor, &edge->side);
    bool any = net->run_sides(poller);
    if (is_due(net))
        call_ticker(net);
    return any;
}

static void wake_worker(teffi_poller *poller)
{
    (void)sim_exec_end_wait(net_of(poller)->exec);
}

static void ask_ticker(teffi_poller *poller)
{
    if (sim_poll_is_due(poller))
        call_ticker(net_of(poller));
}

/* ---- events of the owner ---- */

static bool attempt_always(reactor_side *side)
{
    (void)side;
    return true;
}

/* What these events cause comes with a later poll. */
static void tell_all(sim_net *net, bool run)
{
    sim_told *told = net->told;
    net->told = NULL;
    for (sim_told *next; told; told = next) {
        next = told->next;
        told->fn(net->node->sim, told->arg, run);
        free(told);
    }
}

static void told_ended(reactor_side *side)
{
    sim_net *net = teffi_container(side, sim_net, has_told.side);
    begin_operation(net, &net->has_told);
    tell_all(net, true);
}

void sim_poll_tell(sim_net *net, sim_fn *fn, void *arg)
{
    sim_told *told = malloc(sizeof *told);
    teffi_bug_if(!told);
    *told = (sim_told){.fn = fn, .arg = arg};
    *(net->told ? net->told_end : &net->told) = told;
    net->told_end = &told->next;
    edge_comes(net, &net->has_told);
}

/* ---- the net's poller ---- */

void sim_poll_start(sim_net *net)
{
    if (!net->node->polled)
        return;
    net->reactor = teffi_reactor_new(&net->node->platform);
    teffi_bug_if(!net->reactor);
    teffi_poller *poller = &net->reactor->poller;
    net->run_sides = poller->run;
    poller->wait = find_edges;
    poller->run = run_edges;
    poller->wake = wake_worker;
    poller->neglected = ask_ticker;
    poller->arg = net;
    sim_trace_add(&net->node->sim->trace, net->node->sim->now_ns, net->node->name, "polled", 0, 0);
    net->has_told.side = (reactor_side){.attempt = attempt_always, .ended = told_ended};
    net->exec->ops->poll(net->exec, poller);
    begin_operation(net, &net->has_told);
}

void sim_poll_end(sim_net *net)
{
    if (!net->reactor)
        return;
    tell_all(net, false);
    teffi_reactor_free(net->reactor);
    net->reactor = NULL;
}

/* ---- receiving ---- */

static void read_frames(sim_side *side, uint64_t n)
{
    for (sim_frame *f; n && (f = sim_frames_take(&side->arrived)); n--) {
        if (!side->ended)
            sim_wire_check_age(side->conn, f, "read");
        sim_frames_add(&side->received, f);
    }
}

static bool attempt_read(reactor_side *in)
{
    sim_side *side = teffi_container(in, sim_side, in.side);
    sim_draw *draw = draw_of(side->net);
    bool some = sim_draw_chance(draw, SHORT_READ_OF_1000);
    read_frames(side, some ? sim_draw_between(draw, 1, READ_MAX) : UINT64_MAX);
    if (side->arrived.head)
        teffi_side_set_ready(in);
    return side->received.head;
}

/* As the link: a worker runs the batch here; the ticker hands its messages on. */
static void hand_on_batch(sim_side *side)
{
    teffi_exec *exec = side->net->exec;
    side->batch.bytes = side->received.bytes;
    if (sim_exec_on_worker(exec))
        exec->ops->inbound(exec, &side->batch);
    else
        side->batch.run(&side->batch);
}

/* The link defers it after a large read; here a draw decides. */
static void begin_or_defer_read(sim_side *side)
{
    teffi_exec *exec = side->net->exec;
    if (side->ended || side->net->freed)
        return;
    if (!sim_draw_chance(draw_of(side->net), DEFERRED_READ_OF_1000) ||
        !exec->ops->defer(exec, &side->next_read))
        begin_operation(side->net, &side->in);
}

static void read_ended(reactor_side *in)
{
    sim_side *side = teffi_container(in, sim_side, in.side);
    hand_on_batch(side);
    begin_or_defer_read(side);
}

/* Only a worker reads here. Another thread, and who finds nothing, begins a receive. */
static void sim_run_deferred_read(teffi_deferred *work)
{
    sim_side *side = teffi_container(work, sim_side, next_read);
    if (side->ended || side->net->freed)
        return;
    if (sim_exec_on_worker(side->net->exec)) {
        teffi_side_clear_ready(&side->in.side);
        read_frames(side, UINT64_MAX);
    }
    if (side->received.head) {
        hand_on_batch(side);
        begin_or_defer_read(side);
    } else if (side->net->node->sim->plant != SIM_PLANT_UNREAD) {
        begin_operation(side->net, &side->in);
    }
}

void sim_poll_arrived(sim_side *side, sim_frame *frame)
{
    frame->since_ns = side->net->node->sim->now_ns;
    sim_frames_add(&side->arrived, frame);
    if (!side->receives) {
        side->receives = true;
        begin_operation(side->net, &side->in);
    }
    edge_comes(side->net, &side->in);
}

/* ---- writing ---- */

static void write_ended(reactor_side *out)
{
    sim_side *to = teffi_container(out, sim_side, out.side);
    to->waits_for_room = false;
    sim_wire_write_pending(to);
}

static sim_net *writer_of(const sim_side *to)
{
    return to->conn->side[to == &to->conn->side[SIM_DIALLER]].net;
}

static void room_comes(sim *s, void *arg, bool run)
{
    sim_side *to = arg;
    (void)s;
    if (run && !writer_of(to)->freed)
        edge_comes(writer_of(to), &to->out);
}

bool sim_poll_waits_for_room(sim_net *net, sim_side *to)
{
    if (to->waits_for_room || !net->reactor || net->freed ||
        !sim_draw_chance(draw_of(net), NO_ROOM_OF_1000))
        return to->waits_for_room;
    to->waits_for_room = true;
    begin_operation(net, &to->out);
    sim_at(net->node->sim, sim_draw_below(draw_of(net), ROOM_MAX_MS * SIM_MS), room_comes, to);
    return true;
}

void sim_poll_init(sim_conn *conn, sim_side *side)
{
    side->conn = conn;
    side->in.side = (reactor_side){.attempt = attempt_read, .ended = read_ended};
    side->out.side = (reactor_side){.attempt = attempt_always, .ended = write_ended};
    side->next_read.run = sim_run_deferred_read;
}
