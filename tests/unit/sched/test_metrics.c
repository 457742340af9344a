/* test_metrics.c - hooks in their order, and the counters of each worker.
 * Source:  yatp src/pool/runner.rs */
#include <teff/process.h>
#include "held_monitor.h"
#include "jobs.h"
#include "sched/scheduler.h"

/* ---- hooks ---- */

enum { THREADS = 64 };

/* What one thread's calls were so far: each hook checks that it may come now. */
static struct {
    unsigned starts, runs, parks, ends;
    int depth;
    bool parked;
    const void *group[8]; /* between before and after, by depth */
} seen[THREADS];
static _Atomic unsigned wrong, starts, ends, all_parks, befores;
static int hook_arg;

static void check(bool ok)
{
    if (!ok)
        atomic_fetch_add(&wrong, 1);
}

static void on_start(void *arg, uint32_t t)
{
    check(arg == &hook_arg && t < THREADS && seen[t].starts == 0);
    seen[t].starts++;
    atomic_fetch_add(&starts, 1);
}

static bool lives(uint32_t t)
{
    return seen[t].starts == 1 && seen[t].ends == 0;
}

static void on_before(void *arg, uint32_t t, const void *group)
{
    check(arg == &hook_arg && lives(t) && !seen[t].parked && seen[t].depth < 8);
    seen[t].group[seen[t].depth++] = group;
    atomic_fetch_add(&befores, 1);
}

static void on_after(void *arg, uint32_t t, const void *group)
{
    check(arg == &hook_arg && lives(t) && seen[t].depth > 0);
    check(seen[t].group[--seen[t].depth] == group);
    seen[t].runs++;
}

static void on_park(void *arg, uint32_t t)
{
    check(arg == &hook_arg && lives(t) && !seen[t].parked && seen[t].depth == 0);
    seen[t].parked = true;
    seen[t].parks++;
    atomic_fetch_add(&all_parks, 1);
}

static void on_unpark(void *arg, uint32_t t)
{
    check(arg == &hook_arg && lives(t) && seen[t].parked);
    seen[t].parked = false;
}

static void on_end(void *arg, uint32_t t)
{
    check(arg == &hook_arg && lives(t) && !seen[t].parked && seen[t].depth == 0);
    seen[t].ends++;
    atomic_fetch_add(&ends, 1);
}

static const teff_sched_hooks hooks = {.size = sizeof hooks,
                                       .start = on_start,
                                       .before = on_before,
                                       .after = on_after,
                                       .park = on_park,
                                       .unpark = on_unpark,
                                       .end = on_end,
                                       .arg = &hook_arg};
static const teff_sched_options hooked = {.size = sizeof hooked, .hooks = &hooks};

static void forget(void)
{
    memset(seen, 0, sizeof seen);
    atomic_store(&starts, 0);
    atomic_store(&ends, 0);
    atomic_store(&all_parks, 0);
    atomic_store(&befores, 0);
    atomic_store(&wrong, 0);
}

/* As yatp's own test: start and park, then unpark, handle and park for a task, then end. */
static void test_hooks_of_one_worker(void **state)
{
    static job j;
    forget();
    teffi_exec *exec = exec_new(1, &hooked);
    WAIT_FOR(atomic_load(&all_parks) >= 1);
    assert_int_equal(atomic_load(&starts), 1);
    assert_int_equal(atomic_load(&befores), 0);
    job_init(&j, exec, 0, NULL);
    unsigned before =
        atomic_load(&all_parks); /* before the push: the worker may be quicker than us */
    push(&j);
    WAIT_FOR(atomic_load(&j.runs) == 1 && atomic_load(&all_parks) > before);
    assert_int_equal(atomic_load(&befores), 1);
    assert_int_equal(counts_of(exec, 0).runs, 1);
    exec->ops->free(exec);
    assert_int_equal(seen[0].runs, 1);
    assert_int_equal(atomic_load(&ends), 1);
    assert_int_equal(atomic_load(&wrong), 0);
}

static _Atomic unsigned blocked_now;

static void block(job *j)
{
    j->exec->ops->blocking_begin(j->exec);
    atomic_fetch_add(&blocked_now, 1);
    while (!atomic_load(&j->stop))
        teffi_thread_yield();
    j->exec->ops->blocking_end(j->exec);
}

/* Threads that come for those that block have hooks of their own; every run has both halves. */
static void test_hooks_of_many_threads(void **state)
{
    enum { JOBS = 6 };
    static job j[JOBS];
    forget();
    atomic_store(&blocked_now, 0);
    teffi_exec *exec = exec_new(2, &hooked);
    for (unsigned i = 0; i < JOBS; i++) {
        job_init(&j[i], exec, 0, block);
        push(&j[i]);
    }
    WAIT_FOR(atomic_load(&blocked_now) == JOBS);
    for (unsigned i = 0; i < JOBS; i++)
        atomic_store(&j[i].stop, true);
    for (unsigned i = 0; i < JOBS; i++)
        WAIT_FOR(atomic_load(&j[i].runs) == 1);
    teff_sched_metrics all;
    (void)exec->ops->metrics(exec, &all, NULL, 0);
    exec->ops->free(exec);
    unsigned runs = 0;
    for (unsigned i = 0; i < THREADS; i++)
        runs += seen[i].runs;
    assert_int_equal(runs, JOBS);
    assert_true(all.threads >= JOBS);
    assert_true(all.threads >= 2);
    assert_true(atomic_load(&starts) >= all.threads);
    assert_int_equal(atomic_load(&ends), atomic_load(&starts));
    assert_int_equal(atomic_load(&wrong), 0);
}

/* ---- what is counted ---- */

/* The last one lies in this worker's LIFO slot, where no thief looks. */
static void push_peers_and_wait(job *j)
{
    for (unsigned i = 0; i < 4; i++)
        push(j->peer[i]);
    for (unsigned i = 0; i < 3; i++)
        while (!atomic_load(&j->peer[i]->runs))
            teffi_thread_yield();
}

static teff_sched_worker sum_of(teffi_exec *exec)
{
    teff_sched_worker sum = {0}, one[16];
    size_t n = exec->ops->metrics(exec, NULL, one, 16);
    for (size_t i = 0; i < n; i++) {
        assert_int_equal(one[i].runs, one[i].lifo + one[i].local + one[i].global + one[i].stolen);
        sum.runs += one[i].runs;
        sum.global += one[i].global;
        sum.stolen += one[i].stolen;
        sum.steals += one[i].steals;
        sum.requeues += one[i].requeues;
        sum.parks += one[i].parks;
        sum.unparks += one[i].unparks;
    }
    return sum;
}

/* What a turn made READY and others ran while it went on was stolen from its worker. */
static void test_counts_of_thieves(void **state)
{
    static job a, peer[4];
    monitor_hold(&platform);
    teffi_exec *exec = exec_new(2, NULL);
    job_init(&a, exec, 0, push_peers_and_wait);
    for (unsigned i = 0; i < 4; i++) {
        job_init(&peer[i], exec, 0, NULL);
        a.peer[i] = &peer[i];
    }
    push(&a);
    for (unsigned i = 0; i < 4; i++)
        WAIT_FOR(atomic_load(&peer[i].runs) == 1);
    teff_sched_worker sum = sum_of(exec);
    assert_int_equal(sum.steals, 3);
    assert_in_range(sum.stolen, 1, 3);
    assert_int_equal(sum.global, 1);
    assert_int_equal(sum.runs, 5);
    monitor_release();
    exec->ops->free(exec);
}

static void fill_peer(job *j)
{
    for (unsigned i = 0; i < 300; i++)
        teffi_bug_if(!teffi_group_push(&j->peer[0]->group, &j->peer[0]->items[i]));
}

/* 300 items are more than one go, so that the rest is queued again. */
static void test_counts_of_requeues(void **state)
{
    static job a, b;
    monitor_hold(&platform);
    teffi_exec *exec = exec_new(1, NULL);
    job_init(&a, exec, 0, fill_peer);
    job_init(&b, exec, 0, NULL);
    a.peer[0] = &b;
    push(&a);
    WAIT_FOR(atomic_load(&b.runs) == 300);
    teff_sched_worker sum = sum_of(exec);
    assert_int_equal(sum.requeues, 1);
    assert_int_equal(sum.runs, 3);
    assert_int_equal(sum.global, 2);
    const teffi_processor *p = &teffi_sched_of(exec)->processors[0];
    WAIT_FOR(atomic_load(&p->items) >= 298);
    assert_int_equal(atomic_load(&p->items), 298); /* besides the first one of each run */
    monitor_release();
    exec->ops->free(exec);
}

/* Work from outside finds the worker asleep, sooner or later. */
static void test_counts_of_parks_and_wakes(void **state)
{
    static job a;
    unsigned rounds = 0;
    teffi_exec *exec = exec_new(1, NULL);
    job_init(&a, exec, 0, NULL);
    uint64_t end_ns = real_now() + LIMIT_NS;
    while (!sum_of(exec).unparks && real_now() < end_ns) {
        uint64_t parks = sum_of(exec).parks;
        push(&a);
        WAIT_FOR(atomic_load(&a.runs) == rounds + 1);
        WAIT_FOR(teffi_group_state_of(&a.group) == TEFFI_GROUP_IDLE);
        WAIT_FOR(sum_of(exec).parks > parks);
        rounds++;
    }
    teff_sched_worker sum = sum_of(exec);
    assert_true(sum.unparks >= 1);
    assert_true(sum.parks >= sum.unparks);
    assert_int_equal(sum.runs, rounds);
    assert_int_equal(sum.requeues, 0);
    teff_sched_metrics all;
    assert_int_equal(exec->ops->metrics(exec, &all, NULL, 0), 0);
    assert_int_equal(all.workers, 1);
    assert_true(all.threads >= 1);
    assert_int_equal(all.ready, 0);
    exec->ops->free(exec);
}

/* ---- the same for users ---- */

static teff_err done(void *self, const teff_event *events, size_t n, teff_step *out)
{
    return teff_step_done(out);
}

static const teff_process_ops short_ops = {.name = "short", .step = done};

static void test_a_process_system_tells(void **state)
{
    enum { PROCESSES = 100 };
    teff_process_system *system;
    teff_process_stats stats;
    teff_sched_metrics all;
    teff_sched_worker workers[4] = {0};
    forget();
    const teff_process_options opt = {.size = sizeof opt, .workers = 2, .sched = &hooked};
    assert_int_equal(teff_process_system_new(&opt, &system), TEFF_OK);
    for (unsigned i = 0; i < PROCESSES; i++)
        assert_int_equal(teff_process_spawn(system, &short_ops, NULL, NULL, NULL, 0, NULL),
                         TEFF_OK);
    do {
        teffi_thread_yield();
        teff_process_stats_get(system, &stats);
    } while (stats.ended < PROCESSES);
    assert_int_equal(teff_process_sched_metrics(system, &all, workers, 4), 2);
    assert_int_equal(all.workers, 2);
    assert_true(workers[0].runs + workers[1].runs >= PROCESSES);
    teff_process_system_free(system);
    assert_true(all.threads >= 2);
    assert_true(atomic_load(&starts) >= all.threads);
    assert_int_equal(atomic_load(&ends), atomic_load(&starts));
    assert_true(atomic_load(&befores) >= PROCESSES);
    assert_int_equal(atomic_load(&wrong), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_hooks_of_one_worker),
        cmocka_unit_test(test_hooks_of_many_threads),
        cmocka_unit_test(test_counts_of_thieves),
        cmocka_unit_test(test_counts_of_requeues),
        cmocka_unit_test(test_counts_of_parks_and_wakes),
        cmocka_unit_test(test_a_process_system_tells),
    };
    teffi_platform_init_real(&platform, TEFF_LOG_INFO);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
