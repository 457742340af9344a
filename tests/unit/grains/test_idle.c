/* test_idle.c - what an idle activation keeps, all told: itself, its key, its entries in tables.
 * At most 512 bytes. */
#include "acts.h"
#include "resident.h"

enum { WARM = 20000, GRAINS = 200000, TURN_CALLS = 1000 };

/* A key and where it is found take some bytes at least, else growth was not seen. */
enum { BYTES_MIN = 64, BYTES_MAX = 512 };

static teff_err calls_many(teff_ctx *turn, int64_t key, const direct_act *in, direct_number *out)
{
    teff_err err = TEFF_OK;
    for (int64_t i = 0; i < TURN_CALLS && !err; i++)
        err = direct_actor_obey(turn, in->n + i, RUN(responds), NULL);
    return err;
}

static void activate(int64_t first, int64_t n)
{
    direct_number *got;
    for (int64_t i = 0; i < n; i += TURN_CALLS) {
        lab_ok(ctx, direct_actor_obey(ctx, 1, ACT(calls_many, .n = first + i), &got));
        teff_ctx_reset(ctx);
    }
}

static void test_an_idle_activation_is_small(void **state)
{
    activate(FIRST, WARM);
    uint64_t activations = acts_activations();
    double before = bench_resident_bytes();
    activate(FIRST + WARM, GRAINS);
    double each = (bench_resident_bytes() - before) / GRAINS;
    assert_int_equal(acts_activations(), activations + GRAINS);
    if (each < BYTES_MIN || each > BYTES_MAX)
        fail_msg("%.0f bytes each, expected %d to %d", each, BYTES_MIN, BYTES_MAX);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_an_idle_activation_is_small, acts_setup,
                                        acts_teardown),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
