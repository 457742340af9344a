/* test_seed_process_stop.c - "Bei Shutdown sendet der Scheduler Cancel-Events an alle laufenden
 * Prozesse und wartet auf deren Abschluss oder Timeout." Clean-up may be asynchronous; what did not
 * end by the deadline is forced, and the report says what that was. */
#include "test_seed_process.h"

enum { CLEAN = 1, N = 50 };

/* What turns write is atomic, also on one worker: when its thread stands still, another one goes on
 * beside it. */
static struct {
    latch ended, asked, closed;
    teff_yield yields[N];
    _Atomic unsigned n_yields;
    teffi_thread cleaner;
    _Atomic unsigned cancels;
    _Atomic teff_err last;
} t;

static void clean(void *arg, const teff_command *command)
{
    (void)arg;
    t.yields[atomic_fetch_add(&t.n_yields, 1)] = command->yield;
    latch_hit(&t.asked);
}

static void on_end(void *arg, teff_pid pid, teff_err err)
{
    (void)arg;
    (void)pid;
    t.last = err;
    latch_hit(&t.ended);
}

static void on_close(void *self)
{
    (void)self;
    latch_hit(&t.closed);
}

static teff_process_system *fresh(void)
{
    memset(&t, 0, sizeof t);
    teff_process_system *system = system_of((teff_process_options){.workers = 1, .ended = on_end});
    assert_int_equal(teff_process_handler(system, CLEAN, clean, NULL), TEFF_OK);
    return system;
}

/* ---- all end by themselves, after a clean-up that takes two yields, a timer and a message ---- */

static teff_err step_clean(void *self, const teff_event *events, size_t n, teff_step *out)
{
    unsigned *phase = self;
    teff_process *me = teff_step_process(out);
    for (size_t i = 0; i < n; i++) {
        t.cancels += events[i].kind == TEFF_EVENT_CANCEL;
        if (events[i].kind == TEFF_EVENT_CANCEL)
            assert_int_equal(teff_step_yield(out, CLEAN, 1, NULL, 0), TEFF_OK);
        else if (events[i].kind == TEFF_EVENT_COMPLETE)
            assert_int_equal(teff_process_timer(me, 1, 2), TEFF_OK);
        else if (events[i].kind == TEFF_EVENT_TIMER)
            assert_int_equal(send_tag(teff_process_system_of(me), teff_process_pid(me), 3),
                             TEFF_OK);
        else
            return teff_step_done(out);
        ++*phase;
    }
    return *phase == 3 ? teff_step_idle(out) : teff_step_block(out);
}

static void complete_all(void *arg)
{
    (void)arg;
    latch_wait(&t.asked, N); /* every process is in its clean-up before the first completion */
    for (unsigned i = 0; i < N; i++)
        (void)teff_yield_complete(t.yields[i], TEFF_OK, NULL, 0);
}

static void test_asynchronous_clean_up_is_served(void **state)
{
    static const teff_process_ops ops = {.name = "clean", .step = step_clean, .close = on_close};
    (void)state;
    teff_process_system *system = fresh();
    unsigned phase[N] = {0};
    for (unsigned i = 0; i < N; i++)
        (void)spawn(system, &ops, &phase[i]);
    assert_int_equal(teffi_thread_start(&t.cleaner, "cleaner", complete_all, NULL), TEFF_OK);
    teff_stop_report report;
    assert_int_equal(teff_process_system_stop(system, 60000, &report), TEFF_OK);
    teffi_thread_join(&t.cleaner);
    assert_int_equal(report.told, N);
    assert_int_equal(report.forced, 0);
    assert_int_equal(t.cancels, N); /* once each */
    assert_int_equal(atomic_load(&t.closed.count), N);
    for (unsigned i = 0; i < N; i++)
        assert_int_equal(phase[i], 3);
    teff_process_system_free(system);
}

/* ---- the deadline ---- */

static teff_err step_deaf(void *self, const teff_event *events, size_t n, teff_step *out)
{
    (void)self;
    (void)events;
    return n ? teff_step_block(out) : teff_step_yield(out, CLEAN, 1, NULL, 0);
}

static teff_err run_deaf(void *self, teff_process *me)
{
    teff_err *err = self;
    teff_event event;
    while (!(*err = teff_process_receive(me, &event)))
        ;
    return *err;
}

static teff_err run_asks(void *self, teff_process *me)
{
    teff_err *err = self;
    *err = teff_process_ask(me, CLEAN, NULL, 0, NULL);
    return *err;
}

/* One deaf process in each way of running; all are closed, and named. out: false: it took longer
 * than the stop waits for. */
static bool forced_and_named(void)
{
    static const teff_process_ops ways[] = {
        {.name = "deaf step", .step = step_deaf, .close = on_close},
        {.name = "deaf fiber", .flags = TEFF_PROCESS_FIBER, .run = run_deaf, .close = on_close},
        {.name = "asks", .flags = TEFF_PROCESS_FIBER, .run = run_asks, .close = on_close},
        {.name = "asks nested", .run = run_asks, .close = on_close},
    };
    teff_stop_report report;
    teff_process_system *system = fresh();
    teff_err errs[4] = {TEFF_OK};
    teff_pid pids[4];
    for (unsigned i = 0; i < 4; i++)
        pids[i] = spawn(system, &ways[i], &errs[i]);
    latch_wait(&t.asked, 3);
    assert_int_equal(teff_process_system_stop(system, 20, &report), TEFF_E_TIMEOUT);
    assert_int_equal(report.told, 4);
    assert_int_equal(report.forced, 4);
    assert_int_equal(report.n_named, 4);
    if (report.stuck) { /* the machine stood still for the second that they are given */
        teff_process_system_free(system);
        return false;
    }
    for (unsigned i = 0; i < 4; i++) {
        assert_true(teff_pid_is(report.named[i].pid, pids[i]));
        assert_string_equal(report.named[i].name, ways[i].name);
        assert_int_equal(errs[i], i ? TEFF_E_CLOSED : TEFF_OK);
    }
    assert_int_equal(atomic_load(&t.closed.count), 4);
    /* What they had yielded is completed too late: it reaches nobody. */
    for (unsigned i = 0; i < 3; i++)
        assert_int_equal(teff_yield_complete(t.yields[i], TEFF_OK, "late", 5), TEFF_E_CLOSED);
    teff_process_system_free(system);
    return true;
}

static void test_what_does_not_end_is_forced_and_named(void **state)
{
    (void)state;
    for (unsigned i = 0; i < 20; i++)
        if (forced_and_named())
            return;
    fail_msg("20 times it took too long");
}

/* A step that does not return cannot be forced: the report says so, and stop returns. */
static latch held, holding;

static teff_err step_holds(void *self, const teff_event *events, size_t n, teff_step *out)
{
    (void)self;
    (void)events;
    (void)n;
    latch_hit(&holding);
    latch_wait(&held, 1);
    return teff_step_done(out);
}

static void test_a_step_that_does_not_return_is_reported_as_stuck(void **state)
{
    static const teff_process_ops ops = {.name = "holds", .step = step_holds, .close = on_close};
    (void)state;
    teff_process_system *system = fresh();
    (void)spawn(system, &ops, NULL);
    latch_wait(&holding, 1);
    teff_stop_report report;
    assert_int_equal(teff_process_system_stop(system, 1, &report), TEFF_E_TIMEOUT);
    assert_int_equal(report.stuck, 1);
    latch_hit(&held);
    teff_process_system_free(system);
    assert_int_equal(atomic_load(&t.closed.count), 1);
}

static void test_no_spawn_from_the_stop_on(void **state)
{
    static const teff_process_ops ops = {.name = "clean", .step = step_clean, .close = on_close};
    (void)state;
    teff_process_system *system = fresh();
    assert_int_equal(teff_process_system_stop(system, 0, NULL), TEFF_OK);
    assert_int_equal(teff_process_spawn(system, &ops, NULL, NULL, NULL, 0, NULL), TEFF_E_CLOSED);
    assert_int_equal(atomic_load(&t.closed.count), 0); /* self is still the caller's */
    teff_process_system_free(system);
    teff_process_system_free(NULL);
}

/* Spawns that race with the stop: each is either refused or told, and none is left. */
static teff_err step_until_cancel(void *self, const teff_event *events, size_t n, teff_step *out)
{
    (void)self;
    return n && events[0].kind == TEFF_EVENT_CANCEL ? teff_step_done(out) : teff_step_idle(out);
}

static void spawn_until_closed(void *arg)
{
    static const teff_process_ops ops = {
        .name = "racer", .step = step_until_cancel, .close = on_close};
    unsigned made = 0;
    while (teff_process_spawn(arg, &ops, NULL, NULL, NULL, 0, NULL) != TEFF_E_CLOSED)
        if (++made == 40)
            latch_hit(&t.asked);
}

static void test_spawns_beside_the_stop(void **state)
{
    (void)state;
    for (unsigned i = 0; i < 20; i++) {
        teff_process_system *system = fresh();
        assert_int_equal(teffi_thread_start(&t.cleaner, "spawner", spawn_until_closed, system),
                         TEFF_OK);
        latch_wait(&t.asked, 1);
        teff_stop_report report;
        assert_int_equal(teff_process_system_stop(system, 60000, &report), TEFF_OK);
        teffi_thread_join(&t.cleaner);
        teff_process_stats stats;
        teff_process_stats_get(system, &stats);
        assert_int_equal(stats.alive, 0);
        assert_int_equal(stats.spawned, report.told);
        assert_int_equal(stats.spawned, atomic_load(&t.closed.count));
        teff_process_system_free(system);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_asynchronous_clean_up_is_served),
        cmocka_unit_test(test_what_does_not_end_is_forced_and_named),
        cmocka_unit_test(test_a_step_that_does_not_return_is_reported_as_stuck),
        cmocka_unit_test(test_no_spawn_from_the_stop_on),
        cmocka_unit_test(test_spawns_beside_the_stop),
    };
    return cmocka_run_group_tests_name("sched/seed process stop", tests, NULL, NULL);
}
