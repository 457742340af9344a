/* growth_memory.h - what a read of memory costs that is in no cache: the yardstick for many grains.
 * Way:     growth.c -> [growth_memory.c] */
#pragma once

#include <stdbool.h>
#include <stdint.h>

/* growth_memory - reads the lines of so much memory in a random order, each read's place known from
 * the one before.
 * in:  bytes, at least 128; n windows of so many seconds.
 * out: read_seconds, of one read, for each. false: no memory. */
bool growth_memory(uint64_t bytes, double seconds, double *read_seconds, int n);
