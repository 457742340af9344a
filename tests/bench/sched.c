/* sched.c - the scheduler's rows in teff: sched.py runs them beside the other systems' programs.
 * usage: sched ROW WORKERS N [process]      prints RESULT ops=... seconds=... (see peers/README.md)
 * Rows run on groups, the scheduler itself; with `process` on processes, what users get. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "sched_actor.h"

typedef struct row {
    const char *name;
    row_run *run;
    bool once; /* without a run before it that warms the machine up */
} row;

static const row group_rows[] = {
    {"ping-pong", row_ping_pong, false},
    {"ring", row_ring, false},
    {"counting", row_counting, false},
    {"fork-join-throughput", row_fork_join_throughput, false},
    {"fork-join-create", row_fork_join_create, false},
    {"big", row_big, false},
    {"chameneos", row_chameneos, false},
    {"skynet", row_skynet, false},
    {"timers", row_timers, false},
    {"fair", row_fair, true},
    {"hog", row_hog, true},
    {"idle-bytes", row_idle_bytes, true},
    {NULL, NULL, false},
};

static const row process_rows[] = {
    {"ping-pong", row_process_ping_pong, false},  {"ring", row_process_ring, false},
    {"counting", row_process_counting, false},    {"fork-join-create", row_process_create, false},
    {"idle-bytes", row_process_idle_bytes, true}, {NULL, NULL, false},
};

static result timed(row_run *run, int64_t n)
{
    uint64_t begin = teffi_now(&bench_platform);
    result r = run(n);
    if (r.seconds == 0)
        r.seconds = (double)(teffi_now(&bench_platform) - begin) / 1e9;
    return r;
}

static void print(const result *r)
{
    if (r->bytes > 0)
        printf("RESULT bytes=%f\n", r->bytes);
    else
        printf("RESULT ops=%lld seconds=%.9f p99_us=%f\n", (long long)r->ops, r->seconds,
               r->p99_us);
}

static int run_row(const row *r, const char *name, int64_t n)
{
    while (r->name && strcmp(r->name, name) != 0)
        r++;
    if (!r->name) {
        fprintf(stderr, "sched: no such row: %s\n", name);
        return 2;
    }
    if (!r->once)
        (void)r->run(n);
    result took = timed(r->run, n);
    print(&took);
    return 0;
}

static int on_groups(const char *name, unsigned workers, int64_t n)
{
    teff_err err = teffi_exec_real_new(&bench_platform, workers, NULL, &bench_exec);
    if (err) {
        fprintf(stderr, "sched: %s\n", teff_err_name(err));
        return 1;
    }
    int status = run_row(group_rows, name, n);
    bench_exec->ops->free(bench_exec);
    return status;
}

static int on_processes(const char *name, unsigned workers, int64_t n)
{
    row_processes_open(workers);
    int status = run_row(process_rows, name, n);
    row_processes_close();
    return status;
}

int main(int argc, char **argv)
{
    if (argc < 4) {
        fprintf(stderr, "usage: sched ROW WORKERS N [process]\n");
        return 2;
    }
    teffi_platform_init_real(&bench_platform, TEFF_LOG_ERROR);
    unsigned workers = (unsigned)atoi(argv[2]);
    return (argc > 4 ? on_processes : on_groups)(argv[1], workers, atoll(argv[3]));
}
