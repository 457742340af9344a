/* sim_caller.c - callers: tasks on clients and silos, each with a drawn series of calls.
 * Way:     world -> [caller] -> generated stubs -> the cluster -> ledger */
#include <stdlib.h>
#include "base/bug.h"
#include "call/task.h"
#include "call/wait.h"
#include "sim_world.h"

typedef struct caller {
    sim_world *world;
    sim_silo *place;
    unsigned n_calls;
} caller;

sim_call sim_call_begins(sim_world *w, sim_kind kind, unsigned key, uint64_t by)
{
    w->begun++;
    sim_trace_add(&w->s.trace, w->s.now_ns, "world", "asks", kind, key);
    return (sim_call){kind, key, NULL, by, w->ledger[kind][key].seen, false};
}

sim_call sim_call_begins_in(sim_silo *place, sim_kind kind, unsigned key, uint64_t by)
{
    sim_call call = sim_call_begins(place->world, kind, key, by);
    call.in = &place->begun;
    call.in->n++;
    call.in->by[kind][key] += by;
    return call;
}

static void check_total(sim_world *w, const sim_call *call, uint64_t count)
{
    sim_ledger *l = &w->ledger[call->kind][call->key];
    if (count < call->floor + call->by && !l->loose)
        sim_fail(&w->s, "kind %d key %u responds %llu, though %llu had been seen before the call",
                 call->kind, call->key, (unsigned long long)count, (unsigned long long)call->floor);
    if (count > l->seen)
        l->seen = count;
}

static void call_failed(sim_world *w, teff_ctx *ctx, const sim_call *call, teff_err err)
{
    sim_trace_text(&w->s.trace, w->s.now_ns, "world", teff_err_name(err), teff_error(ctx));
    if (sim_calm(w) && !(call->cancelled && err == TEFF_E_CANCELLED))
        sim_fail(&w->s, "nothing is wrong, but a call to kind %d key %u ended as %s: %s",
                 call->kind, call->key, teff_err_name(err), teff_error(ctx));
    /* with short leases all silos may be away at the same time; a split takes half a minute, and so
     * may the tasks of a seed that was killed, before it starts again */
    if (err == TEFF_E_TIMEOUT && !w->s.faults.timeouts && !w->s.faults.pauses &&
        !w->s.faults.splits && !w->s.faults.restarts && !w->lease_ms)
        sim_fail(&w->s, "nobody tells the caller of kind %d key %u that its call is lost",
                 call->kind, call->key);
    if (teff_call_may_have_run(err)) {
        w->ledger[call->kind][call->key].unknown += call->by;
        w->unknown++;
    } else {
        w->failed++;
    }
}

void sim_call_ended(sim_world *w, teff_ctx *ctx, sim_call call, teff_err err,
                    const world_total *total)
{
    w->calls++;
    w->begun--;
    if (call.in) {
        call.in->n--;
        call.in->by[call.kind][call.key] -= call.by;
    }
    if (err) {
        call_failed(w, ctx, &call, err);
        return;
    }
    w->ledger[call.kind][call.key].acked += call.by;
    if (total)
        check_total(w, &call, total->count);
}

static void add_counter(sim_world *w, teff_ctx *ctx, unsigned key)
{
    uint64_t by = sim_draw_between(&w->draw, 1, 3);
    uint32_t pause = sim_draw_chance(&w->draw, 200) ? (uint32_t)sim_draw_below(&w->draw, 30) : 0;
    char name[16];
    world_total *total = NULL;
    sim_key_name(key, name);
    sim_call call = sim_call_begins(w, SIM_COUNTER, key, by);
    teff_err err = world_counter_add(ctx, name, world_step(.by = by, .pause_ms = pause), &total);
    sim_call_ended(w, ctx, call, err, total);
}

/* Some additions to one counter, cancelled together: queued there, on their way, running. */
static void cancel_additions(sim_world *w, teff_ctx *ctx, unsigned key)
{
    enum { N = 3 };
    teff_cancel *cancel = teff_cancel_new();
    teffi_bug_if(!cancel);
    const teff_call_options given = {.size = sizeof given, .cancel = cancel};
    uint32_t pause = (uint32_t)sim_draw_below(&w->draw, 30);
    char name[16];
    teff_call calls[N];
    teff_err err[N];
    sim_call begun[N];
    sim_key_name(key, name);
    for (int i = 0; i < N; i++) {
        begun[i] = sim_call_begins(w, SIM_COUNTER, key, 1);
        begun[i].cancelled = true;
        err[i] = world_counter_add_async(ctx, name, world_step(.by = 1, .pause_ms = pause), &given,
                                         &calls[i]);
    }
    teffi_ctx_sleep(ctx, (uint32_t)sim_draw_below(&w->draw, 40));
    teff_cancel_fire(cancel);
    for (int i = 0; i < N; i++) {
        world_total *total = NULL;
        err[i] = err[i] ? err[i] : world_counter_add_await(ctx, calls[i], &total);
        sim_call_ended(w, ctx, begun[i], err[i], total);
    }
    teff_cancel_free(cancel);
}

static void add_tally(sim_world *w, teff_ctx *ctx, unsigned key)
{
    bool end = sim_draw_chance(&w->draw, 100);
    world_total *total = NULL;
    sim_call call = sim_call_begins(w, SIM_TALLY, key, 1);
    teff_err err = world_tally_add(ctx, key, world_step(.by = 1, .end = end), &total);
    sim_call_ended(w, ctx, call, err, total);
}

static void call_get(sim_world *w, teff_ctx *ctx, sim_kind kind, unsigned key)
{
    char name[16];
    world_total *total = NULL;
    sim_key_name(key, name);
    sim_call call = sim_call_begins(w, kind, key, 0);
    teff_err err = kind == SIM_COUNTER ? world_counter_get(ctx, name, &total)
                                       : world_tally_get(ctx, key, &total);
    sim_call_ended(w, ctx, call, err, total);
}

/* A one-way call has no response; unless something is wrong it runs before the audit. */
static void send_tally(sim_world *w, teff_ctx *ctx, unsigned key)
{
    sim_call call = sim_call_begins(w, SIM_TALLY, key, 1);
    teff_err err = world_tally_add_send(ctx, key, world_step(.by = 1));
    if (!err && !sim_calm(w))
        err = TEFF_E_UNKNOWN;
    sim_call_ended(w, ctx, call, err, NULL);
}

static void call_relay(sim_world *w, teff_ctx *ctx, unsigned key)
{
    char names[3][16], relay[16], tally[16];
    const char *counters[3] = {names[0], names[1], names[2]};
    world_sum *sum;
    world_fan fan = *world_fan(.n_counters = sim_draw_between(&w->draw, 1, 3));
    for (size_t i = 0; i < 3; i++)
        sim_key_name((unsigned)sim_draw_below(&w->draw, SIM_KEYS), names[i]);
    sim_key_name((unsigned)sim_draw_below(&w->draw, SIM_KEYS), tally);
    sim_key_name(key, relay);
    fan.counters = counters;
    fan.tally = tally;
    sim_call call = sim_call_begins(w, SIM_RELAY, key, 1);
    teff_err err = sim_draw_chance(&w->draw, 500) ? world_relay_pass(ctx, relay, &fan, &sum)
                                                  : world_relay_spread(ctx, relay, &fan, &sum);
    sim_call_ended(w, ctx, call, err, NULL);
}

static void call_one(sim_world *w, teff_ctx *ctx)
{
    bool hurried = sim_draw_chance(&w->draw, w->s.faults.timeouts) && !w->s.left_out.timeouts;
    uint64_t which = sim_draw_below(&w->draw, 20);
    unsigned key = (unsigned)sim_draw_below(&w->draw, SIM_KEYS);
    teff_ctx_set_timeout(ctx, hurried ? (uint32_t)sim_draw_between(&w->draw, 1, 60) : 0);
    if (which < 5)
        add_counter(w, ctx, key);
    else if (which < 6)
        cancel_additions(w, ctx, key);
    else if (which < 10)
        add_tally(w, ctx, key);
    else if (which < 12)
        send_tally(w, ctx, key);
    else if (which < 15)
        call_get(w, ctx, which == 12 ? SIM_COUNTER : SIM_TALLY, key);
    else
        call_relay(w, ctx, key);
}

static void call_some(teff_ctx *ctx, void *arg)
{
    caller c = *(caller *)arg;
    free(arg);
    while (c.n_calls-- && c.world->stage == SIM_RUNS &&
           (!c.place || c.place->state == SIM_SERVING)) {
        call_one(c.world, ctx);
        if (sim_draw_chance(&c.world->draw, 700))
            teffi_ctx_sleep(ctx, (uint32_t)sim_draw_below(&c.world->draw, 60));
    }
    c.world->callers--;
}

void sim_caller_start(sim_world *w, teffi_node *node, sim_silo *place)
{
    caller *c = malloc(sizeof *c);
    teffi_bug_if(!c);
    *c = (caller){w, place, (unsigned)sim_draw_between(&w->draw, 2, 40)};
    w->callers++;
    teffi_bug_if(teffi_task_start(&node->home, call_some, c, "caller", false) != TEFF_OK);
}

/* ---- guests ---- */

bool sim_guest_stays(const sim_guest *guest)
{
    return guest->world->stage == SIM_RUNS && (!guest->place || guest->place->state == SIM_SERVING);
}

static void start_guest_on(sim_guest guest, teffi_node *node, void (*run)(teff_ctx *ctx, void *arg),
                           const char *label)
{
    sim_guest *kept = malloc(sizeof *kept);
    teffi_bug_if(!kept);
    *kept = guest;
    guest.world->callers++;
    teffi_bug_if(teffi_task_start(&node->home, run, kept, label, false) != TEFF_OK);
}

void sim_guest_start(sim_world *w, sim_draw *draw, void (*run)(teff_ctx *ctx, void *arg),
                     const char *label)
{
    uint64_t which = sim_draw_below(draw, w->n_silos + w->n_clients);
    sim_silo *place = which < w->n_silos ? &w->silos[which] : NULL;
    sim_client *client = place ? NULL : &w->clients[which - w->n_silos];
    bool serves = place ? place->state == SIM_SERVING : client->joined;
    if (!serves)
        return;
    sim_guest guest = {w, place, (unsigned)sim_draw_between(draw, 1, 10)};
    start_guest_on(guest, place ? &place->silo->node : &client->client->node, run, label);
}
