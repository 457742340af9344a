/* test_data.c - owner, local, group and share data, and tasks that lock the data that they name. */
#include <stdio.h>
#include <teff/engine.h>
#include "engine/engine.h"
#include "../process/processes.h"

static latch ends;

static void on_end(void *arg, teff_component_id id)
{
    latch_hit(&ends);
}

static teff_engine *engine_of(uint32_t schedulers, uint32_t threads)
{
    teff_engine *engine;
    memset(&ends, 0, sizeof ends);
    teff_engine_options opt = {
        .size = sizeof opt, .schedulers = schedulers, .threads = threads, .ended = on_end};
    assert_int_equal(teff_engine_new(&opt, &engine), TEFF_OK);
    return engine;
}

static teff_component_id add(teff_engine *engine, uint32_t scheduler,
                             const teff_component_type *type, void *u)
{
    teff_component_id id = {0};
    assert_int_equal(teff_engine_add(engine, scheduler, type, u, &id), TEFF_OK);
    return id;
}

/* ---- the order of set-up and take-down ---- */

static char trace[4096];
static pthread_mutex_t trace_lock = PTHREAD_MUTEX_INITIALIZER;
static latch ready;

static void put(teff_component *w, const char *what, const char *data)
{
    const char *who = teff_component_user(w);
    pthread_mutex_lock(&trace_lock);
    size_t at = strlen(trace);
    snprintf(trace + at, sizeof trace - at, "%s.%s %s;", who, what, data);
    pthread_mutex_unlock(&trace_lock);
}

#define HOOKS(name)                                                                                \
    static void init_##name(teff_component *w, void *data)                                         \
    {                                                                                              \
        (void)data;                                                                                \
        put(w, "init", #name);                                                                     \
    }                                                                                              \
    static void owner_##name(teff_component *w, void *data)                                        \
    {                                                                                              \
        (void)data;                                                                                \
        put(w, "setup_owner", #name);                                                              \
    }                                                                                              \
    static void bind_##name(teff_component *w, void *data)                                         \
    {                                                                                              \
        (void)data;                                                                                \
        put(w, "bind", #name);                                                                     \
    }                                                                                              \
    static void setup_##name(teff_component *w, void *data)                                        \
    {                                                                                              \
        (void)data;                                                                                \
        put(w, "setup", #name);                                                                    \
    }                                                                                              \
    static void unbind_##name(teff_component *w, void *data)                                       \
    {                                                                                              \
        (void)data;                                                                                \
        put(w, "unbind", #name);                                                                   \
    }                                                                                              \
    static void fini_##name(teff_component *w, void *data)                                         \
    {                                                                                              \
        (void)data;                                                                                \
        put(w, "fini", #name);                                                                     \
    }                                                                                              \
    static const teff_data_type name = {#name,       sizeof(int),  init_##name,   owner_##name,    \
                                        bind_##name, setup_##name, unbind_##name, fini_##name}

HOOKS(own);
HOOKS(loc);
HOOKS(grp);
HOOKS(shr);

static void run_ready(teff_component *w, void *task, void *const *data)
{
    put(w, "run", "task");
    latch_hit(&ready);
}

static void over_trace(void *task, int ran)
{
    if (!ran)
        strncat(trace, "cleared;", sizeof trace - strlen(trace) - 1);
}

static const teff_task_type ready_task = {.name = "ready", .run = run_ready, .over = over_trace};
static const teff_task_type *const readies[] = {&ready_task};

/* The order in which the data is listed does not matter: the kinds do. */
static const teff_data_use user_data[] = {{&shr, TEFF_DATA_SHARE},
                                          {&grp, TEFF_DATA_GROUP},
                                          {&loc, TEFF_DATA_LOCAL},
                                          {&own, TEFF_DATA_OWNER}};
static const teff_data_use grp_data[] = {{&grp, TEFF_DATA_OWNER}};
static const teff_data_use use_grp[] = {{&grp, TEFF_DATA_GROUP}};
static const teff_data_use shr_data[] = {{&shr, TEFF_DATA_OWNER}};

static void test_set_up_and_take_down_in_the_stated_order(void **state)
{
    static const uint32_t flags[] = {0, TEFF_COMPONENT_FIBER};
    for (unsigned i = 0; i < 2; i++) {
        memset(&ready, 0, sizeof ready);
        trace[0] = 0;
        const teff_component_type user = {"user", flags[i], user_data, 4, readies, 1, NULL};
        const teff_component_type grp_owner = {"g", flags[i], grp_data, 1, readies, 1, NULL};
        const teff_component_type shr_owner = {"s", flags[i], shr_data, 1, readies, 1, NULL};
        teff_engine *engine = engine_of(2, 1);
        /* The user comes first and has to wait for both owners, one in another scheduler. */
        teff_component_id id = add(engine, 0, &user, (void *)(uintptr_t) "user");
        (void)add(engine, 1, &shr_owner, (void *)(uintptr_t) "s");
        (void)add(engine, 0, &grp_owner, (void *)(uintptr_t) "g");
        assert_int_equal(teff_engine_broadcast(engine, &ready_task, NULL), TEFF_OK);
        latch_wait(&ready, 3);
        assert_int_equal(teff_engine_remove(engine, id), TEFF_OK);
        latch_wait(&ends, 1);
        pthread_mutex_lock(&trace_lock);
        char mine[4096] = "";
        char *save, *part = strtok_r(trace, ";", &save);
        for (; part; part = strtok_r(NULL, ";", &save))
            if (strncmp(part, "user.", 5) == 0) {
                strcat(mine, part + 5);
                strcat(mine, ";");
            }
        pthread_mutex_unlock(&trace_lock);
        assert_string_equal(mine, "init own;setup_owner own;init loc;bind grp;bind shr;setup shr;"
                                  "setup grp;setup loc;setup own;run task;unbind shr;unbind grp;"
                                  "fini loc;fini own;");
        teff_engine_free(engine);
    }
}

/* ---- "setup_owner needs no ownership; after it owner data can be loaded by others" ---- */

static latch in_owner, owner_gate;

static void slow_owner(teff_component *w, void *data)
{
    *(int *)data = 42;
    latch_hit(&in_owner);
    latch_wait(&owner_gate, 1);
    *(int *)data = 43;
}

static const teff_data_type slow = {.name = "slow", .size = sizeof(int), .setup_owner = slow_owner};
static const teff_data_use own_slow[] = {{&slow, TEFF_DATA_OWNER}};
static const teff_data_use use_slow[] = {{&slow, TEFF_DATA_SHARE}};
static int seen;

static void run_see(teff_component *w, void *task, void *const *data)
{
    seen = *(int *)data[0];
    latch_hit(&ready);
}

static const teff_task_type see_task = {
    .name = "see", .run = run_see, .n_needs = 1, .needs = {{&slow, TEFF_READ}}};
static const teff_task_type *const sees[] = {&see_task};
static const teff_component_type slow_owner_type = {
    .name = "slow owner", .data = own_slow, .n_data = 1, .tasks = readies, .n_tasks = 1};
static const teff_component_type slow_user_type = {
    .name = "slow user", .data = use_slow, .n_data = 1, .tasks = sees, .n_tasks = 1};

static void test_others_get_the_data_after_setup_owner(void **state)
{
    memset(&ready, 0, sizeof ready);
    teff_engine *engine = engine_of(2, 1);
    (void)add(engine, 0, &slow_owner_type, NULL);
    latch_wait(&in_owner, 1);
    (void)add(engine, 1, &slow_user_type, NULL);
    assert_int_equal(teff_engine_broadcast(engine, &see_task, NULL), TEFF_OK);
    assert_int_equal(atomic_load(&ready.count), 0);
    latch_hit(&owner_gate);
    latch_wait(&ready, 1);
    assert_int_equal(seen, 43);
    teff_engine_free(engine);
}

/* A component ends when the owner of its share or group data has ended. */
static void test_a_component_whose_owner_has_ended_ends(void **state)
{
    for (unsigned i = 0; i < 2; i++) { /* in both: with tasks to do, and without */
        memset(&ready, 0, sizeof ready);
        teff_engine *engine = engine_of(2, 1);
        teff_component_id owner = add(engine, 0, &slow_owner_type, NULL);
        (void)add(engine, 1, &slow_user_type, NULL);
        assert_int_equal(teff_engine_broadcast(engine, &see_task, NULL), TEFF_OK);
        latch_wait(&ready, 1);
        assert_int_equal(teff_engine_remove(engine, owner), TEFF_OK);
        latch_wait(&ends, 1);
        if (i)
            assert_int_equal(teff_engine_broadcast(engine, &see_task, NULL), TEFF_OK);
        latch_wait(&ends, 2);
        assert_int_equal(atomic_load(&ready.count), 1);
        teff_engine_free(engine);
    }
}

static void test_data_stays_when_its_users_go(void **state)
{
    memset(&ready, 0, sizeof ready);
    const teff_component_type owner = {"owner", 0, grp_data, 1, readies, 1, NULL};
    const teff_component_type user = {"user", 0, use_grp, 1, readies, 1, NULL};
    teff_engine *engine = engine_of(1, 1);
    (void)add(engine, 0, &owner, (void *)(uintptr_t) "g");
    for (uint32_t i = 1; i <= 3; i++) {
        teff_component_id id = add(engine, 0, &user, (void *)(uintptr_t) "user");
        assert_int_equal(teff_engine_broadcast(engine, &ready_task, NULL), TEFF_OK);
        latch_wait(&ready, 2 * i);
        assert_int_equal(teff_engine_remove(engine, id), TEFF_OK);
        latch_wait(&ends, i);
    }
    teff_engine_free(engine);
}

/* ---- group data is the scheduler's own ---- */

static void set_index(teff_component *w, void *data)
{
    *(uint32_t *)data = *(const uint32_t *)teff_component_user(w);
}

static void run_index(teff_component *w, void *task, void *const *data)
{
    *(uint32_t *)teff_component_user(w) = *(const uint32_t *)data[0];
    latch_hit(&ready);
}

static const teff_data_type place = {
    .name = "place", .size = sizeof(uint32_t), .setup_owner = set_index};
static const teff_task_type place_task = {
    .name = "place", .run = run_index, .n_needs = 1, .needs = {{&place, TEFF_READ}}};
static const teff_task_type *const places[] = {&place_task};

static void test_group_data_is_the_schedulers_own(void **state)
{
    enum { ALL = 3 };
    static const teff_data_use own_place[] = {{&place, TEFF_DATA_OWNER}};
    static const teff_data_use use_place[] = {{&place, TEFF_DATA_GROUP}};
    static const teff_component_type owner = {"owner", 0, own_place, 1, readies, 1, NULL};
    static const teff_component_type user = {"user", 0, use_place, 1, places, 1, NULL};
    uint32_t index[ALL], seen_index[ALL] = {9, 9, 9};
    memset(&ready, 0, sizeof ready);
    teff_engine *engine = engine_of(ALL, 1);
    for (uint32_t i = 0; i < ALL; i++) {
        index[i] = i;
        (void)add(engine, i, &owner, &index[i]);
        (void)add(engine, i, &user, &seen_index[i]);
    }
    assert_int_equal(teff_engine_broadcast(engine, &place_task, NULL), TEFF_OK);
    latch_wait(&ready, ALL);
    teff_engine_free(engine);
    assert_memory_equal(seen_index, index, sizeof index);
}

/* ---- locks ---- */

typedef struct account {
    _Atomic unsigned readers, writers;
    uint64_t sum; /* written by writers only: a race would lose some */
} account;

static const teff_data_type acc_a = {.name = "a", .size = sizeof(account)};
static const teff_data_type acc_b = {.name = "b", .size = sizeof(account)};
static const teff_data_type acc_c = {.name = "c", .size = sizeof(account)};
static _Atomic unsigned wrong, did, most_readers;

static void enter(account *a, teff_access access)
{
    unsigned others =
        access == TEFF_WRITE ? atomic_fetch_add(&a->writers, 1) : atomic_load(&a->writers);
    if (access == TEFF_READ)
        atomic_fetch_add(&a->readers, 1);
    if (others || (access == TEFF_WRITE && atomic_load(&a->readers)))
        atomic_fetch_add(&wrong, 1);
    if (access == TEFF_WRITE)
        a->sum++;
}

static void leave(account *a, teff_access access)
{
    atomic_fetch_sub(access == TEFF_WRITE ? &a->writers : &a->readers, 1);
}

static void both(teff_component *w, const teff_task_type *type, void *const *data)
{
    for (uint32_t i = 0; i < type->n_needs; i++)
        enter(data[i], type->needs[i].access);
    assert_int_equal(teff_component_yield(w), TEFF_OK); /* holding them, while others want them */
    for (uint32_t i = 0; i < type->n_needs; i++)
        leave(data[i], type->needs[i].access);
    atomic_fetch_add(&did, 1);
    latch_hit(&ready);
}

static void run_ab(teff_component *w, void *task, void *const *data);
static void run_ba(teff_component *w, void *task, void *const *data);
static void run_bc(teff_component *w, void *task, void *const *data);

static const teff_task_type ab = {.name = "ab",
                                  .run = run_ab,
                                  .n_needs = 2,
                                  .needs = {{&acc_a, TEFF_WRITE}, {&acc_b, TEFF_WRITE}}};
static const teff_task_type ba = {.name = "ba",
                                  .run = run_ba,
                                  .n_needs = 2,
                                  .needs = {{&acc_b, TEFF_WRITE}, {&acc_a, TEFF_READ}}};
static const teff_task_type bc = {.name = "bc",
                                  .run = run_bc,
                                  .n_needs = 2,
                                  .needs = {{&acc_c, TEFF_READ}, {&acc_b, TEFF_WRITE}}};

static void run_ab(teff_component *w, void *task, void *const *data)
{
    both(w, &ab, data);
}

static void run_ba(teff_component *w, void *task, void *const *data)
{
    both(w, &ba, data);
}

static void run_bc(teff_component *w, void *task, void *const *data)
{
    both(w, &bc, data);
}

static const teff_task_type *const moves[] = {&ab, &ba, &bc};
static const teff_data_use own_all[] = {
    {&acc_a, TEFF_DATA_OWNER}, {&acc_b, TEFF_DATA_OWNER}, {&acc_c, TEFF_DATA_OWNER}};
static const teff_data_use use_all[] = {
    {&acc_a, TEFF_DATA_SHARE}, {&acc_b, TEFF_DATA_SHARE}, {&acc_c, TEFF_DATA_SHARE}};
/* A task runs once it holds all data that it names. Data in opposite orders, readers and writers,
 * with and without fibers, more components than threads: all run, none beside one that it
 * excludes. */
static void test_tasks_hold_all_they_name_and_nobody_deadlocks(void **state)
{
    enum { COMPONENTS = 6, TASKS = 60 };
    memset(&ready, 0, sizeof ready);
    atomic_store(&wrong, 0);
    const teff_component_type owner = {"owner", 0, own_all, 3, readies, 1, NULL};
    const teff_component_type plain = {"plain", 0, use_all, 3, moves, 3, NULL};
    const teff_component_type fiber = {"fiber", TEFF_COMPONENT_FIBER, use_all, 3, moves, 3, NULL};
    teff_engine *engine = engine_of(3, 2);
    (void)add(engine, 0, &owner, NULL);
    for (uint32_t i = 0; i < COMPONENTS; i++)
        (void)add(engine, i % 3, i % 2 ? &plain : &fiber, NULL);
    for (uint32_t i = 0; i < TASKS; i++)
        assert_int_equal(teff_engine_broadcast(engine, moves[i % 3], NULL), TEFF_OK);
    latch_wait(&ready, COMPONENTS * TASKS);
    assert_int_equal(atomic_load(&wrong), 0);
    teff_engine_free(engine);
}

/* ---- tasks inside tasks ---- */

static teff_err inner_err[8];
static uint64_t inner_sum;

static void run_inner(teff_component *w, void *task, void *const *data)
{
    *(uint64_t *)task += ((account *)data[0])->sum + 100 * ((account *)data[1])->sum;
}

static const teff_task_type inner = {.name = "inner",
                                     .size = sizeof(uint64_t),
                                     .run = run_inner,
                                     .n_needs = 2,
                                     .needs = {{&acc_a, TEFF_READ}, {&acc_b, TEFF_WRITE}}};

/* Holds a; the inner one needs a and b: only b is named, and has to be. */
static void run_outer(teff_component *w, void *task, void *const *data)
{
    static const teff_need only_b[] = {{&acc_b, TEFF_WRITE}};
    static const teff_need read_b[] = {{&acc_b, TEFF_READ}};
    uint64_t out = 0;
    ((account *)data[0])->sum = 7;
    inner_err[0] = teff_component_run_task(w, &inner, &out, only_b, 1);
    inner_sum = out;
    inner_err[1] = teff_component_run_task(w, &inner, &out, NULL, 0);
    inner_err[2] = teff_component_run_task(w, &inner, &out, read_b, 1);
    inner_err[3] = teff_component_run_task(w, &inner, &out, NULL, SIZE_MAX);
    inner_err[4] = teff_component_run_task(w, &see_task, NULL, NULL, SIZE_MAX);
    latch_hit(&ready);
}

static const teff_task_type outer = {
    .name = "outer", .run = run_outer, .n_needs = 1, .needs = {{&acc_a, TEFF_WRITE}}};
static const teff_task_type *const outers[] = {&outer};

static void test_a_task_in_a_task_locks_only_what_it_names(void **state)
{
    memset(&ready, 0, sizeof ready);
    const teff_component_type owner = {"owner", 0, own_all, 3, outers, 1, NULL};
    teff_engine *engine = engine_of(1, 1);
    (void)add(engine, 0, &owner, NULL);
    assert_int_equal(teff_engine_broadcast(engine, &outer, NULL), TEFF_OK);
    latch_wait(&ready, 1);
    assert_int_equal(inner_err[0], TEFF_OK);
    assert_int_equal(inner_sum, 7);
    assert_int_equal(inner_err[1], TEFF_E_INVALID); /* b is neither held nor named */
    assert_int_equal(inner_err[2], TEFF_E_INVALID); /* named, but to read */
    assert_int_equal(inner_err[3], TEFF_OK);
    assert_int_equal(inner_err[4], TEFF_E_INVALID); /* the component does not use it */
    teff_engine_free(engine);
}

/* Two that hold one and want the other's inside: the circle is found, one goes on. */
static latch holding;
static _Atomic unsigned deadlocks, went_on;

static int both_hold(void *arg)
{
    return atomic_load(&((latch *)arg)->count) % 2 == 0;
}

static void cross(teff_component *w, const teff_need *want)
{
    static const teff_task_type take_a = {
        .name = "take a", .run = run_see, .n_needs = 1, .needs = {{&acc_a, TEFF_WRITE}}};
    static const teff_task_type take_b = {
        .name = "take b", .run = run_see, .n_needs = 1, .needs = {{&acc_b, TEFF_WRITE}}};
    latch_hit(&holding);
    if (teff_component_wait(w, both_hold, &holding))
        return;
    teff_err err =
        teff_component_run_task(w, want->type == &acc_a ? &take_a : &take_b, NULL, want, 1);
    atomic_fetch_add(err == TEFF_E_DEADLOCK ? &deadlocks : &went_on, 1);
}

static void run_cross_ab(teff_component *w, void *task, void *const *data)
{
    cross(w, &(teff_need){&acc_b, TEFF_WRITE});
    latch_hit(&ready);
}

static void run_cross_ba(teff_component *w, void *task, void *const *data)
{
    cross(w, &(teff_need){&acc_a, TEFF_WRITE});
    latch_hit(&ready);
}

static const teff_task_type cross_ab = {
    .name = "cross ab", .run = run_cross_ab, .n_needs = 1, .needs = {{&acc_a, TEFF_WRITE}}};
static const teff_task_type cross_ba = {
    .name = "cross ba", .run = run_cross_ba, .n_needs = 1, .needs = {{&acc_b, TEFF_WRITE}}};
static const teff_task_type *const cross_abs[] = {&cross_ab};
static const teff_task_type *const cross_bas[] = {&cross_ba};

static void test_a_circle_of_tasks_in_tasks_is_found(void **state)
{
    memset(&ready, 0, sizeof ready);
    memset(&holding, 0, sizeof holding);
    const teff_component_type owner = {"owner", 0, own_all, 3, readies, 1, NULL};
    const teff_component_type one = {"one", TEFF_COMPONENT_FIBER, use_all, 3, cross_abs, 1, NULL};
    const teff_component_type two = {"two", 0, use_all, 3, cross_bas, 1, NULL};
    teff_engine *engine = engine_of(2, 1);
    (void)add(engine, 0, &owner, NULL);
    (void)add(engine, 0, &one, NULL);
    (void)add(engine, 1, &two, NULL);
    for (unsigned i = 1; i <= 100; i++) {
        assert_int_equal(teff_engine_broadcast(engine, &cross_ab, NULL), TEFF_OK);
        assert_int_equal(teff_engine_broadcast(engine, &cross_ba, NULL), TEFF_OK);
        latch_wait(&holding, 2 * i);
        teff_engine_notify(engine);
        /* run_see hits ready too: two tasks, and the one that went on */
        latch_wait(&ready, 3 * i);
    }
    assert_int_equal(atomic_load(&deadlocks), 100);
    assert_int_equal(atomic_load(&went_on), 100);
    teff_engine_free(engine);
}

/* Owned data is not destroyed while a task works on it. */
static latch using, using_gate;
static _Atomic bool destroyed, destroyed_early;

static void fini_used(teff_component *w, void *data)
{
    atomic_store(&destroyed, true);
}

static const teff_data_type used = {.name = "used", .size = 1, .fini = fini_used};

static void run_use(teff_component *w, void *task, void *const *data)
{
    latch_hit(&using);
    latch_wait(&using_gate, 1);
    atomic_store(&destroyed_early, atomic_load(&destroyed));
}

static const teff_task_type use_task = {
    .name = "use", .run = run_use, .n_needs = 1, .needs = {{&used, TEFF_READ}}};
static const teff_task_type *const uses[] = {&use_task};
static const teff_data_use own_used[] = {{&used, TEFF_DATA_OWNER}};
static const teff_data_use use_used[] = {{&used, TEFF_DATA_SHARE}};

static void test_owned_data_is_not_destroyed_under_a_task(void **state)
{
    const teff_component_type owner = {"owner", 0, own_used, 1, readies, 1, NULL};
    const teff_component_type user = {"user", 0, use_used, 1, uses, 1, NULL};
    teff_engine *engine = engine_of(2, 1);
    teff_component_id id = add(engine, 0, &owner, NULL);
    (void)add(engine, 1, &user, NULL);
    assert_int_equal(teff_engine_broadcast(engine, &use_task, NULL), TEFF_OK);
    latch_wait(&using, 1);
    assert_int_equal(teff_engine_remove(engine, id), TEFF_OK);
    /* The owner has got its cancel when it answers no more; it still waits for the data. */
    teff_err err;
    do {
        err = teff_engine_remove(engine, id);
        teffi_thread_yield();
    } while (err == TEFF_OK && atomic_fetch_add(&most_readers, 1) < 1000);
    assert_int_equal(err, TEFF_OK);
    assert_false(atomic_load(&destroyed));
    latch_hit(&using_gate);
    latch_wait(&ends, 2); /* the owner, and the user whose owner is gone */
    assert_true(atomic_load(&destroyed));
    assert_false(atomic_load(&destroyed_early));
    teff_engine_free(engine);
}

/* ---- components that end while they wait for data ---- */

static latch held, wrote, set_up, drained, held_gate;
static _Atomic bool waits_after_drain;

static void run_hold(teff_component *w, void *task, void *const *data)
{
    latch_hit(&held);
    latch_wait(&held_gate, 1);
}

static void run_write(teff_component *w, void *task, void *const *data)
{
    latch_hit(&wrote);
}

static void note_set_up(teff_component *w, void *data)
{
    latch_hit(&set_up);
}

static bool claims_wait(teff_engine *engine)
{
    pthread_mutex_lock(&engine->lock);
    bool wait = !TAILQ_EMPTY(&engine->waiters);
    pthread_mutex_unlock(&engine->lock);
    return wait;
}

static bool components_sleep(teff_engine *engine)
{
    pthread_mutex_lock(&engine->lock);
    bool sleep = !LIST_EMPTY(&engine->sleepers);
    pthread_mutex_unlock(&engine->lock);
    return sleep;
}

static void drain_to_the_end(teff_component *w)
{
    while (teff_component_drain(w, 1) == TEFF_OK)
        ;
    atomic_store(&waits_after_drain, claims_wait(teff_component_engine(w)));
    latch_hit(&drained);
}

static const teff_data_type shared = {.name = "shared", .size = 1, .setup = note_set_up};
static const teff_data_type spare = {.name = "spare", .size = 1};
static const teff_task_type hold_task = {
    .name = "hold", .run = run_hold, .n_needs = 1, .needs = {{&shared, TEFF_WRITE}}};
static const teff_task_type write_task = {
    .name = "write", .run = run_write, .n_needs = 1, .needs = {{&shared, TEFF_WRITE}}};
static const teff_task_type *const holds[] = {&hold_task}, *const writes[] = {&write_task};
static const teff_data_use own_shared[] = {{&shared, TEFF_DATA_OWNER}, {&spare, TEFF_DATA_OWNER}};
static const teff_data_use use_shared[] = {{&shared, TEFF_DATA_SHARE}};
static const teff_component_type shared_owner = {"owner", 0, own_shared, 2, readies, 1, NULL};
static const teff_component_type holder = {"holder", 0, use_shared, 1, holds, 1, NULL};
static const teff_component_type writer = {"writer", 0, use_shared, 1, writes, 1, NULL};
static const teff_component_type fiber_writer = {
    "fiber", TEFF_COMPONENT_FIBER, use_shared, 1, writes, 1, drain_to_the_end};

static void until_a_claim_waits(teff_engine *engine)
{
    while (!claims_wait(engine))
        teffi_thread_yield();
}

/* An engine in which all are set up, and a task holds the data until the gate opens. */
static teff_engine *engine_with_held_data(const teff_component_type *type, teff_component_id *owner,
                                          teff_component_id *user)
{
    latch *const all[] = {&held, &wrote, &set_up, &drained, &held_gate};
    for (unsigned i = 0; i < sizeof all / sizeof *all; i++)
        memset(all[i], 0, sizeof *all[i]);
    teff_engine *engine = engine_of(3, 1);
    *user = add(engine, 2, type, NULL);
    while (!components_sleep(engine)) /* its data is not published yet */
        teffi_thread_yield();
    *owner = add(engine, 0, &shared_owner, (void *)(uintptr_t) "owner");
    (void)add(engine, 1, &holder, NULL);
    latch_wait(&set_up, 3); /* nobody keeps what it was set up with */
    assert_int_equal(teff_engine_broadcast(engine, &hold_task, NULL), TEFF_OK);
    latch_wait(&held, 1);
    assert_false(components_sleep(engine));
    return engine;
}

static void the_next_writes(teff_engine *engine)
{
    (void)add(engine, 2, &writer, NULL);
    until_a_claim_waits(engine); /* to be set up */
    latch_hit(&held_gate);
    latch_wait(&set_up, 4);
    assert_int_equal(teff_engine_broadcast(engine, &write_task, NULL), TEFF_OK);
    latch_wait(&wrote, 1);
}

static void test_a_component_that_ends_with_a_waiting_task_leaves_the_data_to_others(void **state)
{
    const teff_component_type *const types[] = {&writer, &fiber_writer};
    for (unsigned i = 0; i < 2; i++) {
        teff_component_id owner, id;
        teff_engine *engine = engine_with_held_data(types[i], &owner, &id);
        assert_int_equal(teff_engine_broadcast(engine, &write_task, NULL), TEFF_OK);
        until_a_claim_waits(engine);
        assert_int_equal(teff_engine_remove(engine, id), TEFF_OK);
        latch_wait(&ends, 1);
        assert_false(claims_wait(engine));
        if (i)
            latch_wait(&drained, 1);
        assert_false(atomic_load(&waits_after_drain));
        the_next_writes(engine);
        teff_engine_free(engine);
    }
}

static void test_a_component_that_ends_in_its_set_up_leaves_the_data_to_others(void **state)
{
    teff_component_id owner, id;
    teff_engine *engine = engine_with_held_data(&writer, &owner, &id);
    assert_int_equal(teff_engine_remove(engine, id), TEFF_OK);
    latch_wait(&ends, 1);
    id = add(engine, 2, &writer, NULL);
    until_a_claim_waits(engine);
    assert_int_equal(teff_engine_remove(engine, id), TEFF_OK);
    latch_wait(&ends, 2);
    assert_false(claims_wait(engine));
    the_next_writes(engine);
    teff_engine_free(engine);
}

static void test_a_component_that_ends_before_its_data_is_there_sleeps_no_more(void **state)
{
    teff_engine *engine = engine_of(1, 1);
    teff_component_id id = add(engine, 0, &writer, NULL);
    while (!components_sleep(engine))
        teffi_thread_yield();
    assert_int_equal(teff_engine_remove(engine, id), TEFF_OK);
    latch_wait(&ends, 1);
    assert_false(components_sleep(engine));
    teff_engine_free(engine);
}

/* The owner waits for its data, which a task holds. */
static void test_an_owner_that_is_forced_to_end_waits_no_more(void **state)
{
    teff_component_id owner, id;
    teff_engine *engine = engine_with_held_data(&writer, &owner, &id);
    assert_int_equal(teff_engine_remove(engine, owner), TEFF_OK);
    until_a_claim_waits(engine);
    assert_int_equal(teff_engine_stop(engine, 100, NULL), TEFF_E_TIMEOUT);
    assert_false(claims_wait(engine));
    latch_hit(&held_gate);
    teff_engine_free(engine);
}

static const teff_task_type stuck_task = {.name = "stuck", .run = run_hold};

/* A task of its own does not return in time. Its data is listed in the other order. */
static void test_a_component_that_is_forced_to_end_takes_down_in_the_stated_order(void **state)
{
    static const teff_task_type *const stucks[] = {&stuck_task};
    static const teff_data_use loc_own[] = {{&loc, TEFF_DATA_LOCAL}, {&own, TEFF_DATA_OWNER}};
    static const teff_component_type type = {"stuck", 0, loc_own, 2, stucks, 1, NULL};
    memset(&held, 0, sizeof held);
    memset(&held_gate, 0, sizeof held_gate);
    trace[0] = 0;
    teff_engine *engine = engine_of(1, 1);
    (void)add(engine, 0, &type, (void *)(uintptr_t) "it");
    assert_int_equal(teff_engine_broadcast(engine, &stuck_task, NULL), TEFF_OK);
    latch_wait(&held, 1);
    assert_int_equal(teff_engine_stop(engine, 100, NULL), TEFF_E_TIMEOUT);
    latch_hit(&held_gate);
    teff_engine_free(engine);
    assert_string_equal(trace, "it.init own;it.setup_owner own;it.init loc;it.setup loc;"
                               "it.setup own;it.fini loc;it.fini own;");
}

/* One owner of a type in a scheduler: the second ends at once; in another scheduler it may be. */
static void test_a_second_owner_in_a_scheduler_ends(void **state)
{
    const teff_component_type owner = {"owner", 0, own_all, 3, readies, 1, NULL};
    memset(&ready, 0, sizeof ready);
    trace[0] = 0;
    teff_engine *engine = engine_of(2, 1);
    (void)add(engine, 0, &owner, (void *)(uintptr_t) "a");
    assert_int_equal(teff_engine_broadcast(engine, &ready_task, NULL), TEFF_OK);
    latch_wait(&ready, 1);
    (void)add(engine, 1, &owner, (void *)(uintptr_t) "b");
    (void)add(engine, 0, &owner, (void *)(uintptr_t) "c");
    latch_wait(&ends, 1);
    teff_engine_stats stats;
    teff_engine_stats_get(engine, &stats);
    assert_int_equal(stats.components, 2);
    teff_engine_free(engine);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_set_up_and_take_down_in_the_stated_order),
        cmocka_unit_test(test_others_get_the_data_after_setup_owner),
        cmocka_unit_test(test_a_component_whose_owner_has_ended_ends),
        cmocka_unit_test(test_data_stays_when_its_users_go),
        cmocka_unit_test(test_group_data_is_the_schedulers_own),
        cmocka_unit_test(test_tasks_hold_all_they_name_and_nobody_deadlocks),
        cmocka_unit_test(test_a_task_in_a_task_locks_only_what_it_names),
        cmocka_unit_test(test_a_circle_of_tasks_in_tasks_is_found),
        cmocka_unit_test(test_owned_data_is_not_destroyed_under_a_task),
        cmocka_unit_test(test_a_component_that_ends_with_a_waiting_task_leaves_the_data_to_others),
        cmocka_unit_test(test_a_component_that_ends_in_its_set_up_leaves_the_data_to_others),
        cmocka_unit_test(test_a_component_that_ends_before_its_data_is_there_sleeps_no_more),
        cmocka_unit_test(test_an_owner_that_is_forced_to_end_waits_no_more),
        cmocka_unit_test(test_a_component_that_is_forced_to_end_takes_down_in_the_stated_order),
        cmocka_unit_test(test_a_second_owner_in_a_scheduler_ends),
    };
    return cmocka_run_group_tests_name("engine/data", tests, NULL, NULL);
}
