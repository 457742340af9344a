/* growth.c - what a call costs as something grows; growth.py runs it, takes medians and plots.
 * usage: growth grains MAX | growth silos N CALLERS TRANSPORT | growth callers N |
 *        growth payload BYTES WHERE CALLERS | growth memory BYTES
 *   WHERE: local or remote. A line a window of time: RESULT calls=... seconds=... cpu_seconds=...
 * Way:     growth.py -> [growth] -> growth_load -> Caller turns -> Target grains */
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include "growth.teff.h"
#include "growth_load.h"
#include "growth_memory.h"
#include "resident.h"

enum {
    WINDOWS = 7,
    TARGETS = 64,      /* of payloads */
    GRAINS = 10000,    /* likewise */
    FEW_GRAINS = 1000, /* what more grains are compared with */
    VISIT = 10000,     /* grains that one turn visits */
    WAIT_SECONDS = 120
};

static const double window_seconds = 0.2, bytes_max = 8.0 * 1024 * 1024 * 1024;

/* ---- callers ---- */

static void sleep_ms(long ms)
{
    struct timespec t = {ms / 1000, ms % 1000 * 1000000};
    nanosleep(&t, NULL);
}

static void await_running(uint32_t n)
{
    for (int i = 0; i < WAIT_SECONDS * 1000; i++) {
        if (atomic_load_explicit(&load->running, memory_order_relaxed) == n)
            return;
        sleep_ms(1);
    }
    load_must(TEFF_E_TIMEOUT, "callers", NULL);
}

static void start_callers(teff_ctx *ctx, uint32_t n, uint64_t size)
{
    atomic_store_explicit(&load->stop, 0, memory_order_relaxed);
    for (uint32_t i = 0; i < n; i++)
        load_must(
            growth_caller_run(ctx, i, growth_work(.size = size, .seed = 88172645463325252u + i)),
            "a caller", ctx);
    await_running(n);
}

static void stop_callers(void)
{
    atomic_store_explicit(&load->stop, 1, memory_order_relaxed);
    await_running(0);
}

static void set_grains(uint64_t n)
{
    atomic_store_explicit(&load->grains, n, memory_order_relaxed);
}

static void visit(teff_ctx *ctx, uint64_t first, uint64_t end)
{
    for (; first < end; first += VISIT) {
        uint64_t n = end - first < VISIT ? end - first : VISIT;
        load_must(
            growth_caller_visit(ctx, 0, growth_range(.first = (int64_t)first, .n = (int64_t)n)),
            "activation", ctx);
        teff_ctx_reset(ctx);
    }
}

static void print(const char *what, uint64_t x, const load_window *w, double bytes)
{
    printf("RESULT what=%s x=%llu calls=%.0f seconds=%.6f cpu_seconds=%.6f bytes=%.1f\n", what,
           (unsigned long long)x, w->calls, w->seconds, w->cpu_seconds, bytes);
    fflush(stdout);
}

static void windows(const char *what, uint64_t x, const bench_child *silos, int n)
{
    (void)load_measure(window_seconds, silos, n); /* warm */
    for (int i = 0; i < WINDOWS; i++) {
        load_window w = load_measure(window_seconds, silos, n);
        print(what, x, &w, 0);
    }
}

/* ---- grains ---- */

/* All of them and a few in turn, so that both meet the same neighbours. */
static void grains_windows(uint64_t n, double bytes)
{
    for (int i = 0; i < 2 * WINDOWS + 2; i++) {
        set_grains(i % 2 ? FEW_GRAINS : n);
        load_window w = load_measure(window_seconds, NULL, 0);
        if (i >= 2)
            print(i % 2 ? "few" : "grains", n, &w, bytes);
    }
}

static void grains(teff_ctx *ctx, uint64_t max)
{
    visit(ctx, 0, FEW_GRAINS);
    double before = bench_resident_bytes(), each = 0;
    for (uint64_t n = FEW_GRAINS, had = n; n <= max; n *= 10) {
        if (before + each * (double)n > bytes_max) {
            fprintf(stderr, "growth: %llu grains of %.0f bytes: more than %.0f GiB\n",
                    (unsigned long long)n, each, bytes_max / (1 << 30));
            break;
        }
        visit(ctx, had, n);
        if (n > had)
            each = (bench_resident_bytes() - before) / (double)(n - FEW_GRAINS);
        had = n;
        start_callers(ctx, 1, 0);
        grains_windows(n, each);
        stop_callers();
    }
}

/* ---- the others ---- */

static void silos(teff_silo *silo, teff_ctx *ctx, int n, uint32_t n_callers, int fd)
{
    bench_child more[LOAD_SILOS];
    for (int i = 0; i < n - 1; i++)
        more[i] = load_silo_start(fd, teff_silo_address(silo), true, true);
    for (int i = 0; (int)teff_silo_members(silo) < n; i++) {
        if (i == WAIT_SECONDS * 1000)
            load_must(TEFF_E_TIMEOUT, "silos", NULL);
        sleep_ms(1);
    }
    visit(ctx, 0, GRAINS);
    start_callers(ctx, n_callers, 0);
    windows("silos", (uint64_t)n, more, n - 1);
    stop_callers();
    for (int i = n - 2; i >= 0; i--)
        bench_child_stop(&more[i]);
}

static void callers(teff_ctx *ctx, uint32_t n)
{
    visit(ctx, 0, GRAINS);
    start_callers(ctx, n, 0);
    windows("callers", n, NULL, 0);
    stop_callers();
}

static void payload(teff_silo *silo, teff_ctx *ctx, uint64_t size, uint32_t n, bool remote, int fd)
{
    bench_child far;
    if (remote)
        far = load_silo_start(fd, teff_silo_address(silo), false, true);
    visit(ctx, 0, TARGETS);
    set_grains(TARGETS);
    start_callers(ctx, n, size);
    windows(remote ? "remote" : "local", size, &far, remote ? 1 : 0);
    stop_callers();
    if (remote)
        bench_child_stop(&far);
}

/* Reads of memory instead of calls. */
static int memory(uint64_t bytes)
{
    double read_seconds[WINDOWS];
    if (bytes < 128 || !growth_memory(bytes, window_seconds, read_seconds, WINDOWS))
        return 1;
    for (int i = 0; i < WINDOWS; i++)
        printf("RESULT what=memory x=%llu calls=1 seconds=%.12f\n", (unsigned long long)bytes,
               read_seconds[i]);
    return 0;
}

int main(int argc, char **argv)
{
    if (argc == 6 && strcmp(argv[1], "--silo") == 0)
        return load_silo_main(argv + 2);
    if (argc < 3)
        return 2;
    if (strcmp(argv[1], "memory") == 0)
        return memory(strtoull(argv[2], NULL, 10));
    signal(SIGPIPE, SIG_IGN);
    int fd = load_share();
    if (argc == 5 && strcmp(argv[1], "silos") == 0 &&
        !bench_transport_of(argv[4], &load->transport))
        return 2;
    uint64_t n = strtoull(argv[2], NULL, 10);
    bool remote = argc == 5 && strcmp(argv[3], "remote") == 0;
    teff_silo *silo = load_silo_new(NULL, true, !remote);
    teff_ctx *ctx = teff_silo_new_ctx(silo);
    set_grains(GRAINS);
    if (strcmp(argv[1], "grains") == 0)
        grains(ctx, n);
    else if (strcmp(argv[1], "silos") == 0 && argc == 5 && n >= 1 && n <= LOAD_SILOS)
        silos(silo, ctx, (int)n, (uint32_t)atoi(argv[3]), fd);
    else if (strcmp(argv[1], "callers") == 0)
        callers(ctx, (uint32_t)n);
    else if (strcmp(argv[1], "payload") == 0 && argc == 5)
        payload(silo, ctx, n, (uint32_t)atoi(argv[4]), remote, fd);
    else
        return 2;
    fflush(stdout);
    _exit(0); /* millions of grains take long to leave */
}
