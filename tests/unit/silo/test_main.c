/* test_main.c - a silo program from outside: usage errors, ready, signals, exit status.
 * argv[1] is the program under test. */
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>
#include "child.h"
#include "cluster/rows.h"
#include "lab.h"

static void wrong_usage_ends_with_2(void **state)
{
    child_refuses(ARGS("--sore", "memory"), "--sore");
    child_refuses(ARGS("-x"), "-x");
    child_refuses(ARGS("--listen"), "--listen");
    child_refuses(ARGS("--quiet=1"), "--quiet");
    child_refuses(ARGS("here"), "here");
    child_refuses(ARGS("--quiet", "--", "x"), "x");
    child_refuses(ARGS("--listen", "127.0.0.1:0", "--listen", "127.0.0.1:0"), "twice");
    child_refuses(ARGS("--store", "memory", "--store", "memory"), "twice");
    child_refuses(ARGS("--workers", "1", "--workers", "2"), "twice");
    child_refuses(ARGS("--workers", "many"), "many");
    child_refuses(ARGS("--workers", "-1"), "-1");
    child_refuses(ARGS("--workers", ""), "'';");
    child_refuses(ARGS("--workers", "00000000000000000000000001"), "'00000");
    child_refuses(ARGS("--workers", "5000"), "workers");
    child_refuses(ARGS("--stuck-ms", "499"), "a number of 500 to 2000000000");
    child_refuses(ARGS("--stuck-ms", "9999"), "stuck_ms: 'below lease_ms'");
    child_refuses(ARGS("--stop-ms", "0"), "--stop-ms: '0'; expected a number of 1 to 2000000000");
    child_refuses(ARGS("--stacks", "some"), "some");
    child_refuses(ARGS("--stacks", "63"), "--stacks: '63'; expected a number of 64 to 1000000");
    child_refuses(ARGS("--stacks", "1000001"), "1000001");
    child_refuses(ARGS("--policy", "fair"), "'fair'; expected single|multilevel|priority");
    child_refuses(ARGS("--level1-us", "0"), "a number of 1 to 1000000");
    child_refuses(ARGS("--level1-us", "5"), "sched.level_us");
    child_refuses(ARGS("--policy", "multilevel", "--level2-us", "5000"), "rising");
    child_refuses(ARGS("--policy", "multilevel", "--level0-percent", "99"), "50 to 98");
    child_refuses(ARGS("--policy", "multilevel", "--waiting-max", "9"), "sched.waiting_max");
    child_refuses(ARGS("--threads-max", "1"), "a number of 2 to 10000");
    child_refuses(ARGS("--workers", "3", "--threads-max", "2"), "sched.threads_max");
    child_refuses(ARGS("--workers", "3", "--workers-max", "2"), "sched.workers_max");
    child_refuses(ARGS("--stack-kib", "63"), "a number of 64 to 8192");
    child_refuses(ARGS("--slice-ms", "1001"), "a number of 1 to 1000");
    child_refuses(ARGS("--repolls-max", "1001"), "a number of 1 to 1000");
    child_refuses(ARGS("--turn-warn-ms", "86400001"), "a number of 1 to 86400000");
    child_refuses(ARGS("--delay-warn-ms", "9999999999"), "a number of 1 to 86400000");
    child_refuses(ARGS("--queue-warn", "-1"), "'-1'");
    child_refuses(ARGS("--stacks", "1000000", "--listen", "nowhere"), "nowhere");
    child_refuses(ARGS("--listen", "nowhere"), "nowhere");
    child_refuses(ARGS("--listen", "127.0.0.1:99999"), "99999");
    child_refuses(ARGS("--listen", "\xff\xfe:1"), "listen");
    child_refuses(ARGS("--listen", "10.0.0.1:0"), "insecure");
    child_refuses(ARGS("--cluster", ""), "cluster");
    child_refuses(ARGS("--store", "mongo:x"), "mongo:x");
    child_refuses(ARGS("--seed", "127.0.0.1:1", "--store", "memory"), "seed");
    child_refuses(ARGS("--tls-cert", "x.pem"), "tls");
    child_refuses(ARGS("--gateway", "nowhere"), "gateway: 'nowhere'");
    child_refuses(ARGS("--client-secret-file", "x"), "client_secret_file: 'x'");
    child_refuses(ARGS("--tls-client-ca", "x.pem"), "tls_client_ca: 'x.pem'");
    child_refuses(ARGS("--quiet", "--gateway", "127.0.0.1:0", "--quiet"), "--quiet: given twice");
    child_refuses(ARGS("--seed", "a:1", "--seed", "a:1", "--seed", "a:1", "--seed", "a:1", "--seed",
                       "a:1", "--seed", "a:1", "--seed", "a:1", "--seed", "a:1", "--seed", "a:1"),
                  "--seed");
}

static void a_huge_argument_is_refused(void **state)
{
    enum { HUGE_ARGUMENT = 100 * 1024 };
    char *huge = malloc(HUGE_ARGUMENT + 1);
    assert_non_null(huge);
    memset(huge, 'x', HUGE_ARGUMENT);
    huge[HUGE_ARGUMENT] = '\0';
    child_refuses(ARGS("--cluster", huge), "cluster");
    child_refuses(ARGS(huge), "xxx");
    free(huge);
}

static void help_is_no_error(void **state)
{
    child c = child_run(ARGS("--help"), false);
    child_read(&c, c.out, NULL);
    assert_non_null(strstr(c.text, "--listen"));
    assert_int_equal(strstr(c.text, "listen beyond") - strstr(c.text, "--insecure"),
                     strstr(c.text, "log warnings") - strstr(c.text, "--quiet"));
    assert_int_equal(child_status(&c), 0);
}

static void signals_end_it_cleanly(void **state)
{
    static const int signals[] = {SIGTERM, SIGINT};
    for (int i = 0; i < 2; i++) {
        child c = child_run(ARGS("--quiet"), false);
        child_read(&c, c.out, "ready 127.0.0.1:");
        assert_int_equal(kill(c.pid, signals[i]), 0);
        assert_int_equal(child_status(&c), 0);
    }
}

static void options_with_a_choice_take_each(void **state)
{
    static const char *const policies[] = {"single", "multilevel", "priority"};
    for (int i = 0; i < 3; i++) {
        child c = child_run(
            ARGS("--quiet", "--policy", policies[i], "--transport", "nng", "--workers", "2"),
            false);
        child_read(&c, c.out, "ready 127.0.0.1:");
        assert_int_equal(kill(c.pid, SIGTERM), 0);
        assert_int_equal(child_status(&c), 0);
    }
}

static void ready_names_the_gateway(void **state)
{
    char address[100], gateway[100];
    child c = child_run(ARGS("--quiet", "--gateway", "127.0.0.1:0"), false);
    child_read(&c, c.out, "ready 127.0.0.1:");
    assert_int_equal(
        sscanf(strstr(c.text, "ready "), "ready %99s gateway %99s\n", address, gateway), 2);
    assert_string_not_equal(address, gateway);
    assert_int_equal(strncmp(gateway, "127.0.0.1:", 10), 0);
    assert_int_equal(kill(c.pid, SIGTERM), 0);
    assert_int_equal(child_status(&c), 0);
}

/* Lines on standard error, as often as asked; then it goes on. */
static void sigusr1_says_what_it_does(void **state)
{
    child c = child_run(ARGS("--quiet"), false);
    child_read(&c, c.out, "ready 127.0.0.1:");
    for (int i = 0; i < 3; i++) {
        assert_int_equal(kill(c.pid, SIGUSR1), 0);
        child_read(&c, c.err, "grains: 0 activations");
        assert_non_null(strstr(c.text, "of cluster dev: 1 members"));
        assert_non_null(strstr(c.text, "system target membership: "));
        assert_non_null(strstr(c.text, "processor 0: "));
    }
    assert_int_equal(kill(c.pid, SIGTERM), 0);
    assert_int_equal(child_status(&c), 0);
}

/* What it printed is an address that takes clients. */
static void ready_means_ready(void **state)
{
    char address[100], text[TEFF_TEXT_MAX];
    child c = child_run(ARGS("--quiet", "--cluster", "outside", "--listen", "[::1]:0"), false);
    child_read(&c, c.out, "ready [::1]:");
    assert_int_equal(sscanf(strstr(c.text, "ready "), "ready %99s", address), 1);
    teff_client_options opt = {.size = sizeof opt, .cluster = "outside", .gateways = {address}};
    teff_client *client;
    if (teff_client_connect(&opt, &client, text))
        fail_msg("%s", text);
    teff_ctx *ctx = teff_client_new_ctx(client);
    lab_fails(ctx, lab_turns_nothing(ctx, "x"), TEFF_E_UNIMPLEMENTED);
    teff_ctx_free(ctx);
    assert_int_equal(kill(c.pid, SIGTERM), 0);
    assert_int_equal(child_status(&c), 0);
    teff_client_free(client);
}

static void a_closed_output_is_no_end(void **state)
{
    child c = child_run(ARGS("--quiet"), true);
    child_read(&c, c.err, "is ready");
    assert_int_equal(kill(c.pid, SIGTERM), 0);
    assert_int_equal(child_status(&c), 0);
}

static void cannot_start(const char *const *args, const char *says)
{
    child c = child_run(args, false);
    child_read(&c, c.err, NULL);
    int status = child_status(&c);
    if (status != 1 || !strstr(c.text, says))
        fail_msg("status %d, '%s'; expected 1 and '%s'", status, c.text, says);
}

static void what_fails_at_run_time_ends_with_1(void **state)
{
    lab *l = lab_open(1);
    const char *taken = teff_silo_address(l->silos[0]);
    cannot_start(ARGS("--quiet", "--listen", taken), taken);
    cannot_start(ARGS("--quiet", "--store", "sqlite:/nowhere/at/all.db"), "/nowhere/at/all.db");
    cannot_start(ARGS("--quiet", "--seed", "127.0.0.1:1"), "127.0.0.1:1");
    cannot_start(ARGS("--quiet", "--seed", taken, "--cluster", "other"), "cluster");
    lab_close(l);
}

static teffi_member_row *row_of(teffi_rows *rows, const char *address)
{
    for (size_t i = 0; i < rows->n; i++)
        if (strcmp(rows->rows[i].member.address, address) == 0)
            return &rows->rows[i];
    fail_msg("no row of %s", address);
    return NULL;
}

/* As other silos do when its heartbeat stands still. */
static void declare_dead(teff_ctx *ctx, const char *address)
{
    teffi_rows rows;
    teff_err err;
    do {
        lab_ok(ctx, teffi_rows_read(ctx, &rows));
        teffi_member_row dead = *row_of(&rows, address);
        dead.dead = true;
        err = teffi_rows_write(ctx, &rows, &dead, 1);
    } while (err == TEFF_E_CONFLICT);
    lab_ok(ctx, err);
}

/* At the same address, as a new incarnation; a signal ends it as before. */
static void a_silo_that_was_declared_dead_comes_back(void **state)
{
    char address[100], again[120];
    lab *l = lab_open(2); /* on a file */
    child c = child_run(ARGS("--quiet", "--store", l->store), false);
    child_read(&c, c.out, "ready 127.0.0.1:");
    assert_int_equal(sscanf(strstr(c.text, "ready "), "ready %99s", address), 1);
    declare_dead(l->ctx[0], address);
    child_read(&c, c.err, "the cluster has declared it dead");
    assert_non_null(strstr(c.text, "lost its lease"));
    snprintf(again, sizeof again, "ready %s", address);
    child_read(&c, c.out, again);
    lab_until(teff_silo_members(l->silos[0]) == 3);
    assert_int_equal(kill(c.pid, SIGTERM), 0);
    assert_int_equal(child_status(&c), 0);
    lab_close(l);
}

/* Its threads do not end, so it cannot come back by itself. */
static void a_silo_whose_workers_are_stuck_ends_with_1(void **state)
{
    enum { CALLS = 8 };
    char address[100], key[12];
    child c = child_run(ARGS("--quiet", "--workers", "1", "--lease-ms", "500", "--stuck-ms", "500"),
                        false);
    child_read(&c, c.out, "ready 127.0.0.1:");
    assert_int_equal(sscanf(strstr(c.text, "ready "), "ready %99s", address), 1);
    teff_client_options opt = {.size = sizeof opt, .gateways = {address}};
    teff_client *client;
    teff_call calls[CALLS];
    assert_int_equal(teff_client_connect(&opt, &client, NULL), TEFF_OK);
    teff_ctx *ctx = teff_client_new_ctx(client);
    for (int i = 0; i < CALLS; i++) {
        snprintf(key, sizeof key, "%d", i);
        lab_ok(ctx, lab_rare_where_async(ctx, key, NULL, &calls[i]));
    }
    child_read(&c, c.err, "ends: its workers are stuck");
    assert_non_null(strstr(c.text, "lost its lease, its workers are stuck"));
    assert_int_equal(child_status(&c), 1);
    assert_true(teff_call_may_have_run(teff_await_all(ctx, calls, CALLS)));
    teff_ctx_free(ctx);
    teff_client_free(client);
}

/* SIGTERM comes before the workers count as stuck. The steps of the stop end when the lease ends;
 * then the stop waits for the turn. */
static void a_stop_does_not_wait_for_ever(void **state)
{
    char address[100];
    child c = child_run(ARGS("--quiet", "--workers", "1", "--lease-ms", "3000", "--stuck-ms",
                             "3000", "--stop-ms", "300"),
                        false);
    child_read(&c, c.out, "ready 127.0.0.1:");
    assert_int_equal(sscanf(strstr(c.text, "ready "), "ready %99s", address), 1);
    teff_client_options opt = {.size = sizeof opt, .gateways = {address}};
    teff_client *client;
    teff_call call;
    assert_int_equal(teff_client_connect(&opt, &client, NULL), TEFF_OK);
    teff_ctx *ctx = teff_client_new_ctx(client);
    lab_ok(ctx, lab_rare_where_async(ctx, "endless", NULL, &call));
    do {
        assert_int_equal(kill(c.pid, SIGUSR1), 0);
        child_read(&c, c.err, "states: ");
    } while (!strstr(c.text, "a turn of lab.Rare.Where"));
    assert_int_equal(kill(c.pid, SIGTERM), 0);
    child_read(&c, c.err, " ends: its stop has waited");
    assert_non_null(strstr(c.text, "stop waits: worker "));
    assert_non_null(strstr(c.text, "a turn of lab.Rare.Where"));
    assert_non_null(strstr(c.text, "stop waits: grain lab.Rare endless"));
    assert_int_equal(child_status(&c), 1);
    (void)!teff_await_all(ctx, &call, 1);
    teff_ctx_free(ctx);
    teff_client_free(client);
}

/* ---- silos that use the store of a seed ---- */

static child run_and_read_address(const char *const *args, char *address)
{
    child c = child_run(args, false);
    child_read(&c, c.out, "ready 127.0.0.1:");
    assert_int_equal(sscanf(strstr(c.text, "ready "), "ready %99s", address), 1);
    return c;
}

static void kill_child(child *c)
{
    close(c->in);
    close(c->out);
    close(c->err);
    assert_int_equal(kill(c->pid, SIGKILL), 0);
    assert_int_equal(waitpid(c->pid, NULL, 0), c->pid);
}

/* The rows are lost with the seed's process. */
static void a_silo_joins_again_after_its_seed_was_killed(void **state)
{
    char seed[100], address[100], again[120];
    child last = run_and_read_address(ARGS("--quiet"), seed);
    child c = run_and_read_address(ARGS("--quiet", "--seed", seed), address);
    kill_child(&last);
    last = run_and_read_address(ARGS("--quiet", "--listen", seed), again);
    assert_string_equal(again, seed);
    child_read(&c, c.err, "lost its lease");
    snprintf(again, sizeof again, "ready %s", address);
    child_read(&c, c.out, again);
    assert_int_equal(kill(c.pid, SIGTERM), 0);
    assert_int_equal(child_status(&c), 0);
    assert_int_equal(kill(last.pid, SIGTERM), 0);
    assert_int_equal(child_status(&last), 0);
}

/* As the processes of a terminal at Ctrl-C: the seed goes last. */
static void silos_and_their_seed_end_by_one_signal(void **state)
{
    enum { OTHERS = 2, SECONDS_MAX = 20 };
    char seed[100], address[100];
    child last = run_and_read_address(ARGS("--quiet"), seed), others[OTHERS];
    for (int i = 0; i < OTHERS; i++)
        others[i] = run_and_read_address(ARGS("--quiet", "--seed", seed), address);
    time_t begun = time(NULL);
    assert_int_equal(kill(last.pid, SIGINT), 0);
    for (int i = 0; i < OTHERS; i++)
        assert_int_equal(kill(others[i].pid, SIGINT), 0);
    for (int i = 0; i < OTHERS; i++)
        assert_int_equal(child_status(&others[i]), 0);
    assert_int_equal(child_status(&last), 0);
    assert_true(time(NULL) - begun < SECONDS_MAX);
}

/* A signal that comes while it still joins ends it too. */
static void a_signal_while_starting_ends_it(void **state)
{
    for (int i = 0; i < 10; i++) {
        child c = child_run(ARGS("--quiet"), false);
        child_read(&c, c.out, "ready ");
        kill(c.pid, SIGTERM);
        kill(c.pid, SIGINT);
        kill(c.pid, SIGTERM);
        assert_int_equal(child_status(&c), 0);
    }
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(wrong_usage_ends_with_2),
        cmocka_unit_test(a_huge_argument_is_refused),
        cmocka_unit_test(help_is_no_error),
        cmocka_unit_test(signals_end_it_cleanly),
        cmocka_unit_test(options_with_a_choice_take_each),
        cmocka_unit_test(ready_names_the_gateway),
        cmocka_unit_test(sigusr1_says_what_it_does),
        cmocka_unit_test(ready_means_ready),
        cmocka_unit_test(a_closed_output_is_no_end),
        cmocka_unit_test(what_fails_at_run_time_ends_with_1),
        cmocka_unit_test(a_silo_that_was_declared_dead_comes_back),
        cmocka_unit_test(a_silo_whose_workers_are_stuck_ends_with_1),
        cmocka_unit_test(a_stop_does_not_wait_for_ever),
        cmocka_unit_test(a_silo_joins_again_after_its_seed_was_killed),
        cmocka_unit_test(silos_and_their_seed_end_by_one_signal),
        cmocka_unit_test(a_signal_while_starting_ends_it),
    };
    if (argc < 2)
        return 2;
    child_program = argv[1];
    return cmocka_run_group_tests(tests, NULL, NULL);
}
