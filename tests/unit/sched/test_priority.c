/* test_priority.c - the run queue by priority: the most urgent group first; over the limit the
 * least urgent is evicted, and its requests are refused. Nothing is lost.
 * Source:  yatp src/queue/priority.rs */
#include <string.h>
#include "sched/scheduler.h"
#include "group/direct.h"
#include "held_monitor.h"
#include "jobs.h"

/* ---- groups that may be evicted ---- */

static _Atomic unsigned handled, refused;

static void on_handled(teffi_group *group, teffi_item *item)
{
    on_item(group, item);
    atomic_fetch_add(&handled, 1);
}

/* Items of kind 1 are somebody's requests; the others must be handled. */
static bool on_refused(teffi_group *group, teffi_item *item)
{
    if (item->kind != 1)
        return false;
    atomic_fetch_add(&refused, 1);
    return true;
}

static const teffi_group_ops may_be_evicted = {.handle = on_handled, .evict = on_refused};

static void request_init(job *j, teffi_exec *exec, char name, int priority)
{
    job_init(j, exec, name, NULL);
    teffi_group_init(&j->group, exec, &may_be_evicted);
    atomic_store(&j->group.priority, (int8_t)priority);
    j->item.kind = 1;
}

/* ---- the queue, beside a plain one that is searched from end to end ---- */

enum { GROUPS = 400, STEPS = 200000, WAITING_MAX = 100 };

static job jobs[GROUPS];
static teffi_runqueue queue;
static teffi_priorities ranks;

typedef struct plain { /* what waits, in order of arrival */
    unsigned at[GROUPS], n, evicted;
} plain;

static int priority_of(unsigned i)
{
    return atomic_load(&jobs[i].group.priority);
}

static unsigned plain_take(plain *p, unsigned k)
{
    unsigned i = p->at[k];
    memmove(&p->at[k], &p->at[k + 1], (--p->n - k) * sizeof p->at[0]);
    return i;
}

/* The index of the first of the highest priority, or of the last of the lowest. */
static unsigned plain_find(const plain *p, bool highest)
{
    unsigned best = 0;
    for (unsigned k = 1; k < p->n; k++) {
        int differ = priority_of(p->at[k]) - priority_of(p->at[best]);
        if (highest ? differ > 0 : differ <= 0)
            best = k;
    }
    return best;
}

static unsigned index_of(const teffi_group *group)
{
    return (unsigned)(teffi_container(group, job, group) - jobs);
}

/* Those evicted lie in front, in the order of their eviction. */
static void check_pop(plain *waiting, plain *evicted)
{
    teffi_group *out;
    unsigned n = teffi_runqueue_pop(&queue, &out, 1);
    if (evicted->n) {
        assert_int_equal(n, 1);
        assert_true(out->evicted);
        assert_int_equal(index_of(out), plain_take(evicted, 0));
        out->evicted = false;
    } else if (waiting->n) {
        assert_int_equal(n, 1);
        assert_false(out->evicted);
        assert_int_equal(index_of(out), plain_take(waiting, plain_find(waiting, true)));
    } else {
        assert_int_equal(n, 0);
    }
}

static void check_push(plain *waiting, plain *evicted, unsigned i, int priority)
{
    atomic_store(&jobs[i].group.priority, (int8_t)priority);
    teffi_runqueue_push(&queue, &jobs[i].group);
    waiting->at[waiting->n++] = i;
    if (waiting->n > WAITING_MAX) {
        evicted->at[evicted->n++] = plain_take(waiting, plain_find(waiting, false));
        evicted->evicted++;
    }
}

static bool is_in(const plain *p, unsigned i)
{
    for (unsigned k = 0; k < p->n; k++)
        if (p->at[k] == i)
            return true;
    return false;
}

static void test_order_and_eviction(void **state)
{
    static plain waiting, evicted;
    uint64_t rng = 1;
    teffi_runqueue_init(&queue);
    teffi_priorities_init(&ranks, WAITING_MAX);
    queue.order = &ranks.order;
    for (unsigned i = 0; i < GROUPS; i++)
        request_init(&jobs[i], NULL, 0, 0);
    for (unsigned step = 0; step < STEPS; step++) {
        rng = rng * 6364136223846793005u + 1442695040888963407u;
        unsigned draw = (unsigned)(rng >> 33), i = draw % GROUPS;
        bool fill = step / 1000 % 2 ? draw >> 16 & 1 : (draw >> 16) % 4 == 0;
        if (fill)
            check_pop(&waiting, &evicted);
        else if (!is_in(&waiting, i) && !is_in(&evicted, i))
            check_push(&waiting, &evicted, i, draw >> 20 & 1 ? (int)(draw >> 8) % 256 - 128 : 0);
        assert_int_equal(teffi_runqueue_count(&queue), waiting.n + evicted.n);
    }
    while (waiting.n || evicted.n)
        check_pop(&waiting, &evicted);
    check_pop(&waiting, &evicted);
    assert_true(evicted.evicted > STEPS / 100);
    assert_int_equal(atomic_load(&ranks.evicted), evicted.evicted);
    teffi_runqueue_fini(&queue);
}

/* The runtime's own groups come first, do not count and stay. */
static void test_own_groups(void **state)
{
    static job own[3], a, b;
    teffi_group *out[8];
    teffi_runqueue_init(&queue);
    teffi_priorities_init(&ranks, 1);
    queue.order = &ranks.order;
    request_init(&a, NULL, 0, 127);
    request_init(&b, NULL, 0, -128);
    teffi_runqueue_push(&queue, &a.group);
    for (unsigned i = 0; i < 3; i++) {
        job_init(&own[i], NULL, 0, NULL);
        teffi_runqueue_push(&queue, &own[i].group);
    }
    assert_int_equal(atomic_load(&ranks.evicted), 0);
    teffi_runqueue_push(&queue, &b.group);
    assert_int_equal(teffi_runqueue_pop(&queue, out, 8), 5);
    for (unsigned i = 0; i < 3; i++)
        assert_ptr_equal(out[i], &own[i].group);
    assert_ptr_equal(out[3], &b.group);
    assert_true(out[3]->evicted);
    assert_ptr_equal(out[4], &a.group);
    teffi_runqueue_fini(&queue);
}

/* ---- on workers ---- */

static void push_four(job *j)
{
    for (unsigned i = 0; i < 4; i++)
        push(j->peer[i]);
}

static void test_order_on_a_worker(void **state)
{
    static job first, j[4];
    static const int priority[4] = {0, -5, 100, 0};
    const teff_sched_options opt = {.policy = TEFF_SCHED_PRIORITY};
    monitor_hold(&platform);
    teffi_exec *exec = exec_new(1, &opt);
    forget_notes();
    job_init(&first, exec, 0, push_four);
    for (unsigned i = 0; i < 4; i++) {
        request_init(&j[i], exec, (char)('a' + i), priority[i]);
        first.peer[i] = &j[i];
    }
    push(&first);
    for (unsigned i = 0; i < 4; i++)
        WAIT_FOR(atomic_load(&j[i].runs) == 1);
    teff_sched_worker did = counts_of(exec, 0);
    assert_string_equal(notes, "cadb");
    assert_int_equal(did.lifo + did.local, 0); /* all through the one queue */
    monitor_release();
    exec->ops->free(exec);
}

static _Atomic int in_place[2]; /* may a turn run in place: while a more urgent one waits, after */

static void asks_twice(job *j)
{
    push(j->peer[0]);
    atomic_store(&in_place[0], teffi_direct_may_run_in_place(j->exec, false));
    j->run = NULL;
    push(j);
}

static void asks_once(job *j)
{
    push(j->peer[0]);
    atomic_store(&in_place[1], teffi_direct_may_run_in_place(j->exec, false));
}

/* A call is where a more urgent group goes first; less urgent ones wait for the caller. */
static void test_a_call_in_place_lets_more_urgent_groups_go_first(void **state)
{
    static job urgent, lazy, caller, other;
    const teff_sched_options opt = {.policy = TEFF_SCHED_PRIORITY};
    monitor_hold(&platform);
    teffi_exec *exec = exec_new(1, &opt);
    request_init(&urgent, exec, 0, 6);
    request_init(&lazy, exec, 0, 5);
    request_init(&caller, exec, 0, 5);
    request_init(&other, exec, 0, 5);
    caller.run = asks_twice;
    caller.peer[0] = &urgent;
    other.run = asks_once;
    other.peer[0] = &lazy;
    push(&caller);
    WAIT_FOR(atomic_load(&urgent.runs) == 1 && atomic_load(&caller.runs) == 2);
    push(&other);
    WAIT_FOR(atomic_load(&lazy.runs) == 1 && atomic_load(&other.runs) == 1);
    assert_int_equal(atomic_load(&in_place[0]), 0);
    assert_int_equal(atomic_load(&in_place[1]), 1);
    monitor_release();
    exec->ops->free(exec);
}

enum { CROWD = 400, ROUNDS = 50 };

static job crowd[CROWD];

static void push_crowd(job *j)
{
    for (unsigned i = 0; i < CROWD; i++)
        push(&crowd[i]);
}

/* Far more become READY than may wait: each was handled or refused, none was lost, and what must
 * not be refused was handled. */
static void test_nothing_is_lost(void **state)
{
    static job first;
    const teff_sched_options opt = {.policy = TEFF_SCHED_PRIORITY, .waiting_max = 10};
    teff_sched_metrics all;
    assert_null(teffi_sched_options_check(&opt, 2));
    teffi_exec *exec = exec_new(2, &opt);
    atomic_store(&handled, 0);
    atomic_store(&refused, 0);
    job_init(&first, exec, 0, push_crowd);
    for (unsigned i = 0; i < CROWD; i++) {
        request_init(&crowd[i], exec, 0, (int)(i * 7 % 256) - 128);
        crowd[i].item.kind = i % 8 != 0; /* one in eight is no request */
    }
    for (unsigned round = 1; round <= ROUNDS; round++) {
        push(&first);
        WAIT_FOR(atomic_load(&handled) + atomic_load(&refused) == CROWD * round);
        for (unsigned i = 0; i < CROWD; i++)
            WAIT_FOR(teffi_group_state_of(&crowd[i].group) == TEFFI_GROUP_IDLE);
        WAIT_FOR(teffi_group_state_of(&first.group) == TEFFI_GROUP_IDLE);
    }
    (void)exec->ops->metrics(exec, &all, NULL, 0);
    assert_true(atomic_load(&refused) > 0);
    assert_true(all.evicted >= atomic_load(&refused));
    for (unsigned i = 0; i < CROWD; i += 8)
        assert_int_equal(atomic_load(&crowd[i].runs), ROUNDS);
    exec->ops->free(exec);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_order_and_eviction),
        cmocka_unit_test(test_own_groups),
        cmocka_unit_test(test_order_on_a_worker),
        cmocka_unit_test(test_a_call_in_place_lets_more_urgent_groups_go_first),
        cmocka_unit_test(test_nothing_is_lost),
    };
    teffi_platform_init_real(&platform, TEFF_LOG_INFO);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
