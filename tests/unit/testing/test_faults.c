/* test_faults.c - faults of the testing kit: silos that do not reach each other or the store, that
 * stand still, and faults by rates. */
#include <stdlib.h>
#include "kit.h"

static teff_err try_add(const char *key)
{
    kit_number *out;
    teff_ctx *ctx = teff_testing_ctx(cluster);
    teff_err err = kit_counter_add(ctx, key, kit_number(.n = 1), &out);
    teff_ctx_reset(ctx);
    return err;
}

static unsigned count_serving(void)
{
    unsigned n = 0;
    for (unsigned i = 0; i < TEFF_TESTING_SILOS_MAX; i++)
        n += teff_testing_silo(cluster, i) != NULL;
    return n;
}

static void start_lost_silos(unsigned n)
{
    for (unsigned i = 0; i < n; i++)
        if (!teff_testing_silo(cluster, i))
            assert_int_equal(teff_testing_start(cluster, i, NULL), TEFF_OK);
}

/* Calls between the two fail; one of them must go, as they cannot work together. */
static void test_a_pair_that_is_cut(void **state)
{
    char key[16];
    kit_open(3, 11);
    for (int i = 0; i < 20; i++) {
        snprintf(key, sizeof key, "k%d", i);
        assert_int_equal(kit_add(key, 1), 1);
    }
    teff_testing_cut(cluster, 0, 1);
    teff_testing_advance(cluster, 60000);
    assert_int_equal(count_serving(), 2);
    teff_testing_heal(cluster);
    start_lost_silos(3);
    assert_int_equal(count_serving(), 3);
    for (int i = 0; i < 20; i++) {
        snprintf(key, sizeof key, "k%d", i);
        assert_int_equal(kit_add(key, 1), 2);
    }
}

/* It heals before the silos give up. */
static void test_a_short_cut(void **state)
{
    kit_open(3, 12);
    teff_testing_cut(cluster, 0, 1);
    teff_testing_cut(cluster, 0, 2);
    teff_testing_advance(cluster, 3000);
    teff_testing_heal(cluster);
    teff_testing_advance(cluster, 30000);
    assert_int_equal(count_serving(), 3);
    assert_int_equal(kit_add("a", 1), 1);
}

static void test_a_silo_without_its_store(void **state)
{
    kit_open(2, 13);
    teff_testing_cut_store(cluster, 0);
    teff_testing_advance(cluster, 30000);
    assert_null(teff_testing_silo(cluster, 0)); /* its lease is over */
    assert_int_equal(kit_add("a", 1), 1);
    assert_int_equal(kit_where("a"), 1);
    assert_int_not_equal(teff_testing_start(cluster, 0, NULL), TEFF_OK);
    teff_testing_heal(cluster);
    assert_int_equal(teff_testing_start(cluster, 0, NULL), TEFF_OK);
    assert_int_equal(kit_add("a", 1), 2);
}

static void test_a_pause(void **state)
{
    teff_call call;
    kit_number *out;
    teff_ctx *ctx = kit_open(2, 14);
    unsigned home = (unsigned)kit_where("a");
    teff_testing_pause(cluster, home, 2000);
    assert_int_equal(kit_counter_add_async(ctx, "a", kit_number(.n = 1), NULL, &call), TEFF_OK);
    teff_testing_advance(cluster, 1900);
    assert_false(teff_call_ended(ctx, call));
    assert_int_equal(kit_counter_add_await(ctx, call, &out), TEFF_OK);
    teff_ctx_reset(ctx);
    teff_testing_pause(cluster, home, 60000);
    teff_testing_advance(cluster, 30000);
    assert_int_equal(teff_silo_members(teff_testing_silo(cluster, !home)), 1); /* declared dead */
    assert_int_equal(kit_add("a", 1), 2);
    assert_non_null(teff_testing_silo(cluster, home)); /* it does not know yet */
    teff_testing_advance(cluster, 40000);
    assert_null(teff_testing_silo(cluster, home));
    assert_int_equal(teff_testing_start(cluster, home, NULL), TEFF_OK);
}

static int run_with_faults(const teff_testing_faults *faults, uint64_t seed)
{
    int failed = 0;
    kit_open(3, seed);
    assert_int_equal(teff_testing_set_faults(cluster, faults), TEFF_OK);
    for (int i = 0; i < 200; i++)
        failed += try_add("a") != TEFF_OK;
    teff_testing_heal(cluster);
    start_lost_silos(3);
    teff_testing_advance(cluster, 60000);
    assert_int_equal(try_add("a"), TEFF_OK);
    (void)kit_close(NULL);
    return failed;
}

static void test_rates(void **state)
{
    teff_testing_faults faults = {.size = sizeof faults};
    assert_int_equal(run_with_faults(&faults, 21), 0);
    assert_int_equal(run_with_faults(NULL, 21), 0);
    faults.breaks = 20;
    assert_in_range(run_with_faults(&faults, 22), 1, 100);
    faults = (teff_testing_faults){.size = sizeof faults, .store_failed = 100};
    assert_in_range(run_with_faults(&faults, 23), 5, 60);
    faults = (teff_testing_faults){.size = sizeof faults, .store_unknown = 100};
    assert_in_range(run_with_faults(&faults, 24), 5, 60);
    faults = (teff_testing_faults){.size = sizeof faults, .store_slow = 100};
    assert_int_equal(run_with_faults(&faults, 25), 0);
}

static void test_heal_ends_the_rates(void **state)
{
    teff_testing_faults faults = {.size = sizeof faults, .store_failed = 1000};
    kit_open(1, 26);
    (void)kit_add("a", 1);
    assert_int_equal(teff_testing_set_faults(cluster, &faults), TEFF_OK);
    for (int i = 0; i < 10; i++)
        assert_int_equal(try_add("a"), TEFF_E_IO);
    teff_testing_heal(cluster);
    assert_int_equal(kit_add("a", 1), 12); /* the state in memory has kept the changes */
}

static uint64_t time_of_calls(uint32_t min_us, uint32_t max_us)
{
    teff_testing_faults faults = {
        .size = sizeof faults, .delay_min_us = min_us, .delay_max_us = max_us};
    kit_open(1, 31);
    assert_int_equal(teff_testing_set_faults(cluster, &faults), TEFF_OK);
    uint64_t begin = teff_testing_now_ms(cluster);
    for (int i = 0; i < 10; i++)
        (void)kit_where("a");
    uint64_t took = teff_testing_now_ms(cluster) - begin;
    (void)kit_close(NULL);
    return took;
}

static void test_delays(void **state)
{
    assert_in_range(time_of_calls(0, 0), 1, 400);
    assert_in_range(time_of_calls(50000, 50000), 1000, 1400); /* there and back */
    assert_in_range(time_of_calls(10, 10), 0, 20);
}

/* ---- anything at any time ---- */

enum { KEYS = 4, STEPS = 60, RANDOM_SILOS = 4 };

typedef struct tally { /* of a counter: what was added, and what may have been */
    int64_t acked, unknown;
} tally;

static uint64_t drawn;

static unsigned draw_below(unsigned n)
{
    drawn = drawn * 6364136223846793005u + 1442695040888963407u;
    return (unsigned)(drawn >> 33) % n;
}

static void add_to(tally *tallies)
{
    char key[16];
    unsigned k = draw_below(KEYS);
    snprintf(key, sizeof key, "k%u", k);
    teff_err err = try_add(key);
    tallies[k].acked += err == TEFF_OK;
    /* A save that failed may be written by the next one. */
    tallies[k].unknown += err != TEFF_OK;
}

static void do_one_thing(void)
{
    unsigned no = draw_below(RANDOM_SILOS);
    teff_testing_faults faults = {.size = sizeof faults,
                                  .breaks = draw_below(20),
                                  .store_failed = draw_below(100),
                                  .store_unknown = draw_below(100),
                                  .store_slow = draw_below(100)};
    switch (draw_below(8)) {
    case 0:
        teff_testing_kill(cluster, no);
        break;
    case 1:
        (void)teff_testing_stop(cluster, no, 5000);
        break;
    case 2:
    case 3:
        if (!teff_testing_silo(cluster, no))
            (void)!teff_testing_start(cluster, no, NULL);
        break;
    case 4:
        teff_testing_pause(cluster, no, draw_below(15000));
        break;
    case 5:
        teff_testing_cut(cluster, no, draw_below(RANDOM_SILOS));
        break;
    case 6:
        assert_int_equal(teff_testing_set_faults(cluster, &faults), TEFF_OK);
        break;
    default:
        teff_testing_heal(cluster);
    }
    teff_testing_advance(cluster, draw_below(3000));
}

/* What was acknowledged is there at the end, and nothing was counted twice. */
static void run_anything(uint64_t seed)
{
    tally tallies[KEYS] = {{0, 0}};
    char key[16];
    drawn = seed;
    kit_open(3, seed);
    for (int i = 0; i < STEPS; i++) {
        if (draw_below(3) == 0)
            do_one_thing();
        else
            add_to(tallies);
    }
    teff_testing_heal(cluster);
    teff_testing_advance(cluster, 60000);
    start_lost_silos(3);
    teff_testing_advance(cluster, 60000);
    start_lost_silos(3);
    teff_testing_advance(cluster, 60000);
    if (!teff_testing_run_until_idle(cluster, 10000))
        fail_msg("seed %d: something goes on for ever", (int)seed);
    for (unsigned k = 0; k < KEYS; k++) {
        snprintf(key, sizeof key, "k%u", k);
        int64_t n = kit_add(key, 0);
        if (n < tallies[k].acked || n > tallies[k].acked + tallies[k].unknown)
            fail_msg("seed %d: %s is %d, %d were acknowledged, %d more may be", (int)seed, key,
                     (int)n, (int)tallies[k].acked, (int)tallies[k].unknown);
    }
    (void)kit_close(NULL);
}

static void test_anything(void **state)
{
    const char *seeds = getenv("TEFF_SEEDS");
    uint64_t n = seeds ? strtoull(seeds, NULL, 10) : 160;
    for (uint64_t seed = 1; seed <= n; seed++)
        run_anything(seed);
}

static void test_bad_rates(void **state)
{
    teff_testing_faults faults = {0};
    kit_open(1, 1);
    assert_int_equal(teff_testing_set_faults(cluster, &faults), TEFF_E_INVALID);
    faults = (teff_testing_faults){.size = sizeof faults, .breaks = 1001};
    assert_int_equal(teff_testing_set_faults(cluster, &faults), TEFF_E_INVALID);
    faults = (teff_testing_faults){.size = sizeof faults, .store_failed = 1001};
    assert_int_equal(teff_testing_set_faults(cluster, &faults), TEFF_E_INVALID);
    faults = (teff_testing_faults){.size = sizeof faults, .store_unknown = 1001};
    assert_int_equal(teff_testing_set_faults(cluster, &faults), TEFF_E_INVALID);
    faults = (teff_testing_faults){.size = sizeof faults, .store_slow = 1001};
    assert_int_equal(teff_testing_set_faults(cluster, &faults), TEFF_E_INVALID);
    faults = (teff_testing_faults){.size = sizeof faults, .delay_min_us = 2, .delay_max_us = 1};
    assert_int_equal(teff_testing_set_faults(cluster, &faults), TEFF_E_INVALID);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_teardown(test_a_pair_that_is_cut, kit_close),
        cmocka_unit_test_teardown(test_a_short_cut, kit_close),
        cmocka_unit_test_teardown(test_a_silo_without_its_store, kit_close),
        cmocka_unit_test_teardown(test_a_pause, kit_close),
        cmocka_unit_test_teardown(test_rates, kit_close),
        cmocka_unit_test_teardown(test_heal_ends_the_rates, kit_close),
        cmocka_unit_test_teardown(test_delays, kit_close),
        cmocka_unit_test_teardown(test_bad_rates, kit_close),
        cmocka_unit_test_teardown(test_anything, kit_close),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
