/* acts.h - a silo whose grains run whatever function a test hands them, and functions for them.
 * Way:     test_direct*.c -> [acts] -> silo
 * Threads: grains write the world's atomics; a test waits for them. */
#pragma once

#include "direct.teff.h"
#include "directory/shard.h"
#include "lab.h"

typedef teff_err script(teff_ctx *ctx, int64_t key, const direct_act *in, direct_number *out);

enum { FIRST = 100 }; /* keys of callees; callers have smaller ones */

#define RUN(fn) direct_act(.script = (uintptr_t)(fn))
#define ACT(fn, ...) direct_act(.script = (uintptr_t)(fn), __VA_ARGS__)

extern struct world {
    _Atomic bool gate;
    _Atomic int held, begun, ended;
    _Atomic int64_t rounds, seen[64];
    _Atomic int disorder, inside, collisions;
    _Atomic int activated, deactivated; /* of Keeper and Crowd */
    script *_Atomic on_activate;        /* theirs */
} world;

extern const direct_actor_methods acts_actor;
extern lab *l;
extern teff_ctx *ctx; /* this thread's, of the first silo */

void acts_open(teff_silo_options opt);
int acts_setup(void **state);
int acts_setup_one_worker(void **state);
int acts_setup_multilevel(void **state);
int acts_setup_priority(void **state);
int acts_setup_hooked(void **state); /* hooks around each run */
int acts_teardown(void **state);

void acts_sleep_ms(long ms);

/* acts_stop_time - the clock stops and the monitor stands still: no slice ends, no processor is
 * retaken and no deadline passes, however slow the machine is.
 * acts_pass_ms - in a turn: the clock moves by ms, and the monitor ticks once.
 * acts_start_time - time passes by itself again; also done by acts_teardown. */
void acts_stop_time(void);
void acts_pass_ms(uint64_t ms);
void acts_start_time(void);

/* The state of the grain, a Keeper or Crowd, whose turn it is. */
direct_memo *acts_memo(const teff_ctx *turn);

/* Groups taken off queues so far; activations of the first silo. */
uint64_t acts_picks(void);
uint64_t acts_activations(void);

/* Scripts: n + 1 and the text; an error with the text; the first after a wait, or when the gate
 * opens; and it deactivates; ask grain key + FIRST for script n. */
script responds, fails, sleeps, waits, ends, asks_one;
