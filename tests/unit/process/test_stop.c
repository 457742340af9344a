/* test_stop.c - a stop sends cancel events and waits until all processes have ended. Clean-up may
 * be asynchronous; what has not ended by the deadline is forced, and the report names it. */
#include "process/send.h"
#include "process/process.h"
#include "sched/exec.h"
#include "processes.h"

enum { CLEAN = 1, N = 50 };

/* What turns write is atomic, also on one worker: when its thread stands still, another one goes on
 * beside it. */
static struct {
    latch ended, asked, closed;
    teff_completion yields[N];
    _Atomic unsigned n_yields;
    teffi_thread cleaner;
    _Atomic unsigned cancels;
    _Atomic teff_err last;
} t;

static void clean(void *arg, const teff_command *command)
{
    t.yields[atomic_fetch_add(&t.n_yields, 1)] = command->completion;
    latch_hit(&t.asked);
}

static void on_end(void *arg, teff_pid pid, teff_err err)
{
    t.last = err;
    latch_hit(&t.ended);
}

static void on_close(void *self)
{
    latch_hit(&t.closed);
}

static teff_process_system *fresh(void)
{
    memset(&t, 0, sizeof t);
    teff_process_system *system = system_of((teff_process_options){.workers = 1, .ended = on_end});
    assert_int_equal(teff_process_set_handler(system, CLEAN, clean, NULL), TEFF_OK);
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
            assert_int_equal(teff_step_command(out, CLEAN, 1, NULL, 0), TEFF_OK);
        else if (events[i].kind == TEFF_EVENT_COMPLETE)
            assert_int_equal(teff_process_set_timer(me, 1, 2), TEFF_OK);
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
    latch_wait(&t.asked, N); /* every process is in its clean-up before the first completion */
    for (unsigned i = 0; i < N; i++)
        (void)teff_command_complete(t.yields[i], TEFF_OK, NULL, 0);
}

static void test_asynchronous_clean_up_is_served(void **state)
{
    static const teff_process_ops ops = {.name = "clean", .step = step_clean, .close = on_close};
    teff_process_system *system = fresh();
    unsigned phase[N] = {0};
    for (unsigned i = 0; i < N; i++)
        (void)spawn(system, &ops, &phase[i]);
    assert_int_equal(teffi_thread_start(&t.cleaner, "cleaner", complete_all, NULL), TEFF_OK);
    teff_stop_report report;
    assert_int_equal(teff_process_system_stop(system, 60000, &report), TEFF_OK);
    teffi_thread_join(&t.cleaner);
    assert_int_equal(report.cancelled, N);
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
    return n ? teff_step_block(out) : teff_step_command(out, CLEAN, 1, NULL, 0);
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

/* Only the stopping thread's looks at the clock move it, 7 ms each: the stop's 20 ms pass in a few
 * looks, and the second that those forced are given takes more than a minute. */
static uint64_t patient_clock(void *arg)
{
    static _Atomic uint64_t now_ns = 1000000000;
    if (pthread_equal(pthread_self(), *(pthread_t *)arg))
        now_ns += 7000000;
    return now_ns;
}

/* One deaf process in each way of running; all are closed, and named. */
static void test_what_does_not_end_is_forced_and_named(void **state)
{
    static const teff_process_ops ways[] = {
        {.name = "deaf step", .step = step_deaf, .close = on_close},
        {.name = "deaf fiber", .flags = TEFF_PROCESS_FIBER, .run = run_deaf, .close = on_close},
        {.name = "asks", .flags = TEFF_PROCESS_FIBER, .run = run_asks, .close = on_close},
        {.name = "asks nested", .run = run_asks, .close = on_close},
    };
    pthread_t self = pthread_self();
    teffi_platform platform;
    teffi_exec *exec;
    teff_process_system *system;
    teff_stop_report report;
    teff_err errs[4] = {TEFF_OK};
    teff_pid pids[4];
    memset(&t, 0, sizeof t);
    teffi_platform_init_real(&platform, TEFF_LOG_WARN);
    platform.arg = &self;
    platform.mono_ns = patient_clock;
    assert_int_equal(teffi_exec_real_new(&platform, 1, NULL, &exec), TEFF_OK);
    assert_int_equal(teffi_process_system_new_on(exec, NULL, &system), TEFF_OK);
    assert_int_equal(teff_process_set_handler(system, CLEAN, clean, NULL), TEFF_OK);
    for (unsigned i = 0; i < 4; i++)
        pids[i] = spawn(system, &ways[i], &errs[i]);
    latch_wait(&t.asked, 3);
    assert_int_equal(teff_process_system_stop(system, 20, &report), TEFF_E_TIMEOUT);
    assert_int_equal(report.cancelled, 4);
    assert_int_equal(report.forced, 4);
    assert_int_equal(report.n_named, 4);
    assert_int_equal(report.stuck, 0);
    for (unsigned i = 0; i < 4; i++) {
        assert_true(teff_pid_equals(report.named[i].pid, pids[i]));
        assert_string_equal(report.named[i].name, ways[i].name);
        assert_int_equal(errs[i], i ? TEFF_E_CLOSED : TEFF_OK);
    }
    assert_int_equal(atomic_load(&t.closed.count), 4);
    /* What they had yielded is completed too late: it reaches nobody. */
    for (unsigned i = 0; i < 3; i++)
        assert_int_equal(teff_command_complete(t.yields[i], TEFF_OK, "late", 5), TEFF_E_CLOSED);
    exec->ops->free(exec);
    teff_process_system_free(system);
}

/* A step that does not return cannot be forced: the report says so, and stop returns. */
static latch held, holding;

static teff_err step_holds(void *self, const teff_event *events, size_t n, teff_step *out)
{
    latch_hit(&holding);
    latch_wait(&held, 1);
    return teff_step_done(out);
}

static void test_a_step_that_does_not_return_is_reported_as_stuck(void **state)
{
    static const teff_process_ops ops = {.name = "holds", .step = step_holds, .close = on_close};
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
        assert_int_equal(stats.spawned, report.cancelled);
        assert_int_equal(stats.spawned, atomic_load(&t.closed.count));
        teff_process_system_free(system);
    }
}

/* ---- the number of spawns is nothing but a number ---- */

static teff_err step_until_told(void *self, const teff_event *events, size_t n, teff_step *out)
{
    for (size_t i = 0; i < n; i++)
        if (events[i].kind == TEFF_EVENT_CANCEL)
            return teff_step_done(out);
    return teff_step_idle(out);
}

static const teff_process_ops until_told = {.name = "until cancel", .step = step_until_told};

/* After 2^40 spawns, 12 days at a million a second; and when the count wraps. */
static void test_many_spawns_before(void **state)
{
    static const uint64_t befores[] = {((uint64_t)1 << 40) - 1, ((uint64_t)1 << 48) - 1};
    for (unsigned i = 0; i < 2; i++) {
        teff_process_system *system = fresh();
        atomic_store(&system->cells[0].spawned, befores[i] * TEFFI_SPAWNED);
        atomic_store(&system->cells[0].ended, befores[i]);
        for (unsigned k = 0; k < 3; k++)
            (void)spawn(system, &until_told, NULL);
        assert_int_equal(teffi_processes_count_alive(system), 3);
        teff_stop_report report;
        assert_int_equal(teff_process_system_stop(system, 60000, &report), TEFF_OK);
        assert_int_equal(report.cancelled, 3);
        assert_int_equal(teffi_processes_count_alive(system), 0);
        teff_process_system_free(system);
    }
}

/* ---- two threads stop ---- */

static struct {
    teff_process_system *system;
    latch stopped, told;
} two;

static teff_err step_until_message(void *self, const teff_event *events, size_t n, teff_step *out)
{
    for (size_t i = 0; i < n; i++) {
        if (events[i].kind == TEFF_EVENT_CANCEL)
            latch_hit(&two.told);
        if (events[i].kind == TEFF_EVENT_MESSAGE)
            return teff_step_done(out);
    }
    return teff_step_idle(out);
}

static void stop_it(void *arg)
{
    if (teff_process_system_stop(two.system, 3600000, NULL) == TEFF_OK)
        latch_hit(&two.stopped);
}

static unsigned stoppers(teff_process_system *system)
{
    unsigned n = 0;
    pthread_mutex_lock(&system->lock);
    for (teffi_stopper *s = LIST_FIRST(&system->stoppers); s; s = LIST_NEXT(s, link))
        n++;
    pthread_mutex_unlock(&system->lock);
    return n;
}

/* Both sleep until the last process has ended, and both wake up then. */
static void test_two_stop_at_once(void **state)
{
    static const teff_process_ops until_message = {.name = "until message",
                                                   .step = step_until_message};
    teffi_thread threads[2];
    for (unsigned i = 0; i < 50; i++) {
        memset(&two, 0, sizeof two);
        two.system = fresh();
        teff_pid pid = spawn(two.system, &until_message, NULL);
        for (unsigned k = 0; k < 2; k++)
            assert_int_equal(teffi_thread_start(&threads[k], "stopper", stop_it, NULL), TEFF_OK);
        latch_wait(&two.told, 1);
        while (stoppers(two.system) < 2)
            teffi_thread_yield();
        assert_int_equal(send_tag(two.system, pid, 1), TEFF_OK);
        latch_wait(&two.stopped, 2);
        for (unsigned k = 0; k < 2; k++)
            teffi_thread_join(&threads[k]);
        teff_process_system_free(two.system);
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
        cmocka_unit_test(test_many_spawns_before),
        cmocka_unit_test(test_two_stop_at_once),
    };
    return cmocka_run_group_tests_name("process/stop", tests, NULL, NULL);
}
