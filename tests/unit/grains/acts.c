/* acts.c - the grains that run scripts, and their silo.
 * Way:     test_direct*.c -> [acts] -> silo */
#include "activation/turn.h" /* before acts.h, whose ctx its parameters would hide */

#include "acts.h"
#include "call/wait.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include "../sched/held_monitor.h"

struct world world;
lab *l;
teff_ctx *ctx;

/* ---- the grains ---- */

static teff_err run_script(teff_ctx *turn, int64_t key, const direct_act *in, direct_number *out)
{
    world.begun++;
    teff_err err = ((script *)(uintptr_t)in->script)(turn, key, in, out);
    world.ended++;
    return err;
}

static teff_err obey_actor(direct_actor *self, const direct_act *in, direct_number *out)
{
    return run_script(self->ctx, self->key, in, out);
}

static teff_err actor_tell(direct_actor *self, const direct_act *in)
{
    return run_script(self->ctx, self->key, in, NULL);
}

const direct_actor_methods acts_actor = {
    .obey = obey_actor, .read = obey_actor, .quick = obey_actor, .tell = actor_tell};

static teff_err loose_obey(direct_loose *self, const direct_act *in, direct_number *out)
{
    return run_script(self->ctx, self->key, in, out);
}

static const direct_loose_methods loose = {.obey = loose_obey};

direct_memo *acts_memo(const teff_ctx *turn)
{
    return (direct_memo *)teffi_activation_state(teffi_activation_of_ctx(turn));
}

static teff_err run_on_activate(teff_ctx *turn, int64_t key)
{
    script *own = world.on_activate;
    world.activated++;
    return own ? own(turn, key, direct_act(), NULL) : TEFF_OK;
}

static teff_err keeper_obey(direct_keeper *self, const direct_act *in, direct_number *out)
{
    return run_script(self->ctx, self->key, in, out);
}

static teff_err keeper_begin(direct_keeper *self)
{
    return run_on_activate(self->ctx, self->key);
}

static teff_err keeper_end(direct_keeper *self, teff_reason why)
{
    world.deactivated++;
    return direct_keeper_save(self);
}

static const direct_keeper_methods keeper = {.obey = keeper_obey,
                                             .other = keeper_obey,
                                             .look = keeper_obey,
                                             .on_activate = keeper_begin,
                                             .on_deactivate = keeper_end};

static teff_err crowd_obey(direct_crowd *self, const direct_act *in, direct_number *out)
{
    return run_script(self->ctx, self->key, in, out);
}

static teff_err crowd_begin(direct_crowd *self)
{
    return run_on_activate(self->ctx, self->key);
}

static teff_err crowd_end(direct_crowd *self, teff_reason why)
{
    world.deactivated++;
    return direct_crowd_save(self);
}

static const direct_crowd_methods crowd = {
    .obey = crowd_obey, .on_activate = crowd_begin, .on_deactivate = crowd_end};

/* ---- time ---- */

static uint64_t (*real_clock)(void *arg);
static _Atomic uint64_t stopped_ns; /* 0: time passes by itself */

static uint64_t acts_clock(void *arg)
{
    uint64_t ns = atomic_load(&stopped_ns);
    return ns ? ns : real_clock(arg);
}

static bool monitor_stands(void)
{
    pthread_mutex_lock(&monitor.lock);
    bool stands = monitor.waits;
    pthread_mutex_unlock(&monitor.lock);
    return stands;
}

void acts_pass_ms(uint64_t ms)
{
    atomic_fetch_add(&stopped_ns, ms * 1000000);
    monitor_tick();
}

static teff_err passes_a_ms(teff_ctx *turn, int64_t key, const direct_act *in, direct_number *out)
{
    acts_pass_ms(1);
    return TEFF_OK;
}

void acts_stop_time(void)
{
    direct_number *out;
    pthread_mutex_lock(&monitor.lock);
    monitor.held = true;
    pthread_mutex_unlock(&monitor.lock);
    do /* a call wakes the monitor if it sleeps; it stands at its next tick */
        lab_ok(ctx, direct_actor_obey(ctx, 1, RUN(responds), &out));
    while (!monitor_stands());
    atomic_store(&stopped_ns, real_clock(l->silos[0]->platform.arg));
    lab_ok(ctx, direct_actor_obey(ctx, 1, RUN(passes_a_ms), &out)); /* the coarse clock runs */
}

void acts_start_time(void)
{
    atomic_store(&stopped_ns, 0);
    monitor_release();
}

/* ---- the silo ---- */

void acts_open(teff_silo_options opt)
{
    static teffi_platform platform;
    char text[TEFF_TEXT_MAX] = "";
    opt.size = sizeof opt;
    teffi_silo_init_platform(&platform, TEFF_LOG_WARN);
    real_clock = platform.mono_ns;
    platform.mono_ns = acts_clock;
    monitor_hold(&platform);
    monitor_release();
    memset(&world, 0, sizeof world);
    l = calloc(1, sizeof *l);
    assert_non_null(l);
    if (teffi_silo_new_on_platform(&platform, &opt, &l->silos[0], text))
        fail_msg("teffi_silo_new_on_platform: %s", text);
    assert_int_equal(teff_silo_host(l->silos[0], direct_actor_type(&acts_actor, NULL)), TEFF_OK);
    assert_int_equal(teff_silo_host(l->silos[0], direct_loose_type(&loose, NULL)), TEFF_OK);
    assert_int_equal(teff_silo_host(l->silos[0], direct_keeper_type(&keeper, NULL)), TEFF_OK);
    assert_int_equal(teff_silo_host(l->silos[0], direct_crowd_type(&crowd, NULL)), TEFF_OK);
    if (teff_silo_start(l->silos[0], text))
        fail_msg("teff_silo_start: %s", text);
    ctx = l->ctx[0] = teff_silo_new_ctx(l->silos[0]);
    l->n = 1;
}

int acts_setup(void **state)
{
    acts_open((teff_silo_options){.silent = 1, .store = "memory", .workers = 2});
    return 0;
}

int acts_setup_one_worker(void **state)
{
    acts_open((teff_silo_options){.silent = 1, .store = "memory", .workers = 1});
    return 0;
}

static int setup_scheduler(const teff_sched_options *sched)
{
    acts_open((teff_silo_options){.silent = 1, .store = "memory", .workers = 2, .sched = sched});
    return 0;
}

int acts_setup_multilevel(void **state)
{
    return setup_scheduler(
        &(teff_sched_options){.size = sizeof(teff_sched_options), .policy = TEFF_SCHED_MULTILEVEL});
}

int acts_setup_priority(void **state)
{
    return setup_scheduler(
        &(teff_sched_options){.size = sizeof(teff_sched_options), .policy = TEFF_SCHED_PRIORITY});
}

static void on_run(void *arg, uint32_t thread, const void *group)
{
}

int acts_setup_hooked(void **state)
{
    static const teff_sched_hooks hooks = {.size = sizeof hooks, .before = on_run, .after = on_run};
    return setup_scheduler(
        &(teff_sched_options){.size = sizeof(teff_sched_options), .hooks = &hooks});
}

int acts_teardown(void **state)
{
    world.gate = true;
    acts_start_time();
    lab_close(l);
    return 0;
}

void acts_sleep_ms(long ms)
{
    struct timespec t = {ms / 1000, ms % 1000 * 1000000};
    nanosleep(&t, NULL);
}

/* Groups taken off queues so far. */
uint64_t acts_picks(void)
{
    teff_sched_worker workers[64];
    uint64_t sum = 0;
    size_t n = teff_silo_sched_metrics(l->silos[0], NULL, workers, 64);
    for (size_t i = 0; i < n; i++)
        sum += workers[i].local + workers[i].global + workers[i].stolen;
    return sum;
}

static void wait_for_gate(teff_ctx *turn)
{
    world.held++;
    while (!world.gate)
        teffi_ctx_sleep(turn, 1);
    world.held--;
}

uint64_t acts_activations(void)
{
    return l->silos[0]->node.grains->shards->activations;
}

/* ---- callees ---- */

teff_err responds(teff_ctx *turn, int64_t key, const direct_act *in, direct_number *out)
{
    out->n = in->n + 1;
    out->text = in->text;
    return key ? TEFF_OK : TEFF_E_FAILED;
}

teff_err fails(teff_ctx *turn, int64_t key, const direct_act *in, direct_number *out)
{
    return teff_fail(turn, TEFF_E_USER + 3, "%s says grain %d", in->text, (int)key);
}

teff_err sleeps(teff_ctx *turn, int64_t key, const direct_act *in, direct_number *out)
{
    teffi_ctx_sleep(turn, 1);
    return responds(turn, key, in, out);
}

teff_err waits(teff_ctx *turn, int64_t key, const direct_act *in, direct_number *out)
{
    wait_for_gate(turn);
    return responds(turn, key, in, out);
}

teff_err ends(teff_ctx *turn, int64_t key, const direct_act *in, direct_number *out)
{
    teff_deactivate(turn);
    return responds(turn, key, in, out);
}

teff_err asks_one(teff_ctx *turn, int64_t key, const direct_act *in, direct_number *out)
{
    direct_number *got;
    teff_err err =
        direct_actor_obey(turn, key + FIRST, ACT((uintptr_t)in->n, .text = in->text), &got);
    out->n = err ? 0 : got->n;
    return err;
}
