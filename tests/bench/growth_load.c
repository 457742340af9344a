/* growth_load.c - the callers' loops, silos in processes of their own, and counting over all.
 * Way:     growth.c -> [load] -> generated stubs -> Target
 * Threads: turns on any worker; a thread counts in a slot of its own. */
#include "growth_load.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>
#include "growth.teff.h"

load_shared *load;

void load_must(teff_err err, const char *what, const teff_ctx *ctx)
{
    if (!err)
        return;
    fprintf(stderr, "growth: %s: %s %s\n", what, teff_err_name(err), ctx ? teff_error(ctx) : "");
    exit(1);
}

static void map(int fd)
{
    load = mmap(NULL, sizeof *load, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    if (load == MAP_FAILED)
        load_must(TEFF_E_NOMEM, "shared memory", NULL);
}

int load_share(void)
{
    int fd = memfd_create("growth", 0);
    if (fd < 0 || ftruncate(fd, sizeof *load) != 0)
        load_must(TEFF_E_NOMEM, "shared memory", NULL);
    map(fd);
    return fd;
}

void load_adopt(int fd)
{
    map(fd);
}

/* ---- the grains ---- */

/* Not inlined: a turn may be on another thread after each call. */
static __attribute__((noinline)) void count(void)
{
    static _Thread_local load_slot *own;
    if (!own) {
        uint32_t i = atomic_fetch_add_explicit(&load->slots, 1, memory_order_relaxed);
        own = &load->slot[i % LOAD_SLOTS];
    }
    atomic_fetch_add_explicit(&own->n, 1, memory_order_relaxed);
}

static uint64_t next_random(uint64_t *seed)
{
    *seed ^= *seed << 13;
    *seed ^= *seed >> 7;
    *seed ^= *seed << 17;
    return *seed;
}

static teff_err add(growth_target *self, const growth_small *in, growth_small *out)
{
    (void)self;
    out->number = in->number + 1;
    out->name = in->name;
    return TEFF_OK;
}

static teff_err put(growth_target *self, const growth_blob *in, growth_small *out)
{
    (void)self;
    out->number = in->data.len;
    return TEFF_OK;
}

static teff_err call_one(teff_ctx *ctx, int64_t key)
{
    growth_small *response;
    return growth_target_add(ctx, key, growth_small(.number = 1, .name = "small"), &response);
}

/* The responses of a turn stay in its arena until it ends: a turn does so many calls only, and then
 * the next begins. */
enum {
    CALLS_A_TURN = 100,
    BLOBS_A_TURN = 30,
    TIMEOUT_MS = 600000 /* among 90,000 callers one may wait for half a minute */
};

static bool stopped(void)
{
    return atomic_load_explicit(&load->stop, memory_order_relaxed); /* seen some time */
}

static teff_err run_some(teff_ctx *ctx, const growth_work *work, uint64_t *seed)
{
    int calls = work->size ? BLOBS_A_TURN : CALLS_A_TURN;
    growth_blob *blob = growth_blob(.data.len = work->size);
    growth_small *response;
    teff_err err = TEFF_OK;
    if (work->size)
        blob->data.data = teff_alloc(ctx, work->size);
    for (int i = 0; !err && i < calls && !stopped(); i++) {
        uint64_t grains = atomic_load_explicit(&load->grains, memory_order_relaxed);
        int64_t key = (int64_t)(next_random(seed) % grains);
        err = work->size ? growth_target_put(ctx, key, blob, &response) : call_one(ctx, key);
        count();
    }
    return err;
}

static teff_err run(growth_caller *self, const growth_work *in)
{
    uint64_t seed = in->seed;
    teff_ctx_set_timeout(self->ctx, TIMEOUT_MS);
    if (!in->goes_on)
        atomic_fetch_add_explicit(&load->running, 1, memory_order_relaxed);
    teff_err err = run_some(self->ctx, in, &seed);
    if (!err && !stopped())
        err = growth_caller_run(self->ctx, self->key,
                                growth_work(.size = in->size, .seed = seed, .goes_on = true));
    else
        atomic_fetch_sub_explicit(&load->running, 1, memory_order_relaxed);
    load_must(err, "a call", self->ctx); /* nobody else would hear of it */
    return err;
}

static teff_err visit(growth_caller *self, const growth_range *in)
{
    teff_err err = TEFF_OK;
    for (int64_t i = 0; !err && i < in->n; i++)
        err = call_one(self->ctx, in->first + i);
    return err;
}

/* ---- silos ---- */

teff_silo *load_silo_new(const char *seed, bool calls, bool is_called)
{
    static const growth_target_methods targets = {.add = add, .put = put};
    static const growth_caller_methods callers = {.run = run, .visit = visit};
    const teff_sched_options sched = {
        .size = sizeof sched, .delay_warn_ms = 600000, .stacks_max = 1000000};
    teff_silo_options opt = {.size = sizeof opt,
                             .silent = 1,
                             .seeds = {seed},
                             .sched = &sched,
                             .transport = load->transport};
    char text[TEFF_TEXT_MAX] = "";
    teff_silo *silo;
    load_must(teff_silo_new(&opt, &silo, NULL), "a silo", NULL);
    if (is_called)
        load_must(teff_silo_host(silo, growth_target_type(&targets, NULL)), "a silo", NULL);
    if (calls)
        load_must(teff_silo_host(silo, growth_caller_type(&callers, NULL)), "a silo", NULL);
    load_must(teff_silo_start(silo, text), text, NULL);
    return silo;
}

bench_child load_silo_start(int fd, const char *seed, bool calls, bool is_called)
{
    char number[20];
    bench_child silo;
    snprintf(number, sizeof number, "%d", fd);
    const char *args[] = {"--silo", number, seed, calls ? "1" : "0", is_called ? "1" : "0", NULL};
    if (!bench_child_start(&silo, args))
        load_must(TEFF_E_IO, "a silo's start", NULL);
    return silo;
}

int load_silo_main(char **argv)
{
    load_adopt(atoi(argv[0]));
    teff_silo *silo = load_silo_new(argv[1], *argv[2] == '1', *argv[3] == '1');
    bench_child_ready("ready");
    teff_silo_free(silo);
    return 0;
}

/* ---- counting ---- */

static double seconds_of(clockid_t clock)
{
    struct timespec t = {0, 0};
    clock_gettime(clock, &t);
    return (double)t.tv_sec + (double)t.tv_nsec / 1e9;
}

static load_window so_far(const bench_child *silos, int n)
{
    load_window w = {.seconds = seconds_of(CLOCK_MONOTONIC),
                     .cpu_seconds = seconds_of(CLOCK_PROCESS_CPUTIME_ID)};
    for (int i = 0; i < LOAD_SLOTS; i++)
        w.calls += (double)atomic_load_explicit(&load->slot[i].n, memory_order_relaxed);
    for (int i = 0; i < n; i++)
        w.cpu_seconds += bench_child_seconds(&silos[i]);
    return w;
}

load_window load_measure(double seconds, const bench_child *silos, int n)
{
    struct timespec t = {(time_t)seconds, (long)((seconds - (double)(time_t)seconds) * 1e9)};
    load_window before = so_far(silos, n);
    nanosleep(&t, NULL);
    load_window w = so_far(silos, n);
    w.calls -= before.calls;
    w.seconds -= before.seconds;
    w.cpu_seconds -= before.cpu_seconds;
    return w;
}
