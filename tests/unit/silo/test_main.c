/* test_main.c - a silo program from outside: usage errors, ready, signals, exit status.
 * argv[1] is the program under test. */
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>
#include "lab.h"

enum { PATIENCE_MS = 60000, OUT_MAX = 8192 };

static const char *program;

typedef struct child {
    pid_t pid;
    int out, err;
    char text[OUT_MAX]; /* of standard error, or of output */
} child;

static void close_output(int out[2])
{
    close(out[0]);
    close(out[1]);
    out[0] = -1;
}

/* args end with NULL; with closed the child has no standard output at all. */
static child run(const char *const *args, bool closed)
{
    const char *argv[40] = {program};
    child c = {0};
    int out[2], err[2];
    for (int i = 0; args[i]; i++)
        argv[i + 1] = args[i];
    assert_int_equal(pipe(out), 0);
    assert_int_equal(pipe(err), 0);
    c.pid = fork();
    if (c.pid == 0) {
        if (closed)
            close(STDOUT_FILENO);
        else
            dup2(out[1], STDOUT_FILENO);
        dup2(err[1], STDERR_FILENO);
        close_output(out);
        close_output(err);
        execv(program, (char *const *)(uintptr_t)argv);
        _exit(99);
    }
    assert_true(c.pid > 0);
    close(out[1]);
    close(err[1]);
    c.out = out[0];
    c.err = err[0];
    return c;
}

/* Reads until the end, or until what is looked for has come. */
static void read_until(child *c, int fd, const char *wanted)
{
    size_t n = 0;
    struct pollfd p = {.fd = fd, .events = POLLIN};
    for (;;) {
        c->text[n] = '\0';
        if (wanted && strstr(c->text, wanted) && strchr(strstr(c->text, wanted), '\n'))
            return;
        if (poll(&p, 1, PATIENCE_MS) <= 0)
            fail_msg("nothing came; so far: '%s'", c->text);
        ssize_t got = read(fd, c->text + n, OUT_MAX - 1 - n);
        if (got <= 0)
            break;
        n += (size_t)got;
    }
    if (wanted)
        fail_msg("it ended without '%s': '%s'", wanted, c->text);
}

static int status_of(child *c)
{
    int status;
    close(c->out);
    close(c->err);
    assert_int_equal(waitpid(c->pid, &status, 0), c->pid);
    if (!WIFEXITED(status))
        fail_msg("it was ended by signal %d", WTERMSIG(status));
    return WEXITSTATUS(status);
}

static void wrong_usage(const char *const *args, const char *says)
{
    child c = run(args, false);
    read_until(&c, c.err, NULL);
    int status = status_of(&c);
    if (status != 2 || !strstr(c.text, says))
        fail_msg("status %d, '%s'; expected 2 and '%s'", status, c.text, says);
}

#define ARGS(...) ((const char *const[]){__VA_ARGS__, NULL})

static void wrong_usage_ends_with_2(void **state)
{
    (void)state;
    wrong_usage(ARGS("--sore", "memory"), "--sore");
    wrong_usage(ARGS("-x"), "-x");
    wrong_usage(ARGS("--listen"), "--listen");
    wrong_usage(ARGS("--quiet=1"), "--quiet");
    wrong_usage(ARGS("here"), "here");
    wrong_usage(ARGS("--quiet", "--", "x"), "x");
    wrong_usage(ARGS("--listen", "127.0.0.1:0", "--listen", "127.0.0.1:0"), "twice");
    wrong_usage(ARGS("--store", "memory", "--store", "memory"), "twice");
    wrong_usage(ARGS("--workers", "1", "--workers", "2"), "twice");
    wrong_usage(ARGS("--workers", "many"), "many");
    wrong_usage(ARGS("--workers", "-1"), "-1");
    wrong_usage(ARGS("--workers", "5000"), "workers");
    wrong_usage(ARGS("--listen", "nowhere"), "nowhere");
    wrong_usage(ARGS("--listen", "127.0.0.1:99999"), "99999");
    wrong_usage(ARGS("--listen", "\xff\xfe:1"), "listen");
    wrong_usage(ARGS("--listen", "10.0.0.1:0"), "insecure");
    wrong_usage(ARGS("--cluster", ""), "cluster");
    wrong_usage(ARGS("--store", "mongo:x"), "mongo:x");
    wrong_usage(ARGS("--seed", "127.0.0.1:1", "--store", "memory"), "seed");
    wrong_usage(ARGS("--tls-cert", "x.pem"), "tls");
    wrong_usage(ARGS("--seed", "a:1", "--seed", "a:1", "--seed", "a:1", "--seed", "a:1", "--seed",
                     "a:1", "--seed", "a:1", "--seed", "a:1", "--seed", "a:1", "--seed", "a:1"),
                "--seed");
}

static void a_huge_argument_is_refused(void **state)
{
    enum { HUGE_ARGUMENT = 100 * 1024 };
    char *huge = malloc(HUGE_ARGUMENT + 1);
    (void)state;
    assert_non_null(huge);
    memset(huge, 'x', HUGE_ARGUMENT);
    huge[HUGE_ARGUMENT] = '\0';
    wrong_usage(ARGS("--cluster", huge), "cluster");
    wrong_usage(ARGS(huge), "xxx");
    free(huge);
}

static void help_is_no_error(void **state)
{
    (void)state;
    child c = run(ARGS("--help"), false);
    read_until(&c, c.out, NULL);
    assert_non_null(strstr(c.text, "--listen"));
    assert_int_equal(status_of(&c), 0);
}

static void signals_end_it_cleanly(void **state)
{
    static const int signals[] = {SIGTERM, SIGINT};
    (void)state;
    for (int i = 0; i < 2; i++) {
        child c = run(ARGS("--quiet"), false);
        read_until(&c, c.out, "ready 127.0.0.1:");
        assert_int_equal(kill(c.pid, signals[i]), 0);
        assert_int_equal(status_of(&c), 0);
    }
}

/* Lines on standard error, as often as asked; then it goes on. */
static void sigusr1_says_what_it_does(void **state)
{
    (void)state;
    child c = run(ARGS("--quiet"), false);
    read_until(&c, c.out, "ready 127.0.0.1:");
    for (int i = 0; i < 3; i++) {
        assert_int_equal(kill(c.pid, SIGUSR1), 0);
        read_until(&c, c.err, "grains: 0 activations");
        assert_non_null(strstr(c.text, "of cluster dev: 1 members"));
        assert_non_null(strstr(c.text, "system target membership: "));
        assert_non_null(strstr(c.text, "slot 0: "));
    }
    assert_int_equal(kill(c.pid, SIGTERM), 0);
    assert_int_equal(status_of(&c), 0);
}

/* What it printed is an address that takes clients. */
static void ready_means_ready(void **state)
{
    char address[100], text[TEFF_TEXT_MAX];
    (void)state;
    child c = run(ARGS("--quiet", "--cluster", "outside", "--listen", "[::1]:0"), false);
    read_until(&c, c.out, "ready [::1]:");
    assert_int_equal(sscanf(strstr(c.text, "ready "), "ready %99s", address), 1);
    teff_client_options opt = {.cluster = "outside", .gateways = {address}};
    teff_client *client;
    if (teff_client_connect(&opt, &client, text))
        fail_msg("%s", text);
    teff_ctx *ctx = teff_client_ctx(client);
    lab_fails(ctx, lab_turns_nothing(ctx, "x"), TEFF_E_UNIMPLEMENTED);
    teff_ctx_free(ctx);
    assert_int_equal(kill(c.pid, SIGTERM), 0);
    assert_int_equal(status_of(&c), 0);
    teff_client_free(client);
}

static void a_closed_output_is_no_end(void **state)
{
    (void)state;
    child c = run(ARGS("--quiet"), true);
    read_until(&c, c.err, "is ready");
    assert_int_equal(kill(c.pid, SIGTERM), 0);
    assert_int_equal(status_of(&c), 0);
}

static void cannot_start(const char *const *args, const char *says)
{
    child c = run(args, false);
    read_until(&c, c.err, NULL);
    int status = status_of(&c);
    if (status != 1 || !strstr(c.text, says))
        fail_msg("status %d, '%s'; expected 1 and '%s'", status, c.text, says);
}

static void what_fails_at_run_time_ends_with_1(void **state)
{
    (void)state;
    lab *l = lab_open(1);
    const char *taken = teff_silo_address(l->silos[0]);
    cannot_start(ARGS("--quiet", "--listen", taken), taken);
    cannot_start(ARGS("--quiet", "--store", "sqlite:/nowhere/at/all.db"), "/nowhere/at/all.db");
    cannot_start(ARGS("--quiet", "--seed", "127.0.0.1:1"), "127.0.0.1:1");
    cannot_start(ARGS("--quiet", "--seed", taken, "--cluster", "other"), "cluster");
    lab_close(l);
}

/* A signal that comes while it still joins ends it too. */
static void a_signal_while_starting_ends_it(void **state)
{
    (void)state;
    for (int i = 0; i < 10; i++) {
        child c = run(ARGS("--quiet"), false);
        read_until(&c, c.out, "ready ");
        kill(c.pid, SIGTERM);
        kill(c.pid, SIGINT);
        kill(c.pid, SIGTERM);
        assert_int_equal(status_of(&c), 0);
    }
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(wrong_usage_ends_with_2),
        cmocka_unit_test(a_huge_argument_is_refused),
        cmocka_unit_test(help_is_no_error),
        cmocka_unit_test(signals_end_it_cleanly),
        cmocka_unit_test(sigusr1_says_what_it_does),
        cmocka_unit_test(ready_means_ready),
        cmocka_unit_test(a_closed_output_is_no_end),
        cmocka_unit_test(what_fails_at_run_time_ends_with_1),
        cmocka_unit_test(a_signal_while_starting_ends_it),
    };
    if (argc < 2)
        return 2;
    program = argv[1];
    return cmocka_run_group_tests(tests, NULL, NULL);
}
