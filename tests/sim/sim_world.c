/* sim_world.c - the schedule of a run: who joins, leaves, connects and calls, and when it ends.
 * Way:     main -> [world] -> silo and client steps, each in a task of its node
 * Stages:  runs -> drains -> audits -> leaves -> ended; each within a time, or something hangs */
#include "sim_world.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "base/bug.h"
#include "call/task.h"
#include "call/wait.h"
#include "sim_plant.h"

/* STREAM_BULK is chosen so that few of the seeds in seeds.txt draw large states. */
enum {
    STREAM_WORLD = 50,
    STREAM_BULK = 300,
    POLL_MS = 10,
    LEAVE_MS = 120000,
    CLOSE_MS = 30000,
    STAGE_S = 200
};

bool sim_calm(const sim_world *w)
{
    const sim_faults *f = &w->s.faults;
    return !w->store_faults && !f->splits && !f->cuts && !f->timeouts && !f->parts && !f->crashes &&
           !f->outages && !f->blackouts && !f->pauses && !f->stuck && !f->mutes && !f->holds &&
           !f->late_batches && !f->restarts && !w->activations_max && !w->filters_refuse;
}

bool sim_store_fails(const sim_world *w)
{
    const sim_faults *f = &w->s.faults;
    return w->store_faults || f->restarts || f->outages || f->blackouts || f->pauses || f->stuck ||
           f->holds || (w->remote_store && f->cuts);
}

static uint64_t ms_below(sim_world *w, uint64_t ms)
{
    return sim_draw_below(&w->draw, ms * SIM_MS);
}

/* ---- silos ---- */

static void silo_close(sim *s, void *arg, bool run);

static void count_begun_as_unknown(sim_silo *place)
{
    for (int kind = 0; kind < SIM_KINDS; kind++)
        for (unsigned key = 0; key < SIM_KEYS; key++)
            place->world->ledger[kind][key].unknown += place->begun.by[kind][key];
}

/* A silo that is in the table and cannot finish joining may have got grains. It leaves; when that
 * fails, too, its activations are lost as if it had been killed. A counter's acknowledged calls are
 * stored, a tally's are not. */
void sim_silo_lose(sim_silo *place)
{
    count_begun_as_unknown(place);
    for (int kind = 0; kind < SIM_KINDS; kind++)
        for (unsigned key = 0; key < SIM_KEYS; key++) {
            sim_ledger *l = &place->world->ledger[kind][key];
            bool here = l->alive_on == place->no + 1;
            l->loose |= kind == SIM_TALLY && (here || place->node.dead);
            if (here)
                l->alive_on = l->running = l->reading = 0;
        }
}

static void join_main(teff_ctx *ctx, void *arg)
{
    sim_silo *place = arg;
    teff_err err = teffi_silo_join(ctx, place->silo);
    place->failed = err != TEFF_OK;
    bool apart = err == TEFF_E_UNREACHABLE && !sim_calm(place->world);
    if (place->lost || apart || (err && sim_store_fails(place->world))) {
        place->state = SIM_CLOSING;
        sim_at(&place->world->s, 0, silo_close, place);
        return;
    }
    if (err)
        sim_fail(&place->world->s, "silo %u cannot join: %s: %s", place->no, teff_err_name(err),
                 teff_error(ctx));
    place->state = SIM_SERVING;
    place->serves_ns = place->world->s.now_ns;
    if (place->world->s.plant == SIM_PLANT_ENDLESS)
        teffi_lease_begin(&ctx->home->lease, sim_node_now(&place->node) + 3600 * SIM_SECOND);
    if (!err)
        sim_processes_start(place);
}

/* It reaches nobody any more, and does not leave: others declare it dead. */
static void silo_crash(sim *s, void *arg, bool run)
{
    sim_silo *place = arg;
    if (!run)
        return;
    sim_net_kill(place->silo->node.home.net);
    place->node.stuck = false; /* what its turns do from now on does not count */
    if (place->silo->processes)
        sim_processes_stop(place);
    if (!s->broken)
        silo_close(s, place, true);
}

void sim_silo_kill(sim_silo *place)
{
    place->state = SIM_CLOSING;
    place->node.dead = true;
    sim_silo_lose(place);
    sim_at(&place->world->s, 0, silo_crash, place);
}

/* It stops as if it had crashed; what it does from now on does not count. */
static void silo_lost(void *arg, const char *why)
{
    sim_silo *place = arg;
    (void)why;
    sim_restart_check_lost(place);
    place->lost = place->node.dead = true;
    sim_silo_lose(place);
    if (place->state != SIM_SERVING)
        return; /* joining or leaving ends, then it closes */
    place->state = SIM_CLOSING;
    sim_at(&place->world->s, 0, silo_crash, place);
}

void sim_silo_start(sim_silo *place)
{
    sim_world *w = place->world;
    char text[TEFF_TEXT_MAX] = "";
    teff_silo_options opt = {
        .size = sizeof opt, .listen = place->address, .lost = silo_lost, .lost_arg = place};
    opt.lease_ms = w->lease_ms;
    opt.outage_ms = w->outage_ms;
    opt.activations_max = w->activations_max;
    opt.memory_percent = w->memory_percent;
    opt.stuck_ms = w->stuck_ms;
    opt.reminder_period_min_ms = 1;
    opt.incoming = w->has_filters ? w->incoming : NULL;
    opt.outgoing = w->has_filters ? w->outgoing : NULL;
    if (w->remote_store && place->no > 0)
        opt.seeds[0] = w->silos[0].address;
    place->state = SIM_JOINING;
    place->starts++;
    sim_clocks_set_again(w, &place->node);
    place->node.dead = place->lost = false;
    place->view = 0;
    teff_err err = teffi_silo_new_on_platform(&place->node.platform, &opt, &place->silo, text);
    if (!err) {
        place->node.lease = &place->silo->node.home.lease;
        sim_grains_host(place);
        place->silo->phase = TEFFI_SILO_STARTED;
        err = teffi_silo_open(place->silo, text);
    }
    if (!err)
        err = teffi_task_start(&place->silo->node.home, join_main, place, "join", false);
    if (err)
        sim_fail(&w->s, "silo %u cannot start: %s: %s", place->no, teff_err_name(err), text);
}

/* Calls of its turns that will not end. */
static void lose_calls(sim_silo *place)
{
    place->world->begun -= place->begun.n;
    place->begun = (sim_begun){0};
}

/* A silo that has lost its lease, or does not join since it does not reach the store, starts again
 * when it reaches the store, as silo programs do. */
static void silo_come_back(sim *s, void *arg, bool run)
{
    sim_silo *place = arg;
    if (!run || place->state != SIM_AWAY || place->world->stage > SIM_DRAINS)
        return;
    if (place->node.cut_until_ns > s->now_ns)
        sim_at(s, SIM_SECOND, silo_come_back, place);
    else
        sim_silo_start(place);
}

static void silo_close(sim *s, void *arg, bool run)
{
    sim_silo *place = arg;
    if (!run)
        return;
    place->world->closing++;
    teff_err err = teffi_silo_close(place->silo, place->node.dead ? 0 : CLOSE_MS);
    if (err)
        sim_fail(s, "silo %u cannot close: %s", place->no, teff_err_name(err));
    teff_silo_free(place->silo);
    place->silo = NULL;
    place->node.lease = NULL;
    if (place->failed || place->node.dead) {
        sim_silo_lose(place);
        lose_calls(place);
    }
    place->state = SIM_AWAY;
    place->world->closing--;
    bool away = place->node.cut_until_ns > s->now_ns || s->split_until_ns > s->now_ns;
    if (place->lost || (place->failed && away))
        sim_at(s, SIM_SECOND, silo_come_back, place);
}

static void leave_main(teff_ctx *ctx, void *arg)
{
    sim_silo *place = arg;
    sim_world *w = place->world;
    uint64_t wait = w->s.plant == SIM_PLANT_HASTY ? 0 : LEAVE_MS * SIM_MS;
    teff_err err = teffi_silo_leave(ctx, place->silo, sim_node_now(&place->node) + wait);
    bool unsaved = w->s.faults.restarts; /* the seed may be away for longer than a save waits */
    if (err && w->s.plant != SIM_PLANT_HASTY && !place->lost && !unsaved)
        sim_fail(&w->s, "silo %u cannot leave: %s: %s", place->no, teff_err_name(err),
                 teff_error(ctx));
    place->state = SIM_CLOSING;
    sim_at(&w->s, 0, silo_close, place);
}

static void begin_leaving(sim_silo *place)
{
    if (teffi_task_start(&place->silo->node.home, leave_main, place, "leave", false))
        sim_fail(&place->world->s, "no memory to leave");
}

static void stop_and_leave(sim *s, void *arg, bool run)
{
    sim_silo *place = arg;
    if (!run)
        return;
    sim_processes_stop(place);
    if (!s->broken)
        begin_leaving(place);
}

static void silo_leave(sim_silo *place)
{
    place->state = SIM_LEAVING;
    if (place->silo->processes)
        sim_at(&place->world->s, 0, stop_and_leave, place);
    else
        begin_leaving(place);
}

unsigned sim_silos_count(const sim_world *w, sim_state state)
{
    unsigned n = 0;
    for (unsigned i = 0; i < w->n_silos; i++)
        n += w->silos[i].state == state;
    return n;
}

/* A paused or stuck silo is not there to be told anything. */
sim_silo *sim_silo_pick(sim_world *w, sim_state state)
{
    uint64_t seen = 0;
    sim_silo *chosen = NULL;
    for (unsigned i = w->remote_store ? 1 : 0; i < w->n_silos; i++)
        if (w->silos[i].state == state && !sim_is_paused(&w->silos[i].node) &&
            !w->silos[i].node.stuck && sim_draw_below(&w->draw, ++seen) == 0)
            chosen = &w->silos[i];
    return chosen;
}

/* The silo that keeps the rows of the others leaves last. */
static sim_silo *next_to_leave(sim_world *w)
{
    sim_silo *place = sim_silo_pick(w, SIM_SERVING);
    bool last =
        sim_silos_count(w, SIM_SERVING) == 1 && sim_silos_count(w, SIM_AWAY) == w->n_silos - 1;
    if (!place && w->remote_store && last)
        place = &w->silos[0];
    return place;
}

/* ---- clients ---- */

static void connect_client(teff_ctx *ctx, void *arg)
{
    enum { TRIES = 20, TRIES_AWAY = 1200, PAUSE_MS = 100 };
    sim_client *c = arg;
    teff_err err = TEFF_E_UNREACHABLE;
    /* All silos may be away at the same time if leases are short, or if the only one is a seed that
     * is started again; after a blackout for as long as
     * nine leases. If the store is slow, leases are not short, and nine of them take 90 s. */
    bool away = c->world->lease_ms || c->world->s.faults.restarts;
    int tries = away ? TRIES_AWAY : TRIES;
    for (int i = 0; i < tries && err; i++) {
        if (i)
            teffi_ctx_sleep(ctx, PAUSE_MS);
        err = teffi_gateways_connect(ctx, c->client);
    }
    if (err)
        sim_fail(&c->world->s, "client %s finds no gateway: %s", c->node.name, teff_error(ctx));
    c->joined = true;
    sim_watch_start(c);
}

static void client_start(sim *s, void *arg, bool run)
{
    sim_client *c = arg;
    char text[TEFF_TEXT_MAX] = "";
    teff_client_options opt = {.size = sizeof opt};
    opt.outgoing = c->world->has_filters ? c->world->outgoing : NULL;
    if (!run)
        return;
    for (unsigned i = 0; i < c->world->n_silos; i++)
        opt.gateways[i] = c->world->silos[i].address;
    teff_err err = teffi_client_new_unconnected(&c->node.platform, &opt, &c->client, text);
    if (!err)
        err = teffi_task_start(&c->client->node.home, connect_client, c, "connect", false);
    if (err)
        sim_fail(s, "a client cannot start: %s", text);
}

/* ---- the schedule: each of these draws when it comes next ---- */

static void draw_moves(sim *s, void *arg, bool run)
{
    sim_world *w = arg;
    if (!run || w->stage != SIM_RUNS)
        return;
    (void)s;
    sim_silo *place = sim_draw_chance(&w->draw, 500) ? sim_silo_pick(w, SIM_SERVING) : NULL;
    if (place && sim_silos_count(w, SIM_SERVING) > 1)
        silo_leave(place);
    else if ((place = sim_silo_pick(w, SIM_AWAY)) &&
             (!w->remote_store || w->silos[0].state == SIM_SERVING))
        sim_silo_start(place);
    w->moves++;
    sim_at(&w->s, ms_below(w, w->s.faults.stalls ? 400 : 1200), draw_moves, w);
}

static void draw_calls(sim *s, void *arg, bool run)
{
    sim_world *w = arg;
    if (!run || w->stage != SIM_RUNS)
        return;
    (void)s;
    sim_client *c = &w->clients[sim_draw_below(&w->draw, w->n_clients)];
    sim_silo *place = sim_silo_pick(w, SIM_SERVING);
    if (sim_draw_chance(&w->draw, 600)) {
        if (c->joined)
            sim_caller_start(w, &c->client->node, NULL);
    } else if (place) {
        sim_caller_start(w, &place->silo->node, place);
    }
    sim_at(&w->s, ms_below(w, 300), draw_calls, w);
}

/* ---- stages ---- */

static void next_stage(sim_world *w, sim_stage stage)
{
    w->stage = stage;
    w->until_ns = w->s.now_ns + STAGE_S * SIM_SECOND;
    sim_trace_add(&w->s.trace, w->s.now_ns, "world", "stage", stage, w->calls);
}

static bool clients_ready(const sim_world *w)
{
    for (unsigned i = 0; i < w->n_clients; i++)
        if (w->clients[i].client && !w->clients[i].joined)
            return false;
    return true;
}

static bool all_reach_the_store(const sim_world *w)
{
    for (unsigned i = 0; i < w->n_silos; i++)
        if (w->silos[i].node.cut_until_ns > w->s.now_ns || sim_is_paused(&w->silos[i].node) ||
            w->silos[i].node.held_until_ns > w->s.now_ns || w->silos[i].node.stuck)
            return false;
    return !w->remote_store || w->silos[0].state == SIM_SERVING;
}

static bool world_is_settled(const sim_world *w)
{
    bool split = w->s.split_until_ns > w->s.now_ns; /* a silo may still have to go */
    return !split && all_reach_the_store(w) && w->callers == 0 && w->begun == 0 &&
           !sim_processes_under_way(w) && clients_ready(w) && sim_silos_count(w, SIM_SERVING) > 0 &&
           sim_silos_count(w, SIM_SERVING) + sim_silos_count(w, SIM_AWAY) == w->n_silos;
}

/* One-way messages may arrive after their senders have ended; on a connection that stands still, as
 * late as that may be. */
static bool settled_long(sim_world *w)
{
    uint64_t long_enough_ns = 3 * SIM_SECOND + (w->s.faults.stalls ? SIM_STALL_MAX_NS : 0) +
                              (w->s.faults.mutes ? SIM_SILENT_NS : 0);
    if (!world_is_settled(w))
        w->quiet_ns = 0;
    else if (!w->quiet_ns)
        w->quiet_ns = w->s.now_ns;
    return w->quiet_ns && w->s.now_ns - w->quiet_ns > long_enough_ns;
}

static void free_clients(sim_world *w)
{
    for (unsigned i = 0; i < w->n_clients; i++) {
        teff_client_free(w->clients[i].client);
        w->clients[i].client = NULL;
    }
}

static void leave_next(sim_world *w)
{
    sim_silo *place = next_to_leave(w);
    if (place)
        silo_leave(place);
    else if (sim_silos_count(w, SIM_AWAY) == w->n_silos && !w->closing)
        next_stage(w, SIM_ENDED);
}

/* A turn that has ended because its silo had no lease for a while did not report the ends of its
 * calls. out: true: there were such calls. */
static bool lose_calls_of_lapsed_leases(sim_world *w)
{
    bool any = false;
    for (unsigned i = 0; i < w->n_silos; i++) {
        sim_silo *place = &w->silos[i];
        if (!place->node.lapsed_ns || !place->begun.n)
            continue;
        count_begun_as_unknown(place);
        lose_calls(place);
        any = true;
    }
    return any;
}

static void check_time(sim_world *w)
{
    if (w->s.now_ns <= w->until_ns)
        return;
    if (w->callers == 0 && lose_calls_of_lapsed_leases(w)) {
        w->until_ns += STAGE_S * SIM_SECOND;
        return;
    }
    sim_fail(&w->s,
             "stage %d hangs: %u callers, %lu calls under way, %u silos join, %u leave, %u close",
             w->stage, w->callers, (unsigned long)w->begun, sim_silos_count(w, SIM_JOINING),
             sim_silos_count(w, SIM_LEAVING), sim_silos_count(w, SIM_CLOSING));
}

static void poll_stage(sim *s, void *arg, bool run)
{
    sim_world *w = arg;
    if (!run)
        return;
    check_time(w);
    if (w->stage == SIM_RUNS && s->now_ns >= w->until_ns - STAGE_S * SIM_SECOND) {
        s->faults.store_unknown =
            0; /* no new faults; those that occurred still excuse their effects */
        next_stage(w, SIM_DRAINS);
    } else if (w->stage == SIM_DRAINS && settled_long(w)) {
        next_stage(w, SIM_AUDITS);
        sim_processes_audit(w);
        sim_silo *place = w->remote_store ? &w->silos[0] : sim_silo_pick(w, SIM_SERVING);
        sim_audit_start(w, &place->silo->node);
    } else if (w->stage == SIM_AUDITS && w->audited) {
        next_stage(w, SIM_LEAVES);
        if (sim_draw_chance(&w->draw, 500))
            free_clients(w);
    } else if (w->stage == SIM_LEAVES) {
        leave_next(w);
    }
    if (w->stage != SIM_ENDED)
        sim_at(s, POLL_MS * SIM_MS, poll_stage, w);
}

/* ---- a run ---- */

/* Which nodes poll: in half of the worlds none, in a quarter all, in a quarter some. */
static unsigned draw_polled_of_1000(sim_world *w)
{
    if (!sim_draw_chance(&w->s.poll, 500))
        return 0;
    return sim_draw_chance(&w->s.poll, 500) ? 1000 : 500;
}

static void first_silos(sim *s, void *arg, bool run)
{
    sim_silo *place = arg;
    sim_world *w = place->world;
    if (!run || place->state != SIM_AWAY || w->stage != SIM_RUNS)
        return;
    if (place->no > 0 && w->remote_store && w->silos[0].state != SIM_SERVING)
        sim_at(s, 50 * SIM_MS, first_silos, place);
    else
        sim_silo_start(place);
}

static void plan_run(sim_world *w)
{
    uint64_t length_ms = sim_draw_between(&w->draw, 1500, 8000);
    unsigned first = (unsigned)sim_draw_between(&w->draw, 1, w->n_silos);
    next_stage(w, SIM_RUNS);
    w->until_ns += length_ms * SIM_MS;
    sim_processes_init(w);
    sim_disasters_init(w);
    for (unsigned i = 0; i < first; i++)
        sim_at(&w->s, i ? ms_below(w, 400) + (w->remote_store ? 100 * SIM_MS : 0) : 0, first_silos,
               &w->silos[i]);
    for (unsigned i = 0; i < w->n_clients; i++)
        sim_at(&w->s, ms_below(w, 900), client_start, &w->clients[i]);
    sim_faults_plan(w, length_ms);
    sim_at(&w->s, 500 * SIM_MS, draw_moves, w);
    sim_at(&w->s, 100 * SIM_MS, draw_calls, w);
    sim_keyed_plan(w);
    sim_crew_plan(w);
    sim_bank_plan(w);
    sim_alarm_plan(w);
    sim_at(&w->s, POLL_MS * SIM_MS, poll_stage, w);
}

static void check_step(void *world)
{
    sim_audit_views(world);
    sim_limits_check(world);
}

void sim_world_init(sim_world *w, uint64_t seed, sim_plant plant, const sim_kept *kept)
{
    char name[24];
    memset(w, 0, sizeof *w);
    sim_init(&w->s, seed, plant);
    w->s.plant_frame = sim_plant_frame;
    w->s.plant_twice = sim_plant_twice;
    w->s.list.kept = *kept;
    w->s.after = check_step;
    w->s.wrote = sim_rows_check_write;
    w->s.world = w;
    w->draw = sim_draw_of(seed, STREAM_WORLD);
    w->n_silos = (unsigned)sim_draw_between(&w->draw, 2, SIM_SILOS_MAX);
    w->n_clients = (unsigned)sim_draw_between(&w->draw, 1, SIM_CLIENTS_MAX);
    w->remote_store = sim_draw_chance(&w->draw, 250);
    sim_draw bulk = sim_draw_of(seed, STREAM_BULK);
    w->bulky = sim_draw_chance(&bulk, 50);
    sim_faults_init(w);
    sim_grains_init(w);
    sim_keyed_init(w);
    sim_limits_init(w);
    sim_watch_init(w);
    sim_crew_init(w);
    sim_filter_init(w);
    sim_danger_init(w);
    sim_split_init(w);
    sim_restart_init(w);
    sim_bank_init(w);
    unsigned polled_of_1000 = draw_polled_of_1000(w);
    sim_clocks_init(w);
    sim_alarm_init(w);
    sim_faults_list_rates(w);
    for (unsigned i = 0; i < w->n_silos; i++) {
        sim_silo *place = &w->silos[i];
        place->world = w;
        place->no = i;
        snprintf(place->address, sizeof place->address, "127.0.0.1:%u", 7000 + i);
        snprintf(name, sizeof name, "silo%u", i);
        sim_platform_init(&place->node, &w->s, i, name);
        place->node.platform.memory_use = sim_limits_read_memory;
        sim_clocks_draw(w, &place->node);
        place->node.polled = sim_draw_chance(&w->s.poll, polled_of_1000);
    }
    for (unsigned i = 0; i < w->n_clients; i++) {
        snprintf(name, sizeof name, "client%u", i);
        w->clients[i].world = w;
        sim_platform_init(&w->clients[i].node, &w->s, SIM_SILOS_MAX + i, name);
        sim_clocks_draw(w, &w->clients[i].node);
        w->clients[i].node.polled = sim_draw_chance(&w->s.poll, polled_of_1000);
    }
}

bool sim_world_run(sim_world *w)
{
    plan_run(w);
    while (w->stage != SIM_ENDED && sim_step(&w->s)) {
    }
    if (!w->s.broken)
        free_clients(w);
    if (!w->s.broken)
        sim_audit_store(w);
    return !w->s.broken;
}

void sim_world_fini(sim_world *w)
{
    sim_fini(&w->s);
    sim_processes_fini(w);
    sim_bank_fini(w);
}
