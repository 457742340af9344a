/* torment.c - priorities and holds at random.
 * SIGPROF, since a worker blocks the others. At most two threads are held at a time: all of them at
 * once would only be a slower machine. */
#include "torment.h"

#include <dirent.h>
#include <errno.h>
#include <sched.h>
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>
#include "base/hash.h"
#include "os/thread.h"

enum { THREADS_MAX = 256, HELD_MAX = 2 };

static struct {
    teffi_thread thread;
    const char *name;
    uint64_t rng, shuffles, holds;
    uint32_t hold_ms;
    teffi_parker parker;
    _Atomic bool stop;
    _Atomic uint32_t wanted_ms; /* of the hold to come; whoever takes it is held */
    _Atomic int held;
} t;

static uint64_t draw(void)
{
    return t.rng = teffi_mix64(t.rng + 1);
}

static void stand_still(int signal)
{
    int before = errno;
    (void)signal;
    uint32_t ms = atomic_exchange(&t.wanted_ms, 0);
    if (ms) {
        struct timespec pause = {ms / 1000, ms % 1000 * 1000000L};
        (void)nanosleep(&pause, NULL);
        atomic_fetch_sub(&t.held, 1);
    }
    errno = before;
}

static bool is_named(int tid)
{
    char path[64], name[32] = "";
    snprintf(path, sizeof path, "/proc/self/task/%d/comm", tid);
    FILE *f = fopen(path, "r");
    if (!f)
        return false; /* it has ended */
    bool got = fgets(name, sizeof name, f) != NULL;
    fclose(f);
    return got && strncmp(name, t.name, strlen(t.name)) == 0;
}

/* One of the threads at random. out: 0: there is none. */
static int pick(void)
{
    int tids[THREADS_MAX], n = 0;
    DIR *dir = opendir("/proc/self/task");
    if (!dir)
        return 0;
    for (struct dirent *e; n < THREADS_MAX && (e = readdir(dir));) {
        int tid = atoi(e->d_name);
        if (tid && is_named(tid))
            tids[n++] = tid;
    }
    closedir(dir);
    return n ? tids[draw() % (unsigned)n] : 0;
}

/* Where it is not allowed, or the thread has ended, nothing changes. */
static void shuffle(int tid)
{
    static const int policies[] = {SCHED_OTHER, SCHED_OTHER, SCHED_BATCH, SCHED_IDLE};
    struct sched_param none = {0};
    (void)sched_setscheduler(tid, policies[draw() % 4], &none);
    (void)setpriority(PRIO_PROCESS, (id_t)tid, (int)(draw() % 20));
    t.shuffles++;
}

/* From 1 ms on, each doubling as likely as the next. */
static void hold(int tid)
{
    uint32_t ms = 1;
    while (ms < t.hold_ms && draw() % 3)
        ms *= 2;
    if (atomic_exchange(&t.wanted_ms, 0))
        atomic_fetch_sub(&t.held, 1); /* the last one ended before it took its signal */
    if (atomic_load(&t.held) >= HELD_MAX)
        return;
    atomic_fetch_add(&t.held, 1);
    atomic_store(&t.wanted_ms, ms < t.hold_ms ? ms : t.hold_ms);
    if (syscall(SYS_tgkill, getpid(), tid, SIGPROF) == 0)
        t.holds++;
    else if (atomic_exchange(&t.wanted_ms, 0))
        atomic_fetch_sub(&t.held, 1);
}

static void torment(void *arg)
{
    (void)arg;
    while (!atomic_load(&t.stop)) {
        int tid = pick();
        if (tid && draw() % 4 == 0)
            hold(tid);
        else if (tid)
            shuffle(tid);
        teffi_parker_wait(&t.parker, draw() % 10000000);
    }
}

void torment_start(const char *name, uint64_t seed, uint32_t hold_ms)
{
    struct sigaction action = {.sa_handler = stand_still, .sa_flags = SA_RESTART};
    memset(&t, 0, sizeof t);
    t.name = name;
    t.rng = seed;
    t.hold_ms = hold_ms;
    if (sigaction(SIGPROF, &action, NULL) ||
        teffi_thread_start(&t.thread, "torment", torment, NULL))
        exit(2);
}

void torment_stop(uint64_t *shuffles, uint64_t *holds)
{
    atomic_store(&t.stop, true);
    teffi_parker_wake(&t.parker);
    teffi_thread_join(&t.thread);
    *shuffles = t.shuffles;
    *holds = t.holds;
}
