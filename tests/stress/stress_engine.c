/* stress_engine.c - threads and components add, remove, broadcast, send, notify, lock and end while
 * the engine stops: each copy of a task is over once, each component ends, all data is unbound and
 * freed, and no two tasks write the same data at a time.
 * With `silo` the engines run on a silo's executor; `priority` evicts.
 * usage: stress_engine [seconds [silo | priority]...] */
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <teff/engine.h>
#include <teff/silo.h>
#include "base/hash.h"
#include "os/platform.h"
#include "os/thread.h"

enum { THREADS = 4, ACTS = 400, SCHEDULERS = 3, COMPONENTS_MAX = 4000, STOP_MS = 60000 };

static teffi_platform platform;
static teff_silo *silo; /* NULL: each engine has threads of its own */
static teff_sched_options sched = {.size = sizeof sched};
static teff_engine *engine;
static uint64_t seed;

/* Of one engine. */
static struct {
    _Atomic unsigned added, ended, made, freed, bound, unbound, over, flips, overlaps, acts;
    _Atomic uint64_t draws;
    teff_component_id ids[COMPONENTS_MAX];
    _Atomic unsigned n_ids; /* published ones */
} t;

static unsigned draw(unsigned n)
{
    return (unsigned)(teffi_mix64(seed + atomic_fetch_add(&t.draws, 1)) % n);
}

/* ---- data: inside counts the tasks that write it ---- */

typedef struct score {
    _Atomic unsigned inside;
} score;

static void note_made(teff_component *w, void *data)
{
    (void)w;
    (void)data;
    atomic_fetch_add(&t.made, 1);
}

static void note_freed(teff_component *w, void *data)
{
    (void)w;
    atomic_fetch_add(&t.overlaps, ((score *)data)->inside);
    atomic_fetch_add(&t.freed, 1);
}

static void note_bound(teff_component *w, void *data)
{
    (void)w;
    (void)data;
    atomic_fetch_add(&t.bound, 1);
}

static void note_unbound(teff_component *w, void *data)
{
    (void)w;
    (void)data;
    atomic_fetch_add(&t.unbound, 1);
}

#define DATA(which)                                                                                \
    static const teff_data_type which = {.name = #which,                                           \
                                         .size = sizeof(score),                                    \
                                         .init = note_made,                                        \
                                         .bind = note_bound,                                       \
                                         .unbind = note_unbound,                                   \
                                         .fini = note_freed}
DATA(left);
DATA(right);

/* ---- tasks ---- */

static void act(teff_component *w);

static void write_data(teff_component *w, score *s)
{
    atomic_fetch_add(&t.overlaps, atomic_fetch_add(&s->inside, 1) > 0);
    (void)!teff_component_yield(w);
    atomic_fetch_sub(&s->inside, 1);
}

static int has_flipped(void *arg)
{
    return atomic_load(&t.flips) != *(unsigned *)arg;
}

static void wait_for_flip(teff_component *w)
{
    unsigned now = atomic_load(&t.flips);
    (void)!teff_component_wait(w, has_flipped, &now);
}

static void lock_right(teff_component *w)
{
    static const teff_need need = {&right, TEFF_WRITE};
    if (teff_component_lock(w, &need, 1))
        return;
    write_data(w, teff_component_data(w, &right));
    if (draw(2))
        (void)teff_component_unlock(w);
}

static void run_left(teff_component *w, void *task, void *const *data)
{
    (void)task;
    write_data(w, data[0]);
    act(w);
}

/* For components with a fiber: they may wait. */
static void run_patient(teff_component *w, void *task, void *const *data)
{
    (void)task;
    (void)data;
    if (draw(8) == 0)
        wait_for_flip(w);
    lock_right(w);
    act(w);
}

static void note_over(void *task, int ran)
{
    (void)task;
    (void)ran;
    atomic_fetch_add(&t.over, 1);
}

static const teff_task_type write_task = {.name = "write",
                                          .size = 40,
                                          .run = run_left,
                                          .over = note_over,
                                          .n_needs = 1,
                                          .needs = {{&left, TEFF_WRITE}}};
static const teff_task_type patient_task = {.name = "patient",
                                            .run = run_patient,
                                            .over = note_over,
                                            .n_needs = 1,
                                            .needs = {{&left, TEFF_READ}}};
static const teff_task_type *const both[] = {&write_task, &patient_task};

static void run_loop(teff_component *w)
{
    while (!teff_component_drain(w, 1))
        lock_right(w);
}

static const teff_data_use owns[] = {{&left, TEFF_DATA_OWNER}, {&right, TEFF_DATA_OWNER}};
static const teff_data_use groups[] = {{&left, TEFF_DATA_GROUP}, {&right, TEFF_DATA_GROUP}};
static const teff_data_use shares[] = {{&left, TEFF_DATA_SHARE}, {&right, TEFF_DATA_SHARE}};
static const teff_component_type types[] = {
    {.name = "owner", .data = owns, .n_data = 2, .tasks = both, .n_tasks = 1},
    {.name = "plain", .data = groups, .n_data = 2, .tasks = both, .n_tasks = 1},
    {.name = "patient",
     .flags = TEFF_COMPONENT_FIBER,
     .data = shares,
     .n_data = 2,
     .tasks = both,
     .n_tasks = 2},
    {.name = "loop",
     .flags = TEFF_COMPONENT_FIBER,
     .data = groups,
     .n_data = 2,
     .tasks = both,
     .n_tasks = 2,
     .run = run_loop}};
enum { TYPES = sizeof types / sizeof types[0] };

static void note_end(void *arg, teff_component_id id)
{
    (void)arg;
    (void)id;
    atomic_fetch_add(&t.ended, 1);
}

/* ---- what threads and tasks do ---- */

static void add(uint32_t scheduler, const teff_component_type *type)
{
    teff_component_id id;
    if (teff_engine_add(engine, scheduler, type, NULL, &id))
        return;
    unsigned at = atomic_fetch_add(&t.added, 1);
    if (at < COMPONENTS_MAX && at == atomic_load(&t.n_ids)) { /* else it is not removed */
        t.ids[at] = id;
        atomic_fetch_add(&t.n_ids, 1);
    }
}

static void remove_one(void)
{
    unsigned n = atomic_load(&t.n_ids);
    if (n)
        (void)teff_engine_remove(engine, t.ids[draw(n)]);
}

static void flip(void)
{
    atomic_fetch_add(&t.flips, 1);
    teff_engine_notify(engine);
}

/* w: NULL on a thread outside. */
static void act_once(teff_component *w)
{
    static const unsigned char task[40];
    teff_engine_stats stats;
    unsigned what = draw(16);
    if (what < 4)
        (void)!teff_engine_broadcast(engine, both[what % 2], task);
    else if (what < 8)
        (void)!teff_engine_send(engine, draw(SCHEDULERS), both[what % 2], task);
    else if (what < 11)
        add(draw(SCHEDULERS), &types[draw(TYPES)]);
    else if (what == 11)
        remove_one();
    else if (what == 12 && w)
        teff_component_end(w);
    else if (what == 13)
        teff_engine_stats_get(engine, &stats);
    else
        flip();
}

/* Tasks beget tasks, so their acts are limited, too. */
static void act(teff_component *w)
{
    if (atomic_fetch_add(&t.acts, 1) < THREADS * ACTS)
        act_once(w);
}

static void *run_thread(void *arg)
{
    (void)arg;
    for (unsigned i = 0; i < ACTS; i++)
        act_once(NULL);
    return NULL;
}

/* ---- rounds ---- */

static bool make_engine(void)
{
    const teff_engine_options opt = {.size = sizeof opt,
                                     .schedulers = SCHEDULERS,
                                     .threads = 1 + draw(2),
                                     .sched = silo ? NULL : &sched,
                                     .queue_max = draw(2) ? 20 : 0,
                                     .poll_ms = draw(2),
                                     .ended = note_end};
    teff_err err =
        silo ? teff_silo_make_engine(silo, &opt, &engine) : teff_engine_new(&opt, &engine);
    if (err)
        fprintf(stderr, "stress_engine: %s\n", teff_err_name(err));
    return !err;
}

static bool equal(const char *what, uint64_t a, uint64_t b)
{
    if (a != b)
        fprintf(stderr, "stress_engine: %s: %llu and %llu\n", what, (unsigned long long)a,
                (unsigned long long)b);
    return a == b;
}

static bool all_is_over(void)
{
    teff_engine_stats stats;
    teff_engine_stats_get(engine, &stats);
    return (int)equal("copies given, over", stats.given, t.over) &
           (int)equal("components added, ended", t.added, t.ended) &
           (int)equal("components left", stats.components, 0) &
           (int)equal("data made, freed", t.made, t.freed) &
           (int)equal("data bound, unbound", t.bound, t.unbound) &
           (int)equal("overlaps", t.overlaps, 0);
}

static void wait_for_acts(unsigned n)
{
    while (atomic_load(&t.draws) < n)
        teffi_thread_yield();
}

/* The stop begins while threads and components are at work. */
static bool one_round(void)
{
    pthread_t threads[THREADS];
    teff_stop_report report;
    memset(&t, 0, sizeof t);
    if (!make_engine())
        return false;
    for (uint32_t i = 0; i < SCHEDULERS; i++)
        add(i, &types[0]);
    for (int i = 0; i < THREADS; i++)
        if (pthread_create(&threads[i], NULL, run_thread, NULL))
            return false;
    wait_for_acts(draw(THREADS * ACTS));
    if (draw(2))
        teff_engine_end(engine);
    teff_err err = teff_engine_stop(engine, STOP_MS, &report);
    for (int i = 0; i < THREADS; i++)
        (void)pthread_join(threads[i], NULL);
    if (err)
        fprintf(stderr, "stress_engine: %u of %u forced, the first: %s\n", report.forced,
                report.cancelled, report.n_named ? report.named[0].name : "?");
    bool ok = all_is_over() && !err;
    if (!silo)
        teff_engine_free(engine);
    return ok;
}

static bool start_silo(void)
{
    const teff_silo_options opt = {.size = sizeof opt, .silent = 1, .workers = 2, .sched = &sched};
    char text[TEFF_TEXT_MAX] = "";
    if (!teff_silo_new(&opt, &silo, text) && !teff_silo_start(silo, text))
        return true;
    fprintf(stderr, "stress_engine: %s\n", text);
    return false;
}

static void configure(const char *word, bool *on_silo)
{
    if (strcmp(word, "silo") == 0)
        *on_silo = true;
    if (strcmp(word, "priority") == 0) {
        sched.policy = TEFF_SCHED_PRIORITY;
        sched.waiting_max = 4;
    }
}

int main(int argc, char **argv)
{
    double seconds = argc > 1 ? atof(argv[1]) : 2;
    unsigned rounds = 0;
    bool ok = true, on_silo = false;
    for (int i = 2; i < argc; i++)
        configure(argv[i], &on_silo);
    teffi_platform_init_real(&platform, TEFF_LOG_INFO);
    uint64_t first = platform.random(NULL),
             end_ns = teffi_now(&platform) + (uint64_t)(seconds * 1e9);
    if (on_silo && !start_silo())
        return 1;
    do {
        seed = teffi_mix64(first + rounds++);
        ok = one_round();
    } while (ok && teffi_now(&platform) < end_ns);
    if (on_silo)
        ok &= teff_silo_stop(silo, 0) == TEFF_OK;
    teff_silo_free(silo);
    printf("stress_engine: %s: seed %llu, %u engines\n", ok ? "ok" : "FAILED",
           (unsigned long long)first, rounds);
    return ok ? 0 : 1;
}
