/* sim_stuck.c - in some of the worlds: all workers of a silo are in turns that do not end. The
 * silo's system thread, its timers and its connections go on.
 * Way:     world -> [stuck] -> sim_exec
 * The silo gives its lease up, and its process ends; else the run hangs, since nobody serves the
 * silo's grains. */
#include "sim_world.h"

/* STREAM_STUCK is chosen so that no seed of seeds.txt that is older draws stuck workers. */
enum { STREAM_STUCK = 6014, STUCK_OF_1000 = 60, TIMES_MAX = 2 };

static void stick_workers(sim *s, void *arg, bool run)
{
    sim_world *w = s->world;
    sim_silo *place = run && w->stage == SIM_RUNS ? sim_silo_pick(w, SIM_SERVING) : NULL;
    if (!place || !sim_fault_happens(s, arg, "%s's workers are stuck", place->node.name))
        return;
    sim_exec_stick(place->silo->node.home.exec);
    sim_trace_add(&s->trace, s->now_ns, place->node.name, "stuck", 0, 0);
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
    w->s.faults.stuck = (unsigned)sim_draw_between(&draw, 1, TIMES_MAX);
    for (unsigned i = 0; i < w->s.faults.stuck; i++)
        sim_at(&w->s, sim_draw_below(&draw, length_ms * SIM_MS), stick_workers,
               sim_fault_plan(&w->s));
}
