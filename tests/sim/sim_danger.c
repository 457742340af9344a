/* sim_danger.c - in some of the worlds: faults that meet transactions while they end.
 * Way:     world -> [danger] -> sim_store (late batches), sim_wire (late outcomes), silos that do
 *          not reach the store
 * A batch that is very late is written when the lock of a participant has timed out, or when the
 * silo of a participant was declared dead and another silo has the grain. If an outcome is late, an
 * ABORT may arrive after requests of the next attempt, which came another way, through tellers. */
#include "sim_world.h"

/* The stream is chosen so that no seed of seeds.txt that is older draws dangers. */
enum { STREAM_DANGER = 46084465, DANGER_OF_1000 = 350 };

void sim_danger_init(sim_world *w)
{
    sim_faults *f = &w->s.faults;
    w->danger = sim_draw_of(w->s.seed, STREAM_DANGER);
    if (!sim_draw_chance(&w->danger, DANGER_OF_1000) || !sim_has_faults(w) || w->remote_store)
        return;
    /* a heartbeat reads many rows, one after the other: a slow store needs a long lease */
    bool very_late = sim_draw_chance(&w->danger, 700) && !f->store_slow;
    f->late_batches = 400;
    f->batch_late_ms = very_late ? 5000 : 100;
    f->late_outcomes = very_late ? 0 : 400;
}

/* A silo does not reach the store for longer than its lease, while a batch is late: it is declared
 * dead. */
static void cut_silo_from_store(void *world)
{
    sim_world *w = world;
    sim_silo *place = &w->silos[sim_draw_below(&w->danger, w->n_silos)];
    uint64_t lease_ns = w->lease_ms * SIM_MS;
    uint64_t until_ns = w->s.now_ns + sim_draw_between(&w->danger, lease_ns, 3 * lease_ns);
    sim_fault *fault = sim_fault_plan(&w->s);
    if (w->stage == SIM_RUNS && place->state == SIM_SERVING &&
        place->node.cut_until_ns < until_ns &&
        sim_fault_happens(&w->s, fault,
                          "%s does not reach the store for %.1f s, as a batch is late",
                          place->node.name, (double)(until_ns - w->s.now_ns) / 1e9))
        place->node.cut_until_ns = until_ns;
}

void sim_danger_plan(sim_world *w)
{
    sim_faults *f = &w->s.faults;
    if (!f->late_batches || f->late_outcomes)
        return;
    uint32_t short_ms = (uint32_t)sim_draw_between(&w->danger, 600, 1500);
    if (!w->lease_ms)
        w->lease_ms = short_ms;
    f->outages++;
    w->s.batch_is_late = cut_silo_from_store;
}
