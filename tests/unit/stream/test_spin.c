/* test_spin.c - when the thread that polls spins before it sleeps. */
#include "stream/spin.h"

#include "test.h"

enum { SHORT = TEFFI_WAIT_SHORT_NS - 1, LONG = TEFFI_WAIT_SHORT_NS, TRY_EVERY = 64 };

/* A wait; found: its spin, if it spins, finds events. out: did it spin? */
static bool wait_once(teffi_spin *spin, size_t bytes, bool found, uint64_t ns)
{
    uint64_t spin_ns = teffi_spin_choose_ns(spin, bytes);
    if (spin_ns)
        assert_int_equal(spin_ns, TEFFI_SPIN_NS);
    teffi_spin_record_wait(spin, spin_ns, spin_ns && found, ns);
    return spin_ns;
}

/* out: the spins in n waits. */
static unsigned count_spins(teffi_spin *spin, unsigned n, size_t bytes, bool found, uint64_t ns)
{
    unsigned spins = 0;
    while (n--)
        spins += wait_once(spin, bytes, found, ns);
    return spins;
}

static void an_idle_thread_never_spins(void **state)
{
    teffi_spin spin = {0};
    assert_int_equal(count_spins(&spin, 10000, 0, true, LONG), 0);
    for (int i = 0; i < 100; i++) { /* a long wait comes before each try */
        assert_int_equal(count_spins(&spin, TRY_EVERY - 1, 0, true, SHORT), 0);
        assert_int_equal(count_spins(&spin, 1, 0, true, LONG), 0);
    }
}

static void a_spin_is_tried_after_64_short_waits(void **state)
{
    teffi_spin spin = {0};
    assert_int_equal(count_spins(&spin, TRY_EVERY, 0, false, SHORT), 0);
    assert_true(wait_once(&spin, 0, false, SHORT));
    assert_int_equal(count_spins(&spin, 100 * (TRY_EVERY + 1), 0, false, SHORT), 100);
}

static void spins_that_find_events_go_on(void **state)
{
    teffi_spin spin = {0};
    (void)count_spins(&spin, TRY_EVERY, 0, false, SHORT);
    assert_int_equal(count_spins(&spin, 1000, 0, true, SHORT), 1000);
    assert_int_equal(count_spins(&spin, TRY_EVERY, 0, false, SHORT), 4); /* in vain */
}

/* What one spin in five finds does not pay for the others. */
static void spins_that_find_little_end(void **state)
{
    teffi_spin spin = {.credit = 16};
    unsigned spins = 0;
    for (int i = 0; i < 50; i++)
        spins += wait_once(&spin, 0, i % 5 == 0, SHORT);
    assert_in_range(spins, 4, 8);
}

static void a_long_wait_ends_the_spins(void **state)
{
    teffi_spin spin = {.credit = 16};
    assert_true(wait_once(&spin, 0, false, LONG));
    assert_int_equal(count_spins(&spin, TRY_EVERY, 0, true, SHORT), 0);
}

static void who_receives_much_sleeps(void **state)
{
    teffi_spin spin = {.credit = 16};
    assert_false(wait_once(&spin, TEFFI_SPIN_BYTES_MAX + 1, true, SHORT));
    assert_true(wait_once(&spin, TEFFI_SPIN_BYTES_MAX, true, SHORT));
    spin = (teffi_spin){0};
    assert_int_equal(count_spins(&spin, 1000, TEFFI_SPIN_BYTES_MAX + 1, true, SHORT), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(an_idle_thread_never_spins),
        cmocka_unit_test(a_spin_is_tried_after_64_short_waits),
        cmocka_unit_test(spins_that_find_events_go_on),
        cmocka_unit_test(spins_that_find_little_end),
        cmocka_unit_test(a_long_wait_ends_the_spins),
        cmocka_unit_test(who_receives_much_sleeps),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
