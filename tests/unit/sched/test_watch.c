/* test_watch.c - warnings about long turns, late items and long queues, by a clock that is set by
 * hand, so that nothing depends on how fast the machine is. */
#include "hand_clock.h"
#include "held_monitor.h"
#include <stdlib.h>
#include "process/process.h"
#include "sched/scheduler.h"

static world w;
static teffi_exec *exec;

typedef struct job {
    teffi_group group;
    teffi_item item;
    void (*run)(struct job *job);
    struct job *peer;
    teffi_item more[300];
    _Atomic unsigned runs, items;
    _Atomic bool inside, stop;
} job;

static void on_item(teffi_group *group, teffi_item *item)
{
    job *j = teffi_container(group, job, group);
    atomic_fetch_add(&j->items, 1);
    if (item != &j->item)
        return;
    j->run(j);
    atomic_fetch_add(&j->runs, 1);
}

static void describe(teffi_group *group, char *text, size_t size)
{
    snprintf(text, size, "job of the test");
}

static const teffi_group_ops ops = {.handle = on_item, .describe = describe};
static const teffi_group_ops ops_that_may_go = {.handle = on_item};

static void job_init(job *j, void (*run)(job *job))
{
    memset(j, 0, sizeof *j);
    j->run = run;
    teffi_group_init(&j->group, exec, &ops);
}

static void push(job *j)
{
    (void)teffi_group_push(&j->group, &j->item);
}

static void open_exec(unsigned workers, teff_sched_options opt)
{
    lines_clear(&w.log);
    exec = exec_of(&w.platform, workers, opt);
}

static void close_exec(void)
{
    exec->ops->free(exec);
}

static unsigned count_lines_with(const char *one, const char *two)
{
    return lines_with(&w.log, one, two);
}

/* ---- long turns ---- */

static void spin(job *j)
{
    atomic_store(&j->inside, true);
    while (!atomic_load(&j->stop))
        teffi_thread_yield();
}

/* Lets time pass until a line holds both texts. */
static void pass_until_told(const char *one, const char *two)
{
    time_t since = 0;
    while (!count_lines_with(one, two) && pause_a_little(&since))
        world_pass_ms(&w, 50);
    if (!count_lines_with(one, two))
        fail_msg("nobody said: %s ... %s", one, two);
}

static void pass_s(unsigned seconds)
{
    time_t since = 0;
    for (unsigned i = 0; i < seconds * 10; i++) {
        world_pass_ms(&w, 100);
        (void)pause_a_little(&since);
    }
}

/* Each line names a length that the turn has had by now. */
static void named_lengths_are_from_to(uint64_t from_ms, uint64_t to_ms)
{
    pthread_mutex_lock(&w.log.lock);
    for (unsigned i = 0; i < w.log.n; i++) {
        const char *at = strstr(w.log.text[i], "runs for ");
        if (at)
            assert_in_range(strtoull(at + strlen("runs for "), NULL, 10), from_ms, to_ms);
    }
    pthread_mutex_unlock(&w.log.lock);
}

/* 4 lines: at 500 ms, 1 s, 2 s and 4 s, or later if the monitor is late. */
static void a_long_turn_is_logged_again_when_its_length_has_doubled(void **state)
{
    job j;
    time_t since = 0;
    open_exec(2, (teff_sched_options){.turn_warn_ms = 500});
    job_init(&j, spin);
    push(&j);
    until(atomic_load(&j.inside));
    uint64_t from_ns = atomic_load(&w.now_ns);
    while (count_lines_with("a turn of job of the test", "runs for") < 4 && pause_a_little(&since))
        world_pass_ms(&w, 50);
    assert_int_equal(count_lines_with("a turn of job of the test", "runs for"), 4);
    uint64_t passed_ns = atomic_load(&w.now_ns) - from_ns;
    assert_true(passed_ns >= 4000000000u);
    named_lengths_are_from_to(500, passed_ns / 1000000);
    atomic_store(&j.stop, true);
    close_exec();
}

static void the_default_is_a_second(void **state)
{
    job j;
    open_exec(1, (teff_sched_options){0});
    assert_int_equal(exec->warn.turn_warn_ms, 1000);
    assert_int_equal(exec->warn.delay_warn_ms, 10000);
    assert_int_equal(exec->warn.queue_warn, UINT32_MAX);
    job_init(&j, spin);
    push(&j);
    until(atomic_load(&j.inside));
    pass_until_told("runs for", "limit 1000");
    atomic_store(&j.stop, true);
    close_exec();
}

/* Nobody looks from outside into a group that does not promise to stay. */
static void a_group_that_may_go_is_not_looked_into(void **state)
{
    job j;
    open_exec(1, (teff_sched_options){.turn_warn_ms = 500});
    job_init(&j, spin);
    teffi_group_init(&j.group, exec, &ops_that_may_go);
    push(&j);
    until(atomic_load(&j.inside));
    pass_until_told("a turn of a forked part", "runs for");
    atomic_store(&j.stop, true);
    close_exec();
}

static void pass_100_ms(job *j)
{
    world_pass_ms(&w, 100);
    if (atomic_load(&j->runs) < 300)
        push(j);
}

static void many_short_turns_are_not_long(void **state)
{
    job j;
    open_exec(2, (teff_sched_options){.turn_warn_ms = 1000});
    job_init(&j, pass_100_ms);
    push(&j);
    until(atomic_load(&j.runs) > 300);
    close_exec();
    assert_int_equal(count_lines_with("runs for", ""), 0);
}

/* Until the monitor has looked at what runs, and at nearly the time that it is now. */
static void monitor_looks(void)
{
    for (unsigned i = 0; i < 2; i++) { /* the second look begins when the first is over */
        world_pass_ms(&w, 100);
        until(teffi_coarse_ms(exec) == (uint32_t)(atomic_load(&w.now_ns) / 1000000u));
    }
}

static void block(job *j)
{
    exec->ops->blocking_begin(exec);
    spin(j);
    exec->ops->blocking_end(exec);
}

static void a_declared_blocking_call_is_no_long_turn(void **state)
{
    job j;
    open_exec(2, (teff_sched_options){.turn_warn_ms = 500});
    job_init(&j, block);
    push(&j);
    until(atomic_load(&j.inside));
    pass_s(10);
    monitor_looks(); /* else it would count from its last look in the region */
    atomic_store(&j.stop, true);
    until(atomic_load(&j.runs) == 1);
    close_exec();
    assert_int_equal(count_lines_with("runs for", ""), 0);
}

/* ---- late items ---- */

/* The item of the other waits while this turn lets time pass. The monitor sets the clock that items
 * are stamped with. It is held, so no other thread takes the item meanwhile. */
static void push_and_let_pass(job *j)
{
    monitor_tick();
    push(j->peer);
    world_pass_ms(&w, 5000);
    monitor_tick();
}

static void nothing(job *j)
{
}

static void let_an_item_wait(uint32_t delay_warn_ms)
{
    job a, b;
    monitor_hold(&w.platform);
    open_exec(1, (teff_sched_options){.turn_warn_ms = 86400000, .delay_warn_ms = delay_warn_ms});
    job_init(&a, push_and_let_pass);
    job_init(&b, nothing);
    a.peer = &b;
    push(&a);
    until(atomic_load(&a.runs) == 1 && atomic_load(&b.runs) == 1);
    monitor_release();
    close_exec();
}

static void an_item_that_waited_long_is_told_of(void **state)
{
    let_an_item_wait(2000);
    assert_int_equal(
        count_lines_with("a work item of job of the test waited 5000 ms", "limit 2000"), 1);
}

static void an_item_within_the_limit_is_not(void **state)
{
    let_an_item_wait(6000);
    assert_int_equal(count_lines_with("waited", ""), 0);
}

/* Not only the clock stands: so it does before the monitor's first look, too. */
static bool all_sleep(void)
{
    teffi_sched *real = teffi_sched_of(exec);
    pthread_mutex_lock(&real->idle_lock);
    bool asleep = real->monitor_asleep;
    pthread_mutex_unlock(&real->idle_lock);
    return asleep && teffi_coarse_ms(exec) == 0;
}

/* Everybody sleeps for an hour: the clock of items stands, so nobody can have waited that long. */
static void an_hour_of_sleep_is_no_delay(void **state)
{
    job j;
    open_exec(2, (teff_sched_options){0});
    job_init(&j, nothing);
    for (unsigned i = 1; i <= 3; i++) {
        until(all_sleep());
        world_pass_ms(&w, 3600000);
        push(&j);
        until(atomic_load(&j.runs) == i);
    }
    close_exec();
    assert_int_equal(count_lines_with("waited", ""), 0);
}

/* ---- long queues ---- */

static unsigned how_many;

static void push_many(job *j)
{
    for (unsigned i = 0; i < how_many; i++)
        (void)teffi_group_push(&j->peer->group, &j->peer->more[i]);
}

/* One worker, and the monitor is held: nothing is handled before all items are there. */
static void fill_queue(unsigned n)
{
    job a, b;
    monitor_hold(&w.platform);
    open_exec(1, (teff_sched_options){.queue_warn = 100});
    how_many = n;
    job_init(&a, push_many);
    job_init(&b, nothing);
    a.peer = &b;
    push(&a);
    until(atomic_load(&a.runs) == 1 && atomic_load(&b.items) == n);
    monitor_release();
    close_exec();
}

static void a_long_queue_is_told_of(void **state)
{
    fill_queue(250);
    assert_int_equal(count_lines_with("work items wait at job of the test", "limit 100"), 1);
}

static void a_queue_within_the_limit_is_not(void **state)
{
    fill_queue(100);
    assert_int_equal(count_lines_with("work items wait", ""), 0);
}

/* ---- how often ---- */

static void one_line_of_a_kind_a_second(void **state)
{
    job j;
    open_exec(1, (teff_sched_options){0});
    job_init(&j, nothing);
    for (unsigned i = 0; i < 100; i++)
        teffi_warn_long_queue(&j.group, 1000 + i);
    assert_int_equal(count_lines_with("work items wait", ""), 1);
    teffi_warn_late_item(&j.group, 1, 20001); /* another kind */
    assert_int_equal(count_lines_with("waited 20000 ms", ""), 1);
    world_pass_ms(&w, 1500);
    teffi_warn_long_queue(&j.group, 7);
    assert_int_equal(count_lines_with("7 work items wait", "99 more like it before"), 1);
    world_pass_ms(&w, 1500);
    teffi_warn_long_queue(&j.group, 8);
    assert_int_equal(count_lines_with("8 work items wait", "more like it"), 0);
    close_exec();
}

static void limits_have_ranges(void **state)
{
    teff_sched_options wrong[2] = {{.turn_warn_ms = 86400001}, {.delay_warn_ms = UINT32_MAX}};
    teff_sched_options right = {.turn_warn_ms = 86400000, .delay_warn_ms = 1};
    for (unsigned i = 0; i < 2; i++) {
        assert_non_null(teffi_sched_options_check(&wrong[i], 1));
        assert_int_equal(teffi_exec_real_new(&w.platform, 1, &wrong[i], &exec), TEFF_E_INVALID);
    }
    assert_null(teffi_sched_options_check(&right, 1));
}

/* ---- processes by their names ---- */

static _Atomic bool step_inside, step_stop;

static teff_err spinning_step(void *self, const teff_event *events, size_t n, teff_step *out)
{
    if (n && events[0].kind == TEFF_EVENT_CANCEL)
        return teff_step_done(out);
    atomic_store(&step_inside, true);
    while (!atomic_load(&step_stop))
        teffi_thread_yield();
    return teff_step_idle(out);
}

static void processes_are_named(void **state)
{
    static const teff_process_ops spinner = {.name = "spinner", .step = spinning_step};
    teff_process_options opt = {.size = sizeof opt, .processes_max = 100};
    teff_process_system *system;
    teff_pid pid;
    open_exec(2, (teff_sched_options){.turn_warn_ms = 500, .queue_warn = 10});
    assert_int_equal(teffi_process_system_new_on(exec, &opt, &system), TEFF_OK);
    assert_int_equal(teff_process_spawn(system, &spinner, NULL, NULL, NULL, 0, &pid), TEFF_OK);
    until(atomic_load(&step_inside));
    pass_until_told("a turn of process spinner", "runs for");
    for (unsigned i = 0; i < 10; i++)
        assert_int_equal(teff_process_send(system, pid, &(teff_event){.tag = i}), TEFF_OK);
    assert_int_equal(count_lines_with("work items wait", ""), 0);
    assert_int_equal(teff_process_send(system, pid, &(teff_event){.tag = 10}), TEFF_OK);
    assert_int_equal(count_lines_with("11 work items wait at process spinner", "limit 10"), 1);
    atomic_store(&step_stop, true);
    assert_int_equal(teff_process_system_stop(system, 0, NULL), TEFF_OK);
    close_exec();
    teff_process_system_free(system);
}

static int reset(void **state)
{
    world_init(&w);
    return 0;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup(a_long_turn_is_logged_again_when_its_length_has_doubled, reset),
        cmocka_unit_test_setup(the_default_is_a_second, reset),
        cmocka_unit_test_setup(a_group_that_may_go_is_not_looked_into, reset),
        cmocka_unit_test_setup(many_short_turns_are_not_long, reset),
        cmocka_unit_test_setup(a_declared_blocking_call_is_no_long_turn, reset),
        cmocka_unit_test_setup(an_item_that_waited_long_is_told_of, reset),
        cmocka_unit_test_setup(an_item_within_the_limit_is_not, reset),
        cmocka_unit_test_setup(an_hour_of_sleep_is_no_delay, reset),
        cmocka_unit_test_setup(a_long_queue_is_told_of, reset),
        cmocka_unit_test_setup(a_queue_within_the_limit_is_not, reset),
        cmocka_unit_test_setup(one_line_of_a_kind_a_second, reset),
        cmocka_unit_test_setup(limits_have_ranges, reset),
        cmocka_unit_test_setup(processes_are_named, reset),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
