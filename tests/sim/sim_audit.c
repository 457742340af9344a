/* sim_audit.c - checks of a run: counts of calls, membership views, and rows at its end.
 * Way:     world -> [audit] -> grains, views, the store; against the ledgers */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include "cluster/membership.h"
#include "cluster/view.h"
#include "call/task.h"
#include "call/wait.h"
#include "sim_world.h"
#include "store/engine.h"
#include "message/codec.h"

/* Additions under way, made by turns. A request whose caller was told that it may have run can
 * begin as late as during the audit. */
static uint64_t count_under_way(const sim_world *w, sim_kind kind, unsigned key)
{
    uint64_t n = 0;
    for (unsigned i = 0; i < SIM_SILOS_MAX; i++)
        n += w->silos[i].begun.by[kind][key];
    return n;
}

static void compare_count(sim_world *w, const char *where, sim_kind kind, unsigned key,
                          uint64_t count)
{
    const sim_ledger *l = &w->ledger[kind][key];
    uint64_t under_way = count_under_way(w, kind, key);
    if (count > l->acked + l->unknown + under_way)
        sim_fail(&w->s,
                 "%s: kind %d key %u holds %" PRIu64 ", more than the %" PRIu64
                 " acknowledged, %" PRIu64 " unknown and %" PRIu64 " under way",
                 where, kind, key, count, l->acked, l->unknown, under_way);
    if (count < l->acked && !l->loose)
        sim_fail(&w->s,
                 "%s: kind %d key %u holds %" PRIu64 ", less than the %" PRIu64 " acknowledged",
                 where, kind, key, count, l->acked);
}

/* ---- asking the grains ---- */

static teff_err ask_count(teff_ctx *ctx, sim_kind kind, unsigned key, uint64_t *count)
{
    char name[16];
    world_total *total = NULL;
    sim_key_name(key, name);
    teff_err err = kind == SIM_COUNTER ? world_counter_get(ctx, name, &total)
                   : kind == SIM_KEYED ? world_keyed_get(ctx, name, &total)
                                       : world_tally_get(ctx, key, &total);
    *count = err ? 0 : total->count;
    return err;
}

/* No more faults occur: a call may still fail for a while, but not for ever. */
static void ask_and_compare(sim_world *w, teff_ctx *ctx, sim_kind kind, unsigned key)
{
    enum { TRIES = 10, PAUSE_MS = 500 };
    teff_err err = TEFF_OK;
    uint64_t count;
    for (int i = 0; i < TRIES; i++) {
        err = ask_count(ctx, kind, key, &count);
        if (!err) {
            compare_count(w, "asked", kind, key, count);
            return;
        }
        if (sim_calm(w))
            break;
        teffi_ctx_sleep(ctx, PAUSE_MS);
    }
    sim_fail(&w->s, "kind %d key %u cannot be asked: %s: %s", kind, key, teff_err_name(err),
             teff_error(ctx));
}

static void audit_main(teff_ctx *ctx, void *arg)
{
    sim_world *w = arg;
    for (unsigned key = 0; key < SIM_KEYS; key++) {
        ask_and_compare(w, ctx, SIM_COUNTER, key);
        ask_and_compare(w, ctx, SIM_TALLY, key);
        if (w->has_keyed)
            ask_and_compare(w, ctx, SIM_KEYED, key);
    }
    sim_bank_ask(w, ctx);
    sim_alarm_await_ticks(w, ctx);
    w->audited = true;
}

void sim_audit_start(sim_world *w, teffi_node *node)
{
    if (teffi_task_start(&node->home, audit_main, w, "audit", false))
        sim_fail(&w->s, "no memory for the audit");
}

/* ---- the store, after the last silo ---- */

static void read_is_done(teffi_store_op *op)
{
    (void)op;
}

static size_t row_key(char *buf, sim_kind kind, unsigned key)
{
    static const char *const types[] = {"world.Counter", "world.Tally", NULL, "world.Keyed"};
    const char *type = types[kind];
    size_t n = (size_t)sprintf(buf, "dev%c%s%c", 0, type, 0);
    uint64_t number = key;
    if (kind != SIM_TALLY)
        return n + (size_t)sprintf(buf + n, "k%u", key);
    memcpy(buf + n, &number, sizeof number);
    return n + sizeof number;
}

static uint64_t stored_count(sim_world *w, sim_kind kind, unsigned key)
{
    char buf[64];
    teff_arena arena;
    ProtobufCMessage *msg = NULL;
    uint64_t count = 0;
    teffi_row row = {.table = "state", .key = {buf, row_key(buf, kind, key)}};
    teffi_store_op op = {
        .kind = TEFFI_STORE_READ, .rows = &row, .n_rows = 1, .arena = &arena, .done = read_is_done};
    teffi_arena_init(&arena, NULL, 0, 0);
    teffi_store_submit(w->s.rows, &op);
    if (op.err ||
        teffi_unpack(&world__count__descriptor, row.value.data, row.value.len, &arena, &msg))
        sim_fail(&w->s, "the row of kind %d key %u cannot be read", kind, key);
    else
        count = ((world_count *)msg)->count;
    teffi_arena_fini(&arena);
    return count;
}

static bool is_alive(const sim_world *w, const sim_ledger *l)
{
    return l->alive_on && !sim_had_no_lease_since(&w->silos[l->alive_on - 1], l->born_ns);
}

void sim_audit_store(sim_world *w)
{
    for (unsigned key = 0; key < SIM_KEYS; key++) {
        compare_count(w, "stored", SIM_COUNTER, key, stored_count(w, SIM_COUNTER, key));
        compare_count(w, "stored", SIM_TALLY, key, stored_count(w, SIM_TALLY, key));
        if (w->has_keyed)
            compare_count(w, "stored", SIM_KEYED, key, stored_count(w, SIM_KEYED, key));
        compare_count(w, "turns", SIM_CREW, key, w->crew_ran[key]);
        for (int kind = 0; kind < SIM_KINDS; kind++)
            if (is_alive(w, &w->ledger[kind][key]))
                sim_fail(&w->s, "kind %d key %u has not ended, though its silo has", kind, key);
    }
    sim_bank_check(w);
}

/* ---- views ---- */

static uint64_t hash_of(const teffi_view *view)
{
    uint64_t hash = view->version;
    for (size_t i = 0; i < view->n_members; i++) {
        const teffi_member *m = &view->members[i];
        hash = teffi_hash64(&m->node, sizeof m->node, hash);
        hash = teffi_hash64(m->address, strlen(m->address), hash ^ m->status);
    }
    return hash | 1;
}

void sim_audit_views(void *world)
{
    sim_world *w = world;
    for (unsigned i = 0; i < w->n_silos; i++) {
        sim_silo *place = &w->silos[i];
        const teffi_view *view = place->silo ? place->silo->node.view : NULL;
        if (!view || view->version == place->view)
            continue;
        if (view->version < place->view)
            sim_fail(&w->s, "silo %u: view %" PRIu64 " after view %" PRIu64, i, view->version,
                     place->view);
        place->view = view->version;
        uint64_t *seen = &w->view_hash[view->version % SIM_VIEWS];
        if (*seen && *seen != hash_of(view))
            sim_fail(&w->s, "silo %u: another view %" PRIu64 " than others have", i, view->version);
        *seen = hash_of(view);
    }
}
