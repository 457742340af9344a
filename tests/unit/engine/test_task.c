/* test_task.c - how long an engine without work waits: it reads a broadcast while the clock stands,
 * and tests conditions after poll_ms, by a clock that is set by hand. */
#include "../sched/hand_clock.h"
#include "engine/engine.h"

static world w;
static _Atomic unsigned ran, tested;

static void run_ping(teff_component *component, void *task, void *const *data)
{
    atomic_fetch_add(&ran, 1);
}

static const teff_task_type ping_task = {.name = "ping", .size = 1, .run = run_ping};
static const teff_task_type *const tasks[] = {&ping_task, &teff_task_until};
static const teff_component_type pinged = {
    .name = "pinged", .flags = TEFF_COMPONENT_FIBER, .tasks = tasks, .n_tasks = 2};

typedef struct bench { /* an engine on one worker */
    teffi_exec *exec;
    teff_engine *engine;
} bench;

static bench start(uint32_t poll_ms)
{
    bench b;
    teff_component_id id;
    const teff_engine_options opt = {.size = sizeof opt, .poll_ms = poll_ms};
    world_init(&w);
    atomic_store(&ran, 0);
    atomic_store(&tested, 0);
    b.exec = exec_of(&w.platform, 1, (teff_sched_options){0});
    assert_int_equal(teffi_engine_new_on(b.exec, &(teffi_process_calls){0}, &opt, &b.engine),
                     TEFF_OK);
    assert_int_equal(teff_engine_add(b.engine, 0, &pinged, NULL, &id), TEFF_OK);
    return b;
}

static void end(bench b)
{
    (void)teff_engine_stop(b.engine, 0, NULL);
    b.exec->ops->free(b.exec);
    teffi_engine_free_stopped(b.engine);
}

static uint64_t parks(teffi_exec *exec)
{
    teff_sched_worker counters;
    (void)exec->ops->metrics(exec, NULL, &counters, 1);
    return counters.parks;
}

static void a_broadcast_is_read_while_the_clock_stands(void **state)
{
    bench b = start(0);
    for (unsigned i = 1; i <= 20; i++) {
        until(parks(b.exec) >= i); /* nothing is left to do */
        assert_int_equal(teff_engine_broadcast(b.engine, &ping_task, ""), TEFF_OK);
        until(atomic_load(&ran) == i);
    }
    assert_int_equal(atomic_load(&w.now_ns), 1000000000u);
    end(b);
}

static _Atomic bool is_over;

static int count_tests(void *arg)
{
    atomic_fetch_add(&tested, 1);
    return atomic_load(&is_over);
}

/* The worker that has this timer sleeps for as long as is left, looks at the clock and parks
 * again: so each further park is a chance to fire too early. */
static void park_some_times(teffi_exec *exec)
{
    uint64_t before = parks(exec);
    until(parks(exec) > before + 3);
}

static void a_condition_is_tested_every_poll_ms(void **state)
{
    bench b = start(1);
    const teff_until wait = {.is_true = count_tests};
    atomic_store(&is_over, false);
    assert_int_equal(teff_engine_broadcast(b.engine, &teff_task_until, &wait), TEFF_OK);
    until(atomic_load(&tested));
    for (unsigned i = 0; i < 3; i++) {
        park_some_times(b.exec);
        unsigned before = atomic_load(&tested);
        park_some_times(b.exec);
        assert_int_equal(atomic_load(&tested), before);
        world_pass_ms(&w, 2); /* one, and a tick of the timer wheel */
        until(atomic_load(&tested) > before);
    }
    atomic_store(&is_over, true);
    end(b);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_broadcast_is_read_while_the_clock_stands),
        cmocka_unit_test(a_condition_is_tested_every_poll_ms),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
