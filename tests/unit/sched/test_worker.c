/* test_worker.c - the global queue of READY groups: one worker at a time runs a group, first in
 * first out, for its quantum; then others run.
 * Source:  Orleans src/Orleans.Runtime/Scheduler/WorkItemGroup.cs */
#include "hand_clock.h"
#include <stdlib.h>
#include "held_monitor.h"
#include "os/thread.h"
#include "sched/queue/runqueue.h"

typedef struct numbered { /* an item that knows its place */
    teffi_item item;
    uint32_t no;
} numbered;

typedef struct list { /* a group that checks the order in which it is given its items */
    teffi_group group;
    numbered *items;
    _Atomic uint32_t handled;
    uint32_t next; /* plain: runs exclude each other */
    _Atomic uint32_t disorder, inside, overlaps;
    uint64_t costs_ms; /* of each of the first `costly` items, by the test's clock */
    uint32_t costly;
    world *world;
    struct list *other;
    _Atomic uint32_t other_had; /* what the other had handled when this one's first item came */
} list;

/* The quantum is looked at when the executor's coarse clock has gone on, so that has to see it. */
static void pass_ms(list *l, uint64_t ms)
{
    const teffi_exec *exec = l->group.exec;
    uint32_t before = teffi_coarse_ms(exec);
    world_pass_ms(l->world, ms);
    while (before && teffi_coarse_ms(exec) == before)
        teffi_thread_yield();
}

static void on_item(teffi_group *group, teffi_item *item)
{
    list *l = teffi_container(group, list, group);
    if (atomic_fetch_add(&l->inside, 1))
        atomic_fetch_add(&l->overlaps, 1);
    if (l->next == 0 && l->other)
        atomic_store(&l->other_had, atomic_load(&l->other->handled));
    if (teffi_container(item, numbered, item)->no != l->next++)
        atomic_fetch_add(&l->disorder, 1);
    if (l->costs_ms && l->next <= l->costly)
        pass_ms(l, l->costs_ms);
    else if (l->costs_ms && l->next == l->costly + 1)
        pass_ms(l, 1); /* a run looks at the clock when the coarse one goes on */
    atomic_fetch_sub(&l->inside, 1);
    atomic_fetch_add(&l->handled, 1);
}

static const teffi_group_ops list_ops = {.handle = on_item};

static void list_init(list *l, teffi_exec *exec, uint32_t n)
{
    *l = (list){.items = calloc(n, sizeof *l->items)};
    assert_non_null(l->items);
    for (uint32_t i = 0; i < n; i++)
        l->items[i].no = i;
    teffi_group_init(&l->group, exec, &list_ops);
}

static void push(list *l, uint32_t from, uint32_t n)
{
    for (uint32_t i = from; i < from + n; i++)
        (void)teffi_group_push(&l->group, &l->items[i].item);
}

/* Many groups, several workers that steal: each group is drained in its own order, by one worker at
 * a time, over as many runs as it takes. */
static void items_are_handled_in_the_order_of_their_pushes(void **state)
{
    enum { LISTS = 24, ITEMS = 6000, ROUND = 50 };
    static list lists[LISTS];
    teffi_platform platform;
    teffi_platform_init_real(&platform, TEFF_LOG_WARN);
    teffi_exec *exec = exec_of(&platform, 4, (teff_sched_options){0});
    for (unsigned i = 0; i < LISTS; i++)
        list_init(&lists[i], exec, ITEMS);
    for (uint32_t at = 0; at < ITEMS; at += ROUND)
        for (unsigned i = 0; i < LISTS; i++)
            push(&lists[i], at, ROUND);
    for (unsigned i = 0; i < LISTS; i++) {
        until(atomic_load(&lists[i].handled) == ITEMS);
        assert_int_equal(atomic_load(&lists[i].disorder), 0);
        assert_int_equal(atomic_load(&lists[i].overlaps), 0);
    }
    exec->ops->free(exec);
    for (unsigned i = 0; i < LISTS; i++)
        free(lists[i].items);
}

/* ---- what a group may use before others have their turn ---- */

typedef struct starter { /* a turn that pushes for both lists, so that both are READY at once */
    teffi_group group;
    teffi_item item;
    list *first, *second;
    uint32_t n;
} starter;

static void on_start(teffi_group *group, teffi_item *item)
{
    starter *s = teffi_container(group, starter, group);
    push(s->second, 0, 1);
    push(s->first, 0, s->n); /* READY last, so it is the next that this worker runs */
}

static const teffi_group_ops starter_ops = {.handle = on_start};

typedef struct outcome {
    uint32_t
        before; /* how many of the first list's items were handled when the second one's came */
    uint64_t requeues; /* how often the first list was put behind the others */
} outcome;

/* in: the first list has n items, of which the first `costly` take costs_ms; the second has one.
 * out: false: a run has lost its processor, and its requeue is not counted. */
static bool try_two(uint32_t n, uint32_t costly, uint64_t costs_ms, outcome *out)
{
    static list first, second;
    world w;
    starter s = {.first = &first, .second = &second, .n = n};
    teff_sched_metrics all;
    teff_sched_worker counters;
    world_init(&w);
    if (!costly) /* the clock stands; nor does a slice end, however slow the machine is */
        monitor_hold(&w.platform);
    teffi_exec *exec = exec_of(&w.platform, 1, (teff_sched_options){0});
    list_init(&first, exec, n);
    list_init(&second, exec, 1);
    first.costs_ms = costs_ms;
    first.costly = costly;
    first.world = &w;
    second.other = &first;
    teffi_group_init(&s.group, exec, &starter_ops);
    (void)teffi_group_push(&s.group, &s.item);
    until(atomic_load(&first.handled) == n && atomic_load(&second.handled) == 1);
    assert_int_equal(atomic_load(&first.disorder), 0);
    (void)exec->ops->metrics(exec, &all, &counters, 1);
    monitor_release();
    exec->ops->free(exec);
    free(first.items);
    free(second.items);
    *out = (outcome){atomic_load(&second.other_had), counters.requeues};
    return all.threads == 1;
}

static outcome run_two(uint32_t n, uint32_t costly, uint64_t costs_ms)
{
    outcome out;
    while (!try_two(n, costly, costs_ms, &out))
        ;
    return out;
}

static void a_group_over_its_item_budget_goes_behind_others(void **state)
{
    assert_int_equal(run_two(256, 0, 0).requeues, 0);
    assert_int_equal(run_two(257, 0, 0).requeues, 1);
    assert_int_equal(run_two(5000, 0, 0).before, 256);
}

/* 100 ms, by the clock that is set by hand: far fewer items than the budget of items allows. */
static void a_group_over_its_quantum_goes_behind_others(void **state)
{
    enum { FEW = 40 };
    assert_in_range(run_two(FEW, FEW, 60).before, 0, FEW / 2);
    assert_int_equal(run_two(FEW, 1, 95).requeues, 0);
    assert_int_equal(run_two(FEW, 1, 105).requeues, 1); /* its next quantum begins after it */
}

/* ---- the rule by itself, on an executor that does nothing but keep the global queue ---- */

typedef struct plain {
    teffi_exec exec;
    teffi_runqueue queue;
} plain;

static void to_queue(teffi_exec *exec, teffi_group *group)
{
    teffi_runqueue_push(&((plain *)exec)->queue, group);
}

static const teffi_exec_ops plain_ops = {.ready = to_queue};

static const teffi_group_ops two[] = {{.handle = on_item}, {.handle = on_item}};

/* As a worker does: the oldest READY group runs; one that used up its share goes to the tail. */
static unsigned drain(plain *p, unsigned items_max, uint64_t quantum_ns, char *trace)
{
    teffi_group *group;
    unsigned n = 0;
    while (teffi_runqueue_pop(&p->queue, &group, 1)) {
        trace[n++] = (char)('a' + (group->ops - two));
        if (teffi_group_run(group, items_max, teffi_now(p->exec.platform) + quantum_ns))
            teffi_runqueue_push(&p->queue, group);
    }
    trace[n] = '\0';
    return n;
}

static void runs_alternate_and_stay_in_order(void **state)
{
    list first, second;
    char trace[64];
    world w;
    world_init(&w);
    plain p = {.exec = {.ops = &plain_ops, .platform = &w.platform}};
    teffi_warn_init(&p.exec.warn, &(teff_sched_options){0});
    teffi_runqueue_init(&p.queue);
    list_init(&first, &p.exec, 20);
    list_init(&second, &p.exec, 20);
    teffi_group_init(&first.group, &p.exec, &two[0]);
    teffi_group_init(&second.group, &p.exec, &two[1]);
    push(&first, 0, 10);
    push(&second, 0, 5);
    drain(&p, 4, 100000000, trace);
    assert_string_equal(trace, "ababa"); /* 4, 4, 4, 1, 2 */
    first.costs_ms = 60;
    first.costly = UINT32_MAX;
    first.world = &w;
    push(&first, 10, 5);
    push(&second, 5, 5);
    drain(&p, 1000, 100000000, trace);
    assert_string_equal(trace, "abaa"); /* 2 of 60 ms, 5 at no cost, 2, 1 */
    assert_int_equal(first.handled, 15);
    assert_int_equal(second.handled, 10);
    assert_int_equal(first.disorder + second.disorder, 0);
    teffi_runqueue_fini(&p.queue);
    free(first.items);
    free(second.items);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(items_are_handled_in_the_order_of_their_pushes),
        cmocka_unit_test(a_group_over_its_item_budget_goes_behind_others),
        cmocka_unit_test(a_group_over_its_quantum_goes_behind_others),
        cmocka_unit_test(runs_alternate_and_stay_in_order),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
