/* real.c - the clocks, random numbers and log of this machine.
 * Way:     silo, client, process system, engine, store -> teffi_platform_init_real -> [real]
 * Threads: every function from any thread; random numbers come from a per-thread buffer. */
#include <errno.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <sys/random.h>
#include <time.h>
#include <unistd.h>
#include "base/bug.h"
#include "os/memory_use.h"
#include "os/platform.h"

static uint64_t clock_ns(clockid_t id)
{
    struct timespec ts;
    teffi_bug_if(clock_gettime(id, &ts) != 0);
    return (uint64_t)ts.tv_sec * 1000000000u + (uint64_t)ts.tv_nsec;
}

/* Reads CLOCK_BOOTTIME, because leases also run out while the machine sleeps. */
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

/* in: n: at most 256. Up to this size, getrandom() returns all n bytes, and fails with EINTR only
 * while it waits until the kernel has seeded its generator. */
static void fill_random(void *to, size_t n)
{
    ssize_t got;
    do
        got = getrandom(to, n, 0);
    while (got < 0 && errno == EINTR);
    teffi_bug_if(got != (ssize_t)n);
}

static _Thread_local uint64_t random_buffer[32];
static _Thread_local unsigned random_left;

/* Runs in the child of fork(): drops the buffered numbers, since the parent has the same ones. */
static void drop_buffered_random(void)
{
    memset(random_buffer, 0, sizeof random_buffer);
    random_left = 0;
}

static void register_fork_handler(void)
{
    teffi_bug_if(pthread_atfork(NULL, NULL, drop_buffered_random) != 0);
}

/* Never inlined: a fiber may change threads, and an inlined copy could still use the address of the
 * old thread's buffer. */
__attribute__((noinline)) static uint64_t random_number(void *arg)
{
    (void)arg;
    if (random_left == 0) {
        fill_random(random_buffer, sizeof random_buffer);
        random_left = sizeof random_buffer / sizeof random_buffer[0];
    }
    uint64_t value = random_buffer[--random_left];
    random_buffer[random_left] = 0; /* a number that was returned is not kept in memory */
    return value;
}

static bool read_memory_use(void *arg, teffi_memory_use *use)
{
    (void)arg;
    return teffi_memory_use_read("", use);
}

static const char *level_name(teff_log_level level)
{
    return level == TEFF_LOG_ERROR ? "error" : level == TEFF_LOG_WARN ? "warn" : "info";
}

static void write_to_stderr(teff_log_level level, const char *line)
{
    char text[1100];
    struct timespec ts;
    struct tm tm;
    clock_gettime(CLOCK_REALTIME, &ts);
    gmtime_r(&ts.tv_sec, &tm);
    size_t at = strftime(text, sizeof text, "%Y-%m-%dT%H:%M:%S", &tm);
    int n = snprintf(text + at, sizeof text - at, ".%03ldZ %s %.1000s\n", ts.tv_nsec / 1000000,
                     level_name(level), line);
    /* One write, so that lines of several threads stay whole; an error cannot be reported. */
    (void)!write(STDERR_FILENO, text, at + (size_t)n);
}

static const teff_log_handler *_Atomic handler; /* NULL: standard error */

void teff_log_to(const teff_log_handler *to)
{
    /* release: publishes the fields of *to; pairs with write_log_line() */
    atomic_store_explicit(&handler, to, memory_order_release);
}

static void write_log_line(void *arg, teff_log_level level, const char *line)
{
    (void)arg;
    /* acquire: pairs with teff_log_to() */
    const teff_log_handler *to = atomic_load_explicit(&handler, memory_order_acquire);
    if (to)
        to->write(to->arg, level, line);
    else
        write_to_stderr(level, line);
}

void teffi_platform_init_real(teffi_platform *platform, teff_log_level log_level)
{
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    pthread_once(&once, register_fork_handler);
    *platform = (teffi_platform){
        .mono_ns = mono_ns,
        .wall_ns = wall_ns,
        .random = random_number,
        .log = {.write = write_log_line, .level = log_level},
        .memory_use = read_memory_use,
    };
}
