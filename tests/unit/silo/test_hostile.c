/* test_hostile.c - a silo of another process under thousands of hostile connections: garbage, lies
 * in the handshake, half-open and dripping ones, floods of each frame, forged ids and roles. It
 * does not end, a client beside them is served, and descriptors and allocated bytes are as before
 * when they are over.
 * usage:   test_silo_hostile SILO_PROGRAM TRANSPORT [CONNECTIONS [SEED]]; it prints SEED
 * Way:     [hostile] -> attack -> sockets, and a client ===> hostile_silo
 * Threads: attackers, and one that calls through the client. */
#include <fcntl.h>
#include <math.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>
#include "../../bench/latencies.h"
#include "../../bench/resident.h"
#include "attack.h"
#include "child.h"
#include "lab.h"

enum {
    CONNECTIONS = 5000,
    WARM_UP = 10, /* a share of the connections comes before memory is measured */
    /* The link keeps the memory of up to 4,096 connections for reuse (link/next_hop.c). */
    KEPT_MAX = 10 * 1024 * 1024,
    KEPT_FIRST = 1024 * 1024,
    KEPT_EACH = 200, /* on average; a leak would be more */
    SETTLE_MS = 30000
};

static const char *transport;
static char address[64];
static unsigned long connections = CONNECTIONS, seed;
static attack_result all;
static _Atomic bool is_over;

static void attack(unsigned long n, uint64_t stream)
{
    attack_plan plan = {.address = address, .connections = n, .seed = seed, .stream = stream};
    attack_result result = attack_run(&plan);
    all.connected += result.connected;
    all.failed += result.failed;
}

/* ---- the client beside them ---- */

typedef struct caller {
    pthread_t thread;
    teff_ctx *ctx;
    latencies took;
    teff_err err;
} caller;

static caller good;

static uint64_t now_ns(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec;
}

static void *call_often(void *arg)
{
    caller *c = arg;
    while (!is_over && !c->err) {
        lab_text *out;
        uint64_t begin = now_ns();
        c->err = lab_hashed_where(c->ctx, "home", &out);
        latencies_add(&c->took, now_ns() - begin);
        if (!c->err)
            teff_ctx_reset(c->ctx);
    }
    return NULL;
}

static void begin_calls(void)
{
    latencies_clear(&good.took);
    is_over = false;
    assert_int_equal(pthread_create(&good.thread, NULL, call_often, &good), 0);
}

/* All calls have succeeded. Prints how long they took. */
static void end_calls(const char *when)
{
    is_over = true;
    pthread_join(good.thread, NULL);
    if (good.err)
        fail_msg("%s: %s: %s", when, teff_err_name(good.err), teff_error(good.ctx));
    assert_true(good.took.n > 0);
    printf("%s, %s: %lu calls, median %.0f us, p99 %.0f us\n", transport, when,
           (unsigned long)good.took.n, latencies_percentile_us(&good.took, 0.5),
           latencies_percentile_us(&good.took, 0.99));
}

static void call_alone(const char *when)
{
    struct timespec second = {1, 0};
    begin_calls();
    nanosleep(&second, NULL);
    end_calls(when);
}

/* ---- the silo ---- */

static unsigned count_fds(pid_t pid)
{
    char path[64];
    unsigned n = 0;
    for (int fd = 0; fd < 65536; fd++) {
        snprintf(path, sizeof path, "/proc/%d/fd/%d", (int)pid, fd);
        n += access(path, F_OK) == 0 || faccessat(AT_FDCWD, path, F_OK, AT_SYMLINK_NOFOLLOW) == 0;
    }
    return n;
}

/* Reads what the silo logs, until it ends: if the pipe were full, the silo would wait. */
static void *drop_log(void *fd)
{
    char ignored[4096];
    while (read(*(int *)fd, ignored, sizeof ignored) > 0)
        continue;
    return NULL;
}

/* out: the bytes that it has allocated. */
static double ask_used(void)
{
    lab_text *out;
    lab_ok(good.ctx, lab_hashed_where(good.ctx, "used", &out));
    double used = atof(out->text);
    teff_ctx_reset(good.ctx);
    return used;
}

static double growth_max(void)
{
    double kept = KEPT_FIRST + (double)connections * KEPT_EACH;
    return kept < KEPT_MAX ? kept : KEPT_MAX;
}

/* Waits until its descriptors are as few, and its bytes as many, as before. */
static void wait_settled(pid_t pid, unsigned fds, double used_max)
{
    struct timespec pause = {.tv_nsec = 200000000};
    uint64_t until = now_ns() + SETTLE_MS * 1000000ull;
    unsigned open = count_fds(pid); /* it may open a file for a moment at any time */
    double used = ask_used();
    while ((open > fds || used > used_max) && now_ns() < until) {
        nanosleep(&pause, NULL);
        open = count_fds(pid);
        used = ask_used();
    }
    if (open > fds || used > used_max)
        fail_msg("%u descriptors, %.0f bytes; before: %u, and at most %.0f", open, used, fds,
                 used_max);
}

static void a_silo_outlives_them_and_serves_others(void **state)
{
    child silo = child_run(ARGS("--quiet", "--cluster", "test", "--transport", transport), false);
    teff_client_options opt = {.size = sizeof opt, .cluster = "test", .gateways = {address}};
    teff_client *client;
    char text[TEFF_TEXT_MAX] = "";
    pthread_t log;
    assert_int_equal(pthread_create(&log, NULL, drop_log, &silo.err), 0);
    child_read(&silo, silo.out, "ready ");
    assert_int_equal(sscanf(strstr(silo.text, "ready "), "ready %63s", address), 1);
    if (teff_client_connect(&opt, &client, text))
        fail_msg("%s", text);
    good.ctx = teff_client_new_ctx(client);
    call_alone("alone");
    unsigned fds = count_fds(silo.pid);
    attack(connections / WARM_UP, 0);
    wait_settled(silo.pid, fds, HUGE_VAL);
    double used = ask_used(), resident = bench_resident_bytes_of(silo.pid);
    begin_calls();
    attack(connections, 1);
    end_calls("beside them");
    wait_settled(silo.pid, fds, used + growth_max());
    call_alone("after them");
    printf("%s: %lu connections, %lu failed; allocated bytes: %.0f, then %.0f; resident: %.0f, "
           "then %.0f\n",
           transport, all.connected, all.failed, used, ask_used(), resident,
           bench_resident_bytes_of(silo.pid));
    assert_int_equal(all.failed, 0);
    teff_ctx_free(good.ctx);
    teff_client_free(client);
    assert_int_equal(kill(silo.pid, SIGTERM), 0);
    pthread_join(log, NULL);
    assert_int_equal(child_status(&silo), 0);
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(a_silo_outlives_them_and_serves_others)};
    if (argc < 3)
        return 2;
    signal(SIGPIPE, SIG_IGN);
    child_program = argv[1];
    transport = argv[2];
    connections = argc > 3 ? strtoul(argv[3], NULL, 10) : CONNECTIONS;
    seed = argc > 4 ? strtoul(argv[4], NULL, 10) : (unsigned long)(now_ns() % 1000000000u);
    printf("%s: again: %lu connections, seed %lu\n", transport, connections, seed);
    fflush(stdout);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
