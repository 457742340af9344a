/* test_deque.c - order, batch sizes, growth and index wrap of the deque, on one thread.
 * Races: explore/scene_deque.c runs the code itself, with weak stores and planted bugs, and
 * model/deque.pml is exhaustive for few items. stress/stress_steal.c steals on real threads. */
#include "../faults.h"
#include "sched/queue/deque.h"

static char cell[5000]; /* items are addresses in here */

static int setup(void **state)
{
    static teffi_deque deque;
    *state = &deque;
    return teffi_deque_init(&deque) ? 0 : -1;
}

static int teardown(void **state)
{
    teffi_deque_fini(*state);
    teffi_deque_fini(*state); /* zeroed memory */
    return 0;
}

static void push(teffi_deque *deque, unsigned from, unsigned n)
{
    for (unsigned i = from; i < from + n; i++)
        assert_true(teffi_deque_push(deque, &cell[i]));
}

static void test_empty(void **state)
{
    void *out[4];
    assert_null(teffi_deque_pop(*state));
    assert_int_equal(teffi_deque_steal(*state, out, 4), 0);
    assert_int_equal(teffi_deque_count(*state), 0);
}

static void test_owner_pops_newest(void **state)
{
    push(*state, 0, 100); /* far from the top first, then near */
    for (unsigned i = 100; i-- > 0;)
        assert_ptr_equal(teffi_deque_pop(*state), &cell[i]);
    assert_null(teffi_deque_pop(*state));
}

static void check_steal(teffi_deque *deque, unsigned max, unsigned from, unsigned want)
{
    void *out[2 * TEFFI_STEAL_MAX];
    assert_int_equal(teffi_deque_steal(deque, out, max), want);
    for (unsigned i = 0; i < want; i++)
        assert_ptr_equal(out[i], &cell[from + i]);
}

static void test_thief_takes_the_older_half(void **state)
{
    push(*state, 0, 10);
    check_steal(*state, 64, 0, 5);
    check_steal(*state, 64, 5, 3); /* half of five, rounded up */
    check_steal(*state, 1, 8, 1);
    check_steal(*state, 64, 9, 1);
    check_steal(*state, 64, 0, 0);
}

static void test_batch_is_bounded(void **state)
{
    push(*state, 0, 1000);
    check_steal(*state, 1000, 0, TEFFI_STEAL_MAX);
    assert_int_equal(teffi_deque_count(*state), 1000 - TEFFI_STEAL_MAX);
}

static void test_grows(void **state)
{
    push(*state, 0, 200);
    check_steal(*state, 64, 0, 32);
    push(*state, 200, 4000); /* wraps round the first ring, then doubles four times */
    for (unsigned i = 4200; i-- > 32;)
        assert_ptr_equal(teffi_deque_pop(*state), &cell[i]);
    assert_null(teffi_deque_pop(*state));
}

static void test_indices_wrap(void **state)
{
    teffi_deque *deque = *state;
    atomic_store(&deque->bottom, UINT32_MAX - 20);
    atomic_store(&deque->top, (uint64_t)(UINT32_MAX - 20) << 32 | UINT32_MAX);
    push(deque, 0, 400);
    check_steal(deque, 64, 0, 32);
    for (unsigned i = 400; i-- > 32;)
        assert_ptr_equal(teffi_deque_pop(deque), &cell[i]);
    assert_null(teffi_deque_pop(deque));
    assert_int_equal(teffi_deque_count(deque), 0);
    push(deque, 7, 1);
    assert_ptr_equal(teffi_deque_pop(deque), &cell[7]);
}

/* A claim of a thief that has read `top` before the owner took an item near it must fail. */
static void test_a_pop_near_the_top_ends_claims_of_thieves(void **state)
{
    static const uint32_t begins[] = {0, 1000, 0x50000000, 0x80000001, 0xfffffffe};
    teffi_deque *deque = *state;
    for (unsigned i = 0; i < sizeof begins / sizeof begins[0]; i++) {
        atomic_store(&deque->bottom, begins[i]);
        atomic_store(&deque->top, (uint64_t)begins[i] << 32);
        push(deque, 0, 3);
        assert_int_equal(teffi_deque_count(deque), 3);
        for (unsigned k = 3; k-- > 0;) {
            uint64_t seen = atomic_load(&deque->top);
            assert_ptr_equal(teffi_deque_pop(deque), &cell[k]);
            assert_true(seen != atomic_load(&deque->top));
        }
        assert_null(teffi_deque_pop(deque));
    }
}

static teff_err push_many(void)
{
    static teffi_deque deque;
    bool ok = teffi_deque_init(&deque);
    unsigned n = 0;
    while (ok && n < 1000 && (ok = teffi_deque_push(&deque, &cell[n])))
        n++;
    for (unsigned i = n; i-- > 0;) /* none is lost when it cannot grow */
        assert_ptr_equal(teffi_deque_pop(&deque), &cell[i]);
    teffi_deque_fini(&deque);
    return ok ? TEFF_OK : TEFF_E_NOMEM;
}

static void test_without_memory_a_push_fails(void **state)
{
    assert_true(fault_sweep(push_many, true) > 1);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_empty, setup, teardown),
        cmocka_unit_test_setup_teardown(test_owner_pops_newest, setup, teardown),
        cmocka_unit_test_setup_teardown(test_thief_takes_the_older_half, setup, teardown),
        cmocka_unit_test_setup_teardown(test_batch_is_bounded, setup, teardown),
        cmocka_unit_test_setup_teardown(test_grows, setup, teardown),
        cmocka_unit_test_setup_teardown(test_indices_wrap, setup, teardown),
        cmocka_unit_test_setup_teardown(test_a_pop_near_the_top_ends_claims_of_thieves, setup,
                                        teardown),
        cmocka_unit_test(test_without_memory_a_push_fails),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
