/* test_options.c - bad options name themselves; steps in the wrong order are refused. */
#include <stdio.h>
#include <string.h>
#include "lab.h"

static void refused(teff_silo_options opt, const char *option, const char *value)
{
    char text[TEFF_TEXT_MAX] = "";
    teff_silo *silo = (teff_silo *)&opt;
    opt.size = sizeof opt;
    teff_err err = teff_silo_new(&opt, &silo, text);
    if (err != TEFF_E_INVALID || silo)
        fail_msg("%s was taken: %s", option, teff_err_name(err));
    if (!strstr(text, option) || !strstr(text, value) || !strstr(text, "expected"))
        fail_msg("'%s' does not name %s and '%s'", text, option, value);
    assert_int_equal(teff_silo_new(&opt, &silo, NULL), TEFF_E_INVALID);
}

static void sched_refused(teff_sched_options sched, const char *option, const char *value)
{
    sched.size = sizeof sched;
    refused((teff_silo_options){.workers = 4, .sched = &sched}, option, value);
}

static void each_bad_option_names_itself(void **state)
{
    refused((teff_silo_options){.cluster = ""}, "cluster", "");
    refused((teff_silo_options){.cluster = "a b"}, "cluster", "a b");
    refused((teff_silo_options){.listen = "nowhere"}, "listen", "nowhere");
    refused((teff_silo_options){.listen = ""}, "listen", "");
    refused((teff_silo_options){.listen = "127.0.0.1:70000"}, "listen", "70000");
    refused((teff_silo_options){.advertise = "x"}, "advertise", "x");
    refused((teff_silo_options){.store = "postgre:x"}, "store", "postgre:x");
    refused((teff_silo_options){.store = ""}, "store", "");
    refused((teff_silo_options){.seeds = {"127.0.0.1:1", "bad"}}, "seed", "bad");
    refused((teff_silo_options){.seeds = {"[fe80::1%2]:1"}}, "seed", "[fe80::1%2]:1");
    refused((teff_silo_options){.store = "memory", .seeds = {"127.0.0.1:1"}}, "store", "memory");
    refused((teff_silo_options){.tls_cert = "c.pem"}, "tls", "c.pem");
    refused((teff_silo_options){.tls_ca = "a.pem"}, "tls", "a.pem");
    refused((teff_silo_options){.workers = 1025}, "workers", "1024");
    refused((teff_silo_options){.memory_percent = 9}, "memory_percent", "10 to 100");
    refused((teff_silo_options){.memory_percent = 101}, "memory_percent", "10 to 100");
    refused((teff_silo_options){.reminder_period_min_ms = 86400001}, "reminder_period_min_ms",
            "86400000");
    refused((teff_silo_options){.lease_ms = 700, .stuck_ms = 699}, "stuck_ms", "lease_ms");
    sched_refused((teff_sched_options){.threads_max = 1}, "sched.threads_max", "10,000");
    sched_refused((teff_sched_options){.stacks_max = 63}, "sched.stacks_max", "1,000,000");
    sched_refused((teff_sched_options){.stack_bytes = 1}, "sched.stack_bytes", "64 KiB");
    sched_refused((teff_sched_options){.threads_max = 3}, "threads_max", "workers");
    sched_refused((teff_sched_options){.workers_max = 3}, "sched.workers_max", "1,024");
    sched_refused((teff_sched_options){.policy = 7}, "sched.policy", "teff_sched_policy");
    sched_refused((teff_sched_options){.waiting_max = 1}, "waiting_max", "TEFF_SCHED_PRIORITY");
    sched_refused((teff_sched_options){.level0_percent = 80}, "level0_percent", "MULTILEVEL");
    refused((teff_silo_options){.listen = "unix:relative"}, "listen", "unix:/path");
    refused((teff_silo_options){.listen = "unix:/s", .tls_cert = "c", .tls_ca = "a"}, "listen",
            "no unix:/path, with TLS");
    refused((teff_silo_options){.advertise = "unix:/s", .tls_cert = "c", .tls_ca = "a"},
            "advertise", "no unix:/path, with TLS");
    refused((teff_silo_options){.seeds = {"unix:/s"}, .tls_cert = "c", .tls_ca = "a"}, "seed",
            "no unix:/path, with TLS");
    refused((teff_silo_options){.listen = "10.0.0.1:0"}, "listen", "insecure");
    refused((teff_silo_options){.listen = "0.0.0.0:0", .insecure = 1}, "listen", "advertise");
}

/* A gateway with the silos' authority would make silos of clients. */
static void a_gateway_has_its_own_authority(void **state)
{
    refused((teff_silo_options){.gateway = "nowhere"}, "gateway", "nowhere");
    refused((teff_silo_options){.gateway = ""}, "gateway", "");
    refused((teff_silo_options){.gateway = "10.0.0.1:0"}, "gateway", "insecure");
    refused((teff_silo_options){.gateway = "0.0.0.0:0"}, "gateway", "insecure");
    refused((teff_silo_options){.tls_client_ca = "b"}, "tls_client_ca", "gateway");
    refused((teff_silo_options){.tls_client_ca = "b", .tls_cert = "c", .tls_ca = "a"},
            "tls_client_ca", "gateway");
    refused((teff_silo_options){.tls_client_ca = "b", .gateway = "127.0.0.1:0"}, "tls_client_ca",
            "tls_cert");
    refused((teff_silo_options){.tls_cert = "c", .tls_ca = "a", .gateway = "127.0.0.1:0"},
            "gateway", "tls_client_ca");
    refused(
        (teff_silo_options){
            .tls_cert = "c", .tls_ca = "a", .tls_client_ca = "a", .gateway = "127.0.0.1:0"},
        "tls_client_ca", "another authority");
    refused(
        (teff_silo_options){
            .tls_cert = "c", .tls_ca = "a", .tls_client_ca = "b", .gateway = "unix:/s"},
        "gateway", "no unix:/path, with TLS");
}

static void a_secret_for_clients_needs_one_for_silos(void **state)
{
    char text[TEFF_TEXT_MAX] = "";
    teff_silo *silo;
    teff_silo_options opt = {.size = sizeof opt, .secret_file = "/nowhere/secret", .silent = 1};
    refused((teff_silo_options){.client_secret_file = "s"}, "client_secret_file", "secret_file");
    assert_int_equal(teff_silo_new(&opt, &silo, text), TEFF_OK);
    assert_int_equal(teff_silo_start(silo, text), TEFF_E_INVALID);
    assert_non_null(strstr(text, "/nowhere/secret"));
    teff_silo_free(silo);
}

static void a_gateway_takes_what_listen_takes(void **state)
{
    static const teff_silo_options good[] = {
        {.gateway = "127.0.0.1:0"},
        {.gateway = "unix:/s"},
        {.gateway = "0.0.0.0:0", .insecure = 1},
        {.gateway = "0.0.0.0:0", .tls_cert = "c", .tls_ca = "a", .tls_client_ca = "b"},
    };
    for (size_t i = 0; i < sizeof good / sizeof good[0]; i++) {
        char text[TEFF_TEXT_MAX] = "";
        teff_silo_options opt = good[i];
        teff_silo *silo;
        opt.size = sizeof opt;
        if (teff_silo_new(&opt, &silo, text))
            fail_msg("%zu: %s", i, text);
        assert_string_equal(teff_silo_gateway(silo), "");
        teff_silo_free(silo);
    }
}

static void long_values_do_not_overflow_the_text(void **state)
{
    static char value[100000];
    memset(value, 'v', sizeof value - 1);
    refused((teff_silo_options){.cluster = value}, "cluster", "vvv");
    refused((teff_silo_options){.listen = value}, "listen", "vvv");
    refused((teff_silo_options){.store = value}, "store", "vvv");
    refused((teff_silo_options){.seeds = {value}}, "seed", "vvv");
}

static void a_password_in_the_address_of_a_store_is_not_shown(void **state)
{
    static const char *const addresses[] = {
        "postgres:host=h password=geheim", "postgres:host=h PassWord = 'geheim'",
        "postgres://user:geheim@h/db",     "postgres://h/db?password=geheim",
        "postgre:host=h password=geheim",  "etcd://geheim@h:1/x",
    };
    for (size_t i = 0; i < sizeof addresses / sizeof addresses[0]; i++) {
        char text[TEFF_TEXT_MAX] = "";
        teff_silo *silo;
        teff_silo_options opt = {
            .size = sizeof opt, .store = addresses[i], .seeds = {"127.0.0.1:1"}};
        assert_int_equal(teff_silo_new(&opt, &silo, text), TEFF_E_INVALID);
        assert_non_null(strstr(text, "store: '"));
        assert_null(strstr(text, "geheim"));
        teffi_store *store;
        assert_int_not_equal(teffi_store_open(addresses[i], &store, text), TEFF_OK);
        assert_null(strstr(text, "geheim"));
    }
}

static void names_with_underscores_are_addresses(void **state)
{
    teff_silo *silo;
    teff_silo_options opt = {
        .size = sizeof opt, .advertise = "silo_1:7000", .seeds = {"silo_2:7000"}};
    assert_int_equal(teff_silo_new(&opt, &silo, NULL), TEFF_OK);
    teff_silo_free(silo);
}

static void defaults_are_enough(void **state)
{
    teff_silo *silo;
    assert_int_equal(teff_silo_new(NULL, &silo, NULL), TEFF_OK);
    assert_null(teff_silo_new_ctx(silo));
    assert_int_equal(teff_silo_members(silo), 0);
    assert_string_equal(teff_silo_address(silo), "");
    assert_int_equal(teff_silo_stop(silo, 0), TEFF_OK);
    teff_silo_free(silo);
    teff_silo_free(NULL);
}

/* The type is not hosted, and the text says why. */
static void not_hosted(teff_silo *silo, teff_grain_type *type, teff_err expected, const char *says)
{
    char text[TEFF_TEXT_MAX] = "";
    teff_err err = teffi_silo_host_type(silo, type, text);
    if (err != expected || !strstr(text, says))
        fail_msg("%s: '%s'; expected %s and '%s'", teff_err_name(err), text,
                 teff_err_name(expected), says);
    teff_grain_type_free(type);
}

static void what_cannot_be_hosted_is_told(void **state)
{
    static const teff_type_info colliding = {.name = "lab.Twin", .key_kind = TEFF_KEY_STRING};
    teff_type_info info = colliding;
    teff_silo_options opt = {.size = sizeof opt, .silent = 1};
    lab_record record = {0};
    teff_silo *silo = lab_silo(&record, &opt);
    not_hosted(silo, lab_turns_type(&(lab_turns_methods){0}, NULL), TEFF_E_EXISTS,
               "lab.Turns is hosted already");
    info.id = lab_turns_info.id;
    not_hosted(silo, teff_grain_type_new(&info, NULL, NULL), TEFF_E_EXISTS,
               "lab.Twin has the same id as lab.Turns");
    not_hosted(silo, NULL, TEFF_E_INVALID, "NULL");
    assert_int_equal(teff_silo_start(silo, NULL), TEFF_OK);
    not_hosted(silo, lab_rare_type(&(lab_rare_methods){0}, NULL), TEFF_E_INVALID,
               "lab.Rare comes too late");
    assert_int_equal(teff_silo_stop(silo, 0), TEFF_OK);
    teff_silo_free(silo);
}

static void steps_in_the_wrong_order_are_refused(void **state)
{
    static const lab_rare_methods none = {0};
    char text[TEFF_TEXT_MAX] = "";
    teff_silo_options opt = {.size = sizeof opt, .silent = 1};
    lab_record record = {0};
    teff_silo *silo = lab_silo(&record, &opt);
    teff_grain_type *type = lab_turns_type(&(lab_turns_methods){0}, NULL);
    assert_int_equal(teff_silo_host(silo, type), TEFF_E_EXISTS);
    assert_int_equal(teff_silo_host(silo, NULL), TEFF_E_INVALID);
    teff_grain_type_free(type);
    assert_int_equal(teff_silo_start(silo, text), TEFF_OK);
    type = lab_rare_type(&none, NULL);
    assert_int_equal(teff_silo_host(silo, type), TEFF_E_INVALID);
    teff_grain_type_free(type);
    assert_int_equal(teff_silo_start(silo, text), TEFF_E_INVALID);
    assert_non_null(strstr(text, "runs already"));
    assert_int_equal(teff_silo_stop(silo, 0), TEFF_OK);
    assert_int_equal(teff_silo_stop(silo, 0), TEFF_OK);
    assert_null(teff_silo_new_ctx(silo));
    assert_int_equal(teff_silo_start(silo, text), TEFF_OK);
    assert_int_equal(teff_silo_stop(silo, 0), TEFF_OK);
    teff_silo_free(silo);
}

static void cannot_start(teff_silo_options opt, teff_err expected, const char *says)
{
    char text[TEFF_TEXT_MAX] = "";
    lab_record record = {0};
    opt.size = sizeof opt;
    opt.silent = 1;
    teff_silo *silo = lab_silo(&record, &opt);
    teff_err err = teff_silo_start(silo, text);
    const char *said = strstr(text, says);
    if (err != expected || !said || strstr(said + 1, says))
        fail_msg("%s: '%s'; expected %s and '%s', once", teff_err_name(err), text,
                 teff_err_name(expected), says);
    teff_silo_free(silo);
}

static void what_cannot_be_opened_is_told(void **state)
{
    lab *l = lab_open(1);
    cannot_start((teff_silo_options){.listen = teff_silo_address(l->silos[0])}, TEFF_E_IO,
                 "in use");
    cannot_start((teff_silo_options){.store = "sqlite:/nowhere/at/all.db"}, TEFF_E_IO,
                 "/nowhere/at/all.db");
    cannot_start((teff_silo_options){.store = "sqlite:/"}, TEFF_E_IO, "sqlite:/");
    cannot_start((teff_silo_options){.seeds = {"127.0.0.1:1"}}, TEFF_E_UNREACHABLE, "127.0.0.1:1");
    cannot_start((teff_silo_options){.tls_cert = "/nowhere/c.pem", .tls_ca = "/nowhere/a.pem"},
                 TEFF_E_INVALID, "/nowhere/c.pem");
    lab_close(l);
}

static void client_refused(teff_client_options opt, const char *option)
{
    char text[TEFF_TEXT_MAX] = "";
    teff_client *client = (teff_client *)&opt;
    opt.size = sizeof opt;
    assert_int_equal(teff_client_connect(&opt, &client, text), TEFF_E_INVALID);
    assert_null(client);
    if (!strstr(text, option))
        fail_msg("'%s' does not name %s", text, option);
}

static void clients_are_checked_too(void **state)
{
    client_refused((teff_client_options){0}, "gateways");
    client_refused((teff_client_options){.gateways = {"x"}}, "gateway");
    client_refused((teff_client_options){.cluster = "", .gateways = {"127.0.0.1:1"}}, "cluster");
    client_refused((teff_client_options){.tls_cert = "c", .gateways = {"127.0.0.1:1"}}, "tls");
    teff_client_free(NULL);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(each_bad_option_names_itself),
        cmocka_unit_test(a_gateway_has_its_own_authority),
        cmocka_unit_test(a_secret_for_clients_needs_one_for_silos),
        cmocka_unit_test(a_gateway_takes_what_listen_takes),
        cmocka_unit_test(long_values_do_not_overflow_the_text),
        cmocka_unit_test(a_password_in_the_address_of_a_store_is_not_shown),
        cmocka_unit_test(names_with_underscores_are_addresses),
        cmocka_unit_test(defaults_are_enough),
        cmocka_unit_test(what_cannot_be_hosted_is_told),
        cmocka_unit_test(steps_in_the_wrong_order_are_refused),
        cmocka_unit_test(what_cannot_be_opened_is_told),
        cmocka_unit_test(clients_are_checked_too),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
