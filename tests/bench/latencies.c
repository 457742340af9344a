/* latencies.c - see latencies.h. */
#include "latencies.h"

#include <stdbool.h>
#include <string.h>

void latencies_clear(latencies *l)
{
    memset(l, 0, sizeof *l);
}

void latencies_add(latencies *l, uint64_t took_ns)
{
    uint64_t step = took_ns / LATENCY_STEP_NS;
    l->counts[step < LATENCY_STEPS ? step : LATENCY_STEPS - 1]++;
    l->n++;
}

/* in: weighs_time: each call has its time, not 1, as its weight. */
static double find_percentile_us(const latencies *l, double share, bool weighs_time)
{
    double sum = 0, faster = 0;
    size_t step;
    for (step = 0; step < LATENCY_STEPS; step++)
        sum += (double)l->counts[step] * (weighs_time ? (double)step + 0.5 : 1);
    for (step = 0; step < LATENCY_STEPS - 1; step++) {
        faster += (double)l->counts[step] * (weighs_time ? (double)step + 0.5 : 1);
        if (faster > sum * share)
            break;
    }
    return (double)step * LATENCY_STEP_NS / 1000;
}

double latencies_percentile_us(const latencies *l, double share)
{
    return find_percentile_us(l, share, false);
}

double latencies_percentile_of_time_us(const latencies *l, double share)
{
    return find_percentile_us(l, share, true);
}
