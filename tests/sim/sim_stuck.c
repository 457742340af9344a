/* sim_stuck.c - in some of the worlds: all workers of a silo are in turns that do not end. The
 * silo's system thread, its timers and its connections go on.
 * Way:     world -> [stuck] -> sim_exec
 * The silo gives its lease up, and its process ends; else the run hangs, since nobody serves the
 * silo's grains. In some of these worlds, leases are kept, and the silo gets a signal to stop: its
 * steps end in time, although no turn does; then its process ends, as after stop_ms. */
#include "call/task.h"
#include "sim_world.h"

/* STREAM_STUCK is chosen so that no seed of seeds.txt that is older draws stuck workers. */
enum { STREAM_STUCK = 6014, STUCK_OF_1000 = 60, TIMES_MAX = 2 };
enum { STREAM_STOPS = 6015, STOPS_OF_1000 = 400, STOP_MS = 5000, SLACK_MS = 40000 };

/* The steps of the stop, on a thread that is no worker; then the limit of the stop. */
static void stop_main(teff_ctx *ctx, void *arg)
{
    sim_silo *place = arg;
    (void)!teffi_silo_leave(ctx, place->silo, sim_node_now(&place->node) + STOP_MS * SIM_MS);
    place->lost = true; /* it starts again */
    sim_silo_kill(place);
}

/* The silo's process ends at the latest SLACK_MS after its steps' limit, since its last steps write
 * to a store which may be slow. */
static void check_stopped(sim *s, void *arg, bool run)
{
    sim_silo *place = arg;
    if (run && place->state == SIM_LEAVING && place->node.stuck && s->now_ns >= place->stops_ns)
        sim_fail(s, "silo %u is stuck, and its stop does not end", place->no);
}

/* After the limit of its steps the silo leaves, and its grains are activated elsewhere. None of its
 * turns runs from now on. */
static void signal_stop(sim *s, sim_silo *place)
{
    sim_silo_lose(place);
    place->state = SIM_LEAVING;
    if (teffi_task_start(&place->silo->node.home, stop_main, place, "stop", true))
        sim_fail(s, "no memory to stop");
    place->stops_ns = s->now_ns + (STOP_MS + SLACK_MS) * SIM_MS;
    sim_at(s, (STOP_MS + SLACK_MS) * SIM_MS, check_stopped, place);
}

static void stick_workers(sim *s, void *arg, bool run)
{
    sim_world *w = s->world;
    sim_silo *place = run && w->stage == SIM_RUNS ? sim_silo_pick(w, SIM_SERVING) : NULL;
    if (!place || !sim_fault_happens(s, arg, "%s's workers are stuck", place->node.name))
        return;
    sim_exec_stick(place->silo->node.home.exec);
    sim_trace_add(&s->trace, s->now_ns, place->node.name, "stuck", 0, 0);
    if (w->stops_stuck)
        signal_stop(s, place);
}

/* With short leases, so that the silo starts again in time. A slow store needs longer ones. */
void sim_stuck_plan(sim_world *w, uint64_t length_ms)
{
    sim_draw draw = sim_draw_of(w->s.seed, STREAM_STUCK);
    bool drawn = sim_draw_chance(&draw, STUCK_OF_1000) && sim_has_faults(w);
    if (w->remote_store || !drawn)
        return;
    uint32_t short_ms = (uint32_t)sim_draw_between(&draw, 800, 3000);
    if (!w->lease_ms)
        w->lease_ms = w->s.faults.store_slow ? TEFFI_LEASE_MS : short_ms;
    w->stuck_ms = w->lease_ms + (uint32_t)sim_draw_below(&draw, w->lease_ms);
    sim_draw stops = sim_draw_of(w->s.seed, STREAM_STOPS);
    w->stops_stuck = sim_draw_chance(&stops, STOPS_OF_1000);
    if (w->stops_stuck)
        w->stuck_ms = 3600 * 1000;
    w->s.faults.stuck = (unsigned)sim_draw_between(&draw, 1, TIMES_MAX);
    for (unsigned i = 0; i < w->s.faults.stuck; i++)
        sim_at(&w->s, sim_draw_below(&draw, length_ms * SIM_MS), stick_workers,
               sim_fault_plan(&w->s));
}
