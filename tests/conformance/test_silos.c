/* test_silos.c - silos that leave, crash and come back, while grains are called. */
#include "conform.h"

enum { CALLS = 20, KEYS = 12 };

static teff_err takes_5_ms(turn *t)
{
    world_enter();
    teff_sleep(t->ctx, 5);
    world_leave();
    return TEFF_OK;
}

static bool has_members(conform *c, unsigned at, unsigned n)
{
    return teff_silo_members(conform_silo(c, at)) == n;
}

/* Of the calls that wait at a grain when its silo leaves, none is lost, and none runs twice. */
static void pending_requests_are_forwarded(conform *c)
{
    teff_call calls[CALLS];
    char key[16];
    unsigned home = conform_key_away(c, key);
    for (int i = 0; i < CALLS; i++)
        calls[i] = BEGIN(c, plain, key, takes_5_ms);
    UNTIL(c, world.begun >= 1);
    conform_stop(c, home);
    conform_await_all(c, calls, CALLS);
    assert_int_equal(world.ended, CALLS);
    assert_int_equal(world.most, 1);
}

/* Each silo that may leaves and joins again, while a few grains are called all the time. */
static void no_call_is_lost_in_a_restart_of_all(conform *c)
{
    teff_call calls[KEYS];
    char key[16];
    int made = 0;
    for (unsigned no = 1; no < c->silos; no++)
        for (int start = 0; start < 2; start++) {
            for (int k = 0; k < KEYS; k++, made++) {
                snprintf(key, sizeof key, "k%d", k);
                calls[k] = BEGIN(c, plain, key, takes_5_ms);
            }
            if (start)
                conform_start(c, no);
            else
                conform_stop(c, no);
            conform_await_all(c, calls, KEYS);
        }
    assert_int_equal(world.ended, made);
}

/* ---- crashes: on virtual time only ---- */

static void a_crash_breaks_calls(conform *c)
{
    actors_result *out;
    char key[16];
    unsigned home = conform_key_away(c, key);
    teff_call call = BEGIN(c, plain, key, holds);
    UNTIL(c, world.inside == 1);
    uint64_t begin = teff_testing_now_ms(c->cluster);
    teff_testing_kill(c->cluster, home);
    conform_fails(c, TEFF_E_UNREACHABLE, actors_plain_run_await(c->ctx, call, &out));
    assert_in_range(teff_testing_now_ms(c->cluster) - begin, 0, 6000);
}

/* Its grains are activated on the others, by calls that wait meanwhile. */
static void others_take_over(conform *c)
{
    char key[16];
    unsigned home = conform_key_away(c, key);
    unsigned other = (home + 1) % c->silos;
    teff_testing_kill(c->cluster, home);
    teff_testing_advance(c->cluster, 6000); /* each broken connection was noticed */
    assert_int_not_equal(RUN(c, plain, key, where), home);
    UNTIL(c, has_members(c, other, c->silos - 1));
    conform_start(c, home);
    UNTIL(c, has_members(c, other, c->silos));
}

static void all_but_one_crash(conform *c)
{
    char key[16];
    for (unsigned no = 0; no + 1 < c->silos; no++)
        teff_testing_kill(c->cluster, no);
    teff_testing_advance(c->cluster, 30000);
    for (int k = 0; k < KEYS; k++) {
        snprintf(key, sizeof key, "k%d", k);
        assert_int_equal(RUN(c, plain, key, where), c->silos - 1);
    }
    for (unsigned no = 0; no + 1 < c->silos; no++)
        conform_start(c, no);
    assert_true(has_members(c, c->silos - 1, c->silos));
}

/* Nobody is left to tell others; the silo starts again as if it were the first. */
static void all_crash(conform *c)
{
    for (unsigned no = 0; no < c->silos; no++)
        teff_testing_kill(c->cluster, no);
    for (unsigned no = 0; no < c->silos; no++)
        conform_start(c, no);
    teff_testing_advance(c->cluster, 6000); /* each broken connection was noticed */
    for (unsigned no = 0; no < c->silos; no++)
        assert_true(has_members(c, no, c->silos));
    (void)RUN(c, plain, "a", nothing);
}

int main(void)
{
    enum {
        THREE = SIMULATED | ON_THREADS | THREE_SILOS,
        THREE_SIMULATED = SIMULATED | THREE_SILOS
    };
    static const conform_row rows[] = {
        {"ShutdownSiloTests.SiloGracefulShutdown_ForwardPendingRequest",
         pending_requests_are_forwarded, THREE},
        {"LivenessTests.Liveness_Grain_OneAtATime, in order", no_call_is_lost_in_a_restart_of_all,
         THREE},
        {"SilosStopTests.SiloUngracefulShutdown_OutstandingRequestsBreak", a_crash_breaks_calls,
         THREE_SIMULATED},
        {"LivenessTests.Liveness_2_Restart_Primary", others_take_over, THREE_SIMULATED},
        {"LivenessTests.Liveness_5_Kill_Silo_1_With_Timers", all_but_one_crash, THREE_SIMULATED},
        {"LivenessTests.all crash", all_crash, SIMULATED | ONE_SILO | THREE_SILOS},
    };
    return conform_run(rows, sizeof rows / sizeof rows[0]);
}
