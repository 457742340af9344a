/* crash_alarm.c - see crash_alarm.h. */
#include "crash_alarm.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* 1: most reminders are acknowledged and not registered. */
#ifndef PLANT_UNSAVED
#define PLANT_UNSAVED 0
#endif

enum { DUE_STEP_MS = 30, DUE_STEPS = 8, EACH_MS = 50, MOVE_EVERY = 8, PLANTED_EVERY = 3 };

static const char each[] = "each"; /* the reminder with a period */

static const char *make_name(int64_t n, char name[24])
{
    snprintf(name, 24, "%lld", (long long)n);
    return name;
}

/* ---- which ticks have come ---- */

static size_t find_early_tick(const crash_ticks *ticks, int64_t n)
{
    size_t i = 0;
    while (i < ticks->n_early && ticks->early[i] != n)
        i++;
    return i;
}

static bool has_ticked(const crash_ticks *ticks, int64_t n)
{
    return n < ticks->next || find_early_tick(ticks, n) < ticks->n_early;
}

/* Removes from the list what `next` can say. */
static void raise_next(crash_ticks *ticks)
{
    size_t i;
    while ((i = find_early_tick(ticks, ticks->next)) < ticks->n_early) {
        ticks->early[i] = ticks->early[--ticks->n_early];
        ticks->next++;
    }
}

static teff_err on_reminder(crash_alarm *self, const teff_tick *tick)
{
    crash_ticks *ticks = self->state;
    int64_t n = strtoll(tick->name, NULL, 10);
    if (strcmp(tick->name, each) == 0)
        ticks->rounds++;
    else if (!has_ticked(ticks, n))
        crash_ticks_append_early(self->ctx, ticks, n);
    raise_next(ticks);
    return crash_alarm_save(self);
}

/* ---- calls ---- */

static teff_err start_counting(crash_alarm *self)
{
    self->state->next = self->state->next ? self->state->next : 1;
    return TEFF_OK;
}

static teff_err set(crash_alarm *self, const crash_number *in)
{
    char name[24];
    const teff_reminder_options one = {.size = sizeof one,
                                       .due_ms = (uint64_t)(in->n % DUE_STEPS) * DUE_STEP_MS},
                                many = {.size = sizeof many, .period_ms = EACH_MS};
    teff_err err = TEFF_OK;
    if (in->n % MOVE_EVERY == 0)
        teff_deactivate(self->ctx);
    if (in->n == 1)
        err = teff_reminder_register(self->ctx, each, &many);
    if (!err && !(PLANT_UNSAVED && in->n % PLANTED_EVERY != 0))
        err = teff_reminder_register(self->ctx, make_name(in->n, name), &one);
    if (err)
        return err;
    self->state->n = in->n;
    return crash_alarm_save(self);
}

static bool is_listed(const teff_reminder *list, size_t n, const char *name)
{
    for (size_t i = 0; i < n; i++)
        if (strcmp(list[i].name, name) == 0)
            return true;
    return false;
}

/* errs: TEFF_E_FAILED, "damaged: ...": a reminder is lost; the store's. */
static teff_err check_reminders(crash_alarm *self)
{
    const crash_ticks *ticks = self->state;
    teff_reminder *list;
    size_t n;
    char name[24];
    teff_err err = teff_reminder_list(self->ctx, &list, &n);
    if (err)
        return err;
    for (int64_t i = ticks->next; i <= ticks->n; i++)
        if (!has_ticked(ticks, i) && !is_listed(list, n, make_name(i, name)))
            return teff_fail(self->ctx, TEFF_E_FAILED, "damaged: reminder %s is lost", name);
    if (ticks->n > 0 && !is_listed(list, n, each))
        return teff_fail(self->ctx, TEFF_E_FAILED, "damaged: the reminder with a period is lost");
    return TEFF_OK;
}

static teff_err get(crash_alarm *self, crash_number *out)
{
    out->n = self->state->n;
    return check_reminders(self);
}

static teff_err get_ticks(crash_alarm *self, crash_ticks *out)
{
    out->n = self->state->n;
    out->next = self->state->next;
    out->rounds = self->state->rounds;
    return TEFF_OK;
}

teff_grain_type *alarm_type(void)
{
    static const crash_alarm_methods methods = {.set = set,
                                                .get = get,
                                                .get_ticks = get_ticks,
                                                .on_activate = start_counting,
                                                .on_reminder = on_reminder};
    return crash_alarm_type(&methods, NULL);
}
