/* stress_starts.c - executors that start and stop, mostly with work under way: groups that push on,
 * timers, blocking regions. No hang, no thread left, nothing handled twice at a time.
 * usage: stress_starts [--cycles N] [--torment] */
#include <dirent.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "base/hash.h"
#include "base/queue.h"
#include "os/thread.h"
#include "sched/exec.h"
#include "torment.h"

enum { PLACES = 6, WORKERS_MAX = 6 };
#define HANG_NS 180000000000u

typedef struct place {
    teffi_group group;
    teffi_item item;
    teffi_timer timer;
    uint64_t rng, visits; /* the handler's */
    _Atomic bool inside;
} place;

static teffi_platform platform;
static teffi_exec *exec;
static place places[PLACES];
static _Atomic uint32_t wrong, visits, wanted;
static _Atomic uint64_t cycles;
static _Atomic bool over;
static teffi_parker done, guard;

static void on_timer(teffi_timer *timer)
{
    place *p = teffi_container(timer, place, timer);
    (void)teffi_group_push(&p->group, &p->item);
}

static void block_a_while(void)
{
    exec->ops->blocking_begin(exec);
    teffi_thread_yield();
    exec->ops->blocking_end(exec);
}

/* Each place has one item, which is either queued, or its timer's, or handled: it never ends. */
static void on_item(teffi_group *group, teffi_item *item)
{
    place *p = teffi_container(group, place, group);
    (void)item;
    if (atomic_exchange(&p->inside, true))
        atomic_fetch_add(&wrong, 1);
    p->visits++;
    p->rng = teffi_mix64(p->rng + 1);
    if (p->rng % 8 == 0)
        block_a_while();
    if (atomic_fetch_add(&visits, 1) + 1 == atomic_load(&wanted))
        teffi_parker_wake(&done);
    atomic_store(&p->inside, false);
    if (p->rng % 16 == 1)
        exec->ops->timer_set(exec, &p->timer, teffi_now(&platform) + p->rng % 2000000);
    else
        (void)teffi_group_push(&p->group, &p->item);
}

static const teffi_group_ops ops = {.handle = on_item};

static void begin(uint64_t seed)
{
    unsigned n = 1 + (unsigned)(seed % WORKERS_MAX);
    if (teffi_exec_real_new(&platform, n, NULL, &exec)) {
        printf("stress_starts: FAILED: %u workers did not start\n", n);
        exit(1);
    }
    atomic_store(&visits, 0);
    atomic_store(&wanted, (uint32_t)(seed >> 32) % 200);
    for (unsigned i = 0; i < PLACES; i++) {
        places[i] = (place){.rng = seed + i, .timer.fire = on_timer};
        teffi_group_init(&places[i].group, exec, &ops);
    }
    for (unsigned i = 0; i < PLACES; i++)
        (void)teffi_group_push(&places[i].group, &places[i].item);
}

/* Stopped at once, or after some visits; freed with or without a stop before. */
static void one_cycle(uint64_t seed)
{
    uint64_t sum = 0;
    begin(seed);
    while (atomic_load(&visits) < atomic_load(&wanted))
        teffi_parker_wait(&done, 100000000);
    if (seed >> 63)
        exec->ops->stop(exec);
    exec->ops->free(exec);
    for (unsigned i = 0; i < PLACES; i++)
        sum += places[i].visits;
    if (sum != atomic_load(&visits))
        atomic_fetch_add(&wrong, 1);
}

/* Ends the program when no cycle ends for long; what hangs is there to look at. */
static void watch(void *arg)
{
    uint64_t seen = 0, since_ns = teffi_now(&platform);
    (void)arg;
    while (!atomic_load(&over)) {
        teffi_parker_wait(&guard, 1000000000);
        uint64_t now = teffi_now(&platform), n = atomic_load(&cycles);
        if (n != seen) {
            seen = n;
            since_ns = now;
        }
        if (now - since_ns > HANG_NS) {
            printf("stress_starts: FAILED: hangs in cycle %llu\n", (unsigned long long)seen);
            fflush(stdout);
            abort();
        }
    }
}

static unsigned tasks(void)
{
    unsigned n = 0;
    DIR *dir = opendir("/proc/self/task");
    while (dir && readdir(dir))
        n++;
    if (dir)
        closedir(dir);
    return n;
}

/* A joined thread may take a moment to be gone. */
static bool tasks_fall_to(unsigned most)
{
    uint64_t end_ns = teffi_now(&platform) + HANG_NS;
    while (tasks() > most && teffi_now(&platform) < end_ns)
        teffi_thread_yield();
    return tasks() <= most;
}

int main(int argc, char **argv)
{
    uint64_t n = 500, shuffles = 0, holds = 0;
    bool tormented = false;
    teffi_thread watcher;
    for (int i = 1; i < argc; i++) {
        if (strcmp(argv[i], "--torment") == 0) {
            tormented = true;
        } else if (i + 1 < argc && strcmp(argv[i], "--cycles") == 0) {
            n = (uint64_t)atoll(argv[++i]);
        } else {
            fprintf(stderr, "usage: stress_starts [--cycles N] [--torment]\n");
            return 2;
        }
    }
    teffi_platform_init_real(&platform, TEFF_LOG_INFO);
    uint64_t seed = platform.random(NULL), rng = seed, begin_ns = teffi_now(&platform);
    if (teffi_thread_start(&watcher, "watch", watch, NULL))
        return 2;
    if (tormented)
        torment_start("teff-", seed, 1000);
    unsigned before = tasks();
    for (; atomic_load(&cycles) < n && !atomic_load(&wrong); atomic_fetch_add(&cycles, 1))
        one_cycle(rng = teffi_mix64(rng + 1));
    bool ok = !atomic_load(&wrong) && tasks_fall_to(before);
    if (tormented)
        torment_stop(&shuffles, &holds);
    atomic_store(&over, true);
    teffi_parker_wake(&guard);
    teffi_thread_join(&watcher);
    printf("stress_starts: %s: seed %llu, %llu cycles in %.0f s, %u errors, priorities shuffled "
           "%llu times, threads held %llu times\n",
           ok ? "ok" : "FAILED", (unsigned long long)seed, (unsigned long long)atomic_load(&cycles),
           (double)(teffi_now(&platform) - begin_ns) / 1e9, atomic_load(&wrong),
           (unsigned long long)shuffles, (unsigned long long)holds);
    return ok ? 0 : 1;
}
