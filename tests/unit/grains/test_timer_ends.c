/* test_timer_ends.c - what a timer's tick meets when it is due, and what ends timers. */
#include "clock.h"

/* ---- what a timer meets ---- */

static teff_err starts_late(timers_clock *self, const timers_beat *in)
{
    teff_timer timer = {7};
    assert_false(teff_timer_stop(self->ctx, world.timer));
    assert_int_equal(timers_clock_bare_timer(self->ctx, NULL, &timer), TEFF_E_CLOSED);
    assert_string_equal(teff_error(self->ctx),
                        "timers.Clock at a: on_deactivate cannot start a timer");
    return TEFF_OK;
}

static void become_busy(void)
{
    act->busy |= TEFFI_BUSY_COMPACT;
    pass_ms(50);
    act->busy &= (uint8_t)~TEFFI_BUSY_COMPACT;
    teffi_activation_nudge(act);
}

static void become_locked(void)
{
    act->busy |= TEFFI_BUSY_LOCKED;
    pass_ms(50);
    act->busy &= (uint8_t)~TEFFI_BUSY_LOCKED;
    teffi_activation_nudge(act);
}

static void run_exclusive(void)
{
    request("Ask", sleeps, 50);
}

static void run_reader(void)
{
    request("Get", sleeps, 50);
}

static void run_free(void)
{
    request("Peek", sleeps, 50);
}

static void fill_queue(void)
{
    request("Peek", sleeps, 50);
    act->queued += 4; /* queue_max */
}

static void empty_queue(void)
{
    assert_int_equal(act->queued, 4); /* ticks do not count */
    act->queued -= 4;
}

static void evict_tick(void)
{
    machine.now_ns += 10 * 1000000;
    fire(machine.set[0]);
    assert_false(
        teffi_activation_ops.evict(&act->group, &LIST_FIRST(&act->more->timers->all)->wait.item));
}

/* The stacks are used up until 50 ms have passed. */
static teffi_fiber_pool *stacks;

static void use_up_stacks(void)
{
    stacks = bare_exec.fibers;
    bare_exec.fibers = teffi_fiber_pool_new(0, 1);
    request("Peek", sleeps, 50);
    pass_ms(50);
}

static void free_stacks(void)
{
    assert_non_null(strstr(machine.line, "timer of timers.Clock."));
    assert_non_null(strstr(machine.line, "out of stacks"));
    teffi_fiber_pool_free(bare_exec.fibers);
    bare_exec.fibers = stacks;
}

static void lose_lease(void)
{
    assert_true(teffi_lease_end(&node.home.lease));
}

static void take_lease(void)
{
    node.home.lease.until_ns = 0; /* so that the activation can end */
}

static const struct {
    const char *what;
    void (*meet)(void), (*after)(void);
    int at_ms[3]; /* when a tick that is due at 10 ms begins: exclusive, read-only, free */
} meetings[] = {
    {"nothing", NULL, NULL, {10, 10, 10}},
    {"an exclusive turn", run_exclusive, NULL, {50, 50, 10}},
    {"a reader", run_reader, NULL, {50, 10, 10}},
    {"a turn that interleaves", run_free, NULL, {10, 10, 10}},
    {"a pause for compaction", become_busy, NULL, {50, 50, 50}},
    {"the lock of a transaction", become_locked, NULL, {50, 50, 50}},
    {"a full queue", fill_queue, empty_queue, {10, 10, 10}},
    {"an eviction", evict_tick, NULL, {10, 10, 10}},
    {"no stack: tried again after the period", use_up_stacks, free_stacks, {60, 60, 60}},
    {"a lost lease", lose_lease, take_lease, {-1, -1, -1}},
};

static void test_what_a_timer_meets(void **state)
{
    static script *const start_class[] = {starts, starts_look, starts_dash};
    for (size_t i = 0; i < sizeof meetings / sizeof meetings[0]; i++) {
        for (int class = 0; class < 3; class ++) {
            assert_int_equal(open_active(state), 0);
            start(start_class[class], 10, 50);
            if (meetings[i].meet)
                meetings[i].meet();
            pass_ms(59 - (now_ms() - begin_ms));
            pass_ms(2);
            int at_ms = world.begun ? (int)world.at_ms[0] : -1;
            if (at_ms != meetings[i].at_ms[class])
                fail_msg("%s: class %d: at %d ms", meetings[i].what, class, at_ms);
            if (meetings[i].after)
                meetings[i].after();
            assert_int_equal(close_clock(state), 0);
        }
    }
}

/* Eight timers are always due, as each tick takes longer than a period; and so many requests wait
 * that one is always set aside: both go on. */
static void test_ticks_and_requests_take_turns(void **state)
{
    world.takes_ms = 3;
    for (int i = 0; i < 8; i++)
        start(starts, 1, 1);
    pass_ms(2);
    for (int i = 0; i < 10; i++) {
        int asked = world.asked, begun = world.begun;
        while ((int)atomic_load(&act->queued) < 4)
            request("Ask", sleeps, 3);
        pass_ms(30);
        assert_in_range(world.asked - asked, 4, 5);
        assert_in_range(world.begun - begun, 4, 7);
    }
}

/* ---- what ends timers ---- */

static void test_a_grain_that_only_ticks_is_idle(void **state)
{
    start(starts, 10, 10);
    pass_ms(990);
    teffi_activation_ask_to_end(act, TEFF_REASON_IDLE);
    pass_ms(1);
    assert_int_equal(world.deactivated, 0);
    pass_ms(20);
    world.on_deactivate = starts_late;
    teffi_activation_ask_to_end(act, TEFF_REASON_IDLE);
    run_group();
    assert_int_equal(world.deactivated, 1);
    assert_int_equal(world.why, TEFF_REASON_IDLE);
    int begun = world.begun;
    pass_ms(1000);
    assert_int_equal(world.begun, begun);
}

static void test_ticks_may_keep_a_grain(void **state)
{
    world.options.keep_alive = 1;
    start(starts, 500, 500);
    pass_ms(3000);
    teffi_activation_ask_to_end(act, TEFF_REASON_IDLE);
    run_group();
    assert_int_equal(world.deactivated, 0);
    assert_int_equal(world.begun, 6);
}

static teff_err starts_and_quits(timers_clock *self, const timers_beat *in)
{
    teff_err err = starts(self, in);
    return err ? err : quits(self, in);
}

static teff_err starts_and_fails(timers_clock *self, const timers_beat *in)
{
    (void)!starts(self, in);
    return TEFF_E_USER(1);
}

/* A timer of an activation that ends, or did not begin, never ticks. */
static void test_the_end_of_an_activation_stops_its_timers(void **state)
{
    world.on_activate = starts;
    world.options.period_ms = 10;
    activate();
    pass_ms(15);
    TICKED(0, 10);
    world.on_deactivate = starts_late;
    run(quits, 0);
    assert_int_equal(world.deactivated, 1);
    assert_int_equal(machine.n_set, 0);
    activate(); /* the next activation has its own */
    run(stops, true);
    run(starts_and_quits, 0);
    assert_int_equal(world.deactivated, 2);
    assert_int_equal(machine.n_set, 0);
    world.on_activate = starts_and_fails;
    activate();
    pass_ms(100);
    TICKED(0, 10);
    assert_int_equal(grains.shards->activations, 0);
    assert_int_equal(machine.n_set, 0);
}

/* The activation ends while a timer has fired and its group has not learned of it. */
static void test_an_activation_ends_as_a_timer_fires(void **state)
{
    start(starts, 10, 0);
    teffi_activation_ask_to_end(act, TEFF_REASON_STOPPING);
    teffi_timer *timer = machine.set[0];
    cancel_timer(&bare_exec, timer); /* it fires when the group has ended */
    run_group();
    assert_int_equal(grains.shards->activations, 0);
    timer->fire(timer);
    pass_ms(100);
    assert_int_equal(world.begun, 0);
}

/* One timer ticks, one ticks and was stopped, one is due, one is set, one has fired. */
static void test_a_silo_that_closes_frees_timers(void **state)
{
    world.takes_ms = 100;
    request("Peek", starts_dash, 0);
    pass_ms(1);
    request("Peek", starts_dash, 0);
    pass_ms(1);
    request("Peek", stops, true);
    request("Get", sleeps, 100);
    request("Peek", starts, 0);
    pass_ms(1);
    world.options.due_ms = 1000;
    request("Peek", starts, 0);
    request("Peek", starts, 0);
    assert_int_equal(act->more->timers->n, 5);
    assert_int_equal(act->more->timers->due_of[TEFFI_EXCLUSIVE], 1);
    fire(&LIST_FIRST(&act->more->timers->all)->timer);
}

/* The grains are freed as they are. The executor's timers that stay are those of three turns that
 * sleep. */
static int close_silo(void **state)
{
    return bare_close(state) || machine.n_set != 3;
}

int main(void)
{
#define CLOCK(f) cmocka_unit_test_setup_teardown(f, open_active, close_clock)
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_what_a_timer_meets),
        CLOCK(test_ticks_and_requests_take_turns),
        CLOCK(test_a_grain_that_only_ticks_is_idle),
        CLOCK(test_ticks_may_keep_a_grain),
        cmocka_unit_test_setup_teardown(test_the_end_of_an_activation_stops_its_timers, open_clock,
                                        close_clock),
        CLOCK(test_an_activation_ends_as_a_timer_fires),
        cmocka_unit_test_setup_teardown(test_a_silo_that_closes_frees_timers, open_active,
                                        close_silo),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
