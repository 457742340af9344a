/* test_level.c - multilevel feedback, by a clock that only work moves.
 * Source:  yatp src/queue/multilevel.rs */
#include <string.h>
#include "sched/scheduler.h"
#include "held_monitor.h"
#include "jobs.h"

#define MS UINT64_C(1000000)
#define S UINT64_C(1000000000)

static uint64_t fixed(void *arg)
{
    return 0x9e3779b97f4a7c15u;
}

static const teff_sched_options multilevel = {.policy = TEFF_SCHED_MULTILEVEL};

/* ---- options ---- */

static void wrong(teff_sched_options opt, const char *name)
{
    const char *said = teffi_sched_options_check(&opt, 1);
    assert_non_null(said);
    assert_non_null(strstr(said, name));
}

static void test_options(void **state)
{
    assert_null(teffi_sched_options_check(&multilevel, 1));
    wrong((teff_sched_options){.policy = 3}, "policy");
    wrong((teff_sched_options){.level_us = {1, 0}}, "level_us");
    wrong((teff_sched_options){.level_us = {0, 2}}, "level_us");
    wrong((teff_sched_options){.level0_percent = 80}, "level0_percent");
    wrong((teff_sched_options){.slice_ms = 1001}, "slice_ms");
    wrong((teff_sched_options){.repolls_max = 1001}, "repolls_max");
    wrong((teff_sched_options){.policy = TEFF_SCHED_MULTILEVEL, .level_us = {9, 9}}, "rising");
    wrong((teff_sched_options){.policy = TEFF_SCHED_MULTILEVEL, .level_us = {0, 5000}}, "rising");
    wrong((teff_sched_options){.policy = TEFF_SCHED_MULTILEVEL, .level_us = {100000, 0}}, "rising");
    wrong((teff_sched_options){.policy = TEFF_SCHED_MULTILEVEL, .level_us = {0, 1000001}}, "up to");
    wrong((teff_sched_options){.policy = TEFF_SCHED_MULTILEVEL, .level0_percent = 99}, "50 to 98");
    wrong((teff_sched_options){.policy = TEFF_SCHED_MULTILEVEL, .level0_percent = 49}, "50 to 98");
    wrong((teff_sched_options){.policy = TEFF_SCHED_MULTILEVEL, .waiting_max = 1}, "waiting_max");
}

/* ---- levels ---- */

static void test_levels_by_run_time(void **state)
{
    teffi_levels levels;
    uint32_t used = 0;
    atomic_store(&worked_ns, 0);
    teffi_levels_init(&levels, &platform, &multilevel);
    assert_int_equal(teffi_level_of_used_time(&levels, used), 0);
    for (unsigned ms = 1; ms <= 200; ms++) {
        used = teffi_used_time_add(used, work_clock(NULL), MS);
        assert_int_equal(teffi_level_of_used_time(&levels, used), ms < 5 ? 0 : ms < 100 ? 1 : 2);
    }
    for (unsigned i = 0; i < 10; i++)
        used = teffi_used_time_add(used, work_clock(NULL), S); /* as much as can be counted */
    assert_int_equal(teffi_level_of_used_time(&levels, used), 2);
    /* 1.07 s, halved: below 100 ms after four times 10 s, below 5 ms after eight */
    static const unsigned level[] = {2, 2, 2, 2, 1, 1, 1, 1, 0};
    for (unsigned i = 0; i < 9; i++, atomic_fetch_add(&worked_ns, 10 * S))
        assert_int_equal(teffi_level_of_used_time(&levels, used), level[i]);
    used = teffi_used_time_add(used, work_clock(NULL), MS);
    assert_int_equal(teffi_level_of_used_time(&levels, used), 0);
    assert_int_equal(
        teffi_level_of_used_time(&levels, teffi_used_time_add(0, work_clock(NULL), 5 * MS)), 1);
}

static void test_run_time_since_another(void **state)
{
    uint32_t from = teffi_used_time_add(0, S, 64 * MS), to = teffi_used_time_add(from, S, 32 * MS);
    assert_int_equal(teffi_used_time_between(from, to), 32 * MS);
    assert_int_equal(teffi_used_time_between(from, from), 0);
    assert_int_equal(teffi_used_time_between(to, from), 0);
    to = teffi_used_time_add(from, 11 * S, 16 * MS); /* halved in between */
    assert_int_equal(teffi_used_time_between(from, to), 16 * MS);
}

static void test_levels_as_configured(void **state)
{
    teffi_levels levels;
    const teff_sched_options opt = {
        .policy = TEFF_SCHED_MULTILEVEL, .level_us = {1000, 2000}, .level0_percent = 60};
    assert_null(teffi_sched_options_check(&opt, 1));
    teffi_levels_init(&levels, &platform, &opt);
    uint64_t now = work_clock(NULL);
    assert_int_equal(teffi_level_of_used_time(&levels, teffi_used_time_add(0, now, MS - 1000)), 0);
    assert_int_equal(teffi_level_of_used_time(&levels, teffi_used_time_add(0, now, MS)), 1);
    assert_int_equal(teffi_level_of_used_time(&levels, teffi_used_time_add(0, now, 2 * MS)), 2);
    assert_int_equal(levels.target, 600);
}

/* ---- the queue ---- */

enum { EACH = 10000 };

static void test_queue(void **state)
{
    static teffi_group group[TEFF_SCHED_LEVELS][EACH];
    static const uint64_t used_ns[TEFF_SCHED_LEVELS] = {0, 50 * MS, 500 * MS};
    teffi_group *out[4];
    teffi_runqueue queue;
    teffi_levels levels;
    teffi_levels_init(&levels, &platform, &multilevel);
    teffi_runqueue_init(&queue);
    queue.order = &levels.order;
    for (unsigned i = 0; i < EACH; i++)
        for (unsigned l = TEFF_SCHED_LEVELS; l-- > 0;) {
            group[l][i].used = teffi_used_time_add(0, work_clock(NULL), used_ns[l]);
            teffi_runqueue_push(&queue, &group[l][i]);
        }
    assert_int_equal(atomic_load(&levels.n_above_0), 2 * EACH);
    for (unsigned i = 0; i < EACH; i += 4) { /* level 0 first, in order, in batches */
        assert_int_equal(teffi_runqueue_pop(&queue, out, 4), 4);
        for (unsigned k = 0; k < 4; k++)
            assert_ptr_equal(out[k], &group[0][i + k]);
    }
    unsigned of_one = 0, of_two = 0; /* then the others one by one, four to one */
    for (unsigned i = 0; i < EACH; i++) {
        assert_int_equal(teffi_runqueue_pop_using(&queue, out, 4, teffi_levels_pop_above_0), 1);
        if (*out == &group[1][of_one])
            of_one++;
        else
            assert_ptr_equal(*out, &group[2][of_two++]);
    }
    assert_in_range(of_one, EACH * 79 / 100, EACH * 81 / 100);
    for (unsigned i = 0; i < EACH; i++) /* and what is left when its level has nothing */
        assert_int_equal(teffi_runqueue_pop(&queue, out, 4), 1);
    assert_int_equal(teffi_runqueue_pop(&queue, out, 4), 0);
    assert_int_equal(atomic_load(&levels.n_above_0), 0);
    teffi_runqueue_fini(&queue);
}

/* ---- the odds ---- */

static uint64_t level0_ns, all_ns;

static uint32_t after(teffi_levels *levels, uint64_t level0, uint64_t all)
{
    level0_ns += level0;
    all_ns += all;
    teffi_levels_adjust_chance_if_due(levels, level0_ns, all_ns);
    return atomic_load(&levels->chance);
}

static void test_odds_follow_the_share(void **state)
{
    teffi_levels levels;
    level0_ns = all_ns = 0;
    teffi_levels_init(&levels, &platform, &multilevel);
    assert_int_equal(atomic_load(&levels.chance), 800);
    assert_int_equal(after(&levels, 0, S - 1), 800); /* not enough to see */
    assert_int_equal(after(&levels, 0, 1), 860);     /* level 0 has too little: picked more */
    assert_int_equal(after(&levels, 7 * S / 10, S), 920);
    assert_int_equal(after(&levels, 0, 2 * S), 980);
    assert_int_equal(after(&levels, 0, S), 980);            /* the most */
    assert_int_equal(after(&levels, 76 * S / 100, S), 980); /* near enough to 80 % */
    assert_int_equal(after(&levels, 84 * S / 100, S), 980);
    assert_int_equal(after(&levels, 90 * S / 100, S), 920); /* too much */
    for (unsigned i = 0; i < 7; i++)
        assert_int_equal(after(&levels, S, S), i < 6 ? 860 - 60 * i : 500);
    assert_int_equal(after(&levels, S, S), 500); /* the least */
}

/* ---- on a worker ---- */

/* Its runs are booked on the level that it had before each. */
static void test_a_group_sinks_and_rises(void **state)
{
    static job j;
    atomic_store(&worked_ns, 0);
    monitor_hold(&platform);
    teffi_exec *exec = exec_new(1, &multilevel);
    job_init(&j, exec, 0, NULL);
    j.cost_ns = MS;
    for (unsigned i = 1; i <= 150; i++) {
        push(&j);
        WAIT_FOR(atomic_load(&j.runs) == i && teffi_group_state_of(&j.group) == TEFFI_GROUP_IDLE);
    }
    WAIT_FOR(counts_of(exec, 0).level_ns[2] == 50 * MS);
    assert_int_equal(counts_of(exec, 0).level_ns[0], 5 * MS);
    assert_int_equal(counts_of(exec, 0).level_ns[1], 95 * MS);
    atomic_fetch_add(&worked_ns, 60 * S); /* 150 ms, halved six times */
    push(&j);
    WAIT_FOR(counts_of(exec, 0).level_ns[0] == 6 * MS);
    monitor_release();
    exec->ops->free(exec);
}

enum { ITEMS = 300 }; /* more than one run handles */

static void fill_peer(job *j)
{
    for (unsigned i = 0; i < ITEMS; i++)
        teffi_bug_if(!teffi_group_push(&j->peer[0]->group, &j->peer[0]->items[i]));
}

/* So does a run that ends because its group's quantum or budget is used up. */
static void test_each_run_is_charged(void **state)
{
    static job a, b;
    atomic_store(&worked_ns, 0);
    monitor_hold(&platform);
    teffi_exec *exec = exec_new(1, &multilevel);
    job_init(&a, exec, 0, fill_peer);
    job_init(&b, exec, 0, NULL);
    a.peer[0] = &b;
    b.cost_ns = MS;
    push(&a);
    WAIT_FOR(atomic_load(&b.runs) == ITEMS && teffi_group_state_of(&b.group) == TEFFI_GROUP_IDLE);
    monitor_release();
    exec->ops->free(exec);
    assert_int_equal(teffi_used_time_between(0, b.group.used), ITEMS * MS);
}

/* Alone it finds nothing to run; then it waits for its peer, which runs on the same stack. */
static void run_peer_nested(job *j)
{
    teffi_bug_if(j->exec->ops->run_nested(j->exec));
    push(j->peer[0]);
    while (!atomic_load(&j->peer[0]->runs))
        teffi_bug_if(!j->exec->ops->run_nested(j->exec));
    atomic_fetch_add(&worked_ns, j->cost_ns);
}

/* A run inside of a turn is charged to its own group, and not to the turn's as well. */
static void test_nested_runs_are_charged_apart(void **state)
{
    static job a, b;
    atomic_store(&worked_ns, 0);
    monitor_hold(&platform);
    teffi_exec *exec = exec_new(1, &multilevel);
    job_init(&a, exec, 0, run_peer_nested);
    job_init(&b, exec, 0, NULL);
    a.peer[0] = &b;
    a.cost_ns = 2 * MS; /* before and after */
    b.cost_ns = 3 * MS;
    push(&a);
    WAIT_FOR(atomic_load(&a.runs) == 1 && teffi_group_state_of(&a.group) == TEFFI_GROUP_IDLE);
    monitor_release();
    exec->ops->free(exec);
    assert_int_equal(teffi_used_time_between(0, a.group.used), 4 * MS);
    assert_int_equal(teffi_used_time_between(0, b.group.used), 3 * MS);
}

#define WORK_NS (60 * S)

static void push_peer_until_the_end(job *j)
{
    j->group.used = 0; /* as if each were a new one */
    if (atomic_load(&worked_ns) < WORK_NS)
        push(j->peer[0]);
}

static void push_self_until_the_end(job *j)
{
    if (atomic_load(&worked_ns) < WORK_NS)
        push(j);
}

static void push_peers(job *j)
{
    for (unsigned i = 0; i < 3; i++)
        push(j->peer[i]);
}

static bool resting(job *jobs, unsigned n)
{
    bool all = true;
    for (unsigned i = 0; i < n; i++)
        all &= teffi_group_state_of(&jobs[i].group) == TEFFI_GROUP_IDLE;
    return all;
}

/* Short work without end beside long work without end, whose runs are six times as long. */
static void test_short_work_has_its_share(void **state)
{
    static job first, j[4]; /* two short ones, two long ones */
    teff_sched_metrics all;
    atomic_store(&worked_ns, 0);
    monitor_hold(&platform);
    teffi_exec *exec = exec_new(1, &multilevel);
    for (unsigned i = 0; i < 4; i++) {
        job_init(&j[i], exec, 0, i < 2 ? push_peer_until_the_end : push_self_until_the_end);
        j[i].cost_ns = MS;
    }
    j[0].peer[0] = &j[1];
    j[1].peer[0] = &j[0];
    job_init(&first, exec, 0, push_peers); /* in a turn, so that none begins before the others */
    memcpy(first.peer, (job *[]){&j[2], &j[3], &j[0]}, 3 * sizeof(job *));
    push(&first);
    WAIT_FOR(atomic_load(&worked_ns) >= WORK_NS && resting(j, 4) && resting(&first, 1));
    teff_sched_worker did = counts_of(exec, 0);
    uint64_t sum_ns = did.level_ns[0] + did.level_ns[1] + did.level_ns[2];
    (void)exec->ops->metrics(exec, &all, NULL, 0);
    print_message("share of level 0: %.2f, chance %.2f\n", (double)did.level_ns[0] / (double)sum_ns,
                  all.level0_chance);
    assert_in_range(did.level_ns[0], sum_ns * 65 / 100, sum_ns * 95 / 100);
    assert_true(all.level0_chance > 0.8);
    monitor_release();
    exec->ops->free(exec);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_options),
        cmocka_unit_test(test_levels_by_run_time),
        cmocka_unit_test(test_run_time_since_another),
        cmocka_unit_test(test_levels_as_configured),
        cmocka_unit_test(test_queue),
        cmocka_unit_test(test_odds_follow_the_share),
        cmocka_unit_test(test_a_group_sinks_and_rises),
        cmocka_unit_test(test_each_run_is_charged),
        cmocka_unit_test(test_nested_runs_are_charged_apart),
        cmocka_unit_test(test_short_work_has_its_share),
    };
    teffi_platform_init_real(&platform, TEFF_LOG_INFO);
    platform.mono_ns = work_clock;
    platform.random = fixed;
    return cmocka_run_group_tests(tests, NULL, NULL);
}
