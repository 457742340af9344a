/* latencies.h - how long many calls took, counted in steps of 100 ns, so that there may be any
 * number of calls.
 * Way:     bench/hostile, unit/silo/test_hostile -> [latencies] -> percentiles */
#pragma once

#include <stddef.h>
#include <stdint.h>

enum { LATENCY_STEP_NS = 100, LATENCY_STEPS = 1 << 21 };

typedef struct latencies {
    uint64_t n;
    uint32_t counts[LATENCY_STEPS]; /* the last one: of that time and all longer ones */
} latencies;

void latencies_clear(latencies *l);
void latencies_add(latencies *l, uint64_t took_ns);

/* latencies_percentile_us - in: share: 0.5 for the median; at least one call was added. out: this
 * share of the calls took less time. */
double latencies_percentile_us(const latencies *l, double share);

/* latencies_percentile_of_time_us - in: the same. out: this share of the time passed in calls that
 * took less time. A caller that makes one call after the other meets a pause of the server only
 * once, so the pause hardly changes the share of calls, but it changes the share of time. */
double latencies_percentile_of_time_us(const latencies *l, double share);
