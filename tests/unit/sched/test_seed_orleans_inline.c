/* test_seed_orleans_inline.c - the "Orleans" seed: work started in a turn for its own scheduler may
 * run in place; work for another one, or work that is queued, may not. Closures end once. */
#include "test_seed_orleans.h"

static teffi_platform platform;

enum { TRACE_MAX = 64 };

typedef struct actor {
    teffi_group group;
    teffi_item item;
    void (*run)(struct actor *actor);
    struct actor *other;
    char trace[TRACE_MAX]; /* of its turns; read when done says that they are over */
    unsigned n;
    _Atomic unsigned done;
} actor;

typedef struct work {
    teffi_closure closure;
    actor *actor;
    char letter;
    unsigned deeper; /* does as many more in itself */
    _Atomic unsigned ran, dropped;
    teffi_group *ran_in;
} work;

static void note(actor *a, char letter)
{
    if (a->n < TRACE_MAX - 1)
        a->trace[a->n++] = letter;
}

static void on_item(teffi_group *group, teffi_item *item)
{
    actor *a = teffi_container(group, actor, group);
    if (item->kind == TEFFI_ITEM_CLOSURE)
        teffi_closure_arrived(item);
    else
        a->run(a);
}

static const teffi_group_ops ops = {.handle = on_item};

static void actor_init(actor *a, teffi_exec *exec, void (*run)(actor *actor))
{
    memset(a, 0, sizeof *a);
    a->run = run;
    teffi_group_init(&a->group, exec, &ops);
}

enum { DEEPER = 10 };

static work deep[DEEPER + 1];

static void on_work(teffi_closure *closure)
{
    work *w = teffi_container(closure, work, closure);
    w->ran_in = teffi_context_current(w->actor->group.exec).group;
    note(w->actor, w->letter);
    if (w->deeper) {
        work *more = w + 1;
        teffi_done done = teffi_closure_do(&w->actor->group, &more->closure);
        note(w->actor, done == TEFFI_RAN ? '+' : '-');
    }
    atomic_fetch_add(&w->ran, 1);
}

static void on_drop(teffi_closure *closure)
{
    atomic_fetch_add(&teffi_container(closure, work, closure)->dropped, 1);
}

static work work_of(actor *a, char letter)
{
    return (work){.closure = {.run = on_work, .drop = on_drop}, .actor = a, .letter = letter};
}

/* ---- its own group ---- */

static work own, later;

static void does_its_own(actor *a)
{
    note(a, '(');
    assert_int_equal(teffi_closure_push(&a->group, &later.closure), TEFFI_QUEUED);
    assert_int_equal(teffi_closure_do(&a->group, &own.closure), TEFFI_RAN);
    assert_int_equal(teffi_closure_do(&a->group, &later.closure), TEFFI_REFUSED); /* it is queued */
    note(a, ')');
    atomic_store(&a->done, 1);
}

static void own_work_runs_in_place_and_queued_work_keeps_its_place(void **state)
{
    actor a;
    (void)state;
    teffi_exec *exec = exec_of(&platform, 2, (teff_sched_options){0});
    actor_init(&a, exec, does_its_own);
    own = work_of(&a, 'o');
    later = work_of(&a, 'l');
    (void)teffi_group_push(&a.group, &a.item);
    until(atomic_load(&later.ran) == 1);
    exec->ops->free(exec);
    assert_string_equal(a.trace, "(o)l");
    assert_ptr_equal(own.ran_in, &a.group);
    assert_ptr_equal(later.ran_in, &a.group);
}

/* ---- another's, and from outside ---- */

static work others;

static void does_anothers(actor *a)
{
    assert_int_equal(teffi_closure_do(&a->other->group, &others.closure), TEFFI_QUEUED);
    note(a, '.');
    atomic_store(&a->done, 1);
}

static void anothers_work_is_queued_there(void **state)
{
    actor a, b;
    (void)state;
    teffi_exec *exec = exec_of(&platform, 2, (teff_sched_options){0});
    actor_init(&a, exec, does_anothers);
    actor_init(&b, exec, NULL);
    a.other = &b;
    others = work_of(&b, 'x');
    (void)teffi_group_push(&a.group, &a.item);
    until(atomic_load(&others.ran) == 1 && atomic_load(&a.done));
    exec->ops->free(exec);
    assert_string_equal(a.trace, ".");
    assert_string_equal(b.trace, "x");
    assert_ptr_equal(others.ran_in, &b.group);
}

static void work_from_outside_is_queued(void **state)
{
    actor a;
    (void)state;
    teffi_exec *exec = exec_of(&platform, 1, (teff_sched_options){0});
    actor_init(&a, exec, NULL);
    own = work_of(&a, 'o');
    assert_int_equal(teffi_closure_do(&a.group, &own.closure), TEFFI_QUEUED);
    until(atomic_load(&own.ran) == 1);
    exec->ops->free(exec);
    assert_ptr_equal(own.ran_in, &a.group);
}

/* A turn that waits runs another group nested on top of itself: that one's turn is not its own. */
static void waits_nested(actor *a)
{
    (void)teffi_group_push(&a->other->group, &a->other->item);
    time_t since = 0;
    while (!atomic_load(&a->other->done) && pause_a_little(&since))
        (void)a->group.exec->ops->help(a->group.exec);
    atomic_store(&a->done, 1);
}

static void a_nested_turn_does_not_run_work_of_the_outer_one(void **state)
{
    actor a, b;
    (void)state;
    teffi_exec *exec = exec_of(&platform, 1, (teff_sched_options){0});
    actor_init(&a, exec, waits_nested);
    actor_init(&b, exec, does_anothers);
    a.other = &b;
    b.other = &a;
    others = work_of(&a, 'x');
    (void)teffi_group_push(&a.group, &a.item);
    until(atomic_load(&others.ran) == 1 && atomic_load(&a.done));
    exec->ops->free(exec);
    assert_string_equal(b.trace, ".");
    assert_string_equal(a.trace, "x");
    assert_ptr_equal(others.ran_in, &a.group);
}

/* ---- how deep ---- */

static void does_a_deep_one(actor *a)
{
    (void)teffi_closure_do(&a->group, &deep[0].closure);
}

/* Eight in one another, the ninth is queued and begins anew. */
static void closures_in_one_another_have_a_limit(void **state)
{
    actor a;
    (void)state;
    teffi_exec *exec = exec_of(&platform, 1, (teff_sched_options){0});
    actor_init(&a, exec, does_a_deep_one);
    for (unsigned i = 0; i <= DEEPER; i++) {
        deep[i] = work_of(&a, (char)('a' + i));
        deep[i].deeper = DEEPER - i;
    }
    (void)teffi_group_push(&a.group, &a.item);
    until(atomic_load(&deep[8].ran) == 1);
    exec->ops->free(exec);
    assert_string_equal(a.trace, "abcdefgh-+++++++ijk++");
}

/* ---- the end ---- */

static void a_completed_group_refuses(void **state)
{
    actor a;
    (void)state;
    teffi_exec *exec = exec_of(&platform, 1, (teff_sched_options){0});
    actor_init(&a, exec, NULL);
    assert_true(teffi_group_claim(&a.group));
    teffi_group_complete(&a.group);
    teffi_group_release(&a.group);
    own = work_of(&a, 'o');
    assert_int_equal(teffi_closure_push(&a.group, &own.closure), TEFFI_REFUSED);
    assert_int_equal(teffi_closure_do(&a.group, &own.closure), TEFFI_REFUSED);
    exec->ops->free(exec);
    assert_int_equal(atomic_load(&own.ran) + atomic_load(&own.dropped), 0);
}

static void never(void *arg)
{
    *(bool *)arg = true;
}

static void what_the_null_context_has_left_is_dropped(void **state)
{
    static work left[100];
    actor a;
    bool ran = false;
    (void)state;
    teffi_exec *exec = exec_of(&platform, 1, (teff_sched_options){0});
    actor_init(&a, exec, NULL);
    exec->ops->stop(exec);
    for (unsigned i = 0; i < 100; i++) {
        left[i] = work_of(&a, 'l');
        assert_int_equal(teffi_closure_push(&exec->null, &left[i].closure), TEFFI_QUEUED);
    }
    assert_int_equal(teffi_closure_push(&exec->null, teffi_closure_new(never, &ran)),
                     TEFFI_QUEUED); /* freed: the leak checker would tell */
    exec->ops->free(exec);
    for (unsigned i = 0; i < 100; i++) {
        assert_int_equal(atomic_load(&left[i].dropped), 1);
        assert_int_equal(atomic_load(&left[i].ran), 0);
    }
    assert_false(ran);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(own_work_runs_in_place_and_queued_work_keeps_its_place),
        cmocka_unit_test(anothers_work_is_queued_there),
        cmocka_unit_test(work_from_outside_is_queued),
        cmocka_unit_test(a_nested_turn_does_not_run_work_of_the_outer_one),
        cmocka_unit_test(closures_in_one_another_have_a_limit),
        cmocka_unit_test(a_completed_group_refuses),
        cmocka_unit_test(what_the_null_context_has_left_is_dropped),
    };
    teffi_platform_real(&platform, TEFFI_WARN);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
