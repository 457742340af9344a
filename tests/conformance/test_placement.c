/* test_placement.c - which silo activates a grain, pools of stateless workers, full queues. */
#include "conform.h"

enum { KEYS = 60 };

/* ---- stateless workers ---- */

static void pool_is_bounded(conform *c)
{
    enum { CALLS = 20 };
    teff_call calls[CALLS];
    for (int i = 0; i < CALLS; i++)
        calls[i] = BEGIN(c, worker, "a", holds);
    UNTIL(c, world.inside >= 2);
    teff_sleep(c->ctx, 300);
    assert_in_range(world.inside, 2, 2 * c->silos);
    world.gate = true;
    conform_await_all(c, calls, CALLS);
    assert_in_range(world.activated, 2, 2 * c->silos);
}

static void pool_shrinks(conform *c)
{
    teff_call calls[2] = {BEGIN(c, worker, "a", holds), BEGIN(c, worker, "a", holds)};
    UNTIL(c, world.inside == 2);
    world.gate = true;
    conform_await_all(c, calls, 2);
    UNTIL(c, world.deactivated == 2);
    assert_int_equal(world.reason, TEFF_REASON_IDLE);
    (void)RUN(c, worker, "a", nothing);
    assert_int_equal(world.activated, 3);
}

/* A silo's own calls stay on it. */
static void pool_is_local(conform *c)
{
    for (unsigned i = 0; i < c->silos; i++) {
        actors_result *out;
        teff_ctx *ctx = teff_silo_new_ctx(conform_silo(c, i));
        for (int n = 0; n < 5; n++) {
            conform_ok(ctx, actors_worker_run(ctx, "a", STEP(where), &out));
            assert_int_equal(out->n, i);
        }
        teff_ctx_free(ctx);
    }
}

/* ---- placement ---- */

static void random_placement(conform *c)
{
    unsigned on[CONFORM_SILOS_MAX] = {0};
    char key[16];
    for (int i = 0; i < KEYS; i++) {
        snprintf(key, sizeof key, "k%d", i);
        on[RUN(c, plain, key, where)]++;
    }
    for (unsigned i = 0; i < c->silos; i++)
        assert_in_range(on[i], KEYS / 10, KEYS);
}

static void prefer_local_placement(conform *c)
{
    char key[32];
    for (unsigned i = 0; i < c->silos; i++) {
        teff_ctx *ctx = teff_silo_new_ctx(conform_silo(c, i));
        for (int n = 0; n < 10; n++) {
            actors_result *out;
            snprintf(key, sizeof key, "k%u-%d", i, n);
            conform_ok(ctx, actors_near_run(ctx, key, STEP(where), &out));
            assert_int_equal(out->n, i);
            assert_int_equal(RUN(c, near, key, where), i); /* it stays there for others */
        }
        teff_ctx_free(ctx);
    }
}

static void hash_placement(conform *c)
{
    unsigned on[KEYS], used[CONFORM_SILOS_MAX] = {0};
    char key[16];
    for (int i = 0; i < KEYS; i++) {
        snprintf(key, sizeof key, "k%d", i);
        on[i] = (unsigned)RUN(c, hashed, key, where);
        used[on[i]]++;
        (void)RUN(c, hashed, key, quits);
    }
    UNTIL(c, world.deactivated == KEYS);
    for (int i = 0; i < KEYS; i++) {
        snprintf(key, sizeof key, "k%d", i);
        assert_int_equal(RUN(c, hashed, key, where), on[i]);
    }
    for (unsigned i = 0; i < c->silos; i++)
        assert_true(used[i] > 0);
}

static bool has_members(conform *c, unsigned n)
{
    bool all = true;
    for (unsigned i = 0; i < c->silos; i++)
        all &= teff_silo_members(conform_silo(c, i)) == n;
    return all;
}

static void a_new_silo_fills(conform *c)
{
    char key[16];
    int64_t there = 0;
    (void)RUN(c, plain, "old", nothing);
    conform_start(c, c->silos);
    UNTIL(c, has_members(c, c->silos + 1));
    for (int i = 0; i < KEYS; i++) {
        snprintf(key, sizeof key, "k%d", i);
        there += RUN(c, plain, key, where) == c->silos;
    }
    assert_in_range(there, KEYS / 20, KEYS);
    assert_int_not_equal(RUN(c, plain, "old", where), c->silos); /* it stays where it is */
}

/* ---- full queues ---- */

static int count_ended(conform *c, const teff_call *calls, int n)
{
    int ended = 0;
    for (int i = 0; i < n; i++)
        ended += teff_call_ended(c->ctx, calls[i]);
    return ended;
}

static void a_full_queue_refuses_at_once(conform *c)
{
    enum { CALLS = 10 };
    teff_call calls[CALLS];
    int ok = 0;
    teff_call held = BEGIN(c, narrow, "a", holds);
    UNTIL(c, world.inside == 1);
    for (int i = 0; i < CALLS; i++)
        calls[i] = BEGIN(c, narrow, "a", nothing);
    UNTIL(c, count_ended(c, calls, CALLS) >= CALLS - 4);
    assert_int_equal(count_ended(c, calls, CALLS), CALLS - 4);
    world.gate = true;
    conform_await_all(c, &held, 1);
    for (int i = 0; i < CALLS; i++) {
        actors_result *out;
        teff_err err = actors_narrow_run_await(c->ctx, calls[i], &out);
        assert_true(err == TEFF_OK || err == TEFF_E_OVERLOADED);
        ok += err == TEFF_OK;
    }
    assert_int_equal(ok, 4);
}

int main(void)
{
    static const conform_row rows[] = {
        {"StatelessWorkerTests.StatelessWorkerActivationsPerSiloDoNotExceedMaxLocalWorkersCount",
         pool_is_bounded, EVERYWHERE},
        {"StatelessWorkerTests.StatelessWorker_ShrinkPool", pool_shrinks, EVERYWHERE},
        {"StatelessWorkerTests.pool is local", pool_is_local, EVERYWHERE},
        {"GrainPlacementTests.DefaultPlacementShouldBeRandom", random_placement, EVERYWHERE},
        {"GrainPlacementTests.PreferLocalPlacedGrainShouldPlaceActivationsLocally",
         prefer_local_placement, EVERYWHERE},
        {"GrainPlacementTests.HashBasedPlacement", hash_placement, EVERYWHERE},
        {"ElasticPlacementTests.ElasticityTest_AddingSilos", a_new_silo_fills, EVERYWHERE},
        {"LoadSheddingTests.a full queue", a_full_queue_refuses_at_once, EVERYWHERE},
    };
    return conform_run(rows, sizeof rows / sizeof rows[0]);
}
