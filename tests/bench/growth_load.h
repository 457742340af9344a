/* growth_load.h - callers that call without end in some processes, and how fast they do.
 * Way:     growth.c -> [load] -> Caller turns -> Target grains, in this and the other silos
 * Threads: the measuring one is outside; counters lie in memory that all processes share. */
#pragma once

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <teff/silo.h>
#include "child.h"
#include "transport.h"

enum { LOAD_SLOTS = 256, LOAD_SILOS = 8 };

/* A thread's own count of calls that ended. */
typedef struct load_slot {
    _Alignas(64) _Atomic uint64_t n;
} load_slot;

/* In shared memory; all of it relaxed: figures, and flags that are looked at again and again. */
typedef struct load_shared {
    teff_transport transport; /* immutable once silos start */
    _Atomic uint64_t grains;  /* how many different ones are called */
    _Atomic uint32_t running; /* callers that have begun */
    _Atomic uint32_t stop;
    _Atomic uint32_t slots; /* given away */
    load_slot slot[LOAD_SLOTS];
} load_shared;

extern load_shared *load;

/* load_share - make that memory. load_adopt - use that of the process that started this one.
 * in: fd, of that memory. */
int load_share(void);
void load_adopt(int fd);

/* load_silo_new - a silo in this process. in: seed may be NULL; ends the program on an error. */
teff_silo *load_silo_new(const char *seed, bool calls, bool is_called);

/* load_silo_start - one in a process of its own, ready when this returns. */
bench_child load_silo_start(int fd, const char *seed, bool calls, bool is_called);

/* load_silo_main - such a process. */
int load_silo_main(char **argv);

/* load_window - what happened in so many seconds: calls, and processor time of this process and of
 * silos. */
typedef struct load_window {
    double calls, seconds, cpu_seconds;
} load_window;
load_window load_measure(double seconds, const bench_child *silos, int n);

/* load_must - end the program with a word unless err is TEFF_OK. in: ctx may be NULL. */
void load_must(teff_err err, const char *what, const teff_ctx *ctx);
