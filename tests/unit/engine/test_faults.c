/* test_faults.c - engines when a request for memory or for a thread fails: the operation says so, a
 * component ends, or a task is over without a run, and nothing is lost. */
#include <teff/engine.h>
#include "../faults.h"
#include "../process/processes.h"

enum { LONG = 3000 }; /* longer than what the pool keeps */

typedef struct note {
    char bytes[LONG];
} note;

static _Atomic unsigned ran, failed, ended;

static const teff_data_type shared = {.name = "shared", .size = LONG};
static const teff_data_type own = {.name = "own", .size = LONG};

/* Locks, and waits with a timer. */
static int is_true(void *arg)
{
    return ++*(unsigned *)arg > 1;
}

static void run_note(teff_component *w, void *task, void *const *data)
{
    unsigned asked = 0;
    const teff_need need = {&own, TEFF_WRITE};
    const char *bytes = ((note *)task)->bytes;
    teff_err err = teff_component_lock(w, &need, 1);
    if (!err)
        err = teff_component_wait(w, is_true, &asked);
    atomic_fetch_add(err || bytes[LONG - 1] != 1 ? &failed : &ran, 1);
}

static void note_over(void *task, int has_run)
{
    atomic_fetch_add(&failed, !has_run);
}

static void note_end(void *arg, teff_component_id id)
{
    atomic_fetch_add(&ended, 1);
}

static const teff_task_type note_task = {.name = "note",
                                         .size = sizeof(note),
                                         .run = run_note,
                                         .over = note_over,
                                         .n_needs = 1,
                                         .needs = {{&shared, TEFF_READ}}};
static const teff_task_type *const notes[] = {&note_task};
static const teff_data_use owner_data[] = {{&shared, TEFF_DATA_OWNER}, {&own, TEFF_DATA_OWNER}};
static const teff_data_use user_data[] = {{&shared, TEFF_DATA_SHARE}, {&own, TEFF_DATA_LOCAL}};
static const teff_component_type owner = {.name = "owner",
                                          .flags = TEFF_COMPONENT_FIBER,
                                          .data = owner_data,
                                          .n_data = 2,
                                          .tasks = notes,
                                          .n_tasks = 1};
static const teff_component_type user = {
    .name = "user", .data = user_data, .n_data = 2, .tasks = notes, .n_tasks = 1};

/* Or until a component has ended, for which the other one may wait. */
static void until_each_copy_ran_or_not(teff_engine *engine)
{
    teff_engine_stats stats;
    do {
        teff_engine_notify(engine);
        teffi_thread_yield();
        teff_engine_stats_get(engine, &stats);
    } while (!ended && ran + failed + stats.refused + stats.dropped < 2);
}

static teff_err use(teff_engine *engine)
{
    static const note one = {.bytes[LONG - 1] = 1};
    teff_err err = teff_engine_add(engine, 0, &owner, NULL, NULL);
    if (!err)
        err = teff_engine_add(engine, 1, &user, NULL, NULL);
    if (!err)
        err = teff_engine_broadcast(engine, &note_task, &one);
    if (!err)
        until_each_copy_ran_or_not(engine);
    return err ? err : ran == 2 ? TEFF_OK : TEFF_E_FAILED;
}

static teff_err run_engine(void)
{
    const teff_engine_options opt = {
        .size = sizeof opt, .schedulers = 2, .poll_ms = 1, .ended = note_end};
    teff_engine *engine;
    ran = failed = ended = 0;
    teff_err err = teff_engine_new(&opt, &engine);
    if (err)
        return err;
    err = use(engine);
    teff_engine_free(engine);
    return err;
}

/* A timer that has no memory is not set, and a copy that has none is refused. */
static void test_a_failed_request_costs_what_it_was_for(void **state)
{
    assert_true(fault_sweep(run_engine, false) > 20);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_a_failed_request_costs_what_it_was_for),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
