/* torment.h - what the system may do to a worker's thread, done to all of them at random: other
 * priorities, and standing still for up to seconds.
 * Way:     stress_*.c -> [torment] -> sched_setscheduler, setpriority, a handler that sleeps
 * Threads: one of its own between start and stop; the handler runs on the worker it holds up. */
#pragma once

#include <stdint.h>

/* torment_start - begin. in: name, threads whose name begins so; hold_ms, the longest hold. */
void torment_start(const char *name, uint64_t seed, uint32_t hold_ms);

/* torment_stop - end. out: how often priorities were changed and threads were held. */
void torment_stop(uint64_t *shuffles, uint64_t *holds);
