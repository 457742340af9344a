/* sim_restart.c - in some of the worlds with a remote store: the seed is killed, and started again
 * at its address. Its store still has the rows.
 * Way:     world -> [restart] -> world
 * Mostly it is back before the leases of the others end: they go on. Otherwise they start again. */
#include "sim_world.h"

/* SHORT_MS: with a lease of 10 s and a heartbeat each 2 s, there is time to start, and to dial. */
enum { STREAM_RESTART = 4711, RESTART_OF_1000 = 400, RESTARTS_MAX = 3 };
enum { SHORT_MS = 3000, LONGEST_MS = 15000 };

void sim_restart_init(sim_world *w)
{
    w->restarts = sim_draw_of(w->s.seed, STREAM_RESTART);
    bool drawn = sim_draw_chance(&w->restarts, RESTART_OF_1000) && w->s.plant == SIM_PLANT_NONE;
    if (drawn && w->remote_store)
        w->s.faults.restarts = (unsigned)sim_draw_between(&w->restarts, 1, RESTARTS_MAX);
}

/* The seed is away for longer than drawn if its tasks end late. It may fail to start, when it does
 * not reach a silo that is alive: then it tries again. If it is killed again meanwhile, the later
 * kill alone starts it. When it has left, nothing starts it. */
static void start_seed_until_it_serves(sim *s, void *arg, bool run)
{
    sim_world *w = arg;
    if (!run || w->stage > SIM_DRAINS || s->now_ns < w->back_ns || w->silos[0].state == SIM_SERVING)
        return;
    if (w->silos[0].state == SIM_AWAY) {
        w->away_long |= s->now_ns - w->killed_ns > SHORT_MS * SIM_MS;
        sim_silo_start(&w->silos[0]);
    }
    sim_at(s, SIM_SECOND, start_seed_until_it_serves, w);
}

static void kill_seed(sim *s, void *arg, bool run)
{
    sim_world *w = s->world;
    if (!run || w->stage != SIM_RUNS || w->silos[0].state != SIM_SERVING)
        return;
    uint64_t longest_ms = sim_draw_chance(&w->restarts, 700) ? SHORT_MS : LONGEST_MS;
    uint64_t away_ns = sim_draw_between(&w->restarts, 1, longest_ms) * SIM_MS;
    if (!sim_fault_happens(s, arg, "the seed is killed, and is away for %.1f s",
                           (double)away_ns / 1e9))
        return;
    w->killed_ns = s->now_ns;
    w->back_ns = s->now_ns + away_ns;
    sim_trace_add(&s->trace, s->now_ns, "world", "restart", away_ns, 0);
    sim_silo_kill(&w->silos[0]);
    sim_at(s, away_ns, start_seed_until_it_serves, w);
}

void sim_restart_check_lost(sim_silo *place)
{
    const sim_world *w = place->world;
    const sim_faults *f = &w->s.faults;
    bool back = w->silos[0].state == SIM_SERVING && !w->away_long;
    if (w->remote_store && place->no > 0 && back && !w->store_faults && !f->cuts && !f->store_slow)
        sim_fail(&place->world->s, "silo %u has lost its lease, though its seed has come back",
                 place->no);
}

void sim_restart_plan(sim_world *w, uint64_t length_ms)
{
    for (unsigned i = 0; i < w->s.faults.restarts; i++)
        sim_at(&w->s, sim_draw_below(&w->restarts, length_ms * SIM_MS), kill_seed,
               sim_fault_plan(&w->s));
}
