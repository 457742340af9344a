/* sim_store.c - the store of a run: the real memory engine, late by a drawn time, with faults.
 * Way:     store contract -> [sim_store] -> (delay, fault) -> memory -> (delay) -> done
 * One engine for all silos of a run; a store_open gives a door of its own to it. */
#include <stdlib.h>
#include <string.h>
#include "base/bug.h"
#include "store/engine.h"
#include "sim.h"

typedef struct door {
    teffi_store base;
    sim_node *node;
    uint64_t running;
    bool closed;
} door;

typedef struct running {
    door *door;
    teffi_store_op *op;
    void (*done)(teffi_store_op *op);
} running;

static bool writes(const teffi_store_op *op)
{
    return op->kind == TEFFI_STORE_WRITE || op->kind == TEFFI_STORE_BATCH;
}

static uint64_t delay(sim *s)
{
    if (sim_draw_chance(&s->fault, s->faults.store_slow))
        return sim_draw_below(&s->delay, 500 * SIM_MS);
    return sim_draw_between(&s->delay, 5000, SIM_MS);
}

static void nothing(teffi_store_op *op)
{
    (void)op;
}

static void finish(sim *s, void *arg, bool run)
{
    running *r = arg;
    if (run) {
        sim_trace_add(&s->trace, s->now_ns, r->door->node->name, "stored", r->op->kind, r->op->err);
        r->op->done = r->done;
        r->door->running--;
        r->done(r->op);
    }
    free(r);
}

static void unknown(teffi_store_op *op)
{
    teffi_store_fail(op, TEFF_E_UNKNOWN, "the connection broke");
}

static bool planted(sim *s, const teffi_store_op *op, const char *table)
{
    return op->n_rows == 1 && strcmp(op->rows[0].table, table) == 0 &&
           sim_draw_chance(&s->fault, 100);
}

static void operate(sim *s, teffi_store_op *op)
{
    bool lost = writes(op) && sim_draw_chance(&s->fault, s->faults.store_unknown);
    bool late = lost && sim_draw_chance(&s->fault, 500);
    if (s->plant == SIM_PLANT_UNSAVED && writes(op) && planted(s, op, "state")) {
        op->rows[0].etag++;
        return;
    }
    if (!lost || late)
        s->rows->ops->submit(s->rows, op);
    if (lost)
        unknown(op);
    if (s->plant == SIM_PLANT_STALE && op->kind == TEFFI_STORE_READ && planted(s, op, "state")) {
        op->rows[0].value.len = 0;
        op->rows[0].value.data = "";
    }
}

static void begin(sim *s, void *arg, bool run)
{
    running *r = arg;
    if (!run) {
        free(r);
        return;
    }
    r->op->done = nothing;
    operate(s, r->op);
    sim_at(s, delay(s), finish, r);
}

static void submit(teffi_store *store, teffi_store_op *op)
{
    door *d = (door *)store;
    sim *s = d->node->sim;
    if (d->closed) {
        teffi_store_fail(op, TEFF_E_CLOSED, "the store is closed");
        op->done(op);
        return;
    }
    running *r = malloc(sizeof *r);
    teffi_bug_if(!r);
    *r = (running){d, op, op->done};
    d->running++;
    sim_at(s, delay(s), begin, r);
}

static teff_err watch(teffi_store *store, const char *table, teffi_store_hint *hint, void *arg)
{
    door *d = (door *)store;
    return d->node->sim->rows->ops->watch(d->node->sim->rows, table, hint, arg);
}

static void close_door(teffi_store *store)
{
    door *d = (door *)store;
    d->closed = true;
    while (d->running)
        sim_pump(d->node->sim, d->node->name);
}

static void free_door(teffi_store *store)
{
    free(store);
}

teff_err sim_store_open(const teffi_platform *platform, const char *address, teffi_store **store,
                        char *text)
{
    static const teffi_store_ops ops = {"simulated", submit, watch, close_door, free_door};
    door *d = calloc(1, sizeof *d);
    (void)address;
    (void)text;
    teffi_bug_if(!d);
    d->base.ops = &ops;
    d->node = platform->arg;
    *store = &d->base;
    return TEFF_OK;
}
