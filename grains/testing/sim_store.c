/* sim_store.c - the store of a run: the real memory engine, late by a drawn time, with faults.
 * Way:     store contract -> [sim_store] -> (delay, fault) -> memory -> (delay) -> done
 * One engine for all silos of a run; each store_open makes a handle of it. */
#include <stdlib.h>
#include <string.h>
#include "base/bug.h"
#include "store/engine.h"
#include "sim.h"

typedef struct door {
    teffi_store base;
    sim_node *node;
    uint64_t running;
    struct running *waiting; /* not begun */
    bool closed;
} door;

typedef struct running {
    struct running *next; /* in waiting */
    uint64_t begins_ns;
    bool was_held; /* it is on its way, whatever becomes of its silo */
    door *door;
    teffi_store_op *op;
    void (*done)(teffi_store_op *op);
} running;

static bool sim_op_writes(const teffi_store_op *op)
{
    return op->kind == TEFFI_STORE_WRITE || op->kind == TEFFI_STORE_BATCH;
}

static uint64_t draw_delay(sim *s)
{
    if (sim_draw_chance(&s->fault, s->faults.store_slow) && !s->left_out.store_slow)
        return sim_draw_below(&s->delay, 500 * SIM_MS);
    return sim_draw_between(&s->delay, 5000, SIM_MS);
}

static void no_done(teffi_store_op *op)
{
    (void)op;
}

static void op_finish(sim *s, void *arg, bool run)
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

static void op_unknown(teffi_store_op *op)
{
    teffi_store_op_set_error(op, TEFF_E_UNKNOWN, "the connection broke");
}

static bool op_is_planted(sim *s, const teffi_store_op *op, const char *table)
{
    return strcmp(op->rows[0].table, table) == 0 && sim_draw_chance(&s->fault, 100);
}

static bool failure_fits(sim_failure failure, const teffi_store_op *op)
{
    if (failure == SIM_FAILURE_CONFLICT)
        return sim_op_writes(op) && !op->rows[0].any && strcmp(op->rows[0].table, "state") != 0;
    return failure == SIM_FAILURE_IO || sim_op_writes(op);
}

static void submit_to_rows(sim *s, teffi_store_op *op)
{
    s->rows->ops->submit(s->rows, op);
    if (s->wrote && sim_op_writes(op) && !op->err)
        s->wrote(s->world, op);
}

/* out: true: this was the operation that fails, and it has failed. */
static bool op_is_nth(sim *s, teffi_store_op *op)
{
    sim_nth *nth = &s->nth;
    if (++nth->ops != nth->n || !failure_fits(nth->failure, op))
        return false;
    nth->happened = true;
    if (nth->failure == SIM_FAILURE_UNKNOWN_DONE)
        submit_to_rows(s, op);
    if (nth->failure == SIM_FAILURE_IO)
        teffi_store_op_set_error(op, TEFF_E_IO, "the disk is full");
    else if (nth->failure == SIM_FAILURE_CONFLICT)
        teffi_store_op_set_error(op, TEFF_E_CONFLICT, "another one was faster");
    else
        op_unknown(op);
    return true;
}

/* Cuts off the answers, which follow the state. */
static void drop_answers(teffi_row *row)
{
    static const uint8_t tag[] = {0xf2, 0xd9, 0x09}; /* field 19870 (activation/answers.c) */
    const uint8_t *at = memmem(row->value.data, row->value.len, tag, sizeof tag);
    if (at)
        row->value.len = (size_t)(at - (const uint8_t *)row->value.data);
}

static void op_run(sim *s, teffi_store_op *op)
{
    if (op_is_nth(s, op))
        return;
    if (s->plant == SIM_PLANT_FORGOTTEN && sim_op_writes(op) && op_is_planted(s, op, "state"))
        drop_answers(&op->rows[0]);
    if (sim_draw_chance(&s->fault, s->faults.store_failed)) {
        teffi_store_op_set_error(op, TEFF_E_IO, "the disk is full");
        return;
    }
    bool drawn = sim_op_writes(op) && sim_draw_chance(&s->fault, s->faults.store_unknown);
    bool late = drawn && sim_draw_chance(&s->fault, 500);
    bool lost = drawn && !s->left_out.store_unknown;
    if (s->plant == SIM_PLANT_UNSAVED && sim_op_writes(op) && op_is_planted(s, op, "state")) {
        op->rows[0].etag++;
        return;
    }
    if (!lost || late)
        submit_to_rows(s, op);
    if (lost)
        op_unknown(op);
    if (s->plant == SIM_PLANT_STALE && op->kind == TEFFI_STORE_READ &&
        op_is_planted(s, op, "state")) {
        op->rows[0].value.len = 0;
        op->rows[0].value.data = "";
    }
}

/* out: for how long the results of what the store does now are under way. */
static uint64_t result_held_ns(const sim_node *node)
{
    uint64_t now_ns = node->sim->now_ns;
    return node->held_at_end && node->held_until_ns > now_ns ? node->held_until_ns - now_ns : 0;
}

static void op_begin(sim *s, void *arg, bool run)
{
    running *r = arg;
    if (!run) {
        free(r);
        return;
    }
    running **at = &r->door->waiting;
    while (*at != r)
        at = &(*at)->next;
    *at = r->next;
    r->op->done = no_done;
    const sim_node *node = r->door->node;
    uint64_t held_ns = result_held_ns(node);
    if ((node->dead && !r->was_held) || (node->cut_until_ns > s->now_ns && !held_ns))
        op_unknown(r->op);
    else
        op_run(s, r->op);
    sim_at_node(node, draw_delay(s) + held_ns, op_finish, r);
}

static bool same_row(const teffi_row *a, const teffi_row *b)
{
    return strcmp(a->table, b->table) == 0 && a->key.len == b->key.len &&
           memcmp(a->key.data, b->key.data, a->key.len) == 0;
}

static bool writes_row(const teffi_store_op *op, const teffi_row *row)
{
    for (size_t i = 0; sim_op_writes(op) && i < op->n_rows; i++)
        if (!op->rows[i].check && same_row(&op->rows[i], row))
            return true;
    return false;
}

/* What a silo has sent to its store may be done after the silo was declared dead. */
static bool is_held(const sim_node *node)
{
    return !node->held_at_end && node->held_until_ns > node->sim->now_ns;
}

/* A save has one row of a state, and perhaps a fence. A transaction has more rows, most often. */
static bool is_of_transaction(const teffi_store_op *op)
{
    return op->kind == TEFFI_STORE_BATCH && op->n_rows > 1 &&
           strcmp(op->rows[0].table, "state") == 0 &&
           (op->n_rows > 2 || strcmp(op->rows[1].table, "state") == 0);
}

/* Draws whether a batch of a transaction is on its way for long, while the store does other
 * operations of the same silo. */
static bool draw_late_batch(sim *s, const teffi_store_op *op)
{
    return s->faults.late_batches && is_of_transaction(op) &&
           sim_draw_chance(&s->ends, s->faults.late_batches) && !s->left_out.late_batches;
}

/* Operations may overtake each other, but a read begins after the writes of its row that were
 * submitted before it, as the store's contract says. */
static uint64_t begins_ns(const door *d, const teffi_store_op *op, bool late)
{
    sim *s = d->node->sim;
    uint64_t due_ns = s->now_ns + draw_delay(s);
    if (late)
        due_ns += sim_draw_below(&s->ends, s->faults.batch_late_ms * SIM_MS);
    if (is_held(d->node) && due_ns < d->node->held_until_ns)
        due_ns = d->node->held_until_ns;
    for (const running *r = d->waiting; op->kind == TEFFI_STORE_READ && r; r = r->next)
        if (r->begins_ns > due_ns && writes_row(r->op, &op->rows[0]))
            due_ns = r->begins_ns;
    return due_ns;
}

static void op_submit(teffi_store *store, teffi_store_op *op)
{
    door *d = (door *)store;
    sim *s = d->node->sim;
    if (d->closed) {
        teffi_store_op_set_error(op, TEFF_E_CLOSED, "the store is closed");
        op->done(op);
        return;
    }
    running *r = malloc(sizeof *r);
    teffi_bug_if(!r);
    bool late = draw_late_batch(s, op);
    *r = (running){d->waiting, begins_ns(d, op, late), late || is_held(d->node), d, op, op->done};
    d->waiting = r;
    d->running++;
    if (late && s->batch_is_late)
        s->batch_is_late(s->world);
    sim_at(s, r->begins_ns - s->now_ns, op_begin, r);
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
    static const teffi_store_ops ops = {op_submit, close_door, free_door};
    door *d = calloc(1, sizeof *d);
    (void)address;
    (void)text;
    teffi_bug_if(!d);
    d->base.ops = &ops;
    d->node = platform->arg;
    *store = &d->base;
    return TEFF_OK;
}
