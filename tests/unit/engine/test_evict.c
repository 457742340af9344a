/* test_evict.c - engines by priority with a full run queue: each copy of a task is run or reported
 * as not run, and evicted copies are counted. */
#include <teff/engine.h>
#include "../process/processes.h"

enum { COMPONENTS = 16, TASKS = 100, CROWD = 32, WAITING_MAX = 4, ROUNDS_MAX = 1000, ENOUGH = 100 };

static latch begun, over, ends;
static _Atomic unsigned ran, did_not_run;

static void note_begin(teff_component *w, void *data)
{
    latch_hit(&begun);
}

static void note_run(teff_component *w, void *task, void *const *data)
{
    atomic_fetch_add(&ran, 1);
}

static void note_over(void *task, int did_run)
{
    atomic_fetch_add(&did_not_run, !did_run);
    latch_hit(&over);
}

static const teff_data_type begins = {.name = "begins", .size = 1, .init = note_begin};
static const teff_data_use uses[] = {{&begins, TEFF_DATA_LOCAL}};
static const teff_task_type note_task = {.name = "note", .run = note_run, .over = note_over};
static const teff_task_type *const notes[] = {&note_task};
static const teff_component_type types[] = {
    {.name = "plain", .data = uses, .n_data = 1, .tasks = notes, .n_tasks = 1},
    {.name = "fiber",
     .flags = TEFF_COMPONENT_FIBER,
     .data = uses,
     .n_data = 1,
     .tasks = notes,
     .n_tasks = 1}};

static void note_end(void *arg, teff_component_id id)
{
    latch_hit(&ends);
}

static teff_engine *begin(void)
{
    static const teff_sched_options sched = {
        .size = sizeof sched, .policy = TEFF_SCHED_PRIORITY, .waiting_max = WAITING_MAX};
    const teff_engine_options opt = {.size = sizeof opt, .sched = &sched, .ended = note_end};
    teff_engine *engine;
    memset(&begun, 0, sizeof begun);
    memset(&over, 0, sizeof over);
    memset(&ends, 0, sizeof ends);
    atomic_store(&ran, 0);
    atomic_store(&did_not_run, 0);
    assert_int_equal(teff_engine_new(&opt, &engine), TEFF_OK);
    return engine;
}

static void add(teff_engine *engine, const teff_component_type *type)
{
    assert_int_equal(teff_engine_add(engine, 0, type, NULL, NULL), TEFF_OK);
}

static void broadcast(teff_engine *engine, const teff_task_type *type)
{
    assert_int_equal(teff_engine_broadcast(engine, type, NULL), TEFF_OK);
}

/* Again, until enough were evicted: on a busy machine another thread may run what waits meanwhile.
 * If the dispatcher was evicted, fewer copies were given. */
static void each_copy_is_over_and_evicted_ones_are_counted(void **state)
{
    teff_engine *engine = begin();
    teff_engine_stats stats = {0};
    for (unsigned i = 0; i < COMPONENTS; i++) {
        add(engine, &types[i % 2]);
        latch_wait(&begun, i + 1); /* one by one: none is evicted before it has begun */
    }
    for (unsigned i = 1; i <= ROUNDS_MAX && stats.evicted < ENOUGH; i++) {
        for (unsigned k = 0; k < TASKS; k++)
            broadcast(engine, &note_task);
        latch_wait(&over, i * TASKS * COMPONENTS);
        teff_engine_stats_get(engine, &stats);
        assert_int_equal(stats.given, i * TASKS * COMPONENTS);
        assert_int_equal(stats.evicted, atomic_load(&did_not_run));
        assert_int_equal(stats.given, stats.evicted + atomic_load(&ran));
    }
    assert_true(stats.evicted >= ENOUGH);
    assert_int_equal(atomic_load(&ends.count), 0);
    teff_engine_free(engine);
    assert_int_equal(atomic_load(&over.count), stats.given);
}

/* ---- components that are evicted before they have begun ---- */

static void run_crowd(teff_component *w, void *task, void *const *data)
{
    for (unsigned i = 0; i < CROWD; i++)
        add(teff_component_engine(w), &types[i % 2]);
    broadcast(teff_component_engine(w), &note_task);
}

static const teff_task_type crowd_task = {.name = "crowd", .run = run_crowd, .over = note_over};
static const teff_task_type *const crowds[] = {&crowd_task};
static const teff_component_type crowder = {
    .name = "crowder", .data = uses, .n_data = 1, .tasks = crowds, .n_tasks = 1};

/* They end, without set-up; so do the copies that they got. */
static void components_that_are_evicted_early_end(void **state)
{
    unsigned early = 0;
    for (unsigned i = 0; i < ROUNDS_MAX && early < ENOUGH; i++) {
        teff_engine *engine = begin();
        teff_engine_stats stats;
        add(engine, &crowder);
        latch_wait(&begun, 1);
        broadcast(engine, &crowd_task);
        while (atomic_load(&begun.count) + atomic_load(&ends.count) < CROWD + 1)
            teffi_thread_yield();
        early += atomic_load(&ends.count);
        assert_int_equal(teff_engine_stop(engine, 0, NULL), TEFF_OK);
        teff_engine_stats_get(engine, &stats);
        assert_int_equal(atomic_load(&ends.count), CROWD + 1);
        assert_int_equal(atomic_load(&over.count), stats.given);
        teff_engine_free(engine);
    }
    assert_true(early >= ENOUGH);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(each_copy_is_over_and_evicted_ones_are_counted),
        cmocka_unit_test(components_that_are_evicted_early_end),
    };
    return cmocka_run_group_tests_name("engine/evict", tests, NULL, NULL);
}
