/* sim_alarm.c - in some of the worlds: grains with a reminder each, alarms. Does a registered
 * reminder tick, and does none tick after it was unregistered?
 * Way:     world -> [alarm] -> a turn registers -> ticks -> [alarm]; the audit waits for ticks */
#include <stdlib.h>
#include "base/bug.h"
#include "call/task.h"
#include "call/wait.h"
#include "sim_world.h"

/* An owner that was not told of a row finds it within five minutes; a tick that fails is tried
 * again within one. */
enum { STREAM_ALARM = 308, PATIENCE_MS = 400000, PAUSE_MS = 100, LONG_TICK_MS = 35000 };

static sim_alarm *alarm_of(const world_alarm *self)
{
    return &((sim_silo *)self->user)->world->alarms[self->key];
}

static bool turn_counts(const world_alarm *self)
{
    return !((sim_silo *)self->user)->node.dead;
}

/* ---- alarms ---- */

static teff_err alarm_set(world_alarm *self, const world_step *in, world_total *out)
{
    const teff_reminder_options opt = {
        .size = sizeof opt, .due_ms = in->pause_ms, .period_ms = in->by};
    sim_alarm *a = alarm_of(self);
    (void)out;
    if (turn_counts(self))
        a->unsure = true; /* until the end of this turn, which may never come */
    teff_err err = teff_reminder_register(self->ctx, "alarm", &opt);
    if (!err && turn_counts(self))
        *a = (sim_alarm){.set = true};
    return err;
}

static teff_err alarm_stop(world_alarm *self, const world_step *in, world_total *out)
{
    sim_alarm *a = alarm_of(self);
    sim *s = &((sim_silo *)self->user)->world->s;
    bool was_set = a->set && !a->unsure;
    (void)out;
    if (turn_counts(self))
        a->unsure = true;
    teffi_ctx_sleep(self->ctx, in->pause_ms); /* meanwhile a tick may wait for the grain */
    teff_err err = teff_reminder_unregister(self->ctx, "alarm");
    if (!turn_counts(self) || (err && err != TEFF_E_NOT_FOUND))
        return err;
    if (err && was_set)
        sim_fail(s, "alarm %u: its reminder is lost", (unsigned)self->key);
    *a = (sim_alarm){.set = false};
    return TEFF_OK;
}

/* Some ticks take long, a few longer than their caller waits; some fail. */
static teff_err draw_course_of_tick(world_alarm *self, sim_world *w)
{
    static const teff_err errs[] = {TEFF_E_FAILED, TEFF_E_NOT_FOUND, TEFF_E_CONFLICT,
                                    TEFF_E_CANCELLED};
    uint64_t course = sim_draw_below(&w->alarm, 1000);
    uint32_t ms = course < 5 ? LONG_TICK_MS : (uint32_t)sim_draw_below(&w->alarm, 300);
    if (course < 100)
        teffi_ctx_sleep(self->ctx, ms);
    if (course % 10)
        return TEFF_OK;
    return teff_fail(self->ctx, errs[sim_draw_below(&w->alarm, 4)], "a tick fails");
}

/* A tick that has succeeded may come again if something fails. */
static teff_err alarm_ticks(world_alarm *self, const teff_tick *tick)
{
    sim_alarm *a = alarm_of(self);
    sim_silo *place = self->user;
    sim *s = &place->world->s;
    if (!turn_counts(self))
        return TEFF_OK;
    sim_trace_add(&s->trace, s->now_ns, place->node.name, "tick", (uint64_t)self->key,
                  tick->due_ms);
    if (!a->set && !a->unsure)
        sim_fail(s, "alarm %u ticks after its reminder was unregistered", (unsigned)self->key);
    if (a->set && !a->unsure && tick->due_ms <= a->due_ms && sim_calm(place->world))
        sim_fail(s, "alarm %u ticks twice", (unsigned)self->key);
    teff_err err = draw_course_of_tick(self, place->world);
    if (err || !turn_counts(self))
        return err;
    a->due_ms = tick->due_ms;
    a->ticked_ns = s->now_ns;
    place->world->rung++;
    return TEFF_OK;
}

void sim_alarm_host(sim_silo *place)
{
    static const world_alarm_methods methods = {
        .set = alarm_set, .stop = alarm_stop, .on_reminder = alarm_ticks};
    if (!place->world->has_alarms)
        return;
    teff_grain_type *type = world_alarm_type(&methods, place);
    teffi_bug_if(!type || teff_silo_host(place->silo, type) != TEFF_OK);
}

/* ---- callers ---- */

static void call_alarms(teff_ctx *ctx, void *arg)
{
    sim_silo *place = arg;
    sim_world *w = place->world;
    uint64_t n = sim_draw_between(&w->alarm, 1, 5);
    while (n-- && w->stage == SIM_RUNS && place->state == SIM_SERVING) {
        world_total *total;
        int64_t key = (int64_t)sim_draw_below(&w->alarm, SIM_KEYS);
        bool stops = sim_draw_chance(&w->alarm, 300);
        uint64_t period_ms = sim_draw_between(&w->alarm, 20, 1500);
        uint32_t pause_ms = (uint32_t)sim_draw_below(&w->alarm, 200);
        w->calls++;
        if (stops)
            (void)!world_alarm_stop(ctx, key, world_step(.pause_ms = pause_ms), &total);
        else
            (void)!world_alarm_set(ctx, key, world_step(.by = period_ms, .pause_ms = pause_ms),
                                   &total);
        teffi_ctx_sleep(ctx, (uint32_t)sim_draw_below(&w->alarm, 400));
    }
    w->callers--;
}

/* Draws a silo, and when to draw the next one. */
static void draw_alarms(sim *s, void *arg, bool run)
{
    sim_world *w = arg;
    if (!run || w->stage != SIM_RUNS)
        return;
    sim_silo *place = &w->silos[sim_draw_below(&w->alarm, w->n_silos)];
    if (place->state == SIM_SERVING) {
        w->callers++;
        teffi_bug_if(teffi_task_start(&place->silo->node.home, call_alarms, place, "alarms",
                                      false) != TEFF_OK);
    }
    sim_at(s, sim_draw_below(&w->alarm, 500 * SIM_MS), draw_alarms, w);
}

/* Due times are by the clock of the silo that registers: not in worlds where clocks differ. */
void sim_alarm_init(sim_world *w)
{
    w->alarm = sim_draw_of(w->s.seed, STREAM_ALARM);
    bool drawn = sim_draw_chance(&w->alarm, 300);
    w->has_alarms = drawn && !w->s.faults.skews && w->s.plant == SIM_PLANT_NONE;
}

void sim_alarm_plan(sim_world *w)
{
    if (w->has_alarms)
        sim_at(&w->s, 100 * SIM_MS, draw_alarms, w);
}

/* ---- the audit ---- */

void sim_alarm_await_ticks(sim_world *w, teff_ctx *ctx)
{
    uint64_t begun_ns = w->s.now_ns;
    w->until_ns += PATIENCE_MS * SIM_MS;
    for (unsigned key = 0; key < SIM_KEYS; key++) {
        const sim_alarm *a = &w->alarms[key];
        while (a->set && !a->unsure && a->ticked_ns < begun_ns) {
            if (w->s.now_ns - begun_ns > PATIENCE_MS * SIM_MS)
                sim_fail(&w->s, "alarm %u does not tick any more", key);
            teffi_ctx_sleep(ctx, PAUSE_MS);
        }
    }
}
