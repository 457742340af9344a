/* engine_rows.c - rows engine-: what a task of an engine costs, from when it is sent to the end
 * of its run, and what a lock of data costs its component.
 * Way:     bench.c -> [engine_rows] -> broadcast -> components' tasks -> over
 * Threads: one sends, which is not of the engine; each of two schedulers has one. */
#include <semaphore.h>
#include <stdatomic.h>
#include <string.h>
#include <teff/engine.h>
#include "bench.h"
#include "bench.teff.h"

enum { SCHEDULERS = 2, COMPONENTS = 16 };

static teff_engine *engine;
static _Atomic uint64_t left; /* copies of the loop's tasks that are not over */
static sem_t all_over;

static void must(teff_err err)
{
    if (err)
        bench_fatal(NULL, err);
}

/* ---- data and tasks ---- */

static const teff_data_type sum_type = {.name = "sum", .size = sizeof(uint64_t)};
static const teff_need write_sum = {&sum_type, TEFF_WRITE};

static void run_nothing(teff_component *w, void *task, void *const *data)
{
    (void)w;
    (void)task;
    (void)data;
}

static void run_add(teff_component *w, void *task, void *const *data)
{
    (void)w;
    *(uint64_t *)data[0] += *(uint64_t *)task;
}

static void run_lock(teff_component *w, void *task, void *const *data)
{
    (void)data;
    for (uint64_t n = *(uint64_t *)task; n > 0; n--) {
        must(teff_component_lock(w, &write_sum, 1));
        (void)teff_component_unlock(w);
    }
}

static void count_over(void *task, int ran)
{
    (void)task;
    (void)ran;
    if (atomic_fetch_sub(&left, 1) == 1)
        sem_post(&all_over);
}

static const teff_task_type one_task = {
    .name = "one", .size = sizeof(uint64_t), .run = run_nothing, .over = count_over};
static const teff_task_type all_task = {
    .name = "all", .size = sizeof(uint64_t), .run = run_nothing, .over = count_over};
static const teff_task_type add_task = {.name = "add",
                                        .size = sizeof(uint64_t),
                                        .run = run_add,
                                        .over = count_over,
                                        .n_needs = 1,
                                        .needs = {{&sum_type, TEFF_WRITE}}};
static const teff_task_type lock_task = {
    .name = "lock", .size = sizeof(uint64_t), .run = run_lock, .over = count_over};

static const teff_task_type *const owner_tasks[] = {&one_task, &lock_task};
static const teff_task_type *const user_tasks[] = {&all_task, &add_task};
static const teff_data_use owns[] = {{&sum_type, TEFF_DATA_OWNER}};
static const teff_data_use shares[] = {{&sum_type, TEFF_DATA_SHARE}};
static const teff_component_type owner = {
    .name = "owner", .data = owns, .n_data = 1, .tasks = owner_tasks, .n_tasks = 2};
static const teff_component_type user = {
    .name = "user", .data = shares, .n_data = 1, .tasks = user_tasks, .n_tasks = 2};

/* ---- the loops ---- */

static void wait_for_all(void)
{
    while (sem_wait(&all_over))
        ;
}

/* To the owner. */
static void send_tasks(const teff_task_type *type, uint64_t times, uint64_t value)
{
    atomic_store(&left, times);
    for (uint64_t i = 0; i < times; i++)
        must(teff_engine_send(engine, 0, type, &value));
    wait_for_all();
}

/* n copies: one for each user. */
static void broadcast(const teff_task_type *type, uint64_t n)
{
    const uint64_t value = 1;
    atomic_store(&left, n);
    for (uint64_t i = 0; i < n / COMPONENTS; i++)
        must(teff_engine_broadcast(engine, type, &value));
    wait_for_all();
}

static teff_err loop(teff_ctx *ctx, const bench_plan *plan, uint64_t *ns)
{
    uint64_t from = bench_now_ns();
    (void)ctx;
    if (strcmp(plan->what, "one") == 0)
        send_tasks(&one_task, plan->n, 1);
    else if (strcmp(plan->what, "all") == 0)
        broadcast(&all_task, plan->n);
    else if (strcmp(plan->what, "add") == 0)
        broadcast(&add_task, plan->n);
    else
        send_tasks(&lock_task, 1, plan->n);
    *ns = bench_now_ns() - from;
    return TEFF_OK;
}

static void open_engine(bench *b)
{
    const teff_engine_options opt = {.size = sizeof opt, .schedulers = SCHEDULERS};
    must(teff_engine_new(&opt, &engine));
    must(teff_engine_add(engine, 0, &owner, NULL, NULL));
    for (uint32_t i = 0; i < COMPONENTS; i++)
        must(teff_engine_add(engine, i % SCHEDULERS, &user, NULL, NULL));
    sem_init(&all_over, 0, 0);
    b->loop = loop;
}

void bench_engine(bench *b)
{
    open_engine(b);
    bench_timed(b, "engine-task", "one", 0);
    bench_timed(b, "engine-task-of-16", "all", COMPONENTS);
    bench_timed(b, "engine-task-of-16-locked", "add", COMPONENTS);
    bench_timed(b, "engine-lock", "lock", 0);
    teff_engine_free(engine);
    sem_destroy(&all_over);
}
