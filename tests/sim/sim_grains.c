/* sim_grains.c - the grains of the simulated cluster, which report to the world's ledgers.
 * Way:     caller -> the cluster -> [grains] -> ledger; relays call counters and tallies */
#include <stdio.h>
#include <stdlib.h>
#include "activation/activation.h"
#include "base/bug.h"
#include "call/wait.h"
#include "sim_net.h"
#include "sim_world.h"

void sim_key_name(unsigned key, char name[16])
{
    snprintf(name, 16, "k%u", key);
}

static sim_ledger *ledger_of(sim_silo *place, sim_kind kind, unsigned key)
{
    teffi_bug_if(key >= SIM_KEYS);
    return &place->world->ledger[kind][key];
}

unsigned sim_key_of(const char *name)
{
    return (unsigned)atoi(name + 1);
}

/* ---- only under a lease ---- */

/* A turn begins and resumes only under a lease. All until its next wait happens at one time; clocks
 * that do not run as the world's are read CLOCK_STEP_NS too late. */
void sim_check_lease(sim_silo *place, sim_kind kind, unsigned key)
{
    enum { CLOCK_STEP_NS = 4000 };
    if (!teffi_lease_holds(&place->silo->node.home.lease,
                           sim_node_now(&place->node) - CLOCK_STEP_NS))
        sim_fail(&place->world->s, "kind %d key %u: a turn of silo %u without a lease", kind, key,
                 place->no);
}

/* ---- one activation of a grain at a time; those of a silo that has crashed do not count ---- */

/* The grain was left behind by a silo whose lease has run out, and which does not know that yet, as
 * it is paused. That one must not run another turn of it. The same if the silo has ended a turn of
 * it without a lease, and a heartbeat that was confirmed late has renewed the lease since. */
static void take_over(sim_world *w, sim_kind kind, unsigned key)
{
    sim_ledger *l = &w->ledger[kind][key];
    const sim_silo *holder = &w->silos[l->alive_on - 1];
    bool holds = holder->silo &&
                 teffi_lease_holds(&holder->silo->node.home.lease, sim_node_now(&holder->node));
    if (!holder->silo || (holds && !sim_had_no_lease_since(holder, l->born_ns)))
        return;
    sim_trace_add(&w->s.trace, w->s.now_ns, holder->node.name, "left", kind, key);
    l->loose |= kind == SIM_TALLY;
    l->alive_on = l->running = l->reading = 0;
}

teff_err sim_life_begin(sim_silo *place, sim_kind kind, unsigned key)
{
    sim_ledger *l = ledger_of(place, kind, key);
    sim *s = &place->world->s;
    if (place->node.dead)
        return TEFF_OK;
    sim_check_lease(place, kind, key);
    sim_trace_add(&s->trace, s->now_ns, place->node.name, "born", kind, key);
    if (l->alive_on)
        take_over(place->world, kind, key);
    if (l->alive_on)
        sim_fail(s, "two activations at once: kind %d key %u on silo %u, and on silo %u", kind, key,
                 l->alive_on - 1, place->no);
    l->alive_on = place->no + 1;
    l->born_ns = s->now_ns;
    l->stays_until_ns = 0;
    l->running = l->reading = 0;
    return TEFF_OK;
}

void sim_life_end(sim_silo *place, sim_kind kind, unsigned key)
{
    const teffi_lease *lease = &place->silo->node.home.lease;
    sim_ledger *l = ledger_of(place, kind, key);
    sim *s = &place->world->s;
    if (place->node.dead || !teffi_lease_holds(lease, sim_node_now(&place->node)))
        return; /* others take over what it had; its turns have ended where they stood */
    sim_trace_add(&s->trace, s->now_ns, place->node.name, "gone", kind, key);
    if (l->alive_on != place->no + 1)
        sim_fail(s, "kind %d key %u ends on silo %u, where it does not live", kind, key, place->no);
    if ((l->running || l->reading) && !sim_had_no_lease_since(place, l->born_ns))
        sim_fail(s, "kind %d key %u ends under a running turn", kind, key);
    l->alive_on = 0;
}

/* ---- turns that exclude each other ---- */

void sim_turn_begin(sim_silo *place, const teff_ctx *ctx, sim_kind kind, unsigned key)
{
    const teffi_turn *turn = ctx->owner;
    if (place->node.dead)
        return;
    sim_check_lease(place, kind, key);
    sim_cancel_check(&place->world->s, ctx->node->id, turn->request);
    sim_ledger *l = ledger_of(place, kind, key);
    if (sim_had_no_lease_since(place, l->born_ns))
        l->running = l->reading = 0;
    if (l->running++ || l->reading)
        sim_fail(&place->world->s, "kind %d key %u: two turns at once", kind, key);
    if (l->alive_on != place->no + 1)
        sim_fail(&place->world->s, "kind %d key %u: a turn without an activation", kind, key);
}

void sim_turn_read(sim_silo *place, teff_ctx *ctx, sim_kind kind, unsigned key)
{
    if (place->node.dead)
        return;
    sim_check_lease(place, kind, key);
    sim_ledger *l = ledger_of(place, kind, key);
    if (l->running || l->alive_on != place->no + 1)
        sim_fail(&place->world->s, "kind %d key %u: read beside a turn that excludes it", kind,
                 key);
    l->reading++;
    if (sim_draw_chance(&place->world->draw, 200))
        teffi_ctx_sleep(ctx, 3);
    l->reading -= !place->node.dead;
}

void sim_turn_end(sim_silo *place, sim_kind kind, unsigned key)
{
    if (place->node.dead)
        return;
    sim_check_lease(place, kind, key);
    ledger_of(place, kind, key)->running--;
}

/* ---- Counter: saves after each call ---- */

static bool is_bulky(const world_counter *self)
{
    return ((sim_silo *)self->user)->world->bulky && sim_key_of(self->key) == 0;
}

/* In a bulky world the state of counter 0 is large from its first save on. */
static teff_err counter_activate(world_counter *self)
{
    size_t n = self->state->count && is_bulky(self) ? SIM_BALLAST : 0;
    if (self->state->ballast.len != n)
        sim_fail(&((sim_silo *)self->user)->world->s, "counter %u has %zu bytes of ballast",
                 sim_key_of(self->key), self->state->ballast.len);
    if (is_bulky(self) && !n)
        self->state->ballast =
            (ProtobufCBinaryData){SIM_BALLAST, teff_state_alloc(self->ctx, SIM_BALLAST)};
    return sim_life_begin(self->user, SIM_COUNTER, sim_key_of(self->key));
}

static teff_err counter_deactivate(world_counter *self, teff_reason why)
{
    unsigned key = sim_key_of(self->key);
    sim_limits_end(self->user, ledger_of(self->user, SIM_COUNTER, key), key, why);
    sim_life_end(self->user, SIM_COUNTER, sim_key_of(self->key));
    return TEFF_OK;
}

static teff_err counter_add(world_counter *self, const world_step *in, world_total *out)
{
    unsigned key = sim_key_of(self->key);
    sim_turn_begin(self->user, self->ctx, SIM_COUNTER, key);
    if (in->pause_ms)
        teffi_ctx_sleep(self->ctx, in->pause_ms);
    self->state->count += in->by;
    out->count = self->state->count;
    sim_limits_delay(self->user, self->ctx, ledger_of(self->user, SIM_COUNTER, key));
    teff_err err = world_counter_save(self);
    if (err && !teff_call_may_have_run(err))
        self->state->count -= in->by; /* or the next save would write it */
    sim_turn_end(self->user, SIM_COUNTER, key);
    if (err == TEFF_E_CONFLICT && !((sim_silo *)self->user)->node.dead)
        sim_fail(&((sim_silo *)self->user)->world->s, "counter %u: somebody else saved", key);
    return err;
}

static teff_err counter_get(world_counter *self, world_total *out)
{
    sim_turn_read(self->user, self->ctx, SIM_COUNTER, sim_key_of(self->key));
    out->count = self->state->count;
    return TEFF_OK;
}

/* ---- Keyed: called with idempotency keys ---- */

static teff_err keyed_activate(world_keyed *self)
{
    return sim_life_begin(self->user, SIM_KEYED, sim_key_of(self->key));
}

static teff_err keyed_deactivate(world_keyed *self, teff_reason why)
{
    (void)why;
    sim_life_end(self->user, SIM_KEYED, sim_key_of(self->key));
    return TEFF_OK;
}

static teff_err keyed_add(world_keyed *self, const world_step *in, world_total *out)
{
    unsigned key = sim_key_of(self->key);
    sim_turn_begin(self->user, self->ctx, SIM_KEYED, key);
    if (in->pause_ms)
        teffi_ctx_sleep(self->ctx, in->pause_ms);
    self->state->count += in->by;
    out->count = self->state->count;
    teff_err err = in->end ? world_keyed_save(self) : TEFF_OK;
    sim_turn_end(self->user, SIM_KEYED, key);
    return err;
}

static teff_err keyed_get(world_keyed *self, world_total *out)
{
    sim_turn_read(self->user, self->ctx, SIM_KEYED, sim_key_of(self->key));
    out->count = self->state->count;
    return TEFF_OK;
}

/* ---- Tally: counts in memory, saves at its end ---- */

static teff_err tally_activate(world_tally *self)
{
    return sim_life_begin(self->user, SIM_TALLY, (unsigned)self->key);
}

static teff_err tally_deactivate(world_tally *self, teff_reason why)
{
    sim_silo *place = self->user;
    unsigned key = (unsigned)self->key;
    (void)why;
    teff_err err = world_tally_save(self);
    if (err && err != TEFF_E_CONFLICT && sim_store_fails(place->world))
        ledger_of(place, SIM_TALLY, key)->loose = true;
    else if (err && !place->node.dead)
        sim_fail(&place->world->s, "tally %u: saving at the end: %s", key, teff_err_name(err));
    sim_life_end(place, SIM_TALLY, key);
    return err;
}

static teff_err tally_add(world_tally *self, const world_step *in, world_total *out)
{
    sim_turn_begin(self->user, self->ctx, SIM_TALLY, (unsigned)self->key);
    if (in->pause_ms)
        teffi_ctx_sleep(self->ctx, in->pause_ms);
    self->state->count += in->by;
    out->count = self->state->count;
    if (in->end)
        teff_deactivate(self->ctx);
    sim_turn_end(self->user, SIM_TALLY, (unsigned)self->key);
    return TEFF_OK;
}

static teff_err tally_get(world_tally *self, world_total *out)
{
    sim_turn_read(self->user, self->ctx, SIM_TALLY, (unsigned)self->key);
    out->count = self->state->count;
    return TEFF_OK;
}

/* ---- Relay: calls others ---- */

static teff_err relay_activate(world_relay *self)
{
    return sim_life_begin(self->user, SIM_RELAY, sim_key_of(self->key));
}

static teff_err relay_deactivate(world_relay *self, teff_reason why)
{
    (void)why;
    sim_life_end(self->user, SIM_RELAY, sim_key_of(self->key));
    return TEFF_OK;
}

static void add_up(world_sum *sum, teff_err err)
{
    sum->sent++;
    sum->ok += err == TEFF_OK;
    sum->unknown += err && teff_call_may_have_run(err);
    sum->failed += err && !teff_call_may_have_run(err);
}

/* In every other world relays have neither on_activate nor on_deactivate, so they begin and end
 * without a fiber. There the checks are made in turns. */
static bool relay_is_bare(const sim_silo *place)
{
    return place->world->s.seed % 2;
}

static void relay_enter(sim_silo *place, const teff_ctx *ctx, unsigned key)
{
    sim_ledger *l = ledger_of(place, SIM_RELAY, key);
    if (relay_is_bare(place) && l->alive_on && !place->node.dead)
        take_over(place->world, SIM_RELAY, key);
    if (relay_is_bare(place) && l->alive_on && !place->node.dead)
        sim_fail(&place->world->s, "relay %u: two turns at once", key);
    if (relay_is_bare(place) && !place->node.dead) {
        l->alive_on = place->no + 1;
        l->born_ns = place->world->s.now_ns;
    }
    sim_turn_begin(place, ctx, SIM_RELAY, key);
}

static void relay_leave(sim_silo *place, unsigned key)
{
    sim_turn_end(place, SIM_RELAY, key);
    if (relay_is_bare(place) && !place->node.dead)
        ledger_of(place, SIM_RELAY, key)->alive_on = 0;
}

/* A relay calls the one before it, so there is no cycle; the callee may begin within this turn. */
static void call_relay_before(teff_ctx *ctx, unsigned key)
{
    world_sum *sum;
    char name[16];
    sim_key_name(key - 1, name);
    (void)!world_relay_spread(ctx, name, world_fan(.tally = "k0"), &sum);
}

static teff_err relay_pass(world_relay *self, const world_fan *in, world_sum *out)
{
    sim_silo *place = self->user;
    world_total *total = NULL;
    relay_enter(place, self->ctx, sim_key_of(self->key));
    for (size_t i = 0; i < in->n_counters; i++) {
        sim_call call = sim_call_begins_in(place, SIM_COUNTER, sim_key_of(in->counters[i]), 1);
        teff_err err = world_counter_add(self->ctx, in->counters[i],
                                         world_step(.by = 1, .pause_ms = in->pause_ms), &total);
        sim_call_ended(place->world, self->ctx, call, err, total);
        add_up(out, err);
    }
    sim_call call = sim_call_begins_in(place, SIM_TALLY, sim_key_of(in->tally), 1);
    teff_err err = world_tally_add(self->ctx, sim_key_of(in->tally), world_step(.by = 1), &total);
    sim_call_ended(place->world, self->ctx, call, err, total);
    add_up(out, err);
    if (relay_is_bare(place) && sim_key_of(self->key) > 0)
        call_relay_before(self->ctx, sim_key_of(self->key));
    relay_leave(place, sim_key_of(self->key));
    return TEFF_OK;
}

static teff_err relay_spread(world_relay *self, const world_fan *in, world_sum *out)
{
    sim_silo *place = self->user;
    teff_call *calls = teff_alloc(self->ctx, (in->n_counters + 1) * sizeof *calls);
    sim_call *begun = teff_alloc(self->ctx, (in->n_counters + 1) * sizeof *begun);
    teff_err *started = teff_alloc(self->ctx, (in->n_counters + 1) * sizeof *started);
    for (size_t i = 0; i < in->n_counters; i++) {
        begun[i] = sim_call_begins_in(place, SIM_COUNTER, sim_key_of(in->counters[i]), 1);
        teff_err err =
            world_counter_add_async(self->ctx, in->counters[i],
                                    world_step(.by = 1, .pause_ms = in->pause_ms), NULL, &calls[i]);
        started[i] = err;
        if (err && err != TEFF_E_TIMEOUT)
            sim_fail(&place->world->s, "a call could not be started: %s", teff_err_name(err));
    }
    (void)!teff_await_all(self->ctx, calls, in->n_counters);
    for (size_t i = 0; i < in->n_counters; i++) {
        world_total *total = NULL;
        teff_err err =
            started[i] ? started[i] : world_counter_add_await(self->ctx, calls[i], &total);
        sim_call_ended(place->world, self->ctx, begun[i], err, total);
        add_up(out, err);
    }
    return TEFF_OK;
}

/* ---- hosting ---- */

static const world_counter_methods counter_methods = {.add = counter_add,
                                                      .get = counter_get,
                                                      .on_activate = counter_activate,
                                                      .on_deactivate = counter_deactivate};
static const world_tally_methods tally_methods = {.add = tally_add,
                                                  .get = tally_get,
                                                  .on_activate = tally_activate,
                                                  .on_deactivate = tally_deactivate};
static const world_keyed_methods keyed_methods = {.add = keyed_add,
                                                  .get = keyed_get,
                                                  .on_activate = keyed_activate,
                                                  .on_deactivate = keyed_deactivate};
static const world_relay_methods relay_methods = {.pass = relay_pass,
                                                  .spread = relay_spread,
                                                  .on_activate = relay_activate,
                                                  .on_deactivate = relay_deactivate};
static const world_relay_methods bare_relay_methods = {.pass = relay_pass, .spread = relay_spread};

void sim_grains_init(sim_world *w)
{
    static const uint32_t idles_ms[] = {40, 120, 400, 1500, 900000};
    const teff_type_info *infos[] = {&world_counter_info, &world_tally_info, &world_relay_info};
    for (int i = 0; i < SIM_KEYED; i++) { /* that one has a stream of its own */
        w->info[i] = *infos[i];
        w->info[i].idle_ms = idles_ms[sim_draw_below(&w->draw, 5)];
    }
}

void sim_grains_host(sim_silo *place)
{
    const void *methods[] = {&counter_methods, &tally_methods,
                             relay_is_bare(place) ? &bare_relay_methods : &relay_methods,
                             &keyed_methods};
    for (int i = 0; i < (place->world->has_keyed ? SIM_KEYED + 1 : SIM_KEYED); i++) {
        teff_grain_type *type = teff_grain_type_new(&place->world->info[i], methods[i], place);
        teffi_bug_if(!type || teff_silo_host(place->silo, type) != TEFF_OK);
    }
    sim_watch_host(place);
    sim_crew_host(place);
    sim_alarm_host(place);
    sim_bank_host(place);
}
