/* store_postgres.c - rows store-save-postgres: saves per second of grains that save at once, on a
 * PostgreSQL server of the bench's own, and what PostgreSQL's own pgbench reaches with as many
 * clients (at most 90) that each write one such row at a time.
 * Way:     bench.c -> [store_postgres] -> store_savers -> store -> server; or -> pgbench
 * They take turns, so that both meet the same disk. */
#include <stdio.h>
#include "pg_server.h"
#include "store_savers.h"

static const char script[] =
    "\\set k random(1, 1024)\n"
    "INSERT INTO teff.rows VALUES ('loop', int4send(:k), 1, 'twelve bytes') ON CONFLICT (tab, key) "
    "DO UPDATE SET etag = teff.rows.etag + 1, value = EXCLUDED.value;\n";

static void run_row(const bench *b, const char *address, const savers *s, uint64_t together)
{
    enum { CLIENTS_MAX = 90 };
    double grains[RUNS_MAX] = {0}, pgbench[RUNS_MAX] = {0}, ratios[RUNS_MAX] = {0};
    char name[40], plain[40];
    snprintf(name, sizeof name, "store-save-postgres-%d", (int)together);
    snprintf(plain, sizeof plain, "pgbench-%d", (int)together);
    if (!bench_wanted(b, name) && !bench_wanted(b, plain))
        return;
    uint64_t n = savers_fitting(b, s, together);
    unsigned clients = together < CLIENTS_MAX ? (unsigned)together : CLIENTS_MAX;
    for (int r = 0; r < b->runs; r++) {
        grains[r] = (double)n / savers_run(s, n, together);
        pgbench[r] = pg_server_bench(address, script, clients, b->seconds);
        ratios[r] = grains[r] / pgbench[r];
    }
    savers_print(b, name, together, n, grains, "to_pgbench", ratios);
    savers_print(b, plain, clients, n, pgbench, NULL, NULL);
}

void bench_store_postgres(const bench *b)
{
    static const uint64_t at_once[] = {1, 64, 1024};
    char address[512];
    if (!bench_wanted(b, "store-save-postgres-1024") &&
        !bench_wanted(b, "store-save-postgres-64") && !bench_wanted(b, "pgbench-1024"))
        return;
    if (!pg_server_open())
        return;
    pg_server_fresh(address);
    savers s = savers_open(address);
    for (size_t i = 0; i < sizeof at_once / sizeof at_once[0]; i++)
        run_row(b, address, &s, at_once[i]);
    savers_close(&s);
    pg_server_close();
}
