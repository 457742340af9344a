/* test_closure.c - a closure runs in its group's turn, in its place in the queue; a completed group
 * refuses it, a stopped executor drops it. */
#include "../sched/hand_clock.h"

static teffi_platform platform;

typedef struct actor {
    teffi_group group;
    teffi_item item;
    char trace[8]; /* of its turns */
    unsigned n;
    _Atomic bool done;
} actor;

static void on_closure(void *arg)
{
    actor *a = arg;
    assert_ptr_equal(a->group.exec->ops->current(a->group.exec), &a->group);
    a->trace[a->n++] = 'c';
    atomic_store(&a->done, true);
}

/* The closure that is pushed in a turn runs after the turn. */
static void on_item(teffi_group *group, teffi_item *item)
{
    actor *a = teffi_container(group, actor, group);
    if (item->kind == TEFFI_ITEM_CLOSURE) {
        teffi_closure_run(item);
        return;
    }
    a->trace[a->n++] = '(';
    assert_int_equal(teffi_closure_push(group, on_closure, a), TEFF_OK);
    a->trace[a->n++] = ')';
}

static void actor_init(actor *a, teffi_exec *exec)
{
    static const teffi_group_ops ops = {.handle = on_item};
    memset(a, 0, sizeof *a);
    teffi_group_init(&a->group, exec, &ops);
}

static void a_closure_runs_in_its_groups_turn_in_order(void **state)
{
    actor a;
    teffi_exec *exec = exec_of(&platform, 2, (teff_sched_options){0});
    actor_init(&a, exec);
    (void)teffi_group_push(&a.group, &a.item);
    until(atomic_load(&a.done));
    exec->ops->free(exec);
    assert_string_equal(a.trace, "()c");
}

static void a_completed_group_refuses(void **state)
{
    actor a;
    teffi_exec *exec = exec_of(&platform, 1, (teff_sched_options){0});
    actor_init(&a, exec);
    assert_true(teffi_group_claim(&a.group));
    teffi_group_complete(&a.group);
    teffi_group_release_claim(&a.group);
    assert_int_equal(teffi_closure_push(&a.group, on_closure, &a), TEFF_E_CLOSED);
    exec->ops->free(exec);
    assert_false(atomic_load(&a.done));
}

static void never(void *arg)
{
    *(bool *)arg = true;
}

static void what_the_null_group_has_left_is_dropped(void **state)
{
    bool ran = false;
    teffi_exec *exec = exec_of(&platform, 1, (teff_sched_options){0});
    exec->ops->stop(exec);
    for (unsigned i = 0; i < 100; i++) /* freed: the leak checker would tell */
        assert_int_equal(teffi_closure_push(&exec->null_group, never, &ran), TEFF_OK);
    exec->ops->free(exec);
    assert_false(ran);
}

static void the_null_group_has_a_description(void **state)
{
    char text[TEFFI_DESCRIBE_MAX] = "";
    teffi_exec *exec = exec_of(&platform, 1, (teff_sched_options){0});
    teffi_group_describe(&exec->null_group, text);
    exec->ops->free(exec);
    assert_string_equal(text, "the null group");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_closure_runs_in_its_groups_turn_in_order),
        cmocka_unit_test(a_completed_group_refuses),
        cmocka_unit_test(what_the_null_group_has_left_is_dropped),
        cmocka_unit_test(the_null_group_has_a_description),
    };
    teffi_platform_init_real(&platform, TEFF_LOG_WARN);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
