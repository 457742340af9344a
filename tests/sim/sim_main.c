/* sim_main.c - runs seeds: each twice, the traces must match; or a planted bug until it is found.
 *     sim [--seeds N] [--first S] [--regressions FILE]      TEFF_SEED=n or --seed n: that one only
 *     sim --planted NAME [--seeds N]                        exits 0 when a seed finds it
 *     TEFF_FAULTS=2,7 or --faults 2,7     only these faults happen; all, none. A failed run prints
 *                                         its faults; without --faults and --trace, those it needs
 *     sim --each-op STEP [--seeds N]      each STEP-th operation of the store fails, one a run, in
 *                                         each way; --op N:WAY: this one */
#include <inttypes.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>
#include "sim_alloc.h"
#include "sim_shrink.h"
#include "sim_world.h"

static const char *const plants[SIM_PLANTS] = {
    "none",    "twice",    "register",  "lost",    "unsaved", "hasty", "recover",
    "stale",   "repeated", "dropped",   "forged",  "skipped", "kept",  "unread",
    "endless", "skewed",   "forgotten", "keyless", "paired"};

static const char *const ways[SIM_FAILURES] = {"none", "io", "unknown", "unknown-done", "conflict"};

typedef struct options {
    uint64_t first, seeds, each_op;
    sim_nth nth;
    const char *regressions;
    sim_plant plant;
    sim_kept kept;
    bool one, trace, has_faults, is_try; /* is_try: the run of a parent that shrinks its faults */
} options;

typedef struct totals {
    uint64_t op_failures, runs, calls, failed, unknown, transactions, asks, moves, sim_ns, events;
} totals;

static options opt = {.first = 1, .seeds = 100};
static totals total;
static sim_world world; /* too large for a stack */
static const char *program;

static double now_s(void)
{
    struct timespec ts;
    clock_gettime(CLOCK_MONOTONIC, &ts);
    return (double)ts.tv_sec + (double)ts.tv_nsec / 1e9;
}

static void print_polled(const char *name, bool polled)
{
    if (polled)
        fprintf(stderr, " %s", name);
}

static void print_polled_nodes(void)
{
    fprintf(stderr, "polled:");
    for (unsigned i = 0; i < world.n_silos; i++)
        print_polled(world.silos[i].node.name, world.silos[i].node.polled);
    for (unsigned i = 0; i < world.n_clients; i++)
        print_polled(world.clients[i].node.name, world.clients[i].node.polled);
    fprintf(stderr, "\n");
}

/* The arguments that replay the run, but for its seed and its faults. */
static const char *const *make_run_args(void)
{
    static const char *args[4];
    static char op[64];
    unsigned n = 0;
    if (opt.nth.failure) {
        snprintf(op, sizeof op, "%" PRIu64 ":%s", opt.nth.n, ways[opt.nth.failure]);
        args[n++] = "--op";
        args[n++] = op;
    } else if (opt.plant != SIM_PLANT_NONE) {
        args[n++] = "--planted";
        args[n++] = plants[opt.plant];
    }
    args[n] = NULL;
    return args;
}

/* The faults that the run needs; when it is replayed, those that it had. */
static void report_faults(const sim *s)
{
    if (!opt.has_faults && !opt.trace) {
        sim_shrink(s, program, make_run_args());
        return;
    }
    fprintf(stderr, "its %u faults:\n", sim_fault_list_count(&s->list));
    sim_fault_list_print(&s->list, stderr);
}

/* Of many seeds with a planted bug, one is expected to fail, and its faults do not matter. */
static _Noreturn void report_planted(const sim *s)
{
    printf("planted %s: found by seed %" PRIu64 ": %s\n", plants[opt.plant], s->seed, s->why);
    fflush(stdout);
    if (opt.one)
        report_faults(s);
    _exit(0);
}

/* A broken run cannot be freed, so the process ends here. */
static void report_failure(sim *s)
{
    fflush(stdout);
    if (opt.is_try) {
        sim_shrink_report(s);
        _exit(1);
    }
    if (opt.plant != SIM_PLANT_NONE)
        report_planted(s);
    sim_trace_tail(&s->trace);
    print_polled_nodes();
    fprintf(stderr, "seed %" PRIu64 " failed: %s\nagain: TEFF_SEED=%" PRIu64 " %s --trace", s->seed,
            s->why, s->seed, program);
    if (opt.nth.failure)
        fprintf(stderr, " --op %" PRIu64 ":%s", opt.nth.n, ways[opt.nth.failure]);
    fprintf(stderr, "\n");
    report_faults(s);
    _exit(1);
}

/* A bug check of the product (teffi_bug_if) ends the process. */
static void report_abort(int number)
{
    signal(number, SIG_DFL);
    sim_fail(&world.s, "the process has aborted");
    report_failure(&world.s);
}

static uint64_t run_seed(uint64_t seed)
{
    int64_t live = sim_alloc_live();
    sim_world_init(&world, seed, opt.plant, &opt.kept);
    world.s.report = report_failure;
    world.s.nth = opt.nth;
    world.store_faults |= opt.nth.failure != SIM_FAILURE_NONE;
    world.s.trace.print = opt.trace;
    if (!sim_world_run(&world))
        report_failure(&world.s);
    total.runs++;
    total.calls += world.calls;
    total.failed += world.failed;
    total.unknown += world.unknown;
    total.transactions += sim_bank_calls(&world);
    total.asks += sim_processes_asks(&world);
    total.moves += world.moves;
    total.sim_ns += world.s.now_ns;
    total.events += world.s.trace.count;
    total.op_failures += world.s.nth.happened;
    sim_world_fini(&world);
    if (sim_alloc_live() != live && opt.plant == SIM_PLANT_NONE) {
        sim_fail(&world.s, "%" PRId64 " blocks of memory were not freed", sim_alloc_live() - live);
        report_failure(&world.s);
    }
    return world.s.trace.hash;
}

/* The stack's address differs between processes: it salts the sizes of blocks. */
static void shuffle_memory(int fill)
{
    static uint64_t n;
    char here;
    sim_alloc_shuffle((uint64_t)(uintptr_t)&here + ++n, fill);
}

static void run_twice(uint64_t seed)
{
    shuffle_memory(0xa5);
    uint64_t first = run_seed(seed);
    shuffle_memory(0x5a);
    uint64_t second = run_seed(seed);
    if (first == second)
        return;
    sim_fail(&world.s, "its two runs differ: %016" PRIx64 ", %016" PRIx64, first, second);
    report_failure(&world.s);
}

/* One operation of the store fails in each run, in each way. The runs differ from then on. */
static void fail_each_op(uint64_t seed)
{
    static const sim_nth none;
    opt.nth = none;
    run_twice(seed);
    uint64_t ops = world.s.nth.ops;
    for (uint64_t n = 1 + seed % opt.each_op; n <= ops; n += opt.each_op)
        for (int way = SIM_FAILURE_IO; way < SIM_FAILURES; way++) {
            opt.nth = (sim_nth){.failure = (sim_failure)way, .n = n};
            (void)run_seed(seed);
        }
    opt.nth = none;
}

/* Seeds that found a defect once; a line is "seed: the defect". */
static void run_regressions(const char *path)
{
    FILE *f = fopen(path, "r");
    char line[256];
    if (!f) {
        perror(path);
        exit(2);
    }
    while (fgets(line, sizeof line, f))
        if (line[0] >= '0' && line[0] <= '9')
            run_twice(strtoull(line, NULL, 10));
    fclose(f);
}

static void print_totals(double seconds)
{
    double simulated = (double)total.sim_ns / 1e9;
    if (opt.each_op)
        printf("sim: %" PRIu64 " operations of the store failed\n", total.op_failures);
    printf("sim: ok: %" PRIu64 " runs, %" PRIu64 " calls (%" PRIu64 " failed, %" PRIu64
           " unknown), %" PRIu64 " transactions, %" PRIu64 " requests to processes, %" PRIu64
           " joins and leaves, %" PRIu64 " events, %.0f s simulated in %.1f s: "
           "%.0f times real time\n",
           total.runs, total.calls, total.failed, total.unknown, total.transactions, total.asks,
           total.moves, total.events, simulated, seconds, simulated / seconds);
}

static sim_plant plant_of(const char *name)
{
    for (int i = 1; i < SIM_PLANTS; i++)
        if (strcmp(plants[i], name) == 0)
            return (sim_plant)i;
    fprintf(stderr, "no such planted bug: %s\n", name);
    exit(2);
}

static sim_nth nth_of(const char *text)
{
    const char *colon = strchr(text, ':');
    for (int i = 1; colon && i < SIM_FAILURES; i++)
        if (strcmp(ways[i], colon + 1) == 0)
            return (sim_nth){.failure = (sim_failure)i, .n = strtoull(text, NULL, 10)};
    fprintf(stderr, "--op %s: expected N:io, N:unknown, N:unknown-done or N:conflict\n", text);
    exit(2);
}

static void one_seed(const char *text)
{
    opt.first = strtoull(text, NULL, 10);
    opt.seeds = 1;
    opt.one = true;
}

/* out: true: an option without a value; it is set. */
static bool is_flag(const char *name)
{
    bool trace = strcmp(name, "--trace") == 0, is_try = strcmp(name, "--try") == 0;
    opt.trace |= trace;
    opt.is_try |= is_try;
    return trace || is_try;
}

static void choose_faults(const char *text)
{
    if (!sim_kept_parse(&opt.kept, text)) {
        fprintf(stderr, "--faults %s: expected all, none or numbers such as 2,7\n", text);
        exit(2);
    }
    opt.has_faults = true;
}

static void parse_options(int argc, char **argv)
{
    for (int i = 1; i < argc; i++) {
        const char *value = i + 1 < argc ? argv[i + 1] : "";
        if (is_flag(argv[i]))
            continue;
        if (strcmp(argv[i], "--seeds") == 0)
            opt.seeds = strtoull(value, NULL, 10);
        else if (strcmp(argv[i], "--first") == 0)
            opt.first = strtoull(value, NULL, 10);
        else if (strcmp(argv[i], "--seed") == 0)
            one_seed(value);
        else if (strcmp(argv[i], "--regressions") == 0)
            opt.regressions = value;
        else if (strcmp(argv[i], "--each-op") == 0)
            opt.each_op = strtoull(value, NULL, 10);
        else if (strcmp(argv[i], "--op") == 0)
            opt.nth = nth_of(value);
        else if (strcmp(argv[i], "--faults") == 0)
            choose_faults(value);
        else if (strcmp(argv[i], "--planted") == 0)
            opt.plant = plant_of(value);
        else {
            fprintf(stderr, "usage: sim [--seeds N] [--first S] [--seed S] [--trace] "
                            "[--regressions FILE] [--planted NAME] [--each-op STEP] [--op N:WAY] "
                            "[--faults LIST]\n");
            exit(2);
        }
        i++;
    }
    if (getenv("TEFF_SEED"))
        one_seed(getenv("TEFF_SEED"));
    if (getenv("TEFF_FAULTS"))
        choose_faults(getenv("TEFF_FAULTS"));
}

int main(int argc, char **argv)
{
    double start = now_s();
    program = argv[0];
    parse_options(argc, argv);
    signal(SIGABRT, report_abort);
    if (opt.regressions && !opt.one && opt.plant == SIM_PLANT_NONE)
        run_regressions(opt.regressions);
    for (uint64_t i = 0; i < opt.seeds; i++) {
        if (opt.plant != SIM_PLANT_NONE)
            (void)run_seed(opt.first + i);
        else if (opt.each_op)
            fail_each_op(opt.first + i);
        else
            run_twice(opt.first + i);
    }
    if (opt.plant != SIM_PLANT_NONE) {
        fprintf(stderr, "planted %s: not found by %" PRIu64 " seeds\n", plants[opt.plant],
                opt.seeds);
        return 1;
    }
    print_totals(now_s() - start);
    return 0;
}
