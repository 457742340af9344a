/* test_peak.c - many turns wait at once, or many messages; when they are over, and nothing runs any
 * more, their memory goes back to the system by itself. */
#include <string.h>
#include "acts.h"
#include "os/pages.h"
#include "resident.h"

/* TURNS: fewer than TEFFI_GUARDS_MAX, so that it runs on every kernel. */
enum { KEEPERS = 4, TURNS = 15000, MESSAGES = 100000, BUSY = 16, GUARDS = 300 };

/* What a peak adds is there at all, and a quarter of it at most stays: activations, which are kept,
 * and what the heap cannot give back. */
enum { TURN_BYTES_MIN = 4096, MESSAGE_BYTES_MIN = 512, STAYS_MAX = 4 };

static teff_err is_told(teff_ctx *turn, int64_t key, const direct_act *in, direct_number *out)
{
    return key ? TEFF_OK : TEFF_E_FAILED;
}

static teff_err asks_a_keeper(teff_ctx *turn, int64_t key, const direct_act *in, direct_number *out)
{
    direct_number *got;
    return direct_actor_obey(turn, 1 + key % KEEPERS, RUN(responds), &got);
}

static teff_err keeps(teff_ctx *turn, int64_t key, const direct_act *in, direct_number *out)
{
    direct_number unused;
    return waits(turn, key, in, &unused);
}

static void tell(int64_t key, script *what)
{
    lab_ok(ctx, direct_actor_tell(ctx, key, RUN(what)));
    teff_ctx_reset(ctx);
}

static void hold(int64_t first, int n)
{
    world.gate = false;
    for (int i = 0; i < n; i++)
        tell(first + i, keeps);
    lab_until(world.held == n);
}

static void open_gate(void)
{
    world.gate = true;
    lab_until(world.held == 0);
}

static void wait_for_turns(int n)
{
    hold(1, KEEPERS);
    int begun = world.begun;
    for (int i = 0; i < n; i++)
        tell(FIRST + i, asks_a_keeper);
    lab_until(world.begun == begun + n);
}

static void falls_back(double before, double peak, double peak_min)
{
    if (peak - before < peak_min)
        fail_msg("no peak: %.0f bytes before, %.0f then", before, peak);
    lab_until(bench_resident_bytes() - before <= (peak - before) / STAYS_MAX);
}

static void test_turns_that_waited(void **state)
{
    wait_for_turns(100);
    open_gate();
    lab_until(world.ended == KEEPERS + 200);
    double before = bench_resident_bytes();
    wait_for_turns(TURNS);
    double peak = bench_resident_bytes();
    open_gate();
    lab_until(world.ended == 2 * KEEPERS + 200 + 2 * TURNS);
    falls_back(before, peak, (double)TURNS * TURN_BYTES_MIN);
    wait_for_turns(TURNS); /* what was given back serves again */
    open_gate();
    lab_until(world.ended == 3 * KEEPERS + 200 + 4 * TURNS);
}

static void test_messages_that_waited(void **state)
{
    hold(FIRST, BUSY);
    double before = bench_resident_bytes();
    for (int i = 0; i < MESSAGES; i++)
        tell(FIRST + i % BUSY, is_told);
    double peak = bench_resident_bytes();
    open_gate();
    lab_until(world.ended == BUSY + MESSAGES);
    falls_back(before, peak, (double)MESSAGES * MESSAGE_BYTES_MIN);
}

static int setup_few_guards(void **state)
{
    teffi_guards_simulated = GUARDS;
    return acts_setup_one_worker(state);
}

static int teardown_few_guards(void **state)
{
    teffi_guards_simulated = 0;
    return acts_teardown(state);
}

/* A kernel before 6.13 has guards for so many turns; the next call is told so, and runs later. */
static void test_more_turns_than_guards(void **state)
{
    direct_number *got;
    teff_err err = TEFF_OK;
    int waiting = 0;
    world.gate = false;
    for (; !err; waiting++) {
        assert_true(waiting < 2 * GUARDS); /* some find none */
        tell(FIRST + waiting, keeps);
        err = direct_actor_obey(ctx, 1, RUN(responds), &got);
    }
    assert_int_equal(err, TEFF_E_OVERLOADED);
    assert_non_null(strstr(teff_error(ctx), "out of stacks"));
    open_gate();
    lab_ok(ctx, direct_actor_obey(ctx, 1, RUN(responds), &got));
}

int main(void)
{
#define PEAK(f) cmocka_unit_test_setup_teardown(f, acts_setup, acts_teardown)
    const struct CMUnitTest tests[] = {
        PEAK(test_messages_that_waited),
        PEAK(test_turns_that_waited),
        cmocka_unit_test_setup_teardown(test_more_turns_than_guards, setup_few_guards,
                                        teardown_few_guards),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
