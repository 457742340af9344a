/* platform.h - the seam to the world: one table, given to a silo or client when it is made.
 * Way:     everything -> [platform] -> real (clock, random, workers, nng, SQLite) | the simulator
 * Threads: every function may be called from any thread.
 * Source:  DESIGN "Seams and proof" */
#ifndef TEFFI_PLATFORM_H
#define TEFFI_PLATFORM_H

#include <stdbool.h>
#include <stdint.h>
#include <teff/error.h>
#include <teff/sched.h>
#include "base/log.h"

struct teffi_exec;
struct teffi_net;
struct teffi_net_options;
struct teffi_store;

typedef struct teffi_platform {
    void *arg;                      /* given to each function below */
    uint64_t (*mono_ns)(void *arg); /* never goes back; goes on while the machine sleeps */
    uint64_t (*wall_ns)(void *arg); /* since 1970; may jump; only for what people and rows read */
    uint64_t (*random)(void *arg);  /* 64 random bits */
    teffi_log log;
    /* Constructors of the parts that differ; text is of TEFF_TEXT_MAX bytes, set on an error. */
    teff_err (*exec_new)(const struct teffi_platform *platform, unsigned workers,
                         const teff_sched_options *opt, struct teffi_exec **exec);
    teff_err (*net_new)(const struct teffi_platform *platform, const struct teffi_net_options *opt,
                        struct teffi_net **net, char *text);
    teff_err (*store_open)(const struct teffi_platform *platform, const char *address,
                           struct teffi_store **store, char *text);
} teffi_platform;

/* teffi_platform_real - this machine. in: log_level for stderr. */
void teffi_platform_real(teffi_platform *platform, teffi_level log_level);

static inline uint64_t teffi_now(const teffi_platform *platform)
{
    return platform->mono_ns(platform->arg);
}

#endif
