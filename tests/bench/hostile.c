/* hostile.c - what hostile connections to a silo cost the silo's other callers: a client calls
 * while an attack goes to the silo, and while the same attack goes to a decoy, a process that only
 * accepts and reads. The attackers need the same processor time in both cases, so the ratio of the
 * calls' times shows what the silo adds.
 * usage: hostile TRANSPORT DOOR PER_SECOND ROUNDS MILLISECONDS; it starts itself as --silo, --decoy
 *   DOOR: own: the only port of a silo; silos, gateway: the two ports of a silo with a gateway;
 *   decoy: a second decoy is attacked instead of the silo, to show how exact the ratios are.
 *   PER_SECOND: connections; 0: as fast as possible. A round has three phases of MILLISECONDS.
 * Way:     hostile.py -> [hostile] -> attack -> decoy | silo */
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <teff/silo.h>
#include "attack.h"
#include "child.h"
#include "clock.h"
#include "decoy.h"
#include "guard.teff.h"
#include "latencies.h"
#include "transport.h"

enum { ROUNDS_MAX = 1000, WARM_MS = 100, SETTLE_MS = 300 };

static void check_or_exit(bool ok, const char *what)
{
    if (ok)
        return;
    fprintf(stderr, "hostile: %s\n", what);
    exit(1);
}

/* ---- the silo ---- */

static teff_err add(guard_target *self, const guard_small *in, guard_small *out)
{
    (void)self;
    out->number = in->number + 1;
    return TEFF_OK;
}

/* Its first line has the address for silos, then that for clients. Standard error, where it logs
 * what it refuses, is dropped. */
static int be_silo(const char *transport, bool has_gateway)
{
    static const guard_target_methods methods = {.add = add};
    teff_silo_options opt = {.size = sizeof opt, .cluster = "test"};
    teff_silo *silo;
    char line[200];
    opt.gateway = has_gateway ? "127.0.0.1:0" : NULL;
    check_or_exit(bench_transport_of(transport, &opt.transport), "no such transport");
    check_or_exit(dup2(open("/dev/null", O_WRONLY | O_CLOEXEC), 2) == 2, "no /dev/null");
    check_or_exit(!teff_silo_new(&opt, &silo, NULL) &&
                      !teff_silo_host(silo, guard_target_type(&methods, NULL)) &&
                      !teff_silo_start(silo, NULL),
                  "the silo does not start");
    snprintf(line, sizeof line, "%s %s", teff_silo_address(silo),
             has_gateway ? teff_silo_gateway(silo) : teff_silo_address(silo));
    bench_child_ready(line);
    teff_silo_free(silo);
    return 0;
}

/* ---- phases ---- */

typedef enum phase_kind { ALONE, BESIDE_DECOY, BESIDE_SILO, PHASES } phase_kind;

typedef struct phase {
    double median_us, p99_us, of_time_us; /* of_time: p99 by latencies_percentile_of_time_us() */
    double calls, seconds, connections, failed;
    double attackers_s, server_s, silo_s; /* processor time; server: what is attacked */
} phase;

typedef struct bench_run {
    teff_client *client;
    teff_ctx *ctx;
    bench_child silo, servers[PHASES]; /* servers: what is attacked, by phase_kind */
    const char *targets[PHASES];       /* their addresses; NULL: no attack */
    unsigned per_second;
    uint64_t ms;
    uint64_t n_phases;
    phase phases[PHASES][ROUNDS_MAX];
} bench_run;

typedef struct running_attack {
    pthread_t thread;
    attack_plan plan;
    attack_result result;
    _Atomic bool stop;
} running_attack;

static void *run_attack_thread(void *arg)
{
    running_attack *a = arg;
    a->result = attack_run(&a->plan);
    return NULL;
}

/* Calls one after the other, for ms. */
static void call_for(teff_ctx *ctx, uint64_t ms, latencies *took)
{
    latencies_clear(took);
    for (uint64_t begin = bench_now_ns(), last = begin; last - begin < ms * 1000000;) {
        guard_small *response;
        teff_mark mark = teff_ctx_mark(ctx);
        check_or_exit(!guard_target_add(ctx, 1000, guard_small(.number = 1), &response),
                      "a call failed");
        teff_ctx_rewind(ctx, mark);
        uint64_t now = bench_now_ns();
        latencies_add(took, now - last);
        last = now;
    }
}

/* The attack begins a little before the calls that count, and the connections that remain after it
 * have SETTLE_MS to end. */
static phase run_phase(bench_run *b, phase_kind kind)
{
    static latencies took;
    bench_child *server = &b->servers[kind];
    running_attack a = {.plan = {.address = b->targets[kind],
                                 .connections = 1ul << 40,
                                 .per_second = b->per_second,
                                 .seed = b->n_phases++ / PHASES}}; /* the same within a round */
    a.plan.stop = &a.stop;
    phase p = {0};
    uint64_t begin = bench_now_ns();
    double server_s = bench_child_seconds(server), silo_s = bench_child_seconds(&b->silo);
    if (b->targets[kind])
        check_or_exit(pthread_create(&a.thread, NULL, run_attack_thread, &a) == 0, "no thread");
    call_for(b->ctx, WARM_MS, &took);
    p.calls += (double)took.n;
    call_for(b->ctx, b->ms, &took);
    p.calls += (double)took.n;
    p.seconds = (double)(bench_now_ns() - begin) / 1e9;
    a.stop = true;
    if (b->targets[kind])
        pthread_join(a.thread, NULL);
    bench_sleep_ms(SETTLE_MS);
    p.median_us = latencies_percentile_us(&took, 0.5);
    p.p99_us = latencies_percentile_us(&took, 0.99);
    p.of_time_us = latencies_percentile_of_time_us(&took, 0.99);
    p.connections = (double)a.result.connected;
    p.failed = (double)a.result.failed;
    p.attackers_s = a.result.cpu_s;
    p.server_s = bench_child_seconds(server) - server_s;
    p.silo_s = bench_child_seconds(&b->silo) - silo_s;
    return p;
}

/* ---- what is printed ---- */

static int compare_doubles(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return x < y ? -1 : x > y;
}

/* Prints the quartiles; sorts the values. */
static void print_quartiles(const char *name, double *values, int n)
{
    qsort(values, (size_t)n, sizeof *values, compare_doubles);
    printf(", \"%s\": [%.4g, %.4g, %.4g]", name, values[n / 4], values[n / 2], values[n * 3 / 4]);
}

static void print_ratios(const char *name, const phase *of, const phase *to, int n)
{
    double p99[ROUNDS_MAX], median[ROUNDS_MAX], of_time[ROUNDS_MAX];
    char line[60];
    for (int i = 0; i < n; i++) {
        p99[i] = of[i].p99_us / to[i].p99_us;
        median[i] = of[i].median_us / to[i].median_us;
        of_time[i] = of[i].of_time_us / to[i].of_time_us;
    }
    snprintf(line, sizeof line, "p99_%s", name);
    print_quartiles(line, p99, n);
    snprintf(line, sizeof line, "median_%s", name);
    print_quartiles(line, median, n);
    snprintf(line, sizeof line, "p99_of_time_%s", name);
    print_quartiles(line, of_time, n);
}

static void print_phases(const char *name, const phase *p, int n)
{
    double p99[ROUNDS_MAX], median[ROUNDS_MAX], of_time[ROUNDS_MAX], failed = 0;
    double connections = 0, seconds = 0, attackers_s = 0;
    char line[60];
    for (int i = 0; i < n; i++) {
        p99[i] = p[i].p99_us;
        median[i] = p[i].median_us;
        of_time[i] = p[i].of_time_us;
        failed += p[i].failed;
        connections += p[i].connections;
        seconds += p[i].seconds;
        attackers_s += p[i].attackers_s;
    }
    snprintf(line, sizeof line, "%s_p99_us", name);
    print_quartiles(line, p99, n);
    snprintf(line, sizeof line, "%s_median_us", name);
    print_quartiles(line, median, n);
    snprintf(line, sizeof line, "%s_p99_of_time_us", name);
    print_quartiles(line, of_time, n);
    printf(", \"%s_connections_per_s\": %.0f, \"%s_failed\": %.0f", name, connections / seconds,
           name, failed);
    if (connections > 0)
        printf(", \"%s_attackers_us\": %.1f", name, attackers_s / connections * 1e6);
}

/* Prints the processor time of the silo and of the decoy for a connection. That of the silo is what
 * it takes more than in the phases in which it only serves calls. */
static void print_costs(bench_run *b, int n)
{
    double idle_s = 0, idle_calls = 0, calls = 0, silo_s = 0, decoy_s = 0;
    double to_silo = 0, to_decoy = 0;
    for (int i = 0; i < n; i++) {
        const phase *decoy = &b->phases[BESIDE_DECOY][i], *silo = &b->phases[BESIDE_SILO][i];
        idle_s += decoy->silo_s;
        idle_calls += decoy->calls;
        calls += silo->calls;
        silo_s += silo->silo_s;
        decoy_s += decoy->server_s;
        to_silo += silo->connections;
        to_decoy += decoy->connections;
    }
    printf(", \"silo_us\": %.1f, \"decoy_us\": %.1f",
           (silo_s - idle_s * calls / idle_calls) / to_silo * 1e6, decoy_s / to_decoy * 1e6);
}

static void print_run(bench_run *b, int n)
{
    print_ratios("silo_to_decoy", b->phases[BESIDE_SILO], b->phases[BESIDE_DECOY], n);
    print_ratios("silo_to_alone", b->phases[BESIDE_SILO], b->phases[ALONE], n);
    print_phases("alone", b->phases[ALONE], n);
    print_phases("decoy", b->phases[BESIDE_DECOY], n);
    print_phases("silo", b->phases[BESIDE_SILO], n);
    print_costs(b, n);
}

/* ---- the run ---- */

/* in: door: whose roles it accepts. out: its address. */
static const char *start_decoy(bench_child *decoy, const char *door)
{
    const char *const args[] = {"--decoy", door, NULL};
    check_or_exit(bench_child_start(decoy, args), "the decoy does not start");
    return decoy->said;
}

/* Starts the silo, the decoys and the client. */
static void start_all(bench_run *b, const char *transport, const char *door)
{
    static char silos[100], clients[100];
    bool has_gateway = strcmp(door, "own") != 0;
    const char *const args[] = {"--silo", transport, has_gateway ? "gateway" : "", NULL};
    check_or_exit(bench_child_start(&b->silo, args) &&
                      sscanf(b->silo.said, "%99s %99s", silos, clients) == 2,
                  "the silo does not start");
    b->targets[BESIDE_DECOY] = start_decoy(&b->servers[BESIDE_DECOY], door);
    b->servers[BESIDE_SILO] = b->silo;
    b->targets[BESIDE_SILO] = strcmp(door, "gateway") == 0 ? clients : silos;
    if (strcmp(door, "decoy") == 0)
        b->targets[BESIDE_SILO] = start_decoy(&b->servers[BESIDE_SILO], door);
    b->servers[ALONE] = b->silo;
    teff_client_options opt = {.size = sizeof opt, .cluster = "test", .gateways = {clients}};
    check_or_exit(bench_transport_of(transport, &opt.transport) &&
                      !teff_client_connect(&opt, &b->client, NULL),
                  "the client cannot connect");
    b->ctx = teff_client_new_ctx(b->client);
}

int main(int argc, char **argv)
{
    static bench_run b;
    static const phase_kind orders[][PHASES] = {{ALONE, BESIDE_DECOY, BESIDE_SILO},
                                                {BESIDE_SILO, BESIDE_DECOY, ALONE}};
    signal(SIGPIPE, SIG_IGN);
    if (argc == 4 && strcmp(argv[1], "--silo") == 0)
        return be_silo(argv[2], *argv[3]);
    if (argc == 3 && strcmp(argv[1], "--decoy") == 0)
        return decoy_run(strcmp(argv[2], "gateway") != 0, strcmp(argv[2], "silos") != 0);
    int rounds = argc == 6 ? atoi(argv[4]) : 0;
    check_or_exit(rounds > 0 && rounds <= ROUNDS_MAX,
                  "usage: hostile TRANSPORT DOOR PER_SECOND ROUNDS MILLISECONDS");
    b.per_second = (unsigned)atoi(argv[3]);
    b.ms = strtoull(argv[5], NULL, 10);
    start_all(&b, argv[1], argv[2]);
    for (int i = 0; i < rounds; i++)
        for (int k = 0; k < PHASES; k++) {
            phase_kind kind = orders[i % 2][k];
            b.phases[kind][i] = run_phase(&b, kind);
        }
    printf("{\"rounds\": %d", rounds);
    print_run(&b, rounds);
    printf("}\n");
    fflush(stdout);
    teff_ctx_free(b.ctx);
    teff_client_free(b.client);
    bench_child_stop(&b.silo);
    for (int i = BESIDE_DECOY; i < PHASES; i++)
        if (b.servers[i].pid != b.silo.pid)
            bench_child_stop(&b.servers[i]);
    return 0;
}
