/* test_bytes.c - what waits is limited in bytes: at one grain, and in a silo all together; from
 * whichever side it comes. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "lab.h"
#include "used.h"

enum { MIB = 1024 * 1024, PAD = 100 * 1024, CALLS = 400, GRAINS = 20, SMALL_MAX = 8 * MIB };

static lab_record record;
static uint8_t pad[PAD];

static teff_silo *start_silo(teff_silo_options opt)
{
    char text[TEFF_TEXT_MAX] = "";
    memset(&record, 0, sizeof record);
    opt.size = sizeof opt;
    opt.silent = 1;
    opt.workers = 2;
    teff_silo *silo = lab_silo(&record, &opt);
    if (teff_silo_start(silo, text))
        fail_msg("%s", text);
    return silo;
}

static teff_client *connect_to(teff_silo *silo)
{
    teff_client_options opt = {.size = sizeof opt, .gateways = {teff_silo_address(silo)}};
    char text[TEFF_TEXT_MAX] = "";
    teff_client *client;
    if (teff_client_connect(&opt, &client, text))
        fail_msg("%s", text);
    return client;
}

static teff_call begin(teff_ctx *ctx, const char *key, bool hold, size_t n)
{
    teff_call call;
    lab_ok(ctx,
           lab_turns_write_async(ctx, key, lab_step(.hold = hold, .pad = {n, pad}), NULL, &call));
    return call;
}

/* What was sent before has come, since it goes the same way. */
static void wait_until_all_came(teff_ctx *ctx)
{
    lab_number *out;
    lab_until(lab_turns_write(ctx, "idle", lab_step(), &out) != TEFF_E_TIMEOUT);
}

/* out: how many were not refused; the others were, for the limit that text names. */
static int count_ok(teff_ctx *ctx, const teff_call *calls, int n, const char *text)
{
    lab_number *out;
    int ok = 0;
    for (int i = 0; i < n; i++) {
        teff_err err = lab_turns_write_await(ctx, calls[i], &out);
        ok += err == TEFF_OK;
        if (!err)
            continue;
        assert_int_equal(err, TEFF_E_OVERLOADED);
        if (!strstr(teff_error(ctx), text))
            fail_msg("\"%s\" does not say \"%s\"", teff_error(ctx), text);
    }
    return ok;
}

static void fill_one_grain(teff_ctx *ctx, teff_silo *silo)
{
    teff_call first = begin(ctx, "busy", true, 0), calls[CALLS];
    lab_number *out;
    lab_until(record.held == 1);
    for (int i = 0; i < CALLS; i++)
        calls[i] = begin(ctx, "busy", false, PAD);
    /* Small ones are bounded by their number. */
    teff_call small = begin(ctx, "busy", false, 10);
    wait_until_all_came(ctx);
    record.gate = true;
    lab_ok(ctx, lab_turns_write_await(ctx, first, &out));
    int ok = count_ok(ctx, calls, CALLS, "the grain's queue is full");
    assert_in_range(ok, 16 * MIB / PAD / 2, 16 * MIB / PAD);
    lab_ok(ctx, lab_turns_write_await(ctx, small, &out));
}

static int64_t larger(int64_t a, int64_t b)
{
    return a > b ? a : b;
}

static void fill_many_grains(teff_ctx *ctx, teff_silo *silo)
{
    enum { EACH = CALLS / GRAINS };
    teff_call first[GRAINS], calls[CALLS];
    char key[24];
    int64_t most = 0;
    for (int i = 0; i < GRAINS; i++) {
        snprintf(key, sizeof key, "busy %d", i);
        first[i] = begin(ctx, key, true, 0);
    }
    lab_until(record.held == GRAINS);
    for (int i = 0; i < CALLS; i++) {
        snprintf(key, sizeof key, "busy %d", i % GRAINS);
        calls[i] = begin(ctx, key, false, PAD);
        most = larger(most, bytes_used(silo->node.budget));
    }
    wait_until_all_came(ctx);
    most = larger(most, bytes_used(silo->node.budget));
    record.gate = true;
    assert_int_equal(count_ok(ctx, first, GRAINS, ""), GRAINS);
    int ok = count_ok(ctx, calls, CALLS, "message_bytes_max");
    assert_in_range(ok, SMALL_MAX / PAD / 4, SMALL_MAX / PAD + SMALL_MAX / PAD / 2);
    assert_in_range(most, SMALL_MAX / 4, 2 * SMALL_MAX);
}

static void run(teff_silo_options opt, bool remote, void (*fill)(teff_ctx *, teff_silo *))
{
    teff_silo *silo = start_silo(opt);
    teff_client *client = remote ? connect_to(silo) : NULL;
    teff_ctx *ctx = remote ? teff_client_new_ctx(client) : teff_silo_new_ctx(silo);
    assert_non_null(ctx);
    fill(ctx, silo);
    teff_ctx_free(ctx);
    teff_client_free(client);
    /* What was counted is given back with what it was counted for. */
    lab_until(bytes_used(silo->node.budget) == 0);
    assert_int_equal(teff_silo_stop(silo, 0), TEFF_OK);
    teff_silo_free(silo);
}

static void one_grain_from_its_silo(void **state)
{
    run((teff_silo_options){0}, false, fill_one_grain);
}

static void one_grain_from_a_client(void **state)
{
    run((teff_silo_options){0}, true, fill_one_grain);
}

static void many_grains_from_their_silo(void **state)
{
    run((teff_silo_options){.message_bytes_max = SMALL_MAX}, false, fill_many_grains);
}

static void many_grains_from_a_client(void **state)
{
    run((teff_silo_options){.message_bytes_max = SMALL_MAX}, true, fill_many_grains);
}

/* One request of any size is let in where nothing waits. */
static void a_request_over_the_limit_runs_alone(void **state)
{
    lab_number *out;
    teff_silo *silo = start_silo((teff_silo_options){.grain_bytes_max = 1000});
    teff_ctx *ctx = teff_silo_new_ctx(silo);
    teff_call call = begin(ctx, "idle", false, PAD);
    lab_ok(ctx, lab_turns_write_await(ctx, call, &out));
    teff_ctx_free(ctx);
    teff_silo_free(silo);
}

/* Its keys take two bytes each, and 24 in memory. */
static teff_call begin_long_path(teff_ctx *ctx, bool hold)
{
    enum { KEYS = 90000 };
    static const char *keys[KEYS];
    teff_call call;
    for (int i = 0; i < KEYS; i++)
        keys[i] = "";
    lab_path *path = lab_path(.n_keys = KEYS, .keys = keys, .hold = hold);
    lab_ok(ctx, lab_relay_go_async(ctx, "busy", path, NULL, &call));
    return call;
}

/* It was let in as what came; there is no room for what it becomes. What takes no more than it came
 * with runs. */
static void a_request_that_grows_is_refused_over_the_limit(void **state)
{
    lab_number *out;
    teff_call first, second, last;
    teff_silo *silo = start_silo((teff_silo_options){.message_bytes_max = SMALL_MAX});
    teff_client *client = connect_to(silo);
    teff_ctx *ctx = teff_client_new_ctx(client);
    teffi_budget *budget = silo->node.budget;
    lab_ok(ctx, lab_relay_go_async(ctx, "busy", lab_path(.hold = true), NULL, &first));
    lab_until(record.held == 1);
    second = begin_long_path(ctx, false);
    lab_ok(ctx, lab_relay_go_async(ctx, "busy", lab_path(), NULL, &last));
    wait_until_all_came(ctx);
    teffi_budget_add(budget, 2 * SMALL_MAX);
    record.gate = true;
    lab_ok(ctx, lab_relay_go_await(ctx, first, &out));
    lab_fails(ctx, lab_relay_go_await(ctx, second, &out), TEFF_E_OVERLOADED);
    assert_non_null(strstr(teff_error(ctx), "message_bytes_max"));
    lab_ok(ctx, lab_relay_go_await(ctx, last, &out));
    teffi_budget_add(budget, -2 * SMALL_MAX);
    teff_ctx_free(ctx);
    teff_client_free(client);
    lab_until(bytes_used(budget) == 0);
    teff_silo_free(silo);
}

static void a_request_counts_as_what_it_becomes(void **state)
{
    lab_number *out;
    teff_silo *silo = start_silo((teff_silo_options){0});
    teff_client *client = connect_to(silo);
    teff_ctx *ctx = teff_client_new_ctx(client);
    teff_call call = begin_long_path(ctx, true);
    lab_until(record.held == 1);
    assert_true(bytes_used(silo->node.budget) > 2 * MIB);
    record.gate = true;
    lab_fails(ctx, lab_relay_go_await(ctx, call, &out), TEFF_E_INVALID); /* its keys */
    teff_ctx_free(ctx);
    teff_client_free(client);
    lab_until(bytes_used(silo->node.budget) == 0);
    teff_silo_free(silo);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(one_grain_from_its_silo),
        cmocka_unit_test(one_grain_from_a_client),
        cmocka_unit_test(many_grains_from_their_silo),
        cmocka_unit_test(many_grains_from_a_client),
        cmocka_unit_test(a_request_over_the_limit_runs_alone),
        cmocka_unit_test(a_request_counts_as_what_it_becomes),
        cmocka_unit_test(a_request_that_grows_is_refused_over_the_limit),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
