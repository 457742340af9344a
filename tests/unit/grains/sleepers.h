/* sleepers.h - silos with grains that have reminders, for the tests of this folder. Include it in
 * one source of a program.
 * Threads: grains write the world's atomics; the test's thread reads them. */
#pragma once

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include "activation/activation.h"
#include "reminder/reminder_row.h"
#include "lab.h"
#include "reminder.teff.h"
#include "reminder/schedule.h"

typedef teff_err script(teff_ctx *ctx, int64_t n, int64_t *out);

enum { SLEEPERS = 48, TICKS_KEPT = 64 };

static struct {
    _Atomic bool gate;
    _Atomic int held;            /* turns that wait for the gate */
    _Atomic int ticks[SLEEPERS]; /* by the number that is the key */
    _Atomic int inside[SLEEPERS], overlaps;
    _Atomic int most;     /* turns of on_reminder of a Restless at the same time */
    _Atomic int fails;    /* so many ticks fail */
    _Atomic int fails_as; /* a teff_err; 0: TEFF_E_FAILED */
    _Atomic bool no_type; /* the next silo does not host the type */
    _Atomic int slow_ms;  /* how long a tick takes */
    _Atomic bool waits;   /* ticks of grain 0 wait for the gate */
    _Atomic int kept;
    struct {
        char name[TEFF_REMINDER_NAME_MAX + 1];
        uint64_t due_ms, missed;
        bool last;
    } tick[TICKS_KEPT];
} world;

static lab *l;

static inline teff_err on_reminder(reminder_sleeper *self, const teff_tick *tick)
{
    int no = atoi(self->key), at = world.kept;
    if (atomic_fetch_add(&world.inside[no], 1))
        world.overlaps++;
    if (no == 0 && at < TICKS_KEPT) {
        snprintf(world.tick[at].name, sizeof world.tick[at].name, "%s", tick->name);
        world.tick[at].due_ms = tick->due_ms;
        world.tick[at].missed = tick->missed;
        world.tick[at].last = tick->last;
        world.kept = at + 1;
    }
    if (world.slow_ms)
        teff_sleep(self->ctx, (uint32_t)world.slow_ms);
    if (no == 0 && world.waits) {
        world.held++;
        while (!world.gate)
            teff_sleep(self->ctx, 1);
    }
    world.inside[no]--;
    world.ticks[no]++;
    if (world.fails > 0) {
        world.fails--;
        return teff_fail(self->ctx, world.fails_as ? (teff_err)world.fails_as : TEFF_E_FAILED,
                         "as the test wants it");
    }
    return TEFF_OK;
}

static inline teff_err ask(reminder_sleeper *self, const reminder_beat *in, reminder_number *out)
{
    return ((script *)(uintptr_t)in->script)(self->ctx, in->n, &out->n);
}

static inline teff_err ask_deaf(reminder_deaf *self, const reminder_beat *in, reminder_number *out)
{
    return ((script *)(uintptr_t)in->script)(self->ctx, in->n, &out->n);
}

static inline teff_err ask_restless(reminder_restless *self, const reminder_beat *in,
                                    reminder_number *out)
{
    return ((script *)(uintptr_t)in->script)(self->ctx, in->n, &out->n);
}

/* The reminder's name begins with the number under which its ticks are counted. */
static inline teff_err on_reminder_restless(reminder_restless *self, const teff_tick *tick)
{
    static _Atomic int all;
    int no = atoi(tick->name), now = atomic_fetch_add(&all, 1) + 1;
    if (now > world.most)
        world.most = now;
    if (atomic_fetch_add(&world.inside[no], 1))
        world.overlaps++;
    teff_sleep(self->ctx, (uint32_t)world.slow_ms);
    world.inside[no]--;
    world.ticks[no]++;
    all--;
    return TEFF_OK;
}

static const reminder_restless_methods restless_methods = {.ask = ask_restless,
                                                           .on_reminder = on_reminder_restless};
static const reminder_sleeper_methods methods = {.ask = ask, .on_reminder = on_reminder};
static const reminder_deaf_methods deaf_methods = {.ask = ask_deaf};

static inline void host(teff_silo *silo)
{
    silo->opt.reminder_period_min_ms = 1;
    if (world.no_type)
        return;
    assert_int_equal(teff_silo_host(silo, reminder_sleeper_type(&methods, NULL)), TEFF_OK);
    assert_int_equal(teff_silo_host(silo, reminder_deaf_type(&deaf_methods, NULL)), TEFF_OK);
    assert_int_equal(teff_silo_host(silo, reminder_restless_type(&restless_methods, NULL)),
                     TEFF_OK);
}

static inline int open_silos(int n)
{
    memset(&world, 0, sizeof world);
    l = lab_open_more(n, host);
    return 0;
}

static inline int teardown(void **state)
{
    (void)state;
    world.gate = true;
    lab_close(l);
    return world.overlaps;
}

static inline void pass_ms(uint64_t ms)
{
    struct timespec pause = {.tv_sec = (time_t)(ms / 1000), .tv_nsec = (long)(ms % 1000) * 1000000};
    nanosleep(&pause, NULL);
}

/* Runs a script in a turn of the grain. */
static inline teff_err run_at(int silo, const char *key, script *fn, int64_t n, int64_t *out)
{
    reminder_number *number = NULL;
    teff_ctx *ctx = l->ctx[silo];
    teff_err err =
        reminder_sleeper_ask(ctx, key, reminder_beat(.script = (uintptr_t)fn, .n = n), &number);
    if (!err && out)
        *out = number->n;
    return err;
}

static inline void run_ok(const char *key, script *fn, int64_t n)
{
    lab_ok(l->ctx[0], run_at(0, key, fn, n, NULL));
}

/* ---- scripts ---- */

static inline teff_err once(teff_ctx *ctx, int64_t n, int64_t *out)
{
    return teff_reminder_register(
        ctx, "once",
        &(teff_reminder_options){.size = sizeof(teff_reminder_options), .due_ms = (uint64_t)n});
}

static inline teff_err each(teff_ctx *ctx, int64_t n, int64_t *out)
{
    return teff_reminder_register(
        ctx, "each",
        &(teff_reminder_options){.size = sizeof(teff_reminder_options), .period_ms = (uint64_t)n});
}

static inline teff_err end_each(teff_ctx *ctx, int64_t n, int64_t *out)
{
    return teff_reminder_unregister(ctx, "each");
}

static inline teff_err count(teff_ctx *ctx, int64_t n, int64_t *out)
{
    teff_reminder *list;
    size_t found;
    teff_err err = teff_reminder_list(ctx, &list, &found);
    *out = (int64_t)found;
    return err;
}
