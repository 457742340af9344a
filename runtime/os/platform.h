/* platform.h - the one table through which a silo or client reaches the outside world.
 * Way:     everything -> [platform] -> real.c, grains/silo/silo.c | the simulator
 * Threads: every function may be called from any thread. */
#pragma once

#include <stdbool.h>
#include <stdint.h>
#include <teff/error.h>
#include "base/log.h"

struct teff_sched_options;
struct teffi_exec;
struct teffi_memory_use; /* os/memory_use.h */
struct teffi_net;
struct teffi_net_options;
struct teffi_store;

typedef struct teffi_platform {
    void *arg;                      /* given to each function below */
    uint64_t (*mono_ns)(void *arg); /* monotonic; also advances while the machine sleeps */
    uint64_t (*wall_ns)(void *arg); /* since 1970; may jump; only for stored rows */
    uint64_t (*random)(void *arg);  /* 64 random bits */
    teffi_log log;
    /* How much memory may be used, and is used? out: false: there is no limit. NULL: there is none.
     * May take 0.1 ms, or longer if many cgroups exist. */
    bool (*memory_use)(void *arg, struct teffi_memory_use *use);
    /* Constructors, which may be NULL; text: TEFF_TEXT_MAX bytes, set on an error; or NULL. */
    teff_err (*exec_new)(const struct teffi_platform *platform, unsigned workers,
                         const struct teff_sched_options *opt, struct teffi_exec **exec);
    teff_err (*net_new)(const struct teffi_platform *platform, const struct teffi_net_options *opt,
                        struct teffi_net **net, char *text);
    teff_err (*store_open)(const struct teffi_platform *platform, const char *address,
                           struct teffi_store **store, char *text);
} teffi_platform;

/* teffi_platform_init_real - this machine's clock, random numbers and log; the constructors are
 * NULL.
 * in:   log_level; lines go where teff_log_to() says. */
void teffi_platform_init_real(teffi_platform *platform, teff_log_level log_level);

static inline uint64_t teffi_now(const teffi_platform *platform)
{
    return platform->mono_ns(platform->arg);
}
