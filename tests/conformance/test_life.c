/* test_life.c - how activations begin and end: hooks that fail, calls meanwhile, one activation of
 * many first calls, hooks that do not return, collection by age. */
#include "conform.h"

enum { CALLS = 40 };

/* ---- activation ---- */

static teff_err runs_once(turn *t)
{
    atomic_fetch_add(&world.n, 1);
    return nothing(t);
}

static void activate_and_deactivate(conform *c)
{
    (void)RUN(c, plain, "a", runs_once);
    assert_int_equal(world.activated, 1);
    assert_int_equal(world.deactivated, 0);
    (void)RUN(c, plain, "a", quits);
    UNTIL(c, world.deactivated == 1);
    assert_int_equal(world.reason, TEFF_REASON_REQUESTED);
    (void)RUN(c, plain, "a", runs_once);
    assert_int_equal(world.activated, 2);
}

/* The error surfaces, nothing has run, and the next call tries again. */
static void bad_activate(conform *c)
{
    actors_result *out;
    world.fails = 2;
    for (int i = 0; i < 2; i++) {
        conform_fails(c, TEFF_E_USER(5), actors_plain_run(c->ctx, "a", STEP(runs_once), &out));
        assert_non_null(strstr(teff_error(c->ctx), "not today"));
    }
    assert_int_equal(world.n, 0);
    (void)RUN(c, plain, "a", runs_once);
    assert_int_equal(world.n, 1);
    assert_int_equal(world.activated, 3);
    assert_int_equal(world.deactivated, 0);
}

static teff_err calls_b_unless_b(turn *t)
{
    actors_result *out;
    return strcmp(t->key, "b") ? actors_plain_run(t->ctx, "b", STEP(runs_once), &out) : TEFF_OK;
}

static void a_call_in_on_activate(conform *c)
{
    world.on_activate = calls_b_unless_b;
    (void)RUN(c, plain, "a", runs_once);
    assert_int_equal(world.n, 2);
}

static teff_err takes_50_ms(turn *t)
{
    teff_sleep(t->ctx, 50);
    return TEFF_OK;
}

/* Calls of a grain that is being activated wait, and all reach the one activation. */
static void calls_during_activation(conform *c)
{
    teff_call calls[CALLS];
    world.on_activate = takes_50_ms;
    for (int i = 0; i < CALLS; i++)
        calls[i] = BEGIN(c, plain, "a", runs_once);
    conform_await_all(c, calls, CALLS);
    assert_int_equal(world.n, CALLS);
    assert_int_equal(world.activated, 1);
}

/* ---- deactivation ---- */

static teff_err takes_5_ms(turn *t)
{
    teff_sleep(t->ctx, 5);
    return TEFF_OK;
}

/* Each tenth call ends the activation, and on_deactivate takes a while: no call is lost, no two
 * activations live at once. */
static void calls_during_deactivation(conform *c)
{
    teff_call calls[CALLS];
    world.on_deactivate = takes_5_ms;
    for (int i = 0; i < CALLS; i++)
        calls[i] = i % 10 == 9 ? BEGIN(c, plain, "a", quits) : BEGIN(c, plain, "a", runs_once);
    conform_await_all(c, calls, CALLS);
    assert_int_equal(world.n, CALLS - CALLS / 10);
    assert_int_equal(world.most_alive, 1);
    UNTIL(c, world.deactivated >= 1 && world.activated - world.deactivated <= 1);
    assert_true(world.activated >= 2);
}

static teff_err calls_and_quits(turn *t)
{
    actors_result *out;
    teff_deactivate(t->ctx);
    teff_sleep(t->ctx, 5);
    return actors_plain_run(t->ctx, "other", STEP(runs_once), &out);
}

/* It ends after its turn, which may still wait. */
static void quits_in_the_middle(conform *c)
{
    (void)RUN(c, plain, "a", calls_and_quits);
    UNTIL(c, world.deactivated == 1);
    assert_int_equal(world.n, 1);
}

/* ---- duplicates ---- */

/* First calls of the same grains, by the client and by each silo at the same time. */
static void concurrent_first_calls(conform *c)
{
    enum { KEYS = 20 };
    teff_ctx *of[4] = {c->ctx};
    teff_call calls[4][KEYS];
    char key[16];
    for (unsigned i = 0; i < c->silos; i++) {
        of[i + 1] = teff_silo_new_ctx(conform_silo(c, i));
        assert_non_null(of[i + 1]);
    }
    for (int k = 0; k < KEYS; k++)
        for (unsigned i = 0; i <= c->silos; i++) {
            snprintf(key, sizeof key, "k%d", k);
            conform_ok(of[i],
                       actors_plain_run_async(of[i], key, STEP(runs_once), NULL, &calls[i][k]));
        }
    for (unsigned i = 0; i <= c->silos; i++)
        conform_ok(of[i], teff_await_all(of[i], calls[i], KEYS));
    assert_int_equal(world.n, KEYS * (int)(c->silos + 1));
    assert_int_equal(world.activated - world.deactivated, KEYS);
    assert_int_equal(world.activated, KEYS);
    for (unsigned i = 1; i <= c->silos; i++)
        teff_ctx_free(of[i]);
}

/* ---- hooks that do not return: they are ended after 60 s, so only on virtual time ---- */

static teff_err takes_an_hour(turn *t)
{
    teff_sleep(t->ctx, 3600 * 1000);
    return TEFF_OK;
}

/* For the first activation only. */
static teff_err never_returns(turn *t)
{
    actors_result *out;
    world.on_activate = world.on_deactivate = (script *)0;
    teff_ctx_set_timeout(t->ctx, 2 * 3600 * 1000);
    return actors_plain_run(t->ctx, "b", STEP(takes_an_hour), &out);
}

static teff_call begin_patiently(conform *c)
{
    teff_call call;
    teff_call_options options = {.size = sizeof options, .timeout_ms = 600 * 1000};
    conform_ok(c->ctx, actors_plain_run_async(c->ctx, "a", STEP(runs_once), &options, &call));
    return call;
}

static void stuck_activation(conform *c)
{
    actors_result *out;
    world.on_activate = never_returns;
    uint64_t begin = teff_testing_now_ms(c->cluster);
    conform_fails(c, TEFF_E_UNAVAILABLE, actors_plain_run_await(c->ctx, begin_patiently(c), &out));
    assert_in_range(teff_testing_now_ms(c->cluster) - begin, TEFF_HOOK_MAX_MS, 70000);
    assert_int_equal(world.n, 0);
    (void)RUN(c, plain, "a", runs_once);
}

static void stuck_deactivation(conform *c)
{
    world.on_deactivate = never_returns;
    (void)RUN(c, plain, "a", quits);
    teff_sleep(c->ctx, 200);
    teff_call call = begin_patiently(c);
    uint64_t begin = teff_testing_now_ms(c->cluster);
    conform_await_all(c, &call, 1);
    assert_in_range(teff_testing_now_ms(c->cluster) - begin, 50000, 70000);
    assert_int_equal(world.n, 1);
}

/* ---- collection ---- */

static void idle_is_collected_by_its_type(conform *c)
{
    (void)RUN(c, plain, "a", nothing); /* stays for 15 minutes */
    (void)RUN(c, fleeting, "a", nothing);
    UNTIL(c, world.deactivated == 1);
    assert_int_equal(world.reason, TEFF_REASON_IDLE);
    teff_sleep(c->ctx, 300);
    assert_int_equal(world.deactivated, 1);
    (void)RUN(c, fleeting, "a", nothing);
    assert_int_equal(world.activated, 3);
}

static void busy_is_not_collected(conform *c)
{
    teff_call call = BEGIN(c, fleeting, "a", holds);
    UNTIL(c, world.inside == 1);
    teff_sleep(c->ctx, 500);
    assert_int_equal(world.deactivated, 0);
    world.gate = true;
    conform_await_all(c, &call, 1);
    UNTIL(c, world.deactivated == 1);
}

static teff_err delays_by_n(turn *t)
{
    teff_delay_deactivation(t->ctx, t->in->n);
    return TEFF_OK;
}

static void delay_deactivation(conform *c)
{
    (void)RUN(c, fleeting, "a", delays_by_n, .n = 3600 * 1000);
    teff_sleep(c->ctx, 500);
    assert_int_equal(world.deactivated, 0);
    (void)RUN(c, fleeting, "a", delays_by_n, .n = 0);
    UNTIL(c, world.deactivated == 1);
}

static void fifteen_minutes(conform *c)
{
    (void)RUN(c, plain, "a", nothing);
    teff_testing_advance(c->cluster, 14 * 60 * 1000);
    assert_int_equal(world.deactivated, 0);
    teff_testing_advance(c->cluster, 3 * 60 * 1000);
    assert_int_equal(world.deactivated, 1);
    assert_int_equal(world.reason, TEFF_REASON_IDLE);
}

int main(void)
{
    enum { ON_VIRTUAL_TIME = SIMULATED | ONE_SILO | THREE_SILOS };
    static const conform_row rows[] = {
        {"GrainActivateDeactivateTests.WatcherGrain", activate_and_deactivate, EVERYWHERE},
        {"GrainActivateDeactivateTests.BadActivate_GetValue", bad_activate, EVERYWHERE},
        {"GrainActivateDeactivateTests.TaskAction_Activate", a_call_in_on_activate, EVERYWHERE},
        {"GrainActivateDeactivateTests.calls during activation", calls_during_activation,
         EVERYWHERE},
        {"DeactivateOnIdleTests.DeactivateOnIdleTest_Stress", calls_during_deactivation,
         EVERYWHERE},
        {"DeactivateOnIdleTests.DeactivateOnIdleTestInside_Basic", quits_in_the_middle, EVERYWHERE},
        {"DuplicateActivationsTests.DuplicateActivations", concurrent_first_calls, EVERYWHERE},
        {"StuckGrainTests.StuckGrainTest_StuckActivation", stuck_activation, ON_VIRTUAL_TIME},
        {"StuckGrainTests.StuckGrainTest_StuckDeactivation", stuck_deactivation, ON_VIRTUAL_TIME},
        {"ActivationCollectorTests.ActivationCollectorShouldCollectByCollectionSpecificAgeLimit",
         idle_is_collected_by_its_type, EVERYWHERE},
        {"ActivationCollectorTests.ActivationCollectorShouldNotCollectBusyActivations",
         busy_is_not_collected, EVERYWHERE},
        {"ActivationCollectorTests.DelayDeactivation", delay_deactivation, EVERYWHERE},
        {"ActivationCollectorTests.ActivationCollectorShouldCollectIdleActivations",
         fifteen_minutes, ON_VIRTUAL_TIME},
    };
    return conform_run(rows, sizeof rows / sizeof rows[0]);
}
