/* sim_blackout.c - in some of the worlds: no silo reaches the store for a while.
 * Way:     world -> [blackout] -> silos that do not reach the store */
#include "sim_world.h"

enum { STREAM_BLACKOUTS = 305 };

/* The store is away for all silos that serve, but perhaps for one, and not for equally long. One
 * that starts meanwhile reaches it. */
static void cut_all_from_store(sim *s, void *arg, bool run)
{
    sim_world *w = arg;
    uint64_t lease_ns = w->lease_ms * SIM_MS;
    uint64_t until_ns = s->now_ns + sim_draw_between(&w->blackouts, lease_ns / 2, 8 * lease_ns);
    unsigned spared = (unsigned)sim_draw_below(&w->blackouts, 2 * w->n_silos);
    if (!run || w->stage != SIM_RUNS)
        return;
    for (unsigned i = 0; i < w->n_silos; i++)
        if (i != spared && w->silos[i].state == SIM_SERVING)
            w->silos[i].node.cut_until_ns = until_ns + sim_draw_below(&w->blackouts, lease_ns);
}

/* Leases are extended by promises meanwhile, for
 * shorter and for longer than the store is away. Not with a remote store. */
void sim_blackouts_plan(sim_world *w, uint64_t length_ms)
{
    w->blackouts = sim_draw_of(w->s.seed, STREAM_BLACKOUTS);
    bool drawn = w->s.plant == SIM_PLANT_NONE && sim_draw_chance(&w->blackouts, 200);
    if (w->remote_store || !drawn)
        return;
    uint32_t short_ms = (uint32_t)sim_draw_between(&w->blackouts, 800, 3000);
    if (!w->lease_ms)
        w->lease_ms = w->s.faults.store_slow ? TEFFI_LEASE_MS : short_ms;
    w->outage_ms = (uint32_t)sim_draw_between(&w->blackouts, 1, 6) * w->lease_ms;
    w->s.faults.blackouts = (unsigned)sim_draw_between(&w->blackouts, 1, 4);
    for (unsigned i = 0; i < w->s.faults.blackouts; i++)
        sim_at(&w->s, sim_draw_below(&w->blackouts, length_ms * SIM_MS), cut_all_from_store, w);
}
