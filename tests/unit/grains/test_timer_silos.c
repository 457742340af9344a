/* test_timer_silos.c - timers of grains with state on real silos: saved states, transactions,
 * grains that move; and teff_sleep outside of turns. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "activation/activation.h"
#include "lab.h"
#include "timers.teff.h"

typedef teff_err script(timers_vault *self);

enum { VAULTS = 40, ROUNDS = 200 };

static struct {
    _Atomic bool gate;
    _Atomic int held;               /* turns that wait for the gate */
    _Atomic int ticks[VAULTS];      /* by the number that is the vault's key */
    _Atomic int active[VAULTS];     /* between on_activate and on_deactivate */
    _Atomic int inside[VAULTS];     /* ticks under way */
    _Atomic int overlaps, strays;   /* ticks beside another one; ticks of no activation */
    _Atomic uint64_t place[VAULTS]; /* the silo of the last tick */
} world;

static lab *l;

static int vault_of(const timers_vault *self)
{
    return atoi(self->key);
}

static teff_err tick(timers_vault *self, const timers_beat *in)
{
    int v = vault_of(self);
    world.strays += world.active[v] != 1;
    world.overlaps += atomic_fetch_add(&world.inside[v], 1) != 0;
    self->state->n++;
    timers_number_append_lines(self->ctx, self->state, "a line of the state");
    if (self->state->n_lines > 100)
        self->state->n_lines = 0;
    teff_err err = self->state->n % 16 ? TEFF_OK : timers_vault_save(self);
    world.place[v] = teffi_node_to_word(self->ctx->node->id);
    world.inside[v]--;
    world.ticks[v]++;
    return err;
}

static teff_err ask(timers_vault *self, const timers_beat *in, timers_number *out)
{
    teff_err err = in->script ? ((script *)(uintptr_t)in->script)(self) : TEFF_OK;
    out->n = self->state->n;
    return err;
}

static teff_err hold(timers_vault *self, const timers_beat *in, timers_number *out)
{
    self->state->n += in->n;
    world.held++;
    while (!world.gate)
        teff_sleep(self->ctx, 1);
    world.held--;
    out->n = self->state->n;
    return in->n < 0 ? TEFF_E_USER(1) : timers_vault_save(self);
}

static const teff_timer_options every_ms = {.size = sizeof every_ms, .period_ms = 1};

static teff_err starts(timers_vault *self)
{
    return timers_vault_tick_timer(self->ctx, timers_beat(), &every_ms, NULL);
}

static teff_err begin(timers_vault *self)
{
    world.active[vault_of(self)]++;
    return starts(self);
}

/* No tick is under way, and none comes any more. */
static teff_err end(timers_vault *self, teff_reason why)
{
    world.strays += world.inside[vault_of(self)] != 0;
    world.active[vault_of(self)]--;
    return timers_vault_save(self);
}

static const timers_vault_methods methods = {
    .ask = ask, .hold = hold, .tick = tick, .on_activate = begin, .on_deactivate = end};

static void host(teff_silo *silo)
{
    assert_int_equal(teff_silo_host(silo, timers_vault_type(&methods, NULL)), TEFF_OK);
}

static int setup(int n)
{
    memset(&world, 0, sizeof world);
    l = lab_open_more(n, host);
    return 0;
}

static int setup_one(void **state)
{
    return setup(1);
}

static int setup_two(void **state)
{
    return setup(2);
}

static int teardown(void **state)
{
    world.gate = true;
    lab_close(l);
    return world.overlaps || world.strays;
}

static int64_t ask_vault(const char *key, script *fn)
{
    timers_number *out;
    lab_ok(l->ctx[0], timers_vault_ask(l->ctx[0], key, timers_beat(.script = (uintptr_t)fn), &out));
    return out->n;
}

/* ---- scripts ---- */

static teff_err quits(timers_vault *self)
{
    teff_deactivate(self->ctx);
    return TEFF_OK;
}

static teff_err starts_and_stops(timers_vault *self)
{
    teff_timer timer;
    teff_err err = timers_vault_tick_timer(self->ctx, timers_beat(), &every_ms, &timer);
    teff_sleep(self->ctx, 2);
    if (!err && !teff_timer_change(self->ctx, timer, 0, 1))
        err = TEFF_E_FAILED;
    teff_sleep(self->ctx, 1);
    return err || teff_timer_stop(self->ctx, timer) ? err : TEFF_E_FAILED;
}

/* ---- */

/* The state is compacted between ticks, and is there again after the grain has ended. */
static void test_ticks_change_the_state(void **state)
{
    (void)ask_vault("1", NULL);
    lab_until(world.ticks[1] >= 300);
    int64_t n = ask_vault("1", quits);
    assert_true(n >= 300);
    assert_true(ask_vault("1", NULL) >= n);
}

/* Another grain has ticked meanwhile. A timer is not rolled back, but what its ticks change is
 * safe: they begin when the transaction has ended. */
static void test_ticks_wait_for_a_transaction(void **state)
{
    teff_call call;
    timers_number *out;
    teff_ctx *ctx = l->ctx[0];
    (void)ask_vault("1", NULL);
    (void)ask_vault("2", NULL);
    lab_until(world.ticks[1] > 0);
    lab_ok(ctx, timers_vault_hold_async(ctx, "1", timers_beat(.n = -1000000), NULL, &call));
    lab_until(world.held == 1);
    int ticks = world.ticks[1], others = world.ticks[2];
    lab_until(world.ticks[2] >= others + 50);
    assert_int_equal(world.ticks[1], ticks);
    world.gate = true;
    lab_fails(ctx, timers_vault_hold_await(ctx, call, &out), TEFF_E_USER(1));
    lab_until(world.ticks[1] > ticks + 10);
    assert_true(ask_vault("1", NULL) > ticks); /* rolled back, and ticked on */
}

/* Each activation starts its timer; those of the silo that leaves go on elsewhere. */
static void test_timers_of_a_silo_that_leaves(void **state)
{
    char key[12];
    for (int i = 0; i < VAULTS; i++) {
        snprintf(key, sizeof key, "%d", i);
        (void)ask_vault(key, NULL);
        lab_until(world.ticks[i] > 0);
    }
    assert_int_equal(lab_remove(l, 1), TEFF_OK);
    uint64_t here = teffi_node_to_word(l->silos[0]->node.id);
    for (int i = 0; i < VAULTS; i++) {
        snprintf(key, sizeof key, "%d", i);
        int ticks = world.ticks[i];
        assert_true(ask_vault(key, NULL) >= ticks); /* those of the other silo were saved */
        lab_until(world.ticks[i] > ticks);
        assert_int_equal(world.place[i], here);
    }
}

/* On many threads: timers are started, changed and stopped while they fire; activations end. */
static void test_timers_while_grains_come_and_go(void **state)
{
    char key[12];
    for (int i = 0; i < ROUNDS; i++) {
        snprintf(key, sizeof key, "%d", i % VAULTS);
        (void)ask_vault(key, i % 3 ? starts_and_stops : quits);
    }
}

static void test_a_thread_sleeps(void **state)
{
    const teffi_platform *platform = l->silos[0]->node.platform;
    uint64_t begin_ns = teffi_now(platform);
    teff_sleep(l->ctx[0], 5);
    assert_true(teffi_now(platform) - begin_ns >= 5000000);
    assert_int_equal(teff_silo_stop(l->silos[0], 0), TEFF_OK);
    teff_sleep(l->ctx[0], UINT32_MAX); /* the silo is closed */
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_ticks_change_the_state, setup_one, teardown),
        cmocka_unit_test_setup_teardown(test_ticks_wait_for_a_transaction, setup_one, teardown),
        cmocka_unit_test_setup_teardown(test_timers_of_a_silo_that_leaves, setup_two, teardown),
        cmocka_unit_test_setup_teardown(test_timers_while_grains_come_and_go, setup_one, teardown),
        cmocka_unit_test_setup_teardown(test_timers_while_grains_come_and_go, setup_two, teardown),
        cmocka_unit_test_setup_teardown(test_a_thread_sleeps, setup_one, teardown),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
