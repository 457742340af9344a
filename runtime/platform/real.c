/* real.c - this machine: clocks, random numbers, stderr, workers, nng, SQLite.
 * Way:     silo, client -> teffi_platform_real -> [real] -> the system
 * Threads: every function from any thread; random numbers come from a per-thread buffer. */
#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/random.h>
#include <time.h>
#include <unistd.h>
#include "base/bug.h"
#include "platform/platform.h"
#include "sched/exec.h"
#include "store/store.h"
#include "wire/net.h"

static uint64_t clock_ns(clockid_t id)
{
    struct timespec ts;
    teffi_bug_if(clock_gettime(id, &ts) != 0);
    return (uint64_t)ts.tv_sec * 1000000000u + (uint64_t)ts.tv_nsec;
}

/* BOOTTIME: a lease must run out while the machine sleeps. */
static uint64_t mono_ns(void *arg)
{
    (void)arg;
    return clock_ns(CLOCK_BOOTTIME);
}

static uint64_t wall_ns(void *arg)
{
    (void)arg;
    return clock_ns(CLOCK_REALTIME);
}

static void fill_random(void *to, size_t n)
{
    ssize_t got;
    do
        got = getrandom(to, n, 0); /* whole and uninterrupted up to 256 bytes, once seeded */
    while (got < 0 && errno == EINTR);
    teffi_bug_if(got != (ssize_t)n);
}

/* Never inlined: a fiber that moved to another thread must not use the old thread's buffer. */
__attribute__((noinline)) static uint64_t random64(void *arg)
{
    static _Thread_local uint64_t buffer[32];
    static _Thread_local unsigned left;
    (void)arg;
    if (left == 0) {
        fill_random(buffer, sizeof buffer);
        left = sizeof buffer / sizeof buffer[0];
    }
    uint64_t value = buffer[--left];
    buffer[left] = 0; /* a number handed out is not to be found in memory */
    return value;
}

static const char *level_name(teffi_level level)
{
    return level == TEFFI_ERROR ? "error" : level == TEFFI_WARN ? "warn" : "info";
}

static void write_line(void *arg, teffi_level level, const char *line)
{
    char text[1100];
    struct timespec ts;
    struct tm tm;
    (void)arg;
    clock_gettime(CLOCK_REALTIME, &ts);
    gmtime_r(&ts.tv_sec, &tm);
    size_t at = strftime(text, sizeof text, "%Y-%m-%dT%H:%M:%S", &tm);
    int n = snprintf(text + at, sizeof text - at, ".%03ldZ %s %s\n", ts.tv_nsec / 1000000,
                     level_name(level), line);
    size_t len = at + (n > 0 ? (size_t)n : 0);
    if (len >= sizeof text) {
        len = sizeof text - 1;
        text[len - 1] = '\n';
    }
    /* One write, so that lines of several threads stay whole; a lost one has nobody to tell. */
    ssize_t ignored = write(STDERR_FILENO, text, len);
    (void)ignored;
}

static teff_err open_store(const teffi_platform *platform, const char *address,
                           struct teffi_store **store, char *text)
{
    (void)platform;
    return teffi_store_open(address, store, text);
}

void teffi_platform_real(teffi_platform *platform, teffi_level log_level)
{
    *platform = (teffi_platform){
        .mono_ns = mono_ns,
        .wall_ns = wall_ns,
        .random = random64,
        .log = {.write = write_line, .level = log_level},
        .exec_new = teffi_exec_real_new,
        .net_new = teffi_net_nng_new,
        .store_open = open_store,
    };
}
