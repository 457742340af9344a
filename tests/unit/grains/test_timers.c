/* test_timers.c - timers of an activation, millisecond by millisecond: when ticks run, how timers
 * are stopped and changed, which ones are refused. */
#include "clock.h"

/* ---- when ticks run ---- */

static void test_one_tick_with_its_message(void **state)
{
    world.options.due_ms = 30;
    run(starts, 7);
    pass_ms(29);
    assert_int_equal(world.begun, 0);
    pass_ms(1000);
    TICKED(30);
    assert_int_equal(world.n[0], 7);
    assert_int_equal(machine.n_set, 0);
    assert_null(act->more); /* freed with its last timer */
    run(stops, false);      /* a stale handle */
    run(starts_bare, 0);
    pass_ms(0);
    assert_int_equal(world.begun, 2); /* as soon as the turn that started it had ended */
    assert_int_equal(world.n[1], 99);
}

/* The period counts from the end of a tick: here, a tick takes three periods. */
static void test_the_period_begins_at_the_end_of_a_tick(void **state)
{
    world.takes_ms = 30;
    start(starts, 5, 10);
    pass_ms(130);
    TICKED(5, 45, 85, 125);
    assert_int_equal(world.most, 1);
}

static void test_ticks_of_one_timer_never_overlap(void **state)
{
    world.takes_ms = 100;
    start(starts_dash, 0, 1);
    pass_ms(250);
    TICKED(0, 101, 202);
    assert_int_equal(world.most, 1);
    start(starts_dash, 0, 0); /* but those of two timers do, if the method allows it */
    pass_ms(10);
    assert_int_equal(world.most, 2);
}

static teff_err returns_user_error(timers_clock *self, const timers_beat *in)
{
    return teff_fail(self->ctx, TEFF_E_USER(1), "%d is too many", world.begun);
}

static teff_err exhausts_memory(timers_clock *self, const timers_beat *in)
{
    world.inside--;
    (void)teff_alloc(self->ctx, (size_t)TEFF_TURN_MEMORY_MAX + 1);
    return TEFF_OK;
}

static void test_an_error_is_logged_and_the_timer_goes_on(void **state)
{
    world.in_tick = returns_user_error;
    start(starts, 10, 10);
    pass_ms(35);
    TICKED(10, 20, 30);
    assert_int_equal(machine.lines, 1); /* at most one a second */
    assert_string_equal(machine.line,
                        "timer of timers.Clock.Tick at a: user error 1: 1 is too many");
    world.in_tick = exhausts_memory;
    pass_ms(1000);
    assert_int_equal(machine.lines, 2);
    assert_non_null(strstr(machine.line, "TEFF_E_NOMEM"));
    assert_true(world.begun > 100);
    assert_int_equal(act->running, 0);
}

/* ---- stop and change ---- */

static void test_a_timer_is_stopped(void **state)
{
    start(starts, 10, 10);
    pass_ms(15);
    run(stops, true);
    run(stops, false);
    pass_ms(100);
    TICKED(10);
    assert_int_equal(machine.n_set, 0);
}

/* The context of a turn that does not run on the group, so that the group does not learn yet of a
 * timer that has fired. */
static teff_ctx *turn_beside_the_group(void)
{
    static teffi_turn turn;
    memset(&turn, 0, sizeof turn);
    turn.act = act;
    teffi_ctx_init(&turn.ctx, &node.home, &act->group);
    turn.ctx.owner = &turn;
    return &turn.ctx;
}

/* Stopped when the executor's timer has fired, before the group has learned of it. */
static void test_a_timer_is_stopped_as_it_fires(void **state)
{
    start(starts, 10, 10);
    fire(machine.set[0]);
    assert_true(teff_timer_stop(turn_beside_the_group(), world.timer));
    assert_int_equal(act->more->timers->n, 0);
    pass_ms(100);
    assert_int_equal(world.begun, 0);
}

static teff_err stops_itself(timers_clock *self, const timers_beat *in)
{
    assert_true(teff_timer_stop(self->ctx, world.timer));
    assert_false(teff_timer_stop(self->ctx, world.timer));
    assert_false(teff_timer_change(self->ctx, world.timer, 1, 1));
    return TEFF_OK;
}

static void test_a_tick_stops_its_timer(void **state)
{
    world.in_tick = stops_itself;
    start(starts, 10, 10);
    pass_ms(100);
    TICKED(10);
    assert_int_equal(machine.n_set, 0);
}

static void test_a_due_timer_is_stopped(void **state)
{
    start(starts, 10, 10);
    request("Ask", sleeps, 50);
    pass_ms(20);
    assert_int_equal(act->more->timers->due_of[TEFFI_EXCLUSIVE], 1);
    request("Peek", stops, true);
    pass_ms(100);
    assert_int_equal(world.begun, 0);
}

static void test_a_timer_is_changed(void **state)
{
    start(starts, 10, 10);
    pass_ms(15);
    run(changes, 50007); /* due at 22, then each 50 */
    pass_ms(60);
    TICKED(10, 22, 72);
    run(changes, 5); /* the last tick: at 80 */
    pass_ms(100);
    TICKED(10, 22, 72, 80);
    assert_int_equal(machine.n_set, 0);
}

/* Changed when the executor's timer has fired, to a later time. */
static void test_a_timer_is_changed_as_it_fires(void **state)
{
    start(starts, 10, 10);
    machine.now_ns += 10 * 1000000;
    fire(machine.set[0]);
    assert_true(teff_timer_change(turn_beside_the_group(), world.timer, 25, 0));
    pass_ms(100);
    TICKED(35);
}

static teff_err changes_once(timers_clock *self, const timers_beat *in)
{
    if (world.begun <= 2)
        assert_true(teff_timer_change(self->ctx, world.timer, 40, 0));
    return TEFF_OK;
}

/* A tick changes its own timer: the new time counts from the end of the tick. A timer with one tick
 * gets more. */
static void test_a_tick_changes_its_timer(void **state)
{
    world.takes_ms = 5;
    world.in_tick = changes_once;
    start(starts, 10, 0);
    pass_ms(500);
    TICKED(10, 55, 100);
    assert_int_equal(machine.n_set, 0);
}

static void test_a_due_timer_is_changed(void **state)
{
    start(starts, 10, 10);
    request("Ask", sleeps, 50);
    pass_ms(20);
    request("Peek", changes, 80);
    pass_ms(200);
    TICKED(100);
}

/* ---- what may not be started ---- */

static teff_err fills_up(timers_clock *self, const timers_beat *in)
{
    teff_timer first = {0}, timer;
    for (int i = 0; i < TEFF_TIMERS_MAX; i++) {
        teff_err err = starts(self, in);
        if (err)
            return err;
        first = i ? first : world.timer;
    }
    assert_int_equal(timers_clock_bare_timer(self->ctx, NULL, &timer), TEFF_E_OVERLOADED);
    assert_non_null(strstr(teff_error(self->ctx), "at most 1024 timers"));
    assert_int_equal(timer.id, 0);
    assert_true(teff_timer_stop(self->ctx, first));
    return timers_clock_bare_timer(self->ctx, NULL, NULL);
}

static void test_an_activation_has_so_many_timers(void **state)
{
    world.options.due_ms = 1000000;
    run(fills_up, 0);
    assert_int_equal(sent.err, TEFF_OK);
    assert_int_equal(act->more->timers->n, TEFF_TIMERS_MAX);
}

static teff_err starts_wrongly(timers_clock *self, const timers_beat *in)
{
    teff_ctx *ctx = self->ctx;
    teff_timer timer = {7};
    teff_timer_options sizeless = {0};
    assert_int_equal(timers_clock_tick_timer(ctx, in, &sizeless, &timer), TEFF_E_INVALID);
    assert_int_equal(timer.id, 0);
    assert_int_equal(timers_clock_tick_timer(ctx, NULL, NULL, &timer), TEFF_E_INVALID);
    assert_int_equal(teff_timer_start(ctx, &timers_clock_info, method_named("Ask"),
                                      (const ProtobufCMessage *)in, NULL, NULL),
                     TEFF_E_INVALID);
    assert_int_equal(timers_vault_tick_timer(ctx, in, NULL, &timer), TEFF_E_INVALID);
    assert_string_equal(teff_error(ctx), "timers.Clock.Ask at a: timers.Vault.Tick is no one-way "
                                         "method of this grain");
    return TEFF_OK;
}

static void test_timers_are_of_the_running_grain(void **state)
{
    teff_timer timer = {7};
    run(starts_wrongly, 0);
    assert_true(!act->more);
    teff_ctx *ctx = teffi_ctx_new(&node.home);
    assert_int_equal(timers_clock_bare_timer(ctx, NULL, &timer), TEFF_E_INVALID);
    assert_non_null(strstr(teff_error(ctx), "only a turn of the grain"));
    assert_false(teff_timer_stop(ctx, (teff_timer){1}));
    assert_false(teff_timer_change(ctx, (teff_timer){1}, 1, 1));
    teff_ctx_free(ctx);
}

int main(void)
{
#define CLOCK(f) cmocka_unit_test_setup_teardown(f, open_active, close_clock)
    const struct CMUnitTest tests[] = {
        CLOCK(test_one_tick_with_its_message),
        CLOCK(test_the_period_begins_at_the_end_of_a_tick),
        CLOCK(test_ticks_of_one_timer_never_overlap),
        CLOCK(test_an_error_is_logged_and_the_timer_goes_on),
        CLOCK(test_a_timer_is_stopped),
        CLOCK(test_a_timer_is_stopped_as_it_fires),
        CLOCK(test_a_tick_stops_its_timer),
        CLOCK(test_a_due_timer_is_stopped),
        CLOCK(test_a_timer_is_changed),
        CLOCK(test_a_timer_is_changed_as_it_fires),
        CLOCK(test_a_tick_changes_its_timer),
        CLOCK(test_a_due_timer_is_changed),
        CLOCK(test_an_activation_has_so_many_timers),
        CLOCK(test_timers_are_of_the_running_grain),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
