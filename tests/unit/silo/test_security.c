/* test_security.c - who may connect to a silo: clients and silos each at their own address, and
 * with the secret of their kind; on each transport, and after a new start. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>
#include "lab.h"

static const teff_transport transports[] = {TEFF_TRANSPORT_NNG, TEFF_TRANSPORT_REACTOR};

/* A silo with all types of the lab, not started. in: opt, size and silent are set here. */
static teff_silo *new_silo(lab_record *record, teff_silo_options opt)
{
    opt.size = sizeof opt;
    opt.silent = 1;
    return lab_silo(record, &opt);
}

static void start(teff_silo *silo)
{
    char text[TEFF_TEXT_MAX] = "";
    if (teff_silo_start(silo, text))
        fail_msg("%s", text);
}

static teff_err connect_client(teff_client_options opt, const char *address, teff_client **client,
                               char *text)
{
    opt.size = sizeof opt;
    opt.gateways[0] = address;
    *text = '\0';
    return teff_client_connect(&opt, client, text);
}

static void client_calls(teff_client_options opt, const char *address, const char *key)
{
    char text[TEFF_TEXT_MAX];
    teff_client *client;
    lab_text *where;
    if (connect_client(opt, address, &client, text))
        fail_msg("%s", text);
    teff_ctx *ctx = teff_client_new_ctx(client);
    lab_ok(ctx, lab_hashed_where(ctx, key, &where));
    teff_ctx_free(ctx);
    teff_client_free(client);
}

static void client_is_refused(teff_client_options opt, const char *address, const char *says)
{
    char text[TEFF_TEXT_MAX];
    teff_client *client;
    assert_int_equal(connect_client(opt, address, &client, text), TEFF_E_REFUSED);
    assert_null(client);
    if (!strstr(text, says))
        fail_msg("'%s' does not say '%s'", text, says);
}

/* The silo cannot join. */
static void silo_is_refused(teff_silo_options opt, const char *says)
{
    char text[TEFF_TEXT_MAX] = "";
    lab_record record = {0};
    teff_silo *silo = new_silo(&record, opt);
    assert_int_equal(teff_silo_start(silo, text), TEFF_E_REFUSED);
    if (!strstr(text, says))
        fail_msg("'%s' does not say '%s'", text, says);
    teff_silo_free(silo);
}

/* ---- the gateway ---- */

static void clients_use_the_gateway(void **state)
{
    for (int i = 0; i < 2; i++) {
        lab_record record = {0};
        teff_client_options client = {.transport = transports[i]};
        teff_silo *silo = new_silo(
            &record, (teff_silo_options){.gateway = "127.0.0.1:0", .transport = transports[i]});
        start(silo);
        assert_string_not_equal(teff_silo_gateway(silo), teff_silo_address(silo));
        client_calls(client, teff_silo_gateway(silo), "a");
        client_is_refused(client, teff_silo_address(silo), "only silos connect to this address");
        silo_is_refused((teff_silo_options){.seeds = {teff_silo_gateway(silo)}},
                        "only clients connect to this address");
        teff_silo_free(silo);
    }
}

/* Without one, and with a path as the gateway. */
static void a_silo_without_a_gateway_has_one_address(void **state)
{
    lab_record record = {0};
    teff_silo *silo = new_silo(&record, (teff_silo_options){0});
    start(silo);
    assert_string_equal(teff_silo_gateway(silo), "");
    client_calls((teff_client_options){0}, teff_silo_address(silo), "a");
    teff_silo_free(silo);
    silo = new_silo(&record, (teff_silo_options){.gateway = "unix:" P_tmpdir "/teff-gateway"});
    start(silo);
    assert_string_equal(teff_silo_gateway(silo), "unix:" P_tmpdir "/teff-gateway");
    client_calls((teff_client_options){0}, teff_silo_gateway(silo), "a");
    teff_silo_free(silo);
}

/* A silo with a gateway joins as others, and a client's calls reach grains on both silos. */
static void grains_of_all_silos_are_reached(void **state)
{
    lab_record record = {0};
    teff_silo *first = new_silo(&record, (teff_silo_options){.gateway = "127.0.0.1:0"});
    start(first);
    teff_silo *second = new_silo(&record, (teff_silo_options){.gateway = "127.0.0.1:0",
                                                              .seeds = {teff_silo_address(first)}});
    start(second);
    for (int i = 0; i < 40; i++) {
        char key[16];
        snprintf(key, sizeof key, "key %d", i);
        client_calls((teff_client_options){0}, teff_silo_gateway(i % 2 ? first : second), key);
    }
    teff_silo_free(second);
    teff_silo_free(first);
}

/* A new start has both addresses of the last one, since clients know the gateway's. */
static void a_new_start_has_the_same_gateway(void **state)
{
    char address[256], gateway[256];
    lab_record record = {0};
    teff_silo *silo = new_silo(&record, (teff_silo_options){.gateway = "127.0.0.1:0"});
    start(silo);
    snprintf(address, sizeof address, "%s", teff_silo_address(silo));
    snprintf(gateway, sizeof gateway, "%s", teff_silo_gateway(silo));
    assert_int_equal(teff_silo_stop(silo, 0), TEFF_OK);
    start(silo);
    assert_string_equal(teff_silo_address(silo), address);
    assert_string_equal(teff_silo_gateway(silo), gateway);
    client_calls((teff_client_options){0}, gateway, "a");
    teff_silo_free(silo);
}

static void a_gateway_in_use_is_named(void **state)
{
    char text[TEFF_TEXT_MAX] = "";
    lab_record record = {0};
    teff_silo *first = new_silo(&record, (teff_silo_options){.gateway = "127.0.0.1:0"});
    start(first);
    const char *taken = teff_silo_gateway(first);
    teff_silo *second = new_silo(&record, (teff_silo_options){.gateway = taken});
    assert_int_equal(teff_silo_start(second, text), TEFF_E_IO);
    assert_non_null(strstr(text, taken));
    teff_silo_free(second);
    teff_silo_free(first);
}

/* ---- secrets ---- */

enum { SILOS, CLIENTS, OTHER, FILES };

static char secrets[FILES][64];

static int make_secrets(void **state)
{
    for (int i = 0; i < FILES; i++) {
        snprintf(secrets[i], sizeof secrets[i], P_tmpdir "/teff-secret-XXXXXX");
        int fd = mkstemp(secrets[i]);
        if (fd < 0 || dprintf(fd, "secret number %d of a test\n", i) < 0 || close(fd))
            return -1;
    }
    return 0;
}

static int remove_secrets(void **state)
{
    int err = 0;
    for (int i = 0; i < FILES; i++)
        err |= unlink(secrets[i]);
    return err;
}

/* With a gateway or without, one secret for all or one for clients. */
static void each_kind_has_its_secret(void **state)
{
    static const char differ[] = "the secrets of the two sides differ";
    for (int i = 0; i < 4; i++) {
        bool two = i & 1, gateway = i & 2;
        lab_record record = {0};
        teff_silo_options opt = {.gateway = gateway ? "127.0.0.1:0" : NULL,
                                 .secret_file = secrets[SILOS],
                                 .client_secret_file = two ? secrets[CLIENTS] : NULL,
                                 .transport = transports[gateway]};
        teff_silo *silo = new_silo(&record, opt);
        start(silo);
        const char *address = gateway ? teff_silo_gateway(silo) : teff_silo_address(silo);
        opt.seeds[0] = teff_silo_address(silo);
        teff_silo *second = new_silo(&record, opt);
        start(second);
        assert_int_equal(teff_silo_members(silo), 2);
        const char *right = secrets[two ? CLIENTS : SILOS], *wrong = secrets[two ? SILOS : CLIENTS];
        for (int key = 0; key < 8; key++)
            client_calls((teff_client_options){.secret_file = right}, address,
                         (const char[]){(char)('a' + key), '\0'});
        client_is_refused((teff_client_options){.secret_file = wrong}, address, differ);
        client_is_refused((teff_client_options){0}, address, "the dialler has none");
        opt.client_secret_file = NULL;
        opt.secret_file = secrets[two ? CLIENTS : OTHER];
        silo_is_refused(opt, differ);
        opt.secret_file = NULL;
        silo_is_refused(opt, "the dialler has none");
        assert_int_equal(teff_silo_members(silo), 2);
        teff_silo_free(second);
        teff_silo_free(silo);
    }
}

static void a_clients_bad_file_is_named(void **state)
{
    char text[TEFF_TEXT_MAX];
    teff_client *client;
    teff_client_options opt = {.secret_file = "/nowhere/at/all"};
    assert_int_equal(connect_client(opt, "127.0.0.1:1", &client, text), TEFF_E_INVALID);
    assert_non_null(strstr(text, "/nowhere/at/all"));
    opt.secret_file = secrets[SILOS];
    assert_int_equal(chmod(secrets[SILOS], 0644), 0);
    assert_int_equal(connect_client(opt, "127.0.0.1:1", &client, text), TEFF_E_INVALID);
    assert_non_null(strstr(text, "chmod 600"));
    assert_int_equal(chmod(secrets[SILOS], 0600), 0);
}

/* A new secret is used from the next start on. */
static void a_start_reads_the_files_again(void **state)
{
    lab_record record = {0};
    teff_silo *silo = new_silo(&record, (teff_silo_options){.secret_file = secrets[OTHER]});
    start(silo);
    assert_int_equal(teff_silo_stop(silo, 0), TEFF_OK);
    FILE *file = fopen(secrets[OTHER], "w");
    assert_non_null(file);
    fprintf(file, "secret number %d of a test\n", CLIENTS);
    fclose(file);
    start(silo);
    client_calls((teff_client_options){.secret_file = secrets[CLIENTS]}, teff_silo_address(silo),
                 "a");
    teff_silo_free(silo);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(clients_use_the_gateway),
        cmocka_unit_test(a_silo_without_a_gateway_has_one_address),
        cmocka_unit_test(grains_of_all_silos_are_reached),
        cmocka_unit_test(a_new_start_has_the_same_gateway),
        cmocka_unit_test(a_gateway_in_use_is_named),
        cmocka_unit_test(each_kind_has_its_secret),
        cmocka_unit_test(a_clients_bad_file_is_named),
        cmocka_unit_test(a_start_reads_the_files_again),
    };
    return cmocka_run_group_tests(tests, make_secrets, remove_secrets);
}
