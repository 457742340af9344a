/* sim_keyed.c - in some of the worlds: calls with idempotency keys, made again until they end well.
 * Way:     world -> [keyed] -> generated stubs -> the cluster -> ledger: each counts once */
#include <stdlib.h>
#include <string.h>
#include "base/bug.h"
#include "call/task.h"
#include "call/wait.h"
#include "sim_world.h"

enum { STREAM_KEYED = 305, TRIES = 8, TIMEOUT_MS = 10000, ANSWERS = 1000 };

/* One call, however often it is made. */
typedef struct once {
    char name[16];
    teff_uuid id;
    world_step step;
    uint64_t count; /* that it responded with */
} once;

/* It differs from sim_call_ended()'s errors: the next save may write what the store has refused. */
static teff_err outcome_of(const sim_world *w, teff_err err)
{
    return err && !sim_calm(w) ? TEFF_E_UNKNOWN : err;
}

static teff_err ask_once(sim_world *w, teff_ctx *ctx, const once *o, uint64_t *count)
{
    bool hurried = sim_draw_chance(&w->keyed, w->s.faults.timeouts) && !w->s.left_out.timeouts;
    const teff_call_options opt = {
        .size = sizeof opt,
        .timeout_ms = hurried ? (uint32_t)sim_draw_between(&w->keyed, 1, 60) : TIMEOUT_MS,
        .once = &o->id};
    teff_call call;
    world_total *total;
    teff_err err = world_keyed_add_async(ctx, o->name, &o->step, &opt, &call);
    if (!err)
        err = world_keyed_add_await(ctx, call, &total);
    if (!err)
        *count = total->count;
    return err;
}

/* The same call gets the same answer; with another request its key is refused. */
static void ask_again(sim_world *w, teff_ctx *ctx, once *o)
{
    uint64_t count = o->count;
    if (sim_draw_chance(&w->keyed, 300)) /* the grain may move or rest */
        teffi_ctx_sleep(ctx, (uint32_t)sim_draw_below(&w->keyed, 3000));
    teff_err err = ask_once(w, ctx, o, &count);
    if (count != o->count || err == TEFF_E_INVALID)
        sim_fail(&w->s, "keyed %s: %llu (%s) at the second time, %llu at the first", o->name,
                 (unsigned long long)count, teff_err_name(err), (unsigned long long)o->count);
    if (!sim_draw_chance(&w->keyed, 200))
        return;
    o->step.by++;
    if (!ask_once(w, ctx, o, &count))
        sim_fail(&w->s, "keyed %s: a key counts for two requests", o->name);
}

static void add_once(const sim_guest *k, teff_ctx *ctx)
{
    sim_world *w = k->world;
    once o = {.count = 0};
    unsigned key = (unsigned)sim_draw_below(&w->keyed, SIM_KEYS);
    uint64_t id[2] = {sim_draw_next(&w->keyed), sim_draw_next(&w->keyed)};
    memcpy(o.id.bytes, id, sizeof id);
    sim_key_name(key, o.name);
    o.step = *world_step(.by = sim_draw_between(&w->keyed, 1, 3),
                         .pause_ms = sim_draw_chance(&w->keyed, 200)
                                         ? (uint32_t)sim_draw_below(&w->keyed, 30)
                                         : 0,
                         .end = sim_draw_chance(&w->keyed, 500));
    sim_call call = sim_call_begins(w, SIM_KEYED, key, o.step.by);
    teff_err err = ask_once(w, ctx, &o, &o.count);
    for (int i = 1; i < TRIES && err && !sim_calm(w) && sim_guest_stays(k); i++) {
        teffi_ctx_sleep(ctx, (uint32_t)sim_draw_below(&w->keyed, 500));
        err = ask_once(w, ctx, &o, &o.count);
    }
    world_total total = *world_total(.count = o.count);
    sim_call_ended(w, ctx, call, outcome_of(w, err), &total);
    if (!err && sim_draw_chance(&w->keyed, 300))
        ask_again(w, ctx, &o);
}

static void call_keyed(teff_ctx *ctx, void *arg)
{
    sim_guest k = *(sim_guest *)arg;
    free(arg);
    while (k.n_calls-- && sim_guest_stays(&k)) {
        add_once(&k, ctx);
        teffi_ctx_sleep(ctx, (uint32_t)sim_draw_below(&k.world->keyed, 60));
    }
    k.world->callers--;
}

/* Starts a caller, and draws when to start the next one. */
static void draw_keyed(sim *s, void *arg, bool run)
{
    sim_world *w = arg;
    if (!run || w->stage != SIM_RUNS)
        return;
    sim_guest_start(w, &w->keyed, call_keyed, "keyed");
    sim_at(s, sim_draw_below(&w->keyed, 300 * SIM_MS), draw_keyed, w);
}

void sim_keyed_init(sim_world *w)
{
    bool planted = w->s.plant == SIM_PLANT_FORGOTTEN || w->s.plant == SIM_PLANT_KEYLESS;
    w->keyed = sim_draw_of(w->s.seed, STREAM_KEYED);
    bool drawn = sim_has_faults(w) && sim_draw_chance(&w->keyed, 300);
    w->has_keyed = planted || drawn;
    w->info[SIM_KEYED] = world_keyed_info;
    w->info[SIM_KEYED].idle_ms = (uint32_t)sim_draw_between(&w->keyed, 40, 2000);
    w->info[SIM_KEYED].answers_max = ANSWERS;
}

void sim_keyed_plan(sim_world *w)
{
    if (w->has_keyed)
        sim_at(&w->s, 100 * SIM_MS, draw_keyed, w);
}
