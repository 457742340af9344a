/* test_engine.c - schedulers, components that come and go, and broadcast tasks. */
#include <teff/engine.h>
#include "engine/engine.h"
#include "sched/scheduler.h"
#include "../process/processes.h"

enum { N = 200 };

typedef struct note {
    uint32_t number;
} note;

typedef struct user { /* of one component */
    latch ran, over, entered;
    latch *gate;
    unsigned numbers[N];
    unsigned n;
    _Atomic bool flag;
    teff_component *w;
} user;

static latch ends;
static _Atomic unsigned over_ran, over_not, over_not_at_end;

static void on_end(void *arg, teff_component_id id)
{
    if (!atomic_load(&ends.count))
        atomic_store(&over_not_at_end, atomic_load(&over_not));
    latch_hit(&ends);
}

static teff_engine *engine_of(teff_engine_options opt)
{
    teff_engine *engine;
    memset(&ends, 0, sizeof ends);
    atomic_store(&over_ran, 0);
    atomic_store(&over_not, 0);
    opt.size = sizeof opt;
    opt.ended = on_end;
    assert_int_equal(teff_engine_new(&opt, &engine), TEFF_OK);
    return engine;
}

static void run_note(teff_component *w, void *task, void *const *data)
{
    user *u = teff_component_user(w);
    if (u->gate) {
        latch_hit(&u->entered);
        latch_wait(u->gate, 1);
    }
    if (u->n < N)
        u->numbers[u->n++] = ((note *)task)->number;
    latch_hit(&u->ran);
}

static void note_over(void *task, int ran)
{
    atomic_fetch_add(ran ? &over_ran : &over_not, 1);
}

static const teff_task_type note_task = {
    .name = "note", .size = sizeof(note), .run = run_note, .over = note_over};
static const teff_task_type other_task = {.name = "other", .size = sizeof(note), .run = run_note};
static const teff_task_type *const notes[] = {&note_task};
static const teff_task_type *const others[] = {&other_task};
static const teff_component_type noter = {.name = "noter", .tasks = notes, .n_tasks = 1};
static const teff_component_type fiber_noter = {
    .name = "fiber noter", .flags = TEFF_COMPONENT_FIBER, .tasks = notes, .n_tasks = 1};
static const teff_component_type otherer = {.name = "other", .tasks = others, .n_tasks = 1};

static teff_component_id add(teff_engine *engine, uint32_t scheduler,
                             const teff_component_type *type, void *u)
{
    teff_component_id id = {0};
    assert_int_equal(teff_engine_add(engine, scheduler, type, u, &id), TEFF_OK);
    return id;
}

static void broadcast(teff_engine *engine, const teff_task_type *type, uint32_t number)
{
    assert_int_equal(teff_engine_broadcast(engine, type, &(note){number}), TEFF_OK);
}

static void until_dropped(teff_engine *engine, uint64_t n)
{
    teff_engine_stats stats;
    do {
        teffi_thread_yield();
        teff_engine_stats_get(engine, &stats);
    } while (stats.dropped < n);
    assert_int_equal(stats.dropped, n);
}

/* A scheduler without components does not end; a task that it gets is dropped at once. */
static void test_a_scheduler_without_components_runs_and_drops(void **state)
{
    teff_engine *engine = engine_of((teff_engine_options){.schedulers = 3});
    broadcast(engine, &note_task, 1);
    until_dropped(engine, 3);
    teff_engine_free(engine);
    teff_engine_free(NULL);
}

/* A task is broadcast to all schedulers. A component gets only the types of tasks in its list, and
 * runs its queue in order. */
static void test_each_listener_of_each_scheduler_gets_its_copies_in_order(void **state)
{
    static user u[6];
    memset(u, 0, sizeof u);
    teff_engine *engine = engine_of((teff_engine_options){.schedulers = 3});
    (void)add(engine, 0, &noter, &u[0]);
    (void)add(engine, 0, &fiber_noter, &u[1]);
    (void)add(engine, 0, &otherer, &u[2]);
    (void)add(engine, 1, &noter, &u[3]);
    (void)add(engine, 1, &noter, &u[4]);
    (void)add(engine, 2, &otherer, &u[5]);
    for (uint32_t i = 0; i < N; i++)
        broadcast(engine, &note_task, i);
    static const unsigned listeners[] = {0, 1, 3, 4};
    for (unsigned k = 0; k < 4; k++) {
        latch_wait(&u[listeners[k]].ran, N);
        for (uint32_t i = 0; i < N; i++)
            assert_int_equal(u[listeners[k]].numbers[i], i);
    }
    until_dropped(engine, N); /* scheduler 2 has no listener */
    broadcast(engine, &other_task, 7);
    latch_wait(&u[2].ran, 1);
    latch_wait(&u[5].ran, 1);
    assert_int_equal(u[2].numbers[0], 7);
    teff_engine_stats stats;
    teff_engine_stats_get(engine, &stats);
    assert_int_equal(stats.broadcasts, N + 1);
    assert_int_equal(stats.given, 4 * N + 2);
    assert_int_equal(stats.components, 6);
    teff_engine_free(engine);
    assert_int_equal(atomic_load(&over_ran), 4 * N);
}

/* A task that is sent to one scheduler keeps its place among broadcast tasks. */
static void test_a_task_for_one_scheduler(void **state)
{
    static user u[3];
    memset(u, 0, sizeof u);
    teff_engine *engine = engine_of((teff_engine_options){.schedulers = 3});
    for (uint32_t i = 0; i < 3; i++)
        (void)add(engine, i, &noter, &u[i]);
    for (uint32_t i = 0; i < N; i++)
        if (i % 2)
            broadcast(engine, &note_task, i);
        else
            assert_int_equal(teff_engine_send(engine, 1, &note_task, &(note){i}), TEFF_OK);
    assert_int_equal(teff_engine_send(engine, 3, &note_task, &(note){0}), TEFF_E_INVALID);
    latch_wait(&u[1].ran, N);
    latch_wait(&u[0].ran, N / 2);
    latch_wait(&u[2].ran, N / 2);
    for (uint32_t i = 0; i < N; i++)
        assert_int_equal(u[1].numbers[i], i);
    teff_engine_free(engine);
    assert_int_equal(atomic_load(&over_ran), 2 * N);
}

/* A task may end its own engine, which then refuses tasks and components. */
static void run_end(teff_component *w, void *task, void *const *data)
{
    teff_engine *engine = teff_component_engine(w);
    user *u = teff_component_user(w);
    u->numbers[0] = teff_engine_is_ending(engine);
    teff_engine_end(engine);
    u->numbers[1] = teff_engine_is_ending(engine);
    u->numbers[2] = (unsigned)teff_engine_broadcast(engine, &note_task, &(note){0});
    u->numbers[3] = (unsigned)teff_engine_send(engine, 0, &note_task, &(note){0});
    u->numbers[4] = (unsigned)teff_engine_add(engine, 0, &noter, u, NULL);
    latch_hit(&u->ran);
}

static const teff_task_type end_task = {.name = "end", .size = sizeof(note), .run = run_end};

static void test_a_component_ends_the_engine(void **state)
{
    static const teff_task_type *const ends_list[] = {&end_task};
    static const teff_component_type ender = {.name = "ender", .tasks = ends_list, .n_tasks = 1};
    static user u[3];
    memset(u, 0, sizeof u);
    teff_engine *engine = engine_of((teff_engine_options){.schedulers = 2});
    (void)add(engine, 0, &ender, &u[0]);
    (void)add(engine, 0, &fiber_noter, &u[1]);
    (void)add(engine, 1, &noter, &u[2]);
    broadcast(engine, &end_task, 0);
    latch_wait(&ends, 3); /* without teff_engine_stop */
    assert_int_equal(u[0].numbers[0], false);
    assert_int_equal(u[0].numbers[1], true);
    for (unsigned i = 2; i <= 4; i++)
        assert_int_equal(u[0].numbers[i], TEFF_E_CLOSED);
    teff_engine_end(engine); /* again */
    teff_engine_free(engine);
}

/* A component may end itself: the present task returns, those in its queue are not run, and others
 * of its scheduler go on. */
static void run_own_end(teff_component *w, void *task, void *const *data)
{
    teff_component_end(w);
    run_note(w, task, data);
}

static const teff_task_type own_end_task = {
    .name = "own end", .size = sizeof(note), .run = run_own_end, .over = note_over};

static void test_a_component_ends_itself(void **state)
{
    static const teff_task_type *const both[] = {&own_end_task, &note_task};
    static const teff_component_type ender = {.name = "ender", .tasks = both, .n_tasks = 2};
    static user u[2];
    latch gate = {0};
    teff_engine_stats stats;
    memset(u, 0, sizeof u);
    u[0].gate = &gate;
    teff_engine *engine = engine_of((teff_engine_options){.schedulers = 1});
    (void)add(engine, 0, &ender, &u[0]);
    (void)add(engine, 0, &noter, &u[1]);
    broadcast(engine, &own_end_task, 1);
    latch_wait(&u[0].entered, 1);
    broadcast(engine, &note_task, 2);
    latch_wait(&u[1].ran, 1);
    latch_hit(&gate);
    latch_wait(&ends, 1);
    assert_int_equal(u[0].n, 1);
    assert_int_equal(u[0].numbers[0], 1);
    assert_int_equal(atomic_load(&over_not_at_end), 1);
    broadcast(engine, &note_task, 3);
    latch_wait(&u[1].ran, 2);
    teff_engine_stats_get(engine, &stats);
    assert_int_equal(stats.components, 1);
    teff_engine_free(engine);
}

/* A component is added at once and removed asynchronously: it ends by itself. The tasks left in its
 * queue are discarded; other components go on. */
static void test_remove_is_asynchronous_and_clears_the_queue(void **state)
{
    enum { QUEUED = 100 }; /* more than a turn takes off its group */
    static const teff_component_type *const ways[] = {&noter, &fiber_noter};
    for (unsigned i = 0; i < 2; i++) {
        static user u[2];
        latch gate = {0};
        memset(u, 0, sizeof u);
        u[0].gate = &gate;
        teff_engine *engine = engine_of((teff_engine_options){.schedulers = 2, .threads = 2});
        teff_component_id id = add(engine, 0, ways[i], &u[0]);
        (void)add(engine, 1, ways[i], &u[1]);
        for (uint32_t k = 0; k < QUEUED; k++)
            broadcast(engine, &note_task, k);
        latch_wait(&u[1].ran, QUEUED);
        latch_wait(&u[0].entered, 1);
        teff_engine_stats stats;
        do {
            teffi_thread_yield();
            teff_engine_stats_get(engine, &stats);
        } while (stats.given < 2 * QUEUED); /* the rest of them waits behind the first */
        assert_int_equal(teff_engine_remove(engine, id), TEFF_OK);
        assert_int_equal(atomic_load(&ends.count), 0); /* it is still in its first task */
        latch_hit(&gate);
        latch_wait(&ends, 1);
        assert_int_equal(atomic_load(&over_not_at_end), QUEUED - u[0].n);
        assert_int_equal(teff_engine_remove(engine, id), TEFF_E_CLOSED);
        broadcast(engine, &note_task, 99);
        latch_wait(&u[1].ran, QUEUED + 1);
        teff_engine_free(engine);
        /* run or thrown away: every copy that it got is over, once */
        assert_in_range(u[0].n, 1, 2); /* the cancel is taken off after the first turn, or before */
        assert_int_equal(atomic_load(&over_not), QUEUED - u[0].n);
        assert_int_equal(atomic_load(&over_ran), u[0].n + QUEUED + 1);
    }
}

/* ---- four ways ---- */

static int is_set(void *arg)
{
    return atomic_load((_Atomic bool *)arg);
}

/* The first task waits for a flag that the second component's task sets, on the same thread. */
static void run_wait_or_set(teff_component *w, void *task, void *const *data)
{
    user *u = teff_component_user(w);
    if (((note *)task)->number == 1 && u->gate)
        atomic_store(&((user *)(void *)u->gate)->flag, true);
    else if (!u->gate)
        assert_int_equal(teff_component_wait(w, is_set, &u->flag), TEFF_OK);
    latch_hit(&u->ran);
}

static const teff_task_type wait_task = {
    .name = "wait", .size = sizeof(note), .run = run_wait_or_set};
static const teff_task_type *const waits[] = {&wait_task};

/* A component that waits lets the others of its thread run: with a fiber it suspends, without one
 * they run nested on its stack. */
static void test_a_waiting_component_lets_others_of_its_only_thread_run(void **state)
{
    static const teff_component_type ways[] = {
        {.name = "nested", .tasks = waits, .n_tasks = 1},
        {.name = "fiber", .flags = TEFF_COMPONENT_FIBER, .tasks = waits, .n_tasks = 1}};
    for (unsigned i = 0; i < 4; i++) {
        static user u[2];
        memset(u, 0, sizeof u);
        u[1].gate = (latch *)(void *)&u[0]; /* whom to release */
        teff_engine *engine = engine_of((teff_engine_options){.threads = 1});
        (void)add(engine, 0, &ways[i % 2], &u[0]);
        (void)add(engine, 0, &ways[i / 2], &u[1]);
        broadcast(engine, &wait_task, 0);
        latch_wait(&u[1].ran, 1);
        assert_int_equal(atomic_load(&u[0].ran.count), 0);
        broadcast(engine, &wait_task, 1);
        latch_wait(&u[0].ran, 2);
        teff_engine_free(engine);
    }
}

/* A run function of its own: tasks come when it asks for them. */
static void run_loop(teff_component *w)
{
    user *u = teff_component_user(w);
    latch_hit(&u->entered);
    while (u->n < 5)
        if (teff_component_drain(w, 1))
            return;
    while (!teff_component_yield(w)) { /* until it is told to end */
        if (teff_component_drain(w, 0))
            break;
        latch_hit(&u->over);
    }
}

static void test_run_functions_with_and_without_a_fiber(void **state)
{
    static const teff_component_type ways[] = {
        {.name = "run", .tasks = notes, .n_tasks = 1, .run = run_loop},
        {.name = "fiber run",
         .flags = TEFF_COMPONENT_FIBER,
         .tasks = notes,
         .n_tasks = 1,
         .run = run_loop}};
    for (unsigned i = 0; i < 2; i++) {
        static user u;
        memset(&u, 0, sizeof u);
        teff_engine *engine = engine_of((teff_engine_options){.threads = 1});
        teff_component_id id = add(engine, 0, &ways[i], &u);
        for (uint32_t k = 0; k < 5; k++)
            broadcast(engine, &note_task, k);
        latch_wait(&u.ran, 5);
        latch_wait(&u.over, 10); /* it has the thread, and gives it away at each yield */
        broadcast(engine, &note_task, 5);
        latch_wait(&u.ran, 6);
        assert_int_equal(teff_engine_remove(engine, id), TEFF_OK);
        latch_wait(&ends, 1);
        teff_engine_free(engine);
    }
}

/* A run function without a fiber blocks its scheduler, so it must be the only component there. */
static void test_a_run_function_without_a_fiber_is_alone(void **state)
{
    static const teff_component_type alone = {
        .name = "run", .tasks = notes, .n_tasks = 1, .run = run_loop};
    static const teff_component_type nothing = {.name = "nothing"};
    static user u[2];
    memset(u, 0, sizeof u);
    teff_component_id id;
    teff_engine *engine = engine_of((teff_engine_options){.schedulers = 2});
    (void)add(engine, 0, &alone, &u[0]);
    assert_int_equal(teff_engine_add(engine, 0, &noter, &u[1], &id), TEFF_E_INVALID);
    (void)add(engine, 1, &noter, &u[1]);
    assert_int_equal(teff_engine_add(engine, 1, &alone, &u[0], &id), TEFF_E_INVALID);
    assert_int_equal(teff_engine_add(engine, 2, &noter, &u[0], &id), TEFF_E_INVALID);
    assert_int_equal(teff_engine_add(engine, 1, &nothing, &u[0], &id), TEFF_E_INVALID);
    teff_engine_free(engine);
}

/* ---- waiting for tasks of others ---- */

/* A task sends another task to other components and waits until that one is over. */
typedef struct job {
    _Atomic bool *busy;
} job;

static void run_job(teff_component *w, void *task, void *const *data)
{
    latch_hit(&((user *)teff_component_user(w))->ran);
}

static void job_over(void *task, int ran)
{
    atomic_store(((job *)task)->busy, false);
}

static int is_free(void *arg)
{
    return !atomic_load((_Atomic bool *)arg);
}

static const teff_task_type job_task = {
    .name = "job", .size = sizeof(job), .run = run_job, .over = job_over};

static void run_boss(teff_component *w, void *task, void *const *data)
{
    user *u = teff_component_user(w);
    for (unsigned i = 0; i < ((note *)task)->number; i++) {
        _Atomic bool busy = true;
        assert_int_equal(teff_engine_broadcast(teff_component_engine(w), &job_task, &(job){&busy}),
                         TEFF_OK);
        assert_int_equal(teff_component_wait(w, is_free, &busy), TEFF_OK);
    }
    latch_hit(&u->ran);
}

static const teff_task_type boss_task = {.name = "boss", .size = sizeof(note), .run = run_boss};
static const teff_task_type *const bosses[] = {&boss_task};
static const teff_task_type *const jobs[] = {&job_task};

static void test_wait_for_a_task_of_another_scheduler(void **state)
{
    static const teff_component_type boss[] = {
        {.name = "boss", .tasks = bosses, .n_tasks = 1},
        {.name = "boss", .flags = TEFF_COMPONENT_FIBER, .tasks = bosses, .n_tasks = 1}};
    static const teff_component_type hand = {.name = "hand", .tasks = jobs, .n_tasks = 1};
    for (unsigned i = 0; i < 4; i++) {
        static user u[2];
        memset(u, 0, sizeof u);
        teff_engine *engine = engine_of((teff_engine_options){.schedulers = 2});
        (void)add(engine, 0, &boss[i % 2], &u[0]);
        (void)add(engine, i / 2, &hand, &u[1]);
        broadcast(engine, &boss_task, 50);
        latch_wait(&u[0].ran, 1);
        assert_int_equal(atomic_load(&u[1].ran.count), 50);
        teff_engine_free(engine);
    }
}

/* teff_task_until holds its component's queue until a condition is true. The condition changes
 * outside of any task: the component looks again after teff_engine_notify, or every poll_ms. */
static void test_a_task_that_waits_for_a_condition(void **state)
{
    static const teff_task_type *const both[] = {&teff_task_until, &note_task};
    static const teff_component_type types[] = {
        {.name = "until", .tasks = both, .n_tasks = 2},
        {.name = "until", .flags = TEFF_COMPONENT_FIBER, .tasks = both, .n_tasks = 2}};
    for (unsigned i = 0; i < 4; i++) {
        static user u;
        memset(&u, 0, sizeof u);
        teff_engine *engine = engine_of((teff_engine_options){.poll_ms = i / 2});
        (void)add(engine, 0, &types[i % 2], &u);
        teff_until until = {is_set, &u.flag};
        assert_int_equal(teff_engine_broadcast(engine, &teff_task_until, &until), TEFF_OK);
        broadcast(engine, &note_task, 1);
        teff_engine_notify(engine);
        assert_int_equal(atomic_load(&u.ran.count), 0);
        atomic_store(&u.flag, true);
        if (i / 2 == 0)
            teff_engine_notify(engine);
        latch_wait(&u.ran, 1);
        teff_engine_free(engine);
    }
}

/* A component that ends releases those that wait for a task in its queue. */
static void test_the_queue_of_an_ending_component_releases_waiters(void **state)
{
    static const teff_task_type *const both[] = {&note_task, &job_task};
    static const teff_component_type hand = {.name = "hand", .tasks = both, .n_tasks = 2};
    static const teff_component_type boss = {
        .name = "boss", .flags = TEFF_COMPONENT_FIBER, .tasks = bosses, .n_tasks = 1};
    static user u[2];
    latch gate = {0};
    memset(u, 0, sizeof u);
    u[1].gate = &gate;
    teff_engine *engine = engine_of((teff_engine_options){.schedulers = 2, .threads = 2});
    (void)add(engine, 0, &boss, &u[0]);
    teff_component_id id = add(engine, 1, &hand, &u[1]);
    broadcast(engine, &note_task, 0); /* holds the hand up */
    latch_wait(&u[1].entered, 1);
    broadcast(engine, &boss_task, 1); /* its job waits in the hand's queue */
    teff_engine_stats stats;
    do {
        teffi_thread_yield();
        teff_engine_stats_get(engine, &stats);
    } while (stats.given < 3); /* note, boss, the boss's first job */
    assert_int_equal(teff_engine_remove(engine, id), TEFF_OK);
    latch_hit(&gate);
    latch_wait(&ends, 1);
    assert_int_equal(atomic_load(&u[1].ran.count), 1); /* the note; no job ran */
    latch_wait(&u[0].ran, 1);                          /* and still the boss went on */
    teff_engine_free(engine);
}

/* A broadcast in a turn whose slice is over yields, but not while it holds the engine's lock:
 * another turn of that thread may broadcast, too. */
static void run_look(teff_component *w, void *task, void *const *data)
{
    user *u = teff_component_user(w);
    pthread_mutex_t *lock = &teff_component_engine(w)->broadcast_lock;
    u->n = pthread_mutex_trylock(lock) == 0;
    if (u->n)
        pthread_mutex_unlock(lock);
    latch_hit(&u->ran);
}

static const teff_task_type look_task = {.name = "look", .run = run_look};

static void run_yielder(teff_component *w, void *task, void *const *data)
{
    teff_engine *engine = teff_component_engine(w);
    user *u = teff_component_user(w);
    assert_int_equal(teff_engine_broadcast(engine, &look_task, NULL), TEFF_OK);
    atomic_store(&teffi_worker_self()->preempt, 1); /* as the monitor does after 10 ms */
    assert_int_equal(teff_engine_broadcast(engine, &other_task, &(note){0}), TEFF_OK);
    latch_hit(&u->ran);
}

static void test_a_broadcast_yields_without_its_lock(void **state)
{
    static const teff_task_type yield_task = {.name = "yield", .run = run_yielder};
    static const teff_task_type *const yields[] = {&yield_task}, *const looks[] = {&look_task};
    static const teff_component_type yielder = {
        .name = "yielder", .flags = TEFF_COMPONENT_FIBER, .tasks = yields, .n_tasks = 1};
    static const teff_component_type looker = {.name = "looker", .tasks = looks, .n_tasks = 1};
    static user u[2];
    memset(u, 0, sizeof u);
    teff_engine *engine = engine_of((teff_engine_options){.threads = 1});
    (void)add(engine, 0, &yielder, &u[0]);
    (void)add(engine, 0, &looker, &u[1]);
    assert_int_equal(teff_engine_broadcast(engine, &yield_task, NULL), TEFF_OK);
    latch_wait(&u[1].ran, 1);
    assert_int_equal(u[1].n, 1);
    latch_wait(&u[0].ran, 1);
    teff_engine_free(engine);
}

static void test_a_full_scheduler_refuses_for_all(void **state)
{
    static user u[2];
    latch gates[2] = {0};
    memset(u, 0, sizeof u);
    u[0].gate = &gates[0];
    u[1].gate = &gates[1];
    const teff_sched_options sched = {.size = sizeof sched, .threads_max = 2};
    teff_engine *engine =
        engine_of((teff_engine_options){.schedulers = 2, .queue_max = 10, .sched = &sched});
    (void)add(engine, 0, &noter, &u[0]);
    (void)add(engine, 0, &otherer, &u[1]);
    broadcast(engine, &other_task, 0);
    latch_wait(&u[1].entered, 1);
    broadcast(engine, &note_task, 0);
    latch_wait(&u[0].entered, 1); /* the only threads there may be are held: the queue fills */
    for (unsigned i = 0; i < 10; i++) {
        until_dropped(engine, 2 + i); /* the other scheduler keeps up */
        broadcast(engine, &note_task, 1);
    }
    assert_int_equal(teff_engine_broadcast(engine, &note_task, &(note){1}), TEFF_E_OVERLOADED);
    latch_hit(&gates[0]);
    latch_wait(&u[0].ran, 1 + 10);
    until_dropped(engine, 2 + 10); /* the other scheduler got as many, not one more */
    latch_hit(&gates[1]);
    teff_engine_free(engine);
}

/* ---- a stop that has to wait in vain ---- */

static latch stuck_inside;

static void run_until_gate(teff_component *w)
{
    latch_hit(&stuck_inside);
    latch_wait(teff_component_user(w), 1);
}

static void test_a_stop_reports_the_components_of_all_schedulers(void **state)
{
    enum { ALL = 2 };
    static const teff_component_type stuck = {.name = "stuck", .run = run_until_gate};
    static latch gates[ALL];
    teff_stop_report report;
    unsigned n = 0;
    teff_engine *engine = engine_of((teff_engine_options){.schedulers = ALL});
    for (uint32_t i = 0; i < ALL; i++)
        (void)add(engine, i, &stuck, &gates[i]);
    latch_wait(&stuck_inside, ALL);
    assert_int_equal(teff_engine_stop(engine, 1, &report), TEFF_E_TIMEOUT);
    assert_int_equal(report.cancelled, ALL);
    assert_in_range(report.forced, ALL, 2 * ALL); /* maybe also dispatchers */
    assert_in_range(report.stuck, ALL, report.forced);
    assert_in_range(report.n_named, report.forced, 2 * ALL);
    for (unsigned i = 0; i < report.n_named; i++)
        n += strcmp(report.named[i].name, "stuck") == 0;
    assert_int_equal(n, ALL);
    for (unsigned i = 0; i < ALL; i++)
        latch_hit(&gates[i]);
    teff_engine_free(engine);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_a_scheduler_without_components_runs_and_drops),
        cmocka_unit_test(test_each_listener_of_each_scheduler_gets_its_copies_in_order),
        cmocka_unit_test(test_a_task_for_one_scheduler),
        cmocka_unit_test(test_a_component_ends_itself),
        cmocka_unit_test(test_a_component_ends_the_engine),
        cmocka_unit_test(test_remove_is_asynchronous_and_clears_the_queue),
        cmocka_unit_test(test_a_waiting_component_lets_others_of_its_only_thread_run),
        cmocka_unit_test(test_run_functions_with_and_without_a_fiber),
        cmocka_unit_test(test_a_run_function_without_a_fiber_is_alone),
        cmocka_unit_test(test_wait_for_a_task_of_another_scheduler),
        cmocka_unit_test(test_a_task_that_waits_for_a_condition),
        cmocka_unit_test(test_the_queue_of_an_ending_component_releases_waiters),
        cmocka_unit_test(test_a_broadcast_yields_without_its_lock),
        cmocka_unit_test(test_a_full_scheduler_refuses_for_all),
        cmocka_unit_test(test_a_stop_reports_the_components_of_all_schedulers),
    };
    return cmocka_run_group_tests_name("engine/engine", tests, NULL, NULL);
}
