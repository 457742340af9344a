/* test_cluster.c - the testing kit: clusters on virtual time, and what a test does to silos. */
#include <limits.h>
#include <pthread.h>
#include <setjmp.h>
#include <stdlib.h>
#include "../death.h"
#include "kit.h"

static void test_calls_and_time(void **state)
{
    kit_open(3, 1);
    assert_int_equal(kit.hosted, 3);
    assert_int_equal(kit_add("a", 3), 3);
    assert_int_equal(kit_add("a", 2), 5);
    uint64_t before = teff_testing_now_ms(cluster);
    teff_testing_advance(cluster, 3600 * 1000);
    assert_int_equal(teff_testing_now_ms(cluster), before + 3600 * 1000);
    assert_int_equal(kit.deactivated, 1); /* idle for 15 minutes */
    assert_int_equal(kit_add("a", 1), 6);
    teff_sleep(teff_testing_ctx(cluster), 1000);
    assert_in_range(teff_testing_now_ms(cluster), before + 3601 * 1000, before + 3610 * 1000);
}

static uint64_t run_hash(uint64_t seed)
{
    kit_open(3, seed);
    for (int i = 0; i < 20; i++)
        (void)kit_add(i % 2 ? "a" : "b", i);
    teff_testing_kill(cluster, (unsigned)kit_where("a"));
    teff_testing_advance(cluster, 30000);
    (void)kit_add("a", 1);
    uint64_t hash = teff_testing_hash(cluster);
    assert_int_equal(teff_testing_seed(cluster), seed ? seed : 1);
    (void)kit_close(NULL);
    return hash;
}

static void test_a_seed_is_one_run(void **state)
{
    uint64_t first = run_hash(7);
    assert_int_equal(run_hash(7), first);
    assert_int_not_equal(run_hash(8), first);
    assert_int_equal(run_hash(0), run_hash(1));
}

/* What was saved is there on another silo; the hook has not run. */
static void test_kill_and_start_again(void **state)
{
    kit_open(3, 2);
    (void)kit_add("a", 7);
    int home = kit_where("a");
    teff_testing_kill(cluster, (unsigned)home);
    assert_null(teff_testing_silo(cluster, (unsigned)home));
    teff_testing_advance(cluster, 30000); /* it is declared dead */
    assert_int_equal(kit_add("a", 1), 8);
    assert_int_not_equal(kit_where("a"), home);
    assert_int_equal(kit.deactivated, 0);
    assert_int_equal(teff_testing_start(cluster, (unsigned)home, NULL), TEFF_OK);
    assert_int_equal(teff_silo_members(teff_testing_silo(cluster, (unsigned)home)), 3);
    assert_int_equal(kit_add("a", 1), 9);
}

/* A turn that sleeps does not go on, and its caller learns that its silo is gone. */
static void test_no_code_runs_after_a_kill(void **state)
{
    teff_call call;
    kit_number *out;
    teff_ctx *ctx = kit_open(3, 3);
    int home = kit_where("a");
    teff_err err = kit_counter_add_late_async(ctx, "a", kit_number(.n = 2000), NULL, &call);
    assert_int_equal(err, TEFF_OK);
    teff_testing_advance(cluster, 1000);
    teff_testing_kill(cluster, (unsigned)home);
    err = kit_counter_add_late_await(ctx, call, &out);
    assert_true(err == TEFF_E_UNREACHABLE || err == TEFF_E_TIMEOUT);
    teff_testing_advance(cluster, 10000);
    assert_int_equal(kit.late, 0);
    assert_int_equal(kit_add("a", 1), 1);
}

static void test_stop_in_order(void **state)
{
    kit_open(2, 4);
    (void)kit_add("a", 7);
    int home = kit_where("a");
    assert_int_equal(teff_testing_stop(cluster, (unsigned)home, 0), TEFF_OK);
    assert_int_equal(kit.deactivated, 1);
    assert_null(teff_testing_silo(cluster, (unsigned)home));
    assert_int_equal(teff_silo_members(teff_testing_silo(cluster, (unsigned)!home)), 1);
    assert_int_equal(kit_add("a", 1), 8);
    assert_int_equal(kit_where("a"), !home);
}

/* A silo's own context, and a client of one gateway. */
static void test_clients_and_silos(void **state)
{
    char text[TEFF_TEXT_MAX] = "";
    teff_client *client;
    kit_number *out;
    kit_open(2, 5);
    teff_ctx *own = teff_silo_new_ctx(teff_testing_silo(cluster, 1));
    assert_int_equal(kit_counter_add(own, "a", kit_number(.n = 2), &out), TEFF_OK);
    teff_ctx_free(own);
    assert_int_equal(teff_testing_connect(cluster, 1, &client, text), TEFF_OK);
    teff_ctx *ctx = teff_client_new_ctx(client);
    assert_int_equal(kit_counter_add(ctx, "a", kit_number(.n = 2), &out), TEFF_OK);
    assert_int_equal(out->n, 4);
    teff_ctx_free(ctx);
    teff_client_free(client);
    assert_null(teff_testing_silo(cluster, 2));
    assert_int_equal(teff_testing_connect(cluster, 2, &client, text), TEFF_E_UNREACHABLE);
    assert_null(client);
    assert_int_equal(teff_testing_start(cluster, 2, text), TEFF_OK);
    assert_int_equal(teff_testing_connect(cluster, 2, &client, text), TEFF_OK);
    teff_client_free(client);
    for (int i = 4; i < TEFF_TESTING_CLIENTS_MAX; i++) {
        assert_int_equal(teff_testing_connect(cluster, -1, &client, text), TEFF_OK);
        teff_client_free(client);
    }
    assert_int_equal(teff_testing_connect(cluster, -1, &client, text), TEFF_E_OVERLOADED);
}

static bool two_are_late(void *arg)
{
    return *(int *)arg == 2;
}

static void test_run_until(void **state)
{
    teff_call calls[2];
    teff_ctx *ctx = kit_open(2, 6);
    for (int i = 0; i < 2; i++)
        assert_int_equal(
            kit_counter_add_late_async(ctx, i ? "a" : "b", kit_number(.n = 5000), NULL, &calls[i]),
            TEFF_OK);
    uint64_t begin = teff_testing_now_ms(cluster);
    assert_false(teff_testing_run_until(cluster, two_are_late, &kit.late, 1000));
    assert_int_equal(teff_testing_now_ms(cluster), begin + 1000);
    /* Turns that sleep are not waited for; what they do afterwards is. */
    assert_true(teff_testing_run_until_idle(cluster, 1000));
    assert_int_equal(kit.late, 0);
    assert_true(teff_testing_run_until(cluster, two_are_late, &kit.late, 10000));
    assert_in_range(teff_testing_now_ms(cluster), begin + 5000, begin + 6000);
    assert_false(teff_call_ended(ctx, calls[0]) && teff_call_ended(ctx, calls[1]));
    assert_true(teff_testing_run_until_idle(cluster, 1000));
    assert_true(teff_call_ended(ctx, calls[0]) && teff_call_ended(ctx, calls[1]));
    assert_true(teff_testing_run_until(cluster, two_are_late, &kit.late, 0));
    teff_ctx_reset(ctx);
}

/* ---- a wait that fn leaves by longjmp, as failed assertions do ---- */

static jmp_buf failed;

/* in: after so many more calls. */
static bool fails_after(void *arg)
{
    if ((*(int *)arg)-- == 0)
        longjmp(failed, 1);
    return false;
}

/* Its event comes in the midst of a later wait, which it does not end. */
static void test_a_wait_that_is_left(void **state)
{
    static int calls;
    kit_open(1, 6);
    for (calls = 3; calls >= 0;)
        if (setjmp(failed) == 0)
            (void)!teff_testing_run_until(cluster, fails_after, &calls, 500);
    uint64_t begin = teff_testing_now_ms(cluster);
    calls = INT_MAX;
    assert_false(teff_testing_run_until(cluster, fails_after, &calls, 1000));
    assert_int_equal(teff_testing_now_ms(cluster), begin + 1000);
}

static bool is_a_minute_old(void *arg)
{
    return teff_testing_now_ms(cluster) >= 60000;
}

static void test_the_longest_wait(void **state)
{
    kit_open(1, 6);
    assert_true(teff_testing_run_until(cluster, is_a_minute_old, NULL, UINT64_MAX));
    uint64_t end = teff_testing_now_ms(cluster);
    assert_in_range(end, 60000, 61000);
    teff_testing_advance(cluster, 100); /* the event of that wait is still to come */
    assert_int_equal(teff_testing_now_ms(cluster), end + 100);
}

/* ---- two threads, each with a cluster ---- */

static teff_err host_counter(void *arg, teff_silo *silo, unsigned no)
{
    static const kit_counter_methods no_globals = {.get = get};
    return teff_silo_host(silo, kit_counter_type(&no_globals, NULL));
}

/* out: the hash, in *arg. Asserts nothing: cmocka's assertions belong to main's thread. */
static void *run_on_thread(void *arg)
{
    teff_testing *own;
    teff_testing_options options = {.size = sizeof options, .silos = 3, .host = host_counter};
    teff_err err = teff_testing_new(&options, &own, NULL);
    if (err)
        return NULL;
    for (int i = 0; i < 300 && !err; i++) {
        char key[16];
        kit_number *out;
        snprintf(key, sizeof key, "k%d", i % 20);
        err = kit_counter_get(teff_testing_ctx(own), key, &out);
    }
    *(uint64_t *)arg = err ? 0 : teff_testing_hash(own);
    teff_testing_free(own);
    return NULL;
}

static void test_two_threads(void **state)
{
    enum { THREADS = 2, ROUNDS = 5 };
    uint64_t alone = 0;
    (void)run_on_thread(&alone);
    assert_int_not_equal(alone, 0);
    for (int round = 0; round < ROUNDS; round++) {
        pthread_t threads[THREADS];
        uint64_t hashes[THREADS] = {0};
        for (int i = 0; i < THREADS; i++)
            assert_int_equal(pthread_create(&threads[i], NULL, run_on_thread, &hashes[i]), 0);
        for (int i = 0; i < THREADS; i++)
            pthread_join(threads[i], NULL);
        for (int i = 0; i < THREADS; i++)
            assert_int_equal(hashes[i], alone);
    }
}

/* What is left of a silo that has lost its lease does not count as work. */
static void test_idle_in_many_runs(void **state)
{
    for (uint64_t seed = 1; seed <= 20; seed++) {
        kit_open(3, seed);
        (void)kit_add("a", 1);
        assert_true(teff_testing_run_until_idle(cluster, 5000));
        teff_testing_cut_store(cluster, 2);
        teff_testing_advance(cluster, 40000);
        assert_null(teff_testing_silo(cluster, 2));
        assert_true(teff_testing_run_until_idle(cluster, 5000));
        (void)kit_close(NULL);
    }
}

static void refuse_options(teff_testing_options options, teff_err err, const char *what)
{
    char text[TEFF_TEXT_MAX] = "";
    teff_testing *none = (teff_testing *)&kit;
    assert_int_equal(teff_testing_new(&options, &none, text), err);
    assert_null(none);
    if (!strstr(text, what))
        fail_msg("no '%s' in: %s", what, text);
    assert_int_equal(teff_testing_new(&options, &none, NULL), err);
}

static void test_bad_options(void **state)
{
    teff_silo_options silo = {.size = sizeof silo, .store = "sqlite:x.db"};
    teff_testing_options options = kit_options(1, 1);
    memset(&kit, 0, sizeof kit);
    options.size = 0;
    refuse_options(options, TEFF_E_INVALID, "teff_testing_options");
    options = kit_options(TEFF_TESTING_SILOS_MAX + 1, 1);
    refuse_options(options, TEFF_E_INVALID, "too many silos");
    options = kit_options(1, 1);
    options.host = NULL;
    refuse_options(options, TEFF_E_INVALID, "host");
    options = kit_options(1, 1);
    options.silo = &silo;
    refuse_options(options, TEFF_E_INVALID, "sets itself");
    silo = (teff_silo_options){.size = sizeof silo, .cluster = "no spaces"};
    refuse_options(options, TEFF_E_INVALID, "cluster");
    silo.size = 0;
    refuse_options(options, TEFF_E_INVALID, "teff_silo_options");
    options.silo = NULL;
    kit.host_fails = TEFF_E_USER(7);
    refuse_options(options, TEFF_E_USER(7), "silo 0");
    teff_testing_free(NULL);
}

/* The options and the cluster's name may go once the cluster is made. */
static void test_options_are_copied(void **state)
{
    teff_client *client;
    teff_silo_options *silo = calloc(1, sizeof *silo);
    char *name = strdup("shop");
    assert_true(silo && name);
    *silo = (teff_silo_options){.size = sizeof *silo, .cluster = name};
    teff_testing_options options = kit_options(2, 1);
    options.silo = silo;
    memset(&kit, 0, sizeof kit);
    assert_int_equal(teff_testing_new(&options, &cluster, NULL), TEFF_OK);
    snprintf(name, sizeof "shop", "gone");
    free(name);
    free(silo);
    teff_testing_kill(cluster, 1);
    assert_int_equal(teff_testing_start(cluster, 1, NULL), TEFF_OK);
    assert_int_equal(teff_testing_connect(cluster, 1, &client, NULL), TEFF_OK);
    teff_client_free(client);
    assert_int_equal(kit_add("a", 1), 1);
}

static void test_bad_numbers(void **state)
{
    char text[TEFF_TEXT_MAX] = "";
    kit_open(1, 1);
    assert_int_equal(teff_testing_start(cluster, 0, text), TEFF_E_INVALID);
    assert_int_equal(teff_testing_start(cluster, TEFF_TESTING_SILOS_MAX, text), TEFF_E_INVALID);
    assert_non_null(strstr(text, "no such number"));
    assert_null(teff_testing_silo(cluster, TEFF_TESTING_SILOS_MAX));
    assert_int_equal(teff_testing_stop(cluster, 1, 0), TEFF_OK);
    assert_int_equal(teff_testing_stop(cluster, TEFF_TESTING_SILOS_MAX, 0), TEFF_OK);
    teff_testing_kill(cluster, 1);
    teff_testing_kill(cluster, TEFF_TESTING_SILOS_MAX);
    teff_testing_pause(cluster, 1, 1000);
    teff_testing_pause(cluster, TEFF_TESTING_SILOS_MAX, 1000);
    teff_testing_cut(cluster, 0, 0);
    teff_testing_cut(cluster, 0, TEFF_TESTING_SILOS_MAX);
    teff_testing_cut_store(cluster, TEFF_TESTING_SILOS_MAX);
    assert_int_equal(kit_add("a", 1), 1);
    kit.host_fails = TEFF_E_IO;
    assert_int_equal(teff_testing_start(cluster, 1, text), TEFF_E_IO);
    assert_null(teff_testing_silo(cluster, 1));
    kit.host_fails = TEFF_OK;
    assert_int_equal(teff_testing_start(cluster, 1, text), TEFF_OK);
}

static void advances_in_a_turn(void)
{
    kit_open(1, 1);
    kit.advances = true;
    (void)kit_where("a");
}

static void kills_in_a_turn(void)
{
    kit_open(1, 1);
    kit.kills = true;
    (void)kit_where("a");
}

static void connects_in_a_turn(void)
{
    kit_open(1, 1);
    kit.connects = true;
    (void)kit_where("a");
}

static void makes_a_cluster_in_a_turn(void)
{
    kit_open(1, 1);
    kit.makes = true;
    (void)kit_where("a");
}

static bool advances(void *arg)
{
    teff_testing_advance(cluster, 1);
    return false;
}

static void advances_in_a_wait(void)
{
    kit_open(1, 1);
    (void)!teff_testing_run_until(cluster, advances, NULL, 10);
}

static void test_not_in_a_turn(void **state)
{
    assert_true(dies_with(advances_in_a_turn, "call it in the test, not in a turn"));
    assert_true(dies_with(kills_in_a_turn, "teff_testing_kill"));
    assert_true(dies_with(connects_in_a_turn, "teff_testing_connect"));
    assert_true(dies_with(makes_a_cluster_in_a_turn, "teff_testing_new"));
    assert_true(dies_with(advances_in_a_wait, "fn of teff_testing_run_until"));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_teardown(test_calls_and_time, kit_close),
        cmocka_unit_test_teardown(test_a_seed_is_one_run, kit_close),
        cmocka_unit_test_teardown(test_kill_and_start_again, kit_close),
        cmocka_unit_test_teardown(test_no_code_runs_after_a_kill, kit_close),
        cmocka_unit_test_teardown(test_stop_in_order, kit_close),
        cmocka_unit_test_teardown(test_clients_and_silos, kit_close),
        cmocka_unit_test_teardown(test_run_until, kit_close),
        cmocka_unit_test_teardown(test_a_wait_that_is_left, kit_close),
        cmocka_unit_test_teardown(test_the_longest_wait, kit_close),
        cmocka_unit_test(test_two_threads),
        cmocka_unit_test_teardown(test_idle_in_many_runs, kit_close),
        cmocka_unit_test_teardown(test_options_are_copied, kit_close),
        cmocka_unit_test(test_bad_options),
        cmocka_unit_test(test_not_in_a_turn),
        cmocka_unit_test_teardown(test_bad_numbers, kit_close),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
