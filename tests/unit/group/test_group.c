/* test_group.c - the state word: who is queued when, in which order, and what ends a run. */
#include "test.h"
#include <string.h>
#include "base/queue.h"
#include "sched/exec.h"
#include "group/group.h"

enum { ITEMS = 400 };

static struct {
    unsigned ready; /* calls of exec ready */
    unsigned handled[ITEMS];
    unsigned n_handled, ended;
    uint64_t now_ns;
    uint64_t item_ns;     /* what each item costs */
    unsigned again;       /* handle pushes its item again this often */
    unsigned complete_at; /* handle completes the group at this count */
    unsigned ticks_at;    /* the coarse clock advances at this count */
} seen;

static teffi_item item[ITEMS];

static void on_ready(teffi_exec *exec, teffi_group *group)
{
    seen.ready++;
}

static uint64_t on_clock(void *arg)
{
    return seen.now_ns;
}

static const teffi_exec_ops exec_ops = {.ready = on_ready};
static const teffi_platform platform = {.mono_ns = on_clock};
static teffi_exec exec = {.ops = &exec_ops, .platform = &platform};

static void on_item(teffi_group *group, teffi_item *it)
{
    assert_null(it->next);
    if (seen.n_handled < ITEMS)
        seen.handled[seen.n_handled] = it->kind;
    seen.n_handled++;
    seen.now_ns += seen.item_ns;
    if (seen.n_handled == seen.ticks_at)
        teffi_coarse_ms_set(&exec, 6);
    if (seen.complete_at && seen.n_handled == seen.complete_at)
        teffi_group_complete(group);
    if (seen.again) {
        seen.again--;
        assert_true(teffi_group_push(group, it));
    }
}

static void on_end(teffi_group *group)
{
    seen.ended++;
}

static const teffi_group_ops ops = {.handle = on_item, .ended = on_end};

static int setup(void **state)
{
    static teffi_group group;
    memset(&seen, 0, sizeof seen);
    memset(&group, 0xff, sizeof group);
    group.system = true; /* 0xff is no bool */
    atomic_store(&group.running, true);
    teffi_group_init(&group, &exec, &ops);
    for (unsigned i = 0; i < ITEMS; i++)
        item[i] = (teffi_item){.kind = i, .next = &item[ITEMS - 1]}; /* of an earlier queue */
    *state = &group;
    return 0;
}

static void push(teffi_group *group, unsigned from, unsigned n)
{
    for (unsigned i = from; i < from + n; i++)
        assert_true(teffi_group_push(group, &item[i]));
}

static void test_a_new_group_is_idle_and_empty(void **state)
{
    const teffi_group *group = *state;
    assert_int_equal(teffi_group_state_of(*state), TEFFI_GROUP_IDLE);
    assert_null(group->head);
    assert_int_equal(group->used, 0);
    assert_int_equal(group->priority, 0);
    assert_false(group->evicted || group->shares || group->blocked);
    assert_false(group->system);
    assert_false(group->running);
}

static void test_a_group_may_begin_ready(void **state)
{
    teffi_group_set_ready_with_item(*state, &item[3]);
    assert_int_equal(teffi_group_state_of(*state), TEFFI_GROUP_READY);
    push(*state, 0, 2);
    assert_int_equal(seen.ready, 0); /* the caller queues it */
    assert_false(teffi_group_run(*state, 100, 0));
    assert_int_equal(seen.n_handled, 3);
    assert_int_equal(seen.handled[0], 3);
}

static void test_a_complete_group_is_used_again(void **state)
{
    teffi_group_set_initially_complete(*state);
    assert_int_equal(teffi_group_state_of(*state), TEFFI_GROUP_COMPLETE);
    for (unsigned life = 1; life < 4; life++) {
        assert_false(teffi_group_push(*state, &item[0]));
        teffi_group_reuse(*state);
        assert_int_equal(teffi_group_state_of(*state), TEFFI_GROUP_IDLE);
        push(*state, 0, 1);
        assert_int_equal(teffi_group_state_of(*state), TEFFI_GROUP_READY);
        seen.complete_at = life;
        assert_int_equal(teffi_group_run_and_count(*state, 100, 0), 1 << 1);
        assert_int_equal(seen.ended, life);
        assert_int_equal(teffi_group_run_and_count(*state, 100, 0), 0);
    }
}

static void test_a_push_notes_the_coarse_clock(void **state)
{
    teffi_coarse_ms_set(&exec, 7);
    push(*state, 0, 1);
    teffi_coarse_ms_set(&exec, 0);
    assert_int_equal(item[0].at_ms, 7);
}

static void test_states_of_a_run(void **state)
{
    push(*state, 0, 3);
    assert_int_equal(teffi_group_state_of(*state), TEFFI_GROUP_READY);
    assert_int_equal(teffi_group_run_and_count(*state, 2, 0), 2 << 1 | 1);
    assert_int_equal(teffi_group_state_of(*state), TEFFI_GROUP_READY);
    assert_int_equal(teffi_group_run_and_count(*state, 2, 0), 1 << 1);
    assert_int_equal(teffi_group_state_of(*state), TEFFI_GROUP_IDLE);
    assert_int_equal(teffi_group_run_and_count(*state, 2, 0), 0);
    push(*state, 3, 1);
    assert_int_equal(teffi_group_state_of(*state), TEFFI_GROUP_READY);
    assert_int_equal(teffi_group_run_and_count(*state, 2, 0), 1 << 1);
    assert_true(teffi_group_claim(*state));
    assert_int_equal(teffi_group_state_of(*state), TEFFI_GROUP_RUNNING);
    push(*state, 4, 1);
    teffi_group_release_claim(*state);
    assert_int_equal(teffi_group_state_of(*state), TEFFI_GROUP_READY);
}

static void test_names_of_states(void **state)
{
    static const char *const names[] = {"IDLE", "READY", "RUNNING", "BLOCKED", "COMPLETE"};
    for (unsigned i = 0; i < 5; i++)
        assert_string_equal(teffi_group_state_name((teffi_group_state)i), names[i]);
}

static void test_ready_once(void **state)
{
    push(*state, 0, 3);
    assert_int_equal(seen.ready, 1);
    assert_false(teffi_group_run(*state, 100, 0));
    assert_int_equal(seen.n_handled, 3);
    push(*state, 3, 1);
    assert_int_equal(seen.ready, 2);
}

static void test_first_in_first_out(void **state)
{
    push(*state, 0, 50);
    assert_false(teffi_group_run(*state, 100, 0));
    for (unsigned i = 0; i < 50; i++)
        assert_int_equal(seen.handled[i], i);
}

static void test_run_of_idle_is_refused(void **state)
{
    assert_false(teffi_group_run(*state, 100, 0));
    assert_int_equal(seen.n_handled, 0);
}

static void test_item_budget_keeps_order(void **state)
{
    push(*state, 0, 10);
    assert_true(teffi_group_run(*state, 4, 0));
    assert_int_equal(seen.n_handled, 4);
    push(*state, 10, 5);
    assert_int_equal(seen.ready, 1); /* READY already: the run's caller queues it */
    assert_true(teffi_group_run(*state, 8, 0));
    assert_false(teffi_group_run(*state, 8, 0));
    assert_int_equal(seen.n_handled, 15);
    for (unsigned i = 0; i < 15; i++)
        assert_int_equal(seen.handled[i], i);
}

static void test_quantum(void **state)
{
    seen.item_ns = 30;
    push(*state, 0, 20);
    assert_true(teffi_group_run(*state, 100, 100)); /* looks after 2 (60) and 4 (120) */
    assert_int_equal(seen.n_handled, 4);
    assert_false(teffi_group_run(*state, 100, 0));
    assert_int_equal(seen.n_handled, 20);
}

static unsigned run_with_coarse_clock(teffi_group *group, unsigned ticks_at, uint64_t until_ns)
{
    void *state;
    assert_int_equal(setup(&state), 0);
    seen.item_ns = 30;
    seen.ticks_at = ticks_at;
    teffi_coarse_ms_set(&exec, 5);
    push(group, 0, 20);
    (void)teffi_group_run(group, 100, until_ns);
    teffi_coarse_ms_set(&exec, 0);
    return seen.n_handled;
}

/* The clock is read after 2, 4, 8 and 16 items, if the coarse clock has advanced since the last. */
static void test_quantum_by_the_coarse_clock(void **state)
{
    assert_int_equal(run_with_coarse_clock(*state, 0, 100), 20);
    assert_int_equal(run_with_coarse_clock(*state, 1, 100), 20); /* not over at 2 */
    assert_int_equal(run_with_coarse_clock(*state, 2, 100), 20); /* read at 2, not at 4 */
    assert_int_equal(run_with_coarse_clock(*state, 3, 100), 4);
    assert_int_equal(run_with_coarse_clock(*state, 5, 100), 8);
}

static void test_push_while_running_is_polled_again_in_place(void **state)
{
    seen.again = 5;
    push(*state, 0, 1);
    assert_false(teffi_group_run(*state, 100, 0));
    assert_int_equal(seen.n_handled, 6);
    assert_int_equal(seen.ready, 1);
}

static void test_sixth_poll_requeues(void **state)
{
    seen.again = 6;
    push(*state, 0, 1);
    assert_true(teffi_group_run(*state, 100, 0));
    assert_int_equal(seen.n_handled, 6);
    assert_false(teffi_group_run(*state, 100, 0));
    assert_int_equal(seen.n_handled, 7);
}

static void test_claim_idle_only(void **state)
{
    assert_true(teffi_group_claim(*state));
    assert_false(teffi_group_claim(*state));
    teffi_group_release_claim(*state);
    push(*state, 0, 1);
    assert_false(teffi_group_claim(*state)); /* READY: an item came first */
    assert_false(teffi_group_run(*state, 100, 0));
    assert_true(teffi_group_claim(*state));
    teffi_group_release_claim(*state);
    assert_int_equal(seen.ready, 1);
}

static void test_release_runs_what_came(void **state)
{
    assert_true(teffi_group_claim(*state));
    push(*state, 0, 2);
    assert_int_equal(seen.ready, 0);
    teffi_group_release_claim(*state);
    assert_int_equal(seen.ready, 1);
    assert_false(teffi_group_run(*state, 100, 0));
    assert_int_equal(seen.n_handled, 2);
}

static void test_complete_handles_the_queued_and_refuses_more(void **state)
{
    seen.complete_at = 1;
    push(*state, 0, 5);
    assert_true(teffi_group_run(*state, 3, 0));
    assert_false(teffi_group_push(*state, &item[9]));
    assert_int_equal(seen.ended, 0);
    assert_false(teffi_group_run(*state, 100, 0));
    assert_int_equal(seen.n_handled, 5);
    assert_int_equal(seen.ended, 1);
    assert_int_equal(seen.ready, 1);
}

/* Items of the batch that is handled, then those that were pushed since. */
static void test_complete_keeps_the_order_of_what_is_queued(void **state)
{
    seen.complete_at = 3;
    push(*state, 0, 6);
    assert_true(teffi_group_run(*state, 2, 0));
    push(*state, 6, 3);
    assert_false(teffi_group_run(*state, 100, 0));
    assert_int_equal(seen.n_handled, 9);
    for (unsigned i = 0; i < 9; i++)
        assert_int_equal(seen.handled[i], i);
    assert_int_equal(seen.ended, 1);
}

static void test_complete_in_a_claim(void **state)
{
    assert_true(teffi_group_claim(*state));
    push(*state, 0, 1);
    teffi_group_complete(*state);
    teffi_group_release_claim(*state);
    assert_int_equal(seen.ready, 1);
    assert_false(teffi_group_run(*state, 100, 0));
    assert_int_equal(seen.n_handled, 1);
    assert_int_equal(seen.ended, 1);
}

static void test_complete_empty_claim_ends_at_release(void **state)
{
    assert_true(teffi_group_claim(*state));
    teffi_group_complete(*state);
    assert_int_equal(seen.ended, 0);
    teffi_group_release_claim(*state);
    assert_int_equal(seen.ended, 1);
    assert_int_equal(seen.ready, 0);
}

static void test_drain(void **state)
{
    push(*state, 0, 4);
    assert_true(teffi_group_run(*state, 1, 0));
    push(*state, 4, 2);
    for (unsigned i = 1; i < 6; i++)
        assert_ptr_equal(teffi_group_take_item(*state), &item[i]);
    assert_null(teffi_group_take_item(*state));
}

/* ---- a turn that yields ---- */

static teffi_yielded_turn turn;
static unsigned resumed, yield_at;

static void yield_once(teffi_group *group, teffi_item *it)
{
    on_item(group, it);
    if (seen.n_handled == yield_at)
        teffi_group_prepend_yielded_turn(group, &turn);
}

static void on_resume(teffi_group *group, struct teffi_fiber *fiber)
{
    assert_ptr_equal(fiber, turn.fiber);
    resumed++;
}

static const teffi_group_ops yield_ops = {.handle = yield_once, .resume = on_resume};

static void yields_begin(teffi_group *group, bool stays)
{
    static char fiber;
    teffi_group_init(group, &exec, &yield_ops);
    turn = (teffi_yielded_turn){.fiber = (struct teffi_fiber *)(void *)&fiber, .stays = stays};
    resumed = 0;
    yield_at = 1;
    push(group, 0, 2);
}

static void test_a_turn_that_yields_is_resumed_before_other_items(void **state)
{
    yields_begin(*state, false);
    assert_int_equal(teffi_group_run_and_count(*state, 100, 0), 1 << 1 | 1);
    assert_int_equal(teffi_group_state_of(*state), TEFFI_GROUP_READY);
    push(*state, 2, 1);
    assert_int_equal(resumed, 0);
    assert_int_equal(teffi_group_run_and_count(*state, 100, 0), 2 << 1);
    assert_int_equal(resumed, 1);
    assert_int_equal(seen.n_handled, 3);
}

static void test_what_a_yielding_turn_has_behind_it_stays(void **state)
{
    yields_begin(*state, false);
    yield_at = 2;
    push(*state, 2, 3);
    assert_int_equal(teffi_group_run_and_count(*state, 100, 0), 2 << 1 | 1);
    assert_int_equal(teffi_group_run_and_count(*state, 100, 0), 3 << 1);
    for (unsigned i = 0; i < 5; i++)
        assert_int_equal(seen.handled[i], i);
}

static void test_a_turn_that_stays_is_resumed_after_go_on(void **state)
{
    yields_begin(*state, true);
    assert_int_equal(teffi_group_run_and_count(*state, 100, 0), 1 << 1);
    assert_int_equal(teffi_group_state_of(*state), TEFFI_GROUP_RUNNING);
    assert_int_equal(seen.ready, 1);
    teffi_group_make_ready(*state);
    assert_int_equal(teffi_group_state_of(*state), TEFFI_GROUP_READY);
    assert_int_equal(seen.ready, 2);
    assert_int_equal(teffi_group_run_and_count(*state, 100, 0), 1 << 1);
    assert_int_equal(resumed, 1);
    assert_int_equal(seen.n_handled, 2);
}

static void test_a_claim_whose_turn_yields_is_left(void **state)
{
    for (int stays = 0; stays < 2; stays++) {
        yields_begin(*state, stays);
        teffi_group_init(*state, &exec, &yield_ops);
        assert_true(teffi_group_claim(*state));
        teffi_group_prepend_yielded_turn(*state, &turn);
        assert_int_equal(teffi_group_release_yielded_claim(*state), !stays);
        assert_int_equal(teffi_group_state_of(*state),
                         stays ? TEFFI_GROUP_RUNNING : TEFFI_GROUP_READY);
    }
}

static void test_drain_drops_a_turn_that_will_not_resume(void **state)
{
    yields_begin(*state, false);
    assert_true(teffi_group_run(*state, 100, 0));
    assert_ptr_equal(teffi_group_take_item(*state), &item[1]);
    assert_null(teffi_group_take_item(*state));
}

/* ---- runs with a meter, and of evicted groups ---- */

static unsigned charges, evictions;

static void on_charge(teffi_meter *meter, teffi_group *group)
{
    assert_int_equal(teffi_group_state_of(group), TEFFI_GROUP_RUNNING); /* it still owns it */
    charges++;
}

static bool evict_even(teffi_group *group, teffi_item *it)
{
    evictions += it->kind % 2 == 0;
    return it->kind % 2 == 0;
}

static void test_each_end_of_a_run_is_charged(void **state)
{
    teffi_meter meter = {on_charge};
    charges = 0;
    assert_int_equal(teffi_group_run_with_meter(*state, 100, 0, &meter, false), 0); /* it is IDLE */
    push(*state, 0, 5);
    assert_int_equal(teffi_group_run_with_meter(*state, 2, 0, &meter, false), 2 << 1 | 1);
    assert_int_equal(charges, 2); /* at the end of a batch, too */
    assert_int_equal(teffi_group_run_with_meter(*state, 2, 0, &meter, false), 2 << 1 | 1);
    assert_int_equal(charges, 3);
    assert_int_equal(teffi_group_run_with_meter(*state, 2, 0, &meter, false), 1 << 1);
    assert_int_equal(charges, 4);
    yields_begin(*state, false);
    charges = 0;
    seen.n_handled = 0;
    assert_true(teffi_group_run_with_meter(*state, 100, 0, &meter, false) & 1);
    assert_int_equal(charges, 1);
    assert_false(teffi_group_run_with_meter(*state, 100, 0, NULL, false) & 1);
}

static void test_items_of_an_evicted_group_are_dropped_if_they_may_be(void **state)
{
    static const teffi_group_ops evict_ops = {.handle = on_item, .evict = evict_even};
    teffi_group_init(*state, &exec, &evict_ops);
    evictions = 0;
    push(*state, 0, 5);
    assert_int_equal(teffi_group_run_with_meter(*state, 100, 0, NULL, true), 5 << 1);
    assert_int_equal(evictions, 3);
    assert_int_equal(seen.n_handled, 2);
    push(*state, 0, 5);
    assert_false(teffi_group_run_with_meter(*state, 100, 0, NULL, false) & 1);
    assert_int_equal(seen.n_handled, 7);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup(test_a_new_group_is_idle_and_empty, setup),
        cmocka_unit_test_setup(test_a_group_may_begin_ready, setup),
        cmocka_unit_test_setup(test_a_complete_group_is_used_again, setup),
        cmocka_unit_test_setup(test_a_push_notes_the_coarse_clock, setup),
        cmocka_unit_test_setup(test_states_of_a_run, setup),
        cmocka_unit_test_setup(test_names_of_states, setup),
        cmocka_unit_test_setup(test_ready_once, setup),
        cmocka_unit_test_setup(test_first_in_first_out, setup),
        cmocka_unit_test_setup(test_run_of_idle_is_refused, setup),
        cmocka_unit_test_setup(test_item_budget_keeps_order, setup),
        cmocka_unit_test_setup(test_quantum, setup),
        cmocka_unit_test_setup(test_quantum_by_the_coarse_clock, setup),
        cmocka_unit_test_setup(test_push_while_running_is_polled_again_in_place, setup),
        cmocka_unit_test_setup(test_sixth_poll_requeues, setup),
        cmocka_unit_test_setup(test_claim_idle_only, setup),
        cmocka_unit_test_setup(test_release_runs_what_came, setup),
        cmocka_unit_test_setup(test_complete_handles_the_queued_and_refuses_more, setup),
        cmocka_unit_test_setup(test_complete_in_a_claim, setup),
        cmocka_unit_test_setup(test_complete_empty_claim_ends_at_release, setup),
        cmocka_unit_test_setup(test_drain, setup),
        cmocka_unit_test_setup(test_complete_keeps_the_order_of_what_is_queued, setup),
        cmocka_unit_test_setup(test_a_turn_that_yields_is_resumed_before_other_items, setup),
        cmocka_unit_test_setup(test_what_a_yielding_turn_has_behind_it_stays, setup),
        cmocka_unit_test_setup(test_a_turn_that_stays_is_resumed_after_go_on, setup),
        cmocka_unit_test_setup(test_a_claim_whose_turn_yields_is_left, setup),
        cmocka_unit_test_setup(test_drain_drops_a_turn_that_will_not_resume, setup),
        cmocka_unit_test_setup(test_each_end_of_a_run_is_charged, setup),
        cmocka_unit_test_setup(test_items_of_an_evicted_group_are_dropped_if_they_may_be, setup),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
