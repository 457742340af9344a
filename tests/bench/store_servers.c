/* store_servers.c - rows saves-ENGINE-N: saves per second of N grains that save at once, on a
 * server of the bench's own; and what a plain client reaches that writes one such row at a time on
 * each of N connections: pgbench (at most 90), redis-benchmark, or libcurl for etcd.
 * Way:     bench.c -> [store_servers] -> store_savers -> store -> server; or -> the plain client
 * They take turns, so that both meet the same disk. */
#include <stdio.h>
#include <string.h>
#include "scratch.h"
#include "store_savers.h"
#ifdef BENCH_POSTGRES
#include "pg_server.h"
#endif
#ifdef BENCH_REDIS
#include "redis_server.h"
#endif
#ifdef BENCH_ETCD
#include "etcd_server.h"
#endif

typedef struct server {
    const char *engine, *plain, *to; /* names of rows, and of the ratio */
    unsigned clients_max;            /* connections of the plain client */
    bool (*open)(void);              /* out: false: not installed */
    void (*fresh)(char *address);
    double (*run_plain)(const char *address, unsigned clients, double seconds);
    void (*close)(void);
} server;

#ifdef BENCH_POSTGRES
static double run_pgbench(const char *address, unsigned clients, double seconds)
{
    static const char script[] =
        "\\set k random(1, 1024)\n"
        "INSERT INTO teff.rows VALUES ('loop', int4send(:k), 1, 'twelve bytes') ON CONFLICT (tab, "
        "key) DO UPDATE SET etag = teff.rows.etag + 1, value = EXCLUDED.value;\n";
    return pg_server_bench(address, script, clients, seconds);
}
#endif

#ifdef BENCH_REDIS
static bool open_redis(void)
{
    return scratch_open() == 0 && redis_server_start("yes");
}

static double run_redis_benchmark(const char *address, unsigned clients, double seconds)
{
    (void)address;
    return redis_server_bench(clients, seconds);
}

static void close_redis(void)
{
    redis_server_stop();
    scratch_close();
}
#endif

#ifdef BENCH_ETCD
static bool open_etcd(void)
{
    return scratch_open() == 0 && etcd_server_start(1);
}

static double run_curl(const char *address, unsigned clients, double seconds)
{
    (void)address;
    return etcd_server_bench(clients, seconds);
}

static void close_etcd(void)
{
    etcd_server_stop();
    scratch_close();
}
#endif

static const server servers[] = {
#ifdef BENCH_POSTGRES
    {"postgres", "pgbench", "to_pgbench", 90, pg_server_open, pg_server_fresh, run_pgbench,
     pg_server_close},
#endif
#ifdef BENCH_REDIS
    {"redis", "redis-benchmark", "to_redis_benchmark", SAVERS_MAX, open_redis, redis_server_fresh,
     run_redis_benchmark, close_redis},
#endif
#ifdef BENCH_ETCD
    {"etcd", "etcd-curl", "to_etcd_curl", SAVERS_MAX, open_etcd, etcd_server_fresh, run_curl,
     close_etcd},
#endif
    {0}};

/* in: address, NULL: only ask. out: is a row of so many grains wanted? */
static bool run_row(const bench *b, const server *s, const char *address, const savers *grains,
                    unsigned at_once)
{
    double saves[RUNS_MAX] = {0}, plain[RUNS_MAX] = {0}, ratios[RUNS_MAX] = {0};
    char name[60], plain_name[60];
    snprintf(name, sizeof name, "saves-%s-%u", s->engine, at_once);
    snprintf(plain_name, sizeof plain_name, "saves-%s-%u", s->plain, at_once);
    bool wanted = bench_wanted(b, name) || bench_wanted(b, plain_name);
    if (!wanted || !address)
        return wanted;
    uint64_t n = savers_fitting(b, grains, at_once);
    unsigned clients = at_once < s->clients_max ? at_once : s->clients_max;
    for (int r = 0; r < b->runs; r++) {
        saves[r] = (double)n / savers_run(grains, n, at_once);
        plain[r] = s->run_plain(address, clients, b->seconds);
        ratios[r] = saves[r] / plain[r];
    }
    savers_print(b, name, at_once, n, saves, s->to, ratios);
    savers_print(b, plain_name, clients, n, plain, NULL, NULL);
    return true;
}

void bench_store_servers(const bench *b)
{
    static const unsigned at_once[] = {1, 64, 1024};
    enum { N = sizeof at_once / sizeof at_once[0] };
    for (const server *s = servers; s->engine; s++) {
        char address[512];
        bool wanted = false;
        for (int i = 0; i < N; i++)
            wanted |= run_row(b, s, NULL, NULL, at_once[i]);
        if (!wanted)
            continue;
        if (!s->open()) {
            fprintf(stderr, "bench: %s: its server is not installed\n", s->engine);
            continue;
        }
        s->fresh(address);
        savers grains = savers_open(address);
        for (int i = 0; i < N; i++)
            (void)run_row(b, s, address, &grains, at_once[i]);
        savers_close(&grains);
        s->close();
    }
}
