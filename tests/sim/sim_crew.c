/* sim_crew.c - in some of the worlds: stateless workers, called by tasks and by each other.
 * Way:     world -> [crew] -> generated stubs -> the cluster -> turns, which check -> ledger */
#include <stdlib.h>
#include "activation/activation.h"
#include "base/bug.h"
#include "call/task.h"
#include "call/wait.h"
#include "directory/shard.h"
#include "sim_world.h"

/* STREAM_CREW is chosen so that no seed of seeds.txt that is older draws crews. */
enum { STREAM_CREW = 8651, CREW_OF_1000 = 150, POOL_MAX = 3, LEVELS_MAX = 2, AT_ONCE_MAX = 6 };

/* ---- the grains ---- */

/* out: how many activations the grain of act has on its silo. */
static unsigned count_pool(const teffi_activation *act)
{
    teffi_ident ident = teffi_activation_ident(act);
    const teffi_shards *shards = act->grains->shards;
    teffi_probe probe;
    unsigned n = 0;
    uint32_t slot =
        teffi_index_find_first(&probe, &teffi_shard_of(act->grains, ident.hash)->index, ident.hash);
    for (; slot; slot = teffi_index_find_next(&probe)) {
        teffi_ident found = teffi_activation_ident(
            teffi_activation_at((teffi_slab *)(uintptr_t)&shards->memory, slot));
        n += teffi_ident_equals(&found, &ident);
    }
    return n;
}

/* No silo has more activations of the grain than pool_max, none is in the directory, and each runs
 * one turn at a time. */
static void check_turn(sim_silo *place, teff_ctx *ctx, unsigned key)
{
    const teffi_activation *act = teffi_activation_of_ctx(ctx);
    sim *s = &place->world->s;
    if (place->node.dead)
        return;
    sim_check_lease(place, SIM_CREW, key);
    unsigned n = count_pool(act);
    if (n > place->world->info[SIM_CREW].pool_max)
        sim_fail(s, "silo %u has %u activations of crew %u", place->no, n, key);
    if (act->registered)
        sim_fail(s, "an activation of crew %u is in the directory", key);
    if (act->running != 1)
        sim_fail(s, "an activation of crew %u runs %u turns at once", key, act->running);
}

static teff_err crew_activate(world_crew *self)
{
    sim_silo *place = self->user;
    if (!place->node.dead)
        sim_check_lease(place, SIM_CREW, (unsigned)self->key);
    if (sim_draw_chance(&place->world->crew, 300))
        teffi_ctx_sleep(self->ctx, 2);
    return TEFF_OK;
}

static teff_err crew_deactivate(world_crew *self, teff_reason why)
{
    (void)why;
    if (sim_draw_chance(&((sim_silo *)self->user)->world->crew, 300))
        teffi_ctx_sleep(self->ctx, 2);
    return TEFF_OK;
}

/* Asks the crew before this one several times at once, so there is no cycle. */
static void ask_crew_before(sim_silo *place, teff_ctx *ctx, unsigned key, const world_job *in)
{
    enum { N = 2 };
    const world_job *job = world_job(.pause_ms = in->pause_ms, .levels = in->levels - 1);
    sim_call begun[N];
    teff_call calls[N];
    teff_err err[N];
    for (int i = 0; i < N; i++) {
        begun[i] = sim_call_begins_in(place, SIM_CREW, key - 1, 1);
        err[i] = world_crew_work_async(ctx, key - 1, job, NULL, &calls[i]);
    }
    for (int i = 0; i < N; i++) {
        err[i] = err[i] ? err[i] : world_crew_work_await(ctx, calls[i], NULL);
        sim_call_ended(place->world, ctx, begun[i], err[i], NULL);
    }
}

static teff_err crew_work(world_crew *self, const world_job *in, world_total *out)
{
    sim_silo *place = self->user;
    unsigned key = (unsigned)self->key;
    check_turn(place, self->ctx, key);
    place->world->crew_ran[key]++;
    out->count = place->no + 1;
    if (in->pause_ms)
        teffi_ctx_sleep(self->ctx, in->pause_ms);
    if (in->levels && key)
        ask_crew_before(place, self->ctx, key, in);
    check_turn(place, self->ctx, key);
    if (in->end)
        teff_deactivate(self->ctx);
    return TEFF_OK;
}

/* One silo may not host the type, if calls may fail: all others may be away. */
void sim_crew_host(sim_silo *place)
{
    static const world_crew_methods methods = {
        .work = crew_work, .on_activate = crew_activate, .on_deactivate = crew_deactivate};
    static const world_crew_methods bare = {.work = crew_work};
    sim_world *w = place->world;
    if (!w->has_crew || sim_crew_is_missing(place))
        return;
    teff_grain_type *type = teff_grain_type_new(
        &w->info[SIM_CREW], w->s.seed % 2 ? (const void *)&methods : &bare, place);
    teffi_bug_if(!type || teff_silo_host(place->silo, type) != TEFF_OK);
}

/* ---- callers ---- */

/* A call from a silo that hosts the type, and does not leave, runs there. */
static void check_where(const sim_guest *c, unsigned key, const world_total *total)
{
    if (c->place && sim_guest_stays(c) && !sim_crew_is_missing(c->place) &&
        total->count != c->place->no + 1)
        sim_fail(&c->world->s, "a call of silo %u to crew %u has run on silo %u", c->place->no, key,
                 (unsigned)total->count - 1);
}

static void send_to_crew(sim_world *w, teff_ctx *ctx, unsigned key, const world_job *job)
{
    sim_call call = sim_call_begins(w, SIM_CREW, key, 1);
    teff_err err = world_crew_work_send(ctx, key, job);
    sim_call_ended(w, ctx, call, !err && !sim_calm(w) ? TEFF_E_UNKNOWN : err, NULL);
}

/* Asks one crew, some times at once. */
static void ask_crew(const sim_guest *c, teff_ctx *ctx)
{
    sim_world *w = c->world;
    bool hurried = sim_draw_chance(&w->crew, w->s.faults.timeouts) && !w->s.left_out.timeouts;
    const teff_call_options opt = {.size = sizeof opt,
                                   .timeout_ms =
                                       hurried ? (uint32_t)sim_draw_between(&w->crew, 1, 60) : 0};
    unsigned key = (unsigned)sim_draw_below(&w->crew, SIM_KEYS);
    unsigned n = (unsigned)sim_draw_between(&w->crew, 1, AT_ONCE_MAX);
    world_job job =
        *world_job(.pause_ms =
                       sim_draw_chance(&w->crew, 500) ? (uint32_t)sim_draw_below(&w->crew, 30) : 0,
                   .end = sim_draw_chance(&w->crew, 100),
                   .levels = sim_draw_chance(&w->crew, 300)
                                 ? (uint32_t)sim_draw_between(&w->crew, 1, LEVELS_MAX)
                                 : 0);
    sim_call begun[AT_ONCE_MAX];
    teff_call calls[AT_ONCE_MAX];
    teff_err err[AT_ONCE_MAX];
    if (sim_draw_chance(&w->crew, 200))
        send_to_crew(w, ctx, key, &job);
    for (unsigned i = 0; i < n; i++) {
        begun[i] = sim_call_begins(w, SIM_CREW, key, 1);
        err[i] = world_crew_work_async(ctx, key, &job, &opt, &calls[i]);
    }
    for (unsigned i = 0; i < n; i++) {
        world_total *total = NULL;
        err[i] = err[i] ? err[i] : world_crew_work_await(ctx, calls[i], &total);
        sim_call_ended(w, ctx, begun[i], err[i], NULL);
        if (!err[i])
            check_where(c, key, total);
    }
}

static void call_crew(teff_ctx *ctx, void *arg)
{
    sim_guest c = *(sim_guest *)arg;
    free(arg);
    while (c.n_calls-- && sim_guest_stays(&c)) {
        ask_crew(&c, ctx);
        teffi_ctx_sleep(ctx, (uint32_t)sim_draw_below(&c.world->crew, 60));
    }
    c.world->callers--;
}

/* Starts a caller, and draws when to start the next one. */
static void draw_crew(sim *s, void *arg, bool run)
{
    sim_world *w = arg;
    if (!run || w->stage != SIM_RUNS)
        return;
    sim_guest_start(w, &w->crew, call_crew, "crew");
    sim_at(s, sim_draw_below(&w->crew, 300 * SIM_MS), draw_crew, w);
}

bool sim_crew_is_missing(const sim_silo *place)
{
    return place->no == place->world->crew_missing && !sim_calm(place->world);
}

void sim_crew_init(sim_world *w)
{
    w->crew = sim_draw_of(w->s.seed, STREAM_CREW);
    w->has_crew = sim_has_faults(w) && sim_draw_chance(&w->crew, CREW_OF_1000);
    w->crew_missing = (unsigned)sim_draw_below(&w->crew, SIM_SILOS_MAX);
    w->info[SIM_CREW] = world_crew_info;
    w->info[SIM_CREW].pool_max = (uint32_t)sim_draw_between(&w->crew, 1, POOL_MAX);
    w->info[SIM_CREW].idle_ms = (uint32_t)sim_draw_between(&w->crew, 40, 2000);
}

void sim_crew_plan(sim_world *w)
{
    if (w->has_crew)
        sim_at(&w->s, 100 * SIM_MS, draw_crew, w);
}
