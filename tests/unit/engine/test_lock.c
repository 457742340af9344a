/* test_lock.c - components that lock data by themselves: what the lock excludes, when it ends, and
 * when it is refused. */
#include <teff/engine.h>
#include "engine/engine.h"
#include "../process/processes.h"

static const teff_data_type data_a = {.name = "a", .size = sizeof(int)};
static const teff_data_type data_b = {.name = "b", .size = sizeof(int)};
static const teff_data_type data_c = {.name = "c", .size = sizeof(int)}; /* used by nobody */
static const teff_need write_a = {&data_a, TEFF_WRITE}, write_b = {&data_b, TEFF_WRITE};
static const teff_need read_a = {&data_a, TEFF_READ}, read_c = {&data_c, TEFF_READ};

static struct {
    teff_engine *engine;
    latch locked, over, ends;
    _Atomic bool gate;
    _Atomic unsigned ran, deadlocks, granted;
    _Atomic teff_err err[6];
} t;

static void note_end(void *arg, teff_component_id id)
{
    latch_hit(&t.ends);
}

static int is_open(void *arg)
{
    return t.gate;
}

static void open_gate(void)
{
    t.gate = true;
    teff_engine_notify(t.engine);
}

static void wait_for_gate(teff_component *w)
{
    latch_hit(&t.locked);
    t.err[5] = teff_component_wait(w, is_open, NULL);
}

/* Until n claims wait: nobody is told of it. */
static void until_waiting(unsigned n)
{
    unsigned waiting;
    do {
        teffi_claim *claim;
        waiting = 0;
        teffi_thread_yield();
        pthread_mutex_lock(&t.engine->lock);
        TAILQ_FOREACH (claim, &t.engine->waiters, link)
            waiting++;
        pthread_mutex_unlock(&t.engine->lock);
    } while (waiting < n);
}

/* ---- tasks and components ---- */

static void run_use(teff_component *w, void *task, void *const *data)
{
    ++*(int *)data[0];
    atomic_fetch_add(&t.ran, 1);
}

static void note_over(void *task, int ran)
{
    latch_hit(&t.over);
}

static const teff_task_type use_a = {.name = "use a",
                                     .run = run_use,
                                     .over = note_over,
                                     .n_needs = 1,
                                     .needs = {{&data_a, TEFF_WRITE}}};
static const teff_task_type read_task = {.name = "read a",
                                         .run = run_use,
                                         .over = note_over,
                                         .n_needs = 1,
                                         .needs = {{&data_a, TEFF_READ}}};
static const teff_task_type use_b = {.name = "use b",
                                     .run = run_use,
                                     .over = note_over,
                                     .n_needs = 1,
                                     .needs = {{&data_b, TEFF_WRITE}}};
static const teff_task_type *const uses[] = {&use_a, &read_task};
static const teff_task_type *const uses_b[] = {&use_b};
static const teff_data_use owns[] = {{&data_a, TEFF_DATA_OWNER}, {&data_b, TEFF_DATA_OWNER}};
static const teff_data_use shares[] = {{&data_a, TEFF_DATA_SHARE}, {&data_b, TEFF_DATA_SHARE}};
static const teff_component_type owner = {
    .name = "owner", .data = owns, .n_data = 2, .tasks = uses_b, .n_tasks = 1};
static const teff_component_type user = {
    .name = "user", .data = shares, .n_data = 2, .tasks = uses, .n_tasks = 2};

/* Scheduler 0: the owner and a user. */
static void begin(void)
{
    const teff_engine_options opt = {.size = sizeof opt, .schedulers = 3, .ended = note_end};
    memset(&t, 0, sizeof t);
    assert_int_equal(teff_engine_new(&opt, &t.engine), TEFF_OK);
    assert_int_equal(teff_engine_add(t.engine, 0, &owner, NULL, NULL), TEFF_OK);
    assert_int_equal(teff_engine_add(t.engine, 0, &user, NULL, NULL), TEFF_OK);
}

static int end(void **state)
{
    teff_engine_free(t.engine);
    return 0;
}

/* A component of scheduler 1 or 2 with a run function, on a fiber or on its thread. */
static teff_component_id add_runner(uint32_t scheduler, bool fiber, void (*run)(teff_component *w))
{
    static teff_component_type types[3];
    teff_component_id id;
    types[scheduler] = (teff_component_type){.name = "runner",
                                             .flags = fiber ? TEFF_COMPONENT_FIBER : 0,
                                             .data = shares,
                                             .n_data = 2,
                                             .tasks = uses_b,
                                             .n_tasks = 1,
                                             .run = run};
    assert_int_equal(teff_engine_add(t.engine, scheduler, &types[scheduler], NULL, &id), TEFF_OK);
    return id;
}

static void broadcast(const teff_task_type *type)
{
    assert_int_equal(teff_engine_broadcast(t.engine, type, NULL), TEFF_OK);
}

/* ---- what a lock excludes ---- */

static void lock_and_hold(teff_component *w)
{
    t.err[0] = teff_component_lock(w, &write_a, 1);
    wait_for_gate(w);
    t.err[1] = teff_component_unlock(w);
    t.err[2] = teff_component_unlock(w);
    while (!teff_component_drain(w, 1))
        ;
}

static void tasks_wait_for_the_unlock(void **state)
{
    for (int fiber = 0; fiber < 2; fiber++) {
        begin();
        (void)add_runner(1, fiber, lock_and_hold);
        latch_wait(&t.locked, 1);
        broadcast(&use_a);
        until_waiting(1);
        assert_int_equal(t.ran, 0);
        open_gate();
        latch_wait(&t.over, 1);
        assert_int_equal(t.ran, 1);
        assert_int_equal(teff_engine_stop(t.engine, 0, NULL), TEFF_OK);
        assert_int_equal(t.err[0], TEFF_OK);
        assert_int_equal(t.err[1], TEFF_OK);
        assert_int_equal(t.err[2], TEFF_E_NOT_FOUND);
        teff_engine_free(t.engine);
    }
    begin(); /* for the teardown */
}

static void lock_to_read(teff_component *w)
{
    t.err[0] = teff_component_lock(w, &read_a, 1);
    wait_for_gate(w);
}

static void readers_share_it_and_its_end_releases_it(void **state)
{
    begin();
    (void)add_runner(1, true, lock_to_read);
    (void)add_runner(2, true, lock_to_read);
    latch_wait(&t.locked, 2);
    broadcast(&read_task);
    latch_wait(&t.over, 1);
    broadcast(&use_a);
    until_waiting(1);
    open_gate(); /* both run functions return without an unlock */
    latch_wait(&t.ends, 2);
    latch_wait(&t.over, 2);
    assert_int_equal(t.ran, 2);
}

/* Else a stream of readers would hold up a writer for ever. */
static void a_reader_does_not_overtake_a_writer_that_waits(void **state)
{
    begin();
    (void)add_runner(1, true, lock_to_read);
    latch_wait(&t.locked, 1);
    broadcast(&use_a);
    until_waiting(1);
    (void)add_runner(2, true, lock_to_read);
    until_waiting(2);
    assert_int_equal(atomic_load(&t.locked.count), 1);
    open_gate();
    latch_wait(&t.ends, 2);
    latch_wait(&t.over, 1);
    assert_int_equal(t.ran, 1);
}

static void a_component_that_ends_releases_it(void **state)
{
    begin();
    teff_component_id id = add_runner(1, true, lock_and_hold);
    latch_wait(&t.locked, 1);
    broadcast(&use_a);
    until_waiting(1);
    assert_int_equal(teff_engine_remove(t.engine, id), TEFF_OK);
    latch_wait(&t.over, 1);
    assert_int_equal(t.ran, 1);
    assert_int_equal(t.err[5], TEFF_E_CANCELLED);
}

/* ---- locks in tasks ---- */

static void run_lock(teff_component *w, void *task, void *const *data)
{
    uint64_t none = 0;
    t.err[0] = teff_component_run_task(w, &use_a, &none, NULL, 0); /* needs a lock of a */
    t.err[1] = teff_component_lock(w, &write_a, 1);
    t.err[2] = teff_component_run_task(w, &use_a, &none, NULL, 0);
    t.err[3] = teff_component_unlock(w);
    t.err[4] = teff_component_lock(w, &write_a, 1); /* left to the return */
}

static void run_unlock(teff_component *w, void *task, void *const *data)
{
    t.err[0] = teff_component_unlock(w);
    t.err[1] = teff_component_lock(w, &read_c, 1);
    t.err[2] = teff_component_lock(w, &write_a, TEFF_NEEDS_MAX + 1);
}

static const teff_task_type lock_task = {.name = "lock", .run = run_lock, .over = note_over};
static const teff_task_type unlock_task = {.name = "unlock", .run = run_unlock, .over = note_over};
static const teff_task_type *const locks[] = {&lock_task, &unlock_task};
static const teff_component_type locker = {
    .name = "locker", .data = shares, .n_data = 2, .tasks = locks, .n_tasks = 2};

static void a_task_uses_its_locks_until_it_returns(void **state)
{
    begin();
    assert_int_equal(teff_engine_add(t.engine, 1, &locker, NULL, NULL), TEFF_OK);
    broadcast(&lock_task);
    latch_wait(&t.over, 1);
    assert_int_equal(t.err[0], TEFF_E_INVALID);
    for (int i = 1; i <= 4; i++)
        assert_int_equal(t.err[i], TEFF_OK);
    assert_int_equal(t.ran, 1);
    broadcast(&use_a);
    latch_wait(&t.over, 2);
    assert_int_equal(t.ran, 2);
}

static void bad_locks_are_refused(void **state)
{
    begin();
    assert_int_equal(teff_engine_add(t.engine, 1, &locker, NULL, NULL), TEFF_OK);
    broadcast(&unlock_task);
    latch_wait(&t.over, 1);
    assert_int_equal(t.err[0], TEFF_E_NOT_FOUND);
    assert_int_equal(t.err[1], TEFF_E_INVALID);
    assert_int_equal(t.err[2], TEFF_E_INVALID);
}

/* ---- cycles ---- */

static void lock_both(teff_component *w, const teff_need *first, const teff_need *second)
{
    if (teff_component_lock(w, first, 1))
        return;
    wait_for_gate(w);
    teff_err err = teff_component_lock(w, second, 1);
    atomic_fetch_add(err == TEFF_E_DEADLOCK ? &t.deadlocks : &t.granted, 1);
}

static void lock_a_then_b(teff_component *w)
{
    lock_both(w, &write_a, &write_b);
}

static void lock_b_then_a(teff_component *w)
{
    lock_both(w, &write_b, &write_a);
}

static void a_cycle_of_locks_is_found(void **state)
{
    for (int fibers = 0; fibers < 4; fibers++) {
        begin();
        (void)add_runner(1, fibers & 1, lock_a_then_b);
        (void)add_runner(2, fibers & 2, lock_b_then_a);
        latch_wait(&t.locked, 2);
        open_gate();
        latch_wait(&t.ends, 2);
        assert_int_equal(t.deadlocks, 1);
        assert_int_equal(t.granted, 1);
        teff_engine_free(t.engine);
    }
    begin(); /* for the teardown */
}

/* Holds a, and runs a queued task that needs b. */
static void lock_a_and_drain(teff_component *w)
{
    t.err[0] = teff_component_lock(w, &write_a, 1);
    wait_for_gate(w);
    t.err[1] = teff_component_drain(w, 1);
}

/* A queued task that would close a cycle does not run; the component goes on. */
static void a_queued_task_in_a_cycle_is_not_run(void **state)
{
    begin();
    (void)add_runner(1, true, lock_a_and_drain);
    (void)add_runner(2, true, lock_b_then_a);
    latch_wait(&t.locked, 2);
    assert_int_equal(teff_engine_send(t.engine, 1, &use_b, NULL), TEFF_OK);
    open_gate();
    latch_wait(&t.ends, 2);
    assert_int_equal(t.err[1], TEFF_OK);
    assert_int_equal(atomic_load(&t.over.count), 1);
    assert_int_equal(t.granted + t.ran, 1); /* whichever came second */
    assert_int_equal(t.deadlocks, t.ran);
}

#define ROW(f) cmocka_unit_test_teardown(f, end)

int main(void)
{
    const struct CMUnitTest tests[] = {
        ROW(tasks_wait_for_the_unlock),
        ROW(readers_share_it_and_its_end_releases_it),
        ROW(a_reader_does_not_overtake_a_writer_that_waits),
        ROW(a_component_that_ends_releases_it),
        ROW(a_task_uses_its_locks_until_it_returns),
        ROW(bad_locks_are_refused),
        ROW(a_cycle_of_locks_is_found),
        ROW(a_queued_task_in_a_cycle_is_not_run),
    };
    return cmocka_run_group_tests_name("engine/lock", tests, NULL, NULL);
}
