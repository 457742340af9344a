/* sim_limits.c - in some of the worlds: silos have few activations at a time, or are short of
 * memory, and counters delay their end.
 * Way:     world -> [limits] -> silos' options, counters' turns; checks after each step, at ends */
#include "directory/shard.h"
#include "sim_world.h"

/* STREAM_LIMITS is chosen so that no seed of seeds.txt that is older draws limits. */
enum { STREAM_LIMITS = 668, LIMITS_OF_1000 = 150 };

void sim_limits_init(sim_world *w)
{
    w->limits = sim_draw_of(w->s.seed, STREAM_LIMITS);
    if (!sim_has_faults(w) || !sim_draw_chance(&w->limits, LIMITS_OF_1000))
        return;
    w->has_limits = true;
    if (sim_draw_chance(&w->limits, 700))
        w->activations_max = (uint32_t)sim_draw_between(&w->limits, 3, 20);
    if (!w->activations_max || sim_draw_chance(&w->limits, 300))
        w->memory_percent = (uint32_t)sim_draw_between(&w->limits, 60, 90);
}

/* The platform's function: each time, another part is used. */
bool sim_limits_read_memory(void *node, teffi_memory_use *use)
{
    sim_world *w = ((sim_node *)node)->sim->world;
    *use = (teffi_memory_use){.limit_bytes = 100,
                              .used_bytes = sim_draw_between(&w->limits, 40, 100),
                              .stalled_percent = (uint32_t)sim_draw_below(&w->limits, 20)};
    return true;
}

/* No silo has more activations than a quarter above its limit, and one. */
void sim_limits_check(sim_world *w)
{
    for (unsigned i = 0; w->activations_max && i < w->n_silos; i++) {
        const sim_silo *place = &w->silos[i];
        const teffi_grains *grains = place->silo ? place->silo->node.grains : NULL;
        uint64_t n = grains ? grains->shards->activations : 0;
        if (n > w->activations_max + w->activations_max / 4 + 1)
            sim_fail(&w->s, "silo %u has %llu activations, over its limit of %u", i,
                     (unsigned long long)n, w->activations_max);
    }
}

/* Draws whether the turn delays the end of its activation, or cancels a delay. */
void sim_limits_delay(sim_silo *place, teff_ctx *ctx, sim_ledger *l)
{
    sim_world *w = place->world;
    if (!w->has_limits || place->node.dead || !sim_draw_chance(&w->limits, 200))
        return;
    int64_t ms = sim_draw_chance(&w->limits, 700) ? (int64_t)sim_draw_below(&w->limits, 2000) : 0;
    teff_delay_deactivation(ctx, ms);
    l->stays_until_ns = ms ? sim_node_now(&place->node) + (uint64_t)ms * SIM_MS : 0;
}

/* Another silo may have taken the grain over, from one that was paused. */
void sim_limits_end(sim_silo *place, const sim_ledger *l, unsigned key, teff_reason why)
{
    if (teffi_reason_is_for_unused((uint8_t)why) && !place->node.dead &&
        l->alive_on == place->no + 1 && sim_node_now(&place->node) < l->stays_until_ns)
        sim_fail(&place->world->s, "counter %u ends during its delay, for reason %d", key, why);
}
