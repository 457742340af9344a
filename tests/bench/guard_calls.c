/* guard_calls.c - the guard's operations on grains: calls, queued calls, one-ways, activations.
 * Way:     guard -> [a turn of Driver] -> generated stubs -> Target, on the same one worker
 * Threads: everything but the start on the silo's one worker. */
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <teff/silo.h>
#include "guard.h"
#include "guard.teff.h"
#include "sched/scheduler.h"
#include "silo/silo.h"

enum {
    MANY = 4096, /* grains that call-many calls in turn */
    WIDTH = 256, /* calls under way in a fan-out */
    BURST = 64,  /* one-ways between two calls that see to it that they were handled */
    HELD = 16,   /* calls to one busy grain */
    FIRST_NEW = 1000000
};

/* ---- the targets ---- */

static teff_err add(guard_target *self, const guard_small *in, guard_small *out)
{
    (void)self;
    out->number = in->number + 1;
    out->name = in->name;
    return TEFF_OK;
}

static teff_err note(guard_target *self, const guard_small *in)
{
    (void)self;
    (void)in;
    return TEFF_OK;
}

static teff_err held(guard_target *self, const guard_small *in, guard_small *out)
{
    guard_small *passed;
    teff_err err = guard_driver_pass(self->ctx, 1, in, &passed);
    out->number = err ? 0 : passed->number;
    return err;
}

static teff_err pass(guard_driver *self, const guard_small *in, guard_small *out)
{
    (void)self;
    out->number = in->number + 1;
    return TEFF_OK;
}

teff_grain_type *guard_target_new(void)
{
    static const guard_target_methods methods = {.add = add, .note = note, .held = held};
    return guard_target_type(&methods, NULL);
}

/* ---- the driver's turn ---- */

typedef struct turn {
    teff_ctx *ctx;
    int64_t next_new;
} turn;

static void call(turn *t, int64_t key)
{
    guard_small *response;
    guard_must(guard_target_add(t->ctx, key, guard_small(.number = 1, .name = "small"), &response));
}

static void call_one(void *arg, uint64_t n)
{
    for (uint64_t i = 0; i < n; i++)
        call(arg, 1);
}

static void call_many(void *arg, uint64_t n)
{
    for (uint64_t i = 0; i < n; i++)
        call(arg, (int64_t)(i % MANY));
}

static void call_new(void *arg, uint64_t n)
{
    turn *t = arg;
    for (uint64_t i = 0; i < n; i++)
        call(t, t->next_new++);
}

static void call_queued(void *arg, uint64_t n)
{
    turn *t = arg;
    teff_call calls[HELD];
    for (uint64_t done = 0; done < n; done += HELD) {
        for (uint64_t i = 0; i < HELD; i++)
            guard_must(guard_target_held_async(t->ctx, 1, guard_small(.number = i, .name = "small"),
                                               NULL, &calls[i]));
        guard_must(teff_await_all(t->ctx, calls, HELD));
    }
}

static void fan_out(void *arg, uint64_t n)
{
    turn *t = arg;
    teff_call calls[WIDTH];
    for (uint64_t done = 0; done < n; done += WIDTH) {
        for (uint64_t i = 0; i < WIDTH; i++)
            guard_must(guard_target_add_async(
                t->ctx, (int64_t)i, guard_small(.number = i, .name = "small"), NULL, &calls[i]));
        guard_must(teff_await_all(t->ctx, calls, WIDTH));
    }
}

static void one_way(void *arg, uint64_t n)
{
    turn *t = arg;
    for (uint64_t i = 0; i < n; i++) {
        guard_must(guard_target_note(t->ctx, 1, guard_small(.number = i, .name = "small")));
        if (i % BURST == BURST - 1)
            call(t, 1);
    }
}

static teff_err run(guard_driver *self, const guard_plan *plan)
{
    static const struct {
        const char *name;
        void (*part)(void *arg, uint64_t n);
    } operations[] = {{"call", call_one},          {"call-many", call_many},
                      {"call-hooks", call_one},    {"call-multilevel", call_one},
                      {"call-priority", call_one}, {"call-queued", call_queued},
                      {"fan-out-queued", fan_out}, {"one-way-queued", one_way},
                      {"activation", call_new}};
    turn t = {.ctx = self->ctx, .next_new = FIRST_NEW};
    for (size_t i = 0; i < sizeof operations / sizeof operations[0]; i++) {
        if (strcmp(plan->operation, operations[i].name) != 0)
            continue;
        guard_parts(operations[i].part, &t, plan->n);
        return TEFF_OK;
    }
    return TEFF_E_UNIMPLEMENTED;
}

static void on_turn(void *arg, uint32_t thread, const void *group)
{
    (void)arg;
    (void)thread;
    (void)group;
}

/* In place, calls that nobody waits for yet take the queue only after some milliseconds, so that
 * their count would depend on time. */
static void queue_all_calls(teff_silo *silo)
{
    teffi_sched_of(silo->node.home.exec)->ops.direct = NULL;
}

void guard_calls(const char *operation, uint64_t n)
{
    static const guard_driver_methods drivers = {.run = run, .pass = pass};
    teff_sched_options sched = *guard_sched();
    teff_sched_hooks hooks = *sched.hooks;
    teff_silo_options opt = {.size = sizeof opt, .silent = 1, .workers = 1, .sched = &sched};
    teff_silo *silo;
    sched.hooks = &hooks;
    if (strcmp(operation, "call-hooks") == 0)
        hooks.before = hooks.after = on_turn;
    if (strcmp(operation, "call-multilevel") == 0)
        sched.policy = TEFF_SCHED_MULTILEVEL;
    if (strcmp(operation, "call-priority") == 0)
        sched.policy = TEFF_SCHED_PRIORITY;
    guard_must(teff_silo_new(&opt, &silo, NULL));
    guard_must(teff_silo_host(silo, guard_target_new()));
    guard_must(teff_silo_host(silo, guard_driver_type(&drivers, NULL)));
    guard_must(teff_silo_start(silo, NULL));
    if (strstr(operation, "-queued"))
        queue_all_calls(silo);
    teff_ctx *ctx = teff_silo_new_ctx(silo);
    guard_must(guard_driver_run(ctx, 1, guard_plan(.operation = (char *)operation, .n = n)));
    teff_ctx_free(ctx);
    teff_silo_free(silo);
}
