/* sim_split.c - in some of the worlds: the silos are split into two parts, which reach the store
 * and the clients, but not each other.
 * Way:     world -> [split] -> sim_net
 * If the split lasts, the silos of one part must go; the other part then serves all grains. */
#include "sim_world.h"

#include "directory/partition.h"

/* SETTLED_S: after so long, in a world without other faults, those that had to go have gone: a
 * silo notices the split after 5 s, judges 15 s later, and falls silent for 10.5 s. */
enum { STREAM_SPLIT = 77, SPLIT_OF_1000 = 120, SETTLED_S = 45, LONGEST_S = 160 };

void sim_split_init(sim_world *w)
{
    w->splits = sim_draw_of(w->s.seed, STREAM_SPLIT);
    bool splits =
        sim_draw_chance(&w->splits, SPLIT_OF_1000) && sim_has_faults(w) && !w->remote_store;
    w->split_alone = splits && sim_draw_chance(&w->splits, 600);
    if (w->split_alone) {
        w->s.faults = (sim_faults){0};
        w->store_faults = false;
    }
    w->s.faults.splits = splits;
}

/* Has a silo begun to serve a short time ago? Two silos that join at the same moment do not see
 * each other, so perhaps one of them must go now. */
static bool has_new_silo(const sim_world *w)
{
    for (unsigned i = 0; i < w->n_silos; i++)
        if (w->silos[i].state == SIM_SERVING &&
            w->s.now_ns - w->silos[i].serves_ns < SETTLED_S * SIM_SECOND)
            return true;
    return false;
}

/* Fails the run if a silo that serves does not reach another one that serves, or if a partition of
 * the directory is locked. Checks later if a silo is new. */
static void check_split_has_ended(sim *s, void *arg, bool run)
{
    sim_world *w = arg;
    unsigned parts = 0;
    if (!run || s->now_ns >= s->split_until_ns || !w->split_alone)
        return;
    if (has_new_silo(w)) {
        sim_at(s, SIM_SECOND, check_split_has_ended, w);
        return;
    }
    for (unsigned i = 0; i < w->n_silos; i++) {
        const sim_silo *place = &w->silos[i];
        if (place->state != SIM_SERVING)
            continue;
        parts |= 1u << place->node.part;
        if (teffi_partitions_begin_recovery_round(place->silo->node.grains, NULL))
            sim_fail(s, "silo %u has locked partitions, though the split has lasted", place->no);
    }
    if (parts == 3)
        sim_fail(s, "both parts serve, though the split has lasted");
}

static void split_silos(sim *s, void *arg, bool run)
{
    sim_world *w = s->world;
    if (!run || w->stage != SIM_RUNS)
        return;
    unsigned first = (unsigned)sim_draw_below(&w->splits, w->n_silos);
    for (unsigned i = 0; i < w->n_silos; i++) /* the first one, and the next, are in two parts */
        w->silos[(first + i) % w->n_silos].node.part =
            i < 2 ? i : (unsigned)sim_draw_below(&w->splits, 2);
    uint64_t length_ns = sim_draw_between(&w->splits, 2 * SIM_SECOND, LONGEST_S * SIM_SECOND);
    if (!sim_fault_happens(s, arg, "split of the silos for %.1f s", (double)length_ns / 1e9))
        return;
    s->split_until_ns = s->now_ns + length_ns;
    sim_trace_add(&s->trace, s->now_ns, "world", "split", length_ns, 0);
    sim_net_split(s);
    sim_at(s, SETTLED_S * SIM_SECOND, check_split_has_ended, w);
}

void sim_split_plan(sim_world *w, uint64_t length_ms)
{
    if (w->s.faults.splits)
        sim_at(&w->s, sim_draw_below(&w->splits, length_ms * SIM_MS), split_silos,
               sim_fault_plan(&w->s));
}
