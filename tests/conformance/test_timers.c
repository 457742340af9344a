/* test_timers.c - timers of activations: period, no overlap, change, stop, the activation ends. */
#include "conform.h"

static _Atomic uint64_t timer_id;

static teff_err ticks(turn *t)
{
    world_enter();
    atomic_fetch_add(&world.ticks, 1);
    if (t->in->n)
        teff_sleep(t->ctx, (uint32_t)t->in->n);
    world_leave();
    return TEFF_OK;
}

/* n / 1000: the period; n % 1000: how long a tick sleeps. */
static teff_err starts_timer(turn *t)
{
    teff_timer timer;
    teff_timer_options options = {
        .size = sizeof options, .due_ms = 10, .period_ms = (uint32_t)(t->in->n / 1000)};
    teff_err err =
        actors_plain_tell_timer(t->ctx, STEP(ticks, .n = t->in->n % 1000), &options, &timer);
    atomic_store(&timer_id, timer.id);
    return err;
}

static teff_err stops_timer(turn *t)
{
    t->out->n = teff_timer_stop(t->ctx, (teff_timer){atomic_load(&timer_id)});
    return TEFF_OK;
}

static teff_err changes_period_to_n(turn *t)
{
    uint32_t ms = (uint32_t)t->in->n;
    t->out->n = teff_timer_change(t->ctx, (teff_timer){atomic_load(&timer_id)}, ms, ms);
    return TEFF_OK;
}

static void a_timer_ticks_until_it_is_stopped(conform *c)
{
    (void)RUN(c, plain, "a", starts_timer, .n = 10 * 1000);
    UNTIL(c, world.ticks >= 5);
    assert_true(RUN(c, plain, "a", stops_timer));
    int before = world.ticks;
    teff_sleep(c->ctx, 200);
    assert_int_equal(world.ticks, before);
    assert_false(RUN(c, plain, "a", stops_timer));
}

static void ticks_do_not_overlap(conform *c)
{
    (void)RUN(c, plain, "a", starts_timer, .n = 1 * 1000 + 20);
    UNTIL(c, world.ticks >= 5);
    (void)RUN(c, plain, "a", nothing);
    assert_int_equal(world.most, 1);
    (void)RUN(c, plain, "a", stops_timer);
}

static teff_err starts_reentrant_timer(turn *t)
{
    teff_timer_options options = {.size = sizeof options, .due_ms = 1, .period_ms = 1};
    return actors_reentrant_tell_timer(t->ctx, STEP(ticks, .n = 20), &options, NULL);
}

/* Turns of a reentrant grain overlap, but not two ticks of one timer. */
static void ticks_of_a_reentrant_grain(conform *c)
{
    (void)RUN(c, reentrant, "a", starts_reentrant_timer);
    UNTIL(c, world.ticks >= 5);
    (void)RUN(c, reentrant, "a", nothing);
    assert_int_equal(world.most, 1);
}

static void one_tick_without_a_period(conform *c)
{
    (void)RUN(c, plain, "a", starts_timer, .n = 0);
    UNTIL(c, world.ticks == 1);
    teff_sleep(c->ctx, 200);
    assert_int_equal(world.ticks, 1);
}

static void a_timer_is_changed(conform *c)
{
    (void)RUN(c, plain, "a", starts_timer, .n = 10 * 1000);
    UNTIL(c, world.ticks >= 2);
    assert_true(RUN(c, plain, "a", changes_period_to_n, .n = 3600 * 1000));
    int before = world.ticks;
    teff_sleep(c->ctx, 300);
    assert_int_equal(world.ticks, before);
    assert_true(RUN(c, plain, "a", changes_period_to_n, .n = 10));
    UNTIL(c, world.ticks >= before + 2);
    (void)RUN(c, plain, "a", stops_timer);
}

static void timers_end_with_the_activation(conform *c)
{
    (void)RUN(c, plain, "a", starts_timer, .n = 10 * 1000);
    UNTIL(c, world.ticks >= 2);
    (void)RUN(c, plain, "a", quits);
    UNTIL(c, world.deactivated == 1);
    int before = world.ticks;
    (void)RUN(c, plain, "a", nothing);
    teff_sleep(c->ctx, 200);
    assert_int_equal(world.ticks, before);
    assert_false(RUN(c, plain, "a", stops_timer)); /* a stale handle */
}

/* The period counts from the end of a tick. */
static void the_period_is_exact(conform *c)
{
    (void)RUN(c, plain, "a", starts_timer, .n = 1000 * 1000 + 500);
    uint64_t begin = teff_testing_now_ms(c->cluster);
    UNTIL(c, world.ticks == 11);
    assert_in_range(teff_testing_now_ms(c->cluster) - begin, 14900, 15500);
    (void)RUN(c, plain, "a", stops_timer);
}

int main(void)
{
    static const conform_row rows[] = {
        {"TimerOrleansTest.TimerOrleansTest_Basic", a_timer_ticks_until_it_is_stopped, EVERYWHERE},
        {"TimerOrleansTest.no overlap", ticks_do_not_overlap, EVERYWHERE},
        {"TimerOrleansTest.no overlap, reentrant", ticks_of_a_reentrant_grain, EVERYWHERE},
        {"TimerOrleansTest.one tick", one_tick_without_a_period, EVERYWHERE},
        {"TimerOrleansTest.GrainTimer_Change", a_timer_is_changed, EVERYWHERE},
        {"TimerOrleansTest.TimerOrleansTest_Migration, the activation ends",
         timers_end_with_the_activation, EVERYWHERE},
        {"TimerOrleansTest.TimerOrleansTest_Parallel, the period", the_period_is_exact,
         SIMULATED | ONE_SILO | THREE_SILOS},
    };
    return conform_run(rows, sizeof rows / sizeof rows[0]);
}
