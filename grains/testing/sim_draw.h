/* sim_draw.h - random numbers of a run: streams split from one seed (splitmix64), so that a draw in
 * one part does not shift the draws of another. */
#pragma once

#include <stdbool.h>
#include <stdint.h>
#include "base/hash.h"

typedef struct sim_draw {
    uint64_t state;
} sim_draw;

static inline uint64_t sim_draw_next(sim_draw *d)
{
    d->state += 0x9e3779b97f4a7c15u;
    return teffi_mix64(d->state);
}

static inline sim_draw sim_draw_of(uint64_t seed, uint64_t stream)
{
    return (sim_draw){teffi_mix64(teffi_mix64(seed + 1) ^ (stream + 1) * 0xd1342543de82ef95u)};
}

/* sim_draw_below - 0 .. n-1. sim_draw_between - low .. high. */
static inline uint64_t sim_draw_below(sim_draw *d, uint64_t n)
{
    return n ? sim_draw_next(d) % n : 0;
}

static inline uint64_t sim_draw_between(sim_draw *d, uint64_t low, uint64_t high)
{
    return low + sim_draw_below(d, high - low + 1);
}

static inline bool sim_draw_chance(sim_draw *d, unsigned per_mille)
{
    return per_mille && sim_draw_below(d, 1000) < per_mille;
}
