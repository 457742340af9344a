/* sim_watch.c - in some of the worlds: clients that observe grains. The grains, beacons, number
 * what they send, so that each observer can check the order, and whether it misses anything.
 * Way:     world -> [watch] -> generated stubs -> beacons -> gateways -> [watch] */
#include <stdlib.h>
#include "base/bug.h"
#include "call/task.h"
#include "call/wait.h"
#include "sim_world.h"

enum { STREAM_WATCH = 306, TIMEOUT_MS = 10000 };

/* ---- beacons: without a state; what they count is kept for each silo ---- */

static sim_beacon *beacon_of(const world_beacon *self)
{
    sim_silo *place = self->user;
    return &place->beacons[self->key];
}

static teff_err beacon_activate(world_beacon *self)
{
    sim_silo *place = self->user;
    *beacon_of(self) = (sim_beacon){++place->world->births, 0};
    return TEFF_OK;
}

static teff_err beacon_watch(world_beacon *self, const world_watcher *in, world_flash *out)
{
    out->birth = beacon_of(self)->birth;
    out->n = beacon_of(self)->n;
    return world_light_subscribe(self->ctx, in->light, in->expiry_ms);
}

static teff_err beacon_shine(world_beacon *self, world_flash *out)
{
    sim_beacon *b = beacon_of(self);
    *out = *world_flash(.birth = b->birth, .n = ++b->n, .key = (uint32_t)self->key);
    return world_light_shone_notify(self->ctx, out);
}

static teff_err beacon_rest(world_beacon *self)
{
    teff_deactivate(self->ctx);
    return TEFF_OK;
}

void sim_watch_host(sim_silo *place)
{
    static const world_beacon_methods methods = {.watch = beacon_watch,
                                                 .shine = beacon_shine,
                                                 .rest = beacon_rest,
                                                 .on_activate = beacon_activate};
    if (!place->world->has_watch)
        return;
    teff_grain_type *type = world_beacon_type(&methods, place);
    teffi_bug_if(!type || teff_silo_host(place->silo, type) != TEFF_OK);
}

/* ---- observers ---- */

/* A gap must be told, unless a fault may have lost that message, too. */
static void note_gap(sim_client *c, const world_flash *in)
{
    sim_world *w = c->world;
    sim_trace_add(&w->s.trace, w->s.now_ns, c->node.name, "gap", in->birth, in->n);
    if (sim_calm(w))
        sim_fail(&w->s,
                 "%s misses notifications of beacon %u before its %llu, and nothing is wrong",
                 c->node.name, in->key, (unsigned long long)in->n);
}

static teff_err light_shone(world_light *self, const world_flash *in)
{
    sim_client *c = self->user;
    sim_seen_flash *last = &c->flashes[in->key];
    sim *s = &c->world->s;
    sim_trace_add(&s->trace, s->now_ns, c->node.name, "shone", in->birth, in->n);
    c->world->shone++;
    if (in->birth == last->birth && in->n <= last->n)
        sim_fail(s, "%s: notification %llu of beacon %u after %llu", c->node.name,
                 (unsigned long long)in->n, in->key, (unsigned long long)last->n);
    if (in->birth == last->birth && in->n != last->n + 1 && !last->told)
        note_gap(c, in);
    *last = (sim_seen_flash){in->birth, in->n, false};
    return TEFF_OK;
}

static void light_dropped(world_light *self, const teff_dropped *how)
{
    sim_client *c = self->user;
    sim *s = &c->world->s;
    sim_trace_add(&s->trace, s->now_ns, c->node.name, "dropped", how->why, 0);
    c->world->told++;
    for (int key = 0; key < SIM_KEYS; key++)
        c->flashes[key].told |= !how->key || how->key->number == key;
}

static bool watcher_stays(const sim_client *c)
{
    return c->world->stage == SIM_RUNS;
}

/* Subscribes at a beacon, for a short time or a long one. */
static void watch_beacon(sim_client *c, teff_ctx *ctx, teff_observer *observer, unsigned key)
{
    static const uint32_t expiries_ms[] = {0, 50, 3000};
    uint32_t expiry_ms = expiries_ms[sim_draw_below(&c->world->watch, 3)];
    ProtobufCBinaryData ref;
    world_flash *at;
    if (teff_observer_get_ref(ctx, observer, &ref))
        return;
    c->flashes[key].told = true; /* it may have expired, and the next one is the first again */
    (void)!world_beacon_watch(ctx, key, world_watcher(.light = ref, .expiry_ms = expiry_ms), &at);
}

static void watch_some(teff_ctx *ctx, void *arg)
{
    static const world_light_methods callbacks = {.shone = light_shone,
                                                  .on_dropped = light_dropped};
    sim_client *c = arg;
    sim_draw *draw = &c->world->watch;
    teff_observer *observer;
    teffi_bug_if(world_light_observe(ctx, &callbacks, c, &observer) != TEFF_OK);
    while (watcher_stays(c)) {
        unsigned key = (unsigned)sim_draw_below(draw, SIM_KEYS);
        uint64_t what = sim_draw_below(draw, 10);
        world_flash *flash;
        teff_mark mark = teff_ctx_mark(ctx);
        teff_ctx_set_timeout(ctx, TIMEOUT_MS);
        if (what < 2)
            watch_beacon(c, ctx, observer, key);
        else if (what < 3)
            (void)!world_beacon_rest(ctx, key);
        else
            (void)!world_beacon_shine(ctx, key, &flash);
        teff_ctx_rewind(ctx, mark);
        teffi_ctx_sleep(ctx, (uint32_t)sim_draw_below(draw, 40));
    }
    c->world->callers--;
}

void sim_watch_start(sim_client *client)
{
    if (!client->world->has_watch || !watcher_stays(client))
        return;
    client->world->callers++;
    teffi_bug_if(teffi_task_start(&client->client->node.home, watch_some, client, "watch", false) !=
                 TEFF_OK);
}

void sim_watch_init(sim_world *w)
{
    w->watch = sim_draw_of(w->s.seed, STREAM_WATCH);
    w->has_watch = sim_has_faults(w) && sim_draw_chance(&w->watch, 200);
}
