/* sim_faults.c - which faults a run has, when they happen, and to whom.
 * Way:     world -> [faults] -> sim_net, sim_store, the silos' nodes; sim_danger, sim_split
 * A fault that is left out (sim_fault_list.h) draws as before; what the others excuse stays. */
#include "sim_world.h"

/* STREAM_HOLDS is chosen so that only the last ones of the seeds in seeds.txt draw holds. */
enum {
    STREAM_OUTAGES = 301,
    STREAM_PAUSES = 302,
    STREAM_CLOCKS = 303,
    STREAM_MUTES = 304,
    STREAM_BLACKOUTS = 305,
    STREAM_HOLDS = 3261
};

static const uint64_t day_ns = 86400 * SIM_SECOND;
static const int64_t slow_ppm = 600000;

/* ---- what happens ---- */

static void draw_cut(sim *s, void *arg, bool run)
{
    sim_world *w = s->world;
    if (run && w->stage == SIM_RUNS)
        w->has_cut |= sim_net_cut(s, arg);
}

static void draw_stall(sim *s, void *arg, bool run)
{
    const sim_world *w = s->world;
    if (run && w->stage == SIM_RUNS)
        sim_net_stall(s, arg);
}

static void draw_part(sim *s, void *arg, bool run)
{
    const sim_world *w = s->world;
    if (run && w->stage == SIM_RUNS)
        sim_net_part(s, arg);
}

static void draw_mute(sim *s, void *arg, bool run)
{
    sim_world *w = s->world;
    if (run && w->stage == SIM_RUNS)
        sim_net_mute(s, arg, &w->mutes);
}

static void draw_crash(sim *s, void *arg, bool run)
{
    sim_world *w = s->world;
    sim_silo *place = run && w->stage == SIM_RUNS ? sim_silo_pick(w, SIM_SERVING) : NULL;
    if (!place || sim_silos_count(w, SIM_SERVING) < 2 ||
        !sim_fault_happens(s, arg, "%s crashes", place->node.name))
        return;
    if (s->plant == SIM_PLANT_PAIRED && w->has_cut)
        sim_fail(s, "a silo crashes after a connection was cut");
    sim_silo_kill(place);
}

/* Longer than a lease, mostly. */
static void draw_outage(sim *s, void *arg, bool run)
{
    sim_world *w = s->world;
    sim_silo *place = run && w->stage == SIM_RUNS ? sim_silo_pick(w, SIM_SERVING) : NULL;
    if (!place)
        return;
    uint64_t length_ns = sim_draw_between(&w->outages, 2 * SIM_SECOND, 40 * SIM_SECOND);
    if (sim_fault_happens(s, arg, "%s does not reach the store for %.1f s", place->node.name,
                          (double)length_ns / 1e9))
        place->node.cut_until_ns = s->now_ns + length_ns;
}

/* The store is away for all silos that serve, but perhaps for one, and not for equally long. One
 * that starts meanwhile reaches it. */
static void draw_blackout(sim *s, void *arg, bool run)
{
    sim_world *w = s->world;
    uint64_t lease_ns = w->lease_ms * SIM_MS;
    uint64_t length_ns = sim_draw_between(&w->blackouts, lease_ns / 2, 8 * lease_ns);
    unsigned spared = (unsigned)sim_draw_below(&w->blackouts, 2 * w->n_silos);
    if (!run || w->stage != SIM_RUNS)
        return;
    bool happens = sim_fault_happens(
        s, arg, "the silos that serve, all%s%s, do not reach the store for %.1f to %.1f s",
        spared < w->n_silos ? " but " : "", spared < w->n_silos ? w->silos[spared].node.name : "",
        (double)length_ns / 1e9, (double)(length_ns + lease_ns) / 1e9);
    for (unsigned i = 0; i < w->n_silos; i++)
        if (i != spared && w->silos[i].state == SIM_SERVING) {
            uint64_t until_ns = s->now_ns + length_ns + sim_draw_below(&w->blackouts, lease_ns);
            if (happens)
                w->silos[i].node.cut_until_ns = until_ns;
        }
}

/* Its store, or what that responds, is late: up to three leases. If the results are late, but come
 * while the lease is not over, the silo does not reach the store afterwards. */
static void draw_hold(sim *s, void *arg, bool run)
{
    sim_world *w = s->world;
    sim_silo *place = run && w->stage == SIM_RUNS ? sim_silo_pick(w, SIM_SERVING) : NULL;
    if (!place || place->node.cut_until_ns > s->now_ns || place->node.held_until_ns > s->now_ns)
        return;
    bool at_end = sim_draw_chance(&w->holds, 500);
    uint64_t lease_ns = w->lease_ms * SIM_MS;
    uint64_t least_ns = at_end ? lease_ns / 2 : 0;
    uint64_t most_ns = at_end ? lease_ns : 3 * lease_ns;
    uint64_t length_ns = sim_draw_between(&w->holds, least_ns, most_ns);
    uint64_t cut_ns = at_end ? sim_draw_between(&w->holds, lease_ns, 2 * lease_ns) : 0;
    if (!sim_fault_happens(s, arg, "%s of %s's store are late, up to %.1f s%s",
                           at_end ? "results" : "operations", place->node.name,
                           (double)length_ns / 1e9, at_end ? "; then it does not reach it" : ""))
        return;
    place->node.held_at_end = at_end;
    place->node.held_until_ns = s->now_ns + length_ns;
    if (at_end)
        place->node.cut_until_ns = place->node.held_until_ns + cut_ns;
    sim_trace_add(&s->trace, s->now_ns, place->node.name, "held", length_ns, at_end);
}

/* From a hiccup to longer than all time limits. */
static void draw_pause(sim *s, void *arg, bool run)
{
    sim_world *w = s->world;
    sim_silo *place = run && w->stage == SIM_RUNS ? sim_silo_pick(w, SIM_SERVING) : NULL;
    if (!place)
        return;
    uint64_t longest_ms = sim_draw_chance(&w->pauses, 300) ? 2000 : 40000;
    uint64_t pause_ns = sim_draw_between(&w->pauses, 100, longest_ms) * SIM_MS;
    if (!sim_fault_happens(s, arg, "%s is paused for %.1f s", place->node.name,
                           (double)pause_ns / 1e9))
        return;
    place->node.paused_until_ns = s->now_ns + pause_ns;
    if (s->paused_until_ns < place->node.paused_until_ns)
        s->paused_until_ns = place->node.paused_until_ns;
    sim_trace_add(&s->trace, s->now_ns, place->node.name, "paused", pause_ns, 0);
    sim_net_pause(place->silo->node.home.net);
}

/* ---- what is drawn for a run ---- */

/* Most planted bugs are to be found without faults. */
bool sim_has_faults(const sim_world *w)
{
    return w->s.plant == SIM_PLANT_NONE || w->s.plant == SIM_PLANT_PAIRED;
}

/* Drawn from a stream of its own, so that most worlds stay the same. Not with a remote store: there
 * a late operation has failed. */
static void draw_stalls(sim_world *w)
{
    if (sim_draw_chance(&w->s.stall, 250) && !w->remote_store)
        w->s.faults.stalls = (unsigned)sim_draw_between(&w->s.stall, 1, 40);
}

static void draw_rates_and_cuts(sim_world *w)
{
    sim_faults *f = &w->s.faults;
    f->store_slow = sim_draw_chance(&w->draw, 300) ? 50 : 0;
    if (!sim_has_faults(w) || sim_draw_chance(&w->draw, 500))
        return;
    f->store_unknown =
        sim_draw_chance(&w->draw, 400) ? (unsigned)sim_draw_between(&w->draw, 5, 60) : 0;
    w->store_faults = f->store_unknown > 0;
    f->cuts = sim_draw_chance(&w->draw, 500) ? (unsigned)sim_draw_between(&w->draw, 1, 12) : 0;
    f->timeouts =
        sim_draw_chance(&w->draw, 300) ? (unsigned)sim_draw_between(&w->draw, 10, 300) : 0;
}

void sim_faults_init(sim_world *w)
{
    draw_rates_and_cuts(w);
    draw_stalls(w);
}

/* In some of the worlds with processes; not with a remote store, whose operations would fail. */
void sim_disasters_init(sim_world *w)
{
    sim_faults *f = &w->s.faults;
    if (w->remote_store || !w->processes || !sim_has_faults(w) || w->split_alone)
        return;
    f->parts = sim_draw_chance(&w->draw, 400) ? (unsigned)sim_draw_between(&w->draw, 1, 6) : 0;
    f->crashes = sim_draw_chance(&w->draw, 400) ? (unsigned)sim_draw_between(&w->draw, 1, 3) : 0;
}

static void list_store_rates(sim_world *w)
{
    const sim_faults *f = &w->s.faults;
    sim_left_out *out = &w->s.left_out;
    if (f->store_unknown)
        out->store_unknown =
            !sim_fault_is_in_run(&w->s, "the outcome of %.1f %% of the store's writes is unknown",
                                 f->store_unknown / 10.0);
    if (f->store_slow)
        out->store_slow = !sim_fault_is_in_run(
            &w->s, "%.1f %% of the store's operations take up to 500 ms", f->store_slow / 10.0);
    if (f->late_batches)
        out->late_batches = !sim_fault_is_in_run(
            &w->s, "%.1f %% of the batches of transactions begin up to %u ms late",
            f->late_batches / 10.0, f->batch_late_ms);
}

void sim_faults_list_rates(sim_world *w)
{
    const sim_faults *f = &w->s.faults;
    sim_left_out *out = &w->s.left_out;
    list_store_rates(w);
    if (f->late_outcomes)
        out->late_outcomes = !sim_fault_is_in_run(
            &w->s, "%.1f %% of the outcomes of transactions arrive late", f->late_outcomes / 10.0);
    if (f->timeouts)
        out->timeouts = !sim_fault_is_in_run(&w->s, "%.1f %% of the calls have a short time limit",
                                             f->timeouts / 10.0);
    if (f->skews)
        out->skews = !sim_fault_is_in_run(&w->s, "the clocks of the nodes differ");
}

/* ---- clocks ---- */

/* In a third of the worlds each node has clocks of its own, which differ by 4 % at most: less than
 * what the lease allows for. A silo that starts again may find its wall clock set anew. */
void sim_clocks_init(sim_world *w)
{
    w->clocks = sim_draw_of(w->s.seed, STREAM_CLOCKS);
    w->s.faults.skews = sim_has_faults(w) && sim_draw_chance(&w->clocks, 333);
}

void sim_clocks_draw(sim_world *w, sim_node *node)
{
    enum { PPM_MAX = 20000 };
    if (w->s.plant == SIM_PLANT_SKEWED && node->no % 2)
        node->fast_ppm = -slow_ppm;
    if (!w->s.faults.skews)
        return;
    uint64_t offset_ns = sim_draw_below(&w->clocks, day_ns);
    int64_t fast_ppm = (int64_t)sim_draw_between(&w->clocks, 0, 2 * PPM_MAX) - PPM_MAX;
    uint64_t wall_ns = sim_draw_below(&w->clocks, 365 * day_ns);
    if (w->s.left_out.skews)
        return;
    node->offset_ns = offset_ns;
    node->fast_ppm = fast_ppm;
    node->wall_ns += wall_ns;
}

void sim_clocks_set_again(sim_world *w, sim_node *node)
{
    if (!w->s.faults.skews)
        return;
    uint64_t change_ns = sim_draw_below(&w->clocks, 2 * day_ns) - day_ns;
    if (!w->s.left_out.skews)
        node->wall_ns += change_ns;
}

/* ---- when it happens ---- */

/* As many faults of one kind, each at a time drawn from `draw`. */
static void plan_faults(sim_world *w, unsigned n, sim_draw *draw, uint64_t length_ms, sim_fn *fn)
{
    for (unsigned i = 0; i < n; i++)
        sim_at(&w->s, sim_draw_below(draw, length_ms * SIM_MS), fn, sim_fault_plan(&w->s));
}

/* Drawn from a stream of its own, as stalls are. */
static void plan_outages(sim_world *w, uint64_t length_ms)
{
    bool planted = w->s.plant == SIM_PLANT_ENDLESS || w->s.plant == SIM_PLANT_SKEWED;
    w->outages = sim_draw_of(w->s.seed, STREAM_OUTAGES);
    bool drawn = sim_has_faults(w) && sim_draw_chance(&w->outages, 200);
    if (w->remote_store || (!drawn && !planted))
        return;
    w->s.faults.outages = (unsigned)sim_draw_between(&w->outages, 1, 4);
    plan_faults(w, w->s.faults.outages, &w->outages, length_ms, draw_outage);
}

/* Drawn from a stream of its own, as stalls are. Not with a remote store, whose operations fail. */
static void plan_mutes(sim_world *w, uint64_t length_ms)
{
    w->mutes = sim_draw_of(w->s.seed, STREAM_MUTES);
    bool drawn = sim_has_faults(w) && sim_draw_chance(&w->mutes, 200);
    if (w->remote_store || !drawn)
        return;
    w->s.faults.mutes = (unsigned)sim_draw_between(&w->mutes, 1, 6);
    plan_faults(w, w->s.faults.mutes, &w->mutes, length_ms, draw_mute);
}

/* As draw_stalls; with short leases, so that silos are declared dead while others call them. */
static void plan_holds(sim_world *w, uint64_t length_ms)
{
    w->holds = sim_draw_of(w->s.seed, STREAM_HOLDS);
    bool drawn = sim_has_faults(w) && sim_draw_chance(&w->holds, 250);
    if (w->remote_store || !drawn)
        return;
    uint32_t short_ms = (uint32_t)sim_draw_between(&w->holds, 800, 3000);
    /* a heartbeat reads many rows, one after the other: a slow store needs a long lease */
    w->lease_ms = w->s.faults.store_slow ? TEFFI_LEASE_MS : short_ms;
    w->s.faults.holds = (unsigned)sim_draw_between(&w->holds, 1, 4);
    plan_faults(w, w->s.faults.holds, &w->holds, length_ms, draw_hold);
}

/* Drawn from a stream of its own, as stalls are. Leases are extended by promises meanwhile, for
 * shorter and for longer than the store is away. Not with a remote store. */
static void plan_blackouts(sim_world *w, uint64_t length_ms)
{
    w->blackouts = sim_draw_of(w->s.seed, STREAM_BLACKOUTS);
    bool drawn = sim_has_faults(w) && sim_draw_chance(&w->blackouts, 200);
    if (w->remote_store || !drawn)
        return;
    uint32_t short_ms = (uint32_t)sim_draw_between(&w->blackouts, 800, 3000);
    if (!w->lease_ms)
        w->lease_ms = w->s.faults.store_slow ? TEFFI_LEASE_MS : short_ms;
    w->outage_ms = (uint32_t)sim_draw_between(&w->blackouts, 1, 6) * w->lease_ms;
    w->s.faults.blackouts = (unsigned)sim_draw_between(&w->blackouts, 1, 4);
    plan_faults(w, w->s.faults.blackouts, &w->blackouts, length_ms, draw_blackout);
}

/* Drawn from a stream of its own, as stalls are. Not with a remote store, whose operations fail. */
static void plan_pauses(sim_world *w, uint64_t length_ms)
{
    w->pauses = sim_draw_of(w->s.seed, STREAM_PAUSES);
    bool drawn = sim_has_faults(w) && sim_draw_chance(&w->pauses, 200);
    if (w->remote_store || !drawn)
        return;
    w->s.faults.pauses = (unsigned)sim_draw_between(&w->pauses, 1, 4);
    w->s.faults.late_timers = sim_draw_chance(&w->s.late, 500);
    if (w->s.faults.late_timers)
        w->s.left_out.late_timers =
            !sim_fault_is_in_run(&w->s, "after a pause, timers fire up to 20 ms late");
    plan_faults(w, w->s.faults.pauses, &w->pauses, length_ms, draw_pause);
}

void sim_faults_plan(sim_world *w, uint64_t length_ms)
{
    const sim_faults *f = &w->s.faults;
    plan_faults(w, f->cuts, &w->draw, length_ms, draw_cut);
    plan_faults(w, f->stalls, &w->s.stall, length_ms, draw_stall);
    plan_faults(w, f->parts, &w->draw, length_ms, draw_part);
    plan_faults(w, f->crashes, &w->draw, length_ms, draw_crash);
    if (!w->split_alone) {
        plan_outages(w, length_ms);
        plan_pauses(w, length_ms);
        plan_mutes(w, length_ms);
        plan_holds(w, length_ms);
        plan_blackouts(w, length_ms);
        sim_stuck_plan(w, length_ms);
    }
    sim_danger_plan(w);
    sim_split_plan(w, length_ms);
    sim_restart_plan(w, length_ms);
}
