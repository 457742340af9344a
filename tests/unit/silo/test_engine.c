/* test_engine.c - engines on a silo's executor: components call grains, keep locked data meanwhile,
 * and end with the silo. */
#include <teff/engine.h>
#include "../process/processes.h"
#include "engine/engine.h"
#include "lab.h"
#include "os/thread.h"
#include "silo/silo.h"

enum { WORKERS = 2, COMPONENTS = 8, TASKS = 50 };

static struct {
    lab *lab;
    teff_engine *engine;
    latch ended, over;
    _Atomic unsigned well, without;
    _Atomic bool locked;
    _Atomic teff_err err;
    int64_t sum, overlaps; /* of the score, at its end */
} t;

/* ---- data that one component owns and the others change ---- */

typedef struct score {
    int64_t sum, inside, overlaps;
} score;

static void keep_score(teff_component *w, void *data)
{
    const score *s = data;
    t.sum = s->sum;
    t.overlaps = s->overlaps;
}

static const teff_data_type score_type = {
    .name = "score", .size = sizeof(score), .fini = keep_score};

typedef struct deed {
    int64_t n;
    bool hold;
} deed;

/* The score is locked during the call. */
static void run_deed(teff_component *w, void *task, void *const *data)
{
    score *s = data[0];
    const deed *d = task;
    lab_number *out;
    teff_ctx *ctx = teff_component_ctx(w);
    s->overlaps += s->inside++ > 0;
    t.without += !ctx;
    t.err = ctx ? lab_turns_write(ctx, "one",
                                  lab_step(.seq = d->n, .suspend = true, .hold = d->hold), &out)
                : TEFF_OK;
    if (ctx && !t.err) {
        s->sum += out->n;
        t.well++;
        teff_ctx_reset(ctx);
    }
    s->inside--;
}

static void deed_over(void *task, int ran)
{
    latch_hit(&t.over);
}

static const teff_task_type deed_task = {.name = "deed",
                                         .size = sizeof(deed),
                                         .run = run_deed,
                                         .over = deed_over,
                                         .n_needs = 1,
                                         .needs = {{&score_type, TEFF_WRITE}}};
static const teff_task_type nothing_task = {.name = "nothing"};
static const teff_task_type *const deeds[] = {&deed_task}, *const nothing[] = {&nothing_task};
static const teff_data_use owns[] = {{&score_type, TEFF_DATA_OWNER}};
static const teff_data_use shares[] = {{&score_type, TEFF_DATA_SHARE}};
static const teff_component_type owner = {
    .name = "owner", .data = owns, .n_data = 1, .tasks = nothing, .n_tasks = 1};
static const teff_component_type doer = {.name = "doer",
                                         .flags = TEFF_COMPONENT_FIBER,
                                         .data = shares,
                                         .n_data = 1,
                                         .tasks = deeds,
                                         .n_tasks = 1};
static const teff_component_type plain_doer = {
    .name = "plain doer", .data = shares, .n_data = 1, .tasks = deeds, .n_tasks = 1};

static void run_lock(teff_component *w)
{
    static const teff_need need = {&score_type, TEFF_WRITE};
    t.locked = teff_component_lock(w, &need, 1) == TEFF_OK;
}

static const teff_component_type locker = {.name = "locker",
                                           .flags = TEFF_COMPONENT_FIBER,
                                           .data = shares,
                                           .n_data = 1,
                                           .tasks = nothing,
                                           .n_tasks = 1,
                                           .run = run_lock};

static void on_end(void *arg, teff_component_id id)
{
    latch_hit(&t.ended);
}

static void begin(uint32_t schedulers)
{
    memset(&t, 0, sizeof t);
    t.lab = lab_open(2);
    teff_engine_options opt = {.size = sizeof opt, .schedulers = schedulers, .ended = on_end};
    assert_int_equal(teff_silo_scale(t.lab->silos[0], WORKERS), TEFF_OK);
    assert_int_equal(teff_silo_make_engine(t.lab->silos[0], &opt, &t.engine), TEFF_OK);
}

static int end(void **state)
{
    lab_close(t.lab);
    return 0;
}

static void add(uint32_t scheduler, const teff_component_type *type)
{
    teff_component_id id;
    assert_int_equal(teff_engine_add(t.engine, scheduler, type, NULL, &id), TEFF_OK);
}

static void broadcast(int64_t n, bool hold)
{
    assert_int_equal(teff_engine_broadcast(t.engine, &deed_task, &(deed){n, hold}), TEFF_OK);
}

static void tasks_call_grains_and_keep_their_data(void **state)
{
    begin(2);
    add(0, &owner);
    for (uint32_t i = 0; i < COMPONENTS; i++)
        add(i % 2, &doer);
    for (int64_t i = 1; i <= TASKS; i++)
        broadcast(i, false);
    latch_wait(&t.over, COMPONENTS * TASKS);
    assert_int_equal(t.well, COMPONENTS * TASKS);
    teff_sched_metrics all;
    (void)teff_silo_sched_metrics(t.lab->silos[0], &all, NULL, 0);
    assert_true(all.threads <= WORKERS + 2); /* no thread waits for a lock or a call */
    assert_int_equal(teff_engine_stop(t.engine, 0, NULL), TEFF_OK);
    latch_wait(&t.ended, COMPONENTS + 1);
    assert_int_equal(t.sum, COMPONENTS * TASKS * (TASKS + 1) / 2);
    assert_int_equal(t.overlaps, 0);
}

static unsigned count_waiting(void)
{
    teffi_claim *claim;
    unsigned n = 0;
    pthread_mutex_lock(&t.engine->lock);
    TAILQ_FOREACH (claim, &t.engine->waiters, link)
        n++;
    pthread_mutex_unlock(&t.engine->lock);
    return n;
}

/* One component has the score locked during a call, tasks with and without a fiber and a run
 * function wait for it: the workers are free for others. */
static void waiting_for_data_blocks_no_thread(void **state)
{
    teff_sched_metrics all;
    lab_number *out;
    begin(2);
    add(0, &owner);
    add(0, &doer);
    broadcast(1, true);
    lab_until(t.lab->record.held == 1);
    for (uint32_t i = 0; i < COMPONENTS; i++)
        add(i % 2, i < COMPONENTS / 2 ? &plain_doer : &doer);
    add(1, &locker);
    broadcast(2, false);
    lab_until(count_waiting() == COMPONENTS + 1);
    lab_ok(t.lab->ctx[0], lab_turns_write(t.lab->ctx[0], "two", lab_step(.seq = 1), &out));
    (void)teff_silo_sched_metrics(t.lab->silos[0], &all, NULL, 0);
    assert_true(all.threads <= WORKERS + 2);
    assert_int_equal(atomic_load(&t.over.count), 0);
    t.lab->record.gate = true;
    latch_wait(&t.over, 2 + COMPONENTS);
    latch_wait(&t.ended, 1); /* the locker */
    assert_true(t.locked);
    assert_int_equal(teff_engine_stop(t.engine, 0, NULL), TEFF_OK);
    assert_int_equal(t.overlaps, 0);
}

static void without_a_fiber_there_is_no_context(void **state)
{
    begin(1);
    add(0, &owner);
    add(0, &plain_doer);
    broadcast(1, false);
    latch_wait(&t.over, 1);
    assert_int_equal(t.without, 1);
}

/* Two engines, one with a component that waits for a grain: the silo's stop ends both. */
static void the_silo_stops_its_engines(void **state)
{
    teff_engine *second;
    begin(1);
    assert_int_equal(teff_silo_make_engine(t.lab->silos[0], NULL, &second), TEFF_OK);
    add(0, &owner);
    add(0, &doer);
    broadcast(1, true);
    lab_until(t.lab->record.held == 1);
    teff_ctx_free(t.lab->ctx[0]);
    t.lab->ctx[0] = NULL;
    assert_int_equal(teff_engine_stop(t.engine, 1, NULL), TEFF_E_TIMEOUT);
    assert_int_equal(t.err, TEFF_E_CANCELLED);
    t.lab->record.gate = true;
    assert_int_equal(teff_silo_stop(t.lab->silos[0], 0), TEFF_OK);
    assert_int_equal(teff_silo_make_engine(t.lab->silos[0], NULL, &second), TEFF_E_CLOSED);
    assert_null(second);
}

/* Make another engine, with a component that waits for a grain. */
static void add_stuck_engine(void)
{
    assert_int_equal(teff_silo_make_engine(t.lab->silos[0], NULL, &t.engine), TEFF_OK);
    add(0, &owner);
    add(0, &doer);
    broadcast(1, true);
}

static void engines_share_the_limit_of_a_stop(void **state)
{
    enum { STUCK = 6, LIMIT_MS = 500 };
    teffi_platform real;
    teffi_platform_init_real(&real, TEFF_LOG_WARN);
    begin(1);
    for (unsigned i = 0; i < STUCK; i++)
        add_stuck_engine();
    lab_until(t.lab->record.held == 1);
    uint64_t from_ns = teffi_now(&real);
    assert_int_equal(teffi_silo_stop_engines_and_processes(t.lab->silos[0], LIMIT_MS),
                     TEFF_E_TIMEOUT);
    assert_true(teffi_now(&real) - from_ns < UINT64_C(1000000) * (STUCK - 2) * LIMIT_MS);
    t.lab->record.gate = true;
}

static void stop_patiently(void *err)
{
    *(teff_err *)err = teffi_silo_stop_engines_and_processes(t.lab->silos[0], 600000);
}

/* The engine that is waited for last has ended while another one is waited for. */
static void all_engines_are_asked_to_end_at_once(void **state)
{
    teffi_thread stopper;
    teff_err err = TEFF_E_TIMEOUT;
    begin(1);
    add(0, &owner);
    add_stuck_engine();
    lab_until(t.lab->record.held == 1);
    assert_int_equal(teffi_thread_start(&stopper, "stopper", stop_patiently, &err), TEFF_OK);
    lab_until(atomic_load(&t.ended.count) == 1);
    t.lab->record.gate = true;
    teffi_thread_join(&stopper);
    assert_int_equal(err, TEFF_OK);
    assert_int_equal(t.err, TEFF_OK); /* the grain's answer has ended the wait, not a time limit */
}

static void bad_options_make_no_engine(void **state)
{
    teff_engine *none;
    begin(1);
    teff_engine_options opt = {.size = sizeof opt, .schedulers = 1000};
    assert_int_equal(teff_silo_make_engine(t.lab->silos[0], &opt, &none), TEFF_E_INVALID);
    assert_null(none);
    opt = (teff_engine_options){.size = sizeof opt, .queue_max = UINT32_MAX};
    assert_int_equal(teff_silo_make_engine(t.lab->silos[0], &opt, &none), TEFF_E_INVALID);
    assert_null(none);
}

#define ROW(f) cmocka_unit_test_teardown(f, end)

int main(void)
{
    const struct CMUnitTest tests[] = {
        ROW(tasks_call_grains_and_keep_their_data),
        ROW(waiting_for_data_blocks_no_thread),
        ROW(without_a_fiber_there_is_no_context),
        ROW(the_silo_stops_its_engines),
        ROW(engines_share_the_limit_of_a_stop),
        ROW(all_engines_are_asked_to_end_at_once),
        ROW(bad_options_make_no_engine),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
